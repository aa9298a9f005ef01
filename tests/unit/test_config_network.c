/* SPDX-License-Identifier: Apache-2.0 */
/* [permissions.NAME.network]: which network comes of its keys, its own and those it inherits. */
#include "base/auto.h"
#include "config/policy.h"
#include "config_fixture.h"
#include "memory_fixture.h"
#include "sandbox/network_json.h"

/* The C library's own calls of malloc are not counted: so these are. */
char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);

char *__wrap_strdup(const char *text)
{
    return memory_ends() ? NULL : __real_strdup(text);
}

#define FILES ".filesystem]\n':root' = 'read'\n"

static const struct sp_profile *profile(const struct sp_config *c, const char *name)
{
    for (size_t i = 0; i < c->profile_count; i++)
        if (strcmp(c->profiles[i].name, name) == 0)
            return &c->profiles[i].profile;
    fail_msg("there is no profile %s", name);
    return NULL;
}

/* keys: of one profile. Returns none, host or managed. */
static const char *network_of(const struct sp_profile *p)
{
    return p->has_network ? "host" : p->managed != NULL ? "managed" : "none";
}

static void is(const char *keys, const char *network)
{
    char text[600];

    (void)snprintf(text, sizeof text,
                   "[permissions.a]\nextends = ':read-only'\n[permissions.a.network]\n%s", keys);
    auto_config struct sp_config c = load(text);
    if (strcmp(network_of(profile(&c, "a")), network) != 0)
        fail_msg("%s: %s", keys, network_of(profile(&c, "a")));
}

static void test_which_network_it_is(void **state)
{
    (void)state;
    is("", "none");
    is("enabled = false\n", "none");
    is("enabled = true\n", "host");
    is("enabled = true\nmanaged = false\n", "host");
    is("managed = true\n", "managed");
    is("managed = false\n", "none");
    is("enabled = true\nmanaged = true\n", "managed");
    is("enabled = true\ndomains = {}\n", "managed");
    is("enabled = true\nmode = 'full'\n", "managed");
    is("enabled = true\nallow_local_binding = false\n", "managed");
    is("enabled = true\nproxy_url = 'http://127.0.0.1:3128'\n", "managed"); /* never wider */
    is("enabled = false\ndomains = {'a.example' = 'allow'}\n", "none");
    is("domains = {'a.example' = 'allow'}\n", "none"); /* with a warning */
}

static void test_every_key_counts(void **state)
{
    auto_config struct sp_config c =
        load("[permissions.a]\nextends = ':read-only'\n[permissions.a.network]\nmanaged = true\n"
             "mode = 'limited'\nports = [25, 587]\nask = false\nallow_local = true\n"
             "enable_socks5 = false\ncheck_sni = false\nproxy_env = false\n"
             "allow_upstream_proxy = false\nupstream_unresolved = 'deny'\n"
             "domains = {'B.example.' = 'deny', '**.a.example:8443' = 'allow', c = 'none'}\n");
    auto_buf struct sp_buf out = {0};

    (void)state;
    assert_true(sp_network_policy_write(profile(&c, "a")->managed, &out));
    assert_true(sp_buf_add(&out, "", 1));
    assert_string_equal(out.data,
                        "{\"mode\":\"limited\",\"domains\":{\"b.example\":\"deny\","
                        "\"**.a.example:8443\":\"allow\",\"c\":\"none\"},\"ports\":[25,587],"
                        "\"ask\":false,\"allow_local\":true,\"enable_socks5\":false,"
                        "\"check_sni\":false,\"proxy_env\":false,\"allow_upstream_proxy\":false,"
                        "\"upstream_unresolved\":\"deny\"}");
    assert_null(c.warnings);
}

static enum sp_domain_word word_of(const struct sp_profile *p, const char *pattern)
{
    for (size_t i = 0; i < p->managed->count; i++)
        if (strcmp(p->managed->domains[i].pattern.text, pattern) == 0)
            return p->managed->domains[i].word;
    fail_msg("there is no %s", pattern);
    return SP_DOMAIN_NONE;
}

static void test_keys_and_domains_are_inherited_one_by_one(void **state)
{
    auto_config struct sp_config c =
        load("[permissions.base" FILES "[permissions.base.network]\nenabled = false\n"
             "mode = 'limited'\nports = [80]\n"
             "domains = {'a.example' = 'allow', 'b.example' = 'deny', 'c.example' = 'allow'}\n"
             "[permissions.on]\nextends = 'base'\nnetwork.enabled = true\n"
             "[permissions.more]\nextends = 'on'\n[permissions.more.network]\nports = [443]\n"
             "domains = {'B.example' = 'allow', 'c.example' = 'none', 'd.example' = 'allow'}\n"
             "[permissions.off]\nextends = 'more'\nnetwork.enabled = false\n"
             "[permissions.again]\nextends = 'off'\nnetwork.managed = true\n"
             "[permissions.open" FILES "[permissions.open.network]\nenabled = true\n"
             "[permissions.narrow]\nextends = 'open'\nnetwork.ask = false\n");

    (void)state;
    assert_string_equal(network_of(profile(&c, "base")), "none");
    const struct sp_profile *p = profile(&c, "on");
    assert_string_equal(network_of(p), "managed");
    assert_true(p->managed->is_limited);
    assert_int_equal(p->managed->count, 3);
    p = profile(&c, "more");
    assert_int_equal(p->managed->count, 4);
    assert_int_equal(word_of(p, "a.example"), SP_DOMAIN_ALLOW);
    assert_int_equal(word_of(p, "b.example"), SP_DOMAIN_ALLOW);
    assert_int_equal(word_of(p, "c.example"), SP_DOMAIN_NONE);
    assert_int_equal(word_of(p, "d.example"), SP_DOMAIN_ALLOW);
    assert_true(p->managed->is_limited && p->managed->port_count == 1);
    assert_int_equal(p->managed->ports[0], 443);
    assert_string_equal(network_of(profile(&c, "off")), "none");
    assert_string_equal(network_of(profile(&c, "again")), "managed");
    assert_int_equal(profile(&c, "again")->managed->count, 4);
    assert_string_equal(network_of(profile(&c, "open")), "host");
    assert_string_equal(network_of(profile(&c, "narrow")), "managed");
    assert_false(profile(&c, "narrow")->managed->asks);
}

static void warns(const char *keys, const char *warning)
{
    char text[600];

    (void)snprintf(text, sizeof text,
                   "[permissions.a]\nextends = ':read-only'\n[permissions.a.network]\n%s", keys);
    auto_config struct sp_config c = load(text);
    assert_non_null(c.warnings);
    if (strstr(c.warnings[0], warning) == NULL)
        fail_msg("%s: %s", keys, c.warnings[0]);
    assert_null(c.warnings[1]);
}

static void test_keys_of_codex_are_read(void **state)
{
    (void)state;
    warns("enabled = true\nenable_socks5_udp = true\n",
          ": line 5, column 1: `enable_socks5_udp` has no effect here");
    warns("enabled = true\nsocks_url = 'x'\n", "`socks_url` has no effect");
    warns("enabled = true\nproxy_url = 'x'\n", "`proxy_url` has no effect");
    warns("enabled = true\nunix_sockets = {'/run/x' = 'allow'}\n", "`unix_sockets` has no effect");
    warns("enabled = true\ndangerously_allow_all_unix_sockets = true\n",
          "`dangerously_allow_all_unix_sockets` has no effect");
    warns("ask = false\n", "commands of this profile have no network");
}

static void test_what_is_refused(void **state)
{
    static const char *const cases[][2] = {
        {"mitm = {}\n", "`mitm` is not part of this version"},
        {"mitm_hooks = 1\n", "`mitm_hooks` is not part of this version"},
        {"credential_broker = {}\n", "`credential_broker` is not part of this version"},
        {"log = 'x'\n", "`log` is not part of this version"},
        {"domain = {}\n",
         "unknown key `domain` in permissions.NAME.network; did you mean `domains`?"},
        {"mode = 'open'\n", "`mode`: expected `full` or `limited`, not `open`"},
        {"upstream_unresolved = 'x'\n", "`upstream_unresolved`: expected `pass` or `deny`"},
        {"domains = ['a']\n", "`domains`: expected a table"},
        {"domains = {a = 'yes'}\n", "domain `a`: expected `allow`, `deny` or `none`"},
        {"domains = {a = 1}\n", "domain `a`: expected `allow`, `deny` or `none`"},
        {"domains = {'[a]x' = 'allow'}\n", "domain pattern \"[a]x\""},
        {"domains = {'*' = 'deny'}\n", "unsupported global wildcard"},
        {"ports = 22\n", "`ports`: expected an array of integers"},
        {"ports = ['22']\n", "`ports`: expected an integer from 1 to 65535"},
        {"ports = [0]\n", "`ports`: expected an integer from 1 to 65535"},
        {"ports = [65536]\n", "expected an integer from 1 to 65535"},
        {"ports = [53]\n", "port 53 is used by the sandbox itself"},
        {"enabled = false\nmanaged = true\n", "`managed = true` contradicts `enabled = false`"},
        {"enabled = true\nmanaged = false\nask = false\n", "`managed = false` gives commands"},
    };
    char text[600];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sp_config c = {0};
        struct sp_err e = {0};

        (void)snprintf(text, sizeof text, "[permissions.a.network]\n%s", cases[i][0]);
        write_file(test_file, text, 0600);
        assert_int_equal(load_with(NULL, NULL, &c, &e), -SP_E_INVALID);
        if (strstr(e.msg, cases[i][1]) == NULL || strstr(e.msg, ": line ") == NULL)
            fail_msg("%s: %s", cases[i][0], e.msg);
    }
}

static void test_memory_that_ends_is_told(void **state)
{
    (void)state;
    write_file(test_file,
               "[permissions.b]\nextends = ':read-only'\n[permissions.b.network]\nmanaged = true\n"
               "domains = {'a.example' = 'allow', 'b.example' = 'deny'}\nproxy_url = 'x'\n"
               "[permissions.a]\nextends = 'b'\nnetwork.domains = {'c.example' = 'allow'}\n",
               0600);
    for (long n = 1;; n++) {
        auto_config struct sp_config c = {0};
        struct sp_err e = {0};

        end_memory_at(n);
        const int r = load_with(NULL, NULL, &c, &e);
        if (!did_memory_end()) {
            assert_int_equal(r, 0);
            return;
        }
        if (r != -SP_E_SYSTEM)
            fail_msg("request %ld: %d: %s", n, r, e.msg);
    }
}

#define AT_HOME(test) cmocka_unit_test_setup_teardown(test, make_home, drop_home)

static const struct CMUnitTest tests[] = {
    AT_HOME(test_which_network_it_is),
    AT_HOME(test_every_key_counts),
    AT_HOME(test_keys_and_domains_are_inherited_one_by_one),
    AT_HOME(test_keys_of_codex_are_read),
    AT_HOME(test_what_is_refused),
    AT_HOME(test_memory_that_ends_is_told),
};

TEST_MAIN(tests)

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a start is said, word for word.
 */
#include <stdio.h>

#include "engine/remote/remote_priv.h"
#include "sandbox/profile.h"
#include "test.h"

static void assert_said(const struct sp_start *l, const char *want)
{
    auto_buf struct sp_buf b = {0};
    struct sp_err e;

    if (sp_remote_write_launch(&b, "7-id", l, "/fallback", &e) < 0)
        fail_msg("%s", e.msg);
    assert_true(sp_buf_add(&b, "", 1));
    assert_string_equal(b.data, want);
}

static const struct sp_str argv[] = {{"sh", 2}, {"-c", 2}, {"echo \"\xc3\xbc\"", 9}};

#define HEAD "{\"processId\":\"7-id\",\"argv\":[\"sh\",\"-c\",\"echo \\\"\xc3\xbc\\\"\"],\"cwd\":"
#define ALL                                                                              \
    ",\"envPolicy\":{\"inherit\":\"all\",\"ignoreDefaultExcludes\":true,\"exclude\":[]," \
    "\"set\":{},\"includeOnly\":[]},\"env\":{}"

static void the_least_is_said_in_full(void **state)
{
    const struct sp_start l = {.argv = argv, .argc = 3, .cwd = SP_STR("/a b/\xff")};

    (void)state;
    assert_said(&l, HEAD "\"file:///a%20b/%FF\"" ALL
                         ",\"tty\":false,\"pipeStdin\":false,\"arg0\":null,\"sandbox\":null}");
}

static void a_terminal_has_a_size_and_no_pipe(void **state)
{
    struct sp_start l = {.argv = argv,
                         .argc = 3,
                         .is_tty = true,
                         .wants_stdin = true,
                         .cols = 132,
                         .arg0 = SP_STR("-sh")};

    (void)state;
    assert_said(&l, HEAD "\"file:///fallback\"" ALL
                         ",\"tty\":true,\"pipeStdin\":false,\"arg0\":\"-sh\",\"rows\":24,"
                         "\"cols\":132,\"sandbox\":null}");
    l.cols = 0;
    l.is_tty = false;
    assert_said(&l, HEAD "\"file:///fallback\"" ALL
                         ",\"tty\":false,\"pipeStdin\":true,\"arg0\":\"-sh\",\"sandbox\":null}");
}

/* A managed network goes beside the sandbox, which is restricted by itself. */
static void a_managed_network_is_sent_as_a_proxy(void **state)
{
    struct sp_policy policy = {0};
    const struct sp_start l = {.argv = argv, .argc = 3, .policy = &policy};
    auto_buf struct sp_buf b = {0};
    struct sp_err e;

    (void)state;
    policy.profile.managed = sp_network_policy_new();
    assert_non_null(policy.profile.managed);
    struct sp_network_policy *n = policy.profile.managed;
    assert_int_equal(
        sp_network_policy_add(n, SP_STR("*.b.test:22"), SP_DOMAIN_DENY, true, false, &e), 0);
    assert_int_equal(sp_network_policy_add(n, SP_STR("a.test"), SP_DOMAIN_ALLOW, true, false, &e),
                     0);
    assert_int_equal(sp_remote_write_launch(&b, "7-id", &l, "/", &e), 0);
    assert_true(sp_buf_add(&b, "", 1));
    assert_non_null(strstr(b.data, "\"network\":\"restricted\""));
    assert_non_null(strstr(
        b.data, ",\"enforceManagedNetwork\":true,\"networkProxy\":{\"proxy\":{\"enabled\":true,"
                "\"enableSocks5\":true,\"enableSocks5Udp\":false,\"allowUpstreamProxy\":true,"
                "\"dangerouslyAllowAllUnixSockets\":false,\"mode\":\"full\",\"domains\":{"
                "\"*.b.test\":\"deny\",\"a.test\":\"allow\"},\"unixSockets\":null,"
                "\"allowLocalBinding\":false}}}"));
    b.len = 0; /* one port of a host would become all of them */
    assert_int_equal(
        sp_network_policy_add(n, SP_STR("c.test:443"), SP_DOMAIN_ALLOW, true, false, &e), 0);
    assert_int_equal(sp_remote_write_launch(&b, "7-id", &l, "/", &e), -SP_E_INVALID);
    sp_policy_done(&policy);
}

/* What our own environment has is not sent; what was laid over it is. */
static void the_environment_is_a_policy_and_what_lies_over_it(void **state)
{
    char *own[] = {(char[]){"HOME=/home/me"}, (char[]){"PATH=/bin"}, (char[]){"TERM=xterm"},
                   (char[]){"SECRET_KEY=x"}, NULL};
    const struct sp_str exclude[] = {{"A*", 2}, {"B", 1}};
    const struct sp_env_var set[] = {{SP_STR("S"), SP_STR("1")}, {SP_STR("S"), SP_STR("2")}};
    const struct sp_env_var plain[] = {{SP_STR("TERM"), SP_STR("dumb")}};
    struct sp_env_request ask = {
        .own = own,
        .policy = {.inherit = SP_ENV_CORE, .exclude = exclude, .exclude_count = 2},
        .set = {set, 2},
        .call_id = SP_STR("call"),
        .thread_id = SP_STR("01234567-89ab-cdef-0123-456789abcdef"),
        .plain = {plain, 1}};
    const struct sp_start l = {.argv = argv, .argc = 3, .environ = &ask};

    (void)state;
    assert_said(
        &l, HEAD
        "\"file:///fallback\",\"envPolicy\":{\"inherit\":\"core\",\"ignoreDefaultExcludes\":false,"
        "\"exclude\":[\"A*\",\"B\"],\"set\":{\"S\":\"2\"},\"includeOnly\":[]},"
        "\"env\":{\"CODEX_THREAD_ID\":\"01234567-89ab-cdef-0123-456789abcdef\","
        "\"CODEX_TOOL_CALL_ID\":\"call\",\"TERM\":\"dumb\"},"
        "\"metadata\":{\"threadId\":\"01234567-89ab-cdef-0123-456789abcdef\","
        "\"toolCallId\":\"call\"},\"tty\":false,\"pipeStdin\":false,\"arg0\":null,"
        "\"sandbox\":null}");
}

/* A server refuses metadata whose thread is no UUID, and takes the variable then. */
static void a_thread_that_is_no_uuid_is_a_variable_alone(void **state)
{
    char *own[] = {NULL};
    const struct sp_env_request ask = {.own = own,
                                       .policy = {.inherit = SP_ENV_NONE},
                                       .call_id = SP_STR("call"),
                                       .thread_id = SP_STR("no-uuid")};
    const struct sp_start l = {.argv = argv, .argc = 3, .environ = &ask};

    (void)state;
    assert_said(&l, HEAD "\"file:///fallback\",\"envPolicy\":{\"inherit\":\"none\","
                         "\"ignoreDefaultExcludes\":false,\"exclude\":[],\"set\":{},"
                         "\"includeOnly\":[]},\"env\":{\"CODEX_THREAD_ID\":\"no-uuid\","
                         "\"CODEX_TOOL_CALL_ID\":\"call\"},\"tty\":false,\"pipeStdin\":false,"
                         "\"arg0\":null,\"sandbox\":null}");
}

static void a_sandbox_is_what_is_meant(void **state)
{
    struct sp_policy p = {.cwd_is_root = true};
    const struct sp_start l = {.argv = argv, .argc = 3, .policy = &p};
    struct sp_err e;

    (void)state;
    p.cwd = strdup("/w s");
    p.home = strdup("/h");
    assert_int_equal(sp_profile_add(&p.profile, SP_PLACE_ROOT, SP_ACCESS_READ, false,
                                    (struct sp_str){0}, (struct sp_str){0}, &e),
                     0);
    assert_said(
        &l,
        HEAD "\"file:///fallback\"" ALL
             ",\"tty\":false,\"pipeStdin\":false,\"arg0\":null,\"sandbox\":{\"permissions\":{"
             "\"type\":\"managed\",\"file_system\":{\"type\":\"restricted\",\"entries\":[{"
             "\"path\":{\"type\":\"special\",\"value\":{\"kind\":\"root\"}},\"access\":\"read\"}]"
             "},\"network\":\"restricted\"},\"cwd\":\"file:///w%20s\",\"workspaceRoots\":["
             "\"file:///w%20s\"],\"userHomeDir\":\"file:///h\","
             "\"windowsSandboxLevel\":\"disabled\",\"useLegacyLandlock\":false}}");
    sp_policy_done(&p);
}

static void paths_of_other_hosts_are_passed_on(void **state)
{
    static const struct {
        const char *path, *uri;
    } cases[] = {
        {"C:\\x y\\z", "file:///C:/x%20y/z"},
        {"c:", "file:///c:/"},
        {"D:/x", "file:///D:/x"},
        {"\\\\host\\share", "file://host/share"},
        {"\\\\a-b.c", "file://a-b.c/"},
    };
    static const char *const none[] = {"x",   "./x",   "C:x", "\\\\", "\\\\ho st\\x",
                                       "\\x", "1:\\x", "~"};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct sp_start l = {.argv = argv, .argc = 3, .cwd = sp_str_of(cases[i].path)};
        char want[512];

        (void)snprintf(want, sizeof want,
                       HEAD "\"%s\"" ALL ",\"tty\":false,\"pipeStdin\":false,\"arg0\":null,"
                            "\"sandbox\":null}",
                       cases[i].uri);
        assert_said(&l, want);
    }
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        const struct sp_start l = {.argv = argv, .argc = 3, .cwd = sp_str_of(none[i])};
        auto_buf struct sp_buf b = {0};
        struct sp_err e;

        assert_int_equal(sp_remote_write_launch(&b, "id", &l, "/", &e), -SP_E_INVALID);
        assert_non_null(strstr(e.msg, "is not an absolute path"));
    }
}

static void what_cannot_be_said_is_refused(void **state)
{
    const struct sp_str bad[] = {{"x\xff", 2}};
    const struct sp_start l = {.argv = bad, .argc = 1};
    auto_buf struct sp_buf b = {0};
    struct sp_err e;

    (void)state;
    assert_int_equal(sp_remote_write_launch(&b, "id", &l, "/", &e), -SP_E_INVALID);
    assert_string_equal(e.msg, "an argument is not UTF-8, and cannot be told to an exec-server");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_least_is_said_in_full),
    cmocka_unit_test(a_terminal_has_a_size_and_no_pipe),
    cmocka_unit_test(a_managed_network_is_sent_as_a_proxy),
    cmocka_unit_test(the_environment_is_a_policy_and_what_lies_over_it),
    cmocka_unit_test(a_thread_that_is_no_uuid_is_a_variable_alone),
    cmocka_unit_test(a_sandbox_is_what_is_meant),
    cmocka_unit_test(paths_of_other_hosts_are_passed_on),
    cmocka_unit_test(what_cannot_be_said_is_refused),
};

TEST_MAIN(tests)

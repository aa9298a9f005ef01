/* SPDX-License-Identifier: Apache-2.0 */
/* A managed network in a JSON profile: read, written, and refused on the wire. */
#include "base/auto.h"
#include "policy_fixture.h"
#include "sandbox/network_json.h"

#define PROFILE(network) \
    "{\"type\":\"managed\",\"file_system\":{\"type\":\"unrestricted\"},\"network\":" network "}"
#define MANAGED(members) "{\"managed\":{" members "}}"

static const char defaults[] =
    "{\"mode\":\"full\",\"domains\":{},\"ports\":[22,80,443],\"ask\":true,"
    "\"allow_local\":false,\"enable_socks5\":true,\"check_sni\":true,"
    "\"proxy_env\":true,\"allow_upstream_proxy\":true,"
    "\"upstream_unresolved\":\"pass\"}";

/* What a profile is written as, after it was read. */
static void is_written(const char *text, const char *network)
{
    struct sp_profile p = {0};
    struct sp_profile again = {0};
    struct sp_err e = {0};
    auto_buf struct sp_buf out = {0};
    auto_buf struct sp_buf want = {0};

    if (read_profile(text, &p, &e) < 0)
        fail_msg("%s: %s", text, e.msg);
    assert_non_null(sp_profile_managed(&p));
    assert_int_equal(sp_profile_write(&out, &p, SP_PATH_NATIVE, &e), 0);
    assert_true(sp_buf_add(&out, "", 1));
    assert_true(sp_buf_printf(&want,
                              "{\"type\":\"managed\",\"file_system\":{\"type\":\"unrestricted\"},"
                              "\"network\":{\"managed\":%s}}",
                              network));
    assert_string_equal(out.data, want.data);
    assert_int_equal(read_profile(out.data, &again, &e), 0);
    assert_true(sp_profile_equal(&p, &again));
    sp_profile_done(&again);
    sp_profile_done(&p);
}

static void refused(const char *text, const char *why)
{
    struct sp_profile p = {.glob_depth = 77};
    struct sp_err e = {0};

    assert_int_equal(read_profile(text, &p, &e), -SP_E_INVALID);
    assert_string_equal(e.msg, why);
    assert_true(p.glob_depth == 77 && p.managed == NULL); /* untouched */
}

static void test_what_is_read_is_written(void **state)
{
    (void)state;
    is_written(PROFILE(MANAGED("")), defaults);
    is_written(PROFILE(MANAGED("\"mode\":\"limited\",\"domains\":{\"*.B.example\":\"deny\","
                               "\"a.example:443\":\"allow\",\"::1\":\"none\"},\"ports\":[25],"
                               "\"ask\":false,\"allow_local\":true,\"enable_socks5\":false,"
                               "\"check_sni\":false,\"proxy_env\":false,"
                               "\"allow_upstream_proxy\":false,\"upstream_unresolved\":\"deny\"")),
               "{\"mode\":\"limited\",\"domains\":{\"*.b.example\":\"deny\","
               "\"a.example:443\":\"allow\",\"::1\":\"none\"},\"ports\":[25],\"ask\":false,"
               "\"allow_local\":true,\"enable_socks5\":false,\"check_sni\":false,"
               "\"proxy_env\":false,\"allow_upstream_proxy\":false,"
               "\"upstream_unresolved\":\"deny\"}");
}

static void test_the_stricter_of_two_spellings_counts(void **state)
{
    struct sp_profile p = {0};
    struct sp_err e = {0};

    (void)state;
    assert_int_equal(read_profile(PROFILE(MANAGED("\"domains\":{\"A.example\":\"deny\","
                                                  "\"a.example.\":\"allow\"}")),
                                  &p, &e),
                     0);
    assert_int_equal(p.managed->count, 1);
    assert_int_equal(p.managed->domains[0].word, SP_DOMAIN_DENY);
    sp_profile_done(&p);
}

static void test_the_untagged_form_has_it_too(void **state)
{
    struct sp_profile p = {0};
    struct sp_err e = {0};

    (void)state;
    assert_int_equal(read_profile("{\"network\":{\"managed\":{\"ask\":false}}}", &p, &e), 0);
    assert_false(p.has_network || sp_profile_managed(&p)->asks);
    sp_profile_done(&p);
    refused("{\"network\":{\"managed\":{},\"enabled\":true}}",
            "`enabled` cannot be combined with `managed`");
}

static void test_what_it_may_not_say(void **state)
{
    (void)state;
    refused(PROFILE("{}"), "missing field `managed`");
    refused(PROFILE("{\"managed\":true}"), "invalid type: boolean `true`, expected a map");
    refused(PROFILE("{\"managed\":{},\"enabled\":true}"),
            "unknown field `enabled`, expected `managed`");
    refused(PROFILE(MANAGED("\"mitm\":{}")),
            "unknown field `mitm`, expected one of `mode`, `domains`, `ports`, `ask`, "
            "`allow_local`, `enable_socks5`, `check_sni`, `proxy_env`, `allow_upstream_proxy`, "
            "`upstream_unresolved`");
    refused(PROFILE(MANAGED("\"mode\":\"open\"")),
            "unknown variant `open`, expected `full` or `limited`");
    refused(PROFILE(MANAGED("\"domains\":{\"a.example\":\"ALLOW\"}")),
            "unknown variant `ALLOW`, expected one of `allow`, `deny`, `none`");
    refused(PROFILE(MANAGED("\"domains\":[]")), "invalid type: sequence, expected a map");
    refused(PROFILE(MANAGED("\"ports\":[true]")), "invalid type: boolean `true`, expected a port");
    refused(PROFILE(MANAGED("\"ports\":[-1]")), "invalid type: number, expected a port");
    refused(PROFILE(MANAGED("\"ports\":[808]")), "port 808 is used by the sandbox itself");
    refused(PROFILE(MANAGED("\"ask\":null")), "invalid type: null, expected a boolean");
    refused(PROFILE(MANAGED("\"domains\":{\"*\":\"deny\"}")),
            "unsupported global wildcard domain pattern \"*\"; use exact hosts or scoped wildcards "
            "like *.example.com or **.example.com");
}

static void test_the_wire_refuses_it(void **state)
{
    struct doc d =
        parse("{\"permissions\":" PROFILE(MANAGED("")) ",\"windowsSandboxLevel\":"
                                                       "\"disabled\",\"useLegacyLandlock\":false}");
    auto_policy struct sp_policy p = {0};
    auto_profile struct sp_profile file = {0};
    auto_buf struct sp_buf out = {0};
    struct sp_err e = {0};

    (void)state;
    assert_int_equal(sp_policy_read(&d.j, 0, "/", NULL, &p, &e), -SP_E_INVALID);
    assert_string_equal(e.msg, "invalid type: map, expected a string");
    done(&d);
    /* A client that is sent such a profile sees none. */
    assert_int_equal(read_profile(PROFILE(MANAGED("")), &file, &e), 0);
    assert_int_equal(sp_profile_write(&out, &file, SP_PATH_URI, &e), 0);
    assert_true(sp_buf_add(&out, "", 1));
    assert_non_null(strstr(out.data, "\"network\":\"restricted\""));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_what_is_read_is_written),
    cmocka_unit_test(test_the_stricter_of_two_spellings_counts),
    cmocka_unit_test(test_the_untagged_form_has_it_too),
    cmocka_unit_test(test_what_it_may_not_say),
    cmocka_unit_test(test_the_wire_refuses_it),
};

TEST_MAIN(tests)

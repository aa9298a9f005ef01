/* SPDX-License-Identifier: Apache-2.0 */
/* Modes of old; what is written of grants and profiles, and that it reads the same. */
#include "base/auto.h"
#include "policy_fixture.h"

/* ---- modes of old ---- */

static int read_legacy(const char *text, struct sp_legacy *ret, struct sp_err *e)
{
    struct doc d = parse(text);
    const int r = sp_legacy_read(&d.j, 0, ret, e);

    done(&d);
    return r;
}

/* told: "mode +network -tmpdir -slash_tmp /root ..." */
static void legacy_is(const char *text, const char *told)
{
    auto_buf struct sp_buf out = {0};
    struct sp_legacy l = {0};
    struct sp_err e = {0};

    if (read_legacy(text, &l, &e) < 0)
        fail_msg("%s: %s", text, e.msg);
    assert_true(sp_buf_printf(&out, "%s%s%s%s", sp_mode_name(l.mode),
                              l.has_network ? " +network" : "", l.excludes_tmpdir ? " -tmpdir" : "",
                              l.excludes_slash_tmp ? " -slash_tmp" : ""));
    for (size_t i = 0; i < l.root_count; i++)
        assert_true(sp_buf_printf(&out, " %s", l.roots[i]));
    assert_string_equal(out.data, told);
    sp_legacy_done(&l);
}

static void legacy_refused(const char *text, const char *why)
{
    struct sp_legacy l = {.has_network = true};
    struct sp_err e = {0};

    assert_int_equal(read_legacy(text, &l, &e), -SP_E_INVALID);
    assert_string_equal(e.msg, why);
    assert_true(l.has_network && l.roots == NULL); /* untouched */
}

static void test_the_four_modes(void **state)
{
    (void)state;
    legacy_is("{\"type\":\"danger-full-access\"}", "danger-full-access");
    legacy_is("{\"type\":\"danger-full-access\",\"network_access\":7}", "danger-full-access");
    legacy_is("{\"mode\":\"danger-full-access\"}", "danger-full-access");
    legacy_is("{\"mode\":\"read-only\",\"writable_roots\":7}", "read-only");
    legacy_is("{\"type\":\"read-only\",\"mode\":\"x\",\"network_access\":false}", "read-only");
    legacy_is("{\"type\":\"read-only\",\"network_access\":true}", "read-only +network");
    legacy_is("{\"type\":\"workspace-write\"}", "workspace-write");
    legacy_is("{\"type\":\"workspace-write\",\"network_access\":false,"
              "\"exclude_tmpdir_env_var\":false,\"exclude_slash_tmp\":false}",
              "workspace-write");
    legacy_is("{\"mode\":\"workspace-write\",\"writable_roots\":[],\"new\":{}}", "workspace-write");
    legacy_is("{\"type\":\"workspace-write\",\"writable_roots\":[\"/srv/data\",\"/b\"],"
              "\"network_access\":true,\"exclude_tmpdir_env_var\":true,\"exclude_slash_tmp\":true}",
              "workspace-write +network -tmpdir -slash_tmp /srv/data /b");
    legacy_is("{\"type\":\"external-sandbox\"}", "external-sandbox");
    legacy_is("{\"type\":\"external-sandbox\",\"network_access\":\"restricted\"}",
              "external-sandbox");
    legacy_is("{\"type\":\"external-sandbox\",\"network_access\":\"enabled\"}",
              "external-sandbox +network");
}

static void test_what_a_mode_cannot_be(void **state)
{
    static const char unknown[] = "unknown variant `managed`, expected one of `danger-full-access`,"
                                  " `read-only`, `external-sandbox`, `workspace-write`";

    (void)state;
    legacy_refused("[]", "invalid type: sequence, expected a map");
    legacy_refused("{}", "missing field `type`");
    legacy_refused("{\"type\":\"managed\"}", unknown);
    legacy_refused("{\"mode\":\"managed\"}", unknown);
    legacy_refused("{\"type\":\"read-only\",\"network_access\":null}",
                   "invalid type: null, expected a boolean");
    legacy_refused("{\"type\":\"read-only\",\"network_access\":\"enabled\"}",
                   "invalid type: string \"enabled\", expected a boolean");
    legacy_refused("{\"type\":\"external-sandbox\",\"network_access\":true}",
                   "invalid type: boolean `true`, expected a string");
    legacy_refused("{\"type\":\"external-sandbox\",\"network_access\":null}",
                   "invalid type: null, expected a string");
    legacy_refused("{\"type\":\"workspace-write\",\"writable_roots\":null}",
                   "invalid type: null, expected a sequence");
    legacy_refused("{\"type\":\"workspace-write\",\"writable_roots\":[\"/a\",\"b\"]}",
                   "invalid sandbox writable root: 'b' is not absolute");
    legacy_refused("{\"type\":\"workspace-write\",\"writable_roots\":[\"/a\"],"
                   "\"exclude_slash_tmp\":0}",
                   "invalid type: number, expected a boolean");
}

/* ---- grants ---- */

static void grant_is(const char *text, const char *told, const char *written)
{
    struct doc d = parse(text);
    struct sp_grant g = {0};
    struct sp_err e = {0};
    struct sp_buf out = {0};

    if (sp_grant_read(&d.j, 0, &g, &e) < 0)
        fail_msg("%s: %s", text, e.msg);
    is_told(&g.extra, told);
    assert_int_equal(sp_grant_write(&out, &g, &e), 0);
    assert_true(sp_buf_add(&out, "", 1));
    assert_string_equal(out.data, written);
    sp_buf_done(&out);
    sp_grant_done(&g);
    done(&d);
}

static void grant_refused(const char *text, const char *why)
{
    struct doc d = parse(text);
    struct sp_grant g = {.extra = {.glob_depth = 77}};
    struct sp_err e = {0};

    assert_int_equal(sp_grant_read(&d.j, 0, &g, &e), -SP_E_INVALID);
    assert_string_equal(e.msg, why);
    assert_true(g.extra.glob_depth == 77 && g.extra.entries == NULL);
    done(&d);
}

static void test_grants_in_both_forms(void **state)
{
    (void)state;
    grant_is("{}", "managed", "{}");
    grant_is("{\"network\":{\"enabled\":false},\"file_system\":{\"read\":[]}}", "managed", "{}");
    grant_is("{\"network\":{\"enabled\":true,\"new\":1},\"new\":1}", "managed net",
             "{\"network\":{\"enabled\":true}}");
    grant_is("{\"file_system\":{\"read\":[\"/a\"],\"write\":[\"/b\",\"/c\"]}}",
             "managed /a=read /b=write /c=write",
             "{\"file_system\":{\"read\":[\"/a\"],\"write\":[\"/b\",\"/c\"]}}");
    grant_is("{\"file_system\":{\"write\":[\"/b\"]},\"network\":{\"enabled\":true}}",
             "managed net /b=write",
             "{\"network\":{\"enabled\":true},\"file_system\":{\"write\":[\"/b\"]}}");
    grant_is("{\"file_system\":{\"entries\":[" ENTRY(LITERAL("/b"), "read") "]}}",
             "managed /b=read", "{\"file_system\":{\"read\":[\"/b\"]}}");
    grant_is("{\"file_system\":{\"entries\":[" ENTRY(GLOB("*.env"),
                                                     "none") "],"
                                                             "\"glob_scan_max_depth\":4}}",
             "managed depth=4 glob:*.env=deny",
             "{\"file_system\":{\"entries\":[" ENTRY(GLOB("*.env"),
                                                     "deny") "],"
                                                             "\"glob_scan_max_depth\":4}}");
    grant_is("{\"file_system\":{\"entries\":[" ENTRY(LITERAL("/b"), "deny") "]}}",
             "managed /b=deny",
             "{\"file_system\":{\"entries\":[" ENTRY(LITERAL("/b"), "deny") "]}}");
    grant_is("{\"file_system\":{\"entries\":[" ENTRY(LITERAL("/b"), "write") "," ENTRY(
                 LITERAL("/a"), "read") "]}}",
             "managed /b=write /a=read", /* the order is kept, too */
             "{\"file_system\":{\"entries\":[" ENTRY(LITERAL("/b"), "write") "," ENTRY(
                 LITERAL("/a"), "read") "]}}");
    grant_refused("null", "invalid type: null, expected a map");
    grant_refused("{\"file_system\":{\"read\":\"/a\"}}",
                  "invalid type: string \"/a\", expected a sequence");
    grant_refused("{\"file_system\":{\"read\":[\"~/a\"]}}",
                  "invalid sandbox permission path: '~/a' is not absolute");
    grant_refused("{\"file_system\":{\"entries\":[],\"read\":[]}}",
                  "`read` and `write` cannot be combined with `entries`");
}

/* ---- writing ---- */

static void written_is(const struct sp_profile *p, enum sp_path_form form, const char *written)
{
    struct sp_buf out = {0};
    struct sp_err e = {0};

    assert_int_equal(sp_profile_write(&out, p, form, &e), 0);
    assert_true(sp_buf_add(&out, "", 1));
    assert_string_equal(out.data, written);
    sp_buf_done(&out);
}

/* Text in the canonical spelling is written as it was read. */
static void comes_back(const char *text)
{
    struct sp_profile p = profile_of(text);

    written_is(&p, SP_PATH_NATIVE, text);
    sp_profile_done(&p);
}

static void test_canonical_texts_come_back(void **state)
{
    (void)state;
    comes_back("{\"type\":\"disabled\"}");
    comes_back("{\"type\":\"external\",\"network\":\"restricted\"}");
    comes_back("{\"type\":\"external\",\"network\":\"enabled\"}");
    comes_back("{\"type\":\"managed\",\"file_system\":{\"type\":\"unrestricted\"},\"network\":"
               "\"enabled\"}");
    comes_back(RESTRICTED(""));
    comes_back("{\"type\":\"managed\",\"file_system\":{\"type\":\"restricted\",\"entries\":[" ENTRY(
        GLOB("/r/**/\\\"x\\\""), "deny") "],\"glob_scan_max_depth\":3},\"network\":\"enabled\"}");
    comes_back(RESTRICTED(ENTRY(LITERAL("/repo"), "write") "," ENTRY(
        KIND("root"), "read") "," ENTRY(KIND("minimal"), "read") "," ENTRY(SPECIAL("\"kind\":"
                                                                                   "\"tmpdir\""),
                                                                           "write")));
    comes_back(RESTRICTED(ENTRY(KIND("slash_tmp"), "deny") "," ENTRY(
        KIND("project_roots"),
        "write") ",{\"path\":" SPECIAL("\"kind\":\"project_roots\",\"subpath\":"
                                       "\".git\"") ","
                                                   "\"access\":\"read\","
                                                   "\"missing_path_behavior\":"
                                                   "\"skip\"}"));
    comes_back(RESTRICTED(
        ENTRY(SPECIAL("\"kind\":\"unknown\",\"path\":\":new\",\"subpath\":\"x/../y\""),
              "read") "," ENTRY(SPECIAL("\"kind\":\"unknown\",\"path\":\"\""), "write")));
}

static void test_old_spellings_are_written_anew(void **state)
{
    (void)state;
    struct sp_profile p =
        profile_of("{\"network\":{\"enabled\":true},\"file_system\":{\"entries\":[" ENTRY(
            KIND("current_working_directory"), "none") "]}}");

    written_is(&p, SP_PATH_NATIVE,
               "{\"type\":\"managed\",\"file_system\":{\"type\":\"restricted\",\"entries\":[" ENTRY(
                   KIND("project_roots"), "deny") "]},\"network\":\"enabled\"}");
    sp_profile_done(&p);
}

static void test_the_wire_has_uris(void **state)
{
    (void)state;
    struct sp_profile p = profile_of(ONE(LITERAL("/a b/\xC3\xA9")));

    written_is(&p, SP_PATH_URI, ONE(LITERAL("file:///a%20b/%C3%A9")));
    sp_profile_done(&p);
    p = profile_of(ONE(LITERAL("/C:/x")));
    written_is(&p, SP_PATH_URI, ONE(LITERAL("file:///%00/bad/path/L0M6L3g")));
    sp_profile_done(&p);
}

static void test_what_cannot_be_said_is_not_said(void **state)
{
    struct sp_buf out = {0};
    struct sp_err e = {0};
    struct sp_profile p = {0};

    (void)state;
    assert_int_equal(sp_profile_add(&p, SP_PLACE_PATH, SP_ACCESS_DENY, false, SP_STR("/a\xFF"),
                                    (struct sp_str){0}, &e),
                     0);
    assert_true(sp_buf_add(&out, "before", 6));
    assert_int_equal(sp_profile_write(&out, &p, SP_PATH_NATIVE, &e), -SP_E_INVALID);
    assert_string_equal(e.msg, "a path that is not UTF-8 cannot be written as JSON");
    assert_int_equal(out.len, 6);
    written_is(&p, SP_PATH_URI, RESTRICTED(ENTRY(LITERAL("file:///a%FF"), "deny")));

    sp_buf_done(&out);

    for (size_t max = 6;; max++) { /* every buffer that is too small stays as it was */
        out = (struct sp_buf){.max = max};
        assert_true(sp_buf_add(&out, "before", 6));
        const int r = sp_profile_write(&out, &p, SP_PATH_URI, &e);
        const size_t len = out.len;

        sp_buf_done(&out);
        if (r == 0) {
            assert_int_equal(len, max);
            break;
        }
        assert_int_equal(r, -SP_E_SYSTEM);
        assert_int_equal(len, 6);
    }
    sp_profile_done(&p);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_the_four_modes),
    cmocka_unit_test(test_what_a_mode_cannot_be),
    cmocka_unit_test(test_grants_in_both_forms),
    cmocka_unit_test(test_canonical_texts_come_back),
    cmocka_unit_test(test_old_spellings_are_written_anew),
    cmocka_unit_test(test_the_wire_has_uris),
    cmocka_unit_test(test_what_cannot_be_said_is_not_said),
};

TEST_MAIN(tests)

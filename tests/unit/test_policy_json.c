/* SPDX-License-Identifier: Apache-2.0 */
/* Profiles as files have them, in every form. */
#include "policy_fixture.h"

/* ---- profiles ---- */

static void permits(const char *text, const char *told)
{
    struct sp_profile p = profile_of(text);

    is_told(&p, told);
    sp_profile_done(&p);
}

static void refused(const char *text, const char *why)
{
    struct sp_profile p = {.glob_depth = 77};
    struct sp_err e = {0};

    assert_int_equal(read_profile(text, &p, &e), -SP_E_INVALID);
    assert_string_equal(e.msg, why);
    assert_true(p.glob_depth == 77 && p.entries == NULL && p.count == 0); /* untouched */
}

static void refused_and_free(char *text, const char *why)
{
    refused(text, why);
    free(text);
}

static void test_the_tagged_form(void **state)
{
    (void)state;
    permits("{\"type\":\"disabled\"}", "disabled net");
    permits("{\"type\":\"external\",\"network\":\"restricted\"}", "external");
    permits("{\"type\":\"external\",\"network\":\"enabled\",\"new\":{}}", "external net");
    permits("{\"type\":\"managed\",\"file_system\":{\"type\":\"unrestricted\"},\"network\":"
            "\"enabled\"}",
            "managed open net");
    permits("{\"type\":\"managed\",\"file_system\":{\"type\":\"restricted\",\"entries\":[],"
            "\"glob_scan_max_depth\":3,\"new\":1},\"network\":\"restricted\",\"mode\":7}",
            "managed depth=3");
    refused("7", "invalid type: number, expected a map");
    refused("{\"type\":null}", "invalid type: null, expected a string");
    refused("{\"type\":\"open\"}",
            "unknown variant `open`, expected one of `managed`, `disabled`, `external`, "
            "`danger-full-access`, `read-only`, `external-sandbox`, `workspace-write`");
}

static void test_every_place(void **state)
{
    (void)state;
    permits(ONE(LITERAL("/repo")), "managed /repo=read");
    permits(ONE(LITERAL("//repo/./x/../y/")), "managed /repo/y=read");
    permits(ONE(LITERAL("/caf\xC3\xA9 \\\"\\n")), "managed /caf\xC3\xA9 \"\n=read");
    permits(ONE(KIND("root")), "managed root=read");
    permits(ONE(SPECIAL("\"kind\":\"minimal\",\"subpath\":7")), "managed minimal=read");
    permits(ONE(KIND("project_roots")), "managed project=read");
    permits(ONE(SPECIAL("\"kind\":\"project_roots\",\"subpath\":null")), "managed project=read");
    permits(ONE(SPECIAL("\"kind\":\"project_roots\",\"subpath\":\"a/.git\"")),
            "managed project/a/.git=read");
    permits(ONE(SPECIAL("\"kind\":\"current_working_directory\",\"subpath\":\"x\"")),
            "managed project/x=read");
    permits(ONE(KIND("tmpdir")), "managed tmpdir=read");
    permits(ONE(KIND("slash_tmp")), "managed /tmp?=read");
    permits(ONE(SPECIAL("\"kind\":\"unknown\",\"path\":\":something\",\"subpath\":\"x\"")),
            "managed unknown::something|x=read");
    permits(ONE(SPECIAL("\"kind\":\"unknown\",\"path\":\":something\"")),
            "managed unknown::something=read");
    permits(RESTRICTED(ENTRY(GLOB("/repo/**/*.env"), "deny")), "managed glob:/repo/**/*.env=deny");

    refused(ONE("{}"), "missing field `type`");
    refused(ONE("\"/repo\""), "invalid type: string \"/repo\", expected a map");
    refused(ONE("{\"type\":\"regex\"}"),
            "unknown variant `regex`, expected one of `path`, `glob_pattern`, `special`");
    refused(ONE("{\"type\":\"path\"}"), "missing field `path`");
    refused(ONE("{\"type\":\"path\",\"path\":null}"), "invalid type: null, expected a string");
    refused(ONE("{\"type\":\"glob_pattern\"}"), "missing field `pattern`");
    refused(ONE("{\"type\":\"special\"}"), "missing field `value`");
    refused(ONE("{\"type\":\"special\",\"value\":\"root\"}"),
            "invalid type: string \"root\", expected a map");
    refused(ONE(SPECIAL("")), "missing field `kind`");
    refused(ONE(KIND("home")),
            "unknown variant `home`, expected one of `root`, `minimal`, `project_roots`, `tmpdir`, "
            "`slash_tmp`, `unknown`");
    refused(ONE(KIND("unknown")), "missing field `path`");
    refused(ONE(SPECIAL("\"kind\":\"project_roots\",\"subpath\":7")),
            "invalid type: number, expected a string");
}

static void test_every_access(void **state)
{
    (void)state;
    permits(RESTRICTED(ENTRY(LITERAL("/a"), "read") "," ENTRY(LITERAL("/b"), "write") "," ENTRY(
                LITERAL("/c"), "deny") "," ENTRY(LITERAL("/d"), "none")),
            "managed /a=read /b=write /c=deny /d=deny");
    permits(RESTRICTED("{\"access\":\"read\",\"missing_path_behavior\":\"skip\",\"path\":" LITERAL(
                "/a") ",\"new\":[]},{\"access\":\"read\",\"missing_path_behavior\":null,"
                      "\"path\":" LITERAL("/b") "}"),
            "managed /a=read~ /b=read");
    refused(RESTRICTED(ENTRY(LITERAL("/a"), "exec")),
            "unknown variant `exec`, expected one of `read`, `write`, `deny`");
    refused(RESTRICTED("{\"path\":" LITERAL("/a") "}"), "missing field `access`");
    refused(RESTRICTED("{\"access\":\"read\"}"), "missing field `path`");
    refused(RESTRICTED("[]"), "invalid type: sequence, expected a map");
    refused(RESTRICTED("{\"access\":\"read\",\"missing_path_behavior\":\"make\",\"path\":" LITERAL(
                "/a") "}"),
            "unknown variant `make`, expected `skip`");
}

static void test_what_an_entry_cannot_be(void **state)
{
    (void)state;
    refused(ONE(GLOB("*.env")), "glob file system permissions only support deny-read entries");
    refused(RESTRICTED(ENTRY(GLOB("*.env"), "write")),
            "glob file system permissions only support deny-read entries");
    refused(ONE(SPECIAL("\"kind\":\"project_roots\",\"subpath\":\"../x\"")),
            "filesystem subpath `../x` must be a descendant path without `.` or `..` components");
    refused(ONE(SPECIAL("\"kind\":\"project_roots\",\"subpath\":\"/x\"")),
            "filesystem subpath `/x` must be a descendant path without `.` or `..` components");
    refused(ONE(LITERAL("repo")), "invalid sandbox permission path: 'repo' is not absolute");
    refused(ONE(LITERAL("")), "invalid sandbox permission path: '' is not absolute");
    refused(ONE(LITERAL("file:///repo")),
            "invalid sandbox permission path: 'file:///repo' is not absolute");
    refused(ONE(LITERAL("/a\\u0000b")), "invalid sandbox permission path: holds a NUL byte");
    refused(RESTRICTED(ENTRY(GLOB("a\\u0000"), "deny")),
            "invalid sandbox permission pattern: holds a NUL byte");
    refused(ONE(SPECIAL("\"kind\":\"project_roots\",\"subpath\":\"\\u0000\"")),
            "invalid sandbox permission subpath: holds a NUL byte");
    refused(ONE(SPECIAL("\"kind\":\"unknown\",\"path\":\"\\u0000\"")),
            "invalid sandbox permission path: holds a NUL byte");
}

static void test_how_deep_patterns_go(void **state)
{
#define DEPTH(n)                                                                           \
    "{\"type\":\"managed\",\"file_system\":{\"type\":\"restricted\",\"entries\":[],\"glob" \
    "_scan_max_depth\":" n "},\"network\":\"restricted\"}"
    (void)state;
    permits(DEPTH("1"), "managed depth=1");
    permits(DEPTH("null"), "managed");
    permits(DEPTH("18446744073709551615"), "managed depth=4294967295"); /* deeper than any path */
    refused(DEPTH("0"), "invalid value: integer `0`, expected a nonzero usize");
    refused(DEPTH("-1"), "invalid number");
    refused(DEPTH("1.0"), "invalid number");
    refused(DEPTH("\"3\""), "invalid type: string \"3\", expected u64");
#undef DEPTH
}

static void test_the_untagged_form(void **state)
{
    (void)state;
    permits("{}", "managed");
    permits("{\"network\":null,\"file_system\":null}", "managed");
    permits("{\"network\":{}}", "managed");
    permits("{\"network\":{\"enabled\":null}}", "managed");
    permits("{\"network\":{\"enabled\":false}}", "managed");
    permits("{\"network\":{\"enabled\":true}}", "managed net");
    permits("{\"file_system\":{}}", "managed");
    permits("{\"network\":{\"enabled\":true},\"file_system\":{\"entries\":[" ENTRY(
                LITERAL("/a"), "none") "],\"glob_scan_max_depth\":2}}",
            "managed net depth=2 /a=deny");
    permits("{\"file_system\":{\"read\":[\"/a\",\"/b/../c\"],\"write\":[\"/d\"]}}",
            "managed /a=read /c=read /d=write");
    permits("{\"file_system\":{\"read\":null,\"write\":[]}}", "managed");

    refused("{\"networks\":{}}", "unknown field `networks`, expected `network` or `file_system`");
    refused("{\"network\":{\"on\":true}}", "unknown field `on`, expected `enabled` or `managed`");
    refused("{\"network\":\"enabled\"}", "invalid type: string \"enabled\", expected a map");
    refused("{\"network\":{\"enabled\":1}}", "invalid type: number, expected a boolean");
    refused("{\"file_system\":{\"deny\":[]}}",
            "unknown field `deny`, expected one of `entries`, `glob_scan_max_depth`, `read`, "
            "`write`");
    refused("{\"file_system\":{\"glob_scan_max_depth\":2}}", "missing field `entries`");
    refused("{\"file_system\":{\"entries\":[],\"write\":[]}}",
            "`read` and `write` cannot be combined with `entries`");
    refused("{\"file_system\":{\"read\":[\"a\"]}}",
            "invalid sandbox permission path: 'a' is not absolute");
    refused("{\"file_system\":{\"read\":[7]}}", "invalid type: number, expected a string");
}

static void test_a_word_too_long_is_cut_between_characters(void **state)
{
    struct sp_profile p = {0};
    struct sp_err e = {0};
    char *text = stretch("{\"type\":\"", 119, "\xC3\xA9\xC3\xA9\"}");

    (void)state;
    assert_int_equal(read_profile(text, &p, &e), -SP_E_INVALID);
    assert_non_null(strstr(e.msg, "xxx…`, expected one of `managed`"));
    free(text);
}

static void test_a_mode_is_a_profile(void **state)
{
    (void)state;
    permits("{\"type\":\"danger-full-access\"}", "disabled net");
    permits("{\"type\":\"external-sandbox\",\"network_access\":\"enabled\"}", "external net");
    permits("{\"mode\":\"read-only\"}", "managed root=read");
    permits("{\"type\":\"read-only\",\"network_access\":true}", "managed net root=read");
    refused("{\"mode\":\"x\"}", "unknown variant `x`, expected one of `danger-full-access`, "
                                "`read-only`, `external-sandbox`, `workspace-write`");
    refused("{\"mode\":\"read-only\",\"network_access\":7}",
            "invalid type: number, expected a boolean");

    struct sp_profile p = profile_of("{\"mode\":\"workspace-write\",\"writable_roots\":[\"/w\"]}");
    bool is_there = false;
    for (size_t i = 0; i < p.count; i++)
        is_there = is_there ||
                   (p.entries[i].place == SP_PLACE_PATH && strcmp(p.entries[i].text, "/w") == 0 &&
                    p.entries[i].access == SP_ACCESS_WRITE);
    assert_true(is_there);
    sp_profile_done(&p);
}

/* ---- bounds ---- */

static void test_there_is_an_end_to_lists(void **state)
{
    char *most = repeat("{\"file_system\":{\"read\":[", "\"/a\"", 4000, "],\"write\":[");
    char *text = repeat(most, "\"/b\"", 96, "]}}");

    (void)state;
    struct sp_profile p = profile_of(text);
    assert_int_equal(p.count, 4096);
    sp_profile_done(&p);
    free(text);
    refused_and_free(repeat(most, "\"/b\"", 97, "]}}"),
                     "more than 4096 sandbox permission entries");
    free(most);
    refused_and_free(repeat("{\"file_system\":{\"entries\":[", "{}", 4097, "]}}"),
                     "more than 4096 sandbox permission entries");
    refused_and_free(
        repeat("{\"type\":\"workspace-write\",\"writable_roots\":[", "\"/a\"", 4097, "]}"),
        "more than 4096 writable roots");
}

static void test_there_is_an_end_to_paths(void **state)
{
#define HEAD "{\"file_system\":{\"entries\":[{\"access\":\"deny\",\"path\":{\"type\":"
    static const char head[] = HEAD "\"path\",\"path\":\"/";
    static const char special[] = HEAD "\"special\",\"value\":{\"kind\":\"project_roots\","
                                       "\"subpath\":\"";
    char *longest = stretch(head, 4094, "\"}}]}}");

    (void)state;
    struct sp_profile p = profile_of(longest);
    assert_int_equal(strlen(p.entries[0].text), 4095);
    sp_profile_done(&p);
    free(longest);
    refused_and_free(stretch(head, 4095, "\"}}]}}"),
                     "invalid sandbox permission path: longer than 4095 bytes");
    refused_and_free(stretch(HEAD "\"glob_pattern\",\"pattern\":\"", 4096, "\"}}]}}"),
                     "invalid sandbox permission pattern: longer than 4095 bytes");
    refused_and_free(stretch(special, 4096, "\"}}}]}}"),
                     "invalid sandbox permission subpath: longer than 4095 bytes");
    refused_and_free(stretch("{\"type\":\"workspace-write\",\"writable_roots\":[\"/", 4095, "\"]}"),
                     "invalid sandbox writable root: longer than 4095 bytes");
#undef HEAD
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_the_tagged_form),
    cmocka_unit_test(test_every_place),
    cmocka_unit_test(test_every_access),
    cmocka_unit_test(test_what_an_entry_cannot_be),
    cmocka_unit_test(test_how_deep_patterns_go),
    cmocka_unit_test(test_the_untagged_form),
    cmocka_unit_test(test_a_word_too_long_is_cut_between_characters),
    cmocka_unit_test(test_a_mode_is_a_profile),
    cmocka_unit_test(test_there_is_an_end_to_lists),
    cmocka_unit_test(test_there_is_an_end_to_paths),
};

TEST_MAIN(tests)

/* SPDX-License-Identifier: Apache-2.0 */
/* The `sandbox` member of requests, as clients of the executor send it. */
#include "policy_fixture.h"

#define PROTECTED(name)                                                   \
    "{\"path\":" SPECIAL("\"kind\":\"project_roots\",\"subpath\":\"" name \
                         "\"") ",\"access\":\"read\",\"missing_path_behavior\":\"skip\"}"
#define READ_ONLY     ENTRY(KIND("root"), "read")
#define PROJECT_WRITE ENTRY(KIND("project_roots"), "write")
#define TMP_WRITE     ENTRY(KIND("slash_tmp"), "write")
#define TMPDIR_WRITE  ENTRY(KIND("tmpdir"), "write")
#define OUR_FILES \
    PROTECTED(".git") "," PROTECTED(".agents") "," PROTECTED(".codex") "," PROTECTED(".aws")
#define WORKSPACE_WRITE READ_ONLY "," PROJECT_WRITE "," TMP_WRITE "," TMPDIR_WRITE "," OUR_FILES
#define WORKSPACE_WRITE_TOLD                                                       \
    "managed root=read project=write /tmp?=write tmpdir=write project/.git=read~ " \
    "project/.agents=read~ project/.codex=read~ project/.aws=read~"

#define LEVEL ",\"windowsSandboxLevel\":\"disabled\""
#define TAIL                                                                          \
    LEVEL ",\"windowsSandboxProxySettingsMode\":\"reconcile\",\"useLegacyLandlock\":" \
          "false}"
#define CWD   ",\"cwd\":\"file:///srv/example\""
#define ROOTS ",\"workspaceRoots\":[\"file:///srv/example\"]"

/* The smallest object, with members added. */
#define DISABLED(members) "{\"permissions\":{\"type\":\"disabled\"}" LEVEL members "}"
#define ENTRIES(entries)  "{\"permissions\":" RESTRICTED(entries) LEVEL "}"

static int read_policy(const char *text, const char *cwd, const char *tmpdir, struct sp_policy *ret,
                       struct sp_err *e)
{
    struct doc d = parse(text);
    const int r = sp_policy_read(&d.j, 0, cwd, tmpdir, ret, e);

    done(&d); /* nothing that was read points into it */
    return r;
}

static struct sp_policy reads_with(const char *text, const char *cwd, const char *tmpdir)
{
    struct sp_policy p = {0};
    struct sp_err e = {0};

    if (read_policy(text, cwd, tmpdir, &p, &e) < 0)
        fail_msg("%s: %s", text, e.msg);
    assert_false(p.cwd_is_root);
    return p;
}

static struct sp_policy reads(const char *text)
{
    return reads_with(text, "/work", "/child/tmp");
}

static void permits(const char *text, const char *told)
{
    struct sp_policy p = reads(text);

    is_told(&p.profile, told);
    sp_policy_done(&p);
}

static void refused_with(const char *text, const char *cwd, const char *why)
{
    struct sp_policy p = {.cwd_is_root = true};
    struct sp_err e = {0};

    assert_int_equal(read_policy(text, cwd, NULL, &p, &e), -SP_E_INVALID);
    assert_string_equal(e.msg, why);
    assert_int_equal(sp_code_wire(e.code), -32602);
    assert_true(p.cwd_is_root && p.cwd == NULL && p.profile.entries == NULL); /* untouched */
}

static void refused(const char *text, const char *why)
{
    refused_with(text, "/work", why);
}

/* ---- recorded requests ---- */

static void test_the_recorded_read_only_request(void **state)
{
    (void)state;
    struct sp_policy p = reads("{\"permissions\":" RESTRICTED(READ_ONLY) CWD ROOTS TAIL);

    is_told(&p.profile, "managed root=read");
    assert_string_equal(p.cwd, "/srv/example");
    assert_int_equal(p.root_count, 1);
    assert_string_equal(p.roots[0], "/srv/example");
    assert_string_equal(p.tmpdir, "/child/tmp");
    assert_null(p.home);
    sp_policy_done(&p);
}

static void test_the_recorded_workspace_write_request(void **state)
{
    (void)state;
    struct sp_policy p = reads("{\"permissions\":" RESTRICTED(WORKSPACE_WRITE) CWD ROOTS TAIL);

    is_told(&p.profile, WORKSPACE_WRITE_TOLD);
    assert_int_equal(p.root_count, 1);
    sp_policy_done(&p);

    p = reads("{\"permissions\":" RESTRICTED(WORKSPACE_WRITE) CWD ",\"workspaceRoots\":[]" TAIL);
    is_told(&p.profile, WORKSPACE_WRITE_TOLD);
    assert_string_equal(p.cwd, "/srv/example");
    assert_int_equal(p.root_count, 0); /* and the cwd is none either */
    sp_policy_done(&p);
}

static void test_the_recorded_disabled_requests(void **state)
{
    (void)state;
    struct sp_policy p =
        reads("{\"permissions\":{\"type\":\"disabled\"},\"windowsSandboxLevel\":\"disabled\"}");

    is_told(&p.profile, "disabled net");
    assert_string_equal(p.cwd, "/work");
    sp_policy_done(&p);

    p = reads_with("{\"permissions\":{\"type\":\"disabled\"},\"policyContext\":{\"cwd\":"
                   "\"file:///srv/example\",\"workspaceRoots\":[\"file:///srv/example\"]},"
                   "\"userHomeDir\":\"file:///tmp/example/home\",\"temporaryDirectories\":[],"
                   "\"windowsSandboxLevel\":\"disabled\",\"useLegacyLandlock\":false}",
                   NULL, NULL);
    is_told(&p.profile, "disabled net");
    assert_string_equal(p.cwd, "/srv/example");
    assert_int_equal(p.root_count, 1);
    assert_string_equal(p.home, "/tmp/example/home");
    assert_null(p.tmpdir);
    sp_policy_done(&p);
}

static void test_the_recorded_file_request(void **state)
{
    (void)state;
    struct sp_policy p = reads_with(
        "{\"permissions\":" RESTRICTED(WORKSPACE_WRITE) CWD
        ",\"policyContext\":{\"cwd\":\"file:///srv/example\",\"workspaceRoots\":["
        "\"file:///srv/example\"]}" ROOTS ",\"userHomeDir\":\"file:///tmp/example/home\","
        "\"temporaryDirectories\":[],\"windowsSandboxLevel\":\"disabled\","
        "\"useLegacyLandlock\":false}",
        NULL, NULL);

    is_told(&p.profile, WORKSPACE_WRITE_TOLD);
    assert_string_equal(p.cwd, "/srv/example");
    assert_string_equal(p.home, "/tmp/example/home");
    sp_policy_done(&p);

    permits("{\"permissions\":" RESTRICTED(
                READ_ONLY "," ENTRY(LITERAL("file:///srv/example"), "deny")) CWD ROOTS TAIL,
            "managed root=read /srv/example=deny");
}

static void test_the_recorded_refusals(void **state)
{
    (void)state;
    refused("{\"permissions\":" RESTRICTED(WORKSPACE_WRITE) CWD ROOTS
            ",\"windowsSandboxLevel\":\"mxc\",\"windowsSandboxProxySettingsMode\":\"reconcile\","
            "\"useLegacyLandlock\":false}",
            "native MXC is unavailable on this executor");
    refused(ENTRIES(ENTRY(LITERAL("file:///C:/x"), "read")),
            "invalid sandbox permission path URI: 'file:///C:/x' is invalid on 'linux'");
    refused_with("{\"permissions\":" RESTRICTED(WORKSPACE_WRITE) ROOTS TAIL, NULL,
                 "file system sandbox context with dynamic permissions requires cwd");
}

/* ---- the members of the object ---- */

static void test_what_must_be_there(void **state)
{
    (void)state;
    refused("{}", "missing field `permissions`");
    refused("[]", "invalid type: sequence, expected a map");
    refused("{\"permissions\":null}", "invalid type: null, expected a map");
    refused("{\"permissions\":\"read-only\"}",
            "invalid type: string \"read-only\", expected a map");
    refused("{\"permissions\":{\"type\":\"disabled\"}}", "missing field `windowsSandboxLevel`");
    refused("{\"permissions\":{\"type\":\"disabled\"},\"windowsSandboxLevel\":null}",
            "invalid type: null, expected a string");
    refused("{\"permissions\":{\"type\":\"disabled\"},\"windowsSandboxLevel\":\"high\"}",
            "unknown variant `high`, expected one of `disabled`, `restricted-token`, `elevated`, "
            "`mxc`");
    permits("{\"permissions\":{\"type\":\"disabled\"},\"windowsSandboxLevel\":\"elevated\"}",
            "disabled net");
    permits("{\"permissions\":{\"type\":\"disabled\"},\"windowsSandboxLevel\":\"restricted-"
            "token\"}",
            "disabled net");
}

static void test_what_has_no_effect_is_still_read(void **state)
{
    (void)state;
    permits(DISABLED(",\"sandboxOverride\":\"noOverride\""), "disabled net");
    permits(DISABLED(",\"sandboxOverride\":\"escalatedSandboxWithRestrictions\""), "disabled net");
    permits(DISABLED(",\"sandboxOverride\":\"bypassSandboxFirstAttempt\""), "disabled net");
    refused(DISABLED(",\"sandboxOverride\":null"), "invalid type: null, expected a string");
    refused(DISABLED(",\"sandboxOverride\":\"x\""),
            "unknown variant `x`, expected one of `noOverride`, "
            "`escalatedSandboxWithRestrictions`, `bypassSandboxFirstAttempt`");

    permits(DISABLED(",\"useLegacyLandlock\":true"), "disabled net");
    refused(DISABLED(",\"useLegacyLandlock\":null"), "invalid type: null, expected a boolean");
    refused(DISABLED(",\"useLegacyLandlock\":1"), "invalid type: number, expected a boolean");

    permits(DISABLED(",\"windowsSandboxProxySettingsMode\":\"preserve\""), "disabled net");
    permits(DISABLED(",\"windowsSandboxProxySettingsMode\":null"), "disabled net");
    refused(DISABLED(",\"windowsSandboxProxySettingsMode\":\"x\""),
            "unknown variant `x`, expected `reconcile` or `preserve`");

    permits(DISABLED(",\"temporaryDirectories\":null"), "disabled net");
    permits(DISABLED(",\"temporaryDirectories\":[\"file:///t\",\"file:///C:/t\"]"), "disabled net");
    refused(DISABLED(",\"temporaryDirectories\":{}"), "invalid type: map, expected a sequence");
    refused(DISABLED(",\"temporaryDirectories\":[\"/t\"]"),
            "invalid URI: relative URL without a base");

    permits(DISABLED(",\"windowsSandboxPrivateDesktop\":\"?\",\"x\":[1,{\"y\":null}]"),
            "disabled net");
}

static void test_where_the_policy_is(void **state)
{
    (void)state;
    struct sp_policy p = reads(DISABLED(",\"cwd\":null,\"userHomeDir\":null"));
    assert_string_equal(p.cwd, "/work");
    assert_int_equal(p.root_count, 0);
    assert_null(p.home);
    sp_policy_done(&p);

    p = reads(DISABLED(",\"cwd\":\"file:///a//b/../c%20d/\",\"workspaceRoots\":[\"file:///r\","
                       "\"file:///s/%2E%2e/%ff\"],\"userHomeDir\":\"file:///h/..%2Fg\""));
    assert_string_equal(p.cwd, "/a/c d");
    assert_int_equal(p.root_count, 2);
    assert_string_equal(p.roots[0], "/r");
    assert_string_equal(p.roots[1], "/\xFF");
    assert_string_equal(p.home, "/g");
    sp_policy_done(&p);

    refused(DISABLED(",\"cwd\":\"/x\""), "invalid URI: relative URL without a base");
    refused(DISABLED(",\"cwd\":7"), "invalid type: number, expected a string");
    refused(DISABLED(",\"cwd\":\"file:///c:/x\""),
            "invalid sandbox cwd URI: 'file:///C:/x' is invalid on 'linux'");
    refused(DISABLED(",\"workspaceRoots\":null"), "invalid type: null, expected a sequence");
    refused(DISABLED(",\"workspaceRoots\":[null]"), "invalid type: null, expected a string");
    refused(DISABLED(",\"workspaceRoots\":[\"file://host/x\"]"),
            "invalid sandbox workspace root URI: 'file://host/x' is invalid on 'linux'");
    refused(DISABLED(",\"userHomeDir\":\"file:///D:\""),
            "invalid sandbox home directory URI: 'file:///D:' is invalid on 'linux'");
}

static void test_a_policy_context_replaces_both(void **state)
{
    (void)state;
    struct sp_policy p =
        reads(DISABLED(CWD ROOTS ",\"policyContext\":{\"cwd\":\"file:///p\",\"workspaceRoots\":["
                                 "\"file:///q\",\"file:///r\"],\"new\":1}"));
    assert_string_equal(p.cwd, "/p");
    assert_int_equal(p.root_count, 2);
    assert_string_equal(p.roots[0], "/q");
    sp_policy_done(&p);

    p = reads(DISABLED(CWD ROOTS ",\"policyContext\":{}"));
    assert_string_equal(p.cwd, "/work");
    assert_int_equal(p.root_count, 0);
    sp_policy_done(&p);

    p = reads(DISABLED(CWD ROOTS ",\"policyContext\":null"));
    assert_string_equal(p.cwd, "/srv/example");
    assert_int_equal(p.root_count, 1);
    sp_policy_done(&p);

    /* What is replaced need not be of this host, but it must be a URI. */
    p = reads(DISABLED(",\"cwd\":\"file:///C:/x\",\"policyContext\":{\"cwd\":\"file:///p\"}"));
    assert_string_equal(p.cwd, "/p");
    sp_policy_done(&p);
    refused(DISABLED(",\"cwd\":\"x\",\"policyContext\":{\"cwd\":\"file:///p\"}"),
            "invalid URI: relative URL without a base");

    refused(DISABLED(",\"policyContext\":[]"), "invalid type: sequence, expected a map");
    refused(DISABLED(",\"policyContext\":{\"workspaceRoots\":null}"),
            "invalid type: null, expected a sequence");
}

static void test_without_a_cwd_nothing_may_depend_on_it(void **state)
{
    static const char why[] = "file system sandbox context with dynamic permissions requires cwd";
    static const char *const fine[] = {"/srv/**/.env", "~/x", "~"};
    static const char *const relative[] = {"**/.env", "~user/x", "codex-project-roots://*.env"};

    (void)state;
    refused_with(ENTRIES(PROTECTED(".git")), NULL, why);
    for (size_t i = 0; i < 3; i++) {
        struct sp_buf text = {0};
        struct sp_policy p;

        assert_true(sp_buf_printf(&text,
                                  ENTRIES("{\"path\":{\"type\":\"glob_pattern\",\"pattern\":"
                                          "\"%s\"},\"access\":\"deny\"}"),
                                  relative[i]));
        refused_with(text.data, NULL, why);
        text.len = 0;
        assert_true(sp_buf_printf(&text,
                                  ENTRIES("{\"path\":{\"type\":\"glob_pattern\",\"pattern\":"
                                          "\"%s\"},\"access\":\"deny\"}"),
                                  fine[i]));
        p = reads_with(text.data, NULL, NULL);
        assert_null(p.cwd);
        sp_policy_done(&p);
        sp_buf_done(&text);
    }
    struct sp_policy p = reads_with(ENTRIES(READ_ONLY "," TMPDIR_WRITE), NULL, "relative/tmp");
    assert_null(p.cwd);
    assert_null(p.tmpdir);
    sp_policy_done(&p);
}

static void test_a_tmpdir_that_is_no_place_is_none(void **state)
{
    char *longest = stretch("/", 4094, "");
    char *too_long = stretch("/", 4095, "");

    (void)state;
    struct sp_policy p = reads_with(DISABLED(""), "/", "");
    assert_null(p.tmpdir);
    sp_policy_done(&p);
    p = reads_with(DISABLED(""), "/", longest);
    assert_string_equal(p.tmpdir, longest);
    sp_policy_done(&p);
    p = reads_with(DISABLED(""), "/", too_long);
    assert_null(p.tmpdir);
    sp_policy_done(&p);
    free(longest);
    free(too_long);
}

/* ---- permissions ---- */

static void test_every_form_of_permissions(void **state)
{
#define HAS(permissions) "{\"permissions\":" permissions LEVEL "}"
    (void)state;
    permits(HAS("{\"type\":\"disabled\",\"network\":7}"), "disabled net");
    permits(HAS("{\"type\":\"external\",\"network\":\"enabled\"}"), "external net");
    permits(HAS("{\"type\":\"external\",\"network\":\"restricted\"}"), "external");
    permits(HAS("{\"type\":\"managed\",\"network\":\"restricted\",\"file_system\":{\"type\":"
                "\"unrestricted\"}}"),
            "managed open");
    permits(HAS("{\"type\":\"managed\",\"network\":\"enabled\",\"file_system\":{\"type\":"
                "\"unrestricted\",\"entries\":7}}"),
            "managed open net");
    permits(HAS("{\"type\":\"managed\",\"network\":\"enabled\",\"file_system\":{\"type\":"
                "\"restricted\",\"entries\":[],\"glob_scan_max_depth\":3}}"),
            "managed net depth=3");
    permits(ENTRIES(""), "managed");

    refused(HAS("{}"), "missing field `type`");
    refused(HAS("{\"network\":{\"enabled\":true}}"), "missing field `type`"); /* for files alone */
    refused(HAS("{\"type\":\"read-only\"}"),
            "unknown variant `read-only`, expected one of `managed`, `disabled`, `external`");
    refused(HAS("{\"type\":7}"), "invalid type: number, expected a string");
    refused(HAS("{\"type\":\"external\"}"), "missing field `network`");
    refused(HAS("{\"type\":\"external\",\"network\":\"on\"}"),
            "unknown variant `on`, expected `restricted` or `enabled`");
    refused(HAS("{\"type\":\"managed\",\"network\":\"restricted\"}"),
            "missing field `file_system`");
    refused(HAS("{\"type\":\"managed\",\"file_system\":{\"type\":\"unrestricted\"}}"),
            "missing field `network`");
    refused(HAS("{\"type\":\"managed\",\"file_system\":{\"type\":\"open\"}}"),
            "unknown variant `open`, expected `restricted` or `unrestricted`");
    refused(HAS("{\"type\":\"managed\",\"file_system\":{\"type\":\"restricted\"}}"),
            "missing field `entries`");
    refused(HAS("{\"type\":\"managed\",\"file_system\":{\"type\":\"restricted\",\"entries\":{}}}"),
            "invalid type: map, expected a sequence");
#undef HAS
}

static void test_paths_of_permissions_are_uris(void **state)
{
    (void)state;
    permits(ENTRIES(ENTRY(LITERAL("file:///srv/data"), "write")), "managed /srv/data=write");
    permits(ENTRIES(ENTRY(LITERAL("file:///a%20b/./c/../d//e/"), "none")), "managed /a b/d/e=deny");
    permits(ENTRIES(ENTRY(LITERAL("file:///srv/..%2F..%2Fetc"), "read")), "managed /etc=read");
    permits(ENTRIES(ENTRY(LITERAL("file:///%00/bad/path/L0M6L3g"), "read")),
            "managed /C:/x=read"); /* a path that looks like a drive */
    permits(ENTRIES(ENTRY("{\"type\":\"glob_pattern\",\"pattern\":\"/srv/**/.env\"}", "deny")),
            "managed glob:/srv/**/.env=deny");

    refused(ENTRIES(ENTRY(LITERAL("/srv/data"), "read")),
            "invalid URI: relative URL without a base");
    refused(ENTRIES(ENTRY(LITERAL("http://x/y"), "read")), "unsupported path URI scheme `http`");
    refused(ENTRIES(ENTRY(LITERAL("file:///a?b"), "read")),
            "query parameters are not allowed in path URIs");
    refused(ENTRIES(ENTRY(LITERAL("file:///a%00b"), "read")),
            "'file:///a%00b' is invalid on 'linux'");
    refused(ENTRIES(ENTRY(LITERAL("file:///a\\u0000b"), "read")),
            "'file:///a%00b' is invalid on 'linux'");
    refused(ENTRIES(ENTRY(LITERAL("file://server/share"), "read")),
            "invalid sandbox permission path URI: 'file://server/share' is invalid on 'linux'");
}

/* ---- bounds ---- */

static void refused_and_free(char *text, const char *why)
{
    refused(text, why);
    free(text);
}

static void test_there_is_an_end_to_lists(void **state)
{
    static const char head[] = "{\"permissions\":{\"type\":\"managed\",\"network\":\"restricted\","
                               "\"file_system\":{\"type\":\"restricted\",\"entries\":[";
    static const char roots[] =
        "{\"permissions\":{\"type\":\"disabled\"}" LEVEL ",\"workspaceRoots\":[";
    char *most = repeat(head, READ_ONLY, 4096, "]}}" LEVEL "}");
    char *most_roots = repeat(roots, "\"file:///r\"", 4096, "]}");

    (void)state;
    struct sp_policy p = reads(most);
    assert_int_equal(p.profile.count, 4096);
    sp_policy_done(&p);
    p = reads(most_roots);
    assert_int_equal(p.root_count, 4096);
    sp_policy_done(&p);
    free(most);
    free(most_roots);

    refused_and_free(repeat(head, READ_ONLY, 4097, "]}}" LEVEL "}"),
                     "more than 4096 sandbox permission entries");
    refused_and_free(repeat(roots, "\"file:///r\"", 4097, "]}"), "more than 4096 workspace roots");
    refused_and_free(repeat("{\"permissions\":{\"type\":\"disabled\"}" LEVEL
                            ",\"temporaryDirectories\":[",
                            "\"file:///t\"", 4097, "]}"),
                     "more than 4096 temporary directories");
}

static void test_there_is_an_end_to_paths(void **state)
{
    static const char head[] = "{\"permissions\":{\"type\":\"managed\",\"network\":\"restricted\","
                               "\"file_system\":{\"type\":\"restricted\",\"entries\":[{\"path\":"
                               "{\"type\":\"path\",\"path\":\"file:///";
    static const char tail[] = "\"},\"access\":\"read\"}]}}" LEVEL "}";
    char *longest = stretch(head, 4094, tail);

    (void)state;
    struct sp_policy p = reads(longest);
    assert_int_equal(strlen(p.profile.entries[0].text), 4095);
    sp_policy_done(&p);
    free(longest);

    refused_and_free(stretch(head, 4095, tail),
                     "invalid sandbox permission path: longer than 4095 bytes");
    refused_and_free(stretch("{\"permissions\":{\"type\":\"disabled\"}" LEVEL ",\"cwd\":\"file:///",
                             4095, "\"}"),
                     "invalid sandbox cwd: longer than 4095 bytes");
    refused_and_free(stretch("{\"permissions\":{\"type\":\"disabled\"}" LEVEL
                             ",\"workspaceRoots\":[\"file:///",
                             4095, "\"]}"),
                     "invalid sandbox workspace root: longer than 4095 bytes");

    /* A foreign one is cut, and its reason is not. */
    struct sp_err e = {0};
    struct sp_policy q = {0};
    char *foreign = stretch(
        "{\"permissions\":{\"type\":\"disabled\"}" LEVEL ",\"cwd\":\"file:///C:/", 5000, "\"}");
    assert_int_equal(read_policy(foreign, "/", NULL, &q, &e), -SP_E_INVALID);
    assert_non_null(strstr(e.msg, "x…' is invalid on 'linux'"));
    free(foreign);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_the_recorded_read_only_request),
    cmocka_unit_test(test_the_recorded_workspace_write_request),
    cmocka_unit_test(test_the_recorded_disabled_requests),
    cmocka_unit_test(test_the_recorded_file_request),
    cmocka_unit_test(test_the_recorded_refusals),
    cmocka_unit_test(test_what_must_be_there),
    cmocka_unit_test(test_what_has_no_effect_is_still_read),
    cmocka_unit_test(test_where_the_policy_is),
    cmocka_unit_test(test_a_policy_context_replaces_both),
    cmocka_unit_test(test_without_a_cwd_nothing_may_depend_on_it),
    cmocka_unit_test(test_a_tmpdir_that_is_no_place_is_none),
    cmocka_unit_test(test_every_form_of_permissions),
    cmocka_unit_test(test_paths_of_permissions_are_uris),
    cmocka_unit_test(test_there_is_an_end_to_lists),
    cmocka_unit_test(test_there_is_an_end_to_paths),
};

TEST_MAIN(tests)

/* SPDX-License-Identifier: Apache-2.0 */
/* [permissions.NAME] and what comes of names and modes. */
#include "config/policy.h"
#include "config_fixture.h"
#include "memory_fixture.h"
#include "sandbox/resolve.h"

/* The C library's own calls of malloc are not counted: so these are. */
char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);

char *__wrap_strdup(const char *text)
{
    return memory_ends() ? NULL : __real_strdup(text);
}

static const struct sp_profile *profile(const struct sp_config *c, const char *name)
{
    for (size_t i = 0; i < c->profile_count; i++)
        if (strcmp(c->profiles[i].name, name) == 0)
            return &c->profiles[i].profile;
    fail_msg("there is no profile %s", name);
    return NULL;
}

/* text NULL: the place has none. */
static void has(const struct sp_profile *p, enum sp_place place, const char *text,
                enum sp_access access)
{
    size_t n = 0;

    for (size_t i = 0; i < p->count; i++) {
        const struct sp_entry *entry = &p->entries[i];

        if (entry->place != place || (text == NULL) != (entry->text == NULL) ||
            (text != NULL && strcmp(text, entry->text) != 0))
            continue;
        assert_int_equal(entry->access, access);
        n++;
    }
    if (n != 1)
        fail_msg("%d %s: there %zu times", place, text == NULL ? "" : text, n);
}

static const char of_the_chapter[] = "[permissions.build]\n"
                                     "extends = ':workspace'\n"
                                     "description = 'for builds'\n"
                                     "[permissions.build.filesystem]\n"
                                     "glob_scan_max_depth = 3\n"
                                     "':minimal' = 'read'\n"
                                     "'/srv/cache' = 'write'\n"
                                     "'~/.netrc' = 'deny'\n"
                                     "[permissions.build.filesystem.':workspace_roots']\n"
                                     "'.' = 'write'\n"
                                     "'docs' = 'read'\n"
                                     "'**/*.env' = 'deny'\n"
                                     "[permissions.build.network]\n"
                                     "enabled = false\n";

static void test_the_example_of_the_chapter_means_what_it_says(void **state)
{
    auto_config struct sp_config c = load(of_the_chapter);
    const struct sp_profile *p = profile(&c, "build");
    char netrc[96];

    (void)state;
    (void)snprintf(netrc, sizeof netrc, "%s/.netrc", test_home);
    assert_int_equal(p->kind, SP_PROFILE_MANAGED);
    assert_false(p->has_network || p->is_unrestricted);
    assert_int_equal(p->glob_depth, 3);
    has(p, SP_PLACE_ROOT, NULL, SP_ACCESS_READ); /* of :workspace */
    has(p, SP_PLACE_PROJECT, NULL, SP_ACCESS_WRITE);
    has(p, SP_PLACE_PROJECT, ".git", SP_ACCESS_READ);
    has(p, SP_PLACE_SLASH_TMP, NULL, SP_ACCESS_WRITE);
    has(p, SP_PLACE_MINIMAL, NULL, SP_ACCESS_READ);
    has(p, SP_PLACE_PATH, "/srv/cache", SP_ACCESS_WRITE);
    has(p, SP_PLACE_PATH, netrc, SP_ACCESS_DENY);
    has(p, SP_PLACE_PROJECT, "docs", SP_ACCESS_READ);
    has(p, SP_PLACE_GLOB, "codex-project-roots://**/*.env", SP_ACCESS_DENY);
    assert_null(c.warnings);
}

static void test_a_child_says_anew_what_it_names(void **state)
{
    auto_config struct sp_config c =
        load("[permissions.a]\nextends = 'b'\ndescription = 'x'\n[permissions.a.filesystem]\n"
             "'/x' = 'read'\n[permissions.b]\nextends = 'c'\nnetwork.enabled = true\n"
             "[permissions.b.filesystem]\n'/y/' = 'deny'\n"
             "[permissions.c.filesystem]\n'/x' = 'write'\n'/y' = 'write'\n'/z' = 'write'\n"
             "glob_scan_max_depth = 2\n");
    const struct sp_profile *p = profile(&c, "a");

    (void)state;
    assert_int_equal(p->count, 3);
    has(p, SP_PLACE_PATH, "/x", SP_ACCESS_READ);
    has(p, SP_PLACE_PATH, "/y", SP_ACCESS_DENY);
    has(p, SP_PLACE_PATH, "/z", SP_ACCESS_WRITE);
    assert_true(p->has_network);
    assert_int_equal(p->glob_depth, 2);
    assert_false(profile(&c, "c")->has_network);
}

static void test_every_spelling_of_a_place_is_understood(void **state)
{
    auto_config struct sp_config c =
        load("[permissions.p.filesystem]\n':root' = 'read'\n':project_roots' = 'write'\n"
             "':tmpdir' = 'write'\n':slash_tmp' = 'none'\n'/a/**' = 'write'\n'/b/**' = 'deny'\n"
             "'/c/{x,y}' = 'deny'\n'~' = 'read'\n'~/k*' = 'deny'\n"
             "['permissions'.p.filesystem.'/d']\n'.' = 'read'\n'e/f' = 'write'\n'*.key' = 'deny'\n"
             "[permissions.q.filesystem]\n'/**' = 'read'\n"
             "[permissions.q.filesystem.':workspace_roots']\n'**' = 'write'\n'g/**' = 'read'\n");
    const struct sp_profile *p = profile(&c, "p");

    (void)state;
    has(p, SP_PLACE_ROOT, NULL, SP_ACCESS_READ);
    has(p, SP_PLACE_PROJECT, NULL, SP_ACCESS_WRITE);
    has(p, SP_PLACE_TMPDIR, NULL, SP_ACCESS_WRITE);
    has(p, SP_PLACE_SLASH_TMP, NULL, SP_ACCESS_DENY);
    has(p, SP_PLACE_PATH, "/a", SP_ACCESS_WRITE);
    has(p, SP_PLACE_GLOB, "/b/**", SP_ACCESS_DENY);
    has(p, SP_PLACE_GLOB, "/c/{x,y}", SP_ACCESS_DENY);
    has(p, SP_PLACE_PATH, test_home, SP_ACCESS_READ);
    has(p, SP_PLACE_GLOB, "~/k*", SP_ACCESS_DENY);
    has(p, SP_PLACE_PATH, "/d", SP_ACCESS_READ);
    has(p, SP_PLACE_PATH, "/d/e/f", SP_ACCESS_WRITE);
    has(p, SP_PLACE_GLOB, "/d/*.key", SP_ACCESS_DENY);
    p = profile(&c, "q");
    has(p, SP_PLACE_PATH, "/", SP_ACCESS_READ);
    has(p, SP_PLACE_PROJECT, NULL, SP_ACCESS_WRITE);
    has(p, SP_PLACE_PROJECT, "g", SP_ACCESS_READ);
}

static void test_what_a_profile_may_not_say_is_refused(void **state)
{
    (void)state;
    refused(
        "[permissions.':x']\n",
        ": line 1, column 14: permissions profile `:x` uses a reserved built-in profile prefix");
    refused("[permissions.read-only]\n", ": line 1, column 14: `read-only` cannot be the name");
    refused("permissions.a = 1\n",
            ": line 1, column 17: permissions profile `a`: expected a table");
    refused(
        "[permissions.a]\nextend = 'b'\n",
        ": line 2, column 1: unknown key `extend` in permissions.NAME; did you mean `extends`?");
    refused("[permissions.a]\nextends = 'b'\n",
            ": line 2, column 11: `extends`: there is no profile `b`");
    refused("[permissions.a]\nextends = ':danger-full-access'\n",
            ": line 2, column 11: `extends`: `:danger-full-access` restricts nothing");
    refused("[permissions.a]\nextends = 'a'\n",
            ": line 2, column 11: permissions profiles extend each other: a -> a");
    refused("[permissions.a]\nextends = 'b'\n[permissions.b]\nextends = 'c'\n[permissions.c]\n"
            "extends = 'b'\n",
            ": line 4, column 11: permissions profiles extend each other: b -> c -> b");
    refused("[permissions.a.network]\nenabled = 1\n",
            ": line 2, column 11: `enabled`: expected true");
    refused("[permissions.a.network]\nproxy = 1\n", ": line 2, column 1: unknown key `proxy`");
    refused("[permissions.a.filesystem]\n'x' = 'read'\n",
            ": line 2, column 1: `x`: expected an absolute");
    refused("[permissions.a.filesystem]\n':home' = 'deny'\n",
            ": line 2, column 1: `:home`: expected an absolute");
    refused("[permissions.a.filesystem]\n'~x' = 'read'\n",
            ": line 2, column 1: `~x`: expected an abs");
    refused("[permissions.a.filesystem]\n'/x' = 'rw'\n",
            ": line 2, column 1: unknown access `rw`, expected one of `read`, `write`, `deny`");
    refused("[permissions.a.filesystem]\n'/x' = 1\n",
            ": line 2, column 8: expected `read`, `write` or `deny`, or");
    refused("[permissions.a.filesystem]\n'/x/*' = 'read'\n",
            ": line 2, column 1: glob file system");
    refused("[permissions.a.filesystem]\n'/x/*/**' = 'write'\n",
            ": line 2, column 1: glob file system");
    refused("[permissions.a.filesystem]\n'/x/{a' = 'deny'\n", ": line 2, column 1: ");
    refused("[permissions.a.filesystem]\n\"/x\\u0000\" = 'deny'\n",
            ": line 2, column 1: invalid sandbox");
    refused("[permissions.a.filesystem]\nglob_scan_max_depth = 0\n",
            ": line 2, column 23: `glob_scan_max_");
    refused("[permissions.a.filesystem.':workspace_roots']\n'../x' = 'read'\n",
            ": line 2, column 1: filesystem subpath `../x` must be a descendant path");
    refused("[permissions.a.filesystem.'/x']\n'../y' = 'read'\n",
            ": line 2, column 1: filesystem subpath `../y` must be a descendant path");
    refused("[permissions.a.filesystem.'/x']\n'/y' = 'read'\n",
            ": line 2, column 1: filesystem subpath");
    refused("[permissions.a.filesystem.':tmpdir']\n'y' = 'read'\n",
            ": line 2, column 1: `:tmpdir` has no places below it");
    refused("[permissions.a.filesystem.'/x'.y]\n'z' = 'read'\n",
            ": line 1, column 32: expected `read`");
}

static void test_what_is_hardly_meant_is_warned_of(void **state)
{
    auto_config struct sp_config c = load("[permissions.a]\n");
    char want[256];

    (void)state;
    (void)snprintf(want, sizeof want,
                   "%s: line 1, column 14: permissions profile `a` has no file-system entries: "
                   "nothing may be read",
                   test_file);
    assert_string_equal(c.warnings[0], want);
    assert_null(c.warnings[1]);
}

static void test_a_pattern_of_a_profile_denies_what_it_names(void **state)
{
    auto_config struct sp_config c = load(of_the_chapter);
    struct sp_policy policy = {0};
    struct sp_resolved resolved = {0};
    struct sp_err e = {0};
    bool is_open = true;

    (void)state;
    assert_int_equal(sp_config_policy(&c, "build", "/site/./x/", &policy, &is_open, &e), 0);
    assert_false(is_open);
    assert_string_equal(policy.cwd, "/site/x");
    assert_int_equal(policy.root_count, 1);
    assert_string_equal(policy.home, test_home);
    assert_int_equal(sp_resolve(&policy, &resolved, &e), 0);
    assert_int_equal(resolved.glob_count, 1);
    assert_string_equal(resolved.globs[0], "/site/x/**/*.env");
    assert_int_equal(sp_resolved_access(&resolved, "/site/x/docs/a", NULL), SP_ACCESS_READ);
    assert_int_equal(sp_resolved_access(&resolved, "/site/x/a", NULL), SP_ACCESS_WRITE);
    sp_resolved_done(&resolved);
    sp_policy_done(&policy);
}

static void means(const struct sp_config *c, const char *name, enum sp_profile_kind kind,
                  size_t entries)
{
    struct sp_policy policy = {0};
    struct sp_err e = {0};
    bool is_open = kind != SP_PROFILE_DISABLED;

    if (sp_config_policy(c, name, "/w", &policy, &is_open, &e) < 0)
        fail_msg("%s: %s", name, e.msg);
    assert_int_equal(policy.profile.kind, kind);
    assert_int_equal(policy.profile.count, entries);
    assert_int_equal(is_open, kind == SP_PROFILE_DISABLED);
    sp_policy_done(&policy);
}

static void test_names_and_modes_are_policies(void **state)
{
    const size_t workspace = 4 + SP_PROTECTED_COUNT;
    auto_config struct sp_config c =
        load("default_permissions = 'p'\npermissions.p.filesystem.'/x' = 'read'\n");
    struct sp_policy policy = {0};
    struct sp_err e = {0};
    bool is_open = false;

    (void)state;
    means(&c, ":read-only", SP_PROFILE_MANAGED, 1);
    means(&c, "read-only", SP_PROFILE_MANAGED, 1);
    means(&c, ":workspace", SP_PROFILE_MANAGED, workspace);
    means(&c, "workspace-write", SP_PROFILE_MANAGED, workspace);
    means(&c, ":danger-full-access", SP_PROFILE_DISABLED, 0);
    means(&c, "danger-full-access", SP_PROFILE_DISABLED, 0);
    means(&c, "external-sandbox", SP_PROFILE_EXTERNAL, 0);
    means(&c, "p", SP_PROFILE_MANAGED, 1);
    means(&c, NULL, SP_PROFILE_MANAGED, 1);
    means(NULL, NULL, SP_PROFILE_MANAGED, 1);
    means(NULL, ":workspace", SP_PROFILE_MANAGED, workspace);
    assert_int_equal(sp_config_policy(&c, "nothing", "/w", &policy, &is_open, &e), -SP_E_INVALID);
    assert_non_null(strstr(e.msg, "there is no sandbox `nothing`"));
    assert_int_equal(sp_config_policy(NULL, "p", "/w", &policy, &is_open, &e), -SP_E_INVALID);
    assert_int_equal(sp_config_policy(&c, "p", "w", &policy, &is_open, &e), -SP_E_INVALID);
    assert_null(policy.cwd);
}

static int load_and_ask(struct sp_err *e)
{
    const char *const sets[] = {"features.unified_exec=true", NULL};
    auto_config struct sp_config c = {0};
    struct sp_policy policy = {0};
    bool is_open = false;
    int r = load_with("SALLYPORT_NOTIFY_AT=5", sets, &c, e);

    if (r == 0)
        r = sp_config_policy(&c, "build", "/w", &policy, &is_open, e);
    sp_policy_done(&policy);
    return r;
}

/* That nothing leaks on the way, the sanitizer sees. */
static void test_memory_that_ends_is_told(void **state)
{
    char text[1024];

    (void)state;
    (void)snprintf(text, sizeof text,
                   "%s[permissions.bare]\n[environments.e]\nprogram = 'x'\n"
                   "args = ['y']\nenv = {A = 'b'}\n",
                   of_the_chapter);
    write_file(test_file, text, 0600);
    for (long n = 1;; n++) {
        struct sp_err e = {0};

        end_memory_at(n);
        const int r = load_and_ask(&e);
        if (!did_memory_end()) {
            assert_int_equal(r, 0);
            assert_true(n > 60); /* the calls were in fact counted */
            return;
        }
        if (r != -SP_E_SYSTEM)
            fail_msg("request %ld: %d: %s", n, r, e.msg);
    }
}

#define AT_HOME(test) cmocka_unit_test_setup_teardown(test, make_home, drop_home)

static const struct CMUnitTest tests[] = {
    AT_HOME(test_the_example_of_the_chapter_means_what_it_says),
    AT_HOME(test_a_child_says_anew_what_it_names),
    AT_HOME(test_every_spelling_of_a_place_is_understood),
    AT_HOME(test_what_a_profile_may_not_say_is_refused),
    AT_HOME(test_what_is_hardly_meant_is_warned_of),
    AT_HOME(test_a_pattern_of_a_profile_denies_what_it_names),
    AT_HOME(test_names_and_modes_are_policies),
    AT_HOME(test_memory_that_ends_is_told),
};

TEST_MAIN(tests)

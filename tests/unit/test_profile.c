/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory_fixture.h"
#include "profile_fixture.h"
#include "sandbox/resolve.h"

static void refused(const char *line, const char *why)
{
    struct sp_profile p = profile_of("/kept=r");
    struct sp_err e = {0};

    assert_int_equal(add_line(&p, line, &e), -SP_E_INVALID);
    assert_string_equal(e.msg, why);
    assert_profile(&p, "/kept=r");
    sp_profile_done(&p);
}

static void reads_as(const char *line, const char *want)
{
    struct sp_profile p = profile_of(line);

    assert_profile(&p, want);
    sp_profile_done(&p);
}

static void test_entries_keep_what_they_say_and_their_order(void **state)
{
    static const char line[] = "root=r project=w project:.git=r? slash_tmp=w tmpdir=w /srv/x=d "
                               "minimal=r glob:**/*.env=d unknown::future=w";

    (void)state;
    reads_as(line, line);
}

static void test_a_path_has_one_spelling(void **state)
{
    (void)state;
    reads_as("/a/../b//c/.=w", "/b/c=w");
    reads_as("/=r", "/=r");
    reads_as("//=r", "/=r");
    reads_as("/x/=d", "/x=d");
    reads_as("project:a//b/=r", "project:a/b=r");
}

static void test_what_an_entry_cannot_be_is_refused(void **state)
{
    (void)state;
    refused("glob:/x/*=r", "glob file system permissions only support deny-read entries");
    refused("glob:/x/*=w", "glob file system permissions only support deny-read entries");
    refused("glob:=d", "a glob pattern is empty");
    refused("srv=r", "filesystem path `srv` is not absolute");
    refused("=r", "filesystem path `` is not absolute");
#define DESCENDANT(p)          \
    refused("project:" p "=r", \
            "filesystem subpath `" p "` must be a descendant path without `.` or `..` components")
    DESCENDANT("..");
    DESCENDANT(".");
    DESCENDANT("");
    DESCENDANT("a/../b");
    DESCENDANT("a/./b");
    DESCENDANT("a/..");
    DESCENDANT("/a");
#undef DESCENDANT
    reads_as("project:..a/.b/...=r", "project:..a/.b/...=r");
}

static void test_no_nul_gets_into_a_path(void **state)
{
    struct sp_profile p = {0};
    struct sp_err e = {0};

    (void)state;
    assert_int_equal(sp_profile_add(&p, SP_PLACE_PATH, SP_ACCESS_DENY, false, SP_STR("/a\0b"),
                                    (struct sp_str){0}, &e),
                     -SP_E_INVALID);
    assert_string_equal(e.msg, "a filesystem path has a NUL byte in it");
    assert_int_equal(sp_profile_add(&p, SP_PLACE_UNKNOWN, SP_ACCESS_READ, false, SP_STR("x"),
                                    SP_STR("a\0b"), &e),
                     -SP_E_INVALID);
    assert_int_equal(p.count, 0);
    sp_profile_done(&p);
}

static void test_a_long_path_does_not_crowd_out_what_is_wrong(void **state)
{
    struct sp_profile p = {0};
    struct sp_err e = {0};
    char text[3000];

    (void)state;
    for (size_t i = 0; i < sizeof text; i += 3) /* characters of three bytes */
        memcpy(text + i, "\xE2\x82\xAC", 3);
    assert_int_equal(sp_profile_add(&p, SP_PLACE_PATH, SP_ACCESS_READ, false,
                                    (struct sp_str){text, sizeof text}, (struct sp_str){0}, &e),
                     -SP_E_INVALID);
    assert_non_null(strstr(e.msg, "€…` is not absolute"));
    memcpy(text, "../", 3);
    assert_int_equal(sp_profile_add(&p, SP_PLACE_PROJECT, SP_ACCESS_READ, false,
                                    (struct sp_str){text, sizeof text}, (struct sp_str){0}, &e),
                     -SP_E_INVALID);
    assert_non_null(strstr(e.msg, "…` must be a descendant path"));
}

static void test_an_unknown_word_is_kept_whole(void **state)
{
    struct sp_profile p = {0};
    struct sp_profile copy = {0};

    (void)state;
    assert_int_equal(sp_profile_add(&p, SP_PLACE_UNKNOWN, SP_ACCESS_READ, false, SP_STR(":new"),
                                    SP_STR("a/../b"), NULL),
                     0);
    assert_true(sp_profile_copy(&p, &copy));
    assert_string_equal(copy.entries[0].text, ":new");
    assert_string_equal(copy.entries[0].subpath, "a/../b");
    assert_true(sp_profile_equal(&p, &copy));
    copy.entries[0].subpath[0] = 'b';
    assert_false(sp_profile_equal(&p, &copy));
    sp_profile_done(&p);
    sp_profile_done(&copy);
}

static void test_texts_that_a_word_has_no_use_for_are_dropped(void **state)
{
    struct sp_profile p = {0};

    (void)state;
    assert_int_equal(
        sp_profile_add(&p, SP_PLACE_ROOT, SP_ACCESS_READ, false, SP_STR("x"), SP_STR("y"), NULL),
        0);
    assert_null(p.entries[0].text);
    assert_null(p.entries[0].subpath);
    sp_profile_done(&p);
}

static bool are_equal(const char *a, const char *b)
{
    struct sp_profile x = profile_of(a);
    struct sp_profile y = profile_of(b);
    const bool is_equal = sp_profile_equal(&x, &y);

    assert_int_equal(sp_profile_equal(&y, &x), is_equal);
    sp_profile_done(&x);
    sp_profile_done(&y);
    return is_equal;
}

static void test_equal_profiles_say_the_same_in_the_same_order(void **state)
{
    (void)state;
    assert_true(are_equal("", ""));
    assert_true(are_equal("root=r /a=w", "root=r /a/=w"));
    assert_false(are_equal("root=r /a=w", "/a=w root=r"));
    assert_false(are_equal("/a=r", "/a=w"));
    assert_false(are_equal("/a=r", "/a=r?"));
    assert_false(are_equal("project=r", "project:a=r"));
    assert_false(are_equal("/a=r", "/a=r /a=r"));

    const struct sp_profile closed = {0};
    assert_false(sp_profile_equal(&closed, &(struct sp_profile){.has_network = true}));
    assert_false(sp_profile_equal(&closed, &(struct sp_profile){.is_unrestricted = true}));
    assert_false(sp_profile_equal(&closed, &(struct sp_profile){.glob_depth = 1}));
    assert_false(sp_profile_equal(&closed, &(struct sp_profile){.kind = SP_PROFILE_EXTERNAL}));
    /* what does not count does not differ */
    assert_true(
        sp_profile_equal(&(struct sp_profile){.kind = SP_PROFILE_DISABLED},
                         &(struct sp_profile){.kind = SP_PROFILE_DISABLED, .has_network = true}));
    assert_false(
        sp_profile_equal(&(struct sp_profile){.kind = SP_PROFILE_EXTERNAL},
                         &(struct sp_profile){.kind = SP_PROFILE_EXTERNAL, .has_network = true}));
}

static bool needs_sandbox(const char *line, bool has_network)
{
    struct sp_profile p = profile_of(line);

    p.has_network = has_network;
    const bool needs = sp_profile_needs_sandbox(&p);
    sp_profile_done(&p);
    return needs;
}

static void test_a_sandbox_is_needed_where_something_is_restricted(void **state)
{
    (void)state;
    assert_true(needs_sandbox("", false));
    assert_true(needs_sandbox("", true));
    assert_true(needs_sandbox("root=w", false));
    assert_false(needs_sandbox("root=w", true));
    assert_true(needs_sandbox("root=r", true));
    assert_true(needs_sandbox("root=w /x=r", true));
    assert_false(needs_sandbox("root=w /x=r /x=w", true));

    struct sp_profile p = {.is_unrestricted = true};
    assert_true(sp_profile_needs_sandbox(&p));
    p.has_network = true;
    assert_false(sp_profile_needs_sandbox(&p));
    p = (struct sp_profile){.kind = SP_PROFILE_DISABLED};
    assert_false(sp_profile_needs_sandbox(&p));
    p = (struct sp_profile){.kind = SP_PROFILE_EXTERNAL};
    assert_false(sp_profile_needs_sandbox(&p));
}

static void test_without_memory_a_sandbox_is_needed(void **state)
{
    struct sp_profile p = profile_of("root=w");

    (void)state;
    p.has_network = true;
    end_memory_at(1);
    const bool needs = sp_profile_needs_sandbox(&p);
    assert_true(did_memory_end());
    assert_true(needs);
    sp_profile_done(&p);
}

/* ---- the four modes ---- */

static void test_modes_have_names(void **state)
{
    static const char *const name[] = {"danger-full-access", "read-only", "workspace-write",
                                       "external-sandbox"};
    enum sp_mode m = SP_MODE_EXTERNAL;

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        assert_true(sp_mode_read(sp_str_of(name[i]), &m));
        assert_string_equal(sp_mode_name(m), name[i]);
    }
    assert_false(sp_mode_read(SP_STR("Read-Only"), &m));
    assert_false(sp_mode_read(SP_STR(""), &m));
    assert_false(sp_mode_read(SP_STR("read-onl"), &m));
    assert_int_equal(m, SP_MODE_EXTERNAL);
}

static void becomes(const struct sp_legacy *l, enum sp_profile_kind kind, bool has_network,
                    const char *line)
{
    struct sp_profile p = {0};
    struct sp_err e = {0};

    if (sp_profile_from_legacy(l, &p, &e) < 0)
        fail_msg("%s", e.msg);
    assert_int_equal(p.kind, kind);
    assert_int_equal(p.has_network, has_network);
    assert_false(p.is_unrestricted);
    assert_profile(&p, line);
    sp_profile_done(&p);
}

#define DEFAULTS                                                            \
    "project:.git=r? project:.agents=r? project:.codex=r? project:.aws=r? " \
    "project:.sallyport=r?"

static void test_each_mode_is_a_profile(void **state)
{
    struct sp_legacy l = {.mode = SP_MODE_FULL_ACCESS};

    (void)state;
    becomes(&l, SP_PROFILE_DISABLED, true, "");
    l.mode = SP_MODE_EXTERNAL;
    becomes(&l, SP_PROFILE_EXTERNAL, false, "");
    l.has_network = true;
    becomes(&l, SP_PROFILE_EXTERNAL, true, "");
    l.mode = SP_MODE_READ_ONLY;
    becomes(&l, SP_PROFILE_MANAGED, true, "root=r");
    l = (struct sp_legacy){.mode = SP_MODE_WORKSPACE_WRITE};
    becomes(&l, SP_PROFILE_MANAGED, false, "root=r project=w slash_tmp=w tmpdir=w " DEFAULTS);
    l.excludes_slash_tmp = true;
    becomes(&l, SP_PROFILE_MANAGED, false, "root=r project=w tmpdir=w " DEFAULTS);
    l.excludes_tmpdir = true;
    becomes(&l, SP_PROFILE_MANAGED, false, "root=r project=w " DEFAULTS);
    l.excludes_slash_tmp = false;
    becomes(&l, SP_PROFILE_MANAGED, false, "root=r project=w slash_tmp=w " DEFAULTS);
}

static void make(const char *dir, const char *name, bool is_dir)
{
    char path[256];

    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    if (is_dir) {
        assert_int_equal(mkdir(path, 0700), 0);
        return;
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
}

static void unmake(const char *dir, const char *name)
{
    char path[256];

    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(remove(path), 0);
}

static void test_listed_roots_bring_what_is_protected_there(void **state)
{
    char dir[] = "/tmp/sp-profile-XXXXXX";
    char bare[] = "/nonexistent-root";
    char *roots[] = {bare, dir};
    const struct sp_legacy l = {.mode = SP_MODE_WORKSPACE_WRITE,
                                .excludes_tmpdir = true,
                                .excludes_slash_tmp = true,
                                .roots = roots,
                                .root_count = 2};
    char want[1024];

    (void)state;
    assert_non_null(mkdtemp(dir));
    make(dir, ".git", false);   /* a file that names a directory is protected too */
    make(dir, ".agents", true); /* .codex is missing */
    make(dir, ".aws", false);   /* of a type that means nothing */
    (void)snprintf(want, sizeof want,
                   "root=r project=w /nonexistent-root=w %s=w " DEFAULTS
                   " %s/.git=r? %s/.agents=r?",
                   dir, dir, dir);
    becomes(&l, SP_PROFILE_MANAGED, false, want);
    unmake(dir, ".git");
    unmake(dir, ".agents");
    unmake(dir, ".aws");
    assert_int_equal(rmdir(dir), 0);
}

static void test_a_relative_root_is_refused(void **state)
{
    char relative[] = "srv";
    char *roots[] = {relative};
    const struct sp_legacy l = {.mode = SP_MODE_WORKSPACE_WRITE, .roots = roots, .root_count = 1};
    struct sp_profile p = {.glob_depth = 7};
    struct sp_err e = {0};

    (void)state;
    assert_int_equal(sp_profile_from_legacy(&l, &p, &e), -SP_E_INVALID);
    assert_string_equal(e.msg, "filesystem path `srv` is not absolute");
    assert_int_equal(p.glob_depth, 7);
}

/* ---- memory ---- */

static int convert_and_copy(struct sp_err *e)
{
    char root[] = "/srv";
    char *roots[] = {root};
    char cwd[] = "/w";
    const struct sp_legacy l = {.mode = SP_MODE_WORKSPACE_WRITE, .roots = roots, .root_count = 1};
    struct sp_policy p = {.cwd = cwd, .cwd_is_root = true};
    struct sp_profile copy = {0};
    int r = sp_profile_from_legacy(&l, &p.profile, e);

    if (r == 0 && !sp_profile_copy(&p.profile, &copy))
        r = -SP_E_SYSTEM;
    if (r == 0)
        r = sp_profile_add(&copy, SP_PLACE_UNKNOWN, SP_ACCESS_READ, false, SP_STR("a"), SP_STR("b"),
                           e);
    if (r == 0 && !sp_policy_add_root(&p, SP_STR("/v")))
        r = -SP_E_SYSTEM;
    p.cwd = NULL;
    sp_profile_done(&copy);
    sp_policy_done(&p);
    return r;
}

static void test_every_end_of_memory_is_an_error(void **state)
{
    (void)state;
    for (long n = 1;; n++) {
        struct sp_err e = {0};

        end_memory_at(n);
        const int r = convert_and_copy(&e);
        if (!did_memory_end()) {
            assert_int_equal(r, 0);
            assert_true(n > 20);
            return;
        }
        assert_int_equal(r, -SP_E_SYSTEM);
    }
}

static void test_done_accepts_nothing(void **state)
{
    struct sp_profile p = {0};
    struct sp_policy policy = {0};
    struct sp_legacy l = {0};

    (void)state;
    sp_profile_done(&p);
    sp_policy_done(&policy);
    sp_legacy_done(&l);
    assert_true(sp_profile_copy(&(struct sp_profile){.glob_depth = 3}, &p));
    assert_int_equal(p.glob_depth, 3);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_entries_keep_what_they_say_and_their_order),
    cmocka_unit_test(test_a_path_has_one_spelling),
    cmocka_unit_test(test_what_an_entry_cannot_be_is_refused),
    cmocka_unit_test(test_no_nul_gets_into_a_path),
    cmocka_unit_test(test_a_long_path_does_not_crowd_out_what_is_wrong),
    cmocka_unit_test(test_an_unknown_word_is_kept_whole),
    cmocka_unit_test(test_texts_that_a_word_has_no_use_for_are_dropped),
    cmocka_unit_test(test_equal_profiles_say_the_same_in_the_same_order),
    cmocka_unit_test(test_a_sandbox_is_needed_where_something_is_restricted),
    cmocka_unit_test(test_without_memory_a_sandbox_is_needed),
    cmocka_unit_test(test_modes_have_names),
    cmocka_unit_test(test_each_mode_is_a_profile),
    cmocka_unit_test(test_listed_roots_bring_what_is_protected_there),
    cmocka_unit_test(test_a_relative_root_is_refused),
    cmocka_unit_test(test_every_end_of_memory_is_an_error),
    cmocka_unit_test(test_done_accepts_nothing),
};

TEST_MAIN(tests)

/* SPDX-License-Identifier: Apache-2.0 */
/* A survey holds until something changes that it depends on, and no longer. */
#include "survey_fixture.h"

/* ---- changes ---- */

static void replace(const char *below)
{
    char old[PATH_MAX];

    (void)snprintf(old, sizeof old, "%s.old", at(below));
    assert_int_equal(rename(at(below), old), 0);
    assert_int_equal(mkdir(at(below), 0777), 0);
}

static void no_longer_holds(const char *what)
{
    if (sp_survey_holds(&survey))
        fail_msg("it still holds: %s", what);
}

static void test_what_commands_do_in_a_root_changes_nothing(void **state)
{
    (void)state;
    make_dir("w/.git");
    make_dir("w/sub/ro");
    reads_all();
    can_write("w");
    can_read("w/sub/ro");
    survey_now();
    make_file("w/new", "");
    make_file("w/sub/new", "");
    make_file("w/sub/ro/new", "");
    make_file("w/.git/HEAD", "");
    make_dir("w/dir/.git");
    assert_int_equal(chmod(at("w"), 0700), 0);
    assert_true(sp_survey_holds(&survey));
}

static void test_a_root_that_is_replaced_is_seen(void **state)
{
    (void)state;
    make_dir("w/.git");
    can_write("w");
    survey_now();
    replace("w");
    no_longer_holds("a new root");
    survey_now();
    tree_remove(at("w"));
    no_longer_holds("no root");
    survey_now();
    make_link("w.old", "w");
    no_longer_holds("a symlink");
}

/* A file system may give the number of a removed directory to the next one at once. */
static void test_a_name_that_is_made_anew_is_seen(void **state)
{
    struct stat before;
    struct stat after;

    (void)state;
    make_dir("w/.git");
    can_write("w");
    survey_now();
    const struct timespec born = sure_spot(at("w/.git"))->who.born;
    assert_int_equal(stat(at("w/.git"), &before), 0);
    assert_int_equal(rmdir(at("w/.git")), 0);
    assert_int_equal(mkdir(at("w/.git"), 0777), 0);
    assert_int_equal(stat(at("w/.git"), &after), 0);
    if (before.st_ino == after.st_ino && born.tv_sec == 0) {
        print_message("# skipped: this file system keeps no time of birth\n");
        skip();
    }
    no_longer_holds("a .git with the same number");
    struct sp_survey old = survey;
    survey = (struct sp_survey){0};
    survey_now();
    assert_false(sp_survey_equal(&old, &survey));
    sp_survey_done(&old);
}

static void test_names_that_come_and_go_are_seen(void **state)
{
    (void)state;
    make_dir("w");
    can_write("w");
    survey_now();
    make_dir("w/.codex");
    no_longer_holds("a protected name appears");
    survey_now();
    assert_int_equal(rmdir(at("w/.codex")), 0);
    no_longer_holds("a protected name is gone");
    survey_now();
    make_link("nowhere", "w/.aws");
    no_longer_holds("a protected name is a dangling symlink");
}

static void test_missing_places_that_appear_are_seen(void **state)
{
    (void)state;
    make_dir("w/p");
    can_write("w");
    can_write("later");
    can_read("later2");
    denied("w/p/m/n");
    read_if_there("w/default");
    survey_now();
    make_dir("later");
    no_longer_holds("a missing root");
    survey_now();
    make_dir("later2");
    no_longer_holds("a missing readable place");
    survey_now();
    make_dir("w/default");
    no_longer_holds("a default that was skipped");
    survey_now();
    replace("w/p"); /* still missing, but somewhere else */
    no_longer_holds("the directory that something is missing in");
    survey_now();
    make_dir("w/p/m");
    no_longer_holds("the first component");
}

/* Not twice within one tick of the file system's clock. */
static void rewrite(const char *below, const char *text)
{
    const uint64_t until = test_now_ms() + DEADLINE_MS;
    struct stat before;
    struct stat now;

    assert_int_equal(stat(at(below), &before), 0);
    do {
        const int fd = open(at(below), O_WRONLY | O_CLOEXEC);

        assert_true(fd >= 0);
        assert_int_equal(write(fd, text, strlen(text)), strlen(text));
        (void)close(fd);
        assert_int_equal(stat(at(below), &now), 0);
        assert_true(test_now_ms() < until);
    } while (now.st_ctim.tv_sec == before.st_ctim.tv_sec &&
             now.st_ctim.tv_nsec == before.st_ctim.tv_nsec);
    assert_int_equal(before.st_ino, now.st_ino);
    assert_int_equal(before.st_size, now.st_size);
}

static void test_git_files_that_say_something_else_are_seen(void **state)
{
    (void)state;
    make_dir("w/a");
    make_dir("w/b");
    make_file("w/.git", "gitdir: a");
    make_file("w/a/commondir", "../c");
    can_write("w");
    survey_now();
    has("w/a", READ, DIR, GITDIR);
    make_dir("w/c");
    no_longer_holds("what a commondir names appears");
    survey_now();
    has("w/c", READ, DIR, GITDIR);
    rewrite("w/a/commondir", "../d");
    no_longer_holds("a commondir is written anew");
    survey_now();
    rewrite("w/.git", "gitdir: b");
    no_longer_holds("a .git is written anew");
    survey_now();
    has("w/b", READ, DIR, GITDIR);
    has_no("w/a");
    make_file("w/b/commondir", "../c");
    no_longer_holds("a commondir appears");
}

static void test_symlinks_on_the_way_are_seen(void **state)
{
    (void)state;
    make_dir("real/w");
    make_link("real", "alias");
    can_read("alias/w");
    survey_now();
    assert_int_equal(unlink(at("alias")), 0);
    make_link("./real", "alias"); /* it leads to the same place, but reads otherwise */
    no_longer_holds("another text");
    survey_now();
    assert_string_equal(survey.aliases[0].target, "./real");
    make_dir("other/w");
    assert_int_equal(unlink(at("alias")), 0);
    make_link("other", "alias");
    no_longer_holds("another target");
}

static void test_a_directory_on_the_way_that_becomes_a_symlink_is_seen(void **state)
{
    (void)state;
    make_dir("w/sub/ro");
    can_write("w");
    can_read("w/sub/ro");
    survey_now();
    assert_int_equal(rename(at("w/sub"), at("w/moved")), 0);
    make_link("moved", "w/sub"); /* the same inode at the same path */
    no_longer_holds("a symlink on the way");
    survey_refused(SP_E_INVALID, crossing("read-only path", "w/sub/ro", "w/sub"));
}

/* Nobody in the sandbox can do this, but the path is no longer one without symlinks. */
static void test_a_symlink_above_a_root_is_seen(void **state)
{
    (void)state;
    make_dir("p/w");
    can_read("p/w");
    survey_now();
    assert_int_equal(rename(at("p"), at("q")), 0);
    make_link("q", "p");
    no_longer_holds("a symlink above a root");
}

static void test_a_pinned_directory_that_is_replaced_is_seen(void **state)
{
    (void)state;
    make_dir("w/sub/ro");
    can_write("w");
    can_read("w/sub/ro");
    survey_now();
    struct sp_survey old = survey;
    replace("w/sub");
    assert_int_equal(rename(at("w/sub.old/ro"), at("w/sub/ro")), 0);
    no_longer_holds("another directory around the same carve-out");
    survey = (struct sp_survey){0};
    survey_now();
    assert_false(sp_survey_equal(&old, &survey));
    sp_survey_done(&old);
}

static void test_hidden_paths_that_come_and_go_are_seen(void **state)
{
    (void)state;
    hidden_paths[0] = at("run");
    policy.profile.kind = SP_PROFILE_DISABLED;
    survey_now();
    make_dir("run");
    no_longer_holds("a cover appears");
    survey_now();
    replace("run");
    no_longer_holds("a cover is another");
}

static void test_a_survey_of_patterns_never_holds(void **state)
{
    (void)state;
    make_dir("w");
    can_read("w");
    denied_glob("w/*.env");
    survey_now();
    assert_false(sp_survey_holds(&survey));
}

/* ---- comparing ---- */

static struct sp_survey taken(void)
{
    struct sp_survey s = survey;

    survey = (struct sp_survey){0};
    return s;
}

static void test_surveys_differ_in_all_that_counts(void **state)
{
    (void)state;
    make_dir("w/x");
    make_dir("v");
    make_link("w", "l");
    can_read("l");
    can_read("w/x");
    survey_now();
    struct sp_survey a = taken();

    assert_true(sp_survey_equal(&a, &a));
    denied("w/x");
    survey_now();
    assert_false(sp_survey_equal(&a, &survey)); /* an access */
    survey_reset();
    can_read("l");
    can_read("w/x");
    can_read("v");
    survey_now();
    assert_false(sp_survey_equal(&a, &survey)); /* a place more */
    survey_reset();
    can_read("w");
    can_read("w/x");
    survey_now();
    assert_false(sp_survey_equal(&a, &survey)); /* a symlink less */
    survey_reset();
    tree_remove(at("w/x"));
    make_file("w/x", "");
    can_read("l");
    can_read("w/x");
    survey_now();
    assert_false(sp_survey_equal(&a, &survey)); /* a file where a directory was */
    survey_reset();
    policy.profile.kind = SP_PROFILE_DISABLED;
    survey_now();
    struct sp_survey open = taken();
    survey_reset();
    survey_now(); /* nothing at all may be read */
    assert_false(sp_survey_equal(&open, &survey));
    sp_survey_done(&a);
    sp_survey_done(&open);
}

static void test_an_ordinary_policy_is_cheap_to_look_at_again(void **state)
{
    const struct sp_legacy ordinary = {.mode = SP_MODE_WORKSPACE_WRITE,
                                       .excludes_slash_tmp = true}; /* whose names are anybody's */
    struct timespec start;
    struct timespec now;

    (void)state;
    make_dir("w/.git");
    make_dir("tmp");
    policy.tmpdir = strdup(at("tmp"));
    policy.cwd = strdup(at("w"));
    policy.cwd_is_root = true;
    assert_int_equal(sp_profile_from_legacy(&ordinary, &policy.profile, &error), 0);
    survey_now();
    print_message("# %zu marks, %zu spots\n", survey.mark_count, survey.count);
    assert_true(survey.mark_count <= 16);
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int i = 0; i < 1000; i++)
        assert_true(sp_survey_holds(&survey));
    clock_gettime(CLOCK_MONOTONIC, &now);
    print_message("# %ld ns a look\n",
                  ((now.tv_sec - start.tv_sec) * 1000000000 + now.tv_nsec - start.tv_nsec) / 1000);
}

static void test_done_accepts_nothing(void **state)
{
    struct sp_survey s = {0};

    (void)state;
    sp_survey_done(&s);
    sp_survey_done(&s);
    assert_true(sp_survey_holds(&s));
}

static const struct CMUnitTest tests[] = {
    survey_test(test_what_commands_do_in_a_root_changes_nothing),
    survey_test(test_a_root_that_is_replaced_is_seen),
    survey_test(test_a_name_that_is_made_anew_is_seen),
    survey_test(test_names_that_come_and_go_are_seen),
    survey_test(test_missing_places_that_appear_are_seen),
    survey_test(test_git_files_that_say_something_else_are_seen),
    survey_test(test_symlinks_on_the_way_are_seen),
    survey_test(test_a_directory_on_the_way_that_becomes_a_symlink_is_seen),
    survey_test(test_a_symlink_above_a_root_is_seen),
    survey_test(test_a_pinned_directory_that_is_replaced_is_seen),
    survey_test(test_hidden_paths_that_come_and_go_are_seen),
    survey_test(test_a_survey_of_patterns_never_holds),
    survey_test(test_surveys_differ_in_all_that_counts),
    survey_test(test_an_ordinary_policy_is_cheap_to_look_at_again),
    cmocka_unit_test(test_done_accepts_nothing),
};

TEST_MAIN(tests)

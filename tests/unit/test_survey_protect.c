/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/survey_priv.h"
#include "survey_fixture.h"

static const char *const names[] = {".git", ".agents", ".codex", ".aws", ".sallyport"};

/* ---- names ---- */

static void test_missing_names_are_held_below_every_root(void **state)
{
    char path[64];

    (void)state;
    make_dir("w/nested");
    make_dir("other");
    make_dir("r");
    reads_all();
    can_write("w");
    can_write("w/nested");
    can_write("other");
    can_read("r");
    survey_now();
    for (size_t i = 0; i < SP_PROTECTED_COUNT; i++) {
        (void)snprintf(path, sizeof path, "w/%s", names[i]);
        has(path, READ, MISSING, PROTECTED);
        (void)snprintf(path, sizeof path, "w/nested/%s", names[i]);
        has(path, READ, MISSING, PROTECTED);
        (void)snprintf(path, sizeof path, "other/%s", names[i]);
        has(path, READ, MISSING, PROTECTED);
        (void)snprintf(path, sizeof path, "r/%s", names[i]);
        has_no(path);
    }
    assert_int_equal(survey.count, 1 + 3 * (1 + SP_PROTECTED_COUNT) + 1);
}

static void test_existing_names_of_any_type_are_read_only(void **state)
{
    (void)state;
    make_dir("w/.git");
    make_file("w/.codex", "");
    assert_int_equal(mkfifo(at("w/.agents"), 0666), 0);
    make_dir("w/deeper/.git"); /* top level only */
    can_write("w");
    survey_now();
    has("w/.git", READ, DIR, PROTECTED);
    has("w/.codex", READ, FILE, PROTECTED);
    has("w/.agents", READ, FILE, PROTECTED);
    has_no("w/deeper/.git");
    assert_int_equal(sure_spot(at("w/.git"))->entry, 0);
}

static void test_an_entry_about_the_name_is_the_stricter_of_the_two(void **state)
{
    (void)state;
    make_dir("w/.git");
    make_dir("w/.aws");
    can_write("w");
    read_if_there("w/.git");
    read_if_there("w/.agents");
    denied("w/.aws");
    denied("w/.codex");
    survey_now();
    has("w/.git", READ, DIR, PROTECTED);
    has("w/.agents", READ, MISSING, PROTECTED);
    has("w/.aws", DENY, DIR, ENTRY);
    has("w/.codex", DENY, MISSING, ENTRY);
}

static void test_a_write_entry_reopens_what_it_covers(void **state)
{
    (void)state;
    make_dir("w/.git/hooks");
    make_dir("w/.agents");
    can_write("w");
    can_write("w/.git/hooks");
    can_write("w/.agents");
    can_write("w/.codex"); /* not there: it may be made */
    can_write("w/.aws/x");
    survey_now();
    has("w/.git", READ, DIR, PROTECTED);
    has("w/.git/hooks", WRITE, DIR, ENTRY);
    has("w/.agents", WRITE, DIR, ENTRY);
    has_no("w/.codex");
    has("w/.aws", READ, MISSING, PROTECTED);
    has("w/.sallyport", READ, MISSING, PROTECTED);
}

static void test_an_entry_reopens_in_any_spelling_of_the_root(void **state)
{
    (void)state;
    make_dir("real/.git");
    make_link("real", "alias");
    can_write("real");
    can_write("alias/.git");
    can_write("alias"); /* a second name of the root, by which .codex is spoken of */
    can_write("alias/.codex");
    survey_now();
    has("real/.git", WRITE, DIR, ENTRY);
    has_no("real/.codex");
    has("real/.agents", READ, MISSING, PROTECTED);
}

/* "Everything else" is no grant for a name, however the root is spelled. */
static void test_a_wider_root_reopens_nothing(void **state)
{
    (void)state;
    make_dir("real/.git");
    make_dir("secret");
    make_link("real", "alias");
    say_place(SP_PLACE_PATH, SP_ACCESS_WRITE, tree, false);
    denied("secret");
    can_write("alias");
    survey_now();
    has("real/.git", READ, DIR, PROTECTED);
    has("real/.codex", READ, MISSING, PROTECTED);
}

static void test_policies_that_write_everything_protect_no_name(void **state)
{
    (void)state;
    make_dir("w/.git");
    say_place(SP_PLACE_ROOT, SP_ACCESS_WRITE, NULL, false);
    can_write("w");
    survey_now();
    assert_true(resolved.is_full_write);
    has("w", WRITE, DIR, ENTRY);
    has_no("w/.git");
    assert_int_equal(survey.count, 2);
}

static void test_a_name_that_is_a_symlink_is_refused(void **state)
{
    (void)state;
    make_dir("elsewhere");
    make_dir("w");
    make_link("../elsewhere", "w/.codex");
    can_write("w");
    survey_refused(SP_E_INVALID, crossing("read-only path", "w/.codex", "w/.codex"));
    assert_int_equal(rename(at("w/.codex"), at("w/.git")), 0);
    survey_refused(SP_E_INVALID, crossing("read-only path", "w/.git", "w/.git"));
    assert_int_equal(unlink(at("w/.git")), 0);
    make_link("nowhere", "w/.aws");
    survey_refused(SP_E_INVALID, crossing("read-only path", "w/.aws", "w/.aws"));
}

/* ---- where .git leads ---- */

static void test_a_git_file_protects_the_directory_that_it_names(void **state)
{
    (void)state;
    make_dir("w/store/repo.git");
    make_file("w/.git", "gitdir: store/repo.git\n");
    can_write("w");
    survey_now();
    has("w/.git", READ, FILE, PROTECTED);
    has("w/store/repo.git", READ, DIR, GITDIR);
    assert_true(is_pinned("w/store"));
    survey_reset();
    make_dir("w2/git");
    make_dir("v");
    char text[PATH_MAX];
    (void)snprintf(text, sizeof text, "  gitdir :\t%s  \r\n\n", at("w2/git"));
    make_file("v/.git", text); /* in another root */
    can_write("v");
    can_write("w2");
    survey_now();
    has("w2/git", READ, DIR, GITDIR);
    assert_int_equal(sure_spot(at("w2/git"))->entry, 0);
}

static void test_a_git_directory_outside_of_roots_needs_nothing(void **state)
{
    (void)state;
    make_dir("main/.git/worktrees/x");
    make_file("main/.git/worktrees/x/commondir", "../..\n");
    make_file("w/.git", "gitdir: ../main/.git/worktrees/x\n");
    can_write("w");
    survey_now();
    has_no("main/.git");
    has_no("main/.git/worktrees/x");
}

static void test_a_worktree_protects_the_main_repository_in_another_root(void **state)
{
    (void)state;
    make_dir("main/bare.git/worktrees/x");
    make_file("main/bare.git/worktrees/x/commondir", "../..\n");
    make_file("w/.git", "gitdir: ../main/bare.git/worktrees/x\n");
    can_write("w");
    can_write("main");
    survey_now();
    has("main/bare.git/worktrees/x", READ, DIR, GITDIR);
    has("main/bare.git", READ, DIR, GITDIR);
}

static void test_a_git_directory_may_have_a_common_one(void **state)
{
    (void)state;
    make_dir("w/.git");
    make_dir("w/shared");
    make_file("w/.git/commondir", "../shared\n");
    can_write("w");
    survey_now();
    has("w/shared", READ, DIR, GITDIR);
}

static void test_dots_in_a_git_file_go_where_git_goes(void **state)
{
    (void)state;
    make_dir("deep/er/w");
    make_dir("deep/store");
    make_dir("store");
    make_file("deep/er/w/.git", "gitdir: ../../store\n");
    make_link("deep/er/w", "alias");
    can_write("alias");
    can_write("deep/store");
    can_write("store");
    survey_now();
    has("deep/store", WRITE, DIR, ENTRY); /* an entry about the very place reopens it */
    has("store", WRITE, DIR, ENTRY);
    survey_reset();
    can_write("alias");
    can_write("deep");
    can_write("store");
    survey_now();
    has("deep/store", READ, DIR, GITDIR);
}

static void test_what_is_no_git_file_names_nothing(void **state)
{
    static const char *const texts[] = {
        "",         "gitdir:", "gitdir: \n",      "gitdir store",  "GITDIR: store",
        "x: store", ": store", "gitdir: nowhere", "gitdirs: store"};

    (void)state;
    make_dir("w/store");
    can_write("w");
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        make_file("w/.git", texts[i]);
        survey_now();
        has("w/.git", READ, FILE, PROTECTED);
        has_no("w/store");
    }
    make_file("w/.git", "gitdir: store"); /* the twin */
    survey_now();
    has("w/store", READ, DIR, GITDIR);
}

static void test_a_pipe_named_git_keeps_nobody_waiting(void **state)
{
    (void)state;
    make_dir("w");
    make_dir("v/.git");
    assert_int_equal(mkfifo(at("w/.git"), 0666), 0);
    assert_int_equal(mkfifo(at("v/.git/commondir"), 0666), 0);
    can_write("w");
    can_write("v");
    survey_now();
    has("w/.git", READ, FILE, PROTECTED);
}

static void test_a_pipe_that_takes_the_place_of_a_git_file_is_refused(void **state)
{
    struct sp_identity who;
    char *named = NULL;

    (void)state;
    make_file("w/.git", "gitdir: x");
    assert_int_equal(sp_identity_get(AT_FDCWD, at("w/.git"), false, &who), 0);
    assert_int_equal(unlink(at("w/.git")), 0);
    assert_int_equal(mkfifo(at("w/.git"), 0666), 0);
    assert_int_equal(sp_gitdir_read(at("w/.git"), SP_GITDIR_DOT_GIT, at("w"), &who, &named, &error),
                     -(int)SP_E_STATE);
    assert_null(named);
}

static void test_a_huge_git_file_is_read_no_further_than_its_start(void **state)
{
    char *text = malloc(100001);

    (void)state;
    memset(text, '\n', 100000);
    text[100000] = 0;
    memcpy(text, "gitdir: store", 13);
    make_dir("w/store");
    make_file("w/.git", text);
    can_write("w");
    survey_now();
    has("w/store", READ, DIR, GITDIR);
    memset(text + 13, 'x', 99987);
    make_file("w/.git", text);
    /* The start of a long name is a name that is not there. */
    survey_now();
    has_no("w/store");
    free(text);
}

static void test_a_git_directory_behind_a_writable_symlink_is_refused(void **state)
{
    char text[PATH_MAX];

    (void)state;
    make_dir("w/store");
    make_link("store", "w/link");
    make_file("w/.git", "gitdir: link");
    can_write("w");
    survey_refused(SP_E_INVALID, crossing("read-only path", "w/link", "w/link"));
    make_link("..", "w/store/commondir"); /* a common directory, by a file that is a symlink */
    make_file("w/.git", "gitdir: store");
    survey_now();
    has("w/store", READ, DIR, GITDIR);
    assert_int_equal(unlink(at("w/store/commondir")), 0);
    make_file("w/named", "../common");
    make_dir("w/common");
    make_link("../named", "w/store/commondir");
    survey_now(); /* the link is in what is protected; where it leads is protected with it */
    has("w/named", READ, FILE, GITDIR);
    has("w/common", READ, DIR, GITDIR);
    (void)snprintf(text, sizeof text, "gitdir: %s", at("w/loop"));
    make_file("w/.git", text);
    make_link("loop", "w/loop");
    assert_int_equal(survey_try(), -(int)SP_E_INVALID);
}

static void test_a_git_directory_that_contains_the_root_is_no_trap(void **state)
{
    (void)state;
    make_file("w/.git", "gitdir: .");
    make_dir("w/v");
    make_file("w/v/.git", "gitdir: ..");
    can_write("w");
    can_write("w/v");
    survey_now();
    has("w", WRITE, DIR, ENTRY);
    has("w/v", WRITE, DIR, ENTRY);
}

/* ---- the text ---- */

static void parses(const char *text, enum sp_gitdir_file file, const char *expected)
{
    char *path = sp_gitdir_parse(text, file, "/base");

    if (expected == NULL)
        assert_null(path);
    else if (path == NULL || strcmp(path, expected) != 0)
        fail_msg("\"%s\": %s", text, path);
    free(path);
}

static void test_the_texts_of_the_two_files(void **state)
{
    (void)state;
    parses("gitdir: a/b", SP_GITDIR_DOT_GIT, "/base/a/b");
    parses("gitdir:/a/b\n", SP_GITDIR_DOT_GIT, "/a/b");
    parses("gitdir: a: b", SP_GITDIR_DOT_GIT, "/base/a: b");
    parses("gitdir: a\nb\n", SP_GITDIR_DOT_GIT, "/base/a\nb");
    parses("\n gitdir: a", SP_GITDIR_DOT_GIT, "/base/a");
    parses("a", SP_GITDIR_DOT_GIT, NULL);
    parses("", SP_GITDIR_DOT_GIT, NULL);
    parses("../..\n", SP_GITDIR_COMMONDIR, "/base/../..");
    parses("/x", SP_GITDIR_COMMONDIR, "/x");
    parses("gitdir: x", SP_GITDIR_COMMONDIR, "/base/gitdir: x");
    parses(" \n", SP_GITDIR_COMMONDIR, NULL);
    parses("[core]\n\tbare = false\n\tworktree = ../../../a b\n", SP_GITDIR_WORKTREE,
           "/base/../../../a b");
    parses("[CORE]\nWorkTree=\"/x # y\" ; z\n", SP_GITDIR_WORKTREE, "/x # y");
    parses("[core]\nworktree = /a\nworktree = /b\\\\c # d", SP_GITDIR_WORKTREE, "/b\\c");
    parses("[core \"x\"]\nworktree = /a\n[remote]\nworktree = /a\n", SP_GITDIR_WORKTREE, NULL);
    parses("worktree = /a\n[core]\nworktree\n", SP_GITDIR_WORKTREE, NULL);
    parses("", SP_GITDIR_WORKTREE, NULL);
}

static const struct CMUnitTest tests[] = {
    survey_test(test_missing_names_are_held_below_every_root),
    survey_test(test_existing_names_of_any_type_are_read_only),
    survey_test(test_an_entry_about_the_name_is_the_stricter_of_the_two),
    survey_test(test_a_write_entry_reopens_what_it_covers),
    survey_test(test_an_entry_reopens_in_any_spelling_of_the_root),
    survey_test(test_a_wider_root_reopens_nothing),
    survey_test(test_policies_that_write_everything_protect_no_name),
    survey_test(test_a_name_that_is_a_symlink_is_refused),
    survey_test(test_a_git_file_protects_the_directory_that_it_names),
    survey_test(test_a_git_directory_outside_of_roots_needs_nothing),
    survey_test(test_a_worktree_protects_the_main_repository_in_another_root),
    survey_test(test_a_git_directory_may_have_a_common_one),
    survey_test(test_dots_in_a_git_file_go_where_git_goes),
    survey_test(test_what_is_no_git_file_names_nothing),
    survey_test(test_a_pipe_named_git_keeps_nobody_waiting),
    survey_test(test_a_pipe_that_takes_the_place_of_a_git_file_is_refused),
    survey_test(test_a_huge_git_file_is_read_no_further_than_its_start),
    survey_test(test_a_git_directory_behind_a_writable_symlink_is_refused),
    survey_test(test_a_git_directory_that_contains_the_root_is_no_trap),
    cmocka_unit_test(test_the_texts_of_the_two_files),
};

TEST_MAIN(tests)

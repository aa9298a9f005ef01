/* SPDX-License-Identifier: Apache-2.0 */
/* Directories that stand for what is missing: made, shared, removed, and never anything else. */
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/runtime_dir.h"
#include "placeholder_fixture.h"

/* ---- one server ---- */

static void test_it_is_made_counted_and_removed(void **state)
{
    (void)state;
    takes(table, "w/.git");
    takes(table, "w/.git");
    takes(table, "w/.codex");
    drop(table, "w/.git");
    assert_true(is_there("w/.git"));
    drop(table, "w/.git");
    assert_false(is_there("w/.git"));
    assert_false(sp_placeholder_stands(table, at("w/.git")));
    assert_true(is_there("w/.codex"));
    drop(table, "w/.git");     /* nobody's: nothing happens */
    drop(table, "w/.nothing"); /* the same */
    drop(table, "w/.codex");
    takes(table, "w/.git"); /* and again */
    assert_int_equal(rmdir(at("w")), -1);
}

static void test_the_end_of_a_table_removes_all(void **state)
{
    char name[32];

    (void)state;
    for (int i = 0; i < 50; i++) {
        (void)snprintf(name, sizeof name, "w/n%d", i);
        takes(table, name);
        takes(table, name);
    }
    table_free(table);
    table = NULL;
    assert_int_equal(rmdir(at("w")), 0);
}

static void test_whatever_the_umask_its_mode_is_ours(void **state)
{
    static const mode_t masks[] = {0, 022, 077, 0777};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        const mode_t before = umask(masks[i]);
        const int r = take(table, "w/.git");

        assert_int_equal(umask(before), masks[i]);
        assert_int_equal(r, 0);
        drop(table, "w/.git");
        assert_false(is_there("w/.git"));
    }
}

/* A directory that belongs to a group gives its children more than they were made with. */
static void test_in_a_directory_of_a_group_it_is_made_all_the_same(void **state)
{
    (void)state;
    assert_int_equal(chmod(at("w"), 02777), 0);
    const int r = take(table, "w/.git");
    drop(table, "w/.git");
    const bool is_left = is_there("w/.git");
    (void)rmdir(at("w/.git"));
    assert_int_equal(r, 0);
    assert_false(is_left);
}

static void test_a_second_user_finds_a_new_one_where_the_first_was_removed(void **state)
{
    (void)state;
    takes(table, "w/.git");
    assert_int_equal(rmdir(at("w/.git")), 0);
    assert_false(sp_placeholder_stands(table, at("w/.git")));
    make_dir("w/else"); /* takes the inode that is free */
    assert_int_equal(rename(at("w/else"), at("w/.git")), 0);
    assert_false(sp_placeholder_stands(table, at("w/.git")));
    assert_int_equal(take(table, "w/.git"), -(int)SP_E_STATE);
    assert_int_equal(rmdir(at("w/.git")), 0);
    takes(table, "w/.git");
    drop(table, "w/.git");
    assert_true(is_there("w/.git"));
    drop(table, "w/.git");
    assert_false(is_there("w/.git"));
}

/* ---- what is somebody's ---- */

static void make_socket(const char *below)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)snprintf(a.sun_path, sizeof a.sun_path, "%s", at(below));
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
}

static void is_not_touched(const char *below)
{
    struct stat before;
    struct stat after;

    assert_int_equal(lstat(at(below), &before), 0);
    assert_false(sp_placeholder_is_at(at(below)));
    for (int i = 0; i < 2; i++) {
        const int r = take(table, below);

        if (r != -(int)SP_E_STATE)
            fail_msg("%s: %d %s", below, r, error.msg);
        assert_non_null(strstr(error.msg, at(below)));
        drop(table, below);
    }
    assert_int_equal(lstat(at(below), &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    assert_int_equal(before.st_mode, after.st_mode);
    assert_int_equal(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
    assert_int_equal(before.st_ctim.tv_nsec, after.st_ctim.tv_nsec);
}

static void test_what_is_somebodys_is_not_touched(void **state)
{
    (void)state;
    make_dir("w/empty");
    make_dir("w/closed");
    assert_int_equal(chmod(at("w/closed"), 0511), 0);
    make_dir("w/sticky");
    assert_int_equal(chmod(at("w/sticky"), 01555), 0);
    make_file("w/full/f", "text");
    assert_int_equal(chmod(at("w/full"), 0500), 0);
    make_dir("w/fuller/d");
    assert_int_equal(chmod(at("w/fuller"), 0500), 0);
    make_file("w/file", "text");
    assert_int_equal(chmod(at("w/file"), 0500), 0);
    make_dir("like-ours");
    assert_int_equal(chmod(at("like-ours"), 0500), 0);
    make_link(at("like-ours"), "w/link");
    make_link("nowhere", "w/dangling");
    make_link("loop", "w/loop");
    assert_int_equal(mkfifo(at("w/pipe"), 0500), 0);
    make_socket("w/socket");
    is_not_touched("w/empty");
    is_not_touched("w/closed");
    is_not_touched("w/sticky");
    is_not_touched("w/full");
    is_not_touched("w/fuller");
    is_not_touched("w/file");
    is_not_touched("w/link");
    is_not_touched("w/dangling");
    is_not_touched("w/loop");
    is_not_touched("w/pipe");
    is_not_touched("w/socket");
    assert_true(is_there("like-ours"));
}

static void test_what_became_somebodys_is_left_to_him(void **state)
{
    (void)state;
    takes(table, "w/a");
    takes(table, "w/b");
    takes(table, "w/c");
    assert_int_equal(chmod(at("w/a"), 0755), 0);
    make_file("w/a/f", "");
    assert_int_equal(chmod(at("w/b"), 0700), 0); /* empty yet, but his */
    assert_int_equal(rename(at("w/c"), at("w/moved")), 0);
    make_link("moved", "w/c");
    drop(table, "w/a");
    drop(table, "w/b");
    drop(table, "w/c");
    assert_true(is_there("w/a/f"));
    assert_true(is_there("w/b"));
    assert_true(is_there("w/c"));
    assert_true(is_there("w/moved"));
}

/* A symlink on the way was put there by somebody: it leads nowhere for us. */
static void test_no_symlink_on_the_way_is_followed(void **state)
{
    (void)state;
    make_dir("w/dir");
    make_dir("elsewhere");
    takes(table, "w/dir/.git");
    assert_int_equal(rename(at("w/dir"), at("w/moved")), 0);
    make_link("../elsewhere", "w/dir");
    assert_int_equal(mkdir(at("elsewhere/.git"), 0500), 0); /* looks like one */
    assert_int_equal(chmod(at("elsewhere/.git"), 0500), 0);
    assert_false(sp_placeholder_is_at(at("w/dir/.git")));
    assert_false(sp_placeholder_stands(table, at("w/dir/.git")));
    assert_true(take(table, "w/dir/.git") < 0);
    assert_true(take(table, "w/dir/.codex") < 0);
    assert_false(is_there("elsewhere/.codex"));
    drop(table, "w/dir/.git");
    assert_true(is_there("elsewhere/.git"));
    assert_false(is_there("w/moved/.git")); /* it is known by its directory, not by its path */
}

static void test_paths_that_lead_nowhere_are_refused(void **state)
{
    uint64_t dev;
    uint64_t ino;

    (void)state;
    make_file("w/file", "");
    assert_int_equal(take(table, "w/gone/.git"), -(int)SP_E_INVALID);
    assert_true(take(table, "w/file/.git") < 0);
    assert_int_equal(take_at(table, "relative", &dev, &ino, &error), -(int)SP_E_INVALID);
    assert_int_equal(take_at(table, "/", &dev, &ino, &error), -(int)SP_E_INVALID);
    assert_int_equal(take_at(table, "", &dev, &ino, &error), -(int)SP_E_INVALID);
    assert_false(is_there("w/gone"));
    assert_false(sp_placeholder_is_at("/"));
    assert_false(sp_placeholder_is_at(""));
}

/* ---- who may not ---- */

static void test_where_nobody_of_ours_can_write_none_is_needed(void **state)
{
    (void)state;
    if (geteuid() != 0) { /* root's directory will do */
        uint64_t dev;
        uint64_t ino;

        assert_int_equal(take_at(table, "/usr/.sallyport-none", &dev, &ino, &error), 1);
        assert_false(sp_placeholder_stands(table, "/usr/.sallyport-none"));
        return;
    }
    be_an_ordinary_user();
    assert_int_equal(take(table, "w/.git"), 1);
    assert_int_equal(take(table, "w/.git"), 1);
    assert_false(is_there("w/.git"));
    assert_false(sp_placeholder_stands(table, at("w/.git")));
}

/* What is ours a command can open up again. */
static void test_a_closed_directory_of_our_own_may_be_opened(void **state)
{
    (void)state;
    if (geteuid() == 0)
        assert_int_equal(chown(at("w"), 65534, 65534), 0);
    assert_int_equal(chmod(at("w"), 0555), 0);
    be_an_ordinary_user();
    assert_int_equal(take(table, "w/.git"), SP_PLACEHOLDER_UNWRITABLE);
    assert_false(is_there("w/.git"));
    assert_false(sp_placeholder_stands(table, at("w/.git")));
    assert_int_equal(chmod(at("w"), 0755), 0);
    takes(table, "w/.git");
    drop(table, "w/.git");
}

/* ---- two servers ---- */

static void test_two_servers_share_one_and_the_last_removes_it(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        takes(table, "w/.git");
        takes(other, "w/.git");
        takes(other, "w/.git");
        drop(first == 0 ? table : other, "w/.git");
        drop(other, "w/.git");
        assert_true(is_there("w/.git"));
        drop(first == 0 ? other : table, "w/.git");
        assert_false(is_there("w/.git"));
        drop(table, "w/.git");
        drop(other, "w/.git");
    }
}

static void test_the_end_of_one_server_leaves_the_others(void **state)
{
    (void)state;
    takes(table, "w/.git");
    takes(other, "w/.git");
    table_free(table);
    table = new_table(at("run")); /* which cleans up after the dead, and nobody is */
    assert_true(sp_placeholder_stands(other, at("w/.git")));
    drop(other, "w/.git");
    assert_false(is_there("w/.git"));
}

/* ---- without descriptors ---- */

static void test_no_descriptors_is_an_error_that_leaves_nothing(void **state)
{
    struct rlimit before;
    int errors = 0;

    (void)state;
    const int next = dup(0);
    (void)close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    for (int room = 0;; room++) {
        struct rlimit few = before;
        uint64_t dev;
        uint64_t ino;

        few.rlim_cur = (rlim_t)next + (rlim_t)room;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        const int r = take_at(table, at("w/.git"), &dev, &ino, &error);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        if (r == 0)
            break;
        errors++;
        assert_true(r < 0);
        /* It may stay for now, but not longer than the table. */
        table_free(table);
        assert_false(is_there("w/.git"));
        table = new_table(at("run"));
    }
    assert_true(errors > 0 && errors < 20);
    drop(table, "w/.git");
    assert_false(is_there("w/.git"));
}

static void test_there_may_be_many_but_not_too_many(void **state)
{
    struct rlimit before;
    struct rlimit many;
    char name[32];

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    many = before;
    many.rlim_cur = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &many), 0);
    if (before.rlim_max < SP_MAX_PLACEHOLDERS + 100) {
        print_message("# not tested: only %lu descriptors\n", (unsigned long)before.rlim_max);
        return;
    }
    for (int i = 0; i < SP_MAX_PLACEHOLDERS; i++) {
        (void)snprintf(name, sizeof name, "w/n%d", i);
        takes(table, name);
    }
    assert_int_equal(take(table, "w/more"), -(int)SP_E_LIMIT);
    assert_false(is_there("w/more"));
    takes(table, "w/n7"); /* those that are there may have more users */
    takes(other, "w/more");
    drop(table, "w/n8");
    takes(table, "w/more");
    table_free(table);
    table_free(other);
    table = other = NULL;
    assert_int_equal(rmdir(at("w")), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* ---- where ---- */

static void test_the_runtime_directory(void **state)
{
    char dir[64];
    char expected[64];

    (void)state;
    (void)snprintf(expected, sizeof expected, "/run/user/%u", (unsigned)geteuid());
    if (geteuid() != 0 && access(expected, F_OK) == 0)
        skip(); /* it comes first, whatever the environment says */
    (void)setenv("XDG_RUNTIME_DIR", "/run/user/7", 1); /* another user's, or not there */
    (void)snprintf(expected, sizeof expected, "/tmp/sallyport-%u", (unsigned)geteuid());
    sp_runtime_dir(dir, sizeof dir);
    assert_string_equal(dir, geteuid() == 0 ? "/run/sallyport" : expected);
    (void)setenv("XDG_RUNTIME_DIR", "relative", 1);
    (void)snprintf(expected, sizeof expected, "/tmp/sallyport-%u", (unsigned)geteuid());
    sp_runtime_dir(dir, sizeof dir);
    assert_string_equal(dir, geteuid() == 0 ? "/run/sallyport" : expected);
    (void)unsetenv("XDG_RUNTIME_DIR");
    sp_runtime_dir(dir, sizeof dir);
    assert_string_equal(dir, geteuid() == 0 ? "/run/sallyport" : expected);
}

static const struct CMUnitTest tests[] = {
    placeholder_test(test_it_is_made_counted_and_removed),
    placeholder_test(test_the_end_of_a_table_removes_all),
    placeholder_test(test_whatever_the_umask_its_mode_is_ours),
    placeholder_test(test_in_a_directory_of_a_group_it_is_made_all_the_same),
    placeholder_test(test_a_second_user_finds_a_new_one_where_the_first_was_removed),
    placeholder_test(test_what_is_somebodys_is_not_touched),
    placeholder_test(test_what_became_somebodys_is_left_to_him),
    placeholder_test(test_no_symlink_on_the_way_is_followed),
    placeholder_test(test_paths_that_lead_nowhere_are_refused),
    placeholder_test(test_where_nobody_of_ours_can_write_none_is_needed),
    placeholder_test(test_a_closed_directory_of_our_own_may_be_opened),
    placeholder_test(test_two_servers_share_one_and_the_last_removes_it),
    placeholder_test(test_the_end_of_one_server_leaves_the_others),
    placeholder_test(test_no_descriptors_is_an_error_that_leaves_nothing),
    placeholder_test(test_there_may_be_many_but_not_too_many),
    cmocka_unit_test(test_the_runtime_directory),
};

int main(void)
{
    (void)sp_log_set_level("error");
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

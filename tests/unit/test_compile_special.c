/* SPDX-License-Identifier: Apache-2.0 */
/* Plans again: what patterns match, what is covered, symlinks, and the places that a cell has for
 * itself. */
#include <sched.h>
#include <sys/mount.h>

#include "base/auto.h"
#include "compile_fixture.h"

/* ---- patterns and hidden paths ---- */

static void test_what_patterns_match_is_denied(void **state)
{
    (void)state;
    make_file("w/a/b/x.env", "");
    make_dir("w/dir.env");
    make_file("w/a/keep", "");
    reads_all();
    can_write("w");
    denied_glob("w/**/*.env");
    compile_now();
    pins("w/a");
    pins("w/a/b");
    denies("w/a/b/x.env");
    denies("w/dir.env");
    has_no_op("w/a/keep");
}

static void test_hidden_paths_hide_whatever_the_policy_says(void **state)
{
    (void)state;
    make_dir("w/run/sub");
    make_file("w/sock", "");
    make_dir("w/run/sub/.git");
    reads_all();
    can_write("w");
    can_write("w/run/sub");
    hidden_paths[0] = at("w/run");
    hidden_paths[1] = at("w/sock");
    compile_now();
    denies("w/run");
    denies("w/sock");
    has_no_op("w/run/sub");
    has_no_op("w/run/sub/.git");
    compile_reset();
    policy.profile.is_unrestricted = true;
    hidden_paths[0] = at("w/run");
    compile_now();
    assert_int_equal(plan->view, SP_VIEW_OPEN);
    denies("w/run");
}

/* ---- links ---- */

static void test_links_are_made_again_in_a_new_root_only(void **state)
{
    (void)state;
    make_dir("real/r/sub");
    make_link("real", "alias");
    make_link("alias/r", "second");
    can_read("second/sub");
    compile_now();
    assert_int_equal(plan->view, SP_VIEW_NEW);
    reads("real/r/sub");
    assert_string_equal(sp_plan_string(plan, sure_op(at("alias"), SP_OP_ALIAS)->target), "real");
    assert_string_equal(sp_plan_string(plan, sure_op(at("second"), SP_OP_ALIAS)->target),
                        "alias/r");
    assert_int_equal(plan->op_count, 3);
    reads_all();
    compile_now();
    assert_int_equal(plan->view, SP_VIEW_READ);
    assert_int_equal(ops_in_tree(), 0);
}

static void test_a_root_behind_a_link_is_mounted_where_it_is(void **state)
{
    (void)state;
    make_dir("real/.git");
    make_dir("real/sub/ro");
    make_link("real", "alias");
    reads_all();
    can_write("alias");
    can_read("alias/sub/ro");
    compile_now();
    writes("real");
    reads("real/.git");
    pins("real/sub");
    reads("real/sub/ro");
    has_no_op("alias");
}

/* ---- places of the cell's own ---- */

static void test_run_is_empty_and_resolvers_are_there_with_the_network(void **state)
{
    static const char *const resolvers[] = {"/run/systemd/resolve", "/run/NetworkManager"};
    struct stat st;

    (void)state;
    if (lstat("/run", &st) < 0 || !S_ISDIR(st.st_mode))
        return;
    reads_all();
    for (int has_network = 0; has_network < 2; has_network++) {
        bool is_reopened = false;

        compile_with(has_network);
        for (size_t i = 0; i < 2; i++) {
            const bool is_there = lstat(resolvers[i], &st) == 0 && S_ISDIR(st.st_mode);

            is_reopened = is_reopened || (is_there && has_network);
            assert_int_equal(op_at(resolvers[i]) != NULL, is_there && has_network);
            if (is_there && has_network)
                sure_op(resolvers[i], SP_OP_READ);
        }
        const struct sp_place_op *run = sure_op("/run", SP_OP_EMPTY);
        assert_int_equal(run->mode, 0555);
        assert_int_not_equal(run->ino, 0);
        assert_int_equal(run->is_reopened, is_reopened);
    }
}

static bool say_who_we_are(const char *map, unsigned id)
{
    auto_close int fd = open(map, O_WRONLY | O_CLOEXEC);

    return fd >= 0 && dprintf(fd, "%u %u 1", id, id) > 0;
}

/* Into namespaces where we may mount. */
static bool leave(void)
{
    const unsigned uid = geteuid();
    const unsigned gid = getegid();

    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
        return false;
    auto_close int fd = open("/proc/self/setgroups", O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write(fd, "deny", 4) == 4 && say_who_we_are("/proc/self/gid_map", gid) &&
           say_who_we_are("/proc/self/uid_map", uid);
}

/* With a /run of its own, where a host may keep its resolvers. */
static void compile_with_resolvers(void)
{
    const struct sp_place_op *o;

    CHILD_CHECK(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    CHILD_CHECK(mount("none", "/run", "tmpfs", 0, NULL) == 0);
    CHILD_CHECK(mkdir("/run/systemd", 0755) == 0 && mkdir("/run/systemd/resolve", 0755) == 0);
    CHILD_CHECK(mkdir("/run/NetworkManager", 0755) == 0 && mkdir("/run/nscd", 0755) == 0);
    for (int is_new = 0; is_new < 2; is_new++) {
        compile_reset();
        say_place(is_new ? SP_PLACE_MINIMAL : SP_PLACE_ROOT, SP_ACCESS_READ, NULL, false);
        CHILD_CHECK(survey_try() == 0 && compile_try(true) == 0);
        CHILD_CHECK((o = op_at("/run/systemd/resolve")) != NULL && o->op == SP_OP_READ);
        CHILD_CHECK((o = op_at("/run/NetworkManager")) != NULL && o->op == SP_OP_READ);
        CHILD_CHECK(op_at("/run/nscd") == NULL);
        o = op_at("/run");
        CHILD_CHECK(is_new ? o == NULL : o != NULL && o->is_reopened && o->mode == 0555);
        CHILD_CHECK(compile_try(false) == 0);
        CHILD_CHECK(op_at("/run/systemd/resolve") == NULL && op_at("/run/NetworkManager") == NULL);
        o = op_at("/run");
        CHILD_CHECK(is_new ? o == NULL : o != NULL && !o->is_reopened && o->mode == 0555);
    }
    compile_reset();
    _exit(0);
}

static void test_resolvers_are_shown_with_the_network_alone(void **state)
{
    (void)state;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (!leave())
            _exit(77);
        compile_with_resolvers();
    }
    const int status = reap(pid, DEADLINE_MS);
    if (status == 77)
        print_message("# not tested: no namespaces\n");
    else
        assert_int_equal(status, 0);
}

static void test_an_entry_about_run_is_heard(void **state)
{
    struct stat st;

    (void)state;
    if (lstat("/run", &st) < 0 || !S_ISDIR(st.st_mode))
        return;
    reads_all();
    say_place(SP_PLACE_PATH, SP_ACCESS_READ, "/run", false);
    compile_now();
    assert_null(op_at("/run"));
    compile_reset();
    reads_all();
    say_place(SP_PLACE_PATH, SP_ACCESS_DENY, "/run", false);
    compile_with(true);
    assert_int_equal(sure_op("/run", SP_OP_EMPTY)->mode, 0);
    assert_int_equal(plan->op_count, 1); /* no resolvers either */
}

static void test_proc_is_the_cells_own(void **state)
{
    (void)state;
    reads_all();
    say_place(SP_PLACE_PATH, SP_ACCESS_WRITE, "/proc", false);
    say_place(SP_PLACE_PATH, SP_ACCESS_WRITE, "/proc/sys", false);
    compile_now();
    assert_int_equal(plan_access("/proc/sys/kernel"), SP_ACCESS_READ);
    compile_reset();
    reads_all();
    say_place(SP_PLACE_PATH, SP_ACCESS_DENY, "/proc/sys", false);
    compile_refused(false, "cannot enforce sandbox deny-read path /proc/sys: commands get a /proc "
                           "of their own");
}

static void test_dev_is_the_cells_own_but_what_is_asked_for(void **state)
{
    struct stat st;

    (void)state;
    reads_all();
    say_place(SP_PLACE_PATH, SP_ACCESS_WRITE, "/dev", false);
    compile_now();
    assert_null(op_at("/dev"));
    compile_reset();
    reads_all();
    say_place(SP_PLACE_PATH, SP_ACCESS_DENY, "/dev", false);
    compile_refused(false,
                    "cannot enforce sandbox deny-read path /dev: commands get a /dev of their own");
    if (lstat("/dev/shm", &st) < 0 || !S_ISDIR(st.st_mode))
        return;
    compile_reset();
    reads_all();
    say_place(SP_PLACE_PATH, SP_ACCESS_WRITE, "/dev/shm", false);
    compile_now();
    sure_op("/dev/shm", SP_OP_WRITE);
}

static const struct CMUnitTest tests[] = {
    compile_test(test_what_patterns_match_is_denied),
    compile_test(test_hidden_paths_hide_whatever_the_policy_says),
    compile_test(test_links_are_made_again_in_a_new_root_only),
    compile_test(test_a_root_behind_a_link_is_mounted_where_it_is),
    compile_test(test_run_is_empty_and_resolvers_are_there_with_the_network),
    compile_test(test_resolvers_are_shown_with_the_network_alone),
    compile_test(test_an_entry_about_run_is_heard),
    compile_test(test_proc_is_the_cells_own),
    compile_test(test_dev_is_the_cells_own_but_what_is_asked_for),
};

TEST_MAIN(tests)

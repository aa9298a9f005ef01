/* SPDX-License-Identifier: Apache-2.0 */
/* Where the host has no cgroup of version 2 that we may write to, all but the first are skipped. */
#include <sys/prctl.h>
#include <sys/stat.h>

#include "os/cgroup.h"
#include "os/spawn.h"
#include "process_fixture.h"

static const char *puppet;
static struct sp_cgroup group = {.dir = -1};
static char path[sizeof group.path];
static int fds_before;

#define S(text) ((char *)(uintptr_t)(text))

static int begin(void **state)
{
    (void)state;
    fds_before = open_fds();
    char name[SP_CGROUP_NAME];

    assert_true(sp_cgroup_name(name));
    if (!sp_cgroup_new(name, &group))
        group.dir = -1;
    strcpy(path, group.path);
    return 0;
}

static int end(void **state)
{
    (void)state;
    sp_cgroup_free(&group);
    sp_cgroup_free(&group); /* none is fine */
    assert_int_equal(group.dir, -1);
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
    assert_no_children();
    if (path[0] != 0)
        assert_int_equal(access(path, F_OK), -1); /* nothing of it is left */
    return open_fds() == fds_before ? 0 : -1;
}

static void needs_cgroups(void)
{
    if (group.dir >= 0)
        return;
    print_message("# skipped: no cgroup of version 2 to write to\n");
    skip();
}

static struct sp_spawn born_in(int leaf, const char *what, const char *n, const char *k,
                               int *ret_out)
{
    static char *const no_env[] = {NULL};
    char *const argv[] = {S("puppet"), S(what), S(n), S(k), NULL};
    char said[64];
    int fd[2];

    assert_int_equal(pipe2(fd, O_CLOEXEC), 0);
    struct sp_spawn s = {
        .stdio = {-1, fd[1], -1}, .cgroup = leaf, .file = puppet, .argv = argv, .envp = no_env};
    if (sp_spawn(&s) < 0)
        fail_msg("%s: %s", sp_step_name(s.failed_step), strerror(s.failed_errno));
    (void)close(fd[1]);
    assert_true(read_until(fd[0], said, sizeof said, "ready\n", DEADLINE_MS));
    *ret_out = fd[0];
    return s;
}

static void becomes_empty(int leaf)
{
    const uint64_t until = test_now_ms() + DEADLINE_MS;

    while (!sp_cgroup_is_empty(leaf, NULL)) {
        assert_true(test_now_ms() < until);
        while (waitpid(-1, NULL, WNOHANG) > 0) {
        }
        (void)poll(NULL, 0, 1); /* the kernel tells of this only where inotify is watched */
    }
}

static void test_a_host_says_yes_or_no_and_leaves_nothing_behind(void **state)
{
    (void)state;
    if (group.dir >= 0) {
        char name[64];

        (void)snprintf(name, sizeof name, "/sallyport-%d-", (int)getpid());
        assert_non_null(strstr(path, name));
        assert_int_equal(access(path, F_OK), 0);
    } else {
        assert_int_equal(path[0], 0);
    }
}

static void test_names_are_never_the_same_and_never_a_path(void **state)
{
    static const char *const bad[] = {"", "/", "a/b", "../x", "/x"};
    struct sp_cgroup none = {.dir = -1};
    char a[SP_CGROUP_NAME];
    char b[SP_CGROUP_NAME];

    (void)state;
    assert_true(sp_cgroup_name(a));
    assert_true(sp_cgroup_name(b));
    assert_string_not_equal(a, b);
    assert_null(strchr(a, '/'));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(sp_cgroup_new(bad[i], &none));
        sp_cgroup_remove(bad[i]); /* touches nothing */
    }
    assert_int_equal(none.dir, -1);
}

/* What a command made inside of its leaf goes with it. */
static void test_groups_inside_of_a_leaf_go_with_it(void **state)
{
    (void)state;
    needs_cgroups();
    for (int round = 0; round < 2; round++) {
        const int leaf = sp_cgroup_make_leaf(&group, 9);

        assert_true(leaf >= 0);
        assert_int_equal(mkdirat(leaf, "nested", 0755), 0);
        assert_int_equal(mkdirat(leaf, "nested/deeper", 0755), 0);
        (void)close(leaf);
        if (round == 0)
            sp_cgroup_remove_leaf(&group, 9); /* the second goes with the directory */
    }
}

static void test_all_of_a_leaf_dies_at_once(void **state)
{
    static const char *const trees[][3] = {{"pause", NULL, NULL},
                                           {"daemons", "20", NULL},
                                           {"hop", "3", "3000"},
                                           {"bomb", "1500", NULL},
                                           {"wide", "300", NULL}};

    (void)state;
    needs_cgroups();
    for (uint32_t i = 0; i < sizeof trees / sizeof trees[0]; i++) {
        const int leaf = sp_cgroup_make_leaf(&group, i + 7);
        int out;

        assert_true(leaf >= 0);
        assert_true(sp_cgroup_is_empty(leaf, NULL));
        struct sp_spawn s = born_in(leaf, trees[i][0], trees[i][1], trees[i][2], &out);
        assert_false(sp_cgroup_is_empty(leaf, NULL));
        sp_cgroup_kill(leaf);
        assert_true(read_to_end(out, NULL, 0, NULL, DEADLINE_MS));
        (void)close(out);
        assert_int_equal(reap(s.pid, DEADLINE_MS), 128 + SIGKILL);
        (void)close(s.pidfd);
        becomes_empty(leaf);
        (void)close(leaf);
        sp_cgroup_remove_leaf(&group, i + 7);
    }
}

static void test_leaves_are_apart(void **state)
{
    struct sp_spawn s[2];
    int leaf[2];
    int out[2];

    (void)state;
    needs_cgroups();
    for (uint32_t i = 0; i < 2; i++) {
        leaf[i] = sp_cgroup_make_leaf(&group, i);
        s[i] = born_in(leaf[i], "daemons", "3", NULL, &out[i]);
    }
    sp_cgroup_kill(leaf[0]);
    assert_true(read_to_end(out[0], NULL, 0, NULL, DEADLINE_MS));
    assert_false(wait_fd(out[1], POLLIN, 0));
    assert_false(sp_cgroup_is_empty(leaf[1], NULL));
    sp_cgroup_kill(leaf[1]);
    for (int i = 0; i < 2; i++) {
        assert_true(read_to_end(out[i], NULL, 0, NULL, DEADLINE_MS));
        assert_int_equal(reap(s[i].pid, DEADLINE_MS), 128 + SIGKILL);
        (void)close(s[i].pidfd);
        (void)close(out[i]);
        (void)close(leaf[i]);
    }
}

static void test_freeing_ends_whoever_is_left(void **state)
{
    int out;

    (void)state;
    needs_cgroups();
    const int leaf = sp_cgroup_make_leaf(&group, 3);
    struct sp_spawn s = born_in(leaf, "daemons", "10", NULL, &out);
    (void)close(leaf);
    (void)close(s.pidfd);
    sp_cgroup_free(&group); /* it reaps as it waits */
    assert_true(read_to_end(out, NULL, 0, NULL, DEADLINE_MS));
    (void)close(out);
}

/* What a process of ours that was killed could not remove. */
static void test_somebody_elses_leavings_are_cleaned_up(void **state)
{
    char theirs[sizeof path];
    char said[512] = "";
    char name[SP_CGROUP_NAME];
    int fd[2];

    (void)state;
    needs_cgroups();
    assert_true(sp_cgroup_name(name));
    assert_int_equal(pipe2(fd, O_CLOEXEC), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct sp_cgroup own = {.dir = -1};

        CHILD_CHECK(sp_cgroup_new(name, &own));
        CHILD_CHECK(sp_cgroup_make_leaf(&own, 0) >= 0 && sp_cgroup_make_leaf(&own, 1) >= 0);
        CHILD_CHECK(dprintf(fd[1], "%s\n", own.path) > 0);
        _exit(0); /* without a word */
    }
    (void)close(fd[1]);
    assert_true(read_until(fd[0], said, sizeof said, "\n", DEADLINE_MS));
    (void)close(fd[0]);
    assert_int_equal(reap(pid, DEADLINE_MS), 0);
    said[strcspn(said, "\n")] = 0;
    strcpy(theirs, said);
    assert_int_equal(access(theirs, F_OK), 0);
    sp_cgroup_remove(theirs);
    assert_int_equal(access(theirs, F_OK), -1);
    sp_cgroup_remove(theirs); /* nothing there is fine */
}

static void test_a_name_is_used_once(void **state)
{
    (void)state;
    needs_cgroups();
    const int a = sp_cgroup_make_leaf(&group, 5);

    assert_true(a >= 0);
    assert_int_equal(sp_cgroup_make_leaf(&group, 5), -1);
    assert_int_equal(errno, EEXIST);
    (void)close(a);
    sp_cgroup_remove_leaf(&group, 5);
    sp_cgroup_remove_leaf(&group, 5);
}

static void test_no_leaf_is_never_empty_and_kills_nobody(void **state)
{
    int fd[2];

    (void)state;
    assert_int_equal(pipe2(fd, O_CLOEXEC), 0);
    assert_false(sp_cgroup_is_empty(-1, NULL));
    assert_false(sp_cgroup_is_empty(fd[0], NULL));
    sp_cgroup_kill(-1);
    sp_cgroup_kill(fd[0]);
    (void)close(fd[0]);
    (void)close(fd[1]);
}

#define cgroup_test(f) cmocka_unit_test_setup_teardown(f, begin, end)

static const struct CMUnitTest tests[] = {
    cgroup_test(test_a_host_says_yes_or_no_and_leaves_nothing_behind),
    cgroup_test(test_names_are_never_the_same_and_never_a_path),
    cgroup_test(test_groups_inside_of_a_leaf_go_with_it),
    cgroup_test(test_all_of_a_leaf_dies_at_once),
    cgroup_test(test_leaves_are_apart),
    cgroup_test(test_freeing_ends_whoever_is_left),
    cgroup_test(test_somebody_elses_leavings_are_cleaned_up),
    cgroup_test(test_a_name_is_used_once),
    cgroup_test(test_no_leaf_is_never_empty_and_kills_nobody),
};

int main(void)
{
    struct sp_err e = {0};

    puppet = getenv("PUPPET");
    if (puppet == NULL || sp_spawn_reserve(&e) < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        return 77;
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trees of a puppet that does its best to get away. Every process of a tree holds the write end of
 * one pipe: when it reads as ended, none is left. We are a subreaper, so what a test fails to end
 * comes to us and is ended after it.
 */
#include <sys/prctl.h>

#include "os/spawn.h"
#include "os/tree.h"
#include "process_fixture.h"

static const char *puppet;
static int fds_before;

struct tree {
    pid_t root;
    int pidfd;
    int out; /* reads as ended once all are gone */
};

#define S(text) ((char *)(uintptr_t)(text))

static struct tree plant(const char *what, const char *n, const char *k)
{
    static char *const no_env[] = {NULL};
    char *const argv[] = {S("puppet"), S(what), S(n), S(k), NULL};
    char said[64];
    int fd[2];

    assert_int_equal(pipe2(fd, O_CLOEXEC), 0);
    struct sp_spawn s = {.stdio = {-1, fd[1], -1},
                         .cgroup = -1,
                         .file = puppet,
                         .argv = argv,
                         .envp = no_env,
                         .is_subreaper = true};
    assert_int_equal(sp_spawn(&s), 0);
    (void)close(fd[1]);
    assert_true(read_until(fd[0], said, sizeof said, "ready\n", DEADLINE_MS));
    return (struct tree){.root = s.pid, .pidfd = s.pidfd, .out = fd[0]};
}

/* All of it is gone, and reaped by us once its root is. */
static void is_gone(struct tree *t)
{
    const bool has_ended = read_to_end(t->out, NULL, 0, NULL, DEADLINE_MS);

    (void)close(t->out);
    (void)close(t->pidfd);
    if (!has_ended)
        fail_msg("%s", "somebody got away");
    while (waitpid(-1, NULL, 0) > 0) {
    }
    assert_no_children();
}

static int begin(void **state)
{
    (void)state;
    fds_before = open_fds();
    return 0;
}

static int end(void **state)
{
    (void)state;
    (void)bury_children(0); /* who got away was told of */
    return open_fds() == fds_before ? 0 : -1;
}

/* ---- who is there ---- */

static int by_number(const void *a, const void *b)
{
    return *(const pid_t *)a - *(const pid_t *)b;
}

/* The children by a look at all processes, as the slow way would. */
static int children_in_proc(pid_t parent, pid_t *pids)
{
    DIR *proc = opendir("/proc");
    int n = 0;

    assert_non_null(proc);
    for (const struct dirent *d; (d = readdir(proc)) != NULL;) {
        char path[300];
        char text[512] = "";
        int ppid = -1;

        (void)snprintf(path, sizeof path, "/proc/%s/stat", d->d_name);
        FILE *f = d->d_name[0] >= '0' && d->d_name[0] <= '9' ? fopen(path, "re") : NULL;
        if (f == NULL)
            continue;
        if (fgets(text, sizeof text, f) != NULL && strrchr(text, ')') != NULL)
            (void)sscanf(strrchr(text, ')'), ") %*c %d", &ppid);
        (void)fclose(f);
        if (ppid == parent)
            pids[n++] = atoi(d->d_name);
    }
    (void)closedir(proc);
    return n;
}

static void children_are_real(const char *count, int want)
{
    static pid_t told[4096];
    static pid_t real[4096];
    struct tree t = plant("wide", count, NULL);
    const int n = sp_tree_children(t.root, told, 4096);

    assert_int_equal(children_in_proc(t.root, real), want);
    assert_int_equal(n, want);
    qsort(told, (size_t)n, sizeof told[0], by_number);
    qsort(real, (size_t)n, sizeof real[0], by_number);
    assert_memory_equal(told, real, (size_t)n * sizeof told[0]);
    if (want > 2) {
        /* A list that is too small is filled and never overrun; the count is the true one. */
        pid_t few[3] = {0, 0, -5};

        assert_int_equal(sp_tree_children(t.root, few, 2), want);
        assert_true(few[0] > 0 && few[1] > 0);
        assert_int_equal(few[2], -5);
        assert_int_equal(sp_tree_children(t.root, NULL, 0), want);
    }
    sp_tree_kill(t.root, true);
    is_gone(&t);
}

static void test_children_are_the_real_ones(void **state)
{
    (void)state;
    children_are_real("0", 0);
    children_are_real("1", 1);
    children_are_real("5", 5);
    children_are_real("255", 255);
    children_are_real("256", 256);
    children_are_real("257", 257);
    children_are_real("1500", 1500); /* several reads of the kernel's list */
}

static void test_nobody_has_no_children(void **state)
{
    pid_t pids[4];

    (void)state;
    const pid_t gone = fork();
    assert_true(gone >= 0);
    if (gone == 0)
        _exit(0);
    assert_int_equal(reap(gone, DEADLINE_MS), 0);
    assert_int_equal(sp_tree_children(gone, pids, 4), 0);
    sp_tree_kill(gone, false); /* and is harmless */
}

/* ---- who goes ---- */

static void dies(const char *what, const char *n, const char *k)
{
    struct tree t = plant(what, n, k);

    sp_tree_kill(t.root, true);
    is_gone(&t);
}

static void test_a_single_process_dies(void **state)
{
    (void)state;
    dies("pause", NULL, NULL);
}

static void test_daemons_in_sessions_of_their_own_die(void **state)
{
    (void)state;
    dies("daemons", "1", NULL);
    dies("daemons", "20", NULL);
}

static void test_a_deep_chain_dies(void **state)
{
    (void)state;
    dies("deep", "1", NULL);
    dies("deep", "200", NULL);
    dies("deep", "1050", NULL); /* deeper than one look goes */
}

static void test_more_children_than_one_list_holds_die(void **state)
{
    (void)state;
    dies("wide", "700", NULL);
}

static void test_a_bomb_loses(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        dies("bomb", "2000", NULL);
}

/* Each hop is a new child, adopted by the root, and an old one dead: the tail of a long list. */
static void test_who_hops_from_child_to_child_is_caught(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++)
        dies("hop", "2", "4000");
}

static void test_who_hides_behind_dead_children_is_caught(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++)
        dies("zombies", "400", "4000");
}

static void test_only_what_is_below_goes_if_the_root_is_to_stay(void **state)
{
    struct tree t = plant("daemons", "5", NULL);
    pid_t pids[64];
    char state_line[512];
    char path[64];

    (void)state;
    sp_tree_kill(t.root, false);
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)t.root);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    assert_non_null(fgets(state_line, sizeof state_line, f));
    (void)fclose(f);
    const char alive = strrchr(state_line, ')')[2];
    assert_true(alive == 'S' || alive == 'R'); /* neither stopped nor dead */
    const int n = sp_tree_children(t.root, pids, 64);
    for (int i = 0; i < n; i++) { /* the dead ones are the root's to reap */
        siginfo_t info;

        (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pids[i]);
        const uint64_t until = test_now_ms() + DEADLINE_MS;
        for (;;) {
            f = fopen(path, "re");
            assert_non_null(f);
            assert_non_null(fgets(state_line, sizeof state_line, f));
            (void)fclose(f);
            if (strrchr(state_line, ')')[2] == 'Z')
                break;
            assert_true(test_now_ms() < until);
            (void)waitid(P_PID, (id_t)pids[i], &info, WEXITED | WNOHANG | WNOWAIT); /* not ours */
        }
    }
    sp_tree_kill(t.root, true);
    is_gone(&t);
}

static void test_a_stopped_tree_dies_as_well(void **state)
{
    struct tree t = plant("daemons", "5", NULL);
    pid_t pids[64];

    (void)state;
    const int n = sp_tree_children(t.root, pids, 64);
    for (int i = 0; i < n; i++)
        assert_int_equal(kill(pids[i], SIGSTOP), 0);
    assert_int_equal(kill(t.root, SIGSTOP), 0);
    sp_tree_kill(t.root, true);
    is_gone(&t);
}

static void test_other_trees_are_left_alone(void **state)
{
    struct tree a = plant("daemons", "3", NULL);
    struct tree b = plant("pause", NULL, NULL);

    (void)state;
    sp_tree_kill(a.root, true);
    assert_true(read_to_end(a.out, NULL, 0, NULL, DEADLINE_MS));
    assert_false(wait_fd(b.pidfd, POLLIN, 0));
    assert_false(wait_fd(b.out, POLLIN, 0));
    (void)close(a.out);
    (void)close(a.pidfd);
    sp_tree_kill(b.root, true);
    is_gone(&b);
}

#define tree_test(f) cmocka_unit_test_setup_teardown(f, begin, end)

static const struct CMUnitTest tests[] = {
    tree_test(test_children_are_the_real_ones),
    tree_test(test_nobody_has_no_children),
    tree_test(test_a_single_process_dies),
    tree_test(test_daemons_in_sessions_of_their_own_die),
    tree_test(test_a_deep_chain_dies),
    tree_test(test_more_children_than_one_list_holds_die),
    tree_test(test_a_bomb_loses),
    tree_test(test_who_hops_from_child_to_child_is_caught),
    tree_test(test_who_hides_behind_dead_children_is_caught),
    tree_test(test_only_what_is_below_goes_if_the_root_is_to_stay),
    tree_test(test_a_stopped_tree_dies_as_well),
    tree_test(test_other_trees_are_left_alone),
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

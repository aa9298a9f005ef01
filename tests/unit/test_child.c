/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "base/child.h"
#include "test.h"

static int run(const char *script, const int stdio[3])
{
    const char *const argv[] = {"sh", "-c", script, NULL};
    struct sp_child child;
    int status = -2;

    assert_int_equal(sp_child_start(&child, "sh", argv, environ, stdio), 0);
    assert_true(sp_child_reap(&child, true, &status));
    assert_int_equal(child.pidfd, -1);
    return status;
}

static void test_a_child_starts_with_default_signals_and_leads_its_group(void **state)
{
    sigset_t some;
    sigset_t before;
    char text[8] = {0};
    int ends[2];

    (void)state;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    (void)sigemptyset(&some);
    (void)sigaddset(&some, SIGTERM);
    (void)signal(SIGHUP, SIG_IGN);
    (void)sigprocmask(SIG_BLOCK, &some, &before);
    /* Only builtins: a shell that waits for a command blocks signals. glibc ignores its own two,
     * 32 and 33, in each child. */
    assert_int_equal(run("while read -r name mask; do case $name in SigBlk: | SigIgn:) "
                         "echo $((0x$mask & ~0x180000000));; esac; done </proc/$$/status",
                         (int[]){SP_CHILD_NULL, ends[1], SP_CHILD_OURS}),
                     0);
    assert_int_equal(read(ends[0], text, sizeof text - 1), 4);
    assert_string_equal(text, "0\n0\n");
    assert_int_equal(run("read -r _ _ _ _ group _ </proc/$$/stat; [ $group = $$ ]",
                         (int[]){SP_CHILD_NULL, SP_CHILD_OURS, SP_CHILD_OURS}),
                     0);
    (void)close(ends[0]);
    (void)close(ends[1]);
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    (void)signal(SIGHUP, SIG_DFL);
}

/* The pipe has the numbers 0 and 1, in the order that a plain dup2 of each would spoil. */
static void test_descriptors_below_3_may_be_given_in_any_order(void **state)
{
    const int in = fcntl(0, F_DUPFD_CLOEXEC, 3);
    const int out = fcntl(1, F_DUPFD_CLOEXEC, 3);
    char text[8] = {0};
    int ends[2];

    (void)state;
    (void)close(0);
    (void)close(1);
    const int made = pipe2(ends, O_CLOEXEC);
    const int status = run("echo ours; [ ! -e /proc/$$/fd/3 ]", (int[]){0, 1, SP_CHILD_NULL});
    const ssize_t n = read(0, text, sizeof text - 1);
    (void)dup2(in, 0);
    (void)dup2(out, 1);
    (void)close(in);
    (void)close(out);
    assert_int_equal(made, 0);
    assert_int_equal(ends[1], 1);
    assert_int_equal(status, 0);
    assert_int_equal(n, 5);
    assert_string_equal(text, "ours\n");
}

static void test_a_child_that_runs_is_not_reaped_and_a_signal_ends_its_group(void **state)
{
    const char *const argv[] = {"sleep", "100", NULL};
    const int null[3] = {SP_CHILD_NULL, SP_CHILD_NULL, SP_CHILD_NULL};
    struct sp_child child;
    int status = 0;

    (void)state;
    assert_int_equal(sp_child_start(&child, "sleep", argv, environ, null), 0);
    assert_false(sp_child_reap(&child, false, &status));
    sp_child_signal(&child, SIGTERM);
    assert_true(sp_child_reap(&child, true, &status));
    assert_int_equal(status, -1);
    assert_true(sp_child_reap(&child, true, &status));
    sp_child_signal(&child, SIGKILL); /* reaped: signals no one */
}

static void test_a_program_that_is_not_there_is_an_errno(void **state)
{
    const char *const argv[] = {"none", NULL};
    const int null[3] = {SP_CHILD_NULL, SP_CHILD_NULL, SP_CHILD_NULL};
    struct sp_child child;

    (void)state;
    assert_int_equal(sp_child_start(&child, "/no/such/program", argv, environ, null), ENOENT);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_a_child_starts_with_default_signals_and_leads_its_group),
    cmocka_unit_test(test_descriptors_below_3_may_be_given_in_any_order),
    cmocka_unit_test(test_a_child_that_runs_is_not_reaped_and_a_signal_ends_its_group),
    cmocka_unit_test(test_a_program_that_is_not_there_is_an_errno),
};

TEST_MAIN(tests)

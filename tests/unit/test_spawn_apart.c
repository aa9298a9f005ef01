/* SPDX-License-Identifier: Apache-2.0 */
/* Children of a program that reserves no descriptors. Linked with --wrap: any call may fail. */
#include "os/fd.h"
#include "os/spawn.h"
#include "process_fixture.h"

#define FAULT EUCLEAN /* nothing here fails with this by itself */

static int calls_left;
static bool has_fired;

static bool fires(void)
{
    if (calls_left == 0 || --calls_left != 0)
        return false;
    has_fired = true;
    errno = FAULT;
    return true;
}

int __real_dup2(int from, int to);
int __wrap_dup2(int from, int to);
int __wrap_dup2(int from, int to)
{
    return fires() ? -1 : __real_dup2(from, to);
}

pid_t __real_setsid(void);
pid_t __wrap_setsid(void);
pid_t __wrap_setsid(void)
{
    return fires() ? -1 : __real_setsid();
}

int __real_close_range(unsigned first, unsigned last, int flags);
int __wrap_close_range(unsigned first, unsigned last, int flags);
int __wrap_close_range(unsigned first, unsigned last, int flags)
{
    return fires() ? -1 : __real_close_range(first, last, flags);
}

/* ---- a shell, and what it says ---- */

static struct sp_spawn shell(const char *script, char *argv[4], int out)
{
    static char *const envp[] = {(char *)(uintptr_t) "PATH=/usr/bin:/bin", NULL};

    argv[0] = (char *)(uintptr_t) "sh";
    argv[1] = (char *)(uintptr_t) "-c";
    argv[2] = (char *)(uintptr_t)script;
    argv[3] = NULL;
    return (struct sp_spawn){.stdio = {-1, out, out},
                             .is_apart = true,
                             .cgroup = -1,
                             .file = "/bin/sh",
                             .argv = argv,
                             .envp = envp};
}

static void assert_says(const char *script, const char *text)
{
    char *argv[4];
    char said[512];
    int ends[2];

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    struct sp_spawn s = shell(script, argv, ends[1]);
    assert_int_equal(sp_spawn(&s), 0);
    (void)close(ends[1]);
    assert_true(read_to_end(ends[0], said, sizeof said, NULL, DEADLINE_MS));
    (void)close(ends[0]);
    (void)close(s.pidfd);
    assert_int_equal(reap(s.pid, DEADLINE_MS), 0);
    assert_string_equal(said, text);
}

static void test_it_has_three_descriptors_and_a_session_of_its_own(void **state)
{
    int more[20];

    (void)state;
    for (int i = 0; i < 20; i++)
        more[i] = open("/dev/null", O_RDONLY); /* not even closed on exec */
    /* 3 is the directory itself. */
    assert_says("for f in /proc/$$/fd/*; do printf '%s ' ${f##*/}; done", "0 1 2 3 ");
    assert_says("set -- $(cat /proc/$$/stat); test $6 = $$ && echo own", "own\n");
    for (int i = 0; i < 20; i++)
        assert_int_equal(close(more[i]), 0); /* ours are as they were */
}

static void test_stdio_may_have_each_others_numbers(void **state)
{
    char said[64];
    int in[2];
    int out[2];
    int err[2];
    char *argv[4];
    int low[3];

    (void)state;
    assert_int_equal(pipe2(in, O_CLOEXEC) | pipe2(out, O_CLOEXEC) | pipe2(err, O_CLOEXEC), 0);
    struct sp_spawn s = shell("read x; echo out $x; echo err >&2", argv, -1);
    /* What becomes 0 is 2, what becomes 1 is 0, what becomes 2 is 1: none may be lost on the way.
     */
    for (int i = 0; i < 3; i++)
        low[i] = fcntl(i, F_DUPFD_CLOEXEC, 100);
    (void)fflush(stdout);
    (void)__real_dup2(in[0], 2);
    (void)__real_dup2(out[1], 0);
    (void)__real_dup2(err[1], 1);
    s.stdio[0] = 2;
    s.stdio[1] = 0;
    s.stdio[2] = 1;
    const int r = sp_spawn(&s);
    for (int i = 0; i < 3; i++) {
        (void)__real_dup2(low[i], i);
        (void)close(low[i]);
    }
    assert_int_equal(r, 0);
    (void)close(in[0]);
    (void)close(out[1]);
    (void)close(err[1]);
    assert_int_equal(write(in[1], "word\n", 5), 5);
    (void)close(in[1]);
    assert_true(read_to_end(out[0], said, sizeof said, NULL, DEADLINE_MS));
    assert_string_equal(said, "out word\n");
    assert_true(read_to_end(err[0], said, sizeof said, NULL, DEADLINE_MS));
    assert_string_equal(said, "err\n");
    (void)close(out[0]);
    (void)close(err[0]);
    (void)close(s.pidfd);
    assert_int_equal(reap(s.pid, DEADLINE_MS), 0);
}

static volatile sig_atomic_t handled;

static void handle(int signal)
{
    (void)signal;
    handled++;
}

/* It shares our memory until it is another program. */
static void test_no_handler_of_ours_runs_in_it(void **state)
{
    const struct sigaction count = {.sa_handler = handle};
    char *argv[4];

    (void)state;
    handled = 0;
    assert_int_equal(sigaction(SIGTERM, &count, NULL), 0);
    for (int i = 0; i < 50; i++) {
        struct sp_spawn s = shell("exit 0", argv, -1);

        assert_int_equal(sp_spawn(&s), 0);
        (void)kill(s.pid, SIGTERM); /* blocked there, as everything is */
        (void)close(s.pidfd);
        assert_int_equal(reap(s.pid, DEADLINE_MS), 0);
    }
    assert_int_equal(handled, 0);
    (void)signal(SIGTERM, SIG_DFL);
}

static void test_each_failing_step_is_named_with_its_errno(void **state)
{
    char *argv[4];
    struct sp_spawn s = shell("exit 0", argv, -1);

    (void)state;
    s.cwd = "/nowhere";
    assert_int_equal(sp_spawn(&s), -SP_E_SYSTEM);
    assert_int_equal(s.failed_step, SP_STEP_CWD);
    assert_int_equal(s.failed_errno, ENOENT);
    s = shell("exit 0", argv, -1);
    s.file = "/nowhere/sh";
    assert_int_equal(sp_spawn(&s), -SP_E_SYSTEM);
    assert_int_equal(s.failed_step, SP_STEP_EXEC);
    assert_int_equal(s.failed_errno, ENOENT);
    s = shell("exit 0", argv, 9999);
    assert_int_equal(sp_spawn(&s), -SP_E_SYSTEM);
    assert_int_equal(s.failed_step, SP_STEP_STDIO);
    assert_int_equal(s.failed_errno, EBADF);
    assert_int_equal(s.pidfd, -1);
}

static void test_every_fault_is_told_and_leaves_nothing(void **state)
{
    const int before = open_fds();
    char *argv[4];
    int n = 1;

    (void)state;
    for (;; n++) {
        struct sp_spawn s = shell("exit 0", argv, -1);

        s.cwd = "/";
        calls_left = n;
        has_fired = false;
        const int r = sp_spawn(&s);
        calls_left = 0;
        if (!has_fired) {
            assert_int_equal(r, 0);
            (void)close(s.pidfd);
            assert_int_equal(reap(s.pid, DEADLINE_MS), 0);
            break;
        }
        assert_int_equal(r, -SP_E_SYSTEM);
        assert_int_equal(s.failed_errno, FAULT);
        assert_int_not_equal(s.failed_step, SP_STEP_NONE);
        assert_int_equal(open_fds(), before);
        assert_no_children();
    }
    assert_true(n > 5);
}

static void test_descriptors_are_lifted_above_stdio(void **state)
{
    const int saved = fcntl(0, F_DUPFD_CLOEXEC, 100);

    (void)state;
    (void)close(0);
    const int low = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int lifted = sp_fd_lift(low);
    const bool is_free = fcntl(0, F_GETFD) < 0;
    (void)__real_dup2(saved, 0);
    (void)close(saved);
    assert_int_equal(low, 0);
    assert_true(lifted > 2 && is_free);
    assert_int_equal(fcntl(lifted, F_GETFD), FD_CLOEXEC);
    assert_int_equal(sp_fd_lift(lifted), lifted);
    assert_int_equal(sp_fd_lift(-1), -1);
    (void)close(lifted);
}

static int fds_before;

static int begin(void **state)
{
    (void)state;
    fds_before = open_fds();
    return 0;
}

static int leaves_nothing(void **state)
{
    (void)state;
    assert_no_children();
    return open_fds() == fds_before ? 0 : -1;
}

#define apart_test(f) cmocka_unit_test_setup_teardown(f, begin, leaves_nothing)

static const struct CMUnitTest tests[] = {
    apart_test(test_it_has_three_descriptors_and_a_session_of_its_own),
    apart_test(test_stdio_may_have_each_others_numbers),
    apart_test(test_no_handler_of_ours_runs_in_it),
    apart_test(test_each_failing_step_is_named_with_its_errno),
    apart_test(test_every_fault_is_told_and_leaves_nothing),
    apart_test(test_descriptors_are_lifted_above_stdio),
};

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)fflush(NULL);
    /* Not exit: children that failed in our memory may have left the sanitizer's locks taken. */
    _exit(failed);
}

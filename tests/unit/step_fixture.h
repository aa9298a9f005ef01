/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_fixture: what is left of a function that is killed between two instructions.
 */
#ifndef SP_STEP_FIXTURE_H
#define SP_STEP_FIXTURE_H

#include <sys/ptrace.h>

#include "process_fixture.h"

/* Runs fn in a child, which is killed after so many instructions. true: it ended before. -1:
 * tracing is not permitted. */
static inline int step_until(unsigned instructions, void (*fn)(void *), void *arg)
{
    int status;
    const pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
            _exit(98);
        (void)raise(SIGSTOP);
        fn(arg);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status))
        return -1;
    (void)ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)PTRACE_O_EXITKILL);
    for (unsigned i = 0; i < instructions; i++) {
        assert_int_equal(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (WIFEXITED(status)) {
            assert_int_equal(WEXITSTATUS(status), 0);
            return 1;
        }
        assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
    }
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return 0;
}

/*
 * make() prepares; fn(arg) is killed after 1, 2, ... instructions; check() looks at what is left.
 * About every 11th instruction, in the long form every third: a run takes as long as the number of
 * its instructions. Skips the test if tracing is not permitted.
 */
static inline void step_through(void *(*make)(void), void (*fn)(void *),
                                void (*check)(void *arg, bool is_done))
{
    const bool is_long = getenv("SALLYPORT_LONG") != NULL;
    int is_done = 0;
    void *first = make();

    fn(first); /* the dynamic linker has its work done before */
    check(first, true);
    for (unsigned n = 0; is_done == 0; n += n < 8 ? 1 : is_long ? 3 : 11 + n / 40) {
        void *arg = make();

        is_done = step_until(n, fn, arg);
        check(arg, is_done > 0);
    }
    if (is_done < 0) {
        print_message("tracing is not permitted here\n");
        skip();
    }
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * killat PID K: kills a process with SIGKILL at the K-th of its stops at the entry and the exit of
 * system calls. `sched_yield` and the waits of epoll do not count: how often they are called
 * depends on the machine.
 *
 * killat --next PID K: the same with the next child of PID, which has to be made by vfork; counted
 * from its first system call on.
 *
 * Prints "ready" when it counts, or waits for the child. At SIGTERM it lets go. Then prints
 * "killed: CALL entry" (or exit), "ended" (the process ended by itself), or "left: N stops". Exit
 * status 77: tracing is not permitted.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define FOLLOW \
    (PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE)

static volatile sig_atomic_t must_stop;

static void on_term(int signal)
{
    (void)signal;
    must_stop = 1;
}

static bool counts(long call)
{
    return call != SYS_sched_yield && call != SYS_epoll_pwait && call != SYS_epoll_pwait2
#ifdef SYS_epoll_wait
           && call != SYS_epoll_wait
#endif
        ;
}

/* The system call of a stop. false: the process is gone. */
static bool look(pid_t pid, long *ret_call, bool *ret_is_entry)
{
    struct __ptrace_syscall_info info = {0};

    if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, (void *)sizeof info, &info) < 0)
        return false;
    *ret_is_entry = info.op == PTRACE_SYSCALL_INFO_ENTRY;
    if (*ret_is_entry)
        *ret_call = (long)info.entry.nr; /* at the exit it is that of the entry */
    return true;
}

/* Lets a traced process that runs go on untraced. */
static void let_go(pid_t pid)
{
    int status;

    if (pid <= 0 || ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) < 0)
        return;
    while (waitpid(pid, &status, __WALL) == pid && WIFSTOPPED(status)) {
        const int signal =
            status >> 16 == 0 && WSTOPSIG(status) != (SIGTRAP | 0x80) ? WSTOPSIG(status) : 0;

        if (ptrace(PTRACE_DETACH, pid, NULL, (void *)(long)signal) == 0)
            return;
    }
}

/* Goes on after a stop that is none of a system call. */
static void go_on(pid_t pid, int status, bool is_target)
{
    const int event = status >> 16;
    const int signal = event == 0 && WSTOPSIG(status) != SIGTRAP ? WSTOPSIG(status) : 0;

    if (event == PTRACE_EVENT_STOP && WSTOPSIG(status) != SIGTRAP) /* stopped by a signal */
        (void)ptrace(PTRACE_LISTEN, pid, NULL, NULL);
    else
        (void)ptrace(is_target ? PTRACE_SYSCALL : PTRACE_CONT, pid, NULL, (void *)(long)signal);
}

int main(int argc, char **argv)
{
    const bool is_next = argc == 4 && strcmp(argv[1], "--next") == 0;
    const struct sigaction act = {.sa_handler = on_term};

    if (argc != 3 + is_next)
        return 2;
    const pid_t first = (pid_t)atol(argv[1 + is_next]);
    const unsigned long k = strtoul(argv[2 + is_next], NULL, 10);
    pid_t target = is_next ? 0 : first;
    unsigned long stops = 0;
    long call = -1;

    (void)sigaction(SIGTERM, &act, NULL);
    if (ptrace(PTRACE_SEIZE, first, NULL,
               (void *)(long)(is_next ? FOLLOW : PTRACE_O_TRACESYSGOOD)) < 0) {
        (void)fprintf(stderr, "killat: %s\n", strerror(errno));
        return errno == EPERM ? 77 : 1;
    }
    if (!is_next)
        (void)ptrace(PTRACE_INTERRUPT, first, NULL, NULL);
    (void)puts("ready");
    (void)fflush(stdout);
    while (!must_stop) {
        int status;
        bool is_entry;
        const pid_t pid = waitpid(-1, &status, __WALL);

        if (pid < 0 && errno == EINTR)
            continue;
        if (pid < 0 || !WIFSTOPPED(status)) {
            if (pid >= 0 && pid != target && pid != first)
                continue;
            (void)puts("ended");
            if (target != first)
                let_go(first);
            return 0;
        }
        if (is_next && target == 0 && pid != first)
            target = pid;
        if (pid != target || WSTOPSIG(status) != (SIGTRAP | 0x80)) {
            go_on(pid, status, pid == target);
            continue;
        }
        if (look(pid, &call, &is_entry) && counts(call) && ++stops == k) {
            (void)kill(pid, SIGKILL);
            (void)printf("killed: %ld %s\n", call, is_entry ? "entry" : "exit");
            if (target != first)
                let_go(first);
            return 0;
        }
        (void)ptrace(PTRACE_SYSCALL, pid, NULL, NULL);
    }
    (void)printf("left: %lu stops\n", stops);
    if (target != first)
        let_go(first);
    let_go(target);
    return 0;
}

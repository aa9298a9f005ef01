/* SPDX-License-Identifier: Apache-2.0 */
#include "spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memory.h"
#include "stats.h"

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

enum { MAX_KIDS = 2048, STACK = 65536, SWEEPS = 50 };

/* The handler reads this table: a slot is filled pid last and emptied pid first. */
static struct {
    volatile pid_t pid;
    volatile int sig;
} kids[MAX_KIDS];
static volatile int kids_top; /* no slot from here on is in use */

static volatile sig_atomic_t stop_signal;

static void on_stop(int sig)
{
    stop_signal = sig;
    for (int i = 0; i < kids_top; i++)
        if (kids[i].pid > 0)
            (void)kill(kids[i].pid, kids[i].sig); /* the main path reaps, and kills if need be */
}

static void on_pipe(int sig)
{
    (void)sig; /* a handler and not SIG_IGN, which the children would inherit */
}

void bench_spawn_init(void)
{
    struct sigaction stop = {.sa_handler = on_stop}; /* no SA_RESTART: blocking calls come back */
    struct sigaction ignore = {.sa_handler = on_pipe};
    struct rlimit r;

    for (int fd = open("/dev/null", O_RDWR); fd >= 0; fd = dup(fd))
        if (fd > 2) {
            (void)close(fd);
            break;
        }
    (void)sigaction(SIGINT, &stop, NULL);
    (void)sigaction(SIGTERM, &stop, NULL);
    (void)sigaction(SIGHUP, &stop, NULL);
    (void)sigaction(SIGALRM, &stop, NULL);
    (void)sigaction(SIGPIPE, &ignore, NULL);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (getrlimit(RLIMIT_NOFILE, &r) == 0) {
        r.rlim_cur = r.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &r); /* what is missing shows when it is needed */
    }
}

struct launch {
    const struct bench_spawn *s;
    int error;
};

/* Shares the parent's memory until execve: system calls only. */
static int child(void *arg)
{
    struct launch *l = arg;
    const struct bench_spawn *s = l->s;
    const struct sigaction plain = {.sa_handler = SIG_DFL};
    sigset_t none;

    (void)sigaction(SIGINT, &plain, NULL); /* our handler must not run here once unblocked */
    (void)sigaction(SIGTERM, &plain, NULL);
    (void)sigaction(SIGHUP, &plain, NULL);
    (void)sigaction(SIGALRM, &plain, NULL);
    if (setsid() < 0 || prctl(PR_SET_PDEATHSIG, s->death_signal) < 0)
        goto failed;
    if (s->is_tty && ioctl(s->stdio[0], TIOCSCTTY, 0) < 0)
        goto failed;
    for (int fd = 0; fd < 3; fd++) {
        const int from = s->stdio[fd] >= 0 ? s->stdio[fd] : open("/dev/null", O_RDWR | O_CLOEXEC);

        if (from < 0 || dup2(from, fd) < 0)
            goto failed;
    }
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)execvpe(s->argv[0], s->argv, s->envp != NULL ? s->envp : environ);
failed:
    l->error = errno;
    _exit(127);
}

int bench_spawn(const struct bench_spawn *s, struct bench_kid *ret, struct sp_err *e)
{
    static char stack[STACK] __attribute__((aligned(16)));
    struct launch l = {.s = s};
    struct bench_kid kid = {.pidfd = -1};
    sigset_t all;
    sigset_t old;

    sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, &old);
    kid.pid =
        clone(child, stack + STACK, CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, &l, &kid.pidfd);
    const int sys = errno;
    (void)sigprocmask(SIG_SETMASK, &old, NULL);

    if (kid.pid < 0)
        return sp_fail(e, SP_E_SYSTEM, sys, "start %s", s->argv[0]);
    if (l.error != 0) {
        (void)bench_kid_reap(&kid, BENCH_S, NULL, NULL); /* it has called _exit */
        return sp_fail(e, SP_E_SYSTEM, l.error, "start %s", s->argv[0]);
    }
    *ret = kid;
    return 0;
}

void bench_kid_enlist(const struct bench_kid *kid, int death_signal)
{
    for (int i = 0; i < MAX_KIDS; i++)
        if (kids[i].pid == 0) {
            kids[i].sig = death_signal;
            kids[i].pid = kid->pid;
            if (kids_top <= i)
                kids_top = i + 1;
            return;
        }
}

bool bench_kid_is_enlisted(pid_t pid)
{
    for (int i = 0; i < kids_top; i++)
        if (kids[i].pid == pid)
            return true;
    return false;
}

static void discharge(pid_t pid)
{
    for (int i = 0; i < kids_top; i++)
        if (kids[i].pid == pid)
            kids[i].pid = 0;
    while (kids_top > 0 && kids[kids_top - 1].pid == 0)
        kids_top--;
}

int bench_kid_reap(struct bench_kid *kid, uint64_t timeout_ns, int *ret_status, struct sp_err *e)
{
    const uint64_t deadline = bench_now() + timeout_ns;
    int status = 0;

    for (;;) {
        struct pollfd p = {.fd = kid->pidfd, .events = POLLIN};
        const uint64_t now = bench_now();
        const int n = poll(&p, 1, now < deadline ? (int)((deadline - now) / BENCH_MS) + 1 : 0);

        if (n > 0)
            break;
        if (n == 0)
            return sp_fail(e, SP_E_LIMIT, 0, "process %d does not end", (int)kid->pid);
        if (errno != EINTR)
            return sp_fail(e, SP_E_SYSTEM, errno, "wait for process %d", (int)kid->pid);
    }
    discharge(kid->pid); /* before the number is free again */
    if (waitpid(kid->pid, &status, 0) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "reap process %d", (int)kid->pid);
    (void)close(kid->pidfd);
    *kid = (struct bench_kid){.pidfd = -1};
    if (ret_status != NULL)
        *ret_status = status;
    return 0;
}

void bench_kid_end(struct bench_kid *kid, int sig)
{
    if (kid->pid <= 0)
        return;
    (void)kill(kid->pid, sig); /* not reaped yet, so the number is still its own */
    if (bench_kid_reap(kid, 3 * BENCH_S, NULL, NULL) == 0)
        return;
    (void)kill(kid->pid, SIGKILL);
    (void)bench_kid_reap(kid, 3 * BENCH_S, NULL, NULL);
}

int bench_spawn_sweep(void)
{
    int found = 0;

    /* What we kill may leave children of its own, which then become ours. */
    for (int i = 0; i < SWEEPS; i++) {
        pid_t strays[256];
        const int n = bench_memory_strays(strays, 256);

        if (n == 0)
            break;
        for (int k = 0; k < n; k++)
            (void)kill(strays[k], SIGKILL);
        for (int k = 0; k < n; k++)
            found += waitpid(strays[k], NULL, 0) == strays[k];
    }
    return found;
}

bool bench_is_stopped(void)
{
    return stop_signal != 0;
}

int bench_stop_signal(void)
{
    return stop_signal;
}

void bench_spawn_limit(unsigned seconds)
{
    (void)alarm(seconds);
}

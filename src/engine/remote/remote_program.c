/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remote_program: see remote_program.h.
 */
#include "engine/remote/remote_program.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "os/tree.h"

#define GRACE_MS 2000U
#define TERM_MS  500U

/* ---- starting ---- */

static size_t count(const char *const *list)
{
    size_t n = 0;

    while (list != NULL && list[n] != NULL)
        n++;
    return n;
}

static bool is_same_name(const char *a, const char *b)
{
    const size_t n = strcspn(a, "=");

    return strncmp(a, b, n) == 0 && b[n] == '=';
}

static bool is_replaced(const char *own, const char *const *env)
{
    for (size_t i = 0; env != NULL && env[i] != NULL; i++)
        if (is_same_name(env[i], own))
            return true;
    return false;
}

/* Our own variables with env laid over them; the strings are borrowed. NULL: out of memory. */
static char **make_env(const char *const *env)
{
    const size_t own = count((const char *const *)environ);
    char **all = calloc(own + count(env) + 1, sizeof *all);
    size_t n = 0;

    if (all == NULL)
        return NULL;
    for (size_t i = 0; i < own; i++)
        if (!is_replaced(environ[i], env))
            all[n++] = environ[i];
    for (size_t i = 0; i < count(env); i++)
        all[n++] = (char *)(uintptr_t)env[i];
    return all;
}

/* posix_spawn needs sources above 2, also in a program that has closed 0 to 2. */
static int lift(int *fd)
{
    if (*fd > 2)
        return 0;
    const int higher = fcntl(*fd, F_DUPFD_CLOEXEC, 3);
    if (higher < 0)
        return -1;
    (void)close(*fd);
    *fd = higher;
    return 0;
}

static int open_pipe(int ret[2])
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return -1;
    ret[0] = ends[0];
    ret[1] = ends[1];
    return lift(&ret[0]) < 0 || lift(&ret[1]) < 0 ? -1 : 0;
}

static int prepare(posix_spawnattr_t *attr, posix_spawn_file_actions_t *actions, int in, int out)
{
    sigset_t none;
    sigset_t all;
    int err = 0;

    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    (void)posix_spawnattr_setsigmask(attr, &none);
    (void)posix_spawnattr_setsigdefault(attr, &all);
    (void)posix_spawnattr_setpgroup(attr, 0);
    (void)posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                             POSIX_SPAWN_SETPGROUP);
    if (err == 0)
        err = posix_spawn_file_actions_adddup2(actions, in, 0);
    if (err == 0)
        err = posix_spawn_file_actions_adddup2(actions, out, 1);
    if (err == 0)
        err = posix_spawn_file_actions_addclosefrom_np(actions, 3);
    return err;
}

static int spawn(pid_t *ret, const char *const *argv, char *const *envp, int in, int out)
{
    posix_spawnattr_t attr;
    posix_spawn_file_actions_t actions;
    int err = posix_spawnattr_init(&attr);

    if (err != 0)
        return err;
    err = posix_spawn_file_actions_init(&actions);
    if (err == 0) {
        err = prepare(&attr, &actions, in, out);
        if (err == 0)
            err = posix_spawnp(ret, argv[0], &actions, &attr, (char *const *)(uintptr_t)argv, envp);
        (void)posix_spawn_file_actions_destroy(&actions);
    }
    (void)posix_spawnattr_destroy(&attr);
    return err;
}

int sp_remote_program_start(struct sp_remote_program *p, struct sp_loop *loop,
                            const char *const *argv, const char *const *env, struct sp_err *e)
{
    auto_close int its_in = -1;
    auto_close int its_out = -1;
    auto_close int in = -1;
    auto_close int out = -1;
    int ends[2] = {-1, -1};
    pid_t pid = 0;
    int err = 0;

    if (open_pipe(ends) < 0)
        err = errno;
    its_in = ends[0];
    out = ends[1];
    ends[0] = ends[1] = -1;
    if (err == 0 && open_pipe(ends) < 0)
        err = errno;
    in = ends[0];
    its_out = ends[1];
    auto_free char **envp = make_env(env);
    if (err == 0 && envp == NULL)
        err = ENOMEM;
    if (err == 0)
        err = spawn(&pid, argv, envp, its_in, its_out);
    if (err != 0)
        return sp_fail(e, SP_E_SYSTEM, err, "run %s", argv[0]);
    *p = (struct sp_remote_program){
        .loop = loop, .in = TAKE_FD(in), .out = TAKE_FD(out), .pid = pid};
    p->pidfd = (int)syscall(SYS_pidfd_open, pid, 0); /* -1: another part of the program reaped it */
    if (p->pidfd >= 0)
        sp_own_add(pid);
    return 0;
}

/* ---- ending ---- */

static void close_ends(struct sp_remote_program *p)
{
    if (p->in >= 0)
        (void)close(TAKE_FD(p->in));
    if (p->out >= 0)
        (void)close(TAKE_FD(p->out));
}

/* Until it is reaped its pid and its group id cannot be reused. */
static void send_signal(struct sp_remote_program *p, int number)
{
    p->last_signal = number;
    (void)kill(-p->pid, number);
    (void)syscall(SYS_pidfd_send_signal, p->pidfd, number, NULL, 0);
}

/* true: reaped. */
static bool reap(struct sp_remote_program *p, int options)
{
    siginfo_t info = {0};
    int r;

    do
        r = waitid(P_PIDFD, (id_t)p->pidfd, &info, WEXITED | options);
    while (r < 0 && errno == EINTR);
    if (r == 0 && info.si_pid == 0)
        return false;
    sp_own_remove(p->pid);
    sp_loop_unwatch(p->loop, &p->watch);
    sp_loop_cancel(p->loop, &p->timer);
    (void)close(TAKE_FD(p->pidfd));
    return true;
}

static void on_timer(struct sp_timer *t)
{
    struct sp_remote_program *p = SP_CONTAINER(t, struct sp_remote_program, timer);

    send_signal(p, p->last_signal == 0 ? SIGTERM : SIGKILL);
    if (p->last_signal == SIGTERM)
        (void)sp_loop_timer(p->loop, t, sp_loop_now(p->loop) + TERM_MS, on_timer);
}

static void on_exit_seen(struct sp_watch *w, uint32_t events)
{
    (void)events;
    (void)reap(SP_CONTAINER(w, struct sp_remote_program, watch), WNOHANG);
}

void sp_remote_program_end(struct sp_remote_program *p)
{
    struct sp_err e;

    if (p->loop == NULL)
        return;
    close_ends(p);
    if (p->pidfd < 0 || p->watch.fn != NULL || reap(p, WNOHANG))
        return;
    if (sp_loop_watch(p->loop, &p->watch, p->pidfd, EPOLLIN, on_exit_seen, &e) < 0 ||
        !sp_loop_timer(p->loop, &p->timer, sp_loop_now(p->loop) + GRACE_MS, on_timer))
        sp_remote_program_end_now(p);
}

static bool ends_within(const struct sp_remote_program *p, unsigned ms)
{
    struct pollfd at = {.fd = p->pidfd, .events = POLLIN};
    const int64_t until = (int64_t)sp_clock_ms() + ms;

    for (int left = (int)ms; left >= 0; left = (int)(until - (int64_t)sp_clock_ms()) - 1)
        if (poll(&at, 1, left) > 0)
            return true;
    return false;
}

void sp_remote_program_end_now(struct sp_remote_program *p)
{
    if (p->loop == NULL)
        return;
    close_ends(p);
    if (p->pidfd < 0)
        return;
    if (!ends_within(p, GRACE_MS)) {
        send_signal(p, SIGTERM);
        if (!ends_within(p, TERM_MS))
            send_signal(p, SIGKILL);
    }
    (void)reap(p, 0); /* after SIGKILL this returns soon */
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remote_program: see remote_program.h.
 */
#include "engine/remote/remote_program.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "os/fd.h"
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

int sp_remote_program_start(struct sp_remote_program *p, struct sp_loop *loop,
                            const char *const *argv, const char *const *env, struct sp_err *e)
{
    int ends[4] = {-1, -1, -1, -1}; /* its stdin, our end of that, our end of its stdout, that */
    struct sp_child child;
    int err = 0;

    if (pipe2(ends, O_CLOEXEC) < 0 || pipe2(ends + 2, O_CLOEXEC) < 0)
        err = errno;
    auto_close int its_in = ends[0];
    auto_close int out = sp_fd_lift(ends[1]);
    auto_close int in = sp_fd_lift(ends[2]);
    auto_close int its_out = ends[3];
    auto_free char **envp = make_env(env);
    if (err == 0 && envp == NULL)
        err = ENOMEM;
    if (err == 0)
        err = sp_child_start(&child, argv[0], argv, envp, (int[]){its_in, its_out, SP_CHILD_OURS});
    if (err != 0)
        return sp_fail(e, SP_E_SYSTEM, err, "run %s", argv[0]);
    *p = (struct sp_remote_program){
        .loop = loop, .in = TAKE_FD(in), .out = TAKE_FD(out), .child = child};
    if (child.pidfd >= 0)
        sp_own_add(child.pid);
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

static void send_signal(struct sp_remote_program *p, int number)
{
    p->last_signal = number;
    sp_child_signal(&p->child, number);
}

/* true: reaped. */
static bool reap(struct sp_remote_program *p, bool is_waiting)
{
    int status;

    if (!sp_child_reap(&p->child, is_waiting, &status))
        return false;
    sp_own_remove(p->child.pid);
    sp_loop_unwatch(p->loop, &p->watch);
    sp_loop_cancel(p->loop, &p->timer);
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
    (void)reap(SP_CONTAINER(w, struct sp_remote_program, watch), false);
}

void sp_remote_program_end(struct sp_remote_program *p)
{
    struct sp_err e;

    if (p->loop == NULL)
        return;
    close_ends(p);
    if (p->child.pidfd < 0 || p->watch.fn != NULL || reap(p, false))
        return;
    if (sp_loop_watch(p->loop, &p->watch, p->child.pidfd, EPOLLIN, on_exit_seen, &e) < 0 ||
        !sp_loop_timer(p->loop, &p->timer, sp_loop_now(p->loop) + GRACE_MS, on_timer))
        sp_remote_program_end_now(p);
}

static bool ends_within(const struct sp_remote_program *p, unsigned ms)
{
    struct pollfd at = {.fd = p->child.pidfd, .events = POLLIN};
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
    if (p->child.pidfd < 0)
        return;
    if (!ends_within(p, GRACE_MS)) {
        send_signal(p, SIGTERM);
        if (!ends_within(p, TERM_MS))
            send_signal(p, SIGKILL);
    }
    (void)reap(p, true); /* after SIGKILL this returns soon */
}

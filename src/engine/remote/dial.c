/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/remote/dial.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

#include "base/auto.h"
#include "engine/remote/lookup.h"

#define BUSY_MS 20U /* a unix socket whose queue is full is tried again after so long */

static void on_step(struct sp_deferred *d);

void sp_dial_stop(struct sp_dial *d)
{
    if (d->loop == NULL)
        return;
    sp_loop_unwatch(d->loop, &d->watch);
    sp_loop_cancel(d->loop, &d->timer);
    sp_loop_undefer(d->loop, &d->step);
    if (d->fd >= 0)
        (void)close(TAKE_FD(d->fd));
}

static void finish(struct sp_dial *d, int fd)
{
    const struct sp_err e = d->error;

    sp_dial_stop(d);
    d->done(d, fd, fd < 0 ? &e : NULL);
}

/* This address leads nowhere: the next one, if there is one. */
static void give_up(struct sp_dial *d)
{
    sp_loop_unwatch(d->loop, &d->watch);
    if (d->fd >= 0)
        (void)close(TAKE_FD(d->fd));
    if (d->next >= d->count)
        finish(d, -1);
    else
        sp_loop_defer(d->loop, &d->step, on_step);
}

/* Whoever listens on a unix socket gets commands, files and tokens: only a process of our own user,
 * or of root, may. */
static bool is_peer_trusted(struct sp_dial *d)
{
    struct ucred c = {.uid = (uid_t)-1};
    socklen_t size = sizeof c;

    if (!d->target->is_unix)
        return true;
    if (getsockopt(d->fd, SOL_SOCKET, SO_PEERCRED, &c, &size) < 0) {
        (void)sp_fail(&d->error, SP_E_SYSTEM, errno, "read the user of the server");
        return false;
    }
    if (c.uid == geteuid() || c.uid == 0)
        return true;
    (void)sp_fail(&d->error, SP_E_INVALID, 0,
                  "the server there runs as uid %u (pid %d), not as uid %u or root: it is not "
                  "trusted; run this command as that user, or the server as this one",
                  (unsigned)c.uid, (int)c.pid, (unsigned)geteuid());
    return false;
}

/* The socket is connected: the caller's, unless the server is another user's. */
static void take(struct sp_dial *d)
{
    if (is_peer_trusted(d))
        finish(d, TAKE_FD(d->fd));
    else
        give_up(d);
}

static void on_connected(struct sp_watch *w, uint32_t events)
{
    struct sp_dial *d = SP_CONTAINER(w, struct sp_dial, watch);
    socklen_t size = sizeof(int);
    int err = 0;

    (void)events;
    if (getsockopt(d->fd, SOL_SOCKET, SO_ERROR, &err, &size) < 0)
        err = errno;
    if (err == 0) {
        take(d);
        return;
    }
    (void)sp_fail(&d->error, SP_E_SYSTEM, err, "connect");
    give_up(d);
}

static socklen_t size_of(const union sp_dial_address *a)
{
    return a->any.sa_family == AF_UNIX    ? sizeof a->un
           : a->any.sa_family == AF_INET6 ? sizeof a->in6
                                          : sizeof a->in;
}

/* Its share of the time that is left. */
static bool arm(struct sp_dial *d, void (*fn)(struct sp_timer *))
{
    const uint64_t now = sp_loop_now(d->loop);
    const uint64_t left = d->deadline_ms > now ? d->deadline_ms - now : 0;
    const uint32_t shares = d->count > d->next ? d->count - d->next + 1 : 1;

    return sp_loop_timer(d->loop, &d->timer, now + left / shares, fn);
}

static void on_too_late(struct sp_timer *t)
{
    struct sp_dial *d = SP_CONTAINER(t, struct sp_dial, timer);

    (void)sp_fail(&d->error, SP_E_SYSTEM, ETIMEDOUT,
                  d->is_looking_up ? "look up the name" : "connect");
    give_up(d);
}

static void on_retry(struct sp_timer *t)
{
    struct sp_dial *d = SP_CONTAINER(t, struct sp_dial, timer);

    if (sp_loop_now(d->loop) >= d->deadline_ms) {
        (void)sp_fail(&d->error, SP_E_SYSTEM, EAGAIN, "connect");
        finish(d, -1);
        return;
    }
    d->next = 0;
    sp_loop_defer(d->loop, &d->step, on_step);
}

static int open_socket(const union sp_dial_address *a)
{
    const int on = 1;
    const int fd = socket(a->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd >= 0 && a->any.sa_family != AF_UNIX)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* slower without */
    return fd;
}

static void try_address(struct sp_dial *d)
{
    const union sp_dial_address *a = &d->addresses[d->next++];

    d->fd = open_socket(a);
    if (d->fd >= 0 && connect(d->fd, &a->any, size_of(a)) == 0) {
        take(d);
        return;
    }
    if (d->fd >= 0 && errno == EAGAIN && a->any.sa_family == AF_UNIX) {
        (void)close(TAKE_FD(d->fd));
        if (sp_loop_timer(d->loop, &d->timer, sp_loop_now(d->loop) + BUSY_MS, on_retry))
            return;
        errno = ENOMEM;
    }
    if (d->fd >= 0 && (errno == EINPROGRESS || errno == EINTR)) {
        if (arm(d, on_too_late) &&
            sp_loop_watch(d->loop, &d->watch, d->fd, EPOLLOUT, on_connected, &d->error) == 0)
            return;
        errno = ENOMEM;
    }
    (void)sp_fail(&d->error, SP_E_SYSTEM, errno, "connect");
    give_up(d);
}

static void on_looked_up(struct sp_watch *w, uint32_t events)
{
    struct sp_dial *d = SP_CONTAINER(w, struct sp_dial, watch);
    struct sp_lookup_answer a = {0};
    const ssize_t n = read(d->fd, &a, sizeof a);

    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    d->is_looking_up = false;
    if (n != (ssize_t)sizeof a)
        (void)sp_fail(&d->error, SP_E_FAILED, 0, "look up %s: no answer", d->target->host);
    else if (a.error != 0 || a.count == 0)
        (void)sp_fail(&d->error, SP_E_NOT_FOUND, a.sys_error, "look up %s: %s", d->target->host,
                      a.error == 0 ? "no address" : gai_strerror(a.error));
    else
        memcpy(d->addresses, a.addresses, sizeof d->addresses);
    d->count = n == (ssize_t)sizeof a && a.error == 0 ? a.count : 0;
    give_up(d); /* of the pipe */
}

static void look_up(struct sp_dial *d)
{
    if (sp_lookup_begin(d->target->host, d->target->port, &d->fd, &d->error) < 0 ||
        sp_loop_watch(d->loop, &d->watch, d->fd, EPOLLIN, on_looked_up, &d->error) < 0) {
        give_up(d);
        return;
    }
    d->is_looking_up = true;
    if (!arm(d, on_too_late)) {
        (void)sp_fail(&d->error, SP_E_SYSTEM, ENOMEM, "look up %s", d->target->host);
        give_up(d);
    }
}

static void on_step(struct sp_deferred *step)
{
    struct sp_dial *d = SP_CONTAINER(step, struct sp_dial, step);

    if (d->next < d->count)
        try_address(d);
    else
        look_up(d);
}

void sp_dial_begin(struct sp_dial *d, uint64_t timeout_ms)
{
    d->deadline_ms = sp_loop_now(d->loop) + timeout_ms;
    d->next = 0;
    d->fd = -1;
    d->is_looking_up = false;
    if (d->target->is_unix) {
        d->addresses[0] = (union sp_dial_address){.un = d->target->un};
        d->count = 1;
    } else {
        d->count = sp_lookup_literal(d->target->host, d->target->port, d->addresses);
    }
    sp_loop_defer(d->loop, &d->step, on_step);
}

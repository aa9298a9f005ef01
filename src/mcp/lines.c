/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lines: MCP over lines. The server side reads messages from stdio or a unix socket; the relay
 * (`--connect`) carries bytes between its stdin, stdout and such a socket without reading them.
 */
#include "mcp/lines.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "mcp/peer.h"
#include "server/net/listen.h"

#define LINE_MAX_BYTES (16U << 20)
#define WAITING_MAX    32U        /* messages sent behind a full queue; then reading stops */
#define QUEUED_MAX     (4U << 20) /* bytes queued; then reading stops */
#define HANDSHAKE_MS   10000U     /* for an HTTP request, which is refused */

/* One connection, or the pipes. */
struct conn {
    struct sp_mcp_out out;
    struct sp_mcp_lines *lines;
    struct sp_list link_in_lines;
    struct sp_link *link;
    struct sp_mcp_caller *caller;
    struct sp_mcp_peer *peer;
    unsigned waiting; /* messages sent since the queue became full */
    bool is_paused;
};

struct sp_mcp_lines {
    struct sp_mcp *mcp;
    struct sp_listener *listener;
    struct sp_list conns;
    struct sp_mcp_message message; /* reused for each message, one at a time */
    void *user;
    void (*finished)(void *user);
    char identity[32];
};

/* ---- messages out ---- */

static void on_send(struct sp_mcp_out *o, struct sp_str message, unsigned status)
{
    struct conn *c = SP_CONTAINER(o, struct conn, out);
    char *room = sp_link_reserve(c->link, message.n);

    (void)status;
    if (room == NULL)
        return; /* the connection is closing */
    memcpy(room, message.p, message.n);
    sp_link_commit(c->link, message.n);
    if (!sp_link_is_full(c->link))
        return;
    /* Stop reading from a client that sends requests without reading answers. */
    c->waiting++;
    if (c->is_paused || (c->waiting < WAITING_MAX && sp_link_queued(c->link) < QUEUED_MAX))
        return;
    c->is_paused = true;
    sp_link_pause(c->link, true);
}

static bool is_out_full(struct sp_mcp_out *o)
{
    return sp_link_is_full(SP_CONTAINER(o, struct conn, out)->link);
}

/* ---- messages in ---- */

static void on_message(void *user, char *text, size_t len)
{
    struct conn *c = user;
    struct sp_mcp_message *m = &c->lines->message;

    sp_mcp_message_read(m, text, len);
    (void)sp_mcp_take(c->peer, &c->out, NULL, m);
    sp_json_trim(&m->json);
}

static void on_not_text(void *user)
{
    struct conn *c = user;
    struct sp_mcp_message *m = &c->lines->message;
    char text[] = "?"; /* broken like the line, so that it is answered with a parse error */

    sp_mcp_message_read(m, text, 1);
    (void)sp_fail(&m->why, SP_E_MALFORMED, 0, "the line is not UTF-8, or longer than 16 MiB");
    (void)sp_mcp_take(c->peer, &c->out, NULL, m);
}

static void on_drained(void *user)
{
    struct conn *c = user;

    c->waiting = 0;
    if (!c->is_paused)
        return;
    c->is_paused = false;
    sp_link_pause(c->link, false);
}

static void on_closed(void *user, const char *why)
{
    struct conn *c = user;

    (void)why;
    sp_list_remove(&c->link_in_lines);
    sp_mcp_peer_free(c->peer);
    sp_mcp_caller_release(c->caller);
    free(c);
}

static const struct sp_link_ops link_ops = {
    .message = on_message, .not_text = on_not_text, .drained = on_drained, .closed = on_closed};

static bool on_opened(void *user, struct sp_link *l, const struct sp_link_ops **ret_ops,
                      void **ret_user)
{
    struct sp_mcp_lines *lines = user;
    struct conn *c = calloc(1, sizeof *c);

    if (c == NULL)
        return false;
    if (sp_mcp_caller_hold(lines->mcp, sp_str_of(lines->identity), &c->caller, NULL) < 0) {
        free(c);
        return false;
    }
    c->out = (struct sp_mcp_out){.send = on_send, .is_full = is_out_full};
    c->peer = sp_mcp_peer_new(lines->mcp, c->caller, &c->out);
    if (c->peer == NULL) {
        sp_mcp_caller_release(c->caller);
        free(c);
        return false;
    }
    c->lines = lines;
    c->link = l;
    sp_list_prepend(&lines->conns, &c->link_in_lines);
    *ret_ops = &link_ops;
    *ret_user = c;
    return true;
}

static void on_finished(void *user)
{
    struct sp_mcp_lines *lines = user;

    if (lines->finished != NULL)
        lines->finished(lines->user);
}

/* ---- start and end ---- */

int sp_mcp_lines_new(struct sp_mcp *m, const struct sp_mcp_lines_options *o,
                     struct sp_mcp_lines **ret, struct sp_err *e)
{
    struct sp_mcp_lines *lines = calloc(1, sizeof *lines);

    if (lines == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make server");
    lines->mcp = m;
    sp_list_init(&lines->conns);
    lines->user = o->user;
    lines->finished = o->finished;
    /* Only our own uid may connect, so all connections share one identity. */
    if (o->url == NULL)
        (void)snprintf(lines->identity, sizeof lines->identity, "stdio");
    else
        (void)snprintf(lines->identity, sizeof lines->identity, "uid %u", geteuid());
    struct sp_listen_url url = {.kind = SP_LISTEN_STDIO, .is_loopback = true};
    struct sp_mcp_caller *caller = NULL;
    const struct sp_listen_options lo = {
        .is_own_user_only = true,
        .is_lines_only = true,
        .keeps_on = true,
        .max_line = LINE_MAX_BYTES,
        .max_connections = o->max_connections,
        .handshake_ms = HANDSHAKE_MS,
        .user = lines,
        .opened = on_opened,
        .finished = on_finished,
    };
    int r = o->url == NULL ? 0 : sp_listen_parse(o->url, &url, e);

    /* sp_listener_new opens the pipes, where a failure to make the caller could not be reported:
     * make it here. */
    if (o->url == NULL)
        r = sp_mcp_caller_hold(lines->mcp, sp_str_of(lines->identity), &caller, e);
    if (r == 0)
        r = sp_listener_new(sp_mcp_options(lines->mcp)->loop, &url, &lo, &lines->listener, e);
    if (caller != NULL)
        sp_mcp_caller_release(caller);
    if (r < 0) {
        sp_mcp_lines_free(lines);
        return r;
    }
    *ret = lines;
    return 0;
}

void sp_mcp_lines_free(struct sp_mcp_lines *l)
{
    if (l == NULL)
        return;
    sp_list_each(i, &l->conns)
        sp_mcp_peer_close_subscriptions(SP_CONTAINER(i, struct conn, link_in_lines)->peer);
    sp_listener_free(l->listener); /* calls on_closed for every connection */
    sp_mcp_message_done(&l->message);
    free(l);
}

const char *sp_mcp_lines_url(const struct sp_mcp_lines *l)
{
    return sp_listener_url(l->listener);
}

/* ---- the relay ----
 *
 * A bounded number of bytes is in flight in each direction, and neither direction waits for the
 * other.
 */

#define HELD_MAX  (64U << 10)
#define CONNECT_S 10
#define LAST_MS   10000 /* after the end of stdin, without a byte from the server */

/* One direction: from -> bytes -> to. */
struct flow {
    int from, to;
    size_t start, end;
    bool has_ended; /* end of file on `from` */
    bool is_broken; /* `to` accepts no more */
    char bytes[HELD_MAX];
};

static int dial(const char *path, struct sp_err *e)
{
    const struct timeval patience = {.tv_sec = CONNECT_S};
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct ucred peer;
    socklen_t len = sizeof peer;

    if (fd < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "make socket");
    if (strlen(path) >= sizeof un.sun_path)
        return sp_fail(e, SP_E_INVALID, 0, "%s is longer than %zu bytes", path,
                       sizeof un.sun_path - 1);
    memcpy(un.sun_path, path, strlen(path) + 1);
    /* connect waits for a server with a full backlog, but not forever. */
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    while (connect(fd, (const struct sockaddr *)&un, sizeof un) < 0)
        if (errno != EINTR)
            return sp_fail(e, SP_E_SYSTEM, errno,
                           "connect to %s: is `sallyport mcp --listen unix://%s` running?", path,
                           path);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || peer.uid != geteuid())
        return sp_fail(e, SP_E_INVALID, 0, "%s is another user's server", path);
    return TAKE_FD(fd);
}

/* true: bytes were read, or the end was reached. */
static bool fill_flow(struct flow *f)
{
    f->start = f->end = 0; /* only an empty flow is filled */
    const ssize_t n = read(f->from, f->bytes, sizeof f->bytes);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return false;
    if (n > 0)
        f->end = (size_t)n;
    else
        f->has_ended = true;
    return true;
}

/* Never blocks: MSG_DONTWAIT on a socket, and a writable pipe has room for PIPE_BUF bytes. */
static bool drain_flow(struct flow *f)
{
    const char *bytes = f->bytes + f->start;
    const size_t size = f->end - f->start;
    ssize_t n = send(f->to, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);

    if (n < 0 && errno == ENOTSOCK)
        n = write(f->to, bytes, size < PIPE_BUF ? size : PIPE_BUF);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return false;
    if (n < 0)
        f->is_broken = true;
    else
        f->start += (size_t)n;
    return true;
}

/* A flow reads if it is empty, else writes. */
static struct pollfd poll_for(const struct flow *f)
{
    if (f->start == f->end)
        return (struct pollfd){.fd = f->has_ended ? -1 : f->from, .events = POLLIN};
    return (struct pollfd){.fd = f->is_broken ? -1 : f->to, .events = POLLOUT};
}

static bool step(struct flow *f, const struct pollfd *ready)
{
    if (ready->revents == 0)
        return false;
    return f->start == f->end ? fill_flow(f) : drain_flow(f);
}

int sp_mcp_relay(const char *path, struct sp_err *e)
{
    static struct flow in;
    static struct flow out;
    auto_close int fd = dial(path, e);

    if (fd < 0)
        return 1;
    (void)signal(SIGPIPE, SIG_IGN);
    in = (struct flow){.from = STDIN_FILENO, .to = fd};
    out = (struct flow){.from = fd, .to = STDOUT_FILENO};
    bool is_half_closed = false;
    uint64_t moved_ms = sp_clock_ms();

    while (!(out.has_ended && out.start == out.end) && !out.is_broken && !in.is_broken) {
        if (in.has_ended && in.start == in.end && !is_half_closed) {
            (void)shutdown(in.to, SHUT_WR); /* a failure shows when reading */
            is_half_closed = true;
            moved_ms = sp_clock_ms();
        }
        struct pollfd both[2] = {poll_for(&in), poll_for(&out)};
        (void)poll(both, 2, is_half_closed ? LAST_MS : -1);
        bool has_moved = step(&in, &both[0]);
        has_moved |= step(&out, &both[1]); /* always both */
        if (has_moved)
            moved_ms = sp_clock_ms();
        else if (is_half_closed && sp_clock_ms() - moved_ms >= LAST_MS)
            break;
    }
    if (in.has_ended)
        return 0;
    if (out.is_broken)
        (void)sp_fail(e, SP_E_FAILED, 0, "nobody reads our stdout");
    else
        (void)sp_fail(e, SP_E_FAILED, 0, "the server behind %s has ended", path);
    return 1;
}

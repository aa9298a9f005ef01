/* SPDX-License-Identifier: Apache-2.0 */
#include "mcp/lines.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/auto.h"
#include "mcp/peer.h"
#include "server/net/listen.h"

#define LINE_MAX_BYTES (16U << 20)
#define WAITING_MAX    32U        /* answers behind a full queue; then nothing more is read */
#define QUEUED_MAX     (4U << 20) /* bytes of them, the same */
#define HANDSHAKE_MS   10000U     /* for an HTTP request that will be refused */

/* One connection, or the pipes. */
struct conn {
    struct sp_mcp_out out; /* first, see is_out_full */
    struct sp_mcp_lines *lines;
    struct conn *prev, *next;
    struct sp_link *link;
    struct sp_mcp_caller *caller;
    struct sp_mcp_peer *peer;
    unsigned waiting; /* messages sent since the queue is full */
    bool is_paused;
};

struct sp_mcp_lines {
    struct sp_mcp *mcp;
    struct sp_listener *listener;
    struct conn *conns;
    struct sp_mcp_message message; /* the one that is read; its memory is used again */
    void *user;
    void (*finished)(void *user);
    char identity[32];
};

/* ---- what is said ---- */

/* Whoever asks and does not read is not heard any more: what waits stays bounded. */
static void hold_back(struct conn *c)
{
    if (!sp_link_is_full(c->link))
        return;
    c->waiting++;
    if (c->is_paused || (c->waiting < WAITING_MAX && sp_link_queued(c->link) < QUEUED_MAX))
        return;
    c->is_paused = true;
    sp_link_pause(c->link, true);
}

static void on_send(struct sp_mcp_out *o, struct sp_str message, unsigned status)
{
    struct conn *c = SP_CONTAINER(o, struct conn, out);
    char *room = sp_link_reserve(c->link, message.n);

    (void)status;
    if (room == NULL)
        return; /* it closes: nobody would read it */
    memcpy(room, message.p, message.n);
    sp_link_commit(c->link, message.n);
    hold_back(c);
}

static bool is_out_full(const struct sp_mcp_out *o)
{
    const void *first = o; /* it is the first member */
    const struct conn *c = first;

    return sp_link_is_full(c->link);
}

/* ---- what is heard ---- */

static void take(struct conn *c)
{
    struct sp_mcp_message *m = &c->lines->message;

    (void)sp_mcp_take(c->peer, &c->out, NULL, m);
    sp_json_trim(&m->json);
}

static void on_message(void *user, char *text, size_t len)
{
    struct conn *c = user;

    sp_mcp_message_read(&c->lines->message, text, len);
    take(c);
}

static void on_not_text(void *user)
{
    struct conn *c = user;
    struct sp_mcp_message *m = &c->lines->message;
    char text[] = "?"; /* as little a message as what came */

    sp_mcp_message_read(m, text, 1);
    (void)sp_fail(&m->why, SP_E_MALFORMED, 0, "the line is not UTF-8, or longer than 16 MiB");
    take(c);
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

static void forget(struct conn *c)
{
    if (c->prev != NULL)
        c->prev->next = c->next;
    else
        c->lines->conns = c->next;
    if (c->next != NULL)
        c->next->prev = c->prev;
    sp_mcp_peer_free(c->peer);
    sp_mcp_caller_release(c->caller);
    free(c);
}

static void on_closed(void *user, const char *why)
{
    (void)why;
    forget(user);
}

static const struct sp_link_ops link_ops = {on_message, on_not_text, on_drained, on_closed};

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
    c->peer = sp_mcp_peer_new(lines->mcp, c->caller);
    if (c->peer == NULL) {
        sp_mcp_caller_release(c->caller);
        free(c);
        return false;
    }
    c->out = (struct sp_mcp_out){.send = on_send, .is_full = is_out_full};
    sp_mcp_peer_set_out(c->peer, &c->out);
    c->lines = lines;
    c->link = l;
    c->next = lines->conns;
    if (c->next != NULL)
        c->next->prev = c;
    lines->conns = c;
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

/* ---- life ---- */

static int read_path(const char *path, struct sp_listen_url *ret, struct sp_err *e)
{
    auto_buf struct sp_buf url = {0};

    if (path[0] != '/')
        return sp_fail(e, SP_E_INVALID, 0, "the socket's path must be absolute: %s", path);
    if (!sp_buf_printf(&url, "unix://%s", path) || !sp_buf_add(&url, "", 1))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "listen on %s", path);
    return sp_listen_parse(url.data, ret, e);
}

static int start(struct sp_mcp_lines *lines, const struct sp_mcp_lines_options *o, struct sp_err *e)
{
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
    int r = o->path == NULL ? 0 : read_path(o->path, &url, e);

    if (r < 0)
        return r;
    if (o->path != NULL)
        return sp_listener_new(sp_mcp_options(lines->mcp)->loop, &url, &lo, &lines->listener, e);
    /* The pipes are opened within: a caller that cannot be is to be told here, not later. */
    r = sp_mcp_caller_hold(lines->mcp, sp_str_of(lines->identity), &caller, e);
    if (r < 0)
        return r;
    r = sp_listener_new(sp_mcp_options(lines->mcp)->loop, &url, &lo, &lines->listener, e);
    sp_mcp_caller_release(caller);
    return r;
}

int sp_mcp_lines_new(struct sp_mcp *m, const struct sp_mcp_lines_options *o,
                     struct sp_mcp_lines **ret, struct sp_err *e)
{
    struct sp_mcp_lines *lines = calloc(1, sizeof *lines);

    if (lines == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make server");
    lines->mcp = m;
    lines->user = o->user;
    lines->finished = o->finished;
    /* Nobody else may connect, so that is who everybody is. */
    if (o->path == NULL)
        (void)snprintf(lines->identity, sizeof lines->identity, "stdio");
    else
        (void)snprintf(lines->identity, sizeof lines->identity, "uid %u", geteuid());
    const int r = start(lines, o, e);
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
    for (struct conn *c = l->conns; c != NULL; c = c->next)
        sp_mcp_peer_close_subscriptions(c->peer);
    sp_listener_free(l->listener); /* which closes every connection, and that forgets it */
    sp_mcp_message_done(&l->message);
    free(l);
}

const char *sp_mcp_lines_url(const struct sp_mcp_lines *l)
{
    return sp_listener_url(l->listener);
}

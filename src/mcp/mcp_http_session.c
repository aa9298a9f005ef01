/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_session: what a legacy client calls its session: a peer that outlives its requests, found
 * by a name that nobody can guess and that only its token may use.
 *
 * One that nobody uses is no connection: its caller may end meanwhile, and it goes on with the
 * next.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/auto.h"
#include "base/sha.h"
#include "mcp/mcp_http_priv.h"

static void on_expiry(struct sp_timer *t);

int sp_mcp_http_hold(struct sp_mcp_http *h, unsigned token, struct sp_mcp_caller **ret,
                     struct sp_err *e)
{
    char identity[32];

    (void)snprintf(identity, sizeof identity, "token %u", token);
    return sp_mcp_caller_hold(h->mcp, sp_str_of(identity), ret, e);
}

/* ---- the list ---- */

static void link_first(struct sp_mcp_session *s)
{
    struct sp_mcp_http *h = s->http;

    s->prev = NULL;
    s->next = h->sessions;
    if (s->next != NULL)
        s->next->prev = s;
    h->sessions = s;
}

static void unlink_session(struct sp_mcp_session *s)
{
    if (s->prev != NULL)
        s->prev->next = s->next;
    else
        s->http->sessions = s->next;
    if (s->next != NULL)
        s->next->prev = s->prev;
}

static void touch(struct sp_mcp_session *s)
{
    s->used_ms = sp_loop_now(s->http->loop);
    if (!s->is_known)
        return;
    unlink_session(s);
    link_first(s);
}

static void destroy(struct sp_mcp_session *s)
{
    struct sp_mcp_caller *held = s->users != 0 ? s->guest.caller : NULL;

    if (s->is_known) {
        unlink_session(s);
        s->http->session_count--;
    }
    sp_mcp_peer_free(s->peer);
    sp_mcp_guest_leave(&s->guest);
    if (held != NULL)
        sp_mcp_caller_release(held);
    free(s);
}

/* ---- its caller ---- */

static void on_caller_ends(struct sp_mcp_guest *g)
{
    sp_mcp_peer_move(SP_CONTAINER(g, struct sp_mcp_session, guest)->peer, NULL);
}

/* For its first user. */
static int hold_caller(struct sp_mcp_session *s, struct sp_err *e)
{
    struct sp_mcp_caller *c = NULL;
    const int r = sp_mcp_http_hold(s->http, s->token, &c, e);

    if (r < 0)
        return r;
    if (s->guest.caller == NULL) {
        sp_mcp_guest_enter(&s->guest, c);
        if (s->peer != NULL)
            sp_mcp_peer_move(s->peer, c);
    }
    return 0;
}

/* ---- time ---- */

/* Without memory for the timer they stay until there are too many. */
static void arm(struct sp_mcp_http *h, uint64_t due_ms)
{
    (void)sp_loop_timer(h->loop, &h->expiry, due_ms, on_expiry);
}

static void on_expiry(struct sp_timer *t)
{
    struct sp_mcp_http *h = SP_CONTAINER(t, struct sp_mcp_http, expiry);
    const uint64_t now = sp_loop_now(h->loop);
    uint64_t due = now + SP_MCP_HTTP_SESSION_MS;
    struct sp_mcp_session *next;

    for (struct sp_mcp_session *s = h->sessions; s != NULL; s = next) {
        const uint64_t end = s->used_ms + SP_MCP_HTTP_SESSION_MS;

        next = s->next;
        if (s->users != 0)
            continue;
        if (end <= now)
            destroy(s);
        else if (end < due)
            due = end;
    }
    if (h->sessions != NULL)
        arm(h, due);
}

/* false: all are in use. */
static bool make_room(struct sp_mcp_http *h)
{
    struct sp_mcp_session *oldest = NULL;

    if (h->session_count < SP_MCP_HTTP_SESSIONS_MAX)
        return true;
    for (struct sp_mcp_session *s = h->sessions; s != NULL; s = s->next)
        if (s->users == 0)
            oldest = s;
    if (oldest == NULL)
        return false;
    destroy(oldest);
    return true;
}

/* ---- life ---- */

static bool make_id(char ret[SP_MCP_HTTP_ID_LEN + 1])
{
    unsigned char random[SP_MCP_HTTP_ID_LEN / 2];

    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return false;
    for (size_t i = 0; i < sizeof random; i++)
        (void)snprintf(ret + 2 * i, 3, "%02x", random[i]);
    return true;
}

int sp_mcp_session_new(struct sp_mcp_http *h, unsigned token, struct sp_mcp_session **ret,
                       struct sp_err *e)
{
    if (!make_room(h))
        return sp_fail(e, SP_E_LIMIT, 0, "all %u sessions are in use", SP_MCP_HTTP_SESSIONS_MAX);
    struct sp_mcp_session *s = calloc(1, sizeof *s);
    if (s == NULL || !make_id(s->id)) {
        free(s);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make session");
    }
    s->http = h;
    s->token = token;
    s->guest.caller_ends = on_caller_ends;
    s->used_ms = sp_loop_now(h->loop);
    const int r = hold_caller(s, e);
    if (r < 0) {
        free(s);
        return r;
    }
    s->users = 1;
    s->peer = sp_mcp_peer_new(h->mcp, s->guest.caller);
    if (s->peer == NULL) {
        destroy(s);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make session");
    }
    *ret = s;
    return 0;
}

void sp_mcp_session_publish(struct sp_mcp_session *s)
{
    struct sp_mcp_http *h = s->http;

    if (s->is_known)
        return;
    s->is_known = true;
    link_first(s);
    h->session_count++;
    if (h->expiry.slot == 0)
        arm(h, sp_loop_now(h->loop) + SP_MCP_HTTP_SESSION_MS);
}

struct sp_mcp_session *sp_mcp_session_use(struct sp_mcp_http *h, unsigned token, struct sp_str id)
{
    struct sp_mcp_session *found = NULL;

    for (struct sp_mcp_session *s = h->sessions; s != NULL; s = s->next)
        if (sp_same_secret(id, (struct sp_str){s->id, SP_MCP_HTTP_ID_LEN}) && s->token == token)
            found = s;
    if (found == NULL || (found->users == 0 && hold_caller(found, NULL) < 0))
        return NULL;
    found->users++;
    touch(found);
    return found;
}

void sp_mcp_session_leave(struct sp_mcp_session *s)
{
    touch(s);
    if (!s->is_known && s->users == 1)
        destroy(s);
    else if (--s->users == 0)
        sp_mcp_caller_release(s->guest.caller);
}

void sp_mcp_session_end(struct sp_mcp_session *s)
{
    for (struct sp_mcp_conn *c = s->http->conns; c != NULL; c = c->next) {
        if (c->session != s)
            continue;
        if (c->is_asked) {
            sp_mcp_peer_out_gone(s->peer, &c->out);
            sp_mcp_http_abandon(c, 404, "the session was ended");
            c->is_asked = false; /* also if it has just broken */
        }
        c->session = NULL;
        c->peer = NULL;
    }
    destroy(s);
}

void sp_mcp_sessions_done(struct sp_mcp_http *h)
{
    sp_loop_cancel(h->loop, &h->expiry);
    while (h->sessions != NULL)
        destroy(h->sessions);
}

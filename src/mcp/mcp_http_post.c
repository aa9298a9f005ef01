/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_post: a request that is whole finds its peer: one of its own if it is modern, since nothing
 * may be remembered from one to the next; that of its session if it is legacy.
 */
#include <stdio.h>
#include <string.h>

#include "mcp/mcp_http_priv.h"

#define INVALID_REQUEST (-32600)
#define INTERNAL_ERROR  (-32603)
#define HEADER_MISMATCH (-32020)

static void refuse(struct sp_mcp_conn *c, unsigned status, const char *why)
{
    sp_mcp_http_refuse(c, status, status >= 500 ? INTERNAL_ERROR : INVALID_REQUEST, why, NULL);
}

/* ---- sessions ---- */

/* How many the head names; at most one is right. */
static unsigned session_id(const struct sp_mcp_conn *c, struct sp_str *ret)
{
    *ret = (struct sp_str){"", 0};
    return sp_http_header(&c->request, "mcp-session-id", ret);
}

/* The session that the head names, with one user more. NULL: the answer says why. */
static struct sp_mcp_session *find_session(struct sp_mcp_conn *c)
{
    struct sp_str id;
    const unsigned ids = session_id(c, &id);

    if (ids != 1) {
        refuse(c, 400,
               ids == 0 ? "MCP-Session-Id is missing; it comes with the answer to initialize"
                        : "MCP-Session-Id must be given once");
        return NULL;
    }
    struct sp_mcp_session *s = sp_mcp_session_use(c->http, c->verdict.token, id);
    if (s == NULL)
        refuse(c, 404, "no such session; initialize makes one");
    return s;
}

static void serve_delete(struct sp_mcp_conn *c)
{
    struct sp_mcp_session *s = find_session(c);

    if (s == NULL)
        return;
    sp_mcp_session_end(s);
    sp_mcp_http_answer_empty(c, 204);
}

/* ---- whose is it? ---- */

static bool is_legacy_version(struct sp_str version)
{
    const size_t n = sizeof SP_MCP_MODERN - 1; /* dates: the order of text is that of time */

    return version.n == 0 || (version.n == n && memcmp(version.p, SP_MCP_MODERN, n) < 0);
}

/* What is neither modern nor of a session is judged by a peer that remembers nothing. */
static bool is_of_session(const struct sp_mcp_conn *c, const struct sp_mcp_message *m,
                          const struct sp_mcp_headers *h)
{
    struct sp_str id;

    if (m->is_modern || m->kind == SP_MCP_BROKEN)
        return false;
    if (session_id(c, &id) != 0)
        return true;
    return m->kind != SP_MCP_BATCH && is_legacy_version(h->version);
}

static bool is_initialize(const struct sp_mcp_message *m)
{
    return m->kind == SP_MCP_REQUEST && !m->is_modern && sp_str_eq(m->method, SP_STR("initialize"));
}

static bool begin_session(struct sp_mcp_conn *c)
{
    struct sp_err e = {0};

    if (sp_mcp_session_new(c->http, c->verdict.token, &c->session, &e) < 0) {
        refuse(c, 503, "there are too many sessions or callers; try again later");
        return false;
    }
    return true;
}

static bool begin_alone(struct sp_mcp_conn *c)
{
    if (sp_mcp_http_hold(c->http, c->verdict.token, &c->caller, NULL) < 0) {
        refuse(c, 503, "there are too many callers; try again later");
        return false;
    }
    c->peer = sp_mcp_peer_new(c->http->mcp, c->caller);
    if (c->peer == NULL) {
        refuse(c, 503, "no memory");
        return false;
    }
    return true;
}

static bool find_peer(struct sp_mcp_conn *c, const struct sp_mcp_message *m,
                      const struct sp_mcp_headers *h)
{
    if (is_initialize(m)) {
        if (!begin_session(c))
            return false;
    } else if (is_of_session(c, m, h)) {
        c->session = find_session(c);
        if (c->session == NULL)
            return false;
    } else {
        return begin_alone(c);
    }
    c->peer = c->session->peer;
    return true;
}

/* ---- one message ---- */

static void serve_message(struct sp_mcp_conn *c, char *text, size_t len)
{
    struct sp_mcp_message *m = &c->http->message;
    auto_buf struct sp_buf name = {0};
    struct sp_mcp_headers headers;
    const char *why = sp_mcp_gate_headers(&c->request, &name, &headers);

    if (why != NULL) {
        sp_mcp_http_refuse(c, 400, HEADER_MISMATCH, why, NULL);
        return;
    }
    sp_mcp_message_read(m, text, len);
    if (!find_peer(c, m, &headers))
        return;
    c->out = (struct sp_mcp_out){.send = sp_mcp_http_send,
                                 .is_full = sp_mcp_http_is_full,
                                 .cancelled = sp_mcp_http_cancelled};
    c->is_asked = true;
    sp_mcp_conn_enter(c, SP_MCP_CONN_ANSWERING);
    if (!sp_mcp_take(c->peer, &c->out, &headers, m)) {
        c->is_asked = false;
        if (c->phase == SP_MCP_CONN_ANSWERING)
            sp_mcp_http_answer_empty(c, 202);
    }
}

static void serve_post(struct sp_mcp_conn *c)
{
    char *room = sp_buf_room(&c->body, 1); /* for the byte behind the text */

    if (room == NULL) {
        refuse(c, 503, "no memory");
        return;
    }
    *room = 0;
    serve_message(c, c->body.data, c->body.len);
    sp_json_trim(&c->http->message.json);
    sp_buf_done(&c->body);
}

void sp_mcp_http_serve(struct sp_mcp_conn *c)
{
    if (c->verdict.verb == SP_MCP_DELETE)
        serve_delete(c);
    else
        serve_post(c);
}

void sp_mcp_http_let_go(struct sp_mcp_conn *c)
{
    struct sp_mcp_session *s = c->session;
    struct sp_mcp_peer *own = s == NULL ? c->peer : NULL;
    struct sp_mcp_caller *caller = c->caller;

    if (c->is_asked)
        sp_mcp_peer_out_gone(c->peer, &c->out);
    c->is_asked = false;
    c->session = NULL;
    c->peer = NULL;
    c->caller = NULL;
    if (own != NULL)
        sp_mcp_peer_free(own);
    if (s != NULL)
        sp_mcp_session_leave(s);
    if (caller != NULL)
        sp_mcp_caller_release(caller);
}

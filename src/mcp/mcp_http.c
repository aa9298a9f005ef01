/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_http: the listening socket, legacy sessions, and which peer a complete request belongs to.
 *
 * A modern request gets a peer of its own, because nothing may be remembered between two of them. A
 * legacy request uses the peer of its session, named by an id that cannot be guessed and that only
 * its own token may use. An unused session does not hold its caller: the caller may end meanwhile,
 * and the session continues with a new one.
 *
 * Limits: at most `max` connections are served. A new one above that evicts the oldest connection
 * that has not shown a token yet; if there is none it is answered with 503, and above `max` plus
 * SPARE it is closed without an answer. So clients without a token cannot lock out the others.
 */
#include "mcp/mcp_http.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/base64.h"
#include "base/sha.h"
#include "mcp/mcp_http_priv.h"

#define SPARE            64U /* connections above the limit that get a 503; more are closed */
#define ENCODED_BEGIN    "=?base64?" /* of an Mcp-Name that is not plain ASCII */
#define ENCODED_END      "?="
#define SCHEME           "http://"
#define INVALID_REQUEST  (-32600)
#define INTERNAL_ERROR   (-32603)
#define HEADER_MISMATCH  (-32020)
#define session_of(item) SP_CONTAINER(item, struct sp_mcp_session, link)

/* ---- accepting ---- */

/* Makes room by dropping the oldest connection that has not shown a token: such connections must
 * not keep clients with a token out. */
static bool evict_untrusted(struct sp_mcp_http *h)
{
    struct sp_mcp_conn *oldest = NULL;

    sp_list_each(i, &h->conns) {
        struct sp_mcp_conn *c = SP_CONTAINER(i, struct sp_mcp_conn, link);

        if (!c->is_trusted && !c->is_over && c->phase != SP_MCP_CONN_GONE)
            oldest = c;
    }
    if (oldest != NULL)
        sp_mcp_conn_drop(oldest);
    return oldest != NULL;
}

static void on_accepted(struct sp_acceptor *a, int fd, const char *peer)
{
    struct sp_mcp_http *h = SP_CONTAINER(a, struct sp_mcp_http, acceptor);
    bool is_over = h->total - h->over >= h->max;

    (void)peer;
    if (is_over && evict_untrusted(h))
        is_over = false;
    else if (h->total >= SPARE && h->total - SPARE >= h->max) {
        (void)close(fd);
        return;
    }
    sp_mcp_conn_new(h, fd, is_over);
}

/* ---- legacy sessions ---- */

static void on_expiry(struct sp_timer *t);

static int hold_caller_of_token(struct sp_mcp_http *h, unsigned token, struct sp_mcp_caller **ret,
                                struct sp_err *e)
{
    char identity[32];

    (void)snprintf(identity, sizeof identity, "token %u", token);
    return sp_mcp_caller_hold(h->mcp, sp_str_of(identity), ret, e);
}

static void touch_session(struct sp_mcp_session *s)
{
    s->used_ms = sp_loop_now(s->http->loop);
    if (!s->is_known)
        return;
    sp_list_remove(&s->link);
    sp_list_prepend(&s->http->sessions, &s->link);
}

static void free_session(struct sp_mcp_session *s)
{
    struct sp_mcp_caller *held = s->users != 0 ? s->watch.caller : NULL;

    sp_list_remove(&s->link);
    s->http->session_count -= s->is_known;
    sp_mcp_peer_free(s->peer);
    sp_mcp_caller_watch_remove(&s->watch);
    if (held != NULL)
        sp_mcp_caller_release(held);
    free(s);
}

static void on_caller_ends(struct sp_mcp_caller_watch *w)
{
    sp_mcp_peer_move(SP_CONTAINER(w, struct sp_mcp_session, watch)->peer, NULL);
}

/* For the first user of a session; its caller may have ended since the last one. */
static int hold_caller(struct sp_mcp_session *s, struct sp_err *e)
{
    struct sp_mcp_caller *c = NULL;
    const int r = hold_caller_of_token(s->http, s->token, &c, e);

    if (r < 0)
        return r;
    if (s->watch.caller == NULL) {
        sp_mcp_caller_watch_add(&s->watch, c);
        if (s->peer != NULL)
            sp_mcp_peer_move(s->peer, c);
    }
    return 0;
}

static void on_expiry(struct sp_timer *t)
{
    struct sp_mcp_http *h = SP_CONTAINER(t, struct sp_mcp_http, expiry);
    const uint64_t now = sp_loop_now(h->loop);
    uint64_t due = now + SP_MCP_HTTP_SESSION_MS;

    sp_list_each_safe(i, &h->sessions) {
        struct sp_mcp_session *s = session_of(i);
        const uint64_t end = s->used_ms + SP_MCP_HTTP_SESSION_MS;

        if (s->users == 0 && end <= now)
            free_session(s);
        else if (s->users == 0 && end < due)
            due = end;
    }
    /* Without memory for the timer, sessions stay until the limit evicts them. */
    if (!sp_list_is_empty(&h->sessions))
        (void)sp_loop_timer(h->loop, &h->expiry, due, on_expiry);
}

/* false: the limit is reached and every session is in use. */
static bool make_room_for_session(struct sp_mcp_http *h)
{
    struct sp_mcp_session *oldest = NULL;

    if (h->session_count < SP_MCP_HTTP_SESSIONS_MAX)
        return true;
    sp_list_each(i, &h->sessions) {
        if (session_of(i)->users == 0)
            oldest = session_of(i);
    }
    if (oldest != NULL)
        free_session(oldest);
    return oldest != NULL;
}

/* An unpublished session with one user. NULL: no room, no memory, or too many callers. */
static struct sp_mcp_session *new_session(struct sp_mcp_http *h, unsigned token)
{
    unsigned char random[SP_MCP_HTTP_ID_LEN / 2];

    if (!make_room_for_session(h) || getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return NULL;
    auto_free struct sp_mcp_session *s = calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    for (size_t i = 0; i < sizeof random; i++)
        (void)snprintf(s->id + 2 * i, 3, "%02x", random[i]);
    s->http = h;
    s->token = token;
    s->watch.ended = on_caller_ends;
    s->used_ms = sp_loop_now(h->loop);
    if (hold_caller(s, NULL) < 0)
        return NULL;
    s->users = 1;
    s->peer = sp_mcp_peer_new(h->mcp, s->watch.caller);
    if (s->peer == NULL) {
        free_session(TAKE_PTR(s));
        return NULL;
    }
    return TAKE_PTR(s);
}

void sp_mcp_session_publish(struct sp_mcp_session *s)
{
    struct sp_mcp_http *h = s->http;

    if (s->is_known)
        return;
    s->is_known = true;
    sp_list_prepend(&h->sessions, &s->link);
    h->session_count++;
    if (h->expiry.slot == 0)
        (void)sp_loop_timer(h->loop, &h->expiry, sp_loop_now(h->loop) + SP_MCP_HTTP_SESSION_MS,
                            on_expiry);
}

/* An unpublished session ends with its only user. Not from within `send`. */
static void leave_session(struct sp_mcp_session *s)
{
    touch_session(s);
    if (!s->is_known && s->users == 1)
        free_session(s);
    else if (--s->users == 0)
        sp_mcp_caller_release(s->watch.caller);
}

/* Open requests of the session are answered with 404. Not from within `send`. */
static void end_session(struct sp_mcp_session *s)
{
    sp_list_each(i, &s->http->conns) {
        struct sp_mcp_conn *c = SP_CONTAINER(i, struct sp_mcp_conn, link);

        if (c->session != s)
            continue;
        if (c->is_asked) {
            sp_mcp_peer_out_gone(s->peer, &c->out);
            sp_mcp_conn_abandon(c, 404, "the session was ended");
            c->is_asked = false; /* also if the connection broke in this turn */
        }
        c->session = NULL;
        c->peer = NULL;
    }
    free_session(s);
}

/* ---- requests ---- */

static void refuse(struct sp_mcp_conn *c, unsigned status, const char *why)
{
    sp_mcp_conn_refuse(c, status, status >= 500 ? INTERNAL_ERROR : INVALID_REQUEST, why, NULL);
}

/* The session named by the head, with one more user. NULL: the request has been refused. */
static struct sp_mcp_session *use_session(struct sp_mcp_conn *c)
{
    struct sp_mcp_session *found = NULL;
    struct sp_str id = {"", 0};
    const unsigned ids = sp_http_header(&c->request, "mcp-session-id", &id);

    if (ids != 1) {
        refuse(c, 400,
               ids == 0 ? "MCP-Session-Id is missing; it comes with the answer to initialize"
                        : "MCP-Session-Id must be given once");
        return NULL;
    }
    sp_list_each(i, &c->http->sessions) {
        struct sp_mcp_session *s = session_of(i);

        if (sp_same_secret(id, (struct sp_str){s->id, SP_MCP_HTTP_ID_LEN}) &&
            s->token == c->verdict.token)
            found = s;
    }
    if (found == NULL || (found->users == 0 && hold_caller(found, NULL) < 0)) {
        refuse(c, 404, "no such session; initialize makes one");
        return NULL;
    }
    found->users++;
    touch_session(found);
    return found;
}

/* Whether a message belongs to a legacy session. A message that is neither modern nor of a session
 * goes to a peer without history, which refuses it. */
static bool is_of_session(const struct sp_mcp_conn *c, const struct sp_mcp_message *m,
                          struct sp_str version)
{
    const size_t n = sizeof SP_MCP_MODERN - 1; /* versions are dates: text order is time order */
    struct sp_str id = {"", 0};

    if (m->is_modern || m->kind == SP_MCP_BROKEN)
        return false;
    if (sp_http_header(&c->request, "mcp-session-id", &id) != 0)
        return true;
    return m->kind != SP_MCP_BATCH &&
           (version.n == 0 || (version.n == n && memcmp(version.p, SP_MCP_MODERN, n) < 0));
}

/* Sets c->peer, with c->session or c->caller. false: the request has been refused. */
static bool find_peer(struct sp_mcp_conn *c, const struct sp_mcp_message *m, struct sp_str version)
{
    if (m->kind == SP_MCP_REQUEST && !m->is_modern && sp_str_eq(m->method, SP_STR("initialize"))) {
        c->session = new_session(c->http, c->verdict.token);
        if (c->session == NULL)
            refuse(c, 503, "there are too many sessions or callers; try again later");
    } else if (is_of_session(c, m, version)) {
        c->session = use_session(c);
    } else {
        if (hold_caller_of_token(c->http, c->verdict.token, &c->caller, NULL) < 0) {
            refuse(c, 503, "there are too many callers; try again later");
            return false;
        }
        c->peer = sp_mcp_peer_new(c->http->mcp, c->caller);
        if (c->peer == NULL)
            refuse(c, 503, "no memory");
        return c->peer != NULL;
    }
    if (c->session != NULL)
        c->peer = c->session->peer;
    return c->session != NULL;
}

/* Mcp-Name may be written as =?base64?...?=. */
static bool decode_name(struct sp_buf *to, struct sp_str *name)
{
    const size_t around = sizeof ENCODED_BEGIN - 1 + sizeof ENCODED_END - 1;
    size_t n = 0;

    if (name->n < around || memcmp(name->p, ENCODED_BEGIN, sizeof ENCODED_BEGIN - 1) != 0 ||
        memcmp(name->p + name->n - 2, ENCODED_END, sizeof ENCODED_END - 1) != 0)
        return true; /* not encoded */
    const struct sp_str text = {name->p + sizeof ENCODED_BEGIN - 1, name->n - around};
    char *room = sp_buf_room(to, text.n + 1);
    if (room == NULL || sp_base64_decode(text, room, &n, NULL) < 0)
        return false;
    *name = (struct sp_str){room, n};
    return true;
}

/* Reads the headers that must agree with the body; `name` holds a decoded Mcp-Name. Returns NULL,
 * or what is wrong. */
static const char *read_headers(const struct sp_http_request *r, struct sp_buf *name,
                                struct sp_mcp_headers *ret)
{
    *ret = (struct sp_mcp_headers){0};
    if (sp_http_header(r, "mcp-protocol-version", &ret->version) > 1)
        return "MCP-Protocol-Version must be given once";
    if (sp_http_header(r, "mcp-method", &ret->method) > 1)
        return "Mcp-Method must be given once";
    if (sp_http_header(r, "mcp-name", &ret->name) > 1)
        return "Mcp-Name must be given once";
    ret->is_name_broken = !decode_name(name, &ret->name);
    return NULL;
}

static void serve_message(struct sp_mcp_conn *c)
{
    struct sp_mcp_message *m = &c->http->message;
    auto_buf struct sp_buf name = {0};
    struct sp_mcp_headers headers;
    const char *why = read_headers(&c->request, &name, &headers);

    if (why != NULL) {
        sp_mcp_conn_refuse(c, 400, HEADER_MISMATCH, why, NULL);
        return;
    }
    sp_mcp_message_read(m, c->body.data, c->body.len);
    if (find_peer(c, m, headers.version))
        sp_mcp_conn_ask_peer(c, &headers, m);
}

void sp_mcp_http_serve(struct sp_mcp_conn *c)
{
    if (c->verdict.verb == SP_MCP_DELETE) {
        struct sp_mcp_session *s = use_session(c);

        if (s != NULL) {
            end_session(s);
            sp_mcp_conn_answer_empty(c, 204);
        }
        return;
    }
    char *room = sp_buf_room(&c->body, 1); /* the parser needs a writable byte after the text */
    if (room == NULL) {
        refuse(c, 503, "no memory");
        return;
    }
    *room = 0;
    serve_message(c);
    sp_json_trim(&c->http->message.json);
    sp_buf_done(&c->body);
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
        leave_session(s);
    if (caller != NULL)
        sp_mcp_caller_release(caller);
}

/* ---- start and end ---- */

static unsigned count_texts(const char *const *list)
{
    unsigned n = 0;

    while (list != NULL && list[n] != NULL)
        n++;
    return n;
}

static int init_gate(struct sp_mcp_gate *g, const struct sp_mcp_http_options *o, struct sp_err *e)
{
    const unsigned tokens = count_texts(o->tokens);
    const unsigned origins = count_texts(o->origins);

    if (tokens == 0)
        return sp_fail(e, SP_E_INVALID, 0, "HTTP needs at least one token");
    g->digests = calloc(tokens, sizeof *g->digests);
    if (g->digests == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "keep tokens");
    for (unsigned i = 0; i < tokens; i++) {
        if (o->tokens[i][0] == 0)
            return sp_fail(e, SP_E_INVALID, 0, "token %u is empty", i + 1);
        sp_sha256(sp_str_of(o->tokens[i]), g->digests[i]);
    }
    g->tokens = tokens;
    g->origins = calloc(origins + 1U, sizeof *g->origins);
    if (g->origins == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "keep origins");
    for (unsigned i = 0; i < origins; i++)
        if ((g->origins[i] = strdup(o->origins[i])) == NULL)
            return sp_fail(e, SP_E_SYSTEM, ENOMEM, "keep origins");
    return 0;
}

static void free_gate(struct sp_mcp_gate *g)
{
    for (char **o = g->origins; o != NULL && *o != NULL; o++)
        free(*o);
    free(g->origins);
    free(g->digests);
}

/* Splits "127.0.0.1:80/mcp" into an address and a path. */
static bool read_url(const char *rest, struct sp_listen_url *ret, const char **ret_path)
{
    const char *slash = strchr(rest, '/');
    const size_t n = slash == NULL ? strlen(rest) : (size_t)(slash - rest);
    const bool is_local = strncmp(rest, "localhost:", 10) == 0;
    const size_t skip = is_local ? 9 : 0;
    char address[128];

    if (n >= sizeof address - 16 || n < skip)
        return false;
    (void)snprintf(address, sizeof address, "ws://%s%.*s", is_local ? "127.0.0.1" : "",
                   (int)(n - skip), rest + skip);
    *ret_path = slash == NULL ? "/" : slash;
    for (const char *p = *ret_path; *p != 0; p++)
        if (*p <= ' ' || *p > '~' || *p == '?' || *p == '#')
            return false;
    return strlen(*ret_path) <= SP_MCP_HTTP_PATH_MAX && sp_listen_parse(address, ret, NULL) == 0;
}

static int listen_on(struct sp_mcp_http *h, const struct sp_mcp_http_options *o, struct sp_err *e)
{
    struct sp_listen_url url;
    struct sp_err why = {0};
    const char *path = "/";

    if (strncmp(o->url, SCHEME, sizeof SCHEME - 1) != 0 ||
        !read_url(o->url + sizeof SCHEME - 1, &url, &path))
        return sp_fail(e, SP_E_INVALID, 0,
                       "`%s` is no URL to listen on; expected http://IP:PORT/PATH", o->url);
    if (!url.is_loopback && !o->allows_remote)
        return sp_fail(e, SP_E_INVALID, 0,
                       "%s can be reached from other machines; use 127.0.0.1, or --allow-remote "
                       "behind something that encrypts",
                       o->url);
    h->gate.is_loopback = url.is_loopback;
    (void)snprintf(h->gate.path, sizeof h->gate.path, "%s", path);
    if (sp_acceptor_open(&h->acceptor, h->loop, &url, on_accepted, &why) < 0)
        return sp_fail(e, why.code, why.sys, "listen on %s", o->url);
    (void)snprintf(h->url, sizeof h->url, SCHEME "%s%s", h->acceptor.url + sizeof "ws://" - 1,
                   path);
    return 0;
}

int sp_mcp_http_new(struct sp_mcp *m, const struct sp_mcp_http_options *o, struct sp_mcp_http **ret,
                    struct sp_err *e)
{
    struct sp_mcp_http *h = calloc(1, sizeof *h);

    if (h == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make server");
    h->mcp = m;
    h->loop = sp_mcp_options(m)->loop;
    h->max = o->max_connections;
    sp_list_init(&h->conns);
    sp_list_init(&h->sessions);
    int r = init_gate(&h->gate, o, e);
    if (r == 0)
        r = listen_on(h, o, e);
    if (r < 0) {
        sp_mcp_http_free(h);
        return r;
    }
    *ret = h;
    return 0;
}

void sp_mcp_http_free(struct sp_mcp_http *h)
{
    if (h == NULL)
        return;
    sp_acceptor_done(&h->acceptor);
    sp_list_each_safe(i, &h->conns)
        sp_mcp_conn_end_now(SP_CONTAINER(i, struct sp_mcp_conn, link));
    sp_loop_cancel(h->loop, &h->expiry);
    sp_list_each_safe(i, &h->sessions)
        free_session(session_of(i));
    free_gate(&h->gate);
    sp_mcp_message_done(&h->message);
    free(h);
}

const char *sp_mcp_http_url(const struct sp_mcp_http *h)
{
    return h->url;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_http: connections, their requests and answers; legacy sessions; and which peer a complete
 * request belongs to.
 *
 *   HEAD --> BODY --> ANSWERING --> SENDING --> HEAD ...
 *     '--refused---------------------^ |
 *                                      '--last--> LINGER --> GONE (from any phase on an error)
 *
 * One request at a time: the next one is not read before the answer has been sent, so a client that
 * sends requests without reading answers stops itself. A request whose first message is its answer
 * gets one JSON object. A request that hears messages before its answer gets an event stream, in
 * chunks, with the answer as its last event.
 *
 * Callbacks only change state; on_turn_end, deferred by conn_schedule, then sends, moves to the
 * next phase, arms the deadline and frees. So a connection is never freed while a caller still uses
 * it.
 *
 * The server's other connections (server/net/link.h) share the acceptor, the parsers of head and
 * body, the check of Host and the output queue, but not this machine: a link answers one request
 * and then carries messages both ways until it ends, while a connection here is reused for many
 * requests, with bodies, keep-alive, streams and their deadlines.
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

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/base64.h"
#include "base/sha.h"
#include "mcp/mcp_http_gate.h"
#include "mcp/peer.h"
#include "server/net/acceptor.h"
#include "server/net/frames.h"
#include "server/net/http_body.h"

#define HEAD_MS         10000U /* from its first byte; for the first head from accept */
#define BODY_MS         30000U
#define IDLE_MS         60000U /* between two requests */
#define STALL_MS        60000U /* without progress of the output */
#define LINGER_MS       2000U
#define LINGER_BYTES    (SP_MCP_HTTP_BODY_MAX + SP_HTTP_MAX_HEAD) /* read and discarded */
#define FULL_BYTES      (256U << 10)                              /* queued: progress is skipped */
#define QUEUED_MAX      (64U << 20)                               /* above: the connection ends */
#define SCRATCH         (64U << 10)
#define SPARE           64U /* connections above the limit that get a 503; more are closed */
#define ID_LEN          32  /* of a session: 128 bits in hexadecimal */
#define ENCODED_BEGIN   "=?base64?" /* of an Mcp-Name that is not plain ASCII */
#define ENCODED_END     "?="
#define SCHEME          "http://"
#define INVALID_REQUEST (-32600)
#define INTERNAL_ERROR  (-32603)
#define HEADER_MISMATCH (-32020)
#define NO_LENGTH       SIZE_MAX
#define JSON_TYPE       "content-type: application/json\r\n"
#define ALLOWED                                                           \
    "access-control-allow-methods: POST, DELETE\r\n"                      \
    "access-control-allow-headers: authorization, content-type, accept, " \
    "mcp-protocol-version, mcp-method, mcp-name, mcp-session-id\r\n"      \
    "access-control-max-age: 600\r\n"

/* A legacy session: a peer that outlives its requests. */
struct session {
    struct sp_mcp_http *http;
    struct sp_list link;              /* in http->sessions once is_known */
    struct sp_mcp_caller_watch watch; /* its caller is held only while users > 0 */
    struct sp_mcp_peer *peer;
    uint64_t used_ms;
    unsigned token; /* the owner; unknown to requests with any other token */
    unsigned users; /* open requests */
    bool is_known;  /* `initialize` succeeded, so requests can name it */
    char id[ID_LEN + 1];
};
#define session_of(item) SP_CONTAINER(item, struct session, link)

struct sp_mcp_http {
    struct sp_mcp *mcp;
    struct sp_loop *loop;
    struct sp_mcp_gate gate;
    struct sp_acceptor acceptor;
    struct sp_list conns; /* newest first */
    unsigned total, over; /* over: connections above max; they get a 503 */
    unsigned max;
    struct sp_list sessions; /* most recently used first */
    unsigned session_count;
    struct sp_timer expiry;
    struct sp_mcp_message message; /* reused for each message, one at a time */
    char url[128 + SP_MCP_HTTP_PATH_MAX];
    char scratch[SCRATCH];
};

enum phase { HEAD, BODY, ANSWERING, SENDING, LINGER, GONE };

struct conn {
    struct sp_mcp_out out; /* of the open request */
    struct sp_mcp_http *http;
    struct sp_list link;
    int fd;
    struct sp_watch watch;
    struct sp_timer tick;
    struct sp_deferred turn_end; /* flush, next phase, deadlines, free */
    struct sp_deferred again;    /* a pipelined request is already in `in` */

    struct sp_buf in; /* unread bytes */
    struct sp_http_parser parser;
    char *head; /* of the current request, until it is answered */
    struct sp_http_request request;
    struct sp_mcp_verdict verdict;
    struct sp_http_body framing;
    struct sp_buf body;

    struct sp_mcp_caller *caller; /* of a modern request; held */
    struct sp_mcp_peer *peer;     /* of the current request; NULL: none */
    struct session *session;      /* NULL: a modern request, which owns its peer */

    struct sp_outq outq;
    uint64_t since_ms; /* start of the phase */
    uint64_t moved_ms; /* last progress of the output */
    uint64_t said_ms;  /* last bytes queued on the stream */
    size_t lingered;
    enum phase phase;
    bool is_over;      /* above the limit: gets a 503 */
    bool has_served;   /* at least one request */
    bool is_trusted;   /* some request carried a valid token */
    bool is_last;      /* close after this answer */
    bool is_streaming; /* the head of an event stream has been sent */
    bool is_blocked;   /* the socket buffer is full */
    bool is_asked;     /* the peer owes an answer */
};

static void on_turn_end(struct sp_deferred *d);

static uint64_t now_of(const struct conn *c)
{
    return sp_loop_now(c->http->loop);
}

/* There is output, or the phase changed: on_turn_end runs in this turn of the loop. */
static void conn_schedule(struct conn *c)
{
    sp_loop_defer(c->http->loop, &c->turn_end, on_turn_end);
}

static void enter_phase(struct conn *c, enum phase phase)
{
    if (c->phase == GONE)
        return;
    c->phase = phase;
    c->since_ms = now_of(c);
    if (phase == GONE)
        sp_loop_unwatch(c->http->loop, &c->watch);
    conn_schedule(c);
}

/* ---- answers: everything is appended to c->outq ---- */

static void put(struct conn *c, struct sp_str bytes)
{
    if (c->phase == GONE || bytes.n == 0)
        return;
    if (sp_outq_size(&c->outq) == 0)
        c->moved_ms = now_of(c);
    if (bytes.n > QUEUED_MAX - sp_outq_size(&c->outq) || !sp_outq_raw(&c->outq, bytes.p, bytes.n))
        enter_phase(c, GONE);
}

/* more: header lines of this answer. length: of the body, or NO_LENGTH. */
static void put_head(struct conn *c, unsigned status, const char *more, size_t length)
{
    auto_buf struct sp_buf b = {0};
    bool ok = sp_buf_printf(&b, "HTTP/1.1 %u %s\r\ncache-control: no-store\r\n%s", status,
                            sp_http_reason(status), c->is_last ? "connection: close\r\n" : "");

    if (c->verdict.origin.n != 0)
        ok = ok && sp_buf_printf(&b,
                                 "access-control-allow-origin: " SP_STR_FMT
                                 "\r\naccess-control-expose-headers: mcp-session-id, "
                                 "www-authenticate\r\nvary: origin\r\n",
                                 SP_STR_ARG(c->verdict.origin));
    ok = ok && sp_buf_add_str(&b, sp_str_of(more));
    if (length != NO_LENGTH)
        ok = ok && sp_buf_printf(&b, "content-length: %zu\r\n", length);
    if (ok && sp_buf_add_str(&b, SP_STR("\r\n")))
        put(c, sp_buf_str(&b));
    else
        enter_phase(c, GONE);
}

static void end_answer(struct conn *c)
{
    c->is_asked = false;
    c->is_streaming = false;
    enter_phase(c, SENDING);
}

/* A complete answer that does not come from a peer. why NULL: no body. header: one line, or NULL.
 */
static void refuse_with(struct conn *c, unsigned status, int code, const char *why,
                        const char *header)
{
    char body[320] = "";
    char more[128];

    if (why != NULL) /* a literal of this program: nothing to escape */
        (void)snprintf(
            body, sizeof body,
            "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":%d,\"message\":\"%s\"}}", code,
            why);
    (void)snprintf(more, sizeof more, "%s%s", header != NULL ? header : "",
                   why != NULL ? JSON_TYPE : "");
    put_head(c, status, more, strlen(body));
    put(c, sp_str_of(body));
    end_answer(c);
}

static void refuse(struct conn *c, unsigned status, const char *why)
{
    refuse_with(c, status, status == 503 && !c->is_over ? INTERNAL_ERROR : INVALID_REQUEST, why,
                NULL);
}

/* Refuses a request without reading the rest of it; the connection closes. */
static void refuse_and_close(struct conn *c, unsigned status, const char *why)
{
    c->is_last = true;
    refuse(c, status, why);
}

/* HTTP/1.0 has no chunks: there the end of the connection ends the stream. */
static void put_chunk(struct conn *c, struct sp_str before, struct sp_str message,
                      struct sp_str after)
{
    char size[24];

    (void)snprintf(size, sizeof size, "%zx\r\n", before.n + message.n + after.n);
    if (!c->request.is_1_0)
        put(c, sp_str_of(size));
    put(c, before);
    put(c, message);
    put(c, after);
    if (!c->request.is_1_0)
        put(c, SP_STR("\r\n"));
    c->said_ms = now_of(c);
}

static void begin_stream(struct conn *c)
{
#define STREAM_TYPE "content-type: text/event-stream\r\nx-accel-buffering: no\r\n"
    if (c->is_streaming)
        return;
    c->is_streaming = true;
    put_head(c, 200, c->request.is_1_0 ? STREAM_TYPE : STREAM_TYPE "transfer-encoding: chunked\r\n",
             NO_LENGTH);
}

static void end_stream(struct conn *c)
{
    if (!c->request.is_1_0)
        put(c, SP_STR("0\r\n\r\n"));
    end_answer(c);
}

static void publish_session(struct session *s);

static void on_send(struct sp_mcp_out *o, struct sp_str message, unsigned status)
{
    struct conn *c = SP_CONTAINER(o, struct conn, out);
    char more[128] = JSON_TYPE;

    if (c->phase != ANSWERING)
        return; /* broken in this turn; let_go will tell the peer */
    if (!c->is_streaming && status != 0) {
        if (c->session != NULL && !c->session->is_known && sp_mcp_peer_version(c->peer) != NULL) {
            publish_session(c->session);
            (void)snprintf(more, sizeof more, "mcp-session-id: %s\r\n" JSON_TYPE, c->session->id);
        }
        put_head(c, status, more, message.n);
        put(c, message);
        end_answer(c);
        return;
    }
    begin_stream(c);
    put_chunk(c, SP_STR("event: message\ndata: "), message, SP_STR("\n\n"));
    if (status != 0)
        end_stream(c);
    conn_schedule(c);
}

static bool is_full(struct sp_mcp_out *o)
{
    return sp_outq_size(&SP_CONTAINER(o, struct conn, out)->outq) >= FULL_BYTES;
}

/* A cancelled request gets no answer: its stream ends without one. */
static void on_cancelled(struct sp_mcp_out *o)
{
    struct conn *c = SP_CONTAINER(o, struct conn, out);

    if (c->phase != ANSWERING)
        return;
    begin_stream(c);
    end_stream(c);
}

/* ---- legacy sessions ---- */

static int hold_caller_of_token(struct sp_mcp_http *h, unsigned token, struct sp_mcp_caller **ret)
{
    char identity[32];

    (void)snprintf(identity, sizeof identity, "token %u", token);
    return sp_mcp_caller_hold(h->mcp, sp_str_of(identity), ret, NULL);
}

static void free_session(struct session *s)
{
    struct sp_mcp_caller *held = s->users != 0 ? s->watch.caller : NULL;

    sp_list_remove(&s->link);
    s->http->session_count -= s->is_known;
    sp_mcp_peer_free(s->peer);
    sp_mcp_caller_watch(&s->watch, NULL);
    if (held != NULL)
        sp_mcp_caller_release(held);
    free(s);
}

static void on_caller_ends(struct sp_mcp_caller_watch *w)
{
    sp_mcp_peer_move(SP_CONTAINER(w, struct session, watch)->peer, NULL);
}

/* For the first user of a session; its caller may have ended since the last one. */
static bool hold_caller(struct session *s)
{
    struct sp_mcp_caller *c = NULL;

    if (hold_caller_of_token(s->http, s->token, &c) < 0)
        return false;
    if (s->watch.caller == NULL) {
        sp_mcp_caller_watch(&s->watch, c);
        if (s->peer != NULL)
            sp_mcp_peer_move(s->peer, c);
    }
    return true;
}

static void on_expiry(struct sp_timer *t)
{
    struct sp_mcp_http *h = SP_CONTAINER(t, struct sp_mcp_http, expiry);
    const uint64_t now = sp_loop_now(h->loop);
    uint64_t due = now + SP_MCP_HTTP_SESSION_MS;

    sp_list_each_safe(i, &h->sessions) {
        struct session *s = session_of(i);
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

/* An unpublished session with one user. NULL: no memory, too many callers, or the limit is reached
 * and every session is in use. */
static struct session *new_session(struct sp_mcp_http *h, unsigned token)
{
    struct session *oldest = NULL;

    if (h->session_count >= SP_MCP_HTTP_SESSIONS_MAX) {
        sp_list_each(i, &h->sessions) {
            if (session_of(i)->users == 0)
                oldest = session_of(i);
        }
        if (oldest == NULL)
            return NULL;
        free_session(oldest);
    }
    auto_free struct session *s = calloc(1, sizeof *s);
    if (s == NULL || !sp_hex_random(ID_LEN / 2, s->id))
        return NULL;
    s->http = h;
    s->token = token;
    s->watch.ended = on_caller_ends;
    s->used_ms = sp_loop_now(h->loop);
    if (!hold_caller(s))
        return NULL;
    s->users = 1;
    s->peer = sp_mcp_peer_new(h->mcp, s->watch.caller, NULL);
    if (s->peer == NULL) {
        free_session(TAKE_PTR(s));
        return NULL;
    }
    return TAKE_PTR(s);
}

/* The session's id becomes valid: its `initialize` succeeded. */
static void publish_session(struct session *s)
{
    struct sp_mcp_http *h = s->http;

    s->is_known = true;
    sp_list_prepend(&h->sessions, &s->link);
    h->session_count++;
    if (h->expiry.slot == 0)
        (void)sp_loop_timer(h->loop, &h->expiry, sp_loop_now(h->loop) + SP_MCP_HTTP_SESSION_MS,
                            on_expiry);
}

static void touch_session(struct session *s)
{
    s->used_ms = sp_loop_now(s->http->loop);
    if (!s->is_known)
        return;
    sp_list_remove(&s->link);
    sp_list_prepend(&s->http->sessions, &s->link);
}

/* The session named by the head, with one more user. NULL: the request has been refused. */
static struct session *use_session(struct conn *c)
{
    struct session *found = NULL;
    struct sp_str id = {"", 0};
    const unsigned ids = sp_http_header(&c->request, "mcp-session-id", &id);

    if (ids != 1) {
        refuse(c, 400,
               ids == 0 ? "MCP-Session-Id is missing; it comes with the answer to initialize"
                        : "MCP-Session-Id must be given once");
        return NULL;
    }
    sp_list_each(i, &c->http->sessions) {
        struct session *s = session_of(i);

        if (sp_same_secret(id, (struct sp_str){s->id, ID_LEN}) && s->token == c->verdict.token)
            found = s;
    }
    if (found == NULL || (found->users == 0 && !hold_caller(found))) {
        refuse(c, 404, "no such session; initialize makes one");
        return NULL;
    }
    found->users++;
    touch_session(found);
    return found;
}

/* Open requests of the session are answered with 404. Not from within `send`. */
static void end_session(struct session *s)
{
    sp_list_each(i, &s->http->conns) {
        struct conn *c = SP_CONTAINER(i, struct conn, link);

        if (c->session != s)
            continue;
        if (c->is_asked)
            sp_mcp_peer_out_gone(s->peer, &c->out);
        if (c->is_asked && c->phase == ANSWERING && c->is_streaming)
            end_stream(c);
        else if (c->is_asked && c->phase == ANSWERING)
            refuse(c, 404, "the session was ended");
        c->is_asked = false; /* also if the connection broke in this turn */
        c->session = NULL;
        c->peer = NULL;
    }
    free_session(s);
}

/* ---- from a request to its peer ---- */

/* Whether a message belongs to a legacy session. A message that is neither modern nor of a session
 * goes to a peer without history, which refuses it. */
static bool is_of_session(const struct conn *c, const struct sp_mcp_message *m,
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
static bool find_peer(struct conn *c, const struct sp_mcp_message *m, struct sp_str version)
{
    if (m->kind == SP_MCP_REQUEST && !m->is_modern && sp_str_eq(m->method, SP_STR("initialize"))) {
        c->session = new_session(c->http, c->verdict.token);
        if (c->session == NULL)
            refuse(c, 503, "there are too many sessions or callers; try again later");
    } else if (is_of_session(c, m, version)) {
        c->session = use_session(c);
    } else {
        if (hold_caller_of_token(c->http, c->verdict.token, &c->caller) < 0) {
            refuse(c, 503, "there are too many callers; try again later");
            return false;
        }
        c->peer = sp_mcp_peer_new(c->http->mcp, c->caller, NULL);
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

/* Hands the message in the body to its peer; an answer or an empty 202 follows. */
static void serve_message(struct conn *c)
{
    const struct sp_http_request *r = &c->request;
    struct sp_mcp_message *m = &c->http->message;
    struct sp_mcp_headers headers = {0};
    auto_buf struct sp_buf name = {0};
    const char *wrong = NULL;
    char *room = sp_buf_room(&c->body, 1); /* the parser needs a writable byte after the text */

    if (room == NULL) {
        refuse(c, 503, "no memory");
        return;
    }
    *room = 0;
    if (sp_http_header(r, "mcp-protocol-version", &headers.version) > 1)
        wrong = "MCP-Protocol-Version must be given once";
    else if (sp_http_header(r, "mcp-method", &headers.method) > 1)
        wrong = "Mcp-Method must be given once";
    else if (sp_http_header(r, "mcp-name", &headers.name) > 1)
        wrong = "Mcp-Name must be given once";
    if (wrong != NULL) {
        refuse_with(c, 400, HEADER_MISMATCH, wrong, NULL);
        return;
    }
    headers.is_name_broken = !decode_name(&name, &headers.name);
    sp_mcp_message_read(m, c->body.data, c->body.len);
    if (!find_peer(c, m, headers.version))
        return;
    c->out = (struct sp_mcp_out){.send = on_send, .is_full = is_full, .cancelled = on_cancelled};
    c->is_asked = true;
    enter_phase(c, ANSWERING);
    if (sp_mcp_take(c->peer, &c->out, &headers, m))
        return;
    c->is_asked = false;
    if (c->phase != ANSWERING)
        return;
    put_head(c, 202, "", 0);
    end_answer(c);
}

static void serve_request(struct conn *c)
{
    if (c->verdict.verb == SP_MCP_DELETE) {
        struct session *s = use_session(c);

        if (s == NULL)
            return;
        end_session(s);
        put_head(c, 204, "", NO_LENGTH); /* RFC 9110: no Content-Length in a 204 */
        end_answer(c);
        return;
    }
    serve_message(c);
    sp_json_trim(&c->http->message.json);
    sp_buf_done(&c->body);
}

/* Detaches the connection from the peer or session of its request. Not from within `send`. */
static void let_go(struct conn *c)
{
    struct session *s = TAKE_PTR(c->session);
    struct sp_mcp_peer *peer = TAKE_PTR(c->peer);
    struct sp_mcp_caller *caller = TAKE_PTR(c->caller);

    if (c->is_asked)
        sp_mcp_peer_out_gone(peer, &c->out);
    c->is_asked = false;
    if (s == NULL) {
        sp_mcp_peer_free(peer);
    } else {
        touch_session(s);
        if (!s->is_known && s->users == 1) /* an unpublished session ends with its only user */
            free_session(s);
        else if (--s->users == 0)
            sp_mcp_caller_release(s->watch.caller);
    }
    if (caller != NULL)
        sp_mcp_caller_release(caller);
}

/* ---- reading requests ---- */

static void forget_request(struct conn *c)
{
    free(c->head);
    c->head = NULL;
    c->request = (struct sp_http_request){0};
    c->verdict = (struct sp_mcp_verdict){0};
    c->parser = (struct sp_http_parser){0};
    sp_buf_done(&c->body);
}

/* true: the head decides the answer, and the body is not read. */
static bool answer_head(struct conn *c, enum sp_http_body_result body)
{
    const struct sp_mcp_verdict *v = &c->verdict;

    if (body == SP_HTTP_BODY_BAD) {
        refuse_and_close(c, 400, "the length of the body is not clear");
        return true;
    }
    if (c->is_over) {
        refuse_and_close(c, 503, "too many connections");
        return true;
    }
    c->verdict = sp_mcp_gate_judge(&c->http->gate, &c->request);
    c->is_trusted |= v->token != 0;
    if (v->status != 0 || v->verb == SP_MCP_PREFLIGHT)
        c->is_last |= body != SP_HTTP_BODY_DONE;
    if (v->status != 0) {
        refuse_with(c, v->status, INVALID_REQUEST, v->why, v->header);
    } else if (v->verb == SP_MCP_PREFLIGHT) {
        put_head(c, 204, ALLOWED, NO_LENGTH);
        end_answer(c);
    } else if (body == SP_HTTP_BODY_TOO_BIG) {
        refuse_and_close(c, 413, "the body is larger than 16 MiB");
    } else {
        return false;
    }
    return true;
}

static void read_head(struct conn *c)
{
    struct sp_http_request *r = &c->request;
    struct sp_http_parser again = {0};
    struct sp_http_request parsed;
    struct sp_str expect;

    switch (sp_http_parse(&c->parser, c->in.data, c->in.len, &parsed)) {
    case SP_HTTP_MORE:
        return;
    case SP_HTTP_BAD:
        refuse_and_close(c, 400, "this is not a request of HTTP/1.1");
        return;
    case SP_HTTP_TOO_BIG:
        refuse_and_close(c, 431, "the head is larger than 16 KiB");
        return;
    case SP_HTTP_DONE:
        break;
    }
    /* The request points into the head, and `in` keeps growing: parse a copy. */
    c->head = malloc(parsed.head_len);
    if (c->head == NULL) {
        enter_phase(c, GONE);
        return;
    }
    memcpy(c->head, c->in.data, parsed.head_len);
    sp_buf_drop(&c->in, parsed.head_len);
    if (sp_http_parse(&again, c->head, parsed.head_len, r) != SP_HTTP_DONE) {
        enter_phase(c, GONE);
        return;
    }
    c->is_last = r->is_1_0 || sp_http_has_word(r, "connection", "close");
    const enum sp_http_body_result body = sp_http_body_begin(&c->framing, r, SP_MCP_HTTP_BODY_MAX);
    if (answer_head(c, body))
        return;
    enter_phase(c, BODY);
    if (body == SP_HTTP_BODY_MORE && !r->is_1_0 && c->in.len == 0 &&
        sp_http_header(r, "expect", &expect) != 0)
        put(c, SP_STR("HTTP/1.1 100 Continue\r\n\r\n"));
}

static void read_body(struct conn *c)
{
    struct sp_str left = {c->in.data, c->in.len};
    struct sp_str piece;
    enum sp_http_body_result r;

    do {
        r = sp_http_body_next(&c->framing, &left, &piece);
        if (piece.n != 0 && !sp_buf_add_str(&c->body, piece)) {
            enter_phase(c, GONE);
            return;
        }
    } while (r == SP_HTTP_BODY_PIECE);
    sp_buf_drop(&c->in, c->in.len - left.n);
    if (r == SP_HTTP_BODY_BAD)
        refuse_and_close(c, 400, "the body is not in well-formed chunks");
    else if (r == SP_HTTP_BODY_TOO_BIG)
        refuse_and_close(c, 413, "the body is larger than 16 MiB");
    else if (r == SP_HTTP_BODY_DONE)
        serve_request(c);
}

/* At most one request: the next one waits for the answer. */
static void read_request(struct conn *c)
{
    if (c->phase == HEAD && c->in.len != 0)
        read_head(c);
    if (c->phase == BODY)
        read_body(c);
}

static void on_again(struct sp_deferred *d)
{
    struct conn *c = SP_CONTAINER(d, struct conn, again);

    read_request(c);
    conn_schedule(c);
}

/* ---- the socket ---- */

static void receive(struct conn *c)
{
    const ssize_t n = recv(c->fd, c->http->scratch, sizeof c->http->scratch, MSG_DONTWAIT);

    if (n < 0) {
        if (errno != EAGAIN && errno != EINTR)
            enter_phase(c, GONE);
        return;
    }
    if (c->phase == LINGER) {
        c->lingered += (size_t)n;
        if (n == 0 || c->lingered > LINGER_BYTES)
            enter_phase(c, GONE);
        return;
    }
    if (n == 0 || !sp_buf_add(&c->in, c->http->scratch, (size_t)n)) {
        enter_phase(c, GONE);
        return;
    }
    if (c->phase == HEAD && c->in.len == (size_t)n && c->has_served)
        c->since_ms = now_of(c); /* the idle time is over, HEAD_MS starts */
    read_request(c);
}

static void flush(struct conn *c)
{
    while (c->phase < LINGER && !c->is_blocked && sp_outq_size(&c->outq) != 0) {
        const size_t size = sp_outq_size(&c->outq);
        const ssize_t n =
            send(c->fd, c->outq.data + c->outq.start, size, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN) {
            enter_phase(c, GONE);
            return;
        }
        c->is_blocked = n < (ssize_t)size;
        if (n > 0) {
            sp_outq_sent(&c->outq, (size_t)n);
            c->moved_ms = now_of(c);
        }
    }
}

static void on_event(struct sp_watch *w, uint32_t events)
{
    struct conn *c = SP_CONTAINER(w, struct conn, watch);
    const bool is_broken = (events & (EPOLLHUP | EPOLLERR)) != 0;

    if ((events & EPOLLOUT) != 0)
        c->is_blocked = false;
    if (is_broken || (c->phase == ANSWERING && (events & EPOLLRDHUP) != 0))
        enter_phase(c, GONE);
    else if ((events & EPOLLIN) != 0)
        receive(c);
    conn_schedule(c);
}

/* ---- deadlines ---- */

static uint64_t deadline_of(const struct conn *c)
{
    const uint64_t stall = sp_outq_size(&c->outq) == 0 ? UINT64_MAX : c->moved_ms + STALL_MS;
    const uint64_t comment = c->is_streaming ? c->said_ms + SP_MCP_HTTP_ALIVE_MS : UINT64_MAX;

    switch (c->phase) {
    case HEAD:
        return c->since_ms + (c->in.len == 0 && c->has_served ? IDLE_MS : HEAD_MS);
    case BODY:
        return c->since_ms + BODY_MS;
    case ANSWERING:
        return stall < comment ? stall : comment;
    case SENDING:
        return stall;
    case LINGER:
        return c->since_ms + LINGER_MS;
    case GONE:
        break;
    }
    return UINT64_MAX;
}

static void on_tick(struct sp_timer *t)
{
    struct conn *c = SP_CONTAINER(t, struct conn, tick);
    const uint64_t now = now_of(c);

    conn_schedule(c);
    if (now < deadline_of(c))
        return;
    if (c->phase == BODY || (c->phase == HEAD && c->in.len != 0))
        refuse_and_close(c, 408, "the request took too long to arrive");
    else if (c->phase == ANSWERING && sp_outq_size(&c->outq) == 0)
        put_chunk(c, SP_STR(":\n\n"), SP_STR(""), SP_STR("")); /* keep-alive comment */
    else if (c->phase == ANSWERING && now < c->moved_ms + STALL_MS)
        c->said_ms = now; /* queued bytes will show that the server is alive */
    else
        enter_phase(c, GONE);
}

/* ---- the end of each turn ---- */

/* The answer has been sent. */
static void end_request(struct conn *c)
{
    forget_request(c);
    if (!c->is_last) {
        c->has_served = true;
        enter_phase(c, HEAD);
        if (c->in.len != 0)
            sp_loop_again(c->http->loop, &c->again, on_again);
    } else {
        enter_phase(c, shutdown(c->fd, SHUT_WR) < 0 ? GONE : LINGER);
    }
}

static void free_conn(struct conn *c)
{
    struct sp_mcp_http *h = c->http;

    let_go(c);
    sp_loop_unwatch(h->loop, &c->watch);
    sp_loop_cancel(h->loop, &c->tick);
    sp_loop_undefer(h->loop, &c->turn_end);
    sp_loop_undefer(h->loop, &c->again);
    (void)close(c->fd);
    forget_request(c);
    sp_buf_done(&c->in);
    sp_outq_done(&c->outq);
    sp_list_remove(&c->link);
    assert(h->total > 0);
    h->total--;
    h->over -= c->is_over;
    free(c);
}

static void on_turn_end(struct sp_deferred *d)
{
    struct conn *c = SP_CONTAINER(d, struct conn, turn_end);
    struct sp_loop *loop = c->http->loop;

    if (c->phase == SENDING)
        let_go(c);
    flush(c);
    if (c->phase == SENDING && sp_outq_size(&c->outq) == 0)
        end_request(c);
    if (c->phase != GONE) {
        const uint64_t due = deadline_of(c);

        if (due == UINT64_MAX)
            sp_loop_cancel(loop, &c->tick);
        else if (!sp_loop_timer(loop, &c->tick, due, on_tick))
            enter_phase(c, GONE);
    }
    if (c->phase == GONE) {
        free_conn(c);
        return;
    }

    /* The events that matter in this phase. */
    uint32_t events = 0;

    if (c->phase <= BODY || c->phase == LINGER)
        events = EPOLLIN;
    else if (c->phase == ANSWERING)
        events = EPOLLRDHUP;
    if (c->phase == HEAD && c->again.is_queued)
        events = 0; /* a buffered request comes first */
    if (c->is_blocked && c->phase < LINGER)
        events |= EPOLLOUT;
    sp_loop_rewatch(c->http->loop, &c->watch, events);
}

/* ---- new connections ---- */

/* Makes room by dropping the oldest connection that has not shown a token: such connections must
 * not keep clients with a token out. */
static bool evict_untrusted(struct sp_mcp_http *h)
{
    struct conn *oldest = NULL;

    sp_list_each(i, &h->conns) {
        struct conn *c = SP_CONTAINER(i, struct conn, link);

        if (!c->is_trusted && !c->is_over && c->phase != GONE)
            oldest = c;
    }
    if (oldest != NULL)
        enter_phase(oldest, GONE);
    return oldest != NULL;
}

static void on_accepted(struct sp_acceptor *a, int fd, const char *peer)
{
    struct sp_mcp_http *h = SP_CONTAINER(a, struct sp_mcp_http, acceptor);
    const bool is_over = h->total - h->over >= h->max && !evict_untrusted(h);
    const bool is_refused = is_over && h->total >= SPARE && h->total - SPARE >= h->max;
    struct conn *c = is_refused ? NULL : calloc(1, sizeof *c);

    (void)peer;
    if (c == NULL) {
        (void)close(fd);
        return;
    }
    c->http = h;
    c->fd = fd;
    c->is_over = is_over;
    c->since_ms = sp_loop_now(h->loop);
    sp_list_prepend(&h->conns, &c->link);
    h->total++;
    h->over += is_over;
    if (sp_loop_watch(h->loop, &c->watch, fd, EPOLLIN, on_event, NULL) < 0)
        enter_phase(c, GONE);
    conn_schedule(c);
}

/* ---- start and end ---- */

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
    if (sp_acceptor_open(&h->acceptor, h->loop, &url, NULL, on_accepted, &why) < 0)
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
    int r = sp_mcp_gate_init(&h->gate, o->tokens, o->origins, e);
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
    sp_list_each_safe(i, &h->conns) { /* closes subscriptions, and sends what the socket takes */
        struct conn *c = SP_CONTAINER(i, struct conn, link);

        if (c->is_asked)
            sp_mcp_peer_close_subscriptions(c->peer);
        flush(c);
        free_conn(c);
    }
    sp_loop_cancel(h->loop, &h->expiry);
    sp_list_each_safe(i, &h->sessions)
        free_session(session_of(i));
    free(h->gate.digests);
    sp_mcp_message_done(&h->message);
    free(h);
}

const char *sp_mcp_http_url(const struct sp_mcp_http *h)
{
    return h->url;
}

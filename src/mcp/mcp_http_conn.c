/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_http_conn: one HTTP connection: requests in, answers out, deadlines.
 *
 * server/net/link.c is the other connection machine. A link carries messages in both directions at
 * any time and ends after one HTTP request that is no upgrade; here requests follow each other and
 * each has one answer. Both use the acceptor, the head parser, the Host check and the output queue
 * of server/net/.
 *
 * A request whose first message is its answer gets one JSON object. A request that hears messages
 * before its answer gets an event stream, in chunks, with the answer as its last event.
 *
 * Callbacks only change state; on_turn_end, deferred by conn_schedule, then sends, moves to the
 * next phase, arms the deadline and frees. So a connection is never freed while a caller still uses
 * it.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "mcp/mcp_http_priv.h"

#define HEAD_MS      10000U /* from its first byte; for the first head from accept */
#define BODY_MS      30000U
#define IDLE_MS      60000U /* between two requests */
#define STALL_MS     60000U /* without progress of the output */
#define LINGER_MS    2000U
#define LINGER_BYTES (SP_MCP_HTTP_BODY_MAX + SP_HTTP_MAX_HEAD) /* read and discarded */
#define FULL_BYTES   (256U << 10)                              /* queued: progress is skipped */
#define QUEUED_MAX   (64U << 20)                               /* above: the connection ends */
#define JSON_TYPE    "content-type: application/json\r\n"
#define ALLOWED                                                           \
    "access-control-allow-methods: POST, DELETE\r\n"                      \
    "access-control-allow-headers: authorization, content-type, accept, " \
    "mcp-protocol-version, mcp-method, mcp-name, mcp-session-id\r\n"      \
    "access-control-max-age: 600\r\n"

static void on_turn_end(struct sp_deferred *d);

static uint64_t now_of(const struct sp_mcp_conn *c)
{
    return sp_loop_now(c->http->loop);
}

/* There is output, or the phase changed: on_turn_end runs in this turn of the loop. */
static void conn_schedule(struct sp_mcp_conn *c)
{
    sp_loop_defer(c->http->loop, &c->turn_end, on_turn_end);
}

static void enter_phase(struct sp_mcp_conn *c, enum sp_mcp_conn_phase phase)
{
    if (c->phase == SP_MCP_CONN_GONE)
        return;
    c->phase = (uint8_t)phase;
    c->since_ms = now_of(c);
    conn_schedule(c);
}

void sp_mcp_conn_drop(struct sp_mcp_conn *c)
{
    if (c->phase == SP_MCP_CONN_GONE)
        return;
    c->phase = SP_MCP_CONN_GONE;
    sp_loop_unwatch(c->http->loop, &c->watch);
    conn_schedule(c);
}

/* ---- answers: everything is appended to c->outq ---- */

static void put(struct sp_mcp_conn *c, struct sp_str bytes)
{
    if (c->phase == SP_MCP_CONN_GONE || bytes.n == 0)
        return;
    if (sp_outq_size(&c->outq) == 0)
        c->moved_ms = now_of(c);
    if (bytes.n > QUEUED_MAX - sp_outq_size(&c->outq) || !sp_outq_raw(&c->outq, bytes.p, bytes.n))
        sp_mcp_conn_drop(c);
}

static void put_text(struct sp_mcp_conn *c, const char *text)
{
    put(c, sp_str_of(text));
}

/* The status line and the headers of every answer, without the final empty line. */
static void begin_head(struct sp_mcp_conn *c, unsigned status)
{
    char line[96];

    (void)snprintf(line, sizeof line, "HTTP/1.1 %u %s\r\ncache-control: no-store\r\n", status,
                   sp_http_reason(status));
    put_text(c, line);
    if (c->is_last)
        put_text(c, "connection: close\r\n");
    if (c->verdict.origin.n != 0) {
        put_text(c, "access-control-allow-origin: ");
        put(c, c->verdict.origin);
        put_text(c, "\r\naccess-control-expose-headers: mcp-session-id, www-authenticate\r\n"
                    "vary: origin\r\n");
    }
}

static void end_head(struct sp_mcp_conn *c, size_t length)
{
    char line[64];

    (void)snprintf(line, sizeof line, "content-length: %zu\r\n\r\n", length);
    put_text(c, line);
}

static void end_answer(struct sp_mcp_conn *c)
{
    c->is_asked = false;
    c->is_streaming = false;
    enter_phase(c, SP_MCP_CONN_SENDING);
}

void sp_mcp_conn_refuse(struct sp_mcp_conn *c, unsigned status, int code, const char *why,
                        const char *header)
{
    char body[320] = "";

    if (why != NULL) /* a literal of this program: nothing to escape */
        (void)snprintf(
            body, sizeof body,
            "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":%d,\"message\":\"%s\"}}", code,
            why);
    begin_head(c, status);
    if (header != NULL)
        put_text(c, header);
    if (why != NULL)
        put_text(c, JSON_TYPE);
    end_head(c, strlen(body));
    put_text(c, body);
    end_answer(c);
}

/* Refuses a request without reading the rest of it; the connection closes. */
static void refuse_and_close(struct sp_mcp_conn *c, unsigned status, const char *why)
{
    c->is_last = true;
    sp_mcp_conn_refuse(c, status, -32600, why, NULL);
}

void sp_mcp_conn_answer_empty(struct sp_mcp_conn *c, unsigned status)
{
    begin_head(c, status);
    if (c->verdict.verb == SP_MCP_PREFLIGHT)
        put_text(c, ALLOWED);
    if (status == 204) /* RFC 9110: no Content-Length in a 204 */
        put_text(c, "\r\n");
    else
        end_head(c, 0);
    end_answer(c);
}

/* HTTP/1.0 has no chunks: there the end of the connection ends the stream. */
static void put_chunk(struct sp_mcp_conn *c, struct sp_str before, struct sp_str message,
                      struct sp_str after)
{
    char size[24];

    (void)snprintf(size, sizeof size, "%zx\r\n", before.n + message.n + after.n);
    if (!c->request.is_1_0)
        put_text(c, size);
    put(c, before);
    put(c, message);
    put(c, after);
    if (!c->request.is_1_0)
        put_text(c, "\r\n");
    c->said_ms = now_of(c);
}

static void begin_stream(struct sp_mcp_conn *c)
{
    c->is_streaming = true;
    begin_head(c, 200);
    put_text(c, "content-type: text/event-stream\r\nx-accel-buffering: no\r\n");
    put_text(c, c->request.is_1_0 ? "\r\n" : "transfer-encoding: chunked\r\n\r\n");
}

static void end_stream(struct sp_mcp_conn *c)
{
    if (!c->request.is_1_0)
        put_text(c, "0\r\n\r\n");
    end_answer(c);
}

static void on_send(struct sp_mcp_out *o, struct sp_str message, unsigned status)
{
    struct sp_mcp_conn *c = SP_CONTAINER(o, struct sp_mcp_conn, out);

    if (c->phase != SP_MCP_CONN_ANSWERING)
        return; /* broken in this turn; let_go will tell the peer */
    if (!c->is_streaming && status != 0) {
        begin_head(c, status);
        if (c->session != NULL && !c->session->is_known && sp_mcp_peer_version(c->peer) != NULL) {
            sp_mcp_session_publish(c->session);
            put_text(c, "mcp-session-id: ");
            put_text(c, c->session->id);
            put_text(c, "\r\n");
        }
        put_text(c, JSON_TYPE);
        end_head(c, message.n);
        put(c, message);
        end_answer(c);
        return;
    }
    if (!c->is_streaming)
        begin_stream(c);
    put_chunk(c, SP_STR("event: message\ndata: "), message, SP_STR("\n\n"));
    if (status != 0)
        end_stream(c);
    conn_schedule(c);
}

static bool is_full(const struct sp_mcp_out *o)
{
    const void *first = o; /* `out` is the first member; SP_CONTAINER would drop the const */
    const struct sp_mcp_conn *c = first;

    return sp_outq_size(&c->outq) >= FULL_BYTES;
}

/* A cancelled request gets no answer: its stream ends without one. */
static void on_cancelled(struct sp_mcp_out *o)
{
    struct sp_mcp_conn *c = SP_CONTAINER(o, struct sp_mcp_conn, out);

    if (c->phase != SP_MCP_CONN_ANSWERING)
        return;
    if (!c->is_streaming)
        begin_stream(c);
    end_stream(c);
}

void sp_mcp_conn_abandon(struct sp_mcp_conn *c, unsigned status, const char *why)
{
    if (c->phase != SP_MCP_CONN_ANSWERING)
        return;
    if (c->is_streaming)
        end_stream(c);
    else
        sp_mcp_conn_refuse(c, status, -32600, why, NULL);
}

void sp_mcp_conn_ask_peer(struct sp_mcp_conn *c, const struct sp_mcp_headers *headers,
                          struct sp_mcp_message *m)
{
    c->out = (struct sp_mcp_out){.send = on_send, .is_full = is_full, .cancelled = on_cancelled};
    c->is_asked = true;
    enter_phase(c, SP_MCP_CONN_ANSWERING);
    if (sp_mcp_take(c->peer, &c->out, headers, m))
        return;
    c->is_asked = false;
    if (c->phase == SP_MCP_CONN_ANSWERING)
        sp_mcp_conn_answer_empty(c, 202);
}

/* ---- requests ---- */

static void forget_request(struct sp_mcp_conn *c)
{
    free(c->head);
    c->head = NULL;
    c->request = (struct sp_http_request){0};
    c->verdict = (struct sp_mcp_verdict){0};
    c->parser = (struct sp_http_parser){0};
    sp_buf_done(&c->body);
}

/* true: the head decides the answer, and the body is not read. */
static bool answer_head(struct sp_mcp_conn *c, enum sp_http_body_result body)
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
    if (v->status != 0 || v->verb == SP_MCP_PREFLIGHT) {
        c->is_last |= body != SP_HTTP_BODY_DONE;
        if (v->status != 0)
            sp_mcp_conn_refuse(c, v->status, v->code, v->why, v->header);
        else
            sp_mcp_conn_answer_empty(c, 204);
        return true;
    }
    if (body == SP_HTTP_BODY_TOO_BIG)
        refuse_and_close(c, 413, "the body is larger than 16 MiB");
    return body == SP_HTTP_BODY_TOO_BIG;
}

static void read_head(struct sp_mcp_conn *c)
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
        sp_mcp_conn_drop(c);
        return;
    }
    memcpy(c->head, c->in.data, parsed.head_len);
    sp_buf_drop(&c->in, parsed.head_len);
    if (sp_http_parse(&again, c->head, parsed.head_len, r) != SP_HTTP_DONE) {
        sp_mcp_conn_drop(c);
        return;
    }
    c->is_last = r->is_1_0 || sp_http_has_word(r, "connection", "close");
    const enum sp_http_body_result body = sp_http_body_begin(&c->framing, r, SP_MCP_HTTP_BODY_MAX);
    if (answer_head(c, body))
        return;
    enter_phase(c, SP_MCP_CONN_BODY);
    if (body == SP_HTTP_BODY_MORE && !r->is_1_0 && c->in.len == 0 &&
        sp_http_header(r, "expect", &expect) != 0) {
        put_text(c, "HTTP/1.1 100 Continue\r\n\r\n");
        conn_schedule(c);
    }
}

static void read_body(struct sp_mcp_conn *c)
{
    struct sp_str left = {c->in.data, c->in.len};
    struct sp_str piece;
    enum sp_http_body_result r;

    do {
        r = sp_http_body_next(&c->framing, &left, &piece);
        if (piece.n != 0 && !sp_buf_add_str(&c->body, piece)) {
            sp_mcp_conn_drop(c);
            return;
        }
    } while (r == SP_HTTP_BODY_PIECE);
    sp_buf_drop(&c->in, c->in.len - left.n);
    if (r == SP_HTTP_BODY_BAD)
        refuse_and_close(c, 400, "the body is not in well-formed chunks");
    else if (r == SP_HTTP_BODY_TOO_BIG)
        refuse_and_close(c, 413, "the body is larger than 16 MiB");
    else if (r == SP_HTTP_BODY_DONE)
        sp_mcp_http_serve(c);
}

/* At most one request: the next one waits for the answer. */
static void read_request(struct sp_mcp_conn *c)
{
    if (c->phase == SP_MCP_CONN_HEAD && c->in.len != 0)
        read_head(c);
    if (c->phase == SP_MCP_CONN_BODY)
        read_body(c);
}

static void on_again(struct sp_deferred *d)
{
    struct sp_mcp_conn *c = SP_CONTAINER(d, struct sp_mcp_conn, again);

    read_request(c);
    conn_schedule(c);
}

/* ---- the socket ---- */

static void receive(struct sp_mcp_conn *c)
{
    const ssize_t n = recv(c->fd, c->http->scratch, sizeof c->http->scratch, MSG_DONTWAIT);

    if (n < 0) {
        if (errno != EAGAIN && errno != EINTR)
            sp_mcp_conn_drop(c);
        return;
    }
    if (c->phase == SP_MCP_CONN_LINGER) {
        c->lingered += (size_t)n;
        if (n == 0 || c->lingered > LINGER_BYTES)
            sp_mcp_conn_drop(c);
        return;
    }
    if (n == 0 || !sp_buf_add(&c->in, c->http->scratch, (size_t)n)) {
        sp_mcp_conn_drop(c);
        return;
    }
    if (c->phase == SP_MCP_CONN_HEAD && c->in.len == (size_t)n && c->has_served)
        c->since_ms = now_of(c); /* the idle time is over, HEAD_MS starts */
    read_request(c);
}

static void flush(struct sp_mcp_conn *c)
{
    while (c->phase < SP_MCP_CONN_LINGER && !c->is_blocked && sp_outq_size(&c->outq) != 0) {
        const size_t size = sp_outq_size(&c->outq);
        const ssize_t n =
            send(c->fd, c->outq.data + c->outq.start, size, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN) {
            sp_mcp_conn_drop(c);
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
    struct sp_mcp_conn *c = SP_CONTAINER(w, struct sp_mcp_conn, watch);
    const bool is_broken = (events & (EPOLLHUP | EPOLLERR)) != 0;

    if ((events & EPOLLOUT) != 0)
        c->is_blocked = false;
    if (is_broken || (c->phase == SP_MCP_CONN_ANSWERING && (events & EPOLLRDHUP) != 0))
        sp_mcp_conn_drop(c);
    else if ((events & EPOLLIN) != 0)
        receive(c);
    conn_schedule(c);
}

/* ---- deadlines ---- */

static uint64_t deadline_of(const struct sp_mcp_conn *c)
{
    const uint64_t stall = sp_outq_size(&c->outq) == 0 ? UINT64_MAX : c->moved_ms + STALL_MS;
    const uint64_t comment = c->is_streaming ? c->said_ms + SP_MCP_HTTP_ALIVE_MS : UINT64_MAX;

    switch ((enum sp_mcp_conn_phase)c->phase) {
    case SP_MCP_CONN_HEAD:
        return c->since_ms + (c->in.len == 0 && c->has_served ? IDLE_MS : HEAD_MS);
    case SP_MCP_CONN_BODY:
        return c->since_ms + BODY_MS;
    case SP_MCP_CONN_ANSWERING:
        return stall < comment ? stall : comment;
    case SP_MCP_CONN_SENDING:
        return stall;
    case SP_MCP_CONN_LINGER:
        return c->since_ms + LINGER_MS;
    case SP_MCP_CONN_GONE:
        break;
    }
    return UINT64_MAX;
}

static void on_tick(struct sp_timer *t)
{
    struct sp_mcp_conn *c = SP_CONTAINER(t, struct sp_mcp_conn, tick);
    const uint64_t now = now_of(c);
    const bool is_answering = c->phase == SP_MCP_CONN_ANSWERING;

    conn_schedule(c);
    if (now < deadline_of(c))
        return;
    if (c->phase == SP_MCP_CONN_BODY || (c->phase == SP_MCP_CONN_HEAD && c->in.len != 0))
        refuse_and_close(c, 408, "the request took too long to arrive");
    else if (is_answering && sp_outq_size(&c->outq) == 0)
        put_chunk(c, SP_STR(":\n\n"), SP_STR(""), SP_STR("")); /* keep-alive comment */
    else if (is_answering && now < c->moved_ms + STALL_MS)
        c->said_ms = now; /* queued bytes will show that the server is alive */
    else
        sp_mcp_conn_drop(c);
}

/* ---- the end of each turn ---- */

/* The answer has been sent. */
static void end_request(struct sp_mcp_conn *c)
{
    forget_request(c);
    if (!c->is_last) {
        c->has_served = true;
        enter_phase(c, SP_MCP_CONN_HEAD);
        if (c->in.len != 0)
            sp_loop_again(c->http->loop, &c->again, on_again);
    } else if (shutdown(c->fd, SHUT_WR) < 0) {
        sp_mcp_conn_drop(c);
    } else {
        enter_phase(c, SP_MCP_CONN_LINGER);
    }
}

static void update_watch(struct sp_mcp_conn *c)
{
    uint32_t events = 0;

    if (c->phase <= SP_MCP_CONN_BODY || c->phase == SP_MCP_CONN_LINGER)
        events = EPOLLIN;
    else if (c->phase == SP_MCP_CONN_ANSWERING)
        events = EPOLLRDHUP;
    if (c->phase == SP_MCP_CONN_HEAD && c->again.is_queued)
        events = 0; /* a buffered request comes first */
    if (c->is_blocked && c->phase < SP_MCP_CONN_LINGER)
        events |= EPOLLOUT;
    sp_loop_rewatch(c->http->loop, &c->watch, events);
}

static void free_conn(struct sp_mcp_conn *c)
{
    struct sp_mcp_http *h = c->http;

    sp_mcp_http_let_go(c);
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
    struct sp_mcp_conn *c = SP_CONTAINER(d, struct sp_mcp_conn, turn_end);
    struct sp_loop *loop = c->http->loop;

    if (c->phase == SP_MCP_CONN_SENDING)
        sp_mcp_http_let_go(c);
    flush(c);
    if (c->phase == SP_MCP_CONN_SENDING && sp_outq_size(&c->outq) == 0)
        end_request(c);
    if (c->phase != SP_MCP_CONN_GONE) {
        const uint64_t due = deadline_of(c);

        if (due == UINT64_MAX)
            sp_loop_cancel(loop, &c->tick);
        else if (!sp_loop_timer(loop, &c->tick, due, on_tick))
            sp_mcp_conn_drop(c);
    }
    if (c->phase == SP_MCP_CONN_GONE)
        free_conn(c);
    else
        update_watch(c);
}

/* ---- start and end ---- */

void sp_mcp_conn_new(struct sp_mcp_http *h, int fd, bool is_over)
{
    struct sp_mcp_conn *c = calloc(1, sizeof *c);

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
        sp_mcp_conn_drop(c);
    conn_schedule(c);
}

void sp_mcp_conn_end_now(struct sp_mcp_conn *c)
{
    if (c->is_asked)
        sp_mcp_peer_close_subscriptions(c->peer);
    flush(c);
    free_conn(c);
}

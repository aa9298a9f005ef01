/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "mcp/mcp_http_priv.h"

#define HEAD_MS      10000U /* from its first byte; the first head: from the beginning */
#define BODY_MS      30000U
#define IDLE_MS      60000U /* between two requests */
#define STALL_MS     60000U /* output that does not move */
#define LINGER_MS    2000U
#define LINGER_BYTES (SP_MCP_HTTP_BODY_MAX + SP_HTTP_MAX_HEAD) /* thrown away */

static void on_turn_end(struct sp_deferred *d);

static uint64_t now_of(const struct sp_mcp_conn *c)
{
    return sp_loop_now(c->http->loop);
}

void sp_mcp_conn_stir(struct sp_mcp_conn *c)
{
    sp_loop_defer(c->http->loop, &c->turn_end, on_turn_end);
}

void sp_mcp_conn_enter(struct sp_mcp_conn *c, enum sp_mcp_conn_phase phase)
{
    if (c->phase == SP_MCP_CONN_GONE)
        return;
    c->phase = (uint8_t)phase;
    c->since_ms = now_of(c);
    sp_mcp_conn_stir(c);
}

void sp_mcp_conn_drop(struct sp_mcp_conn *c)
{
    if (c->phase == SP_MCP_CONN_GONE)
        return;
    c->phase = SP_MCP_CONN_GONE;
    sp_loop_unwatch(c->http->loop, &c->watch);
    sp_mcp_conn_stir(c);
}

/* ---- requests ---- */

/* What follows cannot be told apart from what came, or is not worth reading. */
static void refuse_and_end(struct sp_mcp_conn *c, unsigned status, const char *why)
{
    c->is_last = true;
    sp_mcp_http_refuse(c, status, -32600, why, NULL);
}

static void forget_request(struct sp_mcp_conn *c)
{
    free(c->head);
    c->head = NULL;
    c->request = (struct sp_http_request){0};
    c->verdict = (struct sp_mcp_verdict){0};
    c->parser = (struct sp_http_parser){0};
    sp_buf_done(&c->body);
}

/* The head is kept apart, since what follows it goes on arriving. */
static bool keep_head(struct sp_mcp_conn *c, size_t n)
{
    struct sp_http_parser p = {0};

    c->head = malloc(n);
    if (c->head == NULL)
        return false;
    memcpy(c->head, c->in.data, n);
    sp_buf_drop(&c->in, n);
    return sp_http_parse(&p, c->head, n, &c->request) == SP_HTTP_DONE;
}

/* Is the head enough for an answer? Then the body is not read. */
static bool answer_head(struct sp_mcp_conn *c, enum sp_http_body_result body)
{
    const struct sp_mcp_verdict *v = &c->verdict;

    if (body == SP_HTTP_BODY_BAD) {
        refuse_and_end(c, 400, "the length of the body is not clear");
        return true;
    }
    if (c->is_over) {
        refuse_and_end(c, 503, "too many connections");
        return true;
    }
    c->verdict = sp_mcp_gate_judge(&c->http->gate, &c->request);
    c->is_trusted |= v->token != 0;
    if (v->status != 0 || v->verb == SP_MCP_PREFLIGHT) {
        c->is_last |= body != SP_HTTP_BODY_DONE;
        if (v->status != 0)
            sp_mcp_http_refuse(c, v->status, v->code, v->why, v->header);
        else
            sp_mcp_http_answer_empty(c, 204);
        return true;
    }
    if (body == SP_HTTP_BODY_TOO_BIG)
        refuse_and_end(c, 413, "the body is larger than 16 MiB");
    return body == SP_HTTP_BODY_TOO_BIG;
}

static void begin_request(struct sp_mcp_conn *c)
{
    const struct sp_http_request *r = &c->request;
    struct sp_str expect;

    c->is_last = r->is_1_0 || sp_http_has_word(r, "connection", "close");
    const enum sp_http_body_result body = sp_http_body_begin(&c->framing, r, SP_MCP_HTTP_BODY_MAX);
    if (answer_head(c, body))
        return;
    sp_mcp_conn_enter(c, SP_MCP_CONN_BODY);
    if (body == SP_HTTP_BODY_MORE && !r->is_1_0 && c->in.len == 0 &&
        sp_http_header(r, "expect", &expect) != 0)
        sp_mcp_http_continue(c);
}

static void hear_head(struct sp_mcp_conn *c)
{
    struct sp_http_request r;

    switch (sp_http_parse(&c->parser, c->in.data, c->in.len, &r)) {
    case SP_HTTP_MORE:
        return;
    case SP_HTTP_BAD:
        refuse_and_end(c, 400, "this is not a request of HTTP/1.1");
        return;
    case SP_HTTP_TOO_BIG:
        refuse_and_end(c, 431, "the head is larger than 16 KiB");
        return;
    case SP_HTTP_DONE:
        break;
    }
    if (keep_head(c, r.head_len))
        begin_request(c);
    else
        sp_mcp_conn_drop(c);
}

static void hear_body(struct sp_mcp_conn *c)
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
        refuse_and_end(c, 400, "the body is not in well-formed chunks");
    else if (r == SP_HTTP_BODY_TOO_BIG)
        refuse_and_end(c, 413, "the body is larger than 16 MiB");
    else if (r == SP_HTTP_BODY_DONE)
        sp_mcp_http_serve(c);
}

/* At most one request: the next has to wait for this one's answer. */
static void hear(struct sp_mcp_conn *c)
{
    if (c->phase == SP_MCP_CONN_HEAD && c->in.len != 0)
        hear_head(c);
    if (c->phase == SP_MCP_CONN_BODY)
        hear_body(c);
}

static void on_again(struct sp_deferred *d)
{
    struct sp_mcp_conn *c = SP_CONTAINER(d, struct sp_mcp_conn, again);

    hear(c);
    sp_mcp_conn_stir(c);
}

/* ---- bytes ---- */

static void linger(struct sp_mcp_conn *c, size_t n)
{
    c->lingered += n;
    if (n == 0 || c->lingered > LINGER_BYTES)
        sp_mcp_conn_drop(c);
}

static void receive(struct sp_mcp_conn *c)
{
    const ssize_t n = recv(c->fd, c->http->scratch, sizeof c->http->scratch, MSG_DONTWAIT);

    if (n < 0) {
        if (errno != EAGAIN && errno != EINTR)
            sp_mcp_conn_drop(c);
        return;
    }
    if (c->phase == SP_MCP_CONN_LINGER) {
        linger(c, (size_t)n);
        return;
    }
    if (n == 0 || !sp_buf_add(&c->in, c->http->scratch, (size_t)n)) {
        sp_mcp_conn_drop(c); /* in the middle of a request, or of nothing */
        return;
    }
    if (c->phase == SP_MCP_CONN_HEAD && c->in.len == (size_t)n && c->has_served)
        c->since_ms = now_of(c);
    hear(c);
}

/* Sends until the queue is empty or the kernel takes no more. */
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
    sp_mcp_conn_stir(c);
}

/* ---- time ---- */

static uint64_t due_of(const struct sp_mcp_conn *c)
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

static void on_late(struct sp_mcp_conn *c)
{
    if (c->phase == SP_MCP_CONN_BODY || (c->phase == SP_MCP_CONN_HEAD && c->in.len != 0))
        refuse_and_end(c, 408, "the request took too long to arrive");
    else if (c->phase == SP_MCP_CONN_ANSWERING && sp_outq_size(&c->outq) == 0)
        sp_mcp_http_comment(c);
    else if (c->phase == SP_MCP_CONN_ANSWERING && now_of(c) < c->moved_ms + STALL_MS)
        c->said_ms = now_of(c); /* what is queued will be a sign of life, if it moves */
    else
        sp_mcp_conn_drop(c);
}

static void on_tick(struct sp_timer *t)
{
    struct sp_mcp_conn *c = SP_CONTAINER(t, struct sp_mcp_conn, tick);

    if (now_of(c) >= due_of(c))
        on_late(c);
    sp_mcp_conn_stir(c);
}

static void arm(struct sp_mcp_conn *c)
{
    const uint64_t due = due_of(c);

    if (due == UINT64_MAX)
        sp_loop_cancel(c->http->loop, &c->tick);
    else if (!sp_loop_timer(c->http->loop, &c->tick, due, on_tick))
        sp_mcp_conn_drop(c);
}

/* ---- the end of each turn ---- */

static void begin_linger(struct sp_mcp_conn *c)
{
    if (shutdown(c->fd, SHUT_WR) < 0)
        sp_mcp_conn_drop(c);
    else
        sp_mcp_conn_enter(c, SP_MCP_CONN_LINGER);
}

/* The answer is with the kernel. */
static void go_on(struct sp_mcp_conn *c)
{
    forget_request(c);
    if (c->is_last) {
        begin_linger(c);
        return;
    }
    c->has_served = true;
    sp_mcp_conn_enter(c, SP_MCP_CONN_HEAD);
    if (c->in.len != 0)
        sp_loop_again(c->http->loop, &c->again, on_again);
}

static void update_watch(struct sp_mcp_conn *c)
{
    uint32_t events = 0;

    if (c->phase <= SP_MCP_CONN_BODY || c->phase == SP_MCP_CONN_LINGER)
        events = EPOLLIN;
    else if (c->phase == SP_MCP_CONN_ANSWERING)
        events = EPOLLRDHUP;
    /* What is here already comes first; and so long nobody reads on. */
    if (c->phase == SP_MCP_CONN_HEAD && c->again.is_queued)
        events = 0;
    if (c->is_blocked && c->phase < SP_MCP_CONN_LINGER)
        events |= EPOLLOUT;
    sp_loop_rewatch(c->http->loop, &c->watch, events);
}

static void destroy(struct sp_mcp_conn *c)
{
    struct sp_mcp_http *h = c->http;
    const int fd = c->fd;

    sp_mcp_http_let_go(c);
    sp_loop_unwatch(h->loop, &c->watch);
    sp_loop_cancel(h->loop, &c->tick);
    sp_loop_undefer(h->loop, &c->turn_end);
    sp_loop_undefer(h->loop, &c->again);
    (void)close(fd);
    forget_request(c);
    sp_buf_done(&c->in);
    sp_outq_done(&c->outq);
    if (c->prev != NULL)
        c->prev->next = c->next;
    else
        h->conns = c->next;
    if (c->next != NULL)
        c->next->prev = c->prev;
    h->total--;
    h->over -= c->is_over;
    free(c);
}

static void on_turn_end(struct sp_deferred *d)
{
    struct sp_mcp_conn *c = SP_CONTAINER(d, struct sp_mcp_conn, turn_end);

    if (c->phase == SP_MCP_CONN_SENDING)
        sp_mcp_http_let_go(c);
    flush(c);
    if (c->phase == SP_MCP_CONN_SENDING && sp_outq_size(&c->outq) == 0)
        go_on(c);
    if (c->phase != SP_MCP_CONN_GONE)
        arm(c);
    if (c->phase == SP_MCP_CONN_GONE)
        destroy(c);
    else
        update_watch(c);
}

/* ---- life ---- */

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
    c->next = h->conns;
    if (c->next != NULL)
        c->next->prev = c;
    h->conns = c;
    h->total++;
    h->over += is_over;
    if (sp_loop_watch(h->loop, &c->watch, fd, EPOLLIN, on_event, NULL) < 0)
        sp_mcp_conn_drop(c); /* and is freed at the end of the turn */
    sp_mcp_conn_stir(c);
}

void sp_mcp_conn_end_now(struct sp_mcp_conn *c)
{
    if (c->is_asked)
        sp_mcp_peer_bid_farewell(c->peer);
    flush(c);
    destroy(c);
}

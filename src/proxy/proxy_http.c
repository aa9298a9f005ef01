/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proxy_http: requests and responses of HTTP/1, one after the other, each read into fields and
 * written anew (http1.h).
 *
 * The outward connection of the last exchange is used again if the next request is for the same
 * host and port. A response may come while the request's body is still being sent; then both move,
 * and the client's connection ends with the response.
 */
#include <stdlib.h>
#include <string.h>

#include "proxy/proxy_priv.h"

#define IDLE_MS  120000 /* between two requests */
#define TURN_MAX (1U << 20)

void sp_proxy_http_free(struct sp_proxy_conn *c)
{
    free(c->http);
    c->http = NULL;
}

/* ---- the request's head ---- */

static void become_tunnel(struct sp_proxy_conn *c)
{
    sp_proxy_http_free(c);
    c->speech = SP_PROXY_SAYS_ANY;
}

/* HTTP/2 without TLS: only by name the host is known without reading on. */
static bool is_preface(struct sp_str head)
{
    return sp_str_eq(head, SP_STR("PRI * HTTP/2.0\r\n\r\n"));
}

/* By name, the request is for the name's host and port, whatever form it has. */
static const char *check_name(const struct sp_proxy_conn *c, const struct sp_http1_head *h,
                              const char *name)
{
    struct sp_hostname host;

    if (h->form == SP_HTTP1_AUTHORITY)
        return "CONNECT is for port 808";
    if (h->host.n == 0)
        return NULL;
    if (sp_hostname_read(h->host, &host) != NULL || strcmp(host.text, name) != 0 ||
        h->port != c->listen_port)
        return "Host header does not match request target";
    return NULL;
}

static const char *begin_target(struct sp_proxy_conn *c)
{
    struct sp_http1_head *h = &c->http->head;
    const char *name = NULL;
    const char *why = NULL;

    if (c->via == SP_PROXY_VIA_NAME) {
        name = sp_names_find(c->p->names, c->name_address);
        why = name == NULL ? "this address stands for no name any more" : check_name(c, h, name);
    } else if (h->host.n == 0) {
        why = "Host header does not match request target";
    }
    if (why == NULL && h->method.n > SP_PROXY_METHOD_MAX)
        why = "the method is too long";
    if (why != NULL)
        return why;
    memcpy(c->http->method, h->method.p, h->method.n);
    c->http->method[h->method.n] = 0;
    const bool is_connect = h->form == SP_HTTP1_AUTHORITY;
    c->speech = is_connect ? SP_PROXY_SAYS_CONNECT : SP_PROXY_SAYS_HTTP;
    why = name != NULL ? sp_proxy_conn_target(c, sp_str_of(name), c->listen_port, SP_PROXY_HTTP)
                       : sp_proxy_conn_target(c, h->host, h->port,
                                              is_connect ? SP_PROXY_TUNNEL : SP_PROXY_HTTP);
    h->host = sp_str_of(c->host); /* one spelling for the verdict, the dial and the server */
    return why;
}

static bool take_preface(struct sp_proxy_conn *c)
{
    const char *name = c->via == SP_PROXY_VIA_NAME && (c->p->flags & SP_PROXY_LIMITED) == 0
                           ? sp_names_find(c->p->names, c->name_address)
                           : NULL;

    if (name == NULL) {
        sp_proxy_refuse_http(c, 400, "HTTP/2 is not spoken here");
        return true;
    }
    become_tunnel(c);
    if (sp_proxy_conn_target(c, sp_str_of(name), c->listen_port, SP_PROXY_HTTP) != NULL)
        sp_proxy_conn_end(c, true);
    return true;
}

static bool take_head(struct sp_proxy_conn *c, size_t n)
{
    const struct sp_str head = {c->client.in.data, n};
    struct sp_http1_refusal why = {0};

    c->scanned = 0;
    if (is_preface(head))
        return take_preface(c);
    c->http = calloc(1, sizeof *c->http);
    if (c->http == NULL) {
        sp_proxy_conn_end(c, true);
        return false;
    }
    c->http->head_len = n;
    if (!sp_http1_read_request(head, &c->http->head, &why)) {
        sp_proxy_refuse_http(c, why.status, why.text);
        return true;
    }
    const char *wrong = begin_target(c);
    if (wrong != NULL) {
        sp_proxy_refuse_http(c, 400, wrong);
        return true;
    }
    if (c->speech == SP_PROXY_SAYS_CONNECT) {
        sp_buf_drop(&c->client.in, n);
    } else if (sp_str_eq_nocase(c->http->head.method, SP_STR("TRACE")) &&
               sp_proxy_upstream_for(c) != NULL) {
        /* An upstream proxy answers with the request, Proxy-Authorization included. */
        sp_proxy_refuse_http(c, 501, "TRACE is not passed to an upstream proxy");
    } else if (c->http->head.is_upgrade && (c->p->flags & SP_PROXY_LIMITED) != 0) {
        c->outcome = SP_PROXY_BLOCKED;
        c->reason = SP_NETWORK_REASON_METHOD_NOT_ALLOWED;
        c->verdict_flags = 0;
        sp_proxy_refuse(c);
    }
    return true;
}

/* An outward connection that waits for the next request, and ended meanwhile. */
static void drop_stale_server(struct sp_proxy_conn *c)
{
    (void)sp_proxy_end_fill(&c->server, 1);
    if (c->server.fd < 0 || (c->server.in.len == 0 && !c->server.is_eof && !c->server.is_broken &&
                             !c->server.saw_error))
        return;
    sp_proxy_end_close(c, &c->server, false);
    sp_proxy_conn_release(c);
}

bool sp_proxy_http_head_step(struct sp_proxy_conn *c)
{
    (void)sp_proxy_end_flush(&c->client);
    if (c->client.is_mute)
        sp_proxy_conn_end(c, true);
    if (c->client.is_mute || c->client.out.len != 0)
        return false; /* the last response first: pipelined requests must not pile up answers */
    (void)sp_proxy_end_fill(&c->client, SP_HTTP1_HEAD_MAX);
    drop_stale_server(c);
    const size_t n = sp_http1_head_length(sp_buf_str(&c->client.in), &c->scanned);
    if (n != 0)
        return take_head(c, n);
    if (c->client.in.len >= SP_HTTP1_HEAD_MAX) {
        sp_proxy_refuse_http(c, 431, "the head of the request is too large");
        return true;
    }
    if (c->client.is_eof || c->client.is_broken)
        sp_proxy_conn_end(c, false);
    else if (c->client.in.len == 0)
        sp_buf_done(&c->client.in);
    return false;
}

/* ---- to the server ---- */

bool sp_proxy_http_begin(struct sp_proxy_conn *c, bool is_reused)
{
    struct sp_proxy_http *h = c->http;
    const struct sp_proxy_upstream *up = c->is_by_upstream ? &c->p->upstream_http : NULL;
    const struct sp_str extra = up != NULL && up->field != NULL ? sp_str_of(up->field) : SP_STR("");

    h->is_reused = is_reused;
    if (!sp_http1_write_request(&c->server.out, &h->head, c->is_by_upstream, extra, false)) {
        sp_proxy_conn_end(c, true);
        return false;
    }
    sp_http1_body_begin(&h->request, &h->head);
    sp_buf_drop(&c->client.in, h->head_len);
    h->head.field_count = 0; /* they pointed into client.in */
    c->state = SP_PROXY_AT_EXCHANGE;
    return true;
}

/* Moves a body from one end to the other. -1: malformed, or no memory. */
static int move_body(struct sp_http1_body *b, struct sp_proxy_end *from, struct sp_proxy_end *to,
                     uint64_t *payload, size_t *budget)
{
    int has_changed = 0;

    while (!b->is_over && to->out.len < SP_PROXY_COPY_MAX && *budget != 0) {
        if (from->in.len == 0)
            (void)sp_proxy_end_fill(from, SP_PROXY_COPY_MAX);
        const ptrdiff_t n = sp_http1_body_move(b, sp_buf_str(&from->in), &to->out, payload);
        if (n < 0)
            return -1;
        sp_buf_drop(&from->in, (size_t)n);
        *budget -= (size_t)n < *budget ? (size_t)n : *budget;
        (void)sp_proxy_end_flush(to);
        if (n == 0 && !sp_proxy_end_fill(from, SP_PROXY_COPY_MAX))
            break;
        has_changed = 1;
        if (from->is_eof && from->in.len == 0)
            break;
    }
    if (from->in.len == 0)
        sp_buf_done(&from->in);
    return has_changed;
}

static bool move_request(struct sp_proxy_conn *c, size_t *budget)
{
    struct sp_proxy_http *h = c->http;
    const int moved = move_body(&h->request, &c->client, &c->server, &c->sent, budget);

    if (moved < 0) {
        if (h->has_response)
            sp_proxy_conn_end(c, true);
        else
            sp_proxy_refuse_http(c, 400, "the body of the request is malformed");
        return true;
    }
    /* A client that half-closes behind a complete request still reads the response. */
    if (c->client.is_broken || c->client.is_mute ||
        (!h->request.is_over && c->client.is_eof && c->client.in.len == 0)) {
        sp_proxy_conn_end(c, true);
        return true;
    }
    return moved > 0;
}

/* ---- from the server ---- */

static bool end_exchange(struct sp_proxy_conn *c)
{
    struct sp_proxy_http *h = c->http;
    const bool closes = h->closes || !h->request.is_over;

    sp_proxy_conn_done(c);
    if (h->server_closes || closes || c->server.in.len != 0) {
        sp_proxy_end_close(c, &c->server, false);
        sp_proxy_conn_release(c);
    }
    sp_proxy_http_free(c);
    c->state = closes ? SP_PROXY_AT_FLUSH : SP_PROXY_AT_HEAD;
    if (!closes)
        sp_proxy_conn_set_timer(c, IDLE_MS);
    return true;
}

static bool fail_response(struct sp_proxy_conn *c, const char *text)
{
    if (c->http->has_response)
        sp_proxy_conn_end(c, true);
    else
        sp_proxy_refuse_http(c, 502, text);
    return true;
}

/* The server ended an idle connection while our request was under way: it was not processed. A
 * client that sees its own connection end sends the request again. */
static bool end_without_response(struct sp_proxy_conn *c)
{
    if (!c->http->is_reused)
        return fail_response(c, "the server closed the connection without a response");
    sp_proxy_conn_end(c, false);
    return true;
}

static bool take_response_head(struct sp_proxy_conn *c, size_t n)
{
    struct sp_proxy_http *h = c->http;
    struct sp_http1_head *r = &c->p->head;
    struct sp_http1_refusal why = {0};
    const struct sp_str head = {c->server.in.data, n};

    c->scanned = 0;
    if (!sp_http1_read_response(head, sp_str_of(h->method), r, &why))
        return fail_response(c, "the server's response is malformed");
    if (c->is_by_upstream && r->status == 407) { /* the host's credentials are wrong */
        c->outcome = SP_PROXY_UPSTREAM;
        c->upstream_status = r->status;
        sp_proxy_fail(c);
        return true;
    }
    const bool is_tunnel = r->status == 101 && h->head.is_upgrade;
    const bool is_interim = r->status >= 100 && r->status < 200 && !is_tunnel;
    if (r->status == 101 && !is_tunnel)
        return fail_response(c, "the server switches protocols without a request for it");
    h->interim += is_interim ? n : 0;
    if (h->interim > SP_HTTP1_HEAD_MAX)
        return fail_response(c, "the server sends too many interim responses");
    if (r->body == SP_HTTP1_CHUNKED && h->head.minor == 0)
        return fail_response(c, "the server answers HTTP/1.0 in chunks");
    if (!is_interim && !is_tunnel) {
        h->closes = !h->head.keeps_alive || r->body == SP_HTTP1_UNTIL_CLOSE || !h->request.is_over;
        h->server_closes = h->server_closes || !r->keeps_alive || r->body == SP_HTTP1_UNTIL_CLOSE;
        h->has_response = true;
        sp_http1_body_begin(&h->response, r);
    }
    /* A client of 1.0 does not know interim responses. */
    if (!(is_interim && h->head.minor == 0) &&
        !sp_http1_write_response(&c->client.out, r, h->closes)) {
        sp_proxy_conn_end(c, true);
        return true;
    }
    sp_buf_drop(&c->server.in, n);
    if (is_tunnel) {
        become_tunnel(c);
        sp_proxy_tunnel_begin(c);
    }
    return true;
}

static bool read_response_head(struct sp_proxy_conn *c)
{
    const bool has_changed = sp_proxy_end_fill(&c->server, SP_HTTP1_HEAD_MAX);
    const size_t n = sp_http1_head_length(sp_buf_str(&c->server.in), &c->scanned);

    if (n != 0)
        return take_response_head(c, n);
    if (c->server.in.len >= SP_HTTP1_HEAD_MAX)
        return fail_response(c, "the head of the response is too large");
    if (c->server.is_eof || c->server.is_broken)
        return c->server.in.len == 0 ? end_without_response(c)
                                     : fail_response(c, "the server's response is cut off");
    return has_changed;
}

static bool move_response(struct sp_proxy_conn *c, size_t *budget)
{
    struct sp_proxy_http *h = c->http;

    if (!h->has_response)
        return read_response_head(c);
    const int moved = move_body(&h->response, &c->server, &c->client, &c->received, budget);
    const bool is_cut = c->server.is_broken || (c->server.is_eof && c->server.in.len == 0);
    if (moved < 0)
        return fail_response(c, "");
    if (is_cut && !h->response.is_over && c->server.in.len == 0) {
        /* An end is the end of a body that has no other one; a reset is not. */
        if (h->response.kind != SP_HTTP1_UNTIL_CLOSE || c->server.is_broken)
            return fail_response(c, "");
        h->response.is_over = true;
    }
    if (h->response.is_over)
        return end_exchange(c);
    return moved > 0;
}

bool sp_proxy_http_step(struct sp_proxy_conn *c)
{
    size_t budget = TURN_MAX;

    if (c->client.saw_error) {
        sp_proxy_conn_end(c, true);
        return false;
    }
    /* A client that has shut down its writing end may have closed the connection, too. */
    if (c->client.saw_hangup && c->timer.slot == 0)
        sp_proxy_conn_set_timer(c, SP_PROXY_HALF_CLOSED_MS);
    bool has_changed = sp_proxy_end_flush(&c->server);
    has_changed = sp_proxy_end_flush(&c->client) || has_changed;
    /* A server that takes no more of the request may still have sent a response. */
    if (c->server.is_mute)
        c->http->server_closes = true;
    else
        has_changed = move_request(c, &budget) || has_changed;
    if (c->state != SP_PROXY_AT_EXCHANGE)
        return true;
    has_changed = move_response(c, &budget) || has_changed;
    if (c->state != SP_PROXY_AT_EXCHANGE)
        return true;
    if (budget == 0) {
        sp_proxy_conn_wake(c);
        return false;
    }
    return has_changed;
}

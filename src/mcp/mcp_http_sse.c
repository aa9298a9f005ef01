/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_sse: answers, as bytes. A request whose first message is its answer gets one JSON object;
 * one that says something before gets a stream of events, in chunks, with the answer at its end.
 */
#include <stdio.h>

#include "base/auto.h"
#include "mcp/mcp_http_priv.h"

#define JSON_TYPE    "content-type: application/json\r\n"
#define EVENT_BEFORE "event: message\ndata: "
#define EVENT_AFTER  "\n\n"
#define COMMENT      ":\n\n"
#define ALLOWED                                                           \
    "access-control-allow-methods: POST, DELETE\r\n"                      \
    "access-control-allow-headers: authorization, content-type, accept, " \
    "mcp-protocol-version, mcp-method, mcp-name, mcp-session-id\r\n"      \
    "access-control-max-age: 600\r\n"

void sp_mcp_http_put(struct sp_mcp_conn *c, struct sp_str bytes)
{
    if (c->phase == SP_MCP_CONN_GONE || bytes.n == 0)
        return;
    if (sp_outq_size(&c->outq) == 0)
        c->moved_ms = sp_loop_now(c->http->loop);
    if (bytes.n > SP_MCP_HTTP_OUT_MAX - sp_outq_size(&c->outq) ||
        !sp_outq_raw(&c->outq, bytes.p, bytes.n))
        sp_mcp_conn_drop(c);
}

static void put_text(struct sp_mcp_conn *c, const char *text)
{
    sp_mcp_http_put(c, sp_str_of(text));
}

/* ---- heads ---- */

static void put_origin(struct sp_mcp_conn *c)
{
    const struct sp_str origin = c->verdict.origin;

    if (origin.n == 0)
        return;
    put_text(c, "access-control-allow-origin: ");
    sp_mcp_http_put(c, origin);
    put_text(c, "\r\naccess-control-expose-headers: mcp-session-id, www-authenticate\r\n"
                "vary: origin\r\n");
}

/* The status and what every answer has; not the empty line. */
static void begin_head(struct sp_mcp_conn *c, unsigned status)
{
    char line[96];

    (void)snprintf(line, sizeof line, "HTTP/1.1 %u %s\r\ncache-control: no-store\r\n", status,
                   sp_http_reason(status));
    put_text(c, line);
    if (c->is_last)
        put_text(c, "connection: close\r\n");
    put_origin(c);
}

static void end_head(struct sp_mcp_conn *c, size_t length)
{
    char line[64];

    (void)snprintf(line, sizeof line, "content-length: %zu\r\n\r\n", length);
    put_text(c, line);
}

static void finish(struct sp_mcp_conn *c)
{
    c->is_asked = false;
    c->is_streaming = false;
    sp_mcp_conn_enter(c, SP_MCP_CONN_SENDING);
}

/* ---- answers of our own ---- */

void sp_mcp_http_refuse(struct sp_mcp_conn *c, unsigned status, int code, const char *why,
                        const char *header)
{
    char body[320] = "";

    if (why != NULL) /* our own words: nothing in them is to be escaped */
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
    finish(c);
}

void sp_mcp_http_answer_empty(struct sp_mcp_conn *c, unsigned status)
{
    begin_head(c, status);
    if (c->verdict.verb == SP_MCP_PREFLIGHT)
        put_text(c, ALLOWED);
    if (status == 204) /* which has no body, and must not speak of its length */
        put_text(c, "\r\n");
    else
        end_head(c, 0);
    finish(c);
}

void sp_mcp_http_continue(struct sp_mcp_conn *c)
{
    put_text(c, "HTTP/1.1 100 Continue\r\n\r\n");
    sp_mcp_conn_stir(c);
}

/* ---- the stream ---- */

static void put_chunk(struct sp_mcp_conn *c, const struct sp_str *parts, size_t count)
{
    char size[24];
    size_t n = 0;

    for (size_t i = 0; i < count; i++)
        n += parts[i].n;
    (void)snprintf(size, sizeof size, "%zx\r\n", n);
    if (!c->request.is_1_0)
        put_text(c, size);
    for (size_t i = 0; i < count; i++)
        sp_mcp_http_put(c, parts[i]);
    if (!c->request.is_1_0)
        put_text(c, "\r\n");
    c->said_ms = sp_loop_now(c->http->loop);
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
    finish(c);
}

static void put_event(struct sp_mcp_conn *c, struct sp_str message)
{
    const struct sp_str parts[] = {SP_STR(EVENT_BEFORE), message, SP_STR(EVENT_AFTER)};

    put_chunk(c, parts, 3);
}

void sp_mcp_http_comment(struct sp_mcp_conn *c)
{
    const struct sp_str parts[] = {SP_STR(COMMENT)};

    put_chunk(c, parts, 1);
}

/* ---- what the peer says ---- */

static void put_json(struct sp_mcp_conn *c, struct sp_str message, unsigned status)
{
    begin_head(c, status);
    if (c->session != NULL && !c->session->is_known && sp_mcp_peer_version(c->peer) != NULL) {
        sp_mcp_session_publish(c->session);
        put_text(c, "mcp-session-id: ");
        put_text(c, c->session->id);
        put_text(c, "\r\n");
    }
    put_text(c, JSON_TYPE);
    end_head(c, message.n);
    sp_mcp_http_put(c, message);
    finish(c);
}

void sp_mcp_http_send(struct sp_mcp_out *o, struct sp_str message, unsigned status)
{
    struct sp_mcp_conn *c = SP_CONTAINER(o, struct sp_mcp_conn, out);

    if (c->phase != SP_MCP_CONN_ANSWERING)
        return; /* it broke in this turn, and will be told so */
    if (!c->is_streaming && status != 0) {
        put_json(c, message, status);
        return;
    }
    if (!c->is_streaming)
        begin_stream(c);
    put_event(c, message);
    if (status != 0)
        end_stream(c);
    sp_mcp_conn_stir(c);
}

bool sp_mcp_http_is_full(const struct sp_mcp_out *o)
{
    const void *first = o; /* it is the first member */
    const struct sp_mcp_conn *c = first;

    return sp_outq_size(&c->outq) >= SP_MCP_HTTP_FULL;
}

void sp_mcp_http_abandon(struct sp_mcp_conn *c, unsigned status, const char *why)
{
    if (c->phase != SP_MCP_CONN_ANSWERING)
        return;
    if (c->is_streaming)
        end_stream(c);
    else
        sp_mcp_http_refuse(c, status, -32600, why, NULL);
}

/* Whoever cancels wants no answer: a stream that ends is one without. */
void sp_mcp_http_cancelled(struct sp_mcp_out *o)
{
    struct sp_mcp_conn *c = SP_CONTAINER(o, struct sp_mcp_conn, out);

    if (c->phase != SP_MCP_CONN_ANSWERING)
        return;
    if (!c->is_streaming)
        begin_stream(c);
    end_stream(c);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_http: MCP over streamable HTTP. One endpoint: POST carries every message, DELETE ends a
 * legacy session, GET is 405. Every request needs a bearer token; each token is a caller.
 */
#ifndef SP_MCP_MCP_HTTP_H
#define SP_MCP_MCP_HTTP_H

#include "mcp/mcp.h"

struct sp_mcp_http;

#define SP_MCP_HTTP_BODY_MAX     (16U << 20)
#define SP_MCP_HTTP_SESSIONS_MAX 256     /* legacy; then the least recently used is evicted */
#define SP_MCP_HTTP_SESSION_MS   3600000 /* a session unused for this long ends */
#define SP_MCP_HTTP_ALIVE_MS     15000   /* between keep-alive comments on a silent stream */

struct sp_mcp_http_options {
    const char *url;           /* http://127.0.0.1:PORT/PATH; port 0: any */
    const char *const *tokens; /* NULL-terminated; at least one */
    /* Pages that may call, NULL-terminated; NULL: none. Borrowed until sp_mcp_http_free. */
    const char *const *origins;
    bool allows_remote; /* accept an address that is not loopback */
    unsigned max_connections;
};

int sp_mcp_http_new(struct sp_mcp *m, const struct sp_mcp_http_options *o, struct sp_mcp_http **ret,
                    struct sp_err *e);
void sp_mcp_http_free(struct sp_mcp_http *h); /* NULL is fine */
/* The URL with the port that was bound. */
const char *sp_mcp_http_url(const struct sp_mcp_http *h);

#endif

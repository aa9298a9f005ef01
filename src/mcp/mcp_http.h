/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http: MCP over streamable HTTP (mcp-and-acp.md 2.10, 3): one endpoint, POST for everything;
 * DELETE ends a legacy session; GET is 405. Every request needs a token; each token is a caller.
 */
#ifndef SP_MCP_MCP_HTTP_H
#define SP_MCP_MCP_HTTP_H

#include "mcp/mcp.h"

struct sp_mcp_http;

#define SP_MCP_HTTP_BODY_MAX     (16U << 20)
#define SP_MCP_HTTP_SESSIONS_MAX 256     /* legacy; then the one unused for longest goes */
#define SP_MCP_HTTP_SESSION_MS   3600000 /* unused for so long: gone */
#define SP_MCP_HTTP_ALIVE_MS     15000   /* between comments on a stream that says nothing */

struct sp_mcp_http_options {
    const char *url;            /* http://127.0.0.1:PORT/PATH; port 0: any */
    const char *const *tokens;  /* NULL at the end; at least one */
    const char *const *origins; /* that may call from a browser; NULL at the end, or NULL */
    bool allows_remote;         /* an address that is not loopback */
    unsigned max_connections;
};

int sp_mcp_http_new(struct sp_mcp *m, const struct sp_mcp_http_options *o, struct sp_mcp_http **ret,
                    struct sp_err *e);
void sp_mcp_http_free(struct sp_mcp_http *h); /* NULL is fine */
/* With the port that it really has. */
const char *sp_mcp_http_url(const struct sp_mcp_http *h);

#endif

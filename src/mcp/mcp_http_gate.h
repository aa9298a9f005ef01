/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_http_gate: judges the head of a request: token, Host, Origin, path, types. No I/O.
 */
#ifndef SP_MCP_MCP_HTTP_GATE_H
#define SP_MCP_MCP_HTTP_GATE_H

#include "base/error.h"
#include "server/net/http.h"

#define SP_MCP_HTTP_PATH_MAX 256

struct sp_mcp_gate {
    char path[SP_MCP_HTTP_PATH_MAX + 1];
    uint8_t (*digests)[32]; /* SHA-256 of each token; the tokens themselves are not kept */
    unsigned tokens;
    const char *const *origins; /* borrowed; NULL-terminated */
    bool is_loopback;
};

/* Sets tokens (at least one) and origins (NULL: none), both NULL-terminated. digests are freed also
 * after a failure. */
int sp_mcp_gate_init(struct sp_mcp_gate *g, const char *const *tokens, const char *const *origins,
                     struct sp_err *e);

enum sp_mcp_verb { SP_MCP_POST, SP_MCP_DELETE, SP_MCP_PREFLIGHT };

struct sp_mcp_verdict {
    unsigned status;    /* 0: accepted; else the HTTP status of the refusal */
    const char *why;    /* its message; NULL: no body */
    const char *header; /* one extra header line with its CR LF, or NULL */
    enum sp_mcp_verb verb;
    unsigned token;       /* index of the token, from 1; 0: none matched */
    struct sp_str origin; /* an allowed Origin; n 0: the request has none */
};

struct sp_mcp_verdict sp_mcp_gate_judge(const struct sp_mcp_gate *g,
                                        const struct sp_http_request *r);

#endif

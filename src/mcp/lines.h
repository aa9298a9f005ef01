/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lines: MCP over stdio, or over a unix socket for the same user: one message a line, both eras.
 */
#ifndef SP_MCP_LINES_H
#define SP_MCP_LINES_H

#include "mcp/mcp.h"

struct sp_mcp_lines;

struct sp_mcp_lines_options {
    const char *url; /* unix:///PATH, a socket of mode 0600; NULL: stdin and stdout */
    unsigned max_connections;
    void *user;
    void (*finished)(void *user); /* stdio: end of input. May free the lines */
};

int sp_mcp_lines_new(struct sp_mcp *m, const struct sp_mcp_lines_options *o,
                     struct sp_mcp_lines **ret, struct sp_err *e);
/* Answers subscriptions, then closes all connections. NULL is fine. */
void sp_mcp_lines_free(struct sp_mcp_lines *l);
/* "unix:///path", "stdio" */
const char *sp_mcp_lines_url(const struct sp_mcp_lines *l);

/* `--connect`: carries bytes between stdin, stdout and a unix socket until either ends. Returns the
 * exit status: 0, or 1 with the reason in *e. */
int sp_mcp_relay(const char *path, struct sp_err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_tokens: the bearer tokens of `sallyport mcp` over HTTP: of a file, or one that is made.
 */
#ifndef SP_CLI_MCP_TOKENS_H
#define SP_CLI_MCP_TOKENS_H

#include "base/error.h"

#define SP_MCP_TOKENS_MAX 64

struct sp_mcp_tokens {
    char *text;                                /* what the tokens point into */
    const char *tokens[SP_MCP_TOKENS_MAX + 1]; /* NULL at the end */
    char *made; /* the file that was written, and goes at the end; NULL: none */
};

/*
 * file: one token a line, at least 16 characters each, mode 0600 or stricter; NULL: one is made, in
 * `dir`, which is the user's own. *ret is zero, and to be ended also after a failure.
 */
int sp_mcp_tokens_open(const char *file, const char *dir, struct sp_mcp_tokens *ret,
                       struct sp_err *e);
void sp_mcp_tokens_done(struct sp_mcp_tokens *t);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_call: an open tools/call: a conversation that waits for a run.
 */
#ifndef SP_MCP_MCP_CALL_H
#define SP_MCP_MCP_CALL_H

#include "mcp/peer_priv.h"

struct sp_mcp_call {
    struct sp_mcp_request request; /* first */
    struct sp_mcp_run *run;
    struct sp_mcp_digest digest;
    bool elicits;    /* the client shows forms */
    bool wants_task; /* may be answered with a task */
    bool is_overdue; /* has to be answered soon */
    bool is_asked;   /* the client has an elicitation of ours (legacy) */
    struct sp_timer timer;
    uint64_t progress;
    uint32_t token_len; /* 0: no progress messages */
    char token[SP_MCP_ID_MAX];
};

/* Answers and frees the call. Its run must have been taken out. */
void sp_mcp_call_answer(struct sp_mcp_call *c, const char *type, struct sp_str members);

#endif

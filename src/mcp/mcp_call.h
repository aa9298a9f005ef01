/* SPDX-License-Identifier: Apache-2.0 */
/*
 * call: a tools/call that is open: who waits for a run in one conversation.
 */
#ifndef SP_MCP_MCP_CALL_H
#define SP_MCP_MCP_CALL_H

#include "mcp/peer_priv.h"

struct sp_mcp_call {
    struct sp_mcp_request request; /* first */
    struct sp_mcp_run *run;
    struct sp_mcp_digest digest;
    bool elicits;    /* the client shows forms */
    bool wants_task; /* it may be answered with a task */
    bool is_overdue; /* it has to be answered soon, whatever comes */
    bool is_asked;   /* the client has our question (legacy) */
    struct sp_timer timer;
    uint64_t progress;
    uint32_t token_len; /* 0: nobody wants to know how it goes */
    char token[SP_MCP_ID_MAX];
};

/* The run is somebody else's now; the call is answered, and freed. */
void sp_mcp_call_answer(struct sp_mcp_call *c, const char *type, struct sp_str members);
void sp_mcp_call_fail(struct sp_mcp_call *c, const char *why); /* a result with isError */
void sp_mcp_call_out_of_memory(struct sp_mcp_call *c);

/* Its run has a question: if it is the host's turn, the host is asked. */
void sp_mcp_call_ask(struct sp_mcp_call *c);
/* It has none any more. */
void sp_mcp_call_withdraw(struct sp_mcp_call *c);
/* Leaves the run, with its question if there is one, to whoever repeats the call. */
void sp_mcp_call_give_up(struct sp_mcp_call *c);
/* Ends: what the client was asked in its name is forgotten. */
void sp_mcp_call_forget_asked(struct sp_mcp_call *c);

/* The run, which has started, becomes a task's; the call is answered. false: there can be no more
 * tasks, and all is as before. */
bool sp_mcp_task_adopt(struct sp_mcp_call *c, int session_id);
bool sp_mcp_task_has_room(const struct sp_mcp_caller *c);

/* `{"approve_N":{"method":"elicitation/create","params":...}}` */
bool sp_mcp_add_input_request(struct sp_buf *b, const struct sp_approval_question *q,
                              uint64_t number);
/* The answer to approve_N in an object of them, or SP_JSON_NONE. */
uint32_t sp_mcp_input_response(struct sp_json *j, uint32_t responses, uint64_t number);

#endif

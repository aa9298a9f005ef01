/* SPDX-License-Identifier: Apache-2.0 */
/*
 * task_priv: what the files about tasks share: task.c keeps them, task_methods.c speaks of them,
 * peer_listen.c tells those who listen.
 */
#ifndef SP_MCP_TASK_PRIV_H
#define SP_MCP_TASK_PRIV_H

#include "mcp/mcp_call.h"

enum sp_mcp_task_status {
    SP_MCP_TASK_WORKING,
    SP_MCP_TASK_INPUT_REQUIRED,
    SP_MCP_TASK_COMPLETED,
    SP_MCP_TASK_FAILED, /* there was no memory for its result */
    SP_MCP_TASK_CANCELLED,
};

struct sp_mcp_task {
    struct sp_mcp_tasks *all;
    struct sp_mcp_task *prev, *next; /* newer, older */
    uint64_t number;
    enum sp_mcp_task_status status;
    int session_id;
    int64_t created_at_ms, updated_at_ms; /* since 1970 */
    uint64_t ended_ms;                    /* of the loop's clock; 0: it has not */
    struct sp_mcp_run *run;               /* NULL: it has ended */
    bool elicits;
    uint64_t asked;       /* questions so far: the key of the open one is approve_<asked> */
    struct sp_buf result; /* its members, once it is completed */
};

struct sp_mcp_listen;

struct sp_mcp_tasks {
    struct sp_mcp_caller *caller;
    struct sp_mcp_task *newest, *oldest;
    uint32_t count;
    size_t bytes;
    uint64_t next_number;
    struct sp_timer timer; /* until the first of the ended goes */
    struct sp_mcp_listen *listening;
};

/* Made when it is first needed; NULL: no memory. */
struct sp_mcp_tasks *sp_mcp_tasks_of(struct sp_mcp_caller *c);
struct sp_mcp_task_id {
    char text[64];
};
/* How it is called on the wire (task_id.c). */
void sp_mcp_task_id(const struct sp_mcp_tasks *all, uint64_t number, struct sp_mcp_task_id *ret);
/* NULL: there is none (any more). */
struct sp_mcp_task *sp_mcp_task_find(const struct sp_mcp_caller *c, struct sp_str id);
/* `"taskId":...` and all the rest; without what came of it where is_brief. */
bool sp_mcp_task_add(struct sp_buf *b, const struct sp_mcp_task *t, bool is_brief);
/* Its status is another. */
void sp_mcp_task_changed(struct sp_mcp_task *t, enum sp_mcp_task_status status);
/* Stops, and so does its process. */
void sp_mcp_task_stop(struct sp_mcp_task *t);
uint64_t sp_mcp_task_ttl_ms(const struct sp_mcp_task *t); /* from its beginning; 0: for ever */

/* Tells whoever listens; they may go on the way. */
void sp_mcp_listen_tell(struct sp_mcp_task *t);
/* The tasks end before their listeners: nothing is told any more. */
void sp_mcp_listen_forget(struct sp_mcp_tasks *all);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * task: calls that were answered with a task. A task belongs to its caller and outlives the
 * conversation that started it; it is kept for a while after its end.
 */
#ifndef SP_MCP_TASK_H
#define SP_MCP_TASK_H

#include "mcp/caller.h"

#define SP_MCP_TASKS_MAX        256
#define SP_MCP_TASK_BYTES_MAX   (16U << 20) /* of kept results; the oldest are evicted first */
#define SP_MCP_TASK_INTERVAL_MS 2000        /* the polling interval that clients are told */

struct sp_mcp_call;

/* Cancels running tasks. After every peer of the caller is gone or moved. NULL is fine. */
void sp_mcp_tasks_free(struct sp_mcp_tasks *t);

/* Turns a call into a task, once its process has started, and answers it. false: too many tasks or
 * no memory; nothing changed. */
bool sp_mcp_task_adopt(struct sp_mcp_call *c, int session_id);
bool sp_mcp_task_has_room(const struct sp_mcp_caller *c);

/* The wire name of a task: its number and a part that cannot be guessed, which the extension
 * demands although no other caller can use the name anyway. */
struct sp_mcp_task_id {
    char text[64];
};
void sp_mcp_task_id(const struct sp_mcp_tasks *all, uint64_t number, struct sp_mcp_task_id *ret);

#endif

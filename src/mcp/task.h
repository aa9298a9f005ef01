/* SPDX-License-Identifier: Apache-2.0 */
/*
 * task: calls that were answered with a task (mcp-and-acp.md 5). A task is a caller's, and outlives
 * the conversation it came from: it goes a while after it has ended.
 */
#ifndef SP_MCP_TASK_H
#define SP_MCP_TASK_H

#include "mcp/caller.h"

#define SP_MCP_TASKS_MAX        256
#define SP_MCP_TASK_BYTES_MAX   (16U << 20) /* of results that are kept; the oldest go first */
#define SP_MCP_TASK_INTERVAL_MS 2000        /* between two looks, as we advise */

/* Runs that still go on are cancelled. After every peer of the caller. NULL is fine. */
void sp_mcp_tasks_free(struct sp_mcp_tasks *t);

#endif

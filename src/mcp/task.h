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

/* Cancels running tasks. After every peer of the caller is gone or moved. NULL is fine. */
void sp_mcp_tasks_free(struct sp_mcp_tasks *t);

/* Makes the run of a call a task once its process has started; `out` gets the members of the call's
 * answer. false: too many tasks or no memory; the run is still the call's. */
bool sp_mcp_task_adopt(struct sp_mcp_run *r, int session_id, bool elicits, struct sp_buf *out);
bool sp_mcp_task_has_room(const struct sp_mcp_caller *c);

#endif

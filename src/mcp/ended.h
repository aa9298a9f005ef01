/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ended: the sessions of a caller that ended while no call of its was waiting for them. The next
 * result has a note about them, and the next list_sessions marks them.
 */
#ifndef SP_MCP_ENDED_H
#define SP_MCP_ENDED_H

#include "base/buf.h"
#include "mcp/caller.h"

/* It is remembered that this session has ended; of too many the oldest is forgotten. */
void sp_mcp_ended_add(struct sp_mcp_caller *c, int session_id);
/* Whether it has since the last list: true once. */
bool sp_mcp_ended_list(struct sp_mcp_caller *c, int session_id);
/* Lines about those that no result was about; `told` is the session that this result is about, 0:
 * none. Each is said once. */
bool sp_mcp_ended_add_note(struct sp_mcp_caller *c, int told, struct sp_buf *out);

#endif

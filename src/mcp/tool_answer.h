/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool_answer: the two forms of an answer about a process: one text, and facts for programs.
 */
#ifndef SP_MCP_TOOL_ANSWER_H
#define SP_MCP_TOOL_ANSWER_H

#include "mcp/tool_priv.h"

/* Appends both. look NULL: the state of the process is not known. false: no memory. */
bool sp_mcp_answer_add(struct sp_buf *text, struct sp_buf *structured, const struct sp_mcp_work *c,
                       const struct sp_look *look);

#endif

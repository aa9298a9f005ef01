/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool: the tools that are offered (mcp-and-acp.md 6). A tool begins with its arguments and leads
 * to one sp_mcp_run_done, later.
 */
#ifndef SP_MCP_TOOL_H
#define SP_MCP_TOOL_H

#include "mcp/mcp_run.h"

struct sp_mcp_tool {
    const char *name;
    /* Begins. What is wrong with the arguments is a result too (from the loop). -SP_E_SYSTEM: no
     * memory. */
    int (*start)(struct sp_mcp_run *r, struct sp_str arguments, struct sp_err *e);
};

/* NULL: there is none of that name, or it is not offered here. */
const struct sp_mcp_tool *sp_mcp_tool_find(const struct sp_mcp *m, struct sp_str name);

bool sp_mcp_tool_is_offered(const struct sp_mcp *m, const char *name);

/* What a revision of the protocol knows of. */
struct sp_mcp_tool_words {
    bool has_annotations;   /* since 2025-03-26 */
    bool has_output_schema; /* since 2025-06-18 */
};
/* Appends the JSON array of `tools/list`, always in the same order. false: no room. */
bool sp_mcp_tools_add_list(struct sp_buf *out, const struct sp_mcp *m,
                           struct sp_mcp_tool_words words);

#endif

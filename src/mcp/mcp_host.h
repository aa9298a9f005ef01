/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host: which form of a result a host shows its model, by the name that it gives itself. The name
 * is not trusted: it decides about where the output of a command stands, and about nothing else.
 */
#ifndef SP_MCP_MCP_HOST_H
#define SP_MCP_MCP_HOST_H

#include "mcp/mcp.h"

/* Whether the structured form repeats the output that the text has. Without a name, or with one
 * that is not known, it does: a host that shows models only this form would lose the output, one
 * that shows both pays twice, within the budget each time. */
bool sp_mcp_host_repeats_output(enum sp_mcp_structured_output when, struct sp_str name);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log: log messages (`notifications/message`) about sessions that begin (debug) and end (info), and
 * about commands that are run once more (info), for hosts that want them: since logging/setLevel in
 * the legacy era, while a request that names a level is open in the modern one. A host that does
 * not read loses them; nothing waits for it.
 */
#ifndef SP_MCP_MCP_LOG_H
#define SP_MCP_MCP_LOG_H

#include "mcp/caller.h"

struct sp_mcp_peer;

enum sp_mcp_log_level {
    SP_MCP_LOG_NONE, /* nothing is wanted */
    SP_MCP_LOG_DEBUG,
    SP_MCP_LOG_INFO,
    SP_MCP_LOG_MORE, /* notice and above: nothing here is so important */
};
/* NONE: there is no level of this name. */
enum sp_mcp_log_level sp_mcp_log_level_of(struct sp_str name);

/* The loop tells it, to every peer of the caller that wants it. */
void sp_mcp_log(struct sp_mcp_caller *c, int session_id, bool has_ended);

/* The same of how a call goes on (info); a longer text is cut. */
void sp_mcp_log_notice(struct sp_mcp_caller *c, struct sp_str text);

/* Peers are known to their caller for as long as they have one; c NULL: none. */
void sp_mcp_log_enter(struct sp_mcp_peer *p, struct sp_mcp_caller *c);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * caller: an authenticated client and everything that belongs to it.
 */
#ifndef SP_MCP_CALLER_H
#define SP_MCP_CALLER_H

#include "mcp/mcp.h"

struct sp_mcp_run;
struct sp_mcp_parking;
struct sp_mcp_tasks;
struct sp_mcp_memory;
struct sp_mcp_peer;

#define SP_MCP_ENDED_MAX  64 /* sessions */
#define SP_MCP_EVENTS_MAX 64 /* log events waiting for the loop; further ones are dropped */

/* A session that ended while no call waited for it. */
struct sp_mcp_ended {
    int session_id;
    bool is_noted; /* a result had a note about it */
};

/* A log message for hosts that want them. */
struct sp_mcp_event {
    int session_id; /* 0: a notice */
    bool has_ended; /* else it has started */
    char notice[96];
};

struct sp_mcp_caller {
    struct sp_mcp *mcp;
    struct sp_list link;
    uint64_t number; /* from 1, never used again */
    char *identity;
    struct sp_manager *manager;
    struct sp_approver questions;  /* the manager's approver: finds the run, then asks approvers */
    struct sp_approver *approvers; /* the configured chain, with `host` as its client */
    struct sp_approver host;       /* asks the host of the run */
    struct sp_list runs;           /* newest first; a run that is being answered is not in it */
    uint32_t run_count;
    uint64_t next_run;              /* for call ids */
    struct sp_mcp_parking *parking; /* made on first use, like the next two */
    struct sp_mcp_tasks *tasks;
    struct sp_mcp_memory *memory;
    struct sp_buf warnings; /* of the manager, about no particular call: for the next result */
    struct sp_mcp_ended ended[SP_MCP_ENDED_MAX]; /* oldest first */
    uint32_t ended_count;
    struct sp_list peers; /* that may want log messages */
    struct sp_mcp_event events[SP_MCP_EVENTS_MAX];
    uint32_t event_count;
    struct sp_deferred logging;
    unsigned held; /* references */
    struct sp_list watches;
    struct sp_deferred ending;
    struct sp_timer detached_timer;
};

/* ---- sessions that ended while no call waited for them ---- */

/* Whether it ended since the last list_sessions: true once. */
bool sp_mcp_ended_list(struct sp_mcp_caller *c, int session_id);
/* Appends a line for each that no result has mentioned yet, except `told`, the session that this
 * result is about (0: none). Each is mentioned once. */
bool sp_mcp_ended_add_note(struct sp_mcp_caller *c, int told, struct sp_buf *out);

/* ---- log messages (peer_say.c): sent from the loop to every peer that wants them ---- */

void sp_mcp_log(struct sp_mcp_caller *c, int session_id, bool has_ended);
void sp_mcp_log_notice(struct sp_mcp_caller *c, struct sp_str text); /* level info; may be cut */

#endif

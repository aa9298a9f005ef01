/* SPDX-License-Identifier: Apache-2.0 */
/*
 * caller: whoever was authenticated, and what belongs to it.
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
#define SP_MCP_EVENTS_MAX 64 /* that wait for the loop to tell them; more are left out */

/* ended.h: a session that ended while no call waited for it. */
struct sp_mcp_ended {
    int session_id;
    bool is_noted;
};

/* log.h: what a host that wants log messages is told. */
struct sp_mcp_event {
    int session_id; /* 0: a notice */
    bool has_ended; /* else it has begun */
    char notice[96];
};

struct sp_mcp_caller {
    struct sp_mcp *mcp;
    struct sp_mcp_caller *prev, *next;
    uint64_t number; /* among all there were, from 1 */
    char *identity;
    struct sp_manager *manager;
    struct sp_approver host;      /* run_ask.c's: asks the host of a run */
    struct sp_approver *approver; /* all who answer, the host among them */
    struct sp_mcp_run *runs;      /* all that have not ended */
    uint32_t run_count;
    uint64_t next_run;               /* for the call ids */
    struct sp_mcp_parking *parking;  /* parking.h: runs whose question waits for an answer */
    struct sp_mcp_tasks *tasks;      /* task.h; made when first needed */
    struct sp_mcp_memory *memory;    /* memory.h: keys and write ids; made when first needed */
    struct sp_mcp_looking *lookings; /* run.c's: what was asked of the manager */
    struct sp_buf warnings;          /* of the manager, about no call: for the next result */
    struct sp_mcp_ended ended[SP_MCP_ENDED_MAX]; /* oldest first */
    uint32_t ended_count;
    struct sp_mcp_peer *peers; /* log.h: those that may want log messages */
    struct sp_mcp_event events[SP_MCP_EVENTS_MAX];
    uint32_t event_count;
    struct sp_deferred logging;
    unsigned held;
    struct sp_list watches;
    struct sp_deferred ending;
    struct sp_timer detached_timer;
};

#endif

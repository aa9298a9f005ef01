/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_priv: shared by caller.c, mcp_run.c and parking.c.
 */
#ifndef SP_MCP_MCP_PRIV_H
#define SP_MCP_MCP_PRIV_H

#include "mcp/mcp_run.h"

struct sp_mcp {
    struct sp_mcp_options options;     /* its strings are owned */
    struct sp_manager_options manager; /* the template for each caller's manager */
    struct sp_approvers *host_alone;   /* used if the options name no approvers; else NULL */
    struct sp_rules *rules;            /* a reference; NULL: those of the options */
    char *fingerprint;                 /* of these rules */
    struct sp_list callers;            /* oldest first */
    uint32_t caller_count;
    uint64_t caller_total; /* ever made */
    uint8_t key[32];       /* signs tickets; random for each process */
};

#define SP_MCP_WARNINGS_MAX                                              \
    4096 /* bytes that wait for the next result; further ones are logged \
          */

/* Of each caller's manager, with the caller as its user. */
extern const struct sp_manager_ops sp_mcp_manager_ops;

/* ---- mcp_run.c ---- */

/* NULL: the run has ended. */
struct sp_mcp_run *sp_mcp_run_of_call(const struct sp_mcp_caller *c, struct sp_str call_id);
/* Opens c->questions, which the manager asks, and c->approvers behind it. */
int sp_mcp_caller_open_approvers(struct sp_mcp_caller *c, struct sp_err *e);
/* Frees the runs that are left when the caller's manager is gone. */
void sp_mcp_runs_free(struct sp_mcp_caller *c);

#endif

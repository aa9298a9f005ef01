/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_priv: what callers, runs and tickets share.
 */
#ifndef SP_MCP_MCP_PRIV_H
#define SP_MCP_MCP_PRIV_H

#include "mcp/mcp_run.h"

struct sp_mcp {
    struct sp_mcp_options options; /* its strings are owned */
    struct sp_manager_options manager;
    struct sp_approvers *host_alone;        /* who answers if the options do not say; else NULL */
    struct sp_rules *rules;                 /* a reference; NULL: those of the options */
    char *fingerprint;                      /* of these rules */
    struct sp_mcp_caller *callers, *newest; /* in the order they came */
    uint32_t caller_count;
    uint64_t caller_total;
    uint8_t key[32]; /* of tickets, for as long as the process lives */
};

#define SP_MCP_WARNINGS_MAX 4096 /* bytes that wait for a result; more are left out */

/* run_ask.c: what a caller's manager tells; its user is the caller. */
extern const struct sp_manager_ops sp_mcp_manager_ops;

/* run.c */
struct sp_mcp_run *sp_mcp_run_of_call(const struct sp_mcp_caller *c, struct sp_str call_id);
/* The caller ends. Before its manager: nobody waits any more. After it: what is left is freed. */
void sp_mcp_runs_let_go(struct sp_mcp_caller *c);
void sp_mcp_runs_free(struct sp_mcp_caller *c);
void sp_mcp_run_free(struct sp_mcp_run *r);
/* A result that was kept, told or dropped; the run is freed. */
void sp_mcp_run_tell_kept(struct sp_mcp_run *r);

/* run_ask.c */
/* Who answers the caller's questions: its host, and those who were configured. */
int sp_mcp_caller_open_approvers(struct sp_mcp_caller *c, struct sp_err *e);
/* The question is nobody's any more, as far as we are concerned. */
void sp_mcp_run_close_question(struct sp_mcp_run *r);
/* What is to be told is told in this turn of the loop. */
void sp_mcp_run_tell_soon(struct sp_mcp_run *r);

/* run_text.c */
void sp_mcp_run_forget_looking(struct sp_mcp_run *r);
void sp_mcp_lookings_free(struct sp_mcp_caller *c); /* after the manager */

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serve_approve: `sallyport serve --approve`: every process/start is judged before anything starts
 * (approvals.md 1). One policy and one set of rules for the whole server, read again when their
 * files change; each session has a memory of its own of what was approved for it.
 *
 * The sandbox is the client's choice: no rule takes it away, and what was approved in one sandbox
 * is not approved in another.
 */
#ifndef SP_CLI_SERVE_APPROVE_H
#define SP_CLI_SERVE_APPROVE_H

#include "config/config.h"
#include "os/loop.h"
#include "server/rpc/start_gate.h"

#define SP_SERVE_MAX_QUESTIONS 64 /* of a session that are open at once; the next start fails */

struct sp_serve_approve;

struct sp_serve_approve_ask {
    struct sp_loop *loop;
    const char *policy;           /* --approve */
    const char *const *rules;     /* --rules; NULL at the end */
    const char *const *approvers; /* --approver; NULL: as configured, else deny */
    const char *shell;            /* the one that clients are told of; it outlives this */
    char *const *environ;
};

int sp_serve_approve_new(const struct sp_serve_approve_ask *ask, struct sp_serve_approve **ret,
                         struct sp_err *e);
void sp_serve_approve_free(struct sp_serve_approve *a); /* after all connections; NULL is fine */

struct sp_start_gate *sp_serve_approve_gate(struct sp_serve_approve *a);

const struct sp_config *sp_serve_approve_config(const struct sp_serve_approve *a);

/* The session of this number has ended: what was approved for it is forgotten. */
void sp_serve_approve_forget(struct sp_serve_approve *a, uint64_t session);

#endif

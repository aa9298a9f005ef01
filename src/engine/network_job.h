/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network_job: answers for the managed network of one command: lists, rules, earlier decisions, and
 * questions to the approver of the conversation (approve/network.h). A local command asks through
 * struct sp_net_ops (core/managed.h), a server through sp_network_job_ask.
 *
 * A denial by policy does not end the command; a person's no does, through `refused`. When the
 * command has left the network of its cell, its receipt stays here.
 */
#ifndef SP_ENGINE_NETWORK_JOB_H
#define SP_ENGINE_NETWORK_JOB_H

#include "approve/network.h"
#include "base/arena.h"
#include "core/managed.h"

struct sp_network_job;
struct sp_start;

/* Everything but approvals and user is copied. */
struct sp_network_job_options {
    struct sp_approvals *approvals;
    struct sp_str call_id, turn_id, environment, cwd;
    struct sp_words argv;
    const struct sp_policy *policy; /* its profile has a managed network */
    const char *policy_name;        /* NULL: none */
    bool has_no_approver;           /* no approver answers: only hooks and the reviewer are asked */
    /* A person refused a host: the command has to end, with this text. */
    void (*refused)(void *user, const struct sp_network_outcome *o);
    void *user;
};

/* The start of the command asks the job from now on. *ret NULL: its network is not managed. */
int sp_network_job_new(const struct sp_network_job_options *o, struct sp_start *start,
                       struct sp_network_job **ret, struct sp_err *e);
/* Asks as sp_network_ask does, for a host on no list of the command's server. */
void sp_network_job_ask(struct sp_network_job *n, struct sp_network_request *r,
                        const struct sp_hostname *host, uint16_t port,
                        enum sp_proxy_protocol protocol,
                        void (*told)(struct sp_network_request *r));
/* The command has exited: its questions are withdrawn. NULL is fine. */
void sp_network_job_end(struct sp_network_job *n);
/* The lists alone answer from now on. NULL is fine. */
void sp_network_job_free(struct sp_network_job *n);

/* What a command reached and what it was denied. */
struct sp_network_receipt {
    struct sp_str json; /* an object; n 0: nothing was reached or denied */
    uint32_t denial_count;
    struct sp_net_denial denials[SP_MANAGED_RECEIPTS];
};

/* Up to now. Valid until the next call, or the end of the job. NULL: nothing, or no memory. */
const struct sp_network_receipt *sp_network_job_receipt(struct sp_network_job *n);
/* A copy in the arena; *ret NULL for NULL. false: no memory. */
bool sp_network_receipt_copy(struct sp_arena *a, const struct sp_network_receipt *from,
                             const struct sp_network_receipt **ret);

#endif

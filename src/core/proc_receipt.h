/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proc_receipt: the end of a process as JSON: its receipt, and what its sandbox refused.
 */
#ifndef SP_CORE_PROC_RECEIPT_H
#define SP_CORE_PROC_RECEIPT_H

#include "base/receipt.h"
#include "core/history.h"

/* What a sandbox did to a process. */
struct sp_sandbox_facts {
    uint32_t tier;
    enum sp_proc_network network;
    bool was_denied;
    const struct sp_exit *exit; /* NULL: has not exited */
    struct sp_str reason, path; /* guessed from the output; empty: nothing */
};

/* The member `sandbox` of a confined process, with a comma in front. Denials are complete only when
 * the process has exited. */
bool sp_sandbox_add_member(struct sp_buf *b, const struct sp_sandbox_facts *f);

/* The receipt of a process that has exited; its output is final when the process has closed. false:
 * no memory. */
bool sp_proc_receipt(const struct sp_proc *p, struct sp_kept_receipt *ret);
/* The same as the member `receipt`, with a comma in front. */
bool sp_proc_add_receipt(struct sp_buf *b, const struct sp_proc *p);
bool sp_history_add_receipt(struct sp_buf *b, const struct sp_history_entry *p);

static inline struct sp_sandbox_facts sp_proc_sandbox_facts(const struct sp_proc *p)
{
    const struct sp_denial_facts *d = p->denial;
    const bool has_reason = d != NULL && d->reason != NULL;

    return (struct sp_sandbox_facts){
        .tier = p->tier,
        .network = p->network,
        .was_denied = p->was_denied,
        .exit = p->state.exit_seq != 0 ? &p->state.exit : NULL,
        .reason = has_reason ? sp_str_of(d->reason) : (struct sp_str){0},
        .path = has_reason ? sp_str_of(d->path) : (struct sp_str){0},
    };
}

static inline struct sp_sandbox_facts sp_history_sandbox_facts(const struct sp_history_entry *p)
{
    return (struct sp_sandbox_facts){
        .tier = p->tier,
        .network = p->network,
        .was_denied = p->was_denied,
        .exit = p->has_exited ? &p->exit : NULL,
        .reason = p->denial_reason,
        .path = p->denial_path,
    };
}

#endif

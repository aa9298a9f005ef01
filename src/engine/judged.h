/* SPDX-License-Identifier: Apache-2.0 */
/*
 * judged: a one-shot run that needs approval. The plan judges it and asks an approver if necessary;
 * it runs (run.h); if the sandbox denied it something, it may run once more without a sandbox.
 *
 * The result is that of the last attempt. Each attempt with a begin event has an end event.
 */
#ifndef SP_ENGINE_JUDGED_H
#define SP_ENGINE_JUDGED_H

#include "approve/run_plan.h"
#include "engine/run.h"

struct sp_judged;

struct sp_judged_ask {
    struct sp_run_ask run; /* launch.policy is the sandbox; launch.environ.marks apply to confined
                              attempts only */
    struct sp_str environment;       /* id of the backend's environment */
    bool is_local;                   /* local: its programs can be resolved before the start */
    const char *policy_name;         /* NULL: none */
    enum sp_permissions permissions; /* only DEFAULT or ESCALATED */
    struct sp_str justification;
    /* The approver aborted the whole turn. From the loop, before fn; may be NULL. */
    void (*interrupt)(void *user);
};

/* Like sp_run_start; the ask is copied. A refusal is SP_RUN_REJECTED. */
int sp_judged_start(struct sp_approvals *a, struct sp_backend *b, const struct sp_judged_ask *ask,
                    sp_run_fn *fn, void *user, struct sp_judged **ret, struct sp_err *e);
void sp_judged_cancel(struct sp_judged *j);
/* Drops the callback, terminates a live process, withdraws an open question. NULL is fine. Not from
 * within one of its events. */
void sp_judged_free(struct sp_judged *j);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * judged: a one-shot run that needs leave (approvals.md): it is judged, a person is asked if need
 * be, it runs (run.h), and if its sandbox denied it something it may run once more without.
 *
 * The result is that of the last attempt. Each attempt that tells its begin tells its end.
 */
#ifndef SP_ENGINE_JUDGED_H
#define SP_ENGINE_JUDGED_H

#include "approve/run_plan.h"
#include "engine/run.h"

struct sp_judged;

struct sp_judged_ask {
    struct sp_run_ask run;     /* its launch's policy is the profile; marks are of that one alone */
    struct sp_str environment; /* which the backend is */
    bool is_local;             /* it runs here: its programs can be found before it starts */
    const char *policy_name;   /* NULL: none */
    enum sp_permissions permissions; /* DEFAULT or ESCALATED */
    struct sp_str justification;
    /* A person said: stop everything. From the loop, before fn; NULL: nobody wants to know. */
    void (*interrupt)(void *user);
};

/* As sp_run_start; what the ask holds is copied. A refusal is SP_RUN_REJECTED. */
int sp_judged_start(struct sp_approvals *a, struct sp_backend *b, const struct sp_judged_ask *ask,
                    sp_run_fn *fn, void *user, struct sp_judged **ret, struct sp_err *e);
void sp_judged_cancel(struct sp_judged *j);
/* fn is not called; a live process is terminated, an open question withdrawn. NULL is fine. Not
 * from within an event of it. */
void sp_judged_free(struct sp_judged *j);

#endif

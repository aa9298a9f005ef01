/* SPDX-License-Identifier: Apache-2.0 */
/*
 * approvals: what one conversation knows about leave to run things: its policy, its rules, what was
 * approved or granted before, who answers questions, and the log of all that (approvals.md).
 *
 * plan.h has what one request makes of it.
 */
#ifndef SP_ENGINE_APPROVALS_H
#define SP_ENGINE_APPROVALS_H

#include "approve/approver.h"
#include "approve/judge.h"
#include "approve/rules.h"
#include "core/loop.h"

struct sp_approvals;

struct sp_approvals_options {
    struct sp_loop *loop;
    struct sp_approval_policy policy;
    struct sp_rules *rules; /* NULL: none; a reference is taken */
    enum sp_known_safe known_safe;
    bool retry_reuses_approval;
    bool ignores_heuristic; /* retry_on_heuristic is off: only evidence leads to a retry */
    uint64_t timeout_ms;    /* for an answer; 0: none */
    const char *audit_log;  /* NULL: none */
    bool must_audit;        /* it was configured: nothing runs that it does not have */
    const char *user_dir; /* where accepted rules go; NULL: they are for this conversation alone */
    struct sp_str fingerprint;    /* of the rules that the environment manages; n 0: none */
    struct sp_approver *approver; /* borrowed; NULL: nobody answers */
    bool nobody_answers;          /* although there is an approver */
    void (*warn)(void *user, const char *text); /* NULL: nobody wants to know */
    void *user;
};

int sp_approvals_new(const struct sp_approvals_options *o, struct sp_approvals **ret,
                     struct sp_error *e);
void sp_approvals_free(struct sp_approvals *a); /* no plan of it is left; NULL is fine */

/* For requests from now on; those under way keep what they began with. */
bool sp_approvals_set_rules(struct sp_approvals *a, struct sp_rules *rules,
                            struct sp_str fingerprint); /* false: no memory, all is as before */
void sp_approvals_set_policy(struct sp_approvals *a, const struct sp_approval_policy *p);

const struct sp_approval_policy *sp_approvals_policy(const struct sp_approvals *a);
/* Whether anybody answers. */
bool sp_approvals_can_ask(const struct sp_approvals *a);

/* NULL: it is not open. */
const struct sp_question *sp_approvals_question(const struct sp_approvals *a, uint64_t question);

/* An answer. A question that is not open: nothing happens. */
void sp_approvals_decide(struct sp_approvals *a, uint64_t question, const struct sp_decision *d);

/*
 * What commands there may do from now on beyond their profile, in this turn (its id) or, without
 * one (n 0), for as long as the conversation lasts (9.3).
 */
int sp_approvals_grant(struct sp_approvals *a, struct sp_str environment, struct sp_str turn_id,
                       const struct sp_grant *grant, struct sp_error *e);

#endif

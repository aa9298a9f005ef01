/* SPDX-License-Identifier: Apache-2.0 */
/*
 * approvals: what one conversation knows about leave to run things: its policy, its rules, what was
 * approved or granted before, who answers questions, and the log of all that (approvals.md).
 *
 * plan.h has what one request makes of it.
 */
#ifndef SP_APPROVE_APPROVALS_H
#define SP_APPROVE_APPROVALS_H

#include "approve/approver.h"
#include "approve/judge.h"
#include "approve/rules/rules.h"
#include "os/loop.h"

struct sp_approvals;

struct sp_approvals_options {
    struct sp_loop *loop;
    struct sp_approval_policy policy;
    struct sp_rules *rules; /* NULL: none; a reference is taken */
    enum sp_known_safe known_safe;
    bool retry_reuses_approval;
    bool ignores_heuristic; /* retry_on_heuristic is off: only evidence leads to a retry */
    bool must_audit;        /* the log was configured: nothing runs that it does not have */
    bool ignores_user_dir;  /* rules there are not read: accepted ones count for us all the same */
    bool nobody_answers;    /* although there is an approver */
    bool needs_hooks;       /* some are configured, or a reviewer: without them nothing is made */
    bool strict_review;     /* the reviewer also sees what nobody would have to be asked about */
    uint64_t timeout_ms;    /* for an answer; 0: none */
    const char *audit_log;  /* NULL: none */
    const char *user_dir; /* where accepted rules go; NULL: they are for this conversation alone */
    struct sp_str fingerprint;    /* of the rules that the environment manages; n 0: none */
    struct sp_approver *approver; /* borrowed; NULL: nobody answers */
    /* Who is asked before anybody else, in this order; they and their list are borrowed. */
    struct sp_approver *const *hooks;
    size_t hook_count;
    struct sp_approver *reviewer; /* borrowed; answers in the person's place; NULL: none */
    uint64_t hook_timeout_ms;     /* 0: SP_HOOK_MS */
    uint64_t review_timeout_ms;   /* of one attempt; 0: SP_REVIEW_MS */
    void (*warn)(void *user, const char *text); /* NULL: nobody wants to know */
    /* A person, or a program in a person's place, is asked something, or is not any more. NULL:
     * nobody wants to know. */
    void (*asking)(void *user, bool is_open);
    void *user;
};

int sp_approvals_new(const struct sp_approvals_options *o, struct sp_approvals **ret,
                     struct sp_err *e);
void sp_approvals_free(struct sp_approvals *a); /* no plan of it is left; NULL is fine */

/* For requests from now on; those under way keep what they began with. */
bool sp_approvals_set_rules(struct sp_approvals *a, struct sp_rules *rules,
                            struct sp_str fingerprint); /* false: no memory, all is as before */
void sp_approvals_set_policy(struct sp_approvals *a, const struct sp_approval_policy *p);
/* Whether the approver can be asked: those whom it asks come and go. */
void sp_approvals_set_nobody_answers(struct sp_approvals *a, bool nobody_answers);

const struct sp_approval_policy *sp_approvals_policy(const struct sp_approvals *a);
/* Whether anybody answers. */
bool sp_approvals_can_ask(const struct sp_approvals *a);

/* NULL: nobody is asked it, or not a person. */
const struct sp_approval_question *sp_approvals_question(const struct sp_approvals *a,
                                                         uint64_t question);

/* A person's answer. A question that is not open: nothing happens. */
void sp_approvals_decide(struct sp_approvals *a, uint64_t question, const struct sp_decision *d);

/*
 * What commands there may do from now on beyond their profile, in this turn (its id) or, without
 * one (n 0), for as long as the conversation lasts (9.3).
 */
int sp_approvals_grant(struct sp_approvals *a, struct sp_str environment, struct sp_str turn_id,
                       const struct sp_grant *grant, struct sp_err *e);

#endif

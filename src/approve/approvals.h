/* SPDX-License-Identifier: Apache-2.0 */
/*
 * approvals: what one conversation knows about permission to run commands: its policy, its rules,
 * what was approved or granted before, who answers questions, and the audit log of all decisions.
 *
 * run_plan.h takes one request through it.
 */
#ifndef SP_APPROVE_APPROVALS_H
#define SP_APPROVE_APPROVALS_H

#include "approve/approver.h"
#include "approve/cache.h"
#include "approve/judge.h"
#include "approve/rules/rules.h"
#include "base/receipt.h"
#include "os/loop.h"

struct sp_approvals;

struct sp_approvals_options {
    struct sp_loop *loop;
    struct sp_approval_policy policy;
    struct sp_rules *rules; /* NULL: none; a reference is taken */
    enum sp_known_safe known_safe;
    bool retry_reuses_approval;
    bool ignores_heuristic; /* retry_on_heuristic is off: output that looks like a denial leads to
                               no retry */
    bool must_audit;        /* the log was configured: what cannot be logged does not run */
    bool ignores_user_dir;  /* rules in user_dir are not read: accepted ones count for this
                               conversation all the same */
    bool has_no_approver;   /* no person answers at present, although there is an approver */
    bool needs_hooks;       /* hooks or a reviewer are configured: fail if none was opened */
    bool strict_review;     /* the reviewer also sees commands that need no question */
    uint64_t timeout_ms;    /* for an answer; 0: none */
    const char *audit_log;  /* NULL: none */
    bool audits_receipts;   /* the log also tells how commands ended */
    const char *user_dir;   /* where accepted rules go; NULL: they last for this conversation */
    struct sp_str fingerprint;    /* of the managed rules; n 0: none */
    struct sp_approver *approver; /* borrowed; NULL: every question is denied */
    /* Asked before the approver, in this order; the approvers and the list are borrowed. */
    struct sp_approver *const *hooks;
    size_t hook_count;
    struct sp_approver *reviewer;  /* borrowed; answers instead of the approver; NULL: none */
    uint64_t hook_timeout_ms;      /* 0: SP_HOOK_MS */
    uint64_t review_timeout_ms;    /* of one attempt; 0: SP_REVIEW_MS */
    struct sp_cache_backing store; /* of what is approved for the session; keep NULL: none */
    void (*warn)(void *user, const char *text); /* NULL: log it */
    /* Of a mandatory log: why it cannot be written; NULL: an entry was written. May be NULL. */
    void (*audited)(void *user, const char *failure);
    /* A question to the approver (not to hooks or the reviewer) opens or closes; may be NULL. */
    void (*asking)(void *user, bool is_open);
    /* An accepted rule is in this file now; may be NULL. */
    void (*kept)(void *user, const char *path);
    void *user;
};

int sp_approvals_new(const struct sp_approvals_options *o, struct sp_approvals **ret,
                     struct sp_err *e);
void sp_approvals_free(struct sp_approvals *a); /* after its plans; NULL is fine */

/* An answer for the session that is in the store. */
void sp_approvals_restore(struct sp_approvals *a, struct sp_str key, bool covers_retry, void *kept);

/* For requests from now on; those that have begun keep the previous ones. Another fingerprint drops
 * all answers that are remembered for the session. */
bool sp_approvals_set_rules(struct sp_approvals *a, struct sp_rules *rules,
                            struct sp_str fingerprint); /* false: no memory, nothing changed */
/* The approvers behind `approver` come and go, e.g. clients. */
void sp_approvals_set_no_approver(struct sp_approvals *a, bool has_no_approver);

const struct sp_approval_policy *sp_approvals_policy(const struct sp_approvals *a);
/* Whether a question can be answered: by the approver, a hook or the reviewer. */
bool sp_approvals_can_ask(const struct sp_approvals *a);

/* NULL: the approver is not asked such a question. */
const struct sp_approval_question *sp_approvals_question(const struct sp_approvals *a,
                                                         uint64_t question);

/* The answer of the approver. Ignored if the question is not open. */
void sp_approvals_decide(struct sp_approvals *a, uint64_t question, const struct sp_decision *d);
/* The answer is to cancel the call that asks, which is about to happen: the log then says who. */
void sp_approvals_note_abort(struct sp_approvals *a, uint64_t question, enum sp_decider by);

/* A command that was decided has ended: a line of the log, if it has receipts. NULL: its receipt is
 * not known. */
void sp_approvals_note_end(struct sp_approvals *a, struct sp_str call_id, struct sp_str environment,
                           const struct sp_command_receipt *receipt);

/* What commands in the environment may do from now on beyond their profile: in this turn, or with
 * an empty turn_id as long as the conversation lasts. is_strict: for that time the reviewer sees
 * every command. */
int sp_approvals_grant(struct sp_approvals *a, struct sp_str environment, struct sp_str turn_id,
                       const struct sp_grant *grant, bool is_strict, struct sp_err *e);
/* Whether such grants cover the additional permissions, so that no question is needed. */
bool sp_approvals_cover(const struct sp_approvals *a, struct sp_str environment,
                        struct sp_str turn_id, const struct sp_grant *additional,
                        const struct sp_policy *policy);

#endif

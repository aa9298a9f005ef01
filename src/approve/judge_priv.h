/* SPDX-License-Identifier: Apache-2.0 */
/*
 * judge_priv: what the files that judge a command share.
 */
#ifndef SP_APPROVE_JUDGE_PRIV_H
#define SP_APPROVE_JUDGE_PRIV_H

#include "approve/judge.h"
#include "approve/script/script_priv.h"
#include "base/arena.h"

/* What all rules and guesses together say of a command. */
struct sp_evaluation {
    enum sp_verdict verdict; /* the strictest */
    enum sp_danger danger;   /* the worst that no rule knew; then a guess is among the verdicts */
    bool has_rule_prompt;
    bool has_guess;    /* some segment that no rule matched */
    bool has_doubtful; /* some segment is allowed by nothing but files that a command may write */
    /* The first segments that no rule matched and that are to be asked about, or allowed. */
    const struct sp_words *first_prompt, *first_allowed;
};

/* Questions that a policy lets through (2). */
bool sp_approval_may_ask_by_rule(const struct sp_approval_policy *p);
bool sp_approval_may_ask_by_guess(const struct sp_approval_policy *p); /* and for escalation */

/* Append the texts of 7.3, 7.1 and 9.2. false: no memory. */
bool sp_judge_add_override_refusal(struct sp_buf *out, const struct sp_judge_ask *ask);
bool sp_judge_add_forbidden(struct sp_buf *out, const struct sp_judge_ask *ask,
                            const struct sp_evaluation *v, const struct sp_rule_matches *matches);
bool sp_judge_add_silenced(struct sp_buf *out, const struct sp_judge_ask *ask,
                           const struct sp_evaluation *v);
bool sp_judge_add_question(struct sp_buf *out, const struct sp_judge_ask *ask,
                           const struct sp_rule_matches *matches);

/* Whether the policy lets nobody ask for more permissions of a sandbox (M4). */
static inline bool sp_judge_forbids_additional(const struct sp_judge_ask *ask)
{
    return ask->permissions == SP_PERMISSIONS_ADDITIONAL &&
           ask->policy.kind != SP_APPROVAL_ON_REQUEST;
}

/* Whether the caller wants more than the sandbox as it is, and nobody granted that before. */
static inline bool sp_judge_wants_more(const struct sp_judge_ask *ask)
{
    return ask->permissions == SP_PERMISSIONS_ESCALATED ||
           (ask->permissions == SP_PERMISSIONS_ADDITIONAL && !ask->is_preapproved);
}

#endif

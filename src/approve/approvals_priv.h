/* SPDX-License-Identifier: Apache-2.0 */
/*
 * approvals_priv: what the files of approvals and plans share.
 */
#ifndef SP_APPROVE_APPROVALS_PRIV_H
#define SP_APPROVE_APPROVALS_PRIV_H

#include "approve/asking.h"
#include "approve/audit.h"
#include "approve/cache.h"
#include "approve/run_plan.h"

#define SP_GRANTS_MAX 64 /* the oldest goes */

struct sp_stored_grant {
    char *environment, *turn_id; /* turn_id NULL: for the whole conversation */
    struct sp_grant grant;
};

/* What the reviewer said in one turn. */
struct sp_review_tally {
    char *turn_id; /* NULL: nothing yet */
    unsigned row;  /* refusals, one after the other */
    uint64_t last; /* a bit for each of the last ones: it was a refusal */
};

struct sp_approvals {
    struct sp_approvals_options options; /* its strings are owned */
    struct sp_cache *cache;
    struct sp_asking *asking;
    struct sp_review_tally tally;
    char *strict_turn;          /* everything that runs in it is reviewed; NULL: as configured */
    struct sp_network *network; /* what is asked and known about hosts; NULL: nothing yet */
    uint64_t last_question;
    struct sp_stored_grant grants[SP_GRANTS_MAX];
    size_t grant_count;
    bool has_complained; /* that the default log cannot be written */
};

void sp_approvals_warn(struct sp_approvals *a, const char *text);

/* network.c: every open question is withdrawn, and who waits is told. NULL is fine. */
void sp_network_free(struct sp_network *n);

/* Whether everything that runs in this turn is reviewed: then no other yes is enough. */
bool sp_approvals_is_strict(const struct sp_approvals *a, struct sp_str turn_id);
/* ... from now on, in this turn or, without one (n 0), always. */
int sp_approvals_be_strict(struct sp_approvals *a, struct sp_str turn_id, struct sp_err *e);

/* review.c */
#define SP_REVIEW_DENIED "automatic approval review denied the action"
/* Appends what a caller is told of a refusal, or of a reviewer (who) that has failed. false: no
 * memory. */
bool sp_review_add_refusal(struct sp_buf *out, const struct sp_decision *d, const char *who);
/* One more answer in this turn. Whether it is a refusal that ends the turn. */
bool sp_review_is_too_much(struct sp_approvals *a, struct sp_str turn_id, bool is_refusal);

/* All that was granted for commands of this environment in this turn; *ret is zero before. */
int sp_approvals_granted(const struct sp_approvals *a, struct sp_str environment,
                         struct sp_str turn_id, struct sp_grant *ret, struct sp_err *e);

/* An accepted amendment: kept in the file and in the set. Failures are warnings. */
void sp_approvals_amend(struct sp_approvals *a, struct sp_words prefix);

/* plan_ask.c */
void sp_run_plan_inquire(struct sp_run_plan *p); /* of hooks, cache, reviewer or person */
void sp_run_plan_review(
    struct sp_run_plan *p); /* nobody would have to be asked, but the reviewer is */
/* plan.c: where it ends up. */
void sp_run_plan_go(struct sp_run_plan *p, const char *decision, enum sp_decider by);
void sp_run_plan_refuse(struct sp_run_plan *p, struct sp_str reason);
void sp_run_plan_fail_without_memory(struct sp_run_plan *p);
/* Whether the next attempt, if it is allowed, has no sandbox. */
bool sp_run_plan_would_be_free(const struct sp_run_plan *p);
static inline bool sp_run_plan_is_patch(const struct sp_run_plan *p)
{
    return p->ask.changes != NULL;
}

/* plan_free.c */
/* Holds what the rules allow against the files that would run, and judges anew if they may be
 * others. */
int sp_run_plan_judge_programs(struct sp_run_plan *p, struct sp_judge_ask *ask, struct sp_err *e);
/* Whether a yes that was given before, for the session, is still about the same programs: one that
 * lets them run free is not if a confined command could have replaced them since. */
bool sp_run_plan_does_approval_hold(const struct sp_run_plan *p);
bool sp_run_plan_make_free(struct sp_run_plan *p); /* of a free one. false: no memory */
void sp_run_plan_free_done(struct sp_run_plan_free *f);

/* plan_patch.c: the same questions about a patch (14.4). */
/* Fills the assessment and, by it, the requirement's kind. */
int sp_run_plan_assess_patch(struct sp_run_plan *p, struct sp_err *e);
/* The directories that an approved patch writes to besides, in its policy. */
int sp_run_plan_open_parents(struct sp_run_plan *p, struct sp_err *e);
/* Takes all writes and the network away. false: no memory. */
bool sp_run_plan_make_read_only(struct sp_profile *p);
bool sp_run_plan_is_patch_cached(const struct sp_run_plan *p);
bool sp_run_plan_cache_patch(struct sp_run_plan *p); /* false: no memory */

/* One line of the log. false: it must be written and cannot; e says why. */
bool sp_approvals_audit(struct sp_approvals *a, const struct sp_audit_entry *entry,
                        struct sp_err *e);
/* The same of a plan, which has then failed. */
bool sp_run_plan_audit(struct sp_run_plan *p, const char *requirement, const char *decision,
                       enum sp_decider by, bool runs);

#endif

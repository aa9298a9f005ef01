/* SPDX-License-Identifier: Apache-2.0 */
/*
 * approvals_priv: what the files of approvals and plans share.
 */
#ifndef SP_ENGINE_APPROVALS_PRIV_H
#define SP_ENGINE_APPROVALS_PRIV_H

#include "approve/audit.h"
#include "approve/cache.h"
#include "engine/plan.h"

#define SP_GRANTS_MAX 64 /* the oldest goes */

struct sp_stored_grant {
    char *environment, *turn_id; /* turn_id NULL: for the whole conversation */
    struct sp_grant grant;
};

struct sp_approvals {
    struct sp_approvals_options options; /* its strings are owned */
    struct sp_cache *cache;
    struct sp_plan *asking;
    uint64_t last_question;
    struct sp_stored_grant grants[SP_GRANTS_MAX];
    size_t grant_count;
    bool has_complained; /* that the default log cannot be written */
};

void sp_approvals_warn(struct sp_approvals *a, const char *text);

/* The answer to an open question, from whoever: the plan goes on. */
void sp_plan_decide(struct sp_plan *p, const struct sp_decision *d);

/* All that was granted for commands of this environment in this turn; *ret is zero before. */
int sp_approvals_granted(const struct sp_approvals *a, struct sp_str environment,
                         struct sp_str turn_id, struct sp_grant *ret, struct sp_error *e);

/* An accepted amendment: kept in the file and in the set. Failures are warnings. */
void sp_approvals_amend(struct sp_approvals *a, struct sp_words prefix);

/* plan_patch.c: the same questions about a patch (14.4). */
/* Fills the assessment and, by it, the requirement's kind. */
int sp_plan_assess_patch(struct sp_plan *p, struct sp_error *e);
/* The directories that an approved patch writes to besides, in its policy. */
int sp_plan_open_parents(struct sp_plan *p, struct sp_error *e);
bool sp_plan_is_patch_cached(const struct sp_plan *p);
bool sp_plan_cache_patch(struct sp_plan *p); /* false: no memory */

/* One line of the log. false: it must be written and cannot; e says why. */
bool sp_plan_audit(struct sp_plan *p, const char *requirement, const char *decision,
                   const char *decided_by, bool runs);

#endif

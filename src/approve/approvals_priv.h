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
#include "base/arena.h"
#include "base/list.h"

#define SP_GRANTS_MAX 64 /* the oldest is dropped */

struct sp_stored_grant {
    char *environment, *turn_id; /* turn_id NULL: for the whole conversation */
    struct sp_grant grant;
};

/* What the reviewer said in one turn. */
struct sp_review_tally {
    char *turn_id; /* of the current turn; NULL: none yet */
    unsigned row;  /* consecutive refusals */
    uint64_t last; /* a bit for each recent answer: 1 is a refusal */
};

struct sp_approvals {
    struct sp_approvals_options options; /* audit_log and user_dir are in the arena */
    struct sp_arena arena;
    char *fingerprint; /* options.fingerprint points here */
    struct sp_cache *cache;
    struct sp_list asking; /* open questions */
    struct sp_review_tally tally;
    char *strict_turn;          /* turn in which every command is reviewed; NULL: as configured */
    struct sp_network *network; /* questions and decisions about hosts; NULL: none yet */
    uint64_t last_question;
    struct sp_stored_grant grants[SP_GRANTS_MAX];
    size_t grant_count;
    bool has_complained; /* warned that the default log cannot be written */
};

void sp_approvals_warn(struct sp_approvals *a, const char *text);
/* An accepted rule was written to the file of accepted rules. */
void sp_approvals_tell_kept(struct sp_approvals *a);

/* network.c: withdraws every open question and calls back all waiting requests. NULL is fine. */
void sp_network_free(struct sp_network *n);
/* Running commands learn of new rules. */
void sp_network_rules_changed(struct sp_approvals *a, const struct sp_rules *before);

/* Whether the reviewer must see every command of this turn, even allowed and approved ones. */
bool sp_approvals_is_strict(const struct sp_approvals *a, struct sp_str turn_id);

/* Adds to the profile what was granted in this environment and turn (turn_id NULL: in every turn),
 * and `more` (NULL: nothing). After a failure the profile is as before. */
int sp_approvals_widen(const struct sp_approvals *a, struct sp_str environment,
                       const struct sp_str *turn_id, const struct sp_grant *more,
                       struct sp_profile *profile, struct sp_err *e);

/* Appends to the audit log. false: the log is mandatory and cannot be written; e says why. */
bool sp_approvals_audit(struct sp_approvals *a, const struct sp_audit_entry *entry,
                        struct sp_err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The automatic reviewer's refusals: how a caller hears of one, and when there have been so many
 * that the turn ends (approvals.md 7.2, 13).
 */
#include <stdlib.h>

#include "approve/approvals_priv.h"

#define IN_A_ROW 3  /* refusals, and the turn is interrupted */
#define OF_LAST  50 /* answers, ... */
#define IN_ALL   10 /* ... so many refusals, and it is as well */

#define TOO_LATE                                                                              \
    "The automatic permission approval review did not finish before its deadline. Do not "    \
    "assume the action is unsafe based on the timeout alone. You may retry once, or ask the " \
    "user for guidance or explicit approval."
#define REFUSED "This action was rejected due to unacceptable risk."
#define INSTRUCTIONS                                                                            \
    "Do not try to get the same done in another way around this. Go on with something that is " \
    "safer, or stop and ask the user, who may approve it knowing the risk."

static bool add_failure(struct sp_buf *out, const struct sp_decision *d, const char *who)
{
    const struct sp_str why = d->kind == SP_DECISION_FAILED && d->rejection.n != 0
                                  ? d->rejection
                                  : SP_STR("its answer is no decision");

    return sp_buf_printf(
               out, "the automatic review failed (%s): ", who != NULL ? who : "the reviewer") &&
           sp_buf_add_str(out, why);
}

bool sp_review_add_refusal(struct sp_buf *out, const struct sp_decision *d, const char *who)
{
    const bool is_said = d->kind == SP_DECISION_DENIED || d->kind == SP_DECISION_ABORT;

    if (d->kind == SP_DECISION_TIMED_OUT)
        return sp_buf_add_str(out, SP_STR(TOO_LATE));
    if (is_said && d->rejection.n == 0)
        return sp_buf_add_str(out, SP_STR(SP_REVIEW_DENIED));
    return sp_buf_add_str(out, SP_STR(REFUSED "\nReason: ")) &&
           (is_said ? sp_buf_add_str(out, d->rejection) : add_failure(out, d, who)) &&
           sp_buf_add_str(out, SP_STR("\n" INSTRUCTIONS));
}

/* A new turn begins with a clean sheet. Without memory it inherits the old one. */
static void turn_over(struct sp_review_tally *t, struct sp_str turn_id)
{
    if (t->turn_id != NULL && sp_str_eq(sp_str_of(t->turn_id), turn_id))
        return;
    char *copy = strndup(turn_id.n == 0 ? "" : turn_id.p, turn_id.n);
    if (copy == NULL)
        return;
    free(t->turn_id);
    *t = (struct sp_review_tally){.turn_id = copy};
}

bool sp_review_is_too_much(struct sp_approvals *a, struct sp_str turn_id, bool is_refusal)
{
    struct sp_review_tally *t = &a->tally;

    turn_over(t, turn_id);
    t->row = is_refusal ? t->row + 1 : 0;
    t->last = (t->last << 1 | is_refusal) & ((UINT64_C(1) << OF_LAST) - 1);
    if (!is_refusal || (t->row < IN_A_ROW && __builtin_popcountll(t->last) < IN_ALL))
        return false;
    sp_approvals_warn(a, "the automatic reviewer has refused too much in this turn: the turn is "
                         "interrupted");
    return true;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The question of a plan, and what becomes of its answer (approvals.md 7.2, 7.5, 8).
 */
#include "approve/approvals_priv.h"
#include "base/auto.h"

#define RETRY_REASON  "command failed; retry without sandbox?"
#define BY_USER       "rejected by user"
#define BY_USER_LONG  "exec command rejected by user"
#define BY_USER_PATCH "patch rejected by user"
#define TOO_LATE      "approval request timed out"

static struct sp_str view(const struct sp_buf *b)
{
    return (struct sp_str){b->len == 0 ? "" : b->data, b->len};
}

static struct sp_run_plan *plan_of(struct sp_asking *q)
{
    return SP_CONTAINER(q, struct sp_run_plan, asking);
}

/* ---- the answer ---- */

static bool remember(struct sp_run_plan *p)
{
    return sp_run_plan_is_patch(p)
               ? sp_run_plan_cache_patch(p)
               : sp_cache_store(p->approvals->cache, view(&p->key), p->is_retry);
}

static void accept(struct sp_run_plan *p, enum sp_decision_kind kind)
{
    const enum sp_decider by = p->asking.decided_by;

    /* Nobody else's yes to a confined run counts for a free one later. */
    p->was_approved = by == SP_DECIDER_USER || by == SP_DECIDER_CACHE;
    sp_run_plan_go(p, sp_decision_name(kind), by);
    if (p->state != SP_RUN_PLAN_GO)
        return; /* what could not be written down does not count for later either */
    if (kind == SP_DECISION_APPROVED_FOR_SESSION && !remember(p))
        sp_approvals_warn(p->approvals, "an approval could not be remembered: no memory");
    if (kind == SP_DECISION_AMENDMENT)
        sp_approvals_amend(p->approvals, p->asking.question.amendment);
}

static struct sp_str refusal(const struct sp_run_plan *p, const struct sp_decision *d)
{
    if (d->rejection.n != 0 && !sp_str_eq(d->rejection, SP_STR(BY_USER)))
        return d->rejection;
    if (d->kind == SP_DECISION_TIMED_OUT)
        return SP_STR(TOO_LATE);
    return sp_run_plan_is_patch(p) ? SP_STR(BY_USER_PATCH) : SP_STR(BY_USER_LONG);
}

static void reject(struct sp_run_plan *p, const struct sp_decision *d)
{
    p->is_abort = d->kind == SP_DECISION_ABORT && !p->asking.is_replaced;
    if (sp_run_plan_audit(p, p->asking.is_review ? "skip" : "ask", sp_decision_name(d->kind),
                          p->asking.decided_by, false))
        sp_run_plan_refuse(p, refusal(p, d));
}

static void on_decision(struct sp_asking *q, const struct sp_decision *d)
{
    struct sp_run_plan *p = plan_of(q);

    if (d->kind == SP_DECISION_APPROVED || d->kind == SP_DECISION_APPROVED_FOR_SESSION ||
        d->kind == SP_DECISION_AMENDMENT)
        accept(p, d->kind);
    else
        reject(p, d);
    if (p->told != NULL)
        p->told(p);
}

/* ---- the question ---- */

/* A patch that was denied is asked about again, whatever was said before. */
static bool is_cached(struct sp_asking *q)
{
    const struct sp_run_plan *p = plan_of(q);

    if (sp_run_plan_is_patch(p))
        return !p->is_retry && sp_run_plan_is_patch_cached(p);
    return sp_cache_has(p->approvals->cache, view(&p->key), p->is_retry) &&
           sp_run_plan_does_approval_hold(p);
}

static enum sp_question_kind kind_of(const struct sp_run_plan *p)
{
    if (sp_run_plan_is_patch(p))
        return SP_QUESTION_PATCH;
    if (p->is_retry)
        return SP_QUESTION_RETRY;
    switch (p->ask.permissions) {
    case SP_PERMISSIONS_ESCALATED:
        return SP_QUESTION_ESCALATE;
    case SP_PERMISSIONS_ADDITIONAL:
        return p->is_preapproved ? SP_QUESTION_RUN : SP_QUESTION_ADDITIONAL;
    case SP_PERMISSIONS_DEFAULT:
        break;
    }
    return SP_QUESTION_RUN;
}

static struct sp_str reason_of(const struct sp_run_plan *p)
{
    if (p->is_retry)
        return SP_STR(RETRY_REASON);
    return p->requirement.reason.len != 0 ? view(&p->requirement.reason) : p->ask.justification;
}

static bool write_command(struct sp_run_plan *p)
{
    const struct sp_run_plan_ask *ask = &p->ask;

    if (p->command.len != 0)
        return true;
    if (ask->preface.count != 0 &&
        !(sp_words_add_quoted(&p->command, ask->preface) && sp_buf_add(&p->command, " ", 1)))
        return false;
    return ask->command.n != 0 ? sp_buf_add_str(&p->command, ask->command)
                               : sp_words_add_quoted(&p->command, ask->argv);
}

static bool fill_question(struct sp_run_plan *p)
{
    const struct sp_run_plan_ask *ask = &p->ask;

    if (!write_command(p))
        return false;
    p->asking.question = (struct sp_approval_question){
        .kind = kind_of(p),
        .call_id = ask->call_id,
        .turn_id = ask->turn_id,
        .environment = ask->environment,
        .command = view(&p->command),
        .argv = ask->argv,
        .preface = ask->preface,
        .cwd = ask->cwd,
        .reason = reason_of(p),
        .segments = &p->requirement.segments,
        .amendment = p->requirement.amendment,
        .additional = ask->permissions == SP_PERMISSIONS_ADDITIONAL ? ask->additional : NULL,
        .is_free = !p->has_policy || !sp_profile_needs_sandbox(&p->policy.profile) ||
                   sp_run_plan_would_be_free(p),
        .is_guess = p->is_guess,
        .profile = p->has_policy ? &p->policy : NULL,
        .profile_name = ask->policy_name,
        .changes = ask->changes,
    };
    return true;
}

static void begin(struct sp_run_plan *p, bool is_review)
{
    if (!fill_question(p)) {
        sp_run_plan_fail_without_memory(p);
        return;
    }
    p->asking.told = on_decision;
    p->asking.is_known = is_cached;
    p->asking.is_review = is_review;
    p->asking.cannot_ask = p->ask.cannot_ask;
    p->asking.nobody_answers = p->ask.nobody_answers;
    p->state = SP_RUN_PLAN_ASKING;
    sp_asking_begin(&p->asking, p->approvals);
}

void sp_run_plan_inquire(struct sp_run_plan *p)
{
    begin(p, false);
}

void sp_run_plan_review(struct sp_run_plan *p)
{
    begin(p, true);
}

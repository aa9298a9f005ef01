/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "base/auto.h"
#include "engine/approvals_priv.h"
#include "engine/truncate.h"

#define REFUSAL_TOKENS 900
#define RETRY_REASON   "command failed; retry without sandbox?"
#define BY_USER        "rejected by user"
#define BY_USER_LONG   "exec command rejected by user"
#define BY_USER_PATCH  "patch rejected by user"
#define TOO_LATE       "approval request timed out"
#define NOBODY                                                                                     \
    "approval required, but the client cannot answer questions; allow it by a rule, configure an " \
    "approver, or change the approval policy"

static struct sp_str view(const struct sp_buf *b)
{
    return (struct sp_str){b->len == 0 ? "" : b->data, b->len};
}

/* ---- where it ends up ---- */

static void fail(struct sp_plan *p, const struct sp_error *why)
{
    p->error = *why;
    p->state = SP_PLAN_FAILED;
}

static void fail_without_memory(struct sp_plan *p)
{
    struct sp_error e;

    (void)sp_fail(&e, SP_E_SYSTEM, ENOMEM, "judge a command");
    fail(p, &e);
}

static void refuse(struct sp_plan *p, struct sp_str reason)
{
    const struct sp_allowance max = {SP_ALLOWANCE_TOKENS, REFUSAL_TOKENS};

    p->reason.len = 0;
    p->state = SP_PLAN_REFUSED;
    if (!sp_truncate_add(&p->reason, reason, max))
        fail_without_memory(p);
}

/* Who decided without a question. */
static const char *by_itself(const struct sp_plan *p)
{
    return p->requirement.matches.count != 0 ? "rule" : "config";
}

static bool is_patch(const struct sp_plan *p)
{
    return p->ask.changes != NULL;
}

static void go(struct sp_plan *p, const char *decision, const char *decided_by)
{
    const bool may_be_free = !p->has_policy || sp_judge_may_run_free(&p->policy);
    const bool wants_free = p->is_retry || p->ask.permissions == SP_PERMISSIONS_ESCALATED ||
                            p->assessment.is_free ||
                            (p->requirement.kind == SP_REQUIRE_NOTHING && p->requirement.is_free);
    struct sp_error e = {0};

    if (is_patch(p) && !p->is_retry && sp_plan_open_parents(p, &e) < 0) {
        fail(p, &e);
        return;
    }
    p->is_free = may_be_free && wants_free;
    p->state = SP_PLAN_GO;
    const bool is_asked = p->is_retry || p->requirement.kind == SP_REQUIRE_ANSWER;
    (void)sp_plan_audit(p, is_asked ? "ask" : "skip", decision, decided_by, true);
}

/* ---- asking ---- */

static void close_question(struct sp_plan *p)
{
    struct sp_approvals *a = p->approvals;

    sp_loop_cancel(a->options.loop, &p->timer);
    *(p->prev != NULL ? &p->prev->next : &a->asking) = p->next;
    if (p->next != NULL)
        p->next->prev = p->prev;
    p->prev = p->next = NULL;
}

static bool is_offered(const struct sp_plan *p, struct sp_words amendment)
{
    return sp_question_offers_amendment(&p->question) &&
           sp_words_equal(amendment, p->question.amendment);
}

/* What was not offered counts as no. */
static struct sp_decision understand(const struct sp_plan *p, const struct sp_decision *d)
{
    struct sp_decision understood = *d;

    if ((d->kind == SP_DECISION_AMENDMENT && !is_offered(p, d->amendment)) ||
        d->kind == SP_DECISION_NETWORK_AMENDMENT || (unsigned)d->kind >= SP_DECISION_MAX)
        understood = (struct sp_decision){.kind = SP_DECISION_DENIED};
    return understood;
}

static void accept(struct sp_plan *p, enum sp_decision_kind kind)
{
    struct sp_approvals *a = p->approvals;

    const bool is_remembered = kind == SP_DECISION_APPROVED_FOR_SESSION;
    if (is_remembered && !(is_patch(p) ? sp_plan_cache_patch(p)
                                       : sp_cache_store(a->cache, view(&p->key), p->is_retry)))
        sp_approvals_warn(a, "an approval could not be remembered: no memory");
    if (kind == SP_DECISION_AMENDMENT)
        sp_approvals_amend(a, p->question.amendment);
    p->was_approved = true;
    go(p, sp_decision_name(kind), "user");
}

static void reject(struct sp_plan *p, const struct sp_decision *d)
{
    const bool is_plain = d->rejection.n == 0 || sp_str_eq(d->rejection, SP_STR(BY_USER));
    struct sp_str reason = !is_plain     ? d->rejection
                           : is_patch(p) ? SP_STR(BY_USER_PATCH)
                                         : SP_STR(BY_USER_LONG);

    if (d->kind == SP_DECISION_TIMED_OUT)
        reason = SP_STR(TOO_LATE);
    p->is_abort = d->kind == SP_DECISION_ABORT;
    if (sp_plan_audit(p, "ask", sp_decision_name(d->kind),
                      d->kind == SP_DECISION_TIMED_OUT ? "config" : "user", false))
        refuse(p, reason);
}

void sp_plan_decide(struct sp_plan *p, const struct sp_decision *given)
{
    const struct sp_decision d = understand(p, given);

    close_question(p);
    if (d.kind == SP_DECISION_APPROVED || d.kind == SP_DECISION_APPROVED_FOR_SESSION ||
        d.kind == SP_DECISION_AMENDMENT)
        accept(p, d.kind);
    else
        reject(p, &d);
    if (p->told != NULL)
        p->told(p);
}

static void withdraw(struct sp_plan *p)
{
    struct sp_approver *who = p->approvals->options.approver;

    who->ops->withdraw(who, p->question.id, p->approvals);
}

static void on_too_late(struct sp_timer *t)
{
    struct sp_plan *p = SP_CONTAINER(t, struct sp_plan, timer);
    const struct sp_decision d = {.kind = SP_DECISION_TIMED_OUT};

    withdraw(p);
    sp_plan_decide(p, &d);
}

static void on_answer(void *user, uint64_t question, const struct sp_decision *d)
{
    sp_approvals_decide(user, question, d);
}

static int64_t wall_clock_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static uint64_t clock_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000 + 1;
}

static enum sp_question_kind kind_of(const struct sp_plan *p)
{
    if (is_patch(p))
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

static struct sp_str reason_of(const struct sp_plan *p)
{
    if (p->is_retry)
        return SP_STR(RETRY_REASON);
    return p->requirement.reason.len != 0 ? view(&p->requirement.reason) : p->ask.justification;
}

static bool fill_question(struct sp_plan *p)
{
    const struct sp_plan_ask *ask = &p->ask;
    const bool may_be_free = !p->has_policy || sp_judge_may_run_free(&p->policy);

    if (p->command.len == 0 && !(ask->command.n != 0 ? sp_buf_add_str(&p->command, ask->command)
                                                     : sp_words_add_quoted(&p->command, ask->argv)))
        return false;
    p->question = (struct sp_question){
        .id = ++p->approvals->last_question,
        .kind = kind_of(p),
        .call_id = ask->call_id,
        .turn_id = ask->turn_id,
        .environment = ask->environment,
        .at_ms = wall_clock_ms(),
        .command = view(&p->command),
        .argv = ask->argv,
        .cwd = ask->cwd,
        .reason = reason_of(p),
        .segments = &p->requirement.segments,
        .amendment = p->requirement.amendment,
        .additional = ask->permissions == SP_PERMISSIONS_ADDITIONAL ? ask->additional : NULL,
        .is_free = may_be_free && (p->is_retry || p->assessment.is_free ||
                                   ask->permissions == SP_PERMISSIONS_ESCALATED),
        .profile = p->has_policy ? &p->policy : NULL,
        .profile_name = ask->policy_name,
        .changes = ask->changes,
    };
    return true;
}

static void ask(struct sp_plan *p)
{
    struct sp_approvals *a = p->approvals;
    struct sp_approver *who = a->options.approver;

    if (!fill_question(p)) {
        fail_without_memory(p);
        return;
    }
    if (a->options.timeout_ms != 0 &&
        !sp_loop_timer(a->options.loop, &p->timer, clock_ms() + a->options.timeout_ms,
                       on_too_late)) {
        fail_without_memory(p);
        return;
    }
    p->next = a->asking;
    if (p->next != NULL)
        p->next->prev = p;
    a->asking = p;
    p->state = SP_PLAN_ASKING;
    who->ops->ask(who, &p->question, on_answer, a);
}

/* ---- judging ---- */

/* The profile with all that was granted before or is asked for now; an escalated one ignores it. */
static int widen(struct sp_plan *p, struct sp_error *e)
{
    struct sp_grant all = {0};
    struct sp_profile wider;
    int r = 0;

    if (p->ask.permissions == SP_PERMISSIONS_ADDITIONAL && p->ask.additional != NULL)
        r = sp_grant_merge(&p->granted, p->ask.additional, &all, e);
    else if (p->ask.permissions == SP_PERMISSIONS_DEFAULT &&
             !sp_profile_copy(&p->granted.extra, &all.extra))
        r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "prepare the sandbox");
    if (r == 0)
        r = sp_profile_widen(&p->policy.profile, &all, &wider, e);
    sp_grant_done(&all);
    if (r < 0)
        return r;
    sp_profile_done(&p->policy.profile);
    p->policy.profile = wider;
    return 0;
}

static int take_snapshot(struct sp_plan *p, struct sp_error *e)
{
    const struct sp_approvals_options *o = &p->approvals->options;

    p->approval = o->policy;
    p->rules = o->rules == NULL ? NULL : sp_rules_ref(o->rules);
    p->has_policy = p->ask.policy != NULL;
    const int r =
        sp_approvals_granted(p->approvals, p->ask.environment, p->ask.turn_id, &p->granted, e);
    if (r < 0 || !p->has_policy)
        return r;
    if (!sp_policy_copy(p->ask.policy, &p->policy))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "prepare the sandbox");
    if (p->policy.cwd == NULL && p->ask.policy_cwd != NULL &&
        (p->policy.cwd = strdup(p->ask.policy_cwd)) == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "prepare the sandbox");
    return widen(p, e);
}

static bool make_key(struct sp_plan *p)
{
    auto_buf struct sp_buf additional = {0};
    const bool has_more =
        p->ask.permissions == SP_PERMISSIONS_ADDITIONAL && p->ask.additional != NULL;

    if (has_more && !sp_question_add_grant(&additional, p->ask.additional))
        return false;
    const struct sp_cache_command c = {
        .environment = p->ask.environment,
        .argv = p->ask.argv,
        .cwd = p->ask.cwd,
        .is_tty = p->ask.is_tty,
        .permissions = p->ask.permissions,
        .additional = view(&additional),
        .fingerprint = p->approvals->options.fingerprint,
    };
    return sp_cache_add_command_key(&p->key, &c);
}

static int judge(struct sp_plan *p, struct sp_error *e)
{
    const struct sp_approvals_options *o = &p->approvals->options;
    const struct sp_judge_ask ask = {
        .argv = p->ask.argv,
        .rules = p->rules,
        .policy = p->approval,
        .profile = p->ask.policy,
        .permissions = p->ask.permissions,
        .is_preapproved = p->is_preapproved,
        .prefix = p->ask.prefix,
        .known_safe = o->known_safe,
        .shell = p->ask.shell,
        .nobody_answers = !sp_approvals_can_ask(p->approvals),
    };

    return sp_judge(&ask, &p->requirement, e);
}

static struct sp_str refusal_of_patch(const struct sp_plan *p)
{
    return p->assessment.text != NULL ? sp_str_of(p->assessment.text) : SP_STR(NOBODY);
}

static void decide(struct sp_plan *p)
{
    switch (p->requirement.kind) {
    case SP_REQUIRE_NOTHING:
        go(p, "approved", by_itself(p));
        return;
    case SP_REQUIRE_ANSWER:
        if (!sp_approvals_can_ask(p->approvals))
            break; /* the judge has said so; if it has not, nobody is asked all the same */
        if (is_patch(p) ? sp_plan_is_patch_cached(p)
                        : sp_cache_has(p->approvals->cache, view(&p->key), false)) {
            p->was_approved = true;
            go(p, "approved", "cache");
        } else {
            ask(p);
        }
        return;
    case SP_REQUIRE_REFUSAL:
        break;
    }
    if (sp_plan_audit(p, "forbidden", "denied", by_itself(p), false))
        refuse(p, is_patch(p) ? refusal_of_patch(p) : view(&p->requirement.reason));
}

void sp_plan_begin(struct sp_plan *p, struct sp_approvals *a, const struct sp_plan_ask *asked,
                   void (*told)(struct sp_plan *p))
{
    struct sp_error e = {0};

    *p = (struct sp_plan){.told = told, .approvals = a, .ask = *asked};
    int r = take_snapshot(p, &e);
    p->is_preapproved =
        asked->permissions == SP_PERMISSIONS_ADDITIONAL &&
        sp_plan_is_granted(a, asked->environment, asked->turn_id, asked->additional, asked->policy);
    if (r == 0)
        r = is_patch(p) ? sp_plan_assess_patch(p, &e) : judge(p, &e);
    if (r < 0) {
        fail(p, &e);
        return;
    }
    p->has_requirement = !is_patch(p);
    if (is_patch(p) || make_key(p))
        decide(p);
    else
        fail_without_memory(p);
}

bool sp_plan_is_granted(struct sp_approvals *a, struct sp_str environment, struct sp_str turn_id,
                        const struct sp_grant *additional, const struct sp_policy *policy)
{
    const struct sp_policy nothing = {0};
    struct sp_grant granted = {0};
    struct sp_grant both = {0};
    bool is_covered = false;

    if (a->grant_count == 0 || additional == NULL)
        return false;
    if (sp_approvals_granted(a, environment, turn_id, &granted, NULL) == 0 &&
        sp_grant_intersect(&granted, additional, policy != NULL ? policy : &nothing, &both, NULL) ==
            0)
        is_covered = sp_profile_equal(&both.extra, &additional->extra);
    sp_grant_done(&both);
    sp_grant_done(&granted);
    return is_covered;
}

/* ---- once more ---- */

bool sp_plan_retry(struct sp_plan *p, bool is_guess)
{
    const struct sp_approvals_options *o = &p->approvals->options;

    if (p->state != SP_PLAN_GO || p->is_retry || !sp_plan_is_confined(p) ||
        (is_guess && o->ignores_heuristic) ||
        !sp_judge_may_ask_after_denial(&p->approval, is_patch(p)) ||
        !sp_judge_may_run_free(&p->policy) || !sp_approvals_can_ask(p->approvals))
        return false;
    p->is_retry = true;
    if (o->retry_reuses_approval && p->was_approved)
        go(p, "approved", "config");
    else if (!is_patch(p) && sp_cache_has(p->approvals->cache, view(&p->key), true))
        go(p, "approved", "cache");
    else
        ask(p);
    return true;
}

/* ---- the end ---- */

void sp_plan_done(struct sp_plan *p)
{
    if (p->approvals == NULL)
        return;
    if (p->state == SP_PLAN_ASKING) {
        withdraw(p);
        close_question(p);
        (void)sp_plan_audit(p, "ask", sp_decision_name(SP_DECISION_ABORT), "user", false);
    }
    if (p->has_requirement)
        sp_requirement_done(&p->requirement);
    if (is_patch(p))
        sp_patch_assessment_done(&p->assessment);
    sp_rules_unref(p->rules);
    if (p->has_policy)
        sp_policy_done(&p->policy);
    sp_grant_done(&p->granted);
    sp_buf_done(&p->reason);
    sp_buf_done(&p->key);
    sp_buf_done(&p->command);
    p->approvals = NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "approve/run_plan.h"

#include <errno.h>
#include <stdlib.h>

#include "approve/approvals_priv.h"
#include "base/auto.h"
#include "base/truncate.h"

#define REFUSAL_TOKENS 900

static struct sp_str view(const struct sp_buf *b)
{
    return (struct sp_str){b->len == 0 ? "" : b->data, b->len};
}

/* ---- where it ends up ---- */

static void fail(struct sp_run_plan *p, const struct sp_err *why)
{
    p->error = *why;
    p->state = SP_RUN_PLAN_FAILED;
}

void sp_run_plan_fail_without_memory(struct sp_run_plan *p)
{
    struct sp_err e;

    (void)sp_fail(&e, SP_E_SYSTEM, ENOMEM, "judge a command");
    fail(p, &e);
}

void sp_run_plan_refuse(struct sp_run_plan *p, struct sp_str reason)
{
    const struct sp_allowance max = {SP_ALLOWANCE_TOKENS, REFUSAL_TOKENS};

    p->reason.len = 0;
    p->state = SP_RUN_PLAN_REFUSED;
    if (!sp_truncate_add(&p->reason, reason, max))
        sp_run_plan_fail_without_memory(p);
}

/* Who decided without a question. */
static enum sp_decider by_itself(const struct sp_run_plan *p)
{
    return p->requirement.matches.count != 0 ? SP_DECIDER_RULE : SP_DECIDER_CONFIG;
}

bool sp_run_plan_would_be_free(const struct sp_run_plan *p)
{
    const bool may_be_free =
        !p->has_policy || (!p->ask.keeps_policy && sp_judge_may_run_free(&p->policy));

    return may_be_free && (p->is_retry || p->ask.permissions == SP_PERMISSIONS_ESCALATED ||
                           p->assessment.is_free ||
                           (p->requirement.kind == SP_REQUIRE_NOTHING && p->requirement.is_free));
}

void sp_run_plan_go(struct sp_run_plan *p, const char *decision, enum sp_decider by)
{
    struct sp_err e = {0};

    if (sp_run_plan_is_patch(p) && !p->is_retry && sp_run_plan_open_parents(p, &e) < 0) {
        fail(p, &e);
        return;
    }
    p->is_free = sp_run_plan_would_be_free(p);
    if (p->is_free && !sp_run_plan_make_free(p)) {
        sp_run_plan_fail_without_memory(p);
        return;
    }
    p->state = SP_RUN_PLAN_GO;
    const bool is_asked = p->is_retry || p->requirement.kind == SP_REQUIRE_ANSWER;
    (void)sp_run_plan_audit(p, is_asked ? "ask" : "skip", decision, by, true);
}

/* ---- judging ---- */

/* The profile with all that was granted before or is asked for now; an escalated one ignores it. */
static int widen(struct sp_run_plan *p, struct sp_err *e)
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

static int take_snapshot(struct sp_run_plan *p, struct sp_err *e)
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

static bool make_key(struct sp_run_plan *p)
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
    return sp_cache_add_command_key(&p->key, &c) && sp_buf_add_str(&p->key, p->ask.key_more);
}

/* Whether anybody would answer a question about it. */
static bool can_ask(const struct sp_run_plan *p)
{
    const struct sp_approvals_options *o = &p->approvals->options;

    if (p->ask.nobody_answers)
        return o->reviewer != NULL || o->hook_count != 0;
    return sp_approvals_can_ask(p->approvals);
}

static int judge(struct sp_run_plan *p, struct sp_err *e)
{
    const struct sp_approvals_options *o = &p->approvals->options;
    struct sp_judge_ask ask = {
        .argv = p->ask.argv,
        .rules = p->rules,
        .policy = p->approval,
        .profile = p->ask.policy,
        .permissions = p->ask.permissions,
        .is_preapproved = p->is_preapproved,
        .prefix = p->ask.prefix,
        .preface = p->ask.preface,
        .known_safe = o->known_safe,
        .shell = p->ask.shell,
        .nobody_answers = !can_ask(p),
    };

    /* Which `ls` is known to be safe, if it is looked for in the directory the command is in? */
    if (sp_path_is_relative(sp_environ_value(p->ask.environ, "PATH")))
        ask.known_safe = SP_KNOWN_SAFE_OFF;
    const int r = sp_judge(&ask, &p->requirement, e);
    return r < 0 ? r : sp_run_plan_judge_programs(p, &ask, e);
}

static struct sp_str refusal_of_patch(const struct sp_run_plan *p)
{
    return p->assessment.text != NULL ? sp_str_of(p->assessment.text) : SP_STR(SP_NOBODY_ANSWERS);
}

static void decide(struct sp_run_plan *p)
{
    switch (p->requirement.kind) {
    case SP_REQUIRE_NOTHING:
        if (sp_approvals_is_strict(p->approvals, p->ask.turn_id))
            sp_run_plan_review(p);
        else
            sp_run_plan_go(p, "approved", by_itself(p));
        return;
    case SP_REQUIRE_ANSWER:
        if (!can_ask(p))
            break; /* the judge has said so; if it has not, nobody is asked all the same */
        sp_run_plan_inquire(p);
        return;
    case SP_REQUIRE_REFUSAL:
        break;
    }
    if (sp_run_plan_audit(p, "forbidden", "denied", by_itself(p), false))
        sp_run_plan_refuse(p, sp_run_plan_is_patch(p) ? refusal_of_patch(p)
                                                      : view(&p->requirement.reason));
}

void sp_run_plan_begin(struct sp_run_plan *p, struct sp_approvals *a,
                       const struct sp_run_plan_ask *asked, void (*told)(struct sp_run_plan *p))
{
    struct sp_err e = {0};

    *p = (struct sp_run_plan){.told = told, .approvals = a, .ask = *asked};
    int r = take_snapshot(p, &e);
    p->is_preapproved = asked->permissions == SP_PERMISSIONS_ADDITIONAL &&
                        sp_run_plan_is_granted(a, asked->environment, asked->turn_id,
                                               asked->additional, asked->policy);
    if (r == 0)
        r = sp_run_plan_is_patch(p) ? sp_run_plan_assess_patch(p, &e) : judge(p, &e);
    if (r < 0) {
        fail(p, &e);
        return;
    }
    p->has_requirement = !sp_run_plan_is_patch(p);
    if (sp_run_plan_is_patch(p) || make_key(p))
        decide(p);
    else
        sp_run_plan_fail_without_memory(p);
}

bool sp_run_plan_is_granted(struct sp_approvals *a, struct sp_str environment,
                            struct sp_str turn_id, const struct sp_grant *additional,
                            const struct sp_policy *policy)
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

bool sp_run_plan_can_retry(const struct sp_run_plan *p, bool is_guess)
{
    const struct sp_approvals_options *o = &p->approvals->options;

    return !(p->state != SP_RUN_PLAN_GO || p->is_retry || !sp_run_plan_is_confined(p) ||
             (is_guess && o->ignores_heuristic) ||
             !sp_judge_may_ask_after_denial(&p->approval, sp_run_plan_is_patch(p)) ||
             !sp_judge_may_run_free(&p->policy) || !can_ask(p));
}

bool sp_run_plan_retry(struct sp_run_plan *p, bool is_guess)
{
    const struct sp_approvals_options *o = &p->approvals->options;

    if (!sp_run_plan_can_retry(p, is_guess))
        return false;
    p->is_retry = true;
    p->is_guess = is_guess;
    if (o->retry_reuses_approval && p->was_approved &&
        !sp_approvals_is_strict(p->approvals, p->ask.turn_id))
        sp_run_plan_go(p, "approved", SP_DECIDER_CONFIG);
    else
        sp_run_plan_inquire(p);
    return true;
}

/* ---- the end ---- */

void sp_run_plan_done(struct sp_run_plan *p)
{
    if (p->approvals == NULL)
        return;
    const bool is_open = sp_asking_is_open(&p->asking);
    sp_asking_done(&p->asking);
    if (is_open)
        (void)sp_run_plan_audit(p, p->asking.is_review ? "skip" : "ask",
                                sp_decision_name(SP_DECISION_ABORT), SP_DECIDER_USER, false);
    if (p->has_requirement)
        sp_requirement_done(&p->requirement);
    if (sp_run_plan_is_patch(p))
        sp_patch_assessment_done(&p->assessment);
    sp_rules_unref(p->rules);
    if (p->has_policy)
        sp_policy_done(&p->policy);
    sp_run_plan_free_done(&p->free);
    sp_grant_done(&p->granted);
    sp_buf_done(&p->reason);
    sp_buf_done(&p->key);
    sp_buf_done(&p->command);
    p->approvals = NULL;
}

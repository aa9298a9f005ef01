/* SPDX-License-Identifier: Apache-2.0 */
/* What a caller is told: why a command may not run, and why there is a question. */
#include "approve/judge_priv.h"

#define NEVER    "approval required by policy, but AskForApproval is set to Never"
#define NO_RULES "approval required by policy rule, but AskForApproval::Granular.rules is false"
#define NO_SANDBOX                      \
    "approval required by policy, but " \
    "AskForApproval::Granular.sandbox_approval is false"
#define FORCED_RM "rm -f style commands are not permitted. Use a safer approach"

static bool add(struct sp_buf *out, const char *text)
{
    return sp_buf_add_str(out, sp_str_of(text));
}

static bool add_command(struct sp_buf *out, struct sp_words words)
{
    return add(out, "`") && sp_words_add_quoted(out, words) && add(out, "`");
}

/* The longest of this verdict; of two the later one. */
static const struct sp_rule_match *longest(const struct sp_rule_matches *matches, enum sp_verdict v)
{
    const struct sp_rule_match *best = NULL;

    for (uint32_t i = 0; i < matches->count; i++) {
        const struct sp_rule_match *m = &matches->items[i];

        if (m->verdict == v && (best == NULL || m->prefix.count >= best->prefix.count))
            best = m;
    }
    return best;
}

bool sp_judge_add_override_refusal(struct sp_buf *out, const struct sp_judge_ask *ask)
{
    /* Who may be asked about escalation may still not be asked about more permissions. */
    const bool may_ask = sp_approval_may_ask_by_guess(&ask->policy);

    if (ask->nobody_answers && may_ask && !sp_judge_forbids_additional(ask))
        return add(out, SP_NOBODY_ANSWERS);

    return add(out, "approval policy is ") && sp_approval_add_name(out, &ask->policy) &&
           add(out, "; reject command \xe2\x80\x94 you cannot ") &&
           (may_ask ? add(out, "request additional permissions unless the approval policy is "
                               "OnRequest")
                    : add(out, "ask for escalated permissions if the approval policy is ") &&
                          sp_approval_add_name(out, &ask->policy));
}

bool sp_judge_add_forbidden(struct sp_buf *out, const struct sp_judge_ask *ask,
                            const struct sp_evaluation *v, const struct sp_rule_matches *matches)
{
    const struct sp_rule_match *rule = longest(matches, SP_VERDICT_FORBIDDEN);

    if (!add_command(out, ask->argv) || !add(out, " rejected: "))
        return false;
    if (rule != NULL && rule->justification.p != NULL)
        return sp_buf_add_str(out, rule->justification);
    if (rule != NULL)
        return add(out, "policy forbids commands starting with ") && add_command(out, rule->prefix);
    return add(out, v->danger == SP_DANGER_FORCED_RM ? FORCED_RM : "blocked by policy");
}

bool sp_judge_add_silenced(struct sp_buf *out, const struct sp_judge_ask *ask,
                           const struct sp_evaluation *v)
{
    const bool may_ask = v->has_rule_prompt ? sp_approval_may_ask_by_rule(&ask->policy)
                                            : sp_approval_may_ask_by_guess(&ask->policy);

    if (!v->has_rule_prompt && v->danger == SP_DANGER_FORCED_RM)
        return add(out, FORCED_RM);
    if (may_ask) /* nobody answers: an approver would help */
        return add(out, SP_NOBODY_ANSWERS);
    if (ask->policy.kind != SP_APPROVAL_GRANULAR)
        return add(out, NEVER);
    return add(out, v->has_rule_prompt ? NO_RULES : NO_SANDBOX);
}

bool sp_judge_add_question(struct sp_buf *out, const struct sp_judge_ask *ask,
                           const struct sp_rule_matches *matches)
{
    const struct sp_rule_match *rule = longest(matches, SP_VERDICT_PROMPT);

    if (rule == NULL)
        return true;
    if (!add_command(out, ask->argv) || !add(out, " requires approval"))
        return false;
    if (rule->justification.p == NULL)
        return add(out, " by policy");
    return add(out, ": ") && sp_buf_add_str(out, rule->justification);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "approve/judge.h"

#include <errno.h>
#include <sys/stat.h>

#include "approve/judge_priv.h"
#include "base/auto.h"
#include "sandbox/writable.h"

/* ---- what no rule knows (6.3) ---- */

static bool is_disk_restricted(const struct sp_policy *profile)
{
    return profile != NULL && profile->profile.kind == SP_PROFILE_MANAGED &&
           !profile->profile.is_unrestricted;
}

static enum sp_verdict guess_dangerous(const struct sp_judge_ask *ask)
{
    /* Whoever cannot be asked is as if the policy were `never`. */
    return ask->policy.kind == SP_APPROVAL_NEVER || ask->nobody_answers ? SP_VERDICT_FORBIDDEN
                                                                        : SP_VERDICT_PROMPT;
}

static enum sp_verdict guess_harmless(const struct sp_judge_ask *ask, struct sp_words segment)
{
    const bool wants_more = sp_judge_wants_more(ask);

    switch (ask->policy.kind) {
    case SP_APPROVAL_NEVER:
        return SP_VERDICT_ALLOW;
    case SP_APPROVAL_ON_FAILURE:
        return wants_more ? SP_VERDICT_PROMPT : SP_VERDICT_ALLOW;
    case SP_APPROVAL_UNTRUSTED:
        return !wants_more && sp_judge_is_known_safe(segment, ask->known_safe) ? SP_VERDICT_ALLOW
                                                                               : SP_VERDICT_PROMPT;
    case SP_APPROVAL_ON_REQUEST:
    case SP_APPROVAL_GRANULAR:
        return wants_more && is_disk_restricted(ask->profile) ? SP_VERDICT_PROMPT
                                                              : SP_VERDICT_ALLOW;
    case SP_APPROVAL_MAX:
        break;
    }
    return SP_VERDICT_FORBIDDEN;
}

static int guess(const struct sp_judge_ask *ask, struct sp_words segment, enum sp_verdict *ret,
                 enum sp_danger *ret_danger, struct sp_err *e)
{
    const int r = sp_judge_danger(segment, ret_danger, e);

    if (r == 0)
        *ret = *ret_danger != SP_DANGER_NONE ? guess_dangerous(ask) : guess_harmless(ask, segment);
    return r;
}

/* ---- evaluation (5.4) ---- */

static void raise(struct sp_evaluation *v, enum sp_verdict verdict)
{
    if (verdict > v->verdict)
        v->verdict = verdict;
}

static int evaluate_by_guess(const struct sp_judge_ask *ask, const struct sp_words *segment,
                             struct sp_evaluation *v, struct sp_err *e)
{
    enum sp_verdict verdict = SP_VERDICT_FORBIDDEN;
    enum sp_danger danger;
    const int r = guess(ask, *segment, &verdict, &danger, e);

    if (r < 0)
        return r;
    raise(v, verdict);
    v->has_guess = true;
    if (v->danger != SP_DANGER_FORCED_RM && danger != SP_DANGER_NONE)
        v->danger = danger;
    if (verdict == SP_VERDICT_PROMPT && v->first_prompt == NULL)
        v->first_prompt = segment;
    if (verdict == SP_VERDICT_ALLOW && v->first_allowed == NULL)
        v->first_allowed = segment;
    return 0;
}

/*
 * Whether commands under the profile may write the file of a rule: then a command may have written
 * the rule. A second name of the file may be anywhere.
 */
static bool is_doubtful(const struct sp_policy *profile, const char *file)
{
    struct stat st;

    if (profile == NULL || file == NULL)
        return false;
    return stat(file, &st) < 0 || st.st_nlink > 1 || sp_policy_may_write(profile, file);
}

/* Whether some rule allows the segment (its matches begin at `from`) and no command wrote it. */
static bool has_sound_rule(const struct sp_judge_ask *ask, struct sp_rule_matches *m, uint32_t from)
{
    bool is_sound = false;

    for (uint32_t i = from; i < m->count; i++) {
        struct sp_rule_match *match = &m->items[i];

        if (match->verdict != SP_VERDICT_ALLOW)
            continue;
        match->is_doubtful = is_doubtful(ask->profile, match->file);
        is_sound = is_sound || !match->is_doubtful;
    }
    return is_sound;
}

static int evaluate(const struct sp_judge_ask *ask, struct sp_requirement *q,
                    struct sp_evaluation *v, struct sp_err *e)
{
    int r = 0;

    for (uint32_t i = 0; i < q->segments.count && r == 0; i++) {
        const struct sp_words *segment = &q->segments.items[i];
        uint32_t k = q->matches.count;

        if (ask->rules != NULL && !sp_rules_match(ask->rules, *segment, true, &q->matches))
            return sp_fail(e, SP_E_SYSTEM, ENOMEM, "no memory to judge a command");
        bool is_known = false;

        if (k < q->matches.count && !has_sound_rule(ask, &q->matches, k))
            v->has_doubtful = true;
        for (; k < q->matches.count; k++) {
            const enum sp_verdict verdict = q->matches.items[k].verdict;

            if (verdict == SP_VERDICT_ALLOW && ask->ignores_allow)
                continue;
            is_known = true;
            raise(v, verdict);
            v->has_rule_prompt = v->has_rule_prompt || verdict == SP_VERDICT_PROMPT;
        }
        if (!is_known)
            r = evaluate_by_guess(ask, segment, v, e);
    }
    return r;
}

/* ---- amendments (7.4) ---- */

/* Whether the rule that the caller would like to have has something to do with the command and
 * leaves nothing to ask. */
static int is_prefix_enough(const struct sp_judge_ask *ask, const struct sp_requirement *q,
                            bool *ret, struct sp_err *e)
{
    bool matches_any = false;

    *ret = false;
    for (uint32_t i = 0; i < q->segments.count; i++) {
        enum sp_verdict verdict = SP_VERDICT_ALLOW;
        enum sp_danger danger;

        if (sp_rules_would_match(ask->rules, ask->prefix, q->segments.items[i])) {
            matches_any = true;
            continue;
        }
        const int r = guess(ask, q->segments.items[i], &verdict, &danger, e);
        if (r < 0)
            return r;
        if (verdict != SP_VERDICT_ALLOW)
            return 0;
    }
    *ret = matches_any;
    return 0;
}

static struct sp_str copy(struct sp_arena *a, struct sp_str s, bool *is_good)
{
    const char *p = sp_arena_copy(a, s);

    *is_good = *is_good && p != NULL;
    return (struct sp_str){p, s.n};
}

/* The caller's own words need not live as long as the requirement. */
static bool keep_prefix(const struct sp_judge_ask *ask, struct sp_requirement *q)
{
    struct sp_arena arena = {q->impl};
    struct sp_str *items = sp_arena_new(&arena, ask->prefix.count * sizeof *items);
    bool is_good = items != NULL;

    for (uint32_t i = 0; is_good && i < ask->prefix.count; i++)
        items[i] = copy(&arena, ask->prefix.items[i], &is_good);
    q->impl = arena.newest;
    if (is_good)
        q->amendment = (struct sp_words){items, ask->prefix.count};
    return is_good;
}

static int offer_prefix(const struct sp_judge_ask *ask, struct sp_requirement *q, struct sp_err *e)
{
    bool is_enough;

    if (ask->prefix.count == 0 || q->matches.count != 0 || sp_rules_is_too_wide(ask->prefix))
        return 0;
    const int r = is_prefix_enough(ask, q, &is_enough, e);
    if (r < 0)
        return r;
    if (is_enough && !keep_prefix(ask, q))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "no memory for a rule that is offered");
    return 0;
}

static int offer(const struct sp_judge_ask *ask, struct sp_requirement *q,
                 const struct sp_evaluation *v, struct sp_err *e)
{
    const bool is_question = q->kind == SP_REQUIRE_ANSWER;
    const struct sp_words *segment = is_question ? v->first_prompt : v->first_allowed;
    const int r = offer_prefix(ask, q, e);

    if (r < 0 || q->amendment.count != 0 || segment == NULL)
        return r;
    if (is_question ? v->has_rule_prompt : q->matches.count != 0)
        return 0;
    if (!sp_rules_is_too_wide(*segment))
        q->amendment = *segment;
    return 0;
}

/* ---- requirement (7.1) ---- */

static bool add_in_front(struct sp_requirement *q, struct sp_words segment)
{
    struct sp_arena arena = {q->impl};
    const uint32_t count = q->segments.count;
    struct sp_words *items = sp_arena_new(&arena, (count + (size_t)1) * sizeof *items);

    q->impl = arena.newest;
    if (items == NULL)
        return false;
    items[0] = segment;
    for (uint32_t i = 0; i < count; i++)
        items[i + 1] = q->segments.items[i];
    q->segments.items = items;
    q->segments.count = count + 1;
    return true;
}

/* A shell that merely is called one: rules for what it is told to run must not bless it (4.4). */
static bool add_shell(const struct sp_judge_ask *ask, struct sp_requirement *q)
{
    return !q->segments.is_wrapper || q->segments.is_opaque ||
           sp_script_is_trusted_shell(ask->argv.items[0], ask->shell) ||
           add_in_front(q, (struct sp_words){ask->argv.items, 1});
}

static bool add_preface(const struct sp_judge_ask *ask, struct sp_requirement *q)
{
    return ask->preface.count == 0 || add_in_front(q, ask->preface);
}

static bool may_ask(const struct sp_judge_ask *ask, const struct sp_evaluation *v)
{
    if (ask->nobody_answers)
        return false;
    return v->has_rule_prompt ? sp_approval_may_ask_by_rule(&ask->policy)
                              : sp_approval_may_ask_by_guess(&ask->policy);
}

static bool decide(const struct sp_judge_ask *ask, struct sp_requirement *q,
                   const struct sp_evaluation *v)
{
    if (v->verdict == SP_VERDICT_ALLOW) {
        q->kind = SP_REQUIRE_NOTHING;
        q->is_free = !v->has_guess && !v->has_doubtful && ask->rules != NULL &&
                     sp_rules_are_complete(ask->rules) && sp_judge_may_run_free(ask->profile);
        return true;
    }
    if (v->verdict == SP_VERDICT_PROMPT && may_ask(ask, v)) {
        q->kind = SP_REQUIRE_ANSWER;
        return sp_judge_add_question(&q->reason, ask, &q->matches);
    }
    q->kind = SP_REQUIRE_REFUSAL;
    if (v->verdict == SP_VERDICT_PROMPT)
        return sp_judge_add_silenced(&q->reason, ask, v);
    return sp_judge_add_forbidden(&q->reason, ask, v, &q->matches);
}

/* Whether the policy cannot ask about what the caller wants besides (3, step 4; M4 of 9.2). */
static bool refuses_override(const struct sp_judge_ask *ask)
{
    if (!sp_judge_wants_more(ask))
        return false;
    if (ask->nobody_answers || !sp_approval_may_ask_by_guess(&ask->policy))
        return true;
    return sp_judge_forbids_additional(ask);
}

static int judge(const struct sp_judge_ask *ask, struct sp_requirement *q, struct sp_err *e)
{
    struct sp_evaluation v = {0};
    int r = sp_segments_read(&q->segments, ask->argv, e);

    if (r < 0)
        return r;
    if (refuses_override(ask))
        return sp_judge_add_override_refusal(&q->reason, ask)
                   ? 0
                   : sp_fail(e, SP_E_SYSTEM, ENOMEM, "no memory to refuse a command");
    if (!add_shell(ask, q) || !add_preface(ask, q))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "no memory to judge a command");
    if ((r = evaluate(ask, q, &v, e)) < 0)
        return r;
    if (!decide(ask, q, &v))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "no memory to judge a command");
    if (q->kind == SP_REQUIRE_REFUSAL || ask->preface.count != 0 || ask->ignores_allow)
        return 0;
    return offer(ask, q, &v, e);
}

int sp_judge(const struct sp_judge_ask *ask, struct sp_requirement *ret, struct sp_err *e)
{
    *ret = (struct sp_requirement){.kind = SP_REQUIRE_REFUSAL};
    const int r = judge(ask, ret, e);

    if (r < 0)
        sp_requirement_done(ret);
    return r;
}

void sp_requirement_done(struct sp_requirement *q)
{
    struct sp_arena arena = {q->impl};

    sp_segments_done(&q->segments);
    sp_rule_matches_done(&q->matches);
    sp_buf_done(&q->reason);
    sp_arena_done(&arena);
    *q = (struct sp_requirement){.kind = SP_REQUIRE_REFUSAL};
}

bool sp_judge_may_run_free(const struct sp_policy *profile)
{
    if (profile == NULL || profile->profile.kind != SP_PROFILE_MANAGED)
        return true;
    for (size_t i = 0; i < profile->profile.count; i++)
        if (profile->profile.entries[i].access == SP_ACCESS_DENY)
            return false;
    return true;
}

void sp_judge_tell_doubtful(const struct sp_rules *rules, const struct sp_policy *profile,
                            void (*warn)(void *user, const char *text), void *user)
{
    const char *file;

    for (uint32_t i = 0; rules != NULL && sp_rules_allowing_file(rules, i, &file); i++) {
        auto_buf struct sp_buf text = {0};

        if (is_doubtful(profile, file) &&
            sp_buf_printf(
                &text,
                "%s: commands in this sandbox may write it, so what it allows runs in the "
                "sandbox; keep rules where commands cannot write",
                file) &&
            sp_buf_add(&text, "", 1))
            warn(user, text.data);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * judge: approval policies, the evaluation of a command by rules and guesses, and the texts that
 * say why a command needs an answer or is refused.
 */
#include "approve/judge.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "approve/script/script_priv.h"
#include "base/arena.h"
#include "base/auto.h"
#include "base/json.h"
#include "sandbox/writable.h"

#define NEVER    "approval required by policy, but AskForApproval is set to Never"
#define NO_RULES "approval required by policy rule, but AskForApproval::Granular.rules is false"
#define NO_SANDBOX                      \
    "approval required by policy, but " \
    "AskForApproval::Granular.sandbox_approval is false"
#define FORCED_RM "rm -f style commands are not permitted. Use a safer approach"

struct sp_str sp_judge_plain_reason(struct sp_str reason)
{
    static const struct {
        struct sp_str is, plain;
    } texts[] = {
        {SP_STR(NEVER), SP_STR("it needs approval, and the approval policy is `never`")},
        {SP_STR(NO_RULES), SP_STR("a rule wants it to be asked about, and the approval policy has "
                                  "`rules` switched off")},
        {SP_STR(NO_SANDBOX), SP_STR("it would be asked about, and the approval policy has "
                                    "`sandbox_approval` switched off")},
    };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (sp_str_eq(reason, texts[i].is))
            return texts[i].plain;
    return reason;
}

/* What rules and guesses together say of a command. */
struct sp_evaluation {
    enum sp_verdict verdict; /* the strictest */
    enum sp_danger danger;   /* the worst danger among segments that no rule matched */
    bool has_rule_prompt;
    bool has_guess;    /* a segment is matched by no rule */
    bool has_doubtful; /* a segment is allowed only by files that a command may write */
    /* The first segments without a rule that need an answer, or are allowed. */
    const struct sp_words *first_prompt, *first_allowed;
};

static const struct {
    const char *wire, *text;
} kinds[] = {
#define X(name, wire, text) [SP_APPROVAL_##name] = {wire, text},
    SP_APPROVALS(X)
#undef X
};

/* ---- approval policies ---- */

/* Unknown members are errors, so that a misspelt switch is noticed. */
static int refuse_others(struct sp_json *j, uint32_t object, const char *const *known,
                         struct sp_err *e)
{
    for (uint32_t k = sp_json_first(j, object); k != SP_JSON_NONE; k = sp_json_next(j, object, k)) {
        const struct sp_str key = sp_json_str(j, k);

        if (!sp_str_is_any_of(key, known))
            return sp_fail(e, SP_E_INVALID, 0, "unknown field `" SP_STR_FMT "`",
                           (int)(key.n > 100 ? 100 : key.n), key.p);
    }
    return 0;
}

int sp_approval_read(struct sp_str text, struct sp_approval_policy *ret, struct sp_err *e)
{
    static const char *const outer[] = {"granular", NULL};
    static const char *const inner[] = {"sandbox_approval", "rules",
                                        "skill_approval",   "request_permissions",
                                        "mcp_elicitations", NULL};
    struct sp_approval_policy p = {.kind = SP_APPROVAL_GRANULAR};
    struct sp_json j = {0};
    struct sp_err why = {0};
    uint32_t o;
    int r = 0;

    if (text.n == 0 || text.p[0] != '{') {
        for (size_t i = 0; i < SP_APPROVAL_MAX; i++)
            if (i != SP_APPROVAL_GRANULAR && sp_str_eq(text, sp_str_of(kinds[i].wire))) {
                *ret = (struct sp_approval_policy){.kind = (enum sp_approval_kind)i};
                return 0;
            }
        struct sp_nearest near = sp_nearest_to(text);

        for (size_t i = 0; i < SP_APPROVAL_MAX; i++)
            if (i != SP_APPROVAL_GRANULAR)
                sp_nearest_offer(&near, kinds[i].wire);
        return sp_fail(e, SP_E_INVALID, 0,
                       "unknown approval policy `" SP_STR_FMT
                       "`, expected untrusted, on-failure, on-request, never, or an object "
                       "{\"granular\":{...}}%s%s%s",
                       (int)(text.n > 100 ? 100 : text.n), text.p,
                       near.best != NULL ? "; did you mean `" : "",
                       near.best != NULL ? near.best : "", near.best != NULL ? "`?" : "");
    }
    auto_free char *copy = malloc(text.n);
    if (copy == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "no memory for an approval policy");
    memcpy(copy, text.p, text.n);
    if (sp_json_parse(&j, copy, text.n, &why) < 0 || refuse_others(&j, 0, outer, &why) < 0 ||
        sp_json_need_object(&j, 0, "granular", &o, &why) < 0 ||
        refuse_others(&j, o, inner, &why) < 0 ||
        sp_json_need_bool(&j, o, "sandbox_approval", &p.sandbox_approval, &why) < 0 ||
        sp_json_need_bool(&j, o, "rules", &p.rules, &why) < 0 ||
        sp_json_def_bool(&j, o, "skill_approval", &p.skill_approval, &why) < 0 ||
        sp_json_def_bool(&j, o, "request_permissions", &p.request_permissions, &why) < 0 ||
        sp_json_need_bool(&j, o, "mcp_elicitations", &p.mcp_elicitations, &why) < 0)
        r = sp_fail(e, why.code == SP_E_SYSTEM ? SP_E_SYSTEM : SP_E_INVALID, why.sys,
                    "approval policy: %s", why.msg);
    else
        *ret = p;
    sp_json_done(&j);
    return r;
}

bool sp_approval_add_name(struct sp_buf *out, const struct sp_approval_policy *p)
{
    const char *const text[] = {"false", "true"};

    if (p->kind >= SP_APPROVAL_MAX)
        return sp_buf_add_str(out, SP_STR("?"));
    if (p->kind != SP_APPROVAL_GRANULAR)
        return sp_buf_add_str(out, sp_str_of(kinds[p->kind].text));
    return sp_buf_printf(out,
                         "Granular(GranularApprovalConfig { sandbox_approval: %s, rules: %s, "
                         "skill_approval: %s, request_permissions: %s, mcp_elicitations: %s })",
                         text[p->sandbox_approval], text[p->rules], text[p->skill_approval],
                         text[p->request_permissions], text[p->mcp_elicitations]);
}

/* Additional permissions need the policy on-request. */
static bool forbids_additional(const struct sp_judge_request *request)
{
    return request->permissions == SP_PERMISSIONS_ADDITIONAL &&
           request->policy.kind != SP_APPROVAL_ON_REQUEST;
}

/* Whether the caller wants more than the sandbox as it is, and no stored grant covers that. */
static bool wants_more(const struct sp_judge_request *request)
{
    return request->permissions == SP_PERMISSIONS_ESCALATED ||
           (request->permissions == SP_PERMISSIONS_ADDITIONAL && !request->is_preapproved);
}

/* ---- texts ---- */

static bool add_chars(struct sp_buf *out, const char *text)
{
    return sp_buf_add_str(out, sp_str_of(text));
}

static bool add_command(struct sp_buf *out, struct sp_words words)
{
    return add_chars(out, "`") && sp_words_add_quoted(out, words) && add_chars(out, "`");
}

/* The match of this verdict with the longest prefix; the later of two. */
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

static bool add_override_refusal(struct sp_buf *out, const struct sp_judge_request *request)
{
    /* The policy may allow questions about escalation, but not about additional permissions. */
    const bool may_ask = sp_approval_may_ask(&request->policy, request->policy.sandbox_approval);

    if (request->has_no_approver && may_ask && !forbids_additional(request))
        return add_chars(out, SP_NO_APPROVER);

    return add_chars(out, "approval policy is ") && sp_approval_add_name(out, &request->policy) &&
           add_chars(out, "; reject command \xe2\x80\x94 you cannot ") &&
           (may_ask ? add_chars(out, "request additional permissions unless the approval policy is "
                                     "OnRequest")
                    : add_chars(out, "ask for escalated permissions if the approval policy is ") &&
                          sp_approval_add_name(out, &request->policy));
}

/* ---- guesses about segments that no rule matches ---- */

static int guess(const struct sp_judge_request *request, struct sp_words segment,
                 enum sp_verdict *ret, enum sp_danger *ret_danger, struct sp_err *e)
{
    const int r = sp_judge_danger(segment, ret_danger, e);
    bool needs_question = wants_more(request);

    if (r < 0)
        return r;
    if (*ret_danger != SP_DANGER_NONE) { /* without an approver as with the policy `never` */
        *ret = request->policy.kind == SP_APPROVAL_NEVER || request->has_no_approver
                   ? SP_VERDICT_FORBIDDEN
                   : SP_VERDICT_PROMPT;
        return 0;
    }
    switch (request->policy.kind) {
    case SP_APPROVAL_NEVER:
        needs_question = false;
        break;
    case SP_APPROVAL_ON_FAILURE:
        break;
    case SP_APPROVAL_UNTRUSTED:
        needs_question = needs_question || !sp_judge_is_known_safe(segment, request->known_safe);
        break;
    case SP_APPROVAL_ON_REQUEST:
    case SP_APPROVAL_GRANULAR:
        needs_question = needs_question && request->profile != NULL &&
                         request->profile->profile.kind == SP_PROFILE_MANAGED &&
                         !request->profile->profile.is_unrestricted;
        break;
    case SP_APPROVAL_MAX:
        *ret = SP_VERDICT_FORBIDDEN;
        return 0;
    }
    *ret = needs_question ? SP_VERDICT_PROMPT : SP_VERDICT_ALLOW;
    return 0;
}

/* ---- evaluation ---- */

/* Whether commands under the profile may write the file of a rule, and so the rule. A second hard
 * link could be anywhere, so the file must have only one. */
static bool is_doubtful(const struct sp_policy *profile, const char *file)
{
    struct stat st;

    if (profile == NULL || file == NULL)
        return false;
    return stat(file, &st) < 0 || st.st_nlink > 1 || sp_policy_may_write(profile, file);
}

static int evaluate(const struct sp_judge_request *request, struct sp_requirement *q,
                    struct sp_evaluation *v, struct sp_err *e)
{
    for (uint32_t i = 0; i < q->segments.count; i++) {
        const struct sp_words *segment = &q->segments.items[i];
        const uint32_t first = q->matches.count;
        bool is_known = false;
        bool is_sound = false; /* an allow rule is from a file that no command may write */

        if (request->rules != NULL && !sp_rules_match(request->rules, *segment, true, &q->matches))
            return sp_fail(e, SP_E_SYSTEM, ENOMEM, "no memory to judge a command");
        for (uint32_t k = first; k < q->matches.count; k++) {
            struct sp_rule_match *match = &q->matches.items[k];

            if (match->verdict == SP_VERDICT_ALLOW) {
                match->is_doubtful = is_doubtful(request->profile, match->file);
                is_sound = is_sound || !match->is_doubtful;
                if (request->ignores_allow)
                    continue;
            }
            is_known = true;
            if (match->verdict > v->verdict)
                v->verdict = match->verdict;
            v->has_rule_prompt = v->has_rule_prompt || match->verdict == SP_VERDICT_PROMPT;
        }
        if (first < q->matches.count && !is_sound)
            v->has_doubtful = true;
        if (is_known)
            continue;
        enum sp_verdict verdict = SP_VERDICT_FORBIDDEN;
        enum sp_danger danger;
        const int r = guess(request, *segment, &verdict, &danger, e);
        if (r < 0)
            return r;
        if (verdict > v->verdict)
            v->verdict = verdict;
        v->has_guess = true;
        if (v->danger != SP_DANGER_FORCED_RM && danger != SP_DANGER_NONE)
            v->danger = danger;
        if (verdict == SP_VERDICT_PROMPT && v->first_prompt == NULL)
            v->first_prompt = segment;
        if (verdict == SP_VERDICT_ALLOW && v->first_allowed == NULL)
            v->first_allowed = segment;
    }
    return 0;
}

/* ---- the amendment that is offered ---- */

/* Prefixes that would allow anything: each program alone, unless is_fine_alone, and with one of the
 * words behind it. */
static const struct {
    const char *programs, *words; /* separated by blanks */
    bool is_fine_alone;
} wide[] = {
    {"/bin/bash /bin/sh /bin/zsh bash sh zsh", "-c -lc", false},
    {"dash fish ksh", "-c", false},
    {"cmd cmd.exe", "/c /k", false},
    {"powershell powershell.exe pwsh", "-Command -EncodedCommand -File -c", false},
    {"pwsh", "-e -ec -f", false},
    {"python python3", "- -c", false},
    {"py", "-3", false},
    {"pythonw pyw pypy pypy3", "", false},
    {"node nodejs perl ruby lua julia", "-e", false},
    {"php", "-r", false},
    {"deno", "eval", false},
    {"bun", "-e run", false},
    {"npm pnpm yarn", "run", true},
    {"Rscript osascript env git rm sudo", "", false},
};

static bool is_among(struct sp_str word, const char *list)
{
    while (*list != 0) {
        const size_t n = strcspn(list, " ");

        if (sp_str_eq(word, (struct sp_str){list, n}))
            return true;
        list += n + (list[n] == ' ');
    }
    return false;
}

bool sp_judge_is_too_wide(struct sp_words prefix)
{
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        if (prefix.count == 0 || !is_among(prefix.items[0], wide[i].programs))
            continue;
        if (prefix.count == 1 && !wide[i].is_fine_alone)
            return true;
        if (prefix.count == 2 && is_among(prefix.items[1], wide[i].words))
            return true;
    }
    return false;
}

/* Offers the requested prefix_rule if it matches part of the command and leaves nothing to ask; its
 * words are copied, since the caller may free them before the requirement. Otherwise the first
 * segment without a rule. */
static int offer(const struct sp_judge_request *request, struct sp_requirement *q,
                 const struct sp_evaluation *v, struct sp_err *e)
{
    const bool is_question = q->kind == SP_REQUIRE_ANSWER;
    const struct sp_words *segment = is_question ? v->first_prompt : v->first_allowed;
    bool is_enough = false;

    if (request->prefix.count != 0 && q->matches.count == 0 &&
        !sp_judge_is_too_wide(request->prefix)) {
        enum sp_verdict verdict = SP_VERDICT_ALLOW;
        enum sp_danger danger;

        for (uint32_t i = 0; verdict == SP_VERDICT_ALLOW && i < q->segments.count; i++) {
            if (sp_rules_would_match(request->rules, request->prefix, q->segments.items[i])) {
                is_enough = true;
                continue;
            }
            const int r = guess(request, q->segments.items[i], &verdict, &danger, e);
            if (r < 0)
                return r;
        }
        is_enough = is_enough && verdict == SP_VERDICT_ALLOW;
    }
    if (is_enough) {
        struct sp_arena arena = {q->impl};
        const struct sp_str *items = NULL;
        const bool is_good =
            sp_arena_strs(&arena, request->prefix.items, request->prefix.count, &items);

        q->impl = arena.newest;
        if (!is_good)
            return sp_fail(e, SP_E_SYSTEM, ENOMEM, "no memory for a rule that is offered");
        q->amendment = (struct sp_words){items, request->prefix.count};
    } else if (segment != NULL && !(is_question ? v->has_rule_prompt : q->matches.count != 0) &&
               !sp_judge_is_too_wide(*segment)) {
        q->amendment = *segment;
    }
    return 0;
}

/* ---- the requirement ---- */

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

/* Sets the kind of the requirement, and its reason. false: no memory. */
static bool decide_requirement(const struct sp_judge_request *request, struct sp_requirement *q,
                               const struct sp_evaluation *v)
{
    struct sp_buf *out = &q->reason;
    /* What the policy says; without an approver it asks in vain. */
    const bool may_ask = sp_approval_may_ask(&request->policy,
                                             v->has_rule_prompt ? request->policy.rules
                                                                : request->policy.sandbox_approval);

    if (v->verdict == SP_VERDICT_ALLOW) {
        q->kind = SP_REQUIRE_NOTHING;
        q->is_free = !v->has_guess && !v->has_doubtful && request->rules != NULL &&
                     sp_rules_are_complete(request->rules) &&
                     sp_judge_may_run_free(request->profile);
        return true;
    }
    if (v->verdict == SP_VERDICT_PROMPT && may_ask && !request->has_no_approver) {
        const struct sp_rule_match *rule = longest(&q->matches, SP_VERDICT_PROMPT);

        q->kind = SP_REQUIRE_ANSWER;
        if (rule == NULL)
            return true;
        return add_command(out, request->argv) && add_chars(out, " requires approval") &&
               (rule->justification.p == NULL
                    ? add_chars(out, " by policy")
                    : add_chars(out, ": ") && sp_buf_add_str(out, rule->justification));
    }
    q->kind = SP_REQUIRE_REFUSAL;
    if (v->verdict == SP_VERDICT_PROMPT) {
        if (!v->has_rule_prompt && v->danger == SP_DANGER_FORCED_RM)
            return add_chars(out, FORCED_RM);
        if (may_ask) /* no approver: the text says how to get one */
            return add_chars(out, SP_NO_APPROVER);
        if (request->policy.kind != SP_APPROVAL_GRANULAR)
            return add_chars(out, NEVER);
        return add_chars(out, v->has_rule_prompt ? NO_RULES : NO_SANDBOX);
    }
    const struct sp_rule_match *rule = longest(&q->matches, SP_VERDICT_FORBIDDEN);
    if (!add_command(out, request->argv) || !add_chars(out, " rejected: "))
        return false;
    if (rule != NULL && rule->justification.p != NULL)
        return sp_buf_add_str(out, rule->justification);
    if (rule != NULL)
        return add_chars(out, "policy forbids commands starting with ") &&
               add_command(out, rule->prefix);
    return add_chars(out, v->danger == SP_DANGER_FORCED_RM ? FORCED_RM : "blocked by policy");
}

static int judge(const struct sp_judge_request *request, struct sp_requirement *q, struct sp_err *e)
{
    struct sp_evaluation v = {0};
    int r = sp_segments_read(&q->segments, request->argv, e);

    if (r < 0)
        return r;
    /* The caller wants more permissions, and the policy cannot ask about that. */
    if (wants_more(request) &&
        (request->has_no_approver ||
         !sp_approval_may_ask(&request->policy, request->policy.sandbox_approval) ||
         forbids_additional(request)))
        return add_override_refusal(&q->reason, request)
                   ? 0
                   : sp_fail(e, SP_E_SYSTEM, ENOMEM, "no memory to refuse a command");
    /* A shell that only has the name of one is a segment of its own: rules for the commands in its
     * script must not allow it. */
    const bool has_foreign_shell =
        q->segments.is_wrapper && !q->segments.is_opaque &&
        !sp_script_is_trusted_shell(request->argv.items[0], request->shell);
    if ((has_foreign_shell && !add_in_front(q, (struct sp_words){request->argv.items, 1})) ||
        (request->preface.count != 0 && !add_in_front(q, request->preface)))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "no memory to judge a command");
    if ((r = evaluate(request, q, &v, e)) < 0)
        return r;
    if (!decide_requirement(request, q, &v))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "no memory to judge a command");
    if (q->kind == SP_REQUIRE_REFUSAL || request->preface.count != 0 || request->ignores_allow)
        return 0;
    return offer(request, q, &v, e);
}

int sp_judge(const struct sp_judge_request *request, struct sp_requirement *ret, struct sp_err *e)
{
    *ret = (struct sp_requirement){.kind = SP_REQUIRE_REFUSAL};
    const int r = judge(request, ret, e);

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
    struct sp_rules_file file;

    for (uint32_t i = 0; rules != NULL && sp_rules_file(rules, i, &file); i++) {
        auto_buf struct sp_buf text = {0};

        if (is_doubtful(profile, file.allowing_file) &&
            sp_buf_printf(
                &text,
                "%s: commands in this sandbox may write it, so what it allows runs in the "
                "sandbox; keep rules where commands cannot write",
                file.allowing_file) &&
            sp_buf_add(&text, "", 1))
            warn(user, text.data);
    }
}

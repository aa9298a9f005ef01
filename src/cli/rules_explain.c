/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/rules_explain.h"

#include <errno.h>

#include "approve/program.h"
#include "base/auto.h"
#include "base/json.h"
#include "cli/escape_text.h"

/* `granular` stands for one that asks everything: what it forbids beyond that is its own choice. */
static const struct sp_approval_policy policies[] = {
    {.kind = SP_APPROVAL_UNTRUSTED},
    {.kind = SP_APPROVAL_ON_FAILURE},
    {.kind = SP_APPROVAL_ON_REQUEST},
    {.kind = SP_APPROVAL_GRANULAR,
     .sandbox_approval = true,
     .rules = true,
     .skill_approval = true,
     .request_permissions = true,
     .mcp_elicitations = true},
    {.kind = SP_APPROVAL_NEVER},
};
#define POLICIES (sizeof policies / sizeof *policies)

static const char *policy_name(enum sp_approval_kind kind)
{
    static const char *const names[] = {
#define X(name, wire, text) wire,
        SP_APPROVALS(X)
#undef X
    };

    return names[kind];
}

static const char *kind_name(enum sp_requirement_kind kind)
{
    return kind == SP_REQUIRE_NOTHING ? "skip" : kind == SP_REQUIRE_ANSWER ? "ask" : "forbidden";
}

/* ---- as JSON ---- */

static bool add_words(struct sp_buf *out, struct sp_words words)
{
    bool is_good = sp_buf_add(out, "[", 1);

    for (uint32_t i = 0; is_good && i < words.count; i++)
        is_good = (i == 0 || sp_buf_add(out, ",", 1)) && sp_json_add_str(out, words.items[i]);
    return is_good && sp_buf_add(out, "]", 1);
}

static bool add_json_requirement(struct sp_buf *out, const struct sp_requirement *r,
                                 enum sp_approval_kind policy)
{
    bool is_good = sp_buf_printf(out, "\"%s\":{\"requirement\":\"%s\"", policy_name(policy),
                                 kind_name(r->kind));

    if (r->kind == SP_REQUIRE_NOTHING)
        is_good = is_good && sp_buf_printf(out, ",\"free\":%s", r->is_free ? "true" : "false");
    if (r->reason.len > 0)
        is_good = is_good && sp_buf_add_str(out, SP_STR(",\"reason\":")) &&
                  sp_json_add_str(out, (struct sp_str){r->reason.data, r->reason.len});
    if (r->amendment.count > 0)
        is_good = is_good && sp_buf_add_str(out, SP_STR(",\"amendment\":")) &&
                  add_words(out, r->amendment);
    return is_good && sp_buf_add(out, "}", 1);
}

static bool add_json(struct sp_buf *out, const struct sp_explain_ask *ask,
                     const struct sp_requirement *all)
{
    const struct sp_requirement *r = &all[0];
    bool is_good = sp_buf_add_str(out, SP_STR("{\"command\":")) && add_words(out, ask->argv) &&
                   sp_buf_printf(out, ",\"opaque\":%s,\"segments\":[",
                                 r->segments.is_opaque ? "true" : "false");

    for (uint32_t i = 0; is_good && i < r->segments.count; i++)
        is_good = (i == 0 || sp_buf_add(out, ",", 1)) && add_words(out, r->segments.items[i]);
    is_good = is_good && sp_buf_add_str(out, SP_STR("],\"matches\":")) &&
              sp_rule_matches_add_json(out, &r->matches) &&
              sp_buf_printf(out, ",\"complete\":%s,\"sandbox\":",
                            sp_rules_are_complete(ask->rules) ? "true" : "false") &&
              sp_json_add_str(out, sp_str_of(ask->profile_name)) &&
              sp_buf_add_str(out, SP_STR(",\"requirements\":{"));
    for (size_t i = 0; is_good && i < POLICIES; i++)
        is_good = (i == 0 || sp_buf_add(out, ",", 1)) &&
                  add_json_requirement(out, &all[i], policies[i].kind);
    return is_good && sp_buf_add_str(out, SP_STR("}}\n"));
}

/* ---- for people ---- */

static bool add_plain_words(struct sp_buf *out, struct sp_words words)
{
    bool is_good = true;

    for (uint32_t i = 0; is_good && i < words.count; i++)
        is_good = (i == 0 || sp_buf_add(out, " ", 1)) && sp_plain_add_word(out, words.items[i]);
    return is_good;
}

static bool add_plain_match(struct sp_buf *out, const struct sp_rule_match *m)
{
    bool is_good = sp_buf_printf(out, "  %-9s  ", sp_verdict_name(m->verdict)) &&
                   add_plain_words(out, m->prefix);

    if (m->resolved_program.p != NULL)
        is_good = is_good && sp_buf_add_str(out, SP_STR(" (")) &&
                  sp_plain_add(out, m->resolved_program) && sp_buf_add(out, ")", 1);
    if (m->justification.p != NULL)
        is_good =
            is_good && sp_buf_add_str(out, SP_STR(": ")) && sp_plain_add(out, m->justification);
    if (m->is_doubtful)
        is_good = is_good &&
                  sp_buf_add_str(out, SP_STR("\n             in the sandbox, since "
                                             "commands may write ")) &&
                  sp_plain_add(out, sp_str_of(m->file));
    return is_good && sp_buf_add(out, "\n", 1);
}

static const char *what_it_does(const struct sp_requirement *r, bool is_open)
{
    if (r->kind == SP_REQUIRE_ANSWER)
        return "asks";
    if (r->kind == SP_REQUIRE_REFUSAL)
        return "refuses";
    return r->is_free || is_open ? "runs it without a sandbox" : "runs it in the sandbox";
}

static bool add_plain_requirement(struct sp_buf *out, const struct sp_requirement *r,
                                  enum sp_approval_kind policy, bool is_open)
{
    bool is_good = sp_buf_printf(out, "  %-10s  %s", policy_name(policy), what_it_does(r, is_open));

    if (r->reason.len > 0)
        is_good = is_good && sp_buf_add_str(out, SP_STR(": ")) &&
                  sp_plain_add(out, (struct sp_str){r->reason.data, r->reason.len});
    if (r->kind == SP_REQUIRE_ANSWER && r->amendment.count > 0)
        is_good = is_good && sp_buf_add_str(out, SP_STR("; offers the rule: ")) &&
                  add_plain_words(out, r->amendment);
    return is_good && sp_buf_add(out, "\n", 1);
}

/* The first segment is then the shell alone: 4.4. */
static bool is_strange_shell(const struct sp_explain_ask *ask, const struct sp_segments *s)
{
    return s->is_wrapper && !s->is_opaque &&
           !sp_script_is_trusted_shell(ask->argv.items[0], ask->shell);
}

static bool add_plain_segments(struct sp_buf *out, const struct sp_explain_ask *ask,
                               const struct sp_segments *s)
{
    bool is_good = sp_buf_printf(
        out, "Segments%s:\n",
        s->is_opaque ? " (the script is more than plain commands: one, as a whole)" : "");

    for (uint32_t i = 0; is_good && i < s->count; i++)
        is_good = sp_buf_add(out, "  ", 2) && add_plain_words(out, s->items[i]) &&
                  (i > 0 || !is_strange_shell(ask, s) ||
                   sp_buf_add_str(out, SP_STR("  (a shell that is not in /bin or /usr/bin by its "
                                              "path: it is judged, too)"))) &&
                  sp_buf_add(out, "\n", 1);
    return is_good;
}

static bool add_plain(struct sp_buf *out, const struct sp_explain_ask *ask,
                      const struct sp_requirement *all)
{
    const struct sp_requirement *r = &all[0];
    bool is_good = add_plain_segments(out, ask, &r->segments) &&
                   sp_buf_printf(out, "Rules that match%s:\n",
                                 sp_rules_are_complete(ask->rules)
                                     ? ""
                                     : " (some files are broken: no rule takes the sandbox away)");

    if (r->matches.count == 0)
        is_good = is_good && sp_buf_add_str(out, SP_STR("  none\n"));
    for (uint32_t i = 0; is_good && i < r->matches.count; i++)
        is_good = add_plain_match(out, &r->matches.items[i]);
    is_good = is_good && sp_buf_add_str(out, SP_STR("Under the sandbox ")) &&
              sp_plain_add(out, sp_str_of(ask->profile_name)) &&
              sp_buf_add_str(out, SP_STR(", the policy:\n"));
    for (size_t i = 0; is_good && i < POLICIES; i++)
        is_good = add_plain_requirement(out, &all[i], policies[i].kind, ask->is_open);
    return is_good;
}

/* A rule alone does not take the sandbox away: the file that would run counts. */
static void look_at_programs(const struct sp_explain_ask *ask, struct sp_requirement *r)
{
    const struct sp_program_ask files = {
        .argv = ask->argv, .judged = r, .profile = ask->profile, .environ = ask->environ};
    struct sp_program program = {0};

    if (r->is_free && !ask->is_open)
        r->is_free = sp_program_find(&files, &program);
    sp_program_done(&program);
}

int sp_rules_explain(const struct sp_explain_ask *ask, struct sp_buf *out, struct sp_err *e)
{
    struct sp_requirement all[POLICIES] = {0};
    int r = 0;

    for (size_t i = 0; r == 0 && i < POLICIES; i++) {
        const struct sp_judge_ask one = {.argv = ask->argv,
                                         .rules = ask->rules,
                                         .policy = policies[i],
                                         .profile = ask->profile,
                                         .known_safe = ask->known_safe,
                                         .shell = ask->shell};

        r = sp_judge(&one, &all[i], e);
        if (r == 0)
            look_at_programs(ask, &all[i]);
    }
    if (r == 0 && !(ask->is_json ? add_json : add_plain)(out, ask, all))
        r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "explain the command");
    for (size_t i = 0; i < POLICIES; i++)
        sp_requirement_done(&all[i]);
    return r;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/question_text.h"

#include "base/auto.h"

static bool add_line(struct sp_buf *out, const char *label, struct sp_str text)
{
    return text.n == 0 || (sp_buf_printf(out, "  %-13s", label) &&
                           sp_question_add_visible(out, text, false) && sp_buf_add(out, "\n", 1));
}

bool sp_question_text_offers_rule(const struct sp_question *q)
{
    auto_buf struct sp_buf words = {0};

    return sp_question_offers_amendment(q) && sp_words_add_quoted(&words, q->amendment) &&
           words.len <= SP_QUESTION_VISIBLE_MAX;
}

static const char *headline(const struct sp_question *q)
{
    switch (q->kind) {
    case SP_QUESTION_ESCALATE:
        return "may this run without a sandbox?";
    case SP_QUESTION_ADDITIONAL:
        return "may this do more than its sandbox allows?";
    case SP_QUESTION_RETRY:
        return "the sandbox got in the way of this. Once more, without it?";
    case SP_QUESTION_PATCH:
        return "may these files be changed?";
    case SP_QUESTION_RUN:
        break;
    }
    return "may this run?";
}

static bool add_paths(struct sp_buf *out, const struct sp_grant *g)
{
    static const char *const labels[] = {
        [SP_ACCESS_DENY] = "  not", [SP_ACCESS_READ] = "+ read", [SP_ACCESS_WRITE] = "+ write"};
    bool ok = true;

    for (size_t i = 0; ok && i < g->extra.count; i++)
        if (g->extra.entries[i].text != NULL)
            ok = add_line(out, labels[g->extra.entries[i].access],
                          sp_str_of(g->extra.entries[i].text));
    return ok && (!g->extra.has_network || add_line(out, "+ network", SP_STR("all of it")));
}

static bool add_allowed(struct sp_buf *out, const struct sp_question *q)
{
    auto_buf struct sp_buf text = {0};
    const bool is_confined = q->profile != NULL && !q->is_free;
    bool ok;

    if (!is_confined)
        ok = sp_buf_printf(&text, "everything: no sandbox");
    else if (q->profile_name != NULL)
        ok = sp_buf_printf(&text, "what the sandbox %s allows", q->profile_name);
    else
        ok = sp_buf_printf(&text, "what its sandbox allows");
    return ok && add_line(out, "allowed:", (struct sp_str){text.data, text.len}) &&
           (q->additional == NULL || add_paths(out, q->additional));
}

static bool add_rule(struct sp_buf *out, const struct sp_question *q)
{
    auto_buf struct sp_buf words = {0};

    return !sp_question_text_offers_rule(q) ||
           (sp_words_add_quoted(&words, q->amendment) &&
            add_line(out, "rule:", (struct sp_str){words.data, words.len}));
}

static bool add_change(struct sp_buf *out, const struct sp_patch_change *c)
{
    static const char *const labels[] = {
        [SP_PATCH_ADD] = "add:", [SP_PATCH_DELETE] = "delete:", [SP_PATCH_UPDATE] = "update:"};
    auto_buf struct sp_buf diff = {0};

    return add_line(out, labels[c->kind], sp_str_of(c->full_path)) &&
           (c->full_target == NULL || add_line(out, "  move to:", sp_str_of(c->full_target))) &&
           sp_patch_add_diff(&diff, c) &&
           sp_question_add_visible(out, (struct sp_str){diff.len == 0 ? "" : diff.data, diff.len},
                                   true);
}

static bool add_changes(struct sp_buf *out, const struct sp_question *q)
{
    bool ok = true;

    for (uint32_t i = 0; ok && q->changes != NULL && i < q->changes->count; i++)
        ok = add_change(out, &q->changes->items[i]);
    return ok;
}

bool sp_question_text_add(struct sp_buf *out, const struct sp_question *q)
{
    const bool is_patch = q->kind == SP_QUESTION_PATCH;

    return sp_buf_printf(out, "\nsallyport: %s\n", headline(q)) &&
           (is_patch ? add_changes(out, q) : add_line(out, "command:", q->command)) &&
           add_line(out, "in:", q->cwd) && add_line(out, "environment:", q->environment) &&
           add_line(out, "reason:", q->reason) && add_allowed(out, q) && add_rule(out, q) &&
           sp_buf_printf(out, "  y yes, a yes for this session, %sn no, q no and stop: ",
                         sp_question_text_offers_rule(q) ? "p yes and keep the rule, " : "");
}

struct sp_str sp_question_text_of(enum sp_decision_kind kind)
{
    switch (kind) {
    case SP_DECISION_APPROVED:
        return SP_STR("yes\n");
    case SP_DECISION_APPROVED_FOR_SESSION:
        return SP_STR("yes, for this session\n");
    case SP_DECISION_AMENDMENT:
    case SP_DECISION_NETWORK_AMENDMENT:
        return SP_STR("yes, and the rule is kept\n");
    case SP_DECISION_ABORT:
        return SP_STR("no, stop\n");
    case SP_DECISION_TIMED_OUT:
    case SP_DECISION_DENIED:
    case SP_DECISION_MAX:
        break;
    }
    return SP_STR("no\n");
}

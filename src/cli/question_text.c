/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/question_text.h"

#include "base/auto.h"

static bool add_line(struct sp_buf *out, const char *label, struct sp_str text)
{
    return text.n == 0 || (sp_buf_printf(out, "  %-12s ", label) &&
                           sp_question_add_visible(out, text, false) && sp_buf_add(out, "\n", 1));
}

bool sp_question_text_offers_rule(const struct sp_question *q)
{
    auto_buf struct sp_buf words = {0};

    if (sp_question_offers_host(q))
        return true;
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
        return q->is_guess ? "this says that its sandbox got in the way. Once more, without it?"
                           : "the sandbox got in the way of this. Once more, without it?";
    case SP_QUESTION_PATCH:
        return "may these files be changed?";
    case SP_QUESTION_PERMISSIONS:
        return "may commands do this from now on?";
    case SP_QUESTION_NETWORK:
        return "may a command reach this host?";
    case SP_QUESTION_RUN:
        break;
    }
    return "may this run?";
}

/* A place that has no path of its own has a name. */
static struct sp_str name_of(const struct sp_entry *entry)
{
    static const char *const names[] = {
        [SP_PLACE_ROOT] = "/ (everything)",   [SP_PLACE_MINIMAL] = "what programs need to start",
        [SP_PLACE_PROJECT] = "the workspace", [SP_PLACE_TMPDIR] = "$TMPDIR",
        [SP_PLACE_SLASH_TMP] = "/tmp",        [SP_PLACE_UNKNOWN] = "a place that is not known here",
    };

    return sp_str_of(entry->text != NULL ? entry->text : names[entry->place]);
}

static bool add_paths(struct sp_buf *out, const struct sp_grant *g)
{
    static const char *const labels[] = {
        [SP_ACCESS_DENY] = "  not", [SP_ACCESS_READ] = "+ read", [SP_ACCESS_WRITE] = "+ write"};
    bool ok = true;

    for (size_t i = 0; ok && i < g->extra.count; i++)
        ok = add_line(out, labels[g->extra.entries[i].access], name_of(&g->extra.entries[i]));
    return ok && (!g->extra.has_network || add_line(out, "+ network", SP_STR("all of it")));
}

/* What commands may do from now on, and where. */
static bool add_permissions(struct sp_buf *out, const struct sp_question *q)
{
    return (q->additional == NULL || add_paths(out, q->additional)) &&
           add_line(out, "in:", q->cwd) && add_line(out, "environment:", q->environment) &&
           add_line(out, "reason:", q->reason) &&
           sp_buf_printf(out,
                         "  y yes for this turn, a yes for this session, n no, q no and stop: ");
}

static bool add_allowed(struct sp_buf *out, const struct sp_question *q)
{
    auto_buf struct sp_buf text = {0};
    const bool is_confined = q->profile != NULL && !q->is_free;
    bool ok;

    if (q->kind == SP_QUESTION_NETWORK)
        return true; /* nothing but the host */
    if (!is_confined)
        ok = sp_buf_printf(&text, "everything: no sandbox");
    else if (q->profile_name != NULL)
        ok = sp_buf_printf(&text, "what the sandbox %s allows", q->profile_name);
    else
        ok = sp_buf_printf(&text, "what its sandbox allows");
    return ok && add_line(out, "allowed:", (struct sp_str){text.data, text.len}) &&
           (q->additional == NULL || add_paths(out, q->additional));
}

/* The rule, and what comes of it: it says more than this one question. */
static bool add_rule(struct sp_buf *out, const struct sp_question *q)
{
    static const char free_from_now[] = "this, and all that begins with it, runs unasked and "
                                        "WITHOUT A SANDBOX";
    static const char unasked_from_now[] = "this, and all that begins with it, runs unasked";
    auto_buf struct sp_buf words = {0};

    if (sp_question_offers_host(q))
        return sp_buf_add_str(&words, SP_STR("allow ")) && sp_buf_add_str(&words, q->host) &&
               add_line(out, "rule:", (struct sp_str){words.data, words.len});
    return !sp_question_text_offers_rule(q) ||
           (sp_words_add_quoted(&words, q->amendment) &&
            add_line(out, "rule:", (struct sp_str){words.data, words.len}) &&
            add_line(
                out, "from then on:",
                sp_str_of(sp_judge_may_run_free(q->profile) ? free_from_now : unasked_from_now)));
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

/* Who wants to reach what. */
static bool add_host(struct sp_buf *out, const struct sp_question *q)
{
    return add_line(out, "host:", q->argv.count > 1 ? q->argv.items[1] : q->host) &&
           add_line(out, "command:", q->asking_command);
}

bool sp_question_text_add(struct sp_buf *out, const struct sp_question *q)
{
    const bool is_patch = q->kind == SP_QUESTION_PATCH;

    if (!sp_buf_printf(out, "\nsallyport: %s\n", headline(q)))
        return false;
    if (q->kind == SP_QUESTION_PERMISSIONS)
        return add_permissions(out, q);
    return (is_patch                         ? add_changes(out, q)
            : q->kind == SP_QUESTION_NETWORK ? add_host(out, q)
                                             : add_line(out, "command:", q->command)) &&
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
    case SP_DECISION_NO_OPINION:
    case SP_DECISION_FAILED:
    case SP_DECISION_MAX:
        break;
    }
    return SP_STR("no\n");
}

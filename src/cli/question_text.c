/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/question_text.h"

#include <string.h>

#include "base/auto.h"

struct page {
    struct sp_buf *out;
    struct sp_buf *rest; /* the middles that were left out, for the key `m` */
};

/* The ends of a long field go on the page, its middle to the rest. */
static bool add_cut(const struct page *p, const char *label, struct sp_str text, bool keeps_lines)
{
    const struct sp_str middle = sp_question_middle(text, SP_QUESTION_TEXT_MAX);

    return sp_question_add_ends(p->out, text, middle, keeps_lines) &&
           (middle.n == 0 ||
            (sp_buf_printf(p->rest, "%s the %zu bytes that were not shown:\n", label, middle.n) &&
             sp_question_add_whole(p->rest, middle, keeps_lines) && sp_buf_add(p->rest, "\n", 1)));
}

static bool add_line(const struct page *p, const char *label, struct sp_str text)
{
    return text.n == 0 || (sp_buf_printf(p->out, "  %-12s ", label) &&
                           add_cut(p, label, text, false) && sp_buf_add(p->out, "\n", 1));
}

bool sp_question_text_offers_rule(const struct sp_approval_question *q)
{
    auto_buf struct sp_buf words = {0};

    if (sp_question_offers_host(q))
        return true;
    return sp_question_offers_amendment(q) && sp_words_add_quoted(&words, q->amendment) &&
           words.len <= SP_QUESTION_TEXT_MAX;
}

static bool add_paths(const struct page *out, const struct sp_grant *g)
{
    static const char *const labels[] = {
        [SP_ACCESS_DENY] = "  not", [SP_ACCESS_READ] = "+ read", [SP_ACCESS_WRITE] = "+ write"};
    static const char *const names[] = {
        [SP_PLACE_ROOT] = "/ (everything)",   [SP_PLACE_MINIMAL] = "what programs need to start",
        [SP_PLACE_PROJECT] = "the workspace", [SP_PLACE_TMPDIR] = "$TMPDIR",
        [SP_PLACE_SLASH_TMP] = "/tmp",        [SP_PLACE_UNKNOWN] = "a place that is not known here",
    };
    bool ok = true;

    for (size_t i = 0; ok && i < g->extra.count; i++) {
        const struct sp_entry *one = &g->extra.entries[i];

        ok = add_line(out, labels[one->access],
                      sp_str_of(one->text != NULL ? one->text : names[one->place]));
    }
    return ok && (!g->extra.has_network || add_line(out, "+ network", SP_STR("all of it")));
}

static bool add_allowed(const struct page *out, const struct sp_approval_question *q)
{
    auto_buf struct sp_buf text = {0};
    const bool is_confined = q->profile != NULL && !q->is_free;
    bool ok;

    if (q->kind == SP_QUESTION_NETWORK)
        return true; /* the host line says it */
    if (!is_confined)
        ok = sp_buf_printf(&text, "everything: no sandbox");
    else if (q->profile_name != NULL)
        ok = sp_buf_printf(&text, "what the sandbox %s allows", q->profile_name);
    else
        ok = sp_buf_printf(&text, "what its sandbox allows");
    return ok && add_line(out, "allowed:", sp_buf_str(&text)) &&
           (q->additional == NULL || add_paths(out, q->additional));
}

/* The rule that is offered, and that it holds for later commands, too. */
static bool add_rule(const struct page *out, const struct sp_approval_question *q)
{
    static const char free_from_now[] = "this, and all that begins with it, runs unasked and "
                                        "WITHOUT A SANDBOX";
    static const char unasked_from_now[] = "this, and all that begins with it, runs unasked";
    auto_buf struct sp_buf words = {0};

    if (sp_question_offers_host(q))
        return sp_buf_add_str(&words, SP_STR("allow ")) && sp_buf_add_str(&words, q->host) &&
               add_line(out, "rule:", sp_buf_str(&words));
    return !sp_question_text_offers_rule(q) ||
           (sp_words_add_quoted(&words, q->amendment) &&
            add_line(out, "rule:", sp_buf_str(&words)) &&
            add_line(
                out, "from then on:",
                sp_str_of(sp_judge_may_run_free(q->profile) ? free_from_now : unasked_from_now)));
}

static bool add_subject(const struct page *out, const struct sp_approval_question *q)
{
    static const char *const labels[] = {
        [SP_PATCH_ADD] = "add:", [SP_PATCH_DELETE] = "delete:", [SP_PATCH_UPDATE] = "update:"};

    switch (q->kind) {
    case SP_QUESTION_PERMISSIONS:
        return q->additional == NULL || add_paths(out, q->additional);
    case SP_QUESTION_PATCH:
        for (uint32_t i = 0; q->changes != NULL && i < q->changes->count; i++) {
            const struct sp_patch_change *c = &q->changes->items[i];
            auto_buf struct sp_buf diff = {0};

            if (!add_line(out, labels[c->kind], sp_str_of(c->full_path)) ||
                (c->full_target != NULL &&
                 !add_line(out, "  move to:", sp_str_of(c->full_target))) ||
                !sp_patch_add_diff(&diff, c) ||
                !add_cut(out, c->full_path, sp_buf_str(&diff), true))
                return false;
        }
        return true;
    case SP_QUESTION_NETWORK:
        return add_line(out, "host:", q->argv.count > 1 ? q->argv.items[1] : q->host) &&
               add_line(out, "command:", q->asking_command);
    case SP_QUESTION_RUN:
    case SP_QUESTION_ESCALATE:
    case SP_QUESTION_ADDITIONAL:
    case SP_QUESTION_RETRY:
        break;
    }
    return add_line(out, "command:", q->command);
}

bool sp_question_text_add(struct sp_buf *out, const struct sp_approval_question *q,
                          struct sp_buf *rest)
{
    static const char *const headlines[] = {
        [SP_QUESTION_RUN] = "may this run?",
        [SP_QUESTION_ESCALATE] = "may this run without a sandbox?",
        [SP_QUESTION_ADDITIONAL] = "may this do more than its sandbox allows?",
        [SP_QUESTION_RETRY] = "the sandbox got in the way of this. Once more, without it?",
        [SP_QUESTION_PATCH] = "may these files be changed?",
        [SP_QUESTION_PERMISSIONS] = "may commands do this from now on?",
        [SP_QUESTION_NETWORK] = "may a command reach this host?",
    };
    const struct page page = {out, rest};
    const char *headline = q->kind == SP_QUESTION_RETRY && q->is_guess
                               ? "this says that its sandbox got in the way. Once more, without it?"
                               : headlines[q->kind];

    return sp_buf_printf(out, "\nsallyport: %s\n", headline) && add_subject(&page, q) &&
           add_line(&page, "in:", q->cwd) && add_line(&page, "environment:", q->environment) &&
           add_line(&page, "reason:", q->reason) &&
           (q->kind == SP_QUESTION_PERMISSIONS || (add_allowed(&page, q) && add_rule(&page, q)));
}

/* ---- answers ---- */

#define ALLOWS_ONCE    "yes"
#define ALLOWS_SESSION "session"
#define KEEPS_RULE     "always"

/* Whether a yes means that something runs without a sandbox. */
static bool runs_free(const struct sp_approval_question *q)
{
    return q->is_free || (q->profile == NULL && q->kind != SP_QUESTION_PERMISSIONS &&
                          q->kind != SP_QUESTION_NETWORK);
}

bool sp_question_text_add_keys(struct sp_buf *out, const struct sp_approval_question *q,
                               bool is_all_shown)
{
    const bool is_free = runs_free(q);

    if (is_all_shown && is_free &&
        !sp_buf_printf(out, "  type " ALLOWS_ONCE " and Enter: yes, WITHOUT A SANDBOX\n"
                            "  type " ALLOWS_SESSION
                            " and Enter: yes for this session, WITHOUT A SANDBOX\n"))
        return false;
    if (is_all_shown && sp_question_text_offers_rule(q) &&
        !sp_buf_printf(out, "  type " KEEPS_RULE " and Enter: yes and keep the rule\n"))
        return false;
    if (!is_all_shown &&
        !sp_buf_printf(out, "  NOT ALL IS SHOWN: m shows more%s\n",
                       is_free ? "; yes can be said after that"
                               : "; yes for more than this once can be said after that"))
        return false;
    if (is_free)
        return sp_buf_printf(out, "  n no, q no and stop: ");
    return sp_buf_printf(out, "  y yes%s, %sn no, q no and stop: ",
                         q->kind == SP_QUESTION_PERMISSIONS ? " for this turn" : "",
                         is_all_shown ? "a yes for this session, " : "");
}

/* A free run is never approved by a single key. */
enum sp_decision_kind sp_question_text_key(const struct sp_approval_question *q, bool is_all_shown,
                                           char key)
{
    switch (key) {
    case 'y':
        return runs_free(q) ? SP_DECISION_MAX : SP_DECISION_APPROVED;
    case 'a':
        return runs_free(q) || !is_all_shown ? SP_DECISION_MAX : SP_DECISION_APPROVED_FOR_SESSION;
    case 'n':
        return SP_DECISION_DENIED;
    case 'q':
    case SP_QUESTION_TEXT_ABORT:
        return SP_DECISION_ABORT;
    default:
        return SP_DECISION_MAX;
    }
}

static const struct word {
    struct sp_str text;
    enum sp_decision_kind kind;
} words[] = {
    {SP_STR(ALLOWS_ONCE), SP_DECISION_APPROVED},
    {SP_STR(ALLOWS_SESSION), SP_DECISION_APPROVED_FOR_SESSION},
    {SP_STR(KEEPS_RULE), SP_DECISION_AMENDMENT},
};

static bool is_offered(const struct sp_approval_question *q, const struct word *w)
{
    return w->kind != SP_DECISION_AMENDMENT || sp_question_text_offers_rule(q);
}

enum sp_decision_kind sp_question_text_word(const struct sp_approval_question *q, bool is_all_shown,
                                            struct sp_str text)
{
    if (text.n == 1)
        return sp_question_text_key(q, is_all_shown, text.p[0]);
    for (size_t i = 0; is_all_shown && i < sizeof words / sizeof words[0]; i++)
        if (sp_str_eq(text, words[i].text) && is_offered(q, &words[i]))
            return words[i].kind == SP_DECISION_AMENDMENT && sp_question_offers_host(q)
                       ? SP_DECISION_NETWORK_AMENDMENT
                       : words[i].kind;
    return SP_DECISION_MAX;
}

bool sp_question_text_may_become_word(const struct sp_approval_question *q, bool is_all_shown,
                                      struct sp_str begun)
{
    for (size_t i = 0; is_all_shown && i < sizeof words / sizeof words[0]; i++)
        if (begun.n <= words[i].text.n && memcmp(begun.p, words[i].text.p, begun.n) == 0 &&
            is_offered(q, &words[i]))
            return true;
    return false;
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

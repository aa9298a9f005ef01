/* SPDX-License-Identifier: Apache-2.0 */
#include "approve/question_text.h"

#include <stdio.h>
#include <stdlib.h>

#include "approve/rules/rules.h"
#include "base/auto.h"
#include "base/json.h"

#define FIELD_MAX      4096 /* bytes of a field of the question; its middle is left out */
#define WRITABLE_SHOWN 8    /* places of a question */

struct page {
    struct sp_buf *out;
    struct sp_buf *rest; /* the middles that were left out, for the key `m` */
    bool is_bold;        /* escape codes emphasize what matters most */
};

/* Our own words only: text of others is escaped. */
static bool add_strong(const struct page *p, const char *text)
{
    return sp_buf_printf(p->out, p->is_bold ? SP_BOLD "%s" SP_NOT_BOLD : "%s", text);
}

/* The ends of a long field go on the page, its middle to the rest. */
static bool add_cut(const struct page *p, const char *label, struct sp_str text, bool keeps_lines)
{
    const struct sp_str middle = sp_question_middle(text, FIELD_MAX);

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

/* A rule that is too long to be shown as a whole is not offered. */
bool sp_question_shows_rule(const struct sp_approval_question *q)
{
    auto_buf struct sp_buf words = {0};

    if (sp_question_offers_host(q))
        return true;
    return sp_question_offers_amendment(q) && sp_words_add_quoted(&words, q->amendment) &&
           words.len <= FIELD_MAX;
}

static bool add_paths(const struct page *out, const struct sp_grant *g)
{
    static const char *const labels[] = {
        [SP_ACCESS_DENY] = "  not", [SP_ACCESS_READ] = "+ read", [SP_ACCESS_WRITE] = "+ write"};
    bool ok = true;

    for (size_t i = 0; ok && i < g->extra.count; i++) {
        const struct sp_entry *one = &g->extra.entries[i];

        ok = add_line(out, labels[one->access], sp_question_place(one));
    }
    return ok && (!g->extra.has_network || add_line(out, "+ network", SP_STR("all of it")));
}

static bool add_effect(struct sp_buf *out, const struct sp_approval_question *q)
{
    if (q->kind == SP_QUESTION_NETWORK)
        return sp_buf_printf(out, "a connection to ") &&
               sp_buf_add_str(out, q->shown_host.n != 0 ? q->shown_host : q->host);
    if (q->kind == SP_QUESTION_PERMISSIONS)
        return sp_buf_printf(out, "what is asked, from now on");
    if (q->profile == NULL || q->is_free)
        return sp_buf_printf(out, "everything: no sandbox");
    return (q->profile_name != NULL
                ? sp_buf_printf(out, "what the sandbox %s allows", q->profile_name)
                : sp_buf_printf(out, "what its sandbox allows")) &&
           (!sp_question_leaves_sandbox(q) ||
            sp_buf_printf(out, ", and to write outside of what the sandbox allows"));
}

/* The directories that a patch opens, with the label of an additional permission. */
static bool add_opened(const struct page *out, const struct sp_approval_question *q)
{
    bool ok = true;

    for (uint32_t i = 0; ok && sp_question_leaves_sandbox(q) && i < q->opened_count; i++)
        ok = add_line(out, "+ write", sp_str_of(q->opened[i]));
    return ok;
}

static bool add_allowed(const struct page *out, const struct sp_approval_question *q)
{
    auto_buf struct sp_buf text = {0};

    if (q->kind == SP_QUESTION_NETWORK)
        return true; /* the host line says it */
    if (q->profile == NULL || q->is_free)
        return sp_buf_printf(out->out, "  %-12s ", "allowed:") &&
               add_strong(out, "everything: no sandbox") && sp_buf_add(out->out, "\n", 1) &&
               (q->additional == NULL || add_paths(out, q->additional));
    return add_effect(&text, q) && add_line(out, "allowed:", sp_buf_str(&text)) &&
           add_opened(out, q) && (q->additional == NULL || add_paths(out, q->additional));
}

static const char *rule_effect(const struct sp_approval_question *q)
{
    if (sp_question_offers_host(q))
        return "this host is reached unasked";
    return sp_judge_may_run_free(q->profile)
               ? "this, and all that begins with it, runs unasked and " SP_FREE_WARNING
               : "this, and all that begins with it, runs unasked";
}

/* The rule that is offered, and what keeping it does. A rule that is the whole command is not
 * printed a second time. */
static bool add_rule(const struct page *out, const struct sp_approval_question *q)
{
    auto_buf struct sp_buf words = {0};

    if (sp_question_offers_host(q))
        return sp_buf_add_str(&words, SP_STR("allow ")) && sp_buf_add_str(&words, q->host) &&
               add_line(out, "rule:", sp_buf_str(&words));
    if (!sp_question_shows_rule(q))
        return true;
    return sp_words_add_quoted(&words, q->amendment) &&
           add_line(out, "rule:",
                    sp_str_eq(sp_buf_str(&words), q->command) ? SP_STR("the command above")
                                                              : sp_buf_str(&words)) &&
           sp_buf_printf(out->out, "  %-12s what begins with it runs unasked", "if kept:") &&
           (!sp_judge_may_run_free(q->profile) ||
            (sp_buf_printf(out->out, " and ") && add_strong(out, SP_FREE_WARNING))) &&
           sp_buf_add(out->out, "\n", 1);
}

/* The reason without the command, which the question shows anyway. */
static bool add_reason(const struct page *out, const struct sp_approval_question *q)
{
    auto_buf struct sp_buf command = {0};
    auto_buf struct sp_buf shown = {0};
    struct sp_str rest = q->reason;

    if (!sp_buf_add(&command, "`", 1) || !sp_words_add_quoted(&command, q->argv) ||
        !sp_buf_add(&command, "` ", 2))
        return false;
    if (!sp_str_skip_prefix(&rest, sp_buf_str(&command)))
        return add_line(out, "reason:", q->reason);
    return sp_buf_add_str(&shown, SP_STR("it ")) && sp_buf_add_str(&shown, rest) &&
           add_line(out, "reason:", sp_buf_str(&shown));
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
        return add_line(out, "host:", q->shown_host.n != 0 ? q->shown_host : q->host) &&
               add_line(out, "command:", q->asking_command);
    case SP_QUESTION_RUN:
    case SP_QUESTION_ESCALATE:
    case SP_QUESTION_ADDITIONAL:
    case SP_QUESTION_RETRY:
        break;
    }
    return add_line(out, "command:", q->command);
}

static const char *headline_of(const struct sp_approval_question *q)
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

    if (sp_question_leaves_sandbox(q))
        return "may these files be changed, outside of what the sandbox allows?";
    return q->kind == SP_QUESTION_RETRY && q->is_guess
               ? "this says that its sandbox got in the way. Once more, without it?"
               : headlines[q->kind];
}

/* Appends the question to *out, and to *rest the parts that were left out. */
bool sp_question_add_text(struct sp_buf *out, const struct sp_approval_question *q,
                          struct sp_buf *rest, bool is_bold)
{
    const struct page page = {out, rest, is_bold};

    return sp_buf_printf(out, "\nsallyport: ") && add_strong(&page, headline_of(q)) &&
           sp_buf_add(out, "\n", 1) && add_subject(&page, q) && add_line(&page, "in:", q->cwd) &&
           add_line(&page, "environment:", q->environment) && add_reason(&page, q) &&
           (q->kind == SP_QUESTION_PERMISSIONS || (add_allowed(&page, q) && add_rule(&page, q)));
}

/* ---- as members of a JSON object, for a page ---- */

static bool add_decisions(struct sp_buf *b, const struct sp_approval_question *q)
{
    bool ok = sp_buf_printf(b, ",\"decisions\":[\"approved\",\"approved_for_session\",");

    if (sp_question_shows_rule(q) && sp_question_offers_host(q))
        ok = ok &&
             sp_buf_printf(b, "{\"network_policy_amendment\":{\"network_policy_amendment\":"
                              "{\"host\":") &&
             sp_json_add_str(b, q->host) && sp_buf_printf(b, ",\"action\":\"allow\"}}},");
    else if (sp_question_shows_rule(q))
        ok = ok &&
             sp_buf_printf(b, "{\"approved_execpolicy_amendment\":{"
                              "\"proposed_execpolicy_amendment\":") &&
             sp_words_add_json(b, q->amendment) && sp_buf_printf(b, "}},");
    return ok && sp_buf_printf(b, "\"denied\",\"abort\"]");
}

/* The places that a command under the policy may change. */
struct places {
    struct sp_buf *out;
    unsigned count;
};

static bool add_place(struct places *p, const char *path)
{
    if (path == NULL || p->count == WRITABLE_SHOWN)
        return true;
    return sp_buf_printf(p->out, "%s", p->count++ == 0 ? "" : ",") &&
           sp_json_add_str(p->out, sp_str_of(path));
}

static bool add_workspace(struct places *p, const struct sp_policy *policy, const char *below)
{
    bool ok = policy->root_count != 0 || add_place(p, below != NULL ? below : policy->cwd);

    for (size_t i = 0; ok && i < policy->root_count; i++) {
        auto_free char *path = NULL;

        if (below != NULL && asprintf(&path, "%s/%s", policy->roots[i], below) < 0)
            return false;
        ok = add_place(p, path != NULL ? path : policy->roots[i]);
    }
    return ok;
}

static bool add_writable(struct places *p, const struct sp_policy *policy,
                         const struct sp_profile *profile)
{
    bool ok = true;

    for (size_t i = 0; ok && i < profile->count; i++) {
        const struct sp_entry *one = &profile->entries[i];

        if (one->access != SP_ACCESS_WRITE)
            continue;
        if (one->place == SP_PLACE_PROJECT && policy != NULL)
            ok = add_workspace(p, policy, one->text);
        else if (one->place == SP_PLACE_TMPDIR && policy != NULL)
            ok = add_place(p, policy->tmpdir);
        else
            ok = add_place(p, one->place == SP_PLACE_ROOT        ? "/"
                              : one->place == SP_PLACE_SLASH_TMP ? "/tmp"
                                                                 : one->text);
    }
    return ok;
}

/* The opened directories, as far as `places` has room. */
static bool add_opened_places(struct places *p, const struct sp_approval_question *q)
{
    bool ok = true;

    for (uint32_t i = 0; ok && sp_question_leaves_sandbox(q) && i < q->opened_count; i++)
        ok = add_place(p, q->opened[i]);
    return ok;
}

static bool add_effect_json(struct sp_buf *b, const struct sp_approval_question *q)
{
    const bool is_free = sp_question_is_free(q);
    const struct sp_profile *profile = q->profile == NULL ? NULL : &q->profile->profile;
    const struct sp_profile *extra = q->additional == NULL ? NULL : &q->additional->extra;
    const bool is_open =
        is_free ||
        (profile != NULL && (profile->kind != SP_PROFILE_MANAGED || profile->is_unrestricted));
    const char *network = "none";
    struct places places = {.out = b};
    struct places outside = {.out = b};
    auto_buf struct sp_buf text = {0};
    bool ok = sp_buf_printf(b, ",\"effect\":{\"sandbox\":");

    if (is_free || (profile != NULL && profile->has_network) ||
        (extra != NULL && extra->has_network))
        network = "host";
    else if (q->kind == SP_QUESTION_NETWORK ||
             (profile != NULL && sp_profile_managed(profile) != NULL))
        network = "managed";
    ok = ok &&
         (is_free ? sp_buf_printf(b, "null")
                  : sp_json_add_str(
                        b, sp_str_of(q->profile_name != NULL ? q->profile_name : "custom"))) &&
         sp_buf_printf(b, ",\"network\":\"%s\",\"writable\":[", network);
    if (is_open)
        ok = ok && add_place(&places, "/");
    else
        ok = ok && add_opened_places(&places, q) &&
             (profile == NULL || add_writable(&places, q->profile, profile)) &&
             (extra == NULL || add_writable(&places, q->profile, extra));
    ok = ok && sp_buf_add(b, "]", 1);
    if (sp_question_leaves_sandbox(q))
        ok = ok && sp_buf_printf(b, ",\"outside\":[") && add_opened_places(&outside, q) &&
             sp_buf_add(b, "]", 1);
    return ok && add_effect(&text, q) && sp_json_add_member(b, "text", sp_buf_str(&text)) &&
           sp_buf_add(b, "}", 1);
}

/* The rule that is kept with an answer, as it will be written. */
static bool add_rule_json(struct sp_buf *b, const struct sp_approval_question *q,
                          const char *user_dir)
{
    const bool is_host = sp_question_offers_host(q);
    auto_buf struct sp_buf line = {0};
    auto_buf struct sp_buf file = {0};

    if (!sp_question_shows_rule(q) ||
        (is_host ? sp_rules_add_network_line(&line, q->host, sp_str_of(q->protocol), true, NULL)
                 : sp_rules_add_prefix_line(&line, q->amendment, NULL)) < 0)
        return sp_buf_printf(b, ",\"rule\":null");
    return sp_buf_printf(b, ",\"rule\":{\"words\":") &&
           sp_words_add_json(b, is_host ? (struct sp_words){&q->host, 1} : q->amendment) &&
           sp_json_add_member(b, "text", sp_buf_str(&line)) &&
           (user_dir == NULL ? sp_buf_printf(b, ",\"file\":null")
                             : sp_buf_printf(&file, "%s/rules/default.rules", user_dir) &&
                                   sp_json_add_member(b, "file", sp_buf_str(&file))) &&
           sp_json_add_member(b, "effect", sp_str_of(rule_effect(q))) && sp_buf_add(b, "}", 1);
}

bool sp_question_add_card(struct sp_buf *b, const struct sp_approval_question *q,
                          const char *user_dir)
{
    return sp_json_add_member(b, "headline", sp_str_of(headline_of(q))) && add_effect_json(b, q) &&
           add_rule_json(b, q, user_dir) && add_decisions(b, q);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elicit: a question as a form with one field, and back.
 *
 * Some hosts show only three short lines of the message, so the first three say what a yes allows,
 * the command, and the reason. The labels of the choices repeat how long a yes lasts and that there
 * is no sandbox.
 *
 * Text from commands, paths and models is escaped, and each part has its own limit, so that the
 * message stays below 8 KiB and no part can push another one out. If a part of the command, the
 * files or the paths had to be cut, the message says how much, and answers that last, or that run
 * without a sandbox, are not offered.
 */
#include "mcp/elicit.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/auto.h"

/* Limits in bytes, after escaping. */
#define FIRST_MAX       160 /* the command in its short line */
#define COMMAND_MAX     3000
#define CWD_MAX         600
#define ENVIRONMENT_MAX 200
#define REASON_MAX      400
#define PROFILE_MAX     40
#define PATH_BYTES_MAX  300
#define PLACES_MAX      1200 /* all paths of a permission together */
#define FILES_MAX       2400 /* all files of a patch together */
#define DIFF_MAX        2400
#define RULE_MAX        1000 /* a longer rule is not offered */

#define DIFF_READ_MAX 65536 /* bytes of diffs produced before cutting */

#define FREE "WITHOUT A SANDBOX"

/* A message under construction. */
struct message {
    struct sp_buf *out;
    bool is_cut; /* a part that the answer covers is not shown completely */
};

/* ---- untrusted text ---- */

/* The first n bytes at most, cut between characters. */
static struct sp_str beginning_of(struct sp_str text, size_t n)
{
    if (n >= text.n)
        return text;
    while (n > 0 && ((unsigned char)text.p[n] & 0xc0) == 0x80)
        n--;
    return (struct sp_str){text.p, n};
}

/* Appends escaped text in at most max bytes, with a line that counts what was cut. Escaping makes
 * text longer, so less is kept in each round until it fits. */
static bool add_seen(struct message *m, struct sp_str text, size_t max, bool keeps_lines)
{
    const size_t mark = m->out->len;
    size_t keep = text.n < max ? text.n : max;

    for (;; keep = keep * 3 / 4) {
        const struct sp_str middle = sp_question_middle(text, keep);

        if (!sp_question_add_ends(m->out, text, middle, keeps_lines))
            return false;
        if (m->out->len - mark <= max || keep < 16) {
            m->is_cut = m->is_cut || middle.n != 0;
            return true;
        }
        m->out->len = mark;
    }
}

static bool add_line(struct message *m, const char *label, struct sp_str text, size_t max)
{
    return text.n == 0 || (sp_buf_printf(m->out, "\n%s: ", label) && add_seen(m, text, max, false));
}

/* The same for text that the answer does not cover: simply cut at its limit. */
static bool add_note(struct message *m, const char *label, struct sp_str text, size_t max)
{
    auto_buf struct sp_buf whole = {0};

    if (text.n == 0)
        return true;
    if (!sp_question_add_whole(&whole, beginning_of(text, max), false) ||
        !sp_buf_printf(m->out, "\n%s: ", label) ||
        !sp_buf_add_str(m->out, beginning_of(sp_buf_str(&whole), max)))
        return false;
    return (text.n <= max && whole.len <= max) || sp_buf_printf(m->out, " [...]");
}

/* ---- the rule ---- */

static bool add_rule_words(struct sp_buf *out, const struct sp_approval_question *q)
{
    auto_buf struct sp_buf words = {0};

    if (sp_question_offers_host(q))
        return sp_question_add_visible(out, q->host, false);
    return sp_words_add_quoted(&words, q->amendment) &&
           sp_question_add_visible(out, sp_buf_str(&words), false);
}

static bool offers_rule(const struct sp_approval_question *q)
{
    auto_buf struct sp_buf words = {0};

    if (!sp_question_offers_host(q) && !sp_question_offers_amendment(q))
        return false;
    return add_rule_words(&words, q) && words.len <= RULE_MAX;
}

/* ---- the message ---- */

static bool add_sandbox(struct message *m, const struct sp_approval_question *q)
{
    auto_buf struct sp_buf name = {0};

    if (q->profile_name == NULL)
        return sp_buf_printf(m->out, "its sandbox");
    return sp_question_add_whole(&name, sp_str_of(q->profile_name), false) &&
           sp_buf_printf(m->out, "the sandbox ") &&
           sp_buf_add_str(m->out, beginning_of(sp_buf_str(&name), PROFILE_MAX));
}

/* The first line: what a yes allows. */
static bool add_headline(struct message *m, const struct sp_approval_question *q)
{
    switch (q->kind) {
    case SP_QUESTION_PERMISSIONS:
        return sp_buf_printf(m->out, "Let commands do this from now on?");
    case SP_QUESTION_NETWORK:
        return sp_buf_printf(m->out, "Let a command reach this host?");
    case SP_QUESTION_PATCH:
        if (sp_question_leaves_sandbox(q))
            return sp_buf_printf(m->out, "Change these files outside of what ") &&
                   add_sandbox(m, q) && sp_buf_printf(m->out, " allows?");
        return sp_buf_printf(m->out, "Change these files%s?",
                             sp_question_is_free(q) ? ", " FREE : "");
    case SP_QUESTION_RETRY:
        if (sp_question_is_free(q))
            return sp_buf_printf(m->out, "%s Run it again " FREE "?",
                                 q->is_guess ? "It says that the sandbox denied it something."
                                             : "The sandbox denied it something.");
        break;
    case SP_QUESTION_ADDITIONAL:
        return sp_buf_printf(m->out, "Run this with more than ") && add_sandbox(m, q) &&
               sp_buf_printf(m->out, " allows?");
    case SP_QUESTION_ESCALATE:
    case SP_QUESTION_RUN:
        break;
    }
    if (sp_question_is_free(q))
        return sp_buf_printf(m->out, "Run this " FREE "?");
    return sp_buf_printf(m->out, "Run this in ") && add_sandbox(m, q) && sp_buf_printf(m->out, "?");
}

/* The additional permissions. The network comes first, so that it is never cut. */
static bool add_places(struct message *m, const struct sp_grant *g)
{
    static const char *const labels[] = {[SP_ACCESS_DENY] = "not allowed",
                                         [SP_ACCESS_READ] = "also allowed to read",
                                         [SP_ACCESS_WRITE] = "also allowed to write"};
    const size_t mark = m->out->len;
    size_t i = 0;
    bool ok = !g->extra.has_network || sp_buf_printf(m->out, "\nalso allowed: all of the network");

    for (; ok && i < g->extra.count && m->out->len - mark < PLACES_MAX; i++) {
        const struct sp_entry *entry = &g->extra.entries[i];

        ok = add_line(m, labels[entry->access], sp_question_place(entry), PATH_BYTES_MAX);
    }
    if (!ok || i == g->extra.count)
        return ok;
    m->is_cut = true;
    return sp_buf_printf(m->out, "\nNOT SHOWN: %zu more places", g->extra.count - i);
}

/* The directories that a yes to a patch opens. */
static bool add_opened(struct message *m, const struct sp_approval_question *q)
{
    const size_t mark = m->out->len;
    uint32_t i = 0;
    bool ok = true;

    if (!sp_question_leaves_sandbox(q))
        return true;
    for (; ok && i < q->opened_count && m->out->len - mark < PLACES_MAX - PATH_BYTES_MAX; i++)
        ok = add_line(m, "also allowed to write", sp_str_of(q->opened[i]), PATH_BYTES_MAX);
    if (!ok || i == q->opened_count)
        return ok;
    m->is_cut = true;
    return sp_buf_printf(m->out, "\nNOT SHOWN: %u more places", q->opened_count - i);
}

/* All file names before the diffs, which may be cut. */
static bool add_changes(struct message *m, const struct sp_patch_changes *changes)
{
    static const char *const labels[] = {
        [SP_PATCH_ADD] = "add", [SP_PATCH_DELETE] = "delete", [SP_PATCH_UPDATE] = "update"};
    const size_t mark = m->out->len;
    uint32_t i = 0;
    bool ok = true;

    if (changes == NULL)
        return true;
    for (; ok && i < changes->count && m->out->len - mark < FILES_MAX - 2 * PATH_BYTES_MAX; i++) {
        const struct sp_patch_change *c = &changes->items[i];

        ok = add_line(m, labels[c->kind], sp_str_of(c->full_path), PATH_BYTES_MAX) &&
             (c->full_target == NULL ||
              add_line(m, "  and move it to", sp_str_of(c->full_target), PATH_BYTES_MAX));
    }
    if (ok && i < changes->count) {
        m->is_cut = true;
        ok = sp_buf_printf(m->out, "\nNOT SHOWN: %u more files", changes->count - i);
    }
    if (!ok)
        return false;

    auto_buf struct sp_buf diffs = {0};

    for (i = 0; ok && i < changes->count && diffs.len < DIFF_READ_MAX; i++)
        ok = sp_patch_add_diff(&diffs, &changes->items[i]);
    if (!ok || diffs.len == 0)
        return ok;
    if (!sp_buf_add(m->out, "\n", 1) || !add_seen(m, sp_buf_str(&diffs), DIFF_MAX, true))
        return false;
    if (i == changes->count)
        return true;
    m->is_cut = true;
    return sp_buf_printf(m->out, "\nNOT SHOWN: what changes in %u more files", changes->count - i);
}

/* The command in one short line; a longer one is repeated in full further down (is_whole). */
static bool add_command(struct message *m, struct sp_str command, bool is_whole)
{
    auto_buf struct sp_buf whole = {0};

    if (!sp_question_add_whole(&whole, command, false))
        return false;
    if (is_whole)
        return whole.len <= FIRST_MAX || add_line(m, "whole command", command, COMMAND_MAX);
    if (whole.len <= FIRST_MAX)
        return add_line(m, "command", command, FIRST_MAX);
    return sp_buf_printf(m->out, "\ncommand: ") &&
           sp_buf_add_str(m->out, beginning_of(sp_buf_str(&whole), FIRST_MAX - 20)) &&
           sp_buf_printf(m->out, " [continued below]");
}

/* The rule that can be accepted, and what it allows. */
static bool add_rule(struct message *m, const struct sp_approval_question *q)
{
    if (!offers_rule(q) || m->is_cut)
        return true;
    if (sp_question_offers_host(q))
        return sp_buf_printf(m->out, "\nrule: allow ") && add_rule_words(m->out, q);
    return sp_buf_printf(m->out, "\nrule: ") && add_rule_words(m->out, q) &&
           sp_buf_printf(m->out,
                         "\nwith the rule: this, and all that begins with it, runs unasked%s",
                         sp_judge_may_run_free(q->profile) ? " and " FREE : "");
}

static bool add_message(struct message *m, const struct sp_approval_question *q)
{
    const bool is_network = q->kind == SP_QUESTION_NETWORK;
    const bool is_patch = q->kind == SP_QUESTION_PATCH;
    const bool has_command = !is_network && !is_patch && q->kind != SP_QUESTION_PERMISSIONS;

    /* The first three lines: what a yes allows, the command, the reason. */
    return add_headline(m, q) &&
           (!is_network ||
            add_line(m, "host", q->shown_host.n != 0 ? q->shown_host : q->host, PATH_BYTES_MAX)) &&
           (!has_command || add_command(m, q->command, false)) &&
           add_note(m, "reason", q->reason, REASON_MAX) &&
           (!is_patch || (add_opened(m, q) && add_changes(m, q->changes))) &&
           (!is_network || add_line(m, "command", q->asking_command, COMMAND_MAX)) &&
           (q->additional == NULL || add_places(m, q->additional)) &&
           add_line(m, "in", q->cwd, CWD_MAX) &&
           add_note(m, "environment", q->environment, ENVIRONMENT_MAX) &&
           (!has_command || add_command(m, q->command, true)) && add_rule(m, q) &&
           (!m->is_cut || sp_buf_printf(m->out, "\nNot all is shown, so it can %s",
                                        sp_question_is_free(q)
                                            ? "not be allowed " FREE
                                              " here: ask for less at once, or put it into a file"
                                            : "be allowed for this once alone"));
}

/* ---- what may be answered ---- */

enum choice { ONCE, SESSION, RULE, DENY, CHOICE_MAX };

static const char *const names[CHOICE_MAX] = {
    [ONCE] = "once", [SESSION] = "session", [RULE] = "rule", [DENY] = "deny"};

/* The choices that are offered. */
struct offered {
    bool is_there[CHOICE_MAX];
};

/* Without a turn id, permissions cannot be granted for the turn (ONCE). */
static struct offered find_offered(const struct sp_approval_question *q, bool is_cut)
{
    const bool has_turn = q->kind != SP_QUESTION_PERMISSIONS || q->turn_id.n != 0;

    return (struct offered){.is_there = {
                                [ONCE] = has_turn && !(is_cut && sp_question_is_free(q)),
                                [SESSION] = !is_cut,
                                [RULE] = !is_cut && offers_rule(q),
                                [DENY] = true,
                            }};
}

static bool add_title(struct sp_buf *out, const struct sp_approval_question *q, enum choice c)
{
    const char *how = sp_question_is_free(q) ? ", " FREE : "";
    auto_buf struct sp_buf text = {0};
    bool ok = true;

    switch (c) {
    case ONCE:
        ok = sp_buf_printf(
            &text, q->kind == SP_QUESTION_PERMISSIONS ? "Allow for this turn%s" : "Allow once%s",
            how);
        break;
    case SESSION:
        ok = sp_buf_printf(&text, "Allow for this session%s", how);
        break;
    case RULE:
        ok = sp_buf_printf(&text, "Always, unasked%s: ",
                           !sp_question_offers_host(q) && sp_judge_may_run_free(q->profile)
                               ? ", " FREE
                               : "") &&
             add_rule_words(&text, q);
        break;
    case DENY:
    case CHOICE_MAX:
        ok = sp_buf_printf(&text, "Deny");
        break;
    }
    return ok && sp_json_add_str(out, sp_buf_str(&text));
}

/* ---- the form ---- */

/* Before 2025-11-25 (without mode), titles are a separate list. DENY is always offered, and last.
 */
static bool add_choices(struct sp_buf *out, const struct sp_approval_question *q,
                        const struct offered *o, bool with_mode)
{
    bool ok = sp_buf_printf(out, with_mode ? "\"oneOf\":[" : "\"enum\":[");

    for (enum choice c = ONCE; ok && c < CHOICE_MAX; c++)
        if (o->is_there[c])
            ok = (with_mode ? sp_buf_printf(out, "{\"const\":\"%s\",\"title\":", names[c]) &&
                                  add_title(out, q, c) && sp_buf_add(out, "}", 1)
                            : sp_buf_printf(out, "\"%s\"", names[c])) &&
                 (c == DENY || sp_buf_add(out, ",", 1));
    ok = ok && (with_mode || sp_buf_printf(out, "],\"enumNames\":["));
    for (enum choice c = ONCE; ok && !with_mode && c < CHOICE_MAX; c++)
        if (o->is_there[c])
            ok = add_title(out, q, c) && (c == DENY || sp_buf_add(out, ",", 1));
    return ok && sp_buf_add(out, "]", 1);
}

bool sp_mcp_elicit_add(struct sp_buf *out, const struct sp_approval_question *q, bool with_mode)
{
    const size_t mark = out->len;
    auto_buf struct sp_buf message = {0};
    struct message m = {.out = &message};
    const bool is_written = add_message(&m, q);
    const struct offered o = find_offered(q, m.is_cut);
    const bool ok =
        is_written && sp_buf_printf(out, "{%s", with_mode ? "\"mode\":\"form\"," : "") &&
        sp_buf_printf(out, "\"message\":") && sp_json_add_str(out, sp_buf_str(&message)) &&
        sp_buf_printf(out,
                      ",\"requestedSchema\":{\"type\":\"object\",\"properties\":{\"decision\":{"
                      "\"type\":\"string\",\"title\":\"Decision\",") &&
        add_choices(out, q, &o, with_mode) &&
        sp_buf_printf(out, "}},\"required\":[\"decision\"]}}");

    if (!ok)
        out->len = mark;
    return ok;
}

bool sp_mcp_elicit_add_input(struct sp_buf *out, const struct sp_approval_question *q,
                             uint64_t number)
{
    return sp_buf_printf(out,
                         "{\"approve_%" PRIu64 "\":{\"method\":\"elicitation/create\","
                         "\"params\":",
                         number) &&
           sp_mcp_elicit_add(out, q, true) && sp_buf_add_str(out, SP_STR("}}"));
}

/* ---- the answer ---- */

uint32_t sp_mcp_elicit_find_input(struct sp_json *j, uint32_t responses, uint64_t number)
{
    char key[32];

    if (responses == SP_JSON_NONE)
        return SP_JSON_NONE;
    (void)snprintf(key, sizeof key, "approve_%" PRIu64, number);
    return sp_json_get(j, responses, key);
}

static struct sp_str text_of(struct sp_json *j, uint32_t object, const char *name)
{
    uint32_t token = SP_JSON_NONE;

    if (object != SP_JSON_NONE && sp_json_type(j, object) == SP_JSON_OBJECT)
        token = sp_json_get(j, object, name);
    if (token == SP_JSON_NONE || sp_json_type(j, token) != SP_JSON_STRING)
        return SP_STR("");
    return sp_json_str(j, token);
}

bool sp_mcp_elicit_read(struct sp_json *j, uint32_t answer, const struct sp_approval_question *q,
                        bool is_too_quick, struct sp_decision *ret)
{
    const struct sp_str action = text_of(j, answer, "action");
    const bool is_decline = sp_str_eq(action, SP_STR("decline"));
    auto_buf struct sp_buf message = {0};
    struct message m = {.out = &message};
    enum choice c = ONCE;

    *ret = (struct sp_decision){.kind = SP_DECISION_DENIED, .by = SP_DECIDER_USER};
    if (is_decline && !is_too_quick)
        return true;
    if (is_decline || sp_str_eq(action, SP_STR("cancel"))) {
        ret->kind = SP_DECISION_FAILED;
        ret->rejection = is_decline ? SP_STR("it declined faster than a person reads")
                                    : SP_STR("it cancelled the question");
        return true;
    }
    if (!sp_str_eq(action, SP_STR("accept")))
        return false;
    const struct sp_str word = text_of(j, sp_json_get(j, answer, "content"), "decision");
    if (!add_message(&m, q))
        m.is_cut = true; /* out of memory: assume the worst */
    const struct offered o = find_offered(q, m.is_cut);
    while (c < CHOICE_MAX && !sp_str_eq(word, sp_str_of(names[c])))
        c++;
    if (c == CHOICE_MAX || !o.is_there[c])
        return false;
    if (c == ONCE)
        ret->kind = SP_DECISION_APPROVED;
    else if (c == SESSION)
        ret->kind = SP_DECISION_APPROVED_FOR_SESSION;
    else if (c == RULE && sp_question_offers_host(q)) {
        ret->kind = SP_DECISION_NETWORK_AMENDMENT;
        ret->host = q->host;
        ret->allows_host = true;
    } else if (c == RULE) {
        ret->kind = SP_DECISION_AMENDMENT;
        ret->amendment = q->amendment;
    }
    return true;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A question as a form with one field, and back. The message says what a yes would mean; whatever
 * in it comes from a command, a path or a model is escaped and has a bound of its own, so that the
 * whole stays below 8 KiB and no part can push another out.
 */
#include "mcp/elicit.h"

#include "base/auto.h"

/* Bytes of the message, once they are escaped. */
#define COMMAND_MAX     3000
#define CWD_MAX         600
#define ENVIRONMENT_MAX 200
#define REASON_MAX      1000
#define PROFILE_MAX     200
#define PATH_BYTES_MAX  300
#define PLACES_MAX      1200 /* all paths of a permission together */
#define FILES_MAX       2400 /* all files of a patch together */
#define DIFF_MAX        2400
#define RULE_MAX        1000 /* a rule is shown as a whole, or not offered */

#define DIFF_READ_MAX 65536 /* so much is made of it before it is cut */

static struct sp_str view(const struct sp_buf *b)
{
    return (struct sp_str){b->len == 0 ? "" : b->data, b->len};
}

/* ---- text of others ---- */

static bool is_inside_character(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

/* The first and the last bytes of it, `keep` in all, and how many are missing between them. */
static bool add_ends(struct sp_buf *out, struct sp_str text, size_t keep, bool keeps_lines)
{
    size_t head = keep / 2;
    size_t tail = text.n - keep / 2;

    if (text.n <= keep)
        return sp_question_add_visible(out, text, keeps_lines);
    while (head > 0 && is_inside_character(text.p[head]))
        head--;
    while (tail < text.n && is_inside_character(text.p[tail]))
        tail++;
    return sp_question_add_visible(out, (struct sp_str){text.p, head}, keeps_lines) &&
           sp_buf_printf(out, " [... %zu bytes left out ...] ", tail - head) &&
           sp_question_add_visible(out, (struct sp_str){text.p + tail, text.n - tail}, keeps_lines);
}

/* Escaped, in at most so many bytes. Escapes are longer than what they stand for: less is kept
 * until it fits. */
static bool add_seen(struct sp_buf *out, struct sp_str text, size_t max, bool keeps_lines)
{
    const size_t mark = out->len;
    size_t keep = text.n < max ? text.n : max;

    for (;; keep = keep * 3 / 4) {
        if (!add_ends(out, text, keep, keeps_lines))
            return false;
        if (out->len - mark <= max || keep < 16)
            return true;
        out->len = mark;
    }
}

static bool add_line(struct sp_buf *out, const char *label, struct sp_str text, size_t max)
{
    return text.n == 0 || (sp_buf_printf(out, "\n%s: ", label) && add_seen(out, text, max, false));
}

/* ---- what may be answered ---- */

enum choice { ONCE, SESSION, RULE, DENY, CHOICE_MAX };

static const char *const names[CHOICE_MAX] = {
    [ONCE] = "once", [SESSION] = "session", [RULE] = "rule", [DENY] = "deny"};

static bool add_rule_words(struct sp_buf *out, const struct sp_question *q)
{
    auto_buf struct sp_buf words = {0};

    if (sp_question_offers_host(q))
        return sp_question_add_visible(out, q->host, false);
    return sp_words_add_quoted(&words, q->amendment) &&
           sp_question_add_visible(out, view(&words), false);
}

static bool offers_rule(const struct sp_question *q)
{
    auto_buf struct sp_buf words = {0};

    if (!sp_question_offers_host(q) && !sp_question_offers_amendment(q))
        return false;
    return add_rule_words(&words, q) && words.len <= RULE_MAX;
}

/* A permission for the turn is for no turn if there is none. */
static bool offers(const struct sp_question *q, enum choice c)
{
    if (c == RULE)
        return offers_rule(q);
    return c != ONCE || q->kind != SP_QUESTION_PERMISSIONS || q->turn_id.n != 0;
}

static bool add_title(struct sp_buf *out, const struct sp_question *q, enum choice c)
{
    auto_buf struct sp_buf text = {0};
    bool ok = true;

    switch (c) {
    case ONCE:
        ok = sp_buf_printf(&text, q->kind == SP_QUESTION_PERMISSIONS ? "Allow for this turn"
                                                                     : "Allow once");
        break;
    case SESSION:
        ok = sp_buf_printf(&text, "Allow for this session");
        break;
    case RULE:
        ok = sp_buf_printf(&text, "Always allow: ") && add_rule_words(&text, q);
        break;
    case DENY:
    case CHOICE_MAX:
        ok = sp_buf_printf(&text, "Deny");
        break;
    }
    return ok && sp_json_add_str(out, view(&text));
}

/* ---- the message ---- */

static const char *headline(const struct sp_question *q)
{
    switch (q->kind) {
    case SP_QUESTION_ESCALATE:
        return "May this command run without a sandbox?";
    case SP_QUESTION_ADDITIONAL:
        return "May this command do more than its sandbox allows?";
    case SP_QUESTION_RETRY:
        return q->is_guess ? "This command says that its sandbox got in the way. May it run once "
                             "more, without it?"
                           : "The sandbox got in the way of this command. May it run once more, "
                             "without it?";
    case SP_QUESTION_PATCH:
        return "May these files be changed?";
    case SP_QUESTION_PERMISSIONS:
        return "May commands do this from now on?";
    case SP_QUESTION_NETWORK:
        return "May a command reach this host?";
    case SP_QUESTION_RUN:
        break;
    }
    return "May this command run?";
}

static struct sp_str name_of(const struct sp_entry *entry)
{
    static const char *const places[] = {
        [SP_PLACE_ROOT] = "/ (everything)",   [SP_PLACE_MINIMAL] = "what programs need to start",
        [SP_PLACE_PROJECT] = "the workspace", [SP_PLACE_TMPDIR] = "$TMPDIR",
        [SP_PLACE_SLASH_TMP] = "/tmp",        [SP_PLACE_UNKNOWN] = "a place that is not known here",
    };

    return sp_str_of(entry->text != NULL ? entry->text : places[entry->place]);
}

/* What commands get besides. The network comes first: it is never what is left out. */
static bool add_places(struct sp_buf *out, const struct sp_grant *g)
{
    static const char *const labels[] = {[SP_ACCESS_DENY] = "not allowed",
                                         [SP_ACCESS_READ] = "also allowed to read",
                                         [SP_ACCESS_WRITE] = "also allowed to write"};
    const size_t mark = out->len;
    size_t i = 0;
    bool ok = !g->extra.has_network || sp_buf_printf(out, "\nalso allowed: all of the network");

    for (; ok && i < g->extra.count && out->len - mark < PLACES_MAX; i++) {
        const struct sp_entry *entry = &g->extra.entries[i];

        ok = add_line(out, labels[entry->access], name_of(entry), PATH_BYTES_MAX);
    }
    return ok && (i == g->extra.count ||
                  sp_buf_printf(out, "\nalso allowed: %zu more places that are not shown",
                                g->extra.count - i));
}

static bool add_file(struct sp_buf *out, const struct sp_patch_change *c)
{
    static const char *const labels[] = {
        [SP_PATCH_ADD] = "add", [SP_PATCH_DELETE] = "delete", [SP_PATCH_UPDATE] = "update"};

    return add_line(out, labels[c->kind], sp_str_of(c->full_path), PATH_BYTES_MAX) &&
           (c->full_target == NULL ||
            add_line(out, "  and move it to", sp_str_of(c->full_target), PATH_BYTES_MAX));
}

static bool add_diffs(struct sp_buf *out, const struct sp_patch_changes *changes)
{
    auto_buf struct sp_buf diffs = {0};
    bool ok = true;
    uint32_t i = 0;

    for (; ok && i < changes->count && diffs.len < DIFF_READ_MAX; i++)
        ok = sp_patch_add_diff(&diffs, &changes->items[i]);
    if (!ok || diffs.len == 0)
        return ok;
    return sp_buf_add(out, "\n", 1) && add_seen(out, view(&diffs), DIFF_MAX, true) &&
           (i == changes->count ||
            sp_buf_printf(out, "\n[... and what changes in %u more files]", changes->count - i));
}

/* Every file first: what is in them may be cut. */
static bool add_changes(struct sp_buf *out, const struct sp_patch_changes *changes)
{
    const size_t mark = out->len;
    uint32_t i = 0;
    bool ok = true;

    if (changes == NULL)
        return true;
    for (; ok && i < changes->count && out->len - mark < FILES_MAX - 2 * PATH_BYTES_MAX; i++)
        ok = add_file(out, &changes->items[i]);
    if (ok && i < changes->count)
        ok = sp_buf_printf(out, "\nand %u more files that are not shown", changes->count - i);
    return ok && add_diffs(out, changes);
}

static bool add_allowed(struct sp_buf *out, const struct sp_question *q)
{
    if (q->kind == SP_QUESTION_NETWORK || q->kind == SP_QUESTION_PERMISSIONS)
        return true;
    if (q->profile == NULL || q->is_free)
        return sp_buf_printf(out, "\nallowed then: everything, without a sandbox");
    if (q->profile_name == NULL)
        return sp_buf_printf(out, "\nallowed then: what its sandbox allows");
    return sp_buf_printf(out, "\nallowed then: what the sandbox ") &&
           add_seen(out, sp_str_of(q->profile_name), PROFILE_MAX, false) &&
           sp_buf_printf(out, " allows");
}

/* The rule, and what comes of it: it says more than this one question. */
static bool add_rule(struct sp_buf *out, const struct sp_question *q)
{
    if (!offers_rule(q))
        return true;
    if (sp_question_offers_host(q))
        return sp_buf_printf(out, "\nrule: allow ") && add_rule_words(out, q);
    return sp_buf_printf(out, "\nrule: ") && add_rule_words(out, q) &&
           sp_buf_printf(out, "\nwith the rule: this, and all that begins with it, runs unasked%s",
                         sp_judge_may_run_free(q->profile) ? " and WITHOUT A SANDBOX" : "");
}

static bool add_subject(struct sp_buf *out, const struct sp_question *q)
{
    switch (q->kind) {
    case SP_QUESTION_PATCH:
        return add_changes(out, q->changes);
    case SP_QUESTION_NETWORK:
        return add_line(out, "host", q->argv.count > 1 ? q->argv.items[1] : q->host,
                        PATH_BYTES_MAX) &&
               add_line(out, "command", q->asking_command, COMMAND_MAX);
    case SP_QUESTION_PERMISSIONS:
        return true;
    case SP_QUESTION_RUN:
    case SP_QUESTION_ESCALATE:
    case SP_QUESTION_ADDITIONAL:
    case SP_QUESTION_RETRY:
        break;
    }
    return add_line(out, "command", q->command, COMMAND_MAX);
}

static bool add_message(struct sp_buf *out, const struct sp_question *q)
{
    return sp_buf_printf(out, "%s", headline(q)) && add_subject(out, q) &&
           add_line(out, "in", q->cwd, CWD_MAX) &&
           add_line(out, "environment", q->environment, ENVIRONMENT_MAX) &&
           add_line(out, "reason", q->reason, REASON_MAX) && add_allowed(out, q) &&
           (q->additional == NULL || add_places(out, q->additional)) && add_rule(out, q);
}

/* ---- the form ---- */

/* What is offered, found out once: both lists of a form have the same. */
struct offered {
    bool is_there[CHOICE_MAX];
};

static struct offered find_offered(const struct sp_question *q)
{
    struct offered o;

    for (enum choice c = ONCE; c < CHOICE_MAX; c++)
        o.is_there[c] = offers(q, c);
    return o;
}

/* Before 2025-11-25 a choice had its titles beside it. DENY is always there, and the last. */
static bool add_choices_of_old(struct sp_buf *out, const struct sp_question *q)
{
    const struct offered o = find_offered(q);
    bool ok = sp_buf_printf(out, "\"enum\":[");

    for (enum choice c = ONCE; ok && c < CHOICE_MAX; c++)
        if (o.is_there[c])
            ok = sp_buf_printf(out, "\"%s\"%s", names[c], c == DENY ? "" : ",");
    ok = ok && sp_buf_printf(out, "],\"enumNames\":[");
    for (enum choice c = ONCE; ok && c < CHOICE_MAX; c++)
        if (o.is_there[c])
            ok = add_title(out, q, c) && (c == DENY || sp_buf_add(out, ",", 1));
    return ok && sp_buf_add(out, "]", 1);
}

static bool add_choices(struct sp_buf *out, const struct sp_question *q)
{
    const struct offered o = find_offered(q);
    bool ok = sp_buf_printf(out, "\"oneOf\":[");

    for (enum choice c = ONCE; ok && c < CHOICE_MAX; c++)
        if (o.is_there[c])
            ok = sp_buf_printf(out, "{\"const\":\"%s\",\"title\":", names[c]) &&
                 add_title(out, q, c) && sp_buf_printf(out, "}%s", c == DENY ? "" : ",");
    return ok && sp_buf_add(out, "]", 1);
}

bool sp_mcp_elicit_add(struct sp_buf *out, const struct sp_question *q, bool with_mode)
{
    const size_t mark = out->len;
    auto_buf struct sp_buf message = {0};
    const bool ok =
        add_message(&message, q) &&
        sp_buf_printf(out, "{%s", with_mode ? "\"mode\":\"form\"," : "") &&
        sp_buf_printf(out, "\"message\":") && sp_json_add_str(out, view(&message)) &&
        sp_buf_printf(out,
                      ",\"requestedSchema\":{\"type\":\"object\",\"properties\":{\"decision\":{"
                      "\"type\":\"string\",\"title\":\"Decision\",") &&
        (with_mode ? add_choices(out, q) : add_choices_of_old(out, q)) &&
        sp_buf_printf(out, "}},\"required\":[\"decision\"]}}");

    if (!ok)
        out->len = mark;
    return ok;
}

/* ---- the answer ---- */

static struct sp_str text_of(struct sp_json *j, uint32_t object, const char *name)
{
    uint32_t token = SP_JSON_NONE;

    if (object != SP_JSON_NONE && sp_json_type(j, object) == SP_JSON_OBJECT)
        token = sp_json_get(j, object, name);
    if (token == SP_JSON_NONE || sp_json_type(j, token) != SP_JSON_STRING)
        return SP_STR("");
    return sp_json_str(j, token);
}

static bool read_choice(struct sp_str word, const struct sp_question *q, enum choice *ret)
{
    for (enum choice c = ONCE; c < CHOICE_MAX; c++)
        if (sp_str_eq(word, sp_str_of(names[c]))) {
            *ret = c;
            return offers(q, c);
        }
    return false;
}

static struct sp_decision decision_of(enum choice c, const struct sp_question *q)
{
    switch (c) {
    case ONCE:
        return (struct sp_decision){.kind = SP_DECISION_APPROVED};
    case SESSION:
        return (struct sp_decision){.kind = SP_DECISION_APPROVED_FOR_SESSION};
    case RULE:
        if (sp_question_offers_host(q))
            return (struct sp_decision){
                .kind = SP_DECISION_NETWORK_AMENDMENT, .host = q->host, .allows_host = true};
        return (struct sp_decision){.kind = SP_DECISION_AMENDMENT, .amendment = q->amendment};
    case DENY:
    case CHOICE_MAX:
        break;
    }
    return (struct sp_decision){.kind = SP_DECISION_DENIED};
}

static struct sp_decision no_answer(struct sp_str why)
{
    return (struct sp_decision){.kind = SP_DECISION_FAILED, .rejection = why};
}

bool sp_mcp_elicit_read(struct sp_json *j, uint32_t answer, const struct sp_question *q,
                        bool is_too_quick, struct sp_decision *ret)
{
    const struct sp_str action = text_of(j, answer, "action");
    enum choice c = DENY;

    if (sp_str_eq(action, SP_STR("decline"))) {
        *ret = is_too_quick ? no_answer(SP_STR("it declined faster than a person reads"))
                            : (struct sp_decision){.kind = SP_DECISION_DENIED};
        return true;
    }
    if (sp_str_eq(action, SP_STR("cancel"))) {
        *ret = no_answer(SP_STR("it cancelled the question"));
        return true;
    }
    if (!sp_str_eq(action, SP_STR("accept")) ||
        !read_choice(text_of(j, sp_json_get(j, answer, "content"), "decision"), q, &c))
        return false;
    *ret = decision_of(c, q);
    return true;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * question: questions as JSON, answers in all the spellings of Codex and its clients, and texts
 * that are safe to show to a person.
 */
#include "approve/question.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/utf8.h"
#include "sandbox/policy_json.h"

/* ---- JSON ---- */

/* A member that is left out if it is empty. */
static bool add_given(struct sp_buf *out, const char *name, struct sp_str s)
{
    return s.n == 0 || sp_json_add_member(out, name, s);
}

bool sp_question_add_grant(struct sp_buf *out, const struct sp_grant *g)
{
    return sp_grant_write(out, g, NULL) == 0;
}

bool sp_question_offers_amendment(const struct sp_approval_question *q)
{
    return q->amendment.count != 0 && q->kind != SP_QUESTION_ADDITIONAL &&
           q->kind != SP_QUESTION_PATCH && q->kind != SP_QUESTION_PERMISSIONS &&
           q->kind != SP_QUESTION_NETWORK;
}

bool sp_question_offers_host(const struct sp_approval_question *q)
{
    return q->kind == SP_QUESTION_NETWORK && q->host.n != 0;
}

static bool add_host(struct sp_buf *out, struct sp_str host, const char *action)
{
    return sp_buf_add_str(out, SP_STR("{\"host\":")) && sp_json_add_str(out, host) &&
           sp_buf_printf(out, ",\"action\":\"%s\"}", action);
}

static bool add_segment(struct sp_buf *out, struct sp_str cmd, bool is_first)
{
    return (is_first || sp_buf_add(out, ",", 1)) &&
           sp_buf_add_str(out, SP_STR("{\"type\":\"unknown\",\"cmd\":")) &&
           sp_json_add_str(out, cmd) && sp_buf_add(out, "}", 1);
}

/* One entry for each simple command; a script that is not plain is one entry. */
static bool add_parsed(struct sp_buf *out, const struct sp_approval_question *q)
{
    const struct sp_segments *s = q->segments;
    bool ok = sp_json_add_key(out, "parsed_cmd") && sp_buf_add(out, "[", 1);

    if (s == NULL || s->is_opaque || s->count == 0)
        return ok && add_segment(out, q->command, true) && sp_buf_add(out, "]", 1);
    for (uint32_t i = 0; ok && i < s->count; i++) {
        auto_buf struct sp_buf words = {0};

        ok = sp_words_add_quoted(&words, s->items[i]) &&
             add_segment(out, sp_buf_str(&words), i == 0);
    }
    return ok && sp_buf_add(out, "]", 1);
}

static bool add_command(struct sp_buf *out, const struct sp_approval_question *q)
{
    bool ok = sp_json_add_key(out, "command") && sp_words_add_json(out, q->argv) &&
              sp_json_add_member(out, "cwd", q->cwd);

    if (ok && q->preface.count > 1) /* without its first word, which is `env` */
        ok = sp_json_add_key(out, "env") &&
             sp_words_add_json(out, (struct sp_words){q->preface.items + 1, q->preface.count - 1});
    ok = ok && add_given(out, "reason", q->reason);
    if (ok && sp_question_offers_host(q))
        ok = sp_json_add_key(out, "network_approval_context") &&
             sp_buf_add_str(out, SP_STR("{\"host\":")) && sp_json_add_str(out, q->host) &&
             sp_buf_printf(out, ",\"protocol\":\"%s\"}", q->protocol) &&
             sp_json_add_key(out, "proposed_network_policy_amendments") &&
             sp_buf_add(out, "[", 1) && add_host(out, q->host, "allow") &&
             sp_buf_add(out, ",", 1) && add_host(out, q->host, "deny") && sp_buf_add(out, "]", 1);
    if (ok && q->amendment.count != 0)
        ok = sp_json_add_key(out, "proposed_execpolicy_amendment") &&
             sp_words_add_json(out, q->amendment);
    if (ok && q->additional != NULL)
        ok = sp_json_add_key(out, "additional_permissions") &&
             sp_question_add_grant(out, q->additional);
    if (ok && q->is_guess)
        ok = sp_buf_add_str(out, SP_STR(",\"denial_is_guess\":true"));
    ok = ok && sp_buf_printf(out, ",\"without_sandbox\":%s", q->is_free ? "true" : "false") &&
         sp_json_add_key(out, "available_decisions") &&
         sp_buf_add_str(out, SP_STR("[\"approved\""));

    if (ok && sp_question_offers_amendment(q))
        ok = sp_buf_add_str(out, SP_STR(",{\"approved_execpolicy_amendment\":{"
                                        "\"proposed_execpolicy_amendment\":")) &&
             sp_words_add_json(out, q->amendment) && sp_buf_add_str(out, SP_STR("}}"));
    if (ok && q->kind == SP_QUESTION_NETWORK)
        ok = sp_buf_add_str(out, SP_STR(",\"approved_for_session\""));
    if (ok && sp_question_offers_host(q))
        ok = sp_buf_add_str(out, SP_STR(",{\"network_policy_amendment\":{"
                                        "\"network_policy_amendment\":")) &&
             add_host(out, q->host, "allow") && sp_buf_add_str(out, SP_STR("}}"));
    return ok && sp_buf_add_str(out, SP_STR(",\"abort\"]")) && add_parsed(out, q);
}

static bool add_change(struct sp_buf *out, const struct sp_patch_change *c)
{
    auto_buf struct sp_buf diff = {0};

    switch (c->kind) {
    case SP_PATCH_ADD:
        return sp_buf_add_str(out, SP_STR("{\"type\":\"add\",\"content\":")) &&
               sp_json_add_str(out, c->after) && sp_buf_add(out, "}", 1);
    case SP_PATCH_DELETE:
        return sp_buf_add_str(out, SP_STR("{\"type\":\"delete\",\"content\":")) &&
               sp_json_add_str(out, c->before) && sp_buf_add(out, "}", 1);
    case SP_PATCH_UPDATE:
        break;
    }
    return sp_patch_add_diff(&diff, c) &&
           sp_buf_add_str(out, SP_STR("{\"type\":\"update\",\"unified_diff\":")) &&
           sp_json_add_str(out, sp_buf_str(&diff)) && sp_json_add_key(out, "move_path") &&
           (c->full_target != NULL ? sp_json_add_str(out, sp_str_of(c->full_target))
                                   : sp_buf_add_str(out, SP_STR("null"))) &&
           sp_buf_add(out, "}", 1);
}

static bool add_patch(struct sp_buf *out, const struct sp_approval_question *q)
{
    bool ok = sp_json_add_key(out, "changes") && sp_buf_add(out, "{", 1);

    for (uint32_t i = 0; ok && q->changes != NULL && i < q->changes->count; i++) {
        const struct sp_patch_change *c = &q->changes->items[i];

        ok = (i == 0 || sp_buf_add(out, ",", 1)) && sp_json_add_str(out, sp_str_of(c->full_path)) &&
             sp_buf_add(out, ":", 1) && add_change(out, c);
    }
    return ok && sp_buf_add(out, "}", 1) && add_given(out, "reason", q->reason) &&
           add_given(out, "grant_root", q->grant_root);
}

static bool add_permissions(struct sp_buf *out, const struct sp_approval_question *q)
{
    static const struct sp_grant nothing;

    return add_given(out, "reason", q->reason) && sp_json_add_key(out, "permissions") &&
           sp_question_add_grant(out, q->additional != NULL ? q->additional : &nothing) &&
           add_given(out, "cwd", q->cwd);
}

bool sp_question_is_free(const struct sp_approval_question *q)
{
    return q->is_free || (q->profile == NULL && q->kind != SP_QUESTION_PERMISSIONS &&
                          q->kind != SP_QUESTION_NETWORK);
}

bool sp_question_leaves_sandbox(const struct sp_approval_question *q)
{
    return q->opened_count != 0 && !sp_question_is_free(q);
}

struct sp_str sp_question_place(const struct sp_entry *entry)
{
    static const char *const places[] = {
        [SP_PLACE_ROOT] = "/ (everything)",   [SP_PLACE_MINIMAL] = "what programs need to start",
        [SP_PLACE_PROJECT] = "the workspace", [SP_PLACE_TMPDIR] = "$TMPDIR",
        [SP_PLACE_SLASH_TMP] = "/tmp",        [SP_PLACE_UNKNOWN] = "a place that is not known here",
    };

    return sp_str_of(entry->text != NULL ? entry->text : places[entry->place]);
}

bool sp_question_add_json(struct sp_buf *out, const struct sp_approval_question *q)
{
    const size_t mark = out->len;
    const char *type = q->kind == SP_QUESTION_PATCH         ? "apply_patch_approval_request"
                       : q->kind == SP_QUESTION_PERMISSIONS ? "request_permissions"
                                                            : "exec_approval_request";
    const bool has_environment = q->kind != SP_QUESTION_PATCH;
    const bool ok = sp_buf_printf(out, "{\"type\":\"%s\"", type) &&
                    sp_json_add_member(out, "call_id", q->call_id) &&
                    add_given(out, "approval_id", q->approval_id) &&
                    add_given(out, "turn_id", q->turn_id) &&
                    (!has_environment || add_given(out, "environmentId", q->environment)) &&
                    sp_buf_printf(out, ",\"started_at_ms\":%" PRId64, q->at_ms) &&
                    (q->kind == SP_QUESTION_PATCH         ? add_patch(out, q)
                     : q->kind == SP_QUESTION_PERMISSIONS ? add_permissions(out, q)
                                                          : add_command(out, q)) &&
                    sp_buf_add(out, "}", 1);
    if (!ok)
        out->len = mark;
    return ok;
}

/* ---- answers ---- */

static const struct {
    const char *name;
    enum sp_decision_kind kind;
} words[] = {
    {"approved", SP_DECISION_APPROVED},
    {"approved_for_session", SP_DECISION_APPROVED_FOR_SESSION},
    {"denied", SP_DECISION_DENIED},
    {"timed_out", SP_DECISION_TIMED_OUT},
    {"abort", SP_DECISION_ABORT},
    {"accept", SP_DECISION_APPROVED},
    {"acceptForSession", SP_DECISION_APPROVED_FOR_SESSION},
    {"decline", SP_DECISION_DENIED},
    {"cancel", SP_DECISION_ABORT},
};

/* Decisions that are an object with one member. */
static const struct {
    const char *name, *member;
    enum sp_decision_kind kind;
} objects[] = {
    {"approved_execpolicy_amendment", "proposed_execpolicy_amendment", SP_DECISION_AMENDMENT},
    {"acceptWithExecpolicyAmendment", "execpolicy_amendment", SP_DECISION_AMENDMENT},
    {"acceptWithExecpolicyAmendment", "execpolicyAmendment", SP_DECISION_AMENDMENT},
    {"network_policy_amendment", "network_policy_amendment", SP_DECISION_NETWORK_AMENDMENT},
    {"applyNetworkPolicyAmendment", "network_policy_amendment", SP_DECISION_NETWORK_AMENDMENT},
    {"applyNetworkPolicyAmendment", "networkPolicyAmendment", SP_DECISION_NETWORK_AMENDMENT},
    {"denied", "rejection", SP_DECISION_DENIED},
};

const char *sp_decision_name(enum sp_decision_kind k)
{
    static const char *const names[SP_DECISION_MAX] = {
        [SP_DECISION_DENIED] = "denied",
        [SP_DECISION_APPROVED] = "approved",
        [SP_DECISION_APPROVED_FOR_SESSION] = "approved_for_session",
        [SP_DECISION_AMENDMENT] = "approved_with_amendment",
        [SP_DECISION_NETWORK_AMENDMENT] = "network_policy_amendment",
        [SP_DECISION_TIMED_OUT] = "timed_out",
        [SP_DECISION_ABORT] = "abort",
        [SP_DECISION_NO_OPINION] = "denied",
        [SP_DECISION_FAILED] = "denied",
    };

    return (unsigned)k < SP_DECISION_MAX ? names[k] : names[SP_DECISION_DENIED];
}

void sp_decision_text_done(struct sp_decision_text *d)
{
    sp_buf_done(&d->text);
    sp_grant_done(&d->grant);
    free(d->impl);
    *d = (struct sp_decision_text){0};
}

/* The result of parsing an answer. */
enum reading { NOTHING, NONSENSE, UNDERSTOOD };

static bool read_amendment(struct sp_json *j, uint32_t token, struct sp_decision_text *ret)
{
    struct sp_str *list;
    uint32_t n = 0;

    if (sp_json_type(j, token) != SP_JSON_ARRAY || j->tokens[token].children == 0)
        return false;
    list = calloc(j->tokens[token].children, sizeof *list);
    if (list == NULL)
        return false;
    ret->impl = list;
    for (uint32_t i = sp_json_first(j, token); i != SP_JSON_NONE; i = sp_json_next(j, token, i)) {
        if (sp_json_type(j, i) != SP_JSON_STRING)
            return false;
        list[n++] = sp_json_str(j, i);
    }
    ret->decision.amendment = (struct sp_words){list, n};
    return true;
}

static bool read_host(struct sp_json *j, uint32_t token, struct sp_decision *ret)
{
    struct sp_str action = {0};

    if (sp_json_type(j, token) != SP_JSON_OBJECT ||
        sp_json_need_str(j, token, "host", &ret->host, NULL) < 0 ||
        sp_json_need_str(j, token, "action", &action, NULL) < 0)
        return false;
    ret->allows_host = sp_str_eq(action, SP_STR("allow"));
    return ret->allows_host || sp_str_eq(action, SP_STR("deny"));
}

/* {"permissions":{...},"scope":"turn"|"session","strict_auto_review":false}: what is granted. */
static enum reading read_permissions(struct sp_json *j, uint32_t token,
                                     struct sp_decision_text *ret)
{
    const uint32_t list = sp_json_get(j, token, "permissions");
    struct sp_str scope = SP_STR("turn");
    bool is_strict = false;
    struct sp_err e = {0};

    if (sp_json_type(j, list) != SP_JSON_OBJECT ||
        sp_json_opt_str(j, token, "scope", &scope, &e) < 0 ||
        sp_json_def_bool(j, token, "strict_auto_review", &is_strict, &e) < 0 ||
        sp_grant_read(j, list, &ret->grant, &e) < 0 || sp_grant_normalise(&ret->grant, &e) < 0)
        return NONSENSE;
    if (!sp_str_eq(scope, SP_STR("turn")) && !sp_str_eq(scope, SP_STR("session")))
        return NONSENSE;
    ret->decision.kind = sp_str_eq(scope, SP_STR("session")) ? SP_DECISION_APPROVED_FOR_SESSION
                                                             : SP_DECISION_APPROVED;
    ret->decision.permissions = &ret->grant;
    ret->decision.wants_strict_review = is_strict;
    return UNDERSTOOD;
}

/* A word, an object with one member, or a grant of permissions. */
static enum reading read_value(struct sp_json *j, uint32_t token, struct sp_decision_text *ret)
{
    const enum sp_json_type type = sp_json_type(j, token);
    struct sp_decision *d = &ret->decision;

    if (type == SP_JSON_NULL)
        return NOTHING;
    for (size_t i = 0; type == SP_JSON_STRING && i < sizeof words / sizeof words[0]; i++)
        if (sp_str_eq(sp_json_str(j, token), sp_str_of(words[i].name))) {
            d->kind = words[i].kind;
            return UNDERSTOOD;
        }
    for (size_t i = 0; type == SP_JSON_OBJECT && i < sizeof objects / sizeof objects[0]; i++) {
        const uint32_t body = sp_json_get(j, token, objects[i].name);
        const uint32_t value = body != SP_JSON_NONE && sp_json_type(j, body) == SP_JSON_OBJECT
                                   ? sp_json_get(j, body, objects[i].member)
                                   : SP_JSON_NONE;
        bool ok = true;

        if (value == SP_JSON_NONE)
            continue;
        if (objects[i].kind == SP_DECISION_AMENDMENT)
            ok = read_amendment(j, value, ret);
        else if (objects[i].kind == SP_DECISION_NETWORK_AMENDMENT)
            ok = read_host(j, value, d);
        else if (sp_json_type(j, value) == SP_JSON_STRING)
            d->rejection = sp_json_str(j, value);
        if (ok)
            d->kind = objects[i].kind;
        return ok ? UNDERSTOOD : NONSENSE;
    }
    return type == SP_JSON_OBJECT && sp_json_get(j, token, "permissions") != SP_JSON_NONE
               ? read_permissions(j, token, ret)
               : NONSENSE;
}

void sp_decision_read(struct sp_str json, bool may_decline, struct sp_decision_text *ret)
{
    struct sp_json j = {0};
    enum reading how = NONSENSE;

    *ret = (struct sp_decision_text){0}; /* a denial */
    while (json.n != 0 && json.p[0] != 0 && strchr(" \t\r\n", json.p[0]) != NULL)
        json = (struct sp_str){json.p + 1, json.n - 1};
    if (json.n == 0) {
        how = NOTHING;
    } else if (sp_buf_add_str(&ret->text, json) &&
               sp_json_parse(&j, ret->text.data, ret->text.len, NULL) == 0 &&
               sp_json_type(&j, 0) == SP_JSON_OBJECT) {
        const uint32_t token = sp_json_get(&j, 0, "decision");

        if (j.tokens[0].children == 0)
            how = NOTHING;
        else if (token != SP_JSON_NONE)
            how = read_value(&j, token, ret);
        else if (sp_json_get(&j, 0, "permissions") != SP_JSON_NONE)
            how = read_permissions(&j, 0, ret);
    }
    sp_json_done(&j);
    if (may_decline && how == NOTHING)
        ret->decision.kind = SP_DECISION_NO_OPINION;
    if (may_decline && how == NONSENSE)
        ret->decision = (struct sp_decision){.kind = SP_DECISION_FAILED,
                                             .rejection = SP_STR("its answer is no decision")};
}

/* ---- texts for a person ---- */

/* Characters that are invisible or change the direction of the text behind them. */
static bool is_treacherous(uint32_t c)
{
    return (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
           (c >= 0x2060 && c <= 0x206f) || (c >= 0x80 && c <= 0x9f) || c == 0xad || c == 0x34f ||
           c == 0x61c || c == 0x115f || c == 0x1160 || c == 0x17b4 || c == 0x17b5 ||
           (c >= 0x180b && c <= 0x180f) || c == 0x3164 || (c >= 0xfe00 && c <= 0xfe0f) ||
           c == 0xfeff || c == 0xffa0 || (c >= 0xfff0 && c <= 0xfffb) ||
           (c >= 0xe0000 && c <= 0xe0fff);
}

/* Decodes the character at p, which is valid UTF-8; returns its length. */
static size_t read_character(const unsigned char *p, uint32_t *ret)
{
    const size_t n = p[0] < 0x80 ? 1 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    uint32_t c = n == 1 ? p[0] : p[0] & (0x7fU >> n);

    for (size_t i = 1; i < n; i++)
        c = c << 6 | (p[i] & 0x3f);
    *ret = c;
    return n;
}

static bool add_byte(struct sp_buf *out, unsigned char c)
{
    switch (c) {
    case '\n':
        return sp_buf_add_str(out, SP_STR("\\n"));
    case '\t':
        return sp_buf_add_str(out, SP_STR("\\t"));
    case '\r':
        return sp_buf_add_str(out, SP_STR("\\r"));
    default:
        return sp_buf_printf(out, "\\x%02x", c);
    }
}

bool sp_question_add_whole(struct sp_buf *out, struct sp_str s, bool keeps_lines)
{
    while (s.n != 0) {
        const size_t valid = sp_utf8_valid_prefix(s);

        for (size_t i = 0; i < valid;) {
            uint32_t c;
            const size_t n = read_character((const unsigned char *)s.p + i, &c);
            const bool is_plain = (c >= 0x20 && c < 0x7f) || (c == '\n' && keeps_lines);
            bool ok;

            if (is_plain || (c > 0x7f && !is_treacherous(c)))
                ok = sp_buf_add(out, s.p + i, n);
            else if (n == 1)
                ok = add_byte(out, (unsigned char)c);
            else
                ok = sp_buf_printf(out, "\\u{%" PRIx32 "}", c);
            if (!ok)
                return false;
            i += n;
        }
        if (valid == s.n)
            return true;
        if (!add_byte(out, (unsigned char)s.p[valid]))
            return false;
        s = (struct sp_str){s.p + valid + 1, s.n - valid - 1};
    }
    return true;
}

struct sp_str sp_question_middle(struct sp_str text, size_t keep)
{
    size_t head = keep / 2;
    size_t tail = text.n - keep / 2;

    if (text.n <= keep)
        return (struct sp_str){text.p, 0};
    while (head > 0 && ((unsigned char)text.p[head] & 0xc0) == 0x80)
        head--;
    while (tail < text.n && ((unsigned char)text.p[tail] & 0xc0) == 0x80)
        tail++;
    return (struct sp_str){text.p + head, tail - head};
}

/* The text with `before`, the number of bytes and `after` in place of its middle. */
static bool add_without(struct sp_buf *out, struct sp_str text, struct sp_str middle,
                        bool keeps_lines, const char *before, const char *after)
{
    if (middle.n == 0)
        return sp_question_add_whole(out, text, keeps_lines);
    const size_t head = (size_t)(middle.p - text.p);
    const struct sp_str tail = {middle.p + middle.n, text.n - head - middle.n};

    return sp_question_add_whole(out, (struct sp_str){text.p, head}, keeps_lines) &&
           sp_buf_printf(out, "%s%zu%s", before, middle.n, after) &&
           sp_question_add_whole(out, tail, keeps_lines);
}

bool sp_question_add_ends(struct sp_buf *out, struct sp_str text, struct sp_str middle,
                          bool keeps_lines)
{
    return add_without(out, text, middle, keeps_lines, "\nNOT SHOWN: ", " bytes\n");
}

bool sp_question_add_visible(struct sp_buf *out, struct sp_str text, bool keeps_lines)
{
    return add_without(out, text, sp_question_middle(text, SP_QUESTION_VISIBLE_MAX), keeps_lines,
                       " [... ", " bytes left out ...] ");
}

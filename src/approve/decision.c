/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decision: answers to questions, in all the spellings of Codex and its clients.
 */
#include <stdlib.h>

#include "approve/question.h"
#include "base/json.h"
#include "sandbox/policy_json.h"

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

static enum reading read_word(struct sp_str word, struct sp_decision *ret)
{
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (sp_str_eq(word, sp_str_of(words[i].name))) {
            ret->kind = words[i].kind;
            return UNDERSTOOD;
        }
    return NONSENSE;
}

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

static enum reading read_body(struct sp_json *j, enum sp_decision_kind kind, uint32_t value,
                              struct sp_decision_text *ret)
{
    struct sp_decision *d = &ret->decision;
    bool ok = true;

    if (kind == SP_DECISION_AMENDMENT)
        ok = read_amendment(j, value, ret);
    else if (kind == SP_DECISION_NETWORK_AMENDMENT)
        ok = read_host(j, value, d);
    else if (sp_json_type(j, value) == SP_JSON_STRING)
        d->rejection = sp_json_str(j, value);
    if (ok)
        d->kind = kind;
    return ok ? UNDERSTOOD : NONSENSE;
}

static enum reading read_object(struct sp_json *j, uint32_t token, struct sp_decision_text *ret)
{
    for (size_t i = 0; i < sizeof objects / sizeof objects[0]; i++) {
        const uint32_t body = sp_json_get(j, token, objects[i].name);
        const uint32_t value = body != SP_JSON_NONE && sp_json_type(j, body) == SP_JSON_OBJECT
                                   ? sp_json_get(j, body, objects[i].member)
                                   : SP_JSON_NONE;

        if (value != SP_JSON_NONE)
            return read_body(j, objects[i].kind, value, ret);
    }
    return sp_json_get(j, token, "permissions") != SP_JSON_NONE ? read_permissions(j, token, ret)
                                                                : NONSENSE;
}

static enum reading read_value(struct sp_json *j, uint32_t token, struct sp_decision_text *ret)
{
    const enum sp_json_type type = sp_json_type(j, token);

    if (type == SP_JSON_STRING)
        return read_word(sp_json_str(j, token), &ret->decision);
    if (type == SP_JSON_OBJECT)
        return read_object(j, token, ret);
    return type == SP_JSON_NULL ? NOTHING : NONSENSE;
}

/* The member `decision`; a grant of permissions may also stand alone. */
static enum reading read_member(struct sp_json *j, struct sp_decision_text *ret)
{
    if (sp_json_type(j, 0) != SP_JSON_OBJECT)
        return NONSENSE;
    if (j->tokens[0].children == 0)
        return NOTHING;
    const uint32_t token = sp_json_get(j, 0, "decision");
    if (token != SP_JSON_NONE)
        return read_value(j, token, ret);
    return sp_json_get(j, 0, "permissions") != SP_JSON_NONE ? read_permissions(j, 0, ret)
                                                            : NONSENSE;
}

static enum reading read_json(struct sp_str json, bool is_member, struct sp_decision_text *ret)
{
    struct sp_json j = {0};
    enum reading how = NONSENSE;

    *ret = (struct sp_decision_text){0};
    while (json.n != 0 && json.p[0] != 0 && strchr(" \t\r\n", json.p[0]) != NULL)
        json = (struct sp_str){json.p + 1, json.n - 1};
    if (json.n == 0)
        return NOTHING;
    if (!sp_buf_add_str(&ret->text, json))
        return NONSENSE;
    if (sp_json_parse(&j, ret->text.data, ret->text.len, NULL) == 0)
        how = is_member ? read_member(&j, ret) : read_value(&j, 0, ret);
    sp_json_done(&j);
    return how;
}

void sp_decision_read(struct sp_str json, struct sp_decision_text *ret)
{
    (void)read_json(json, false, ret); /* the zero value is a denial */
}

void sp_decision_read_answer(struct sp_str json, struct sp_decision_text *ret)
{
    (void)read_json(json, true, ret);
}

void sp_decision_read_opinion(struct sp_str json, struct sp_decision_text *ret)
{
    const enum reading how = read_json(json, true, ret);

    if (how == NOTHING)
        ret->decision.kind = SP_DECISION_NO_OPINION;
    if (how == NONSENSE)
        ret->decision = (struct sp_decision){.kind = SP_DECISION_FAILED,
                                             .rejection = SP_STR("its answer is no decision")};
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers to questions, as they are spelled by whoever gives them (approvals.md 7.5).
 */
#include <stdlib.h>

#include "approve/question.h"
#include "rpc/json.h"

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

/* An object with one member, which says what it is. */
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
    };

    return (unsigned)k < SP_DECISION_MAX ? names[k] : names[SP_DECISION_DENIED];
}

void sp_decision_text_done(struct sp_decision_text *d)
{
    sp_buf_done(&d->text);
    free(d->impl);
    *d = (struct sp_decision_text){0};
}

static void read_word(struct sp_str word, struct sp_decision *ret)
{
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (sp_str_eq(word, sp_str_of(words[i].name)))
            ret->kind = words[i].kind;
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

static void read_object(struct sp_json *j, uint32_t token, struct sp_decision_text *ret)
{
    struct sp_decision *d = &ret->decision;

    for (size_t i = 0; i < sizeof objects / sizeof objects[0]; i++) {
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
        return;
    }
}

static void read_json(struct sp_str json, bool is_member, struct sp_decision_text *ret)
{
    struct sp_json j = {0};
    uint32_t token = 0;

    *ret = (struct sp_decision_text){0};
    if (!sp_buf_add_str(&ret->text, json))
        return;
    if (json.n != 0 && sp_json_parse(&j, ret->text.data, ret->text.len, NULL) == 0) {
        if (is_member)
            token = sp_json_type(&j, 0) == SP_JSON_OBJECT ? sp_json_get(&j, 0, "decision")
                                                          : SP_JSON_NONE;
        if (token != SP_JSON_NONE && sp_json_type(&j, token) == SP_JSON_STRING)
            read_word(sp_json_str(&j, token), &ret->decision);
        else if (token != SP_JSON_NONE && sp_json_type(&j, token) == SP_JSON_OBJECT)
            read_object(&j, token, ret);
    }
    sp_json_done(&j);
}

void sp_decision_read(struct sp_str json, struct sp_decision_text *ret)
{
    read_json(json, false, ret);
}

void sp_decision_read_answer(struct sp_str json, struct sp_decision_text *ret)
{
    read_json(json, true, ret);
}

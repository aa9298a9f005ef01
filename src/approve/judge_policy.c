/* SPDX-License-Identifier: Apache-2.0 */
/* Approval policies: their names, and which questions they let through (approvals.md 2). */
#include <errno.h>

#include "approve/judge_priv.h"
#include "base/auto.h"
#include "base/json.h"

static const struct {
    const char *wire, *text;
} kinds[] = {
#define X(name, wire, text) [SP_APPROVAL_##name] = {wire, text},
    SP_APPROVALS(X)
#undef X
};

/* ---- reading ---- */

static int read_name(struct sp_str name, struct sp_approval_policy *ret, struct sp_err *e)
{
    for (size_t i = 0; i < SP_APPROVAL_MAX; i++)
        if (i != SP_APPROVAL_GRANULAR && sp_str_eq(name, sp_str_of(kinds[i].wire))) {
            *ret = (struct sp_approval_policy){.kind = (enum sp_approval_kind)i};
            return 0;
        }
    return sp_fail(e, SP_E_INVALID, 0,
                   "unknown approval policy `" SP_STR_FMT
                   "`, expected untrusted, on-failure, on-request, never, or an object "
                   "{\"granular\":{...}}",
                   (int)(name.n > 100 ? 100 : name.n), name.p);
}

/* A switch that is misspelt must not go unseen. */
static int refuse_others(struct sp_json *j, uint32_t object, const char *const *known,
                         struct sp_err *e)
{
    for (uint32_t k = sp_json_first(j, object); k != SP_JSON_NONE; k = sp_json_next(j, object, k)) {
        const struct sp_str key = sp_json_str(j, k);
        size_t i = 0;

        while (known[i] != NULL && !sp_str_eq(key, sp_str_of(known[i])))
            i++;
        if (known[i] == NULL)
            return sp_fail(e, SP_E_INVALID, 0, "unknown field `" SP_STR_FMT "`",
                           (int)(key.n > 100 ? 100 : key.n), key.p);
    }
    return 0;
}

static int read_object(struct sp_json *j, struct sp_approval_policy *ret, struct sp_err *e)
{
    static const char *const outer[] = {"granular", NULL};
    static const char *const inner[] = {"sandbox_approval", "rules",
                                        "skill_approval",   "request_permissions",
                                        "mcp_elicitations", NULL};
    struct sp_approval_policy p = {.kind = SP_APPROVAL_GRANULAR};
    uint32_t o;
    int r;

    if (sp_json_type(j, 0) != SP_JSON_OBJECT)
        return sp_json_wrong_type(j, 0, "a map", e);
    if ((r = refuse_others(j, 0, outer, e)) < 0 ||
        (r = sp_json_need_object(j, 0, "granular", &o, e)) < 0 ||
        (r = refuse_others(j, o, inner, e)) < 0 ||
        (r = sp_json_need_bool(j, o, "sandbox_approval", &p.sandbox_approval, e)) < 0 ||
        (r = sp_json_need_bool(j, o, "rules", &p.rules, e)) < 0 ||
        (r = sp_json_def_bool(j, o, "skill_approval", &p.skill_approval, e)) < 0 ||
        (r = sp_json_def_bool(j, o, "request_permissions", &p.request_permissions, e)) < 0 ||
        (r = sp_json_need_bool(j, o, "mcp_elicitations", &p.mcp_elicitations, e)) < 0)
        return r;
    *ret = p;
    return 0;
}

static int read_json(struct sp_str text, struct sp_approval_policy *ret, struct sp_err *e)
{
    auto_free char *copy = malloc(text.n);
    struct sp_json j = {0};
    struct sp_err why = {0};

    if (copy == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "no memory for an approval policy");
    memcpy(copy, text.p, text.n);
    int r = sp_json_parse(&j, copy, text.n, &why);
    if (r == 0)
        r = read_object(&j, ret, &why);
    sp_json_done(&j);
    if (r == 0)
        return 0;
    return sp_fail(e, why.code == SP_E_SYSTEM ? SP_E_SYSTEM : SP_E_INVALID, why.sys,
                   "approval policy: %s", why.msg);
}

int sp_approval_read(struct sp_str text, struct sp_approval_policy *ret, struct sp_err *e)
{
    return text.n != 0 && text.p[0] == '{' ? read_json(text, ret, e) : read_name(text, ret, e);
}

/* ---- naming ---- */

bool sp_approval_add_name(struct sp_buf *out, const struct sp_approval_policy *p)
{
    const char *const text[] = {"false", "true"};

    if (p->kind >= SP_APPROVAL_MAX)
        return sp_buf_add_str(out, SP_STR("?"));
    if (p->kind != SP_APPROVAL_GRANULAR)
        return sp_buf_add_str(out, sp_str_of(kinds[p->kind].text));
    return sp_buf_printf(out,
                         "Granular(GranularApprovalConfig { sandbox_approval: %s, rules: %s, "
                         "skill_approval: %s, request_permissions: %s, mcp_elicitations: %s })",
                         text[p->sandbox_approval], text[p->rules], text[p->skill_approval],
                         text[p->request_permissions], text[p->mcp_elicitations]);
}

/* ---- asking ---- */

bool sp_approval_may_ask_by_rule(const struct sp_approval_policy *p)
{
    switch (p->kind) {
    case SP_APPROVAL_UNTRUSTED:
    case SP_APPROVAL_ON_FAILURE:
    case SP_APPROVAL_ON_REQUEST:
        return true;
    case SP_APPROVAL_GRANULAR:
        return p->rules;
    case SP_APPROVAL_NEVER:
    case SP_APPROVAL_MAX:
        break;
    }
    return false;
}

bool sp_approval_may_ask_by_guess(const struct sp_approval_policy *p)
{
    switch (p->kind) {
    case SP_APPROVAL_UNTRUSTED:
    case SP_APPROVAL_ON_FAILURE:
    case SP_APPROVAL_ON_REQUEST:
        return true;
    case SP_APPROVAL_GRANULAR:
        return p->sandbox_approval;
    case SP_APPROVAL_NEVER:
    case SP_APPROVAL_MAX:
        break;
    }
    return false;
}

bool sp_judge_may_ask_after_denial(const struct sp_approval_policy *p, bool is_patch)
{
    if (p->kind == SP_APPROVAL_ON_REQUEST)
        return is_patch;
    return sp_approval_may_ask_by_guess(p);
}

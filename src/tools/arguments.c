/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/arguments.h"

#include <errno.h>
#include <stdlib.h>

#include "base/auto.h"
#include "rpc/policy_json.h"
#include "rpc/policy_words.h"
#include "tools/number.h"

enum slot_type {
    SLOT_STRING, /* struct sp_str */
    SLOT_BOOL,
    SLOT_U64,
    SLOT_USIZE, /* the same, under its other name */
    SLOT_I32,   /* int */
    SLOT_WORDS, /* strings, into the arguments' list; `to` is the pointer, `count` their number */
    SLOT_PERMISSIONS, /* enum sp_permissions */
    SLOT_GRANT,       /* const struct sp_grant * */
};

/* Where a member goes. */
struct slot {
    const char *name;
    void *to;
    bool *has;       /* NULL: nobody wants to know */
    uint32_t *count; /* SLOT_WORDS */
    enum slot_type type;
    bool is_needed;
};

struct reader {
    struct sp_arguments *a;
    struct sp_json *j;
    struct sp_str text; /* as it came: strings of the copy change while they are read */
    const struct slot *slots;
    size_t slot_count;
};

void sp_arguments_done(struct sp_arguments *a)
{
    sp_grant_done(&a->grant);
    free(a->words);
    sp_json_done(&a->json);
    free(a->text);
    *a = (struct sp_arguments){0};
}

/* ---- places ---- */

/* Adds " at line L column C": where a reader that has read up to `at` stands. */
static int fail_at(const struct reader *r, size_t at, struct sp_error *e)
{
    size_t line = 1;
    size_t begin = 0;
    const struct sp_error why = *e;

    for (size_t i = 0; i < at; i++)
        if (r->text.p[i] == '\n') {
            line++;
            begin = i + 1;
        }
    return sp_fail(e, why.code, why.sys, "%s at line %zu column %zu", why.msg, line, at - begin);
}

/* Where a value ends: after its last character. Of what contains others: where it begins, for
 * nothing in it has been looked at. */
static size_t place_of(const struct reader *r, uint32_t token)
{
    const struct sp_json_token *t = &r->j->tokens[token];
    size_t at = t->off;

    if (t->type == SP_JSON_ARRAY || t->type == SP_JSON_OBJECT)
        return at;
    if (t->type != SP_JSON_STRING)
        return at + t->len;
    while (at < r->text.n && r->text.p[at] != '"')
        at += r->text.p[at] == '\\' ? 2 : 1;
    return at + 1;
}

/* ---- refusals ---- */

static struct sp_str raw_number(const struct reader *r, uint32_t token)
{
    struct sp_str s = sp_json_raw(r->j, token);

    if (s.n > 40)
        s.n = 40;
    return s;
}

static bool is_number(const struct reader *r, uint32_t token)
{
    const enum sp_json_type type = sp_json_type(r->j, token);

    return type == SP_JSON_INT || type == SP_JSON_UINT || type == SP_JSON_REAL;
}

static int wrong_type(const struct reader *r, uint32_t token, const char *expected,
                      struct sp_error *e)
{
    const size_t at = place_of(r, token);

    if (is_number(r, token))
        (void)sp_fail(e, SP_E_INVALID, 0, "invalid type: %s `" SP_STR_FMT "`, expected %s",
                      sp_json_type(r->j, token) == SP_JSON_REAL ? "floating point" : "integer",
                      SP_STR_ARG(raw_number(r, token)), expected);
    else
        (void)sp_json_wrong_type(r->j, token, expected, e);
    return fail_at(r, at, e);
}

static int wrong_value(const struct reader *r, uint32_t token, const char *expected,
                       struct sp_error *e)
{
    (void)sp_fail(e, SP_E_INVALID, 0, "invalid value: integer `" SP_STR_FMT "`, expected %s",
                  SP_STR_ARG(raw_number(r, token)), expected);
    return fail_at(r, place_of(r, token), e);
}

static int no_memory(struct sp_error *e)
{
    return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read function arguments");
}

/* ---- values ---- */

static int take_string(const struct reader *r, uint32_t token, struct sp_str *ret,
                       struct sp_error *e)
{
    if (sp_json_type(r->j, token) != SP_JSON_STRING)
        return wrong_type(r, token, "a string", e);
    *ret = sp_json_str(r->j, token);
    return 0;
}

static int take_bool(const struct reader *r, uint32_t token, bool *ret, struct sp_error *e)
{
    const enum sp_json_type type = sp_json_type(r->j, token);

    if (type != SP_JSON_TRUE && type != SP_JSON_FALSE)
        return wrong_type(r, token, "a boolean", e);
    *ret = type == SP_JSON_TRUE;
    return 0;
}

static int take_whole(const struct reader *r, uint32_t token, const char *expected,
                      struct sp_number *ret, struct sp_error *e)
{
    if (!is_number(r, token))
        return wrong_type(r, token, expected, e);
    switch (sp_number_read(sp_json_raw(r->j, token), ret)) {
    case SP_NUMBER_WHOLE:
        return 0;
    case SP_NUMBER_TOO_BIG:
        return wrong_value(r, token, expected, e);
    case SP_NUMBER_FRACTION:
        break;
    }
    return wrong_type(r, token, expected, e);
}

static int take_u64(const struct reader *r, uint32_t token, const char *expected, uint64_t *ret,
                    struct sp_error *e)
{
    struct sp_number v = {0};
    const int result = take_whole(r, token, expected, &v, e);

    if (result < 0)
        return result;
    if (v.is_negative && v.magnitude != 0)
        return wrong_value(r, token, expected, e);
    *ret = v.magnitude;
    return 0;
}

static int take_i32(const struct reader *r, uint32_t token, int *ret, struct sp_error *e)
{
    struct sp_number v = {0};
    const int result = take_whole(r, token, "i32", &v, e);

    if (result < 0)
        return result;
    if (v.magnitude > (uint64_t)INT32_MAX + v.is_negative)
        return wrong_value(r, token, "i32", e);
    *ret = (int)(v.is_negative ? -(int64_t)v.magnitude : (int64_t)v.magnitude);
    return 0;
}

static int take_words(const struct reader *r, uint32_t token, const struct slot *s,
                      struct sp_error *e)
{
    uint32_t count = 0;

    if (sp_json_type(r->j, token) != SP_JSON_ARRAY)
        return wrong_type(r, token, "a sequence", e);
    r->a->words = calloc((size_t)r->j->tokens[token].children + 1, sizeof *r->a->words);
    if (r->a->words == NULL)
        return no_memory(e);
    for (uint32_t t = sp_json_first(r->j, token); t != SP_JSON_NONE;
         t = sp_json_next(r->j, token, t)) {
        const int result = take_string(r, t, &r->a->words[count], e);

        if (result < 0)
            return result;
        count++;
    }
    *(const struct sp_str **)s->to = r->a->words;
    *s->count = count;
    return 0;
}

static int take_permissions(const struct reader *r, uint32_t token, enum sp_permissions *ret,
                            struct sp_error *e)
{
    static const struct {
        struct sp_str name;
        enum sp_permissions value;
    } known[] = {
        {SP_STR("use_default"), SP_PERMISSIONS_DEFAULT},
        {SP_STR("require_escalated"), SP_PERMISSIONS_ESCALATED},
        {SP_STR("with_additional_permissions"), SP_PERMISSIONS_ADDITIONAL},
    };
    const size_t at = place_of(r, token);

    if (sp_json_type(r->j, token) != SP_JSON_STRING)
        return wrong_type(r, token, "a string", e);
    const struct sp_str got = sp_json_str(r->j, token);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (sp_str_eq(got, known[i].name)) {
            *ret = known[i].value;
            return 0;
        }
    (void)sp_fail(e, SP_E_INVALID, 0,
                  "unknown variant `" SP_STR_FMT "`, expected one of `use_default`, "
                  "`require_escalated`, `with_additional_permissions`",
                  SP_STR_ARG(sp_policy_shown(got)));
    return fail_at(r, at, e);
}

static int take_grant(const struct reader *r, uint32_t token, const struct sp_grant **ret,
                      struct sp_error *e)
{
    const size_t at = place_of(r, token);

    if (sp_json_type(r->j, token) != SP_JSON_OBJECT)
        return wrong_type(r, token, "a map", e);
    if (sp_grant_read(r->j, token, &r->a->grant, e) < 0)
        return e->code == SP_E_SYSTEM ? -SP_E_SYSTEM : fail_at(r, at + r->j->tokens[token].len, e);
    *ret = &r->a->grant;
    return 0;
}

static int take_value(const struct reader *r, uint32_t token, const struct slot *s,
                      struct sp_error *e)
{
    switch (s->type) {
    case SLOT_STRING:
        return take_string(r, token, s->to, e);
    case SLOT_BOOL:
        return take_bool(r, token, s->to, e);
    case SLOT_U64:
        return take_u64(r, token, "u64", s->to, e);
    case SLOT_USIZE:
        return take_u64(r, token, "usize", s->to, e);
    case SLOT_I32:
        return take_i32(r, token, s->to, e);
    case SLOT_WORDS:
        return take_words(r, token, s, e);
    case SLOT_PERMISSIONS:
        return take_permissions(r, token, s->to, e);
    case SLOT_GRANT:
        return take_grant(r, token, s->to, e);
    }
    return 0;
}

/* ---- the whole object ---- */

static const struct slot *find_slot(const struct reader *r, struct sp_str name)
{
    for (size_t i = 0; i < r->slot_count; i++)
        if (sp_str_eq(name, sp_str_of(r->slots[i].name)))
            return &r->slots[i];
    return NULL;
}

static int take_members(const struct reader *r, uint64_t *seen, struct sp_error *e)
{
    for (uint32_t key = sp_json_first(r->j, 0); key != SP_JSON_NONE;
         key = sp_json_next(r->j, 0, key)) {
        const uint32_t value = key + 1;
        const struct slot *s = find_slot(r, sp_json_str(r->j, key));

        if (s == NULL || (sp_json_type(r->j, value) == SP_JSON_NULL && !s->is_needed))
            continue;
        const int result = take_value(r, value, s, e);
        if (result < 0)
            return result;
        if (s->has != NULL)
            *s->has = true;
        *seen |= UINT64_C(1) << (s - r->slots);
    }
    return 0;
}

static int check_needed(const struct reader *r, uint64_t seen, struct sp_error *e)
{
    const struct sp_json_token *root = &r->j->tokens[0];

    for (size_t i = 0; i < r->slot_count; i++)
        if (r->slots[i].is_needed && (seen >> i & 1) == 0) {
            (void)sp_fail(e, SP_E_INVALID, 0, "missing field `%s`", r->slots[i].name);
            return fail_at(r, (size_t)root->off + root->len, e);
        }
    return 0;
}

static int read_object(struct sp_arguments *a, struct sp_str text, const struct slot *slots,
                       size_t slot_count, struct sp_error *e)
{
    const struct reader r = {a, &a->json, text, slots, slot_count};
    uint64_t seen = 0;

    a->text = malloc(text.n + 1);
    if (a->text == NULL)
        return no_memory(e);
    if (text.n != 0)
        memcpy(a->text, text.p, text.n);
    int result = sp_json_parse(&a->json, a->text, text.n, e);
    if (result < 0)
        return result;
    if (sp_json_type(&a->json, 0) != SP_JSON_OBJECT)
        return wrong_type(&r, 0, "a map", e);
    result = take_members(&r, &seen, e);
    return result < 0 ? result : check_needed(&r, seen, e);
}

#define COUNT(slots) (sizeof(slots) / sizeof(slots)[0])

int sp_arguments_exec(struct sp_arguments *a, struct sp_str text, const struct sp_tools_options *o,
                      struct sp_exec_ask *ret, struct sp_error *e)
{
    struct sp_str fixed = {0}; /* where a shell goes that nobody may choose */
    const struct slot slots[] = {
        {.name = "cmd", .type = SLOT_STRING, .to = &ret->cmd, .is_needed = true},
        {.name = "workdir", .type = SLOT_STRING, .to = &ret->workdir},
        {.name = "tty", .type = SLOT_BOOL, .to = &ret->is_tty},
        {.name = "yield_time_ms",
         .type = SLOT_U64,
         .to = &ret->yield.yield_time_ms,
         .has = &ret->yield.has_yield_time},
        {.name = "max_output_tokens",
         .type = SLOT_USIZE,
         .to = &ret->max_tokens,
         .has = &ret->has_max_tokens},
        {.name = "shell", .type = SLOT_STRING, .to = o->has_fixed_shell ? &fixed : &ret->shell},
        {.name = "login", .type = SLOT_BOOL, .to = &ret->login, .has = &ret->has_login},
        {.name = "environment_id", .type = SLOT_STRING, .to = &ret->environment_id},
        {.name = "sandbox_permissions",
         .type = SLOT_PERMISSIONS,
         .to = &ret->permissions,
         .has = &ret->has_permissions},
        {.name = "additional_permissions", .type = SLOT_GRANT, .to = &ret->additional},
        {.name = "justification", .type = SLOT_STRING, .to = &ret->justification},
        {.name = "prefix_rule",
         .type = SLOT_WORDS,
         .to = &ret->prefix_rule,
         .count = &ret->prefix_rule_count},
    };

    return read_object(a, text, slots, COUNT(slots), e);
}

int sp_arguments_write(struct sp_arguments *a, struct sp_str text, const struct sp_tools_options *o,
                       struct sp_write_ask *ret, struct sp_error *e)
{
    const struct slot slots[] = {
        {.name = "session_id", .type = SLOT_I32, .to = &ret->session_id, .is_needed = true},
        {.name = "chars", .type = SLOT_STRING, .to = &ret->chars},
        {.name = "yield_time_ms",
         .type = SLOT_U64,
         .to = &ret->yield.yield_time_ms,
         .has = &ret->yield.has_yield_time},
        {.name = "max_output_tokens",
         .type = SLOT_USIZE,
         .to = &ret->max_tokens,
         .has = &ret->has_max_tokens},
        {.name = "no_timeout", .type = SLOT_BOOL, .to = &ret->no_timeout},
    };

    /* A feature that is off has no member: the last one is then like any that is not known. */
    return read_object(a, text, slots, COUNT(slots) - !o->has_no_timeout, e);
}

int sp_arguments_permissions(struct sp_arguments *a, struct sp_str text,
                             struct sp_permissions_ask *ret, struct sp_error *e)
{
    const struct slot slots[] = {
        {.name = "permissions", .type = SLOT_GRANT, .to = &ret->permissions, .is_needed = true},
        {.name = "reason", .type = SLOT_STRING, .to = &ret->reason},
        {.name = "environment_id", .type = SLOT_STRING, .to = &ret->environment_id},
    };

    return read_object(a, text, slots, COUNT(slots), e);
}

int sp_arguments_compat(struct sp_arguments *a, struct sp_str text, struct sp_compat_ask *ret,
                        struct sp_error *e)
{
    const struct slot slots[] = {
        {.name = "input",
         .type = SLOT_WORDS,
         .to = &ret->input,
         .count = &ret->input_count,
         .is_needed = true},
        {.name = "session_id", .type = SLOT_STRING, .to = &ret->session_id},
        {.name = "timeout_ms",
         .type = SLOT_U64,
         .to = &ret->timeout.yield_time_ms,
         .has = &ret->timeout.has_yield_time},
    };

    return read_object(a, text, slots, COUNT(slots), e);
}

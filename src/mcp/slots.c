/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slots: reads one JSON object into typed variables.
 *
 * The C library reports errors exactly as codex does, including the position:
 *
 *   invalid type: string "x", expected u64 at line 1 column 9
 *
 * The position needs the original text, since reading a string unescapes it in place. MCP's own
 * tools name the member instead.
 */
#include "mcp/slots.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "approve/judge.h"
#include "base/auto.h"
#include "sandbox/policy_json.h"

#define EXPONENT_MAX 1000000 /* larger than any shift that a text of this length can need */

/* ---- numbers ---- */

/* Reads the exponent at p ("e-3"); 0 if p is the end of the number. */
static int64_t read_exponent(const char *p, const char *end)
{
    int64_t v = 0;

    if (p == end)
        return 0;
    p++;
    const bool is_negative = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+'))
        p++;
    for (; p < end; p++)
        if (v < EXPONENT_MAX)
            v = v * 10 + (*p - '0');
    return is_negative ? -v : v;
}

/* false: above u64. */
static bool append_digit(uint64_t *v, unsigned digit)
{
    return !__builtin_mul_overflow(*v, (uint64_t)10, v) &&
           !__builtin_add_overflow(*v, (uint64_t)digit, v);
}

enum sp_number_kind sp_number_read(struct sp_str text, struct sp_number *ret)
{
    const char *end = text.p + text.n;
    const char *p = text.p;
    struct sp_number v = {.is_negative = text.n > 0 && *p == '-'};
    const char *first = NULL; /* first and last digit that is not 0; NULL: none */
    const char *last = NULL;
    const char *point = NULL;
    int64_t behind = 0; /* digits after the point up to `last`; negative: zeros before the point */

    for (p += v.is_negative; p < end && *p != 'e' && *p != 'E'; p++) {
        if (*p == '.')
            point = p;
        else if (first != NULL && point == NULL)
            behind--;
        if (*p < '1' || *p > '9')
            continue;
        if (first == NULL)
            first = p;
        last = p;
        behind = point == NULL ? 0 : p - point;
    }
    int64_t zeros = read_exponent(p, end) - behind;
    if (first == NULL) {
        *ret = v;
        return SP_NUMBER_WHOLE;
    }
    if (zeros < 0)
        return SP_NUMBER_FRACTION;
    for (p = first; p <= last; p++)
        if (*p != '.' && !append_digit(&v.magnitude, (unsigned)(*p - '0')))
            return SP_NUMBER_TOO_BIG;
    for (; zeros > 0; zeros--) /* at most 20 rounds: the magnitude is not 0 */
        if (!append_digit(&v.magnitude, 0))
            return SP_NUMBER_TOO_BIG;
    *ret = v;
    return SP_NUMBER_WHOLE;
}

/* ---- parsing ---- */

static int no_memory(struct sp_err *e)
{
    return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read function arguments");
}

int sp_arguments_parse(struct sp_arguments *a, struct sp_str text, struct sp_err *e)
{
    a->text = malloc(text.n + 1);
    if (a->text == NULL)
        return no_memory(e);
    if (text.n != 0)
        memcpy(a->text, text.p, text.n);
    return sp_json_parse(&a->json, a->text, text.n, e);
}

void sp_arguments_done(struct sp_arguments *a)
{
    sp_grant_done(&a->grant);
    sp_arena_done(&a->keep);
    sp_json_done(&a->json);
    free(a->text);
    *a = (struct sp_arguments){0};
}

/* ---- errors ---- */

struct reader {
    struct sp_arguments *a;
    struct sp_json *j;
    struct sp_slots slots;
};

static bool has_places(const struct reader *r)
{
    return r->slots.text.p != NULL;
}

/* Appends " at line L column C" for a parser that has consumed `at` bytes. */
static int fail_at(const struct reader *r, size_t at, struct sp_err *e)
{
    size_t line = 1;
    size_t begin = 0;
    const struct sp_err why = *e;

    if (!has_places(r))
        return -(int)e->code;
    for (size_t i = 0; i < at; i++)
        if (r->slots.text.p[i] == '\n') {
            line++;
            begin = i + 1;
        }
    return sp_fail(e, why.code, why.sys, "%s at line %zu column %zu", why.msg, line, at - begin);
}

/* Where the parser of codex reports a value: at the end of a scalar, at the start of an array or an
 * object, because it has not read their contents yet. */
static size_t place_of(const struct reader *r, uint32_t token)
{
    const struct sp_json_token *t = &r->j->tokens[token];
    const struct sp_str text = r->slots.text;
    size_t at = t->off;

    if (t->type == SP_JSON_ARRAY || t->type == SP_JSON_OBJECT)
        return at;
    if (t->type != SP_JSON_STRING)
        return at + t->len;
    while (at < text.n && text.p[at] != '"')
        at += text.p[at] == '\\' ? 2 : 1;
    return at + 1;
}

/* The expected type in plain words, unless codex's are wanted. */
static const char *expected_words(const struct reader *r, const char *expected)
{
    static const struct {
        const char *codex, *plain;
    } words[] = {
        {"i32", "a whole number"},
        {"u64", "a whole number, 0 or more"},
        {"usize", "a whole number, 0 or more"},
        {"a sequence", "an array"},
        {"a map", "an object"},
    };

    for (size_t i = 0; !has_places(r) && i < sizeof words / sizeof words[0]; i++)
        if (strcmp(expected, words[i].codex) == 0)
            return words[i].plain;
    return expected;
}

static struct sp_str shown_number(const struct reader *r, uint32_t token)
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
                      struct sp_err *e)
{
    const size_t at = place_of(r, token);

    expected = expected_words(r, expected);
    if (is_number(r, token))
        (void)sp_fail(e, SP_E_INVALID, 0, "invalid type: %s `" SP_STR_FMT "`, expected %s",
                      sp_json_type(r->j, token) == SP_JSON_REAL ? "floating point" : "integer",
                      SP_STR_ARG(shown_number(r, token)), expected);
    else
        (void)sp_json_wrong_type(r->j, token, expected, e);
    return fail_at(r, at, e);
}

static int wrong_value(const struct reader *r, uint32_t token, const char *expected,
                       struct sp_err *e)
{
    (void)sp_fail(e, SP_E_INVALID, 0, "invalid value: integer `" SP_STR_FMT "`, expected %s",
                  SP_STR_ARG(shown_number(r, token)), expected_words(r, expected));
    return fail_at(r, place_of(r, token), e);
}

/* ---- values ---- */

static int take_string(const struct reader *r, uint32_t token, struct sp_str *ret, struct sp_err *e)
{
    if (sp_json_type(r->j, token) != SP_JSON_STRING)
        return wrong_type(r, token, "a string", e);
    *ret = sp_json_str(r->j, token);
    return 0;
}

static int take_bool(const struct reader *r, uint32_t token, bool *ret, struct sp_err *e)
{
    const enum sp_json_type type = sp_json_type(r->j, token);

    if (type != SP_JSON_TRUE && type != SP_JSON_FALSE)
        return wrong_type(r, token, "a boolean", e);
    *ret = type == SP_JSON_TRUE;
    return 0;
}

static int take_whole(const struct reader *r, uint32_t token, const char *expected,
                      struct sp_number *ret, struct sp_err *e)
{
    const enum sp_number_kind kind =
        is_number(r, token) ? sp_number_read(sp_json_raw(r->j, token), ret) : SP_NUMBER_FRACTION;

    if (kind == SP_NUMBER_WHOLE)
        return 0;
    return kind == SP_NUMBER_TOO_BIG ? wrong_value(r, token, expected, e)
                                     : wrong_type(r, token, expected, e);
}

static int take_u64(const struct reader *r, uint32_t token, const char *expected, uint64_t *ret,
                    struct sp_err *e)
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

static int take_i32(const struct reader *r, uint32_t token, int *ret, struct sp_err *e)
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

static int take_u16(const struct reader *r, uint32_t token, uint16_t *ret, struct sp_err *e)
{
    uint64_t v = 0;
    const int result = take_u64(r, token, "1 to 65535", &v, e);

    if (result < 0)
        return result;
    if (v == 0 || v > UINT16_MAX)
        return wrong_value(r, token, "1 to 65535", e);
    *ret = (uint16_t)v;
    return 0;
}

static int take_words(const struct reader *r, uint32_t token, const struct sp_slot *s,
                      struct sp_err *e)
{
    uint32_t count = 0;

    if (sp_json_type(r->j, token) != SP_JSON_ARRAY)
        return wrong_type(r, token, "a sequence", e);
    struct sp_str *words =
        sp_arena_new(&r->a->keep, ((size_t)r->j->tokens[token].children + 1) * sizeof *words);
    if (words == NULL)
        return no_memory(e);
    for (uint32_t t = sp_json_first(r->j, token); t != SP_JSON_NONE;
         t = sp_json_next(r->j, token, t)) {
        const int result = take_string(r, t, &words[count], e);

        if (result < 0)
            return result;
        count++;
    }
    *(const struct sp_str **)s->to = words;
    *s->count = count;
    return 0;
}

static int take_permissions(const struct reader *r, uint32_t token, enum sp_permissions *ret,
                            struct sp_err *e)
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
    struct sp_str got = {0};
    const int result = take_string(r, token, &got, e);

    if (result < 0)
        return result;
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
                      struct sp_err *e)
{
    const size_t at = place_of(r, token);

    if (sp_json_type(r->j, token) != SP_JSON_OBJECT)
        return wrong_type(r, token, "a map", e);
    if (sp_grant_read(r->j, token, &r->a->grant, e) < 0)
        return e->code == SP_E_SYSTEM ? -SP_E_SYSTEM : fail_at(r, at + r->j->tokens[token].len, e);
    *ret = &r->a->grant;
    return 0;
}

static int take_value(const struct reader *r, uint32_t token, const struct sp_slot *s,
                      struct sp_err *e)
{
    switch (s->type) {
    case SP_SLOT_STRING:
        return take_string(r, token, s->to, e);
    case SP_SLOT_BOOL:
        return take_bool(r, token, s->to, e);
    case SP_SLOT_U64:
        return take_u64(r, token, "u64", s->to, e);
    case SP_SLOT_USIZE:
        return take_u64(r, token, "usize", s->to, e);
    case SP_SLOT_U16:
        return take_u16(r, token, s->to, e);
    case SP_SLOT_I32:
        return take_i32(r, token, s->to, e);
    case SP_SLOT_WORDS:
        return take_words(r, token, s, e);
    case SP_SLOT_PERMISSIONS:
        return take_permissions(r, token, s->to, e);
    case SP_SLOT_GRANT:
        return take_grant(r, token, s->to, e);
    case SP_SLOT_TOKEN:
        *(uint32_t *)s->to = token;
        return 0;
    }
    return 0;
}

/* ---- the whole object ---- */

static const struct sp_slot *find_slot(const struct sp_slots *slots, struct sp_str name)
{
    for (size_t i = 0; i < slots->count; i++)
        if (sp_str_eq(name, sp_str_of(slots->items[i].name)))
            return &slots->items[i];
    return NULL;
}

int sp_slots_read(struct sp_arguments *a, struct sp_slots slots, struct sp_err *e)
{
    const struct reader r = {a, &a->json, slots};
    struct sp_json *j = &a->json;
    uint64_t seen = 0; /* a bit for each slot */

    assert(slots.count <= SP_SLOTS_MAX);
    if (sp_json_type(j, 0) != SP_JSON_OBJECT)
        return wrong_type(&r, 0, "a map", e);
    for (uint32_t key = sp_json_first(j, 0); key != SP_JSON_NONE; key = sp_json_next(j, 0, key)) {
        const struct sp_slot *s = find_slot(&slots, sp_json_str(j, key));

        if (s == NULL || (sp_json_type(j, key + 1) == SP_JSON_NULL && !s->is_needed))
            continue;
        const int result = take_value(&r, key + 1, s, e);
        if (result < 0 && !has_places(&r) && e->code != SP_E_SYSTEM) {
            const struct sp_err why = *e;

            return sp_fail(e, why.code, why.sys, "`%s`: %s", s->name, why.msg);
        }
        if (result < 0)
            return result;
        if (s->has != NULL)
            *s->has = true;
        seen |= UINT64_C(1) << (s - slots.items);
    }
    for (size_t i = 0; i < slots.count; i++)
        if (slots.items[i].is_needed && (seen >> i & 1) == 0) {
            (void)sp_fail(e, SP_E_INVALID, 0, "missing field `%s`", slots.items[i].name);
            return fail_at(&r, (size_t)j->tokens[0].off + j->tokens[0].len, e);
        }
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arguments: the JSON arguments of tools, read by tables of slots.
 *
 * exec_command and write_stdin exist twice: as codex defines them, for the C library, and with
 * further members, for MCP. Both share a table, so that a member has one type in both.
 *
 * The C library reports errors exactly as codex does, including the position:
 *
 *   invalid type: string "x", expected u64 at line 1 column 9
 *
 * The position needs the text as it was written, since reading a string unescapes it in place.
 * MCP's own tools name the member instead.
 */
#include "mcp/arguments.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "approve/judge.h"
#include "base/auto.h"
#include "base/sha.h"
#include "sandbox/policy_json.h"

#define EXPONENT_MAX 1000000 /* larger than any shift that a text of this length can need */
#define SHOWN_MAX    40      /* bytes of a wrong number that an error repeats */

/* ---- numbers ---- */

/* false: above u64. */
static bool append_digit(uint64_t *v, unsigned digit)
{
    return !__builtin_mul_overflow(*v, (uint64_t)10, v) &&
           !__builtin_add_overflow(*v, (uint64_t)digit, v);
}

/* A number in JSON's grammar, without the zeros around its digits. */
struct decimal {
    bool is_negative;
    const char *first, *last; /* digits that are not 0; a point may be between them. NULL: zero */
    int64_t written;          /* exponent, as written */
    int64_t exponent;         /* of *last */
};

static struct decimal read_decimal(struct sp_str text)
{
    const char *end = text.p + text.n;
    const char *p = text.p;
    struct decimal d = {.is_negative = text.n > 0 && *p == '-'};
    const char *point = NULL;
    int64_t behind = 0; /* digits after the point up to `last`; negative: zeros before the point */

    for (p += d.is_negative; p < end && *p != 'e' && *p != 'E'; p++) {
        if (*p == '.')
            point = p;
        else if (d.first != NULL && point == NULL)
            behind--;
        if (*p < '1' || *p > '9')
            continue;
        if (d.first == NULL)
            d.first = p;
        d.last = p;
        behind = point == NULL ? 0 : p - point;
    }
    if (p != end) {
        p++;
        const bool is_small = p < end && *p == '-';
        if (p < end && (*p == '-' || *p == '+'))
            p++;
        for (; p < end; p++)
            if (d.written < EXPONENT_MAX)
                d.written = d.written * 10 + (*p - '0');
        if (is_small)
            d.written = -d.written;
    }
    d.exponent = d.written - behind;
    return d;
}

enum sp_number_kind sp_number_read(struct sp_str text, struct sp_number *ret)
{
    const struct decimal d = read_decimal(text);
    struct sp_number v = {.is_negative = d.is_negative};

    if (d.first != NULL && d.exponent < 0)
        return SP_NUMBER_FRACTION;
    for (const char *p = d.first; p != NULL && p <= d.last; p++)
        if (*p != '.' && !append_digit(&v.magnitude, (unsigned)(*p - '0')))
            return SP_NUMBER_TOO_BIG;
    /* At most 20 rounds: the magnitude is not 0. */
    for (int64_t zeros = d.first == NULL ? 0 : d.exponent; zeros > 0; zeros--)
        if (!append_digit(&v.magnitude, 0))
            return SP_NUMBER_TOO_BIG;
    *ret = v;
    return SP_NUMBER_WHOLE;
}

/* ---- parsing ---- */

int sp_arguments_parse(struct sp_arguments *a, struct sp_str text, struct sp_err *e)
{
    a->written = text;
    a->text = malloc(text.n + 1);
    if (a->text == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read function arguments");
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
    bool is_codex;
};

/* Appends " at line L column C" for a parser that has consumed `at` bytes. */
static int fail_at(const struct reader *r, size_t at, struct sp_err *e)
{
    size_t line = 1;
    size_t begin = 0;
    const struct sp_err why = *e;

    if (!r->is_codex)
        return -(int)e->code;
    for (size_t i = 0; i < at; i++)
        if (r->a->written.p[i] == '\n') {
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
    const struct sp_str text = r->a->written;
    size_t at = t->off;

    if (!r->is_codex || t->type == SP_JSON_ARRAY || t->type == SP_JSON_OBJECT)
        return at;
    if (t->type != SP_JSON_STRING)
        return at + t->len;
    while (at < text.n && text.p[at] != '"')
        at += text.p[at] == '\\' ? 2 : 1;
    return at + 1;
}

static bool is_number(const struct reader *r, uint32_t token)
{
    const enum sp_json_type type = sp_json_type(r->j, token);

    return type == SP_JSON_INT || type == SP_JSON_UINT || type == SP_JSON_REAL;
}

/* problem: "type" or, for a number that is out of range, "value". */
static int refuse_value(const struct reader *r, uint32_t token, const char *problem,
                        const char *expected, struct sp_err *e)
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
    const size_t at = place_of(r, token);
    struct sp_str shown = sp_json_raw(r->j, token);

    for (size_t i = 0; !r->is_codex && i < sizeof words / sizeof words[0]; i++)
        if (strcmp(expected, words[i].codex) == 0)
            expected = words[i].plain;
    if (shown.n > SHOWN_MAX)
        shown.n = SHOWN_MAX;
    if (!is_number(r, token))
        (void)sp_json_wrong_type(r->j, token, expected, e);
    else
        (void)sp_fail(e, SP_E_INVALID, 0, "invalid %s: %s `" SP_STR_FMT "`, expected %s", problem,
                      sp_json_type(r->j, token) == SP_JSON_REAL && strcmp(problem, "type") == 0
                          ? "floating point"
                          : "integer",
                      SP_STR_ARG(shown), expected);
    return fail_at(r, at, e);
}

/* ---- values ---- */

static int take_number(const struct reader *r, uint32_t token, const struct sp_slot *s,
                       struct sp_err *e)
{
    static const struct {
        const char *expected;
        uint64_t max;
    } types[] = {
        [SP_SLOT_U64] = {"u64", UINT64_MAX},
        [SP_SLOT_USIZE] = {"usize", UINT64_MAX},
        [SP_SLOT_U16] = {"1 to 65535", UINT16_MAX},
        [SP_SLOT_I32] = {"i32", INT32_MAX},
    };
    const bool is_signed = s->type == SP_SLOT_I32;
    struct sp_number v = {0};
    const enum sp_number_kind kind =
        is_number(r, token) ? sp_number_read(sp_json_raw(r->j, token), &v) : SP_NUMBER_FRACTION;

    if (kind == SP_NUMBER_FRACTION)
        return refuse_value(r, token, "type", types[s->type].expected, e);
    v.is_negative = v.is_negative && v.magnitude != 0;
    if (kind == SP_NUMBER_TOO_BIG || (v.is_negative && !is_signed) ||
        v.magnitude - v.is_negative > types[s->type].max ||
        (v.magnitude == 0 && s->type == SP_SLOT_U16))
        return refuse_value(r, token, "value", types[s->type].expected, e);
    if (is_signed)
        *(int *)s->to = (int)(v.is_negative ? -(int64_t)v.magnitude : (int64_t)v.magnitude);
    else if (s->type == SP_SLOT_U16)
        *(uint16_t *)s->to = (uint16_t)v.magnitude;
    else
        *(uint64_t *)s->to = v.magnitude;
    return 0;
}

static int take_words(const struct reader *r, uint32_t token, const struct sp_slot *s,
                      struct sp_err *e)
{
    uint32_t count = 0;

    if (sp_json_type(r->j, token) != SP_JSON_ARRAY)
        return refuse_value(r, token, "type", "a sequence", e);
    struct sp_str *words =
        sp_arena_new(&r->a->keep, ((size_t)r->j->tokens[token].children + 1) * sizeof *words);
    if (words == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read function arguments");
    for (uint32_t t = sp_json_first(r->j, token); t != SP_JSON_NONE;
         t = sp_json_next(r->j, token, t)) {
        if (sp_json_type(r->j, t) != SP_JSON_STRING)
            return refuse_value(r, t, "type", "a string", e);
        words[count++] = sp_json_str(r->j, t);
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

    if (sp_json_type(r->j, token) != SP_JSON_STRING)
        return refuse_value(r, token, "type", "a string", e);
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

static int take_value(const struct reader *r, uint32_t token, const struct sp_slot *s,
                      struct sp_err *e)
{
    const enum sp_json_type type = sp_json_type(r->j, token);
    const size_t end = (size_t)r->j->tokens[token].off + r->j->tokens[token].len;

    switch (s->type) {
    case SP_SLOT_STRING:
        if (type != SP_JSON_STRING)
            return refuse_value(r, token, "type", "a string", e);
        *(struct sp_str *)s->to = sp_json_str(r->j, token);
        return 0;
    case SP_SLOT_BOOL:
        if (type != SP_JSON_TRUE && type != SP_JSON_FALSE)
            return refuse_value(r, token, "type", "a boolean", e);
        *(bool *)s->to = type == SP_JSON_TRUE;
        return 0;
    case SP_SLOT_U64:
    case SP_SLOT_USIZE:
    case SP_SLOT_U16:
    case SP_SLOT_I32:
        return take_number(r, token, s, e);
    case SP_SLOT_WORDS:
        return take_words(r, token, s, e);
    case SP_SLOT_PERMISSIONS:
        return take_permissions(r, token, s->to, e);
    case SP_SLOT_GRANT:
        if (type != SP_JSON_OBJECT)
            return refuse_value(r, token, "type", "a map", e);
        if (sp_grant_read(r->j, token, &r->a->grant, e) < 0)
            return e->code == SP_E_SYSTEM ? -SP_E_SYSTEM : fail_at(r, end, e);
        *(const struct sp_grant **)s->to = &r->a->grant;
        return 0;
    case SP_SLOT_TOKEN:
        *(uint32_t *)s->to = token;
        return 0;
    }
    return 0;
}

/* ---- the whole object ---- */

/* A model that misremembers a name would otherwise get a command other than the one it meant. */
static int refuse_unknown(struct sp_slots slots, struct sp_str name, struct sp_err *e)
{
    char known[280] = "";
    size_t n = 0;

    for (size_t i = 0; i < slots.count && n < sizeof known; i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i == 0 ? "" : ", ",
                              slots.items[i].name);
    return sp_fail(e, SP_E_INVALID, 0, "unknown argument `" SP_STR_FMT "`; this tool takes %s",
                   SP_STR_ARG(sp_policy_shown(name)), slots.count == 0 ? "none" : known);
}

int sp_slots_read(struct sp_arguments *a, struct sp_slots slots, struct sp_err *e)
{
    const struct reader r = {a, &a->json, slots.is_codex};
    struct sp_json *j = &a->json;
    uint64_t seen = 0; /* a bit for each slot */

    assert(slots.count <= SP_SLOTS_MAX);
    if (sp_json_type(j, 0) != SP_JSON_OBJECT)
        return refuse_value(&r, 0, "type", "a map", e);
    for (uint32_t key = sp_json_first(j, 0); key != SP_JSON_NONE; key = sp_json_next(j, 0, key)) {
        const struct sp_str name = sp_json_str(j, key);
        size_t i = 0;

        while (i < slots.count && !sp_str_eq(name, sp_str_of(slots.items[i].name)))
            i++;
        const struct sp_slot *s = &slots.items[i];
        if (i == slots.count && !r.is_codex)
            return refuse_unknown(slots, name, e);
        if (i == slots.count || (sp_json_type(j, key + 1) == SP_JSON_NULL && !s->is_needed))
            continue;
        const int result = take_value(&r, key + 1, s, e);
        if (result < 0 && !r.is_codex && e->code != SP_E_SYSTEM) {
            const struct sp_err why = *e;

            return sp_fail(e, why.code, why.sys, "`%s`: %s", s->name, why.msg);
        }
        if (result < 0)
            return result;
        if (s->has != NULL)
            *s->has = true;
        seen |= UINT64_C(1) << i;
    }
    for (size_t i = 0; i < slots.count; i++)
        if (slots.items[i].is_needed && (seen >> i & 1) == 0) {
            (void)sp_fail(e, SP_E_INVALID, 0, "missing field `%s`", slots.items[i].name);
            return fail_at(&r, (size_t)j->tokens[0].off + j->tokens[0].len, e);
        }
    return 0;
}

/* ---- exec_command and write_stdin ---- */

/* Both lists of slots, in one table. */
static int read_both(struct sp_arguments *a, struct sp_slots own, struct sp_slots more,
                     struct sp_err *e)
{
    struct sp_slot all[SP_SLOTS_MAX];

    assert(own.count + more.count <= SP_SLOTS_MAX);
    memcpy(all, own.items, own.count * sizeof *all);
    if (more.count != 0)
        memcpy(all + own.count, more.items, more.count * sizeof *all);
    own.items = all;
    own.count += more.count;
    own.is_codex = more.is_codex;
    return sp_slots_read(a, own, e);
}

/* Members of both tools; `ask` is a struct sp_exec_request or sp_write_request. */
#define WAIT_SLOTS(request)                                               \
    SP_SLOT(U64, "yield_time_ms", .to = &(request)->yield.yield_time_ms,  \
            .has = &(request)->yield.has_yield_time),                     \
        SP_SLOT(USIZE, "max_output_tokens", .to = &(request)->max_tokens, \
                .has = &(request)->has_max_tokens)

int sp_arguments_exec(struct sp_arguments *a, const struct sp_tools_options *o,
                      struct sp_slots more, struct sp_exec_request *ret, struct sp_err *e)
{
    struct sp_str ignored = {0}; /* takes `shell` where it is fixed */
    const struct sp_slot slots[] = {
        SP_SLOT(STRING, "cmd", .to = &ret->cmd, .is_needed = more.is_codex),
        SP_SLOT(STRING, "workdir", .to = &ret->workdir),
        SP_SLOT(BOOL, "tty", .to = &ret->is_tty),
        WAIT_SLOTS(ret),
        SP_SLOT(STRING, "shell", .to = o->has_fixed_shell ? &ignored : &ret->shell),
        SP_SLOT(BOOL, "login", .to = &ret->login, .has = &ret->has_login),
        SP_SLOT(STRING, "environment_id", .to = &ret->environment_id),
        SP_SLOT(PERMISSIONS, "sandbox_permissions", .to = &ret->permissions,
                .has = &ret->has_permissions),
        SP_SLOT(GRANT, "additional_permissions", .to = &ret->additional),
        SP_SLOT(STRING, "justification", .to = &ret->justification),
        SP_SLOT(WORDS, "prefix_rule", .to = &ret->prefix_rule, .count = &ret->prefix_rule_count),
    };

    return read_both(a, SP_SLOTS(slots), more, e);
}

int sp_arguments_write(struct sp_arguments *a, const struct sp_tools_options *o,
                       struct sp_slots more, struct sp_write_request *ret, struct sp_err *e)
{
    const struct sp_slot slots[] = {
        SP_SLOT(I32, "session_id", .to = &ret->session_id, .is_needed = true),
        SP_SLOT(STRING, "chars", .to = &ret->chars),
        WAIT_SLOTS(ret),
        SP_SLOT(BOOL, "no_timeout", .to = &ret->no_timeout),
    };
    struct sp_slots own = SP_SLOTS(slots);

    own.count -= !o->has_no_timeout; /* without the feature, the last member is unknown */
    return read_both(a, own, more, e);
}

/* ---- unified_exec ---- */

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static int read_session_id(struct sp_str text, int *ret, struct sp_err *e)
{
    const bool has_sign = text.n > 1 && (text.p[0] == '-' || text.p[0] == '+');
    const bool is_negative = has_sign && text.p[0] == '-';
    const struct sp_str digits = {text.p + has_sign, text.n - has_sign};
    const char *why = digits.n == 0 ? "cannot parse integer from empty string"
                                    : "number too large to fit in target type";
    uint64_t v = 0;

    for (size_t i = 0; i < digits.n; i++)
        if (digits.p[i] < '0' || digits.p[i] > '9')
            why = "invalid digit found in string";
    if (!sp_str_to_u64(digits, (uint64_t)INT32_MAX + is_negative, &v))
        return sp_fail(e, SP_E_NOT_FOUND, 0, "invalid session_id: " SP_STR_FMT " due to error %s",
                       SP_STR_ARG(sp_policy_shown(text)), why);
    *ret = (int)(is_negative ? -(int64_t)v : (int64_t)v);
    return 0;
}

int sp_arguments_compat(struct sp_arguments *a, struct sp_compat_request *ret, struct sp_err *e)
{
    const struct sp_slot slots[] = {
        SP_SLOT(WORDS, "input", .to = &ret->input, .count = &ret->input_count, .is_needed = true),
        SP_SLOT(STRING, "session_id", .to = &ret->session_id),
        SP_SLOT(U64, "timeout_ms", .to = &ret->timeout.yield_time_ms,
                .has = &ret->timeout.has_yield_time),
    };
    struct sp_slots all = SP_SLOTS(slots);
    size_t most = 1;

    all.is_codex = true;
    const int r = sp_slots_read(a, all, e);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < ret->input_count; i++)
        most += ret->input[i].n + 1;
    char *chars = sp_arena_new(&a->keep, most);
    size_t n = 0;
    if (chars == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read function arguments");
    for (uint32_t i = 0; i < ret->input_count; i++) {
        const struct sp_str part = ret->input[i];

        if (part.n == 0)
            continue;
        if (n != 0 && !is_space(chars[n - 1]) && !is_space(part.p[0]))
            chars[n++] = ' ';
        memcpy(chars + n, part.p, part.n);
        n += part.n;
    }
    ret->chars = (struct sp_str){chars, n};
    return ret->session_id.p == NULL ? 0 : read_session_id(ret->session_id, &ret->id, e);
}

/* ---- the digest of a call ----
 *
 * Each value is written as a letter for its kind, its length or count, and its bytes, so different
 * values never look alike. Members are sorted by name. A number becomes its digits and a power of
 * ten, which is exact. Values nest no deeper than the JSON parser allows.
 */

static bool add_bytes(struct sp_buf *out, char kind, struct sp_str s)
{
    return sp_buf_printf(out, "%c%zu:", kind, s.n) && sp_buf_add_str(out, s);
}

static bool add_number(struct sp_buf *out, struct sp_str all)
{
    const struct decimal d = read_decimal(all);
    auto_buf struct sp_buf digits = {0};

    if (d.first == NULL)
        return sp_buf_add(out, "0", 1); /* sign and exponent of zero do not matter */
    if (d.written >= EXPONENT_MAX ||
        d.written <= -EXPONENT_MAX) /* no number that is used: as text */
        return add_bytes(out, 'r', all);
    for (const char *p = d.first; p <= d.last; p++)
        if (*p != '.' && !sp_buf_add(&digits, p, 1))
            return false;
    return sp_buf_printf(out, "n%c%" PRId64 ",", d.is_negative ? '-' : '+', d.exponent) &&
           add_bytes(out, 'd', sp_buf_str(&digits));
}

struct member {
    struct sp_str name;
    uint32_t value;
};

static int compare_names(const void *a, const void *b)
{
    return sp_str_compare(((const struct member *)a)->name, ((const struct member *)b)->name);
}

static bool add_value(struct sp_buf *out, struct sp_json *j, uint32_t token);

static bool add_object(struct sp_buf *out, struct sp_json *j, uint32_t token)
{
    const uint32_t count = j->tokens[token].children;
    auto_free struct member *members = calloc((size_t)count + 1, sizeof *members);
    uint32_t n = 0;
    bool ok = members != NULL && sp_buf_printf(out, "o%" PRIu32 ":", count);

    if (!ok)
        return false;
    for (uint32_t i = sp_json_first(j, token); i != SP_JSON_NONE; i = sp_json_next(j, token, i))
        members[n++] = (struct member){sp_json_str(j, i), i + 1};
    qsort(members, n, sizeof *members, compare_names);
    for (uint32_t i = 0; ok && i < n; i++)
        ok = add_bytes(out, 's', members[i].name) && add_value(out, j, members[i].value);
    return ok;
}

static bool add_value(struct sp_buf *out, struct sp_json *j, uint32_t token)
{
    bool ok = true;

    switch (sp_json_type(j, token)) {
    case SP_JSON_NULL:
        return sp_buf_add(out, "z", 1);
    case SP_JSON_FALSE:
        return sp_buf_add(out, "f", 1);
    case SP_JSON_TRUE:
        return sp_buf_add(out, "t", 1);
    case SP_JSON_INT:
    case SP_JSON_UINT:
    case SP_JSON_REAL:
        return add_number(out, sp_json_raw(j, token));
    case SP_JSON_STRING:
        return add_bytes(out, 's', sp_json_str(j, token));
    case SP_JSON_OBJECT:
        return add_object(out, j, token);
    case SP_JSON_ARRAY:
        break;
    }
    ok = sp_buf_printf(out, "a%" PRIu32 ":", j->tokens[token].children);
    for (uint32_t i = sp_json_first(j, token); ok && i != SP_JSON_NONE;
         i = sp_json_next(j, token, i))
        ok = add_value(out, j, i);
    return ok;
}

bool sp_arguments_digest(struct sp_arguments *a, struct sp_str tool, struct sp_mcp_digest *ret)
{
    auto_buf struct sp_buf text = {0};

    if (!add_bytes(&text, 's', tool) || !add_value(&text, &a->json, 0))
        return false;
    sp_sha256(sp_buf_str(&text), ret->bytes);
    return true;
}

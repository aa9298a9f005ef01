/* SPDX-License-Identifier: Apache-2.0 */
/*
 * digest: what a call is about, whichever way it was written down. Each value becomes a letter for
 * its kind, its length or count, and its bytes, so no two different ones look alike; members come
 * in the order of their names; a number is its digits and a power of ten, which is exact.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/json.h"
#include "base/sha.h"
#include "mcp/parking.h"

#define EXPONENT_DIGITS_MAX 15 /* of longer ones only the same spelling is the same */

static bool add_bytes(struct sp_buf *out, char kind, struct sp_str s)
{
    return sp_buf_printf(out, "%c%zu:", kind, s.n) && sp_buf_add_str(out, s);
}

/* ---- numbers ---- */

struct decimal {
    bool is_negative;
    struct sp_buf digits; /* without zeros at either end; empty: zero */
    int64_t exponent;     /* of the last digit */
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The digits before and after the point; how many characters they are. */
static size_t read_digits(struct sp_str text, struct decimal *d)
{
    bool is_fraction = false;
    size_t i = 0;

    for (; i < text.n && (is_digit(text.p[i]) || text.p[i] == '.'); i++) {
        if (text.p[i] == '.') {
            is_fraction = true;
            continue;
        }
        if (text.p[i] != '0' || d->digits.len != 0)
            if (!sp_buf_add(&d->digits, &text.p[i], 1))
                return SIZE_MAX;
        d->exponent -= is_fraction;
    }
    return i;
}

/* false: it is larger than anybody means. */
static bool read_exponent(struct sp_str text, struct decimal *d)
{
    uint64_t n = 0;
    bool is_negative = false;

    if (text.n == 0)
        return true;
    text = (struct sp_str){text.p + 1, text.n - 1}; /* e */
    if (text.n != 0 && (text.p[0] == '-' || text.p[0] == '+')) {
        is_negative = text.p[0] == '-';
        text = (struct sp_str){text.p + 1, text.n - 1};
    }
    while (text.n > 1 && text.p[0] == '0')
        text = (struct sp_str){text.p + 1, text.n - 1};
    if (text.n > EXPONENT_DIGITS_MAX || !sp_str_to_u64(text, INT64_MAX, &n))
        return false;
    d->exponent += is_negative ? -(int64_t)n : (int64_t)n;
    return true;
}

static bool add_decimal(struct sp_buf *out, struct sp_str text, struct decimal *d)
{
    const struct sp_str all = text;

    if (text.n != 0 && text.p[0] == '-') {
        d->is_negative = true;
        text = (struct sp_str){text.p + 1, text.n - 1};
    }
    const size_t used = read_digits(text, d);
    if (used == SIZE_MAX)
        return false;
    if (d->digits.len == 0)
        return sp_buf_add(out, "0", 1); /* whatever its sign and its exponent */
    if (!read_exponent((struct sp_str){text.p + used, text.n - used}, d))
        return add_bytes(out, 'r', all);
    for (; d->digits.data[d->digits.len - 1] == '0'; d->digits.len--)
        d->exponent++;
    return sp_buf_printf(out, "n%c%" PRId64 ",", d->is_negative ? '-' : '+', d->exponent) &&
           add_bytes(out, 'd', (struct sp_str){d->digits.data, d->digits.len});
}

static bool add_number(struct sp_buf *out, struct sp_str text)
{
    struct decimal d = {0};
    const bool ok = add_decimal(out, text, &d);

    sp_buf_done(&d.digits);
    return ok;
}

/* ---- values; they nest no deeper than the reader allows ---- */

static bool add_value(struct sp_buf *out, struct sp_json *j, uint32_t token);

static bool add_array(struct sp_buf *out, struct sp_json *j, uint32_t token)
{
    bool ok = sp_buf_printf(out, "a%" PRIu32 ":", j->tokens[token].children);

    for (uint32_t i = sp_json_first(j, token); ok && i != SP_JSON_NONE;
         i = sp_json_next(j, token, i))
        ok = add_value(out, j, i);
    return ok;
}

struct member {
    struct sp_str name;
    uint32_t value;
};

static int compare_names(const void *a, const void *b)
{
    const struct sp_str x = ((const struct member *)a)->name;
    const struct sp_str y = ((const struct member *)b)->name;
    const size_t n = x.n < y.n ? x.n : y.n;
    const int order = n == 0 ? 0 : memcmp(x.p, y.p, n);

    return order != 0 ? order : (x.n > y.n) - (x.n < y.n);
}

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
    case SP_JSON_ARRAY:
        return add_array(out, j, token);
    case SP_JSON_OBJECT:
        break;
    }
    return add_object(out, j, token);
}

/* ---- the whole ---- */

/* No arguments are none at all, or an object without members. */
static int add_arguments(struct sp_buf *out, struct sp_str arguments, struct sp_err *e)
{
    const struct sp_str said = arguments.n == 0 ? SP_STR("{}") : arguments;
    auto_buf struct sp_buf text = {0};
    struct sp_json j = {0};

    if (!sp_buf_add_str(&text, said) || !sp_buf_add(&text, "", 1))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "look at a call");
    int r = sp_json_parse(&j, text.data, said.n, e);
    if (r == 0 && !add_value(out, &j, 0))
        r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "look at a call");
    sp_json_done(&j);
    return r;
}

int sp_mcp_digest_of(struct sp_str tool, struct sp_str arguments, struct sp_mcp_digest *ret,
                     struct sp_err *e)
{
    auto_buf struct sp_buf text = {0};

    if (!add_bytes(&text, 's', tool))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "look at a call");
    const int r = add_arguments(&text, arguments, e);
    if (r < 0)
        return r;
    sp_sha256((struct sp_str){text.data, text.len}, ret->bytes);
    return 0;
}

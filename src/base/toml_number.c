/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers, dates and times. */
#include <locale.h>
#include <math.h>
#include <stdlib.h>

#include "base/auto.h"
#include "base/toml_priv.h"

/* ---- dates and times ---- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The value of `count` digits at p + off; -1: not all of these are digits. */
static int digits_at(const struct sp_toml_reader *r, size_t off, size_t count)
{
    int v = 0;

    if ((size_t)(r->end - r->p) < off + count)
        return -1;
    for (size_t i = off; i < off + count; i++) {
        if (!is_digit(r->p[i]))
            return -1;
        v = v * 10 + (r->p[i] - '0');
    }
    return v;
}

static bool has_at(const struct sp_toml_reader *r, size_t off, char c)
{
    return (size_t)(r->end - r->p) > off && r->p[off] == c;
}

static int days_of(int year, int month)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    const bool is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);

    return month == 2 && is_leap ? 29 : days[month - 1];
}

static bool read_day(struct sp_toml_reader *r)
{
    const int year = digits_at(r, 0, 4);
    const int month = digits_at(r, 5, 2);
    const int day = digits_at(r, 8, 2);

    if (month < 0 || day < 0 || !has_at(r, 7, '-'))
        return sp_toml_fail(r, r->p, "a date is written YYYY-MM-DD");
    if (year < 1 || month < 1 || month > 12 || day < 1 || day > days_of(year, month))
        return sp_toml_fail(r, r->p, "there is no such date");
    r->p += 10;
    return true;
}

static bool read_time(struct sp_toml_reader *r)
{
    const int hour = digits_at(r, 0, 2);
    const int minute = digits_at(r, 3, 2);
    const int second = digits_at(r, 6, 2);

    if (hour < 0 || minute < 0 || second < 0 || !has_at(r, 2, ':') || !has_at(r, 5, ':'))
        return sp_toml_fail(r, r->p, "a time is written HH:MM:SS");
    if (hour > 23 || minute > 59 || second > 59)
        return sp_toml_fail(r, r->p, "there is no such time");
    r->p += 8;
    if (has_at(r, 0, '.')) {
        if (digits_at(r, 1, 1) < 0)
            return sp_toml_fail(r, r->p, "expected digits after the point");
        r->p++;
        while (r->p < r->end && is_digit(*r->p))
            r->p++;
    }
    return true;
}

static bool read_offset(struct sp_toml_reader *r, bool *ret_has)
{
    if (has_at(r, 0, 'Z') || has_at(r, 0, 'z')) {
        *ret_has = true;
        r->p++;
        return true;
    }
    if (!has_at(r, 0, '+') && !has_at(r, 0, '-'))
        return true;
    const int hour = digits_at(r, 1, 2);
    const int minute = digits_at(r, 4, 2);
    if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || !has_at(r, 3, ':'))
        return sp_toml_fail(r, r->p, "the offset of a time is written +HH:MM, -HH:MM or Z");
    *ret_has = true;
    r->p += 6;
    return true;
}

static bool read_date_time(struct sp_toml_reader *r, struct sp_toml_value *v)
{
    bool has_offset = false;

    v->type = SP_TOML_LOCAL_DATE;
    if (!read_day(r))
        return false;
    if (!has_at(r, 0, 'T') && !has_at(r, 0, 't') && !(has_at(r, 0, ' ') && digits_at(r, 1, 1) >= 0))
        return true;
    r->p++;
    if (!read_time(r) || !read_offset(r, &has_offset))
        return false;
    v->type = has_offset ? SP_TOML_OFFSET_DATE_TIME : SP_TOML_LOCAL_DATE_TIME;
    return true;
}

/* A date, a time, or both. *ret_is: whether r->p is at one; if not, nothing was read. */
static bool read_date_or_time(struct sp_toml_reader *r, struct sp_toml_value *v, bool *ret_is)
{
    const char *first = r->p;
    const bool is_time = digits_at(r, 0, 2) >= 0 && has_at(r, 2, ':');

    *ret_is = is_time || (digits_at(r, 0, 4) >= 0 && has_at(r, 4, '-'));
    if (!*ret_is)
        return true;
    v->type = SP_TOML_LOCAL_TIME;
    if (!(is_time ? read_time(r) : read_date_time(r, v)))
        return false;
    v->text = (struct sp_str){first, (size_t)(r->p - first)};
    return true;
}

/* ---- integers ---- */

static int digit_of(char c, int base)
{
    const int d = sp_hex_digit(c);

    return d < base ? d : -1;
}

/* At least one digit; single underscores may stand between two of them. */
static bool skip_digits(struct sp_toml_reader *r, int base)
{
    if (r->p == r->end || digit_of(*r->p, base) < 0)
        return sp_toml_fail(r, r->p, "expected a digit");
    while (r->p < r->end && (digit_of(*r->p, base) >= 0 || *r->p == '_')) {
        if (*r->p == '_' && (r->end - r->p < 2 || digit_of(r->p[1], base) < 0))
            return sp_toml_fail(r, r->p, "an underscore stands between two digits");
        r->p++;
    }
    return true;
}

/* Digits that skip_digits has accepted. */
static bool make_integer(struct sp_toml_reader *r, struct sp_toml_value *v, struct sp_str digits,
                         int base, bool is_negative)
{
    int64_t n = 0;

    for (size_t i = 0; i < digits.n; i++) {
        if (digits.p[i] == '_')
            continue;
        const int64_t d = digit_of(digits.p[i], base);

        /* A negative number is built downwards: INT64_MIN has no positive counterpart. */
        if (__builtin_mul_overflow(n, (int64_t)base, &n) ||
            __builtin_add_overflow(n, is_negative ? -d : d, &n))
            return sp_toml_fail(r, digits.p, "an integer has at most 64 bits");
    }
    v->type = SP_TOML_INTEGER;
    v->integer = n;
    return true;
}

/* ---- floats ---- */

static bool make_float(struct sp_toml_reader *r, struct sp_toml_value *v, struct sp_str text)
{
    auto_free char *plain = malloc(text.n + 1);
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* "." for any LC_NUMERIC */
    size_t n = 0;

    if (plain == NULL || c == (locale_t)0) {
        if (c != (locale_t)0)
            freelocale(c);
        return sp_toml_no_memory(r);
    }
    for (size_t i = 0; i < text.n; i++)
        if (text.p[i] != '_')
            plain[n++] = text.p[i];
    plain[n] = 0;
    v->type = SP_TOML_FLOAT;
    v->real = strtod_l(plain, NULL, c);
    freelocale(c);
    return true;
}

static bool read_decimal(struct sp_toml_reader *r, struct sp_toml_value *v, const char *first,
                         bool is_negative)
{
    const char *digits = r->p;

    if (!skip_digits(r, 10))
        return false;
    const struct sp_str whole = {digits, (size_t)(r->p - digits)};
    if (whole.n > 1 && digits[0] == '0')
        return sp_toml_fail(r, digits, "a number does not begin with 0");
    if (!has_at(r, 0, '.') && !has_at(r, 0, 'e') && !has_at(r, 0, 'E'))
        return make_integer(r, v, whole, 10, is_negative);

    if (*r->p == '.') {
        r->p++;
        if (!skip_digits(r, 10))
            return false;
    }
    if (has_at(r, 0, 'e') || has_at(r, 0, 'E')) {
        r->p++;
        if (has_at(r, 0, '+') || has_at(r, 0, '-'))
            r->p++;
        if (!skip_digits(r, 10))
            return false;
    }
    return make_float(r, v, (struct sp_str){first, (size_t)(r->p - first)});
}

bool sp_toml_read_number(struct sp_toml_reader *r, struct sp_toml_value *v)
{
    const char *first = r->p;
    const bool is_negative = *r->p == '-';
    bool is_date = false;

    if (!read_date_or_time(r, v, &is_date))
        return false;
    if (is_date)
        return true;
    const int base = sp_toml_is_here(r, "0x")   ? 16
                     : sp_toml_is_here(r, "0o") ? 8
                     : sp_toml_is_here(r, "0b") ? 2
                                                : 10;
    if (base != 10) {
        const char *digits = r->p += 2;

        return skip_digits(r, base) &&
               make_integer(r, v, (struct sp_str){digits, (size_t)(r->p - digits)}, base, false);
    }
    if (*r->p == '+' || *r->p == '-')
        r->p++;
    if (!sp_toml_is_here(r, "inf") && !sp_toml_is_here(r, "nan"))
        return read_decimal(r, v, first, is_negative);
    const double real = *r->p == 'i' ? (double)INFINITY : (double)NAN;
    v->type = SP_TOML_FLOAT;
    v->real = is_negative ? -real : real;
    r->p += 3;
    return true;
}

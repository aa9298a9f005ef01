/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers, booleans, dates and times in their one form. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/toml_write_priv.h"

#define MAX_DIGITS 17 /* that a double may need */

/* ---- floats ---- */

/* The fewest digits that mean this number, d.ddd, and its power of ten. */
static int find_digits(double v, char digits[MAX_DIGITS + 1], int *ret_power)
{
    char text[40];

    for (int n = 1; n <= MAX_DIGITS; n++) {
        (void)snprintf(text, sizeof text, "%.*e", n - 1, v);
        if (n < MAX_DIGITS && strtod(text, NULL) != v)
            continue;
        const char *e = strchr(text, 'e');
        int count = 0;

        for (const char *p = text; p < e && count < MAX_DIGITS; p++)
            if (*p >= '0' && *p <= '9')
                digits[count++] = *p;
        *ret_power = atoi(e + 1); /* NOLINT(cert-err34-c): snprintf wrote it */
        return count;
    }
    return 0;
}

static bool add_zeros(struct sp_buf *out, int n)
{
    bool ok = true;

    while (ok && n-- > 0)
        ok = sp_buf_add(out, "0", 1);
    return ok;
}

/* Never with an exponent. */
static bool add_positive(struct sp_buf *out, double v)
{
    char digits[MAX_DIGITS + 1];
    int power = 0;
    const int n = find_digits(v, digits, &power);
    const int whole = power + 1; /* digits before the point */

    if (whole <= 0)
        return sp_buf_printf(out, "0.") && add_zeros(out, -whole) &&
               sp_buf_add(out, digits, (size_t)n);
    if (whole >= n)
        return sp_buf_add(out, digits, (size_t)n) && add_zeros(out, whole - n) &&
               sp_buf_printf(out, ".0");
    return sp_buf_add(out, digits, (size_t)whole) && sp_buf_add(out, ".", 1) &&
           sp_buf_add(out, digits + whole, (size_t)(n - whole));
}

static bool add_float(struct sp_buf *out, double v)
{
    if (isnan(v))
        return sp_buf_printf(out, "nan");
    if (signbit(v) && !sp_buf_add(out, "-", 1))
        return false;
    v = fabs(v);
    if (isinf(v))
        return sp_buf_printf(out, "inf");
    return v == 0 ? sp_buf_printf(out, "0.0") : add_positive(out, v);
}

/* ---- dates and times ---- */

/* Fractions of a second: at most nine digits, no zeros at the end, none at all if they are zero. */
static bool add_fraction(struct sp_buf *out, const char *digits, size_t n)
{
    if (n > 9)
        n = 9;
    while (n > 0 && digits[n - 1] == '0')
        n--;
    return n == 0 || (sp_buf_add(out, ".", 1) && sp_buf_add(out, digits, n));
}

/* As it was written (the reader has checked it), but with T and Z as capitals, and one zero. */
static bool add_date(struct sp_buf *out, struct sp_str s)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];

        if (c == '.') {
            const size_t from = ++i;

            while (i < s.n && s.p[i] >= '0' && s.p[i] <= '9')
                i++;
            if (!add_fraction(out, s.p + from, i - from))
                return false;
            i--;
            continue;
        }
        if (c == '-' && i + 6 == s.n && memcmp(s.p + i, "-00:00", 6) == 0)
            c = '+';
        else if (c == 't' || c == ' ')
            c = 'T';
        else if (c == 'z')
            c = 'Z';
        if (!sp_buf_add(out, &c, 1))
            return false;
    }
    return true;
}

bool sp_toml_write_scalar(struct sp_buf *out, const struct sp_toml_value *v)
{
    switch (v->type) {
    case SP_TOML_STRING:
        return sp_toml_write_string(out, v->text);
    case SP_TOML_INTEGER:
        return sp_buf_printf(out, "%lld", (long long)v->integer);
    case SP_TOML_FLOAT:
        return add_float(out, v->real);
    case SP_TOML_BOOLEAN:
        return sp_buf_printf(out, v->boolean ? "true" : "false");
    case SP_TOML_OFFSET_DATE_TIME:
    case SP_TOML_LOCAL_DATE_TIME:
    case SP_TOML_LOCAL_DATE:
    case SP_TOML_LOCAL_TIME:
        return add_date(out, v->text);
    case SP_TOML_ARRAY:
    case SP_TOML_TABLE:
        break;
    }
    return false;
}

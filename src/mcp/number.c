/* SPDX-License-Identifier: Apache-2.0 */
#include "mcp/number.h"

#define EXPONENT_MAX 1000000 /* far above what any text that fits can shift by */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* How far the exponent at the end shifts the point; its letter is at p. */
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

/* Digits with a point somewhere, without the zeros at either end. */
struct digits {
    const char *first, *last; /* of those that are not zero; NULL: there is none */
    int64_t behind;           /* digits after the point, up to `last`; negative: zeros before it */
};

static struct digits find_digits(const char *p, const char *end)
{
    struct digits d = {0};
    const char *point = NULL;

    for (; p < end; p++) {
        if (*p == '.')
            point = p;
        else if (d.first != NULL && point == NULL)
            d.behind--;
        if (!is_digit(*p) || *p == '0')
            continue;
        if (d.first == NULL)
            d.first = p;
        d.last = p;
        d.behind = point == NULL ? 0 : p - point;
    }
    return d;
}

/* false: above u64 */
static bool push(uint64_t *v, unsigned digit)
{
    return !__builtin_mul_overflow(*v, (uint64_t)10, v) &&
           !__builtin_add_overflow(*v, (uint64_t)digit, v);
}

enum sp_number_kind sp_number_read(struct sp_str text, struct sp_number *ret)
{
    const char *end = text.p + text.n;
    const char *p = text.p;
    struct sp_number v = {.is_negative = text.n > 0 && *p == '-'};

    p += v.is_negative;
    const char *tail = p;
    while (tail < end && *tail != 'e' && *tail != 'E')
        tail++;
    const struct digits d = find_digits(p, tail);
    int64_t zeros = read_exponent(tail, end) - d.behind;

    if (d.first == NULL) {
        *ret = v;
        return SP_NUMBER_WHOLE;
    }
    if (zeros < 0)
        return SP_NUMBER_FRACTION;
    for (p = d.first; p <= d.last; p++)
        if (*p != '.' && !push(&v.magnitude, (unsigned)(*p - '0')))
            return SP_NUMBER_TOO_BIG;
    for (; zeros > 0; zeros--) /* twenty rounds at most: it is not zero */
        if (!push(&v.magnitude, 0))
            return SP_NUMBER_TOO_BIG;
    *ret = v;
    return SP_NUMBER_WHOLE;
}

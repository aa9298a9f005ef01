/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text: putting JSON together by hand, on the paths where every byte counts.
 */
#ifndef SP_SERVER_RPC_TEXT_H
#define SP_SERVER_RPC_TEXT_H

#include <stdint.h>
#include <string.h>

#include "base/str.h"

#define SP_DECIMAL_MAX 20

static inline char *sp_put(char *out, const char *text, size_t n)
{
    memcpy(out, text, n);
    return out + n;
}

#define sp_put_literal(out, literal) sp_put((out), (literal), sizeof(literal) - 1)

static inline char *sp_put_str(char *out, struct sp_str s)
{
    return sp_put(out, s.p, s.n);
}

static inline char *sp_put_u64(char *out, uint64_t v)
{
    char digits[SP_DECIMAL_MAX];
    size_t n = sizeof digits;

    do
        digits[--n] = (char)('0' + v % 10);
    while ((v /= 10) != 0);
    return sp_put(out, digits + n, sizeof digits - n);
}

static inline char *sp_put_i64(char *out, int64_t v)
{
    if (v >= 0)
        return sp_put_u64(out, (uint64_t)v);
    *out = '-';
    return sp_put_u64(out + 1, 0 - (uint64_t)v);
}

static inline char *sp_put_bool(char *out, bool v)
{
    return v ? sp_put_literal(out, "true") : sp_put_literal(out, "false");
}

#endif

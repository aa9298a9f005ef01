/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Most text is ASCII, so runs of it are skipped by the word; the rest goes character by character
 * through one function that knows the well-formed sequences (Unicode, table 3-7).
 */
#include "base/utf8.h"

#define HIGH_BITS 0x8080808080808080U

/* The length of the ASCII run at p, rounded down to a multiple of 8. */
static size_t ascii_run(const unsigned char *p, size_t n)
{
    size_t i = 0;

    for (; n - i >= 32; i += 32) {
        uint64_t w[4];

        memcpy(w, p + i, 32);
        if (((w[0] | w[1] | w[2] | w[3]) & HIGH_BITS) != 0)
            break;
    }
    for (; n - i >= 8; i += 8) {
        uint64_t w;

        memcpy(&w, p + i, 8);
        if ((w & HIGH_BITS) != 0)
            break;
    }
    return i;
}

/*
 * The length of the character at p, or minus the length of the ill-formed part there: the longest
 * prefix of a well-formed character, else one byte. n is not 0.
 */
static inline int character_length(const unsigned char *p, size_t n)
{
    const unsigned char lead = p[0];
    unsigned char low = 0x80;
    unsigned char high = 0xBF;

    if (lead < 0x80)
        return 1;
    if (lead < 0xC2 || lead > 0xF4) /* a continuation, an overlong form, above U+10FFFF */
        return -1;
    if (lead == 0xE0)
        low = 0xA0; /* below: overlong */
    else if (lead == 0xED)
        high = 0x9F; /* above: surrogates */
    else if (lead == 0xF0)
        low = 0x90; /* below: overlong */
    else if (lead == 0xF4)
        high = 0x8F; /* above: beyond U+10FFFF */

    const int len = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (n < 2 || p[1] < low || p[1] > high)
        return -1;
    for (int i = 2; i < len; i++)
        if ((size_t)i >= n || (p[i] & 0xC0) != 0x80)
            return -i;
    return len;
}

/* The length of the valid prefix; *ret_bad is the length of the ill-formed part after it, or 0. */
static size_t valid_prefix(struct sp_str s, size_t *ret_bad)
{
    const unsigned char *p = (const unsigned char *)s.p;
    size_t i = 0;

    *ret_bad = 0;
    while (i < s.n) {
        if (p[i] < 0x80)
            i += ascii_run(p + i, s.n - i);
        /* Other scripts have only short runs of ASCII: try the fast path every 16 characters only.
         */
        for (int turns = 0; turns < 16 && i < s.n; turns++) {
            const int len = character_length(p + i, s.n - i);

            if (len < 0) {
                *ret_bad = (size_t)-len;
                return i;
            }
            i += (size_t)len;
        }
    }
    return i;
}

bool sp_utf8_is_valid(struct sp_str s)
{
    return sp_utf8_valid_prefix(s) == s.n;
}

size_t sp_utf8_valid_prefix(struct sp_str s)
{
    size_t bad;

    return valid_prefix(s, &bad);
}

bool sp_utf8_add_lossy(struct sp_buf *out, struct sp_str s)
{
    const size_t mark = out->len;

    while (s.n != 0) {
        size_t bad;
        const size_t good = valid_prefix(s, &bad);

        if (!sp_buf_add(out, s.p, good) || (bad != 0 && !sp_buf_add(out, "\xEF\xBF\xBD", 3))) {
            out->len = mark;
            return false;
        }
        s.p += good + bad;
        s.n -= good + bad;
    }
    return true;
}

size_t sp_utf8_encode(uint32_t c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    const size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)((n == 2 ? 0xC0 : n == 3 ? 0xE0 : 0xF0) | c);
    return n;
}

/* ---- white space ---- */

size_t sp_utf8_space_at(struct sp_str s)
{
    const unsigned char *p = (const unsigned char *)s.p;

    if (s.n >= 1 && (p[0] == ' ' || (p[0] >= 0x09 && p[0] <= 0x0D)))
        return 1;
    if (s.n >= 2 && p[0] == 0xC2) /* U+0085, U+00A0 */
        return p[1] == 0x85 || p[1] == 0xA0 ? 2 : 0;
    if (s.n < 3)
        return 0;
    if (p[0] == 0xE1) /* U+1680 */
        return p[1] == 0x9A && p[2] == 0x80 ? 3 : 0;
    if (p[0] == 0xE2 && p[1] == 0x80) { /* U+2000 to U+200A, U+2028, U+2029, U+202F */
        const bool is_blank = p[2] >= 0x80 && p[2] <= 0x8A;

        return is_blank || p[2] == 0xA8 || p[2] == 0xA9 || p[2] == 0xAF ? 3 : 0;
    }
    if (p[0] == 0xE2) /* U+205F */
        return p[1] == 0x81 && p[2] == 0x9F ? 3 : 0;
    return p[0] == 0xE3 && p[1] == 0x80 && p[2] == 0x80 ? 3 : 0; /* U+3000 */
}

struct sp_str sp_utf8_trim_end(struct sp_str s)
{
    for (size_t n = 1; n <= 3 && n <= s.n;) {
        if (sp_utf8_space_at((struct sp_str){s.p + s.n - n, n}) == n) {
            s.n -= n;
            n = 1;
        } else {
            n++;
        }
    }
    return s;
}

struct sp_str sp_utf8_trim(struct sp_str s)
{
    s = sp_utf8_trim_end(s);
    for (size_t n; s.n > 0 && (n = sp_utf8_space_at(s)) != 0;)
        s = (struct sp_str){s.p + n, s.n - n};
    return s;
}

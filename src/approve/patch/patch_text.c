/* SPDX-License-Identifier: Apache-2.0 */
/* patch: text as its lines are trimmed, folded and shown. */
#include "approve/patch/patch_priv.h"
#include "base/utf8.h"

/* The length of the white space character that s begins with; 0: it begins with none. */
static size_t space_at(const char *text, size_t n)
{
    const unsigned char *p = (const unsigned char *)text;

    if (n >= 1 && (p[0] == ' ' || (p[0] >= 0x09 && p[0] <= 0x0D)))
        return 1;
    if (n >= 2 && p[0] == 0xC2)
        return p[1] == 0x85 || p[1] == 0xA0 ? 2 : 0;
    if (n < 3)
        return 0;
    if (p[0] == 0xE1)
        return p[1] == 0x9A && p[2] == 0x80 ? 3 : 0;
    if (p[0] == 0xE2 && p[1] == 0x80)
        return p[2] <= 0x8A || p[2] == 0xA8 || p[2] == 0xA9 || p[2] == 0xAF ? 3 : 0;
    if (p[0] == 0xE2)
        return p[1] == 0x81 && p[2] == 0x9F ? 3 : 0;
    return p[0] == 0xE3 && p[1] == 0x80 && p[2] == 0x80 ? 3 : 0;
}

static size_t space_before(struct sp_str s)
{
    for (size_t n = 1; n <= 3 && n <= s.n; n++)
        if (space_at(s.p + s.n - n, n) == n)
            return n;
    return 0;
}

struct sp_str sp_patch_trim_end(struct sp_str s)
{
    for (size_t n; (n = space_before(s)) != 0;)
        s.n -= n;
    return s;
}

struct sp_str sp_patch_trim(struct sp_str s)
{
    s = sp_patch_trim_end(s);
    for (size_t n; s.n > 0 && (n = space_at(s.p, s.n)) != 0;) {
        s.p += n;
        s.n -= n;
    }
    return s;
}

/* What a character is as ASCII; *ret_len is its length. 0: it stays what it is. */
static char ascii_of(const unsigned char *p, size_t n, size_t *ret_len)
{
    *ret_len = 3;
    if (n >= 2 && p[0] == 0xC2 && p[1] == 0xA0) {
        *ret_len = 2;
        return ' ';
    }
    if (n < 3)
        return 0;
    if (p[0] == 0xE2 && p[1] == 0x80) {
        if (p[2] >= 0x90 && p[2] <= 0x95)
            return '-';
        if (p[2] >= 0x98 && p[2] <= 0x9B)
            return '\'';
        if (p[2] >= 0x9C && p[2] <= 0x9F)
            return '"';
        return (p[2] >= 0x82 && p[2] <= 0x8A) || p[2] == 0xAF ? ' ' : 0;
    }
    if (p[0] == 0xE2 && p[1] == 0x88 && p[2] == 0x92)
        return '-';
    if (p[0] == 0xE2 && p[1] == 0x81 && p[2] == 0x9F)
        return ' ';
    return p[0] == 0xE3 && p[1] == 0x80 && p[2] == 0x80 ? ' ' : 0;
}

bool sp_patch_add_folded(struct sp_buf *out, struct sp_str s)
{
    /* Nothing gets longer by it. */
    char *to = sp_buf_room(out, s.n);

    if (to == NULL && s.n > 0)
        return false;
    for (size_t i = 0; i < s.n;) {
        size_t len;
        const char c = ascii_of((const unsigned char *)s.p + i, s.n - i, &len);

        *to++ = c != 0 ? c : s.p[i];
        out->len++;
        i += c != 0 ? len : 1;
    }
    return true;
}

struct sp_str sp_patch_cut(struct sp_str s, size_t max)
{
    return s.n <= max ? s : (struct sp_str){s.p, sp_utf8_valid_prefix((struct sp_str){s.p, max})};
}

bool sp_patch_next_line(struct sp_str *rest, struct sp_str *ret)
{
    if (rest->n == 0)
        return false;
    const char *end = memchr(rest->p, '\n', rest->n);
    const size_t n = end == NULL ? rest->n : (size_t)(end - rest->p);

    *ret = (struct sp_str){rest->p, n};
    rest->p += end == NULL ? n : n + 1;
    rest->n -= end == NULL ? n : n + 1;
    return true;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/random.h>

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

bool sp_str_eq_nocase(struct sp_str a, struct sp_str b)
{
    if (a.n != b.n)
        return false;
    for (size_t i = 0; i < a.n; i++)
        if (lower(a.p[i]) != lower(b.p[i]))
            return false;
    return true;
}

int sp_str_compare(struct sp_str a, struct sp_str b)
{
    const size_t n = a.n < b.n ? a.n : b.n;
    const int r = n == 0 ? 0 : memcmp(a.p, b.p, n);

    return r != 0 ? r : (a.n > b.n) - (a.n < b.n);
}

bool sp_str_to_u64(struct sp_str s, uint64_t max, uint64_t *ret)
{
    uint64_t v = 0;

    if (s.n == 0)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        const unsigned digit = (unsigned)(unsigned char)s.p[i] - '0';

        if (digit > 9 || v > (UINT64_MAX - digit) / 10)
            return false;
        v = v * 10 + digit;
    }
    if (v > max)
        return false;
    *ret = v;
    return true;
}

struct sp_str sp_str_trim(struct sp_str s)
{
    while (s.n != 0 && (s.p[0] == ' ' || s.p[0] == '\t'))
        s = (struct sp_str){s.p + 1, s.n - 1};
    while (s.n != 0 && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t'))
        s.n--;
    return s;
}

struct sp_str sp_str_cut(struct sp_str *rest, char end)
{
    const char *at = rest->n == 0 ? NULL : memchr(rest->p, end, rest->n);
    const size_t n = at == NULL ? rest->n : (size_t)(at - rest->p);
    const size_t gone = at == NULL ? n : n + 1;
    const struct sp_str part = {rest->p, n};

    *rest = (struct sp_str){rest->p + gone, rest->n - gone};
    return part;
}

char *sp_str_dup(struct sp_str s)
{
    char *copy = malloc(s.n + 1);

    if (copy == NULL)
        return NULL;
    if (s.n != 0)
        memcpy(copy, s.p, s.n);
    copy[s.n] = 0;
    return copy;
}

void sp_hex(const void *bytes, size_t n, char *ret)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *p = bytes;

    for (size_t i = 0; i < n; i++) {
        *ret++ = digits[p[i] >> 4];
        *ret++ = digits[p[i] & 15];
    }
    *ret = 0;
}

bool sp_hex_random(size_t n, char *ret)
{
    uint8_t bytes[64];

    assert(n <= sizeof bytes);
    if (getrandom(bytes, n, 0) != (ssize_t)n)
        return false;
    sp_hex(bytes, n, ret);
    explicit_bzero(bytes, n);
    return true;
}

bool sp_uuid_make(char ret[SP_UUID_SIZE])
{
    static const size_t parts[] = {4, 2, 2, 2, 6}; /* bytes */
    uint8_t b[16];
    size_t at = 0;

    if (getrandom(b, sizeof b, 0) != (ssize_t)sizeof b)
        return false;
    b[6] = (uint8_t)((b[6] & 0x0F) | 0x40); /* version 4, random */
    b[8] = (uint8_t)((b[8] & 0x3F) | 0x80);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (at != 0)
            *ret++ = '-';
        sp_hex(b + at, parts[i], ret);
        ret += 2 * parts[i];
        at += parts[i];
    }
    return true;
}

/* ---- similar words ---- */

#define MAX_COMPARED 40 /* bytes of a word; longer ones are similar to none */

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The Levenshtein distance. b.n is at most MAX_COMPARED. */
static size_t find_distance(struct sp_str a, struct sp_str b)
{
    size_t row[MAX_COMPARED + 1];

    for (size_t j = 0; j <= b.n; j++)
        row[j] = j;
    for (size_t i = 1; i <= a.n; i++) {
        size_t corner = row[0];

        row[0] = i;
        for (size_t j = 1; j <= b.n; j++) {
            const size_t change = corner + (a.p[i - 1] != b.p[j - 1]);

            corner = row[j];
            row[j] = smaller(change, 1 + smaller(row[j], row[j - 1]));
        }
    }
    return row[b.n];
}

struct sp_nearest sp_nearest_to(struct sp_str word)
{
    return (struct sp_nearest){.word = word, .least = smaller(3, word.n / 2 + 1)};
}

void sp_nearest_offer(struct sp_nearest *n, const char *candidate)
{
    const struct sp_str s = sp_str_of(candidate);

    if (n->word.n > MAX_COMPARED || s.n > MAX_COMPARED)
        return;
    const size_t d = find_distance(n->word, s);
    if (d < n->least) {
        n->least = d;
        n->best = candidate;
    }
}

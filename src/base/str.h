/* SPDX-License-Identifier: Apache-2.0 */
/*
 * str: a borrowed string of known length, which may hold NUL bytes and need not end in one.
 */
#ifndef SP_BASE_STR_H
#define SP_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct sp_str {
    const char *p;
    size_t n;
};

#define SP_STR(literal) ((struct sp_str){(literal), sizeof(literal) - 1})
#define SP_STR_FMT      "%.*s"
#define SP_STR_ARG(s)   (int)((s).n > 4096 ? 4096 : (s).n), (s).p

static inline struct sp_str sp_str_of(const char *text)
{
    return (struct sp_str){text, strlen(text)};
}

static inline bool sp_str_eq(struct sp_str a, struct sp_str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

/* Ignores ASCII case. */
bool sp_str_eq_nocase(struct sp_str a, struct sp_str b);
/* By bytes, as strcmp: less than, equal to or greater than 0. */
int sp_str_compare(struct sp_str a, struct sp_str b);

/* Without spaces and tabs at both ends. */
struct sp_str sp_str_trim(struct sp_str s);
/* Returns the part of *rest before the first `end`; *rest becomes the part behind it. */
struct sp_str sp_str_cut(struct sp_str *rest, char end);
/* Drops the prefix from the front of *s. false: *s does not begin with it and is unchanged. */
static inline bool sp_str_skip_prefix(struct sp_str *s, struct sp_str prefix)
{
    if (s->n < prefix.n || (prefix.n != 0 && memcmp(s->p, prefix.p, prefix.n) != 0))
        return false;
    *s = (struct sp_str){s->p + prefix.n, s->n - prefix.n};
    return true;
}

/* The part behind the last slash. */
static inline struct sp_str sp_base_name(struct sp_str path)
{
    const char *slash = path.n == 0 ? NULL : memrchr(path.p, '/', path.n);
    const size_t dir = slash == NULL ? 0 : (size_t)(slash + 1 - path.p);

    return (struct sp_str){path.p + dir, path.n - dir};
}

static inline bool sp_str_has_nul(struct sp_str s)
{
    return s.n != 0 && memchr(s.p, 0, s.n) != NULL;
}

/* A copy from malloc with a NUL behind it; NULL: no memory. Unlike strndup it never looks behind
 * the last byte, and bytes behind a NUL are copied, too. */
char *sp_str_dup(struct sp_str s);

/* The whole string as decimal digits without a sign, at most max. false: *ret is untouched. */
bool sp_str_to_u64(struct sp_str s, uint64_t max, uint64_t *ret);

/* Finds the word that was probably meant by a misspelled one: offer all candidates, then read
 * `best`, NULL if none is similar. */
struct sp_nearest {
    struct sp_str word;
    const char *best;
    size_t least; /* edit distance that a better candidate is below */
};
struct sp_nearest sp_nearest_to(struct sp_str word);
void sp_nearest_offer(struct sp_nearest *n, const char *candidate);

/* The value of a hexadecimal digit; -1: not one. */
static inline int sp_hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* 2 * n lower-case hexadecimal digits and a NUL. */
void sp_hex(const void *bytes, size_t n, char *ret);
/* The same of n random bytes, at most 64. false: out of randomness, with errno. */
bool sp_hex_random(size_t n, char *ret);

/* A random UUID: 36 characters and a NUL. false as above. */
#define SP_UUID_SIZE 37
bool sp_uuid_make(char ret[SP_UUID_SIZE]);

#endif

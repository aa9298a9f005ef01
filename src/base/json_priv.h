/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_priv: shared by the files behind json.h: scanning the plain part of a string, and its bytes
 * without escapes.
 */
#ifndef SP_BASE_JSON_PRIV_H
#define SP_BASE_JSON_PRIV_H

#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "base/json.h"

/* ---- the bytes of a string, unescaped ---- */

/* The value of four hexadecimal digits that were checked before. */
static inline uint32_t sp_json_hex4(const char *p)
{
    uint32_t v = 0;

    for (int i = 0; i < 4; i++)
        v = v << 4 | ((uint32_t)sp_hex_digit(p[i]) & 15);
    return v;
}

/*
 * Writes the character of the escape at *p, which the reader has checked, as UTF-8 and moves *p
 * behind it. Returns the bytes written: at most four, and fewer than the escape has.
 */
size_t sp_json_unescape(const char **p, char *out);

/* Iterates over the bytes of a string or key without changing the text. */
struct sp_json_bytes {
    const char *p, *end;
    char held[4]; /* of the escape that p is behind */
    uint8_t held_count, held_next;
    bool is_escaped;
};

static inline struct sp_json_bytes sp_json_bytes_of(const struct sp_json *j,
                                                    const struct sp_json_token *t)
{
    return (struct sp_json_bytes){
        .p = j->text + t->off, .end = j->text + t->off + t->len, .is_escaped = t->is_escaped};
}

/* -1: the end. */
static inline int sp_json_next_byte(struct sp_json_bytes *b)
{
    if (b->held_next < b->held_count)
        return (unsigned char)b->held[b->held_next++];
    if (b->p == b->end)
        return -1;
    if (*b->p != '\\' || !b->is_escaped)
        return (unsigned char)*b->p++;
    b->held_count = (uint8_t)sp_json_unescape(&b->p, b->held);
    b->held_next = 1;
    return (unsigned char)b->held[0];
}

/* The beginning of a string, for a message: control characters escaped, cut between characters. */
#define SP_JSON_SHOWN_BYTES 120
#define SP_JSON_SHOWN_ROOM  (SP_JSON_SHOWN_BYTES + 16)
const char *sp_json_show(const struct sp_json *j, uint32_t token, char out[SP_JSON_SHOWN_ROOM]);

/* ---- scanning ---- */

#ifdef __SSE2__
/* 0xFF for each byte that needs an escape: a quote, a backslash, a control character. */
static inline __m128i sp_json_special(__m128i v)
{
    const __m128i quote = _mm_cmpeq_epi8(v, _mm_set1_epi8('"'));
    const __m128i backslash = _mm_cmpeq_epi8(v, _mm_set1_epi8('\\'));
    const __m128i control = _mm_cmpeq_epi8(_mm_min_epu8(v, _mm_set1_epi8(0x1F)), v);

    return _mm_or_si128(_mm_or_si128(quote, backslash), control);
}

static inline __m128i sp_json_load(const char *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

#define SP_JSON_SHORT 16 /* steps of 16 bytes: most strings are shorter */
#define SP_JSON_AHEAD 4096

/* sp_json_skip_plain in steps of a cache line, for long strings. Prefetches explicitly, because the
 * processor's own prefetcher stops at the end of a page. */
static inline const char *sp_json_skip_lines(const char *p, const char *end, __m128i *seen)
{
    for (; end - p >= 64; p += 64) {
        const __m128i a = sp_json_load(p);
        const __m128i b = sp_json_load(p + 16);
        const __m128i c = sp_json_load(p + 32);
        const __m128i d = sp_json_load(p + 48);
        const __m128i hit = _mm_or_si128(_mm_or_si128(sp_json_special(a), sp_json_special(b)),
                                         _mm_or_si128(sp_json_special(c), sp_json_special(d)));

        if (_mm_movemask_epi8(hit) != 0)
            break;
        if (end - p > SP_JSON_AHEAD)
            _mm_prefetch(p + SP_JSON_AHEAD, _MM_HINT_T0);
        *seen = _mm_or_si128(*seen, _mm_or_si128(_mm_or_si128(a, b), _mm_or_si128(c, d)));
    }
    return p;
}
#endif

/* The first byte from p on that needs an escape. *high becomes nonzero if a byte before it is not
 * ASCII. */
static inline const char *sp_json_skip_plain(const char *p, const char *end, unsigned *high)
{
#ifdef __SSE2__
    __m128i seen = _mm_setzero_si128();

    for (int step = 0; end - p >= 16; p += 16, step++) {
        if (step == SP_JSON_SHORT) {
            p = sp_json_skip_lines(p, end, &seen);
            if (end - p < 16)
                break;
        }
        const __m128i v = sp_json_load(p);
        const unsigned hits = (unsigned)_mm_movemask_epi8(sp_json_special(v));

        if (hits != 0) {
            const unsigned before = (hits & -hits) - 1;

            *high |= (unsigned)_mm_movemask_epi8(seen) | ((unsigned)_mm_movemask_epi8(v) & before);
            return p + __builtin_ctz(hits);
        }
        seen = _mm_or_si128(seen, v);
    }
    *high |= (unsigned)_mm_movemask_epi8(seen);
#else
    const uint64_t ones = 0x0101010101010101U;
    const uint64_t tops = 0x80 * ones;

    for (; end - p >= 8; p += 8) {
        uint64_t v;

        memcpy(&v, p, 8);
        const uint64_t quote = v ^ '"' * ones;
        const uint64_t backslash = v ^ '\\' * ones;
        const uint64_t hit = ((quote - ones) & ~quote) | ((backslash - ones) & ~backslash) |
                             ((v - 0x20 * ones) & ~v);

        if ((hit & tops) != 0) /* the loop below finds the byte */
            break;
        *high |= (v & tops) != 0;
    }
#endif
    for (; p < end; p++) {
        const unsigned char c = (unsigned char)*p;

        if (c == '"' || c == '\\' || c < 0x20)
            break;
        *high |= c & 0x80;
    }
    return p;
}

#endif

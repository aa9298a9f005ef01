/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_scan: running over the plain part of a string, for the reader and the writer.
 */
#ifndef SP_BASE_JSON_SCAN_H
#define SP_BASE_JSON_SCAN_H

#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#ifdef __SSE2__
/* Bytes that cannot stand for themselves. */
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

#define SP_JSON_SHORT 16 /* steps of 16 bytes: most strings have no more */
#define SP_JSON_AHEAD 4096

/* The same as sp_json_skip_plain, as far as whole lines of the cache go. It asks for memory ahead,
 * for of its own the processor does that within a page only. */
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

/* The first byte from p on that cannot stand for itself in a string. *high: one before is not
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

        if ((hit & tops) != 0) /* in this word, the loop below says where */
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

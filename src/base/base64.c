/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All output passes through the encoder, so it has an AVX2 version and a scalar one, chosen at the
 * first use. The scalar one looks up twelve bits at a time in a table that is filled only where it
 * is used: otherwise its pages are never touched. The AVX2 decoder handles everything before the
 * last symbols or the first error. The scalar decoder does the rest and reports errors; it has one
 * table for each of the four positions, so that four symbols cost three ORs and one test.
 */
#include "base/base64.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GLIBC__) && __has_include(<sys/platform/x86.h>)
#define HAVE_AVX2 1
#include <immintrin.h>
#include <sys/platform/x86.h>
#else
#define HAVE_AVX2 0
#endif

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

typedef char *encoder(char *out, const uint8_t *in, size_t n);

/* ---- encoding ---- */

/* For the last bytes, with no table but the alphabet. */
static char *encode_tail(char *out, const uint8_t *in, size_t n)
{
    for (; n >= 3; n -= 3, in += 3, out += 4) {
        const uint32_t v = (uint32_t)in[0] << 16 | (uint32_t)in[1] << 8 | in[2];

        out[0] = alphabet[v >> 18];
        out[1] = alphabet[v >> 12 & 63];
        out[2] = alphabet[v >> 6 & 63];
        out[3] = alphabet[v & 63];
    }
    if (n == 0)
        return out;

    const uint32_t v = (uint32_t)in[0] << 8 | (n == 2 ? in[1] : 0U);
    out[0] = alphabet[v >> 10];
    out[1] = alphabet[v >> 4 & 63];
    out[2] = '=';
    if (n == 2)
        out[2] = alphabet[v << 2 & 63];
    out[3] = '=';
    return out + 4;
}

static char pairs[4096][2]; /* twelve bits to two characters */

static char *encode_scalar(char *out, const uint8_t *in, size_t n)
{
    for (; n >= 6; n -= 6, in += 6, out += 8) {
        const uint32_t a = (uint32_t)in[0] << 16 | (uint32_t)in[1] << 8 | in[2];
        const uint32_t b = (uint32_t)in[3] << 16 | (uint32_t)in[4] << 8 | in[5];

        memcpy(out, pairs[a >> 12], 2);
        memcpy(out + 2, pairs[a & 4095], 2);
        memcpy(out + 4, pairs[b >> 12], 2);
        memcpy(out + 6, pairs[b & 4095], 2);
    }
    return encode_tail(out, in, n);
}

#if HAVE_AVX2
/* 24 bytes, twelve in each half of v, to 32 characters. */
__attribute__((target("avx2"))) static inline __m256i encode_24(__m256i v)
{
    /* Bytes a b c become the 16-bit words ab and bc: each contains two of the four indices. */
    const __m256i spread = _mm256_setr_epi8(1, 0, 2, 1, 4, 3, 5, 4, 7, 6, 8, 7, 10, 9, 11, 10, /**/
                                            1, 0, 2, 1, 4, 3, 5, 4, 7, 6, 8, 7, 10, 9, 11, 10);
    /* The difference between a character and its index, by class (see below). */
    const __m256i shift =
        _mm256_setr_epi8('A', 'a' - 26, '0' - 52, '0' - 52, '0' - 52, '0' - 52, '0' - 52, '0' - 52,
                         '0' - 52, '0' - 52, '0' - 52, '0' - 52, '+' - 62, '/' - 63, 0, 0, /**/
                         'A', 'a' - 26, '0' - 52, '0' - 52, '0' - 52, '0' - 52, '0' - 52, '0' - 52,
                         '0' - 52, '0' - 52, '0' - 52, '0' - 52, '+' - 62, '/' - 63, 0, 0);

    v = _mm256_shuffle_epi8(v, spread);
    /* Multiplying by a power of two shifts each word by its own amount. */
    const __m256i even = _mm256_mulhi_epu16(_mm256_and_si256(v, _mm256_set1_epi32(0x0FC0FC00)),
                                            _mm256_set1_epi32(0x04000040));
    const __m256i odd = _mm256_mullo_epi16(_mm256_and_si256(v, _mm256_set1_epi32(0x003F03F0)),
                                           _mm256_set1_epi32(0x01000010));
    const __m256i index = _mm256_or_si256(even, odd);

    /* 0: up to 25; 1: up to 51; 2 to 11: the digits; 12 and 13: the last two. */
    const __m256i class = _mm256_sub_epi8(_mm256_subs_epu8(index, _mm256_set1_epi8(51)),
                                          _mm256_cmpgt_epi8(index, _mm256_set1_epi8(25)));
    return _mm256_add_epi8(index, _mm256_shuffle_epi8(shift, class));
}

__attribute__((target("avx2"))) static inline __m256i load_24(const uint8_t *in)
{
    const __m128i low = _mm_loadu_si128((const __m128i *)(const void *)in);
    const __m128i high = _mm_loadu_si128((const __m128i *)(const void *)(in + 12));

    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

__attribute__((target("avx2"))) static char *encode_avx2(char *out, const uint8_t *in, size_t n)
{
    /* load_24 reads four bytes more than it uses: hence the + 4. */
    for (; n >= 96 + 4; n -= 96, in += 96, out += 128) {
        const __m256i a = encode_24(load_24(in));
        const __m256i b = encode_24(load_24(in + 24));
        const __m256i c = encode_24(load_24(in + 48));
        const __m256i d = encode_24(load_24(in + 72));

        _mm256_storeu_si256((__m256i *)(void *)out, a);
        _mm256_storeu_si256((__m256i *)(void *)(out + 32), b);
        _mm256_storeu_si256((__m256i *)(void *)(out + 64), c);
        _mm256_storeu_si256((__m256i *)(void *)(out + 96), d);
    }
    for (; n >= 24 + 4; n -= 24, in += 24, out += 32)
        _mm256_storeu_si256((__m256i *)(void *)out, encode_24(load_24(in)));
    _mm256_zeroupper(); /* gcc 12 omits it before calling a static function */
    return encode_tail(out, in, n);
}

static bool has_avx2(void)
{
    return CPU_FEATURE_ACTIVE(AVX2);
}
#endif

static char *encode_first(char *out, const uint8_t *in, size_t n);

static _Atomic(encoder *) encode = encode_first;
static pthread_once_t encode_once = PTHREAD_ONCE_INIT;

static void choose_encoder(void)
{
#if HAVE_AVX2
    if (has_avx2()) {
        atomic_store(&encode, encode_avx2);
        return;
    }
#endif
    for (size_t i = 0; i < 4096; i++) {
        pairs[i][0] = alphabet[i >> 6];
        pairs[i][1] = alphabet[i & 63];
    }
    atomic_store(&encode, encode_scalar);
}

static char *encode_first(char *out, const uint8_t *in, size_t n)
{
    (void)pthread_once(&encode_once, choose_encoder); /* cannot fail with a static control */
    return atomic_load(&encode)(out, in, n);
}

char *sp_base64_encode(char *out, const void *bytes, size_t n)
{
    return atomic_load_explicit(&encode, memory_order_acquire)(out, bytes, n);
}

/* ---- decoding ---- */

#if HAVE_AVX2
/* The same sixteen entries for both halves of a vector. */
#define BOTH(...) _mm256_setr_epi8(__VA_ARGS__, __VA_ARGS__)

/*
 * 32 symbols to their 32 values; *bad becomes nonzero where a byte is not a symbol. The high nibble
 * of a symbol is its row in the ASCII table: 2 has + and /, 3 the digits, 4 and 6 the letters up to
 * O, 5 and 7 the others. Each row has a bit (rows without symbols share one), and each low nibble
 * has the bits of the rows that have no symbol in its column.
 */
__attribute__((target("avx2"))) static inline __m256i values_32(__m256i v, __m256i *bad)
{
    const __m256i row_bit = BOTH(16, 16, 1, 2, 4, 8, 4, 8, 16, 16, 16, 16, 16, 16, 16, 16);
    const __m256i gaps =
        BOTH(16 + 4 + 1, 16 + 1, 16 + 1, 16 + 1, 16 + 1, 16 + 1, 16 + 1, 16 + 1, 16 + 1, 16 + 1,
             16 + 2 + 1, 16 + 8 + 2, 16 + 8 + 2 + 1, 16 + 8 + 2 + 1, 16 + 8 + 2 + 1, 16 + 8 + 2);
    /* The difference between a value and its symbol, by row; the slash gets row 1. */
    const __m256i shift = BOTH(0, 63 - '/', 62 - '+', 52 - '0', -'A', -'A', 26 - 'a', 26 - 'a', 0,
                               0, 0, 0, 0, 0, 0, 0);
    const __m256i half = _mm256_set1_epi8(0x0F);
    const __m256i row = _mm256_and_si256(_mm256_srli_epi32(v, 4), half);
    const __m256i is_slash = _mm256_cmpeq_epi8(v, _mm256_set1_epi8('/'));

    *bad = _mm256_or_si256(*bad,
                           _mm256_and_si256(_mm256_shuffle_epi8(row_bit, row),
                                            _mm256_shuffle_epi8(gaps, _mm256_and_si256(v, half))));
    return _mm256_add_epi8(v, _mm256_shuffle_epi8(shift, _mm256_add_epi8(row, is_slash)));
}

/* 32 values to 24 bytes, at the front of the result. */
__attribute__((target("avx2"))) static inline __m256i join_32(__m256i v)
{
    const __m256i twelve = _mm256_maddubs_epi16(v, _mm256_set1_epi32(0x01400140));
    const __m256i three = _mm256_madd_epi16(twelve, _mm256_set1_epi32(0x00011000));
    const __m256i turned =
        _mm256_shuffle_epi8(three, BOTH(2, 1, 0, 6, 5, 4, 10, 9, 8, 14, 13, 12, -1, -1, -1, -1));

    return _mm256_permutevar8x32_epi32(turned, _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 3, 7));
}

__attribute__((target("avx2"))) static inline __m256i load_32(const unsigned char *in)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)in);
}

__attribute__((target("avx2"))) static inline void store_32(unsigned char *out, __m256i v)
{
    _mm256_storeu_si256((__m256i *)(void *)out, v);
}

#define AHEAD 4096

/*
 * Decodes in steps of 32 symbols and returns the number of symbols done. Stops before the first
 * error and at least 16 symbols before the end, because each store writes 32 bytes where 24 belong.
 * In place, the extra bytes fall on symbols that were already read.
 */
__attribute__((target("avx2"))) static size_t decode_avx2(const unsigned char *in, size_t n,
                                                          unsigned char *out)
{
    const unsigned char *const begin = in;
    __m256i bad = _mm256_setzero_si256();

    for (; n >= 128 + 16; n -= 128, in += 128, out += 96) {
        const __m256i a = values_32(load_32(in), &bad);
        const __m256i b = values_32(load_32(in + 32), &bad);
        const __m256i c = values_32(load_32(in + 64), &bad);
        const __m256i d = values_32(load_32(in + 96), &bad);

        if (_mm256_testz_si256(bad, bad) == 0)
            break;
        if (n > AHEAD + 64) { /* the processor's own prefetcher stops at the end of a page */
            _mm_prefetch((const char *)in + AHEAD, _MM_HINT_T0);
            _mm_prefetch((const char *)in + AHEAD + 64, _MM_HINT_T0);
        }
        store_32(out, join_32(a));
        store_32(out + 24, join_32(b));
        store_32(out + 48, join_32(c));
        store_32(out + 72, join_32(d));
    }
    for (bad = _mm256_setzero_si256(); n >= 32 + 16; n -= 32, in += 32, out += 24) {
        const __m256i a = values_32(load_32(in), &bad);

        if (_mm256_testz_si256(bad, bad) == 0)
            break;
        store_32(out, join_32(a));
    }
    _mm256_zeroupper();
    return (size_t)(in - begin);
}
#endif

#define NOT_A_SYMBOL 0x80000000U

static uint32_t places[4][256]; /* the six bits of a symbol, shifted for each of four positions */
static bool is_wide;            /* decode_avx2 may be used */
static pthread_once_t places_once = PTHREAD_ONCE_INIT;

static void build_places(void)
{
    memset(places, 0xFF, sizeof places); /* sets NOT_A_SYMBOL */
    for (uint32_t i = 0; i < 64; i++)
        for (unsigned place = 0; place < 4; place++)
            places[place][(unsigned char)alphabet[i]] = i << (18 - 6 * place);
#if HAVE_AVX2
    is_wide = has_avx2();
#endif
}

static inline uint32_t decode_quad(const unsigned char *in)
{
    return places[0][in[0]] | places[1][in[1]] | places[2][in[2]] | places[3][in[3]];
}

static bool is_symbol(unsigned char c)
{
    return places[3][c] < 64;
}

/* Finds the error in a text that has none before `from`. */
static int refuse(struct sp_str text, size_t from, struct sp_err *e)
{
    bool is_padded = false;

    for (size_t i = from; i < text.n; i++) {
        const unsigned char c = (unsigned char)text.p[i];

        if (c == '=')
            is_padded = true;
        else if (!is_symbol(c))
            return sp_fail(e, SP_E_INVALID, 0, "Invalid symbol %u, offset %zu.", c, i);
    }
    if (text.n % 4 == 1 && !is_padded)
        return sp_fail(e, SP_E_INVALID, 0, "Invalid input length: %zu", text.n);
    return sp_fail(e, SP_E_INVALID, 0, "Invalid padding");
}

/* Decodes the last four symbols, which may be padded. Returns the number of bytes, or minus a code.
 */
static int decode_last(struct sp_str text, unsigned char *out, struct sp_err *e)
{
    const size_t at = text.n - 4;
    unsigned char in[4];

    memcpy(in, text.p + at, 4);
    const size_t symbols = in[3] != '=' ? 4 : in[2] != '=' ? 3 : 2;
    for (size_t i = 0; i < symbols; i++)
        if (!is_symbol(in[i]))
            return refuse(text, at, e);
    for (size_t i = symbols; i < 4; i++)
        in[i] = 'A';

    const uint32_t v = decode_quad(in);
    const uint32_t unused = symbols == 4 ? 0 : symbols == 3 ? 0xFF : 0xFFFF;
    if ((v & unused) != 0)
        return sp_fail(e, SP_E_INVALID, 0, "Invalid last symbol %u, offset %zu.", in[symbols - 1],
                       at + symbols - 1);
    out[0] = (unsigned char)(v >> 16);
    if (symbols > 2)
        out[1] = (unsigned char)(v >> 8);
    if (symbols > 3)
        out[2] = (unsigned char)v;
    return (int)symbols - 1;
}

/*
 * Decodes the symbols from `from` to `end`, none of which may be padding. Each store writes four
 * bytes where three belong, except the last one. In place, the fourth falls on a symbol that was
 * already read, so refuse() still sees the original text.
 */
static int decode_inner(struct sp_str text, size_t from, size_t end, unsigned char *out,
                        struct sp_err *e)
{
    const unsigned char *in = (const unsigned char *)text.p;
    size_t i = from;

#if HAVE_AVX2
    if (is_wide) {
        i += decode_avx2(in + i, end - i, out);
        out += (i - from) / 4 * 3;
    }
#endif
    for (; i < end; i += 4, out += 3) {
        const uint32_t v = decode_quad(in + i);
        const uint32_t bytes = htonl(v << 8);

        if (v & NOT_A_SYMBOL)
            return refuse(text, i, e);
        if (i + 4 == end)
            memcpy(out, &bytes, 3);
        else
            memcpy(out, &bytes, 4);
    }
    return 0;
}

int sp_base64_decode_part(struct sp_str text, size_t from, size_t n, void *out, size_t *ret_len,
                          struct sp_err *e)
{
    const bool is_end = from + n == text.n;
    unsigned char *to = out;

    (void)pthread_once(&places_once, build_places); /* cannot fail with a static control */
    if (text.n % 4 != 0)
        return refuse(text, 0, e);
    if (n == 0) {
        *ret_len = 0;
        return 0;
    }
    const size_t inner = is_end ? n - 4 : n;
    const int r = decode_inner(text, from, from + inner, to, e);
    if (r < 0)
        return r;
    const int last = is_end ? decode_last(text, to + inner / 4 * 3, e) : 0;
    if (last < 0)
        return last;
    *ret_len = inner / 4 * 3 + (size_t)last;
    return 0;
}

int sp_base64_decode(struct sp_str text, void *out, size_t *ret_len, struct sp_err *e)
{
    return sp_base64_decode_part(text, 0, text.n, out, ret_len, e);
}

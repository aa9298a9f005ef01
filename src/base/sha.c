/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-1 and SHA-256 of FIPS 180-4, HMAC of RFC 2104, for small inputs.
 *
 * The two hashes differ in the compression function and in the number of words; blocks, padding and
 * the length at the end are the same.
 */
#include "base/sha.h"

#include <string.h>

#define BLOCK 64

struct sha {
    void (*mix)(uint32_t *h, const uint8_t *block);
    uint32_t h[8];
    uint64_t bytes; /* so far */
    uint8_t block[BLOCK];
};

static inline uint32_t rol(uint32_t x, unsigned n)
{
    return x << n | x >> (32 - n);
}

static inline uint32_t ror(uint32_t x, unsigned n)
{
    return x >> n | x << (32 - n);
}

static inline uint32_t load_be(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static inline void store_be(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)(v >> 24);
    p[1] = (uint8_t)(v >> 16);
    p[2] = (uint8_t)(v >> 8);
    p[3] = (uint8_t)v;
}

static void sha1_mix(uint32_t *h, const uint8_t *block)
{
    static const uint32_t k[4] = {0x5A827999, 0x6ED9EBA1, 0x8F1BBCDC, 0xCA62C1D6};
    uint32_t w[80];
    uint32_t a = h[0];
    uint32_t b = h[1];
    uint32_t c = h[2];
    uint32_t d = h[3];
    uint32_t e = h[4];

    for (unsigned t = 0; t < 16; t++)
        w[t] = load_be(block + 4 * (size_t)t);
    for (unsigned t = 16; t < 80; t++)
        w[t] = rol(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);
    for (unsigned t = 0; t < 80; t++) {
        const uint32_t choose = (b & c) ^ (~b & d);
        const uint32_t parity = b ^ c ^ d;
        const uint32_t majority = (b & c) ^ (b & d) ^ (c & d);
        const uint32_t f = t < 20 ? choose : t >= 40 && t < 60 ? majority : parity;
        const uint32_t next = rol(a, 5) + f + e + k[t / 20] + w[t];

        e = d;
        d = c;
        c = rol(b, 30);
        b = a;
        a = next;
    }
    h[0] += a;
    h[1] += b;
    h[2] += c;
    h[3] += d;
    h[4] += e;
}

static void sha256_mix(uint32_t *h, const uint8_t *block)
{
    static const uint32_t k[64] = {
        0x428A2F98, 0x71374491, 0xB5C0FBCF, 0xE9B5DBA5, 0x3956C25B, 0x59F111F1, 0x923F82A4,
        0xAB1C5ED5, 0xD807AA98, 0x12835B01, 0x243185BE, 0x550C7DC3, 0x72BE5D74, 0x80DEB1FE,
        0x9BDC06A7, 0xC19BF174, 0xE49B69C1, 0xEFBE4786, 0x0FC19DC6, 0x240CA1CC, 0x2DE92C6F,
        0x4A7484AA, 0x5CB0A9DC, 0x76F988DA, 0x983E5152, 0xA831C66D, 0xB00327C8, 0xBF597FC7,
        0xC6E00BF3, 0xD5A79147, 0x06CA6351, 0x14292967, 0x27B70A85, 0x2E1B2138, 0x4D2C6DFC,
        0x53380D13, 0x650A7354, 0x766A0ABB, 0x81C2C92E, 0x92722C85, 0xA2BFE8A1, 0xA81A664B,
        0xC24B8B70, 0xC76C51A3, 0xD192E819, 0xD6990624, 0xF40E3585, 0x106AA070, 0x19A4C116,
        0x1E376C08, 0x2748774C, 0x34B0BCB5, 0x391C0CB3, 0x4ED8AA4A, 0x5B9CCA4F, 0x682E6FF3,
        0x748F82EE, 0x78A5636F, 0x84C87814, 0x8CC70208, 0x90BEFFFA, 0xA4506CEB, 0xBEF9A3F7,
        0xC67178F2};
    uint32_t w[64];
    uint32_t v[8];

    for (unsigned t = 0; t < 16; t++)
        w[t] = load_be(block + 4 * (size_t)t);
    for (unsigned t = 16; t < 64; t++) {
        const uint32_t x = w[t - 15];
        const uint32_t y = w[t - 2];

        w[t] = w[t - 16] + (ror(x, 7) ^ ror(x, 18) ^ x >> 3) + w[t - 7] +
               (ror(y, 17) ^ ror(y, 19) ^ y >> 10);
    }
    memcpy(v, h, sizeof v);
    for (unsigned t = 0; t < 64; t++) {
        const uint32_t a = v[0];
        const uint32_t e = v[4];
        const uint32_t choose = (e & v[5]) ^ (~e & v[6]);
        const uint32_t majority = (a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]);
        const uint32_t one = v[7] + (ror(e, 6) ^ ror(e, 11) ^ ror(e, 25)) + choose + k[t] + w[t];
        const uint32_t two = (ror(a, 2) ^ ror(a, 13) ^ ror(a, 22)) + majority;

        memmove(v + 1, v, 7 * sizeof v[0]);
        v[4] += one;
        v[0] = one + two;
    }
    for (unsigned i = 0; i < 8; i++)
        h[i] += v[i];
}

static const struct sha sha1_start = {
    .mix = sha1_mix, .h = {0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0}};

static const struct sha sha256_start = {.mix = sha256_mix,
                                        .h = {0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A,
                                              0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19}};

static void add_bytes(struct sha *s, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;

    while (n != 0) {
        const size_t held = s->bytes % BLOCK;
        const size_t take = n < BLOCK - held ? n : BLOCK - held;

        if (take == BLOCK) {
            s->mix(s->h, p);
        } else {
            memcpy(s->block + held, p, take);
            if (held + take == BLOCK)
                s->mix(s->h, s->block);
        }
        s->bytes += take;
        p += take;
        n -= take;
    }
}

/* Padding: a one bit, zeros up to eight bytes before the end of a block, the length in bits. */
static void finish_hash(struct sha *s, uint8_t *ret, size_t words)
{
    static const uint8_t padding[BLOCK] = {0x80};
    const uint64_t bits = s->bytes * 8;
    uint8_t length[8];

    store_be(length, (uint32_t)(bits >> 32));
    store_be(length + 4, (uint32_t)bits);
    add_bytes(s, padding, BLOCK - (s->bytes + 8) % BLOCK);
    add_bytes(s, length, sizeof length);
    for (size_t i = 0; i < words; i++)
        store_be(ret + 4 * i, s->h[i]);
}

void sp_sha1(struct sp_str s, uint8_t ret[20])
{
    struct sha hash = sha1_start;

    add_bytes(&hash, s.p, s.n);
    finish_hash(&hash, ret, 5);
}

void sp_sha256(struct sp_str s, uint8_t ret[32])
{
    struct sha hash = sha256_start;

    add_bytes(&hash, s.p, s.n);
    finish_hash(&hash, ret, 8);
}

void sp_hmac_sha256(struct sp_str key, struct sp_str s, uint8_t ret[32])
{
    struct sha inner = sha256_start;
    struct sha outer = sha256_start;
    uint8_t block[BLOCK] = {0};
    uint8_t digest[32];

    if (key.n > BLOCK)
        sp_sha256(key, block);
    else if (key.n != 0)
        memcpy(block, key.p, key.n);

    for (size_t i = 0; i < BLOCK; i++)
        block[i] ^= 0x36;
    add_bytes(&inner, block, BLOCK);
    add_bytes(&inner, s.p, s.n);
    finish_hash(&inner, digest, 8);

    for (size_t i = 0; i < BLOCK; i++)
        block[i] ^= 0x36 ^ 0x5C;
    add_bytes(&outer, block, BLOCK);
    add_bytes(&outer, digest, sizeof digest);
    finish_hash(&outer, ret, 8);
}

bool sp_same_secret(struct sp_str a, struct sp_str b)
{
    volatile unsigned char difference = 0; /* volatile: no early exit from the loop */

    if (a.n != b.n)
        return false;
    for (size_t i = 0; i < a.n; i++)
        difference = (unsigned char)(difference | (a.p[i] ^ b.p[i]));
    return difference == 0;
}

void sp_sha256_hex(struct sp_str s, char ret[65])
{
    uint8_t digest[32];

    sp_sha256(s, digest);
    sp_hex(digest, sizeof digest, ret);
}

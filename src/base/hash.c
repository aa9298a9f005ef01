/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/random.h>

static uint64_t rotate(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[0] = rotate(v[0], 32);
    v[2] += v[3];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[2] = rotate(v[2], 32);
}

/* One key a process; pthread_once because a program that uses the library may have threads. */
static uint64_t key[2];
static bool has_key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;

static void make_key(void)
{
    if (!has_key)
        (void)!getrandom(key, sizeof key, 0); /* cannot fail: flags 0 waits for the entropy pool */
    has_key = true;
}

bool sp_hash_set_key(const uint64_t from[2])
{
    if (has_key)
        return false;
    key[0] = from[0];
    key[1] = from[1];
    has_key = true;
    return true;
}

void sp_hash_key(uint64_t ret[2])
{
    (void)pthread_once(&key_once, make_key);
    ret[0] = key[0];
    ret[1] = key[1];
}

struct sp_hash sp_hash(struct sp_str s)
{
    (void)pthread_once(&key_once, make_key);
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575ULL, key[1] ^ 0x646f72616e646f6dULL ^ 0xee,
                     key[0] ^ 0x6c7967656e657261ULL, key[1] ^ 0x7465646279746573ULL};
    size_t i = 0;
    for (; i + 8 <= s.n; i += 8) {
        uint64_t m;

        memcpy(&m, s.p + i, 8);
        v[3] ^= m;
        sip_round(v);
        sip_round(v);
        v[0] ^= m;
    }
    uint64_t last = (uint64_t)s.n << 56;
    for (unsigned shift = 0; i < s.n; i++, shift += 8)
        last |= (uint64_t)(unsigned char)s.p[i] << shift;
    v[3] ^= last;
    sip_round(v);
    sip_round(v);
    v[0] ^= last;
    v[2] ^= 0xee;
    for (int r = 0; r < 4; r++)
        sip_round(v);
    struct sp_hash id = {.a = v[0] ^ v[1] ^ v[2] ^ v[3]};
    v[1] ^= 0xdd;
    for (int r = 0; r < 4; r++)
        sip_round(v);
    id.b = v[0] ^ v[1] ^ v[2] ^ v[3];
    return id;
}

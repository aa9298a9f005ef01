/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hash: SipHash-2-4 with 128 bits and a random key per process.
 *
 * Without the key a client cannot make collisions, so the hash may be used in place of the text.
 */
#ifndef SP_BASE_HASH_H
#define SP_BASE_HASH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

struct sp_hash {
    uint64_t a, b;
};

struct sp_hash sp_hash(struct sp_str s);

/* Takes the key of an earlier process over, so that hashes kept from that process match. Call it
 * before the first hash and the first thread. false: there is a key already. */
bool sp_hash_set_key(const uint64_t from[2]);
void sp_hash_key(uint64_t ret[2]);

#endif

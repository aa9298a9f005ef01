/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hash: SipHash-2-4 with 128 bits and a random key per process.
 *
 * Without the key a client cannot make collisions, so the hash may be used in place of the text.
 */
#ifndef SP_BASE_HASH_H
#define SP_BASE_HASH_H

#include <stdint.h>

#include "base/str.h"

struct sp_hash {
    uint64_t a, b;
};

struct sp_hash sp_hash(struct sp_str s);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sha: SHA-1 for the WebSocket handshake, SHA-256 and HMAC for tokens, comparison in constant time.
 */
#ifndef SP_BASE_SHA_H
#define SP_BASE_SHA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

void sp_sha1(struct sp_str s, uint8_t ret[20]);
void sp_sha256(struct sp_str s, uint8_t ret[32]);
/* The digest in hex, with a NUL. */
void sp_sha256_hex(struct sp_str s, char ret[65]);
void sp_hmac_sha256(struct sp_str key, struct sp_str s, uint8_t ret[32]);

/* Compares in a time that depends on the length only. */
bool sp_same_secret(struct sp_str a, struct sp_str b);

#endif

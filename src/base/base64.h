/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base64: RFC 4648 section 4, with padding. Strict when reading, fast when writing.
 */
#ifndef SP_BASE_BASE64_H
#define SP_BASE_BASE64_H

#include <stddef.h>

#include "base/error.h"
#include "base/str.h"

#define SP_BASE64_LEN(n) (((n) + 2) / 3 * 4)

/* Writes exactly SP_BASE64_LEN(n) characters, no terminator, and returns their end. */
char *sp_base64_encode(char *out, const void *bytes, size_t n);

/*
 * Decodes into out, which has room for at least text.n / 4 * 3 bytes and may be text.p itself
 * (decoding in place). Refused (SP_E_INVALID, texts of exec-server-protocol.md 2.3): a symbol that
 * is not of the alphabet ("Invalid symbol 33, offset 0."), missing or misplaced padding ("Invalid
 * padding"), an impossible length ("Invalid input length: 1"), bits set after the last byte
 * ("Invalid last symbol 98, offset 1.").
 */
int sp_base64_decode(struct sp_str text, void *out, size_t *ret_len, struct sp_err *e);

/*
 * The n symbols from `from` on alone, both multiples of four within text.n (the last part has what
 * is left, n / 4 * 3 bytes of room do). Refusals are those of the whole text, if its parts are
 * decoded from the front.
 */
int sp_base64_decode_part(struct sp_str text, size_t from, size_t n, void *out, size_t *ret_len,
                          struct sp_err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base64: RFC 4648 section 4, with padding; decoding is strict.
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
 * (decoding in place). Refusals are SP_E_INVALID with the texts of Codex' decoder: a byte outside
 * of the alphabet ("Invalid symbol 33, offset 0."), missing or misplaced padding ("Invalid
 * padding"), an impossible length ("Invalid input length: 1"), bits set after the last byte
 * ("Invalid last symbol 98, offset 1.").
 */
int sp_base64_decode(struct sp_str text, void *out, size_t *ret_len, struct sp_err *e);

/*
 * Decodes only the n symbols from `from` on; both are multiples of four. out has room for n / 4 * 3
 * bytes. If the parts of a text are decoded from the front, refusals are those of the whole text.
 */
int sp_base64_decode_part(struct sp_str text, size_t from, size_t n, void *out, size_t *ret_len,
                          struct sp_err *e);

#endif

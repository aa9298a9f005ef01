/* SPDX-License-Identifier: Apache-2.0 */
/*
 * utf8: validation, and replacement of what is not UTF-8.
 */
#ifndef SP_BASE_UTF8_H
#define SP_BASE_UTF8_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"

/* Strict: shortest forms only, no surrogates, nothing above U+10FFFF. */
bool sp_utf8_is_valid(struct sp_str s);

/* The length of the longest valid prefix of s. */
size_t sp_utf8_valid_prefix(struct sp_str s);

/* Appends s with every maximal ill-formed part replaced by U+FFFD. false: no room. */
bool sp_utf8_add_lossy(struct sp_buf *out, struct sp_str s);

/* The UTF-8 of a character into `out`; returns its length. c is a Unicode scalar value. */
size_t sp_utf8_encode(uint32_t c, char out[4]);

/* The length of the character at the front of s if it has the property White_Space, else 0. s is
 * valid UTF-8. */
size_t sp_utf8_space_at(struct sp_str s);
/* Without white space at both ends, or at the end. */
struct sp_str sp_utf8_trim(struct sp_str s);
struct sp_str sp_utf8_trim_end(struct sp_str s);

#endif

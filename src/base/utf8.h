/* SPDX-License-Identifier: Apache-2.0 */
/*
 * utf8: is it, and what to do when it is not.
 */
#ifndef SP_BASE_UTF8_H
#define SP_BASE_UTF8_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/str.h"

/* Shortest forms only, no surrogates, nothing above U+10FFFF. ASCII is skipped 32 bytes at a time.
 */
bool sp_utf8_is_valid(struct sp_str s);

/* The length of the longest valid prefix of s. */
size_t sp_utf8_valid_prefix(struct sp_str s);

/* Appends s with every maximal ill-formed part replaced by U+FFFD. false: no room. */
bool sp_utf8_add_lossy(struct sp_buf *out, struct sp_str s);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ere: extended regular expressions, searched in a stream as it arrives.
 *
 * The syntax is POSIX's (. [] [[:class:]] () | * + ? {m,n} ^ $ and \ before any of them) with the
 * common escapes of Perl: \d \w \s \D \W \S \b \t \n \r, also in [], (?:) (?i) (?i:) (?m), and
 * lazy repetitions. (?i) is about ASCII letters. No back references.
 * ^ and $ match at line ends, and . does not match a line feed. Matching is by bytes, not
 * characters; a character that is not ASCII matches itself.
 *
 * Expressions come from clients and are not trusted: time is at most the length of the text times
 * the size of the program, and memory depends on the program only.
 */
#ifndef SP_BASE_ERE_H
#define SP_BASE_ERE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

#define SP_ERE_TEXT_MAX    4096 /* bytes of an expression */
#define SP_ERE_PROGRAM_MAX 2048 /* steps of its program, with repetitions written out */

struct sp_ere;

/* SP_E_INVALID with what is wrong and where ("`(` at byte 3 is never closed"). */
int sp_ere_new(struct sp_str text, struct sp_ere **ret, struct sp_err *e);
void sp_ere_free(struct sp_ere *x); /* NULL is fine */

/* Searches one stream, in pieces of any size. true: the expression matches somewhere since the last
 * reset; it stays true until the next one. */
bool sp_ere_feed(struct sp_ere *x, struct sp_str bytes);
/* The answer if the stream ended here, where `x$` may match. If it is false, the state is unchanged
 * and feeding may go on. */
bool sp_ere_finish(struct sp_ere *x);
/* Begins a new stream, at the beginning of a line. */
void sp_ere_reset(struct sp_ere *x);

#endif

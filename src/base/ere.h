/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ere: extended regular expressions, searched in a stream as it arrives.
 *
 * POSIX's syntax (. [] [[:class:]] () | * + ? {m,n} ^ $ and \ before any of them), and what people
 * write besides: \d \w \s \D \W \S \b \t \n \r, also in [], and (?:). No references back. ^ and $
 * are the ends of lines, and . is no line feed. Bytes, not characters; what is not ASCII stands for
 * itself.
 *
 * Time is that of the text times the size of the expression, whatever it says, and memory is that
 * of the expression: it may come from anybody.
 */
#ifndef SP_BASE_ERE_H
#define SP_BASE_ERE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

#define SP_ERE_TEXT_MAX    4096 /* bytes of an expression */
#define SP_ERE_PROGRAM_MAX 2048 /* steps that it comes to, repetitions written out */

struct sp_ere;

/* SP_E_INVALID: what is wrong and where ("`(` at byte 3 is never closed"). */
int sp_ere_new(struct sp_str text, struct sp_ere **ret, struct sp_err *e);
void sp_ere_free(struct sp_ere *x); /* NULL is fine */

/* A search through one stream: fed piece by piece, wherever pieces begin and end. true: the
 * expression matches somewhere in what was fed since the last reset; it stays true until then. */
bool sp_ere_feed(struct sp_ere *x, struct sp_str bytes);
/* The stream ends here: `x$` may match now. One that does not may be fed on: nothing has changed.
 */
bool sp_ere_finish(struct sp_ere *x);
/* A new stream, at the beginning of a line. */
void sp_ere_reset(struct sp_ere *x);

#endif

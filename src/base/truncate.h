/* SPDX-License-Identifier: Apache-2.0 */
/*
 * truncate: output made short enough for its reader.
 *
 * An allowance is a number of bytes or of tokens, and a token is four bytes. What is over the
 * allowance loses its middle, never half a character, and says how much is gone in the allowance's
 * own unit. All texts are valid UTF-8. What appends returns false if there is no room, and has then
 * appended nothing.
 */
#ifndef SP_BASE_TRUNCATE_H
#define SP_BASE_TRUNCATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"

enum sp_allowance_unit { SP_ALLOWANCE_BYTES, SP_ALLOWANCE_TOKENS };

struct sp_allowance {
    enum sp_allowance_unit unit;
    uint64_t limit;
};

/* What a buffer in front of the text did to it: sp_truncate_format needs to know. */
struct sp_omission {
    uint64_t bytes;       /* that were dropped; 0: the text is complete */
    uint64_t token_count; /* of everything, with what was dropped */
};

/* All of these round up, and stop at the largest number. */
uint64_t sp_allowance_tokens_of(uint64_t bytes);
uint64_t sp_allowance_bytes(struct sp_allowance max);
uint64_t sp_allowance_tokens(struct sp_allowance max);
struct sp_allowance sp_allowance_scale(struct sp_allowance max, uint64_t num, uint64_t den);

/* The same unit, another limit: what a configured number of tokens makes of a default. */
struct sp_allowance sp_allowance_with_tokens(struct sp_allowance max, uint64_t tokens);

/* The one that allows fewer bytes; if neither does, the configured one. */
struct sp_allowance sp_allowance_effective(struct sp_allowance requested,
                                           struct sp_allowance configured);

/* Which bytes stay: [0, prefix_end) and [suffix_start, n). */
struct sp_split {
    size_t prefix_end;
    size_t suffix_start;
    size_t removed; /* characters between them */
};

/* At most `left` bytes from the beginning and `right` from the end, whole characters only. */
struct sp_split sp_truncate_split(struct sp_str text, uint64_t left, uint64_t right);

/* What of a text over its allowance sp_truncate_add keeps. */
struct sp_split sp_truncate_gap(struct sp_str text, struct sp_allowance max);

/* LF ends a line; a last one without it counts. */
size_t sp_truncate_lines(struct sp_str text);

/* The text, or its beginning, a marker and its end. */
bool sp_truncate_add(struct sp_buf *out, struct sp_str text, struct sp_allowance max);

/*
 * The same with a warning in front if it is not the whole text. If bytes were omitted before, that
 * is said too: in the text, where the gap is, or in front if it is no longer there.
 */
bool sp_truncate_format(struct sp_buf *out, struct sp_str text, struct sp_allowance max,
                        struct sp_omission gone);

/*
 * The same, and at most `allowed` bytes of it: the allowance shrinks until the whole fits. If it
 * has shrunk to nothing what is left is the warning and the marker, however long.
 */
bool sp_truncate_fit(struct sp_buf *out, struct sp_str text, struct sp_allowance max,
                     struct sp_omission gone, uint64_t allowed);

#endif

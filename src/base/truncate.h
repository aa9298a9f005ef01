/* SPDX-License-Identifier: Apache-2.0 */
/*
 * truncate: output cut to the allowance of a model.
 *
 * An allowance is a number of bytes or of tokens; a token is four bytes. A longer text loses its
 * middle, in whole characters, and a marker gives the number of removed characters or tokens. All
 * texts are valid UTF-8. Functions that append return false without room, and append nothing then.
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

/* What a headtail buffer has omitted from the text before, for sp_truncate_format. */
struct sp_omission {
    uint64_t bytes;       /* omitted; 0: the text is complete */
    uint64_t token_count; /* of the original, including omitted bytes */
};

/* All round up, and saturate at UINT64_MAX. */
uint64_t sp_allowance_tokens_of(uint64_t bytes);
uint64_t sp_allowance_bytes(struct sp_allowance max);
struct sp_allowance sp_allowance_scale(struct sp_allowance max, uint64_t num, uint64_t den);

/* The smaller one in bytes; if they are equal, the configured one. */
struct sp_allowance sp_allowance_effective(struct sp_allowance requested,
                                           struct sp_allowance configured);

/* Which bytes stay: [0, prefix_end) and [suffix_start, n). */
struct sp_split {
    size_t prefix_end;
    size_t suffix_start;
    size_t removed; /* number of characters between them */
};

/* Keeps at most `left` bytes of the beginning and `right` of the end, in whole characters. */
struct sp_split sp_truncate_split(struct sp_str text, uint64_t left, uint64_t right);

/* The parts of a text above its allowance that sp_truncate_add keeps. */
static inline struct sp_split sp_truncate_gap(struct sp_str text, struct sp_allowance max)
{
    const uint64_t bytes = sp_allowance_bytes(max);

    return sp_truncate_split(text, bytes / 2, bytes - bytes / 2);
}

/* The number of lines; a last one without LF counts. */
size_t sp_truncate_lines(struct sp_str text);

/* Appends the text, or its beginning, a marker and its end. */
bool sp_truncate_add(struct sp_buf *out, struct sp_str text, struct sp_allowance max);

/*
 * The same with a warning in front of a truncated text. If bytes were omitted before, their marker
 * is in the text, or in front of it if truncation has removed that part.
 */
bool sp_truncate_format(struct sp_buf *out, struct sp_str text, struct sp_allowance max,
                        struct sp_omission gone);

/*
 * The same in at most `allowed` bytes: the allowance is reduced until the result fits. With an
 * allowance of 0 the warning and the marker remain, even if they are longer.
 */
bool sp_truncate_fit(struct sp_buf *out, struct sp_str text, struct sp_allowance max,
                     struct sp_omission gone, uint64_t allowed);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pattern: an endless text of which both ends know every byte.
 *
 * Lines of 20 bytes, repeating after 3,276 of them: a period just below 64 KiB, so that a block
 * which was lost, doubled or swapped does not look like its neighbour. A child writes it; the
 * client holds what arrives against it without decoding: it encodes what it expects and compares.
 */
#ifndef BENCH_PATTERN_H
#define BENCH_PATTERN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

enum { BENCH_LINE = 20, BENCH_BLOCK = 65536 };

/* The BENCH_BLOCK bytes that begin at this offset of the text. */
const char *bench_pattern_at(uint64_t offset);

/*
 * Is this base64 of the text's bytes from offset on? Looks at both ends, or at everything if
 * `whole`. *ret_len is how many bytes it stands for.
 */
bool bench_pattern_holds(uint64_t offset, struct sp_str base64, bool whole, size_t *ret_len);

#endif

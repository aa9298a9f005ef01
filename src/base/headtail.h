/* SPDX-License-Identifier: Apache-2.0 */
/*
 * headtail: the first and the last bytes of a stream, and the count of what fell between.
 *
 * Half of the capacity is for the beginning, which stays; the rest is a ring for the end. Memory
 * grows with what comes in, up to the capacity, and what is kept about it is of one size however
 * small the pieces were.
 *
 * When memory is gone, a push or a merge says so and changes nothing: it takes all or nothing, so
 * no byte is lost and none is counted twice. Whoever has the bytes keeps them (a ring whose
 * position is not yet published as served) and tries again, or gives them up aloud.
 */
#ifndef SP_BASE_HEADTAIL_H
#define SP_BASE_HEADTAIL_H

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"

#define SP_HEADTAIL_CAPACITY 1048576

/* What stands for the missing bytes; takes their count, a uint64_t. */
#define SP_HEADTAIL_MARKER "... %" PRIu64 " bytes omitted ..."

struct sp_headtail {
    size_t capacity;
    struct sp_buf head;
    char *tail; /* a ring of tail_size bytes, the oldest of tail_len at tail_from */
    size_t tail_size;
    size_t tail_from;
    size_t tail_len;
    uint64_t omitted; /* stops at the largest number */
};

/* Any capacity is fine: 0 keeps nothing and counts everything, 1 keeps the last byte. */
void sp_headtail_init(struct sp_headtail *h, size_t capacity);
void sp_headtail_done(struct sp_headtail *h); /* frees the bytes; as new, the capacity is kept */

/* false: memory is gone, nothing was taken. */
bool sp_headtail_push(struct sp_headtail *h, struct sp_str chunk);

/*
 * Appends a later buffer of the same capacity and empties it; the outcome is that of one buffer
 * that saw both streams. false: memory is gone, both are as they were.
 */
bool sp_headtail_merge(struct sp_headtail *h, struct sp_headtail *later);

/* The contents with their count, now the caller's; h is empty and begins with a fresh head. */
struct sp_headtail sp_headtail_drain(struct sp_headtail *h);

size_t sp_headtail_retained(const struct sp_headtail *h);
uint64_t sp_headtail_total(const struct sp_headtail *h); /* with what was omitted */

/* What is kept, borrowed until h changes: the head, then both runs of the tail by age. */
void sp_headtail_view(const struct sp_headtail *h, struct sp_str *ret_head,
                      struct sp_str ret_tail[2]);
/* Gives back the memory that is held for more to come. */
void sp_headtail_trim(struct sp_headtail *h);

/* Appends head and tail, the marked form with a line about the gap if there is one. false: no room.
 */
bool sp_headtail_add_raw(const struct sp_headtail *h, struct sp_buf *out);
bool sp_headtail_add_marked(const struct sp_headtail *h, struct sp_buf *out);

/* Copies the last bytes, at most n and never across the gap. Returns how many. */
size_t sp_headtail_peek_end(const struct sp_headtail *h, char *ret, size_t n);

/*
 * Takes back n bytes that peek_end showed, as if they had not been pushed. For a buffer whose
 * stream has ended here: after a gap its tail is no longer full, so that a later merge would not
 * be exact.
 */
void sp_headtail_drop_end(struct sp_headtail *h, size_t n);

#define auto_headtail __attribute__((cleanup(sp_headtail_done)))

#endif

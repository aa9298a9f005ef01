/* SPDX-License-Identifier: Apache-2.0 */
/*
 * headtail: the first and the last bytes of a stream, and the number of bytes omitted between them.
 *
 * Half of the capacity is for the beginning; the rest is a ring buffer for the end. Memory grows
 * with the input up to the capacity, and does not depend on the size of the pieces.
 *
 * Without memory a push or a merge returns false and changes nothing, so that no byte is lost or
 * counted twice: the caller still has the bytes and may try again.
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

/* The line in place of the omitted bytes; takes their count, a uint64_t. */
#define SP_HEADTAIL_MARKER "... %" PRIu64 " bytes omitted ..."

struct sp_headtail {
    size_t capacity;
    struct sp_buf head;
    char *tail; /* a ring of tail_size bytes, the oldest of tail_len at tail_from */
    size_t tail_size;
    size_t tail_from;
    size_t tail_len;
    uint64_t omitted; /* saturates at UINT64_MAX */
};

/* A capacity of 0 keeps nothing and counts everything, 1 keeps the last byte. */
void sp_headtail_init(struct sp_headtail *h, size_t capacity);
void sp_headtail_done(struct sp_headtail *h); /* frees the bytes and keeps the capacity */

/* false: no memory; nothing was added. */
bool sp_headtail_push(struct sp_headtail *h, struct sp_str chunk);

/*
 * Appends a later buffer of the same capacity and empties it. The result is that of one buffer for
 * both streams. false: no memory; both are unchanged.
 */
bool sp_headtail_merge(struct sp_headtail *h, struct sp_headtail *later);

/* Moves the contents to the caller, who frees them; h is empty afterwards. */
struct sp_headtail sp_headtail_drain(struct sp_headtail *h);

static inline size_t sp_headtail_retained(const struct sp_headtail *h)
{
    return h->head.len + h->tail_len;
}
uint64_t sp_headtail_total(const struct sp_headtail *h); /* including omitted bytes */

/* The kept bytes, valid until h changes: the head, then the two parts of the tail in order. */
void sp_headtail_view(const struct sp_headtail *h, struct sp_str *ret_head,
                      struct sp_str ret_tail[2]);
/* Frees memory beyond the current length. */
void sp_headtail_trim(struct sp_headtail *h);

/* Append head and tail; the marked form with SP_HEADTAIL_MARKER between them if bytes were omitted.
 * false: no room. */
bool sp_headtail_add_raw(const struct sp_headtail *h, struct sp_buf *out);
bool sp_headtail_add_marked(const struct sp_headtail *h, struct sp_buf *out);

/* Copies the last bytes, at most n and not across the gap. Returns their number. */
size_t sp_headtail_peek_end(const struct sp_headtail *h, char *ret, size_t n);

/*
 * Removes the last n bytes, at most as many as peek_end shows. Only at the end of a stream: behind
 * a gap the tail is not full afterwards, so that a later merge would not be exact.
 */
void sp_headtail_drop_end(struct sp_headtail *h, size_t n);

#define auto_headtail __attribute__((cleanup(sp_headtail_done)))

#endif

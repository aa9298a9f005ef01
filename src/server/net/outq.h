/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outq: messages on their way out, as the bytes that will be sent. It does no I/O.
 *
 * One buffer holds everything that waits, so that one send takes several messages. A message is
 * written by its maker straight into the buffer, behind room for its header; once its length is
 * known the header goes in front in its shortest form, and of a large message what is behind the
 * first fragment moves to the right, by the headers that part it.
 */
#ifndef SP_SERVER_NET_OUTQ_H
#define SP_SERVER_NET_OUTQ_H

#include "server/net/ws.h"

struct sp_outq {
    char *data;
    size_t start, end; /* what waits */
    size_t cap;
    size_t reserved;  /* bytes promised to the message being written */
    size_t head_room; /* bytes kept free before it */
    size_t fragment;  /* 0: lines; else frames of at most so many bytes */
    bool is_masked;   /* frames of a client: each with a random mask */
};

void sp_outq_done(struct sp_outq *q); /* frees the buffer; the struct is as new, its kind kept */

/* Room for one message of at most `max` bytes, NULL: no memory. Commit with its length, 0: none. */
char *sp_outq_reserve(struct sp_outq *q, size_t max);
void sp_outq_commit(struct sp_outq *q, size_t len);

/* The same for one part of a message, of at most one fragment. */
void sp_outq_commit_part(struct sp_outq *q, size_t len, bool is_first, bool is_last);

/* One control frame. Not between reserve and commit. false: no memory. */
bool sp_outq_control(struct sp_outq *q, enum sp_ws_opcode opcode, const void *bytes, size_t n);

/* Bytes as they are. false: no memory. */
bool sp_outq_raw(struct sp_outq *q, const void *bytes, size_t n);

static inline size_t sp_outq_size(const struct sp_outq *q)
{
    return q->end - q->start;
}

/* The first n bytes were sent. An empty buffer above 4 MiB is given back at once. */
void sp_outq_sent(struct sp_outq *q, size_t n);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outq: queue of outgoing messages, as the bytes to send. No I/O.
 *
 * One buffer has all queued bytes, so that one send takes several messages. The caller writes a
 * message straight into the buffer, after room for its header. Commit writes the header in its
 * shortest form; for a large message it moves the bytes after the first fragment to the right, to
 * make room for the headers of the other fragments.
 */
#ifndef SP_SERVER_NET_OUTQ_H
#define SP_SERVER_NET_OUTQ_H

#include "server/net/ws.h"

struct sp_outq {
    char *data;
    size_t start, end; /* queued bytes */
    size_t cap;
    size_t reserved;  /* for the message being written */
    size_t head_room; /* for its header */
    size_t fragment;  /* 0: lines; else the most payload bytes of a frame */
    bool is_masked;   /* a client's frames: each has a random mask */
};

void sp_outq_done(struct sp_outq *q); /* frees the buffer; fragment and is_masked stay */

/* Room for one message of at most `max` bytes; NULL: no memory. Commit with len 0 queues nothing.
 */
char *sp_outq_reserve(struct sp_outq *q, size_t max);
void sp_outq_commit(struct sp_outq *q, size_t len);

/* Commits one part of a message, of at most `fragment` bytes. */
void sp_outq_commit_part(struct sp_outq *q, size_t len, bool is_first, bool is_last);

/* One control frame. Not between reserve and commit. false: no memory. */
bool sp_outq_control(struct sp_outq *q, enum sp_ws_opcode opcode, const void *bytes, size_t n);

/* Bytes without framing. false: no memory. */
bool sp_outq_raw(struct sp_outq *q, const void *bytes, size_t n);

static inline size_t sp_outq_size(const struct sp_outq *q)
{
    return q->end - q->start;
}

/* The first n bytes were sent. An empty buffer above 4 MiB is freed. */
void sp_outq_sent(struct sp_outq *q, size_t n);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outbox: queue of messages that the socket of a cell did not take at once.
 */
#ifndef SP_CORE_OUTBOX_H
#define SP_CORE_OUTBOX_H

#include <stdbool.h>
#include <stddef.h>

#define SP_OUTBOX_FULL (1U << 20)

struct sp_parcel;

struct sp_outbox { /* zero: empty */
    struct sp_parcel *first, *last;
    size_t bytes; /* above SP_OUTBOX_FULL the outbox is full, but still takes messages */
    bool was_full;
    bool is_short; /* the last send failed with ENOMEM or ENOBUFS */
    int err; /* a send failed with this errno and messages were dropped: the cell must not go on
                without them. 0: none were, or the cell has gone (EPIPE, ECONNRESET) */
    struct sp_parcel *reserve; /* for small messages when malloc has no memory */
};

/* Memory for SP_OUTBOX_RESERVE messages without descriptor or tail. false: no memory. */
#define SP_OUTBOX_RESERVE 64
bool sp_outbox_reserve(struct sp_outbox *o);
/* The descriptors, at most SP_WIRE_FDS, are duplicated. false: out of memory or descriptors. */
bool sp_outbox_add(struct sp_outbox *o, const void *msg, size_t len, const void *tail,
                   size_t tail_len, const int *fds, int fd_count);
/* Sends until the socket is full. true: the outbox was full and has room again. */
bool sp_outbox_send(struct sp_outbox *o, int socket);
/* Drops the messages, and frees the reserve. */
void sp_outbox_free(struct sp_outbox *o);

#endif

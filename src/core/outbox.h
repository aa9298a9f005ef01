/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outbox: messages to a cell that its socket did not take at once, in order.
 */
#ifndef SP_CORE_OUTBOX_H
#define SP_CORE_OUTBOX_H

#include <stdbool.h>
#include <stddef.h>

struct sp_parcel;

struct sp_outbox { /* zero: empty */
    struct sp_parcel *first, *last;
    size_t bytes;
    bool was_full;
    bool is_short; /* the kernel had no memory for the first one: it is tried again after a while */
    int err;       /* messages were dropped, and not for the other side's end: why; 0: none were */
    struct sp_parcel *reserve; /* for small messages when malloc has no memory */
};

/* Memory for SP_OUTBOX_RESERVE messages without descriptor or tail. false: no memory. */
#define SP_OUTBOX_RESERVE 64
bool sp_outbox_reserve(struct sp_outbox *o);
/* More is queued than a cell takes at once. */
bool sp_outbox_is_full(const struct sp_outbox *o);
/* The descriptor (-1: none) is copied. false: no memory, or no room in our table. */
bool sp_outbox_add(struct sp_outbox *o, const void *msg, size_t len, const void *tail,
                   size_t tail_len, int fd);
/* Sends what the socket takes. true: it was full and is not any more. */
bool sp_outbox_send(struct sp_outbox *o, int socket);
void sp_outbox_drop(struct sp_outbox *o);
void sp_outbox_free(struct sp_outbox *o); /* drops, and gives the reserve back */

#endif

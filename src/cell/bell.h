/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bell: the memory that a front and one of its cells share, and how each wakes the other.
 *
 * One bit per slot and direction says "look at this one"; a byte through a socket pair ends a
 * sleep. Who is awake looks at the bits before it sleeps, so a busy side costs the other no system
 * call. A socket and not an eventfd: its wake-up tells the scheduler that the waker is about to
 * rest, so that the woken side runs on this processor at once instead of rousing an idle one. For
 * each slot the front also says how far an attached client has been served.
 */
#ifndef SP_CELL_BELL_H
#define SP_CELL_BELL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct sp_bell_page;

enum sp_side { SP_SIDE_FRONT, SP_SIDE_CELL };

struct sp_bell {
    struct sp_bell_page *page; /* NULL: none */
    uint32_t slots;
    enum sp_side side; /* ours */
    int page_fd;       /* the front's; -1 in the cell */
    bool has_marked;   /* since the last wake */
    int wake[2];       /* each side's end of the socket pair; -1: not in our hands */
};

/* The front makes one; the cell maps what it was given (whose size it checks). */
int sp_bell_new(uint32_t slots, struct sp_bell *ret, struct sp_err *e);
int sp_bell_join(int page_fd, uint32_t slots, int wake_front, int wake_cell, struct sp_bell *ret,
                 struct sp_err *e);
void sp_bell_free(struct sp_bell *b); /* closes the descriptors too */

/* Marks the slot for the other side and wakes it if it sleeps. */
void sp_bell_ring(struct sp_bell *b, uint32_t slot);
/* The same in two steps: mark while there is work, wake right before going to sleep. */
void sp_bell_mark(struct sp_bell *b, uint32_t slot);
void sp_bell_wake(struct sp_bell *b);
/* We were woken: takes the bytes that did it. */
void sp_bell_hush(struct sp_bell *b);

/* Calls fn for each slot marked for us and takes the marks away. true: there was one. */
bool sp_bell_answer(struct sp_bell *b, void (*fn)(void *user, uint32_t slot), void *user);

/* Says that we are about to sleep. false: a mark is there, do not sleep. Then sp_bell_awake. */
bool sp_bell_may_sleep(struct sp_bell *b);
void sp_bell_awake(struct sp_bell *b);

/* The front's word on a slot: is a client attached, and up to where has it been served. */
void sp_bell_serve(struct sp_bell *b, uint32_t slot, bool is_attached, uint64_t served);
bool sp_bell_served(const struct sp_bell *b, uint32_t slot,
                    uint64_t *ret_served); /* false: nobody attached */

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bell: the memory that the front shares with one of its cells, and how each side wakes the other.
 *
 * One bit per slot and direction marks a slot that has news; a byte through a socket pair ends a
 * sleep. A side checks its marks before it sleeps, so waking a busy side costs no system call. A
 * socket instead of an eventfd: its wake-up is synchronous, which tells the scheduler that the
 * waker is about to sleep, so the woken side runs on this processor instead of an idle one. For
 * each slot the front also stores how far the process's owner has been served, and what share of
 * memory its ring may have.
 */
#ifndef SP_CELL_BELL_H
#define SP_CELL_BELL_H

#include <stdatomic.h>
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
    bool has_marked;   /* a mark was set since the last sp_bell_wake */
    int wake[2];       /* each side's end of the socket pair; -1: not open here */
};

/* The front makes the bell; the cell joins it, after checking the size of the memory. */
int sp_bell_new(uint32_t slots, struct sp_bell *ret, struct sp_err *e);
int sp_bell_join(int page_fd, uint32_t slots, int wake_front, int wake_cell, struct sp_bell *ret,
                 struct sp_err *e);
/* A front that takes the cell over joins the bell of an earlier one; takes `wake` on success. */
int sp_bell_take_over(int page_fd, uint32_t slots, int wake, struct sp_bell *ret, struct sp_err *e);
void sp_bell_free(struct sp_bell *b); /* closes the descriptors too */

/* Marks the slot for the other side; sp_bell_wake wakes that side if it sleeps. Mark while there is
 * work, wake right before going to sleep. */
void sp_bell_mark(struct sp_bell *b, uint32_t slot);
void sp_bell_wake(struct sp_bell *b);
/* Reads the bytes of wake-ups. */
void sp_bell_drain(struct sp_bell *b);

/* Clears the marks for our side and calls fn for each. true: there was one. */
bool sp_bell_answer(struct sp_bell *b, void (*fn)(void *user, uint32_t slot), void *user);

/* Announces that our side is about to sleep. false: a mark is set, do not sleep. After the sleep
 * call sp_bell_awake, which returns when the other side sent a wake-up (sp_clock_us); 0: none. */
bool sp_bell_may_sleep(struct sp_bell *b);
uint64_t sp_bell_awake(struct sp_bell *b);

/* Set by the front, read by the cell: whether the slot's process has an owner (a connection has its
 * session), and up to which positions of the ring it was sent the records, and has read them. */
struct sp_served {
    uint64_t sent, confirmed;
};
void sp_bell_serve(struct sp_bell *b, uint32_t slot, bool is_owned, struct sp_served served);
bool sp_bell_served(const struct sp_bell *b, uint32_t slot,
                    struct sp_served *ret_served); /* false: no owner */

/* Set by the front, read by the cell: the slot's share of memory, in bytes; 0: no bound. */
_Atomic uint32_t *sp_bell_share(const struct sp_bell *b, uint32_t slot);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start: from the front's START to the STARTED that answers it.
 *
 * A start is normally answered at once. If the working directory or the program lies on a file
 * system that hangs, the start stays pending: only its child waits, the cell goes on. After
 * SP_START_DEADLINE_MS the child is killed and the start fails. A child in an uninterruptible wait
 * does not die before its disk answers, and it shares our memory, so its stack and strings are kept
 * until it is reaped. At most SP_MAX_PENDING starts may be pending or dying; further ones fail with
 * EBUSY.
 */
#ifndef SP_CELL_START_H
#define SP_CELL_START_H

#include "cell/command.h"
#include "cell/strays.h"

#define SP_MAX_PENDING       64
#define SP_START_DEADLINE_MS 10000

struct sp_start_room;

struct sp_starts {
    struct sp_cell_state *cell;
    struct sp_command *commands;
    uint32_t slots, slot_end; /* size of the table; one past the highest slot ever used */
    struct sp_strays *strays;
    int control;                 /* where STARTED is sent */
    struct sp_start_room *ready; /* for the next start; NULL: to be made */
    struct sp_start_room *pending[SP_MAX_PENDING];
    uint32_t count;
};

/* Answers the START in *message, now or later. A pending start keeps the message, because its child
 * uses the strings, and *message is replaced by another buffer. */
void sp_starts_begin(struct sp_starts *s, struct sp_wire_message **message);
/* Once a turn: answers starts that are done or late, and reaps abandoned children. */
void sp_starts_poll(struct sp_starts *s);
int sp_starts_timeout(const struct sp_starts *s); /* ms until the next poll; -1: none is needed */
/* In a forked child: erases the arguments and variables of commands. */
void sp_starts_wipe(struct sp_starts *s);
void sp_starts_free(struct sp_starts *s);

#endif

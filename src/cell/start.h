/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start: from a START of the front to the STARTED that answers it.
 *
 * A start is normally answered at once. One whose working directory or program lies on a file
 * system that does not answer stays pending: its child alone waits, the cell goes on. After
 * SP_START_DEADLINE_MS the child is killed and the start fails. A child in an uninterruptible wait
 * does not die before its disk answers, and it shares our memory: its stack and strings are kept
 * until it is reaped. So many may be pending or dying; further starts are refused with EBUSY.
 */
#ifndef SP_CELL_START_H
#define SP_CELL_START_H

#include "cell/command.h"
#include "cell/strays.h"

#define SP_MAX_PENDING       64
#define SP_START_DEADLINE_MS 10000

struct sp_start_room;

struct sp_starts {
    struct sp_yard *yard;
    struct sp_command *commands;
    uint32_t slots, slot_end; /* so many there are, and up to here they were used */
    struct sp_strays *strays;
    int control;                 /* where STARTED is sent */
    struct sp_start_room *ready; /* for the next start; NULL: to be made */
    struct sp_start_room *pending[SP_MAX_PENDING];
    uint32_t count;
};

/* Answers the START in *message, now or later. Then *message is another one: its strings are in
 * use. */
void sp_starts_begin(struct sp_starts *s, struct sp_wire_message **message);
/* Answers what has become ready or late, and reaps. Once a turn. */
void sp_starts_poll(struct sp_starts *s);
int sp_starts_timeout(const struct sp_starts *s); /* ms until the next poll; -1: none is needed */
/* In a forked child: no argument or environment of a command stays in memory. */
void sp_starts_wipe(struct sp_starts *s);
void sp_starts_free(struct sp_starts *s);

#endif

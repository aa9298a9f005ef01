/* SPDX-License-Identifier: Apache-2.0 */
/*
 * answers: messages of a cell to its front, in order.
 *
 * A cell that is not kept waits for room in the socket: its front reads, or is dead and the send
 * fails. A kept cell never waits, since the keeper holds the socket open while there is no front:
 * what the socket does not take is queued, and while the queue is full the cell reads no messages.
 */
#ifndef SP_CELL_ANSWERS_H
#define SP_CELL_ANSWERS_H

#include <stdbool.h>
#include <stddef.h>

#include "cell/command.h"

#define SP_ANSWERS_FULL 64

struct sp_queued_answer;

struct sp_answers {
    int socket;
    bool is_kept;
    bool is_short; /* the last send failed for lack of memory or descriptors: no event follows */
    const struct sp_cell_state *cell;      /* STARTED takes its input from there */
    struct sp_queued_answer *first, **end; /* end: &first at the beginning */
    unsigned count;
};

/* Of STARTED, fd is the input of the command; a queued one looks it up when it is sent. fd is
 * borrowed; -1: none. */
void sp_answers_send(struct sp_answers *a, const void *message, size_t len, int fd);
/* true: the queue is empty. */
bool sp_answers_flush(struct sp_answers *a);
/* Forgets what was meant for an earlier front. */
void sp_answers_drop(struct sp_answers *a);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cells: the front's side of its cells: their processes, sockets and bells, and who sits in which
 * slot.
 */
#ifndef SP_CORE_CELLS_H
#define SP_CORE_CELLS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "cell/bell.h"
#include "cell/wire.h"
#include "os/loop.h"

struct sp_journal;
struct sp_cells;
struct sp_cell;
struct sp_seat;

/* What a seat hears; ops.lost may be called at any time after start, the rest only if it was not.
 */
struct sp_seat_ops {
    /* The answer to start. Both descriptors are the seat's to close; -1: none. */
    void (*started)(struct sp_seat *s, const struct sp_wire_started *m, int ring_fd, int input_fd);
    void (*news)(struct sp_seat *s); /* its ring has new records */
    void (*done)(struct sp_seat *s, uint64_t token, int err);
    /* The cell is gone, and with it the process; why (code NONE: nobody knows). */
    void (*lost)(struct sp_seat *s, const struct sp_err *why);
};

/* One process's place in a cell; embedded in the process. */
struct sp_seat {
    const struct sp_seat_ops *ops;
    struct sp_cell *cell; /* NULL: no seat taken */
    uint32_t slot;
    uint64_t number;
    bool is_idle; /* its process has closed: the cell may end */
};

/* A process of the cell that is no command: it does file operations (cell/cell_files.h). The cell
 * is busy while it is there, but deserted if it is at rest. */
struct sp_cell_helper {
    /* The cell is gone, and why (code NONE: nobody knows). The helper is unlinked already. */
    void (*lost)(struct sp_cell_helper *g, const struct sp_err *why);
    struct sp_cell *cell; /* NULL: none */
    bool is_resting;      /* nothing would be lost with it; its owner says so */
    struct sp_cell_helper *prev, *next;
};

struct sp_cell_options {
    const char *program; /* our own binary, run as `PROGRAM cell` */
    uint32_t slots;      /* the most processes */
    bool use_cgroups;
    struct sp_journal *journal;        /* where its cgroup is written down; NULL: nowhere */
    uint64_t nofile_soft, nofile_hard; /* what commands get */
    const struct sp_buf *plan;         /* how it confines itself; NULL: an open cell */
    void *user;
    void (*drained)(void *user); /* the cell was congested and is not any more, or is given up */
    void (*died)(void *user);    /* after every seat has heard ops.lost */
    void (*rested)(void *user);  /* a process has closed; NULL: nobody asks */
    void (*idle)(void *user);    /* the same, and none is left but resting helpers; NULL likewise */
    void (*gone)(void *user);    /* after sp_cell_kill: no process of it is left; may be NULL */
};

/* All cells of a front. One embedded in a host program has no children but its cells: it is no
 * subreaper, and what a killed cell leaves ends by its cgroup or lives on. */
int sp_cells_new(struct sp_loop *loop, bool is_embedded, struct sp_cells **ret, struct sp_err *e);
/* Ends those that are left, too. */
void sp_cells_free(struct sp_cells *g);
/* Counts messages that were queued for a cell which has more queued than it takes at once: who
 * caused one reads no more requests until options.drained was called. */
uint64_t sp_cells_pushes(const struct sp_cells *g);

int sp_cell_new(struct sp_cells *g, const struct sp_cell_options *o, struct sp_cell **ret,
                struct sp_err *e);
/* Ends the cell and all it holds; waits for that, some seconds at most. */
void sp_cell_free(struct sp_cell *c);
/* Ends a confined cell, which takes no time: its seats hear ops.lost, and nothing is heard of it
 * any more. */
void sp_cell_kill(struct sp_cell *c);
/* It does not answer: its processes are killed, and it ends as one that died by itself. */
void sp_cell_abandon(struct sp_cell *c);
/* Whether nothing runs there: no process that has not closed, nothing left by one, and no helper
 * but those at rest. */
bool sp_cell_is_deserted(const struct sp_cell *c);
/* Its first start is not the one that waits for its making. */
bool sp_cell_is_ready(const struct sp_cell *c);
/* enum sp_tier */
uint32_t sp_cell_tier(const struct sp_cell *c);
bool sp_cell_is_busy(const struct sp_cell *c);

/* Takes a seat and asks for the start; m's head is filled in here. Strings as in sp_wire_start. */
int sp_cell_start(struct sp_cell *c, struct sp_seat *s, struct sp_wire_start *m,
                  const struct sp_buf *strings, bool is_attached, struct sp_err *e);
/* The start was not answered for too long: further ones are refused until the cell says something.
 */
void sp_cell_suspect(struct sp_seat *s);
void sp_cell_signal(struct sp_seat *s, uint64_t token, int signal);
void sp_cell_resize(struct sp_seat *s, uint64_t token, uint16_t rows, uint16_t cols);
void sp_cell_terminate(struct sp_seat *s);
/* Its process has closed. */
void sp_cell_rest(struct sp_seat *s);
/* Gives the seat back; if it is NULL-celled already, nothing happens. */
void sp_cell_forget(struct sp_seat *s);
void sp_cell_end_session(struct sp_cell *c, uint64_t session);

/* Asks for a process that serves the other end of `socket`, which stays the caller's to close. If
 * there is none, that end is closed. */
int sp_cell_join(struct sp_cell *c, struct sp_cell_helper *g, int socket, struct sp_err *e);
/* The cell keeps a duplicate open, with the lock on it, until it ends. */
void sp_cell_hold(struct sp_cell *c, int fd);
void sp_cell_leave(struct sp_cell_helper *g); /* it is over; left already is fine */

/* How far the attached client has been served. */
void sp_cell_serve(struct sp_seat *s, bool is_attached, uint64_t served);
/* The cell waited for that and may go on with this process. */
void sp_cell_wake(struct sp_seat *s);

pid_t sp_cell_pid(const struct sp_cell *c);
/* The name of its cgroup directory (os/cgroup.h); "": none. */
const char *sp_cell_cgroup(const struct sp_cell *c);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cells: the front's side of its cells: their processes, sockets and bells, and the seats of
 * commands in their slots.
 */
#ifndef SP_CORE_CELLS_H
#define SP_CORE_CELLS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/list.h"
#include "cell/bell.h"
#include "cell/wire.h"
#include "os/loop.h"

/* How long the processes that a killed cell has left are killed, while the server runs and when it
 * ends. */
#define SP_ORPHANS_MS     10000
#define SP_ORPHANS_END_MS 5000

struct sp_journal;
struct sp_cells;
struct sp_cell;
struct sp_seat;

/* Events of a seat. lost may come at any time after the start, and is the last. */
struct sp_seat_ops {
    /* The answer to the start. The seat closes both descriptors; -1: none. */
    void (*started)(struct sp_seat *s, const struct sp_wire_started *m, int ring_fd, int input_fd);
    void (*news)(struct sp_seat *s); /* the ring has new records */
    void (*done)(struct sp_seat *s, uint64_t token, int err);
    /* The cell is gone, and the process with it. why->code NONE: the cause is unknown. */
    void (*lost)(struct sp_seat *s, const struct sp_err *why);
};

/* The place of one process in a cell; embedded in the process. */
struct sp_seat {
    const struct sp_seat_ops *ops;
    struct sp_cell *cell; /* NULL: no seat taken */
    uint32_t slot;
    uint64_t number; /* tells this process from earlier ones of the slot */
    bool has_closed; /* its process: the cell may end */
};

/* A process of the cell that runs no command: it does file operations (cell/cell_files.h). The cell
 * is busy while the worker is there, but deserted if the worker is idle. */
struct sp_cell_worker {
    /* The cell is gone; why as in sp_seat_ops. The worker is unlinked already. */
    void (*lost)(struct sp_cell_worker *h, const struct sp_err *why);
    struct sp_cell *cell; /* NULL: none */
    bool is_idle;         /* set by core/files.c: the worker may end with the cell */
    struct sp_list link;
};

struct sp_cell_options {
    const char *program; /* our own binary, run as `PROGRAM cell` */
    uint32_t slots;      /* the most processes */
    bool use_cgroups;
    struct sp_journal *journal;        /* notes the cgroup; NULL: none */
    uint64_t nofile_soft, nofile_hard; /* RLIMIT_NOFILE of commands */
    const struct sp_buf *plan;         /* of its sandbox; NULL: an open cell */
    void *user;
    void (*drained)(void *user); /* the outbox was full and has room, or was dropped */
    void (*died)(void *user);    /* after every seat has heard ops.lost */
    void (*closed)(void *user);  /* a process has closed; may be NULL */
    void (*idle)(void *user);    /* ... and only idle workers are left; may be NULL */
    void (*gone)(void *user); /* after sp_cell_kill: no process of the cell is left; may be NULL */
};

/* All cells of a front. A front that is embedded in a host program is no subreaper: processes that
 * a killed cell leaves end with its cgroup, or live on. */
int sp_cells_new(struct sp_loop *loop, bool is_embedded, struct sp_cells **ret, struct sp_err *e);
/* Frees the remaining cells, too. */
void sp_cells_free(struct sp_cells *g);
/* Counts messages queued into a full outbox. A connection that caused one reads no
 * more requests until options.drained was called. */
uint64_t sp_cells_overflows(const struct sp_cells *g);

int sp_cell_new(struct sp_cells *g, const struct sp_cell_options *o, struct sp_cell **ret,
                struct sp_err *e);
/* Ends the cell and its processes; waits for that, some seconds at most. */
void sp_cell_free(struct sp_cell *c);
/* Ends a confined cell without waiting: its seats hear ops.lost, options.gone comes later. */
void sp_cell_kill(struct sp_cell *c);
/* Kills the processes of a cell that does not answer; it ends like one that died by itself. */
void sp_cell_abandon(struct sp_cell *c);
/* No process that has not closed, none that a command has left, and no worker but idle ones. */
bool sp_cell_is_deserted(const struct sp_cell *c);
/* The cell has confined itself. Before that its first start waits in the socket. */
bool sp_cell_is_ready(const struct sp_cell *c);
/* enum sp_tier */
uint32_t sp_cell_tier(const struct sp_cell *c);
/* It has seats that have not closed, or workers, also resting ones. */
bool sp_cell_is_busy(const struct sp_cell *c);

/* Takes a seat and requests the start; m->head is filled in here. Strings as in sp_wire_start. */
int sp_cell_start(struct sp_cell *c, struct sp_seat *s, struct sp_wire_start *m,
                  const struct sp_buf *strings, bool is_owned, struct sp_err *e);
/* The cell has not answered the start for so many seconds, as *ret says: further starts are refused
 * until it takes or sends a message. */
void sp_cell_suspect(struct sp_seat *s, int seconds, struct sp_err *ret);
void sp_cell_signal(struct sp_seat *s, uint64_t token, int signal);
void sp_cell_resize(struct sp_seat *s, uint64_t token, uint16_t rows, uint16_t cols);
void sp_cell_terminate(struct sp_seat *s);
/* The process of the seat has closed. */
void sp_cell_note_closed(struct sp_seat *s);
/* Gives the seat back; fine if none is taken. */
void sp_cell_forget(struct sp_seat *s);
void sp_cell_end_session(struct sp_cell *c, uint64_t session);

/* Requests a process that serves the other end of `socket`, which the caller closes. If the cell
 * cannot start the process, it closes its copy. */
int sp_cell_join(struct sp_cell *c, struct sp_cell_worker *h, int socket, struct sp_err *e);
void sp_cell_leave(struct sp_cell_worker *h); /* the worker ends; fine if it has left already */
/* The cell keeps a duplicate open, and the flock on it, until the cell ends. */
void sp_cell_hold(struct sp_cell *c, int fd);

/* Position in the ring up to which the owner was served: the records before are queued for it. */
void sp_cell_serve(struct sp_seat *s, bool is_owned, uint64_t served);
/* The cell had paused this process until the owner was served, and may go on. */
void sp_cell_wake(struct sp_seat *s);

pid_t sp_cell_pid(const struct sp_cell *c);
/* Name of the cgroup directory (os/cgroup.h); "": none. */
const char *sp_cell_cgroup(const struct sp_cell *c);

#endif

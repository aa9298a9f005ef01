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
#include "core/cell_child.h"
#include "core/leaves.h"
#include "core/outbox.h"
#include "core/rings.h"
#include "os/cgroup.h"
#include "os/loop.h"

/* How long the processes that a killed cell has left are killed, while the server runs and when it
 * ends. */
#define SP_ORPHANS_MS     10000
#define SP_ORPHANS_END_MS 5000

struct sp_cell_record;
struct sp_hold;
struct sp_journal;
struct sp_ledger;
struct sp_managed;
struct sp_published_cell;
struct sp_cell;
struct sp_seat;

/* Events of a seat. lost may come at any time after the start, and is the last. */
struct sp_seat_ops {
    /* The seat has its place, and START is sent after this: what has to outlive this front is
     * recorded. false: it cannot be. NULL: nothing is. */
    bool (*placed)(struct sp_seat *s);
    /* Of a cell that is taken over: the cell has told its process. The seat closes the descriptors;
     * -1: none. With SP_WIRE_LIFE_STARTING `started` follows. May be NULL if no cell is. */
    void (*found)(struct sp_seat *s, const struct sp_wire_item *item, int input_fd, int log_fd);
    /* The same: its cell knows no such process, so it was never started. The seat is given back. */
    void (*missing)(struct sp_seat *s);
    /* The answer to the start. The seat closes the descriptor; -1: none. */
    void (*started)(struct sp_seat *s, const struct sp_wire_started *m, int input_fd);
    void (*news)(struct sp_seat *s);   /* the ring has new records */
    void (*denied)(struct sp_seat *s); /* it has tried to leave its network, for the first time */
    void (*done)(struct sp_seat *s, uint64_t token, int err);
    /* The cell is gone, and the process with it. why->code NONE: the cause is unknown. */
    void (*lost)(struct sp_seat *s, const struct sp_err *why);
};

/* The place of one process in a cell; embedded in the process. */
struct sp_seat {
    const struct sp_seat_ops *ops;
    struct sp_cell *cell; /* NULL: no seat taken */
    uint32_t slot;
    uint64_t number;  /* tells this process from earlier ones of the slot */
    bool has_closed;  /* its process: the cell may end */
    bool is_starting; /* its START has no answer yet */
    bool is_expected; /* of a cell that is taken over: not told yet; its place has no ring */
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
    const int *locks; /* descriptors that the cell keeps open, with the flocks on them */
    size_t lock_count;
    struct sp_managed *managed;          /* its network, if the plan has a managed one; else NULL */
    struct sp_published_cell *published; /* connections to published ports; NULL: none */
    /* What a later front gets back in the record of the cell (core/cell_record.h). */
    uint64_t session;   /* of a confined cell */
    uint32_t place;     /* of an open cell */
    struct sp_str text; /* borrowed for the making of the cell */
    void *user;
    void (*drained)(void *user); /* the outbox was full and has room, or was dropped */
    /* All seats of a cell that is taken over are found or missing; may be NULL. */
    void (*adopted)(void *user);
    /* The cell has ended by itself; sp_cell_kill has to follow. Every seat has heard ops.lost,
     * except in tier CELL, where sp_cell_kill tells the seats. */
    void (*died)(void *user);
    void (*closed)(void *user); /* a process has closed; may be NULL */
    void (*idle)(void *user);   /* ... and only idle workers are left; may be NULL */
    void (*gone)(void *user); /* after sp_cell_kill: no process of the cell is left; may be NULL */
};

/* All cells of a front. */
struct sp_cells {
    struct sp_loop *loop;
    bool is_embedded;
    struct sp_hold *hold; /* the keeper of cells; NULL: they end with this front */
    struct sp_ledger *ledger;
    uint32_t last_key;
    /* Counts messages queued into a full outbox. A connection that caused one reads no more
     * requests until options.drained was called. */
    uint64_t overflows;
    struct sp_list cells; /* struct sp_cell, the newest first */
    struct sp_rings rings;

    /* Processes that a killed cell without a pid namespace has left, see "orphans". */
    bool expects_orphans;
    uint64_t orphans_until_ms, orphans_pause_ms;
    struct sp_timer on_orphans;
};

/* Written by cells.c only. */
struct sp_cell {
    struct sp_cells *group;
    struct sp_list link;
    struct sp_loop *loop;
    struct sp_cell_options options;
    bool is_ready; /* it has confined itself; before that its first start waits in the socket */
    bool is_killed;
    bool is_adopting; /* an earlier front made it, and it has not told all of its processes */
    bool has_begun;   /* adopting: BEGIN has arrived, later messages are for this front */
    int32_t asked;    /* adopting: index of the ADOPT that has no answer */
    uint32_t key;     /* of its record; 0: no keeper */
    struct sp_cell_record *record;
    uint32_t tier; /* enum sp_tier */
    struct sp_cell_child self;
    struct sp_cell_child maker; /* in tier CELL: forks the cell, reports its pid, and exits */
    struct sp_err why;          /* why the cell could not confine itself; code NONE: no failure */
    uint32_t busy; /* seats with a process that has not closed, and workers, also resting ones */
    uint32_t starting;                /* STARTs without an answer */
    int socket;                       /* -1: the cell is lost */
    char cgroup[SP_CGROUP_NAME];      /* name of its directory (os/cgroup.h); "": none */
    char cgroup_path[SP_CGROUP_PATH]; /* as noted in the journal; "": not noted */
    struct sp_bell bell;
    struct sp_watch on_socket, on_bell;
    struct sp_deferred deferred_end; /* report the loss, or reap and free */

    struct sp_seat **seats; /* by slot */
    struct sp_ring_slots slots;
    uint64_t next_number;

    struct sp_list workers;
    struct sp_outbox outbox;
    struct sp_timer on_stall, on_short, on_silent;
    bool is_stalled; /* the cell has taken nothing from the outbox for STALL_MS, or is suspected */
    struct sp_wire_message message;
};

/* A front that is embedded in a host program is no subreaper: processes that
 * a killed cell leaves end with its cgroup, or live on. */
int sp_cells_new(struct sp_loop *loop, bool is_embedded, struct sp_cells **ret, struct sp_err *e);
/* Cells outlive this front from now on: they are children of the keeper, which has duplicates of
 * our ends, and are recorded in the ledger. NULL, NULL: they do not. */
static inline void sp_cells_keep(struct sp_cells *g, struct sp_hold *hold, struct sp_ledger *ledger)
{
    g->hold = hold;
    g->ledger = ledger;
}
/* Frees the remaining cells, too. */
void sp_cells_free(struct sp_cells *g);

int sp_cell_new(struct sp_cells *g, const struct sp_cell_options *o, struct sp_cell **ret,
                struct sp_err *e);
/* Ends the cell and its processes; waits for that, some seconds at most. */
void sp_cell_free(struct sp_cell *c);
/* Ends a cell without waiting: its seats hear ops.lost, options.gone comes later. */
void sp_cell_kill(struct sp_cell *c);
/* Kills the processes of a cell that does not answer; it ends like one that died by itself. */
void sp_cell_abandon(struct sp_cell *c);
/* No process that has not closed, none that a command has left, and no worker but idle ones. */
bool sp_cell_is_deserted(const struct sp_cell *c);

/* Takes a seat and requests the start; m->head is filled in here. Strings as in sp_wire_start. The
 * child enters the leaf; NULL: none. */
int sp_cell_start(struct sp_cell *c, struct sp_seat *s, struct sp_wire_start *m,
                  const struct sp_buf *strings, const struct sp_leaf *leaf, bool is_owned,
                  struct sp_err *e);
/* The cell has not answered the start for so many seconds, as *ret says: further starts are refused
 * until it takes or sends a message. */
void sp_cell_suspect(struct sp_seat *s, int seconds, struct sp_err *ret);
/* Sends a struct sp_wire_call; ops.done answers SIGNAL and RESIZE. 0, or an errno: ETIMEDOUT, the
 * cell is stalled and gets no such requests; EIO, it is lost, or there is no memory. */
int sp_cell_send(const struct sp_seat *s, enum sp_wire_op op, uint64_t token, int a, int b);
/* The process of the seat has closed. */
void sp_cell_note_closed(struct sp_seat *s);
/* Gives the seat back; fine if none is taken. */
void sp_cell_forget(struct sp_seat *s);

/* The cell keeps a duplicate of the log of a process's input (SP_WIRE_INPUT). 0, or minus errno. */
int sp_cell_send_input_log(const struct sp_seat *s, int log_fd);
/* The front has closed the stdin pipe: a kept cell, which has a copy of it, closes that, too. */
static inline void sp_cell_close_input(const struct sp_seat *s)
{
    if (s->cell != NULL && s->cell->key != 0)
        (void)sp_cell_send(s, SP_WIRE_CLOSE_INPUT, 0, 0, 0);
}

/* ---- taking over; in core/cell_adopt.c ---- */

/* What the keeper had under the key of a cell (sp_hold_take). */
struct sp_cell_ends {
    int fds[4];
    unsigned count;
    char text[33];
};

/*
 * A cell that an earlier front has made, which goes on with its processes. Takes the descriptors.
 * slots, use_cgroups, plan and locks of the options are those of the record. The seats of the
 * processes that are known are taken with sp_cell_seat before the loop runs again; then the cell
 * tells what it has. A process without a seat is forgotten. Until options.adopted the cell takes no
 * starts.
 */
int sp_cell_adopt(struct sp_cells *g, const struct sp_cell_options *o, struct sp_cell_record *r,
                  size_t fixed, struct sp_cell_ends *ends, struct sp_cell **ret, struct sp_err *e);
/* Waits until the cells that are taken over have told all, `ms` at most: before clients may
 * connect, whose starts would be refused. A cell that hangs, or is stopped, goes on telling later.
 */
void sp_cells_await_adopted(struct sp_cells *g, int ms);
/* false: there is no such place, or another process has it. */
static inline bool sp_cell_seat(struct sp_cell *c, struct sp_seat *s, uint32_t slot,
                                uint64_t number)
{
    if (!c->is_adopting || slot >= c->options.slots || c->seats[slot] != NULL || number == 0)
        return false;
    s->cell = c;
    s->slot = slot;
    s->number = number;
    s->has_closed = s->is_starting = false;
    s->is_expected = true;
    c->seats[slot] = s;
    c->busy++;
    return true;
}

/* Requests a socket that connects to a port of the cell's loopback; options.published gets the
 * answer. false: the cell does not answer, or is lost. */
bool sp_cell_connect(struct sp_cell *c, uint64_t number, uint16_t port, int family);

/* Requests a process that serves the other end of `socket`, which the caller closes. If the cell
 * cannot start the process, it closes its copy. */
int sp_cell_join(struct sp_cell *c, struct sp_cell_worker *h, int socket, struct sp_err *e);
void sp_cell_leave(struct sp_cell_worker *h); /* the worker ends; fine if it has left already */

#endif

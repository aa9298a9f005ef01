/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cells_priv: what messages to and from a cell (cells.c) share with its beginning and end
 * (cell_life.c).
 */
#ifndef SP_CORE_CELLS_PRIV_H
#define SP_CORE_CELLS_PRIV_H

#include "base/list.h"
#include "core/cell_child.h"
#include "core/cells.h"
#include "core/outbox.h"
#include "os/cgroup.h"

struct sp_cells {
    struct sp_loop *loop;
    bool is_embedded;
    uint64_t pushes;      /* messages queued while the outbox of their cell was full */
    struct sp_list cells; /* struct sp_cell, the newest first */

    /* Processes that a killed cell without a pid namespace has left, see cell_life.c. */
    bool expects_orphans;
    uint64_t orphans_until_ms, orphans_pause_ms;
    struct sp_timer on_orphans;
};

struct sp_cell {
    struct sp_cells *group;
    struct sp_list link;
    struct sp_loop *loop;
    struct sp_cell_options options;
    bool is_confined, is_ready, is_killed;
    uint32_t tier;
    struct sp_cell_child self;
    struct sp_cell_child maker;  /* in tier CELL: forks the cell, reports its pid, and exits */
    struct sp_err why;           /* why the cell could not confine itself; code NONE: no failure */
    uint32_t busy;               /* seats with a process that has not closed, and workers */
    int socket;                  /* -1: the cell is lost */
    char cgroup[SP_CGROUP_NAME]; /* name of its directory; "": none */
    char cgroup_path[512];       /* as noted in the journal; "": not noted */
    struct sp_bell bell;
    struct sp_watch on_socket, on_bell;
    struct sp_deferred deferred_end; /* report the loss, or reap and free */

    struct sp_seat **seats; /* by slot */
    uint32_t *free_slots, free_count;
    uint64_t next_number;

    struct sp_list workers;
    struct sp_outbox outbox;
    struct sp_timer on_stall, on_short;
    bool is_stalled; /* the cell has taken nothing from the outbox for STALL_MS, or is suspected */
    struct sp_wire_message message;
};

static inline struct sp_cell *sp_cell_of_link(struct sp_list *link)
{
    return SP_CONTAINER(link, struct sp_cell, link);
}

/* ---- cells.c ---- */

uint32_t sp_cell_resting_workers(const struct sp_cell *c);
void sp_cell_on_socket(struct sp_watch *w, uint32_t events);
void sp_cell_on_bell(struct sp_watch *w, uint32_t events);

/* ---- cell_life.c ---- */

/* The socket failed: closes it, and reports the loss later in this turn of the loop. */
void sp_cell_lose(struct sp_cell *c);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rings: the front's side of the memory for output: segments, slots, and the budget.
 *
 * A slot of a cell has a ring in a segment (cell/segment.h), which is made when no slot is free and
 * dropped when none of its slots was used for a minute. A free slot keeps the memory that its ring
 * has touched: the next command finds it warm. The slots of the lowest segment are taken first, and
 * among them the one that was freed last.
 *
 * The budget bounds the memory of all rings. Above it, in this order: the memory of free slots is
 * given back; closed processes are evicted (sp_rings.evict); memory outside of the logs is given
 * back; and every ring gets a share, so that those who have more than it lose their oldest output.
 */
#ifndef SP_CORE_RINGS_H
#define SP_CORE_RINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "cell/bell.h"
#include "cell/ring.h"
#include "cell/wire.h"
#include "os/loop.h"

#define SP_RINGS_WARM    (16U << 20) /* the most that free slots keep of touched memory */
#define SP_OUTPUT_LEAST  (64U << 20) /* the smallest budget */
#define SP_RINGS_IDLE_MS 60000       /* a segment without a used slot is dropped after this time */

/* Of a front; embedded. */
struct sp_rings {
    struct sp_loop *loop;
    uint64_t budget;  /* 0: the default, see sp_rings_init */
    uint64_t touched; /* of all slots */
    uint32_t share;   /* of each ring; 0: no bound */
    struct sp_list slots;
    struct sp_list warm; /* free slots with memory, the one that was freed first is the first */
    uint64_t warm_bytes;
    struct sp_timer on_pressure;        /* cancelled by the front */
    uint64_t pressed_ms, pressed_bytes; /* the last time that memory was asked back */
    uint64_t pause_ms;                  /* until the next time, if that does not help */
    uint64_t calm_since_ms;             /* 0: not calm */
    /* Copies out or evicts closed processes whose output is still in a ring, about so many bytes;
     * returns how many will be given back. NULL: none. */
    uint64_t (*evict)(void *user, uint64_t bytes);
    void *user;
};

struct sp_ring_group;

/* Of a cell; embedded. The cell sets the members up to `count`. */
struct sp_ring_slots {
    struct sp_rings *rings;
    struct sp_bell *bell;
    /* Sends a struct sp_wire_call; the descriptor is borrowed, -1: none. 0, or minus errno. */
    int (*send)(struct sp_ring_slots *s, const struct sp_wire_call *m, int fd);
    uint32_t count;
    uint32_t used; /* slots that are taken */
    struct sp_list link;
    uint32_t lowest; /* no group below it has a free slot */
    uint32_t most;   /* rings of the next segment, after the cell has refused one; 0: as usual */
    struct sp_ring_group **groups; /* NULL before the first start */
    struct sp_timer on_idle;
};

/* Sets the budget, if it is 0, to 1/8 of the memory of the machine or of the own cgroup's limit; at
 * least 64 MiB, at most 1 GiB. */
void sp_rings_init(struct sp_rings *r, struct sp_loop *loop);

void sp_ring_slots_done(struct sp_ring_slots *s); /* views stay valid */

/* Takes a free slot, and gives its cell the memory for it. SP_E_LIMIT: there is none. */
int sp_ring_slots_take(struct sp_ring_slots *s, uint32_t *ret, struct sp_err *e);
void sp_ring_slots_give(struct sp_ring_slots *s, uint32_t slot);
/* Of a cell that another front has used: its segment of this index. used: a bit for each slot that
 * is taken. Takes *fd on success. SP_E_MALFORMED: it is no segment, or not one for these slots. */
int sp_ring_slots_adopt(struct sp_ring_slots *s, uint32_t index, int *fd, uint64_t used,
                        struct sp_err *e);
/* The cell could not take the segment of this index, which is made again once its starts have
 * failed. false: it has said so before, or there is none. */
bool sp_ring_slots_refused(struct sp_ring_slots *s, uint32_t index);
/* The ring of the slot has changed. */
void sp_ring_slots_note(struct sp_ring_slots *s, uint32_t slot);
/* The log of process `number`, which has started in the slot. */
int sp_ring_slots_view(const struct sp_ring_slots *s, uint32_t slot, uint64_t number,
                       struct sp_ring_view *ret, struct sp_err *e);

#endif

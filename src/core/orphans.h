/* SPDX-License-Identifier: Apache-2.0 */
/*
 * orphans: what a cell without a pid namespace leaves when it is killed.
 *
 * The front is the subreaper of its cells, so the kernel gives it the processes that such a cell
 * held. They are stopped, killed and reaped in rounds until none is left: one that forks while it
 * is looked for may escape a single round.
 */
#ifndef SP_CORE_ORPHANS_H
#define SP_CORE_ORPHANS_H

#include "os/loop.h"

#define SP_ORPHANS_MS     10000 /* this long they are looked for while the server runs ... */
#define SP_ORPHANS_END_MS 5000  /* ... and when it ends */

struct sp_orphans {
    struct sp_loop *loop;
    /* Whether every killed cell has ended and was reaped: its children are ours only then. */
    bool (*is_settled)(void *user);
    /* Whether a cell may have been made that is not noted as ours yet. */
    bool (*may_be_unknown)(void *user);
    void *user;
    bool are_expected; /* there may be some */
    uint64_t until_ms, pause_ms;
    struct sp_timer timer;
};

/* A cell was killed, or ended and left processes: ends them, now and in later turns of the loop. */
void sp_orphans_end(struct sp_orphans *o);
/* The last chance: waits until none is left, for a limited time. */
void sp_orphans_done(struct sp_orphans *o);

#endif

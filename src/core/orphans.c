/* SPDX-License-Identifier: Apache-2.0 */
#include "core/orphans.h"

#include <poll.h>

#include "base/auto.h"
#include "base/log.h"
#include "os/own.h"

#define ROUND_MS    50 /* the loop serves clients between rounds */
#define FIRST_PAUSE 2
#define LONGEST     100

/* One round; returns whether more are needed. */
static bool run_round(struct sp_orphans *o, size_t *ret_left)
{
    const bool is_settled = o->is_settled(o->user); /* before the round: what it left is ours now */

    *ret_left = sp_own_kill_orphans(o->may_be_unknown(o->user), ROUND_MS);
    o->are_expected = !is_settled || *ret_left > 0;
    return o->are_expected;
}

static void complain(size_t left)
{
    sp_log(SP_LOG_ERROR,
           "%zu processes of commands do not end: their cell is gone, and they do not die of "
           "SIGKILL or belong to another user",
           left);
}

static void on_timer(struct sp_timer *t)
{
    struct sp_orphans *o = SP_CONTAINER(t, struct sp_orphans, timer);
    size_t left;

    if (!run_round(o, &left))
        return;
    const uint64_t now = sp_loop_now(o->loop);
    if (now >= o->until_ms) {
        complain(left);
        return; /* the server's end tries again */
    }
    o->pause_ms = o->pause_ms * 2 > LONGEST ? LONGEST : o->pause_ms * 2;
    (void)sp_loop_timer(o->loop, t, now + o->pause_ms, on_timer);
}

void sp_orphans_end(struct sp_orphans *o)
{
    const uint64_t now = sp_loop_now(o->loop);

    o->are_expected = true;
    o->until_ms = now + SP_ORPHANS_MS;
    o->pause_ms = FIRST_PAUSE;
    sp_loop_cancel(o->loop, &o->timer);
    /* No memory for a timer: the server's end does it. */
    (void)sp_loop_timer(o->loop, &o->timer, now, on_timer);
}

void sp_orphans_done(struct sp_orphans *o)
{
    size_t left = 0;

    sp_loop_cancel(o->loop, &o->timer);
    for (int waited = 0; o->are_expected && run_round(o, &left); waited += FIRST_PAUSE) {
        if (waited >= SP_ORPHANS_END_MS) {
            complain(left);
            return;
        }
        (void)poll(NULL, 0, FIRST_PAUSE);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the output of a process goes: to whoever calls next, to the record of its whole life, and
 * to whoever watches. Each gets its own copy, of every byte and in order; when memory is gone the
 * bytes stay where they came from and are tried again.
 */
#include "base/auto.h"
#include "engine/manager_priv.h"

#define LOST "\n... output lost ...\n"

/* ---- no memory ---- */

static void on_memory_again(struct sp_timer *t)
{
    sp_job_go_on(&SP_CONTAINER(t, struct sp_process, memory_timer)->job);
}

static void on_next_turn(struct sp_deferred *d)
{
    sp_job_go_on(&SP_CONTAINER(d, struct sp_process, memory_again)->job);
}

static bool hold_up(struct sp_process *p)
{
    if (!sp_loop_timer(p->m->loop, &p->memory_timer, sp_loop_now(p->m->loop) + SP_NO_MEMORY_MS,
                       on_memory_again))
        sp_loop_again(p->m->loop, &p->memory_again, on_next_turn);
    return false;
}

/* ---- deltas ---- */

static void tell_held(struct sp_process *p)
{
    const struct sp_str held = {p->held.data, p->held.len};

    p->held.len = 0;
    if (held.n != 0)
        sp_delta_push(&p->delta, held);
}

static void on_quiet_over(struct sp_timer *t)
{
    tell_held(SP_CONTAINER(t, struct sp_process, quiet_timer));
}

/* The first bytes after a silence are told at once, what follows within a moment as one. */
static void tell_soon(struct sp_process *p, struct sp_str bytes)
{
    if (p->quiet_timer.slot != 0 && p->held.len + bytes.n < SP_DELTA_FRAME_MAX &&
        sp_buf_add_str(&p->held, bytes))
        return;
    tell_held(p);
    sp_delta_push(&p->delta, bytes);
    (void)sp_loop_timer(p->m->loop, &p->quiet_timer, sp_loop_now(p->m->loop) + SP_COALESCE_MS,
                        on_quiet_over); /* none: nothing is held */
}

static bool has_watchers(const struct sp_process *p)
{
    return p->m->ops.event != NULL && !p->is_hidden && !p->is_at_end && p->quota != 0;
}

void sp_process_release_held(struct sp_process *p)
{
    tell_held(p);
    sp_buf_done(&p->held);
    if (p->is_at_end)
        sp_process_at_end(p);
}

void sp_process_at_end(struct sp_process *p)
{
    p->is_at_end = true;
    if (p->is_drained || (!p->has_begun && !p->is_hidden))
        return;
    sp_loop_cancel(p->m->loop, &p->quiet_timer);
    tell_held(p);
    if (!p->is_hidden)
        sp_delta_finish(&p->delta);
    p->is_drained = true;
}

/* ---- bytes ---- */

/* The same bytes may come a second time, after the transcript has taken them. */
static bool take_in_transcript(struct sp_process *p, struct sp_str bytes)
{
    const size_t had = p->ahead < bytes.n ? p->ahead : bytes.n;

    if (p->is_at_end && !p->m->options.remembers_ended)
        return true;
    if (!sp_headtail_push(&p->transcript, (struct sp_str){bytes.p + had, bytes.n - had}))
        return false;
    if (p->ahead < bytes.n)
        p->ahead = bytes.n;
    return true;
}

static bool take(struct sp_process *p, struct sp_str bytes)
{
    const bool is_early = !p->has_begun && has_watchers(p);

    if (is_early && sp_buf_room(&p->held, bytes.n) == NULL)
        return false;
    if (!take_in_transcript(p, bytes) || !sp_headtail_push(&p->pending, bytes))
        return false;
    p->ahead -= p->ahead < bytes.n ? p->ahead : bytes.n;
    p->received += bytes.n;
    if (is_early)
        (void)sp_buf_add_str(&p->held, bytes); /* there is room */
    else if (has_watchers(p))
        tell_soon(p, bytes);
    sp_until_hear(p, bytes);
    return true;
}

bool sp_process_take(struct sp_process *p, struct sp_str bytes)
{
    if (p->owes_gap) {
        if (!take(p, SP_STR(LOST)))
            return hold_up(p);
        p->owes_gap = false;
    }
    if (!take(p, bytes))
        return hold_up(p);
    if (!p->has_begun && p->held.len >= SP_HELD_MAX)
        sp_process_changed(p);
    return true;
}

void sp_process_take_gap(struct sp_process *p)
{
    p->owes_gap = !take(p, SP_STR(LOST));
}

void sp_process_done_output(struct sp_process *p)
{
    sp_loop_cancel(p->m->loop, &p->quiet_timer);
    sp_loop_cancel(p->m->loop, &p->memory_timer);
    sp_loop_undefer(p->m->loop, &p->memory_again);
    sp_headtail_done(&p->pending);
    sp_headtail_done(&p->transcript);
    sp_buf_done(&p->held);
}

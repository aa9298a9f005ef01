/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all calls have in common: their number, their wait, and their end.
 */
#include <stdlib.h>

#include "base/auto.h"
#include "engine/manager_priv.h"

/* ---- beginning and end ---- */

static void on_deferred(struct sp_deferred *d)
{
    struct sp_call *c = SP_CONTAINER(d, struct sp_call, deferred);

    c->step(c);
}

void sp_call_changed(struct sp_call *c)
{
    if (c->process != NULL)
        sp_process_changed(c->process);
    else if (!c->is_answered)
        sp_loop_defer(c->m->loop, &c->deferred, on_deferred);
}

void sp_call_begin(struct sp_manager *m, struct sp_call *c, sp_reply_fn *fn, void *user)
{
    c->m = m;
    c->fn = fn;
    c->user = user;
    c->number = ++m->next_call;
    c->began_ns = sp_manager_clock_ns();
    c->prev = m->calls_last;
    *(m->calls_last != NULL ? &m->calls_last->next : &m->calls) = c;
    m->calls_last = c;
    m->call_count++;
    sp_call_changed(c);
}

void sp_call_free(struct sp_call *c)
{
    if (c->release != NULL)
        c->release(c);
    sp_loop_undefer(c->m->loop, &c->deferred);
    sp_loop_cancel(c->m->loop, &c->timer);
    sp_until_done(c);
    sp_keep_done(&c->keep);
    free(c);
}

static void sweep(struct sp_deferred *d)
{
    struct sp_manager *m = SP_CONTAINER(d, struct sp_manager, sweeping);
    struct sp_call **at = &m->dead;

    while (*at != NULL) {
        struct sp_call *c = *at;

        if (c->is_awaited) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        sp_call_free(c);
    }
}

static void unlink_call(struct sp_call *c)
{
    struct sp_manager *m = c->m;

    *(c->prev != NULL ? &c->prev->next : &m->calls) = c->next;
    *(c->next != NULL ? &c->next->prev : &m->calls_last) = c->prev;
    m->call_count--;
}

void sp_call_finish(struct sp_call *c, const struct sp_reply *reply)
{
    struct sp_manager *m = c->m;
    struct sp_process *p = c->process;

    c->is_answered = true;
    sp_loop_cancel(m->loop, &c->timer);
    sp_loop_undefer(m->loop, &c->deferred);
    unlink_call(c);
    sp_manager_unreserve(m, c->reserved_id);
    c->reserved_id = 0;
    if (p != NULL) {
        p->initial = p->initial == c ? NULL : p->initial;
        p->interaction = p->interaction == c ? NULL : p->interaction;
        sp_process_use(p);
        sp_process_changed(p);
    }
    if (!c->is_awaited)
        c->process = NULL;
    c->next = m->dead;
    m->dead = c;
    sp_loop_defer(m->loop, &m->sweeping, sweep);
    c->fn(c->user, reply);
}

void sp_call_let_go(struct sp_call *c)
{
    c->is_awaited = false;
    c->process = NULL;
    sp_loop_defer(c->m->loop, &c->m->sweeping, sweep);
}

void sp_call_let_all_go(struct sp_process *p)
{
    for (struct sp_call *c = p->m->dead; c != NULL; c = c->next)
        if (c->process == p)
            sp_call_let_go(c);
}

/* ---- waiting ---- */

static void on_timer(struct sp_timer *t)
{
    sp_call_changed(SP_CONTAINER(t, struct sp_call, timer));
}

void sp_call_wake_at(struct sp_call *c, uint64_t due_ms)
{
    if (due_ms == UINT64_MAX) {
        sp_loop_cancel(c->m->loop, &c->timer);
        return;
    }
    if (c->timer.slot != 0 && c->timer.due_ms == due_ms)
        return;
    if (!sp_loop_timer(c->m->loop, &c->timer, due_ms, on_timer)) {
        c->is_due = true;
        sp_call_changed(c);
    }
}

static uint64_t later(uint64_t ms, uint64_t by_ms)
{
    return ms > UINT64_MAX - by_ms ? UINT64_MAX : ms + by_ms;
}

void sp_call_collect(struct sp_call *c, uint64_t from_ns, uint64_t yield_ms)
{
    c->is_collecting = true;
    c->from_ns = from_ns;
    c->from_ms = (from_ns + 999999) / 1000000; /* a window is never too short */
    c->deadline_ms = later(c->from_ms, yield_ms);
    c->post_exit_ms = UINT64_MAX;
}

/* Somebody who has something to type waits behind a poll: it need not wait long. Nor need anybody
 * behind whom one waits that is to answer now. */
static bool is_cut_short(const struct sp_call *c)
{
    if (c->process->interaction != c)
        return false;
    for (const struct sp_call *w = c->process->waiting; w != NULL; w = w->next_waiting)
        if ((w->chars.n != 0 && c->chars.n == 0) || w->is_hurried)
            return true;
    return false;
}

/* The 50 ms begin when the exit is first seen, and no output renews them. */
static bool are_streams_given_up(struct sp_call *c, uint64_t now)
{
    if (c->post_exit_ms == UINT64_MAX) {
        c->post_exit_ms = later(sp_manager_clock_ms(), SP_POST_EXIT_MS);
        if (c->post_exit_ms > c->deadline_ms)
            c->post_exit_ms = c->deadline_ms;
    }
    return now >= c->post_exit_ms;
}

static bool has_waited_enough(struct sp_call *c)
{
    const struct sp_process *p = c->process;
    const uint64_t now = sp_loop_now(c->m->loop);
    const bool is_stopped = c->m->is_clock_stopped;
    uint64_t due_ms = is_stopped ? UINT64_MAX : c->deadline_ms;

    if (p->life == SP_PROCESS_CLOSED || (now >= c->deadline_ms && !is_stopped) || c->is_due ||
        is_cut_short(c))
        return true;
    if (p->life == SP_PROCESS_EXITED) { /* its last words are waited for, whatever else is */
        if (are_streams_given_up(c, now))
            return true;
        due_ms = c->post_exit_ms;
    } else if (c->is_hurried || sp_until_is_met(c, now, &due_ms)) {
        return true;
    }
    sp_call_wake_at(c, due_ms);
    return false;
}

/* Output alone ends no wait. */
bool sp_call_is_done(struct sp_call *c)
{
    if (c->m->pauses != 0 && !c->is_hurried) {
        sp_loop_cancel(c->m->loop, &c->timer);
        return false;
    }
    if (!has_waited_enough(c))
        return false;
    /* The process will be settled when the verdict is there, or late. */
    return !sp_process_has_exited(c->process) || sp_process_is_judged(c->process);
}

void sp_call_shift(struct sp_call *c, uint64_t paused_from_ms, uint64_t now_ms)
{
    const uint64_t from = c->from_ms > paused_from_ms ? c->from_ms : paused_from_ms;
    const uint64_t by = now_ms > from ? now_ms - from : 0;

    if (!c->is_collecting)
        return;
    c->deadline_ms = later(c->deadline_ms, by);
    c->post_exit_ms = later(c->post_exit_ms, by);
    sp_until_shift(c, paused_from_ms, now_ms);
}

void sp_call_prolong(struct sp_call *c, uint64_t stopped_ms, uint64_t now_ms)
{
    const uint64_t from = c->from_ms > stopped_ms ? c->from_ms : stopped_ms;

    if (c->is_collecting && now_ms > from)
        c->deadline_ms = later(c->deadline_ms, now_ms - from);
}

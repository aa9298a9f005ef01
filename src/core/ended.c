/* SPDX-License-Identifier: Apache-2.0 */
#include "core/ended.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>

#include "base/log.h"
#include "core/history.h"
#include "core/observer.h"
#include "core/records.h"

#define AT_ONCE     1000U /* processes that are settled or end in one turn, so that none is long */
#define LATE_MS     1000U /* until an open process is tried again after its lifetime */
#define SPARE_SLOTS 8U

static struct sp_session *session_of(struct sp_pasts *pasts)
{
    return SP_CONTAINER(pasts, struct sp_session, pasts);
}

/* ---- open and shut ---- */

struct sp_proc *sp_ended_open(struct sp_session *s, struct sp_past *past)
{
    struct sp_proc *p = calloc(1, sizeof *p);

    if (p == NULL)
        return NULL;
    sp_list_init(&p->observers);
    p->session = s;
    p->life = SP_PROC_CLOSED;
    p->is_answered = true;
    p->terminal = -1;
    sp_input_init(&p->input, s->front->loop, NULL); /* its stdin is closed: nothing is queued */
    if (!sp_past_read(past, p)) {
        sp_proc_release(p);
        return NULL;
    }
    p->past = past;
    sp_pasts_open(&s->pasts, past, p);
    sp_list_append(&s->opened, &p->link);
    sp_proc_settle(p);
    return p;
}

/* A client that is attached may not have read the end: eviction must not take it. */
static bool is_unconfirmed(const struct sp_proc *p)
{
    return p->user == NULL && (p->is_held || p->session->client != NULL) &&
           p->confirmed_seq < p->tail.seq;
}

static bool is_read(const struct sp_proc *p)
{
    return p->requests > 0 || p->marks > 0 || p->is_unsent || is_unconfirmed(p) ||
           !sp_list_is_empty(&p->observers) || sp_list_is_linked(&p->in_news);
}

void sp_ended_shut(struct sp_proc *p)
{
    if (is_read(p))
        return;
    p->past->input_state = (uint64_t)p->input.state;
    sp_pasts_shut(&p->session->pasts, p->past);
    sp_list_remove(&p->link);
    sp_list_remove(&p->in_ring);
    sp_list_remove(&p->unsettled);
    sp_waiters_wake(&p->on_freed); /* no request: what answered for its network */
    sp_proc_release(p);
}

int sp_ended_find(struct sp_session *s, struct sp_str id, struct sp_proc **ret, struct sp_err *e)
{
    struct sp_proc *p = sp_session_find(s, id);
    struct sp_past *past = p == NULL ? sp_pasts_find(&s->pasts, id) : NULL;

    if (past != NULL && (p = sp_ended_open(s, past)) == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "look at an ended process");
    *ret = p;
    return 0;
}

/* ---- the end of a record ---- */

static void drop(struct sp_session *s, struct sp_past *past)
{
    sp_pasts_remove(&s->pasts, past);
    if (past->has_name)
        sp_session_drop_name(s);
    sp_past_free(s->pasts.store->ledger, past);
}

/* Without memory it does not enter the history. */
static void end_past(struct sp_pasts *pasts, struct sp_past *past)
{
    struct sp_session *s = session_of(pasts);
    struct sp_history *history = s->front->history;
    struct sp_proc *p = history == NULL ? NULL : sp_ended_open(s, past);

    if (p != NULL && !p->is_forgotten)
        sp_history_remember(history, p);
    if (p != NULL)
        sp_ended_shut(p);
    drop(s, past);
}

static void on_due(struct sp_timer *t)
{
    struct sp_session *s = session_of(SP_CONTAINER(t, struct sp_pasts, due));
    const uint64_t ttl = s->front->options.closed_ttl_ms;
    const uint64_t now = sp_loop_now(s->front->loop);
    uint64_t next = UINT64_MAX;
    uint32_t n = 0;

    sp_list_each_safe(i, &s->pasts.list) {
        struct sp_past *past = SP_CONTAINER(i, struct sp_past, link);
        struct sp_proc *p = past->opened;

        if (past->kept_ms + ttl > now || ++n > AT_ONCE) {
            next = past->kept_ms + ttl;
            break;
        }
        if (p != NULL && (p->requests > 0 || p->is_unsent))
            next = now + LATE_MS;
        else if (p != NULL)
            sp_proc_free(p); /* observers that have fallen behind are sent the end */
        else
            end_past(&s->pasts, past);
    }
    if (next != UINT64_MAX)
        (void)sp_loop_timer(s->front->loop, t, next, on_due); /* its place in the heap is free */
}

void sp_ended_drop_all(struct sp_session *s)
{
    const uint32_t remembered = s->front->history == NULL ? 0 : s->front->options.history;
    struct sp_list *i;

    while ((i = sp_list_first(&s->opened)) != NULL)
        sp_proc_free(SP_CONTAINER(i, struct sp_proc, link));
    while ((i = sp_list_first(&s->pasts.list)) != NULL) {
        struct sp_past *past = SP_CONTAINER(i, struct sp_past, link);

        if (s->pasts.count > remembered)
            drop(s, past); /* the history would overwrite its entry */
        else
            end_past(&s->pasts, past);
    }
    sp_loop_cancel(s->front->loop, &s->pasts.due);
    sp_pasts_done(&s->pasts);
}

/* ---- from the ring to a record ---- */

static bool keep(struct sp_proc *p)
{
    struct sp_session *s = p->session;
    struct sp_front *f = s->front;
    struct sp_past *past = sp_past_make(f->pasts.ledger, p);

    if (past == NULL && sp_ended_relieve(f))
        past = sp_past_make(f->pasts.ledger, p);
    if (past == NULL || !sp_pasts_add(&s->pasts, past)) {
        sp_past_free(f->pasts.ledger, past);
        return false;
    }
    s->named += p->name != NULL; /* sp_session_remove must not start the expiry */
    f->held_bytes -= sp_proc_held_bytes(p);
    sp_session_remove(s, p);
    sp_list_remove(&p->in_ring);
    sp_loop_cancel(f->loop, &p->life_timer);
    sp_cell_forget(&p->seat);
    sp_proc_drop_record(p); /* `past` has one */
    sp_ring_view_close(&p->view.ring);
    p->past = past;
    p->view.past = past;
    past->opened = p;
    sp_list_append(&s->opened, &p->link);
    return true;
}

/* Counts the process as unsent, or not any more. */
static void note_unsent(struct sp_proc *p, bool is_unsent)
{
    struct sp_session *s = p->session;
    const bool was_pressed = sp_ended_is_pressed(s);
    const uint32_t bytes = is_unsent && p->past != NULL ? p->past->bytes : 0;

    s->unsent += (uint32_t)is_unsent - (uint32_t)p->is_unsent;
    s->unsent_bytes += (uint64_t)bytes - p->unsent_bytes;
    p->is_unsent = is_unsent;
    p->unsent_bytes = bytes;
    if (s->client != NULL && s->client->pressed != NULL && sp_ended_is_pressed(s) != was_pressed)
        s->client->pressed(s->client);
}

/* Whether it stays open for observers that have fallen behind, and for nothing else. */
static bool is_observed(const struct sp_proc *p)
{
    return p->requests == 0 && !p->is_unsent && !sp_list_is_empty(&p->observers);
}

/* Observers that read slowly, or not at all, must not hold more memory than all of the others:
 * where nothing else can be evicted, they get the end of the process now, and a gap before it. */
static void shrink(struct sp_front *f)
{
    struct sp_list *i;

    (void)sp_past_store_shrink(&f->pasts, f->pasts.budget);
    while (f->pasts.bytes > f->pasts.budget && (i = sp_list_take_first(&f->observed)) != NULL) {
        struct sp_proc *p = SP_CONTAINER(i, struct sp_proc, in_ring);

        if (!is_observed(p))
            continue;
        sp_observers_dismiss(p);
        sp_ended_shut(p);
        (void)sp_past_store_shrink(&f->pasts, f->pasts.budget);
    }
}

/* It has a record: shuts it if nothing reads it. */
static void release_past(struct sp_session *s, struct sp_past *past, uint64_t kept_ms)
{
    struct sp_front *f = s->front;

    sp_pasts_release(&s->pasts, past, kept_ms);
    if (s->pasts.due.slot == 0)
        (void)sp_loop_timer(f->loop, &s->pasts.due, kept_ms + f->options.closed_ttl_ms, on_due);
}

static void settle_record(struct sp_proc *p)
{
    struct sp_session *s = p->session;
    struct sp_front *f = s->front;
    const uint64_t now = sp_loop_now(f->loop);

    if (p->requests == 0 && !p->is_unsent && !is_unconfirmed(p) &&
        !sp_list_is_linked(&p->past->link))
        release_past(s, p->past, now);
    if (is_observed(p) && !sp_list_is_linked(&p->in_ring))
        sp_list_append(&f->observed, &p->in_ring);
    sp_ended_shut(p);
    shrink(f);
}

static void on_forget_timer(struct sp_timer *t)
{
    struct sp_proc *p = SP_CONTAINER(t, struct sp_proc, life_timer);
    struct sp_loop *loop = p->session->front->loop;

    /* A slow client still gets the last records and its answers. */
    if ((p->requests > 0 || is_unconfirmed(p) ||
         (p->session->client != NULL && p->sent.seq < p->tail.seq)) &&
        sp_loop_timer(loop, t, sp_loop_now(loop) + LATE_MS, on_forget_timer))
        return;
    sp_proc_free(p);
}

static bool has_few_slots(const struct sp_cell *c)
{
    return c != NULL && c->slots.count - c->slots.used < c->slots.count / 10 + SPARE_SLOTS;
}

static void stay_in_ring(struct sp_proc *p)
{
    struct sp_front *f = p->session->front;
    const uint64_t due = sp_loop_now(f->loop) + f->options.closed_ttl_ms;

    if (sp_list_is_linked(&p->in_ring))
        return;
    sp_list_append(&f->in_rings, &p->in_ring);
    sp_ended_give_slots(f, p->seat.cell);
    if (!sp_loop_timer(f->loop, &p->life_timer, due, on_forget_timer))
        sp_log(SP_LOG_WARN,
               "no memory for a timer: process " SP_STR_FMT " is kept with its session",
               SP_STR_ARG(p->id));
}

/* Much output is not copied before it has to be: it may never be. A cell that is lost gives its
 * memory back. */
static bool is_for_ring(const struct sp_proc *p)
{
    return p->user != NULL || (p->seat.cell != NULL && !has_few_slots(p->seat.cell) &&
                               p->tail.bytes - p->state.dropped_bytes > SP_ENDED_COPY);
}

static void settle(struct sp_proc *p)
{
    if (p->past == NULL && p->net.is_settling)
        return;
    if (p->past == NULL && (is_for_ring(p) || !keep(p)))
        stay_in_ring(p);
    note_unsent(p, p->user == NULL && p->session->client != NULL && p->sent.seq < p->tail.seq);
    if (p->past != NULL)
        settle_record(p);
}

/* Those that stay in the rings of full cells. */
static void give_slots_back(struct sp_front *f)
{
    sp_list_each_safe(i, &f->in_rings) {
        struct sp_proc *p = SP_CONTAINER(i, struct sp_proc, in_ring);

        if (p->user == NULL && has_few_slots(p->seat.cell))
            settle(p);
    }
    f->needs_slots = false;
}

static void on_settle(struct sp_deferred *d)
{
    struct sp_front *f = SP_CONTAINER(d, struct sp_front, on_settle);
    struct sp_list *i = NULL;

    for (uint32_t n = 0; n < AT_ONCE && (i = sp_list_take_first(&f->unsettled)) != NULL; n++)
        settle(SP_CONTAINER(i, struct sp_proc, unsettled));
    if (f->needs_slots)
        give_slots_back(f);
    if (!sp_list_is_empty(&f->unsettled))
        sp_loop_again(f->loop, d, on_settle);
}

void sp_proc_settle(struct sp_proc *p)
{
    if (p->life != SP_PROC_CLOSED || sp_list_is_linked(&p->unsettled))
        return;
    struct sp_front *f = p->session->front;
    sp_list_append(&f->unsettled, &p->unsettled);
    sp_loop_defer(f->loop, &f->on_settle, on_settle);
}

void sp_ended_leave(struct sp_proc *p)
{
    note_unsent(p, false);
    sp_list_remove(&p->unsettled);
    sp_list_remove(&p->in_ring);
    if (p->past == NULL)
        return;
    sp_list_remove(&p->link);
    drop(p->session, p->past);
}

/* ---- for lack of slots and memory ---- */

void sp_ended_give_slots(struct sp_front *f, const struct sp_cell *c)
{
    if (!has_few_slots(c) || sp_list_is_empty(&f->in_rings))
        return;
    f->needs_slots = true;
    sp_loop_defer(f->loop, &f->on_settle, on_settle);
}

bool sp_ended_relieve(struct sp_front *f)
{
    if (!sp_past_store_shrink(&f->pasts, f->pasts.bytes / 4 * 3))
        return false;
    (void)malloc_trim(0); /* the memory may be missing in another process */
    return true;
}

uint64_t sp_ended_evict_rings(void *front, uint64_t bytes)
{
    struct sp_front *f = front;
    uint64_t given = 0;

    sp_list_each_safe(i, &f->in_rings) {
        struct sp_proc *p = SP_CONTAINER(i, struct sp_proc, in_ring);
        const uint64_t touched =
            p->view.ring.head == NULL
                ? 0
                : atomic_load_explicit(&p->view.ring.head->touched, memory_order_relaxed);

        if (given >= bytes)
            break;
        if (p->user != NULL || !keep(p))
            continue;
        given += touched < SP_RING_AREA ? touched : SP_RING_AREA;
        settle(p);
    }
    return given;
}

/* ---- records of an earlier front ---- */

bool sp_ended_adopt(struct sp_session *s, struct sp_past *past)
{
    const uint64_t now = sp_loop_now(s->front->loop);
    const struct sp_str id = {past->body, past->id_size};
    const uint64_t kept_ms = past->kept_ms;

    if (sp_session_find(s, id) != NULL || sp_pasts_find(&s->pasts, id) != NULL ||
        !sp_pasts_add(&s->pasts, past))
        return false;
    s->named += past->has_name;
    /* One that was not released yet may still be unread: its lifetime begins now. */
    release_past(s, past, kept_ms == 0 || kept_ms > now ? now : kept_ms);
    return true;
}

/* ---- beginning and end ---- */

void sp_ended_init(struct sp_front *f)
{
    sp_list_init(&f->unsettled);
    sp_list_init(&f->in_rings);
    sp_list_init(&f->observed);
    f->pasts.budget = f->options.kept_memory != 0 ? f->options.kept_memory : SP_KEPT_DEFAULT;
    f->pasts.evict = end_past;
    f->pasts.ledger = f->options.ledger;
}

void sp_ended_done(struct sp_front *f)
{
    sp_loop_undefer(f->loop, &f->on_settle);
    free(f->pasts.heap);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "server/rpc/confirm.h"

#include <stdlib.h>

#include "core/held.h"
#include "server/rpc/conn.h"

#define FIRST_CAP 16U

static struct sp_unconfirmed *entry(const struct sp_confirm *f, uint32_t i)
{
    return &f->of[(f->first + i) & (f->cap - 1)];
}

static bool grow(struct sp_confirm *f)
{
    const uint32_t cap = f->cap == 0 ? FIRST_CAP : f->cap * 2;
    struct sp_unconfirmed *of = cap > SP_CONFIRM_MAX ? NULL : malloc(cap * sizeof *of);

    if (of == NULL)
        return false;
    for (uint32_t i = 0; i < f->count; i++)
        of[i] = *entry(f, i);
    free(f->of);
    f->of = of;
    f->first = 0;
    f->cap = cap;
    return true;
}

/* All records that were sent of the process are confirmed by the mark. */
static void add(struct sp_conn *c, struct sp_proc *p, uint64_t mark, bool is_end)
{
    struct sp_confirm *f = &c->confirm;
    struct sp_unconfirmed *last = f->count == 0 ? NULL : entry(f, f->count - 1);

    if (last == NULL || last->proc != p || last->mark != mark || last->is_read) {
        if ((is_end && f->ends >= SP_CONFIRM_MAX_ENDS) || (f->count == f->cap && !grow(f))) {
            sp_proc_confirm(p, p->sent.seq, p->sent.pos);
            return;
        }
        last = entry(f, f->count++);
        *last = (struct sp_unconfirmed){0};
        p->marks++;
    }
    f->ends += is_end && !last->is_end;
    *last = (struct sp_unconfirmed){.mark = mark,
                                    .seq = p->sent.seq,
                                    .pos = p->sent.pos,
                                    .proc = p,
                                    .is_end = is_end || last->is_end};
}

static uint64_t ask(struct sp_conn *c)
{
    c->confirm.new_ends = c->confirm.new_bytes = 0;
    return sp_link_mark(c->link);
}

void sp_confirm_page(struct sp_conn *c, struct sp_proc *p, const struct sp_page *page)
{
    struct sp_confirm *f = &c->confirm;
    const struct sp_unconfirmed e = {
        .mark = ask(c), .seq = page->end.seq, .pos = page->end.pos, .proc = p, .is_read = true};

    if (f->count == f->cap && !grow(f)) {
        sp_held_read(p, e.seq, e.pos);
        return;
    }
    f->count++;
    *entry(f, f->count - 1) = e;
    p->marks++;
}

static void on_ends(struct sp_timer *t)
{
    struct sp_conn *c = SP_CONTAINER(t, struct sp_conn, confirm.on_ends);

    if (c->confirm.new_ends > 0)
        (void)ask(c);
}

/* Adds the end of a process to those that the next mark confirms. */
static void add_end(struct sp_conn *c, struct sp_proc *p)
{
    struct sp_confirm *f = &c->confirm;
    struct sp_loop *loop = c->rpc->front->loop;

    add(c, p, sp_link_next_mark(c->link), true);
    f->new_ends++;
    f->new_bytes += p->unmarked;
    if (f->new_ends >= SP_CONFIRM_ENDS || f->new_bytes >= SP_CONFIRM_STEP ||
        (f->on_ends.slot == 0 &&
         !sp_loop_timer(loop, &f->on_ends, sp_loop_now(loop) + SP_CONFIRM_END_MS, on_ends)))
        (void)ask(c);
}

/* A ring with a share of memory is paused earlier. */
static uint32_t step_of(const struct sp_proc *p)
{
    const uint32_t share =
        p->seat.cell == NULL
            ? 0
            : atomic_load_explicit(sp_bell_share(&p->seat.cell->bell, p->seat.slot),
                                   memory_order_relaxed);

    return share != 0 && share / 8 < SP_CONFIRM_STEP ? share / 8 : SP_CONFIRM_STEP;
}

void sp_confirm_sent(struct sp_conn *c, struct sp_proc *p)
{
    const bool is_paused = p->view.ring.head != NULL && sp_ring_is_paused(&p->view.ring);
    const bool is_end = p->life == SP_PROC_CLOSED && p->sent.seq >= p->tail.seq;

    if (p->unmarked == 0)
        return;
    if ((is_paused && p->marks == 0) || p->unmarked >= step_of(p))
        add(c, p, ask(c), is_end);
    else if (is_end)
        add_end(c, p);
    else
        return;
    p->unmarked = 0;
}

void sp_confirm_heard(struct sp_conn *c, uint64_t mark)
{
    struct sp_confirm *f = &c->confirm;

    while (f->count > 0 && entry(f, 0)->mark <= mark) {
        const struct sp_unconfirmed e = *entry(f, 0);

        f->first++;
        f->count--;
        f->ends -= e.is_end;
        if (e.proc == NULL)
            continue;
        e.proc->marks--;
        if (e.is_read)
            sp_held_read(e.proc, e.seq, e.pos);
        else
            sp_proc_confirm(e.proc, e.seq, e.pos);
        sp_confirm_sent(c, e.proc); /* it may be paused still */
    }
}

void sp_confirm_forget(struct sp_conn *c, struct sp_proc *p)
{
    for (uint32_t i = 0; i < c->confirm.count && p->marks > 0; i++)
        if (entry(&c->confirm, i)->proc == p) {
            entry(&c->confirm, i)->proc = NULL;
            p->marks--;
        }
}

void sp_confirm_done(struct sp_conn *c)
{
    struct sp_confirm *f = &c->confirm;

    for (uint32_t i = 0; i < f->count; i++)
        if (entry(f, i)->proc != NULL)
            entry(f, i)->proc->marks--;
    sp_loop_cancel(c->rpc->front->loop, &f->on_ends);
    free(f->of);
    *f = (struct sp_confirm){0};
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "core/held.h"

#include "base/log.h"

/* ---- a process ---- */

static struct sp_session *let_go(struct sp_proc *p)
{
    struct sp_session *s = p->session;

    p->is_held = false;
    s->held--;
    if (s->client == NULL)
        sp_proc_set_owned(p, false);
    return s;
}

/* What the process's reader had sent before the resume is read, and what was confirmed since. */
static void let_go_read(struct sp_proc *p)
{
    const struct sp_held_log held = p->held;

    (void)let_go(p);
    if (p->session->client == NULL)
        return;
    sp_proc_confirm(p, held.end_seq, held.end_pos);
    sp_proc_confirm(p, held.read_seq, held.read_pos);
}

/* sp_proc_confirm does not move the position of a process that is held. */
static void move(struct sp_proc *p, uint64_t seq, uint64_t pos)
{
    p->is_held = false;
    sp_proc_confirm(p, seq, pos);
    p->is_held = true;
}

void sp_proc_hold(struct sp_proc *p)
{
    struct sp_served served = {0};

    if (!p->session->is_held || p->is_held ||
        (p->seat.cell != NULL && !sp_bell_served(&p->seat.cell->bell, p->seat.slot, &served)) ||
        (p->seat.cell == NULL && p->past == NULL))
        return;
    p->session->held++;
    p->is_held = true;
    p->held = (struct sp_held_log){0};
    if (p->session->client != NULL) { /* resumed before the cell has told of the process */
        p->held.end_seq = p->tail.seq;
        p->held.end_pos = p->tail.pos;
    }
    p->sent = p->tail;
    p->confirmed_seq = 0;
    p->confirmed_pos = served.confirmed;
    sp_proc_sent(p);
}

void sp_held_asked(struct sp_proc *p, const struct sp_ring_cursor *after)
{
    p->held.is_asked = true;
    move(p, after->seq, after->pos);
}

void sp_held_read(struct sp_proc *p, uint64_t seq, uint64_t pos)
{
    if (!p->is_held)
        return;
    if (seq >= p->held.end_seq)
        let_go_read(p);
    else
        move(p, seq, pos);
    if (p->session->held == 0)
        p->session->is_held = false;
}

/* ---- a session ---- */

static void end_list(struct sp_list *procs)
{
    sp_list_each_safe(i, procs) {
        struct sp_proc *p = SP_CONTAINER(i, struct sp_proc, link);

        /* The reply to one that was read is on its way: its confirmation lets go. */
        if (p->is_held && (p->session->client == NULL || !p->held.is_asked))
            let_go_read(p);
    }
}

static void on_end(struct sp_timer *t)
{
    struct sp_session *s = SP_CONTAINER(t, struct sp_session, hold);

    if (s->held > 0)
        sp_log(SP_LOG_INFO, "session %.8s: output is not held back any longer", s->id);
    end_list(&s->procs);
    end_list(&s->opened);
    s->is_held = s->held > 0;
}

static void set_timer(struct sp_session *s)
{
    struct sp_loop *loop = s->front->loop;

    if (!sp_loop_timer(loop, &s->hold, sp_loop_now(loop) + SP_HELD_MS, on_end))
        on_end(&s->hold); /* no memory */
}

void sp_held_begin(struct sp_front *f)
{
    sp_list_each(i, &f->sessions) {
        struct sp_session *s = SP_CONTAINER(i, struct sp_session, link);

        if (s->is_held)
            set_timer(s);
    }
}

static void forget_questions(const struct sp_list *procs)
{
    sp_list_each(i, procs)
        SP_CONTAINER(i, struct sp_proc, link)->held.is_asked = false;
}

void sp_held_attached(struct sp_session *s)
{
    if (!s->is_held)
        return;
    forget_questions(&s->procs);
    forget_questions(&s->opened);
    set_timer(s);
}

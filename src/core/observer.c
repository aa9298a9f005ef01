/* SPDX-License-Identifier: Apache-2.0 */
#include "core/observer.h"

#include "core/ended.h"
#include "core/records.h"

/* ---- position in the log ---- */

/* ---- begin and end ---- */

int sp_observer_begin(struct sp_observer *o, const struct sp_observer_ops *ops, struct sp_proc *p,
                      uint64_t after_seq, struct sp_err *e)
{
    if (p->observer_count >= SP_PROC_MAX_OBSERVERS)
        return sp_fail(e, SP_E_LIMIT, 0, "at most %d may be attached to one process",
                       SP_PROC_MAX_OBSERVERS);
    *o = (struct sp_observer){.ops = ops, .proc = p};

    /* Moves to the first record after after_seq that the ring still has. */
    struct sp_ring_cursor c = {0};
    struct sp_record r;
    int more = 0;
    if (after_seq >= p->tail.seq) {
        o->at = p->tail;
    } else {
        o->at = c;
        while ((more = sp_proc_next(p, &c, &r)) > 0 && r.seq <= after_seq)
            o->at = c;
    }
    o->told_seq = after_seq < p->tail.seq ? after_seq : p->tail.seq;
    o->told_bytes = o->at.bytes;
    o->knows_bytes = o->told_seq == o->at.seq;
    if (more < 0) {
        o->proc = NULL;
        return sp_fail(e, SP_E_FAILED, 0, "the output of the process cannot be read any more");
    }
    sp_list_prepend(&p->observers, &o->link);
    p->observer_count++;
    return 0;
}

void sp_observer_end(struct sp_observer *o)
{
    struct sp_proc *p = o->proc;

    if (p == NULL)
        return;
    sp_list_remove(&o->link);
    p->observer_count--;
    o->proc = NULL;
    sp_proc_settle(p);
    if (p->writer != o)
        return;
    p->writer = NULL;
    if (p->has_writer_size && p->life == SP_PROC_RUNNING)
        (void)sp_cell_send(&p->seat, SP_WIRE_RESIZE, 0, p->rows, p->cols);
    p->has_writer_size = false;
    sp_proc_mark(p, SP_MARK_WRITER_SIZE, false);
}

void sp_observers_dismiss(struct sp_proc *p)
{
    struct sp_list *i;

    while ((i = sp_list_first(&p->observers)) != NULL) {
        struct sp_observer *o = SP_CONTAINER(i, struct sp_observer, link);

        o->ops->ending(o);
    }
}

int sp_observer_type(struct sp_observer *o, bool is_stealing, struct sp_err *e)
{
    struct sp_observer *other = o->proc->writer;

    if (other != NULL && other != o && !is_stealing)
        return sp_fail(e, SP_E_ATTACHED, 0,
                       "another connection types into process " SP_STR_FMT
                       "; attach with steal to take over, or without input to watch",
                       SP_STR_ARG(o->proc->id));
    o->proc->writer = o;
    if (other != NULL && other != o)
        other->ops->displaced(other);
    return 0;
}

/* ---- terminal size ---- */

bool sp_observers_resize(struct sp_proc *p, bool is_owner, uint16_t rows, uint16_t cols)
{
    if (!is_owner) {
        p->has_writer_size = p->writer != NULL;
        sp_proc_mark(p, SP_MARK_WRITER_SIZE, p->has_writer_size);
        return true;
    }
    p->rows = rows;
    p->cols = cols;
    sp_proc_record_size(p);
    return !p->has_writer_size;
}

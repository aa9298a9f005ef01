/* SPDX-License-Identifier: Apache-2.0 */
/*
 * observer: follows a process of another session, at its own position in the log.
 *
 * Observers never slow down the command: the ring overwrites records that a slow observer has not
 * read, and the observer is told how much it missed. One observer at a time, the writer, may write;
 * the terminal has the writer's size until the writer ends, then the owner's again.
 *
 *   begin --> news* --> (closed was told) --> end
 *                '----> ending: the process is about to be freed
 */
#ifndef SP_CORE_OBSERVER_H
#define SP_CORE_OBSERVER_H

#include "core/proc.h"

#define SP_PROC_MAX_OBSERVERS 64

struct sp_observer;

struct sp_observer_ops {
    void (*news)(struct sp_observer *o);      /* records to send; may call sp_observer_end */
    void (*displaced)(struct sp_observer *o); /* another observer became the writer */
    void (*ending)(struct sp_observer *o);    /* the process is freed; must call sp_observer_end */
};

struct sp_observer {
    const struct sp_observer_ops *ops;
    struct sp_proc *proc; /* NULL: ended */
    struct sp_list link;
    struct sp_ring_cursor at;
    uint64_t told_seq, told_bytes; /* up to here records were sent */
    bool knows_bytes;              /* told_bytes is valid */
};

/* Records before the next one that the ring has overwritten. */
struct sp_gap {
    uint64_t records; /* 0: none */
    uint64_t bytes;
    bool has_bytes; /* bytes is valid */
};

/* Starts after the record `after_seq`; UINT64_MAX: with the next new record. SP_E_LIMIT: the
 * process has SP_PROC_MAX_OBSERVERS. */
int sp_observer_begin(struct sp_observer *o, const struct sp_observer_ops *ops, struct sp_proc *p,
                      uint64_t after_seq, struct sp_err *e);
/* Fine if ended already. The role of the writer becomes free. */
void sp_observer_end(struct sp_observer *o);

/* For a closed process: its observers are sent the end, and end. */
void sp_observers_dismiss(struct sp_proc *p);

/* Becomes the writer. SP_E_ATTACHED: there is another writer, and is_stealing is false. */
int sp_observer_type(struct sp_observer *o, bool is_stealing, struct sp_err *e);

/* The gap if `seq` is sent next. */
static inline struct sp_gap sp_observer_gap(const struct sp_observer *o, uint64_t seq,
                                            uint64_t bytes_before)
{
    struct sp_gap gap = {.has_bytes = o->knows_bytes};

    if (seq > o->told_seq + 1)
        gap.records = seq - o->told_seq - 1;
    if (bytes_before > o->told_bytes)
        gap.bytes = bytes_before - o->told_bytes;
    return gap;
}

/* 1: the next record, and the gap before it; 0: no record. */
static inline int sp_observer_next(struct sp_observer *o, struct sp_record *ret,
                                   struct sp_gap *ret_gap)
{
    const int r = sp_proc_next(o->proc, &o->at, ret);

    if (r > 0)
        *ret_gap = sp_observer_gap(o, ret->seq, ret->bytes_before);
    return r;
}

/* Call after sending a record. If the ring overwrote it while it was copied, do not: it becomes
 * part of the next gap. */
static inline void sp_observer_told(struct sp_observer *o, const struct sp_record *r)
{
    o->told_seq = r->seq;
    o->told_bytes = r->bytes_before + (r->type == SP_RECORD_OUTPUT ? r->len : 0);
    o->knows_bytes = true;
}

/* ---- terminal size ---- */

/* The owner or the writer sets the size. false: it is the owner's, which is only remembered while
 * the writer's size stays. */
bool sp_observers_resize(struct sp_proc *p, bool is_owner, uint16_t rows, uint16_t cols);

#endif

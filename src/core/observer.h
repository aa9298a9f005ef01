/* SPDX-License-Identifier: Apache-2.0 */
/*
 * observer: somebody besides its owner who follows a process, at a place of their own in its log.
 *
 * Any number may watch, and none of them holds the command back: one that is too slow is overtaken
 * by what the log forgets, and is told how much it missed. One of them, the writer, may write; the
 * size it gives the terminal holds until it goes, then the owner's does again.
 *
 *   begin --> news* --> (closed was told) --> end
 *                '----> ending: the process is being forgotten, say what can still be said
 */
#ifndef SP_CORE_OBSERVER_H
#define SP_CORE_OBSERVER_H

#include "core/proc.h"

#define SP_PROC_MAX_OBSERVERS 64

struct sp_observer;

struct sp_observer_ops {
    void (*news)(struct sp_observer *o);      /* there are records to tell; it may end itself */
    void (*displaced)(struct sp_observer *o); /* another one types from now on */
    void (*ending)(struct sp_observer *o);    /* the last chance to tell; it has to end itself */
};

struct sp_observer {
    const struct sp_observer_ops *ops;
    struct sp_proc *proc; /* NULL: it follows nothing */
    struct sp_observer *prev, *next;
    struct sp_ring_cursor at;
    uint64_t told_seq, told_bytes; /* up to here it knows */
    bool knows_bytes;              /* told_bytes is known */
};

/* Records that are not there any more, before the one that comes. */
struct sp_gap {
    uint64_t records; /* 0: none is missing */
    uint64_t bytes;
    bool has_bytes; /* bytes is known */
};

/* From the record after `after_seq` on; UINT64_MAX: from the end of now. Refused at the bound. */
int sp_observer_begin(struct sp_observer *o, const struct sp_observer_ops *ops, struct sp_proc *p,
                      uint64_t after_seq, struct sp_err *e);
/* Ended already: fine. The writer leaves its place to the next who asks. */
void sp_observer_end(struct sp_observer *o);

/* Becomes the writer. SP_E_ATTACHED: there is another one, and it is not to be displaced. */
int sp_observer_type(struct sp_observer *o, bool is_stealing, struct sp_err *e);

/* The next record and what is missing before it: 1, or 0 if there is none. */
int sp_observer_next(struct sp_observer *o, struct sp_record *ret, struct sp_gap *ret_gap);
/* It was told. A record that was forgotten while it was copied is not: the next gap has it. */
void sp_observer_told(struct sp_observer *o, const struct sp_record *r);
/* What is missing if it is told `seq` next, which is its last word. */
struct sp_gap sp_observer_gap(const struct sp_observer *o, uint64_t seq, uint64_t bytes_before);

/* ---- for whom the process is ---- */

/* The owner's size is remembered. false: the writer's holds for now. */
bool sp_observers_owner_size(struct sp_proc *p, uint16_t rows, uint16_t cols);
/* The writer has set the size. */
void sp_observers_writer_size(struct sp_proc *p);

/* ---- for proc.c ---- */

void sp_observers_news(struct sp_proc *p);
void sp_observers_forget(struct sp_proc *p);

#endif

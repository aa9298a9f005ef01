/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ended: what becomes of a process that has closed.
 *
 *   CLOSED --end of the turn--> a record --closed_ttl, or no memory--> the history
 *      '--> in its ring: more than SP_ENDED_COPY bytes --fewer than 10 % of the cell's slots are
 *           free, or the output of all takes too much memory, or the cell ends--> a record
 *
 * A record (core/past.h) has no struct sp_proc, unless something reads it: a client or an observer
 * that was not sent the end, a request, or a method that looks it up. Such a process is *open*; it
 * is shut at the end of the turn in which the last of them is done, and its record is not evicted
 * before.
 *
 * Ends that a client was not sent can pile up only as far as SP_ENDED_UNSENT: beyond that no
 * request of the client is read (sp_session_client.pressed).
 */
#ifndef SP_CORE_ENDED_H
#define SP_CORE_ENDED_H

#include "core/session.h"

#define SP_ENDED_COPY         16384U /* bytes of output that are copied at once */
#define SP_ENDED_UNSENT       4096U  /* ended processes that one client was not sent */
#define SP_ENDED_UNSENT_BYTES (4U << 20)

void sp_ended_init(struct sp_front *f);
void sp_ended_done(struct sp_front *f); /* after the sessions */

/* To be called when a process has closed, and when something that read it afterwards is done. The
 * process lives until the end of the turn. */
void sp_proc_settle(struct sp_proc *p);
/* For sp_proc_free. */
void sp_ended_leave(struct sp_proc *p);
/* The session ends, and has no other processes. */
void sp_ended_drop_all(struct sp_session *s);

/* sp_session_find, and opens a record. *ret NULL: there is no such process. SP_E_SYSTEM: no memory.
 */
int sp_ended_find(struct sp_session *s, struct sp_str id, struct sp_proc **ret, struct sp_err *e);
/* Opens a record that is not open; NULL: no memory. */
struct sp_proc *sp_ended_open(struct sp_session *s, struct sp_past *past);
void sp_ended_shut(
    struct sp_proc *p); /* frees the struct, unless a request or an observer holds it */

/* Gives the records that an earlier front left in the ledger to the sessions, which must be there
 * already, and frees those that break a rule, or are of no session. Returns the number of those. */
uint32_t sp_ended_adopt_all(struct sp_front *f);
/* One record that was checked, in the order of kept_ms. false: the session has a process of this
 * id, or no memory. */
bool sp_ended_adopt(struct sp_session *s, struct sp_past *past);

/* Whether too much is unsent to the client of the session. */
static inline bool sp_ended_is_pressed(const struct sp_session *s)
{
    return s->unsent > SP_ENDED_UNSENT || s->unsent_bytes > SP_ENDED_UNSENT_BYTES;
}

/* A start took a slot of the cell: if few are left, closed processes give theirs back. */
void sp_ended_give_slots(struct sp_front *f, const struct sp_cell *c);
/* The system has no memory: evicts a part of what is kept. false: there was nothing. */
bool sp_ended_relieve(struct sp_front *f);
/* For sp_rings.evict. */
uint64_t sp_ended_evict_rings(void *front, uint64_t bytes);

#endif

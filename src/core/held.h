/* SPDX-License-Identifier: Apache-2.0 */
/*
 * held: what a client had not read when the front died.
 *
 * The next front holds each session that was attached: its processes keep an owner and the
 * confirmed position in the bell page, so that the cell forgets nothing behind that position, and
 * pauses commands that are too far ahead of it. A process is let go when the client has resumed the
 * session and has read, with process/read, up to the end that the log had at the resume; or when
 * SP_HELD_MS pass without a resume, or after the resume without a read. A resume alone moves no
 * position: the records that are pushed from then on would displace those that the client is about
 * to read. A front that dies again changes nothing: flag and position are in the page.
 */
#ifndef SP_CORE_HELD_H
#define SP_CORE_HELD_H

#include "core/session.h"

#define SP_HELD_MS 3000

/* ---- for adoption, before the first client ---- */

/* The session was attached. */
static inline void sp_session_hold(struct sp_session *s)
{
    s->is_held = true;
}
/* A process of a session that is held: its seat is taken, or its record opened, and its log can be
 * read. Without an owner in the bell page it is not held. */
void sp_proc_hold(struct sp_proc *p);
/* The server is ready: from now on clients may resume. */
void sp_held_begin(struct sp_front *f);

/* ---- for the front ---- */

/* A session that is held got or lost its connection. */
void sp_held_attached(struct sp_session *s);
/* The session ends. */
static inline void sp_held_done(struct sp_session *s)
{
    s->is_held = false;
    sp_loop_cancel(s->front->loop, &s->hold);
}

/* The owner reads a process that is held, and has the records up to `after`. */
void sp_held_asked(struct sp_proc *p, const struct sp_ring_cursor *after);
/* ... and has read the reply, which went up to `seq` and `pos`. */
void sp_held_read(struct sp_proc *p, uint64_t seq, uint64_t pos);

#endif

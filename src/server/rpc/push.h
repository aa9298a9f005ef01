/* SPDX-License-Identifier: Apache-2.0 */
/*
 * push: from the output ring of a process to the wire: notifications, and the chunks of a read.
 *
 * The bytes are passed over once, from shared memory (base64) into the frame under construction.
 */
#ifndef SP_SERVER_RPC_PUSH_H
#define SP_SERVER_RPC_PUSH_H

#include "server/rpc/conn.h"

/* What one process may send before the next one's turn. */
#define SP_PUSH_TURN (192U << 10)

enum sp_push_result {
    SP_PUSH_SENT,
    SP_PUSH_TORN,    /* the ring overwrote the record during the copy: nothing was sent */
    SP_PUSH_NO_ROOM, /* out of memory, the connection is closing */
};
/* Sends a record as a notification, with the JSON members `more` behind the process id. */
enum sp_push_result sp_push_record(struct sp_conn *c, const struct sp_proc *p,
                                   const struct sp_record *r, struct sp_str more);

/* Sends the new records of all processes, in turns, until the link is full. */
void sp_push_all(struct sp_conn *c);

/* The result of process/read for this page. false: out of memory, the connection is closing. */
bool sp_push_page(struct sp_conn *c, struct sp_str id, struct sp_proc *p,
                  const struct sp_page *page);

/* ---- attached processes of other sessions (m_observe.c) ---- */

void sp_process_views_push_first(struct sp_conn *c); /* one turn of the first with news */
void sp_process_views_close(struct sp_conn *c);      /* all of them */
/* Whether no other connection has the process's input. */
bool sp_process_view_may_type(const struct sp_conn *c, const struct sp_proc *p);

#endif

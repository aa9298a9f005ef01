/* SPDX-License-Identifier: Apache-2.0 */
/*
 * push: from the ring to the wire: notifications, and the chunks of a read.
 *
 * One pass over the bytes, from shared memory into the frame under construction.
 */
#ifndef SP_SERVER_RPC_PUSH_H
#define SP_SERVER_RPC_PUSH_H

#include "server/rpc/conn.h"

/* One process's share before the next one's turn. */
#define SP_PUSH_TURN (192U << 10)

enum sp_push_result {
    SP_PUSH_SENT,
    SP_PUSH_TORN,    /* the record was forgotten while it was copied: nothing was sent */
    SP_PUSH_NO_ROOM, /* no memory, the connection is closing */
};
/* A record as a notification, with `more` behind the process id. */
enum sp_push_result sp_push_record(struct sp_conn *c, const struct sp_proc *p,
                                   const struct sp_record *r, struct sp_str more);

/* Sends what the processes with news have, in turns, until all is sent or the link is full. */
void sp_push_all(struct sp_conn *c);
void sp_push_add(struct sp_conn *c, struct sp_proc *p);
void sp_push_remove(struct sp_conn *c, struct sp_proc *p);

/* The result of process/read for this page. false: no memory, the connection is closing. */
bool sp_push_page(struct sp_conn *c, struct sp_str id, struct sp_proc *p,
                  const struct sp_page *page);

#endif

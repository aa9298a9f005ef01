/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view: what a connection that is attached to a process besides its own hears of it.
 *
 * The same notifications as its owner's, with a sessionId, from a place of its own in the log. A
 * connection that does not read is sent nothing more; what is forgotten meanwhile is a gap.
 */
#ifndef SP_SERVER_RPC_PROCESS_VIEW_H
#define SP_SERVER_RPC_PROCESS_VIEW_H

#include "core/observer.h"
#include "server/rpc/conn.h"

struct sp_process_view {
    struct sp_observer observer;
    struct sp_conn *conn;
    struct sp_process_view *prev, *next;
    struct sp_process_view *prev_news, *next_news;
    bool has_news;
};

/* after_seq UINT64_MAX: from the end of now. Refused: at a bound, or attached already. */
int sp_process_view_open(struct sp_conn *c, struct sp_proc *p, uint64_t after_seq,
                         struct sp_process_view **ret, struct sp_err *e);
void sp_process_view_close(struct sp_process_view *v);
/* NULL: the connection is not attached to it. */
struct sp_process_view *sp_process_view_find(const struct sp_conn *c, const struct sp_proc *p);
/* Something may be there to be sent. */
void sp_process_view_push(struct sp_process_view *v);

/* Whether no other connection types into the process. */
bool sp_process_view_may_type(const struct sp_conn *c, const struct sp_proc *p);

void sp_process_views_push_first(struct sp_conn *c); /* the turn of the first with news */
void sp_process_views_close(struct sp_conn *c);      /* all of them */

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * confirm: which records the client of a connection has read.
 *
 * The link confirms marks (sp_link_mark). Here is what each of them means: up to which record of
 * which process the client has read then. A mark is asked for when SP_CONFIRM_STEP bytes of a
 * process have none, when its command is paused, and for the ends of processes, many together. The
 * position that is confirmed goes to the cell (sp_proc_confirm). Only a server with a keeper asks:
 * for the others, what was sent counts as read, and they save some per cent of a flood.
 */
#ifndef SP_SERVER_RPC_CONFIRM_H
#define SP_SERVER_RPC_CONFIRM_H

#include <stdbool.h>
#include <stdint.h>

#include "os/loop.h"

#define SP_CONFIRM_STEP   262144U /* unconfirmed bytes of a process, or of all ended ones */
#define SP_CONFIRM_END_MS 1000U   /* the end of a process is confirmed after this time, or ... */
#define SP_CONFIRM_ENDS   64U     /* ... with so many others */
/* Of a connection. Further ends, and records, count as read when they are sent. */
#define SP_CONFIRM_MAX_ENDS 128U
#define SP_CONFIRM_MAX      16384U

struct sp_conn;
struct sp_page;
struct sp_proc;

/* Confirmed by a mark: the records of the process up to `seq`, before `pos` of its log. */
struct sp_unconfirmed {
    uint64_t mark, seq, pos;
    struct sp_proc *proc; /* NULL: freed */
    bool is_end;          /* counted in `ends` */
    bool is_read;         /* of the reply to a process/read of a process that is held */
};

/* Of a connection: a queue, the oldest mark first. */
struct sp_confirm {
    struct sp_unconfirmed *of;
    uint32_t first, count, cap;   /* cap: a power of two */
    uint32_t ends;                /* of processes, in the queue */
    uint32_t new_ends, new_bytes; /* without a mark */
    struct sp_timer on_ends;
};

/* Records of the process, of p->unmarked bytes, were queued for the client. */
void sp_confirm_sent(struct sp_conn *c, struct sp_proc *p);
/* The reply to a process/read of a process that is held was queued, up to the end of the page. */
void sp_confirm_page(struct sp_conn *c, struct sp_proc *p, const struct sp_page *page);
/* The link has confirmed a mark. */
void sp_confirm_heard(struct sp_conn *c, uint64_t mark);
/* The process is freed. */
void sp_confirm_forget(struct sp_conn *c, struct sp_proc *p);
/* The connection has ended. */
void sp_confirm_done(struct sp_conn *c);

#endif

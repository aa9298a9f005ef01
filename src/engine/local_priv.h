/* SPDX-License-Identifier: Apache-2.0 */
/* local_priv: shared by local.c (server and facts) and local_job.c (commands). */
#ifndef SP_ENGINE_LOCAL_PRIV_H
#define SP_ENGINE_LOCAL_PRIV_H

#include "core/session.h"
#include "engine/local.h"
#include "sandbox/hidden_paths.h"

struct sp_local {
    struct sp_backend backend;
    struct sp_local_options options; /* strings are owned */
    struct sp_hidden_paths hidden_paths;
    struct sp_server *server; /* NULL: no command yet */
    struct sp_session *session;
    struct sp_session_client client;
    uint64_t next_id;
    unsigned tasks;
    struct sp_list waits; /* struct sp_backend_wait, for the facts */
    struct sp_deferred tell_facts;
};

/* A queue of calls, linked through their impl. */
struct sp_local_calls {
    struct sp_job_call *first, *last;
};

struct sp_local_task {
    struct sp_local *local;
    struct sp_job *job;
    struct sp_proc *proc; /* NULL: refused, closed or lost */
    struct sp_start_wait start;
    struct sp_deferred turn;
    struct sp_timer start_timer; /* limit for the cell's answer to the start */
    struct sp_timer kill_timer;  /* limit for the exit after a terminate */
    struct sp_waiter on_room;
    struct sp_err refusal;            /* why the start failed; code NONE: it did not */
    struct sp_local_calls answered;   /* called back in the next turn */
    struct sp_local_calls terminates; /* wait for the exit */
    struct sp_local_calls flushes;    /* wait until the queued input is written */
    bool is_confined;
    bool is_late;          /* start_timer has fired */
    bool is_terminating;   /* a terminate was requested */
    bool is_blocked;       /* the owner refused output; waits for go_on */
    bool is_telling;       /* inside take_turn, which frees a released task */
    bool is_released;      /* the owner released the job */
    bool has_told_started; /* started or refused was reported */
    bool has_told_exit;
    bool is_over; /* closed, failed or refused was reported */
    bool is_lost;
};

extern const struct sp_backend_ops sp_local_ops; /* local_job.c */
void sp_local_wake(struct sp_local_task *t);     /* reports its news at the end of this turn */

/* local.c; the server is made once. */
int sp_local_open_server(struct sp_local *l, struct sp_err *e);
void sp_local_ask_facts(struct sp_backend *b, struct sp_backend_wait *w);
void sp_local_forget_facts(struct sp_backend_wait *w);
void sp_local_free(struct sp_backend *b);

#endif

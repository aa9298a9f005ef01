/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local_priv: what the files behind local.h share.
 *
 * A task is a job's process here. The ring has its output; each turn of the loop hands some of it
 * to the owner, and only what the owner took counts as served.
 */
#ifndef SP_ENGINE_LOCAL_PRIV_H
#define SP_ENGINE_LOCAL_PRIV_H

#include "core/session.h"
#include "engine/local.h"
#include "sandbox/hidden_paths.h"

struct sp_local {
    struct sp_backend backend;
    struct sp_local_options options; /* strings are ours */
    struct sp_hidden_paths hidden_paths;
    struct sp_server *server;   /* NULL before the first command */
    struct sp_session *session; /* the only one */
    struct sp_session_client client;
    uint64_t next_id;
    unsigned tasks;
    struct sp_backend_wait *first_wait, *last_wait; /* for the facts */
    struct sp_deferred tell_facts;
};

/* Calls, linked by their impl. */
struct sp_local_calls {
    struct sp_job_call *first, *last;
};

struct sp_local_task {
    struct sp_local *local;
    struct sp_job *job;
    struct sp_proc *proc; /* NULL: refused, or all of it was told */
    struct sp_start_wait start;
    struct sp_deferred turn;
    struct sp_timer start_timer; /* until the cell has answered */
    struct sp_timer kill_timer;  /* since a terminate */
    struct sp_waiter on_room;
    struct sp_err refusal;            /* code NONE: it was not refused */
    struct sp_local_calls answered;   /* to be told in the next turn */
    struct sp_local_calls terminates; /* wait for the end */
    struct sp_local_calls flushes;    /* wait for the input's end */
    bool is_confined;
    bool is_late;          /* the cell has not answered the start */
    bool is_terminating;   /* asked for while it started */
    bool is_blocked;       /* the owner takes no output now */
    bool is_telling;       /* in its turn: freed at its end */
    bool is_released;      /* the owner has let go */
    bool has_told_started; /* or refused */
    bool has_told_exit;
    bool is_over; /* closed, failed or refused was told */
    bool is_lost;
};

/* ---- local_calls.c: what an owner asks ---- */

void sp_local_write(struct sp_job *j, struct sp_job_call *c, struct sp_str bytes);
void sp_local_close_stdin(struct sp_job *j, struct sp_job_call *c);
void sp_local_flush(struct sp_job *j, struct sp_job_call *c);
void sp_local_signal(struct sp_job *j, struct sp_job_call *c, int signal);
void sp_local_resize(struct sp_job *j, struct sp_job_call *c, uint16_t rows, uint16_t cols);
void sp_local_terminate(struct sp_job *j, struct sp_job_call *c);
bool sp_local_look(struct sp_job *j, struct sp_job_look *l);

/* Those who wait for something that is there by now are answered, in the next turn. */
void sp_local_check_calls(struct sp_local_task *t);
/* It has started at last. */
void sp_local_kill_late(struct sp_local_task *t);
/* Its process goes: who waits for it is answered (is_dropped: forgotten) instead. */
void sp_local_end_calls(struct sp_local_task *t, bool is_dropped);
/* Tells those that are answered; false: the task is gone. */
bool sp_local_tell_calls(struct sp_local_task *t);

/* ---- local_turn.c: what an owner is told ---- */

void sp_local_turn(struct sp_deferred *d);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * carry_priv: a run, shared by carry.c (the command and its streams) and carry_signals.c.
 */
#ifndef SP_CLI_CARRY_PRIV_H
#define SP_CLI_CARRY_PRIV_H

#include <signal.h>

#include "cli/carry.h"
#include "cli/own_stdio.h"

/* One chunk is in flight at a time: bytes that we have read and the command has not are lost to the
 * next reader of our stdin (the shell that started us). */
struct sp_carry_input {
    struct sp_stdin in;
    struct sp_timer full;    /* the job's queue is full: write again */
    struct sp_job_call call; /* write, then flush */
    struct sp_job_call close;
    size_t len; /* of the chunk in flight; 0: none */
    char chunk[65536];
};

/* stdout and stderr keep the order in which output arrives: while one is full, nothing is taken. */
struct sp_carry_output {
    struct sp_port ports[2];
    struct sp_watch watch; /* of the full port */
    struct sp_buf pending; /* for the full port, or from the scribe */
    size_t at;             /* bytes of `pending` that are written */
    int to;                /* index of the port */
    bool is_refusing;      /* the job was told to wait: sp_job_go_on is due */
    struct sp_timer quiet; /* the command has exited, and descendants hold its streams */
    uint64_t exited_ms;
};

struct sp_carry_signals {
    int fd;
    struct sp_watch watch;
    sigset_t waiting; /* to be passed on, one call at a time */
    struct sp_job_call call, resize, kill;
    int passing; /* the signal of `call`; 0: no call is in flight */
    bool is_resizing, has_new_size, is_killing;
    uint64_t unanswered_ms; /* since when a deadly signal is in flight; 0: none is */
};

struct sp_carry {
    const struct sp_carry_options *options;
    struct sp_loop *loop;
    struct sp_job job;
    struct sp_backend_wait facts;
    struct sp_timer timeout; /* timeout_ms, then KILLED_MS */
    struct sp_terminal terminal;
    struct sp_carry_input input;
    struct sp_carry_output output;
    struct sp_carry_signals signals;
    bool is_live;   /* started and not exited */
    bool is_ending; /* the result is known, and its output may be pending */
    bool has_exited;
    bool is_asking; /* may_start said WAIT */
    bool is_retry;  /* the second attempt; `first` is the result of the first */
    struct sp_carry_result first;
    uint64_t began_ns;
    struct sp_carry_result result;
    int failed; /* minus the code of `error`; 0: none */
    struct sp_err error;
};

/* The result is known: pending output is written, then the run stops. */
void sp_carry_finish(struct sp_carry *c);
/* Stops the run at once. */
void sp_carry_stop(struct sp_carry *c);

int sp_carry_begin_signals(struct sp_carry *c, struct sp_err *e);
void sp_carry_end_signals(struct sp_carry *c);
/* The job is released: calls in flight will not be answered. */
void sp_carry_forget_signals(struct sp_carry *c);
/* Sends the next waiting signal, if the command is live and no call is in flight. */
void sp_carry_pass_signals(struct sp_carry *c);
void sp_carry_pass(struct sp_carry *c, int signal);
void sp_carry_kill(struct sp_carry *c);

#endif

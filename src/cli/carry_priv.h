/* SPDX-License-Identifier: Apache-2.0 */
/*
 * carry_priv: what the files behind carry.h share.
 */
#ifndef SP_CLI_CARRY_PRIV_H
#define SP_CLI_CARRY_PRIV_H

#include <signal.h>

#include "cli/carry.h"
#include "cli/port.h"
#include "cli/terminal.h"

/* From our stdin to the command's: one chunk on its way at a time, so that we take little more
 * than the command does. */
struct sp_carry_input {
    struct sp_port port;
    struct sp_watch watch;
    struct sp_deferred again; /* a file is always ready: read it in parts */
    struct sp_timer retry;    /* we are a background job, or its queue is full */
    struct sp_job_call call;  /* a write, or the wait for its end */
    struct sp_job_call close;
    size_t len; /* of the chunk that is on its way; 0: none is */
    char chunk[65536];
};

/* To our stdout and stderr, in the order in which it came. */
struct sp_carry_output {
    struct sp_port ports[2];
    struct sp_watch watch; /* of the one that is full */
    struct sp_buf pending; /* for it; nothing more is taken until it is written */
    size_t at;             /* so much of it is */
    int to;                /* which port */
    bool is_refusing;      /* the job has more */
    struct sp_timer quiet; /* the command has exited, and others hold its streams */
    uint64_t exited_ms;
};

struct sp_carry_signals {
    int fd;
    struct sp_watch watch;
    sigset_t waiting; /* to be passed on, one after the other */
    struct sp_job_call call, resize, kill;
    int passing; /* the one on its way; 0: none */
    bool is_resizing, has_new_size, is_killing;
    uint64_t unheard_ms; /* when the one that wants an end came; 0: it has been answered */
};

struct sp_carry {
    const struct sp_carry_options *options;
    struct sp_loop *loop;
    struct sp_job job;
    struct sp_backend_wait facts;
    struct sp_timer timeout; /* for the command, then for its end */
    struct sp_terminal terminal;
    struct sp_carry_input input;
    struct sp_carry_output output;
    struct sp_carry_signals signals;
    bool is_live;   /* started, and not yet exited */
    bool is_ending; /* the outcome is known */
    bool has_exited, has_run;
    bool is_asking; /* whether it may start */
    bool is_again;  /* the second attempt; `first` is how the first one ended */
    struct sp_carry_result first;
    uint64_t began_ns;
    struct sp_carry_result result;
    int failed; /* minus a code: error says why */
    struct sp_err error;
};

/* The outcome is known: what is left to be said is said, and the run is over. */
void sp_carry_finish(struct sp_carry *c);
/* The run is over now. */
void sp_carry_stop(struct sp_carry *c);

/* Whether the command reads from us. */
void sp_carry_begin_input(struct sp_carry *c);
void sp_carry_end_input(struct sp_carry *c);

void sp_carry_begin_output(struct sp_carry *c);
void sp_carry_end_output(struct sp_carry *c);
/* false: not now; sp_job_go_on follows. */
bool sp_carry_take(struct sp_carry *c, enum sp_stream stream, struct sp_str bytes);
/* The scribe has added to output.pending. false: no memory (`ok` is what it said). */
void sp_carry_flush(struct sp_carry *c, bool ok);
/* Others may hold the streams of a command that has exited, for hours: they have a moment. */
void sp_carry_await_quiet(struct sp_carry *c);

int sp_carry_begin_signals(struct sp_carry *c, struct sp_err *e);
void sp_carry_end_signals(struct sp_carry *c);
/* What was on its way to a job that is released: no answer will come. */
void sp_carry_forget_signals(struct sp_carry *c);
void sp_carry_pass_signals(struct sp_carry *c);
void sp_carry_pass(struct sp_carry *c, int signal);
void sp_carry_kill(struct sp_carry *c);

#endif

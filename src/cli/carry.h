/* SPDX-License-Identifier: Apache-2.0 */
/*
 * carry: one command, run here or elsewhere, with our own stdin, stdout and stderr as its own.
 *
 * Its output is carried as fast as ours is taken and no faster; its input likewise. INT, TERM, HUP,
 * QUIT, USR1 and USR2 are passed on; with a terminal of its own, changes of our window's size as
 * well, and ours is raw while it runs.
 *
 * The command's end is the end: what it leaves running is given a moment to say its last words, and
 * killed.
 */
#ifndef SP_CLI_CARRY_H
#define SP_CLI_CARRY_H

#include "base/buf.h"
#include "engine/job.h"

struct sp_carry;

/* At most once in a process, before anything else is opened: what is closed of 0 to 2 is filled,
 * and from here on our signals are the command's, also those that come before it runs. */
int sp_carry_new(struct sp_carry **ret, struct sp_err *e);
void sp_carry_free(struct sp_carry *c); /* after the backend; NULL is fine */
struct sp_loop *sp_carry_loop(struct sp_carry *c);

enum sp_carry_end {
    SP_CARRY_EXITED,        /* exit says how */
    SP_CARRY_REFUSED,       /* it could not be started: error says why */
    SP_CARRY_REJECTED,      /* it may not run: error says why */
    SP_CARRY_UNREACHABLE,   /* where it was to run cannot be reached: error says why */
    SP_CARRY_LOST,          /* its executor was lost before it ended: error says how */
    SP_CARRY_TIMED_OUT,     /* it was killed for that */
    SP_CARRY_ABANDONED,     /* a signal came before there was a command: exit has its number */
    SP_CARRY_OUTPUT_CLOSED, /* nobody reads our output any more: the command was killed */
};

struct sp_carry_result {
    enum sp_carry_end end;
    struct sp_exit exit;
    bool was_denied; /* by the sandbox, as far as can be told */
    bool was_taken;  /* of its input we have read something */
    bool was_killed; /* TIMED_OUT: that has been confirmed */
    struct sp_denial_facts denial;
    struct sp_err error;
    uint64_t duration_ns;
};

/* What is heard, as text for our stdout, instead of the bytes themselves: each appends to `out`.
 * false: no memory. */
struct sp_carry_scribe {
    void *user;
    bool (*started)(void *user, struct sp_buf *out);
    bool (*output)(void *user, enum sp_stream stream, struct sp_str bytes, struct sp_buf *out);
    bool (*gap)(void *user, uint64_t bytes, struct sp_buf *out);
    bool (*ended)(void *user, const struct sp_carry_result *r, struct sp_buf *out);
};

/* Whether the command may start. */
enum sp_carry_leave {
    SP_CARRY_GO,
    SP_CARRY_WAIT, /* not known yet: sp_carry_wake follows, and then it is asked again */
    SP_CARRY_NO,   /* e says why */
    SP_CARRY_FAIL, /* that cannot be found out: e says why */
};

struct sp_carry_options {
    struct sp_backend *backend;
    struct sp_launch *launch; /* a terminal's size is filled in; wants_stdin: ours is carried */
    uint64_t timeout_ms;      /* 0: none */
    uint64_t quiet_ms;        /* after its exit nobody says anything for so long: the end; 0: - */
    uint64_t after_ms;        /* ... and however much they say, so long after it */
    const struct sp_carry_scribe *scribe; /* NULL: bytes as they are */
    /* If not NULL, what is known of the place is asked for first, and may be the reason for a
     * refusal; it may still change the launch. */
    int (*prepare)(void *user, const struct sp_backend_facts *facts, struct sp_err *e);
    /* If not NULL, asked before each start; it may still change the launch. The time-out does not
     * run while it waits. */
    enum sp_carry_leave (*may_start)(void *user, struct sp_err *e);
    /* If not NULL: the sandbox denied the command something, and nothing of our stdin was read. Is
     * it to be tried once more? Then may_start is asked again; if it says no, the first attempt's
     * end is the end. */
    bool (*tries_again)(void *user, const struct sp_carry_result *r);
    void *user;
};

/* Refused: our output failed, or memory is gone. */
int sp_carry_run(struct sp_carry *c, const struct sp_carry_options *o, struct sp_carry_result *ret,
                 struct sp_err *e);

/* may_start has something to say now. Not from within it. */
void sp_carry_wake(struct sp_carry *c);

/* The command's words as a launch has them, to be freed; NULL: no memory. */
struct sp_str *sp_carry_argv(char *const *words, struct sp_launch *ret);

/* A program that is missing (127) or may not be run (126), as shells have it; the errno in
 * *ret_err. 0: it is something else. */
int sp_carry_not_run(const struct sp_err *refusal, int *ret_err);

#endif

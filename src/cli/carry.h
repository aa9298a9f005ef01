/* SPDX-License-Identifier: Apache-2.0 */
/*
 * carry: runs one command, here or on a server, with our stdin, stdout and stderr as its own.
 *
 * Output is taken from the command only as fast as our own is written; its input likewise. INT,
 * TERM, HUP, QUIT, USR1 and USR2 are passed on. If the command has a terminal of its own, changes
 * of our window's size are passed on as well, and our terminal is raw while it runs.
 *
 * The run ends with the command's exit. Its descendants that still hold its streams may write for
 * a moment (quiet_ms, after_ms) and are killed then.
 */
#ifndef SP_CLI_CARRY_H
#define SP_CLI_CARRY_H

#include "base/buf.h"
#include "engine/job.h"

struct sp_carry;

/* At most once in a process, and before other files are opened: those of 0 to 2 that are closed
 * become /dev/null. From here on our signals are passed to the command, also those that arrive
 * before it runs. */
int sp_carry_new(struct sp_carry **ret, struct sp_err *e);
void sp_carry_free(struct sp_carry *c); /* after the backend; NULL is fine */
struct sp_loop *sp_carry_loop(struct sp_carry *c);

/* How a run ended; `exit` or `error` of the result has the details. */
enum sp_carry_end {
    SP_CARRY_EXITED,        /* exit */
    SP_CARRY_DETACHED,      /* is_detached: it has started, and runs on without us */
    SP_CARRY_REFUSED,       /* error: it could not be started */
    SP_CARRY_REJECTED,      /* error: the approval policy does not let it run */
    SP_CARRY_UNREACHABLE,   /* error: no connection to its server */
    SP_CARRY_LOST,          /* error: the server or the cell was lost before the exit */
    SP_CARRY_TIMED_OUT,     /* timeout_ms passed; the command was killed if was_killed */
    SP_CARRY_ABANDONED,     /* exit: a signal to us before the command ran, or no answer to it */
    SP_CARRY_OUTPUT_CLOSED, /* EPIPE on our output: the command was killed */
};

struct sp_carry_result {
    enum sp_carry_end end;
    struct sp_exit exit;
    bool was_denied; /* by the sandbox: known or guessed, `denial` says which */
    bool was_taken;  /* bytes of our stdin were read */
    bool has_gap;    /* output was lost with the connection */
    bool was_killed; /* TIMED_OUT: the kill was confirmed */
    struct sp_denial_facts denial;
    uint32_t told_denials; /* of its network, which were printed while it ran */
    pid_t killed_by;       /* who ended it from elsewhere; 0: not known, or a plain exit */
    uid_t killed_by_uid;
    struct sp_limit_hits limits;
    char *network; /* the receipt of its managed network (sp_managed_add_receipt), to be freed;
                      NULL: none */
    struct sp_kept_receipt receipt; /* of a command that ran and ended; to be dropped */
    struct sp_err error;
    uint64_t duration_ns;
};

/* Writes events to our stdout instead of the command's bytes: each function appends to `out`.
 * false: out of memory. */
struct sp_carry_scribe {
    void *user;
    bool (*started)(void *user, struct sp_buf *out);
    bool (*output)(void *user, enum sp_stream stream, struct sp_str bytes, struct sp_buf *out);
    bool (*gap)(void *user, uint64_t bytes, struct sp_buf *out);
    bool (*ended)(void *user, const struct sp_carry_result *r, struct sp_buf *out);
};

/* Whether the command may start. */
enum sp_carry_permission {
    SP_CARRY_GO,
    SP_CARRY_WAIT, /* undecided: may_start is called again after sp_carry_wake */
    SP_CARRY_NO,   /* e says why */
    SP_CARRY_FAIL, /* the decision failed: e says why */
};

struct sp_carry_options {
    struct sp_backend *backend;
    struct sp_start *launch; /* rows and cols are filled in; wants_stdin: ours is carried */
    bool is_detached;        /* the run ends when the command has started, which carries nothing */
    uint64_t timeout_ms;     /* 0: none. Does not run while may_start waits */
    uint64_t quiet_ms;  /* the run ends after so much silence behind the exit; 0: not for silence */
    uint64_t after_ms;  /* ... and so long after the exit in any case */
    bool tells_denials; /* print what its network denies at once, if stderr is a terminal */
    const struct sp_carry_scribe *scribe; /* NULL: the bytes as they are */
    /* NULL: not needed. Called with the facts about the backend before the start; may change the
     * launch, or fail, which is REFUSED. */
    int (*prepare)(void *user, const struct sp_backend_facts *facts, struct sp_err *e);
    /* NULL: always. Called before each start; may change the launch. */
    enum sp_carry_permission (*may_start)(void *user, struct sp_err *e);
    /* NULL: never. The sandbox denied the command something, and nothing of our stdin was read:
     * whether to try once more. may_start is called again then; if it says NO, the result is that
     * of the first attempt. */
    bool (*tries_again)(void *user, const struct sp_carry_result *r);
    void *user;
};

/* Fails if our output fails or memory is out. */
int sp_carry_run(struct sp_carry *c, const struct sp_carry_options *o, struct sp_carry_result *ret,
                 struct sp_err *e);

/* A person refused what the command does: ends it, and the run with REJECTED, from the loop. */
void sp_carry_reject(struct sp_carry *c);

/* may_start has decided. Not to be called from within it. */
void sp_carry_wake(struct sp_carry *c);

/* The exit status that shells give for a program that is missing (127) or cannot be run (126), with
 * the errno; 0: the start failed for another reason. */
int sp_carry_not_run(const struct sp_err *refusal, int *ret_err);

/* Prints on stderr what the sandbox denied a command, and the evidence; nothing if nothing was
 * denied, or all was told while it ran. is_long: one line for each piece of evidence. */
void sp_carry_print_denied(const struct sp_carry_result *r, bool is_long);
/* Prints on stderr which hosts a command that failed was not let reach, one line for each, unless
 * they were told while it ran. */
void sp_carry_print_denied_hosts(const struct sp_carry_result *r);

#endif

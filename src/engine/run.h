/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run: one command run to its end on pipes, without a session (unified-exec.md 8): time-out,
 * cancellation, captured output with a cap, and its process ended on every way out.
 */
#ifndef SP_ENGINE_RUN_H
#define SP_ENGINE_RUN_H

#include "base/truncate.h"
#include "engine/event.h"
#include "engine/job.h"

#define SP_RUN_DEFAULT_MS   10000
#define SP_RUN_USER_MS      3600000
#define SP_RUN_FOREVER      UINT64_MAX
#define SP_RUN_CAP          1048576 /* of each stream, and of both together */
#define SP_RUN_DRAIN_MS     2000    /* after the end, for all streams together */
#define SP_RUN_GRACE_MS     50      /* between TERM and KILL of a cancelled one */
#define SP_RUN_TIMEOUT_CODE 124

enum sp_run_capture {
    SP_RUN_SHELL_TOOL,  /* the first 1 MiB of each stream */
    SP_RUN_FULL_BUFFER, /* everything; no time-out; for trusted helpers */
};

enum sp_run_kind {
    SP_RUN_EXITED,
    SP_RUN_SIGNALLED,
    SP_RUN_TIMED_OUT,
    SP_RUN_CANCELLED,
    SP_RUN_INTERRUPTED, /* we are being shut down */
    SP_RUN_FAILED,      /* could not be started, or its executor was lost: error says why */
    SP_RUN_REJECTED,    /* by a policy or a person (judged.h): error says why */
};

enum sp_run_class { SP_RUN_OK, SP_RUN_SIGNAL, SP_RUN_TIMEOUT, SP_RUN_DENIED, SP_RUN_ERROR };

struct sp_run_ask {
    struct sp_launch launch; /* argv must not be empty; never a terminal; stdin is /dev/null ... */
    struct sp_str input;     /* ... unless there is something for it, and then its end; copied */
    uint64_t timeout_ms;     /* 0: the default; SP_RUN_FOREVER: none */
    enum sp_run_capture capture;
    size_t cap; /* of each stream, and of both together; 0: as capture says */
    /* Events, if there is a sink. */
    void (*event)(void *user, const struct sp_exec_event *e); /* NULL: none */
    struct sp_str call_id, turn_id;
    enum sp_event_source source;
    bool has_begin_and_end;        /* begin and end too, not deltas alone */
    struct sp_allowance allowance; /* for formatted_output; limit 0 and bytes: 10,000 tokens */
};

struct sp_run_result {
    enum sp_run_kind kind;
    enum sp_run_class class;
    int exit_code; /* 124 timed out, 1 cancelled, 137 interrupted, -1 failed */
    int signal;
    struct sp_str out, err, aggregated; /* bytes; borrowed */
    uint64_t out_total, err_total;      /* with what the cap dropped */
    bool has_lost_output;               /* the executor dropped some: where, out says, too */
    uint64_t duration_ns;
    uint64_t timeout_ms;                  /* in effect */
    const struct sp_denial_facts *denial; /* NULL: nothing */
    const struct sp_err *error;           /* of FAILED, REJECTED */
};
typedef void sp_run_fn(void *user, const struct sp_run_result *r);

struct sp_run;

/* fn is called once, from the loop, and the run is gone after it. `command args are empty`. */
int sp_run_start(struct sp_backend *b, const struct sp_run_ask *ask, sp_run_fn *fn, void *user,
                 struct sp_run **ret, struct sp_err *e);
void sp_run_cancel(struct sp_run *r);
void sp_run_interrupt(struct sp_run *r); /* SIGKILL now, code 137 */
/* Nobody wants to know any more: fn is not called, a live process is terminated. NULL is fine. Not
 * from within an event of it. */
void sp_run_free(struct sp_run *r);

/* ---- what is made of a result ---- */

/* How much of each stream goes into the aggregate (8.6). */
void sp_run_share(size_t out, size_t err, size_t cap, size_t *ret_out, size_t *ret_err);

/* `Exit code: ...`, for a model. false: no room. */
bool sp_run_add_text(struct sp_buf *out, const struct sp_run_result *r, struct sp_allowance max);
/* The older JSON form's output member and the plain messages of 8.7. */
bool sp_run_add_message(struct sp_buf *out, const struct sp_run_result *r);
/* The record of a command that a user typed (8.8). */
bool sp_run_add_user_record(struct sp_buf *out, struct sp_str command,
                            const struct sp_run_result *r, struct sp_allowance max);

#endif

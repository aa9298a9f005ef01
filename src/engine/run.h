/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run: one command run to its end on pipes, without a session: timeout, cancellation, captured
 * output with a cap. Its process is ended on every way out.
 */
#ifndef SP_ENGINE_RUN_H
#define SP_ENGINE_RUN_H

#include "base/truncate.h"
#include "engine/event.h"
#include "engine/job.h"

#define SP_RUN_DEFAULT_MS   10000
#define SP_RUN_FOREVER      UINT64_MAX
#define SP_RUN_CAP          1048576 /* bytes of each stream, and of both together */
#define SP_RUN_DRAIN_MS     2000    /* after the end, for the streams to close */
#define SP_RUN_GRACE_MS     50      /* between SIGTERM and SIGKILL of a cancelled run */
#define SP_RUN_TIMEOUT_CODE 124

enum sp_run_capture {
    SP_RUN_SHELL_TOOL,  /* the first 1 MiB of each stream */
    SP_RUN_FULL_BUFFER, /* everything, without a timeout; for trusted helpers */
};

enum sp_run_kind {
    SP_RUN_EXITED,
    SP_RUN_SIGNALLED,
    SP_RUN_TIMED_OUT,
    SP_RUN_CANCELLED,
    SP_RUN_FAILED,   /* not started, or its executor was lost; see error */
    SP_RUN_REJECTED, /* by a policy or an approver, in sp_engine_run; see error */
};

enum sp_run_class { SP_RUN_OK, SP_RUN_SIGNAL, SP_RUN_TIMEOUT, SP_RUN_DENIED, SP_RUN_ERROR };

struct sp_run_request {
    struct sp_start launch; /* argv must not be empty; is_tty is ignored */
    struct sp_str input;    /* copied to stdin, which then ends; empty: stdin is /dev/null */
    uint64_t timeout_ms;    /* 0: default; SP_RUN_FOREVER: none */
    enum sp_run_capture capture;
    size_t cap; /* bytes of each stream, and of both together; 0: as capture says */
    /* Events; event NULL: none. */
    void (*event)(void *user, const struct sp_exec_event *e); /* NULL: none */
    struct sp_str call_id, turn_id;
    enum sp_event_source source;
    bool has_begin_and_end;        /* send begin and end events, not only deltas */
    struct sp_allowance allowance; /* for formatted_output; limit 0 in bytes: 10,000 tokens */
};

struct sp_run_result {
    enum sp_run_kind kind;
    enum sp_run_class class;
    int exit_code; /* 124 timed out, 1 cancelled, -1 failed */
    int signal;
    struct sp_str out, err, aggregated; /* borrowed */
    uint64_t out_total, err_total;      /* including bytes above the cap */
    bool has_lost_output; /* the executor dropped some; out has a marker in its place */
    uint64_t duration_ns;
    uint64_t timeout_ms;
    const struct sp_denial_facts *denial; /* NULL: no evidence */
    struct sp_command_receipt receipt;    /* reason NONE: it did not run, or nothing is known */
    struct sp_limit_hits limits;
    const struct sp_err *error; /* FAILED and REJECTED only */
};
typedef void sp_run_fn(void *user, const struct sp_run_result *r);

struct sp_run;

/* fn is called once, from the loop; the run is freed when it returns. */
int sp_run_start(struct sp_backend *b, const struct sp_run_request *request, sp_run_fn *fn,
                 void *user, struct sp_run **ret, struct sp_err *e);
void sp_run_cancel(struct sp_run *r);
/* Drops the callback and terminates a live process. NULL is fine. Not from within one of its
 * events. */
void sp_run_free(struct sp_run *r);

/* ---- texts made of a result ---- */

/* How much of each stream goes into the aggregate of at most cap bytes: stderr gets at least two
 * thirds if it needs them. */
void sp_run_share(size_t out, size_t err, size_t cap, size_t *ret_out, size_t *ret_err);

/* `Exit code: ...`, for a model. false: out of memory. */
bool sp_run_add_text(struct sp_buf *out, const struct sp_run_result *r, struct sp_allowance max);
/* The output, and the error behind it. */
bool sp_run_add_message(struct sp_buf *out, const struct sp_run_result *r);

#endif

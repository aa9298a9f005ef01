/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run: a run is settled once, by what comes first: its exit, its timeout, a cancellation, an
 * interruption, a failure. Then its streams have SP_RUN_DRAIN_MS to close.
 *
 *   STARTING --started--> RUNNING --exited--> EXITED --closed--> OVER
 *       '--refused, failed, drained too long ----------------------^
 *
 * The job is released at the end, which terminates a process that still lives.
 */
#include "engine/run.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/auto.h"
#include "base/clock.h"
#include "base/utf8.h"
#include "engine/delta.h"

#define CANCELLED_CODE 1
#define LOST           "\n... output lost ...\n"

#define DEFAULT_TOKENS 10000

enum stage { STARTING, RUNNING, EXITED, OVER };

struct stream {
    struct sp_run *run;
    enum sp_stream stream;
    struct sp_buf kept; /* the first bytes, up to the cap */
    uint64_t total;
    struct sp_delta delta;
};

struct sp_run {
    struct sp_job job;
    struct sp_loop *loop;
    sp_run_fn *fn;
    void *user;
    enum stage stage;
    bool is_settled;
    enum sp_run_kind kind;
    uint64_t settled_ms; /* loop time */
    enum sp_job_sandbox sandbox;
    struct sp_job_exit how;
    struct sp_denial_facts denial;
    struct sp_command_receipt receipt;
    struct sp_err error;
    bool has_lost_output, is_terminated;
    uint64_t timeout_ms, started_ns;
    struct sp_job_call term, kill, terminate, feed;
    struct sp_buf input; /* for its stdin; fed: bytes written */
    size_t fed;
    struct sp_timer expiry, grace, drain;
    struct sp_deferred finish;

    struct stream out, err;
    size_t cap;               /* bytes of each stream and of both together; SIZE_MAX: none */
    struct sp_buf aggregated; /* used if both streams have output */

    void (*event)(void *user, const struct sp_exec_event *e); /* NULL: no events */
    struct sp_exec_event form;                                /* the members that events share */
    struct sp_arena keep;                                     /* owns the strings of form */
    bool has_begin_and_end, has_begun;
    int64_t started_at_ms;
    unsigned quota; /* deltas that may still be sent, over both streams */
    struct sp_allowance allowance;
};

/* ---- events ---- */

static void tell_delta(void *arg, struct sp_str frame)
{
    const struct stream *s = arg;
    struct sp_exec_event e = s->run->form;

    e.type = SP_EVENT_DELTA;
    e.at_ms = (int64_t)sp_clock_unix_ms();
    e.stream = s->stream;
    e.chunk = frame;
    s->run->event(s->run->user, &e);
}

static void tell_begin(struct sp_run *r)
{
    struct sp_exec_event e = r->form;

    if (r->event == NULL || !r->has_begin_and_end || r->has_begun)
        return;
    r->has_begun = true;
    e.type = SP_EVENT_BEGIN;
    e.at_ms = r->started_at_ms;
    r->event(r->user, &e);
}

/* The error of a failed or rejected run, with the errno text unless the message has it already. */
static bool add_run_error(struct sp_buf *out, const struct sp_run_result *r)
{
    const struct sp_err *e = r->error;

    if (e == NULL)
        return sp_buf_printf(out, "execution error: not known");
    if (e->sys == 0 || strstr(e->msg, "os error") != NULL)
        return sp_buf_printf(out, "execution error: %s", e->msg);
    return sp_buf_printf(out, "execution error: %s: %s (os error %d)", e->msg,
                         strerrordesc_np(e->sys), e->sys);
}

/* The output as text, with the timeout or the error. */
static bool add_run_content(struct sp_buf *out, const struct sp_run_result *r)
{
    if (r->kind == SP_RUN_TIMED_OUT &&
        !sp_buf_printf(out, "command timed out after %" PRIu64 " milliseconds\n", r->timeout_ms))
        return false;
    if (!sp_utf8_add_lossy(out, r->aggregated))
        return false;
    if (r->kind != SP_RUN_FAILED && r->kind != SP_RUN_REJECTED)
        return true;
    return (r->aggregated.n == 0 || sp_buf_add(out, "\n", 1)) && add_run_error(out, r);
}

static bool add_formatted(struct sp_buf *out, const struct sp_run_result *r,
                          struct sp_allowance max)
{
    auto_buf struct sp_buf content = {0};

    return add_run_content(&content, r) &&
           sp_truncate_format(out, sp_buf_str(&content), max, (struct sp_omission){0});
}

/* Out of memory: the texts stay incomplete, and the event is sent all the same. */
static void tell_end(struct sp_run *run, const struct sp_run_result *r)
{
    auto_buf struct sp_buf out = {0};
    auto_buf struct sp_buf err = {0};
    auto_buf struct sp_buf aggregated = {0};
    auto_buf struct sp_buf formatted = {0};
    struct sp_exec_event e = run->form;

    if (run->event == NULL || !run->has_begin_and_end)
        return;
    tell_begin(run); /* a command that could not be started has both events, too */
    e.type = SP_EVENT_END;
    e.at_ms = (int64_t)sp_clock_unix_ms();
    e.exit_code = r->exit_code;
    e.receipt = r->receipt.reason != SP_END_NONE ? &r->receipt : NULL;
    e.duration_ns = r->duration_ns;
    e.status = r->exit_code == 0 ? SP_STATUS_COMPLETED : SP_STATUS_FAILED;
    /* The error of a failed run takes the place of its stderr. */
    const bool ok =
        sp_utf8_add_lossy(&out, r->out) &&
        (r->kind == SP_RUN_FAILED
             ? add_run_error(&err, r) && add_run_content(&aggregated, r)
             : sp_utf8_add_lossy(&err, r->err) && sp_utf8_add_lossy(&aggregated, r->aggregated));
    (void)(ok && add_formatted(&formatted, r, run->allowance));
    e.err = sp_buf_str(&err);
    e.aggregated = sp_buf_str(&aggregated);
    e.formatted = sp_buf_str(&formatted);
    e.out = sp_buf_str(&out);
    run->event(run->user, &e);
}

/* Uses the real clock: the loop's clock may be as old as its turn. */
static bool arm(struct sp_run *r, struct sp_timer *t, uint64_t ms, void (*fn)(struct sp_timer *))
{
    const uint64_t now_ms = sp_clock_ns() / 1000000;

    if (ms > UINT64_MAX - now_ms)
        return true; /* never */
    return sp_loop_timer(r->loop, t, now_ms + ms, fn);
}

/* ---- the end ---- */

static void stop_timers(struct sp_run *r)
{
    sp_loop_cancel(r->loop, &r->expiry);
    sp_loop_cancel(r->loop, &r->grace);
    sp_loop_cancel(r->loop, &r->drain);
}

void sp_run_free(struct sp_run *r)
{
    if (r == NULL)
        return;
    stop_timers(r);
    sp_loop_undefer(r->loop, &r->finish);
    sp_job_release(&r->job);
    sp_buf_done(&r->out.kept);
    sp_buf_done(&r->err.kept);
    sp_buf_done(&r->aggregated);
    sp_buf_done(&r->input);
    sp_arena_done(&r->keep);
    free(r);
}

/* The exit code and the class of each end; an exit and a signal have the command's own code. */
static const struct {
    int code;
    enum sp_run_class class;
} ends[] = {
    [SP_RUN_EXITED] = {0, SP_RUN_OK},
    [SP_RUN_SIGNALLED] = {0, SP_RUN_SIGNAL},
    [SP_RUN_TIMED_OUT] = {SP_RUN_TIMEOUT_CODE, SP_RUN_TIMEOUT},
    [SP_RUN_CANCELLED] = {CANCELLED_CODE, SP_RUN_OK},
    [SP_RUN_FAILED] = {-1, SP_RUN_ERROR},
    [SP_RUN_REJECTED] = {-1, SP_RUN_ERROR},
};

static void fail_run(struct sp_run *r, enum sp_code code, int sys, const char *why)
{
    (void)sp_fail(&r->error, code, sys, "%s", why);
    r->kind = SP_RUN_FAILED;
    r->is_settled = true;
}

static void on_finish(struct sp_deferred *d)
{
    struct sp_run *r = SP_CONTAINER(d, struct sp_run, finish);
    size_t out, err;

    stop_timers(r);
    sp_job_release(&r->job);
    struct sp_run_result result = {
        .has_lost_output = r->has_lost_output,
        .duration_ns = sp_clock_ns() - r->started_ns,
        .timeout_ms = r->timeout_ms,
        .denial = r->how.denial,
        .receipt = r->receipt,
        .limits = r->how.limits,
        .out = sp_buf_str(&r->out.kept),
        .err = sp_buf_str(&r->err.kept),
        .out_total = r->out.total,
        .err_total = r->err.total,
    };
    if (r->event != NULL) {
        sp_delta_finish(&r->out.delta);
        sp_delta_finish(&r->err.delta);
    }
    sp_run_share(r->out.kept.len, r->err.kept.len, r->cap, &out, &err);
    if (out == 0 || err == 0)
        result.aggregated = out != 0 ? result.out : result.err;
    else if (sp_buf_add(&r->aggregated, r->out.kept.data, out) &&
             sp_buf_add(&r->aggregated, r->err.kept.data, err))
        result.aggregated = sp_buf_str(&r->aggregated);
    else
        fail_run(r, SP_E_SYSTEM, ENOMEM, "put the output together");
    result.kind = r->kind;
    const bool has_ended = r->kind == SP_RUN_EXITED || r->kind == SP_RUN_SIGNALLED;
    result.exit_code = has_ended ? r->how.code : ends[r->kind].code;
    result.signal = r->kind == SP_RUN_SIGNALLED ? r->how.signal : 0;
    result.class = ends[r->kind].class;
    if ((r->kind == SP_RUN_EXITED || (has_ended && r->how.signal == SIGSYS)) &&
        sp_denied_judge(r->sandbox, &r->how, result.out, result.err))
        result.class = SP_RUN_DENIED;
    result.error = r->kind == SP_RUN_FAILED ? &r->error : NULL;

    tell_end(r, &result);
    r->fn(r->user, &result);
    sp_run_free(r);
}

/* Deferred: the job must not be released inside one of its callbacks. */
static void finish_run(struct sp_run *r)
{
    r->stage = OVER;
    sp_loop_defer(r->loop, &r->finish, on_finish);
}

static void on_drain_limit(struct sp_timer *t)
{
    finish_run(SP_CONTAINER(t, struct sp_run, drain)); /* the output so far is the result */
}

static void settle_run(struct sp_run *r, enum sp_run_kind kind)
{
    r->is_settled = true;
    r->kind = kind;
    r->settled_ms = sp_loop_now(r->loop);
    sp_loop_cancel(r->loop, &r->expiry);
    if (!arm(r, &r->drain, SP_RUN_DRAIN_MS, on_drain_limit))
        finish_run(r); /* out of memory: do not wait for the streams */
}

/* ---- ending the process ---- */

/* Nothing to do: if the job refused, its release ends the process. */
static void on_job_call(struct sp_job_call *c)
{
    (void)c;
}

static void terminate(struct sp_run *r)
{
    if (r->stage != RUNNING || r->is_terminated)
        return;
    r->is_terminated = true;
    r->terminate = (struct sp_job_call){.fn = on_job_call};
    sp_job_terminate(&r->job, &r->terminate);
}

/* The executor may not support signals. */
static void on_term_asked(struct sp_job_call *c)
{
    if (c->result != SP_JOB_OK)
        terminate(SP_CONTAINER(c, struct sp_run, term));
}

static void on_grace_over(struct sp_timer *t)
{
    terminate(SP_CONTAINER(t, struct sp_run, grace));
}

static void end_process(struct sp_run *r)
{
    if (r->stage != RUNNING)
        return; /* on_started ends it */
    if (r->kind != SP_RUN_CANCELLED) {
        terminate(r);
        return;
    }
    r->term = (struct sp_job_call){.fn = on_term_asked};
    sp_job_signal(&r->job, &r->term, SIGTERM);
    if (!arm(r, &r->grace, SP_RUN_GRACE_MS, on_grace_over))
        terminate(r);
}

static void on_expired(struct sp_timer *t)
{
    struct sp_run *r = SP_CONTAINER(t, struct sp_run, expiry);

    if (r->is_settled)
        return;
    settle_run(r, SP_RUN_TIMED_OUT);
    end_process(r);
}

void sp_run_cancel(struct sp_run *r)
{
    if (!r->is_settled) {
        settle_run(r, SP_RUN_CANCELLED);
        end_process(r);
    } else if (r->kind == SP_RUN_TIMED_OUT && r->settled_ms == sp_loop_now(r->loop)) {
        r->kind = SP_RUN_CANCELLED; /* timeout and cancellation in the same turn */
    } else if (r->stage == EXITED) {
        finish_run(r); /* do not wait for its streams */
    }
}

/* ---- stdin ---- */

#define PIECE 65536

static void feed_stdin(struct sp_run *r);

/* If the process does not read its stdin, feeding stops. */
static void on_fed(struct sp_job_call *c)
{
    struct sp_run *r = SP_CONTAINER(c, struct sp_run, feed);

    if (c->result == SP_JOB_OK)
        feed_stdin(r);
}

static void on_piece(struct sp_job_call *c)
{
    struct sp_run *r = SP_CONTAINER(c, struct sp_run, feed);
    const enum sp_job_result result = c->result;

    r->feed = (struct sp_job_call){.fn = on_fed};
    if (result != SP_JOB_OK)
        return;
    if (!sp_job_flush(&r->job, &r->feed))
        feed_stdin(r);
}

/* Writes the next piece, or closes stdin. */
static void feed_stdin(struct sp_run *r)
{
    const size_t left = r->input.len - r->fed;
    const size_t n = left < PIECE ? left : PIECE;

    if (r->stage != RUNNING || r->input.data == NULL)
        return;
    if (n == 0) {
        r->feed = (struct sp_job_call){.fn = on_job_call};
        sp_job_close_stdin(&r->job, &r->feed);
        return;
    }
    r->feed = (struct sp_job_call){.fn = on_piece};
    r->fed += n;
    sp_job_write(&r->job, &r->feed, (struct sp_str){r->input.data + r->fed - n, n});
}

/* ---- reports of the job ---- */

static void on_started(struct sp_job *j, enum sp_job_sandbox sandbox)
{
    struct sp_run *r = SP_CONTAINER(j, struct sp_run, job);

    if (r->stage != STARTING)
        return;
    r->stage = RUNNING;
    r->sandbox = sandbox;
    tell_begin(r);
    if (r->is_settled)
        end_process(r);
    else
        feed_stdin(r);
}

static void on_refused(struct sp_job *j, const struct sp_err *e)
{
    struct sp_run *r = SP_CONTAINER(j, struct sp_run, job);

    if (!r->is_settled) {
        r->error = *e;
        r->kind = SP_RUN_FAILED;
        r->is_settled = true;
    }
    finish_run(r);
}

static bool on_output(struct sp_job *j, enum sp_stream stream, struct sp_str bytes)
{
    struct sp_run *r = SP_CONTAINER(j, struct sp_run, job);
    struct stream *s = stream == SP_STREAM_STDERR ? &r->err : &r->out;
    const size_t room = r->cap - s->kept.len;

    if (r->stage == OVER)
        return true;
    s->total += bytes.n;
    if (!sp_buf_add(&s->kept, bytes.p, bytes.n < room ? bytes.n : room)) {
        fail_run(r, SP_E_SYSTEM, ENOMEM, "keep the output");
        finish_run(r);
    } else if (r->event != NULL) {
        sp_delta_push(&s->delta, bytes);
    }
    return true;
}

/* The stream is unknown; a marker in stdout shows readers that some is missing. */
static void on_gap(struct sp_job *j, uint64_t bytes)
{
    (void)bytes;
    SP_CONTAINER(j, struct sp_run, job)->has_lost_output = true;
    (void)on_output(j, SP_STREAM_STDOUT, SP_STR(LOST));
}

static void on_receipt(struct sp_job *j, const struct sp_command_receipt *from)
{
    struct sp_run *r = SP_CONTAINER(j, struct sp_run, job);

    r->receipt = *from;
    r->receipt.sandbox = r->receipt.network = (struct sp_str){0}; /* borrowed */
}

static void on_exited(struct sp_job *j, const struct sp_job_exit *how)
{
    struct sp_run *r = SP_CONTAINER(j, struct sp_run, job);

    if (r->stage == OVER)
        return;
    r->stage = EXITED;
    r->how = *how;
    sp_receipt_note_end(&r->receipt, how->signal != 0 ? SP_END_SIGNAL : SP_END_EXIT,
                        sp_clock_ns() - r->started_ns);
    r->how.kernel = NULL; /* borrowed */
    if (how->denial != NULL) {
        r->denial = *how->denial;
        r->how.denial = &r->denial;
    }
    if (!r->is_settled) {
        settle_run(r, how->signal != 0 ? SP_RUN_SIGNALLED : SP_RUN_EXITED);
    } else if (r->kind == SP_RUN_CANCELLED && (!r->is_terminated || how->signal != SIGKILL)) {
        /* SIGTERM ended the command; other processes of its group may have ignored it. A terminate
         * that came after the exit did not reach them either. */
        sp_loop_cancel(r->loop, &r->grace);
        r->kill = (struct sp_job_call){.fn = on_job_call};
        sp_job_signal(&r->job, &r->kill, SIGKILL);
    }
}

static void on_closed(struct sp_job *j)
{
    finish_run(SP_CONTAINER(j, struct sp_run, job));
}

static void on_failed(struct sp_job *j, const char *why)
{
    struct sp_run *r = SP_CONTAINER(j, struct sp_run, job);

    if (!r->is_settled)
        fail_run(r, SP_E_FAILED, 0, why);
    if (r->stage == RUNNING)
        sp_receipt_note_end(&r->receipt, SP_END_LOST, sp_clock_ns() - r->started_ns);
    r->has_lost_output = true; /* unknown, so assume the worst */
    finish_run(r);
}

static const struct sp_job_ops job_ops = {
    .started = on_started,
    .refused = on_refused,
    .output = on_output,
    .gap = on_gap,
    .exited = on_exited,
    .closed = on_closed,
    .failed = on_failed,
    .receipt = on_receipt,
};

/* ---- start ---- */

static bool keep_strings(struct sp_run *r, const struct sp_run_request *request)
{
    struct sp_exec_event *form = &r->form;

    form->argc = request->launch.argc;
    form->source = request->source;
    return sp_arena_str(&r->keep, request->call_id, &form->call_id) &&
           sp_arena_str(&r->keep, request->turn_id, &form->turn_id) &&
           sp_arena_str(&r->keep, request->launch.cwd, &form->cwd) &&
           sp_arena_strs(&r->keep, request->launch.argv, form->argc, &form->argv);
}

int sp_run_start(struct sp_backend *b, const struct sp_run_request *request, sp_run_fn *fn,
                 void *user, struct sp_run **ret, struct sp_err *e)
{
    const bool is_full = request->capture == SP_RUN_FULL_BUFFER;
    struct sp_start l = request->launch;
    int result;

    if (l.argc == 0 || l.argv[0].n == 0)
        return sp_fail(e, SP_E_INVALID, 0, "command args are empty");
    struct sp_run *r = calloc(1, sizeof *r);
    if (r == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "run a command");
    r->loop = b->loop;
    r->fn = fn;
    r->user = user;
    r->timeout_ms = is_full                    ? SP_RUN_FOREVER
                    : request->timeout_ms != 0 ? request->timeout_ms
                                               : SP_RUN_DEFAULT_MS;
    r->cap = request->cap != 0 ? request->cap : is_full ? SIZE_MAX : SP_RUN_CAP;
    r->started_ns = sp_clock_ns();
    r->started_at_ms = (int64_t)sp_clock_unix_ms();
    r->how = (struct sp_job_exit){.code = -1, .denied = -1};
    r->event = request->event;
    r->has_begin_and_end = request->has_begin_and_end;
    r->quota = SP_DELTA_QUOTA;
    r->allowance = request->allowance;
    if (r->allowance.unit == SP_ALLOWANCE_BYTES && r->allowance.limit == 0)
        r->allowance = (struct sp_allowance){SP_ALLOWANCE_TOKENS, DEFAULT_TOKENS};
    r->out = (struct stream){.run = r, .stream = SP_STREAM_STDOUT};
    r->err = (struct stream){.run = r, .stream = SP_STREAM_STDERR};
    sp_delta_init(&r->out.delta, &r->quota, tell_delta, &r->out);
    sp_delta_init(&r->err.delta, &r->quota, tell_delta, &r->err);
    l.is_tty = false;
    l.wants_stdin = request->input.n != 0;
    if (l.label.n == 0)
        l.label = SP_STR("shell");
    if ((request->input.n != 0 && !sp_buf_add_str(&r->input, request->input)) ||
        (r->event != NULL && !keep_strings(r, request)))
        result = sp_fail(e, SP_E_SYSTEM, ENOMEM, "run a command");
    else if (!arm(r, &r->expiry, r->timeout_ms, on_expired))
        result = sp_fail(e, SP_E_SYSTEM, ENOMEM, "set a time-out");
    else
        result = sp_job_start(b, &r->job, &job_ops, &l, e);
    if (result < 0) {
        sp_run_free(r);
        return result;
    }
    *ret = r;
    return 0;
}

/* ---- texts of a result ---- */

void sp_run_share(size_t out, size_t err, size_t cap, size_t *ret_out, size_t *ret_err)
{
    if (out > cap || err > cap - out) {
        const size_t first = out < cap / 3 ? out : cap / 3;

        err = err < cap - first ? err : cap - first;
        out = out < cap - err ? out : cap - err;
    }
    *ret_out = out;
    *ret_err = err;
}

/* Rounded to a tenth, without trailing zeros: 0, 0.1, 12, 1.5. */
static bool add_seconds(struct sp_buf *out, uint64_t ns)
{
    const uint64_t tenths = ns / 100000000 + (ns % 100000000 >= 50000000);

    if (tenths % 10 == 0)
        return sp_buf_printf(out, "%" PRIu64, tenths / 10);
    return sp_buf_printf(out, "%" PRIu64 ".%" PRIu64, tenths / 10, tenths % 10);
}

bool sp_run_add_text(struct sp_buf *out, const struct sp_run_result *r, struct sp_allowance max)
{
    auto_buf struct sp_buf content = {0};
    auto_buf struct sp_buf shown = {0};
    const size_t mark = out->len;

    if (!add_run_content(&content, r) || !sp_truncate_add(&shown, sp_buf_str(&content), max))
        return false;
    const size_t lines = sp_truncate_lines(sp_buf_str(&content));
    const bool is_cut = lines != sp_truncate_lines(sp_buf_str(&shown));
    if (sp_buf_printf(out, "Exit code: %d\nWall time: ", r->exit_code) &&
        add_seconds(out, r->duration_ns) && sp_buf_printf(out, " seconds\n") &&
        (!is_cut || sp_buf_printf(out, "Total output lines: %zu\n", lines)) &&
        sp_buf_printf(out, "Output:\n") && sp_buf_add_str(out, sp_buf_str(&shown)))
        return true;
    out->len = mark;
    return false;
}

bool sp_run_add_message(struct sp_buf *out, const struct sp_run_result *r)
{
    const struct sp_allowance max = {SP_ALLOWANCE_TOKENS, DEFAULT_TOKENS};
    const size_t mark = out->len;

    if (add_formatted(out, r, max))
        return true;
    out->len = mark;
    return false;
}

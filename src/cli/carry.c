/* SPDX-License-Identifier: Apache-2.0 */
/*
 *   sp_carry_run --> facts (of a server) --> permission --> start --> live --> exited --> finish
 *                                                ^                                |
 *                                                +-------- begin_retry <----------+ denied
 *
 * finish: the result is known, the job is released, and pending output is written; then stop ends
 * the loop. A signal, the timeout or a failure of our output leads to finish or stop from any
 * state.
 */
#include "cli/carry.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "cli/carry_priv.h"

#define KILLED_MS 2000 /* for the last output of a command that was killed by the timeout */
#define FULL_MS   20   /* between writes while the input queue of the job is full */

/* ---- input ---- */

static void pass_chunk(struct sp_carry *c);

static void end_carry_input(struct sp_carry *c)
{
    sp_loop_cancel(c->loop, &c->input.full);
    sp_stdin_close(&c->input.in);
}

/* The command has closed its stdin: close ours as well, so that a writer gets EPIPE. */
static void close_our_stdin(struct sp_carry *c)
{
    end_carry_input(c);
    const int null = isatty(STDIN_FILENO) ? -1 : open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null >= 0) {
        (void)dup2(null, STDIN_FILENO);
        (void)close(null);
    }
}

static void on_input_full(struct sp_timer *t)
{
    pass_chunk(SP_CONTAINER(t, struct sp_carry, input.full));
}

/* The command has read the chunk, or never will. */
static void on_input_flushed(struct sp_job_call *call)
{
    struct sp_carry *c = SP_CONTAINER(call, struct sp_carry, input.call);

    c->input.len = 0;
    if (!c->is_live || c->input.in.port.fd < 0)
        return;
    if (call->result == SP_JOB_OK)
        sp_stdin_want(&c->input.in);
    else
        close_our_stdin(c);
}

static void on_input_written(struct sp_job_call *call)
{
    struct sp_carry *c = SP_CONTAINER(call, struct sp_carry, input.call);

    if (call->result == SP_JOB_FULL && c->is_live &&
        sp_loop_timer(c->loop, &c->input.full, sp_loop_now(c->loop) + FULL_MS, on_input_full))
        return;
    call->fn = on_input_flushed;
    if (call->result != SP_JOB_OK || !sp_job_flush(&c->job, call))
        on_input_flushed(call);
}

/* Writes the chunk to the job; called again while the queue of the job is full. */
static void pass_chunk(struct sp_carry *c)
{
    struct sp_carry_input *in = &c->input;

    if (!c->is_live)
        return;
    in->call.fn = on_input_written;
    sp_job_write(&c->job, &in->call, (struct sp_str){in->chunk, in->len});
}

static void on_input_closed(struct sp_job_call *call)
{
    (void)call; /* a failure means that the command has exited or is lost, which is reported */
}

static void on_stdin(struct sp_stdin *in, ssize_t n)
{
    struct sp_carry *c = SP_CONTAINER(in, struct sp_carry, input.in);

    if (n > 0) {
        sp_stdin_stop(in);
        c->result.was_taken = true;
        c->input.len = (size_t)n;
        pass_chunk(c);
        return;
    }
    sp_stdin_stop(in);
    if (c->terminal.is_raw) /* Ctrl-D does not end a raw terminal: it has hung up */
        sp_carry_pass(c, SIGHUP);
    c->input.close.fn = on_input_closed;
    sp_job_close_stdin(&c->job, &c->input.close);
    sp_stdin_close(in);
}

/* A retry opens stdin again: nothing was read for the first attempt. */
static void begin_input(struct sp_carry *c)
{
    struct sp_carry_input *input = &c->input;

    input->in.chunk = input->chunk;
    input->in.size = sizeof input->chunk;
    input->in.raw = c->options->launch->is_tty ? &c->terminal : NULL;
    input->in.fn = on_stdin;
    sp_stdin_open(&input->in, c->loop);
    sp_stdin_want(&input->in);
}

/* ---- output ---- */

/* A closed pipe is the normal end of `sallyport exec ... | head`, not an error. */
static void fail_output(struct sp_carry *c, int err)
{
    if (err == EPIPE || err == EIO) /* EIO: the terminal is gone */
        c->result.end = SP_CARRY_OUTPUT_CLOSED;
    else
        c->failed = sp_fail(&c->error, SP_E_SYSTEM, err, "write %s",
                            c->output.to == 1 ? "stderr" : "stdout");
    sp_carry_stop(c);
}

static void on_quiet(struct sp_timer *t)
{
    sp_carry_finish(SP_CONTAINER(t, struct sp_carry, output.quiet));
}

/* Descendants may hold the streams of a command that has exited, for hours: set the timer that ends
 * the run. */
static void await_quiet(struct sp_carry *c)
{
    struct sp_carry_output *out = &c->output;
    const struct sp_carry_options *o = c->options;

    if (!c->has_exited || c->is_ending || c->result.end == SP_CARRY_TIMED_OUT ||
        out->pending.len > 0)
        return;
    const uint64_t now = sp_loop_now(c->loop);
    uint64_t due = out->exited_ms + o->after_ms;
    if (o->quiet_ms != 0 && now + o->quiet_ms < due)
        due = now + o->quiet_ms;
    if (!sp_loop_timer(c->loop, &out->quiet, due, on_quiet))
        sp_carry_finish(c);
}

static void flush_output(struct sp_carry *c, bool ok);

static void on_output_writable(struct sp_watch *w, uint32_t events)
{
    struct sp_carry *c = SP_CONTAINER(w, struct sp_carry, output.watch);

    (void)events; /* an error is found by the write */
    sp_loop_unwatch(c->loop, w);
    flush_output(c, true);
}

/* Returns the bytes written; fewer than all: the port is full and watched. -1: the run is over. */
static ssize_t write_now(struct sp_carry *c, const char *bytes, size_t len)
{
    struct sp_carry_output *out = &c->output;
    const struct sp_port *port = &out->ports[out->to];
    size_t at = 0;

    while (at < len) {
        const ssize_t n = sp_port_write(port, bytes + at, len - at);

        if (n == -EAGAIN) {
            sp_loop_cancel(c->loop, &out->quiet);
            if (out->watch.fn == NULL && sp_loop_watch(c->loop, &out->watch, port->fd, EPOLLOUT,
                                                       on_output_writable, NULL) < 0) {
                fail_output(c, errno);
                return -1;
            }
            break;
        }
        if (n < 0) {
            fail_output(c, (int)-n);
            return -1;
        }
        at += (size_t)n;
    }
    return (ssize_t)at;
}

/* Writes `pending`. ok: what the scribe returned; false: out of memory. */
static void flush_output(struct sp_carry *c, bool ok)
{
    struct sp_carry_output *out = &c->output;

    if (!ok) {
        fail_output(c, ENOMEM);
        return;
    }
    if (out->pending.len > 0) {
        const ssize_t n = write_now(c, out->pending.data + out->at, out->pending.len - out->at);

        if (n < 0)
            return;
        out->at += (size_t)n;
        if (out->at < out->pending.len)
            return;
    }
    out->pending.len = out->at = 0;
    if (c->is_ending) {
        sp_carry_stop(c);
        return;
    }
    await_quiet(c);
    if (out->is_refusing) {
        out->is_refusing = false;
        sp_job_go_on(&c->job);
    }
}

/* false: not now; sp_job_go_on follows. */
static bool take_output(struct sp_carry *c, enum sp_stream stream, struct sp_str bytes)
{
    struct sp_carry_output *out = &c->output;
    const struct sp_carry_scribe *s = c->options->scribe;

    if (c->is_ending)
        return true; /* dropped */
    if (out->pending.len > 0) {
        out->is_refusing = true;
        return false;
    }
    if (s != NULL) {
        flush_output(c, s->output(s->user, stream, bytes, &out->pending));
        return true;
    }
    out->to = stream == SP_STREAM_STDERR ? 1 : 0;
    const ssize_t n = write_now(c, bytes.p, bytes.n);
    if (n >= 0 && (size_t)n < bytes.n &&
        !sp_buf_add(&out->pending, bytes.p + n, bytes.n - (size_t)n))
        fail_output(c, ENOMEM);
    else
        await_quiet(c);
    return true;
}

/* ---- the end ---- */

/* Idempotent: finish, signals and failures may all lead here. */
void sp_carry_stop(struct sp_carry *c)
{
    c->is_ending = true;
    c->is_live = false;
    sp_backend_forget_facts(&c->facts);
    sp_loop_cancel(c->loop, &c->timeout);
    end_carry_input(c);
    sp_loop_unwatch(c->loop, &c->output.watch);
    sp_loop_cancel(c->loop, &c->output.quiet);
    sp_port_close(&c->output.ports[0]);
    sp_port_close(&c->output.ports[1]);
    sp_job_release(&c->job); /* kills what still runs */
    sp_loop_stop(c->loop);
}

/* Only a plain exit, or SIGSYS of the filter: a command that was killed is not run again. */
static bool wants_retry(const struct sp_carry *c)
{
    const struct sp_carry_options *o = c->options;

    return o->tries_again != NULL && !c->is_retry && c->result.end == SP_CARRY_EXITED &&
           c->result.was_denied && !c->result.was_taken &&
           (c->result.exit.signal == 0 || c->result.exit.signal == SIGSYS) &&
           o->tries_again(o->user, &c->result);
}

static void ask_permission(struct sp_carry *c);

/* Starts over. The output of the first attempt has been written. */
static void begin_retry(struct sp_carry *c)
{
    c->is_retry = true;
    c->first = c->result;
    c->result = (struct sp_carry_result){0};
    c->has_exited = c->is_live = false;
    sp_loop_cancel(c->loop, &c->timeout);
    sp_loop_cancel(c->loop, &c->output.quiet);
    end_carry_input(c);
    sp_job_release(&c->job);
    sp_carry_forget_signals(c);
    sp_terminal_restore(&c->terminal);
    ask_permission(c);
}

/* Releases the job first, so that descendants that still hold the streams are killed. */
void sp_carry_finish(struct sp_carry *c)
{
    const struct sp_carry_scribe *s = c->options->scribe;

    if (c->is_ending)
        return;
    if (wants_retry(c)) {
        begin_retry(c);
        return;
    }
    c->is_ending = true;
    c->is_live = false;
    c->result.duration_ns = sp_clock_ns() - c->began_ns;
    sp_loop_cancel(c->loop, &c->timeout);
    sp_loop_cancel(c->loop, &c->output.quiet);
    end_carry_input(c);
    sp_job_release(&c->job);
    flush_output(c, s == NULL || s->ended(s->user, &c->result, &c->output.pending));
}

/* ---- events of the job ---- */

static struct sp_carry *carry_of(struct sp_job *j)
{
    return SP_CONTAINER(j, struct sp_carry, job);
}

static void on_started(struct sp_job *j, enum sp_job_sandbox sandbox)
{
    struct sp_carry *c = carry_of(j);
    const struct sp_carry_scribe *s = c->options->scribe;

    (void)sandbox;
    c->is_live = true;
    if (c->options->launch->is_tty)
        sp_terminal_make_raw(&c->terminal);
    if (s != NULL)
        flush_output(c, s->started(s->user, &c->output.pending));
    if (c->is_ending)
        return;
    if (c->options->launch->wants_stdin)
        begin_input(c);
    sp_carry_pass_signals(c);
}

static void end_with(struct sp_carry *c, enum sp_carry_end end, const struct sp_err *e)
{
    if (c->is_ending)
        return;
    c->result.end = end;
    if (e != NULL)
        c->result.error = *e;
    sp_carry_finish(c);
}

static void on_refused(struct sp_job *j, const struct sp_err *e)
{
    end_with(carry_of(j), SP_CARRY_REFUSED, e);
}

static bool on_output(struct sp_job *j, enum sp_stream stream, struct sp_str bytes)
{
    return take_output(carry_of(j), stream, bytes);
}

static void on_gap(struct sp_job *j, uint64_t bytes)
{
    struct sp_carry *c = carry_of(j);
    const struct sp_carry_scribe *s = c->options->scribe;

    if (s != NULL)
        flush_output(c, s->gap(s->user, bytes, &c->output.pending));
    else if (bytes > 0)
        (void)fprintf(stderr, "sallyport: %llu bytes of output were lost here\n",
                      (unsigned long long)bytes);
    else
        (void)fprintf(stderr, "sallyport: some output was lost here\n");
}

/* Output may still be on its way: on_closed, or the quiet timer, ends the run. */
static void on_exited(struct sp_job *j, const struct sp_job_exit *how)
{
    struct sp_carry *c = carry_of(j);
    struct sp_carry_result *r = &c->result;

    if (c->is_ending)
        return;
    c->has_exited = true;
    c->is_live = false;
    r->exit = how->kernel != NULL ? *how->kernel
                                  : (struct sp_exit){.code = how->code, .signal = how->signal};
    r->was_denied = how->denied == 1;
    if (how->denial != NULL)
        r->denial = *how->denial;
    end_carry_input(c);
    if (r->end == SP_CARRY_TIMED_OUT)
        return; /* on_killed ends the run */
    sp_loop_cancel(c->loop, &c->timeout);
    c->output.exited_ms = sp_loop_now(c->loop);
    await_quiet(c);
}

static void on_closed(struct sp_job *j)
{
    sp_carry_finish(carry_of(j));
}

/* The server or the cell is lost. */
static void on_failed(struct sp_job *j, const char *why)
{
    struct sp_carry *c = carry_of(j);
    struct sp_err e = {0};

    if (c->has_exited) { /* the exit is known; the rest of the output is lost */
        sp_carry_finish(c);
        return;
    }
    (void)sp_fail(&e, SP_E_FAILED, 0, "%s", why);
    end_with(c, c->result.end == SP_CARRY_TIMED_OUT ? SP_CARRY_TIMED_OUT : SP_CARRY_LOST, &e);
}

static const struct sp_job_ops job_ops = {
    .started = on_started,
    .refused = on_refused,
    .output = on_output,
    .gap = on_gap,
    .exited = on_exited,
    .closed = on_closed,
    .failed = on_failed,
};

/* ---- time ---- */

/* Stops at once: pending output may never be taken. */
static void on_killed(struct sp_timer *t)
{
    struct sp_carry *c = SP_CONTAINER(t, struct sp_carry, timeout);

    sp_carry_finish(c);
    sp_carry_stop(c);
}

/* The kill is confirmed by the exit; after KILLED_MS the run ends without it. */
static void on_timeout(struct sp_timer *t)
{
    struct sp_carry *c = SP_CONTAINER(t, struct sp_carry, timeout);

    c->result.end = SP_CARRY_TIMED_OUT;
    c->result.was_killed = !c->is_live; /* nothing runs yet */
    if (!c->is_live ||
        !sp_loop_timer(c->loop, &c->timeout, sp_loop_now(c->loop) + KILLED_MS, on_killed))
        sp_carry_finish(c); /* releases the job, which kills it */
    else
        sp_carry_kill(c);
}

/* ---- starting ---- */

static void start(struct sp_carry *c)
{
    struct sp_launch *l = c->options->launch;
    struct sp_err e = {0};

    if (l->is_tty)
        sp_terminal_size(&l->rows, &l->cols);
    if (sp_job_start(c->options->backend, &c->job, &job_ops, l, &e) < 0)
        end_with(c, SP_CARRY_REFUSED, &e);
}

static bool set_timeout(struct sp_carry *c)
{
    const uint64_t ms = c->options->timeout_ms;

    return ms == 0 || sp_loop_timer(c->loop, &c->timeout, sp_clock_ms() + ms, on_timeout);
}

/* The timeout of the command does not run while a person thinks. */
static void ask_permission(struct sp_carry *c)
{
    const struct sp_carry_options *o = c->options;
    struct sp_err e = {0};
    const bool was_asking = c->is_asking || c->is_retry;

    c->is_asking = false;
    switch (o->may_start == NULL ? SP_CARRY_GO : o->may_start(o->user, &e)) {
    case SP_CARRY_GO:
        if (was_asking && !set_timeout(c))
            end_with(c, SP_CARRY_REFUSED, &e);
        else
            start(c);
        return;
    case SP_CARRY_WAIT:
        c->is_asking = true;
        sp_loop_cancel(c->loop, &c->timeout);
        return;
    case SP_CARRY_NO:
        if (!c->is_retry) {
            end_with(c, SP_CARRY_REJECTED, &e);
            return;
        }
        c->result = c->first; /* the result of the first attempt stands */
        c->has_exited = true;
        sp_carry_finish(c);
        return;
    case SP_CARRY_FAIL:
        end_with(c, SP_CARRY_REFUSED, &e);
        return;
    }
}

void sp_carry_wake(struct sp_carry *c)
{
    if (c->is_asking && !c->is_ending)
        ask_permission(c);
}

static void on_facts(struct sp_backend_wait *w, const struct sp_backend_facts *facts,
                     const struct sp_err *why)
{
    struct sp_carry *c = SP_CONTAINER(w, struct sp_carry, facts);
    struct sp_err e = {0};

    if (facts == NULL)
        end_with(c, SP_CARRY_UNREACHABLE, why);
    else if (c->options->prepare(c->options->user, facts, &e) < 0)
        end_with(c, SP_CARRY_REFUSED, &e);
    else
        ask_permission(c);
}

int sp_carry_run(struct sp_carry *c, const struct sp_carry_options *o, struct sp_carry_result *ret,
                 struct sp_err *e)
{
    c->options = o;
    c->began_ns = sp_clock_ns();
    sp_port_open(&c->output.ports[0], STDOUT_FILENO, false);
    sp_port_open(&c->output.ports[1], STDERR_FILENO, false);
    if (!set_timeout(c))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "watch the time");
    c->facts.fn = on_facts;
    if (o->prepare != NULL)
        sp_backend_ask_facts(o->backend, &c->facts);
    else
        ask_permission(c);
    const int r = sp_loop_run(c->loop, e);
    sp_terminal_restore(&c->terminal);
    if (r < 0)
        return r;
    if (c->failed < 0 && e != NULL)
        *e = c->error;
    else
        *ret = c->result;
    return c->failed;
}

/* ---- beginning and end ---- */

int sp_carry_new(struct sp_carry **ret, struct sp_err *e)
{
    struct sp_carry *c = calloc(1, sizeof *c);

    if (c == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "carry a command");
    c->signals.fd = -1;
    c->input.in.port.fd = c->output.ports[0].fd = c->output.ports[1].fd = -1;
    sp_port_fill_gaps();
    int r = sp_loop_new(&c->loop, e);
    if (r == 0)
        r = sp_carry_begin_signals(c, e);
    if (r < 0) {
        sp_carry_free(c);
        return r;
    }
    *ret = c;
    return 0;
}

void sp_carry_free(struct sp_carry *c)
{
    if (c == NULL)
        return;
    sp_carry_end_signals(c);
    sp_buf_done(&c->output.pending);
    sp_loop_free(c->loop);
    free(c);
}

struct sp_loop *sp_carry_loop(struct sp_carry *c)
{
    return c->loop;
}

/* ---- arguments, and programs that cannot be run ---- */

struct sp_str *sp_carry_argv(char *const *words, struct sp_launch *ret)
{
    uint32_t count = 0;

    while (words[count] != NULL)
        count++;
    struct sp_str *argv = calloc((size_t)count + 1, sizeof *argv);
    for (uint32_t i = 0; argv != NULL && i < count; i++)
        argv[i] = sp_str_of(words[i]);
    ret->argv = argv;
    ret->argc = count;
    return argv;
}

/* Servers give the errno in the text only, at its end: "... (os error 2)". */
static int err_in_text(const char *text)
{
    static const char mark[] = "(os error ";
    const char *at = NULL;
    char *end;

    for (const char *next = text; (next = strstr(next, mark)) != NULL; next++)
        at = next + sizeof mark - 1;
    const long err = at == NULL ? 0 : strtol(at, &end, 10);
    return at != NULL && *end == ')' && err > 0 && err < 4096 ? (int)err : 0;
}

int sp_carry_not_run(const struct sp_err *refusal, int *ret_err)
{
    const int err = err_in_text(refusal->msg);

    *ret_err = err;
    if (err == 0 || err == EAGAIN || err == ENOMEM || err == EMFILE || err == ENFILE)
        return 0; /* resources ran out: not the program's fault */
    return err == ENOENT || err == ENOTDIR ? 127 : 126;
}

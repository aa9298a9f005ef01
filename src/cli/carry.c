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
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/json.h"
#include "cli/escape_text.h"
#include "cli/own_stdio.h"
#include "cli/screen_modes.h"
#include "cli/signals.h"
#include "os/seccomp.h"
#include "sandbox/resolve.h"

#define KILLED_MS     2000 /* for the last output of a command that was killed by the timeout */
#define FULL_MS       20   /* between writes while the input queue of the job is full */
#define UNANSWERED_MS 1000 /* then the executor is taken for dead */
#define JUDGING_MS    1000 /* a judge that takes longer asks a person, or a program */
#define CUT_PAUSE_MS  5000 /* a connection that is lost again and again is told that often */

/* One chunk is in flight at a time: bytes that we have read and the command has not are lost to the
 * next reader of our stdin (the shell that started us). */
struct carry_input {
    struct sp_stdin in;
    struct sp_timer full;    /* the job's queue is full: write again */
    struct sp_job_call call; /* write, then flush */
    struct sp_job_call close;
    size_t len; /* of the chunk in flight; 0: none */
    char chunk[65536];
};

/* stdout and stderr keep the order in which output arrives: while one is full, nothing is taken. */
struct carry_output {
    struct sp_port ports[2];
    struct sp_watch watch;        /* of the full port */
    struct sp_buf pending;        /* for the full port, or from the scribe */
    size_t at;                    /* bytes of `pending` that are written */
    int to;                       /* index of the port */
    bool is_in_line;              /* the last byte of the command was no newline */
    struct sp_screen_modes modes; /* of a terminal, if denials are told */
    bool is_refusing;             /* the job was told to wait: sp_job_go_on is due */
    struct sp_timer quiet;        /* the command has exited, and descendants hold its streams */
    uint64_t exited_ms;
};

struct carry_signals {
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
    struct sp_timer judging; /* a server that judges commands has not answered the start */
    bool judges_there;
    struct sp_terminal terminal;
    struct carry_input input;
    struct carry_output output;
    struct carry_signals signals;
    bool is_live;   /* started and not exited */
    bool is_ending; /* the result is known, and its output may be pending */
    bool has_exited;
    bool is_asking; /* may_start said WAIT */
    bool is_cut;    /* the connection to its server is lost, and being resumed */
    bool is_cut_told;
    uint64_t cut_told_ms; /* 0: never */
    uint32_t denials;     /* of its network, so far */
    bool is_retry;        /* the second attempt; `first` is the result of the first */
    struct sp_carry_result first;
    uint64_t began_ns;
    uint64_t started_ns; /* start of the command; 0: none yet */
    struct sp_carry_result result;
    int failed; /* minus the code of `error`; 0: none */
    struct sp_err error;
};

/* The result is known: pending output is written, then the run stops. */
static void finish_carry(struct sp_carry *c);
/* Stops the run at once. */
static void stop_carry(struct sp_carry *c);

/* ---- signals and the size of our window, passed on to the command ---- */

static void pass_signals(struct sp_carry *c);

/* Their default ends a program: the sender wants an end. */
static bool is_deadly(int signal)
{
    return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
}

static void on_kill_answered(struct sp_job_call *call)
{
    struct sp_carry *c = SP_CONTAINER(call, struct sp_carry, signals.kill);

    c->signals.is_killing = false;
    c->signals.unanswered_ms = 0;
    c->result.was_killed = call->result == SP_JOB_OK || call->result == SP_JOB_GONE;
}

/* Ends the command and all its descendants. */
static void kill_command(struct sp_carry *c)
{
    if (c->signals.is_killing)
        return;
    c->signals.is_killing = true;
    if (c->signals.unanswered_ms == 0)
        c->signals.unanswered_ms = sp_loop_now(c->loop);
    c->signals.kill.fn = on_kill_answered;
    sp_job_terminate(&c->job, &c->signals.kill);
}

static void on_passed(struct sp_job_call *call)
{
    struct sp_carry *c = SP_CONTAINER(call, struct sp_carry, signals.call);
    const int signal = c->signals.passing;
    char text[640];
    char line[720];

    c->signals.passing = 0;
    if (!c->signals.is_killing)
        c->signals.unanswered_ms = 0;
    if (signal == SIGSTOP)
        (void)kill(getpid(), SIGSTOP); /* now that the command is stopped */
    /* A server may know fewer signals than we do. */
    if (call->result == SP_JOB_REFUSED && signal != SIGSTOP && signal != SIGCONT) {
        (void)snprintf(line, sizeof line, "SIG%s was not passed on%s: %s", sigabbrev_np(signal),
                       is_deadly(signal) ? ", the command is killed instead" : "",
                       sp_error_text(&call->error, text, sizeof text));
        sp_plain_say("sallyport", line);
        if (is_deadly(signal))
            kill_command(c);
    }
    pass_signals(c);
}

/* Sends the next waiting signal, if the command is live and no call is in flight. */
static void pass_signals(struct sp_carry *c)
{
    struct carry_signals *s = &c->signals;

    for (int signal = 1; c->is_live && signal < SIGRTMIN && s->passing == 0; signal++)
        if (sigismember(&s->waiting, signal) == 1) {
            sigdelset(&s->waiting, signal);
            s->passing = signal;
            s->call.fn = on_passed;
            sp_job_signal(&c->job, &s->call, signal);
        }
}

static void pass_signal(struct sp_carry *c, int signal)
{
    sigaddset(&c->signals.waiting, signal);
    pass_signals(c);
}

/* Ends the run as if the signal had ended the command. */
static void abandon_command(struct sp_carry *c, int signal)
{
    c->result.end = SP_CARRY_ABANDONED;
    c->result.exit = (struct sp_exit){.code = 128 + signal, .signal = signal};
    finish_carry(c);
}

/* INT, TERM, HUP or QUIT: for the command while it lives, else for us. */
static void take_deadly(struct sp_carry *c, int signal)
{
    const uint64_t since = c->signals.unanswered_ms;

    if (c->is_ending) {
        stop_carry(c);
    } else if (c->has_exited) {
        finish_carry(c);
    } else if (c->facts.backend != NULL || c->is_asking ||
               (c->judges_there && c->started_ns == 0)) {
        abandon_command(c, signal);
    } else if (c->is_cut) {
        sp_plain_say("sallyport", "given up; the command may still be running there, until its "
                                  "session expires");
        abandon_command(c, signal);
    } else if (since != 0 && sp_loop_now(c->loop) - since >= UNANSWERED_MS) {
        sp_plain_say("sallyport",
                     "no answer from where the command runs; it may still be running there");
        abandon_command(c, signal);
    } else {
        if (since == 0)
            c->signals.unanswered_ms = sp_loop_now(c->loop);
        pass_signal(c, signal);
    }
}

static void pass_size(struct sp_carry *c);

static void on_resized(struct sp_job_call *call)
{
    struct sp_carry *c = SP_CONTAINER(call, struct sp_carry, signals.resize);

    c->signals.is_resizing = false;
    if (c->signals.has_new_size)
        pass_size(c);
}

static void pass_size(struct sp_carry *c)
{
    struct carry_signals *s = &c->signals;
    uint16_t rows;
    uint16_t cols;

    s->has_new_size = s->is_resizing;
    if (s->is_resizing || !c->is_live || !c->options->launch->is_tty)
        return;
    sp_terminal_size(&rows, &cols);
    if (rows == 0)
        return;
    s->is_resizing = true;
    s->resize.fn = on_resized;
    sp_job_resize(&c->job, &s->resize, rows, cols);
}

static void on_carry_signal(struct sp_watch *w, uint32_t events)
{
    struct sp_carry *c = SP_CONTAINER(w, struct sp_carry, signals.watch);
    struct signalfd_siginfo info;

    (void)events;
    if (read(c->signals.fd, &info, sizeof info) != (ssize_t)sizeof info)
        return;
    switch (info.ssi_signo) {
    case SIGWINCH:
        pass_size(c);
        break;
    case SIGTSTP:
        sp_terminal_restore(&c->terminal);
        if (c->is_live)
            pass_signal(c, SIGSTOP); /* the kernel drops TSTP for an orphaned process group */
        else
            (void)kill(getpid(), SIGSTOP);
        break;
    case SIGCONT:
        if (c->is_live && c->options->launch->is_tty)
            sp_terminal_make_raw(&c->terminal);
        pass_size(c);
        pass_signal(c, SIGCONT);
        break;
    default:
        if (is_deadly((int)info.ssi_signo))
            take_deadly(c, (int)info.ssi_signo);
        else
            pass_signal(c, (int)info.ssi_signo);
        break;
    }
}

static int begin_signals(struct sp_carry *c, struct sp_err *e)
{
    static const int unless_ignored[] = {SIGTSTP, SIGINT,  SIGTERM, SIGHUP,
                                         SIGQUIT, SIGUSR1, SIGUSR2, 0};
    struct carry_signals *s = &c->signals;
    sigset_t set;

    sigemptyset(&s->waiting);
    sigemptyset(&set);
    sigaddset(&set, SIGWINCH);
    sigaddset(&set, SIGCONT);
    const int r = sp_signals_open(&set, unless_ignored, &s->fd, e);
    return r < 0 ? r : sp_loop_watch(c->loop, &s->watch, s->fd, EPOLLIN, on_carry_signal, e);
}

/* ---- input ---- */

static void pass_chunk(struct sp_carry *c);

static void end_carry_input(struct sp_carry *c)
{
    sp_loop_cancel(c->loop, &c->input.full);
    sp_stdin_close(&c->input.in);
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
    if (call->result == SP_JOB_OK) {
        sp_stdin_want(&c->input.in);
        return;
    }
    /* The command has closed its stdin: close ours as well, so that a writer gets EPIPE. */
    end_carry_input(c);
    auto_close int null = isatty(STDIN_FILENO) ? -1 : open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null >= 0)
        (void)dup2(null, STDIN_FILENO);
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
    struct carry_input *in = &c->input;

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

    sp_stdin_stop(in);
    if (n > 0) {
        c->result.was_taken = true;
        c->input.len = (size_t)n;
        pass_chunk(c);
        return;
    }
    if (c->terminal.is_raw) /* Ctrl-D does not end a raw terminal: it has hung up */
        pass_signal(c, SIGHUP);
    c->input.close.fn = on_input_closed;
    sp_job_close_stdin(&c->job, &c->input.close);
    sp_stdin_close(in);
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
    stop_carry(c);
}

static void on_quiet(struct sp_timer *t)
{
    finish_carry(SP_CONTAINER(t, struct sp_carry, output.quiet));
}

/* Descendants may hold the streams of a command that has exited, for hours: set the timer that ends
 * the run. */
static void await_quiet(struct sp_carry *c)
{
    struct carry_output *out = &c->output;
    const struct sp_carry_options *o = c->options;

    if (!c->has_exited || c->is_ending || c->result.end == SP_CARRY_TIMED_OUT ||
        out->pending.len > 0)
        return;
    const uint64_t now = sp_loop_now(c->loop);
    uint64_t due = out->exited_ms + o->after_ms;
    if (o->quiet_ms != 0 && now + o->quiet_ms < due)
        due = now + o->quiet_ms;
    if (!sp_loop_timer(c->loop, &out->quiet, due, on_quiet))
        finish_carry(c);
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
    struct carry_output *out = &c->output;
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
    struct carry_output *out = &c->output;

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
        stop_carry(c);
        return;
    }
    await_quiet(c);
    if (out->is_refusing) {
        out->is_refusing = false;
        sp_job_go_on(&c->job);
    }
}

/* ---- the connection to the server ---- */

/* A lost connection restores the terminal, so that Ctrl-C sends SIGINT to us. */
static void on_connection(void *user, const char *why)
{
    struct sp_carry *c = user;
    const uint64_t now = sp_loop_now(c->loop);
    char text[640];

    if (c->is_ending || c->is_cut == (why != NULL))
        return;
    c->is_cut = why != NULL;
    if (why == NULL) {
        if (c->is_cut_told)
            sp_plain_say("sallyport", "connected again");
        if (c->is_live && c->options->launch->is_tty)
            sp_terminal_make_raw(&c->terminal);
        return;
    }
    sp_terminal_restore(&c->terminal);
    c->is_cut_told = c->cut_told_ms == 0 || now - c->cut_told_ms >= CUT_PAUSE_MS;
    if (!c->is_cut_told)
        return;
    c->cut_told_ms = now;
    (void)snprintf(text, sizeof text,
                   "the connection to the server is lost (%.500s); trying again, Ctrl-C gives up",
                   why);
    sp_plain_say("sallyport", text);
}

/* ---- the end ---- */

/* Kills what still runs, descendants that hold the streams too. */
static void release_job(struct sp_carry *c)
{
    c->is_live = false;
    sp_loop_cancel(c->loop, &c->timeout);
    sp_loop_cancel(c->loop, &c->judging);
    sp_loop_cancel(c->loop, &c->output.quiet);
    end_carry_input(c);
    sp_job_release(&c->job);
}

/* Idempotent: finish, signals and failures may all lead here. */
static void stop_carry(struct sp_carry *c)
{
    c->is_ending = true;
    sp_backend_forget_facts(&c->facts);
    sp_loop_unwatch(c->loop, &c->output.watch);
    sp_port_close(&c->output.ports[0]);
    sp_port_close(&c->output.ports[1]);
    release_job(c);
    sp_loop_stop(c->loop);
}

static void ask_permission(struct sp_carry *c);

/* Starts over. The output of the first attempt has been written. */
static void begin_retry(struct sp_carry *c)
{
    struct carry_signals *s = &c->signals;

    c->is_retry = true;
    c->first = c->result;
    c->started_ns = 0;
    c->result = (struct sp_carry_result){0};
    c->denials = 0;
    c->has_exited = false;
    release_job(c);
    s->passing = 0; /* calls in flight will not be answered */
    s->is_killing = s->is_resizing = false;
    s->unanswered_ms = 0;
    sp_terminal_restore(&c->terminal);
    ask_permission(c);
}

/* Only a plain exit, or SIGSYS, leads to a retry: a command that was killed is not run again. Our
 * filter never kills: SIGSYS comes from a filter around the server, or one of the command's own. */
static void finish_carry(struct sp_carry *c)
{
    const struct sp_carry_options *o = c->options;
    const struct sp_carry_scribe *s = o->scribe;
    const struct sp_carry_result *r = &c->result;

    if (c->is_ending)
        return;
    if (o->tries_again != NULL && !c->is_retry && r->end == SP_CARRY_EXITED && r->was_denied &&
        !r->was_taken && (r->exit.signal == 0 || r->exit.signal == SIGSYS) &&
        o->tries_again(o->user, r)) {
        begin_retry(c);
        return;
    }
    c->is_ending = true;
    c->result.duration_ns = sp_clock_ns() - c->began_ns;
    release_job(c);
    flush_output(c, s == NULL || s->ended(s->user, r, &c->output.pending));
}

/* ---- events of the job ---- */

static struct sp_carry *carry_of(struct sp_job *j)
{
    return SP_CONTAINER(j, struct sp_carry, job);
}

/* Follows the screen modes of the command, so that messages do not spoil its screen. */
static void note_output(struct sp_carry *c, struct sp_str bytes)
{
    if (!c->options->tells_denials)
        return;
    c->output.is_in_line = bytes.p[bytes.n - 1] != '\n';
    if (c->options->launch->is_tty)
        sp_screen_feed(&c->output.modes, bytes);
}

/* false: not now; sp_job_go_on follows. */
static bool on_output(struct sp_job *j, enum sp_stream stream, struct sp_str bytes)
{
    struct sp_carry *c = carry_of(j);
    struct carry_output *out = &c->output;
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
    note_output(c, bytes);
    out->to = stream == SP_STREAM_STDERR ? 1 : 0;
    const ssize_t n = write_now(c, bytes.p, bytes.n);
    if (n >= 0 && (size_t)n < bytes.n &&
        !sp_buf_add(&out->pending, bytes.p + n, bytes.n - (size_t)n))
        fail_output(c, ENOMEM);
    else
        await_quiet(c);
    return true;
}

static void on_started(struct sp_job *j, enum sp_job_sandbox sandbox)
{
    struct sp_carry *c = carry_of(j);
    const struct sp_carry_scribe *s = c->options->scribe;

    (void)sandbox;
    sp_loop_cancel(c->loop, &c->judging);
    if (c->options->is_detached) {
        c->result.end = SP_CARRY_DETACHED;
        finish_carry(c);
        return;
    }
    c->is_live = true;
    c->started_ns = sp_clock_ns();
    if (c->options->launch->is_tty)
        sp_terminal_make_raw(&c->terminal);
    if (s != NULL)
        flush_output(c, s->started(s->user, &c->output.pending));
    if (c->is_ending)
        return;
    if (c->options->launch->wants_stdin) { /* again for a retry: the first attempt read nothing */
        struct sp_stdin *in = &c->input.in;

        in->chunk = c->input.chunk;
        in->size = sizeof c->input.chunk;
        in->raw = c->options->launch->is_tty ? &c->terminal : NULL;
        in->fn = on_stdin;
        sp_stdin_open(in, c->loop);
        sp_stdin_want(in);
    }
    pass_signals(c);
}

static void end_with(struct sp_carry *c, enum sp_carry_end end, const struct sp_err *e)
{
    if (c->is_ending)
        return;
    c->result.end = end;
    if (e != NULL)
        c->result.error = *e;
    finish_carry(c);
}

static void on_refused(struct sp_job *j, const struct sp_err *e)
{
    end_with(carry_of(j), SP_CARRY_REFUSED, e);
}

static void on_gap(struct sp_job *j, uint64_t bytes)
{
    struct sp_carry *c = carry_of(j);
    const struct sp_carry_scribe *s = c->options->scribe;

    c->result.has_gap = true;
    if (s != NULL)
        flush_output(c, s->gap(s->user, bytes, &c->output.pending));
    else if (bytes > 0)
        (void)fprintf(stderr, "sallyport: %llu bytes of output were lost here\n",
                      (unsigned long long)bytes);
    else
        (void)fprintf(stderr, "sallyport: some output was lost here\n");
}

/* What our own clock tells, unless the executor tells more. */
static void note_end(struct sp_carry *c, enum sp_end_reason reason)
{
    struct sp_kept_receipt *r = &c->result.receipt;

    if (c->started_ns == 0)
        return;
    r->is_known = true;
    sp_receipt_note_end(&r->is, reason, sp_clock_ns() - c->started_ns);
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
    r->killed_by = r->exit.signal != 0 ? how->by : 0;
    r->killed_by_uid = how->by_uid;
    r->limits = how->limits;
    if (how->denial != NULL)
        r->denial = *how->denial;
    free(r->network);
    r->network = how->network.n == 0 ? NULL : sp_str_dup(how->network); /* no memory: without it */
    note_end(c, r->exit.code < 0 ? SP_END_LOST : r->exit.signal != 0 ? SP_END_SIGNAL : SP_END_EXIT);
    end_carry_input(c);
    if (r->end == SP_CARRY_TIMED_OUT)
        return; /* on_killed ends the run */
    sp_loop_cancel(c->loop, &c->timeout);
    c->output.exited_ms = sp_loop_now(c->loop);
    await_quiet(c);
}

static void on_receipt(struct sp_job *j, const struct sp_command_receipt *r)
{
    sp_receipt_keep(&carry_of(j)->result.receipt, r);
}

static void on_closed(struct sp_job *j)
{
    finish_carry(carry_of(j));
}

/* The server or the cell is lost. */
static void on_failed(struct sp_job *j, const char *why)
{
    struct sp_carry *c = carry_of(j);
    struct sp_err e = {0};

    if (c->has_exited) { /* the exit is known; the rest of the output is lost */
        finish_carry(c);
        return;
    }
    (void)sp_fail(&e, SP_E_FAILED, 0, "%s", why);
    note_end(c, SP_END_LOST);
    end_with(c, c->result.end == SP_CARRY_TIMED_OUT ? SP_CARRY_TIMED_OUT : SP_CARRY_LOST, &e);
}

/* host_rule: `HOST is denied by ...`. */
static void print_host(struct sp_str host, unsigned port, struct sp_str host_rule, bool has_remedy)
{
    (void)fprintf(stderr, "sallyport: connect " SP_STR_FMT ":%u: " SP_STR_FMT, SP_STR_ARG(host),
                  port, SP_STR_ARG(host_rule));
    if (has_remedy)
        (void)fprintf(stderr, "; to allow it: --allow-host " SP_STR_FMT, SP_STR_ARG(host));
}

/* A person waits: programs often try again for a minute before they say anything. */
static void on_denied(struct sp_job *j, const struct sp_net_denial *d)
{
    struct sp_carry *c = carry_of(j);
    const char *end = c->terminal.is_raw ? "\r\n" : "\n";
    const uint32_t number = c->denials++;
    char rule[SP_HOSTNAME_MAX + 80];

    if (!c->options->tells_denials || c->options->scribe != NULL || c->is_ending ||
        c->output.pending.len > 0 || !isatty(STDERR_FILENO) ||
        sp_screen_is_alternate(&c->output.modes) || number != c->result.told_denials)
        return; /* printed after the exit, with later denials */
    if (d->host != NULL)
        (void)snprintf(rule, sizeof rule, "%s %s", d->host, d->rule);
    (void)fputs(c->output.is_in_line ? end : "", stderr);
    c->output.is_in_line = false;
    c->result.told_denials++;
    if (d->host == NULL)
        (void)fprintf(stderr, "sallyport: the command tries to connect, and its sandbox has no "
                              "network; to allow it: --allow-host NAME, or --network");
    else
        print_host(sp_str_of(d->host), d->port, sp_str_of(rule),
                   d->reason == SP_NETWORK_REASON_NOT_ALLOWED);
    (void)fputs(end, stderr);
}

static const struct sp_job_ops job_ops = {
    .started = on_started,
    .refused = on_refused,
    .output = on_output,
    .gap = on_gap,
    .exited = on_exited,
    .closed = on_closed,
    .failed = on_failed,
    .denied = on_denied,
    .receipt = on_receipt,
};

/* ---- time ---- */

/* Stops at once: pending output may never be taken. */
static void on_killed(struct sp_timer *t)
{
    struct sp_carry *c = SP_CONTAINER(t, struct sp_carry, timeout);

    finish_carry(c);
    stop_carry(c);
}

/* The kill is confirmed by the exit; after KILLED_MS the run ends without it. */
static void on_timeout(struct sp_timer *t)
{
    struct sp_carry *c = SP_CONTAINER(t, struct sp_carry, timeout);

    c->result.end = SP_CARRY_TIMED_OUT;
    c->result.was_killed = !c->is_live; /* nothing runs yet */
    if (!c->is_live ||
        !sp_loop_timer(c->loop, &c->timeout, sp_loop_now(c->loop) + KILLED_MS, on_killed))
        finish_carry(c); /* releases the job, which kills it */
    else
        kill_command(c);
}

static void on_rejected(struct sp_timer *t)
{
    end_with(SP_CONTAINER(t, struct sp_carry, timeout), SP_CARRY_REJECTED, NULL);
}

void sp_carry_reject(struct sp_carry *c)
{
    if (!c->has_exited && !sp_loop_timer(c->loop, &c->timeout, sp_loop_now(c->loop), on_rejected))
        kill_command(c);
}

/* ---- starting ---- */

static bool set_timeout(struct sp_carry *c)
{
    const uint64_t ms = c->options->timeout_ms;

    return ms == 0 || sp_loop_timer(c->loop, &c->timeout, sp_clock_ms() + ms, on_timeout);
}

/* The timeout of the command does not run while a person thinks. */
static void ask_permission(struct sp_carry *c)
{
    const struct sp_carry_options *o = c->options;
    struct sp_start *l = o->launch;
    struct sp_err e = {0};
    const bool was_asking = c->is_asking || c->is_retry;

    c->is_asking = false;
    switch (o->may_start == NULL ? SP_CARRY_GO : o->may_start(o->user, &e)) {
    case SP_CARRY_GO:
        if (l->is_tty)
            sp_terminal_size(&l->rows, &l->cols);
        if ((was_asking && !set_timeout(c)) ||
            sp_job_start(o->backend, &c->job, &job_ops, l, &e) < 0)
            end_with(c, SP_CARRY_REFUSED, &e);
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
        c->first.network = NULL;
        c->first.receipt = (struct sp_kept_receipt){0};
        c->has_exited = true;
        finish_carry(c);
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

static void on_judging(struct sp_timer *t)
{
    (void)t;
    sp_plain_say("sallyport", "the server asks whether this may run; waiting for the answer "
                              "(`sallyport approvals` there)");
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
    c->judges_there = facts != NULL && facts->judges;
    if (c->judges_there && !c->is_ending)
        (void)sp_loop_timer(c->loop, &c->judging, sp_loop_now(c->loop) + JUDGING_MS, on_judging);
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
    o->backend->connection = on_connection;
    o->backend->user = c;
    c->facts.fn = on_facts;
    if (o->prepare != NULL)
        sp_backend_ask_facts(o->backend, &c->facts);
    else
        ask_permission(c);
    const int r = sp_loop_run(c->loop, e);
    sp_terminal_restore(&c->terminal);
    if (r < 0)
        return r;
    if (c->failed < 0 && e != NULL) {
        *e = c->error;
    } else {
        *ret = c->result;
        c->result.network = NULL; /* the caller frees both */
        c->result.receipt = (struct sp_kept_receipt){0};
    }
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
        r = begin_signals(c, e);
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
    if (c->loop != NULL)
        sp_loop_unwatch(c->loop, &c->signals.watch);
    if (c->signals.fd >= 0)
        (void)close(c->signals.fd);
    sp_buf_done(&c->output.pending);
    free(c->result.network);
    free(c->first.network);
    sp_receipt_drop(&c->result.receipt);
    sp_receipt_drop(&c->first.receipt);
    sp_loop_free(c->loop);
    free(c);
}

struct sp_loop *sp_carry_loop(struct sp_carry *c)
{
    return c->loop;
}

int sp_carry_not_run(const struct sp_err *refusal, int *ret_err)
{
    static const char mark[] = "(os error "; /* servers give the errno at the end of the text */
    const char *at = NULL;
    char *end = NULL;

    for (const char *next = refusal->msg; (next = strstr(next, mark)) != NULL; next++)
        at = next + sizeof mark - 1;
    const long err = at == NULL ? 0 : strtol(at, &end, 10);
    *ret_err = at != NULL && *end == ')' && err > 0 && err < 4096 ? (int)err : 0;
    switch (*ret_err) {
    case 0:
    case EAGAIN: /* resources ran out: not the program's fault */
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case ENOSPC: /* of terminals */
        return 0;
    case ENOENT:
    case ENOTDIR:
        return 127;
    default:
        return 126;
    }
}

/* ---- what the sandbox denied ---- */

static void print_calls(const struct sp_exit *how)
{
    for (uint32_t i = 0; i < how->refusal_count && i < SP_EXIT_REFUSALS; i++) {
        const char *name = sp_syscall_name(how->refusals[i].call);
        const uint32_t n = how->refusals[i].count;

        if (name != NULL)
            (void)fprintf(stderr, "%s%s", i == 0 ? "" : ", ", name);
        else
            (void)fprintf(stderr, "%scall %u", i == 0 ? "" : ", ", how->refusals[i].call);
        if (n > 1)
            (void)fprintf(stderr, " (%u times)", n);
    }
}

/* A path from the output of a command must not control the terminal. */
static void print_path(const char *path, size_t n)
{
    for (size_t i = 0; i < n; i++)
        (void)fputc((unsigned char)path[i] < 0x20 || path[i] == 0x7F ? '?' : path[i], stderr);
}

/* Length of the path up to the first protected name in it; 0: there is none. */
static size_t find_protected(const char *path, const char **ret_name)
{
    for (const char *at = path; path[0] == '/' && (at = strchr(at, '/')) != NULL; at++)
        for (unsigned k = 0; k < SP_PROTECTED_COUNT; k++) {
            const size_t n = strlen(sp_protected_names[k]);

            if (strncmp(at + 1, sp_protected_names[k], n) == 0 &&
                (at[1 + n] == 0 || at[1 + n] == '/')) {
                *ret_name = sp_protected_names[k];
                return (size_t)(at - path) + 1 + n;
            }
        }
    return 0;
}

/*
 * The innermost git directory of a worktree or submodule in the path: its length; n, the length up
 * to the .git of the repository: there is none. Such a directory has an entry of its own in the
 * sandbox. *ret_outer: the length of the git directory that a worktree shares objects with, or 0.
 */
static size_t find_git_dir(const char *path, size_t n, size_t *ret_outer)
{
    size_t found = n;

    *ret_outer = 0;
    for (const char *at = strchr(path + n, '/'); at != NULL; at = strchr(at + 1, '/')) {
        const struct sp_str below = {path + found, (size_t)(at - path) - found};
        const bool is_tree = below.n > 11 && memcmp(below.p, "/worktrees/", 11) == 0;
        auto_free char *head = NULL;

        if (!is_tree && !(below.n > 9 && memcmp(below.p, "/modules/", 9) == 0))
            continue;
        if (asprintf(&head, "%.*s/HEAD", (int)(at - path), path) < 0) {
            head = NULL;
            break;
        }
        if (access(head, F_OK) != 0)
            continue; /* a part of a name with slashes */
        *ret_outer = is_tree ? found : 0;
        found = (size_t)(at - path);
    }
    return found;
}

/* What most often is in the way, and what allows it. false: it is something else. */
static bool print_protected(const struct sp_denial_facts *d)
{
    const char *name = NULL;
    const size_t n = find_protected(d->path, &name);
    auto_free char *place = strndup(d->path, n);

    if (n == 0 || place == NULL)
        return false;
    (void)fprintf(stderr, "sallyport: %s is protected in this sandbox: ", name);
    print_path(d->path, strlen(d->path));
    if (strcmp(name, ".sallyport") == 0) { /* nothing opens rules and tokens to commands */
        (void)fputc('\n', stderr);
        return true;
    }
    (void)fputs(access(place, F_OK) == 0 ? "; to allow it: --writable "
                                         : "; to allow it, make the "
                                           "directory and give "
                                           "--writable ",
                stderr);
    size_t outer = 0;
    const size_t inner = strcmp(name, ".git") == 0 ? find_git_dir(d->path, n, &outer) : n;
    if (outer != 0) {
        print_path(d->path, outer);
        (void)fputs(" --writable ", stderr);
    }
    print_path(d->path, inner);
    (void)fputc('\n', stderr);
    return true;
}

/* The class of the message in words: "read only file system". */
static void print_guess(const struct sp_denial_facts *d)
{
    for (const char *c = d->reason != NULL ? d->reason : "its exit code"; *c != 0; c++)
        (void)fputc(*c == '_' ? ' ' : *c, stderr);
    (void)fputs(d->path[0] != 0 ? ", " : "", stderr);
    print_path(d->path, strlen(d->path));
    (void)fputc('\n', stderr);
}

void sp_carry_print_denied(const struct sp_carry_result *r, bool is_long)
{
    const struct sp_exit *how = &r->exit;
    const bool has_calls = how->refusal_count > 0;
    const bool has_left = how->left_network > 0;

    if (!r->was_denied)
        return;
    const bool is_told = r->denial.has_words && print_protected(&r->denial);
    if (is_long) {
        (void)fprintf(stderr, "sallyport: the sandbox denied the command something:\n");
        if (has_calls) {
            (void)fprintf(stderr, "  refused system calls (reported by the kernel): ");
            print_calls(how);
            (void)fputc('\n', stderr);
        }
        if (has_left)
            (void)fprintf(stderr, "  attempts to leave its network (counted by the kernel): %u\n",
                          how->left_network);
        if (how->signal == SIGSYS)
            (void)fprintf(stderr, "  killed by SIGSYS (reported by the kernel)\n");
        if (r->denial.has_words) {
            (void)fprintf(stderr, "  guessed from its output: ");
            print_guess(&r->denial);
        }
    } else if (r->denial.has_evidence) {
        if (r->told_denials > 0 && !has_calls && how->signal != SIGSYS)
            return;
        (void)fprintf(stderr, "sallyport: the sandbox denied (reported by the kernel): ");
        print_calls(how);
        if (has_left)
            (void)fprintf(stderr, "%sa connection out of its network", has_calls ? "; " : "");
        if (how->signal == SIGSYS)
            (void)fprintf(stderr, "%sa system call that killed it",
                          has_left || has_calls ? "; " : "");
        (void)fputc('\n', stderr);
    } else if (is_told) {
        return;
    } else if (r->denial.has_words) {
        (void)fprintf(stderr, "sallyport: the sandbox may have denied this (guessed from its "
                              "output): ");
        print_guess(&r->denial);
    } else if (r->told_denials == 0) { /* the verdict of a server, which gives no reasons */
        (void)fprintf(stderr, "sallyport: the sandbox denied the command something\n");
    }
}

void sp_carry_print_denied_hosts(const struct sp_carry_result *r)
{
    struct sp_json j __attribute__((cleanup(sp_json_done))) = {0};
    uint32_t denied = SP_JSON_NONE;
    int64_t told = r->told_denials;

    if (r->network == NULL || (r->end == SP_CARRY_EXITED && r->exit.code == 0) ||
        sp_json_parse(&j, r->network, strlen(r->network), NULL) < 0 ||
        sp_json_opt_array(&j, 0, "denied", &denied, NULL) < 0 || denied == SP_JSON_NONE)
        return;
    sp_json_each(&j, denied, t) {
        if (told-- > 0)
            continue;
        struct sp_str host = {0};
        struct sp_str rule = {0};
        uint64_t port = 0;

        if (sp_json_need_str(&j, t, "host", &host, NULL) == 0 &&
            sp_json_need_u64(&j, t, "port", UINT16_MAX, &port, NULL) == 0 &&
            sp_json_need_str(&j, t, "rule", &rule, NULL) == 0) {
            print_host(host, (unsigned)port, rule,
                       sp_json_get(&j, t, "proposed_amendment") != SP_JSON_NONE);
            (void)fputc('\n', stderr);
        }
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/carry.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/auto.h"
#include "cli/carry_priv.h"

#define KILLED_MS 2000 /* for the last words of a command that was killed for the time */

static uint64_t clock_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void sp_carry_stop(struct sp_carry *c)
{
    c->is_ending = true;
    c->is_live = false;
    sp_backend_forget_facts(&c->facts);
    sp_loop_cancel(c->loop, &c->timeout);
    sp_carry_end_input(c);
    sp_carry_end_output(c);
    sp_job_release(&c->job); /* whatever still runs is killed */
    sp_loop_stop(c->loop);
}

static bool is_tried_again(const struct sp_carry *c)
{
    const struct sp_carry_options *o = c->options;

    return o->tries_again != NULL && !c->is_again && c->result.end == SP_CARRY_EXITED &&
           c->result.was_denied && !c->result.was_taken &&
           (c->result.exit.signal == 0 || c->result.exit.signal == SIGSYS) &&
           o->tries_again(o->user, &c->result);
}

static void ask_leave(struct sp_carry *c);

/* As if nothing had happened, but for what it has printed. */
static void begin_again(struct sp_carry *c)
{
    c->is_again = true;
    c->first = c->result;
    c->result = (struct sp_carry_result){0};
    c->has_exited = c->is_live = false;
    sp_loop_cancel(c->loop, &c->timeout);
    sp_loop_cancel(c->loop, &c->output.quiet);
    sp_carry_end_input(c);
    sp_job_release(&c->job);
    sp_carry_forget_signals(c);
    sp_terminal_restore(&c->terminal);
    ask_leave(c);
}

void sp_carry_finish(struct sp_carry *c)
{
    const struct sp_carry_scribe *s = c->options->scribe;

    if (c->is_ending)
        return;
    if (is_tried_again(c)) {
        begin_again(c);
        return;
    }
    c->is_ending = true;
    c->is_live = false;
    c->result.duration_ns = clock_ns() - c->began_ns;
    sp_loop_cancel(c->loop, &c->timeout);
    sp_loop_cancel(c->loop, &c->output.quiet);
    sp_carry_end_input(c);
    sp_job_release(&c->job);
    sp_carry_flush(c, s == NULL || s->ended(s->user, &c->result, &c->output.pending));
}

/* ---- what we hear of the command ---- */

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
        sp_carry_flush(c, s->started(s->user, &c->output.pending));
    if (c->is_ending)
        return;
    if (c->options->launch->wants_stdin)
        sp_carry_begin_input(c);
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
    return sp_carry_take(carry_of(j), stream, bytes);
}

static void on_gap(struct sp_job *j, uint64_t bytes)
{
    struct sp_carry *c = carry_of(j);
    const struct sp_carry_scribe *s = c->options->scribe;

    if (s != NULL)
        sp_carry_flush(c, s->gap(s->user, bytes, &c->output.pending));
    else if (bytes > 0)
        (void)fprintf(stderr, "sallyport: %llu bytes of output were lost here\n",
                      (unsigned long long)bytes);
    else
        (void)fprintf(stderr, "sallyport: some output was lost here\n");
}

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
    sp_carry_end_input(c);
    if (r->end == SP_CARRY_TIMED_OUT)
        return; /* its own timer runs */
    sp_loop_cancel(c->loop, &c->timeout);
    c->output.exited_ms = sp_loop_now(c->loop);
    sp_carry_await_quiet(c);
}

static void on_closed(struct sp_job *j)
{
    sp_carry_finish(carry_of(j));
}

static void on_failed(struct sp_job *j, const char *why)
{
    struct sp_carry *c = carry_of(j);
    struct sp_err e = {0};

    if (c->has_exited) { /* how it ended is known, and nothing more will be */
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

/* Nor is a reader waited for who takes nothing. */
static void on_killed(struct sp_timer *t)
{
    struct sp_carry *c = SP_CONTAINER(t, struct sp_carry, timeout);

    sp_carry_finish(c);
    sp_carry_stop(c);
}

static void on_timeout(struct sp_timer *t)
{
    struct sp_carry *c = SP_CONTAINER(t, struct sp_carry, timeout);

    c->result.end = SP_CARRY_TIMED_OUT;
    c->result.was_killed = !c->is_live; /* there is none */
    if (!c->is_live ||
        !sp_loop_timer(c->loop, &c->timeout, sp_loop_now(c->loop) + KILLED_MS, on_killed))
        sp_carry_finish(c); /* whatever there is is killed by that */
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

    return ms == 0 || sp_loop_timer(c->loop, &c->timeout, clock_ns() / 1000000 + ms, on_timeout);
}

/* The first attempt has had its end: that is what there is to tell. */
static void end_with_first(struct sp_carry *c)
{
    c->result = c->first;
    c->has_exited = true;
    sp_carry_finish(c);
}

static void ask_leave(struct sp_carry *c)
{
    const struct sp_carry_options *o = c->options;
    struct sp_err e = {0};
    const bool was_asking = c->is_asking || c->is_again;

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
        if (c->is_again)
            end_with_first(c);
        else
            end_with(c, SP_CARRY_REJECTED, &e);
        return;
    case SP_CARRY_FAIL:
        end_with(c, SP_CARRY_REFUSED, &e);
        return;
    }
}

void sp_carry_wake(struct sp_carry *c)
{
    if (c->is_asking && !c->is_ending)
        ask_leave(c);
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
        ask_leave(c);
}

int sp_carry_run(struct sp_carry *c, const struct sp_carry_options *o, struct sp_carry_result *ret,
                 struct sp_err *e)
{
    c->options = o;
    c->began_ns = clock_ns();
    c->has_run = true;
    sp_carry_begin_output(c);
    if (!set_timeout(c))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "watch the time");
    c->facts.fn = on_facts;
    if (o->prepare != NULL)
        sp_backend_ask_facts(o->backend, &c->facts);
    else
        ask_leave(c);
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
    c->input.port.fd = c->output.ports[0].fd = c->output.ports[1].fd = -1;
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

/* ---- words, and programs that are not there ---- */

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

static bool is_shortage(int err)
{
    return err == EAGAIN || err == ENOMEM || err == EMFILE || err == ENFILE;
}

/* Executors, ours too, tell it as the end of a text: "... (os error 2)". */
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
    if (err == 0 || is_shortage(err))
        return 0;
    return err == ENOENT || err == ENOTDIR ? 127 : 126;
}

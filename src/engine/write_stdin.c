/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write_stdin: types characters into a process, or polls its output.
 *
 * The calls of one process are served in order of arrival, one at a time, because they share its
 * output and its end.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "engine/manager_priv.h"

#define INTERRUPT "\003"

struct sp_write {
    struct sp_call call;
    struct sp_job_call job_call;
    int session_id;
    uint64_t yield_ms;
    struct sp_err misuse; /* invalid arguments; code NONE: they are valid */
    bool was_typed;       /* the job has answered; go_on_after_typing is due */
};

static void say_unknown(struct sp_call *c)
{
    const int id = SP_CONTAINER(c, struct sp_write, call)->session_id;
    struct sp_manager_view v;
    const bool is_remembered = sp_manager_view(c->m, id, &v) && v.is_answered;

    sp_call_fault(c, SP_FAULT_UNKNOWN, "Unknown process id %d%s", id,
                  is_remembered ? "; read_output still has its output" : "");
}

static void start_waiting(struct sp_call *c)
{
    sp_call_collect(c, sp_clock_ns(), SP_CONTAINER(c, struct sp_write, call)->yield_ms);
    sp_until_begin(c);
}

static void on_typed(struct sp_job_call *jc)
{
    struct sp_write *w = SP_CONTAINER(jc, struct sp_write, job_call);

    w->was_typed = true;
    w->call.is_awaited = false;
    w->call.process->job_calls--;
    sp_process_changed(w->call.process);
    if (w->call.is_answered)
        sp_call_drop_job_call(&w->call);
}

static bool has_stdin(const struct sp_process *p)
{
    return p->is_tty || p->has_stdin;
}

/* It is the call's turn: types its characters, or begins to wait. ^C to a process without stdin is
 * sent as SIGINT. */
static void start_write(struct sp_call *c)
{
    struct sp_process *p = c->process;
    struct sp_write *w = SP_CONTAINER(c, struct sp_write, call);

    if (!p->is_stored) { /* removed while this call waited; the id may belong to another process now
                          */
        say_unknown(c);
        return;
    }
    p->last_used_ns = sp_clock_ns();
    if (c->chars.n == 0) {
        start_waiting(c);
        return;
    }
    if (!has_stdin(p) && !sp_str_eq(c->chars, SP_STR(INTERRUPT))) {
        sp_call_fault(c, SP_FAULT_STDIN_CLOSED,
                      "stdin is closed for this session; rerun exec_command with tty=true to keep "
                      "stdin open");
        return;
    }
    if (!sp_process_can_ask(p)) { /* it has ended */
        start_waiting(c);
        return;
    }
    /* The process may not read its stdin, or the connection may be down: wait SP_TYPING_MS at most.
     */
    sp_call_collect(c, sp_clock_ns(), SP_TYPING_MS);
    c->is_awaited = true;
    c->has_typed = true;
    c->process->was_typed_into = true;
    p->job_calls++;
    w->job_call.fn = on_typed;
    if (has_stdin(p))
        sp_job_write(&p->job, &w->job_call, c->chars);
    else
        sp_job_signal(&p->job, &w->job_call, SIGINT);
}

/* The job has answered the write or the signal. */
static void go_on_after_typing(struct sp_call *c)
{
    struct sp_process *p = c->process;
    struct sp_write *w = SP_CONTAINER(c, struct sp_write, call);
    const enum sp_job_result result = w->job_call.result;

    w->was_typed = false;
    c->has_typed = result == SP_JOB_OK || result == SP_JOB_LOST; /* LOST: they may have arrived */
    if (result == SP_JOB_LOST) {
        sp_process_blame(p, SP_END_LOST);
        sp_process_fail(p, w->job_call.error.msg[0] != 0 ? w->job_call.error.msg
                                                         : "the connection was lost");
        if (sp_process_has_failed(p)) {
            sp_call_fail_process(c);
            return;
        }
    }
    /* A remote executor that does not know the process, or its stdin, means that it has ended. */
    if (result == SP_JOB_GONE || (result == SP_JOB_NO_STDIN && p->is_remote))
        sp_process_count_as_exited(p);
    if (result == SP_JOB_OK || sp_process_has_exited(p))
        start_waiting(c);
    else if (result == SP_JOB_REFUSED && !has_stdin(p) && w->job_call.error.msg[0] != 0)
        /* For a ^C without a terminal it was the signal that failed, not stdin. */
        sp_call_fault(c, SP_FAULT_WRITE, "failed to write to stdin: %s", w->job_call.error.msg);
    else
        sp_call_fault(c, SP_FAULT_WRITE, "failed to write to stdin");
}

/* The wait is over: answers with the output since the last answer. */
static void finish_write(struct sp_call *c)
{
    struct sp_process *p = c->process;
    const bool has_exited = sp_process_has_exited(p);

    if (sp_process_has_failed(p)) {
        sp_call_fail_process(c);
        return;
    }
    if (!has_exited && !p->is_stored) {
        say_unknown(c);
        return;
    }
    if ((c->chars.n != 0 || !has_exited) && !p->has_ended) {
        struct sp_exec_event e = sp_process_event(p, SP_EVENT_INTERACTION);

        e.source = SP_SOURCE_UNIFIED_EXEC_INTERACTION;
        e.input = c->chars;
        sp_manager_event(p->m, &e);
    }
    sp_call_answer(c, has_exited ? SP_ANSWER_EXITED : SP_ANSWER_RUNNING);
}

/* Whether the call made progress. A call with characters still in flight keeps its place, so that
 * later input stays behind them. */
static bool advance(struct sp_call *c)
{
    if (c->is_cancelled)
        sp_call_abort(c);
    else if (c->is_awaited && sp_process_has_failed(c->process))
        sp_call_fail_process(c);
    else if (SP_CONTAINER(c, struct sp_write, call)->was_typed)
        go_on_after_typing(c);
    else if (c->is_collecting && sp_call_is_done(c))
        finish_write(c);
    else
        return false;
    return true;
}

/* The next waiting call that need not wait for its turn: a cancelled one, or else a poll that is to
 * answer now, since it types nothing. */
static struct sp_call *take_early(struct sp_process *p)
{
    const bool can_answer = p->interaction != NULL && p->is_stored && !sp_process_has_failed(p);
    struct sp_call *hurried = NULL;

    sp_each_waiting(c, p) {
        if (c->is_cancelled) {
            sp_list_remove(&c->waiting);
            return c;
        }
        if (hurried == NULL && can_answer && c->is_hurried && c->chars.n == 0)
            hurried = c;
    }
    if (hurried != NULL)
        sp_list_remove(&hurried->waiting);
    return hurried;
}

/* Serves the write_stdin calls of a process, one at a time. Runs after every change of the process:
 * the interaction advances as far as it can, then the next call takes its place. */
void sp_process_serve_writes(struct sp_process *p)
{
    struct sp_call *c;

    while ((c = take_early(p)) != NULL) {
        if (c->is_cancelled)
            sp_call_abort(c);
        else
            start_write(c);
        if (!c->is_answered)
            finish_write(c);
    }
    /* The answer of an interaction is a change: the next call begins in the turn that follows, so
     * that an end event which became due comes before it. */
    struct sp_list *first = p->interaction == NULL ? sp_list_take_first(&p->waiting) : NULL;
    if (first != NULL) {
        p->interaction = SP_CONTAINER(first, struct sp_call, waiting);
        start_write(p->interaction);
    }
    while (p->interaction != NULL && advance(p->interaction))
        ;
}

/* Runs once: it answers the call, or queues it behind the others of its process. */
static void enter_queue(struct sp_call *c)
{
    const struct sp_write *w = SP_CONTAINER(c, struct sp_write, call);
    struct sp_process *p = sp_manager_find(c->m, w->session_id);

    if (c->is_cancelled)
        sp_call_abort(c);
    else if (w->misuse.code != SP_E_NONE)
        sp_call_fault(c, SP_FAULT_ARGUMENTS, "%s", w->misuse.msg);
    else if (sp_until_misuse(c) != NULL)
        sp_call_fault(c, SP_FAULT_ARGUMENTS, "%s", sp_until_misuse(c));
    else if (p == NULL)
        say_unknown(c);
    else if (c->m->call_count > SP_CALLS_MAX)
        sp_call_fault(c, SP_FAULT_WRITE, "failed to write to stdin: too many calls are waiting");
    else {
        sp_list_append(&p->waiting, &c->waiting);
        c->process = p;
        sp_process_changed(p);
    }
}

/* The time of a call, or SP_YIELD_FOREVER for no_timeout, which is passed only if the feature is
 * on. SP_E_INVALID: contradicting arguments. */
static int choose_yield(struct sp_yield_request request, bool has_chars, bool no_timeout,
                        uint64_t poll_max_ms, uint64_t *ret_ms, struct sp_err *e)
{
    if (no_timeout && has_chars)
        return sp_fail(e, SP_E_INVALID, 0, "`no_timeout=true` requires empty `chars`.");
    if (no_timeout && request.has_yield_time)
        return sp_fail(e, SP_E_INVALID, 0,
                       "`no_timeout=true` requires `yield_time_ms` to be omitted.");
    *ret_ms = no_timeout
                  ? SP_YIELD_FOREVER
                  : sp_yield_ms(has_chars ? SP_YIELD_WRITE : SP_YIELD_POLL, request, poll_max_ms);
    return 0;
}

int sp_manager_write(struct sp_manager *m, const struct sp_write_request *request, sp_reply_fn *fn,
                     void *user, uint64_t *ret_call, struct sp_err *e)
{
    struct sp_call *call;
    const int r = sp_call_new(m, sizeof(struct sp_write), &call, e);

    if (r < 0)
        return r;
    struct sp_write *w = SP_CONTAINER(call, struct sp_write, call);
    const bool is_copied = sp_arena_str(&call->keep, request->chars, &call->chars) &&
                           sp_until_copy(call, request->until, request->until_count);
    call->step = enter_queue;
    w->session_id = request->session_id;
    call->has_max_tokens = request->has_max_tokens;
    call->max_tokens = request->max_tokens;
    call->omits_text = request->omits_text;
    if (request->is_compat)
        w->yield_ms = sp_yield_ms(SP_YIELD_COMPAT, request->yield, m->poll_max_ms);
    else /* a contradiction is told when the call runs */
        (void)choose_yield(request->yield, request->chars.n != 0,
                           request->no_timeout && m->options.has_no_timeout, m->poll_max_ms,
                           &w->yield_ms, &w->misuse);
    return sp_call_begin(call, is_copied, fn, user, ret_call, e);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process: one process of the manager: its output and events, the write_stdin calls it serves, the
 * reports of its job, and its end.
 *
 * The output goes to three consumers, each with its own copy of every byte in order: the next call
 * (pending), the end event (transcript) and the deltas. When memory is short the job keeps the
 * bytes and offers them again.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "base/auto.h"
#include "base/utf8.h"
#include "engine/manager_priv.h"

/* ---- events ---- */

static void end_output(struct sp_process *p);

/* Sends the bytes held back for deltas. */
static void flush_held(struct sp_process *p)
{
    const struct sp_str held = {p->held.data, p->held.len};

    p->held.len = 0;
    if (held.n != 0)
        sp_delta_push(&p->delta, held);
}

/* The members that all events of a process share. */
static struct sp_exec_event new_event(const struct sp_process *p, enum sp_event_type type)
{
    return (struct sp_exec_event){
        .type = type,
        .call_id = p->call_id,
        .process_id = p->id,
        .turn_id = p->turn_id,
        .argv = p->argv,
        .argc = p->argc,
        .cwd = p->cwd,
        .source = SP_SOURCE_UNIFIED_EXEC_STARTUP,
        .exit_code = -1,
    };
}

void sp_process_begin(struct sp_process *p)
{
    struct sp_exec_event e = new_event(p, SP_EVENT_BEGIN);

    p->has_begun = true;
    e.at_ms = p->started_at_ms;
    sp_manager_event(p->m, &e);
    flush_held(p);
    sp_buf_done(&p->held);
    if (p->is_at_end)
        end_output(p);
}

static void tell_delta(void *process, struct sp_str frame)
{
    const struct sp_process *p = process;
    struct sp_exec_event e = new_event(p, SP_EVENT_DELTA);

    e.stream = SP_STREAM_STDOUT;
    e.chunk = frame;
    sp_manager_event(p->m, &e);
}

void sp_process_tell_warning(struct sp_process *p, const char *message)
{
    struct sp_exec_event e = new_event(p, SP_EVENT_WARNING);

    e.message = sp_str_of(message);
    sp_manager_event(p->m, &e);
}

/* ---- the end ---- */

static void tell_end(struct sp_process *p)
{
    const bool has_failed = sp_process_has_failed(p);
    auto_buf struct sp_buf out = {0};
    auto_buf struct sp_buf aggregated = {0};
    auto_buf struct sp_buf formatted = {0};
    const struct sp_omission gone = {
        .bytes = p->transcript.omitted,
        .token_count = sp_allowance_tokens_of(sp_headtail_total(&p->transcript)),
    };
    struct sp_exec_event e = new_event(p, SP_EVENT_END);

    e.at_ms = (int64_t)sp_clock_unix_ms();
    e.duration_ns = (p->exited_ns != 0 ? p->exited_ns : sp_clock_ns()) - p->start_ns;
    e.exit_code = has_failed ? -1 : p->exit.code;
    e.status = !has_failed && p->exit.code == 0 ? SP_STATUS_COMPLETED : SP_STATUS_FAILED;
    e.err = has_failed ? sp_str_of(p->failure.msg) : SP_STR("");
    /* aggregated: with the failure's text behind the output; formatted: truncated for a model. */
    bool ok =
        sp_answer_decode(&out, &p->transcript) && sp_buf_add_str(&aggregated, sp_buf_str(&out));
    if (ok && has_failed)
        ok = (out.len == 0 || sp_buf_add(&aggregated, "\n", 1)) &&
             sp_utf8_add_lossy(&aggregated, sp_str_of(p->failure.msg));
    if (ok && sp_truncate_format(&formatted, sp_buf_str(&aggregated), p->m->allowance, gone)) {
        e.out = sp_buf_str(&out);
        e.aggregated = sp_buf_str(&aggregated);
        e.formatted = sp_buf_str(&formatted);
    } else { /* the end event is sent in any case */
        e.out = e.aggregated = e.formatted = SP_STR("... output lost: no memory ...");
    }
    sp_manager_event(p->m, &e);
}

/* Not before the last delta, not while a verdict may still come, and not before the interaction in
 * progress is answered, which may have caused the exit. */
static void publish_end(struct sp_process *p)
{
    if (!p->has_begun || p->has_ended || !p->is_drained || p->interaction != NULL ||
        !sp_process_is_judged(p))
        return;
    p->has_ended = true;
    if (p->m->ops.event != NULL)
        tell_end(p);
    if (!p->m->options.remembers_ended)
        sp_headtail_done(&p->transcript);
}

#define LOST "\n... output lost ...\n"

/* ---- retries without memory ---- */

static void on_memory_again(struct sp_timer *t)
{
    sp_job_go_on(&SP_CONTAINER(t, struct sp_process, memory_timer)->job);
}

static void on_next_turn(struct sp_deferred *d)
{
    sp_job_go_on(&SP_CONTAINER(d, struct sp_process, memory_again)->job);
}

/* Has the job offer its output again later: after SP_NO_MEMORY_MS, or in the next turn if there is
 * no memory for a timer either. Returns false, as on_output does. */
static bool hold_up(struct sp_process *p)
{
    if (!sp_loop_timer(p->m->loop, &p->memory_timer, sp_loop_now(p->m->loop) + SP_NO_MEMORY_MS,
                       on_memory_again))
        sp_loop_again(p->m->loop, &p->memory_again, on_next_turn);
    return false;
}

/* ---- deltas ---- */

static void on_coalesced(struct sp_timer *t)
{
    flush_held(SP_CONTAINER(t, struct sp_process, quiet_timer));
}

/* The first bytes after a silence are sent at once, what follows within SP_COALESCE_MS as one. */
static void push_delta(struct sp_process *p, struct sp_str bytes)
{
    if (p->quiet_timer.slot != 0 && p->held.len + bytes.n < SP_DELTA_FRAME_MAX &&
        sp_buf_add_str(&p->held, bytes))
        return;
    flush_held(p);
    sp_delta_push(&p->delta, bytes);
    (void)sp_loop_timer(p->m->loop, &p->quiet_timer, sp_loop_now(p->m->loop) + SP_COALESCE_MS,
                        on_coalesced); /* no timer: nothing is held back */
}

static void end_output(struct sp_process *p)
{
    p->is_at_end = true;
    if (p->is_drained || (!p->has_begun && !p->is_hidden))
        return;
    sp_loop_cancel(p->m->loop, &p->quiet_timer);
    flush_held(p);
    if (!p->is_hidden)
        sp_delta_finish(&p->delta);
    p->is_drained = true;
}

/* ---- bytes ---- */

/* false: out of memory; the job offers the same bytes again. The transcript may have them then,
 * which p->ahead counts. */
static bool add_output(struct sp_process *p, struct sp_str bytes)
{
    const bool has_watchers =
        p->m->ops.event != NULL && !p->is_hidden && !p->is_at_end && p->quota != 0;
    const bool is_early = !p->has_begun && has_watchers;
    const size_t had = p->ahead < bytes.n ? p->ahead : bytes.n;

    if (is_early && sp_buf_room(&p->held, bytes.n) == NULL)
        return false;
    if (!p->is_at_end || p->m->options.remembers_ended) {
        if (!sp_headtail_push(&p->transcript, (struct sp_str){bytes.p + had, bytes.n - had}))
            return false;
        if (p->ahead < bytes.n)
            p->ahead = bytes.n;
    }
    if (!sp_headtail_push(&p->pending, bytes))
        return false;
    p->ahead -= p->ahead < bytes.n ? p->ahead : bytes.n;
    p->received += bytes.n;
    if (is_early)
        (void)sp_buf_add_str(&p->held, bytes); /* room was made above */
    else if (has_watchers)
        push_delta(p, bytes);
    sp_until_hear(p, bytes);
    return true;
}

/* ---- reasons and timers of the end ---- */

void sp_process_blame(struct sp_process *p, enum sp_end_reason reason)
{
    if (p->ended_by == SP_END_NONE && !sp_process_has_exited(p))
        p->ended_by = reason;
}

enum sp_end_reason sp_process_end_reason(const struct sp_process *p)
{
    if (!sp_process_has_exited(p))
        return SP_END_NONE;
    if (p->ended_by != SP_END_NONE)
        return p->ended_by;
    if (!p->is_code_known)
        return SP_END_LOST;
    return p->exit.signal != 0 ? SP_END_SIGNAL : SP_END_EXIT;
}

static bool is_in_use(const struct sp_process *p)
{
    return p->initial != NULL || p->interaction != NULL || !sp_list_is_empty(&p->waiting) ||
           p->orders != 0;
}

void sp_process_use(struct sp_process *p)
{
    p->idle_from_ms = sp_manager_clock_ms();
}

static void set_end_timers(struct sp_process *p);

/* Kills the process for its timeout or its idleness. */
static void end_for(struct sp_process *p, enum sp_end_reason reason)
{
    if (sp_process_has_exited(p) || p->is_killing)
        return;
    sp_process_blame(p, reason);
    sp_process_kill(p);
}

static void on_timeout(struct sp_timer *t)
{
    end_for(SP_CONTAINER(t, struct sp_process, timeout_timer), SP_END_TIMEOUT);
}

static void on_idle(struct sp_timer *t)
{
    struct sp_process *p = SP_CONTAINER(t, struct sp_process, idle_timer);

    if (is_in_use(p))
        sp_process_use(p);
    if (sp_loop_now(p->m->loop) >= sp_later_ms(p->idle_from_ms, p->m->options.idle_ttl_ms))
        end_for(p, SP_END_IDLE);
    else
        set_end_timers(p);
}

/* Out of memory: the next change of the process sets the timer. */
static void set_end_timer(struct sp_process *p, struct sp_timer *t, uint64_t due_ms,
                          void (*fn)(struct sp_timer *))
{
    if (due_ms < p->kill_again_ms)
        due_ms = p->kill_again_ms;
    if (t->slot == 0 && due_ms != UINT64_MAX)
        (void)sp_loop_timer(p->m->loop, t, due_ms, fn);
}

static void set_end_timers(struct sp_process *p)
{
    if (p->life != SP_PROCESS_RUNNING || p->is_killing) {
        sp_loop_cancel(p->m->loop, &p->timeout_timer);
        sp_loop_cancel(p->m->loop, &p->idle_timer);
        return;
    }
    if (p->timeout_ms != 0)
        set_end_timer(p, &p->timeout_timer, sp_later_ms(p->start_ms, p->timeout_ms), on_timeout);
    if (p->is_stored && p->m->options.idle_ttl_ms != 0)
        set_end_timer(p, &p->idle_timer, sp_later_ms(p->idle_from_ms, p->m->options.idle_ttl_ms),
                      on_idle);
}

/*
 * ---- write_stdin ----
 *
 * A call types characters into the process, or polls its output. The calls of one process are
 * served in order of arrival, one at a time, because they share its output and its end.
 */

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

static void say_failed(struct sp_call *c)
{
    struct sp_process *p = c->process;

    sp_manager_remove(p);
    sp_call_fault(c, SP_FAULT_FAILED, "Unified exec process failed: %s", p->failure.msg);
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
    w->call.process->asked--;
    sp_process_changed(w->call.process);
    if (w->call.is_answered)
        sp_call_let_go(&w->call);
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
    p->asked++;
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
            say_failed(c);
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
        say_failed(c);
        return;
    }
    if (!has_exited && !p->is_stored) {
        say_unknown(c);
        return;
    }
    if ((c->chars.n != 0 || !has_exited) && !p->has_ended) {
        struct sp_exec_event e = new_event(p, SP_EVENT_INTERACTION);

        e.source = SP_SOURCE_UNIFIED_EXEC_INTERACTION;
        e.input = c->chars;
        sp_manager_event(p->m, &e);
    }
    if (!sp_call_answer(c, has_exited ? SP_ANSWER_EXITED : SP_ANSWER_RUNNING))
        sp_call_fault(c, SP_FAULT_FAILED,
                      "Unified exec process failed: no memory for the answer; poll again");
}

/* Whether the call made progress. A call with characters still in flight keeps its place, so that
 * later input stays behind them. */
static bool advance(struct sp_call *c)
{
    if (c->is_cancelled)
        sp_call_abort(c);
    else if (c->is_awaited && sp_process_has_failed(c->process))
        say_failed(c);
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
    const bool can_answer = p->interaction != NULL && p->is_stored && !sp_process_has_failed(p) &&
                            (!sp_process_has_exited(p) || sp_process_is_judged(p));
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
static void serve_writes(struct sp_process *p)
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
    for (;;) {
        if (p->interaction != NULL) {
            if (!advance(p->interaction))
                return;
            continue;
        }
        publish_end(p);
        struct sp_list *first = sp_list_take_first(&p->waiting);
        if (first == NULL)
            return;
        c = SP_CONTAINER(first, struct sp_call, waiting);
        p->interaction = c;
        start_write(c);
    }
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

int sp_manager_write(struct sp_manager *m, const struct sp_write_ask *ask, sp_reply_fn *fn,
                     void *user, uint64_t *ret_call, struct sp_err *e)
{
    const int r = sp_manager_admit(m, e);

    if (r < 0)
        return r;
    struct sp_write *w = calloc(1, sizeof *w);
    if (w == NULL || !sp_arena_str(&w->call.keep, ask->chars, &w->call.chars) ||
        sp_until_copy(&w->call, ask->until, ask->until_count, e) < 0) {
        if (w != NULL) {
            sp_until_done(&w->call);
            sp_arena_done(&w->call.keep);
        }
        free(w);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "begin a call");
    }
    w->call.step = enter_queue;
    w->session_id = ask->session_id;
    w->call.has_max_tokens = ask->has_max_tokens;
    w->call.max_tokens = ask->max_tokens;
    if (ask->is_compat)
        w->yield_ms = sp_yield_ms(SP_YIELD_COMPAT, ask->yield, m->poll_max_ms);
    else /* a contradiction is told when the call runs */
        (void)sp_yield_of_write(ask->yield, ask->chars.n != 0,
                                ask->no_timeout && m->options.has_no_timeout, m->poll_max_ms,
                                &w->yield_ms, &w->misuse);
    sp_call_begin(m, &w->call, fn, user);
    *ret_call = w->call.number;
    return 0;
}

/* ---- settling ---- */

/* No call or order refers to the process, and all its events were sent. Its job is released even if
 * another process holds the output open: background processes outlive the command. */
static bool is_over(const struct sp_process *p)
{
    return !p->is_stored && !is_in_use(p) &&
           (p->is_discarded || p->has_ended || (p->is_hidden && sp_process_has_exited(p)));
}

/* Looks at the whole state and does what is due. The end event is tried before and after the calls,
 * since answering one can make it due. */
static void settle(struct sp_deferred *d)
{
    struct sp_process *p = SP_CONTAINER(d, struct sp_process, settling);

    publish_end(p);
    if (p->initial != NULL)
        sp_exec_step(p->initial);
    serve_writes(p);
    sp_manager_serve_orders(p);
    publish_end(p);
    set_end_timers(p);
    if (p->is_job_over && p->asked == 0)
        sp_job_release(&p->job);
    if (is_over(p))
        sp_process_free(p);
}

void sp_process_changed(struct sp_process *p)
{
    sp_loop_defer(p->m->loop, &p->settling, settle);
}

/* ---- exit ---- */

bool sp_process_is_judged(const struct sp_process *p)
{
    return sp_process_has_exited(p) &&
           (sp_process_has_failed(p) || !p->is_verdict_open || p->is_verdict_late);
}

static void on_grace_over(struct sp_timer *t)
{
    struct sp_process *p = SP_CONTAINER(t, struct sp_process, grace_timer);

    end_output(p);
    sp_process_changed(p);
}

static void on_verdict_late(struct sp_timer *t)
{
    struct sp_process *p = SP_CONTAINER(t, struct sp_process, verdict_timer);

    p->is_verdict_late = true;
    sp_process_changed(p);
}

/* Out of memory: the timer fires at once, so that no wait is endless. */
static void set_timer(struct sp_process *p, struct sp_timer *t, uint64_t ms,
                      void (*fn)(struct sp_timer *))
{
    if (!sp_loop_timer(p->m->loop, t, sp_manager_clock_ms() + ms, fn))
        fn(t);
}

/* A reported exit code must be stored before. */
static void become_exited(struct sp_process *p)
{
    if (sp_process_has_exited(p))
        return;
    if (!p->has_exit_code) {
        p->exit = (struct sp_job_exit){.code = -1, .denied = -1};
        p->has_exit_code = true;
    }
    p->exited_ns = sp_clock_ns();
    p->life = SP_PROCESS_EXITED;
    set_timer(p, &p->grace_timer, SP_TRAILING_MS, on_grace_over);
    if (p->is_verdict_open)
        set_timer(p, &p->verdict_timer, SP_VERDICT_MS, on_verdict_late);
    sp_manager_wait_ttl(p);
}

void sp_process_count_as_exited(struct sp_process *p)
{
    become_exited(p);
    sp_process_changed(p);
}

/* Once the end event was sent, a failure cannot be reported any more. */
static void note_failure(struct sp_process *p, const char *message)
{
    if (!sp_process_has_failed(p) && !p->has_ended)
        (void)sp_fail(&p->failure, SP_E_FAILED, 0, "%s", message);
}

void sp_process_fail(struct sp_process *p, const char *message)
{
    note_failure(p, message);
    if (!sp_process_has_exited(p))
        sp_process_kill(p);
    become_exited(p);
    sp_process_changed(p);
}

/* ---- killing ---- */

bool sp_process_can_ask(const struct sp_process *p)
{
    return p->job.backend != NULL && !p->is_job_over;
}

static void on_killed(struct sp_job_call *c)
{
    struct sp_process *p = SP_CONTAINER(c, struct sp_process, kill);

    p->asked--;
    p->is_killing = false;
    if (c->result == SP_JOB_REFUSED && p->is_stored &&
        !sp_process_has_exited(p)) { /* a timer tries again */
        p->ended_by = SP_END_NONE;
        p->kill_again_ms = sp_manager_clock_ms() + SP_KILL_AGAIN_MS;
        sp_process_changed(p);
        return;
    }
    /* Refused, and it has no entry through which a caller could ask again: end its job. */
    sp_process_count_as_exited(p);
}

void sp_process_kill(struct sp_process *p)
{
    if (p->is_killing || sp_process_has_exited(p))
        return;
    if (!sp_process_can_ask(p)) {
        sp_process_count_as_exited(p);
        return;
    }
    p->is_killing = true;
    p->asked++;
    p->kill.fn = on_killed;
    sp_job_terminate(&p->job, &p->kill);
}

/* ---- reports of the job ---- */

static void on_started(struct sp_job *j, enum sp_job_sandbox sandbox)
{
    struct sp_process *p = SP_CONTAINER(j, struct sp_process, job);

    if (!p->is_remote && sp_manager_clock_ms() - p->start_ms > SP_START_MS) {
        /* The time to create the cell does not count, but the report may be late: allow for it. */
        p->start_ns = sp_clock_ns() - SP_START_MS * 1000000ULL;
        p->start_ms = sp_manager_clock_ms() - SP_START_MS;
    }
    p->started_at_ms = (int64_t)sp_clock_unix_ms();
    p->sandbox = sandbox;
    if (p->life == SP_PROCESS_STARTING)
        p->life = SP_PROCESS_RUNNING;
    sp_process_changed(p);
}

static void on_refused(struct sp_job *j, const struct sp_err *e)
{
    struct sp_process *p = SP_CONTAINER(j, struct sp_process, job);

    p->is_job_over = true;
    p->refusal = *e;
    if (p->refusal.code == SP_E_NONE)
        p->refusal.code = SP_E_FAILED;
    sp_process_changed(p);
}

/* stdout and stderr are one text, in order of arrival. false: out of memory; the job offers the
 * bytes again. */
static bool on_output(struct sp_job *j, enum sp_stream stream, struct sp_str bytes)
{
    struct sp_process *p = SP_CONTAINER(j, struct sp_process, job);

    (void)stream;
    if (p->owes_gap) {
        if (!add_output(p, SP_STR(LOST)))
            return hold_up(p);
        p->owes_gap = false;
    }
    if (!add_output(p, bytes))
        return hold_up(p);
    if (!p->has_begun && p->held.len >= SP_HELD_MAX)
        sp_process_changed(p);
    return true;
}

static void on_gap(struct sp_job *j, uint64_t bytes)
{
    struct sp_process *p = SP_CONTAINER(j, struct sp_process, job);

    (void)bytes;
    p->owes_gap = !add_output(p, SP_STR(LOST));
}

/* The first reported code is final, but one that comes after the end event is ignored. */
static void on_exited(struct sp_job *j, const struct sp_job_exit *how)
{
    struct sp_process *p = SP_CONTAINER(j, struct sp_process, job);

    if (!p->is_code_known && !p->has_ended) {
        p->exit = *how;
        p->exit.denial = NULL;
        p->exit.kernel = NULL;
        if (how->denial != NULL) {
            p->denial = *how->denial;
            p->exit.denial = &p->denial;
        }
        if (how->kernel != NULL) {
            p->kernel = *how->kernel;
            p->exit.kernel = &p->kernel;
        }
        p->has_exit_code = true;
        p->is_code_known = true;
    }
    become_exited(p);
    sp_process_changed(p);
}

static void end_job(struct sp_process *p)
{
    p->is_job_over = true;
    p->life = SP_PROCESS_CLOSED;
    end_output(p);
    sp_process_changed(p);
}

static void on_closed(struct sp_job *j)
{
    struct sp_process *p = SP_CONTAINER(j, struct sp_process, job);

    become_exited(p);
    end_job(p);
}

static void on_failed(struct sp_job *j, const char *why)
{
    struct sp_process *p = SP_CONTAINER(j, struct sp_process, job);

    if (p->life == SP_PROCESS_STARTING) {
        (void)sp_fail(&p->refusal, SP_E_FAILED, 0, "%s", why);
        p->is_job_over = true;
        sp_process_changed(p);
        return;
    }
    note_failure(p, why);
    sp_process_blame(p, SP_END_LOST);
    become_exited(p);
    end_job(p);
}

const struct sp_job_ops sp_process_job_ops = {
    .started = on_started,
    .refused = on_refused,
    .output = on_output,
    .gap = on_gap,
    .exited = on_exited,
    .closed = on_closed,
    .failed = on_failed,
};

/* ---- making and freeing ---- */

struct sp_process *sp_process_new(struct sp_manager *m, int id, struct sp_call *initial)
{
    struct sp_process *p = calloc(1, sizeof *p);

    if (p == NULL)
        return NULL;
    p->m = m;
    p->id = id;
    p->initial = initial;
    p->quota = SP_DELTA_QUOTA;
    sp_headtail_init(&p->pending, SP_HEADTAIL_CAPACITY);
    sp_headtail_init(&p->transcript, SP_HEADTAIL_CAPACITY);
    sp_delta_init(&p->delta, &p->quota, tell_delta, p);
    p->start_ns = p->last_used_ns = sp_clock_ns();
    p->start_ms = p->idle_from_ms = sp_manager_clock_ms();
    sp_list_init(&p->waiting);
    sp_list_append(&m->processes, &p->link);
    return p;
}

void sp_process_free(struct sp_process *p)
{
    struct sp_manager *m = p->m;
    struct sp_timer *timers[] = {&p->grace_timer,   &p->verdict_timer, &p->ttl_timer,
                                 &p->timeout_timer, &p->idle_timer,    &p->quiet_timer,
                                 &p->memory_timer};

    if (m->is_closing) {
        /* Every begin event gets its end event, even if the exit code is unknown. */
        p->is_verdict_open = false;
        sp_process_count_as_exited(p);
        end_output(p);
        publish_end(p);
    }
    sp_job_release(&p->job);
    if (p->holds_id)
        sp_manager_remember(p);
    sp_each_call(c, &m->dead)
        if (c->process == p)
            sp_call_let_go(c);
    for (size_t i = 0; i < sizeof timers / sizeof timers[0]; i++)
        sp_loop_cancel(m->loop, timers[i]);
    sp_loop_undefer(m->loop, &p->settling);
    sp_loop_undefer(m->loop, &p->memory_again);
    sp_headtail_done(&p->pending);
    sp_headtail_done(&p->transcript);
    sp_buf_done(&p->held);
    sp_list_remove(&p->link);
    sp_environment_unref(p->environment);
    sp_arena_done(&p->keep);
    free(p);
}

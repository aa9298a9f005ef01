/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process_output: the output of a process and the events about it.
 *
 * The output goes to three consumers, each with its own copy of every byte in order: the next call
 * (pending), the end event (transcript) and the deltas. When memory is short the job keeps the
 * bytes and offers them again.
 */

#include "base/auto.h"
#include "base/utf8.h"
#include "engine/manager_priv.h"

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
        sp_process_at_end(p);
}

void sp_process_tell_delta(void *process, struct sp_str frame)
{
    const struct sp_process *p = process;
    struct sp_exec_event e = new_event(p, SP_EVENT_DELTA);

    e.stream = SP_STREAM_STDOUT;
    e.chunk = frame;
    sp_manager_event(p->m, &e);
}

void sp_process_tell_interaction(struct sp_process *p, struct sp_str input)
{
    struct sp_exec_event e = new_event(p, SP_EVENT_INTERACTION);

    e.source = SP_SOURCE_UNIFIED_EXEC_INTERACTION;
    e.input = input;
    sp_manager_event(p->m, &e);
}

void sp_process_tell_warning(struct sp_process *p, const char *message)
{
    struct sp_exec_event e = new_event(p, SP_EVENT_WARNING);

    e.message = sp_str_of(message);
    sp_manager_event(p->m, &e);
}

/* ---- the end ---- */

/* out: the transcript; aggregated: with the failure's text behind it; formatted: truncated. */
static bool make_end_texts(const struct sp_process *p, struct sp_buf *out,
                           struct sp_buf *aggregated, struct sp_buf *formatted)
{
    const struct sp_omission gone = {
        .bytes = p->transcript.omitted,
        .token_count = sp_allowance_tokens_of(sp_headtail_total(&p->transcript)),
    };

    if (!sp_answer_decode(out, &p->transcript) || !sp_buf_add_str(aggregated, sp_buf_str(out)))
        return false;
    if (sp_process_has_failed(p) && !((out->len == 0 || sp_buf_add(aggregated, "\n", 1)) &&
                                      sp_utf8_add_lossy(aggregated, sp_str_of(p->failure.msg))))
        return false;
    return sp_truncate_format(formatted, sp_buf_str(aggregated), p->m->allowance, gone);
}

static void tell_end(struct sp_process *p)
{
    const bool has_failed = sp_process_has_failed(p);
    auto_buf struct sp_buf out = {0};
    auto_buf struct sp_buf aggregated = {0};
    auto_buf struct sp_buf formatted = {0};
    struct sp_exec_event e = new_event(p, SP_EVENT_END);

    e.at_ms = (int64_t)sp_clock_unix_ms();
    e.duration_ns = (p->exited_ns != 0 ? p->exited_ns : sp_clock_ns()) - p->start_ns;
    e.exit_code = has_failed ? -1 : p->exit.code;
    e.status = !has_failed && p->exit.code == 0 ? SP_STATUS_COMPLETED : SP_STATUS_FAILED;
    e.err = has_failed ? sp_str_of(p->failure.msg) : SP_STR("");
    if (make_end_texts(p, &out, &aggregated, &formatted)) {
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
void sp_process_publish_end(struct sp_process *p)
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

static bool has_watchers(const struct sp_process *p)
{
    return p->m->ops.event != NULL && !p->is_hidden && !p->is_at_end && p->quota != 0;
}

void sp_process_at_end(struct sp_process *p)
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

/* The job offers the same bytes again if the pending output had no memory for them. */
static bool add_to_transcript(struct sp_process *p, struct sp_str bytes)
{
    const size_t had = p->ahead < bytes.n ? p->ahead : bytes.n;

    if (p->is_at_end && !p->m->options.remembers_ended)
        return true;
    if (!sp_headtail_push(&p->transcript, (struct sp_str){bytes.p + had, bytes.n - had}))
        return false;
    if (p->ahead < bytes.n)
        p->ahead = bytes.n;
    return true;
}

static bool add_output(struct sp_process *p, struct sp_str bytes)
{
    const bool is_early = !p->has_begun && has_watchers(p);

    if (is_early && sp_buf_room(&p->held, bytes.n) == NULL)
        return false;
    if (!add_to_transcript(p, bytes) || !sp_headtail_push(&p->pending, bytes))
        return false;
    p->ahead -= p->ahead < bytes.n ? p->ahead : bytes.n;
    p->received += bytes.n;
    if (is_early)
        (void)sp_buf_add_str(&p->held, bytes); /* room was made above */
    else if (has_watchers(p))
        push_delta(p, bytes);
    sp_until_hear(p, bytes);
    return true;
}

bool sp_process_take(struct sp_process *p, struct sp_str bytes)
{
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

void sp_process_take_gap(struct sp_process *p)
{
    p->owes_gap = !add_output(p, SP_STR(LOST));
}

void sp_process_done_output(struct sp_process *p)
{
    sp_loop_cancel(p->m->loop, &p->quiet_timer);
    sp_loop_cancel(p->m->loop, &p->memory_timer);
    sp_loop_undefer(p->m->loop, &p->memory_again);
    sp_headtail_done(&p->pending);
    sp_headtail_done(&p->transcript);
    sp_buf_done(&p->held);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process_output: the output of a process and the events about it.
 */
#include <time.h>

#include "base/auto.h"
#include "base/utf8.h"
#include "engine/manager_priv.h"

/*
 * What whoever watches is told about a process (unified-exec.md 6).
 */

static int64_t wall_clock_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* What all events of a process say. */
static struct sp_exec_event form(const struct sp_process *p, enum sp_event_type type)
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

static void tell_held(struct sp_process *p)
{
    const struct sp_str held = {p->held.data, p->held.len};

    p->held.len = 0;
    if (held.n != 0)
        sp_delta_push(&p->delta, held);
}

/* deltas may be told now */
static void release_held(struct sp_process *p)
{
    tell_held(p);
    sp_buf_done(&p->held);
    if (p->is_at_end)
        sp_process_at_end(p);
}

void sp_process_begin(struct sp_process *p)
{
    struct sp_exec_event e = form(p, SP_EVENT_BEGIN);

    p->has_begun = true;
    e.at_ms = p->started_at_ms;
    sp_manager_event(p->m, &e);
    release_held(p);
}

void sp_process_tell_delta(void *process, struct sp_str frame)
{
    const struct sp_process *p = process;
    struct sp_exec_event e = form(p, SP_EVENT_DELTA);

    e.stream = SP_STREAM_STDOUT;
    e.chunk = frame;
    sp_manager_event(p->m, &e);
}

void sp_process_tell_interaction(struct sp_process *p, struct sp_str input)
{
    struct sp_exec_event e = form(p, SP_EVENT_INTERACTION);

    e.source = SP_SOURCE_UNIFIED_EXEC_INTERACTION;
    e.input = input;
    sp_manager_event(p->m, &e);
}

void sp_process_tell_warning(struct sp_process *p, const char *message)
{
    struct sp_exec_event e = form(p, SP_EVENT_WARNING);

    e.message = sp_str_of(message);
    sp_manager_event(p->m, &e);
}

/* ---- the end ---- */

struct end_texts {
    struct sp_buf out, aggregated, formatted;
};

static void done_texts(struct end_texts *t)
{
    sp_buf_done(&t->out);
    sp_buf_done(&t->aggregated);
    sp_buf_done(&t->formatted);
}

static struct sp_str view(const struct sp_buf *b)
{
    return (struct sp_str){b->len == 0 ? "" : b->data, b->len};
}

/* The output, and behind it what went wrong. */
static bool add_aggregated(const struct sp_process *p, struct end_texts *t)
{
    if (!sp_buf_add_str(&t->aggregated, view(&t->out)))
        return false;
    if (!sp_process_has_failed(p))
        return true;
    return (t->out.len == 0 || sp_buf_add(&t->aggregated, "\n", 1)) &&
           sp_utf8_add_lossy(&t->aggregated, sp_str_of(p->failure.msg));
}

static bool make_texts(const struct sp_process *p, struct end_texts *t)
{
    const struct sp_omission gone = {
        .bytes = p->transcript.omitted,
        .token_count = sp_allowance_tokens_of(sp_headtail_total(&p->transcript)),
    };

    return sp_answer_decode(&t->out, &p->transcript) && add_aggregated(p, t) &&
           sp_truncate_format(&t->formatted, view(&t->aggregated), p->m->allowance, gone);
}

static enum sp_event_status status(const struct sp_process *p)
{
    return !sp_process_has_failed(p) && p->exit.code == 0 ? SP_STATUS_COMPLETED : SP_STATUS_FAILED;
}

static void tell_end(struct sp_process *p)
{
    struct end_texts texts __attribute__((cleanup(done_texts))) = {0};
    struct sp_exec_event e = form(p, SP_EVENT_END);

    e.at_ms = wall_clock_ms();
    e.duration_ns = (p->exited_ns != 0 ? p->exited_ns : sp_manager_clock_ns()) - p->start_ns;
    e.exit_code = sp_process_has_failed(p) ? -1 : p->exit.code;
    e.status = status(p);
    e.err = sp_process_has_failed(p) ? sp_str_of(p->failure.msg) : SP_STR("");
    if (make_texts(p, &texts)) {
        e.out = view(&texts.out);
        e.aggregated = view(&texts.aggregated);
        e.formatted = view(&texts.formatted);
    } else { /* the end is told in any case */
        e.out = e.aggregated = e.formatted = SP_STR("... output lost: no memory ...");
    }
    sp_manager_event(p->m, &e);
}

/*
 * Not before the last delta, not while a verdict may still come, and not before the interaction
 * that is in progress, which may have made it exit.
 */
static bool is_end_due(const struct sp_process *p)
{
    return p->has_begun && !p->has_ended && p->is_drained && p->interaction == NULL &&
           sp_process_is_judged(p);
}

void sp_process_publish_end(struct sp_process *p)
{
    if (!is_end_due(p))
        return;
    p->has_ended = true;
    if (p->m->ops.event != NULL)
        tell_end(p);
    if (!p->m->options.remembers_ended)
        sp_headtail_done(&p->transcript);
}

/*
 * Where the output of a process goes: to whoever calls next, to the record of its whole life, and
 * to whoever watches. Each gets its own copy, of every byte and in order; when memory is gone the
 * bytes stay where they came from and are tried again.
 */

#define LOST "\n... output lost ...\n"

/* ---- no memory ---- */

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

static void on_quiet_over(struct sp_timer *t)
{
    tell_held(SP_CONTAINER(t, struct sp_process, quiet_timer));
}

/* The first bytes after a silence are told at once, what follows within a moment as one. */
static void tell_soon(struct sp_process *p, struct sp_str bytes)
{
    if (p->quiet_timer.slot != 0 && p->held.len + bytes.n < SP_DELTA_FRAME_MAX &&
        sp_buf_add_str(&p->held, bytes))
        return;
    tell_held(p);
    sp_delta_push(&p->delta, bytes);
    (void)sp_loop_timer(p->m->loop, &p->quiet_timer, sp_loop_now(p->m->loop) + SP_COALESCE_MS,
                        on_quiet_over); /* none: nothing is held */
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
    tell_held(p);
    if (!p->is_hidden)
        sp_delta_finish(&p->delta);
    p->is_drained = true;
}

/* ---- bytes ---- */

/* The same bytes may come a second time, after the transcript has taken them. */
static bool take_in_transcript(struct sp_process *p, struct sp_str bytes)
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

static bool take(struct sp_process *p, struct sp_str bytes)
{
    const bool is_early = !p->has_begun && has_watchers(p);

    if (is_early && sp_buf_room(&p->held, bytes.n) == NULL)
        return false;
    if (!take_in_transcript(p, bytes) || !sp_headtail_push(&p->pending, bytes))
        return false;
    p->ahead -= p->ahead < bytes.n ? p->ahead : bytes.n;
    p->received += bytes.n;
    if (is_early)
        (void)sp_buf_add_str(&p->held, bytes); /* there is room */
    else if (has_watchers(p))
        tell_soon(p, bytes);
    sp_until_hear(p, bytes);
    return true;
}

bool sp_process_take(struct sp_process *p, struct sp_str bytes)
{
    if (p->owes_gap) {
        if (!take(p, SP_STR(LOST)))
            return hold_up(p);
        p->owes_gap = false;
    }
    if (!take(p, bytes))
        return hold_up(p);
    if (!p->has_begun && p->held.len >= SP_HELD_MAX)
        sp_process_changed(p);
    return true;
}

void sp_process_take_gap(struct sp_process *p)
{
    p->owes_gap = !take(p, SP_STR(LOST));
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

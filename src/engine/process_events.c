/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What whoever watches is told about a process (unified-exec.md 6).
 */
#include <time.h>

#include "base/utf8.h"
#include "engine/manager_priv.h"

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

void sp_process_begin(struct sp_process *p)
{
    struct sp_exec_event e = form(p, SP_EVENT_BEGIN);

    p->has_begun = true;
    e.at_ms = p->started_at_ms;
    sp_manager_event(p->m, &e);
    sp_process_release_held(p);
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

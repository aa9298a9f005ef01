/* SPDX-License-Identifier: Apache-2.0 */
/* manager_call: what all calls have in common: their number, their wait and their reply. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/auto.h"
#include "engine/manager_priv.h"

/* ---- beginning and end ---- */

static void on_call_deferred(struct sp_deferred *d)
{
    struct sp_call *c = SP_CONTAINER(d, struct sp_call, deferred);

    c->step(c);
}

void sp_call_changed(struct sp_call *c)
{
    if (c->process != NULL)
        sp_process_changed(c->process);
    else if (!c->is_answered)
        sp_loop_defer(c->m->loop, &c->deferred, on_call_deferred);
}

void sp_call_begin(struct sp_manager *m, struct sp_call *c, sp_reply_fn *fn, void *user)
{
    c->m = m;
    c->fn = fn;
    c->user = user;
    c->number = ++m->next_call;
    c->began_ns = sp_clock_ns();
    c->prev = m->calls_last;
    *(m->calls_last != NULL ? &m->calls_last->next : &m->calls) = c;
    m->calls_last = c;
    m->call_count++;
    sp_call_changed(c);
}

void sp_call_free(struct sp_call *c)
{
    if (c->release != NULL)
        c->release(c);
    sp_loop_undefer(c->m->loop, &c->deferred);
    sp_loop_cancel(c->m->loop, &c->timer);
    sp_until_done(c);
    sp_arena_done(&c->keep);
    free(c);
}

static void sweep(struct sp_deferred *d)
{
    struct sp_manager *m = SP_CONTAINER(d, struct sp_manager, sweeping);
    struct sp_call **at = &m->dead;

    while (*at != NULL) {
        struct sp_call *c = *at;

        if (c->is_awaited) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        sp_call_free(c);
    }
}

void sp_call_finish(struct sp_call *c, const struct sp_reply *reply)
{
    struct sp_manager *m = c->m;
    struct sp_process *p = c->process;

    c->is_answered = true;
    sp_loop_cancel(m->loop, &c->timer);
    sp_loop_undefer(m->loop, &c->deferred);
    *(c->prev != NULL ? &c->prev->next : &m->calls) = c->next;
    *(c->next != NULL ? &c->next->prev : &m->calls_last) = c->prev;
    m->call_count--;
    sp_manager_unreserve(m, c->reserved_id);
    c->reserved_id = 0;
    if (p != NULL) {
        p->initial = p->initial == c ? NULL : p->initial;
        p->interaction = p->interaction == c ? NULL : p->interaction;
        sp_process_use(p);
        sp_process_changed(p);
    }
    if (!c->is_awaited)
        c->process = NULL;
    c->next = m->dead;
    m->dead = c;
    sp_loop_defer(m->loop, &m->sweeping, sweep);
    c->fn(c->user, reply);
}

void sp_call_let_go(struct sp_call *c)
{
    c->is_awaited = false;
    c->process = NULL;
    sp_loop_defer(c->m->loop, &c->m->sweeping, sweep);
}

void sp_call_let_all_go(struct sp_process *p)
{
    for (struct sp_call *c = p->m->dead; c != NULL; c = c->next)
        if (c->process == p)
            sp_call_let_go(c);
}

/* ---- waiting ---- */

static void on_timer(struct sp_timer *t)
{
    sp_call_changed(SP_CONTAINER(t, struct sp_call, timer));
}

void sp_call_wake_at(struct sp_call *c, uint64_t due_ms)
{
    if (due_ms == UINT64_MAX) {
        sp_loop_cancel(c->m->loop, &c->timer);
        return;
    }
    if (c->timer.slot != 0 && c->timer.due_ms == due_ms)
        return;
    if (!sp_loop_timer(c->m->loop, &c->timer, due_ms, on_timer)) {
        c->is_due = true;
        sp_call_changed(c);
    }
}

void sp_call_collect(struct sp_call *c, uint64_t from_ns, uint64_t yield_ms)
{
    c->is_collecting = true;
    c->from_ns = from_ns;
    c->from_ms = (from_ns + 999999) / 1000000; /* rounded up: the wait is never too short */
    c->deadline_ms = sp_later_ms(c->from_ms, yield_ms);
    c->post_exit_ms = UINT64_MAX;
}

static bool has_waited_enough(struct sp_call *c)
{
    const struct sp_process *p = c->process;
    const uint64_t now = sp_loop_now(c->m->loop);
    const bool is_stopped = c->m->is_clock_stopped;
    uint64_t due_ms = is_stopped ? UINT64_MAX : c->deadline_ms;

    if (p->life == SP_PROCESS_CLOSED || (now >= c->deadline_ms && !is_stopped) || c->is_due)
        return true;
    /* A poll ends early for a call behind it that has input, any call for one in a hurry. */
    for (const struct sp_call *w = p->interaction == c ? p->waiting : NULL; w != NULL;
         w = w->next_waiting)
        if ((w->chars.n != 0 && c->chars.n == 0) || w->is_hurried)
            return true;
    if (p->life == SP_PROCESS_EXITED) {
        /* Wait for the last output; further output does not extend this. */
        if (c->post_exit_ms == UINT64_MAX) {
            c->post_exit_ms = sp_later_ms(sp_manager_clock_ms(), SP_POST_EXIT_MS);
            if (c->post_exit_ms > c->deadline_ms)
                c->post_exit_ms = c->deadline_ms;
        }
        if (now >= c->post_exit_ms)
            return true;
        due_ms = c->post_exit_ms;
    } else if (c->is_hurried || sp_until_is_met(c, now, &due_ms)) {
        return true;
    }
    sp_call_wake_at(c, due_ms);
    return false;
}

bool sp_call_is_done(struct sp_call *c)
{
    if (c->m->pauses != 0 && !c->is_hurried) {
        sp_loop_cancel(c->m->loop, &c->timer);
        return false;
    }
    if (!has_waited_enough(c))
        return false;
    /* The verdict, or its timer, runs this again. */
    return !sp_process_has_exited(c->process) || sp_process_is_judged(c->process);
}

void sp_call_shift(struct sp_call *c, uint64_t paused_from_ms, uint64_t now_ms)
{
    const uint64_t from = c->from_ms > paused_from_ms ? c->from_ms : paused_from_ms;
    const uint64_t by = now_ms > from ? now_ms - from : 0;

    if (!c->is_collecting)
        return;
    c->deadline_ms = sp_later_ms(c->deadline_ms, by);
    c->post_exit_ms = sp_later_ms(c->post_exit_ms, by);
    sp_until_shift(c, paused_from_ms, now_ms);
}

void sp_call_prolong(struct sp_call *c, uint64_t stopped_ms, uint64_t now_ms)
{
    const uint64_t from = c->from_ms > stopped_ms ? c->from_ms : stopped_ms;

    if (c->is_collecting && now_ms > from)
        c->deadline_ms = sp_later_ms(c->deadline_ms, now_ms - from);
}

/* ---- replies ---- */

#define NS_PER_TENTH 100000000U

static struct sp_reply new_reply(const struct sp_call *c)
{
    const struct sp_process *p = c->process;
    struct sp_reply r = {.has_max_tokens = c->has_max_tokens,
                         .max_tokens = c->max_tokens,
                         .woken_by = -1,
                         .has_typed = c->has_typed};

    if (p == NULL)
        return r;
    r.process_id = p->id;
    r.has_exited = sp_process_has_exited(p);
    r.is_output_held = sp_process_is_output_held(p);
    r.end_reason = sp_process_end_reason(p);
    if (r.has_exited) {
        r.denial = p->exit.denial;
        r.kernel = p->exit.kernel;
    }
    return r;
}

/* Appends exit code and output of the attempt that ended before the fault. */
static void add_attempt(struct sp_call *c, struct sp_buf *text, struct sp_buf *decoded,
                        struct sp_reply *r)
{
    const struct sp_answer_limits limits = {c->has_max_tokens, c->max_tokens, c->m->allowance};
    struct sp_process *p = c->process;
    const size_t mark = text->len;

    if (!c->shows_attempt || p == NULL || !sp_process_has_exited(p))
        return;
    r->answer = (struct sp_exec_answer){
        .wall_ns = p->exited_ns - p->start_ns,
        .fate = SP_ANSWER_EXITED,
        .exit_code = p->exit.code,
    };
    r->signal = p->exit.signal;
    if (!sp_answer_decode(decoded, &p->pending))
        return;
    sp_answer_set_output(&r->answer, &p->pending, sp_buf_str(decoded));
    r->was_denied = true;
    if (!sp_buf_printf(text, "\n\nThe attempt in the sandbox:\n") ||
        !sp_answer_add_text(text, &r->answer, &limits))
        text->len = mark;
}

bool sp_call_fault(struct sp_call *c, enum sp_fault fault, const char *fmt, ...)
{
    /* Errors in the arguments and interruptions need no prefix. */
    const char *prefix = fault == SP_FAULT_ARGUMENTS || fault == SP_FAULT_ABORTED ? ""
                         : c->is_exec ? "exec_command failed: "
                                      : "write_stdin failed: ";
    auto_buf struct sp_buf text = {0};
    auto_buf struct sp_buf decoded = {0};
    struct sp_reply r = new_reply(c);
    auto_free char *body = NULL;
    va_list args;

    va_start(args, fmt);
    const int n = vasprintf(&body, fmt, args);
    va_end(args);
    if (n < 0)
        body = NULL;
    r.fault = fault;
    if (body != NULL && sp_buf_printf(&text, "%s%s", prefix, body)) {
        add_attempt(c, &text, &decoded, &r);
        r.text = sp_buf_str(&text);
        r.error = (struct sp_str){r.text.p + strlen(prefix), (size_t)n};
    } else {
        r.text = r.error = SP_STR("Cannot allocate memory (os error 12)");
    }
    sp_call_finish(c, &r);
    return false;
}

bool sp_call_fail_create(struct sp_call *c, const struct sp_err *why)
{
    const char *sys = why->sys != 0 ? strerrordesc_np(why->sys) : NULL;
    char cause[sizeof why->msg + 128];

    if (sys == NULL || strstr(why->msg, "(os error ") != NULL)
        (void)snprintf(cause, sizeof cause, "%s", why->msg);
    else
        (void)snprintf(cause, sizeof cause, "%s%s%s (os error %d)", why->msg,
                       why->msg[0] == 0 ? "" : ": ", sys, why->sys);
    return sp_call_fault(c, SP_FAULT_CREATE, "Failed to create unified exec process: %s", cause);
}

void sp_call_abort(struct sp_call *c)
{
    const uint64_t ns = sp_clock_ns() - c->began_ns;
    uint64_t tenths = (ns + NS_PER_TENTH / 2) / NS_PER_TENTH;

    tenths = tenths == 0 ? 1 : tenths;
    if (c->is_exec)
        sp_call_fault(c, SP_FAULT_ABORTED, "Wall time: %" PRIu64 ".%u seconds\naborted by user",
                      tenths / 10, (unsigned)(tenths % 10));
    else
        sp_call_fault(c, SP_FAULT_ABORTED, "aborted by user after %" PRIu64 ".%us", tenths / 10,
                      (unsigned)(tenths % 10));
}

/* ---- answers ---- */

/* A label without meaning: it need not be unpredictable. */
static void make_chunk_id(const struct sp_call *c, char ret[7])
{
    uint32_t number;

    if (getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number)
        number = (uint32_t)(c->number * 2654435761U);
    (void)snprintf(ret, 7, "%06x", (unsigned)(number & 0xffffff));
}

/* Returns drained output to the process for the next call. Without memory it becomes a gap. */
static void give_back(struct sp_process *p, struct sp_headtail *out)
{
    if (!sp_headtail_merge(out, &p->pending)) {
        p->answered += sp_headtail_total(&p->pending);
        sp_headtail_done(&p->pending);
        p->owes_gap = true;
    }
    p->pending = sp_headtail_drain(out);
}

static bool was_denied(const struct sp_process *p, struct sp_str text)
{
    return p->is_code_known && !sp_process_has_failed(p) &&
           sp_denied_judge(p->sandbox, &p->exit, SP_STR(""), text);
}

bool sp_call_answer(struct sp_call *c, enum sp_answer_fate fate)
{
    struct sp_process *p = c->process;
    auto_headtail struct sp_headtail out = sp_headtail_drain(&p->pending);
    auto_buf struct sp_buf decoded = {0};
    auto_buf struct sp_buf text = {0};
    struct sp_reply r = new_reply(c);
    char chunk_id[7];

    make_chunk_id(c, chunk_id);
    r.answer = (struct sp_exec_answer){
        .chunk_id = sp_str_of(chunk_id),
        .wall_ns = sp_clock_ns() - c->from_ns,
        .fate = fate,
        .exit_code = p->has_exit_code ? p->exit.code : -1,
        .session_id = p->id,
    };
    if (fate == SP_ANSWER_RUNNING)
        sp_answer_hold_back(&out, &p->pending);
    else
        r.signal = p->exit.signal;
    const struct sp_answer_limits limits = {c->has_max_tokens, c->max_tokens, c->m->allowance};
    if (sp_answer_decode(&decoded, &out)) {
        sp_answer_set_output(&r.answer, &out, sp_buf_str(&decoded));
        if (sp_answer_add_text(&text, &r.answer, &limits)) {
            r.text = sp_buf_str(&text);
            r.from = p->answered;
            r.to = p->answered += sp_headtail_total(&out);
            r.was_denied = fate == SP_ANSWER_EXITED && was_denied(p, sp_buf_str(&decoded));
            p->was_denied |= r.was_denied;
            r.woken_by = sp_until_woken_by(c);
            sp_until_forget(p, c);
            if (fate == SP_ANSWER_EXITED) /* the caller has seen the end */
                sp_manager_remove(p);
            sp_call_finish(c, &r);
            return true;
        }
    }
    give_back(p, &out);
    return false;
}

void sp_call_answer_hook(struct sp_call *c, struct sp_str output, int exit_code,
                         const struct sp_patch_changes *changes)
{
    const struct sp_answer_limits limits = {c->has_max_tokens, c->max_tokens, c->m->allowance};
    auto_buf struct sp_buf text = {0};
    struct sp_reply r = new_reply(c);

    r.answer.fate = SP_ANSWER_NO_PROCESS;
    r.answer.exit_code = exit_code;
    r.changes = changes;
    r.answer.output = output;
    if (!sp_answer_add_text(&text, &r.answer, &limits)) {
        sp_call_fault(c, SP_FAULT_CREATE, "Failed to create unified exec process: %s",
                      "Cannot allocate memory (os error 12)");
        return;
    }
    r.text = sp_buf_str(&text);
    sp_call_finish(c, &r);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* manager_call: what all calls have in common: their number, and their wait with its conditions and
 * its clock. answer.c has their replies. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/auto.h"
#include "base/ere.h"
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

int sp_call_new(struct sp_manager *m, size_t size, struct sp_call **ret, struct sp_err *e)
{
    *ret = NULL;
    if (m->is_closing)
        return sp_fail(e, SP_E_STATE, 0, "the process manager is being closed");
    *ret = calloc(1, size);
    if (*ret == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "begin a call");
    (*ret)->m = m;
    return 0;
}

int sp_call_begin(struct sp_call *c, bool is_ready, sp_reply_fn *fn, void *user, uint64_t *ret_call,
                  struct sp_err *e)
{
    struct sp_manager *m = c->m;

    if (!is_ready) {
        sp_call_free(c);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "begin a call");
    }
    c->fn = fn;
    c->user = user;
    c->number = *ret_call = ++m->next_call;
    c->began_ns = sp_clock_ns();
    sp_list_append(&m->calls, &c->link);
    m->call_count++;
    sp_call_changed(c);
    return 0;
}

void sp_call_free(struct sp_call *c)
{
    if (c->release != NULL)
        c->release(c);
    sp_list_remove(&c->link);
    sp_loop_undefer(c->m->loop, &c->deferred);
    sp_loop_cancel(c->m->loop, &c->timer);
    for (uint32_t i = 0; c->until != NULL && i < SP_UNTIL_COUNT_MAX; i++)
        sp_ere_free(c->until->patterns[i]);
    sp_arena_done(&c->keep);
    free(c);
}

/* Frees answered calls, except those that a job still holds a pointer into. */
static void sweep(struct sp_deferred *d)
{
    struct sp_manager *m = SP_CONTAINER(d, struct sp_manager, sweeping);

    sp_list_each_safe(i, &m->dead)
        if (!SP_CONTAINER(i, struct sp_call, link)->is_awaited)
            sp_call_free(SP_CONTAINER(i, struct sp_call, link));
}

/* The callback comes last: it may begin or cancel calls, and c is not used after it. */
void sp_call_finish(struct sp_call *c, const struct sp_reply *reply)
{
    struct sp_manager *m = c->m;
    struct sp_process *p = c->process;

    c->is_answered = true;
    sp_loop_cancel(m->loop, &c->timer);
    sp_loop_undefer(m->loop, &c->deferred);
    sp_list_remove(&c->link);
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
    sp_list_prepend(&m->dead, &c->link);
    sp_loop_defer(m->loop, &m->sweeping, sweep);
    c->fn(c->user, reply);
}

void sp_call_drop_job_call(struct sp_call *c)
{
    c->is_awaited = false;
    c->process = NULL;
    sp_loop_defer(c->m->loop, &c->m->sweeping, sweep);
}

/*
 * ---- conditions that end a wait before its deadline ----
 *
 * A pattern in the output, a silence, an open port. A pattern sees every byte once, first the
 * output pending when the wait begins. The condition met first wakes the call; of two at the same
 * moment, the one listed first. Matching runs in the loop and blocks all other calls, so patterns
 * that use too much CPU time end their wait.
 */

bool sp_until_copy(struct sp_call *c, const struct sp_until *items, uint32_t count)
{
    if (count == 0)
        return true;
    struct sp_until_set *u = sp_arena_new(&c->keep, sizeof *u);
    if (u == NULL)
        return false;
    u->woken_by = -1;
    c->until = u;
    if (count > SP_UNTIL_COUNT_MAX) {
        (void)sp_fail(&u->misuse, SP_E_INVALID, 0,
                      "`until` has %u conditions; at most %d are allowed", (unsigned)count,
                      SP_UNTIL_COUNT_MAX);
        return true;
    }
    u->count = count;
    struct sp_until *copies = sp_arena_new(&c->keep, count * sizeof *copies);
    if (copies == NULL)
        return false;
    u->items = copies;
    for (uint32_t i = 0; i < count; i++) {
        struct sp_err why = {0};

        copies[i] = items[i];
        if (!sp_arena_str(&c->keep, items[i].pattern, &copies[i].pattern))
            return false;
        if (u->misuse.code != SP_E_NONE)
            continue;
        if (items[i].kind == SP_UNTIL_PORT && items[i].port == 0)
            (void)sp_fail(&u->misuse, SP_E_INVALID, 0,
                          "`until`: a `port` is between 1 and 65535; 0 is none");
        if (items[i].kind != SP_UNTIL_PATTERN ||
            sp_ere_new(copies[i].pattern, &u->patterns[i], &why) == 0)
            continue;
        if (why.code == SP_E_SYSTEM)
            return false;
        (void)sp_fail(&u->misuse, SP_E_INVALID, 0,
                      "`until`: `pattern` is not a valid extended regular expression: %s", why.msg);
    }
    return true;
}

const char *sp_until_misuse(const struct sp_call *c)
{
    return c->until == NULL || c->until->misuse.code == SP_E_NONE ? NULL : c->until->misuse.msg;
}

static void be_due(uint64_t *due_ms, uint64_t at_ms)
{
    if (at_ms < *due_ms)
        *due_ms = at_ms;
}

#define SLICE_BYTES   4096      /* between two checks of the CPU clock */
#define CPU_FREE_NS   500000000 /* CPU time for the patterns of a call, plus ... */
#define CPU_NS_A_BYTE 100       /* ... so much per byte and pattern; most need a tenth */

static bool feed(struct sp_until_set *u, struct sp_ere *pattern, struct sp_str bytes)
{
    bool is_found = false;

    while (bytes.n != 0 && !is_found && !u->is_late) {
        const struct sp_str slice = {bytes.p, bytes.n < SLICE_BYTES ? bytes.n : SLICE_BYTES};
        const uint64_t from_ns = sp_clock_cpu_ns();

        is_found = sp_ere_feed(pattern, slice);
        u->allowed_ns += slice.n * CPU_NS_A_BYTE;
        u->spent_ns += sp_clock_cpu_ns() - from_ns;
        u->is_late = u->spent_ns > CPU_FREE_NS + u->allowed_ns;
        bytes = (struct sp_str){bytes.p + slice.n, bytes.n - slice.n};
    }
    return is_found;
}

static void match_output(struct sp_until_set *u, struct sp_str bytes)
{
    for (uint32_t i = 0; i < u->count && u->woken_by < 0 && bytes.n != 0; i++)
        if (u->patterns[i] != NULL && feed(u, u->patterns[i], bytes))
            u->woken_by = (int)i;
}

/* The next bytes do not follow those matched before. */
static void begin_line(struct sp_until_set *u)
{
    for (uint32_t i = 0; i < u->count; i++)
        if (u->patterns[i] != NULL)
            sp_ere_reset(u->patterns[i]);
}

/* After SP_PROMPT_MS of silence the current line counts as ended: it is probably a prompt. */
static void end_line(struct sp_until_set *u, uint64_t now_ms, uint64_t *due_ms)
{
    const uint64_t at_ms = u->quiet_since_ms + SP_PROMPT_MS;

    if (!u->is_line_open || u->is_late)
        return;
    if (now_ms < at_ms) {
        be_due(due_ms, at_ms);
        return;
    }
    u->is_line_open = false;
    for (uint32_t i = 0; i < u->count && u->woken_by < 0; i++)
        if (u->patterns[i] != NULL && sp_ere_finish(u->patterns[i]))
            u->woken_by = (int)i;
}

static void match_pending(struct sp_until_set *u, const struct sp_headtail *pending)
{
    struct sp_str head;
    struct sp_str tail[2];

    begin_line(u);
    sp_headtail_view(pending, &head, tail);
    match_output(u, head);
    if (pending->omitted != 0)
        begin_line(u);
    match_output(u, tail[0]);
    match_output(u, tail[1]);
    u->is_line_open = true;
}

void sp_until_feed(struct sp_process *p, struct sp_str bytes)
{
    struct sp_call *const calls[] = {p->initial, p->interaction};

    for (int i = 0; i < 2; i++) {
        struct sp_until_set *u = calls[i] == NULL ? NULL : calls[i]->until;

        if (u == NULL || !u->is_on)
            continue;
        u->quiet_since_ms = sp_manager_clock_ms();
        if (u->woken_by >= 0)
            continue;
        match_output(u, bytes);
        if (u->woken_by >= 0 || u->is_late || !u->is_line_open) /* the call must set its timer */
            sp_call_changed(calls[i]);
        u->is_line_open = true;
    }
}

void sp_until_begin(struct sp_call *c)
{
    struct sp_until_set *u = c->until;

    if (u == NULL)
        return;
    u->is_on = true;
    u->woken_by = -1;
    u->quiet_since_ms = sp_manager_clock_ms();
    u->next_inspection_ms = 0;
    match_pending(u, &c->process->pending);
}

static void on_ports_inspected(struct sp_job_call *jc)
{
    struct sp_port_watch *w = SP_CONTAINER(SP_CONTAINER(jc, struct sp_job_inspection, call),
                                           struct sp_port_watch, inspection);
    struct sp_process *p = w->process;
    const struct sp_call *c = w == &p->watches[0] ? p->initial : p->interaction;
    struct sp_until_set *u;

    w->is_asked = false;
    p->job_calls--;
    sp_process_changed(p);
    if (c == NULL || c->number != w->call || c->until == NULL)
        return; /* the call was answered meanwhile */
    u = c->until;
    u->next_inspection_ms =
        sp_manager_clock_ms() + (p->is_remote ? SP_INSPECT_FAR_MS : SP_INSPECT_MS);
    if (jc->result != SP_JOB_OK || w->inspection.found.listening == 0)
        return;
    for (uint32_t i = 0; i < u->count && u->woken_by < 0; i++)
        if (u->items[i].kind == SP_UNTIL_PORT && u->items[i].port == w->inspection.found.listening)
            u->woken_by = (int)i;
}

/* An inspection for the previous call of the same slot must be answered first. */
static void inspect_ports(struct sp_call *c, uint64_t now_ms, uint64_t *due_ms)
{
    struct sp_process *p = c->process;
    struct sp_port_watch *w = &p->watches[p->initial == c ? 0 : 1];
    struct sp_until_set *u = c->until;

    if (w->is_asked || u->is_blind || !sp_process_can_ask(p))
        return;
    if (now_ms < u->next_inspection_ms) {
        be_due(due_ms, u->next_inspection_ms);
        return;
    }
    w->process = p;
    w->call = c->number;
    w->inspection = (struct sp_job_inspection){.call.fn = on_ports_inspected};
    for (uint32_t i = 0; i < u->count && w->inspection.port_count < SP_INSPECT_PORTS; i++)
        if (u->items[i].kind == SP_UNTIL_PORT)
            w->inspection.ports[w->inspection.port_count++] = u->items[i].port;
    w->is_asked = sp_job_inspect(&p->job, &w->inspection);
    u->is_blind = !w->is_asked;
    p->job_calls += w->is_asked;
}

static bool is_met(struct sp_call *c, uint64_t now_ms, uint64_t *ret_due_ms)
{
    const struct sp_exec_event too_slow = {
        .type = SP_EVENT_WARNING,
        .message = SP_STR("`until`: the pattern used too much CPU time, so the wait ended; use "
                          "fewer or smaller {m,n}")};
    struct sp_until_set *u = c->until;
    bool has_ports = false;

    if (u == NULL || !u->is_on)
        return false;
    for (uint32_t i = 0; i < u->count && u->woken_by < 0; i++) {
        has_ports |= u->items[i].kind == SP_UNTIL_PORT;
        if (u->items[i].kind != SP_UNTIL_QUIET)
            continue;
        const uint64_t at_ms = sp_later_ms(u->quiet_since_ms, u->items[i].quiet_ms);
        if (now_ms >= at_ms)
            u->woken_by = (int)i;
        else
            be_due(ret_due_ms, at_ms);
    }
    end_line(u, now_ms, ret_due_ms);
    if (u->is_late && !u->was_told && u->woken_by < 0) {
        u->was_told = true;
        sp_manager_event(c->m, &too_slow);
    }
    if (u->woken_by >= 0 || u->is_late)
        return true;
    if (has_ports)
        inspect_ports(c, now_ms, ret_due_ms);
    return false;
}

int sp_until_end(struct sp_call *c)
{
    struct sp_process *p = c->process;
    struct sp_call *const others[] = {p->initial, p->interaction};
    struct sp_until_set *u = c->until;
    int woken_by = -1;

    if (u != NULL && u->is_on) {
        /* The exit also ends the last line of the output. */
        for (uint32_t i = 0; i < u->count && u->woken_by < 0 && sp_process_has_exited(p); i++)
            if (u->items[i].kind == SP_UNTIL_EXIT ||
                (u->patterns[i] != NULL && !u->is_late && sp_ere_finish(u->patterns[i])))
                u->woken_by = (int)i;
        woken_by = u->woken_by;
    }
    for (int i = 0; i < 2; i++) {
        u = others[i] == NULL || others[i] == c ? NULL : others[i]->until;
        if (u == NULL || !u->is_on)
            continue;
        if (u->woken_by >= 0 && u->patterns[u->woken_by] != NULL)
            u->woken_by = -1;
        match_pending(u, &p->pending);
    }
    return woken_by;
}

/* ---- how long a call waits before it answers for a process that still runs ---- */

#define MIN_MS      250
#define MAX_MS      30000
#define MIN_POLL_MS 5000

static const struct yield {
    uint64_t usual_ms, min_ms, max_ms;
} yields[SP_YIELD_MAX] = {
    [SP_YIELD_EXEC] = {10000, MIN_MS, MAX_MS},
    [SP_YIELD_WRITE] = {250, MIN_MS, MAX_MS},
    [SP_YIELD_POLL] = {250, MIN_POLL_MS, 0}, /* the maximum is configured */
    [SP_YIELD_COMPAT] = {1000, 0, 60000},
};

uint64_t sp_yield_ms(enum sp_yield_kind kind, struct sp_yield_request request, uint64_t poll_max_ms)
{
    const struct yield *y = &yields[kind];
    const uint64_t poll_ms = poll_max_ms < MIN_POLL_MS ? MIN_POLL_MS : poll_max_ms;
    const uint64_t max_ms = kind == SP_YIELD_POLL ? poll_ms : y->max_ms;
    const uint64_t ms = request.has_yield_time ? request.yield_time_ms : y->usual_ms;

    return ms < y->min_ms ? y->min_ms : ms > max_ms ? max_ms : ms;
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

bool sp_call_is_done(struct sp_call *c)
{
    if (c->m->pauses != 0 && !c->is_hurried) {
        sp_loop_cancel(c->m->loop, &c->timer);
        return false;
    }

    /* The end of the process, the deadline, an impatient call behind this one, or a condition. If
     * none holds, the timer is set to the earliest moment at which one could. */
    const struct sp_process *p = c->process;
    const uint64_t now = sp_loop_now(c->m->loop);
    const bool is_stopped = c->m->is_clock_stopped;
    uint64_t due_ms = is_stopped ? UINT64_MAX : c->deadline_ms;

    if (p->life == SP_PROCESS_CLOSED || (now >= c->deadline_ms && !is_stopped) || c->is_due)
        return true;
    /* A poll ends early for a call behind it that has input, any call for one in a hurry. */
    if (p->interaction == c)
        sp_each_waiting(w, p)
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
    } else if (c->is_hurried || is_met(c, now, &due_ms)) {
        return true;
    }
    sp_call_wake_at(c, due_ms);
    return false;
}

/* ---- the clock of calls, while the caller stops it ---- */

/* From the later of both moments to now. */
static uint64_t time_since(uint64_t now_ms, uint64_t a_ms, uint64_t b_ms)
{
    const uint64_t from_ms = a_ms > b_ms ? a_ms : b_ms;

    return now_ms > from_ms ? now_ms - from_ms : 0;
}

void sp_manager_pause(struct sp_manager *m, bool is_paused)
{
    const uint64_t now_ms = sp_manager_clock_ms();

    if (is_paused) {
        if (m->pauses++ == 0)
            m->paused_from_ms = now_ms;
        return;
    }
    if (m->pauses == 0 || --m->pauses != 0)
        return;
    sp_each_call(c, &m->calls) {
        const uint64_t by = time_since(now_ms, c->from_ms, m->paused_from_ms);
        struct sp_until_set *u = c->until;

        if (c->is_collecting) {
            c->deadline_ms = sp_later_ms(c->deadline_ms, by);
            c->post_exit_ms = sp_later_ms(c->post_exit_ms, by);
            if (u != NULL && u->is_on) /* a silence does not count meanwhile */
                u->quiet_since_ms += time_since(now_ms, u->quiet_since_ms, m->paused_from_ms);
        }
        sp_call_changed(c);
    }
}

/* ---- requests of the caller ---- */

bool sp_manager_cancel(struct sp_manager *m, uint64_t call)
{
    sp_each_call(c, &m->calls)
        if (c->number == call) {
            c->is_cancelled = true;
            sp_call_changed(c);
            return true;
        }
    return false;
}

void sp_manager_interrupt(struct sp_manager *m)
{
    sp_each_call(c, &m->calls) {
        c->is_cancelled = true;
        sp_call_changed(c);
    }
}

void sp_manager_answer_now(struct sp_manager *m, uint64_t call)
{
    sp_each_call(c, &m->calls)
        if (c->number == call) {
            c->is_hurried = true;
            sp_call_changed(c);
        }
}

bool sp_manager_wait_on(struct sp_manager *m, uint64_t call)
{
    sp_each_call(c, &m->calls)
        if (c->number == call) {
            c->is_hurried = false;
            sp_call_changed(c);
            return true;
        }
    return false;
}

struct refused_call {
    struct sp_call call;
    struct sp_str text;
};

static void say_refused(struct sp_call *c)
{
    const struct sp_str text = SP_CONTAINER(c, struct refused_call, call)->text;
    const struct sp_reply r = {
        .fault = SP_FAULT_ARGUMENTS, .text = text, .error = text, .woken_by = -1};

    if (c->is_cancelled)
        sp_call_abort(c);
    else
        sp_call_finish(c, &r);
}

int sp_manager_refuse(struct sp_manager *m, struct sp_str text, sp_reply_fn *fn, void *user,
                      uint64_t *ret_call, struct sp_err *e)
{
    struct sp_call *call = NULL;
    const int r = sp_call_new(m, sizeof(struct refused_call), &call, e);

    if (call == NULL)
        return r;
    assert(call != NULL);
    call->step = say_refused;
    const bool is_kept =
        sp_arena_str(&call->keep, text, &SP_CONTAINER(call, struct refused_call, call)->text);
    return sp_call_begin(call, is_kept, fn, user, ret_call, e);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * until: conditions that end the wait of a call before its deadline: a pattern in the output, a
 * silence, an open port.
 *
 * A pattern sees every byte once, first the output pending when the wait begins. The condition met
 * first wakes the call; of two at the same moment, the one listed first. Matching runs in the loop
 * and blocks all other calls, so patterns that use too much CPU time end their wait.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/auto.h"
#include "base/ere.h"
#include "engine/manager_priv.h"

/* ---- the conditions ---- */

static bool keep_items(struct sp_call *c, struct sp_until_set *u, const struct sp_until *items)
{
    struct sp_until *copies = sp_arena_new(&c->keep, u->count * sizeof *copies);

    if (copies == NULL)
        return false;
    for (uint32_t i = 0; i < u->count; i++) {
        copies[i] = items[i];
        if (!sp_arena_str(&c->keep, items[i].pattern, &copies[i].pattern))
            return false;
    }
    u->items = copies;
    return true;
}

/* false: the error is in u->misuse. */
static bool compile_item(struct sp_until_set *u, uint32_t i)
{
    struct sp_err e = {0};

    if (u->items[i].kind == SP_UNTIL_PORT && u->items[i].port == 0) {
        (void)sp_fail(&u->misuse, SP_E_INVALID, 0,
                      "`until`: a `port` is between 1 and 65535; 0 is none");
        return false;
    }
    if (u->items[i].kind != SP_UNTIL_PATTERN)
        return true;
    if (sp_ere_new(u->items[i].pattern, &u->patterns[i], &e) == 0)
        return true;
    if (e.code == SP_E_SYSTEM)
        u->misuse = e;
    else
        (void)sp_fail(&u->misuse, SP_E_INVALID, 0, "`until`: `pattern` is no expression: %s",
                      e.msg);
    return false;
}

int sp_until_copy(struct sp_call *c, const struct sp_until *items, uint32_t count, struct sp_err *e)
{
    if (count == 0)
        return 0;
    struct sp_until_set *u = sp_arena_new(&c->keep, sizeof *u);
    if (u == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "begin a call");
    u->woken_by = -1;
    c->until = u;
    if (count > SP_UNTIL_COUNT_MAX) {
        (void)sp_fail(&u->misuse, SP_E_INVALID, 0, "`until`: %u conditions, and at most %d can be",
                      (unsigned)count, SP_UNTIL_COUNT_MAX);
        return 0;
    }
    u->count = count;
    if (!keep_items(c, u, items))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "begin a call");
    for (uint32_t i = 0; i < count && compile_item(u, i); i++)
        ;
    if (u->misuse.code == SP_E_SYSTEM)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "begin a call");
    return 0;
}

const char *sp_until_misuse(const struct sp_call *c)
{
    return c->until == NULL || c->until->misuse.code == SP_E_NONE ? NULL : c->until->misuse.msg;
}

void sp_until_done(struct sp_call *c)
{
    if (c->until == NULL)
        return;
    for (uint32_t i = 0; i < SP_UNTIL_COUNT_MAX; i++)
        sp_ere_free(c->until->patterns[i]);
    c->until = NULL;
}

static void be_due(uint64_t *due_ms, uint64_t at_ms)
{
    if (at_ms < *due_ms)
        *due_ms = at_ms;
}

/* ---- patterns ---- */

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

static void hear(struct sp_until_set *u, struct sp_str bytes)
{
    for (uint32_t i = 0; i < u->count && u->woken_by < 0 && bytes.n != 0; i++)
        if (u->patterns[i] != NULL && feed(u, u->patterns[i], bytes))
            u->woken_by = (int)i;
}

/* Whether the patterns exceeded their CPU time; warns once. */
static bool is_given_up(struct sp_call *c)
{
    struct sp_until_set *u = c->until;
    const struct sp_exec_event e = {
        .type = SP_EVENT_WARNING,
        .message = SP_STR("`until`: looking for its `pattern` takes too long, so the wait has "
                          "ended; a simpler expression does not: fewer and smaller repetitions "
                          "{m,n}")};

    if (u->is_late && !u->was_told && u->woken_by < 0) {
        u->was_told = true;
        sp_manager_event(c->m, &e);
    }
    return u->is_late;
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

static void hear_pending(struct sp_until_set *u, const struct sp_headtail *pending)
{
    struct sp_str head;
    struct sp_str tail[2];

    begin_line(u);
    sp_headtail_view(pending, &head, tail);
    hear(u, head);
    if (pending->omitted != 0)
        begin_line(u);
    hear(u, tail[0]);
    hear(u, tail[1]);
    u->is_line_open = true;
}

static void hear_in(struct sp_call *c, struct sp_str bytes)
{
    struct sp_until_set *u = c == NULL ? NULL : c->until;

    if (u == NULL || !u->is_on)
        return;
    u->quiet_since_ms = sp_manager_clock_ms();
    if (u->woken_by >= 0)
        return;
    hear(u, bytes);
    if (u->woken_by >= 0 || u->is_late || !u->is_line_open) /* the call must set its timer */
        sp_call_changed(c);
    u->is_line_open = true;
}

void sp_until_hear(struct sp_process *p, struct sp_str bytes)
{
    hear_in(p->initial, bytes);
    hear_in(p->interaction, bytes);
}

static void hear_again(struct sp_call *c, const struct sp_call *taker)
{
    struct sp_until_set *u = c == NULL || c == taker ? NULL : c->until;

    if (u == NULL || !u->is_on)
        return;
    if (u->woken_by >= 0 && u->patterns[u->woken_by] != NULL)
        u->woken_by = -1;
    hear_pending(u, &c->process->pending);
}

void sp_until_forget(struct sp_process *p, const struct sp_call *taker)
{
    hear_again(p->initial, taker);
    hear_again(p->interaction, taker);
}

/* ---- the wait ---- */

void sp_until_begin(struct sp_call *c)
{
    struct sp_until_set *u = c->until;

    if (u == NULL)
        return;
    u->is_on = true;
    u->woken_by = -1;
    u->quiet_since_ms = sp_manager_clock_ms();
    u->next_look_ms = 0;
    hear_pending(u, &c->process->pending);
}

void sp_until_shift(struct sp_call *c, uint64_t paused_from_ms, uint64_t now_ms)
{
    struct sp_until_set *u = c->until;

    if (u == NULL || !u->is_on)
        return;
    const uint64_t from = u->quiet_since_ms > paused_from_ms ? u->quiet_since_ms : paused_from_ms;
    if (now_ms > from)
        u->quiet_since_ms += now_ms - from;
}

/* ---- silence ---- */

static bool is_quiet(const struct sp_until_set *u, uint32_t i, uint64_t now_ms, uint64_t *due_ms)
{
    uint64_t at_ms;

    if (__builtin_add_overflow(u->quiet_since_ms, u->items[i].quiet_ms, &at_ms))
        return false;
    if (now_ms >= at_ms)
        return true;
    be_due(due_ms, at_ms);
    return false;
}

/* ---- ports ---- */

static void on_ports_inspected(struct sp_job_call *jc)
{
    struct sp_port_watch *w =
        SP_CONTAINER(SP_CONTAINER(jc, struct sp_job_look, call), struct sp_port_watch, look);
    struct sp_process *p = w->process;
    const struct sp_call *c = w == &p->watches[0] ? p->initial : p->interaction;
    struct sp_until_set *u;

    w->is_asked = false;
    p->asked--;
    sp_process_changed(p);
    if (c == NULL || c->number != w->call || c->until == NULL)
        return; /* the call was answered meanwhile */
    u = c->until;
    u->next_look_ms = sp_manager_clock_ms() + (p->is_remote ? SP_LOOK_FAR_MS : SP_LOOK_MS);
    if (jc->result != SP_JOB_OK || w->look.found.listening == 0)
        return;
    for (uint32_t i = 0; i < u->count && u->woken_by < 0; i++)
        if (u->items[i].kind == SP_UNTIL_PORT && u->items[i].port == w->look.found.listening)
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
    if (now_ms < u->next_look_ms) {
        be_due(due_ms, u->next_look_ms);
        return;
    }
    w->process = p;
    w->call = c->number;
    w->look = (struct sp_job_look){.call.fn = on_ports_inspected};
    for (uint32_t i = 0; i < u->count && w->look.port_count < SP_INSPECT_PORTS; i++)
        if (u->items[i].kind == SP_UNTIL_PORT)
            w->look.ports[w->look.port_count++] = u->items[i].port;
    w->is_asked = sp_job_look(&p->job, &w->look);
    u->is_blind = !w->is_asked;
    p->asked += w->is_asked;
}

/* ---- all conditions ---- */

bool sp_until_is_met(struct sp_call *c, uint64_t now_ms, uint64_t *ret_due_ms)
{
    struct sp_until_set *u = c->until;
    bool has_ports = false;

    if (u == NULL || !u->is_on)
        return false;
    for (uint32_t i = 0; i < u->count && u->woken_by < 0; i++) {
        has_ports |= u->items[i].kind == SP_UNTIL_PORT;
        if (u->items[i].kind == SP_UNTIL_QUIET && is_quiet(u, i, now_ms, ret_due_ms))
            u->woken_by = (int)i;
    }
    end_line(u, now_ms, ret_due_ms);
    if (u->woken_by >= 0 || is_given_up(c))
        return true;
    if (has_ports)
        inspect_ports(c, now_ms, ret_due_ms);
    return false;
}

int sp_until_woken_by(struct sp_call *c)
{
    struct sp_until_set *u = c->until;

    if (u == NULL || !u->is_on)
        return -1;
    /* The exit also ends the last line of the output. */
    for (uint32_t i = 0; i < u->count && u->woken_by < 0 && sp_process_has_exited(c->process); i++)
        if (u->items[i].kind == SP_UNTIL_EXIT ||
            (u->patterns[i] != NULL && !u->is_late && sp_ere_finish(u->patterns[i])))
            u->woken_by = (int)i;
    return u->woken_by;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ends the wait of a call before its deadline: a pattern in the output, a silence, a port.
 *
 * A pattern hears every byte once, as it comes in, and first what was pending when the wait began.
 * Whatever was met first is what woke the call; of two at one moment, the one that was named first.
 * Everybody waits while a pattern is looked for: one that takes too much time ends its wait.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "base/auto.h"
#include "base/ere.h"
#include "engine/manager_priv.h"

/* ---- the conditions ---- */

static bool keep_items(struct sp_call *c, struct sp_until_set *u, const struct sp_until *items)
{
    struct sp_until *copies = sp_keep_alloc(&c->keep, u->count * sizeof *copies);

    if (copies == NULL)
        return false;
    for (uint32_t i = 0; i < u->count; i++) {
        copies[i] = items[i];
        if (!sp_keep_str(&c->keep, items[i].pattern, &copies[i].pattern))
            return false;
    }
    u->items = copies;
    return true;
}

/* false: what is wrong with it is in the misuse. */
static bool make_item(struct sp_until_set *u, uint32_t i)
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
    struct sp_until_set *u = sp_keep_alloc(&c->keep, sizeof *u);
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
    for (uint32_t i = 0; i < count && make_item(u, i); i++)
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

#define SLICE_BYTES   4096      /* between two looks at the clock */
#define CPU_FREE_NS   500000000 /* for the patterns of a call, and besides ... */
#define CPU_NS_A_BYTE 100       /* ... for each byte that each of them hears; few need a tenth */

static uint64_t cpu_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* Linux has it */
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

static bool feed(struct sp_until_set *u, struct sp_ere *pattern, struct sp_str bytes)
{
    bool is_found = false;

    while (bytes.n != 0 && !is_found && !u->is_late) {
        const struct sp_str slice = {bytes.p, bytes.n < SLICE_BYTES ? bytes.n : SLICE_BYTES};
        const uint64_t from_ns = cpu_ns();

        is_found = sp_ere_feed(pattern, slice);
        u->allowed_ns += slice.n * CPU_NS_A_BYTE;
        u->spent_ns += cpu_ns() - from_ns;
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

/* It waits no longer, and says why. */
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

/* What comes next has no connection with what was heard. */
static void begin_line(struct sp_until_set *u)
{
    for (uint32_t i = 0; i < u->count; i++)
        if (u->patterns[i] != NULL)
            sp_ere_reset(u->patterns[i]);
}

/* A prompt ends no line, but it is an end: nothing comes behind it until somebody types. */
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
    if (u->woken_by >= 0 || u->is_late || !u->is_line_open) /* its timer is to be set */
        sp_call_changed(c);
    u->is_line_open = true;
}

void sp_until_hear(struct sp_process *p, struct sp_str bytes)
{
    hear_in(p->initial, bytes);
    hear_in(p->interaction, bytes);
}

static void forget(struct sp_call *c, const struct sp_call *taker)
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
    forget(p->initial, taker);
    forget(p->interaction, taker);
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

static struct sp_port_watch *watch_of(const struct sp_call *c)
{
    return &c->process->watches[c->process->initial == c ? 0 : 1];
}

static void note_port(struct sp_until_set *u, uint16_t port)
{
    for (uint32_t i = 0; i < u->count && u->woken_by < 0; i++)
        if (u->items[i].kind == SP_UNTIL_PORT && u->items[i].port == port)
            u->woken_by = (int)i;
}

static void on_looked(struct sp_job_call *jc)
{
    struct sp_port_watch *w =
        SP_CONTAINER(SP_CONTAINER(jc, struct sp_job_look, call), struct sp_port_watch, look);
    struct sp_process *p = w->process;
    const struct sp_call *c = w == &p->watches[0] ? p->initial : p->interaction;

    w->is_asked = false;
    p->asked--;
    sp_process_changed(p);
    if (c == NULL || c->number != w->call || c->until == NULL)
        return; /* whoever asked is gone */
    c->until->next_look_ms = sp_manager_clock_ms() + (p->is_remote ? SP_LOOK_FAR_MS : SP_LOOK_MS);
    if (jc->result == SP_JOB_OK && w->look.found.listening != 0)
        note_port(c->until, w->look.found.listening);
}

static uint32_t list_ports(const struct sp_until_set *u, uint16_t ports[SP_LOOK_PORTS])
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < u->count && count < SP_LOOK_PORTS; i++)
        if (u->items[i].kind == SP_UNTIL_PORT)
            ports[count++] = u->items[i].port;
    return count;
}

/* A look that somebody before this call has asked for is waited for first. */
static void look_at_ports(struct sp_call *c, uint64_t now_ms, uint64_t *due_ms)
{
    struct sp_port_watch *w = watch_of(c);
    struct sp_until_set *u = c->until;

    if (w->is_asked || u->is_blind || !sp_process_can_ask(c->process))
        return;
    if (now_ms < u->next_look_ms) {
        be_due(due_ms, u->next_look_ms);
        return;
    }
    w->process = c->process;
    w->call = c->number;
    w->look = (struct sp_job_look){.call.fn = on_looked};
    w->look.port_count = list_ports(u, w->look.ports);
    w->is_asked = sp_job_look(&c->process->job, &w->look);
    u->is_blind = !w->is_asked;
    c->process->asked += w->is_asked;
}

/* ---- all of them ---- */

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
        look_at_ports(c, now_ms, ret_due_ms);
    return false;
}

/* The end of the process is the end of its last line, too. */
static bool ends_with(const struct sp_until_set *u, uint32_t i)
{
    return u->items[i].kind == SP_UNTIL_EXIT ||
           (u->patterns[i] != NULL && !u->is_late && sp_ere_finish(u->patterns[i]));
}

int sp_until_woken_by(struct sp_call *c)
{
    struct sp_until_set *u = c->until;

    if (u == NULL || !u->is_on)
        return -1;
    for (uint32_t i = 0; i < u->count && u->woken_by < 0 && sp_process_has_exited(c->process); i++)
        if (ends_with(u, i))
            u->woken_by = (int)i;
    return u->woken_by;
}

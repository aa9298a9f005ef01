/* SPDX-License-Identifier: Apache-2.0 */
#include "core/proc.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "cell/wire.h"
#include "core/ended.h"
#include "core/held.h"
#include "core/history.h"
#include "core/observer.h"
#include "core/records.h"
#include "core/session.h"
#include "os/host_limits.h"
#include "os/inspect.h"
#include "os/spawn.h"
#include "sandbox/plan.h"

/* How long the loop polls for an event that usually comes soon, see sp_loop_expect. */
#define ECHO_US  100  /* output of a program that got input */
#define START_US 300  /* the answer to a start */
#define LIFE_US  1000 /* the exit of a short command */

#define DEFAULT_ROWS 24 /* as the cell makes a terminal without a given size */
#define DEFAULT_COLS 80

#define SURVEY_WAIT_MS 10000 /* deadline for the survey of a sandbox policy */
#define ANSWER_MS      30000 /* deadline for the cell's answer; the cell's own deadline is shorter */

#define MAX_TRIES 8 /* of a start, when the disk changes under its sandbox */

/* ---- waiters ---- */

/* `next` NULL: at the end. */
static void insert_before(struct sp_waiters *l, struct sp_waiter *next, struct sp_waiter *w)
{
    w->list = l;
    w->next = next;
    w->prev = next != NULL ? next->prev : l->last;
    *(w->prev != NULL ? &w->prev->next : &l->first) = w;
    *(next != NULL ? &next->prev : &l->last) = w;
    l->count++;
}

void sp_waiters_add(struct sp_waiters *l, struct sp_waiter *w)
{
    insert_before(l, NULL, w);
}

void sp_waiters_add_first(struct sp_waiters *l, struct sp_waiter *w)
{
    insert_before(l, l->first, w);
}

void sp_waiters_remove(struct sp_waiter *w)
{
    struct sp_waiters *l = w->list;

    if (l == NULL)
        return;
    *(w->prev != NULL ? &w->prev->next : &l->first) = w->next;
    *(w->next != NULL ? &w->next->prev : &l->last) = w->prev;
    l->count--;
    w->list = NULL;
}

void sp_waiters_wake(struct sp_waiters *l)
{
    for (unsigned n = l->count; n > 0 && l->first != NULL; n--) {
        struct sp_waiter *w = l->first;

        sp_waiters_remove(w);
        w->fn(w);
    }
}

void sp_waiters_wake_in_turn(struct sp_waiters *l)
{
    while (l->first != NULL) {
        struct sp_waiter *w = l->first;

        sp_waiters_remove(w);
        w->fn(w);
        if (l->first == w)
            return;
    }
}

/*
 * ---- the log ----
 *
 * The cell writes the log into a ring that the front maps (cell/ring.h); a record (core/past.h) has
 * a copy of it. p->tail is the end of what the front has parsed, p->state what it knows from that.
 * When the cell is gone or has broken the format, the log ends with records that are made up here:
 * EXITED with code -1, and CLOSED.
 */

/* The exit of a process whose real one will not be known. */
static struct sp_exit made_up_exit(const struct sp_proc *p, enum sp_end_reason reason)
{
    const int64_t ms = (int64_t)sp_clock_unix_ms() - p->started_ms;

    return (struct sp_exit){
        .code = -1, .reason = reason, .wall_us = ms > 0 ? (uint64_t)ms * 1000 : 0};
}

static void make_up_end(struct sp_proc *p, enum sp_end_reason reason)
{
    if (p->is_lost)
        return;
    p->is_lost = true;
    p->last_real_seq = p->tail.seq;
    if (p->state.exit_seq == 0) {
        p->state.exit = made_up_exit(p, reason);
        p->state.exit_seq = ++p->tail.seq;
    }
    if (p->state.closed_seq == 0)
        p->state.closed_seq = ++p->tail.seq;
}

static void fail_ring(struct sp_proc *p)
{
    sp_log(SP_LOG_ERROR, "process " SP_STR_FMT ": its output ring is broken", SP_STR_ARG(p->id));
    (void)sp_cell_send(&p->seat, SP_WIRE_TERMINATE, 0, 0, 0);
    make_up_end(p, SP_END_LOST);
}

/* Called once, when the exit is first seen: output before the EXITED record counts, later output
 * does not. */
static void judge_denial(struct sp_proc *p)
{
    const struct sp_exit *how = &p->state.exit;
    struct sp_denial_facts d = {0};
    struct sp_ring_cursor c = {0};
    struct sp_denial words;
    struct sp_record r;

    if (!p->is_confined || how->code == 0)
        return;
    sp_denial_init(&words);
    while (c.seq < p->state.exit_seq && sp_log_next(&p->view, &c, &r) > 0)
        if (r.type == SP_RECORD_OUTPUT && r.seq < p->state.exit_seq)
            sp_denial_feed(&words, r.stream, r.data, r.len);
    /* A command with a managed network that tries an address is told so by the missing route, and
     * gets the hosts that it names; a run without a sandbox is not the remedy. */
    d.has_evidence = how->refusal_count > 0 || (how->left_network > 0 && p->net.managed == NULL) ||
                     how->signal == SIGSYS;
    d.has_words = sp_denial_is_likely(true, how->code, &words);
    d.reason = d.has_words ? sp_denial_reason(&words, how->code) : NULL;
    memcpy(d.path, words.path, sizeof d.path);
    p->was_denied = d.has_evidence || d.has_words;
    p->denial = p->was_denied ? malloc(sizeof d) : NULL;
    if (p->denial != NULL) /* out of memory: report the denial without details */
        *p->denial = d;
}

static void refresh(struct sp_proc *p)
{
    if (p->is_lost || p->view.ring.head == NULL)
        return;

    const bool had_exited = p->state.exit_seq != 0;
    const uint64_t bytes = p->tail.bytes;
    const uint64_t dropped = p->state.dropped_bytes;
    struct sp_front_stats *stats = &p->session->front->stats;
    if (sp_ring_catch_up(&p->view.ring, &p->tail, &p->state) < 0) {
        fail_ring(p);
        return;
    }
    if (!had_exited && p->state.exit_seq != 0)
        judge_denial(p);
    if (p->state.exit_seq != 0)
        sp_proc_limits_judge(p);
    if (p->tail.bytes != bytes)
        sp_output_times_note(&p->times, p->tail.seq, (int64_t)sp_clock_unix_ms());
    stats->output_bytes += p->tail.bytes - bytes;
    stats->dropped_bytes += p->state.dropped_bytes - dropped;
}

/* ---- pages ---- */

int sp_proc_page(struct sp_proc *p, uint64_t after_seq, uint64_t max_bytes, struct sp_page *ret)
{
    struct sp_ring_cursor c = {0};

    refresh(p);
    /* Reads are mostly sequential: start at the last page instead of at the oldest record. */
    if (p->page_end.seq <= after_seq)
        c = p->page_end;
    else if (p->page_start.seq <= after_seq)
        c = p->page_start;
    struct sp_ring_cursor before = c;
    struct sp_page page = {.after = after_seq < p->tail.seq ? c : p->tail, .from = c};
    struct sp_record r;
    int more = 0;

    while (after_seq < p->tail.seq && c.seq < p->tail.seq &&
           (more = sp_log_next(&p->view, &c, &r)) > 0) {
        const bool is_chunk = r.type == SP_RECORD_OUTPUT && r.seq > after_seq;

        if (is_chunk && page.chunks > 0 && page.bytes + r.len > max_bytes)
            break;
        if (is_chunk) {
            if (page.chunks == 0)
                page.from = before;
            page.chunks++;
            page.bytes += r.len;
            page.last_seq = r.seq;
        }
        if (r.seq <= after_seq)
            page.after = c;
        before = c;
        if (page.chunks > 0 && page.bytes >= max_bytes)
            break;
    }
    if (more < 0)
        return more;
    p->page_start = page.from;
    p->page_end = before;
    page.next_seq =
        max_bytes != UINT64_MAX && page.chunks > 0 ? page.last_seq + 1 : sp_proc_next_seq(p);
    page.end = page.next_seq > p->tail.seq ? p->tail : before;
    *ret = page;
    return 0;
}

/* ---- records ---- */

int sp_proc_next(struct sp_proc *p, struct sp_ring_cursor *at, struct sp_record *ret)
{
    if (p->past != NULL)
        return sp_log_next(&p->view, at, ret);
    if (p->view.ring.head != NULL && (!p->is_lost || at->seq < p->last_real_seq)) {
        const int r = sp_log_next(&p->view, at, ret);

        if (r > 0 && ret->type == SP_RECORD_EXITED && p->state.exit_seq == 0)
            refresh(p); /* written after the last refresh: was_denied must be known first */
        if (r > 0)
            return 1;
        if (r < 0 && !p->is_lost)
            fail_ring(p);
    }
    if (!p->is_lost || at->seq >= p->tail.seq)
        return 0;
    /* The made-up end. Real records that cannot be read any more are skipped. */
    if (at->seq < p->last_real_seq)
        at->seq = p->last_real_seq;
    const bool is_exit = at->seq + 1 == p->state.exit_seq;
    *ret = (struct sp_record){
        .seq = ++at->seq,
        .bytes_before = p->tail.bytes,
        .type = is_exit ? SP_RECORD_EXITED : SP_RECORD_CLOSED,
        .len = is_exit ? sizeof p->state.exit : 0,
        .data = (const uint8_t *)&p->state.exit,
    };
    return 1;
}

/* ---- what the owner has read ---- */

/* The cell pauses a process that is too far ahead of its owner, and is woken here. A ring with a
 * share has lower marks: the cell knows them. */
static void tell_served(struct sp_proc *p, bool is_owned)
{
    if (p->seat.cell == NULL)
        return;
    struct sp_bell *bell = &p->seat.cell->bell;
    const struct sp_served served = {.sent = p->sent.pos, .confirmed = p->confirmed_pos};
    sp_bell_serve(bell, p->seat.slot, is_owned, served);
    const bool may_go_on = !is_owned ||
                           (p->tail.pos <= served.sent + SP_RING_LOW_WATER &&
                            p->tail.pos <= served.confirmed + SP_RING_UNREAD_LOW_WATER) ||
                           atomic_load(sp_bell_share(bell, p->seat.slot)) != 0;
    if (may_go_on && p->view.ring.head != NULL && sp_ring_is_paused(&p->view.ring)) {
        sp_bell_mark(bell, p->seat.slot);
        sp_bell_wake(bell);
    }
}

static void confirm_sent(struct sp_proc *p)
{
    p->confirmed_seq = p->sent.seq;
    p->confirmed_pos = p->sent.pos;
    p->unmarked = 0;
}

void sp_proc_sent(struct sp_proc *p)
{
    tell_served(p, true);
    sp_proc_settle(p);
}

void sp_proc_served(struct sp_proc *p)
{
    confirm_sent(p);
    tell_served(p, true);
    sp_proc_settle(p);
}

void sp_proc_confirm(struct sp_proc *p, uint64_t seq, uint64_t pos)
{
    if (seq > p->sent.seq) {
        seq = p->sent.seq;
        pos = p->sent.pos;
    }
    if (p->is_held) {
        if (seq > p->held.read_seq) {
            p->held.read_seq = seq;
            p->held.read_pos = pos;
        }
    } else if (seq > p->confirmed_seq) {
        p->confirmed_seq = seq;
        if (pos > p->confirmed_pos)
            p->confirmed_pos = pos;
        tell_served(p, true);
    }
    sp_proc_settle(p);
}

void sp_proc_set_owned(struct sp_proc *p, bool is_owned)
{
    if (p->is_restored)
        return; /* the page has the position of the last owner: on_found */
    if (is_owned) {
        refresh(p);
        p->sent = p->tail;
        p->unmarked = 0;
        if (!p->is_held)
            confirm_sent(p);
        p->held.end_seq = p->tail.seq;
        p->held.end_pos = p->tail.pos;
    }
    tell_served(p, is_owned || p->is_held);
    sp_proc_settle(p);
}

/* Reads new records, moves p->life along, and tells the client, observers and parked reads. */
static void on_news(struct sp_seat *seat)
{
    struct sp_proc *p = SP_CONTAINER(seat, struct sp_proc, seat);
    struct sp_front *front = p->session->front;

    if (p->life == SP_PROC_STARTING)
        return; /* the ring can be read from the answer to the start on */
    refresh(p);
    if (p->life == SP_PROC_RUNNING && p->state.exit_seq != 0) {
        p->life = SP_PROC_EXITED;
        p->ended_ms = (int64_t)sp_clock_unix_ms();
        uint64_t *result = p->is_lost                ? &front->stats.finished_lost
                           : p->was_terminated       ? &front->stats.finished_terminated
                           : p->state.exit.code == 0 ? &front->stats.finished_ok
                                                     : &front->stats.finished_error;
        (*result)++;
        sp_input_process_ended(&p->input, p->was_terminated);
        sp_managed_exited(p);
    }
    if (p->life == SP_PROC_EXITED && p->state.closed_seq != 0) {
        p->life = SP_PROC_CLOSED;
        sp_managed_closed(p);
        sp_proc_limits_done(p);
        if (front->options.closed != NULL)
            front->options.closed(front->options.user, p);
        sp_cell_note_closed(&p->seat);
        front->stats.live--;
        p->session->live--;
    }
    if (p->session->client != NULL)
        p->session->client->news(p->session->client, p);
    sp_list_each_safe(i, &p->observers) {
        struct sp_observer *o = SP_CONTAINER(i, struct sp_observer, link);

        o->ops->news(o);
    }
    sp_waiters_wake(&p->on_news);
    sp_proc_settle(p);
}

static void count_starting(struct sp_proc *p, int change);

/* The start is answered, or needs no answer any more. */
static void note_running(struct sp_proc *p)
{
    p->start_wait = NULL;
    p->is_answered = true;
    p->is_restored = false;
    sp_loop_cancel(p->session->front->loop, &p->life_timer);
    count_starting(p, -1);
    p->life = SP_PROC_RUNNING;
}

/* All it takes to request a start again: a new confined cell may find that the disk has changed
 * since the survey, and an open cell may have no descriptors left. */
struct sp_kept_start {
    struct sp_proc *proc;
    struct sp_cell_request request;
    struct sp_policy policy; /* of a confined start */
    struct sp_wire_start m;
    struct sp_buf strings;
    int tries;
};

static void forget_kept_start(struct sp_proc *p)
{
    if (p->kept_start == NULL)
        return;
    sp_surveyor_cancel(&p->kept_start->request.survey);
    sp_policy_done(&p->kept_start->policy);
    sp_buf_done(&p->kept_start->strings);
    free(p->kept_start);
    p->kept_start = NULL;
}

static int start_in(struct sp_proc *p, struct sp_cell *cell, struct sp_wire_start *m,
                    const struct sp_buf *strings, struct sp_err *e);
static void set_deadline(struct sp_proc *p, uint64_t ms, void (*fn)(struct sp_timer *));
static void fail_start(struct sp_proc *p, const struct sp_err *e);
static int request_pool_cell(struct sp_proc *p, struct sp_err *e);

static void on_lost(struct sp_seat *seat, const struct sp_err *why)
{
    struct sp_proc *p = SP_CONTAINER(seat, struct sp_proc, seat);
    struct sp_err e = {0};

    if (p->is_restored)
        note_running(p); /* its cell died before it could tell: it may have run */
    if (p->life == SP_PROC_STARTING) {
        e = *why;
        /* SP_E_STATE (sp_cell_explain): the disk changed since the survey, a new one may do. */
        struct sp_kept_start *a = p->kept_start;
        if (why->code == SP_E_STATE && a != NULL && ++a->tries <= MAX_TRIES) {
            sp_cell_forget(&p->seat);
            sp_managed_leave(p);
            if (request_pool_cell(p, &e) == 0)
                return;
        }
        if (e.code == SP_E_STATE)
            e.code = SP_E_INVALID; /* MAX_TRIES are used up */
        if (why->code == SP_E_NONE)
            (void)sp_fail(&e, SP_E_FAILED, 0, "the cell was lost; try again");
        fail_start(p, &e);
        return;
    }
    refresh(p);
    make_up_end(p, SP_END_LOST);
    for (struct sp_waiter *w = p->on_done.first; w != NULL; w = w->next)
        SP_CONTAINER(w, struct sp_proc_call, waiter)->err = EIO;
    sp_waiters_wake(&p->on_done);
    on_news(seat);
    sp_cell_forget(seat); /* the cell is freed after this */
}

/* ---- starting ---- */

/* Polling makes one command after another a little faster, and takes five times their processor
 * time: on request only. */
static void expect_if_alone(struct sp_proc *p, uint32_t us)
{
    struct sp_front *front = p->session->front;

    if (front->stats.live == 1 && sp_loop_busy_poll(front->loop)->mode == SP_BUSY_POLL_ON)
        sp_loop_expect(front->loop, us);
}

static void count_starting(struct sp_proc *p, int change)
{
    struct sp_session *s = p->session;
    const bool was_starting = sp_session_is_starting(s);

    s->starting += (uint32_t)change;
    s->front->starting += (uint32_t)change;
    if (s->client != NULL && s->client->pressed != NULL &&
        sp_session_is_starting(s) != was_starting)
        s->client->pressed(s->client);
}

static void fail_start(struct sp_proc *p, const struct sp_err *e)
{
    struct sp_start_wait *w = p->start_wait;

    p->start_wait = NULL;
    p->is_answered = true;
    count_starting(p, -1);
    p->session->front->stats.failed_starts++;
    if (w != NULL)
        w->done(w, NULL, e);
    sp_proc_free(p);
}

static void on_no_answer(struct sp_timer *t)
{
    struct sp_proc *p = SP_CONTAINER(t, struct sp_proc, life_timer);
    struct sp_err e = {0};

    sp_cell_suspect(&p->seat, ANSWER_MS / 1000, &e);
    if (p->session->front->options.kills_silent_cells) {
        sp_cell_abandon(p->seat.cell);
        (void)sp_fail(&e, SP_E_FAILED, 0, "process cell does not answer");
    }
    fail_start(p, &e);
}

static void on_no_survey(struct sp_timer *t)
{
    struct sp_proc *p = SP_CONTAINER(t, struct sp_proc, life_timer);
    struct sp_err e = {0};

    (void)sp_fail(&e, SP_E_FAILED, 0,
                  "failed to prepare process sandbox: a file system that its policy names did not "
                  "answer for %d s",
                  SURVEY_WAIT_MS / 1000);
    fail_start(p, &e);
}

/* Names the limit of the host that a start has met. false: none. */
static bool explain_limit(const struct sp_proc *p, const struct sp_wire_started *m,
                          struct sp_err *e)
{
    const bool is_terminal = p->is_tty && m->err == ENOSPC && m->step == SP_STEP_STDIO;
    const bool is_process = m->err == EAGAIN && m->step == SP_STEP_CLONE;
    const struct sp_host_limit l = sp_host_limit_read(is_terminal  ? SP_HOST_LIMIT_TERMINALS
                                                      : is_process ? SP_HOST_LIMIT_PIDS
                                                                   : SP_HOST_LIMIT_FILES);

    if (!is_terminal && !is_process && m->err != EMFILE)
        return false;
    (void)sp_fail(e, SP_E_SYSTEM, m->err, "no %s left (%s = %llu%s)",
                  is_terminal  ? "terminal"
                  : is_process ? "process"
                               : "descriptor",
                  l.name, (unsigned long long)l.value,
                  is_process ? ", or a lower limit of the user or the cgroup" : "");
    return true;
}

/* Steps of the sandbox are reported as such; CWD and EXEC are the command's own errors. */
static void explain_start(const struct sp_proc *p, const struct sp_wire_started *m,
                          struct sp_err *e)
{
    const bool is_cwd = m->step == SP_STEP_CWD;
    const char *cwd = p->strings.data; /* the file follows it */
    const char *file = cwd + strlen(cwd) + 1;

    if (explain_limit(p, m, e))
        return;
    if (m->err == ETIMEDOUT && (is_cwd || m->step == SP_STEP_EXEC))
        (void)sp_fail(e, SP_E_SYSTEM, m->err,
                      "%s %s: its file system did not answer for %d s (os error %d)",
                      is_cwd ? "working directory" : "program", is_cwd ? cwd : file,
                      SP_START_DEADLINE_MS / 1000, m->err);
    else if (m->err == EBUSY && m->step == SP_STEP_PREPARE)
        (void)sp_fail(e, SP_E_FAILED, 0,
                      "%d earlier starts still wait for a file system that does not answer",
                      SP_MAX_PENDING);
    else if (m->step == SP_STEP_PROGRAM)
        (void)sp_fail(e, SP_E_FAILED, 0,
                      "%.200s is not the file that was allowed to run: %s; run the command again",
                      file, m->err == ESTALE ? "it was replaced" : sp_errno_text(m->err));
    else if (p->is_confined && !is_cwd && m->step != SP_STEP_EXEC)
        (void)sp_fail(e, SP_E_INVALID, 0, "failed to prepare process sandbox: %s: %s",
                      sp_step_name(m->step), sp_errno_text(m->err));
    else
        (void)sp_fail(e, SP_E_SYSTEM, m->err, "%s (os error %d)", sp_errno_text(m->err), m->err);
}

/* The descriptor table of its open cell is full: one more try, in another cell. */
static bool start_elsewhere(struct sp_proc *p)
{
    struct sp_kept_start *a = p->kept_start;
    const struct sp_cell *full = p->seat.cell;
    struct sp_cell *other;

    if (p->is_confined || a == NULL || a->tries++ > 0)
        return false;
    sp_cell_forget(&p->seat);
    if (sp_front_cell(p->session->front, p->session, full, &other, NULL) < 0 ||
        start_in(p, other, &a->m, &a->strings, NULL) < 0)
        return false;
    set_deadline(p, ANSWER_MS, on_no_answer);
    return true;
}

static bool on_log_made(struct sp_input *in, int log_fd)
{
    return sp_cell_send_input_log(&SP_CONTAINER(in, struct sp_proc, input)->seat, log_fd) == 0;
}

static void on_started(struct sp_seat *seat, const struct sp_wire_started *m, int input_fd)
{
    struct sp_proc *p = SP_CONTAINER(seat, struct sp_proc, seat);
    struct sp_start_wait *w = p->start_wait;
    struct sp_err e = {0};
    auto_close int input = input_fd;

    if (m->err == EMFILE && m->step != SP_STEP_NONE && start_elsewhere(p))
        return;
    if (m->step != SP_STEP_NONE)
        explain_start(p, m, &e);
    else if (sp_ring_slots_view(&seat->cell->slots, seat->slot, seat->number, &p->view.ring, &e) ==
             0)
        e.code = SP_E_NONE;
    if (e.code != SP_E_NONE) {
        fail_start(p, &e);
        return;
    }
    note_running(p);
    forget_kept_start(p);
    p->pid = m->pid;
    p->leaf = m->leaf_number;
    p->terminal = p->is_tty ? m->terminal : -1;
    memcpy(p->outputs, m->outputs, sizeof p->outputs);
    if (input >= 0) {
        p->input.state = SP_INPUT_OPEN;
        p->input.fd = TAKE_FD(input);
        p->input.log_made = seat->cell->key != 0 ? on_log_made : NULL;
    }
    p->session->front->stats.started++;
    sp_proc_limits_started(p);
    tell_served(p, p->session->client != NULL); /* the client may have changed meanwhile */
    /* The answer first, then the requests that waited for it, then records: a client knows the
     * process before it hears of it. None of these calls frees p. */
    if (w != NULL)
        w->done(w, p, NULL);
    sp_waiters_wake(&p->waits_for_start);
    expect_if_alone(p, LIFE_US);
    on_news(seat); /* a short command may have ended already */
}

static void on_done(struct sp_seat *seat, uint64_t token, int err)
{
    struct sp_proc *p = SP_CONTAINER(seat, struct sp_proc, seat);

    for (struct sp_waiter *w = p->on_done.first; w != NULL; w = w->next) {
        struct sp_proc_call *c = SP_CONTAINER(w, struct sp_proc_call, waiter);

        if (c->token != token)
            continue;
        c->err = err;
        sp_waiters_remove(w);
        w->fn(w);
        return;
    }
}

static void on_denied(struct sp_seat *seat)
{
    struct sp_proc *p = SP_CONTAINER(seat, struct sp_proc, seat);

    p->has_left_network = true;
    sp_proc_mark(p, SP_MARK_LEFT_NETWORK, true);
    if (p->session->client != NULL)
        p->session->client->news(p->session->client, p);
}

bool sp_proc_denial(const struct sp_proc *p, uint32_t i, struct sp_net_denial *ret)
{
    if (p->net.managed != NULL || p->net.receipt != NULL)
        return sp_managed_denial(p, i, ret);
    *ret = (struct sp_net_denial){0};
    return i == 0 && p->has_left_network;
}

static bool on_placed(struct sp_seat *seat)
{
    return sp_proc_write_record(SP_CONTAINER(seat, struct sp_proc, seat));
}

static void on_found(struct sp_seat *seat, const struct sp_wire_item *item, int input_fd,
                     int log_fd);
static void on_missing(struct sp_seat *seat);

static const struct sp_seat_ops seat_ops = {
    .placed = on_placed,
    .found = on_found,
    .missing = on_missing,
    .started = on_started,
    .news = on_news,
    .denied = on_denied,
    .done = on_done,
    .lost = on_lost,
};

static void has_room(struct sp_input *in)
{
    sp_waiters_wake_in_turn(&SP_CONTAINER(in, struct sp_proc, input)->on_room);
}

/* A kept cell has a copy of a stdin pipe. */
static void on_input_closed(struct sp_input *in)
{
    const struct sp_proc *p = SP_CONTAINER(in, struct sp_proc, input);

    if (!p->is_tty)
        sp_cell_close_input(&p->seat);
}

static bool add_string(struct sp_buf *b, struct sp_str s)
{
    return sp_buf_add_str(b, s) && sp_buf_add(b, "", 1);
}

void sp_proc_release(struct sp_proc *p)
{
    forget_kept_start(p);
    sp_proc_limits_done(p);
    sp_managed_done(p);
    free(p->limits.hits);
    free(p->denial);
    sp_output_times_done(&p->times);
    sp_ring_view_close(&p->view.ring);
    sp_input_done(&p->input);
    sp_buf_done(&p->strings);
    free((void *)(uintptr_t)p->id.p);
    free((void *)(uintptr_t)p->label.p);
    free(p->name);
    free(p);
}

/* The profile `disabled` runs in the open cell, too, with no_new_privs. */
static bool is_open(const struct sp_start *o)
{
    return o->policy == NULL || o->policy->profile.kind == SP_PROFILE_DISABLED;
}

static enum sp_proc_network network_of(const struct sp_start *o)
{
    if (is_open(o) || o->policy->profile.has_network)
        return SP_PROC_NETWORK_HOST;
    return o->policy->profile.managed != NULL ? SP_PROC_NETWORK_MANAGED : SP_PROC_NETWORK_NONE;
}

static bool keep_start(struct sp_proc *p, const struct sp_policy *policy,
                       const struct sp_wire_start *m, struct sp_buf *strings)
{
    struct sp_kept_start *a = calloc(1, sizeof *a);

    if (a == NULL || (policy != NULL && !sp_policy_copy(policy, &a->policy))) {
        free(a);
        return false;
    }
    a->proc = p;
    a->m = *m;
    a->m.flags &= ~(uint32_t)SP_START_MEMFD; /* sp_cell_start sets it, for each sending anew */
    a->strings = *strings;
    *strings = (struct sp_buf){0};
    p->kept_start = a;
    return true;
}

static int start_in(struct sp_proc *p, struct sp_cell *cell, struct sp_wire_start *m,
                    const struct sp_buf *strings, struct sp_err *e)
{
    if (p->is_tty && cell->tier == SP_TIER_THIN)
        return sp_fail(e, SP_E_INVALID, 0,
                       "sandbox intent cannot be enforced on this executor: without namespaces a "
                       "sandbox has no terminals of its own; see `sallyport doctor`");
    struct sp_managed *network = cell->options.managed;
    int r = network == NULL ? 0 : sp_managed_check(network, e);
    p->tier = cell->tier;
    if (r < 0)
        return r;
    /* First, so that the proxy is told to forget verdicts for others before the command runs. */
    if (network != NULL)
        sp_managed_join(network, p);
    r = sp_cell_start(cell, &p->seat, m, strings, p->limits.leaf, p->session->client != NULL, e);
    if (r < 0)
        sp_managed_leave(p);
    return r;
}

static void set_deadline(struct sp_proc *p, uint64_t ms, void (*fn)(struct sp_timer *))
{
    struct sp_loop *loop = p->session->front->loop;

    (void)sp_loop_timer(loop, &p->life_timer, sp_loop_now(loop) + ms, fn);
}

/* cell NULL: *e says why there is none. */
static void on_pool_cell(struct sp_cell_request *request, struct sp_cell *cell, struct sp_err *e)
{
    struct sp_kept_start *a = SP_CONTAINER(request, struct sp_kept_start, request);
    struct sp_proc *p = a->proc;

    if (cell != NULL && start_in(p, cell, &a->m, &a->strings, e) == 0)
        set_deadline(p, ANSWER_MS, on_no_answer);
    else
        fail_start(p, e);
}

/* The start goes on in on_pool_cell, once the policy was surveyed. */
static int request_pool_cell(struct sp_proc *p, struct sp_err *e)
{
    struct sp_kept_start *a = p->kept_start;

    a->request.done = on_pool_cell;
    set_deadline(p, SURVEY_WAIT_MS, on_no_survey);
    return sp_cell_pool_request(p->session->front->cell_pool, p->session->number, &a->policy,
                                &a->request, e);
}

static int request_start(struct sp_proc *p, const struct sp_start *o, struct sp_err *e)
{
    struct sp_front *front = p->session->front;
    auto_buf struct sp_buf strings = {0};
    struct sp_wire_start m = {
        .session = p->session->number,
        .flags = (o->is_tty ? SP_START_TTY : 0U) | (o->wants_stdin ? SP_START_STDIN : 0U) |
                 (o->policy != NULL ? SP_START_NO_NEW_PRIVS : 0U),
        .rows = o->rows,
        .cols = o->cols,
        .argc = o->argc,
        .envc = o->envc,
        .dev = o->dev,
        .ino = o->ino,
    };
    struct sp_cell *cell = NULL;

    if (sp_proc_limits_begin(p, &o->limits, &m, e) < 0)
        return -(int)e->code;
    if (!sp_buf_add(&strings, p->strings.data, p->strings.len) ||
        !sp_buf_add(&strings, o->env->data, o->env->len))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "copy arguments");
    int r = is_open(o)
                ? sp_front_cell(front, p->session, NULL, &cell, e)
                : sp_cell_pool_find(front->cell_pool, p->session->number, o->policy, &cell, e);
    if (r == 0 && cell == NULL)
        return keep_start(p, o->policy, &m, &strings)
                   ? request_pool_cell(p, e)
                   : sp_fail(e, SP_E_SYSTEM, ENOMEM, "copy the start request");
    if (r == 0)
        r = start_in(p, cell, &m, &strings, e);
    if (r < 0)
        return r;
    set_deadline(p, ANSWER_MS, on_no_answer);
    /* Only a confined cell can be not ready. If it finds that the disk has changed, on_lost
     * needs the start; without memory to keep it, there is one try only. */
    if (!cell->is_ready)
        (void)keep_start(p, o->policy, &m, &strings);
    else if (is_open(o) && front->options.open_cells > 1)
        (void)keep_start(p, NULL, &m, &strings);
    return 0;
}

/* Why the name of the process is taken, and what frees it. */
static int refuse_name(const struct sp_proc *p, struct sp_err *e)
{
    const struct sp_inspect_request ask = {.wants_doing = true};
    struct sp_inspection found;

    if (p->life == SP_PROC_STARTING)
        return sp_fail(e, SP_E_STATE, 0, "%s is starting; choose another name", p->name);
    if (p->life == SP_PROC_RUNNING)
        return sp_fail(e, SP_E_STATE, 0,
                       "%s is running (pid %d); choose another name or: sallyport kill %s", p->name,
                       (int)p->pid, p->name);
    sp_proc_inspect(p, &ask, &found);
    return found.holder_count == 0
               ? sp_fail(e, SP_E_STATE, 0,
                         "%s has exited, and its output is not complete; choose another name",
                         p->name)
               : sp_fail(e, SP_E_STATE, 0,
                         "%s has exited, and %s (pid %d) holds its output open; choose another "
                         "name or end that process",
                         p->name, found.holders[0].name, found.holders[0].pid);
}

int sp_proc_check_name(const struct sp_front *f, struct sp_str name, struct sp_err *e)
{
    sp_list_each(i, &f->sessions) {
        const struct sp_session *s = SP_CONTAINER(i, struct sp_session, link);

        if (s->named == 0)
            continue;
        sp_list_each(k, &s->procs) {
            const struct sp_proc *p = SP_CONTAINER(k, struct sp_proc, link);

            if (p->name != NULL && p->life != SP_PROC_CLOSED && sp_str_eq(sp_str_of(p->name), name))
                return refuse_name(p, e);
        }
    }
    return 0;
}

static int start_once(struct sp_session *s, const struct sp_start *o, struct sp_start_wait *w,
                      struct sp_proc **ret, struct sp_err *e)
{
    const struct sp_front_options *limits = &s->front->options;

    if (s->front->stats.live >= limits->max_processes)
        return sp_fail(e, SP_E_LIMIT, 0, "at most %u processes may run at once (--max-processes)",
                       limits->max_processes);
    if (limits->max_session_processes != 0 && s->live >= limits->max_session_processes)
        return sp_fail(
            e, SP_E_LIMIT, 0,
            "at most %u processes of one session may run at once (--max-session-processes)",
            limits->max_session_processes);
    struct sp_proc *p = calloc(1, sizeof *p);
    if (p == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a process");
    p->seat.ops = &seat_ops;
    sp_list_init(&p->observers);
    p->session = s;
    p->number = ++s->front->next_process;
    p->is_tty = o->is_tty;
    p->is_forgotten = o->is_unrecorded;
    p->rows = o->rows != 0 ? o->rows : DEFAULT_ROWS;
    p->cols = o->cols != 0 ? o->cols : DEFAULT_COLS;
    p->is_confined = !is_open(o);
    p->network = network_of(o);
    p->argc = o->argc;
    p->start_wait = w;
    p->net.ops = o->net_ops;
    p->net.user = o->net_user;
    p->started_ms = (int64_t)sp_clock_unix_ms();
    sp_input_init(&p->input, s->front->loop, has_room);
    p->input.is_embedded = s->front->options.is_embedded;
    p->input.is_tty = o->is_tty;
    p->input.closed = on_input_closed;
    /* Ids and arguments are kept for process/list: bounds the memory that a client can fill. */
    if (s->front->held_bytes > SP_FRONT_MAX_HELD) {
        sp_proc_release(p);
        return sp_fail(e, SP_E_LIMIT, 0, "the processes' ids and arguments hold too much memory");
    }
    p->id = (struct sp_str){sp_str_dup(o->id), o->id.n};
    p->label = (struct sp_str){sp_str_dup(o->label), o->label.n};
    p->name = o->name.n == 0 ? NULL : sp_str_dup(o->name);
    bool ok = p->id.p != NULL && p->label.p != NULL && (o->name.n == 0 || p->name != NULL) &&
              add_string(&p->strings, o->cwd) &&
              add_string(&p->strings, o->file.p != NULL ? o->file : o->argv[0]) &&
              add_string(&p->strings, o->arg0.p != NULL ? o->arg0 : o->argv[0]);
    for (uint32_t i = 1; ok && i < o->argc; i++)
        ok = add_string(&p->strings, o->argv[i]);
    if (!ok || !sp_session_add(s, p)) {
        sp_proc_release(p);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a process");
    }
    const int r = request_start(p, o, e);
    if (r < 0) {
        sp_loop_cancel(s->front->loop, &p->life_timer);
        sp_session_remove(s, p);
        sp_proc_drop_record(p);
        sp_proc_release(p);
        return r;
    }
    count_starting(p, 1);
    s->front->stats.live++;
    s->live++;
    sp_ended_give_slots(s->front, p->seat.cell);
    s->front->held_bytes += sp_proc_held_bytes(p);
    expect_if_alone(p, START_US);
    *ret = p;
    return 0;
}

int sp_proc_start(struct sp_session *s, const struct sp_start *o, struct sp_start_wait *w,
                  struct sp_proc **ret, struct sp_err *e)
{
    int r = start_once(s, o, w, ret, e);

    if (r < 0 && e->sys == ENOMEM && sp_ended_relieve(s->front)) {
        *e = (struct sp_err){0};
        r = start_once(s, o, w, ret, e);
    }
    return r;
}

/* ---- processes of an earlier front ---- */

/* The id as the client wrote it, in JSON. */
static bool make_label(struct sp_proc *p)
{
    auto_buf struct sp_buf label = {0};

    if (!sp_json_add_str(&label, p->id))
        return false;
    p->label = (struct sp_str){sp_str_dup(sp_buf_str(&label)), label.len};
    return p->label.p != NULL;
}

static void restore_limits(struct sp_proc *p, const struct sp_proc_record *r, struct sp_str leaf)
{
    const uint64_t ended_by = atomic_load(&r->marks) / SP_MARK_LIMIT;
    struct sp_session *s = p->session;
    struct sp_leaf_record place;

    p->limits.is_asked = r->are_limits_asked != 0;
    for (int i = 0; i < SP_LIMIT_COUNT; i++) {
        p->limits.set.of[i] = r->limits[i];
        p->limits.scopes[i] =
            r->scopes[i] <= SP_LIMIT_TREE ? (enum sp_limit_scope)r->scopes[i] : SP_LIMIT_NOWHERE;
    }
    if (leaf.n == sizeof place) {
        memcpy(&place, leaf.p, sizeof place);
        p->limits.leaf =
            sp_leaf_restore(s->front->leaves, &s->leaves, s->number, &p->limits.set, &place);
    }
    if (ended_by > 0 && ended_by <= SP_LIMIT_COUNT && sp_proc_own_hits(p) != NULL) {
        p->limits.hits->has_ended = true;
        p->limits.hits->ended_by = (enum sp_limit)(ended_by - 1);
    }
}

static void restore_marks(struct sp_proc *p, const struct sp_proc_record *r)
{
    const uint64_t marks = atomic_load(&r->marks);
    const uint64_t size = atomic_load(&r->size);

    p->was_killed = (marks & SP_MARK_KILLED) != 0;
    p->is_forgotten = (marks & SP_MARK_FORGOTTEN) != 0;
    p->has_left_network = (marks & SP_MARK_LEFT_NETWORK) != 0;
    p->rows = (size >> 16 & UINT16_MAX) != 0 ? (uint16_t)(size >> 16) : DEFAULT_ROWS;
    p->cols = (size & UINT16_MAX) != 0 ? (uint16_t)size : DEFAULT_COLS;
}

int sp_proc_restore(struct sp_session *s, struct sp_proc_record *r, size_t fixed,
                    struct sp_proc **ret, struct sp_err *e)
{
    struct sp_front *front = s->front;
    struct sp_proc_texts t;
    struct sp_proc *p;

    if (!sp_proc_record_texts(r, fixed, &t) || r->network > SP_PROC_NETWORK_MANAGED ||
        sp_session_find(s, t.id) != NULL)
        return sp_fail(e, SP_E_MALFORMED, 0, "the record of a process is broken");
    p = calloc(1, sizeof *p);
    if (p == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "take a process over");
    p->seat.ops = &seat_ops;
    sp_list_init(&p->observers);
    p->session = s;
    p->number = r->number;
    p->is_restored = p->was_restored = true;
    p->is_tty = r->is_tty != 0;
    p->is_confined = r->is_confined != 0;
    p->network = (enum sp_proc_network)r->network;
    p->tier = r->tier;
    p->argc = r->argc;
    p->started_ms = r->started_ms;
    p->terminal = -1;
    sp_input_init(&p->input, front->loop, has_room);
    p->input.is_tty = p->is_tty;
    p->input.closed = on_input_closed;
    restore_limits(p, r, t.leaf);
    restore_marks(p, r);
    p->id = (struct sp_str){sp_str_dup(t.id), t.id.n};
    p->name = t.name.n == 0 ? NULL : sp_str_dup(t.name);
    if (p->id.p == NULL || !make_label(p) || (t.name.n > 0 && p->name == NULL) ||
        !sp_buf_add_str(&p->strings, t.strings) || !sp_session_add(s, p)) {
        sp_proc_release(p);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "take a process over");
    }
    p->record = r;
    count_starting(p, 1);
    front->stats.live++;
    s->live++;
    front->held_bytes += sp_proc_held_bytes(p);
    *ret = p;
    return 0;
}

static void on_found(struct sp_seat *seat, const struct sp_wire_item *item, int input_fd,
                     int log_fd)
{
    struct sp_proc *p = SP_CONTAINER(seat, struct sp_proc, seat);
    const bool was_terminated = (atomic_load(&p->record->marks) & SP_MARK_TERMINATED) != 0;
    struct sp_err e = {0};

    p->is_restored = false;
    if (seat->cell->options.managed != NULL)
        sp_managed_join(seat->cell->options.managed, p);
    p->pid = item->pid;
    p->leaf = item->leaf_number;
    p->terminal = p->is_tty ? item->terminal : -1;
    memcpy(p->outputs, item->outputs, sizeof p->outputs);
    if (item->life == SP_WIRE_LIFE_STARTING) { /* ops.started comes; no client waits for it */
        set_deadline(p, ANSWER_MS, on_no_answer);
        return;
    }
    note_running(p);
    if (sp_ring_slots_view(&seat->cell->slots, seat->slot, seat->number, &p->view.ring, &e) < 0) {
        sp_log(SP_LOG_ERROR, "process " SP_STR_FMT ": %s", SP_STR_ARG(p->id), e.msg);
        fail_ring(p);
    }
    p->input.log_made = on_log_made;
    sp_input_adopt(&p->input, input_fd, log_fd);
    sp_proc_limits_started(p);
    refresh(p);
    if (p->session->is_held)
        sp_proc_hold(p);
    if (!p->is_held)
        sp_proc_set_owned(p, p->session->client != NULL);
    if (was_terminated && p->state.exit_seq == 0)
        (void)sp_proc_terminate(p);
    p->was_terminated = was_terminated;
    sp_waiters_wake(&p->waits_for_start);
}

/* The START of an earlier front has not reached the cell. */
static void on_missing(struct sp_seat *seat)
{
    sp_proc_free(SP_CONTAINER(seat, struct sp_proc, seat));
}

void sp_proc_free(struct sp_proc *p)
{
    struct sp_front *front = p->session->front;

    if (front->history != NULL && p->life != SP_PROC_STARTING && !p->is_forgotten) {
        refresh(p);
        if (p->state.exit_seq == 0)
            p->state.exit = made_up_exit(p, SP_END_SESSION);
        sp_history_remember(front->history, p);
    }
    if (!sp_list_is_empty(&p->observers)) {
        refresh(p);
        make_up_end(p, SP_END_SESSION);
    }
    sp_observers_dismiss(p);
    sp_waiters_wake(&p->on_freed);
    if (p->life == SP_PROC_STARTING && !p->is_answered)
        count_starting(p, -1);
    if (p->life != SP_PROC_CLOSED) {
        front->stats.live--;
        p->session->live--;
    }
    p->session->held -= p->is_held;
    if ((sp_list_is_linked(&p->in_news) || p->marks > 0) && p->session->client != NULL)
        p->session->client->gone(p->session->client, p);
    sp_loop_cancel(front->loop, &p->life_timer);
    if (p->past == NULL) {
        front->held_bytes -= sp_proc_held_bytes(p);
        sp_session_remove(p->session, p);
        sp_cell_forget(&p->seat);
        sp_proc_drop_record(p);
    }
    sp_waiters_wake(&p->waits_for_start); /* they find no such process, or start a new one */
    sp_ended_leave(p);
    sp_proc_release(p);
}

/* ---- asking the cell ---- */

/* The cell answers with DONE. If the request cannot be sent, the call is answered here. */
static void ask_cell(struct sp_proc *p, struct sp_proc_call *c, enum sp_wire_op op, int a, int b)
{
    c->token = ++p->last_token;
    c->err = 0;
    sp_waiters_add(&p->on_done, &c->waiter);
    const int err = sp_cell_send(&p->seat, op, c->token, a, b);
    if (err != 0)
        on_done(&p->seat, c->token, err);
}

void sp_proc_signal(struct sp_proc *p, struct sp_proc_call *c, int signal)
{
    p->was_killed = p->was_killed || signal == SIGKILL;
    sp_proc_mark(p, SP_MARK_KILLED, p->was_killed);
    ask_cell(p, c, SP_WIRE_SIGNAL, signal, 0);
}

void sp_proc_resize(struct sp_proc *p, struct sp_proc_call *c, uint16_t rows, uint16_t cols)
{
    ask_cell(p, c, SP_WIRE_RESIZE, rows, cols);
}

enum sp_input_result sp_proc_write(struct sp_proc *p, struct sp_str id, struct sp_str bytes)
{
    const enum sp_input_result r = sp_input_write(&p->input, id, bytes);

    if (r == SP_INPUT_ACCEPTED && p->life == SP_PROC_RUNNING)
        sp_loop_expect(p->session->front->loop, ECHO_US);
    return r;
}

bool sp_proc_terminate(struct sp_proc *p)
{
    refresh(p);
    if (p->life != SP_PROC_RUNNING || p->state.exit_seq != 0)
        return false;
    p->was_terminated = true;
    sp_proc_mark(p, SP_MARK_TERMINATED, true);
    sp_input_break(&p->input);
    (void)sp_cell_send(&p->seat, SP_WIRE_TERMINATE, 0, 0, 0); /* a lost cell has no process */
    return true;
}

void sp_proc_inspect(const struct sp_proc *p, const struct sp_inspect_request *ask,
                     struct sp_inspection *ret)
{
    struct stat st;
    const bool has_input = !p->is_tty && p->input.state == SP_INPUT_OPEN && p->input.fd >= 0 &&
                           fstat(p->input.fd, &st) == 0;

    *ret = (struct sp_inspection){0};
    if (p->seat.cell == NULL || p->seat.cell->self.pid <= 0 || p->is_lost ||
        p->life == SP_PROC_STARTING || p->life == SP_PROC_CLOSED)
        return;
    const struct sp_inspect_command c = {
        .cell = p->seat.cell->self.pid,
        .pid = p->pid,
        .has_exited = p->life == SP_PROC_EXITED,
        .cgroup = p->seat.cell->cgroup,
        .leaf = p->leaf,
        .terminal = p->terminal,
        .input = has_input ? st.st_ino : 0,
        .outputs = {p->outputs[0], p->outputs[1]},
    };
    sp_inspect(&c, ask, ret);
}

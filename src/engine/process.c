/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process: one process of the manager: its entry, its output and events, the reports of its job,
 * and its end.
 *
 * The output goes to three consumers, each with its own copy of every byte in order: the next call
 * (pending), the end event (transcript) and the deltas. When memory is short the job keeps the
 * bytes and offers them again.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/auto.h"
#include "base/utf8.h"
#include "engine/manager_priv.h"

/* ---- events ---- */

/* Sends the bytes held back for deltas. */
static void flush_held(struct sp_process *p)
{
    const struct sp_str held = {p->held.data, p->held.len};

    p->held.len = 0;
    if (held.n != 0)
        sp_delta_push(&p->delta, held);
}

/* The members that all events of a process share. */
struct sp_exec_event sp_process_event(const struct sp_process *p, enum sp_event_type type)
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

static void tell_delta(void *process, struct sp_str frame)
{
    const struct sp_process *p = process;
    struct sp_exec_event e = sp_process_event(p, SP_EVENT_DELTA);

    e.stream = SP_STREAM_STDOUT;
    e.chunk = frame;
    sp_manager_event(p->m, &e);
}

/* ---- the end ---- */

/* Not before the last delta, and not before the interaction in
 * progress is answered, which may have caused the exit. */
static void publish_end(struct sp_process *p)
{
    if (!p->has_begun || p->has_ended || !p->is_drained || p->interaction != NULL ||
        !sp_process_has_exited(p))
        return;
    p->has_ended = true;
    sp_approvals_note_end(p->m->approvals, p->call_id,
                          sp_str_of(p->environment == NULL ? "" : p->environment->id),
                          sp_process_receipt(p));
    if (p->m->ops.event != NULL) {
        const bool has_failed = sp_process_has_failed(p);
        auto_buf struct sp_buf out = {0};
        auto_buf struct sp_buf aggregated = {0};
        auto_buf struct sp_buf formatted = {0};
        const struct sp_omission gone = {
            .bytes = p->transcript.omitted,
            .token_count = sp_allowance_tokens_of(sp_headtail_total(&p->transcript)),
        };
        struct sp_exec_event e = sp_process_event(p, SP_EVENT_END);

        e.at_ms = (int64_t)sp_clock_unix_ms();
        e.duration_ns = (p->exited_ns != 0 ? p->exited_ns : sp_clock_ns()) - p->start_ns;
        e.exit_code = has_failed ? -1 : p->exit.code;
        e.receipt = sp_process_receipt(p);
        e.status = !has_failed && p->exit.code == 0 ? SP_STATUS_COMPLETED : SP_STATUS_FAILED;
        e.err = has_failed ? sp_str_of(p->failure.msg) : SP_STR("");
        /* aggregated: with the failure's text behind the output; formatted: truncated for a model.
         */
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
    sp_until_feed(p, bytes);
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
    if (sp_end_is_limit(p->receipt.reason))
        return p->receipt.reason;
    return p->exit.signal != 0 ? SP_END_SIGNAL : SP_END_EXIT;
}

static bool has_calls(const struct sp_process *p)
{
    return p->initial != NULL || p->interaction != NULL || !sp_list_is_empty(&p->waiting);
}

void sp_process_use(struct sp_process *p)
{
    p->idle_from_ms = sp_manager_clock_ms();
}

static void set_end_timers(struct sp_process *p);

static void on_timeout(struct sp_timer *t)
{
    sp_process_end(SP_CONTAINER(t, struct sp_process, timeout_timer), SP_END_TIMEOUT);
}

static void on_idle(struct sp_timer *t)
{
    struct sp_process *p = SP_CONTAINER(t, struct sp_process, idle_timer);

    if (has_calls(p) || p->orders != 0)
        sp_process_use(p);
    if (sp_loop_now(p->m->loop) >= sp_later_ms(p->idle_from_ms, p->m->options.idle_ttl_ms))
        sp_process_end(p, SP_END_IDLE);
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

/* ---- the entry ---- */

void sp_manager_unreserve(struct sp_manager *m, int id)
{
    if (id != 0)
        sp_ids_release(&m->ids, id, sp_loop_now(m->loop));
}

struct sp_process *sp_manager_find(struct sp_manager *m, int id)
{
    sp_each_process(p, m)
        if (p->is_stored && p->id == id)
            return p;
    return NULL;
}

void sp_manager_remove(struct sp_process *p)
{
    if (!p->is_stored)
        return;
    p->is_stored = false;
    p->m->stored--;
    p->holds_id = p->m->options.remembers_ended && !p->is_forgotten && !p->m->is_closing;
    if (!p->holds_id)
        sp_manager_unreserve(p->m, p->id);
    sp_loop_cancel(p->m->loop, &p->ttl_timer);
    sp_process_changed(p);
}

/* Busy processes are not pruned. The creating call counts, so starting many processes at once loses
 * none of them. */
static bool is_busy(const struct sp_process *p)
{
    return has_calls(p) || (sp_process_has_exited(p) && !p->has_ended);
}

/* ---- pruning ---- */

static bool is_older(const struct sp_prune_entry *a, const struct sp_prune_entry *b)
{
    return a->last_used != b->last_used ? a->last_used < b->last_used : a->id < b->id;
}

static bool is_protected(const struct sp_prune_entry *entries, size_t count, size_t which)
{
    size_t newer = 0;

    for (size_t i = 0; i < count && newer < SP_PRUNE_PROTECTED; i++)
        newer += is_older(&entries[which], &entries[i]);
    return newer < SP_PRUNE_PROTECTED;
}

static size_t older_of(const struct sp_prune_entry *entries, size_t best, size_t i)
{
    return best == SP_PRUNE_NONE || is_older(&entries[i], &entries[best]) ? i : best;
}

size_t sp_prune_choose(const struct sp_prune_entry *entries, size_t count)
{
    size_t exited = SP_PRUNE_NONE;
    size_t live = SP_PRUNE_NONE;
    bool is_exited_one_busy = false;

    for (size_t i = 0; i < count; i++) {
        const struct sp_prune_entry *p = &entries[i];

        if (is_protected(entries, count, i))
            continue;
        if (p->has_exited && p->is_busy)
            is_exited_one_busy = true;
        else if (p->has_exited)
            exited = older_of(entries, exited, i);
        else if (!p->is_busy)
            live = older_of(entries, live, i);
    }
    if (exited != SP_PRUNE_NONE)
        return exited;
    /* The busy exited process goes by itself soon: do not kill a running one for its place. */
    return is_exited_one_busy ? SP_PRUNE_NONE : live;
}

/* NULL: none, or out of memory; then one entry more is kept. */
static struct sp_process *choose_victim(struct sp_manager *m)
{
    auto_free struct sp_prune_entry *facts = calloc(m->stored, sizeof *facts);
    size_t count = 0;

    sp_each_process(p, m)
        if (p->is_stored && facts != NULL)
            facts[count++] = (struct sp_prune_entry){.id = p->id,
                                                     .last_used = p->last_used_ns,
                                                     .has_exited = sp_process_has_exited(p),
                                                     .is_busy = is_busy(p)};
    const size_t i = facts == NULL ? SP_PRUNE_NONE : sp_prune_choose(facts, count);
    return i == SP_PRUNE_NONE ? NULL : sp_manager_find(m, facts[i].id);
}

/* Stores it, after pruning an old entry if there are many. */
static void store_process(struct sp_process *p)
{
    struct sp_manager *m = p->m;
    struct sp_process *victim = m->stored >= SP_PRUNE_LIMIT ? choose_victim(m) : NULL;
    char notice[256];

    if (victim != NULL) {
        victim->was_pruned = true;
        sp_manager_remove(victim);
        sp_process_end(victim, SP_END_PRUNED);
    }
    p->is_stored = true;
    p->last_used_ns = p->start_ns;
    m->stored++;
    if (m->options.notify_at == 0 || m->stored < m->options.notify_at)
        return;
    (void)snprintf(notice, sizeof notice,
                   "The maximum number of unified exec processes you can keep open is %u and you "
                   "currently have %u processes open. Reuse older processes or close them to "
                   "prevent automatic pruning of old processes",
                   (unsigned)m->options.notify_at, (unsigned)m->stored);
    struct sp_exec_event e = sp_process_event(p, SP_EVENT_WARNING);
    e.message = sp_str_of(notice);
    sp_manager_event(m, &e);
}

/* ---- the begin ---- */

/* A callback of the begin event may release the id. */
void sp_process_begin(struct sp_process *p, int *reserved_id)
{
    if (!p->is_hidden) {
        struct sp_exec_event e = sp_process_event(p, SP_EVENT_BEGIN);

        p->has_begun = true;
        e.at_ms = p->started_at_ms;
        sp_manager_event(p->m, &e);
        flush_held(p);
        sp_buf_done(&p->held);
        if (p->is_at_end)
            end_output(p);
    }
    if (*reserved_id == 0)
        return;
    if (!sp_process_has_exited(p))
        store_process(p);
    else if (p->m->options.remembers_ended)
        p->holds_id = true;
    else
        return;
    *reserved_id = 0;
}

/* ---- expiry of exited entries ---- */

static void wait_ttl(struct sp_process *p);

static void on_ttl(struct sp_timer *t)
{
    struct sp_process *p = SP_CONTAINER(t, struct sp_process, ttl_timer);

    if (is_busy(p)) {
        wait_ttl(p);
        return;
    }
    p->is_forgotten = true; /* unused for the whole time that a record would be kept */
    sp_manager_remove(p);
}

/* Out of memory: the entry stays until it is polled or pruned. */
static void wait_ttl(struct sp_process *p)
{
    const uint64_t ttl_ms = p->m->options.exited_ttl_ms;

    if (p->is_stored && ttl_ms != 0)
        (void)sp_loop_timer(p->m->loop, &p->ttl_timer, sp_loop_now(p->m->loop) + ttl_ms, on_ttl);
}

/* ---- settling ---- */

/* No call or order refers to the process, and all its events were sent. Its job is released even if
 * another process holds the output open: background processes outlive the command. */
static bool is_over(const struct sp_process *p)
{
    return !p->is_stored && !has_calls(p) && p->orders == 0 &&
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
    sp_process_serve_writes(p);
    sp_manager_serve_orders(p);
    publish_end(p);
    set_end_timers(p);
    if (p->is_job_over && p->job_calls == 0)
        sp_job_release(&p->job);
    if (is_over(p))
        sp_process_free(p);
}

void sp_process_changed(struct sp_process *p)
{
    sp_loop_defer(p->m->loop, &p->settling, settle);
}

/* ---- exit ---- */

static void on_grace_over(struct sp_timer *t)
{
    struct sp_process *p = SP_CONTAINER(t, struct sp_process, grace_timer);

    end_output(p);
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
    wait_ttl(p);
    sp_network_job_end(p->network);
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

/* ---- killing ---- */

bool sp_process_can_ask(const struct sp_process *p)
{
    return p->job.backend != NULL && !p->is_job_over;
}

static void on_killed(struct sp_job_call *c)
{
    struct sp_process *p = SP_CONTAINER(c, struct sp_process, kill);

    p->job_calls--;
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

/* It counts as exited once the kill is confirmed, or refused without an entry. */
static void kill_process(struct sp_process *p)
{
    if (p->is_killing || sp_process_has_exited(p))
        return;
    if (!sp_process_can_ask(p)) {
        sp_process_count_as_exited(p);
        return;
    }
    p->is_killing = true;
    p->job_calls++;
    p->kill.fn = on_killed;
    sp_job_terminate(&p->job, &p->kill);
}

void sp_process_end(struct sp_process *p, enum sp_end_reason reason)
{
    sp_process_blame(p, reason);
    kill_process(p);
}

void sp_process_fail(struct sp_process *p, const char *message)
{
    note_failure(p, message);
    kill_process(p);
    become_exited(p);
    sp_process_changed(p);
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

/* An answer has the sandbox's denials and the hosts in members of their own. */
static void on_receipt(struct sp_job *j, const struct sp_command_receipt *r)
{
    struct sp_process *p = SP_CONTAINER(j, struct sp_process, job);

    p->receipt = *r;
    p->receipt.sandbox = p->receipt.network = (struct sp_str){0};
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
        sp_receipt_note_end(&p->receipt, how->signal != 0 ? SP_END_SIGNAL : SP_END_EXIT,
                            sp_clock_ns() - p->start_ns);
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
    sp_receipt_note_end(&p->receipt, SP_END_LOST, sp_clock_ns() - p->start_ns);
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
    .receipt = on_receipt,
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
    struct sp_timer *timers[] = {&p->grace_timer, &p->ttl_timer,   &p->timeout_timer,
                                 &p->idle_timer,  &p->quiet_timer, &p->memory_timer};

    if (m->is_closing) {
        /* Every begin event gets its end event, even if the exit code is unknown. */
        sp_process_count_as_exited(p);
        end_output(p);
        publish_end(p);
    }
    sp_job_release(&p->job);
    if (p->holds_id)
        sp_manager_remember(p);
    sp_each_call(c, &m->dead)
        if (c->process == p)
            sp_call_drop_job_call(c);
    for (size_t i = 0; i < sizeof timers / sizeof timers[0]; i++)
        sp_loop_cancel(m->loop, timers[i]);
    sp_loop_undefer(m->loop, &p->settling);
    sp_loop_undefer(m->loop, &p->memory_again);
    sp_headtail_done(&p->pending);
    sp_headtail_done(&p->transcript);
    sp_buf_done(&p->held);
    sp_list_remove(&p->link);
    sp_network_job_free(p->network);
    sp_environment_unref(p->environment);
    sp_arena_done(&p->keep);
    free(p);
}

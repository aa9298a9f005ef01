/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manager_store: which processes are kept under which id: entries, pruning, and the records of
 * ended processes that can still be read.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/auto.h"
#include "engine/manager_priv.h"

void sp_manager_unreserve(struct sp_manager *m, int id)
{
    if (id != 0)
        sp_ids_release(&m->ids, id, sp_loop_now(m->loop));
}

/* ---- entries ---- */

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
    p->is_verdict_open = false;
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
    return p->initial != NULL || p->interaction != NULL || !sp_list_is_empty(&p->waiting) ||
           (sp_process_has_exited(p) && !p->has_ended);
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

void sp_manager_store(struct sp_manager *m, struct sp_process *p)
{
    struct sp_process *victim = m->stored >= SP_PRUNE_LIMIT ? choose_victim(m) : NULL;
    char notice[256];

    if (victim != NULL) {
        sp_manager_remove(victim);
        sp_process_blame(victim, SP_END_TERMINATED);
        sp_process_kill(victim);
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
    sp_process_tell_warning(p, notice);
}

/* ---- expiry of exited entries ---- */

static void on_ttl(struct sp_timer *t)
{
    struct sp_process *p = SP_CONTAINER(t, struct sp_process, ttl_timer);

    if (is_busy(p)) {
        sp_manager_wait_ttl(p);
        return;
    }
    p->is_forgotten = true; /* unused for the whole time that a record would be kept */
    sp_manager_remove(p);
}

/* Out of memory: the entry stays until it is polled or pruned. */
void sp_manager_wait_ttl(struct sp_process *p)
{
    const uint64_t ttl_ms = p->m->options.exited_ttl_ms;

    if (p->is_stored && ttl_ms != 0)
        (void)sp_loop_timer(p->m->loop, &p->ttl_timer, sp_loop_now(p->m->loop) + ttl_ms, on_ttl);
}

/*
 * ---- records of ended processes ----
 *
 * A record holds the output of a process and how it ended.
 */

static struct sp_remembered *oldest_of(const struct sp_manager *m)
{
    struct sp_list *first = sp_list_first(&m->remembered);

    return first == NULL ? NULL : SP_CONTAINER(first, struct sp_remembered, link);
}

static void forget(struct sp_remembered *r)
{
    struct sp_manager *m = r->m;

    sp_list_remove(&r->link);
    m->remembered_count--;
    m->remembered_bytes -= r->bytes;
    sp_manager_unreserve(m, r->view.process_id);
    sp_headtail_done(&r->transcript);
    sp_environment_unref(r->environment);
    sp_arena_done(&r->keep);
    free(r);
}

static void on_expired(struct sp_timer *t);

static void forget_old(struct sp_manager *m)
{
    const uint64_t now = sp_loop_now(m->loop);
    struct sp_remembered *r;

    while ((r = oldest_of(m)) != NULL &&
           (r->until_ms <= now || m->remembered_count > SP_REMEMBERED_MAX ||
            m->remembered_bytes > SP_REMEMBERED_BYTES))
        forget(r);
    if (r == NULL || r->until_ms == UINT64_MAX)
        sp_loop_cancel(m->loop, &m->remembered_timer);
    else /* out of memory: they stay until the next record is made */
        (void)sp_loop_timer(m->loop, &m->remembered_timer, r->until_ms, on_expired);
}

static void on_expired(struct sp_timer *t)
{
    forget_old(SP_CONTAINER(t, struct sp_manager, remembered_timer));
}

void sp_manager_forget_all(struct sp_manager *m)
{
    struct sp_remembered *r;

    while ((r = oldest_of(m)) != NULL)
        forget(r);
    sp_loop_cancel(m->loop, &m->remembered_timer);
}

/* ---- views ---- */

static void view_output(struct sp_manager_view *v, const struct sp_headtail *transcript)
{
    sp_headtail_view(transcript, &v->head, v->tail);
    v->omitted = transcript->omitted;
    v->total = sp_headtail_total(transcript);
}

static bool was_denied(const struct sp_process *p)
{
    return p->was_denied || (p->is_code_known && !sp_process_has_failed(p) &&
                             sp_denied_judge(p->sandbox, &p->exit, SP_STR(""), SP_STR("")));
}

static void view_process(const struct sp_process *p, struct sp_manager_view *ret)
{
    const bool has_exited = sp_process_has_exited(p);

    *ret = (struct sp_manager_view){
        .process_id = p->id,
        .call_id = p->call_id,
        .command = p->command,
        .cwd = p->cwd,
        .environment = p->environment == NULL ? "" : p->environment->id,
        .policy = p->environment == NULL ? NULL : sp_environment_policy(p->environment),
        .is_remote = p->is_remote,
        .is_tty = p->is_tty,
        .started_at_ms = p->started_at_ms,
        .has_exited = has_exited,
        .is_output_held = sp_process_is_output_held(p),
        .is_answered = !p->is_stored,
        .exit_code = has_exited ? p->exit.code : -1,
        .signal = has_exited ? p->exit.signal : 0,
        .end_reason = sp_process_end_reason(p),
        .was_denied = has_exited && was_denied(p),
        .denial = has_exited ? p->exit.denial : NULL,
        .kernel = has_exited ? p->exit.kernel : NULL,
        .answered = p->answered,
    };
    view_output(ret, &p->transcript);
}

/* The process or record with the lowest id from `id` on. */
static bool view_from(const struct sp_manager *m, int id, struct sp_manager_view *ret)
{
    const struct sp_process *process = NULL;
    const struct sp_remembered *record = NULL;

    sp_each_process(p, m)
        if ((p->is_stored || p->holds_id) && p->id >= id &&
            (process == NULL || p->id < process->id))
            process = p;
    sp_list_each(i, &m->remembered) {
        const struct sp_remembered *r = SP_CONTAINER(i, struct sp_remembered, link);

        if (r->view.process_id >= id &&
            (record == NULL || r->view.process_id < record->view.process_id))
            record = r;
    }
    if (process != NULL && (record == NULL || process->id <= record->view.process_id)) {
        view_process(process, ret);
    } else if (record != NULL) {
        *ret = record->view;
        view_output(ret, &record->transcript);
    } else {
        return false;
    }
    return true;
}

bool sp_manager_view(struct sp_manager *m, int process_id, struct sp_manager_view *ret)
{
    struct sp_process *p = sp_manager_find(m, process_id);
    struct sp_manager_view v;

    if (p != NULL)
        sp_process_use(p);
    if (!view_from(m, process_id, &v) || v.process_id != process_id)
        return false;
    *ret = v;
    return true;
}

void sp_manager_each(struct sp_manager *m, void (*fn)(void *user, const struct sp_manager_view *v),
                     void *user)
{
    struct sp_manager_view v;

    for (int id = 0; view_from(m, id, &v); id = v.process_id + 1)
        fn(user, &v);
}

static bool copy_view(struct sp_remembered *r, const struct sp_manager_view *v)
{
    struct sp_manager_view *own = &r->view;

    *own = *v;
    own->is_answered = true;
    own->is_output_held = false; /* the job is released, so no more output arrives */
    if (v->denial != NULL) {
        struct sp_denial_facts *denial = sp_arena_new(&r->keep, sizeof *denial);

        if (denial == NULL)
            return false;
        *denial = *v->denial;
        own->denial = denial;
    }
    if (v->kernel != NULL) {
        struct sp_exit *kernel = sp_arena_new(&r->keep, sizeof *kernel);

        if (kernel == NULL)
            return false;
        *kernel = *v->kernel;
        own->kernel = kernel;
    }
    return sp_arena_str(&r->keep, v->call_id, &own->call_id) &&
           sp_arena_str(&r->keep, v->command, &own->command) &&
           sp_arena_str(&r->keep, v->cwd, &own->cwd);
}

static struct sp_remembered *new_record(struct sp_process *p)
{
    struct sp_remembered *r = calloc(1, sizeof *r);
    struct sp_manager_view v;

    if (r == NULL)
        return NULL;
    view_process(p, &v);
    if (!copy_view(r, &v)) {
        sp_arena_done(&r->keep);
        free(r);
        return NULL;
    }
    r->m = p->m;
    r->environment = p->environment == NULL ? NULL : sp_environment_ref(p->environment);
    r->transcript = sp_headtail_drain(&p->transcript);
    sp_headtail_trim(&r->transcript);
    r->bytes =
        sp_headtail_retained(&r->transcript) + v.call_id.n + v.command.n + v.cwd.n + sizeof *r;
    return r;
}

void sp_manager_remember(struct sp_process *p)
{
    struct sp_manager *m = p->m;
    const uint64_t ttl_ms = m->options.exited_ttl_ms;
    struct sp_remembered *r = m->is_closing ? NULL : new_record(p);

    p->holds_id = false;
    if (r == NULL) {
        sp_manager_unreserve(m, p->id);
        return;
    }
    r->until_ms = ttl_ms == 0 ? UINT64_MAX : sp_loop_now(m->loop) + ttl_ms;
    sp_list_append(&m->remembered, &r->link);
    m->remembered_count++;
    m->remembered_bytes += r->bytes;
    forget_old(m);
}

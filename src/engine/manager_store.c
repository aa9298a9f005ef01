/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manager_store: what can be read under an id: views of processes, and the records of ended ones.
 */
#include <stdlib.h>

#include "engine/manager_priv.h"

/* ---- records of ended processes ---- */

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

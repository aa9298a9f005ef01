/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ended can still be read for a while: its output and how it ended, nothing else of it. And
 * the views of all that can be seen, live or remembered.
 */
#include <stdlib.h>

#include "base/auto.h"
#include "engine/manager_priv.h"

struct sp_remembered {
    struct sp_manager *m;
    struct sp_remembered *prev, *next;
    uint64_t until_ms; /* UINT64_MAX: for ever */
    size_t bytes;
    struct sp_keep keep;
    struct sp_headtail transcript;
    struct sp_home *home;        /* a reference, for view.policy */
    struct sp_manager_view view; /* but for the output */
};

/* ---- forgetting ---- */

static void on_time_over(struct sp_timer *t);

static void forget(struct sp_remembered *r)
{
    struct sp_manager *m = r->m;

    *(r->prev != NULL ? &r->prev->next : &m->remembered) = r->next;
    *(r->next != NULL ? &r->next->prev : &m->remembered_last) = r->prev;
    m->remembered_count--;
    m->remembered_bytes -= r->bytes;
    sp_manager_unreserve(m, r->view.process_id);
    sp_headtail_done(&r->transcript);
    sp_home_unref(r->home);
    sp_keep_done(&r->keep);
    free(r);
}

/* Without memory for the timer they stay until the next one comes, or there are too many. */
static void wait_for_oldest(struct sp_manager *m)
{
    if (m->remembered == NULL || m->remembered->until_ms == UINT64_MAX)
        sp_loop_cancel(m->loop, &m->remembered_timer);
    else
        (void)sp_loop_timer(m->loop, &m->remembered_timer, m->remembered->until_ms, on_time_over);
}

static void forget_old(struct sp_manager *m)
{
    const uint64_t now = sp_loop_now(m->loop);

    while (m->remembered != NULL &&
           (m->remembered->until_ms <= now || m->remembered_count > SP_REMEMBERED_MAX ||
            m->remembered_bytes > SP_REMEMBERED_BYTES))
        forget(m->remembered);
    wait_for_oldest(m);
}

static void on_time_over(struct sp_timer *t)
{
    forget_old(SP_CONTAINER(t, struct sp_manager, remembered_timer));
}

void sp_manager_forget_all(struct sp_manager *m)
{
    while (m->remembered != NULL)
        forget(m->remembered);
    sp_loop_cancel(m->loop, &m->remembered_timer);
}

/* ---- views ---- */

static void show_output(struct sp_manager_view *v, const struct sp_headtail *transcript)
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

static void show(const struct sp_process *p, struct sp_manager_view *ret)
{
    const bool has_exited = sp_process_has_exited(p);

    *ret = (struct sp_manager_view){
        .process_id = p->id,
        .call_id = p->call_id,
        .command = p->command,
        .cwd = p->cwd,
        .environment = p->home == NULL ? "" : p->home->id,
        .policy = p->home == NULL ? NULL : sp_home_policy(p->home),
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
    show_output(ret, &p->transcript);
}

static bool is_seen(const struct sp_process *p)
{
    return p->is_stored || p->holds_id;
}

/* The one of the lowest id from this one on, and in *ret_remembered if it is no process any more.
 */
static const struct sp_process *find_from(const struct sp_manager *m, int id,
                                          const struct sp_remembered **ret_remembered)
{
    const struct sp_process *process = NULL;
    const struct sp_remembered *remembered = NULL;

    for (const struct sp_process *p = m->first; p != NULL; p = p->next)
        if (is_seen(p) && p->id >= id && (process == NULL || p->id < process->id))
            process = p;
    for (const struct sp_remembered *r = m->remembered; r != NULL; r = r->next)
        if (r->view.process_id >= id &&
            (remembered == NULL || r->view.process_id < remembered->view.process_id))
            remembered = r;
    if (process != NULL && remembered != NULL && remembered->view.process_id < process->id)
        process = NULL;
    *ret_remembered = process != NULL ? NULL : remembered;
    return process;
}

static bool view_from(const struct sp_manager *m, int id, struct sp_manager_view *ret)
{
    const struct sp_remembered *remembered;
    const struct sp_process *p = find_from(m, id, &remembered);

    if (p != NULL) {
        show(p, ret);
    } else if (remembered != NULL) {
        *ret = remembered->view;
        show_output(ret, &remembered->transcript);
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

bool sp_manager_is_remembered(const struct sp_manager *m, int id)
{
    struct sp_manager_view v;

    return view_from(m, id, &v) && v.process_id == id && v.is_answered;
}

/* ---- remembering ---- */

static bool keep_facts(struct sp_remembered *r, const struct sp_manager_view *v)
{
    struct sp_manager_view *own = &r->view;

    *own = *v;
    own->is_answered = true;
    own->is_output_held = false; /* whoever holds it: nobody listens any more */
    if (v->denial != NULL) {
        struct sp_denial_facts *denial = sp_keep_alloc(&r->keep, sizeof *denial);

        if (denial == NULL)
            return false;
        *denial = *v->denial;
        own->denial = denial;
    }
    if (v->kernel != NULL) {
        struct sp_exit *kernel = sp_keep_alloc(&r->keep, sizeof *kernel);

        if (kernel == NULL)
            return false;
        *kernel = *v->kernel;
        own->kernel = kernel;
    }
    return sp_keep_str(&r->keep, v->call_id, &own->call_id) &&
           sp_keep_str(&r->keep, v->command, &own->command) &&
           sp_keep_str(&r->keep, v->cwd, &own->cwd);
}

static struct sp_remembered *make(struct sp_process *p)
{
    struct sp_remembered *r = calloc(1, sizeof *r);
    struct sp_manager_view v;

    if (r == NULL)
        return NULL;
    show(p, &v);
    if (!keep_facts(r, &v)) {
        sp_keep_done(&r->keep);
        free(r);
        return NULL;
    }
    r->m = p->m;
    r->home = p->home == NULL ? NULL : sp_home_ref(p->home);
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
    struct sp_remembered *r = m->is_closing ? NULL : make(p);

    p->holds_id = false;
    if (r == NULL) {
        sp_manager_unreserve(m, p->id);
        return;
    }
    r->until_ms = ttl_ms == 0 ? UINT64_MAX : sp_loop_now(m->loop) + ttl_ms;
    r->prev = m->remembered_last;
    *(r->prev != NULL ? &r->prev->next : &m->remembered) = r;
    m->remembered_last = r;
    m->remembered_count++;
    m->remembered_bytes += r->bytes;
    forget_old(m);
}

const char *sp_manager_check_remembered(const struct sp_manager *m, uint32_t *ret_ids)
{
    uint32_t count = 0;
    size_t bytes = 0;

    for (const struct sp_remembered *r = m->remembered; r != NULL; r = r->next) {
        if (!sp_ids_is_reserved(m->ids, r->view.process_id))
            return "I5: something remembered without an id";
        if (!r->view.has_exited || r->view.end_reason == SP_END_NONE)
            return "something remembered that has not ended";
        bytes += r->bytes;
        count++;
    }
    if (count != m->remembered_count || bytes != m->remembered_bytes)
        return "what is remembered was miscounted";
    if (count > SP_REMEMBERED_MAX || bytes > SP_REMEMBERED_BYTES)
        return "too much is remembered";
    *ret_ids = count;
    return NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manager_orders: requests to a process that are not calls of the model.
 */
#include <stdlib.h>

#include "base/auto.h"
#include "engine/manager_priv.h"

/*
 * What is asked of processes past the model's calls: terminate, signal, resize, close stdin; and
 * what somebody outside has found about them (unified-exec.md 4.7, 4.10).
 */

#define DEFAULT_DENIAL "Network access was denied by the sandbox network proxy."

enum order_kind { TERMINATE, SIGNAL, RESIZE, CLOSE_STDIN };

struct sp_order {
    struct sp_manager *m;
    struct sp_order *prev, *next;
    enum order_kind kind;
    struct sp_process *process; /* NULL: there was none */
    struct sp_job_call job_call;
    struct sp_deferred deferred;
    bool is_asked, is_done;
    bool is_held;        /* CLOSE_STDIN: something is to be typed first */
    uint64_t after_call; /* ... by calls up to this one */
    sp_manager_done_fn *fn;
    void *user;
};

static void free_order(struct sp_order *o)
{
    *(o->prev != NULL ? &o->prev->next : &o->m->orders) = o->next;
    if (o->next != NULL)
        o->next->prev = o->prev;
    if (o->process != NULL) {
        o->process->orders--;
        o->process->asked -= o->is_asked;
        sp_process_changed(o->process);
    }
    sp_loop_undefer(o->m->loop, &o->deferred);
    free(o);
}

/* It counts as exited. A creating call that still waits is to see that by itself. */
static void settle_terminated(struct sp_process *p)
{
    if (!sp_process_has_exited(p))
        sp_process_count_as_exited(p);
    if (p->initial == NULL)
        sp_manager_remove(p);
    sp_process_changed(p);
}

static void finish(struct sp_deferred *d)
{
    struct sp_order *o = SP_CONTAINER(d, struct sp_order, deferred);
    sp_manager_done_fn *fn = o->fn;
    void *user = o->user;
    const bool is_done = o->is_done;

    if (is_done && o->kind == TERMINATE)
        settle_terminated(o->process);
    free_order(o);
    if (fn != NULL)
        fn(user, is_done);
}

static void on_answered(struct sp_job_call *c)
{
    struct sp_order *o = SP_CONTAINER(c, struct sp_order, job_call);

    o->is_done = c->result == SP_JOB_OK || (c->result == SP_JOB_GONE && o->kind <= SIGNAL);
    if (o->kind == TERMINATE && !o->is_done && !sp_process_has_exited(o->process))
        o->process->ended_by = SP_END_NONE; /* it lives on */
    finish(&o->deferred);
}

/* NULL: the answer has been given, for want of memory. */
static struct sp_order *begin(struct sp_manager *m, enum order_kind kind, int process_id,
                              sp_manager_done_fn *fn, void *user)
{
    struct sp_order *o = calloc(1, sizeof *o);

    if (o == NULL) {
        if (fn != NULL)
            fn(user, false);
        return NULL;
    }
    *o = (struct sp_order){.m = m, .next = m->orders, .kind = kind, .fn = fn, .user = user};
    if (m->orders != NULL)
        m->orders->prev = o;
    m->orders = o;
    o->process = sp_manager_find(m, process_id);
    o->job_call.fn = on_answered;
    if (o->process != NULL) {
        o->process->orders++;
        sp_process_use(o->process);
    }
    return o;
}

/* Whether the job is to be asked. If not, the loop tells what comes of it. */
static bool can_ask(struct sp_order *o, bool is_done_once_exited)
{
    const struct sp_process *p = o->process;

    if (p != NULL && !(is_done_once_exited && sp_process_has_exited(p)) && sp_process_can_ask(p)) {
        o->is_asked = true;
        o->process->asked++;
        return true;
    }
    o->is_done = p != NULL && is_done_once_exited && sp_process_has_exited(p);
    sp_loop_defer(o->m->loop, &o->deferred, finish);
    return false;
}

void sp_manager_terminate(struct sp_manager *m, int process_id, sp_manager_done_fn *fn, void *user)
{
    struct sp_order *o = begin(m, TERMINATE, process_id, fn, user);

    if (o == NULL || !can_ask(o, true))
        return;
    sp_process_blame(o->process, SP_END_TERMINATED);
    sp_job_terminate(&o->process->job, &o->job_call);
}

void sp_manager_signal(struct sp_manager *m, int process_id, int signal, sp_manager_done_fn *fn,
                       void *user)
{
    struct sp_order *o = begin(m, SIGNAL, process_id, fn, user);

    if (o != NULL && can_ask(o, true))
        sp_job_signal(&o->process->job, &o->job_call, signal);
}

void sp_manager_resize(struct sp_manager *m, int process_id, uint16_t rows, uint16_t cols,
                       sp_manager_done_fn *fn, void *user)
{
    struct sp_order *o = begin(m, RESIZE, process_id, fn, user);

    if (o != NULL && can_ask(o, false))
        sp_job_resize(&o->process->job, &o->job_call, rows, cols);
}

/* Whether a call that was there before the order has yet to type; what was typed is in order. */
static bool has_more_to_type(const struct sp_order *o)
{
    for (const struct sp_call *c = o->process->waiting; c != NULL; c = c->next_waiting)
        if (c->chars.n != 0 && c->number <= o->after_call)
            return true;
    return false;
}

static void close_stdin(struct sp_order *o)
{
    o->is_held = o->process != NULL && has_more_to_type(o);
    if (!o->is_held && can_ask(o, false))
        sp_job_close_stdin(&o->process->job, &o->job_call);
}

static void enter_close_stdin(struct sp_deferred *d)
{
    close_stdin(SP_CONTAINER(d, struct sp_order, deferred));
}

/* From the loop, as calls are: those that were begun before it have then entered. */
void sp_manager_close_stdin(struct sp_manager *m, int process_id, sp_manager_done_fn *fn,
                            void *user)
{
    struct sp_order *o = begin(m, CLOSE_STDIN, process_id, fn, user);

    if (o == NULL)
        return;
    o->after_call = m->next_call;
    sp_loop_defer(m->loop, &o->deferred, enter_close_stdin);
}

void sp_manager_serve_orders(struct sp_process *p)
{
    for (struct sp_order *o = p->orders == 0 ? NULL : p->m->orders, *next; o != NULL; o = next) {
        next = o->next;
        if (o->process == p && o->is_held)
            close_stdin(o);
    }
}

void sp_manager_drop_orders(struct sp_manager *m)
{
    while (m->orders != NULL) {
        struct sp_order *o = m->orders;
        sp_manager_done_fn *fn = o->fn;
        void *user = o->user;

        if (o->process != NULL)
            sp_job_release(&o->process->job); /* it will not answer any more */
        free_order(o);
        if (fn != NULL)
            fn(user, false);
    }
}

/* First nobody can reach any of them, then all are ended. What has not begun will not. */
void sp_manager_terminate_all(struct sp_manager *m)
{
    for (struct sp_process *p = m->first; p != NULL; p = p->next)
        sp_manager_remove(p);
    for (struct sp_call *c = m->calls; c != NULL; c = c->next) {
        sp_manager_unreserve(m, c->reserved_id);
        c->reserved_id = 0;
        if (c->is_exec && c->process == NULL)
            c->is_cancelled = true;
        sp_call_changed(c);
    }
    for (struct sp_process *p = m->first; p != NULL; p = p->next)
        if (!p->is_discarded) {
            sp_process_blame(p, SP_END_TERMINATED);
            sp_process_kill(p);
        }
}

/* ---- verdicts from outside ---- */

bool sp_manager_fail(struct sp_manager *m, int process_id, const char *message)
{
    struct sp_process *p = sp_manager_find_any(m, process_id);

    if (p == NULL)
        return false;
    sp_process_blame(p, SP_END_TERMINATED);
    sp_process_fail(p, message != NULL ? message : DEFAULT_DENIAL);
    return true;
}

bool sp_manager_watch_for_denial(struct sp_manager *m, int process_id, bool is_open)
{
    struct sp_process *p = sp_manager_find_any(m, process_id);

    if (p == NULL)
        return false;
    if (!is_open || !sp_process_has_exited(p))
        p->is_verdict_open = is_open;
    sp_process_changed(p);
    return true;
}

/*
 * What a process is doing, for somebody who asks past the model's calls. Its executor is asked; the
 * process stays until the answer is there.
 */

struct sp_glance {
    struct sp_manager *m;
    struct sp_glance *prev, *next;
    struct sp_process *process; /* NULL: there was none */
    struct sp_job_look look;
    struct sp_deferred deferred;
    bool is_asked;
    sp_manager_look_fn *fn;
    void *user;
};

static void end_glance(struct sp_glance *g, const struct sp_look *found)
{
    *(g->prev != NULL ? &g->prev->next : &g->m->glances) = g->next;
    if (g->next != NULL)
        g->next->prev = g->prev;
    if (g->process != NULL) {
        g->process->orders--;
        g->process->asked -= g->is_asked;
        sp_process_changed(g->process);
    }
    sp_loop_undefer(g->m->loop, &g->deferred);
    g->fn(g->user, found);
    free(g);
}

static void on_looked(struct sp_job_call *c)
{
    struct sp_glance *g =
        SP_CONTAINER(SP_CONTAINER(c, struct sp_job_look, call), struct sp_glance, look);

    end_glance(g, c->result == SP_JOB_OK ? &g->look.found : NULL);
}

static void on_nobody(struct sp_deferred *d)
{
    end_glance(SP_CONTAINER(d, struct sp_glance, deferred), NULL);
}

/* Its entry, or what had it until a moment ago: somebody may still hold its output open. */
static struct sp_process *find(struct sp_manager *m, int id)
{
    struct sp_process *stored = sp_manager_find(m, id);

    if (stored != NULL)
        return stored;
    for (struct sp_process *p = m->last; p != NULL; p = p->prev)
        if (p->id == id && !p->is_discarded && p->life != SP_PROCESS_STARTING)
            return p;
    return NULL;
}

void sp_manager_look(struct sp_manager *m, int process_id, sp_manager_look_fn *fn, void *user)
{
    struct sp_glance *g = calloc(1, sizeof *g);

    if (g == NULL) {
        fn(user, NULL);
        return;
    }
    *g = (struct sp_glance){.m = m, .next = m->glances, .fn = fn, .user = user};
    if (m->glances != NULL)
        m->glances->prev = g;
    m->glances = g;
    g->process = find(m, process_id);
    g->look.call.fn = on_looked;
    g->look.wants_doing = true;
    if (g->process != NULL) {
        g->process->orders++;
        g->is_asked = sp_process_can_ask(g->process) && sp_job_look(&g->process->job, &g->look);
        g->process->asked += g->is_asked;
    }
    if (!g->is_asked)
        sp_loop_defer(m->loop, &g->deferred, on_nobody);
}

void sp_manager_drop_glances(struct sp_manager *m)
{
    while (m->glances != NULL) {
        if (m->glances->process != NULL)
            sp_job_release(&m->glances->process->job); /* it will not answer any more */
        end_glance(m->glances, NULL);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manager_orders: requests to a process that are not calls of the model: terminate, signal, resize,
 * close stdin, inspect; and the verdicts of outside observers.
 *
 * An order counts in process->orders, so that the process is not freed before its job has answered.
 */
#include <stdlib.h>

#include "base/auto.h"
#include "engine/manager_priv.h"

#define DEFAULT_DENIAL "Network access was denied by the sandbox network proxy."

enum order_kind { TERMINATE, SIGNAL, RESIZE, CLOSE_STDIN, INSPECT };

struct sp_order {
    struct sp_manager *m;
    struct sp_list link; /* m->orders */
    enum order_kind kind;
    struct sp_process *process; /* NULL: unknown id */
    struct sp_job_look look;    /* look.call serves every kind */
    struct sp_deferred deferred;
    bool is_asked, is_done;
    bool is_held;        /* CLOSE_STDIN: waits until pending input is written */
    uint64_t after_call; /* ... by calls up to this number */
    sp_manager_done_fn *fn;
    sp_manager_look_fn *look_fn;
    void *user;
};

static struct sp_order *order_at(struct sp_list *link)
{
    return SP_CONTAINER(link, struct sp_order, link);
}

static void finish_order(struct sp_order *o)
{
    struct sp_process *p = o->process;

    if (o->is_done && o->kind == TERMINATE) {
        if (!sp_process_has_exited(p))
            sp_process_count_as_exited(p);
        if (p->initial == NULL) /* a creating call that still waits removes the entry itself */
            sp_manager_remove(p);
    }
    sp_list_remove(&o->link);
    sp_loop_undefer(o->m->loop, &o->deferred);
    if (p != NULL) {
        p->orders--;
        p->asked -= o->is_asked;
        sp_process_changed(p);
    }
    if (o->look_fn != NULL)
        o->look_fn(o->user, o->is_done ? &o->look.found : NULL);
    else if (o->fn != NULL)
        o->fn(o->user, o->is_done);
    free(o);
}

static void on_order_deferred(struct sp_deferred *d)
{
    finish_order(SP_CONTAINER(d, struct sp_order, deferred));
}

static void on_order_answered(struct sp_job_call *c)
{
    struct sp_order *o =
        SP_CONTAINER(SP_CONTAINER(c, struct sp_job_look, call), struct sp_order, look);

    o->is_done = c->result == SP_JOB_OK || (c->result == SP_JOB_GONE && o->kind <= SIGNAL);
    if (o->kind == TERMINATE && !o->is_done && !sp_process_has_exited(o->process))
        o->process->ended_by = SP_END_NONE; /* the process lives on */
    finish_order(o);
}

/* NULL: out of memory, and the caller was told. */
static struct sp_order *new_order(struct sp_manager *m, enum order_kind kind, struct sp_process *p,
                                  sp_manager_done_fn *fn, void *user)
{
    struct sp_order *o = calloc(1, sizeof *o);

    if (o == NULL) {
        if (fn != NULL)
            fn(user, false);
        return NULL;
    }
    *o = (struct sp_order){.m = m, .kind = kind, .process = p, .fn = fn, .user = user};
    o->look.call.fn = on_order_answered;
    sp_list_prepend(&m->orders, &o->link);
    if (p != NULL)
        p->orders++;
    return o;
}

static struct sp_order *new_order_for(struct sp_manager *m, enum order_kind kind, int process_id,
                                      sp_manager_done_fn *fn, void *user)
{
    struct sp_process *p = sp_manager_find(m, process_id);

    if (p != NULL)
        sp_process_use(p);
    return new_order(m, kind, p, fn, user);
}

/* Whether the job is to be asked. If not, the loop reports the result: an exit counts as success
 * for the kinds up to SIGNAL. */
static bool can_ask(struct sp_order *o)
{
    struct sp_process *p = o->process;
    const bool is_done = p != NULL && o->kind <= SIGNAL && sp_process_has_exited(p);

    if (p != NULL && !is_done && sp_process_can_ask(p)) {
        o->is_asked = true;
        p->asked++;
        return true;
    }
    o->is_done = is_done;
    sp_loop_defer(o->m->loop, &o->deferred, on_order_deferred);
    return false;
}

void sp_manager_terminate(struct sp_manager *m, int process_id, sp_manager_done_fn *fn, void *user)
{
    struct sp_order *o = new_order_for(m, TERMINATE, process_id, fn, user);

    if (o == NULL || !can_ask(o))
        return;
    sp_process_blame(o->process, SP_END_TERMINATED);
    sp_job_terminate(&o->process->job, &o->look.call);
}

void sp_manager_signal(struct sp_manager *m, int process_id, int signal, sp_manager_done_fn *fn,
                       void *user)
{
    struct sp_order *o = new_order_for(m, SIGNAL, process_id, fn, user);

    if (o != NULL && can_ask(o))
        sp_job_signal(&o->process->job, &o->look.call, signal);
}

void sp_manager_resize(struct sp_manager *m, int process_id, uint16_t rows, uint16_t cols,
                       sp_manager_done_fn *fn, void *user)
{
    struct sp_order *o = new_order_for(m, RESIZE, process_id, fn, user);

    if (o != NULL && can_ask(o))
        sp_job_resize(&o->process->job, &o->look.call, rows, cols);
}

/* ---- close stdin, behind the input of earlier calls ---- */

static void close_stdin(struct sp_order *o)
{
    o->is_held = false;
    for (const struct sp_call *c = o->process == NULL ? NULL : o->process->waiting; c != NULL;
         c = c->next_waiting)
        o->is_held |= c->chars.n != 0 && c->number <= o->after_call;
    if (!o->is_held && can_ask(o))
        sp_job_close_stdin(&o->process->job, &o->look.call);
}

static void on_close_stdin(struct sp_deferred *d)
{
    close_stdin(SP_CONTAINER(d, struct sp_order, deferred));
}

/* Deferred like the steps of calls, so that calls which began earlier are in process->waiting. */
void sp_manager_close_stdin(struct sp_manager *m, int process_id, sp_manager_done_fn *fn,
                            void *user)
{
    struct sp_order *o = new_order_for(m, CLOSE_STDIN, process_id, fn, user);

    if (o == NULL)
        return;
    o->after_call = m->next_call;
    sp_loop_defer(m->loop, &o->deferred, on_close_stdin);
}

void sp_manager_serve_orders(struct sp_process *p)
{
    if (p->orders == 0)
        return;
    sp_list_each_safe(i, &p->m->orders)
        if (order_at(i)->process == p && order_at(i)->is_held)
            close_stdin(order_at(i));
}

/* ---- inspect ---- */

void sp_manager_look(struct sp_manager *m, int process_id, sp_manager_look_fn *fn, void *user)
{
    struct sp_process *p = sp_manager_find(m, process_id);

    /* A process that lost its entry can still be inspected while its output is held open. */
    for (struct sp_process *i = p == NULL ? m->last : NULL; i != NULL && p == NULL; i = i->prev)
        if (i->id == process_id && !i->is_discarded && i->life != SP_PROCESS_STARTING)
            p = i;
    struct sp_order *o = new_order(m, INSPECT, p, NULL, user);
    if (o == NULL) {
        fn(user, NULL);
        return;
    }
    o->look_fn = fn;
    o->look.wants_doing = true;
    if (!can_ask(o))
        return;
    if (!sp_job_look(&p->job, &o->look)) {
        p->asked--;
        o->is_asked = false;
        sp_loop_defer(m->loop, &o->deferred, on_order_deferred);
    }
}

/* ---- all of them ---- */

void sp_manager_drop_orders(struct sp_manager *m)
{
    struct sp_list *first;

    while ((first = sp_list_first(&m->orders)) != NULL) {
        struct sp_order *o = order_at(first);

        if (o->process != NULL)
            sp_job_release(&o->process->job); /* so that the job call is dropped */
        o->is_done = false;
        finish_order(o);
    }
}

/* All entries go first, so that no callback finds one; then the processes are killed. Calls that
 * have no process yet are cancelled. */
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

/* ---- verdicts of outside observers ---- */

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

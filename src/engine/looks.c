/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process is doing, for somebody who asks past the model's calls. Its executor is asked; the
 * process stays until the answer is there.
 */
#include <stdlib.h>

#include "base/auto.h"
#include "engine/manager_priv.h"

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

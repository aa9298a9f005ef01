/* SPDX-License-Identifier: Apache-2.0 */
#include "mcp/memory.h"

#include <errno.h>
#include <stdlib.h>

#include "base/auto.h"

struct sp_mcp_glance {
    struct sp_mcp_caller *caller;
    struct sp_mcp_glance *prev, *next;
    sp_manager_look_fn *fn; /* NULL: nobody wants to know any more */
    void *user;
    bool is_asking; /* inside sp_manager_look, which may answer at once, for want of memory */
    struct sp_timer deadline;
};

struct sp_mcp_memory {
    struct sp_loop *loop;
    struct sp_mcp_memory_item *oldest, *newest;
    uint32_t count;
    struct sp_mcp_glance *glances;
};

static struct sp_loop *loop_of(const struct sp_mcp_caller *c)
{
    return sp_mcp_options(c->mcp)->loop;
}

static struct sp_mcp_memory *memory_of(struct sp_mcp_caller *c)
{
    if (c->memory == NULL && (c->memory = calloc(1, sizeof *c->memory)) != NULL)
        c->memory->loop = loop_of(c);
    return c->memory;
}

/* ---- ids ---- */

static void free_item(struct sp_mcp_memory *m, struct sp_mcp_memory_item *i)
{
    for (struct sp_mcp_memory_wait *w = i->waits; w != NULL; w = w->next)
        w->item = NULL;
    *(i->prev != NULL ? &i->prev->next : &m->oldest) = i->next;
    *(i->next != NULL ? &i->next->prev : &m->newest) = i->prev;
    m->count--;
    free(i);
}

void sp_mcp_memory_forget(struct sp_mcp_caller *c, struct sp_mcp_memory_item *i)
{
    free_item(c->memory, i);
}

static void forget_old(struct sp_mcp_memory *m)
{
    const uint64_t now = sp_loop_now(m->loop);

    for (struct sp_mcp_memory_item *i = m->oldest, *next; i != NULL; i = next) {
        next = i->next;
        if (i->due_ms > now)
            return;
        if (i->run == NULL)
            free_item(m, i);
    }
}

/* false: there is none whose call is over. */
static bool forget_oldest(struct sp_mcp_memory *m)
{
    for (struct sp_mcp_memory_item *i = m->oldest; i != NULL; i = i->next)
        if (i->run == NULL) {
            free_item(m, i);
            return true;
        }
    return false;
}

static struct sp_mcp_memory_item *find(const struct sp_mcp_memory *m, int scope, struct sp_str id)
{
    struct sp_mcp_memory_item *i = m->oldest;

    while (i != NULL && !(i->scope == scope && sp_str_eq((struct sp_str){i->id, i->n}, id)))
        i = i->next;
    return i;
}

static struct sp_mcp_memory_item *add(struct sp_mcp_memory *m, int scope, struct sp_str id)
{
    struct sp_mcp_memory_item *i = calloc(1, sizeof *i + id.n);

    if (i == NULL)
        return NULL;
    i->scope = scope;
    i->due_ms = sp_loop_now(m->loop) + SP_MCP_MEMORY_MS;
    i->n = id.n;
    memcpy(i->id, id.p, id.n);
    i->prev = m->newest;
    *(i->prev != NULL ? &i->prev->next : &m->oldest) = i;
    m->newest = i;
    m->count++;
    return i;
}

int sp_mcp_memory_take(struct sp_mcp_caller *c, int scope, struct sp_str id,
                       struct sp_mcp_memory_item **ret, bool *ret_is_new, struct sp_err *e)
{
    struct sp_mcp_memory *m = memory_of(c);

    if (id.n == 0 || id.n > SP_MCP_MEMORY_ID_MAX)
        return sp_fail(e, SP_E_INVALID, 0, "`%s` has 1 to %d bytes",
                       scope == 0 ? "key" : "write_id", SP_MCP_MEMORY_ID_MAX);
    if (m == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "remember a call");
    forget_old(m);
    struct sp_mcp_memory_item *i = find(m, scope, id);
    *ret_is_new = i == NULL;
    if (i == NULL && m->count >= SP_MCP_MEMORY_MAX && !forget_oldest(m))
        return sp_fail(e, SP_E_LIMIT, 0, "%d calls with a key are under way; wait for some of them",
                       SP_MCP_MEMORY_MAX);
    if (i == NULL && (i = add(m, scope, id)) == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "remember a call");
    *ret = i;
    return 0;
}

void sp_mcp_memory_wait(struct sp_mcp_memory_item *i, struct sp_mcp_memory_wait *w)
{
    struct sp_mcp_memory_wait **at = &i->waits;

    while (*at != NULL) /* first come, first served */
        at = &(*at)->next;
    w->item = i;
    w->next = NULL;
    *at = w;
}

void sp_mcp_memory_unwait(struct sp_mcp_memory_wait *w)
{
    if (w->item == NULL)
        return;
    struct sp_mcp_memory_wait **at = &w->item->waits;
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    w->item = NULL;
}

/* ---- looks ---- */

static void free_glance(struct sp_mcp_memory *m, struct sp_mcp_glance *g)
{
    sp_loop_cancel(m->loop, &g->deadline);
    *(g->prev != NULL ? &g->prev->next : &m->glances) = g->next;
    if (g->next != NULL)
        g->next->prev = g->prev;
    free(g);
}

static void on_look(void *user, const struct sp_look *look)
{
    struct sp_mcp_glance *g = user;
    sp_manager_look_fn *fn = g->fn;
    void *whose = g->user;

    if (g->is_asking) {
        g->is_asking = false;
        return;
    }
    free_glance(g->caller->memory, g);
    if (fn != NULL)
        fn(whose, look);
}

/* Whoever was asked may still answer: it stays until then. */
static void on_deadline(struct sp_timer *t)
{
    struct sp_mcp_glance *g = SP_CONTAINER(t, struct sp_mcp_glance, deadline);
    sp_manager_look_fn *fn = g->fn;

    g->fn = NULL;
    if (fn != NULL)
        fn(g->user, NULL);
}

struct sp_mcp_glance *sp_mcp_glance(struct sp_mcp_caller *c, int session_id, sp_manager_look_fn *fn,
                                    void *user)
{
    struct sp_mcp_memory *m = memory_of(c);
    struct sp_mcp_glance *g = m == NULL ? NULL : calloc(1, sizeof *g);

    if (g == NULL)
        return NULL;
    *g = (struct sp_mcp_glance){.caller = c, .next = m->glances, .fn = fn, .user = user};
    if (!sp_loop_timer(m->loop, &g->deadline, sp_loop_now(m->loop) + SP_MCP_LOOK_MS, on_deadline)) {
        free(g);
        return NULL;
    }
    if (g->next != NULL)
        g->next->prev = g;
    m->glances = g;
    g->is_asking = true;
    sp_manager_look(c->manager, session_id, on_look, g);
    if (!g->is_asking) { /* it was answered: nobody can tell */
        free_glance(m, g);
        return NULL;
    }
    g->is_asking = false;
    return g;
}

void sp_mcp_glance_forget(struct sp_mcp_glance *g)
{
    if (g != NULL)
        g->fn = NULL;
}

/* ---- the end ---- */

void sp_mcp_memory_free(struct sp_mcp_memory *m)
{
    if (m == NULL)
        return;
    while (m->oldest != NULL)
        free_item(m, m->oldest);
    while (m->glances != NULL)
        free_glance(m, m->glances);
    free(m);
}

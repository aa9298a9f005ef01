/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory: both lists are searched linearly. They are bounded (1024 items of at most 256 bytes), and
 * a search happens once per call that names a key, so an index would not pay.
 *
 * An inspection cannot be cancelled: the manager always answers it, at the latest when it is freed.
 * It therefore belongs to the memory and not to the run, which may be gone by then.
 */
#include "mcp/memory.h"

#include <errno.h>
#include <stdlib.h>

#include "base/auto.h"

struct sp_mcp_inspection {
    struct sp_mcp_caller *caller;
    struct sp_list link;
    sp_manager_look_fn *fn; /* NULL: forgotten, or its deadline has passed */
    void *user;
    bool is_asking; /* inside sp_manager_look, which answers at once if it is out of memory */
    struct sp_timer deadline;
};

struct sp_mcp_memory {
    struct sp_loop *loop;
    struct sp_list items; /* oldest first */
    uint32_t count;
    struct sp_list inspections; /* each until the manager answers */
};

static struct sp_mcp_memory *memory_of(struct sp_mcp_caller *c)
{
    if (c->memory == NULL && (c->memory = calloc(1, sizeof *c->memory)) != NULL) {
        c->memory->loop = sp_mcp_options(c->mcp)->loop;
        sp_list_init(&c->memory->items);
        sp_list_init(&c->memory->inspections);
    }
    return c->memory;
}

/* ---- keys and write ids ---- */

static struct sp_mcp_memory_item *item_of(struct sp_list *link)
{
    return SP_CONTAINER(link, struct sp_mcp_memory_item, link);
}

static void free_item(struct sp_mcp_memory *m, struct sp_mcp_memory_item *i)
{
    while (sp_list_take_first(&i->waits) != NULL)
        continue;
    sp_list_remove(&i->link);
    m->count--;
    free(i);
}

void sp_mcp_memory_forget(struct sp_mcp_caller *c, struct sp_mcp_memory_item *i)
{
    free_item(c->memory, i);
}

static void forget_expired(struct sp_mcp_memory *m)
{
    const uint64_t now = sp_loop_now(m->loop);

    sp_list_each_safe(i, &m->items) {
        if (item_of(i)->due_ms > now)
            return;
        if (item_of(i)->run == NULL)
            free_item(m, item_of(i));
    }
}

/* false: the calls of all items are still running. */
static bool evict_oldest(struct sp_mcp_memory *m)
{
    sp_list_each_safe(i, &m->items) {
        if (item_of(i)->run == NULL) {
            free_item(m, item_of(i));
            return true;
        }
    }
    return false;
}

static struct sp_mcp_memory_item *find_item(const struct sp_mcp_memory *m, int scope,
                                            struct sp_str id)
{
    sp_list_each(i, &m->items) {
        struct sp_mcp_memory_item *item = item_of(i);

        if (item->scope == scope && sp_str_eq((struct sp_str){item->id, item->n}, id))
            return item;
    }
    return NULL;
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
    forget_expired(m);
    *ret = find_item(m, scope, id);
    *ret_is_new = *ret == NULL;
    if (*ret != NULL)
        return 0;
    if (m->count >= SP_MCP_MEMORY_MAX && !evict_oldest(m))
        return sp_fail(e, SP_E_LIMIT, 0, "%d calls with a key are under way; wait for some of them",
                       SP_MCP_MEMORY_MAX);
    struct sp_mcp_memory_item *i = calloc(1, sizeof *i + id.n);
    if (i == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "remember a call");
    sp_list_init(&i->waits);
    i->scope = scope;
    i->due_ms = sp_loop_now(m->loop) + SP_MCP_MEMORY_MS;
    i->n = id.n;
    memcpy(i->id, id.p, id.n);
    sp_list_append(&m->items, &i->link);
    m->count++;
    *ret = i;
    return 0;
}

/* ---- inspections ---- */

static void free_inspection(struct sp_mcp_inspection *x)
{
    sp_loop_cancel(x->caller->memory->loop, &x->deadline);
    sp_list_remove(&x->link);
    free(x);
}

static void on_look(void *user, const struct sp_inspection *found)
{
    struct sp_mcp_inspection *x = user;
    sp_manager_look_fn *fn = x->fn;
    void *owner = x->user;

    if (x->is_asking) {
        x->is_asking = false;
        return;
    }
    free_inspection(x);
    if (fn != NULL)
        fn(owner, found);
}

/* The inspection itself stays until the manager answers. */
static void on_deadline(struct sp_timer *t)
{
    struct sp_mcp_inspection *x = SP_CONTAINER(t, struct sp_mcp_inspection, deadline);
    sp_manager_look_fn *fn = x->fn;

    x->fn = NULL;
    if (fn != NULL)
        fn(x->user, NULL);
}

struct sp_mcp_inspection *sp_mcp_inspect(struct sp_mcp_caller *c, int session_id, uint64_t wait_ms,
                                         sp_manager_look_fn *fn, void *user)
{
    struct sp_mcp_memory *m = memory_of(c);
    struct sp_mcp_inspection *x = m == NULL ? NULL : calloc(1, sizeof *x);

    if (x == NULL)
        return NULL;
    *x = (struct sp_mcp_inspection){.caller = c, .fn = fn, .user = user};
    if (wait_ms != 0 &&
        !sp_loop_timer(m->loop, &x->deadline, sp_loop_now(m->loop) + wait_ms, on_deadline)) {
        free(x);
        return NULL;
    }
    sp_list_append(&m->inspections, &x->link);
    x->is_asking = true;
    sp_manager_look(c->manager, session_id, on_look, x);
    if (!x->is_asking) { /* answered from within the call: unknown */
        free_inspection(x);
        return NULL;
    }
    x->is_asking = false;
    return x;
}

void sp_mcp_inspection_forget(struct sp_mcp_inspection *x)
{
    if (x != NULL)
        x->fn = NULL;
}

/* ---- the end ---- */

void sp_mcp_memory_free(struct sp_mcp_memory *m)
{
    if (m == NULL)
        return;
    sp_list_each_safe(i, &m->items)
        free_item(m, item_of(i));
    sp_list_each_safe(i, &m->inspections)
        free_inspection(SP_CONTAINER(i, struct sp_mcp_inspection, link));
    free(m);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is kept under which id, and who makes room (unified-exec.md 4.1, 4.5, 4.6).
 */
#include <stdlib.h>

#include "base/auto.h"
#include "engine/manager_priv.h"
#include "engine/prune.h"

/* ---- ids ---- */

int sp_manager_reserve(struct sp_manager *m, int *ret, struct sp_err *e)
{
    return sp_ids_allocate(m->ids, sp_loop_now(m->loop), ret, e);
}

void sp_manager_unreserve(struct sp_manager *m, int id)
{
    if (id != 0)
        sp_ids_release(m->ids, id, sp_loop_now(m->loop));
}

/* ---- entries ---- */

struct sp_process *sp_manager_find(struct sp_manager *m, int id)
{
    for (struct sp_process *p = m->first; p != NULL; p = p->next)
        if (p->is_stored && p->id == id)
            return p;
    return NULL;
}

struct sp_process *sp_manager_find_any(struct sp_manager *m, int id)
{
    struct sp_process *stored = sp_manager_find(m, id);

    if (stored != NULL)
        return stored;
    for (struct sp_process *p = m->last; p != NULL; p = p->prev)
        if (p->id == id && p->initial != NULL && !p->is_discarded)
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

/* A call waits for it, the creating one too: whoever starts many at once loses none of them. */
static bool is_busy(const struct sp_process *p)
{
    return p->initial != NULL || p->interaction != NULL || p->waiting != NULL ||
           (sp_process_has_exited(p) && !p->has_ended);
}

/* NULL: nobody, or no memory to choose; then one more is kept. */
static struct sp_process *choose_victim(struct sp_manager *m)
{
    auto_free struct sp_prune_entry *facts = calloc(m->stored, sizeof *facts);
    size_t count = 0;

    for (const struct sp_process *p = m->first; p != NULL && facts != NULL; p = p->next)
        if (p->is_stored)
            facts[count++] = (struct sp_prune_entry){.id = p->id,
                                                     .last_used = p->last_used_ns,
                                                     .has_exited = sp_process_has_exited(p),
                                                     .is_busy = is_busy(p)};
    const size_t i = facts == NULL ? SP_PRUNE_NONE : sp_prune_choose(facts, count);
    return i == SP_PRUNE_NONE ? NULL : sp_manager_find(m, facts[i].id);
}

static void prune(struct sp_manager *m)
{
    struct sp_process *victim = sp_prune_is_due(m->stored) ? choose_victim(m) : NULL;

    if (victim == NULL)
        return;
    sp_manager_remove(victim);
    sp_process_blame(victim, SP_END_TERMINATED);
    sp_process_kill(victim);
}

void sp_manager_store(struct sp_manager *m, struct sp_process *p)
{
    char notice[SP_PRUNE_NOTICE_SIZE];

    prune(m);
    p->is_stored = true;
    p->last_used_ns = p->start_ns;
    m->stored++;
    if (sp_prune_notice(m->options.notify_at, m->stored, notice))
        sp_process_tell_warning(p, notice);
}

/* ---- entries that nobody asks for ---- */

static void on_ttl(struct sp_timer *t)
{
    struct sp_process *p = SP_CONTAINER(t, struct sp_process, ttl_timer);

    if (is_busy(p)) {
        sp_manager_wait_ttl(p);
        return;
    }
    p->is_forgotten = true; /* nobody wanted to know for as long as it would be remembered */
    sp_manager_remove(p);
}

/* Without memory for the timer the entry stays until somebody asks, or it is pruned. */
void sp_manager_wait_ttl(struct sp_process *p)
{
    const uint64_t ttl_ms = p->m->options.exited_ttl_ms;

    if (p->is_stored && ttl_ms != 0)
        (void)sp_loop_timer(p->m->loop, &p->ttl_timer, sp_loop_now(p->m->loop) + ttl_ms, on_ttl);
}

void sp_manager_list(struct sp_manager *m, void (*fn)(void *user, const struct sp_manager_entry *e),
                     void *user)
{
    int last = 0;

    for (;;) {
        const struct sp_process *next = NULL;

        for (const struct sp_process *p = m->first; p != NULL; p = p->next)
            if (p->is_stored && !sp_process_has_exited(p) && p->id > last &&
                (next == NULL || p->id < next->id))
                next = p;
        if (next == NULL)
            return;
        last = next->id;
        fn(user,
           &(struct sp_manager_entry){.call_id = next->call_id,
                                      .process_id = next->id,
                                      .command = next->command,
                                      .cwd = next->cwd,
                                      .is_tty = next->is_tty,
                                      .environment = next->home == NULL ? "" : next->home->id});
    }
}

uint32_t sp_manager_reserved(const struct sp_manager *m)
{
    return sp_ids_count(m->ids);
}

uint32_t sp_manager_stored(const struct sp_manager *m)
{
    return m->stored;
}

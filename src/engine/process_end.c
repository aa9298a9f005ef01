/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a process is no more, and the ends that its own time brings: the timeout that it was started
 * with, and that nobody uses it any more.
 */
#include "base/auto.h"
#include "engine/manager_priv.h"

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
    return p->exit.signal != 0 ? SP_END_SIGNAL : SP_END_EXIT;
}

static uint64_t later(uint64_t ms, uint64_t by_ms)
{
    return ms > UINT64_MAX - by_ms ? UINT64_MAX : ms + by_ms;
}

static void end_for(struct sp_process *p, enum sp_end_reason reason)
{
    if (sp_process_has_exited(p) || p->is_killing)
        return;
    sp_process_blame(p, reason);
    sp_process_kill(p);
}

static bool is_in_use(const struct sp_process *p)
{
    return p->initial != NULL || p->interaction != NULL || p->waiting != NULL || p->orders != 0;
}

void sp_process_use(struct sp_process *p)
{
    p->idle_from_ms = sp_manager_clock_ms();
}

static uint64_t timeout_due(const struct sp_process *p)
{
    return later(p->start_ms, p->timeout_ms);
}

static uint64_t idle_due(const struct sp_process *p)
{
    return later(p->idle_from_ms, p->m->options.idle_ttl_ms);
}

static void on_timeout(struct sp_timer *t)
{
    end_for(SP_CONTAINER(t, struct sp_process, timeout_timer), SP_END_TIMEOUT);
}

static void on_idle(struct sp_timer *t)
{
    struct sp_process *p = SP_CONTAINER(t, struct sp_process, idle_timer);

    if (is_in_use(p))
        sp_process_use(p);
    if (sp_loop_now(p->m->loop) >= idle_due(p))
        end_for(p, SP_END_IDLE);
    else
        sp_process_keep_time(p);
}

/* Without memory for a timer it is tried again when next something happens. */
static void set(struct sp_process *p, struct sp_timer *t, uint64_t due_ms,
                void (*fn)(struct sp_timer *))
{
    if (due_ms < p->kill_again_ms)
        due_ms = p->kill_again_ms;
    if (t->slot == 0 && due_ms != UINT64_MAX)
        (void)sp_loop_timer(p->m->loop, t, due_ms, fn);
}

void sp_process_keep_time(struct sp_process *p)
{
    if (p->life != SP_PROCESS_RUNNING || p->is_killing) {
        sp_loop_cancel(p->m->loop, &p->timeout_timer);
        sp_loop_cancel(p->m->loop, &p->idle_timer);
        return;
    }
    if (p->timeout_ms != 0)
        set(p, &p->timeout_timer, timeout_due(p), on_timeout);
    if (p->is_stored && p->m->options.idle_ttl_ms != 0)
        set(p, &p->idle_timer, idle_due(p), on_idle);
}

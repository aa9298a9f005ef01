/* SPDX-License-Identifier: Apache-2.0 */
#include "core/proc_limits.h"

#include <inttypes.h>
#include <signal.h>

#include "core/session.h"

enum sp_limit_scope sp_limits_scope(const struct sp_front *f, enum sp_limit limit)
{
    (void)f;
    switch (limit) {
    case SP_LIMIT_MEMORY:
    case SP_LIMIT_PIDS:
    case SP_LIMIT_CPUS:
    case SP_LIMIT_COUNT:
        break;
    case SP_LIMIT_CPU:
        return SP_LIMIT_PER_PROCESS;
    case SP_LIMIT_WALL:
    case SP_LIMIT_OUTPUT:
    case SP_LIMIT_FILES:
    case SP_LIMIT_FSIZE:
        return sp_limit_kinds[limit].own;
    }
    return SP_LIMIT_NOWHERE;
}

/* ---- before the start ---- */

static int refuse_scope(enum sp_limit limit, struct sp_err *e)
{
    return sp_fail(e, SP_E_INVALID, 0,
                   "limit cannot be enforced on this executor: %s (%s; see sallyport doctor)",
                   sp_limit_kinds[limit].name,
                   limit == SP_LIMIT_CPU ? "no cgroup that counts CPU time"
                                         : "no cgroup controller for it");
}

int sp_proc_limits_begin(struct sp_proc *p, const struct sp_limit_ask *ask, struct sp_wire_start *m,
                         struct sp_err *e)
{
    const struct sp_front *front = p->session->front;
    const struct sp_limit_set *most = &front->options.limits.level[SP_LIMIT_COMMAND];
    struct sp_proc_limits *l = &p->limits;

    l->is_asked = ask->is_given;
    if (sp_limits_lower(&ask->set, most, &l->set, e) < 0)
        return -(int)e->code;
    for (int i = 0; i < SP_LIMIT_COUNT; i++) {
        if (l->set.of[i] == 0)
            continue;
        l->scopes[i] = sp_limits_scope(front, (enum sp_limit)i);
        /* A limit of the server is enforced as well as it can be. */
        if (ask->set.of[i] != 0 && !ask->is_best && l->scopes[i] < sp_limit_kinds[i].own)
            return refuse_scope((enum sp_limit)i, e);
    }
    m->max_output = l->set.of[SP_LIMIT_OUTPUT];
    m->rlimits[SP_WIRE_RLIMIT_CPU] = (l->set.of[SP_LIMIT_CPU] + 999) / 1000;
    m->rlimits[SP_WIRE_RLIMIT_FSIZE] = l->set.of[SP_LIMIT_FSIZE];
    m->rlimits[SP_WIRE_RLIMIT_FILES] = l->set.of[SP_LIMIT_FILES];
    return 0;
}

/* ---- while it runs ---- */

static void end_by(struct sp_proc *p, enum sp_limit limit)
{
    if (p->limits.hits.has_ended || !sp_proc_terminate(p))
        return;
    p->limits.hits.has_ended = true;
    p->limits.hits.ended_by = limit;
}

static void on_wall(struct sp_timer *t)
{
    end_by(SP_CONTAINER(t, struct sp_proc, limits.wall), SP_LIMIT_WALL);
}

void sp_proc_limits_started(struct sp_proc *p)
{
    struct sp_loop *loop = p->session->front->loop;
    const uint64_t wall = p->limits.set.of[SP_LIMIT_WALL];

    if (wall != 0 && !sp_loop_timer(loop, &p->limits.wall, sp_loop_now(loop) + wall, on_wall))
        end_by(p, SP_LIMIT_WALL); /* without memory for the timer it would run on */
}

/* ---- what was reached ---- */

static void add_hit(struct sp_proc *p, const struct sp_limit_hit *hit)
{
    struct sp_limit_hits *all = &p->limits.hits;

    for (uint32_t i = 0; i < all->count; i++)
        if (all->items[i].limit == hit->limit)
            return;
    all->items[all->count] = *hit;
    all->items[all->count++].value = p->limits.set.of[hit->limit];
}

/* Whether this limit killed the leader. The signal is the kernel's or the cell's unless it was
 * asked for. */
static bool has_ended(struct sp_proc *p, enum sp_limit limit, int signal)
{
    struct sp_limit_hits *hits = &p->limits.hits;

    if (!hits->has_ended && p->state.exit.signal == signal && !p->was_terminated &&
        !p->was_killed) {
        hits->has_ended = true;
        hits->ended_by = limit;
    }
    return hits->has_ended && hits->ended_by == limit;
}

/* Of a limit that counts once. */
static void note_reached(struct sp_proc *p, enum sp_limit limit, bool is_reached, int signal)
{
    const bool leader = p->limits.set.of[limit] != 0 && is_reached && has_ended(p, limit, signal);

    if (p->limits.set.of[limit] != 0 &&
        (is_reached || (p->limits.hits.has_ended && p->limits.hits.ended_by == limit)))
        add_hit(p, &(struct sp_limit_hit){
                       .limit = limit, .count = 1, .leader = leader || p->limits.hits.has_ended});
}

void sp_proc_limits_judge(struct sp_proc *p)
{
    const uint64_t *of = p->limits.set.of;
    const struct sp_exit *how = &p->state.exit;

    sp_loop_cancel(p->session->front->loop, &p->limits.wall);
    note_reached(p, SP_LIMIT_OUTPUT, p->tail.bytes > of[SP_LIMIT_OUTPUT], SIGKILL);
    note_reached(p, SP_LIMIT_CPU, how->signal == SIGXCPU, SIGXCPU);
    note_reached(p, SP_LIMIT_CPU,
                 how->signal == SIGKILL &&
                     (how->user_us + how->system_us) / 1000 >= of[SP_LIMIT_CPU],
                 SIGKILL);
    note_reached(p, SP_LIMIT_WALL, false, SIGKILL);
    if (of[SP_LIMIT_FSIZE] != 0 && how->signal == SIGXFSZ)
        add_hit(p, &(struct sp_limit_hit){.limit = SP_LIMIT_FSIZE, .count = 1, .leader = true});
    if (p->limits.hits.has_ended)
        p->state.exit.reason = sp_limit_kinds[p->limits.hits.ended_by].reason;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "core/proc_limits.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "core/records.h"
#include "core/session.h"

#define LEAST_DATA    (1ULL << 30) /* RLIMIT_DATA below this ends Node and Java at their start */
#define PEAK_SLACK    (1U << 20)   /* the OOM killer comes that close to a limit */
#define FIRST_LOOK_MS 50
#define LAST_LOOK_MS  1000
#define OOM_SAMPLE_MS 1000

static unsigned controller_bit(int limit)
{
    static const unsigned bits[SP_LIMIT_COUNT] = {
        [SP_LIMIT_MEMORY] = SP_CONTROL_BIT(SP_CONTROL_MEMORY),
        [SP_LIMIT_PIDS] = SP_CONTROL_BIT(SP_CONTROL_PIDS),
        [SP_LIMIT_CPUS] = SP_CONTROL_BIT(SP_CONTROL_CPU),
        [SP_LIMIT_CPU] = SP_CONTROL_BIT(SP_CONTROL_CPUACCT),
    };

    return bits[limit];
}

/* RLIMIT_NPROC counts by user namespace, which a confined cell has for itself; it does not hold for
 * root. */
static bool counts_processes(const struct sp_proc *p)
{
    return p->is_confined && geteuid() != 0;
}

/* `controllers` are those that limits can use. p NULL: for any command. */
static enum sp_limit_scope scope_of(const struct sp_proc *p, unsigned controllers, int limit)
{
    const unsigned bit = controller_bit(limit);

    if (bit == 0)
        return sp_limit_kinds[limit].own;
    if ((controllers & bit) != 0)
        return SP_LIMIT_TREE;
    return limit == SP_LIMIT_MEMORY || limit == SP_LIMIT_CPU ||
                   (limit == SP_LIMIT_PIDS && p != NULL && counts_processes(p))
               ? SP_LIMIT_PER_PROCESS
               : SP_LIMIT_NOWHERE;
}

enum sp_limit_scope sp_limits_scope(unsigned controllers, enum sp_limit limit)
{
    return scope_of(NULL, controllers, limit);
}

/* ---- before the start ---- */

static int refuse_scope(enum sp_limit limit, struct sp_err *e)
{
    static const char *const names[SP_LIMIT_COUNT] = {[SP_LIMIT_MEMORY] = "memory",
                                                      [SP_LIMIT_PIDS] = "pids",
                                                      [SP_LIMIT_CPUS] = "cpu",
                                                      [SP_LIMIT_CPU] = "cpuacct"};

    return sp_fail(e, SP_E_INVALID, 0,
                   "limit cannot be enforced on this executor: %s (no %s controller; see sallyport "
                   "doctor)",
                   sp_limit_kinds[limit].name, names[limit]);
}

static int take_leaf(struct sp_proc *p, unsigned controllers, struct sp_err *e)
{
    struct sp_session *s = p->session;

    return sp_leaf_take(s->front->leaves, &s->leaves, s->number, &p->limits.set, controllers,
                        &p->limits.leaf, e);
}

/* The processes that the kernel has killed on this host for want of memory, in cgroups and without;
 * 0: not known. */
static uint64_t count_oom_kills(void)
{
    char text[16384];
    const char *at =
        sp_read_text(text, sizeof text, "/proc/vmstat") > 0 ? strstr(text, "\noom_kill ") : NULL;

    return at == NULL ? 0 : strtoull(at + sizeof "oom_kill", NULL, 10);
}

static void sample_oom(struct sp_front *f)
{
    const uint64_t now = sp_loop_now(f->loop);

    if (f->oom_kills.read_ms == 0 || now - f->oom_kills.read_ms >= OOM_SAMPLE_MS)
        f->oom_kills = (struct sp_oom_sample){count_oom_kills(), now};
}

int sp_proc_limits_begin(struct sp_proc *p, const struct sp_limit_ask *ask, struct sp_wire_start *m,
                         struct sp_err *e)
{
    struct sp_front *front = p->session->front;
    const struct sp_limit_set *most = &front->options.limits.level[SP_LIMIT_COMMAND];
    struct sp_proc_limits *l = &p->limits;
    unsigned wanted = 0;

    l->is_asked = ask->is_given;
    if (sp_limits_lower(&ask->set, most, &l->set, e) < 0)
        return -(int)e->code;
    for (int i = 0; i < SP_LIMIT_COUNT; i++)
        wanted |= l->set.of[i] != 0 ? controller_bit(i) : 0;
    const unsigned controllers = sp_leaves_prepare(front->leaves, wanted, true);
    for (int i = 0; i < SP_LIMIT_COUNT; i++) {
        if (l->set.of[i] == 0)
            continue;
        l->scopes[i] = scope_of(p, controllers, i);
        /* A limit of the server is enforced as well as it can be. */
        if (ask->set.of[i] != 0 && !ask->is_best && l->scopes[i] < sp_limit_kinds[i].own)
            return refuse_scope((enum sp_limit)i, e);
    }
    m->max_output = l->set.of[SP_LIMIT_OUTPUT];
    m->rlimits[SP_WIRE_RLIMIT_CPU] = (l->set.of[SP_LIMIT_CPU] + 999) / 1000;
    m->rlimits[SP_WIRE_RLIMIT_FSIZE] = l->set.of[SP_LIMIT_FSIZE];
    m->rlimits[SP_WIRE_RLIMIT_FILES] = l->set.of[SP_LIMIT_FILES];
    if (l->scopes[SP_LIMIT_MEMORY] == SP_LIMIT_PER_PROCESS)
        m->rlimits[SP_WIRE_RLIMIT_DATA] =
            l->set.of[SP_LIMIT_MEMORY] < LEAST_DATA ? LEAST_DATA : l->set.of[SP_LIMIT_MEMORY];
    if (l->scopes[SP_LIMIT_PIDS] == SP_LIMIT_PER_PROCESS)
        m->rlimits[SP_WIRE_RLIMIT_PIDS] = l->set.of[SP_LIMIT_PIDS];
    sample_oom(front);
    return controllers == 0 ? 0 : take_leaf(p, controllers, e);
}

/* ---- while it runs ---- */

static void end_by(struct sp_proc *p, enum sp_limit limit)
{
    if (sp_proc_hits(p)->has_ended || !sp_proc_terminate(p))
        return;
    struct sp_limit_hits *hits = sp_proc_own_hits(p);
    if (hits != NULL) {
        hits->has_ended = true;
        hits->ended_by = limit;
        sp_proc_mark(p, (enum sp_proc_mark)(SP_MARK_LIMIT * (limit + 1)), true);
    }
}

static void on_wall(struct sp_timer *t)
{
    end_by(SP_CONTAINER(t, struct sp_proc, limits.wall), SP_LIMIT_WALL);
}

static void look_at_cpu_in(struct sp_proc *p, uint64_t ms);

/* Its cgroup counts the CPU time of all of its processes; RLIMIT_CPU that of each. */
static void on_cpu(struct sp_timer *t)
{
    struct sp_proc *p = SP_CONTAINER(t, struct sp_proc, limits.cpu);
    const uint64_t most = p->limits.set.of[SP_LIMIT_CPU];
    const uint64_t used = sp_leaf_cpu_us(p->limits.leaf) / 1000;

    if (used >= most)
        end_by(p, SP_LIMIT_CPU);
    else
        look_at_cpu_in(p, most - used);
}

/* ms: of CPU time that are left. */
static void look_at_cpu_in(struct sp_proc *p, uint64_t ms)
{
    struct sp_loop *loop = p->session->front->loop;
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    const uint64_t soonest = ms / (uint64_t)(processors > 0 ? processors : 1);
    const uint64_t pause = soonest < FIRST_LOOK_MS  ? FIRST_LOOK_MS
                           : soonest > LAST_LOOK_MS ? LAST_LOOK_MS
                                                    : soonest;

    if (!sp_loop_timer(loop, &p->limits.cpu, sp_loop_now(loop) + pause, on_cpu))
        end_by(p, SP_LIMIT_CPU); /* without memory for the timer it would run on */
}

void sp_proc_limits_started(struct sp_proc *p)
{
    struct sp_loop *loop = p->session->front->loop;
    const int64_t ran = (int64_t)sp_clock_unix_ms() - p->started_ms; /* long, after a takeover */
    uint64_t wall = p->limits.set.of[SP_LIMIT_WALL];

    if (wall != 0 && p->was_restored)
        wall = ran >= 0 && (uint64_t)ran < wall ? wall - (uint64_t)ran : 1;
    if (p->limits.scopes[SP_LIMIT_CPU] == SP_LIMIT_TREE && p->limits.leaf != NULL)
        look_at_cpu_in(p, p->limits.set.of[SP_LIMIT_CPU]);

    if (wall != 0 && !sp_loop_timer(loop, &p->limits.wall, sp_loop_now(loop) + wall, on_wall))
        end_by(p, SP_LIMIT_WALL); /* without memory for the timer it would run on */
}

/* ---- what was reached ---- */

const struct sp_limit_hits *sp_proc_hits(const struct sp_proc *p)
{
    static const struct sp_limit_hits none;

    return p->limits.hits != NULL ? p->limits.hits : &none;
}

struct sp_limit_hits *sp_proc_own_hits(struct sp_proc *p)
{
    if (p->limits.hits == NULL)
        p->limits.hits = calloc(1, sizeof *p->limits.hits);
    return p->limits.hits;
}

static uint64_t value_at(const struct sp_proc *p, enum sp_limit_level level, enum sp_limit limit)
{
    return level == SP_LIMIT_COMMAND ? p->limits.set.of[limit]
                                     : p->session->front->options.limits.level[level].of[limit];
}

/* A hit that is known already gets the newer count. */
static void add_hit(struct sp_proc *p, const struct sp_limit_hit *hit)
{
    struct sp_limit_hits *all = sp_proc_own_hits(p);
    uint32_t i = 0;

    if (all == NULL)
        return; /* out of memory: the limit holds and is not told */
    while (i < all->count && all->items[i].limit != hit->limit)
        i++;
    if (i < all->count) {
        all->items[i].count = hit->count;
        return;
    }
    all->items[i] = *hit;
    all->items[i].value = value_at(p, hit->level, hit->limit);
    all->count++;
}

/* Whether this limit killed the leader. The signal is the kernel's or the cell's unless it was
 * asked for. */
static bool has_ended(struct sp_proc *p, enum sp_limit limit, int signal)
{
    const struct sp_limit_hits *hits = sp_proc_hits(p);
    struct sp_limit_hits *own;

    if (!hits->has_ended && p->state.exit.signal == signal && !p->was_terminated &&
        !p->was_killed && (own = sp_proc_own_hits(p)) != NULL) {
        own->has_ended = true;
        own->ended_by = limit;
        hits = own;
    }
    return hits->has_ended && hits->ended_by == limit;
}

/* Of a limit that counts once. */
static void note_reached(struct sp_proc *p, enum sp_limit limit, bool is_reached, int signal)
{
    const bool leader = p->limits.set.of[limit] != 0 && is_reached && has_ended(p, limit, signal);

    const struct sp_limit_hits *hits = sp_proc_hits(p);

    if (p->limits.set.of[limit] != 0 &&
        (is_reached || (hits->has_ended && hits->ended_by == limit)))
        add_hit(p, &(struct sp_limit_hit){
                       .limit = limit, .count = 1, .leader = leader || hits->has_ended});
}

/* The level with the exhausted memory limit; SP_LIMIT_LEVELS: none, the host or a container around
 * us was short of memory. Few kernels count the hits of version 1; its peak shows them. */
static int memory_level(const struct sp_proc *p, const struct sp_group_counts *counts)
{
    for (int by_peak = 0; by_peak < 2; by_peak++)
        for (int level = 0; level < SP_LIMIT_LEVELS; level++) {
            const uint64_t value = value_at(p, (enum sp_limit_level)level, SP_LIMIT_MEMORY);

            if (value != 0 && (by_peak == 0 ? counts[level].memory_hits != 0
                                            : counts[level].peak_memory >= value - PEAK_SLACK))
                return level;
        }
    return SP_LIMIT_LEVELS;
}

static void note_memory(struct sp_proc *p, const struct sp_group_counts *counts)
{
    const int level = counts[0].kills == 0 ? SP_LIMIT_LEVELS : memory_level(p, counts);

    if (level < SP_LIMIT_LEVELS)
        add_hit(p, &(struct sp_limit_hit){.limit = SP_LIMIT_MEMORY,
                                          .level = (enum sp_limit_level)level,
                                          .count = counts[0].kills,
                                          .leader = has_ended(p, SP_LIMIT_MEMORY, SIGKILL)});
}

/* Version 1, and version 2 before Linux 6.11, count a refused fork in the cgroup of the forking
 * process, later kernels in the cgroup with the limit. */
static void note_pids(struct sp_proc *p, const struct sp_group_counts *counts)
{
    const uint64_t own = value_at(p, SP_LIMIT_COMMAND, SP_LIMIT_PIDS);
    const bool is_own = own != 0 && (counts[0].peak_pids == 0 || counts[0].peak_pids >= own);
    uint64_t refusals = counts[0].refusals;
    int level = is_own && refusals != 0 ? SP_LIMIT_COMMAND : SP_LIMIT_SESSION;

    while (level < SP_LIMIT_LEVELS && value_at(p, (enum sp_limit_level)level, SP_LIMIT_PIDS) == 0)
        level++;
    if (level == SP_LIMIT_LEVELS)
        level = SP_LIMIT_COMMAND;
    if (refusals == 0)
        refusals = counts[level].refusals;
    if (refusals != 0 && value_at(p, (enum sp_limit_level)level, SP_LIMIT_PIDS) != 0)
        add_hit(p, &(struct sp_limit_hit){.limit = SP_LIMIT_PIDS,
                                          .level = (enum sp_limit_level)level,
                                          .count = refusals});
}

/* What the leaf counted of the command's whole tree. */
static void complete_exit(struct sp_exit *how, const struct sp_group_counts *counts)
{
    how->peak_memory_bytes = counts->peak_memory;
    how->peak_processes = counts->peak_pids;
    if (how->has_usage == 0 || counts->user_us + counts->system_us == 0)
        return;
    how->has_usage = SP_USAGE_OF_TREE;
    how->user_us = counts->user_us;
    how->system_us = counts->system_us;
}

/* Read at the exit, and once more at the close: strays count, too. */
static void read_leaf(struct sp_proc *p)
{
    const int due = p->state.closed_seq != 0 ? SP_LEAF_READ_AT_CLOSE : SP_LEAF_READ_AT_EXIT;

    if (p->limits.leaf == NULL || (int)p->limits.read >= due)
        return;
    p->limits.read = due;
    struct sp_group_counts counts[SP_LIMIT_LEVELS];
    sp_leaf_read(p->limits.leaf, counts);
    note_memory(p, counts);
    note_pids(p, counts);
    complete_exit(&p->state.exit, &counts[SP_LIMIT_COMMAND]);
}

/* An unexplained SIGKILL: the OOM killer's count of the whole host has risen since the last sample.
 */
static void suspect_host(struct sp_proc *p)
{
    struct sp_front *front = p->session->front;
    const uint64_t before = front->oom_kills.kills;

    front->oom_kills = (struct sp_oom_sample){count_oom_kills(), sp_loop_now(front->loop)};
    if (p->state.exit.signal != SIGKILL || sp_proc_hits(p)->has_ended || p->was_terminated ||
        p->was_killed || front->oom_kills.kills <= before)
        return;
    struct sp_limit_hits *hits = sp_proc_own_hits(p);
    if (hits != NULL)
        hits->is_host_suspected = true;
}

void sp_proc_limits_judge(struct sp_proc *p)
{
    const uint64_t *of = p->limits.set.of;
    const struct sp_exit *how = &p->state.exit;
    const bool is_first = !p->limits.is_judged;

    p->limits.is_judged = true;
    if (is_first)
        p->state.exit.peak_memory_bytes = p->state.exit.peak_processes =
            0; /* not the cell's word */
    sp_loop_cancel(p->session->front->loop, &p->limits.wall);
    sp_loop_cancel(p->session->front->loop, &p->limits.cpu);
    read_leaf(p);
    note_reached(p, SP_LIMIT_OUTPUT, p->tail.bytes > of[SP_LIMIT_OUTPUT], SIGKILL);
    note_reached(p, SP_LIMIT_CPU, how->signal == SIGXCPU, SIGXCPU);
    note_reached(p, SP_LIMIT_CPU,
                 how->signal == SIGKILL &&
                     (how->user_us + how->system_us) / 1000 >= of[SP_LIMIT_CPU],
                 SIGKILL);
    note_reached(p, SP_LIMIT_WALL, false, SIGKILL);
    if (of[SP_LIMIT_FSIZE] != 0 && how->signal == SIGXFSZ)
        add_hit(p, &(struct sp_limit_hit){.limit = SP_LIMIT_FSIZE, .count = 1, .leader = true});
    if (is_first && how->signal == SIGKILL)
        suspect_host(p);
    if (sp_proc_hits(p)->has_ended)
        p->state.exit.reason = sp_limit_kinds[sp_proc_hits(p)->ended_by].reason;
}

void sp_proc_limits_done(struct sp_proc *p)
{
    struct sp_front *front = p->session->front;
    const bool is_spent = p->was_terminated || p->was_killed || sp_proc_hits(p)->has_ended ||
                          p->life != SP_PROC_CLOSED;

    sp_loop_cancel(front->loop, &p->limits.wall);
    sp_loop_cancel(front->loop, &p->limits.cpu);
    if (p->limits.leaf != NULL)
        sp_leaf_give(TAKE_PTR(p->limits.leaf), is_spent);
    /* A process opened from a record has no seat, and was counted before. */
    if (p->seat.cell == NULL || p->life != SP_PROC_CLOSED || p->limits.is_counted)
        return;
    p->limits.is_counted = true;
    for (uint32_t i = 0; i < sp_proc_hits(p)->count; i++)
        front->stats.limit_hits[p->limits.hits->items[i].limit]++;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cell_life: how cells begin and end.
 *
 * An open cell is one process. A confined cell of tier CELL has two: the maker, which we spawn,
 * enters the namespaces, forks the cell itself, reports the cell's pid (BORN), and exits.
 *
 *   sp_cell_new --> runs --socket fails--> lose: seats hear ops.lost, options.died --> sp_cell_free
 *                    |
 *                    '--sp_cell_kill--> seats hear ops.lost --its last process is reaped--> freed
 *
 * When a confined cell dies, the kernel kills its pid namespace. A killed cell without one leaves
 * its processes as orphans. The front is their subreaper, and stops, kills and reaps them in rounds
 * until none is left: a process that forks while a round runs may escape that round.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/log.h"
#include "core/cells_priv.h"
#include "core/journal.h"
#include "os/tree.h"
#include "sandbox/plan.h"

#define END_WAIT_MS 5000

#define ORPHAN_ROUND_MS    50 /* of work in one turn of the loop */
#define ORPHAN_FIRST_PAUSE 2
#define ORPHAN_LAST_PAUSE  100

static bool is_forked(const struct sp_cell *c)
{
    return c->tier == SP_TIER_CELL;
}

/* ---- orphans ---- */

/* Reaps the open cells that were lost. false: one has not ended yet, so the kernel has not given
 * us its children. */
static bool reap_lost(struct sp_cells *g)
{
    bool is_settled = true;

    sp_list_each(i, &g->cells) {
        struct sp_cell *c = sp_cell_of_link(i);

        if (is_forked(c) || c->socket >= 0 || c->self.pidfd < 0)
            continue;
        if (sp_cell_child_await(&c->self, 0)) {
            sp_loop_unwatch(c->loop, &c->self.on_end);
            (void)sp_cell_child_reap(&c->self);
        } else {
            is_settled = false;
        }
    }
    return is_settled;
}

/* Whether a maker may have forked a cell that it has not reported yet (BORN). */
static bool may_have_unknown_cell(const struct sp_cells *g)
{
    sp_list_each(i, &g->cells) {
        const struct sp_cell *c = sp_cell_of_link(i);

        if (c->maker.pidfd >= 0 || (is_forked(c) && c->self.pidfd < 0 && c->socket >= 0))
            return true;
    }
    return false;
}

/* One round. Returns whether more are needed. */
static bool kill_orphans(struct sp_cells *g, size_t *ret_left)
{
    const bool is_settled = reap_lost(g); /* first: a cell's children become ours when it ends */

    *ret_left = sp_own_kill_orphans(may_have_unknown_cell(g), ORPHAN_ROUND_MS);
    g->expects_orphans = !is_settled || *ret_left > 0;
    return g->expects_orphans;
}

static void complain_of_orphans(size_t left)
{
    sp_log(SP_LOG_ERROR,
           "%zu processes of commands do not end: their cell is gone, and they do not die of "
           "SIGKILL or belong to another user",
           left);
}

static void on_orphans(struct sp_timer *t)
{
    struct sp_cells *g = SP_CONTAINER(t, struct sp_cells, on_orphans);
    size_t left;

    if (!kill_orphans(g, &left))
        return;
    const uint64_t now = sp_loop_now(g->loop);
    if (now >= g->orphans_until_ms) {
        complain_of_orphans(left);
        return; /* sp_cells_free tries again */
    }
    g->orphans_pause_ms *= 2;
    if (g->orphans_pause_ms > ORPHAN_LAST_PAUSE)
        g->orphans_pause_ms = ORPHAN_LAST_PAUSE;
    (void)sp_loop_timer(g->loop, t, now + g->orphans_pause_ms, on_orphans);
}

/* An embedded front is no subreaper: other children of the process are its host's. */
static void end_orphans(struct sp_cells *g)
{
    const uint64_t now = sp_loop_now(g->loop);

    if (g->is_embedded)
        return;
    g->expects_orphans = true;
    g->orphans_until_ms = now + SP_ORPHANS_MS;
    g->orphans_pause_ms = ORPHAN_FIRST_PAUSE;
    sp_loop_cancel(g->loop, &g->on_orphans);
    /* Without memory for the timer, sp_cells_free ends the orphans. */
    (void)sp_loop_timer(g->loop, &g->on_orphans, now, on_orphans);
}

static void await_orphans(struct sp_cells *g)
{
    size_t left = 0;

    sp_loop_cancel(g->loop, &g->on_orphans);
    for (int waited = 0; g->expects_orphans && kill_orphans(g, &left);
         waited += ORPHAN_FIRST_PAUSE) {
        if (waited >= SP_ORPHANS_END_MS) {
            complain_of_orphans(left);
            return;
        }
        (void)poll(NULL, 0, ORPHAN_FIRST_PAUSE);
    }
}

/* ---- all cells of a front ---- */

static void on_ring_news(void *user, uint32_t slot)
{
    struct sp_cell *c = user;
    struct sp_seat *s = c->seats[slot];

    if (s != NULL)
        s->ops->news(s);
}

static bool peek(void *user)
{
    struct sp_cells *g = user;
    bool has_news = false;

    /* ops.news never frees a cell: cells are freed from the loop only. */
    sp_list_each(i, &g->cells) {
        struct sp_cell *c = sp_cell_of_link(i);

        has_news = (c->socket >= 0 && sp_bell_answer(&c->bell, on_ring_news, c)) || has_news;
    }
    return has_news;
}

static bool before_sleep(void *user)
{
    struct sp_cells *g = user;
    bool has_work = peek(user);

    for (struct sp_list *i = g->cells.next; !has_work && i != &g->cells; i = i->next) {
        struct sp_cell *c = sp_cell_of_link(i);

        has_work = c->socket >= 0 && !sp_bell_may_sleep(&c->bell);
    }
    return has_work;
}

static void after_sleep(void *user)
{
    struct sp_cells *g = user;

    sp_list_each(i, &g->cells) {
        struct sp_cell *c = sp_cell_of_link(i);

        if (c->socket >= 0)
            sp_bell_awake(&c->bell);
    }
}

int sp_cells_new(struct sp_loop *loop, bool is_embedded, struct sp_cells **ret, struct sp_err *e)
{
    if (sp_loop_has_sleeper(loop))
        return sp_fail(e, SP_E_STATE, 0, "this loop has the cells of another front already");
    struct sp_cells *g = calloc(1, sizeof *g);
    if (g == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make the cells' table");
    g->loop = loop;
    g->is_embedded = is_embedded;
    sp_list_init(&g->cells);
    if (!is_embedded)
        (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    sp_loop_before_sleep(loop, before_sleep, after_sleep, g);
    sp_loop_peek(loop, peek, g);
    *ret = g;
    return 0;
}

void sp_cells_free(struct sp_cells *g)
{
    struct sp_list *i;

    if (g == NULL)
        return;
    while ((i = sp_list_first(&g->cells)) != NULL)
        sp_cell_free(sp_cell_of_link(i));
    await_orphans(g);
    sp_loop_before_sleep(g->loop, NULL, NULL, NULL);
    sp_loop_peek(g->loop, NULL, NULL);
    free(g);
}

uint64_t sp_cells_overflows(const struct sp_cells *g)
{
    return g->pushes;
}

/* ---- the end of a cell ---- */

/* In an embedded front a program that the host has forked may hold the socket, too: without
 * shutdown the cell would not see the end of the connection. */
static void close_socket(struct sp_cell *c)
{
    if (c->socket < 0)
        return;
    (void)shutdown(c->socket, SHUT_RDWR);
    (void)close(c->socket);
    c->socket = -1;
}

static void stop_listening(struct sp_cell *c)
{
    sp_loop_unwatch(c->loop, &c->on_socket);
    sp_loop_unwatch(c->loop, &c->on_bell);
    sp_loop_cancel(c->loop, &c->on_stall);
    sp_loop_cancel(c->loop, &c->on_short);
}

static void lose_seats(struct sp_cell *c)
{
    struct sp_list *i;

    for (uint32_t k = 0; c->seats != NULL && k < c->options.slots; k++)
        if (c->seats[k] != NULL)
            c->seats[k]->ops->lost(c->seats[k], &c->why);
    while ((i = sp_list_first(&c->workers)) != NULL) {
        struct sp_cell_worker *h = SP_CONTAINER(i, struct sp_cell_worker, link);

        sp_cell_leave(h);
        h->lost(h, &c->why);
    }
    sp_outbox_drop(&c->outbox);
    if (c->outbox.was_full) { /* connections that wait for room must not wait for ever */
        c->outbox.was_full = false;
        c->options.drained(c->options.user);
    }
}

static void report_loss(struct sp_deferred *d)
{
    struct sp_cell *c = SP_CONTAINER(d, struct sp_cell, deferred_end);

    if (c->why.code != SP_E_NONE)
        sp_log(SP_LOG_WARN, "%s", c->why.msg);
    else
        sp_log(SP_LOG_ERROR, "the cell (pid %d) has ended; its processes are lost",
               (int)c->self.pid);
    sp_cell_child_kill(&c->self);
    if (!is_forked(c)) {
        end_orphans(c->group);
        sp_cgroup_clean_up(c->cgroup);
        lose_seats(c);
    }
    /* For a forked cell the pool answers with sp_cell_kill, which loses the seats: the pool must
     * first know that this cell gets no more starts. */
    c->options.died(c->options.user);
}

void sp_cell_lose(struct sp_cell *c)
{
    if (c->socket < 0)
        return;
    stop_listening(c);
    close_socket(c);
    sp_loop_defer(c->loop, &c->deferred_end, report_loss);
}

static void await_end(struct sp_cell *c, struct sp_cell_child *child)
{
    if (child->pidfd < 0)
        return;
    sp_loop_unwatch(c->loop, &child->on_end);
    if (!sp_cell_child_await(child, END_WAIT_MS)) {
        sp_log(SP_LOG_ERROR, "the cell (pid %d) does not end, killing it", (int)child->pid);
        sp_cell_child_kill(child);
        if (!is_forked(c))
            sp_cgroup_clean_up(c->cgroup);
    }
    if (!sp_cell_child_reap(child) && !is_forked(c))
        end_orphans(c->group);
}

static void release_cell(struct sp_cell *c)
{
    /* ops.lost may have sent a message, which set these timers again. */
    sp_loop_cancel(c->loop, &c->on_stall);
    sp_loop_cancel(c->loop, &c->on_short);
    sp_list_remove(&c->link);
    if (c->options.gone != NULL)
        c->options.gone(c->options.user);
    if (c->cgroup_path[0] != 0)
        sp_journal_remove_cgroup(c->options.journal, c->cgroup_path);
    sp_outbox_free(&c->outbox);
    sp_bell_free(&c->bell);
    free(c->seats);
    free(c->free_slots);
    free(c);
}

void sp_cell_free(struct sp_cell *c)
{
    if (c == NULL)
        return;
    stop_listening(c);
    sp_loop_undefer(c->loop, &c->deferred_end);
    if (is_forked(c)) {
        await_end(c, &c->maker);
        sp_cell_read_birth(c->socket, &c->message, &c->self);
        sp_cell_child_kill(&c->self);
    }
    close_socket(c);
    await_end(c, &c->self);
    release_cell(c);
}

static void reap_and_release(struct sp_deferred *d)
{
    struct sp_cell *c = SP_CONTAINER(d, struct sp_cell, deferred_end);

    await_end(c, &c->self);
    release_cell(c);
}

static void on_self_end(struct sp_watch *w, uint32_t events)
{
    struct sp_cell *c = SP_CONTAINER(w, struct sp_cell, self.on_end);

    (void)events;
    sp_loop_unwatch(c->loop, w);
    sp_loop_defer(c->loop, &c->deferred_end, reap_and_release);
}

/* The second half of sp_cell_kill, once the maker has exited. */
static void end_self(struct sp_cell *c)
{
    sp_cell_read_birth(c->socket, &c->message, &c->self);
    close_socket(c);
    if (is_forked(c))
        sp_cell_child_kill(&c->self); /* other cells kill their processes and exit by themselves */
    /* If its end cannot be watched, await_end blocks for it at the end of this turn. */
    if (c->self.pidfd < 0 ||
        sp_loop_watch(c->loop, &c->self.on_end, c->self.pidfd, EPOLLIN, on_self_end, NULL) < 0)
        sp_loop_defer(c->loop, &c->deferred_end, reap_and_release);
}

static void on_maker_end(struct sp_watch *w, uint32_t events)
{
    struct sp_cell *c = SP_CONTAINER(w, struct sp_cell, maker.on_end);

    (void)events;
    sp_loop_unwatch(c->loop, w);
    (void)sp_cell_child_reap(&c->maker);
    if (c->is_killed)
        end_self(c);
}

void sp_cell_kill(struct sp_cell *c)
{
    if (c->is_killed)
        return;
    c->is_killed = true;
    stop_listening(c);
    sp_loop_undefer(c->loop, &c->deferred_end);
    lose_seats(c);
    if (c->maker.pidfd < 0)
        end_self(c); /* else on_maker_end does */
}

void sp_cell_abandon(struct sp_cell *c)
{
    sp_log(SP_LOG_ERROR, "the cell (pid %d) does not answer, killing it", (int)c->self.pid);
    sp_cell_child_kill(&c->maker);
    sp_cell_child_kill(&c->self);
}

/* ---- the beginning of a cell ---- */

static int launch(struct sp_cell *c, struct sp_err *e)
{
    auto_close int plan = -1;

    if (c->is_confined && (plan = sp_cell_seal("sallyport-plan", c->options.plan)) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "hand over the plan");
    const int spawned =
        sp_cell_spawn(c->options.program, &c->socket, is_forked(c) ? &c->maker : &c->self, e);
    if (spawned < 0)
        return spawned;

    struct sp_wire_hello hello = {
        .head = {.version = SP_WIRE_VERSION, .op = SP_WIRE_HELLO},
        .slots = c->options.slots,
        .nofile_soft = c->options.nofile_soft,
        .nofile_hard = c->options.nofile_hard,
    };
    memcpy(hello.cgroup, c->cgroup, sizeof hello.cgroup);
    const int fds[3] = {c->bell.page_fd, c->bell.wake[SP_SIDE_CELL], plan};
    const int r =
        sp_wire_send(c->socket, true, &hello, sizeof hello, NULL, 0, fds, plan >= 0 ? 3 : 2);
    if (r < 0)
        return sp_fail(e, SP_E_SYSTEM, -r, "greet the cell");
    (void)close(c->bell.wake[SP_SIDE_CELL]);
    c->bell.wake[SP_SIDE_CELL] = -1;
    return 0;
}

int sp_cell_new(struct sp_cells *g, const struct sp_cell_options *o, struct sp_cell **ret,
                struct sp_err *e)
{
    struct sp_cell *c = calloc(1, sizeof *c);
    int r;

    if (c == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a cell");
    c->group = g;
    c->loop = g->loop;
    c->options = *o;
    c->is_confined = o->plan != NULL;
    c->is_ready = !c->is_confined;
    c->tier =
        c->is_confined ? ((const struct sp_plan *)(const void *)o->plan->data)->tier : SP_TIER_NONE;
    c->socket = c->self.pidfd = c->maker.pidfd = -1;
    c->self.on_end.fd = c->maker.on_end.fd = -1;
    c->bell = (struct sp_bell){.page_fd = -1, .wake = {-1, -1}};
    sp_list_init(&c->workers);
    sp_list_prepend(&g->cells, &c->link);
    if (o->use_cgroups && !sp_cgroup_name(c->cgroup))
        c->cgroup[0] = 0;
    /* The journal has the cgroup before it exists. */
    if (c->cgroup[0] != 0 && sp_cgroup_path(c->cgroup, c->cgroup_path, sizeof c->cgroup_path))
        sp_journal_add_cgroup(o->journal, c->cgroup_path);
    else
        c->cgroup_path[0] = 0;
    c->seats = calloc(o->slots, sizeof(struct sp_seat *));
    c->free_slots = calloc(o->slots, sizeof *c->free_slots);
    if (c->seats == NULL || c->free_slots == NULL) {
        r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a cell's tables");
        goto fail;
    }
    while (c->free_count < o->slots) { /* a stack: the lowest slot is taken first */
        c->free_slots[c->free_count] = o->slots - 1 - c->free_count;
        c->free_count++;
    }
    r = sp_outbox_reserve(&c->outbox) ? sp_bell_new(o->slots, &c->bell, e)
                                      : sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a cell's tables");
    if (r == 0)
        r = launch(c, e);
    if (r == 0)
        r = sp_loop_watch(c->loop, &c->on_socket, c->socket, EPOLLIN, sp_cell_on_socket, e);
    if (r == 0)
        r = sp_loop_watch(c->loop, &c->on_bell, c->bell.wake[SP_SIDE_FRONT], EPOLLIN,
                          sp_cell_on_bell, e);
    if (r == 0 && is_forked(c))
        r = sp_loop_watch(c->loop, &c->maker.on_end, c->maker.pidfd, EPOLLIN, on_maker_end, e);
    if (r < 0)
        goto fail;
    if (c->cgroup_path[0] != 0)
        sp_cell_hold(c, sp_journal_fd(o->journal));
    c->options.plan = NULL; /* borrowed for this call */
    *ret = c;
    return 0;
fail:
    c->options.gone = NULL;
    sp_cell_free(c);
    return r;
}

/* ---- questions ---- */

bool sp_cell_is_deserted(const struct sp_cell *c)
{
    const uint32_t resting = sp_cell_resting_workers(c);

    return c->busy == resting && c->self.pidfd >= 0 && sp_tree_living(c->self.pid) <= (int)resting;
}

bool sp_cell_is_ready(const struct sp_cell *c)
{
    return c->is_ready;
}

uint32_t sp_cell_tier(const struct sp_cell *c)
{
    return c->tier;
}

bool sp_cell_is_busy(const struct sp_cell *c)
{
    return c->busy > 0;
}

pid_t sp_cell_pid(const struct sp_cell *c)
{
    return c->self.pid;
}

const char *sp_cell_cgroup(const struct sp_cell *c)
{
    return c->cgroup;
}

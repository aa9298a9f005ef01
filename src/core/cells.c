/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cells: see cells.h.
 *
 * An open cell is one process. A confined cell of tier CELL has two: the maker, which we spawn,
 * enters the namespaces, forks the cell itself, reports the cell's pid (BORN), and exits.
 *
 *   sp_cell_new --> runs --socket fails--> lost: seats hear ops.lost, options.died
 *                    |                                      |
 *                    '-------------sp_cell_kill-------------'--> seats hear ops.lost
 *                                                                  --its process is reaped--> freed
 *
 * When a confined cell dies, the kernel kills its pid namespace. A killed cell without one leaves
 * its processes as orphans. The front is their subreaper, and stops, kills and reaps them in rounds
 * until none is left: a process that forks while a round runs may escape that round.
 *
 * A message goes into the cell's socket at once if the socket takes it; otherwise it waits in the
 * outbox, behind earlier messages. A cell that takes nothing for STALL_MS counts as stalled: new
 * starts, signals and resizes are refused until the cell takes or says something.
 */
#include "core/cells.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/log.h"
#include "core/cell_record.h"
#include "core/cells_priv.h"
#include "core/journal.h"
#include "core/managed.h"
#include "core/publish.h"
#include "os/fd.h"
#include "os/spawn.h"
#include "os/tree.h"
#include "sandbox/plan.h"

#define END_WAIT_MS      5000
#define STALL_MS         5000
#define SHORT_MS         10 /* until a send that failed with ENOMEM or ENOBUFS is repeated */
#define MESSAGES_AT_ONCE 64

#define ORPHAN_ROUND_MS    50 /* of work in one turn of the loop */
#define ORPHAN_FIRST_PAUSE 2
#define ORPHAN_LAST_PAUSE  100

static void reap_and_release(struct sp_deferred *d);
static void stop_listening(struct sp_cell *c);
static void close_socket(struct sp_cell *c);

static struct sp_cell *cell_of(struct sp_list *link)
{
    return SP_CONTAINER(link, struct sp_cell, link);
}

static bool is_forked(const struct sp_cell *c)
{
    return c->tier == SP_TIER_CELL;
}

/* ---- orphans ---- */

/* One round. Returns whether more are needed. */
static bool kill_orphans(struct sp_cells *g, size_t *ret_left)
{
    bool is_settled = true;        /* every lost cell has ended: the kernel gave us its children */
    bool has_unknown_cell = false; /* a maker may have forked a cell that it has not reported yet */

    sp_list_each(i, &g->cells) {
        struct sp_cell *c = cell_of(i);

        if (c->maker.pidfd >= 0 || (is_forked(c) && c->self.pidfd < 0 && c->socket >= 0))
            has_unknown_cell = true;
        if (is_forked(c) || c->socket >= 0 || c->self.pidfd < 0)
            continue;
        if (sp_await_readable(c->self.pidfd, 0)) {
            sp_loop_unwatch(c->loop, &c->self.on_end);
            (void)sp_cell_child_reap(&c->self);
            if (c->is_killed) /* on_self_end does not come any more */
                sp_loop_defer(c->loop, &c->deferred_end, reap_and_release);
        } else {
            is_settled = false;
        }
    }
    const pid_t keeper = sp_hold_keeper(g->hold); /* the subreaper above our siblings */
    *ret_left =
        sp_own_kill_orphans(keeper > 0 ? keeper : getpid(), has_unknown_cell, ORPHAN_ROUND_MS);
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

/* ---- all cells of a front ---- */

static void on_slot_news(void *user, uint32_t slot)
{
    struct sp_cell *c = user;
    struct sp_seat *s = c->seats[slot];

    sp_ring_slots_note(&c->slots, slot);
    if (s != NULL)
        s->ops->news(s);
}

static bool peek(void *user)
{
    struct sp_cells *g = user;
    bool has_news = false;

    /* ops.news never frees a cell: cells are freed from the loop only. */
    sp_list_each(i, &g->cells) {
        struct sp_cell *c = cell_of(i);

        has_news = (c->socket >= 0 && sp_bell_answer(&c->bell, on_slot_news, c)) || has_news;
    }
    return has_news;
}

static bool before_sleep(void *user)
{
    struct sp_cells *g = user;
    bool has_work = peek(user);

    for (struct sp_list *i = g->cells.next; !has_work && i != &g->cells; i = i->next) {
        struct sp_cell *c = cell_of(i);

        has_work = c->socket >= 0 && !sp_bell_may_sleep(&c->bell);
    }
    return has_work;
}

static uint64_t after_sleep(void *user)
{
    struct sp_cells *g = user;
    uint64_t sent_us = 0;

    sp_list_each(i, &g->cells) {
        struct sp_cell *c = cell_of(i);

        if (c->socket < 0)
            continue;
        const uint64_t cell_us = sp_bell_awake(&c->bell);
        if (cell_us != 0)
            sent_us = cell_us;
    }
    return sent_us;
}

int sp_cells_new(struct sp_loop *loop, bool is_embedded, struct sp_cells **ret, struct sp_err *e)
{
    struct sp_cells *g = calloc(1, sizeof *g);

    if (g == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make the cells' table");
    if (!sp_loop_hook(loop, &(struct sp_loop_hooks){before_sleep, after_sleep, peek, g})) {
        free(g);
        return sp_fail(e, SP_E_STATE, 0, "this loop has the cells of another front already");
    }
    g->loop = loop;
    g->is_embedded = is_embedded;
    sp_list_init(&g->cells);
    sp_rings_init(&g->rings, loop);
    if (!is_embedded)
        (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    *ret = g;
    return 0;
}

void sp_cells_free(struct sp_cells *g)
{
    struct sp_list *i;
    size_t left = 0;

    if (g == NULL)
        return;
    sp_list_each(k, &g->cells) /* open cells end side by side */
        if (cell_of(k)->tier == SP_TIER_NONE) {
            stop_listening(cell_of(k));
            close_socket(cell_of(k));
        }
    while ((i = sp_list_first(&g->cells)) != NULL)
        sp_cell_free(cell_of(i));
    sp_loop_cancel(g->loop, &g->on_orphans);
    for (int waited = 0; g->expects_orphans && kill_orphans(g, &left);
         waited += ORPHAN_FIRST_PAUSE) {
        if (waited >= SP_ORPHANS_END_MS) {
            complain_of_orphans(left);
            break;
        }
        (void)poll(NULL, 0, ORPHAN_FIRST_PAUSE);
    }
    (void)sp_loop_hook(g->loop, NULL);
    sp_loop_cancel(g->loop, &g->rings.on_pressure);
    free(g);
}

/* ---- sending ---- */

static void flush_outbox(struct sp_cell *c);

void sp_cell_set_stalled(struct sp_cell *c)
{
    if (c->is_stalled)
        return;
    c->is_stalled = true;
    sp_log(SP_LOG_ERROR, "the cell (pid %d) does not answer; its starts are refused until it does",
           (int)c->self.pid);
    c->options.drained(c->options.user); /* connections that wait for the cell are answered */
}

static void on_stall(struct sp_timer *t)
{
    sp_cell_set_stalled(SP_CONTAINER(t, struct sp_cell, on_stall));
}

/* Without a pid no advice: the maker has not reported the cell yet, and `kill -KILL 0` would end
 * the reader's own processes. */
static int fail_no_answer(const struct sp_cell *c, const char *what, struct sp_err *e)
{
    const int pid = (int)c->self.pid;

    return pid <= 0
               ? sp_fail(e, SP_E_FAILED, 0, "the new cell %s", what)
               : sp_fail(e, SP_E_FAILED, 0,
                         "the cell (pid %d) %s; `kill -KILL %d` ends it and its processes, and "
                         "the next start makes a new one",
                         pid, what, pid);
}

void sp_cell_suspect(struct sp_seat *s, int seconds, struct sp_err *ret)
{
    char what[64];

    (void)snprintf(what, sizeof what, "has not answered for %d s", seconds);
    (void)fail_no_answer(s->cell, what, ret);
    if (s->cell->socket >= 0)
        sp_cell_set_stalled(s->cell);
}

static void on_short(struct sp_timer *t)
{
    struct sp_cell *c = SP_CONTAINER(t, struct sp_cell, on_short);

    if (c->socket >= 0)
        flush_outbox(c);
}

/* Waits for room in the socket, or for SHORT_MS if the kernel had no memory. */
static void watch_outbox(struct sp_cell *c)
{
    const uint64_t now = sp_loop_now(c->loop);
    const bool waits_for_memory = c->outbox.first != NULL && c->outbox.is_short &&
                                  sp_loop_timer(c->loop, &c->on_short, now + SHORT_MS, on_short);

    sp_loop_rewatch(c->loop, &c->on_socket,
                    EPOLLIN | (c->outbox.first != NULL && !waits_for_memory ? EPOLLOUT : 0U));
    if (c->outbox.first == NULL)
        sp_loop_cancel(c->loop, &c->on_stall);
    else if (!c->is_stalled && c->on_stall.slot == 0)
        (void)sp_loop_timer(c->loop, &c->on_stall, now + STALL_MS, on_stall);
}

/* 0, or minus errno; -EPIPE: the cell is dead. */
static int send_message(struct sp_cell *c, const void *msg, size_t len, const void *tail,
                        size_t tail_len, const int *fds, int fd_count)
{
    if (c->socket < 0 || c->is_killed)
        return -EPIPE;
    if (c->outbox.first == NULL) {
        const int r = sp_wire_send(c->socket, false, msg, len, tail, tail_len, fds, fd_count);

        if (r == 0)
            return 0;
        /* The socket is not closed here: messages that the cell sent before its end are read
         * first. */
        if (r != -EAGAIN && !sp_wire_is_short(r))
            return r == -ECONNRESET ? -EPIPE : r;
        c->outbox.is_short = r != -EAGAIN;
    }
    if (!sp_outbox_add(&c->outbox, msg, len, tail, tail_len, fds, fd_count))
        return -ENOMEM;
    if (c->outbox.bytes > SP_OUTBOX_FULL && !c->is_stalled)
        c->group->overflows++;
    watch_outbox(c);
    return 0;
}

static void report_loss(struct sp_deferred *d);

/* The loss is reported later in this turn of the loop. */
static void set_lost(struct sp_cell *c)
{
    stop_listening(c);
    close_socket(c);
    sp_loop_defer(c->loop, &c->deferred_end, report_loss);
}

static void flush_outbox(struct sp_cell *c)
{
    const size_t before = c->outbox.bytes;
    const bool has_drained = sp_outbox_send(&c->outbox, c->socket);

    if (c->outbox.err != 0) { /* without a FORGET, for example, its slot stays occupied */
        sp_log(SP_LOG_ERROR, "send to the cell (pid %d): %s", (int)c->self.pid,
               sp_errno_text(c->outbox.err));
        set_lost(c);
    } else {
        if (c->outbox.bytes < before) {
            c->is_stalled = false;
            sp_loop_cancel(c->loop, &c->on_stall);
        }
        watch_outbox(c);
    }
    if (has_drained)
        c->options.drained(c->options.user);
}

/* Refuses a new request to a cell that is lost or stalled. */
static int check_answers(const struct sp_cell *c, struct sp_err *e)
{
    if (c->socket < 0)
        return sp_fail(e, SP_E_FAILED, 0, "the cell was lost; try again");
    if (c->is_stalled)
        return fail_no_answer(c, "does not answer", e);
    if (c->is_adopting)
        return sp_fail(e, SP_E_FAILED, 0, "the server has just taken the cell over; try again");
    return 0;
}

int sp_cell_call(struct sp_cell *c, const struct sp_wire_call *m, const int *fds, int fd_count)
{
    return send_message(c, m, sizeof *m, NULL, 0, fds, fd_count);
}

static int explain_unsent(int r, struct sp_err *e)
{
    return r == -EPIPE ? sp_fail(e, SP_E_FAILED, 0, "the cell was lost; try again")
                       : sp_fail(e, SP_E_SYSTEM, -r, "ask the cell");
}

int sp_cell_send(const struct sp_seat *s, enum sp_wire_op op, uint64_t token, int a, int b)
{
    const bool wants_answer = op == SP_WIRE_SIGNAL || op == SP_WIRE_RESIZE;
    const struct sp_wire_call m = {
        .head = {.version = SP_WIRE_VERSION,
                 .op = (uint16_t)op,
                 .slot = s->slot,
                 .number = s->number},
        .token = token,
        .a = a,
        .b = b,
    };

    if (wants_answer && s->cell != NULL && s->cell->is_stalled)
        return ETIMEDOUT;
    return s->cell != NULL && send_message(s->cell, &m, sizeof m, NULL, 0, NULL, 0) == 0 ? 0 : EIO;
}

/* ---- seats ---- */

static int send_for_slots(struct sp_ring_slots *s, const struct sp_wire_call *m, int fd)
{
    return sp_cell_call(SP_CONTAINER(s, struct sp_cell, slots), m, &fd, fd >= 0);
}

static uint32_t count_idle(const struct sp_cell *c)
{
    uint32_t n = 0;

    sp_list_each(i, &c->workers)
        n += SP_CONTAINER(i, const struct sp_cell_worker, link)->is_idle;
    return n;
}

static void set_less_busy(struct sp_cell *c)
{
    c->busy--;
    if (c->busy == count_idle(c) && c->options.idle != NULL)
        c->options.idle(c->options.user);
}

void sp_cell_note_closed(struct sp_seat *s)
{
    struct sp_cell *c = s->cell;

    if (c == NULL || s->has_closed)
        return;
    s->has_closed = true;
    if (c->options.closed != NULL)
        c->options.closed(c->options.user);
    set_less_busy(c);
}

static void note_answered(struct sp_seat *s)
{
    s->cell->starting -= s->is_starting;
    s->is_starting = false;
}

static void give_seat_back(struct sp_seat *s)
{
    struct sp_cell *c = s->cell;

    note_answered(s);
    sp_cell_note_closed(s);
    c->seats[s->slot] = NULL;
    if (!s->is_expected)
        sp_ring_slots_give(&c->slots, s->slot);
    s->cell = NULL;
}

static void close_all(const int *fds, int count)
{
    for (int i = 0; i < count; i++)
        (void)close(fds[i]);
}

/* Adds what the child enters its leaf by. */
static int add_leaf(const struct sp_cell *c, struct sp_wire_start *m, const struct sp_leaf *leaf,
                    int *fds, int *count, struct sp_err *e)
{
    bool has_dir = false;
    const int n = sp_leaf_open(leaf, c->tier != SP_TIER_NONE, fds + *count, &has_dir);

    if (n < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "open the cgroup that holds the limits of a command");
    *count += n;
    m->flags |= has_dir ? SP_START_LEAF : 0U;
    m->joins = (uint32_t)(n - has_dir);
    return 0;
}

int sp_cell_start(struct sp_cell *c, struct sp_seat *s, struct sp_wire_start *m,
                  const struct sp_buf *strings, const struct sp_leaf *leaf, bool is_owned,
                  struct sp_err *e)
{
    int fds[1 + SP_LEAF_FDS];
    int count = 0;
    const struct sp_str bytes = sp_buf_str(strings);
    const bool is_inline = bytes.n <= SP_WIRE_MAX - sizeof *m;
    int r = check_answers(c, e);

    if (r < 0)
        return r;
    if (strings->len > SP_WIRE_STRINGS)
        return sp_fail(e, SP_E_SYSTEM, E2BIG, "arguments and environment");
    if (!is_inline && (fds[count++] = sp_seal("sallyport-start", &bytes, 1)) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "hand over arguments");
    m->flags &= ~(uint32_t)(SP_START_MEMFD | SP_START_LEAF);
    m->joins = 0;
    r = leaf == NULL ? 0 : add_leaf(c, m, leaf, fds, &count, e);
    if (r == 0)
        r = sp_ring_slots_take(&c->slots, &s->slot, e);
    if (r < 0) {
        close_all(fds, count);
        return r;
    }

    s->cell = c;
    s->has_closed = s->is_expected = false;
    s->is_starting = true;
    c->starting++;
    c->busy++;
    s->number = ++c->next_number;
    c->seats[s->slot] = s;
    m->head = (struct sp_wire_head){
        .version = SP_WIRE_VERSION, .op = SP_WIRE_START, .slot = s->slot, .number = s->number};
    sp_bell_serve(&c->bell, s->slot, is_owned,
                  (struct sp_served){0}); /* before the cell can read the first byte */
    m->string_bytes = (uint32_t)strings->len;
    if (!is_inline)
        m->flags |= SP_START_MEMFD;
    if (s->ops->placed != NULL && !s->ops->placed(s))
        r = sp_fail(e, SP_E_LIMIT, 0, "the server remembers too much to start another process");
    else if ((r = send_message(c, m, sizeof *m, strings->data, is_inline ? strings->len : 0, fds,
                               count)) < 0)
        r = explain_unsent(r, e);
    close_all(fds, count);
    if (r < 0)
        give_seat_back(s);
    return r;
}

void sp_cell_forget(struct sp_seat *s)
{
    if (s->cell == NULL)
        return;
    /* The socket keeps the order: the slot's next START arrives after FORGET. */
    (void)sp_cell_send(s, SP_WIRE_FORGET, 0, 0, 0);
    sp_bell_serve(&s->cell->bell, s->slot, false, (struct sp_served){0});
    give_seat_back(s);
}

int sp_cell_send_input_log(const struct sp_seat *s, int log_fd)
{
    const struct sp_wire_call m = {.head = {SP_WIRE_VERSION, SP_WIRE_INPUT, s->slot, s->number}};

    return s->cell == NULL ? -EPIPE : sp_cell_call(s->cell, &m, &log_fd, 1);
}

bool sp_cell_connect(struct sp_cell *c, uint64_t number, uint16_t port, int family)
{
    const struct sp_wire_call m = {.head = {.version = SP_WIRE_VERSION, .op = SP_WIRE_CONNECT},
                                   .token = number,
                                   .a = port,
                                   .b = family};

    return check_answers(c, NULL) == 0 && sp_cell_call(c, &m, NULL, 0) == 0;
}

/* ---- workers ---- */

int sp_cell_join(struct sp_cell *c, struct sp_cell_worker *h, int socket, struct sp_err *e)
{
    const struct sp_wire_call m = {.head = {.version = SP_WIRE_VERSION, .op = SP_WIRE_FILES}};
    int r = check_answers(c, e);

    if (r < 0)
        return r;
    r = sp_cell_call(c, &m, &socket, 1);
    if (r < 0)
        return explain_unsent(r, e);
    h->cell = c;
    sp_list_prepend(&c->workers, &h->link);
    c->busy++;
    return 0;
}

void sp_cell_leave(struct sp_cell_worker *h)
{
    struct sp_cell *c = h->cell;

    if (c == NULL)
        return;
    sp_list_remove(&h->link);
    h->cell = NULL;
    set_less_busy(c);
}

/* The cell keeps a duplicate open, and the flock on it. If the message cannot be sent, the lock
 * ends with the front. */
static void hold(struct sp_cell *c, int fd)
{
    const struct sp_wire_call m = {.head = {.version = SP_WIRE_VERSION, .op = SP_WIRE_HOLD}};

    if (fd >= 0)
        (void)sp_cell_call(c, &m, &fd, 1);
}

/* ---- the end of a cell ---- */

/* The keeper has the socket, too, and of an embedded front perhaps a program that the host has
 * forked: without shutdown the cell would not see the end of the connection. */
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
    sp_loop_cancel(c->loop, &c->on_silent);
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
    sp_outbox_free(&c->outbox); /* send_message takes no more */
    if (c->outbox.was_full) {   /* connections that wait for room must not wait for ever */
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
        sp_cgroup_remove(c->cgroup_path);
        lose_seats(c);
    }
    /* For a forked cell the pool answers with sp_cell_kill, which loses the seats: the pool must
     * first know that this cell gets no more starts. */
    c->options.died(c->options.user);
}

static void await_end(struct sp_cell *c, struct sp_cell_child *child)
{
    if (child->pidfd < 0)
        return;
    sp_loop_unwatch(c->loop, &child->on_end);
    if (!sp_await_readable(child->pidfd, END_WAIT_MS)) {
        sp_log(SP_LOG_ERROR, "the cell (pid %d) does not end, killing it", (int)child->pid);
        sp_cell_child_kill(child);
        if (!is_forked(c))
            sp_cgroup_remove(c->cgroup_path);
    }
    /* The status of a kept cell goes to the keeper: it may have left processes. */
    if ((!sp_cell_child_reap(child) || c->key != 0) && !is_forked(c))
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
    sp_cell_record_end(c);
    if (c->cgroup_path[0] != 0)
        sp_journal_remove(c->options.journal, SP_JOURNAL_CGROUP, c->cgroup_path);
    sp_outbox_free(&c->outbox);
    sp_bell_free(&c->bell);
    sp_ring_slots_done(&c->slots);
    free(c->seats);
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

/* ---- receiving; the bytes come from a process that commands may have taken over ---- */

static struct sp_seat *seat_of(struct sp_cell *c, const struct sp_wire_head *h)
{
    struct sp_seat *s = h->slot < c->options.slots ? c->seats[h->slot] : NULL;

    return s != NULL && s->number == h->number ? s : NULL;
}

static void on_started(struct sp_cell *c)
{
    const struct sp_wire_started *m = (const void *)c->message.bytes;
    struct sp_seat *s = seat_of(c, &m->head);
    const int want = m->step == SP_STEP_NONE && m->has_input != 0;

    if (s == NULL)
        return; /* forgotten while it started */
    if (!s->is_starting)
        return; /* answered before */
    note_answered(s);
    if (c->message.is_cut || c->message.fd_count != want) {
        /* Our descriptor table is full. Report a failed start; the cell gets FORGET and kills the
         * process. */
        const struct sp_wire_started failed = {
            .head = m->head, .step = SP_STEP_PREPARE, .err = EMFILE};

        s->ops->started(s, &failed, -1);
        return;
    }
    const int input = want > 0 ? sp_fd_lift(c->message.fds[0]) : -1;
    c->message.fd_count = 0;
    s->ops->started(s, m, input);
}

/* Sent for an earlier front, which has died: the cell tells again what is still so. */
static bool is_for_another(const struct sp_cell *c, const struct sp_wire_head *head)
{
    return c->is_adopting && !c->has_begun && head->op != SP_WIRE_BORN &&
           head->op != SP_WIRE_INVENTORY &&
           (head->op != SP_WIRE_READY ||
            ((const struct sp_wire_ready *)(const void *)head)->step == SP_BUILD_NONE);
}

/* false: the cell breaks the protocol, or has no network. */
static bool on_message(struct sp_cell *c)
{
    void *bytes = c->message.bytes; /* sp_wire_recv has checked the size for the operation */
    const struct sp_wire_head *head = bytes;

    if (is_for_another(c, head))
        return true;
    if (head->op == SP_WIRE_STARTED) {
        on_started(c);
    } else if (head->op == SP_WIRE_BORN) { /* from the maker: the cell that it has forked */
        if (c->maker.pidfd >= 0 && c->self.pidfd < 0 && sp_cell_take_birth(&c->message, &c->self))
            sp_cell_record_born(c);
    } else if (head->op == SP_WIRE_INVENTORY) {
        return sp_cell_take_inventory(c);
    } else if (head->op == SP_WIRE_PORTS) {
        if (c->is_ready || c->options.managed == NULL ||
            !sp_managed_take_ports(c->options.managed, bytes, c->message.fds,
                                   c->message.fd_count)) {
            sp_cell_explain(SP_BUILD_PORTS, EPROTO, "", &c->why);
            return false;
        }
    } else if (head->op == SP_WIRE_READY) {
        struct sp_wire_ready *m = bytes;
        const bool has_ports =
            c->options.managed == NULL || sp_managed_has_ports(c->options.managed);

        m->where[sizeof m->where - 1] = 0;
        c->is_ready = c->is_ready || (m->step == SP_BUILD_NONE && has_ports);
        if (m->step != SP_BUILD_NONE)
            sp_cell_explain(m->step, m->err, m->where, &c->why);
        else if (!has_ports)
            sp_cell_explain(SP_BUILD_PORTS, EPROTO, "", &c->why);
        return has_ports;
    } else if (head->op == SP_WIRE_SOCKET) {
        const int fd = c->message.fd_count == 1 ? TAKE_FD(c->message.fds[0]) : -1;

        return c->options.published != NULL &&
               sp_published_take(c->options.published, bytes, fd, c->message.is_cut);
    } else if (head->op == SP_WIRE_SEGMENT) {
        const struct sp_wire_call *m = bytes;

        if (sp_ring_slots_refused(&c->slots, (uint32_t)m->a))
            sp_log(SP_LOG_WARN, "the cell (pid %d) cannot map output rings: %s", (int)c->self.pid,
                   sp_errno_text(m->b));
    } else if (head->op == SP_WIRE_DENIED) {
        struct sp_seat *s = seat_of(c, head);

        if (s != NULL && s->ops->denied != NULL)
            s->ops->denied(s);
    } else if (head->op == SP_WIRE_DONE) {
        const struct sp_wire_done *m = bytes;
        struct sp_seat *s = seat_of(c, head);

        if (s != NULL)
            s->ops->done(s, m->token, m->err);
    }
    return true;
}

void sp_cell_receive(struct sp_cell *c)
{
    for (int i = 0; c->socket >= 0 && i < MESSAGES_AT_ONCE; i++) {
        int r = sp_wire_recv(c->socket, false, &c->message, NULL);

        if (r > 0) {
            c->is_stalled = false;
            r = on_message(c) ? 1 : -1;
            sp_wire_close_fds(&c->message);
        }
        if (r < 0)
            set_lost(c);
        if (r <= 0)
            return;
    }
}

static void on_socket(struct sp_watch *w, uint32_t events)
{
    struct sp_cell *c = SP_CONTAINER(w, struct sp_cell, on_socket);

    if ((events & EPOLLOUT) != 0)
        flush_outbox(c);
    sp_cell_receive(c);
}

/* The marks on the bell's page are read before each sleep, too; here so that this turn sends what
 * they announce. */
static void on_bell(struct sp_watch *w, uint32_t events)
{
    struct sp_cell *c = SP_CONTAINER(w, struct sp_cell, on_bell);

    (void)events;
    sp_bell_drain(&c->bell);
    (void)sp_bell_answer(&c->bell, on_slot_news, c);
}

/* ---- the beginning of a cell ---- */

struct sp_cell *sp_cell_alloc(struct sp_cells *g, const struct sp_cell_options *o, uint32_t tier,
                              struct sp_err *e)
{
    struct sp_cell *c = calloc(1, sizeof *c);

    if (c == NULL)
        goto fail;
    c->group = g;
    c->loop = g->loop;
    c->options = *o;
    c->tier = tier;
    c->is_ready = tier == SP_TIER_NONE;
    c->next_number = sp_hold_generation(g->hold) << 40; /* no number repeats in a kept cell */
    c->socket = c->self.pidfd = c->maker.pidfd = -1;
    c->self.on_end.fd = c->maker.on_end.fd = -1;
    c->bell = (struct sp_bell){.page_fd = -1, .wake = {-1, -1}};
    sp_list_init(&c->workers);
    c->seats = calloc(o->slots, sizeof(struct sp_seat *));
    c->slots.rings = &g->rings;
    c->slots.count = o->slots;
    c->slots.bell = &c->bell;
    c->slots.send = send_for_slots;
    if (c->seats == NULL || !sp_outbox_reserve(&c->outbox))
        goto fail;
    sp_list_prepend(&g->cells, &c->link);
    return c;
fail:
    (void)sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a cell's tables");
    if (c != NULL) {
        sp_outbox_free(&c->outbox); /* what it has reserved before it failed */
        free(c->seats);
    }
    free(c);
    return NULL;
}

int sp_cell_listen(struct sp_cell *c, struct sp_err *e)
{
    int r = sp_loop_watch(c->loop, &c->on_socket, c->socket, EPOLLIN, on_socket, e);

    if (r == 0)
        r = sp_loop_watch(c->loop, &c->on_bell, c->bell.wake[SP_SIDE_FRONT], EPOLLIN, on_bell, e);
    if (r == 0 && c->maker.pidfd >= 0)
        r = sp_loop_watch(c->loop, &c->maker.on_end, c->maker.pidfd, EPOLLIN, on_maker_end, e);
    return r;
}

/* Called without a pidfd first, and again once the process exists. */
static int keep_launched(void *user, int socket, int pidfd, struct sp_err *e)
{
    struct sp_cell *c = user;

    return sp_cell_record_keep(c, socket, pidfd, is_forked(c), e);
}

/* The journal has the cgroup before it exists. */
static void name_cgroup(struct sp_cell *c)
{
    const struct sp_cell_options *o = &c->options;

    if (o->use_cgroups && !sp_cgroup_name(c->cgroup))
        c->cgroup[0] = 0;
    if (c->cgroup[0] != 0 && sp_cgroup_path(c->cgroup, c->cgroup_path))
        sp_journal_add(o->journal, SP_JOURNAL_CGROUP, c->cgroup_path);
    else
        c->cgroup_path[0] = 0;
}

int sp_cell_new(struct sp_cells *g, const struct sp_cell_options *o, struct sp_cell **ret,
                struct sp_err *e)
{
    struct sp_cell *c =
        sp_cell_alloc(g, o,
                      o->plan == NULL ? SP_TIER_NONE
                                      : ((const struct sp_plan *)(const void *)o->plan->data)->tier,
                      e);
    struct sp_wire_hello hello = {.slots = o->slots,
                                  .flags = g->hold != NULL ? SP_HELLO_KEPT : 0,
                                  .nofile_soft = o->nofile_soft,
                                  .nofile_hard = o->nofile_hard};

    if (c == NULL)
        return -(int)SP_E_SYSTEM;
    name_cgroup(c);
    memcpy(hello.cgroup, c->cgroup, sizeof hello.cgroup);
    int r = sp_cell_record_begin(c, e);
    if (r == 0)
        r = sp_bell_new(o->slots, &c->bell, e);
    if (r == 0) {
        const struct sp_cell_launch_hook hook = {keep_launched, c};

        r = sp_cell_launch(o->program, &hello, &c->bell, o->plan, g->hold != NULL ? &hook : NULL,
                           &c->socket, is_forked(c) ? &c->maker : &c->self, e);
    }
    if (r == 0)
        r = sp_cell_listen(c, e);
    if (r < 0) {
        c->options.gone = NULL;
        sp_cell_free(c);
        return r;
    }
    (void)close(c->bell.wake[SP_SIDE_CELL]);
    c->bell.wake[SP_SIDE_CELL] = -1;
    if (c->cgroup_path[0] != 0)
        hold(c, sp_journal_fd(o->journal));
    for (size_t i = 0; i < o->lock_count; i++)
        hold(c, o->locks[i]);
    c->options.plan = NULL; /* borrowed for this call */
    c->options.locks = NULL;
    c->options.text = (struct sp_str){0};
    *ret = c;
    return 0;
}

/* ---- questions ---- */

bool sp_cell_is_deserted(const struct sp_cell *c)
{
    const uint32_t idle = count_idle(c);

    return c->busy == idle && c->self.pidfd >= 0 && sp_tree_living(c->self.pid) <= (int)idle;
}

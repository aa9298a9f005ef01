/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cells.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/log.h"
#include "core/cell_child.h"
#include "core/journal.h"
#include "core/orphans.h"
#include "core/outbox.h"
#include "os/cgroup.h"
#include "os/fd.h"
#include "os/spawn.h"
#include "os/tree.h"
#include "sandbox/plan.h"

#define END_WAIT_MS      5000
#define STALL_MS         5000 /* a cell that takes no message for so long does not answer */
#define SHORT_MS         10   /* while the kernel has no memory for a message */
#define MESSAGES_AT_ONCE 64

struct sp_cells {
    struct sp_loop *loop;
    bool is_embedded;
    uint64_t pushes; /* messages that were queued for a cell whose outbox was full */
    struct sp_cell *first;
    struct sp_orphans orphans;
};

struct sp_cell {
    struct sp_cells *group;
    struct sp_cell *prev, *next;
    struct sp_loop *loop;
    struct sp_cell_options options;
    bool is_confined, is_ready, is_killed;
    uint32_t tier;
    struct sp_cell_child self;
    struct sp_cell_child maker;  /* in tier CELL: ends as soon as the cell is born */
    struct sp_err why;           /* it could not be confined; code NONE: it could, or is not yet */
    uint32_t busy;               /* seats whose process has not closed, and helpers */
    int socket;                  /* -1: it has died */
    char cgroup[SP_CGROUP_NAME]; /* its directory's name; "": none */
    char cgroup_path[512];       /* as it is written down; "": it is not */
    struct sp_bell bell;
    struct sp_watch on_socket, on_bell;
    struct sp_deferred burial;

    struct sp_seat **seats; /* by slot */
    uint32_t *free_slots, free_count;
    uint64_t next_number;

    struct sp_cell_helper *helpers;
    struct sp_outbox outbox;
    struct sp_timer on_stall, on_short;
    bool is_stalled; /* it has taken nothing from the outbox for STALL_MS, or was suspected */
    struct sp_wire_message message;
};

/* ---- sending ---- */

static void bury(struct sp_deferred *d);

/* A program that has forked holds it open besides us: closing alone would not be heard. */
static void hang_up(struct sp_cell *c)
{
    if (c->socket < 0)
        return;
    (void)shutdown(c->socket, SHUT_RDWR);
    (void)close(c->socket);
    c->socket = -1;
}

static void set_dead(struct sp_cell *c)
{
    if (c->socket < 0)
        return;
    sp_loop_unwatch(c->loop, &c->on_socket);
    sp_loop_unwatch(c->loop, &c->on_bell);
    sp_loop_cancel(c->loop, &c->on_stall);
    sp_loop_cancel(c->loop, &c->on_short);
    hang_up(c);
    sp_loop_defer(c->loop, &c->burial, bury);
}

static void flush_outbox(struct sp_cell *c);

static void set_stalled(struct sp_cell *c)
{
    if (c->is_stalled)
        return;
    c->is_stalled = true;
    sp_log(SP_LOG_ERROR, "the cell (pid %d) does not answer; its starts are refused until it does",
           (int)c->self.pid);
    c->options.drained(c->options.user); /* connections that wait for it are answered */
}

static void on_stall(struct sp_timer *t)
{
    set_stalled(SP_CONTAINER(t, struct sp_cell, on_stall));
}

void sp_cell_suspect(struct sp_seat *s)
{
    if (s->cell != NULL && s->cell->socket >= 0)
        set_stalled(s->cell);
}

static void on_short(struct sp_timer *t)
{
    struct sp_cell *c = SP_CONTAINER(t, struct sp_cell, on_short);

    if (c->socket >= 0)
        flush_outbox(c);
}

/* Waits for what lets the first message of the outbox go: room in the socket, or memory. */
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
                        size_t tail_len, int fd)
{
    if (c->socket < 0 || c->is_killed)
        return -EPIPE;
    if (c->outbox.first == NULL) {
        const int r = sp_wire_send(c->socket, false, msg, len, tail, tail_len, &fd, fd >= 0);

        if (r == 0)
            return 0;
        if (r != -EAGAIN && !sp_wire_is_short(r))
            return r == -ECONNRESET ? -EPIPE : r; /* what it said last is read before its end */
        c->outbox.is_short = r != -EAGAIN;
    }
    if (!sp_outbox_add(&c->outbox, msg, len, tail, tail_len, fd))
        return -ENOMEM;
    if (sp_outbox_is_full(&c->outbox) && !c->is_stalled)
        c->group->pushes++;
    watch_outbox(c);
    return 0;
}

static void flush_outbox(struct sp_cell *c)
{
    const size_t before = c->outbox.bytes;
    const bool has_drained = sp_outbox_send(&c->outbox, c->socket);

    if (c->outbox.bytes < before) {
        c->is_stalled = false;
        sp_loop_cancel(c->loop, &c->on_stall);
    }
    watch_outbox(c);
    if (has_drained)
        c->options.drained(c->options.user);
}

/* Why a new message for the cell is refused; 0: it is not. */
static int check_answers(const struct sp_cell *c, struct sp_err *e)
{
    if (c->socket < 0)
        return sp_fail(e, SP_E_FAILED, 0, "the cell was lost; try again");
    if (c->is_stalled)
        return sp_fail(e, SP_E_FAILED, 0,
                       "the cell (pid %d) does not answer; `kill -KILL %d` ends it and its "
                       "processes, and the next start makes a new one",
                       (int)c->self.pid, (int)c->self.pid);
    return 0;
}

static int explain_unsent(int r, struct sp_err *e)
{
    return r == -EPIPE ? sp_fail(e, SP_E_FAILED, 0, "the cell was lost; try again")
                       : sp_fail(e, SP_E_SYSTEM, -r, "ask the cell");
}

static bool send_call(struct sp_seat *s, enum sp_wire_op op, uint64_t token, int a, int b)
{
    struct sp_wire_call m = {
        .head = {.version = SP_WIRE_VERSION,
                 .op = (uint16_t)op,
                 .slot = s->slot,
                 .number = s->number},
        .token = token,
        .a = a,
        .b = b,
    };

    return s->cell != NULL && send_message(s->cell, &m, sizeof m, NULL, 0, -1) == 0;
}

/* ---- seats ---- */

static uint32_t resting_helpers(const struct sp_cell *c)
{
    uint32_t n = 0;

    for (const struct sp_cell_helper *g = c->helpers; g != NULL; g = g->next)
        n += g->is_resting;
    return n;
}

static void set_free(struct sp_cell *c)
{
    c->busy--;
    if (c->busy == resting_helpers(c) && c->options.idle != NULL)
        c->options.idle(c->options.user);
}

void sp_cell_rest(struct sp_seat *s)
{
    struct sp_cell *c = s->cell;

    if (c == NULL || s->is_idle)
        return;
    s->is_idle = true;
    if (c->options.rested != NULL)
        c->options.rested(c->options.user);
    set_free(c);
}

static void give_back(struct sp_seat *s)
{
    struct sp_cell *c = s->cell;

    sp_cell_rest(s);

    c->seats[s->slot] = NULL;
    c->free_slots[c->free_count++] = s->slot;
    s->cell = NULL;
}

int sp_cell_start(struct sp_cell *c, struct sp_seat *s, struct sp_wire_start *m,
                  const struct sp_buf *strings, bool is_attached, struct sp_err *e)
{
    auto_close int fd = -1;
    const bool is_inline = strings->len <= SP_WIRE_MAX - sizeof *m;

    int r = check_answers(c, e);

    if (r < 0)
        return r;
    if (strings->len > SP_WIRE_STRINGS)
        return sp_fail(e, SP_E_SYSTEM, E2BIG, "arguments and environment");
    if (c->free_count == 0)
        return sp_fail(
            e, SP_E_LIMIT, 0,
            "at most %u processes may exist at once, closed ones included (--max-processes)",
            c->options.slots);
    if (!is_inline && (fd = sp_cell_seal("sallyport-start", strings)) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "hand over arguments");

    s->cell = c;
    s->is_idle = false;
    c->busy++;
    s->slot = c->free_slots[--c->free_count];
    s->number = ++c->next_number;
    c->seats[s->slot] = s;
    m->head = (struct sp_wire_head){
        .version = SP_WIRE_VERSION, .op = SP_WIRE_START, .slot = s->slot, .number = s->number};
    sp_bell_serve(&c->bell, s->slot, is_attached, 0); /* before its first byte can be read */
    m->string_bytes = (uint32_t)strings->len;
    if (!is_inline)
        m->flags |= SP_START_MEMFD;
    r = send_message(c, m, sizeof *m, strings->data, is_inline ? strings->len : 0, fd);
    if (r < 0) {
        give_back(s);
        return explain_unsent(r, e);
    }
    return 0;
}

static bool is_stalled(const struct sp_seat *s)
{
    return s->cell != NULL && s->cell->is_stalled;
}

void sp_cell_signal(struct sp_seat *s, uint64_t token, int signal)
{
    if (is_stalled(s))
        s->ops->done(s, token, ETIMEDOUT);
    else if (!send_call(s, SP_WIRE_SIGNAL, token, signal, 0))
        s->ops->done(s, token, EIO);
}

void sp_cell_resize(struct sp_seat *s, uint64_t token, uint16_t rows, uint16_t cols)
{
    if (is_stalled(s))
        s->ops->done(s, token, ETIMEDOUT);
    else if (!send_call(s, SP_WIRE_RESIZE, token, rows, cols))
        s->ops->done(s, token, EIO);
}

void sp_cell_terminate(struct sp_seat *s)
{
    (void)send_call(s, SP_WIRE_TERMINATE, 0, 0, 0); /* no cell: nothing is left to terminate */
}

void sp_cell_forget(struct sp_seat *s)
{
    if (s->cell == NULL)
        return;
    /* In order on one socket: the slot's next START comes after this. */
    (void)send_call(s, SP_WIRE_FORGET, 0, 0, 0);
    sp_bell_serve(&s->cell->bell, s->slot, false, 0);
    give_back(s);
}

void sp_cell_end_session(struct sp_cell *c, uint64_t session)
{
    struct sp_seat about = {.cell = c, .number = session};

    (void)send_call(&about, SP_WIRE_END_SESSION, 0, 0, 0);
}

void sp_cell_serve(struct sp_seat *s, bool is_attached, uint64_t served)
{
    if (s->cell != NULL)
        sp_bell_serve(&s->cell->bell, s->slot, is_attached, served);
}

void sp_cell_wake(struct sp_seat *s)
{
    if (s->cell != NULL)
        sp_bell_ring(&s->cell->bell, s->slot);
}

/* ---- helpers ---- */

int sp_cell_join(struct sp_cell *c, struct sp_cell_helper *g, int socket, struct sp_err *e)
{
    const struct sp_wire_call m = {.head = {.version = SP_WIRE_VERSION, .op = SP_WIRE_FILES}};

    int r = check_answers(c, e);

    if (r < 0)
        return r;
    r = send_message(c, &m, sizeof m, NULL, 0, socket);
    if (r < 0)
        return explain_unsent(r, e);
    g->cell = c;
    g->prev = NULL;
    g->next = c->helpers;
    if (g->next != NULL)
        g->next->prev = g;
    c->helpers = g;
    c->busy++;
    return 0;
}

void sp_cell_hold(struct sp_cell *c, int fd)
{
    const struct sp_wire_call m = {.head = {.version = SP_WIRE_VERSION, .op = SP_WIRE_HOLD}};

    if (fd >= 0) /* not sent: it ends with us */
        (void)send_message(c, &m, sizeof m, NULL, 0, fd);
}

void sp_cell_leave(struct sp_cell_helper *g)
{
    struct sp_cell *c = g->cell;

    if (c == NULL)
        return;
    *(g->prev != NULL ? &g->prev->next : &c->helpers) = g->next;
    if (g->next != NULL)
        g->next->prev = g->prev;
    g->cell = NULL;
    set_free(c);
}

/* ---- hearing ---- */

static struct sp_seat *seat_of(struct sp_cell *c, const struct sp_wire_head *h)
{
    struct sp_seat *s = h->slot < c->options.slots ? c->seats[h->slot] : NULL;

    return s != NULL && s->number == h->number ? s : NULL;
}

static void on_started(struct sp_cell *c)
{
    const struct sp_wire_started *m = (const void *)c->message.bytes;
    struct sp_seat *s = seat_of(c, &m->head);
    const int want = m->step != SP_STEP_NONE ? 0 : m->has_input != 0 ? 2 : 1;

    if (s == NULL)
        return; /* forgotten while it started */
    if (c->message.is_cut || c->message.fd_count != want) {
        /* No room in our table: as good as not started. The cell hears FORGET and kills it. */
        const struct sp_wire_started failed = {
            .head = m->head, .step = SP_STEP_PREPARE, .err = EMFILE};

        s->ops->started(s, &failed, -1, -1);
        return;
    }
    const int ring = want > 0 ? c->message.fds[0] : -1;
    const int input = want > 1 ? sp_fd_lift(c->message.fds[1]) : -1;
    c->message.fd_count = 0;
    s->ops->started(s, m, ring, input);
}

/* The one who made the cell tells its number, and ends. */
static void on_born(struct sp_cell *c)
{
    const struct sp_wire_born *m = (const void *)c->message.bytes;

    if (c->maker.pidfd < 0 || c->self.pidfd >= 0 || c->message.fd_count != 1)
        return;
    sp_cell_child_set(&c->self, m->pid, sp_fd_lift(c->message.fds[0]));
    c->message.fd_count = 0;
}

static void on_ready(struct sp_cell *c)
{
    struct sp_wire_ready *m = (void *)c->message.bytes;

    m->where[sizeof m->where - 1] = 0;
    if (m->step != SP_BUILD_NONE)
        sp_cell_explain(m->step, m->err, m->where, &c->why);
    else
        c->is_ready = true;
}

static void on_socket(struct sp_watch *w, uint32_t events)
{
    struct sp_cell *c = SP_CONTAINER(w, struct sp_cell, on_socket);

    if ((events & EPOLLOUT) != 0)
        flush_outbox(c);
    for (int i = 0; c->socket >= 0 && i < MESSAGES_AT_ONCE; i++) {
        const int r = sp_wire_recv(c->socket, false, &c->message, NULL);
        const struct sp_wire_done *done = (const void *)c->message.bytes;

        if (r < 0)
            set_dead(c);
        if (r <= 0)
            return;
        c->is_stalled = false;
        if (done->head.op == SP_WIRE_STARTED) {
            on_started(c);
        } else if (done->head.op == SP_WIRE_BORN) {
            on_born(c);
        } else if (done->head.op == SP_WIRE_READY) {
            on_ready(c);
        } else if (done->head.op == SP_WIRE_DONE) {
            struct sp_seat *s = seat_of(c, &done->head);

            if (s != NULL)
                s->ops->done(s, done->token, done->err);
        }
        sp_wire_close_fds(&c->message);
    }
}

static void on_news(void *user, uint32_t slot)
{
    struct sp_cell *c = user;
    struct sp_seat *s = c->seats[slot];

    if (s != NULL)
        s->ops->news(s);
}

static void on_bell(struct sp_watch *w, uint32_t events)
{
    (void)events; /* the marks are looked at before each sleep */
    sp_bell_drain(&SP_CONTAINER(w, struct sp_cell, on_bell)->bell);
}

static bool peek(void *user)
{
    struct sp_cells *g = user;
    bool has_news = false;

    /* A cell is freed from the loop alone, never by what hears its news. */
    for (struct sp_cell *c = g->first; c != NULL; c = c->next)
        has_news = (c->socket >= 0 && sp_bell_answer(&c->bell, on_news, c)) || has_news;
    return has_news;
}

static bool before_sleep(void *user)
{
    struct sp_cells *g = user;
    bool has_work = peek(user);

    for (struct sp_cell *c = g->first; !has_work && c != NULL; c = c->next)
        has_work = c->socket >= 0 && !sp_bell_may_sleep(&c->bell);
    return has_work;
}

static void after_sleep(void *user)
{
    for (struct sp_cell *c = ((struct sp_cells *)user)->first; c != NULL; c = c->next)
        if (c->socket >= 0)
            sp_bell_awake(&c->bell);
}

/* ---- beginning and end ---- */

/* Its first process makes the cell, which is another. */
static bool is_forked(const struct sp_cell *c)
{
    return c->tier == SP_TIER_CELL;
}

static void end_self(struct sp_cell *c);

static void on_maker_end(struct sp_watch *w, uint32_t events)
{
    struct sp_cell *c = SP_CONTAINER(w, struct sp_cell, maker.on_end);

    (void)events;
    sp_loop_unwatch(c->loop, w);
    (void)sp_cell_child_reap(&c->maker);
    if (c->is_killed)
        end_self(c);
}

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

/* ---- the group ---- */

/* A cell whose end came too soon is a zombie until somebody needs another one. */
static bool has_reaped_lost(void *user)
{
    bool is_settled = true;

    for (struct sp_cell *c = ((struct sp_cells *)user)->first; c != NULL; c = c->next) {
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

static bool has_maker(void *user)
{
    for (const struct sp_cell *c = ((struct sp_cells *)user)->first; c != NULL; c = c->next)
        if (c->maker.pidfd >= 0 || (is_forked(c) && c->self.pidfd < 0 && c->socket >= 0))
            return true;
    return false;
}

static void end_orphans(struct sp_cells *g)
{
    if (!g->is_embedded) /* else what is below us is our host's */
        sp_orphans_end(&g->orphans);
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
    g->orphans = (struct sp_orphans){
        .loop = loop, .is_settled = has_reaped_lost, .may_be_unknown = has_maker, .user = g};
    /* What outlives a cell that was killed comes to us, to be killed too. */
    if (!is_embedded)
        (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    sp_loop_before_sleep(loop, before_sleep, after_sleep, g);
    sp_loop_peek(loop, peek, g);
    *ret = g;
    return 0;
}

void sp_cells_free(struct sp_cells *g)
{
    if (g == NULL)
        return;
    while (g->first != NULL)
        sp_cell_free(g->first);
    sp_orphans_done(&g->orphans);
    sp_loop_before_sleep(g->loop, NULL, NULL, NULL);
    sp_loop_peek(g->loop, NULL, NULL);
    free(g);
}

uint64_t sp_cells_pushes(const struct sp_cells *g)
{
    return g->pushes;
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
    c->next = g->first;
    if (g->first != NULL)
        g->first->prev = c;
    g->first = c;
    if (o->use_cgroups && !sp_cgroup_name(c->cgroup))
        c->cgroup[0] = 0;
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
    while (c->free_count < o->slots) { /* the lowest slot is taken first */
        c->free_slots[c->free_count] = o->slots - 1 - c->free_count;
        c->free_count++;
    }
    r = sp_outbox_reserve(&c->outbox) ? sp_bell_new(o->slots, &c->bell, e)
                                      : sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a cell's tables");
    if (r == 0)
        r = launch(c, e);
    if (r == 0)
        r = sp_loop_watch(c->loop, &c->on_socket, c->socket, EPOLLIN, on_socket, e);
    if (r == 0)
        r = sp_loop_watch(c->loop, &c->on_bell, c->bell.wake[SP_SIDE_FRONT], EPOLLIN, on_bell, e);
    if (r == 0 && is_forked(c))
        r = sp_loop_watch(c->loop, &c->maker.on_end, c->maker.pidfd, EPOLLIN, on_maker_end, e);
    if (r < 0)
        goto fail;
    if (c->cgroup_path[0] != 0)
        sp_cell_hold(c, sp_journal_fd(o->journal));
    c->options.plan = NULL;
    *ret = c;
    return 0;
fail:
    c->options.gone = NULL;
    sp_cell_free(c);
    return r;
}

/* ---- ends ---- */

static void lose_seats(struct sp_cell *c)
{
    for (uint32_t i = 0; c->seats != NULL && i < c->options.slots; i++)
        if (c->seats[i] != NULL)
            c->seats[i]->ops->lost(c->seats[i], &c->why);
    while (c->helpers != NULL) {
        struct sp_cell_helper *g = c->helpers;

        sp_cell_leave(g);
        g->lost(g, &c->why);
    }
    sp_outbox_drop(&c->outbox);
    if (c->outbox.was_full) {
        c->outbox.was_full = false;
        c->options.drained(c->options.user); /* nothing is waited for any more */
    }
}

/* The cell ended though we wanted it: its processes are told, what it left is ended. */
static void bury(struct sp_deferred *d)
{
    struct sp_cell *c = SP_CONTAINER(d, struct sp_cell, burial);

    if (c->why.code != SP_E_NONE)
        sp_log(SP_LOG_WARN, "%s", c->why.msg);
    else
        sp_log(SP_LOG_ERROR, "the cell (pid %d) has ended; its processes are lost",
               (int)c->self.pid);
    sp_cell_child_kill(&c->self);
    if (!is_forked(c)) { /* else the kernel has done it */
        end_orphans(c->group);
        sp_cgroup_clean_up(c->cgroup);
    }
    if (is_forked(c)) {
        c->options.died(
            c->options.user); /* and is killed by that, so that it gets no more starts */
        return;
    }
    lose_seats(c);
    c->options.died(c->options.user);
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

/* Nothing is heard of it any more. */
static void ignore(struct sp_cell *c)
{
    sp_loop_unwatch(c->loop, &c->on_socket);
    sp_loop_unwatch(c->loop, &c->on_bell);
    sp_loop_undefer(c->loop, &c->burial);
    sp_loop_cancel(c->loop, &c->on_stall);
    sp_loop_cancel(c->loop, &c->on_short);
}

static void release(struct sp_cell *c)
{
    /* A process that was lost with it may have sent a last message, which waits for its room. */
    sp_loop_cancel(c->loop, &c->on_stall);
    sp_loop_cancel(c->loop, &c->on_short);
    if (c->prev != NULL)
        c->prev->next = c->next;
    else
        c->group->first = c->next;
    if (c->next != NULL)
        c->next->prev = c->prev;
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
    ignore(c);
    if (is_forked(c)) {
        await_end(c, &c->maker); /* it does nothing but make, tell and end */
        sp_cell_hear_of_birth(c->socket, &c->message, &c->self);
        sp_cell_child_kill(&c->self);
    }
    hang_up(c);
    await_end(c, &c->self);
    release(c);
}

static void finish(struct sp_deferred *d);

static void on_self_end(struct sp_watch *w, uint32_t events)
{
    struct sp_cell *c = SP_CONTAINER(w, struct sp_cell, self.on_end);

    (void)events;
    sp_loop_unwatch(c->loop, w);
    sp_loop_defer(c->loop, &c->burial, finish);
}

static void finish(struct sp_deferred *d)
{
    struct sp_cell *c = SP_CONTAINER(d, struct sp_cell, burial);

    await_end(c, &c->self);
    release(c);
}

/* Killed; whoever it was is known by now, or was never born. */
static void end_self(struct sp_cell *c)
{
    sp_cell_hear_of_birth(c->socket, &c->message, &c->self);
    hang_up(c);
    if (is_forked(c))
        sp_cell_child_kill(&c->self); /* the others end what is below them, and then themselves */
    /* No memory to wait for its end: then it is waited for at the end of this turn. */
    if (c->self.pidfd < 0 ||
        sp_loop_watch(c->loop, &c->self.on_end, c->self.pidfd, EPOLLIN, on_self_end, NULL) < 0)
        sp_loop_defer(c->loop, &c->burial, finish);
}

void sp_cell_abandon(struct sp_cell *c)
{
    sp_log(SP_LOG_ERROR, "the cell (pid %d) does not answer, killing it", (int)c->self.pid);
    sp_cell_child_kill(&c->maker);
    sp_cell_child_kill(&c->self);
}

void sp_cell_kill(struct sp_cell *c)
{
    if (c->is_killed)
        return;
    c->is_killed = true;
    ignore(c);
    lose_seats(c);
    if (c->maker.pidfd < 0)
        end_self(c); /* else when the maker has ended, which is soon */
}

bool sp_cell_is_deserted(const struct sp_cell *c)
{
    const uint32_t resting = resting_helpers(c);

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

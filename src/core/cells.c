/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cells: messages between the front and a cell, and the seats of processes.
 *
 * A message goes into the cell's socket at once if the socket takes it; otherwise it waits in the
 * outbox, behind earlier messages. A cell that takes nothing for STALL_MS counts as stalled: new
 * starts, signals and resizes are refused until the cell takes or says something.
 */
#include "core/cells.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/log.h"
#include "core/cells_priv.h"
#include "os/fd.h"
#include "os/spawn.h"
#include "sandbox/plan.h"

#define STALL_MS         5000
#define SHORT_MS         10 /* until a send that failed with ENOMEM or ENOBUFS is repeated */
#define MESSAGES_AT_ONCE 64

/* ---- sending ---- */

static void flush_outbox(struct sp_cell *c);

static void set_stalled(struct sp_cell *c)
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
                        size_t tail_len, int fd)
{
    if (c->socket < 0 || c->is_killed)
        return -EPIPE;
    if (c->outbox.first == NULL) {
        const int r = sp_wire_send(c->socket, false, msg, len, tail, tail_len, &fd, fd >= 0);

        if (r == 0)
            return 0;
        /* The socket is not closed here: messages that the cell sent before its end are read
         * first. */
        if (r != -EAGAIN && !sp_wire_is_short(r))
            return r == -ECONNRESET ? -EPIPE : r;
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

/* Refuses a new request to a cell that is lost or stalled. */
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

uint32_t sp_cell_resting_workers(const struct sp_cell *c)
{
    uint32_t n = 0;

    sp_list_each(i, &c->workers)
        n += SP_CONTAINER(i, const struct sp_cell_worker, link)->is_resting;
    return n;
}

static void set_less_busy(struct sp_cell *c)
{
    c->busy--;
    if (c->busy == sp_cell_resting_workers(c) && c->options.idle != NULL)
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
    set_less_busy(c);
}

static void give_seat_back(struct sp_seat *s)
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
    sp_bell_serve(&c->bell, s->slot, is_attached, 0); /* before the cell can read the first byte */
    m->string_bytes = (uint32_t)strings->len;
    if (!is_inline)
        m->flags |= SP_START_MEMFD;
    r = send_message(c, m, sizeof *m, strings->data, is_inline ? strings->len : 0, fd);
    if (r < 0) {
        give_seat_back(s);
        return explain_unsent(r, e);
    }
    return 0;
}

/* A request that the cell answers with DONE. If it cannot be sent, ops.done is called here. */
static void ask_cell(struct sp_seat *s, enum sp_wire_op op, uint64_t token, int a, int b)
{
    if (s->cell != NULL && s->cell->is_stalled)
        s->ops->done(s, token, ETIMEDOUT);
    else if (!send_call(s, op, token, a, b))
        s->ops->done(s, token, EIO);
}

void sp_cell_signal(struct sp_seat *s, uint64_t token, int signal)
{
    ask_cell(s, SP_WIRE_SIGNAL, token, signal, 0);
}

void sp_cell_resize(struct sp_seat *s, uint64_t token, uint16_t rows, uint16_t cols)
{
    ask_cell(s, SP_WIRE_RESIZE, token, rows, cols);
}

void sp_cell_terminate(struct sp_seat *s)
{
    (void)send_call(s, SP_WIRE_TERMINATE, 0, 0, 0); /* a lost cell has no process to terminate */
}

void sp_cell_forget(struct sp_seat *s)
{
    if (s->cell == NULL)
        return;
    /* The socket keeps the order: the slot's next START arrives after FORGET. */
    (void)send_call(s, SP_WIRE_FORGET, 0, 0, 0);
    sp_bell_serve(&s->cell->bell, s->slot, false, 0);
    give_seat_back(s);
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

/* ---- workers ---- */

int sp_cell_join(struct sp_cell *c, struct sp_cell_worker *h, int socket, struct sp_err *e)
{
    const struct sp_wire_call m = {.head = {.version = SP_WIRE_VERSION, .op = SP_WIRE_FILES}};
    int r = check_answers(c, e);

    if (r < 0)
        return r;
    r = send_message(c, &m, sizeof m, NULL, 0, socket);
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

void sp_cell_hold(struct sp_cell *c, int fd)
{
    const struct sp_wire_call m = {.head = {.version = SP_WIRE_VERSION, .op = SP_WIRE_HOLD}};

    if (fd >= 0) /* if the message cannot be sent, the lock ends with the front */
        (void)send_message(c, &m, sizeof m, NULL, 0, fd);
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
    const int want = m->step != SP_STEP_NONE ? 0 : m->has_input != 0 ? 2 : 1;

    if (s == NULL)
        return; /* forgotten while it started */
    if (c->message.is_cut || c->message.fd_count != want) {
        /* Our descriptor table is full. Report a failed start; the cell gets FORGET and kills the
         * process. */
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

/* From the maker: the pid and the pidfd of the cell that it has forked. */
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

void sp_cell_on_socket(struct sp_watch *w, uint32_t events)
{
    struct sp_cell *c = SP_CONTAINER(w, struct sp_cell, on_socket);

    if ((events & EPOLLOUT) != 0)
        flush_outbox(c);
    for (int i = 0; c->socket >= 0 && i < MESSAGES_AT_ONCE; i++) {
        const int r = sp_wire_recv(c->socket, false, &c->message, NULL);
        const struct sp_wire_done *done = (const void *)c->message.bytes;

        if (r < 0)
            sp_cell_lose(c);
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

/* Only wakes the loop: the marks on the bell's page are read before each sleep (cell_life.c). */
void sp_cell_on_bell(struct sp_watch *w, uint32_t events)
{
    (void)events;
    sp_bell_drain(&SP_CONTAINER(w, struct sp_cell, on_bell)->bell);
}

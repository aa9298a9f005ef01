/* SPDX-License-Identifier: Apache-2.0 */
#include "cell/cell.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/grow.h"
#include "base/io.h"
#include "cell/answers.h"
#include "cell/cell_confine.h"
#include "cell/cell_files.h"
#include "cell/command.h"
#include "cell/inventory.h"
#include "cell/ports.h"
#include "cell/strays.h"
#include "os/oom.h"
#include "os/pty.h"
#include "os/seccomp.h"
#include "os/tree.h"

#define OOM_POINTS                                                                 \
    100 /* a kept cell is killed before front and keeper, commands before the cell \
         */

#define BATCH             64
#define MESSAGES_AT_ONCE  16
#define NOTICES_AT_ONCE   16
#define MAX_ABOVE         64 /* ancestors searched for the command that a process belongs to */
#define SWEEP_INTERVAL_MS 100
#define END_WAIT_MS       3000
#define END_ROUND_MS      10
#define REAPED_AT_ONCE    256

/* How long the cell blocks on a start: execve normally happens within 1 ms, later on a busy
 * machine. While another start is pending, a disk probably hangs, and starts must not block the
 * other commands one after the other. */
#define PATIENCE_MS   10
#define IMPATIENCE_MS 1

#define YOUNG_MS        50 /* a pending start is polled every YOUNG_POLL_MS for this long */
#define YOUNG_POLL_MS   1
#define PENDING_POLL_MS 10
#define DYING_POLL_MS   100

/* The memory of one start. */
struct start_memory {
    struct sp_pending_start start; /* start.spawn.stack is owned by this */
    struct sp_command *command;    /* NULL: abandoned, the child is not reaped yet */
    struct sp_wire_message *message;
    void *map; /* strings that came in a memfd; NULL: none */
    size_t map_len;
    char **pointers; /* argv and envp */
    size_t pointer_cap;
    uint64_t began_ms;
};

struct cell {
    int control;
    uint32_t control_events; /* that epoll reports of it */
    struct sp_answers answers;
    struct sp_inventory inventory;
    struct sp_cell_state state;
    struct rlimit nofile;
    struct sp_strays *strays;
    struct start_memory *spare_memory; /* for the next start; NULL: to be made */
    struct start_memory *pending[SP_MAX_PENDING];
    uint32_t pending_count;
    int child_signals;
    int plan;     /* sealed memory file; -1: none, the cell is not confined */
    int listener; /* seccomp notifications of refused calls; -1: none */
    bool has_own_network;
    uint64_t last_sweep_ms;
    struct sp_wire_message *message;
};

/* ==== starts ====
 *
 * A start is normally answered at once. If the working directory or the program lies on a file
 * system that hangs, the start stays pending: only its child waits, the cell goes on. After
 * SP_START_DEADLINE_MS the child is killed and the start fails. A child in an uninterruptible wait
 * does not die before its disk answers, and it shares our memory, so its stack and strings are kept
 * until it is reaped. At most SP_MAX_PENDING starts may be pending or dying; further ones fail with
 * EBUSY.
 */

/* ---- the memory of starts ---- */

static void free_memory(struct start_memory *r)
{
    if (r == NULL)
        return;
    if (r->map != NULL)
        (void)munmap(r->map, r->map_len);
    sp_spawn_free_stack(r->start.spawn.stack);
    free(r->message);
    free(r->pointers);
    free(r);
}

static struct start_memory *new_memory(void)
{
    struct start_memory *r = calloc(1, sizeof *r);

    if (r == NULL)
        return NULL;
    r->message = malloc(sizeof *r->message);
    r->start.spawn.stack = sp_spawn_new_stack();
    if (r->message == NULL || r->start.spawn.stack == NULL) {
        free_memory(r);
        return NULL;
    }
    r->message->fd_count = 0;
    return r;
}

/* The child uses the memory no more. */
static void give_back(struct cell *cell, struct start_memory *r)
{
    if (cell->spare_memory != NULL) {
        free_memory(r);
        return;
    }
    if (r->map != NULL)
        (void)munmap(r->map, r->map_len);
    r->map = NULL;
    r->command = NULL;
    cell->spare_memory = r;
}

/* ---- the strings ---- */

/* Fills r->start.strings from the message, or from its memfd. 0 or errno. */
static int read_strings(struct start_memory *r, const struct sp_wire_message *m,
                        const struct sp_wire_start *s)
{
    const int want = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    const uint64_t n = (uint64_t)s->argc + s->envc + 2;
    char *text = (char *)(uintptr_t)m->bytes + sizeof *s;
    struct stat st;

    if ((s->flags & SP_START_MEMFD) == 0) {
        if (m->len - sizeof *s != s->string_bytes)
            return EINVAL;
    } else {
        /* Sealed: the front cannot change or truncate it between our check and the child's use. */
        const int seals = m->fd_count < 1 ? -1 : fcntl(m->fds[0], F_GET_SEALS);

        if (seals < 0 || (seals & want) != want || fstat(m->fds[0], &st) < 0 || st.st_size <= 0 ||
            st.st_size != (off_t)s->string_bytes || s->string_bytes > SP_WIRE_STRINGS)
            return EINVAL;
        void *map = mmap(NULL, s->string_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, m->fds[0], 0);
        if (map == MAP_FAILED)
            return errno;
        r->map = text = map;
        r->map_len = s->string_bytes;
    }
    if (n > SP_WIRE_STRINGS)
        return EINVAL;
    if (!SP_GROW(r->pointers, n, r->pointer_cap))
        return ENOMEM;
    return sp_wire_read_strings(s, text, s->string_bytes, r->pointers, &r->start.strings) ? 0
                                                                                          : EINVAL;
}

/* ---- the answer ---- */

static void send_started(struct cell *cell, const struct sp_wire_started *reply, int input)
{
    sp_answers_send(&cell->answers, reply, sizeof *reply, reply->step == SP_STEP_NONE ? input : -1);
}

static void answer_start(struct cell *cell, struct sp_command *c, struct sp_pending_start *p)
{
    const bool has_failed_clone = p->reply.step == SP_STEP_CLONE; /* perhaps because of the leaf */

    if (p->reply.step != SP_STEP_NONE)
        sp_strays_leave_leaf(cell->strays, c, true, has_failed_clone || c->is_terminated);
    if (cell->state.is_kept && !c->is_tty)
        c->input = p->input;
    send_started(cell, &p->reply, p->input);
    if (p->input >= 0 && !c->is_tty && !cell->state.is_kept)
        (void)close(p->input);
    p->input = -1;
}

/* ---- starting ---- */

/* Takes the descriptors of START apart. 0 or errno. */
static int take_groups(struct start_memory *r, struct sp_wire_message *m,
                       const struct sp_wire_start *s, int *ret_leaf)
{
    const int first = (s->flags & SP_START_MEMFD) != 0;
    const int leaf = (s->flags & SP_START_LEAF) != 0;

    if (s->joins > SP_WIRE_FDS || m->fd_count != first + leaf + (int)s->joins)
        return EINVAL;
    for (uint32_t i = 0; i < s->joins; i++)
        r->start.joins[i] = m->fds[first + leaf + (int)i];
    r->start.join_count = s->joins;
    *ret_leaf = leaf == 0 ? -1 : TAKE_FD(m->fds[first]);
    return 0;
}

/* Answers the START in cell->message, now or later. A pending start keeps the message, because its
 * child uses the strings, and cell->message becomes another buffer. */
static void begin_start(struct cell *cell)
{
    const struct sp_wire_start *m = (const void *)cell->message->bytes;
    struct sp_command *c =
        m->head.slot < cell->state.slots ? &cell->state.commands[m->head.slot] : NULL;
    struct start_memory *r = NULL;
    int lent = -1; /* a leaf of the front */
    const struct sp_cell_rings *rings =
        c != NULL ? &cell->state.rings[m->head.slot / SP_SEGMENT_RINGS] : NULL;
    int err = c == NULL || c->life != SP_LIFE_NONE                       ? EINVAL
              : cell->message->is_cut                                    ? EMFILE
              : rings->err != 0                                          ? rings->err
              : rings->segment == NULL                                   ? EINVAL
              : m->head.slot % SP_SEGMENT_RINGS >= rings->segment->rings ? EINVAL
                                                                         : 0;

    if (err == 0 && cell->pending_count == SP_MAX_PENDING)
        err = EBUSY;
    if (err == 0) {
        r = cell->spare_memory != NULL ? cell->spare_memory : new_memory();
        cell->spare_memory = NULL;
        err = r == NULL ? ENOMEM : read_strings(r, cell->message, m);
    }
    if (err == 0) {
        c->slot = m->head.slot;
        if (c->slot >= cell->state.slot_end)
            cell->state.slot_end = c->slot + 1;
        err = take_groups(r, cell->message, m, &lent);
    }
    if (err == 0)
        err = sp_strays_take_leaf(cell->strays, c, lent) ? 0 : errno;
    if (err != 0) {
        struct sp_wire_started reply = {.head = m->head, .step = SP_STEP_PREPARE, .err = err};

        reply.head.op = SP_WIRE_STARTED;
        send_started(cell, &reply, -1);
        if (r != NULL)
            give_back(cell, r);
        return;
    }
    struct sp_pending_start *p = &r->start;
    p->reply = (struct sp_wire_started){.head = m->head, .terminal = -1};
    p->reply.head.op = SP_WIRE_STARTED;
    p->input = -1;
    p->child = 0;
    sp_ring_begin(&c->ring, rings->segment, c->slot % SP_SEGMENT_RINGS, m->head.number);
    sp_ring_set_share(&c->ring, atomic_load(sp_bell_share(&cell->state.bell, c->slot)), 0);
    p->patience_ms = cell->pending_count > 0 ? IMPATIENCE_MS : PATIENCE_MS;
    const bool is_done = sp_command_start(&cell->state, c, m, p);
    sp_strays_note_started(cell->strays, c);
    if (is_done) {
        answer_start(cell, c, p);
        if (p->child == 0) {
            give_back(cell, r);
            return;
        }
        r->command = NULL;
    } else {
        r->command = c;
        r->began_ms = cell->state.now_ms;
    }
    struct sp_wire_message *fresh = r->message;
    r->message = cell->message;
    cell->message = fresh;
    fresh->fd_count = 0;
    sp_wire_close_fds(r->message);
    cell->pending[cell->pending_count++] = r;
}

/* ---- afterwards ---- */

/* Once a turn: answers starts that are done or late. */
static void poll_starts(struct cell *cell)
{
    uint32_t left = 0;

    for (uint32_t i = 0; i < cell->pending_count; i++) {
        struct start_memory *r = cell->pending[i];
        const bool is_late = cell->state.now_ms - r->began_ms >= SP_START_DEADLINE_MS;
        bool is_over = false;

        if (r->command != NULL && r->command->pending != &r->start)
            r->command = NULL; /* forgotten */
        if (r->command == NULL) {
            is_over = r->start.child == 0;
        } else if (sp_command_poll_start(&cell->state, r->command, is_late)) {
            answer_start(cell, r->command, &r->start);
            if (r->command->life == SP_LIFE_RUNNING && r->command->is_reaped)
                sp_command_exited(&cell->state, r->command, NULL, NULL);
            r->command = NULL;
            is_over = r->start.child == 0; /* else the child was killed: wait for SIGCHLD */
        }
        if (is_over)
            give_back(cell, r);
        else
            cell->pending[left++] = r;
    }
    cell->pending_count = left;
}

/* ==== the loop ==== */

static void send_done(struct cell *cell, const struct sp_wire_call *call, int err)
{
    struct sp_wire_done reply = {.head = call->head, .token = call->token, .err = err};

    if (call->token == 0)
        return;
    reply.head.op = SP_WIRE_DONE;
    sp_answers_send(&cell->answers, &reply, sizeof reply, -1);
}

static void forget_command(struct cell *cell, struct sp_command *c)
{
    const bool was_running = c->life == SP_LIFE_RUNNING && !c->is_reaped;

    sp_command_forget(&cell->state, c);
    if (was_running)
        sp_strays_note_child(cell->strays, c->pid, c->session);
    sp_strays_leave_leaf(cell->strays, c, true, c->is_terminated);
}

/* ---- the memory of rings ---- */

static uint32_t count_segments(const struct cell *cell)
{
    return (cell->state.slots + SP_SEGMENT_RINGS - 1) / SP_SEGMENT_RINGS;
}

/* The commands of the segment have ended, or this process is about to end. */
static void drop_segment(struct cell *cell, uint32_t index)
{
    sp_segment_drop(cell->state.rings[index].segment);
    cell->state.rings[index] = (struct sp_cell_rings){0};
    for (uint32_t i = 0; i < SP_SEGMENT_RINGS; i++) {
        const uint32_t slot = index * SP_SEGMENT_RINGS + i;

        if (slot < cell->state.slot_end)
            cell->state.commands[slot].ring = (struct sp_ring){0};
    }
}

static void drop_segments(struct cell *cell)
{
    for (uint32_t i = 0; cell->state.rings != NULL && i < count_segments(cell); i++)
        if (cell->state.rings[i].segment != NULL)
            drop_segment(cell, i);
}

static bool has_commands(const struct cell *cell, uint32_t index)
{
    for (uint32_t i = 0; i < SP_SEGMENT_RINGS; i++) {
        const uint32_t slot = index * SP_SEGMENT_RINGS + i;

        if (slot < cell->state.slot_end && cell->state.commands[slot].life != SP_LIFE_NONE)
            return true;
    }
    return false;
}

static void on_segment(struct cell *cell, const struct sp_wire_call *call)
{
    const uint32_t index = (uint32_t)call->a;
    struct sp_err e = {0};

    if (index >= count_segments(cell) || has_commands(cell, index))
        return;
    drop_segment(cell, index);
    if (call->b == 0)
        return;
    struct sp_cell_rings *rings = &cell->state.rings[index];
    if (cell->message->fd_count != 1)
        rings->err = EMFILE; /* the kernel drops descriptors that our table has no room for */
    else if (sp_segment_take(&cell->message->fds[0], true, &rings->segment, &e) < 0)
        rings->err = e.sys;
    if (rings->err == 0)
        return;
    struct sp_wire_call reply = *call;
    reply.b = rings->err;
    sp_answers_send(&cell->answers, &reply, sizeof reply, -1);
}

static void on_punch(struct cell *cell, const struct sp_wire_head *h, struct sp_command *c)
{
    if (c == NULL && h->number == 0 && h->slot < cell->state.slots &&
        cell->state.commands[h->slot].life == SP_LIFE_NONE)
        c = &cell->state.commands[h->slot];
    if (c == NULL || c->ring.head == NULL)
        return;
    sp_ring_punch(&c->ring, c->life == SP_LIFE_NONE);
    sp_bell_mark(&cell->state.bell, h->slot); /* the front counts what is left */
}

/* ---- messages ---- */

static void end_commands(struct cell *cell, uint64_t session)
{
    uint32_t next;

    for (uint32_t i = cell->state.by_session[session % SP_SESSION_BUCKETS]; i != SP_NO_SLOT;
         i = next) {
        struct sp_command *c = &cell->state.commands[i];

        next = c->next;
        if (c->session == session)
            forget_command(cell, c);
    }
}

/* Forks a file worker. If that fails, the front sees the socket closed. */
static void on_files(struct cell *cell)
{
    if (cell->message->fd_count != 1)
        return;
    const pid_t pid = fork();
    if (pid > 0)
        sp_strays_note_child(cell->strays, pid, SP_NO_SESSION);
    if (pid != 0)
        return;
    /* Unmaps the memory shared with the front and erases the arguments of commands. Clients could
     * read them if they could open /proc/self/mem: a second line behind is_process_memory (file.c).
     */
    drop_segments(cell);
    sp_bell_free(&cell->state.bell);
    explicit_bzero(cell->message->bytes, sizeof cell->message->bytes);
    if (cell->spare_memory != NULL)
        explicit_bzero(cell->spare_memory->message->bytes,
                       sizeof cell->spare_memory->message->bytes);
    for (uint32_t i = 0; i < cell->pending_count; i++) {
        struct start_memory *r = cell->pending[i];

        explicit_bzero(r->message->bytes, sizeof r->message->bytes);
        if (r->map != NULL)
            (void)munmap(r->map, r->map_len);
    }
    sp_files_begin(cell->message->fds[0], cell->state.scope);
}

/* A connection to a published port. Commands cannot send such a request: the socket of the front is
 * this process's alone. */
static void connect_port(struct cell *cell, const struct sp_wire_call *call)
{
    struct sp_wire_done reply = {.head = call->head, .token = call->token, .err = EOPNOTSUPP};
    auto_close int fd = -1;

    if (cell->has_own_network) {
        fd = sp_ports_connect(call->b, call->a);
        reply.err = fd < 0 ? errno : 0;
    }
    reply.head.op = SP_WIRE_SOCKET;
    sp_answers_send(&cell->answers, &reply, sizeof reply, fd);
}

/* Answers that wait for room were meant for an earlier front, which asked for them. */
static void on_adopt(struct cell *cell, const struct sp_wire_call *call)
{
    if (!cell->state.is_kept)
        return;
    if (call->token != cell->inventory.generation)
        sp_answers_drop(&cell->answers);
    cell->inventory = (struct sp_inventory){.pidfd = cell->inventory.pidfd,
                                            .generation = call->token,
                                            .is_due = true,
                                            .index = call->a};
}

static void keep_log(struct cell *cell, struct sp_command *c)
{
    if (c == NULL || !cell->state.is_kept || cell->message->fd_count != 1)
        return;
    if (c->log >= 0)
        (void)close(c->log);
    c->log = TAKE_FD(cell->message->fds[0]);
}

static void on_message(struct cell *cell)
{
    const struct sp_wire_head *h = (const void *)cell->message->bytes;
    const struct sp_wire_call *call = (const void *)cell->message->bytes;
    struct sp_command *c = h->slot < cell->state.slots ? &cell->state.commands[h->slot] : NULL;

    assert(cell->state.commands != NULL);
    if (c != NULL && (c->life == SP_LIFE_NONE || c->number != h->number))
        c = NULL; /* the slot is free or holds another command */
    switch (h->op) {
    case SP_WIRE_START:
        begin_start(cell);
        break;
    case SP_WIRE_SIGNAL:
        send_done(cell, call, c != NULL ? sp_command_signal(&cell->state, c, call->a) : 0);
        break;
    case SP_WIRE_RESIZE:
        send_done(cell, call,
                  c == NULL || !c->is_tty || c->stream[0] < 0 /* closed: nothing to resize */
                      ? 0
                      : sp_pty_resize(c->stream[0], (uint16_t)call->a, (uint16_t)call->b));
        break;
    case SP_WIRE_TERMINATE:
        if (c != NULL)
            sp_command_terminate(&cell->state, c);
        break;
    case SP_WIRE_FORGET:
        if (c != NULL)
            forget_command(cell, c);
        break;
    case SP_WIRE_INPUT:
        keep_log(cell, c);
        break;
    case SP_WIRE_CLOSE_INPUT:
        if (c != NULL)
            sp_command_close_input(c);
        break;
    case SP_WIRE_ADOPT:
        on_adopt(cell, call);
        break;
    case SP_WIRE_SEGMENT:
        on_segment(cell, call);
        break;
    case SP_WIRE_PUNCH:
        on_punch(cell, h, c);
        break;
    case SP_WIRE_END_SESSION:
        end_commands(cell, h->number);
        sp_strays_end_session(cell->strays, h->number);
        cell->state.is_sweep_due = true;
        break;
    case SP_WIRE_FILES:
        on_files(cell);
        break;
    case SP_WIRE_CONNECT:
        connect_port(cell, call);
        break;
    case SP_WIRE_HOLD:
        cell->message->fd_count = 0; /* kept open: its lock outlives the front */
        break;
    default: /* not a message of the front */
        break;
    }
    sp_wire_close_fds(cell->message);
}

/* ---- the loop ---- */

static void on_served(void *user, uint32_t slot)
{
    struct cell *cell = user;

    if (slot < cell->state.slots && cell->state.commands[slot].life != SP_LIFE_NONE)
        sp_command_served(&cell->state, &cell->state.commands[slot]);
}

static void on_command_event(struct cell *cell, enum sp_cell_event kind, uint32_t slot)
{
    struct sp_command *c = &cell->state.commands[slot];
    const enum sp_life before = c->life;

    if (before == SP_LIFE_NONE)
        return;
    if (c->stream[kind == SP_EV_ERR] >= 0)
        sp_command_readable(&cell->state, c, kind == SP_EV_ERR);
    if (before != SP_LIFE_CLOSED && c->life == SP_LIFE_CLOSED)
        sp_strays_leave_leaf(cell->strays, c, false, c->is_terminated);
}

/* ---- refusals ---- */

/* The running command that is an ancestor of the process (or thread); NULL: none. */
static struct sp_command *command_above(struct cell *cell, pid_t pid)
{
    const pid_t us = cell->state.pid;
    const pid_t leader = getsid(pid); /* a command leads a session */
    struct sp_command *c = leader > 0 ? sp_command_of(&cell->state, leader) : NULL;
    pid_t parent;

    for (int i = 0; c == NULL && i < MAX_ABOVE && (parent = sp_tree_parent(pid)) > 0; i++) {
        if (parent == us)
            return sp_command_of(&cell->state, pid);
        pid = parent;
    }
    return c;
}

/* The front tells its user at once: programs try for minutes before they give up. */
static void tell_denied(struct cell *cell, const struct sp_command *c)
{
    const struct sp_wire_call m = {.head = {SP_WIRE_VERSION, SP_WIRE_DENIED, c->slot, c->number}};

    sp_answers_send(&cell->answers, &m, sizeof m, -1);
}

/* Notifications of the seccomp filter: refused calls, and connect() to see addresses outside. */
static void take_notices(struct cell *cell)
{
    struct sp_notice n;

    for (int i = 0; i < NOTICES_AT_ONCE && sp_notice_take(cell->listener, &n) > 0; i++) {
        const bool is_connect = n.call == SYS_connect;
        struct sp_command *c = NULL;

        if (!is_connect || sp_notice_leaves_loopback(cell->listener, &n))
            c = command_above(cell, n.pid);
        if (c != NULL && is_connect) {
            if (c->left_network++ == 0)
                tell_denied(cell, c);
        } else if (c != NULL) {
            uint32_t k = 0;

            while (k < c->refusal_count && c->refusals[k].call != n.call)
                k++;
            if (k == c->refusal_count && k < SP_EXIT_REFUSALS)
                c->refusals[c->refusal_count++] = (struct sp_refusal){.call = (uint16_t)n.call};
            if (k < c->refusal_count)
                c->refusals[k].count++;
        }
        sp_notice_answer(cell->listener, &n, is_connect);
    }
}

/* ---- turns ---- */

/* Sends what the socket takes, and asks epoll for room if something is left. */
static void send_answers(struct cell *cell)
{
    const bool is_sent = sp_answers_flush(&cell->answers) &&
                         sp_inventory_send(&cell->inventory, &cell->state, cell->control);
    const bool is_short = cell->answers.is_short || cell->inventory.is_short;
    struct epoll_event ev = {
        .events = (cell->answers.count < SP_ANSWERS_FULL ? EPOLLIN : 0U) |
                  (is_sent || is_short ? 0U : (uint32_t)EPOLLOUT),
        .data.u64 = SP_EV(SP_EV_CONTROL, 0),
    };

    if (ev.events != cell->control_events &&
        epoll_ctl(cell->state.epoll, EPOLL_CTL_MOD, cell->control, &ev) == 0)
        cell->control_events = ev.events;
}

/* ms until something is due without an event; -1: nothing is. */
static int sleep_ms(const struct cell *cell)
{
    const bool has_answers = cell->answers.first != NULL && cell->answers.is_short;
    const int other = has_answers || (cell->inventory.is_due && cell->inventory.is_short)
                          ? SP_REST_MS
                      : cell->state.resting_count > 0 ? SP_REST_MS
                      : cell->state.exiting_count > 0 ? SP_EXITING_MS
                      : cell->state.is_sweep_due      ? SWEEP_INTERVAL_MS
                                                      : -1;
    int starts = cell->pending_count > 0 ? DYING_POLL_MS : -1;

    for (uint32_t i = 0; i < cell->pending_count && starts != YOUNG_POLL_MS; i++) {
        const struct start_memory *r = cell->pending[i];

        if (r->command != NULL)
            starts = cell->state.now_ms - r->began_ms < YOUNG_MS ? YOUNG_POLL_MS : PENDING_POLL_MS;
    }
    return starts < 0 || (other >= 0 && other < starts) ? other : starts;
}

/* false: the front is gone. */
static bool one_turn(struct cell *cell)
{
    struct epoll_event batch[BATCH];
    bool has_message = false;
    int timeout = sleep_ms(cell);

    sp_bell_wake(&cell->state.bell);
    if (cell->state.has_dead || !sp_bell_may_sleep(&cell->state.bell))
        timeout = 0;
    const int n = epoll_wait(cell->state.epoll, batch, BATCH, timeout);
    sp_bell_awake(&cell->state.bell);
    cell->state.now_ms = sp_clock_ms();
    sp_command_end_waits(&cell->state);
    (void)sp_bell_answer(&cell->state.bell, on_served, cell);
    for (int i = 0; i < n; i++) {
        const enum sp_cell_event kind = (enum sp_cell_event)(batch[i].data.u64 >> 32);
        const uint32_t what = (uint32_t)batch[i].data.u64;

        if (kind == SP_EV_CONTROL && (batch[i].events & EPOLLHUP) != 0)
            return false; /* the front is gone: do not carry out its last messages */
        if (kind == SP_EV_CONTROL)
            has_message = cell->answers.count < SP_ANSWERS_FULL;
        else if (kind == SP_EV_CHILD)
            cell->state.has_dead = true;
        else if (kind == SP_EV_BELL)
            sp_bell_drain(&cell->state.bell);
        else if (kind == SP_EV_NOTICE)
            take_notices(cell);
        else
            on_command_event(cell, kind, what);
    }
    if (cell->state.has_dead) {
        struct signalfd_siginfo info;

        /* Read first: a child that dies during the loop makes the descriptor readable again. */
        (void)!read(cell->child_signals, &info, sizeof info);
        sp_strays_reap(cell->strays);
    }
    if (cell->pending_count > 0)
        poll_starts(cell);
    if (cell->state.is_sweep_due && cell->state.now_ms - cell->last_sweep_ms >= SWEEP_INTERVAL_MS) {
        cell->last_sweep_ms = cell->state.now_ms;
        sp_strays_sweep(cell->strays);
    }
    /* Messages last: a FORGET and a START may reuse a slot that an event of this turn refers to. */
    for (int i = 0; has_message && i < MESSAGES_AT_ONCE; i++) {
        const int r = sp_wire_recv(cell->control, false, cell->message, NULL);

        if (r < 0)
            return false;
        if (r == 0)
            break;
        on_message(cell);
    }
    if (cell->state.is_kept)
        send_answers(cell);
    return true;
}

/* ---- beginning and end ---- */

/* Commands inherit our signal dispositions: all are reset to SIG_DFL. */
static void reset_signals(void)
{
    /* The kernel's struct sigaction, all zero. The C library's sigaction() refuses signals 32 and
     * 33, which it uses itself. */
    static const unsigned long by_default[8];
    sigset_t none;

    for (int sig = 1; sig <= 64; sig++)
        (void)syscall(SYS_rt_sigaction, sig, by_default, NULL, 8); /* SIGKILL, SIGSTOP: EINVAL */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* The score that its commands get; -1: ours. */
static int raise_oom_score(void)
{
    char text[32];

    if (sp_read_text(text, sizeof text, "/proc/self/oom_score_adj") <= 0)
        return -1;
    const long now = strtol(text, NULL, 10);
    const int score = (int)(now > 0 ? now : 0) + OOM_POINTS;

    return sp_oom_set(getpid(), score) ? score + OOM_POINTS : -1;
}

static int receive_hello(struct cell *cell, struct sp_err *e)
{
    const int r = sp_wire_recv(cell->control, true, cell->message, e);
    const struct sp_wire_hello *h = (const void *)cell->message->bytes;

    if (r < 0)
        return r;
    if (h->head.op != SP_WIRE_HELLO || cell->message->fd_count < 2 || cell->message->fd_count > 3 ||
        h->slots == 0 || h->slots > SP_MAX_SLOTS) {
        sp_wire_close_fds(cell->message);
        return sp_fail(e, SP_E_MALFORMED, 0, "the front did not say hello");
    }
    cell->state.slots = h->slots;
    cell->state.is_kept = cell->answers.is_kept = (h->flags & SP_HELLO_KEPT) != 0;
    cell->state.oom_score = cell->state.is_kept ? raise_oom_score() : -1;
    cell->nofile = (struct rlimit){.rlim_cur = h->nofile_soft, .rlim_max = h->nofile_hard};
    cell->state.nofile = &cell->nofile;
    const int *fds = cell->message->fds;
    if (cell->message->fd_count == 3)
        cell->plan = fds[2];
    const int joined = sp_bell_join(fds[0], h->slots, -1, fds[1], &cell->state.bell, e);
    (void)close(fds[0]);
    if (joined < 0) {
        (void)close(fds[1]);
        return joined;
    }
    cell->state.cgroup.dir = -1;
    if (h->cgroup[0] != 0 && memchr(h->cgroup, 0, sizeof h->cgroup) != NULL)
        (void)sp_cgroup_new(h->cgroup, &cell->state.cgroup); /* on failure dir stays -1 */
    return 0;
}

/* Confines this process if there is a plan. On failure READY carries the reason, and the process
 * exits. */
static void confine(struct cell *cell)
{
    struct sp_built built;
    struct sp_confined confined;

    if (cell->plan < 0 && cell->state.is_kept)
        cell->inventory.pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (cell->plan < 0)
        return;
    const bool ok = sp_confine(cell->plan, cell->control, &confined, &built);
    (void)close(cell->plan);
    cell->plan = -1;
    struct sp_wire_ready ready = {.head = {.version = SP_WIRE_VERSION, .op = SP_WIRE_READY},
                                  .step = built.step,
                                  .err = built.err};
    if (built.where != NULL)
        (void)snprintf(ready.where, sizeof ready.where, "%s", built.where);
    (void)sp_wire_send(cell->control, true, &ready, sizeof ready, NULL, 0, NULL, 0);
    if (!ok)
        _exit(1);
    cell->state.is_confined = true;
    cell->state.hides_cwds = confined.has_new_root;
    cell->state.scope = confined.scope;
    cell->listener = confined.listener;
    cell->inventory.pidfd = confined.pidfd;
    cell->has_own_network = confined.has_own_network;
    if (confined.has_own_network)
        cell->state.net_count = open("/proc/self/net/snmp", O_RDONLY | O_CLOEXEC);
}

static int prepare(struct cell *cell, struct sp_err *e)
{
    sigset_t child;

    cell->state.pid = getpid();
    memset(cell->state.by_session, 0xff, sizeof cell->state.by_session); /* SP_NO_SLOT */
    /* calloc of a large table uses no memory until a slot is written. */
    cell->state.commands = calloc(cell->state.slots, sizeof *cell->state.commands);
    cell->state.rings = calloc(count_segments(cell), sizeof *cell->state.rings);
    cell->strays = sp_strays_new(&cell->state);
    if (cell->state.commands == NULL || cell->state.rings == NULL || cell->strays == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make the cell's tables");
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "become subreaper");
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
    cell->child_signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    cell->state.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (cell->child_signals < 0 || cell->state.epoll < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "make the cell's loop");

    const struct {
        int fd;
        enum sp_cell_event kind;
    } w[] = {
        {cell->control, SP_EV_CONTROL},
        {cell->state.bell.wake[SP_SIDE_CELL], SP_EV_BELL},
        {cell->child_signals, SP_EV_CHILD},
        {cell->listener, SP_EV_NOTICE},
    };
    for (size_t i = 0; i < sizeof w / sizeof w[0]; i++) {
        struct epoll_event ev = {.events = EPOLLIN, .data.u64 = SP_EV(w[i].kind, 0)};

        if (w[i].fd < 0)
            continue;
        if (epoll_ctl(cell->state.epoll, EPOLL_CTL_ADD, w[i].fd, &ev) < 0)
            return sp_fail(e, SP_E_SYSTEM, errno, "watch the cell's descriptors");
    }
    return 0;
}

/* true: no children are left. */
static bool reap_all(void)
{
    siginfo_t info = {0};

    for (int i = 0; i < REAPED_AT_ONCE; i++) {
        info.si_pid = 0;
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG) < 0)
            return true;
        if (info.si_pid == 0)
            return false;
    }
    return false;
}

/* Kills and reaps all descendants. false: some survived END_WAIT_MS; the front inherits them. */
static bool end_all(struct cell *cell)
{
    const uint64_t deadline = sp_clock_ms() + END_WAIT_MS;
    const struct timespec wait = {.tv_nsec = END_ROUND_MS * 1000000L};
    uint64_t next_ms = 0;
    bool is_empty = false;
    sigset_t child;

    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sp_cell_free_spare(&cell->state);
    if (cell->state.cgroup.dir >= 0) {
        sp_cgroup_kill(cell->state.cgroup.dir);
        next_ms = sp_clock_ms() + END_ROUND_MS;
    }
    /* In rounds: a process that keeps forking may escape a walk over /proc, and leaves more dead
     * ancestors to reap. */
    while (!(is_empty = reap_all()) && sp_clock_ms() < deadline) {
        if (sp_clock_ms() >= next_ms) {
            sp_tree_kill(getpid(), false);
            next_ms = sp_clock_ms() + END_ROUND_MS;
        }
        (void)sigtimedwait(&child, NULL, &wait);
    }
    sp_cgroup_free(&cell->state.cgroup);
    /* Reaped: their pids may be reused, so sp_command_forget must not signal them. */
    for (uint32_t i = 0; i < cell->state.slot_end; i++) {
        cell->state.commands[i].is_reaped = true;
        if (cell->state.commands[i].life == SP_LIFE_RUNNING)
            cell->state.commands[i].life = SP_LIFE_EXITED;
    }
    return is_empty;
}

int sp_cell_run(int control, struct sp_err *e)
{
    struct cell *cell = calloc(1, sizeof *cell);

    if (cell != NULL)
        cell->message = malloc(sizeof *cell->message);
    if (cell == NULL || cell->message == NULL) {
        free(cell);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make the cell");
    }
    cell->control = control;
    cell->control_events = EPOLLIN;
    cell->answers = (struct sp_answers){.socket = control, .cell = &cell->state};
    cell->answers.end = &cell->answers.first;
    cell->inventory.pidfd = cell->state.oom_score = -1;
    cell->child_signals = cell->state.epoll = cell->plan = cell->listener = -1;
    cell->state.scope = cell->state.net_count = -1;
    cell->state.bell.page_fd = cell->state.bell.wake[0] = cell->state.bell.wake[1] = -1;
    cell->state.cgroup.dir = -1;
    for (int i = 0; i < SP_SPARE; i++)
        cell->state.spare[i] = -1;
    reset_signals();
    int r = receive_hello(cell, e);
    if (r == 0) {
        confine(cell);
        r = prepare(cell, e);
    }
    if (r == 0) {
        sp_cell_take_spare(&cell->state);
        while (one_turn(cell)) {
        }
        /* When pid 1 of a namespace exits, the kernel kills all others in it. */
        const bool has_ended = getpid() == 1 || end_all(cell);
        if (!has_ended)
            r = sp_fail(e, SP_E_FAILED, 0, "some processes of commands do not end");
        if (cell->state.is_confined)
            _exit(has_ended ? 0 : 1); /* the seccomp filter may refuse the cleanup below */
    }
    for (uint32_t i = 0; i < cell->state.slot_end; i++)
        if (cell->state.commands[i].life != SP_LIFE_NONE)
            sp_command_forget(&cell->state, &cell->state.commands[i]);
    for (uint32_t i = 0; i < cell->pending_count; i++) {
        struct start_memory *m = cell->pending[i];
        siginfo_t info = {0};

        if (waitid(P_PID, (id_t)m->start.spawn.pid, &info, WEXITED | WNOHANG) < 0 ||
            info.si_pid != 0)
            free_memory(m); /* otherwise the child still uses it, and dies with us */
    }
    free_memory(cell->spare_memory);
    sp_answers_drop(&cell->answers);
    if (cell->inventory.pidfd >= 0)
        (void)close(cell->inventory.pidfd);
    drop_segments(cell);
    sp_strays_free(cell->strays);
    sp_bell_free(&cell->state.bell);
    sp_cgroup_free(&cell->state.cgroup);
    if (cell->child_signals >= 0)
        (void)close(cell->child_signals);
    if (cell->state.epoll >= 0)
        (void)close(cell->state.epoll);
    free(cell->message);
    free(cell->state.commands);
    free(cell->state.rings);
    free(cell->state.pids.table);
    free(cell);
    return r;
}

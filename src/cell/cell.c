/* SPDX-License-Identifier: Apache-2.0 */
#include "cell/cell.h"

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
#include "cell/cell_confine.h"
#include "cell/cell_files.h"
#include "cell/command.h"
#include "cell/start.h"
#include "cell/strays.h"
#include "os/pty.h"
#include "os/seccomp.h"
#include "os/tree.h"

#define BATCH             64
#define MESSAGES_AT_ONCE  16
#define NOTICES_AT_ONCE   16
#define MAX_ABOVE         64 /* parents that are asked who a refused call belongs to */
#define SWEEP_INTERVAL_MS 100
#define END_WAIT_MS       3000
#define END_ROUND_MS      10
#define REAPED_AT_ONCE    256

struct cell {
    int control;
    struct sp_yard yard;
    struct rlimit nofile;
    struct sp_command *commands;
    uint32_t slots;
    struct sp_strays *strays;
    struct sp_starts starts;
    int child_signals;
    int plan;     /* -1: none, we are the open cell */
    int listener; /* where refused calls are told; -1: none */
    bool is_sweep_due;
    uint64_t last_sweep_ms;
    struct sp_wire_message *message;
};

static uint64_t clock_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* The command a message is about; NULL if the slot holds another one by now. */
static struct sp_command *find(struct cell *cell, const struct sp_wire_head *h)
{
    struct sp_command *c = h->slot < cell->slots ? &cell->commands[h->slot] : NULL;

    return c != NULL && c->life != SP_LIFE_NONE && c->number == h->number ? c : NULL;
}

/* ---- messages ---- */

static void done(struct cell *cell, const struct sp_wire_call *call, int err)
{
    struct sp_wire_done reply = {.head = call->head, .token = call->token, .err = err};

    if (call->token == 0)
        return;
    reply.head.op = SP_WIRE_DONE;
    (void)sp_wire_send(cell->control, true, &reply, sizeof reply, NULL, 0, NULL, 0);
}

static int resize(const struct sp_command *c, const struct sp_wire_call *call)
{
    if (c == NULL || !c->is_tty || c->stream[0] < 0)
        return 0; /* ended meanwhile: nobody is there to see the size */
    return sp_pty_resize(c->stream[0], (uint16_t)call->a, (uint16_t)call->b);
}

static void forget(struct cell *cell, struct sp_command *c)
{
    if (c->life == SP_LIFE_RUNNING)
        sp_strays_note_forgotten(cell->strays, c);
    sp_command_forget(&cell->yard, c);
    sp_strays_leave_leaf(cell->strays, c, true);
    cell->is_sweep_due = cell->is_sweep_due || sp_strays_has_dying(cell->strays);
}

static void end_session(struct cell *cell, uint64_t session)
{
    for (uint32_t i = 0; i < cell->slots; i++)
        if (cell->commands[i].life != SP_LIFE_NONE && cell->commands[i].session == session)
            forget(cell, &cell->commands[i]);
    sp_strays_end_session(cell->strays, session);
    cell->is_sweep_due = true;
}

/* In a child: what it shares with us and the front, and what commands were started with. Its own
 * memory is a file like any other (/proc/self/mem) to those whom it serves. */
static void let_go(struct cell *cell)
{
    for (uint32_t i = 0; i < cell->slots; i++)
        if (cell->commands[i].life != SP_LIFE_NONE)
            sp_ring_free(&cell->commands[i].ring);
    sp_bell_free(&cell->yard.bell);
    explicit_bzero(cell->message->bytes, sizeof cell->message->bytes);
    sp_starts_wipe(&cell->starts);
}

/* A process for file operations. It fails: the front finds the socket ended. */
static void on_files(struct cell *cell)
{
    if (cell->message->fd_count != 1)
        return;
    const pid_t pid = fork();
    if (pid == 0) {
        let_go(cell);
        sp_files_begin(cell->message->fds[0], cell->yard.scope);
    }
    if (pid > 0)
        sp_strays_note_own(cell->strays, pid);
}

static void on_message(struct cell *cell)
{
    const struct sp_wire_head *h = (const void *)cell->message->bytes;
    const struct sp_wire_call *call = (const void *)cell->message->bytes;
    struct sp_command *c = find(cell, h);

    switch (h->op) {
    case SP_WIRE_START:
        sp_starts_begin(&cell->starts, &cell->message);
        break;
    case SP_WIRE_SIGNAL:
        done(cell, call, c != NULL ? sp_command_signal(&cell->yard, c, call->a) : 0);
        break;
    case SP_WIRE_RESIZE:
        done(cell, call, resize(c, call));
        break;
    case SP_WIRE_TERMINATE:
        if (c != NULL)
            sp_command_terminate(&cell->yard, c);
        break;
    case SP_WIRE_FORGET:
        if (c != NULL)
            forget(cell, c);
        break;
    case SP_WIRE_END_SESSION:
        end_session(cell, h->number);
        break;
    case SP_WIRE_FILES:
        on_files(cell);
        break;
    case SP_WIRE_HOLD:
        cell->message->fd_count = 0; /* never closed: its lock outlives the front */
        break;
    default: /* nothing a front says */
        break;
    }
    sp_wire_close_fds(cell->message);
}

/* ---- the loop ---- */

static void on_served(void *user, uint32_t slot)
{
    struct cell *cell = user;

    if (slot < cell->slots && cell->commands[slot].life != SP_LIFE_NONE)
        sp_command_served(&cell->yard, &cell->commands[slot]);
}

/* What an exit or a close means to the rest of the cell. */
static void after_event(struct cell *cell, struct sp_command *c, enum sp_life before)
{
    if (before == SP_LIFE_RUNNING && c->life != SP_LIFE_RUNNING)
        sp_strays_note_exit(cell->strays, c);
    if (before != SP_LIFE_CLOSED && c->life == SP_LIFE_CLOSED)
        sp_strays_leave_leaf(cell->strays, c, false);
}

static void on_command_event(struct cell *cell, enum sp_cell_event kind, uint32_t slot)
{
    struct sp_command *c = &cell->commands[slot];
    const enum sp_life before = c->life;

    if (before == SP_LIFE_NONE)
        return;
    if (kind == SP_EV_EXIT)
        sp_command_exited(&cell->yard, c);
    else if (c->stream[kind == SP_EV_ERR] >= 0)
        sp_command_readable(&cell->yard, c, kind == SP_EV_ERR);
    after_event(cell, c, before);
}

static void reap_forgotten(struct cell *cell, int pidfd)
{
    siginfo_t info = {0};

    if (waitid(P_PIDFD, (id_t)pidfd, &info, WEXITED | WNOHANG) == 0) {
        if (info.si_pid == 0)
            return;
        sp_strays_note_reaped(cell->strays, info.si_pid);
    }
    (void)close(pidfd);
}

/* ---- refusals ---- */

static struct sp_command *running(struct cell *cell, pid_t pid)
{
    for (uint32_t i = 0; i < cell->starts.slot_end; i++)
        if (cell->commands[i].life == SP_LIFE_RUNNING && cell->commands[i].pid == pid)
            return &cell->commands[i];
    return NULL;
}

/* Whose descendant it is; NULL: nobody's who is still there. */
static struct sp_command *command_above(struct cell *cell, pid_t pid)
{
    const pid_t us = getpid();
    const pid_t leader = getsid(pid); /* of a thread, too; a command leads a session */
    struct sp_command *c = leader > 0 ? running(cell, leader) : NULL;
    pid_t parent;

    for (int i = 0; c == NULL && i < MAX_ABOVE && (parent = sp_tree_parent(pid)) > 0; i++) {
        if (parent == us)
            return running(cell, pid);
        pid = parent;
    }
    return c;
}

static void take_notices(struct cell *cell)
{
    struct sp_notice n;

    for (int i = 0; i < NOTICES_AT_ONCE && sp_notice_take(cell->listener, &n) > 0; i++) {
        const bool is_connect = n.call == SYS_connect;
        struct sp_command *c = NULL;

        if (!is_connect || sp_notice_leaves_loopback(cell->listener, &n))
            c = command_above(cell, n.pid);
        if (c != NULL && is_connect)
            c->left_network++;
        else if (c != NULL)
            sp_command_refused(c, n.call);
        if (is_connect)
            sp_notice_allow(cell->listener, &n);
        else
            sp_notice_refuse(cell->listener, &n);
    }
}

/* ---- turns ---- */

static void sweep_if_due(struct cell *cell)
{
    const uint64_t now = cell->yard.now_ms;
    struct signalfd_siginfo info;

    if (!cell->is_sweep_due || now - cell->last_sweep_ms < SWEEP_INTERVAL_MS)
        return;
    cell->is_sweep_due = false;
    cell->last_sweep_ms = now;
    (void)!read(cell->child_signals, &info, sizeof info); /* the next exit tells again */
    sp_strays_sweep(cell->strays);
    cell->is_sweep_due = sp_strays_has_dying(cell->strays);
}

/* false: the front is gone. */
static bool read_messages(struct cell *cell)
{
    for (int i = 0; i < MESSAGES_AT_ONCE; i++) {
        const int r = sp_wire_recv(cell->control, false, cell->message, NULL);

        if (r <= 0)
            return r == 0;
        on_message(cell);
    }
    return true;
}

static int sleep_ms(const struct cell *cell)
{
    const int other = cell->yard.resting_count > 0   ? 1
                      : cell->yard.exiting_count > 0 ? 5
                      : cell->is_sweep_due           ? SWEEP_INTERVAL_MS
                                                     : -1;
    const int starts = sp_starts_timeout(&cell->starts);

    return starts < 0 || (other >= 0 && other < starts) ? other : starts;
}

static bool one_turn(struct cell *cell)
{
    struct epoll_event batch[BATCH];
    bool has_message = false;
    int timeout = sleep_ms(cell);

    sp_bell_wake(&cell->yard.bell);
    if (!sp_bell_may_sleep(&cell->yard.bell))
        timeout = 0;
    const int n = epoll_wait(cell->yard.epoll, batch, BATCH, timeout);
    sp_bell_awake(&cell->yard.bell);
    cell->yard.now_ms = clock_ms();
    if (cell->yard.resting_count > 0)
        sp_command_wake_rested(&cell->yard, cell->commands);
    if (cell->yard.exiting_count > 0)
        sp_command_end_waits(&cell->yard, cell->commands);
    (void)sp_bell_answer(&cell->yard.bell, on_served, cell);
    for (int i = 0; i < n; i++) {
        const enum sp_cell_event kind = (enum sp_cell_event)(batch[i].data.u64 >> 32);
        const uint32_t what = (uint32_t)batch[i].data.u64;

        if (kind == SP_EV_CONTROL && (batch[i].events & EPOLLHUP) != 0)
            return false; /* the front is gone: what it still asked for is not wanted any more */
        if (kind == SP_EV_CONTROL)
            has_message = true;
        else if (kind == SP_EV_CHILD)
            cell->is_sweep_due = true;
        else if (kind == SP_EV_REAP)
            reap_forgotten(cell, (int)what);
        else if (kind == SP_EV_BELL)
            sp_bell_hush(&cell->yard.bell);
        else if (kind == SP_EV_NOTICE)
            take_notices(cell);
        else
            on_command_event(cell, kind, what);
    }
    if (cell->starts.count > 0)
        sp_starts_poll(&cell->starts);
    sweep_if_due(cell);
    /* Last: a message may give a slot away that an event of this turn still means. */
    return !has_message || read_messages(cell);
}

/* ---- beginning and end ---- */

static void own_signals(void)
{
    /* The kernel's own struct, all zero: the default. The C library keeps two signals to itself. */
    static const unsigned long as_made[8];
    sigset_t none;

    /* Commands inherit ours: all as the kernel made them. Nothing here is ever handled. */
    for (int sig = 1; sig <= 64; sig++)
        (void)syscall(SYS_rt_sigaction, sig, as_made, NULL, 8); /* KILL and STOP refuse */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static int hello(struct cell *cell, struct sp_err *e)
{
    const int r = sp_wire_recv(cell->control, true, cell->message, e);
    const struct sp_wire_hello *h = (const void *)cell->message->bytes;

    if (r < 0)
        return r;
    if (h->head.op != SP_WIRE_HELLO || cell->message->fd_count < 2 || cell->message->fd_count > 3 ||
        h->slots == 0 || h->slots > (1U << 20)) {
        sp_wire_close_fds(cell->message);
        return sp_fail(e, SP_E_MALFORMED, 0, "the front did not say hello");
    }
    cell->slots = h->slots;
    cell->nofile = (struct rlimit){.rlim_cur = h->nofile_soft, .rlim_max = h->nofile_hard};
    cell->yard.nofile = &cell->nofile;
    const int *fds = cell->message->fds;
    if (cell->message->fd_count == 3)
        cell->plan = fds[2];
    const int joined = sp_bell_join(fds[0], h->slots, -1, fds[1], &cell->yard.bell, e);
    (void)close(fds[0]);
    if (joined < 0) {
        (void)close(fds[1]);
        return joined;
    }
    cell->yard.cgroup.dir = -1;
    if (h->cgroup[0] != 0 && memchr(h->cgroup, 0, sizeof h->cgroup) != NULL)
        (void)sp_cgroup_new(h->cgroup, &cell->yard.cgroup); /* refused: by parentage then */
    return 0;
}

/* ---- confinement ---- */

/* The plan as it was sealed, for as long as we need it; NULL: it is none. */
static const struct sp_plan *map_plan(int fd, size_t *ret_bytes)
{
    const int want = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    const int seals = fcntl(fd, F_GET_SEALS);
    struct stat st;

    if (seals < 0 || (seals & want) != want || fstat(fd, &st) < 0 || st.st_size <= 0 ||
        st.st_size > (off_t)SP_PLAN_MAX)
        return NULL;
    *ret_bytes = (size_t)st.st_size;
    void *map = mmap(NULL, *ret_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    return map == MAP_FAILED ? NULL : sp_plan_check(map, *ret_bytes);
}

static void tell_ready(const struct cell *cell, const struct sp_built *built)
{
    struct sp_wire_ready m = {.head = {.version = SP_WIRE_VERSION, .op = SP_WIRE_READY},
                              .step = built->step,
                              .err = built->err};

    if (built->where != NULL)
        (void)snprintf(m.where, sizeof m.where, "%s", built->where);
    (void)sp_wire_send(cell->control, true, &m, sizeof m, NULL, 0, NULL, 0);
}

/* An open cell: nothing to do. */
static void confine(struct cell *cell)
{
    struct sp_built built = {0};
    struct sp_confined confined = {.scope = -1, .listener = -1};
    size_t bytes = 0;

    if (cell->plan < 0)
        return;
    const struct sp_plan *plan = map_plan(cell->plan, &bytes);
    (void)close(cell->plan);
    cell->plan = -1;
    if (plan == NULL)
        (void)sp_built_fail(&built, SP_BUILD_PLAN, EINVAL, NULL);
    else
        (void)sp_confine(plan, cell->control, &confined, &built);
    tell_ready(cell, &built);
    if (plan == NULL || built.step != SP_BUILD_NONE)
        _exit(1); /* the front knows why */
    cell->yard.is_confined = true;
    cell->yard.hides_cwds = plan->view == SP_VIEW_NEW;
    cell->yard.scope = confined.scope;
    cell->listener = confined.listener;
    if (plan->net == SP_NET_OWN)
        cell->yard.net_count = open("/proc/self/net/snmp", O_RDONLY | O_CLOEXEC);
    (void)munmap((void *)(uintptr_t)plan, bytes);
}

static int prepare(struct cell *cell, struct sp_err *e)
{
    sigset_t child;

    /* calloc of a large table takes no memory until a slot is used. */
    cell->commands = calloc(cell->slots, sizeof *cell->commands);
    cell->strays = sp_strays_new(&cell->yard, cell->commands, cell->slots);
    if (cell->commands == NULL || cell->strays == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make the cell's tables");
    cell->starts = (struct sp_starts){.yard = &cell->yard,
                                      .commands = cell->commands,
                                      .slots = cell->slots,
                                      .strays = cell->strays,
                                      .control = cell->control};
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "become subreaper");
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
    cell->child_signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    cell->yard.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (cell->child_signals < 0 || cell->yard.epoll < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "make the cell's loop");

    /* The signal is heard at its edge: it is read when there is time for a sweep. */
    const struct {
        int fd;
        uint32_t events;
        enum sp_cell_event kind;
    } w[] = {
        {cell->control, EPOLLIN, SP_EV_CONTROL},
        {cell->yard.bell.wake[SP_SIDE_CELL], EPOLLIN, SP_EV_BELL},
        {cell->child_signals, EPOLLIN | EPOLLET, SP_EV_CHILD},
        {cell->listener, EPOLLIN, SP_EV_NOTICE},
    };
    for (size_t i = 0; i < sizeof w / sizeof w[0]; i++) {
        struct epoll_event ev = {.events = w[i].events, .data.u64 = SP_EV(w[i].kind, 0)};

        if (w[i].fd < 0)
            continue;
        if (epoll_ctl(cell->yard.epoll, EPOLL_CTL_ADD, w[i].fd, &ev) < 0)
            return sp_fail(e, SP_E_SYSTEM, errno, "watch the cell's descriptors");
    }
    return 0;
}

/* true: no child is left. */
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

/* Everything below us ends with us. false: something does not, and is the front's now. */
static bool end_all(struct cell *cell)
{
    const uint64_t deadline = clock_ms() + END_WAIT_MS;
    const struct timespec wait = {.tv_nsec = END_ROUND_MS * 1000000L};
    uint64_t next_ms = 0;
    bool is_empty = false;
    sigset_t child;

    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sp_yard_free_spare(&cell->yard);
    if (cell->yard.cgroup.dir >= 0) {
        sp_cgroup_kill(cell->yard.cgroup.dir);
        next_ms = clock_ms() + END_ROUND_MS;
    }
    /* In rounds: one that goes on forking while it is looked for may escape one of them, and its
     * dead ancestors keep coming. */
    while (!(is_empty = reap_all()) && clock_ms() < deadline) {
        if (clock_ms() >= next_ms) {
            sp_tree_kill(getpid(), false);
            next_ms = clock_ms() + END_ROUND_MS;
        }
        (void)sigtimedwait(&child, NULL, &wait);
    }
    sp_cgroup_free(&cell->yard.cgroup);
    /* Their numbers are free by now: nothing is sent to them any more. */
    for (uint32_t i = 0; i < cell->slots; i++)
        if (cell->commands[i].life == SP_LIFE_RUNNING)
            cell->commands[i].life = SP_LIFE_EXITED;
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
    cell->child_signals = cell->yard.epoll = cell->plan = cell->listener = -1;
    cell->yard.scope = cell->yard.net_count = -1;
    cell->yard.bell.page_fd = cell->yard.bell.wake[0] = cell->yard.bell.wake[1] = -1;
    cell->yard.cgroup.dir = -1;
    for (int i = 0; i < SP_SPARE; i++)
        cell->yard.spare[i] = -1;
    own_signals();
    int r = hello(cell, e);
    if (r == 0) {
        confine(cell);
        r = prepare(cell, e);
    }
    if (r == 0) {
        sp_yard_take_spare(&cell->yard);
        while (one_turn(cell)) {
        }
        const bool has_ended = getpid() == 1 /* the kernel does it */ || end_all(cell);
        if (!has_ended)
            r = sp_fail(e, SP_E_FAILED, 0, "some processes of commands do not end");
        if (cell->yard.is_confined)
            _exit(has_ended ? 0 : 1); /* nothing of ours is left to tidy up, and the filter is no
                                         place for it */
    }
    for (uint32_t i = 0; cell->commands != NULL && i < cell->slots; i++)
        if (cell->commands[i].life != SP_LIFE_NONE)
            sp_command_forget(&cell->yard, &cell->commands[i]);
    sp_starts_free(&cell->starts);
    sp_strays_free(cell->strays);
    sp_bell_free(&cell->yard.bell);
    sp_cgroup_free(&cell->yard.cgroup);
    if (cell->child_signals >= 0)
        (void)close(cell->child_signals);
    if (cell->yard.epoll >= 0)
        (void)close(cell->yard.epoll);
    free(cell->message);
    free(cell->commands);
    free(cell);
    return r;
}

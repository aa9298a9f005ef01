/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cells.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/log.h"
#include "os/cgroup.h"
#include "os/spawn.h"
#include "os/tree.h"

#define CONGESTED_BYTES  (1U << 20)
#define END_WAIT_MS      5000
#define MESSAGES_AT_ONCE 64

/* A message that the socket did not take. */
struct parcel {
    struct parcel *next;
    int fd; /* -1: none */
    size_t len;
    char bytes[];
};

struct sp_cell {
    struct sp_loop *loop;
    struct sp_cell_options options;
    pid_t pid;
    int pidfd;
    int socket;                  /* -1: it has died */
    char cgroup[SP_CGROUP_NAME]; /* its directory's name; "": none */
    struct sp_bell bell;
    struct sp_watch on_socket, on_bell;
    struct sp_deferred burial;

    struct sp_seat **seats; /* by slot */
    uint32_t *free_slots, free_count;
    uint64_t next_number;

    struct parcel *outbox, **outbox_end;
    size_t outbox_bytes;
    bool was_congested;
    struct sp_wire_message message;
};

/* ---- sending ---- */

static void bury(struct sp_deferred *d);

static void set_dead(struct sp_cell *c)
{
    if (c->socket < 0)
        return;
    sp_loop_unwatch(c->loop, &c->on_socket);
    sp_loop_unwatch(c->loop, &c->on_bell);
    (void)close(c->socket);
    c->socket = -1;
    sp_loop_defer(c->loop, &c->burial, bury);
}

static void drop_outbox(struct sp_cell *c)
{
    while (c->outbox != NULL) {
        struct parcel *p = c->outbox;

        c->outbox = p->next;
        if (p->fd >= 0)
            (void)close(p->fd);
        free(p);
    }
    c->outbox_end = &c->outbox;
    c->outbox_bytes = 0;
}

static bool enqueue(struct sp_cell *c, const void *msg, size_t len, const void *tail,
                    size_t tail_len, int fd)
{
    struct parcel *p = malloc(sizeof *p + len + tail_len);

    if (p == NULL)
        return false;
    *p = (struct parcel){.fd = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 6), .len = len + tail_len};
    memcpy(p->bytes, msg, len);
    if (tail_len != 0)
        memcpy(p->bytes + len, tail, tail_len);
    *c->outbox_end = p;
    c->outbox_end = &p->next;
    c->outbox_bytes += p->len;
    c->was_congested = c->was_congested || sp_cell_is_congested(c);
    sp_loop_rewatch(c->loop, &c->on_socket, EPOLLIN | EPOLLOUT);
    return true;
}

/* false: out of memory, or the cell is dead. */
static bool send_message(struct sp_cell *c, const void *msg, size_t len, const void *tail,
                         size_t tail_len, int fd)
{
    if (c->socket < 0)
        return false;
    if (c->outbox == NULL) {
        const int r = sp_wire_send(c->socket, false, msg, len, tail, tail_len, &fd, fd >= 0);

        if (r == 0)
            return true;
        if (r != -EAGAIN && r != -ENOBUFS) {
            set_dead(c);
            return false;
        }
    }
    return enqueue(c, msg, len, tail, tail_len, fd);
}

static void flush_outbox(struct sp_cell *c)
{
    while (c->outbox != NULL) {
        struct parcel *p = c->outbox;
        const int r = sp_wire_send(c->socket, false, p->bytes, p->len, NULL, 0, &p->fd, p->fd >= 0);

        if (r == -EAGAIN || r == -ENOBUFS)
            break;
        if (r < 0) {
            set_dead(c);
            return;
        }
        c->outbox = p->next;
        if (c->outbox == NULL)
            c->outbox_end = &c->outbox;
        c->outbox_bytes -= p->len;
        if (p->fd >= 0)
            (void)close(p->fd);
        free(p);
    }
    if (c->outbox == NULL)
        sp_loop_rewatch(c->loop, &c->on_socket, EPOLLIN);
    if (c->was_congested && c->outbox_bytes < CONGESTED_BYTES / 2) {
        c->was_congested = false;
        c->options.drained(c->options.user);
    }
}

bool sp_cell_is_congested(const struct sp_cell *c)
{
    return c->outbox_bytes > CONGESTED_BYTES;
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

    return s->cell != NULL && send_message(s->cell, &m, sizeof m, NULL, 0, -1);
}

/* ---- seats ---- */

static void give_back(struct sp_seat *s)
{
    struct sp_cell *c = s->cell;

    c->seats[s->slot] = NULL;
    c->free_slots[c->free_count++] = s->slot;
    s->cell = NULL;
}

/* A memfd with the strings, sealed: what the cell reads is what we wrote. */
static int strings_in_memfd(const struct sp_buf *strings)
{
    auto_close int fd = memfd_create("sallyport-start", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    size_t at = 0;

    if (fd < 0)
        return -1;
    while (at < strings->len) {
        const ssize_t n = write(fd, strings->data + at, strings->len - at);

        if (n < 0)
            return -1;
        at += (size_t)n;
    }
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0)
        return -1;
    return TAKE_FD(fd);
}

int sp_cell_start(struct sp_cell *c, struct sp_seat *s, struct sp_wire_start *m,
                  const struct sp_buf *strings, bool is_attached, struct sp_error *e)
{
    auto_close int fd = -1;
    const bool is_inline = strings->len <= SP_WIRE_MAX - sizeof *m;

    if (c->socket < 0)
        return sp_fail(e, SP_E_FAILED, 0, "the cell that runs commands has ended");
    if (strings->len > SP_WIRE_STRINGS)
        return sp_fail(e, SP_E_SYSTEM, E2BIG, "arguments and environment");
    if (c->free_count == 0)
        return sp_fail(
            e, SP_E_LIMIT, 0,
            "at most %u processes may exist at once, closed ones included (--max-processes)",
            c->options.slots);
    if (!is_inline && (fd = strings_in_memfd(strings)) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "hand over arguments");

    s->cell = c;
    s->slot = c->free_slots[--c->free_count];
    s->number = ++c->next_number;
    c->seats[s->slot] = s;
    m->head = (struct sp_wire_head){
        .version = SP_WIRE_VERSION, .op = SP_WIRE_START, .slot = s->slot, .number = s->number};
    sp_bell_serve(&c->bell, s->slot, is_attached, 0); /* before its first byte can be read */
    m->string_bytes = (uint32_t)strings->len;
    if (!is_inline)
        m->flags |= SP_START_MEMFD;
    if (!send_message(c, m, sizeof *m, strings->data, is_inline ? strings->len : 0, fd)) {
        give_back(s);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "ask the cell to start");
    }
    return 0;
}

void sp_cell_signal(struct sp_seat *s, uint64_t token, int signal)
{
    if (!send_call(s, SP_WIRE_SIGNAL, token, signal, 0))
        s->ops->done(s, token, EIO);
}

void sp_cell_resize(struct sp_seat *s, uint64_t token, uint16_t rows, uint16_t cols)
{
    if (!send_call(s, SP_WIRE_RESIZE, token, rows, cols))
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
    const int input = want > 1 ? c->message.fds[1] : -1;
    c->message.fd_count = 0;
    s->ops->started(s, m, ring, input);
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
        if (done->head.op == SP_WIRE_STARTED) {
            on_started(c);
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
    sp_bell_hush(&SP_CONTAINER(w, struct sp_cell, on_bell)->bell);
}

static bool peek(void *user)
{
    struct sp_cell *c = user;

    return c->socket >= 0 && sp_bell_answer(&c->bell, on_news, c);
}

static bool before_sleep(void *user)
{
    struct sp_cell *c = user;

    if (c->socket < 0)
        return false;
    if (sp_bell_answer(&c->bell, on_news, c))
        return true;
    return !sp_bell_may_sleep(&c->bell);
}

static void after_sleep(void *user)
{
    struct sp_cell *c = user;

    if (c->socket >= 0)
        sp_bell_awake(&c->bell);
}

/* ---- beginning and end ---- */

static int launch(struct sp_cell *c, struct sp_error *e)
{
    auto_close int theirs = -1;
    char *const argv[] = {(char *)(uintptr_t) "sallyport", (char *)(uintptr_t) "cell", NULL};
    char *const envp[] = {NULL};
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "make the cell's socket");
    c->socket = pair[0];
    theirs = pair[1];
    struct sp_spawn s = {.stdio = {theirs, -1, 2},
                         .cgroup = -1,
                         .file = c->options.program,
                         .argv = argv,
                         .envp = envp};
    if (sp_spawn(&s) < 0)
        return sp_fail(e, SP_E_SYSTEM, s.failed_errno, "start the cell: %s",
                       sp_step_name(s.failed_step));
    c->pid = s.pid;
    c->pidfd = s.pidfd;

    struct sp_wire_hello hello = {
        .head = {.version = SP_WIRE_VERSION, .op = SP_WIRE_HELLO},
        .slots = c->options.slots,
        .nofile_soft = c->options.nofile_soft,
        .nofile_hard = c->options.nofile_hard,
    };
    memcpy(hello.cgroup, c->cgroup, sizeof hello.cgroup);
    const int fds[2] = {c->bell.page_fd, c->bell.wake[SP_SIDE_CELL]};
    const int r = sp_wire_send(c->socket, true, &hello, sizeof hello, NULL, 0, fds, 2);
    if (r < 0)
        return sp_fail(e, SP_E_SYSTEM, -r, "greet the cell");
    (void)close(c->bell.wake[SP_SIDE_CELL]);
    c->bell.wake[SP_SIDE_CELL] = -1;
    return 0;
}

int sp_cell_new(struct sp_loop *loop, const struct sp_cell_options *o, struct sp_cell **ret,
                struct sp_error *e)
{
    struct sp_cell *c = calloc(1, sizeof *c);
    int r;

    if (c == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make a cell");
    c->loop = loop;
    c->options = *o;
    c->socket = c->pidfd = -1;
    c->outbox_end = &c->outbox;
    c->bell = (struct sp_bell){.page_fd = -1, .wake = {-1, -1}};
    if (o->use_cgroups && !sp_cgroup_name(c->cgroup))
        c->cgroup[0] = 0;
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
    /* What outlives a cell that was killed comes to us, to be killed too. */
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    r = sp_bell_new(o->slots, &c->bell, e);
    if (r == 0)
        r = launch(c, e);
    if (r == 0)
        r = sp_loop_watch(loop, &c->on_socket, c->socket, EPOLLIN, on_socket, e);
    if (r == 0)
        r = sp_loop_watch(loop, &c->on_bell, c->bell.wake[SP_SIDE_FRONT], EPOLLIN, on_bell, e);
    if (r < 0)
        goto fail;
    sp_loop_before_sleep(loop, before_sleep, after_sleep, c);
    sp_loop_peek(loop, peek, c);
    *ret = c;
    return 0;
fail:
    sp_cell_free(c);
    return r;
}

/* The cell ended though we wanted it: its processes are told, what it left is ended. */
static void bury(struct sp_deferred *d)
{
    struct sp_cell *c = SP_CONTAINER(d, struct sp_cell, burial);

    sp_log(SP_LOG_ERROR, "the cell (pid %d) has ended; its processes are lost", (int)c->pid);
    (void)kill(c->pid, SIGKILL); /* a child of ours, not reaped yet */
    sp_tree_kill(getpid(), false);
    sp_cgroup_clean_up(c->cgroup);
    for (uint32_t i = 0; i < c->options.slots; i++)
        if (c->seats[i] != NULL)
            c->seats[i]->ops->lost(c->seats[i]);
    drop_outbox(c);
    c->options.died(c->options.user);
}

static void await_end(struct sp_cell *c)
{
    struct pollfd p = {.fd = c->pidfd, .events = POLLIN};

    if (poll(&p, 1, END_WAIT_MS) <= 0) {
        sp_log(SP_LOG_ERROR, "the cell (pid %d) does not end, killing it", (int)c->pid);
        (void)kill(c->pid, SIGKILL);
        sp_tree_kill(getpid(), false);
        sp_cgroup_clean_up(c->cgroup);
    }
    (void)waitid(P_PIDFD, (id_t)c->pidfd, &(siginfo_t){0}, WEXITED);
    /* Normally none: strays of a cell that had to be killed. */
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
    (void)close(c->pidfd);
}

void sp_cell_free(struct sp_cell *c)
{
    if (c == NULL)
        return;
    sp_loop_before_sleep(c->loop, NULL, NULL, NULL);
    sp_loop_peek(c->loop, NULL, NULL);
    sp_loop_unwatch(c->loop, &c->on_socket);
    sp_loop_unwatch(c->loop, &c->on_bell);
    sp_loop_undefer(c->loop, &c->burial);
    if (c->socket >= 0)
        (void)close(c->socket);
    if (c->pidfd >= 0)
        await_end(c);
    drop_outbox(c);
    sp_bell_free(&c->bell);
    free(c->seats);
    free(c->free_slots);
    free(c);
}

pid_t sp_cell_pid(const struct sp_cell *c)
{
    return c->pid;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "cell/command.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "os/pty.h"
#include "os/tree.h"

#define DROP_BYTES    2048
#define MANY_DROPS    32 /* within ... */
#define DROPS_MS      2
#define REST_MS       1
#define READS_AT_ONCE 4          /* of one stream, before others have their turn */
#define DRAIN_BYTES   (4U << 20) /* after an exit: more than any pipe holds */
#define LAST_WORDS_MS 20         /* a failed command's streams may take to end */
#define GROUP_MS      1000       /* after its exit, what is left of its group may be killed */
#define DRAIN_WATER   (SP_RING_RETAIN_BYTES - 2 * SP_RING_CHUNK) /* retention would forget beyond */

/* ---- watching ---- */

static bool watch(struct sp_yard *y, int fd, enum sp_cell_event kind, uint32_t n)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.u64 = SP_EV(kind, n)};

    return epoll_ctl(y->epoll, EPOLL_CTL_ADD, fd, &ev) == 0;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

/* The front has a duplicate of a terminal's master, so closing ours alone would leave it watched.
 */
static void close_stream(struct sp_yard *y, struct sp_command *c, int which)
{
    if (c->is_tty && c->is_watched && c->stream[which] >= 0)
        (void)epoll_ctl(y->epoll, EPOLL_CTL_DEL, c->stream[which], NULL);
    close_fd(&c->stream[which]);
}

/* ---- starting ---- */

static void kill_tree(struct sp_yard *y, struct sp_command *c);

struct plumbing {
    int child[3]; /* what becomes 0, 1, 2 */
    int input;    /* ours, to write to */
};

static int open_terminal(struct sp_command *c, const struct sp_wire_start *s, struct plumbing *p)
{
    struct sp_err e = {0};
    struct sp_pty pty;

    if (sp_pty_open(s->rows != 0 ? s->rows : 24, s->cols != 0 ? s->cols : 80, &pty, &e) < 0)
        return e.sys;
    c->stream[0] = pty.master;
    c->slave = pty.slave;
    for (int i = 0; i < 3; i++)
        p->child[i] = pty.slave;
    p->input = pty.master;
    return 0;
}

/* A pipe whose end for us does not block; the child's end does, as programs expect. */
static int open_pipe(int *ret_ours, int *ret_childs, bool is_childs_input)
{
    int fd[2];

    if (pipe2(fd, O_CLOEXEC) < 0)
        return errno;
    *ret_ours = fd[is_childs_input ? 1 : 0];
    *ret_childs = fd[is_childs_input ? 0 : 1];
    return fcntl(*ret_ours, F_SETFL, (is_childs_input ? O_WRONLY : O_RDONLY) | O_NONBLOCK) < 0
               ? errno
               : 0;
}

static int open_pipes(struct sp_command *c, const struct sp_wire_start *s, struct plumbing *p)
{
    int err = open_pipe(&c->stream[0], &p->child[1], false);

    if (err == 0)
        err = open_pipe(&c->stream[1], &p->child[2], false);
    if (err == 0 && (s->flags & SP_START_STDIN) != 0)
        err = open_pipe(&p->input, &p->child[0], true);
    return err;
}

static void close_childs_ends(struct sp_command *c, struct plumbing *p)
{
    for (int i = 0; i < 3; i++)
        if (!c->is_tty)
            close_fd(&p->child[i]);
}

/* Everything but the slot's own identity is given back. */
static void release(struct sp_yard *y, struct sp_command *c)
{
    close_stream(y, c, 0);
    close_stream(y, c, 1);
    close_fd(&c->slave);
    close_fd(&c->pidfd);
    sp_ring_free(&c->ring);
    c->life = SP_LIFE_NONE;
}

/* NULL: it is not set. */
static const char *variable(char *const *envp, const char *name)
{
    const size_t len = strlen(name);

    for (; *envp != NULL; envp++)
        if (strncmp(*envp, name, len) == 0 && (*envp)[len] == '=')
            return *envp + len + 1;
    return NULL;
}

/* As the reference's sandbox helper (bubblewrap): $HOME, or the root. */
static const char *other_cwd(const struct sp_yard *y, char *const *envp)
{
    const char *home = variable(envp, "HOME");

    return !y->hides_cwds ? NULL : home != NULL && home[0] == '/' ? home : "/";
}

/* How often somebody found no route: "Ip: ... OutNoRoutes", the twelfth number of the second line.
 */
static uint64_t count_no_routes(const struct sp_yard *y)
{
    char text[1024];
    const ssize_t n = y->net_count < 0 ? -1 : pread(y->net_count, text, sizeof text - 1, 0);

    if (n <= 0)
        return 0;
    text[n] = 0;
    const char *at = strchr(text, '\n');
    for (int i = 0; at != NULL && i < 12; i++)
        at = strchr(at + 1, ' ');
    return at == NULL ? 0 : strtoull(at, NULL, 10);
}

/* Its child may take its time to end: whoever keeps *p reaps it. */
static void abandon_child(struct sp_yard *y, struct sp_command *c, struct sp_pending_start *p)
{
    c->is_terminated = true;
    kill_tree(y, c);
    (void)epoll_ctl(y->epoll, EPOLL_CTL_DEL, c->pidfd, NULL);
    p->pidfd = c->pidfd;
    c->pidfd = -1;
    c->pending = NULL;
}

/* 0: it runs; 1: it is on its way; -1: *ret_step and *ret_err say why not. */
static int start(struct sp_yard *y, struct sp_command *c, const struct sp_wire_start *s,
                 struct sp_pending_start *p, struct plumbing *pipes, enum sp_step *ret_step,
                 int *ret_err)
{
    struct sp_err e = {0};
    char *stack = p->spawn.stack;

    *ret_step = SP_STEP_PREPARE;
    if (sp_ring_new(&c->ring, &e) < 0) {
        *ret_err = e.sys;
        return -1;
    }
    *ret_step = SP_STEP_STDIO;
    *ret_err = c->is_tty ? open_terminal(c, s, pipes) : open_pipes(c, s, pipes);
    if (*ret_err != 0)
        return -1;

    p->spawn = (struct sp_spawn){
        .stdio = {pipes->child[0], pipes->child[1], pipes->child[2]},
        .is_tty = c->is_tty,
        .dies_with_us = true,
        .is_subreaper = c->leaf_fd < 0,
        .has_no_new_privs = (s->flags & SP_START_NO_NEW_PRIVS) != 0,
        .scope = y->scope,
        .cgroup = c->leaf_fd,
        .cwd = p->strings.cwd,
        .other_cwd = other_cwd(y, p->strings.envp),
        .file = p->strings.file,
        .dev = s->dev,
        .ino = s->ino,
        .search_path = variable(p->strings.envp, "PATH"),
        .argv = p->strings.argv,
        .envp = p->strings.envp,
        .nofile = y->nofile,
        .patience_ms = p->patience_ms,
        .stack = stack,
    };
    const int r = sp_spawn_begin(&p->spawn);
    if (r < 0) {
        *ret_step = p->spawn.failed_step;
        *ret_err = p->spawn.failed_errno;
        return -1;
    }
    c->pid = p->spawn.pid;
    c->pidfd = p->spawn.pidfd;
    if (watch(y, c->stream[0], SP_EV_OUT, c->slot) &&
        (c->stream[1] < 0 || watch(y, c->stream[1], SP_EV_ERR, c->slot)) &&
        watch(y, c->pidfd, SP_EV_EXIT, c->slot)) {
        c->is_watched = true;
        return r;
    }

    /* It cannot be watched: end it, for its end would never be told. */
    *ret_step = SP_STEP_PREPARE;
    *ret_err = errno;
    abandon_child(y, c, p);
    return -1;
}

/* By which its output is known in /proc, to whoever asks who holds it. */
static void tell_streams(const struct sp_command *c, struct sp_wire_started *ret)
{
    struct stat st;

    ret->terminal = -1;
    if (c->is_tty) {
        if (fstat(c->slave, &st) == 0)
            ret->terminal = (int32_t)minor(st.st_rdev);
        return;
    }
    for (int i = 0; i < 2; i++)
        if (fstat(c->stream[i], &st) == 0)
            ret->outputs[i] = st.st_ino;
}

/* Under a sandbox a program that is missing or may not be run is a command that fails, as in a
 * shell: whoever asked gets an exit code and a line that says why. */
static void tell_not_run(struct sp_yard *y, struct sp_command *c, const char *file, int err)
{
    struct sp_exit how = {.code = err == ENOENT || err == ENOTDIR ? 127 : 126};
    char *room = (char *)sp_ring_room(&c->ring);
    const int n = snprintf(room, SP_RING_CHUNK, "sallyport: %.4096s: %s%s\n", file, strerror(err),
                           c->is_tty ? "\r" : "");

    sp_ring_output(&c->ring, c->is_tty ? SP_STREAM_PTY : SP_STREAM_STDERR, (uint32_t)n);
    sp_ring_exited(&c->ring, &how);
    sp_ring_closed(&c->ring);
    close_stream(y, c, 0);
    close_stream(y, c, 1);
    close_fd(&c->slave);
    c->life = SP_LIFE_CLOSED;
    sp_bell_mark(&y->bell, c->slot);
}

/* It did not start: *c is free again. */
static void fail_start(struct sp_yard *y, struct sp_command *c, struct sp_pending_start *p,
                       enum sp_step step, int err)
{
    c->pending = NULL;
    if (!c->is_tty)
        close_fd(&p->input);
    p->input = -1;
    if (step == SP_STEP_EXEC && y->is_confined && err != ETIMEDOUT) {
        tell_not_run(y, c, p->strings.file, err);
        return;
    }
    release(y, c);
    p->reply.step = (uint32_t)step;
    p->reply.err = err;
}

static void tell_running(const struct sp_command *c, struct sp_pending_start *p)
{
    p->reply.pid = c->pid;
    p->reply.has_input = p->input >= 0;
    p->reply.leaf = c->leaf_number;
    tell_streams(c, &p->reply);
}

bool sp_command_start(struct sp_yard *y, struct sp_command *c, const struct sp_wire_start *s,
                      struct sp_pending_start *p)
{
    struct plumbing pipes = {.child = {-1, -1, -1}, .input = -1};
    enum sp_step step = SP_STEP_NONE;
    int err = 0;

    c->number = s->head.number;
    c->session = s->session;
    c->pid = 0;
    c->pending = NULL;
    c->is_tty = (s->flags & SP_START_TTY) != 0;
    c->is_watched = c->is_paused = c->is_resting = c->is_terminated = false;
    c->drops = c->refusal_count = c->left_network = 0;
    c->net_before = count_no_routes(y);
    c->start_number = ++y->starts;
    c->was_alone = y->running == 0;
    c->stream[0] = c->stream[1] = c->slave = c->pidfd = -1;
    c->ring.fd = -1;

    const int r = start(y, c, s, p, &pipes, &step, &err);
    close_childs_ends(c, &pipes);
    p->input = pipes.input;
    if (r < 0) {
        fail_start(y, c, p, step, err);
        return true;
    }
    c->life = SP_LIFE_RUNNING;
    c->pending = r > 0 ? p : NULL;
    y->running++;
    if (r == 0)
        tell_running(c, p);
    return r == 0;
}

bool sp_command_poll_start(struct sp_yard *y, struct sp_command *c)
{
    struct sp_pending_start *p = c->pending;
    const int r = sp_spawn_poll(&p->spawn);

    if (r > 0)
        return false;
    c->pending = NULL;
    if (r == 0) {
        tell_running(c, p);
        return true;
    }
    c->pidfd = -1; /* reaped and closed */
    y->running--;
    fail_start(y, c, p, p->spawn.failed_step, p->spawn.failed_errno);
    return true;
}

void sp_command_give_up(struct sp_yard *y, struct sp_command *c)
{
    struct sp_pending_start *p = c->pending;
    const enum sp_step step = p->spawn.step;

    abandon_child(y, c, p);
    y->running--;
    fail_start(y, c, p, step, ETIMEDOUT);
}

/* ---- reading ---- */

static bool has_ended(const struct sp_command *c)
{
    return c->stream[0] < 0 && c->stream[1] < 0;
}

static enum sp_stream stream_kind(const struct sp_command *c, int which)
{
    return c->is_tty ? SP_STREAM_PTY : which == 0 ? SP_STREAM_STDOUT : SP_STREAM_STDERR;
}

/* A terminal hands out at most 4095 bytes a call: several calls fill one chunk. */
static ssize_t read_chunk(const struct sp_command *c, int fd, uint8_t *room)
{
    ssize_t n = read(fd, room, SP_RING_CHUNK);

    while (c->is_tty && n >= 2048 && n <= (ssize_t)SP_RING_CHUNK - 4096) {
        const ssize_t more = read(fd, room + n, SP_RING_CHUNK - (size_t)n);

        if (more <= 0)
            break; /* end or error is met again by the next read */
        n += more;
        if (more < 2048)
            break;
    }
    return n;
}

/* One chunk into the ring. >0: its size; 0: nothing there now; -1: the stream has ended (closed).
 */
static ssize_t take_chunk(struct sp_yard *y, struct sp_command *c, int which)
{
    ssize_t n;

    do
        n = read_chunk(c, c->stream[which], sp_ring_room(&c->ring));
    while (n < 0 && errno == EINTR);
    if (n > 0) {
        sp_ring_output(&c->ring, stream_kind(c, which), (uint32_t)n);
        return n;
    }
    if (n < 0 && errno == EAGAIN)
        return 0;
    close_stream(y, c, which); /* end of file, or EIO: the terminal's last user is gone */
    return -1;
}

static bool is_too_far_ahead(const struct sp_yard *y, const struct sp_command *c, uint64_t limit)
{
    uint64_t served;

    return sp_bell_served(&y->bell, c->slot, &served) && c->ring.end - served > limit;
}

/* The streams are watched unless it is paused or resting. */
static void update_watch(struct sp_yard *y, struct sp_command *c)
{
    const bool wanted = !c->is_paused && !c->is_resting;
    bool ok = true;

    if (wanted == c->is_watched)
        return;
    for (int i = 0; i < 2; i++) {
        if (c->stream[i] < 0)
            continue;
        if (wanted)
            ok = (watch(y, c->stream[i], i == 0 ? SP_EV_OUT : SP_EV_ERR, c->slot) ||
                  errno == EEXIST) &&
                 ok;
        else
            (void)epoll_ctl(y->epoll, EPOLL_CTL_DEL, c->stream[i], NULL);
    }
    c->is_watched = wanted && ok;
}

static void pause_if_ahead(struct sp_yard *y, struct sp_command *c)
{
    if (c->is_paused || !is_too_far_ahead(y, c, SP_RING_HIGH_WATER))
        return;
    c->is_paused = true;
    sp_ring_set_paused(&c->ring, true);
    /* The front may have moved on before it could see that we wait: look once more. */
    if (!is_too_far_ahead(y, c, SP_RING_HIGH_WATER)) {
        c->is_paused = false;
        sp_ring_set_paused(&c->ring, false);
        return;
    }
    update_watch(y, c);
}

/*
 * A program that writes line by line would wake us for every line and be slowed by it. Once it has
 * done so for a while its lines gather in the pipe for a millisecond and are read together.
 */
static void rest_after_drops(struct sp_yard *y, struct sp_command *c, ssize_t n)
{
    if (n >= DROP_BYTES || y->now_ms - c->drops_since_ms >= DROPS_MS) {
        c->drops = 0;
        c->drops_since_ms = y->now_ms;
    }
    if (n >= DROP_BYTES || ++c->drops < MANY_DROPS || y->resting_count == SP_MAX_RESTING)
        return;
    c->drops = MANY_DROPS / 2; /* a habit is seen sooner the next time */
    c->is_resting = true;
    c->rests_until_ms = y->now_ms + REST_MS;
    y->resting[y->resting_count++] = c->slot;
    update_watch(y, c);
}

void sp_command_wake_rested(struct sp_yard *y, struct sp_command *commands)
{
    uint32_t left = 0;

    for (uint32_t i = 0; i < y->resting_count; i++) {
        struct sp_command *c = &commands[y->resting[i]];

        if (c->life == SP_LIFE_NONE || !c->is_resting)
            continue; /* gone, and the slot perhaps another's */
        if (y->now_ms >= c->rests_until_ms) {
            c->is_resting = false;
            update_watch(y, c);
            if (c->is_watched || c->is_paused)
                continue;
            c->is_resting = true; /* no memory to watch it: tried again in a moment */
        }
        y->resting[left++] = y->resting[i];
    }
    y->resting_count = left;
}

static void close_if_ended(struct sp_command *c)
{
    if (c->life == SP_LIFE_EXITED && has_ended(c)) {
        sp_ring_closed(&c->ring);
        c->life = SP_LIFE_CLOSED;
    }
}

static void publish_exit(struct sp_yard *y, struct sp_command *c);

void sp_command_readable(struct sp_yard *y, struct sp_command *c, int which)
{
    const uint64_t before = c->ring.end;

    for (int i = 0; i < READS_AT_ONCE && c->stream[which] >= 0 && c->is_watched; i++) {
        const ssize_t n = take_chunk(y, c, which);

        if (n > 0) {
            pause_if_ahead(y, c);
            rest_after_drops(y, c, n);
        }
        if (n < (ssize_t)SP_RING_CHUNK)
            break; /* what came after is told by the next event */
    }
    if (c->life == SP_LIFE_EXITING && has_ended(c))
        publish_exit(y, c);
    close_if_ended(c);
    if (c->ring.end != before)
        sp_bell_mark(&y->bell, c->slot);
}

/* ---- ending ---- */

/* Reads what is there, unless an attached reader would lose some of it. false: something may be
 * left. */
static bool drain(struct sp_yard *y, struct sp_command *c)
{
    for (int which = 0; which < 2; which++) {
        size_t total = 0;

        while (c->stream[which] >= 0) {
            if (total >= DRAIN_BYTES || is_too_far_ahead(y, c, DRAIN_WATER))
                return false;
            const ssize_t n = take_chunk(y, c, which);

            if (n <= 0)
                break;
            total += (size_t)n;
        }
    }
    return true;
}

/* After a terminate nothing waits for the streams' end: whoever still holds one is not of the tree.
 */
static void close_terminated(struct sp_yard *y, struct sp_command *c)
{
    if (c->life != SP_LIFE_EXITED || !c->is_terminated || !drain(y, c))
        return;
    close_stream(y, c, 0);
    close_stream(y, c, 1);
}

static void describe(const siginfo_t *info, const struct rusage *use, struct sp_exit *ret)
{
    const bool by_signal = info->si_code == CLD_KILLED || info->si_code == CLD_DUMPED;

    *ret = (struct sp_exit){
        .code = by_signal ? 128 + info->si_status : info->si_status,
        .signal = by_signal ? info->si_status : 0,
        .has_core = info->si_code == CLD_DUMPED,
        .max_rss_kb = (uint32_t)use->ru_maxrss,
        .user_us = (uint64_t)use->ru_utime.tv_sec * 1000000 + (uint64_t)use->ru_utime.tv_usec,
        .system_us = (uint64_t)use->ru_stime.tv_sec * 1000000 + (uint64_t)use->ru_stime.tv_usec,
    };
}

/* The exit becomes a fact in the log. */
static void publish_exit(struct sp_yard *y, struct sp_command *c)
{
    c->life = SP_LIFE_EXITED;
    c->exited_ms = y->now_ms;
    sp_ring_exited(&c->ring, &c->how);
    close_terminated(y, c);
    close_if_ended(c);
    sp_bell_mark(&y->bell, c->slot);
}

/* Its last words belong before its exit: a grandchild's pipe alone is not waited for. */
static bool wait_for_last_words(struct sp_yard *y, struct sp_command *c)
{
    if (!y->is_confined || c->how.code == 0 || c->is_terminated || has_ended(c) ||
        y->exiting_count == SP_MAX_EXITING)
        return false;
    c->life = SP_LIFE_EXITING;
    c->exit_due_ms = y->now_ms + LAST_WORDS_MS;
    y->exiting[y->exiting_count++] = c->slot;
    return true;
}

void sp_command_end_waits(struct sp_yard *y, struct sp_command *commands)
{
    uint32_t left = 0;

    for (uint32_t i = 0; i < y->exiting_count; i++) {
        struct sp_command *c = &commands[y->exiting[i]];

        if (c->life != SP_LIFE_EXITING)
            continue; /* its streams have ended, or it was forgotten */
        if (y->now_ms < c->exit_due_ms) {
            y->exiting[left++] = y->exiting[i];
            continue;
        }
        (void)drain(y, c);
        publish_exit(y, c);
    }
    y->exiting_count = left;
}

void sp_command_refused(struct sp_command *c, int call)
{
    for (uint32_t i = 0; i < c->refusal_count; i++)
        if (c->refusals[i].call == call) {
            c->refusals[i].count++;
            return;
        }
    if (c->refusal_count < SP_EXIT_REFUSALS)
        c->refusals[c->refusal_count++] = (struct sp_refusal){.call = (uint16_t)call, .count = 1};
}

/* What the sandbox knows of a failure. */
static void add_evidence(const struct sp_yard *y, struct sp_command *c)
{
    if (c->how.code == 0)
        return;
    c->how.left_network = c->left_network;
    /* The kernel's count is the network's. Of a command that was there alone it tells what it sent
     * without a connect, too. */
    if (c->was_alone && c->start_number == y->starts) {
        const uint64_t left = count_no_routes(y) - c->net_before;

        c->how.left_network = left > UINT32_MAX ? UINT32_MAX : (uint32_t)left;
    }
    c->how.refusal_count = c->refusal_count;
    memcpy(c->how.refusals, c->refusals, sizeof c->refusals);
}

void sp_command_exited(struct sp_yard *y, struct sp_command *c)
{
    siginfo_t info = {0};
    struct rusage use = {0};

    if (c->life != SP_LIFE_RUNNING)
        return;
    if (c->pending != NULL) { /* its start is answered first, then we come here again */
        __atomic_store_n(&c->pending->spawn.is_busy, 0, __ATOMIC_RELEASE);
        return;
    }
    /* The system call has a fifth argument that the C library hides. */
    const long r = syscall(SYS_waitid, P_PIDFD, c->pidfd, &info, WEXITED | WNOHANG, &use);
    if (r == 0 && info.si_pid == 0)
        return;
    c->how = (struct sp_exit){.code = -1};
    if (r == 0)
        describe(&info, &use, &c->how);
    add_evidence(y, c);
    close_fd(&c->pidfd);
    close_fd(&c->slave);
    (void)drain(y, c); /* what is left comes after the exit */
    y->running--;
    if (!wait_for_last_words(y, c))
        publish_exit(y, c);
    else
        sp_bell_mark(&y->bell, c->slot);
}

void sp_command_served(struct sp_yard *y, struct sp_command *c)
{
    if (!c->is_paused || is_too_far_ahead(y, c, SP_RING_LOW_WATER))
        return;
    c->is_paused = false;
    sp_ring_set_paused(&c->ring, false);
    update_watch(y, c);
    if (c->is_terminated && c->life == SP_LIFE_EXITED) {
        const uint64_t before = c->ring.end;

        close_terminated(y, c);
        close_if_ended(c);
        if (c->ring.end != before)
            sp_bell_mark(&y->bell, c->slot);
    }
}

/* Its own number is free again, but not while its group has members: those may be ended. A process
 * that has the number now is another's; so may be its group, once there was time for that. */
static bool may_end_group(const struct sp_yard *y, const struct sp_command *c)
{
    return c->pid != 0 && y->now_ms - c->exited_ms <= GROUP_MS && kill(c->pid, 0) < 0 &&
           errno == ESRCH;
}

int sp_command_signal(const struct sp_yard *y, struct sp_command *c, int signal)
{
    if (c->life != SP_LIFE_RUNNING && (signal != SIGKILL || !may_end_group(y, c)))
        return 0;
    return kill(-c->pid, signal) < 0 && errno != ESRCH ? errno : 0;
}

void sp_yard_free_spare(struct sp_yard *y)
{
    for (int i = 0; i < SP_SPARE; i++)
        close_fd(&y->spare[i]);
}

void sp_yard_take_spare(struct sp_yard *y)
{
    for (int i = 0; i < SP_SPARE; i++)
        if (y->spare[i] < 0)
            y->spare[i] = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 7); /* none free: next time */
}

static void kill_tree(struct sp_yard *y, struct sp_command *c)
{
    sp_yard_free_spare(y);
    if (c->leaf_fd >= 0) {
        sp_cgroup_kill(c->leaf_fd);
        (void)kill(c->pid, SIGKILL); /* not reaped yet, so it is still this one */
    } else {
        sp_tree_kill(c->pid, true);
    }
    sp_yard_take_spare(y);
}

void sp_command_terminate(struct sp_yard *y, struct sp_command *c)
{
    if (c->life == SP_LIFE_EXITING) {
        c->is_terminated = true;
        publish_exit(y, c);
    }
    if (c->life != SP_LIFE_RUNNING)
        return;
    c->is_terminated = true;
    kill_tree(y, c);
}

void sp_command_forget(struct sp_yard *y, struct sp_command *c)
{
    struct sp_pending_start *p = c->pending;

    if (p != NULL) {
        abandon_child(y, c, p);
        y->running--;
        if (!c->is_tty)
            close_fd(&p->input);
    } else if (c->life == SP_LIFE_RUNNING) {
        struct epoll_event ev = {.events = EPOLLIN, .data.u64 = SP_EV(SP_EV_REAP, c->pidfd)};

        sp_command_terminate(y, c);
        y->running--;
        (void)epoll_ctl(y->epoll, EPOLL_CTL_MOD, c->pidfd, &ev);
        c->pidfd = -1; /* the event's now */
    }
    release(y, c);
}

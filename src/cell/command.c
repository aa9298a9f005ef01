/* SPDX-License-Identifier: Apache-2.0 */
#include "cell/command.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "os/oom.h"
#include "os/pty.h"
#include "os/tree.h"

#define SMALL_READ       2048 /* less than this is small; of a large pipe, */
#define LARGE_PIPE_SMALL 8193 /* less than this */
#define MANY_SMALL_READS 32   /* within SMALL_READS_MS: the command rests for SP_REST_MS */
#define SMALL_READS_MS   2
#define READS_AT_ONCE    4       /* reads of one stream before other events are served */
#define CHATTY_BYTES     131072U /* a stream with so much output gets a pipe of */
#define LARGE_PIPE       262144  /* this size, */
/* Enlarged at once: the kernel limits the pages of all pipes of a user, and commands need pipes,
 * too. */
#define MAX_LARGE_PIPES 64
#define DRAIN_BYTES     (4U << 20) /* after an exit: more than any pipe holds */
#define LAST_OUTPUT_MS  20         /* wait for the end of a failed command's streams */
#define GROUP_MS        5000       /* after its exit the process group may still be killed */
/* After an exit, reading stops when the owner is this far behind: two more chunks, and retention
 * would drop records that it has not got. */
#define DRAIN_WATER (SP_RING_RETAIN_BYTES - 2 * SP_RING_CHUNK)

/* ---- watching ---- */

static bool watch(struct sp_cell_state *cell, int fd, enum sp_cell_event kind, uint32_t n)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.u64 = SP_EV(kind, n)};

    return epoll_ctl(cell->epoll, EPOLL_CTL_ADD, fd, &ev) == 0;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

/* The front has a duplicate of a terminal's master, so close() alone would leave it in epoll. */
static void close_stream(struct sp_cell_state *cell, struct sp_command *c, int which)
{
    if (c->is_large[which] && c->stream[which] >= 0)
        cell->large_pipes--;
    if (c->is_tty && c->is_watched && c->stream[which] >= 0)
        (void)epoll_ctl(cell->epoll, EPOLL_CTL_DEL, c->stream[which], NULL);
    close_fd(&c->stream[which]);
}

/* ---- killing ---- */

void sp_cell_free_spare(struct sp_cell_state *cell)
{
    for (int i = 0; i < SP_SPARE; i++)
        close_fd(&cell->spare[i]);
}

void sp_cell_take_spare(struct sp_cell_state *cell)
{
    for (int i = 0; i < SP_SPARE; i++)
        if (cell->spare[i] < 0)
            cell->spare[i] = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 7); /* may fail */
}

/* Once the leader is reaped, its pid may be another process, and only a leaf still tells what it
 * has left. */
static void kill_tree(struct sp_cell_state *cell, struct sp_command *c)
{
    sp_cell_free_spare(cell);
    if (c->leaf_index != SP_NO_LEAF) {
        auto_close int own =
            c->lent_leaf < 0 ? sp_cgroup_open_leaf(&cell->cgroup, c->leaf_number) : -1;

        sp_cgroup_kill(c->lent_leaf < 0 ? own : c->lent_leaf);
        if (!c->is_reaped)
            (void)kill(c->pid, SIGKILL);
    } else if (!c->is_reaped) {
        sp_tree_kill(c->pid, true);
    }
    sp_cell_take_spare(cell);
}

/* ---- starting ---- */

struct stdio_fds {
    int child[3]; /* the child's 0, 1 and 2 */
    int input;    /* our end of its stdin; -1: none */
};

/* Our end is nonblocking; the child's end blocks, as programs expect. */
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

/* 0 or errno. After a failure the caller closes what was opened. */
static int open_stdio(struct sp_command *c, const struct sp_wire_start *s, struct stdio_fds *p)
{
    if (c->is_tty) {
        struct sp_err e = {0};
        struct sp_pty pty;

        if (sp_pty_open(s->rows != 0 ? s->rows : 24, s->cols != 0 ? s->cols : 80, &pty, &e) < 0)
            return e.sys;
        c->stream[0] = p->input = pty.master;
        c->slave = p->child[0] = p->child[1] = p->child[2] = pty.slave;
        return 0;
    }
    int err = open_pipe(&c->stream[0], &p->child[1], false);
    if (err == 0)
        err = open_pipe(&c->stream[1], &p->child[2], false);
    if (err == 0 && (s->flags & SP_START_STDIN) != 0)
        err = open_pipe(&p->input, &p->child[0], true);
    return err;
}

static void list_in_session(struct sp_cell_state *cell, struct sp_command *c)
{
    uint32_t *first = &cell->by_session[c->session % SP_SESSION_BUCKETS];

    c->prev = SP_NO_SLOT;
    c->next = *first;
    if (c->next != SP_NO_SLOT)
        cell->commands[c->next].prev = c->slot;
    *first = c->slot;
}

/* Frees the slot and all that it holds, except its leaf. */
static void release(struct sp_cell_state *cell, struct sp_command *c)
{
    *(c->prev != SP_NO_SLOT ? &cell->commands[c->prev].next
                            : &cell->by_session[c->session % SP_SESSION_BUCKETS]) = c->next;
    if (c->next != SP_NO_SLOT)
        cell->commands[c->next].prev = c->prev;
    close_stream(cell, c, 0);
    close_stream(cell, c, 1);
    close_fd(&c->slave);
    sp_command_close_input(c);
    close_fd(&c->log);
    c->life = SP_LIFE_NONE; /* the ring stays mapped, for the next command in the slot */
}

static const char *find_variable(char *const *envp, const char *name)
{
    const size_t len = strlen(name);

    for (; *envp != NULL; envp++)
        if (strncmp(*envp, name, len) == 0 && (*envp)[len] == '=')
            return *envp + len + 1;
    return NULL;
}

/* OutNoRoutes of "Ip:": the twelfth number of the second line. */
static uint64_t count_no_routes(const struct sp_cell_state *cell)
{
    char text[1024];
    const ssize_t n = cell->net_count < 0 ? -1 : pread(cell->net_count, text, sizeof text - 1, 0);

    if (n <= 0)
        return 0;
    text[n] = 0;
    const char *at = strchr(text, '\n');
    for (int i = 0; at != NULL && i < 12; i++)
        at = strchr(at + 1, ' ');
    return at == NULL ? 0 : strtoull(at, NULL, 10);
}

/* Kills the child without waiting for its end: p->child is cleared when it is reaped. */
static void abandon_child(struct sp_cell_state *cell, struct sp_command *c,
                          struct sp_pending_start *p)
{
    c->is_terminated = true;
    c->pending = NULL;
    if (c->is_reaped)
        return;
    kill_tree(cell, c);
    sp_pids_put(&cell->pids, c->pid, SP_PID_OTHER, 0);
    sp_pids_find(&cell->pids, c->pid)->start = p;
    p->child = c->pid;
}

/* Returns -1. */
static int note_failure(struct sp_pending_start *p, enum sp_step step, int err)
{
    p->spawn.failed_step = step;
    p->spawn.failed_errno = err;
    return -1;
}

static unsigned make_rlimits(const struct sp_cell_state *cell, const struct sp_wire_start *s,
                             struct sp_rlimit *ret)
{
    static const int resources[SP_WIRE_RLIMITS] = {
        [SP_WIRE_RLIMIT_CPU] = RLIMIT_CPU,      [SP_WIRE_RLIMIT_FSIZE] = RLIMIT_FSIZE,
        [SP_WIRE_RLIMIT_FILES] = RLIMIT_NOFILE, [SP_WIRE_RLIMIT_DATA] = RLIMIT_DATA,
        [SP_WIRE_RLIMIT_PIDS] = RLIMIT_NPROC,
    };
    unsigned count = 0;

    for (int i = 0; i < SP_WIRE_RLIMITS; i++) {
        struct rlimit now = {RLIM_INFINITY, RLIM_INFINITY};
        rlim_t soft = s->rlimits[i];

        if (soft == 0)
            continue;
        if (i == SP_WIRE_RLIMIT_FILES)
            now = *cell->nofile;
        else
            (void)getrlimit((__rlimit_resource_t)resources[i], &now);
        const rlim_t hard = soft + (i == SP_WIRE_RLIMIT_CPU);
        soft = soft < now.rlim_max ? soft : now.rlim_max;
        ret[count++] =
            (struct sp_rlimit){resources[i], {soft, hard < now.rlim_max ? hard : now.rlim_max}};
    }
    return count;
}

/* 0: the program runs; 1: execve is pending; -1: p->spawn.failed_step and failed_errno say why not.
 */
static int spawn_command(struct sp_cell_state *cell, struct sp_command *c,
                         const struct sp_wire_start *s, struct sp_pending_start *p,
                         struct stdio_fds *pipes)
{
    const char *home = find_variable(p->strings.envp, "HOME");
    const char *fallback_cwd = home != NULL && home[0] == '/' ? home : "/"; /* as bubblewrap */

    const int err = open_stdio(c, s, pipes);
    if (err != 0)
        return note_failure(p, SP_STEP_STDIO, err);
    if (!sp_pids_reserve(&cell->pids))
        return note_failure(p, SP_STEP_PREPARE, ENOMEM);

    p->spawn = (struct sp_spawn){
        .stdio = {pipes->child[0], pipes->child[1], pipes->child[2]},
        .is_tty = c->is_tty,
        .has_no_pidfd = true,
        .parent = cell->pid,
        .dies_with_us = true,
        .is_subreaper = c->leaf_index == SP_NO_LEAF,
        .has_no_new_privs = (s->flags & SP_START_NO_NEW_PRIVS) != 0,
        .scope = cell->scope,
        .cgroup = c->leaf_fd,
        .cwd = p->strings.cwd,
        .other_cwd = cell->hides_cwds ? fallback_cwd : NULL,
        .file = p->strings.file,
        .dev = s->dev,
        .ino = s->ino,
        .search_path = find_variable(p->strings.envp, "PATH"),
        .argv = p->strings.argv,
        .envp = p->strings.envp,
        .nofile = cell->nofile,
        .rlimits = p->rlimits,
        .rlimit_count = make_rlimits(cell, s, p->rlimits),
        .joins = p->joins,
        .join_count = p->join_count,
        .patience_ms = p->patience_ms,
        .stack = p->spawn.stack,
    };
    const int r = sp_spawn_begin(&p->spawn);
    if (r < 0)
        return -1;
    c->pid = p->spawn.pid;
    sp_pids_put(&cell->pids, c->pid, SP_PID_COMMAND, c->slot);
    if (watch(cell, c->stream[0], SP_EV_OUT, c->slot) &&
        (c->stream[1] < 0 || watch(cell, c->stream[1], SP_EV_ERR, c->slot))) {
        c->is_watched = true;
        return r;
    }

    /* Without epoll its output would go unnoticed. */
    (void)note_failure(p, SP_STEP_PREPARE, errno);
    abandon_child(cell, c, p);
    return -1;
}

/* Frees *c, except after record_exec_failure. */
static void fail_start(struct sp_cell_state *cell, struct sp_command *c, struct sp_pending_start *p)
{
    const enum sp_step step = p->spawn.failed_step;
    const int err = p->spawn.failed_errno;

    c->pending = NULL;
    if (!c->is_tty)
        close_fd(&p->input);
    p->input = -1;
    if (step == SP_STEP_EXEC && cell->is_confined && err != ETIMEDOUT) {
        /* In a sandbox a program that is missing or may not be executed counts as a command that
         * ran and failed, as in a shell: the client gets exit code 126 or 127 and a line with the
         * reason.
         */
        struct sp_exit how = {.code = err == ENOENT || err == ENOTDIR ? 127 : 126,
                              .reason = SP_END_EXIT};
        char *room = (char *)sp_ring_room(&c->ring);
        char why[4200];

        (void)sp_spawn_explain(p->strings.file, p->strings.argv[1] == NULL, err, why, sizeof why);
        const int n = snprintf(room, c->ring.room, "sallyport: %.*s%s\n", (int)c->ring.room - 32,
                               why, c->is_tty ? "\r" : "");

        sp_ring_output(&c->ring, c->is_tty ? SP_STREAM_PTY : SP_STREAM_STDERR, (uint32_t)n);
        sp_ring_exited(&c->ring, &how);
        sp_ring_closed(&c->ring);
        close_stream(cell, c, 0);
        close_stream(cell, c, 1);
        close_fd(&c->slave);
        c->life = SP_LIFE_CLOSED;
        sp_bell_mark(&cell->bell, c->slot);
        return;
    }
    release(cell, c);
    p->reply.step = (uint32_t)step;
    p->reply.err = err;
}

/* terminal and outputs identify the streams in /proc/PID/fd: the front uses them to find the
 * processes that still hold one. */
void sp_command_streams(const struct sp_command *c, int32_t *ret_terminal, uint64_t ret_outputs[2])
{
    unsigned number;
    struct stat st;

    if (c->is_tty && c->stream[0] >= 0 && ioctl(c->stream[0], TIOCGPTN, &number) == 0)
        *ret_terminal = (int32_t)number;
    for (int i = 0; i < 2 && !c->is_tty; i++)
        if (c->stream[i] >= 0 && fstat(c->stream[i], &st) == 0)
            ret_outputs[i] = st.st_ino;
}

/* The program runs: its memory is not ours any more. */
static void note_executed(const struct sp_cell_state *cell, const struct sp_command *c,
                          struct sp_pending_start *p)
{
    if (cell->oom_score >= 0)
        (void)sp_oom_set(c->pid, cell->oom_score); /* it keeps ours, if its view has no /proc */
    p->reply.pid = c->pid;
    p->reply.has_input = p->input >= 0;
    p->reply.leaf_number = c->leaf_number;
    sp_command_streams(c, &p->reply.terminal, p->reply.outputs);
}

void sp_command_close_input(struct sp_command *c)
{
    close_fd(&c->input);
}

bool sp_command_start(struct sp_cell_state *cell, struct sp_command *c,
                      const struct sp_wire_start *s, struct sp_pending_start *p)
{
    struct stdio_fds pipes = {.child = {-1, -1, -1}, .input = -1};

    c->number = s->head.number;
    c->session = s->session;
    list_in_session(cell, c);
    c->pid = 0;
    c->pending = NULL;
    c->is_tty = (s->flags & SP_START_TTY) != 0;
    c->is_watched = c->is_paused = c->is_resting = c->is_terminated = c->is_reaped = false;
    c->small_reads = c->refusal_count = c->left_network = 0;
    c->is_large[0] = c->is_large[1] = false;
    c->piped[0] = c->piped[1] = 0;
    c->max_output = s->max_output;
    c->net_before = count_no_routes(cell);
    c->started_us = sp_clock_us();
    c->start_number = ++cell->starts;
    c->was_alone = cell->running == 0;
    c->stream[0] = c->stream[1] = c->slave = c->input = c->log = -1;

    const int r = spawn_command(cell, c, s, p, &pipes);
    for (int i = 0; i < 3 && !c->is_tty; i++)
        close_fd(&pipes.child[i]);
    p->input = pipes.input;
    if (r < 0) {
        fail_start(cell, c, p);
        return true;
    }
    c->life = SP_LIFE_RUNNING;
    c->pending = r > 0 ? p : NULL;
    cell->running++;
    if (r == 0)
        note_executed(cell, c, p);
    return r == 0;
}

bool sp_command_poll_start(struct sp_cell_state *cell, struct sp_command *c, bool is_late)
{
    struct sp_pending_start *p = c->pending;
    const int r = sp_spawn_poll(&p->spawn);

    if (r > 0 && !is_late)
        return false;
    c->pending = NULL;
    if (r == 0) {
        note_executed(cell, c, p);
        return true;
    }
    cell->running--;
    if (r > 0) {
        (void)note_failure(p, p->spawn.step, ETIMEDOUT);
        abandon_child(cell, c, p);
    } else if (!c->is_reaped) {
        sp_pids_remove(&cell->pids, c->pid); /* sp_spawn_poll has reaped it */
    }
    fail_start(cell, c, p);
    return true;
}

/* ---- reading ---- */

static bool streams_ended(const struct sp_command *c)
{
    return c->stream[0] < 0 && c->stream[1] < 0;
}

/* What the owner has not read yet is kept, whatever the share. */
static void keep_unread(const struct sp_cell_state *cell, struct sp_command *c)
{
    struct sp_served served;

    c->ring.read = sp_bell_served(&cell->bell, c->slot, &served) ? served.confirmed : UINT64_MAX;
}

static bool is_over_output(const struct sp_command *c)
{
    return c->max_output != 0 && c->ring.bytes > c->max_output;
}

/* Reads one chunk into the ring. >0: its size; 0: no data now; -1: the stream has ended and is
 * closed. */
static ssize_t take_chunk(struct sp_cell_state *cell, struct sp_command *c, int which)
{
    const enum sp_stream kind = c->is_tty    ? SP_STREAM_PTY
                                : which == 0 ? SP_STREAM_STDOUT
                                             : SP_STREAM_STDERR;
    uint8_t *room = sp_ring_room(&c->ring);
    ssize_t n;

    if (c->ring.share != 0)
        keep_unread(cell, c);
    do
        n = read(c->stream[which], room, c->ring.room);
    while (n < 0 && errno == EINTR);
    /* A terminal returns at most 4095 bytes a call: several calls fill one chunk. */
    while (c->is_tty && n >= 2048 && n <= (ssize_t)c->ring.room - 4096) {
        const ssize_t more = read(c->stream[which], room + n, c->ring.room - (size_t)n);

        if (more <= 0)
            break; /* the next read reports the end or error again */
        n += more;
        if (more < 2048)
            break;
    }
    if (n > 0) {
        if (!is_over_output(c)) /* what comes after the record that went over is not kept */
            sp_ring_output(&c->ring, kind, (uint32_t)n);
        return n;
    }
    if (n < 0 && errno == EAGAIN)
        return 0;
    close_stream(cell, c, which); /* end of file; EIO: the last user of the terminal is gone */
    return -1;
}

/* In a ring with a share a mark is at most this part of it. */
static bool is_ahead(const struct sp_command *c, uint64_t pos, uint64_t mark, uint32_t part)
{
    if (c->ring.share != 0 && c->ring.share / part < mark)
        mark = c->ring.share / part;
    return sp_ring_ahead(&c->ring, pos) > mark;
}

static bool must_pause(const struct sp_cell_state *cell, const struct sp_command *c)
{
    struct sp_served s;

    return sp_bell_served(&cell->bell, c->slot, &s) &&
           (is_ahead(c, s.sent, SP_RING_HIGH_WATER, 2) ||
            is_ahead(c, s.confirmed, SP_RING_UNREAD_HIGH_WATER, 2));
}

static bool may_go_on(const struct sp_cell_state *cell, const struct sp_command *c)
{
    struct sp_served s;

    return !sp_bell_served(&cell->bell, c->slot, &s) ||
           (!is_ahead(c, s.sent, SP_RING_LOW_WATER, 4) &&
            !is_ahead(c, s.confirmed, SP_RING_UNREAD_LOW_WATER, 4));
}

/* Adds the streams to epoll, or removes them while the command is paused or resting. */
static void update_watch(struct sp_cell_state *cell, struct sp_command *c)
{
    const bool wanted = !c->is_paused && !c->is_resting;
    bool ok = true;

    if (wanted == c->is_watched)
        return;
    for (int i = 0; i < 2; i++) {
        if (c->stream[i] < 0)
            continue;
        if (wanted)
            ok = (watch(cell, c->stream[i], i == 0 ? SP_EV_OUT : SP_EV_ERR, c->slot) ||
                  errno == EEXIST) &&
                 ok;
        else
            (void)epoll_ctl(cell->epoll, EPOLL_CTL_DEL, c->stream[i], NULL);
    }
    c->is_watched = wanted && ok;
}

static void pause_if_ahead(struct sp_cell_state *cell, struct sp_command *c)
{
    if (c->is_paused || !must_pause(cell, c))
        return;
    sp_ring_set_paused(&c->ring, true);
    /* The front may have served more before the pause was visible: check again, or both sides would
     * wait. */
    c->is_paused = must_pause(cell, c);
    if (c->is_paused)
        update_watch(cell, c);
    else
        sp_ring_set_paused(&c->ring, false);
}

/* sp_command_end_waits watches the streams again. false: too many commands rest. */
static bool rest(struct sp_cell_state *cell, struct sp_command *c)
{
    if (cell->resting_count == SP_MAX_RESTING)
        return false;
    c->is_resting = true;
    c->rests_until_ms = cell->now_ms + SP_REST_MS;
    cell->resting[cell->resting_count++] = c->slot;
    return true;
}

/* A full pipe of 64 KiB holds the output of some microseconds: a command with much output would
 * block in write() during each rest. Tried once; a pipe that cannot be enlarged stays as it is. */
static void enlarge_if_chatty(struct sp_cell_state *cell, struct sp_command *c, int which,
                              ssize_t n)
{
    if (c->is_tty || c->piped[which] >= CHATTY_BYTES)
        return;
    c->piped[which] += (uint32_t)n;
    if (c->piped[which] < CHATTY_BYTES || cell->large_pipes >= MAX_LARGE_PIPES ||
        fcntl(c->stream[which], F_SETPIPE_SZ, LARGE_PIPE) < 0)
        return;
    c->is_large[which] = true;
    cell->large_pipes++;
}

/*
 * A program that writes line by line would wake us for every line and be slowed down by it. After
 * MANY_SMALL_READS its lines gather in the pipe for a millisecond and are read together.
 */
static void rest_after_small_reads(struct sp_cell_state *cell, struct sp_command *c, int which,
                                   ssize_t n)
{
    const bool is_small = n < (c->is_large[which] ? LARGE_PIPE_SMALL : SMALL_READ);

    if (!is_small || cell->now_ms - c->small_reads_since_ms >= SMALL_READS_MS) {
        c->small_reads = 0;
        c->small_reads_since_ms = cell->now_ms;
    }
    if (!is_small || ++c->small_reads < MANY_SMALL_READS || !rest(cell, c))
        return;
    c->small_reads = MANY_SMALL_READS / 2; /* rests sooner the next time */
    update_watch(cell, c);
}

static void close_if_ended(struct sp_command *c)
{
    if (c->life == SP_LIFE_EXITED && streams_ended(c)) {
        sp_ring_closed(&c->ring);
        c->life = SP_LIFE_CLOSED;
    }
}

static void publish_exit(struct sp_cell_state *cell, struct sp_command *c);

/* The command has written more than it may. What its leader has left dies with its leaf; without
 * cgroups of SIGPIPE, or with its session. */
static void end_output(struct sp_cell_state *cell, struct sp_command *c)
{
    if (c->life == SP_LIFE_EXITED) {
        kill_tree(cell, c);
        c->is_terminated = true;
        close_stream(cell, c, 0);
        close_stream(cell, c, 1);
    } else if (!c->is_terminated) {
        sp_command_terminate(cell, c);
    }
}

void sp_command_readable(struct sp_cell_state *cell, struct sp_command *c, int which)
{
    const uint64_t before = c->ring.end;

    for (int i = 0; i < READS_AT_ONCE && c->stream[which] >= 0 && c->is_watched; i++) {
        const ssize_t n = take_chunk(cell, c, which);

        if (n > 0) {
            pause_if_ahead(cell, c);
            enlarge_if_chatty(cell, c, which, n);
            rest_after_small_reads(cell, c, which, n);
        }
        if (n < (ssize_t)c->ring.room)
            break; /* epoll reports later data again */
    }
    if (is_over_output(c))
        end_output(cell, c);
    if (c->life == SP_LIFE_EXITING && streams_ended(c))
        publish_exit(cell, c);
    close_if_ended(c);
    if (c->ring.end != before)
        sp_bell_mark(&cell->bell, c->slot);
}

/* ---- ending ---- */

/* Reads what is available, unless an attached client would lose output to retention. false: some
 * may be left. */
static bool drain(struct sp_cell_state *cell, struct sp_command *c)
{
    for (int which = 0; which < 2; which++) {
        size_t total = 0;

        while (c->stream[which] >= 0) {
            struct sp_served s;

            if (total >= DRAIN_BYTES || (sp_bell_served(&cell->bell, c->slot, &s) &&
                                         is_ahead(c, s.confirmed, DRAIN_WATER, 2)))
                return false;
            const ssize_t n = take_chunk(cell, c, which);

            if (n <= 0)
                break;
            total += (size_t)n;
        }
    }
    return true;
}

/* After a terminate the streams are closed without their end: any process that still holds one is
 * not part of the killed tree. */
static void close_terminated(struct sp_cell_state *cell, struct sp_command *c)
{
    if (c->life != SP_LIFE_EXITED || !c->is_terminated || !drain(cell, c))
        return;
    close_stream(cell, c, 0);
    close_stream(cell, c, 1);
}

static void publish_exit(struct sp_cell_state *cell, struct sp_command *c)
{
    c->life = SP_LIFE_EXITED;
    c->exited_ms = cell->now_ms;
    sp_ring_exited(&c->ring, &c->how);
    close_terminated(cell, c);
    close_if_ended(c);
    sp_bell_mark(&cell->bell, c->slot);
}

void sp_command_end_waits(struct sp_cell_state *cell)
{
    uint32_t left = 0;

    for (uint32_t i = 0; i < cell->resting_count; i++) {
        struct sp_command *c = &cell->commands[cell->resting[i]];

        if (c->life == SP_LIFE_NONE || !c->is_resting)
            continue; /* forgotten; the slot may hold another command */
        if (cell->now_ms >= c->rests_until_ms) {
            c->is_resting = false;
            update_watch(cell, c);
            if (c->is_watched || c->is_paused)
                continue;
            c->is_resting = true; /* epoll_ctl failed (ENOMEM): try again next time */
        }
        cell->resting[left++] = cell->resting[i];
    }
    cell->resting_count = left;
    left = 0;
    for (uint32_t i = 0; i < cell->exiting_count; i++) {
        struct sp_command *c = &cell->commands[cell->exiting[i]];

        if (c->life != SP_LIFE_EXITING)
            continue; /* the streams have ended, or the command was forgotten */
        if (cell->now_ms < c->exit_due_ms) {
            cell->exiting[left++] = cell->exiting[i];
            continue;
        }
        (void)drain(cell, c);
        publish_exit(cell, c);
    }
    cell->exiting_count = left;
}

static struct sp_exit describe_exit(const struct sp_command *c, const siginfo_t *info,
                                    const struct rusage *use)
{
    const bool by_signal = info->si_code == CLD_KILLED || info->si_code == CLD_DUMPED;
    /* A program may have ended by itself just before the kill. */
    const bool by_us = c->is_terminated && by_signal && info->si_status == SIGKILL;

    return (struct sp_exit){
        .code = by_signal ? 128 + info->si_status : info->si_status,
        .signal = by_signal ? info->si_status : 0,
        .has_core = info->si_code == CLD_DUMPED,
        .reason = by_us       ? SP_END_TERMINATED
                  : by_signal ? SP_END_SIGNAL
                              : SP_END_EXIT,
        .has_usage = 1,
        .max_rss_kb = (uint32_t)use->ru_maxrss,
        .user_us = (uint64_t)use->ru_utime.tv_sec * 1000000 + (uint64_t)use->ru_utime.tv_usec,
        .system_us = (uint64_t)use->ru_stime.tv_sec * 1000000 + (uint64_t)use->ru_stime.tv_usec,
        .read_blocks = (uint64_t)use->ru_inblock,
        .written_blocks = (uint64_t)use->ru_oublock,
        .voluntary_switches = (uint64_t)use->ru_nvcsw,
        .involuntary_switches = (uint64_t)use->ru_nivcsw,
        .major_faults = (uint64_t)use->ru_majflt,
        .wall_us = sp_clock_us() - c->started_us,
    };
}

/* The leader is reaped, and c->how says what waitid() said. */
static void end_command(struct sp_cell_state *cell, struct sp_command *c)
{
    if (c->how.code != 0) { /* evidence: the front decides whether the sandbox caused this */
        c->how.left_network = c->left_network;
        /* OutNoRoutes counts IPv4 packets of the whole namespace: for a command that ran alone also
         * datagrams sent without connect(). The listener has counted connect() to IPv6, too. */
        if (c->was_alone && c->start_number == cell->starts) {
            const uint64_t left = count_no_routes(cell) - c->net_before;

            if (left > c->how.left_network)
                c->how.left_network = left > UINT32_MAX ? UINT32_MAX : (uint32_t)left;
        }
        c->how.refusal_count = c->refusal_count;
        memcpy(c->how.refusals, c->refusals, sizeof c->refusals);
    }
    close_fd(&c->slave);
    sp_command_close_input(c); /* processes that the leader has left see the end of their stdin */
    (void)drain(cell, c);      /* any rest follows the exit record */
    cell->running--;
    if (!cell->is_confined || c->how.code == 0 || c->is_terminated || streams_ended(c) ||
        cell->exiting_count == SP_MAX_EXITING) {
        publish_exit(cell, c);
        return;
    }
    /* Delays the exit record, so that the last output comes before it; not longer than
     * LAST_OUTPUT_MS, as a grandchild may hold the pipe. */
    c->life = SP_LIFE_EXITING;
    c->exit_due_ms = cell->now_ms + LAST_OUTPUT_MS;
    cell->exiting[cell->exiting_count++] = c->slot;
    sp_bell_mark(&cell->bell, c->slot);
}

void sp_command_exited(struct sp_cell_state *cell, struct sp_command *c, const siginfo_t *info,
                       const struct rusage *use)
{
    c->is_reaped = true;
    if (info != NULL)
        c->how = describe_exit(c, info, use);
    if (c->pending == NULL) {
        end_command(cell, c);
        return;
    }
    /* The start is answered first: with its failure, or, if it was killed before execve, as a
     * success that is followed by the exit. When it is killed before set_tid_address, the kernel
     * does not clear is_busy. */
    c->pending->spawn.is_reaped = true;
    __atomic_store_n(&c->pending->spawn.is_busy, 0, __ATOMIC_RELEASE);
}

void sp_command_served(struct sp_cell_state *cell, struct sp_command *c)
{
    const uint32_t share = atomic_load(sp_bell_share(&cell->bell, c->slot));
    const uint32_t touched = c->ring.touched.count;

    if (share != 0 || c->ring.share != 0) {
        keep_unread(cell, c);
        sp_ring_set_share(&c->ring, share, c->ring.read);
        if (c->ring.touched.count != touched)
            sp_bell_mark(&cell->bell, c->slot); /* the front counts what is left */
    }
    if (!c->is_paused || !may_go_on(cell, c))
        return;
    c->is_paused = false;
    update_watch(cell, c);
    if (!c->is_watched && !c->is_resting && !rest(cell, c)) {
        c->is_paused = true; /* epoll_ctl failed (ENOMEM): try again when the front serves more */
        return;
    }
    sp_ring_set_paused(&c->ring, false);
    if (c->is_terminated && c->life == SP_LIFE_EXITED) {
        const uint64_t before = c->ring.end;

        close_terminated(cell, c);
        close_if_ended(c);
        if (c->ring.end != before)
            sp_bell_mark(&cell->bell, c->slot);
    }
}

int sp_command_signal(const struct sp_cell_state *cell, struct sp_command *c, int signal)
{
    /* After the leader is reaped, the kernel does not reuse its pid while the group has members, so
     * kill(-pid) is safe as long as no process has that pid (ESRCH). A group that died out could be
     * replaced by a new one with the same number: GROUP_MS keeps that window short. */
    if (c->life == SP_LIFE_RUNNING && c->is_reaped)
        return 0;
    if (c->life != SP_LIFE_RUNNING &&
        (signal != SIGKILL || c->pid == 0 || cell->now_ms - c->exited_ms > GROUP_MS ||
         kill(c->pid, 0) == 0 || errno != ESRCH))
        return 0;
    return kill(-c->pid, signal) < 0 && errno != ESRCH ? errno : 0;
}

void sp_command_terminate(struct sp_cell_state *cell, struct sp_command *c)
{
    if (c->life == SP_LIFE_EXITING) {
        c->is_terminated = true;
        publish_exit(cell, c);
    }
    if (c->life != SP_LIFE_RUNNING || c->is_reaped)
        return;
    c->is_terminated = true;
    kill_tree(cell, c);
}

void sp_command_forget(struct sp_cell_state *cell, struct sp_command *c)
{
    struct sp_pending_start *p = c->pending;

    if (p != NULL) {
        abandon_child(cell, c, p);
        cell->running--;
        if (!c->is_tty)
            close_fd(&p->input);
    } else if (c->life == SP_LIFE_RUNNING) {
        sp_command_terminate(cell, c);
        cell->running--;
        sp_pids_put(&cell->pids, c->pid, SP_PID_OTHER, 0);
    }
    release(cell, c);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a command's foreground does: what each thread does, from the system call it sleeps in, and
 * which processes are asked.
 */
#include "os/inspect.h"

#include <dirent.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"
#include "os/inspect_priv.h"
#include "os/tree.h"

#define MAX_THREADS     64   /* of one process */
#define MAX_ALL_THREADS 1024 /* of one inspection */
#define MAX_POLLED      512  /* descriptors of one poll or select set */
#define MAX_LINKS       64   /* of those, how many are resolved with readlink */

const char *sp_doing_name(enum sp_doing d)
{
    static const char *const names[] = {
        "unknown",       "running",           "sleeping", "reading_terminal",
        "reading_stdin", "waiting_for_child", "stopped",
    };

    return (unsigned)d < SP_DOING_MAX ? names[d] : names[SP_DOING_UNKNOWN];
}

/* ---- one sleeping thread ---- */

/* The system call that a sleeping thread is in. The call is read first and what it names a moment
 * later, so the two may not fit together: in doubt the answer is sleeping. */
struct call {
    const struct sp_inspect_target *at;
    pid_t pid;
    int controlling; /* the controlling terminal of the thread */
    long number;
    uint64_t arg[6];
    uint64_t stack;
};

static enum sp_doing doing_by_fd(const struct call *c, int fd)
{
    char link[SP_INSPECT_LINK];

    if (fd < 0 || !sp_inspect_link(c->pid, fd, link))
        return SP_DOING_SLEEPING;
    if (sp_inspect_is_terminal(c->at, link, c->controlling))
        return SP_DOING_READING_TERMINAL;
    /* Reading any other pipe is a matter between the command's own processes. */
    if (c->at->input != 0 && sp_inspect_inode(link, "pipe") == c->at->input)
        return SP_DOING_READING_STDIN;
    return SP_DOING_SLEEPING;
}

static enum sp_doing doing_in_poll(const struct call *c)
{
    struct pollfd set[MAX_POLLED];
    const uint64_t n = c->arg[1] < MAX_POLLED ? c->arg[1] : MAX_POLLED;
    enum sp_doing d = SP_DOING_SLEEPING;
    int links = 0;

    if (!sp_inspect_memory(c->pid, c->arg[0], set, n * sizeof set[0]))
        return d;
    for (uint64_t i = 0; i < n && d == SP_DOING_SLEEPING && links < MAX_LINKS; i++)
        if ((set[i].events & (POLLIN | POLLRDNORM)) != 0) {
            d = doing_by_fd(c, set[i].fd);
            links++;
        }
    return d;
}

static enum sp_doing doing_in_select(const struct call *c)
{
    unsigned long set[MAX_POLLED / (8 * sizeof(unsigned long))];
    const size_t word = 8 * sizeof set[0];
    const uint64_t n = c->arg[0] < MAX_POLLED ? c->arg[0] : MAX_POLLED;
    enum sp_doing d = SP_DOING_SLEEPING;
    int links = 0;

    if (c->arg[1] == 0 ||
        !sp_inspect_memory(c->pid, c->arg[1], set, (n + word - 1) / word * sizeof set[0]))
        return d;
    for (uint64_t i = 0; i < n && d == SP_DOING_SLEEPING && links < MAX_LINKS; i++)
        if ((set[i / word] >> (i % word) & 1) != 0) {
            d = doing_by_fd(c, (int)i);
            links++;
        }
    return d;
}

/* One line of an epoll descriptor's fdinfo: "tfd: 0 events: 19 data: ... ino:1f sdev:e". tfd is the
 * number at EPOLL_CTL_ADD and may be another file by now, so a pipe is compared by its inode. */
static enum sp_doing doing_by_epoll_line(const struct call *c, const char *line)
{
    int fd = -1;
    unsigned events = 0;
    uint64_t inode = 0;

    if (sscanf(line, "tfd: %d events: %x data: %*x pos:%*d ino:%" SCNx64, &fd, &events, &inode) <
            3 ||
        (events & (POLLIN | POLLRDNORM)) == 0) /* the same bits as poll's */
        return SP_DOING_SLEEPING;
    const enum sp_doing d = doing_by_fd(c, fd);
    return d == SP_DOING_READING_STDIN && inode != c->at->input ? SP_DOING_SLEEPING : d;
}

static enum sp_doing doing_in_epoll(const struct call *c)
{
    char path[64];
    char text[16384];
    char *rest = text;
    enum sp_doing d = SP_DOING_SLEEPING;
    int links = 0;

    (void)snprintf(path, sizeof path, "/proc/%d/fdinfo/%d", (int)c->pid, (int)c->arg[0]);
    if (sp_read_text(path, text, sizeof text) <= 0)
        return d;
    for (const char *line;
         d == SP_DOING_SLEEPING && links < MAX_LINKS && (line = strsep(&rest, "\n")) != NULL;)
        if (strncmp(line, "tfd:", 4) == 0) {
            d = doing_by_epoll_line(c, line);
            links++;
        }
    return d;
}

static enum sp_doing doing_in_call(const struct call *c, pid_t *ret_child)
{
    switch (c->number) {
    case SYS_read:
    case SYS_readv:
    case SYS_splice:
    case SYS_tee:
        return doing_by_fd(c, (int)c->arg[0]);
    case SYS_sendfile:
        return doing_by_fd(c, (int)c->arg[1]);
#ifdef SYS_poll
    case SYS_poll:
#endif
    case SYS_ppoll:
        return doing_in_poll(c);
#ifdef SYS_select
    case SYS_select:
#endif
    case SYS_pselect6:
        return doing_in_select(c);
#ifdef SYS_epoll_wait
    case SYS_epoll_wait:
#endif
#ifdef SYS_epoll_pwait2
    case SYS_epoll_pwait2:
#endif
    case SYS_epoll_pwait:
        return doing_in_epoll(c);
    case SYS_wait4:
        *ret_child = (int)c->arg[0] > 0 ? (int)c->arg[0] : 0;
        return SP_DOING_WAITING_FOR_CHILD;
    case SYS_waitid:
        *ret_child = (int)c->arg[0] == P_PID ? (int)c->arg[1] : 0;
        return SP_DOING_WAITING_FOR_CHILD;
    default:
        return SP_DOING_SLEEPING;
    }
}

/* Without access to /proc/PID/syscall: wchan names the kernel function that the thread sleeps in.
 * Only these two have one meaning. */
static enum sp_doing doing_by_wchan(const struct call *c, pid_t tid)
{
    char path[64];
    char text[64];
    char link[SP_INSPECT_LINK];

    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/wchan", (int)c->pid, (int)tid);
    if (sp_read_text(path, text, sizeof text) <= 0)
        return SP_DOING_SLEEPING;
    if (strcmp(text, "do_wait") == 0)
        return SP_DOING_WAITING_FOR_CHILD;
    if (strcmp(text, "n_tty_read") == 0 && sp_inspect_link(c->pid, 0, link) &&
        sp_inspect_is_terminal(c->at, link, c->controlling))
        return SP_DOING_READING_TERMINAL;
    return SP_DOING_SLEEPING;
}

/* What a sleeping thread waits for. *ret_child: the child it waits for, as the process numbers it;
 * 0: any child. */
static enum sp_doing doing_of_sleeper(const struct sp_inspect_target *at, pid_t pid, pid_t tid,
                                      int controlling, pid_t *ret_child)
{
    struct call c = {.at = at, .pid = pid, .controlling = controlling};
    char path[64];
    char text[256];

    *ret_child = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/syscall", (int)pid, (int)tid);
    if (sp_read_text(path, text, sizeof text) <= 0)
        return doing_by_wchan(&c, tid);
    if (strncmp(text, "running", 7) == 0)
        return SP_DOING_RUNNING;
    /* "NUMBER ARG ... ARG STACK PC", or "-1 STACK PC" outside of a call. */
    const int fields = sscanf(
        text,
        "%ld %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64,
        &c.number, &c.arg[0], &c.arg[1], &c.arg[2], &c.arg[3], &c.arg[4], &c.arg[5], &c.stack);
    /* A stack below 4 GiB: a 32-bit program, which has other call numbers. */
    if (fields != 8 || c.stack <= UINT32_MAX)
        return SP_DOING_SLEEPING;
    return doing_in_call(&c, ret_child);
}

/* Of several processes the highest counts; see inspect.h. */
static int rank(enum sp_doing d)
{
    static const int ranks[SP_DOING_MAX] = {
        [SP_DOING_STOPPED] = 1,           [SP_DOING_SLEEPING] = 2,
        [SP_DOING_WAITING_FOR_CHILD] = 3, [SP_DOING_READING_STDIN] = 4,
        [SP_DOING_READING_TERMINAL] = 5,  [SP_DOING_RUNNING] = 6,
    };

    return ranks[d];
}

struct walk {
    const struct sp_inspect_target *at;
    pid_t foreground; /* the terminal's foreground process group; 0: none */
    pid_t queue[SP_INSPECT_PROCESSES];
    uint32_t count;
    int threads; /* inspected so far */
};

/* What one process does; child: see doing_of_sleeper. */
struct deed {
    enum sp_doing doing;
    pid_t child;
};

/* ---- one process ---- */

static enum sp_doing thread_doing(const struct walk *w, pid_t pid, pid_t tid,
                                  const struct sp_inspect_task *s, pid_t *ret_child)
{
    struct sp_inspect_task t = *s;

    *ret_child = 0;
    if (tid != pid && !sp_inspect_task(pid, tid, &t))
        return SP_DOING_UNKNOWN;
    switch (t.state) {
    case 'R':
        return SP_DOING_RUNNING;
    case 'T':
    case 't':
        return SP_DOING_STOPPED;
    case 'S':
    case 'D':
        return doing_of_sleeper(w->at, pid, tid, t.terminal, ret_child);
    default: /* a zombie, or exiting */
        return SP_DOING_UNKNOWN;
    }
}

/* What the main thread does, unless another thread runs or reads. */
static struct deed process_doing(struct walk *w, pid_t pid, const struct sp_inspect_task *s)
{
    struct deed deed = {0};
    char path[40];

    deed.doing = thread_doing(w, pid, pid, s, &deed.child);
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    if (tasks == NULL)
        return deed;
    int threads = 0;
    for (const struct dirent *d; deed.doing != SP_DOING_RUNNING && threads < MAX_THREADS &&
                                 w->threads < MAX_ALL_THREADS && (d = readdir(tasks)) != NULL;) {
        const pid_t tid = (pid_t)strtol(d->d_name, NULL, 10);
        pid_t child = 0;

        if (tid <= 0)
            continue;
        threads++;
        w->threads++;
        if (tid == pid)
            continue;
        const enum sp_doing doing = thread_doing(w, pid, tid, s, &child);
        if (deed.doing == SP_DOING_UNKNOWN || rank(doing) >= rank(SP_DOING_READING_STDIN)) {
            if (rank(doing) > rank(deed.doing))
                deed = (struct deed){doing, child};
        }
    }
    (void)closedir(tasks);
    return deed;
}

/* ---- the foreground ---- */

/* Not in the foreground group of the terminal, so it cannot read the terminal either. */
static bool is_background(const struct walk *w, const struct sp_inspect_task *s)
{
    return w->foreground > 0 && s->terminal == w->at->terminal && s->group != w->foreground;
}

/* only: the child that `parent` waits for, in its own pid namespace; 0: all children. */
static void queue_children(struct walk *w, pid_t parent, pid_t only)
{
    pid_t children[SP_INSPECT_PROCESSES];
    const pid_t one = only > 0 ? sp_inspect_child(parent, only) : 0;

    if (one > 0) {
        (void)sp_inspect_add(one, w->queue, &w->count, SP_INSPECT_PROCESSES);
        return;
    }
    int n = sp_tree_children(parent, children, SP_INSPECT_PROCESSES);
    n = n > SP_INSPECT_PROCESSES ? SP_INSPECT_PROCESSES : n;
    for (int i = 0; i < n; i++)
        (void)sp_inspect_add(children[i], w->queue, &w->count, SP_INSPECT_PROCESSES);
}

/* Puts the first processes into the queue: the terminal's foreground group, else the leader. */
static void queue_foreground(struct walk *w)
{
    const struct sp_inspect_target *at = w->at;
    struct sp_inspect_task s;

    if (at->terminal >= 0 && sp_inspect_task(at->leader, 0, &s) && s.terminal == at->terminal &&
        s.foreground > 0) {
        w->foreground = s.foreground;
        /* The group's leader has the group's number, unless it has exited. */
        if (sp_inspect_task(w->foreground, 0, &s) && s.terminal == at->terminal)
            (void)sp_inspect_add(w->foreground, w->queue, &w->count, SP_INSPECT_PROCESSES);
        for (uint32_t i = 0; i < at->member_count && i < SP_INSPECT_PROCESSES; i++)
            if (sp_inspect_task(at->members[i], 0, &s) && !is_background(w, &s) &&
                s.group == w->foreground)
                (void)sp_inspect_add(at->members[i], w->queue, &w->count, SP_INSPECT_PROCESSES);
    }
    if (w->count == 0) { /* on pipes, or the terminal's foreground group has just exited */
        w->foreground = 0;
        (void)sp_inspect_add(at->leader, w->queue, &w->count, SP_INSPECT_PROCESSES);
    }
}

enum sp_doing sp_inspect_doing(const struct sp_inspect_target *at)
{
    struct walk w = {.at = at};
    enum sp_doing best = SP_DOING_UNKNOWN;
    bool is_waiting = false;

    if (at->leader <= 0)
        return best;
    queue_foreground(&w);
    for (uint32_t i = 0; i < w.count && best != SP_DOING_RUNNING; i++) {
        struct sp_inspect_task s;

        if (!sp_inspect_task(w.queue[i], 0, &s) || is_background(&w, &s))
            continue;
        const struct deed deed = process_doing(&w, w.queue[i], &s);
        if (deed.doing == SP_DOING_WAITING_FOR_CHILD)
            is_waiting = true; /* counts if no child does more */
        else if (rank(deed.doing) > rank(best))
            best = deed.doing;
        if (rank(deed.doing) < rank(SP_DOING_READING_STDIN))
            queue_children(&w, w.queue[i], deed.child);
    }
    return best == SP_DOING_UNKNOWN && is_waiting ? SP_DOING_WAITING_FOR_CHILD : best;
}

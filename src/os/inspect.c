/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inspect: see inspect.h. A process may exit at any time, so anything unexpected in /proc counts as
 * absent.
 */
#include "os/inspect.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/io.h"
#include "os/cgroup.h"
#include "os/tree.h"

#define LINK_BYTES       64 /* of a link in /proc/PID/fd; longer ones are of no interest */
#define PTS_MAJOR        136
#define MAX_LEVELS       32    /* of pid namespaces: the kernel's own bound */
#define MAX_THREADS      64    /* of one process */
#define MAX_ALL_THREADS  1024  /* of one inspection */
#define MAX_POLLED       512   /* descriptors of one poll or select set */
#define MAX_POLLED_LINKS 64    /* of those, how many are resolved with readlink */
#define MAX_FDS          1024  /* of one process */
#define MAX_ALL_FDS      16384 /* of one inspection */
#define ALL_PROCESSES    INT_MAX
#define FEW_CHILDREN     16
#define MAX_SOCKETS      1024
#define MAX_NETWORKS     8          /* network namespaces */
#define MAX_TABLE        (1U << 20) /* bytes of /proc/PID/net/tcp, where listening sockets come first */
#define MAX_REPLY        (1U << 20) /* bytes of the netlink reply */

/* A command. All pids are those of our own /proc, and may be stale. */
struct target {
    pid_t leader;         /* its first process; 0: exited, or not known */
    pid_t cell;           /* a process of the pid namespace that holders are reported in; 0: ours */
    const pid_t *members; /* its known processes, including the leader */
    uint32_t member_count;
    int terminal;        /* the N of /dev/pts/N; -1: pipes */
    uint64_t input;      /* inode of its stdin pipe while a client may still write; 0: none */
    uint64_t outputs[2]; /* inodes of its output pipes; 0: none */
};

struct task {
    char state;
    pid_t parent, group, session;
    int terminal;     /* controlling terminal: the N of /dev/pts/N; -1: none, or another kind */
    pid_t foreground; /* the terminal's foreground group; 0 or less: none */
};

/* /proc/PID/stat, or with a tid that of the thread. */
static bool read_task(pid_t pid, pid_t tid, struct task *ret)
{
    char text[512];
    int parent = 0;
    int group = 0;
    int session = 0;
    int foreground = 0;
    int device = 0;

    if ((tid == 0
             ? sp_read_text(text, sizeof text, "/proc/%d/stat", (int)pid)
             : sp_read_text(text, sizeof text, "/proc/%d/task/%d/stat", (int)pid, (int)tid)) <= 0)
        return false;
    const char *after_name = strrchr(text, ')'); /* the process name may contain `)` too */
    char state = 0;
    if (after_name == NULL || sscanf(after_name, ") %c %d %d %d %d %d", &state, &parent, &group,
                                     &session, &device, &foreground) != 6)
        return false;
    /* tty_nr as new_encode_dev of the kernel packs it */
    const unsigned major = ((unsigned)device >> 8) & 0xfff;
    const unsigned minor = ((unsigned)device & 0xff) | (((unsigned)device >> 12) & 0xfff00);
    *ret = (struct task){.state = state,
                         .parent = parent,
                         .group = group,
                         .session = session,
                         .terminal = major == PTS_MAJOR ? (int)minor : -1,
                         .foreground = foreground};
    return true;
}

/* ---- descriptors ---- */

/* The link of a descriptor: "pipe:[123]", "/dev/pts/3". */
static bool read_link(pid_t pid, int fd, char ret[LINK_BYTES])
{
    char path[64];

    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, fd);
    const ssize_t n = readlink(path, ret, LINK_BYTES);
    if (n <= 0 || n == LINK_BYTES)
        return false;
    ret[n] = 0;
    return true;
}

/* The inode in the link "KIND:[...]"; 0: another kind of link. */
static uint64_t inode_of(const char *link, const char *kind)
{
    const size_t n = strlen(kind);
    char *end = NULL;

    if (strncmp(link, kind, n) != 0 || strncmp(link + n, ":[", 2) != 0)
        return 0;
    errno = 0;
    const uint64_t inode = strtoull(link + n + 2, &end, 10);
    return errno == 0 && strcmp(end, "]") == 0 ? inode : 0;
}

/* Compares names only, so that no file system is asked: "/dev/pts/N", wherever devpts is mounted.
 */
static bool is_terminal(const struct target *at, const char *link, int controlling)
{
    char name[32];

    if (at->terminal < 0)
        return false;
    if (strcmp(link, "/dev/tty") == 0)
        return controlling == at->terminal;
    (void)snprintf(name, sizeof name, "/pts/%d", at->terminal);
    const size_t n = strlen(name);
    const size_t len = strlen(link);
    return (len >= n && strcmp(link + len - n, name) == 0) || strcmp(link, name + 4) == 0;
}

/* ---- memory ---- */

/* Reading an absent page would wait for its disk, or for a program (FUSE, userfaultfd). */
static bool is_present(pid_t pid, uint64_t address, size_t size)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t first = address / page;
    const uint64_t last = (address + size - 1) / page;
    uint64_t entries[4];
    const uint64_t count = last - first + 1;
    char path[40];

    if (address > UINT64_MAX / 2 || count > sizeof entries / sizeof entries[0])
        return false;
    (void)snprintf(path, sizeof path, "/proc/%d/pagemap", (int)pid);
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    const size_t bytes = count * sizeof entries[0];
    if (fd < 0 || pread(fd, entries, bytes, (off_t)(first * sizeof entries[0])) != (ssize_t)bytes)
        return false;
    for (uint64_t i = 0; i < count; i++)
        if (entries[i] >> 63 == 0)
            return false;
    return true;
}

/* Bytes of its memory, if the pages are present: it never waits for one. */
static bool read_memory(pid_t pid, uint64_t address, void *ret, size_t size)
{
    char path[40];

    if (size == 0 || !is_present(pid, address, size))
        return false;
    (void)snprintf(path, sizeof path, "/proc/%d/mem", (int)pid);
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && pread(fd, ret, size, (off_t)address) == (ssize_t)size;
}

/* ---- numbers and trees ---- */

#define ITS_OWN     "\nNSpid:" /* cannot be in the Name line: newlines are escaped there */
#define ITS_SESSION "\nNSsid:"

/* The numbers of a process in its pid namespaces, from ours inwards. Returns their count. */
static int read_numbers(pid_t pid, const char *which, pid_t ret[MAX_LEVELS])
{
    char text[4096];
    int count = 0;

    if (sp_read_text(text, sizeof text, "/proc/%d/status", (int)pid) <= 0)
        return 0;
    char *at = strstr(text, which);
    if (at == NULL)
        return 0;
    at += strlen(which);
    while (count < MAX_LEVELS && *at == '\t') {
        char *end = NULL;
        const long n = strtol(at, &end, 10);

        if (end == at || n < 0 || n > INT32_MAX)
            break;
        ret[count++] = (pid_t)n;
        at = end;
    }
    return count;
}

static pid_t number_of(pid_t pid, const char *which, pid_t like)
{
    pid_t numbers[MAX_LEVELS];
    const int level = read_numbers(like, ITS_OWN, numbers);

    return level > 0 && read_numbers(pid, which, numbers) >= level ? numbers[level - 1] : 0;
}

/* The child of `parent` with pid `number` in the parent's own pid namespace; 0: none. Reads at most
 * *budget children, and takes them from it. */
static pid_t find_child(pid_t parent, pid_t number, int *budget)
{
    pid_t numbers[MAX_LEVELS];
    pid_t children[SP_INSPECT_PROCESSES * 8];
    const int max = (int)(sizeof children / sizeof children[0]);
    const int level = read_numbers(parent, ITS_OWN, numbers);

    if (level == 1) /* in our own pid namespace */
        return sp_tree_parent(number) == parent ? number : 0;
    int n = level == 0 ? 0 : sp_tree_children(parent, children, max);
    n = n > max ? max : n;
    for (int i = n - 1; i >= 0 && (*budget)-- > 0; i--) /* newest first */
        if (read_numbers(children[i], ITS_OWN, numbers) >= level && numbers[level - 1] == number)
            return children[i];
    return 0;
}

/* Lists of pids have no duplicates, and room for SP_INSPECT_PROCESSES; the rest is dropped. */
static void add_pid(pid_t pid, pid_t *pids, uint32_t *count)
{
    for (uint32_t i = 0; i < *count; i++)
        if (pids[i] == pid)
            return;
    if (*count < SP_INSPECT_PROCESSES)
        pids[(*count)++] = pid;
}

static void add_children(pid_t parent, pid_t *pids, uint32_t *count)
{
    pid_t children[SP_INSPECT_PROCESSES];
    const int n = sp_tree_children(parent, children, SP_INSPECT_PROCESSES);

    for (int i = 0; i < n && i < SP_INSPECT_PROCESSES; i++)
        add_pid(children[i], pids, count);
}

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
    const struct target *at;
    pid_t pid;
    int controlling; /* the controlling terminal of the thread */
    long number;
    uint64_t arg[6];
    uint64_t stack;
};

static enum sp_doing doing_by_fd(const struct call *c, int fd)
{
    char link[LINK_BYTES];

    if (fd < 0 || !read_link(c->pid, fd, link))
        return SP_DOING_SLEEPING;
    if (is_terminal(c->at, link, c->controlling))
        return SP_DOING_READING_TERMINAL;
    /* Reading any other pipe is a matter between the command's own processes. */
    if (c->at->input != 0 && inode_of(link, "pipe") == c->at->input)
        return SP_DOING_READING_STDIN;
    return SP_DOING_SLEEPING;
}

static enum sp_doing doing_in_poll(const struct call *c)
{
    struct pollfd set[MAX_POLLED];
    const uint64_t n = c->arg[1] < MAX_POLLED ? c->arg[1] : MAX_POLLED;
    enum sp_doing d = SP_DOING_SLEEPING;
    int links = 0;

    if (!read_memory(c->pid, c->arg[0], set, n * sizeof set[0]))
        return d;
    for (uint64_t i = 0; i < n && d == SP_DOING_SLEEPING && links < MAX_POLLED_LINKS; i++)
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
        !read_memory(c->pid, c->arg[1], set, (n + word - 1) / word * sizeof set[0]))
        return d;
    for (uint64_t i = 0; i < n && d == SP_DOING_SLEEPING && links < MAX_POLLED_LINKS; i++)
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
    char text[16384];
    char *rest = text;
    enum sp_doing d = SP_DOING_SLEEPING;
    int links = 0;

    if (sp_read_text(text, sizeof text, "/proc/%d/fdinfo/%d", (int)c->pid, (int)c->arg[0]) <= 0)
        return d;
    for (const char *line; d == SP_DOING_SLEEPING && links < MAX_POLLED_LINKS &&
                           (line = strsep(&rest, "\n")) != NULL;)
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

/* What a sleeping thread waits for. *ret_child: the child it waits for, as the process numbers it;
 * 0: any child. */
static enum sp_doing doing_of_sleeper(const struct target *at, pid_t pid, pid_t tid,
                                      int controlling, pid_t *ret_child)
{
    struct call c = {.at = at, .pid = pid, .controlling = controlling};
    char text[256];

    *ret_child = 0;
    if (sp_read_text(text, sizeof text, "/proc/%d/task/%d/syscall", (int)pid, (int)tid) <= 0) {
        char link[LINK_BYTES];

        /* wchan names the kernel function that the thread sleeps in. Only these two have one
         * meaning. */
        if (sp_read_text(text, sizeof text, "/proc/%d/task/%d/wchan", (int)pid, (int)tid) <= 0)
            return SP_DOING_SLEEPING;
        if (strcmp(text, "do_wait") == 0)
            return SP_DOING_WAITING_FOR_CHILD;
        return strcmp(text, "n_tty_read") == 0 && read_link(pid, 0, link) &&
                       is_terminal(at, link, controlling)
                   ? SP_DOING_READING_TERMINAL
                   : SP_DOING_SLEEPING;
    }
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
    const struct target *at;
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

static enum sp_doing thread_doing(const struct walk *w, pid_t pid, pid_t tid, const struct task *s,
                                  pid_t *ret_child)
{
    struct task t = *s;

    *ret_child = 0;
    if (tid != pid && !read_task(pid, tid, &t))
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
static struct deed process_doing(struct walk *w, pid_t pid, const struct task *s)
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
static bool is_background(const struct walk *w, const struct task *s)
{
    return w->foreground > 0 && s->terminal == w->at->terminal && s->group != w->foreground;
}

/* Puts the first processes into the queue: the terminal's foreground group, else the leader. */
static void queue_foreground(struct walk *w)
{
    const struct target *at = w->at;
    struct task s;

    if (at->terminal >= 0 && read_task(at->leader, 0, &s) && s.terminal == at->terminal &&
        s.foreground > 0) {
        w->foreground = s.foreground;
        /* The group's leader has the group's number, unless it has exited. */
        if (read_task(w->foreground, 0, &s) && s.terminal == at->terminal)
            add_pid(w->foreground, w->queue, &w->count);
        for (uint32_t i = 0; i < at->member_count && i < SP_INSPECT_PROCESSES; i++)
            if (read_task(at->members[i], 0, &s) && !is_background(w, &s) &&
                s.group == w->foreground)
                add_pid(at->members[i], w->queue, &w->count);
    }
    if (w->count == 0) { /* on pipes, or the terminal's foreground group has just exited */
        w->foreground = 0;
        add_pid(at->leader, w->queue, &w->count);
    }
}

/*
 * What the foreground does: the terminal's foreground process group, on pipes the leader. From a
 * process that neither runs nor reads the search goes on to its children. Of all these the busiest
 * counts: running, then reading, then waiting for a child that cannot be seen, then sleeping;
 * stopped if all are stopped. In doubt the answer is sleeping, never reading.
 */
static enum sp_doing doing_of(const struct target *at)
{
    struct walk w = {.at = at};
    enum sp_doing best = SP_DOING_UNKNOWN;
    int budget = ALL_PROCESSES;
    bool is_waiting = false;

    if (at->leader <= 0)
        return best;
    queue_foreground(&w);
    for (uint32_t i = 0; i < w.count && best != SP_DOING_RUNNING; i++) {
        struct task s;

        if (!read_task(w.queue[i], 0, &s) || is_background(&w, &s))
            continue;
        const struct deed deed = process_doing(&w, w.queue[i], &s);
        if (deed.doing == SP_DOING_WAITING_FOR_CHILD)
            is_waiting = true; /* counts if no child does more */
        else if (rank(deed.doing) > rank(best))
            best = deed.doing;
        if (rank(deed.doing) >= rank(SP_DOING_READING_STDIN))
            continue;
        /* deed.child: the child that the process waits for, in its own pid namespace; 0: any. */
        const pid_t child = deed.child > 0 ? find_child(w.queue[i], deed.child, &budget) : 0;
        if (child > 0)
            add_pid(child, w.queue, &w.count);
        else
            add_children(w.queue[i], w.queue, &w.count);
    }
    return best == SP_DOING_UNKNOWN && is_waiting ? SP_DOING_WAITING_FOR_CHILD : best;
}

/*
 * ---- descriptors ----
 *
 * A socket is known by its inode: the links in /proc/PID/fd give the inodes, and the kernel gives
 * the port of an inode. For our own network namespace NETLINK_SOCK_DIAG lists the listening sockets
 * at once; for another one there is only the table in /proc, which takes some milliseconds.
 */

struct open_fd {
    pid_t pid;
    int dir;          /* /proc/PID/fd */
    const char *name; /* in dir: the number */
    const char *link; /* "pipe:[123]", "/dev/pts/3" */
};

/* Calls visit for each descriptor of the process until it returns true; returns whether it did.
 * *seen counts descriptors over all processes of an inspection. */
static bool visit_fds(pid_t pid, int *seen, bool (*visit)(void *user, const struct open_fd *fd),
                      void *user)
{
    char path[40];
    char link[LINK_BYTES];
    bool is_found = false;
    const struct dirent *d;

    (void)snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *fds = opendir(path);
    if (fds == NULL)
        return false;
    for (int n = 0; !is_found && n < MAX_FDS && *seen < MAX_ALL_FDS && (d = readdir(fds)) != NULL;
         n++) {
        const ssize_t len = readlinkat(dirfd(fds), d->d_name, link, sizeof link);

        (*seen)++;
        if (len <= 0 || len == (ssize_t)sizeof link)
            continue; /* "." and "..", or longer than any link of interest */
        link[len] = 0;
        is_found = visit(user, &(struct open_fd){
                                   .pid = pid, .dir = dirfd(fds), .name = d->d_name, .link = link});
    }
    (void)closedir(fds);
    return is_found;
}

/* ---- holders of the output ---- */

static bool is_output(void *user, const struct open_fd *fd)
{
    const struct target *at = user;
    const uint64_t inode = inode_of(fd->link, "pipe");
    struct task t;
    struct stat st;
    int controlling = -1;

    if (strcmp(fd->link, "/dev/tty") == 0 && read_task(fd->pid, 0, &t))
        controlling = t.terminal;
    /* A reader holds a terminal open as well: its hangup comes after the last descriptor. */
    if (is_terminal(at, fd->link, controlling))
        return true;
    /* The link's own mode says how the descriptor was opened. */
    return inode != 0 && (inode == at->outputs[0] || inode == at->outputs[1]) &&
           fstatat(fd->dir, fd->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && (st.st_mode & S_IWUSR) != 0;
}

static void read_name(pid_t pid, char *ret, size_t size)
{
    ssize_t n = sp_read_text(ret, size, "/proc/%d/comm", (int)pid);

    if (n > 0 && ret[n - 1] == '\n')
        ret[--n] = 0;
    if (n <= 0)
        (void)snprintf(ret, size, "?");
    for (char *c = ret; *c != 0; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
}

/* Fills ret->holders with the members that can still write to the output. */
static void find_holders(const struct target *at, struct sp_inspection *ret)
{
    int seen = 0;

    ret->holder_count = 0;
    for (uint32_t i = 0; i < at->member_count && i < SP_INSPECT_PROCESSES; i++) {
        const pid_t pid = at->members[i];

        if (!visit_fds(pid, &seen, is_output, (void *)(uintptr_t)at) ||
            ret->holder_count++ >= SP_INSPECT_HOLDERS)
            continue;
        struct sp_inspect_holder *h = &ret->holders[ret->holder_count - 1];
        h->pid = at->cell > 0 ? (int)number_of(pid, ITS_OWN, at->cell) : (int)pid;
        read_name(pid, h->name, sizeof h->name);
    }
}

/* ---- listening sockets ---- */

struct ports {
    const uint16_t *asked;
    uint32_t best; /* index in asked of the first port that was found; their count: none */
    uint64_t sockets[MAX_SOCKETS]; /* inodes, sorted */
    uint32_t count;
    ino_t networks[MAX_NETWORKS]; /* namespaces that were searched */
    uint32_t network_count;
};

static bool note_socket(void *user, const struct open_fd *fd)
{
    struct ports *p = user;
    const uint64_t inode = inode_of(fd->link, "socket");

    if (inode != 0 && p->count < MAX_SOCKETS)
        p->sockets[p->count++] = inode;
    return false;
}

static int by_number(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* A listening socket of the network namespace; it need not be one of the command. */
static void note_listener(struct ports *p, unsigned port, uint64_t inode)
{
    for (uint32_t i = 0; i < p->best; i++)
        if (p->asked[i] == port &&
            bsearch(&inode, p->sockets, p->count, sizeof inode, by_number) != NULL)
            p->best = i;
}

/* ---- our own network namespace: NETLINK_SOCK_DIAG ---- */

/* One datagram of the reply. 1: more follow; 0: the last one; -1: the kernel refuses. */
static int read_reply(struct ports *p, const char *text, size_t len)
{
    const size_t least = NLMSG_LENGTH(sizeof(struct inet_diag_msg));

    while (len >= sizeof(struct nlmsghdr)) {
        struct nlmsghdr head;
        struct inet_diag_msg m;

        memcpy(&head, text, sizeof head);
        if (head.nlmsg_type == NLMSG_DONE)
            return 0;
        if (head.nlmsg_type != SOCK_DIAG_BY_FAMILY || head.nlmsg_len < least ||
            head.nlmsg_len > len)
            return -1;
        memcpy(&m, text + NLMSG_HDRLEN, sizeof m);
        note_listener(p, ntohs(m.id.idiag_sport), m.idiag_inode);
        const size_t step = NLMSG_ALIGN(head.nlmsg_len);
        if (step >= len)
            return 1;
        text += step;
        len -= step;
    }
    return 1;
}

static bool read_listeners(struct ports *p, uint8_t family)
{
    const struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 body;
    } request = {
        .head = {.nlmsg_len = sizeof request,
                 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
        .body = {.sdiag_family = family,
                 .sdiag_protocol = IPPROTO_TCP,
                 .idiag_states = 1U << TCP_LISTEN},
    };
    auto_close int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    char text[16384];
    int r = fd >= 0 && send(fd, &request, sizeof request, MSG_DONTWAIT) == (ssize_t)sizeof request
                ? 1
                : -1;

    for (size_t total = 0; r > 0 && total < MAX_REPLY;) {
        const ssize_t n = recv(fd, text, sizeof text, MSG_DONTWAIT);

        if (n <= 0)
            return false;
        total += (size_t)n;
        r = read_reply(p, text, (size_t)n);
    }
    return r >= 0;
}

/* ---- another network namespace: its table in /proc ---- */

/* Reads /proc/PID/net/NAME in pieces; it may be long. */
static void read_table(struct ports *p, pid_t pid, const char *name)
{
    char path[40];
    char text[16384];
    size_t kept = 0;
    size_t total = 0;

    (void)snprintf(path, sizeof path, "/proc/%d/net/%s", (int)pid, name);
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && total < MAX_TABLE) {
        const ssize_t n = read(fd, text + kept, sizeof text - 1 - kept);
        char *line = text;

        if (n <= 0)
            return;
        total += (size_t)n;
        text[kept + (size_t)n] = 0;
        for (char *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
            unsigned port = 0;
            unsigned state = 0;
            uint64_t inode = 0;

            *end = 0;
            /* "  0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000  0
             * 12345 ..." */
            if (sscanf(line,
                       " %*d: %*32[0-9A-F]:%4x %*32[0-9A-F]:%*4x %2x %*x:%*x %*x:%*x %*x %*u %*d "
                       "%" SCNu64,
                       &port, &state, &inode) == 3 &&
                state == TCP_LISTEN && inode != 0)
                note_listener(p, port, inode);
        }
        kept = strlen(line);
        if (kept == sizeof text - 1)
            return; /* not a line of this table */
        memmove(text, line, kept);
    }
}

/* ---- ports ---- */

static ino_t network_of(pid_t pid)
{
    char path[40];
    struct stat st;

    (void)snprintf(path, sizeof path, "/proc/%d/ns/net", (int)pid);
    return stat(path, &st) == 0 ? st.st_ino : 0;
}

static bool is_new(struct ports *p, ino_t network)
{
    if (network == 0 || p->network_count == MAX_NETWORKS)
        return false;
    for (uint32_t i = 0; i < p->network_count; i++)
        if (p->networks[i] == network)
            return false;
    p->networks[p->network_count++] = network;
    return true;
}

/* The first of the ports that a member listens on, in any network namespace; 0: none. */
static uint16_t find_listening(const struct target *at, const uint16_t *ports, uint32_t count)
{
    const uint32_t members =
        at->member_count < SP_INSPECT_PROCESSES ? at->member_count : SP_INSPECT_PROCESSES;
    struct ports p = {.asked = ports, .best = count};
    const ino_t own = network_of(getpid());
    int seen = 0;

    for (uint32_t i = 0; i < members; i++)
        (void)visit_fds(at->members[i], &seen, note_socket, &p);
    if (p.count == 0)
        return 0;
    qsort(p.sockets, p.count, sizeof p.sockets[0], by_number);
    for (uint32_t i = 0; p.best > 0 && i < members; i++) {
        const ino_t network = network_of(at->members[i]);

        if (!is_new(&p, network))
            continue;
        if (network != own || !read_listeners(&p, AF_INET))
            read_table(&p, at->members[i], "tcp");
        if (network != own || !read_listeners(&p, AF_INET6))
            read_table(&p, at->members[i], "tcp6");
    }
    return p.best < count ? ports[p.best] : 0;
}

/* ---- a command ---- */

/*
 * The processes of the command: those in its cgroup, and those below its first process. After the
 * first process has exited, and without cgroups, its children are somewhere below the cell, among
 * those of other commands; callers filter them by the descriptors they hold.
 */
static uint32_t find_members(const struct sp_inspect_command *c, pid_t leader, pid_t *pids,
                             int *budget)
{
    uint32_t count = 0;

    if (leader > 0)
        pids[count++] = leader;
    if (c->leaf != 0) {
        pid_t all[SP_INSPECT_PROCESSES];
        const uint32_t n = sp_cgroup_list(c->cgroup, c->leaf, all, SP_INSPECT_PROCESSES);

        for (uint32_t i = 0; i < n; i++)
            add_pid(all[i], pids, &count);
    }
    if (leader == 0 && c->leaf != 0)
        return count;
    uint32_t at = count;
    add_children(leader > 0 ? leader : c->cell, pids, &count);
    for (; at < count && count < SP_INSPECT_PROCESSES && (*budget)-- > 0; at++)
        add_children(pids[at], pids, &count);
    return count;
}

void sp_inspect(const struct sp_inspect_command *c, const struct sp_inspect_request *request,
                struct sp_inspection *ret)
{
    pid_t members[SP_INSPECT_PROCESSES];
    int budget = ALL_PROCESSES;
    const pid_t leader = c->has_exited ? 0 : find_child(c->cell, c->pid, &budget);
    struct target at = {
        .leader = leader,
        .cell = c->cell,
        .members = members,
        .member_count = find_members(c, leader, members, &budget),
        .terminal = c->terminal,
        .input = c->input,
        .outputs = {c->outputs[0], c->outputs[1]},
    };

    *ret = (struct sp_inspection){0};
    if (request->wants_doing && leader > 0)
        ret->doing = doing_of(&at);
    if (request->wants_doing && c->has_exited)
        find_holders(&at, ret);
    if (request->port_count == 0)
        return;
    if (leader == 0 && c->leaf == 0) { /* keep those of the command's kernel session */
        uint32_t kept = 0;

        for (uint32_t i = 0; i < at.member_count; i++)
            if (number_of(members[i], ITS_SESSION, c->cell) == c->pid)
                members[kept++] = members[i];
        at.member_count = kept;
    }
    ret->listening = find_listening(&at, request->ports, request->port_count);
}

static bool is_socket(void *user, const struct open_fd *fd)
{
    return inode_of(fd->link, "socket") == *(const uint64_t *)user;
}

/* Its cell has no child but the first process of the command: no other command, and no process that
 * an earlier one has left behind. */
static bool is_alone(const struct sp_inspect_command *c, pid_t leader)
{
    pid_t few[FEW_CHILDREN];

    return leader > 0 && sp_tree_children(c->cell, few, FEW_CHILDREN) <= FEW_CHILDREN &&
           sp_tree_living(c->cell) == 1 && sp_tree_parent(leader) == c->cell;
}

static bool is_first_process(const struct sp_inspect_command *c, pid_t pid)
{
    return sp_tree_parent(pid) == c->cell && number_of(pid, ITS_OWN, c->cell) == c->pid;
}

bool sp_inspect_has_socket(const struct sp_inspect_command *c, uint64_t inode, pid_t *leader,
                           struct sp_inspect_budget *budget)
{
    pid_t members[SP_INSPECT_PROCESSES];
    const bool was_known = *leader > 0;

    if (c->has_exited)
        *leader = 0;
    else if (!was_known)
        *leader = find_child(c->cell, c->pid, &budget->processes);
    const uint32_t count = find_members(c, *leader, members, &budget->processes);
    const bool has_others = *leader == 0 && c->leaf == 0; /* see find_members */
    int seen = MAX_ALL_FDS - budget->descriptors;
    bool has = is_alone(c, *leader);

    for (uint32_t i = 0; !has && seen < MAX_ALL_FDS && i < count && i < SP_INSPECT_PROCESSES; i++)
        if (!has_others ||
            (budget->processes-- > 0 && number_of(members[i], ITS_SESSION, c->cell) == c->pid))
            has = visit_fds(members[i], &seen, is_socket, &inode);
    budget->descriptors = MAX_ALL_FDS - seen;
    if (has && was_known && *leader > 0 && !is_first_process(c, *leader)) {
        *leader = 0; /* the pid was reused */
        has = false;
    }
    return has;
}

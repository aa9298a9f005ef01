/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the descriptors of a command's processes show: which processes hold its output open, and
 * which TCP ports they listen on.
 *
 * A socket is known by its inode: the links in /proc/PID/fd give the inodes, and the kernel gives
 * the port of an inode. For our own network namespace NETLINK_SOCK_DIAG lists the listening sockets
 * at once; for another one there is only the table in /proc, which takes some milliseconds.
 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/io.h"
#include "os/inspect_priv.h"

#define MAX_FDS      1024  /* of one process */
#define MAX_ALL_FDS  16384 /* of one inspection */
#define MAX_SOCKETS  1024
#define MAX_NETWORKS 8          /* network namespaces */
#define MAX_TABLE    (1U << 20) /* bytes of /proc/PID/net/tcp, where listening sockets come first */
#define MAX_REPLY    (1U << 20) /* bytes of the netlink reply */

/* ---- descriptors ---- */

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
    char link[SP_INSPECT_LINK];
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
    const struct sp_inspect_target *at = user;
    const uint64_t inode = sp_inspect_inode(fd->link, "pipe");
    struct sp_inspect_task t;
    struct stat st;
    int controlling = -1;

    if (strcmp(fd->link, "/dev/tty") == 0 && sp_inspect_task(fd->pid, 0, &t))
        controlling = t.terminal;
    /* A reader holds a terminal open as well: its hangup comes after the last descriptor. */
    if (sp_inspect_is_terminal(at, fd->link, controlling))
        return true;
    /* The link's own mode says how the descriptor was opened. */
    return inode != 0 && (inode == at->outputs[0] || inode == at->outputs[1]) &&
           fstatat(fd->dir, fd->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && (st.st_mode & S_IWUSR) != 0;
}

static void read_name(pid_t pid, char *ret, size_t size)
{
    char path[40];

    (void)snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    ssize_t n = sp_read_text(path, ret, size);
    if (n > 0 && ret[n - 1] == '\n')
        ret[--n] = 0;
    if (n <= 0)
        (void)snprintf(ret, size, "?");
    for (char *c = ret; *c != 0; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
}

void sp_inspect_holders(const struct sp_inspect_target *at, struct sp_inspection *ret)
{
    int seen = 0;

    ret->holder_count = 0;
    for (uint32_t i = 0; i < at->member_count && i < SP_INSPECT_PROCESSES; i++) {
        const pid_t pid = at->members[i];

        if (!visit_fds(pid, &seen, is_output, (void *)(uintptr_t)at) ||
            ret->holder_count++ >= SP_INSPECT_HOLDERS)
            continue;
        struct sp_inspect_holder *h = &ret->holders[ret->holder_count - 1];
        h->pid = at->cell > 0 ? (int)sp_inspect_number(pid, at->cell) : (int)pid;
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
    const uint64_t inode = sp_inspect_inode(fd->link, "socket");

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

static bool send_request(int fd, uint8_t family)
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

    return send(fd, &request, sizeof request, MSG_DONTWAIT) == (ssize_t)sizeof request;
}

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
    auto_close int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    char text[16384];
    int r = fd >= 0 && send_request(fd, family) ? 1 : -1;

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

/* "  0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000  0 12345 ..."
 */
static void read_table_line(struct ports *p, const char *line)
{
    unsigned port = 0;
    unsigned state = 0;
    uint64_t inode = 0;

    if (sscanf(line,
               " %*d: %*32[0-9A-F]:%4x %*32[0-9A-F]:%*4x %2x %*x:%*x %*x:%*x %*x %*u %*d %" SCNu64,
               &port, &state, &inode) == 3 &&
        state == TCP_LISTEN && inode != 0)
        note_listener(p, port, inode);
}

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
            *end = 0;
            read_table_line(p, line);
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

uint16_t sp_inspect_listening(const struct sp_inspect_target *at, const uint16_t *ports,
                              uint32_t count)
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

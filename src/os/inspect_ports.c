/* SPDX-License-Identifier: Apache-2.0 */
/*
 * look: which TCP ports a command's processes listen on.
 *
 * A socket is known by its inode: the processes' descriptors tell theirs, the kernel tells the
 * port. Of our own network it is asked for those that listen, by a message that it answers at once;
 * of another there is only its table in /proc, which takes some milliseconds.
 */
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
#include "os/inspect_priv.h"

#define MAX_SOCKETS  1024
#define MAX_NETWORKS 8
#define MAX_TABLE    (1U << 20) /* bytes of a network's table; those that listen come first */
#define MAX_ANSWER   (1U << 20) /* of the kernel about our own */

struct ports {
    struct sp_look_search search;
    const uint16_t *asked;
    uint32_t best; /* the first of those asked for that was found; their count: none */
    uint64_t sockets[MAX_SOCKETS];
    uint32_t count;
    ino_t networks[MAX_NETWORKS]; /* that were looked at: each is once, whoever is in it */
    uint32_t network_count;
};

/* ---- sockets ---- */

static bool note_socket(struct sp_look_search *s, const char *link)
{
    struct ports *p = SP_CONTAINER(s, struct ports, search);
    const uint64_t inode = sp_look_inode(link, "socket");

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

/* One that listens, of whomever. */
static void take(struct ports *p, unsigned port, uint64_t inode)
{
    for (uint32_t i = 0; i < p->best; i++)
        if (p->asked[i] == port &&
            bsearch(&inode, p->sockets, p->count, sizeof inode, by_number) != NULL)
            p->best = i;
}

/* ---- our own network ---- */

static bool ask(int fd, uint8_t family)
{
    const struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 body;
    } question = {
        .head = {.nlmsg_len = sizeof question,
                 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
        .body = {.sdiag_family = family,
                 .sdiag_protocol = IPPROTO_TCP,
                 .idiag_states = 1U << TCP_LISTEN},
    };

    return send(fd, &question, sizeof question, MSG_DONTWAIT) == (ssize_t)sizeof question;
}

/* 1: more follows; 0: that was all; -1: the kernel refuses. */
static int take_answer(struct ports *p, const char *text, size_t len)
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
        take(p, ntohs(m.id.idiag_sport), m.idiag_inode);
        const size_t step = NLMSG_ALIGN(head.nlmsg_len);
        if (step >= len)
            return 1;
        text += step;
        len -= step;
    }
    return 1;
}

static bool ask_kernel(struct ports *p, uint8_t family)
{
    auto_close int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    char text[16384];
    int r = fd >= 0 && ask(fd, family) ? 1 : -1;

    for (size_t total = 0; r > 0 && total < MAX_ANSWER;) {
        const ssize_t n = recv(fd, text, sizeof text, MSG_DONTWAIT);

        if (n <= 0)
            return false;
        total += (size_t)n;
        r = take_answer(p, text, (size_t)n);
    }
    return r >= 0;
}

/* ---- another one ---- */

/* "  0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000  0 12345 ..."
 */
static void take_line(struct ports *p, const char *line)
{
    unsigned port = 0;
    unsigned state = 0;
    uint64_t inode = 0;

    if (sscanf(line,
               " %*d: %*32[0-9A-F]:%4x %*32[0-9A-F]:%*4x %2x %*x:%*x %*x:%*x %*x %*u %*d %" SCNu64,
               &port, &state, &inode) == 3 &&
        state == TCP_LISTEN && inode != 0)
        take(p, port, inode);
}

/* The lines of a table, in pieces: it may be long. */
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
            take_line(p, line);
        }
        kept = strlen(line);
        if (kept == sizeof text - 1)
            return; /* no table has such a line */
        memmove(text, line, kept);
    }
}

/* ---- networks ---- */

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

/* A network outlives its processes' looks at it: pid is one of those in it. */
static void look_at(struct ports *p, pid_t pid, bool is_own)
{
    if (!is_own || !ask_kernel(p, AF_INET))
        read_table(p, pid, "tcp");
    if (!is_own || !ask_kernel(p, AF_INET6))
        read_table(p, pid, "tcp6");
}

static void ignore(struct sp_look_search *s, pid_t pid)
{
    (void)s; /* all are asked, none is enough */
    (void)pid;
}

uint16_t sp_look_listening(const struct sp_look_at *at, const uint16_t *ports, uint32_t count)
{
    struct ports p = {
        .search = {.at = at, .is_it = note_socket, .found = ignore}, .asked = ports, .best = count};
    const ino_t own = network_of(getpid());

    sp_look_search(&p.search);
    if (p.count == 0)
        return 0; /* who has no socket listens on none */
    qsort(p.sockets, p.count, sizeof p.sockets[0], by_number);
    for (uint32_t i = 0; p.best > 0 && i < at->member_count && i < SP_LOOK_PROCESSES; i++) {
        const ino_t network = network_of(at->members[i]);

        if (is_new(&p, network))
            look_at(&p, at->members[i], network == own);
    }
    return p.best < count ? ports[p.best] : 0;
}

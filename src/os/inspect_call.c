/* SPDX-License-Identifier: Apache-2.0 */
/*
 * look: what one sleeping thread waits for, from the system call it is in and the arguments of
 * that. The call is looked at once; what it names is looked at a moment later, and may have
 * changed.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/inspect_priv.h"

#define MAX_POLLED 512 /* descriptors of one set */
#define MAX_LINKS  64  /* of them that are asked what they are */

struct call {
    const struct sp_look_at *at;
    pid_t pid;
    int controlling;
    long number;
    uint64_t arg[6];
    uint64_t stack;
};

/* ---- one descriptor ---- */

static enum sp_doing reads(const struct call *c, int fd)
{
    char link[SP_LOOK_LINK];

    if (fd < 0 || !sp_look_link(c->pid, fd, link))
        return SP_DOING_SLEEPING;
    if (sp_look_is_terminal(c->at, link, c->controlling))
        return SP_DOING_READING_TERMINAL;
    /* Any other pipe is the command's own affair. */
    if (c->at->input != 0 && sp_look_inode(link, "pipe") == c->at->input)
        return SP_DOING_READING_STDIN;
    return SP_DOING_SLEEPING;
}

/* ---- sets of descriptors ---- */

static enum sp_doing polls(const struct call *c)
{
    struct pollfd set[MAX_POLLED];
    const uint64_t n = c->arg[1] < MAX_POLLED ? c->arg[1] : MAX_POLLED;
    enum sp_doing d = SP_DOING_SLEEPING;
    int links = 0;

    if (!sp_look_memory(c->pid, c->arg[0], set, n * sizeof set[0]))
        return d;
    for (uint64_t i = 0; i < n && d == SP_DOING_SLEEPING && links < MAX_LINKS; i++)
        if ((set[i].events & (POLLIN | POLLRDNORM)) != 0) {
            d = reads(c, set[i].fd);
            links++;
        }
    return d;
}

static enum sp_doing selects(const struct call *c)
{
    unsigned long set[MAX_POLLED / (8 * sizeof(unsigned long))];
    const size_t word = 8 * sizeof set[0];
    const uint64_t n = c->arg[0] < MAX_POLLED ? c->arg[0] : MAX_POLLED;
    enum sp_doing d = SP_DOING_SLEEPING;
    int links = 0;

    if (c->arg[1] == 0 ||
        !sp_look_memory(c->pid, c->arg[1], set, (n + word - 1) / word * sizeof set[0]))
        return d;
    for (uint64_t i = 0; i < n && d == SP_DOING_SLEEPING && links < MAX_LINKS; i++)
        if ((set[i / word] >> (i % word) & 1) != 0) {
            d = reads(c, (int)i);
            links++;
        }
    return d;
}

/* The kernel lists what an epoll descriptor watches: "tfd: 0 events: 19 data: ... ino:1f sdev:e".
 * The number is the one it was added by, and may be another's by now: a pipe is known by its inode.
 */
static enum sp_doing watched(const struct call *c, const char *line)
{
    int fd = -1;
    unsigned events = 0;
    uint64_t inode = 0;

    if (sscanf(line, "tfd: %d events: %x data: %*x pos:%*d ino:%" SCNx64, &fd, &events, &inode) <
            3 ||
        (events & (POLLIN | POLLRDNORM)) == 0) /* the same bits as poll's */
        return SP_DOING_SLEEPING;
    const enum sp_doing d = reads(c, fd);
    return d == SP_DOING_READING_STDIN && inode != c->at->input ? SP_DOING_SLEEPING : d;
}

static enum sp_doing waits_for_events(const struct call *c)
{
    char path[64];
    char text[16384];
    char *rest = text;
    enum sp_doing d = SP_DOING_SLEEPING;
    int links = 0;

    (void)snprintf(path, sizeof path, "/proc/%d/fdinfo/%d", (int)c->pid, (int)c->arg[0]);
    if (sp_look_read(path, text, sizeof text) <= 0)
        return d;
    for (const char *line;
         d == SP_DOING_SLEEPING && links < MAX_LINKS && (line = strsep(&rest, "\n")) != NULL;)
        if (strncmp(line, "tfd:", 4) == 0) {
            d = watched(c, line);
            links++;
        }
    return d;
}

/* ---- calls ---- */

static enum sp_doing decide(const struct call *c, pid_t *ret_child)
{
    switch (c->number) {
    case SYS_read:
    case SYS_readv:
    case SYS_splice:
    case SYS_tee:
        return reads(c, (int)c->arg[0]);
    case SYS_sendfile:
        return reads(c, (int)c->arg[1]);
#ifdef SYS_poll
    case SYS_poll:
#endif
    case SYS_ppoll:
        return polls(c);
#ifdef SYS_select
    case SYS_select:
#endif
    case SYS_pselect6:
        return selects(c);
#ifdef SYS_epoll_wait
    case SYS_epoll_wait:
#endif
#ifdef SYS_epoll_pwait2
    case SYS_epoll_pwait2:
#endif
    case SYS_epoll_pwait:
        return waits_for_events(c);
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

/* Where the kernel does not tell the call, it may tell the place in itself: of these two only one
 * thing can be thought. */
static enum sp_doing decide_by_place(const struct call *c, pid_t tid)
{
    char path[64];
    char text[64];
    char link[SP_LOOK_LINK];

    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/wchan", (int)c->pid, (int)tid);
    if (sp_look_read(path, text, sizeof text) <= 0)
        return SP_DOING_SLEEPING;
    if (strcmp(text, "do_wait") == 0)
        return SP_DOING_WAITING_FOR_CHILD;
    if (strcmp(text, "n_tty_read") == 0 && sp_look_link(c->pid, 0, link) &&
        sp_look_is_terminal(c->at, link, c->controlling))
        return SP_DOING_READING_TERMINAL;
    return SP_DOING_SLEEPING;
}

/* "NUMBER ARG ... ARG STACK PLACE"; "running"; "-1 STACK PLACE": in no call. */
static bool parse(const char *text, struct call *c)
{
    return sscanf(text,
                  "%ld %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64
                  " %" SCNx64,
                  &c->number, &c->arg[0], &c->arg[1], &c->arg[2], &c->arg[3], &c->arg[4],
                  &c->arg[5], &c->stack) == 8;
}

enum sp_doing sp_look_call(const struct sp_look_at *at, pid_t pid, pid_t tid, int controlling,
                           pid_t *ret_child)
{
    struct call c = {.at = at, .pid = pid, .controlling = controlling};
    char path[64];
    char text[256];

    *ret_child = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/syscall", (int)pid, (int)tid);
    if (sp_look_read(path, text, sizeof text) <= 0)
        return decide_by_place(&c, tid);
    if (strncmp(text, "running", 7) == 0)
        return SP_DOING_RUNNING;
    /* A stack that low is that of a 32-bit program, whose calls have other numbers. */
    if (!parse(text, &c) || c.stack <= UINT32_MAX)
        return SP_DOING_SLEEPING;
    return decide(&c, ret_child);
}

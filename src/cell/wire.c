/* SPDX-License-Identifier: Apache-2.0 */
#include "cell/wire.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "os/fd.h"

/* Retries while the kernel has no memory for a message. */
#define SHORT_MS    5
#define SHORT_TRIES 1000

/* 0: a struct sp_wire_call. */
static const size_t least_size[SP_WIRE_OP_MAX] = {
    [SP_WIRE_HELLO] = sizeof(struct sp_wire_hello),
    [SP_WIRE_START] = sizeof(struct sp_wire_start),
    [SP_WIRE_STARTED] = sizeof(struct sp_wire_started),
    [SP_WIRE_DONE] = sizeof(struct sp_wire_done),
    [SP_WIRE_SOCKET] = sizeof(struct sp_wire_done),
    [SP_WIRE_BORN] = sizeof(struct sp_wire_born),
    [SP_WIRE_PORTS] = sizeof(struct sp_wire_ports),
    [SP_WIRE_READY] = sizeof(struct sp_wire_ready),
    [SP_WIRE_INVENTORY] = sizeof(struct sp_wire_inventory),
};

void sp_wire_close_fds(struct sp_wire_message *m)
{
    for (int i = 0; i < m->fd_count; i++)
        if (m->fds[i] >= 0)
            (void)close(m->fds[i]);
    m->fd_count = 0;
}

/* Descriptors that its operation cannot have. */
static void close_surplus(struct sp_wire_message *m, int most)
{
    while (m->fd_count > most) {
        (void)close(m->fds[--m->fd_count]);
        m->is_cut = true;
    }
}

int sp_wire_recv(int socket, bool can_wait, struct sp_wire_message *m, struct sp_err *e)
{
    struct iovec iov = {.iov_base = m->bytes, .iov_len = sizeof m->bytes};
    struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
    const int flags = can_wait ? 0 : MSG_DONTWAIT;
    ssize_t n = sp_fd_recv(socket, &h, flags, m->fds, SP_WIRE_ITEM_FDS, &m->fd_count);

    /* When a peer ends with our messages unread, ECONNRESET comes before its own last messages:
     * ignore it once. */
    if (n < 0 && errno == ECONNRESET)
        n = sp_fd_recv(socket, &h, flags, m->fds, SP_WIRE_ITEM_FDS, &m->fd_count);
    if (n < 0 && errno == EAGAIN)
        return 0;
    if (n < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "receive from the other side");
    m->len = (size_t)n;
    m->is_cut = (h.msg_flags & MSG_CTRUNC) != 0;
    if (n == 0) {
        sp_wire_close_fds(m); /* an empty datagram may carry descriptors */
        return sp_fail(e, SP_E_STATE, 0, "the other side has ended");
    }

    const struct sp_wire_head *head = (const void *)m->bytes;
    if ((h.msg_flags & MSG_TRUNC) != 0 || m->len < sizeof *head ||
        head->version != SP_WIRE_VERSION || head->op == 0 || head->op >= SP_WIRE_OP_MAX ||
        m->len < (least_size[head->op] != 0 ? least_size[head->op] : sizeof(struct sp_wire_call))) {
        sp_wire_close_fds(m);
        return sp_fail(e, SP_E_MALFORMED, 0, "invalid message of %zu bytes between server and cell",
                       m->len);
    }
    if (head->op != SP_WIRE_INVENTORY)
        close_surplus(m, SP_WIRE_FDS);
    return 1;
}

bool sp_wire_is_short(int r)
{
    return r == -ENOMEM || r == -ENOBUFS;
}

int sp_wire_send(int socket, bool can_wait, const void *msg, size_t len, const void *tail,
                 size_t tail_len, const int *fds, int fd_count)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(SP_WIRE_ITEM_FDS * sizeof(int))];
    struct iovec iov[2] = {{.iov_base = (void *)(uintptr_t)msg, .iov_len = len},
                           {.iov_base = (void *)(uintptr_t)tail, .iov_len = tail_len}};
    struct msghdr h = {.msg_iov = iov, .msg_iovlen = tail_len != 0 ? 2 : 1};
    ssize_t n;

    if (fd_count > 0) {
        const size_t bytes = (size_t)fd_count * sizeof(int);

        h.msg_control = control;
        h.msg_controllen = CMSG_SPACE(bytes);
        memset(control, 0, h.msg_controllen);
        struct cmsghdr *c = CMSG_FIRSTHDR(&h);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(bytes);
        memcpy(CMSG_DATA(c), fds, bytes);
    }
    for (int tries = 0;; tries++) {
        do
            n = sendmsg(socket, &h, MSG_NOSIGNAL | (can_wait ? 0 : MSG_DONTWAIT));
        while (n < 0 && errno == EINTR);
        if (n >= 0 || !can_wait || tries == SHORT_TRIES || !sp_wire_is_short(-errno))
            return n < 0 ? -errno : 0;
        (void)nanosleep(&(struct timespec){.tv_nsec = SHORT_MS * 1000000L}, NULL);
    }
}

bool sp_wire_read_strings(const struct sp_wire_start *s, char *strings, size_t len, char **pointers,
                          struct sp_wire_strings *ret)
{
    const uint64_t want = (uint64_t)s->argc + s->envc + 2;
    char *at = strings;
    char *const end = strings + len;

    if (s->argc == 0 || len == 0 || len > SP_WIRE_STRINGS || want > len || end[-1] != 0)
        return false;
    ret->argv = pointers;
    ret->envp = pointers + s->argc + 1;
    ret->argv[s->argc] = ret->envp[s->envc] = NULL;
    for (uint64_t i = 0; i < want; i++) {
        if (at == end)
            return false;
        if (i == 0)
            ret->cwd = at;
        else if (i == 1)
            ret->file = at;
        else if (i < 2 + (uint64_t)s->argc)
            ret->argv[i - 2] = at;
        else
            ret->envp[i - 2 - s->argc] = at;
        at += strlen(at) + 1;
    }
    return at == end;
}

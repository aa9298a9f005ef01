/* SPDX-License-Identifier: Apache-2.0 */
#include "keeper/message.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "os/fd.h"

int sp_keeper_send(int socket, bool can_wait, struct sp_keeper_message m, const int *fds)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(SP_KEEPER_FDS * sizeof(int))] = {0};
    struct iovec iov = {&m, sizeof m};
    struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
    const size_t bytes = m.count * sizeof(int);
    ssize_t n;

    m.version = SP_KEEPER_VERSION;
    if (m.count > SP_KEEPER_FDS)
        return -EINVAL;
    if (m.count > 0) {
        h.msg_control = control;
        h.msg_controllen = CMSG_SPACE(bytes);
        struct cmsghdr *c = CMSG_FIRSTHDR(&h);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(bytes);
        memcpy(CMSG_DATA(c), fds, bytes);
    }
    do
        n = sendmsg(socket, &h, MSG_NOSIGNAL | (can_wait ? 0 : MSG_DONTWAIT));
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : 0;
}

int sp_keeper_recv(int socket, bool can_wait, struct sp_keeper_message *ret, int fds[SP_KEEPER_FDS])
{
    for (;;) {
        struct iovec iov = {ret, sizeof *ret};
        struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
        int count = 0;
        const ssize_t n =
            sp_fd_recv(socket, &h, can_wait ? 0 : MSG_DONTWAIT, fds, SP_KEEPER_FDS, &count);

        if (n < 0 && errno == EAGAIN && !can_wait)
            return 0;
        if (n < 0 && errno != ECONNRESET) /* which comes before the last messages of a dead peer */
            return -errno;
        if (n == (ssize_t)sizeof *ret && (h.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0 &&
            ret->version == SP_KEEPER_VERSION && ret->count == (unsigned)count)
            return 1;
        sp_keeper_close_fds(fds, (unsigned)count);
        if (n == 0 && count == 0)
            return -EPIPE;
    }
}

void sp_keeper_close_fds(const int *fds, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        (void)close(fds[i]);
}

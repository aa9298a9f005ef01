/* SPDX-License-Identifier: Apache-2.0 */
#include "os/fd.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/auto.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

ssize_t sp_fd_recv(int socket, struct msghdr *h, int flags, int *fds, int max, int *ret_count)
{
    _Alignas(struct cmsghdr) char control[CMSG_LEN(SP_FD_RECV_MAX * sizeof(int))];
    ssize_t n;

    assert(max >= 0 && max <= SP_FD_RECV_MAX);
    *ret_count = 0;
    /* CMSG_LEN, not CMSG_SPACE: the padding of CMSG_SPACE would be room for one more descriptor. */
    h->msg_control = max == 0 ? NULL : control;
    h->msg_controllen = max == 0 ? 0 : CMSG_LEN((size_t)max * sizeof(int));
    do
        n = recvmsg(socket, h, flags | MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);

    for (struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(h); c != NULL; c = CMSG_NXTHDR(h, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        const size_t bytes = c->cmsg_len - CMSG_LEN(0);

        assert(bytes <= ((size_t)max - (size_t)*ret_count) * sizeof(int));
        memcpy(fds + *ret_count, CMSG_DATA(c), bytes);
        *ret_count += (int)(bytes / sizeof(int));
    }
    h->msg_control = NULL; /* `control` ends here */
    h->msg_controllen = 0;
    return n;
}

int sp_fd_option(int fd, int name)
{
    int value = -1;
    socklen_t len = sizeof value;

    return getsockopt(fd, SOL_SOCKET, name, &value, &len) < 0 ? -1 : value;
}

uint64_t sp_fd_netns(int fd)
{
    uint64_t cookie = 0;
    socklen_t len = sizeof cookie;

    return getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &len) < 0 ? 0 : cookie;
}

bool sp_fd_is_of_netns(int fd, uint64_t netns)
{
    auto_close int own = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const uint64_t here = sp_fd_netns(own);
    const uint64_t there = sp_fd_netns(fd);

    return here == there ? here == 0 : there != 0 && (netns == 0 || there == netns);
}

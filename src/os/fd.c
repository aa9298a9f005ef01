/* SPDX-License-Identifier: Apache-2.0 */
#include "os/fd.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

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

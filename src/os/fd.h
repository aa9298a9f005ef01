/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fd: descriptors above 2, and descriptors that arrive over a Unix socket.
 *
 * In a program started with stdin, stdout or stderr closed, the next descriptor it opens gets that
 * number, and the program's output goes there. sp_fd_lift moves our descriptors above 2.
 */
#ifndef SP_OS_FD_H
#define SP_OS_FD_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

/* Moves a descriptor of 0 to 2 above 2 and closes the old number. Returns fd itself if it is above
 * 2 already, negative, or if there is no room. */
static inline int sp_fd_lift(int fd)
{
    const int lifted =
        fd < 0 || fd > STDERR_FILENO ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);

    if (lifted < 0)
        return fd;
    (void)close(fd);
    return lifted;
}

#define SP_FD_RECV_MAX 129 /* the most descriptors that one sp_fd_recv takes */

/*
 * recvmsg that also takes up to `max` descriptors (SCM_RIGHTS), close-on-exec, and restarts after
 * EINTR. The caller sets msg_iov and msg_iovlen of *h and reads msg_flags afterwards.
 *
 * *ret_count is always set; the caller closes these descriptors also when the message is a bad one.
 * The kernel has room for exactly `max` descriptors: it drops the others and sets MSG_CTRUNC.
 */
ssize_t sp_fd_recv(int socket, struct msghdr *h, int flags, int *fds, int max, int *ret_count);

/* An option of level SOL_SOCKET; -1: it is no socket. */
int sp_fd_option(int fd, int name);
/* The cookie of the network namespace that the socket was made in; 0: this kernel has none. */
uint64_t sp_fd_netns(int fd);
/* Whether the socket is of another network namespace than ours: of `netns`, unless that is 0.
 * Always true on a kernel without cookies. */
bool sp_fd_is_of_netns(int fd, uint64_t netns);

#endif

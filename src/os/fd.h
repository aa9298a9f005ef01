/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fd: descriptors that are nobody's stdin, stdout or stderr.
 *
 * In a program that was started with one of them closed, the next one opened takes its number, and
 * what that program prints goes there. Ours are moved out of the way.
 */
#ifndef SP_OS_FD_H
#define SP_OS_FD_H

#include <fcntl.h>
#include <unistd.h>

/* The same above 2; the number that was given is free then. No room there: it stays. */
static inline int sp_fd_lift(int fd)
{
    const int lifted =
        fd < 0 || fd > STDERR_FILENO ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);

    if (lifted < 0)
        return fd;
    (void)close(fd);
    return lifted;
}

#endif

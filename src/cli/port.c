/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/port.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* Opened again it would be another terminal. */
static bool is_terminal_maker(const struct stat *st)
{
    return S_ISCHR(st->st_mode) && st->st_rdev == makedev(5, 2);
}

static int open_again(int fd, bool is_input)
{
    char path[32];

    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, (is_input ? O_RDONLY : O_WRONLY) | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

void sp_port_open(struct sp_port *p, int fd, bool is_input)
{
    struct stat st;

    *p = (struct sp_port){.fd = fd, .asks_first = true};
    if (fstat(fd, &st) < 0)
        return;
    p->is_socket = S_ISSOCK(st.st_mode);
    if (p->is_socket || (!S_ISFIFO(st.st_mode) && !isatty(fd))) {
        p->asks_first = false;
        p->is_always_ready = !p->is_socket;
        return;
    }
    const int own = is_terminal_maker(&st) ? -1 : open_again(fd, is_input);
    if (own >= 0)
        *p = (struct sp_port){.fd = own, .is_ours = true};
}

void sp_port_close(struct sp_port *p)
{
    if (p->fd >= 0 && p->is_ours)
        (void)close(p->fd);
    p->fd = -1;
}

static bool is_ready(const struct sp_port *p, short events)
{
    struct pollfd f = {.fd = p->fd, .events = events};

    return !p->asks_first || poll(&f, 1, 0) != 0;
}

ssize_t sp_port_read(const struct sp_port *p, void *room, size_t n)
{
    ssize_t r;

    if (!is_ready(p, POLLIN))
        return -EAGAIN;
    do
        r = p->is_socket ? recv(p->fd, room, n, MSG_DONTWAIT) : read(p->fd, room, n);
    while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : r;
}

ssize_t sp_port_write(const struct sp_port *p, const void *bytes, size_t n)
{
    ssize_t r;

    if (!is_ready(p, POLLOUT))
        return -EAGAIN;
    if (p->asks_first && n > PIPE_BUF)
        n = PIPE_BUF;
    do
        r = p->is_socket ? send(p->fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL)
                         : write(p->fd, bytes, n);
    while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : r;
}

void sp_port_fill_gaps(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        (void)close(fd);
}

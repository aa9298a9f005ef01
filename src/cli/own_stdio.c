/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/own_stdio.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/auto.h"

#define BACKGROUND_MS 250 /* between looks whether we are in the foreground again */

void sp_port_fill_gaps(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        (void)close(fd);
}

/* ---- one descriptor ---- */

void sp_port_open(struct sp_port *p, int fd, bool is_input)
{
    struct stat st;
    char path[32];

    *p = (struct sp_port){.fd = fd, .polls_first = true};
    if (fstat(fd, &st) < 0)
        return;
    p->is_socket = S_ISSOCK(st.st_mode);
    if (p->is_socket || (!S_ISFIFO(st.st_mode) && !isatty(fd))) {
        p->polls_first = false;
        p->is_always_ready = !p->is_socket;
        return;
    }
    /* /dev/ptmx, opened again, would be another terminal. */
    if (S_ISCHR(st.st_mode) && st.st_rdev == makedev(5, 2))
        return;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const int own =
        open(path, (is_input ? O_RDONLY : O_WRONLY) | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
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

    return !p->polls_first || poll(&f, 1, 0) != 0;
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
    if (p->polls_first && n > PIPE_BUF)
        n = PIPE_BUF;
    do
        r = p->is_socket ? send(p->fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL)
                         : write(p->fd, bytes, n);
    while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : r;
}

/* ---- the terminal ---- */

bool sp_terminal_is_ours(int fd)
{
    return isatty(fd) && tcgetpgrp(fd) == getpgrp();
}

void sp_terminal_size(uint16_t *ret_rows, uint16_t *ret_cols)
{
    struct winsize size;

    *ret_rows = *ret_cols = 0;
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO && *ret_rows == 0; fd++)
        if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_row != 0 && size.ws_col != 0) {
            *ret_rows = size.ws_row;
            *ret_cols = size.ws_col;
        }
}

/* Whether the terminal can be changed now; `before` is filled then. */
static bool may_change(struct sp_terminal *t)
{
    if (t->is_changed || !sp_terminal_is_ours(STDIN_FILENO))
        return false;
    t->is_known = t->is_known || tcgetattr(STDIN_FILENO, &t->before) == 0;
    return t->is_known;
}

void sp_terminal_make_raw(struct sp_terminal *t)
{
    struct termios raw;

    if (!may_change(t))
        return;
    raw = t->before;
    cfmakeraw(&raw);
    t->is_raw = t->is_changed = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
}

void sp_terminal_end_lines_at(struct sp_terminal *t, int key)
{
    struct termios cooked;

    if (key < 0 || !may_change(t))
        return;
    cooked = t->before;
    cooked.c_cc[VEOL] = (cc_t)key;
    t->is_changed = tcsetattr(STDIN_FILENO, TCSADRAIN, &cooked) == 0;
}

void sp_terminal_restore(struct sp_terminal *t)
{
    if (t->is_changed && sp_terminal_is_ours(STDIN_FILENO))
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &t->before); /* fails if the terminal is gone */
    t->is_raw = t->is_changed = false;
}

/* ---- stdin, read chunk by chunk ---- */

static void on_foreground_timer(struct sp_timer *t);

static void read_stdin(struct sp_stdin *in)
{
    if (in->port.fd < 0)
        return;
    if (isatty(STDIN_FILENO) && !sp_terminal_is_ours(STDIN_FILENO)) {
        sp_stdin_stop(in);
        (void)sp_loop_timer(in->loop, &in->retry, sp_loop_now(in->loop) + BACKGROUND_MS,
                            on_foreground_timer);
        return;
    }
    const ssize_t n = sp_port_read(&in->port, in->chunk, in->size);
    if (n == -EAGAIN)
        sp_stdin_want(in);
    else
        in->fn(in, n);
}

static void on_foreground_timer(struct sp_timer *t)
{
    struct sp_stdin *in = SP_CONTAINER(t, struct sp_stdin, retry);

    if (in->raw != NULL)
        sp_terminal_make_raw(in->raw);
    read_stdin(in);
}

static void on_stdin_readable(struct sp_watch *w, uint32_t events)
{
    (void)events; /* an end or an error is found by the read */
    read_stdin(SP_CONTAINER(w, struct sp_stdin, watch));
}

static void on_stdin_again(struct sp_deferred *d)
{
    read_stdin(SP_CONTAINER(d, struct sp_stdin, again));
}

void sp_stdin_open(struct sp_stdin *in, struct sp_loop *loop)
{
    in->loop = loop;
    sp_port_open(&in->port, STDIN_FILENO, true);
}

void sp_stdin_want(struct sp_stdin *in)
{
    if (in->port.fd < 0 || in->watch.fn != NULL)
        return;
    if (in->port.is_always_ready ||
        sp_loop_watch(in->loop, &in->watch, in->port.fd, EPOLLIN, on_stdin_readable, NULL) < 0)
        sp_loop_again(in->loop, &in->again, on_stdin_again);
}

void sp_stdin_stop(struct sp_stdin *in)
{
    if (in->loop == NULL)
        return;
    sp_loop_unwatch(in->loop, &in->watch);
    sp_loop_undefer(in->loop, &in->again);
    sp_loop_cancel(in->loop, &in->retry);
}

void sp_stdin_close(struct sp_stdin *in)
{
    sp_stdin_stop(in);
    sp_port_close(&in->port);
}

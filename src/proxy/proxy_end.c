/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proxy_end: one end of a connection: its descriptor, watched for edges, and the bytes that were
 * read from it or are to be written to it.
 */
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "proxy/proxy_priv.h"

#define EDGES            (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET)
#define KEEPALIVE_S      60 /* idle, and between probes */
#define KEEPALIVE_PROBES 5

ssize_t sp_proxy_send(int fd, const void *bytes, size_t n)
{
    struct iovec part = {(void *)(uintptr_t)bytes, n};
    const struct msghdr h = {.msg_iov = &part, .msg_iovlen = 1};

    return sendmsg(fd, &h, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void note_events(struct sp_proxy_end *end, uint32_t events)
{
    const bool is_over = (events & (EPOLLHUP | EPOLLERR)) != 0;

    end->can_read = end->can_read || is_over || (events & (EPOLLIN | EPOLLRDHUP)) != 0;
    end->can_write = end->can_write || is_over || (events & EPOLLOUT) != 0;
    end->saw_hangup = end->saw_hangup || is_over || (events & EPOLLRDHUP) != 0;
    end->saw_error = end->saw_error || (events & EPOLLERR) != 0;
}

static void on_client(struct sp_watch *w, uint32_t events)
{
    struct sp_proxy_conn *c = SP_CONTAINER(w, struct sp_proxy_conn, client.watch);

    note_events(&c->client, events);
    sp_proxy_conn_run(c);
}

static void on_server(struct sp_watch *w, uint32_t events)
{
    struct sp_proxy_conn *c = SP_CONTAINER(w, struct sp_proxy_conn, server.watch);

    note_events(&c->server, events);
    sp_proxy_conn_run(c);
}

static void set_option(int fd, int level, int name, int value)
{
    (void)setsockopt(fd, level, name, &value,
                     sizeof value); /* each of them is an improvement only */
}

bool sp_proxy_end_open(struct sp_proxy_conn *c, struct sp_proxy_end *end, int fd)
{
    const bool is_client = end == &c->client;

    *end = (struct sp_proxy_end){.fd = fd, .can_write = true, .pipe = {-1, -1}};
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    if (!is_client) {
        set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
        set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_S);
        set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_S);
        set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES);
    }
    if (sp_loop_watch(c->p->loop, &end->watch, fd, EDGES, is_client ? on_client : on_server,
                      NULL) == 0)
        return true;
    (void)close(fd);
    end->fd = -1;
    return false;
}

void sp_proxy_end_close(struct sp_proxy_conn *c, struct sp_proxy_end *end, bool is_reset)
{
    const struct linger now = {.l_onoff = 1, .l_linger = 0};

    sp_loop_unwatch(c->p->loop, &end->watch);
    if (end->fd >= 0 && is_reset)
        (void)setsockopt(end->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    if (end->fd >= 0)
        (void)close(end->fd);
    end->fd = -1;
    if (end->pipe[0] >= 0) {
        (void)close(end->pipe[0]);
        (void)close(end->pipe[1]);
        end->pipe[0] = end->pipe[1] = -1;
        c->p->pipes--;
    }
    sp_buf_done(&end->in);
    sp_buf_done(&end->out);
}

bool sp_proxy_end_fill(struct sp_proxy_end *end, size_t max)
{
    bool has_changed = false;

    while (end->fd >= 0 && end->can_read && !end->is_eof && !end->is_broken && end->in.len < max) {
        const size_t want =
            max - end->in.len < SP_PROXY_COPY_MAX ? max - end->in.len : SP_PROXY_COPY_MAX;
        char *room = sp_buf_room(&end->in, want);
        const ssize_t n = room == NULL ? -1 : read(end->fd, room, want);

        if (n > 0)
            end->in.len += (size_t)n;
        else if (n == 0)
            end->is_eof = true;
        else if (room == NULL || (errno != EAGAIN && errno != EINTR))
            end->is_broken = true;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 || ((size_t)n < want && !end->saw_hangup))
            end->can_read = false;
        has_changed = has_changed || n >= 0 || end->is_broken;
    }
    return has_changed;
}

bool sp_proxy_end_flush(struct sp_proxy_end *end)
{
    size_t done = 0;

    while (end->fd >= 0 && end->can_write && !end->is_mute && done < end->out.len) {
        const ssize_t n = sp_proxy_send(end->fd, end->out.data + done, end->out.len - done);

        if (n >= 0)
            done += (size_t)n;
        else if (errno == EAGAIN)
            end->can_write = false;
        else if (errno != EINTR)
            end->is_mute = true;
    }
    sp_buf_drop(&end->out, end->is_mute ? end->out.len : done);
    if (end->out.len == 0)
        sp_buf_done(&end->out); /* idle connections hold no memory */
    return done != 0;
}

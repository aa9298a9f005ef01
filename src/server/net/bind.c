/* SPDX-License-Identifier: Apache-2.0 */
#include "server/net/bind.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"

#define BACKLOG 512

void sp_bind_name(const struct sockaddr *a, char ret[SP_BIND_NAME])
{
    char host[INET6_ADDRSTRLEN] = "?";
    const void *any = a;

    if (a->sa_family == AF_INET) {
        const struct sockaddr_in *in = any;

        (void)inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
        (void)snprintf(ret, SP_BIND_NAME, "%s:%u", host, ntohs(in->sin_port));
    } else if (a->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = any;

        (void)inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof host);
        (void)snprintf(ret, SP_BIND_NAME, "[%s]:%u", host, ntohs(in6->sin6_port));
    } else {
        (void)snprintf(ret, SP_BIND_NAME, "unix");
    }
}

/* ---- TCP ---- */

static int bind_tcp(const struct sp_listen_url *url, struct sp_bound *ret, struct sp_err *e)
{
    const socklen_t size =
        url->addr.any.sa_family == AF_INET ? sizeof url->addr.in : sizeof url->addr.in6;
    const int on = 1;
    const int off = 0;
    char name[SP_BIND_NAME];
    auto_close int fd =
        socket(url->addr.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    sp_bind_name(&url->addr.any, name);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
        (url->addr.any.sa_family == AF_INET6 &&
         setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) < 0) ||
        bind(fd, &url->addr.any, size) < 0 || listen(fd, BACKLOG) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "listen on ws://%s", name);

    struct sp_listen_url real = *url;
    socklen_t len = sizeof real.addr;
    if (getsockname(fd, &real.addr.any, &len) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "listen on ws://%s", name);
    sp_bind_name(&real.addr.any, name);
    *ret = (struct sp_bound){.fd = TAKE_FD(fd)};
    (void)snprintf(ret->url, sizeof ret->url, "ws://%s", name);
    return 0;
}

/* ---- unix ---- */

/* Removes a stale socket. A live socket, or another file, is an error. */
static int clear_path(const struct sockaddr_un *un, struct sp_err *e)
{
    struct stat st;

    if (lstat(un->sun_path, &st) < 0)
        return errno == ENOENT ? 0 : sp_fail(e, SP_E_SYSTEM, errno, "look at %s", un->sun_path);
    if (!S_ISSOCK(st.st_mode))
        return sp_fail(e, SP_E_INVALID, 0, "%s is there and is not a socket", un->sun_path);

    auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "probe %s", un->sun_path);
    if (connect(fd, (const struct sockaddr *)un, sizeof *un) == 0 || errno == EAGAIN)
        return sp_fail(e, SP_E_SYSTEM, EADDRINUSE, "listen on %s: is another server running?",
                       un->sun_path);
    if (errno != ECONNREFUSED && errno != ENOENT)
        return sp_fail(e, SP_E_SYSTEM, errno, "probe %s", un->sun_path);
    if (unlink(un->sun_path) < 0 && errno != ENOENT)
        return sp_fail(e, SP_E_SYSTEM, errno, "remove the stale socket %s", un->sun_path);
    return 0;
}

static int bind_unix(const struct sockaddr_un *un, struct sp_bound *ret, struct sp_err *e)
{
    struct stat st;
    const int r = clear_path(un, e);

    if (r < 0)
        return r;
    auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    /* bind creates the path with the mode of the unbound socket, so it never has another mode. */
    if (fd < 0 || fchmod(fd, 0600) < 0 || bind(fd, (const struct sockaddr *)un, sizeof *un) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "listen on %s", un->sun_path);
    if (lstat(un->sun_path, &st) < 0 || listen(fd, BACKLOG) < 0) {
        const int err = errno;

        (void)unlink(un->sun_path); /* ours: just bound */
        return sp_fail(e, SP_E_SYSTEM, err, "listen on %s", un->sun_path);
    }
    *ret = (struct sp_bound){.fd = TAKE_FD(fd), .un = *un, .dev = st.st_dev, .ino = st.st_ino};
    (void)snprintf(ret->url, sizeof ret->url, "unix://%s", un->sun_path);
    return 0;
}

int sp_bind(const struct sp_listen_url *url, struct sp_bound *ret, struct sp_err *e)
{
    return url->kind == SP_LISTEN_UNIX ? bind_unix(&url->addr.un, ret, e) : bind_tcp(url, ret, e);
}

void sp_bound_done(struct sp_bound *b)
{
    struct stat st;

    if (b->fd < 0)
        return;
    if (b->un.sun_path[0] != 0 && lstat(b->un.sun_path, &st) == 0 && st.st_dev == b->dev &&
        st.st_ino == b->ino)
        (void)unlink(b->un.sun_path); /* if this fails, the next server replaces it */
    (void)close(b->fd);
    b->fd = -1;
}

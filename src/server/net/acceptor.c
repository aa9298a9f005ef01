/* SPDX-License-Identifier: Apache-2.0 */
#include "server/net/acceptor.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/str.h"
#include "os/fd.h"

#define BACKLOG     512
#define AT_ONCE     16U  /* connections accepted in one callback */
#define PAUSE_MS    100U /* after EMFILE and the like */
#define NOTSENT_LOW (128 << 10)
#define PEER_NAME   64

/* ---- URLs ---- */

static bool read_address(const char *text, struct sp_listen_url *ret)
{
    char host[INET6_ADDRSTRLEN + 16];
    const char *colon = strrchr(text, ':');
    uint64_t port;

    if (colon == NULL || (size_t)(colon - text) >= sizeof host ||
        !sp_str_to_u64(sp_str_of(colon + 1), UINT16_MAX, &port))
        return false;
    const size_t n = (size_t)(colon - text);
    memcpy(host, text, n);
    host[n] = 0;
    if (strcmp(host, "localhost") == 0) /* the resolver is not asked */
        (void)snprintf(host, sizeof host, "127.0.0.1");
    struct sockaddr_in *in = &ret->addr.in;
    *in = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, host, &in->sin_addr) == 1) {
        ret->is_loopback = ntohl(in->sin_addr.s_addr) >> 24 == 127;
        return true;
    }

    /* IPv6 stands in brackets, with an optional numeric scope: [fe80::1%2]. */
    if (n < 2 || host[0] != '[' || host[n - 1] != ']')
        return false;
    host[n - 1] = 0;
    uint64_t scope = 0;
    char *percent = strchr(host, '%');
    if (percent != NULL) {
        *percent = 0;
        if (!sp_str_to_u64(sp_str_of(percent + 1), UINT32_MAX, &scope))
            return false;
    }
    struct sockaddr_in6 *a = &ret->addr.in6;
    *a = (struct sockaddr_in6){.sin6_family = AF_INET6,
                               .sin6_port = htons((uint16_t)port),
                               .sin6_scope_id = (uint32_t)scope};
    if (inet_pton(AF_INET6, host + 1, &a->sin6_addr) != 1)
        return false;
    ret->is_loopback = IN6_IS_ADDR_LOOPBACK(&a->sin6_addr) ||
                       (IN6_IS_ADDR_V4MAPPED(&a->sin6_addr) && a->sin6_addr.s6_addr[12] == 127);
    return true;
}

int sp_listen_parse(const char *url, struct sp_listen_url *ret, struct sp_err *e)
{
    struct sp_listen_url u = {.kind = SP_LISTEN_STDIO, .is_loopback = true};
    const bool is_port = url[0] != 0 && url[strspn(url, "0123456789")] == 0;
    char local[32];

    if (strcmp(url, "stdio") == 0 || strcmp(url, "stdio://") == 0) {
        *ret = u;
        return 0;
    }
    if (strncmp(url, "unix:///", 8) == 0) {
        const char *path = url + 7;
        const size_t n = strlen(path);

        if (n < 2 || path[n - 1] == '/')
            return sp_fail(e, SP_E_INVALID, 0,
                           "invalid unix --listen URL `%s`; expected `unix:///path`", url);
        if (n >= sizeof u.addr.un.sun_path)
            return sp_fail(e, SP_E_INVALID, 0,
                           "invalid unix --listen URL `%s`; the path is longer than %zu bytes", url,
                           sizeof u.addr.un.sun_path - 1);
        u.kind = SP_LISTEN_UNIX;
        u.addr.un.sun_family = AF_UNIX;
        memcpy(u.addr.un.sun_path, path, n + 1);
        *ret = u;
        return 0;
    }
    if (strncmp(url, "ws://", 5) != 0 && !is_port)
        return sp_fail(
            e, SP_E_INVALID, 0,
            "unsupported --listen URL `%s`; expected `ws://IP:PORT`, `unix:///PATH` or `stdio`",
            url);
    u.kind = SP_LISTEN_WS;
    (void)snprintf(local, sizeof local, "127.0.0.1:%.8s", url);
    if (!read_address(is_port ? local : url + 5, &u))
        return sp_fail(e, SP_E_INVALID, 0,
                       "invalid websocket --listen URL `%s`; expected `ws://IP:PORT`", url);
    *ret = u;
    return 0;
}

/* "127.0.0.1:34346", "[::1]:34346", "unix". */
static void write_name(const struct sockaddr *a, char ret[PEER_NAME])
{
    char host[INET6_ADDRSTRLEN] = "?";
    const void *any = a;

    if (a->sa_family == AF_INET) {
        const struct sockaddr_in *in = any;

        (void)inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
        (void)snprintf(ret, PEER_NAME, "%s:%u", host, ntohs(in->sin_port));
    } else if (a->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = any;

        (void)inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof host);
        (void)snprintf(ret, PEER_NAME, "[%s]:%u", host, ntohs(in6->sin6_port));
    } else {
        (void)snprintf(ret, PEER_NAME, "unix");
    }
}

/* ---- TCP ---- */

static int bind_tcp(const struct sp_listen_url *url, struct sp_acceptor *ret, struct sp_err *e)
{
    const socklen_t size =
        url->addr.any.sa_family == AF_INET ? sizeof url->addr.in : sizeof url->addr.in6;
    const int on = 1;
    const int off = 0;
    char name[PEER_NAME];
    auto_close int fd =
        socket(url->addr.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    write_name(&url->addr.any, name);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
        (url->addr.any.sa_family == AF_INET6 &&
         setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) < 0) ||
        bind(fd, &url->addr.any, size) < 0 || listen(fd, BACKLOG) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno,
                       errno == EADDRINUSE ? "listen on ws://%s: choose another port, or 0 for any"
                                           : "listen on ws://%s",
                       name);

    struct sp_listen_url real = *url;
    socklen_t len = sizeof real.addr;
    if (getsockname(fd, &real.addr.any, &len) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "listen on ws://%s", name);
    write_name(&real.addr.any, name);
    ret->fd = TAKE_FD(fd);
    (void)snprintf(ret->url, sizeof ret->url, "ws://%s", name);
    return 0;
}

/* ---- unix ---- */

static int bind_unix(const struct sockaddr_un *un, struct sp_acceptor *ret, struct sp_err *e)
{
    struct stat st;

    /* A stale socket is removed. A live socket, or another file, is an error. */
    if (lstat(un->sun_path, &st) == 0) {
        if (!S_ISSOCK(st.st_mode))
            return sp_fail(e, SP_E_INVALID, 0, "%s exists and is not a socket", un->sun_path);
        auto_close int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (probe < 0)
            return sp_fail(e, SP_E_SYSTEM, errno, "probe %s", un->sun_path);
        if (connect(probe, (const struct sockaddr *)un, sizeof *un) == 0 || errno == EAGAIN)
            return sp_fail(e, SP_E_SYSTEM, EADDRINUSE, "listen on %s: is another server running?",
                           un->sun_path);
        if (errno != ECONNREFUSED && errno != ENOENT)
            return sp_fail(e, SP_E_SYSTEM, errno, "probe %s", un->sun_path);
        if (unlink(un->sun_path) < 0 && errno != ENOENT)
            return sp_fail(e, SP_E_SYSTEM, errno, "remove the stale socket %s", un->sun_path);
    } else if (errno != ENOENT) {
        return sp_fail(e, SP_E_SYSTEM, errno, "look at %s", un->sun_path);
    }

    auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    /* bind creates the path with the mode of the unbound socket, so it never has another mode. */
    if (fd < 0 || fchmod(fd, 0600) < 0 || bind(fd, (const struct sockaddr *)un, sizeof *un) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "listen on %s", un->sun_path);
    if (lstat(un->sun_path, &st) < 0 || listen(fd, BACKLOG) < 0) {
        const int err = errno;

        (void)unlink(un->sun_path); /* ours: just bound */
        return sp_fail(e, SP_E_SYSTEM, err, "listen on %s", un->sun_path);
    }
    ret->fd = TAKE_FD(fd);
    ret->un = *un;
    ret->dev = st.st_dev;
    ret->ino = st.st_ino;
    (void)snprintf(ret->url, sizeof ret->url, "unix://%s", un->sun_path);
    return 0;
}

/* ---- sockets that listen already ---- */

/* The note: device and inode of the path, in hexadecimal. */
static int take_over(const struct sp_listen_url *url, const struct sp_acceptor_kept *kept,
                     struct sp_acceptor *ret, struct sp_err *e)
{
    struct sp_listen_url real = *url;
    socklen_t len = sizeof real.addr;
    unsigned long long dev = 0;
    unsigned long long ino = 0;
    char name[PEER_NAME];

    ret->fd = kept->fd;
    if (sp_fd_option(kept->fd, SO_ACCEPTCONN) != 1 ||
        getsockname(kept->fd, &real.addr.any, &len) < 0 ||
        real.addr.any.sa_family != url->addr.any.sa_family)
        return sp_fail(e, SP_E_INVALID, 0, "a socket that was kept does not listen");
    if (url->kind != SP_LISTEN_UNIX) {
        write_name(&real.addr.any, name);
        (void)snprintf(ret->url, sizeof ret->url, "ws://%s", name);
        return 0;
    }
    ret->un = url->addr.un;
    if (sscanf(kept->note, "%llx %llx", &dev, &ino) == 2) {
        ret->dev = (dev_t)dev;
        ret->ino = (ino_t)ino;
    }
    (void)snprintf(ret->url, sizeof ret->url, "unix://%s", ret->un.sun_path);
    return 0;
}

/* ---- accepting ---- */

static void on_pause_end(struct sp_timer *t)
{
    struct sp_acceptor *a = SP_CONTAINER(t, struct sp_acceptor, pause);

    sp_loop_rewatch(a->loop, &a->watch, EPOLLIN);
}

static void on_connection(struct sp_watch *w, uint32_t events)
{
    struct sp_acceptor *a = SP_CONTAINER(w, struct sp_acceptor, watch);
    const int on = 1;
    const int low = NOTSENT_LOW;

    (void)events;
    for (unsigned i = 0; i < AT_ONCE; i++) {
        struct sockaddr_storage from = {0};
        socklen_t len = sizeof from;
        char peer[PEER_NAME];
        const int fd = accept4(w->fd, (struct sockaddr *)&from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd >= 0) {
            if (from.ss_family != AF_UNIX) { /* for latency and memory; failures do not matter */
                (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
                (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &low, sizeof low);
            }
            write_name((const struct sockaddr *)&from, peer);
            a->accepted(a, fd, peer);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            /* The connection stays in the backlog and readable: do not spin on it. */
            if (sp_loop_timer(a->loop, &a->pause, sp_loop_now(a->loop) + PAUSE_MS, on_pause_end))
                sp_loop_rewatch(a->loop, &a->watch, 0);
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return;
        }
    }
}

int sp_acceptor_open(struct sp_acceptor *a, struct sp_loop *loop, const struct sp_listen_url *url,
                     struct sp_acceptor_kept *kept,
                     void (*accepted)(struct sp_acceptor *a, int fd, const char *peer),
                     struct sp_err *e)
{
    *a = (struct sp_acceptor){.loop = loop, .fd = -1, .accepted = accepted};
    const int r = kept != NULL && kept->fd >= 0 ? take_over(url, kept, a, e)
                  : url->kind == SP_LISTEN_UNIX ? bind_unix(&url->addr.un, a, e)
                                                : bind_tcp(url, a, e);

    if (r == 0 && kept != NULL) {
        a->kept = kept;
        kept->fd = a->fd;
        if (snprintf(kept->note, sizeof kept->note, "%llx %llx", (unsigned long long)a->dev,
                     (unsigned long long)a->ino) >= (int)sizeof kept->note)
            kept->note[0] = 0; /* the next process leaves the path behind */
    }

    return r < 0 ? r : sp_loop_watch(loop, &a->watch, a->fd, EPOLLIN, on_connection, e);
}

void sp_acceptor_done(struct sp_acceptor *a)
{
    struct stat st;

    if (a->loop == NULL || a->fd < 0)
        return;
    sp_loop_unwatch(a->loop, &a->watch);
    sp_loop_cancel(a->loop, &a->pause);
    if ((a->kept == NULL || !a->kept->is_left) && a->un.sun_path[0] != 0 &&
        lstat(a->un.sun_path, &st) == 0 && st.st_dev == a->dev && st.st_ino == a->ino)
        (void)unlink(a->un.sun_path); /* if this fails, the next server replaces it */
    (void)close(a->fd);
    a->fd = -1;
}

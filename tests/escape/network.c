/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network: reaching servers, families of sockets, and the sockets of other programs.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "escape.h"
#include "tries.h"

/* A socket from n: family, type << 8, protocol << 16. */
int try_socket(const struct row *r)
{
    return answer_fd(
        socket((int)(r->n & 0xff), (int)(r->n >> 8 & 0xff) | SOCK_CLOEXEC, (int)(r->n >> 16)));
}

static int connect_inet(const char *address, int port, int type)
{
    const bool is_six = strchr(address, ':') != NULL;
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((unsigned short)port)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
    const int fd = socket(is_six ? AF_INET6 : AF_INET, type | SOCK_CLOEXEC, 0);
    int said;

    if (fd < 0)
        return errno;
    if (is_six) {
        (void)inet_pton(AF_INET6, address, &six.sin6_addr);
        said = answer(connect(fd, (struct sockaddr *)&six, sizeof six));
    } else {
        (void)inet_pton(AF_INET, address, &four.sin_addr);
        said = answer(connect(fd, (struct sockaddr *)&four, sizeof four));
    }
    (void)close(fd);
    return said;
}

int try_connect_host(const struct row *r)
{
    return connect_inet(r->a, (int)need_number("port"), SOCK_STREAM);
}

/* Port n of an address. */
int try_connect_port(const struct row *r)
{
    return connect_inet(r->a, (int)r->n, SOCK_STREAM);
}

/* A server on port n of all addresses. */
int try_bind_port(const struct row *r)
{
    const struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((unsigned short)r->n)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int said = fd < 0 ? errno : answer(bind(fd, (const struct sockaddr *)&at, sizeof at));

    (void)close(fd);
    return said;
}

/* Only the way is looked for: a connected datagram socket sends nothing. b says whether the machine
 * has such a way at all. */
int try_route(const struct row *r)
{
    if (need_number(r->b) == 0)
        skip("the machine itself has no way there");
    return connect_inet(r->a, 53, SOCK_DGRAM);
}

/* The same to the resolver of the host. */
int try_resolver(const struct row *r)
{
    const char *address = need(r->a);

    if (strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0)
        skip("the resolver is on the loopback");
    return connect_inet(address, 53, SOCK_DGRAM);
}

/* A server of our own and its client. */
int try_loopback(const struct row *r)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    char byte = 0;
    const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)r;
    if (server < 0 || client < 0 || bind(server, (struct sockaddr *)&at, size) < 0 ||
        listen(server, 1) < 0 || getsockname(server, (struct sockaddr *)&at, &size) < 0 ||
        connect(client, (struct sockaddr *)&at, size) < 0)
        return errno;
    const int peer = accept4(server, NULL, NULL, SOCK_CLOEXEC);
    if (peer < 0 || send(client, "x", 1, 0) != 1 || recv(peer, &byte, 1, 0) != 1)
        return errno;
    return byte == 'x' ? 0 : EPROTO;
}

/* ---- the sockets of files ---- */

static int reach(const struct sockaddr_un *at, socklen_t size, int type)
{
    const int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return errno;
    if (type == SOCK_DGRAM)
        return answer(sendto(fd, "escaped", 7, 0, (const struct sockaddr *)at, size));
    return answer(connect(fd, (const struct sockaddr *)at, size));
}

static int reach_path(const char *path, int type)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};

    if (strlen(path) >= sizeof at.sun_path)
        skip("the path of the socket is too long");
    (void)snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    return reach(&at, sizeof at, type);
}

int try_unix(const struct row *r)
{
    return reach_path(where(r->a), (int)r->n);
}

int try_unix_abstract(const struct row *r)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const char *name = need(r->a);
    const size_t n = strnlen(name, sizeof at.sun_path - 1);

    memcpy(at.sun_path + 1, name, n);
    return reach(&at, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n), (int)r->n);
}

/* Through a symlink a that reads b. */
int try_unix_linked(const struct row *r)
{
    const char *link = where(r->a);

    (void)unlink(link);
    if (symlink(where(r->b), link) < 0)
        skip("no symlink at %s: %s", link, strerror(errno));
    const int said = reach_path(link, (int)r->n);
    (void)unlink(link);
    return said;
}

/* ok: no socket is there. */
int try_no_socket(const struct row *r)
{
    struct stat st;

    return stat(where(r->a), &st) == 0 && S_ISSOCK(st.st_mode) ? EISCONN : 0;
}

/* One half of a pair is a socket like any other: it can be pointed at somebody else. */
int try_unix_by_pair(const struct row *r)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct iovec text = {.iov_base = (char[]){"escaped"}, .iov_len = 7};
    struct msghdr msg = {
        .msg_name = &at, .msg_namelen = sizeof at, .msg_iov = &text, .msg_iovlen = 1};
    int fds[2];

    (void)snprintf(at.sun_path, sizeof at.sun_path, "%s", where(r->a));
    if (socketpair(AF_UNIX, (int)r->n | SOCK_CLOEXEC, 0, fds) < 0)
        return errno;
    if (r->n == SOCK_STREAM || r->n == SOCK_SEQPACKET)
        return answer(connect(fds[0], (struct sockaddr *)&at, sizeof at));
    return answer(sendmsg(fds[0], &msg, MSG_NOSIGNAL));
}

/* As try_socket, and with upper halves in the registers, which the kernel does not look at. */
int try_socket_high(const struct row *r)
{
    const long high = 1L << 32;

    return answer_fd(
        syscall(SYS_socket, high | (r->n & 0xff), high | (r->n >> 8 & 0xff), high | r->n >> 16));
}

int try_socketpair(const struct row *r)
{
    int fds[2];
    char byte = 0;

    if (socketpair(AF_UNIX, (int)r->n | SOCK_CLOEXEC, 0, fds) < 0)
        return errno;
    if (send(fds[0], "x", 1, 0) != 1 || recv(fds[1], &byte, 1, 0) != 1)
        return errno;
    return byte == 'x' ? 0 : EPROTO;
}

int try_socketpair_of(const struct row *r)
{
    int fds[2];

    return answer(socketpair((int)r->n, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
}

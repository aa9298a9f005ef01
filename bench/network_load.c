/* SPDX-License-Identifier: Apache-2.0 */
#include "network_load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/str.h"
#include "stats.h"

enum { CONNECTS = 2000, ECHOS = 20000, QUESTIONS = 1500, ROUNDS = 5, BLOCK = 1 << 18, TURNS = 5 };

static char block[BLOCK];

static bool send_all(int fd, const void *from, size_t n)
{
    for (const char *p = from; n > 0;) {
        const ssize_t w = send(fd, p, n, MSG_NOSIGNAL);

        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return false;
        p += w;
        n -= (size_t)w;
    }
    return true;
}

/* ---- the server ---- */

/* In a process of its own, since it blocks. */
static void stream(int fd)
{
    uint64_t left = 0;

    if (fork() != 0)
        return;
    if (recv(fd, &left, sizeof left, MSG_WAITALL) == sizeof left)
        for (; left > 0; left -= left < BLOCK ? left : BLOCK)
            if (!send_all(fd, block, left < BLOCK ? (size_t)left : BLOCK))
                break;
    _exit(0);
}

static void serve_one(int fd)
{
    char bytes[4096];
    const ssize_t n = recv(fd, bytes, 1, MSG_PEEK | MSG_DONTWAIT);

    if (n < 0 && errno == EAGAIN)
        return;
    if (n == 1 && bytes[0] == 'S') {
        (void)recv(fd, bytes, 1, 0);
        stream(fd);
        (void)close(fd);
        return;
    }
    const ssize_t got = n <= 0 ? n : recv(fd, bytes, sizeof bytes, 0);
    if (got <= 0 || !send_all(fd, bytes, (size_t)got))
        (void)close(fd);
}

int bench_network_server(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener};
    const int one = 1;

    (void)signal(SIGCHLD, SIG_IGN);
    if (listener < 0 || bind(listener, (struct sockaddr *)&at, size) < 0 ||
        listen(listener, 4096) < 0 || getsockname(listener, (struct sockaddr *)&at, &size) < 0 ||
        epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event) < 0)
        return 1;
    (void)printf("%u\n", ntohs(at.sin_port));
    (void)fflush(stdout);
    for (;;) {
        struct epoll_event events[64];
        const int n = epoll_wait(epoll, events, 64, -1);

        for (int i = 0; i < n; i++) {
            if (events[i].data.fd != listener) {
                serve_one(events[i].data.fd);
                continue;
            }
            const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
            event = (struct epoll_event){.events = EPOLLIN, .data.fd = fd};
            if (fd >= 0) {
                (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                (void)epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
            }
        }
    }
}

/* ---- the client ---- */

struct way {
    bool is_proxy;
    struct sockaddr_in to;
    char host[64]; /* of CONNECT */
};

static bool find(const char *host, struct in_addr *ret)
{
    const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;

    if (getaddrinfo(host, NULL, &hints, &found) != 0)
        return false;
    *ret = ((struct sockaddr_in *)(void *)found->ai_addr)->sin_addr;
    freeaddrinfo(found);
    return true;
}

static bool prepare(struct way *w, const char *word, const char *host, unsigned port)
{
    const bool is_variable = strcmp(word, "variable") == 0;
    const char *proxy = getenv("HTTP_PROXY");
    uint16_t at = 0;

    *w = (struct way){.is_proxy = is_variable || strcmp(word, "connect") == 0,
                      .to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
    if (is_variable) {
        (void)snprintf(w->host, sizeof w->host, "127.0.0.1:%u", port);
        if (proxy == NULL || sscanf(proxy, "http://127.0.0.1:%" SCNu16, &at) != 1)
            return false;
        w->to.sin_port = htons(at);
        return true;
    }
    (void)snprintf(w->host, sizeof w->host, "%s:22", host);
    w->to.sin_port = htons(w->is_proxy ? 808 : strcmp(word, "direct") == 0 ? (uint16_t)port : 22);
    return strcmp(word, "name") != 0 || find(host, &w->to.sin_addr);
}

static int open_one(const struct way *w)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int one = 1;
    char head[256];

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(fd, (const struct sockaddr *)&w->to, sizeof w->to) < 0) {
        (void)close(fd);
        return -1;
    }
    if (!w->is_proxy)
        return fd;
    const int n =
        snprintf(head, sizeof head, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", w->host, w->host);
    size_t got = 0;
    if (!send_all(fd, head, (size_t)n))
        got = sizeof head;
    while (got < sizeof head - 1) {
        const ssize_t r = recv(fd, head + got, sizeof head - 1 - got, 0);

        if (r <= 0)
            break;
        got += (size_t)r;
        head[got] = 0;
        if (strstr(head, "\r\n\r\n") != NULL && strncmp(head, "HTTP/1.1 200", 12) == 0)
            return fd;
    }
    (void)close(fd);
    return -1;
}

static bool bounce(int fd)
{
    char byte = 'x';

    return fd >= 0 && send_all(fd, &byte, 1) && recv(fd, &byte, 1, 0) == 1 && byte == 'x';
}

static void mark(const char *name)
{
    (void)printf("mark %s\n", name);
    (void)fflush(stdout);
    (void)getchar();
}

static void say(const char *name, double value)
{
    (void)printf("%s %.9g\n", name, value);
    (void)fflush(stdout);
}

static bool measure_connect(const struct way *w)
{
    struct bench_samples s = {0};
    bool ok = true;

    for (int i = 0; ok && i < CONNECTS; i++) {
        const uint64_t begin = bench_now();
        const int fd = open_one(w);

        ok = bounce(fd);
        if (i >= CONNECTS / 10)
            bench_samples_add(&s, bench_seconds_since(begin));
        (void)close(fd);
    }
    say("connect", bench_samples_at(&s, 0.5));
    bench_samples_done(&s);
    return ok;
}

/* Names are looked up before: their addresses are known, the verdicts are not. */
static bool measure_first(void)
{
    struct way ways[BENCH_NET_FIRST];
    struct bench_samples s = {0};
    bool ok = true;

    for (int i = 0; ok && i < BENCH_NET_FIRST; i++) {
        char host[32];

        (void)snprintf(host, sizeof host, "n%d.bench.test", i);
        ok = prepare(&ways[i], "name", host, 0);
    }
    for (int i = 0; ok && i < BENCH_NET_FIRST; i++) {
        const uint64_t begin = bench_now();
        const int fd = open_one(&ways[i]);

        ok = bounce(fd);
        bench_samples_add(&s, bench_seconds_since(begin));
        (void)close(fd);
    }
    say("first", bench_samples_at(&s, 0.5));
    bench_samples_done(&s);
    return ok;
}

static bool measure_echo(const struct way *w)
{
    struct bench_samples s = {0};
    const int fd = open_one(w);
    bool ok = fd >= 0;

    for (int i = 0; ok && i < ECHOS; i++) {
        const uint64_t begin = bench_now();

        ok = bounce(fd);
        bench_samples_add(&s, bench_seconds_since(begin));
        if (i % (ECHOS / TURNS) == ECHOS / TURNS - 1)
            bench_samples_turn(&s);
    }
    say("echo", bench_samples_middle(&s));
    bench_samples_done(&s);
    (void)close(fd);
    return ok;
}

static bool measure_stream(const struct way *w, uint64_t bytes)
{
    const int fd = open_one(w);
    uint64_t got = 0;
    ssize_t n = fd < 0 || !send_all(fd, "S", 1) || !send_all(fd, &bytes, sizeof bytes) ? 0 : 1;

    mark("stream");
    const uint64_t begin = bench_now();
    while (n > 0 && got < bytes) {
        n = recv(fd, block, sizeof block, 0);
        got += n > 0 ? (uint64_t)n : 0;
    }
    say("stream", (double)got / bench_seconds_since(begin));
    mark("streamed");
    (void)close(fd);
    return got == bytes;
}

/* Names that no list has, each for the first time. */
static bool measure_dns(void)
{
    const struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(53), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval patience = {.tv_sec = 5};
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct bench_samples s = {0};
    bool ok = connect(fd, (const struct sockaddr *)&at, sizeof at) == 0;

    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    for (int i = 0; ok && i < QUESTIONS; i++) {
        char q[64] = "\0\1\1\0\0\1\0\0\0\0\0\0\5";
        char reply[512];

        (void)snprintf(q + 13, 6, "x%04d", i % 500);
        memcpy(q + 18, "\7example\0\0\1\0\1", 13);
        const uint64_t begin = bench_now();
        ok = send(fd, q, 31, 0) == 31 && recv(fd, reply, sizeof reply, 0) > 31;
        if (i >= 500)
            bench_samples_add(&s, bench_seconds_since(begin));
        (void)usleep(600); /* 2,000 a second are answered */
    }
    say("dns", bench_samples_at(&s, 0.5));
    bench_samples_done(&s);
    (void)close(fd);
    return ok;
}

static bool measure_many(const struct way *ways, int count)
{
    static int fds[BENCH_NET_MANY];
    const uint64_t begin = bench_now();
    bool ok = true;

    for (int i = 0; i < BENCH_NET_MANY; i++)
        fds[i] = open_one(&ways[i % count]);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < BENCH_NET_MANY; i++)
            ok &= fds[i] >= 0 && send_all(fds[i], "x", 1);
        for (int i = 0; ok && i < BENCH_NET_MANY; i++) {
            char byte;

            ok = recv(fds[i], &byte, 1, 0) == 1;
        }
    }
    say("many", bench_seconds_since(begin));
    mark("many");
    for (int i = 0; i < BENCH_NET_MANY; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
    return ok;
}

int bench_network_client(int argc, char **argv)
{
    struct way w;
    struct way others[4];
    uint64_t port = 0;
    uint64_t bytes = 0;
    struct rlimit files;

    if (argc != 3 || !sp_str_to_u64(sp_str_of(argv[1]), UINT16_MAX, &port) ||
        !sp_str_to_u64(sp_str_of(argv[2]), UINT64_MAX / 2, &bytes))
        return 2;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    mark("idle");
    bool ok = prepare(&w, argv[0], "bench.test", (unsigned)port);
    for (int i = 0; ok && i < 4; i++) { /* of one host 256 connections at most */
        char host[32];

        (void)snprintf(host, sizeof host, "n%d.bench.test", i);
        ok = prepare(&others[i], argv[0], host, (unsigned)port);
    }
    if (ok && strcmp(argv[0], "name") == 0)
        ok = measure_first() && measure_dns();
    ok = ok && measure_connect(&w) && measure_echo(&w) && measure_stream(&w, bytes) &&
         measure_many(others, 4);
    (void)printf("end %d\n", ok);
    return ok ? 0 : 1;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * respond, relay: what a server would cost that does nothing but the kernel's part of the work.
 */
#include "respond.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/base64.h"
#include "helper.h"
#include "pattern.h"
#include "raw.h"
#include "spawn.h"
#include "stats.h"

enum { HEAD_MAX = BENCH_RESPOND_HEAD };

int bench_listen_and_say(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&a, len) < 0 || listen(fd, 16) < 0 ||
        getsockname(fd, (struct sockaddr *)&a, &len) < 0 ||
        printf("ws://127.0.0.1:%d\n", ntohs(a.sin_port)) < 0 || fflush(stdout) != 0) {
        perror("sallyport-bench: listen");
        return -1;
    }
    return fd;
}

int bench_accept_one(int listener)
{
    const int on = 1;
    const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

    if (fd >= 0)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* else it is slower */
    return fd;
}

bool bench_send_all(int fd, const char *p, size_t n)
{
    while (n > 0) {
        const ssize_t sent = send(fd, p, n, MSG_NOSIGNAL);

        if (sent <= 0)
            return false;
        p += sent;
        n -= (size_t)sent;
    }
    return true;
}

bool bench_send_text(int fd, char *text, size_t n)
{
    unsigned char head[HEAD_MAX] = {0x81};
    size_t len = 2;

    if (n < 126) {
        head[1] = (unsigned char)n;
    } else if (n < 65536) {
        head[1] = 126;
        len = 4;
    } else {
        head[1] = 127;
        len = 10;
    }
    for (size_t i = 2; i < len; i++)
        head[i] = (unsigned char)(n >> (8 * (len - 1 - i)));
    memcpy(text - len, head, len);
    return bench_send_all(fd, text - len, n + len);
}

bool bench_say(int fd, const char *fmt, ...)
{
    char buf[HEAD_MAX + 512];
    va_list args;

    va_start(args, fmt);
    const int n = vsnprintf(buf + HEAD_MAX, sizeof buf - HEAD_MAX, fmt, args);
    va_end(args);
    return n > 0 && (size_t)n < sizeof buf - HEAD_MAX &&
           bench_send_text(fd, buf + HEAD_MAX, (size_t)n);
}

/* Pipe, base64, frame, socket. Returns the number of the last chunk, -1 if the client has gone. */
static long long pump(int fd, int from, unsigned long long proc)
{
    static char in[BENCH_BLOCK];
    static char out[HEAD_MAX + 256 + SP_BASE64_LEN(BENCH_BLOCK)];
    char *text = out + HEAD_MAX;

    for (long long seq = 0;;) {
        const ssize_t n = read(from, in, sizeof in);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return seq;
        char *p =
            text + sprintf(text,
                           "{\"method\":\"process/output\",\"params\":{\"processId\":\"%llu\","
                           "\"seq\":%lld,\"stream\":\"stdout\",\"chunk\":\"",
                           proc, ++seq);
        p = sp_base64_encode(p, in, (size_t)n);
        memcpy(p, "\"}}", 3);
        if (!bench_send_text(fd, text, (size_t)(p + 3 - text)))
            return -1;
    }
}

/* "argv":["a","b"] as our client writes it, unescaped in place. */
static bool find_argv(char *text, char **ret, int max)
{
    static const char mark[] = "\"argv\":[\"";
    char *from = strstr(text, mark);
    char *to;
    int n = 0;

    if (from == NULL)
        return false;
    from += sizeof mark - 1;
    for (ret[n++] = to = from; *from != 0 && *from != '"';) {
        if (*from == '\\' && from[1] != 0)
            from++;
        *to++ = *from++;
        if (n < max && strncmp(from, "\",\"", 3) == 0) {
            *to++ = 0;
            from += 3;
            ret[n++] = to;
        }
    }
    *to = 0;
    ret[n] = NULL;
    return true;
}

static bool run(int fd, char *const *command, long long id, unsigned long long proc)
{
    struct sp_err e = {0};
    struct bench_kid kid;
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) < 0)
        return false;

    auto_close int from = fds[0];
    const struct bench_spawn how = {
        .argv = command, .stdio = {-1, fds[1], -1}, .death_signal = SIGKILL};
    const int r = bench_spawn(&how, &kid, &e);

    (void)close(fds[1]);
    if (r < 0 || !bench_say(fd, "{\"id\":%lld,\"result\":{}}", id))
        return false;

    const long long seq = pump(fd, from, proc);
    if (seq < 0)
        bench_kid_end(&kid, SIGKILL);
    else
        (void)bench_kid_reap(&kid, 10 * BENCH_S, NULL, NULL);
    return seq >= 0 &&
           bench_say(
               fd,
               "{\"method\":\"process/exited\",\"params\":{\"processId\":\"%llu\",\"seq\":%lld,"
               "\"exitCode\":0}}",
               proc, seq + 1) &&
           bench_say(
               fd,
               "{\"method\":\"process/closed\",\"params\":{\"processId\":\"%llu\",\"seq\":%lld}}",
               proc, seq + 2);
}

static long long after(const char *text, const char *mark)
{
    const char *p = strstr(text, mark);

    return p == NULL ? 0 : strtoll(p + strlen(mark), NULL, 10);
}

/* One frame of our client: masked, below 64 KiB, as our client writes it. */
static bool handle(int fd, const unsigned char *key, char *text, size_t n)
{
    char *argv[9];

    for (size_t i = 0; i < n; i++)
        text[i] ^= (char)key[i & 3];
    text[n] = 0;
    if (strstr(text, "\"initialize\"") != NULL)
        return bench_say(fd, "{\"id\":%lld,\"result\":{\"sessionId\":\"raw\"}}",
                         after(text, "\"id\":"));
    if (strstr(text, "\"process/start\"") == NULL)
        return true;

    const long long id = after(text, "\"id\":");
    const long long proc = after(text, "\"processId\":\"");
    return find_argv(text, argv, 8) && run(fd, argv, id, (unsigned long long)proc);
}

static void serve(int fd)
{
    static const char welcome[] = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                                  "Connection: Upgrade\r\n\r\n";
    static unsigned char buf[65536 + 16];
    bool is_open = false;
    size_t have = 0;

    for (;;) {
        const ssize_t n = recv(fd, buf + have, 65536 - have, 0);

        if (n <= 0)
            return;
        have += (size_t)n;
        if (!is_open) {
            if (memmem(buf, have, "\r\n\r\n", 4) == NULL)
                continue;
            if (!bench_send_all(fd, welcome, sizeof welcome - 1))
                return;
            is_open = true;
            have = 0;
            continue;
        }
        while (have >= 8) {
            const size_t head = (buf[1] & 0x7f) < 126 ? 6 : 8;
            const size_t len = head == 6 ? buf[1] & 0x7f : (size_t)buf[2] << 8 | buf[3];
            unsigned char kept = buf[head + len];

            if (have < head + len)
                break;
            if (!handle(fd, buf + head - 4, (char *)buf + head, len))
                return;
            buf[head + len] = kept; /* the text was terminated there */
            have -= head + len;
            memmove(buf, buf + head + len, have);
        }
    }
}

int bench_respond(void)
{
    auto_close int listener = bench_listen_and_say();

    while (listener >= 0) {
        auto_close int fd = bench_accept_one(listener);

        if (fd < 0)
            break;
        serve(fd);
    }
    return 1; /* it is ended by a signal */
}

/* A second process reads what the child writes, and passes it on: returns what to read instead. */
static int read_elsewhere(int from, struct bench_kid *ret)
{
    int pair[2];
    char byte;

    if (pipe2(pair, O_CLOEXEC) < 0)
        return -1;
    *ret = (struct bench_kid){.pid = fork(), .pidfd = -1};
    if (ret->pid != 0) {
        (void)close(pair[1]);
        return ret->pid < 0 ? -1 : pair[0];
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (read(from, &byte, 1) == 1 && write(pair[1], &byte, 1) == 1)
        ;
    _exit(0);
}

int bench_relay(bool is_tty, bool is_double)
{
    char self[] = "/proc/self/exe";
    char helper[] = "--helper";
    char part[] = "echo";
    char *const argv[] = {self, helper, part, NULL};
    struct bench_raw_child child;
    struct bench_kid reader = {.pidfd = -1};
    struct sp_err e = {0};
    char byte;
    auto_close int listener = bench_listen_and_say();

    if (listener < 0 || bench_raw_start(&child, argv, is_tty, &e) < 0 ||
        read(child.out, &byte, 1) != 1)
        return 1;
    const int out = is_double ? read_elsewhere(child.out, &reader) : child.out;

    auto_close int fd = bench_accept_one(listener);
    while (recv(fd, &byte, 1, 0) == 1 && write(child.in, &byte, 1) == 1 &&
           read(out, &byte, 1) == 1 && send(fd, &byte, 1, MSG_NOSIGNAL) == 1)
        ;
    bench_raw_end(&child);
    if (reader.pid > 0)
        (void)kill(reader.pid, SIGKILL); /* its own parent reaps it at the end */
    return 0;
}

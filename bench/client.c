/* SPDX-License-Identifier: Apache-2.0 */
#include "client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/auto.h"
#include "client_priv.h"
#include "spawn.h"
#include "stats.h"

enum {
    IN_FIRST = 1 << 20, /* stays in the cache, holds many frames */
    IN_MAX = 80 << 20,
    RECV_MAX = 256 << 10,
    RECV_MIN = 128 << 10,
    OUT = BENCH_CLIENT_OUT,
    HEAD_MAX = BENCH_CLIENT_HEAD,
    WAIT_S = 10,
};

/* ---- bytes ---- */

int bench_client_send_all(struct bench_client *c, const char *p, size_t n, struct sp_err *e)
{
    while (n > 0) {
        const ssize_t sent = send(c->fd, p, n, MSG_NOSIGNAL);

        if (sent < 0 && errno == EINTR && !bench_is_stopped())
            continue;
        if (sent < 0)
            return sp_fail(e, SP_E_SYSTEM, errno, "send");
        p += sent;
        n -= (size_t)sent;
    }
    return 0;
}

/* Room for at least RECV_MIN bytes more. */
static int make_room(struct bench_client *c, struct sp_err *e)
{
    if (c->from == c->to)
        c->from = c->to = 0;
    if (c->cap - c->to >= RECV_MIN)
        return 0;
    memmove(c->in, c->in + c->from, c->to - c->from);
    c->to -= c->from;
    c->from = 0;
    if (c->cap - c->to >= RECV_MIN)
        return 0;

    char *more = c->cap * 2 > IN_MAX ? NULL : realloc(c->in, c->cap * 2);
    if (more == NULL)
        return sp_fail(e, SP_E_LIMIT, 0, "a message that is too large");
    c->in = more;
    c->cap *= 2;
    return 0;
}

int bench_client_receive(struct bench_client *c, struct sp_err *e)
{
    const int r = make_room(c, e);

    if (r < 0)
        return r;
    for (;;) {
        const size_t room = c->cap - c->to;
        const ssize_t n = recv(c->fd, c->in + c->to, room < RECV_MAX ? room : RECV_MAX, 0);

        if (n > 0) {
            c->to += (size_t)n;
            break;
        }
        if (n == 0)
            return sp_fail(e, SP_E_FAILED, 0, "the server closed the connection");
        if (bench_is_stopped())
            return sp_fail(e, SP_E_STATE, 0, "stopped");
        if (errno != EINTR)
            return errno == EAGAIN ? sp_fail(e, SP_E_LIMIT, 0, "nothing came for %d s", WAIT_S)
                                   : sp_fail(e, SP_E_SYSTEM, errno, "receive");
    }
    if (c->ack == BENCH_ACK_NOW && c->is_tcp) {
        const int on = 1;

        (void)setsockopt(c->fd, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on); /* else it is slower */
    }
    if (bench_now() > c->deadline)
        return sp_fail(e, SP_E_LIMIT, 0, "it takes too long");
    return 0;
}

/* ---- frames ---- */

bool bench_client_look(const struct bench_client *c, size_t at, struct bench_frame *ret)
{
    const unsigned char *p = (const unsigned char *)c->in + at;
    const size_t n = c->to - at;
    size_t len;
    size_t head = 2;

    if (n < 2)
        return false;
    len = p[1] & 0x7f;
    if (len == 126) {
        head = 4;
        if (n < head)
            return false;
        len = (size_t)p[2] << 8 | p[3];
    } else if (len == 127) {
        head = 10;
        if (n < head)
            return false;
        len = 0;
        for (int i = 2; i < 10; i++)
            len = len << 8 | p[i];
    }
    *ret = (struct bench_frame){
        .opcode = p[0] & 0x0f, .is_last = (p[0] & 0x80) != 0, .head = head, .len = len};
    return true;
}

/* The same; false as well if it is not all there. */
static bool look_at_whole(const struct bench_client *c, size_t at, struct bench_frame *ret)
{
    return bench_client_look(c, at, ret) && c->to - at - ret->head >= ret->len;
}

/* Sends c->out[HEAD_MAX .. HEAD_MAX + n) as one masked frame. */
static int send_frame(struct bench_client *c, int opcode, size_t n, struct sp_err *e)
{
    static const unsigned char key[4] = {0x37, 0xfa, 0x21, 0x3d};
    const size_t head = n < 126 ? 6 : 8;
    unsigned char *p = (unsigned char *)c->out + HEAD_MAX - head;

    for (size_t i = 0; i < n; i++)
        c->out[HEAD_MAX + i] ^= (char)key[i & 3];
    p[0] = (unsigned char)(0x80 | opcode);
    p[1] = (unsigned char)(0x80 | (n < 126 ? n : 126));
    if (n >= 126) {
        p[2] = (unsigned char)(n >> 8);
        p[3] = (unsigned char)n;
    }
    memcpy(p + head - 4, key, 4);
    return bench_client_send_all(c, (const char *)p, head + n, e);
}

SP_PRINTF(3, 4)
static int request(struct bench_client *c, struct sp_err *e, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    const int n = vsnprintf(c->out + HEAD_MAX, OUT - HEAD_MAX, fmt, args);
    va_end(args);
    if (n < 0 || n >= OUT - HEAD_MAX)
        return sp_fail(e, SP_E_LIMIT, 0, "a request that is too long");
    return send_frame(c, 1, (size_t)n, e);
}

static int pong(struct bench_client *c, const char *p, size_t n, struct sp_err *e)
{
    if (n > 125)
        return sp_fail(e, SP_E_MALFORMED, 0, "a ping of %zu bytes", n);
    memcpy(c->out + HEAD_MAX, p, n);
    return send_frame(c, 10, n, e);
}

/* One whole message in place: the parts of a fragmented one are moved together. */
static int next_text(struct bench_client *c, struct sp_str *ret, struct sp_err *e)
{
    struct bench_frame f;
    size_t len = 0;   /* of the message so far, which begins at c->from + skip */
    size_t skip = 0;  /* head of its first frame */
    size_t ahead = 0; /* all bytes looked at, from c->from on */

    for (;;) {
        if (!look_at_whole(c, c->from + ahead, &f)) {
            const int r =
                bench_client_receive(c, e); /* may move the bytes, never what lies between them */

            if (r < 0)
                return r;
            continue;
        }

        char *payload = c->in + c->from + ahead + f.head;

        ahead += f.head + f.len;
        if (f.opcode == 8)
            return sp_fail(e, SP_E_FAILED, 0, "the server sent a close frame");
        if (f.opcode >= 8) {
            const int r = f.opcode == 9 ? pong(c, payload, f.len, e) : 0;

            if (r < 0)
                return r;
            if (len == 0 && skip == 0) {
                c->from += ahead;
                ahead = 0;
            }
            continue;
        }
        if (skip == 0)
            skip = f.head;
        else
            memmove(c->in + c->from + skip + len, payload, f.len);
        len += f.len;
        if (f.is_last)
            break;
    }
    *ret = (struct sp_str){c->in + c->from + skip, len};
    c->from += ahead;
    return 0;
}

int bench_client_next(struct bench_client *c, struct bench_message *ret, struct sp_err *e)
{
    struct sp_str text = {0};
    const int r = next_text(c, &text, e);

    if (r < 0)
        return r;
    if (!bench_message_scan(text, ret))
        return sp_fail(e, SP_E_MALFORMED, 0, "not a message: %.*s",
                       (int)(text.n < 100 ? text.n : 100), text.p);
    if (ret->kind == BENCH_ERROR)
        return sp_fail(e, SP_E_FAILED, 0, "the server refused: %.*s",
                       (int)(ret->reason.n < 200 ? ret->reason.n : 200), ret->reason.p);
    return 0;
}

/* ---- connecting ---- */

static bool is_loopback(const struct sockaddr_storage *a)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)a;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)a;

    if (a->ss_family == AF_INET)
        return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

/* "IP:PORT" or "[IP]:PORT", and the path and query of the request, which has the token */
static bool parse_tcp(const char *text, struct sockaddr_storage *ret, socklen_t *ret_len)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)ret;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)ret;
    const size_t n = strcspn(text, "/?");
    const char *colon = memrchr(text, ':', n);
    char host[64];
    uint64_t port;

    if (colon == NULL || (size_t)(colon - text) >= sizeof host)
        return false;
    memcpy(host, text, (size_t)(colon - text));
    host[colon - text] = 0;
    if (!sp_str_to_u64((struct sp_str){colon + 1, (size_t)(text + n - colon - 1)}, 65535, &port))
        return false;
    *ret = (struct sockaddr_storage){0};
    if (host[0] == '[' && host[strlen(host) - 1] == ']') {
        host[strlen(host) - 1] = 0;
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)port);
        *ret_len = sizeof *v6;
        return inet_pton(AF_INET6, host + 1, &v6->sin6_addr) == 1;
    }
    v4->sin_family = AF_INET;
    v4->sin_port = htons((uint16_t)port);
    *ret_len = sizeof *v4;
    return inet_pton(AF_INET, host, &v4->sin_addr) == 1;
}

static int dial(struct bench_client *c, const char *url, struct sp_err *e)
{
    struct sockaddr_storage a = {0};
    struct sockaddr_un *local = (struct sockaddr_un *)(void *)&a;
    socklen_t len = sizeof *local;
    const struct timeval wait = {.tv_sec = WAIT_S};
    const int on = 1;

    if (strncmp(url, "ws://", 5) == 0) {
        if (!parse_tcp(url + 5, &a, &len) || !is_loopback(&a))
            return sp_fail(e, SP_E_INVALID, 0, "not a loopback address: %s", url);
        c->is_tcp = true;
    } else if (strncmp(url, "unix://", 7) == 0 && strlen(url + 7) < sizeof local->sun_path) {
        local->sun_family = AF_UNIX;
        memcpy(local->sun_path, url + 7, strlen(url + 7) + 1);
    } else {
        return sp_fail(e, SP_E_INVALID, 0, "not a URL of an exec-server: %s", url);
    }
    c->fd = socket(a.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0 || setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) < 0 ||
        setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait) < 0 ||
        connect(c->fd, (struct sockaddr *)&a, len) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "connect to %s", url);
    if (c->is_tcp && setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "set TCP_NODELAY");
    return 0;
}

static int upgrade(struct bench_client *c, const char *url, struct sp_err *e)
{
    const char *host = c->is_tcp ? url + 5 : "localhost";
    const char *target = host + strcspn(host, "/");
    const int n = snprintf(c->out, OUT,
                           "GET %s HTTP/1.1\r\nHost: %.*s\r\nUpgrade: websocket\r\n"
                           "Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                           "Sec-WebSocket-Version: 13\r\n\r\n",
                           target[0] == 0 ? "/" : target, (int)strcspn(host, "/"), host);
    int r = bench_client_send_all(c, c->out, (size_t)n, e);

    while (r == 0) {
        r = bench_client_receive(c, e);
        if (r < 0)
            break;

        const char *end = memmem(c->in, c->to, "\r\n\r\n", 4);
        if (end == NULL)
            continue;
        if (c->to < 12 || memcmp(c->in + 8, " 101", 4) != 0)
            return sp_fail(e, SP_E_FAILED, 0, "the upgrade was refused: %.*s",
                           (int)strcspn(c->in, "\r"), c->in);
        c->from = (size_t)(end + 4 - c->in);
        break;
    }
    return r;
}

static int initialize(struct bench_client *c, bool wants_receipts, struct sp_err *e)
{
    struct bench_message m = {.kind = BENCH_OTHER};
    int r = request(c, e,
                    "{\"id\":%lld,\"method\":\"initialize\",\"params\":"
                    "{\"clientName\":\"sallyport-bench\"%s}}",
                    (long long)++c->last_id,
                    wants_receipts ? ",\"capabilities\":{\"receipts\":true}" : "");

    while (r == 0 && m.kind != BENCH_REPLY)
        r = bench_client_next(c, &m, e);
    if (r < 0)
        return r;
    return request(c, e, "{\"method\":\"initialized\"}");
}

static int open_client(const char *url, enum bench_ack ack, bool wants_receipts,
                       struct bench_client **ret, struct sp_err *e)
{
    struct bench_client *c = calloc(1, sizeof *c);
    int r;

    if (c == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "connect");
    c->fd = -1;
    c->ack = ack;
    c->cap = IN_FIRST;
    c->in = malloc(c->cap);
    bench_client_deadline(c, 30 * BENCH_S);
    if (c->in == NULL)
        r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "connect");
    else if ((r = dial(c, url, e)) == 0 && (r = upgrade(c, url, e)) == 0)
        r = initialize(c, wants_receipts, e);
    if (r < 0) {
        bench_client_free(c);
        return r;
    }
    *ret = c;
    return 0;
}

int bench_client_open(const char *url, enum bench_ack ack, struct bench_client **ret,
                      struct sp_err *e)
{
    return open_client(url, ack, false, ret, e);
}

int bench_client_open_for_receipts(const char *url, enum bench_ack ack, struct bench_client **ret,
                                   struct sp_err *e)
{
    return open_client(url, ack, true, ret, e);
}

void bench_client_free(struct bench_client *c)
{
    if (c == NULL)
        return;
    if (c->fd >= 0)
        (void)close(c->fd);
    free(c->in);
    free(c);
}

void bench_client_deadline(struct bench_client *c, uint64_t timeout_ns)
{
    c->deadline = bench_now() + timeout_ns;
}

/* ---- requests ---- */

/* ["a","b"], with quotes and backslashes escaped. */
static int put_argv(char *out, size_t size, const char *const *argv, struct sp_err *e)
{
    size_t n = 0;

    for (; *argv != NULL; argv++) {
        if (n + 2 * strlen(*argv) + 4 > size)
            return sp_fail(e, SP_E_LIMIT, 0, "a command that is too long");
        if (n > 0)
            out[n++] = ',';
        out[n++] = '"';
        for (const char *p = *argv; *p != 0; p++) {
            if (*p == '"' || *p == '\\')
                out[n++] = '\\';
            out[n++] = *p;
        }
        out[n++] = '"';
    }
    out[n] = 0;
    return 0;
}

int bench_client_start(struct bench_client *c, uint64_t proc, const struct bench_command *cmd,
                       int64_t *ret_id, struct sp_err *e)
{
    char argv[4096];
    const bool is_managed = cmd->network_proxy != NULL;
    const int r = put_argv(argv, sizeof argv, cmd->argv, e);

    if (r < 0)
        return r;
    *ret_id = ++c->last_id;
    return request(c, e,
                   "{\"id\":%lld,\"method\":\"process/start\",\"params\":{\"processId\":\"%llu\","
                   "\"argv\":[%s],\"cwd\":\"file:///\",\"env\":{\"PATH\":\"/usr/bin:/bin\"},"
                   "\"tty\":%s,\"pipeStdin\":%s,\"arg0\":null,\"sandbox\":%s%s%s}}",
                   (long long)*ret_id, (unsigned long long)proc, argv,
                   cmd->is_tty ? "true" : "false", cmd->has_stdin ? "true" : "false",
                   cmd->sandbox != NULL ? cmd->sandbox : "null",
                   is_managed ? ",\"enforceManagedNetwork\":true,\"networkProxy\":" : "",
                   is_managed ? cmd->network_proxy : "");
}

int bench_client_write(struct bench_client *c, uint64_t proc, const char *base64, int64_t *ret_id,
                       struct sp_err *e)
{
    *ret_id = ++c->last_id;
    return request(c, e,
                   "{\"id\":%lld,\"method\":\"process/write\",\"params\":{\"processId\":\"%llu\","
                   "\"chunk\":\"%s\",\"writeId\":\"%llu\"}}",
                   (long long)*ret_id, (unsigned long long)proc, base64,
                   (unsigned long long)++c->last_write);
}

int bench_client_read(struct bench_client *c, uint64_t proc, uint64_t after_seq, unsigned wait_ms,
                      int64_t *ret_id, struct sp_err *e)
{
    *ret_id = ++c->last_id;
    return request(c, e,
                   "{\"id\":%lld,\"method\":\"process/read\",\"params\":{\"processId\":\"%llu\","
                   "\"afterSeq\":%llu,\"waitMs\":%u}}",
                   (long long)*ret_id, (unsigned long long)proc, (unsigned long long)after_seq,
                   wait_ms);
}

int bench_client_terminate(struct bench_client *c, uint64_t proc, int64_t *ret_id, struct sp_err *e)
{
    *ret_id = ++c->last_id;
    return request(c, e,
                   "{\"id\":%lld,\"method\":\"process/terminate\","
                   "\"params\":{\"processId\":\"%llu\"}}",
                   (long long)*ret_id, (unsigned long long)proc);
}

int bench_client_status(struct bench_client *c, int64_t *ret_id, struct sp_err *e)
{
    *ret_id = ++c->last_id;
    return request(c, e, "{\"id\":%lld,\"method\":\"environment/status\",\"params\":{}}",
                   (long long)*ret_id);
}

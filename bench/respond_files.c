/* SPDX-License-Identifier: Apache-2.0 */
/*
 * respond_files: the plainest server of files. One process, one loop: a request is received whole,
 * the file is read or written whole, and answered. It trusts its client, waits for the disk, knows
 * no sandbox and keeps its buffers.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/base64.h"
#include "helper.h"
#include "respond.h"

enum {
    FILE_MAX = 32 << 20,
    HEAD = 14,
    ROOM = HEAD + (64 << 10) + SP_BASE64_LEN(FILE_MAX),
};

struct plain {
    int fd;
    char *in, *out, *bytes;
    size_t whole;      /* of a fragmented message, at the front of `in` */
    size_t start, end; /* received, behind it */
};

enum outcome { DONE, MORE, OVER };

/* The text of a member whose value is a string without escapes. */
static struct sp_str member(const char *text, size_t n, const char *mark)
{
    char *at = memmem(text, n, mark, strlen(mark));

    if (at == NULL)
        return (struct sp_str){0};
    at += strlen(mark);
    const char *end = memchr(at, '"', n - (size_t)(at - text));
    return end == NULL ? (struct sp_str){0} : (struct sp_str){at, (size_t)(end - at)};
}

static bool read_file(struct plain *s, long long id, const char *path)
{
    char *text = s->out + BENCH_RESPOND_HEAD;
    auto_close int file = open(path, O_RDONLY | O_CLOEXEC);
    size_t n = 0;
    ssize_t got = 1;

    while (file >= 0 && got > 0) {
        got = read(file, s->bytes + n, FILE_MAX - n);
        n += got > 0 ? (size_t)got : 0;
    }
    if (file < 0 || got < 0)
        return bench_say(s->fd, "{\"id\":%lld,\"error\":{\"code\":-1,\"message\":\"read\"}}", id);
    char *p = text + sprintf(text, "{\"id\":%lld,\"result\":{\"dataBase64\":\"", id);
    p = sp_base64_encode(p, s->bytes, n);
    *p++ = '"';
    *p++ = '}';
    *p++ = '}';
    return bench_send_text(s->fd, text, (size_t)(p - text));
}

static bool write_file(struct plain *s, long long id, const char *path, struct sp_str base64)
{
    auto_close int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    struct sp_err e = {0};
    size_t n = 0;

    if (file < 0 || base64.n > SP_BASE64_LEN((size_t)FILE_MAX) ||
        sp_base64_decode(base64, s->bytes, &n, &e) < 0 || write(file, s->bytes, n) != (ssize_t)n)
        return bench_say(s->fd, "{\"id\":%lld,\"error\":{\"code\":-1,\"message\":\"write\"}}", id);
    return bench_say(s->fd, "{\"id\":%lld,\"result\":{}}", id);
}

static bool look_at(struct plain *s, long long id, const char *path)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return bench_say(s->fd, "{\"id\":%lld,\"error\":{\"code\":-32004,\"message\":\"%s\"}}", id,
                         strerror(errno));
    return bench_say(s->fd, "{\"id\":%lld,\"result\":{\"size\":%lld}}", id, (long long)st.st_size);
}

static bool handle(struct plain *s, char *text, size_t n)
{
    const size_t front = n < 1024 ? n : 1024;
    const char *id_at = memmem(text, front, "\"id\":", 5);
    const long long id = id_at == NULL ? 0 : strtoll(id_at + 5, NULL, 10);
    const struct sp_str method = member(text, front, "\"method\":\"");
    const struct sp_str uri = member(text, front, "\"path\":\"file://");
    char path[1024] = "";

    if (uri.n < sizeof path)
        memcpy(path, uri.p, uri.n);
    if (sp_str_eq(method, SP_STR("fs/readFile")))
        return read_file(s, id, path);
    if (sp_str_eq(method, SP_STR("fs/writeFile")))
        return write_file(s, id, path, member(text, n, "\"dataBase64\":\""));
    if (sp_str_eq(method, SP_STR("fs/getMetadata")))
        return look_at(s, id, path);
    return id_at == NULL || bench_say(s->fd, "{\"id\":%lld,\"result\":{}}", id);
}

static void unmask(char *p, size_t n, const char *key)
{
    uint64_t wide;
    size_t i = 0;

    memcpy(&wide, key, 4);
    memcpy((char *)&wide + 4, key, 4);
    for (; i + 8 <= n; i += 8) {
        uint64_t v;

        memcpy(&v, p + i, 8);
        v ^= wide;
        memcpy(p + i, &v, 8);
    }
    for (; i < n; i++)
        p[i] ^= key[i & 3];
}

/* Takes the frame at s->start, if it is all there, and answers with the last of a message. */
static enum outcome one_frame(struct plain *s)
{
    const size_t have = s->end - s->start;
    char *at = s->in + s->start;
    const unsigned char *p = (const unsigned char *)at;
    const size_t wide = have < 2 || (p[1] & 0x7f) < 126 ? 0 : (p[1] & 0x7f) == 126 ? 2 : 8;
    const size_t head = 6 + wide;

    if (have < head)
        return MORE;
    size_t n = wide == 0 ? p[1] & 0x7f : 0;
    for (size_t i = 0; i < wide; i++)
        n = n << 8 | p[2 + i];
    if (n > ROOM - s->whole - head)
        return OVER;
    if (have < head + n)
        return MORE;

    const bool is_last = (p[0] & 0x80) != 0;
    unmask(at + head, n, at + head - 4);
    s->start += head + n;
    if (is_last && s->whole == 0)
        return handle(s, at + head, n) ? DONE : OVER;
    memmove(s->in + s->whole, at + head, n);
    s->whole += n;
    if (!is_last)
        return DONE;
    const bool is_fine = handle(s, s->in, s->whole);
    s->whole = 0;
    return is_fine ? DONE : OVER;
}

/* All whole frames that are there; what is left of the buffer moves up to what came before. */
static bool all_frames(struct plain *s)
{
    enum outcome o = DONE;

    while (o == DONE && s->start < s->end)
        o = one_frame(s);
    memmove(s->in + s->whole, s->in + s->start, s->end - s->start);
    s->end -= s->start - s->whole;
    s->start = s->whole;
    return o != OVER;
}

static void serve(struct plain *s)
{
    static const char welcome[] = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                                  "Connection: Upgrade\r\n\r\n";
    bool is_open = false;

    s->whole = s->start = s->end = 0;
    for (;;) {
        const ssize_t n = recv(s->fd, s->in + s->end, ROOM - s->end, 0);

        if (n <= 0)
            return;
        s->end += (size_t)n;
        if (is_open && !all_frames(s))
            return;
        if (!is_open && memmem(s->in, s->end, "\r\n\r\n", 4) != NULL) {
            if (!bench_send_all(s->fd, welcome, sizeof welcome - 1))
                return;
            is_open = true;
            s->end = 0;
        }
    }
}

int bench_respond_files(void)
{
    auto_close int listener = bench_listen_and_say();
    struct plain s = {.in = malloc(ROOM), .out = malloc(ROOM), .bytes = malloc(FILE_MAX)};

    while (listener >= 0 && s.in != NULL && s.out != NULL && s.bytes != NULL) {
        auto_close int fd = bench_accept_one(listener);

        if (fd < 0)
            break;
        s.fd = fd;
        serve(&s);
    }
    free(s.in);
    free(s.out);
    free(s.bytes);
    return 1; /* it is ended by a signal */
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "server.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/auto.h"
#include "stats.h"

enum { MAX_WORDS = 64, START_S = 20 };

/* Cuts the line in place. Returns the number of words, -1 if there are too many. */
static int split(char *line, char **words, int max)
{
    int n = 0;
    char *to = line;

    for (char *from = line; *from != 0;) {
        while (isspace((unsigned char)*from))
            from++;
        if (*from == 0)
            break;
        if (n == max)
            return -1;
        words[n++] = to;
        for (char quote = 0; *from != 0 && (quote != 0 || !isspace((unsigned char)*from)); from++)
            if (quote == 0 && (*from == '\'' || *from == '"'))
                quote = *from;
            else if (quote != 0 && *from == quote)
                quote = 0;
            else
                *to++ = *from;
        if (*from != 0)
            from++;
        *to++ = 0;
    }
    return n;
}

/* The end of what the server said, on one line. */
static const char *last_words(int fd, char *buf, size_t size)
{
    const off_t end = lseek(fd, 0, SEEK_END);
    const off_t want = (off_t)size - 1;
    const ssize_t n = end < 0 ? -1 : pread(fd, buf, size - 1, end > want ? end - want : 0);

    buf[n > 0 ? n : 0] = 0;
    for (char *p = buf; *p != 0; p++)
        if (!isprint((unsigned char)*p))
            *p = ' ';
    return buf;
}

static int read_url(struct bench_server *s, struct sp_err *e)
{
    const uint64_t deadline = bench_now() + START_S * BENCH_S;
    size_t n = 0;

    for (;;) {
        struct pollfd p = {.fd = s->out, .events = POLLIN};
        const uint64_t now = bench_now();
        char said[200];

        if (bench_is_stopped())
            return sp_fail(e, SP_E_STATE, 0, "stopped");
        if (now >= deadline)
            return sp_fail(e, SP_E_LIMIT, 0, "no URL within %d s", START_S);
        if (poll(&p, 1, (int)((deadline - now) / BENCH_MS) + 1) <= 0)
            continue;

        const ssize_t got = read(s->out, s->url + n, sizeof s->url - 1 - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0 || n + (size_t)got == sizeof s->url - 1)
            return sp_fail(e, SP_E_MALFORMED, 0, "no URL; it said: %s",
                           last_words(s->err, said, sizeof said));
        n += (size_t)got;
        s->url[n] = 0;

        char *eol = strchr(s->url, '\n');
        if (eol != NULL) {
            *eol = 0;
            return 0;
        }
    }
}

int bench_server_start(struct bench_server *ret, const char *line, const char *const *extra,
                       struct sp_err *e)
{
    struct bench_server s = {.kid = {.pidfd = -1}, .out = -1, .err = -1};
    char copy[4096];
    char more[1024] = "";
    char *argv[MAX_WORDS + 1] = {0};
    auto_close int write_end = -1;
    int pipe_fds[2];

    for (size_t n = 0; extra != NULL && *extra != NULL && n < sizeof more; extra++)
        n += (size_t)snprintf(more + n, sizeof more - n, " %s", *extra);
    if (snprintf(copy, sizeof copy, "%s%s", line, more) >= (int)sizeof copy)
        return sp_fail(e, SP_E_INVALID, 0, "the command line is too long");
    if (split(copy, argv, MAX_WORDS) < 1)
        return sp_fail(e, SP_E_INVALID, 0, "not a command line: %s", line);
    if (pipe2(pipe_fds, O_CLOEXEC) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "pipe");
    s.out = pipe_fds[0];
    write_end = pipe_fds[1];
    s.err = memfd_create("stderr", MFD_CLOEXEC);

    const struct bench_spawn how = {
        .argv = argv, .stdio = {-1, write_end, s.err}, .death_signal = SIGTERM};
    int r = bench_spawn(&how, &s.kid, e);

    if (r == 0) {
        bench_kid_enlist(&s.kid, SIGTERM);
        (void)close(TAKE_FD(write_end)); /* ours would hide its end of file */
        r = read_url(&s, e);
    }
    if (r < 0) {
        bench_server_stop(&s);
        return r;
    }
    *ret = s;
    return 0;
}

void bench_server_stop(struct bench_server *s)
{
    if (s->kid.pid > 0) {
        bench_kid_end(&s->kid, SIGTERM);
        (void)bench_spawn_sweep();
    }
    if (s->out > 0)
        (void)close(s->out);
    if (s->err > 0)
        (void)close(s->err);
    *s = (struct bench_server){.kid = {.pidfd = -1}, .out = -1, .err = -1};
}

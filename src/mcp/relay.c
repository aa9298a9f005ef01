/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relay: stdin and stdout carried to a unix socket. It reads no message: bytes go through as they
 * come, a bounded number of them in each direction, and neither direction waits for the other.
 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "mcp/lines.h"

#define HELD_MAX    (64U << 10)
#define CONNECT_S   10
#define FAREWELL_MS 10000 /* after stdin has ended, for the server's last words */

/* One direction: from -> bytes -> to. */
struct flow {
    int from, to;
    size_t start, end;
    bool has_ended; /* `from` has */
    bool is_broken; /* `to` takes no more */
    char bytes[HELD_MAX];
};

/* ---- the socket ---- */

static bool is_our_users(int fd)
{
    struct ucred c;
    socklen_t len = sizeof c;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &len) == 0 && c.uid == geteuid();
}

static int dial(const char *path, struct sp_err *e)
{
    const struct timeval patience = {.tv_sec = CONNECT_S};
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "make socket");
    if (strlen(path) >= sizeof un.sun_path)
        return sp_fail(e, SP_E_INVALID, 0, "%s is longer than %zu bytes", path,
                       sizeof un.sun_path - 1);
    memcpy(un.sun_path, path, strlen(path) + 1);
    /* A server with a full queue is waited for, not forever. */
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    while (connect(fd, (const struct sockaddr *)&un, sizeof un) < 0)
        if (errno != EINTR)
            return sp_fail(e, SP_E_SYSTEM, errno,
                           "connect to %s: is `sallyport mcp --listen unix://%s` running?", path,
                           path);
    if (!is_our_users(fd))
        return sp_fail(e, SP_E_INVALID, 0, "%s is another user's server", path);
    return TAKE_FD(fd);
}

/* ---- one direction ---- */

static bool is_empty(const struct flow *f)
{
    return f->start == f->end;
}

/* true: some bytes moved, or the end was met. */
static bool fill(struct flow *f)
{
    f->start = f->end = 0; /* only an empty one is filled */
    const ssize_t n = read(f->from, f->bytes, sizeof f->bytes);
    if (n > 0) {
        f->end = (size_t)n;
        return true;
    }
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return false;
    f->has_ended = true;
    return true;
}

/* Never waits: a socket is told so, and a pipe that is ready has room for so many bytes. */
static ssize_t send_some(int fd, const char *bytes, size_t n)
{
    const ssize_t sent = send(fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);

    if (sent >= 0 || errno != ENOTSOCK)
        return sent;
    return write(fd, bytes, n < PIPE_BUF ? n : PIPE_BUF);
}

static bool drain(struct flow *f)
{
    const ssize_t n = send_some(f->to, f->bytes + f->start, f->end - f->start);

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return false;
    if (n < 0)
        f->is_broken = true;
    else
        f->start += (size_t)n;
    return true;
}

/* What this direction waits for: to be filled while it is empty, to be drained while it is not. */
static void want(const struct flow *f, struct pollfd ret[2])
{
    const bool is_full = !is_empty(f);

    ret[0] = (struct pollfd){.fd = !is_full && !f->has_ended ? f->from : -1, .events = POLLIN};
    ret[1] = (struct pollfd){.fd = is_full && !f->is_broken ? f->to : -1, .events = POLLOUT};
}

static bool move(struct flow *f, const struct pollfd ready[2])
{
    if (ready[0].revents != 0)
        return fill(f);
    return ready[1].revents != 0 && drain(f);
}

/* ---- both ---- */

static uint64_t now_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static bool is_over(const struct flow *in, const struct flow *out)
{
    return (out->has_ended && is_empty(out)) || out->is_broken || in->is_broken;
}

/* true: both were carried to their ends. */
static bool carry(struct flow *in, struct flow *out)
{
    bool is_half_closed = false;
    uint64_t moved_ms = now_ms();

    while (!is_over(in, out)) {
        struct pollfd all[4];

        if (in->has_ended && is_empty(in) && !is_half_closed) {
            (void)shutdown(in->to, SHUT_WR); /* it is gone already: then reading says so */
            is_half_closed = true;
            moved_ms = now_ms();
        }
        want(in, all);
        want(out, all + 2);
        (void)poll(all, 4, is_half_closed ? FAREWELL_MS : -1);
        /* Each apart: a direction that stands still is no reason for the other to. */
        bool has_moved = move(in, all);
        has_moved |= move(out, all + 2);
        if (has_moved)
            moved_ms = now_ms();
        else if (is_half_closed && now_ms() - moved_ms >= FAREWELL_MS)
            break;
    }
    return in->has_ended;
}

int sp_mcp_relay(const char *path, struct sp_err *e)
{
    static struct flow in;
    static struct flow out;
    auto_close int fd = dial(path, e);

    if (fd < 0)
        return 1;
    (void)signal(SIGPIPE, SIG_IGN);
    in = (struct flow){.from = STDIN_FILENO, .to = fd};
    out = (struct flow){.from = fd, .to = STDOUT_FILENO};
    if (carry(&in, &out))
        return 0;
    if (out.is_broken)
        (void)sp_fail(e, SP_E_FAILED, 0, "nobody reads our stdout");
    else
        (void)sp_fail(e, SP_E_FAILED, 0, "the server behind %s has ended", path);
    return 1;
}

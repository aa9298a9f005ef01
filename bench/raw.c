/* SPDX-License-Identifier: Apache-2.0 */
#include "raw.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/auto.h"
#include "stats.h"

enum { MAX_WIDTH = 64, END_S = 10 };

static char path_var[] = "PATH=/usr/bin:/bin";
static char *const envp[] = {path_var, NULL};

/* Reads until nothing more comes: end of file, or a terminal that was hung up. */
static int drain(int fd, struct sp_err *e)
{
    char buf[4096];
    ssize_t n;

    do {
        n = read(fd, buf, sizeof buf);
        if (n < 0 && errno == EINTR && !bench_is_stopped())
            n = 1;
    } while (n > 0);
    if (n < 0 && errno != EIO)
        return sp_fail(e, SP_E_SYSTEM, errno, "read the command's output");
    return 0;
}

static int open_pty(int *ret_master, int *ret_slave, struct sp_err *e)
{
    auto_close int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);

    if (master < 0 || unlockpt(master) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "open terminal");
    *ret_slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (*ret_slave < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "open terminal peer");
    *ret_master = TAKE_FD(master);
    return 0;
}

/* /bin/true with two pipes. */
static int start_true(struct bench_kid *kid, int *ret_out, int *ret_err, struct sp_err *e)
{
    static char path[] = "/bin/true";
    char *const argv[] = {path, NULL};
    int out[2];
    int err[2];

    if (pipe2(out, O_CLOEXEC) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "pipe");
    auto_close int out_r = out[0];
    auto_close int out_w = out[1];
    if (pipe2(err, O_CLOEXEC) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "pipe");
    auto_close int err_r = err[0];
    auto_close int err_w = err[1];

    const struct bench_spawn how = {
        .argv = argv, .envp = envp, .stdio = {-1, out_w, err_w}, .death_signal = SIGKILL};
    const int r = bench_spawn(&how, kid, e);

    if (r < 0)
        return r;
    *ret_out = TAKE_FD(out_r);
    *ret_err = TAKE_FD(err_r);
    return 0;
}

static int true_on_pipes(struct sp_err *e)
{
    auto_close int out = -1;
    auto_close int err = -1;
    struct bench_kid kid;
    int r = start_true(&kid, &out, &err, e);

    if (r < 0)
        return r;
    if ((r = drain(out, e)) == 0)
        r = drain(err, e);
    if (r < 0) {
        bench_kid_end(&kid, SIGKILL);
        return r;
    }
    return bench_kid_reap(&kid, END_S * BENCH_S, NULL, e);
}

static int true_on_pty(struct sp_err *e)
{
    static char path[] = "/bin/true";
    char *const argv[] = {path, NULL};
    struct bench_raw_child c;
    int r = bench_raw_start(&c, argv, true, e);

    if (r < 0)
        return r;
    r = drain(c.out, e);
    if (r == 0)
        r = bench_kid_reap(&c.kid, END_S * BENCH_S, NULL, e);
    bench_raw_end(&c);
    return r;
}

int bench_raw_true(bool is_tty, struct sp_err *e)
{
    return is_tty ? true_on_pty(e) : true_on_pipes(e);
}

/* ---- many at a time ---- */

struct slot {
    struct bench_kid kid;
    int fd[2];
    int pending; /* of: stdout, stderr, the exit */
};

static int watch(int epoll, int fd, uint32_t slot, uint32_t what, struct sp_err *e)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.u32 = slot << 2 | what};

    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &ev) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "watch");
    return 0;
}

static int slot_start(int epoll, struct slot *s, uint32_t index, struct sp_err *e)
{
    int r = start_true(&s->kid, &s->fd[0], &s->fd[1], e);

    if (r == 0)
        s->pending = 3;
    for (uint32_t i = 0; r == 0 && i < 2; i++)
        r = watch(epoll, s->fd[i], index, i, e);
    return r < 0 ? r : watch(epoll, s->kid.pidfd, index, 2, e);
}

static int slot_event(int epoll, struct slot *s, uint32_t what, struct sp_err *e)
{
    const int fd = what == 2 ? s->kid.pidfd : s->fd[what];
    int r;

    /* By hand: a child that is just being started may hold a copy, and closing is not enough. */
    (void)epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL);
    if (what == 2) {
        r = bench_kid_reap(&s->kid, END_S * BENCH_S, NULL, e);
    } else {
        r = drain(s->fd[what], e); /* /bin/true says nothing: readable means ended */
        (void)close(s->fd[what]);
        s->fd[what] = -1;
    }
    s->pending--;
    return r;
}

static void slot_done(struct slot *s)
{
    for (int i = 0; i < 2; i++)
        if (s->fd[i] >= 0)
            (void)close(s->fd[i]);
    bench_kid_end(&s->kid, SIGKILL);
}

int bench_raw_many(int width, uint64_t budget_ns, double *ret_per_s, struct sp_err *e)
{
    struct slot slots[MAX_WIDTH];
    const uint64_t begin = bench_now();
    auto_close int epoll = epoll_create1(EPOLL_CLOEXEC);
    uint64_t ended = 0;
    int live = 0;
    int r = epoll < 0 ? sp_fail(e, SP_E_SYSTEM, errno, "epoll") : 0;

    for (int i = 0; i < width; i++)
        slots[i] = (struct slot){.kid.pidfd = -1, .fd = {-1, -1}};
    for (int i = 0; r == 0 && i < width; i++, live++)
        r = slot_start(epoll, &slots[i], (uint32_t)i, e);
    while (r == 0 && live > 0) {
        struct epoll_event ev[MAX_WIDTH];
        const int n = epoll_wait(epoll, ev, MAX_WIDTH, END_S * 1000);

        if (n == 0 || bench_is_stopped())
            r = sp_fail(e, SP_E_LIMIT, 0, "the commands do not end");
        for (int i = 0; r == 0 && i < n; i++) {
            const uint32_t index = ev[i].data.u32 >> 2;
            struct slot *s = &slots[index];

            r = slot_event(epoll, s, ev[i].data.u32 & 3, e);
            if (r < 0 || s->pending > 0)
                continue;
            ended++;
            live--;
            if (bench_now() - begin < budget_ns) {
                r = slot_start(epoll, s, index, e);
                live++;
            }
        }
    }
    for (int i = 0; i < width; i++)
        slot_done(&slots[i]);
    if (r == 0)
        *ret_per_s = (double)ended * 1e9 / (double)(bench_now() - begin);
    return r;
}

/* ---- one line, one byte ---- */

int bench_raw_first_line(struct sp_err *e)
{
    static char path[] = "/bin/echo";
    static char word[] = "ready";
    char *const argv[] = {path, word, NULL};
    struct bench_kid kid;
    int fds[2];
    char buf[64];

    if (pipe2(fds, O_CLOEXEC) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "pipe");

    auto_close int from = fds[0];
    const struct bench_spawn how = {
        .argv = argv, .envp = envp, .stdio = {-1, fds[1], -1}, .death_signal = SIGKILL};
    int r = bench_spawn(&how, &kid, e);

    (void)close(fds[1]);
    if (r < 0)
        return r;
    if (read(from, buf, sizeof buf) <= 0)
        r = sp_fail(e, SP_E_FAILED, 0, "no first line");
    bench_kid_end(&kid, SIGKILL);
    return r;
}

int bench_raw_start(struct bench_raw_child *ret, char *const *argv, bool is_tty, struct sp_err *e)
{
    struct bench_raw_child c = {.in = -1, .out = -1};
    auto_close int theirs_in = -1;
    auto_close int theirs_out = -1;
    int there[2];
    int back[2];
    int r = 0;

    if (is_tty) {
        r = open_pty(&c.in, &theirs_in, e);
        if (r < 0)
            return r;
        c.out = c.in;
    } else {
        if (pipe2(there, O_CLOEXEC) < 0)
            return sp_fail(e, SP_E_SYSTEM, errno, "pipe");
        c.in = there[1];
        theirs_in = there[0];
        if (pipe2(back, O_CLOEXEC) < 0) {
            (void)close(c.in);
            return sp_fail(e, SP_E_SYSTEM, errno, "pipe");
        }
        c.out = back[0];
        theirs_out = back[1];
    }

    const int out = is_tty ? theirs_in : theirs_out;
    const struct bench_spawn how = {.argv = argv,
                                    .envp = envp,
                                    .stdio = {theirs_in, out, is_tty ? out : -1},
                                    .is_tty = is_tty,
                                    .death_signal = SIGKILL};
    r = bench_spawn(&how, &c.kid, e);
    if (r < 0) {
        (void)close(c.in);
        if (c.out != c.in)
            (void)close(c.out);
        return r;
    }
    *ret = c;
    return 0;
}

int bench_raw_echo(struct bench_raw_child *c, struct sp_err *e)
{
    char byte = 'x';

    if (write(c->in, &byte, 1) != 1 || read(c->out, &byte, 1) != 1)
        return sp_fail(e, SP_E_SYSTEM, errno, "echo");
    return 0;
}

void bench_raw_end(struct bench_raw_child *c)
{
    bench_kid_end(&c->kid, SIGKILL);
    (void)close(c->in);
    if (c->out != c->in)
        (void)close(c->out);
}

int bench_raw_dial(const char *url, int *ret_fd, struct sp_err *e)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval wait = {.tv_sec = END_S};
    const char *colon = strrchr(url, ':');
    const int on = 1;
    auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    a.sin_port = htons(colon == NULL ? 0 : (uint16_t)strtoul(colon + 1, NULL, 10));
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "connect to %s", url);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

int bench_raw_ping(int fd, struct sp_err *e)
{
    char byte = 'x';

    if (send(fd, &byte, 1, MSG_NOSIGNAL) != 1 || recv(fd, &byte, 1, 0) != 1)
        return sp_fail(e, SP_E_SYSTEM, errno, "ping");
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* dial: parses a server's URL, looks up its name in a thread, and tries its addresses in turn. */
#include "engine/remote/dial.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/auto.h"
#include "base/redact.h"
#include "base/str.h"

struct lookup_answer {
    int error;     /* result of getaddrinfo */
    int sys_error; /* errno, if error is EAI_SYSTEM */
    uint32_t count;
    union sp_dial_address addresses[SP_DIAL_ADDRESSES];
};

#define SHOWN 300 /* longest URL in a message */

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Sent in the request line and a header without quoting. */
static bool is_plain(const char *text)
{
    for (const char *p = text; *p != 0; p++)
        if (*p <= ' ' || *p >= 0x7F)
            return false;
    return true;
}

/* HOST or [HOST], perhaps with :PORT. false: neither. */
static bool split_host(struct sp_str text, struct sp_target *ret)
{
    const bool is_bracketed = text.n != 0 && text.p[0] == '[';
    const char *end = is_bracketed ? memchr(text.p, ']', text.n) : memchr(text.p, ':', text.n);
    const size_t n = end == NULL ? text.n : (size_t)(end - text.p);
    struct sp_str host = {text.p, n};
    struct sp_str rest = {text.p + n, text.n - n};
    uint64_t port = 80;

    if (is_bracketed) {
        if (end == NULL)
            return false;
        host = (struct sp_str){host.p + 1, host.n - 1};
        rest = (struct sp_str){rest.p + 1, rest.n - 1};
    }
    if (host.n == 0 || host.n > SP_TARGET_MAX_HOST)
        return false;
    if (rest.n != 0 && (rest.p[0] != ':' ||
                        !sp_str_to_u64((struct sp_str){rest.p + 1, rest.n - 1}, UINT16_MAX, &port)))
        return false;
    memcpy(ret->host, host.p, host.n);
    ret->is_bracketed = is_bracketed;
    ret->port = (uint16_t)port;
    return port != 0;
}

int sp_target_parse(const char *url, struct sp_target *ret, struct sp_err *e)
{
    struct sp_target t = {0};
    char shown[SHOWN];

    (void)sp_redact_url_to(url, shown, sizeof shown);
    if (begins(url, "wss://"))
        return sp_fail(e, SP_E_INVALID, 0,
                       "`%s`: TLS is not spoken here; run the server through ssh (program = ssh, "
                       "HOST, sallyport, serve, --listen, stdio), or forward its socket with "
                       "ssh -L and use unix:///PATH",
                       shown);
    if (begins(url, "unix://")) {
        const char *path = url + strlen("unix://");

        if (path[0] != '/')
            return sp_fail(e, SP_E_INVALID, 0, "`%s` has no absolute path; write unix:///PATH",
                           url);
        if (strlen(path) >= sizeof t.un.sun_path)
            return sp_fail(e, SP_E_INVALID, 0,
                           "the path of `%s` is too long for a socket (%zu bytes)", url,
                           sizeof t.un.sun_path - 1);
        t.is_unix = true;
        t.un.sun_family = AF_UNIX;
        (void)snprintf(t.un.sun_path, sizeof t.un.sun_path, "%s", path);
    } else if (begins(url, "ws://")) {
        const char *text = url + strlen("ws://");
        const size_t n = strcspn(text, "/?#");
        const char *path = text + n;

        if (!is_plain(text) || memchr(text, '@', n) != NULL || strchr(path, '#') != NULL ||
            !split_host((struct sp_str){text, n}, &t))
            return sp_fail(e, SP_E_INVALID, 0, "`%s` is no URL of a server; write ws://HOST:PORT",
                           shown);
        if (strlen(path) > SP_TARGET_MAX_PATH - 1)
            return sp_fail(e, SP_E_INVALID, 0, "the path of `%.60s...` is too long", shown);
        (void)snprintf(t.path, sizeof t.path, "%s%s", path[0] == '?' ? "/" : "", path);
    } else {
        return sp_fail(e, SP_E_INVALID, 0,
                       "`%s` is no URL of a server; write ws://HOST:PORT or unix:///PATH", shown);
    }
    *ret = t;
    return 0;
}

struct question {
    char host[SP_TARGET_MAX_HOST + 1];
    char port[8];
    int fd;
};

_Static_assert(sizeof(struct lookup_answer) <= 4096, "one write into a pipe is whole");

static void *look_up_thread(void *p)
{
    struct question *q = p;
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICSERV | AI_ADDRCONFIG};
    struct lookup_answer a = {0};
    struct addrinfo *list = NULL;

    a.error = getaddrinfo(q->host, q->port, &hints, &list);
    a.sys_error = a.error == EAI_SYSTEM ? errno : 0;
    if (a.error == 0) {
        for (const struct addrinfo *i = list; i != NULL && a.count < SP_DIAL_ADDRESSES;
             i = i->ai_next)
            if (i->ai_addrlen <= sizeof a.addresses[0])
                memcpy(&a.addresses[a.count++], i->ai_addr, i->ai_addrlen);
        freeaddrinfo(list);
    }
    (void)!write(q->fd, &a, sizeof a); /* the reader may have closed its end */
    (void)close(q->fd);
    free(q);
    return NULL;
}

/* *ret_fd becomes readable with one struct lookup_answer, or ends without one. Nothing else is
 * shared with the thread: a caller that gives up closes its end. */
static int start_lookup(const char *host, uint16_t port, int *ret_fd, struct sp_err *e)
{
    int ends[2];
    auto_free struct question *q = calloc(1, sizeof *q);
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all;
    sigset_t old;

    if (q == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "look up %s", host);
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "look up %s", host);
    (void)snprintf(q->host, sizeof q->host, "%s", host);
    (void)snprintf(q->port, sizeof q->port, "%u", port);
    q->fd = ends[1];
    int err = pthread_attr_init(&attr);
    if (err == 0) {
        (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
        /* The thread blocks all signals: they belong to the program that embeds us. */
        (void)sigfillset(&all);
        (void)pthread_sigmask(SIG_SETMASK, &all, &old);
        err = pthread_create(&thread, &attr, look_up_thread, q);
        (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
        (void)pthread_attr_destroy(&attr);
    }
    if (err != 0) {
        (void)close(ends[0]);
        (void)close(ends[1]);
        return sp_fail(e, SP_E_SYSTEM, err, "look up %s", host);
    }
    (void)TAKE_PTR(q);
    *ret_fd = ends[0];
    return 0;
}

#define BUSY_MS 20U /* retry of a unix socket with a full backlog */

static void on_step(struct sp_deferred *d);

void sp_dial_stop(struct sp_dial *d)
{
    if (d->loop == NULL)
        return;
    sp_loop_unwatch(d->loop, &d->watch);
    sp_loop_cancel(d->loop, &d->timer);
    sp_loop_undefer(d->loop, &d->step);
    if (d->fd >= 0)
        (void)close(TAKE_FD(d->fd));
}

static void finish_dial(struct sp_dial *d, int fd)
{
    const struct sp_err e = d->error;

    sp_dial_stop(d);
    d->done(d, fd, fd < 0 ? &e : NULL);
}

/* This address failed: try the next one. */
static void try_next(struct sp_dial *d)
{
    sp_loop_unwatch(d->loop, &d->watch);
    if (d->fd >= 0)
        (void)close(TAKE_FD(d->fd));
    if (d->next >= d->count)
        finish_dial(d, -1);
    else
        sp_loop_defer(d->loop, &d->step, on_step);
}

/* Connected: hands the socket to the caller. The server receives commands, files and tokens, so the
 * peer of a unix socket must run as our user or root. */
static void accept_socket(struct sp_dial *d)
{
    struct ucred c = {.uid = (uid_t)-1};
    socklen_t size = sizeof c;

    if (d->target->is_unix && getsockopt(d->fd, SOL_SOCKET, SO_PEERCRED, &c, &size) < 0) {
        (void)sp_fail(&d->error, SP_E_SYSTEM, errno, "read the user of the server");
        try_next(d);
    } else if (d->target->is_unix && c.uid != geteuid() && c.uid != 0) {
        (void)sp_fail(&d->error, SP_E_INVALID, 0,
                      "the server there runs as uid %u (pid %d), not as uid %u or root: it is not "
                      "trusted; run this command as that user, or the server as this one",
                      (unsigned)c.uid, (int)c.pid, (unsigned)geteuid());
        try_next(d);
    } else {
        finish_dial(d, TAKE_FD(d->fd));
    }
}

static void on_connected(struct sp_watch *w, uint32_t events)
{
    struct sp_dial *d = SP_CONTAINER(w, struct sp_dial, watch);
    socklen_t size = sizeof(int);
    int err = 0;

    (void)events;
    if (getsockopt(d->fd, SOL_SOCKET, SO_ERROR, &err, &size) < 0)
        err = errno;
    if (err == 0) {
        accept_socket(d);
        return;
    }
    (void)sp_fail(&d->error, SP_E_SYSTEM, err, "connect");
    try_next(d);
}

/* Each address gets an equal share of the remaining time. */
static bool arm(struct sp_dial *d, void (*fn)(struct sp_timer *))
{
    const uint64_t now = sp_loop_now(d->loop);
    const uint64_t left = d->deadline_ms > now ? d->deadline_ms - now : 0;
    const uint32_t shares = d->count > d->next ? d->count - d->next + 1 : 1;

    return sp_loop_timer(d->loop, &d->timer, now + left / shares, fn);
}

static void on_too_late(struct sp_timer *t)
{
    struct sp_dial *d = SP_CONTAINER(t, struct sp_dial, timer);

    (void)sp_fail(&d->error, SP_E_SYSTEM, ETIMEDOUT,
                  d->is_looking_up ? "look up the name" : "connect");
    try_next(d);
}

static void on_retry(struct sp_timer *t)
{
    struct sp_dial *d = SP_CONTAINER(t, struct sp_dial, timer);

    if (sp_loop_now(d->loop) >= d->deadline_ms) {
        (void)sp_fail(&d->error, SP_E_SYSTEM, EAGAIN, "connect");
        finish_dial(d, -1);
        return;
    }
    d->next = 0;
    sp_loop_defer(d->loop, &d->step, on_step);
}

static void try_address(struct sp_dial *d)
{
    const union sp_dial_address *a = &d->addresses[d->next++];
    const int family = a->any.sa_family;
    const socklen_t size = family == AF_UNIX    ? sizeof a->un
                           : family == AF_INET6 ? sizeof a->in6
                                                : sizeof a->in;
    const int on = 1;

    d->fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (d->fd >= 0 && family != AF_UNIX)
        (void)setsockopt(d->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* latency */
    if (d->fd >= 0 && connect(d->fd, &a->any, size) == 0) {
        accept_socket(d);
        return;
    }
    if (d->fd >= 0 && errno == EAGAIN && family == AF_UNIX) {
        (void)close(TAKE_FD(d->fd));
        if (sp_loop_timer(d->loop, &d->timer, sp_loop_now(d->loop) + BUSY_MS, on_retry))
            return;
        errno = ENOMEM;
    }
    if (d->fd >= 0 && (errno == EINPROGRESS || errno == EINTR)) {
        if (arm(d, on_too_late) &&
            sp_loop_watch(d->loop, &d->watch, d->fd, EPOLLOUT, on_connected, &d->error) == 0)
            return;
        errno = ENOMEM;
    }
    (void)sp_fail(&d->error, SP_E_SYSTEM, errno, "connect");
    try_next(d);
}

static void on_looked_up(struct sp_watch *w, uint32_t events)
{
    struct sp_dial *d = SP_CONTAINER(w, struct sp_dial, watch);
    struct lookup_answer a = {0};
    const ssize_t n = read(d->fd, &a, sizeof a);

    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    d->is_looking_up = false;
    if (n != (ssize_t)sizeof a)
        (void)sp_fail(&d->error, SP_E_FAILED, 0, "look up %s: no answer", d->target->host);
    else if (a.error != 0 || a.count == 0)
        (void)sp_fail(&d->error, SP_E_NOT_FOUND, a.sys_error, "look up %s: %s", d->target->host,
                      a.error == 0 ? "no address" : gai_strerror(a.error));
    else
        memcpy(d->addresses, a.addresses, sizeof d->addresses);
    d->count = n == (ssize_t)sizeof a && a.error == 0 ? a.count : 0;
    try_next(d); /* closes the pipe and goes on with the addresses */
}

static void on_step(struct sp_deferred *step)
{
    struct sp_dial *d = SP_CONTAINER(step, struct sp_dial, step);

    if (d->next < d->count) {
        try_address(d);
        return;
    }
    if (start_lookup(d->target->host, d->target->port, &d->fd, &d->error) < 0 ||
        sp_loop_watch(d->loop, &d->watch, d->fd, EPOLLIN, on_looked_up, &d->error) < 0) {
        try_next(d);
        return;
    }
    d->is_looking_up = true;
    if (!arm(d, on_too_late)) {
        (void)sp_fail(&d->error, SP_E_SYSTEM, ENOMEM, "look up %s", d->target->host);
        try_next(d);
    }
}

/* Addresses and localhost need no look-up. */
void sp_dial_begin(struct sp_dial *d, uint64_t timeout_ms)
{
    const char *host = d->target->host;
    const bool is_localhost = sp_str_eq_nocase(sp_str_of(host), SP_STR("localhost"));
    struct sockaddr_in v4 = {.sin_family = AF_INET,
                             .sin_addr = {htonl(INADDR_LOOPBACK)},
                             .sin_port = htons(d->target->port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6,
                              .sin6_addr = in6addr_loopback,
                              .sin6_port = htons(d->target->port)};

    d->deadline_ms = sp_loop_now(d->loop) + timeout_ms;
    d->next = 0;
    d->fd = -1;
    d->is_looking_up = false;
    d->count = 0;
    if (d->target->is_unix)
        d->addresses[d->count++].un = d->target->un;
    else if (is_localhost || inet_pton(AF_INET, host, &v4.sin_addr) == 1)
        d->addresses[d->count++].in = v4;
    if (!d->target->is_unix && (is_localhost || inet_pton(AF_INET6, host, &v6.sin6_addr) == 1))
        d->addresses[d->count++].in6 = v6;
    sp_loop_defer(d->loop, &d->step, on_step);
}

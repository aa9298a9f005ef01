/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proxy_dial: which addresses of a host may be reached, and connecting to one of them.
 *
 * Every address is judged before any is tried, and only judged addresses are tried: a name that is
 * looked up again may mean another address. Attempts begin 250 ms apart, families alternating, and
 * the first that succeeds wins.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proxy/proxy_priv.h"

#define ATTEMPTS_MAX 8U
#define NEXT_MS      250
#define ALL_MS       30000
#define UPSTREAM_MAX (16U << 10) /* of the head of an upstream proxy's answer */
#define ANY_PORT     9           /* of datagram sockets that send nothing */

struct attempt {
    struct sp_proxy_dial *dial;
    struct sp_watch watch;
    int fd;
};

struct dial_address {
    int family;
    uint8_t bytes[16];
    uint16_t port;
    bool is_public; /* because the table of tests says so */
};

struct sp_proxy_dial {
    struct sp_proxy_conn *c;
    struct sp_proxy_lookup_wait wait;
    const struct sp_proxy_upstream *upstream; /* NULL: direct */
    bool is_looking_up_upstream;
    struct dial_address addresses[SP_RESOLVER_ADDRESSES];
    uint32_t count, next, running;
    struct attempt attempts[ATTEMPTS_MAX];
    int error; /* errno of the most telling attempt */
    struct sp_timer next_timer, all_timer;
    /* the upstream proxy's answer to CONNECT */
    int fd;
    struct sp_watch watch;
    struct sp_buf in, out;
    size_t scanned;
};

static void end_attempts(struct sp_proxy_dial *d, int but)
{
    for (uint32_t i = 0; i < d->next; i++) {
        struct attempt *a = &d->attempts[i];

        sp_loop_unwatch(d->c->p->loop, &a->watch);
        if (a->fd >= 0 && a->fd != but)
            (void)close(a->fd);
        a->fd = -1;
    }
}

void sp_proxy_dial_free(struct sp_proxy_conn *c)
{
    struct sp_proxy_dial *d = c->dial;

    if (d == NULL)
        return;
    c->dial = NULL;
    sp_proxy_lookup_cancel(&d->wait);
    end_attempts(d, -1);
    sp_loop_unwatch(c->p->loop, &d->watch);
    if (d->fd >= 0)
        (void)close(d->fd);
    sp_loop_cancel(c->p->loop, &d->next_timer);
    sp_loop_cancel(c->p->loop, &d->all_timer);
    sp_buf_done(&d->in);
    sp_buf_done(&d->out);
    free(d);
}

/* Whether the upstream proxy gets the request itself. For an upgrade it makes a tunnel: behind a
 * 101 the client's bytes pass unread, and a proxy that did not take part in the upgrade would read
 * requests to other hosts in them. */
static bool is_for_upstream(const struct sp_proxy_conn *c)
{
    return c->speech == SP_PROXY_SAYS_HTTP && !c->http->head.is_upgrade;
}

/* Ends the dial, with a descriptor or with an outcome. */
static void finish(struct sp_proxy_dial *d, int fd, enum sp_proxy_outcome outcome,
                   enum sp_network_reason reason)
{
    struct sp_proxy_conn *c = d->c;
    struct sp_buf early = d->in;

    d->in = (struct sp_buf){0};
    c->is_by_upstream = fd >= 0 && d->upstream != NULL && is_for_upstream(c);
    sp_proxy_dial_free(c);
    sp_proxy_conn_dialled(c, fd, outcome, reason);
    if (c->state == SP_PROXY_AT_TUNNEL && early.len != 0) {
        c->server.in = early; /* what the server said through the upstream proxy */
    } else {
        sp_buf_done(&early);
    }
    sp_proxy_conn_run(c);
}

/* ---- addresses ---- */

static socklen_t sockaddr_of(const struct dial_address *a, uint16_t port,
                             struct sockaddr_storage *ret)
{
    *ret = (struct sockaddr_storage){0};
    if (a->family == AF_INET) {
        struct sockaddr_in *in = (struct sockaddr_in *)ret;

        in->sin_family = AF_INET;
        in->sin_port = htons(port);
        memcpy(&in->sin_addr, a->bytes, 4);
        return sizeof *in;
    }
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ret;
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(port);
    memcpy(&in6->sin6_addr, a->bytes, 16);
    return sizeof *in6;
}

/* IPv4 in the clothes of IPv6 is judged and reached as IPv4. */
static void unmap(struct dial_address *a)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

    if (a->family != AF_INET6 || memcmp(a->bytes, mapped, sizeof mapped) != 0)
        return;
    memmove(a->bytes, a->bytes + sizeof mapped, 4);
    a->family = AF_INET;
}

/* The kernel routes to its own addresses from the same address; the unspecified one means
 * loopback. Without a descriptor to find out, the address counts as our own. */
static bool is_own(const struct dial_address *a)
{
    static const uint8_t zeroes[16];
    struct sockaddr_storage to;
    struct sockaddr_storage from = {0};
    const size_t n = a->family == AF_INET ? 4 : 16;
    socklen_t size = sockaddr_of(a, ANY_PORT, &to);

    if ((a->family == AF_INET && a->bytes[0] == 127) || memcmp(a->bytes, zeroes, n) == 0 ||
        (a->family == AF_INET6 && memcmp(a->bytes, zeroes, 15) == 0 && a->bytes[15] == 1))
        return true;
    const int fd = socket(a->family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool is_own = fd < 0;
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&to, size) == 0 &&
        getsockname(fd, (struct sockaddr *)&from, &size) == 0) {
        const void *source = a->family == AF_INET
                                 ? (const void *)&((struct sockaddr_in *)&from)->sin_addr
                                 : (const void *)&((struct sockaddr_in6 *)&from)->sin6_addr;

        is_own = memcmp(source, a->bytes, n) == 0;
    }
    if (fd >= 0)
        (void)close(fd);
    return is_own;
}

static bool is_own_port(const struct sp_proxy *p, uint16_t port)
{
    for (uint32_t i = 0; i < p->port_count; i++)
        if (p->own_ports[i] == port)
            return true;
    return false;
}

static bool may_reach(const struct sp_proxy_conn *c, const struct dial_address *a)
{
    const bool is_literal = (c->verdict_flags & SP_PROXY_LITERAL) != 0;
    const bool may_be_local = is_literal || (c->verdict_flags & SP_PROXY_LOCAL) != 0;

    if (is_own_port(c->p, a->port) && is_own(a))
        return false;
    if (a->is_public)
        return true;
    if (!is_literal && sp_address_is_metadata(a->family, a->bytes))
        return false;
    if (!may_be_local && sp_address_is_local(a->family, a->bytes))
        return false;
    return may_be_local || !is_own(a);
}

/* What only builds for tests believe of the resolver. */
static void take_test_hooks(struct dial_address *a, const struct sp_resolver_address *from)
{
#ifdef SP_TEST_HOOKS
    a->is_public = from->is_public != 0;
    if (from->port != 0)
        a->port = from->port;
#else
    (void)a;
    (void)from;
#endif
}

/* The table of tests may lead each port elsewhere; in the world the port does not matter. */
static uint16_t lookup_port(uint16_t port)
{
#ifdef SP_TEST_HOOKS
    return port;
#else
    (void)port;
    return 0;
#endif
}

static void take_addresses(struct sp_proxy_dial *d, const struct sp_resolver_answer *answer,
                           uint16_t port)
{
    d->count = 0;
    for (uint32_t i = 0; i < answer->count; i++) {
        const struct sp_resolver_address *from = &answer->addresses[i];
        struct dial_address *to = &d->addresses[d->count++];

        *to = (struct dial_address){.family = from->family == 4 ? AF_INET : AF_INET6, .port = port};
        memcpy(to->bytes, from->bytes, sizeof to->bytes);
        take_test_hooks(to, from);
        unmap(to);
    }
}

/* The resolver's order within a family is kept. */
static void alternate(struct sp_proxy_dial *d)
{
    struct dial_address sorted[SP_RESOLVER_ADDRESSES] = {0};
    uint32_t n = 0;
    int family = d->addresses[0].family;
    bool is_taken[SP_RESOLVER_ADDRESSES] = {false};

    while (n < d->count) {
        uint32_t i = 0;

        while (i < d->count && (is_taken[i] || d->addresses[i].family != family))
            i++;
        if (i < d->count) {
            is_taken[i] = true;
            sorted[n++] = d->addresses[i];
        }
        family = family == AF_INET ? AF_INET6 : AF_INET;
    }
    memcpy(d->addresses, sorted, n * sizeof sorted[0]);
    if (d->count > ATTEMPTS_MAX)
        d->count = ATTEMPTS_MAX;
}

/* ---- the upstream proxy's answer ---- */

static void take_upstream(struct sp_proxy_dial *d, size_t n)
{
    struct sp_http1_head *r = &d->c->p->head;
    struct sp_http1_refusal why = {0};
    const struct sp_str head = {d->in.data, n};
    const bool is_read = sp_http1_read_response(head, SP_STR("CONNECT"), r, &why);

    if (is_read && r->status >= 200 && r->status < 300) {
        sp_buf_drop(&d->in, n);
        sp_loop_unwatch(d->c->p->loop, &d->watch);
        finish(d, TAKE_FD(d->fd), SP_PROXY_REACHED, SP_NETWORK_REASON_NONE);
        return;
    }
    d->c->upstream_status = is_read ? r->status : 0;
    finish(d, -1, SP_PROXY_UPSTREAM, SP_NETWORK_REASON_NONE);
}

static void on_upstream(struct sp_watch *w, uint32_t events)
{
    struct sp_proxy_dial *d = SP_CONTAINER(w, struct sp_proxy_dial, watch);
    const ssize_t sent = d->out.len == 0 ? 0 : sp_proxy_send(d->fd, d->out.data, d->out.len);

    if (sent > 0)
        sp_buf_drop(&d->out, (size_t)sent);
    if (d->out.len == 0)
        sp_loop_rewatch(d->c->p->loop, w, EPOLLIN);
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0)
        return;
    char *room = d->in.len >= UPSTREAM_MAX ? NULL : sp_buf_room(&d->in, 4096);
    const ssize_t n = room == NULL ? 0 : read(d->fd, room, 4096);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        finish(d, -1, SP_PROXY_UPSTREAM, SP_NETWORK_REASON_NONE);
        return;
    }
    d->in.len += (size_t)n;
    const size_t head = sp_http1_head_length(sp_buf_str(&d->in), &d->scanned);
    if (head != 0)
        take_upstream(d, head);
}

static void ask_upstream(struct sp_proxy_dial *d, int fd)
{
    d->fd = fd;
    if (!sp_proxy_upstream_request(d->c, d->upstream, &d->out) ||
        sp_loop_watch(d->c->p->loop, &d->watch, fd, EPOLLIN | EPOLLOUT, on_upstream, NULL) < 0)
        finish(d, -1, SP_PROXY_UPSTREAM, SP_NETWORK_REASON_NONE);
}

/* ---- attempts ---- */

static enum sp_proxy_outcome outcome_of(int error)
{
    switch (error) {
    case ECONNREFUSED:
        return SP_PROXY_REFUSED;
    case ETIMEDOUT:
        return SP_PROXY_TIMED_OUT;
    default:
        return SP_PROXY_UNREACHABLE;
    }
}

static void connected(struct sp_proxy_dial *d, uint32_t i)
{
    struct sp_proxy_conn *c = d->c;
    const struct dial_address *a = &d->addresses[i];
    const int fd = d->attempts[i].fd;

    c->family = a->family == AF_INET ? 4 : 6;
    memcpy(c->address, a->bytes, sizeof c->address);
    sp_loop_cancel(c->p->loop, &d->next_timer);
    end_attempts(d, fd);
    if (d->upstream != NULL && !is_for_upstream(c))
        ask_upstream(d, fd);
    else
        finish(d, fd, SP_PROXY_REACHED, SP_NETWORK_REASON_NONE);
}

static void start_next(struct sp_timer *t);

/* One attempt failed: the next begins at once. A refusal says more than any other error. */
static void attempt_failed(struct sp_proxy_dial *d, int error)
{
    if (d->error != ECONNREFUSED)
        d->error = error;
    if (d->next < d->count)
        start_next(&d->next_timer);
    else if (d->running == 0)
        finish(d, -1, outcome_of(d->error), SP_NETWORK_REASON_NONE);
}

static void on_attempt(struct sp_watch *w, uint32_t events)
{
    struct attempt *a = SP_CONTAINER(w, struct attempt, watch);
    struct sp_proxy_dial *d = a->dial;
    int error = 0;
    socklen_t n = sizeof error;

    (void)events;
    if (getsockopt(a->fd, SOL_SOCKET, SO_ERROR, &error, &n) < 0)
        error = errno;
    if (error == 0) {
        connected(d, (uint32_t)(a - d->attempts));
        return;
    }
    sp_loop_unwatch(d->c->p->loop, &a->watch);
    (void)close(a->fd);
    a->fd = -1;
    d->running--;
    attempt_failed(d, error);
}

/* 0, or an errno. */
static int start_attempt(struct sp_proxy_dial *d, uint32_t i)
{
    const struct dial_address *to = &d->addresses[i];
    struct attempt *a = &d->attempts[i];
    struct sockaddr_storage at;
    const socklen_t n = sockaddr_of(to, to->port, &at);

    a->dial = d;
    a->fd = socket(to->family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (a->fd < 0)
        return errno;
    int error = connect(a->fd, (const struct sockaddr *)&at, n) == 0 ? 0 : errno;
    if ((error == 0 || error == EINPROGRESS) &&
        sp_loop_watch(d->c->p->loop, &a->watch, a->fd, EPOLLOUT, on_attempt, NULL) == 0) {
        d->running++;
        return 0;
    }
    (void)close(a->fd);
    a->fd = -1;
    return error == 0 || error == EINPROGRESS ? ENOMEM : error;
}

static void start_next(struct sp_timer *t)
{
    struct sp_proxy_dial *d = SP_CONTAINER(t, struct sp_proxy_dial, next_timer);
    struct sp_loop *loop = d->c->p->loop;
    int error = 0;

    sp_loop_cancel(loop, t);
    while (d->next < d->count) {
        const int one = start_attempt(d, d->next++);

        if (one == 0) {
            if (d->next < d->count) /* without memory: the next begins when this one fails */
                (void)sp_loop_timer(loop, t, sp_loop_now(loop) + NEXT_MS, start_next);
            return;
        }
        error = one;
    }
    attempt_failed(d, error);
}

static void give_up(struct sp_timer *t)
{
    struct sp_proxy_dial *d = SP_CONTAINER(t, struct sp_proxy_dial, all_timer);

    finish(d, -1, SP_PROXY_TIMED_OUT, SP_NETWORK_REASON_NONE);
}

static void start(struct sp_proxy_dial *d)
{
    struct sp_loop *loop = d->c->p->loop;

    alternate(d);
    if (!sp_loop_timer(loop, &d->all_timer, sp_loop_now(loop) + ALL_MS, give_up))
        finish(d, -1, SP_PROXY_UNREACHABLE, SP_NETWORK_REASON_NONE);
    else
        start_next(&d->next_timer);
}

/* ---- names ---- */

static void look_up(struct sp_proxy_dial *d, const char *host, uint16_t port);

/* The target's addresses are only checked if an upstream proxy reaches it. A name that the host
 * cannot look up is the upstream proxy's business, unless the settings say otherwise. */
static void take_target(struct sp_proxy_dial *d, const struct sp_resolver_answer *answer)
{
    struct sp_proxy_conn *c = d->c;
    const struct sp_proxy_upstream *upstream = sp_proxy_upstream_for(c);
    bool is_local = false;

    take_addresses(d, answer, c->port);
    if (answer->status != SP_RESOLVER_FOUND &&
        (upstream == NULL || (c->p->flags & SP_PROXY_UPSTREAM_STRICT) != 0)) {
        finish(d, -1, SP_PROXY_UNRESOLVED, SP_NETWORK_REASON_NONE);
        return;
    }
    for (uint32_t i = 0; i < d->count; i++) {
        const struct dial_address *a = &d->addresses[i];

        if (!may_reach(c, a)) {
            finish(d, -1, SP_PROXY_BLOCKED, SP_NETWORK_REASON_NOT_ALLOWED_LOCAL);
            return;
        }
        is_local = is_local || (!a->is_public && sp_address_is_local(a->family, a->bytes));
    }
    if (upstream == NULL || is_local) {
        start(d);
        return;
    }
    d->upstream = upstream;
    d->is_looking_up_upstream = true;
    look_up(d, upstream->host, upstream->port);
}

static void take_answer(struct sp_proxy_lookup_wait *w, const struct sp_resolver_answer *answer)
{
    struct sp_proxy_dial *d = SP_CONTAINER(w, struct sp_proxy_dial, wait);

    if (!d->is_looking_up_upstream) {
        take_target(d, answer);
        return;
    }
    take_addresses(d, answer, d->upstream->port);
    if (answer->status == SP_RESOLVER_FOUND)
        start(d);
    else
        finish(d, -1, SP_PROXY_UPSTREAM, SP_NETWORK_REASON_NONE);
}

static void look_up(struct sp_proxy_dial *d, const char *host, uint16_t port)
{
    struct sp_hostname name;
    struct sp_resolver_answer literal = {.status = SP_RESOLVER_FOUND, .count = 1};

    d->wait.fn = take_answer;
    if (sp_hostname_read(sp_str_of(host), &name) != NULL || !name.is_address) {
        sp_proxy_lookup(d->c->p, host, lookup_port(port), &d->wait);
        return;
    }
    literal.addresses[0].family = name.family == AF_INET ? 4 : 6;
    memcpy(literal.addresses[0].bytes, name.address, sizeof name.address);
    take_answer(&d->wait, &literal);
}

void sp_proxy_dial(struct sp_proxy_conn *c)
{
    struct sp_proxy_dial *d = calloc(1, sizeof *d);

    if (d == NULL) {
        sp_proxy_conn_end(c, true);
        return;
    }
    d->c = c;
    d->fd = -1;
    for (uint32_t i = 0; i < ATTEMPTS_MAX; i++)
        d->attempts[i].fd = -1;
    c->dial = d;
    look_up(d, c->host, c->port);
}

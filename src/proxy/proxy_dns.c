/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proxy_dns: DNS for the cell, over UDP and TCP.
 *
 * A name gets an address that stands for it (names.h), whether or not its host may be reached, so
 * that a refusal is told where programs show it. Nothing that a command asks leaves the machine
 * unless the front says that the name is listed or approved: only then the resolver is asked
 * whether it exists.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "proxy/dns.h"
#include "proxy/proxy_priv.h"

#define PENDING_MAX  256U
#define TCP_MAX      16U
#define TCP_IDLE_MS  30000
#define TCP_OUT_MAX  (64U << 10)
#define LOOKUP_MS    2000
#define TOKEN_US     500  /* 2,000 questions a second, */
#define TOKENS       500U /* and so many at once */
#define DATAGRAMS    64   /* in a turn */
#define LENGTH_BYTES 2U   /* before each message over TCP */

/* A connection. It is freed when it is closed and no question of it is pending. */
struct dns_conn {
    struct sp_proxy *p;
    struct sp_watch watch;
    struct sp_timer timer;
    struct sp_buf in, out;
    uint32_t pending;
    int fd; /* -1: closed */
};

/* A question that waits for the front or for the resolver. */
struct dns_pending {
    struct sp_proxy *p;
    struct sp_dns_question q;
    struct sp_proxy_asking *asking;
    struct sp_proxy_lookup_wait wait;
    struct sp_timer timer;
    struct dns_conn *conn; /* NULL: UDP */
    int fd;                /* UDP: the listener */
    struct sockaddr_in from;
};

static void send_tcp(struct dns_conn *t, const uint8_t *bytes, size_t n);

static void send_answer(struct sp_proxy *p, struct dns_conn *conn, int fd,
                        const struct sockaddr_in *to, const uint8_t *bytes, size_t n)
{
    struct iovec part = {(void *)(uintptr_t)bytes, n};
    const struct msghdr h = {.msg_name = (void *)(uintptr_t)to,
                             .msg_namelen = sizeof *to,
                             .msg_iov = &part,
                             .msg_iovlen = 1};

    sp_proxy_count_changed(p);
    if (conn != NULL)
        send_tcp(conn, bytes, n);
    else
        (void)sendmsg(fd, &h, MSG_DONTWAIT | MSG_NOSIGNAL); /* lost datagrams are asked again */
}

/* ---- what a name is ---- */

enum dns_way { WAY_LOCALHOST, WAY_ASK, WAY_REVERSE, WAY_NONE, WAY_NO_DATA };

static bool is_below(struct sp_str name, const char *top)
{
    const size_t n = strlen(top);

    return name.n >= n && memcmp(name.p + name.n - n, top, n) == 0 &&
           (name.n == n || name.p[name.n - n - 1] == '.');
}

/* Names that mean nothing outside of some network: they exist only if they are listed. */
static bool is_closed(struct sp_str name)
{
    static const char *const tops[] = {"local",    "onion",     "invalid", "alt",
                                       "internal", "home.arpa", NULL};

    if (memchr(name.p, '.', name.n) == NULL)
        return true;
    for (size_t i = 0; tops[i] != NULL; i++)
        if (is_below(name, tops[i]))
            return true;
    return false;
}

static enum dns_way way_of(const struct sp_proxy *p, const struct sp_dns_question *q)
{
    const struct sp_str name = {q->name, q->name_len};
    struct sp_hostname host;

    if (name.n == 0)
        return WAY_NO_DATA;
    if (q->type == SP_DNS_PTR)
        return WAY_REVERSE;
    if (is_below(name, "localhost") || sp_str_eq(name, sp_str_of(p->own_name.text)))
        return WAY_LOCALHOST;
    if (sp_hostname_read(name, &host) != NULL || host.is_address ||
        !sp_str_eq(sp_str_of(host.text), name))
        return WAY_NONE;
    return WAY_ASK;
}

/* ---- answers ---- */

static size_t write_code(struct sp_proxy *p, const struct sp_dns_question *q, enum sp_dns_code code,
                         uint8_t *out)
{
    if (code == SP_DNS_OK || code == SP_DNS_NXDOMAIN)
        p->counts.dns_none++;
    else
        p->counts.dns_failed++;
    return sp_dns_write_code(q, code, out);
}

static size_t write_own_address(struct sp_proxy *p, const struct sp_dns_question *q, bool is_listed,
                                uint8_t *out)
{
    if (q->type != SP_DNS_A)
        return write_code(p, q, SP_DNS_OK, out);
    const uint32_t address =
        htonl(sp_names_address(p->names, (struct sp_str){q->name, q->name_len}, is_listed));
    if (address == 0)
        return write_code(p, q, SP_DNS_SERVFAIL, out);
    p->counts.dns_name++;
    return sp_dns_write_address(q, AF_INET, &address, out);
}

static size_t write_localhost(struct sp_proxy *p, const struct sp_dns_question *q, uint8_t *out)
{
    const uint32_t v4 = htonl(INADDR_LOOPBACK);

    if (q->type != SP_DNS_A && q->type != SP_DNS_AAAA)
        return write_code(p, q, SP_DNS_OK, out);
    p->counts.dns_name++;
    return q->type == SP_DNS_A ? sp_dns_write_address(q, AF_INET, &v4, out)
                               : sp_dns_write_address(q, AF_INET6, &in6addr_loopback, out);
}

static size_t write_reverse(struct sp_proxy *p, const struct sp_dns_question *q, uint8_t *out)
{
    uint32_t address;
    const char *name = sp_dns_reverse(q->name, &address) ? sp_names_find(p->names, address) : NULL;

    if (name == NULL)
        return write_code(p, q, SP_DNS_NXDOMAIN, out);
    p->counts.dns_name++;
    return sp_dns_write_name(q, name, out);
}

static size_t write_unlisted(struct sp_proxy *p, const struct sp_dns_question *q, uint8_t *out)
{
    if (is_closed((struct sp_str){q->name, q->name_len}))
        return write_code(p, q, SP_DNS_NXDOMAIN, out);
    return write_own_address(p, q, false, out);
}

static size_t write_listed(struct sp_proxy *p, const struct sp_dns_question *q,
                           enum sp_resolver_status status, uint8_t *out)
{
    if (status == SP_RESOLVER_FOUND)
        return write_own_address(p, q, true, out);
    return write_code(p, q, status == SP_RESOLVER_NONE ? SP_DNS_NXDOMAIN : SP_DNS_SERVFAIL, out);
}

/* ---- questions that wait ---- */

static void free_conn(struct dns_conn *t)
{
    if (t->fd >= 0 || t->pending != 0)
        return;
    sp_buf_done(&t->in);
    sp_buf_done(&t->out);
    free(t);
}

static void finish(struct dns_pending *w, const uint8_t *bytes, size_t n)
{
    struct sp_proxy *p = w->p;

    sp_loop_cancel(p->loop, &w->timer);
    sp_proxy_lookup_cancel(&w->wait);
    sp_proxy_ask_abandon(w->asking);
    p->dns_pending--;
    if (w->conn != NULL)
        w->conn->pending--;
    send_answer(p, w->conn, w->fd, &w->from, bytes, n);
    if (w->conn != NULL)
        free_conn(w->conn);
    free(w);
}

static void take_lookup(struct sp_proxy_lookup_wait *wait, const struct sp_resolver_answer *a)
{
    struct dns_pending *w = SP_CONTAINER(wait, struct dns_pending, wait);
    uint8_t out[SP_DNS_MESSAGE_MAX];

    finish(w, out, write_listed(w->p, &w->q, (enum sp_resolver_status)a->status, out));
}

static void on_time(struct sp_timer *t)
{
    struct dns_pending *w = SP_CONTAINER(t, struct dns_pending, timer);
    uint8_t out[SP_DNS_MESSAGE_MAX];

    finish(w, out, write_code(w->p, &w->q, SP_DNS_SERVFAIL, out));
}

static void take_known(void *owner, const struct sp_proxy_answer *a)
{
    struct dns_pending *w = owner;
    uint8_t out[SP_DNS_MESSAGE_MAX];

    w->asking = NULL;
    if (!a->is_allowed) {
        finish(w, out, write_unlisted(w->p, &w->q, out));
        return;
    }
    w->wait.fn = take_lookup;
    sp_proxy_lookup(w->p, w->q.name, 0, &w->wait);
}

/* false: it cannot wait. */
static bool wait_for(struct sp_proxy *p, const struct sp_dns_question *q, struct dns_conn *conn,
                     int fd, const struct sockaddr_in *from)
{
    struct sp_proxy_answer known;
    struct dns_pending *w = p->dns_pending >= PENDING_MAX ? NULL : calloc(1, sizeof *w);

    if (w == NULL)
        return false;
    *w = (struct dns_pending){.p = p, .q = *q, .conn = conn, .fd = fd, .from = *from};
    if (!sp_loop_timer(p->loop, &w->timer, sp_loop_now(p->loop) + LOOKUP_MS, on_time)) {
        free(w);
        return false;
    }
    p->dns_pending++;
    if (conn != NULL)
        conn->pending++;
    if (sp_proxy_kept(p, q->name, 0, SP_PROXY_KNOWN, &known))
        take_known(w, &known);
    else if ((w->asking = sp_proxy_know(p, q->name, 0, take_known, w)) == NULL)
        on_time(&w->timer);
    return true;
}

/* ---- a question ---- */

/* The bucket is a time: each question moves it by TOKEN_US, and it may run ahead by all tokens. */
static bool take_token(struct sp_proxy *p)
{
    const uint64_t now = sp_clock_us();

    if (p->dns_tokens_us < now)
        p->dns_tokens_us = now;
    if (p->dns_tokens_us - now >= (uint64_t)TOKENS * TOKEN_US) {
        p->counts.dns_dropped++;
        sp_proxy_count_changed(p);
        return false;
    }
    p->dns_tokens_us += TOKEN_US;
    return true;
}

static void take_question(struct sp_proxy *p, struct sp_str bytes, struct dns_conn *conn, int fd,
                          const struct sockaddr_in *from)
{
    struct sp_dns_question q = {0};
    struct sp_proxy_answer known;
    uint8_t out[SP_DNS_MESSAGE_MAX];
    size_t n = 0;
    const int code = take_token(p) ? sp_dns_read(bytes, &q) : -1;

    if (code < 0)
        return;
    if (code != SP_DNS_OK) {
        n = write_code(p, &q, (enum sp_dns_code)code, out);
    } else {
        switch (way_of(p, &q)) {
        case WAY_LOCALHOST:
            n = write_localhost(p, &q, out);
            break;
        case WAY_REVERSE:
            n = write_reverse(p, &q, out);
            break;
        case WAY_NONE:
            n = write_code(p, &q, SP_DNS_NXDOMAIN, out);
            break;
        case WAY_NO_DATA:
            n = write_code(p, &q, SP_DNS_OK, out);
            break;
        case WAY_ASK: /* most often the answer is known: then nothing is allocated */
            if (sp_proxy_kept(p, q.name, 0, SP_PROXY_KNOWN, &known) && !known.is_allowed)
                n = write_unlisted(p, &q, out);
            else if (wait_for(p, &q, conn, fd, from))
                return;
            else
                n = write_code(p, &q, SP_DNS_SERVFAIL, out);
            break;
        }
    }
    send_answer(p, conn, fd, from, out, n);
}

/* ---- UDP ---- */

void sp_proxy_dns_receive(struct sp_proxy *p, int fd)
{
    for (int i = 0; i < DATAGRAMS; i++) {
        char bytes[SP_DNS_MESSAGE_MAX];
        struct sockaddr_in from = {0};
        struct iovec part = {bytes, sizeof bytes};
        struct msghdr h = {
            .msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &part, .msg_iovlen = 1};
        const ssize_t n = recvmsg(fd, &h, MSG_DONTWAIT);

        if (n < 0 && errno != EINTR)
            return;
        if (n > 0 && (h.msg_flags & MSG_TRUNC) == 0 && h.msg_namelen == sizeof from &&
            from.sin_family == AF_INET)
            take_question(p, (struct sp_str){bytes, (size_t)n}, NULL, fd, &from);
    }
}

/* ---- TCP ---- */

static void close_conn(struct dns_conn *t)
{
    if (t->fd < 0)
        return;
    sp_loop_unwatch(t->p->loop, &t->watch);
    sp_loop_cancel(t->p->loop, &t->timer);
    (void)close(t->fd);
    t->fd = -1;
    t->p->dns_conns--;
}

static void flush_conn(struct dns_conn *t)
{
    const ssize_t n = t->out.len == 0 ? 0 : sp_proxy_send(t->fd, t->out.data, t->out.len);

    if (n > 0)
        sp_buf_drop(&t->out, (size_t)n);
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        close_conn(t);
    else
        sp_loop_rewatch(t->p->loop, &t->watch, EPOLLIN | (t->out.len == 0 ? 0U : EPOLLOUT));
}

/* Closes, but does not free: the caller may still look at it. */
static void send_tcp(struct dns_conn *t, const uint8_t *bytes, size_t n)
{
    const uint8_t length[LENGTH_BYTES] = {(uint8_t)(n >> 8), (uint8_t)n};

    if (t->fd < 0)
        return;
    if (t->out.len > TCP_OUT_MAX || !sp_buf_add(&t->out, length, sizeof length) ||
        !sp_buf_add(&t->out, bytes, n))
        close_conn(t);
    else
        flush_conn(t);
}

static void take_questions(struct dns_conn *t)
{
    static const struct sockaddr_in nobody;
    size_t at = 0;

    t->pending++; /* so that an answer does not free it */
    while (t->fd >= 0 && t->in.len - at >= LENGTH_BYTES) {
        const uint8_t *p = (const uint8_t *)t->in.data + at;
        const size_t n = (size_t)p[0] << 8 | p[1];

        if (t->in.len - at - LENGTH_BYTES < n)
            break;
        take_question(t->p, (struct sp_str){t->in.data + at + LENGTH_BYTES, n}, t, -1, &nobody);
        at += LENGTH_BYTES + n;
    }
    t->pending--;
    sp_buf_drop(&t->in, at);
}

static void on_idle(struct sp_timer *timer)
{
    struct dns_conn *t = SP_CONTAINER(timer, struct dns_conn, timer);

    close_conn(t);
    free_conn(t);
}

static void on_tcp(struct sp_watch *w, uint32_t events)
{
    struct dns_conn *t = SP_CONTAINER(w, struct dns_conn, watch);
    struct sp_loop *loop = t->p->loop;

    if ((events & EPOLLOUT) != 0)
        flush_conn(t);
    if (t->fd >= 0 && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
        char *room = sp_buf_room(&t->in, 4096);
        const ssize_t n = room == NULL ? 0 : read(t->fd, room, 4096);

        if (n > 0) {
            t->in.len += (size_t)n;
            take_questions(t);
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            close_conn(t);
        }
    }
    if (t->fd >= 0 && !sp_loop_timer(loop, &t->timer, sp_loop_now(loop) + TCP_IDLE_MS, on_idle))
        close_conn(t);
    free_conn(t);
}

void sp_proxy_dns_accept(struct sp_proxy *p, int fd)
{
    struct dns_conn *t = p->dns_conns >= TCP_MAX ? NULL : calloc(1, sizeof *t);

    if (t == NULL || sp_loop_watch(p->loop, &t->watch, fd, EPOLLIN, on_tcp, NULL) < 0) {
        (void)close(fd);
        free(t);
        return;
    }
    t->p = p;
    t->fd = fd;
    p->dns_conns++;
    if (!sp_loop_timer(p->loop, &t->timer, sp_loop_now(p->loop) + TCP_IDLE_MS, on_idle)) {
        close_conn(t);
        free_conn(t);
    }
}

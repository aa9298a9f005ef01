/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/proxy.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "os/fd.h"
#include "proxy/proxy_confine.h"
#include "proxy/proxy_priv.h"

#define UNSENT_MAX   8192U /* messages; then the front is not reading any more */
#define ACCEPTS      64    /* of one listener in a turn */
#define MESSAGES     64    /* of the front in a turn */
#define DESCRIPTORS  8192
#define MOST_FDS     6    /* of the front, with one message */
#define ACCEPT_AGAIN 100  /* ms, after accept failed for want of descriptors or memory */
#define COUNTS_EVERY 1000 /* ms */
#define SETTLE_MS    50   /* a PING waits so long for connections whose client has closed */

/* ---- messages to the front ---- */

struct unsent_message {
    struct sp_list link;
    size_t n;
    char bytes[];
};

static bool send_bytes(struct sp_proxy *p, const void *bytes, size_t n)
{
    ssize_t sent;

    do
        sent = sp_proxy_send(p->control, bytes, n);
    while (sent < 0 && errno == EINTR);
    if (sent < 0 && errno != EAGAIN)
        sp_loop_stop(p->loop); /* the front is gone */
    return sent >= 0;
}

static void queue_bytes(struct sp_proxy *p, const void *bytes, size_t n)
{
    struct unsent_message *u = p->unsent_count == UNSENT_MAX ? NULL : malloc(sizeof *u + n);

    /* The front counts on every message, so losing one is not an option. */
    if (u == NULL) {
        sp_loop_stop(p->loop);
        return;
    }
    *u = (struct unsent_message){.n = n};
    memcpy(u->bytes, bytes, n);
    sp_list_append(&p->unsent, &u->link);
    p->unsent_count++;
    sp_loop_rewatch(p->loop, &p->on_control, EPOLLIN | EPOLLOUT);
}

void sp_proxy_tell(struct sp_proxy *p, void *message, size_t size, struct sp_str a, struct sp_str b)
{
    char bytes[sizeof(struct sp_proxy_done) + SP_PROXY_TEXT_MAX + SP_PROXY_METHOD_MAX];
    struct sp_proxy_head *head = message;
    const size_t n = size + a.n + b.n;

    if (n > sizeof bytes)
        return; /* cannot happen: texts are bounded by their makers */
    head->version = SP_PROXY_VERSION;
    head->len = (uint32_t)(n - sizeof *head);
    memcpy(bytes, message, size);
    if (a.n != 0)
        memcpy(bytes + size, a.p, a.n);
    if (b.n != 0)
        memcpy(bytes + size + a.n, b.p, b.n);
    if (p->unsent_count != 0 || !send_bytes(p, bytes, n))
        queue_bytes(p, bytes, n);
}

static void send_unsent(struct sp_proxy *p)
{
    struct sp_list *first;

    while ((first = sp_list_first(&p->unsent)) != NULL) {
        struct unsent_message *u = SP_CONTAINER(first, struct unsent_message, link);

        if (!send_bytes(p, u->bytes, u->n))
            return;
        sp_list_remove(&u->link);
        p->unsent_count--;
        free(u);
    }
    sp_loop_rewatch(p->loop, &p->on_control, EPOLLIN);
}

static void send_counts(struct sp_proxy *p)
{
    if (!p->has_hello)
        return;
    p->counts.active = p->conn_count;
    p->counts.names = sp_names_count(p->names);
    if (memcmp(&p->counts, &p->counts_sent, sizeof p->counts) == 0)
        return;
    p->counts_sent = p->counts;
    struct sp_proxy_counts counts = p->counts;
    counts.head = (struct sp_proxy_head){.op = SP_PROXY_COUNTS};
    sp_proxy_tell(p, &counts, sizeof counts, SP_STR(""), SP_STR(""));
}

static void on_counts_due(struct sp_timer *t)
{
    send_counts(SP_CONTAINER(t, struct sp_proxy, counts_timer));
}

void sp_proxy_count_changed(struct sp_proxy *p)
{
    if (p->counts_timer.slot == 0) /* without memory: the next change tries again */
        (void)sp_loop_timer(p->loop, &p->counts_timer, sp_loop_now(p->loop) + COUNTS_EVERY,
                            on_counts_due);
}

/* ---- listeners ---- */

/* DNS is answered beside any number of connections, but not accepted without descriptors. */
static void watch_listeners(struct sp_proxy *p, bool is_full)
{
    p->is_full = is_full;
    for (uint32_t i = 0; i < p->listener_count; i++) {
        const uint8_t kind = p->listeners[i]->kind;
        const bool waits = kind == SP_PROXY_DNS_TCP ? p->refill.slot != 0 : is_full;

        if (kind != SP_PROXY_DNS_UDP)
            sp_loop_rewatch(p->loop, &p->listeners[i]->watch, waits ? 0 : EPOLLIN);
    }
}

void sp_proxy_conn_gone(struct sp_proxy *p)
{
    if (p->is_full && p->refill.slot == 0 && p->conn_count < SP_PROXY_CONNECTIONS_MAX)
        watch_listeners(p, false);
}

static void refill(struct sp_timer *t)
{
    struct sp_proxy *p = SP_CONTAINER(t, struct sp_proxy, refill);

    watch_listeners(p, p->conn_count >= SP_PROXY_CONNECTIONS_MAX);
}

static bool receive(struct sp_proxy *p);

/* What the front sent before a command began counts for all connections of the command: a FORGET
 * may lie unread while the connection is accepted. */
static void catch_up(struct sp_proxy *p)
{
    while (receive(p))
        ;
}

static void on_connection(struct sp_watch *w, uint32_t events)
{
    struct sp_proxy_listener *l = SP_CONTAINER(w, struct sp_proxy_listener, watch);
    struct sp_proxy *p = l->p;

    (void)events;
    for (int i = 0; i < ACCEPTS && (l->kind == SP_PROXY_DNS_TCP || !p->is_full); i++) {
        const int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0 && errno != EAGAIN) { /* no descriptors or memory: both come back with time */
            (void)sp_loop_timer(p->loop, &p->refill, sp_loop_now(p->loop) + ACCEPT_AGAIN, refill);
            watch_listeners(p, true);
        }
        if (fd < 0)
            return;
        catch_up(p);
        if (l->kind == SP_PROXY_DNS_TCP)
            sp_proxy_dns_accept(p, fd);
        else
            sp_proxy_conn_accept(p, fd, l->kind, l->port);
        if (p->conn_count >= SP_PROXY_CONNECTIONS_MAX)
            watch_listeners(p, true);
    }
}

static void on_datagram(struct sp_watch *w, uint32_t events)
{
    struct sp_proxy_listener *l = SP_CONTAINER(w, struct sp_proxy_listener, watch);

    (void)events;
    sp_proxy_dns_receive(l->p, l->fd);
}

/* Takes the descriptor if it succeeds. */
static bool take_listener(struct sp_proxy *p, const struct sp_proxy_listen *m, int fd)
{
    const int flags = fcntl(fd, F_GETFL);
    const bool is_udp = m->kind == SP_PROXY_DNS_UDP;

    if (p->listener_count == SP_PROXY_LISTEN_MAX || flags < 0 ||
        fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return false;
    auto_free struct sp_proxy_listener *l = calloc(1, sizeof *l);
    if (l == NULL)
        return false;
    *l = (struct sp_proxy_listener){.p = p, .fd = fd, .kind = m->kind, .port = m->port};
    if (sp_loop_watch(p->loop, &l->watch, fd, EPOLLIN, is_udp ? on_datagram : on_connection, NULL) <
        0)
        return false;
    p->listeners[p->listener_count++] = TAKE_PTR(l);
    if (p->is_full)
        watch_listeners(p, true);
    return true;
}

/* ---- messages of the front ---- */

static bool take_hello(struct sp_proxy *p, const struct sp_proxy_hello *m, const int *fds)
{
    struct sp_str rest = sp_proxy_text(&m->head, sizeof *m);
    const struct sp_str http = {rest.p, m->http_len};
    const struct sp_str tunnel = {rest.p + m->http_len, m->https_len};
    const struct sp_str none = {rest.p + m->http_len + m->https_len, m->no_proxy_len};

    if (p->has_hello || !sp_proxy_upstream_read(http, &p->upstream_http) ||
        !sp_proxy_upstream_read(tunnel, &p->upstream_tunnel))
        return false;
    p->no_proxy = sp_str_dup(none);
    if (p->no_proxy == NULL || sp_names_open(fds[0], &p->names, NULL) < 0)
        return false;
    p->flags = m->flags;
    p->linger_ms = m->linger_ms;
    p->port_count = m->port_count;
    memcpy(p->own_ports, m->own_ports, sizeof p->own_ports);
    p->has_hello = true;
    struct sp_proxy_head ready = {.op = SP_PROXY_READY};
    sp_proxy_tell(p, &ready, sizeof ready, SP_STR(""), SP_STR(""));
    return true;
}

static void take_forget(struct sp_proxy *p, const struct sp_proxy_head *m)
{
    const struct sp_str host = sp_proxy_text(m, sizeof *m);

    sp_proxy_forget(p);
    if (host.n == 0)
        return;
    /* Connections that are still judged get a verdict of the new lists anyway. */
    sp_list_each_safe(i, &p->conns) {
        struct sp_proxy_conn *c = SP_CONTAINER(i, struct sp_proxy_conn, link);

        if (c->is_open && c->state > SP_PROXY_AT_ASK && c->state < SP_PROXY_AT_REFUSE &&
            sp_str_eq(sp_str_of(c->host), host))
            sp_proxy_conn_end(c, true);
    }
}

/* ---- signs of life, and of rest ---- */

static void send_pong(struct sp_proxy *p, uint64_t number)
{
    struct sp_proxy_head pong = {.op = SP_PROXY_PONG, .number = number};

    sp_proxy_tell(p, &pong, sizeof pong, SP_STR(""), SP_STR(""));
}

static void end_settling(struct sp_proxy *p)
{
    const uint64_t number = p->settling;

    p->settling = 0;
    sp_loop_cancel(p->loop, &p->settle);
    send_counts(p); /* after its last command the cell, and with it this process, may end soon */
    send_pong(p, number);
}

static void on_settle_late(struct sp_timer *t)
{
    end_settling(SP_CONTAINER(t, struct sp_proxy, settle));
}

void sp_proxy_settle(struct sp_proxy *p)
{
    if (p->settling == 0)
        return;
    sp_list_each(i, &p->conns) {
        const struct sp_proxy_conn *c = SP_CONTAINER(i, struct sp_proxy_conn, link);

        if (c->state != SP_PROXY_AT_END && c->is_open &&
            (c->client.is_eof || c->client.is_broken || c->client.saw_hangup ||
             c->client.saw_error))
            return;
    }
    end_settling(p);
}

static void on_settle_turn(struct sp_deferred *d)
{
    sp_proxy_settle(SP_CONTAINER(d, struct sp_proxy, settle_turn));
}

/* A command exited: the kernel has closed its sockets, and the events about that are handled in
 * this turn of the loop or in the next. */
static void take_ping(struct sp_proxy *p, uint64_t number)
{
    const bool is_settling = p->settling != 0;

    if (number <= 1) {
        send_pong(p, number);
        return;
    }
    p->settling = number;
    if (!is_settling &&
        !sp_loop_timer(p->loop, &p->settle, sp_loop_now(p->loop) + SETTLE_MS, on_settle_late)) {
        end_settling(p);
        return;
    }
    sp_loop_again(p->loop, &p->settle_turn, on_settle_turn);
}

/* Sets descriptors that it takes to -1. false: the message breaks the protocol. */
static bool take_message(struct sp_proxy *p, const struct sp_proxy_head *m, int *fds)
{
    if (!p->has_hello && m->op != SP_PROXY_HELLO && m->op != SP_PROXY_RELAY)
        return false;
    switch (m->op) {
    case SP_PROXY_HELLO:
        if (!take_hello(p, (const struct sp_proxy_hello *)(const void *)m, fds))
            return false;
        sp_proxy_lookup_socket(p, TAKE_FD(fds[1]));
        return true;
    case SP_PROXY_RESOLVER:
        sp_proxy_lookup_socket(p, TAKE_FD(fds[0]));
        return true;
    case SP_PROXY_LISTEN:
        if (!take_listener(p, (const struct sp_proxy_listen *)(const void *)m, fds[0]))
            return false;
        fds[0] = -1;
        return true;
    case SP_PROXY_RELAY:
        sp_proxy_conn_relay(p, TAKE_FD(fds[0]), TAKE_FD(fds[1]), m->number);
        return true;
    case SP_PROXY_VERDICT:
        return sp_proxy_take_verdict(p, (const struct sp_proxy_verdict *)(const void *)m);
    case SP_PROXY_FORGET:
        take_forget(p, m);
        return true;
    case SP_PROXY_PING:
        take_ping(p, m->number);
        return true;
    default:
        return false;
    }
}

/* false: there is no more now, or the front's socket ended. */
static bool receive(struct sp_proxy *p)
{
    static _Alignas(8) char bytes[SP_PROXY_MESSAGE_MAX];
    struct iovec part = {bytes, sizeof bytes};
    struct msghdr h = {.msg_iov = &part, .msg_iovlen = 1};
    int fds[MOST_FDS] = {-1, -1, -1, -1};
    int count;
    const ssize_t n = sp_fd_recv(p->control, &h, MSG_DONTWAIT, fds, MOST_FDS, &count);

    if (n < 0 && errno == EAGAIN)
        return false;
    const struct sp_proxy_head *head = (const void *)bytes;
    /* Without room for its descriptors a connection is given up, not the others. */
    const bool is_cut_relay =
        (h.msg_flags & MSG_CTRUNC) != 0 && n >= (ssize_t)sizeof *head && head->op == SP_PROXY_RELAY;
    if (is_cut_relay)
        count = 2; /* a missing descriptor is -1 */
    const bool is_fine = n > 0 && ((h.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0 || is_cut_relay) &&
                         sp_proxy_check(bytes, (size_t)n, false, count) &&
                         take_message(p, head, fds);
    for (int i = 0; i < count; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
    if (!is_fine)
        sp_loop_stop(p->loop);
    return is_fine;
}

static void on_control(struct sp_watch *w, uint32_t events)
{
    struct sp_proxy *p = SP_CONTAINER(w, struct sp_proxy, on_control);

    if ((events & EPOLLOUT) != 0)
        send_unsent(p);
    for (int i = 0; i < MESSAGES && receive(p); i++)
        ;
}

/* ---- the process ---- */

/* Before the filter stands, which has no uname. */
static void read_own_name(struct sp_hostname *ret)
{
    char name[SP_HOSTNAME_MAX + 1] = "";

    if (gethostname(name, sizeof name - 1) < 0 || sp_hostname_read(sp_str_of(name), ret) != NULL)
        *ret = (struct sp_hostname){0};
}

static struct sp_proxy *new_proxy(int socket)
{
    static struct sp_proxy *p; /* for the life of the process */

    p = calloc(1, sizeof *p);

    if (p == NULL)
        return NULL;
    p->control = socket;
    read_own_name(&p->own_name);
    sp_list_init(&p->unsent);
    sp_list_init(&p->conns);
    sp_list_init(&p->slot_waiters);
    sp_list_init(&p->lingering);
    sp_list_init(&p->kept_by_age);
    for (uint32_t i = 0; i < SP_PROXY_BUCKETS; i++) {
        sp_list_init(&p->targets[i]);
        sp_list_init(&p->askings[i]);
        sp_list_init(&p->kept[i]);
    }
    sp_proxy_lookup_init(p);
    return p;
}

/* Each connection has two descriptors, and its tunnel may have four more. */
static void raise_descriptors(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= DESCRIPTORS)
        return;
    limit.rlim_cur = limit.rlim_max < DESCRIPTORS ? limit.rlim_max : DESCRIPTORS;
    (void)setrlimit(RLIMIT_NOFILE, &limit); /* with fewer, accept waits for one to be closed */
}

static int unable(struct sp_proxy *p, struct sp_err *e)
{
    struct sp_proxy_head head = {.op = SP_PROXY_UNABLE};
    char text[sizeof e->msg + 64];

    (void)sp_error_text(e, text, sizeof text);
    sp_proxy_tell(p, &head, sizeof head, sp_str_of(text), SP_STR(""));
    return -(int)e->code;
}

int sp_proxy_run(int socket, struct sp_err *e)
{
    struct sp_proxy *p = new_proxy(socket);
    const int flags = fcntl(socket, F_GETFL);

    if (p == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "start the proxy");
    raise_descriptors();
    (void)signal(SIGPIPE, SIG_IGN); /* splice has no MSG_NOSIGNAL */
    (void)sp_hash(SP_STR(""));      /* its key is made before the filter stands */
    int r = sp_loop_new(&p->loop, e);
    if (r == 0 && (flags < 0 || fcntl(socket, F_SETFL, flags | O_NONBLOCK) < 0))
        r = sp_fail(e, SP_E_SYSTEM, errno, "set the front's socket non-blocking");
    if (r == 0)
        r = sp_loop_watch(p->loop, &p->on_control, socket, EPOLLIN, on_control, e);
    if (r == 0 && sp_proxy_confine(e) < 0)
        r = unable(p, e);
    if (r == 0)
        r = sp_loop_run(p->loop, e);
    sp_names_close(p->names); /* for the next proxy of the cell */
    return r; /* the process ends: the kernel closes and frees everything else at once */
}

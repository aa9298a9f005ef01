/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection, from accept until its proxy has it:
 *
 *   ASKING: CONNECT was sent to a cell --SOCKET--> CONNECTING: the socket is watched --connected-->
 *   READY: waits for room in the socket of the proxy --> handed over and forgotten here
 *
 * If a cell has no server at the port, ASKING begins again with IPv6, then with the next older
 * cell. The deadline counts for all of this. Afterwards only the number of connections is kept, per
 * cell and port, from the CLOSED messages of the proxy.
 */
#include "core/publish.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/list.h"
#include "base/log.h"
#include "core/cell_child.h"
#include "core/cells.h"
#include "os/fd.h"
#include "proxy/proxy_message.h"

#define BACKLOG         128
#define ACCEPTS         64  /* of one port in a turn */
#define ACCEPT_AGAIN_MS 100 /* after accept failed for want of descriptors or memory */
#define MESSAGES_A_TURN 64

enum conn_state { ASKING, CONNECTING, READY };

struct published_port {
    struct sp_publish *publish;
    struct sp_published is;
    int fd;
    struct sp_watch watch;
    uint32_t active; /* connections, those that a proxy has included */
};

struct sp_publish {
    struct sp_publish_options o;
    struct published_port ports[SP_PUBLISHED_MAX];
    uint32_t port_count;
    struct sp_list cells; /* struct sp_published_cell, the newest first */
    struct sp_list conns; /* struct conn, the oldest first */
    uint64_t last_number;
    struct sp_timer accept_again;
};

struct sp_published_cell {
    struct sp_publish *publish;
    struct sp_list link; /* in no list before sp_published_cell_begin */
    struct sp_cell *cell;
    uint64_t netns;                    /* cookie of its network namespace; 0: not known yet */
    struct sp_helper proxy;            /* runs from the first connection on */
    uint32_t active[SP_PUBLISHED_MAX]; /* connections that the proxy has, by port */
    uint32_t deaths;                   /* of the proxy, the last ones within DEATHS_MS */
    uint64_t death_ms;
};

struct conn {
    struct sp_list link;
    struct published_port *port;
    enum conn_state state;
    struct sp_published_cell *cell;
    int family;
    uint64_t number;    /* of the CONNECT that is not answered */
    int client, server; /* server -1: none yet */
    struct sp_watch watch;
    struct sp_timer deadline;
};

static struct conn *conn_of(struct sp_list *link)
{
    return SP_CONTAINER(link, struct conn, link);
}

/* ---- accepting is paused while a port has too many connections ---- */

static void watch_port(struct published_port *port)
{
    const bool is_paused =
        port->active >= SP_PUBLISHED_CONNECTIONS || port->publish->accept_again.slot != 0;

    sp_loop_rewatch(port->publish->o.loop, &port->watch, is_paused ? 0 : EPOLLIN);
}

static void forget_connections(struct published_port *port, uint32_t count)
{
    port->active -= count;
    watch_port(port);
}

/* ---- the end of a connection ---- */

static void close_server(struct conn *c)
{
    sp_loop_unwatch(c->port->publish->o.loop, &c->watch);
    if (c->server >= 0)
        (void)close(TAKE_FD(c->server));
}

static void free_conn(struct conn *c)
{
    close_server(c);
    (void)close(c->client);
    sp_loop_cancel(c->port->publish->o.loop, &c->deadline);
    sp_list_remove(&c->link);
    free(c);
}

static void reset_conn(struct conn *c)
{
    const struct linger now = {.l_onoff = 1, .l_linger = 0};
    struct published_port *port = c->port;

    (void)setsockopt(c->client, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    free_conn(c);
    forget_connections(port, 1);
}

static void on_deadline(struct sp_timer *t)
{
    reset_conn(SP_CONTAINER(t, struct conn, deadline));
}

/* ---- which cell ---- */

static struct sp_published_cell *cell_after(const struct sp_publish *p, struct sp_list *link)
{
    struct sp_list *next = link->next;

    return next == &p->cells ? NULL : SP_CONTAINER(next, struct sp_published_cell, link);
}

static bool ask_cell(struct conn *c)
{
    c->state = ASKING;
    c->number = ++c->port->publish->last_number;
    return sp_cell_connect(c->cell->cell, c->number, c->port->is.cell, c->family);
}

/* The present attempt has failed: makes the next one, or resets the connection. */
static void try_next(struct conn *c)
{
    struct sp_publish *p = c->port->publish;

    close_server(c);
    do {
        if (c->family == AF_INET) {
            c->family = AF_INET6;
        } else {
            c->family = AF_INET;
            c->cell = cell_after(p, &c->cell->link);
        }
    } while (c->cell != NULL && !ask_cell(c));
    if (c->cell == NULL)
        reset_conn(c);
}

static void begin_conn(struct published_port *port, int fd)
{
    struct sp_publish *p = port->publish;
    struct conn *c = calloc(1, sizeof *c);

    if (c == NULL) {
        (void)close(fd);
        return;
    }
    *c = (struct conn){.port = port, .client = fd, .server = -1, .family = AF_INET};
    c->cell = cell_after(p, &p->cells);
    sp_list_append(&p->conns, &c->link);
    port->active++;
    if (c->cell == NULL ||
        !sp_loop_timer(p->o.loop, &c->deadline, sp_loop_now(p->o.loop) + SP_PUBLISHED_CONNECT_MS,
                       on_deadline))
        reset_conn(c);
    else if (!ask_cell(c))
        try_next(c);
}

/* ---- listening ---- */

static void on_accept_again(struct sp_timer *t)
{
    struct sp_publish *p = SP_CONTAINER(t, struct sp_publish, accept_again);

    for (uint32_t i = 0; i < p->port_count; i++)
        watch_port(&p->ports[i]);
}

static void on_client(struct sp_watch *w, uint32_t events)
{
    struct published_port *port = SP_CONTAINER(w, struct published_port, watch);
    struct sp_publish *p = port->publish;

    (void)events;
    for (int i = 0; i < ACCEPTS && port->active < SP_PUBLISHED_CONNECTIONS; i++) {
        const int fd = sp_fd_lift(accept4(port->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));

        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0 && errno != EAGAIN) /* without memory for the timer this turn is tried again */
            (void)sp_loop_timer(p->o.loop, &p->accept_again,
                                sp_loop_now(p->o.loop) + ACCEPT_AGAIN_MS, on_accept_again);
        if (fd < 0)
            break;
        begin_conn(port, fd);
    }
    watch_port(port);
}

static int open_port(const struct sp_published *port, struct sp_err *e)
{
    const struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(port->host), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const int on = 1;
    auto_close int fd = sp_fd_lift(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
        bind(fd, (const struct sockaddr *)&at, sizeof at) < 0 || listen(fd, BACKLOG) < 0) {
        const int err = errno;

        return err == EADDRINUSE
                   ? sp_fail(e, SP_E_SYSTEM, 0,
                             "port %u of 127.0.0.1 is taken: end the program that listens there, "
                             "or publish at another port, as HOST:%u",
                             port->host, port->cell)
                   : sp_fail(e, SP_E_SYSTEM, err, "listen on 127.0.0.1:%u", port->host);
    }
    return TAKE_FD(fd);
}

static struct sp_publish *new_publish(const struct sp_publish_options *o)
{
    struct sp_publish *p = calloc(1, sizeof *p);

    if (p == NULL)
        return NULL;
    p->o = *o;
    sp_list_init(&p->cells);
    sp_list_init(&p->conns);
    return p;
}

int sp_publish_add(struct sp_publish **ret, const struct sp_publish_options *o,
                   const struct sp_published *port, struct sp_err *e)
{
    struct sp_publish *p = *ret != NULL ? *ret : new_publish(o);

    if (p == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "publish ports");
    *ret = p;
    if (p->port_count == SP_PUBLISHED_MAX)
        return sp_fail(e, SP_E_LIMIT, 0, "at most %d ports can be published", SP_PUBLISHED_MAX);
    struct published_port *new = &p->ports[p->port_count];
    *new = (struct published_port){.publish = p, .is = *port, .fd = open_port(port, e)};
    if (new->fd < 0)
        return new->fd;
    const int r = sp_loop_watch(o->loop, &new->watch, new->fd, EPOLLIN, on_client, e);
    if (r < 0)
        (void)close(new->fd);
    else
        p->port_count++;
    return r;
}

const struct sp_published *sp_publish_port(const struct sp_publish *p, uint32_t i)
{
    return i < p->port_count ? &p->ports[i].is : NULL;
}

void sp_publish_stop(struct sp_publish *p)
{
    sp_loop_cancel(p->o.loop, &p->accept_again);
    for (uint32_t i = 0; i < p->port_count; i++) {
        sp_loop_unwatch(p->o.loop, &p->ports[i].watch);
        if (p->ports[i].fd >= 0)
            (void)close(TAKE_FD(p->ports[i].fd));
    }
}

void sp_publish_free(struct sp_publish *p)
{
    if (p == NULL)
        return;
    assert(sp_list_is_empty(&p->cells) && sp_list_is_empty(&p->conns));
    sp_publish_stop(p);
    free(p);
}

/* ---- the proxy of a cell ---- */

static void end_proxy(struct sp_published_cell *pc)
{
    struct sp_publish *p = pc->publish;

    sp_helper_end(p->o.loop, &pc->proxy);
    for (uint32_t i = 0; i < p->port_count; i++) {
        const uint32_t lost = pc->active[i];

        pc->active[i] = 0;
        forget_connections(&p->ports[i], lost);
    }
}

/* The next connection starts another one. */
static void lose_proxy(struct sp_published_cell *pc)
{
    const uint64_t now = sp_loop_now(pc->publish->o.loop);

    end_proxy(pc);
    pc->deaths = now - pc->death_ms < SP_PUBLISHED_DEATHS_MS ? pc->deaths + 1 : 1;
    pc->death_ms = now;
    if (pc->deaths == SP_PUBLISHED_DEATHS)
        sp_log(SP_LOG_ERROR,
               "the proxy of published ports keeps ending: connections are reset for a minute");
}

/* Connections whose server has accepted, while the proxy takes them. */
static void hand_over(struct sp_published_cell *pc)
{
    struct sp_publish *p = pc->publish;
    bool is_full = false;

    for (struct sp_list *i = p->conns.next, *next = i->next; i != &p->conns && !is_full;
         i = next, next = i->next) {
        struct conn *c = conn_of(i);

        if (c->state != READY || c->cell != pc)
            continue;
        const uint32_t port = (uint32_t)(c->port - p->ports);
        const struct sp_proxy_head relay = {
            .version = SP_PROXY_VERSION, .op = SP_PROXY_RELAY, .number = port + 1};
        const int fds[2] = {c->client, c->server};
        const int r = sp_wire_send(pc->proxy.socket, false, &relay, sizeof relay, NULL, 0, fds, 2);
        is_full = r == -EAGAIN;
        if (r == 0) {
            pc->active[port]++;
            free_conn(c);
        } else if (!is_full) { /* no memory, or the proxy is gone, which on_proxy sees */
            reset_conn(c);
        }
    }
    sp_loop_rewatch(p->o.loop, &pc->proxy.watch, EPOLLIN | (is_full ? (uint32_t)EPOLLOUT : 0U));
}

/* false: the proxy breaks the protocol. */
static bool take_message(struct sp_published_cell *pc, const struct sp_proxy_head *m)
{
    struct sp_publish *p = pc->publish;

    if (m->op == SP_PROXY_UNABLE)
        sp_log(SP_LOG_ERROR, "the proxy of published ports: " SP_STR_FMT,
               SP_STR_ARG(sp_proxy_text(m, sizeof *m)));
    if (m->op != SP_PROXY_CLOSED || m->number > p->port_count || pc->active[m->number - 1] == 0)
        return false;
    pc->active[m->number - 1]--;
    forget_connections(&p->ports[m->number - 1], 1);
    return true;
}

static void on_proxy(struct sp_watch *w, uint32_t events)
{
    struct sp_published_cell *pc = SP_CONTAINER(w, struct sp_published_cell, proxy.watch);

    if ((events & EPOLLOUT) != 0)
        hand_over(pc);
    for (int i = 0; i < MESSAGES_A_TURN && pc->proxy.socket >= 0; i++) {
        _Alignas(8) char bytes[sizeof(struct sp_proxy_head) + SP_PROXY_TEXT_MAX];
        struct iovec iov = {.iov_base = bytes, .iov_len = sizeof bytes};
        struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
        int none;
        const ssize_t n = sp_fd_recv(pc->proxy.socket, &msg, MSG_DONTWAIT, NULL, 0, &none);

        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0 || (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 ||
            !sp_proxy_check(bytes, (size_t)n, true, 0) ||
            !take_message(pc, (const struct sp_proxy_head *)(const void *)bytes))
            lose_proxy(pc);
    }
}

static bool need_proxy(struct sp_published_cell *pc)
{
    struct sp_publish *p = pc->publish;
    struct sp_err e = {0};
    char text[256];

    if (pc->proxy.socket >= 0)
        return true;
    if (pc->deaths >= SP_PUBLISHED_DEATHS &&
        sp_loop_now(p->o.loop) - pc->death_ms < SP_PUBLISHED_DEATHS_MS)
        return false;
    if (sp_helper_spawn(p->o.program, p->o.environ, "proxy", &pc->proxy, &e) == 0 &&
        sp_loop_watch(p->o.loop, &pc->proxy.watch, pc->proxy.socket, EPOLLIN, on_proxy, &e) == 0)
        return true;
    sp_log(SP_LOG_ERROR, "the proxy of published ports: %s", sp_error_text(&e, text, sizeof text));
    sp_helper_end(p->o.loop, &pc->proxy);
    return false;
}

/* ---- the socket of the cell ---- */

/* A cell that was taken over could send any socket of its own namespace. It gains nothing by that:
 * its loopback is all there is. */
static bool is_connected(const struct conn *c)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } at = {0};
    socklen_t len = sizeof at;

    if (sp_fd_option(c->server, SO_ERROR) != 0 || getpeername(c->server, &at.any, &len) < 0 ||
        at.any.sa_family != c->family)
        return false;
    return c->family == AF_INET ? ntohs(at.v4.sin_port) == c->port->is.cell &&
                                      ntohl(at.v4.sin_addr.s_addr) == INADDR_LOOPBACK
                                : ntohs(at.v6.sin6_port) == c->port->is.cell &&
                                      IN6_IS_ADDR_LOOPBACK(&at.v6.sin6_addr);
}

static void on_server(struct sp_watch *w, uint32_t events)
{
    struct conn *c = SP_CONTAINER(w, struct conn, watch);

    (void)events;
    sp_loop_unwatch(c->port->publish->o.loop, w);
    if (!is_connected(c)) {
        try_next(c);
    } else if (!need_proxy(c->cell)) {
        reset_conn(c);
    } else {
        c->state = READY;
        hand_over(c->cell);
    }
}

static struct conn *find_conn(const struct sp_published_cell *pc, uint64_t number)
{
    sp_list_each(i, &pc->publish->conns)
        if (conn_of(i)->state == ASKING && conn_of(i)->number == number && conn_of(i)->cell == pc)
            return conn_of(i);
    return NULL;
}

bool sp_published_take(struct sp_published_cell *pc, const struct sp_wire_done *m, int fd,
                       bool is_lost)
{
    struct conn *c = find_conn(pc, m->token);
    auto_close int server = sp_fd_lift(fd);

    if (m->err == 0 && !is_lost) {
        /* Also of a connection that was given up meanwhile. */
        if (server < 0 || !sp_fd_is_of_netns(server, pc->netns) ||
            sp_fd_option(server, SO_TYPE) != SOCK_STREAM ||
            sp_fd_option(server, SO_PROTOCOL) != IPPROTO_TCP)
            return false;
        pc->netns = sp_fd_netns(server);
    }
    if (c == NULL)
        return true;
    if (server < 0 || sp_fd_option(server, SO_DOMAIN) != c->family) {
        try_next(c);
        return true;
    }
    c->server = TAKE_FD(server);
    c->state = CONNECTING;
    if (sp_loop_watch(pc->publish->o.loop, &c->watch, c->server, EPOLLOUT, on_server, NULL) < 0)
        reset_conn(c);
    return true;
}

/* ---- cells ---- */

int sp_published_cell_new(struct sp_publish *p, struct sp_published_cell **ret, struct sp_err *e)
{
    struct sp_published_cell *pc = calloc(1, sizeof *pc);

    if (pc == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "publish ports");
    pc->publish = p;
    pc->proxy = (struct sp_helper){.socket = -1, .process = {.pidfd = -1}};
    *ret = pc;
    return 0;
}

void sp_published_cell_begin(struct sp_published_cell *pc, struct sp_cell *cell)
{
    pc->cell = cell;
    sp_list_prepend(&pc->publish->cells, &pc->link);
}

void sp_published_cell_free(struct sp_published_cell *pc)
{
    if (pc == NULL)
        return;
    sp_list_each_safe(i, &pc->publish->conns)
        if (conn_of(i)->cell == pc)
            reset_conn(conn_of(i));
    end_proxy(pc);
    sp_list_remove(&pc->link);
    free(pc);
}

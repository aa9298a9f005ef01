/* SPDX-License-Identifier: Apache-2.0 */
#include "server/net/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "server/net/bind.h"
#include "server/net/http_gate.h"
#include "server/net/intake.h"
#include "server/net/link_open.h"

#define AT_ONCE         16U  /* connections accepted in one callback */
#define ACCEPT_PAUSE_MS 100U /* pause after EMFILE and the like */
#define SPARE           128U /* connections above the limit, which get a 503 */
#define NOTSENT_LOW     (128 << 10)
#define METRICS_TYPE    "text/plain; version=0.0.4"

struct sp_listener {
    struct sp_link_host host;
    struct sp_listen_options o;
    struct sp_http_gate gate;
    struct sp_bound bound; /* fd -1: stdio */
    struct sp_watch watch;
    struct sp_timer accept_timer;
    enum sp_listen_kind kind;
    bool is_ending;
    uint64_t accepted, refused;
    char scratch[SP_INTAKE_SCRATCH + 1];
};

/* ---- callbacks of the links ---- */

static bool on_opened(void *user, struct sp_link *l)
{
    struct sp_listener *li = user;
    const struct sp_link_ops *ops = NULL;
    void *ops_user = NULL;

    if ((li->kind != SP_LISTEN_STDIO && li->host.open >= li->o.max_connections) ||
        !li->o.opened(li->o.user, l, &ops, &ops_user) || ops == NULL) {
        li->refused++;
        return false;
    }
    sp_link_serve(l, ops, ops_user);
    return true;
}

/* Out of memory: the answer is truncated; the connection ends in each case. */
static void write_answer(struct sp_listener *li, const struct sp_http_answer *a, struct sp_buf *out)
{
    if (a->status >= 400)
        li->refused++;
    (void)sp_http_write(out, a);
}

static void answer_metrics(struct sp_listener *li, struct sp_buf *out)
{
    auto_buf struct sp_buf text = {0};

    li->o.metrics(li->o.user, &text);
    write_answer(li,
                 &(struct sp_http_answer){
                     .status = 200, .type = METRICS_TYPE, .body = {text.data, text.len}},
                 out);
}

static bool on_request(void *user, struct sp_link *l, const struct sp_http_request *r,
                       struct sp_buf *out)
{
    struct sp_listener *li = user;
    struct sp_http_answer a = {.status = 400, .body = SP_STR("this socket carries lines")};

    if (li->o.is_lines_only) {
        write_answer(li, &a, out);
        return false;
    }
    switch (sp_http_gate_judge(&li->gate, r, time(NULL), &a)) {
    case SP_HTTP_GATE_ANSWER:
        if (sp_str_eq(r->method, SP_STR("HEAD")))
            a.body.n = 0; /* HEAD has no response body */
        write_answer(li, &a, out);
        return false;
    case SP_HTTP_GATE_METRICS:
        answer_metrics(li, out);
        return false;
    case SP_HTTP_GATE_UPGRADE:
        break;
    }
    if (!on_opened(li, l)) {
        (void)sp_http_write(
            out, &(struct sp_http_answer){.status = 503, .body = SP_STR("too many connections")});
        return false;
    }
    return sp_http_gate_write_switch(out, r);
}

static void on_gone(void *user)
{
    struct sp_listener *li = user;

    if (li->kind == SP_LISTEN_STDIO && !li->is_ending && li->o.finished != NULL)
        li->o.finished(li->o.user);
}

/* ---- accepting ---- */

static bool is_peer_trusted(const struct sp_listener *li, int fd)
{
    struct ucred c;
    socklen_t len = sizeof c;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &len) == 0 &&
           (c.uid == geteuid() || (c.uid == 0 && !li->o.is_own_user_only));
}

static void tune(int fd)
{
    const int on = 1;
    const int low = NOTSENT_LOW;

    /* Optional: for latency and memory. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &low, sizeof low);
}

static void accept_link(struct sp_listener *li, int fd, const struct sockaddr_storage *from)
{
    const bool is_unix = li->kind == SP_LISTEN_UNIX;
    char peer[SP_BIND_NAME];

    li->accepted++;
    const bool is_full = li->host.total >= SPARE && li->host.total - SPARE >= li->o.max_connections;
    /* Evicts links that have not authenticated, so that they cannot block others. */
    if ((is_unix && !is_peer_trusted(li, fd)) || (is_full && !sp_link_evict(&li->host))) {
        li->refused++;
        (void)close(fd);
        return;
    }
    if (!is_unix)
        tune(fd);
    sp_bind_name((const struct sockaddr *)from, peer);
    /* Lines cannot carry a token: with authentication only HTTP is accepted. */
    const enum sp_link_start start =
        is_unix && li->gate.auth == NULL ? SP_LINK_START_SNIFF : SP_LINK_START_HTTP;
    (void)sp_link_new(&li->host, fd, start, peer, NULL); /* out of memory: closed */
}

static void on_accept_timer(struct sp_timer *t)
{
    struct sp_listener *li = SP_CONTAINER(t, struct sp_listener, accept_timer);

    sp_loop_rewatch(li->host.loop, &li->watch, EPOLLIN);
}

/* Out of descriptors or memory: the connection stays in the backlog; do not spin on it. */
static void pause_accepting(struct sp_listener *li)
{
    if (sp_loop_timer(li->host.loop, &li->accept_timer,
                      sp_loop_now(li->host.loop) + ACCEPT_PAUSE_MS, on_accept_timer))
        sp_loop_rewatch(li->host.loop, &li->watch, 0);
}

static void on_connection(struct sp_watch *w, uint32_t events)
{
    struct sp_listener *li = SP_CONTAINER(w, struct sp_listener, watch);

    (void)events;
    for (unsigned i = 0; i < AT_ONCE; i++) {
        struct sockaddr_storage from = {0};
        socklen_t len = sizeof from;
        const int fd = accept4(w->fd, (struct sockaddr *)&from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd >= 0) {
            accept_link(li, fd, &from);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            pause_accepting(li);
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return;
        }
    }
}

/* ---- URLs ---- */

static bool read_ipv4(const char *host, uint16_t port, struct sp_listen_url *ret)
{
    ret->addr.in = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
    if (inet_pton(AF_INET, host, &ret->addr.in.sin_addr) != 1)
        return false;
    ret->is_loopback = ntohl(ret->addr.in.sin_addr.s_addr) >> 24 == 127;
    return true;
}

/* In brackets, with an optional numeric scope: [fe80::1%2]. */
static bool read_ipv6(char *host, size_t n, uint16_t port, struct sp_listen_url *ret)
{
    struct sockaddr_in6 *a = &ret->addr.in6;
    uint64_t scope = 0;

    if (n < 2 || host[0] != '[' || host[n - 1] != ']')
        return false;
    host[n - 1] = 0;
    char *percent = strchr(host, '%');
    if (percent != NULL) {
        *percent = 0;
        if (!sp_str_to_u64(sp_str_of(percent + 1), UINT32_MAX, &scope))
            return false;
    }
    *a = (struct sockaddr_in6){
        .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_scope_id = (uint32_t)scope};
    if (inet_pton(AF_INET6, host + 1, &a->sin6_addr) != 1)
        return false;
    ret->is_loopback = IN6_IS_ADDR_LOOPBACK(&a->sin6_addr) ||
                       (IN6_IS_ADDR_V4MAPPED(&a->sin6_addr) && a->sin6_addr.s6_addr[12] == 127);
    return true;
}

static bool read_address(const char *text, struct sp_listen_url *ret)
{
    char host[INET6_ADDRSTRLEN + 16];
    const char *colon = strrchr(text, ':');
    uint64_t port;

    if (colon == NULL || (size_t)(colon - text) >= sizeof host ||
        !sp_str_to_u64(sp_str_of(colon + 1), UINT16_MAX, &port))
        return false;
    const size_t n = (size_t)(colon - text);
    memcpy(host, text, n);
    host[n] = 0;
    return read_ipv4(host, (uint16_t)port, ret) || read_ipv6(host, n, (uint16_t)port, ret);
}

static int read_unix(const char *url, const char *path, struct sp_listen_url *ret, struct sp_err *e)
{
    const size_t n = strlen(path);

    if (n < 2 || path[n - 1] == '/')
        return sp_fail(e, SP_E_INVALID, 0,
                       "invalid unix --listen URL `%s`; expected `unix:///path`", url);
    if (n >= sizeof ret->addr.un.sun_path)
        return sp_fail(e, SP_E_INVALID, 0,
                       "invalid unix --listen URL `%s`; the path is longer than %zu bytes", url,
                       sizeof ret->addr.un.sun_path - 1);
    *ret = (struct sp_listen_url){
        .kind = SP_LISTEN_UNIX, .addr.un.sun_family = AF_UNIX, .is_loopback = true};
    memcpy(ret->addr.un.sun_path, path, n + 1);
    return 0;
}

int sp_listen_parse(const char *url, struct sp_listen_url *ret, struct sp_err *e)
{
    struct sp_listen_url u = {.kind = SP_LISTEN_STDIO, .is_loopback = true};

    if (strcmp(url, "stdio") == 0 || strcmp(url, "stdio://") == 0) {
        *ret = u;
        return 0;
    }
    if (strncmp(url, "unix:///", 8) == 0)
        return read_unix(url, url + 7, ret, e);
    if (strncmp(url, "ws://", 5) != 0)
        return sp_fail(e, SP_E_INVALID, 0,
                       "unsupported --listen URL `%s`; expected `ws://IP:PORT` or `stdio`", url);
    u.kind = SP_LISTEN_WS;
    if (!read_address(url + 5, &u))
        return sp_fail(e, SP_E_INVALID, 0,
                       "invalid websocket --listen URL `%s`; expected `ws://IP:PORT`", url);
    *ret = u;
    return 0;
}

/* ---- life ---- */

static int start_listener(struct sp_listener *li, const struct sp_listen_url *url, struct sp_err *e)
{
    if (li->kind == SP_LISTEN_STDIO)
        return sp_link_new_pair(&li->host, STDIN_FILENO, STDOUT_FILENO, "stdio", e);
    const int r = sp_bind(url, &li->bound, e);
    if (r < 0)
        return r;
    return sp_loop_watch(li->host.loop, &li->watch, li->bound.fd, EPOLLIN, on_connection, e);
}

int sp_listener_new(struct sp_loop *loop, const struct sp_listen_url *url,
                    const struct sp_listen_options *o, struct sp_listener **ret, struct sp_err *e)
{
    struct sp_listener *li = calloc(1, sizeof *li);

    if (li == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make listener");
    li->kind = url->kind;
    li->o = *o;
    li->bound = (struct sp_bound){.fd = -1, .url = "stdio"};
    li->gate = (struct sp_http_gate){.auth = o->auth,
                                     .hosts = o->hosts,
                                     .is_unix = url->kind == SP_LISTEN_UNIX,
                                     .has_metrics = o->has_metrics && o->metrics != NULL};
    li->host = (struct sp_link_host){.loop = loop,
                                     .ping_every_ms = o->ping_every_ms,
                                     .silence_ms = o->silence_ms,
                                     .handshake_ms = o->handshake_ms,
                                     .max_line = o->max_line,
                                     .keeps_on = o->keeps_on,
                                     .is_narrow = o->is_narrow,
                                     .max_unfinished = o->max_unfinished,
                                     .scratch = li->scratch,
                                     .user = li,
                                     .request = on_request,
                                     .opened = on_opened,
                                     .gone = on_gone};
    const int r = start_listener(li, url, e);
    if (r < 0) {
        sp_listener_free(li);
        return r;
    }
    *ret = li;
    return 0;
}

void sp_listener_free(struct sp_listener *l)
{
    if (l == NULL)
        return;
    l->is_ending = true;
    sp_loop_unwatch(l->host.loop, &l->watch);
    sp_loop_cancel(l->host.loop, &l->accept_timer);
    sp_bound_done(&l->bound);
    while (l->host.first != NULL)
        sp_link_end_now(l->host.first, "the server stops");
    free(l);
}

const char *sp_listener_url(const struct sp_listener *l)
{
    return l->bound.url;
}

void sp_listener_stats(const struct sp_listener *l, struct sp_listener_stats *ret)
{
    *ret = (struct sp_listener_stats){
        .accepted = l->accepted,
        .refused = l->refused,
        .active = l->host.open,
        .bytes_in = l->host.bytes_in,
        .bytes_out = l->host.bytes_out,
    };
    for (const struct sp_link *k = l->host.first; k != NULL; k = sp_link_next(k))
        ret->queued_bytes += sp_link_queued(k);
}

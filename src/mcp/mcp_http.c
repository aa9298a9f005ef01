/* SPDX-License-Identifier: Apache-2.0 */
#include "mcp/mcp_http.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "mcp/mcp_http_priv.h"

#define AT_ONCE     16U  /* connections accepted in one callback */
#define BREATH_MS   100U /* no descriptors left: look again after so long */
#define NOTSENT_LOW (128 << 10)
#define SCHEME      "http://"

/* ---- accepting ---- */

static void tune(int fd)
{
    const int on = 1;
    const int low = NOTSENT_LOW;

    /* Both are for speed and memory only; without them everything still works. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &low, sizeof low);
}

/* A connection that has shown no token must not keep others out: the oldest that waits for its head
 * or was refused goes. true: there is a place now. */
static bool make_place(struct sp_mcp_http *h)
{
    struct sp_mcp_conn *oldest = NULL;

    for (struct sp_mcp_conn *c = h->conns; c != NULL; c = c->next)
        if (!c->is_trusted && !c->is_over && c->phase != SP_MCP_CONN_GONE)
            oldest = c;
    if (oldest != NULL)
        sp_mcp_conn_drop(oldest);
    return oldest != NULL;
}

static void welcome(struct sp_mcp_http *h, int fd)
{
    const bool is_full = h->total - h->over >= h->max;

    if (is_full && make_place(h)) {
        tune(fd);
        sp_mcp_conn_new(h, fd, false);
        return;
    }
    if (h->total >= SP_MCP_HTTP_SPARE && h->total - SP_MCP_HTTP_SPARE >= h->max) {
        (void)close(fd);
        return;
    }
    tune(fd);
    sp_mcp_conn_new(h, fd, is_full);
}

static void on_breath(struct sp_timer *t)
{
    struct sp_mcp_http *h = SP_CONTAINER(t, struct sp_mcp_http, breath);

    sp_loop_rewatch(h->loop, &h->watch, EPOLLIN);
}

/* Nothing but time helps, and the kernel keeps the connection waiting: do not spin on it. */
static void take_breath(struct sp_mcp_http *h)
{
    if (sp_loop_timer(h->loop, &h->breath, sp_loop_now(h->loop) + BREATH_MS, on_breath))
        sp_loop_rewatch(h->loop, &h->watch, 0);
}

static void on_connection(struct sp_watch *w, uint32_t events)
{
    struct sp_mcp_http *h = SP_CONTAINER(w, struct sp_mcp_http, watch);

    (void)events;
    for (unsigned i = 0; i < AT_ONCE; i++) {
        const int fd = accept4(w->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd >= 0) {
            welcome(h, fd);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            take_breath(h);
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return;
        }
    }
}

/* ---- the URL ---- */

static bool is_path(const char *path)
{
    for (const char *p = path; *p != 0; p++)
        if (*p <= ' ' || *p > '~' || *p == '?' || *p == '#')
            return false;
    return strlen(path) <= SP_MCP_HTTP_PATH_MAX;
}

/* "127.0.0.1:80/mcp" -> where to listen, and the path. */
static bool read_url(const char *rest, struct sp_listen_url *ret, const char **ret_path)
{
    const char *slash = strchr(rest, '/');
    const size_t n = slash == NULL ? strlen(rest) : (size_t)(slash - rest);
    const bool is_local = strncmp(rest, "localhost:", 10) == 0;
    const char *host = is_local ? "127.0.0.1" : "";
    const size_t skip = is_local ? 9 : 0;
    char address[128];

    if (n >= sizeof address - 16 || n < skip)
        return false;
    (void)snprintf(address, sizeof address, "ws://%s%.*s", host, (int)(n - skip), rest + skip);
    *ret_path = slash == NULL ? "/" : slash;
    return sp_listen_parse(address, ret, NULL) == 0 && is_path(*ret_path);
}

static int listen_on(struct sp_mcp_http *h, const struct sp_mcp_http_options *o, struct sp_err *e)
{
    struct sp_listen_url url;
    struct sp_err why = {0};
    const char *path = "/";

    if (strncmp(o->url, SCHEME, sizeof SCHEME - 1) != 0 ||
        !read_url(o->url + sizeof SCHEME - 1, &url, &path))
        return sp_fail(e, SP_E_INVALID, 0,
                       "`%s` is no URL to listen on; expected http://IP:PORT/PATH", o->url);
    if (!url.is_loopback && !o->allows_remote)
        return sp_fail(e, SP_E_INVALID, 0,
                       "%s can be reached from other machines; use 127.0.0.1, or --allow-remote "
                       "behind something that encrypts",
                       o->url);
    h->gate.is_loopback = url.is_loopback;
    (void)snprintf(h->gate.path, sizeof h->gate.path, "%s", path);
    if (sp_bind(&url, &h->bound, &why) < 0)
        return sp_fail(e, why.code, why.sys, "listen on %s", o->url);
    (void)snprintf(h->url, sizeof h->url, SCHEME "%s%s", h->bound.url + sizeof "ws://" - 1, path);
    return sp_loop_watch(h->loop, &h->watch, h->bound.fd, EPOLLIN, on_connection, e);
}

/* ---- life ---- */

int sp_mcp_http_new(struct sp_mcp *m, const struct sp_mcp_http_options *o, struct sp_mcp_http **ret,
                    struct sp_err *e)
{
    struct sp_mcp_http *h = calloc(1, sizeof *h);

    if (h == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make server");
    h->mcp = m;
    h->loop = sp_mcp_options(m)->loop;
    h->bound.fd = -1;
    h->max = o->max_connections;
    int r = sp_mcp_gate_init(&h->gate, o, e);
    if (r == 0)
        r = listen_on(h, o, e);
    if (r < 0) {
        sp_mcp_http_free(h);
        return r;
    }
    *ret = h;
    return 0;
}

void sp_mcp_http_free(struct sp_mcp_http *h)
{
    if (h == NULL)
        return;
    sp_loop_unwatch(h->loop, &h->watch);
    sp_loop_cancel(h->loop, &h->breath);
    sp_bound_done(&h->bound);
    while (h->conns != NULL)
        sp_mcp_conn_end_now(h->conns);
    sp_mcp_sessions_done(h);
    sp_mcp_gate_done(&h->gate);
    sp_mcp_message_done(&h->message);
    free(h);
}

const char *sp_mcp_http_url(const struct sp_mcp_http *h)
{
    return h->url;
}

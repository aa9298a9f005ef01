/* SPDX-License-Identifier: Apache-2.0 */
#include "server/net/listen.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "server/net/frames.h"
#include "server/net/http_gate.h"
#include "server/net/link_open.h"

#define SPARE        128U /* connections above the limit, which get a 503 */
#define METRICS_TYPE "text/plain; version=0.0.4"

struct sp_listener {
    struct sp_link_host host;
    struct sp_listen_options o;
    struct sp_http_gate gate;
    struct sp_acceptor acceptor; /* zero: stdio */
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

static void on_accepted(struct sp_acceptor *a, int fd, const char *peer)
{
    struct sp_listener *li = SP_CONTAINER(a, struct sp_listener, acceptor);
    const bool is_unix = li->kind == SP_LISTEN_UNIX;

    li->accepted++;
    const bool is_full = li->host.total >= SPARE && li->host.total - SPARE >= li->o.max_connections;
    /* Evicts links that have not authenticated, so that they cannot block others. */
    if ((is_unix && !is_peer_trusted(li, fd)) || (is_full && !sp_link_evict(&li->host))) {
        li->refused++;
        (void)close(fd);
        return;
    }
    /* Lines cannot carry a token: with authentication only HTTP is accepted. */
    const enum sp_link_start start =
        is_unix && li->gate.auth == NULL ? SP_LINK_START_SNIFF : SP_LINK_START_HTTP;
    (void)sp_link_new(&li->host, fd, start, peer, NULL); /* out of memory: closed */
}

/* ---- life ---- */

int sp_listener_new(struct sp_loop *loop, const struct sp_listen_url *url,
                    const struct sp_listen_options *o, struct sp_listener **ret, struct sp_err *e)
{
    struct sp_listener *li = calloc(1, sizeof *li);

    if (li == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make listener");
    li->kind = url->kind;
    li->o = *o;
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
    const int r = li->kind == SP_LISTEN_STDIO
                      ? sp_link_new_pair(&li->host, STDIN_FILENO, STDOUT_FILENO, "stdio", e)
                      : sp_acceptor_open(&li->acceptor, loop, url, on_accepted, e);
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
    sp_acceptor_done(&l->acceptor);
    while (l->host.first != NULL)
        sp_link_end_now(l->host.first, "the server stops");
    free(l);
}

const char *sp_listener_url(const struct sp_listener *l)
{
    return l->kind == SP_LISTEN_STDIO ? "stdio" : l->acceptor.url;
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

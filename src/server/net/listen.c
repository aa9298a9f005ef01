/* SPDX-License-Identifier: Apache-2.0 */
#include "server/net/listen.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/log.h"
#include "server/net/link_priv.h"

#define SPARE        128U /* connections above the limit, which get a 503 */
#define METRICS_TYPE "text/plain; version=0.0.4"

/* Owns its links through `host`; the layer above owns nothing here but the listener itself. */
struct sp_listener {
    struct sp_link_host host;
    struct sp_listen_options o;
    struct sp_http_gate gate; /* made of the options: what a request must have to become a link */
    struct sp_acceptor acceptor; /* zero: stdio */
    enum sp_listen_kind kind;
    bool is_ending;             /* options.finished is not called from sp_listener_free */
    uint64_t accepted, refused; /* for metrics */
    char scratch[SP_INTAKE_SCRATCH + 1];
};

/* ---- HTTP requests ---- */

static enum sp_http_gate_verdict answer(struct sp_http_answer *ret, unsigned status,
                                        const char *header, const char *body)
{
    *ret = (struct sp_http_answer){.status = status, .header = header, .body = sp_str_of(body)};
    return SP_HTTP_GATE_ANSWER;
}

/* What a person sees who opens the address in a browser: fixed text, no facts about this server. */
static const char page[] =
    "<!doctype html>\n<html lang=\"en\"><head><meta "
    "charset=\"utf-8\"><title>sallyport</title></head>\n"
    "<body><h1>sallyport</h1>\n"
    "<p>This port runs commands for programs. It speaks JSON-RPC over WebSocket; there is nothing "
    "to see in a browser.</p>\n"
    "<p>Give the address that <code>sallyport serve</code> printed to a client: <code>sallyport "
    "exec --on URL -- COMMAND</code>, or <code>CODEX_EXEC_SERVER_URL</code> of an agent.</p>\n"
    "</body></html>\n";
#define PAGE_HEADERS                                                                     \
    "content-security-policy: default-src 'none'; frame-ancestors 'none'\r\n"            \
    "x-content-type-options: nosniff\r\nreferrer-policy: no-referrer\r\ncache-control: " \
    "no-store\r\n"

/* Whether a browser asks: it lists text/html by name. */
static bool is_browser(const struct sp_http_request *r)
{
    struct sp_str accept = {"", 0};

    if (sp_http_header(r, "accept", &accept) != 1)
        return false;
    while (accept.n > 0) {
        struct sp_str type = sp_str_cut(&accept, ',');

        if (sp_str_eq_nocase(sp_str_trim(sp_str_cut(&type, ';')), SP_STR("text/html")))
            return true;
    }
    return false;
}

/* Why the request is no valid WebSocket upgrade; NULL: it is one. */
static const char *not_an_upgrade(const struct sp_http_request *r)
{
    char accept[SP_WS_ACCEPT_LEN];
    struct sp_str version = {"", 0};
    struct sp_str key = {"", 0};
    struct sp_str length = SP_STR("0");

    if (!sp_http_has_word(r, "connection", "upgrade"))
        return "Connection header did not include 'upgrade'";
    if (!sp_http_has_word(r, "upgrade", "websocket"))
        return "`Upgrade` header did not include 'websocket'";
    if (sp_http_header(r, "sec-websocket-version", &version) != 1 ||
        !sp_str_eq(version, SP_STR("13")))
        return "`Sec-WebSocket-Version` header did not include '13'";
    const unsigned keys = sp_http_header(r, "sec-websocket-key", &key);
    if (keys == 0)
        return "`Sec-WebSocket-Key` header missing";
    if (keys > 1 || key.n == 0 || !sp_ws_accept(key, accept))
        return "`Sec-WebSocket-Key` header is not usable";
    if (r->is_1_0)
        return "an upgrade needs HTTP/1.1";
    if (sp_http_header(r, "transfer-encoding", &length) != 0 ||
        sp_http_header(r, "content-length", &length) > 1 || !sp_str_eq(length, SP_STR("0")))
        return "an upgrade has no body";
    return NULL;
}

/* The order is the protocol's. Requests of web pages (an Origin, a foreign Host) are refused before
 * the path is looked at; the token is checked last. */
enum sp_http_gate_verdict sp_http_gate_judge(const struct sp_http_gate *g,
                                             const struct sp_http_request *r, int64_t now_s,
                                             struct sp_http_answer *ret)
{
    struct sp_str origin;

    if (sp_http_header(r, "origin", &origin) != 0)
        return answer(ret, 403, NULL, "");
    if (!g->is_unix && !sp_http_is_host_ours(r, g->hosts))
        return answer(ret, 403, NULL, "Host is not a name of this server");
    if (sp_str_eq(r->path, SP_STR("/readyz"))) {
        if (sp_str_eq(r->method, SP_STR("GET")) || sp_str_eq(r->method, SP_STR("HEAD")))
            return answer(ret, 200, NULL, "");
        return answer(ret, 405, "allow: GET,HEAD\r\n", "");
    }
    const bool is_root = sp_str_eq(r->path, SP_STR("/"));
    if (is_root || (g->has_metrics && sp_str_eq(r->path, SP_STR("/metrics")))) {
        if (!sp_str_eq(r->method, SP_STR("GET")))
            return answer(ret, 405, "allow: GET\r\n",
                          is_root ? "Request method must be `GET`" : "");
        const char *why = is_root ? not_an_upgrade(r) : NULL;
        if (why != NULL && is_browser(r)) {
            *ret = (struct sp_http_answer){.status = 400,
                                           .header = PAGE_HEADERS,
                                           .type = "text/html; charset=utf-8",
                                           .body = SP_STR(page)};
            return SP_HTTP_GATE_ANSWER;
        }
        if (why != NULL)
            return answer(ret, 400, NULL, why);
        struct sp_str token = {NULL, 0};
        struct sp_str query = r->target;
        (void)sp_str_cut(&query, '?');
        if (g->auth != NULL)
            why = sp_http_header(r, "authorization", &token) > 1
                      ? "invalid authorization header"
                      : sp_auth_check(g->auth, token, query, now_s);
        if (why != NULL)
            return answer(ret, 401, "www-authenticate: Bearer\r\n", why);
        return is_root ? SP_HTTP_GATE_UPGRADE : SP_HTTP_GATE_METRICS;
    }
    return answer(ret, 404, NULL, "");
}

bool sp_http_gate_write_switch(struct sp_buf *out, const struct sp_http_request *r)
{
    char accept[SP_WS_ACCEPT_LEN];
    struct sp_str key = {"", 0};

    (void)sp_http_header(r, "sec-websocket-key", &key);
    return sp_ws_accept(key, accept) &&
           sp_buf_printf(out,
                         "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n"
                         "upgrade: websocket\r\nsec-websocket-accept: %.*s\r\n\r\n",
                         SP_WS_ACCEPT_LEN, accept);
}

/* ---- callbacks of the links ---- */

static const char from_page[] = "a web page asked (it has an Origin header)";

static bool on_opened(void *user, struct sp_link *l)
{
    struct sp_listener *li = user;
    const struct sp_link_ops *ops = NULL;
    void *ops_user = NULL;

    if ((li->kind != SP_LISTEN_STDIO && li->host.open >= li->o.max_connections) ||
        !li->o.opened(li->o.user, l, &ops, &ops_user) || ops == NULL) {
        sp_log(SP_LOG_INFO, "connection %s refused: %u are open", sp_link_peer(l), li->host.open);
        li->refused++;
        return false;
    }
    sp_link_serve(l, ops, ops_user);
    return true;
}

static bool on_request(void *user, struct sp_link *l, const struct sp_http_request *r,
                       struct sp_buf *out)
{
    struct sp_listener *li = user;
    struct sp_http_answer a = {.status = 400,
                               .body = SP_STR("this socket takes JSON lines, not HTTP")};
    auto_buf struct sp_buf text = {0};
    enum sp_http_gate_verdict verdict = SP_HTTP_GATE_ANSWER;

    if (!li->o.is_lines_only)
        verdict = sp_http_gate_judge(&li->gate, r, time(NULL), &a);
    switch (verdict) {
    case SP_HTTP_GATE_UPGRADE:
        if (on_opened(li, l))
            return sp_http_gate_write_switch(out, r);
        /* on_opened has counted the refusal */
        a = (struct sp_http_answer){.status = 503, .body = SP_STR("too many connections")};
        break;
    case SP_HTTP_GATE_METRICS:
        li->o.metrics(li->o.user, &text);
        a = (struct sp_http_answer){
            .status = 200, .type = METRICS_TYPE, .body = {text.data, text.len}};
        break;
    case SP_HTTP_GATE_ANSWER:
        li->refused += a.status >= 400;
        if (a.status == 401 || a.status == 403)
            sp_log(SP_LOG_INFO, "connection %s refused: %.*s", sp_link_peer(l),
                   a.body.n == 0 ? (int)sizeof from_page - 1 : (int)a.body.n,
                   a.body.n == 0 ? from_page : a.body.p);
        if (sp_str_eq(r->method, SP_STR("HEAD")) && !li->o.is_lines_only)
            a.body.n = 0; /* HEAD has no response body */
        break;
    }
    (void)sp_http_write(out, &a); /* out of memory: truncated; the link closes in each case */
    return false;
}

static void on_gone(void *user)
{
    struct sp_listener *li = user;

    if (li->kind == SP_LISTEN_STDIO && !li->is_ending && li->o.finished != NULL)
        li->o.finished(li->o.user);
}

/* ---- accepting ---- */

static void on_accepted(struct sp_acceptor *a, int fd, const char *peer)
{
    struct sp_listener *li = SP_CONTAINER(a, struct sp_listener, acceptor);
    const bool is_unix = li->kind == SP_LISTEN_UNIX;
    struct ucred peer_is;
    socklen_t len = sizeof peer_is;

    li->accepted++;
    /* Who reaches a unix socket may run commands: our own user, and root if the options say so. */
    if (is_unix && (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer_is, &len) < 0 ||
                    (peer_is.uid != geteuid() && (peer_is.uid != 0 || li->o.is_own_user_only)))) {
        sp_log(SP_LOG_INFO, "connection of another user to %s refused", a->url);
        li->refused++;
        (void)close(fd);
        return;
    }
    /* Lines cannot carry a token: with authentication only HTTP is accepted. */
    const enum sp_link_start start =
        is_unix && li->gate.auth == NULL ? SP_LINK_START_SNIFF : SP_LINK_START_HTTP;
    if (sp_link_new(&li->host, fd, start, peer, NULL) < 0) /* which has closed it */
        li->refused++;
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
                                     .max_total = (uint64_t)o->max_connections + SPARE,
                                     .scratch = li->scratch,
                                     .user = li,
                                     .request = on_request,
                                     .opened = on_opened,
                                     .gone = on_gone};
    const int r = li->kind == SP_LISTEN_STDIO
                      ? sp_link_new_pair(&li->host, STDIN_FILENO, STDOUT_FILENO, "stdio", e)
                      : sp_acceptor_open(&li->acceptor, loop, url, o->kept, on_accepted, e);
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
    for (const struct sp_link *k = l->host.first; k != NULL; k = k->next)
        ret->queued_bytes += sp_link_queued(k);
}

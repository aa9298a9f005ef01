/* SPDX-License-Identifier: Apache-2.0 */
#include "server/net/http_gate.h"

#include <arpa/inet.h>

#include "server/net/frames.h"

static enum sp_http_gate_verdict answer(struct sp_http_answer *ret, unsigned status,
                                        const char *header, const char *body)
{
    *ret = (struct sp_http_answer){.status = status, .header = header, .body = sp_str_of(body)};
    return SP_HTTP_GATE_ANSWER;
}

/* ---- Host: protects against DNS rebinding by web pages ---- */

static bool is_ip(int family, struct sp_str s)
{
    char text[INET6_ADDRSTRLEN];
    struct in6_addr any;

    if (s.n >= sizeof text || sp_str_has_nul(s))
        return false;
    memcpy(text, s.p, s.n);
    text[s.n] = 0;
    return inet_pton(family, text, &any) == 1;
}

static bool is_our_name(const struct sp_http_gate *g, struct sp_str name)
{
    if (is_ip(AF_INET, name) || sp_str_eq_nocase(name, SP_STR("localhost")))
        return true;
    for (const char *const *h = g->hosts; h != NULL && *h != NULL; h++)
        if (sp_str_eq_nocase(name, sp_str_of(*h)))
            return true;
    return false;
}

bool sp_http_gate_is_host_ours(const struct sp_http_gate *g, const struct sp_http_request *r)
{
    struct sp_str host = {"", 0};
    const unsigned count = sp_http_header(r, "host", &host);

    if (g->is_unix || (count == 0 && r->is_1_0))
        return true;
    if (count != 1 || host.n == 0)
        return false;

    const bool is_literal = host.p[0] == '[';
    const char *end = memchr(host.p, is_literal ? ']' : ':', host.n);
    if (is_literal && end == NULL)
        return false;
    const size_t n = end == NULL ? host.n : (size_t)(end - host.p) + (is_literal ? 1 : 0);
    uint64_t port;
    return (n == host.n ||
            (host.p[n] == ':' &&
             sp_str_to_u64((struct sp_str){host.p + n + 1, host.n - n - 1}, UINT16_MAX, &port))) &&
           (is_literal ? is_ip(AF_INET6, (struct sp_str){host.p + 1, n - 2})
                       : is_our_name(g, (struct sp_str){host.p, n}));
}

/* ---- paths ---- */

/* NULL: the token is valid, or none is required. */
static const char *unauthorized(const struct sp_http_gate *g, const struct sp_http_request *r,
                                int64_t now_s)
{
    struct sp_str header = {NULL, 0};
    const size_t before = r->path.n + 1; /* the `?` */
    const struct sp_str query = r->target.n < before
                                    ? (struct sp_str){"", 0}
                                    : (struct sp_str){r->target.p + before, r->target.n - before};

    if (g->auth == NULL)
        return NULL;
    if (sp_http_header(r, "authorization", &header) > 1)
        return "invalid authorization header";
    return sp_auth_check(g->auth, header, query, now_s);
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

enum sp_http_gate_verdict sp_http_gate_judge(const struct sp_http_gate *g,
                                             const struct sp_http_request *r, int64_t now_s,
                                             struct sp_http_answer *ret)
{
    struct sp_str origin;

    if (sp_http_header(r, "origin", &origin) != 0)
        return answer(ret, 403, NULL, "");
    if (!sp_http_gate_is_host_ours(g, r))
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
        if (why != NULL)
            return answer(ret, 400, NULL, why);
        why = unauthorized(g, r, now_s);
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

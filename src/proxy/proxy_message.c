/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/proxy_message.h"

#include <assert.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* Bytes of a struct behind its head. */
#define REST(type) (sizeof(type) - sizeof(struct sp_proxy_head))

static_assert(sizeof(struct sp_proxy_head) == 16, "no padding");
static_assert(sizeof(struct sp_proxy_hello) == 32 + 2 * SP_PROXY_PORTS_MAX, "no padding");
static_assert(sizeof(struct sp_proxy_listen) == 24, "no padding");
static_assert(sizeof(struct sp_proxy_verdict) == 24, "no padding");
static_assert(sizeof(struct sp_proxy_done) == 80, "no padding");
static_assert(sizeof(struct sp_proxy_counts) == 72, "no padding");

/* ---- of the front ---- */

static bool is_hello(const struct sp_proxy_hello *h)
{
    const uint32_t flags =
        SP_PROXY_SOCKS | SP_PROXY_CHECK_SNI | SP_PROXY_LIMITED | SP_PROXY_UPSTREAM_STRICT;

    return h->head.len >= REST(*h) &&
           h->head.len - REST(*h) == (size_t)h->http_len + h->https_len + h->no_proxy_len &&
           (h->flags & ~flags) == 0 && h->port_count <= SP_PROXY_PORTS_MAX;
}

static bool is_listen(const struct sp_proxy_listen *l)
{
    return l->head.len == REST(*l) && l->kind >= SP_PROXY_DNS_UDP && l->kind < SP_PROXY_KIND_MAX &&
           l->port != 0 && l->zero == 0 && l->zeroes == 0;
}

static bool is_verdict(const struct sp_proxy_verdict *v)
{
    const unsigned flags = SP_PROXY_KEEP | SP_PROXY_LOCAL | SP_PROXY_LITERAL | SP_PROXY_DECIDED;

    if (v->head.len < REST(*v) || v->head.len - REST(*v) > SP_PROXY_TEXT_MAX ||
        v->head.number == 0 || v->is_allowed > 1 || v->reason >= SP_NETWORK_REASON_MAX ||
        (v->flags & ~flags) != 0)
        return false;
    for (size_t i = 0; i < COUNT(v->zero); i++)
        if (v->zero[i] != 0)
            return false;
    return v->is_allowed == 0 || v->reason == SP_NETWORK_REASON_NONE;
}

static bool is_front_message(const struct sp_proxy_head *m, int fd_count)
{
    switch (m->op) {
    case SP_PROXY_HELLO:
        return fd_count == 2 && is_hello((const void *)m);
    case SP_PROXY_RESOLVER:
        return fd_count == 1 && m->len == 0;
    case SP_PROXY_LISTEN:
        return fd_count == 1 && is_listen((const void *)m);
    case SP_PROXY_VERDICT:
        return fd_count == 0 && is_verdict((const void *)m);
    case SP_PROXY_FORGET:
        return fd_count == 0 && m->len <= SP_PROXY_HOST_MAX;
    case SP_PROXY_PING:
        return fd_count == 0 && m->len == 0;
    case SP_PROXY_RELAY:
        return fd_count == 2 && m->len == 0 && m->number != 0;
    default:
        return false;
    }
}

/* ---- of the proxy ---- */

static bool is_ask(const struct sp_proxy_ask *a)
{
    return a->head.number != 0 && a->protocol < SP_PROXY_PROTOCOL_MAX &&
           a->via < SP_PROXY_VIA_MAX && a->host_len != 0 && a->host_len <= SP_PROXY_HOST_MAX &&
           a->method_len <= SP_PROXY_METHOD_MAX && a->port != 0 && a->zero == 0 &&
           a->head.len == REST(*a) + a->host_len + a->method_len;
}

/* Without a number only the host and the port say which verdict the connection had. */
static bool is_done(const struct sp_proxy_done *d)
{
    return d->outcome < SP_PROXY_OUTCOME_MAX && d->reason < SP_NETWORK_REASON_MAX &&
           d->protocol < SP_PROXY_PROTOCOL_MAX && d->via < SP_PROXY_VIA_MAX &&
           (d->family == 0 || d->family == 4 || d->family == 6) && d->zero == 0 &&
           d->host_len <= SP_PROXY_HOST_MAX &&
           (d->head.number != 0 || (d->host_len != 0 && d->port != 0)) &&
           d->head.len == REST(*d) + d->host_len;
}

static bool is_proxy_message(const struct sp_proxy_head *m)
{
    switch (m->op) {
    case SP_PROXY_READY:
    case SP_PROXY_PONG:
        return m->len == 0;
    case SP_PROXY_GONE:
    case SP_PROXY_CLOSED:
        return m->len == 0 && m->number != 0;
    case SP_PROXY_UNABLE:
        return m->len != 0 && m->len <= SP_PROXY_TEXT_MAX;
    case SP_PROXY_ASK:
        return m->len >= REST(struct sp_proxy_ask) && is_ask((const void *)m);
    case SP_PROXY_KNOW:
        return m->number != 0 && m->len != 0 && m->len <= SP_PROXY_KNOW_MAX;
    case SP_PROXY_DONE:
        return m->len >= REST(struct sp_proxy_done) && is_done((const void *)m);
    case SP_PROXY_COUNTS:
        return m->len == REST(struct sp_proxy_counts);
    default:
        return false;
    }
}

bool sp_proxy_check(const void *bytes, size_t n, bool is_from_proxy, int fd_count)
{
    const struct sp_proxy_head *m = bytes;

    if (n < sizeof *m || n > SP_PROXY_MESSAGE_MAX || m->version != SP_PROXY_VERSION ||
        m->len != n - sizeof *m)
        return false;
    return is_from_proxy ? fd_count == 0 && is_proxy_message(m) : is_front_message(m, fd_count);
}

struct sp_str sp_proxy_text(const struct sp_proxy_head *m, size_t size)
{
    return (struct sp_str){(const char *)m + size, sizeof *m + m->len - size};
}

/* ---- words ---- */

static const char *word(const char *const *words, size_t count, uint8_t i)
{
    return i < count ? words[i] : "";
}

const char *sp_proxy_protocol_name(uint8_t protocol)
{
#define X(name, wire) wire,
    static const char *const words[] = {SP_PROXY_PROTOCOLS(X)};
#undef X
    return word(words, COUNT(words), protocol);
}

const char *sp_proxy_outcome_text(uint8_t outcome)
{
#define X(name, text) text,
    static const char *const words[] = {SP_PROXY_OUTCOMES(X)};
#undef X
    return word(words, COUNT(words), outcome);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proxy_upstream: the proxies that the host itself has to use, and NO_PROXY.
 */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "proxy/proxy_priv.h"

/* "HOST:PORT" or "HOST:PORT CREDENTIALS"; empty: none. */
bool sp_proxy_upstream_read(struct sp_str text, struct sp_proxy_upstream *ret)
{
    struct sp_str rest = text;
    const struct sp_str at = sp_str_cut(&rest, ' ');
    const char *colon = at.n == 0 ? NULL : memrchr(at.p, ':', at.n);
    struct sp_hostname host;
    uint64_t port;

    *ret = (struct sp_proxy_upstream){0};
    if (text.n == 0)
        return true;
    if (colon == NULL)
        return false;
    const size_t n = (size_t)(colon - at.p);
    if (sp_hostname_read((struct sp_str){at.p, n}, &host) != NULL ||
        !sp_str_to_u64((struct sp_str){colon + 1, at.n - n - 1}, UINT16_MAX, &port) || port == 0)
        return false;
    memcpy(ret->host, host.text, strlen(host.text) + 1);
    ret->port = (uint16_t)port;
    if (rest.n == 0)
        return true;
    auto_buf struct sp_buf field = {0};
    if (!sp_buf_add_str(&field, SP_STR("Proxy-Authorization: Basic ")) ||
        !sp_buf_add_str(&field, rest) || !sp_buf_add(&field, "\r\n", 3))
        return false;
    ret->field = TAKE_PTR(field.data); /* with its NUL */
    return true;
}

/* ---- NO_PROXY ---- */

static bool same_net(const struct sp_hostname *host, const struct sp_hostname *net, uint64_t bits)
{
    const size_t bytes = bits / 8;
    const uint8_t mask = (uint8_t)(0xff00U >> (bits % 8));

    return host->is_address && net->is_address && host->family == net->family &&
           memcmp(host->address, net->address, bytes) == 0 &&
           (bits % 8 == 0 || ((host->address[bytes] ^ net->address[bytes]) & mask) == 0);
}

static bool is_in_net(struct sp_str entry, const struct sp_hostname *host)
{
    struct sp_str rest = entry;
    const struct sp_str text = sp_str_cut(&rest, '/');
    struct sp_hostname net;
    uint64_t bits;

    return rest.n != 0 && sp_hostname_read(text, &net) == NULL && net.is_address &&
           sp_str_to_u64(rest, net.family == AF_INET ? 32 : 128, &bits) &&
           same_net(host, &net, bits);
}

/* "example.org", ".example.org" and "*.example.org" all mean the name and what is below it. */
static bool is_below(struct sp_str entry, struct sp_str host)
{
    (void)sp_str_skip_prefix(&entry, SP_STR("*"));
    (void)sp_str_skip_prefix(&entry, SP_STR("."));
    if (entry.n == 0 || host.n < entry.n)
        return false;
    const struct sp_str tail = {host.p + host.n - entry.n, entry.n};
    return sp_str_eq_nocase(tail, entry) &&
           (host.n == entry.n || host.p[host.n - entry.n - 1] == '.');
}

/* An entry may end in ":PORT". An IPv6 address has more than one colon, and no port here. */
static bool matches(struct sp_str entry, const struct sp_hostname *host, uint16_t port)
{
    const char *colon = entry.n == 0 ? NULL : memchr(entry.p, ':', entry.n);
    const size_t n = colon == NULL ? 0 : (size_t)(colon - entry.p);
    uint64_t only;

    if (sp_str_eq(entry, SP_STR("*")))
        return true;
    if (colon != NULL && memchr(colon + 1, ':', entry.n - n - 1) == NULL) {
        if (!sp_str_to_u64((struct sp_str){colon + 1, entry.n - n - 1}, UINT16_MAX, &only) ||
            only != port)
            return false;
        entry.n = n;
    }
    return is_below(entry, sp_str_of(host->text)) || is_in_net(entry, host);
}

const struct sp_proxy_upstream *sp_proxy_upstream_for(const struct sp_proxy_conn *c)
{
    const struct sp_proxy *p = c->p;
    const struct sp_proxy_upstream *u =
        c->speech == SP_PROXY_SAYS_HTTP ? &p->upstream_http : &p->upstream_tunnel;
    struct sp_str rest = sp_str_of(p->no_proxy);
    struct sp_hostname host;

    if (u->port == 0 || sp_hostname_read(sp_str_of(c->host), &host) != NULL)
        return NULL;
    while (rest.n != 0)
        if (matches(sp_str_trim(sp_str_cut(&rest, ',')), &host, c->port))
            return NULL;
    return u;
}

bool sp_proxy_upstream_request(const struct sp_proxy_conn *c, const struct sp_proxy_upstream *u,
                               struct sp_buf *out)
{
    const bool is_v6 = strchr(c->host, ':') != NULL;
    const char *open = is_v6 ? "[" : "";
    const char *close = is_v6 ? "]" : "";

    return sp_buf_printf(out, "CONNECT %s%s%s:%u HTTP/1.1\r\nHost: %s%s%s:%u\r\n%s\r\n", open,
                         c->host, close, c->port, open, c->host, close, c->port,
                         u->field == NULL ? "" : u->field);
}

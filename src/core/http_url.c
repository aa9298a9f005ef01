/* SPDX-License-Identifier: Apache-2.0 */
#include "core/http_url.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "core/http_message.h"

static bool is_alpha(char c)
{
    return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* 0: no scheme. */
static size_t scheme_length(struct sp_str s)
{
    size_t n = 0;

    if (s.n == 0 || !is_alpha(s.p[0]))
        return 0;
    while (n < s.n &&
           (is_alpha(s.p[n]) || is_digit(s.p[n]) || (s.p[n] != 0 && strchr("+-.", s.p[n]) != NULL)))
        n++;
    return n < s.n && s.p[n] == ':' ? n : 0;
}

static bool is_slash(char c)
{
    return c == '/' || c == '\\';
}

static int no_memory(struct sp_err *e)
{
    return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read the URL");
}

/* ---- percent signs ---- */

static bool add_decoded(struct sp_buf *b, struct sp_str s)
{
    bool ok = true;

    for (size_t i = 0; ok && i < s.n; i++) {
        char c = s.p[i];

        if (c == '%' && i + 2 < s.n && sp_hex_digit(s.p[i + 1]) >= 0 &&
            sp_hex_digit(s.p[i + 2]) >= 0) {
            c = (char)(sp_hex_digit(s.p[i + 1]) * 16 + sp_hex_digit(s.p[i + 2]));
            i += 2;
        }
        ok = sp_buf_add(b, &c, 1);
    }
    return ok;
}

static bool add_encoded(struct sp_buf *b, struct sp_str s, const char *also)
{
    bool ok = true;

    for (size_t i = 0; ok && i < s.n; i++) {
        const unsigned char c = (unsigned char)s.p[i];

        if (c <= ' ' || c >= 0x7f || strchr(also, c) != NULL)
            ok = sp_buf_printf(b, "%%%02X", c);
        else
            ok = sp_buf_add(b, s.p + i, 1);
    }
    return ok;
}

/* ---- components ---- */

/* A host must be an IPv4 address if its last label is a number. */
static bool is_bad_address(struct sp_str host)
{
    char text[64];
    struct in_addr address;
    size_t n = host.n;

    if (n > 0 && host.p[n - 1] == '.')
        n--;
    size_t at = n;
    while (at > 0 && is_digit(host.p[at - 1]))
        at--;
    if (at == n || (at > 0 && host.p[at - 1] != '.'))
        return false;
    if (n >= sizeof text)
        return true;
    memcpy(text, host.p, n);
    text[n] = 0;
    return inet_aton(text, &address) == 0;
}

static int check_host(struct sp_str host, struct sp_err *e)
{
    char text[64];
    struct in6_addr address;

    if (host.n == 0)
        return sp_fail(e, SP_E_INVALID, 0, "empty host");
    if (host.p[0] == '[') {
        if (host.n < 3 || host.n - 2 >= sizeof text || host.p[host.n - 1] != ']')
            return sp_fail(e, SP_E_INVALID, 0, "invalid IPv6 address");
        memcpy(text, host.p + 1, host.n - 2);
        text[host.n - 2] = 0;
        return strlen(text) == host.n - 2 && inet_pton(AF_INET6, text, &address) == 1
                   ? 0
                   : sp_fail(e, SP_E_INVALID, 0, "invalid IPv6 address");
    }
    for (size_t i = 0; i < host.n; i++)
        if ((unsigned char)host.p[i] <= ' ' || host.p[i] == 0x7f ||
            strchr("#/:<>?@[\\]^|%\"`{};,'()&*$=!", host.p[i]) != NULL)
            return sp_fail(e, SP_E_INVALID, 0, "invalid international domain name");
    if (is_bad_address(host))
        return sp_fail(e, SP_E_INVALID, 0, "invalid IPv4 address");
    return 0;
}

static int read_authority(struct sp_str s, struct sp_web_url *u, struct sp_err *e)
{
    const char *at = memrchr(s.p, '@', s.n);
    struct sp_str host = s;
    struct sp_str port = {0};
    uint64_t number;

    if (at != NULL) {
        const struct sp_str user = {s.p, (size_t)(at - s.p)};

        u->has_userinfo = user.n > 0;
        if (user.n > 0 &&
            (!add_decoded(&u->userinfo, user) ||
             (memchr(user.p, ':', user.n) == NULL && !sp_buf_add(&u->userinfo, ":", 1))))
            return no_memory(e);
        host = (struct sp_str){at + 1, s.n - (size_t)(at + 1 - s.p)};
    }
    const char *bracket = host.n > 0 && host.p[0] == '[' ? memchr(host.p, ']', host.n) : NULL;
    const char *from = bracket == NULL ? host.p : bracket;
    const bool is_open = host.n > 0 && host.p[0] == '[' && bracket == NULL;
    const char *colon =
        host.n == 0 || is_open ? NULL : memchr(from, ':', host.n - (size_t)(from - host.p));
    if (colon != NULL) {
        port = (struct sp_str){colon + 1, host.n - (size_t)(colon + 1 - host.p)};
        host.n = (size_t)(colon - host.p);
    }
    int r = check_host(host, e);
    if (r == 0 && port.n != 0 && !sp_str_to_u64(port, 65535, &number))
        r = sp_fail(e, SP_E_INVALID, 0, "invalid port number");
    if (r < 0)
        return r;
    bool ok = sp_web_add_lower(&u->text, host);
    if (port.n > 0)
        ok = ok && sp_buf_add(&u->text, ":", 1) && sp_buf_add_str(&u->text, port);
    return ok ? 0 : no_memory(e);
}

static bool add_target(struct sp_str s, struct sp_buf *b)
{
    const char *hash = memchr(s.p, '#', s.n);
    const size_t n = hash == NULL ? s.n : (size_t)(hash - s.p);
    const char *question = memchr(s.p, '?', n);
    const size_t path = question == NULL ? n : (size_t)(question - s.p);
    const size_t begin = b->len;

    bool ok = (path > 0 || sp_buf_add(b, "/", 1)) &&
              add_encoded(b, (struct sp_str){s.p, path}, "\"<>`{}");
    for (size_t i = begin; ok && i < b->len; i++)
        if (b->data[i] == '\\')
            b->data[i] = '/';
    if (question != NULL)
        ok = ok && add_encoded(b, (struct sp_str){question, n - path}, "\"<>'");
    return ok;
}

int sp_web_url_read(struct sp_str text, struct sp_web_url *u, struct sp_err *e)
{
    auto_buf struct sp_buf cleaned = {0};

    /* White space and control characters at both ends go, and tabs and line breaks anywhere. */
    for (; text.n > 0 && (unsigned char)text.p[0] <= ' '; text.n--)
        text.p++;
    while (text.n > 0 && (unsigned char)text.p[text.n - 1] <= ' ')
        text.n--;
    for (size_t i = 0; i < text.n; i++)
        if ((strchr("\t\r\n", text.p[i]) == NULL || text.p[i] == 0) &&
            !sp_buf_add(&cleaned, text.p + i, 1))
            return no_memory(e);
    const struct sp_str s = sp_buf_str(&cleaned);
    const size_t n = scheme_length(s);
    if (n == 0)
        return sp_fail(e, SP_E_INVALID, 0, "relative URL without a base");
    if (!sp_web_add_lower(&u->scheme, (struct sp_str){s.p, n}))
        return no_memory(e);
    u->is_http = sp_str_eq(sp_buf_str(&u->scheme), SP_STR("http")) ||
                 sp_str_eq(sp_buf_str(&u->scheme), SP_STR("https"));
    if (!u->is_http)
        return 0;
    size_t begin = n + 1;
    while (begin < s.n && is_slash(s.p[begin]))
        begin++;
    size_t end = begin;
    while (end < s.n && !is_slash(s.p[end]) && s.p[end] != '?' && s.p[end] != '#')
        end++;
    if (!sp_buf_printf(&u->text, "%.*s://", (int)u->scheme.len, u->scheme.data))
        return no_memory(e);
    const int r = read_authority((struct sp_str){s.p + begin, end - begin}, u, e);
    if (r < 0)
        return r;
    if (!add_target((struct sp_str){s.p + end, s.n - end}, &u->text) ||
        !sp_buf_add(&u->text, "", 1))
        return no_memory(e);
    u->text.len--; /* the NUL is not counted */
    return u->text.len <= SP_WEB_MAX_URL
               ? 0
               : sp_fail(e, SP_E_INVALID, 0, "it is longer than %u bytes", SP_WEB_MAX_URL);
}

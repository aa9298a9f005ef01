/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/remote/target.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/redact.h"
#include "base/str.h"

#define SHOWN 300 /* bytes of a URL in a message */

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Goes into a request line and a header as it is. */
static bool is_plain(const char *text)
{
    for (const char *p = text; *p != 0; p++)
        if (*p <= ' ' || *p >= 0x7F)
            return false;
    return true;
}

static int parse_unix(const char *url, struct sp_target *ret, struct sp_err *e)
{
    const char *path = url + strlen("unix://");

    if (path[0] != '/')
        return sp_fail(e, SP_E_INVALID, 0, "`%s` has no absolute path; write unix:///PATH", url);
    if (strlen(path) >= sizeof ret->un.sun_path)
        return sp_fail(e, SP_E_INVALID, 0, "the path of `%s` is too long for a socket (%zu bytes)",
                       url, sizeof ret->un.sun_path - 1);
    ret->is_unix = true;
    ret->un.sun_family = AF_UNIX;
    (void)snprintf(ret->un.sun_path, sizeof ret->un.sun_path, "%s", path);
    return 0;
}

/* host, [host], with :port or without; false: neither. */
static bool split(struct sp_str text, struct sp_target *ret)
{
    const bool is_bracketed = text.n != 0 && text.p[0] == '[';
    const char *end = is_bracketed ? memchr(text.p, ']', text.n) : memchr(text.p, ':', text.n);
    const size_t n = end == NULL ? text.n : (size_t)(end - text.p);
    struct sp_str host = {text.p, n};
    struct sp_str rest = {text.p + n, text.n - n};
    uint64_t port = 80;

    if (is_bracketed) {
        if (end == NULL)
            return false;
        host = (struct sp_str){host.p + 1, host.n - 1};
        rest = (struct sp_str){rest.p + 1, rest.n - 1};
    }
    if (host.n == 0 || host.n > SP_TARGET_MAX_HOST)
        return false;
    if (rest.n != 0 && (rest.p[0] != ':' ||
                        !sp_str_to_u64((struct sp_str){rest.p + 1, rest.n - 1}, UINT16_MAX, &port)))
        return false;
    memcpy(ret->host, host.p, host.n);
    ret->is_bracketed = is_bracketed;
    ret->port = (uint16_t)port;
    return port != 0;
}

static int parse_ws(const char *url, struct sp_target *ret, struct sp_err *e)
{
    const char *text = url + strlen("ws://");
    const size_t n = strcspn(text, "/?#");
    char shown[SHOWN];
    const char *path = text + n;

    if (!is_plain(text) || memchr(text, '@', n) != NULL || strchr(path, '#') != NULL ||
        !split((struct sp_str){text, n}, ret))
        return sp_fail(e, SP_E_INVALID, 0, "`%s` is no URL of a server; write ws://HOST:PORT",
                       sp_redact_url_to(url, shown, sizeof shown));
    if (strlen(path) > SP_TARGET_MAX_PATH - 1)
        return sp_fail(e, SP_E_INVALID, 0, "the path of `%.60s...` is too long",
                       sp_redact_url_to(url, shown, sizeof shown));
    (void)snprintf(ret->path, sizeof ret->path, "%s%s", path[0] == '?' ? "/" : "", path);
    return 0;
}

int sp_target_parse(const char *url, struct sp_target *ret, struct sp_err *e)
{
    struct sp_target t = {0};
    char shown[SHOWN];
    int r;

    (void)sp_redact_url_to(url, shown, sizeof shown);
    if (begins(url, "wss://"))
        return sp_fail(e, SP_E_INVALID, 0,
                       "`%s`: TLS is not spoken here; run the server through ssh (program = ssh, "
                       "HOST, sallyport, serve, --listen, stdio), or forward its socket with "
                       "ssh -L and use unix:///PATH",
                       shown);
    if (begins(url, "unix://"))
        r = parse_unix(url, &t, e);
    else if (begins(url, "ws://"))
        r = parse_ws(url, &t, e);
    else
        r = sp_fail(e, SP_E_INVALID, 0,
                    "`%s` is no URL of a server; write ws://HOST:PORT or unix:///PATH", shown);
    if (r == 0)
        *ret = t;
    return r;
}

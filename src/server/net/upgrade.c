/* SPDX-License-Identifier: Apache-2.0 */
#include "server/net/upgrade.h"

#include <stdio.h>
#include <sys/random.h>

#include "base/base64.h"
#include "server/net/http.h"

#define SHOWN 200U /* bytes of a refusal's body */

bool sp_upgrade_write(struct sp_upgrade *u, struct sp_buf *out)
{
    uint8_t random[16];

    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return false;
    (void)sp_base64_encode(u->key, random, sizeof random);
    return sp_buf_printf(out,
                         "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\n"
                         "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                         "Sec-WebSocket-Key: %.*s\r\n",
                         u->path[0] == 0 ? "/" : u->path, u->host, SP_UPGRADE_KEY_LEN, u->key) &&
           (u->token == NULL || sp_buf_printf(out, "Authorization: Bearer %s\r\n", u->token)) &&
           sp_buf_add_str(out, SP_STR("\r\n"));
}

static enum sp_upgrade_result refused(char *why, size_t size, const char *text)
{
    (void)snprintf(why, size, "%s", text);
    return SP_UPGRADE_REFUSED;
}

/* Waits for the body, up to SHOWN bytes: it tells more than the status. */
static enum sp_upgrade_result refuse_status(unsigned status, const struct sp_http_request *r,
                                            struct sp_str body, bool is_end, char *why, size_t size)
{
    struct sp_str value = {0};
    uint64_t length = 0;

    if (sp_http_header(r, "content-length", &value) == 0 ||
        !sp_str_to_u64(value, UINT64_MAX, &length))
        length = 0;
    if (length > SHOWN)
        length = SHOWN;
    if (body.n < length && !is_end)
        return SP_UPGRADE_MORE;
    const char *hint = status == 401   ? " (a token is wanted, as in URL/?token=TOKEN)"
                       : status == 404 ? " (is the path right?)"
                                       : "";
    const int n = snprintf(why, size, "the server refused the upgrade with status %u%s%s", status,
                           hint, body.n == 0 ? "" : ": ");
    if (n > 0 && (size_t)n < size) {
        size_t at = (size_t)n;

        for (size_t i = 0; i < body.n && i < SHOWN && at + 1 < size; i++)
            why[at++] = body.p[i] >= ' ' && body.p[i] < 0x7F ? body.p[i] : ' ';
        why[at] = 0;
    }
    return SP_UPGRADE_REFUSED;
}

enum sp_upgrade_result sp_upgrade_read(const struct sp_upgrade *u, struct sp_str bytes, bool is_end,
                                       size_t *ret_len, char *why, size_t size)
{
    char accept[SP_WS_ACCEPT_LEN];
    struct sp_str value = {0};
    uint64_t status;
    const char *end = bytes.n == 0 ? NULL : memmem(bytes.p, bytes.n, "\r\n\r\n", 4);
    const size_t len = end == NULL ? 0 : (size_t)(end - bytes.p) + 4; /* 0: incomplete */

    if (len == 0 && bytes.n > SP_HTTP_MAX_HEAD)
        return refused(why, size, "the answer to the upgrade is longer than any");
    if (len == 0 && bytes.n >= 5 && memcmp(bytes.p, "HTTP/", 5) != 0)
        return refused(why, size, "it is no HTTP server");
    if (len == 0)
        return is_end ? SP_UPGRADE_ENDED : SP_UPGRADE_MORE;
    /* "HTTP/1.x NNN ...", and lines that end in CR LF. */
    bool ok = len >= 15 && memcmp(bytes.p, "HTTP/1.", 7) == 0 && bytes.p[8] == ' ' &&
              sp_str_to_u64((struct sp_str){bytes.p + 9, 3}, 999, &status);
    for (size_t i = 0; ok && i < len; i++)
        ok = bytes.p[i] != 0 && (bytes.p[i] != '\n' || bytes.p[i - 1] == '\r');
    if (!ok)
        return refused(why, size, "the answer to the upgrade is malformed");
    struct sp_str head = {bytes.p, len - 2};
    (void)sp_str_cut(&head, '\n');
    const struct sp_http_request r = {.lines = head};
    if (status != 101)
        return refuse_status((unsigned)status, &r, (struct sp_str){bytes.p + len, bytes.n - len},
                             is_end, why, size);
    if (!sp_ws_accept((struct sp_str){u->key, sizeof u->key}, accept) ||
        !sp_http_has_word(&r, "upgrade", "websocket") ||
        !sp_http_has_word(&r, "connection", "upgrade") ||
        sp_http_header(&r, "sec-websocket-accept", &value) != 1 ||
        !sp_str_eq(value, (struct sp_str){accept, sizeof accept}))
        return refused(why, size, "the answer to the upgrade is not that of a WebSocket server");
    if (sp_http_header(&r, "sec-websocket-extensions", &value) != 0 ||
        sp_http_header(&r, "sec-websocket-protocol", &value) != 0)
        return refused(why, size, "the server wants an extension that was not offered");
    *ret_len = len;
    return SP_UPGRADE_DONE;
}

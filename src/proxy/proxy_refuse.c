/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proxy_refuse: how a refusal or a failure looks to the client.
 *
 * Each protocol gets an answer that its programs show to people: a response of HTTP, a reply of
 * SOCKS, an alert of TLS, a disconnect of SSH; any other one a reset. By name, the client's first
 * bytes tell the protocol. After the answer the client's bytes are read for a while, because a
 * reset caused by unread bytes would destroy the answer on its way.
 */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/json.h"
#include "proxy/proxy_priv.h"
#include "proxy/socks.h"

#define FIRST_BYTES_MS 2000 /* a program may read its certificates between connect and hello */
#define FLUSH_MS       30000
#define DRAIN_MS       1000
#define DRAIN_MAX      (64U << 10)

#define ALERT_ACCESS_DENIED     49
#define ALERT_UNRECOGNIZED_NAME 112

/* ---- HTTP ---- */

static const char *status_text(int status)
{
    switch (status) {
    case 400:
        return "Bad Request";
    case 403:
        return "Forbidden";
    case 408:
        return "Request Timeout";
    case 431:
        return "Request Header Fields Too Large";
    case 501:
        return "Not Implemented";
    case 502:
        return "Bad Gateway";
    case 503:
        return "Service Unavailable";
    case 505:
        return "HTTP Version Not Supported";
    default:
        return "Error";
    }
}

static bool is_head_request(const struct sp_proxy_conn *c)
{
    return c->http != NULL && strcmp(c->http->method, "HEAD") == 0;
}

static void answer_http(struct sp_proxy_conn *c, int status, const char *field, const char *type,
                        const struct sp_buf *body)
{
    const bool is_fine =
        sp_buf_printf(&c->client.out, "HTTP/1.1 %d %s\r\n", status, status_text(status)) &&
        (field == NULL || sp_buf_printf(&c->client.out, "x-proxy-error: %s\r\n", field)) &&
        sp_buf_printf(&c->client.out,
                      "Content-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n", type,
                      body->len) &&
        (is_head_request(c) || sp_buf_add_str(&c->client.out, sp_buf_str(body)));

    sp_proxy_conn_done(c);
    if (is_fine)
        c->state = SP_PROXY_AT_FLUSH;
    else
        sp_proxy_conn_end(c, true);
}

void sp_proxy_refuse_http(struct sp_proxy_conn *c, int status, const char *text)
{
    auto_buf struct sp_buf body = {0};

    if (sp_buf_printf(&body, "%s\n", text))
        answer_http(c, status, NULL, "text/plain", &body);
    else
        sp_proxy_conn_end(c, true);
}

static const char *source_of(const struct sp_proxy_conn *c)
{
    if ((c->verdict_flags & SP_PROXY_DECIDED) != 0)
        return "decider";
    if (c->reason == SP_NETWORK_REASON_METHOD_NOT_ALLOWED ||
        c->reason == SP_NETWORK_REASON_MITM_REQUIRED)
        return "mode_guard";
    return c->reason == SP_NETWORK_REASON_PROXY_DISABLED ? "proxy_state" : "baseline_policy";
}

/* The order of the members is that of the reference; "detail" is ours. */
static bool write_json(const struct sp_proxy_conn *c, struct sp_buf *out)
{
    return sp_buf_add_str(out, SP_STR("{\"status\":\"blocked\",\"host\":")) &&
           sp_json_add_str(out, sp_str_of(c->host)) &&
           sp_buf_printf(out,
                         ",\"reason\":\"%s\",\"decision\":\"deny\",\"source\":\"%s\","
                         "\"protocol\":\"%s\",\"port\":%u,\"message\":",
                         sp_network_reason_text(c->reason)->wire, source_of(c),
                         sp_proxy_protocol_name(c->protocol), c->port) &&
           sp_json_add_str(out, sp_str_of(sp_network_reason_text(c->reason)->message)) &&
           (c->text == NULL || (sp_buf_add_str(out, SP_STR(",\"detail\":")) &&
                                sp_json_add_str(out, sp_str_of(c->text)))) &&
           sp_buf_add_str(out, SP_STR("}"));
}

static bool write_plain(const struct sp_proxy_conn *c, struct sp_buf *out)
{
    return sp_buf_printf(out, "%s\n", sp_network_reason_text(c->reason)->message) &&
           (c->text == NULL || sp_buf_printf(out, "%s\n", c->text));
}

static void refuse_http(struct sp_proxy_conn *c)
{
    auto_buf struct sp_buf body = {0};
    const bool is_json = c->speech == SP_PROXY_SAYS_HTTP;

    if (is_json ? write_json(c, &body) : write_plain(c, &body))
        answer_http(c, 403, sp_network_reason_text(c->reason)->field,
                    is_json ? "application/json" : "text/plain", &body);
    else
        sp_proxy_conn_end(c, true);
}

static void fail_http(struct sp_proxy_conn *c)
{
    auto_buf struct sp_buf body = {0};
    const char *text = sp_proxy_outcome_text(c->outcome);
    const bool is_fine = c->upstream_status == 0
                             ? sp_buf_printf(&body, "%s\n", text)
                             : sp_buf_printf(&body, "%s\nstatus %d\n", text, c->upstream_status);

    if (is_fine)
        answer_http(c, c->outcome == SP_PROXY_CROWDED ? 503 : 502, NULL, "text/plain", &body);
    else
        sp_proxy_conn_end(c, true);
}

/* ---- SOCKS ---- */

static enum sp_socks_reply socks_reply(uint8_t outcome)
{
    switch (outcome) {
    case SP_PROXY_BLOCKED:
        return SP_SOCKS_NOT_ALLOWED;
    case SP_PROXY_UNRESOLVED:
        return SP_SOCKS_NO_HOST;
    case SP_PROXY_UNREACHABLE:
        return SP_SOCKS_NO_NETWORK;
    case SP_PROXY_REFUSED:
        return SP_SOCKS_REFUSED;
    case SP_PROXY_TIMED_OUT:
        return SP_SOCKS_TIMED_OUT;
    default:
        return SP_SOCKS_FAILED;
    }
}

static void answer_socks(struct sp_proxy_conn *c)
{
    uint8_t reply[SP_SOCKS_REPLY_BYTES];

    sp_socks_write_reply(socks_reply(c->outcome), reply);
    sp_proxy_conn_done(c);
    if (sp_buf_add(&c->client.out, reply, sizeof reply))
        c->state = SP_PROXY_AT_FLUSH;
    else
        sp_proxy_conn_end(c, true);
}

/* ---- by name: the protocol is the client's first bytes ---- */

static bool write_alert(struct sp_buf *out, uint8_t alert)
{
    const uint8_t bytes[7] = {0x15, 3, 3, 0, 2, 2, alert};

    return sp_buf_add(out, bytes, sizeof bytes);
}

static bool add_u32(struct sp_buf *out, size_t value)
{
    const uint8_t bytes[4] = {(uint8_t)(value >> 24), (uint8_t)(value >> 16), (uint8_t)(value >> 8),
                              (uint8_t)value};

    return sp_buf_add(out, bytes, sizeof bytes);
}

static bool write_sentence(const struct sp_proxy_conn *c, struct sp_buf *out)
{
    if (c->outcome != SP_PROXY_BLOCKED)
        return sp_buf_printf(out, "%s port %u: %s", c->host, c->port,
                             sp_proxy_outcome_text(c->outcome));
    if (c->text != NULL)
        return sp_buf_add_str(out, sp_str_of(c->text));
    return sp_buf_printf(out, "Network access to \"%s\" was blocked: %s", c->host,
                         sp_network_reason_text(c->reason)->message);
}

/* RFC 4253: our version, then a packet without encryption: length, padding length, DISCONNECT (1),
 * reason 1 (host not allowed to connect), description, language, padding to a multiple of 8. */
static bool write_disconnect(const struct sp_proxy_conn *c, struct sp_buf *out)
{
    static const char zeroes[16];
    auto_buf struct sp_buf text = {0};

    if (!write_sentence(c, &text))
        return false;
    const size_t payload = 1 + 4 + 4 + text.len + 4;
    const size_t padding = 4 + (8 - (4 + 1 + payload + 4) % 8) % 8;
    const uint8_t head[2] = {(uint8_t)padding, 1};

    return sp_buf_add_str(out, SP_STR("SSH-2.0-sallyport\r\n")) &&
           add_u32(out, 1 + payload + padding) && sp_buf_add(out, head, sizeof head) &&
           add_u32(out, 1) && add_u32(out, text.len) && sp_buf_add_str(out, sp_buf_str(&text)) &&
           add_u32(out, 0) && sp_buf_add(out, zeroes, padding);
}

static bool begins(const struct sp_buf *b, struct sp_str prefix)
{
    return b->len >= prefix.n && memcmp(b->data, prefix.p, prefix.n) == 0;
}

bool sp_proxy_refuse_step(struct sp_proxy_conn *c)
{
    const struct sp_buf *in = &c->client.in;
    bool is_fine;

    (void)sp_proxy_end_fill(&c->client, DRAIN_MAX);
    if (in->len < 4 && !c->client.is_eof && !c->client.is_broken && c->timer.slot != 0)
        return false; /* the timer ends the wait */
    if (begins(in, SP_STR("\x16\x03")))
        is_fine =
            write_alert(&c->client.out, c->outcome == SP_PROXY_UNRESOLVED ? ALERT_UNRECOGNIZED_NAME
                                                                          : ALERT_ACCESS_DENIED);
    else if (begins(in, SP_STR("SSH-")) || (in->len == 0 && c->port == 22))
        is_fine = write_disconnect(c, &c->client.out);
    else
        is_fine = false;
    sp_proxy_conn_set_timer(c, 0);
    if (is_fine)
        c->state = SP_PROXY_AT_FLUSH;
    else
        sp_proxy_conn_end(c, true);
    return true;
}

static void answer_by_name(struct sp_proxy_conn *c)
{
    const bool is_told = c->outcome == SP_PROXY_BLOCKED || c->outcome == SP_PROXY_UNRESOLVED;

    sp_proxy_conn_done(c);
    if (is_told && (c->port == 443 || c->port == 22)) {
        c->state = SP_PROXY_AT_REFUSE;
        sp_proxy_conn_set_timer(c, FIRST_BYTES_MS);
    } else {
        sp_proxy_conn_end(c, true);
    }
}

/* ---- all of them ---- */

void sp_proxy_refuse(struct sp_proxy_conn *c)
{
    if (c->speech == SP_PROXY_SAYS_SOCKS)
        answer_socks(c);
    else if (c->speech == SP_PROXY_SAYS_ANY)
        answer_by_name(c);
    else
        refuse_http(c);
}

void sp_proxy_fail(struct sp_proxy_conn *c)
{
    if (c->speech == SP_PROXY_SAYS_SOCKS)
        answer_socks(c);
    else if (c->speech == SP_PROXY_SAYS_ANY)
        answer_by_name(c);
    else
        fail_http(c);
}

void sp_proxy_refuse_server_name(struct sp_proxy_conn *c, uint8_t reason)
{
    const bool is_clean =
        c->client.piped == 0; /* else the alert would overtake the server's bytes */

    c->outcome = SP_PROXY_BLOCKED;
    c->reason = reason;
    sp_proxy_conn_done(c);
    sp_proxy_end_close(c, &c->server, true);
    sp_proxy_conn_release(c);
    if (is_clean && write_alert(&c->client.out, ALERT_UNRECOGNIZED_NAME))
        c->state = SP_PROXY_AT_FLUSH;
    else
        sp_proxy_conn_end(c, true);
}

/* ---- the last bytes ---- */

static bool flush_step(struct sp_proxy_conn *c)
{
    (void)sp_proxy_end_flush(&c->client);
    if (c->client.is_mute) {
        sp_proxy_conn_end(c, true);
        return false;
    }
    if (c->client.out.len != 0) {
        if (c->timer.slot == 0)
            sp_proxy_conn_set_timer(c, FLUSH_MS);
        return false;
    }
    sp_proxy_http_free(c);
    sp_proxy_end_close(c, &c->server, false);
    sp_proxy_conn_release(c);
    (void)shutdown(c->client.fd, SHUT_WR);
    sp_buf_done(&c->client.in);
    c->scanned = 0; /* counts drained bytes from here on */
    c->state = SP_PROXY_AT_DRAIN;
    sp_proxy_conn_set_timer(c, DRAIN_MS);
    return true;
}

bool sp_proxy_last_step(struct sp_proxy_conn *c)
{
    if (c->state == SP_PROXY_AT_FLUSH)
        return flush_step(c);
    while (sp_proxy_end_fill(&c->client, SP_PROXY_COPY_MAX) && c->scanned < DRAIN_MAX) {
        c->scanned += c->client.in.len;
        sp_buf_done(&c->client.in);
    }
    if (c->client.is_eof || c->client.is_broken || c->scanned >= DRAIN_MAX)
        sp_proxy_conn_end(c, false);
    return false;
}

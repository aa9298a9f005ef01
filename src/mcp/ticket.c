/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ticket: what a client carries back to a parked run. It is not secret, only ours: whoever changes
 * a bit of it has none. The payload is numbers, most significant byte first, then the digest, then
 * the caller's identity to its end.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/auto.h"
#include "base/base64.h"
#include "base/sha.h"
#include "mcp/parking_priv.h"

#define VERSION     "v1."
#define MAC_BYTES   32
#define MAC_CHARS   43 /* without padding */
#define FIXED_BYTES 60 /* of the payload: four numbers, a digest */
#define PAYLOAD_MAX (FIXED_BYTES + 255)
#define TICKET_MAX  1024
#define TEXT_MAX    SP_BASE64_LEN(PAYLOAD_MAX)

struct payload {
    uint64_t number, caller, expires_ms;
    uint32_t asked; /* which of the run's questions */
    struct sp_mcp_digest digest;
    struct sp_str identity;
};

/* ---- bytes ---- */

static uint8_t *put_number(uint8_t *to, uint64_t n, unsigned bytes)
{
    for (unsigned i = bytes; i-- > 0; n >>= 8)
        to[i] = (uint8_t)n;
    return to + bytes;
}

static uint64_t get_number(const uint8_t **from, unsigned bytes)
{
    uint64_t n = 0;

    for (unsigned i = 0; i < bytes; i++)
        n = n << 8 | *(*from)++;
    return n;
}

static size_t write_payload(uint8_t bytes[PAYLOAD_MAX], const struct payload *p)
{
    uint8_t *to = put_number(bytes, p->number, 8);

    to = put_number(to, p->caller, 8);
    to = put_number(to, p->expires_ms, 8);
    to = put_number(to, p->asked, 4);
    memcpy(to, p->digest.bytes, sizeof p->digest.bytes);
    memcpy(to + sizeof p->digest.bytes, p->identity.p, p->identity.n);
    return FIXED_BYTES + p->identity.n;
}

static bool read_payload(struct sp_str bytes, struct payload *ret)
{
    const uint8_t *from = (const uint8_t *)bytes.p;

    if (bytes.n <= FIXED_BYTES)
        return false;
    ret->number = get_number(&from, 8);
    ret->caller = get_number(&from, 8);
    ret->expires_ms = get_number(&from, 8);
    ret->asked = (uint32_t)get_number(&from, 4);
    memcpy(ret->digest.bytes, from, sizeof ret->digest.bytes);
    ret->identity = (struct sp_str){bytes.p + FIXED_BYTES, bytes.n - FIXED_BYTES};
    return true;
}

static void sign(const struct sp_mcp_caller *c, struct sp_str payload, uint8_t ret[MAC_BYTES])
{
    sp_hmac_sha256((struct sp_str){(const char *)c->mcp->key, sizeof c->mcp->key}, payload, ret);
}

/* ---- base64url, without padding ---- */

static bool add_base64url(struct sp_buf *out, struct sp_str bytes)
{
    char *at = sp_buf_room(out, SP_BASE64_LEN(bytes.n));

    if (at == NULL)
        return false;
    const char *end = sp_base64_encode(at, bytes.p, bytes.n);
    for (; at != end && *at != '='; at++) {
        *at = (char)(*at == '+' ? '-' : *at == '/' ? '_' : *at);
        out->len++;
    }
    return true;
}

/* Into bytes, which has room for TEXT_MAX. One spelling alone is right. */
static bool read_base64url(struct sp_str text, char *bytes, size_t *ret_len)
{
    size_t n = 0;

    if (text.n > TEXT_MAX - 3)
        return false;
    for (; n < text.n; n++) {
        if (text.p[n] == '+' || text.p[n] == '/' || text.p[n] == '=')
            return false;
        bytes[n] = (char)(text.p[n] == '-' ? '+' : text.p[n] == '_' ? '/' : text.p[n]);
    }
    while (n % 4 != 0)
        bytes[n++] = '=';
    return sp_base64_decode((struct sp_str){bytes, n}, bytes, ret_len, NULL) == 0;
}

/* ---- giving ---- */

bool sp_mcp_ticket_add(struct sp_buf *out, const struct sp_mcp_caller *c, uint64_t number,
                       const struct sp_mcp_digest *d)
{
    const struct sp_mcp_parked *parked = sp_mcp_parked_find(c, number);
    const size_t mark = out->len;
    uint8_t bytes[PAYLOAD_MAX];
    uint8_t mac[MAC_BYTES];

    if (parked == NULL)
        return false;
    const struct payload p = {.number = number,
                              .caller = c->number,
                              .expires_ms = parked->expires_ms,
                              .asked = parked->run->asked,
                              .digest = *d,
                              .identity = sp_str_of(c->identity)};
    const struct sp_str payload = {(const char *)bytes, write_payload(bytes, &p)};
    sign(c, payload, mac);
    if (sp_buf_add_str(out, SP_STR(VERSION)) && add_base64url(out, payload) &&
        sp_buf_add(out, ".", 1) &&
        add_base64url(out, (struct sp_str){(const char *)mac, MAC_BYTES}))
        return true;
    out->len = mark;
    return false;
}

/* ---- taking ---- */

/* Whether we have written this payload: the text before the last point and after it. */
static bool is_ours(const struct sp_mcp_caller *c, struct sp_str state, char *bytes,
                    struct sp_str *ret_payload)
{
    const size_t prefix = sizeof VERSION - 1;
    char mac_text[TEXT_MAX];
    uint8_t mac[MAC_BYTES];
    size_t n = 0;
    size_t mac_n = 0;

    if (state.n > TICKET_MAX || state.n < prefix + 1 + MAC_CHARS ||
        memcmp(state.p, VERSION, prefix) != 0 || state.p[state.n - MAC_CHARS - 1] != '.')
        return false;
    const struct sp_str text = {state.p + prefix, state.n - prefix - 1 - MAC_CHARS};
    if (!read_base64url(text, bytes, &n) ||
        !read_base64url((struct sp_str){state.p + state.n - MAC_CHARS, MAC_CHARS}, mac_text,
                        &mac_n))
        return false;
    *ret_payload = (struct sp_str){bytes, n};
    sign(c, *ret_payload, mac);
    return sp_same_secret((struct sp_str){(const char *)mac, MAC_BYTES},
                          (struct sp_str){mac_text, mac_n});
}

int sp_mcp_ticket_read(struct sp_str state, const struct sp_mcp_caller *c,
                       const struct sp_mcp_digest *d, uint64_t *ret_number, struct sp_err *e)
{
    char bytes[TEXT_MAX];
    struct sp_str text = {0};
    struct payload p = {0};

    if (!is_ours(c, state, bytes, &text) || !read_payload(text, &p))
        return sp_fail(e, SP_E_MALFORMED, 0,
                       "it was not made by this server, or was changed since");
    if (p.caller != c->number || !sp_str_eq(p.identity, sp_str_of(c->identity)))
        return sp_fail(e, SP_E_INVALID, 0, "it belongs to another caller");
    if (p.expires_ms <= sp_loop_now(c->mcp->options.loop))
        return sp_fail(e, SP_E_INVALID, 0, "it has expired");
    if (memcmp(&p.digest, d, sizeof *d) != 0)
        return sp_fail(e, SP_E_INVALID, 0,
                       "it belongs to a call of another tool, or with other arguments");
    const struct sp_mcp_parked *parked = sp_mcp_parked_find(c, p.number);
    if (parked != NULL && parked->run->asked != p.asked)
        return sp_fail(e, SP_E_INVALID, 0, "its question is not asked any more");
    *ret_number = p.number;
    return 0;
}

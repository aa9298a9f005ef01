/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parking: parked runs, the digest that says what a call is about, and the tickets with which
 * clients come back to parked runs.
 */
#include "mcp/parking.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/base64.h"
#include "base/sha.h"

#define EXPONENT_DIGITS_MAX 15 /* longer exponents are compared as text */

/* ---- the digest of a call ----
 *
 * Each value is written as a letter for its kind, its length or count, and its bytes, so different
 * values never look alike. Members are sorted by name. A number becomes its digits and a power of
 * ten, which is exact. Values nest no deeper than the JSON parser allows.
 */

static bool add_bytes(struct sp_buf *out, char kind, struct sp_str s)
{
    return sp_buf_printf(out, "%c%zu:", kind, s.n) && sp_buf_add_str(out, s);
}

/* Parses the exponent at `text` ("e-12", or nothing). false: out of range. */
static bool read_exponent(struct sp_str text, int64_t *exponent)
{
    uint64_t n = 0;

    if (text.n == 0)
        return true;
    text = (struct sp_str){text.p + 1, text.n - 1};
    const bool is_negative = text.n != 0 && text.p[0] == '-';
    if (text.n != 0 && (text.p[0] == '-' || text.p[0] == '+'))
        text = (struct sp_str){text.p + 1, text.n - 1};
    while (text.n > 1 && text.p[0] == '0')
        text = (struct sp_str){text.p + 1, text.n - 1};
    if (text.n > EXPONENT_DIGITS_MAX || !sp_str_to_u64(text, INT64_MAX, &n))
        return false;
    *exponent += is_negative ? -(int64_t)n : (int64_t)n;
    return true;
}

static bool add_number(struct sp_buf *out, struct sp_str all)
{
    auto_buf struct sp_buf digits = {0}; /* without leading zeros */
    int64_t exponent = 0;                /* of the last digit */
    const bool is_negative = all.n != 0 && all.p[0] == '-';
    bool is_fraction = false;
    size_t i = is_negative;

    for (; i < all.n && all.p[i] != 'e' && all.p[i] != 'E'; i++) {
        if (all.p[i] == '.') {
            is_fraction = true;
            continue;
        }
        if ((all.p[i] != '0' || digits.len != 0) && !sp_buf_add(&digits, &all.p[i], 1))
            return false;
        exponent -= is_fraction;
    }
    if (digits.len == 0)
        return sp_buf_add(out, "0", 1); /* sign and exponent of zero do not matter */
    if (!read_exponent((struct sp_str){all.p + i, all.n - i}, &exponent))
        return add_bytes(out, 'r', all);
    for (; digits.data[digits.len - 1] == '0'; digits.len--)
        exponent++;
    return sp_buf_printf(out, "n%c%" PRId64 ",", is_negative ? '-' : '+', exponent) &&
           add_bytes(out, 'd', sp_buf_str(&digits));
}

struct member {
    struct sp_str name;
    uint32_t value;
};

static int compare_names(const void *a, const void *b)
{
    const struct sp_str x = ((const struct member *)a)->name;
    const struct sp_str y = ((const struct member *)b)->name;
    const size_t n = x.n < y.n ? x.n : y.n;
    const int order = n == 0 ? 0 : memcmp(x.p, y.p, n);

    return order != 0 ? order : (x.n > y.n) - (x.n < y.n);
}

static bool add_value(struct sp_buf *out, struct sp_json *j, uint32_t token);

static bool add_object(struct sp_buf *out, struct sp_json *j, uint32_t token)
{
    const uint32_t count = j->tokens[token].children;
    auto_free struct member *members = calloc((size_t)count + 1, sizeof *members);
    uint32_t n = 0;
    bool ok = members != NULL && sp_buf_printf(out, "o%" PRIu32 ":", count);

    if (!ok)
        return false;
    for (uint32_t i = sp_json_first(j, token); i != SP_JSON_NONE; i = sp_json_next(j, token, i))
        members[n++] = (struct member){sp_json_str(j, i), i + 1};
    qsort(members, n, sizeof *members, compare_names);
    for (uint32_t i = 0; ok && i < n; i++)
        ok = add_bytes(out, 's', members[i].name) && add_value(out, j, members[i].value);
    return ok;
}

static bool add_value(struct sp_buf *out, struct sp_json *j, uint32_t token)
{
    bool ok = true;

    switch (sp_json_type(j, token)) {
    case SP_JSON_NULL:
        return sp_buf_add(out, "z", 1);
    case SP_JSON_FALSE:
        return sp_buf_add(out, "f", 1);
    case SP_JSON_TRUE:
        return sp_buf_add(out, "t", 1);
    case SP_JSON_INT:
    case SP_JSON_UINT:
    case SP_JSON_REAL:
        return add_number(out, sp_json_raw(j, token));
    case SP_JSON_STRING:
        return add_bytes(out, 's', sp_json_str(j, token));
    case SP_JSON_OBJECT:
        return add_object(out, j, token);
    case SP_JSON_ARRAY:
        break;
    }
    ok = sp_buf_printf(out, "a%" PRIu32 ":", j->tokens[token].children);
    for (uint32_t i = sp_json_first(j, token); ok && i != SP_JSON_NONE;
         i = sp_json_next(j, token, i))
        ok = add_value(out, j, i);
    return ok;
}

bool sp_mcp_digest_of(struct sp_str tool, struct sp_json *arguments, struct sp_mcp_digest *ret)
{
    auto_buf struct sp_buf text = {0};

    if (!add_bytes(&text, 's', tool) || !add_value(&text, arguments, 0))
        return false;
    sp_sha256(sp_buf_str(&text), ret->bytes);
    return true;
}

/* ---- parked runs: all stay equally long, so the oldest expires first ---- */

struct parked {
    struct sp_list link;
    struct sp_mcp_run *run;
    uint64_t number, expires_ms;
    struct sp_mcp_digest digest;
    bool wants_repeat;
};

struct sp_mcp_parking {
    struct sp_mcp_caller *caller;
    struct sp_list list; /* oldest first */
    uint32_t count;
    uint64_t last_number;
    struct sp_timer timer;
};

static struct sp_loop *loop_of(const struct sp_mcp_parking *p)
{
    return p->caller->mcp->options.loop;
}

static struct parked *parked_of(struct sp_list *link)
{
    return SP_CONTAINER(link, struct parked, link);
}

static struct sp_mcp_run *take_out(struct sp_mcp_parking *p, struct parked *at)
{
    struct sp_mcp_run *r = at->run;

    sp_list_remove(&at->link);
    p->count--;
    free(at);
    return r;
}

static void expire_parked(struct sp_timer *t);

/* Not out of memory: sp_mcp_park has armed the timer, so its slot exists. */
static void arm_expiry(struct sp_mcp_parking *p)
{
    if (sp_list_is_empty(&p->list))
        sp_loop_cancel(loop_of(p), &p->timer);
    else
        (void)sp_loop_timer(loop_of(p), &p->timer, parked_of(p->list.next)->expires_ms,
                            expire_parked);
}

static void expire_parked(struct sp_timer *t)
{
    struct sp_mcp_parking *p = SP_CONTAINER(t, struct sp_mcp_parking, timer);

    while (!sp_list_is_empty(&p->list) &&
           parked_of(p->list.next)->expires_ms <= sp_loop_now(loop_of(p)))
        sp_mcp_run_cancel(take_out(p, parked_of(p->list.next)));
    arm_expiry(p);
}

static void ignore(void *user)
{
    (void)user;
}

static void ignore_result(void *user, const struct sp_mcp_result *result)
{
    (void)user; /* never called: a held run keeps its result */
    (void)result;
}

bool sp_mcp_park(struct sp_mcp_run *r, const struct sp_mcp_digest *d, bool wants_repeat,
                 uint64_t *ret_number)
{
    static const struct sp_mcp_run_ops ignored = {
        .done = ignore_result, .question = ignore, .withdrawn = ignore};
    struct sp_mcp_caller *c = r->caller;
    const uint64_t expires_ms = sp_loop_now(c->mcp->options.loop) + SP_MCP_PARKED_MS;

    if (c->parking == NULL && (c->parking = calloc(1, sizeof *c->parking)) != NULL) {
        c->parking->caller = c;
        sp_list_init(&c->parking->list);
    }
    struct sp_mcp_parking *p = c->parking;
    struct parked *new = p == NULL ? NULL : calloc(1, sizeof *new);
    if (new == NULL ||
        (p->timer.slot == 0 && !sp_loop_timer(loop_of(p), &p->timer, expires_ms, expire_parked))) {
        free(new);
        sp_mcp_run_cancel(r);
        return false;
    }
    if (p->count == SP_MCP_PARKED_MAX)
        sp_mcp_run_cancel(take_out(p, parked_of(p->list.next)));
    *new = (struct parked){.run = r,
                           .number = ++p->last_number,
                           .expires_ms = expires_ms,
                           .digest = *d,
                           .wants_repeat = wants_repeat};
    sp_list_append(&p->list, &new->link);
    p->count++;
    arm_expiry(p);
    r->ops = &ignored;
    r->user = NULL;
    sp_mcp_run_hold(r, true);
    *ret_number = new->number;
    return true;
}

static struct parked *find_parked(const struct sp_mcp_caller *c, uint64_t number)
{
    if (c->parking == NULL)
        return NULL;
    sp_list_each(i, &c->parking->list) {
        if (parked_of(i)->number == number)
            return parked_of(i);
    }
    return NULL;
}

struct sp_mcp_run *sp_mcp_parked(const struct sp_mcp_caller *c, uint64_t number)
{
    const struct parked *at = find_parked(c, number);

    return at == NULL ? NULL : at->run;
}

static struct sp_mcp_run *unpark(struct sp_mcp_caller *c, struct parked *at)
{
    if (at == NULL)
        return NULL;
    struct sp_mcp_run *r = take_out(c->parking, at);
    arm_expiry(c->parking);
    return r;
}

struct sp_mcp_run *sp_mcp_unpark(struct sp_mcp_caller *c, uint64_t number)
{
    return unpark(c, find_parked(c, number));
}

struct sp_mcp_run *sp_mcp_unpark_same(struct sp_mcp_caller *c, const struct sp_mcp_digest *d)
{
    if (c->parking == NULL)
        return NULL;
    sp_list_each(i, &c->parking->list) {
        struct parked *at = parked_of(i);

        if (at->wants_repeat && memcmp(&at->digest, d, sizeof *d) == 0)
            return unpark(c, at);
    }
    return NULL;
}

void sp_mcp_parking_free(struct sp_mcp_parking *p)
{
    if (p == NULL)
        return;
    sp_list_each_safe(i, &p->list)
        sp_mcp_run_cancel(take_out(p, parked_of(i)));
    sp_loop_cancel(loop_of(p), &p->timer);
    p->caller->parking = NULL;
    free(p);
}

/* ---- tickets ----
 *
 * `v1.<payload>.<mac>`, both base64url without padding. The payload is three numbers of 8 bytes and
 * one of 4, most significant byte first, then the digest, then the caller's identity. It is not
 * secret; the MAC (HMAC-SHA-256 with a key of this process) proves that this server wrote it.
 */

#define VERSION     "v1."
#define MAC_BYTES   32
#define MAC_CHARS   43 /* in base64url */
#define FIXED_BYTES 60 /* of the payload: the numbers and the digest */
#define PAYLOAD_MAX (FIXED_BYTES + 255)
#define TICKET_MAX  1024
#define TEXT_MAX    SP_BASE64_LEN(PAYLOAD_MAX)

struct payload {
    uint64_t number, caller, expires_ms;
    uint32_t asked; /* which of the run's questions */
    struct sp_mcp_digest digest;
    struct sp_str identity;
};

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

static void sign(const struct sp_mcp_caller *c, struct sp_str payload, uint8_t ret[MAC_BYTES])
{
    sp_hmac_sha256((struct sp_str){(const char *)c->mcp->key, sizeof c->mcp->key}, payload, ret);
}

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

/* Decodes into bytes, which has room for TEXT_MAX. Refuses every other spelling of the same bytes.
 */
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

bool sp_mcp_ticket_add(struct sp_buf *out, const struct sp_mcp_caller *c, uint64_t number,
                       const struct sp_mcp_digest *d)
{
    const struct parked *parked = find_parked(c, number);
    const struct sp_str identity = sp_str_of(c->identity);
    const size_t mark = out->len;
    uint8_t bytes[PAYLOAD_MAX];
    uint8_t mac[MAC_BYTES];

    if (parked == NULL)
        return false;
    uint8_t *to = put_number(bytes, number, 8);
    to = put_number(to, c->number, 8);
    to = put_number(to, parked->expires_ms, 8);
    to = put_number(to, parked->run->asked, 4);
    memcpy(to, d->bytes, sizeof d->bytes);
    memcpy(to + sizeof d->bytes, identity.p, identity.n);
    const struct sp_str payload = {(const char *)bytes, FIXED_BYTES + identity.n};
    sign(c, payload, mac);
    if (sp_buf_add_str(out, SP_STR(VERSION)) && add_base64url(out, payload) &&
        sp_buf_add(out, ".", 1) &&
        add_base64url(out, (struct sp_str){(const char *)mac, MAC_BYTES}))
        return true;
    out->len = mark;
    return false;
}

/* Decodes the payload into `bytes`. false: this server did not sign it. */
static bool read_payload(const struct sp_mcp_caller *c, struct sp_str state, char *bytes,
                         struct payload *ret)
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
    const struct sp_str mac_chars = {state.p + state.n - MAC_CHARS, MAC_CHARS};
    if (!read_base64url(text, bytes, &n) || !read_base64url(mac_chars, mac_text, &mac_n))
        return false;
    sign(c, (struct sp_str){bytes, n}, mac);
    if (!sp_same_secret((struct sp_str){(const char *)mac, MAC_BYTES},
                        (struct sp_str){mac_text, mac_n}) ||
        n <= FIXED_BYTES)
        return false;
    const uint8_t *from = (const uint8_t *)bytes;
    ret->number = get_number(&from, 8);
    ret->caller = get_number(&from, 8);
    ret->expires_ms = get_number(&from, 8);
    ret->asked = (uint32_t)get_number(&from, 4);
    memcpy(ret->digest.bytes, from, sizeof ret->digest.bytes);
    ret->identity = (struct sp_str){bytes + FIXED_BYTES, n - FIXED_BYTES};
    return true;
}

int sp_mcp_ticket_read(struct sp_str state, const struct sp_mcp_caller *c,
                       const struct sp_mcp_digest *d, uint64_t *ret_number, struct sp_err *e)
{
    char bytes[TEXT_MAX];
    struct payload p = {0};

    if (!read_payload(c, state, bytes, &p))
        return sp_fail(e, SP_E_MALFORMED, 0,
                       "it was not made by this server, or was changed since");
    if (p.caller != c->number || !sp_str_eq(p.identity, sp_str_of(c->identity)))
        return sp_fail(e, SP_E_INVALID, 0, "it belongs to another caller");
    if (p.expires_ms <= sp_loop_now(c->mcp->options.loop))
        return sp_fail(e, SP_E_INVALID, 0, "it has expired");
    if (memcmp(&p.digest, d, sizeof *d) != 0)
        return sp_fail(e, SP_E_INVALID, 0,
                       "it belongs to a call of another tool, or with other arguments");
    const struct parked *parked = find_parked(c, p.number);
    if (parked != NULL && parked->run->asked != p.asked)
        return sp_fail(e, SP_E_INVALID, 0, "its question is not asked any more");
    *ret_number = p.number;
    return 0;
}

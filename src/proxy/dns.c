/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An answer is always below 512 bytes, which every client takes by UDP: a name has 255 bytes at
 * most, and answers refer to the name of the question by a pointer. So TC is never needed. Only a
 * PTR answer holds a second name, and its question is short (sp_dns_reverse).
 */
#include "proxy/dns.h"

#include <assert.h>
#include <string.h>
#include <sys/socket.h>

#define HEAD_BYTES    12
#define WIRE_NAME_MAX 255 /* of a name on the wire, with its final zero */
#define LABEL_MAX     63
#define CLASS_IN      1
#define TYPE_OPT      41
#define OPT_BYTES     11                     /* an OPT record without options */
#define NAME_OF_ASK   (0xc000U + HEAD_BYTES) /* a pointer to the name of the question */

#define FLAG_QR     0x8000U
#define FLAG_OPCODE 0x7800U
#define FLAG_RD     0x0100U
#define FLAG_RA     0x0080U
#define FLAG_CD     0x0010U

/* ---- reading ---- */

static uint16_t u16_at(struct sp_str s, size_t at)
{
    return (uint16_t)((uint8_t)s.p[at] << 8 | (uint8_t)s.p[at + 1]);
}

static char lower(char c)
{
    return (char)(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
}

/* Reads the name behind the head. The index behind it; 0: malformed. */
static size_t read_name(struct sp_str s, struct sp_dns_question *q)
{
    size_t at = HEAD_BYTES;

    q->name_len = 0;
    while (at < s.n && s.p[at] != 0) {
        const size_t n = (uint8_t)s.p[at++];

        /* A pointer has bits above LABEL_MAX. Its final zero included, the name fits WIRE_NAME_MAX.
         */
        if (n > LABEL_MAX || n >= s.n - at || at + n - HEAD_BYTES >= WIRE_NAME_MAX)
            return 0;
        if (q->name_len != 0)
            q->name[q->name_len++] = '.';
        for (size_t end = at + n; at < end; at++) {
            if (s.p[at] == 0 || s.p[at] == '.')
                return 0;
            q->name[q->name_len++] = lower(s.p[at]);
        }
    }
    q->name[q->name_len] = 0;
    return at < s.n ? at + 1 : 0;
}

/* Whether the rest is one OPT record: no name, type, size, extended code, version, flags, options.
 */
static bool is_opt(struct sp_str s, size_t at)
{
    return s.n - at >= OPT_BYTES && s.p[at] == 0 && u16_at(s, at + 1) == TYPE_OPT &&
           u16_at(s, at + 9) == s.n - at - OPT_BYTES;
}

int sp_dns_read(struct sp_str bytes, struct sp_dns_question *ret)
{
    *ret = (struct sp_dns_question){0};
    if (bytes.n < HEAD_BYTES || (u16_at(bytes, 2) & FLAG_QR) != 0)
        return -1;
    ret->id = u16_at(bytes, 0);
    ret->flags = u16_at(bytes, 2);
    if ((ret->flags & FLAG_OPCODE) != 0)
        return SP_DNS_NOTIMP;
    const unsigned additional = u16_at(bytes, 10);
    if (u16_at(bytes, 4) != 1 || u16_at(bytes, 6) != 0 || u16_at(bytes, 8) != 0 || additional > 1)
        return SP_DNS_FORMERR;
    size_t at = read_name(bytes, ret);
    if (at == 0 || bytes.n - at < 4)
        return SP_DNS_FORMERR;
    const unsigned class = u16_at(bytes, at + 2);
    ret->type = u16_at(bytes, at);
    at += 4;
    if (additional == 0 ? at != bytes.n : !is_opt(bytes, at))
        return SP_DNS_FORMERR;
    ret->has_opt = additional != 0;
    ret->wire_len = at - HEAD_BYTES;
    memcpy(ret->wire, bytes.p + HEAD_BYTES, ret->wire_len);
    /* A version above 0 asks for an extension of EDNS that does not exist yet. */
    return class != CLASS_IN || (ret->has_opt && bytes.p[at + 6] != 0) ? SP_DNS_NOTIMP : SP_DNS_OK;
}

static const char *read_octet(const char *p, uint32_t *ret)
{
    uint32_t n = 0;
    size_t digits = 0;

    while (digits < 3 && p[digits] >= '0' && p[digits] <= '9')
        n = n * 10 + (uint32_t)(p[digits++] - '0');
    if (digits == 0 || n > 255 || p[digits] != '.' || (digits > 1 && p[0] == '0'))
        return NULL;
    *ret = n;
    return p + digits + 1;
}

bool sp_dns_reverse(const char *name, uint32_t *ret)
{
    uint32_t address = 0;

    for (unsigned shift = 0; shift < 32; shift += 8) {
        uint32_t octet;

        name = read_octet(name, &octet);
        if (name == NULL)
            return false;
        address |= octet << shift;
    }
    if (strcmp(name, "in-addr.arpa") != 0)
        return false;
    *ret = address;
    return true;
}

/* ---- writing ---- */

struct writer {
    uint8_t *out;
    size_t n;
};

static void put_u16(struct writer *w, unsigned value)
{
    w->out[w->n++] = (uint8_t)(value >> 8);
    w->out[w->n++] = (uint8_t)value;
}

static void put_bytes(struct writer *w, const void *bytes, size_t n)
{
    if (n != 0)
        memcpy(w->out + w->n, bytes, n);
    w->n += n;
}

/* The head and the question, if it was read. */
static struct writer begin(const struct sp_dns_question *q, enum sp_dns_code code,
                           unsigned answer_count, uint8_t *out)
{
    struct writer w = {.out = out};
    const unsigned kept = q->flags & (FLAG_OPCODE | FLAG_RD | FLAG_CD);

    put_u16(&w, q->id);
    put_u16(&w, FLAG_QR | FLAG_RA | kept | (unsigned)code);
    put_u16(&w, q->wire_len != 0);
    put_u16(&w, answer_count);
    put_u16(&w, 0);
    put_u16(&w, q->has_opt);
    put_bytes(&w, q->wire, q->wire_len);
    return w;
}

/* An answer's record up to its data. */
static void put_record(struct writer *w, unsigned type, size_t data_len)
{
    put_u16(w, NAME_OF_ASK);
    put_u16(w, type);
    put_u16(w, CLASS_IN);
    put_u16(w, 0);
    put_u16(w, SP_DNS_TTL);
    put_u16(w, (unsigned)data_len);
}

static size_t finish(struct writer *w, const struct sp_dns_question *q)
{
    if (q->has_opt) {
        put_bytes(w, "", 1);
        put_u16(w, TYPE_OPT);
        put_u16(w, SP_DNS_MESSAGE_MAX);
        put_bytes(w, "\0\0\0\0\0\0", 6);
    }
    assert(w->n <= SP_DNS_MESSAGE_MAX);
    return w->n;
}

size_t sp_dns_write_code(const struct sp_dns_question *q, enum sp_dns_code code, uint8_t *out)
{
    struct writer w = begin(q, code, 0, out);

    return finish(&w, q);
}

size_t sp_dns_write_address(const struct sp_dns_question *q, int family, const void *address,
                            uint8_t *out)
{
    const size_t n = family == AF_INET ? 4 : 16;
    struct writer w = begin(q, SP_DNS_OK, 1, out);

    put_record(&w, family == AF_INET ? SP_DNS_A : SP_DNS_AAAA, n);
    put_bytes(&w, address, n);
    return finish(&w, q);
}

/* Writes the name as labels. Its length on the wire; 0: it is no name of DNS. */
static size_t encode(const char *name, uint8_t out[WIRE_NAME_MAX])
{
    const size_t n = strlen(name);
    size_t start = 0; /* of the label, in `name`; its length byte has the same index in `out` */

    if (n == 0 || n + 2 > WIRE_NAME_MAX)
        return 0;
    for (size_t i = 0; i <= n; i++) {
        if (i < n && name[i] != '.') {
            out[i + 1] = (uint8_t)name[i];
            continue;
        }
        if (i == start || i - start > LABEL_MAX)
            return 0;
        out[start] = (uint8_t)(i - start);
        start = i + 1;
    }
    out[n + 1] = 0;
    return n + 2;
}

size_t sp_dns_write_name(const struct sp_dns_question *q, const char *name, uint8_t *out)
{
    uint8_t wire[WIRE_NAME_MAX];
    const size_t n = encode(name, wire);

    if (n == 0)
        return sp_dns_write_code(q, SP_DNS_SERVFAIL, out);
    struct writer w = begin(q, SP_DNS_OK, 1, out);
    put_record(&w, SP_DNS_PTR, n);
    put_bytes(&w, wire, n);
    return finish(&w, q);
}

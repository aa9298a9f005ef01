/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A question of DNS that is read is echoed byte for byte, has a bounded name, and every answer to
 * it is a message that a second, simpler reader understands.
 */
#include <arpa/inet.h>

#include "base/auto.h"
#include "fuzz.h"
#include "proxy/dns.h"

static unsigned u16(const uint8_t *p)
{
    return (unsigned)p[0] << 8 | p[1];
}

static void check_question(const uint8_t *data, size_t size, const struct sp_dns_question *q)
{
    CHECK(size >= 12 && q->id == u16(data) && q->flags == u16(data + 2) && u16(data + 4) == 1);
    CHECK(q->wire_len >= 5 && q->wire_len <= 259 && q->wire_len <= size - 12);
    CHECK(memcmp(q->wire, data + 12, q->wire_len) == 0);
    CHECK(q->type == u16(q->wire + q->wire_len - 4));
    CHECK(q->name_len <= 253 && strlen(q->name) == q->name_len);
    CHECK(q->name_len == (q->wire_len == 5 ? 0 : q->wire_len - 6));
    for (size_t i = 0; i < q->name_len; i++) { /* the same letters, between dots */
        const uint8_t c = q->wire[i + 1];

        CHECK(q->name[i] == '.' || (uint8_t)q->name[i] == (c >= 'A' && c <= 'Z' ? c + 32 : c));
    }
}

/* The head, the question, and records that end with the message. */
static void check_answer(const struct sp_dns_question *q, const uint8_t *out, size_t n,
                         unsigned answers)
{
    size_t at = 12 + q->wire_len;

    CHECK(n >= at && n <= SP_DNS_MESSAGE_MAX);
    CHECK(u16(out) == q->id && (out[2] & 0x80) != 0 && (out[3] & 0x80) != 0 && (out[2] & 2) == 0);
    CHECK(u16(out + 4) == (q->wire_len != 0) && u16(out + 6) == answers && u16(out + 8) == 0);
    CHECK(u16(out + 10) == q->has_opt);
    CHECK(memcmp(out + 12, q->wire, q->wire_len) == 0);
    for (unsigned i = 0; i < answers; i++) {
        CHECK(n - at >= 12 && u16(out + at) == 0xc00c);
        at += 12 + u16(out + at + 10);
        CHECK(at <= n);
    }
    CHECK(n - at == (q->has_opt ? 11 : 0));
}

static void check_names(const struct sp_dns_question *q)
{
    uint8_t out[SP_DNS_MESSAGE_MAX];
    uint32_t address = 0;
    char text[80];
    const size_t n = sp_dns_write_name(q, q->name, out);

    /* The name of the question, as data: what is written is what was read, in small letters. */
    check_answer(q, out, n, q->name_len != 0);
    if (q->name_len != 0) {
        const uint8_t *data = out + 12 + q->wire_len + 12;

        for (size_t i = 0; i < q->wire_len - 4; i++)
            CHECK(data[i] == q->wire[i] || data[i] == q->wire[i] + 32);
    }
    if (sp_dns_reverse(q->name, &address)) {
        (void)snprintf(text, sizeof text, "%u.%u.%u.%u.in-addr.arpa", address & 255,
                       address >> 8 & 255, address >> 16 & 255, address >> 24);
        CHECK(strcmp(text, q->name) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_free char *bytes = fuzz_copy(data, size);
    uint8_t out[SP_DNS_MESSAGE_MAX];
    struct sp_dns_question q;
    const int r = sp_dns_read((struct sp_str){bytes, size}, &q);

    CHECK(r >= -1 && r <= SP_DNS_NOTIMP && r != SP_DNS_SERVFAIL && r != SP_DNS_NXDOMAIN);
    if (r < 0)
        return 0;
    size_t n = sp_dns_write_code(&q, (enum sp_dns_code)r, out);
    check_answer(&q, out, n, 0);
    CHECK((out[3] & 15) == r && n <= 512);
    if (r != SP_DNS_OK)
        return 0;
    check_question(data, size, &q);
    n = sp_dns_write_address(&q, AF_INET, "\x7f\x40\1\0", out);
    check_answer(&q, out, n, 1);
    CHECK(n <= 512);
    n = sp_dns_write_address(&q, AF_INET6, &in6addr_loopback, out);
    check_answer(&q, out, n, 1);
    CHECK(n <= 512);
    check_names(&q);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>

#include "proxy/dns.h"
#include "test.h"

#define HEAD(flags, qd, an, ns, ar) "\x12\x34" flags "\0" qd "\0" an "\0" ns "\0" ar
#define RD                          "\x01\0"
#define PLAIN                       HEAD(RD, "\1", "\0", "\0", "\0")
#define WITH_OPT                    HEAD(RD, "\1", "\0", "\0", "\1")
#define NAME                        "\3WwW\7example\3oRg\0"
#define A_IN                        "\0\1\0\1"
#define OPT                         "\0\0\x29\x04\xd0\0\0\0\0\0\0"

/* On the heap: a sanitizer sees a read behind the end. */
static int read_copy(struct sp_str s, struct sp_dns_question *ret)
{
    char *copy = test_copy(s);
    const int r = sp_dns_read((struct sp_str){copy, s.n}, ret);

    free(copy);
    return r;
}
#define READ(literal, ret) read_copy(SP_STR(literal), ret)

static void test_a_question(void **state)
{
    struct sp_dns_question q;

    (void)state;
    assert_int_equal(READ(PLAIN NAME A_IN, &q), SP_DNS_OK);
    assert_int_equal(q.id, 0x1234);
    assert_int_equal(q.flags, 0x0100);
    assert_int_equal(q.type, SP_DNS_A);
    assert_string_equal(q.name, "www.example.org");
    assert_int_equal(q.name_len, 15);
    assert_bytes(q.wire, q.wire_len, NAME A_IN);
    assert_false(q.has_opt);
    assert_int_equal(READ(WITH_OPT NAME "\0\x1c\0\1" OPT, &q), SP_DNS_OK);
    assert_int_equal(q.type, SP_DNS_AAAA);
    assert_true(q.has_opt);
    /* with an option, here a cookie */
    assert_int_equal(READ(WITH_OPT NAME A_IN "\0\0\x29\x10\0\0\0\0\0\0\x0c\0\x0a\0\x08"
                                             "12345678",
                          &q),
                     SP_DNS_OK);
    assert_int_equal(READ(PLAIN "\0" A_IN, &q), SP_DNS_OK);
    assert_string_equal(q.name, "");
    for (unsigned type = 0; type < 256; type++) { /* ANY, NULL, HTTPS ...: the caller's business */
        char bytes[] = PLAIN NAME A_IN;

        bytes[sizeof bytes - 1 - 3] = (char)type;
        assert_int_equal(read_copy((struct sp_str){bytes, sizeof bytes - 1}, &q), SP_DNS_OK);
        assert_int_equal(q.type, type);
    }
}

static void test_what_is_ignored(void **state)
{
    struct sp_dns_question q;

    (void)state;
    for (size_t n = 0; n < 12; n++)
        assert_int_equal(read_copy((struct sp_str){PLAIN, n}, &q), -1);
    assert_int_equal(READ(HEAD("\x80\0", "\1", "\0", "\0", "\0") NAME A_IN, &q), -1);
}

static void test_hostile_messages(void **state)
{
    struct sp_dns_question q;

    (void)state;
    /* cut anywhere */
    for (size_t n = 12; n < sizeof(WITH_OPT NAME A_IN OPT) - 1; n++) {
        assert_int_equal(read_copy((struct sp_str){WITH_OPT NAME A_IN OPT, n}, &q), SP_DNS_FORMERR);
        assert_int_equal(q.wire_len, 0);
    }
    /* pointers: to itself, to the head, behind a label; the label types 01 and 10 */
    assert_int_equal(READ(PLAIN "\xc0\x0c" A_IN, &q), SP_DNS_FORMERR);
    assert_int_equal(READ(PLAIN "\xc0\0" A_IN, &q), SP_DNS_FORMERR);
    assert_int_equal(READ(PLAIN "\1a\xc0\x0c" A_IN, &q), SP_DNS_FORMERR);
    assert_int_equal(READ(PLAIN "\x41" A_IN, &q), SP_DNS_FORMERR);
    assert_int_equal(READ(PLAIN "\x80" A_IN, &q), SP_DNS_FORMERR);
    /* no question, two, records where none belong */
    assert_int_equal(READ(HEAD(RD, "\0", "\0", "\0", "\0"), &q), SP_DNS_FORMERR);
    assert_int_equal(READ(HEAD(RD, "\2", "\0", "\0", "\0") NAME A_IN NAME A_IN, &q),
                     SP_DNS_FORMERR);
    assert_int_equal(READ(HEAD(RD, "\1", "\1", "\0", "\0") NAME A_IN, &q), SP_DNS_FORMERR);
    assert_int_equal(READ(HEAD(RD, "\1", "\0", "\1", "\0") NAME A_IN, &q), SP_DNS_FORMERR);
    assert_int_equal(READ(HEAD(RD, "\1", "\0", "\0", "\2") NAME A_IN OPT OPT, &q), SP_DNS_FORMERR);
    /* bytes behind the end; another record than OPT; an OPT with a name, or with wrong lengths */
    assert_int_equal(READ(PLAIN NAME A_IN "x", &q), SP_DNS_FORMERR);
    assert_int_equal(READ(WITH_OPT NAME A_IN OPT "x", &q), SP_DNS_FORMERR);
    assert_int_equal(READ(WITH_OPT NAME A_IN "\0\0\1\0\1\0\0\0\0\0\0", &q), SP_DNS_FORMERR);
    assert_int_equal(READ(WITH_OPT NAME A_IN "\1a" OPT, &q), SP_DNS_FORMERR);
    assert_int_equal(READ(WITH_OPT NAME A_IN "\0\0\x29\x04\xd0\0\0\0\0\0\1", &q), SP_DNS_FORMERR);
    assert_int_equal(READ(WITH_OPT NAME A_IN "\0\0\x29\x04\xd0\0\0\0\0\xff\xff", &q),
                     SP_DNS_FORMERR);
    /* labels with a NUL or a dot would read as another name */
    assert_int_equal(READ(PLAIN "\3a\0b\0" A_IN, &q), SP_DNS_FORMERR);
    assert_int_equal(READ(PLAIN "\3a.b\0" A_IN, &q), SP_DNS_FORMERR);
    /* opcodes and classes; the question is known, so that it comes back */
    assert_int_equal(READ(HEAD("\x10\0", "\1", "\0", "\0", "\0") NAME A_IN, &q), SP_DNS_NOTIMP);
    assert_int_equal(READ(HEAD("\x28\0", "\1", "\0", "\0", "\0") NAME A_IN, &q), SP_DNS_NOTIMP);
    assert_int_equal(READ(PLAIN NAME "\0\x10\0\3", &q), SP_DNS_NOTIMP);
    assert_bytes(q.wire, q.wire_len, NAME "\0\x10\0\3");
    assert_int_equal(READ(PLAIN NAME "\0\1\0\xff", &q), SP_DNS_NOTIMP);
    assert_int_equal(READ(WITH_OPT NAME A_IN "\0\0\x29\x04\xd0\0\1\0\0\0\0", &q), SP_DNS_NOTIMP);
}

/* A question about `count` labels of 63 bytes and one of `last`. */
static int read_long(int count, int last, struct sp_dns_question *q)
{
    static char bytes[1024];
    size_t n = sizeof(PLAIN) - 1;

    memcpy(bytes, PLAIN, n);
    for (int i = 0; i <= count; i++) {
        const int len = i < count ? 63 : last;

        if (len == 0)
            continue;
        bytes[n++] = (char)len;
        memset(bytes + n, 'x', (size_t)len);
        n += (size_t)len;
    }
    memcpy(bytes + n, "\0" A_IN, 5);
    return read_copy((struct sp_str){bytes, n + 5}, q);
}

static void test_long_names(void **state)
{
    struct sp_dns_question q;
    uint8_t out[SP_DNS_MESSAGE_MAX];

    (void)state;
    assert_int_equal(read_long(3, 61, &q), SP_DNS_OK); /* 255 bytes with the final zero */
    assert_int_equal(q.name_len, 253);
    assert_int_equal(q.wire_len, 259);
    assert_true(sp_dns_write_address(&q, AF_INET6, &in6addr_loopback, out) <= 512);
    assert_int_equal(read_long(3, 62, &q), SP_DNS_FORMERR);
    assert_int_equal(read_long(4, 0, &q), SP_DNS_FORMERR);
    assert_int_equal(read_long(10, 0, &q), SP_DNS_FORMERR);
}

static void test_64_kib(void **state)
{
    struct sp_dns_question q;
    char *bytes = malloc(65535);

    (void)state;
    assert_non_null(bytes);
    for (int fill = 0; fill < 256; fill += 5) {
        memset(bytes, fill, 65535);
        memcpy(bytes, PLAIN, sizeof(PLAIN) - 1);
        assert_int_equal(sp_dns_read((struct sp_str){bytes, 65535}, &q), SP_DNS_FORMERR);
    }
    free(bytes);
}

/* ---- answers ---- */

static void test_codes(void **state)
{
    uint8_t out[SP_DNS_MESSAGE_MAX];
    struct sp_dns_question q;

    (void)state;
    assert_int_equal(READ(PLAIN NAME A_IN, &q), SP_DNS_OK);
    size_t n = sp_dns_write_code(&q, SP_DNS_NXDOMAIN, out);
    assert_bytes(out, n, "\x12\x34\x81\x83\0\1\0\0\0\0\0\0" NAME A_IN);
    n = sp_dns_write_code(&q, SP_DNS_OK, out); /* no data */
    assert_bytes(out, n, "\x12\x34\x81\x80\0\1\0\0\0\0\0\0" NAME A_IN);
    assert_int_equal(READ(WITH_OPT NAME A_IN OPT, &q), SP_DNS_OK);
    n = sp_dns_write_code(&q, SP_DNS_SERVFAIL, out);
    assert_bytes(out, n, "\x12\x34\x81\x82\0\1\0\0\0\0\0\1" NAME A_IN OPT);
    assert_int_equal(READ(PLAIN "\xc0\0" A_IN, &q), SP_DNS_FORMERR); /* no question to echo */
    n = sp_dns_write_code(&q, SP_DNS_FORMERR, out);
    assert_bytes(out, n, "\x12\x34\x81\x81\0\0\0\0\0\0\0\0");
    assert_int_equal(READ(HEAD("\x28\x10", "\1", "\0", "\0", "\0") NAME A_IN, &q), SP_DNS_NOTIMP);
    n = sp_dns_write_code(&q, SP_DNS_NOTIMP, out); /* opcode and CD come back */
    assert_bytes(out, n, "\x12\x34\xa8\x94\0\0\0\0\0\0\0\0");
}

static void test_addresses(void **state)
{
    uint8_t out[SP_DNS_MESSAGE_MAX];
    struct sp_dns_question q;

    (void)state;
    assert_int_equal(READ(PLAIN NAME A_IN, &q), SP_DNS_OK);
    size_t n = sp_dns_write_address(&q, AF_INET, "\x7f\x40\x01\x02", out);
    assert_bytes(out, n,
                 "\x12\x34\x81\x80\0\1\0\1\0\0\0\0" NAME A_IN
                 "\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\x7f\x40\x01\x02");
    assert_int_equal(READ(WITH_OPT "\11localhost\0\0\x1c\0\1" OPT, &q), SP_DNS_OK);
    n = sp_dns_write_address(&q, AF_INET6, &in6addr_loopback, out);
    assert_bytes(out, n,
                 "\x12\x34\x81\x80\0\1\0\1\0\0\0\1"
                 "\11localhost\0\0\x1c\0\1"
                 "\xc0\x0c\0\x1c\0\1\0\0\0\x3c\0\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1" OPT);
}

static void test_names(void **state)
{
    uint8_t out[SP_DNS_MESSAGE_MAX];
    struct sp_dns_question q;
    char long_name[260];

    (void)state;
#define PTR_NAME \
    "\1"         \
    "2\1"        \
    "1\2"        \
    "64\3"       \
    "127\7in-addr\4arpa\0\0\x0c\0\1"
    assert_int_equal(READ(PLAIN PTR_NAME, &q), SP_DNS_OK);
    size_t n = sp_dns_write_name(&q, "www.example.org", out);
    assert_bytes(out, n,
                 "\x12\x34\x81\x80\0\1\0\1\0\0\0\0" PTR_NAME
                 "\xc0\x0c\0\x0c\0\1\0\0\0\x3c\0\x11\3www\7example\3org\0");
    memset(long_name, 'x', sizeof long_name);
    for (size_t i = 63; i < sizeof long_name; i += 64)
        long_name[i] = '.';
    long_name[253] = 0;
    n = sp_dns_write_name(&q, long_name, out);
    assert_true(n <= 512);
    assert_int_equal(out[3], 0x80);
    /* no name of DNS */
    static const char *const bad[] = {"", ".", "a..b", "a."};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        (void)sp_dns_write_name(&q, bad[i], out);
        assert_int_equal(out[3], 0x82);
    }
    memset(long_name, 'x', 64);
    long_name[64] = 0;
    (void)sp_dns_write_name(&q, long_name, out);
    assert_int_equal(out[3], 0x82);
}

static void test_reverse(void **state)
{
    static const char *const bad[] = {
        "",
        "in-addr.arpa",
        "1.64.127.in-addr.arpa",
        "5.2.1.64.127.in-addr.arpa",
        "2.1.64.256.in-addr.arpa",
        "2.1.64.0127.in-addr.arpa",
        "2.1.64.0127.in-addr.arpa",
        "02.1.64.127.in-addr.arpa",
        "2.1.64.127.in-addr.arpa.",
        "2.1.64.127.ip6.arpa",
        "-2.1.64.127.in-addr.arpa",
        "2..64.127.in-addr.arpa",
        "2.1.64.127.in-addr.arpa.example",
    };
    uint32_t a = 7;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(sp_dns_reverse(bad[i], &a));
    assert_int_equal(a, 7);
    assert_true(sp_dns_reverse("2.1.64.127.in-addr.arpa", &a));
    assert_int_equal(a, 0x7f400102);
    assert_true(sp_dns_reverse("0.255.10.0.in-addr.arpa", &a));
    assert_int_equal(a, 0x000aff00);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_a_question),       cmocka_unit_test(test_what_is_ignored),
    cmocka_unit_test(test_hostile_messages), cmocka_unit_test(test_long_names),
    cmocka_unit_test(test_64_kib),           cmocka_unit_test(test_codes),
    cmocka_unit_test(test_addresses),        cmocka_unit_test(test_names),
    cmocka_unit_test(test_reverse),
};

TEST_MAIN(tests)

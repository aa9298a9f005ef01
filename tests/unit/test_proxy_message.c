/* SPDX-License-Identifier: Apache-2.0 */
#include "base/auto.h"
#include "proxy/proxy_message.h"
#include "test.h"

#define REST(type) (sizeof(type) - sizeof(struct sp_proxy_head))

/* A message with as many bytes behind it as it says. */
union message {
    struct sp_proxy_head head;
    struct sp_proxy_hello hello;
    struct sp_proxy_listen listen;
    struct sp_proxy_verdict verdict;
    struct sp_proxy_ask ask;
    struct sp_proxy_done done;
    struct sp_proxy_counts counts;
};

/* op, bytes behind the head, from the proxy, descriptors: what each must have. */
static union message make(enum sp_proxy_op op, size_t len)
{
    union message m = {0};

    m.head = (struct sp_proxy_head){
        .version = SP_PROXY_VERSION, .op = (uint16_t)op, .len = (uint32_t)len, .number = 7};
    return m;
}

/* Bytes on the heap, so that a sanitizer sees a read behind their end. */
static bool check_bytes(const union message *m, size_t n, bool is_from_proxy, int fd_count)
{
    auto_free char *bytes = calloc(1, n == 0 ? 1 : n);

    assert_non_null(bytes);
    memcpy(bytes, m, n < sizeof *m ? n : sizeof *m);
    return sp_proxy_check(bytes, n, is_from_proxy, fd_count);
}

static bool check(const union message *m, bool is_from_proxy, int fd_count)
{
    return check_bytes(m, sizeof m->head + m->head.len, is_from_proxy, fd_count);
}

/* Is right, and wrong in every respect that all messages have. */
static void assert_message(const union message *m, bool is_from_proxy, int fd_count)
{
    const size_t n = sizeof m->head + m->head.len;
    union message other = *m;

    assert_true(check(m, is_from_proxy, fd_count));
    assert_false(check(m, !is_from_proxy, fd_count));
    for (int i = 0; i < 5; i++)
        assert_int_equal(check(m, is_from_proxy, i), i == fd_count);
    for (size_t cut = 0; cut < n; cut += cut < 300 ? 1 : 97)
        assert_false(check_bytes(m, cut, is_from_proxy, fd_count));
    assert_false(check_bytes(m, n + 1, is_from_proxy, fd_count));
    other.head.version++;
    assert_false(check(&other, is_from_proxy, fd_count));
    other = *m;
    other.head.len = UINT32_MAX;
    assert_false(check_bytes(&other, n, is_from_proxy, fd_count));
    other.head.len = UINT32_MAX - (uint32_t)sizeof m->head + 1; /* n + len wraps to 0 */
    assert_false(check_bytes(&other, n, is_from_proxy, fd_count));
}

#define REFUSED(from_proxy, fds, member, worst)        \
    do {                                               \
        union message bad_ = m;                        \
        bad_.member = (worst);                         \
        assert_false(check(&bad_, (from_proxy), fds)); \
    } while (0)

static void assert_lengths(enum sp_proxy_op op, bool is_from_proxy, int fd_count, size_t least,
                           size_t most)
{
    for (size_t len = 0; len <= most + 2; len++) {
        const union message m = make(op, len);

        if (len >= least && len <= most)
            assert_message(&m, is_from_proxy, fd_count);
        else
            assert_false(check(&m, is_from_proxy, fd_count));
    }
}

static void test_heads_with_text(void **state)
{
    (void)state;
    assert_lengths(SP_PROXY_RESOLVER, false, 1, 0, 0);
    assert_lengths(SP_PROXY_FORGET, false, 0, 0, SP_PROXY_HOST_MAX);
    assert_lengths(SP_PROXY_PING, false, 0, 0, 0);
    assert_lengths(SP_PROXY_READY, true, 0, 0, 0);
    assert_lengths(SP_PROXY_UNABLE, true, 0, 1, SP_PROXY_TEXT_MAX);
    assert_lengths(SP_PROXY_KNOW, true, 0, 1, SP_PROXY_KNOW_MAX);
    assert_lengths(SP_PROXY_GONE, true, 0, 0, 0);
    assert_lengths(SP_PROXY_PONG, true, 0, 0, 0);
    assert_lengths(SP_PROXY_RELAY, false, 2, 0, 0);
    assert_lengths(SP_PROXY_CLOSED, true, 0, 0, 0);
    assert_lengths(SP_PROXY_COUNTS, true, 0, REST(struct sp_proxy_counts),
                   REST(struct sp_proxy_counts));
}

static void test_numbers(void **state)
{
    static const enum sp_proxy_op numbered[] = {SP_PROXY_KNOW, SP_PROXY_GONE};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const union message m = make(numbered[i], numbered[i] == SP_PROXY_KNOW ? 5 : 0);

        assert_true(check(&m, true, 0));
        REFUSED(true, 0, head.number, 0);
    }
}

static void test_unknown_operations(void **state)
{
    static const unsigned ops[] = {0, SP_PROXY_OP_MAX, UINT16_MAX};

    (void)state;
    for (size_t i = 0; i < 3; i++)
        for (int fds = 0; fds < 3; fds++) {
            const union message m = make((enum sp_proxy_op)ops[i], 0);

            assert_false(check(&m, false, fds));
            assert_false(check(&m, true, fds));
        }
}

static void test_hello(void **state)
{
    union message m = make(SP_PROXY_HELLO, REST(struct sp_proxy_hello));

    (void)state;
    assert_message(&m, false, 2);
    m.hello.flags = 15;
    m.hello.linger_ms = UINT32_MAX;
    m.hello.port_count = SP_PROXY_PORTS_MAX;
    m.hello.http_len = 10;
    m.hello.https_len = 20;
    m.hello.no_proxy_len = 30;
    m.head.len += 60;
    assert_message(&m, false, 2);
    REFUSED(false, 2, hello.flags, 16);
    REFUSED(false, 2, hello.flags, 1U << 31);
    REFUSED(false, 2, hello.port_count, SP_PROXY_PORTS_MAX + 1);
    REFUSED(false, 2, hello.http_len, 9);
    REFUSED(false, 2, hello.https_len, 21);
    REFUSED(false, 2, hello.no_proxy_len, UINT16_MAX);
    REFUSED(false, 2, head.len, m.head.len - 1);
    m.hello.no_proxy_len =
        (uint16_t)(SP_PROXY_MESSAGE_MAX - sizeof(struct sp_proxy_hello) - 30); /* the most */
    m.head.len = SP_PROXY_MESSAGE_MAX - sizeof m.head;
    assert_true(check(&m, false, 2));
    m.hello.no_proxy_len++;
    m.head.len++;
    assert_false(check(&m, false, 2));
}

static void test_listen(void **state)
{
    union message m = make(SP_PROXY_LISTEN, REST(struct sp_proxy_listen));

    (void)state;
    m.listen.port = 53;
    for (unsigned kind = 0; kind <= UINT8_MAX; kind++) {
        m.listen.kind = (uint8_t)kind;
        assert_int_equal(check(&m, false, 1), kind >= 1 && kind < SP_PROXY_KIND_MAX);
    }
    m.listen.kind = SP_PROXY_BY_NAME;
    assert_message(&m, false, 1);
    REFUSED(false, 1, listen.port, 0);
    REFUSED(false, 1, listen.zero, 1);
    REFUSED(false, 1, listen.zeroes, 1);
    REFUSED(false, 1, head.len, m.head.len + 1);
}

static void test_verdict(void **state)
{
    union message m = make(SP_PROXY_VERDICT, REST(struct sp_proxy_verdict));

    (void)state;
    assert_message(&m, false, 0); /* KNOW: no */
    m.verdict.is_allowed = 1;
    m.verdict.flags = 15;
    assert_message(&m, false, 0);
    REFUSED(false, 0, verdict.is_allowed, 2);
    REFUSED(false, 0, verdict.reason, SP_NETWORK_REASON_DENIED);
    REFUSED(false, 0, verdict.flags, 16);
    REFUSED(false, 0, head.number, 0);
    for (size_t i = 0; i < sizeof m.verdict.zero; i++)
        REFUSED(false, 0, verdict.zero[i], 1);
    m.verdict.is_allowed = 0;
    for (unsigned reason = 0; reason <= UINT8_MAX; reason++) {
        m.verdict.reason = (uint8_t)reason;
        assert_int_equal(check(&m, false, 0), reason < SP_NETWORK_REASON_MAX);
    }
    m.verdict.reason = SP_NETWORK_REASON_OTHER;
    m.head.len += SP_PROXY_TEXT_MAX;
    assert_message(&m, false, 0);
    REFUSED(false, 0, head.len, m.head.len + 1);
}

static void test_ask(void **state)
{
    union message m = make(SP_PROXY_ASK, REST(struct sp_proxy_ask) + 1);

    (void)state;
    m.ask.host_len = 1;
    m.ask.port = 443;
    assert_message(&m, true, 0);
    m.ask.host_len = SP_PROXY_HOST_MAX;
    m.ask.method_len = SP_PROXY_METHOD_MAX;
    m.head.len = REST(struct sp_proxy_ask) + SP_PROXY_HOST_MAX + SP_PROXY_METHOD_MAX;
    m.ask.protocol = SP_PROXY_PROTOCOL_MAX - 1;
    m.ask.via = SP_PROXY_VIA_MAX - 1;
    assert_message(&m, true, 0);
    REFUSED(true, 0, ask.protocol, SP_PROXY_PROTOCOL_MAX);
    REFUSED(true, 0, ask.via, SP_PROXY_VIA_MAX);
    REFUSED(true, 0, ask.port, 0);
    REFUSED(true, 0, ask.zero, 1);
    REFUSED(true, 0, ask.host_len, SP_PROXY_HOST_MAX - 1);
    REFUSED(true, 0, ask.method_len, SP_PROXY_METHOD_MAX - 1);
    REFUSED(true, 0, head.number, 0);
    m.ask.host_len++;
    m.head.len++;
    assert_false(check(&m, true, 0));
    m.ask.host_len--;
    m.ask.method_len++;
    assert_false(check(&m, true, 0));
    m.ask.method_len = 0;
    m.ask.host_len = 0;
    m.head.len = REST(struct sp_proxy_ask);
    assert_false(check(&m, true, 0));
}

static void test_done(void **state)
{
    union message m = make(SP_PROXY_DONE, REST(struct sp_proxy_done));

    (void)state;
    assert_message(&m, true, 0);
    REFUSED(true, 0, done.outcome, SP_PROXY_OUTCOME_MAX);
    REFUSED(true, 0, done.reason, SP_NETWORK_REASON_MAX);
    REFUSED(true, 0, done.protocol, SP_PROXY_PROTOCOL_MAX);
    REFUSED(true, 0, done.via, SP_PROXY_VIA_MAX);
    REFUSED(true, 0, done.zero, 1);
    REFUSED(true, 0, done.host_len, 1);
    REFUSED(true, 0, head.number, 0);
    for (unsigned family = 0; family <= UINT8_MAX; family++) {
        m.done.family = (uint8_t)family;
        assert_int_equal(check(&m, true, 0), family == 0 || family == 4 || family == 6);
    }
    m.done.family = 6;
    m.head.number = 0; /* of a kept verdict */
    m.done.host_len = SP_PROXY_HOST_MAX;
    m.head.len += SP_PROXY_HOST_MAX;
    m.done.port = 80;
    assert_message(&m, true, 0);
    REFUSED(true, 0, done.port, 0);
    m.done.host_len++;
    m.head.len++;
    assert_false(check(&m, true, 0));
}

static void test_text(void **state)
{
    struct {
        struct sp_proxy_verdict v;
        char text[5];
    } m = {.v.head.len = REST(struct sp_proxy_verdict) + 5, .text = "hello"};
    const struct sp_str text = sp_proxy_text(&m.v.head, sizeof m.v);

    (void)state;
    assert_bytes(text.p, text.n, "hello");
    m.v.head.len = 0;
    assert_int_equal(sp_proxy_text(&m.v.head, sizeof m.v.head).n, 0);
}

static void test_words(void **state)
{
    (void)state;
    assert_string_equal(sp_network_reason_text(SP_NETWORK_REASON_DENIED)->wire, "denied");
    assert_string_equal(sp_network_reason_text(SP_NETWORK_REASON_OTHER)->wire, "other");
    assert_string_equal(sp_network_reason_text(SP_NETWORK_REASON_NOT_ALLOWED_LOCAL)->field,
                        "blocked-by-allowlist");
    assert_string_equal(sp_network_reason_text(SP_NETWORK_REASON_NOT_ALLOWED)->message,
                        "Domain not in allowlist.");
    assert_string_equal(sp_proxy_protocol_name(SP_PROXY_TUNNEL), "https_connect");
    assert_string_equal(sp_proxy_outcome_text(SP_PROXY_UNRESOLVED), "name does not resolve");
    for (unsigned i = 0; i <= UINT8_MAX; i++) {
        const uint8_t n = (uint8_t)i;

        assert_true(sp_network_reason_text(n)->wire[0] != 0);
        assert_int_equal(sp_network_reason_text(n)->field[0] != 0, n > 0);
        assert_int_equal(sp_network_reason_text(n)->message[0] != 0, n > 0);
        assert_int_equal(sp_proxy_protocol_name(n)[0] != 0, n < SP_PROXY_PROTOCOL_MAX);
        assert_int_equal(sp_proxy_outcome_text(n)[0] != 0, n < SP_PROXY_OUTCOME_MAX);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_heads_with_text),
    cmocka_unit_test(test_numbers),
    cmocka_unit_test(test_unknown_operations),
    cmocka_unit_test(test_hello),
    cmocka_unit_test(test_listen),
    cmocka_unit_test(test_verdict),
    cmocka_unit_test(test_ask),
    cmocka_unit_test(test_done),
    cmocka_unit_test(test_text),
    cmocka_unit_test(test_words),
};

TEST_MAIN(tests)

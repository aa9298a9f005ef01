/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of SOCKS5 clients. */
#include "base/auto.h"
#include "proxy/socks.h"
#include "test.h"

/* ---- the greeting ---- */

/* The result is that of the first bytes that decide, also if more follow. */
static void greets(struct sp_str bytes, ptrdiff_t want, bool want_accepts)
{
    ptrdiff_t taken = 0;
    bool accepts = !want_accepts;

    for (size_t n = 0; n <= bytes.n && taken == 0; n++) {
        auto_free char *copy = test_copy((struct sp_str){bytes.p, n});

        taken = sp_socks_read_greeting((struct sp_str){copy, n}, &accepts);
    }
    assert_int_equal(taken, want);
    if (want > 0)
        assert_int_equal(accepts, want_accepts);
    auto_free char *copy = test_copy(bytes);
    assert_int_equal(sp_socks_read_greeting((struct sp_str){copy, bytes.n}, &accepts), want);
}

static void test_the_greeting_offers_methods(void **state)
{
    (void)state;
    greets(SP_STR("\5\1\0"), 3, true);
    greets(SP_STR("\5\2\0\2"), 4, true);
    greets(SP_STR("\5\2\2\0more"), 4, true);
    greets(SP_STR("\5\1\2"), 3, false);
    greets(SP_STR("\5\0"), 2, false);
    greets(SP_STR("\5\1\2\0"), 3, false); /* the zero belongs to the next message */
    greets(SP_STR(""), 0, false);
    greets(SP_STR("\5"), 0, false);
    greets(SP_STR("\5\2\0"), 0, false);
    greets(SP_STR("\4\1\0\x50\1\2\3\4\0"), -1, false); /* SOCKS4 */
    greets(SP_STR("GET"), -1, false);
}

/* ---- the request ---- */

struct outcome {
    ptrdiff_t taken;
    enum sp_socks_reply reply;
    struct sp_socks_request request;
};

static struct outcome ask_part(struct sp_str bytes)
{
    struct outcome o = {.reply = (enum sp_socks_reply)99, .request = {.host = "untouched"}};
    auto_free char *copy = test_copy(bytes);

    o.taken = sp_socks_read_request((struct sp_str){copy, bytes.n}, &o.request, &o.reply);
    if (o.taken <= 0) {
        assert_string_equal(o.request.host, "untouched");
        assert_int_equal(o.reply, 99);
    }
    return o;
}

static struct outcome ask(struct sp_str bytes)
{
    const struct outcome whole = ask_part(bytes);
    struct outcome parts = {0};

    for (size_t n = 0; n <= bytes.n && parts.taken == 0; n++)
        parts = ask_part((struct sp_str){bytes.p, n});
    assert_int_equal(parts.taken, whole.taken);
    assert_int_equal(parts.reply, whole.reply);
    assert_string_equal(parts.request.host, whole.request.host);
    assert_int_equal(parts.request.port, whole.request.port);
    return whole;
}

static void asks_for(struct sp_str bytes, ptrdiff_t taken, const char *host, unsigned port)
{
    const struct outcome o = ask(bytes);

    assert_int_equal(o.taken, taken);
    assert_int_equal(o.reply, SP_SOCKS_DONE);
    assert_string_equal(o.request.host, host);
    assert_int_equal(o.request.host_len, strlen(host));
    assert_int_equal(o.request.port, port);
}

static void test_connect_names_a_host_and_port(void **state)
{
    char longest[4 + 1 + 255 + 2] = "\5\1\0\3\xff";
    char name[256] = "";

    (void)state;
    asks_for(SP_STR("\5\1\0\1\177\100\1\0\1\xbb"), 10, "127.64.1.0", 443);
    asks_for(SP_STR("\5\1\0\3\11a.example\0\26rest"), 16, "a.example", 22);
    asks_for(SP_STR("\5\1\0\3\3A\r\n\0\120"), 10, "A\r\n", 80);
    asks_for(SP_STR("\5\1\0\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1\0\120"), 22, "::1", 80);
    memset(name, 'x', 255);
    memset(longest + 5, 'x', 255);
    longest[261] = 1;
    asks_for((struct sp_str){longest, sizeof longest}, 262, name, 1);
}

static void replies(struct sp_str bytes, ptrdiff_t taken, enum sp_socks_reply reply)
{
    const struct outcome o = ask(bytes);

    assert_int_equal(o.taken, taken);
    assert_int_equal(o.reply, reply);
}

static void test_requests_that_cannot_be_served(void **state)
{
    (void)state;
    replies(SP_STR("\5\2\0\1\1\2\3\4\0\120"), 10, SP_SOCKS_NO_COMMAND); /* BIND */
    replies(SP_STR("\5\3\0\1\0\0\0\0\0\0"), 10, SP_SOCKS_NO_COMMAND);   /* UDP ASSOCIATE */
    replies(SP_STR("\5\xf0\0\3\1a\0\0"), 8, SP_SOCKS_NO_COMMAND);       /* RESOLVE of Tor */
    replies(SP_STR("\5\1\0\2"), 4, SP_SOCKS_NO_TYPE);
    replies(SP_STR("\5\1\0\0\1\2\3\4\5"), 4, SP_SOCKS_NO_TYPE);
    replies(SP_STR("\5\1\0\1\1\2\3\4\0\0"), 10, SP_SOCKS_FAILED); /* port 0 */
}

static void test_malformed_requests(void **state)
{
    (void)state;
    assert_int_equal(ask(SP_STR("\4\1\0\1\1\2\3\4\0\120")).taken, -1);
    assert_int_equal(ask(SP_STR("\5\1\1\1\1\2\3\4\0\120")).taken, -1);
    assert_int_equal(ask(SP_STR("\5\1\0\3\0\0\120")).taken, -1);
    assert_int_equal(ask(SP_STR("\5\1\0\3\3a\0b\0\120")).taken, -1);
    assert_int_equal(ask(SP_STR("")).taken, 0);
    assert_int_equal(ask(SP_STR("\5\1\0\3\3ab")).taken, 0);
}

static void test_the_reply_has_no_address(void **state)
{
    uint8_t out[SP_SOCKS_REPLY_BYTES];

    (void)state;
    sp_socks_write_reply(SP_SOCKS_REFUSED, out);
    assert_memory_equal(out, "\5\5\0\1\0\0\0\0\0\0", sizeof out);
    sp_socks_write_reply(SP_SOCKS_DONE, out);
    assert_memory_equal(out, "\5\0\0\1\0\0\0\0\0\0", sizeof out);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_the_greeting_offers_methods),
    cmocka_unit_test(test_connect_names_a_host_and_port),
    cmocka_unit_test(test_requests_that_cannot_be_served),
    cmocka_unit_test(test_malformed_requests),
    cmocka_unit_test(test_the_reply_has_no_address),
};

TEST_MAIN(tests)

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "server/net/http_body.h"
#include "test.h"

#define MAX 64U

/* The head, then the bytes: all at once, in two parts at every place, and byte by byte. */
static enum sp_http_body_result take_parts(struct sp_http_body b, const char *bytes, size_t n,
                                           size_t first, size_t step, struct sp_buf *ret,
                                           size_t *ret_left)
{
    enum sp_http_body_result r = SP_HTTP_BODY_MORE;
    size_t at = 0;

    *ret_left = n;
    for (size_t size = first; at < n && r == SP_HTTP_BODY_MORE; size = step) {
        const size_t part = size < n - at ? size : n - at;
        char *copy = test_copy((struct sp_str){bytes + at, part});
        struct sp_str in = {copy, part};
        struct sp_str piece;

        do {
            r = sp_http_body_next(&b, &in, &piece);
            assert_true(r == SP_HTTP_BODY_PIECE || piece.n == 0);
            assert_true(sp_buf_add_str(ret, piece));
        } while (r == SP_HTTP_BODY_PIECE);
        at += part;
        *ret_left = n - at + in.n;
        free(copy);
    }
    return r;
}

static struct sp_http_request request(const char *head)
{
    struct sp_http_parser p = {0};
    struct sp_http_request r;

    assert_int_equal(sp_http_parse(&p, head, strlen(head), &r), SP_HTTP_DONE);
    return r;
}

#define POST "POST / HTTP/1.1\r\n"

static enum sp_http_body_result begin(const char *head, struct sp_http_body *ret)
{
    const struct sp_http_request r = request(head);

    return sp_http_body_begin(ret, &r, MAX);
}

static void expect(const char *head, const char *bytes, enum sp_http_body_result want,
                   const char *want_body, const char *want_left)
{
    const size_t n = strlen(bytes);
    struct sp_http_body b;

    assert_int_equal(begin(head, &b), SP_HTTP_BODY_MORE);
    for (size_t first = 1; first <= n; first++) {
        auto_buf struct sp_buf body = {0};
        size_t left;

        const size_t step = first == 1 ? 1 : n; /* the first round goes byte by byte */
        const enum sp_http_body_result r = take_parts(b, bytes, n, first, step, &body, &left);
        assert_int_equal(r, want);
        if (want != SP_HTTP_BODY_DONE)
            continue;
        assert_int_equal(left, strlen(want_left));
        assert_string_equal(bytes + n - left, want_left);
        assert_int_equal(body.len, strlen(want_body));
        assert_memory_equal(body.data, want_body, body.len);
    }
}

#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"

static void test_a_length_is_counted(void **state)
{
    (void)state;
    expect(POST "Content-Length: 5\r\n\r\n", "helloGET /", SP_HTTP_BODY_DONE, "hello", "GET /");
    expect(POST "content-length:\t 0005 \r\n\r\n", "hello", SP_HTTP_BODY_DONE, "hello", "");
    expect(POST "Content-Length: 5\r\n\r\n", "hell", SP_HTTP_BODY_MORE, "", "");
}

static void test_chunks_are_joined(void **state)
{
    (void)state;
    expect(CHUNKED, "5\r\nhello\r\n0\r\n\r\nnext", SP_HTTP_BODY_DONE, "hello", "next");
    expect(CHUNKED, "2\r\nhe\r\n003\r\nllo\r\n0\r\n\r\n", SP_HTTP_BODY_DONE, "hello", "");
    expect(CHUNKED, "A\r\n0123456789\r\n00\r\n\r\nx", SP_HTTP_BODY_DONE, "0123456789", "x");
    expect(CHUNKED, "a\r\n\r\n\r\n0\r\n\r\n\r\n0\r\n\r\n\r\n", SP_HTTP_BODY_BAD, "", "");
    expect(CHUNKED, "4\r\n\r\n\r\n\r\n0\r\n\r\n", SP_HTTP_BODY_DONE, "\r\n\r\n", "");
    expect(CHUNKED, "0\r\n\r\n", SP_HTTP_BODY_DONE, "", "");
    expect(CHUNKED, "5;a=b; c=\"d\"\r\nhello\r\n0;x\r\nA: b\r\nC:\r\n\r\nn", SP_HTTP_BODY_DONE,
           "hello", "n");
    expect(POST "transfer-encoding:  CHUNKED\r\n\r\n", "1\r\nx\r\n0\r\n\r\n", SP_HTTP_BODY_DONE,
           "x", "");
    expect(CHUNKED, "5\r\nhello\r\n0\r\n\r", SP_HTTP_BODY_MORE, "", "");
    expect(CHUNKED, "5\r\nhello\r\n", SP_HTTP_BODY_MORE, "", "");
}

static void test_no_body_is_one(void **state)
{
    struct sp_http_body b;

    (void)state;
    assert_int_equal(begin(POST "\r\n", &b), SP_HTTP_BODY_DONE);
    assert_int_equal(begin(POST "Content-Length: 0\r\n\r\n", &b), SP_HTTP_BODY_DONE);
    assert_int_equal(begin("GET / HTTP/1.0\r\n\r\n", &b), SP_HTTP_BODY_DONE);

    struct sp_str in = SP_STR("GET / HTTP/1.1\r\n");
    struct sp_str piece;
    assert_int_equal(sp_http_body_next(&b, &in, &piece), SP_HTTP_BODY_DONE);
    assert_int_equal(in.n, 16);
}

static void test_what_can_be_read_in_two_ways_is_refused(void **state)
{
    static const char *const heads[] = {
        POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        POST "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n",
        POST "Content-Length: 5\r\nContent-Length: 5\r\n\r\n",
        POST "Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
        POST "Content-Length: 5, 5\r\n\r\n",
        POST "Content-Length: +5\r\n\r\n",
        POST "Content-Length: -1\r\n\r\n",
        POST "Content-Length: 0x5\r\n\r\n",
        POST "Content-Length: 5 5\r\n\r\n",
        POST "Content-Length: 5.0\r\n\r\n",
        POST "Content-Length:\r\n\r\n",
        POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n",
        POST "Transfer-Encoding: gzip, chunked\r\n\r\n",
        POST "Transfer-Encoding: chunked, chunked\r\n\r\n",
        POST "Transfer-Encoding: xchunked\r\n\r\n",
        POST "Transfer-Encoding: identity\r\n\r\n",
        POST "Transfer-Encoding:\r\n\r\n",
        "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
    };
    struct sp_http_body b;

    (void)state;
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        struct sp_str in = SP_STR("5\r\nhello\r\n0\r\n\r\n");
        struct sp_str piece;

        assert_int_equal(begin(heads[i], &b), SP_HTTP_BODY_BAD);
        assert_int_equal(sp_http_body_next(&b, &in, &piece), SP_HTTP_BODY_BAD);
        assert_int_equal(piece.n, 0);
    }
}

static void test_chunks_have_one_spelling(void **state)
{
    static const char *const bodies[] = {
        "\r\n",
        " 5\r\nhello\r\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "5\nhello\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "+5\r\nhello\r\n",
        "0x5\r\nhello\r\n",
        "-1\r\n",
        "g\r\n",
        ";a\r\n",
        "5;a\nb\r\nhello\r\n",
        "5;\x01\r\n",
        "5\rx",
        "5\r\nhello\rx",
        "0\r\nA b: c\r\n\r\n",
        "0\r\n a: b\r\n\r\n",
        "0\r\n: b\r\n\r\n",
        "0\r\nA: b\n\r\n",
        "0\r\nA: \x7f\r\n\r\n",
        "0\r\n\rx",
        "0\r\n\n",
    };

    (void)state;
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++)
        expect(CHUNKED, bodies[i], SP_HTTP_BODY_BAD, "", "");
}

static void test_sizes_are_bounded(void **state)
{
    struct sp_http_body b;

    (void)state;
    assert_int_equal(begin(POST "Content-Length: 64\r\n\r\n", &b), SP_HTTP_BODY_MORE);
    assert_int_equal(begin(POST "Content-Length: 65\r\n\r\n", &b), SP_HTTP_BODY_TOO_BIG);
    assert_int_equal(begin(POST "Content-Length: 99999999999999999999999999\r\n\r\n", &b),
                     SP_HTTP_BODY_TOO_BIG);
    expect(CHUNKED, "41\r\n", SP_HTTP_BODY_TOO_BIG, "", "");
    expect(CHUNKED, "10000000000000005\r\nhello\r\n0\r\n\r\n", SP_HTTP_BODY_TOO_BIG, "", "");
    expect(CHUNKED, "ffffffffffffffff\r\n", SP_HTTP_BODY_TOO_BIG, "", "");
    expect(CHUNKED, "5\r\nhello\r\n3c\r\n", SP_HTTP_BODY_TOO_BIG, "", "");
    expect(CHUNKED, "5\r\nhello\r\nffffffffffffffff\r\n", SP_HTTP_BODY_TOO_BIG, "", "");
}

/* `unit` n times between two texts. */
static char *repeated(const char *before, const char *unit, size_t n, const char *after)
{
    auto_buf struct sp_buf b = {0};

    assert_true(sp_buf_add_str(&b, sp_str_of(before)));
    for (size_t i = 0; i < n; i++)
        assert_true(sp_buf_add_str(&b, sp_str_of(unit)));
    assert_true(sp_buf_add(&b, after, strlen(after) + 1));
    char *text = b.data;
    b.data = NULL;
    return text;
}

static void expect_repeated(const char *before, const char *unit, size_t n, const char *after,
                            enum sp_http_body_result want)
{
    auto_buf struct sp_buf body = {0};
    char *text = repeated(before, unit, n, after);
    struct sp_http_body b;
    size_t left;

    assert_int_equal(begin(CHUNKED, &b), SP_HTTP_BODY_MORE);
    assert_int_equal(take_parts(b, text, strlen(text), 7, 7, &body, &left), want);
    free(text);
}

static void test_what_is_around_the_bytes_is_bounded_too(void **state)
{
    (void)state;
    expect_repeated("5;", "x", 200, "\r\nhello\r\n0\r\n\r\n", SP_HTTP_BODY_DONE);
    expect_repeated("5;", "x", 300, "\r\nhello\r\n0\r\n\r\n", SP_HTTP_BODY_BAD);
    expect_repeated("", "0", 300, "\r\n\r\n", SP_HTTP_BODY_BAD);
    expect_repeated("0\r\n", "A: b\r\n", 600, "\r\n", SP_HTTP_BODY_DONE);
    expect_repeated("0\r\n", "A: b\r\n", 700, "\r\n", SP_HTTP_BODY_BAD);
    expect_repeated("", "1;0123456789012345678901234567890123456789\r\nx\r\n", 64, "0\r\n\r\n",
                    SP_HTTP_BODY_DONE);
    expect_repeated("", "1\r\nx\r\n", 65, "0\r\n\r\n", SP_HTTP_BODY_TOO_BIG);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_a_length_is_counted),
    cmocka_unit_test(test_chunks_are_joined),
    cmocka_unit_test(test_no_body_is_one),
    cmocka_unit_test(test_what_can_be_read_in_two_ways_is_refused),
    cmocka_unit_test(test_chunks_have_one_spelling),
    cmocka_unit_test(test_sizes_are_bounded),
    cmocka_unit_test(test_what_is_around_the_bytes_is_bounded_too),
};

TEST_MAIN(tests)

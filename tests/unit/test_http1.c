/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/1 through the proxy: what is refused, what is written anew, where bodies end. */
#include "base/auto.h"
#include "base/buf.h"
#include "proxy/http1.h"
#include "test.h"

#define GET  "GET / HTTP/1.1\r\n"
#define POST "POST / HTTP/1.1\r\nHost: a.example\r\n"
#define HOST "Host: a.example\r\n"

/* ---- reading ---- */

/* A head and the bytes it points into; large, so one is enough. */
static struct {
    char *bytes;
    struct sp_http1_head head;
    struct sp_http1_refusal why;
} last;

/* The length of the head, the same in one piece and byte by byte. */
static size_t head_length(struct sp_str bytes)
{
    size_t scanned = 0;
    size_t part_scanned = 0;
    size_t part = 0;
    const size_t whole = sp_http1_head_length(bytes, &scanned);

    for (size_t i = 1; i <= bytes.n && part == 0; i++) {
        auto_free char *copy = test_copy((struct sp_str){bytes.p, i});

        part = sp_http1_head_length((struct sp_str){copy, i}, &part_scanned);
    }
    assert_int_equal(part, whole);
    return whole;
}

static bool read_bytes(struct sp_str bytes, const char *method)
{
    const size_t n = head_length(bytes);

    free(last.bytes);
    memset(&last.head, 0xa5, sizeof last.head);
    last.why = (struct sp_http1_refusal){0};
    last.bytes = test_copy((struct sp_str){bytes.p, n});
    assert_int_not_equal(n, 0);
    const struct sp_str head = {last.bytes, n};
    return method == NULL ? sp_http1_read_request(head, &last.head, &last.why)
                          : sp_http1_read_response(head, sp_str_of(method), &last.head, &last.why);
}

static const struct sp_http1_head *request(const char *text)
{
    if (!read_bytes(sp_str_of(text), NULL))
        fail_msg("<%s>: %d %s", text, last.why.status, last.why.text);
    return &last.head;
}

static const struct sp_http1_head *response(const char *method, const char *text)
{
    if (!read_bytes(sp_str_of(text), method))
        fail_msg("<%s>: %s", text, last.why.text);
    return &last.head;
}

static void refuses_bytes(struct sp_str bytes, int status, const char *text)
{
    if (read_bytes(bytes, NULL))
        fail_msg("<%.*s> is accepted", (int)bytes.n, bytes.p);
    if (last.why.status != status || (text != NULL && strcmp(last.why.text, text) != 0))
        fail_msg("<%.*s>: %d %s", (int)bytes.n, bytes.p, last.why.status, last.why.text);
}

static void refuses(const char *bytes, const char *text)
{
    refuses_bytes(sp_str_of(bytes), 400, text);
}

static void refuses_response(const char *method, const char *bytes)
{
    if (read_bytes(sp_str_of(bytes), method))
        fail_msg("<%s> is accepted", bytes);
    assert_int_equal(last.why.status, 502);
    assert_non_null(last.why.text);
}

#define assert_str(s, literal) assert_bytes((s).p, (s).n, literal)

static void is_target(const char *text, enum sp_http1_form form, const char *host, unsigned port,
                      const char *path)
{
    const struct sp_http1_head *h = request(text);

    if (h->form != form || !sp_str_eq(h->host, sp_str_of(host)) || h->port != port ||
        !sp_str_eq(h->path, sp_str_of(path)))
        fail_msg("<%s>: form %d, host <%.*s>, port %u, path <%.*s>", text, (int)h->form,
                 (int)h->host.n, h->host.p, h->port, (int)h->path.n, h->path.p);
}

static void test_the_target_has_a_host_port_and_path(void **state)
{
    (void)state;
    is_target("GET http://a.example/x?y=z HTTP/1.1\r\nHost: a.example\r\n\r\n", SP_HTTP1_ABSOLUTE,
              "a.example", 80, "/x?y=z");
    is_target("GET hTTp://A.example:8080 HTTP/1.1\r\nHost: a.EXAMPLE.:8080\r\n\r\n",
              SP_HTTP1_ABSOLUTE, "A.example", 8080, "/");
    is_target("GET http://a.example:80/ HTTP/1.1\r\nHost: a.example\r\n\r\n", SP_HTTP1_ABSOLUTE,
              "a.example", 80, "/");
    is_target("GET http://a.example/ HTTP/1.1\r\nHost: a.example:00080\r\n\r\n", SP_HTTP1_ABSOLUTE,
              "a.example", 80, "/");
    is_target("GET http://a.example?q HTTP/1.1\r\nHost: a.example\r\n\r\n", SP_HTTP1_ABSOLUTE,
              "a.example", 80, "?q");
    is_target("GET http://[::1]:81/ HTTP/1.1\r\nHost: [0::1]:81\r\n\r\n", SP_HTTP1_ABSOLUTE, "::1",
              81, "/");
    is_target("GET http://a.example/ HTTP/1.0\r\n\r\n", SP_HTTP1_ABSOLUTE, "a.example", 80, "/");
    is_target("GET /x HTTP/1.1\r\nHost: a.example:81\r\n\r\n", SP_HTTP1_ORIGIN, "a.example", 81,
              "/x");
    is_target("GET //b.example/x HTTP/1.1\r\nhost:a.example\r\n\r\n", SP_HTTP1_ORIGIN, "a.example",
              80, "//b.example/x");
    is_target("GET / HTTP/1.0\r\n\r\n", SP_HTTP1_ORIGIN, "", 80, "/");
    is_target("OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n", SP_HTTP1_ASTERISK, "a.example", 80,
              "*");
    is_target("OPTIONS http://a.example HTTP/1.1\r\nHost: a.example\r\n\r\n", SP_HTTP1_ABSOLUTE,
              "a.example", 80, "*");
    is_target("GET http://a.example/@scope/p%00?@\\\xc3\xbc HTTP/1.1\r\nHost: a.example\r\n\r\n",
              SP_HTTP1_ABSOLUTE, "a.example", 80, "/@scope/p%00?@\\\xc3\xbc");
}

static void test_connect_has_host_and_port(void **state)
{
    (void)state;
    is_target("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n", SP_HTTP1_AUTHORITY,
              "a.example", 443, "a.example:443");
    is_target("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n", SP_HTTP1_AUTHORITY,
              "a.example", 443, "a.example:443");
    is_target("CONNECT a.example:443 HTTP/1.1\r\n\r\n", SP_HTTP1_AUTHORITY, "a.example", 443,
              "a.example:443");
    is_target("CONNECT [::1]:22 HTTP/1.0\r\n\r\n", SP_HTTP1_AUTHORITY, "::1", 22, "[::1]:22");
    assert_int_equal(request("CONNECT a:1 HTTP/1.1\r\nContent-Length: 0\r\n\r\n")->body,
                     SP_HTTP1_NO_BODY);

    refuses("CONNECT a.example:443 HTTP/1.1\r\nHost: b.example:443\r\n\r\n",
            "Host header does not match request target");
    refuses("CONNECT a.example HTTP/1.1\r\n\r\n", NULL);
    refuses("CONNECT a.example: HTTP/1.1\r\n\r\n", NULL);
    refuses("CONNECT a.example:0 HTTP/1.1\r\n\r\n", NULL);
    refuses("CONNECT a.example:65536 HTTP/1.1\r\n\r\n", NULL);
    refuses("CONNECT a.example:443/ HTTP/1.1\r\n\r\n", NULL);
    refuses("CONNECT :443 HTTP/1.1\r\n\r\n", NULL);
    refuses("CONNECT u@a.example:443 HTTP/1.1\r\n\r\n", "userinfo in the request target");
    refuses("CONNECT http://a.example:443 HTTP/1.1\r\n\r\n", NULL);
    refuses("CONNECT / HTTP/1.1\r\n" HOST "\r\n", NULL);
    refuses("CONNECT * HTTP/1.1\r\n" HOST "\r\n", NULL);
    refuses("CONNECT a:1 HTTP/1.1\r\nContent-Length: 1\r\n\r\n", "CONNECT with a body");
    refuses("CONNECT a:1 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "CONNECT with a body");
    refuses("connect a.example:443 HTTP/1.1\r\n" HOST "\r\n", NULL);
}

static void test_targets_that_can_be_read_in_two_ways_are_refused(void **state)
{
    static const char *const bad[] = {
        "http://a.example#@b.example/", /* userinfo or fragment */
        "http://a.example/#x",
        "/#",
        "http://a.example\\@b.example/",
        "http://a.example\\.b.example/",
        "http://a.example%00.b.example/",
        "http://a%2eexample/",
        "http://a.example\t/",
        "http://a.example/\t",
        "http:///x",
        "http://",
        "http:/a.example/",
        "http:a.example",
        "http//a.example",
        "http://a.example:/",
        "http://a.example:x/",
        "http://a.example:0/",
        "http://a.example:65536/",
        "http://a.example:80:80/",
        "http://[::1/",
        "http://[::1]x/",
        "http://[a.example]/",
        "http://::1/",
        "http://a..example/",
        "http://*.example/",
        "http://\xc3\xbc.example/",
        "a.example",
        "a.example:443",
        "*",
        "?x",
        "://a.example/",
        "1ttp://a.example/",
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        auto_buf struct sp_buf text = {0};

        assert_true(sp_buf_printf(&text, "GET %s HTTP/1.1\r\n" HOST "\r\n", bad[i]));
        refuses_bytes(sp_buf_str(&text), 400, NULL);
    }
    refuses("GET http://u:p@a.example/ HTTP/1.1\r\n" HOST "\r\n", "userinfo in the request target");
    refuses("GET http://@a.example/ HTTP/1.1\r\n" HOST "\r\n", "userinfo in the request target");
    refuses("GET http://a.example@b.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n",
            "userinfo in the request target");
    refuses_bytes(SP_STR("GET https://a.example/ HTTP/1.1\r\n" HOST "\r\n"), 501, "use CONNECT");
    refuses_bytes(SP_STR("GET ftp://a.example/ HTTP/1.1\r\n" HOST "\r\n"), 501, "use CONNECT");
}

static void test_host_has_to_be_the_target(void **state)
{
    static const char differs[] = "Host header does not match request target";

    (void)state;
    refuses(GET "\r\n", differs);
    refuses("GET http://a.example/ HTTP/1.1\r\n\r\n", differs);
    refuses(GET HOST HOST "\r\n", differs);
    refuses(GET HOST "HOST: b.example\r\n\r\n", differs);
    refuses("GET / HTTP/1.0\r\n" HOST HOST "\r\n", differs);
    refuses("GET http://a.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n", differs);
    refuses("GET http://a.example/ HTTP/1.0\r\nHost: b.example\r\n\r\n", differs);
    refuses("GET http://a.example/ HTTP/1.1\r\nHost: a.example:81\r\n\r\n", differs);
    refuses("GET http://a.example:81/ HTTP/1.1\r\nHost: a.example\r\n\r\n", differs);
    refuses("GET http://a.example/ HTTP/1.1\r\nHost:\r\n\r\n", differs);
    refuses("GET http://a.example/ HTTP/1.1\r\nHost: u@a.example\r\n\r\n", differs);
    refuses(GET "Host:\r\n\r\n", NULL);
    refuses(GET "Host: a.example, b.example\r\n\r\n", NULL);
    refuses(GET "Host: a.example b.example\r\n\r\n", NULL);
    refuses(GET "Host: a.example/x\r\n\r\n", NULL);
    refuses(GET "Host: http://a.example\r\n\r\n", NULL);
    refuses(GET "Host: \xc2\xa0"
                "a.example\r\n\r\n",
            NULL);
}

static void test_malformed_heads_are_refused(void **state)
{
    static const char *const bad[] = {
        "GET / HTTP/1.1\n",
        "GET / HTTP/1.1\r\nHost: a.example\n\r\n",
        "GET / HTTP/1.1\r\nHost: a.example\r\n\n",
        "GET / HTTP/1.1\r\nHost: a.example\rX: y\r\n\r\n",
        "GET / HTTP/1.1\r\r\n",
        GET HOST "X: a\r\n b\r\n\r\n",
        GET HOST "X: a\r\n\tb\r\n\r\n",
        GET " Host: a.example\r\n\r\n",
        GET HOST "X : y\r\n\r\n",
        GET HOST "X\t: y\r\n\r\n",
        GET HOST "X y: z\r\n\r\n",
        GET HOST "X\r\n\r\n",
        GET HOST ": y\r\n\r\n",
        GET HOST "X\xc3: y\r\n\r\n",
        GET HOST "X(: y\r\n\r\n",
        GET HOST "X: \x01\r\n\r\n",
        GET HOST "X: \x1f\r\n\r\n",
        GET HOST "X: \x7f\r\n\r\n",
        GET HOST "X: \v\r\n\r\n",
        "\r\n",
        "\r\nGET / HTTP/1.1\r\n\r\n",
        "GET /\r\n\r\n",
        "GET  / HTTP/1.1\r\n" HOST "\r\n",
        "GET /  HTTP/1.1\r\n" HOST "\r\n",
        "GET / HTTP/1.1 \r\n" HOST "\r\n",
        "GET /a b HTTP/1.1\r\n" HOST "\r\n",
        "GET\t/ HTTP/1.1\r\n" HOST "\r\n",
        " GET / HTTP/1.1\r\n" HOST "\r\n",
        "GE(T / HTTP/1.1\r\n" HOST "\r\n",
        "/ HTTP/1.1\r\n" HOST "\r\n",
        "GET / http/1.1\r\n" HOST "\r\n",
        "GET / HTTP/1.10\r\n" HOST "\r\n",
        "GET / HTTP/1\r\n" HOST "\r\n",
        "GET / HTTP/11\r\n" HOST "\r\n",
        "SSH-2.0-x\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFG / HTTP/1.1\r\n" HOST "\r\n",
        "\x16\x03\x01",
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        refuses(bad[i], NULL);
    refuses_bytes(SP_STR(GET HOST "X: \0\r\n\r\n"), 400, NULL);
    refuses_bytes(SP_STR("GET /\0 HTTP/1.1\r\n" HOST "\r\n"), 400, NULL);
    refuses_bytes(SP_STR("GET / HTTP/1.2\r\n" HOST "\r\n"), 505, NULL);
    refuses_bytes(SP_STR("GET / HTTP/2.0\r\n" HOST "\r\n"), 505, NULL);
    refuses_bytes(SP_STR("GET / HTTP/0.9\r\n" HOST "\r\n"), 505, NULL);
}

/* Also if the caller did not look for the end of the head first. */
static void test_a_head_without_its_end_is_refused(void **state)
{
    static const char head[] = GET HOST "X: y\r\n\r\n";
    struct sp_http1_refusal why;

    (void)state;
    for (size_t n = 0; n < sizeof head - 1; n++) {
        auto_free char *copy = test_copy((struct sp_str){head, n});

        assert_false(sp_http1_read_request((struct sp_str){copy, n}, &last.head, &why));
        assert_int_equal(why.status, 400);
    }
    assert_false(sp_http1_read_request(SP_STR(GET HOST "\r\nGET"), &last.head, &why));
    assert_int_equal(why.status, 400);
}

static void add_fields(struct sp_buf *text, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        assert_true(sp_buf_printf(text, "F%u: v\r\n", i));
}

static void test_heads_are_bounded(void **state)
{
    auto_buf struct sp_buf many = {0};
    auto_buf struct sp_buf large = {0};

    (void)state;
    assert_true(sp_buf_add_str(&many, SP_STR(GET HOST)));
    add_fields(&many, SP_HTTP1_FIELDS_MAX - 1);
    const size_t n = many.len;
    assert_true(sp_buf_add_str(&many, SP_STR("\r\n")));
    assert_true(read_bytes(sp_buf_str(&many), NULL));
    assert_int_equal(last.head.field_count, SP_HTTP1_FIELDS_MAX);
    many.len = n;
    assert_true(sp_buf_add_str(&many, SP_STR("One: more\r\n\r\n")));
    refuses_bytes(sp_buf_str(&many), 431, NULL);

    assert_true(sp_buf_add_str(&large, SP_STR(GET HOST "X: ")));
    while (large.len < SP_HTTP1_HEAD_MAX - 4)
        assert_true(sp_buf_add(&large, "x", 1));
    assert_true(sp_buf_add_str(&large, SP_STR("\r\n\r\n")));
    size_t scanned = 0;
    assert_int_equal(sp_http1_head_length(sp_buf_str(&large), &scanned), SP_HTTP1_HEAD_MAX);
    assert_true(sp_http1_read_request(sp_buf_str(&large), &last.head, &last.why));
    large.len -= 4;
    assert_true(sp_buf_add_str(&large, SP_STR("x\r\n\r\n")));
    const size_t too_long = sp_http1_head_length(sp_buf_str(&large), &scanned);
    assert_int_equal(too_long, SP_HTTP1_HEAD_MAX + 1);
    assert_false(
        sp_http1_read_request((struct sp_str){large.data, too_long}, &last.head, &last.why));
    assert_int_equal(last.why.status, 431);
    assert_false(sp_http1_read_response((struct sp_str){large.data, too_long}, SP_STR("GET"),
                                        &last.head, &last.why));
    assert_int_equal(last.why.status, 502);
}

static void test_requests_have_one_length(void **state)
{
    (void)state;
    assert_int_equal(request(GET HOST "\r\n")->body, SP_HTTP1_NO_BODY);
    assert_int_equal(request(POST "Content-Length: 12\r\n\r\n")->body, SP_HTTP1_LENGTH);
    assert_int_equal(last.head.length, 12);
    assert_int_equal(request(POST "content-length:0\r\n\r\n")->body, SP_HTTP1_LENGTH);
    assert_int_equal(request(POST "Content-Length: 9223372036854775807\r\n\r\n")->length,
                     INT64_MAX);
    assert_int_equal(request(POST "Transfer-Encoding: Chunked\r\n\r\n")->body, SP_HTTP1_CHUNKED);

    refuses(POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            "Content-Length with Transfer-Encoding");
    refuses(POST "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n",
            "Content-Length with Transfer-Encoding");
    refuses(POST "Content-Length: 5\r\nContent-Length: 6\r\n\r\n", "more than one Content-Length");
    refuses(POST "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", "more than one Content-Length");
    refuses(POST "Content-Length: 5, 5\r\n\r\n", "malformed Content-Length");
    refuses(POST "Content-Length:\r\n\r\n", "malformed Content-Length");
    refuses(POST "Content-Length: +5\r\n\r\n", "malformed Content-Length");
    refuses(POST "Content-Length: -5\r\n\r\n", "malformed Content-Length");
    refuses(POST "Content-Length: 0x5\r\n\r\n", "malformed Content-Length");
    refuses(POST "Content-Length: 5 6\r\n\r\n", "malformed Content-Length");
    refuses(POST "Content-Length: 9223372036854775808\r\n\r\n", "malformed Content-Length");
    refuses(POST "Content-Length: 99999999999999999999\r\n\r\n", "malformed Content-Length");
    refuses(POST "Transfer-Encoding: gzip, chunked\r\n\r\n", NULL);
    refuses(POST "Transfer-Encoding: chunked, chunked\r\n\r\n", NULL);
    refuses(POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", NULL);
    refuses(POST "Transfer-Encoding: identity\r\n\r\n", NULL);
    refuses(POST "Transfer-Encoding:\r\n\r\n", NULL);
    refuses(POST "Transfer-Encoding: chunked;x\r\n\r\n", NULL);
    refuses("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", NULL);
}

static void test_connection_options(void **state)
{
    auto_buf struct sp_buf many = {0};

    (void)state;
    assert_true(request(GET HOST "\r\n")->keeps_alive);
    assert_false(request(GET HOST "Connection: x, CLOSE\r\n\r\n")->keeps_alive);
    assert_false(
        request(GET HOST "Connection: keep-alive\r\nConnection: close\r\n\r\n")->keeps_alive);
    assert_false(request("GET / HTTP/1.0\r\n\r\n")->keeps_alive);
    assert_true(request("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n")->keeps_alive);
    assert_true(request(GET HOST "Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n")->is_upgrade);
    assert_false(request(GET HOST "Upgrade: websocket\r\n\r\n")->is_upgrade);
    assert_false(request(GET HOST "Connection: Upgrade\r\n\r\n")->is_upgrade);
    assert_false(request(GET HOST "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n"
                                  "HTTP2-Settings: AAMA\r\n\r\n")
                     ->is_upgrade);
    assert_false(
        request("GET / HTTP/1.0\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")->is_upgrade);
    assert_true(request(POST "Expect: 100-Continue\r\n\r\n")->expects_continue);
    assert_false(request(GET HOST "\r\n")->expects_continue);
    assert_false(request("GET / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n")->expects_continue);

    assert_true(sp_buf_add_str(&many, SP_STR(GET HOST "Connection: close")));
    for (size_t i = 0; i < 64; i++)
        assert_true(sp_buf_add_str(&many, SP_STR(",x")));
    assert_true(sp_buf_add_str(&many, SP_STR("\r\n\r\n")));
    refuses_bytes(sp_buf_str(&many), 400, "too many options in Connection");
}

/* ---- responses ---- */

static void test_the_end_of_a_response(void **state)
{
    static const struct {
        const char *method, *text;
        enum sp_http1_body_kind body;
        uint64_t length;
        bool keeps_alive;
    } cases[] = {
        {"GET", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", SP_HTTP1_LENGTH, 5, true},
        {"GET", "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", SP_HTTP1_LENGTH, 5, false},
        {"GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", SP_HTTP1_CHUNKED, 0, true},
        {"GET", "HTTP/1.1 200 OK\r\n\r\n", SP_HTTP1_UNTIL_CLOSE, 0, false},
        {"GET", "HTTP/1.1 999 \r\n\r\n", SP_HTTP1_UNTIL_CLOSE, 0, false},
        {"GET", "HTTP/1.1 204\r\n\r\n", SP_HTTP1_NO_BODY, 0, true},
        {"GET", "HTTP/1.1 204 x\r\nContent-Length: 0\r\n\r\n", SP_HTTP1_NO_BODY, 0, true},
        {"GET", "HTTP/1.1 204 x\r\nContent-Length: 5\r\n\r\n", SP_HTTP1_NO_BODY, 5, false},
        {"GET", "HTTP/1.1 304 x\r\nContent-Length: 5\r\n\r\n", SP_HTTP1_NO_BODY, 5, true},
        {"GET", "HTTP/1.1 100 Continue\r\n\r\n", SP_HTTP1_NO_BODY, 0, true},
        {"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", SP_HTTP1_NO_BODY, 5, true},
        {"HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", SP_HTTP1_NO_BODY, 0,
         true},
        {"CONNECT", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", SP_HTTP1_NO_BODY, 5, true},
        {"CONNECT", "HTTP/1.1 407 x\r\nContent-Length: 5\r\n\r\n", SP_HTTP1_LENGTH, 5, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct sp_http1_head *h = response(cases[i].method, cases[i].text);

        if (h->body != cases[i].body || h->length != cases[i].length ||
            h->keeps_alive != cases[i].keeps_alive)
            fail_msg("<%s>: body %d, length %d, alive %d", cases[i].text, (int)h->body,
                     (int)h->length, h->keeps_alive);
    }
    const struct sp_http1_head *h = response("GET", "HTTP/1.1 404 Not  Found\r\n\r\n");
    assert_int_equal(h->status, 404);
    assert_str(h->reason, "Not  Found");
    assert_true(response("GET", "HTTP/1.1 101 x\r\nUpgrade: websocket\r\n\r\n")->is_upgrade);
    assert_false(response("GET", "HTTP/1.1 200 x\r\nConnection: upgrade\r\nUpgrade: h2\r\n\r\n")
                     ->is_upgrade);
}

static void test_responses_that_can_be_read_in_two_ways_are_refused(void **state)
{
    (void)state;
    refuses_response("GET", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n");
    refuses_response("GET", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n");
    refuses_response("GET",
                     "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n");
    refuses_response("GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n");
    refuses_response("GET", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    refuses_response("GET", "HTTP/1.1 100 x\r\nContent-Length: 1\r\n\r\n");
    refuses_response("GET", "HTTP/1.1 101 x\r\nTransfer-Encoding: chunked\r\n\r\n");
    refuses_response("GET", "HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n");
    refuses_response("GET", "HTTP/1.1 200 OK\r\nX : a\r\n\r\n");
    refuses_response("GET", "HTTP/1.1 200 OK\n\n");
    refuses_response("GET", "HTTP/1.1  200 OK\r\n\r\n");
    refuses_response("GET", "HTTP/1.1 20 OK\r\n\r\n");
    refuses_response("GET", "HTTP/1.1 099 OK\r\n\r\n");
    refuses_response("GET", "HTTP/1.1 2000 OK\r\n\r\n");
    refuses_response("GET", "HTTP/1.1 +20 OK\r\n\r\n");
    refuses_response("GET", "HTTP/2.0 200 OK\r\n\r\n");
    refuses_response("GET", "HTTP/1.1\r\n\r\n");
    refuses_response("GET", "ICY 200 OK\r\n\r\n");
    refuses_response("GET", "\r\n");
}

/* ---- writing ---- */

static void writes(const char *text, bool is_absolute, const char *extra, bool closes,
                   const char *want)
{
    auto_buf struct sp_buf out = {0};

    assert_true(sp_http1_write_request(&out, request(text), is_absolute, sp_str_of(extra), closes));
    if (!sp_str_eq(sp_buf_str(&out), sp_str_of(want)))
        fail_msg("<%.*s>", (int)out.len, out.data);
}

static void test_requests_are_written_anew(void **state)
{
    (void)state;
    writes("GET http://a.example/x?y HTTP/1.1\r\nAccept:\t*/* \r\nHOST: A.example:80\r\n\r\n",
           false, "", false, "GET /x?y HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\n\r\n");
    writes("GET http://a.example:81?y HTTP/1.1\r\nHost: a.example:81\r\n\r\n", false, "", true,
           "GET /?y HTTP/1.1\r\nHost: a.example:81\r\nConnection: close\r\n\r\n");
    writes("GET / HTTP/1.1\r\nHost: [::1]:81\r\n\r\n", true, "Proxy-Authorization: Basic x\r\n",
           false,
           "GET http://[::1]:81/ HTTP/1.1\r\nHost: [::1]:81\r\n"
           "Proxy-Authorization: Basic x\r\n\r\n");
    writes("OPTIONS * HTTP/1.1\r\n" HOST "\r\n", true, "", false,
           "OPTIONS http://a.example HTTP/1.1\r\n" HOST "\r\n");
    writes("OPTIONS http://a.example HTTP/1.1\r\n" HOST "\r\n", false, "", false,
           "OPTIONS * HTTP/1.1\r\n" HOST "\r\n");
    writes(POST "Content-Length: 007\r\nTrailer: X\r\n\r\n", false, "", false,
           POST "Trailer: X\r\nContent-Length: 7\r\n\r\n");
    writes(POST "transfer-encoding: Chunked\r\n\r\n", false, "", false,
           POST "Transfer-Encoding: chunked\r\n\r\n");
    writes("GET / HTTP/1.0\r\n\r\n", false, "", false, "GET / HTTP/1.0\r\n\r\n");
    writes("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", false, "", false,
           "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
}

static void test_hop_by_hop_fields_end_here(void **state)
{
    (void)state;
    writes(GET HOST
           "Connection: X-Secret , keep-alive,\r\nx-secret: 1\r\nKeep-Alive: 5\r\n"
           "Proxy-Connection: keep-alive\r\nproxy-authorization: Basic x\r\nTE: trailers\r\n"
           "Upgrade: websocket\r\nX-Kept: 2\r\nProxied: 3\r\n\r\n",
           false, "", false, GET HOST "X-Kept: 2\r\nProxied: 3\r\n\r\n");
    writes(GET HOST "Connection: Upgrade, X-Gone\r\nUpgrade: websocket\r\nX-Gone: 1\r\n"
                    "Sec-WebSocket-Key: k\r\n\r\n",
           false, "", true,
           GET HOST "Upgrade: websocket\r\nSec-WebSocket-Key: k\r\nConnection: upgrade\r\n\r\n");
    writes(GET HOST "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: "
                    "AAMA\r\n\r\n",
           false, "", false, GET HOST "\r\n");
    /* The body keeps its frame, and the request its host, if they are called hop-by-hop. */
    writes(POST "Connection: Content-Length, Host\r\nContent-Length: 5\r\n\r\n", false, "", false,
           POST "Content-Length: 5\r\n\r\n");
}

static void writes_response(const char *method, const char *text, bool closes, const char *want)
{
    auto_buf struct sp_buf out = {0};

    assert_true(sp_http1_write_response(&out, response(method, text), closes));
    if (!sp_str_eq(sp_buf_str(&out), sp_str_of(want)))
        fail_msg("<%.*s>", (int)out.len, out.data);
}

static void test_responses_are_written_anew(void **state)
{
    (void)state;
    writes_response(
        "GET",
        "HTTP/1.1 200 OK\r\nConnection: X\r\nX: 1\r\nProxy-Authenticate: y\r\n"
        "Set-Cookie: a\r\nSet-Cookie: b\r\nContent-Length: 05\r\n\r\n",
        false, "HTTP/1.1 200 OK\r\nSet-Cookie: a\r\nSet-Cookie: b\r\nContent-Length: 5\r\n\r\n");
    writes_response("GET", "HTTP/1.1 200\r\n\r\n", true,
                    "HTTP/1.1 200 \r\nConnection: close\r\n\r\n");
    writes_response("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: y\r\n\r\n", false,
                    "HTTP/1.1 200 OK\r\nX: y\r\nContent-Length: 5\r\n\r\n");
    writes_response("HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false,
                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    writes_response("GET", "HTTP/1.1 204 x\r\nContent-Length: 5\r\n\r\n", false,
                    "HTTP/1.1 204 x\r\n\r\n");
    writes_response(
        "GET", "HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", false,
        "HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n");
    writes_response("GET", "HTTP/1.1 200 OK\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n", false,
                    "HTTP/1.1 200 OK\r\n\r\n");
    writes_response("GET", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\n",
                    false,
                    "HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: keep-alive\r\n\r\n");
}

static void test_a_head_without_room_adds_nothing(void **state)
{
    const struct sp_http1_head *h =
        request(POST "X: y\r\nContent-Length: 5\r\nConnection: close\r\n\r\n");

    (void)state;
    for (size_t max = 4;; max++) {
        auto_buf struct sp_buf out = {.max = max};

        assert_true(sp_buf_add(&out, "kept", 4));
        if (sp_http1_write_request(&out, h, true, SP_STR("A: b\r\n"), true)) {
            assert_true(max > 100);
            break;
        }
        assert_bytes(out.data, out.len, "kept");
        assert_true(max < 300);
    }
}

/* ---- bodies ---- */

/* Feeds `step` bytes at a time; bytes that were not taken come again. Returns the bytes that were
 * taken, or the error. */
static ptrdiff_t feed(const struct sp_http1_head *h, struct sp_str in, size_t step,
                      struct sp_buf *out, uint64_t *ret_payload, bool *ret_is_over)
{
    struct sp_http1_body b;
    size_t at = 0;
    size_t seen = 0;

    *ret_payload = 0;
    sp_http1_body_begin(&b, h);
    while (seen < in.n && !b.is_over) {
        seen = step < in.n - seen ? seen + step : in.n;
        auto_free char *copy = test_copy((struct sp_str){in.p + at, seen - at});
        const ptrdiff_t n =
            sp_http1_body_move(&b, (struct sp_str){copy, seen - at}, out, ret_payload);

        if (n < 0)
            return n;
        at += (size_t)n;
    }
    *ret_is_over = b.is_over;
    return (ptrdiff_t)at;
}

static void moves(const char *head, struct sp_str in, size_t want_taken, bool want_over,
                  uint64_t want_payload, struct sp_str want)
{
    const struct sp_http1_head *h = request(head);

    for (size_t step = 1; step <= in.n; step++) {
        auto_buf struct sp_buf out = {0};
        bool is_over = false;
        uint64_t payload = 0;

        assert_int_equal(feed(h, in, step, &out, &payload, &is_over), want_taken);
        assert_int_equal(is_over, want_over);
        assert_int_equal(payload, want_payload);
        if (!sp_str_eq(sp_buf_str(&out), want))
            fail_msg("<%.*s>", (int)out.len, out.data);
    }
}

#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"

static void test_a_body_of_known_length(void **state)
{
    struct sp_http1_body b;

    (void)state;
    moves(POST "Content-Length: 5\r\n\r\n", SP_STR("12\r\n5next"), 5, true, 5, SP_STR("12\r\n5"));
    moves(POST "Content-Length: 5\r\n\r\n", SP_STR("123"), 3, false, 3, SP_STR("123"));
    sp_http1_body_begin(&b, request(POST "Content-Length: 0\r\n\r\n"));
    assert_true(b.is_over);
    sp_http1_body_begin(&b, request(POST "\r\n"));
    assert_true(b.is_over);
}

static void test_a_body_until_the_end(void **state)
{
    auto_buf struct sp_buf out = {0};
    uint64_t payload = 0;
    struct sp_http1_body b;

    (void)state;
    sp_http1_body_begin(&b, response("GET", "HTTP/1.1 200 OK\r\n\r\n"));
    assert_int_equal(sp_http1_body_move(&b, SP_STR("0\r\n\r\n"), &out, &payload), 5);
    assert_false(b.is_over);
    assert_int_equal(payload, 5);
}

static void test_chunks_are_framed_anew(void **state)
{
    static const char whole[] = "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";

    (void)state;
    moves(CHUNKED, sp_str_of(whole), sizeof whole - 1, true, 11, sp_str_of(whole));
    moves(CHUNKED, SP_STR("0005;a=\"b\";c\r\nhello\r\n00;x\r\n\r\nGET"), 29, true, 5,
          SP_STR("5\r\nhello\r\n0\r\n\r\n"));
    moves(CHUNKED, SP_STR("A\r\n0\r\n\r\n56789\r\n0\r\n\r\n"), 20, true, 10,
          SP_STR("a\r\n0\r\n\r\n56789\r\n0\r\n\r\n"));
    moves(CHUNKED, SP_STR("7fffffffffffffff\r\nab"), 20, false, 2,
          SP_STR("7fffffffffffffff\r\nab"));
    moves(CHUNKED, SP_STR("0\r\n\r"), 3, false, 0, SP_STR("0\r\n"));
}

static void test_trailers_pass_unless_they_belong_into_a_head(void **state)
{
    (void)state;
    moves(CHUNKED,
          SP_STR("0\r\nX-Sum:  1 \r\nContent-Length: 5\r\ntransfer-encoding: x\r\nHost: b\r\n"
                 "Proxy-X: y\r\nConnection: close\r\nTrailer: z\r\nY: 2\r\n\r\n"),
          116, true, 0, SP_STR("0\r\nX-Sum: 1\r\nY: 2\r\n\r\n"));
}

static void fails(struct sp_str in)
{
    const struct sp_http1_head *h = request(CHUNKED);

    for (size_t step = 1; step <= in.n; step++) {
        auto_buf struct sp_buf out = {0};
        bool is_over = false;
        uint64_t payload = 0;

        if (feed(h, in, step, &out, &payload, &is_over) != -1)
            fail_msg("<%.*s> is accepted", (int)in.n, in.p);
    }
}

static void test_malformed_chunks_are_refused(void **state)
{
    static const char *const bad[] = {
        "5\nhello\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhello\r0\r\n\r\n",
        "5\r\nhello!",
        "5\r\nhello5\r\n",
        "4\r\nhello\r\n",
        "\r\n",
        ";x\r\n",
        "x\r\n",
        "0x5\r\n",
        "+5\r\n",
        "-5\r\n",
        " 5\r\n",
        "5 \r\n",
        "5 ;x\r\n",
        "5;\x01\r\n",
        "8000000000000000\r\n",
        "ffffffffffffffff\r\n",
        "10000000000000005\r\n",
        "00000000000000005\r\n",
        "0\r\nX\r\n\r\n",
        "0\r\nX : y\r\n\r\n",
        "0\r\n X: y\r\n\r\n",
        "0\r\nX: y\r\n z\r\n\r\n",
        "0\r\nX: \x01\r\n\r\n",
        "0\r\nX: y\n\r\n",
        "0\r\n\n",
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        fails(sp_str_of(bad[i]));
    fails(SP_STR("5;\0\r\n"));
}

static void test_lines_of_a_body_are_bounded(void **state)
{
    auto_buf struct sp_buf in = {0};
    auto_buf struct sp_buf out = {0};
    uint64_t payload = 0;
    bool is_over = false;

    (void)state;
    assert_true(sp_buf_add_str(&in, SP_STR("5;")));
    while (in.len < SP_HTTP1_LINE_MAX - 2)
        assert_true(sp_buf_add(&in, "x", 1));
    assert_true(sp_buf_add_str(&in, SP_STR("\r\n")));
    assert_int_equal(feed(request(CHUNKED), sp_buf_str(&in), in.len, &out, &payload, &is_over),
                     SP_HTTP1_LINE_MAX);
    in.len -= 2;
    assert_true(sp_buf_add_str(&in, SP_STR("x\r\n")));
    assert_int_equal(feed(request(CHUNKED), sp_buf_str(&in), in.len, &out, &payload, &is_over), -1);
    assert_int_equal(feed(request(CHUNKED), sp_buf_str(&in), 100, &out, &payload, &is_over), -1);

    in.len = 0;
    assert_true(sp_buf_add_str(&in, SP_STR("0\r\n")));
    while (in.len <= SP_HTTP1_HEAD_MAX + 3)
        assert_true(
            sp_buf_add_str(&in, SP_STR("X: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n")));
    assert_int_equal(feed(request(CHUNKED), sp_buf_str(&in), in.len, &out, &payload, &is_over), -1);
}

static void test_a_body_without_room(void **state)
{
    static const char whole[] = "5;x\r\nhello\r\n0\r\nX: y\r\n\r\n";
    size_t failures = 0;

    (void)state;
    for (size_t max = 1;; max++) {
        auto_buf struct sp_buf out = {.max = max};
        uint64_t payload = 0;
        bool is_over = false;
        const ptrdiff_t n =
            feed(request(CHUNKED), sp_str_of(whole), sizeof whole, &out, &payload, &is_over);

        if (n > 0)
            break;
        assert_int_equal(n, -2);
        failures++;
    }
    assert_true(failures > 10);
}

static int free_last(void **state)
{
    (void)state;
    free(last.bytes);
    last.bytes = NULL;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_target_has_a_host_port_and_path),
        cmocka_unit_test(test_connect_has_host_and_port),
        cmocka_unit_test(test_targets_that_can_be_read_in_two_ways_are_refused),
        cmocka_unit_test(test_host_has_to_be_the_target),
        cmocka_unit_test(test_malformed_heads_are_refused),
        cmocka_unit_test(test_a_head_without_its_end_is_refused),
        cmocka_unit_test(test_heads_are_bounded),
        cmocka_unit_test(test_requests_have_one_length),
        cmocka_unit_test(test_connection_options),
        cmocka_unit_test(test_the_end_of_a_response),
        cmocka_unit_test(test_responses_that_can_be_read_in_two_ways_are_refused),
        cmocka_unit_test(test_requests_are_written_anew),
        cmocka_unit_test(test_hop_by_hop_fields_end_here),
        cmocka_unit_test(test_responses_are_written_anew),
        cmocka_unit_test(test_a_head_without_room_adds_nothing),
        cmocka_unit_test(test_a_body_of_known_length),
        cmocka_unit_test(test_a_body_until_the_end),
        cmocka_unit_test(test_chunks_are_framed_anew),
        cmocka_unit_test(test_trailers_pass_unless_they_belong_into_a_head),
        cmocka_unit_test(test_malformed_chunks_are_refused),
        cmocka_unit_test(test_lines_of_a_body_are_bounded),
        cmocka_unit_test(test_a_body_without_room),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, free_last);
}

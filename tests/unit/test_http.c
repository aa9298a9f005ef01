/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <unistd.h>

#include "server/net/http.h"
#include "server/net/listen.h"
#include "test.h"

/* Whole, byte by byte, and with the bytes moving between: the answer must be one. */
static enum sp_http_result parse(const char *bytes, size_t n, struct sp_http_request *ret)
{
    struct sp_http_parser whole = {0};
    struct sp_http_parser part = {0};
    struct sp_http_request r;
    enum sp_http_result byte_wise = SP_HTTP_MORE;

    for (size_t i = 1; i <= n && byte_wise == SP_HTTP_MORE; i++) {
        char *copy = test_copy((struct sp_str){bytes, i});

        byte_wise = sp_http_parse(&part, copy, i, &r);
        free(copy);
    }
    const enum sp_http_result at_once = sp_http_parse(&whole, bytes, n, ret);
    assert_int_equal(byte_wise, at_once);
    assert_int_equal(whole.at, part.at);
    return at_once;
}

static enum sp_http_result parse_text(const char *text, struct sp_http_request *ret)
{
    return parse(text, strlen(text), ret);
}

static void assert_str(struct sp_str s, const char *want)
{
    assert_int_equal(s.n, strlen(want));
    assert_memory_equal(s.p, want, s.n);
}

static void test_request_is_taken_apart(void **state)
{
    static const char text[] =
        "GET /a?b=c HTTP/1.1\r\nHost:x\r\nA: \t one \t\r\na:two\r\nE:\r\n\r\ntail";
    struct sp_http_request r;
    struct sp_str value = {NULL, 0};

    (void)state;
    assert_int_equal(parse_text(text, &r), SP_HTTP_DONE);
    assert_str(r.method, "GET");
    assert_str(r.target, "/a?b=c");
    assert_str(r.path, "/a");
    assert_false(r.is_1_0);
    assert_int_equal(r.head_len, strlen(text) - 4);
    assert_int_equal(sp_http_header(&r, "host", &value), 1);
    assert_str(value, "x");
    assert_int_equal(sp_http_header(&r, "a", &value), 2);
    assert_str(value, "one");
    assert_int_equal(sp_http_header(&r, "e", &value), 1);
    assert_str(value, "");
    assert_int_equal(sp_http_header(&r, "hos", &value), 0);
}

static void test_request_without_headers_is_one(void **state)
{
    struct sp_http_request r;
    struct sp_str value;

    (void)state;
    assert_int_equal(parse_text("GET / HTTP/1.0\r\n\r\n", &r), SP_HTTP_DONE);
    assert_true(r.is_1_0);
    assert_int_equal(sp_http_header(&r, "host", &value), 0);
    assert_false(sp_http_has_word(&r, "connection", "upgrade"));
}

static void test_words_are_found_in_lists(void **state)
{
    struct sp_http_request r;

    (void)state;
    assert_int_equal(parse_text("GET / HTTP/1.1\r\nConnection: keep-alive,UPGRADE \r\n"
                                "connection: x-upgrade, ,y\r\n\r\n",
                                &r),
                     SP_HTTP_DONE);
    assert_true(sp_http_has_word(&r, "Connection", "upgrade"));
    assert_true(sp_http_has_word(&r, "Connection", "y"));
    assert_false(sp_http_has_word(&r, "Connection", "x"));
    assert_false(sp_http_has_word(&r, "Connection", "keep"));
}

static void is_bad(const char *bytes, size_t n)
{
    struct sp_http_request r;

    if (parse(bytes, n, &r) != SP_HTTP_BAD)
        fail_msg("accepted: %s", bytes);
}

#define IS_BAD(literal) is_bad(literal, sizeof(literal) - 1)

static void test_bad_bytes_are_refused_as_soon_as_seen(void **state)
{
    (void)state;
    IS_BAD("\x16"); /* somebody speaks TLS */
    IS_BAD(" ");
    IS_BAD("\r");
    IS_BAD("G\n");
    IS_BAD("GET  ");
    IS_BAD("GET /\x7F");
    IS_BAD("GET /\x80");
    IS_BAD("GET / HTTP/2");
    IS_BAD("GET / http");
    IS_BAD("GET / HTTP/1.2");
    IS_BAD("GET / HTTP/1.1 ");
    IS_BAD("GET / HTTP/1.1\n");
    IS_BAD("GET / HTTP/1.1\rH");
    IS_BAD("GET / HTTP/1.1\r\n :");
    IS_BAD("GET / HTTP/1.1\r\n:");
    IS_BAD("GET / HTTP/1.1\r\nHost :");
    IS_BAD("GET / HTTP/1.1\r\nHo\0st:");
    IS_BAD("GET / HTTP/1.1\r\nHost: a\0");
    IS_BAD("GET / HTTP/1.1\r\nHost: a\n");
    IS_BAD("GET / HTTP/1.1\r\nHost: a\rb");
    IS_BAD("GET / HTTP/1.1\r\nHost: a\r\n b"); /* folded */
    IS_BAD("GET / HTTP/1.1\r\nHost: a\r\n\tb");
    IS_BAD("GET / HTTP/1.1\r\nHost: a\r\n\rb");
    IS_BAD("GET / HTTP/1.1\r\nHost: \x01");
    IS_BAD("GET / HTTP/1.1\r\nH\xC3\xA9: ");
}

static void test_unfinished_request_asks_for_more(void **state)
{
    struct sp_http_request r;

    (void)state;
    assert_int_equal(parse_text("", &r), SP_HTTP_MORE);
    assert_int_equal(parse_text("GET / HTTP/1.1\r\nHost: a\r\n\r", &r), SP_HTTP_MORE);
}

static void test_head_of_16_kib_passes_and_one_byte_more_does_not(void **state)
{
    static const char front[] = "GET / HTTP/1.1\r\nA: ";
    char head[SP_HTTP_MAX_HEAD + 1];
    struct sp_http_request r;

    (void)state;
    memset(head, 'a', sizeof head);
    memcpy(head, front, sizeof front - 1);
    (void)mempcpy(head + SP_HTTP_MAX_HEAD - 4, "\r\n\r\n", 4);
    assert_int_equal(parse(head, SP_HTTP_MAX_HEAD, &r), SP_HTTP_DONE);
    memset(head + SP_HTTP_MAX_HEAD - 4, 'a', 4);
    assert_int_equal(parse(head, SP_HTTP_MAX_HEAD, &r), SP_HTTP_MORE);
    assert_int_equal(parse(head, SP_HTTP_MAX_HEAD + 1, &r), SP_HTTP_TOO_BIG);
}

static void test_hundred_headers_pass_and_one_more_does_not(void **state)
{
    struct sp_http_request r;

    (void)state;
    for (int n = SP_HTTP_MAX_HEADERS; n <= SP_HTTP_MAX_HEADERS + 1; n++) {
        auto_buf struct sp_buf head = {0};

        assert_true(sp_buf_add_str(&head, SP_STR("GET / HTTP/1.1\r\n")));
        for (int i = 0; i < n; i++)
            assert_true(sp_buf_add_str(&head, SP_STR("A:b\r\n")));
        assert_true(sp_buf_add_str(&head, SP_STR("\r\n")));
        assert_int_equal(parse(head.data, head.len, &r),
                         n == SP_HTTP_MAX_HEADERS ? SP_HTTP_DONE : SP_HTTP_TOO_BIG);
    }
}

static void test_answer_says_that_the_connection_ends(void **state)
{
    auto_buf struct sp_buf out = {0};

    (void)state;
    assert_true(sp_http_write(
        &out,
        &(struct sp_http_answer){.status = 405, .header = "allow: GET\r\n", .body = SP_STR("no")}));
    assert_bytes(out.data, out.len,
                 "HTTP/1.1 405 Method Not Allowed\r\nconnection: close\r\ncontent-length: 2\r\n"
                 "allow: GET\r\ncontent-type: text/plain; charset=utf-8\r\n\r\nno");
    out.len = 0;
    assert_true(sp_http_write(&out, &(struct sp_http_answer){.status = 403}));
    assert_bytes(out.data, out.len,
                 "HTTP/1.1 403 Forbidden\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
}

/* ---- gate ---- */

static struct sp_http_gate gate;

#define UPGRADES                                                                 \
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" \
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"

/* "STATUS body|header" for a line and headers; 101 and 200 metrics for the other verdicts. */
static void gets(const char *line, const char *headers, const char *want)
{
    char head[2048];
    char got[512];
    struct sp_http_request r;
    struct sp_http_answer a = {0};

    (void)snprintf(head, sizeof head, "%s\r\n%s\r\n", line, headers);
    assert_int_equal(parse_text(head, &r), SP_HTTP_DONE);
    switch (sp_http_gate_judge(&gate, &r, 1000, &a)) {
    case SP_HTTP_GATE_UPGRADE:
        (void)snprintf(got, sizeof got, "101");
        break;
    case SP_HTTP_GATE_METRICS:
        (void)snprintf(got, sizeof got, "metrics");
        break;
    case SP_HTTP_GATE_ANSWER:
        (void)snprintf(got, sizeof got, "%u %.*s|%s", a.status, SP_STR_ARG(a.body),
                       a.header == NULL ? "" : a.header);
        break;
    }
    if (strcmp(got, want) != 0)
        fail_msg("%s\n%s\nwant %s\ngot  %s", line, headers, want, got);
}

#define HOST     "Host: localhost\r\n"
#define NOT_OURS "403 Host is not a name of this server|"

static void test_surface_is_that_of_the_table(void **state)
{
    (void)state;
    gate = (struct sp_http_gate){.has_metrics = true};
    gets("GET / HTTP/1.1", HOST UPGRADES, "101");
    gets("GET /?query HTTP/1.1", HOST UPGRADES, "101");
    gets("GET /readyz HTTP/1.1", HOST, "200 |");
    gets("HEAD /readyz?x HTTP/1.1", HOST, "200 |");
    gets("POST /readyz HTTP/1.1", HOST, "405 |allow: GET,HEAD\r\n");
    gets("GET / HTTP/1.1", HOST, "400 Connection header did not include 'upgrade'|");
    gets("POST / HTTP/1.1", HOST UPGRADES, "405 Request method must be `GET`|allow: GET\r\n");
    gets("GET /other HTTP/1.1", HOST UPGRADES, "404 |");
    gets("GET http://localhost/ HTTP/1.1", HOST UPGRADES, "404 |");
    gets("GET //readyz HTTP/1.1", HOST, "404 |");
    gets("GET /metrics HTTP/1.1", HOST, "metrics");
    gets("HEAD /metrics HTTP/1.1", HOST, "405 |allow: GET\r\n");
    gate.has_metrics = false;
    gets("GET /metrics HTTP/1.1", HOST, "404 |");
}

static void test_every_part_of_the_upgrade_is_needed(void **state)
{
    static const char key[] = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    static const char front[] = HOST "Connection: upgrade\r\n";
    char h[512];

    (void)state;
    gate = (struct sp_http_gate){0};
    (void)snprintf(h, sizeof h, "%sSec-WebSocket-Version: 13\r\n%s", front, key);
    gets("GET / HTTP/1.1", h, "400 `Upgrade` header did not include 'websocket'|");
    (void)snprintf(h, sizeof h, "%sUpgrade: websocket\r\nSec-WebSocket-Version: 12\r\n%s", front,
                   key);
    gets("GET / HTTP/1.1", h, "400 `Sec-WebSocket-Version` header did not include '13'|");
    (void)snprintf(h, sizeof h, "%sUpgrade: websocket\r\n%s", front, key);
    gets("GET / HTTP/1.1", h, "400 `Sec-WebSocket-Version` header did not include '13'|");
    (void)snprintf(h, sizeof h, "%sUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n", front);
    gets("GET / HTTP/1.1", h, "400 `Sec-WebSocket-Key` header missing|");
    (void)snprintf(h, sizeof h, "%sUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n%s", front,
                   "Sec-WebSocket-Key:\r\n");
    gets("GET / HTTP/1.1", h, "400 `Sec-WebSocket-Key` header is not usable|");
    gets("GET / HTTP/1.0", HOST UPGRADES, "400 an upgrade needs HTTP/1.1|");
    gets("GET / HTTP/1.1", HOST UPGRADES "Content-Length: 5\r\n", "400 an upgrade has no body|");
    gets("GET / HTTP/1.1", HOST UPGRADES "Content-Length: 0\r\n", "101");
    gets("GET / HTTP/1.1", HOST UPGRADES "Transfer-Encoding: chunked\r\n",
         "400 an upgrade has no body|");
    gets("GET / HTTP/1.1",
         HOST UPGRADES "Sec-WebSocket-Protocol: x\r\n"
                       "Sec-WebSocket-Extensions: permessage-deflate\r\n",
         "101");
}

static void test_browsers_are_refused_first(void **state)
{
    (void)state;
    gate = (struct sp_http_gate){.has_metrics = true};
    gets("GET / HTTP/1.1", HOST UPGRADES "Origin: http://localhost\r\n", "403 |");
    gets("GET /readyz HTTP/1.1", HOST "origin:\r\n", "403 |");
    gets("POST /nowhere HTTP/1.1", "Origin: null\r\nHost: evil.example\r\n", "403 |");
    gate.is_unix = true;
    gets("GET / HTTP/1.1", HOST UPGRADES "Origin: x\r\n", "403 |");
}

static void test_host_must_be_ours(void **state)
{
    static const char *const names[] = {"box.example", "other", NULL};
    static const char *const good[] = {"localhost",     "LocalHost:1",   "127.0.0.1",
                                       "10.0.0.1:8080", "[::1]",         "[::1]:65535",
                                       "[fe80::1]",     "box.example:1", "BOX.EXAMPLE:80"};
    static const char *const wrong[] = {"evil.example",   "localhost.evil.example",
                                        "localhost:",     "localhost:65536",
                                        "localhost:8x",   "localhost:-1",
                                        "127.0.0.1.",     "127.0.0.256",
                                        "127.1",          "0x7f.0.0.1",
                                        "[::1",           "[::1]x",
                                        "[::1]:",         "[]",
                                        "[127.0.0.1]",    "::1",
                                        "user@localhost", "localhost, localhost",
                                        "localhost evil", ""};
    char h[256];

    (void)state;
    gate = (struct sp_http_gate){.hosts = names};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        (void)snprintf(h, sizeof h, "Host: %s\r\n", good[i]);
        gets("GET /readyz HTTP/1.1", h, "200 |");
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        (void)snprintf(h, sizeof h, "Host: %s\r\n", wrong[i]);
        gets("GET /readyz HTTP/1.1", h, NOT_OURS);
    }
    gets("GET /readyz HTTP/1.1", "", NOT_OURS);
    gets("GET /readyz HTTP/1.1", HOST HOST, NOT_OURS);
    gets("GET /readyz HTTP/1.0", "", "200 |");
    gets("GET /readyz HTTP/1.0", "Host: evil.example\r\n", NOT_OURS);
    gate.is_unix = true;
    gets("GET /readyz HTTP/1.1", "Host: whatever\r\n", "200 |");
}

static void test_tokens_are_asked_for_where_they_matter(void **state)
{
    char path[] = "/tmp/sallyport-test-XXXXXX";
    const int fd = mkstemp(path);
    struct sp_auth *auth = NULL;
    struct sp_err e;

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "open-sesame-please\n", 19), 19);
    (void)close(fd);
    assert_int_equal(sp_auth_new(&(struct sp_auth_options){.token_file = path}, &auth, &e), 0);
    (void)unlink(path);

#define REFUSED(text) "401 " text "|www-authenticate: Bearer\r\n"
    gate = (struct sp_http_gate){.auth = auth, .has_metrics = true};
    gets("GET /readyz HTTP/1.1", HOST, "200 |");
    gets("GET / HTTP/1.1", HOST UPGRADES, REFUSED("missing websocket bearer token"));
    gets("GET / HTTP/1.1", HOST UPGRADES "Authorization: Bearer simsim\r\n",
         REFUSED("invalid websocket bearer token"));
    gets("GET / HTTP/1.1", HOST UPGRADES "Authorization: Basic open-sesame-please\r\n",
         REFUSED("invalid authorization header"));
    gets("GET / HTTP/1.1",
         HOST UPGRADES
         "Authorization: Bearer open-sesame-please\r\nAuthorization: Bearer open-sesame-please\r\n",
         REFUSED("invalid authorization header"));
    gets("GET / HTTP/1.1", HOST UPGRADES "authorization: bearer open-sesame-please\r\n", "101");
    gets("GET /metrics HTTP/1.1", HOST, REFUSED("missing websocket bearer token"));
    gets("GET /metrics HTTP/1.1", HOST "Authorization: Bearer open-sesame-please\r\n", "metrics");
    sp_auth_free(auth);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_request_is_taken_apart),
        cmocka_unit_test(test_request_without_headers_is_one),
        cmocka_unit_test(test_words_are_found_in_lists),
        cmocka_unit_test(test_bad_bytes_are_refused_as_soon_as_seen),
        cmocka_unit_test(test_unfinished_request_asks_for_more),
        cmocka_unit_test(test_head_of_16_kib_passes_and_one_byte_more_does_not),
        cmocka_unit_test(test_hundred_headers_pass_and_one_more_does_not),
        cmocka_unit_test(test_answer_says_that_the_connection_ends),
        cmocka_unit_test(test_surface_is_that_of_the_table),
        cmocka_unit_test(test_every_part_of_the_upgrade_is_needed),
        cmocka_unit_test(test_browsers_are_refused_first),
        cmocka_unit_test(test_host_must_be_ours),
        cmocka_unit_test(test_tokens_are_asked_for_where_they_matter),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

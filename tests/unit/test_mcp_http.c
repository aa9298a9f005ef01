/* SPDX-License-Identifier: Apache-2.0 */
#include "mcp/mcp_http.h"
#include "mcp_http_fixture.h"

#define OK_BODY "{\"id\":1,\"result\":{}}"
#define NOW     CALL("now", "1")

static void refuses(const char *head, unsigned status)
{
    asks(head, NOW, status);
    assert_int_equal(mcp.takes, 0);
    assert_int_equal(mcp.held, 0);
}

/* ---- one request ---- */

static void test_a_request_is_answered_with_json(void **state)
{
    struct client *c = dial();

    (void)state;
    post(c, TO_MCP ALL MODERN "Mcp-Method: now\r\nMcp-Name: x\r\n", NOW);
    gets(200, OK_BODY);
    has_line("content-type: application/json");
    has_line("cache-control: no-store");
    assert_log("token 1 now [2026-07-28|now|x]\n");
    /* The connection goes on, and with another token it is another caller's. */
    post(c, TO_MCP TOKEN_2 ACCEPT JSON, NOW);
    gets(200, OK_BODY);
    assert_log("token 2 now [||]\n");
    assert_int_equal(mcp.peers, 0);
    assert_int_equal(mcp.held, 0);
}

static void test_the_status_is_the_peers(void **state)
{
    (void)state;
    asks(TO_MCP ALL, CALL("now404", "1"), 404);
    asks(TO_MCP ALL, CALL("now400", "1"), 400);
    asks(TO_MCP ALL, "{", 400);
    asks(TO_MCP ALL, "", 400);
    asks(TO_MCP ALL, "[]", 400);
    asks(TO_MCP ALL, "\xff\xfe", 400);
    assert_int_equal(mcp.takes, 6);
}

static void test_what_needs_no_answer_gets_202(void **state)
{
    struct client *c = dial();

    (void)state;
    post(c, TO_MCP ALL MODERN, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}");
    gets(202, "");
    has_line("content-length: 0");
    post(c, TO_MCP ALL MODERN, NOW);
    gets(200, OK_BODY);
}

static void test_a_later_answer_is_json_too(void **state)
{
    struct client *c = dial();

    (void)state;
    post(c, TO_MCP ALL, CALL("later", "1"));
    until(is_open);
    pass(20);
    assert_int_equal(c->in.len, 0);
    assert_int_equal(mcp.peers, 1);
    finish_open(200, "{\"late\":1}");
    gets(200, "{\"late\":1}");
    has_line("content-type: application/json");
    assert_int_equal(mcp.peers, 0);
}

static void test_names_are_decoded(void **state)
{
    (void)state;
    asks(TO_MCP ALL "Mcp-Name: =?base64?aGVsbG8=?=\r\n", NOW, 200);
    asks(TO_MCP ALL "mcp-name:   =?base64?\?= \r\n", NOW, 200);
    asks(TO_MCP ALL "Mcp-Name: =?base64?aGVsbG8?=\r\n", NOW, 200);
    asks(TO_MCP ALL "Mcp-Name: =?base64?=\r\n", NOW, 200);
    asks(TO_MCP ALL "Mcp-Name: =?q?a?=\r\n", NOW, 200);
    assert_log("token 1 now [||hello]\ntoken 1 now [||]\ntoken 1 now [||=?base64?aGVsbG8?=!]\n"
               "token 1 now [||=?base64?=]\ntoken 1 now [||=?q?a?=]\n");
    asks(TO_MCP ALL "Mcp-Name: a\r\nMcp-Name: a\r\n", NOW, 400);
    assert_non_null(strstr(got.body.data, "-32020"));
    asks(TO_MCP ALL "Mcp-Method: a\r\nMcp-Method: a\r\n", NOW, 400);
    asks(TO_MCP ALL MODERN MODERN, NOW, 400);
    assert_log("");
}

/* ---- who may ask ---- */

static void test_without_a_token_there_is_nothing_to_learn(void **state)
{
    static const char *const heads[] = {
        TO_MCP ACCEPT JSON,
        TO_MCP ACCEPT JSON "Authorization: Bearer sesam\r\n",
        TO_MCP ACCEPT JSON "Authorization: Bearer sesame2\r\n",
        TO_MCP ACCEPT JSON "Authorization: Bearer \r\n",
        TO_MCP ACCEPT JSON "Authorization: Bearer\r\n",
        TO_MCP ACCEPT JSON "Authorization: Basic sesame\r\n",
        TO_MCP ACCEPT JSON "Authorization: sesame\r\n",
        TO_MCP ACCEPT JSON "Authorization: Bearer sesame\r\nAuthorization: Bearer sesame\r\n",
        HEAD("POST /elsewhere") ACCEPT JSON,
        HEAD("GET /mcp"),
        HEAD("OPTIONS /mcp"),
        "POST /mcp HTTP/1.1\r\nHost: evil.example\r\n",
        TO_MCP "Origin: https://evil.example\r\n",
    };

    (void)state;
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        refuses(heads[i], 401);
        has_line("www-authenticate: Bearer");
        has_line("connection: close"); /* what else it sends is not worth reading */
        assert_string_equal(got.body.data, "");
        assert_null(strstr(got.head, "access-control"));
    }
    asks(TO_MCP ACCEPT JSON "authorization: bEARER   sesame\r\n", NOW, 200);
}

static void test_every_rule_has_its_status(void **state)
{
    static const struct {
        const char *head;
        unsigned status;
    } cases[] = {
        {"POST /mcp HTTP/1.1\r\nHost: evil.example\r\n" ALL, 403},
        {"POST /mcp HTTP/1.1\r\n" ALL, 403},
        {"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: 127.0.0.1\r\n" ALL, 403},
        {TO_MCP ALL "Origin: https://evil.example\r\n", 403},
        {TO_MCP ALL "Origin: http://127.0.0.1\r\n", 403},
        {TO_MCP ALL "Origin: null\r\n", 403},
        {TO_MCP ALL "Origin: https://app.example\r\nOrigin: https://app.example\r\n", 403},
        {HEAD("POST /") ALL, 404},
        {HEAD("POST /mcp/") ALL, 404},
        {HEAD("POST /mcp%2f") ALL, 404},
        {HEAD("POST http://127.0.0.1/mcp") ALL, 404},
        {HEAD("GET /healthz") ALL, 404},
        {HEAD("GET /mcp") ALL, 405},
        {HEAD("HEAD /mcp") ALL, 405},
        {HEAD("PUT /mcp") ALL, 405},
        {HEAD("post /mcp") ALL, 405},
        {HEAD("OPTIONS /mcp") ALL, 405},
        {TO_MCP TOKEN JSON, 406},
        {TO_MCP TOKEN JSON "Accept: application/json\r\n", 406},
        {TO_MCP TOKEN JSON "Accept: text/event-stream\r\n", 406},
        {TO_MCP TOKEN JSON "Accept: application/json, text/event-stream;q=0\r\n", 406},
        {TO_MCP TOKEN JSON "Accept: application/jsonx, text/event-stream\r\n", 406},
        {TO_MCP TOKEN ACCEPT, 415},
        {TO_MCP TOKEN ACCEPT "Content-Type: text/plain\r\n", 415},
        {TO_MCP TOKEN ACCEPT "Content-Type: application/json2\r\n", 415},
        {TO_MCP TOKEN ACCEPT JSON JSON, 415},
        {TO_MCP ALL "Content-Encoding: gzip\r\n", 415},
        {TO_MCP ALL "Expect: something\r\n", 417},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        refuses(cases[i].head, cases[i].status);
        if (cases[i].status == 405)
            has_line("allow: POST, DELETE, OPTIONS");
        else
            assert_non_null(strstr(got.body.data, "-32600"));
    }
}

static void test_what_is_next_to_a_rule_is_allowed(void **state)
{
    static const char *const heads[] = {
        "POST /mcp HTTP/1.1\r\nHost: localhost:80\r\n" ALL,
        "POST /mcp HTTP/1.1\r\nHost: [::1]:80\r\n" ALL,
        "POST /mcp?x=/y HTTP/1.1\r\nHost: 127.0.0.1\r\n" ALL,
        TO_MCP TOKEN JSON "Accept: */*\r\n",
        TO_MCP TOKEN JSON "Accept: application/*;q=0.1,\ttext/*\r\n",
        TO_MCP TOKEN JSON "Accept: application/json\r\nAccept: text/event-stream\r\n",
        TO_MCP TOKEN JSON "Accept: Text/Event-Stream;q=0.05 , APPLICATION/JSON; q=1\r\n",
        TO_MCP TOKEN ACCEPT "content-type: Application/JSON; charset=utf-8\r\n",
        TO_MCP ALL "Content-Encoding: identity\r\n",
        TO_MCP ALL "Origin: https://APP.example\r\n",
        "POST /mcp HTTP/1.0\r\n" ALL,
    };

    (void)state;
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        asks(heads[i], NOW, 200);
}

static void test_a_page_that_may_call_can(void **state)
{
#define PREFLIGHT "Access-Control-Request-Method: POST\r\n"
    struct client *c = dial();

    (void)state;
    put_text(c, HEAD("OPTIONS /mcp") PREFLIGHT "Origin: https://app.example\r\n\r\n");
    gets(204, "");
    has_line("access-control-allow-origin: https://app.example");
    has_line("access-control-allow-methods: POST, DELETE");
    assert_null(strstr(got.head, "content-length"));
    asks(HEAD("OPTIONS /mcp") PREFLIGHT "Origin: https://app.example\r\n", NOW, 204);
    has_line("connection: close"); /* its body is not read */
    fx.watched = c;
    post(c, TO_MCP ALL "Origin: https://app.example\r\n", NOW);
    gets(200, OK_BODY);
    has_line("access-control-allow-origin: https://app.example");
    mcp.takes = 0;
    refuses(HEAD("OPTIONS /mcp") PREFLIGHT "Origin: https://evil.example\r\n", 401);
    refuses(HEAD("OPTIONS /") PREFLIGHT "Origin: https://app.example\r\n", 401);
}

static void test_a_refusal_without_a_body_ends_nothing(void **state)
{
    struct client *c = dial();

    (void)state;
    put_text(c, HEAD("GET /mcp") TOKEN "\r\n");
    gets_status(405);
    put_text(c, HEAD("HEAD /mcp") TOKEN "\r\n");
    gets(405, "");
    put_text(c, HEAD("GET /x") "\r\n");
    gets(401, "");
    post(c, TO_MCP ALL, NOW);
    gets(200, OK_BODY);
}

/* ---- bytes ---- */

/* The same request, cut in two at every place, and then byte by byte. */
static void cut_everywhere(const char *text)
{
    struct client *c = dial();
    const size_t n = strlen(text);

    for (size_t i = 1; i < n; i++) {
        put(c, text, i);
        until(is_sent);
        pass(1);
        put(c, text + i, n - i);
        gets(200, OK_BODY);
    }
    for (size_t i = 0; i < n; i++) {
        put(c, text + i, 1);
        until(is_sent);
    }
    gets(200, OK_BODY);
    assert_int_equal(mcp.takes, n);
    assert_int_equal(c->in.len, c->at);
}

static void test_torn_requests_are_put_together(void **state)
{
    char text[512];

    (void)state;
    (void)snprintf(text, sizeof text, TO_MCP ALL "Content-Length: %zu\r\n\r\n%s", strlen(NOW), NOW);
    cut_everywhere(text);
}

static void test_torn_chunks_are_put_together(void **state)
{
    char text[512];

    (void)state;
    (void)snprintf(text, sizeof text,
                   TO_MCP ALL "Transfer-Encoding: chunked\r\n\r\n9\r\n%.9s\r\n%zx;x=y\r\n%s\r\n"
                              "0\r\nA: b\r\n\r\n",
                   NOW, strlen(NOW) - 9, NOW + 9);
    cut_everywhere(text);
}

static void test_hostile_heads_end_the_connection(void **state)
{
    static const struct {
        const char *text;
        unsigned status;
    } cases[] = {
        {"\r\n" TO_MCP ALL "\r\n", 400},
        {"\x16\x03\x01\x02", 400},
        {"POST /mcp HTTP/2.0\r\n\r\n", 400},
        {"POST  /mcp HTTP/1.1\r\n\r\n", 400},
        {TO_MCP " folded: x\r\n\r\n", 400},
        {TO_MCP "A: b\r\n folded\r\n\r\n", 400},
        {TO_MCP "A : b\r\n\r\n", 400},
        {TO_MCP "A: b\n\r\n", 400},
        {TO_MCP ALL "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
        {TO_MCP ALL "Content-Length: 1\r\nContent-Length: 1\r\n\r\nx", 400},
        {TO_MCP ALL "Content-Length: 1,1\r\n\r\nx", 400},
        {TO_MCP ALL "Transfer-Encoding: gzip, chunked\r\n\r\n", 400},
        {TO_MCP ALL "Transfer-Encoding: chunked\r\n\r\n5\nhello", 400},
        {TO_MCP ALL "Content-Length: 16777217\r\n\r\n", 413},
        {TO_MCP ALL "Content-Length: 99999999999999999999\r\n\r\n", 413},
        {TO_MCP ALL "Transfer-Encoding: chunked\r\n\r\n1000001\r\n", 413},
        {TO_MCP "Content-Length: 99999999999999999999\r\n\r\n", 401},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct client *c = dial();

        put_text(c, cases[i].text);
        put_text(c, TO_MCP ALL "Content-Length: 0\r\n\r\n"); /* is never looked at */
        gets_status(cases[i].status);
        has_line("connection: close");
        until(has_ended);
        assert_int_equal(c->in.len, c->at);
        hang_up(c);
    }
    assert_int_equal(mcp.takes, 0);
}

static void test_large_heads_are_refused(void **state)
{
    struct client *c = dial();
    char *x = filled(SP_HTTP_MAX_HEAD, 'x');

    (void)state;
    put_text(c, TO_MCP "X: ");
    put(c, x, SP_HTTP_MAX_HEAD);
    free(x);
    gets_status(431);
    until(has_ended);
}

static void test_a_body_of_16_mib_is_taken(void **state)
{
    struct client *c = dial();
    char *blanks = filled(SP_MCP_HTTP_BODY_MAX, ' ');

    (void)state;
    memcpy(blanks, NOW, strlen(NOW));
    put_head(c, TO_MCP ALL, SP_MCP_HTTP_BODY_MAX);
    put(c, blanks, SP_MCP_HTTP_BODY_MAX);
    free(blanks);
    gets(200, OK_BODY);
}

static void test_whoever_asks_first_is_told_to_go_on(void **state)
{
    struct client *c = dial();

    (void)state;
    put_head(c, TO_MCP ALL "Expect: 100-continue\r\n", strlen(NOW));
    gets(100, "");
    put_text(c, NOW);
    gets(200, OK_BODY);
    put_head(c, TO_MCP ACCEPT JSON "Expect: 100-continue\r\n", strlen(NOW));
    gets(401, ""); /* and is not told to */
    until(has_ended);
}

static void test_pipelined_requests_are_answered_in_order(void **state)
{
    struct client *c = dial();

    (void)state;
    post(c, TO_MCP ALL, CALL("now", "1"));
    post(c, TO_MCP ALL, CALL("later", "2"));
    post(c, TO_MCP ALL, CALL("now", "3"));
    put_text(c, HEAD("GET /mcp") TOKEN "\r\n");
    post(c, TO_MCP ALL, CALL("talk", "4"));
    post(c, TO_MCP ALL "Connection: Close\r\n", CALL("now", "5"));
    post(c, TO_MCP ALL, CALL("now", "6"));
    gets(200, OK_BODY);
    until(is_open);
    pass(20);
    assert_int_equal(c->in.len, c->at);
    assert_int_equal(mcp.takes, 2);
    finish_open(200, "2");
    gets(200, "2");
    gets(200, "{\"id\":3,\"result\":{}}");
    gets_status(405);
    until(is_open);
    finish_open(200, "4");
    gets_status(200);
    assert_true(got.is_chunked);
    gets(200, "{\"id\":5,\"result\":{}}");
    until(has_ended);
    assert_int_equal(mcp.takes, 5);
}

static void test_an_old_client_gets_an_end_instead_of_chunks(void **state)
{
    struct client *c = dial();

    (void)state;
    post(c, "POST /mcp HTTP/1.0\r\n" ALL, CALL("talk", "1"));
    until(is_open);
    finish_open(200, "2");
    until(has_ended);
    assert_true(sp_buf_add(&c->in, "", 1));
    assert_null(strstr(c->in.data, "chunked"));
    assert_non_null(strstr(c->in.data, "\r\n\r\nevent: message\ndata: {\"method\":\"progress\"}\n\n"
                                       "event: message\ndata: 2\n\n"));
}

static const struct CMUnitTest tests[] = {
    http_test(test_a_request_is_answered_with_json),
    http_test(test_the_status_is_the_peers),
    http_test(test_what_needs_no_answer_gets_202),
    http_test(test_a_later_answer_is_json_too),
    http_test(test_names_are_decoded),
    http_test(test_without_a_token_there_is_nothing_to_learn),
    http_test(test_every_rule_has_its_status),
    http_test(test_what_is_next_to_a_rule_is_allowed),
    http_test(test_a_page_that_may_call_can),
    http_test(test_a_refusal_without_a_body_ends_nothing),
    http_test(test_torn_requests_are_put_together),
    http_test(test_torn_chunks_are_put_together),
    http_test(test_hostile_heads_end_the_connection),
    http_test(test_large_heads_are_refused),
    http_test(test_a_body_of_16_mib_is_taken),
    http_test(test_whoever_asks_first_is_told_to_go_on),
    http_test(test_pipelined_requests_are_answered_in_order),
    http_test(test_an_old_client_gets_an_end_instead_of_chunks),
};

TEST_MAIN(tests)

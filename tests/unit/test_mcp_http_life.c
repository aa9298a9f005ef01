/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/resource.h>

#include "mcp/mcp_http.h"
#include "mcp_http_fixture.h"

#define OK_BODY "{\"id\":1,\"result\":{}}"
#define NOW     CALL("now", "1")

/* ---- streams ---- */

static void test_what_is_said_first_makes_it_a_stream(void **state)
{
    struct client *c = dial();

    (void)state;
    post(c, TO_MCP ALL, CALL("talk", "1"));
    until(is_open);
    mcp.out->send(mcp.out, SP_STR("{\"second\":2}"), 0);
    finish_open(404, "{\"third\":3}");
    gets(200, "event: message\ndata: {\"method\":\"progress\"}\n\n"
              "event: message\ndata: {\"second\":2}\n\n"
              "event: message\ndata: {\"third\":3}\n\n");
    assert_true(got.is_chunked);
    has_line("content-type: text/event-stream");
    has_line("x-accel-buffering: no");
    has_line("cache-control: no-store");
    post(c, TO_MCP ALL, NOW);
    gets(200, OK_BODY);
}

static bool has_words(void)
{
    return fx.watched->in.len != 0 &&
           memmem(fx.watched->in.data, fx.watched->in.len, "progress\"}\n\n\r\n", 13) != NULL;
}

static bool has_comment(void)
{
    return fx.watched->in.len > fx.watched->at;
}

static void test_a_quiet_stream_shows_that_it_lives(void **state)
{
    struct client *c = dial();

    (void)state;
    post(c, TO_MCP ALL, CALL("talk", "1"));
    until(has_words);
    for (int i = 0; i < 20; i++) { /* longer than anything else may last */
        c->at = c->in.len;
        ahead_ms += SP_MCP_HTTP_ALIVE_MS - 5000;
        pass(10);
        assert_int_equal(c->in.len, c->at);
        ahead_ms += 5000;
        until(has_comment);
        assert_bytes(c->in.data + c->at, c->in.len - c->at, "3\r\n:\n\n\r\n");
    }
    c->at = 0;
    finish_open(200, "2");
    gets_status(200);
}

static void test_a_request_that_waits_says_nothing(void **state)
{
    struct client *c = dial();

    (void)state;
    post(c, TO_MCP ALL, CALL("later", "1"));
    until(is_open);
    ahead_ms += 600000;
    pass(20);
    assert_int_equal(c->in.len, 0);
    assert_int_equal(mcp.gone, 0);
    finish_open(200, "1");
    gets(200, "1");
}

static void test_a_cancelled_request_ends_without_an_answer(void **state)
{
    struct client *c = dial();
    struct sp_mcp_out *out;

    (void)state;
    post(c, TO_MCP ALL, CALL("later", "1"));
    until(is_open);
    out = mcp.out;
    mcp.out = NULL;
    mcp.newest->open = NULL;
    out->cancelled(out);
    gets(200, "");
    assert_true(got.is_chunked);
    post(c, TO_MCP ALL, NOW);
    gets(200, OK_BODY);
    assert_int_equal(mcp.gone, 0);
}

/* ---- clients that leave ---- */

static void test_leaving_at_any_byte_leaves_nothing_behind(void **state)
{
    char text[512];

    (void)state;
    (void)snprintf(text, sizeof text, TO_MCP ALL "Content-Length: %zu\r\n\r\n%s", strlen(NOW), NOW);
    for (size_t i = 0; i < strlen(text); i += 3) {
        struct client *c = dial();

        put(c, text, i);
        until(is_sent);
        pass(1);
        hang_up(c);
    }
    asks(TO_MCP ALL, NOW, 200);
    assert_int_equal(mcp.takes, 1);
}

static void test_leaving_is_cancelling(void **state)
{
    struct client *c = dial();

    (void)state;
    post(c, TO_MCP ALL, CALL("later", "1"));
    until(is_open);
    hang_up(c);
    until(is_left);
    until(has_no_peers);
    assert_int_equal(mcp.held, 0);

    mcp.gone = 0;
    c = dial();
    post(c, TO_MCP ALL, CALL("talk", "1"));
    until(has_words);
    (void)shutdown(c->fd, SHUT_WR); /* it will ask nothing more: that is leaving, too */
    until(is_left);
    until(has_no_peers);
}

static void test_leaving_a_session_is_not_ending_it(void **state)
{
    char session[40];
    struct client *c;

    (void)state;
    open_session(TO_MCP ALL, session);
    c = dial();
    post(c, with_session(TO_MCP ALL, session), OLD("later", "1"));
    until(is_open);
    hang_up(c);
    until(is_left);
    pass(10);
    assert_int_equal(mcp.peers, 1);
    asks(with_session(TO_MCP ALL, session), OLD("now", "1"), 200);
}

static void test_an_answer_that_comes_with_the_break_is_lost_quietly(void **state)
{
    struct client *c = dial();
    const struct linger now = {.l_onoff = 1};

    (void)state;
    post(c, TO_MCP ALL, CALL("talk", "1"));
    until(has_words);
    (void)setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    hang_up(c); /* with a reset; the server has not seen it when it answers */
    finish_open(200, "1");
    until(has_no_peers);
    assert_int_equal(mcp.gone, 0);
}

/* ---- clients that do not read ---- */

static char *big;

static bool is_moving(void)
{
    return fx.watched->in.len > MIB;
}

static void test_whoever_does_not_read_is_not_heard(void **state)
{
    struct client *c = dial();

    (void)state;
    big = filled(8 * MIB, 'x');
    c->is_reading = false;
    post(c, TO_MCP ALL, CALL("talk", "1"));
    post(c, TO_MCP ALL, NOW);
    until(is_open);
    assert_false(mcp.out->is_full(mcp.out));
    mcp.out->send(mcp.out, (struct sp_str){big, 8 * MIB}, 0);
    assert_true(mcp.out->is_full(mcp.out));
    pass(20);
    assert_true(mcp.out->is_full(mcp.out));
    finish_open(200, "1");
    pass(20);
    assert_int_equal(mcp.takes, 1);
    c->is_reading = true;
    gets_status(200);
    assert_true(got.body.len > 8 * MIB);
    gets(200, OK_BODY);
    free(big);
}

static void test_output_that_stands_still_ends_the_connection(void **state)
{
    struct client *c = dial();

    (void)state;
    big = filled(8 * MIB, 'x');
    c->is_reading = false;
    post(c, TO_MCP ALL, CALL("talk", "1"));
    until(is_open);
    mcp.out->send(mcp.out, (struct sp_str){big, 8 * MIB}, 0);
    pass(10);
    for (int i = 0; i < 3; i++) {
        ahead_ms += 18000;
        pass(10);
        assert_int_equal(mcp.gone, 0);
    }
    c->is_reading = true;
    until(is_moving); /* so time begins anew */
    c->is_reading = false;
    pass(10);
    ahead_ms += 50000;
    pass(10);
    assert_int_equal(mcp.gone, 0);
    ahead_ms += 20000;
    until(is_left);
    until(has_no_peers);
    free(big);
}

static void test_an_answer_has_a_bound(void **state)
{
    struct client *c = dial();

    (void)state;
    big = filled(33 * MIB, 'x');
    c->is_reading = false;
    post(c, TO_MCP ALL, CALL("talk", "1"));
    until(is_open);
    mcp.out->send(mcp.out, (struct sp_str){big, 33 * MIB}, 0);
    mcp.out->send(mcp.out, (struct sp_str){big, 33 * MIB}, 0);
    mcp.out->send(mcp.out, SP_STR("1"), 0); /* nothing happens */
    until(is_left);
    until(has_no_peers);
    free(big);
}

/* ---- time ---- */

/* Before time itself has gone on by more than a moment. */
static void gets_soon(unsigned status)
{
    assert_true(comes_true(has_answer, 5000));
    assert_int_equal(got.status, status);
}

static void test_slow_requests_are_given_up(void **state)
{
    struct client *c = dial();

    (void)state;
    put_text(c, TO_MCP);
    until(is_sent);
    pass(10);
    ahead_ms += 8000;
    pass(10);
    put_text(c, "A: b\r\n"); /* a byte now and then does not help */
    pass(10);
    ahead_ms += 3000;
    gets_soon(408);
    until(has_ended);

    c = dial();
    put_head(c, TO_MCP ALL, 100);
    put_text(c, "{");
    pass(10);
    ahead_ms += 20000;
    put_text(c, " ");
    pass(10);
    assert_int_equal(c->in.len, 0);
    ahead_ms += 11000;
    gets_soon(408);
    until(has_ended);
}

static void test_idle_connections_end(void **state)
{
    struct client *c = dial();

    (void)state;
    pass(10);
    ahead_ms += 11000; /* it has never asked */
    until(has_ended);
    assert_int_equal(c->in.len, 0);

    c = dial();
    post(c, TO_MCP ALL, NOW);
    gets(200, OK_BODY);
    pass(10);
    ahead_ms += 50000;
    pass(10);
    post(c, TO_MCP ALL, NOW);
    gets(200, OK_BODY);
    pass(10);
    ahead_ms += 61000;
    until(has_ended);
    assert_int_equal(c->in.len, c->at);
}

/* ---- many ---- */

static void test_one_connection_too_many_is_told(void **state)
{
    struct client *a;
    struct client *b;

    (void)state;
    options.max_connections = 2;
    start_server();
    a = dial();
    b = dial();
    post(a, TO_MCP ALL, NOW);
    post(b, TO_MCP ALL, CALL("later", "1"));
    fx.watched = a;
    gets(200, OK_BODY);
    until(is_open);
    asks(TO_MCP ALL, NOW, 503);
    has_line("connection: close");
    hang_up(a);
    pass(50);
    asks(TO_MCP ALL, NOW, 200);
    pass(50);
    a = dial();
    post(a, TO_MCP ALL, NOW);
    gets(200, OK_BODY);
    asks(TO_MCP ALL, NOW, 503);
}

static void test_who_has_no_token_keeps_nobody_out(void **state)
{
    struct client *silent;
    struct client *refused;
    struct client *known;

    (void)state;
    options.max_connections = 3;
    start_server();
    silent = dial();
    refused = dial();
    known = dial();
    fx.watched = refused;
    put_text(refused, "GET /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n");
    gets(401, "");
    post(known, TO_MCP ALL, NOW);
    fx.watched = known;
    gets(200, OK_BODY);
    asks(TO_MCP ALL, NOW, 200); /* in the place of the first */
    fx.watched = silent;
    until(has_ended);
    asks(TO_MCP ALL, NOW, 200);
    post(known, TO_MCP ALL, NOW); /* which has shown one, and stays */
    fx.watched = known;
    gets(200, OK_BODY);
}

static void test_a_refused_connection_that_stays_keeps_nobody_out(void **state)
{
    struct client *refused;

    (void)state;
    options.max_connections = 1;
    start_server();
    refused = dial();
    put_text(refused, "GET /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    fx.watched = refused;
    gets(401, "");
    asks(TO_MCP ALL, NOW, 200); /* though the other side has not hung up */
}

static bool is_one_open(void)
{
    return mcp.peers >= 200;
}

static void test_many_connections_are_served(void **state)
{
    static int fds[200];
    struct client *last;
    char text[512];

    (void)state;
    options.max_connections = 300;
    start_server();
    (void)snprintf(text, sizeof text, TO_MCP ALL "Content-Length: %zu\r\n\r\n%s",
                   strlen(CALL("later", "1")), CALL("later", "1"));
    for (size_t i = 0; i < 200; i++) {
        last = dial();
        fds[i] = last->fd;
        assert_int_equal(send(fds[i], text, strlen(text), 0), strlen(text));
        *last = (struct client){.fd = -1};
    }
    until(is_one_open);
    asks(TO_MCP ALL, NOW, 200);
    for (size_t i = 0; i < 200; i++)
        (void)close(fds[i]);
    until(has_no_peers);
    assert_int_equal(mcp.gone, 200);
}

/* ---- the beginning and the end ---- */

static void is_refused(const char *url, const char *why)
{
    struct sp_err e = {0};

    options.url = url;
    assert_true(sp_mcp_http_new(the_mcp(), &options, &server, &e) < 0);
    if (strstr(e.msg, why) == NULL)
        fail_msg("%s is not in: %s", why, e.msg);
}

static void test_urls(void **state)
{
    static const char *const none[] = {NULL};
    static const char *const empty[] = {"x", "", NULL};

    (void)state;
    is_refused("ws://127.0.0.1:0/mcp", "is no URL");
    is_refused("http://127.0.0.1/mcp", "is no URL");
    is_refused("http://127.0.0.1:0/a b", "is no URL");
    is_refused("http://127.0.0.1:0/a?b", "is no URL");
    is_refused("http://127.0.0.1:65536/", "is no URL");
    is_refused("http://box.example:80/", "is no URL");
    is_refused("http://0.0.0.0:0/mcp", "--allow-remote");
    is_refused("http://[::]:0/mcp", "--allow-remote");
    is_refused("http://192.0.2.1:0/mcp", "--allow-remote");
    options.allows_remote = true;
    is_refused("http://192.0.2.1:0/mcp", "listen on http://192.0.2.1:0/mcp");
    options.tokens = none;
    is_refused("http://127.0.0.1:0/mcp", "at least one token");
    options.tokens = empty;
    is_refused("http://127.0.0.1:0/mcp", "token 2 is empty");
    sp_mcp_http_free(NULL);
}

static void test_the_real_url_is_known(void **state)
{
    (void)state;
    options.url = "http://localhost:0";
    start_server();
    unsigned port = 0;
    char rest[8] = "";
    assert_int_equal(sscanf(sp_mcp_http_url(server), "http://127.0.0.1:%u%7s", &port, rest), 2);
    assert_string_equal(rest, "/");
    assert_true(port != 0);
    asks(HEAD("POST /") ALL, NOW, 200);
}

static void test_a_remote_server_has_names_we_do_not_know(void **state)
{
    (void)state;
    options.url = "http://0.0.0.0:0/mcp";
    options.allows_remote = true;
    start_server();
    asks("POST /mcp HTTP/1.1\r\nHost: box.example\r\n" ALL, NOW, 200);
    asks(TO_MCP ALL "Origin: http://evil.example\r\n", NOW, 403);
}

static bool has_farewell(void)
{
    return fx.watched->has_ended;
}

static void test_the_end_of_the_server_is_told(void **state)
{
    struct client *waits = dial();
    struct client *listens;

    (void)state;
    post(waits, TO_MCP ALL, CALL("later", "1"));
    until(is_open);
    mcp.out = NULL;
    listens = dial();
    post(listens, TO_MCP ALL, CALL("listen", "2"));
    until(is_open);
    sp_mcp_http_free(server);
    server = NULL;
    assert_int_equal(mcp.peers, 0);
    assert_int_equal(mcp.held, 0);
    gets(200, "{\"farewell\":true}");
    until(has_farewell);
    fx.watched = waits;
    until(has_ended);
    assert_int_equal(waits->in.len, 0);
}

#define late_test(f) cmocka_unit_test_setup_teardown(f, http_set_up, http_tear_down)

static const struct CMUnitTest tests[] = {
    http_test(test_what_is_said_first_makes_it_a_stream),
    http_test(test_a_quiet_stream_shows_that_it_lives),
    http_test(test_a_request_that_waits_says_nothing),
    http_test(test_a_cancelled_request_ends_without_an_answer),
    http_test(test_leaving_at_any_byte_leaves_nothing_behind),
    http_test(test_leaving_is_cancelling),
    http_test(test_leaving_a_session_is_not_ending_it),
    http_test(test_an_answer_that_comes_with_the_break_is_lost_quietly),
    http_test(test_whoever_does_not_read_is_not_heard),
    http_test(test_output_that_stands_still_ends_the_connection),
    http_test(test_an_answer_has_a_bound),
    http_test(test_slow_requests_are_given_up),
    http_test(test_idle_connections_end),
    late_test(test_one_connection_too_many_is_told),
    late_test(test_who_has_no_token_keeps_nobody_out),
    late_test(test_a_refused_connection_that_stays_keeps_nobody_out),
    late_test(test_many_connections_are_served),
    late_test(test_urls),
    late_test(test_the_real_url_is_known),
    late_test(test_a_remote_server_has_names_we_do_not_know),
    http_test(test_the_end_of_the_server_is_told),
};

TEST_MAIN(tests)

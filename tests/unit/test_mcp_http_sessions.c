/* SPDX-License-Identifier: Apache-2.0 */
#include "mcp/mcp_http.h"
#include "mcp_http_fixture.h"

#define OK_BODY "{\"id\":1,\"result\":{}}"
#define NOW     CALL("now", "1")

static char session[40];

static void test_initialize_makes_a_session(void **state)
{
    (void)state;
    open_session(TO_MCP ALL, session);
    assert_int_equal(mcp.peers, 1);
    assert_int_equal(mcp.held, 0); /* nobody is there now */
    asks(with_session(TO_MCP ALL, session), OLD("now", "1"), 200);
    assert_null(strstr(got.head, "mcp-session-id"));
    asks(with_session(TO_MCP ALL, session), "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}",
         202);
    asks(with_session(TO_MCP ALL, session), "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}", 202);
    asks(with_session(TO_MCP ALL, session), "[]", 400);
    assert_int_equal(mcp.peers, 1);
    asks(TO_MCP ALL, OLD("now", "1"), 400);
    asks(TO_MCP ALL "MCP-Protocol-Version: 2025-06-18\r\n", OLD("now", "1"), 400);
    assert_non_null(strstr(got.body.data, "MCP-Session-Id is missing"));
    assert_int_equal(mcp.takes, 5);
    /* One that is modern needs none, and one whose version nobody knows is its peer's to judge. */
    asks(with_session(TO_MCP ALL, session), NOW, 200);
    asks(TO_MCP ALL "MCP-Protocol-Version: 2031-01-01\r\n", OLD("now400", "1"), 400);
    assert_int_equal(mcp.takes, 7);
    assert_int_equal(mcp.peers, 1);
}

static void test_a_session_outlives_its_caller(void **state)
{
    struct sp_mcp_caller_watch *g;
    struct client *c;

    (void)state;
    open_session(TO_MCP ALL, session);
    g = mcp.watch;
    assert_non_null(g);
    for (unsigned i = 0; i < 3; i++) {
        g->caller = NULL;
        g->ended(g);
        asks(with_session(TO_MCP ALL, session), OLD("now", "1"), 200);
        assert_ptr_equal(mcp.watch, g);
        assert_string_equal((const char *)g->caller, "token 1");
        assert_int_equal(mcp.held, 0);
    }
    c = dial();
    post(c, with_session(TO_MCP ALL, session), OLD("later", "1"));
    until(is_open);
    assert_int_equal(mcp.held, 1);
    finish_open(200, "1");
    gets(200, "1");
    assert_int_equal(mcp.held, 0);
    mcp.has_no_callers = true;
    asks(with_session(TO_MCP ALL, session), OLD("now", "2"), 404);
    mcp.has_no_callers = false;
}

static void test_a_failed_initialize_makes_none(void **state)
{
    (void)state;
    asks(TO_MCP ALL, OLD("initialize", "99"), 400);
    assert_null(strstr(got.head, "mcp-session-id"));
    assert_int_equal(mcp.peers, 0);
    assert_int_equal(mcp.held, 0);
    asks(TO_MCP ALL, CALL("initialize", "1"), 200);
    assert_null(strstr(got.head, "mcp-session-id"));
    assert_int_equal(mcp.peers, 0);
}

static void test_a_session_is_unknown_to_all_others(void **state)
{
    char twice[1024];
    char other[40];

    (void)state;
    open_session(TO_MCP ALL, session);
    open_session(TO_MCP TOKEN_2 ACCEPT JSON, other);
    assert_string_not_equal(session, other);
    asks(with_session(TO_MCP ALL, other), OLD("now", "1"), 404);
    asks(with_session(TO_MCP TOKEN_2 ACCEPT JSON, session), OLD("now", "1"), 404);
    asks(with_session(HEAD("DELETE /mcp") TOKEN_2, session), "", 404);
    asks(with_session(TO_MCP ALL, "0123456789abcdef0123456789abcdef"), OLD("now", "1"), 404);
    asks(with_session(TO_MCP ALL, ""), OLD("now", "1"), 404);
    (void)snprintf(twice, sizeof twice, "%sMCP-Session-Id: %s\r\n",
                   with_session(TO_MCP ALL, session), session);
    asks(twice, OLD("now", "1"), 400);
    session[31] ^= 1;
    asks(with_session(TO_MCP ALL, session), OLD("now", "1"), 404);
    session[31] ^= 1;
    asks(with_session(TO_MCP ALL, session), OLD("now", "1"), 200);
}

static void test_delete_ends_a_session(void **state)
{
    struct client *c = dial();

    (void)state;
    open_session(TO_MCP ALL, session);
    fx.watched = c;
    put_text(c, HEAD("DELETE /mcp") TOKEN "\r\n");
    gets_status(400);
    put_text(c, with_session(HEAD("DELETE /mcp") TOKEN, session));
    put_text(c, "\r\n");
    gets(204, "");
    assert_int_equal(mcp.peers, 0);
    assert_int_equal(mcp.held, 0);
    put_text(c, with_session(HEAD("DELETE /mcp") TOKEN, session));
    put_text(c, "\r\n");
    gets_status(404);
    asks(with_session(TO_MCP ALL, session), OLD("now", "1"), 404);
}

static void test_delete_ends_what_is_open(void **state)
{
    struct client *waits;
    struct client *streams;

    (void)state;
    open_session(TO_MCP ALL, session);
    waits = dial();
    post(waits, with_session(TO_MCP ALL, session), OLD("later", "1"));
    until(is_open);
    mcp.out = NULL;
    streams = dial();
    post(streams, with_session(TO_MCP ALL, session), OLD("talk", "2"));
    until(is_open);
    asks(with_session(HEAD("DELETE /mcp") TOKEN, session), "", 204);
    assert_int_equal(mcp.peers, 0);
    fx.watched = waits;
    gets_status(404);
    fx.watched = streams;
    gets(200, "event: message\ndata: {\"method\":\"progress\"}\n\n");
    assert_int_equal(mcp.gone, 2);
    post(streams, TO_MCP ALL, NOW);
    gets(200, OK_BODY);
}

/* Both are told in one turn: first that the call's connection broke, then that its session ends. */
static void test_delete_ends_what_has_just_broken(void **state)
{
    struct client *waits;
    struct client *deletes;
    const char *text;

    (void)state;
    open_session(TO_MCP ALL, session);
    waits = dial();
    post(waits, with_session(TO_MCP ALL, session), OLD("later", "1"));
    until(is_open);
    deletes = dial();
    post(deletes, TO_MCP ALL, NOW);
    gets(200, OK_BODY);
    hang_up(waits);
    text = with_session(HEAD("DELETE /mcp") TOKEN, session);
    assert_int_equal(send(deletes->fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
    assert_int_equal(send(deletes->fd, "\r\n", 2, MSG_NOSIGNAL), 2);
    gets(204, "");
    assert_int_equal(mcp.gone, 1);
    assert_int_equal(mcp.peers, 0);
}

static void test_unused_sessions_end(void **state)
{
    struct client *c;

    (void)state;
    open_session(TO_MCP ALL, session);
    c = dial();
    post(c, with_session(TO_MCP ALL, session), OLD("later", "1"));
    until(is_open);
    ahead_ms += SP_MCP_HTTP_SESSION_MS + 1000;
    pass(20);
    assert_int_equal(mcp.peers, 1); /* in use */
    ahead_ms += SP_MCP_HTTP_SESSION_MS / 2;
    pass(10);
    finish_open(200, "1");
    gets(200, "1");
    ahead_ms += SP_MCP_HTTP_SESSION_MS - 1000;
    pass(20);
    assert_int_equal(mcp.peers, 1);
    asks(with_session(TO_MCP ALL, session), OLD("now", "1"), 200);
    ahead_ms += SP_MCP_HTTP_SESSION_MS - 1000;
    pass(20);
    assert_int_equal(mcp.peers, 1);
    ahead_ms += SP_MCP_HTTP_SESSION_MS;
    until(has_no_peers);
    assert_int_equal(mcp.held, 0);
    asks(with_session(TO_MCP ALL, session), OLD("now", "1"), 404);
}

static void test_the_session_unused_for_longest_makes_room(void **state)
{
    char first[40];
    char second[40];
    struct client *c = NULL;

    (void)state;
    open_session(TO_MCP ALL, first);
    open_session(TO_MCP ALL, second);
    c = dial();
    for (unsigned i = 2; i < SP_MCP_HTTP_SESSIONS_MAX; i++) {
        post(c, TO_MCP ALL, INITIALIZE);
        gets_status(200);
    }
    assert_int_equal(mcp.peers, SP_MCP_HTTP_SESSIONS_MAX);
    asks(with_session(TO_MCP ALL, first), OLD("now", "1"), 200);
    open_session(TO_MCP ALL, session);
    assert_int_equal(mcp.peers, SP_MCP_HTTP_SESSIONS_MAX);
    asks(with_session(TO_MCP ALL, first), OLD("now", "1"), 200);
    asks(with_session(TO_MCP ALL, second), OLD("now", "1"), 404);
}

static void test_too_many_callers_are_told(void **state)
{
    (void)state;
    mcp.has_no_callers = true;
    asks(TO_MCP ALL, NOW, 503);
    asks(TO_MCP ALL, INITIALIZE, 503);
    mcp.has_no_callers = false;
    mcp.has_no_peers = true;
    asks(TO_MCP ALL, NOW, 503);
    asks(TO_MCP ALL, INITIALIZE, 503);
    mcp.has_no_peers = false;
    assert_int_equal(mcp.held, 0);
    asks(TO_MCP ALL, NOW, 200);
}

static const struct CMUnitTest tests[] = {
    http_test(test_initialize_makes_a_session),
    http_test(test_a_session_outlives_its_caller),
    http_test(test_a_failed_initialize_makes_none),
    http_test(test_a_session_is_unknown_to_all_others),
    http_test(test_delete_ends_a_session),
    http_test(test_delete_ends_what_is_open),
    http_test(test_delete_ends_what_has_just_broken),
    http_test(test_unused_sessions_end),
    http_test(test_the_session_unused_for_longest_makes_room),
    http_test(test_too_many_callers_are_told),
};

TEST_MAIN(tests)

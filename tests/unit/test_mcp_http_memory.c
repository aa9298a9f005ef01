/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is refused at every place: the request may fail, the server does not, and nothing is
 * left behind.
 */
#include "mcp_http_fixture.h"

static unsigned countdown; /* to the request for memory that fails; 0: none does */
static bool has_fired;

static bool is_refused(void)
{
    if (countdown == 0 || --countdown != 0)
        return false;
    has_fired = true;
    return true;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

void *__wrap_malloc(size_t n)
{
    return is_refused() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return is_refused() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return is_refused() ? NULL : __real_realloc(p, n);
}

/* A client without memory of its own. */
static char answer[4096];

static bool talk(int fd)
{
    size_t n = 0;

    for (int i = 0; i < 2000; i++) {
        struct sp_err e;
        const ssize_t part = recv(fd, answer + n, sizeof answer - 1 - n, MSG_DONTWAIT);

        if (part == 0 || (part < 0 && errno != EAGAIN))
            return false;
        if (part > 0)
            n += (size_t)part;
        answer[n] = 0;
        if (n != 0 && strstr(answer, "\r\n\r\n") != NULL &&
            (strstr(answer, "chunked") == NULL || strstr(answer, "\r\n0\r\n\r\n") != NULL))
            return true;
        assert_int_equal(sp_loop_dispatch(fx.loop, 1, &e), 0);
        if (mcp.out != NULL && i > 3)
            finish_open(200, "{\"end\":1}");
    }
    fail_msg("neither an answer nor an end");
    return false;
}

/* Each place once; the last round is one in which nothing fails. */
static void sweep(const char *head, const char *body)
{
    for (unsigned at = 1;; at++) {
        char text[1024];
        const int n = snprintf(text, sizeof text, "%sContent-Length: %zu\r\n\r\n%s", head,
                               strlen(body), body);
        struct client *c = dial();
        const int fd = c->fd;
        struct sp_err e;

        *c = (struct client){.fd = -1};
        assert_int_equal(send(fd, text, (size_t)n, 0), n);
        has_fired = false;
        countdown = at;
        const bool is_answered = talk(fd);
        countdown = 0;
        (void)close(fd);
        for (int i = 0; i < 5; i++)
            assert_int_equal(sp_loop_dispatch(fx.loop, 1, &e), 0);
        assert_null(mcp.out);
        if (!has_fired) {
            assert_true(is_answered);
            assert_memory_equal(answer, "HTTP/1.1 200", 12);
            return;
        }
    }
}

static void test_a_request_without_memory(void **state)
{
    (void)state;
    sweep(TO_MCP ALL "Mcp-Name: =?base64?aGVsbG8=?=\r\n", CALL("now", "1"));
    assert_int_equal(mcp.peers, 0);
    sweep(TO_MCP ALL, CALL("talk", "1"));
    assert_int_equal(mcp.peers, 0);
    assert_int_equal(mcp.held, 0);
}

static void test_a_session_without_memory(void **state)
{
    (void)state;
    sweep(TO_MCP ALL, INITIALIZE);
    assert_int_equal(mcp.held, 0);
}

static void test_a_server_without_memory(void **state)
{
    struct sp_err e;

    (void)state;
    for (unsigned at = 1;; at++) {
        has_fired = false;
        countdown = at;
        const int r = sp_mcp_http_new(the_mcp(), &options, &server, &e);
        countdown = 0;
        if (!has_fired) {
            assert_int_equal(r, 0);
            return;
        }
        assert_int_equal(r, -SP_E_SYSTEM);
    }
}

static int quiet_started(void **state)
{
    const int r = http_started(state);

    mcp.keeps_no_log = true;
    return r;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(test_a_request_without_memory, quiet_started, http_tear_down),
    cmocka_unit_test_setup_teardown(test_a_session_without_memory, quiet_started, http_tear_down),
    cmocka_unit_test_setup_teardown(test_a_server_without_memory, http_set_up, http_tear_down),
};

TEST_MAIN(tests)

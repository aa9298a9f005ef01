/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_http_fixture: a real HTTP server of MCP on the loop of net_fixture, the puppet behind it, and
 * clients that take whole answers apart. Time passes when a test says so.
 */
#ifndef SP_TEST_MCP_HTTP_FIXTURE_H
#define SP_TEST_MCP_HTTP_FIXTURE_H

#include <netinet/tcp.h>

#include "mcp/mcp_http.h"
#include "mcp_transport_fixture.h"

#define HEAD(start) start " HTTP/1.1\r\nHost: 127.0.0.1\r\n"
#define TOKEN       "Authorization: Bearer sesame\r\n"
#define TOKEN_2     "Authorization: Bearer open-wide\r\n"
#define ACCEPT      "Accept: application/json, text/event-stream\r\n"
#define JSON        "Content-Type: application/json\r\n"
#define MODERN      "MCP-Protocol-Version: 2026-07-28\r\n"
#define ALL         TOKEN ACCEPT JSON
#define META        "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\"}"
#define CALL(method, id) \
    "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"method\":\"" method "\",\"params\":{" META "}}"
#define OLD(method, id) "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"method\":\"" method "\"}"
#define INITIALIZE      OLD("initialize", "1")

static struct sp_mcp_http *server;
static struct sp_mcp_http_options options;

/* ---- time ---- */

static uint64_t ahead_ms; /* of the real clock */

int __real_clock_gettime(clockid_t id, struct timespec *ret);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret);

int __wrap_clock_gettime(clockid_t id, struct timespec *ret)
{
    const int r = __real_clock_gettime(id, ret);

    ret->tv_sec += (time_t)(ahead_ms / 1000);
    ret->tv_nsec += (long)(ahead_ms % 1000) * 1000000;
    if (ret->tv_nsec >= 1000000000) {
        ret->tv_nsec -= 1000000000;
        ret->tv_sec++;
    }
    return r;
}

/* ---- answers ---- */

static struct {
    unsigned status;
    char head[2048];
    struct sp_buf body; /* with its end marked */
    bool is_chunked;
} got;

/* Of the client's bytes from `at` on: where the head ends; NULL: it is not there. */
static inline const char *end_of_head(const struct client *c)
{
    return c->in.len == c->at ? NULL : memmem(c->in.data + c->at, c->in.len - c->at, "\r\n\r\n", 4);
}

/* One line of a head, case and all. */
static inline bool in_head(const char *line)
{
    char whole[256];

    (void)snprintf(whole, sizeof whole, "\r\n%s\r\n", line);
    return strstr(got.head, whole) != NULL;
}

static inline void has_line(const char *line)
{
    if (!in_head(line))
        fail_msg("%s is not in:\n%s", line, got.head);
}

/* Chunks until the last; 0: not all are there. */
static inline size_t take_chunks(const char *p, size_t n)
{
    size_t at = 0;

    for (;;) {
        size_t line = at;
        char *end;

        while (line + 1 < n && (p[line] != '\r' || p[line + 1] != '\n'))
            line++;
        if (line + 1 >= n)
            return 0;
        const size_t size = strtoul(p + at, &end, 16);
        assert_ptr_equal(end, p + line);
        at = line + 2;
        if (n - at < size + 2)
            return 0;
        assert_true(sp_buf_add(&got.body, p + at, size));
        assert_memory_equal(p + at + size, "\r\n", 2);
        at += size + 2;
        if (size == 0)
            return at;
    }
}

/* The next answer of the watched client, whole. */
static inline bool has_answer(void)
{
    struct client *c = fx.watched;
    const char *end = end_of_head(c);

    if (end == NULL)
        return false;
    const char *start = c->in.data + c->at;
    const size_t head = (size_t)(end - start) + 4;
    const size_t left = c->in.len - c->at - head;
    size_t size = 0;

    assert_true(head < sizeof got.head);
    memcpy(got.head, start, head);
    got.head[head] = 0;
    got.body.len = 0;
    assert_int_equal(sscanf(got.head, "HTTP/1.1 %u ", &got.status), 1);
    got.is_chunked = in_head("transfer-encoding: chunked");
    const char *length = strstr(got.head, "\r\ncontent-length: ");
    if (got.is_chunked) {
        size = take_chunks(start + head, left);
        if (size == 0)
            return false;
    } else if (length != NULL) {
        size = strtoul(length + 18, NULL, 10);
        if (left < size)
            return false;
        assert_true(sp_buf_add(&got.body, start + head, size));
    }
    assert_true(sp_buf_add(&got.body, "", 1));
    c->at += head + size;
    return true;
}

static inline void gets_status(unsigned status)
{
    until(has_answer);
    if (got.status != status)
        fail_msg("wanted %u, got %s%s", status, got.head, got.body.data);
}

static inline void gets(unsigned status, const char *body)
{
    gets_status(status);
    assert_string_equal(got.body.data, body);
}

/* ---- requests ---- */

static inline struct client *dial(void)
{
    const char *colon = strrchr(sp_mcp_http_url(server), ':');
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10)),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct client *c;

    for (c = fx.clients; c < fx.clients + CLIENTS; c++)
        if (c->fd >= 0 && c->has_ended && c != fx.watched) {
            (void)close(c->fd);
            sp_buf_done(&c->in);
            sp_buf_done(&c->out);
            *c = (struct client){.fd = -1};
        }
    c = connect_to((struct sockaddr *)&a, sizeof a);
    (void)setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)); /* for speed */
    return c;
}

static inline void hang_up(struct client *c)
{
    (void)close(c->fd);
    sp_buf_done(&c->in);
    sp_buf_done(&c->out);
    *c = (struct client){.fd = -1};
}

static inline void put_head(struct client *c, const char *head, size_t length)
{
    assert_true(sp_buf_printf(&c->out, "%sContent-Length: %zu\r\n\r\n", head, length));
}

static inline void post(struct client *c, const char *head, const char *body)
{
    put_head(c, head, strlen(body));
    put_text(c, body);
}

/* A connection for one request alone. */
static inline void asks(const char *head, const char *body, unsigned status)
{
    struct client *c = dial();

    post(c, head, body);
    gets_status(status);
    hang_up(c);
}

#define TO_MCP HEAD("POST /mcp")

static inline bool has_no_peers(void)
{
    return mcp.peers == 0;
}

static inline const char *with_session(const char *start, const char *id)
{
    static char head[512];

    (void)snprintf(head, sizeof head, "%sMCP-Session-Id: %s\r\n", start, id);
    return head;
}

/* A session for the token of this head. */
static inline void open_session(const char *head, char ret[40])
{
    struct client *c = dial();

    post(c, head, INITIALIZE);
    gets_status(200);
    const char *line = strstr(got.head, "\r\nmcp-session-id: ");
    assert_non_null(line);
    (void)snprintf(ret, 33, "%s", line + 18);
    assert_int_equal(strspn(ret, "0123456789abcdef"), 32);
    hang_up(c);
}

/* ---- set up and tear down ---- */

static inline void start_server(void)
{
    struct sp_err e = {0};

    if (sp_mcp_http_new(the_mcp(), &options, &server, &e) < 0)
        fail_msg("%s", e.msg);
}

static inline int http_set_up(void **state)
{
    static const char *const tokens[] = {"sesame", "open-wide", NULL};
    static const char *const origins[] = {"https://app.example", NULL};

    ahead_ms = 0;
    server = NULL;
    options = (struct sp_mcp_http_options){.url = "http://127.0.0.1:0/mcp",
                                           .tokens = tokens,
                                           .origins = origins,
                                           .max_connections = 100};
    return mcp_set_up(state);
}

static inline int http_started(void **state)
{
    if (http_set_up(state) != 0)
        return -1;
    start_server();
    return 0;
}

static inline int http_tear_down(void **state)
{
    sp_mcp_http_free(server);
    sp_buf_done(&got.body);
    return mcp_tear_down(state);
}

#define http_test(f) cmocka_unit_test_setup_teardown(f, http_started, http_tear_down)

#endif

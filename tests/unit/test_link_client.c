/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client's link: the upgrade it asks for, its masks, and what it takes from a server.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>

#include "base/auto.h"
#include "process_fixture.h"
#include "server/net/frames.h"
#include "server/net/link_open.h"

#define MIB ((size_t)1 << 20)

static char scratch[SP_INTAKE_SCRATCH + 1];

static struct fixture {
    struct sp_loop *loop;
    struct sp_link_host host;
    struct sp_link *link;
    int fd; /* the server's end */
    struct sp_buf in, out;
    struct sp_deferred pump;
    struct sp_timer tick;
    bool (*is_done)(void);
    uint64_t deadline_ms;
    bool is_late, has_ended;
    unsigned opened, failed, closed, messages;
    struct sp_buf heard;
    char why[400];
    bool is_refusal;
    int fds;
} fx;

static void on_message(void *user, char *text, size_t len)
{
    (void)user;
    fx.messages++;
    assert_true(sp_buf_add(&fx.heard, text, len));
}

static void on_nothing(void *user)
{
    (void)user;
}

static void on_closed(void *user, const char *why)
{
    (void)user;
    fx.closed++;
    fx.link = NULL;
    (void)snprintf(fx.why, sizeof fx.why, "%s", why);
}

static bool on_opened(void *user, struct sp_link *l)
{
    static const struct sp_link_ops ops = {
        .message = on_message, .not_text = on_nothing, .drained = on_nothing, .closed = on_closed};

    (void)user;
    fx.opened++;
    fx.link = l;
    sp_link_serve(l, &ops, NULL);
    return true;
}

static void on_failed(void *user, bool is_refusal, const char *why)
{
    (void)user;
    fx.failed++;
    fx.is_refusal = is_refusal;
    (void)snprintf(fx.why, sizeof fx.why, "%s", why);
}

/* ---- turning the loop ---- */

static bool move(void)
{
    static char block[1 << 18];
    bool has_moved = false;

    if (fx.out.len != 0) {
        const ssize_t n = send(fx.fd, fx.out.data, fx.out.len, MSG_DONTWAIT | MSG_NOSIGNAL);

        has_moved = n > 0;
        if (n > 0)
            sp_buf_drop(&fx.out, (size_t)n);
        else if (errno != EAGAIN)
            sp_buf_done(&fx.out);
    }
    const ssize_t n = fx.has_ended ? -1 : recv(fx.fd, block, sizeof block, MSG_DONTWAIT);
    if (n > 0)
        assert_true(sp_buf_add(&fx.in, block, (size_t)n));
    fx.has_ended = fx.has_ended || n == 0;
    return has_moved || n > 0;
}

static void pump(struct sp_deferred *d);

static void tick(struct sp_timer *t)
{
    (void)t;
    sp_loop_defer(fx.loop, &fx.pump, pump);
}

static void pump(struct sp_deferred *d)
{
    const bool has_moved = move();

    fx.is_late = test_now_ms() > fx.deadline_ms;
    if (fx.is_late || fx.is_done())
        sp_loop_stop(fx.loop);
    else if (has_moved)
        sp_loop_again(fx.loop, d, pump);
    else
        assert_true(sp_loop_timer(fx.loop, &fx.tick, sp_loop_now(fx.loop) + 1, tick));
}

static void until(bool (*is_done)(void))
{
    struct sp_err e;

    fx.is_done = is_done;
    fx.deadline_ms = test_now_ms() + DEADLINE_MS;
    sp_loop_again(fx.loop, &fx.pump, pump);
    assert_int_equal(sp_loop_run(fx.loop, &e), 0);
    assert_false(fx.is_late);
}

static bool is_told(void)
{
    return fx.opened + fx.failed != 0;
}

static bool is_closed(void)
{
    return fx.closed != 0;
}

static bool has_message(void)
{
    return fx.messages != 0;
}

static bool has_request(void)
{
    return fx.in.len > 4 && memmem(fx.in.data, fx.in.len, "\r\n\r\n", 4) != NULL;
}

static bool is_empty(void)
{
    return fx.host.total == 0;
}

/* ---- fixture ---- */

static int setup(void **state)
{
    struct sp_err e;

    (void)state;
    fx = (struct fixture){.fds = open_fds(), .fd = -1};
    assert_int_equal(sp_loop_new(&fx.loop, &e), 0);
    fx.host = (struct sp_link_host){.loop = fx.loop,
                                    .handshake_ms = 10000,
                                    .scratch = scratch,
                                    .is_client = true,
                                    .opened = on_opened,
                                    .failed = on_failed};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    while (fx.host.first != NULL)
        sp_link_end_now(fx.host.first, "the test ends");
    sp_loop_free(fx.loop);
    if (fx.fd >= 0)
        (void)close(fx.fd);
    sp_buf_done(&fx.in);
    sp_buf_done(&fx.out);
    sp_buf_done(&fx.heard);
    assert_int_equal(open_fds(), fx.fds);
    return 0;
}

static void open_link(const struct sp_upgrade *ask)
{
    struct sp_err e;
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    fx.fd = pair[0];
    assert_int_equal(sp_link_new_client(&fx.host, pair[1], ask, "peer", &e), 0);
}

static void ask(void)
{
    const struct sp_upgrade u = {.host = "host:99", .path = "/a?b", .token = "secret"};

    open_link(&u);
    until(has_request);
}

static void put_text(const char *text)
{
    assert_true(sp_buf_add(&fx.out, text, strlen(text)));
}

static void put_frame(uint8_t first, const void *payload, size_t n)
{
    char header[SP_WS_MAX_HEADER];
    const size_t size = sp_ws_write_header(header, SP_WS_TEXT, true, n, NULL);

    header[0] = (char)first;
    assert_true(sp_buf_add(&fx.out, header, size) && sp_buf_add(&fx.out, payload, n));
}

/* The 101 for the key that was sent. */
static void put_switch(const char *more)
{
    const char *key = memmem(fx.in.data, fx.in.len, "Sec-WebSocket-Key: ", 19);
    char accept[SP_WS_ACCEPT_LEN];

    assert_true(key != NULL && sp_ws_accept((struct sp_str){key + 19, 24}, accept));
    assert_true(sp_buf_printf(&fx.out,
                              "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
                              "Upgrade: websocket\r\nSec-WebSocket-Accept: %.*s\r\n%s\r\n",
                              SP_WS_ACCEPT_LEN, accept, more));
    sp_buf_drop(&fx.in, fx.in.len);
}

static void open_websocket(void)
{
    ask();
    put_switch("");
    until(is_told);
    assert_int_equal(fx.opened, 1);
}

static void say(const void *text, size_t n)
{
    char *room = sp_link_reserve(fx.link, n);

    assert_non_null(room);
    memcpy(room, text, n);
    sp_link_commit(fx.link, n);
}

/* The next frame that the client sent, unmasked; its mask in the header. */
static struct sp_ws_header take_frame(struct sp_buf *ret)
{
    struct sp_ws_header h = {0};
    const char *why = "";

    assert_int_equal(sp_ws_read_header(SP_WS_SERVER, fx.in.data, fx.in.len, &h, &why), SP_WS_OK);
    assert_true(fx.in.len >= h.size + h.len);
    const size_t at = ret->len;
    assert_true(sp_buf_add(ret, fx.in.data + h.size, h.len));
    if (h.len != 0)
        sp_ws_mask(ret->data + at, h.len, h.mask, 0);
    sp_buf_drop(&fx.in, h.size + h.len);
    return h;
}

/* ---- the upgrade ---- */

static void the_request_has_its_form(void **state)
{
    static const char begin[] = "GET /a?b HTTP/1.1\r\nHost: host:99\r\nConnection: Upgrade\r\n"
                                "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                                "Sec-WebSocket-Key: ";
    static const char end[] = "==\r\nAuthorization: Bearer secret\r\n\r\n";

    (void)state;
    ask();
    assert_int_equal(fx.in.len, sizeof begin - 1 + 22 + sizeof end - 1);
    assert_memory_equal(fx.in.data, begin, sizeof begin - 1);
    assert_memory_equal(fx.in.data + sizeof begin - 1 + 22, end, sizeof end - 1);
}

static void assert_refused(const char *answer, bool ends, const char *text)
{
    void *none = NULL;

    (void)setup(&none);
    ask();
    put_text(answer);
    if (ends) {
        while (fx.out.len != 0)
            (void)move();
        assert_int_equal(shutdown(fx.fd, SHUT_WR), 0);
    }
    until(is_told);
    assert_int_equal(fx.failed, 1);
    if (strstr(fx.why, text) == NULL)
        fail_msg("%s: %s", answer, fx.why);
    assert_int_equal(fx.is_refusal, strstr(text, "left") == NULL);
    until(is_empty);
    (void)teardown(&none);
}

static void refusals_are_told_with_the_servers_words(void **state)
{
    (void)state;
    assert_refused(
        "HTTP/1.1 401 Unauthorized\r\ncontent-length: 30\r\n\r\n"
        "invalid websocket bearer token",
        false,
        "status 401 (a token is wanted, as in URL/?token=TOKEN): invalid websocket bearer token");
    assert_refused("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", false, "status 404");
    assert_refused("HTTP/1.1 500 No\r\ncontent-length: 300\r\n\r\nev\x1bil\n", true, "500: ev il ");
    assert_refused("SSH-2.0-OpenSSH_9.2\r\n", false, "it is no HTTP server");
    assert_refused("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "
                   "websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
                   false, "not that of a WebSocket server");
    assert_refused("HTTP/1.1 101 Switching Protocols\r\n\r\n", false,
                   "not that of a WebSocket server");
    assert_refused("HTTP/1.1 200\n\r\n\r\n", false, "malformed");
    assert_refused("HTTP/1.1 1\r\n\r\n", false, "malformed");
    assert_refused("", true, "left without an answer");
    assert_refused("HTTP/1.1 10", true, "left without an answer");
}

static void an_endless_answer_is_refused(void **state)
{
    char *text = malloc(20001);

    (void)state;
    assert_non_null(text);
    memset(text, 'x', 20000);
    memcpy(text, "HTTP/1.1 101 ", 13);
    text[20000] = 0;
    ask();
    put_text(text);
    free(text);
    until(is_told);
    assert_non_null(strstr(fx.why, "longer than any"));
}

static void an_extension_nobody_offered_is_refused(void **state)
{
    (void)state;
    ask();
    put_switch("Sec-WebSocket-Extensions: permessage-deflate\r\n");
    until(is_told);
    assert_non_null(strstr(fx.why, "extension"));
}

static void frames_right_behind_the_answer_are_heard(void **state)
{
    (void)state;
    ask();
    put_switch("");
    put_frame(0x81, "hello", 5);
    until(has_message);
    assert_bytes(fx.heard.data, fx.heard.len, "hello");
}

/* ---- frames ---- */

static size_t wanted;

static bool has_bytes(void)
{
    return fx.in.len >= wanted;
}

static void every_frame_has_a_mask_of_its_own(void **state)
{
    auto_buf struct sp_buf text = {0};
    uint32_t masks[16];
    unsigned same = 0;

    (void)state;
    open_websocket();
    for (int i = 0; i < 16; i++)
        say("hello", 5);
    wanted = 16 * (6 + 5);
    until(has_bytes);
    for (int i = 0; i < 16; i++) {
        const struct sp_ws_header h = take_frame(&text);

        assert_int_equal(h.opcode, SP_WS_TEXT);
        memcpy(&masks[i], h.mask, 4);
        for (int k = 0; k < i; k++)
            same += masks[k] == masks[i];
    }
    assert_true(same <= 1);
    assert_int_equal(text.len, 80);
    assert_memory_equal(text.data + 75, "hello", 5);
}

static void a_large_message_goes_in_masked_fragments(void **state)
{
    const size_t size = 3 * MIB + 7;
    auto_buf struct sp_buf text = {0};
    auto_free char *message = malloc(size);

    (void)state;
    assert_non_null(message);
    for (size_t i = 0; i < size; i++)
        message[i] = (char)('a' + i % 23);
    open_websocket();
    say(message, size);
    wanted = size + 3 * 14 + 6;
    until(has_bytes);
    for (int i = 0; i < 4; i++) {
        const struct sp_ws_header h = take_frame(&text);

        assert_int_equal(h.opcode, i == 0 ? SP_WS_TEXT : SP_WS_CONTINUATION);
        assert_int_equal(h.is_final, i == 3);
    }
    assert_int_equal(text.len, size);
    assert_memory_equal(text.data, message, size);
}

static void a_frame_of_20_mib_is_taken(void **state)
{
    auto_free char *message = malloc(20 * MIB);

    (void)state;
    assert_non_null(message);
    memset(message, 'm', 20 * MIB);
    open_websocket();
    put_frame(0x81, message, 20 * MIB);
    until(has_message);
    assert_int_equal(fx.heard.len, 20 * MIB);
}

static void pings_get_masked_pongs(void **state)
{
    auto_buf struct sp_buf text = {0};

    (void)state;
    open_websocket();
    put_frame(0x01, "fir", 3);
    put_frame(0x89, "are you there", 13);
    put_frame(0x80, "st", 2);
    until(has_message);
    assert_bytes(fx.heard.data, fx.heard.len, "first");
    wanted = 6 + 13;
    until(has_bytes);
    assert_int_equal(take_frame(&text).opcode, SP_WS_PONG);
    assert_bytes(text.data, text.len, "are you there");
}

static void a_masked_frame_from_a_server_ends_the_link(void **state)
{
    (void)state;
    open_websocket();
    assert_true(sp_buf_add(&fx.out,
                           "\x81\x81"
                           "abcdx",
                           7));
    until(is_closed);
    assert_string_equal(fx.why, "masked frame from a server");
}

static void a_close_is_answered_with_a_masked_one(void **state)
{
    auto_buf struct sp_buf text = {0};

    (void)state;
    open_websocket();
    put_frame(0x88, "\x03\xe8", 2);
    until(is_closed);
    wanted = 8;
    until(has_bytes);
    assert_int_equal(take_frame(&text).opcode, SP_WS_CLOSE);
    assert_bytes(text.data, text.len, "\x03\xe8");
}

/* ---- lines ---- */

static void lines_begin_at_once(void **state)
{
    (void)state;
    open_link(NULL);
    assert_int_equal(fx.opened, 1);
    say("{}", 2);
    put_text("HELLO\n");
    until(has_message);
    assert_bytes(fx.heard.data, fx.heard.len, "HELLO");
    wanted = 3;
    until(has_bytes);
    assert_bytes(fx.in.data, fx.in.len, "{}\n");
}

static void half_a_line_at_the_end_is_no_message(void **state)
{
    (void)state;
    open_link(NULL);
    put_text("whole\nhal");
    until(has_message);
    (void)shutdown(fx.fd, SHUT_WR);
    until(is_closed);
    assert_bytes(fx.heard.data, fx.heard.len, "whole");
}

/* A guest may not die of a reader that left, nor lose a signal that was pending. */
static void a_broken_pipe_is_no_signal(void **state)
{
    struct sp_err e;
    int to[2];
    int from[2];

    (void)state;
    assert_int_equal(pipe2(to, O_CLOEXEC), 0);
    assert_int_equal(pipe2(from, O_CLOEXEC), 0);
    assert_int_not_equal(signal(SIGPIPE, SIG_DFL), SIG_ERR);
    assert_int_equal(sp_link_new_pair(&fx.host, from[0], to[1], "pair", &e), 0);
    (void)close(to[0]);
    say("hello", 5);
    until(is_closed);
    assert_string_equal(fx.why, "the peer is gone");
    sigset_t now;
    assert_int_equal(sigpending(&now), 0);
    assert_int_equal(sigismember(&now, SIGPIPE), 0);
    until(is_empty);
    (void)close(to[1]);
    (void)close(from[0]);
    (void)close(from[1]);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

static const struct CMUnitTest tests[] = {
    CASE(the_request_has_its_form),
    cmocka_unit_test(refusals_are_told_with_the_servers_words),
    CASE(an_endless_answer_is_refused),
    CASE(an_extension_nobody_offered_is_refused),
    CASE(frames_right_behind_the_answer_are_heard),
    CASE(every_frame_has_a_mask_of_its_own),
    CASE(a_large_message_goes_in_masked_fragments),
    CASE(a_frame_of_20_mib_is_taken),
    CASE(pings_get_masked_pongs),
    CASE(a_masked_frame_from_a_server_ends_the_link),
    CASE(a_close_is_answered_with_a_masked_one),
    CASE(lines_begin_at_once),
    CASE(half_a_line_at_the_end_is_no_message),
    CASE(a_broken_pipe_is_no_signal),
};

TEST_MAIN(tests)

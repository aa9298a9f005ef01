/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bounds of a link: what it does when the peer is too slow, too fast, or silent.
 */
#include "net_fixture.h"

static bool has_drained(void)
{
    return fx.drains != 0;
}

static void test_full_link_says_when_it_has_drained(void **state)
{
    struct client *c = connect_websocket();
    char *text = filled(10000, 'x');
    unsigned sent = 0;

    (void)state;
    c->is_reading = false;
    for (int rounds = 0; rounds < 1000 && !sp_link_is_full(fx.link); rounds++) {
        for (; !sp_link_is_full(fx.link); sent++)
            say(fx.link, text, 10000);
        pass(0); /* the kernel may still take some */
    }
    assert_true(sp_link_is_full(fx.link));
    assert_true(sp_link_queued(fx.link) < SP_LINK_FULL + 10010);
    pass(50);
    assert_int_equal(fx.drains, 0);

    c->is_reading = true;
    until(has_drained);
    assert_false(sp_link_is_full(fx.link));
    for (const char *p = ""; sent > 0; sent--)
        assert_int_equal(expect_frame(c, SP_WS_TEXT, &p).len, 10000);
    assert_int_equal(fx.drains, 1);
    free(text);
}

/* Pings without end, and nobody reads the pongs. */
static void test_flood_of_pings_fills_no_memory(void **state)
{
    struct client *c = connect_websocket();
    size_t most = 0;
    const char *p = "";
    struct sp_ws_header h;
    char payload[SP_WS_MAX_CONTROL];

    (void)state;
    c->is_reading = false;
    memset(payload, 'p', sizeof payload);
    for (int i = 0; i < 200; i++) {
        for (int k = 0; k < 500; k++)
            put_frame(c, 0x89, payload, sizeof payload);
        until(is_sent);
        most = sp_link_queued(fx.link) > most ? sp_link_queued(fx.link) : most;
    }
    assert_true(sp_link_is_full(fx.link)); /* else this test tests nothing */
    assert_true(most <= SP_LINK_FULL + 200);
    PUT_FRAME(c, 0x89, "the newest");
    until(is_sent);
    pass(20);
    c->is_reading = true;
    do
        h = expect_frame(c, SP_WS_PONG, &p);
    while (h.len == SP_WS_MAX_CONTROL);
    assert_int_equal(h.len, 10);
    assert_memory_equal(p, "the newest", 10);
    assert_int_equal(fx.closes, 0);
}

static void test_pause_holds_messages_back_and_loses_none(void **state)
{
    struct client *c = connect_websocket();
    char *text = filled(50000, 'x');
    const char *p = "";

    (void)state;
    fx.keeps_quiet = true;
    sp_link_pause(fx.link, true);
    PUT_FRAME(c, 0x89, ""); /* control frames in front are still answered */
    for (int i = 0; i < 400; i++)
        put_frame(c, 0x81, text, 50000);
    pass(100);
    assert_int_equal(fx.messages, 0);
    (void)expect_frame(c, SP_WS_PONG, &p);
    assert_true(sp_intake_size(&fx.link->intake) <= (size_t)256 << 10);
    assert_true(c->out.len > MIB); /* the kernel's buffers are full: the client waits */
    sp_link_pause(fx.link, false);
    until_messages(400);
    free(text);
}

static void test_idle_link_gives_its_buffers_back(void **state)
{
    struct client *c = connect_websocket();
    char *text = filled(MIB / 2, 'x');

    (void)state;
    fx.echoes = true;
    fx.keeps_quiet = true;
    put_frame(c, 0x81, text, MIB / 2);
    until_messages(1);
    free(text);
    pass(2500);
    assert_null(fx.link->intake.data);
    assert_null(fx.link->outq.data);
    assert_true(sizeof *fx.link <= 1024);
}

static void test_small_message_leaves_no_input_buffer(void **state)
{
    struct client *c = connect_websocket();

    (void)state;
    PUT_FRAME(c, 0x81, "small");
    until_messages(1);
    assert_null(fx.link->intake.data);
}

static int set_up_hurried(void **state)
{
    if (set_up(state) != 0)
        return -1;
    fx.o.ping_every_ms = 50;
    fx.o.silence_ms = 1000;
    fx.o.handshake_ms = 1000;
    listen_at("ws://127.0.0.1:0");
    return 0;
}

static void test_silent_peer_is_pinged_and_then_dropped(void **state)
{
    const uint64_t began = test_now_ms(); /* before: on a busy machine connecting takes long */
    struct client *c = connect_websocket();
    const char *p = "";

    (void)state;
    assert_int_equal(expect_frame(c, SP_WS_PING, &p).len, 0);
    assert_true(test_now_ms() - began >= 30);
    until(is_closed);
    assert_true(test_now_ms() - began >= 900);
    assert_string_equal(fx.why, "no sign of life");
}

static void test_peer_that_answers_pings_stays(void **state)
{
    struct client *c = connect_websocket();
    const char *p = "";

    (void)state;
    for (int i = 0; i < 30; i++) {
        (void)expect_frame(c, SP_WS_PING, &p);
        PUT_FRAME(c, 0x8A, "");
    }
    assert_int_equal(fx.closes, 0);
}

static void test_slow_handshake_is_cut_off(void **state)
{
    struct client *c = connect_client();
    const uint64_t began = test_now_ms();

    (void)state;
    for (const char *p = "GET / HTTP/1.1\r\n"; *p != 0 && !c->has_ended; p++) {
        put(c, p, 1);
        pass(80);
    }
    until(has_ended);
    assert_true(test_now_ms() - began >= 900);
    assert_int_equal(c->in.len, 0);
}

static void test_challenged_peer_that_is_silent_is_dropped(void **state)
{
    struct client *c = connect_websocket();
    const uint64_t began = test_now_ms();
    const char *p = "";

    (void)state;
    sp_link_challenge(fx.link);
    (void)expect_frame(c, SP_WS_PING, &p);
    sp_link_challenge(fx.link); /* asking again wins no time */
    until(is_closed);
    assert_true(test_now_ms() - began >= 1500);
    assert_string_equal(fx.why, "no sign of life");
}

static void test_challenged_peer_that_answers_stays(void **state)
{
    struct client *c = connect_websocket();
    const char *p = "";

    (void)state;
    sp_link_challenge(fx.link);
    (void)expect_frame(c, SP_WS_PING, &p);
    PUT_FRAME(c, 0x8A, "");
    pass(2300);
    assert_int_equal(fx.closes, 0);
}

/* More than a paused link reads ahead. */
static void hold_back(struct client *c)
{
    char *text = filled(50000, 'x');

    fx.keeps_quiet = true;
    sp_link_pause(fx.link, true);
    for (int i = 0; i < 20; i++)
        put_frame(c, 0x81, text, 50000);
    free(text);
    pass(50);
    assert_true(fx.link->is_held_back);
}

static void test_challenged_peer_that_is_held_back_stays(void **state)
{
    struct client *c = connect_websocket();
    const char *p = "";

    (void)state;
    hold_back(c);
    sp_link_challenge(fx.link);
    (void)expect_frame(c, SP_WS_PING, &p);
    PUT_FRAME(c, 0x8A, "");
    pass(4300); /* twice as long as a peer may be silent */
    assert_int_equal(fx.closes, 0);
    assert_int_equal(fx.messages, 0);
    sp_link_pause(fx.link, false);
    until_messages(20);
    pass(2300);
    assert_int_equal(fx.closes, 0);
}

static void test_challenged_peer_that_is_held_back_and_dead_is_dropped(void **state)
{
    struct client *c = connect_websocket();
    char *text = filled(16 * MIB, 'x');

    (void)state;
    c->is_reading = false;
    say(fx.link, text, 16 * MIB);
    free(text);
    hold_back(c);
    sp_link_challenge(fx.link);
    until(is_closed);
    assert_string_equal(fx.why, "no sign of life");
}

/* The reader asks for nothing: the link must not wait for it longer than it said. */
static void test_close_gives_up_on_a_peer_that_does_not_read(void **state)
{
    struct client *c = connect_websocket();
    char *text = filled(16 * MIB, 'x');

    (void)state;
    c->is_reading = false;
    say(fx.link, text, 16 * MIB);
    free(text);
    pass(1); /* the deadline counts from the loop's clock, which a turn sets */
    const uint64_t began = test_now_ms();
    sp_link_close(fx.link, "enough");
    until(is_closed);
    assert_true(test_now_ms() - began >= 1500);
}

#define WS(test)      cmocka_unit_test_setup_teardown(test, set_up_ws, tear_down)
#define HURRIED(test) cmocka_unit_test_setup_teardown(test, set_up_hurried, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WS(test_close_gives_up_on_a_peer_that_does_not_read),
        WS(test_full_link_says_when_it_has_drained),
        WS(test_flood_of_pings_fills_no_memory),
        WS(test_pause_holds_messages_back_and_loses_none),
        WS(test_idle_link_gives_its_buffers_back),
        WS(test_small_message_leaves_no_input_buffer),
        HURRIED(test_silent_peer_is_pinged_and_then_dropped),
        HURRIED(test_peer_that_answers_pings_stays),
        HURRIED(test_slow_handshake_is_cut_off),
        WS(test_challenged_peer_that_is_silent_is_dropped),
        WS(test_challenged_peer_that_answers_stays),
        WS(test_challenged_peer_that_is_held_back_stays),
        WS(test_challenged_peer_that_is_held_back_and_dead_is_dropped),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

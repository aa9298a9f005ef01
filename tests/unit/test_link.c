/* SPDX-License-Identifier: Apache-2.0 */
#include "net_fixture.h"
#include "server/net/link.h"

static void expect_close(struct client *c, unsigned status)
{
    const char *p = "";
    const struct sp_ws_header h = expect_frame(c, SP_WS_CLOSE, &p);

    assert_int_equal(h.len, status == 0 ? 0 : 2);
    if (status != 0)
        assert_int_equal((uint8_t)p[0] << 8 | (uint8_t)p[1], status);
    until(has_ended);
    assert_int_equal(c->at, c->in.len); /* its last word */
}

/* ---- messages ---- */

static void test_message_is_heard_and_answered(void **state)
{
    struct client *c = connect_websocket();

    (void)state;
    fx.echoes = true;
    PUT_FRAME(c, 0x81, "hello");
    expect_text(c, "hello");
    assert_heard("hello\n");
    assert_memory_equal(sp_link_peer(fx.link), "127.0.0.1:", 10);
    assert_int_equal(sp_link_kind(fx.link), SP_LINK_WEBSOCKET);
}

static void test_bytes_right_behind_the_upgrade_are_frames(void **state)
{
    struct client *c = connect_client();

    (void)state;
    fx.echoes = true;
    put_text(c, UPGRADE);
    PUT_FRAME(c, 0x81, "early");
    PUT_FRAME(c, 0x81, "bird");
    until(has_switched);
    c->at = sizeof SWITCHED - 1;
    expect_text(c, "early");
    expect_text(c, "bird");
}

static void test_bytes_one_by_one_are_the_same_message(void **state)
{
    struct client *c = connect_client();
    struct sp_buf all = {0};

    (void)state;
    put_text(c, UPGRADE);
    PUT_FRAME(c, 0x01, "sl");
    PUT_FRAME(c, 0x89, "?");
    PUT_FRAME(c, 0x80, "ow");
    PUT_FRAME(c, 0x82, "er");
    all = c->out;
    c->out = (struct sp_buf){0};
    for (size_t i = 0; i < all.len; i++) {
        put(c, all.data + i, 1);
        until(is_sent);
        pass(0);
    }
    sp_buf_done(&all);
    until_messages(2);
    assert_heard("slow\ner\n");
}

static void test_pings_inside_a_fragmented_message_are_answered_first(void **state)
{
    struct client *c = connect_websocket();
    const char *p = "";

    (void)state;
    fx.echoes = true;
    PUT_FRAME(c, 0x01, "one ");
    PUT_FRAME(c, 0x89, "are you there");
    PUT_FRAME(c, 0x00, "two ");
    PUT_FRAME(c, 0x8A, "unasked");
    PUT_FRAME(c, 0x80, "three");
    assert_int_equal(expect_frame(c, SP_WS_PONG, &p).len, 13);
    assert_memory_equal(p, "are you there", 13);
    expect_text(c, "one two three");
}

static void test_many_messages_in_one_packet_are_all_heard(void **state)
{
    struct client *c = connect_websocket();
    struct sp_buf want = {0};

    (void)state;
    for (int i = 0; i < 1000; i++) {
        char text[16];
        const int n = snprintf(text, sizeof text, "m%d", i);

        put_frame(c, 0x81, text, (size_t)n);
        assert_true(sp_buf_printf(&want, "%s\n", text));
    }
    until_messages(1000);
    assert_int_equal(fx.heard.len, want.len);
    assert_memory_equal(fx.heard.data, want.data, want.len);
    sp_buf_done(&want);
}

static void test_binary_that_is_not_text_leaves_the_link_alive(void **state)
{
    struct client *c = connect_websocket();

    (void)state;
    PUT_FRAME(c, 0x82, "\xFF\xFE");
    PUT_FRAME(c, 0x82, "text after all");
    until_messages(1);
    assert_int_equal(fx.not_texts, 1);
    assert_heard("text after all\n");
}

static void test_large_message_is_sent_in_fragments(void **state)
{
    struct client *c = connect_websocket();
    const size_t n = 5 * MIB / 2;
    char *text = filled(n, 'x');
    const char *p = "";

    (void)state;
    text[MIB] = 'y';
    say(fx.link, text, n);
    say(fx.link, "next", 4);
    assert_false(expect_frame(c, SP_WS_TEXT, &p).is_final);
    assert_true(p[0] == 'x' && p[MIB - 1] == 'x');
    const struct sp_ws_header second = expect_frame(c, SP_WS_CONTINUATION, &p);
    assert_true(!second.is_final && second.len == MIB && p[0] == 'y');
    const struct sp_ws_header last = expect_frame(c, SP_WS_CONTINUATION, &p);
    assert_true(last.is_final && last.len == MIB / 2);
    expect_text(c, "next");
    free(text);
}

static void test_reserved_room_may_stay_unused(void **state)
{
    struct client *c = connect_websocket();

    (void)state;
    assert_non_null(sp_link_reserve(fx.link, 1000));
    sp_link_commit(fx.link, 0);
    char *room = sp_link_reserve(fx.link, 70000);
    assert_non_null(room);
    (void)mempcpy(room, "short", 5);
    sp_link_commit(fx.link, 5);
    expect_text(c, "short");
}

/* ---- what ends a link ---- */

static void ends_with(const char *frame, size_t n, unsigned status, const char *why)
{
    struct client *c = connect_websocket();

    put(c, frame, n);
    expect_close(c, status);
    assert_int_equal(fx.closes, 1);
    assert_int_equal(fx.messages, 0);
    assert_string_equal(fx.why, why);
}

#define ENDS_WITH(literal, status, why) ends_with(literal, sizeof(literal) - 1, status, why)

static void test_unmasked_frame_ends_the_link(void **state)
{
    (void)state;
    ENDS_WITH("\x81\x02hi", 1002, "frame without a mask");
}

static void test_reserved_opcode_ends_the_link(void **state)
{
    (void)state;
    ENDS_WITH("\x83\x80\0\0\0\0", 1002, "frame with a reserved opcode");
}

static void test_reserved_bits_end_the_link(void **state)
{
    (void)state;
    ENDS_WITH("\xC1\x80\0\0\0\0", 1002, "frame with reserved bits set");
}

static void test_fragmented_control_frame_ends_the_link(void **state)
{
    (void)state;
    ENDS_WITH("\x09\x80\0\0\0\0", 1002, "fragmented control frame");
}

static void test_frame_of_16_mib_and_a_byte_ends_the_link(void **state)
{
    (void)state;
    ENDS_WITH("\x82\xFF\0\0\0\0\x01\0\0\x01\0\0\0\0", 1009, "frame above the size limit");
}

static void test_frame_of_16_mib_is_heard(void **state)
{
    struct client *c = connect_websocket();
    char *text = filled(16 * MIB, 'x');

    (void)state;
    put_frame(c, 0x81, text, 16 * MIB);
    put_frame(c, 0x81, "after", 5);
    until_messages(2);
    assert_int_equal(fx.heard.len, 16 * MIB + 1 + 6);
    assert_memory_equal(fx.heard.data, text, 16 * MIB);
    free(text);
}

/* Four fragments of 16 MiB are the limit; they pass, or one byte more ends the link. */
static void send_64_mib(struct client *c, bool and_a_byte)
{
    char *text = filled(16 * MIB, 'x');

    fx.keeps_quiet = true;
    for (int i = 0; i < 4; i++) {
        const bool is_last = i == 3 && !and_a_byte;

        put_frame(c, (uint8_t)((i == 0 ? 1 : 0) | (is_last ? 0x80 : 0)), text, 16 * MIB);
        until(is_sent);
    }
    free(text);
    if (and_a_byte)
        PUT_FRAME(c, 0x80, "x");
}

static void test_message_of_64_mib_is_heard(void **state)
{
    struct client *c = connect_websocket();

    (void)state;
    send_64_mib(c, false);
    until_messages(1);
}

static void test_message_of_64_mib_and_a_byte_ends_the_link(void **state)
{
    struct client *c = connect_websocket();

    (void)state;
    send_64_mib(c, true);
    expect_close(c, 1009);
    assert_int_equal(fx.messages, 0);
    assert_string_equal(fx.why, "message above the size limit");
}

static void test_text_is_judged_over_fragments(void **state)
{
    struct client *c = connect_websocket();

    (void)state;
    PUT_FRAME(c, 0x01, "\xE2\x82");
    PUT_FRAME(c, 0x80, "\xAC");
    until_messages(1);
    assert_heard("\xE2\x82\xAC\n");
    PUT_FRAME(c, 0x01, "\xE2\x82");
    PUT_FRAME(c, 0x80, "\x28");
    expect_close(c, 1007);
    assert_string_equal(fx.why, "text message that is not UTF-8");
}

static void test_close_frame_is_answered_with_its_status(void **state)
{
    struct client *c = connect_websocket();

    (void)state;
    PUT_FRAME(c, 0x88,
              "\x0F\xA1"
              "bye");
    PUT_FRAME(c, 0x81, "too late");
    expect_close(c, 4001);
    assert_int_equal(fx.messages, 0);
    assert_string_equal(fx.why, "closed by the peer");
}

static void test_empty_close_frame_is_answered_with_an_empty_one(void **state)
{
    struct client *c = connect_websocket();

    (void)state;
    PUT_FRAME(c, 0x88, "");
    expect_close(c, 0);
}

static void test_our_close_comes_behind_what_was_queued(void **state)
{
    struct client *c = connect_websocket();

    (void)state;
    say(fx.link, "last words", 10);
    sp_link_close(fx.link, "enough");
    assert_null(sp_link_reserve(fx.link, 10));
    sp_link_commit(fx.link, 0);
    PUT_FRAME(c, 0x81, "dropped");
    expect_text(c, "last words");
    expect_close(c, 1000);
    assert_int_equal(fx.messages, 0);
    assert_string_equal(fx.why, "enough");
}

static void test_vanished_peer_is_noticed(void **state)
{
    struct client *c = connect_websocket();

    (void)state;
    (void)shutdown(c->fd, SHUT_RDWR);
    until(is_closed);
    assert_string_equal(fx.why, "closed by the peer");
}

static void test_vanished_peer_is_noticed_while_paused(void **state)
{
    struct client *c = connect_websocket();

    (void)state;
    sp_link_pause(fx.link, true);
    PUT_FRAME(c, 0x81, "waits");
    until(is_sent);
    (void)shutdown(c->fd, SHUT_RDWR);
    until(is_closed);
    assert_int_equal(fx.messages, 0);
}

static void test_stopping_server_says_that_it_goes_away(void **state)
{
    struct client *c = connect_websocket();
    const char *p = "";

    (void)state;
    say(fx.link, "queued", 6);
    sp_listener_free(fx.listener);
    fx.listener = NULL;
    assert_int_equal(fx.closes, 1);
    expect_text(c, "queued");
    assert_int_equal(expect_frame(c, SP_WS_CLOSE, &p).len, 2);
    assert_int_equal((uint8_t)p[1], 1001 & 0xFF);
    until(has_ended);
}

#define WS(test) cmocka_unit_test_setup_teardown(test, set_up_ws, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WS(test_message_is_heard_and_answered),
        WS(test_bytes_right_behind_the_upgrade_are_frames),
        WS(test_bytes_one_by_one_are_the_same_message),
        WS(test_pings_inside_a_fragmented_message_are_answered_first),
        WS(test_many_messages_in_one_packet_are_all_heard),
        WS(test_binary_that_is_not_text_leaves_the_link_alive),
        WS(test_large_message_is_sent_in_fragments),
        WS(test_reserved_room_may_stay_unused),
        WS(test_unmasked_frame_ends_the_link),
        WS(test_reserved_opcode_ends_the_link),
        WS(test_reserved_bits_end_the_link),
        WS(test_fragmented_control_frame_ends_the_link),
        WS(test_frame_of_16_mib_and_a_byte_ends_the_link),
        WS(test_frame_of_16_mib_is_heard),
        WS(test_message_of_64_mib_is_heard),
        WS(test_message_of_64_mib_and_a_byte_ends_the_link),
        WS(test_text_is_judged_over_fragments),
        WS(test_close_frame_is_answered_with_its_status),
        WS(test_empty_close_frame_is_answered_with_an_empty_one),
        WS(test_our_close_comes_behind_what_was_queued),
        WS(test_vanished_peer_is_noticed),
        WS(test_vanished_peer_is_noticed_while_paused),
        WS(test_stopping_server_says_that_it_goes_away),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

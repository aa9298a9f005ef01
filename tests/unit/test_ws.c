/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/buf.h"
#include "server/net/frames.h"
#include "test.h"

/* ---- frame headers ---- */

static void refuses(enum sp_ws_role role, const char *bytes, size_t n, const char *want)
{
    struct sp_ws_header h;
    const char *why = "";

    assert_int_equal(sp_ws_read_header(role, bytes, n, &h, &why), SP_WS_BAD);
    assert_string_equal(why, want);
}

#define REFUSES(role, literal, want) refuses(role, literal, sizeof(literal) - 1, want)

static void test_forbidden_headers_are_refused_on_their_first_bytes(void **state)
{
    (void)state;
    REFUSES(SP_WS_SERVER, "\x81\x05", "frame without a mask");
    REFUSES(SP_WS_CLIENT, "\x81\x85", "masked frame from a server");
    REFUSES(SP_WS_SERVER, "\xC1\x85", "frame with reserved bits set");
    REFUSES(SP_WS_SERVER, "\xA1\x85", "frame with reserved bits set");
    REFUSES(SP_WS_SERVER, "\x91\x85", "frame with reserved bits set");
    for (char op = 3; op < 16; op++) {
        const char bytes[2] = {(char)(0x80 | op), (char)0x80};

        if (op < 8 || op > 10)
            refuses(SP_WS_SERVER, bytes, 2, "frame with a reserved opcode");
    }
    REFUSES(SP_WS_SERVER, "\x09\x80", "fragmented control frame");
    REFUSES(SP_WS_SERVER, "\x89\xFE", "control frame above 125 bytes");
    REFUSES(SP_WS_SERVER, "\x88\xFF", "control frame above 125 bytes");
}

static void test_lengths_have_one_form(void **state)
{
    (void)state;
    REFUSES(SP_WS_CLIENT, "\x81\x7E\x00\x7D", "frame length not in its shortest form");
    REFUSES(SP_WS_CLIENT, "\x81\x7F\0\0\0\0\0\0\xFF\xFF", "frame length not in its shortest form");
    REFUSES(SP_WS_CLIENT, "\x81\x7F\x80\0\0\0\0\0\0\0", "frame length with its top bit set");
}

static void test_header_is_read_as_it_was_written(void **state)
{
    static const uint64_t lens[] = {0, 1, 125, 126, 127, 65535, 65536, 1U << 24, UINT64_MAX >> 1};
    static const uint8_t mask[4] = {1, 2, 3, 4};

    (void)state;
    for (size_t i = 0; i < sizeof lens / sizeof lens[0]; i++)
        for (int is_masked = 0; is_masked < 2; is_masked++) {
            const enum sp_ws_role reader = is_masked ? SP_WS_SERVER : SP_WS_CLIENT;
            char bytes[SP_WS_MAX_HEADER];
            struct sp_ws_header h;
            const char *why = "";
            const size_t n =
                sp_ws_write_header(bytes, SP_WS_BINARY, false, lens[i], is_masked ? mask : NULL);

            assert_int_equal(n, sp_ws_header_size(lens[i], is_masked));
            for (size_t part = 0; part < n; part++)
                assert_int_equal(sp_ws_read_header(reader, bytes, part, &h, &why), SP_WS_MORE);
            assert_int_equal(sp_ws_read_header(reader, bytes, n, &h, &why), SP_WS_OK);
            assert_true(h.len == lens[i] && h.size == n && h.opcode == SP_WS_BINARY);
            assert_false(h.is_final);
            assert_memory_equal(h.mask, is_masked ? mask : (const uint8_t[4]){0}, 4);
        }
}

static void test_mask_is_the_same_at_any_offset_and_length(void **state)
{
    static const uint8_t mask[4] = {0xDE, 0xAD, 0xBE, 0xEF};

    (void)state;
    for (size_t n = 0; n < 130; n++)
        for (size_t at = 0; at < 5; at++) {
            uint8_t bytes[160];

            for (size_t i = 0; i < sizeof bytes; i++)
                bytes[i] = (uint8_t)i;
            sp_ws_mask(bytes + 3, n, mask, at);
            for (size_t i = 0; i < sizeof bytes; i++) {
                const bool inside = i >= 3 && i < 3 + n;

                assert_int_equal(bytes[i], (uint8_t)i ^ (inside ? mask[(i - 3 + at) & 3] : 0));
            }
        }
}

static void test_accept_key_is_the_one_of_the_rfc(void **state)
{
    char key[SP_WS_ACCEPT_LEN];
    char endless[1000];

    (void)state;
    assert_true(sp_ws_accept(SP_STR("dGhlIHNhbXBsZSBub25jZQ=="), key));
    assert_memory_equal(key, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", SP_WS_ACCEPT_LEN);
    memset(endless, 'A', sizeof endless);
    assert_false(sp_ws_accept((struct sp_str){endless, sizeof endless}, key));
}

/* ---- intake: what the frames say, as letters ---- */

static char scratch[SP_INTAKE_SCRATCH + 1];

/* M(text) N P(payload) O(payload) C(payload) B(why) */
static void tell(struct sp_buf *story, enum sp_intake_what what, const struct sp_intake_event *ev)
{
    static const char letter[] = "??MNPOCB";

    (void)sp_buf_printf(story, "%c(%.*s)", letter[what], what == SP_INTAKE_BAD ? 60 : (int)ev->len,
                        what == SP_INTAKE_BAD ? ev->why
                        : ev->text == NULL    ? ""
                                              : ev->text);
}

/* Feeds n bytes in steps; true: the stream is still good. */
static bool feed(struct sp_intake *in, const char *bytes, size_t n, size_t step,
                 struct sp_buf *story)
{
    struct sp_intake_event ev;
    enum sp_intake_what what = SP_INTAKE_MORE;

    for (size_t at = 0; at < n && what != SP_INTAKE_BAD;) {
        size_t room;
        char *to = sp_intake_room(in, scratch, &room);

        assert_non_null(to);
        room = room < step ? room : step;
        room = room < n - at ? room : n - at;
        memcpy(to, bytes + at, room);
        sp_intake_added(in, room);
        at += room;
        while ((what = sp_intake_next(in, true, &ev)) > SP_INTAKE_HELD) {
            tell(story, what, &ev);
            if (what == SP_INTAKE_MESSAGE)
                ev.text[ev.len] = '!'; /* allowed */
            if (what == SP_INTAKE_BAD)
                break;
        }
        assert_true(sp_intake_settle(in));
    }
    return what != SP_INTAKE_BAD;
}

static void story_is(enum sp_ws_role role, enum sp_intake_mode mode, const char *bytes, size_t n,
                     const char *want)
{
    for (size_t step = 1; step <= n + 1; step += n < 100 ? 1 : n / 7) {
        struct sp_buf story = {0};
        struct sp_intake in;

        in = (struct sp_intake){.role = (uint8_t)role, .max_frame = 1000, .max_message = 2000};
        in.mode = (uint8_t)mode;
        (void)feed(&in, bytes, n, step, &story);
        sp_intake_done(&in);
        assert_true(sp_buf_add(&story, "", 1));
        assert_string_equal(story.data, want);
        sp_buf_done(&story);
    }
}

#define FRAMES_TELL(literal, want) \
    story_is(SP_WS_CLIENT, SP_INTAKE_FRAMES, literal, sizeof(literal) - 1, want)
#define LINES_TELL(literal, want) \
    story_is(SP_WS_CLIENT, SP_INTAKE_LINES, literal, sizeof(literal) - 1, want)

static void test_frames_tell_the_same_story_in_any_pieces(void **state)
{
    (void)state;
    FRAMES_TELL("\x81\x02hi\x82\x03you", "M(hi)M(you)");
    FRAMES_TELL("\x81\x00", "M()");
    FRAMES_TELL("\x01\x02he\x89\x01x\x00\x00\x8A\x00\x80\x03llo\x81\x01z", "P(x)O()M(hello)M(z)");
    FRAMES_TELL("\x01\x00\x80\x00\x81\x01z", "M()M(z)");
    FRAMES_TELL("\x88\x00", "C()");
    FRAMES_TELL("\x88\x05\x03\xE8"
                "bye",
                "C(\x03\xE8"
                "bye)");
}

static void test_broken_order_of_fragments_is_refused(void **state)
{
    (void)state;
    FRAMES_TELL("\x80\x02hi", "B(continuation of nothing)");
    FRAMES_TELL("\x01\x01h\x81\x01i", "B(new message inside a fragmented one)");
    FRAMES_TELL("\x01\x01h\x02\x01i", "B(new message inside a fragmented one)");
    FRAMES_TELL("\x81\x01h\x80\x01i", "M(h)B(continuation of nothing)");
}

static void test_text_must_be_utf8_and_binary_may_fail_to_be(void **state)
{
    (void)state;
    FRAMES_TELL("\x01\x01\xC3\x80\x01\xA9", "M(\xC3\xA9)");
    FRAMES_TELL("\x01\x01\xC3\x80\x01\x28", "B(text message that is not UTF-8)");
    FRAMES_TELL("\x81\x01\xFF", "B(text message that is not UTF-8)");
    FRAMES_TELL("\x82\x01\xFF\x81\x01x", "N()M(x)");
    FRAMES_TELL("\x02\x01\xFF\x80\x01x\x81\x01x", "N()M(x)");
}

static void test_close_frames_are_checked(void **state)
{
    (void)state;
    FRAMES_TELL("\x88\x01x", "B(malformed close frame)");
    FRAMES_TELL("\x88\x02\x03\xED", "B(malformed close frame)"); /* 1005 is never sent */
    FRAMES_TELL("\x88\x02\x00\x01", "B(malformed close frame)");
    FRAMES_TELL("\x88\x03\x03\xE8\xFF", "B(malformed close frame)");
}

static void test_sizes_are_refused_from_the_header(void **state)
{
    (void)state;
    FRAMES_TELL("\x81\x7E\x03\xE9", "B(frame above the size limit)");
    FRAMES_TELL("\x81\x7F\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF", "B(frame above the size limit)");
}

/* Fragments of 1000, 1000 and one byte more than the 2000 allowed. */
static void test_sum_of_fragments_is_bounded(void **state)
{
    struct sp_buf b = {0};

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_true(sp_buf_add(&b, i == 0 ? "\x01\x7E\x03\xE8" : "\x00\x7E\x03\xE8", 4));
        memset(sp_buf_room(&b, 1000), 'a', 1000);
        b.len += 1000;
    }
    assert_true(sp_buf_add(&b, "\x80\x01z", 3));
    story_is(SP_WS_CLIENT, SP_INTAKE_FRAMES, b.data, b.len, "B(message above the size limit)");
    sp_buf_done(&b);
}

static void test_lines_are_trimmed_and_blank_ones_skipped(void **state)
{
    (void)state;
    LINES_TELL("one\ntwo\r\n\n \t\r\n{}\n", "M(one)M(two)M({})");
    LINES_TELL("a\rb\n", "M(a\rb)");
    LINES_TELL("ok\n\xFF\nlost\n", "M(ok)B(line that is not UTF-8)");
    LINES_TELL("no end", "");
}

static void test_line_limit_does_not_count_its_end(void **state)
{
    char bytes[2100];
    char want[2100];

    (void)state;
    memset(bytes, 'a', sizeof bytes);
    (void)snprintf(want, sizeof want, "M(%.2000s)", bytes);
    (void)mempcpy(bytes + 2000, "\r\n", 2);
    story_is(SP_WS_SERVER, SP_INTAKE_LINES, bytes, 2002, want);
    (void)mempcpy(bytes + 2000, "a\n", 2);
    story_is(SP_WS_SERVER, SP_INTAKE_LINES, bytes, 2002, "B(line above the size limit)");
    memset(bytes, 'a', sizeof bytes);
    story_is(SP_WS_SERVER, SP_INTAKE_LINES, bytes, sizeof bytes, "B(line above the size limit)");
}

static void test_announced_length_buys_no_memory(void **state)
{
    struct sp_intake in;
    struct sp_buf story = {0};
    static char body[200000];

    (void)state;
    in = (struct sp_intake){.role = SP_WS_CLIENT, .max_frame = 16U << 20, .max_message = 64U << 20};
    in.mode = SP_INTAKE_FRAMES;
    assert_true(feed(&in, "\x81\x7F\0\0\0\0\x01\0\0\0", 10, 10, &story)); /* 16 MiB to come */
    assert_true(in.cap <= 64);
    memset(body, 'a', sizeof body);
    assert_true(feed(&in, body, sizeof body, 1000, &story));
    assert_true(in.cap <= 2 * (sizeof body + 10) + 8192);
    sp_intake_done(&in);
    sp_buf_done(&story);
}

static void test_empty_intake_holds_no_memory(void **state)
{
    struct sp_intake in;
    struct sp_buf story = {0};

    (void)state;
    in = (struct sp_intake){.role = SP_WS_CLIENT, .max_frame = 1000, .max_message = 2000};
    in.mode = SP_INTAKE_FRAMES;
    assert_true(feed(&in, "\x81\x02hi\x81", 5, 5, &story));
    assert_int_equal(in.cap, 1);
    assert_true(feed(&in, "\x00", 1, 1, &story));
    assert_null(in.data);
    sp_intake_done(&in);
    sp_buf_done(&story);
}

static void test_held_message_is_delivered_once_and_whole(void **state)
{
    struct sp_intake in;
    struct sp_intake_event ev;
    size_t room;

    (void)state;
    in = (struct sp_intake){.role = SP_WS_SERVER, .max_frame = 1000, .max_message = 2000};
    in.mode = SP_INTAKE_FRAMES;
    char *to = sp_intake_room(&in, scratch, &room);
    memcpy(to, "\x89\x80\1\2\3\4\x81\x82\1\2\3\4ik\x81\x80\1\2\3\4", 20);
    sp_intake_added(&in, 20);
    assert_int_equal(sp_intake_next(&in, false, &ev), SP_INTAKE_PING);
    assert_int_equal(sp_intake_next(&in, false, &ev), SP_INTAKE_HELD);
    assert_true(sp_intake_settle(&in));
    assert_int_equal(sp_intake_next(&in, false, &ev), SP_INTAKE_HELD);
    assert_int_equal(sp_intake_next(&in, true, &ev), SP_INTAKE_MESSAGE);
    assert_bytes(ev.text, ev.len, "hi");
    assert_int_equal(sp_intake_next(&in, true, &ev), SP_INTAKE_MESSAGE);
    assert_int_equal(ev.len, 0);
    assert_int_equal(sp_intake_next(&in, true, &ev), SP_INTAKE_MORE);
    assert_true(sp_intake_settle(&in));
    sp_intake_done(&in);
}

/* ---- outq ---- */

/* What a reader makes of the queue must be what was written. */
static void round_trip(size_t max, size_t len)
{
    struct sp_outq q = {.fragment = 1000};
    struct sp_intake in;
    struct sp_buf story = {0};
    struct sp_buf want = {0};
    char *room;

    assert_true(sp_outq_control(&q, SP_WS_PING, "p", 1));
    room = sp_outq_reserve(&q, max);
    assert_non_null(room);
    for (size_t i = 0; i < len; i++)
        room[i] = (char)('a' + i % 23);
    (void)sp_buf_printf(&want, "P(p)");
    if (len != 0)
        (void)sp_buf_printf(&want, "M(%.*s)", (int)len, room);
    (void)sp_buf_printf(&want, "O()");
    sp_outq_commit(&q, len, true, true);
    assert_true(sp_outq_control(&q, SP_WS_PONG, NULL, 0));

    in = (struct sp_intake){.role = SP_WS_CLIENT, .max_frame = 1000, .max_message = 1U << 20};
    in.mode = SP_INTAKE_FRAMES;
    assert_true(feed(&in, q.data + q.start, sp_outq_size(&q), 1U << 20, &story));
    assert_int_equal(story.len, want.len);
    assert_memory_equal(story.data, want.data, want.len);
    sp_intake_done(&in);
    sp_outq_done(&q);
    sp_buf_done(&story);
    sp_buf_done(&want);
}

static void test_messages_leave_in_shortest_frames_and_fragments(void **state)
{
    static const size_t lens[] = {0, 1, 125, 126, 999, 1000, 1001, 1126, 2000, 2001, 70000};

    (void)state;
    for (size_t m = 0; m < sizeof lens / sizeof lens[0]; m++)
        for (size_t i = 0; i <= m; i++)
            round_trip(lens[m], lens[i]);
}

static void test_queue_keeps_its_bytes_in_order_while_it_is_sent(void **state)
{
    struct sp_outq q = {0};
    uint64_t seed = 7;
    unsigned written = 0;
    unsigned read = 0;

    (void)state;
    while (read < 200000) {
        char text[16];
        const int n = snprintf(text, sizeof text, "%08u", written);

        if (test_random(&seed) % 3 != 0) {
            char *room = sp_outq_reserve(&q, 1 + test_random(&seed) % 500 + (size_t)n);

            assert_non_null(room);
            memcpy(room, text, (size_t)n);
            sp_outq_commit(&q, (size_t)n, true, true);
            written++;
        }
        for (unsigned k = test_random(&seed) % 3; k > 0 && sp_outq_size(&q) != 0; k--, read++) {
            (void)snprintf(text, sizeof text, "%08u\n", read);
            assert_memory_equal(q.data + q.start, text, 9);
            sp_outq_sent(&q, 9);
        }
        assert_int_equal(sp_outq_size(&q), 9 * (written - read));
    }
    sp_outq_done(&q);
}

static void test_impossible_room_is_refused(void **state)
{
    struct sp_outq q = {.fragment = 1000};

    (void)state;
    assert_null(sp_outq_reserve(&q, SIZE_MAX));
    assert_null(sp_outq_reserve(&q, SIZE_MAX / 8 + 1));
    sp_outq_done(&q);
}

static void test_large_empty_queue_is_given_back(void **state)
{
    struct sp_outq q = {0};

    (void)state;
    memset(sp_outq_reserve(&q, 1U << 20), 'a', 1U << 20);
    sp_outq_commit(&q, 1U << 20, true, true);
    sp_outq_sent(&q, (1U << 20) + 1);
    assert_non_null(q.data);
    memset(sp_outq_reserve(&q, 8U << 20), 'a', 8U << 20);
    sp_outq_commit(&q, 8U << 20, true, true);
    sp_outq_sent(&q, (8U << 20) + 1);
    assert_null(q.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forbidden_headers_are_refused_on_their_first_bytes),
        cmocka_unit_test(test_lengths_have_one_form),
        cmocka_unit_test(test_header_is_read_as_it_was_written),
        cmocka_unit_test(test_mask_is_the_same_at_any_offset_and_length),
        cmocka_unit_test(test_accept_key_is_the_one_of_the_rfc),
        cmocka_unit_test(test_frames_tell_the_same_story_in_any_pieces),
        cmocka_unit_test(test_broken_order_of_fragments_is_refused),
        cmocka_unit_test(test_text_must_be_utf8_and_binary_may_fail_to_be),
        cmocka_unit_test(test_close_frames_are_checked),
        cmocka_unit_test(test_sizes_are_refused_from_the_header),
        cmocka_unit_test(test_sum_of_fragments_is_bounded),
        cmocka_unit_test(test_lines_are_trimmed_and_blank_ones_skipped),
        cmocka_unit_test(test_line_limit_does_not_count_its_end),
        cmocka_unit_test(test_announced_length_buys_no_memory),
        cmocka_unit_test(test_empty_intake_holds_no_memory),
        cmocka_unit_test(test_held_message_is_delivered_once_and_whole),
        cmocka_unit_test(test_messages_leave_in_shortest_frames_and_fragments),
        cmocka_unit_test(test_queue_keeps_its_bytes_in_order_while_it_is_sent),
        cmocka_unit_test(test_impossible_room_is_refused),
        cmocka_unit_test(test_large_empty_queue_is_given_back),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

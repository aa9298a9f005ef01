/* SPDX-License-Identifier: Apache-2.0 */
/* Large frames and fragments, which are read as they come: however they come, they say the same. */
#include "base/buf.h"
#include "server/net/frames.h"
#include "test.h"

enum { MESSAGES = 12, ROUNDS = 40, LONGEST = 300000 };

static char scratch[SP_INTAKE_SCRATCH + 1];
static uint64_t seed;

static size_t some(size_t n)
{
    return (size_t)(test_random(&seed) % n);
}

static void add_frame(struct sp_buf *wire, bool is_masked, enum sp_ws_opcode opcode, bool is_final,
                      struct sp_str text)
{
    const uint8_t mask[4] = {(uint8_t)some(256), (uint8_t)some(256), (uint8_t)some(256), 7};
    char head[SP_WS_MAX_HEADER];
    const size_t n = sp_ws_write_header(head, opcode, is_final, text.n, is_masked ? mask : NULL);

    assert_true(sp_buf_add(wire, head, n) && sp_buf_add(wire, text.p, text.n));
    if (is_masked)
        sp_ws_mask(wire->data + wire->len - text.n, text.n, mask, 0);
}

/* Text of one, two and four bytes a character; cut anywhere. */
static void add_message(struct sp_buf *wire, bool is_masked, struct sp_buf *said)
{
    static const char *const character[] = {"a", "é", "😀", "z"};
    struct sp_buf text = {0};
    const size_t len = some(3) == 0 ? some(300) : some(LONGEST);
    enum sp_ws_opcode opcode = SP_WS_TEXT;

    while (text.len < len)
        assert_true(sp_buf_add_str(&text, sp_str_of(character[some(4)])));
    for (size_t at = 0;;) {
        const size_t left = text.len - at;
        const size_t n = some(3) == 0 ? left : some(left + 1);
        const bool is_final = n == left && some(4) != 0; /* else an empty frame ends it */

        add_frame(wire, is_masked, opcode, is_final, (struct sp_str){text.data + at, n});
        if (is_final)
            break;
        if (some(2) == 0)
            add_frame(wire, is_masked, SP_WS_PING, true, SP_STR("p"));
        opcode = SP_WS_CONTINUATION;
        at += n;
    }
    assert_true(sp_buf_add(said, text.data, text.len) && sp_buf_add(said, "\n", 1));
    sp_buf_done(&text);
}

static void hear(struct sp_intake *in, bool may_deliver, struct sp_buf *heard)
{
    struct sp_intake_event ev;
    enum sp_intake_what what;

    while ((what = sp_intake_next(in, may_deliver, &ev)) > SP_INTAKE_HELD) {
        assert_true(what == SP_INTAKE_MESSAGE || what == SP_INTAKE_PING);
        if (what != SP_INTAKE_MESSAGE)
            continue;
        assert_true(may_deliver);
        ev.text[ev.len] = '\n'; /* allowed */
        assert_true(sp_buf_add(heard, ev.text, ev.len + 1));
    }
}

static void listen_to(struct sp_intake *in, const struct sp_buf *wire, struct sp_buf *heard)
{
    const size_t step = 1 + some(some(2) == 0 ? 100000 : 3000);

    for (size_t at = 0; at < wire->len;) {
        size_t room;
        char *to = sp_intake_room(in, scratch, &room);

        assert_non_null(to);
        room = room < step ? room : step;
        room = room < wire->len - at ? room : wire->len - at;
        memcpy(to, wire->data + at, room);
        sp_intake_added(in, room);
        at += room;
        hear(in, some(3) != 0, heard);
        assert_true(sp_intake_settle(in));
    }
    hear(in, true, heard);
    assert_true(sp_intake_settle(in));
}

static void test_messages_are_the_same_however_they_come(void **state)
{
    (void)state;
    for (seed = 1; seed < ROUNDS; seed++) {
        struct sp_buf wire = {0};
        struct sp_buf said = {0};
        struct sp_buf heard = {0};
        struct sp_intake in;
        const uint64_t round = seed;
        const bool is_masked = seed % 2 == 0;

        for (int i = 0; i < MESSAGES; i++)
            add_message(&wire, is_masked, &said);
        in = (struct sp_intake){.role = (uint8_t)(is_masked ? SP_WS_SERVER : SP_WS_CLIENT),
                                .max_frame = 1U << 20,
                                .max_message = 1U << 20};
        in.mode = SP_INTAKE_FRAMES;
        listen_to(&in, &wire, &heard);
        assert_int_equal(heard.len, said.len);
        assert_memory_equal(heard.data, said.data, said.len);
        assert_int_equal(sp_intake_size(&in), 0);
        sp_intake_done(&in);
        sp_buf_done(&wire);
        sp_buf_done(&said);
        sp_buf_done(&heard);
        seed = round;
    }
}

/* One byte that can be no UTF-8, anywhere in a large message: refused, but only when it is whole.
 */
static void test_text_that_is_none_is_refused_at_the_end(void **state)
{
    enum { N = 100000 };
    char *text = malloc(N);

    (void)state;
    assert_non_null(text);
    for (size_t bad = 0; bad < N; bad += 9999) {
        struct sp_buf wire = {0};
        struct sp_intake in;
        struct sp_intake_event ev = {0};
        enum sp_intake_what what = SP_INTAKE_MORE;

        memset(text, 'a', N);
        text[bad] = '\xFF';
        add_frame(&wire, true, SP_WS_TEXT, true, (struct sp_str){text, N});
        in = (struct sp_intake){
            .role = SP_WS_SERVER, .max_frame = 1U << 20, .max_message = 1U << 20};
        in.mode = SP_INTAKE_FRAMES;
        for (size_t at = 0; at < wire.len;) {
            size_t room;
            char *to = sp_intake_room(&in, scratch, &room);

            assert_int_equal(what, SP_INTAKE_MORE);
            room = room < wire.len - at ? room : wire.len - at;
            memcpy(to, wire.data + at, room);
            sp_intake_added(&in, room);
            at += room;
            what = sp_intake_next(&in, true, &ev);
            assert_true(sp_intake_settle(&in));
        }
        assert_int_equal(what, SP_INTAKE_BAD);
        assert_int_equal(ev.status, SP_WS_NOT_TEXT);
        sp_intake_done(&in);
        sp_buf_done(&wire);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_are_the_same_however_they_come),
        cmocka_unit_test(test_text_that_is_none_is_refused_at_the_end),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Messages that are made while they are sent. */
#include "net_fixture.h"

struct made {
    struct sp_link_source source;
    char letter;
    size_t step; /* at most so many bytes at a time */
    size_t made;
    unsigned done;
};

static size_t write_made(struct sp_link_source *s, char *out, size_t max)
{
    struct made *m = SP_CONTAINER(s, struct made, source);
    const size_t n = max < m->step ? max : m->step;

    for (size_t i = 0; i < n; i++)
        out[i] = (char)(m->letter + (m->made + i) % 7);
    m->made += n;
    return n;
}

static void end_made(struct sp_link_source *s)
{
    SP_CONTAINER(s, struct made, source)->done++;
}

static struct made made_of(char letter, size_t len, size_t step)
{
    return (struct made){.source = {.write = write_made, .done = end_made, .left = len},
                         .letter = letter,
                         .step = step};
}

/* The next message, which is that one. */
static void expect_made(struct client *c, const struct made *m, size_t len)
{
    size_t at = 0;
    bool is_last = false;

    while (!is_last) {
        const char *p = "";
        const struct sp_ws_header h =
            expect_frame(c, at == 0 ? SP_WS_TEXT : SP_WS_CONTINUATION, &p);

        assert_true(h.len <= SP_LINK_FRAGMENT && h.len <= len - at);
        for (size_t i = 0; i < h.len; i++)
            assert_int_equal(p[i], m->letter + (at + i) % 7);
        at += (size_t)h.len;
        is_last = h.is_final;
    }
    assert_int_equal(at, len);
    assert_int_equal(m->done, 1);
}

static void test_messages_before_and_behind_keep_their_order(void **state)
{
    struct client *c = connect_websocket();
    struct made a = made_of('a', 3 * MIB + 5, SIZE_MAX);
    struct made b = made_of('h', 1, SIZE_MAX);
    struct made d = made_of('o', 200000, 70001); /* the last frame has a shorter header */

    (void)state;
    say(fx.link, "before", 6);
    sp_link_send(fx.link, &a.source);
    say(fx.link, "between", 7);
    sp_link_send(fx.link, &b.source);
    sp_link_send(fx.link, &d.source);
    say(fx.link, "behind", 6);
    expect_text(c, "before");
    expect_made(c, &a, 3 * MIB + 5);
    expect_text(c, "between");
    expect_made(c, &b, 1);
    expect_made(c, &d, 200000);
    expect_text(c, "behind");
    assert_int_equal(sp_link_queued(fx.link), 0);
}

static bool has_drained(void)
{
    return fx.drains != 0;
}

static void test_link_is_full_until_it_is_made(void **state)
{
    struct client *c = connect_websocket();
    struct made a = made_of('a', 30 * MIB, SIZE_MAX);

    (void)state;
    c->is_reading = false;
    sp_link_send(fx.link, &a.source);
    pass(50);
    assert_true(sp_link_is_full(fx.link));
    assert_true(a.made < 30 * MIB); /* no more than the kernel takes, and a piece */
    assert_true(sp_link_queued(fx.link) >= 30 * MIB - a.made);
    assert_int_equal(fx.drains, 0);
    c->is_reading = true;
    expect_made(c, &a, 30 * MIB);
    until(has_drained);
    assert_false(sp_link_is_full(fx.link));
}

static void test_a_link_that_ends_is_the_end_of_what_it_sends(void **state)
{
    struct client *c = connect_websocket();
    struct made a = made_of('a', 30 * MIB, SIZE_MAX);
    struct made b = made_of('a', 10, SIZE_MAX);

    (void)state;
    c->is_reading = false;
    sp_link_send(fx.link, &a.source);
    sp_link_send(fx.link, &b.source);
    assert_int_equal(a.done, 0);
    (void)close(TAKE_FD(c->fd));
    until(is_closed);
    pass(10); /* until it has been freed */
    assert_int_equal(a.done, 1);
    assert_int_equal(b.done, 1);
}

static void test_a_closing_link_takes_none_and_sends_the_rest(void **state)
{
    struct client *c = connect_websocket();
    struct made a = made_of('a', 8 * MIB, SIZE_MAX);
    struct made b = made_of('a', 10, SIZE_MAX);

    (void)state;
    sp_link_send(fx.link, &a.source);
    sp_link_close(fx.link, "enough");
    sp_link_send(fx.link, &b.source);
    assert_int_equal(b.done, 1);
    expect_made(c, &a, 8 * MIB);
    (void)expect_frame(c, SP_WS_CLOSE, &(const char *){""});
}

static bool has_newest_pong(void)
{
    return fx.link->has_pong && fx.link->pong_len == 6;
}

/* Who asks whether we live while something long is sent is told so, once, between two parts. */
static void test_a_ping_is_answered_between_two_fragments(void **state)
{
    enum { FRAGMENTS = 40 };
    struct client *c = connect_websocket();
    struct made a = made_of('a', FRAGMENTS * MIB, SIZE_MAX);
    size_t texts = 0;
    size_t before = 0;
    unsigned pongs = 0;

    (void)state;
    c->is_reading = false;
    sp_link_send(fx.link, &a.source);
    put_frame(c, 0x80 | SP_WS_PING, "first", 5);
    put_frame(c, 0x80 | SP_WS_PING, "newest", 6);
    until(has_newest_pong);
    c->is_reading = true;
    while (texts < FRAGMENTS) {
        const char *p = "";
        const struct sp_ws_header h = expect_any_frame(c, &p);

        if (h.opcode == SP_WS_PONG) {
            assert_bytes(p, (size_t)h.len, "newest");
            pongs++;
            before = texts;
            continue;
        }
        assert_int_equal(h.opcode, texts == 0 ? SP_WS_TEXT : SP_WS_CONTINUATION);
        assert_int_equal(h.len, MIB);
        assert_int_equal(p[0], 'a' + texts * MIB % 7);
        texts++;
        assert_int_equal(h.is_final, texts == FRAGMENTS);
    }
    assert_int_equal(pongs, 1);
    assert_true(before < FRAGMENTS - 1);
    put_frame(c, 0x80 | SP_WS_PING, "later", 5);
    const char *p = "";
    const struct sp_ws_header h = expect_frame(c, SP_WS_PONG, &p);
    assert_bytes(p, (size_t)h.len, "later");
}

#define WS(test) cmocka_unit_test_setup_teardown(test, set_up_ws, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WS(test_messages_before_and_behind_keep_their_order),
        WS(test_link_is_full_until_it_is_made),
        WS(test_a_link_that_ends_is_the_end_of_what_it_sends),
        WS(test_a_closing_link_takes_none_and_sends_the_rest),
        WS(test_a_ping_is_answered_between_two_fragments),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

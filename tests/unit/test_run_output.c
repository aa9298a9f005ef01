/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a run keeps of its output, and what it tells whoever watches.
 */
#include "run_fixture.h"

/* ---- output ---- */

#define PIECE 65536

static void test_the_first_mebibyte_is_kept_and_the_rest_counted(void **state)
{
    static char piece[PIECE + 1];
    const struct fake_step steps[] = {STARTED,   OUTS(piece, 18), ERRS(piece, 1),
                                      EXITED(0), CLOSED,          END};
    struct sp_run_request ask = plain_ask();

    memset(piece, 'a', PIECE);
    play(steps, &ask);
    assert_int_equal(got.out.len, SP_RUN_CAP);
    assert_int_equal(got.r.out_total, 18 * PIECE);
    assert_int_equal(got.err.len, PIECE);
    assert_int_equal(got.aggregated.len, SP_RUN_CAP);
    (void)tear_down(state);
    assert_int_equal(set_up(state), 0);
    ask.capture = SP_RUN_FULL_BUFFER;
    play(steps, &ask);
    assert_int_equal(got.out.len, 18 * PIECE);
    assert_int_equal(got.aggregated.len, 19 * PIECE);
}

static void test_both_streams_share_one_budget_of_deltas(void **state)
{
    static const struct fake_step steps[] = {
        STARTED, OUTS("ab", 9000), ERRS("cd", 9000), OUTS("ef", 12000), EXITED(0), CLOSED, END};
    struct sp_run_request ask = watched_ask(SP_SOURCE_AGENT);

    (void)state;
    ask.has_begin_and_end = false;
    play(steps, &ask);
    assert_int_equal(got.deltas, 10000);
    assert_int_equal(got.out.len, 42000);
    assert_int_equal(got.begins + got.ends, 0);
}

static void test_a_character_is_cut_in_neither_stream(void **state)
{
    static const struct fake_step steps[] = {STARTED,     OUT("a\xC3"), ERR("\xA9"), OUT("\xA9z"),
                                             OUT("\xE2"), EXITED(0),    CLOSED,      END};
    struct sp_run_request ask = watched_ask(SP_SOURCE_AGENT);

    (void)state;
    play(steps, &ask);
    assert_string_equal(got.chunks.data, "a|\xC3\xA9z|\xE2|");
}

/* ---- events ---- */

static void test_what_a_user_typed_has_a_beginning_and_an_end(void **state)
{
    static const struct fake_step steps[] = {STARTED,   OUT("o\xFF"), ERR("e"),
                                             EXITED(2), CLOSED,       END};
    const struct sp_run_request ask = watched_ask(SP_SOURCE_USER_SHELL);

    (void)state;
    play(steps, &ask);
    assert_string_equal(got.order.data, "BDDEF");
    assert_string_equal(got.end_text.data, "o\xEF\xBF\xBD|e|o\xEF\xBF\xBD"
                                           "e|o\xEF\xBF\xBD"
                                           "e");
    assert_int_equal(got.end.exit_code, 2);
    assert_int_equal(got.end.status, SP_STATUS_FAILED);
    assert_true(got.end.at_ms > 0 && got.end.duration_ns > 0);
}

static void test_an_end_is_made_short_as_asked(void **state)
{
    static const struct fake_step steps[] = {STARTED, OUT("0123456789abcdef\n"), EXITED(0), CLOSED,
                                             END};
    struct sp_run_request ask = watched_ask(SP_SOURCE_AGENT);

    (void)state;
    ask.allowance = (struct sp_allowance){SP_ALLOWANCE_BYTES, 8};
    play(steps, &ask);
    assert_string_equal(got.end_text.data, "0123456789abcdef\n||0123456789abcdef\n|"
                                           "Warning: truncated output (original token count: 5)\n"
                                           "Total output lines: 1\n\n0123…9 chars truncated…def\n");
    assert_int_equal(got.end.status, SP_STATUS_COMPLETED);
}

static void test_what_could_not_be_started_has_both_events_too(void **state)
{
    static const struct fake_step steps[] = {REFUSED("No such thing (os error 2)"), END};
    const struct sp_run_request ask = watched_ask(SP_SOURCE_USER_SHELL);

    (void)state;
    play(steps, &ask);
    assert_string_equal(got.order.data, "BEF");
    assert_string_equal(got.end_text.data, "|execution error: No such thing (os error 2)|"
                                           "execution error: No such thing (os error 2)|"
                                           "execution error: No such thing (os error 2)");
    assert_int_equal(got.end.exit_code, -1);
}

static const struct CMUnitTest tests[] = {
    TEST(test_the_first_mebibyte_is_kept_and_the_rest_counted),
    TEST(test_both_streams_share_one_budget_of_deltas),
    TEST(test_a_character_is_cut_in_neither_stream),
    TEST(test_what_a_user_typed_has_a_beginning_and_an_end),
    TEST(test_an_end_is_made_short_as_asked),
    TEST(test_what_could_not_be_started_has_both_events_too),
};

TEST_MAIN(tests)

/* SPDX-License-Identifier: Apache-2.0 */
/* Yield times, and the results of cases 24 and 40 to 43. The source is included: only it can see
 * the time of a write_stdin call. */
#include "engine/write_stdin.c" /* NOLINT: see above */
#include "test.h"

static uint64_t given(enum sp_yield_kind kind, uint64_t ms)
{
    return sp_yield_ms(kind, (struct sp_yield_request){true, ms}, SP_YIELD_POLL_MAX_MS);
}

static uint64_t omitted(enum sp_yield_kind kind)
{
    /* A number that is not said to be there has no weight. */
    return sp_yield_ms(kind, (struct sp_yield_request){false, 12345}, SP_YIELD_POLL_MAX_MS);
}

static uint64_t longest_poll(uint64_t configured_ms)
{
    return sp_yield_ms(SP_YIELD_POLL, (struct sp_yield_request){true, UINT64_MAX}, configured_ms);
}

static void test_what_is_omitted_has_its_default(void **state)
{
    (void)state;
    assert_int_equal(omitted(SP_YIELD_EXEC), 10000);
    assert_int_equal(omitted(SP_YIELD_WRITE), 250);
    assert_int_equal(omitted(SP_YIELD_POLL), 5000);
    assert_int_equal(omitted(SP_YIELD_COMPAT), 1000);
}

static void test_every_call_has_its_bounds(void **state)
{
    static const struct {
        enum sp_yield_kind kind;
        uint64_t ms, want;
    } c[] = {
        {SP_YIELD_EXEC, 0, 250},
        {SP_YIELD_EXEC, 1, 250},
        {SP_YIELD_EXEC, 249, 250},
        {SP_YIELD_EXEC, 250, 250},
        {SP_YIELD_EXEC, 251, 251},
        {SP_YIELD_EXEC, 29999, 29999},
        {SP_YIELD_EXEC, 30000, 30000},
        {SP_YIELD_EXEC, 30001, 30000},
        {SP_YIELD_EXEC, 31415, 30000},
        {SP_YIELD_EXEC, 120000, 30000},
        {SP_YIELD_EXEC, UINT64_MAX, 30000},
        {SP_YIELD_WRITE, 0, 250},
        {SP_YIELD_WRITE, 10, 250},
        {SP_YIELD_WRITE, 500, 500},
        {SP_YIELD_WRITE, 90000, 30000},
        {SP_YIELD_POLL, 0, 5000},
        {SP_YIELD_POLL, 1, 5000},
        {SP_YIELD_POLL, 800, 5000},
        {SP_YIELD_POLL, 4999, 5000},
        {SP_YIELD_POLL, 5001, 5001},
        {SP_YIELD_POLL, 60000, 60000},
        {SP_YIELD_POLL, 300000, 300000},
        {SP_YIELD_POLL, 300001, 300000},
        {SP_YIELD_POLL, 400000, 300000},
        {SP_YIELD_COMPAT, 0, 0},
        {SP_YIELD_COMPAT, 2500, 2500},
        {SP_YIELD_COMPAT, 60000, 60000},
        {SP_YIELD_COMPAT, 60001, 60000},
        {SP_YIELD_COMPAT, 120000, 60000},
    };

    (void)state;
    for (size_t i = 0; i < sizeof c / sizeof c[0]; i++)
        if (given(c[i].kind, c[i].ms) != c[i].want)
            fail_msg("kind %d: %llu gives %llu", (int)c[i].kind, (unsigned long long)c[i].ms,
                     (unsigned long long)given(c[i].kind, c[i].ms));
}

static void test_the_bound_of_polls_is_configured_but_not_below_five_seconds(void **state)
{
    const struct sp_yield_request much = {true, 10000000};
    const struct sp_yield_request little = {true, 1};

    (void)state;
    assert_int_equal(longest_poll(0), 5000);
    assert_int_equal(longest_poll(4999), 5000);
    assert_int_equal(longest_poll(5001), 5001);
    assert_int_equal(longest_poll(3600000), 3600000);
    assert_int_equal(sp_yield_ms(SP_YIELD_POLL, much, 3600000), 3600000);
    assert_int_equal(sp_yield_ms(SP_YIELD_POLL, much, 1000), 5000);
    assert_int_equal(sp_yield_ms(SP_YIELD_POLL, little, 1000), 5000);
    assert_int_equal(sp_yield_ms(SP_YIELD_WRITE, much, 1000), 30000);
    assert_int_equal(sp_yield_ms(SP_YIELD_EXEC, much, 3600000), 30000);
}

static uint64_t of_write(struct sp_yield_request ask, bool has_chars, bool no_timeout)
{
    struct sp_err e = {0};
    uint64_t ms = 0;

    if (choose_yield(ask, has_chars, no_timeout, SP_YIELD_POLL_MAX_MS, &ms, &e) < 0)
        fail_msg("%s", e.msg);
    return ms;
}

static void test_characters_make_a_write_and_none_a_poll(void **state)
{
    (void)state;
    assert_int_equal(of_write((struct sp_yield_request){0}, true, false), 250);
    assert_int_equal(of_write((struct sp_yield_request){0}, false, false), 5000);
    assert_int_equal(of_write((struct sp_yield_request){true, 90000}, true, false), 30000);
    assert_int_equal(of_write((struct sp_yield_request){true, 90000}, false, false), 90000);
}

static void test_no_timeout_waits_for_the_exit(void **state)
{
    (void)state;
    assert_true(of_write((struct sp_yield_request){0}, false, true) == SP_YIELD_FOREVER);
}

static void no_timeout_is_refused(bool has_chars, bool has_yield_time, const char *text)
{
    struct sp_err e = {0};
    uint64_t ms = 42;

    assert_int_equal(choose_yield((struct sp_yield_request){has_yield_time, 1000}, has_chars, true,
                                  SP_YIELD_POLL_MAX_MS, &ms, &e),
                     -SP_E_INVALID);
    assert_string_equal(e.msg, text);
    assert_int_equal(ms, 42);
}

static void test_no_timeout_goes_with_neither_characters_nor_a_time(void **state)
{
    (void)state;
    no_timeout_is_refused(true, false, "`no_timeout=true` requires empty `chars`.");
    no_timeout_is_refused(true, true, "`no_timeout=true` requires empty `chars`.");
    no_timeout_is_refused(false, true, "`no_timeout=true` requires `yield_time_ms` to be omitted.");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_what_is_omitted_has_its_default),
    cmocka_unit_test(test_every_call_has_its_bounds),
    cmocka_unit_test(test_the_bound_of_polls_is_configured_but_not_below_five_seconds),
    cmocka_unit_test(test_characters_make_a_write_and_none_a_poll),
    cmocka_unit_test(test_no_timeout_waits_for_the_exit),
    cmocka_unit_test(test_no_timeout_goes_with_neither_characters_nor_a_time),
};

TEST_MAIN(tests)

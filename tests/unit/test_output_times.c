/* SPDX-License-Identifier: Apache-2.0 */
#include "core/output_times.h"
#include "test.h"

static void test_records_of_a_second_share_a_mark(void **state)
{
    struct sp_output_times t = {0};

    (void)state;
    assert_int_equal(sp_output_times_of(&t, 1), 0);
    sp_output_times_note(&t, 1, 5000);
    sp_output_times_note(&t, 4, 5900);
    sp_output_times_note(&t, 5, 6000);
    sp_output_times_note(&t, 9, 9000);
    assert_int_equal(sp_output_times_of(&t, 1), 5900);
    assert_int_equal(sp_output_times_of(&t, 4), 5900);
    assert_int_equal(sp_output_times_of(&t, 5), 6000);
    assert_int_equal(sp_output_times_of(&t, 6), 9000);
    sp_output_times_done(&t);
}

/* A record a second, for a day: never too early, exact for the newest half of the marks, and
 * memory is bounded. */
static void test_a_long_log(void **state)
{
    struct sp_output_times t = {0};
    const int64_t day = 86400;

    (void)state;
    for (int64_t s = 1; s <= day; s++)
        sp_output_times_note(&t, (uint64_t)s, s * 1000);
    assert_true(t.older_count <= SP_OUTPUT_MARKS);
    for (int64_t s = 1; s <= day; s++) {
        const int64_t at = sp_output_times_of(&t, (uint64_t)s);

        assert_true(at >= s * 1000 && at <= day * 1000);
        if (s > day - SP_OUTPUT_MARKS / 2)
            assert_int_equal(at, s * 1000);
    }
    sp_output_times_done(&t);
}

/* The clock is set back: times stay those that were noted. */
static void test_a_clock_that_is_set_back(void **state)
{
    struct sp_output_times t = {0};

    (void)state;
    sp_output_times_note(&t, 1, 9000);
    sp_output_times_note(&t, 2, 3000);
    assert_int_equal(sp_output_times_of(&t, 1), 9000);
    assert_int_equal(sp_output_times_of(&t, 2), 3000);
    sp_output_times_done(&t);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_records_of_a_second_share_a_mark),
    cmocka_unit_test(test_a_long_log),
    cmocka_unit_test(test_a_clock_that_is_set_back),
};

TEST_MAIN(tests)

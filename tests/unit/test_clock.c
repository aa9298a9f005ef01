/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "test.h"

static void test_all_units_read_the_same_clock(void **state)
{
    const uint64_t ms = sp_clock_ms();
    const uint64_t us = sp_clock_us();
    const uint64_t ns = sp_clock_ns();

    (void)state;
    assert_true(ms <= us / 1000);
    assert_true(us <= ns / 1000);
    assert_true(ns / 1000000 <= sp_clock_ms());
    assert_true(sp_clock_ms() - ms < 60000);
}

static void test_the_unix_clock_is_that_of_time(void **state)
{
    const time_t before = time(NULL);
    const uint64_t ms = sp_clock_unix_ms();

    (void)state;
    assert_true((uint64_t)before <= ms / 1000);
    assert_true(ms / 1000 - (uint64_t)before < 60);
}

static void test_processor_time_grows_only_with_work(void **state)
{
    const uint64_t cpu = sp_clock_cpu_ns();
    const uint64_t wall = sp_clock_ns();

    (void)state;
    while (sp_clock_cpu_ns() == cpu) {
    }
    assert_true(sp_clock_ns() > wall);
    assert_true(sp_clock_cpu_ns() - cpu <= sp_clock_ns() - wall + 10000000);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_all_units_read_the_same_clock),
    cmocka_unit_test(test_the_unix_clock_is_that_of_time),
    cmocka_unit_test(test_processor_time_grows_only_with_work),
};

TEST_MAIN(tests)

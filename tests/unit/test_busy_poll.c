/* SPDX-License-Identifier: Apache-2.0 */
#include "os/busy_poll.h"
#include "test.h"

#define START 5000000 /* any time */

/* A loop that has been woken often, after so long each time. */
static struct sp_busy_poll woken(uint64_t us)
{
    struct sp_busy_poll p = {0};

    for (int i = 0; i < 100; i++)
        sp_busy_poll_note_wake(&p, us);
    return p;
}

static void test_words(void **state)
{
    (void)state;
    assert_int_equal(sp_busy_poll_mode_of(NULL), SP_BUSY_POLL_AUTO);
    assert_int_equal(sp_busy_poll_mode_of("auto"), SP_BUSY_POLL_AUTO);
    assert_int_equal(sp_busy_poll_mode_of("off"), SP_BUSY_POLL_OFF);
    assert_int_equal(sp_busy_poll_mode_of("on"), SP_BUSY_POLL_ON);
}

static void test_only_where_a_wake_up_takes_long(void **state)
{
    static const struct {
        uint64_t wake_us;
        uint32_t poll_us;
    } rows[] = {{0, 0}, {5, 0}, {39, 0}, {45, 90}, {49, 98}, {60, 100}, {900, 100}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct sp_busy_poll p = woken(rows[i].wake_us);
        const uint32_t allowed = sp_busy_poll_allowed(&p, START);

        assert_in_range(allowed + 2, rows[i].poll_us, rows[i].poll_us + 2); /* rounding */
    }
}

static void test_a_wake_up_is_smoothed(void **state)
{
    struct sp_busy_poll p = woken(20);

    (void)state;
    sp_busy_poll_note_wake(&p, 100);
    assert_int_equal(sp_busy_poll_allowed(&p, START), 0);
    sp_busy_poll_note_wake(&p, 5000); /* the load of the machine, not the cost of a wake-up */
    assert_int_equal(sp_busy_poll_allowed(&p, START), 0);
    for (int i = 0; i < 8; i++)
        sp_busy_poll_note_wake(&p, 100);
    assert_int_equal(sp_busy_poll_allowed(&p, START), SP_BUSY_POLL_MOST_US);
}

static void test_a_twentieth_of_a_second(void **state)
{
    struct sp_busy_poll p = woken(100);
    uint64_t now = START;
    uint64_t spent = 0;

    (void)state;
    for (; sp_busy_poll_allowed(&p, now) > 0; now += 300) {
        sp_busy_poll_spent(&p, now, 100);
        spent += 100;
    }
    assert_int_equal(spent, SP_BUSY_POLL_SHARE_US);
    assert_int_equal(p.total_us, spent);
    assert_int_equal(sp_busy_poll_allowed(&p, START + 899999), 0);
    assert_int_not_equal(sp_busy_poll_allowed(&p, START + 1000000), 0);
    sp_busy_poll_spent(&p, now, 50000);
    assert_int_not_equal(sp_busy_poll_allowed(&p, now + 3600 * UINT64_C(1000000)), 0);
}

static void test_a_busy_machine(void **state)
{
    struct sp_busy_poll p = woken(100);
    uint64_t now = START;

    (void)state;
    assert_true(sp_busy_poll_may_go_on(&p, now, SP_BUSY_POLL_YIELD_US));
    for (uint32_t pause = 100000; pause <= 3200000; pause *= 2) {
        assert_int_not_equal(sp_busy_poll_allowed(&p, now), 0);
        assert_false(sp_busy_poll_may_go_on(&p, now, 3000));
        assert_int_equal(sp_busy_poll_allowed(&p, now + pause - 1), 0);
        now += pause;
    }
    assert_false(sp_busy_poll_may_go_on(&p, now, 3000)); /* the longest pause stays */
    now += 3200000;
    assert_int_not_equal(sp_busy_poll_allowed(&p, now), 0);
    now += 3200001; /* as long without a slow one: the next pause is a short one */
    assert_false(sp_busy_poll_may_go_on(&p, now, 3000));
    assert_int_not_equal(sp_busy_poll_allowed(&p, now + 100000), 0);
}

static void test_on_goes_on(void **state)
{
    struct sp_busy_poll p = {.mode = SP_BUSY_POLL_ON};

    (void)state;
    assert_true(sp_busy_poll_may_go_on(&p, START, 100000));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_words),
    cmocka_unit_test(test_only_where_a_wake_up_takes_long),
    cmocka_unit_test(test_a_wake_up_is_smoothed),
    cmocka_unit_test(test_a_twentieth_of_a_second),
    cmocka_unit_test(test_a_busy_machine),
    cmocka_unit_test(test_on_goes_on),
};

TEST_MAIN(tests)

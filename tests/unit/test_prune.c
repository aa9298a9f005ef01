/* SPDX-License-Identifier: Apache-2.0 */
/* Pruning, rule by rule, and the choices of cases 98, 99 and 100. */
#include "engine/manager_priv.h"
#include "test.h"

#define MAX 80

static struct sp_prune_entry entries[MAX];

/* `count` live, idle ones: ids from 1, the first the oldest. */
static void fill(size_t count)
{
    for (size_t i = 0; i < count; i++)
        entries[i] = (struct sp_prune_entry){.id = (int)i + 1, .last_used = 100 + i};
}

static int victim(size_t count)
{
    const size_t i = sp_prune_choose(entries, count);

    assert_true(i == SP_PRUNE_NONE || i < count);
    return i == SP_PRUNE_NONE ? 0 : entries[i].id;
}

/* Case 99: id and age in seconds. */
static void age_as_in_the_example(void)
{
    static const uint64_t age[10] = {40, 30, 20, 19, 18, 17, 16, 15, 14, 13};

    for (size_t i = 0; i < 10; i++)
        entries[i] = (struct sp_prune_entry){.id = (int)i + 1, .last_used = 1000 - age[i]};
}

static void test_the_example(void **state)
{
    (void)state;
    age_as_in_the_example();
    entries[1].has_exited = true;
    assert_int_equal(victim(10), 2);

    age_as_in_the_example();
    assert_int_equal(victim(10), 1);

    age_as_in_the_example();
    entries[2].has_exited = entries[9].has_exited = true; /* both protected */
    assert_int_equal(victim(10), 1);
}

static void test_of_64_live_ones_the_oldest_goes(void **state)
{
    (void)state;
    fill(64);
    assert_int_equal(victim(64), 1);
    entries[0].last_used = 5000; /* just used */
    assert_int_equal(victim(64), 2);
}

static void test_an_exited_one_goes_before_every_live_one(void **state)
{
    (void)state;
    fill(64);
    entries[55].has_exited = true; /* the newest that is not protected */
    assert_int_equal(victim(64), 56);
    entries[20].has_exited = true;
    assert_int_equal(victim(64), 21);
}

static void test_the_newest_eight_are_safe(void **state)
{
    (void)state;
    fill(64);
    for (size_t i = 56; i < 64; i++)
        entries[i].has_exited = true;
    assert_int_equal(victim(64), 1);

    for (size_t count = 0; count <= 8; count++) {
        fill(count);
        for (size_t i = 0; i < count; i++)
            entries[i].has_exited = true;
        assert_int_equal(victim(count), 0);
    }
    fill(9);
    assert_int_equal(victim(9), 1);
}

static void test_of_equal_age_the_lower_id_goes(void **state)
{
    (void)state;
    fill(20);
    for (size_t i = 0; i < 20; i++)
        entries[i] = (struct sp_prune_entry){.id = 1020 - (int)i, .last_used = 7};
    assert_int_equal(victim(20), 1001);
    entries[5].has_exited = entries[10].has_exited = true; /* 1015, protected, and 1010 */
    assert_int_equal(victim(20), 1010);
    entries[10].has_exited = false;
    assert_int_equal(victim(20), 1001);
}

static void test_a_busy_live_one_is_passed_over(void **state)
{
    (void)state;
    fill(64);
    entries[0].is_busy = entries[1].is_busy = true;
    assert_int_equal(victim(64), 3);
}

static void test_a_busy_exited_one_is_passed_over_for_an_exited_one(void **state)
{
    (void)state;
    fill(64);
    entries[3].has_exited = entries[3].is_busy = true;
    entries[9].has_exited = true;
    assert_int_equal(victim(64), 10);
}

/* Case 100. */
static void test_no_live_one_dies_for_a_busy_exited_one(void **state)
{
    (void)state;
    fill(64);
    entries[30].has_exited = entries[30].is_busy = true;
    assert_int_equal(victim(64), 0);
    entries[30].is_busy = false;
    assert_int_equal(victim(64), 31);
}

static void test_a_protected_busy_exited_one_saves_nobody(void **state)
{
    (void)state;
    fill(64);
    entries[63].has_exited = entries[63].is_busy = true; /* never a candidate */
    assert_int_equal(victim(64), 1);
}

static void test_all_busy_is_no_victim(void **state)
{
    (void)state;
    fill(64);
    for (size_t i = 0; i < 56; i++)
        entries[i].is_busy = true;
    assert_int_equal(victim(64), 0);
    entries[55].is_busy = false;
    assert_int_equal(victim(64), 56);
}

/* Case 98: each store beyond the limit costs one. */
static void test_two_stores_beyond_the_limit_cost_two(void **state)
{
    int gone[2];

    (void)state;
    fill(64);
    for (int k = 0; k < 2; k++) {
        const size_t i = sp_prune_choose(entries, 64);

        assert_true(i < 64);
        gone[k] = entries[i].id;
        entries[i] = (struct sp_prune_entry){.id = 65 + k, .last_used = 1000 + (uint64_t)k};
    }
    assert_int_equal(gone[0], 1);
    assert_int_equal(gone[1], 2);
}

/* ---- against the rules as they are written: sort, protect, walk ---- */

static int by_age(const void *a, const void *b)
{
    const struct sp_prune_entry *x = a;
    const struct sp_prune_entry *y = b;

    if (x->last_used != y->last_used)
        return x->last_used < y->last_used ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static int victim_by_the_rules(size_t count)
{
    struct sp_prune_entry sorted[MAX];

    memcpy(sorted, entries, count * sizeof *entries);
    qsort(sorted, count, sizeof *sorted, by_age);
    const size_t candidates = count > 8 ? count - 8 : 0;

    bool has_passed_over = false;
    for (size_t i = 0; i < candidates; i++) {
        if (!sorted[i].has_exited)
            continue;
        if (!sorted[i].is_busy)
            return sorted[i].id;
        has_passed_over = true;
    }
    for (size_t i = 0; i < candidates && !has_passed_over; i++)
        if (!sorted[i].has_exited && !sorted[i].is_busy)
            return sorted[i].id;
    return 0;
}

static void test_chance_agrees_with_the_rules_as_written(void **state)
{
    uint64_t chance = 4;
    unsigned found = 0;
    unsigned none = 0;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        const size_t count = test_random(&chance) % (MAX + 1);
        const uint32_t ages = 1 + test_random(&chance) % 60; /* few: many ties */
        const uint32_t exited = test_random(&chance) % 4;    /* in ten */
        const uint32_t busy = test_random(&chance) % 11;

        for (size_t i = 0; i < count; i++)
            entries[i] = (struct sp_prune_entry){
                .id = 1000 + (int)((i * 37 + (size_t)round) % 97), /* each once, in no order */
                .last_used = test_random(&chance) % ages,
                .has_exited = test_random(&chance) % 10 < exited,
                .is_busy = test_random(&chance) % 10 < busy};
        const int want = victim_by_the_rules(count);
        if (victim(count) != want)
            fail_msg("round %d: %d, not %d", round, victim(count), want);
        *(want != 0 ? &found : &none) += 1;
    }
    assert_true(found > 2000 && none > 2000);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_the_example),
    cmocka_unit_test(test_of_64_live_ones_the_oldest_goes),
    cmocka_unit_test(test_an_exited_one_goes_before_every_live_one),
    cmocka_unit_test(test_the_newest_eight_are_safe),
    cmocka_unit_test(test_of_equal_age_the_lower_id_goes),
    cmocka_unit_test(test_a_busy_live_one_is_passed_over),
    cmocka_unit_test(test_a_busy_exited_one_is_passed_over_for_an_exited_one),
    cmocka_unit_test(test_no_live_one_dies_for_a_busy_exited_one),
    cmocka_unit_test(test_a_protected_busy_exited_one_saves_nobody),
    cmocka_unit_test(test_all_busy_is_no_victim),
    cmocka_unit_test(test_two_stores_beyond_the_limit_cost_two),
    cmocka_unit_test(test_chance_agrees_with_the_rules_as_written),
};

TEST_MAIN(tests)

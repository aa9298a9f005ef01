/* SPDX-License-Identifier: Apache-2.0 */
/* Process ids, and cases 95 and 96 as far as they are about ids. */
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "engine/ids.h"
#include "memory_fixture.h"
#include "test.h"

#define NO_ID (-1)

/* Chance comes from a fixed seed, so that a failure can be repeated. */
ssize_t __wrap_getrandom(void *buf, size_t n, unsigned flags);

static uint64_t seed;
static bool is_chance_gone;
static unsigned draws;

ssize_t __wrap_getrandom(void *buf, size_t n, unsigned flags)
{
    (void)flags;
    draws++;
    if (is_chance_gone) {
        errno = ENOSYS;
        return -1;
    }
    for (size_t i = 0; i < n; i++)
        ((unsigned char *)buf)[i] = (unsigned char)test_random(&seed);
    return (ssize_t)n;
}

static struct sp_ids *ids; /* on the heap, where a sanitizer sees a write past its end */

static int begin(bool is_deterministic)
{
    seed = 20;
    is_chance_gone = false;
    ids = calloc(1, sizeof *ids);
    if (ids != NULL)
        ids->is_deterministic = is_deterministic;
    return ids == NULL;
}

static int begin_random(void **state)
{
    (void)state;
    return begin(false);
}

static int begin_deterministic(void **state)
{
    (void)state;
    return begin(true);
}

static int end(void **state)
{
    (void)state;
    sp_ids_done(ids);
    free(ids);
    return 0;
}

static int allocate(uint64_t now_ms)
{
    struct sp_err e = {0};
    int id = NO_ID;

    if (sp_ids_allocate(ids, now_ms, &id, &e) < 0)
        fail_msg("%s", e.msg);
    return id;
}

static void flip(int id)
{
    ids->reserved[(id - SP_IDS_FIRST) / 64] ^= UINT64_C(1) << ((id - SP_IDS_FIRST) % 64);
}

static bool rests(int id, uint64_t now_ms)
{
    for (uint32_t i = 0; i < ids->queued; i++) {
        const struct sp_ids_rest *r = &ids->queue[(ids->first + i) & (ids->cap - 1)];

        if (r->place == (uint32_t)(id - SP_IDS_FIRST) && r->until_ms > now_ms)
            return true;
    }
    return false;
}

/* Reserves this id. A random one is allocated and exchanged for it, so that the queue has its slot.
 */
static void reserve(int id, uint64_t now_ms)
{
    assert_false(sp_ids_is_reserved(ids, id));
    assert_false(rests(id, now_ms));
    if (ids->is_deterministic)
        ids->reserved_count++;
    else
        flip(allocate(now_ms));
    flip(id);
}

static void release_all(uint64_t now_ms)
{
    for (int id = SP_IDS_FIRST; id <= SP_IDS_LAST; id++)
        sp_ids_release(ids, id, now_ms);
}

static void has_none_free(uint64_t now_ms)
{
    struct sp_err e = {0};
    int id = NO_ID;

    assert_int_equal(sp_ids_allocate(ids, now_ms, &id, &e), -SP_E_LIMIT);
    assert_string_equal(e.msg, "no free session id");
    assert_int_equal(id, NO_ID);
}

/* ---- deterministic ---- */

static void test_counting_begins_at_1000_and_again_when_all_is_released(void **state)
{
    (void)state;
    assert_int_equal(allocate(0), 1000);
    assert_int_equal(allocate(0), 1001);
    sp_ids_release(ids, 1000, 0);
    assert_int_equal(allocate(0), 1002); /* above the highest, not into the gap */
    sp_ids_release(ids, 1001, 0);
    sp_ids_release(ids, 1002, 0);
    assert_int_equal(ids->reserved_count, 0);
    assert_int_equal(allocate(0), 1000);
}

static void test_the_highest_reserved_one_is_what_counts(void **state)
{
    (void)state;
    reserve(1063, 0);
    assert_int_equal(allocate(0), 1064); /* across a word */
    reserve(5000, 0);
    assert_int_equal(allocate(0), 5001);
    sp_ids_release(ids, 5001, 0);
    assert_int_equal(allocate(0), 5001);
    sp_ids_release(ids, 5000, 0);
    sp_ids_release(ids, 5001, 0);
    assert_int_equal(allocate(0), 1065);
}

static void test_counting_ends_with_the_range(void **state)
{
    (void)state;
    reserve(99998, 0);
    assert_int_equal(allocate(0), 99999);
    has_none_free(0);
    sp_ids_release(ids, 99999, 0);
    assert_int_equal(allocate(0), 99999);
    assert_int_equal(ids->reserved_count, 2);
}

static void test_counting_needs_one_per_cent_too(void **state)
{
    (void)state;
    for (int i = 0; i < SP_IDS_RANGE - 990; i++)
        reserve(1000 + i, 0);
    assert_int_equal(allocate(0), 99010); /* exactly 1 % was free */
    has_none_free(0);
    sp_ids_release(ids, 2000, 0);
    assert_int_equal(allocate(0), 99011);
}

static void test_counting_needs_no_chance(void **state)
{
    (void)state;
    draws = 0;
    assert_int_equal(allocate(0), 1000);
    assert_int_equal(draws, 0);
}

/* ---- random ---- */

static void test_random_ids_are_in_range_and_never_twice(void **state)
{
    static bool seen[SP_IDS_LAST + 1];

    (void)state;
    memset(seen, 0, sizeof seen);
    draws = 0;
    for (int i = 0; i < 50000; i++) {
        const int id = allocate(0);

        assert_in_range(id, 1000, 99999);
        assert_false(seen[id]);
        assert_true(sp_ids_is_reserved(ids, id));
        seen[id] = true;
    }
    assert_int_equal(ids->reserved_count, 50000);
    assert_int_equal(draws, 50000); /* each ends at its first draw, however full it is */
}

static void test_every_part_of_the_range_is_as_likely(void **state)
{
    enum { PARTS = 99, EACH = 400 };
    unsigned hits[PARTS] = {0};
    double chi = 0;

    (void)state;
    for (int i = 0; i < PARTS * EACH; i++) {
        const uint64_t now_ms = (uint64_t)i * 1000;
        const int id = allocate(now_ms);

        hits[(id - 1000) / 1000]++;
        sp_ids_release(ids, id, now_ms);
    }
    for (int i = 0; i < PARTS; i++)
        chi += ((double)hits[i] - EACH) * ((double)hits[i] - EACH) / EACH;
    assert_true(chi > 50 && chi < 160); /* 98 degrees of freedom: one in ten thousand outside */
}

static void test_a_released_id_rests_for_a_minute(void **state)
{
    (void)state;
    reserve(4711, 5000);
    sp_ids_release(ids, 4711, 10000);
    assert_false(sp_ids_is_reserved(ids, 4711));
    assert_true(rests(4711, 10000));
    assert_true(rests(4711, 69999));
    reserve(4711, 70000);
    assert_true(sp_ids_is_reserved(ids, 4711));
}

static void test_no_resting_id_is_drawn(void **state)
{
    (void)state;
    /* All but 990 are used and released: what is drawn then can only be one of the others. */
    for (int id = 1000; id <= 99009; id++)
        reserve(id, 0);
    release_all(0);
    assert_int_equal(ids->reserved_count, 0);
    assert_in_range(allocate(59999), 99010, 99999);
    has_none_free(59999);
    assert_in_range(allocate(60000), 1000, 99999);
}

static void test_fewer_than_one_per_cent_free_is_none(void **state)
{
    (void)state;
    for (int i = 0; i < SP_IDS_RANGE - 990; i++)
        (void)allocate(0);
    const int last = allocate(0); /* exactly 1 % was free */
    has_none_free(0);
    assert_int_equal(ids->reserved_count, SP_IDS_RANGE - 989);
    sp_ids_release(ids, last, 0);
    has_none_free(59999); /* it rests */
    (void)allocate(60000);
}

static void test_without_chance_nothing_is_handed_out(void **state)
{
    struct sp_err e = {0};
    int id = NO_ID;

    (void)state;
    is_chance_gone = true;
    assert_int_equal(sp_ids_allocate(ids, 0, &id, &e), -SP_E_SYSTEM);
    assert_int_equal(e.sys, ENOSYS);
    assert_int_equal(id, NO_ID);
    assert_int_equal(ids->reserved_count, 0);
}

/* ---- both ---- */

static void test_ids_outside_of_the_range_are_never_reserved(void **state)
{
    static const int outside[] = {0, -1, 1, 999, 100000, 424242, INT32_MAX, INT32_MIN};

    (void)state;
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        assert_false(sp_ids_is_reserved(ids, outside[i]));
        sp_ids_release(ids, outside[i], 0);
    }
    reserve(1000, 0);
    reserve(99999, 0);
    assert_int_equal(ids->reserved_count, 2);
}

static void test_releasing_twice_changes_nothing(void **state)
{
    (void)state;
    const int id = allocate(0);
    const int other = allocate(0);
    sp_ids_release(ids, id, 0);
    sp_ids_release(ids, id, 50000); /* and does not begin another rest */
    assert_int_equal(ids->reserved_count, 1);
    reserve(id, 60000);
    assert_int_equal(ids->reserved_count, 2);
    assert_true(sp_ids_is_reserved(ids, other));
}

static void test_everything_can_be_released_at_once(void **state)
{
    int given[200];

    (void)state;
    for (int i = 0; i < 200; i++)
        given[i] = allocate(0);
    release_all(1000);
    assert_int_equal(ids->reserved_count, 0);
    for (int i = 0; i < 200; i++) {
        assert_false(sp_ids_is_reserved(ids, given[i]));
        reserve(given[i], 61000);
    }
}

static void test_without_memory_nothing_changes_and_a_release_still_works(void **state)
{
    struct sp_err e = {0};
    int given[64];
    int id = NO_ID;

    (void)state;
    for (int i = 0; i < 64; i++)
        given[i] = allocate(0);
    end_memory_at(1);
    assert_int_equal(sp_ids_allocate(ids, 0, &id, &e), -SP_E_SYSTEM);
    assert_true(did_memory_end());
    assert_int_equal(e.sys, ENOMEM);
    assert_int_equal(id, NO_ID);
    assert_int_equal(ids->reserved_count, 64);

    end_memory_at(1);
    for (int i = 0; i < 64; i++)
        sp_ids_release(ids, given[i], 0);
    assert_false(did_memory_end());
    for (int i = 0; i < 64; i++)
        assert_true(rests(given[i], 59999));
}

/* ---- against a naive reference: one record an id ---- */

struct record {
    bool is_reserved, has_rested_before;
    uint64_t released_ms;
};

static struct record model[SP_IDS_RANGE];

static bool model_rests(const struct record *r, uint64_t now_ms)
{
    return r->has_rested_before && now_ms - r->released_ms < 60000;
}

static int model_next(void)
{
    int highest = 999;

    for (int i = 0; i < SP_IDS_RANGE; i++)
        if (model[i].is_reserved)
            highest = 1000 + i;
    return highest + 1;
}

static uint32_t model_count(void)
{
    uint32_t n = 0;

    for (int i = 0; i < SP_IDS_RANGE; i++)
        n += model[i].is_reserved;
    return n;
}

static void random_allocate(bool is_deterministic, uint64_t now_ms)
{
    const int id = allocate(now_ms);
    struct record *r = &model[id - 1000];

    if (is_deterministic)
        assert_int_equal(id, model_next());
    assert_false(r->is_reserved);
    assert_false(!is_deterministic && model_rests(r, now_ms));
    r->is_reserved = true;
}

static void random_reserve(bool is_deterministic, int id, uint64_t now_ms)
{
    struct record *r = &model[id - 1000];
    const bool is_free = !r->is_reserved && (is_deterministic || !model_rests(r, now_ms));

    assert_int_equal(!sp_ids_is_reserved(ids, id) && !rests(id, now_ms), is_free);
    if (is_free)
        reserve(id, now_ms);
    r->is_reserved = r->is_reserved || is_free;
}

static void random_release(int id, uint64_t now_ms)
{
    struct record *r = &model[id - 1000];

    sp_ids_release(ids, id, now_ms);
    if (r->is_reserved)
        *r = (struct record){.has_rested_before = true, .released_ms = now_ms};
}

/* A known id most of the time: a release should often hit. */
static int some_id(uint64_t *chance, bool is_deterministic)
{
    const uint32_t start = test_random(chance) % SP_IDS_RANGE;

    if (is_deterministic)
        return 1000 + (int)(start % 300);
    for (uint32_t i = 0; i < SP_IDS_RANGE && test_random(chance) % 50000 != 0; i++)
        if (model[(start + i) % SP_IDS_RANGE].is_reserved)
            return 1000 + (int)((start + i) % SP_IDS_RANGE);
    return 1000 + (int)start;
}

static void agrees_with_the_model(bool is_deterministic)
{
    uint64_t chance = 77;
    uint64_t now_ms = 0;

    memset(model, 0, sizeof model);
    for (int step = 0; step < 2500; step++) {
        const int id = some_id(&chance, is_deterministic);

        now_ms += test_random(&chance) % 400;
        switch (test_random(&chance) % 5) {
        case 0:
        case 1:
            random_allocate(is_deterministic, now_ms);
            break;
        case 2:
            random_reserve(is_deterministic, 1000 + (int)(test_random(&chance) % 3000), now_ms);
            break;
        default:
            random_release(id, now_ms);
            break;
        }
        assert_int_equal(sp_ids_is_reserved(ids, id), model[id - 1000].is_reserved);
        if (step % 50 == 0)
            assert_int_equal(ids->reserved_count, model_count());
    }
}

static void test_random_use_agrees_with_a_naive_reference(void **state)
{
    (void)state;
    agrees_with_the_model(false);
}

static void test_deterministic_use_agrees_with_a_naive_reference(void **state)
{
    (void)state;
    agrees_with_the_model(true);
}

#define COUNTING(test) cmocka_unit_test_setup_teardown(test, begin_deterministic, end)
#define RANDOM(test)   cmocka_unit_test_setup_teardown(test, begin_random, end)

static const struct CMUnitTest tests[] = {
    COUNTING(test_counting_begins_at_1000_and_again_when_all_is_released),
    COUNTING(test_the_highest_reserved_one_is_what_counts),
    COUNTING(test_counting_ends_with_the_range),
    COUNTING(test_counting_needs_one_per_cent_too),
    COUNTING(test_counting_needs_no_chance),
    RANDOM(test_random_ids_are_in_range_and_never_twice),
    RANDOM(test_every_part_of_the_range_is_as_likely),
    RANDOM(test_a_released_id_rests_for_a_minute),
    RANDOM(test_no_resting_id_is_drawn),
    RANDOM(test_fewer_than_one_per_cent_free_is_none),
    RANDOM(test_without_chance_nothing_is_handed_out),
    RANDOM(test_ids_outside_of_the_range_are_never_reserved),
    RANDOM(test_releasing_twice_changes_nothing),
    RANDOM(test_everything_can_be_released_at_once),
    RANDOM(test_without_memory_nothing_changes_and_a_release_still_works),
    RANDOM(test_random_use_agrees_with_a_naive_reference),
    COUNTING(test_deterministic_use_agrees_with_a_naive_reference),
};

TEST_MAIN(tests)

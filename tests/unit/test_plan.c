/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is to be a plan, from somebody who means harm: it is refused, or it keeps what
 * plan_fixture.h asks of it. All of it lies in blocks of its exact size, where a sanitizer sees the
 * first byte that is read too many.
 */
#include "base/buf.h"
#include "plan_fixture.h"
#include "test.h"

#define OPS 5

/* A header, OPS ops and strings, as they are laid out. */
struct small_plan {
    struct sp_plan head;
    struct sp_place_op ops[OPS];
    char strings[40];
};

static const char strings[] = "/\0/work\0/work/.git\0/etc/alias\0../target";

static struct small_plan small_plan(void)
{
    struct small_plan p = {
        .head = {.version = SP_PLAN_VERSION,
                 .bytes = sizeof p,
                 .tier = SP_TIER_CELL,
                 .view = SP_VIEW_NEW,
                 .net = SP_NET_OWN,
                 .landlock = 6,
                 .notifies = 1,
                 .op_count = OPS,
                 .strings = offsetof(struct small_plan, strings)},
        .ops = {{.op = SP_OP_READ, .is_dir = 1, .path = 0},
                {.op = SP_OP_WRITE, .is_dir = 1, .dev = 1, .ino = 2, .path = 2},
                {.op = SP_OP_EMPTY, .is_dir = 1, .mode = 0555, .path = 8},
                {.op = SP_OP_PIN, .is_dir = 1, .dev = 1, .ino = 3, .path = 2},
                {.op = SP_OP_ALIAS, .path = 19, .target = 30}},
    };

    _Static_assert(sizeof strings == 40, "the strings fill their room");
    memcpy(p.strings, strings, sizeof strings);
    return p;
}

/* From a block of just these bytes. */
static bool is_taken(const void *memory, size_t bytes)
{
    char *copy = test_copy((struct sp_str){memory, bytes});
    const struct sp_plan *p = sp_plan_check(copy, bytes);
    const char *flaw = p == NULL ? NULL : plan_flaw(copy, bytes);

    if (p != NULL && p != (const void *)copy)
        fail_msg("%s", "another plan than the one that was given");
    if (flaw != NULL)
        fail_msg("taken, though this is wrong: %s", flaw);
    free(copy);
    return p != NULL;
}

static void taken(const struct small_plan *p)
{
    assert_true(is_taken(p, sizeof *p));
}

static void refused(const struct small_plan *p)
{
    assert_false(is_taken(p, sizeof *p));
}

/* ---- what is fine ---- */

static void test_a_plan_is_taken_as_it_is(void **state)
{
    const struct small_plan p = small_plan();
    const struct sp_plan *q = sp_plan_check(&p, sizeof p);

    (void)state;
    assert_null(plan_flaw(&p, sizeof p));
    assert_ptr_equal(q, &p);
    assert_string_equal(sp_plan_string(q, q->ops[2].path), "/work/.git");
    assert_string_equal(sp_plan_string(q, q->ops[4].target), "../target");
    taken(&p);
}

static void test_a_plan_without_places_is_one(void **state)
{
    struct sp_plan p = {.version = SP_PLAN_VERSION, .bytes = sizeof p, .strings = sizeof p};

    (void)state;
    assert_true(is_taken(&p, sizeof p));
    p.op_count = 1; /* of which nothing is there */
    assert_false(is_taken(&p, sizeof p));
    p.strings += (uint32_t)sizeof(struct sp_place_op);
    assert_false(is_taken(&p, sizeof p));
}

static void test_every_kind_of_plan_is_taken(void **state)
{
    struct small_plan p = small_plan();

    (void)state;
    for (uint32_t tier = 0; tier <= SP_TIER_CELL; tier++)
        for (uint32_t view = 0; view <= SP_VIEW_NEW; view++)
            for (uint32_t net = 0; net <= SP_NET_HOST; net++) {
                p.head.tier = tier;
                p.head.view = view;
                p.head.net = net;
                taken(&p);
            }
}

/* ---- what is not ---- */

static void test_no_part_of_a_plan_is_one(void **state)
{
    struct small_plan p = small_plan();

    (void)state;
    for (size_t n = 0; n < sizeof p; n++) {
        p.head.bytes = sizeof p;
        assert_false(is_taken(&p, n)); /* it says that it is longer */
        p.head.bytes = (uint32_t)n;
        assert_false(is_taken(&p, n)); /* it does not, but the last string has no end */
    }
}

/* Cut behind a string's end it is one exactly if nothing refers to what was cut off. */
static void test_a_plan_that_was_cut_well_is_one(void **state)
{
    struct small_plan p = small_plan();

    (void)state;
    p.ops[4] = p.ops[0];
    for (size_t n = p.head.strings; n < sizeof p; n++) {
        p.head.bytes = (uint32_t)n;
        const size_t strings_left = n - p.head.strings;
        assert_int_equal(is_taken(&p, n), strings_left >= 19 && strings[strings_left - 1] == 0);
    }
}

static void test_a_plan_that_is_longer_than_it_says_is_none(void **state)
{
    struct {
        struct small_plan p;
        char more[8];
    } longer = {.p = small_plan()};

    (void)state;
    assert_false(is_taken(&longer, sizeof longer));
    longer.p.head.bytes = sizeof longer;
    assert_true(is_taken(&longer, sizeof longer)); /* nobody refers to the rest */
}

static const uint32_t odd_numbers[] = {3,           4,          0x100,       0xffff,
                                       0x10000,     0x7fffffff, 0x80000000U, 0xfffffffeU,
                                       0xffffffffU, 0x08000000, 0x07ffffff,  1U << 27};
#define ODD (sizeof odd_numbers / sizeof odd_numbers[0])

static void test_unknown_tiers_views_and_networks_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ODD; i++) {
        struct small_plan p = small_plan();

        p.head.version = odd_numbers[i];
        refused(&p);
        p = small_plan();
        p.head.tier = odd_numbers[i];
        refused(&p);
        p = small_plan();
        p.head.view = odd_numbers[i];
        refused(&p);
        p = small_plan();
        p.head.net = odd_numbers[i] > SP_NET_HOST ? odd_numbers[i] : SP_NET_HOST + 1;
        refused(&p);
        p = small_plan();
        p.head.bytes = odd_numbers[i];
        refused(&p);
    }
    struct small_plan p = small_plan();
    p.head.version = 0;
    refused(&p);
}

/* 32 times the count is the same in 32 bits for counts that are 2^27 apart. */
static void test_counts_that_wrap_around_are_refused(void **state)
{
    (void)state;
    for (uint32_t high = 1; high < 32; high++) {
        struct small_plan p = small_plan();

        p.head.op_count += high << 27;
        refused(&p);
    }
    for (uint64_t n = 0; n <= 64; n++) {
        struct small_plan p = small_plan();

        if (n == OPS)
            continue;
        p.head.op_count = (uint32_t)n;
        refused(&p);
        p.head.strings = (uint32_t)(sizeof p.head + n * sizeof p.ops[0]);
        (void)is_taken(&p, sizeof p); /* fewer ops, more strings: if it is taken, it is right */
        p.head.op_count = (uint32_t)(UINT32_MAX - n);
        p.head.strings = (uint32_t)(sizeof p.head + p.head.op_count * sizeof p.ops[0]);
        refused(&p);
    }
}

static void test_strings_start_behind_the_ops(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2 * sizeof(struct small_plan); i++) {
        struct small_plan p = small_plan();

        if (i == p.head.strings)
            continue;
        p.head.strings = i;
        refused(&p);
    }
    for (size_t i = 0; i < ODD; i++) {
        struct small_plan p = small_plan();

        p.head.strings = odd_numbers[i];
        refused(&p);
    }
}

static void test_ops_that_nobody_knows_are_refused(void **state)
{
    (void)state;
    for (uint32_t op = 0; op <= UINT8_MAX; op++) {
        struct small_plan p = small_plan();

        p.ops[op % OPS].op = (uint8_t)op;
        if (op == 0 || op >= SP_OP_MAX)
            refused(&p);
    }
}

static void test_offsets_lead_to_paths_in_the_strings(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < OPS; i++) {
        struct small_plan p = small_plan();

        for (uint32_t at = 0; at < 2 * sizeof p; at++) {
            p.ops[i].path = at;
            assert_int_equal(is_taken(&p, sizeof p), at < sizeof strings && strings[at] == '/');
        }
        for (size_t k = 0; k < ODD; k++) {
            p.ops[i].path = odd_numbers[k] | 0x40;
            refused(&p);
        }
        /* Back into the ops, if the sum were taken in 32 bits. */
        p.ops[i].path = (uint32_t) - (int)sizeof p.ops[0];
        refused(&p);
    }
}

static void test_the_target_of_a_link_lies_in_the_strings(void **state)
{
    struct small_plan p = small_plan();

    (void)state;
    for (uint32_t at = 0; at < 2 * sizeof p; at++) {
        p.ops[4].target = at;
        assert_int_equal(is_taken(&p, sizeof p), at < sizeof strings);
    }
    for (size_t k = 0; k < ODD; k++) {
        p.ops[4].target = odd_numbers[k] | 0x40;
        refused(&p);
    }
    p = small_plan();
    p.ops[3].target = UINT32_MAX; /* no link, no target */
    taken(&p);
}

static void test_the_last_string_has_an_end(void **state)
{
    struct small_plan p = small_plan();

    (void)state;
    p.strings[sizeof p.strings - 1] = 'x';
    refused(&p);
    memset(p.strings, '/', sizeof p.strings);
    refused(&p);
    p.strings[sizeof p.strings - 1] = 0; /* one long path, and what each op refers to is in it */
    taken(&p);
}

static void test_a_plan_may_be_large_and_not_larger(void **state)
{
    struct sp_plan head = {
        .version = SP_PLAN_VERSION, .bytes = SP_PLAN_MAX, .strings = sizeof head};
    char *memory = calloc(1, SP_PLAN_MAX + 1);

    (void)state;
    assert_non_null(memory);
    memcpy(memory, &head, sizeof head);
    assert_non_null(sp_plan_check(memory, SP_PLAN_MAX));
    head.bytes++;
    memcpy(memory, &head, sizeof head);
    assert_null(sp_plan_check(memory, SP_PLAN_MAX + 1));
    free(memory);
}

/* ---- chance ---- */

static void change_something(uint64_t *seed, char *bytes, size_t len)
{
    static const uint32_t liked[] = {0,    1,    2,          3,           32,         40,
                                     0xff, 0x2f, 0x08000005, 0xffffffffU, 0x80000000U};
    const uint32_t how = test_random(seed) % 4;
    const size_t at = test_random(seed) % len;
    const uint32_t number = liked[test_random(seed) % (sizeof liked / sizeof liked[0])];

    if (how == 0)
        bytes[at] = (char)test_random(seed);
    else if (how == 1)
        bytes[at] = (char)(bytes[at] ^ (1 << test_random(seed) % 8));
    else if (how == 2)
        memcpy(bytes + at / 4 * 4, &number, at / 4 * 4 + 4 <= len ? 4 : 0);
    else {
        const size_t from = test_random(seed) % len;

        memmove(bytes + at, bytes + from, (len - (at > from ? at : from)) / 4);
    }
}

static void test_whatever_happens_to_a_plan_it_is_right_or_refused(void **state)
{
    uint64_t seed = 1;
    unsigned accepted = 0;
    unsigned rejected = 0;

    (void)state;
    for (int i = 0; i < 40000; i++) {
        struct small_plan p = small_plan();
        size_t len = sizeof p;
        int changes = 1 + (int)(test_random(&seed) % 4);

        while (changes-- > 0)
            change_something(&seed, (char *)&p, sizeof p);
        if (test_random(&seed) % 4 == 0) {
            len = test_random(&seed) % (sizeof p + 1);
            p.head.bytes = test_random(&seed) % 2 == 0 ? p.head.bytes : (uint32_t)len;
        }
        if (is_taken(&p, len))
            accepted++;
        else
            rejected++;
    }
    print_message("# %u taken, %u refused\n", accepted, rejected);
    assert_true(accepted > 1000 && rejected > 1000);
}

static void test_noise_is_no_plan(void **state)
{
    uint64_t seed = 2;
    char noise[512];

    (void)state;
    for (int i = 0; i < 5000; i++) {
        const size_t len = test_random(&seed) % sizeof noise;

        for (size_t k = 0; k < len; k++)
            noise[k] = (char)test_random(&seed);
        assert_false(is_taken(noise, len));
    }
}

/* ---- names ---- */

static void test_every_step_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SP_BUILD_MAX; i++) {
        assert_non_null(sp_build_step_name(i));
        assert_string_not_equal(sp_build_step_name(i), "");
        assert_string_not_equal(sp_build_step_name(i), "unknown");
        for (uint32_t k = 0; k < i; k++)
            assert_string_not_equal(sp_build_step_name(i), sp_build_step_name(k));
    }
    assert_string_equal(sp_build_step_name(SP_BUILD_MAX), "unknown");
    assert_string_equal(sp_build_step_name(UINT32_MAX), "unknown");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_a_plan_is_taken_as_it_is),
    cmocka_unit_test(test_a_plan_without_places_is_one),
    cmocka_unit_test(test_every_kind_of_plan_is_taken),
    cmocka_unit_test(test_no_part_of_a_plan_is_one),
    cmocka_unit_test(test_a_plan_that_was_cut_well_is_one),
    cmocka_unit_test(test_a_plan_that_is_longer_than_it_says_is_none),
    cmocka_unit_test(test_unknown_tiers_views_and_networks_are_refused),
    cmocka_unit_test(test_counts_that_wrap_around_are_refused),
    cmocka_unit_test(test_strings_start_behind_the_ops),
    cmocka_unit_test(test_ops_that_nobody_knows_are_refused),
    cmocka_unit_test(test_offsets_lead_to_paths_in_the_strings),
    cmocka_unit_test(test_the_target_of_a_link_lies_in_the_strings),
    cmocka_unit_test(test_the_last_string_has_an_end),
    cmocka_unit_test(test_a_plan_may_be_large_and_not_larger),
    cmocka_unit_test(test_whatever_happens_to_a_plan_it_is_right_or_refused),
    cmocka_unit_test(test_noise_is_no_plan),
    cmocka_unit_test(test_every_step_has_a_name_of_its_own),
};

TEST_MAIN(tests)

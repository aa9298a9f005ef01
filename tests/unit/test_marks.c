/* SPDX-License-Identifier: Apache-2.0 */
/* What a peer has confirmed: pongs, late pongs, peers without pongs, and the kernel's queue. */
#include "server/net/marks.h"
#include "test.h"

static void make(struct sp_marks *m, bool pings, uint64_t offset, uint64_t now, char *ret)
{
    m->is_wanted = true;
    sp_marks_make(m, pings, offset, now, (uint8_t *)ret);
}

static void test_a_pong_confirms_all_before_it(void **state)
{
    struct sp_marks m = {0};
    char ping[4][SP_MARKS_BYTES];

    (void)state;
    for (unsigned i = 0; i < 4; i++)
        make(&m, true, 1000 * (i + 1), i, ping[i]);
    assert_true(sp_marks_pong(&m, ping[1], sizeof ping[1]));
    assert_int_equal(m.confirmed, 2);
    assert_false(sp_marks_pong(&m, ping[0], sizeof ping[0])); /* an old one */
    assert_false(sp_marks_pong(&m, ping[1], sizeof ping[1])); /* a second time */
    assert_false(sp_marks_pong(&m, ping[3], sizeof ping[3] - 1));
    assert_false(sp_marks_pong(&m, "", 0));
    assert_false(sp_marks_pong(&m, "\xff\xff\xff\xff\xff\xff\xff\xff", 8)); /* not made yet */
    assert_int_equal(m.confirmed, 2);
    assert_true(sp_marks_pong(&m, ping[3], sizeof ping[3]));
    assert_false(sp_marks_are_under_way(&m));
}

static void test_only_so_many_are_under_way(void **state)
{
    struct sp_marks m = {0};
    char ping[SP_MARKS_BYTES];

    (void)state;
    for (unsigned i = 0; i < SP_MARKS_MAX; i++)
        make(&m, true, i, 0, ping);
    assert_int_equal(sp_marks_next(&m), SP_MARKS_MAX + 1);
    m.is_wanted = true;
    assert_false(sp_marks_are_due(&m));
    assert_true(sp_marks_pong(&m, ping, sizeof ping));
    assert_true(sp_marks_are_due(&m));
}

static void test_a_late_pong_counts_as_read_if_the_kernel_has_it(void **state)
{
    struct sp_marks m = {0};
    char ping[SP_MARKS_BYTES];
    const uint64_t late = 100 + SP_MARKS_PONG_MS;

    (void)state;
    make(&m, true, 1000, 100, ping);
    make(&m, true, 2000, 200, ping);
    assert_int_equal(m.look_ms, late);
    assert_false(sp_marks_wants_look(&m, true, late - 1));
    assert_true(sp_marks_wants_look(&m, true, late));
    assert_false(sp_marks_look(&m, true, 999, late)); /* one byte is missing */
    assert_true(m.look_ms > late && m.look_ms < late + 1000);
    assert_true(sp_marks_look(&m, true, 5000, late + 1));
    assert_int_equal(m.confirmed, 1); /* the second is not late */
    /* A peer that never answered is deaf: from now on the kernel's word is enough. */
    assert_true(m.is_deaf && sp_marks_wants_look(&m, true, late + 2));
    assert_true(sp_marks_look(&m, true, 5000, late + 2));
    assert_int_equal(m.confirmed, 2);
    make(&m, true, 6000, late + 3, ping);
    assert_true(sp_marks_look(&m, true, 6000, late + 3));
    /* Until it answers. */
    make(&m, true, 7000, late + 4, ping);
    assert_true(sp_marks_pong(&m, ping, sizeof ping));
    make(&m, true, 8000, late + 5, ping);
    assert_false(m.is_deaf);
    assert_false(sp_marks_look(&m, true, 8000, late + 5));
    assert_true(sp_marks_look(&m, true, 8000, late + 5 + SP_MARKS_PONG_MS));
    assert_false(m.is_deaf); /* it is known to answer */
    assert_int_equal(m.look_ms, 0);
}

static void test_without_frames_the_kernel_tells(void **state)
{
    struct sp_marks m = {0};
    char unused[SP_MARKS_BYTES];
    uint64_t now = 50;
    uint64_t looks = 0;

    (void)state;
    make(&m, false, 1000, now, unused);
    make(&m, false, 3000, now, unused);
    assert_true(sp_marks_wants_look(&m, false, now));
    assert_true(sp_marks_look(&m, false, 2999, now));
    assert_int_equal(m.confirmed, 1);
    for (; now < 1050; now++)
        if (now >= m.look_ms) {
            assert_false(sp_marks_look(&m, false, 2999, now));
            looks++;
        }
    assert_in_range(looks, 10, 40); /* less and less often */
    assert_true(sp_marks_look(&m, false, UINT64_MAX, now));
    assert_int_equal(m.look_ms, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_pong_confirms_all_before_it),
        cmocka_unit_test(test_only_so_many_are_under_way),
        cmocka_unit_test(test_a_late_pong_counts_as_read_if_the_kernel_has_it),
        cmocka_unit_test(test_without_frames_the_kernel_tells),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "test.h"

static void test_a_new_buffer_holds_nothing_and_may_be_freed(void **state)
{
    struct sp_buf b = {0};

    (void)state;
    sp_buf_done(&b);
    assert_null(b.data);
    assert_int_equal(b.len, 0);
}

static void test_what_was_added_is_there_in_order(void **state)
{
    auto_buf struct sp_buf b = {0};

    (void)state;
    assert_true(sp_buf_add(&b, "one", 3));
    assert_true(sp_buf_add_str(&b, SP_STR("\0two")));
    assert_true(sp_buf_printf(&b, "-%d-%s", 3, "three"));
    assert_true(sp_buf_add(&b, NULL, 0));
    assert_bytes(b.data, b.len, "one\0two-3-three");
}

static void test_it_grows_far_beyond_its_first_size(void **state)
{
    auto_buf struct sp_buf b = {0};

    (void)state;
    for (unsigned i = 0; i < 100000; i++) {
        const unsigned char c = (unsigned char)(i * 7);

        assert_true(sp_buf_add(&b, &c, 1));
    }
    assert_int_equal(b.len, 100000);
    for (unsigned i = 0; i < 100000; i++)
        assert_int_equal((unsigned char)b.data[i], (unsigned char)(i * 7));
}

static void test_the_maximum_is_reached_and_never_passed(void **state)
{
    auto_buf struct sp_buf b = {.max = 200};
    char bytes[201] = {0};

    (void)state;
    assert_false(sp_buf_add(&b, bytes, 201));
    assert_int_equal(b.len, 0);
    assert_true(sp_buf_add(&b, bytes, 150));
    assert_false(sp_buf_add(&b, bytes, 51));
    assert_int_equal(b.len, 150);
    assert_true(sp_buf_add(&b, bytes, 50));
    assert_int_equal(b.len, 200);
    assert_false(sp_buf_add(&b, bytes, 1));
    assert_true(b.cap <= b.max);
    sp_buf_done(&b);
    assert_int_equal(b.max, 200);
}

static void test_a_size_that_would_overflow_is_refused(void **state)
{
    auto_buf struct sp_buf b = {0};

    (void)state;
    assert_true(sp_buf_add(&b, "x", 1));
    assert_null(sp_buf_room(&b, SIZE_MAX));
    assert_null(sp_buf_room(&b, SIZE_MAX / 2));
    assert_bytes(b.data, b.len, "x");
}

static void test_room_does_not_count_until_it_is_used(void **state)
{
    auto_buf struct sp_buf b = {0};

    (void)state;
    char *room = sp_buf_room(&b, 1000);
    assert_non_null(room);
    assert_int_equal(b.len, 0);
    memset(room, 'r', 1000);
    b.len += 1000;
    assert_ptr_equal(sp_buf_room(&b, 0), b.data + 1000);
}

static void test_a_text_that_does_not_fit_is_not_printed_at_all(void **state)
{
    auto_buf struct sp_buf b = {.max = 8};

    (void)state;
    assert_true(sp_buf_add(&b, "abc", 3));
    assert_false(sp_buf_printf(&b, "%s", "far too long"));
    assert_bytes(b.data, b.len, "abc");
    assert_true(sp_buf_printf(&b, "%d", 42));
    assert_bytes(b.data, b.len, "abc42");
}

static void test_dropping_takes_from_the_front(void **state)
{
    auto_buf struct sp_buf b = {0};

    (void)state;
    sp_buf_drop(&b, 0);
    assert_true(sp_buf_add(&b, "headtail", 8));
    sp_buf_drop(&b, 0);
    assert_bytes(b.data, b.len, "headtail");
    sp_buf_drop(&b, 4);
    assert_bytes(b.data, b.len, "tail");
    sp_buf_drop(&b, 4);
    assert_int_equal(b.len, 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_a_new_buffer_holds_nothing_and_may_be_freed),
    cmocka_unit_test(test_what_was_added_is_there_in_order),
    cmocka_unit_test(test_it_grows_far_beyond_its_first_size),
    cmocka_unit_test(test_the_maximum_is_reached_and_never_passed),
    cmocka_unit_test(test_a_size_that_would_overflow_is_refused),
    cmocka_unit_test(test_room_does_not_count_until_it_is_used),
    cmocka_unit_test(test_a_text_that_does_not_fit_is_not_printed_at_all),
    cmocka_unit_test(test_dropping_takes_from_the_front),
};

TEST_MAIN(tests)

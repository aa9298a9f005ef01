/* SPDX-License-Identifier: Apache-2.0 */
#include <locale.h>
#include <stdio.h>

#include "base/buf.h"
#include "engine/run.h"
#include "test.h"

#define TOKENS(n) ((struct sp_allowance){SP_ALLOWANCE_TOKENS, (n)})
#define MS        ((uint64_t)1000000)

static void assert_share(size_t out, size_t err, size_t cap, size_t want_out, size_t want_err)
{
    size_t o = 0;
    size_t e = 0;

    sp_run_share(out, err, cap, &o, &e);
    assert_int_equal(o, want_out);
    assert_int_equal(e, want_err);
}

static void test_errors_get_two_thirds_and_spare_room_goes_to_the_other(void **state)
{
    (void)state;
    assert_share(SP_RUN_CAP, SP_RUN_CAP, SP_RUN_CAP, 349525, 699051);
    assert_share(104857, SP_RUN_CAP, SP_RUN_CAP, 104857, 943719);
    assert_share(SP_RUN_CAP, 1, SP_RUN_CAP, 1048575, 1);
    assert_share(4, 3, SP_RUN_CAP, 4, 3);
    assert_share(4, 3, 7, 4, 3);
    assert_share(4, 3, 6, 3, 3);
    assert_share(9, 9, 0, 0, 0);
    assert_share(SIZE_MAX - 1, 1, SIZE_MAX, SIZE_MAX - 1, 1);
    assert_share(SIZE_MAX, SIZE_MAX, 3, 1, 2);
}

static struct sp_run_result exited(int code, const char *text, uint64_t ns)
{
    return (struct sp_run_result){
        .kind = SP_RUN_EXITED,
        .exit_code = code,
        .aggregated = sp_str_of(text),
        .out = sp_str_of(text),
        .duration_ns = ns,
        .timeout_ms = 500,
    };
}

static void assert_text(const struct sp_run_result *r, uint64_t tokens, const char *want)
{
    auto_buf struct sp_buf out = {0};

    assert_true(sp_run_add_text(&out, r, TOKENS(tokens)));
    assert_true(sp_buf_add(&out, "", 1));
    assert_string_equal(out.data, want);
}

static void assert_wall(uint64_t ns, const char *seconds)
{
    const struct sp_run_result r = exited(0, "", ns);
    char want[128];

    (void)snprintf(want, sizeof want, "Exit code: 0\nWall time: %s seconds\nOutput:\n", seconds);
    assert_text(&r, 10, want);
}

static void test_wall_time_has_no_digit_too_many(void **state)
{
    (void)state;
    assert_wall(0, "0");
    assert_wall(49 * MS, "0");
    assert_wall(50 * MS, "0.1");
    assert_wall(149 * MS, "0.1");
    assert_wall(949 * MS, "0.9");
    assert_wall(950 * MS, "1");
    assert_wall(1500 * MS, "1.5");
    assert_wall(12000 * MS, "12");
    assert_wall(UINT64_MAX, "18446744073.7");
}

static void test_lines_are_counted_only_where_truncation_changed_their_number(void **state)
{
    struct sp_run_result r = exited(3, "hello\n", 0);

    (void)state;
    assert_text(&r, 10, "Exit code: 3\nWall time: 0 seconds\nOutput:\nhello\n");
    r = exited(0, "one\ntwo\nthree\nfour\nfive\n", 0);
    assert_text(&r, 2,
                "Exit code: 0\nWall time: 0 seconds\nTotal output lines: 5\nOutput:\n"
                "one\n…4 tokens truncated…ive\n");
    r = exited(0, "aaaaaaaaaaaaaaaa", 0);
    assert_text(&r, 2, "Exit code: 0\nWall time: 0 seconds\nOutput:\naaaa…2 tokens truncated…aaaa");
}

static void test_a_time_out_is_said_before_the_output(void **state)
{
    struct sp_run_result r = exited(SP_RUN_TIMEOUT_CODE, "so far", 600 * MS);

    (void)state;
    r.kind = SP_RUN_TIMED_OUT;
    r.class = SP_RUN_TIMEOUT;
    assert_text(&r, 100,
                "Exit code: 124\nWall time: 0.6 seconds\nOutput:\n"
                "command timed out after 500 milliseconds\nso far");
}

static void test_ill_formed_output_becomes_text(void **state)
{
    const struct sp_run_result r = exited(0, "a\xFF\xC3", 0);

    (void)state;
    assert_text(&r, 10, "Exit code: 0\nWall time: 0 seconds\nOutput:\na\xEF\xBF\xBD\xEF\xBF\xBD");
}

static void assert_message(const struct sp_run_result *r, const char *want)
{
    auto_buf struct sp_buf out = {0};

    assert_true(sp_run_add_message(&out, r));
    assert_true(sp_buf_add(&out, "", 1));
    assert_string_equal(out.data, want);
}

static void test_other_ends_have_their_messages(void **state)
{
    const struct sp_err lost = {.code = SP_E_FAILED, .msg = "connection lost"};
    const struct sp_err refused = {
        .code = SP_E_SYSTEM, .sys = 2, .msg = "No such file or directory (os error 2)"};
    const struct sp_err ours = {.code = SP_E_SYSTEM, .sys = 12, .msg = "keep the output"};
    struct sp_run_result r = exited(0, "fine\n", 0);

    (void)state;
    assert_message(&r, "fine\n");
    r.kind = SP_RUN_FAILED;
    r.class = SP_RUN_ERROR;
    r.error = &lost;
    assert_message(&r, "fine\n\nexecution error: connection lost");
    r.aggregated = (struct sp_str){0};
    r.error = &refused;
    assert_message(&r, "execution error: No such file or directory (os error 2)");
    r.error = &ours;
    assert_message(&r, "execution error: keep the output: Cannot allocate memory (os error 12)");
}

static void test_without_room_nothing_is_appended(void **state)
{
    const struct sp_run_result r = exited(0, "some output", 0);

    (void)state;
    for (size_t max = 1; max < 40; max++) {
        auto_buf struct sp_buf out = {.max = max};

        assert_false(sp_run_add_text(&out, &r, TOKENS(100)));
        assert_int_equal(out.len, 0);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_errors_get_two_thirds_and_spare_room_goes_to_the_other),
    cmocka_unit_test(test_wall_time_has_no_digit_too_many),
    cmocka_unit_test(test_lines_are_counted_only_where_truncation_changed_their_number),
    cmocka_unit_test(test_a_time_out_is_said_before_the_output),
    cmocka_unit_test(test_ill_formed_output_becomes_text),
    cmocka_unit_test(test_other_ends_have_their_messages),
    cmocka_unit_test(test_without_room_nothing_is_appended),
};

TEST_MAIN(tests)

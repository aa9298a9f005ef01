/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/runtime_dir.h"
#include "test.h"

/* Two engines in two threads each keep theirs: the text belongs to the caller. */
static void test_a_candidate_stays_when_another_is_made(void **state)
{
    char first[64];
    char second[64];

    (void)state;
    (void)setenv("XDG_RUNTIME_DIR", "/first", 1);
    assert_true(sp_runtime_candidate(2, first, sizeof first));
    (void)setenv("XDG_RUNTIME_DIR", "/second", 1);
    assert_true(sp_runtime_candidate(2, second, sizeof second));
    assert_string_equal(first, "/first/sallyport");
    assert_string_equal(second, "/second/sallyport");
}

static void test_the_chosen_directory_is_a_candidate(void **state)
{
    char chosen[4096];
    char each[4096];
    bool is_there = false;

    (void)state;
    (void)setenv("XDG_RUNTIME_DIR", "/tmp", 1);
    sp_runtime_dir(chosen, sizeof chosen);
    for (unsigned i = 0; sp_runtime_candidate(i, each, sizeof each); i++)
        is_there = is_there || strcmp(chosen, each) == 0;
    assert_true(is_there);
}

static void test_a_variable_that_is_no_path_or_too_long_is_left_out(void **state)
{
    char ret[16];

    (void)state;
    (void)setenv("XDG_RUNTIME_DIR", "run", 1);
    assert_true(sp_runtime_candidate(2, ret, sizeof ret));
    assert_string_equal(ret, "");
    (void)setenv("XDG_RUNTIME_DIR", "/12345", 1); /* one byte too many */
    assert_true(sp_runtime_candidate(2, ret, sizeof ret));
    assert_string_equal(ret, "");
    (void)setenv("XDG_RUNTIME_DIR", "/1234", 1);
    assert_true(sp_runtime_candidate(2, ret, sizeof ret));
    assert_string_equal(ret, "/1234/sallyport");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_a_candidate_stays_when_another_is_made),
    cmocka_unit_test(test_the_chosen_directory_is_a_candidate),
    cmocka_unit_test(test_a_variable_that_is_no_path_or_too_long_is_left_out),
};

TEST_MAIN(tests)

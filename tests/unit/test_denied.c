/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/job.h"
#include "test.h"

#define LINUX SP_JOB_SANDBOX_LINUX
#define NONE  ((struct sp_str){0})

static bool guess(enum sp_job_sandbox sandbox, int code, const char *out, const char *err)
{
    return sp_denied_is_likely(sandbox, code, sp_str_of(out), sp_str_of(err));
}

static void test_words_of_a_failed_command_in_a_sandbox_count(void **state)
{
    (void)state;
    assert_false(guess(LINUX, 1, "", ""));
    assert_true(guess(LINUX, 1, "", "touch: x: Operation not permitted\n"));
    assert_true(guess(LINUX, 1, "READ-ONLY FILE SYSTEM", ""));
    assert_true(guess(LINUX, 101, "", "x: Read-only file system (os error 30)"));
    assert_true(guess(LINUX, 1, "", "failed to write file"));
    assert_true(guess(LINUX, 1, "permission ", "denied")); /* the two as one text */
    assert_false(guess(LINUX, 1, "", "permissions denied"));
}

static void test_without_a_sandbox_nothing_was_denied_by_it(void **state)
{
    (void)state;
    assert_false(guess(SP_JOB_SANDBOX_NONE, 1, "", "Operation not permitted"));
    assert_false(guess(SP_JOB_SANDBOX_UNKNOWN, 1, "", "Operation not permitted"));
    assert_false(guess(SP_JOB_SANDBOX_NONE, 159, "", ""));
}

static void test_words_come_before_the_codes_of_a_shell(void **state)
{
    (void)state;
    assert_false(guess(LINUX, 127, "", "x: command not found"));
    assert_false(guess(LINUX, 2, "", "usage"));
    assert_true(guess(LINUX, 126, "", "x: Permission denied"));
}

static void test_success_is_never_a_denial(void **state)
{
    const struct sp_job_exit how = {.code = 0, .denied = 1};

    (void)state;
    assert_false(guess(LINUX, 0, "sandbox", "seccomp landlock"));
    assert_false(sp_denied_judge(LINUX, &how, NONE, NONE));
}

static void test_an_unknown_end_is_never_a_denial(void **state)
{
    const struct sp_job_exit how = {.code = -1, .denied = -1};

    (void)state;
    assert_false(guess(LINUX, -1, "", "permission denied"));
    assert_false(sp_denied_judge(LINUX, &how, NONE, SP_STR("permission denied")));
}

static void test_a_forbidden_system_call_is_one_without_a_word(void **state)
{
    (void)state;
    assert_true(guess(LINUX, 159, "", ""));
    assert_false(guess(LINUX, 158, "", ""));
}

static void test_the_executors_word_and_the_kernels_need_no_guess(void **state)
{
    const struct sp_denial_facts told = {.has_evidence = true};
    const struct sp_denial_facts read = {.has_words = true};
    struct sp_job_exit how = {.code = 2, .denied = 1};

    (void)state;
    assert_true(sp_denied_judge(LINUX, &how, NONE, NONE));
    assert_true(sp_denied_judge(SP_JOB_SANDBOX_UNKNOWN, &how, NONE, NONE));
    assert_false(sp_denied_judge(SP_JOB_SANDBOX_NONE, &how, NONE, NONE));
    how = (struct sp_job_exit){.code = 2, .denied = -1, .denial = &told};
    assert_true(sp_denied_judge(LINUX, &how, NONE, NONE));
    how.denial = &read;
    assert_false(sp_denied_judge(LINUX, &how, NONE, NONE));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_words_of_a_failed_command_in_a_sandbox_count),
    cmocka_unit_test(test_without_a_sandbox_nothing_was_denied_by_it),
    cmocka_unit_test(test_words_come_before_the_codes_of_a_shell),
    cmocka_unit_test(test_success_is_never_a_denial),
    cmocka_unit_test(test_an_unknown_end_is_never_a_denial),
    cmocka_unit_test(test_a_forbidden_system_call_is_one_without_a_word),
    cmocka_unit_test(test_the_executors_word_and_the_kernels_need_no_guess),
};

TEST_MAIN(tests)

/* SPDX-License-Identifier: Apache-2.0 */
#include "approve/judge.h"
#include "memory_fixture.h"
#include "test.h"

static enum sp_danger danger_of(const char *command)
{
    auto_segments struct sp_segments words = {0};
    enum sp_danger danger = SP_DANGER_OTHER;
    struct sp_err e = {0};

    assert_int_equal(sp_words_split(&words, sp_str_of(command), &e), 0);
    assert_int_equal(sp_judge_danger(words.items[0], &danger, &e), 0);
    return danger;
}

static void test_forced_removals(void **state)
{
    static const char *const rows[] = {
        "rm -f x",
        "rm -rf x",
        "rm -fr x",
        "rm x -f",
        "rm --force x",
        "/bin/rm -vf x",
        "rm -f",
        "sudo rm -f x",
        "sudo sudo rm -f x",
        "env rm -f x",
        "env A=1 B= rm -f x",
        "env -i rm -f x",
        "env --ignore-environment A=1 -- rm -f x",
        "/usr/bin/env rm -f x",
        "trap 'rm -f x' EXIT",
        "trap -- 'rm -f x' EXIT",
        "bash -c 'rm -f x'",
        "/bin/zsh -lc 'ls; rm -f x'",
        "sh -c \"sh -c 'rm -f x'\"",
        "sudo bash -c 'rm -f x'",
        "sh -c '\\rm -f x'",
        "sh -c \"r'm' -f x\"",
        "sh -c 'sudo env rm -f \"$x\"'",
        "sh -c 'f() { rm -f x; }'",
        "sh -c \"trap 'rm -f x' 0\"",
        "sh -c 'rm -f x; \"'",
        "sh -c '((rm -f x))'", /* two subshells to a shell without arithmetic commands */
        "sh -c '((((rm -f x))))'",
        "sh -c '((rm -f x); ls)'",
        "sh -c 'env env env env env env env env env a; rm -f x'",
        "sh -c 'rm -f x; env env env env env env env env env a'",
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (danger_of(rows[i]) != SP_DANGER_FORCED_RM)
            fail_msg("%s is not seen", rows[i]);
}

/* More programs than 6.2 names, and their options. */
static void test_wrappers_with_options(void **state)
{
    static const char *const rows[] = {
        "sudo -n rm -f x",
        "sudo -nE rm -f x",
        "sudo -u root rm -f x",
        "sudo -uroot rm -f x",
        "sudo -nu root rm -f x",
        "sudo --user root rm -f x",
        "sudo --user=root rm -f x",
        "sudo -- rm -f x",
        "sudo A=1 -n B=2 rm -f x",
        "sudo -u root -g wheel sh -c 'rm -f x'",
        "doas -u root rm -f x",
        "env -u X rm -f x",
        "env -uX rm -f x",
        "env -iu X rm -f x",
        "env --unset X --chdir d rm -f x",
        "env -C d A=1 rm -f x",
        "env -- A=1 rm -f x",
        "env - rm -f x",
        "command rm -f x",
        "command -p rm -f x",
        "exec rm -f x",
        "exec -a name -l rm -f x",
        "nice rm -f x",
        "nice -n 5 rm -f x",
        "nice -5 rm -f x",
        "nice --adjustment=5 rm -f x",
        "nohup rm -f x",
        "timeout 5 rm -f x",
        "timeout -k 1 -s KILL 5 rm -f x",
        "timeout -k1 --foreground 5 rm -f x",
        "xargs rm -f",
        "xargs -0 -n 1 rm -f",
        "xargs -I {} rm -f {}",
        "busybox rm -f x",
        "/bin/busybox sh -c 'rm -f x'",
        "eval rm -f x",
        "eval 'ls; rm -f x'",
        "sudo env nice nohup timeout 5 rm -f x",
        "sh -c 'find . | xargs rm -f'",
        "sh -c 'command nice -n 5 rm -f \"$x\"'",
        /* of which words are missing */
        "sh -c 'timeout \"$t\" rm -f x'",
        "sh -c 'timeout -k \"$k\" 5 rm -f x'",
        "sh -c 'sudo -u \"$u\" rm -f x'",
        "sh -c 'sudo -u \"$u\" -n rm -f x'",
        "sh -c 'sudo -u \"$u\" env -C \"$d\" sh -c \"rm -f x\"'",
        "sh -c 'xargs -n \"$n\" rm -f'",
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (danger_of(rows[i]) != SP_DANGER_FORCED_RM)
            fail_msg("%s is not seen", rows[i]);
}

static void test_wrappers_of_something_else(void **state)
{
    static const char *const rows[] = {
        "sudo -u root ls -f",
        "sudo -u",
        "sudo --",
        "sudo -l",
        "env -u X ls -f",
        "env -u",
        "env -S 'rm -f x'", /* read by nobody but env */
        "timeout 5 ls -f",
        "timeout 5",
        "timeout",
        "nice -n 5 ls -f",
        "xargs",
        "xargs -n",
        "xargs echo rm -f",
        "busybox",
        "nohup ls rm -f",
        "eval",
        "eval ''",
        "sudo rm -- -f",
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (danger_of(rows[i]) != SP_DANGER_NONE)
            fail_msg("%s is taken for dangerous", rows[i]);
}

static void test_harmless_ones(void **state)
{
    static const char *const rows[] = {
        "",
        "rm",
        "rm x",
        "rm -r x",
        "rm -- -f",
        "rm -i -- --force",
        "rm --foo",
        "rmf -f x",
        "echo rm -f x",
        "sudo",
        "env",
        "env A=1",
        "trap",
        "trap -",
        "trap - EXIT",
        "trap -- - EXIT",
        "trap 'echo rm -f x' EXIT",
        "bash -c 'echo \"rm -f x\"'",
        "bash -c ''",
        "bash -x 'rm -f x'",
        "sh -c 'if then; rm -f x'",
        "find . -exec rm -f {} ;",
        "''",
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (danger_of(rows[i]) != SP_DANGER_NONE)
            fail_msg("%s is taken for dangerous", rows[i]);
}

static void test_what_is_wrapped_too_often(void **state)
{
    char script[400] = "";

    (void)state;
    assert_int_equal(danger_of("env env env env env env env env rm -f x"), SP_DANGER_FORCED_RM);
    assert_int_equal(danger_of("env env env env env env env env ls"), SP_DANGER_NONE);
    assert_int_equal(danger_of("env env env env env env env env env rm -f x"), SP_DANGER_OTHER);
    assert_int_equal(danger_of("sudo sudo sudo sudo sudo sudo sudo sudo sudo ls"), SP_DANGER_OTHER);
    assert_int_equal(danger_of("nice env nohup sudo exec eval xargs busybox command ls"),
                     SP_DANGER_OTHER);
    assert_int_equal(danger_of("nice env nohup sudo exec eval xargs busybox rm -f x"),
                     SP_DANGER_FORCED_RM);
    /* deeper than scripts are read */
    strcpy(script, "sh -c '");
    for (int i = 0; i < 100; i++)
        strcat(script, "$(");
    strcat(script, "'");
    assert_int_equal(danger_of(script), SP_DANGER_OTHER);
}

static void test_memory_that_ends_is_told(void **state)
{
    const struct sp_str argv[] = {SP_STR("sh"), SP_STR("-c"), SP_STR("sh -c 'sh -c \"a; b\"'")};

    (void)state;
    for (long n = 1;; n++) {
        enum sp_danger danger;
        struct sp_err e = {0};

        end_memory_at(n);
        const int r = sp_judge_danger((struct sp_words){argv, 3}, &danger, &e);
        if (!did_memory_end()) {
            assert_int_equal(r, 0);
            assert_true(n > 3);
            return;
        }
        assert_int_equal(r, -SP_E_SYSTEM);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_forced_removals),
    cmocka_unit_test(test_wrappers_with_options),
    cmocka_unit_test(test_wrappers_of_something_else),
    cmocka_unit_test(test_harmless_ones),
    cmocka_unit_test(test_what_is_wrapped_too_often),
    cmocka_unit_test(test_memory_that_ends_is_told),
};
TEST_MAIN(tests)

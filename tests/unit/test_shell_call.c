/* SPDX-License-Identifier: Apache-2.0 */
/* How a shell is called, and where: cases 19, 149 and 150. The source is included: only it can see
 * these functions. */
#include <errno.h>
#include <stdio.h>

#include "engine/exec.c" /* NOLINT: see above */
#include "memory_fixture.h"
#include "test.h"

/* The C library's own copy does not pass through the malloc that ends. */
char *__wrap_strndup(const char *text, size_t max);

char *__wrap_strndup(const char *text, size_t max)
{
    const size_t n = strnlen(text, max);
    char *copy = malloc(n + 1);

    if (copy != NULL) {
        memcpy(copy, text, n);
        copy[n] = 0;
    }
    return copy;
}

/* ---- argv ---- */

static void calls(enum sp_shell_type type, bool is_login, const char *want)
{
    char path[] = "/x/it";
    const struct sp_shell s = {.type = type, .path = path};
    struct sp_str argv[SHELL_ARGC_MAX];
    uint32_t argc = 0;
    char line[200] = "";

    assert_int_equal(call_shell(&s, is_login, SP_STR("a b"), argv, &argc, NULL), 0);
    for (uint32_t i = 0; i < argc; i++) {
        const size_t n = strlen(line);

        (void)snprintf(line + n, sizeof line - n, "[" SP_STR_FMT "]", SP_STR_ARG(argv[i]));
    }
    assert_string_equal(line, want);
}

/* Case 149. */
static void test_each_shell_is_called_its_own_way(void **state)
{
    (void)state;
    calls(SP_SHELL_BASH, true, "[/x/it][-lc][a b]");
    calls(SP_SHELL_BASH, false, "[/x/it][-c][a b]");
    calls(SP_SHELL_ZSH, true, "[/x/it][-lc][a b]");
    calls(SP_SHELL_ZSH, false, "[/x/it][-c][a b]");
    calls(SP_SHELL_SH, true, "[/x/it][-lc][a b]");
    calls(SP_SHELL_SH, false, "[/x/it][-c][a b]");
    calls(SP_SHELL_POWERSHELL, true, "[/x/it][-Command][a b]");
    calls(SP_SHELL_POWERSHELL, false, "[/x/it][-NoProfile][-Command][a b]");
    calls(SP_SHELL_CMD, true, "[/x/it][/c][a b]");
    calls(SP_SHELL_CMD, false, "[/x/it][/c][a b]");
}

static void test_a_script_may_be_empty_but_not_hold_a_nul(void **state)
{
    char path[] = "/bin/sh";
    const struct sp_shell s = {.type = SP_SHELL_SH, .path = path};
    struct sp_str argv[SHELL_ARGC_MAX];
    uint32_t argc = 0;
    struct sp_err e = {0};

    (void)state;
    assert_int_equal(call_shell(&s, false, SP_STR("a\0b"), argv, &argc, &e), -SP_E_FAILED);
    assert_string_equal(e.msg, "nul byte found in provided data");
    assert_int_equal(argc, 0);
    assert_int_equal(call_shell(&s, false, SP_STR(""), argv, &argc, &e), 0);
    assert_int_equal(argc, 3);
    assert_int_equal(argv[2].n, 0);
}

/* ---- login: case 19 ---- */

static void login_is(bool has_login, bool login, bool is_allowed, bool want)
{
    bool got = !want;

    assert_int_equal(choose_login(has_login, login, is_allowed, &got, NULL), 0);
    assert_int_equal(got, want);
}

static void test_login_is_what_the_call_says_else_what_is_allowed(void **state)
{
    struct sp_err e = {0};
    bool got = false;

    (void)state;
    login_is(false, false, true, true);
    login_is(false, false, false, false);
    login_is(true, true, true, true);
    login_is(true, false, true, false);
    login_is(true, false, false, false);
    assert_int_equal(choose_login(true, true, false, &got, &e), -SP_E_INVALID);
    assert_string_equal(e.msg,
                        "login shell is disabled by config; omit `login` or set it to false.");
    assert_false(got);
}

/* ---- working directory ---- */

static void workdir_is(const char *workdir, const char *want)
{
    struct sp_err e = {0};
    char *got = NULL;

    if (local_workdir(sp_str_of(workdir), "/work/dir", &got, &e) < 0)
        fail_msg("'%s': %s", workdir, e.msg);
    assert_string_equal(got, want);
    free(got);
}

/* Case 150. */
static void test_a_working_directory_is_joined_to_that_of_the_environment(void **state)
{
    (void)state;
    workdir_is("", "/work/dir");
    workdir_is("sub", "/work/dir/sub");
    workdir_is("sub/deep", "/work/dir/sub/deep");
    workdir_is(".", "/work/dir");
    workdir_is("./sub/.", "/work/dir/sub");
    workdir_is("nosuch/..", "/work/dir");
    workdir_is("..", "/work");
    workdir_is("../other", "/work/other");
    workdir_is("../../../..", "/");
    workdir_is("~", "/work/dir/~");
    workdir_is(" ", "/work/dir/ ");
    workdir_is("C:", "/work/dir/C:");
    workdir_is("a\\b", "/work/dir/a\\b");
}

static void test_an_absolute_one_stays_as_it_is(void **state)
{
    (void)state;
    workdir_is("/nonexistent/dir", "/nonexistent/dir");
    workdir_is("/", "/");
    workdir_is("/a/../b/./c//", "/a/../b/./c//");
}

static void test_the_omitted_one_is_the_environments_unchanged(void **state)
{
    char *got = NULL;

    (void)state;
    assert_int_equal(local_workdir((struct sp_str){0}, "/a/./b", &got, NULL), 0);
    assert_string_equal(got, "/a/./b");
    free(got);
}

static void workdir_is_refused(struct sp_str workdir, enum sp_code code, const char *text)
{
    struct sp_err e = {0};
    char *got = NULL;

    assert_int_equal(local_workdir(workdir, "/work", &got, &e), -(int)code);
    assert_string_equal(e.msg, text);
    assert_null(got);
}

static void test_a_foreign_path_is_not_valid_here(void **state)
{
    (void)state;
    workdir_is_refused(SP_STR("C:\\Users"), SP_E_INVALID, "C:\\Users is not valid on linux");
    workdir_is_refused(SP_STR("z:/x"), SP_E_INVALID, "z:/x is not valid on linux");
    workdir_is_refused(SP_STR("\\\\host\\share"), SP_E_INVALID,
                       "\\\\host\\share is not valid on linux");
    workdir_is_refused(SP_STR("a\0b"), SP_E_FAILED, "nul byte found in provided data");
    assert_false(is_foreign_path(SP_STR("1:/x")));
    assert_false(is_foreign_path(SP_STR("\\x")));
    assert_false(is_foreign_path(SP_STR("//host/share")));
    assert_false(is_foreign_path((struct sp_str){0}));
}

static void test_joining_survives_the_end_of_memory(void **state)
{
    (void)state;
    for (long n = 1;; n++) {
        struct sp_err e = {0};
        char *got = NULL;

        end_memory_at(n);
        const int r = local_workdir(SP_STR("sub"), "/work", &got, &e);
        if (!did_memory_end()) {
            assert_int_equal(r, 0);
            assert_int_equal(n, 3);
            free(got);
            return;
        }
        assert_int_equal(r, -SP_E_SYSTEM);
        assert_int_equal(e.sys, ENOMEM);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_each_shell_is_called_its_own_way),
    cmocka_unit_test(test_a_script_may_be_empty_but_not_hold_a_nul),
    cmocka_unit_test(test_login_is_what_the_call_says_else_what_is_allowed),
    cmocka_unit_test(test_a_working_directory_is_joined_to_that_of_the_environment),
    cmocka_unit_test(test_an_absolute_one_stays_as_it_is),
    cmocka_unit_test(test_the_omitted_one_is_the_environments_unchanged),
    cmocka_unit_test(test_a_foreign_path_is_not_valid_here),
    cmocka_unit_test(test_joining_survives_the_end_of_memory),
};

TEST_MAIN(tests)

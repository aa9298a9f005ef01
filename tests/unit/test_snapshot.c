/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots of real shells: what a command finds of the profile, and what it keeps of ours.
 */
#include "engine/snapshot.h"
#include "snapshot_fixture.h"

static char out[4097];
static int exit_code;

static void on_ran(void *user, const struct sp_run_result *r)
{
    (void)user;
    (void)snprintf(out, sizeof out, SP_STR_FMT, SP_STR_ARG(r->aggregated));
    exit_code = r->exit_code;
    sp_loop_stop(loop);
}

static void run(const struct sp_shell *shell, const char *flag, struct sp_str script)
{
    const struct sp_env_request env = plain_ask();
    const struct sp_str argv[] = {sp_str_of(shell->path), sp_str_of(flag), script};
    const struct sp_run_request ask = {
        .launch = {.argv = argv, .argc = 3, .cwd = sp_str_of(home), .environ = &env}};
    struct sp_run *r;

    assert_int_equal(sp_run_start(backend, &ask, on_ran, NULL, &r, NULL), 0);
    assert_int_equal(sp_loop_run(loop, NULL), 0);
}

/* Runs the command with the snapshot; the ten and the runtime's variables are restored. */
static const char *run_with(const struct sp_shell *shell, const char *cmd)
{
    const struct sp_env_request ask = plain_ask();
    auto_buf struct sp_buf made = {0};
    auto_buf struct sp_buf script = {0};
    struct sp_str restored[16] = {SP_STR("CODEX_TOOL_CALL_ID"), SP_STR("CODEX_THREAD_ID")};
    uint32_t count;

    assert_int_equal(sp_env_make(&ask, &made, &count, NULL), 0);
    for (uint32_t i = 0; i < sp_env_plain.count; i++)
        restored[2 + i] = sp_env_plain.items[i].name;
    assert_true(sp_snapshot_script(&script, shell, path, sp_str_of(cmd),
                                   (struct sp_str){made.data, made.len}, restored,
                                   2 + sp_env_plain.count));
    run(shell, "-c", (struct sp_str){script.data, script.len});
    return out;
}

/* ---- each shell ---- */

static void test_variables_of_the_profile_are_there_and_ours_win(void **state)
{
    const struct sp_shell *shell = *state;

    write_profile("echo noise\nexport TERM=xterm-256color CODEX_THREAD_ID=stale\n"
                  "export FROM_PROFILE=\"it's \\\"q\\\" \\$(touch injected) \\`touch injected\\` "
                  "a\nb \"\n"
                  "export PATH=\"$PATH:/opt/x\"\n");
    open_store();
    assert_true(capture(shell, home));
    assert_string_equal(run_with(shell, "printf '%s|' \"$FROM_PROFILE\" \"$TERM\" "
                                        "\"${PATH##*:}\" \"${CODEX_THREAD_ID-unset}\" "
                                        "\"$CODEX_TOOL_CALL_ID\" "
                                        "\"${__sallyport_command-gone}\" $#"),
                        "it's \"q\" $(touch injected) `touch injected` a\nb |dumb|/opt/x|unset|"
                        "call-7|gone|0|");
}

/* The command is in a variable of the shell until it is evaluated. */
static void test_no_variable_replaces_the_command(void **state)
{
    const struct sp_shell *shell = *state;
    const struct sp_str name = SP_STR("__sallyport_command");
    auto_buf struct sp_buf script = {0};

    write_profile("export __sallyport_command='echo wrong'\n");
    open_store();
    assert_true(capture(shell, home));
    assert_string_equal(run_with(shell, "echo right"), "right\n");
    assert_true(sp_snapshot_script(&script, shell, path, SP_STR("echo right"),
                                   (struct sp_str){"__sallyport_command=echo wrong", 31}, &name,
                                   1));
    run(shell, "-c", (struct sp_str){script.data, script.len});
    assert_string_equal(out, "right\n");
}

static void test_what_is_wrong_in_the_command_is_the_commands(void **state)
{
    const struct sp_shell *shell = *state;

    write_profile("export A=1\n");
    open_store();
    assert_true(capture(shell, home));
    (void)run_with(shell, "exit 9");
    assert_int_equal(exit_code, 9);
    (void)run_with(shell, "");
    assert_int_equal(exit_code, 0);
    (void)run_with(shell, "false");
    assert_int_equal(exit_code, 1);
    assert_string_equal(run_with(shell, "cat <<'E'\nit's $A\nE\nprintf \"$A'\""), "it's $A\n1'");
    (void)run_with(shell, "-x-not-there");
    assert_int_equal(exit_code, 127);
    assert_string_equal(run_with(shell, "# only a comment\necho x # and more"), "x\n");
}

static void test_aliases_of_the_profile_are_there(void **state)
{
    const struct sp_shell *shell = *state;

    write_profile("alias greet='echo \"it'\\''s\"' two='echo a\necho b'\n"
                  "alias export=false set=false printf=false\n");
    open_store();
    assert_true(capture(shell, home));
    assert_string_equal(run_with(shell, "greet me; two"), "it's me\na\nb\n");
    assert_string_equal(run_with(shell, "printf x || echo aliased"), "aliased\n");
}

static void test_a_broken_snapshot_means_the_profile(void **state)
{
    const struct sp_shell *shell = *state;

    write_profile("export A=profile\n");
    open_store();
    assert_true(capture(shell, home));
    write_file(path, "if then (((\n");
    assert_string_equal(run_with(shell, "echo $A"), "profile\n");
    assert_int_equal(unlink(path), 0);
    assert_string_equal(run_with(shell, "echo $A"), "profile\n");
}

static void test_options_of_the_profile_hold(void **state)
{
    const struct sp_shell *shell = *state;

    write_profile("set -u\nset -o noglob\n");
    open_store();
    assert_true(capture(shell, home));
    assert_string_equal(run_with(shell, "echo /b*; echo ${nothing-x}"), "/b*\nx\n");
    (void)run_with(shell, "echo $nothing; echo survived");
    assert_int_not_equal(exit_code, 0);
}

static void test_a_profile_that_fails_in_strict_mode_is_captured(void **state)
{
    const struct sp_shell *shell = *state;

    write_profile("set -e\nexport A=1\n");
    open_store();
    assert_true(capture(shell, home));
    assert_string_equal(run_with(shell, "echo $A; false; echo not reached"), "1\n");
    assert_int_equal(exit_code, 1);
}

static void test_a_profile_that_ends_the_shell_leaves_no_snapshot(void **state)
{
    const struct sp_shell *shell = *state;

    write_profile("exit 0\n");
    open_store();
    assert_false(capture(shell, home));
}

static void test_values_that_are_too_large_are_left_out(void **state)
{
    const struct sp_shell *shell = *state;

    write_profile("LARGE=$(head -c 61441 /dev/zero | tr '\\0' a)\nFITS=$(head -c 61440 /dev/zero "
                  "| tr '\\0' b)\nexport LARGE FITS\n");
    open_store();
    assert_true(capture(shell, home));
    assert_string_equal(run_with(shell, "echo ${#LARGE} ${#FITS}"), "0 61440\n");
}

static void test_too_much_is_no_snapshot(void **state)
{
    const struct sp_shell *shell = *state;

    write_profile("i=0\nV=$(head -c 60000 /dev/zero | tr '\\0' \"'\")\n"
                  "while [ $i -lt 5 ]; do export V$i=$V; i=$((i + 1)); done\n");
    open_store();
    assert_false(capture(shell, home)); /* a quote takes four bytes in the file */
}

/* ---- where functions can be listed ---- */

static void test_functions_of_the_profile_are_there(void **state)
{
    const struct sp_shell *shell = *state;

    write_profile("hello() { echo \"hi $1\"; }\nalias echo=false\n");
    open_store();
    assert_true(capture(shell, home));
    assert_string_equal(run_with(shell, "hello 'you'"), "hi you\n");
}

static void test_functions_are_there_and_the_shell_is_no_login_shell(void **state)
{
    const struct sp_shell *shell = *state;

    write_profile("shopt -s extglob\nhello() { case $1 in +(a)) echo \"hi $1\";; *) cat <<E\n"
                  "other\nE\n;; esac; }\n"
                  "printf() { echo hijacked; }\nbuiltin() { echo hijacked; }\n");
    open_store();
    assert_false(capture(shell, home)); /* nothing it prints can be believed */
    write_profile("shopt -s extglob\nhello() { case $1 in +(a)) echo \"hi $1\";; *) cat <<E\n"
                  "other\nE\n;; esac; }\nprintf() { echo hijacked; }\n");
    assert_true(capture(shell, "/"));
    assert_string_equal(run_with(shell, "hello aa; hello b; shopt -q login_shell || echo plain"),
                        "hi aa\nother\nplain\n");
}

/* clang-format off */
static const struct sp_shell bash = {SP_SHELL_BASH, (char *)(uintptr_t) "/bin/bash"};
static const struct sp_shell dash = {SP_SHELL_SH, (char *)(uintptr_t) "/bin/sh"};
static const struct sp_shell zsh = {SP_SHELL_ZSH, (char *)(uintptr_t) "/bin/zsh"};

#define WITH(shell, f) {#f "(" #shell ")", f, set_up, tear_down, (void *)(uintptr_t)&(shell)}
/* clang-format on */
#define EACH(f) WITH(bash, f), WITH(dash, f), WITH(zsh, f)

static const struct CMUnitTest tests[] = {
    EACH(test_variables_of_the_profile_are_there_and_ours_win),
    EACH(test_no_variable_replaces_the_command),
    EACH(test_what_is_wrong_in_the_command_is_the_commands),
    EACH(test_aliases_of_the_profile_are_there),
    EACH(test_a_broken_snapshot_means_the_profile),
    EACH(test_options_of_the_profile_hold),
    EACH(test_a_profile_that_fails_in_strict_mode_is_captured),
    EACH(test_a_profile_that_ends_the_shell_leaves_no_snapshot),
    EACH(test_values_that_are_too_large_are_left_out),
    EACH(test_too_much_is_no_snapshot),
    WITH(bash, test_functions_of_the_profile_are_there),
    WITH(zsh, test_functions_of_the_profile_are_there),
    WITH(bash, test_functions_are_there_and_the_shell_is_no_login_shell),
};

/* What is not installed is not tested. */
int main(void)
{
    struct CMUnitTest installed[sizeof tests / sizeof tests[0]];
    size_t count = 0;

    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        const struct sp_shell *shell = tests[i].initial_state;

        if (access(shell->path, X_OK) == 0)
            installed[count++] = tests[i];
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return _cmocka_run_group_tests("tests", installed, count, NULL, NULL);
}

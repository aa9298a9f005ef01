/* SPDX-License-Identifier: Apache-2.0 */
/* What a program can ask of libsallyport about sessions, call by call. */
#include "lib_events.h"

/* ---- exec ---- */

static void test_a_short_command_answers_with_its_end(void **state)
{
    struct heard h;

    (void)state;
    do_exec(&h, "echo hello; echo trouble >&2; exit 3", false, 5000);
    assert_int_equal(h.outcome, SP_OUTCOME_EXITED);
    assert_int_equal(h.exit_code, 3);
    assert_int_equal(h.session, 0);
    assert_int_equal(h.signal, 0);
    assert_non_null(strstr(h.output, "hello\n"));
    assert_non_null(strstr(h.output, "trouble\n"));
    assert_non_null(strstr(h.text, "Process exited with code 3\n"));
    assert_int_equal(h.to, strlen("hello\ntrouble\n"));
    assert_true(h.wall_ns < 4000000000);
    assert_string_equal(h.error, "");
    assert_true(h.has_receipt);
    assert_int_equal(h.receipt.size, sizeof h.receipt);
    assert_string_equal(h.receipt.reason, "exit");
    assert_int_equal(h.receipt.stdout_bytes, 6);
    assert_int_equal(h.receipt.stderr_bytes, 8);
    assert_true(h.receipt.pty_bytes == SP_RECEIPT_UNKNOWN);
    assert_true(h.receipt.user_ms < 4000 && h.receipt.wall_ms < 4000);
    assert_true(h.receipt.max_rss_bytes > 100000 && h.receipt.max_rss_bytes < 1 << 30);
}

static void test_a_command_that_lives_on_has_a_session(void **state)
{
    static const char *const argv[] = {"sh", "-c", "echo one; read x; echo two", NULL};
    const struct sp_exec_options o = {
        .size = sizeof o, .argv = argv, .has_stdin = true, .yield_ms = 400};
    struct heard first = {0};
    struct heard h = {0};

    (void)state;
    assert_ok(sp_engine_exec(engine, &o, on_heard, &first, NULL, e));
    until_heard(&first);
    assert_int_equal(first.outcome, SP_OUTCOME_RUNNING);
    assert_true(first.session >= 1000);
    assert_int_equal(first.exit_code, -1);
    assert_true(first.wall_ns >= 400000000);
    assert_false(first.has_receipt);

    do_write(&h, first.session, "go\n", 20000);
    assert_int_equal(h.outcome, SP_OUTCOME_EXITED);
    assert_int_equal(h.exit_code, 0);
    assert_true(h.wall_ns < 15000000000); /* not the whole time: it has ended */
    (void)strncat(first.output, h.output, sizeof first.output - strlen(first.output) - 1);
    assert_string_equal(first.output, "one\ntwo\n"); /* each byte once */
    assert_int_equal(h.from, first.to);
    assert_int_equal(h.to, 8);

    do_wait(&h, first.session); /* its end has been told */
    assert_int_equal(h.outcome, SP_OUTCOME_UNKNOWN);
    assert_non_null(strstr(h.error, "Unknown process id"));
}

static void test_a_script_goes_to_the_shell_and_has_the_variables_it_was_given(void **state)
{
    static const char *const env[] = {"GREETING=hello there", "EMPTY=", NULL};
    const struct sp_exec_options o = {.size = sizeof o,
                                      .script = "echo \"$GREETING\" \"[$EMPTY]\"; pwd; kill -9 $$",
                                      .env = env,
                                      .cwd = "/",
                                      .shell = "/bin/sh",
                                      .is_no_login = true};
    struct heard h = {0};
    uint64_t call = 0;

    (void)state;
    assert_ok(sp_engine_exec(engine, &o, on_heard, &h, &call, e));
    assert_int_equal(h.count, 0); /* never before it returns */
    until_heard(&h);
    assert_int_equal(h.call, call);
    assert_int_equal(h.outcome, SP_OUTCOME_SIGNALLED);
    assert_int_equal(h.signal, SIGKILL);
    assert_int_equal(h.exit_code, 137);
    assert_string_equal(h.output, "hello there []\n/\n");
}

static void test_what_cannot_be_started_is_said(void **state)
{
    static const char *const argv[] = {"/nonexistent/program", NULL};
    const struct sp_exec_options o = {.size = sizeof o, .argv = argv};
    const struct sp_exec_options where = {
        .size = sizeof o, .script = "true", .cwd = "/nonexistent"};
    struct heard h = {0};

    (void)state;
    assert_ok(sp_engine_exec(engine, &o, on_heard, &h, NULL, e));
    until_heard(&h);
    assert_int_equal(h.outcome, SP_OUTCOME_FAILED);
    assert_int_equal(h.exit_code, -1);
    assert_non_null(strstr(h.error, "No such file or directory"));
    memset(&h, 0, sizeof h);
    assert_ok(sp_engine_exec(engine, &where, on_heard, &h, NULL, e));
    until_heard(&h);
    assert_int_equal(h.outcome, SP_OUTCOME_FAILED);
}

static void test_a_patch_has_an_exit_code(void **state)
{
    static const char *const argv[] = {
        "apply_patch", "*** Begin Patch\n*** Add File: a.txt\n+hello\n*** End Patch\n", NULL};
    static const char *const bad_argv[] = {
        "apply_patch", "*** Begin Patch\n*** Add File: /proc/no/a.txt\n+hello\n*** End Patch\n",
        NULL};
    const struct sp_exec_options o = {.size = sizeof o, .argv = argv, .cwd = test_dir};
    const struct sp_exec_options bad = {.size = sizeof o, .argv = bad_argv, .cwd = test_dir};
    char path[sizeof test_dir + 8];
    struct heard h = {0};

    (void)state;
    (void)snprintf(path, sizeof path, "%s/a.txt", test_dir);
    assert_ok(sp_engine_exec(engine, &o, on_heard, &h, NULL, e));
    until_heard(&h);
    assert_int_equal(h.outcome, SP_OUTCOME_EXITED);
    assert_int_equal(h.exit_code, 0);
    assert_int_equal(unlink(path), 0);
    memset(&h, 0, sizeof h);
    assert_ok(sp_engine_exec(engine, &bad, on_heard, &h, NULL, e));
    until_heard(&h);
    assert_int_equal(h.outcome, SP_OUTCOME_EXITED);
    assert_int_equal(h.exit_code, 1);
}

/* ---- talking ---- */

/* Types the line, again and again if it must be, until the text comes back. */
static void type_until(int session, const char *line, const char *text)
{
    const uint64_t end = now_ms() + DEADLINE_MS;
    static struct heard h;

    do {
        if (now_ms() > end)
            fail_msg("`%s` does not come", text);
        do_write(&h, session, line, 250);
        assert_int_equal(h.outcome, SP_OUTCOME_RUNNING);
    } while (strstr(h.output, text) == NULL);
}

static void test_a_terminal_is_typed_into_polled_and_resized(void **state)
{
    static const char *const argv[] = {"sh", NULL};
    static const char *const env[] = {"PS1=", NULL};
    const struct sp_exec_options o = {.size = sizeof o,
                                      .argv = argv,
                                      .env = env,
                                      .is_tty = true,
                                      .rows = 31,
                                      .cols = 97,
                                      .yield_ms = 250};
    struct heard h = {0};

    (void)state;
    assert_ok(sp_engine_exec(engine, &o, on_heard, &h, NULL, e));
    until_heard(&h);
    assert_int_equal(h.outcome, SP_OUTCOME_RUNNING);
    const int session = h.session;
    type_until(session, "stty size\n", "31 97");
    assert_ok(sp_engine_resize(engine, session, 40, 120, e));
    type_until(session, "stty size\n", "40 120");
    do_write(&h, session, "exit 7\n", 5000);
    assert_int_equal(h.outcome, SP_OUTCOME_EXITED);
    assert_int_equal(h.exit_code, 7);
    assert_true(h.wall_ns < 4000000000);
}

static void test_pipes_have_an_open_stdin_if_that_was_asked_for(void **state)
{
    static const char *const argv[] = {"cat", NULL};
    const struct sp_exec_options o = {
        .size = sizeof o, .argv = argv, .has_stdin = true, .yield_ms = 250};
    struct heard h = {0};

    (void)state;
    assert_ok(sp_engine_exec(engine, &o, on_heard, &h, NULL, e));
    until_heard(&h);
    assert_int_equal(h.outcome, SP_OUTCOME_RUNNING);
    const int session = h.session;
    type_until(session, "first\n", "first\n");
    memset(&h, 0, sizeof h);
    assert_ok(sp_engine_write(engine, session, "l\0st", 4, 20000, on_heard, &h, NULL, e));
    assert_ok(sp_engine_close_stdin(engine, session, e)); /* after what was written */
    until_heard(&h);
    assert_int_equal(h.outcome, SP_OUTCOME_EXITED);
    assert_int_equal(h.exit_code, 0);
    assert_true(h.output_size >= 4);
    assert_memory_equal(h.output + h.output_size - 4, "l\0st", 4);
}

static void test_the_end_of_input_comes_after_all_that_was_written(void **state)
{
    static const char *const argv[] = {"sh", "-c", "cat; echo end", NULL};
    const struct sp_exec_options o = {
        .size = sizeof o, .argv = argv, .has_stdin = true, .yield_ms = 250};
    struct heard h[3] = {0};
    char all[8192] = "";

    (void)state;
    assert_ok(sp_engine_exec(engine, &o, on_heard, &h[0], NULL, e));
    until_heard(&h[0]);
    const int session = h[0].session;
    memset(h, 0, sizeof h);
    for (int i = 0; i < 3; i++) /* the second and the third wait for their turn */
        assert_ok(sp_engine_write(engine, session, "a\n\0b\n\0c\n" + 3 * i, 2, i < 2 ? 300 : 20000,
                                  on_heard, &h[i], NULL, e));
    assert_ok(sp_engine_close_stdin(engine, session, e));
    for (int i = 0; i < 3; i++) {
        until_heard(&h[i]);
        (void)strncat(all, h[i].output, 64);
    }
    assert_int_equal(h[2].outcome, SP_OUTCOME_EXITED);
    assert_string_equal(all, "a\nb\nc\nend\n");
}

static void test_without_a_stdin_there_is_nothing_to_type_into(void **state)
{
    const int session = start_session("sleep 20", false);
    struct heard h;

    (void)state;
    do_write(&h, session, "hello\n", 250);
    assert_int_equal(h.outcome, SP_OUTCOME_FAILED);
    assert_non_null(strstr(h.error, "stdin is closed"));
    do_write(&h, session, "\3", 5000); /* but it can be interrupted */
    assert_int_equal(h.outcome, SP_OUTCOME_SIGNALLED);
    assert_int_equal(h.signal, SIGINT);
}

static void test_a_signal_reaches_the_command(void **state)
{
    const int session = start_session("trap 'echo got it; exit 9' USR1; echo ready; "
                                      "while :; do sleep 0.05; done",
                                      false);
    struct heard h;

    (void)state;
    assert_ok(sp_engine_signal(engine, session, SIGUSR1, e));
    do_wait(&h, session);
    assert_int_equal(h.outcome, SP_OUTCOME_EXITED);
    assert_int_equal(h.exit_code, 9);
    assert_non_null(strstr(h.output, "got it"));
}

/* ---- ends ---- */

static void test_terminate_ends_a_session_and_whoever_waits_for_it(void **state)
{
    const int session = start_session("sleep 30 & sleep 30", false);
    struct heard waiting = {0};
    struct heard h = {0};
    struct heard again = {0};

    (void)state;
    assert_ok(sp_engine_wait(engine, session, on_heard, &waiting, NULL, e));
    dispatch_once(engine, 0);
    assert_ok(sp_engine_terminate(engine, session, on_heard, &h, NULL, e));
    until_heard(&h);
    assert_int_equal(h.outcome, SP_OUTCOME_DONE);
    until_heard(&waiting);
    assert_true(waiting.outcome == SP_OUTCOME_SIGNALLED || waiting.outcome == SP_OUTCOME_EXITED);
    assert_int_equal(waiting.exit_code, 137);
    assert_ok(sp_engine_terminate(engine, session, on_heard, &again, NULL, e));
    until_heard(&again);
    assert_int_equal(again.outcome, SP_OUTCOME_UNKNOWN);
    assert_string_not_equal(again.error, "");
}

static void test_a_cancelled_call_leaves_its_session(void **state)
{
    const int session = start_session("sleep 30", false);
    struct heard h = {0};
    uint64_t call;

    (void)state;
    assert_ok(sp_engine_wait(engine, session, on_heard, &h, &call, e));
    dispatch_once(engine, 0);
    assert_ok(sp_engine_cancel(engine, call, e));
    until_heard(&h);
    assert_int_equal(h.outcome, SP_OUTCOME_CANCELLED);
    assert_int_equal(sp_engine_cancel(engine, call, NULL), -SP_ERROR_NOT_FOUND);
    do_write(&h, session, "\3", 5000);
    assert_int_equal(h.signal, SIGINT);
}

static void test_terminate_all_ends_every_session(void **state)
{
    struct heard h[3] = {0};
    int count = 0;

    (void)state;
    for (int i = 0; i < 3; i++) {
        const int session = start_session("sleep 30", i == 1);

        assert_ok(sp_engine_wait(engine, session, on_heard, &h[i], NULL, e));
    }
    dispatch_once(engine, 0);
    assert_ok(sp_engine_terminate_all(engine, e));
    for (int i = 0; i < 3; i++) {
        until_heard(&h[i]);
        assert_int_equal(h[i].exit_code, 137);
    }
    for (int i = 0; i < event_count; i++)
        count += events[i].kind == SP_EVENT_ENDED;
    while (count < 3) {
        count = 0;
        dispatch_once(engine, 1000);
        for (int i = 0; i < event_count; i++)
            count += events[i].kind == SP_EVENT_ENDED;
    }
}

/* ---- list ---- */

static struct sp_session_info listed[8];
static char listed_commands[8][64];
static int listed_count;

static void on_listed(void *user, const struct sp_session_info *info)
{
    assert_ptr_equal(user, &listed_count);
    listed[listed_count] = *info;
    copy_text(listed_commands[listed_count], 64, info->command, strlen(info->command));
    listed_count++;
}

static void test_the_list_has_what_lives_by_number(void **state)
{
    const int a = start_session("sleep 30", false);
    const int b = start_session("sleep 31", true);
    struct heard h;

    (void)state;
    listed_count = 0;
    assert_ok(sp_engine_list(engine, on_listed, &listed_count, e));
    assert_int_equal(listed_count, 2);
    assert_true(listed[0].session < listed[1].session);
    const int at = listed[0].session == a ? 0 : 1;
    assert_int_equal(listed[at].session, a);
    assert_int_equal(listed[1 - at].session, b);
    assert_false(listed[at].is_tty);
    assert_true(listed[1 - at].is_tty);
    assert_int_equal(listed[at].call, 1);
    assert_string_equal(listed_commands[at], "sh -c 'sleep 30'");
    memset(&h, 0, sizeof h);
    assert_ok(sp_engine_terminate(engine, a, on_heard, &h, NULL, e));
    until_heard(&h);
    listed_count = 0;
    assert_ok(sp_engine_list(engine, on_listed, &listed_count, e));
    assert_int_equal(listed_count, 1);
}

#define lib_test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

static const struct CMUnitTest tests[] = {
    lib_test(test_a_short_command_answers_with_its_end),
    lib_test(test_a_command_that_lives_on_has_a_session),
    lib_test(test_a_script_goes_to_the_shell_and_has_the_variables_it_was_given),
    lib_test(test_what_cannot_be_started_is_said),
    lib_test(test_a_patch_has_an_exit_code),
    lib_test(test_a_terminal_is_typed_into_polled_and_resized),
    lib_test(test_pipes_have_an_open_stdin_if_that_was_asked_for),
    lib_test(test_the_end_of_input_comes_after_all_that_was_written),
    lib_test(test_without_a_stdin_there_is_nothing_to_type_into),
    lib_test(test_a_signal_reaches_the_command),
    lib_test(test_terminate_ends_a_session_and_whoever_waits_for_it),
    lib_test(test_a_cancelled_call_leaves_its_session),
    lib_test(test_terminate_all_ends_every_session),
    lib_test(test_the_list_has_what_lives_by_number),
};

TEST_MAIN(tests)

/* SPDX-License-Identifier: Apache-2.0 */
/* What a program can ask of libsallyport, call by call. */
#include "lib_fixture.h"

static int fds_before;

/* ---- what is watched ---- */

struct watched {
    enum sp_event_kind kind;
    int session;
    uint64_t call;
    int exit_code;
    bool is_failed;
    enum sp_output_stream stream;
    char bytes[512], first[64], cwd[512];
};

static struct watched events[256];
static int event_count;

static void on_event(void *user, const struct sp_event *ev)
{
    struct watched *w = &events[event_count];

    assert_ptr_equal(user, &event_count);
    assert_int_equal(ev->size, sizeof *ev);
    assert_true(event_count < 256);
    *w = (struct watched){.kind = ev->kind,
                          .session = ev->session,
                          .call = ev->call,
                          .exit_code = ev->exit_code,
                          .is_failed = ev->is_failed,
                          .stream = ev->stream};
    copy_text(w->bytes, sizeof w->bytes, ev->bytes, ev->byte_count);
    if (ev->kind == SP_EVENT_STARTED || ev->kind == SP_EVENT_ENDED) {
        assert_true(ev->at_ms > 1600000000000);
        copy_text(w->first, sizeof w->first, ev->argv[0], strlen(ev->argv[0]));
        copy_text(w->cwd, sizeof w->cwd, ev->cwd, strlen(ev->cwd));
    }
    event_count++;
}

static int event_of(uint64_t call, enum sp_event_kind kind, int from)
{
    for (int i = from; i < event_count; i++)
        if (events[i].call == call && events[i].kind == kind)
            return i;
    return -1;
}

/* Dispatches until the call's command has told its end. */
static int until_ended(uint64_t call)
{
    const uint64_t end = now_ms() + DEADLINE_MS;

    while (event_of(call, SP_EVENT_ENDED, 0) < 0) {
        if (now_ms() > end)
            fail_msg("no end event");
        dispatch_once(engine, 100);
    }
    return event_of(call, SP_EVENT_ENDED, 0);
}

static int set_up(void **state)
{
    struct sp_engine_options o = default_options();

    (void)state;
    event_count = 0;
    fds_before = open_fds();
    o.event = on_event;
    o.user = &event_count;
    engine = make_engine(&o);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    sp_engine_free(engine);
    engine = NULL;
    if (open_fds() != fds_before || waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD) {
        (void)fprintf(stderr, "# left behind: %d descriptors, or a child\n",
                      open_fds() - fds_before);
        return -1;
    }
    return 0;
}

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
    assert_ok(sp_engine_write(engine, session, "l\0st", 4, 250, NULL, NULL, NULL, e));
    assert_ok(sp_engine_close_stdin(engine, session, e));
    do_wait(&h, session);
    for (int i = 0; h.outcome == SP_OUTCOME_RUNNING && i < 10; i++)
        do_wait(&h, session);
    assert_int_equal(h.outcome, SP_OUTCOME_EXITED);
    assert_int_equal(h.exit_code, 0);
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

/* ---- run ---- */

static void test_a_run_tells_its_streams_apart(void **state)
{
    struct heard h;

    (void)state;
    do_run(&h, "echo to out; echo to err >&2; exit 5", 0);
    assert_int_equal(h.outcome, SP_OUTCOME_EXITED);
    assert_int_equal(h.exit_code, 5);
    assert_string_equal(h.out, "to out\n");
    assert_string_equal(h.err, "to err\n");
    assert_string_equal(h.output, "to out\nto err\n");
    assert_non_null(strstr(h.text, "Exit code: 5\n"));
    assert_int_equal(h.session, 0);
}

static void test_a_run_ends_at_its_time_with_all_that_it_started(void **state)
{
    const uint64_t before = now_ms();
    struct heard h;

    (void)state;
    do_run(&h, "echo begun; (sleep 30; echo late) & sleep 30", 1000);
    assert_int_equal(h.outcome, SP_OUTCOME_TIMED_OUT);
    assert_int_equal(h.exit_code, 124);
    assert_string_equal(h.out, "begun\n");
    assert_true(now_ms() - before < 5000);
}

static void test_a_run_can_be_cancelled(void **state)
{
    static const char *const argv[] = {"sh", "-c", "echo begun; sleep 30", NULL};
    const struct sp_run_options o = {.size = sizeof o, .argv = argv, .timeout_ms = SP_FOREVER};
    struct heard h = {0};
    uint64_t call;

    (void)state;
    assert_ok(sp_engine_run(engine, &o, on_heard, &h, &call, e));
    until(&event_count, 2); /* it has begun and said so */
    assert_ok(sp_engine_cancel(engine, call, e));
    until_heard(&h);
    assert_int_equal(h.outcome, SP_OUTCOME_CANCELLED);
    assert_string_equal(h.out, "begun\n");
}

static void test_a_run_that_cannot_start_says_why(void **state)
{
    static const char *const argv[] = {"/nonexistent/program", NULL};
    const struct sp_run_options o = {.size = sizeof o, .argv = argv};
    struct heard h = {0};

    (void)state;
    assert_ok(sp_engine_run(engine, &o, on_heard, &h, NULL, e));
    until_heard(&h);
    assert_int_equal(h.outcome, SP_OUTCOME_FAILED);
    assert_non_null(strstr(h.error, "No such file or directory"));
}

static void test_a_run_has_its_directory_and_variables(void **state)
{
    static const char *const argv[] = {"sh", "-c", "pwd; echo $GREETING", NULL};
    static const char *const env[] = {"GREETING=hello", NULL};
    const struct sp_run_options o = {.size = sizeof o, .argv = argv, .env = env, .cwd = "/usr/."};
    struct heard h = {0};

    (void)state;
    assert_ok(sp_engine_run(engine, &o, on_heard, &h, NULL, e));
    until_heard(&h);
    assert_string_equal(h.out, "/usr\nhello\n");
}

/* ---- events ---- */

static void test_events_tell_the_story_in_its_order(void **state)
{
    struct heard h;

    (void)state;
    do_exec(&h, "read x; echo got $x; exit 4", true, 250);
    const uint64_t call = h.call;
    const int session = h.session;
    do_write(&h, session, "word\n", 5000);
    assert_int_equal(h.exit_code, 4);
    const int last = until_ended(call);
    const int begun = event_of(call, SP_EVENT_STARTED, 0);
    const int typed = event_of(call, SP_EVENT_INPUT, 0);

    assert_int_equal(begun, 0);
    assert_string_equal(events[begun].first, "sh");
    assert_int_equal(events[begun].session, session);
    assert_true(typed > begun && typed < last);
    assert_string_equal(events[typed].bytes, "word\n");
    assert_true(event_of(call, SP_EVENT_OUTPUT, 0) > begun);
    assert_int_equal(events[last].exit_code, 4);
    assert_true(events[last].is_failed);
    assert_non_null(strstr(events[last].bytes, "got word"));
    assert_string_not_equal(events[last].cwd, "");
    dispatch_once(engine, 100);
    assert_int_equal(last, event_count - 1);
}

static void test_events_of_a_run_tell_the_streams_apart(void **state)
{
    struct heard h;

    (void)state;
    do_run(&h, "echo to out; echo to err >&2", 0);
    const int last = until_ended(h.call);
    const int first = event_of(h.call, SP_EVENT_OUTPUT, 0);
    const int second = event_of(h.call, SP_EVENT_OUTPUT, first + 1);

    assert_true(first > 0 && second > first && last > second);
    assert_int_equal(events[first].session, 0);
    assert_int_not_equal(events[first].stream, events[second].stream);
    assert_false(events[last].is_failed);
    for (int i = first; i <= second; i++)
        assert_string_equal(events[i].bytes,
                            events[i].stream == SP_OUTPUT_STDERR ? "to err\n" : "to out\n");
}

static void test_a_background_command_tells_its_end_to_nobody_who_asks(void **state)
{
    struct heard h;

    (void)state;
    do_exec(&h, "sleep 1.5; echo done", false, 250);
    assert_int_equal(h.outcome, SP_OUTCOME_RUNNING);
    const int last = until_ended(h.call);
    assert_string_equal(events[last].bytes, "done\n");
    assert_int_equal(events[last].exit_code, 0);
}

/* ---- many at once ---- */

static void test_many_calls_are_answered_each_to_its_own(void **state)
{
    static struct heard h[40];
    int done = 0;

    (void)state;
    memset(h, 0, sizeof h);
    for (int i = 0; i < 40; i++) {
        char script[64];
        const char *const argv[] = {"sh", "-c", script, NULL};
        const struct sp_run_options run = {.size = sizeof run, .argv = argv, .is_silent = true};
        const struct sp_exec_options exec = {.size = sizeof exec, .argv = argv};

        (void)snprintf(script, sizeof script, "echo %d; exit %d", i, i);
        if (i % 2 == 0)
            assert_ok(sp_engine_run(engine, &run, on_heard, &h[i], NULL, e));
        else
            assert_ok(sp_engine_exec(engine, &exec, on_heard, &h[i], NULL, e));
    }
    for (int i = 0; i < 40; i++) {
        char want[16];

        until_heard(&h[i]);
        (void)snprintf(want, sizeof want, "%d\n", i);
        assert_string_equal(h[i].output, want);
        assert_int_equal(h[i].exit_code, i);
        assert_int_equal(h[i].call, i + 1);
        done++;
    }
    assert_int_equal(done, 40);
}

#define lib_test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

static const struct CMUnitTest tests[] = {
    lib_test(test_a_short_command_answers_with_its_end),
    lib_test(test_a_command_that_lives_on_has_a_session),
    lib_test(test_a_script_goes_to_the_shell_and_has_the_variables_it_was_given),
    lib_test(test_what_cannot_be_started_is_said),
    lib_test(test_a_terminal_is_typed_into_polled_and_resized),
    lib_test(test_pipes_have_an_open_stdin_if_that_was_asked_for),
    lib_test(test_without_a_stdin_there_is_nothing_to_type_into),
    lib_test(test_a_signal_reaches_the_command),
    lib_test(test_terminate_ends_a_session_and_whoever_waits_for_it),
    lib_test(test_a_cancelled_call_leaves_its_session),
    lib_test(test_terminate_all_ends_every_session),
    lib_test(test_the_list_has_what_lives_by_number),
    lib_test(test_a_run_tells_its_streams_apart),
    lib_test(test_a_run_ends_at_its_time_with_all_that_it_started),
    lib_test(test_a_run_can_be_cancelled),
    lib_test(test_a_run_that_cannot_start_says_why),
    lib_test(test_a_run_has_its_directory_and_variables),
    lib_test(test_events_tell_the_story_in_its_order),
    lib_test(test_events_of_a_run_tell_the_streams_apart),
    lib_test(test_a_background_command_tells_its_end_to_nobody_who_asks),
    lib_test(test_many_calls_are_answered_each_to_its_own),
};

TEST_MAIN(tests)

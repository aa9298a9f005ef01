/* SPDX-License-Identifier: Apache-2.0 */
/* One-shot runs of libsallyport, the events of all commands, and many calls at once. */
#include "lib_events.h"

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
    assert_true(h.has_receipt);
    assert_string_equal(h.receipt.reason, "exit");
    assert_int_equal(h.receipt.stdout_bytes, 7);
    assert_int_equal(h.receipt.stderr_bytes, 7);
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
    assert_true(h.has_receipt);
    assert_string_equal(h.receipt.reason, "terminated");
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
    const char *why = strstr(h.error, "No such file or directory");
    assert_non_null(why);
    assert_null(strstr(why + 1, "No such file or directory"));
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

/* ---- limits, and why a command ended ---- */

static void do_limited(struct heard *h, const char *script, const struct sp_limits *limits)
{
    const char *const argv[] = {"sh", "-c", script, NULL};
    const struct sp_run_options o = {.size = sizeof o,
                                     .argv = argv,
                                     .timeout_ms = DEADLINE_MS,
                                     .is_silent = true,
                                     .limits = limits};

    memset(h, 0, sizeof *h);
    assert_ok(sp_engine_run(engine, &o, on_heard, h, NULL, e));
    until_heard(h);
}

static void test_a_limit_ends_a_run_and_is_told(void **state)
{
    static const struct {
        struct sp_limits limits;
        const char *script, *reason, *hit;
    } ends[] = {
        {{.wall_ms = 200}, "sleep 60", "wall_limit", "{\"limit\":\"wall\",\"value\":200,"},
        {{.output_bytes = 65536}, "yes", "output_limit", "{\"limit\":\"output\",\"value\":65536,"},
        {{.cpu_ms = 1000, .is_best = true},
         "while :; do :; done",
         "cpu_limit",
         "{\"limit\":\"cpu\",\"value\":1000,"},
        {{.memory_bytes = 64 << 20},
         "exec dd if=/dev/zero of=/dev/null bs=300M count=1",
         "memory_limit",
         "{\"limit\":\"memory\",\"value\":67108864,"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        struct sp_limits limits = ends[i].limits;
        struct heard h;

        limits.size = sizeof limits;
        do_limited(&h, ends[i].script, &limits);
        if (h.outcome == SP_OUTCOME_FAILED &&
            strstr(h.error, "(no memory controller; see sallyport doctor)") != NULL)
            continue; /* this host has no such controller for us */
        assert_true(h.has_receipt);
        assert_string_equal(h.receipt.reason, ends[i].reason);
        assert_int_equal(h.outcome, SP_OUTCOME_SIGNALLED);
        assert_non_null(strstr(h.limits, ends[i].hit));
    }
}

static void test_a_run_below_its_limits_is_as_without(void **state)
{
    const struct sp_limits limits = {
        .size = sizeof limits, .wall_ms = 60000, .open_files = 50, .file_size_bytes = 1 << 20};
    struct heard h;

    (void)state;
    do_limited(&h, "ulimit -n; exit 3", &limits);
    assert_int_equal(h.exit_code, 3);
    assert_string_equal(h.out, "50\n");
    assert_string_equal(h.receipt.reason, "exit");
    assert_string_equal(h.limits, "");
}

static void test_a_run_says_that_it_was_killed_or_lost(void **state)
{
    struct heard h;

    (void)state;
    do_run(&h, "kill -9 $$", 0);
    assert_string_equal(h.receipt.reason, "signal");
    assert_true(h.receipt.user_ms != SP_RECEIPT_UNKNOWN);
    /* A cell that dies before it has answered the start has not begun a run, as far as is known. */
    for (int i = 0; i == 0 || (!h.has_receipt && i < 50); i++) {
        do_run(&h, "kill -9 $PPID; sleep 60", 0);
        assert_int_equal(h.outcome, SP_OUTCOME_FAILED);
    }
    assert_true(h.has_receipt);
    assert_string_equal(h.receipt.reason, "lost");
    assert_true(h.receipt.user_ms == SP_RECEIPT_UNKNOWN);
    do_run(&h, "echo next", 0);
    assert_string_equal(h.out, "next\n");
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
    lib_test(test_a_run_tells_its_streams_apart),
    lib_test(test_a_run_ends_at_its_time_with_all_that_it_started),
    lib_test(test_a_run_can_be_cancelled),
    lib_test(test_a_run_that_cannot_start_says_why),
    lib_test(test_a_run_has_its_directory_and_variables),
    lib_test(test_a_limit_ends_a_run_and_is_told),
    lib_test(test_a_run_below_its_limits_is_as_without),
    lib_test(test_a_run_says_that_it_was_killed_or_lost),
    lib_test(test_events_tell_the_story_in_its_order),
    lib_test(test_events_of_a_run_tell_the_streams_apart),
    lib_test(test_a_background_command_tells_its_end_to_nobody_who_asks),
    lib_test(test_many_calls_are_answered_each_to_its_own),
};

TEST_MAIN(tests)

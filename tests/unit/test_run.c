/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a run ends: by itself, by its time-out, by a cancellation, with us, or with its executor.
 */
#include "engine/run.h"
#include "run_fixture.h"

/* ---- exits ---- */

static void test_both_streams_and_the_code_come_back(void **state)
{
    static const struct fake_step steps[] = {
        STARTED, ERR("oops"), OUT("hello"), EXITED(0), PAUSE(20), OUT(" you"), CLOSED, END,
    };
    const struct sp_run_request ask = plain_ask();

    (void)state;
    play(steps, &ask);
    assert_end(SP_RUN_EXITED, SP_RUN_OK, 0);
    assert_string_equal(got.out.data, "hello you");
    assert_string_equal(got.err.data, "oops");
    assert_string_equal(got.aggregated.data, "hello youoops");
    assert_int_equal(got.r.out_total, 9);
    assert_int_equal(got.r.timeout_ms, SP_RUN_DEFAULT_MS);
    assert_true(got.r.duration_ns >= 15000000);
    assert_false(got.r.has_lost_output);
    assert_string_equal(fake.asked, "start release ");
}

static void test_a_code_is_a_code_and_never_a_signal_or_a_time_out(void **state)
{
    static const int codes[] = {1, 2, 64, 127, 128, 130, 137, 192, 255};
    const struct sp_run_request ask = plain_ask();

    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        const struct fake_step steps[] = {STARTED, EXITED(codes[i]), CLOSED, END};

        play(steps, &ask);
        assert_end(SP_RUN_EXITED, SP_RUN_OK, codes[i]);
        assert_int_equal(got.r.signal, 0);
        (void)tear_down(state);
        assert_int_equal(set_up(state), 0);
    }
}

static void test_death_by_a_signal_keeps_the_output(void **state)
{
    static const struct fake_step steps[] = {STARTED, OUT("x"), SIGNALLED(SIGSEGV), CLOSED, END};
    const struct sp_run_request ask = plain_ask();

    (void)state;
    play(steps, &ask);
    assert_end(SP_RUN_SIGNALLED, SP_RUN_SIGNAL, 139);
    assert_int_equal(got.r.signal, SIGSEGV);
    assert_string_equal(got.out.data, "x");
}

static void test_a_denial_is_told_from_a_failure(void **state)
{
    static const struct fake_step words[] = {CONFINED, ERR("x: Permission denied"), EXITED(1),
                                             CLOSED, END};
    static const struct fake_step killed[] = {CONFINED, SIGNALLED(SIGSYS), CLOSED, END};
    static const struct fake_step open[] = {STARTED, ERR("x: Permission denied"), EXITED(1), CLOSED,
                                            END};
    const struct sp_run_request ask = plain_ask();

    play(words, &ask);
    assert_end(SP_RUN_EXITED, SP_RUN_DENIED, 1);
    (void)tear_down(state);
    assert_int_equal(set_up(state), 0);
    play(killed, &ask);
    assert_end(SP_RUN_SIGNALLED, SP_RUN_DENIED, 159);
    (void)tear_down(state);
    assert_int_equal(set_up(state), 0);
    play(open, &ask);
    assert_end(SP_RUN_EXITED, SP_RUN_OK, 1);
}

static void test_a_stream_that_stays_open_costs_two_seconds_and_no_output(void **state)
{
    static const struct fake_step steps[] = {STARTED,   OUT("hello"), EXITED(0),
                                             PAUSE(30), ERR("late"),  END};
    const struct sp_run_request ask = plain_ask();
    const uint64_t before = test_now_ms();

    (void)state;
    play(steps, &ask);
    assert_end(SP_RUN_EXITED, SP_RUN_OK, 0);
    assert_string_equal(got.aggregated.data, "hellolate");
    assert_in_range(test_now_ms() - before, SP_RUN_DRAIN_MS, SP_RUN_DRAIN_MS + DEADLINE_MS / 2);
    assert_string_equal(fake.asked, "start release ");
}

/* ---- time-outs ---- */

static void test_a_time_out_ends_the_tree_and_hears_its_last_words(void **state)
{
    static const struct fake_step steps[] = {STARTED, OUT("a"), END};
    static const struct fake_step dying[] = {PAUSE(20), OUT("b"), SIGNALLED(SIGKILL),
                                             OUT("c"),  CLOSED,   END};
    struct sp_run_request ask = plain_ask();

    (void)state;
    ask.timeout_ms = 50;
    begin(steps, &ask);
    fake.on_terminate = dying;
    finish();
    assert_end(SP_RUN_TIMED_OUT, SP_RUN_TIMEOUT, 124);
    assert_int_equal(got.r.timeout_ms, 50);
    assert_int_equal(got.r.signal, 0);
    assert_string_equal(got.out.data, "abc");
    assert_string_equal(fake.asked, "start terminate release ");
}

static void test_a_process_that_does_not_die_is_left_after_the_drain(void **state)
{
    static const struct fake_step steps[] = {STARTED, OUT("a"), END};
    struct sp_run_request ask = plain_ask();

    (void)state;
    ask.timeout_ms = 10;
    play(steps, &ask);
    assert_end(SP_RUN_TIMED_OUT, SP_RUN_TIMEOUT, 124);
    assert_string_equal(got.out.data, "a");
    assert_in_range(got.r.duration_ns / 1000000, SP_RUN_DRAIN_MS, DEADLINE_MS);
}

static void test_a_start_that_takes_too_long_is_a_time_out(void **state)
{
    static const struct fake_step steps[] = {PAUSE(60), STARTED, END};
    static const struct fake_step dying[] = {SIGNALLED(SIGKILL), CLOSED, END};
    struct sp_run_request ask = plain_ask();

    (void)state;
    ask.timeout_ms = 10;
    begin(steps, &ask);
    fake.on_terminate = dying;
    finish();
    assert_end(SP_RUN_TIMED_OUT, SP_RUN_TIMEOUT, 124);
    assert_string_equal(fake.asked, "start terminate release ");
}

static void test_a_full_buffer_knows_no_time_out(void **state)
{
    static const struct fake_step steps[] = {STARTED,   PAUSE(50), OUT("hello"),
                                             EXITED(0), CLOSED,    END};
    struct sp_run_request ask = plain_ask();

    (void)state;
    ask.timeout_ms = 1;
    ask.capture = SP_RUN_FULL_BUFFER;
    play(steps, &ask);
    assert_end(SP_RUN_EXITED, SP_RUN_OK, 0);
    assert_int_equal(got.r.timeout_ms, SP_RUN_FOREVER);
    assert_string_equal(got.out.data, "hello");
}

/* ---- cancellation ---- */

static void test_who_listens_to_a_cancellation_leaves_nobody_of_its_group(void **state)
{
    static const struct fake_step obeys[] = {PAUSE(5), OUT("bye"), EXITED(7), END};
    static const struct fake_step rest[] = {CLOSED, END};
    const struct sp_run_request ask = plain_ask();

    (void)state;
    begin(silent, &ask);
    fake.on_term = obeys;
    fake.on_kill = rest;
    cancel_after(10);
    finish();
    assert_end(SP_RUN_CANCELLED, SP_RUN_OK, 1);
    assert_string_equal(got.out.data, "bye");
    assert_string_equal(fake.asked, "start term kill release ");
}

static void test_who_does_not_listen_is_terminated_after_the_grace(void **state)
{
    struct sp_run_request ask = plain_ask();

    (void)state;
    ask.capture = SP_RUN_FULL_BUFFER; /* obeys it too */
    begin(silent, &ask);
    fake.on_terminate = dies;
    cancel_after(10);
    finish();
    assert_end(SP_RUN_CANCELLED, SP_RUN_OK, 1);
    assert_string_equal(fake.asked, "start term terminate release ");
    assert_in_range(got.r.duration_ns / 1000000, SP_RUN_GRACE_MS, SP_RUN_DRAIN_MS);
}

static void test_an_exit_beside_the_terminate_leaves_no_process_of_its_group(void **state)
{
    static const struct fake_step exits[] = {EXITED(0), END}; /* before the terminate came */
    static const struct fake_step rest[] = {CLOSED, END};
    const struct sp_run_request ask = plain_ask();

    (void)state;
    begin(silent, &ask);
    fake.on_terminate = exits;
    fake.on_kill = rest;
    cancel_after(10);
    finish();
    assert_end(SP_RUN_CANCELLED, SP_RUN_OK, 1);
    assert_string_equal(fake.asked, "start term terminate kill release ");
}

static void test_an_executor_without_term_is_not_waited_for(void **state)
{
    const struct sp_run_request ask = plain_ask();

    (void)state;
    begin(silent, &ask);
    fake.has_no_term = true;
    fake.on_terminate = dies;
    cancel_after(10);
    finish();
    assert_end(SP_RUN_CANCELLED, SP_RUN_OK, 1);
    assert_string_equal(fake.asked, "start term terminate release ");
    assert_int_equal(fake.term_ms, fake.terminate_ms); /* in one turn */
}

static void cancel_now(void)
{
    sp_run_cancel(run);
}

static void test_both_at_once_is_a_cancellation(void **state)
{
    struct sp_run_request ask = plain_ask();

    (void)state;
    ask.timeout_ms = 10;
    begin(silent, &ask);
    fake.on_terminate = dies;
    fake.terminated = cancel_now; /* in the turn of the time-out */
    finish();
    assert_end(SP_RUN_CANCELLED, SP_RUN_OK, 1);
}

static void test_a_cancellation_after_the_time_out_changes_nothing(void **state)
{
    static const struct fake_step late[] = {PAUSE(100), SIGNALLED(SIGKILL), CLOSED, END};
    struct sp_run_request ask = plain_ask();

    (void)state;
    ask.timeout_ms = 10;
    begin(silent, &ask);
    fake.on_terminate = late;
    cancel_after(60);
    finish();
    assert_end(SP_RUN_TIMED_OUT, SP_RUN_TIMEOUT, 124);
    assert_string_equal(fake.asked, "start terminate release ");
}

static void test_a_cancellation_before_the_start_waits_for_it(void **state)
{
    static const struct fake_step slow[] = {PAUSE(50), STARTED, END};
    const struct sp_run_request ask = plain_ask();

    (void)state;
    begin(slow, &ask);
    fake.on_term = dies;
    sp_run_cancel(run);
    assert_string_equal(fake.asked, "start ");
    finish();
    assert_end(SP_RUN_CANCELLED, SP_RUN_OK, 1);
    assert_string_equal(fake.asked, "start term kill release ");
}

static void test_a_cancelled_start_that_is_refused_stays_cancelled(void **state)
{
    static const struct fake_step refused[] = {PAUSE(20), REFUSED("no"), END};
    const struct sp_run_request ask = plain_ask();

    (void)state;
    begin(refused, &ask);
    sp_run_cancel(run);
    finish();
    assert_end(SP_RUN_CANCELLED, SP_RUN_OK, 1);
}

static void test_a_cancellation_after_the_exit_ends_the_drain(void **state)
{
    static const struct fake_step steps[] = {STARTED, EXITED(3), END};
    const struct sp_run_request ask = plain_ask();

    (void)state;
    begin(steps, &ask);
    cancel_after(30);
    finish();
    assert_end(SP_RUN_EXITED, SP_RUN_OK, 3);
    assert_in_range(got.r.duration_ns / 1000000, 0, SP_RUN_DRAIN_MS - 1);
}

/* ---- failures ---- */

static void test_a_lost_executor_is_a_failure_and_no_denial(void **state)
{
    static const struct fake_step steps[] = {CONFINED, ERR("permission denied"),
                                             FAILED("connection lost"), END};
    const struct sp_run_request ask = plain_ask();

    (void)state;
    play(steps, &ask);
    assert_end(SP_RUN_FAILED, SP_RUN_ERROR, -1);
    assert_string_equal(got.error, "connection lost");
    assert_string_equal(got.err.data, "permission denied");
    assert_string_equal(fake.asked, "start release ");
}

static void test_a_failure_after_the_exit_keeps_the_code(void **state)
{
    static const struct fake_step steps[] = {STARTED, EXITED(4), FAILED("connection lost"), END};
    const struct sp_run_request ask = plain_ask();

    (void)state;
    play(steps, &ask);
    assert_end(SP_RUN_EXITED, SP_RUN_OK, 4);
    assert_true(got.r.has_lost_output);
}

static void test_lost_output_is_told(void **state)
{
    static const struct fake_step steps[] = {STARTED,  OUT("a"),  GAP,    OUT("x"),
                                             ERR("e"), EXITED(0), CLOSED, END};
    const struct sp_run_request ask = plain_ask();

    (void)state;
    play(steps, &ask);
    assert_true(got.r.has_lost_output);
    assert_string_equal(got.out.data, "a\n... output lost ...\nx");
    assert_string_equal(got.aggregated.data, "a\n... output lost ...\nxe");
}

static void test_nothing_to_run_and_nowhere_to_run_it_are_said_at_once(void **state)
{
    struct sp_run_request ask = plain_ask();
    struct sp_err e = {0};

    (void)state;
    fake_init(&fake, loop, NULL);
    assert_int_equal(sp_run_start(&fake.backend, &ask, on_done, &got, &run, &e), -SP_E_LIMIT);
    assert_string_equal(e.msg, "too many");
    assert_null(run);
    ask.launch.argc = 0;
    assert_int_equal(sp_run_start(&fake.backend, &ask, on_done, &got, &run, &e), -SP_E_INVALID);
    assert_string_equal(e.msg, "command args are empty");
}

static void test_a_run_that_nobody_wants_ends_without_a_word(void **state)
{
    struct sp_run_request ask = watched_ask(SP_SOURCE_AGENT);

    (void)state;
    begin(silent, &ask);
    sp_run_free(run);
    run = NULL;
    assert_string_equal(fake.asked, "start release ");
    assert_int_equal(got.count, 0);
    assert_int_equal(got.ends, 0);
}

static const struct CMUnitTest tests[] = {
    TEST(test_both_streams_and_the_code_come_back),
    TEST(test_a_code_is_a_code_and_never_a_signal_or_a_time_out),
    TEST(test_death_by_a_signal_keeps_the_output),
    TEST(test_a_denial_is_told_from_a_failure),
    TEST(test_a_stream_that_stays_open_costs_two_seconds_and_no_output),
    TEST(test_a_time_out_ends_the_tree_and_hears_its_last_words),
    TEST(test_a_process_that_does_not_die_is_left_after_the_drain),
    TEST(test_a_start_that_takes_too_long_is_a_time_out),
    TEST(test_a_full_buffer_knows_no_time_out),
    TEST(test_who_listens_to_a_cancellation_leaves_nobody_of_its_group),
    TEST(test_who_does_not_listen_is_terminated_after_the_grace),
    TEST(test_an_exit_beside_the_terminate_leaves_no_process_of_its_group),
    TEST(test_an_executor_without_term_is_not_waited_for),
    TEST(test_both_at_once_is_a_cancellation),
    TEST(test_a_cancellation_after_the_time_out_changes_nothing),
    TEST(test_a_cancellation_before_the_start_waits_for_it),
    TEST(test_a_cancelled_start_that_is_refused_stays_cancelled),
    TEST(test_a_cancellation_after_the_exit_ends_the_drain),
    TEST(test_a_lost_executor_is_a_failure_and_no_denial),
    TEST(test_a_failure_after_the_exit_keeps_the_code),
    TEST(test_lost_output_is_told),
    TEST(test_nothing_to_run_and_nowhere_to_run_it_are_said_at_once),
    TEST(test_a_run_that_nobody_wants_ends_without_a_word),
};

TEST_MAIN(tests)

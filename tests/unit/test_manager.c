/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One command from its ask to its answer, in exact times: what is waited for, and what is told.
 */
#include "puppet_backend.h"

static void test_a_command_answers_when_it_has_ended(void **state)
{
    struct answer a;

    (void)state;
    exec_started(&a, "make", false, 10000);
    run_for(40);
    say(0, "hello\n");
    end_with(0, 3);
    turn();
    assert_true(a.is_there);
    assert_exit(&a, 3);
    assert_string_equal(a.output, "hello\n");
    assert_int_equal(a.answer.wall_ns, 40000000);
    assert_int_equal(a.process_id, 1000);
    assert_int_equal(a.from, 0);
    assert_int_equal(a.to, 6);
    assert_string_equal(story, "begin delta:hello\n end:3:hello\n ");
    assert_int_equal(sp_manager_reserved(manager), 0);
    assert_string_equal(jobs[0].asked, "start:1000 release ");
}

static void test_a_command_that_goes_on_is_kept_before_anybody_waits(void **state)
{
    struct answer a;

    (void)state;
    exec_started(&a, "server", false, 1000);
    run_for(149);
    assert_string_equal(story, "");
    assert_int_equal(sp_manager_stored(manager), 0);
    run_for(2);
    assert_string_equal(story, "begin ");
    assert_int_equal(sp_manager_stored(manager), 1);
    assert_false(a.is_there);
    until(a.is_there);
    assert_running(&a, 1000);
    assert_int_equal(a.answer.wall_ns, 1000000000);
}

static void test_the_early_check_counts_within_the_yield_time(void **state)
{
    struct answer a;

    (void)state;
    exec_started(&a, "server", false, 250);
    until(a.is_there);
    assert_int_equal(a.answer.wall_ns, 250000000);
}

static void test_every_byte_since_the_spawn_is_told(void **state)
{
    struct answer a;

    (void)state;
    exec_started(&a, "x", false, 3000);
    say(0, "EARLY\n");
    run_for(500);
    assert_string_equal(story, "begin delta:EARLY\n ");
    run_for(500);
    say(0, "LATE\n");
    end_with(0, 0);
    until(a.is_there);
    assert_string_equal(a.output, "EARLY\nLATE\n");
    assert_string_equal(story, "begin delta:EARLY\n delta:LATE\n end:0:EARLY\nLATE\n ");
}

/* A hundred small pieces in a burst are few frames, and one after a silence does not wait. */
static void test_small_pieces_are_told_together(void **state)
{
    static struct answer a;

    (void)state;
    exec_started(&a, "x", false, 3000);
    run_for(200);
    for (int i = 0; i < 100; i++)
        say(0, "x");
    assert_string_equal(story, "begin delta:x ");
    run_for(5);
    assert_int_equal(event_count, 3);
    assert_int_equal(strlen(events[2].text), 99);
    run_for(20);
    say(0, "again");
    assert_string_equal(events[3].text, "again");
}

static void test_output_before_the_begin_is_bounded(void **state)
{
    static char much[65537];
    static struct answer a;

    (void)state;
    memset(much, 'x', 65536);
    exec_started(&a, "yes", false, 3000);
    run_for(10);
    for (int i = 0; i < 16; i++)
        say(0, much);
    turn();
    assert_int_equal(sp_manager_stored(manager), 1); /* so much for the early check */
    assert_int_equal(event_count, 1 + 128);
}

static void test_streams_that_stay_open_hold_a_call_for_50_ms(void **state)
{
    struct answer a;

    (void)state;
    exec_started(&a, "(sleep 1; echo LATE) & echo now", false, 3000);
    run_for(10);
    say(0, "now\n");
    say_exited(0, 0);
    run_for(40);
    say(0, "late\n"); /* does not renew them */
    assert_false(a.is_there);
    run_for(11);
    assert_true(a.is_there);
    assert_exit(&a, 0);
    assert_string_equal(a.output, "now\nlate\n");
    assert_int_equal(a.answer.wall_ns, 60000000);
    assert_null(strstr(story, "end"));
    until(strstr(story, "end:0:now\nlate\n ") != NULL);
    assert_in_range(events[event_count - 1].at_ms - a.at_ms, 50, 60);
    assert_true(was_asked(0, "release")); /* and what it left lives on */
    assert_false(was_asked(0, "terminate"));
}

static void test_the_end_waits_for_the_streams_but_not_for_ever(void **state)
{
    struct answer a;

    (void)state;
    (void)exec_background("x", false);
    say_exited(0, 0);
    run_for(50);
    assert_null(strstr(story, "end"));
    say(0, "trailing \303");
    run_for(49);
    assert_null(strstr(story, "end"));
    until(strstr(story, "end") != NULL);
    assert_string_equal(events[event_count - 2].text, "\303"); /* what waited for its rest */
    assert_string_equal(events[event_count - 1].text, "trailing \357\277\275");
    say(0, "too late for events");
    run_for(100);
    write_for(&a, 1000, "", 0);
    until(a.is_there);
    assert_exit(&a, 0);
    assert_string_equal(a.output, "trailing \357\277\275too late for events");
    assert_string_equal(events[event_count - 1].text, "trailing \357\277\275");
}

static void test_streams_that_close_a_little_later_are_in_the_end(void **state)
{
    (void)state;
    (void)exec_background("x", false);
    const uint64_t exit_ms = test_now_ms();
    say_exited(0, 7);
    run_for(60);
    say(0, "data");
    say_closed(0);
    turn();
    assert_string_equal(story, "begin delta:data end:7:data ");
    assert_int_equal(events[event_count - 1].at_ms - exit_ms, 60);
}

static void test_closed_streams_end_no_wait_before_the_exit(void **state)
{
    struct answer a;

    (void)state;
    exec_started(&a, "exec 1>&- 2>&-; sleep 1", false, 5000);
    run_for(1000);
    assert_false(a.is_there);
    end_with(0, 0);
    until(a.is_there);
    assert_int_equal(a.answer.wall_ns, 1000000000);
}

static void test_a_torn_character_waits_for_the_next_answer(void **state)
{
    struct answer a;

    (void)state;
    exec_started(&a, "x", false, 250);
    say(0, "a\303");
    until(a.is_there);
    assert_string_equal(a.output, "a");
    assert_int_equal(a.to, 1);
    say(0, "\251b");
    write_for(&a, 1000, "", 5000);
    until(a.is_there);
    assert_string_equal(a.output, "\303\251b");
    assert_int_equal(a.from, 1);
    assert_int_equal(a.to, 4);
}

static void test_lost_output_is_said_in_the_output(void **state)
{
    struct answer a;

    (void)state;
    exec_started(&a, "x", false, 250);
    say(0, "a");
    jobs[0].job->ops->gap(jobs[0].job, 0);
    say(0, "b");
    end_with(0, 0);
    until(a.is_there);
    assert_string_equal(a.output, "a\n... output lost ...\nb");
}

/* ---- it cannot be started ---- */

static void test_a_start_that_fails_leaves_nothing(void **state)
{
    struct answer a;
    struct sp_err e;

    (void)state;
    (void)sp_fail(&start_error, SP_E_SYSTEM, EAGAIN, "make a cell");
    exec_for(&a, "pwd", false, 250);
    until(a.is_there);
    assert_fault(&a, SP_FAULT_CREATE,
                 "exec_command failed: Failed to create unified exec process: make a cell: "
                 "Resource temporarily unavailable (os error 11)");
    job_count = 0;
    (void)sp_fail(&start_error, SP_E_SYSTEM, ENOENT, "No such file or directory (os error 2)");
    exec_for(&a, "pwd", false, 250);
    until(a.is_there);
    assert_fault(&a, SP_FAULT_CREATE,
                 "exec_command failed: Failed to create unified exec process: No such file or "
                 "directory (os error 2)");
    start_error = (struct sp_err){0};
    exec_for(&a, "pwd", false, 250);
    until(job_count == 2);
    assert_true(was_asked(1, "start:1000"));
    (void)sp_fail(&e, SP_E_FAILED, 0, "process 1000-x already exists");
    jobs[1].job->ops->refused(jobs[1].job, &e);
    until(a.is_there);
    assert_fault(&a, SP_FAULT_CREATE,
                 "exec_command failed: Failed to create unified exec process: process 1000-x "
                 "already exists");
    assert_int_equal(sp_manager_reserved(manager), 0);
    assert_string_equal(story, "");
}

static void test_a_place_that_cannot_be_reached_says_so(void **state)
{
    struct answer a;

    (void)state;
    (void)sp_fail(&facts_error, SP_E_FAILED, 0, "cannot connect to ws://x");
    exec_for(&a, "x", false, 250);
    until(a.is_there);
    assert_fault(&a, SP_FAULT_CREATE,
                 "exec_command failed: Failed to create unified exec process: cannot connect to "
                 "ws://x");
}

/* ---- failures ---- */

static void test_a_lost_connection_is_no_exit_and_no_denial(void **state)
{
    struct answer a;

    (void)state;
    (void)exec_background("x", false);
    say(0, "permission denied");
    write_for(&a, 1000, "", 60000);
    run_for(100);
    say_failed(0, "connection lost");
    until(a.is_there);
    assert_fault(&a, SP_FAULT_FAILED,
                 "write_stdin failed: Unified exec process failed: connection lost");
    assert_false(a.was_denied);
    assert_non_null(strstr(story, "end:-1:permission denied\nconnection lost "));
    assert_int_equal(events[event_count - 1].status, SP_STATUS_FAILED);
    assert_int_equal(sp_manager_reserved(manager), 0);
}

static void test_a_failure_in_the_early_check_is_told(void **state)
{
    struct answer a;

    (void)state;
    exec_started(&a, "x", false, 1000);
    run_for(20);
    say(0, "PRE");
    say_failed(0, "Network access denied");
    until(a.is_there);
    assert_fault(&a, SP_FAULT_FAILED,
                 "exec_command failed: Unified exec process failed: Network access denied");
    assert_string_equal(story, "begin delta:PRE end:-1:PRE\nNetwork access denied ");
    assert_int_equal(sp_manager_reserved(manager), 0);
}

static void test_the_first_verdict_from_outside_stays(void **state)
{
    struct answer a;

    (void)state;
    (void)exec_background("x", false);
    write_for(&a, 1000, "", 60000);
    turn();
    assert_true(sp_manager_fail(manager, 1000, "network denied"));
    assert_true(sp_manager_fail(manager, 1000, "second"));
    assert_false(sp_manager_fail(manager, 1001, NULL));
    until(a.is_there);
    assert_fault(&a, SP_FAULT_FAILED,
                 "write_stdin failed: Unified exec process failed: network denied");
    until(strstr(story, "end:-1:network denied ") != NULL);
    assert_true(was_asked(0, "terminate"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        puppet_test(test_a_command_answers_when_it_has_ended),
        puppet_test(test_a_command_that_goes_on_is_kept_before_anybody_waits),
        puppet_test(test_the_early_check_counts_within_the_yield_time),
        puppet_test(test_every_byte_since_the_spawn_is_told),
        puppet_test(test_small_pieces_are_told_together),
        puppet_test(test_output_before_the_begin_is_bounded),
        puppet_test(test_streams_that_stay_open_hold_a_call_for_50_ms),
        puppet_test(test_the_end_waits_for_the_streams_but_not_for_ever),
        puppet_test(test_streams_that_close_a_little_later_are_in_the_end),
        puppet_test(test_closed_streams_end_no_wait_before_the_exit),
        puppet_test(test_a_torn_character_waits_for_the_next_answer),
        puppet_test(test_lost_output_is_said_in_the_output),
        puppet_test(test_a_start_that_fails_leaves_nothing),
        puppet_test(test_a_place_that_cannot_be_reached_says_so),
        puppet_test(test_a_lost_connection_is_no_exit_and_no_denial),
        puppet_test(test_a_failure_in_the_early_check_is_told),
        puppet_test(test_the_first_verdict_from_outside_stays),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

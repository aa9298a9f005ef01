/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls on processes that live on: turns, pauses, interruptions, ends, and who makes room.
 */
#include "puppet_backend.h"

static int done_count;
static bool was_done;

static void on_done(void *user, bool is_done)
{
    (void)user;
    done_count++;
    was_done = is_done;
}

static int begin_calls(void **state)
{
    done_count = 0;
    return begin_puppets(state);
}
#define calls_test(f) cmocka_unit_test_setup_teardown(f, begin_calls, end_puppets)

/* ---- write_stdin ---- */

static void test_a_poll_waits_between_five_seconds_and_the_configured_most(void **state)
{
    struct answer a;

    (void)state;
    (void)exec_background("x", false);
    write_for(&a, 1000, "", 1);
    until(a.is_there);
    assert_running(&a, 1000);
    assert_int_equal(a.answer.wall_ns, 5000000000);
    write_for(&a, 1000, "", 400000);
    until(a.is_there);
    assert_int_equal(a.answer.wall_ns, 300000000000);
    options.poll_max_ms = 1000;
    remake_manager();
    exec_started(&a, "x", false, 250);
    until(a.is_there);
    write_for(&a, 1000, "", 60000);
    until(a.is_there);
    assert_int_equal(a.answer.wall_ns, 5000000000);
}

static void test_a_write_waits_between_250_ms_and_thirty_seconds(void **state)
{
    struct answer a;

    (void)state;
    (void)exec_background("x", true);
    write_for(&a, 1000, "x", 90000);
    until(a.is_there);
    assert_int_equal(a.answer.wall_ns, 30000000000);
    write_for(&a, 1000, "x", 1);
    until(a.is_there);
    assert_int_equal(a.answer.wall_ns, 250000000);
    assert_string_equal(jobs[0].asked, "start:1000 write:x write:x ");
    exec_started(&a, "y", false, 120000);
    until(a.is_there);
    assert_int_equal(a.answer.wall_ns, 30000000000);
}

static void test_an_end_in_a_poll_ends_the_poll_and_comes_after_it(void **state)
{
    struct answer a;

    (void)state;
    (void)exec_background("x", true);
    write_for(&a, 1000, "\004", 500);
    turn();
    say(0, "bye");
    end_with(0, 0);
    until(a.is_there);
    assert_exit(&a, 0);
    assert_string_equal(a.output, "bye");
    assert_string_equal(story, "begin delta:bye interaction:\004 end:0:bye ");
    write_for(&a, 1000, "", 0);
    until(a.is_there);
    assert_fault(&a, SP_FAULT_UNKNOWN, "write_stdin failed: Unknown process id 1000");
}

static void test_a_poll_that_sees_the_end_is_no_interaction(void **state)
{
    struct answer a;

    (void)state;
    (void)exec_background("sleep 0.5", false);
    write_for(&a, 1000, "", 0);
    run_for(250);
    end_with(0, 0);
    until(a.is_there);
    assert_string_equal(story, "begin end:0: ");
    assert_int_equal(events[0].type, SP_EVENT_BEGIN);
}

static void test_an_unobserved_end_is_told_once(void **state)
{
    struct answer a;

    (void)state;
    (void)exec_background("x", false);
    say(0, "last words");
    end_with(0, 9);
    run_for(100000);
    assert_int_equal(sp_manager_stored(manager), 1);
    assert_non_null(strstr(story, "end:9:last words"));
    write_for(&a, 1000, "", 0);
    until(a.is_there);
    assert_exit(&a, 9);
    assert_string_equal(a.output, "last words");
    assert_int_equal(a.answer.wall_ns, 0);
    write_for(&a, 1000, "", 0);
    until(a.is_there);
    assert_int_equal(a.fault, SP_FAULT_UNKNOWN);
    assert_int_equal(sp_manager_reserved(manager), 0);
}

static void test_no_interaction_is_told_after_the_end(void **state)
{
    struct answer a;

    (void)state;
    (void)exec_background("x", true);
    end_with(0, 0);
    run_for(10);
    forget_story();
    write_for(&a, 1000, "x", 0);
    until(a.is_there);
    assert_exit(&a, 0);
    assert_string_equal(story, "");
}

static void test_characters_need_a_terminal_or_an_open_stdin(void **state)
{
    struct sp_exec_ask ask = command("cat");
    struct answer a;

    (void)state;
    (void)exec_background("x", false);
    write_for(&a, 1000, "abc", 250);
    until(a.is_there);
    assert_fault(&a, SP_FAULT_STDIN_CLOSED,
                 "write_stdin failed: stdin is closed for this session; rerun exec_command with "
                 "tty=true to keep stdin open");
    write_for(&a, 1000, "\003x", 250);
    until(a.is_there);
    assert_int_equal(a.fault, SP_FAULT_STDIN_CLOSED);
    write_for(&a, 1000, "\003", 250);
    until(a.is_there);
    assert_running(&a, 1000);
    assert_true(was_asked(0, "signal:2"));
    ask.wants_stdin = true;
    ask.yield = (struct sp_yield_ask){true, 250};
    exec_ask(&a, &ask);
    until(job_count == 2);
    say_started(1);
    until(a.is_there);
    assert_true(jobs[1].wants_stdin);
    write_for(&a, 1001, "\003", 250);
    until(a.is_there);
    assert_true(was_asked(1, "write:\003"));
}

static void test_what_a_refused_write_means(void **state)
{
    static const struct {
        enum sp_job_result result;
        bool is_remote;
        enum sp_fault fault; /* NONE: the process counts as exited */
    } rows[] = {
        {SP_JOB_FULL, false, SP_FAULT_WRITE},   {SP_JOB_NOT_YET, true, SP_FAULT_WRITE},
        {SP_JOB_REFUSED, true, SP_FAULT_WRITE}, {SP_JOB_NO_STDIN, false, SP_FAULT_WRITE},
        {SP_JOB_NO_STDIN, true, SP_FAULT_NONE}, {SP_JOB_GONE, true, SP_FAULT_NONE},
        {SP_JOB_GONE, false, SP_FAULT_NONE},    {SP_JOB_LOST, true, SP_FAULT_FAILED},
    };
    struct answer a;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        puppet_facts.is_remote = rows[i].is_remote;
        remake_manager();
        const size_t n = job_count;
        (void)exec_background("x", true);
        next_result = rows[i].result;
        write_for(&a, 1000, "x", 250);
        until(a.is_there);
        next_result = SP_JOB_OK;
        assert_int_equal(a.fault, rows[i].fault);
        if (rows[i].fault == SP_FAULT_NONE)
            assert_exit(&a, -1);
        if (rows[i].fault == SP_FAULT_WRITE)
            assert_string_equal(a.text, "write_stdin failed: failed to write to stdin");
        if (rows[i].fault == SP_FAULT_FAILED) {
            assert_string_equal(a.text,
                                "write_stdin failed: Unified exec process failed: connection lost");
            assert_true(strstr(jobs[n].asked, "terminate") != NULL);
        }
        assert_int_equal(sp_manager_stored(manager), rows[i].fault == SP_FAULT_WRITE);
    }
}

static void test_a_write_to_one_that_has_just_exited_is_its_end(void **state)
{
    struct answer a;

    (void)state;
    (void)exec_background("x", true);
    is_mute = true;
    write_for(&a, 1000, "x", 250);
    turn();
    say(0, "out");
    say_exited(0, 4);
    answer_call(&jobs[0], SP_JOB_REFUSED);
    run_for(10);
    say_closed(0);
    until(a.is_there);
    assert_exit(&a, 4);
    assert_string_equal(a.output, "out");
}

/* ---- turns ---- */

static void test_writes_are_served_in_turn(void **state)
{
    struct answer a;
    struct answer b;

    (void)state;
    (void)exec_background("x", true);
    write_for(&a, 1000, "a", 1000);
    write_for(&b, 1000, "b", 1000);
    run_for(10);
    say(0, "first");
    run_for(500);
    assert_false(was_asked(0, "write:b"));
    until(a.is_there);
    say(0, "second");
    until(b.is_there);
    assert_string_equal(a.output, "first");
    assert_string_equal(b.output, "second");
    assert_int_equal(b.from, a.to);
    assert_int_equal(b.at_ms - a.at_ms, 1000);
}

static void test_two_polls_share_no_byte(void **state)
{
    struct answer a;
    struct answer b;

    (void)state;
    (void)exec_background("x", false);
    write_for(&a, 1000, "", 5000);
    write_for(&b, 1000, "", 5000);
    run_for(100);
    say(0, "one");
    run_for(6000);
    assert_true(a.is_there);
    say(0, "two");
    until(b.is_there);
    assert_string_equal(a.output, "one");
    assert_string_equal(b.output, "two");
}

static void test_a_write_cuts_polls_short(void **state)
{
    struct answer polls[2];
    struct answer a;

    (void)state;
    (void)exec_background("x", false);
    write_for(&polls[0], 1000, "", 60000);
    write_for(&polls[1], 1000, "", 60000);
    run_for(100);
    say(0, "so far");
    write_for(&a, 1000, "\003", 250);
    turn();
    assert_true(polls[0].is_there && polls[1].is_there);
    assert_running(&polls[0], 1000);
    assert_string_equal(polls[0].output, "so far");
    assert_running(&polls[1], 1000);
    assert_true(was_asked(0, "signal:2"));
    end_with(0, 130);
    until(a.is_there);
    assert_exit(&a, 130);
    assert_int_equal(a.signal, 2);
}

static void test_calls_on_different_processes_do_not_wait_for_each_other(void **state)
{
    struct answer a;
    struct answer b;

    (void)state;
    (void)exec_background("x", true);
    (void)exec_background("y", true);
    write_for(&a, 1000, "a", 10000);
    write_for(&b, 1001, "b", 1000);
    run_for(1);
    assert_true(was_asked(0, "write:a") && was_asked(1, "write:b"));
    until(b.is_there);
    assert_false(a.is_there);
    until(a.is_there);
}

static void test_a_call_that_waits_for_a_process_that_goes_is_told(void **state)
{
    struct answer a;
    struct answer b;

    (void)state;
    (void)exec_background("x", true);
    write_for(&a, 1000, "a", 10000);
    write_for(&b, 1000, "b", 1000);
    run_for(10);
    end_with(0, 0);
    until(a.is_there && b.is_there);
    assert_exit(&a, 0);
    assert_fault(&b, SP_FAULT_UNKNOWN, "write_stdin failed: Unknown process id 1000");
}

/* ---- interruption ---- */

static void test_an_interruption_leaves_what_is_kept(void **state)
{
    struct answer a;
    struct answer b;

    (void)state;
    exec_started(&a, "x", false, 30000);
    run_for(2340);
    say(0, "kept");
    assert_true(sp_manager_cancel(manager, a.call));
    turn();
    assert_fault(&a, SP_FAULT_ABORTED, "Wall time: 2.3 seconds\naborted by user");
    assert_false(sp_manager_cancel(manager, a.call));
    assert_int_equal(sp_manager_stored(manager), 1);
    write_for(&a, 1000, "", 60000);
    write_for(&b, 1000, "", 60000);
    run_for(20);
    sp_manager_interrupt(manager);
    turn();
    assert_fault(&a, SP_FAULT_ABORTED, "aborted by user after 0.1s");
    assert_fault(&b, SP_FAULT_ABORTED, "aborted by user after 0.1s");
    write_for(&a, 1000, "", 5000);
    until(a.is_there);
    assert_running(&a, 1000);
    assert_string_equal(a.output, "kept"); /* nothing went with the calls that were given up */
    assert_string_equal(story, "begin delta:kept interaction: ");
    assert_false(was_asked(0, "release"));
}

static void test_an_interruption_kills_what_is_starting(void **state)
{
    struct answer a;

    (void)state;
    withholds_facts = true;
    exec_for(&a, "x", false, 250);
    turn();
    sp_manager_interrupt(manager);
    turn();
    assert_int_equal(a.fault, SP_FAULT_ABORTED);
    assert_null(facts_waits);
    withholds_facts = false;
    exec_for(&a, "x", false, 250);
    until(job_count == 1);
    sp_manager_interrupt(manager); /* not yet started */
    turn();
    assert_int_equal(a.fault, SP_FAULT_ABORTED);
    assert_true(was_asked(0, "release"));
    exec_started(&a, "x", false, 250);
    run_for(100);
    sp_manager_interrupt(manager); /* in the early check */
    turn();
    assert_int_equal(a.fault, SP_FAULT_ABORTED);
    assert_true(was_asked(1, "release"));
    assert_int_equal(sp_manager_reserved(manager), 0);
    assert_string_equal(story, "");
}

static void test_a_write_that_is_given_up_keeps_its_turn_until_it_was_typed(void **state)
{
    struct answer a;
    struct answer b;

    (void)state;
    (void)exec_background("x", true);
    is_mute = true;
    write_for(&a, 1000, "a", 1000);
    write_for(&b, 1000, "b", 1000);
    turn();
    assert_true(sp_manager_cancel(manager, a.call));
    turn();
    assert_int_equal(a.fault, SP_FAULT_ABORTED);
    assert_false(was_asked(0, "write:b"));
    answer_call(&jobs[0], SP_JOB_OK);
    turn();
    assert_true(was_asked(0, "write:b"));
    is_mute = false;
    answer_call(&jobs[0], SP_JOB_OK);
    until(b.is_there);
    assert_running(&b, 1000);
}

/* ---- pauses ---- */

static void test_a_pause_does_not_count(void **state)
{
    struct answer a;

    (void)state;
    sp_manager_pause(manager);
    exec_started(&a, "sleep 1 && echo done", false, 250);
    const uint64_t start_ms = test_now_ms();
    run_for(1000);
    say(0, "done\n");
    end_with(0, 0);
    run_for(1000);
    assert_false(a.is_there);
    sp_manager_unpause(manager);
    until(a.is_there);
    assert_exit(&a, 0);
    assert_string_equal(a.output, "done\n");
    assert_int_equal(a.at_ms - start_ms, 2000);
}

static void test_a_pause_in_the_middle_is_added(void **state)
{
    struct answer a;

    (void)state;
    (void)exec_background("x", false);
    write_for(&a, 1000, "", 5000);
    const uint64_t start_ms = test_now_ms();
    run_for(100);
    sp_manager_pause(manager);
    sp_manager_pause(manager); /* two questions at a time are one pause */
    run_for(1000);
    sp_manager_unpause(manager);
    run_for(1000);
    sp_manager_unpause(manager);
    until(a.is_there);
    assert_int_equal(a.at_ms - start_ms, 7000);
    sp_manager_unpause(manager); /* one too many */
}

static void test_a_pause_in_the_early_check_is_added(void **state)
{
    struct answer a;

    (void)state;
    exec_started(&a, "x", false, 250);
    const uint64_t start_ms = test_now_ms();
    run_for(50);
    sp_manager_pause(manager);
    run_for(50);
    sp_manager_unpause(manager);
    until(a.is_there);
    assert_int_equal(a.at_ms - start_ms, 300);
}

/* ---- terminating ---- */

static void test_terminate_is_confirmed_before_it_counts(void **state)
{
    (void)state;
    (void)exec_background("x", false);
    is_mute = true;
    sp_manager_terminate(manager, 1000, on_done, NULL);
    run_for(1000);
    assert_int_equal(done_count, 0);
    assert_int_equal(sp_manager_stored(manager), 1);
    say_exited(0, 137);
    answer_call(&jobs[0], SP_JOB_OK);
    assert_true(done_count == 1 && was_done);
    assert_int_equal(sp_manager_stored(manager), 0);
    say_closed(0);
    until(strstr(story, "end:137:") != NULL);
    sp_manager_terminate(manager, 1000, on_done, NULL);
    assert_int_equal(done_count, 1);
    turn();
    assert_true(done_count == 2 && !was_done);
}

static void test_a_refused_terminate_changes_nothing(void **state)
{
    (void)state;
    (void)exec_background("x", false);
    next_result = SP_JOB_REFUSED;
    sp_manager_terminate(manager, 1000, on_done, NULL);
    until(done_count == 1);
    assert_false(was_done);
    run_for(1000);
    assert_int_equal(sp_manager_stored(manager), 1);
    assert_string_equal(story, "begin ");
}

static void test_a_confirmed_terminate_needs_no_exit_to_be_told(void **state)
{
    struct answer a;

    (void)state;
    (void)exec_background("x", false);
    write_for(&a, 1000, "", 60000);
    turn();
    sp_manager_terminate(manager, 1000, on_done, NULL);
    run_for(1);
    say(0, "last");
    until(a.is_there);
    assert_exit(&a, -1);
    assert_string_equal(a.output, "last");
    until(strstr(story, "end:-1:last ") != NULL);
    assert_true(was_done);
}

static void test_a_code_that_comes_after_the_confirmation_counts(void **state)
{
    struct answer a;

    (void)state;
    exec_started(&a, "x", false, 30000);
    run_for(1000);
    sp_manager_terminate(manager, 1000, on_done, NULL);
    until(done_count == 1);
    assert_int_equal(sp_manager_stored(manager), 1); /* for the creating call to see */
    run_for(5);
    end_with(0, 137);
    until(a.is_there);
    assert_exit(&a, 137);
    assert_int_equal(sp_manager_stored(manager), 0);
    assert_non_null(strstr(story, "end:137:"));
}

static void test_terminate_all_ends_every_call_with_an_exit(void **state)
{
    struct answer initial;
    struct answer poll;
    struct answer early;
    struct answer unborn;

    (void)state;
    (void)exec_background("x", false);
    write_for(&poll, 1000, "", 60000);
    exec_started(&initial, "y", false, 30000);
    run_for(500);
    exec_started(&early, "z", false, 30000);
    withholds_facts = true;
    exec_for(&unborn, "w", false, 250);
    turn();
    withholds_facts = false;
    sp_manager_terminate_all(manager);
    assert_int_equal(sp_manager_stored(manager), 0);
    assert_int_equal(sp_manager_reserved(manager), 0);
    until(initial.is_there && poll.is_there && early.is_there && unborn.is_there);
    assert_exit(&poll, -1);
    assert_exit(&initial, -1);
    assert_exit(&early, -1);
    assert_int_equal(unborn.fault, SP_FAULT_ABORTED);
    run_for(200);
    for (size_t i = 0; i < 3; i++)
        assert_true(was_asked(i, "terminate release"));
}

static void test_the_end_of_the_manager_tells_all(void **state)
{
    static struct answer a;
    static struct answer b;

    (void)state;
    (void)exec_background("x", true);
    (void)exec_background("y", true);
    is_mute = true;
    write_for(&a, 1000, "x", 60000);
    exec_started(&b, "z", false, 10000);
    sp_manager_resize(manager, 1001, 10, 10, on_done, NULL);
    run_for(10);
    end_manager();
    assert_int_equal(a.fault, SP_FAULT_ABORTED);
    assert_int_equal(b.fault, SP_FAULT_ABORTED);
    assert_string_equal(story, "begin begin end:-1: end:-1: ");
    assert_true(done_count == 1 && !was_done);
}

/* ---- orders ---- */

static void test_orders_go_to_the_process(void **state)
{
    (void)state;
    (void)exec_background("x", true);
    sp_manager_signal(manager, 1000, 15, on_done, NULL);
    until(done_count == 1);
    sp_manager_resize(manager, 1000, 50, 132, on_done, NULL);
    until(done_count == 2);
    sp_manager_close_stdin(manager, 1000, on_done, NULL);
    until(done_count == 3);
    assert_true(was_done);
    assert_string_equal(jobs[0].asked, "start:1000 signal:15 resize:50x132 close ");
    next_result = SP_JOB_REFUSED;
    sp_manager_resize(manager, 1000, 1, 1, on_done, NULL);
    until(done_count == 4);
    assert_false(was_done);
    end_with(0, 0);
    turn();
    sp_manager_signal(manager, 1000, 15, on_done, NULL);
    until(done_count == 5);
    assert_true(was_done); /* no effect, and no failure */
    sp_manager_resize(manager, 1000, 1, 1, on_done, NULL);
    until(done_count == 6);
    assert_false(was_done);
    sp_manager_signal(manager, 7, 15, on_done, NULL);
    until(done_count == 7);
    assert_false(was_done);
}

/* ---- keeping ---- */

static char listed[256];

static void list_one(void *user, const struct sp_manager_entry *e)
{
    const size_t n = strlen(listed);

    (void)user;
    (void)snprintf(listed + n, sizeof listed - n, "%d:%s:%s:%s ", e->process_id, e->call_id.p,
                   e->command.p, e->cwd.p);
}

static void test_the_list_has_the_live_ones_by_id(void **state)
{
    (void)state;
    (void)exec_background("bash -i", true);
    (void)exec_background("two", false);
    (void)exec_background("three", false);
    end_with(1, 0);
    turn();
    listed[0] = 0;
    sp_manager_list(manager, list_one, NULL);
    assert_string_equal(listed, "1000:call:bash -i:/work 1002:call:three:/work ");
}

static void test_ids_begin_again_when_all_are_free(void **state)
{
    struct answer a;

    (void)state;
    assert_int_equal(exec_background("a", false), 1000);
    assert_int_equal(exec_background("b", false), 1001);
    for (int id = 1000; id <= 1001; id++) {
        end_with((size_t)id - 1000, 0);
        write_for(&a, id, "", 0);
        until(a.is_there);
        assert_exit(&a, 0);
    }
    assert_int_equal(exec_background("c", false), 1000);
}

static void fill(int count)
{
    for (int i = 0; i < count; i++) {
        assert_int_equal(exec_background("x", true), 1000 + i);
        run_for(10);
    }
}

static void test_the_least_recently_used_makes_room(void **state)
{
    struct answer a;

    (void)state;
    fill(64);
    write_for(&a, 1000, "x", 250); /* the second is the oldest now */
    until(a.is_there);
    assert_int_equal(exec_background("one more", false), 1064);
    assert_int_equal(sp_manager_stored(manager), 64);
    write_for(&a, 1001, "", 0);
    until(a.is_there);
    assert_int_equal(a.fault, SP_FAULT_UNKNOWN);
    assert_true(was_asked(1, "terminate"));
    run_for(200);
    assert_true(was_asked(1, "release"));
    assert_int_equal(events[event_count - 1].type, SP_EVENT_END);
    assert_int_equal(events[event_count - 1].process_id, 1001);
    assert_int_equal(exec_background("another", false), 1065);
    assert_int_equal(sp_manager_stored(manager), 64);
    assert_true(was_asked(2, "terminate"));
}

static void test_the_exited_one_makes_room_first(void **state)
{
    (void)state;
    fill(64);
    end_with(30, 0);
    run_for(200);
    (void)exec_background("one more", false);
    assert_int_equal(sp_manager_stored(manager), 64);
    assert_null(sp_manager_find(manager, 1030));
    for (size_t i = 0; i < 64; i++)
        assert_false(was_asked(i, "terminate"));
}

static void test_one_that_is_about_to_end_saves_the_others(void **state)
{
    (void)state;
    fill(64);
    struct answer a;
    exec_started(&a, "one more", false, 250);
    run_for(100);
    say_exited(5, 0); /* its end will be told in 100 ms */
    until(a.is_there);
    assert_int_equal(sp_manager_stored(manager), 65);
    for (size_t i = 0; i < 65; i++)
        assert_false(was_asked(i, "terminate"));
}

static void test_one_that_is_being_asked_makes_no_room(void **state)
{
    struct answer poll;

    (void)state;
    fill(64);
    /* The oldest of all; a poll makes it the newest, so ask for it while others become newer. */
    write_for(&poll, 1000, "", 60000);
    turn();
    for (int i = 1; i < 64; i++) {
        struct answer a;

        write_for(&a, 1000 + i, "x", 250);
        until(a.is_there);
    }
    assert_false(poll.is_there);
    (void)exec_background("one more", false);
    assert_true(was_asked(1, "terminate"));
    assert_false(was_asked(0, "terminate"));
    assert_false(poll.is_there);
    end_with(0, 0);
    until(poll.is_there);
}

static void test_a_pruned_one_answers_its_creating_call(void **state)
{
    struct answer first;

    (void)state;
    exec_started(&first, "first", false, 30000);
    run_for(160);
    for (int i = 1; i < 64; i++)
        (void)exec_background("x", false);
    is_mute = true; /* it takes its time to die */
    exec_started(&(struct answer){0}, "unused", false, 250);
    run_for(160);
    assert_true(was_asked(0, "terminate"));
    until(first.is_there);
    assert_exit(&first, -1);
    is_mute = false;
    answer_call(&jobs[0], SP_JOB_OK);
    run_for(200);
    assert_true(was_asked(0, "release"));
}

static void test_too_many_are_warned_of(void **state)
{
    (void)state;
    options.notify_at = 2;
    remake_manager();
    (void)exec_background("a", false);
    assert_string_equal(story, "begin ");
    (void)exec_background("b", false);
    assert_int_equal(events[2].type, SP_EVENT_WARNING);
    assert_non_null(
        strstr(story, "you can keep open is 2 and you currently have 2 processes open"));
}

static void test_an_exited_one_that_nobody_asks_for_goes_in_the_end(void **state)
{
    struct answer a;

    (void)state;
    options.exited_ttl_ms = 600000;
    remake_manager();
    (void)exec_background("a", false);
    run_for(1000000);
    end_with(0, 0);
    run_for(599000);
    assert_int_equal(sp_manager_stored(manager), 1);
    run_for(2000);
    assert_int_equal(sp_manager_stored(manager), 0);
    assert_int_equal(sp_manager_reserved(manager), 0);
    write_for(&a, 1000, "", 0);
    until(a.is_there);
    assert_int_equal(a.fault, SP_FAULT_UNKNOWN);
}

static void test_no_timeout_waits_for_the_exit(void **state)
{
    struct sp_write_ask ask = {.session_id = 1000, .no_timeout = true};
    struct answer a = {0};

    (void)state;
    options.has_no_timeout = true;
    remake_manager();
    (void)exec_background("sleep 7; echo end", false);
    ask.chars = SP_STR("x");
    assert_int_equal(sp_manager_write(manager, &ask, on_reply, &a, &a.call, NULL), 0);
    until(a.is_there);
    assert_fault(&a, SP_FAULT_ARGUMENTS, "`no_timeout=true` requires empty `chars`.");
    ask.chars = SP_STR("");
    a = (struct answer){0};
    assert_int_equal(sp_manager_write(manager, &ask, on_reply, &a, &a.call, NULL), 0);
    run_for(3000000);
    assert_false(a.is_there);
    say(0, "end");
    end_with(0, 0);
    until(a.is_there);
    assert_exit(&a, 0);
    assert_string_equal(a.output, "end");
}

static void test_a_call_that_nobody_could_read_is_answered(void **state)
{
    struct answer a = {0};
    char text[] = "failed to parse function arguments: x";

    (void)state;
    assert_int_equal(sp_manager_refuse(manager, sp_str_of(text), on_reply, &a, &a.call, NULL), 0);
    text[0] = 0;
    assert_false(a.is_there);
    until(a.is_there);
    assert_fault(&a, SP_FAULT_ARGUMENTS, "failed to parse function arguments: x");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        calls_test(test_a_poll_waits_between_five_seconds_and_the_configured_most),
        calls_test(test_a_write_waits_between_250_ms_and_thirty_seconds),
        calls_test(test_an_end_in_a_poll_ends_the_poll_and_comes_after_it),
        calls_test(test_a_poll_that_sees_the_end_is_no_interaction),
        calls_test(test_an_unobserved_end_is_told_once),
        calls_test(test_no_interaction_is_told_after_the_end),
        calls_test(test_characters_need_a_terminal_or_an_open_stdin),
        calls_test(test_what_a_refused_write_means),
        calls_test(test_a_write_to_one_that_has_just_exited_is_its_end),
        calls_test(test_writes_are_served_in_turn),
        calls_test(test_two_polls_share_no_byte),
        calls_test(test_a_write_cuts_polls_short),
        calls_test(test_calls_on_different_processes_do_not_wait_for_each_other),
        calls_test(test_a_call_that_waits_for_a_process_that_goes_is_told),
        calls_test(test_an_interruption_leaves_what_is_kept),
        calls_test(test_an_interruption_kills_what_is_starting),
        calls_test(test_a_write_that_is_given_up_keeps_its_turn_until_it_was_typed),
        calls_test(test_a_pause_does_not_count),
        calls_test(test_a_pause_in_the_middle_is_added),
        calls_test(test_a_pause_in_the_early_check_is_added),
        calls_test(test_terminate_is_confirmed_before_it_counts),
        calls_test(test_a_refused_terminate_changes_nothing),
        calls_test(test_a_confirmed_terminate_needs_no_exit_to_be_told),
        calls_test(test_a_code_that_comes_after_the_confirmation_counts),
        calls_test(test_terminate_all_ends_every_call_with_an_exit),
        calls_test(test_the_end_of_the_manager_tells_all),
        calls_test(test_orders_go_to_the_process),
        calls_test(test_the_list_has_the_live_ones_by_id),
        calls_test(test_ids_begin_again_when_all_are_free),
        calls_test(test_the_least_recently_used_makes_room),
        calls_test(test_the_exited_one_makes_room_first),
        calls_test(test_one_that_is_about_to_end_saves_the_others),
        calls_test(test_one_that_is_being_asked_makes_no_room),
        calls_test(test_a_pruned_one_answers_its_creating_call),
        calls_test(test_too_many_are_warned_of),
        calls_test(test_an_exited_one_that_nobody_asks_for_goes_in_the_end),
        calls_test(test_no_timeout_waits_for_the_exit),
        calls_test(test_a_call_that_nobody_could_read_is_answered),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls on processes that live on: what is typed, whose turn it is, and interruptions.
 */
#include "approve/patch/patch.h"
#include "base/auto.h"
#include "puppet_backend.h"

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
    struct sp_exec_request ask = command("cat");
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
    next_result = SP_JOB_REFUSED;
    write_for(&a, 1000, "\003", 250);
    until(a.is_there);
    assert_fault(&a, SP_FAULT_WRITE, "write_stdin failed: failed to write to stdin: refused");
    next_result = SP_JOB_OK;
    ask.wants_stdin = true;
    ask.yield = (struct sp_yield_request){true, 250};
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
    assert_true(sp_list_is_empty(&facts_waits));
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

static void test_a_write_that_is_given_up_is_typed_before_the_next(void **state)
{
    struct answer a;
    struct answer b;

    (void)state;
    (void)exec_background("x", true);
    is_mute = true;
    write_for(&a, 1000, "a", 1000);
    write_for(&b, 1000, "b", 1000);
    turn();
    assert_false(was_asked(0, "write:b"));
    assert_true(sp_manager_cancel(manager, a.call));
    turn();
    assert_int_equal(a.fault, SP_FAULT_ABORTED);
    assert_true(was_asked(0, "write:a write:b"));
    answer_call(&jobs[0], SP_JOB_REFUSED); /* nobody asks any more */
    run_for(10);
    answer_call(&jobs[0], SP_JOB_OK);
    until(b.is_there);
    assert_running(&b, 1000);
}

/* The characters are on their way: the answer does not wait for them for ever, the next one does.
 */
static void test_a_write_that_nobody_takes_is_answered_in_the_end(void **state)
{
    struct answer a;
    struct answer b;

    (void)state;
    (void)exec_background("x", true);
    is_mute = true;
    write_for(&a, 1000, "a", 250);
    write_for(&b, 1000, "", 5000);
    until(a.is_there);
    assert_running(&a, 1000);
    assert_int_equal(a.answer.wall_ns, 30000000000);
    until(b.is_there);
    assert_running(&b, 1000);
    assert_int_equal(b.at_ms - a.at_ms, 5000);
    write_for(&a, 1000, "a", 250); /* it ends meanwhile: so does the wait */
    run_for(1000);
    end_with(0, 5);
    until(a.is_there);
    assert_exit(&a, 5);
    run_for(200); /* neither is ever answered */
    assert_null(first_process(manager));
    assert_true(sp_list_is_empty(&manager->dead));
}

/* ---- special calls ---- */

static void test_no_timeout_waits_for_the_exit(void **state)
{
    struct sp_write_request ask = {.session_id = 1000, .no_timeout = true};
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

/* ---- answers that the caller formats ---- */

static void test_who_formats_the_answer_gets_no_text(void **state)
{
    struct sp_exec_request ask = command("x");
    struct answer a;

    (void)state;
    ask.omits_text = true;
    exec_ask(&a, &ask);
    until(job_count == 1);
    say_started(0);
    say(0, "output");
    end_with(0, 0);
    until(a.is_there);
    assert_exit(&a, 0);
    assert_string_equal(a.output, "output");
    assert_string_equal(a.text, "");
    ask.environment_id = SP_STR("none");
    exec_ask(&a, &ask);
    until(a.is_there);
    assert_fault(&a, SP_FAULT_ARGUMENTS, "unknown turn environment id `none`");
}

/* ---- patches ---- */

#define A_PATCH "*** Begin Patch\n*** Add File: new\n+text\n*** End Patch\n"

/* What the program that verifies the patch prints. */
static void say_report(size_t i)
{
    auto_buf struct sp_buf report = {0};
    struct sp_patch_changes changes = {0};
    struct sp_patch patch = {0};
    struct sp_job *j = live(i);

    assert_int_equal(sp_patch_parse(SP_STR(A_PATCH), &patch, NULL), 0);
    assert_int_equal(sp_patch_list(&patch, "/site", &changes, NULL), 0);
    assert_int_equal(sp_patch_add_report(&report, &changes, NULL), 0);
    assert_true(j->ops->output(j, SP_STREAM_STDOUT, sp_buf_str(&report)));
    sp_patch_changes_done(&changes);
    sp_patch_done(&patch);
}

static void test_a_patch_whose_program_is_lost_shows_its_output_once(void **state)
{
    struct answer a;

    (void)state;
    exec_started(&a, "apply_patch <<'EOF'\n" A_PATCH "EOF\n", false, 30000);
    say_report(0);
    end_with(0, 0);
    until(job_count == 2);
    say_started(1);
    say(1, "half of it");
    say_failed(1, "the cell has ended");
    until(a.is_there);
    assert_int_equal(a.answer.exit_code, 1);
    assert_string_equal(a.output, "half of it\nexecution error: the cell has ended");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        puppet_test(test_a_poll_waits_between_five_seconds_and_the_configured_most),
        puppet_test(test_a_write_waits_between_250_ms_and_thirty_seconds),
        puppet_test(test_an_end_in_a_poll_ends_the_poll_and_comes_after_it),
        puppet_test(test_a_poll_that_sees_the_end_is_no_interaction),
        puppet_test(test_an_unobserved_end_is_told_once),
        puppet_test(test_no_interaction_is_told_after_the_end),
        puppet_test(test_characters_need_a_terminal_or_an_open_stdin),
        puppet_test(test_what_a_refused_write_means),
        puppet_test(test_a_write_to_one_that_has_just_exited_is_its_end),
        puppet_test(test_writes_are_served_in_turn),
        puppet_test(test_two_polls_share_no_byte),
        puppet_test(test_a_write_cuts_polls_short),
        puppet_test(test_calls_on_different_processes_do_not_wait_for_each_other),
        puppet_test(test_a_call_that_waits_for_a_process_that_goes_is_told),
        puppet_test(test_an_interruption_leaves_what_is_kept),
        puppet_test(test_an_interruption_kills_what_is_starting),
        puppet_test(test_a_write_that_is_given_up_is_typed_before_the_next),
        puppet_test(test_a_write_that_nobody_takes_is_answered_in_the_end),
        puppet_test(test_no_timeout_waits_for_the_exit),
        puppet_test(test_a_call_that_nobody_could_read_is_answered),
        puppet_test(test_who_formats_the_answer_gets_no_text),
        puppet_test(test_a_patch_whose_program_is_lost_shows_its_output_once),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

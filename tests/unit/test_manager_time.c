/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that are to answer now, and processes whose own time ends them; and why each is no more.
 */
#include "puppet_backend.h"

/* ---- answers without waiting ---- */

static void test_a_command_answers_now_with_what_there_is(void **state)
{
    struct answer a;

    (void)state;
    exec_started(&a, "x", false, 30000);
    run_for(1000);
    say(0, "so far");
    const uint64_t at_ms = test_now_ms();
    sp_manager_answer_now(manager, a.call);
    assert_false(a.is_there);
    until(a.is_there);
    assert_running(&a, 1000);
    assert_int_equal(a.at_ms, at_ms);
    assert_int_equal(a.woken_by, -1);
    assert_string_equal(a.output, "so far");
    sp_manager_answer_now(manager, a.call); /* nobody's any more */
    sp_manager_answer_now(manager, 12345);
}

static void test_a_command_that_has_no_process_yet_waits_for_it_alone(void **state)
{
    struct answer a;

    (void)state;
    withholds_facts = true;
    exec_for(&a, "x", false, 30000);
    sp_manager_answer_now(manager, a.call);
    run_for(1000);
    assert_false(a.is_there);
    withholds_facts = false;
    tell_facts(NULL);
    until(job_count == 1);
    run_for(1000); /* it is being started */
    assert_false(a.is_there);
    say_started(0);
    const uint64_t at_ms = test_now_ms();
    until(a.is_there);
    assert_running(&a, 1000);
    assert_true(a.at_ms - at_ms <= SP_EARLY_MS + 1);
}

static void test_an_open_question_stays_open(void **state)
{
    struct sp_exec_request ask = command("x");
    struct sp_policy read_only = {0};
    struct answer a;

    (void)state;
    assert_int_equal(sp_profile_add(&read_only.profile, SP_PLACE_ROOT, SP_ACCESS_READ, false,
                                    (struct sp_str){0}, (struct sp_str){0}, NULL),
                     0);
    options.policy = &read_only;
    remake_manager();
    sp_policy_done(&read_only);
    ask.has_permissions = true;
    ask.permissions = SP_PERMISSIONS_ESCALATED;
    exec_ask(&a, &ask);
    until(questions == 1);
    sp_manager_answer_now(manager, a.call);
    run_for(1000);
    assert_false(a.is_there);
    decide(last_question.id, SP_DECISION_APPROVED);
    until(job_count == 1);
    say_started(0);
    until(a.is_there);
    assert_running(&a, 1000);
    assert_int_equal(questions, 1);
}

static void test_last_words_are_heard_all_the_same(void **state)
{
    struct answer a;

    (void)state;
    exec_started(&a, "x", false, 30000);
    run_for(1000);
    say_exited(0, 0);
    sp_manager_answer_now(manager, a.call);
    run_for(20);
    assert_false(a.is_there);
    say(0, "last");
    say_closed(0);
    until(a.is_there);
    assert_exit(&a, 0);
    assert_string_equal(a.output, "last");
}

static void test_a_pause_does_not_keep_it(void **state)
{
    struct answer a;

    (void)state;
    exec_started(&a, "x", false, 30000);
    run_for(1000);
    sp_manager_pause(manager, true);
    run_for(1000);
    sp_manager_answer_now(manager, a.call);
    until(a.is_there);
    assert_running(&a, 1000);
    sp_manager_pause(manager, false);
}

static void test_a_poll_answers_now(void **state)
{
    struct answer a;

    (void)state;
    (void)exec_background("x", false);
    write_for(&a, 1000, "", 60000);
    sp_manager_answer_now(manager, a.call); /* before it has entered */
    const uint64_t at_ms = test_now_ms();
    until(a.is_there);
    assert_running(&a, 1000);
    assert_int_equal(a.at_ms, at_ms);
    write_for(&a, 1000, "", 60000);
    run_for(500);
    say(0, "more");
    sp_manager_answer_now(manager, a.call);
    until(a.is_there);
    assert_string_equal(a.output, "more");
}

static void test_a_poll_does_not_wait_for_its_turn(void **state)
{
    struct answer first;
    struct answer second;

    (void)state;
    (void)exec_background("x", true);
    write_for(&first, 1000, "typed", 30000);
    run_for(100);
    write_for(&second, 1000, "", 60000);
    run_for(100);
    say(0, "out");
    sp_manager_answer_now(manager, second.call);
    until(second.is_there);
    assert_running(&second, 1000);
    assert_string_equal(second.output, "out");
    assert_false(first.is_there);
    say(0, "rest");
    until(first.is_there);
    assert_string_equal(first.output, "rest");
    assert_int_equal(first.from, second.to);
}

static void test_what_is_to_be_typed_is_typed_in_its_order(void **state)
{
    struct answer first;
    struct answer second;

    (void)state;
    (void)exec_background("x", true);
    write_for(&first, 1000, "one", 30000);
    run_for(100);
    write_for(&second, 1000, "two", 30000);
    run_for(100);
    const uint64_t at_ms = test_now_ms();
    sp_manager_answer_now(manager, second.call);
    until(second.is_there);
    assert_true(first.is_there);
    assert_running(&second, 1000);
    assert_true(second.at_ms - at_ms <= 5);
    assert_non_null(strstr(jobs[0].asked, "write:one write:two "));
}

static void test_typing_that_does_not_end_is_not_waited_for(void **state)
{
    struct answer a;

    (void)state;
    (void)exec_background("x", true);
    is_mute = true;
    write_for(&a, 1000, "typed", 30000);
    run_for(100);
    sp_manager_answer_now(manager, a.call);
    until(a.is_there);
    assert_running(&a, 1000);
    answer_call(&jobs[0], SP_JOB_OK);
    run_for(10);
}

static void test_it_is_told_whether_anything_was_typed(void **state)
{
    struct answer first;
    struct answer second;

    (void)state;
    (void)exec_background("x", true);
    is_mute = true;
    write_for(&first, 1000, "one", 30000);
    run_for(10);
    write_for(&second, 1000, "two", 30000);
    run_for(10);
    assert_true(sp_manager_cancel(manager, second.call)); /* it waits for its turn */
    assert_true(sp_manager_cancel(manager, first.call));
    until(first.is_there && second.is_there);
    assert_int_equal(first.fault, SP_FAULT_ABORTED);
    assert_true(first.has_typed && !second.has_typed);
    assert_false(was_asked(0, "write:two"));
    answer_call(&jobs[0], SP_JOB_OK);
    is_mute = false;
    write_for(&first, 1000, "three", 250);
    until(first.is_there);
    assert_true(first.has_typed);
    write_for(&first, 1000, "", 5000);
    until(first.is_there);
    assert_false(first.has_typed);
    next_result = SP_JOB_FULL;
    write_for(&first, 1000, "four", 250);
    until(first.is_there);
    assert_int_equal(first.fault, SP_FAULT_WRITE);
    assert_false(first.has_typed);
}

static void test_a_command_can_wait_for_its_end(void **state)
{
    struct sp_exec_request ask = command("x");
    struct answer a;

    (void)state;
    ask.waits_for_end = true;
    ask.yield = (struct sp_yield_request){true, 250};
    exec_ask(&a, &ask);
    until(job_count == 1);
    say_started(0);
    run_for(3000000);
    assert_false(a.is_there);
    end_with(0, 4);
    until(a.is_there);
    assert_exit(&a, 4);
    exec_ask(&a, &ask);
    until(job_count == 2);
    say_started(1);
    run_for(1000);
    sp_manager_answer_now(manager, a.call);
    until(a.is_there);
    assert_running(&a, 1000);
}

/* ---- timeouts ---- */

static void exec_with_timeout(struct answer *a, uint64_t timeout_ms, uint64_t yield_ms)
{
    const size_t n = job_count;
    struct sp_exec_request ask = command("x");

    ask.timeout_ms = timeout_ms;
    ask.yield = (struct sp_yield_request){true, yield_ms};
    exec_ask(a, &ask);
    until(job_count == n + 1);
    say_started(n);
}

static void test_a_timeout_kills_the_tree(void **state)
{
    struct answer a;

    (void)state;
    is_mute = true;
    exec_with_timeout(&a, 2000, 30000);
    const uint64_t at_ms = test_now_ms();
    until(was_asked(0, "terminate"));
    assert_true(test_now_ms() - at_ms >= 2000 - 1 && test_now_ms() - at_ms <= 2005);
    assert_false(a.is_there);
    say(0, "dying");
    end_with(0, 137);
    answer_call(&jobs[0], SP_JOB_OK);
    until(a.is_there);
    assert_exit(&a, 137);
    assert_int_equal(a.signal, 9);
    assert_int_equal(a.end_reason, SP_END_TIMEOUT);
    assert_string_equal(a.output, "dying");
}

static void test_a_timeout_ends_a_session_in_the_background(void **state)
{
    struct answer a;

    (void)state;
    exec_with_timeout(&a, 60000, 250);
    until(a.is_there);
    assert_running(&a, 1000);
    run_for(59000);
    assert_false(was_asked(0, "terminate"));
    run_for(2000);
    assert_true(was_asked(0, "terminate"));
    end_with(0, 137);
    write_for(&a, 1000, "", 5000);
    until(a.is_there);
    assert_true(a.has_exited);
    assert_int_equal(a.end_reason, SP_END_TIMEOUT);
}

static void test_who_ends_before_its_timeout_has_ended_by_itself(void **state)
{
    struct answer a;

    (void)state;
    exec_with_timeout(&a, 2000, 30000);
    run_for(1000);
    end_with(0, 0);
    until(a.is_there);
    assert_int_equal(a.end_reason, SP_END_EXIT);
    run_for(5000);
    assert_false(was_asked(0, "terminate"));
    exec_with_timeout(&a, UINT64_MAX, 250);
    until(a.is_there);
    assert_running(&a, 1000);
}

static void test_a_refused_kill_is_tried_again(void **state)
{
    struct answer a;

    (void)state;
    next_result = SP_JOB_REFUSED;
    exec_with_timeout(&a, 2000, 250);
    run_for(3500);
    assert_non_null(strstr(jobs[0].asked, "terminate terminate "));
    assert_int_equal(sp_manager_stored(manager), 1);
    write_for(&a, 1000, "", 5000);
    until(a.is_there);
    assert_running(&a, 1000);
    assert_int_equal(a.end_reason, SP_END_NONE);
    next_result = SP_JOB_OK;
    run_for(1100);
    end_with(0, 137);
    write_for(&a, 1000, "", 5000);
    until(a.is_there);
    assert_int_equal(a.end_reason, SP_END_TIMEOUT);
}

/* ---- nobody uses it ---- */

static void test_what_nobody_uses_ends(void **state)
{
    struct answer a;

    (void)state;
    options.idle_ttl_ms = 10000;
    remake_manager();
    (void)exec_background("x", false);
    run_for(9000);
    assert_false(was_asked(0, "terminate"));
    write_for(&a, 1000, "", 60000); /* longer than that: it is in use */
    until(a.is_there);
    assert_running(&a, 1000);
    run_for(9000);
    sp_manager_resize(manager, 1000, 5, 5, NULL, NULL);
    run_for(9000);
    struct sp_manager_view v;
    assert_true(sp_manager_view(manager, 1000, &v));
    run_for(9000);
    assert_false(was_asked(0, "terminate"));
    run_for(1500);
    assert_true(was_asked(0, "terminate"));
    write_for(&a, 1000, "", 5000);
    until(a.is_there);
    assert_true(a.has_exited);
    assert_int_equal(a.end_reason, SP_END_IDLE);
}

static void test_a_command_is_in_use_while_its_call_waits(void **state)
{
    struct answer a;

    (void)state;
    options.idle_ttl_ms = 1000;
    remake_manager();
    exec_started(&a, "x", false, 30000);
    run_for(20000);
    assert_false(was_asked(0, "terminate"));
    until(a.is_there);
    run_for(1100);
    assert_true(was_asked(0, "terminate"));
}

/* ---- why ---- */

static enum sp_end_reason reason_of(int id)
{
    struct sp_manager_view v;

    return sp_manager_view(manager, id, &v) ? v.end_reason : SP_END_NONE;
}

static void test_every_end_has_its_reason(void **state)
{
    (void)state;
    options.remembers_ended = true;
    remake_manager();
    for (int i = 0; i < 7; i++)
        assert_int_equal(exec_background("x", false), 1000 + i);
    end_with(0, 7);
    end_with(1, 143);
    say_failed(2, "gone");
    sp_manager_terminate(manager, 1003, NULL, NULL);
    assert_true(sp_manager_fail(manager, 1004, NULL));
    run_for(200);
    assert_int_equal(reason_of(1000), SP_END_EXIT);
    assert_int_equal(reason_of(1001), SP_END_SIGNAL);
    assert_int_equal(reason_of(1002), SP_END_LOST);
    assert_int_equal(reason_of(1003), SP_END_TERMINATED);
    assert_int_equal(reason_of(1004), SP_END_TERMINATED);
    assert_int_equal(reason_of(1005), SP_END_NONE);
    sp_manager_terminate_all(manager);
    run_for(10);
    assert_int_equal(reason_of(1005), SP_END_TERMINATED);
    /* what could not be ended has not ended */
    (void)exec_background("y", false);
    next_result = SP_JOB_REFUSED;
    sp_manager_terminate(manager, 1007, NULL, NULL);
    run_for(10);
    assert_int_equal(reason_of(1007), SP_END_NONE);
    end_with(7, 0);
    run_for(10);
    assert_int_equal(reason_of(1007), SP_END_EXIT);
}

static void test_facts_of_the_end_are_told(void **state)
{
    struct answer a;
    struct sp_denial_facts denial = {.has_evidence = true, .path = "/site/secret"};
    struct sp_exit kernel = {.code = 1, .max_rss_kb = 77};
    const struct sp_job_exit how = {.code = 1, .denial = &denial, .kernel = &kernel};

    (void)state;
    options.remembers_ended = true;
    remake_manager();
    exec_started(&a, "x", false, 30000);
    run_for(1000);
    live(0)->ops->exited(live(0), &how);
    denial.path[0] = 0; /* they were borrowed */
    kernel.max_rss_kb = 0;
    until(a.is_there); /* and nobody closes its output */
    assert_exit(&a, 1);
    assert_true(a.has_exited && a.is_output_held && a.has_denial && a.has_kernel);
    run_for(1000);
    struct sp_manager_view v;
    assert_true(sp_manager_view(manager, 1000, &v));
    assert_string_equal(v.denial->path, "/site/secret");
    assert_int_equal(v.kernel->max_rss_kb, 77);
    assert_true(v.is_answered && !v.is_output_held);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        puppet_test(test_a_command_answers_now_with_what_there_is),
        puppet_test(test_a_command_that_has_no_process_yet_waits_for_it_alone),
        puppet_test(test_an_open_question_stays_open),
        puppet_test(test_last_words_are_heard_all_the_same),
        puppet_test(test_a_pause_does_not_keep_it),
        puppet_test(test_a_poll_answers_now),
        puppet_test(test_a_poll_does_not_wait_for_its_turn),
        puppet_test(test_what_is_to_be_typed_is_typed_in_its_order),
        puppet_test(test_typing_that_does_not_end_is_not_waited_for),
        puppet_test(test_it_is_told_whether_anything_was_typed),
        puppet_test(test_a_command_can_wait_for_its_end),
        puppet_test(test_a_timeout_kills_the_tree),
        puppet_test(test_a_timeout_ends_a_session_in_the_background),
        puppet_test(test_who_ends_before_its_timeout_has_ended_by_itself),
        puppet_test(test_a_refused_kill_is_tried_again),
        puppet_test(test_what_nobody_uses_ends),
        puppet_test(test_a_command_is_in_use_while_its_call_waits),
        puppet_test(test_every_end_has_its_reason),
        puppet_test(test_facts_of_the_end_are_told),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

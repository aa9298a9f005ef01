/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ends a wait before its deadline: the end, a pattern, a silence, a port; and a deadline that
 * holds for all of them.
 */
#include <time.h>

#include "memory_fixture.h"
#include "until_fixture.h"

/* ---- patterns ---- */

static void test_a_pattern_answers_at_once(void **state)
{
    const struct sp_until items[] = {pattern("^ready [0-9]+$")};
    struct answer a;

    (void)state;
    exec_until(&a, items, 1, 30000);
    run_for(1000);
    say(0, "not ready 1\nrea");
    run_for(500);
    say(0, "dy 2");
    run_for(50);
    assert_false(a.is_there);
    const uint64_t at_ms = test_now_ms();
    say(0, "5\nand more");
    until(a.is_there);
    assert_running(&a, 1000);
    assert_int_equal(a.at_ms, at_ms);
    assert_int_equal(a.woken_by, 0);
    assert_false(a.has_exited);
    assert_int_equal(a.end_reason, SP_END_NONE);
    assert_string_equal(a.output, "not ready 1\nready 25\nand more");
}

static void test_a_pattern_is_sought_in_what_is_pending(void **state)
{
    const struct sp_until items[] = {pattern("before")};
    struct answer a;

    (void)state;
    (void)exec_background("x", false);
    say(0, "before\n");
    run_for(10);
    write_until(&a, "", items, 1, 60000);
    const uint64_t at_ms = test_now_ms();
    until(a.is_there);
    assert_int_equal(a.at_ms, at_ms);
    assert_int_equal(a.woken_by, 0);
    /* what was answered is not seen again, not even as the beginning of a match */
    const struct sp_until next[] = {pattern("before\nafter"), pattern("^after")};
    write_until(&a, "", next, 2, 60000);
    run_for(10);
    say(0, "after\n");
    until(a.is_there);
    assert_int_equal(a.woken_by, 1);
    assert_string_equal(a.output, "after\n");
}

/* Nobody else is heard while it is looked for, so it must not be looked for for ever. */
static void test_a_pattern_that_takes_too_long_ends_its_wait(void **state)
{
    const struct sp_until items[] = {pattern("1[01]{1900}z"), pattern("last")};
    static char text[1 << 20];
    uint32_t random = 1;
    struct answer a;

    (void)state;
    for (size_t i = 0; i < sizeof text - 1; i++) { /* nothing that could be learnt */
        random = random * 1664525 + 1013904223;
        text[i] = (random >> 31) != 0 ? '1' : '0';
    }
    (void)exec_background("x", false);
    say(0, text);
    const clock_t from = clock();
    write_until(&a, "", items, 2, 60000);
    until(a.is_there);
    assert_true((double)(clock() - from) / CLOCKS_PER_SEC < 5);
    assert_int_equal(a.woken_by, -1);
    assert_running(&a, 1000);
    assert_non_null(strstr(story, "warning:`until`: the pattern used too much CPU time"));
    write_until(&a, "", items + 1, 1, 60000); /* the next is its own master */
    say(0, "the last");
    until(a.is_there);
    assert_int_equal(a.woken_by, 0);
}

static void test_a_pattern_never_spans_what_was_omitted(void **state)
{
    const struct sp_until items[] = {pattern("aaaaaaaab*bbbbbbbb"), pattern("^b*END")};
    static char half[SP_HEADTAIL_CAPACITY / 2 + 1];
    struct answer a;

    (void)state;
    (void)exec_background("x", false);
    memset(half, 'a', sizeof half - 1);
    say(0, half);
    memset(half, 'b', sizeof half - 1);
    say(0, "cc");
    say(0, half); /* now the middle is gone */
    write_until(&a, "", items, 2, 60000);
    run_for(200);
    assert_false(a.is_there);
    say(0, "END"); /* drops more of what was heard */
    until(a.is_there);
    assert_int_equal(a.woken_by, 1);
    assert_int_equal(a.to, sizeof half * 2 - 2 + 5);
}

static void test_a_stream_that_goes_on_does_not_hold_up_the_answer(void **state)
{
    const struct sp_until items[] = {pattern("go")};
    struct answer a;

    (void)state;
    exec_until(&a, items, 1, 30000);
    run_for(300);
    say(0, "go\n");
    const uint64_t at_ms = test_now_ms();
    for (int i = 0; i < 20 && !a.is_there; i++) {
        say(0, "noise\n");
        run_for(1);
    }
    assert_true(a.is_there && a.at_ms == at_ms);
}

static void test_a_prompt_is_the_end_of_a_line_after_a_moment(void **state)
{
    const struct sp_until items[] = {pattern("\\$ $")};
    struct answer a;

    (void)state;
    exec_until(&a, items, 1, 30000);
    run_for(1000);
    say(0, "it costs 1$ and no more\n");
    run_for(1000);
    assert_false(a.is_there);
    say(0, "sh-5$ ");
    const uint64_t at_ms = test_now_ms();
    until(a.is_there);
    assert_int_equal(a.woken_by, 0);
    assert_true(a.at_ms - at_ms >= SP_PROMPT_MS && a.at_ms - at_ms <= SP_PROMPT_MS + 5);
    /* a prompt that is gone is none: what was typed, and its echo, come behind it */
    write_until(&a, "sleep 9\n", items, 1, 30000);
    run_for(1);
    say(0, "$ ");
    run_for(SP_PROMPT_MS / 2);
    say(0, "sleep 9\n");
    run_for(5000);
    assert_false(a.is_there);
    say(0, "$ ");
    until(a.is_there);
    assert_int_equal(a.woken_by, 0);
}

static void test_a_pattern_in_the_last_line_is_met_by_the_end(void **state)
{
    const struct sp_until items[] = {pattern("done$"), an_exit};
    struct answer a;

    (void)state;
    exec_until(&a, items, 2, 30000);
    run_for(1000);
    say(0, "done");
    end_with(0, 0);
    until(a.is_there);
    assert_exit(&a, 0);
    assert_int_equal(a.woken_by, 0);
    assert_true(a.has_exited);
    assert_int_equal(a.end_reason, SP_END_EXIT);
}

static void test_what_another_call_answered_is_not_seen(void **state)
{
    const struct sp_until items[] = {pattern("one.*two")};
    struct answer first;
    struct answer poll;

    (void)state;
    exec_until(&first, items, 1, 30000);
    run_for(300);
    say(0, "one ");
    run_for(1);
    write_for(&poll, 1000, "", 5000);
    until(poll.is_there);
    assert_string_equal(poll.output, "one ");
    say(0, "two ");
    run_for(1000);
    assert_false(first.is_there);
    say(0, "one two");
    until(first.is_there);
    assert_int_equal(first.woken_by, 0);
    assert_string_equal(first.output, "two one two");
}

static void test_two_that_wait_for_the_same_words_get_them_once(void **state)
{
    const struct sp_until items[] = {pattern("hello")};
    struct answer first;
    struct answer poll;

    (void)state;
    exec_until(&first, items, 1, 30000);
    run_for(300);
    write_until(&poll, "", items, 1, 60000);
    run_for(10);
    say(0, "hello\n");
    until(first.is_there);
    run_for(1000);
    assert_false(poll.is_there);
    say(0, "hello again\n");
    until(poll.is_there);
    assert_int_equal(poll.woken_by, 0);
    assert_string_equal(poll.output, "hello again\n");
}

static void test_an_early_match_waits_for_the_start_to_count(void **state)
{
    const struct sp_until items[] = {pattern("x")};
    struct answer a;

    (void)state;
    exec_until(&a, items, 1, 30000);
    const uint64_t at_ms = test_now_ms();
    say(0, "x");
    until(a.is_there);
    assert_running(&a, 1000);
    assert_true(a.at_ms - at_ms <= SP_EARLY_MS + 1);
    assert_int_equal(a.woken_by, 0);
}

static void test_only_what_follows_the_typing_is_waited_for_after_it(void **state)
{
    const struct sp_until items[] = {pattern("answer")};
    struct answer a;

    (void)state;
    (void)exec_background("x", true);
    is_mute = true;
    write_until(&a, "question\n", items, 1, 5000);
    run_for(100);
    say(0, "ans");
    run_for(100);
    assert_false(a.is_there);
    say(0, "wer\n");
    run_for(100);
    assert_false(a.is_there); /* nobody knows yet whether it was typed */
    answer_call(&jobs[0], SP_JOB_OK);
    is_mute = false;
    until(a.is_there);
    assert_int_equal(a.woken_by, 0);
    assert_string_equal(a.output, "answer\n");
}

static void test_nonsense_starts_nothing(void **state)
{
    const struct sp_until bad[] = {quiet(5), pattern("a(b")};
    const struct sp_until no_port[] = {port(0)};
    struct sp_until many[SP_UNTIL_COUNT_MAX + 1] = {{0}};
    struct sp_exec_request ask = command("x");
    struct answer a;

    (void)state;
    ask.until = bad;
    ask.until_count = 2;
    exec_ask(&a, &ask);
    until(a.is_there);
    assert_int_equal(a.fault, SP_FAULT_ARGUMENTS);
    assert_non_null(
        strstr(a.text, "`until`: `pattern` is not a valid extended regular expression: "));
    ask.until = no_port;
    ask.until_count = 1;
    exec_ask(&a, &ask);
    until(a.is_there);
    assert_fault(&a, SP_FAULT_ARGUMENTS, "`until`: a `port` is between 1 and 65535; 0 is none");
    ask.until = many;
    ask.until_count = SP_UNTIL_COUNT_MAX + 1;
    exec_ask(&a, &ask);
    until(a.is_there);
    assert_fault(&a, SP_FAULT_ARGUMENTS, "`until` has 9 conditions; at most 8 are allowed");
    assert_int_equal(job_count, 0);
    assert_int_equal(sp_manager_reserved(manager), 0);

    (void)exec_background("x", true);
    write_until(&a, "typed", bad, 2, 250);
    until(a.is_there);
    assert_int_equal(a.fault, SP_FAULT_ARGUMENTS);
    assert_false(was_asked(0, "write:"));
}

/* ---- silence ---- */

static void test_silence_is_counted_from_the_last_output(void **state)
{
    const struct sp_until items[] = {quiet(2000)};
    struct answer a;

    (void)state;
    exec_until(&a, items, 1, 30000);
    uint64_t at_ms = test_now_ms();
    for (int i = 0; i < 5; i++) {
        run_for(1500);
        say(0, ".");
    }
    at_ms = test_now_ms();
    until(a.is_there);
    assert_running(&a, 1000);
    assert_int_equal(a.woken_by, 0);
    assert_true(a.at_ms - at_ms >= 2000 && a.at_ms - at_ms <= 2005);
}

static void test_silence_begins_with_the_wait(void **state)
{
    const struct sp_until items[] = {quiet(1000)};
    struct answer a;

    (void)state;
    (void)exec_background("x", false);
    run_for(5000);
    write_until(&a, "", items, 1, 60000);
    const uint64_t at_ms = test_now_ms();
    until(a.is_there);
    assert_true(a.at_ms - at_ms >= 1000 && a.at_ms - at_ms <= 1005);
    assert_int_equal(a.woken_by, 0);
}

static void test_a_pause_is_no_silence(void **state)
{
    const struct sp_until items[] = {quiet(1000)};
    struct answer a;

    (void)state;
    (void)exec_background("x", false);
    write_until(&a, "", items, 1, 60000);
    const uint64_t at_ms = test_now_ms();
    run_for(400);
    sp_manager_pause(manager, true);
    run_for(10000);
    sp_manager_pause(manager, false);
    until(a.is_there);
    assert_true(a.at_ms - at_ms >= 11000 && a.at_ms - at_ms <= 11005);
}

/* ---- the end, the deadline, and two at once ---- */

static void test_the_end_is_always_waited_for(void **state)
{
    const struct sp_until listed[] = {quiet(60000), an_exit};
    const struct sp_until not_listed[] = {pattern("never")};
    struct answer a;

    (void)state;
    exec_until(&a, listed, 2, 30000);
    run_for(1000);
    end_with(0, 3);
    until(a.is_there);
    assert_exit(&a, 3);
    assert_int_equal(a.woken_by, 1);
    exec_until(&a, not_listed, 1, 30000);
    run_for(1000);
    end_with(1, 137);
    until(a.is_there);
    assert_exit(&a, 137);
    assert_int_equal(a.woken_by, -1);
    assert_true(a.has_exited);
    assert_int_equal(a.end_reason, SP_END_SIGNAL);
}

static void test_the_deadline_holds_for_all(void **state)
{
    const struct sp_until items[] = {pattern("never"), quiet(60000), port(80), an_exit};
    struct answer a;

    (void)state;
    can_look = true;
    exec_until(&a, items, 4, 5000);
    const uint64_t at_ms = test_now_ms();
    until(a.is_there);
    assert_running(&a, 1000);
    assert_int_equal(a.woken_by, -1);
    assert_true(a.at_ms - at_ms >= 5000 && a.at_ms - at_ms <= 5005);
}

static void test_of_two_the_first_that_is_met_counts(void **state)
{
    const struct sp_until items[] = {quiet(1000), pattern("words"), port(80)};
    struct answer a;

    (void)state;
    can_look = true;
    exec_until(&a, items, 3, 30000);
    run_for(500);
    say(0, "words");
    until(a.is_there);
    assert_int_equal(a.woken_by, 1);
    write_until(&a, "", items, 3, 60000);
    until(a.is_there);
    assert_int_equal(a.woken_by, 0);
    next_look.listening = 80;
    write_until(&a, "", items, 3, 60000);
    until(a.is_there);
    assert_int_equal(a.woken_by, 2);
}

static void test_a_match_then_an_exit_is_the_match(void **state)
{
    const struct sp_until items[] = {an_exit, pattern("out")};
    struct answer a;

    (void)state;
    exec_until(&a, items, 2, 30000);
    say(0, "out");
    end_with(0, 0); /* before the start counted */
    until(a.is_there);
    assert_exit(&a, 0);
    assert_int_equal(a.woken_by, 1);
}

/* ---- no memory ---- */

static void test_conditions_are_copied_whole_or_not_at_all(void **state)
{
    const struct sp_until items[] = {pattern("a+b"), pattern("c"), quiet(5)};
    const struct sp_write_request ask = {.session_id = 1000, .until = items, .until_count = 3};
    struct sp_exec_request run = command("x");
    struct answer a = {0};
    struct sp_err e = {0};

    (void)state;
    run.until = items;
    run.until_count = 3;
    for (long n = 1;; n++) {
        end_memory_at(n);
        const int r = sp_manager_write(manager, &ask, on_reply, &a, &a.call, &e);
        if (!did_memory_end()) {
            assert_int_equal(r, 0);
            assert_true(n > 5);
            break;
        }
        assert_int_equal(r, -SP_E_SYSTEM);
        assert_int_equal(e.sys, ENOMEM);
    }
    until(a.is_there);
    assert_int_equal(a.fault, SP_FAULT_UNKNOWN);
    for (long n = 1;; n++) {
        a = (struct answer){0};
        end_memory_at(n);
        const int r = sp_manager_exec(manager, &run, on_reply, &a, &a.call, &e);
        if (!did_memory_end()) {
            assert_int_equal(r, 0);
            break;
        }
        assert_int_equal(r, -SP_E_SYSTEM);
    }
    assert_true(sp_manager_cancel(manager, a.call));
    until(a.is_there);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        puppet_test(test_a_pattern_answers_at_once),
        puppet_test(test_a_pattern_is_sought_in_what_is_pending),
        puppet_test(test_a_pattern_that_takes_too_long_ends_its_wait),
        puppet_test(test_a_pattern_never_spans_what_was_omitted),
        puppet_test(test_a_stream_that_goes_on_does_not_hold_up_the_answer),
        puppet_test(test_a_prompt_is_the_end_of_a_line_after_a_moment),
        puppet_test(test_a_pattern_in_the_last_line_is_met_by_the_end),
        puppet_test(test_what_another_call_answered_is_not_seen),
        puppet_test(test_two_that_wait_for_the_same_words_get_them_once),
        puppet_test(test_an_early_match_waits_for_the_start_to_count),
        puppet_test(test_only_what_follows_the_typing_is_waited_for_after_it),
        puppet_test(test_nonsense_starts_nothing),
        puppet_test(test_silence_is_counted_from_the_last_output),
        puppet_test(test_silence_begins_with_the_wait),
        puppet_test(test_a_pause_is_no_silence),
        puppet_test(test_the_end_is_always_waited_for),
        puppet_test(test_the_deadline_holds_for_all),
        puppet_test(test_of_two_the_first_that_is_met_counts),
        puppet_test(test_a_match_then_an_exit_is_the_match),
        puppet_test(test_conditions_are_copied_whole_or_not_at_all),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

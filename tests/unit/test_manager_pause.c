/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time stands still for a model while a person is asked something.
 */
#include "puppet_backend.h"

static void test_a_pause_does_not_count(void **state)
{
    struct answer a;

    (void)state;
    sp_manager_pause(manager, true);
    exec_started(&a, "sleep 1 && echo done", false, 250);
    const uint64_t start_ms = test_now_ms();
    run_for(1000);
    say(0, "done\n");
    end_with(0, 0);
    run_for(1000);
    assert_false(a.is_there);
    sp_manager_pause(manager, false);
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
    sp_manager_pause(manager, true);
    sp_manager_pause(manager, true); /* two questions at a time are one pause */
    run_for(1000);
    sp_manager_pause(manager, false);
    run_for(1000);
    sp_manager_pause(manager, false);
    until(a.is_there);
    assert_int_equal(a.at_ms - start_ms, 7000);
    sp_manager_pause(manager, false); /* one too many */
}

static void test_a_pause_while_streams_are_waited_for_is_added(void **state)
{
    struct answer a;

    (void)state;
    (void)exec_background("x", false);
    write_for(&a, 1000, "", 60000);
    run_for(100);
    const uint64_t exit_ms = test_now_ms();
    say_exited(0, 0);
    run_for(20);
    sp_manager_pause(manager, true);
    run_for(1000);
    sp_manager_pause(manager, false);
    until(a.is_there);
    assert_exit(&a, 0);
    assert_int_equal(a.at_ms - exit_ms, 1050);
}

static void test_a_pause_in_the_early_check_is_added(void **state)
{
    struct answer a;

    (void)state;
    exec_started(&a, "x", false, 250);
    const uint64_t start_ms = test_now_ms();
    run_for(50);
    sp_manager_pause(manager, true);
    run_for(50);
    sp_manager_pause(manager, false);
    until(a.is_there);
    assert_int_equal(a.at_ms - start_ms, 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        puppet_test(test_a_pause_does_not_count),
        puppet_test(test_a_pause_in_the_middle_is_added),
        puppet_test(test_a_pause_while_streams_are_waited_for_is_added),
        puppet_test(test_a_pause_in_the_early_check_is_added),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

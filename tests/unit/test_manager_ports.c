/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits for a port: how often it is looked for, and whose answer a look is.
 */
#include "base/auto.h"
#include "until_fixture.h"

static void test_a_port_is_looked_for_again_and_again(void **state)
{
    const struct sp_until items[] = {port(3000), port(3001)};
    struct answer a;

    (void)state;
    can_look = true;
    exec_until(&a, items, 2, 30000);
    run_for(1100);
    unsigned looks = 0;
    for (const char *at = jobs[0].asked; (at = strstr(at, "ports:3000,3001 ")) != NULL; at++)
        looks++;
    assert_true(looks >= 7 && looks <= 11);
    assert_false(a.is_there);
    next_look.listening = 3001;
    const uint64_t at_ms = test_now_ms();
    until(a.is_there);
    assert_running(&a, 1000);
    assert_int_equal(a.woken_by, 1);
    assert_true(a.at_ms - at_ms <= SP_INSPECT_MS + 5);
    jobs[0].asked[0] = 0;
    run_for(1000);
    assert_string_equal(jobs[0].asked, ""); /* nobody waits: nobody looks */
}

static void test_a_remote_port_is_looked_for_less_often(void **state)
{
    const struct sp_until items[] = {port(80)};
    struct answer a;

    (void)state;
    can_look = true;
    puppet_facts.is_remote = true;
    exec_until(&a, items, 1, 2000);
    until(a.is_there);
    assert_int_equal(a.woken_by, -1);
    unsigned looks = 0;
    for (const char *at = jobs[0].asked; (at = strstr(at, "ports:80 ")) != NULL; at++)
        looks++;
    assert_true(looks >= 5 && looks <= 7);
}

static void test_a_look_that_comes_late_is_nobodys(void **state)
{
    const struct sp_until first[] = {port(80)};
    const struct sp_until second[] = {port(81)};
    struct answer a;

    (void)state;
    can_look = is_mute = true;
    (void)exec_background("x", false);
    write_until(&a, "", first, 1, 5000);
    until(a.is_there); /* the look is still under way */
    assert_int_equal(a.woken_by, -1);
    write_until(&a, "", second, 1, 60000);
    run_for(1000);
    assert_int_equal(jobs[0].call_count, 1);
    next_look.listening = 81;
    SP_CONTAINER(jobs[0].calls[0], struct sp_job_inspection, call)->found.listening = 80;
    answer_call(&jobs[0], SP_JOB_OK);
    run_for(10);
    assert_false(a.is_there);
    assert_int_equal(jobs[0].call_count, 1); /* its own */
    answer_call(&jobs[0], SP_JOB_OK);
    until(a.is_there);
    assert_int_equal(a.woken_by, 0);
}

static void test_a_place_that_cannot_tell_leaves_the_deadline(void **state)
{
    const struct sp_until items[] = {port(80)};
    struct answer a;

    (void)state;
    exec_until(&a, items, 1, 1000);
    const uint64_t at_ms = test_now_ms();
    until(a.is_there);
    assert_running(&a, 1000);
    assert_int_equal(a.woken_by, -1);
    assert_true(a.at_ms - at_ms >= 1000 && a.at_ms - at_ms <= 1005);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        puppet_test(test_a_port_is_looked_for_again_and_again),
        puppet_test(test_a_remote_port_is_looked_for_less_often),
        puppet_test(test_a_look_that_comes_late_is_nobodys),
        puppet_test(test_a_place_that_cannot_tell_leaves_the_deadline),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

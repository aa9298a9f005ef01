/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How processes are ended and kept: termination, orders, the list, and who makes room.
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

static int begin_ends(void **state)
{
    done_count = 0;
    return begin_puppets(state);
}
#define ends_test(f) cmocka_unit_test_setup_teardown(f, begin_ends, end_puppets)

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

static void list_one(void *user, const struct sp_manager_view *e)
{
    const size_t n = strlen(listed);

    (void)user;
    if (e->has_exited)
        return;
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
    sp_manager_each(manager, list_one, NULL);
    assert_string_equal(listed, "1000:call:bash -i:/site 1002:call:three:/site ");
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

static void test_one_whose_creating_call_waits_is_not_pruned(void **state)
{
    struct answer first;

    (void)state;
    exec_started(&first, "first", false, 30000);
    run_for(160);
    for (int i = 1; i < 64; i++)
        (void)exec_background("x", false);
    (void)exec_background("one more", false);
    assert_false(was_asked(0, "terminate"));
    assert_true(was_asked(1, "terminate"));
    assert_false(first.is_there);
    end_with(0, 0);
    until(first.is_there);
    assert_exit(&first, 0);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        ends_test(test_terminate_is_confirmed_before_it_counts),
        ends_test(test_a_refused_terminate_changes_nothing),
        ends_test(test_a_confirmed_terminate_needs_no_exit_to_be_told),
        ends_test(test_a_code_that_comes_after_the_confirmation_counts),
        ends_test(test_terminate_all_ends_every_call_with_an_exit),
        ends_test(test_the_end_of_the_manager_tells_all),
        ends_test(test_orders_go_to_the_process),
        ends_test(test_the_list_has_the_live_ones_by_id),
        ends_test(test_ids_begin_again_when_all_are_free),
        ends_test(test_the_least_recently_used_makes_room),
        ends_test(test_the_exited_one_makes_room_first),
        ends_test(test_one_that_is_about_to_end_saves_the_others),
        ends_test(test_one_that_is_being_asked_makes_no_room),
        ends_test(test_one_whose_creating_call_waits_is_not_pruned),
        ends_test(test_too_many_are_warned_of),
        ends_test(test_an_exited_one_that_nobody_asks_for_goes_in_the_end),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

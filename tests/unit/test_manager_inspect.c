/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process is doing, for whoever asks; the process may go meanwhile.
 */
#include "memory_fixture.h"
#include "puppet_backend.h"

static int begin_looking(void **state)
{
    if (begin_puppets(state) != 0)
        return -1;
    options.remembers_ended = true;
    remake_manager();
    return 0;
}

struct seen_look {
    unsigned count;
    bool is_known;
    struct sp_inspection look;
};

static void on_look(void *user, const struct sp_inspection *look)
{
    struct seen_look *s = user;

    s->count++;
    s->is_known = look != NULL;
    if (look != NULL)
        s->look = *look;
}

static void test_a_look_is_told_from_the_loop(void **state)
{
    struct seen_look s = {0};

    (void)state;
    can_look = true;
    next_look.doing = SP_DOING_READING_TERMINAL;
    (void)exec_background("x", true);
    sp_manager_inspect(manager, 1000, on_look, &s);
    assert_int_equal(s.count, 0);
    until(s.count == 1);
    assert_true(s.is_known);
    assert_int_equal(s.look.doing, SP_DOING_READING_TERMINAL);
    sp_manager_inspect(manager, 4711, on_look, &s); /* none such */
    assert_int_equal(s.count, 1);
    until(s.count == 2);
    assert_false(s.is_known);
    can_look = false;
    sp_manager_inspect(manager, 1000, on_look, &s);
    assert_int_equal(s.count, 2);
    until(s.count == 3);
    assert_false(s.is_known);
}

/* Asked from within the reply, as whoever has to say who holds the output would. */
static void reply_and_look(void *user, const struct sp_reply *r)
{
    assert_true(r->is_output_held);
    sp_manager_inspect(manager, r->process_id, on_look, user);
}

static void test_who_holds_the_output_can_be_seen(void **state)
{
    const struct sp_exec_request ask = command("x");
    struct seen_look s = {0};
    struct sp_err e = {0};
    uint64_t call;

    (void)state;
    can_look = is_mute = true;
    next_look.holder_count = 1;
    next_look.holders[0] = (struct sp_inspect_holder){42, "holder"};
    assert_int_equal(sp_manager_exec(manager, &ask, reply_and_look, &s, &call, &e), 0);
    until(job_count == 1);
    say_started(0);
    run_for(300);
    say_exited(0, 0);
    until(was_asked(0, "look"));
    run_for(1000); /* it stays until the answer is there */
    assert_int_equal(s.count, 0);
    assert_non_null(first_process(manager));
    answer_call(&jobs[0], SP_JOB_OK);
    until(s.count == 1);
    assert_true(s.is_known);
    assert_int_equal(s.look.holders[0].pid, 42);
    run_for(10);
    assert_null(first_process(manager));
    assert_int_equal(sp_manager_reserved(manager), 1);
    sp_manager_inspect(manager, 1000, on_look, &s); /* only remembered: nobody can tell */
    until(s.count == 2);
    assert_false(s.is_known);
}

static void test_a_process_may_go_while_it_is_looked_at(void **state)
{
    struct seen_look s = {0};

    (void)state;
    can_look = is_mute = true;
    (void)exec_background("x", false);
    sp_manager_inspect(manager, 1000, on_look, &s);
    run_for(10);
    end_with(0, 0);
    run_for(1000);
    answer_call(&jobs[0], SP_JOB_GONE);
    until(s.count == 1);
    assert_false(s.is_known);
    (void)exec_background("y", false);
    sp_manager_inspect(manager, 1001, on_look, &s);
    run_for(10);
    end_manager(); /* with one under way */
    assert_int_equal(s.count, 2);
    assert_false(s.is_known);
    make_manager();
}

static void test_a_look_without_memory_is_told_as_well(void **state)
{
    struct seen_look s = {0};

    (void)state;
    can_look = true;
    (void)exec_background("x", false);
    end_memory_at(1);
    sp_manager_inspect(manager, 1000, on_look, &s);
    assert_true(did_memory_end());
    run_for(10);
    assert_int_equal(s.count, 1);
    assert_false(s.is_known);
}

#define look_test(f) cmocka_unit_test_setup_teardown(f, begin_looking, end_puppets)

int main(void)
{
    const struct CMUnitTest tests[] = {
        look_test(test_a_look_is_told_from_the_loop),
        look_test(test_who_holds_the_output_can_be_seen),
        look_test(test_a_process_may_go_while_it_is_looked_at),
        look_test(test_a_look_without_memory_is_told_as_well),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

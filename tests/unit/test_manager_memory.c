/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that ends at any one moment: every call is answered, no byte is lost without a word, and
 * nothing is left behind.
 */
#include "memory_fixture.h"
#include "puppet_backend.h"

/* Output that finds no memory comes again when it is asked for. */
static void say_until_taken(size_t i, const char *text)
{
    struct sp_job *j = live(i);

    for (int tries = 0; !j->ops->output(j, SP_STREAM_STDOUT, sp_str_of(text)); tries++) {
        assert_true(tries < 10);
        jobs[i].asked[0] = 0;
        until(was_asked(i, "go_on"));
    }
}

static void live_a_life(void)
{
    static struct answer a;
    static char much[70000];
    struct sp_err e = {0};
    struct sp_exec_request ask = command("x");
    const struct sp_until items[] = {{.kind = SP_UNTIL_PATTERN, .pattern = SP_STR("never")},
                                     {.kind = SP_UNTIL_PORT, .port = 80}};

    ask.is_tty = true;
    ask.yield = (struct sp_yield_request){true, 250};
    ask.until = items;
    ask.until_count = 2;
    a = (struct answer){0};
    if (sp_manager_exec(manager, &ask, on_reply, &a, &a.call, &e) < 0) {
        assert_int_equal(e.sys, ENOMEM);
        return;
    }
    until(job_count == 1 || a.is_there);
    if (job_count == 0) {
        assert_int_equal(a.fault, SP_FAULT_CREATE);
        return;
    }
    say_started(0);
    say_until_taken(0, "early ");
    run_for(200);
    memset(much, 'x', sizeof much - 1);
    say_until_taken(0, "late ");
    until(a.is_there);
    uint64_t heard = a.fault == SP_FAULT_NONE ? a.to : 0;
    if (sp_manager_stored(manager) == 0)
        return; /* its own call had no memory for the answer, and it was not kept */
    const struct sp_write_request write = {.session_id = 1000, .chars = SP_STR("y")};
    a = (struct answer){0};
    if (sp_manager_write(manager, &write, on_reply, &a, &a.call, &e) == 0) {
        say_until_taken(0, much);
        until(a.is_there);
        if (a.fault == SP_FAULT_NONE) {
            assert_int_equal(a.from, heard);
            heard = a.to;
        }
    }
    say_until_taken(0, "end");
    end_with(0, 0);
    const struct sp_write_request poll = {.session_id = 1000};
    for (int tries = 0;; tries++) {
        a = (struct answer){0};
        if (sp_manager_write(manager, &poll, on_reply, &a, &a.call, &e) < 0)
            continue;
        until(a.is_there);
        if (a.fault == SP_FAULT_NONE)
            break;
        assert_int_equal(a.fault, SP_FAULT_FAILED);
        assert_true(tries < 2); /* memory ends once */
    }
    assert_exit(&a, 0);
    assert_int_equal(a.from, heard);
    assert_true(a.to >= 11 + 3);
    until(events[event_count - 1].type == SP_EVENT_END);
    run_for(200); /* if it is remembered, it is by now */
    assert_int_equal(sp_manager_reserved(manager), manager->remembered_count);
}

static void lose_memory(void **state, bool remembers_ended)
{
    for (long n = 1;; n++) {
        assert_int_equal(begin_puppets(state), 0);
        can_look = true;
        options.remembers_ended = remembers_ended;
        options.exited_ttl_ms = remembers_ended ? 600000 : 0;
        options.idle_ttl_ms = remembers_ended ? 600000 : 0;
        remake_manager();
        run_for(1);
        end_memory_at(n);
        live_a_life();
        const bool did_end = did_memory_end();
        assert_int_equal(end_puppets(state), 0);
        if (!did_end) {
            assert_true(n > 20);
            return;
        }
    }
}

static void test_a_life_survives_the_loss_of_any_memory(void **state)
{
    lose_memory(state, false);
    lose_memory(state, true);
}

static void test_a_manager_is_made_whole_or_not_at_all(void **state)
{
    (void)state;
    assert_int_equal(begin_puppets(state), 0);
    end_manager();
    for (long n = 1;; n++) {
        struct sp_err e = {0};

        end_memory_at(n);
        const int r = sp_manager_new(&options, &manager, &e);
        if (!did_memory_end()) {
            assert_int_equal(r, 0);
            break;
        }
        if (r == 0) { /* it could do without */
            end_manager();
            continue;
        }
        assert_int_equal(r, -SP_E_SYSTEM);
        assert_int_equal(e.sys, ENOMEM);
    }
    assert_int_equal(end_puppets(state), 0);
}

static void test_orders_are_answered_without_memory(void **state)
{
    (void)state;
    assert_int_equal(begin_puppets(state), 0);
    (void)exec_background("x", false);
    end_memory_at(1);
    sp_manager_terminate(manager, 1000, NULL, NULL);
    assert_true(did_memory_end());
    run_for(10);
    assert_int_equal(sp_manager_stored(manager), 1);
    assert_int_equal(end_puppets(state), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_life_survives_the_loss_of_any_memory),
        cmocka_unit_test(test_a_manager_is_made_whole_or_not_at_all),
        cmocka_unit_test(test_orders_are_answered_without_memory),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

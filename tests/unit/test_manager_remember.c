/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ended can still be read, for a while and within bounds; and what can be seen of all there
 * is.
 */
#include "memory_fixture.h"
#include "puppet_backend.h"

static int begin_remembering(void **state)
{
    if (begin_puppets(state) != 0)
        return -1;
    options.remembers_ended = true;
    options.exited_ttl_ms = 600000;
    remake_manager();
    return 0;
}

#define remember_test(f) cmocka_unit_test_setup_teardown(f, begin_remembering, end_puppets)

static struct sp_manager_view look_at(int id)
{
    struct sp_manager_view v = {0};

    assert_true(sp_manager_view(manager, id, &v));
    assert_int_equal(v.process_id, id);
    return v;
}

static bool is_there(int id)
{
    struct sp_manager_view v;

    return sp_manager_view(manager, id, &v);
}

static void assert_text(const struct sp_manager_view *v, const char *text)
{
    assert_int_equal(v->head.n, strlen(text));
    assert_memory_equal(v->head.p, text, v->head.n);
    assert_int_equal(v->tail[0].n + v->tail[1].n, 0);
    assert_int_equal(v->total, strlen(text));
    assert_int_equal(v->omitted, 0);
}

static void expect_unknown(int id, const char *text)
{
    struct answer a;

    write_for(&a, id, "", 5000);
    until(a.is_there);
    assert_fault(&a, SP_FAULT_UNKNOWN, text);
}

/* A command that says this and ends within its call; the n-th of the test. */
static void run_through(const char *text)
{
    const size_t n = job_count;
    struct answer a;

    exec_started(&a, "x", false, 30000);
    say(n, text);
    end_with(n, 0);
    until(a.is_there);
    assert_exit(&a, 0);
    run_for(SP_TRAILING_MS + 10);
    if (job_count > JOBS_MAX - 10) { /* all are released */
        for (size_t i = 0; i < job_count; i++)
            assert_null(jobs[i].job);
        job_count = 0;
    }
}

/* ---- one after its end ---- */

static void test_a_session_is_readable_after_its_exit_was_answered(void **state)
{
    struct answer a;

    (void)state;
    (void)exec_background("sleep 5", true);
    say(0, "one ");
    run_for(10);
    struct sp_manager_view v = look_at(1000);
    assert_text(&v, "one ");
    assert_false(v.has_exited || v.is_answered);
    assert_int_equal(v.answered, 0);
    say(0, "two");
    end_with(0, 3);
    run_for(1000);
    v = look_at(1000); /* its end was told, but to no call */
    assert_text(&v, "one two");
    assert_true(v.has_exited && !v.is_answered);
    write_for(&a, 1000, "", 5000);
    until(a.is_there);
    assert_exit(&a, 3);
    run_for(1000);
    v = look_at(1000);
    assert_text(&v, "one two");
    assert_true(v.has_exited && v.is_answered && v.is_tty && !v.is_output_held);
    assert_int_equal(v.exit_code, 3);
    assert_int_equal(v.signal, 0);
    assert_int_equal(v.end_reason, SP_END_EXIT);
    assert_int_equal(v.answered, 7);
    assert_true(sp_str_eq(v.command, SP_STR("sleep 5")));
    assert_true(sp_str_eq(v.call_id, SP_STR("call")));
    assert_true(sp_str_eq(v.cwd, SP_STR("/site")));
    assert_true(v.started_at_ms > 1700000000000);
    assert_null(first_process(manager)); /* nothing but that is left of it */
    assert_int_equal(sp_manager_stored(manager), 0);
    expect_unknown(1000, "write_stdin failed: Unknown process id 1000; read_output still has its "
                         "output");
    expect_unknown(1001, "write_stdin failed: Unknown process id 1001");
}

static void test_a_command_that_ends_within_its_call_is_readable(void **state)
{
    struct answer a;

    (void)state;
    exec_started(&a, "x", false, 30000);
    say(0, "all of it");
    end_with(0, 0);
    until(a.is_there);
    assert_exit(&a, 0);
    struct sp_manager_view v = look_at(a.process_id); /* at once, too */
    assert_text(&v, "all of it");
    run_for(1000);
    v = look_at(1000);
    assert_text(&v, "all of it");
    assert_true(v.is_answered);
    assert_null(first_process(manager));
    run_through("next"); /* its id was not given away */
    v = look_at(1001);
    assert_text(&v, "next");
    v = look_at(1000);
    assert_text(&v, "all of it");
}

static void test_without_remembering_nothing_is_kept(void **state)
{
    struct answer a;

    (void)state;
    options.remembers_ended = false;
    remake_manager();
    (void)exec_background("x", false);
    say(0, "text");
    run_for(10);
    struct sp_manager_view v = look_at(1000);
    assert_text(&v, "text");
    end_with(0, 0);
    write_for(&a, 1000, "", 5000);
    until(a.is_there);
    assert_false(is_there(1000));
    assert_int_equal(sp_manager_reserved(manager), 0);
    expect_unknown(1000, "write_stdin failed: Unknown process id 1000");
}

static void test_what_nobody_can_name_is_not_remembered(void **state)
{
    struct answer a;

    (void)state;
    exec_started(&a, "x", false, 30000);
    run_for(10);
    assert_true(sp_manager_cancel(manager, a.call)); /* while it starts: killed */
    until(a.is_there);
    run_for(1000);
    assert_false(is_there(1000));
    assert_int_equal(sp_manager_reserved(manager), 0);
}

static void test_a_cancelled_call_loses_nothing(void **state)
{
    struct answer a;

    (void)state;
    exec_started(&a, "x", false, 30000);
    run_for(10);
    say(0, "text");
    say_exited(0, 0);
    run_for(1);
    sp_manager_pause(manager, true);
    assert_true(sp_manager_cancel(manager, a.call));
    until(a.is_there);
    assert_int_equal(a.fault, SP_FAULT_ABORTED);
    sp_manager_pause(manager, false);
    run_for(1000);
    const struct sp_manager_view v = look_at(1000);
    assert_text(&v, "text");
}

static void test_pruned_and_terminated_ones_are_remembered(void **state)
{
    (void)state;
    for (int i = 0; i < 65; i++)
        (void)exec_background("x", false);
    run_for(10);
    assert_int_equal(sp_manager_stored(manager), 64);
    struct sp_manager_view v = look_at(1000);
    assert_true(v.is_answered && !v.is_end_told);
    assert_int_equal(v.end_reason, SP_END_PRUNED);
    sp_manager_terminate(manager, 1005, NULL, NULL);
    run_for(10);
    v = look_at(1005);
    assert_true(v.is_answered && v.has_exited);
    run_for(1000);
    v = look_at(1005);
    assert_int_equal(v.end_reason, SP_END_TERMINATED);
    assert_int_equal(v.exit_code, -1);
}

static void test_output_after_the_end_is_in_the_transcript(void **state)
{
    struct answer a;

    (void)state;
    (void)exec_background("x", false);
    say(0, "a");
    say_exited(0, 0);
    run_for(1000); /* its end was told; somebody else has its output open */
    say(0, "b");
    run_for(10);
    struct sp_manager_view v = look_at(1000);
    assert_text(&v, "ab");
    assert_true(v.is_output_held);
    write_for(&a, 1000, "", 5000);
    until(a.is_there);
    assert_exit(&a, 0);
    assert_true(a.is_output_held);
    assert_string_equal(a.output, "ab");
    run_for(1000);
    v = look_at(1000);
    assert_text(&v, "ab");
    assert_int_equal(v.answered, 2);
}

static void test_the_middle_of_much_output_is_gone(void **state)
{
    static char half[SP_HEADTAIL_CAPACITY / 2 + 1];

    (void)state;
    (void)exec_background("x", false);
    memset(half, 'a', sizeof half - 1);
    say(0, half);
    memset(half, 'b', sizeof half - 1);
    say(0, half);
    say(0, "end");
    sp_manager_terminate(manager, 1000, NULL, NULL);
    run_for(10);
    end_with(0, 137);
    run_for(1000);
    const struct sp_manager_view v = look_at(1000);
    assert_int_equal(v.head.n, sizeof half - 1);
    assert_int_equal(v.omitted, 3);
    assert_int_equal(v.total, 2 * (sizeof half - 1) + 3);
    assert_int_equal(v.tail[0].n + v.tail[1].n, sizeof half - 1);
    assert_memory_equal(v.tail[1].p + v.tail[1].n - 3, "end", 3);
}

/* ---- bounds ---- */

static void test_they_are_forgotten_after_a_while(void **state)
{
    (void)state;
    run_through("first");
    run_for(300000);
    run_through("second");
    run_for(290000);
    assert_true(is_there(1000));
    run_for(20000);
    assert_false(is_there(1000));
    assert_true(is_there(1001));
    assert_int_equal(sp_manager_reserved(manager), 1);
    expect_unknown(1000, "write_stdin failed: Unknown process id 1000");
    run_for(300000);
    assert_int_equal(sp_manager_reserved(manager), 0);
}

static void test_what_nobody_asked_for_in_time_is_forgotten_at_once(void **state)
{
    (void)state;
    (void)exec_background("x", false);
    end_with(0, 0);
    run_for(599000);
    assert_true(is_there(1000));
    run_for(2000);
    assert_false(is_there(1000));
    assert_int_equal(sp_manager_reserved(manager), 0);
}

static void test_they_may_be_kept_for_ever(void **state)
{
    (void)state;
    options.exited_ttl_ms = 0;
    remake_manager();
    run_through("x");
    (void)exec_background("y", false); /* so that something happens */
    for (int i = 0; i < 5; i++) {
        struct answer a;

        write_for(&a, 1001, "", 300000);
        until(a.is_there);
    }
    assert_true(is_there(1000));
}

static void test_the_oldest_of_too_many_goes(void **state)
{
    (void)state;
    for (int i = 0; i <= SP_REMEMBERED_MAX; i++)
        run_through("x");
    assert_false(is_there(1000));
    assert_true(is_there(1001));
    assert_true(is_there(1000 + SP_REMEMBERED_MAX));
    assert_int_equal(sp_manager_reserved(manager), SP_REMEMBERED_MAX);
}

static void test_the_oldest_of_too_much_goes(void **state)
{
    static char much[SP_HEADTAIL_CAPACITY + 1];

    (void)state;
    memset(much, 'x', sizeof much - 1);
    for (int i = 0; i < 70; i++)
        run_through(much);
    assert_true(manager->remembered_bytes <= SP_REMEMBERED_BYTES);
    assert_int_equal(manager->remembered_count, 63);
    assert_false(is_there(1006));
    assert_true(is_there(1007));
}

/* ---- all of them ---- */

static void note_id(void *user, const struct sp_manager_view *v)
{
    char *text = user;

    (void)sprintf(text + strlen(text), "%d%s ", v->process_id,
                  v->is_answered ? "-" : (v->has_exited ? "?" : "+"));
}

static void test_each_is_seen_once_and_in_order(void **state)
{
    struct answer a;
    char text[256] = "";

    (void)state;
    sp_manager_each(manager, note_id, text);
    assert_string_equal(text, "");
    (void)exec_background("a", false);
    (void)exec_background("b", false);
    (void)exec_background("c", false);
    run_through("d");
    end_with(1, 0);
    end_with(0, 0);
    write_for(&a, 1000, "", 5000);
    until(a.is_there);
    sp_manager_each(manager, note_id, text);
    assert_string_equal(text, "1000- 1001? 1002+ 1003- ");
    run_for(1000);
    text[0] = 0;
    sp_manager_each(manager, note_id, text);
    assert_string_equal(text, "1000- 1001? 1002+ 1003- ");
}

/* ---- no memory ---- */

static void test_remembering_survives_the_loss_of_any_memory(void **state)
{
    (void)state;
    for (long n = 1;; n++) {
        struct answer a = {0};

        assert_int_equal(begin_remembering(state), 0);
        exec_started(&a, "x", false, 30000);
        say(0, "text");
        say_exited(0, 0);
        until(a.is_there);
        end_memory_at(n);
        run_for(1000);
        const bool did_end = did_memory_end();
        assert_null(first_process(manager));
        if (!did_end || is_there(1000)) {
            const struct sp_manager_view v = look_at(1000);
            assert_text(&v, "text");
        } else {
            assert_int_equal(sp_manager_reserved(manager), 0);
        }
        assert_int_equal(end_puppets(state), 0);
        if (!did_end) {
            assert_true(n > 3);
            return;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        remember_test(test_a_session_is_readable_after_its_exit_was_answered),
        remember_test(test_a_command_that_ends_within_its_call_is_readable),
        remember_test(test_without_remembering_nothing_is_kept),
        remember_test(test_what_nobody_can_name_is_not_remembered),
        remember_test(test_a_cancelled_call_loses_nothing),
        remember_test(test_pruned_and_terminated_ones_are_remembered),
        remember_test(test_output_after_the_end_is_in_the_transcript),
        remember_test(test_the_middle_of_much_output_is_gone),
        remember_test(test_they_are_forgotten_after_a_while),
        remember_test(test_what_nobody_asked_for_in_time_is_forgotten_at_once),
        remember_test(test_they_may_be_kept_for_ever),
        remember_test(test_the_oldest_of_too_many_goes),
        remember_test(test_the_oldest_of_too_much_goes),
        remember_test(test_each_is_seen_once_and_in_order),
        cmocka_unit_test(test_remembering_survives_the_loss_of_any_memory),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs whose processes run here: what owners ask for, and what comes of it. */
#include "local_fixture.h"

/* ---- input ---- */

static void test_what_is_written_arrives_and_ends(void **state)
{
    struct owner o = {0};
    struct asked a;

    (void)state;
    start_script(&o, "cat; echo done", false, true);
    is_calling = true;
    sp_job_write(&o.job, &prepare(&a)->call, SP_STR("early"));
    assert_int_equal(answer_to(&a), SP_JOB_NOT_YET);
    until(has_told(&o, "started"));
    assert_int_equal(write_to(&o, "one\n", 4), SP_JOB_OK);
    assert_int_equal(write_to(&o, "two\n", 4), SP_JOB_OK);
    assert_int_equal(close_stdin_of(&o), SP_JOB_OK);
    assert_int_equal(close_stdin_of(&o), SP_JOB_OK);
    assert_int_equal(write_to(&o, "three\n", 6), SP_JOB_NO_STDIN);
    until(o.is_over);
    assert_out(&o, "one\ntwo\ndone\n");
    assert_int_equal(write_to(&o, "four\n", 5), SP_JOB_GONE);
    assert_int_equal(close_stdin_of(&o), SP_JOB_GONE);
    finish(&o);
}

static void test_a_terminal_takes_what_is_typed(void **state)
{
    struct owner o = {0};

    (void)state;
    start_script(&o, "stty -echo; echo ready; read line; echo got $line", true, false);
    until(o.out.len >= 7);
    assert_int_equal(write_to(&o, "word\n", 5), SP_JOB_OK);
    until(o.is_over);
    assert_out(&o, "ready\r\ngot word\r\n");
    finish(&o);
}

static void test_a_process_without_stdin_says_so(void **state)
{
    struct owner o = {0};

    (void)state;
    start_script(&o, "echo up; exec sleep 600", false, false);
    until(o.out.len > 0);
    assert_int_equal(write_to(&o, "x", 1), SP_JOB_NO_STDIN);
    assert_int_equal(close_stdin_of(&o), SP_JOB_NO_STDIN);
    finish(&o);
}

static void test_a_stdin_that_nobody_reads_fills_and_is_flushed_later(void **state)
{
    struct owner o = {.drops = true};
    char *block = calloc(1, 65536);
    struct asked flush;
    size_t taken = 0;

    (void)state;
    start_script(&o,
                 "exec 2>/dev/null; trap 'exec cat' USR1; echo up; while :; do sleep 0.05; done",
                 false, true);
    until(o.bytes > 0);
    enum sp_job_result r;
    while ((r = write_to(&o, block, 65536)) == SP_JOB_OK)
        taken += 65536;
    assert_int_equal(r, SP_JOB_FULL);
    assert_true(taken >= (1U << 20) && taken <= (2U << 20));
    is_calling = true;
    assert_true(sp_job_flush(&o.job, &prepare(&flush)->call));
    is_calling = false;
    run_for(50);
    assert_false(flush.is_answered);
    assert_int_equal(signal_to(&o, SIGUSR1), SP_JOB_OK);
    assert_int_equal(answer_to(&flush), SP_JOB_OK);
    assert_int_equal(write_to(&o, block, 65536), SP_JOB_OK);
    assert_int_equal(close_stdin_of(&o), SP_JOB_OK);
    until(o.is_over);
    assert_int_equal(o.bytes, 3 + taken + 65536);
    free(block);
    finish(&o);
}

static void test_a_flush_ends_with_the_process(void **state)
{
    struct owner o = {0};
    char *block = calloc(1, 1U << 20);
    struct asked flush;

    (void)state;
    start_script(&o, "exec sleep 600", false, true);
    until(has_told(&o, "started"));
    assert_int_equal(write_to(&o, block, 1U << 20), SP_JOB_OK);
    is_calling = true;
    assert_true(sp_job_flush(&o.job, &prepare(&flush)->call));
    is_calling = false;
    assert_int_equal(terminate(&o), SP_JOB_OK);
    (void)answer_to(&flush);
    until(o.is_over);
    free(block);
    finish(&o);
}

/* ---- signals, sizes, ends ---- */

static void test_signals_reach_the_group(void **state)
{
    struct owner o = {0};

    (void)state;
    start_script(&o, "trap 'echo got it; exit 5' INT; echo up; while :; do sleep 0.05; done", false,
                 false);
    until(o.out.len == 3);
    assert_int_equal(signal_to(&o, SIGINT), SP_JOB_OK);
    until(o.is_over);
    assert_out(&o, "up\ngot it\n");
    assert_int_equal(o.exit.code, 5);
    assert_int_equal(signal_to(&o, SIGINT), SP_JOB_OK);
    finish(&o);
}

static void test_sizes_are_those_of_the_terminal(void **state)
{
    struct owner o = {0};
    struct asked a;

    (void)state;
    start_script(&o, "stty size; read x; stty size", true, false);
    until(o.out.len >= 7);
    assert_memory_equal(o.out.data, "24 80\r\n", 7);
    is_calling = true;
    sp_job_resize(&o.job, &prepare(&a)->call, 33, 111);
    assert_int_equal(answer_to(&a), SP_JOB_OK);
    assert_int_equal(write_to(&o, "\n", 1), SP_JOB_OK);
    until(o.is_over);
    assert_true(sp_buf_add(&o.out, "", 1));
    assert_non_null(strstr(o.out.data, "33 111"));
    is_calling = true;
    sp_job_resize(&o.job, &prepare(&a)->call, 1, 1);
    assert_int_equal(answer_to(&a), SP_JOB_GONE);
    finish(&o);

    start_script(&o, "exec sleep 600", false, false);
    until(has_told(&o, "started"));
    is_calling = true;
    sp_job_resize(&o.job, &prepare(&a)->call, 1, 1);
    assert_int_equal(answer_to(&a), SP_JOB_REFUSED);
    assert_string_not_equal(a.call.error.msg, "");
    finish(&o);
}

static void test_terminate_ends_the_tree_and_keeps_the_last_words(void **state)
{
    struct owner o = {0};

    (void)state;
    start_script(&o, "setsid sh -c 'trap \"\" HUP TERM; echo $$; exec sleep 600' & wait", false,
                 false);
    until(o.out.len > 1);
    const pid_t below = printed_pid(&o);
    assert_int_equal(terminate(&o), SP_JOB_OK);
    until(o.is_over);
    assert_string_equal(o.story, "started exited closed");
    assert_int_equal(o.exit.code, 137);
    await_gone(below);
    assert_int_equal(terminate(&o), SP_JOB_OK);
    finish(&o);
}

static void test_terminate_waits_for_a_start_and_for_the_end(void **state)
{
    struct owner o = {0};

    (void)state;
    start_script(&o, "exec sleep 600", false, false);
    const uint64_t before = test_now_ms();
    assert_int_equal(terminate(&o), SP_JOB_OK);
    assert_true(test_now_ms() - before < DEADLINE_MS / 2);
    until(o.is_over);
    assert_string_equal(o.story, "started exited closed");
    assert_int_equal(o.exit.code, 137);
    finish(&o);
}

static void test_terminate_is_answered_though_the_owner_is_full(void **state)
{
    struct owner o = {.is_full = true};

    (void)state;
    start_script(&o, "exec cat /dev/zero", false, false);
    until(o.refusals > 0);
    assert_int_equal(terminate(&o), SP_JOB_OK);
    assert_string_equal(o.story, "started");
    o.is_full = false;
    sp_job_go_on(&o.job);
    until(o.is_over);
    assert_int_equal(o.exit.code, 137);
    assert_int_equal(o.gap_bytes, 0);
    finish(&o);
}

static void test_a_kill_after_the_exit_ends_the_rest_of_the_group(void **state)
{
    struct owner o = {.kills_rest = true};

    (void)state;
    start_script(&o, "(trap '' TERM; exec sleep 600) & echo $!; exit 4", false, false);
    until(has_told(&o, "exited"));
    until(late_kill.is_answered);
    assert_int_equal(late_kill.call.result, SP_JOB_OK);
    until(o.is_over);
    assert_int_equal(o.exit.code, 4);
    await_gone(printed_pid(&o));
    finish(&o);
}

static void test_release_ends_a_live_process_silently(void **state)
{
    struct owner o = {0};
    struct asked a;

    (void)state;
    start_script(&o, "sleep 600 & echo $!; wait", false, false);
    until(o.out.len > 1);
    const pid_t below = printed_pid(&o);
    sp_job_signal(&o.job, &prepare(&a)->call, SIGCONT);
    sp_job_release(&o.job);
    assert_null(o.job.backend);
    await_gone(below);
    assert_string_equal(o.story, "started");
    assert_false(a.is_answered);
    finish(&o);
}

static void test_release_of_what_is_starting_leaves_nothing(void **state)
{
    struct owner o = {0};

    (void)state;
    for (int i = 0; i < 20; i++) {
        start_script(&o, "exec sleep 600", false, true);
        sp_job_release(&o.job);
    }
    run_for(100);
    assert_string_equal(o.story, "");
    finish(&o);
}

static void on_started_release(struct sp_job *j, enum sp_job_sandbox sandbox)
{
    (void)sandbox;
    sp_job_release(j);
    sp_loop_stop(loop);
}

static void test_an_owner_may_let_go_inside_what_it_is_told(void **state)
{
    const struct sp_job_ops ops = {.started = on_started_release};
    struct sp_job j = {0};
    struct sp_str argv[3];
    struct sp_env_request env;
    const struct sp_start l = script("echo; exec sleep 600", argv, &env);

    (void)state;
    assert_int_equal(sp_job_start(backend, &j, &ops, &l, NULL), 0);
    until(j.backend == NULL);
    run_for(20);
}

static const struct CMUnitTest tests[] = {
    local_test(test_what_is_written_arrives_and_ends),
    local_test(test_a_terminal_takes_what_is_typed),
    local_test(test_a_process_without_stdin_says_so),
    local_test(test_a_stdin_that_nobody_reads_fills_and_is_flushed_later),
    local_test(test_a_flush_ends_with_the_process),
    local_test(test_signals_reach_the_group),
    local_test(test_sizes_are_those_of_the_terminal),
    local_test(test_terminate_ends_the_tree_and_keeps_the_last_words),
    local_test(test_terminate_waits_for_a_start_and_for_the_end),
    local_test(test_terminate_is_answered_though_the_owner_is_full),
    local_test(test_a_kill_after_the_exit_ends_the_rest_of_the_group),
    local_test(test_release_ends_a_live_process_silently),
    local_test(test_release_of_what_is_starting_leaves_nothing),
    local_test(test_an_owner_may_let_go_inside_what_it_is_told),
};

int main(void)
{
    if (getenv("SALLYPORT") == NULL)
        return 77;
    (void)sp_log_set_level("error");
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs whose processes run here: what their owners are told, and what comes of what they ask. */
#include <sys/prctl.h>

#include "local_fixture.h"

static void test_an_owner_hears_one_story(void **state)
{
    struct owner o = {0};

    (void)state;
    start_script(&o, "echo out; echo err >&2; exit 7", false, false);
    assert_string_equal(o.story, "");
    until(o.is_over);
    assert_string_equal(o.story, "started exited closed");
    assert_out(&o, "out\n");
    assert_int_equal(o.err.len, 4);
    assert_int_equal(o.exit.code, 7);
    assert_int_equal(o.exit.signal, 0);
    assert_int_equal(o.exit.denied, 0);
    assert_null(o.exit.denial);
    assert_int_equal(o.sandbox, SP_JOB_SANDBOX_NONE);
    finish(&o);
}

static void test_a_job_may_be_started_again(void **state)
{
    struct owner o = {0};

    (void)state;
    for (int i = 0; i < 3; i++) {
        o.is_over = false;
        o.story_len = 0;
        start_script(&o, "echo again", false, false);
        until(o.is_over);
        assert_string_equal(o.story, "started exited closed");
    }
    assert_out(&o, "again\nagain\nagain\n");
    finish(&o);
}

static void test_death_by_a_signal_has_its_number_on_pipes_and_on_a_terminal(void **state)
{
    (void)state;
    for (int is_tty = 0; is_tty < 2; is_tty++) {
        struct owner o = {0};

        start_script(&o, "kill -9 $$", is_tty == 1, false);
        until(o.is_over);
        assert_int_equal(o.exit.code, 137);
        assert_int_equal(o.exit.signal, 9);
        finish(&o);
    }
}

static void test_a_missing_program_is_refused_with_the_kernels_word(void **state)
{
    struct owner o = {0};
    struct sp_str argv[] = {SP_STR("/nowhere/program")};
    struct sp_launch l = {.cwd = SP_STR("/"), .argv = argv, .argc = 1};
    struct sp_error e = {0};

    (void)state;
    assert_int_equal(start_launch(&o, &l, &e), 0);
    until(o.is_over);
    assert_string_equal(o.story, "refused");
    assert_int_equal(o.error.code, SP_E_SYSTEM);
    assert_int_equal(o.error.sys, ENOENT);
    assert_string_equal(o.error.msg, "No such file or directory (os error 2)");
    finish(&o);

    argv[0] = SP_STR("/bin/sh");
    l.cwd = SP_STR("/nowhere");
    assert_int_equal(start_launch(&o, &l, &e), 0);
    until(o.is_over);
    assert_string_equal(o.story, "refused");
    assert_int_equal(o.error.sys, ENOENT);
    finish(&o);
}

static void test_what_cannot_be_asked_is_refused_at_once(void **state)
{
    struct owner o = {0};
    struct sp_str argv[] = {SP_STR("/bin/true"), SP_STR("a\0b")};
    struct sp_launch l = {.cwd = SP_STR("/"), .argv = argv, .argc = 1, .inherited_fds = 1};
    struct sp_error e = {0};

    (void)state;
    assert_int_equal(start_launch(&o, &l, &e), -SP_E_INVALID);
    l.inherited_fds = 0;
    l.argc = 2;
    assert_int_equal(start_launch(&o, &l, &e), -SP_E_INVALID);
    l.argc = 0;
    assert_int_equal(start_launch(&o, &l, &e), -SP_E_INVALID);
    assert_string_equal(e.msg, "missing program for pipe spawn");
    argv[0].n = 0;
    l.argc = 1;
    l.is_tty = true;
    assert_int_equal(start_launch(&o, &l, &e), -SP_E_INVALID);
    assert_string_equal(e.msg, "missing program for PTY spawn");
    assert_null(o.job.backend);
    run_for(20);
    assert_string_equal(o.story, "");
}

static void test_no_more_processes_than_allowed(void **state)
{
    struct owner o[3] = {0};
    struct sp_str argv[3];
    struct sp_environ_ask env;
    const struct sp_launch l = script("exec sleep 600", argv, &env);
    struct sp_error e = {0};

    (void)state;
    sp_backend_free(backend);
    options.max_processes = 2;
    make_backend();
    assert_int_equal(start_launch(&o[0], &l, &e), 0);
    assert_int_equal(start_launch(&o[1], &l, &e), 0);
    assert_int_equal(start_launch(&o[2], &l, &e), -SP_E_LIMIT);
    finish(&o[0]);
    assert_int_equal(start_launch(&o[2], &l, &e), 0);
    until(has_told(&o[2], "started"));
    finish(&o[1]);
    finish(&o[2]);
}

/* ---- output ---- */

static void test_a_full_owner_holds_its_process_back_and_loses_nothing(void **state)
{
    struct owner o = {.is_full = true};

    (void)state;
    start_script(&o, "head -c 8388608 /dev/zero; echo end >&2", false, false);
    until(o.refusals > 0);
    run_for(300);
    assert_int_equal(o.refusals, 1); /* asked once, not in a circle */
    assert_string_equal(o.story, "started");
    assert_int_equal(o.bytes, 0);

    for (unsigned i = 0; i < 10; i++) { /* still full: the same bytes come again */
        const unsigned before = o.refusals;

        sp_job_go_on(&o.job);
        until(o.refusals > before);
    }
    o.is_full = false;
    sp_job_go_on(&o.job);
    until(o.is_over);
    assert_string_equal(o.story, "started exited closed");
    assert_int_equal(o.out.len, 8388608);
    assert_int_equal(o.err.len, 4);
    finish(&o);
}

static void test_an_exit_comes_after_the_output_before_it(void **state)
{
    struct owner o = {.is_full = true};

    (void)state;
    start_script(&o, "echo last words; exit 3", false, false);
    until(o.refusals > 0);
    run_for(100);
    assert_string_equal(o.story, "started");
    o.is_full = false;
    sp_job_go_on(&o.job);
    until(o.is_over);
    assert_out(&o, "last words\n");
    assert_int_equal(o.exit.code, 3);
    finish(&o);
}

static void test_output_after_the_exit_is_told_before_the_close(void **state)
{
    struct owner o = {0};

    (void)state;
    start_script(&o, "(sleep 1; echo late) & exit 0", false, true);
    until(has_told(&o, "exited"));
    assert_false(has_told(&o, "closed"));
    until(o.is_over);
    assert_string_equal(o.story, "started exited closed");
    assert_out(&o, "late\n");
    finish(&o);
}

static void test_noisy_processes_do_not_starve_a_quiet_one(void **state)
{
    struct owner noisy[16] = {0};
    struct owner quiet = {0};

    (void)state;
    for (int i = 0; i < 16; i++) {
        noisy[i].drops = true;
        start_script(&noisy[i], "exec cat /dev/zero", false, false);
    }
    for (int i = 0; i < 16; i++)
        until(noisy[i].bytes > 1000000);
    start_script(&quiet, "echo here I am", false, false);
    until(quiet.is_over);
    assert_out(&quiet, "here I am\n");
    for (int i = 0; i < 16; i++) {
        const uint64_t before = noisy[i].bytes;

        until(noisy[i].bytes > before + 1000000);
    }
    for (int i = 0; i < 16; i++)
        finish(&noisy[i]);
    finish(&quiet);
}

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
    struct sp_environ_ask env;
    const struct sp_launch l = script("echo; exec sleep 600", argv, &env);

    (void)state;
    assert_int_equal(sp_job_start(backend, &j, &ops, &l, NULL), 0);
    until(j.backend == NULL);
    run_for(20);
}

/* ---- lost cells ---- */

static pid_t only_child(void)
{
    char path[64];
    int pid = 0;

    (void)snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%d", &pid), 1);
    (void)fclose(f);
    return pid;
}

static void test_a_lost_cell_fails_its_jobs_and_the_next_start_works(void **state)
{
    struct owner live = {0};
    struct owner exited = {0};
    struct asked a;

    (void)state;
    start_script(&live, "echo up; exec sleep 600", false, true);
    start_script(&exited, "(sleep 600 &) ; exit 9", false, false);
    until(live.out.len > 0 && has_told(&exited, "exited"));
    sp_job_signal(&live.job, &prepare(&a)->call, SIGCONT);
    assert_int_equal(kill(only_child(), SIGKILL), 0);
    until(live.is_over && exited.is_over);
    assert_string_equal(live.story, "started failed");
    assert_string_equal(live.why, "process cell ended");
    assert_out(&live, "up\n");
    assert_string_equal(exited.story, "started exited failed");
    assert_int_equal(exited.exit.code, 9);
    until(a.is_answered);
    assert_int_equal(write_to(&live, "x", 1), SP_JOB_LOST);
    assert_string_not_equal(live.error.msg, "unused");
    assert_int_equal(terminate(&live), SP_JOB_OK);
    finish(&live);
    finish(&exited);

    start_script(&live, "echo anew", false, false);
    until(live.is_over);
    assert_out(&live, "anew\n");
    finish(&live);
}

/* ---- many, facts ---- */

static long resident_pages(void)
{
    FILE *f = fopen("/proc/self/statm", "re");
    long size = 0;
    long resident = 0;

    assert_non_null(f);
    assert_int_equal(fscanf(f, "%ld %ld", &size, &resident), 2);
    (void)fclose(f);
    return resident;
}

static void run_some(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct owner o = {0};

        start_script(&o, "echo x", false, (i & 1) != 0);
        until(o.is_over);
        assert_out(&o, "x\n");
        finish(&o);
    }
}

static void test_many_short_commands_leave_nothing(void **state)
{
    (void)state;
    run_some(50);
    const long before = resident_pages();
    const int fds = open_fds();
    run_some(400);
    assert_int_equal(open_fds(), fds);
#ifndef __SANITIZE_ADDRESS__ /* which keeps what was freed for a while */
    assert_true(resident_pages() - before < 512); /* 2 MiB; each left behind would be a ring more */
#else
    (void)before;
#endif
}

struct curious {
    struct sp_backend_wait wait;
    unsigned told;
};

static void on_facts(struct sp_backend_wait *w, const struct sp_backend_facts *facts,
                     const struct sp_error *e)
{
    struct curious *c = SP_CONTAINER(w, struct curious, wait);

    (void)e;
    assert_false(is_calling);
    assert_non_null(facts);
    assert_false(facts->is_remote);
    assert_true(facts->can_close_stdin);
    assert_string_equal(facts->cwd, "/");
    assert_int_equal(facts->shell_path[0], '/');
    c->told++;
    sp_loop_stop(loop);
}

static void test_facts_are_told_to_those_who_still_ask(void **state)
{
    static struct curious c[3] = {/* one is still asking when the test returns */
                                  {.wait.fn = on_facts},
                                  {.wait.fn = on_facts},
                                  {.wait.fn = on_facts}};

    (void)state;
    is_calling = true;
    for (int i = 0; i < 3; i++)
        sp_backend_ask_facts(backend, &c[i].wait);
    sp_backend_forget_facts(&c[1].wait);
    sp_backend_forget_facts(&c[1].wait);
    is_calling = false;
    until(c[0].told + c[2].told == 2);
    assert_int_equal(c[1].told, 0);
    sp_backend_ask_facts(backend, &c[1].wait); /* dropped with the backend */
}

static const struct CMUnitTest tests[] = {
    local_test(test_an_owner_hears_one_story),
    local_test(test_a_job_may_be_started_again),
    local_test(test_death_by_a_signal_has_its_number_on_pipes_and_on_a_terminal),
    local_test(test_a_missing_program_is_refused_with_the_kernels_word),
    local_test(test_what_cannot_be_asked_is_refused_at_once),
    local_test(test_no_more_processes_than_allowed),
    local_test(test_a_full_owner_holds_its_process_back_and_loses_nothing),
    local_test(test_an_exit_comes_after_the_output_before_it),
    local_test(test_output_after_the_exit_is_told_before_the_close),
    local_test(test_noisy_processes_do_not_starve_a_quiet_one),
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
    local_test(test_a_lost_cell_fails_its_jobs_and_the_next_start_works),
    local_test(test_many_short_commands_leave_nothing),
    local_test(test_facts_are_told_to_those_who_still_ask),
};

int main(void)
{
    if (getenv("SALLYPORT") == NULL)
        return 77;
    (void)sp_log_set_level("error");
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

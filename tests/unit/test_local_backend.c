/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs whose processes run here: what their owners are told, and what is left of them. */
#include "engine/local.h"
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
    struct sp_start l = {.cwd = SP_STR("/"), .argv = argv, .argc = 1};
    struct sp_err e = {0};

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
    struct sp_start l = {.cwd = SP_STR("/"), .argv = argv, .argc = 1};
    struct sp_err e = {0};

    (void)state;
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
    struct sp_env_request env;
    const struct sp_start l = script("exec sleep 600", argv, &env);
    struct sp_err e = {0};

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

static void test_what_the_ring_forgot_is_told_as_a_gap(void **state)
{
    struct owner o = {.is_full = true, .drops = true};

    (void)state;
    start_script(&o, "head -c 8388608 /dev/zero; echo end >&2; exit 5", false, false);
    until(o.refusals > 0);
    const struct sp_local_task *t = o.job.impl;
    struct sp_proc *p = t->proc;
    sp_bell_serve(&p->seat.cell->bell, p->seat.slot, false,
                  (struct sp_served){0}); /* as if nobody read it: the cell goes on and forgets */
    sp_bell_mark(&p->seat.cell->bell, p->seat.slot);
    sp_bell_wake(&p->seat.cell->bell);
    const uint64_t end = test_now_ms() + DEADLINE_MS;
    while (p->life != SP_PROC_CLOSED) {
        assert_true(test_now_ms() < end);
        run_for(10);
    }
    assert_string_equal(o.story, "started");
    o.is_full = false;
    sp_job_go_on(&o.job);
    until(o.is_over);
    assert_string_equal(o.story, "started gap exited closed");
    assert_true(o.gap_bytes > 4U << 20);
    assert_int_equal(o.gap_bytes + o.bytes, 8388608 + 4);
    assert_int_equal(o.exit.code, 5);
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
#ifndef __SANITIZE_ADDRESS__                      /* which keeps what was freed for a while */
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
                     const struct sp_err *e)
{
    struct curious *c = SP_CONTAINER(w, struct curious, wait);

    (void)e;
    assert_false(is_calling);
    assert_non_null(facts);
    assert_false(facts->is_remote);
    assert_true(facts->can_close_stdin);
    assert_string_equal(facts->cwd, "/");
    assert_null(facts->shell_path); /* no lookup of the account for each command */
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
    local_test(test_what_the_ring_forgot_is_told_as_a_gap),
    local_test(test_noisy_processes_do_not_starve_a_quiet_one),
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

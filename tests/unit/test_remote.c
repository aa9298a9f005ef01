/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The remote backend against a real server.
 */
#include "remote_fixture.h"
#include "sandbox/profile.h"

static void exit_17_is_17(void **state)
{
    auto_told struct told t = {0};

    (void)state;
    start_script(&t, "echo out; echo err >&2; exit 17");
    until(is_over, &t);
    assert_int_equal(t.started, 1);
    assert_int_equal(t.sandbox, SP_JOB_SANDBOX_NONE);
    assert_int_equal(t.closed, 1);
    assert_int_equal(t.code, 17);
    assert_int_equal(t.denied, 0);
    assert_bytes(t.out.data, t.out.len, "out\n");
    assert_bytes(t.err.data, t.err.len, "err\n");
    assert_string_equal(t.order, "soxc");
}

static void what_cannot_start_is_refused(void **state)
{
    const struct sp_str argv[] = {SP_STR("/no/such/program")};
    const struct sp_start l = {.label = SP_STR("x"), .cwd = SP_STR("/"), .argv = argv, .argc = 1};
    auto_told struct told t = {0};

    (void)state;
    start(&t, &l);
    until(is_over, &t);
    assert_string_equal(t.order, "r");
    assert_string_equal(t.error.msg, "No such file or directory (os error 2)");
}

static void a_terminal_has_its_size_and_hears_its_end(void **state)
{
    struct asked a = {.call.fn = fx_answered};
    struct sp_str argv[3];
    struct sp_start l = script("stty size; read x; stty size; cat", argv);
    auto_told struct told t = {0};

    (void)state;
    l.is_tty = true;
    l.rows = 40;
    l.cols = 132;
    start(&t, &l);
    until(has_output, &t);
    sp_job_resize(&t.job, &a.call, 50, 100);
    assert_int_equal(answer_of(&a), SP_JOB_OK);
    assert_int_equal(write_text(&t, "\n"), SP_JOB_OK);
    a.answers = 0;
    sp_job_close_stdin(&t.job, &a.call);
    assert_int_equal(answer_of(&a), SP_JOB_OK);
    until(is_over, &t);
    assert_true(sp_buf_add(&t.out, "", 1));
    assert_non_null(strstr(t.out.data, "40 132"));
    assert_non_null(strstr(t.out.data, "50 100"));
    assert_int_equal(t.code, 0);
}

static void stdin_is_typed_and_closed(void **state)
{
    struct asked a = {.call.fn = fx_answered};
    struct sp_str argv[3];
    struct sp_start l = script("cat; exit 3", argv);
    auto_told struct told t = {0};

    (void)state;
    l.wants_stdin = true;
    start(&t, &l);
    assert_int_equal(write_text(&t, "early"), SP_JOB_NOT_YET);
    until(is_started, &t);
    assert_int_equal(write_text(&t, "one "), SP_JOB_OK);
    assert_int_equal(write_text(&t, "two"), SP_JOB_OK);
    sp_job_close_stdin(&t.job, &a.call);
    assert_int_equal(answer_of(&a), SP_JOB_OK);
    until(is_over, &t);
    assert_bytes(t.out.data, t.out.len, "one two");
    assert_int_equal(t.code, 3);
    assert_int_equal(write_text(&t, "late"), SP_JOB_GONE);
}

static void without_stdin_a_write_says_so(void **state)
{
    auto_told struct told t = {0};

    (void)state;
    start_script(&t, "sleep 600");
    until(is_started, &t);
    assert_int_equal(write_text(&t, "x"), SP_JOB_NO_STDIN);
    assert_int_equal(terminate(&t), SP_JOB_OK);
    until(is_over, &t);
    assert_int_equal(t.code, 137);
    assert_int_equal(terminate(&t), SP_JOB_OK);
}

static void signals_reach_the_group(void **state)
{
    struct asked a = {.call.fn = fx_answered};
    auto_told struct told t = {0};

    (void)state;
    start_script(&t, "trap 'echo got; exit 5' USR1; echo up; while :; do sleep 0.05; done");
    until(has_output, &t);
    sp_job_signal(&t.job, &a.call, SIGUSR1);
    assert_int_equal(answer_of(&a), SP_JOB_OK);
    until(is_over, &t);
    assert_bytes(t.out.data, t.out.len, "up\ngot\n");
    assert_int_equal(t.code, 5);
    a.answers = 0;
    sp_job_signal(&t.job, &a.call, SIGINT);
    assert_int_equal(answer_of(&a), SP_JOB_OK);
}

static void exit_is_told_before_close(void **state)
{
    auto_told struct told t = {0};

    (void)state;
    start_script(&t, "(sleep 0.5; echo late) & echo now; exit 4");
    until(has_exited, &t);
    assert_int_equal(t.closed, 0);
    until(is_over, &t);
    assert_bytes(t.out.data, t.out.len, "now\nlate\n");
    assert_string_equal(t.order, "soxoc");
}

/* ---- much ---- */

static void twenty_megabytes_arrive_whole(void **state)
{
    auto_told struct told t = {.keeps_none = true};

    (void)state;
    start_script(&t, "head -c 20000000 /dev/zero | tr '\\0' a");
    until(is_over, &t);
    assert_int_equal(t.closed, 1);
    assert_int_equal(t.bytes, 20000000);
    assert_int_equal(t.sum, 20000000ULL * 'a');
    assert_int_equal(t.gaps, 0);
}

static void sixteen_at_once(void **state)
{
    struct told t[16] = {0};

    (void)state;
    for (int i = 0; i < 16; i++) {
        char text[64];

        (void)snprintf(text, sizeof text, "seq 1 2000; exit %d", i);
        start_script(&t[i], text);
    }
    for (int i = 0; i < 16; i++) {
        until(is_over, &t[i]);
        assert_int_equal(t[i].closed, 1);
        assert_int_equal(t[i].code, i);
        assert_int_equal(t[i].bytes, 8893);
        told_done(&t[i]);
    }
}

static bool has_refused(void *what)
{
    return ((struct told *)what)->refusals != 0;
}

static void an_owner_that_is_behind_loses_nothing(void **state)
{
    auto_told struct told t = {.keeps_none = true, .refuses = true};
    unsigned pauses = 0;

    (void)state;
    start_script(&t, "head -c 8000000 /dev/zero | tr '\\0' b");
    until(has_refused, &t);
    pass(300); /* what is not taken waits there, not here */
    assert_int_equal(t.bytes, 0);
    while (!is_over(&t)) {
        t.refuses = false;
        sp_job_go_on(&t.job);
        pass(20);
        t.refuses = !is_over(&t) && ++pauses < 5;
        if (pauses > 5)
            until(is_over, &t);
    }
    assert_int_equal(t.bytes, 8000000);
    assert_int_equal(t.sum, 8000000ULL * 'b');
    assert_string_equal(t.order, "soxc");
}

/* ---- ends ---- */

static void a_job_may_be_released_at_its_output(void **state)
{
    struct told t = {.releases_at_output = true};

    (void)state;
    start_script(&t, "echo $$; exec sleep 600");
    until(has_output, &t);
    pid_t pid = pid_told(&t);
    until(is_gone, &pid);
    assert_string_equal(t.order, "so");
    sp_buf_done(&t.out);
}

/* What is left when everything is freed at once. */
static void an_end_terminates_what_runs(void **state)
{
    auto_told struct told t = {0};

    (void)state;
    start_script(&t, "echo $$; exec yes");
    until(has_output, &t);
    pid_t pid = pid_told(&t);
    sp_job_release(&t.job);
    sp_backend_free(TAKE_PTR(fx.backend));
    until(is_gone, &pid);
}

static void a_server_that_is_killed_fails_its_jobs(void **state)
{
    auto_told struct told t = {0};
    struct asked a = {.call.fn = fx_answered};

    (void)state;
    sp_backend_free(fx.backend);
    const struct sp_client_options o = {.url = fx.url, .resume_ms = 600};
    struct sp_err e;
    assert_int_equal(sp_remote_new(fx.loop, &o, &fx.backend, &e), 0);
    start_script(&t, "echo permission denied; exec sleep 600");
    until(has_output, &t);
    stop_server(SIGKILL);
    sp_job_terminate(&t.job, &a.call);
    assert_int_equal(answer_of(&a), SP_JOB_LOST);
    until(is_over, &t);
    assert_int_equal(t.failed, 1);
    assert_int_equal(t.exited, 0);
    assert_non_null(strstr(t.why, "could not be resumed within 600 ms"));
}

static void nobody_there_refuses_the_start(void **state)
{
    auto_told struct told t = {0};

    (void)state;
    connect_backend("ws://127.0.0.1:1");
    start_script(&t, "true");
    until(is_over, &t);
    assert_string_equal(t.order, "r");
    assert_int_equal(t.error.code, SP_E_SYSTEM);
    assert_non_null(strstr(t.error.msg, "ws://127.0.0.1:1: connect: Connection refused"));
}

static void the_server_says_what_it_is(void **state)
{
    struct sp_backend_wait w = {.fn = fx_facts};
    struct sp_backend_wait dropped = {.fn = fx_facts};

    (void)state;
    sp_backend_ask_facts(fx.backend, &w);
    sp_backend_ask_facts(fx.backend, &dropped);
    sp_backend_forget_facts(&dropped);
    until(has_facts, NULL);
    assert_int_equal(fx.facts_told, 1);
    assert_true(fx.facts.is_remote);
    assert_true(fx.facts.can_close_stdin);
    assert_non_null(fx.facts.shell_path);
    assert_int_equal(fx.facts.cwd[0], '/');
    fx.facts_told = 0;
    sp_backend_ask_facts(fx.backend, &w);
    assert_int_equal(fx.facts_told, 0); /* never from within */
    until(has_facts, NULL);
}

static void localhost_needs_no_look_up(void **state)
{
    auto_told struct told t = {0};
    char url[144];

    (void)state;
    (void)snprintf(url, sizeof url, "ws://localhost%s", strrchr(fx.url, ':'));
    sp_backend_free(fx.backend);
    connect_backend(url);
    start_script(&t, "exit 6");
    until(is_over, &t);
    assert_int_equal(t.code, 6);
}

static void a_program_serves_on_its_stdio(void **state)
{
    const char *const program[] = {getenv("SALLYPORT"), "serve", "--listen", "stdio", NULL};
    const char *const env[] = {"REMOTE_MARK=yes", NULL};
    const struct sp_client_options o = {.program = program, .env = env};
    auto_told struct told t = {0};
    struct sp_err e;

    (void)state;
    assert_int_equal(sp_remote_new(fx.loop, &o, &fx.backend, &e), 0);
    start_script(&t, "echo $REMOTE_MARK; ls /proc/self/fd | wc -l; exit 9");
    until(is_over, &t);
    assert_int_equal(t.code, 9);
    assert_int_equal(memcmp(t.out.data, "yes\n", 4), 0);
}

static void a_program_that_is_none_refuses_the_start(void **state)
{
    const char *const missing[] = {"/no/such/program", NULL};
    const char *const liar[] = {"/bin/sh", "-c", "read x; echo no", NULL};
    struct sp_client_options o = {.program = missing};
    auto_told struct told t = {0};
    auto_told struct told u = {0};
    struct sp_err e;

    (void)state;
    assert_int_equal(sp_remote_new(fx.loop, &o, &fx.backend, &e), 0);
    start_script(&t, "true");
    until(is_over, &t);
    assert_int_equal(t.refused, 1);
    assert_non_null(strstr(t.error.msg, "run /no/such/program: No such file or directory"));
    sp_job_release(&t.job);
    sp_backend_free(fx.backend);
    o.program = liar;
    assert_int_equal(sp_remote_new(fx.loop, &o, &fx.backend, &e), 0);
    start_script(&u, "true");
    until(is_over, &u);
    assert_int_equal(u.refused, 1);
    assert_non_null(strstr(u.error.msg, "what is no message"));
}

/* It ignores everything but the last resort. */
static void a_program_that_will_not_end_is_killed(void **state)
{
    const char *const stubborn[] = {"/bin/sh", "-c", "trap '' TERM; while :; do sleep 0.1; done",
                                    NULL};
    const struct sp_client_options o = {.program = stubborn};
    auto_told struct told t = {0};
    struct sp_err e;

    (void)state;
    assert_int_equal(sp_remote_new(fx.loop, &o, &fx.backend, &e), 0);
    start_script(&t, "true");
    pass(100);
    sp_job_release(&t.job); /* the teardown sees that no child is left */
}

static void a_socket_of_this_machine_is_spoken_to_in_lines(void **state)
{
    auto_told struct told t = {0};
    char url[64];

    (void)state;
    (void)snprintf(url, sizeof url, "unix:///tmp/sp-test-remote-%d.sock", (int)getpid());
    start_server(url);
    connect_backend(fx.url);
    start_script(&t, "echo over lines; exit 11");
    until(is_over, &t);
    assert_bytes(t.out.data, t.out.len, "over lines\n");
    assert_int_equal(t.code, 11);
}

/* ---- tokens ---- */

static char token_path[64];

static void write_token(void)
{
    (void)snprintf(token_path, sizeof token_path, "/tmp/sp-test-token-%d", (int)getpid());
    const int fd = open(token_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, "open-sesame-please\n", 19), 19);
    (void)close(fd);
}

static void try_token(const char *token, struct told *t)
{
    const struct sp_client_options o = {.url = fx.url, .token = token};
    struct sp_err e;

    sp_backend_free(fx.backend);
    assert_int_equal(sp_remote_new(fx.loop, &o, &fx.backend, &e), 0);
    start_script(t, "exit 5");
    until(is_over, t);
    sp_job_release(&t->job);
}

static void a_token_opens_the_server(void **state)
{
    char url[64];

    (void)state;
    write_token();
    (void)snprintf(url, sizeof url, "unix:///tmp/sp-test-token-%d.sock", (int)getpid());
    const char *const listen[] = {"ws://127.0.0.1:0", url};
    for (int i = 0; i < 2; i++) {
        struct told t = {0};

        start_server_with(listen[i], "--token-file", token_path);
        try_token("open-sesame-please", &t);
        assert_int_equal(t.code, 5);
        t = (struct told){0};
        try_token("wrong", &t);
        assert_string_equal(t.order, "r");
        assert_non_null(strstr(t.error.msg, "401"));
        assert_non_null(strstr(t.error.msg, "invalid websocket bearer token"));
        sp_backend_free(TAKE_PTR(fx.backend));
        stop_server(SIGTERM);
    }
    (void)unlink(token_path);
}

/* ---- a sandbox ---- */

static void a_sandbox_is_kept_there_and_judged_there(void **state)
{
    struct sp_policy p = {0};
    struct sp_str argv[3];
    struct sp_start l = script("echo x > /denied-by-the-sandbox", argv);
    auto_told struct told t = {0};
    struct sp_err e;

    (void)state;
    assert_int_equal(sp_profile_add(&p.profile, SP_PLACE_ROOT, SP_ACCESS_READ, false,
                                    (struct sp_str){0}, (struct sp_str){0}, &e),
                     0);
    l.policy = &p;
    start(&t, &l);
    sp_policy_done(&p);
    until(is_over, &t);
    if (t.refused != 0)
        skip(); /* this host cannot confine, and says so */
    assert_int_equal(t.sandbox, SP_JOB_SANDBOX_LINUX);
    assert_int_not_equal(t.code, 0);
    assert_int_equal(t.denied, 1);
}

#define CASE(f)      cmocka_unit_test_setup_teardown(f, fx_setup, fx_teardown)
#define BARE_CASE(f) cmocka_unit_test_setup_teardown(f, fx_setup_bare, fx_teardown)

static const struct CMUnitTest tests[] = {
    CASE(exit_17_is_17),
    CASE(what_cannot_start_is_refused),
    CASE(a_terminal_has_its_size_and_hears_its_end),
    CASE(stdin_is_typed_and_closed),
    CASE(without_stdin_a_write_says_so),
    CASE(signals_reach_the_group),
    CASE(exit_is_told_before_close),
    CASE(twenty_megabytes_arrive_whole),
    CASE(sixteen_at_once),
    CASE(an_owner_that_is_behind_loses_nothing),
    CASE(a_job_may_be_released_at_its_output),
    CASE(an_end_terminates_what_runs),
    CASE(a_server_that_is_killed_fails_its_jobs),
    BARE_CASE(nobody_there_refuses_the_start),
    CASE(the_server_says_what_it_is),
    CASE(localhost_needs_no_look_up),
    BARE_CASE(a_program_serves_on_its_stdio),
    BARE_CASE(a_program_that_is_none_refuses_the_start),
    BARE_CASE(a_program_that_will_not_end_is_killed),
    BARE_CASE(a_token_opens_the_server),
    CASE(a_sandbox_is_kept_there_and_judged_there),
    BARE_CASE(a_socket_of_this_machine_is_spoken_to_in_lines),
};

TEST_MAIN(tests)

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The remote backend over connections that end: nothing is lost, nothing comes twice.
 */
#include "proxy_fixture.h"

#define LINES 5

static bool is_cut(void *what)
{
    (void)what;
    return px.cuts != 0;
}

/* A whole conversation, once; the connection ends somewhere in it. */
static void talk(void)
{
    struct asked asked[LINES + 1] = {0};
    struct sp_str argv[3];
    struct sp_start l = script("while read x; do echo \"got $x\"; done; exit 7", argv);
    auto_told struct told t = {0};
    auto_buf struct sp_buf want = {0};

    l.wants_stdin = true;
    start(&t, &l);
    until(is_started, &t);
    assert_int_equal(t.started, 1);
    for (int i = 0; i < LINES; i++) {
        char text[32];

        (void)snprintf(text, sizeof text, "line %d\n", i);
        asked[i].call.fn = fx_answered;
        sp_job_write(&t.job, &asked[i].call, sp_str_of(text));
        assert_true(sp_buf_printf(&want, "got %s", text));
    }
    asked[LINES].call.fn = fx_answered;
    sp_job_close_stdin(&t.job, &asked[LINES].call);
    until(is_over, &t);
    assert_string_equal(t.order, "soxc");
    assert_int_equal(t.code, 7);
    assert_int_equal(t.out.len, want.len);
    assert_memory_equal(t.out.data, want.data, want.len);
    for (int i = 0; i < LINES; i++) {
        until(is_answered, &asked[i]);
        assert_int_equal(asked[i].answers, 1);
        assert_int_equal(asked[i].call.result, SP_JOB_OK);
    }
    assert_int_equal(t.gaps, 0);
}

static unsigned rounds,
    cuts; /* how output falls into messages varies: the last cuts may not come */

static void talk_with_a_cut(size_t up, size_t down)
{
    sp_backend_free(fx.backend);
    cut();
    px.up = px.down = px.cuts = 0;
    px.cut_up = up;
    px.cut_down = down;
    connect_backend(px.url);
    talk();
    rounds++;
    cuts += px.cuts;
}

/* Where a first connection ends before there is a session, nothing can be resumed: from behind
 * that, everywhere. */
static size_t session_up, session_down;

static void measure(void)
{
    struct sp_backend_wait w = {.fn = fx_facts};

    sp_backend_ask_facts(fx.backend, &w);
    until(has_facts, NULL);
    rounds = cuts = 0;
    session_up = px.up;
    session_down = px.down;
    talk();
}

static void a_cut_anywhere_on_the_way_up_is_mended(void **state)
{
    (void)state;
    measure();
    const size_t end = px.up;
    for (size_t at = session_up + 40; at + 40 < end; at += 97)
        talk_with_a_cut(at, 0);
    print_message("# %u of %u rounds were cut\n", cuts, rounds);
    assert_true(rounds >= 8 && cuts >= rounds / 2);
}

static void a_cut_anywhere_on_the_way_down_is_mended(void **state)
{
    (void)state;
    measure();
    const size_t end = px.down;
    for (size_t at = session_down + 1; at + 40 < end; at += 83)
        talk_with_a_cut(0, at);
    print_message("# %u of %u rounds were cut\n", cuts, rounds);
    assert_true(rounds >= 8 && cuts >= rounds / 2);
}

static void many_cuts_lose_no_line(void **state)
{
    auto_told struct told t = {0};
    auto_buf struct sp_buf want = {0};

    (void)state;
    for (int i = 1; i <= 150; i++)
        assert_true(sp_buf_printf(&want, "line %d\n", i));
    start_script(&t, "i=0; while [ $i -lt 150 ]; do i=$((i+1)); echo line $i; sleep 0.01; done");
    until(is_started, &t);
    while (!is_over(&t)) {
        pass(170);
        cut();
        assert_true(px.cuts < 200);
    }
    assert_true(px.cuts > 3);
    assert_int_equal(t.closed, 1);
    assert_int_equal(t.out.len, want.len);
    assert_memory_equal(t.out.data, want.data, want.len);
}

static void what_the_server_forgot_is_told_as_a_gap(void **state)
{
    auto_told struct told t = {0};

    (void)state;
    start_script(&t, "echo first; sleep 0.3; head -c 3000000 /dev/zero | tr '\\0' z; echo last; "
                     "exit 6");
    until(has_output, &t);
    px.is_shut = true;
    cut();
    pass(1500);
    assert_int_equal(is_over(&t), false);
    px.is_shut = false;
    until(is_over, &t);
    assert_int_equal(t.gaps, 1);
    assert_string_equal(t.order, "sogoxc");
    assert_int_equal(t.code, 6);
    assert_true(t.bytes < 1100000);
    assert_memory_equal(t.out.data + t.out.len - 6, "zlast\n", 6);
}

static void a_session_that_is_still_attached_is_waited_for(void **state)
{
    auto_told struct told t = {0};

    (void)state;
    start_script(&t, "echo up; sleep 1; echo down; exit 2");
    until(has_output, &t);
    px.keeps_server = true; /* half-open: the server hears nothing of the cut */
    cut();
    px.keeps_server = false;
    until(is_over, &t);
    assert_string_equal(t.order, "soxc");
    assert_int_equal(t.code, 2);
    assert_bytes(t.out.data, t.out.len, "up\ndown\n");
}

static void a_server_that_forgot_the_session_fails_its_jobs(void **state)
{
    auto_told struct told t = {0};
    auto_told struct told u = {0};

    (void)state;
    start_script(&t, "echo x; sleep 600");
    until(has_output, &t);
    px.is_shut = true;
    cut();
    stop_server(SIGTERM);
    /* Another one, which knows nothing; a token of its own would be another one too. */
    start_server_with("ws://127.0.0.1:0", "--no-auth", NULL);
    aim_proxy(fx.url);
    px.is_shut = false;
    until(is_over, &t);
    assert_int_equal(t.failed, 1);
    assert_non_null(strstr(t.why, "has forgotten the session"));
    start_script(&u, "exit 3"); /* gets a session of its own */
    until(is_over, &u);
    assert_int_equal(u.code, 3);
}

static void a_released_job_is_terminated_over_a_cut(void **state)
{
    struct told t = {0};
    pid_t pid;

    (void)state;
    start_script(&t, "echo $$; exec sleep 600");
    until(has_output, &t);
    pid = pid_told(&t);
    px.is_shut = true;
    cut();
    pass(50);
    told_done(&t);
    pass(200);
    assert_int_equal(kill(pid, 0), 0);
    px.is_shut = false;
    until(is_gone, &pid);
}

static void nothing_is_told_while_it_is_cut(void **state)
{
    auto_told struct told t = {0};
    struct asked a = {.call.fn = fx_answered};
    struct sp_str argv[3];
    struct sp_start l = script("cat", argv);

    (void)state;
    l.wants_stdin = true;
    start(&t, &l);
    until(is_started, &t);
    px.is_shut = true;
    cut();
    until(is_cut, NULL);
    sp_job_write(&t.job, &a.call, SP_STR("typed once\n"));
    pass(600);
    assert_int_equal(a.answers, 0);
    assert_int_equal(is_over(&t), false);
    px.is_shut = false;
    assert_int_equal(answer_of(&a), SP_JOB_OK);
    until(has_output, &t);
    assert_bytes(t.out.data, t.out.len, "typed once\n");
    assert_int_equal(terminate(&t), SP_JOB_OK);
    until(is_over, &t);
    assert_int_equal(t.code, 137);
}

static void an_end_amid_a_cut_is_clean(void **state)
{
    struct told t = {0};

    (void)state;
    start_script(&t, "sleep 1");
    until(is_started, &t);
    px.is_shut = true;
    cut();
    pass(30);
    told_done(&t);
    sp_backend_free(TAKE_PTR(fx.backend));
    pass(50);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, px_setup, px_teardown)

static const struct CMUnitTest tests[] = {
    CASE(a_cut_anywhere_on_the_way_up_is_mended),
    CASE(a_cut_anywhere_on_the_way_down_is_mended),
    CASE(many_cuts_lose_no_line),
    CASE(what_the_server_forgot_is_told_as_a_gap),
    CASE(a_session_that_is_still_attached_is_waited_for),
    CASE(a_server_that_forgot_the_session_fails_its_jobs),
    CASE(a_released_job_is_terminated_over_a_cut),
    CASE(nothing_is_told_while_it_is_cut),
    CASE(an_end_amid_a_cut_is_clean),
};

TEST_MAIN(tests)

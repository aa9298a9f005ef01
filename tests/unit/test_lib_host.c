/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libsallyport as a guest: in programs with loops and threads of their own, whose functions it
 * calls when, and only when, they dispatch.
 */
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include "lib_plain.h"

static bool is_readable(int within_ms)
{
    struct pollfd p = {.fd = sp_engine_fd(engine), .events = POLLIN};

    return poll(&p, 1, within_ms) == 1;
}

/* ---- a host with a loop ---- */

#define COMMANDS 1200
#define AT_ONCE  24

static struct {
    int begun, answered, wrong, timed_out;
} flow;

static void begin_one(void);

static void on_flow(void *user, const struct sp_answer *a)
{
    const long number = (long)(intptr_t)user;
    char want[16];
    const int n = snprintf(want, sizeof want, "%ld\n", number);

    flow.answered++;
    if (number % 40 == 0)
        flow.timed_out += a->outcome == SP_OUTCOME_TIMED_OUT;
    else if (a->outcome != SP_OUTCOME_EXITED || a->exit_code != number % 100 ||
             a->output_size != (size_t)n || memcmp(a->output, want, (size_t)n) != 0)
        flow.wrong++;
    begin_one();
}

/* Most are short; one in forty would take a minute, and has a time-out. */
static void begin_one(void)
{
    const long number = flow.begun + 1;
    char script[64];
    const char *const argv[] = {"sh", "-c", script, NULL};
    const struct sp_run_options run = {
        .size = sizeof run, .argv = argv, .timeout_ms = number % 40 == 0 ? 60 : 20000};
    const struct sp_exec_options exec = {.size = sizeof exec, .argv = argv};

    if (flow.begun == COMMANDS)
        return;
    flow.begun++;
    (void)snprintf(script, sizeof script, number % 40 == 0 ? "sleep 60" : "echo %ld; exit %ld",
                   number, number % 100);
    if (number % 3 == 0 && number % 40 != 0)
        assert_ok(sp_engine_exec(engine, &exec, on_flow, (void *)(intptr_t)number, NULL, e));
    else
        assert_ok(sp_engine_run(engine, &run, on_flow, (void *)(intptr_t)number, NULL, e));
}

static void test_the_descriptor_alone_carries_a_thousand_commands(void **state)
{
    const int host = epoll_create1(EPOLL_CLOEXEC);
    const int ticker = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    const struct itimerspec ms = {.it_interval.tv_nsec = 1000000, .it_value.tv_nsec = 1000000};
    struct epoll_event ev = {.events = EPOLLIN, .data.fd = sp_engine_fd(engine)};
    const uint64_t end = now_ms() + 6 * DEADLINE_MS;
    uint64_t ticks = 0;
    uint64_t last_work = now_ms();

    (void)state;
    memset(&flow, 0, sizeof flow);
    assert_int_equal(epoll_ctl(host, EPOLL_CTL_ADD, ev.data.fd, &ev), 0);
    ev.data.fd = ticker;
    assert_int_equal(epoll_ctl(host, EPOLL_CTL_ADD, ticker, &ev), 0);
    assert_int_equal(timerfd_settime(ticker, 0, &ms, NULL), 0);
    for (int i = 0; i < AT_ONCE; i++)
        begin_one();
    while (flow.answered < COMMANDS) {
        uint64_t n;

        assert_int_equal(epoll_wait(host, &ev, 1, DEADLINE_MS), 1);
        if (ev.data.fd == ticker) {
            ticks += read(ticker, &n, sizeof n) == (ssize_t)sizeof n;
            if (now_ms() > end || now_ms() > last_work + DEADLINE_MS)
                fail_msg("a wake-up was lost: %d of %d are answered", flow.answered, COMMANDS);
        } else {
            dispatch_once(engine, 0);
            last_work = now_ms();
        }
    }
    assert_int_equal(flow.wrong, 0);
    assert_int_equal(flow.timed_out, COMMANDS / 40);
    assert_true(ticks > 10); /* the host had its turns */
    (void)close(ticker);
    (void)close(host);
}

static uint64_t cpu_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void test_a_host_whose_commands_are_silent_sleeps(void **state)
{
    const int session = start_session("sleep 30", true);
    const uint64_t end = now_ms() + 700;
    int woken = 0;

    (void)state;
    assert_true(session > 0);
    for (int i = 0; i < 20 && is_readable(0); i++)
        dispatch_once(engine, 0);
    const uint64_t before = cpu_us();
    for (uint64_t now = now_ms(); now < end; now = now_ms())
        if (is_readable((int)(end - now))) {
            dispatch_once(engine, 0);
            woken++;
        }
    assert_true(woken < 10);
    assert_true(cpu_us() - before < 100000);
}

static void test_a_call_from_outside_makes_it_readable(void **state)
{
    struct heard h = {0};

    (void)state;
    for (int i = 0; i < 20 && is_readable(0); i++)
        dispatch_once(engine, 0);
    assert_false(is_readable(0));
    assert_ok(sp_engine_wait(engine, 4711, on_heard, &h, NULL, e));
    assert_true(is_readable(0));
    assert_int_equal(h.count, 0);
    dispatch_once(engine, 0);
    assert_int_equal(h.count, 1);
    assert_int_equal(h.outcome, SP_OUTCOME_UNKNOWN);
}

static void test_deadlines_do_not_count_what_the_host_did_before(void **state)
{
    struct heard h;

    (void)state;
    dispatch_once(engine, 0);
    (void)poll(NULL, 0, 600); /* busy elsewhere, for longer than the call may take */
    do_exec(&h, "sleep 0.3; echo done", false, 500);
    assert_int_equal(h.outcome, SP_OUTCOME_EXITED);
    assert_string_equal(h.output, "done\n");
}

/* ---- callbacks ---- */

static int calls_made;

static void on_reenter(void *user, const struct sp_answer *a)
{
    struct heard *h = user;
    struct sp_error why = {0};
    const struct sp_exec_options o = {.size = sizeof o, .script = "exit 6", .shell = "/bin/sh"};

    (void)a;
    calls_made++;
    assert_int_equal(sp_engine_dispatch(engine, 0, &why), -SP_ERROR_STATE);
    assert_non_null(strstr(why.msg, "callback"));
    assert_ok(sp_engine_exec(engine, &o, on_heard, h, NULL, e)); /* a call may beget a call */
}

static void test_a_callback_may_begin_calls_but_not_dispatch(void **state)
{
    static const char *const argv[] = {"true", NULL};
    const struct sp_run_options o = {.size = sizeof o, .argv = argv};
    struct heard h = {0};

    (void)state;
    calls_made = 0;
    assert_ok(sp_engine_run(engine, &o, on_reenter, &h, NULL, e));
    until_heard(&h);
    assert_int_equal(calls_made, 1);
    assert_int_equal(h.exit_code, 6);
}

static int told_after;
static bool is_freed;

static void on_free(void *user, const struct sp_answer *a)
{
    struct sp_error e = {0};

    (void)user;
    (void)a;
    told_after += is_freed;
    is_freed = true;
    sp_engine_free(engine);
    sp_engine_free(engine); /* twice is once */
    assert_int_equal(sp_engine_terminate_all(engine, &e), -SP_ERROR_STATE);
    assert_non_null(strstr(e.msg, "freed"));
}

static void on_late_event(void *user, const struct sp_event *ev)
{
    (void)user;
    (void)ev;
    told_after += is_freed;
}

static void test_free_from_a_callback_waits_for_dispatch_and_silences_all(void **state)
{
    static const char *const argv[] = {"true", NULL};
    static const char *const slow[] = {"sleep", "30", NULL};
    const struct sp_run_options o = {.size = sizeof o, .argv = argv};
    const struct sp_run_options waiting = {.size = sizeof o, .argv = slow};
    const struct sp_exec_options background = {.size = sizeof background, .argv = slow};
    struct sp_engine_options eo = default_options();
    const uint64_t end = now_ms() + DEADLINE_MS;

    (void)state;
    sp_engine_free(engine);
    eo.event = on_late_event;
    engine = make_engine(&eo);
    told_after = 0;
    is_freed = false;
    assert_ok(sp_engine_exec(engine, &background, on_free, NULL, NULL, e));
    assert_ok(sp_engine_run(engine, &waiting, on_free, NULL, NULL, e));
    assert_ok(sp_engine_run(engine, &o, on_free, NULL, NULL, e));
    while (!is_freed && now_ms() < end)
        dispatch_once(engine, 100);
    assert_true(is_freed);
    assert_int_equal(told_after, 0);
    engine = NULL; /* it is gone: tear_down counts the descriptors */
}

static void test_free_ends_what_runs_and_answers_nobody(void **state)
{
    const int session = start_session("sleep 30 & echo $!; sleep 30", false);
    struct heard h = {0};

    (void)state;
    assert_ok(sp_engine_wait(engine, session, on_heard, &h, NULL, e));
    dispatch_once(engine, 0);
    sp_engine_free(engine);
    engine = NULL;
    sp_engine_free(NULL);
    assert_int_equal(h.count, 0);
}

/* ---- threads ---- */

static void *run_in_a_thread(void *user)
{
    const struct sp_engine_options o = default_options();
    struct sp_engine *en = NULL;
    intptr_t wrong = 0;

    for (int round = 0; round < 3; round++) {
        if (sp_engine_new(&o, &en, NULL) < 0)
            return (void *)1;
        for (int i = 0; i < 25; i++) {
            struct heard h = {0};
            char script[64];
            const char *const argv[] = {"sh", "-c", script, NULL};
            const struct sp_run_options run = {.size = sizeof run, .argv = argv};

            (void)snprintf(script, sizeof script, "echo %d-%d", (int)(intptr_t)user, i);
            wrong += sp_engine_run(en, &run, on_heard, &h, NULL, NULL) < 0;
            const uint64_t end = now_ms() + DEADLINE_MS;
            while (h.count == 0 && now_ms() < end)
                wrong += sp_engine_dispatch(en, 1000, NULL) < 0;
            (void)strcat(script, "\n");
            wrong += strcmp(h.output, script + 5) != 0;
        }
        sp_engine_free(en);
    }
    return (void *)wrong;
}

static void test_every_thread_may_have_its_engine(void **state)
{
    pthread_t threads[4];

    (void)state;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_in_a_thread, (void *)(intptr_t)i),
                         0);
    for (int i = 0; i < 4; i++) {
        void *wrong = NULL;

        assert_int_equal(pthread_join(threads[i], &wrong), 0);
        assert_null(wrong);
    }
}

static void *exec_in_a_thread(void *user)
{
    *(int *)user = start_session("sleep 0.5; echo still here", false);
    return NULL;
}

static void test_an_engine_may_be_handed_to_another_thread(void **state)
{
    pthread_t thread;
    struct heard h;
    int session = 0;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, exec_in_a_thread, &session), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    do_wait(&h, session); /* the thread in which the cell was made is gone */
    assert_int_equal(h.outcome, SP_OUTCOME_EXITED);
    assert_string_equal(h.output, "still here\n");
}

#define lib_test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

static const struct CMUnitTest tests[] = {
    lib_test(test_the_descriptor_alone_carries_a_thousand_commands),
    lib_test(test_a_host_whose_commands_are_silent_sleeps),
    lib_test(test_a_call_from_outside_makes_it_readable),
    lib_test(test_deadlines_do_not_count_what_the_host_did_before),
    lib_test(test_a_callback_may_begin_calls_but_not_dispatch),
    lib_test(test_free_from_a_callback_waits_for_dispatch_and_silences_all),
    lib_test(test_free_ends_what_runs_and_answers_nobody),
    lib_test(test_every_thread_may_have_its_engine),
    lib_test(test_an_engine_may_be_handed_to_another_thread),
};

TEST_MAIN(tests)

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libsallyport as a guest: in programs with loops, threads, forks, signals and habits of their own;
 * and what it says to those who use it wrongly.
 */
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/timerfd.h>

#include "lib_fixture.h"

static int fds_before;

static int set_up(void **state)
{
    const struct sp_engine_options o = default_options();

    (void)state;
    fds_before = open_fds();
    engine = make_engine(&o);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    sp_engine_free(engine);
    engine = NULL;
    if (open_fds() == fds_before)
        return 0;
    (void)fprintf(stderr, "# descriptors left behind: %d\n", open_fds() - fds_before);
    return -1;
}

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

/* ---- questions ---- */

static uint64_t asked;
static enum sp_consent consent;
static bool answers_at_once;

static void on_question(void *user, const struct sp_question *q)
{
    assert_ptr_equal(user, &asked);
    assert_int_equal(q->size, sizeof *q);
    assert_int_equal(q->topic, SP_QUESTION_UNCONFINED);
    assert_string_equal(q->reason, "may I?");
    assert_string_equal(q->command, "echo free");
    assert_int_equal(q->call, 1);
    asked = q->id;
    if (answers_at_once)
        assert_ok(sp_engine_reply(engine, q->id, consent, e));
}

static void ask_one(struct heard *h)
{
    struct sp_engine_options eo = default_options();
    const struct sp_exec_options o = {.size = sizeof o,
                                      .script = "echo free",
                                      .shell = "/bin/sh",
                                      .is_no_login = true,
                                      .is_unconfined = true,
                                      .reason = "may I?"};

    sp_engine_free(engine);
    eo.sandbox = ":read-only";
    eo.approve = "on-request";
    eo.ask = on_question;
    eo.user = &asked;
    engine = make_engine(&eo);
    asked = 0;
    memset(h, 0, sizeof *h);
    assert_ok(sp_engine_exec(engine, &o, on_heard, h, NULL, e));
    const uint64_t end = now_ms() + DEADLINE_MS;
    while (asked == 0 && now_ms() < end)
        dispatch_once(engine, 100);
    assert_true(asked != 0);
}

static void test_a_person_is_asked_and_answers_now_or_later(void **state)
{
    struct heard h;

    (void)state;
    answers_at_once = true;
    consent = SP_CONSENT_YES;
    ask_one(&h);
    until_heard(&h);
    assert_int_equal(h.outcome, SP_OUTCOME_EXITED);
    assert_string_equal(h.output, "free\n");

    answers_at_once = false;
    ask_one(&h);
    dispatch_once(engine, 50);
    assert_int_equal(h.count, 0); /* it waits */
    assert_int_equal(sp_engine_reply(engine, asked, (enum sp_consent)7, NULL), -SP_ERROR_INVALID);
    assert_ok(sp_engine_reply(engine, asked, SP_CONSENT_NO, e));
    until_heard(&h);
    assert_int_equal(h.outcome, SP_OUTCOME_REFUSED);
    assert_non_null(strstr(h.error, "rejected"));
    assert_ok(sp_engine_reply(engine, asked, SP_CONSENT_YES, e)); /* too late: nothing */
}

/* ---- hosts with habits ---- */

/* In a child of the test, which may spoil what it likes. */
static void in_a_child(void (*fn)(void))
{
    int status = 0;
    const pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        fn();
        _exit(0);
    }
    const uint64_t end = now_ms() + 2 * DEADLINE_MS;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (now_ms() > end) {
            (void)kill(pid, SIGKILL);
            fail_msg("the child hangs");
        }
        (void)poll(NULL, 0, 5);
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("the child ended with status %#x", (unsigned)status);
}

#define CHECK(condition)               \
    do {                               \
        if (!(condition))              \
            _exit(__LINE__ % 200 + 1); \
    } while (0)

static int plain_code;

static void on_plain(void *user, const struct sp_answer *a)
{
    (void)user;
    plain_code = a->outcome == SP_OUTCOME_EXITED ? a->exit_code : 1000 + (int)a->outcome;
}

static struct sp_engine *plain_engine(void)
{
    const struct sp_engine_options o = default_options();
    struct sp_engine *made = NULL;

    CHECK(sp_engine_new(&o, &made, NULL) == 0);
    return made;
}

/* The exit code of a command, in a child. */
static int plain_run(struct sp_engine *en, const char *script)
{
    const char *const argv[] = {"sh", "-c", script, NULL};
    const struct sp_run_options o = {.size = sizeof o, .argv = argv, .timeout_ms = 20000};

    plain_code = -1;
    CHECK(sp_engine_run(en, &o, on_plain, NULL, NULL, NULL) == 0);
    while (plain_code < 0)
        CHECK(sp_engine_dispatch(en, 1000, NULL) == 0);
    return plain_code;
}

static void host_ignores_children(void)
{
    (void)signal(SIGCHLD, SIG_IGN);
    struct sp_engine *en = plain_engine();
    CHECK(plain_run(en, "sleep 0.05; exit 7") == 7);
    sp_engine_free(en);
}

static void reap_all(int signal)
{
    const int before = errno;

    (void)signal;
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
    errno = before;
}

static void host_reaps_everything(void)
{
    (void)signal(SIGCHLD, reap_all);
    struct sp_engine *en = plain_engine();
    CHECK(plain_run(en, "sleep 0.05; exit 7") == 7);
    sp_engine_free(en);
}

static void host_without_stdio(void)
{
    for (int fd = 0; fd < 3; fd++)
        (void)close(fd);
    struct sp_engine *en = plain_engine();
    CHECK(plain_run(en, "echo hello; cat; exit 7") == 7);
    sp_engine_free(en);
    CHECK(open("/", O_PATH) == 0); /* nothing is left on their numbers */
}

static void host_with_a_tight_umask_and_blocked_signals(void)
{
    sigset_t all;

    sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, NULL);
    (void)umask(0777);
    struct sp_engine *en = plain_engine();
    CHECK(plain_run(en, "kill -TERM $$; exit 1") == 1000 + SP_OUTCOME_SIGNALLED);
    sp_engine_free(en);
    CHECK(umask(0) == 0777);
}

static volatile sig_atomic_t ticks;

static void on_tick(int signal)
{
    (void)signal;
    ticks++;
}

static void host_with_a_ticking_signal(void)
{
    const struct sigaction tick = {.sa_handler =
                                       on_tick}; /* no SA_RESTART: calls are interrupted */
    struct itimerspec often = {.it_interval.tv_nsec = 300000, .it_value.tv_nsec = 300000};
    timer_t timer;

    CHECK(sigaction(SIGALRM, &tick, NULL) == 0);
    CHECK(timer_create(CLOCK_MONOTONIC, NULL, &timer) == 0);
    CHECK(timer_settime(timer, 0, &often, NULL) == 0);
    struct sp_engine *en = plain_engine();
    for (int i = 0; i < 30; i++)
        CHECK(plain_run(en, "echo hello; exit 7") == 7);
    sp_engine_free(en);
    CHECK(ticks > 10);
}

static void host_with_sigpipe_at_its_default(void)
{
    static const char *const argv[] = {"sh", "-c", "exec 0<&-; echo closed; sleep 5", NULL};
    const struct sp_exec_options o = {
        .size = sizeof o, .argv = argv, .has_stdin = true, .yield_ms = 300};
    static char much[100000];
    struct heard h = {0};

    (void)signal(SIGPIPE, SIG_DFL);
    struct sp_engine *en = plain_engine();
    CHECK(sp_engine_exec(en, &o, on_heard, &h, NULL, NULL) == 0);
    while (h.count == 0)
        CHECK(sp_engine_dispatch(en, 1000, NULL) == 0);
    CHECK(h.outcome == SP_OUTCOME_RUNNING);
    const int session = h.session;
    for (int i = 0; i < 3; i++) {
        h.count = 0;
        CHECK(sp_engine_write(en, session, much, sizeof much, 250, on_heard, &h, NULL, NULL) == 0);
        while (h.count == 0)
            CHECK(sp_engine_dispatch(en, 1000, NULL) == 0);
    }
    sp_engine_free(en);
    sigset_t pending;
    CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 0);
}

static void test_a_host_may_ignore_its_children(void **state)
{
    (void)state;
    in_a_child(host_ignores_children);
}

static void test_a_host_may_reap_whatever_it_finds(void **state)
{
    (void)state;
    in_a_child(host_reaps_everything);
}

static void test_a_host_may_have_no_stdio(void **state)
{
    (void)state;
    in_a_child(host_without_stdio);
}

static void test_a_host_may_have_any_umask_and_mask(void **state)
{
    (void)state;
    in_a_child(host_with_a_tight_umask_and_blocked_signals);
}

static void test_signals_of_the_host_disturb_nothing(void **state)
{
    (void)state;
    in_a_child(host_with_a_ticking_signal);
}

static void test_a_command_that_does_not_read_kills_nobody(void **state)
{
    (void)state;
    in_a_child(host_with_sigpipe_at_its_default);
}

/* ---- fork, exec ---- */

static void in_the_forked_child(void)
{
    struct sp_error e = {0};
    const struct sp_exec_options o = {.size = sizeof o, .script = "true"};

    CHECK(sp_engine_exec(engine, &o, NULL, NULL, NULL, &e) == -SP_ERROR_STATE);
    CHECK(strstr(e.msg, "forked") != NULL);
    CHECK(sp_engine_dispatch(engine, 0, &e) == -SP_ERROR_STATE);
    sp_engine_free(engine); /* harms nobody */
}

static void test_a_fork_of_the_host_harms_nothing(void **state)
{
    const int session = start_session("read x; echo got $x", true);
    struct heard h;

    (void)state;
    in_a_child(in_the_forked_child);
    do_write(&h, session, "word\n", 5000);
    assert_int_equal(h.outcome, SP_OUTCOME_EXITED);
    assert_non_null(strstr(h.output, "got word"));
}

static void test_no_descriptor_reaches_what_the_host_executes(void **state)
{
    const int session = start_session("cat", true);
    DIR *d = opendir("/proc/self/fd");
    int seen = 0;

    (void)state;
    assert_true(session > 0);
    assert_non_null(d);
    for (const struct dirent *entry; (entry = readdir(d)) != NULL;) {
        const int fd = atoi(entry->d_name);
        char target[256];
        const ssize_t n = readlinkat(dirfd(d), entry->d_name, target, sizeof target - 1);

        if (entry->d_name[0] == '.' || fd < 3 || fd == dirfd(d) || n < 0)
            continue;
        target[n] = 0;
        seen++;
        if ((fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0 && strchr(target, ':') != NULL &&
            strncmp(target, "pipe:", 5) != 0) /* the test runner's own */
            fail_msg("%d (%s) would be inherited", fd, target);
    }
    (void)closedir(d);
    assert_true(seen >= 5);
}

static void test_commands_end_when_the_host_is_killed(void **state)
{
    int ends[2];
    char line[32] = "";

    (void)state;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    const pid_t host = fork();
    assert_true(host >= 0);
    if (host == 0) {
        struct sp_engine *en = plain_engine();
        static const char *const argv[] = {"sh", "-c", "echo $$; exec sleep 60", NULL};
        const struct sp_exec_options o = {.size = sizeof o, .argv = argv, .yield_ms = 250};
        struct heard h = {0};

        CHECK(sp_engine_exec(en, &o, on_heard, &h, NULL, NULL) == 0);
        while (h.count == 0)
            CHECK(sp_engine_dispatch(en, 1000, NULL) == 0);
        CHECK(write(ends[1], h.output, strlen(h.output)) > 0);
        for (;;)
            (void)pause();
    }
    assert_true(read(ends[0], line, sizeof line - 1) > 0);
    const pid_t command = atoi(line);
    assert_true(command > 0);
    assert_int_equal(kill(command, 0), 0);
    assert_int_equal(kill(host, SIGKILL), 0);
    assert_int_equal(waitpid(host, NULL, 0), host);
    const uint64_t end = now_ms() + DEADLINE_MS;
    while (kill(command, 0) == 0 && now_ms() < end)
        (void)poll(NULL, 0, 5);
    assert_int_equal(kill(command, 0), -1);
    (void)close(ends[0]);
    (void)close(ends[1]);
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

/* ---- what is wrong ---- */

static void expect_refusal(const struct sp_engine_options *o, int code, const char *word)
{
    struct sp_engine *made = NULL;
    struct sp_error e = {0};

    assert_int_equal(sp_engine_new(o, &made, &e), -code);
    assert_int_equal(e.code, code);
    assert_null(made);
    if (strstr(e.msg, word) == NULL)
        fail_msg("`%s` does not say `%s`", e.msg, word);
}

static void test_options_that_cannot_be_are_refused_in_words(void **state)
{
    struct sp_engine_options o = default_options();
    struct {
        struct sp_engine_options known;
        const char *newer;
    } longer = {.known = default_options(), .newer = "something"};
    struct sp_engine *made = NULL;

    (void)state;
    expect_refusal(NULL, SP_ERROR_INVALID, "missing");
    o.size = 0;
    expect_refusal(&o, SP_ERROR_INVALID, "sizeof");
    o = default_options();
    o.program = "/nonexistent/sallyport";
    expect_refusal(&o, SP_ERROR_NOT_FOUND, "/nonexistent/sallyport");
    o.program = "/bin/echo";
    expect_refusal(&o, SP_ERROR_INVALID, "version");
    o.program = "sallyport";
    expect_refusal(&o, SP_ERROR_INVALID, "path");
    o = default_options();
    o.on = "nowhere";
    expect_refusal(&o, SP_ERROR_NOT_FOUND, "nowhere");
    o = default_options();
    o.sandbox = ":nothing";
    expect_refusal(&o, SP_ERROR_INVALID, ":nothing");
    o = default_options();
    o.approve = "perhaps";
    expect_refusal(&o, SP_ERROR_INVALID, "perhaps");
    o = default_options();
    o.config = "/nonexistent/sallyport.conf";
    expect_refusal(&o, SP_ERROR_INVALID, "/nonexistent/sallyport.conf");
    o = default_options();
    o.cwd = "/nonexistent";
    expect_refusal(&o, SP_ERROR_NOT_FOUND, "/nonexistent");

    /* A newer program that asks for nothing new is fine; one that does is told. */
    longer.known.size = sizeof longer;
    expect_refusal(&longer.known, SP_ERROR_INVALID, "does not know yet");
    longer.newer = NULL;
    assert_int_equal(sp_engine_new(&longer.known, &made, NULL), 0);
    sp_engine_free(made);
}

static void test_calls_that_cannot_be_are_refused_in_words(void **state)
{
    static const char *const empty[] = {NULL};
    static const char *const argv[] = {"true", NULL};
    static const char *const bad_env[] = {"NOVALUE", NULL};
    struct sp_exec_options o = {.size = sizeof o};
    struct sp_run_options r = {.size = sizeof r};
    struct sp_error e = {0};

    (void)state;
    assert_int_equal(sp_engine_exec(NULL, &o, NULL, NULL, NULL, &e), -SP_ERROR_INVALID);
    assert_int_equal(sp_engine_exec(engine, &o, NULL, NULL, NULL, &e), -SP_ERROR_INVALID);
    assert_non_null(strstr(e.msg, "one of both"));
    o.script = "true";
    o.argv = argv;
    assert_int_equal(sp_engine_exec(engine, &o, NULL, NULL, NULL, &e), -SP_ERROR_INVALID);
    o.script = NULL;
    o.argv = empty;
    assert_int_equal(sp_engine_exec(engine, &o, NULL, NULL, NULL, &e), -SP_ERROR_INVALID);
    o.argv = argv;
    o.env = bad_env;
    assert_int_equal(sp_engine_exec(engine, &o, NULL, NULL, NULL, &e), -SP_ERROR_INVALID);
    assert_non_null(strstr(e.msg, "NOVALUE"));
    assert_int_equal(sp_engine_run(engine, &r, NULL, NULL, NULL, &e), -SP_ERROR_INVALID);
    r.argv = empty;
    assert_int_equal(sp_engine_run(engine, &r, NULL, NULL, NULL, &e), -SP_ERROR_INVALID);
    r.argv = argv;
    r.env = bad_env;
    assert_int_equal(sp_engine_run(engine, &r, NULL, NULL, NULL, &e), -SP_ERROR_INVALID);
    assert_int_equal(sp_engine_resize(engine, 1000, 24, 80, &e), -SP_ERROR_NOT_FOUND);
    assert_int_equal(sp_engine_close_stdin(engine, 1000, &e), -SP_ERROR_NOT_FOUND);
    assert_int_equal(sp_engine_signal(engine, 1000, SIGINT, &e), -SP_ERROR_NOT_FOUND);
    assert_int_equal(sp_engine_cancel(engine, 12345, &e), -SP_ERROR_NOT_FOUND);
    assert_non_null(strstr(e.msg, "12345"));
    const int session = start_session("sleep 30", false);
    assert_int_equal(sp_engine_signal(engine, session, 1000, &e), -SP_ERROR_INVALID);
    assert_string_equal(sp_engine_version(), "0.1.0");
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
    lib_test(test_a_person_is_asked_and_answers_now_or_later),
    lib_test(test_a_host_may_ignore_its_children),
    lib_test(test_a_host_may_reap_whatever_it_finds),
    lib_test(test_a_host_may_have_no_stdio),
    lib_test(test_a_host_may_have_any_umask_and_mask),
    lib_test(test_signals_of_the_host_disturb_nothing),
    lib_test(test_a_command_that_does_not_read_kills_nobody),
    lib_test(test_a_fork_of_the_host_harms_nothing),
    lib_test(test_no_descriptor_reaches_what_the_host_executes),
    lib_test(test_commands_end_when_the_host_is_killed),
    lib_test(test_every_thread_may_have_its_engine),
    lib_test(test_an_engine_may_be_handed_to_another_thread),
    lib_test(test_options_that_cannot_be_are_refused_in_words),
    lib_test(test_calls_that_cannot_be_are_refused_in_words),
};

TEST_MAIN(tests)

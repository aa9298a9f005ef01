/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs of real commands, in a cell of ours and on a server: what is promised about time, output and
 * what is left behind.
 */
#include <sys/stat.h>

#include "base/auto.h"
#include "base/buf.h"
#include "engine/local.h"
#include "engine/remote/remote.h"
#include "engine/run.h"
#include "process_fixture.h"

static struct sp_loop *loop;
static struct sp_backend *backend;
static struct sp_run *run;
static struct sp_timer guard, cancel_timer;
static char directory[64];
static bool is_remote;

static struct {
    int count;
    struct sp_run_result r;
    struct sp_buf out, err, aggregated;
    unsigned deltas;
    uint32_t cancel_ms; /* after the first output; 0: never */
    char error[512];
} got;

static void copy(struct sp_buf *b, struct sp_str s)
{
    b->len = 0;
    assert_true(sp_buf_add_str(b, s) && sp_buf_add(b, "", 1));
    b->len--;
}

static void on_done(void *user, const struct sp_run_result *r)
{
    assert_ptr_equal(user, &got);
    got.count++;
    got.r = *r;
    copy(&got.out, r->out);
    copy(&got.err, r->err);
    copy(&got.aggregated, r->aggregated);
    if (r->error != NULL)
        (void)snprintf(got.error, sizeof got.error, "%s", r->error->msg);
    run = NULL;
    sp_loop_stop(loop);
}

static void on_cancel(struct sp_timer *t)
{
    (void)t;
    if (run != NULL)
        sp_run_cancel(run);
}

/* What it says first tells that it is ready to be cancelled. */
static void on_event(void *user, const struct sp_exec_event *e)
{
    assert_ptr_equal(user, &got);
    assert_int_equal(e->type, SP_EVENT_DELTA);
    if (got.deltas++ == 0 && got.cancel_ms != 0)
        assert_true(sp_loop_timer(loop, &cancel_timer, test_now_ms() + got.cancel_ms, on_cancel));
}

static void on_guard(struct sp_timer *t)
{
    (void)t;
    sp_loop_stop(loop);
}

static int open_local(const char *program)
{
    const struct sp_local_options o = {.program = program, .cwd = "/"};

    return sp_local_new(loop, &o, &backend, NULL);
}

/* A server of our own, or the one that RUN_URL names. */
static int open_remote(const char *program)
{
    const char *const argv[] = {program, "serve", "--listen", "stdio", NULL};
    const char *url = getenv("RUN_URL");
    const struct sp_client_options o = {.url = url, .program = url == NULL ? argv : NULL};

    return sp_remote_new(loop, &o, &backend, NULL);
}

static int set_up(void **state)
{
    const char *program = getenv("SALLYPORT");

    memset(&got, 0, sizeof got);
    guard = cancel_timer = (struct sp_timer){0};
    run = NULL;
    (void)snprintf(directory, sizeof directory, "/tmp/sallyport-run-XXXXXX");
    if (program == NULL || mkdtemp(directory) == NULL || sp_loop_new(&loop, NULL) != 0)
        return -1;
    is_remote = *state != NULL;
    if ((is_remote ? open_remote(program) : open_local(program)) != 0)
        return -1;
    return sp_loop_timer(loop, &guard, test_now_ms() + DEADLINE_MS, on_guard) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    sp_run_free(run);
    sp_backend_free(backend);
    sp_loop_free(loop);
    sp_buf_done(&got.out);
    sp_buf_done(&got.err);
    sp_buf_done(&got.aggregated);
    return rmdir(directory);
}

static void start(const char *script, struct sp_run_request ask)
{
    const struct sp_env_request env = {
        .own = environ, .policy = {.inherit = SP_ENV_ALL, .ignores_default_excludes = true}};
    const struct sp_str argv[] = {SP_STR("/bin/sh"), SP_STR("-c"), sp_str_of(script)};
    struct sp_err e = {0};

    ask.launch =
        (struct sp_start){.argv = argv, .argc = 3, .cwd = sp_str_of(directory), .environ = &env};
    ask.call_id = SP_STR("call");
    if (got.cancel_ms != 0)
        ask.event = on_event;
    if (sp_run_start(backend, &ask, on_done, &got, &run, &e) != 0)
        fail_msg("%s", e.msg);
}

static void finish(void)
{
    assert_int_equal(sp_loop_run(loop, NULL), 0);
    assert_int_equal(got.count, 1);
}

static void play(const char *script, struct sp_run_request ask)
{
    start(script, ask);
    finish();
}

static void assert_end(enum sp_run_kind kind, enum sp_run_class class, int code)
{
    if (got.r.kind == SP_RUN_FAILED)
        fail_msg("%s", got.error);
    assert_int_equal(got.r.kind, kind);
    assert_int_equal(got.r.class, class);
    assert_int_equal(got.r.exit_code, code);
}

/* The pid on a line of the output is of nobody who lives. */
static void assert_dead(const char *digits)
{
    const pid_t pid = (pid_t)strtol(digits, NULL, 10);
    const uint64_t until = test_now_ms() + 2000;
    char path[64];
    char state[256] = "";

    assert_true(pid > 1);
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    for (;;) { /* the dying are no event */
        auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
        const ssize_t n = fd < 0 ? -1 : read(fd, state, sizeof state - 1);

        if (n <= 0)
            return;
        state[n] = 0;
        const char *end = strrchr(state, ')');
        if (end != NULL && (end[2] == 'Z' || end[2] == 'X'))
            return;
        if (test_now_ms() >= until)
            fail_msg("%d lives: %s", (int)pid, state);
        (void)poll(NULL, 0, 5);
    }
}

static const struct sp_run_request plain;

static void test_both_streams_and_both_together(void **state)
{
    (void)state;
    play("printf hello; printf oops >&2", plain);
    assert_end(SP_RUN_EXITED, SP_RUN_OK, 0);
    assert_string_equal(got.out.data, "hello");
    assert_string_equal(got.err.data, "oops");
    assert_string_equal(got.aggregated.data, "hellooops");
}

static void test_stdin_is_empty(void **state)
{
    (void)state;
    play("cat; echo end", plain);
    assert_string_equal(got.out.data, "end\n");
}

#define LARGE "head -c 1179648 /dev/zero | tr '\\0' a"

static void test_more_than_is_kept_does_not_hold_it_up(void **state)
{
    (void)state;
    play(LARGE, plain);
    assert_end(SP_RUN_EXITED, SP_RUN_OK, 0);
    assert_int_equal(got.out.len, SP_RUN_CAP);
    assert_int_equal(got.r.out_total, 1179648);
}

static void test_a_full_buffer_keeps_all(void **state)
{
    (void)state;
    play(LARGE, (struct sp_run_request){.capture = SP_RUN_FULL_BUFFER});
    assert_end(SP_RUN_EXITED, SP_RUN_OK, 0);
    assert_int_equal(got.out.len, 1179648);
    assert_int_equal(got.aggregated.len, 1179648);
}

static void test_a_time_out_ends_the_children_too(void **state)
{
    (void)state;
    play("sleep 60 & echo $!; sleep 60", (struct sp_run_request){.timeout_ms = 500});
    assert_end(SP_RUN_TIMED_OUT, SP_RUN_TIMEOUT, 124);
    assert_in_range(got.r.duration_ns / 1000000, 500, DEADLINE_MS);
    assert_dead(got.out.data);
}

static void test_a_cancellation_is_quick(void **state)
{
    (void)state;
    got.cancel_ms = 100;
    play("echo; exec sleep 30", (struct sp_run_request){.event = on_event});
    assert_end(SP_RUN_CANCELLED, SP_RUN_OK, 1);
    assert_in_range(got.r.duration_ns / 1000000, 100, 1900);
}

static void assert_file(const char *name, bool is_there)
{
    auto_buf struct sp_buf path = {0};
    struct stat st;

    assert_true(sp_buf_printf(&path, "%s/%s", directory, name));
    assert_int_equal(stat(path.data, &st) == 0, is_there);
    (void)unlink(path.data);
}

/* The child must ignore TERM before the shell is asked to end. */
static void test_a_cancelled_shell_tidies_up_and_leaves_no_child(void **state)
{
    (void)state;
    got.cancel_ms = 20;
    play("trap 'echo x > tidied; exit 0' TERM; "
         "(trap '' TERM; echo ready > ready; exec sleep 60) & child=$!; "
         "while ! [ -s ready ]; do :; done; rm ready; echo $child; wait; wait",
         plain);
    assert_end(SP_RUN_CANCELLED, SP_RUN_OK, 1);
    assert_file("tidied", true);
    assert_dead(got.out.data);
}

static void test_a_cancelled_shell_that_does_not_listen_is_killed(void **state)
{
    (void)state;
    got.cancel_ms = 1;
    play("trap '' TERM; sleep 60 & echo $!; wait; sleep 60", plain);
    assert_end(SP_RUN_CANCELLED, SP_RUN_OK, 1);
    assert_in_range(got.r.duration_ns / 1000000, SP_RUN_GRACE_MS, 1900);
    assert_dead(got.out.data);
}

static void test_a_full_buffer_knows_no_time_out(void **state)
{
    (void)state;
    play("sleep 0.05; printf hello",
         (struct sp_run_request){.capture = SP_RUN_FULL_BUFFER, .timeout_ms = 1});
    assert_end(SP_RUN_EXITED, SP_RUN_OK, 0);
    assert_string_equal(got.out.data, "hello");
}

static void test_a_child_in_the_background_costs_two_seconds_and_no_output(void **state)
{
    (void)state;
    play("printf hello; sleep 30 &", plain);
    assert_end(SP_RUN_EXITED, SP_RUN_OK, 0);
    assert_string_equal(got.out.data, "hello");
    assert_in_range(got.r.duration_ns / 1000000, SP_RUN_DRAIN_MS, DEADLINE_MS);
}

static void test_death_by_a_signal_keeps_the_output(void **state)
{
    (void)state;
    play("printf x; kill -SEGV $$", plain);
    assert_end(SP_RUN_SIGNALLED, SP_RUN_SIGNAL, 139); /* on a server by the reason it tells */
    assert_string_equal(got.out.data, "x");
}

static void test_a_code_is_a_code_and_never_a_signal_or_a_time_out(void **state)
{
    static const int codes[] = {1, 2, 64, 127, 128, 130, 137, 192, 255};
    char script[32];

    (void)state;
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        (void)snprintf(script, sizeof script, "exit %d", codes[i]);
        got.count = 0;
        play(script, plain);
        assert_end(SP_RUN_EXITED, SP_RUN_OK, codes[i]);
    }
}

static void test_a_missing_directory_is_a_failure(void **state)
{
    const struct sp_str argv[] = {SP_STR("/bin/true")};
    const struct sp_run_request ask = {
        .launch = {.argv = argv, .argc = 1, .cwd = SP_STR("/nonexistent/x")}};
    struct sp_err e = {0};

    (void)state;
    assert_int_equal(sp_run_start(backend, &ask, on_done, &got, &run, &e), 0);
    finish();
    assert_int_equal(got.r.kind, SP_RUN_FAILED);
    assert_int_equal(got.r.exit_code, -1);
    assert_non_null(strstr(got.error, "No such file or directory (os error 2)"));
}

static void test_a_run_that_nobody_wants_is_ended(void **state)
{
    const int before = open_fds();

    (void)state;
    start("exec sleep 60", plain);
    sp_run_free(run);
    run = NULL;
    assert_int_equal(got.count, 0);
    play("echo next", plain);
    assert_string_equal(got.out.data, "next\n");
    assert_true(open_fds() - before < 16); /* the cell's */
}

static const char remote[] = "remote";

#define LOCAL(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
#define REMOTE(f)                                                      \
    {                                                                  \
#f "(remote)", f, set_up, tear_down, (void *)(uintptr_t)remote \
    }
#define BOTH(f) LOCAL(f), REMOTE(f)

static const struct CMUnitTest tests[] = {
    BOTH(test_both_streams_and_both_together),
    BOTH(test_stdin_is_empty),
    BOTH(test_more_than_is_kept_does_not_hold_it_up),
    BOTH(test_a_full_buffer_keeps_all),
    BOTH(test_a_time_out_ends_the_children_too),
    BOTH(test_a_cancellation_is_quick),
    LOCAL(test_a_cancelled_shell_tidies_up_and_leaves_no_child), /* a server has no word for it */
    BOTH(test_a_cancelled_shell_that_does_not_listen_is_killed),
    BOTH(test_a_full_buffer_knows_no_time_out),
    BOTH(test_a_child_in_the_background_costs_two_seconds_and_no_output),
    BOTH(test_death_by_a_signal_keeps_the_output),
    BOTH(test_a_code_is_a_code_and_never_a_signal_or_a_time_out),
    BOTH(test_a_missing_directory_is_a_failure),
    BOTH(test_a_run_that_nobody_wants_is_ended),
};

TEST_MAIN(tests)

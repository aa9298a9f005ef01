/* SPDX-License-Identifier: Apache-2.0 */
/* libsallyport with its commands on a server: the same calls, the same answers. */
#include <spawn.h>

#include "lib_fixture.h"

static char directory[64], socket_path[80], url[96];
static pid_t server;
static int ended_events;

static void start_server(void)
{
    char *program = getenv("SALLYPORT");
    char *const argv[] = {program, (char *)(uintptr_t) "serve", (char *)(uintptr_t) "--listen", url,
                          NULL};
    posix_spawn_file_actions_t files;
    int ends[2];
    char line[128];

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(posix_spawn_file_actions_init(&files), 0);
    assert_int_equal(posix_spawn_file_actions_adddup2(&files, ends[1], 1), 0);
    assert_int_equal(posix_spawn(&server, program, &files, NULL, argv, environ), 0);
    (void)posix_spawn_file_actions_destroy(&files);
    (void)close(ends[1]);
    assert_true(read(ends[0], line, sizeof line) > 0); /* its URL: it listens */
    (void)close(ends[0]);
}

static void end_server(int signal)
{
    assert_int_equal(kill(server, signal), 0);
    assert_int_equal(waitpid(server, NULL, 0), server);
}

static void on_event(void *user, const struct sp_event *ev)
{
    (void)user;
    ended_events += ev->kind == SP_EVENT_ENDED;
}

static int set_up(void **state)
{
    struct sp_engine_options o = default_options();

    (void)state;
    (void)snprintf(directory, sizeof directory, "/tmp/sallyport-test-XXXXXX");
    assert_non_null(mkdtemp(directory));
    (void)snprintf(socket_path, sizeof socket_path, "%s/socket", directory);
    (void)snprintf(url, sizeof url, "unix://%s", socket_path);
    start_server();
    ended_events = 0;
    o.program = "/nonexistent"; /* is not needed here */
    o.on = url;
    o.event = on_event;
    engine = make_engine(&o);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    sp_engine_free(engine);
    engine = NULL;
    end_server(SIGTERM);
    (void)unlink(socket_path);
    return rmdir(directory);
}

/* ---- the calls ---- */

static void test_a_command_runs_there(void **state)
{
    struct heard h;

    (void)state;
    do_exec(&h, "echo hello; exit 3", false, 10000);
    assert_int_equal(h.outcome, SP_OUTCOME_EXITED);
    assert_int_equal(h.exit_code, 3);
    assert_string_equal(h.output, "hello\n");
    until(&ended_events, 1);
}

static void test_a_patch_is_applied_there(void **state)
{
    static const char *const argv[] = {
        "apply_patch", "*** Begin Patch\n*** Add File: a.txt\n+hello\n*** End Patch\n", NULL};
    static const char *const again[] = {
        "apply_patch", "*** Begin Patch\n*** Update File: a.txt\n@@\n-other\n+x\n*** End Patch\n",
        NULL};
    const struct sp_exec_options o = {.size = sizeof o, .argv = argv, .cwd = directory};
    const struct sp_exec_options bad = {.size = sizeof o, .argv = again, .cwd = directory};
    char path[sizeof directory + 8];
    struct heard h = {0};

    (void)state;
    (void)snprintf(path, sizeof path, "%s/a.txt", directory);
    assert_ok(sp_engine_exec(engine, &o, on_heard, &h, NULL, e));
    until_heard(&h);
    assert_int_equal(h.outcome, SP_OUTCOME_EXITED);
    assert_int_equal(h.exit_code, 0);
    memset(&h, 0, sizeof h);
    assert_ok(sp_engine_exec(engine, &bad, on_heard, &h, NULL, e));
    until_heard(&h);
    assert_int_equal(h.outcome, SP_OUTCOME_FAILED);
    assert_non_null(strstr(h.error, "Failed to find expected lines"));
    assert_int_equal(unlink(path), 0);
}

static void test_a_run_has_its_directory_from_the_server(void **state)
{
    char here[4096];
    struct heard h;

    (void)state;
    assert_non_null(getcwd(here, sizeof here - 1));
    (void)strcat(here, "\n");
    do_run(&h, "pwd; echo trouble >&2; exit 4", 0); /* it was started where we are */
    assert_int_equal(h.outcome, SP_OUTCOME_EXITED);
    assert_int_equal(h.exit_code, 4);
    assert_string_equal(h.out, here);
    assert_string_equal(h.err, "trouble\n");
}

static void test_a_signal_is_told_from_an_exit_status(void **state)
{
    struct heard h;

    (void)state;
    do_run(&h, "kill -TERM $$", 0);
    assert_int_equal(h.outcome, SP_OUTCOME_SIGNALLED);
    assert_int_equal(h.exit_code, 143);
    do_run(&h, "exit 143", 0);
    assert_int_equal(h.outcome, SP_OUTCOME_EXITED);
    assert_int_equal(h.exit_code, 143);
}

static void test_a_run_can_be_cancelled_before_the_connection_is_there(void **state)
{
    static const char *const argv[] = {"sleep", "30", NULL};
    const struct sp_run_options o = {.size = sizeof o, .argv = argv};
    struct heard h = {0};
    uint64_t call;

    (void)state;
    assert_ok(sp_engine_run(engine, &o, on_heard, &h, &call, e));
    assert_ok(sp_engine_cancel(engine, call, e));
    until_heard(&h);
    assert_int_equal(h.outcome, SP_OUTCOME_CANCELLED);
    do_run(&h, "exit 6", 0); /* the engine is as before */
    assert_int_equal(h.exit_code, 6);
}

static void test_a_session_is_typed_into_and_terminated(void **state)
{
    const int session = start_session("read x; echo got $x; sleep 30", true);
    const uint64_t end = now_ms() + DEADLINE_MS;
    struct heard waiting = {0};
    struct heard h;

    (void)state;
    do_write(&h, session, "word\n", 1000);
    while (strstr(h.output, "got word") == NULL && now_ms() < end)
        do_write(&h, session, "\n", 250);
    assert_non_null(strstr(h.output, "got word"));
    assert_ok(sp_engine_wait(engine, session, on_heard, &waiting, NULL, e));
    memset(&h, 0, sizeof h);
    assert_ok(sp_engine_terminate(engine, session, on_heard, &h, NULL, e));
    until_heard(&h);
    assert_int_equal(h.outcome, SP_OUTCOME_DONE);
    until_heard(&waiting);
    assert_int_not_equal(waiting.outcome, SP_OUTCOME_RUNNING);
    until(&ended_events, 1);
}

static void test_the_descriptor_carries_many(void **state)
{
    static struct heard h[60];
    const uint64_t end = now_ms() + DEADLINE_MS;
    int done = 0;

    (void)state;
    memset(h, 0, sizeof h);
    for (int i = 0; i < 60; i++) {
        char script[64];
        const char *const argv[] = {"sh", "-c", script, NULL};
        const struct sp_run_options o = {.size = sizeof o, .argv = argv};

        (void)snprintf(script, sizeof script, "echo %d; exit %d", i, i);
        assert_ok(sp_engine_run(engine, &o, on_heard, &h[i], NULL, e));
    }
    while (done < 60) {
        struct pollfd p = {.fd = sp_engine_fd(engine), .events = POLLIN};

        if (poll(&p, 1, DEADLINE_MS) != 1 || now_ms() > end)
            fail_msg("a wake-up was lost: %d", done);
        dispatch_once(engine, 0);
        done = 0;
        for (int i = 0; i < 60; i++)
            done += h[i].count;
    }
    for (int i = 0; i < 60; i++) {
        assert_int_equal(h[i].count, 1);
        assert_int_equal(h[i].exit_code, i);
        assert_int_equal(atoi(h[i].out), i);
    }
}

static void test_a_server_that_has_forgotten_everything_is_told_of(void **state)
{
    const int session = start_session("sleep 30", false);
    struct heard h = {0};

    (void)state;
    assert_ok(sp_engine_wait(engine, session, on_heard, &h, NULL, e));
    dispatch_once(engine, 0);
    end_server(SIGKILL);
    (void)unlink(socket_path);
    start_server();
    until_heard(&h);
    assert_int_equal(h.outcome, SP_OUTCOME_FAILED);
    assert_string_not_equal(h.error, "");
    until(&ended_events, 1);
}

#define lib_test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

static const struct CMUnitTest tests[] = {
    lib_test(test_a_command_runs_there),
    lib_test(test_a_patch_is_applied_there),
    lib_test(test_a_run_has_its_directory_from_the_server),
    lib_test(test_a_signal_is_told_from_an_exit_status),
    lib_test(test_a_run_can_be_cancelled_before_the_connection_is_there),
    lib_test(test_a_session_is_typed_into_and_terminated),
    lib_test(test_the_descriptor_carries_many),
    lib_test(test_a_server_that_has_forgotten_everything_is_told_of),
};

TEST_MAIN(tests)

/* SPDX-License-Identifier: Apache-2.0 */
/* Several environments of one engine. */
#include "lib_fixture.h"

static char base[] = "/var/tmp/sallyport-lib-XXXXXX"; /* not in /tmp, which may be written anyway */
static char work[sizeof base + 8], other[sizeof base + 8];
static int questions;

static void on_question(void *user, const struct sp_question *q)
{
    (void)user;
    questions++;
    assert_int_equal(sp_engine_reply(engine, q->id, SP_CONSENT_FOR_SESSION, NULL), 0);
}

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(base, sizeof base, "/var/tmp/sallyport-lib-XXXXXX");
    assert_non_null(mkdtemp(base));
    (void)snprintf(work, sizeof work, "%s/work", base);
    (void)snprintf(other, sizeof other, "%s/other", base);
    questions = 0;
    return mkdir(work, 0755) < 0 || mkdir(other, 0755) < 0 ? -1 : 0;
}

static int tear_down(void **state)
{
    (void)state;
    sp_engine_free(engine);
    engine = NULL;
    return rmdir(work) < 0 || rmdir(other) < 0 || rmdir(base) < 0 ? -1 : 0;
}

static void begin(const char *sandbox, const char *approve)
{
    struct sp_engine_options o = default_options();

    o.cwd = work;
    o.sandbox = sandbox;
    o.approve = approve;
    o.ask = on_question;
    engine = make_engine(&o);
}

static void update(const char *name, const char *on, const char *sandbox, const char *cwd)
{
    const struct sp_environment_options o = {
        .size = sizeof o, .name = name, .on = on, .sandbox = sandbox, .cwd = cwd};

    assert_ok(sp_engine_update_environment(engine, &o, e));
}

static int code_of(const struct sp_environment_options *o)
{
    struct sp_error e = {0};

    assert_true(sp_engine_update_environment(engine, o, &e) < 0);
    return e.code;
}

static void exec_in(struct heard *h, const char *environment, const char *script, uint64_t yield_ms)
{
    const char *const argv[] = {"sh", "-c", script, NULL};
    const struct sp_exec_options o = {
        .size = sizeof o, .argv = argv, .yield_ms = yield_ms, .environment = environment};

    memset(h, 0, sizeof *h);
    assert_ok(sp_engine_exec(engine, &o, on_heard, h, NULL, e));
    until_heard(h);
}

static void run_in(struct heard *h, const char *environment, const char *script)
{
    const char *const argv[] = {"sh", "-c", script, NULL};
    const struct sp_run_options o = {.size = sizeof o, .argv = argv, .environment = environment};

    memset(h, 0, sizeof *h);
    assert_ok(sp_engine_run(engine, &o, on_heard, h, NULL, e));
    until_heard(h);
}

static bool can_write(const char *environment)
{
    static struct heard h;

    exec_in(&h, environment, "echo x > made && rm made", 10000);
    return h.outcome == SP_OUTCOME_EXITED && h.exit_code == 0;
}

static void test_directory_and_sandbox_of_each(void **state)
{
    static struct heard h;
    char expected[sizeof other + 2];

    (void)state;
    begin(":workspace", "never");
    update("second", NULL, ":read-only", other);
    (void)snprintf(expected, sizeof expected, "%s\n", other);
    exec_in(&h, "second", "pwd", 10000);
    assert_string_equal(h.output, expected);
    run_in(&h, "second", "pwd");
    assert_string_equal(h.out, expected);
    (void)snprintf(expected, sizeof expected, "%s\n", work);
    exec_in(&h, NULL, "pwd", 10000);
    assert_string_equal(h.output, expected);
    exec_in(&h, "primary", "pwd", 10000);
    assert_string_equal(h.output, expected);
    assert_true(can_write(NULL));
    assert_false(can_write("second"));
    run_in(&h, "second", "echo x > made");
    assert_int_not_equal(h.exit_code, 0);
    exec_in(&h, "third", "pwd", 10000);
    assert_int_equal(h.outcome, SP_OUTCOME_FAILED);
    assert_non_null(strstr(h.error, "unknown turn environment id `third`"));
}

static void test_an_update_is_for_what_begins_then(void **state)
{
    static struct heard h;
    char typed[64];

    (void)state;
    begin(":workspace", "never");
    update("second", NULL, NULL,
           other); /* the sandbox of the primary one, with its own workspace */
    assert_true(can_write("second"));
    exec_in(&h, "second", "read x; echo $x > made && cat made && rm made && pwd", 10000);
    assert_int_equal(h.outcome,
                     SP_OUTCOME_EXITED); /* without a stdin there is nothing to wait for */
    const char *const argv[] = {"sh", "-c", "read x; echo $x > made && cat made && rm made", NULL};
    const struct sp_exec_options o = {
        .size = sizeof o, .argv = argv, .is_tty = true, .yield_ms = 250, .environment = "second"};
    memset(&h, 0, sizeof h);
    assert_ok(sp_engine_exec(engine, &o, on_heard, &h, NULL, e));
    until_heard(&h);
    assert_int_equal(h.outcome, SP_OUTCOME_RUNNING);
    const int session = h.session;
    update("second", NULL, ":read-only", NULL);
    assert_false(can_write("second"));
    (void)snprintf(typed, sizeof typed, "it\n");
    do_write(&h, session, typed, 9000);
    assert_int_equal(h.exit_code, 0); /* the one that ran has what it began with */
    update(NULL, NULL, ":read-only", other);
    assert_false(can_write(NULL));
    exec_in(&h, NULL, "pwd", 10000);
    assert_memory_equal(h.output, other, strlen(other));
    update("primary", "local", ":workspace", work);
    assert_true(can_write(NULL));
}

static char listed[256];

static void on_listed(void *user, const struct sp_session_info *info)
{
    (void)user;
    (void)snprintf(listed + strlen(listed), sizeof listed - strlen(listed), "%s ",
                   info->environment);
}

static void test_a_removed_one_ends_its_sessions(void **state)
{
    static struct heard h;
    struct sp_error why = {0};

    (void)state;
    begin(NULL, NULL);
    update("second", NULL, NULL, other);
    exec_in(&h, "second", "sleep 60", 250);
    const int session = h.session;
    exec_in(&h, NULL, "sleep 60", 250);
    listed[0] = 0;
    assert_ok(sp_engine_list(engine, on_listed, NULL, e));
    assert_true(strcmp(listed, "second primary ") == 0 || strcmp(listed, "primary second ") == 0);
    assert_true(sp_engine_remove_environment(engine, "primary", &why) < 0);
    assert_int_equal(why.code, SP_ERROR_NOT_FOUND);
    assert_true(sp_engine_remove_environment(engine, "nowhere", NULL) < 0);
    assert_ok(sp_engine_remove_environment(engine, "second", e));
    const uint64_t end = now_ms() + DEADLINE_MS;
    do {
        assert_true(now_ms() < end);
        dispatch_once(engine, 50);
        listed[0] = 0;
        assert_ok(sp_engine_list(engine, on_listed, NULL, e));
    } while (strcmp(listed, "primary ") != 0);
    exec_in(&h, "second", "true", 10000);
    assert_int_equal(h.outcome, SP_OUTCOME_FAILED);
    assert_true(session != 0);
}

static void test_what_was_approved_counts_for_one(void **state)
{
    static struct heard h;

    (void)state;
    begin(":workspace", "untrusted");
    update("second", NULL, NULL, work); /* the same directory, so that only the name differs */
    exec_in(&h, NULL, "echo x > made; rm made", 10000);
    assert_int_equal(h.exit_code, 0);
    assert_int_equal(questions, 1);
    exec_in(&h, NULL, "echo x > made; rm made", 10000);
    assert_int_equal(questions, 1);
    exec_in(&h, "second", "echo x > made; rm made", 10000);
    assert_int_equal(questions, 2);
    exec_in(&h, "second", "echo x > made; rm made", 10000);
    assert_int_equal(questions, 2);
}

static void on_schemas(void *user, const char *json, size_t n)
{
    *(bool *)user = memmem(json, n, "environment_id", strlen("environment_id")) != NULL;
}

static void test_tools_name_it(void **state)
{
    const struct sp_tool_options o = {
        .size = sizeof o,
        .tool = "exec_command",
        .arguments = "{\"cmd\":\"pwd\",\"login\":false,\"environment_id\":\"second\"}"};
    struct heard h = {0};
    bool has = true;

    (void)state;
    begin(NULL, NULL);
    assert_ok(sp_engine_tools(engine, on_schemas, &has, e));
    assert_false(has);
    update("second", NULL, NULL, other);
    assert_ok(sp_engine_tools(engine, on_schemas, &has, e));
    assert_true(has);
    assert_ok(sp_engine_call_tool(engine, &o, on_heard, &h, NULL, e));
    until_heard(&h);
    assert_memory_equal(h.output, other, strlen(other));
}

static void test_a_server_comes_and_goes(void **state)
{
    static struct heard h;
    char url[sizeof base + 32];
    char path[sizeof base + 16];
    const int fds = open_fds();

    (void)state;
    begin(NULL, NULL);
    exec_in(&h, NULL, "true", 10000);
    const int before = open_fds();
    (void)snprintf(path, sizeof path, "%s/socket", base);
    (void)snprintf(url, sizeof url, "unix://%s", path);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)freopen("/dev/null", "w", stdout);
        (void)execl(getenv("SALLYPORT"), "sallyport", "serve", "--listen", url, NULL);
        _exit(127);
    }
    const uint64_t end = now_ms() + DEADLINE_MS;
    while (access(path, F_OK) < 0) {
        assert_true(now_ms() < end);
        (void)usleep(5000);
    }
    update("there", url, NULL, other);
    exec_in(&h, "there", "pwd; echo $PPID", 10000);
    assert_int_equal(h.exit_code, 0);
    assert_memory_equal(h.output, other, strlen(other));
    assert_ok(sp_engine_remove_environment(engine, "there", e));
    while (open_fds() > before) { /* the connection is closed */
        assert_true(now_ms() < end);
        dispatch_once(engine, 20);
    }
    exec_in(&h, NULL, "true", 10000);
    assert_int_equal(h.exit_code, 0);
    assert_int_equal(kill(pid, SIGTERM), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(fds <= before);
}

static void test_bad_ones(void **state)
{
    const struct sp_environment_options small = {.size = 8};
    const struct sp_environment_options name = {.size = sizeof name, .name = "a b"};
    const struct sp_environment_options where = {
        .size = sizeof where, .name = "x", .on = "nowhere"};
    const struct sp_environment_options box = {
        .size = sizeof box, .name = "x", .sandbox = "nonsense"};
    const struct sp_environment_options cwd = {
        .size = sizeof cwd, .name = "x", .cwd = "/nonexistent"};
    char text[16];

    (void)state;
    begin(NULL, NULL);
    assert_int_equal(code_of(&small), SP_ERROR_INVALID);
    assert_int_equal(code_of(&name), SP_ERROR_INVALID);
    assert_int_equal(code_of(&where), SP_ERROR_NOT_FOUND);
    assert_true(code_of(&box) != 0);
    assert_int_equal(code_of(&cwd), SP_ERROR_NOT_FOUND);
    for (int i = 0; i < 63; i++) {
        (void)snprintf(text, sizeof text, "e%d", i);
        update(text, NULL, NULL, other);
    }
    const struct sp_environment_options more = {.size = sizeof more, .name = "more"};
    assert_int_equal(code_of(&more), SP_ERROR_LIMIT);
    for (int i = 0; i < 1000; i++)
        update("e5", NULL, i % 2 ? ":read-only" : ":workspace", NULL);
    assert_false(can_write("e5"));
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

static const struct CMUnitTest tests[] = {
    TEST(test_directory_and_sandbox_of_each),
    TEST(test_an_update_is_for_what_begins_then),
    TEST(test_a_removed_one_ends_its_sessions),
    TEST(test_what_was_approved_counts_for_one),
    TEST(test_tools_name_it),
    TEST(test_a_server_comes_and_goes),
    TEST(test_bad_ones),
};

TEST_MAIN(tests)

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The local socket of an engine: what `sallyport ps`, `logs`, `kill` and `approvals`, run from
 * another process, see and do.
 */
#include "lib_fixture.h"

static char runtime[] = "/tmp/sallyport-run-XXXXXX";
static int fds_before;

static uint64_t asked;
static int asked_count;

static void on_question(void *user, const struct sp_question *q)
{
    (void)user;
    asked = q->id;
    asked_count++;
}

static struct sp_engine_options visible_options(void)
{
    struct sp_engine_options o = default_options();

    o.has_local_socket = true;
    o.sandbox = ":read-only";
    o.approve = "on-request";
    o.ask = on_question;
    return o;
}

static int set_up(void **state)
{
    const struct sp_engine_options o = visible_options();

    (void)state;
    fds_before = open_fds();
    asked = 0;
    asked_count = 0;
    engine = make_engine(&o);
    return 0;
}

static int count_sockets(void)
{
    char path[sizeof runtime + 16];
    int n = 0;

    (void)snprintf(path, sizeof path, "%s/sallyport", runtime);
    DIR *d = opendir(path);
    if (d == NULL)
        return 0;
    for (const struct dirent *entry; (entry = readdir(d)) != NULL;)
        n += strstr(entry->d_name, ".sock") != NULL;
    (void)closedir(d);
    return n;
}

static int tear_down(void **state)
{
    (void)state;
    sp_engine_free(engine);
    engine = NULL;
    if (open_fds() == fds_before && count_sockets() == 0)
        return 0;
    (void)fprintf(stderr, "# left behind: %d descriptors, %d sockets\n", open_fds() - fds_before,
                  count_sockets());
    return -1;
}

/* Runs the command while the engine works; its stdout, and its exit status. */
static int sallyport(char *out, size_t size, const char *const *words)
{
    const uint64_t end = now_ms() + DEADLINE_MS;
    size_t n = 0;
    int status;
    int ends[2];

    assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)dup2(ends[1], STDOUT_FILENO);
        (void)dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
        (void)execv(getenv("SALLYPORT"), (char *const *)(uintptr_t)words);
        _exit(99);
    }
    (void)close(ends[1]);
    for (;;) {
        dispatch_once(engine, 20);
        const ssize_t got = read(ends[0], out + n, size - 1 - n);
        if (got == 0)
            break;
        if (got > 0)
            n += (size_t)got;
        if (now_ms() > end)
            fail_msg("`sallyport %s` does not end", words[1]);
    }
    out[n] = 0;
    (void)close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WEXITSTATUS(status);
}

#define SALLYPORT(out, ...) \
    sallyport(out, sizeof out, (const char *const[]){"sallyport", __VA_ARGS__, NULL})

/* ---- commands ---- */

static void test_commands_are_listed_read_and_ended(void **state)
{
    const char *const argv[] = {"sh", "-c", "echo up; exec sleep 600", NULL};
    const struct sp_run_options run = {.size = sizeof run, .argv = argv, .timeout_ms = SP_FOREVER};
    struct heard h = {0};
    char out[8192];
    char id[64];
    char server[32];

    (void)state;
    assert_ok(sp_engine_run(engine, &run, on_heard, &h, NULL, e));
    const uint64_t end = now_ms() + DEADLINE_MS;
    do
        assert_int_equal(SALLYPORT(out, "ps", "-q"), 0);
    while (out[0] == 0 && now_ms() < end);
    assert_true(strlen(out) < sizeof id);
    copy_text(id, sizeof id, out, strcspn(out, "\n"));
    assert_int_equal(SALLYPORT(out, "ps"), 0);
    (void)snprintf(server, sizeof server, "library/%d", (int)getpid());
    assert_non_null(strstr(out, server));
    do
        assert_int_equal(SALLYPORT(out, "logs", id), 0);
    while (out[0] == 0 && now_ms() < end);
    assert_string_equal(out, "up\n");
    assert_int_equal(h.count, 0);
    assert_int_equal(SALLYPORT(out, "kill", id), 0);
    until_heard(&h);
    assert_int_equal(h.outcome, SP_OUTCOME_SIGNALLED);
    assert_int_equal(h.exit_code, 137);
    /* Of what has ended, too, there is the output. */
    assert_int_equal(SALLYPORT(out, "logs", id), 0);
    assert_string_equal(out, "up\n");
    assert_int_equal(SALLYPORT(out, "wait", id), 137);
}

static void test_nothing_is_started_there(void **state)
{
    char pid[16];
    char out[256];

    (void)state;
    (void)snprintf(pid, sizeof pid, "%d", (int)getpid());
    assert_int_equal(SALLYPORT(out, "exec", "--on", pid, "--", "true"), 125);
}

static void test_there_is_no_socket_unasked(void **state)
{
    const struct sp_engine_options plain = default_options();
    const struct sp_engine_options visible = visible_options();
    struct sp_engine *other = NULL;
    struct sp_error e = {0};

    (void)state;
    assert_int_equal(count_sockets(), 1);
    assert_true(sp_engine_new(&visible, &other, &e) < 0);
    assert_non_null(strstr(e.msg, "has_local_socket"));
    sp_engine_free(engine);
    assert_int_equal(count_sockets(), 0);
    engine = make_engine(&plain);
    assert_int_equal(count_sockets(), 0);
    other = make_engine(&visible);
    assert_int_equal(count_sockets(), 1);
    sp_engine_free(other);
}

/* ---- questions ---- */

static void ask_one(struct heard *h)
{
    const struct sp_exec_options o = {.size = sizeof o,
                                      .script = "echo free",
                                      .shell = "/bin/sh",
                                      .is_no_login = true,
                                      .is_unconfined = true,
                                      .reason = "may I?"};
    const int before = asked_count;

    memset(h, 0, sizeof *h);
    assert_ok(sp_engine_exec(engine, &o, on_heard, h, NULL, e));
    until(&asked_count, before + 1);
}

static void test_a_console_answers_what_the_host_is_asked(void **state)
{
    struct heard h;
    char out[16384];
    char name[64];

    (void)state;
    ask_one(&h);
    assert_int_equal(SALLYPORT(out, "approvals", "--json"), 0);
    const char *number = strstr(out, "\"number\":");
    const char *digest = strstr(out, "\"digest\":\"");
    assert_true(number != NULL && digest != NULL);
    (void)snprintf(name, sizeof name, "%.*s-%.8s", (int)strspn(number + 9, "0123456789"),
                   number + 9, digest + 10);
    assert_int_equal(SALLYPORT(out, "approvals", "allow", name), 0);
    until_heard(&h);
    assert_int_equal(h.outcome, SP_OUTCOME_EXITED);
    assert_string_equal(h.output, "free\n");
    assert_ok(sp_engine_reply(engine, asked, SP_CONSENT_NO, e)); /* too late: nothing */
}

static void test_the_host_may_be_first(void **state)
{
    struct heard h;
    char out[16384];

    (void)state;
    ask_one(&h);
    assert_int_equal(SALLYPORT(out, "approvals", "--json"), 0);
    assert_non_null(strstr(out, "\"number\":"));
    assert_ok(sp_engine_reply(engine, asked, SP_CONSENT_NO, e));
    until_heard(&h);
    assert_int_equal(h.outcome, SP_OUTCOME_REFUSED);
    assert_int_equal(SALLYPORT(out, "approvals", "--json"), 0);
    assert_null(strstr(out, "\"number\":"));
    /* One that nobody answers ends with the engine. */
    ask_one(&h);
}

static void test_without_a_function_of_the_host_the_console_must_be_named(void **state)
{
    struct sp_engine_options o = visible_options();
    struct heard h;
    char config[sizeof test_dir + 16];
    char out[16384];

    (void)state;
    sp_engine_free(engine);
    (void)snprintf(config, sizeof config, "%s/conf", test_dir);
    FILE *f = fopen(config, "we");
    assert_non_null(f);
    assert_true(fputs("approver = \"console\"\n", f) >= 0);
    assert_int_equal(fclose(f), 0);
    o.config = config;
    o.ask = NULL;
    engine = make_engine(&o);
    const struct sp_exec_options x = {.size = sizeof x,
                                      .script = "echo free",
                                      .shell = "/bin/sh",
                                      .is_no_login = true,
                                      .is_unconfined = true};
    memset(&h, 0, sizeof h);
    assert_ok(sp_engine_exec(engine, &x, on_heard, &h, NULL, e));
    const uint64_t end = now_ms() + DEADLINE_MS;
    do
        assert_int_equal(SALLYPORT(out, "approvals", "--json"), 0);
    while (strstr(out, "\"number\":") == NULL && now_ms() < end);
    assert_int_equal(h.count, 0);
    (void)snprintf(out, sizeof out, "%.*s", 12, strstr(out, "\"number\":") + 9);
    out[strspn(out, "0123456789")] = 0;
    char number[16];
    copy_text(number, sizeof number, out, strlen(out));
    assert_int_equal(SALLYPORT(out, "approvals", "deny", number), 0);
    until_heard(&h);
    assert_int_equal(h.outcome, SP_OUTCOME_REFUSED);
    (void)unlink(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_commands_are_listed_read_and_ended, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_nothing_is_started_there, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_there_is_no_socket_unasked, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_console_answers_what_the_host_is_asked, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_the_host_may_be_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_without_a_function_of_the_host_the_console_must_be_named, set_up, tear_down),
    };
    char path[sizeof runtime + 16];

    /* Other servers of this user are not seen. */
    if (mkdtemp(runtime) == NULL || setenv("XDG_RUNTIME_DIR", runtime, 1) < 0 ||
        setenv("SALLYPORT_CONFIG", "/dev/null", 1) < 0)
        abort();
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)snprintf(path, sizeof path, "%s/sallyport", runtime);
    (void)rmdir(path);
    (void)rmdir(runtime);
    return failed;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program tells libsallyport beforehand: sandboxes, consent and configuration; and what the
 * library says to those who use it wrongly.
 */
#include <sys/stat.h>

#include "lib_plain.h"

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

/* ---- sandboxes ---- */

static void test_a_sandbox_holds_runs_and_sessions_alike(void **state)
{
    static const char script[] = "echo \"[$CODEX_SANDBOX_NETWORK_DISABLED$SALLYPORT_SANDBOX]\"; "
                                 "echo x > /tmp/sallyport-lib-test-must-not-be";
    struct sp_engine_options o = default_options();
    struct heard h;

    (void)state;
    sp_engine_free(engine);
    o.sandbox = ":read-only";
    engine = make_engine(&o);
    do_run(&h, script, 0);
    if (h.outcome == SP_OUTCOME_FAILED && strstr(h.error, "sandbox") != NULL)
        skip(); /* this host has none to offer */
    assert_int_equal(h.outcome, SP_OUTCOME_EXITED);
    assert_int_not_equal(h.exit_code, 0);
    assert_true(h.was_denied);
    assert_string_equal(h.out, "[1linux]\n");
    do_exec(&h, script, false, 10000);
    assert_int_equal(h.outcome, SP_OUTCOME_EXITED);
    assert_true(h.was_denied);
    assert_memory_equal(h.output, "[1linux]\n", 9);
    assert_int_equal(access("/tmp/sallyport-lib-test-must-not-be", F_OK), -1);
}

/* ---- the configuration ---- */

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "we");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fchmod(fileno(f), 0600), 0);
    assert_int_equal(fclose(f), 0);
}

static void test_the_configuration_counts(void **state)
{
    char home[] = "/tmp/sallyport-test-XXXXXX";
    char config[64];
    char snapshots[64];
    char audit[64];
    struct sp_engine_options o = default_options();
    const struct sp_exec_options script = {.size = sizeof script,
                                           .script = "echo $COLOUR of $SHAPE",
                                           .shell = access("/bin/bash", X_OK) == 0 ? "/bin/bash"
                                                                                   : "/bin/sh"};
    struct heard h = {0};

    (void)state;
    assert_non_null(mkdtemp(home));
    (void)snprintf(config, sizeof config, "%s/sallyport.conf", home);
    (void)snprintf(snapshots, sizeof snapshots, "%s/snapshots", home);
    (void)snprintf(audit, sizeof audit, "%s/audit.jsonl", home);
    write_file(config,
               "[shell_environment_policy]\nset = { COLOUR = \"green\", SHAPE = \"circles\" }\n"
               "[features]\nshell_snapshot = true\n");
    assert_int_equal(unsetenv("SALLYPORT_CONFIG"), 0);
    assert_int_equal(setenv("SALLYPORT_HOME", home, 1), 0);
    sp_engine_free(engine);
    o.config = NULL; /* the one in SALLYPORT_HOME */
    engine = make_engine(&o);
    for (int i = 0; i < 2; i++) { /* the second from the snapshot, if there is one */
        memset(&h, 0, sizeof h);
        assert_ok(sp_engine_exec(engine, &script, on_heard, &h, NULL, e));
        until_heard(&h);
        assert_int_equal(h.outcome, SP_OUTCOME_EXITED);
        assert_non_null(strstr(h.output, "green of circles\n"));
    }
    assert_int_equal(access(snapshots, F_OK), 0);
    sp_engine_free(engine);
    engine = NULL;
    assert_int_equal(setenv("SALLYPORT_HOME", test_home, 1), 0);
    assert_int_equal(unlink(config), 0);
    assert_int_equal(unlink(audit), 0);    /* what was decided */
    assert_int_equal(rmdir(snapshots), 0); /* it left no file there */
    assert_int_equal(rmdir(home), 0);
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
    lib_test(test_a_person_is_asked_and_answers_now_or_later),
    lib_test(test_a_sandbox_holds_runs_and_sessions_alike),
    lib_test(test_the_configuration_counts),
    lib_test(test_options_that_cannot_be_are_refused_in_words),
    lib_test(test_calls_that_cannot_be_are_refused_in_words),
};

TEST_MAIN(tests)

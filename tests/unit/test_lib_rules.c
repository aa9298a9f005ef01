/* SPDX-License-Identifier: Apache-2.0 */
/* Rules and approvers of the configuration in a program that uses libsallyport, and what it is told
 * about them. */
#include <sys/stat.h>

#include "lib_fixture.h"

static char warnings[4096];
static char notes[1024];
static enum sp_consent consent;
static int question_count;
static int warning_count;
static bool is_inside; /* of dispatch: nobody is called elsewhere */

static void on_event(void *user, const struct sp_event *ev)
{
    (void)user;
    assert_true(is_inside);
    if (ev->kind == SP_EVENT_NOTED)
        (void)snprintf(notes + strlen(notes), sizeof notes - strlen(notes), "%.*s\n",
                       (int)ev->byte_count, ev->bytes);
    if (ev->kind != SP_EVENT_WARNED)
        return;
    assert_int_equal(ev->session, 0);
    warning_count++;
    (void)snprintf(warnings + strlen(warnings), sizeof warnings - strlen(warnings), "%.*s\n",
                   (int)ev->byte_count, ev->bytes);
}

static void on_question(void *user, const struct sp_question *q)
{
    (void)user, (void)q;
    fail();
}

static const char *at(const char *name)
{
    static char path[128];

    (void)snprintf(path, sizeof path, "%s/%s", test_home, name);
    return path;
}

static void write_file(const char *name, const char *text)
{
    FILE *f = fopen(at(name), "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static int set_up(void **state)
{
    (void)state;
    warnings[0] = 0;
    warning_count = 0;
    is_inside = true;
    return mkdir(at("rules"), 0755);
}

static int tear_down(void **state)
{
    (void)state;
    sp_engine_free(engine);
    engine = NULL;
    (void)unlink(at("rules/a.rules"));
    (void)unlink(at("conf"));
    return rmdir(at("rules"));
}

static void begin(const char *config, const char *approve, bool can_ask)
{
    struct sp_engine_options o = default_options();
    char path[128];

    if (config != NULL) {
        write_file("conf", config);
        assert_int_equal(chmod(at("conf"), 0600), 0);
        (void)snprintf(path, sizeof path, "%s", at("conf"));
        o.config = path;
    }
    o.approve = approve;
    o.event = on_event;
    o.ask = can_ask ? on_question : NULL;
    is_inside = false;
    engine = make_engine(&o);
    is_inside = true;
}

static enum sp_outcome run(const char *script)
{
    static struct heard h;

    do_run(&h, script, 0);
    return h.outcome;
}

static void becomes(const char *script, enum sp_outcome outcome)
{
    const uint64_t end = now_ms() + DEADLINE_MS;

    while (run(script) != outcome) {
        if (now_ms() > end)
            fail_msg("`%s` does not become %d", script, (int)outcome);
        dispatch_once(engine, 50);
    }
}

#define FORBID_ECHO "prefix_rule(pattern=[\"echo\"], decision=\"forbidden\")\n"

static void test_rules_are_read_again(void **state)
{
    (void)state;
    begin(NULL, "on-request", false);
    assert_int_equal(run("echo x"), SP_OUTCOME_EXITED);
    write_file("rules/a.rules", FORBID_ECHO);
    becomes("echo x", SP_OUTCOME_REFUSED);
    assert_int_equal(warning_count, 0);
    write_file("rules/a.rules", FORBID_ECHO "\nnonsense\n");
    const uint64_t end = now_ms() + DEADLINE_MS;
    while (warning_count == 0) {
        assert_true(now_ms() < end);
        dispatch_once(engine, 50);
    }
    assert_int_equal(run("echo x"), SP_OUTCOME_REFUSED);
    assert_non_null(strstr(warnings, "rules/a.rules:3:"));
    assert_int_equal(unlink(at("rules/a.rules")), 0);
    becomes("echo x", SP_OUTCOME_EXITED);
    assert_int_equal(warning_count, 1);
}

static void test_a_file_that_is_broken_at_the_beginning(void **state)
{
    (void)state;
    write_file("rules/a.rules", "(");
    begin(NULL, "on-request", false);
    assert_int_equal(warning_count, 0);
    dispatch_once(engine, 0);
    assert_int_equal(warning_count, 1);
    assert_non_null(strstr(warnings, "rules/a.rules:1:"));
    assert_int_equal(run("echo x"), SP_OUTCOME_EXITED);
    assert_int_equal(warning_count, 1);
}

static void test_warnings_nobody_came_for(void **state)
{
    (void)state;
    write_file("rules/a.rules", "(");
    begin(NULL, "on-request", false);
    sp_engine_free(engine);
    engine = NULL;
    assert_int_equal(warning_count, 0);
}

static void test_an_approver_that_a_library_does_not_have(void **state)
{
    static const char *const names[] = {"terminal", "client"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        char config[64], expected[64];

        (void)snprintf(config, sizeof config, "approver = '%s'\n", names[i]);
        (void)snprintf(expected, sizeof expected, "nobody answers questions: the approver `%s` ",
                       names[i]);
        begin(config, "on-request", false);
        dispatch_once(engine, 0);
        assert_int_equal(warning_count, 1);
        assert_memory_equal(warnings, expected, strlen(expected));
        sp_engine_free(engine);
        warnings[0] = 0;
        warning_count = 0;

        begin(config, "on-request", true); /* the host answers */
        dispatch_once(engine, 0);
        sp_engine_free(engine);
        begin(config, "never", false); /* there is nothing to answer */
        dispatch_once(engine, 0);
        sp_engine_free(engine);
        engine = NULL;
        assert_int_equal(warning_count, 0);
    }
    begin("approver = 'deny'\n", "on-request", false);
    dispatch_once(engine, 0);
    assert_int_equal(warning_count, 0);
}

static bool does_make(const char *program, const char *cwd)
{
    const char *const argv[] = {program, "made", NULL};
    const struct sp_run_options o = {.size = sizeof o, .argv = argv, .cwd = cwd};
    static struct heard h;

    memset(&h, 0, sizeof h);
    assert_ok(sp_engine_run(engine, &o, on_heard, &h, NULL, e));
    until_heard(&h);
    return unlink(at("made")) == 0;
}

/* A rule sets free the file that its name stands for, and no other of that name. */
static void test_a_rule_is_for_the_program_that_it_names(void **state)
{
    struct sp_engine_options o = default_options();

    (void)state;
    write_file("rules/a.rules", "prefix_rule(pattern=[\"touch\"], decision=\"allow\")\n");
    write_file("touch", "#!/bin/sh\n: > made\n");
    assert_int_equal(chmod(at("touch"), 0755), 0);
    o.sandbox = "read-only";
    o.approve = "never";
    engine = make_engine(&o);
    assert_true(does_make("touch", test_home));
    assert_true(does_make("/usr/bin/touch", test_home));
    assert_false(does_make("/proc/self/cwd/touch", test_home));
    assert_false(does_make("./touch", test_home));
    (void)unlink(at("touch"));
}

static void on_retry(void *user, const struct sp_question *q)
{
    (void)user;
    assert_int_equal(q->topic, SP_QUESTION_TRY_AGAIN);
    question_count++;
    assert_ok(sp_engine_reply(engine, q->id, consent, e));
}

#define FAILED_NOTE "Execution failed: the sandbox denied it something (exit code 3)\n"

/* A command that is denied something after a while: another attempt is asked for, and if it is
 * refused, what the first one has printed is not lost. */
static void test_a_second_attempt(void **state)
{
    static const char script[] = "sleep 0.4; echo said; touch made || exit 3";
    struct sp_engine_options o = default_options();
    struct heard h;

    (void)state;
    o.sandbox = "read-only";
    o.approve = "on-failure";
    o.ask = on_retry;
    o.event = on_event;
    o.cwd = test_home;
    engine = make_engine(&o);
    for (int is_run = 0; is_run < 2; is_run++) {
        notes[0] = 0;
        question_count = 0;
        consent = SP_CONSENT_NO;
        if (is_run)
            do_run(&h, script, 0);
        else
            do_exec(&h, script, false, 30000);
        assert_int_equal(h.outcome, SP_OUTCOME_REFUSED);
        assert_true(h.was_denied);
        assert_int_equal(h.exit_code, 3);
        assert_non_null(strstr(h.output, "said\n"));
        assert_non_null(strstr(h.text, "said\n"));
        assert_non_null(strstr(h.error, "rejected by user"));
        assert_string_equal(notes, FAILED_NOTE);
        consent = SP_CONSENT_YES;
        if (is_run)
            do_run(&h, script, 0);
        else
            do_exec(&h, script, false, 30000);
        assert_int_equal(h.outcome, SP_OUTCOME_EXITED);
        assert_int_equal(h.exit_code, 0);
        assert_int_equal(question_count, 2);
        assert_string_equal(notes, FAILED_NOTE FAILED_NOTE "retrying command without sandbox\n");
        assert_int_equal(unlink(at("made")), 0);
    }
}

static void test_a_pause(void **state)
{
    struct heard h;

    (void)state;
    begin(NULL, "never", false);
    const int session = start_session("sleep 100", false);
    assert_ok(sp_engine_pause(engine, e));
    h = (struct heard){0};
    assert_ok(sp_engine_write(engine, session, "", 0, 5000, on_heard, &h, NULL, e));
    const uint64_t from = now_ms();
    while (now_ms() < from + 400)
        dispatch_once(engine, 50);
    assert_ok(sp_engine_unpause(engine, e));
    until_heard(&h);
    assert_int_equal(h.outcome, SP_OUTCOME_RUNNING);
    assert_true(now_ms() - from >= 5350);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

static const struct CMUnitTest tests[] = {
    TEST(test_rules_are_read_again),
    TEST(test_a_file_that_is_broken_at_the_beginning),
    TEST(test_warnings_nobody_came_for),
    TEST(test_an_approver_that_a_library_does_not_have),
    TEST(test_a_rule_is_for_the_program_that_it_names),
    TEST(test_a_second_attempt),
    TEST(test_a_pause),
};

TEST_MAIN(tests)

/* SPDX-License-Identifier: Apache-2.0 */
/* Permission hooks and the reviewer of the configuration, in a program that uses libsallyport. */
#include <sys/stat.h>

#include "lib_fixture.h"

static int questions;

static void on_question(void *user, const struct sp_question *q)
{
    (void)user;
    questions++;
    assert_int_equal(sp_engine_reply(engine, q->id, SP_CONSENT_YES, NULL), 0);
}

static const char *at(const char *name)
{
    static char path[128];

    (void)snprintf(path, sizeof path, "%s/%s", test_home, name);
    return path;
}

static void write_file(const char *name, const char *text, mode_t mode)
{
    FILE *f = fopen(at(name), "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(at(name), mode), 0);
}

static int set_up(void **state)
{
    (void)state;
    questions = 0;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    sp_engine_free(engine);
    engine = NULL;
    (void)unlink(at("hook"));
    (void)unlink(at("conf"));
    return 0;
}

/* key: what the program `hook` is; more: of the configuration. */
static void begin(const char *key, const char *more, const char *body, const char *approve)
{
    struct sp_engine_options o = default_options();
    char text[512];
    char path[128];

    (void)snprintf(text, sizeof text, "#!/bin/sh\n%s\n", body);
    write_file("hook", text, 0700);
    (void)snprintf(text, sizeof text, "%s%s'\n%s", key, at("hook"), more);
    write_file("conf", text, 0600);
    (void)snprintf(path, sizeof path, "%s", at("conf"));
    o.config = path;
    o.approve = approve;
    o.ask = on_question;
    engine = make_engine(&o);
}

#define HOOK     "permission_hook = '"
#define REVIEWER "reviewer = 'program:"

static struct heard h;

static enum sp_outcome run(void)
{
    do_run(&h, "exec no-such-command; true", 0);
    return h.outcome;
}

static void test_a_hook_answers_first(void **state)
{
    (void)state;
    begin(HOOK, "", "echo '{\"decision\":\"approved\"}'", "untrusted");
    assert_int_equal(run(), SP_OUTCOME_EXITED);
    assert_int_equal(questions, 0);
    write_file("hook", "#!/bin/sh\necho '{\"decision\":{\"denied\":{\"rejection\":\"no\"}}}'\n",
               0700);
    assert_int_equal(run(), SP_OUTCOME_REFUSED);
    assert_string_equal(h.error, "no");
    write_file("hook", "#!/bin/sh\n", 0700);
    assert_int_equal(run(), SP_OUTCOME_EXITED);
    assert_int_equal(questions, 1);
    write_file("hook", "#!/bin/sh\nexit 1\n", 0700);
    assert_int_equal(run(), SP_OUTCOME_REFUSED);
    assert_non_null(strstr(h.error, "failed: it ended with exit status 1"));
    assert_int_equal(questions, 1);
}

static void test_the_reviewer_answers_instead_of_the_host(void **state)
{
    (void)state;
    begin(REVIEWER, "", "echo '{\"decision\":\"denied\"}'", "untrusted");
    assert_int_equal(run(), SP_OUTCOME_REFUSED);
    assert_string_equal(h.error, "automatic approval review denied the action");
    assert_int_equal(questions, 0);
}

static void test_a_strict_one_sees_all(void **state)
{
    (void)state;
    begin(REVIEWER, "strict_review = true\n", "echo '{\"decision\":\"denied\"}'", "never");
    assert_int_equal(run(), SP_OUTCOME_REFUSED);
    assert_string_equal(h.error, "automatic approval review denied the action");
}

static void test_a_hook_that_is_not_there(void **state)
{
    struct sp_engine_options o = default_options();
    struct sp_error e = {0};
    char path[128];

    (void)state;
    write_file("conf", "permission_hook = '/site/no-such-hook'\n", 0600);
    (void)snprintf(path, sizeof path, "%s", at("conf"));
    o.config = path;
    assert_true(sp_engine_new(&o, &engine, &e) < 0);
    assert_non_null(strstr(e.msg, "permission_hook: program:/site/no-such-hook"));
    engine = NULL;
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

static const struct CMUnitTest tests[] = {
    TEST(test_a_hook_answers_first),
    TEST(test_the_reviewer_answers_instead_of_the_host),
    TEST(test_a_strict_one_sees_all),
    TEST(test_a_hook_that_is_not_there),
};

TEST_MAIN(tests)

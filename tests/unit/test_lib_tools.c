/* SPDX-License-Identifier: Apache-2.0 */
/* The tools of a language model, in a program that uses libsallyport. */
#include "lib_fixture.h"

static char schemas[16384], answer_json[8192], question_json[4096];
static enum sp_consent consent;
static int questions;

static void on_question(void *user, const struct sp_question *q)
{
    (void)user;
    questions++;
    assert_int_equal(q->topic, SP_QUESTION_FROM_NOW_ON);
    copy_text(question_json, sizeof question_json, q->json, strlen(q->json));
    assert_int_equal(sp_engine_reply(engine, q->id, consent, NULL), 0);
}

static void on_schemas(void *user, const char *json, size_t n)
{
    (void)user;
    copy_text(schemas, sizeof schemas, json, n);
}

static void on_tool(void *user, const struct sp_answer *a)
{
    answer_json[0] = 0;
    if (a->json != NULL)
        copy_text(answer_json, sizeof answer_json, a->json, strlen(a->json));
    on_heard(user, a);
}

static void begin(const char *features)
{
    struct sp_engine_options o = default_options();
    char path[sizeof test_home + 8];
    FILE *f;

    (void)snprintf(path, sizeof path, "%s/conf", test_home);
    f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fprintf(f, "[features]\n%s", features) > 0);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, 0600), 0);
    o.config = path;
    o.cwd = test_dir;
    o.sandbox = ":read-only";
    o.approve = "on-request";
    o.ask = on_question;
    engine = make_engine(&o);
    assert_ok(sp_engine_tools(engine, on_schemas, NULL, e));
}

static int tear_down(void **state)
{
    char path[sizeof test_home + 8];

    (void)state;
    sp_engine_free(engine);
    engine = NULL;
    questions = 0;
    (void)snprintf(path, sizeof path, "%s/conf", test_home);
    return unlink(path);
}

static void call(struct heard *h, const char *tool, const char *arguments, const char *turn)
{
    const struct sp_tool_options o = {
        .size = sizeof o, .tool = tool, .arguments = arguments, .turn = turn};

    memset(h, 0, sizeof *h);
    assert_ok(sp_engine_call_tool(engine, &o, on_tool, h, NULL, e));
    until_heard(h);
}

static int code_of_missing(const char *tool)
{
    const struct sp_tool_options o = {.size = sizeof o, .tool = tool, .arguments = "{}"};
    struct sp_error e = {0};

    assert_true(sp_engine_call_tool(engine, &o, NULL, NULL, NULL, &e) < 0);
    return e.code;
}

static void test_two_tools_are_always_there(void **state)
{
    static struct heard h;
    char arguments[128];

    (void)state;
    begin("");
    assert_non_null(strstr(schemas, "\"name\":\"exec_command\""));
    assert_non_null(strstr(schemas, "\"name\":\"write_stdin\""));
    assert_null(strstr(schemas, "request_permissions"));
    assert_null(strstr(schemas, "unified_exec\""));
    assert_int_equal(code_of_missing("request_permissions"), SP_ERROR_NOT_FOUND);
    assert_int_equal(code_of_missing("unified_exec"), SP_ERROR_NOT_FOUND);
    assert_int_equal(code_of_missing("nonsense"), SP_ERROR_NOT_FOUND);
    call(&h, "exec_command", "{\"cmd\":\"echo hello; exit 3\",\"login\":false}", NULL);
    assert_int_equal(h.outcome, SP_OUTCOME_EXITED);
    assert_int_equal(h.exit_code, 3);
    assert_string_equal(h.output, "hello\n");
    assert_non_null(strstr(h.text, "Process exited with code 3\n"));
    assert_non_null(strstr(answer_json, "\"exit_code\":3"));
    call(&h, "exec_command",
         "{\"cmd\":\"read x; echo got $x\",\"login\":false,\"tty\":true,\"yield_time_ms\":250}",
         NULL);
    assert_int_equal(h.outcome, SP_OUTCOME_RUNNING);
    (void)snprintf(arguments, sizeof arguments,
                   "{\"session_id\":%d,\"chars\":\"it\\n\",\"yield_time_ms\":9000}", h.session);
    call(&h, "write_stdin", arguments, NULL);
    assert_int_equal(h.outcome, SP_OUTCOME_EXITED);
    assert_non_null(strstr(h.output, "got it"));
}

static void test_arguments_that_make_no_sense(void **state)
{
    static struct heard h;
    const struct sp_tool_options nothing = {.size = sizeof nothing};
    struct sp_error e = {0};

    (void)state;
    begin("");
    call(&h, "exec_command", "{\"cmd\":7}", NULL);
    assert_int_equal(h.outcome, SP_OUTCOME_FAILED);
    assert_non_null(strstr(h.text, "failed to parse function arguments: "));
    assert_string_equal(answer_json, "");
    call(&h, "write_stdin", "{\"session_id\":4}", NULL);
    assert_int_equal(h.outcome, SP_OUTCOME_UNKNOWN);
    assert_true(sp_engine_call_tool(engine, &nothing, NULL, NULL, NULL, &e) < 0);
    assert_int_equal(e.code, SP_ERROR_INVALID);
}

static bool can_touch(const char *name, const char *turn)
{
    static struct heard h;
    char arguments[256];
    char path[sizeof test_dir + 32];

    (void)snprintf(path, sizeof path, "%s/%s", test_dir, name);
    (void)snprintf(arguments, sizeof arguments, "{\"cmd\":\"echo x > %s\",\"login\":false}", path);
    call(&h, "exec_command", arguments, turn);
    return unlink(path) == 0;
}

static void request(struct heard *h, const char *turn)
{
    char arguments[256];

    (void)snprintf(
        arguments, sizeof arguments,
        "{\"permissions\":{\"file_system\":{\"write\":[\"%s\"]}},\"reason\":\"a cache\"}",
        test_dir);
    call(h, "request_permissions", arguments, turn);
}

static void test_permissions_for_a_turn_and_for_the_session(void **state)
{
    static struct heard h;

    (void)state;
    begin("exec_permission_approvals = true\n");
    assert_non_null(strstr(schemas, "\"name\":\"request_permissions\""));
    consent = SP_CONSENT_NO;
    request(&h, "one");
    assert_int_equal(h.outcome, SP_OUTCOME_REFUSED);
    assert_false(can_touch("a", "one"));
    consent = SP_CONSENT_YES;
    request(&h, "one");
    assert_int_equal(h.outcome, SP_OUTCOME_DONE);
    assert_non_null(strstr(question_json, "a cache"));
    assert_non_null(strstr(answer_json, "\"scope\":\"turn\""));
    assert_true(can_touch("a", "one"));
    assert_false(can_touch("a", "two"));
    assert_false(can_touch("a", NULL));
    consent = SP_CONSENT_FOR_SESSION;
    request(&h, NULL);
    assert_non_null(strstr(answer_json, "\"scope\":\"session\""));
    assert_true(can_touch("a", "two"));
    assert_int_equal(questions, 3);
}

static void test_the_older_tool(void **state)
{
    static struct heard h;

    (void)state;
    begin("unified_exec = true\n");
    assert_non_null(strstr(schemas, "\"name\":\"unified_exec\""));
    call(&h, "unified_exec", "{\"input\":[\"sh\",\"-c\",\"echo hello\"],\"timeout_ms\":20000}",
         NULL);
    assert_int_equal(h.outcome, SP_OUTCOME_EXITED);
    assert_string_equal(answer_json, "{\"session_id\":null,\"output\":\"hello\\r\\n\"}");
    assert_string_equal(h.text, answer_json);
}

static void test_a_tool_is_cancelled(void **state)
{
    const struct sp_tool_options o = {
        .size = sizeof o,
        .tool = "exec_command",
        .arguments = "{\"cmd\":\"sleep 60\",\"login\":false,\"yield_time_ms\":30000}"};
    static struct heard h;
    uint64_t number = 0;

    (void)state;
    begin("");
    memset(&h, 0, sizeof h);
    assert_ok(sp_engine_call_tool(engine, &o, on_tool, &h, &number, e));
    assert_ok(sp_engine_cancel(engine, number, e));
    until_heard(&h);
    assert_int_equal(h.outcome, SP_OUTCOME_CANCELLED);
    assert_true(h.call == number);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, NULL, tear_down)

static const struct CMUnitTest tests[] = {
    TEST(test_two_tools_are_always_there),
    TEST(test_arguments_that_make_no_sense),
    TEST(test_permissions_for_a_turn_and_for_the_session),
    TEST(test_the_older_tool),
    TEST(test_a_tool_is_cancelled),
};

TEST_MAIN(tests)

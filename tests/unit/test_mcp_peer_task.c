/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that are answered with a task, and what becomes of it. */
#include "mcp_task_fixture.h"

/* ---- becoming one ---- */

static void test_a_call_to_completion_becomes_a_task_once_it_runs(void **state)
{
    (void)state;
    struct fake_run *f = make_task("1", 1000, "task-1" SECRET);
    assert_true(say(GET("2", "task-1" SECRET)));
    hears_of(200,
             "\"id\":2,\"result\":{\"resultType\":\"complete\",\"taskId\":\"task-1" SECRET "\"",
             "\"status\":\"working\"", NULL);
    pass(100000); /* it is nobody's call any more */
    assert_false(f->was_hurried);
    assert_false(say(CANCEL("1"))); /* which is not how a task is cancelled */
    assert_false(f->is_cancelled);
    finish(f, "built", false);
    hears_nothing();
    assert_true(say(GET("3", "task-1" SECRET)));
    hears_of(200, "\"status\":\"completed\"",
             "\"result\":{\"resultType\":\"complete\",\"content\":[{\"type\":\"text\",\"text\":"
             "\"built\"}],"
             "\"structuredContent\":{\"n\":1},\"isError\":false}",
             NULL);
}

static void test_a_result_that_is_an_error_is_completed_all_the_same(void **state)
{
    (void)state;
    finish(make_task("1", 1000, "task-1" SECRET), "no such file", true);
    assert_true(say(GET("3", "task-1" SECRET)));
    hears_of(200, "\"status\":\"completed\"", "\"isError\":true", NULL);
}

static void test_only_who_says_so_gets_a_task(void **state)
{
    (void)state;
    assert_true(say(CALL_TO_END("1", FORMS)));
    assert_false(newest_run()->run.waits_for_end);
    begin_process(newest_run(), 1000);
    hears_nothing();
    finish(newest_run(), "x", false);
    hears_of(200, "\"resultType\":\"complete\"", NULL);
    assert_true(say(CALL("2", TASKS))); /* and only if it asks for the end */
    assert_false(newest_run()->run.waits_for_end);
    begin_process(newest_run(), 1001);
    hears_nothing();
    initialize("2025-11-25", TASKS);
    assert_true(say(REQUEST("3", "tools/call", EXEC_TO_END)));
    assert_false(newest_run()->run.waits_for_end);
}

static void test_what_is_over_before_it_runs_is_answered_plainly(void **state)
{
    (void)state;
    assert_true(say(CALL_TO_END("1", TASKS)));
    finish(newest_run(), "refused", true);
    hears_of(200, "\"resultType\":\"complete\"", "refused", NULL);
    assert_true(say(GET("2", "task-1" SECRET)));
    hears_of(200, "-32602", NULL);
}

static void test_a_question_before_the_start_is_asked_by_the_result(void **state)
{
    char text[1200];
    char ticket[512];

    (void)state;
    assert_true(say(CALL_TO_END("1", TASKS "," FORMS)));
    struct fake_run *f = newest_run();
    ask_something(f);
    const char *at = strstr(hears_of(200, "input_required", NULL), "\"requestState\":\"") + 16;
    (void)snprintf(ticket, sizeof ticket, "%.*s", (int)strcspn(at, "\""), at);
    (void)snprintf(text, sizeof text,
                   REQUEST("2", "tools/call",
                           EXEC_TO_END ",\"requestState\":\"%s\",\"inputResponses\":{" ONCE(
                               "approve_1") "}," META(TASKS "," FORMS)),
                   ticket);
    assert_true(say(text));
    assert_int_equal(f->decided, 1);
    begin_process(f, 1000);
    hears_of(200, "\"id\":2,", "\"resultType\":\"task\"", NULL);
}

static void test_a_call_that_must_be_answered_is_no_task_any_more(void **state)
{
    (void)state;
    assert_true(say(CALL_TO_END("1", TASKS)));
    pass(47500);
    assert_true(newest_run()->was_hurried);
    begin_process(newest_run(), 1000);
    hears_nothing();
    finish(newest_run(), "x", false);
    hears_of(200, "\"resultType\":\"complete\"", NULL);
}

static void test_a_run_with_a_deadline_does_not_become_a_task(void **state)
{
    (void)state;
    has_approver = true;
    assert_true(say(CALL_TO_END("1", "")));
    ask_something(newest_run());
    pass(47500);
    hears_of(200, PENDING, NULL);
    assert_true(say(CALL_TO_END("2", TASKS)));
    assert_int_equal(run_count, 1);
    begin_process(newest_run(), 1000);
    hears_nothing();
    finish(newest_run(), "x", false);
    hears_of(200, "\"id\":2,", "\"resultType\":\"complete\"", NULL);
}

/* ---- questions while it runs ---- */

/* A call that is refused starts no run. */
static bool is_to_completion(const char *tool, const char *arguments)
{
    const uint32_t before = run_count;
    char text[512];

    (void)snprintf(text, sizeof text,
                   REQUEST("%u", "tools/call", "\"name\":\"%s\"%s%s," META(TASKS)), before + 1,
                   tool, arguments[0] != 0 ? ",\"arguments\":" : "", arguments);
    assert_true(say(text));
    return run_count != before && newest_run()->run.waits_for_end;
}

static void test_which_calls_ask_to_run_to_completion(void **state)
{
    static const char *const others[] = {
        "",
        "{}",
        "{",
        "[]",
        "{\"cmd\":\"until\"}",
        "{\"until\":[{\"exit\":true}]}",
        "{\"until\":{\"exit\":false}}",
        "{\"until\":{\"exit\":1}}",
        "{\"until\":{}}",
        "{\"until\":true}",
        "{\"until\":null}",
        "{\"until\":{\"exit\":true,\"port\":1}}",
        "{\"until\":{\"port\":1}}",
        "{\"until\":{\"exit\":true},\"yield_time_ms\":1000}",
        "{\"until\":{\"exit\":true},\"yield_time_ms\":0}",
    };

    (void)state;
    assert_true(is_to_completion("exec_command", "{\"cmd\":\"x\",\"until\":{\"exit\":true}}"));
    assert_true(is_to_completion("exec_command",
                                 " {\"until\" : { \"exit\":true },\"yield_time_ms\":null}"));
    assert_false(is_to_completion("write_stdin", "{\"until\":{\"exit\":true}}"));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (is_to_completion("exec_command", others[i]))
            fail_msg("%s", others[i]);
}

static void test_a_question_while_it_runs_is_in_the_task(void **state)
{
    (void)state;
    struct fake_run *f = make_task("1", 1000, "task-1" SECRET);
    ask_something(f);
    hears_nothing();
    assert_true(say(GET("2", "task-1" SECRET)));
    hears_of(200, "\"status\":\"input_required\"",
             "\"inputRequests\":{\"approve_1\":{\"method\":\"elicitation/create\"", "npm publish",
             NULL);
    assert_true(say(UPDATE("task-1" SECRET, ONCE("approve_7")))); /* ignored */
    hears(200, EMPTY("\"u\""));
    assert_int_equal(f->decided, 0);
    assert_true(say(UPDATE("task-1" SECRET, ONCE("approve_1"))));
    hears(200, EMPTY("\"u\""));
    assert_int_equal(f->decided, 1);
    assert_int_equal(f->decision, SP_DECISION_APPROVED);
    assert_true(say(GET("2", "task-1" SECRET)));
    hears_of(200, "\"status\":\"working\"", NULL);
    assert_true(say(UPDATE("task-1" SECRET, ONCE("approve_1")))); /* answered already */
    hears(200, EMPTY("\"u\""));
    assert_int_equal(f->decided, 1);
    ask_something(f);
    assert_true(say(GET("2", "task-1" SECRET)));
    hears_of(200, "\"approve_2\":{", NULL);
    f->question.id = 0;
    f->run.ops->withdrawn(f->run.user);
    assert_true(say(GET("2", "task-1" SECRET)));
    assert_null(strstr(hears_of(200, "\"status\":\"working\"", NULL), "inputRequests"));
    finish(f, "x", false);
    assert_true(say(UPDATE("task-1" SECRET, ONCE("approve_2"))));
    hears(200, EMPTY("\"u\""));
}

static void test_what_is_no_answer_is_asked_again_under_another_key(void **state)
{
    (void)state;
    struct fake_run *f = make_task("1", 1000, "task-1" SECRET);
    ask_something(f);
    assert_true(say(UPDATE("task-1" SECRET, "\"approve_1\":{\"action\":\"what\"}")));
    hears(200, EMPTY("\"u\""));
    assert_true(say(GET("2", "task-1" SECRET)));
    hears_of(200, "\"status\":\"input_required\"", "\"approve_2\":{", NULL);
    assert_true(say(UPDATE("task-1" SECRET, "\"approve_2\":{\"action\":\"decline\"}")));
    hears(200, EMPTY("\"u\""));
    assert_int_equal(f->decision, SP_DECISION_DENIED);
}

static void test_without_forms_the_approver_is_asked_for_a_task(void **state)
{
    (void)state;
    has_approver = true;
    assert_true(say(CALL_TO_END("1", TASKS)));
    begin_process(newest_run(), 1000);
    hears_of(200, "\"resultType\":\"task\"", NULL);
    ask_something(newest_run());
    assert_true(newest_run()->asks_next);
    assert_true(say(GET("2", "task-1" SECRET)));
    hears_of(200, "\"status\":\"working\"", NULL);
}

/* ---- methods ---- */

static void test_tasks_that_are_not_there_are_refused(void **state)
{
    static const char *const ids[] = {
        "task-1", "task-2" SECRET, "task-01" SECRET, "task-", "task", "1", "", "task-1" SECRET "x"};
    char text[400];

    (void)state;
    (void)make_task("1", 1000, "task-1" SECRET);
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        (void)snprintf(text, sizeof text, GET("2", "%s"), ids[i]);
        assert_true(say(text));
        hears_of(200, "\"code\":-32602", NULL);
    }
    assert_true(say(REQUEST("2", "tasks/get", META(TASKS))));
    hears_of(200, "-32602", NULL);
    assert_true(say(CANCEL_TASK("task-2" SECRET)));
    hears_of(200, "-32602", NULL);
    assert_true(say(UPDATE("task-2" SECRET, "")));
    hears_of(200, "-32602", NULL);
    assert_true(say(REQUEST("2", "tasks/update", "\"taskId\":\"task-1" SECRET "\"," META(TASKS))));
    hears_of(200, "-32602", "inputResponses", NULL);
    assert_true(say(REQUEST("2", "tasks/result", "\"taskId\":\"task-1" SECRET "\"," META(TASKS))));
    hears_of(404, "-32601", NULL);
}

static void test_who_does_not_know_of_tasks_cannot_ask_for_one(void **state)
{
    static const char *const methods[] = {"tasks/get", "tasks/update", "tasks/cancel"};
    char text[400];

    (void)state;
    struct fake_run *f = make_task("1", 1000, "task-1" SECRET);
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        (void)snprintf(text, sizeof text,
                       REQUEST("2", "%s", "\"taskId\":\"task-1" SECRET "\"," META(FORMS)),
                       methods[i]);
        assert_true(say(text));
        hears_of(400, "-32021", "\"data\":{\"requiredCapabilities\":{\"extensions\":{", NULL);
    }
    assert_false(f->is_cancelled);
}

static void test_another_caller_does_not_find_it(void **state)
{
    struct sp_mcp_peer *mine = peer;

    (void)state;
    (void)make_task("1", 1000, "task-1" SECRET);
    peer = sp_mcp_peer_new(&server, &other_caller, NULL);
    assert_true(say(GET("2", "task-1" SECRET)));
    hears_of(200, "-32602", NULL);
    assert_true(say(CANCEL_TASK("task-1" SECRET)));
    hears_of(200, "-32602", NULL);
    assert_int_equal(terminated, 0);
    sp_mcp_peer_free(peer);
    peer = mine;
}

static void test_a_task_outlives_its_peer(void **state)
{
    (void)state;
    struct fake_run *f = make_task("1", 1000, "task-1" SECRET);
    sp_mcp_peer_free(peer);
    assert_false(f->is_cancelled);
    peer = sp_mcp_peer_new(&server, &caller, NULL);
    finish(f, "built", false);
    assert_true(say(GET("2", "task-1" SECRET)));
    hears_of(200, "built", NULL);
}

static void test_a_cancelled_task_ends_its_process(void **state)
{
    (void)state;
    struct fake_run *f = make_task("1", 1000, "task-1" SECRET);
    assert_true(say(CANCEL_TASK("task-1" SECRET)));
    hears(200, EMPTY("\"c\""));
    assert_true(f->is_cancelled);
    assert_int_equal(terminated, 1000);
    assert_true(say(GET("2", "task-1" SECRET)));
    hears_of(200, "\"status\":\"cancelled\"", NULL);
    terminated = 0;
    assert_true(say(CANCEL_TASK("task-1" SECRET)));
    hears(200, EMPTY("\"c\""));
    assert_int_equal(terminated, 0);
}

static void test_a_cancellation_that_comes_after_the_end_changes_nothing(void **state)
{
    (void)state;
    finish(make_task("1", 1000, "task-1" SECRET), "built", false);
    assert_true(say(CANCEL_TASK("task-1" SECRET)));
    hears(200, EMPTY("\"c\""));
    assert_int_equal(terminated, 0);
    assert_true(say(GET("2", "task-1" SECRET)));
    hears_of(200, "\"status\":\"completed\"", "built", NULL);
}

/* ---- how long, and how many ---- */

static void test_a_task_that_ended_goes_after_a_while(void **state)
{
    (void)state;
    struct fake_run *f = make_task("1", 1000, "task-1" SECRET);
    struct fake_run *g = make_task("2", 1001, "task-2" SECRET);
    pass(5000000); /* one that goes on does not */
    finish(f, "x", false);
    pass(300000);
    finish(g, "x", false);
    pass(299999);
    assert_true(say(GET("2", "task-1" SECRET)));
    hears_of(200, "\"status\":\"completed\"", NULL);
    pass(1);
    assert_true(say(GET("2", "task-1" SECRET)));
    hears_of(200, "-32602", NULL);
    assert_true(say(GET("2", "task-2" SECRET)));
    hears_of(200, "\"status\":\"completed\"", NULL);
    pass(300000);
    assert_true(say(GET("2", "task-2" SECRET)));
    hears_of(200, "-32602", NULL);
}

static void test_without_a_time_a_task_stays(void **state)
{
    (void)state;
    manager_options.exited_ttl_ms = 0;
    assert_true(say(CALL_TO_END("1", TASKS)));
    begin_process(newest_run(), 1000);
    hears_of(200, "\"ttlMs\":null", NULL);
    finish(newest_run(), "x", false);
    pass(100000000);
    assert_true(say(GET("2", "task-1" SECRET)));
    hears_of(200, "\"status\":\"completed\"", NULL);
}

static void test_so_many_tasks_and_the_oldest_that_ended_goes(void **state)
{
    char id[16];
    char task[64];

    (void)state;
    for (int i = 1; i <= SP_MCP_TASKS_MAX; i++) {
        (void)snprintf(id, sizeof id, "%d", i);
        (void)snprintf(task, sizeof task, "task-%d" SECRET, i);
        (void)make_task(id, 1000 + i, task);
    }
    assert_true(say(CALL_TO_END("\"plain\"", TASKS))); /* all go on */
    assert_false(newest_run()->run.waits_for_end);
    begin_process(newest_run(), 5000);
    hears_nothing();
    finish(newest_run(), "x", false);
    hears_of(200, "\"id\":\"plain\"", "\"resultType\":\"complete\"", NULL);
    finish(runs[9], "ten", false);
    pass(10);
    finish(runs[4], "five", false);
    (void)make_task("\"new\"", 2000, "task-257" SECRET);
    assert_true(say(GET("1", "task-10" SECRET)));
    hears_of(200, "-32602", NULL);
    assert_true(say(GET("1", "task-5" SECRET)));
    hears_of(200, "five", NULL);
}

static void test_results_that_are_kept_have_a_bound(void **state)
{
    char *large = malloc(6000001);

    (void)state;
    assert_non_null(large);
    memset(large, 'x', 6000000);
    large[6000000] = 0;
    for (int i = 1; i <= 3; i++) {
        char id[16];
        char task[64];

        (void)snprintf(id, sizeof id, "%d", i);
        (void)snprintf(task, sizeof task, "task-%d" SECRET, i);
        finish(make_task(id, 1000 + i, task), large, false);
        pass(1);
    }
    free(large);
    assert_true(say(GET("1", "task-1" SECRET)));
    hears_of(200, "-32602", NULL);
    assert_true(say(GET("1", "task-2" SECRET)));
    hears_of(200, "completed", NULL);
    assert_true(say(GET("1", "task-3" SECRET)));
    hears_of(200, "completed", NULL);
}

static const struct CMUnitTest tests[] = {
    peer_test(test_a_call_to_completion_becomes_a_task_once_it_runs),
    peer_test(test_a_result_that_is_an_error_is_completed_all_the_same),
    peer_test(test_only_who_says_so_gets_a_task),
    peer_test(test_what_is_over_before_it_runs_is_answered_plainly),
    peer_test(test_a_question_before_the_start_is_asked_by_the_result),
    peer_test(test_a_call_that_must_be_answered_is_no_task_any_more),
    peer_test(test_a_run_with_a_deadline_does_not_become_a_task),
    peer_test(test_which_calls_ask_to_run_to_completion),
    peer_test(test_a_question_while_it_runs_is_in_the_task),
    peer_test(test_what_is_no_answer_is_asked_again_under_another_key),
    peer_test(test_without_forms_the_approver_is_asked_for_a_task),
    peer_test(test_tasks_that_are_not_there_are_refused),
    peer_test(test_who_does_not_know_of_tasks_cannot_ask_for_one),
    peer_test(test_another_caller_does_not_find_it),
    peer_test(test_a_task_outlives_its_peer),
    peer_test(test_a_cancelled_task_ends_its_process),
    peer_test(test_a_cancellation_that_comes_after_the_end_changes_nothing),
    peer_test(test_a_task_that_ended_goes_after_a_while),
    peer_test(test_without_a_time_a_task_stays),
    peer_test(test_so_many_tasks_and_the_oldest_that_ended_goes),
    peer_test(test_results_that_are_kept_have_a_bound),
};

TEST_MAIN(tests)

/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of tools from their beginning to their result, with real processes. */
#include "mcp/mcp_run.h"
#include "mcp_run_fixture.h"

/* ---- from the beginning to the result ---- */

static void test_a_call_begins_and_ends_with_its_result(void **state)
{
    struct waiter w;

    (void)state;
    (void)start(&w, "run", "{\"cmd\":\"echo hello; sleep 0.3\"}");
    until(w.is_done);
    assert_string_equal(w.story, "started done ");
    assert_int_equal(w.session_id, 1000);
    assert_false(w.is_error);
    assert_non_null(strstr(w.text, "Process exited with code 0\n"));
    assert_non_null(strstr(w.text, "\nhello\n"));
    assert_string_equal(w.structured, "{}");
    assert_string_equal(w.note, "");
    assert_true(sp_list_is_empty(&caller->runs));
    assert_int_equal(caller->run_count, 0);
}

static void test_a_tool_that_is_not_there_is_refused(void **state)
{
    struct sp_err e = {0};
    struct waiter w;

    (void)state;
    assert_int_equal(try_start(caller, &w, "nothing", "{}", &e), -SP_E_NO_METHOD);
    assert_string_equal(e.msg, "Unknown tool: nothing");
    assert_true(sp_list_is_empty(&caller->runs));
}

static void test_too_many_calls_at_a_time_are_refused(void **state)
{
    static struct waiter waiters[SP_MCP_RUNS_MAX];
    struct sp_err e = {0};
    struct waiter w;

    (void)state;
    for (size_t i = 0; i < SP_MCP_RUNS_MAX; i++)
        (void)start(&waiters[i], "wait", "{}");
    assert_int_equal(try_start(caller, &w, "wait", "{}", &e), -SP_E_LIMIT);
    sp_mcp_run_answer_now(waiters[17].run);
    until(waiters[17].is_done);
    (void)start(&w, "wait", "{}");
    assert_string_not_equal(w.run->call_id, waiters[16].run->call_id);
}

static void end_with_failure(struct sp_deferred *d)
{
    sp_mcp_run_fail(SP_CONTAINER(d, struct sp_mcp_run, deferred), "no %s: %s", "session",
                    "\xff\xfe!");
}

static void test_a_failure_is_valid_text(void **state)
{
    struct waiter w;

    (void)state;
    struct sp_mcp_run *r = start(&w, "wait", "{}");
    sp_loop_defer(loop, &r->deferred, end_with_failure);
    until(w.is_done);
    assert_true(w.is_error);
    assert_string_equal(w.text, "no session: \xef\xbf\xbd\xef\xbf\xbd!");
    assert_int_equal(waits_freed, 1);
}

static void test_who_is_in_a_hurry_gets_what_there_is(void **state)
{
    struct waiter w;

    (void)state;
    struct sp_mcp_run *r = start(&w, "run", "{\"cmd\":\"echo begun; sleep 600\",\"yield\":30000}");
    until(w.session_id != 0);
    is_calling = true;
    sp_mcp_run_answer_now(r);
    is_calling = false;
    until(w.is_done);
    assert_false(w.is_error);
    assert_non_null(strstr(w.text, "Process running with session ID 1000\n"));
}

static void test_a_cancelled_call_is_not_heard_of_and_its_process_goes_on(void **state)
{
    struct sp_manager_view v;
    struct waiter w;

    (void)state;
    struct sp_mcp_run *r = start(&w, "run", "{\"cmd\":\"sleep 600\",\"yield\":30000}");
    until(w.session_id != 0);
    sp_mcp_run_cancel(r);
    until(sp_list_is_empty(&caller->runs));
    assert_string_equal(w.story, "started ");
    assert_true(sp_manager_view(caller->manager, 1000, &v));
    assert_false(v.has_exited);
}

static void test_all_that_goes_on_ends_with_the_server(void **state)
{
    struct waiter waiters[4];

    (void)state;
    (void)start(&waiters[0], "run", "{\"cmd\":\"sleep 600\",\"yield\":30000}");
    until(waiters[0].session_id != 0);
    (void)start_asking(&waiters[1], nice_true);
    (void)start(&waiters[2], "run", "{\"cmd\":\"sleep 600\",\"yield\":30000}");
    (void)start(&waiters[3], "wait", "{}");
    is_calling = true;
    sp_mcp_free(mcp);
    is_calling = false;
    mcp = NULL;
    assert_int_equal(waits_freed, 1);
}

/* ---- warnings ---- */

static void test_warnings_come_with_the_result_of_their_call(void **state)
{
    struct waiter w;
    struct waiter other;

    (void)state;
    sp_mcp_free(mcp);
    manager_options.notify_at = 1;
    make_server();
    (void)start(&other, "wait", "{}");
    (void)start(&w, "run", "{\"cmd\":\"sleep 600\",\"yield\":300}");
    until(w.is_done);
    assert_non_null(strstr(w.note, "1"));
    sp_mcp_run_answer_now(other.run);
    until(other.is_done);
    assert_string_equal(other.note, "a note");
}

static void warn(const char *text)
{
    const struct sp_exec_event e = {.type = SP_EVENT_WARNING, .message = sp_str_of(text)};

    sp_mcp_manager_ops.event(caller, &e);
}

static void test_warnings_of_no_call_come_with_the_next_result(void **state)
{
    static char much[SP_MCP_WARNINGS_MAX + 1];
    struct waiter w;

    (void)state;
    warn("the log cannot be written");
    warn("nor the rules");
    memset(much, 'x', sizeof much - 1);
    warn(much); /* is left out: it is logged */
    (void)start(&w, "wait", "{\"now\":true}");
    until(w.is_done);
    assert_string_equal(w.note, "a note\nthe log cannot be written\nnor the rules");
    (void)start(&w, "wait", "{\"now\":true}");
    until(w.is_done);
    assert_string_equal(w.note, "a note");
}

/* ---- what it is doing ---- */

static void expect_description(struct sp_mcp_run *r, const char *want)
{
    auto_buf struct sp_buf text = {0};

    assert_true(sp_mcp_run_describe(r, &text) && sp_buf_add(&text, "", 1));
    assert_string_equal(text.data, want);
}

static bool is_described(struct sp_mcp_run *r, const char *want)
{
    auto_buf struct sp_buf text = {0};

    assert_true(sp_mcp_run_describe(r, &text) && sp_buf_add(&text, "", 1));
    assert_true(text.len <= 201);
    return strcmp(text.data, want) == 0;
}

static void test_what_a_call_is_doing(void **state)
{
    struct waiter w;

    (void)state;
    struct sp_mcp_run *r = start(&w, "run",
                                 "{\"cmd\":\"nice true; printf 'one\\\\ntwo\\\\rthree\\\\n \\\\n'; "
                                 "sleep 600\",\"yield\":30000}");
    expect_description(r, "starting");
    await_question(&w);
    expect_description(r, "waiting for approval");
    decide(r, SP_DECISION_APPROVED);
    until(is_described(r, "three"));
    sp_mcp_run_cancel(r);
    until(sp_list_is_empty(&caller->runs));
}

static void test_a_silent_command_is_described_by_its_state(void **state)
{
    struct waiter w;

    (void)state;
    struct sp_mcp_run *r = start(&w, "run", "{\"cmd\":\"exec sleep 600\",\"yield\":30000}");
    until(w.session_id != 0);
    expect_description(r, "running"); /* nobody has looked yet */
    until(is_described(r, "sleeping"));
    (void)is_described(r, "");
    sp_mcp_free(mcp); /* while it is being looked at */
    mcp = NULL;
}

static void test_a_long_or_hostile_line_is_cut_and_escaped(void **state)
{
    struct waiter w;
    auto_buf struct sp_buf text = {0};

    (void)state;
    struct sp_mcp_run *r = start(&w, "run",
                                 "{\"cmd\":\"printf 'a\\\\342\\\\200\\\\256b%0999d' 7; "
                                 "sleep 600\",\"yield\":30000}");
    until(is_described(r, "") || w.session_id != 0);
    for (text.len = 0; text.len < 150; run_for(2)) {
        text.len = 0;
        assert_true(sp_mcp_run_describe(r, &text));
    }
    assert_true(text.len <= 200);
    assert_memory_equal(text.data, "a\\u{202e}b000", 13);
    assert_memory_equal(text.data + text.len - 4, "0\xe2\x80\xa6", 4);
}

int main(void)
{
    const struct CMUnitTest tests_of_this[] = {
        mcp_test(test_a_call_begins_and_ends_with_its_result),
        mcp_test(test_a_tool_that_is_not_there_is_refused),
        mcp_test(test_too_many_calls_at_a_time_are_refused),
        mcp_test(test_a_failure_is_valid_text),
        mcp_test(test_who_is_in_a_hurry_gets_what_there_is),
        mcp_test(test_a_cancelled_call_is_not_heard_of_and_its_process_goes_on),
        mcp_test(test_all_that_goes_on_ends_with_the_server),
        mcp_test(test_warnings_come_with_the_result_of_their_call),
        mcp_test(test_warnings_of_no_call_come_with_the_next_result),
        mcp_test(test_what_a_call_is_doing),
        mcp_test(test_a_silent_command_is_described_by_its_state),
        mcp_test(test_a_long_or_hostile_line_is_cut_and_escaped),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests_of_this, NULL, NULL);
}

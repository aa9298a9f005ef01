/* SPDX-License-Identifier: Apache-2.0 */
/* Memory ends at every request for it: whatever was asked is answered once all the same, and
 * nothing is left behind. */
#include "mcp_fixture.h"
#include "memory_fixture.h"

/* Each of these ids is answered once, or without an id if not even that could be read. */
static void are_answered(unsigned requests)
{
    unsigned answers[10] = {0};
    unsigned all = 0;

    for (uint32_t i = 0; i < sent_count; i++) {
        const char *id = strstr(sent[i].text, "{\"jsonrpc\":\"2.0\",\"id\":");

        if (sent[i].status == 0)
            continue;
        assert_non_null(id);
        all++;
        if (id[22] >= '1' && id[22] <= '9')
            assert_int_equal(++answers[id[22] - '0'], 1);
        else
            assert_non_null(strstr(sent[i].text, "\"id\":null,\"error\":{\"code\":-32603"));
    }
    assert_true(all >= requests); /* a notification that could not be read is answered, too */
}

static void end_all_runs(void)
{
    for (uint32_t i = 0; i < run_count; i++)
        if (!runs[i]->is_gone && !runs[i]->run.is_held)
            finish(runs[i], "x", false);
}

/* Requests 1 to `requests` are made by `story` and answered by the time it returns. */
static void survives(void (*story)(void), unsigned requests)
{
    for (long n = 1;; n++) {
        assert_int_equal(set_up(NULL), 0);
        end_memory_at(n);
        story();
        end_all_runs();
        const bool did_end = did_memory_end();
        are_answered(requests);
        assert_int_equal(tear_down(NULL), 0);
        if (!did_end)
            break;
        assert_true(n < 2000);
    }
}

static void answer_at_once(void)
{
    (void)say(REQUEST("1", "server/discover", META("")));
    (void)say(REQUEST("2", "tools/list", META("")));
    (void)say(REQUEST("3", "nope", META("")));
    (void)say(REQUEST("4", "initialize", "\"protocolVersion\":\"2025-06-18\""));
    (void)say(REQUEST("5", "ping", ""));
    (void)say(REQUEST("6", "tools/list",
                      "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"x\"}"));
}

static void test_what_is_answered_at_once(void **state)
{
    (void)state;
    survives(answer_at_once, 6);
}

static void call_tools(void)
{
    (void)say(REQUEST("1", "tools/call", EXEC "," TOKEN_META("")));
    (void)say(CALL("2", FORMS));
    if (run_count != 0)
        ask_something(newest_run());
    pass(15000);
}

static void test_calls(void **state)
{
    (void)state;
    survives(call_tools, 2);
}

static void call_as_of_old(void)
{
    (void)say(REQUEST("1", "initialize",
                      "\"protocolVersion\":\"2025-06-18\",\"capabilities\":{" FORMS "}"));
    if (sp_mcp_peer_version(peer) == NULL) {
        (void)say(REQUEST("2", "ping", ""));
        return;
    }
    (void)say(NOTICE("notifications/initialized", ""));
    (void)say(LEGACY_CALL("2"));
    if (run_count != 0 && !newest_run()->is_gone)
        ask_something(newest_run());
    pass(60000);
}

static void test_questions_of_old(void **state)
{
    (void)state;
    survives(call_as_of_old, 2);
}

static void make_tasks(void)
{
    (void)say(CALL_TO_END("1", TASKS "," FORMS));
    if (run_count != 0 && !newest_run()->is_gone)
        begin_process(newest_run(), 1000);
    (void)say(REQUEST("2", "tasks/get", "\"taskId\":\"task-1" SECRET "\"," META(TASKS)));
    (void)say(REQUEST("3", "subscriptions/listen",
                      "\"notifications\":{\"taskIds\":[\"task-1" SECRET "\"]}," META(TASKS)));
    if (run_count != 0 && !newest_run()->is_gone)
        ask_something(newest_run());
    (void)say(REQUEST("4", "tasks/get", "\"taskId\":\"task-1" SECRET "\"," META(TASKS)));
    (void)say(REQUEST("5", "tasks/update",
                      "\"taskId\":\"task-1" SECRET "\",\"inputResponses\":{}," META(TASKS)));
    (void)say(REQUEST("6", "tasks/cancel", "\"taskId\":\"task-1" SECRET "\"," META(TASKS)));
    sp_mcp_peer_close_subscriptions(peer);
}

static void test_tasks_and_who_listens(void **state)
{
    (void)state;
    survives(make_tasks, 6);
}

/* ---- batches are answered as one ---- */

static void test_batches(void **state)
{
    (void)state;
    for (long n = 1;; n++) {
        unsigned last = 0;

        assert_int_equal(set_up(NULL), 0);
        initialize("2025-03-26", "");
        sent_seen = sent_count;
        end_memory_at(n);
        (void)say("[" LEGACY_CALL("1") "," REQUEST("2", "ping", "") "]");
        end_all_runs();
        const bool did_end = did_memory_end();
        for (const struct sent *s = next_sent(); s != NULL; s = next_sent())
            last += s->status != 0;
        assert_int_equal(last, 1);
        assert_int_equal(tear_down(NULL), 0);
        if (!did_end)
            break;
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_what_is_answered_at_once),
    cmocka_unit_test(test_calls),
    cmocka_unit_test(test_questions_of_old),
    cmocka_unit_test(test_tasks_and_who_listens),
    cmocka_unit_test(test_batches),
};

TEST_MAIN(tests)

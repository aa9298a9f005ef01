/* SPDX-License-Identifier: Apache-2.0 */
/* Subscriptions, which are how one hears of tasks. */
#include "mcp_task_fixture.h"

static void test_a_subscription_is_acknowledged_and_stays_open(void **state)
{
    (void)state;
    assert_true(say(REQUEST("\"s\"", "subscriptions/listen",
                            "\"notifications\":{\"toolsListChanged\":true}," META(""))));
    hears(0, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\","
             "\"params\":{" SUBSCRIPTION("\"s\"") ",\"notifications\":{}}}");
    pass(1000000);
    hears_nothing();
    sp_mcp_peer_close_subscriptions(peer);
    hears(200,
          "{\"jsonrpc\":\"2.0\",\"id\":\"s\",\"result\":{\"resultType\":\"complete\",\"_meta\":{"
          "\"io.modelcontextprotocol/subscriptionId\":\"s\","
          "\"io.modelcontextprotocol/serverInfo\":{\"name\":\"sallyport\",\"version\":\"" SP_VERSION
          "\"}}}}");
    sp_mcp_peer_close_subscriptions(peer);
    hears_nothing();
}

static void test_a_cancelled_subscription_says_nothing_more(void **state)
{
    (void)state;
    struct fake_run *f = make_task("1", 1000, "task-1" SECRET);
    assert_true(say(LISTEN("5", "\"taskIds\":[\"task-1" SECRET "\"]")));
    hears_of(0, "acknowledged", NULL);
    assert_false(say(CANCEL("5")));
    finish(f, "x", false);
    sp_mcp_peer_close_subscriptions(peer);
    hears_nothing();
}

static void test_a_bad_subscription_is_refused(void **state)
{
    (void)state;
    assert_true(say(REQUEST("1", "subscriptions/listen", META(TASKS))));
    hears_of(200, "-32602", NULL);
    assert_true(say(LISTEN("1", "\"taskIds\":7")));
    hears_of(200, "-32602", NULL);
    assert_true(
        say(REQUEST("1", "subscriptions/listen", "\"notifications\":{\"taskIds\":[]}," META(""))));
    hears(400,
          "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32021,\"message\":\"this needs "
          "the client capability io.modelcontextprotocol/tasks\",\"data\":{"
          "\"requiredCapabilities\":{\"extensions\":{\"io.modelcontextprotocol/tasks\":{}}}}}}");
}

static void test_whoever_listens_hears_of_every_change(void **state)
{
    (void)state;
    struct fake_run *f = make_task("1", 1000, "task-1" SECRET);
    struct fake_run *g = make_task("2", 1001, "task-2" SECRET);
    assert_true(say(LISTEN("5", "\"taskIds\":[\"task-1" SECRET "\",\"task-9" SECRET
                                "\",\"task-1" SECRET "\",7]")));
    hears_of(0, SUBSCRIPTION("5") ",\"notifications\":{\"taskIds\":[\"task-1" SECRET "\"]}", NULL);
    ask_something(f);
    hears_of(0, "\"method\":\"notifications/tasks\",\"params\":{" SUBSCRIPTION("5"),
             "\"taskId\":\"task-1" SECRET "\",\"status\":\"input_required\"", "\"approve_1\":{",
             NULL);
    assert_true(say(UPDATE("task-1" SECRET, ONCE("approve_1"))));
    hears_of(0, "\"status\":\"working\"", NULL);
    hears(200, EMPTY("\"u\""));
    finish(g, "not heard of", false);
    finish(f, "built", false);
    hears_of(0, "\"status\":\"completed\"", "\"result\":{", "built", NULL);
    hears_nothing();
}

static void test_what_changed_before_is_told_at_once(void **state)
{
    (void)state;
    finish(make_task("1", 1000, "task-1" SECRET), "built", false);
    (void)make_task("2", 1001, "task-2" SECRET);
    assert_true(say(LISTEN("5", "\"taskIds\":[\"task-1" SECRET "\",\"task-2" SECRET "\"]")));
    hears_of(0, "acknowledged", NULL);
    hears_of(0, "notifications/tasks", "task-1" SECRET, "built", NULL);
    hears_nothing();
}

static void test_two_hear_the_same_and_one_may_go_meanwhile(void **state)
{
    static struct sp_mcp_out second = {.send = on_send, .is_full = on_is_full};

    (void)state;
    struct fake_run *f = make_task("1", 1000, "task-1" SECRET);
    assert_true(say(LISTEN("5", "\"taskIds\":[\"task-1" SECRET "\"]")));
    assert_true(say_to(peer, &second, NULL, LISTEN("6", "\"taskIds\":[\"task-1" SECRET "\"]")));
    hears_of(0, "acknowledged", NULL);
    hears_of(0, "acknowledged", NULL);
    ask_something(f);
    hears_of(0, SUBSCRIPTION("6"), NULL);
    hears_of(0, SUBSCRIPTION("5"), NULL);
    gone_on_send = peer; /* each is found gone as it is told */
    finish(f, "x", false);
    gone_on_send = NULL;
    hears_of(0, SUBSCRIPTION("6"), NULL);
    hears_of(0, SUBSCRIPTION("5"), NULL);
    sp_mcp_peer_close_subscriptions(peer);
    hears_nothing();
}

static void test_a_full_connection_misses_what_tasks_get_has(void **state)
{
    (void)state;
    struct fake_run *f = make_task("1", 1000, "task-1" SECRET);
    assert_true(say(LISTEN("5", "\"taskIds\":[\"task-1" SECRET "\"]")));
    hears_of(0, "acknowledged", NULL);
    is_out_full = true;
    finish(f, "built", false);
    hears_nothing();
    assert_true(say(GET("2", "task-1" SECRET)));
    hears_of(200, "built", NULL);
}

static void test_tasks_may_end_before_those_who_listen(void **state)
{
    (void)state;
    struct fake_run *f = make_task("1", 1000, "task-1" SECRET);
    assert_true(say(LISTEN("5", "\"taskIds\":[\"task-1" SECRET "\"]")));
    hears_of(0, "acknowledged", NULL);
    sp_mcp_tasks_free(caller.tasks);
    assert_null(caller.tasks);
    assert_true(f->is_cancelled);
    hears_nothing();
    sp_mcp_peer_close_subscriptions(peer);
    hears_of(200, "\"id\":5,", NULL);
}

static const struct CMUnitTest tests[] = {
    peer_test(test_a_subscription_is_acknowledged_and_stays_open),
    peer_test(test_a_cancelled_subscription_says_nothing_more),
    peer_test(test_a_bad_subscription_is_refused),
    peer_test(test_whoever_listens_hears_of_every_change),
    peer_test(test_what_changed_before_is_told_at_once),
    peer_test(test_two_hear_the_same_and_one_may_go_meanwhile),
    peer_test(test_a_full_connection_misses_what_tasks_get_has),
    peer_test(test_tasks_may_end_before_those_who_listen),
};

TEST_MAIN(tests)

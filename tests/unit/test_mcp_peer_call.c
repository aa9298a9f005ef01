/* SPDX-License-Identifier: Apache-2.0 */
/* Calls and their time: progress, patience, cancellation, whoever goes away, and bounds. */
#include "mcp_fixture.h"

#define TOKEN_CALL(id)   REQUEST(id, "tools/call", EXEC "," TOKEN_META(""))
#define LEGACY_TOKEN(id) REQUEST(id, "tools/call", EXEC ",\"_meta\":{\"progressToken\":9}")
#define PROGRESS(token, n, rest)                       \
    "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/" \
    "progress\",\"params\":{\"progressToken\":" token ",\"progress\":" n rest "}}"

/* ---- progress ---- */

static void test_progress_comes_at_once_and_every_15_seconds(void **state)
{
    (void)state;
    assert_true(say(TOKEN_CALL("1")));
    hears(0, PROGRESS("\"t\"", "1", ",\"message\":\"compiling\""));
    pass(14999);
    hears_nothing();
    last_line = "link\"ing";
    pass(1);
    hears(0, PROGRESS("\"t\"", "2", ",\"message\":\"link\\\"ing\""));
    last_line = "";
    pass(30000);
    hears(0, PROGRESS("\"t\"", "3", ""));
    hears(0, PROGRESS("\"t\"", "4", ""));
    finish(newest_run(), "x", false);
    hears_of(200, "\"id\":1,\"result\"", NULL);
    pass(100000);
    hears_nothing();
}

static void test_with_a_token_nobody_is_hurried(void **state)
{
    (void)state;
    assert_true(say(TOKEN_CALL("1")));
    pass(600000);
    assert_false(newest_run()->was_hurried);
    finish(newest_run(), "x", false);
    assert_int_equal(sent_count, 42);
    assert_int_equal(sent[41].status, 200);
}

static void test_numbers_rise_over_what_a_full_connection_misses(void **state)
{
    (void)state;
    is_out_full = true;
    assert_true(say(TOKEN_CALL("1")));
    pass(30000);
    hears_nothing();
    is_out_full = false;
    pass(15000);
    hears_of(0, "\"progress\":1", NULL);
    is_out_full = true;
    pass(45000);
    is_out_full = false;
    pass(15000);
    hears_of(0, "\"progress\":2", NULL);
    is_out_full = true; /* an answer goes out all the same */
    finish(newest_run(), "x", false);
    hears_of(200, "\"result\"", NULL);
}

static void test_the_first_version_has_no_message_in_progress(void **state)
{
    (void)state;
    initialize("2024-11-05", "");
    assert_true(say(LEGACY_TOKEN("1")));
    hears(0, PROGRESS("9", "1", ""));
    initialize("2025-03-26", "");
    assert_true(say(LEGACY_TOKEN("2")));
    hears(0, PROGRESS("9", "1", ",\"message\":\"compiling\""));
}

/* ---- patience ---- */

static void test_without_a_token_a_call_is_answered_by_50_seconds(void **state)
{
    (void)state;
    assert_true(say(CALL("1", "")));
    pass(47499);
    assert_false(newest_run()->was_hurried);
    pass(1);
    assert_true(newest_run()->was_hurried);
    assert_false(newest_run()->is_cancelled);
    hears_nothing();
    finish(newest_run(), "still running", false);
    hears_of(200, "still running", NULL);
}

static void test_a_call_that_cannot_be_hurried_is_left_to_a_repeat(void **state)
{
    (void)state;
    assert_true(say(CALL("1", "")));
    struct fake_run *f = newest_run();
    pass(49499);
    assert_true(f->was_hurried);
    hears_nothing();
    pass(1);
    hears_of(200, "\"id\":1,", PENDING, "\"isError\":true", NULL);
    assert_true(f->run.is_held);
    assert_false(f->is_cancelled);
    assert_true(say(CALL("2", "")));
    assert_int_equal(run_count, 1);
    f->run.session_id = 1000;
    pass(49500);
    hears_of(200, "\"id\":2,", "there is no answer yet; repeat the same call", NULL);
    assert_true(say(CALL("3", "")));
    assert_int_equal(run_count, 1);
    finish(f, "at last", false);
    hears_of(200, "\"id\":3,", "at last", NULL);
    pass(100000);
    hears_nothing();
}

static void test_a_token_that_cannot_be_kept_is_none(void **state)
{
    (void)state;
    initialize("2025-11-25", "");
    assert_true(say(REQUEST("1", "tools/call", EXEC ",\"_meta\":{\"progressToken\":1.5}")));
    pass(47500);
    assert_true(newest_run()->was_hurried);
    hears_nothing();
}

/* ---- cancellation ---- */

/* The newest run has started a process that only its call can name. */
static void own_process(void)
{
    newest_run()->run.owns_process = true;
    newest_run()->run.session_id = 1017;
    terminated = 0;
}

static void is_abandoned(void)
{
    assert_true(newest_run()->is_cancelled);
    assert_int_equal(terminated, 1017);
}

static void test_a_cancelled_call_is_heard_of_no_more(void **state)
{
    (void)state;
    assert_true(say(TOKEN_CALL("7")));
    (void)next_sent();
    own_process();
    assert_false(say(CANCEL("\"7\""))); /* another id */
    assert_false(newest_run()->is_cancelled);
    assert_false(say(CANCEL("7")));
    is_abandoned();
    assert_int_equal(cancelled_count, 1);
    pass(100000);
    hears_nothing();
    assert_false(say(CANCEL("7")));
    assert_int_equal(cancelled_count, 1);
    assert_true(say(CALL("7", ""))); /* the id is free again */
    finish(newest_run(), "x", false);
    hears_of(200, "\"id\":7,", NULL);
}

static void test_a_cancellation_that_comes_too_late_is_ignored(void **state)
{
    (void)state;
    initialize("2025-06-18", "");
    assert_true(say(LEGACY_CALL("7")));
    finish(newest_run(), "x", false);
    hears_of(200, "\"id\":7,", NULL);
    assert_false(say(CANCEL("7")));
    assert_false(newest_run()->is_cancelled);
    assert_int_equal(cancelled_count, 0);
    hears_nothing();
}

static void test_a_hurried_call_can_still_be_cancelled(void **state)
{
    (void)state;
    assert_true(say(CALL("1", "")));
    pass(47500);
    assert_false(say(CANCEL("1")));
    assert_true(newest_run()->is_cancelled);
    hears_nothing();
}

/* ---- nobody reads any more ---- */

static void test_a_modern_call_is_cancelled_when_nobody_reads(void **state)
{
    (void)state;
    assert_true(say(TOKEN_CALL("1")));
    (void)next_sent();
    own_process();
    sp_mcp_peer_out_gone(peer, &out);
    is_abandoned();
    assert_int_equal(cancelled_count, 0);
    pass(100000);
    hears_nothing();
}

static void test_a_legacy_call_goes_on_unheard(void **state)
{
    (void)state;
    initialize("2025-06-18", "");
    assert_true(say(LEGACY_TOKEN("1")));
    (void)next_sent();
    sp_mcp_peer_out_gone(peer, &out);
    sp_mcp_peer_out_gone(peer, &out);
    assert_false(newest_run()->is_cancelled);
    assert_true(say(LEGACY_CALL("1"))); /* its id is not free */
    hears_of(400, "-32600", NULL);
    pass(47499);
    assert_false(newest_run()->was_hurried);
    pass(1);
    assert_true(newest_run()->was_hurried); /* nothing waits for ever */
    finish(newest_run(), "x", false);
    hears_nothing();
}

static void test_whoever_is_gone_takes_only_its_own(void **state)
{
    static struct sp_mcp_out second = {.send = on_send, .is_full = on_is_full};

    (void)state;
    assert_true(say(CALL("1", "")));
    assert_true(say_to(peer, &second, NULL, CALL("2", "")));
    sp_mcp_peer_out_gone(peer, &second);
    assert_false(runs[0]->is_cancelled);
    assert_true(runs[1]->is_cancelled);
    finish(runs[0], "x", false);
    hears_of(200, "\"id\":1,", NULL);
}

static void test_a_reader_may_be_found_gone_while_something_is_said(void **state)
{
    (void)state;
    gone_on_send = peer;
    assert_true(say(TOKEN_CALL("1")));
    assert_true(newest_run()->is_cancelled);
    gone_on_send = NULL;
    assert_true(say(TOKEN_CALL("1")));
    gone_on_send = peer;
    pass(15000);
    assert_true(newest_run()->is_cancelled);
    gone_on_send = NULL;
    assert_true(say(CALL("1", "")));
    gone_on_send = peer;
    finish(newest_run(), "x", false);
    gone_on_send = NULL;
    initialize("2025-06-18", "");
    assert_true(say(LEGACY_TOKEN("1")));
    gone_on_send = peer;
    pass(15000);
    assert_false(newest_run()->is_cancelled);
    finish(newest_run(), "x", false);
}

static void test_a_peer_that_ends_cancels_what_is_open(void **state)
{
    (void)state;
    initialize("2025-06-18", "");
    assert_true(say(LEGACY_CALL("1")));
    assert_true(say(CALL("2", "")));
    sp_mcp_peer_free(peer);
    peer = sp_mcp_peer_new(&server, &caller, NULL);
    assert_true(runs[0]->is_cancelled);
    assert_true(runs[1]->is_cancelled);
    hears_nothing();
}

/* ---- bounds ---- */

static void test_an_id_that_is_open_is_refused(void **state)
{
    (void)state;
    assert_true(say(CALL("\"a\"", "")));
    assert_true(say(CALL("\"a\"", "")));
    hears_of(400, "\"id\":\"a\",\"error\":{\"code\":-32600", NULL);
    assert_int_equal(run_count, 1);
    assert_true(say(REQUEST("\"a\"", "tools/list", META(""))));
    hears_of(400, "-32600", NULL);
    finish(newest_run(), "x", false);
    hears_of(200, "\"result\"", NULL);
    assert_true(say(CALL("\"a\"", "")));
    assert_int_equal(run_count, 2);
}

static void test_so_many_requests_are_open_and_no_more(void **state)
{
    char text[600];

    (void)state;
    for (int i = 0; i < SP_MCP_OPEN_MAX; i++) {
        (void)snprintf(text, sizeof text, CALL("%d", ""), i);
        assert_true(say(text));
    }
    hears_nothing();
    assert_true(say(CALL("\"more\"", "")));
    hears_of(200, "\"id\":\"more\"", "-32603", NULL);
    assert_int_equal(run_count, SP_MCP_OPEN_MAX);
    assert_true(say(REQUEST("\"list\"", "tools/list", META("")))); /* what is answered at once */
    hears_of(200, "\"tools\"", NULL);
    finish(runs[17], "x", false);
    hears_of(200, "\"id\":17,", NULL);
    assert_true(say(CALL("\"more\"", "")));
    hears_nothing();
}

static void test_too_many_runs_are_for_the_model_to_know(void **state)
{
    (void)state;
    is_run_limit = true;
    assert_true(say(CALL("1", "")));
    hears_of(200, "too many calls wait already", "\"isError\":true", NULL);
    pass(100000);
    hears_nothing();
}

static void test_without_a_clock_nothing_begins(void **state)
{
    (void)state;
    has_no_timers = true;
    assert_true(say(CALL("1", "")));
    hears_of(200, "-32603", NULL);
    assert_int_equal(run_count, 0);
}

static void test_a_run_is_told_whether_the_host_can_ask(void **state)
{
    (void)state;
    assert_true(say(CALL("1", "")));
    assert_true(newest_run()->cannot_ask_host);
    assert_true(say(CALL("2", FORMS)));
    assert_false(newest_run()->cannot_ask_host);
    assert_true(say(CALL("3", "\"elicitation\":{\"url\":{}}")));
    assert_true(newest_run()->cannot_ask_host);
    assert_true(say(CALL("4", "\"elicitation\":{\"url\":{},\"form\":{}}")));
    assert_false(newest_run()->cannot_ask_host);
    initialize("2025-03-26", FORMS);
    assert_true(say(LEGACY_CALL("5")));
    assert_true(newest_run()->cannot_ask_host);
}

static const struct CMUnitTest tests[] = {
    peer_test(test_progress_comes_at_once_and_every_15_seconds),
    peer_test(test_with_a_token_nobody_is_hurried),
    peer_test(test_numbers_rise_over_what_a_full_connection_misses),
    peer_test(test_the_first_version_has_no_message_in_progress),
    peer_test(test_without_a_token_a_call_is_answered_by_50_seconds),
    peer_test(test_a_call_that_cannot_be_hurried_is_left_to_a_repeat),
    peer_test(test_a_token_that_cannot_be_kept_is_none),
    peer_test(test_a_cancelled_call_is_heard_of_no_more),
    peer_test(test_a_cancellation_that_comes_too_late_is_ignored),
    peer_test(test_a_hurried_call_can_still_be_cancelled),
    peer_test(test_a_modern_call_is_cancelled_when_nobody_reads),
    peer_test(test_a_legacy_call_goes_on_unheard),
    peer_test(test_whoever_is_gone_takes_only_its_own),
    peer_test(test_a_reader_may_be_found_gone_while_something_is_said),
    peer_test(test_a_peer_that_ends_cancels_what_is_open),
    peer_test(test_an_id_that_is_open_is_refused),
    peer_test(test_so_many_requests_are_open_and_no_more),
    peer_test(test_too_many_runs_are_for_the_model_to_know),
    peer_test(test_without_a_clock_nothing_begins),
    peer_test(test_a_run_is_told_whether_the_host_can_ask),
};

TEST_MAIN(tests)

/* SPDX-License-Identifier: Apache-2.0 */
/* Questions of calls that legacy clients are sent as requests. */
#include "mcp_fixture.h"

#define ACCEPT(id, decision)                                                                 \
    "{\"jsonrpc\":\"2.0\",\"id\":\"" id "\",\"result\":{\"action\":\"accept\",\"content\":{" \
    "\"decision\":\"" decision "\"}}}"
#define ELICIT(n) "{\"jsonrpc\":\"2.0\",\"id\":\"elicit-" n "\",\"method\":\"elicitation/create\","

static struct fake_run *ask_by_request(const char *id, const char *number)
{
    char text[400];
    char part[100];

    (void)snprintf(text, sizeof text, LEGACY_CALL("%s"), id);
    assert_true(say(text));
    ask_something(newest_run());
    (void)snprintf(part, sizeof part, ELICIT("%s"), number);
    hears_of(0, part, "npm publish", "requestedSchema", NULL);
    return newest_run();
}

static void test_a_legacy_client_is_sent_the_form(void **state)
{
    (void)state;
    initialize("2025-06-18", FORMS);
    struct fake_run *f = ask_by_request("1", "1");
    assert_null(strstr(sent[sent_seen - 1].text, "\"mode\""));
    assert_false(say(ACCEPT("elicit-2", "once"))); /* never asked */
    assert_int_equal(f->decided, 0);
    assert_false(say(ACCEPT("elicit-1", "once")));
    assert_int_equal(f->decided, 1);
    assert_int_equal(f->decision, SP_DECISION_APPROVED);
    assert_false(say(ACCEPT("elicit-1", "deny"))); /* a second answer */
    assert_int_equal(f->decided, 1);
    ask_something(f); /* and a second question */
    hears_of(0, ELICIT("2"), NULL);
    assert_false(
        say("{\"jsonrpc\":\"2.0\",\"id\":\"elicit-2\",\"result\":{\"action\":\"cancel\"}}"));
    assert_int_equal(f->decision, SP_DECISION_FAILED);
    finish(f, "aborted by user", true);
    hears_of(200, "\"id\":1,", "aborted by user", NULL);
}

static void test_the_newest_legacy_version_names_the_mode(void **state)
{
    (void)state;
    initialize("2025-11-25", "\"elicitation\":{\"form\":{}}");
    (void)ask_by_request("1", "1");
    assert_non_null(strstr(sent[sent_seen - 1].text, "\"mode\":\"form\""));
}

static void test_clients_that_cannot_be_asked_are_not(void **state)
{
    static const char *const versions[] = {"2024-11-05", "2025-03-26", "2025-06-18"};

    (void)state;
    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++) {
        initialize(versions[i], i == 2 ? "" : FORMS);
        assert_true(say(LEGACY_CALL("1")));
        ask_something(newest_run());
        assert_int_equal(newest_run()->decision, SP_DECISION_DENIED);
        hears_nothing();
        finish(newest_run(), "x", true);
        hears_of(200, "\"id\":1,", NULL);
    }
    assert_true(say(REQUEST("\"i\"", "initialize",
                            "\"protocolVersion\":\"2025-06-18\",\"capabilities\":{" FORMS "}")));
    (void)next_sent();
    assert_true(say(LEGACY_CALL("1"))); /* before `initialized` */
    ask_something(newest_run());
    assert_int_equal(newest_run()->decided, 1);
    hears_nothing();
}

static void test_a_client_that_answers_with_an_error_leaves_it_to_the_approver(void **state)
{
    (void)state;
    initialize("2025-06-18", FORMS);
    struct fake_run *f = ask_by_request("1", "1");
    assert_false(say("{\"jsonrpc\":\"2.0\",\"id\":\"elicit-1\",\"error\":{\"code\":-32601}}"));
    assert_int_equal(f->decided, 1);
    assert_int_equal(f->decision, SP_DECISION_DENIED);
    finish(f, "x", true);
    (void)next_sent();
    f = ask_by_request("1", "2");
    assert_false(say(ACCEPT("elicit-2", "whatever")));
    assert_int_equal(f->decision, SP_DECISION_DENIED);
}

static void test_a_question_nobody_needs_is_taken_back(void **state)
{
    (void)state;
    initialize("2025-06-18", FORMS);
    struct fake_run *f = ask_by_request("1", "1");
    f->question.id = 0;
    f->run.ops->withdrawn(f->run.user);
    hears(0,
          "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":"
          "\"elicit-1\"}}");
    assert_false(say(ACCEPT("elicit-1", "once")));
    assert_int_equal(f->decided, 0);
    ask_something(f);
    hears_of(0, ELICIT("2"), NULL);
    assert_false(say(ACCEPT("elicit-1", "once"))); /* the old one is not the new one's */
    assert_int_equal(f->decided, 0);
}

static void test_an_answer_decides_the_question_that_was_asked_and_no_other(void **state)
{
    (void)state;
    initialize("2025-06-18", FORMS);
    struct fake_run *f = ask_by_request("1", "1");
    f->question.id = ++next_question; /* another, which is not told yet */
    assert_false(say(ACCEPT("elicit-1", "once")));
    assert_int_equal(f->decided, 0);
    finish(f, "x", false);
    (void)next_sent();
    f = ask_by_request("1", "2");
    ask_something(f); /* another, before the first was answered or taken back */
    hears_of(0, "notifications/cancelled", "elicit-2", NULL);
    hears_of(0, ELICIT("3"), NULL);
    assert_false(say(ACCEPT("elicit-2", "once")));
    assert_int_equal(f->decided, 0);
    finish(f, "x", false);
    hears_of(200, "\"id\":1,", NULL);
    assert_false(say(ACCEPT("elicit-3", "once")));
    assert_int_equal(f->decided, 0);
}

static void test_a_late_answer_is_kept_for_the_same_call(void **state)
{
    (void)state;
    initialize("2025-06-18", FORMS);
    struct fake_run *f = ask_by_request("1", "1");
    pass(47500);
    hears_of(200, "\"id\":1,", PENDING, "\"isError\":true", NULL);
    pass(100000);
    assert_false(say(ACCEPT("elicit-1", "once")));
    assert_true(f->has_kept); /* nothing runs yet */
    assert_true(say(LEGACY_CALL("2")));
    assert_int_equal(run_count, 1);
    assert_false(f->has_kept);
    hears_nothing();
    finish(f, "ran", false);
    hears_of(200, "\"id\":2,", "ran", NULL);
}

static void test_the_same_call_finds_its_question_still_open(void **state)
{
    (void)state;
    initialize("2025-06-18", FORMS);
    struct fake_run *f = ask_by_request("1", "1");
    pass(47500);
    hears_of(200, PENDING, NULL);
    assert_true(say(LEGACY_CALL("2")));
    hears_nothing(); /* the form is there already */
    assert_false(say(ACCEPT("elicit-1", "session")));
    assert_int_equal(f->decision, SP_DECISION_APPROVED_FOR_SESSION);
    assert_false(f->has_kept);
    finish(f, "ran", false);
    hears_of(200, "\"id\":2,", "ran", NULL);
}

static void test_a_parked_question_survives_its_peer(void **state)
{
    (void)state;
    initialize("2025-06-18", FORMS);
    struct fake_run *f = ask_by_request("1", "1");
    pass(47500);
    hears_of(200, PENDING, NULL);
    sp_mcp_peer_free(peer);
    peer = sp_mcp_peer_new(&server, &caller, NULL);
    initialize("2025-06-18", FORMS);
    assert_true(say(LEGACY_CALL("1")));
    hears_of(0, ELICIT("1"), NULL); /* whoever is new is asked anew */
    assert_false(say(ACCEPT("elicit-1", "once")));
    assert_int_equal(f->decided, 1);
}

static void test_an_answer_finds_nothing_once_the_run_is_gone(void **state)
{
    (void)state;
    initialize("2025-06-18", FORMS);
    struct fake_run *f = ask_by_request("1", "1");
    pass(47500);
    hears_of(200, PENDING, NULL);
    pass(SP_MCP_PARKED_MS); /* it was there for too long */
    assert_true(f->is_cancelled);
    assert_false(say(ACCEPT("elicit-1", "once")));
    assert_int_equal(f->decided, 0);
    hears_nothing();
}

static void test_a_cancelled_call_takes_its_question_along(void **state)
{
    (void)state;
    initialize("2025-06-18", FORMS);
    struct fake_run *f = ask_by_request("1", "1");
    assert_false(say(CANCEL("1")));
    assert_true(f->is_cancelled);
    assert_false(say(ACCEPT("elicit-1", "once")));
    assert_int_equal(f->decided, 0);
    hears_nothing();
}

static void test_a_client_that_went_may_still_answer_what_it_was_asked(void **state)
{
    (void)state;
    initialize("2025-06-18", FORMS);
    struct fake_run *f = ask_by_request("1", "1");
    sp_mcp_peer_out_gone(peer, &out);
    assert_false(say(ACCEPT("elicit-1", "once")));
    assert_int_equal(f->decided, 1);
    ask_something(f); /* but cannot be asked anything more */
    assert_int_equal(f->decided, 2);
    assert_int_equal(f->decision, SP_DECISION_DENIED);
    hears_nothing();
}

static void test_a_client_may_be_found_gone_while_it_is_asked(void **state)
{
    (void)state;
    initialize("2025-06-18", FORMS);
    assert_true(say(LEGACY_CALL("1")));
    gone_on_send = peer;
    ask_something(newest_run());
    hears_of(0, ELICIT("1"), NULL);
    assert_false(newest_run()->is_cancelled);
    assert_int_equal(newest_run()->decided, 0);
    gone_on_send = NULL;
    pass(47500);
    assert_true(newest_run()->run.is_held); /* for whoever calls again */
    hears_nothing();
}

static void test_a_question_after_50_seconds_is_sent_and_waits_parked(void **state)
{
    (void)state;
    initialize("2025-06-18", FORMS);
    assert_true(say(LEGACY_CALL("1")));
    pass(47500);
    ask_something(newest_run());
    hears_of(0, ELICIT("1"), NULL);
    hears_of(200, "\"id\":1,", PENDING, NULL);
    assert_false(say(ACCEPT("elicit-1", "once")));
    assert_true(newest_run()->has_kept);
}

static const struct CMUnitTest tests[] = {
    peer_test(test_a_legacy_client_is_sent_the_form),
    peer_test(test_the_newest_legacy_version_names_the_mode),
    peer_test(test_clients_that_cannot_be_asked_are_not),
    peer_test(test_a_client_that_answers_with_an_error_leaves_it_to_the_approver),
    peer_test(test_a_question_nobody_needs_is_taken_back),
    peer_test(test_an_answer_decides_the_question_that_was_asked_and_no_other),
    peer_test(test_a_late_answer_is_kept_for_the_same_call),
    peer_test(test_the_same_call_finds_its_question_still_open),
    peer_test(test_a_parked_question_survives_its_peer),
    peer_test(test_an_answer_finds_nothing_once_the_run_is_gone),
    peer_test(test_a_cancelled_call_takes_its_question_along),
    peer_test(test_a_client_that_went_may_still_answer_what_it_was_asked),
    peer_test(test_a_client_may_be_found_gone_while_it_is_asked),
    peer_test(test_a_question_after_50_seconds_is_sent_and_waits_parked),
};

TEST_MAIN(tests)

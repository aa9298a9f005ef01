/* SPDX-License-Identifier: Apache-2.0 */
/* Questions of calls: by the result, and by the configured approver. */
#include "mcp_fixture.h"

#define ANSWER(number, decision)                                                                   \
    "\"inputResponses\":{\"approve_" number "\":{\"action\":\"accept\",\"content\":{\"decision\":" \
    "\"" decision "\"}}}"
static char ticket[512];

static void take_ticket(const char *text)
{
    const char *at = strstr(text, "\"requestState\":\"");

    assert_non_null(at);
    (void)snprintf(ticket, sizeof ticket, "%.*s", (int)strcspn(at + 16, "\""), at + 16);
}

/* A call that was asked about, and whose ticket is kept. */
static struct fake_run *ask_by_result(void)
{
    assert_true(say(CALL("7", FORMS)));
    struct fake_run *f = newest_run();
    ask_something(f);
    take_ticket(hears_of(
        200, "\"id\":7,\"result\":{\"resultType\":\"input_required\",\"inputRequests\":{\"approve_",
        "\":{\"method\":\"elicitation/create\",\"params\":{\"mode\":\"form\",\"message\":",
        "npm publish", "\"requestedSchema\"", "\"const\":\"once\"", INFO, NULL));
    hears_nothing();
    assert_true(f->run.is_held);
    return f;
}

static void come_back(const char *id, const char *arguments, const char *responses)
{
    char text[1600];

    (void)snprintf(text, sizeof text,
                   REQUEST("%s", "tools/call",
                           "\"name\":\"exec_command\",\"arguments\":{%s},\"requestState\":\"%s\""
                           "%s%s," META(FORMS)),
                   id, arguments, ticket, responses[0] != 0 ? "," : "", responses);
    assert_true(say(text));
}

/* ---- by the result ---- */

static void test_an_answer_comes_back_with_the_call(void **state)
{
    (void)state;
    struct fake_run *f = ask_by_result();
    pass(500000); /* nothing is held open meanwhile */
    come_back("8", " \"cmd\" : \"a\" ", ANSWER("1", "once"));
    assert_int_equal(f->decided, 1);
    assert_int_equal(f->decision, SP_DECISION_APPROVED);
    assert_false(f->run.is_held);
    assert_int_equal(run_count, 1);
    hears_nothing();
    finish(f, "published", false);
    hears_of(200, "\"id\":8,", "\"resultType\":\"complete\"", "published", NULL);
}

static void test_every_choice_is_understood(void **state)
{
    static const struct {
        const char *response;
        enum sp_decision_kind kind;
    } rows[] = {
        {"{\"action\":\"accept\",\"content\":{\"decision\":\"once\"}}", SP_DECISION_APPROVED},
        {"{\"action\":\"accept\",\"content\":{\"decision\":\"deny\"}}", SP_DECISION_DENIED},
        {"{\"action\":\"accept\",\"content\":{\"decision\":\"session\"}}",
         SP_DECISION_APPROVED_FOR_SESSION},
        {"{\"action\":\"decline\"}", SP_DECISION_DENIED},
        {"{\"action\":\"cancel\"}", SP_DECISION_FAILED},
    };
    char response[200];

    (void)state;
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct fake_run *f = ask_by_result();

        (void)snprintf(response, sizeof response, "\"inputResponses\":{\"approve_%u\":%s}", i + 1,
                       rows[i].response);
        come_back("8", "\"cmd\":\"a\"", response);
        assert_int_equal(f->decided, 1);
        assert_int_equal(f->decision, rows[i].kind);
        finish(f, "x", false);
        hears_of(200, "\"id\":8,", NULL);
    }
}

static void test_what_is_missing_is_asked_again_under_another_key(void **state)
{
    static const char *const bad[] = {
        "",
        "\"inputResponses\":{}",
        (ANSWER("99", "once")),
    };

    (void)state;
    struct fake_run *f = ask_by_result();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char key[32];

        come_back("8", "\"cmd\":\"a\"", bad[i]);
        (void)snprintf(key, sizeof key, "\"approve_%zu\":{", i + 2);
        take_ticket(hears_of(200, "\"resultType\":\"input_required\"", key, NULL));
        assert_int_equal(f->decided, 0);
    }
    come_back("8", "\"cmd\":\"a\"", ANSWER("4", "maybe"));
    take_ticket(hears_of(200, "\"resultType\":\"input_required\"", "\"approve_5\":{", NULL));
    come_back("9", "\"cmd\":\"a\"", ANSWER("5", "once"));
    assert_int_equal(f->decided, 1);
    assert_int_equal(run_count, 1);
}

static void test_an_old_key_answers_nothing(void **state)
{
    (void)state;
    struct fake_run *f = ask_by_result();
    come_back("8", "\"cmd\":\"a\"", "");
    take_ticket(hears_of(200, "\"approve_2\":{", NULL));
    come_back("9", "\"cmd\":\"a\"", ANSWER("1", "once"));
    hears_of(200, "\"approve_3\":{", NULL);
    assert_int_equal(f->decided, 0);
}

static void refuses_state(const char *id)
{
    char part[32];

    (void)snprintf(part, sizeof part, "\"id\":%s,", id);
    hears_of(200, part, "\"isError\":true", "repeat the call without requestState", NULL);
}

static void test_a_state_is_good_for_one_call_and_once(void **state)
{
    (void)state;
    struct fake_run *f = ask_by_result();
    come_back("8", "\"cmd\":\"b\"", ANSWER("1", "once")); /* other arguments */
    refuses_state("8");
    ticket[0] = 'w'; /* a flipped bit */
    come_back("8", "\"cmd\":\"a\"", ANSWER("1", "once"));
    hears_of(200, "\"id\":8,", "-32602", "requestState: it was not made by this server",
             "repeat the call without it", NULL);
    ticket[0] = 'v';
    assert_int_equal(f->decided, 0);
    assert_int_equal(run_count, 1);
    come_back("8", "\"cmd\":\"a\"", ANSWER("1", "once"));
    finish(f, "x", false);
    hears_of(200, "\"isError\":false", NULL);
    come_back("9", "\"cmd\":\"a\"", ANSWER("1", "once")); /* again */
    refuses_state("9");
    assert_int_equal(f->decided, 1);
    assert_int_equal(run_count, 1);
    pass(100000);
    hears_nothing();
}

static void test_another_caller_cannot_use_a_state(void **state)
{
    struct sp_mcp_peer *mine = peer;

    (void)state;
    struct fake_run *f = ask_by_result();
    peer = sp_mcp_peer_new(&server, &other_caller, NULL);
    assert_non_null(peer);
    come_back("8", "\"cmd\":\"a\"", ANSWER("1", "once"));
    refuses_state("8");
    sp_mcp_peer_free(peer);
    peer = mine;
    assert_int_equal(f->decided, 0);
    assert_int_equal(run_count, 1);
}

static void test_another_peer_of_the_same_caller_can(void **state)
{
    (void)state;
    struct fake_run *f = ask_by_result();
    sp_mcp_peer_free(peer);
    peer = sp_mcp_peer_new(&server, &caller, NULL);
    come_back("8", "\"cmd\":\"a\"", ANSWER("1", "once"));
    assert_int_equal(f->decided, 1);
}

static void test_a_second_question_has_a_key_of_its_own(void **state)
{
    (void)state;
    struct fake_run *f = ask_by_result();
    come_back("8", "\"cmd\":\"a\"", ANSWER("1", "once"));
    ask_something(f);
    take_ticket(hears_of(200, "\"id\":8,", "input_required", "\"approve_2\":{", NULL));
    come_back("9", "\"cmd\":\"a\"", ANSWER("2", "deny"));
    assert_int_equal(f->decided, 2);
    assert_int_equal(f->decision, SP_DECISION_DENIED);
}

static void test_a_repeat_without_state_starts_anew(void **state)
{
    (void)state;
    (void)ask_by_result();
    assert_true(say(CALL("8", FORMS)));
    assert_int_equal(run_count, 2);
}

static void test_a_call_that_came_back_may_be_cancelled(void **state)
{
    (void)state;
    struct fake_run *f = ask_by_result();
    come_back("8", "\"cmd\":\"a\"", ANSWER("1", "once"));
    assert_false(say(CANCEL("8")));
    assert_true(f->is_cancelled);
    hears_nothing();
}

static void test_a_question_that_went_before_it_was_told_is_not_asked(void **state)
{
    (void)state;
    assert_true(say(CALL("1", FORMS)));
    struct fake_run *f = newest_run();
    f->run.ops->question(f->run.user);
    hears_nothing();
    f->run.ops->withdrawn(f->run.user);
    finish(f, "x", false);
    hears_of(200, "\"id\":1,", NULL);
}

/* ---- by the approver ---- */

static void test_without_forms_the_approver_decides(void **state)
{
    (void)state;
    assert_true(say(CALL("1", "")));
    ask_something(newest_run());
    assert_int_equal(newest_run()->decision, SP_DECISION_DENIED);
    assert_int_equal(newest_run()->decided, 1);
    hears_nothing(); /* no inputRequests */
    finish(newest_run(), "denied", true);
    hears_of(200, "\"resultType\":\"complete\"", "denied", "\"isError\":true", NULL);
    has_approver = true;
    assert_true(say(CALL("2", "\"elicitation\":{\"url\":{}}")));
    ask_something(newest_run());
    assert_true(newest_run()->asks_next);
    hears_nothing();
}

static void test_a_question_open_for_50_seconds_waits_for_the_same_call(void **state)
{
    (void)state;
    has_approver = true;
    assert_true(say(CALL("1", "")));
    struct fake_run *f = newest_run();
    pass(20000);
    ask_something(f);
    pass(27499);
    hears_nothing();
    pass(1);
    hears_of(200, "\"id\":1,", PENDING, "\"isError\":true", NULL);
    assert_false(f->is_cancelled);
    assert_false(f->was_hurried);
    assert_true(f->run.is_held);

    assert_true(say(REQUEST("2", "tools/call",
                            "\"name\":\"exec_command\",\"arguments\":{\"cmd\":\"b\"}," META(""))));
    assert_int_equal(run_count, 2); /* another call */
    assert_true(say(CALL("3", "")));
    assert_int_equal(run_count, 2); /* the same */
    assert_true(f->asks_next);
    assert_false(f->run.is_held);
    pass(47500);
    hears_of(200, "\"id\":3,", PENDING, NULL);
    assert_true(runs[1]->was_hurried);
    /* The approver says yes while nobody waits: it is kept for the next, which runs it. */
    __wrap_sp_mcp_run_decide(&f->run, &(struct sp_decision){.kind = SP_DECISION_APPROVED});
    assert_true(f->has_kept);
    assert_true(say(CALL("4", "")));
    assert_false(f->has_kept);
    finish(f, "ran", false);
    hears_of(200, "\"id\":4,", "ran", NULL);
    assert_true(say(CALL("5", ""))); /* spent */
    assert_int_equal(run_count, 3);
}

static void test_a_question_that_comes_after_50_seconds_ends_the_call(void **state)
{
    (void)state;
    has_approver = true;
    assert_true(say(CALL("1", "")));
    pass(47500);
    assert_true(newest_run()->was_hurried);
    ask_something(newest_run());
    assert_true(newest_run()->asks_next);
    hears_of(200, PENDING, NULL);
    has_approver = false;
    assert_true(say(REQUEST("2", "tools/call", "\"name\":\"exec_command\"," META(""))));
    pass(47500);
    ask_something(newest_run()); /* denied at once: the result comes of its own */
    hears_nothing();
    finish(newest_run(), "denied", true);
    hears_of(200, "denied", NULL);
}

static void test_with_a_token_a_question_may_take_its_time(void **state)
{
    (void)state;
    has_approver = true;
    assert_true(say(REQUEST("1", "tools/call", EXEC "," TOKEN_META(""))));
    ask_something(newest_run());
    pass(300000);
    assert_false(newest_run()->run.is_held);
    for (int i = 0; i < 22; i++) /* at once, for the question, and every 15 s */
        hears_of(0, "notifications/progress", NULL);
    hears_nothing();
}

static const struct CMUnitTest tests[] = {
    peer_test(test_an_answer_comes_back_with_the_call),
    peer_test(test_every_choice_is_understood),
    peer_test(test_what_is_missing_is_asked_again_under_another_key),
    peer_test(test_an_old_key_answers_nothing),
    peer_test(test_a_state_is_good_for_one_call_and_once),
    peer_test(test_another_caller_cannot_use_a_state),
    peer_test(test_another_peer_of_the_same_caller_can),
    peer_test(test_a_second_question_has_a_key_of_its_own),
    peer_test(test_a_repeat_without_state_starts_anew),
    peer_test(test_a_call_that_came_back_may_be_cancelled),
    peer_test(test_a_question_that_went_before_it_was_told_is_not_asked),
    peer_test(test_without_forms_the_approver_decides),
    peer_test(test_a_question_open_for_50_seconds_waits_for_the_same_call),
    peer_test(test_a_question_that_comes_after_50_seconds_ends_the_call),
    peer_test(test_with_a_token_a_question_may_take_its_time),
};

TEST_MAIN(tests)

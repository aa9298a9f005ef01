/* SPDX-License-Identifier: Apache-2.0 */
/* Questions about hosts whose asker goes away, whose number is great, and what the log has. */
#include "approve/audit.h"
#include "approve/cache.h"
#include "network_fixture.h"

static void text_of(const struct request *r, char text[256])
{
    (void)snprintf(text, 256, "%.*s", (int)r->r.text.n, r->r.text.p);
}

/* ---- hanging up ---- */

static void test_a_hang_up_takes_the_question_with_it(void **state)
{
    struct request r;
    char text[256];

    (void)state;
    begin(&r, "x.com");
    sp_network_hang_up(&r.r);
    assert_int_equal(r.r.state, SP_NETWORK_DENIED);
    text_of(&r, text);
    assert_disconnected(text);
    assert_disconnected(outcome);
    assert_false(was_cancelled);
    assert_int_equal(withdrawals, 1);
    assert_int_equal(open_count, 0);
    assert_int_equal(r.told, 0);
    sp_network_hang_up(&r.r); /* twice is fine */
    assert_int_equal(outcomes, 1);
    end(&r);
    end(&r);
    expect_host("x.com", SP_NETWORK_ASKING);
}

static void test_the_time_is_that_of_the_request(void **state)
{
    struct request r;
    unsigned ms = 0;

    (void)state;
    begin(&r, "x.com");
    (void)usleep(30000);
    sp_network_hang_up(&r.r);
    assert_int_equal(sscanf(outcome, "Network request disconnected after %u", &ms), 1);
    assert_in_range(ms, 29, 20000);
    end(&r);
}

static void test_of_two_who_wait_one_may_hang_up(void **state)
{
    struct request r[3];
    char text[256];

    (void)state;
    for (size_t who = 0; who < 3; who++) {
        for (size_t i = 0; i < 3; i++)
            begin(&r[i], "x.com");
        sp_network_hang_up(&r[who].r);
        text_of(&r[who], text);
        assert_disconnected(text);
        assert_int_equal(withdrawals, 0);
        assert_int_equal(outcomes, 0);
        assert_int_equal(open_count, 1);
        answer(0, SP_DECISION_APPROVED);
        for (size_t i = 0; i < 3; i++) {
            assert_int_equal(r[i].told, i != who);
            assert_int_equal(r[i].r.state, i != who ? SP_NETWORK_ALLOWED_ONCE : SP_NETWORK_DENIED);
            end(&r[i]);
        }
        renew_command();
    }
}

static void test_the_last_one_to_leave_ends_it(void **state)
{
    struct request r[2];

    (void)state;
    begin(&r[0], "x.com");
    begin(&r[1], "x.com");
    end(&r[0]);
    assert_int_equal(withdrawals, 0);
    end(&r[1]);
    assert_int_equal(withdrawals, 1);
    assert_int_equal(r[0].told + r[1].told, 0);
    assert_disconnected(outcome);
}

static void test_a_late_answer_is_nobodys(void **state)
{
    const struct sp_decision yes = {.kind = SP_DECISION_APPROVED_FOR_SESSION};
    struct request r;

    (void)state;
    begin(&r, "x.com");
    const struct open_question q = open_questions[0];
    end(&r);
    q.done(q.user, q.id, &yes);
    sp_approvals_decide(approvals, q.id, &yes);
    assert_null(sp_approvals_question(approvals, q.id));
    expect_host("x.com", SP_NETWORK_ASKING); /* it was not remembered either */
}

static void test_a_command_that_ended_asks_no_more(void **state)
{
    struct sp_network_ask ask = for_host("x.com");
    struct request r[4];

    (void)state;
    begin(&r[0], "x.com");
    begin(&r[1], "x.com");
    begin(&r[2], "y.com");
    ask.command = &other;
    begin_as(&r[3], &ask);
    sp_network_command_done(approvals, &command);
    for (size_t i = 0; i < 3; i++) {
        char text[256];

        text_of(&r[i], text);
        assert_disconnected(text);
        assert_int_equal(r[i].told, 1);
    }
    assert_int_equal(outcomes, 0); /* it would come too late */
    assert_int_equal(r[3].r.state, SP_NETWORK_ASKING);
    for (size_t i = 0; i < 4; i++)
        end(&r[i]);
}

/* ---- callbacks that end things ---- */

static struct request *theirs[3];

static void free_all(void)
{
    for (size_t i = 0; i < 3; i++) {
        if (theirs[i] == NULL)
            continue;
        end(theirs[i]);
        free(theirs[i]);
        theirs[i] = NULL;
    }
}

static void on_outcome_end_all(struct sp_network_command *c, const struct sp_network_outcome *o)
{
    on_outcome(c, o);
    sp_network_command_done(approvals, c);
    free_all();
}

static void on_told_end_all(struct sp_network_request *r)
{
    (void)r;
    free_all();
}

static void begin_theirs(void (*told)(struct sp_network_request *), const char *third)
{
    for (size_t i = 0; i < 3; i++) {
        const struct sp_network_ask ask = for_host(i < 2 ? "x.com" : third);

        theirs[i] = calloc(1, sizeof *theirs[i]);
        sp_network_ask(&theirs[i]->r, approvals, &ask, told);
    }
}

static void test_a_command_may_end_with_its_outcome(void **state)
{
    static const enum sp_decision_kind kinds[] = {SP_DECISION_DENIED, SP_DECISION_ABORT,
                                                  SP_DECISION_TIMED_OUT};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        command = make_command("c1");
        command.outcome = on_outcome_end_all;
        begin_theirs(on_told, i == 0 ? "y.com" : "x.com");
        answer(0, kinds[i]);
        assert_null(theirs[0]);
        assert_int_equal(outcomes, i + 1);
    }
}

static void test_whoever_is_told_may_end_all_others(void **state)
{
    const struct sp_decision yes = about_host("x.com", true);
    const struct sp_decision no = about_host("x.com", false);

    (void)state;
    begin_theirs(on_told_end_all, "y.com");
    answer(0, SP_DECISION_APPROVED);
    assert_null(theirs[0]);
    renew_command();
    begin_theirs(on_told_end_all, "y.com");
    answer(1, SP_DECISION_DENIED);
    assert_null(theirs[0]);
    command = make_command("c1");
    begin_theirs(on_told_end_all, "y.com");
    sp_network_command_done(approvals, &command);
    assert_null(theirs[0]);
    begin_theirs(on_told_end_all, "y.com");
    answer_with(0, &yes);
    assert_null(theirs[0]);
    remake(NULL);
    begin_theirs(on_told_end_all, "y.com");
    answer_with(0, &no);
    assert_null(theirs[0]);
}

static void test_a_hang_up_may_end_the_command(void **state)
{
    (void)state;
    command.outcome = on_outcome_end_all;
    begin_theirs(on_told, "y.com");
    end(theirs[0]);
    end(theirs[1]);
    assert_null(theirs[2]);
    assert_int_equal(outcomes, 1);
}

static void test_another_turn_takes_the_place_of_a_question(void **state)
{
    struct sp_network_ask ask = for_host("x.com");
    struct request r;

    (void)state;
    begin_theirs(on_told_end_all, "y.com");
    ask.turn_id = SP_STR("t2");
    begin_as(&r, &ask);
    assert_null(theirs[0]);
    assert_int_equal(r.r.state, SP_NETWORK_ASKING);
    assert_int_equal(open_count, 1);
    assert_int_equal(outcomes, 2); /* that host's, and y.com's, which was hung up on */
    assert_false(was_cancelled);
    end(&r);
}

static struct request again;

static void on_told_ask_again(struct sp_network_request *r)
{
    (void)r;
    again.told = 0;
    begin(&again, "x.com");
}

static void test_whoever_is_told_may_ask_again(void **state)
{
    const struct sp_network_ask ask = for_host("x.com");
    struct sp_network_request r;

    (void)state;
    sp_network_ask(&r, approvals, &ask, on_told_ask_again);
    answer(0, SP_DECISION_APPROVED);
    assert_int_equal(again.r.state, SP_NETWORK_ALLOWED_ONCE);
    end(&again);
    sp_network_request_done(&r);
    renew_command();
    sp_network_ask(&r, approvals, &ask, on_told_ask_again);
    answer(0, SP_DECISION_DENIED);
    assert_text(&again, "rejected by user"); /* without a question */
    end(&again);
    sp_network_request_done(&r);
}

/* ---- the end of all ---- */

static void test_all_ends_with_the_conversation(void **state)
{
    struct sp_network_ask ask = for_host("x.com");
    struct request r[3];

    (void)state;
    begin(&r[0], "x.com");
    begin(&r[1], "x.com");
    ask.command = &other;
    begin_as(&r[2], &ask);
    sp_approvals_free(approvals);
    approvals = NULL;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(r[i].r.state, SP_NETWORK_DENIED);
        assert_int_equal(r[i].told, 1);
        end(&r[i]);
    }
    assert_int_equal(withdrawals, 2);
    assert_int_equal(open_count, 0);
}

static void test_nobody_asks_again_at_the_end(void **state)
{
    const struct sp_network_ask ask = for_host("x.com");
    struct sp_network_request r;

    (void)state;
    sp_network_ask(&r, approvals, &ask, on_told_ask_again);
    sp_approvals_free(approvals);
    approvals = NULL;
    assert_int_equal(questions, 1);
    assert_int_equal(again.r.state, SP_NETWORK_DENIED);
    end(&again);
    sp_network_request_done(&r);
}

/* ---- bounds ---- */

static void test_open_questions_are_bounded(void **state)
{
    static struct request r[SP_NETWORK_QUESTIONS_MAX + 1];
    char host[32];

    (void)state;
    for (size_t i = 0; i <= SP_NETWORK_QUESTIONS_MAX; i++) {
        (void)snprintf(host, sizeof host, "h%zu.com", i);
        begin(&r[i], host);
    }
    assert_int_equal(questions, SP_NETWORK_QUESTIONS_MAX);
    assert_text(&r[SP_NETWORK_QUESTIONS_MAX],
                "Network access to \"https://h64.com:443\" was blocked: too many questions are "
                "open; try again when some are answered.");
    expect_host("h0.com", SP_NETWORK_ASKING); /* who waits for one that is open is none more */
    answer(3, SP_DECISION_APPROVED);
    end(&r[SP_NETWORK_QUESTIONS_MAX]);
    begin(&r[SP_NETWORK_QUESTIONS_MAX], host);
    assert_int_equal(r[SP_NETWORK_QUESTIONS_MAX].r.state, SP_NETWORK_ASKING);
    for (size_t i = 0; i <= SP_NETWORK_QUESTIONS_MAX; i++)
        end(&r[i]);
}

/* The oldest is forgotten, whether it was a yes or a no: then it is asked for again. */
static void test_what_is_remembered_is_bounded(void **state)
{
    static const struct sp_decision yes = {.kind = SP_DECISION_APPROVED_FOR_SESSION};
    char host[32];

    (void)state;
    options.audit_log = NULL;
    remake(NULL);
    soon = &yes;
    for (size_t i = 0; i <= SP_CACHE_KEYS; i++) {
        (void)snprintf(host, sizeof host, "h%zu.com", i);
        expect_host(host, SP_NETWORK_ALLOWED);
    }
    assert_int_equal(questions, SP_CACHE_KEYS + 1);
    soon = NULL;
    expect_host("h1.com", SP_NETWORK_ALLOWED);
    expect_host("h0.com", SP_NETWORK_ASKING);
}

/* ---- the log ---- */

static void test_every_decision_is_in_the_log(void **state)
{
    const struct sp_decision no = about_host("e.com", false);
    struct sp_network_ask local = for_host("127.1");
    struct sp_audit_report report;
    struct request r;

    (void)state;
    remake("network_rule(host=\"no.com\", protocol=\"http\", decision=\"deny\")\n"
           "network_rule(host=\"ok.com\", protocol=\"http\", decision=\"allow\")\n");
    expect_host("no.com", SP_NETWORK_DENIED);
    expect_host("ok.com", SP_NETWORK_ALLOWED);
    local.standing = SP_STANDING_LOCAL;
    expect_state(&local, SP_NETWORK_DENIED);
    expect_host("a\nb", SP_NETWORK_DENIED);
    begin(&r, "x.com");
    answer(0, SP_DECISION_APPROVED);
    end(&r);
    renew_command();
    begin(&r, "x.com");
    answer(0, SP_DECISION_APPROVED_FOR_SESSION);
    end(&r);
    expect_host("x.com", SP_NETWORK_ALLOWED);
    expect_host("gone.com", SP_NETWORK_ASKING);
    begin(&r, "e.com");
    answer_with(0, &no);
    end(&r);
    assert_int_equal(sp_audit_verify(audit_file, &report, NULL), 0);
    assert_int_equal(report.line, 0);
    assert_int_equal(report.entries, 9);
#define LINE(url, requirement, decision, by)                                                 \
    "\"call_id\":\"c1\",\"environment\":\"local\",\"cwd\":\"/site/repo\","                   \
    "\"command\":[\"network-access\",\"" url "\"],\"segments\":[],\"matches\":[],"           \
    "\"policy\":\"on-request\",\"requirement\":\"" requirement "\",\"decision\":\"" decision \
    "\",\"decided_by\":\"" by "\",\"attempts\":[],"
    assert_int_equal(audit_lines(LINE("https://no.com:443", "forbidden", "denied", "rule")), 1);
    assert_int_equal(audit_lines(LINE("https://ok.com:443", "skip", "approved", "rule")), 1);
    assert_int_equal(audit_lines(LINE("https://127.0.0.1:443", "forbidden", "denied", "config")),
                     1);
    assert_int_equal(audit_lines(LINE("https://a\\\\nb:443", "forbidden", "denied", "config")), 1);
    assert_int_equal(audit_lines(LINE("https://x.com:443", "ask", "approved", "user")), 1);
    assert_int_equal(audit_lines(LINE("https://x.com:443", "ask", "approved_for_session", "user")),
                     1);
    assert_int_equal(audit_lines(LINE("https://x.com:443", "ask", "approved", "cache")), 1);
    assert_int_equal(audit_lines(LINE("https://gone.com:443", "ask", "abort", "none")), 1);
    assert_int_equal(
        audit_lines(LINE("https://e.com:443", "ask", "denied_with_network_policy_deny", "user")),
        1);
}

static void test_a_command_that_tries_again_does_not_fill_the_log(void **state)
{
    struct sp_network_ask ask = for_host("127.1");

    (void)state;
    ask.standing = SP_STANDING_LOCAL;
    for (int i = 0; i < 50; i++)
        expect_state(&ask, SP_NETWORK_DENIED);
    assert_int_equal(audit_lines("127.0.0.1"), 1);
    ask.command = &other;
    expect_state(&ask, SP_NETWORK_DENIED);
    assert_int_equal(audit_lines("127.0.0.1"), 2);
}

static void test_a_command_that_tries_many_does_not_fill_the_log(void **state)
{
    struct sp_network_ask ask;
    char host[32];

    (void)state;
    for (int i = 0; i < SP_NETWORK_LOGGED_DENIALS + 20; i++) {
        (void)snprintf(host, sizeof host, "10.0.%d.%d", i / 256, i % 256);
        ask = for_host(host);
        ask.standing = SP_STANDING_LOCAL;
        expect_state(&ask, SP_NETWORK_DENIED);
    }
    assert_int_equal(audit_lines("https://10.0."), SP_NETWORK_LOGGED_DENIALS);
    ask.command = &other;
    expect_state(&ask, SP_NETWORK_DENIED);
    assert_int_equal(audit_lines("https://10.0."), SP_NETWORK_LOGGED_DENIALS + 1);
}

static void test_a_command_that_reaches_many_does_not_fill_the_log(void **state)
{
    struct sp_network_ask ask = for_host("ok.com");

    (void)state;
    ask.standing = SP_STANDING_LISTED;
    for (int must = 0; must < 2; must++) {
        const int before = audit_lines("https://ok.com:");

        options.must_audit = must != 0;
        remake("");
        ask.command->logged_approvals = SP_NETWORK_LOGGED_APPROVALS - 1;
        ask.port = 1;
        expect_state(&ask, SP_NETWORK_ALLOWED);
        ask.port = 2;
        expect_state(&ask, must ? SP_NETWORK_DENIED : SP_NETWORK_ALLOWED);
        expect_state(&ask, must ? SP_NETWORK_DENIED : SP_NETWORK_ALLOWED);
        ask.port = 1; /* the log has it */
        expect_state(&ask, SP_NETWORK_ALLOWED);
        assert_int_equal(audit_lines("https://ok.com:"), before + 1);
    }
    assert_non_null(strstr(outcome, "it has 10000 hosts of this command"));
}

static void test_what_must_be_logged_and_cannot_be_is_denied(void **state)
{
    struct request r;

    (void)state;
    options.audit_log = "/site/nowhere/audit.jsonl";
    options.must_audit = true;
    remake("network_rule(host=\"ok.com\", protocol=\"http\", decision=\"allow\")\n");
    expect_host("ok.com", SP_NETWORK_DENIED);
    expect_host("ok.com", SP_NETWORK_DENIED); /* the first one was not logged, either */
    assert_non_null(strstr(outcome, "audit log: /site/nowhere/audit.jsonl"));
    begin(&r, "x.com");
    answer(0, SP_DECISION_APPROVED_FOR_SESSION);
    assert_int_equal(r.r.state, SP_NETWORK_DENIED);
    assert_int_equal(r.told, 1);
    end(&r);
    expect_host("x.com", SP_NETWORK_ASKING); /* nor is it remembered */
    options.must_audit = false;
    remake("network_rule(host=\"ok.com\", protocol=\"http\", decision=\"allow\")\n");
    expect_host("ok.com", SP_NETWORK_ALLOWED);
    assert_non_null(strstr(warnings, "no audit log is kept"));
}

static const struct CMUnitTest tests[] = {
    network_test(test_a_hang_up_takes_the_question_with_it),
    network_test(test_the_time_is_that_of_the_request),
    network_test(test_of_two_who_wait_one_may_hang_up),
    network_test(test_the_last_one_to_leave_ends_it),
    network_test(test_a_late_answer_is_nobodys),
    network_test(test_a_command_that_ended_asks_no_more),
    network_test(test_a_command_may_end_with_its_outcome),
    network_test(test_whoever_is_told_may_end_all_others),
    network_test(test_a_hang_up_may_end_the_command),
    network_test(test_another_turn_takes_the_place_of_a_question),
    network_test(test_whoever_is_told_may_ask_again),
    network_test(test_all_ends_with_the_conversation),
    network_test(test_nobody_asks_again_at_the_end),
    network_test(test_open_questions_are_bounded),
    network_test(test_what_is_remembered_is_bounded),
    network_test(test_every_decision_is_in_the_log),
    network_test(test_a_command_that_tries_again_does_not_fill_the_log),
    network_test(test_a_command_that_tries_many_does_not_fill_the_log),
    network_test(test_a_command_that_reaches_many_does_not_fill_the_log),
    network_test(test_what_must_be_logged_and_cannot_be_is_denied),
};

TEST_MAIN(tests)

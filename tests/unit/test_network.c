/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a command may reach a host: who is asked what, and what becomes of the answer. */
#include "approve/approvals_priv.h"
#include "network_fixture.h"

#define DENIED(host)                                                                         \
    "Network access to \"" host "\" was blocked: domain is explicitly denied by policy and " \
    "cannot be approved from this prompt."
#define LOCAL(host)             \
    "Network access to \"" host \
    "\" was blocked: local/private network addresses are blocked by the sandbox policy."
#define BLOCKED "Network access to \"https://x.com:443\" was blocked by policy."
#define NO_HOST "Network access was blocked by policy."

/* ---- without a question ---- */

static void test_never_is_never_asked(void **state)
{
    (void)state;
    command.approval.kind = SP_APPROVAL_NEVER;
    expect_denied("x.com", BLOCKED);
    assert_string_equal(outcome, BLOCKED);
    assert_false(was_cancelled);
    command.approval.kind = SP_APPROVAL_MAX;
    expect_denied("x.com", BLOCKED);
}

static void test_every_other_policy_asks(void **state)
{
    static const enum sp_approval_kind kinds[] = {SP_APPROVAL_UNTRUSTED, SP_APPROVAL_ON_FAILURE,
                                                  SP_APPROVAL_ON_REQUEST, SP_APPROVAL_GRANULAR};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        command.approval = (struct sp_approval_policy){.kind = kinds[i]};
        expect_host("x.com", SP_NETWORK_ASKING);
        assert_int_equal(questions, i + 1);
    }
}

static void test_only_managed_profiles_ask(void **state)
{
    (void)state;
    profile.profile.kind = SP_PROFILE_DISABLED;
    expect_denied("x.com", BLOCKED);
    profile.profile.kind = SP_PROFILE_EXTERNAL;
    expect_denied("x.com", BLOCKED);
    command.policy = NULL;
    expect_denied("x.com", BLOCKED);
}

static void test_nobody_who_answers_is_a_denial(void **state)
{
    (void)state;
    options.approver = NULL;
    remake(NULL);
    expect_denied("x.com", BLOCKED);
}

static void test_rules_answer_before_anybody(void **state)
{
    struct sp_network_ask ask = for_host("ok.com");

    (void)state;
    remake("network_rule(host=\"no.com\", protocol=\"http\", decision=\"deny\")\n"
           "network_rule(host=\"ok.com\", protocol=\"https\", decision=\"allow\")\n"
           "network_rule(host=\"late.com\", protocol=\"https\", decision=\"deny\")\n"
           "network_rule(host=\"late.com\", protocol=\"https\", decision=\"allow\")\n"
           "network_rule(host=\"late.com\", protocol=\"https\", decision=\"prompt\")\n"
           "network_rule(host=\"new.com\", protocol=\"https\", decision=\"allow\")\n"
           "network_rule(host=\"new.com\", protocol=\"https\", decision=\"forbidden\")\n"
           "network_rule(host=\"8.8.2056\", protocol=\"https\", decision=\"deny\")\n");
    expect_denied("no.com", DENIED("no.com"));
    assert_string_equal(outcome, DENIED("no.com"));
    expect_denied("NO.com.", DENIED("no.com"));
    expect_denied("new.com", DENIED("new.com"));
    expect_denied("8.8.8.8", DENIED("8.8.8.8"));
    expect_denied("::ffff:8.8.8.8", DENIED("8.8.8.8"));
    expect_host("ok.com", SP_NETWORK_ALLOWED);
    expect_host("late.com", SP_NETWORK_ALLOWED);
    ask.port = 22;
    ask.protocol = SP_NETWORK_SOCKS5_TCP;
    expect_state(&ask, SP_NETWORK_ALLOWED); /* lists are of hosts */
    assert_int_equal(questions, 0);
    command.approval.kind = SP_APPROVAL_NEVER;
    expect_host("ok.com", SP_NETWORK_ALLOWED);
    command.approval.kind = SP_APPROVAL_ON_REQUEST;
    expect_host("sub.ok.com", SP_NETWORK_ASKING);
    expect_host("prompt.com", SP_NETWORK_ASKING);
    assert_int_equal(questions, 2);
}

#define LIMITED(host)           \
    "Network access to \"" host \
    "\" was blocked: request method is blocked by the current network mode."

static void test_what_the_lists_refuse_is_final(void **state)
{
    struct sp_network_ask ask = for_host("x.com");

    (void)state;
    remake("network_rule(host=\"x.com\", protocol=\"http\", decision=\"allow\")\n"
           "network_rule(host=\"127.0.0.1\", protocol=\"http\", decision=\"allow\")\n");
    ask.standing = SP_STANDING_DENIED;
    expect_denied_unasked(&ask, DENIED("x.com"));
    ask.standing = SP_STANDING_METHOD;
    expect_denied_unasked(&ask, LIMITED("x.com"));
    ask.standing = SP_STANDING_LOCAL;
    expect_denied_unasked(&ask, LOCAL("x.com"));
    ask.host = SP_STR("0x7f.1");
    expect_denied_unasked(&ask, LOCAL("127.0.0.1"));
    ask.host = SP_STR("169.254.169.254");
    expect_denied_unasked(&ask, LOCAL("169.254.169.254"));
    assert_int_equal(questions, 0);
}

static void test_a_listed_host_passes_unless_it_is_denied(void **state)
{
    const struct sp_decision no = about_host("y.com", false);
    struct sp_network_ask ask = for_host("x.com");
    struct request r;

    (void)state;
    remake("network_rule(host=\"no.com\", protocol=\"http\", decision=\"deny\")\n");
    command.approval.kind = SP_APPROVAL_NEVER;
    ask.standing = SP_STANDING_LISTED;
    expect_state(&ask, SP_NETWORK_ALLOWED);
    ask.host = SP_STR("no.com");
    expect_denied_unasked(&ask, DENIED("no.com"));
    ask.standing = SP_STANDING_LITERAL;
    ask.host = SP_STR("127.0.0.1");
    expect_state(&ask, SP_NETWORK_ALLOWED);
    command.approval.kind = SP_APPROVAL_ON_REQUEST;
    begin(&r, "y.com");
    answer_with(0, &no); /* in this session */
    end(&r);
    ask = for_host("y.com");
    ask.command = &other;
    ask.standing = SP_STANDING_LISTED;
    expect_denied_unasked(&ask, DENIED("y.com"));
}

static void test_a_profile_may_forbid_questions(void **state)
{
    (void)state;
    profile.profile.managed->asks = false;
    expect_denied("x.com", BLOCKED);
    sp_network_policy_free(profile.profile.managed);
    profile.profile.managed = NULL;
    expect_denied("x.com", BLOCKED);
}

static void test_what_is_no_host_is_refused_unasked(void **state)
{
    static char long_name[5000];
    struct sp_network_ask ask = for_host("x.com\nHost: y");

    (void)state;
    expect_denied_unasked(&ask, NO_HOST);
    ask.host = SP_STR("x\0.com");
    expect_denied_unasked(&ask, NO_HOST);
    ask.host = (struct sp_str){0};
    expect_denied_unasked(&ask, NO_HOST);
    memset(long_name, 'x', sizeof long_name);
    ask.host = (struct sp_str){long_name, sizeof long_name};
    expect_denied_unasked(&ask, NO_HOST);
    expect_denied("a..b", NO_HOST);
    ask = for_host("x.com");
    ask.port = 0;
    expect_denied_unasked(&ask, NO_HOST);
    ask = for_host("x.com");
    ask.protocol = SP_NETWORK_PROTOCOL_MAX;
    expect_denied_unasked(&ask, NO_HOST);
}

static void test_final_refusals_say_why(void **state)
{
    static const struct {
        enum sp_network_reason reason;
        const char *name, *text;
    } cases[] = {
        {SP_NETWORK_REASON_DENIED, "denied", DENIED("x")},
        {SP_NETWORK_REASON_NOT_ALLOWED, "not_allowed",
         "Network access to \"x\" was blocked: domain is not on the allowlist for the current "
         "sandbox mode."},
        {SP_NETWORK_REASON_NOT_ALLOWED_LOCAL, "not_allowed_local", LOCAL("x")},
        {SP_NETWORK_REASON_METHOD_NOT_ALLOWED, "method_not_allowed",
         "Network access to \"x\" was blocked: request method is blocked by the current network "
         "mode."},
        {SP_NETWORK_REASON_PROXY_DISABLED, "proxy_disabled",
         "Network access to \"x\" was blocked: network proxy is disabled."},
        {SP_NETWORK_REASON_OTHER, "other",
         "Network access to \"x\" was blocked: request is blocked by network policy."},
        {SP_NETWORK_REASON_MAX, "other",
         "Network access to \"x\" was blocked: request is blocked by network policy."},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        auto_buf struct sp_buf text = {0};

        assert_true(sp_network_add_refusal(&text, SP_STR("x"), cases[i].reason));
        assert_true(sp_str_eq((struct sp_str){text.data, text.len}, sp_str_of(cases[i].text)));
        assert_string_equal(sp_network_reason_text(cases[i].reason)->wire, cases[i].name);
        text.len = 0;
        assert_true(sp_network_add_refusal(&text, (struct sp_str){0}, cases[i].reason));
        assert_true(sp_str_eq((struct sp_str){text.data, text.len}, SP_STR(NO_HOST)));
    }
}

/* ---- the question ---- */

static void test_the_question_has_its_shape(void **state)
{
    struct sp_network_ask ask = for_host("X.com.");
    struct request r;

    (void)state;
    begin_as(&r, &ask);
    assert_int_equal(r.r.state, SP_NETWORK_ASKING);
    const struct sp_approval_question *q = open_questions[0].question;
    assert_int_equal(q->kind, SP_QUESTION_NETWORK);
    assert_true(sp_str_eq(q->asking_command, SP_STR("curl 'a b'")));
    assert_ptr_equal(sp_approvals_question(approvals, q->id), q);
    char *at = strstr(last_json, "\"started_at_ms\":");
    assert_non_null(at);
    memmove(at, at + strcspn(at, ",") + 1, strlen(at + strcspn(at, ",") + 1) + 1);
    assert_string_equal(
        last_json,
        "{\"type\":\"exec_approval_request\",\"call_id\":\"c1\","
        "\"approval_id\":\"network#local#https#x.com#443\",\"turn_id\":\"t1\","
        "\"environmentId\":\"local\","
        "\"command\":[\"network-access\",\"https://x.com:443\"],\"cwd\":\"/site/repo\","
        "\"reason\":\"x.com is not in the allowed_domains\","
        "\"network_approval_context\":{\"host\":\"x.com\",\"protocol\":\"https\"},"
        "\"proposed_network_policy_amendments\":[{\"host\":\"x.com\",\"action\":\"allow\"},"
        "{\"host\":\"x.com\",\"action\":\"deny\"}],\"without_sandbox\":false,"
        "\"available_decisions\":[\"approved\",\"approved_for_session\","
        "{\"network_policy_amendment\":{\"network_policy_amendment\":"
        "{\"host\":\"x.com\",\"action\":\"allow\"}}},\"abort\"],"
        "\"parsed_cmd\":[{\"type\":\"unknown\","
        "\"cmd\":\"network-access https://x.com:443\"}]}");
    end(&r);
}

static void test_protocols_and_addresses_have_their_words(void **state)
{
    struct sp_network_ask ask = for_host("2606:4700::1");
    struct request r;

    (void)state;
    ask.protocol = SP_NETWORK_SOCKS5_UDP;
    ask.port = 53;
    begin_as(&r, &ask);
    assert_non_null(strstr(last_json, "\"network#local#socks5-udp#2606:4700::1#53\""));
    assert_non_null(strstr(last_json, "[\"network-access\",\"socks5-udp://[2606:4700::1]:53\"]"));
    assert_non_null(strstr(last_json, "\"protocol\":\"socks5_udp\""));
    assert_string_equal(r.r.host.text, "2606:4700::1");
    end(&r);
}

/* What a program or a client would say. */
static void test_an_answer_in_json_is_understood(void **state)
{
    struct sp_decision_text d;
    struct request r;

    (void)state;
    begin(&r, "x.com");
    sp_decision_read(SP_STR("{\"decision\":{\"network_policy_amendment\":{\"network_policy_"
                            "amendment\":{\"host\":\"x.com\",\"action\":\"allow\"}}}}"),
                     false, &d);
    answer_with(0, &d.decision);
    sp_decision_text_done(&d);
    assert_int_equal(r.r.state, SP_NETWORK_ALLOWED);
    end(&r);
}

static void test_requests_at_once_have_one_question(void **state)
{
    struct request r[3];

    (void)state;
    for (size_t i = 0; i < 3; i++)
        begin(&r[i], i == 1 ? "X.COM" : "x.com");
    assert_int_equal(questions, 1);
    answer(0, SP_DECISION_APPROVED);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(r[i].r.state, SP_NETWORK_ALLOWED_ONCE);
        assert_int_equal(r[i].told, 1);
        end(&r[i]);
    }
    assert_int_equal(outcomes, 0);
}

/* ---- once: for this command ---- */

static void test_once_holds_for_the_command(void **state)
{
    struct sp_network_ask ask = for_host("x.com");
    struct sp_hostname host;
    struct request r;

    (void)state;
    assert_null(sp_hostname_read(SP_STR("x.com"), &host));
    begin(&r, "x.com");
    assert_false(sp_network_knows(approvals, &command, &host));
    answer(0, SP_DECISION_APPROVED);
    end(&r);
    expect_host("x.com", SP_NETWORK_ALLOWED_ONCE);
    assert_true(sp_network_knows(approvals, &command, &host));
    assert_int_equal(questions, 1);
    ask.port = 80; /* another port, another protocol, another command */
    expect_state(&ask, SP_NETWORK_ASKING);
    ask.port = 443;
    ask.protocol = SP_NETWORK_HTTP;
    expect_state(&ask, SP_NETWORK_ASKING);
    ask = for_host("x.com");
    ask.command = &other;
    expect_state(&ask, SP_NETWORK_ASKING);
    assert_false(sp_network_knows(approvals, &other, &host));
    assert_int_equal(questions, 4);
    sp_network_command_done(approvals, &command);
    expect_host("x.com", SP_NETWORK_ASKING);
    assert_false(sp_network_knows(approvals, &command, &host));
}

/* ---- changes ---- */

static char changes[256];

static void on_changed(struct sp_network_command *c, struct sp_str host)
{
    const size_t n = strlen(changes);

    (void)c;
    (void)snprintf(changes + n, sizeof changes - n, "%.*s;", (int)host.n, host.p);
}

static void test_changes_are_told_with_new_denials(void **state)
{
    const struct sp_decision no = about_host("x.com", false);
    struct sp_rules *more =
        make_rules("network_rule(host=\"a.com\", protocol=\"http\", decision=\"deny\")\n"
                   "network_rule(host=\"old.com\", protocol=\"http\", decision=\"deny\")\n"
                   "network_rule(host=\"b.com\", protocol=\"http\", decision=\"allow\")\n");
    struct sp_hostname host;
    struct request r;

    (void)state;
    changes[0] = 0;
    remake("network_rule(host=\"old.com\", protocol=\"http\", decision=\"deny\")\n");
    other.changed = on_changed;
    assert_true(sp_network_command_begin(approvals, &other));
    begin(&r, "s.com");
    answer(0, SP_DECISION_APPROVED_FOR_SESSION);
    end(&r);
    assert_string_equal(changes, ";");
    assert_null(sp_hostname_read(SP_STR("s.com"), &host));
    assert_true(sp_network_knows(approvals, &other, &host));
    changes[0] = 0;
    begin(&r, "x.com");
    answer_with(0, &no);
    end(&r);
    assert_string_equal(changes, "x.com;");
    changes[0] = 0;
    assert_true(sp_approvals_set_rules(approvals, more, (struct sp_str){0}));
    assert_string_equal(changes, ";a.com;");
    assert_null(sp_hostname_read(SP_STR("b.com"), &host));
    assert_true(sp_network_knows(approvals, &other, &host));
    changes[0] = 0;
    sp_network_command_done(approvals, &other);
    assert_true(sp_approvals_set_rules(approvals, NULL, (struct sp_str){0}));
    assert_string_equal(changes, "");
    sp_rules_unref(more);
}

static void test_another_turn_and_another_command_ask_for_themselves(void **state)
{
    struct sp_network_ask ask = for_host("x.com");
    struct request r[3];

    (void)state;
    begin_as(&r[0], &ask);
    ask.turn_id = SP_STR("t2");
    begin_as(&r[1], &ask);
    ask.command = &other;
    begin_as(&r[2], &ask);
    assert_int_equal(questions, 3);
    assert_int_equal(open_count, 2); /* of two with one id the second is asked (12.1) */
    assert_text(&r[0], BLOCKED);
    answer(1, SP_DECISION_APPROVED);
    assert_int_equal(r[2].r.state, SP_NETWORK_ALLOWED_ONCE);
    assert_int_equal(r[1].r.state, SP_NETWORK_ASKING);
    assert_false(was_cancelled);
    for (size_t i = 0; i < 3; i++)
        end(&r[i]);
}

static void test_an_answer_at_once_is_told_from_within(void **state)
{
    static const struct sp_decision yes = {.kind = SP_DECISION_APPROVED};
    struct request r;

    (void)state;
    soon = &yes;
    begin(&r, "x.com");
    assert_int_equal(r.r.state, SP_NETWORK_ALLOWED_ONCE);
    assert_int_equal(r.told, 1);
    end(&r);
}

/* ---- answers ---- */

static void test_a_session_remembers_host_port_and_protocol(void **state)
{
    struct sp_network_ask ask = for_host("x.com");
    struct request r;

    (void)state;
    begin(&r, "x.com");
    answer(0, SP_DECISION_APPROVED_FOR_SESSION);
    assert_int_equal(r.r.state, SP_NETWORK_ALLOWED);
    end(&r);
    expect_host("X.com", SP_NETWORK_ALLOWED);
    ask.command = &other;
    ask.turn_id = SP_STR("t9");
    expect_state(&ask, SP_NETWORK_ALLOWED);
    assert_int_equal(questions, 1);
    ask.port = 80;
    expect_state(&ask, SP_NETWORK_ASKING);
    ask.port = 443;
    ask.protocol = SP_NETWORK_HTTP;
    expect_state(&ask, SP_NETWORK_ASKING);
    ask.protocol = SP_NETWORK_HTTPS;
    other.environment = SP_STR("far");
    expect_state(&ask, SP_NETWORK_ASKING);
    assert_int_equal(questions, 4);
    assert_rules_file("");
}

#define ALLOW_LINE                                                          \
    "network_rule(host=\"x.com\", protocol=\"https\", decision=\"allow\", " \
    "justification=\"Allow https_connect access to x.com\")\n"
#define DENY_LINE                                                          \
    "network_rule(host=\"x.com\", protocol=\"https\", decision=\"deny\", " \
    "justification=\"Deny https_connect access to x.com\")\n"

static void test_an_allowed_host_is_kept_for_good(void **state)
{
    const struct sp_decision yes = about_host("X.COM.", true);
    struct sp_network_ask ask = for_host("x.com");
    struct request r[2];

    (void)state;
    begin_as(&r[0], &ask);
    ask.port = 8443;
    ask.command = &other;
    begin_as(&r[1], &ask); /* another question, with the same answer by then */
    assert_int_equal(questions, 2);
    answer_with(0, &yes);
    assert_int_equal(r[0].r.state, SP_NETWORK_ALLOWED);
    assert_int_equal(r[1].r.state, SP_NETWORK_ALLOWED);
    assert_int_equal(r[1].told, 1);
    assert_int_equal(withdrawals, 1);
    assert_rules_file(ALLOW_LINE);
    ask.port = 80;
    ask.protocol = SP_NETWORK_HTTP;
    expect_state(&ask, SP_NETWORK_ALLOWED);
    end(&r[0]);
    end(&r[1]);
    remake(NULL); /* another conversation: the line is there already */
    begin(&r[0], "x.com");
    answer_with(0, &yes);
    end(&r[0]);
    assert_rules_file(ALLOW_LINE);
    assert_string_equal(warnings, "");
}

static void test_a_denied_host_is_kept_for_good_and_wins(void **state)
{
    const struct sp_decision no = about_host("x.com", false);
    const struct sp_decision yes = {.kind = SP_DECISION_APPROVED};
    struct sp_network_ask ask = for_host("x.com");
    struct request r[2];

    (void)state;
    ask.command = &other;
    begin_as(&r[0], &ask); /* the older one */
    const struct open_question older = open_questions[0];
    begin(&r[1], "x.com");
    assert_int_equal(questions, 2);
    answer_with(1, &no);
    assert_text(&r[1], "rejected by user");
    assert_true(command.is_cancelled);
    older.done(older.user, older.id, &yes);
    assert_text(&r[0], DENIED("x.com"));
    assert_false(other.is_cancelled);
    assert_rules_file(DENY_LINE);
    end(&r[0]);
    end(&r[1]);
    ask.port = 80;
    expect_denied_unasked(&ask, DENIED("x.com"));
}

static void test_a_denial_that_was_recorded_meanwhile_wins(void **state)
{
    static const enum sp_decision_kind kinds[] = {SP_DECISION_APPROVED,
                                                  SP_DECISION_APPROVED_FOR_SESSION};
    struct sp_rules *deny =
        make_rules("network_rule(host=\"x.com\", protocol=\"http\", decision=\"deny\")\n");
    const struct sp_decision yes = about_host("x.com", true);
    struct request r;

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        remake(NULL);
        begin(&r, "x.com");
        assert_true(sp_approvals_set_rules(approvals, deny, (struct sp_str){0}));
        if (i < 2)
            answer(0, kinds[i]);
        else
            answer_with(0, &yes);
        assert_text(&r, DENIED("x.com"));
        assert_int_equal(r.told, 1);
        end(&r);
        expect_denied("x.com", DENIED("x.com"));
    }
    assert_false(was_cancelled);
    assert_rules_file("");
    sp_rules_unref(deny);
}

static void test_an_answer_about_another_host_is_a_denial(void **state)
{
    static const struct {
        const char *host, *shown;
    } cases[] = {{"evil.com", "evil.com"}, {"x.co", "x.co"}, {"", ""}, {"\033[2J", "\\x1b[2J"}};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        const struct sp_decision d = about_host(cases[i].host, i != 1);
        char text[256];
        struct request r;

        command = make_command("c1");
        (void)snprintf(text, sizeof text,
                       "network policy amendment host '%s' does not match approved host 'x.com'",
                       cases[i].shown);
        begin(&r, "x.com");
        answer_with(0, &d);
        assert_text(&r, text);
        assert_string_equal(outcome, text);
        assert_non_null(strstr(warnings, text));
        end(&r);
    }
    assert_rules_file("");
    command = make_command("c1");
    expect_host("x.com", SP_NETWORK_ASKING);
    expect_host("evil.com", SP_NETWORK_ASKING);
}

static void test_a_refusal_cancels_the_command(void **state)
{
    static const struct sp_str words[] = {SP_STR("curl")};
    const struct {
        struct sp_decision d;
        const char *text;
        bool is_interrupted;
    } cases[] = {
        {{.kind = SP_DECISION_DENIED}, "rejected by user", false},
        {{.kind = SP_DECISION_DENIED, .rejection = SP_STR("not today")}, "not today", false},
        {{.kind = SP_DECISION_AMENDMENT, .amendment = {words, 1}}, "rejected by user", false},
        {{.kind = (enum sp_decision_kind)77}, "rejected by user", false},
        {{.kind = SP_DECISION_ABORT}, "rejected by user", true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct request r[3];

        command = make_command("c1");
        was_cancelled = was_interrupted = false;
        outcomes = 0;
        begin(&r[0], "x.com");
        begin(&r[1], "x.com");
        begin(&r[2], "y.com"); /* goes with it */
        answer_with(0, &cases[i].d);
        for (size_t k = 0; k < 3; k++) {
            assert_text(&r[k], cases[i].text);
            assert_int_equal(r[k].told, 1);
            end(&r[k]);
        }
        assert_string_equal(outcome, cases[i].text);
        assert_int_equal(outcomes, 1);
        assert_int_equal(was_interrupted, cases[i].is_interrupted);
        assert_true(was_cancelled && command.is_cancelled);
        assert_int_equal(open_count, 0);
        expect_denied("z.com", "rejected by user"); /* on its way out */
    }
    command = make_command("c1");
    expect_host("x.com", SP_NETWORK_ASKING); /* refusals are not remembered */
}

static void test_a_long_refusal_is_cut(void **state)
{
    static char text[20000];
    const struct sp_decision no = {.kind = SP_DECISION_DENIED, .rejection = {text, sizeof text}};
    struct request r;

    (void)state;
    memset(text, 'x', sizeof text);
    begin(&r, "x.com");
    answer_with(0, &no);
    assert_in_range(r.r.text.n, 3000, 4000);
    end(&r);
}

static void test_a_deadline_denies_and_cancels_nothing(void **state)
{
    struct request r;
    struct sp_err e;

    (void)state;
    options.timeout_ms = 20;
    remake(NULL);
    begin(&r, "x.com");
    for (int i = 0; i < 2000 && r.told == 0; i++)
        assert_int_equal(sp_loop_dispatch(loop, 10, &e), 0);
    assert_text(&r, "approval request timed out");
    assert_string_equal(outcome, "approval request timed out");
    assert_false(was_cancelled);
    assert_int_equal(withdrawals, 1);
    end(&r);
    expect_host("x.com", SP_NETWORK_ASKING);
}

static void test_a_request_keeps_the_policy_of_its_command(void **state)
{
    const struct sp_approval_policy never = {.kind = SP_APPROVAL_NEVER};
    struct request r;

    (void)state;
    begin(&r, "x.com");
    approvals->options.policy = never;
    answer(0, SP_DECISION_APPROVED);
    assert_int_equal(r.r.state, SP_NETWORK_ALLOWED_ONCE);
    end(&r);
    expect_host("y.com", SP_NETWORK_ASKING);
}

static void test_a_file_that_cannot_be_written_is_a_warning(void **state)
{
    const struct sp_decision yes = about_host("x.com", true);
    const struct sp_decision no = about_host("y.com", false);
    struct sp_network_ask ask = for_host("x.com");
    struct request r;

    (void)state;
    options.user_dir = "/site/nowhere";
    remake(NULL);
    begin(&r, "x.com");
    answer_with(0, &yes);
    assert_int_equal(r.r.state, SP_NETWORK_ALLOWED);
    end(&r);
    assert_non_null(strstr(warnings, "Failed to apply network policy amendment: failed to open "
                                     "policy directory /site/nowhere"));
    expect_host("x.com", SP_NETWORK_ALLOWED);
    ask.port = 80;
    expect_state(&ask, SP_NETWORK_ASKING); /* not for good, so not for all ports */
    begin(&r, "y.com");
    answer_with(0, &no);
    end(&r);
    ask = for_host("y.com");
    ask.port = 80;
    ask.command = &other;
    expect_denied_unasked(&ask, DENIED("y.com")); /* a no is kept in any case */
    assert_true(sp_approvals_set_rules(approvals, NULL, (struct sp_str){0}));
    expect_denied_unasked(&ask, DENIED("y.com")); /* also when files are read again */
}

static void test_no_folder_means_this_conversation(void **state)
{
    const struct sp_decision yes = about_host("x.com", true);
    struct sp_network_ask ask = for_host("x.com");
    struct request r;

    (void)state;
    options.user_dir = NULL;
    remake(NULL);
    begin(&r, "x.com");
    answer_with(0, &yes);
    end(&r);
    ask.port = 80;
    expect_state(&ask, SP_NETWORK_ALLOWED);
    assert_string_equal(warnings, "");
    assert_rules_file("");
}

/* ---- hooks ---- */

static void test_a_hook_may_answer_for_a_host(void **state)
{
    struct sp_approver *const hooks[] = {&approver};
    struct sp_approver_ops ops = approver_ops;
    struct sp_approver nobody = {.ops = &ops};
    struct request r;

    (void)state;
    options.hooks = hooks;
    options.hook_count = 1;
    options.approver = &nobody;
    options.has_no_approver = true;
    remake(NULL);
    begin(&r, "x.com");
    answer(0, SP_DECISION_APPROVED_FOR_SESSION);
    assert_int_equal(r.r.state, SP_NETWORK_ALLOWED_ONCE); /* and no more than that */
    end(&r);
    renew_command();
    begin(&r, "x.com");
    answer(0, SP_DECISION_NO_OPINION); /* then nobody is left */
    assert_text(&r, BLOCKED);
    assert_false(was_cancelled);
    end(&r);
    remake(NULL); /* the array goes */
}

static const struct CMUnitTest tests[] = {
    network_test(test_never_is_never_asked),
    network_test(test_every_other_policy_asks),
    network_test(test_only_managed_profiles_ask),
    network_test(test_nobody_who_answers_is_a_denial),
    network_test(test_rules_answer_before_anybody),
    network_test(test_what_the_lists_refuse_is_final),
    network_test(test_a_listed_host_passes_unless_it_is_denied),
    network_test(test_a_profile_may_forbid_questions),
    network_test(test_what_is_no_host_is_refused_unasked),
    network_test(test_final_refusals_say_why),
    network_test(test_the_question_has_its_shape),
    network_test(test_protocols_and_addresses_have_their_words),
    network_test(test_an_answer_in_json_is_understood),
    network_test(test_requests_at_once_have_one_question),
    network_test(test_once_holds_for_the_command),
    network_test(test_changes_are_told_with_new_denials),
    network_test(test_another_turn_and_another_command_ask_for_themselves),
    network_test(test_an_answer_at_once_is_told_from_within),
    network_test(test_a_session_remembers_host_port_and_protocol),
    network_test(test_an_allowed_host_is_kept_for_good),
    network_test(test_a_denied_host_is_kept_for_good_and_wins),
    network_test(test_a_denial_that_was_recorded_meanwhile_wins),
    network_test(test_an_answer_about_another_host_is_a_denial),
    network_test(test_a_refusal_cancels_the_command),
    network_test(test_a_long_refusal_is_cut),
    network_test(test_a_deadline_denies_and_cancels_nothing),
    network_test(test_a_request_keeps_the_policy_of_its_command),
    network_test(test_a_file_that_cannot_be_written_is_a_warning),
    network_test(test_no_folder_means_this_conversation),
    network_test(test_a_hook_may_answer_for_a_host),
};

TEST_MAIN(tests)

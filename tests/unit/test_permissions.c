/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request_permissions: what is asked, what may be answered, what commands have of it afterwards
 * (case 132). And how such answers are spelled.
 */
#include "approve/run_plan.h"
#include "approver_fixture.h"
#include "mcp/tools.h"

static struct sp_tools_options tools = {.has_additional_permissions = true};

struct told {
    bool is_there, has_failed;
    char text[2048], structured[2048];
    uint64_t call;
};

static void on_tool(void *user, const struct sp_tool_reply *r)
{
    struct told *t = user;

    assert_false(t->is_there);
    t->is_there = true;
    t->has_failed = r->has_failed;
    (void)snprintf(t->text, sizeof t->text, "%.*s", (int)r->text.n, r->text.p);
    (void)snprintf(t->structured, sizeof t->structured, "%.*s", (int)r->structured.n,
                   r->structured.n == 0 ? "" : r->structured.p);
}

static void request_in(struct told *t, const char *turn_id, const char *arguments)
{
    struct sp_err e = {0};

    *t = (struct told){0};
    if (sp_tools_call(manager, &tools, SP_STR("request_permissions"), SP_STR("p1"),
                      sp_str_of(turn_id), sp_str_of(arguments), on_tool, t, &t->call, &e) < 0)
        fail_msg("%s", e.msg);
}

#define WANTED \
    "{\"reason\":\"the cache\",\"permissions\":{\"file_system\":{\"write\":[\"/site/w\"]}}}"
#define BOTH                                                                                    \
    "{\"permissions\":{\"network\":{\"enabled\":true},\"file_system\":{\"read\":[\"/site/r\"]," \
    "\"write\":[\"/site/w\"]}}}"

static void request(struct told *t, const char *arguments)
{
    const unsigned before = questions;

    request_in(t, "turn", arguments);
    until(questions == before + 1 || t->is_there);
}

static void answer_json(const char *json)
{
    struct sp_decision_text d;

    auto_buf struct sp_buf text = {0};

    assert_true(sp_buf_printf(&text, "{\"decision\":%s}", json));
    sp_decision_read(sp_buf_str(&text), false, &d);
    d.decision.by = SP_DECIDER_USER;
    sp_approvals_decide(sp_manager_approvals(manager), last_question.id, &d.decision);
    sp_decision_text_done(&d);
}

static void expect_granted(struct told *t, const char *json)
{
    until(t->is_there);
    assert_string_equal(t->text, json);
    assert_string_equal(t->structured, json);
    assert_false(t->has_failed);
}

static void expect_refused(struct told *t, const char *text)
{
    until(t->is_there);
    assert_string_equal(t->text, text);
    assert_true(t->has_failed);
    assert_string_equal(t->structured, "");
}

/* Whether a command of this turn may write to /site/w unasked. */
static bool has_write(const char *turn_id)
{
    struct sp_grant more = {0};

    assert_int_equal(sp_profile_add(&more.extra, SP_PLACE_PATH, SP_ACCESS_WRITE, false,
                                    SP_STR("/site/w"), (struct sp_str){0}, NULL),
                     0);
    const bool is_granted = sp_approvals_cover(sp_manager_approvals(manager), SP_STR("local"),
                                               sp_str_of(turn_id), &more, &profile);
    sp_grant_done(&more);
    return is_granted;
}

static void permit(enum sp_approval_kind approval)
{
    options.has_additional_permissions = true;
    confine(approval);
}

/* ---- the question ---- */

static void test_the_question_has_its_own_shape(void **state)
{
    auto_buf struct sp_buf json = {0};
    char expected[512];
    struct told t;

    (void)state;
    permit(SP_APPROVAL_ON_REQUEST);
    request(&t, WANTED);
    assert_int_equal(last_question.kind, SP_QUESTION_PERMISSIONS);
    assert_true(sp_question_add_json(&json, &last_question) && sp_buf_add(&json, "", 1));
    (void)snprintf(expected, sizeof expected,
                   "{\"type\":\"request_permissions\",\"call_id\":\"p1\",\"turn_id\":\"turn\","
                   "\"environmentId\":\"local\",\"started_at_ms\":%lld,\"reason\":\"the cache\","
                   "\"permissions\":{\"file_system\":{\"write\":[\"/site/w\"]}},"
                   "\"cwd\":\"/site\"}",
                   (long long)last_question.at_ms);
    assert_string_equal(json.data, expected);
    answer_json("\"denied\"");
    expect_refused(&t, "request_permissions failed: permission request rejected by user");
}

static void test_it_is_granted_for_the_turn(void **state)
{
    struct answer a;
    struct told t;

    (void)state;
    permit(SP_APPROVAL_ON_REQUEST);
    assert_false(has_write("turn"));
    request(&t, WANTED);
    answer_json("{\"permissions\":{\"file_system\":{\"write\":[\"/site/w\"]}}}");
    expect_granted(&t, "{\"permissions\":{\"file_system\":{\"write\":[\"/site/w\"]}},"
                       "\"scope\":\"turn\",\"strict_auto_review\":false}");
    expect_log("\"command\":[\"request_permissions\","
               "\"{\\\"file_system\\\":{\\\"write\\\":[\\\"/site/w\\\"]}}\"]");
    expect_log("\"requirement\":\"ask\",\"decision\":\"approved\",\"decided_by\":\"user\"");
    assert_true(has_write("turn"));
    assert_false(has_write("another"));
    begin(&a, "touch /site/w/x");
    run_to_end(&a, 1);
    assert_true(jobs[0].is_confined);
}

static void test_or_for_the_session(void **state)
{
    struct told t;

    (void)state;
    permit(SP_APPROVAL_ON_REQUEST);
    request(&t, WANTED);
    answer_json(
        "{\"scope\":\"session\",\"permissions\":{\"file_system\":{\"write\":[\"/site/w\"]}}}");
    expect_granted(&t, "{\"permissions\":{\"file_system\":{\"write\":[\"/site/w\"]}},"
                       "\"scope\":\"session\",\"strict_auto_review\":false}");
    assert_true(has_write("turn") && has_write("another"));
}

static void test_a_plain_yes_is_all_of_it(void **state)
{
    struct told t;

    (void)state;
    permit(SP_APPROVAL_ON_FAILURE);
    request(&t, BOTH);
    answer_json("\"approved\"");
    expect_granted(&t, "{\"permissions\":{\"network\":{\"enabled\":true},\"file_system\":{"
                       "\"read\":[\"/site/r\"],\"write\":[\"/site/w\"]}},"
                       "\"scope\":\"turn\",\"strict_auto_review\":false}");
    request(&t, BOTH);
    answer_json("\"approved_for_session\"");
    until(t.is_there);
    assert_non_null(strstr(t.text, "\"scope\":\"session\""));
}

static void test_nothing_beyond_what_was_asked(void **state)
{
    struct told t;

    (void)state;
    permit(SP_APPROVAL_ON_REQUEST);
    request(&t, WANTED);
    answer_json("{\"permissions\":{\"network\":{\"enabled\":true},\"file_system\":{"
                "\"write\":[\"/site/w/below\",\"/site/other\"],\"read\":[\"/site/secret\"]}}}");
    expect_granted(&t, "{\"permissions\":{\"file_system\":{\"write\":[\"/site/w/below\"]}},"
                       "\"scope\":\"turn\",\"strict_auto_review\":false}");
    assert_false(has_write("turn"));
    request(&t, WANTED);
    answer_json("{\"permissions\":{}}");
    expect_granted(&t, "{\"permissions\":{},\"scope\":\"turn\",\"strict_auto_review\":false}");
    assert_false(has_write("turn"));
}

/* ---- refusals ---- */

static void test_who_says_no(void **state)
{
    struct answer beside;
    struct told t;

    (void)state;
    permit(SP_APPROVAL_ON_REQUEST);
    request(&t, WANTED);
    answer_json("{\"denied\":{\"rejection\":\"not yours\"}}");
    expect_refused(&t, "request_permissions failed: not yours");
    request(&t, WANTED);
    answer_json("{\"permissions\":{},\"scope\":\"for ever\"}");
    expect_refused(&t, "request_permissions failed: permission request rejected by user");
    request(&t, WANTED);
    answer_json("{\"network_policy_amendment\":{\"network_policy_amendment\":{\"host\":\"x\","
                "\"action\":\"allow\"}}}");
    expect_refused(&t, "request_permissions failed: permission request rejected by user");
    begin(&beside, "sleep 1");
    until(job_count == 1);
    say_started(0);
    request(&t, WANTED);
    answer_json("\"abort\"");
    expect_refused(&t, "request_permissions failed: permission request rejected by user");
    until(beside.is_there); /* the turn was interrupted */
    assert_int_equal(beside.fault, SP_FAULT_ABORTED);
    assert_false(has_write("turn"));
}

static void test_policies_that_do_not_ask(void **state)
{
    struct told t;

    (void)state;
    permit(SP_APPROVAL_NEVER);
    request(&t, WANTED);
    expect_refused(&t, "request_permissions failed: approval policy is Never; reject request — you "
                       "cannot request permissions if the approval policy is Never");
    expect_log("\"requirement\":\"forbidden\",\"decision\":\"denied\",\"decided_by\":\"config\"");
    options.approvals.policy = (struct sp_approval_policy){.sandbox_approval = true, .rules = true};
    permit(SP_APPROVAL_GRANULAR);
    request(&t, WANTED);
    until(t.is_there);
    assert_non_null(strstr(t.text, "approval policy is Granular("));
    options.approvals.policy.request_permissions = true;
    permit(SP_APPROVAL_GRANULAR);
    request(&t, WANTED);
    answer_json("\"approved\"");
    until(t.is_there);
    assert_false(t.has_failed);
    options.approvals.has_no_approver = true;
    permit(SP_APPROVAL_UNTRUSTED);
    request(&t, WANTED);
    expect_refused(&t, "request_permissions failed: approval required, but the client cannot "
                       "answer questions; allow it by a rule, configure an approver, or change "
                       "the approval policy");
    expect_log("\"requirement\":\"ask\",\"decision\":\"denied\",\"decided_by\":\"config\"");
}

static void test_what_cannot_be_asked(void **state)
{
    static const struct {
        const char *arguments, *text;
    } wrong[] = {
        {"{}",
         "failed to parse function arguments: missing field `permissions` at line 1 column 2"},
        {"{\"permissions\":{}}", "`permissions` must include at least one requested permission in "
                                 "`network` or `file_system`"},
        {"{\"permissions\":{\"network\":{\"enabled\":true}},\"environment_id\":\"mars\"}",
         "unknown turn environment id `mars`"},
        {"{\"permissions\":{\"network\":{\"enabled\":true}},\"reason\":7}",
         "failed to parse function arguments: invalid type: integer `7`, expected a string at "
         "line 1 column 54"},
    };
    struct told t;
    uint64_t call;

    (void)state;
    permit(SP_APPROVAL_ON_REQUEST);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        request(&t, wrong[i].arguments);
        expect_refused(&t, wrong[i].text);
    }
    assert_int_equal(questions, 0);
    tools.has_additional_permissions = false;
    assert_int_equal(sp_tools_call(manager, &tools, SP_STR("request_permissions"), SP_STR("p"),
                                   SP_STR("turn"), SP_STR(WANTED), on_tool, &t, &call, NULL),
                     -SP_E_NO_METHOD);
    tools.has_additional_permissions = true;
    options.has_additional_permissions = false;
    remake_manager();
    request(&t, WANTED);
    expect_refused(&t, "permission requests are disabled; enable "
                       "`features.exec_permission_approvals` before using `request_permissions`");
}

static void test_a_turn_without_a_name(void **state)
{
    struct told t;

    (void)state;
    permit(SP_APPROVAL_ON_REQUEST);
    request_in(&t, "", WANTED);
    until(questions == 1);
    answer_json("\"approved\"");
    until(t.is_there);
    assert_true(t.has_failed);
    assert_false(has_write(""));
    request_in(&t, "", WANTED);
    until(questions == 2);
    answer_json("\"approved_for_session\"");
    until(t.is_there);
    assert_false(t.has_failed);
    assert_true(has_write(""));
}

static void test_it_waits_so_long(void **state)
{
    static struct told t; /* told after our end, too */

    (void)state;
    options.approvals.timeout_ms = 500;
    permit(SP_APPROVAL_ON_REQUEST);
    request(&t, WANTED);
    expect_refused(&t, "request_permissions failed: approval request timed out");
    expect_log("\"decision\":\"timed_out\",\"decided_by\":\"config\"");
    request(&t, WANTED);
    sp_manager_interrupt(manager);
    until(t.is_there);
    assert_true(t.has_failed);
    assert_non_null(strstr(t.text, "aborted by user after"));
    run_for(10);
    expect_log("\"decision\":\"abort\",\"decided_by\":\"none\"");
    request(&t, WANTED); /* and the end of all is an end */
}

/* ---- hooks and the reviewer ---- */

static void test_a_hook_and_the_reviewer_grant_for_the_turn(void **state)
{
    struct told t;

    (void)state;
    use_hooks(1);
    use_reviewer(false);
    permit(SP_APPROVAL_ON_REQUEST);
    request_in(&t, "turn", WANTED);
    until(first_hook.asked == 1);
    assert_int_equal(first_hook.question->kind, SP_QUESTION_PERMISSIONS);
    answer_kind(&first_hook, SP_DECISION_NO_OPINION);
    until(reviewer.asked == 1);
    answer_kind(&reviewer, SP_DECISION_APPROVED_FOR_SESSION);
    until(t.is_there);
    assert_non_null(strstr(t.text, "\"scope\":\"turn\""));
    assert_true(has_write("turn") && !has_write("another"));
    expect_log("\"decided_by\":\"reviewer\"");
}

static void test_granted_on_condition_of_review(void **state)
{
    struct answer a;
    struct told t;

    (void)state;
    permit(SP_APPROVAL_ON_REQUEST);
    request(&t, WANTED);
    answer_json("{\"permissions\":{\"file_system\":{\"write\":[\"/site/w\"]}},"
                "\"strict_auto_review\":true}");
    expect_refused(&t, "request_permissions failed: the answer wants everything to be reviewed, "
                       "and there is no `reviewer`: nothing was granted");
    assert_false(has_write("turn"));
    use_hooks(1);
    use_reviewer(false);
    permit(SP_APPROVAL_ON_REQUEST);
    request_in(&t, "turn", WANTED);
    until(first_hook.asked == 1);
    answer_fully(&first_hook,
                 &(struct sp_decision){.kind = SP_DECISION_APPROVED, .wants_strict_review = true});
    until(t.is_there);
    assert_non_null(strstr(t.text, "\"strict_auto_review\":true"));
    begin(&a, "ls");
    until(reviewer.asked == 1);
    answer_kind(&reviewer, SP_DECISION_APPROVED);
    run_to_end(&a, 1);
}

static void test_an_answer_that_names_permissions_is_none_to_a_command(void **state)
{
    struct answer a;

    (void)state;
    permit(SP_APPROVAL_UNTRUSTED);
    begin(&a, "make");
    until(questions == 1);
    answer_json("{\"permissions\":{\"network\":{\"enabled\":true}}}");
    expect_rejection(&a, "exec command rejected by user");
    assert_int_equal(job_count, 0);
}

/* ---- how answers are spelled ---- */

static void test_opinions(void **state)
{
    static const struct {
        const char *text;
        enum sp_decision_kind kind;
    } known[] = {
        {"", SP_DECISION_NO_OPINION},
        {" \n", SP_DECISION_NO_OPINION},
        {"{}\n", SP_DECISION_NO_OPINION},
        {"{\"decision\":null}", SP_DECISION_NO_OPINION},
        {"{\"decision\":\"approved\"}", SP_DECISION_APPROVED},
        {"{\"decision\":{\"denied\":{\"rejection\":\"x\"}}}", SP_DECISION_DENIED},
        {"{\"decision\":\"denied\"}", SP_DECISION_DENIED},
        {"{\"decision\":\"maybe\"}", SP_DECISION_FAILED},
        {"{\"decision\":{}}", SP_DECISION_FAILED},
        {"{\"decision\":7}", SP_DECISION_FAILED},
        {"{\"descision\":\"denied\"}", SP_DECISION_FAILED},
        {"null", SP_DECISION_FAILED},
        {"yes", SP_DECISION_FAILED},
        {"{\"decision\":\"approved\"} {}", SP_DECISION_FAILED},
        {"{\"permissions\":{\"network\":{\"enabled\":true}}}", SP_DECISION_APPROVED},
        {"{\"decision\":{\"permissions\":{},\"scope\":\"session\"}}",
         SP_DECISION_APPROVED_FOR_SESSION},
        {"{\"permissions\":7}", SP_DECISION_FAILED},
        {"{\"permissions\":{\"file_system\":{\"read\":[\"relative\"]}}}", SP_DECISION_FAILED},
        {"{\"permissions\":{},\"scope\":7}", SP_DECISION_FAILED},
        {"{\"permissions\":{},\"strict_auto_review\":\"no\"}", SP_DECISION_FAILED},
    };

    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        struct sp_decision_text d;

        sp_decision_read(sp_str_of(known[i].text), true, &d);
        if (d.decision.kind != known[i].kind)
            fail_msg("%s is %d", known[i].text, (int)d.decision.kind);
        sp_decision_text_done(&d);
        sp_decision_read(sp_str_of(known[i].text), false, &d);
        const bool is_none =
            known[i].kind == SP_DECISION_NO_OPINION || known[i].kind == SP_DECISION_FAILED;
        assert_int_equal(d.decision.kind, is_none ? SP_DECISION_DENIED : known[i].kind);
        sp_decision_text_done(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        asking_test(test_the_question_has_its_own_shape),
        asking_test(test_it_is_granted_for_the_turn),
        asking_test(test_or_for_the_session),
        asking_test(test_a_plain_yes_is_all_of_it),
        asking_test(test_nothing_beyond_what_was_asked),
        asking_test(test_who_says_no),
        asking_test(test_policies_that_do_not_ask),
        asking_test(test_what_cannot_be_asked),
        asking_test(test_a_turn_without_a_name),
        asking_test(test_it_waits_so_long),
        asking_test(test_a_hook_and_the_reviewer_grant_for_the_turn),
        asking_test(test_granted_on_condition_of_review),
        asking_test(test_an_answer_that_names_permissions_is_none_to_a_command),
        cmocka_unit_test(test_opinions),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("permissions", tests, NULL, NULL);
}

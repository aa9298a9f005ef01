/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What exec_command makes of rules, policies and answers.
 */
#include <sys/stat.h>
#include <unistd.h>

#include "approve/approvals_priv.h"
#include "puppet_backend.h"

static struct sp_policy profile;
static struct sp_rules *rules;
static char home[] = "/tmp/sallyport-plan-XXXXXX";
static char rules_file[64], audit_file[64];

static int begin_plans(void **state)
{
    (void)strcpy(home + sizeof home - 7, "XXXXXX");
    assert_non_null(mkdtemp(home));
    (void)snprintf(rules_file, sizeof rules_file, "%s/rules/default.rules", home);
    (void)snprintf(audit_file, sizeof audit_file, "%s/audit.jsonl", home);
    profile = (struct sp_policy){0};
    rules = NULL;
    return begin_puppets(state);
}

static int end_plans(void **state)
{
    const int r = end_puppets(state);
    char dir[64];

    sp_policy_done(&profile);
    sp_rules_unref(rules);
    (void)unlink(rules_file);
    (void)unlink(audit_file);
    (void)snprintf(dir, sizeof dir, "%s/rules", home);
    (void)rmdir(dir);
    assert_int_equal(rmdir(home), 0);
    return r;
}
#define plan_test(f) cmocka_unit_test_setup_teardown(f, begin_plans, end_plans)

static struct sp_rules *make_rules(const char *text)
{
    struct sp_rules_maker *m = sp_rules_maker_new();
    struct sp_err e = {0};

    if (sp_rules_add_text(m, "test", sp_str_of(text), NULL, NULL, &e) < 0)
        fail_msg("%s", e.msg);
    struct sp_rules *made = sp_rules_make(m);
    sp_rules_maker_free(m);
    return made;
}

/* A manager whose commands are confined to reading. */
static void confine(enum sp_approval_kind approval, const char *text)
{
    sp_policy_done(&profile);
    profile = (struct sp_policy){0};
    assert_int_equal(sp_profile_add(&profile.profile, SP_PLACE_ROOT, SP_ACCESS_READ, false,
                                    (struct sp_str){0}, (struct sp_str){0}, NULL),
                     0);
    sp_rules_unref(rules);
    rules = text == NULL ? NULL : make_rules(text);
    options.policy = &profile;
    options.approvals.policy.kind = approval;
    options.approvals.rules = rules;
    remake_manager();
}

static void deny_reading(const char *path)
{
    assert_int_equal(sp_profile_add(&profile.profile, SP_PLACE_PATH, SP_ACCESS_DENY, false,
                                    sp_str_of(path), (struct sp_str){0}, NULL),
                     0);
    remake_manager();
}

static void begin(struct answer *a, const char *cmd)
{
    struct sp_exec_request ask = command(cmd);

    ask.yield = (struct sp_yield_request){true, 3000};
    exec_ask(a, &ask);
}

static void begin_escalated(struct answer *a, const char *cmd)
{
    struct sp_exec_request ask = command(cmd);

    ask.has_permissions = true;
    ask.permissions = SP_PERMISSIONS_ESCALATED;
    ask.yield = (struct sp_yield_request){true, 3000};
    exec_ask(a, &ask);
}

/* The newest job runs to its end. */
static void run_to_end(struct answer *a, size_t jobs_then, int code)
{
    until(job_count == jobs_then);
    say_started(jobs_then - 1);
    run_for(10);
    end_with(jobs_then - 1, code);
    until(a->is_there);
    assert_exit(a, code);
}

static void be_denied(size_t jobs_then)
{
    until(job_count == jobs_then);
    assert_true(jobs[jobs_then - 1].is_confined);
    say_started(jobs_then - 1);
    run_for(20);
    say(jobs_then - 1, "touch: Permission denied\n");
    end_with(jobs_then - 1, 1);
}

static void expect_rejection(struct answer *a, const char *reason)
{
    char text[1024];

    until(a->is_there);
    (void)snprintf(text, sizeof text,
                   "exec_command failed: Failed to create unified exec process: %s", reason);
    assert_fault(a, SP_FAULT_REJECTED, text);
    assert_int_equal(sp_manager_reserved(manager), 0);
}

static void expect_amendment(const char *const *words, uint32_t count)
{
    assert_int_equal(last_question.amendment.count, count);
    for (uint32_t i = 0; i < count; i++)
        assert_true(sp_str_eq(last_question.amendment.items[i], sp_str_of(words[i])));
}
#define EXPECT_AMENDMENT(...)                                                 \
    do {                                                                      \
        const char *const words_[] = {__VA_ARGS__};                           \
        expect_amendment(words_, (uint32_t)(sizeof words_ / sizeof *words_)); \
    } while (0)

/* ---- requirements ---- */

static void test_what_a_rule_forbids_does_not_run(void **state)
{
    struct answer a;

    (void)state;
    confine(SP_APPROVAL_ON_REQUEST,
            "prefix_rule(pattern=[\"rm\"], decision=\"forbidden\", justification=\"no\")\n");
    begin(&a, "rm x");
    until(a.is_there);
    assert_int_equal(a.fault, SP_FAULT_REJECTED);
    assert_non_null(strstr(a.text, "rejected: no"));
    assert_int_equal(job_count, 0);
    assert_int_equal(questions, 0);
    assert_int_equal(sp_manager_reserved(manager), 0);
}

static void test_what_a_rule_allows_runs_free_and_unasked(void **state)
{
    struct answer a;

    (void)state;
    confine(SP_APPROVAL_UNTRUSTED, "prefix_rule(pattern=[\"touch\"])\n");
    begin(&a, "touch x");
    run_to_end(&a, 1, 0);
    assert_false(jobs[0].is_confined);
    begin(&a, "touch x && cp a b");
    until(questions == 1);
    decide(last_question.id, SP_DECISION_APPROVED);
    run_to_end(&a, 2, 0);
    assert_true(jobs[1].is_confined);
}

/* Which program it is, and what code that loads, depends on them. */
static void test_variables_are_judged_with_the_command(void **state)
{
    const struct sp_env_var path = {SP_STR("PATH"), SP_STR("/site/evil:/bin")};
    const struct sp_env_var other = {SP_STR("PATH"), SP_STR("/site/other:/bin")};
    struct sp_exec_request ask = command("touch x");
    struct answer a;

    (void)state;
    confine(SP_APPROVAL_UNTRUSTED, "prefix_rule(pattern=[\"touch\"])\n");
    ask.yield = (struct sp_yield_request){true, 3000};
    ask.env = (struct sp_env_vars){&path, 1};
    exec_ask(&a, &ask);
    until(questions == 1);
    assert_true(sp_str_eq(last_question.command, SP_STR("env 'PATH=/site/evil:/bin' touch x")));
    assert_int_equal(last_question.amendment.count, 0);
    decide(last_question.id, SP_DECISION_APPROVED_FOR_SESSION);
    run_to_end(&a, 1, 0);
    assert_true(jobs[0].is_confined);
    exec_ask(&a, &ask); /* the same: it was approved */
    run_to_end(&a, 2, 0);
    assert_true(jobs[1].is_confined);
    ask.env.items = &other;
    exec_ask(&a, &ask);
    until(questions == 2);
    decide(last_question.id, SP_DECISION_DENIED);
    until(a.is_there);
    assert_int_equal(a.fault, SP_FAULT_REJECTED);
    ask.env.count = 0;
    exec_ask(&a, &ask);
    run_to_end(&a, 3, 0);
    assert_false(jobs[2].is_confined);
    assert_int_equal(questions, 2);
}

static void test_denied_reads_are_never_free(void **state)
{
    struct answer a;

    (void)state;
    confine(SP_APPROVAL_ON_REQUEST, "prefix_rule(pattern=[\"cat\"])\n");
    deny_reading("/secret");
    begin(&a, "cat f");
    run_to_end(&a, 1, 0);
    assert_true(jobs[0].is_confined);
    begin_escalated(&a, "make f");
    until(questions == 1);
    assert_false(last_question.is_free);
    decide(last_question.id, SP_DECISION_APPROVED);
    run_to_end(&a, 2, 0);
    assert_true(jobs[1].is_confined);
}

static void test_untrusted_asks_for_what_is_not_known_to_be_safe(void **state)
{
    struct answer a;

    (void)state;
    confine(SP_APPROVAL_UNTRUSTED, NULL);
    begin(&a, "ls -l");
    run_to_end(&a, 1, 0);
    assert_true(jobs[0].is_confined);
    begin(&a, "cargo build");
    until(questions == 1);
    assert_int_equal(last_question.kind, SP_QUESTION_RUN);
    assert_false(last_question.is_free);
    EXPECT_AMENDMENT("cargo", "build");
    decide(last_question.id, SP_DECISION_APPROVED);
    run_to_end(&a, 2, 0);
    assert_true(jobs[1].is_confined);
}

static void test_nobody_to_answer_is_said(void **state)
{
    struct answer a;

    (void)state;
    manager_ops.ask = NULL;
    confine(SP_APPROVAL_UNTRUSTED, NULL);
    manager_ops.ask = on_ask;
    begin(&a, "cargo build");
    expect_rejection(&a, "approval required, but the client cannot answer questions; allow it by a "
                         "rule, configure an approver, or change the approval policy");
}

/* ---- answers ---- */

static void test_a_refusal_can_say_why(void **state)
{
    const struct sp_decision no = {.kind = SP_DECISION_DENIED, .rejection = SP_STR("no")};
    const struct sp_decision plain = {.kind = SP_DECISION_DENIED,
                                      .rejection = SP_STR("rejected by user")};
    struct answer a;

    (void)state;
    confine(SP_APPROVAL_UNTRUSTED, NULL);
    begin(&a, "make");
    until(questions == 1);
    sp_approvals_decide(sp_manager_approvals(manager), last_question.id, &no);
    expect_rejection(&a, "no");
    begin(&a, "make"); /* a refusal is not remembered */
    until(questions == 2);
    sp_approvals_decide(sp_manager_approvals(manager), last_question.id, &plain);
    expect_rejection(&a, "exec command rejected by user");
    begin(&a, "make");
    until(questions == 3);
    decide(last_question.id, (enum sp_decision_kind)77);
    expect_rejection(&a, "exec command rejected by user");
    assert_int_equal(job_count, 0);
}

static void test_a_long_refusal_is_cut(void **state)
{
    static char text[20000];
    struct sp_decision no = {.kind = SP_DECISION_DENIED, .rejection = {text, sizeof text}};
    struct answer a;

    (void)state;
    memset(text, 'x', sizeof text);
    confine(SP_APPROVAL_UNTRUSTED, NULL);
    begin(&a, "make");
    until(questions == 1);
    sp_approvals_decide(sp_manager_approvals(manager), last_question.id, &no);
    until(a.is_there);
    assert_int_equal(a.fault, SP_FAULT_REJECTED);
    assert_non_null(strstr(a.text, "truncated"));
    assert_true(strlen(a.text) < 3900);
}

static void test_an_answer_that_does_not_come_is_no(void **state)
{
    struct answer a;

    (void)state;
    options.approvals.timeout_ms = 5000;
    confine(SP_APPROVAL_UNTRUSTED, NULL);
    begin(&a, "make");
    until(questions == 1);
    run_for(4900);
    assert_false(a.is_there);
    expect_rejection(&a, "approval request timed out");
    decide(last_question.id, SP_DECISION_APPROVED); /* too late */
    run_for(100);
    assert_int_equal(job_count, 0);
}

static void test_once_is_once_and_a_session_is_a_session(void **state)
{
    struct answer a;

    (void)state;
    confine(SP_APPROVAL_UNTRUSTED, NULL);
    begin(&a, "cargo  test");
    until(questions == 1);
    decide(last_question.id, SP_DECISION_APPROVED);
    run_to_end(&a, 1, 0);
    begin(&a, "cargo test");
    until(questions == 2);
    decide(last_question.id, SP_DECISION_APPROVED_FOR_SESSION);
    run_to_end(&a, 2, 0);
    begin(&a, "cargo   test");
    run_to_end(&a, 3, 0);
    assert_true(jobs[2].is_confined);
    assert_int_equal(questions, 2);
}

static void test_another_place_terminal_or_wish_is_asked_again(void **state)
{
    struct sp_exec_request ask = command("cargo test");
    struct answer a;

    (void)state;
    confine(SP_APPROVAL_UNTRUSTED, NULL);
    begin(&a, "cargo test");
    until(questions == 1);
    decide(last_question.id, SP_DECISION_APPROVED_FOR_SESSION);
    run_to_end(&a, 1, 0);
    ask.workdir = SP_STR("/");
    exec_ask(&a, &ask);
    until(questions == 2);
    decide(last_question.id, SP_DECISION_DENIED);
    until(a.is_there);
    ask = command("cargo test");
    ask.is_tty = true;
    exec_ask(&a, &ask);
    until(questions == 3);
    decide(last_question.id, SP_DECISION_DENIED);
    until(a.is_there);
    begin_escalated(&a, "cargo test");
    until(questions == 4);
    decide(last_question.id, SP_DECISION_DENIED);
    until(a.is_there);
    assert_true(sp_approvals_set_rules(sp_manager_approvals(manager), rules, SP_STR("managed")));
    begin(&a, "cargo test");
    until(questions == 5);
    decide(last_question.id, SP_DECISION_DENIED);
    until(a.is_there);
    /* The first answer was dropped: the rules of before do not bring it back. */
    assert_true(sp_approvals_set_rules(sp_manager_approvals(manager), rules, SP_STR("")));
    begin(&a, "cargo test");
    until(questions == 6);
    decide(last_question.id, SP_DECISION_APPROVED_FOR_SESSION);
    run_to_end(&a, 2, 0);
    /* Rules that are not the administrator's may change. */
    assert_true(sp_approvals_set_rules(sp_manager_approvals(manager), rules, SP_STR("")));
    begin(&a, "cargo test");
    run_to_end(&a, 3, 0);
    assert_int_equal(questions, 6);
}

/* ---- amendments ---- */

static void accept_amendment(uint64_t question, const char *first, const char *second)
{
    const struct sp_str words[] = {sp_str_of(first), sp_str_of(second)};
    const struct sp_decision d = {.kind = SP_DECISION_AMENDMENT, .amendment = {words, 2}};

    sp_approvals_decide(sp_manager_approvals(manager), question, &d);
}

static void test_an_amendment_is_kept_and_counts(void **state)
{
    struct answer a;

    (void)state;
    options.approvals.user_dir = home;
    confine(SP_APPROVAL_UNTRUSTED, NULL);
    begin(&a, "cargo build");
    until(questions == 1);
    accept_amendment(last_question.id, "cargo", "build");
    run_to_end(&a, 1, 0);
    assert_true(jobs[0].is_confined);
    assert_int_equal(access(rules_file, F_OK), 0);
    begin(&a, "cargo build -v");
    run_to_end(&a, 2, 0);
    assert_false(jobs[1].is_confined);
    assert_int_equal(questions, 1);
}

static void test_an_amendment_that_was_not_offered_is_no(void **state)
{
    struct answer a;

    (void)state;
    options.approvals.user_dir = home;
    confine(SP_APPROVAL_UNTRUSTED, NULL);
    begin(&a, "cargo build");
    until(questions == 1);
    accept_amendment(last_question.id, "cargo", "install");
    expect_rejection(&a, "exec command rejected by user");
    assert_int_equal(access(rules_file, F_OK), -1);
    assert_int_equal(job_count, 0);
}

static void test_an_amendment_that_cannot_be_kept_is_a_warning(void **state)
{
    struct answer a;

    (void)state;
    options.approvals.user_dir = "/dev/null/nowhere";
    confine(SP_APPROVAL_UNTRUSTED, NULL);
    begin(&a, "cargo build");
    until(questions == 1);
    accept_amendment(last_question.id, "cargo", "build");
    run_to_end(&a, 1, 0);
    assert_non_null(strstr(story, "warning:Failed to apply execpolicy amendment: "));
    begin(&a, "cargo build");
    until(questions == 2);
    decide(last_question.id, SP_DECISION_DENIED);
    until(a.is_there);
}

static void test_a_requested_prefix_is_offered(void **state)
{
    static const struct sp_str prefix[] = {{"cargo", 5}, {"install", 7}};
    struct sp_exec_request ask = command("cargo install x");
    struct answer a;

    (void)state;
    confine(SP_APPROVAL_ON_REQUEST, NULL);
    ask.has_permissions = true;
    ask.permissions = SP_PERMISSIONS_ESCALATED;
    ask.justification = SP_STR("May I?");
    ask.prefix_rule = prefix;
    ask.prefix_rule_count = 2;
    exec_ask(&a, &ask);
    until(questions == 1);
    EXPECT_AMENDMENT("cargo", "install");
    assert_true(last_question.is_free);
    assert_true(sp_str_eq(last_question.reason, SP_STR("May I?")));
    decide(last_question.id, SP_DECISION_ABORT);
    until(a.is_there);
}

/* ---- once more ---- */

static void test_consent_to_a_sandbox_is_not_consent_to_none(void **state)
{
    struct answer a;

    (void)state;
    confine(SP_APPROVAL_UNTRUSTED, NULL);
    begin(&a, "touch x");
    until(questions == 1);
    decide(last_question.id, SP_DECISION_APPROVED);
    be_denied(1);
    until(questions == 2);
    assert_int_equal(last_question.kind, SP_QUESTION_RETRY);
    assert_true(last_question.is_free);
    decide(last_question.id, SP_DECISION_APPROVED);
    until(job_count == 2);
    say_started(1);
    run_for(10);
    say(1, "second");
    end_with(1, 0);
    until(a.is_there);
    assert_false(jobs[1].is_confined);
    assert_string_equal(a.output, "second");
}

static void test_consent_can_be_made_to_count_for_both(void **state)
{
    struct answer a;

    (void)state;
    options.approvals.retry_reuses_approval = true;
    confine(SP_APPROVAL_UNTRUSTED, NULL);
    begin(&a, "touch x");
    until(questions == 1);
    decide(last_question.id, SP_DECISION_APPROVED);
    be_denied(1);
    run_to_end(&a, 2, 0);
    assert_false(jobs[1].is_confined);
    assert_int_equal(questions, 1);
}

static void test_a_retry_can_be_approved_for_the_session(void **state)
{
    struct answer a;

    (void)state;
    confine(SP_APPROVAL_ON_FAILURE, NULL);
    begin(&a, "touch x");
    be_denied(1);
    until(questions == 1);
    decide(last_question.id, SP_DECISION_APPROVED_FOR_SESSION);
    run_to_end(&a, 2, 0);
    begin(&a, "touch x");
    be_denied(3);
    run_to_end(&a, 4, 0);
    assert_false(jobs[3].is_confined);
    assert_int_equal(questions, 1);
    begin(&a, "touch y");
    be_denied(5);
    until(questions == 2);
    decide(last_question.id, SP_DECISION_DENIED);
    until(a.is_there);
}

static void test_the_second_attempt_is_the_last(void **state)
{
    struct answer a;

    (void)state;
    confine(SP_APPROVAL_ON_FAILURE, NULL);
    begin(&a, "touch x");
    be_denied(1);
    until(questions == 1);
    decide(last_question.id, SP_DECISION_APPROVED);
    until(job_count == 2);
    say_started(1);
    run_for(10);
    say(1, "Permission denied");
    end_with(1, 1);
    until(a.is_there);
    assert_exit(&a, 1);
    assert_int_equal(job_count, 2);
    assert_int_equal(questions, 1);
}

static void denied_and_not_asked(enum sp_approval_kind kind)
{
    struct answer a;
    const size_t before = job_count;

    confine(kind, NULL);
    begin(&a, "touch x");
    be_denied(before + 1);
    until(a.is_there);
    assert_exit(&a, 1);
    assert_true(a.was_denied);
    assert_int_equal(job_count, before + 1);
    assert_int_equal(questions, 0);
}

static void test_who_is_not_asked_after_a_denial(void **state)
{
    (void)state;
    denied_and_not_asked(SP_APPROVAL_ON_REQUEST);
    denied_and_not_asked(SP_APPROVAL_NEVER);
    denied_and_not_asked(SP_APPROVAL_GRANULAR); /* without sandbox_approval */
    options.approvals.ignores_heuristic = true;
    denied_and_not_asked(SP_APPROVAL_ON_FAILURE);
}

static void test_granular_may_ask_after_a_denial(void **state)
{
    struct answer a;

    (void)state;
    options.approvals.policy.sandbox_approval = true;
    confine(SP_APPROVAL_GRANULAR, NULL);
    begin(&a, "touch x");
    be_denied(1);
    until(questions == 1);
    decide(last_question.id, SP_DECISION_APPROVED);
    run_to_end(&a, 2, 0);
}

static void test_denied_reads_are_not_tried_again(void **state)
{
    struct answer a;

    (void)state;
    confine(SP_APPROVAL_ON_FAILURE, NULL);
    deny_reading("/secret");
    begin(&a, "touch x");
    be_denied(1);
    until(a.is_there);
    assert_exit(&a, 1);
    assert_int_equal(questions, 0);
}

static void test_a_request_keeps_what_it_began_with(void **state)
{
    const struct sp_approval_policy never = {.kind = SP_APPROVAL_NEVER};
    struct sp_rules *forbidding =
        make_rules("prefix_rule(pattern=[\"touch\"], decision=\"forbidden\")\n");
    struct answer a;

    (void)state;
    confine(SP_APPROVAL_UNTRUSTED, NULL);
    begin(&a, "touch x");
    until(questions == 1);
    sp_manager_approvals(manager)->options.policy = never;
    assert_true(sp_approvals_set_rules(sp_manager_approvals(manager), forbidding, SP_STR("")));
    decide(last_question.id, SP_DECISION_APPROVED);
    be_denied(1);
    until(questions == 2); /* untrusted, still */
    decide(last_question.id, SP_DECISION_APPROVED);
    run_to_end(&a, 2, 0);
    begin(&a, "touch x");
    until(a.is_there);
    assert_int_equal(a.fault, SP_FAULT_REJECTED);
    sp_rules_unref(forbidding);
}

/* ---- more than the profile ---- */

static void ask_for(struct answer *a, const char *first, const char *second)
{
    struct sp_exec_request ask = command("touch x");
    struct sp_grant grant = {0};

    assert_int_equal(sp_profile_add(&grant.extra, SP_PLACE_PATH, SP_ACCESS_WRITE, false,
                                    sp_str_of(first), (struct sp_str){0}, NULL),
                     0);
    if (second != NULL)
        assert_int_equal(sp_profile_add(&grant.extra, SP_PLACE_PATH, SP_ACCESS_WRITE, false,
                                        sp_str_of(second), (struct sp_str){0}, NULL),
                         0);
    ask.has_permissions = true;
    ask.permissions = SP_PERMISSIONS_ADDITIONAL;
    ask.additional = &grant;
    exec_ask(a, &ask);
    sp_grant_done(&grant);
}

static void test_what_was_granted_is_not_asked_again(void **state)
{
    struct sp_grant grant = {0};
    struct answer a;

    (void)state;
    options.has_additional_permissions = true;
    confine(SP_APPROVAL_ON_REQUEST, NULL);
    assert_int_equal(sp_profile_add(&grant.extra, SP_PLACE_PATH, SP_ACCESS_WRITE, false,
                                    SP_STR("/srv/granted"), (struct sp_str){0}, NULL),
                     0);
    assert_int_equal(sp_approvals_grant(sp_manager_approvals(manager), sp_str_of("local"),
                                        SP_STR("turn"), &grant, false, NULL),
                     0);
    sp_grant_done(&grant);
    ask_for(&a, "/srv/granted", NULL);
    run_to_end(&a, 1, 0);
    assert_int_equal(questions, 0);
    ask_for(&a, "/srv/granted/below", NULL);
    run_to_end(&a, 2, 0);
    assert_int_equal(questions, 0);
    ask_for(&a, "/srv/granted", "/srv/more");
    until(questions == 1);
    assert_int_equal(last_question.kind, SP_QUESTION_ADDITIONAL);
    assert_non_null(last_question.additional);
    decide(last_question.id, SP_DECISION_DENIED);
    until(a.is_there);
}

/* ---- the log ---- */

static size_t read_log(char *text, size_t size)
{
    FILE *f = fopen(audit_file, "re");
    size_t lines = 0;

    assert_non_null(f);
    text[fread(text, 1, size - 1, f)] = 0;
    (void)fclose(f);
    for (const char *p = text; (p = strchr(p, '\n')) != NULL; p++)
        lines++;
    return lines;
}

static void test_every_decision_is_written_down_before_it_counts(void **state)
{
    char text[16384];
    struct answer a;

    (void)state;
    options.approvals.audit_log = audit_file;
    options.approvals.must_audit = true;
    confine(SP_APPROVAL_UNTRUSTED, NULL);
    begin(&a, "touch x");
    until(questions == 1);
    assert_int_equal(access(audit_file, F_OK), -1);
    decide(last_question.id, SP_DECISION_APPROVED);
    assert_int_equal(read_log(text, sizeof text), 1);
    assert_int_equal(job_count, 0);
    assert_non_null(strstr(text, "\"requirement\":\"ask\",\"decision\":\"approved\",\"decided_by\":"
                                 "\"user\",\"attempts\":[\"confined\"]"));
    be_denied(1);
    until(questions == 2);
    decide(last_question.id, SP_DECISION_DENIED);
    until(a.is_there);
    assert_int_equal(read_log(text, sizeof text), 2);
    assert_non_null(
        strstr(text, "\"decision\":\"denied\",\"decided_by\":\"user\",\"attempts\":[]"));
    begin(&a, "ls");
    run_to_end(&a, 2, 0);
    assert_int_equal(read_log(text, sizeof text), 3);
    assert_non_null(strstr(text,
                           "\"requirement\":\"skip\",\"decision\":\"approved\",\"decided_by\":"
                           "\"config\",\"attempts\":[\"confined\"]"));
    begin(&a, "touch y");
    until(questions == 3);
    sp_manager_interrupt(manager);
    until(a.is_there);
    run_for(10);
    assert_int_equal(read_log(text, sizeof text), 4);
    assert_non_null(strstr(text, "\"decision\":\"abort\""));
}

static void test_without_the_log_nothing_starts(void **state)
{
    struct answer a;

    (void)state;
    options.approvals.audit_log = "/dev/null/nowhere/audit.jsonl";
    options.approvals.must_audit = true;
    confine(SP_APPROVAL_ON_REQUEST, NULL);
    begin(&a, "ls");
    until(a.is_there);
    assert_int_equal(a.fault, SP_FAULT_CREATE);
    assert_non_null(strstr(a.text, "Failed to create unified exec process: audit log: "));
    assert_int_equal(job_count, 0);
    assert_int_equal(sp_manager_reserved(manager), 0);
}

static void test_without_the_usual_log_there_is_one_warning(void **state)
{
    struct answer a;
    const char *first;

    (void)state;
    options.approvals.audit_log = "/dev/null/nowhere/audit.jsonl";
    confine(SP_APPROVAL_ON_REQUEST, NULL);
    begin(&a, "ls");
    run_to_end(&a, 1, 0);
    begin(&a, "ls");
    run_to_end(&a, 2, 0);
    first = strstr(story, "warning:");
    assert_non_null(first);
    assert_null(strstr(first + 1, "warning:"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        plan_test(test_what_a_rule_forbids_does_not_run),
        plan_test(test_what_a_rule_allows_runs_free_and_unasked),
        plan_test(test_variables_are_judged_with_the_command),
        plan_test(test_denied_reads_are_never_free),
        plan_test(test_untrusted_asks_for_what_is_not_known_to_be_safe),
        plan_test(test_nobody_to_answer_is_said),
        plan_test(test_a_refusal_can_say_why),
        plan_test(test_a_long_refusal_is_cut),
        plan_test(test_an_answer_that_does_not_come_is_no),
        plan_test(test_once_is_once_and_a_session_is_a_session),
        plan_test(test_another_place_terminal_or_wish_is_asked_again),
        plan_test(test_an_amendment_is_kept_and_counts),
        plan_test(test_an_amendment_that_was_not_offered_is_no),
        plan_test(test_an_amendment_that_cannot_be_kept_is_a_warning),
        plan_test(test_a_requested_prefix_is_offered),
        plan_test(test_consent_to_a_sandbox_is_not_consent_to_none),
        plan_test(test_consent_can_be_made_to_count_for_both),
        plan_test(test_a_retry_can_be_approved_for_the_session),
        plan_test(test_the_second_attempt_is_the_last),
        plan_test(test_who_is_not_asked_after_a_denial),
        plan_test(test_granular_may_ask_after_a_denial),
        plan_test(test_denied_reads_are_not_tried_again),
        plan_test(test_a_request_keeps_what_it_began_with),
        plan_test(test_what_was_granted_is_not_asked_again),
        plan_test(test_every_decision_is_written_down_before_it_counts),
        plan_test(test_without_the_log_nothing_starts),
        plan_test(test_without_the_usual_log_there_is_one_warning),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("plan_flow", tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What exec_command demands, what it asks a person, and what it makes of a denial.
 */
#include "puppet_backend.h"

static struct sp_policy read_only;

static int begin_asks(void **state)
{
    read_only = (struct sp_policy){0};
    return begin_puppets(state);
}

static int end_asks(void **state)
{
    const int r = end_puppets(state);

    sp_policy_done(&read_only);
    return r;
}
#define asks_test(f) cmocka_unit_test_setup_teardown(f, begin_asks, end_asks)

/* A manager whose commands are confined. */
static void confine(enum sp_approval_kind approval)
{
    sp_policy_done(&read_only);
    read_only = (struct sp_policy){0};
    assert_int_equal(sp_profile_add(&read_only.profile, SP_PLACE_ROOT, SP_ACCESS_READ, false,
                                    (struct sp_str){0}, (struct sp_str){0}, NULL),
                     0);
    options.policy = &read_only;
    options.approvals.policy.kind = approval;
    remake_manager();
}

static void refused(const struct sp_exec_request *ask, const char *text)
{
    struct answer a;
    const size_t jobs_before = job_count;

    exec_ask(&a, ask);
    until(a.is_there);
    assert_fault(&a, SP_FAULT_ARGUMENTS, text);
    assert_int_equal(job_count, jobs_before);
    assert_int_equal(sp_manager_reserved(manager), 0);
}

/* ---- the checks, in their order ---- */

static void test_without_an_environment_nothing_runs(void **state)
{
    const struct sp_exec_request ask = command("x");

    (void)state;
    options.environment_count = 0;
    remake_manager();
    refused(&ask, "unified exec is unavailable in this session");
}

static void test_an_environment_has_to_be_attached(void **state)
{
    struct sp_exec_request ask = command("x");

    (void)state;
    ask.environment_id = SP_STR("nope");
    ask.justification = SP_STR("why");
    refused(&ask, "unknown turn environment id `nope`");
    ask.environment_id = SP_STR("local");
    refused(&ask, "`justification` requires an explicit `sandbox_permissions`; use "
                  "`sandbox_permissions: \"require_escalated\"` for unsandboxed execution, or omit "
                  "`justification`.");
}

static void test_a_remote_shell_is_the_one_it_reports(void **state)
{
    struct sp_exec_request ask = command("x");
    struct answer a;

    (void)state;
    options.refuses_login_shell = true;
    remake_manager();
    puppet_facts.is_remote = true;
    ask.shell = SP_STR("/usr/bin/bash");
    ask.login = true;
    refused(&ask, "environment `local` does not report a shell");
    puppet_facts.shell_type = SP_SHELL_ZSH;
    puppet_facts.shell_name = "zsh";
    puppet_facts.shell_path = "/there/zsh";
    refused(&ask, "environment `local` only supports `zsh`");
    ask.shell = SP_STR("zsh");
    refused(&ask, "login shell is disabled by config; omit `login` or set it to false.");
    ask.login = false;
    ask.yield = (struct sp_yield_request){true, 250};
    exec_ask(&a, &ask);
    until(job_count == 1);
    say_started(0);
    until(a.is_there);
    assert_running(&a, 1000);
    assert_string_equal(first_process(manager)->argv[0].p, "/there/zsh");
    assert_string_equal(first_process(manager)->argv[1].p, "-c");
}

static void test_permissions_are_asked_for_in_the_right_way(void **state)
{
    struct sp_exec_request ask = command("x");
    struct sp_grant grant = {0};

    (void)state;
    confine(SP_APPROVAL_NEVER);
    ask.has_permissions = true;
    ask.permissions = SP_PERMISSIONS_ESCALATED;
    refused(&ask, "approval policy is Never; reject command — you cannot ask for escalated "
                  "permissions if the approval policy is Never");
    ask.permissions = SP_PERMISSIONS_ADDITIONAL;
    confine(SP_APPROVAL_ON_FAILURE);
    refused(&ask, "additional permissions are disabled; enable "
                  "`features.exec_permission_approvals` before using "
                  "`with_additional_permissions`");
    options.has_additional_permissions = true;
    confine(SP_APPROVAL_ON_FAILURE);
    refused(&ask, "approval policy is OnFailure; reject command — you cannot request additional "
                  "permissions unless the approval policy is OnRequest");
    confine(SP_APPROVAL_ON_REQUEST);
    refused(&ask, "missing `additional_permissions`; provide at least one of `network` or "
                  "`file_system` when using `with_additional_permissions`");
    ask.additional = &grant;
    refused(&ask, "`additional_permissions` must include at least one requested permission in "
                  "`network` or `file_system`");
    ask.permissions = SP_PERMISSIONS_DEFAULT;
    refused(&ask, "`additional_permissions` requires `sandbox_permissions` set to "
                  "`with_additional_permissions`");
}

/* ---- where it runs ---- */

static void test_directories_are_taken_from_the_environment(void **state)
{
    static const struct {
        const char *workdir, *cwd;
        bool is_remote;
    } rows[] = {
        {"", "/site", false},     {"sub/../x", "/site/x", false},
        {"/a/b", "/a/b", false},  {"nosuch/..", "/site", false},
        {"", "/site", true},      {"x", "/site/x", true},
        {"C:\\x", "C:\\x", true},
    };
    struct sp_exec_request ask = command("x");
    struct answer a;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ask.workdir = sp_str_of(rows[i].workdir);
        puppet_facts.is_remote = rows[i].is_remote;
        exec_ask(&a, &ask);
        until(job_count == i + 1);
        assert_string_equal(jobs[i].cwd, rows[i].cwd);
        say_started(i);
        end_with(i, 0);
        until(a.is_there);
    }
    puppet_facts.is_remote = false;
    ask.workdir = SP_STR("C:\\x");
    exec_ask(&a, &ask);
    until(a.is_there);
    assert_fault(&a, SP_FAULT_CREATE, "exec_command failed: C:\\x is not valid on linux");
    assert_int_equal(sp_manager_reserved(manager), 0);
}

static void test_an_environment_without_a_directory_needs_one(void **state)
{
    struct answer a;

    (void)state;
    puppet_place.cwd = NULL;
    puppet_facts = (struct sp_backend_facts){.is_remote = true};
    remake_manager();
    exec_for(&a, "x", false, 250);
    until(a.is_there);
    assert_int_equal(a.fault, SP_FAULT_CREATE);
    assert_non_null(strstr(a.text, "give an absolute `workdir`"));
}

/* ---- leave to run without a sandbox ---- */

static void escalate(struct answer *a)
{
    struct sp_exec_request ask = command("rm -rf x");

    ask.has_permissions = true;
    ask.permissions = SP_PERMISSIONS_ESCALATED;
    ask.justification = SP_STR("May I?");
    ask.yield = (struct sp_yield_request){true, 250};
    exec_ask(a, &ask);
    until(questions == 1);
    assert_int_equal(last_question.kind, SP_QUESTION_ESCALATE);
}

static void test_escalation_is_asked_for_and_runs_free(void **state)
{
    struct answer a;

    (void)state;
    confine(SP_APPROVAL_ON_REQUEST);
    escalate(&a);
    assert_int_equal(job_count, 0);
    run_for(60000);                                   /* time for an answer is not the command's */
    decide(last_question.id + 1, SP_DECISION_DENIED); /* not asked */
    decide(last_question.id, SP_DECISION_APPROVED);
    until(job_count == 1);
    assert_false(jobs[0].is_confined);
    assert_false(jobs[0].has_network_mark);
    say_started(0);
    until(a.is_there);
    assert_running(&a, 1000);
    assert_int_equal(a.answer.wall_ns, 250000000);
    decide(last_question.id, SP_DECISION_ABORT); /* too late */
    run_for(10);
}

static void test_a_refusal_is_told_and_leaves_nothing(void **state)
{
    struct answer a;

    (void)state;
    confine(SP_APPROVAL_ON_REQUEST);
    escalate(&a);
    decide(last_question.id, SP_DECISION_DENIED);
    until(a.is_there);
    assert_fault(&a, SP_FAULT_REJECTED,
                 "exec_command failed: Failed to create unified exec process: exec command "
                 "rejected by user");
    assert_int_equal(sp_manager_reserved(manager), 0);
    questions = 0;
    escalate(&a);
    sp_manager_interrupt(manager);
    until(a.is_there);
    assert_int_equal(a.fault, SP_FAULT_ABORTED);
    assert_int_equal(sp_manager_reserved(manager), 0);
    decide(last_question.id, SP_DECISION_APPROVED);
    turn();
    assert_int_equal(job_count, 0);
}

static void test_an_abort_interrupts_the_others(void **state)
{
    struct answer a;
    struct answer other;

    (void)state;
    confine(SP_APPROVAL_ON_REQUEST);
    exec_started(&other, "x", false, 30000);
    run_for(200);
    escalate(&a);
    decide(last_question.id, SP_DECISION_ABORT);
    until(a.is_there && other.is_there);
    assert_int_equal(a.fault, SP_FAULT_REJECTED);
    assert_int_equal(other.fault, SP_FAULT_ABORTED);
    assert_int_equal(sp_manager_stored(manager), 1);
}

static void test_without_anybody_to_ask_every_question_is_denied(void **state)
{
    struct sp_exec_request ask = command("x");
    struct answer a;

    (void)state;
    manager_ops.ask = NULL;
    confine(SP_APPROVAL_ON_REQUEST);
    manager_ops.ask = on_ask;
    ask.has_permissions = true;
    ask.permissions = SP_PERMISSIONS_ESCALATED;
    exec_ask(&a, &ask);
    until(a.is_there);
    assert_int_equal(a.fault, SP_FAULT_REJECTED);
}

/* Of one call alone: nobody sees its questions. */
static void test_a_call_that_nobody_answers_for_is_judged_so(void **state)
{
    struct sp_exec_request ask = command("touch x");
    struct answer a;

    (void)state;
    confine(SP_APPROVAL_ON_FAILURE);
    ask.has_no_approver = true;
    exec_ask(&a, &ask);
    until(job_count == 1);
    say_started(0);
    say(0, "touch: Permission denied\n");
    end_with(0, 1);
    until(a.is_there); /* the denial is the result, and its words are not lost */
    assert_exit(&a, 1);
    assert_true(a.was_denied);
    assert_string_equal(a.output, "touch: Permission denied\n");
    confine(SP_APPROVAL_ON_REQUEST);
    ask.has_permissions = true;
    ask.permissions = SP_PERMISSIONS_ESCALATED;
    exec_ask(&a, &ask);
    until(a.is_there);
    assert_int_equal(a.fault, SP_FAULT_REJECTED);
    assert_int_equal(questions, 0);
    ask.has_no_approver = false; /* others can be asked about all the same */
    exec_ask(&a, &ask);
    until(questions == 1);
    decide(last_question.id, SP_DECISION_DENIED);
    until(a.is_there);
}

static void test_who_is_free_already_is_not_asked(void **state)
{
    struct sp_exec_request ask = command("x");
    struct answer a;

    (void)state;
    options.approvals.policy.kind = SP_APPROVAL_ON_REQUEST;
    remake_manager();
    ask.has_permissions = true;
    ask.permissions = SP_PERMISSIONS_ESCALATED;
    exec_ask(&a, &ask);
    until(job_count == 1);
    say_started(0);
    end_with(0, 0);
    until(a.is_there);
    assert_exit(&a, 0);
    assert_int_equal(questions, 0);
}

static void test_additional_permissions_widen_the_sandbox(void **state)
{
    struct sp_exec_request ask = command("x");
    struct sp_grant grant = {.extra.has_network = true};
    struct answer a;

    (void)state;
    options.has_additional_permissions = true;
    confine(SP_APPROVAL_ON_REQUEST);
    ask.has_permissions = true;
    ask.permissions = SP_PERMISSIONS_ADDITIONAL;
    ask.additional = &grant;
    exec_ask(&a, &ask);
    until(questions == 1);
    decide(last_question.id, SP_DECISION_APPROVED);
    until(job_count == 1);
    assert_true(jobs[0].is_confined);
    assert_false(jobs[0].has_network_mark);
    say_started(0);
    end_with(0, 0);
    until(a.is_there);
}

/* ---- denials ---- */

static void deny_early(struct answer *a)
{
    exec_started(a, "touch x", false, 3000);
    assert_true(jobs[job_count - 1].is_confined);
    assert_true(jobs[job_count - 1].has_network_mark);
    run_for(20);
    say_exited(job_count - 1, 1);
    run_for(10);
    say(job_count - 1, "touch: Permission denied\n"); /* a straggler */
}

static void test_a_denial_is_an_ordinary_result(void **state)
{
    struct answer a;

    (void)state;
    confine(SP_APPROVAL_NEVER);
    deny_early(&a);
    assert_false(a.is_there);
    until(a.is_there);
    assert_exit(&a, 1);
    assert_true(a.was_denied);
    assert_string_equal(a.output, "touch: Permission denied\n");
    assert_true(a.answer.wall_ns >= 40000000);
    until(strstr(story, "end:1:") != NULL);
    assert_int_equal(events[0].type, SP_EVENT_BEGIN);
    assert_int_equal(events[event_count - 1].status, SP_STATUS_FAILED);
    assert_int_equal(questions, 0);
    assert_int_equal(sp_manager_reserved(manager), 0);
}

static void test_a_denied_start_can_be_hidden(void **state)
{
    struct answer a;

    (void)state;
    options.hides_denied_start = true;
    confine(SP_APPROVAL_ON_REQUEST);
    deny_early(&a);
    until(a.is_there);
    assert_exit(&a, 1);
    run_for(500);
    assert_string_equal(story, "");
    assert_true(was_asked(0, "release"));
}

#define FAILED_NOTICE "notice:Execution failed: the sandbox denied it something (exit code 1) "
#define RETRY_NOTICE  "notice:retrying command without sandbox "

static void test_a_denial_can_be_tried_again_without_a_sandbox(void **state)
{
    struct answer a;

    (void)state;
    confine(SP_APPROVAL_ON_FAILURE);
    deny_early(&a);
    until(questions == 1);
    assert_int_equal(last_question.kind, SP_QUESTION_RETRY);
    assert_string_equal(last_question.reason.p, "command failed; retry without sandbox?");
    run_for(5000);
    decide(last_question.id, SP_DECISION_APPROVED);
    until(job_count == 2);
    assert_false(jobs[1].is_confined);
    assert_false(jobs[1].has_network_mark);
    assert_true(was_asked(1, "start:1000"));
    say_started(1);
    run_for(10);
    say(1, "permission denied again"); /* but that was no sandbox of ours */
    end_with(1, 1);
    until(a.is_there);
    assert_exit(&a, 1);
    assert_false(a.was_denied);
    assert_string_equal(a.output, "permission denied again");
    assert_int_equal(a.answer.wall_ns, 10000000);
    assert_int_equal(questions, 1);
    assert_string_equal(story, FAILED_NOTICE RETRY_NOTICE
                        "begin delta:permission denied again end:1:permission denied again ");
    assert_true(was_asked(0, "release"));
}

static void test_a_refused_retry_is_a_rejection(void **state)
{
    struct answer a;

    (void)state;
    confine(SP_APPROVAL_ON_FAILURE);
    deny_early(&a);
    until(questions == 1);
    decide(last_question.id, SP_DECISION_DENIED);
    until(a.is_there);
    assert_int_equal(a.fault, SP_FAULT_REJECTED);
    assert_non_null(strstr(a.text, "rejected by user\n\nThe attempt in the sandbox:\n"));
    assert_non_null(strstr(a.text, "Process exited with code 1\n"));
    assert_non_null(strstr(a.text, "denied"));
    assert_true(a.was_denied);
    assert_int_equal(sp_manager_reserved(manager), 0);
    run_for(500);
    assert_string_equal(story, FAILED_NOTICE);
}

/* A command that runs for a while, and is denied something at its end. */
static void deny_late(struct answer *a)
{
    confine(SP_APPROVAL_ON_FAILURE);
    exec_started(a, "make", false, 30000);
    run_for(3000);
    say(0, "Read-only file system");
    end_with(0, 1);
    until(questions == 1);
    assert_int_equal(last_question.kind, SP_QUESTION_RETRY);
}

static void test_a_late_denial_can_be_tried_again(void **state)
{
    struct answer a;

    (void)state;
    deny_late(&a);
    decide(last_question.id, SP_DECISION_APPROVED);
    until(job_count == 2);
    assert_false(jobs[1].is_confined);

    say_started(1);
    run_for(1000);
    say(1, "made");
    end_with(1, 0);
    until(a.is_there);
    assert_exit(&a, 0);
    assert_string_equal(a.output, "made");
    assert_int_equal(a.answer.wall_ns, 1000000000);
    assert_int_equal(sp_manager_reserved(manager), 0);
    assert_string_equal(
        story,
        "begin delta:Read-only file system end:1:Read-only file system " FAILED_NOTICE RETRY_NOTICE
        "begin delta:made end:0:made ");
}

static void test_a_late_denial_that_is_refused_keeps_its_output(void **state)
{
    struct answer a;

    (void)state;
    deny_late(&a);
    decide(last_question.id, SP_DECISION_DENIED);
    until(a.is_there);
    assert_int_equal(a.fault, SP_FAULT_REJECTED);
    assert_non_null(strstr(a.text, "rejected by user"));
    assert_non_null(strstr(a.text, "Process exited with code 1\n"));
    assert_non_null(strstr(a.text, "Read-only file system"));
    assert_int_equal(sp_manager_reserved(manager), 0);
}

static void test_a_late_denial_that_is_stopped_keeps_its_output(void **state)
{
    struct answer a;

    (void)state;
    deny_late(&a);
    sp_manager_cancel(manager, a.call);
    until(a.is_there);
    assert_int_equal(a.fault, SP_FAULT_ABORTED);
    assert_non_null(strstr(a.text, "aborted by user\n\nThe attempt in the sandbox:\n"));
    assert_non_null(strstr(a.text, "Read-only file system"));
    assert_int_equal(sp_manager_reserved(manager), 0);
}

static void test_the_loss_of_a_retry_is_no_attempt_in_the_sandbox(void **state)
{
    struct answer a;

    (void)state;
    deny_late(&a);
    decide(last_question.id, SP_DECISION_APPROVED);
    until(job_count == 2);
    say_started(1);
    run_for(1000);
    say(1, "half of it");
    say_failed(1, "the cell has ended");
    until(a.is_there);
    assert_int_equal(a.fault, SP_FAULT_FAILED);
    assert_non_null(strstr(a.text, "the cell has ended"));
    assert_null(strstr(a.text, "The attempt in the sandbox"));
    assert_false(a.was_denied);
}

/* Time does not run against a call while a person is asked about another one. */
static void test_a_question_stops_the_clock_of_other_calls(void **state)
{
    struct answer other;
    struct answer ended;
    struct answer a;

    (void)state;
    confine(SP_APPROVAL_ON_FAILURE);
    exec_started(&other, "x", false, 1000);
    exec_started(&ended, "y", false, 1000);
    run_for(500);
    const uint64_t asked_ms = test_now_ms();
    deny_early(&a);
    until(questions == 1);
    run_for(5000);
    assert_false(other.is_there);
    end_with(1, 0); /* what has ended is told */
    until(ended.is_there);
    decide(last_question.id, SP_DECISION_DENIED);
    until(a.is_there);
    const uint64_t stood_ms = test_now_ms() - asked_ms;
    until(other.is_there);
    assert_true(other.at_ms - asked_ms >= stood_ms + 400);
    assert_true(other.at_ms - asked_ms <= stood_ms + 600);
}

static void test_a_question_that_nobody_answers_stops_it_for_a_while(void **state)
{
    struct answer other;
    struct answer a;

    (void)state;
    confine(SP_APPROVAL_ON_FAILURE);
    exec_started(&other, "x", false, 1000);
    deny_early(&a);
    until(questions == 1);
    const uint64_t asked_ms = test_now_ms();
    until(other.is_there);
    assert_false(a.is_there);
    assert_true(other.at_ms - asked_ms >= 60000 && other.at_ms - asked_ms <= 61000);
    decide(last_question.id, SP_DECISION_DENIED);
    until(a.is_there);
}

/* What was typed cannot be typed again. */
static void test_what_was_typed_into_is_not_repeated(void **state)
{
    struct answer a;
    struct answer typed;

    (void)state;
    confine(SP_APPROVAL_ON_FAILURE);
    exec_started(&a, "read x", true, 30000);
    run_for(1000);
    write_for(&typed, 1000, "yes\n", 250);
    run_for(500);
    say(0, "Read-only file system");
    end_with(0, 1);
    until(a.is_there);
    assert_int_equal(questions, 0);
    assert_exit(&a, 1);
}

static void test_nothing_but_a_denial_is_asked_about(void **state)
{
    struct answer a;

    (void)state;
    confine(SP_APPROVAL_ON_FAILURE);
    exec_started(&a, "false", false, 3000);
    end_with(0, 1);
    until(a.is_there);
    assert_exit(&a, 1);
    exec_started(&a, "nosuch", false, 3000);
    say(1, "command not found");
    end_with(1, 127);
    until(a.is_there);
    assert_exit(&a, 127);
    assert_int_equal(questions, 0);
}

static void test_what_the_executor_says_counts(void **state)
{
    const struct sp_job_exit how = {.code = 1, .denied = 1};
    struct answer a;

    (void)state;
    confine(SP_APPROVAL_NEVER);
    exec_started(&a, "x", false, 3000);
    jobs[0].job->ops->exited(jobs[0].job, &how);
    say_closed(0);
    until(a.is_there);
    assert_exit(&a, 1);
    assert_true(a.was_denied);
}

/* Only the creating call asks for another attempt. */
static void test_a_denial_that_a_poll_sees_is_not_asked_about(void **state)
{
    struct answer a;

    (void)state;
    confine(SP_APPROVAL_ON_FAILURE);
    (void)exec_background("y", false);
    say(0, "Read-only file system");
    end_with(0, 1);
    write_for(&a, 1000, "", 0);
    until(a.is_there);
    assert_exit(&a, 1);
    assert_true(a.was_denied);
    assert_int_equal(questions, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        asks_test(test_without_an_environment_nothing_runs),
        asks_test(test_an_environment_has_to_be_attached),
        asks_test(test_a_remote_shell_is_the_one_it_reports),
        asks_test(test_permissions_are_asked_for_in_the_right_way),
        asks_test(test_directories_are_taken_from_the_environment),
        asks_test(test_an_environment_without_a_directory_needs_one),
        asks_test(test_escalation_is_asked_for_and_runs_free),
        asks_test(test_a_refusal_is_told_and_leaves_nothing),
        asks_test(test_an_abort_interrupts_the_others),
        asks_test(test_without_anybody_to_ask_every_question_is_denied),
        asks_test(test_a_call_that_nobody_answers_for_is_judged_so),
        asks_test(test_who_is_free_already_is_not_asked),
        asks_test(test_additional_permissions_widen_the_sandbox),
        asks_test(test_a_denial_is_an_ordinary_result),
        asks_test(test_a_denied_start_can_be_hidden),
        asks_test(test_a_denial_can_be_tried_again_without_a_sandbox),
        asks_test(test_a_refused_retry_is_a_rejection),
        asks_test(test_nothing_but_a_denial_is_asked_about),
        asks_test(test_what_the_executor_says_counts),
        asks_test(test_a_late_denial_can_be_tried_again),
        asks_test(test_a_late_denial_that_is_refused_keeps_its_output),
        asks_test(test_a_late_denial_that_is_stopped_keeps_its_output),
        asks_test(test_the_loss_of_a_retry_is_no_attempt_in_the_sandbox),
        asks_test(test_a_question_stops_the_clock_of_other_calls),
        asks_test(test_a_question_that_nobody_answers_stops_it_for_a_while),
        asks_test(test_what_was_typed_into_is_not_repeated),
        asks_test(test_a_denial_that_a_poll_sees_is_not_asked_about),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

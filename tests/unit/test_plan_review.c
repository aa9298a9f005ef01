/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is asked before a person, and in the person's place: permission hooks and the automatic
 * reviewer (case 117).
 */
#include "approver_fixture.h"

#define LATE_REVIEW                                                                           \
    "The automatic permission approval review did not finish before its deadline. Do not "    \
    "assume the action is unsafe based on the timeout alone. You may retry once, or ask the " \
    "user for guidance or explicit approval."
#define RISK "This action was rejected due to unacceptable risk.\nReason: "

/* ---- hooks ---- */

static void test_a_hook_allows_once(void **state)
{
    struct answer a;

    (void)state;
    use_hooks(1);
    confine(SP_APPROVAL_UNTRUSTED);
    for (unsigned i = 1; i <= 2; i++) { /* nothing is cached */
        begin(&a, "make");
        until(first_hook.asked == i);
        assert_int_equal(first_hook.question->kind, SP_QUESTION_RUN);
        answer_kind(&first_hook, SP_DECISION_APPROVED_FOR_SESSION);
        run_to_end(&a, i);
        expect_log("\"requirement\":\"ask\",\"decision\":\"approved\",\"decided_by\":\"hook\","
                   "\"attempts\":[\"confined\"]");
    }
    assert_int_equal(questions, 0);
}

static void test_a_hook_denies_in_its_words(void **state)
{
    struct answer a;

    (void)state;
    use_hooks(2);
    confine(SP_APPROVAL_UNTRUSTED);
    begin(&a, "make");
    until(first_hook.asked == 1);
    answer_no(&first_hook, "not on a Sunday");
    expect_rejection(&a, "not on a Sunday");
    expect_log("\"decision\":\"denied\",\"decided_by\":\"hook\"");
    begin(&a, "make");
    until(first_hook.asked == 2);
    answer_kind(&first_hook, SP_DECISION_DENIED);
    expect_rejection(&a, "rejected by configuration");
    assert_int_equal(second_hook.asked, 0);
    assert_int_equal(questions, 0);
}

static void test_hooks_without_opinion_leave_it_to_the_next(void **state)
{
    struct answer a;

    (void)state;
    use_hooks(2);
    confine(SP_APPROVAL_UNTRUSTED);
    begin(&a, "make");
    until(first_hook.asked == 1);
    const uint64_t id = first_hook.id;
    answer_kind(&first_hook, SP_DECISION_NO_OPINION);
    until(second_hook.asked == 1);
    assert_true(second_hook.id != id);
    answer_kind(&second_hook, SP_DECISION_NO_OPINION);
    until(questions == 1);
    decide(last_question.id, SP_DECISION_APPROVED);
    run_to_end(&a, 1);
    expect_log("\"decided_by\":\"user\"");
}

static void test_hooks_are_asked_where_no_person_can_be(void **state)
{
    struct sp_exec_request ask = command("make");
    struct answer a;

    (void)state;
    use_hooks(1);
    confine(SP_APPROVAL_UNTRUSTED);
    ask.has_no_approver = true;
    exec_ask(&a, &ask);
    until(first_hook.asked == 1);
    answer_kind(&first_hook, SP_DECISION_APPROVED);
    run_to_end(&a, 1);
    exec_ask(&a, &ask);
    until(first_hook.asked == 2);
    answer_kind(&first_hook, SP_DECISION_NO_OPINION);
    expect_rejection(&a, SP_NO_APPROVER);
    assert_int_equal(questions, 0);
}

static void test_hooks_come_before_what_is_remembered(void **state)
{
    struct answer a;

    (void)state;
    use_hooks(1);
    confine(SP_APPROVAL_UNTRUSTED);
    begin(&a, "make");
    until(first_hook.asked == 1);
    answer_kind(&first_hook, SP_DECISION_NO_OPINION);
    until(questions == 1);
    decide(last_question.id, SP_DECISION_APPROVED_FOR_SESSION);
    run_to_end(&a, 1);
    begin(&a, "make");
    until(first_hook.asked == 2);
    answer_kind(&first_hook, SP_DECISION_NO_OPINION);
    run_to_end(&a, 2);
    expect_log("\"decided_by\":\"cache\"");
    begin(&a, "make");
    until(first_hook.asked == 3);
    answer_no(&first_hook, "no more");
    expect_rejection(&a, "no more");
    assert_int_equal(questions, 1);
}

static void test_a_broken_hook_is_a_denial_that_names_it(void **state)
{
    struct answer a;
    static const struct {
        struct sp_decision d;
        const char *why;
    } broken[] = {
        {{.kind = SP_DECISION_FAILED, .rejection = SP_STR("it ended with exit status 3")},
         "it ended with exit status 3"},
        {{.kind = SP_DECISION_TIMED_OUT}, "no answer before its deadline"},
        {{.kind = SP_DECISION_AMENDMENT}, "its answer is no decision"},
        {{.kind = SP_DECISION_NETWORK_AMENDMENT}, "its answer is no decision"},
        {{.kind = SP_DECISION_MAX}, "its answer is no decision"},
    };
    char text[256];

    (void)state;
    use_hooks(1);
    confine(SP_APPROVAL_UNTRUSTED);
    for (unsigned i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        begin(&a, "make");
        until(first_hook.asked == i + 1);
        answer_fully(&first_hook, &broken[i].d);
        (void)snprintf(text, sizeof text,
                       "permission hook 1 (/site/hook) failed: %s; nothing is allowed until it "
                       "works or is not configured",
                       broken[i].why);
        expect_rejection(&a, text);
    }
    assert_int_equal(job_count, 0);
    assert_int_equal(questions, 0);
}

static void test_a_hook_has_a_deadline(void **state)
{
    struct answer a;

    (void)state;
    use_hooks(1);
    options.approvals.hook_timeout_ms = 700;
    confine(SP_APPROVAL_UNTRUSTED);
    const uint64_t began = test_now_ms();
    begin(&a, "make");
    expect_rejection(&a, "permission hook 1 (/site/hook) failed: no answer before its deadline; "
                         "nothing is allowed until it works or is not configured");
    assert_in_range(a.at_ms - began, 700, 800);
    assert_int_equal(first_hook.withdrawn, 1);
    first_hook.done(first_hook.user, first_hook.id, /* too late: nobody wants to know */
                    &(struct sp_decision){.kind = SP_DECISION_APPROVED});
    assert_int_equal(job_count, 0);
}

static void test_hooks_are_enough_until_they_have_no_opinion(void **state)
{
    struct answer a;

    (void)state;
    use_hooks(1);
    options.approvals.has_no_approver = true;
    confine(SP_APPROVAL_UNTRUSTED);
    begin(&a, "make");
    until(first_hook.asked == 1);
    answer_kind(&first_hook, SP_DECISION_APPROVED);
    run_to_end(&a, 1);
    begin(&a, "make");
    until(first_hook.asked == 2);
    answer_kind(&first_hook, SP_DECISION_NO_OPINION);
    expect_rejection(&a, "approval required, but the client cannot answer questions; allow it by a "
                         "rule, configure an approver, or change the approval policy");
    expect_log("\"decided_by\":\"config\"");
}

static void test_hooks_that_answer_at_once(void **state)
{
    static const struct sp_decision nothing = {.kind = SP_DECISION_NO_OPINION};
    static const struct sp_decision yes = {.kind = SP_DECISION_APPROVED};
    struct answer a;

    (void)state;
    use_hooks(2);
    first_hook.at_once = &nothing;
    second_hook.at_once = &yes;
    confine(SP_APPROVAL_UNTRUSTED);
    begin(&a, "make");
    run_to_end(&a, 1);
    assert_int_equal(questions, 0);
}

static void test_an_interrupted_call_withdraws_from_the_hook(void **state)
{
    struct answer a;

    (void)state;
    use_hooks(1);
    confine(SP_APPROVAL_UNTRUSTED);
    begin(&a, "make");
    until(first_hook.asked == 1);
    sp_manager_interrupt(manager);
    until(a.is_there);
    assert_int_equal(a.fault, SP_FAULT_ABORTED);
    until(first_hook.withdrawn == 1);
    expect_log("\"decision\":\"abort\"");
}

static void test_nobody_answers_for_a_hook(void **state)
{
    struct answer a;

    (void)state;
    use_hooks(1);
    confine(SP_APPROVAL_UNTRUSTED);
    begin(&a, "make");
    until(first_hook.asked == 1);
    assert_null(sp_approvals_question(sp_manager_approvals(manager), first_hook.id));
    decide(first_hook.id, SP_DECISION_APPROVED);
    run_for(50);
    assert_int_equal(job_count, 0);
    answer_kind(&first_hook, SP_DECISION_ABORT);
    until(a.is_there);
}

static void test_hooks_that_were_forgotten_are_an_error(void **state)
{
    struct sp_approvals *a = NULL;
    struct sp_approvals_options o = {.loop = loop, .needs_hooks = true};
    struct sp_err e = {0};

    (void)state;
    assert_int_equal(sp_approvals_new(&o, &a, &e), -SP_E_STATE);
    o.reviewer = &reviewer.approver;
    assert_int_equal(sp_approvals_new(&o, &a, &e), 0);
    sp_approvals_free(a);
}

/* ---- the reviewer ---- */

static void test_the_reviewer_answers_instead_of_the_person(void **state)
{
    struct answer a;

    (void)state;
    use_reviewer(false);
    confine(SP_APPROVAL_UNTRUSTED);
    for (unsigned i = 1; i <= 2; i++) { /* nothing is cached */
        begin(&a, "make");
        until(reviewer.asked == i);
        answer_kind(&reviewer, SP_DECISION_APPROVED_FOR_SESSION);
        run_to_end(&a, i);
        expect_log("\"decision\":\"approved\",\"decided_by\":\"reviewer\"");
    }
    begin(&a, "ls"); /* known to be safe: nobody is asked */
    run_to_end(&a, 3);
    assert_int_equal(reviewer.asked, 2);
    assert_int_equal(questions, 0);
}

static void test_its_refusals(void **state)
{
    struct answer a;

    (void)state;
    use_reviewer(false);
    confine(SP_APPROVAL_UNTRUSTED);
    begin(&a, "make");
    until(reviewer.asked == 1);
    answer_no(&reviewer, "it deletes things");
    until(a.is_there);
    assert_int_equal(a.fault, SP_FAULT_REJECTED);
    assert_non_null(strstr(a.text, RISK "it deletes things\nDo not try"));
    expect_log("\"decision\":\"denied\",\"decided_by\":\"reviewer\"");
    begin(&a, "make");
    until(reviewer.asked == 2);
    answer_kind(&reviewer, SP_DECISION_DENIED);
    expect_rejection(&a, "automatic approval review denied the action");
}

static void test_it_has_three_attempts(void **state)
{
    struct answer a;
    uint64_t id = 0;

    (void)state;
    use_reviewer(false);
    confine(SP_APPROVAL_UNTRUSTED);
    begin(&a, "make");
    for (unsigned i = 1; i <= SP_REVIEW_ATTEMPTS; i++) {
        until(reviewer.asked == i);
        assert_true(reviewer.id != id);
        id = reviewer.id;
        answer_fully(&reviewer, &(struct sp_decision){.kind = SP_DECISION_FAILED,
                                                      .rejection = SP_STR("it was killed")});
    }
    until(a.is_there);
    assert_non_null(strstr(
        a.text, RISK "the automatic review failed (/site/reviewer): it was killed\nDo not try"));
    begin(&a, "make"); /* no opinion is no answer either; the third attempt counts */
    until(reviewer.asked == 4);
    answer_kind(&reviewer, SP_DECISION_NO_OPINION);
    until(reviewer.asked == 5);
    answer_kind(&reviewer, SP_DECISION_AMENDMENT);
    until(reviewer.asked == 6);
    answer_kind(&reviewer, SP_DECISION_APPROVED);
    run_to_end(&a, 1);
}

static void test_each_attempt_has_ninety_seconds(void **state)
{
    struct answer a;

    (void)state;
    use_reviewer(false);
    confine(SP_APPROVAL_UNTRUSTED);
    const uint64_t began = test_now_ms();
    begin(&a, "make");
    expect_rejection(&a, LATE_REVIEW);
    assert_in_range(a.at_ms - began, 270000, 270500);
    assert_int_equal(reviewer.asked, 3);
    assert_int_equal(reviewer.withdrawn, 3);
    expect_log("\"decision\":\"timed_out\",\"decided_by\":\"reviewer\"");
    options.approvals.review_timeout_ms = 100;
    remake_manager();
    begin(&a, "make");
    until(reviewer.asked == 4);
    const uint64_t late = reviewer.id;
    until(reviewer.asked == 5);
    reviewer.done(reviewer.user, late, &(struct sp_decision){.kind = SP_DECISION_APPROVED});
    run_for(20);
    assert_int_equal(job_count, 0); /* an answer to the attempt before is nobody's */
    answer_kind(&reviewer, SP_DECISION_APPROVED);
    run_to_end(&a, 1);
}

/* What runs beside a turn that is interrupted is answered as aborted. */
static bool is_interrupted_by(const char *cmd, enum sp_decision_kind kind, struct sp_str turn_id)
{
    const unsigned asked = reviewer.asked;
    struct sp_exec_request ask = command(cmd);
    struct answer beside;
    struct answer a;

    ask.turn_id = turn_id;
    begin(&beside, "ls"); /* runs on */
    const size_t n = job_count;
    until(job_count == n + 1);
    say_started(n);
    exec_ask(&a, &ask);
    until(reviewer.asked == asked + 1);
    answer_kind(&reviewer, kind);
    if (kind == SP_DECISION_APPROVED)
        run_to_end(&a, n + 2);
    until(a.is_there);
    run_for(1000);
    const bool was_interrupted = beside.is_there && beside.fault == SP_FAULT_ABORTED;
    if (!was_interrupted) {
        end_with(n, 0);
        until(beside.is_there);
    }
    return was_interrupted;
}

static void test_three_refusals_in_a_row_end_the_turn(void **state)
{
    (void)state;
    use_reviewer(false);
    confine(SP_APPROVAL_UNTRUSTED);
    assert_false(is_interrupted_by("make", SP_DECISION_DENIED, SP_STR("t1")));
    assert_false(is_interrupted_by("make", SP_DECISION_DENIED, SP_STR("t1")));
    assert_false(is_interrupted_by("make", SP_DECISION_APPROVED, SP_STR("t1")));
    assert_false(is_interrupted_by("make", SP_DECISION_DENIED, SP_STR("t1")));
    assert_false(is_interrupted_by("make", SP_DECISION_DENIED, SP_STR("t1")));
    assert_true(is_interrupted_by("make", SP_DECISION_DENIED, SP_STR("t1")));
    assert_non_null(strstr(story, "warning:the automatic reviewer has refused too much"));
    assert_false(is_interrupted_by("make", SP_DECISION_DENIED, SP_STR("t2")));
    expect_log("\"decision\":\"denied\"");
}

static void test_ten_refusals_of_fifty_end_the_turn(void **state)
{
    struct answer a;

    (void)state;
    use_reviewer(false);
    confine(SP_APPROVAL_UNTRUSTED);
    for (unsigned i = 1; i < 10; i++) {
        assert_false(is_interrupted_by("make", SP_DECISION_DENIED, SP_STR("turn")));
        assert_false(is_interrupted_by("make", SP_DECISION_APPROVED, SP_STR("turn")));
    }
    assert_true(is_interrupted_by("make", SP_DECISION_DENIED, SP_STR("turn")));
    begin(&a, "make");
    until(reviewer.asked == 20);
    answer_kind(&reviewer, SP_DECISION_APPROVED);
    until(a.is_there || job_count > 0);
    end_manager();
    make_manager(); /* a new conversation counts anew */
    assert_false(is_interrupted_by("make", SP_DECISION_DENIED, SP_STR("turn")));
}

static void test_the_strict_one_sees_everything(void **state)
{
    struct answer a;

    (void)state;
    use_reviewer(true);
    use_hooks(1);
    confine(SP_APPROVAL_ON_REQUEST);
    begin(&a, "ls");
    until(reviewer.asked == 1);
    assert_int_equal(first_hook.asked, 0); /* nobody would have had to be asked */
    assert_false(reviewer.question->is_free);
    answer_kind(&reviewer, SP_DECISION_APPROVED);
    run_to_end(&a, 1);
    expect_log("\"requirement\":\"skip\",\"decision\":\"approved\",\"decided_by\":\"reviewer\"");
    begin(&a, "ls");
    until(reviewer.asked == 2);
    answer_kind(&reviewer, SP_DECISION_DENIED);
    expect_rejection(&a, "automatic approval review denied the action");
    expect_log("\"requirement\":\"skip\",\"decision\":\"denied\",\"decided_by\":\"reviewer\"");
    assert_int_equal(questions, 0);
}

static void test_no_other_yes_is_enough_for_the_strict_one(void **state)
{
    struct answer a;

    (void)state;
    use_reviewer(true);
    use_hooks(1);
    confine(SP_APPROVAL_UNTRUSTED);
    begin(&a, "make");
    until(first_hook.asked == 1);
    answer_kind(&first_hook, SP_DECISION_APPROVED);
    until(reviewer.asked == 1);
    answer_kind(&reviewer, SP_DECISION_APPROVED);
    run_to_end(&a, 1);
    begin(&a, "make"); /* but its no is */
    until(first_hook.asked == 2);
    answer_no(&first_hook, "no");
    expect_rejection(&a, "no");
    assert_int_equal(reviewer.asked, 1);
}

static void test_consent_to_a_confined_run_is_none_to_a_free_one(void **state)
{
    struct answer a;

    (void)state;
    use_reviewer(false);
    options.approvals.retry_reuses_approval = true;
    confine(SP_APPROVAL_UNTRUSTED);
    begin(&a, "make");
    until(reviewer.asked == 1);
    answer_kind(&reviewer, SP_DECISION_APPROVED);
    until(job_count == 1);
    assert_true(jobs[0].is_confined);
    say_started(0);
    run_for(20);
    say(0, "make: Permission denied\n");
    end_with(0, 1);
    until(reviewer.asked == 2);
    assert_int_equal(reviewer.question->kind, SP_QUESTION_RETRY);
    assert_true(reviewer.question->is_free);
    answer_kind(&reviewer, SP_DECISION_APPROVED);
    run_to_end(&a, 2);
    assert_false(jobs[1].is_confined);
    expect_log("\"decided_by\":\"reviewer\",\"attempts\":[\"free\"]");
}

/* ---- ids ---- */

static void test_a_second_question_with_the_same_id_replaces_the_first(void **state)
{
    struct answer one;
    struct answer two;

    (void)state;
    confine(SP_APPROVAL_UNTRUSTED);
    begin(&one, "make one");
    until(questions == 1);
    const uint64_t id = last_question.id;
    begin(&two, "make two");
    until(questions == 2);
    until(one.is_there);
    assert_int_equal(one.fault, SP_FAULT_REJECTED);
    assert_non_null(strstr(one.text, "exec command rejected by user"));
    expect_log("\"decision\":\"abort\",\"decided_by\":\"none\"");
    decide(id, SP_DECISION_APPROVED);
    run_for(20);
    assert_int_equal(job_count, 0);
    decide(last_question.id, SP_DECISION_APPROVED);
    run_to_end(&two, 1);
}

/* Two questions of one call, and who hears that the first is replaced ends the second as well. */
struct pair {
    struct sp_asking first, *second;
    unsigned told;
};

static void end_both(struct sp_asking *q, const struct sp_decision *d)
{
    struct pair *p = SP_CONTAINER(q, struct pair, first);

    assert_int_equal(d->kind, SP_DECISION_ABORT);
    assert_true(q->is_replaced);
    p->told++;
    sp_asking_done(p->second);
    free(p->second);
    p->second = NULL;
}

static void never_told(struct sp_asking *q, const struct sp_decision *d)
{
    (void)q;
    (void)d;
    fail_msg("a question that was ended is told");
}

static void test_who_is_replaced_may_end_the_one_that_comes(void **state)
{
    const struct sp_approvals_options o = {
        .loop = loop, .policy.kind = SP_APPROVAL_UNTRUSTED, .approver = &person.approver};
    struct pair p = {.first = {.question = {.call_id = SP_STR("c1")}, .decided = end_both},
                     .second = calloc(1, sizeof *p.second)};
    struct sp_approvals *a = NULL;
    struct sp_err e = {0};

    (void)state;
    assert_non_null(p.second);
    *p.second = (struct sp_asking){.question = {.call_id = SP_STR("c1")}, .decided = never_told};
    assert_int_equal(sp_approvals_new(&o, &a, &e), 0);
    sp_asking_begin(&p.first, a);
    assert_int_equal(person.asked, 1);
    sp_asking_begin(p.second, a);
    assert_int_equal(p.told, 1);
    assert_null(p.second);
    assert_int_equal(person.asked, 1); /* nobody is asked what nobody wants to know */
    assert_int_equal(person.withdrawn, 1);
    sp_asking_done(&p.first);
    sp_approvals_free(a);
}

static char said[256];

static void keep_text(struct sp_asking *q, const struct sp_decision *d)
{
    assert_int_equal(d->kind, SP_DECISION_DENIED);
    (void)snprintf(said, sizeof said, "%s: " SP_STR_FMT, sp_decider_name(q->decided_by),
                   SP_STR_ARG(d->rejection));
}

/* Nobody said no: that is told, and is nobody's decision. */
static void test_an_approver_that_fails_is_no_person_who_refuses(void **state)
{
    static const struct {
        struct sp_decision d;
        const char *want;
    } rows[] = {
        {{.kind = SP_DECISION_FAILED, .rejection = SP_STR("it was killed")},
         "config: approval required, but /site/approver did not answer: it was killed"},
        {{.kind = SP_DECISION_NO_OPINION},
         "config: approval required, but /site/approver did not answer: it said nothing"},
        {{.kind = SP_DECISION_DENIED, .by = SP_DECIDER_USER, .rejection = SP_STR("no")},
         "user: no"},
        {{.kind = SP_DECISION_DENIED, .rejection = SP_STR("no")}, "none: no"},
    };
    const struct sp_approvals_options o = {
        .loop = loop, .policy.kind = SP_APPROVAL_UNTRUSTED, .approver = &person.approver};
    struct sp_approvals *a = NULL;
    struct sp_err e = {0};

    (void)state;
    person.approver.name = "/site/approver";
    assert_int_equal(sp_approvals_new(&o, &a, &e), 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct sp_asking q = {.decided = keep_text};

        sp_asking_begin(&q, a);
        answer_fully(&person, &rows[i].d);
        assert_string_equal(said, rows[i].want);
        sp_asking_done(&q);
    }
    struct sp_asking q = {.decided = keep_text, .cannot_ask = SP_STR("not now")};
    sp_asking_begin(&q, a);
    assert_string_equal(said, "config: not now");
    assert_int_equal(person.asked, sizeof rows / sizeof rows[0]);
    sp_asking_done(&q);
    sp_approvals_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        asking_test(test_a_hook_allows_once),
        asking_test(test_a_hook_denies_in_its_words),
        asking_test(test_hooks_without_opinion_leave_it_to_the_next),
        asking_test(test_hooks_are_asked_where_no_person_can_be),
        asking_test(test_hooks_come_before_what_is_remembered),
        asking_test(test_a_broken_hook_is_a_denial_that_names_it),
        asking_test(test_a_hook_has_a_deadline),
        asking_test(test_hooks_are_enough_until_they_have_no_opinion),
        asking_test(test_hooks_that_answer_at_once),
        asking_test(test_an_interrupted_call_withdraws_from_the_hook),
        asking_test(test_nobody_answers_for_a_hook),
        asking_test(test_hooks_that_were_forgotten_are_an_error),
        asking_test(test_the_reviewer_answers_instead_of_the_person),
        asking_test(test_its_refusals),
        asking_test(test_it_has_three_attempts),
        asking_test(test_each_attempt_has_ninety_seconds),
        asking_test(test_three_refusals_in_a_row_end_the_turn),
        asking_test(test_ten_refusals_of_fifty_end_the_turn),
        asking_test(test_the_strict_one_sees_everything),
        asking_test(test_no_other_yes_is_enough_for_the_strict_one),
        asking_test(test_consent_to_a_confined_run_is_none_to_a_free_one),
        asking_test(test_a_second_question_with_the_same_id_replaces_the_first),
        asking_test(test_who_is_replaced_may_end_the_one_that_comes),
        asking_test(test_an_approver_that_fails_is_no_person_who_refuses),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("plan_review", tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The questions of calls, who is asked them, and what becomes of the answers. */
#include <sys/stat.h>

#include "approve/approver.h"
#include "approve/approvers.h"
#include "manager_state.h"
#include "mcp_run_fixture.h"
#include "memory_fixture.h"

#define PREFIX "exec_command failed: Failed to create unified exec process: "

/* ---- questions ---- */

static void test_a_yes_runs_it(void **state)
{
    struct waiter w;

    (void)state;
    struct sp_mcp_run *r = start_asking(&w, "{\"cmd\":\"nice echo yes\"}");
    const struct sp_approval_question *q = sp_mcp_run_question(r);
    assert_int_equal(q->kind, SP_QUESTION_RUN);
    assert_true(sp_str_eq(q->call_id, sp_str_of(r->call_id)));
    assert_int_equal(r->asked, 1);
    decide(r, SP_DECISION_APPROVED);
    assert_null(sp_mcp_run_question(r));
    decide(r, SP_DECISION_DENIED); /* nobody is asked any more */
    until(w.is_done);
    assert_non_null(strstr(w.text, "\nyes\n"));
    assert_string_equal(w.story, "question started done ");
}

static void test_a_no_is_told_in_the_engines_words(void **state)
{
    struct waiter w;

    (void)state;
    decide(start_asking(&w, nice_true), SP_DECISION_DENIED);
    until(w.is_done);
    assert_true(w.is_error);
    assert_string_equal(w.text, PREFIX "exec command rejected by user");
    assert_string_equal(w.story, "question done ");
}

static void test_who_stops_a_call_stops_no_other(void **state)
{
    struct waiter other;
    struct waiter w;

    (void)state;
    (void)start(&other, "run", "{\"cmd\":\"sleep 0.5; echo unharmed\",\"yield\":30000}");
    decide(start_asking(&w, nice_true), SP_DECISION_ABORT);
    until(w.is_done && other.is_done);
    assert_true(w.is_error);
    assert_non_null(strstr(w.text, "aborted by user"));
    assert_false(other.is_error);
    assert_non_null(strstr(other.text, "\nunharmed\n"));
}

static void test_where_nobody_is_there_the_answer_is_no(void **state)
{
    struct waiter w;

    (void)state;
    struct sp_mcp_run *r = start_asking(&w, nice_true);
    is_calling = true;
    sp_mcp_run_ask_next(r, SP_NO_APPROVER);
    is_calling = false;
    assert_false(sp_mcp_run_asks_host(r));
    until(w.is_done);
    assert_true(w.is_error);
    assert_string_equal(w.text, PREFIX SP_NO_APPROVER);
}

static void test_a_call_that_nobody_could_answer_for_asks_nothing(void **state)
{
    auto_arguments struct sp_arguments a = {0};
    const struct sp_mcp_run_request ask = {
        .tool = SP_STR("run"), .arguments = &a, .cannot_ask_host = true};
    struct waiter w = {0};

    (void)state;
    assert_int_equal(sp_arguments_parse(&a, sp_str_of(nice_true), NULL), 0);
    assert_int_equal(sp_mcp_run_start(caller, &ask, &waiter_ops, &w, &w.run, NULL), 0);
    assert_true(w.run->has_no_approver);
    until(w.is_done);
    assert_string_equal(w.text, PREFIX SP_NO_APPROVER);
    assert_string_equal(w.story, "done ");
}

static void test_a_question_that_is_taken_back_is_told(void **state)
{
    struct waiter w;

    (void)state;
    sp_mcp_free(mcp);
    manager_options.approvals.timeout_ms = 100;
    make_server();
    (void)start_asking(&w, nice_true);
    until(w.is_done);
    assert_string_equal(w.story, "question withdrawn done ");
    assert_string_equal(w.text, PREFIX "approval request timed out");
}

static void test_a_question_goes_to_who_waits_now(void **state)
{
    struct waiter first;
    struct waiter second;

    (void)state;
    struct sp_mcp_run *r = start_asking(&first, nice_true);
    attach(&second, r);
    await_question(&second);
    decide(r, SP_DECISION_APPROVED);
    until(second.is_done);
    assert_string_equal(first.story, "question ");
    assert_string_equal(second.story, "question started done ");
    assert_false(second.is_error);
}

static void test_what_is_cancelled_with_its_question_never_starts(void **state)
{
    struct waiter w;
    char path[] = "/tmp/sallyport-test-XXXXXX";
    char arguments[128];
    struct stat st;

    (void)state;
    assert_non_null(mkdtemp(path));
    (void)snprintf(arguments, sizeof arguments, "{\"cmd\":\"nice rmdir %s\"}", path);
    struct sp_mcp_run *r = start_asking(&w, arguments);
    sp_mcp_run_cancel(r);
    decide(r, SP_DECISION_APPROVED);
    until(sp_list_is_empty(&caller->runs));
    run_for(200);
    assert_string_equal(w.story, "question ");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(rmdir(path), 0);
}

/* ---- held ---- */

static void test_a_held_call_starts_nothing_until_it_is_not(void **state)
{
    struct waiter w;
    struct waiter back;

    (void)state;
    struct sp_mcp_run *r = start_asking(&w, "{\"cmd\":\"nice echo late\"}");
    sp_mcp_run_attach(r, NULL, NULL);
    decide(r, SP_DECISION_APPROVED);
    assert_null(sp_mcp_run_question(r));
    decide(r, SP_DECISION_DENIED); /* it has been answered */
    run_for(300);
    assert_string_equal(w.story, "question ");
    assert_int_equal(sp_manager_stored(caller->manager), 0);
    attach(&back, r);
    until(back.is_done);
    assert_non_null(strstr(back.text, "\nlate\n"));
    assert_string_equal(w.story, "question ");
}

/* The first waiter gave up; the second has its own deadline. */
static void test_a_resumed_call_is_not_in_the_hurry_of_the_one_before(void **state)
{
    struct waiter w;
    struct waiter back;

    (void)state;
    struct sp_mcp_run *r =
        start_asking(&w, "{\"cmd\":\"nice sh -c 'sleep 1; echo late'\",\"yield\":30000}");
    sp_mcp_run_answer_now(r);
    assert_true(r->was_cut_short);
    sp_mcp_run_attach(r, NULL, NULL);
    decide(r, SP_DECISION_APPROVED);
    attach(&back, r);
    assert_false(r->was_cut_short);
    until(back.is_done);
    assert_non_null(strstr(back.text, "Process exited with code 0"));
    assert_non_null(strstr(back.text, "\nlate\n"));
}

/* What a decision points to is gone by the time it counts. */
static void test_an_answer_that_waits_is_kept_as_a_whole(void **state)
{
    char text[] = "not while I am here";
    const struct sp_decision no = {.kind = SP_DECISION_DENIED, .rejection = sp_str_of(text)};
    struct waiter w;
    struct waiter back;

    (void)state;
    struct sp_mcp_run *r = start_asking(&w, nice_true);
    sp_mcp_run_attach(r, NULL, NULL);
    sp_mcp_run_decide(r, &no);
    memset(text, 'x', sizeof text - 1);
    attach(&back, r);
    until(back.is_done);
    assert_string_equal(back.text, PREFIX "not while I am here");
    assert_string_equal(back.story, "done ");
}

static void test_every_part_of_an_answer_is_kept(void **state)
{
    char said[2][8] = {"npm", ""};
    char host[] = "example.org";
    struct sp_str items[] = {sp_str_of(said[0]), sp_str_of(said[1])};
    struct sp_grant grant = {.extra.has_network = true};
    const struct sp_decision d = {.kind = SP_DECISION_AMENDMENT,
                                  .amendment = {items, 2},
                                  .host = sp_str_of(host),
                                  .allows_host = true,
                                  .permissions = &grant,
                                  .wants_strict_review = true};
    struct waiter w;

    (void)state;
    assert_int_equal(sp_profile_add(&grant.extra, SP_PLACE_PATH, SP_ACCESS_WRITE, false,
                                    SP_STR("/site/w"), (struct sp_str){0}, NULL),
                     0);
    struct sp_mcp_run *r = start_asking(&w, nice_true);
    sp_mcp_run_attach(r, NULL, NULL);
    sp_mcp_run_decide(r, &d);
    memset(said, 'x', sizeof said);
    memset(host, 'x', sizeof host - 1);
    memset(items, 0, sizeof items);
    sp_grant_done(&grant);
    const struct sp_decision *kept = &r->kept->decision;
    assert_int_equal(kept->kind, SP_DECISION_AMENDMENT);
    assert_int_equal(kept->amendment.count, 2);
    assert_true(sp_str_eq(kept->amendment.items[0], SP_STR("npm")));
    assert_int_equal(kept->amendment.items[1].n, 0);
    assert_true(sp_str_eq(kept->host, SP_STR("example.org")));
    assert_true(kept->allows_host && kept->wants_strict_review);
    assert_true(kept->permissions->extra.has_network);
    assert_string_equal(kept->permissions->extra.entries[0].text, "/site/w");
}

static void test_an_answer_that_there_is_no_memory_for_is_no(void **state)
{
    const struct sp_str rule[] = {SP_STR("true")};
    static const char remark[1024] = "of more than one block of memory";
    const struct sp_decision d = {.kind = SP_DECISION_AMENDMENT,
                                  .rejection = {remark, sizeof remark},
                                  .amendment = {rule, 1}};
    unsigned denied = 0;
    bool has_ended = true;

    (void)state;
    for (long n = 1; has_ended; n++) {
        struct waiter w;
        struct waiter back;
        struct sp_mcp_run *r = start_asking(&w, nice_true);

        sp_mcp_run_attach(r, NULL, NULL);
        end_memory_at(n);
        sp_mcp_run_decide(r, &d);
        has_ended = did_memory_end();
        run_for(20);
        assert_string_equal(w.story, "question ");
        attach(&back, r);
        until(back.is_done);
        if (has_ended)
            assert_string_equal(back.text, PREFIX "there was no memory to keep the answer");
        denied += has_ended;
    }
    assert_true(denied >= 3);
}

/* ---- the approver ---- */

struct person {
    struct sp_approver approver;
    uint64_t question;
    sp_approver_fn *done;
    void *user;
    unsigned asked, withdrawn;
    const struct sp_decision *at_once; /* said from within ask; NULL: later */
};

static void ask_person(struct sp_approver *a, const struct sp_approval_question *q,
                       sp_approver_fn *done, void *user)
{
    struct person *p = SP_CONTAINER(a, struct person, approver);

    p->question = q->id;
    p->done = done;
    p->user = user;
    p->asked++;
    if (p->at_once != NULL)
        done(user, q->id, p->at_once);
}

static void withdraw_from_person(struct sp_approver *a, uint64_t question, void *user)
{
    struct person *p = SP_CONTAINER(a, struct person, approver);

    assert_int_equal(question, p->question);
    assert_ptr_equal(user, p->user);
    p->withdrawn++;
}

static const struct sp_approver_ops person_ops = {.ask = ask_person,
                                                  .withdraw = withdraw_from_person};
static struct person person;
static struct sp_approvers *people;
static bool is_asked_at_once;

static int begin_with_person(void **state)
{
    if (begin_without_server(state) < 0)
        return -1;
    person = (struct person){.approver = {.ops = &person_ops, .name = "the porter"}};
    people = NULL;
    if (sp_approvers_add(&people, loop, 0, NULL, false, NULL) < 0 ||
        sp_approvers_add(&people, loop, is_asked_at_once ? 0 : 1, &person.approver, false, NULL) <
            0)
        return -1;
    mcp_options.approvers = people;
    make_server();
    return 0;
}

static int begin_with_both(void **state)
{
    is_asked_at_once = true;
    const int r = begin_with_person(state);
    is_asked_at_once = false;
    return r;
}

static int end_with_person(void **state)
{
    const int r = end(state);

    sp_approvers_free(people);
    return r;
}
#define person_test(f) cmocka_unit_test_setup_teardown(f, begin_with_person, end_with_person)
#define both_test(f)   cmocka_unit_test_setup_teardown(f, begin_with_both, end_with_person)

static void say(enum sp_decision_kind kind, const char *rejection)
{
    const struct sp_decision d = {.kind = kind, .rejection = sp_str_of(rejection)};

    person.done(person.user, person.question, &d);
}

static void test_the_approvers_answer_counts(void **state)
{
    struct waiter w;

    (void)state;
    struct sp_mcp_run *r = start_asking(&w, nice_true);
    assert_int_equal(person.asked, 0);
    assert_true(sp_mcp_run_asks_host(r));
    sp_mcp_run_ask_next(r, "it is deaf");
    sp_mcp_run_ask_next(r, "it is deaf"); /* once */
    assert_false(sp_mcp_run_asks_host(r));
    assert_int_equal(person.asked, 1);
    assert_non_null(sp_mcp_run_question(r));
    say(SP_DECISION_APPROVED, "");
    assert_null(sp_mcp_run_question(r));
    until(w.is_done);
    assert_false(w.is_error);
    assert_int_equal(person.withdrawn, 0);
}

static void test_an_approver_may_answer_at_once(void **state)
{
    const struct sp_decision no = {.kind = SP_DECISION_DENIED, .rejection = SP_STR("never")};
    struct waiter w;

    (void)state;
    person.at_once = &no;
    struct sp_mcp_run *r = start_asking(&w, nice_true);
    is_calling = true;
    sp_mcp_run_ask_next(r, "it is deaf");
    is_calling = false;
    until(w.is_done);
    assert_string_equal(w.text, PREFIX "never");
}

#define REMEDY \
    ". Name one more approver (--approver), allow it by a rule, or change the approval policy"

static void test_an_approver_that_does_not_answer_is_named(void **state)
{
    struct waiter w;

    (void)state;
    sp_mcp_run_ask_next(start_asking(&w, nice_true), "it is deaf");
    say(SP_DECISION_FAILED, "it exited with code 1");
    until(w.is_done);
    assert_string_equal(w.text, PREFIX "approval required, but no person answered: the host: it is "
                                       "deaf; the porter: it exited with code 1" REMEDY);
    sp_mcp_run_ask_next(start_asking(&w, nice_true), "it is deaf");
    say(SP_DECISION_NO_OPINION, "");
    until(w.is_done);
    assert_string_equal(w.text, PREFIX "approval required, but no person answered: the host: it is "
                                       "deaf; the porter: it said nothing" REMEDY);
}

static void test_the_approver_is_let_go_when_its_answer_is_not_needed(void **state)
{
    struct waiter w;

    (void)state;
    struct sp_mcp_run *r = start_asking(&w, nice_true);
    sp_mcp_run_ask_next(r, "it is deaf");
    sp_mcp_run_cancel(r);
    assert_int_equal(person.withdrawn, 1);
    until(sp_list_is_empty(&caller->runs));
    sp_mcp_run_ask_next(start_asking(&w, nice_true), "it is deaf");
    sp_mcp_free(mcp);
    mcp = NULL;
    assert_int_equal(person.withdrawn, 2);
}

/* Both were asked at once: whoever is first counts, and the other is told so. */
static void test_the_first_of_two_counts(void **state)
{
    struct waiter w;

    (void)state;
    struct sp_mcp_run *r = start_asking(&w, nice_true);
    assert_int_equal(person.asked, 1);
    assert_true(sp_mcp_run_asks_host(r));
    decide(r, SP_DECISION_APPROVED);
    assert_int_equal(person.withdrawn, 1);
    until(w.is_done);
    assert_false(w.is_error);

    r = start_asking(&w, nice_true);
    say(SP_DECISION_DENIED, "never");
    assert_false(sp_mcp_run_asks_host(r));
    until(w.is_done);
    assert_string_equal(w.text, PREFIX "never");
    assert_non_null(strstr(w.story, "withdrawn"));

    r = start_asking(&w, nice_true);
    say(SP_DECISION_FAILED, "it is broken"); /* the other may still answer */
    assert_true(sp_mcp_run_asks_host(r));
    decide(r, SP_DECISION_APPROVED);
    until(w.is_done);
    assert_false(w.is_error);
}

static void test_the_approvers_answer_to_a_held_call_waits(void **state)
{
    struct waiter w;
    struct waiter back;

    (void)state;
    struct sp_mcp_run *r = start_asking(&w, nice_true);
    sp_mcp_run_ask_next(r, "it is deaf");
    sp_mcp_run_attach(r, NULL, NULL);
    say(SP_DECISION_APPROVED, "");
    run_for(200);
    assert_int_equal(caller->run_count, 1);
    attach(&back, r);
    until(back.is_done);
    assert_false(back.is_error);
    assert_string_equal(back.story, "started done ");
}

static void test_a_host_that_cannot_be_asked_leaves_it_to_the_approver(void **state)
{
    auto_arguments struct sp_arguments a = {0};
    const struct sp_mcp_run_request ask = {
        .tool = SP_STR("run"), .arguments = &a, .cannot_ask_host = true};
    struct waiter w = {0};

    (void)state;
    assert_int_equal(sp_arguments_parse(&a, sp_str_of(nice_true), NULL), 0);
    assert_int_equal(sp_mcp_run_start(caller, &ask, &waiter_ops, &w, &w.run, NULL), 0);
    assert_false(w.run->has_no_approver);
    await_question(&w);
}

int main(void)
{
    const struct CMUnitTest tests_of_this[] = {
        mcp_test(test_a_yes_runs_it),
        mcp_test(test_a_no_is_told_in_the_engines_words),
        mcp_test(test_who_stops_a_call_stops_no_other),
        mcp_test(test_where_nobody_is_there_the_answer_is_no),
        mcp_test(test_a_call_that_nobody_could_answer_for_asks_nothing),
        mcp_test(test_a_question_that_is_taken_back_is_told),
        mcp_test(test_a_question_goes_to_who_waits_now),
        mcp_test(test_what_is_cancelled_with_its_question_never_starts),
        mcp_test(test_a_held_call_starts_nothing_until_it_is_not),
        mcp_test(test_a_resumed_call_is_not_in_the_hurry_of_the_one_before),
        mcp_test(test_an_answer_that_waits_is_kept_as_a_whole),
        mcp_test(test_every_part_of_an_answer_is_kept),
        mcp_test(test_an_answer_that_there_is_no_memory_for_is_no),
        person_test(test_the_approvers_answer_counts),
        person_test(test_an_approver_may_answer_at_once),
        person_test(test_an_approver_that_does_not_answer_is_named),
        person_test(test_the_approver_is_let_go_when_its_answer_is_not_needed),
        both_test(test_the_first_of_two_counts),
        person_test(test_the_approvers_answer_to_a_held_call_waits),
        person_test(test_a_host_that_cannot_be_asked_leaves_it_to_the_approver),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests_of_this, NULL, NULL);
}

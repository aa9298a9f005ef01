/* SPDX-License-Identifier: Apache-2.0 */
/*
 * approver_fixture: hooks, reviewers and people who answer what the test says, when it says so; and
 * a manager whose commands are confined to reading.
 */
#ifndef SP_APPROVER_FIXTURE_H
#define SP_APPROVER_FIXTURE_H

#include <sys/stat.h>
#include <unistd.h>

#include "approve/asking.h"
#include "base/auto.h"
#include "manager_state.h"
#include "puppet_backend.h"

struct someone {
    struct sp_approver approver;
    const struct sp_approval_question *question; /* NULL: not asked now */
    uint64_t id;
    sp_approver_fn *done;
    void *user;
    unsigned asked, withdrawn;
    const struct sp_decision *at_once; /* said from within ask; NULL: later */
};

static inline struct someone *someone_of(struct sp_approver *a)
{
    return SP_CONTAINER(a, struct someone, approver);
}

static inline void ask_someone(struct sp_approver *a, const struct sp_approval_question *q,
                               sp_approver_fn *done, void *user)
{
    struct someone *s = someone_of(a);

    s->question = q;
    s->id = q->id;
    s->done = done;
    s->user = user;
    s->asked++;
    if (s->at_once != NULL) {
        s->question = NULL;
        done(user, q->id, s->at_once);
    }
}

static inline void withdraw_from_someone(struct sp_approver *a, uint64_t question, void *user)
{
    struct someone *s = someone_of(a);

    assert_true(s->question != NULL && s->id == question && s->user == user);
    s->question = NULL;
    s->withdrawn++;
}

static const struct sp_approver_ops someone_ops = {.ask = ask_someone,
                                                   .withdraw = withdraw_from_someone};

static struct someone first_hook, second_hook, reviewer, person;
static struct sp_approver *const hooks[] = {&first_hook.approver, &second_hook.approver};

static inline void answer_fully(struct someone *s, const struct sp_decision *d)
{
    assert_non_null(s->question);
    s->question = NULL;
    s->done(s->user, s->id, d);
}

static inline void answer_kind(struct someone *s, enum sp_decision_kind kind)
{
    answer_fully(s, &(struct sp_decision){.kind = kind, .by = SP_DECIDER_USER});
}

static inline void answer_no(struct someone *s, const char *why)
{
    answer_fully(s, &(struct sp_decision){.kind = SP_DECISION_DENIED,
                                          .by = SP_DECIDER_USER,
                                          .rejection = sp_str_of(why)});
}

/* ---- the manager ---- */

static struct sp_policy profile;
static char log_dir[] = "/tmp/sallyport-asked-XXXXXX";
static char audit_file[64];

static inline int begin_asking(void **state)
{
    static const struct someone nobody = {.approver = {.ops = &someone_ops}};

    first_hook = second_hook = reviewer = person = nobody;
    first_hook.approver.name = "/site/hook";
    reviewer.approver.name = "/site/reviewer";
    (void)strcpy(log_dir + sizeof log_dir - 7, "XXXXXX");
    assert_non_null(mkdtemp(log_dir));
    (void)snprintf(audit_file, sizeof audit_file, "%s/audit.jsonl", log_dir);
    profile = (struct sp_policy){0};
    const int r = begin_puppets(state);
    options.approvals.audit_log = audit_file;
    options.approvals.must_audit = true;
    return r;
}

static inline int end_asking(void **state)
{
    const int r = end_puppets(state);

    sp_policy_done(&profile);
    (void)unlink(audit_file);
    assert_int_equal(rmdir(log_dir), 0);
    /* whoever was asked has answered, or hears that nobody wants to know */
    assert_true(first_hook.question == NULL && second_hook.question == NULL &&
                reviewer.question == NULL && person.question == NULL);
    return r;
}
#define asking_test(f) cmocka_unit_test_setup_teardown(f, begin_asking, end_asking)

static inline void confine(enum sp_approval_kind approval)
{
    sp_policy_done(&profile);
    profile = (struct sp_policy){0};
    assert_int_equal(sp_profile_add(&profile.profile, SP_PLACE_ROOT, SP_ACCESS_READ, false,
                                    (struct sp_str){0}, (struct sp_str){0}, NULL),
                     0);
    options.policy = &profile;
    options.approvals.policy.kind = approval;
    remake_manager();
}

static inline void use_hooks(size_t count)
{
    options.approvals.hooks = hooks;
    options.approvals.hook_count = count;
}

static inline void use_reviewer(bool is_strict)
{
    options.approvals.reviewer = &reviewer.approver;
    options.approvals.strict_review = is_strict;
}

static inline void begin(struct answer *a, const char *cmd)
{
    struct sp_exec_request ask = command(cmd);

    ask.yield = (struct sp_yield_request){true, 3000};
    exec_ask(a, &ask);
}

/* The newest job runs to its end. */
static inline void run_to_end(struct answer *a, size_t jobs_then)
{
    until(job_count == jobs_then);
    say_started(jobs_then - 1);
    run_for(10);
    end_with(jobs_then - 1, 0);
    until(a->is_there);
    assert_exit(a, 0);
}

static inline void expect_rejection(struct answer *a, const char *reason)
{
    char text[2048];

    until(a->is_there);
    (void)snprintf(text, sizeof text,
                   "exec_command failed: Failed to create unified exec process: %s", reason);
    assert_fault(a, SP_FAULT_REJECTED, text);
    assert_int_equal(sp_manager_reserved(manager), 0);
}

/* The last line of the log has these words. */
static inline void expect_log(const char *words)
{
    static char text[65536];
    FILE *f = fopen(audit_file, "re");

    assert_non_null(f);
    const size_t n = fread(text, 1, sizeof text - 1, f);
    (void)fclose(f);
    text[n] = 0;
    assert_true(n > 0 && text[n - 1] == '\n');
    text[n - 1] = 0;
    const char *last = strrchr(text, '\n');
    last = last == NULL ? text : last + 1;
    if (strstr(last, words) == NULL)
        fail_msg("%s is not in %s", words, last);
}

#endif

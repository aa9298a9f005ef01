/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network_fixture: a conversation whose questions the test answers, a command, and its requests.
 */
#ifndef SP_NETWORK_FIXTURE_H
#define SP_NETWORK_FIXTURE_H

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "approve/network.h"
#include "base/auto.h"
#include "test.h"

/* ---- who answers ---- */

struct open_question {
    const struct sp_approval_question *question;
    uint64_t id;
    sp_approver_fn *done;
    void *user;
};

static struct open_question open_questions[SP_NETWORK_QUESTIONS_MAX + 4];
static size_t open_count;              /* the newest is the last */
static size_t questions, withdrawals;  /* ever */
static const struct sp_decision *soon; /* what is answered at once; NULL: nothing is */
static char last_json[2048];

static inline void on_ask(struct sp_approver *a, const struct sp_approval_question *q,
                          sp_approver_fn *done, void *user)
{
    auto_buf struct sp_buf json = {0};

    (void)a;
    questions++;
    if (sp_question_add_json(&json, q))
        (void)snprintf(last_json, sizeof last_json, "%.*s", (int)json.len, json.data);
    if (soon != NULL) {
        done(user, q->id, soon);
        return;
    }
    assert_true(open_count < sizeof open_questions / sizeof open_questions[0]);
    open_questions[open_count++] = (struct open_question){q, q->id, done, user};
}

static inline void forget_question(size_t i)
{
    open_count--;
    memmove(&open_questions[i], &open_questions[i + 1],
            (open_count - i) * sizeof open_questions[0]);
}

static inline void on_withdraw(struct sp_approver *a, uint64_t question, void *user)
{
    (void)a;
    for (size_t i = 0; i < open_count; i++)
        if (open_questions[i].id == question && open_questions[i].user == user) {
            withdrawals++;
            forget_question(i);
            return;
        }
}

static const struct sp_approver_ops approver_ops = {.ask = on_ask, .withdraw = on_withdraw};
static struct sp_approver approver = {.ops = &approver_ops};

static inline void answer_with(size_t i, const struct sp_decision *d)
{
    assert_true(i < open_count);
    const struct open_question q = open_questions[i];

    forget_question(i);
    q.done(q.user, q.id, d);
}

static inline void answer(size_t i, enum sp_decision_kind kind)
{
    const struct sp_decision d = {.kind = kind, .by = SP_DECIDER_USER};

    answer_with(i, &d);
}

static inline struct sp_decision about_host(const char *host, bool allows)
{
    return (struct sp_decision){.kind = SP_DECISION_NETWORK_AMENDMENT,
                                .by = SP_DECIDER_USER,
                                .host = sp_str_of(host),
                                .allows_host = allows};
}

/* ---- the conversation ---- */

static struct sp_loop *loop;
static struct sp_approvals *approvals;
static struct sp_approvals_options options;
static struct sp_policy profile;
static struct sp_rules *rules;
static char home[] = "/tmp/sallyport-net-XXXXXX";
static char rules_file[64], audit_file[64];
static char warnings[4096];

static inline void on_warn(void *user, const char *text)
{
    const size_t n = strlen(warnings);

    (void)user;
    (void)snprintf(warnings + n, sizeof warnings - n, "%s\n", text);
}

static inline struct sp_rules *make_rules(const char *text)
{
    struct sp_rules_maker *m = sp_rules_maker_new();
    struct sp_err e = {0};

    if (sp_rules_add_text(m, "test", sp_str_of(text), NULL, NULL, &e) < 0)
        fail_msg("%s", e.msg);
    struct sp_rules *made = sp_rules_make(m);
    sp_rules_maker_free(m);
    return made;
}

/* Anew, by what options have by now. */
static inline void remake(const char *text)
{
    struct sp_err e = {0};

    sp_approvals_free(approvals);
    sp_rules_unref(rules);
    rules = text == NULL ? NULL : make_rules(text);
    options.rules = rules;
    approvals = NULL;
    if (sp_approvals_new(&options, &approvals, &e) < 0)
        fail_msg("%s", e.msg);
}

/* ---- a command ---- */

static char outcome[4096]; /* the last one */
static size_t outcomes;
static bool was_cancelled, was_interrupted;

static inline void on_outcome(struct sp_network_command *c, const struct sp_network_outcome *o)
{
    (void)c;
    outcomes++;
    (void)snprintf(outcome, sizeof outcome, "%.*s", (int)o->text.n, o->text.p);
    was_cancelled = was_cancelled || o->is_cancelled;
    was_interrupted = was_interrupted || o->is_interrupted;
}

static struct sp_network_command command, other;

static inline struct sp_network_command make_command(const char *call_id)
{
    static const struct sp_str argv[] = {SP_STR("curl"), SP_STR("a b")};

    return (struct sp_network_command){
        .call_id = sp_str_of(call_id),
        .environment = SP_STR("local"),
        .cwd = SP_STR("/site/repo"),
        .argv = {argv, 2},
        .policy = &profile,
        .approval = {.kind = SP_APPROVAL_ON_REQUEST},
        .outcome = on_outcome,
    };
}

/* The command ends, and another one like it begins. */
static inline void renew_command(void)
{
    sp_network_command_done(approvals, &command);
    command = make_command("c1");
}

/* ---- requests ---- */

struct request {
    struct sp_network_request r;
    size_t told;
};

static inline void on_told(struct sp_network_request *r)
{
    SP_CONTAINER(r, struct request, r)->told++;
}

static inline struct sp_network_ask for_host(const char *host)
{
    return (struct sp_network_ask){.command = &command,
                                   .turn_id = SP_STR("t1"),
                                   .host = sp_str_of(host),
                                   .port = 443,
                                   .protocol = SP_NETWORK_HTTPS};
}

static inline void begin_as(struct request *r, const struct sp_network_ask *ask)
{
    *r = (struct request){0};
    sp_network_ask(&r->r, approvals, ask, on_told);
}

static inline void begin(struct request *r, const char *host)
{
    const struct sp_network_ask ask = for_host(host);

    begin_as(r, &ask);
}

static inline void end(struct request *r)
{
    sp_network_request_done(&r->r);
}

static inline void assert_text(const struct request *r, const char *text)
{
    assert_int_equal(r->r.state, SP_NETWORK_DENIED);
    if (!sp_str_eq(r->r.text, sp_str_of(text)))
        fail_msg("got <%.*s>, want <%s>", (int)r->r.text.n, r->r.text.p, text);
}

/* One request, decided at once. */
static inline void expect_denied_unasked(const struct sp_network_ask *ask, const char *text)
{
    const size_t before = questions;
    struct request r;

    begin_as(&r, ask);
    assert_text(&r, text);
    assert_int_equal(questions, before);
    assert_int_equal(r.told, 0);
    end(&r);
}

static inline void expect_denied(const char *host, const char *text)
{
    const struct sp_network_ask ask = for_host(host);

    expect_denied_unasked(&ask, text);
}

static inline void expect_state(const struct sp_network_ask *ask, enum sp_network_state state)
{
    struct request r;

    begin_as(&r, ask);
    assert_int_equal(r.r.state, state);
    end(&r);
}

static inline void expect_host(const char *host, enum sp_network_state state)
{
    const struct sp_network_ask ask = for_host(host);

    expect_state(&ask, state);
}

static inline void assert_disconnected(const char *text)
{
    unsigned ms;
    int n = 0;

    if (sscanf(text, "Network request disconnected after %u ms, before approval could complete%n",
               &ms, &n) != 1 ||
        text[n] != 0)
        fail_msg("got <%s>", text);
}

/* ---- files ---- */

static inline void read_file(const char *path, char *text, size_t size)
{
    FILE *f = fopen(path, "r");

    text[0] = 0;
    if (f == NULL)
        return;
    const size_t n = fread(text, 1, size - 1, f);
    text[n] = 0;
    (void)fclose(f);
}

static inline void assert_rules_file(const char *want)
{
    char text[4096];

    read_file(rules_file, text, sizeof text);
    assert_string_equal(text, want);
}

static inline size_t audit_lines(const char *with)
{
    static char text[1000000];
    size_t n = 0;

    read_file(audit_file, text, sizeof text);
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"))
        n += strstr(line, with) != NULL;
    return n;
}

static inline int begin_network(void **state)
{
    struct sp_err e = {0};

    (void)state;
    (void)strcpy(home + sizeof home - 7, "XXXXXX");
    assert_non_null(mkdtemp(home));
    (void)snprintf(rules_file, sizeof rules_file, "%s/rules/default.rules", home);
    (void)snprintf(audit_file, sizeof audit_file, "%s/audit.jsonl", home);
    assert_int_equal(sp_loop_new(&loop, &e), 0);
    profile = (struct sp_policy){0};
    profile.profile.managed = sp_network_policy_new();
    assert_non_null(profile.profile.managed);
    options = (struct sp_approvals_options){.loop = loop,
                                            .policy = {.kind = SP_APPROVAL_ON_REQUEST},
                                            .audit_log = audit_file,
                                            .user_dir = home,
                                            .approver = &approver,
                                            .warn = on_warn};
    command = make_command("c1");
    other = make_command("c2");
    open_count = questions = withdrawals = outcomes = 0;
    soon = NULL;
    was_cancelled = was_interrupted = false;
    warnings[0] = outcome[0] = last_json[0] = 0;
    remake(NULL);
    return 0;
}

static inline int end_network(void **state)
{
    char dir[64];

    (void)state;
    sp_approvals_free(approvals);
    approvals = NULL;
    assert_int_equal(open_count, 0);
    sp_loop_free(loop);
    sp_policy_done(&profile);
    sp_rules_unref(rules);
    rules = NULL;
    (void)unlink(rules_file);
    (void)unlink(audit_file);
    (void)snprintf(dir, sizeof dir, "%s/rules", home);
    (void)rmdir(dir);
    assert_int_equal(rmdir(home), 0);
    return 0;
}
#define network_test(f) cmocka_unit_test_setup_teardown(f, begin_network, end_network)

#endif

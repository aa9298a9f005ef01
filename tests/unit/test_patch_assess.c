/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a patch may be applied: cases 140 to 152 and 168, as data. */
#include <stdio.h>

#include "approve/approvals_priv.h"
#include "memory_fixture.h"
#include "profile_fixture.h"
#include "test.h"

/* Policies. */
#define U                             \
    {                                 \
        .kind = SP_APPROVAL_UNTRUSTED \
    }
#define F                              \
    {                                  \
        .kind = SP_APPROVAL_ON_FAILURE \
    }
#define R                              \
    {                                  \
        .kind = SP_APPROVAL_ON_REQUEST \
    }
#define N                         \
    {                             \
        .kind = SP_APPROVAL_NEVER \
    }
#define GT                                                     \
    {                                                          \
        .kind = SP_APPROVAL_GRANULAR, .sandbox_approval = true \
    }
#define GF                                          \
    {                                               \
        .kind = SP_APPROVAL_GRANULAR, .rules = true \
    }

/* Profiles; the workspace is /w. */
#define RO "root=r"
#define WS "root=r project=w project:.git=r? project:.codex=r? slash_tmp=w"

#define OUTSIDE "patch rejected: writing outside of the project; rejected by user approval settings"
#define READ_ONLY                                                                         \
    "patch rejected: writing is blocked by read-only sandbox; rejected by user approval " \
    "settings"
#define EMPTY "patch rejected: empty patch"

/* What comes out, in a word: `confined`, `free`, `ask`, `ask free`, each with the parents behind
 * it, or the text of a rejection. */
static const struct {
    const char *paths; /* touched ones, one behind the other; a ">" leads a move's target */
    struct sp_approval_policy policy;
    const char *profile; /* NULL: none; "disabled", "external", "open" */
    const char *want;
} cases[] = {
    {"/w/a", R, WS, "confined"},                             /* 140 */
    {"/w/a /w/d/b", N, WS, "confined"},                      /* */
    {"/w/a", GF, WS, "confined"},                            /* */
    {"/tmp/x", N, WS, "confined"},                           /* */
    {"/o/x", R, WS, "ask /o"},                               /* 141 */
    {"/o/x", N, WS, OUTSIDE},                                /* 141 */
    {"/w/x", N, RO, READ_ONLY},                              /* 142 */
    {"/w/x", R, RO, "ask /w"},                               /* 143 */
    {"/w/x", GF, RO, READ_ONLY},                             /* */
    {"", R, WS, EMPTY},                                      /* 144 */
    {"", U, WS, EMPTY},                                      /* */
    {"", N, NULL, EMPTY},                                    /* */
    {"/w/.codex/config.toml", R, WS, "ask /w/.codex"},       /* 145 */
    {"/w/.git/hooks/x", R, WS, "ask /w/.git/hooks"},         /* 145 */
    {"/w/.git/hooks/x", N, WS, OUTSIDE},                     /* 145 */
    {"/w/.aws/x", N, WS, OUTSIDE},                           /* */
    {"/x", R, WS, "ask /"},                                  /* 146 */
    {"/w/a >/o/b", R, WS, "ask /o"},                         /* 147 */
    {"/w/a >/o/b", N, WS, OUTSIDE},                          /* */
    {"/o/a >/w/b", R, WS, "ask /o"},                         /* */
    {"/w/a", U, WS, "ask"},                                  /* 148 */
    {"/w/a", U, NULL, "ask free"},                           /* 148 */
    {"/o/a", U, "disabled", "ask free"},                     /* 148 */
    {"/o/a", R, NULL, "free"},                               /* 149 */
    {"/o/a", N, "disabled", "free"},                         /* 149 */
    {"/o/a", N, "external", "free"},                         /* */
    {"/o/a", N, "open", "confined"},                         /* the network is confined still */
    {"/w/blocked.txt", R, WS " /w/blocked.txt=d", "ask /w"}, /* 150 */
    {"/o/a", F, WS, "confined"},                             /* 151 */
    {"/w/a", F, RO, "confined"},                             /* 151 */
    {"/o/a", GF, WS, OUTSIDE},                               /* 152 */
    {"/o/a", GT, WS, "ask /o"},                              /* */
    {"/w/a /o/p/x /o/p/y /o/q/z >/v/t", R, WS, "ask /o/p /o/q /v"}, /* 168 */
    {"/o/granted/x", R, WS " /o/granted=w", "confined"},            /* a grant that covers it */
    {"/www/x", R, WS, "ask /www"},                                  /* a name is no prefix */
};
#define CASES (sizeof cases / sizeof cases[0])

#define MAX_CHANGES 8

struct made {
    struct sp_patch_change items[MAX_CHANGES];
    struct sp_patch_changes changes;
    char text[256];
};

static void make_changes(struct made *m, const char *paths)
{
    *m = (struct made){.changes.items = m->items};
    (void)strcpy(m->text, paths);
    for (char *save, *word = strtok_r(m->text, " ", &save); word != NULL;
         word = strtok_r(NULL, " ", &save)) {
        if (word[0] == '>')
            m->items[m->changes.count - 1].full_target = word + 1;
        else
            m->items[m->changes.count++].full_path = word;
    }
}

static void make_profile(struct sp_policy *p, const char *text)
{
    static char root[] = "/w";
    static char *roots[] = {root};

    *p = (struct sp_policy){.cwd = root, .roots = roots, .root_count = 1};
    if (strcmp(text, "disabled") == 0)
        p->profile.kind = SP_PROFILE_DISABLED;
    else if (strcmp(text, "external") == 0)
        p->profile.kind = SP_PROFILE_EXTERNAL;
    else if (strcmp(text, "open") == 0)
        p->profile.is_unrestricted = true;
    else
        p->profile = profile_of(text);
}

/* An approver that keeps its questions. */
static void keep_question(struct sp_approver *a, const struct sp_approval_question *q,
                          sp_approver_fn *done, void *user)
{
    (void)a, (void)q, (void)done, (void)user;
}

static void forget_question(struct sp_approver *a, uint64_t question, void *user)
{
    (void)a, (void)question, (void)user;
}

static struct sp_loop *loop;
static struct sp_approvals *approvals;

/* Begins a plan with memory for `left` requests; 0: as many as it makes. */
static void assess(size_t i, long left, struct sp_run_plan *ret)
{
    static const struct sp_approver_ops ops = {.ask = keep_question, .withdraw = forget_question};
    static struct sp_approver approver = {.ops = &ops};
    const struct sp_approvals_options o = {
        .loop = loop, .policy = cases[i].policy, .approver = &approver};
    struct sp_policy policy = {0};
    struct made m;

    assert_int_equal(sp_approvals_new(&o, &approvals, NULL), 0);
    make_changes(&m, cases[i].paths);
    if (cases[i].profile != NULL)
        make_profile(&policy, cases[i].profile);
    const struct sp_run_plan_request ask = {.changes = &m.changes,
                                            .policy = cases[i].profile == NULL ? NULL : &policy};
    end_memory_at(left);
    sp_run_plan_begin(ret, approvals, &ask, NULL);
    (void)did_memory_end();
    sp_profile_done(&policy.profile);
}

static void end_plan(struct sp_run_plan *p)
{
    sp_run_plan_done(p);
    sp_approvals_free(approvals);
}

static void in_a_word(const struct sp_run_plan *p, char *out)
{
    if (p->state == SP_RUN_PLAN_REFUSED)
        (void)snprintf(out, 256, "%.*s", (int)p->reason.len, p->reason.data);
    else if (p->state == SP_RUN_PLAN_GO)
        (void)strcpy(out, p->patch.is_free ? "free" : "confined");
    else
        (void)strcpy(out, p->patch.is_free ? "ask free" : "ask");
    for (uint32_t i = 0; i < p->patch.parent_count; i++)
        (void)strcat(strcat(out, " "), p->patch.parents[i]);
}

static void test_the_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < CASES; i++) {
        struct sp_run_plan p;
        char got[256];

        assess(i, 0, &p);
        assert_int_not_equal(p.state, SP_RUN_PLAN_FAILED);
        in_a_word(&p, got);
        if (strcmp(got, cases[i].want) != 0)
            fail_msg("%zu, %s: %s, not %s", i, cases[i].paths, got, cases[i].want);
        assert_int_equal(p.patch.refusal != NULL, p.state == SP_RUN_PLAN_REFUSED);
        end_plan(&p);
    }
}

/* Without memory to look into the cache, the question is asked. */
static void test_memory_that_ends(void **state)
{
    (void)state;
    for (size_t i = 0; i < CASES; i++) {
        has_memory_ended = true;
        for (long n = 1; has_memory_ended; n++) {
            struct sp_run_plan p;
            char got[256];

            assess(i, n, &p);
            if (p.state == SP_RUN_PLAN_FAILED) {
                assert_true(has_memory_ended);
                assert_int_equal(p.error.sys, ENOMEM);
            } else {
                in_a_word(&p, got);
                assert_string_equal(got, cases[i].want);
            }
            end_plan(&p);
        }
    }
}

static int begin_loop(void **state)
{
    (void)state;
    return sp_loop_new(&loop, NULL);
}

static int end_loop(void **state)
{
    (void)state;
    sp_loop_free(loop);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(test_the_table, begin_loop, end_loop),
    cmocka_unit_test_setup_teardown(test_memory_that_ends, begin_loop, end_loop),
};

TEST_MAIN(tests)

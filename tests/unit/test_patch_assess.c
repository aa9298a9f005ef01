/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a patch may be applied: cases 140 to 152 and 168, as data. */
#include "approve/patch/patch_assess.h"
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
    bool has_no_sandbox;
    const char *want;
} cases[] = {
    {"/w/a", R, WS, false, "confined"},                       /* 140 */
    {"/w/a /w/d/b", N, WS, false, "confined"},                /* */
    {"/w/a", GF, WS, false, "confined"},                      /* */
    {"/tmp/x", N, WS, false, "confined"},                     /* */
    {"/o/x", R, WS, false, "ask /o"},                         /* 141 */
    {"/o/x", N, WS, false, OUTSIDE},                          /* 141 */
    {"/w/x", N, RO, false, READ_ONLY},                        /* 142 */
    {"/w/x", R, RO, false, "ask /w"},                         /* 143 */
    {"/w/x", GF, RO, false, READ_ONLY},                       /* */
    {"", R, WS, false, EMPTY},                                /* 144 */
    {"", U, WS, false, EMPTY},                                /* */
    {"", N, NULL, false, EMPTY},                              /* */
    {"/w/.codex/config.toml", R, WS, false, "ask /w/.codex"}, /* 145 */
    {"/w/.git/hooks/x", R, WS, false, "ask /w/.git/hooks"},   /* 145 */
    {"/w/.git/hooks/x", N, WS, false, OUTSIDE},               /* 145 */
    {"/w/.aws/x", N, WS, false, OUTSIDE},                     /* */
    {"/x", R, WS, false, "ask /"},                            /* 146 */
    {"/w/a >/o/b", R, WS, false, "ask /o"},                   /* 147 */
    {"/w/a >/o/b", N, WS, false, OUTSIDE},                    /* */
    {"/o/a >/w/b", R, WS, false, "ask /o"},                   /* */
    {"/w/a", U, WS, false, "ask"},                            /* 148 */
    {"/w/a", U, NULL, false, "ask free"},                     /* 148 */
    {"/o/a", U, "disabled", false, "ask free"},               /* 148 */
    {"/o/a", R, NULL, false, "free"},                         /* 149 */
    {"/o/a", N, "disabled", false, "free"},                   /* 149 */
    {"/o/a", N, "disabled", true, "free"},                    /* */
    {"/o/a", N, "external", false, "free"},                   /* */
    {"/o/a", N, "open", false, "confined"},                   /* the network is confined still */
    {"/w/blocked.txt", R, WS " /w/blocked.txt=d", false, "ask /w"},        /* 150 */
    {"/o/a", F, WS, false, "confined"},                                    /* 151 */
    {"/w/a", F, RO, false, "confined"},                                    /* 151 */
    {"/o/a", GF, WS, false, OUTSIDE},                                      /* 152 */
    {"/o/a", GT, WS, false, "ask /o"},                                     /* */
    {"/w/a", R, WS, true, "ask"},                                          /* nothing can confine */
    {"/o/a", F, WS, true, "ask /o"},                                       /* */
    {"/w/a", N, WS, true, OUTSIDE},                                        /* */
    {"/w/a", GF, WS, true, OUTSIDE},                                       /* */
    {"/w/a /o/p/x /o/p/y /o/q/z >/v/t", R, WS, false, "ask /o/p /o/q /v"}, /* 168 */
    {"/o/granted/x", R, WS " /o/granted=w", false, "confined"}, /* a grant that covers it */
    {"/www/x", R, WS, false, "ask /www"},                       /* a name is no prefix */
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

static int assess(size_t i, struct sp_patch_assessment *ret, struct sp_err *e)
{
    struct sp_policy policy = {0};
    struct made m;

    make_changes(&m, cases[i].paths);
    const long left = memory_left;
    memory_left = 0;
    if (cases[i].profile != NULL)
        make_profile(&policy, cases[i].profile);
    memory_left = left;
    const struct sp_patch_assess_ask ask = {
        .changes = &m.changes,
        .policy = cases[i].policy,
        .profile = cases[i].profile == NULL ? NULL : &policy,
        .has_sandbox = !cases[i].has_no_sandbox,
    };
    const int r = sp_patch_assess(&ask, ret, e);
    sp_profile_done(&policy.profile);
    return r;
}

static void in_a_word(const struct sp_patch_assessment *a, char *out)
{
    if (a->verdict == SP_PATCH_REJECT)
        (void)strcpy(out, a->text);
    else if (a->verdict == SP_PATCH_APPROVE)
        (void)strcpy(out, a->is_free ? "free" : "confined");
    else
        (void)strcpy(out, a->is_free ? "ask free" : "ask");
    for (uint32_t i = 0; i < a->parent_count; i++)
        (void)strcat(strcat(out, " "), a->parents[i]);
}

static void test_the_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < CASES; i++) {
        struct sp_patch_assessment a = {0};
        struct sp_err e = {0};
        char got[256];

        assert_int_equal(assess(i, &a, &e), 0);
        in_a_word(&a, got);
        if (strcmp(got, cases[i].want) != 0)
            fail_msg("%zu, %s: %s, not %s", i, cases[i].paths, got, cases[i].want);
        assert_int_equal(a.text != NULL, a.verdict == SP_PATCH_REJECT);
        sp_patch_assessment_done(&a);
    }
}

static void test_memory_that_ends(void **state)
{
    (void)state;
    for (size_t i = 0; i < CASES; i++) {
        for (long n = 1;; n++) {
            struct sp_patch_assessment a = {0};
            struct sp_err e = {0};

            memory_left = n;
            has_memory_ended = false;
            const int r = assess(i, &a, &e);
            memory_left = 0;
            sp_patch_assessment_done(&a);
            if (r == 0) {
                assert_false(has_memory_ended);
                break;
            }
            assert_int_equal(e.sys, ENOMEM);
        }
    }
    sp_patch_assessment_done(NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_the_table),
    cmocka_unit_test(test_memory_that_ends),
};

TEST_MAIN(tests)

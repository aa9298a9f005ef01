/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policies by chance about a small tree, and for every path of it the question whether the plan
 * gives what the policy says: by the resolver, which never looks at a disk.
 */
#include "compile_fixture.h"

#define POLICIES 1500

static const char *const there[] = {
    "a",          "a/.git",       "a/.git/x", "a/b",     "a/b/c",     "a/b/c/.codex",
    "a/b/f",      "a/d",          "e",        "e/.aws",  "e/b",       "e/b/.git",
    "e/b/.git/y", "e/b/.git/y/z", "f",        "a/b/c/g", "a/b/c/g/h", "a.b",
};
static const char *const missing[] = {
    "m",      "m/n",        "a/m",          "a/.agents", "a/b/.git",   "a/b/m/n",
    "e/.git", "e/b/.git/m", "a/d/.codex/x", "a/b/c/g/m", "a/.git/m/n",
};
#define THERE   (sizeof there / sizeof there[0])
#define MISSING (sizeof missing / sizeof missing[0])

static bool is_file(const char *below)
{
    return strcmp(below, "f") == 0 || strcmp(below, "a/b/f") == 0;
}

static void make_tree(void)
{
    struct stat st;

    for (size_t i = 0; i < THERE; i++)
        if (is_file(there[i]))
            make_file(there[i], "");
        else if (lstat(at(there[i]), &st) < 0)
            make_dir(there[i]);
}

static void say_something(uint64_t *seed)
{
    const uint32_t n = 1 + test_random(seed) % 7;
    const uint32_t root = test_random(seed) % 6;

    if (root < 4)
        say_place(SP_PLACE_ROOT, root == 0 ? SP_ACCESS_WRITE : SP_ACCESS_READ, NULL, false);
    for (uint32_t i = 0; i < n; i++) {
        const bool is_there = test_random(seed) % 4 != 0;
        const char *below =
            is_there ? there[test_random(seed) % THERE] : missing[test_random(seed) % MISSING];

        say(below, (enum sp_access)(test_random(seed) % 3));
    }
}

/* By the words of the policy alone. */
static enum sp_access said_about(const char *path)
{
    const enum sp_access a = sp_resolved_access(&resolved, path, NULL);

    if (a == SP_ACCESS_WRITE && !sp_resolved_can_write(&resolved, path, NULL, NULL))
        return SP_ACCESS_READ;
    return a;
}

static void complain(int round, const char *below, enum sp_access said, enum sp_access planned)
{
    for (size_t i = 0; i < resolved.count; i++)
        print_message("# %s: %d\n", resolved.facts[i].path, resolved.facts[i].access);
    plan_print();
    fail_msg("policy %d, %s: said %d, planned %d", round, below, said, planned);
}

static void check_paths(int round)
{
    for (size_t i = 0; i < THERE; i++) {
        const enum sp_access said = said_about(at(there[i]));
        const enum sp_access planned = plan_access(at(there[i]));

        if (said != planned)
            complain(round, there[i], said, planned);
    }
    /* Where nothing is, less may be given: a placeholder stands for all that is below it. */
    for (size_t i = 0; i < MISSING; i++) {
        const enum sp_access said = said_about(at(missing[i]));
        const enum sp_access planned = plan_access(at(missing[i]));

        if (planned == SP_ACCESS_WRITE && said != SP_ACCESS_WRITE)
            complain(round, missing[i], said, planned);
    }
}

static void test_a_plan_gives_what_the_policy_says(void **state)
{
    uint64_t seed = 3;
    unsigned ops = 0;

    (void)state;
    make_tree();
    for (int i = 0; i < POLICIES; i++) {
        compile_reset();
        say_something(&seed);
        compile_with(test_random(&seed) % 2 == 0);
        check_paths(i);
        ops += plan->op_count;
    }
    print_message("# %u ops\n", ops);
    assert_true(ops > POLICIES);
}

/* Without namespaces a plan does nothing about places, so there is one only if nothing is to do. */
static void test_without_namespaces_nothing_is_given_that_is_not_kept(void **state)
{
    uint64_t seed = 4;
    unsigned taken = 0;

    (void)state;
    make_tree();
    for (int i = 0; i < POLICIES; i++) {
        compile_reset();
        if (test_random(&seed) % 8 == 0)
            reads_all();
        else
            say_something(&seed);
        survey_now();
        host_features = (struct sp_host_features){.has_filter = true, .landlock = 6};
        if (compile_try(false) < 0)
            continue;
        taken++;
        assert_int_equal(plan->tier, SP_TIER_THIN);
        check_paths(i);
    }
    print_message("# %u taken\n", taken);
    assert_true(taken > 50 && taken < POLICIES / 2);
}

static const struct CMUnitTest tests[] = {
    compile_test(test_a_plan_gives_what_the_policy_says),
    compile_test(test_without_namespaces_nothing_is_given_that_is_not_kept),
};

TEST_MAIN(tests)

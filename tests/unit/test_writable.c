/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/canonical.h"
#include "sandbox/writable.h"
#include "tree_fixture.h"

static struct sp_policy policy;
static struct sp_writable writable;

static int end(void **state)
{
    sp_writable_done(&writable);
    sp_policy_done(&policy);
    policy = (struct sp_policy){0};
    return tree_end(state);
}

static void add(enum sp_access access, const char *path)
{
    struct sp_err e = {0};

    policy.profile.kind = SP_PROFILE_MANAGED;
    assert_int_equal(sp_profile_add(&policy.profile, SP_PLACE_PATH, access, false, sp_str_of(path),
                                    (struct sp_str){0}, &e),
                     0);
    sp_writable_done(&writable);
    sp_writable_find(&policy, &writable);
}

static bool stays(const char *path)
{
    auto_canonical struct sp_canonical at = {0};

    return sp_writable_stays(&writable, path, &at);
}

static void test_what_lies_in_a_writable_place(void **state)
{
    (void)state;
    make_file("ws/sub/f", "");
    make_file("ws/.git/f", "");
    make_file("bin/f", "");
    add(SP_ACCESS_READ, "/");
    assert_true(stays(at("ws/sub/f")));
    add(SP_ACCESS_WRITE, at("ws"));
    add(SP_ACCESS_READ, at("ws/sub"));
    assert_true(stays(at("bin/f")));
    assert_true(stays(at("bin/missing")));
    assert_true(stays("/"));
    assert_false(stays(at("ws")));
    assert_false(stays(at("ws/missing")));
    assert_false(stays(at("ws/sub/f"))); /* read-only, but ws/sub may be moved away */
    assert_false(stays(at("ws/.git/f")));
    assert_false(stays("bin/f"));
    assert_false(stays(at("bin/../bin/f")));
    assert_false(stays("/proc/self/exe"));
    assert_false(stays("/proc/version"));
    assert_false(stays("/dev/null"));
    assert_false(stays("/dev/fd/0"));
}

static void test_symlinks_on_the_way(void **state)
{
    (void)state;
    make_file("real/ws/f", "");
    make_file("bin/f", "");
    make_link("real/ws", "ws");
    make_link("../real/ws/f", "bin/into");
    make_link("../../bin/f", "real/ws/out");
    make_link("../real/ws/../../bin/f", "bin/through");
    make_link("f", "bin/beside");
    make_link("loop", "loop");
    add(SP_ACCESS_READ, "/");
    add(SP_ACCESS_WRITE, at("ws")); /* which is another place */
    assert_false(stays(at("ws/f")));
    assert_false(stays(at("real/ws/f")));
    assert_false(stays(at("bin/into")));
    assert_false(stays(at("real/ws/out")));
    assert_false(stays(at("bin/through")));
    assert_false(stays(at("loop")));
    assert_true(stays(at("bin/beside")));
}

static void test_a_place_that_is_not_there_yet(void **state)
{
    (void)state;
    make_dir("a");
    add(SP_ACCESS_READ, "/");
    add(SP_ACCESS_WRITE, at("a/b/c"));
    assert_true(stays(at("a")));
    assert_false(stays(at("a/b/c/d")));
    assert_false(stays(at("a/b/x"))); /* who may make c makes b */
}

static void test_all_and_nothing(void **state)
{
    (void)state;
    make_file("f", "");
    sp_writable_find(NULL, &writable);
    assert_true(stays(at("f")));
    assert_false(stays("/proc/version"));
    policy.profile.kind = SP_PROFILE_DISABLED;
    sp_writable_find(&policy, &writable);
    assert_true(stays(at("f")));
    add(SP_ACCESS_WRITE, "/");
    assert_false(stays(at("f")));
    assert_false(stays("/usr/bin/env"));
}

/* Between a command's judgement and this a person may have thought for an hour. */
static void test_each_look_has_time_of_its_own(void **state)
{
    (void)state;
    make_file("bin/f", "");
    add(SP_ACCESS_READ, "/");
    for (int i = 0; i < 100; i++) {
        sp_budget_begin(0);
        sp_writable_done(&writable);
        sp_writable_find(&policy, &writable);
        for (int k = 0; k < 10; k++)
            assert_true(stays(at("bin/f")));
    }
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, tree_begin, end)

static const struct CMUnitTest tests[] = {
    TEST(test_what_lies_in_a_writable_place), TEST(test_symlinks_on_the_way),
    TEST(test_a_place_that_is_not_there_yet), TEST(test_all_and_nothing),
    TEST(test_each_look_has_time_of_its_own),
};

TEST_MAIN(tests)

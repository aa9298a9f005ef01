/* SPDX-License-Identifier: Apache-2.0 */
#include "survey_fixture.h"

static void test_every_match_is_denied(void **state)
{
    (void)state;
    make_file("w/.env", "");
    make_file("w/a/.hidden/b.env", "");
    make_file("w/c.txt", "");
    make_file("w/d.env/inner.env", "");
    make_file("w/.git/x.env", "");
    reads_all();
    can_write("w");
    denied_glob("w/**/*.env");
    survey_now();
    assert_true(survey.has_globs);
    assert_false(survey.is_full_read);
    has("w/.env", DENY, FILE, GLOB);
    has("w/a/.hidden/b.env", DENY, FILE, GLOB);
    has("w/d.env", DENY, DIR, GLOB);
    has("w/.git/x.env", DENY, FILE, GLOB);
    has_no("w/c.txt");
    has_no("w/d.env/inner.env");
    assert_true(is_pinned("w/a"));
    assert_true(is_pinned("w/a/.hidden"));
    assert_int_equal(sure_spot(at("w/.env"))->entry, SP_NO_ENTRY);
}

static void test_a_match_is_over_an_entry_about_the_same_place(void **state)
{
    (void)state;
    make_file("w/a.env", "");
    make_dir("w/x.env/in");
    can_write("w");
    can_write("w/a.env");
    can_write("w/x.env/in"); /* further inside it is the entry */
    denied_glob("w/*.env");
    survey_now();
    has("w/a.env", DENY, FILE, GLOB);
    has("w/x.env", DENY, DIR, GLOB);
    has("w/x.env/in", WRITE, DIR, ENTRY);
}

static void test_where_a_matching_symlink_leads_is_denied(void **state)
{
    (void)state;
    make_file("out/secret", "");
    make_file("out/other", "");
    make_dir("w");
    make_link("chain", "w/a.env");
    make_link("../out/secret", "w/chain");
    make_link("gone", "w/b.env");
    make_link("c.env", "w/c.env");
    make_link("/", "w/d.env");
    make_link("../out/other", "w/plain");
    reads_all();
    can_write("w");
    denied_glob("w/*.env");
    survey_now();
    has("out/secret", DENY, FILE, GLOB);
    has_no("out/other");
    has_no("w/a.env");
    make_link("/proc/self/root", "w/e.env"); /* somewhere, but where? */
    assert_int_equal(survey_try(), -(int)SP_E_INVALID);
}

static void test_the_depth_is_counted_from_the_literal_directory(void **state)
{
    (void)state;
    make_file("w/1.env", "");
    make_file("w/a/2.env", "");
    make_file("w/a/b/3.env", "");
    can_read("w");
    denied_glob("w/**/*.env");
    policy.profile.glob_depth = 2;
    survey_now();
    has("w/1.env", DENY, FILE, GLOB);
    has("w/a/2.env", DENY, FILE, GLOB);
    has_no("w/a/b/3.env");
}

static void test_patterns_with_one_directory_and_patterns_without_wildcards(void **state)
{
    (void)state;
    make_file("w/a.env", "");
    make_file("w/b.pem", "");
    make_file("v/c", "");
    can_read("w");
    denied_glob("w/*.env");
    denied_glob("w/*.pem");
    denied_glob("w/**/none");
    denied_glob("v/c");
    denied_glob("v/none");
    denied_glob("none/*");
    denied_glob("v/c/*"); /* a file has nothing below it */
    survey_now();
    has("w/a.env", DENY, FILE, GLOB);
    has("w/b.pem", DENY, FILE, GLOB);
    has("v/c", DENY, FILE, GLOB);
    assert_int_equal(survey.count, 4);
}

static void test_a_directory_behind_a_symlink_is_searched(void **state)
{
    (void)state;
    make_file("real/a.env", "");
    make_link("real", "alias");
    can_read("alias");
    denied_glob("alias/*.env");
    survey_now();
    has("real/a.env", DENY, FILE, GLOB);
}

static void test_a_pattern_across_a_writable_symlink_is_refused(void **state)
{
    (void)state;
    make_file("w/real/a.env", "");
    make_link("real", "w/link");
    can_write("w");
    denied_glob("w/link/*.env");
    survey_refused(SP_E_INVALID, crossing("deny-read path", "w/link", "w/link"));
    survey_reset();
    can_write("w");
    denied_glob("w/link");
    survey_refused(SP_E_INVALID, crossing("deny-read path", "w/link", "w/link"));
}

static void test_a_pattern_needs_a_directory(void **state)
{
    (void)state;
    say_place(SP_PLACE_GLOB, SP_ACCESS_DENY, "/**/*.env", false);
    survey_refused(SP_E_INVALID, "unreadable glob `/**/*.env` cannot be safely expanded; use a "
                                 "pattern with a non-root directory prefix");
    survey_reset();
    say_place(SP_PLACE_GLOB, SP_ACCESS_DENY, "/tm*/x", false);
    survey_refused(SP_E_INVALID, "unreadable glob `/tm*/x` cannot be safely expanded; use a "
                                 "pattern with a non-root directory prefix");
}

static void test_a_pattern_that_cannot_be_read_is_refused(void **state)
{
    (void)state;
    make_dir("w");
    denied_glob("w/{a,b");
    assert_int_equal(survey_try(), -(int)SP_E_INVALID);
    assert_non_null(strstr(error.msg, "braces do not match"));
}

static void make_many(int count)
{
    char name[32];

    for (int i = 0; i < count; i++) {
        (void)snprintf(name, sizeof name, "w/%d.env", i);
        make_file(name, "");
    }
}

static void test_8192_matches_and_no_more(void **state)
{
    char text[512];

    (void)state;
    make_many(SP_MAX_GLOB_MATCHES);
    can_read("w");
    denied_glob("w/*.env");
    assert_int_equal(survey_try(), 0);
    assert_int_equal(survey.count, SP_MAX_GLOB_MATCHES + 1);
    make_file("w/one-more.env", "");
    (void)snprintf(text, sizeof text,
                   "unreadable glob expansion for %s matched more than 8192 paths", at("w"));
    survey_refused(SP_E_INVALID, text);
}

static void test_a_directory_that_cannot_be_read_is_refused(void **state)
{
    (void)state;
    make_dir("w/closed");
    can_read("w");
    denied_glob("w/**/*.env");
    assert_int_equal(chmod(at("w/closed"), 0), 0);
    be_an_ordinary_user();
    assert_int_equal(survey_try(), -(int)SP_E_SYSTEM);
    assert_int_equal(error.sys, EACCES);
}

static const struct CMUnitTest tests[] = {
    survey_test(test_every_match_is_denied),
    survey_test(test_a_match_is_over_an_entry_about_the_same_place),
    survey_test(test_where_a_matching_symlink_leads_is_denied),
    survey_test(test_the_depth_is_counted_from_the_literal_directory),
    survey_test(test_patterns_with_one_directory_and_patterns_without_wildcards),
    survey_test(test_a_directory_behind_a_symlink_is_searched),
    survey_test(test_a_pattern_across_a_writable_symlink_is_refused),
    survey_test(test_a_pattern_needs_a_directory),
    survey_test(test_a_pattern_that_cannot_be_read_is_refused),
    survey_test(test_8192_matches_and_no_more),
    survey_test(test_a_directory_that_cannot_be_read_is_refused),
};

TEST_MAIN(tests)

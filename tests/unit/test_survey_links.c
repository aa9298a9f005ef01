/* SPDX-License-Identifier: Apache-2.0 */
/* Symlinks on the way to what a policy names. */
#include "survey_fixture.h"

static void test_a_root_behind_a_symlink_is_its_target(void **state)
{
    (void)state;
    make_dir("real/w/sub");
    make_dir("real/w/.git");
    make_link("real", "alias");
    reads_all();
    can_write("alias/w");
    can_read("alias/w/sub");
    survey_now();
    has("real/w", WRITE, DIR, ENTRY);
    has("real/w/sub", READ, DIR, ENTRY);
    has("real/w/.git", READ, DIR, PROTECTED);
    has("real/w/.codex", READ, MISSING, PROTECTED);
    assert_int_equal(survey.alias_count, 0); /* full read: the link is there anyway */
}

static void test_a_carve_out_across_a_writable_symlink_is_refused(void **state)
{
    (void)state;
    make_dir("w/real/ro");
    make_link("real", "w/link");
    can_write("w");
    can_read("w/link/ro");
    survey_refused(SP_E_INVALID, crossing("read-only path", "w/link/ro", "w/link"));
    survey_reset();
    can_write("w");
    denied("w/link/ro");
    survey_refused(SP_E_INVALID, crossing("deny-read path", "w/link/ro", "w/link"));
    survey_reset();
    can_write("w");
    denied("w/link"); /* is it */
    survey_refused(SP_E_INVALID, crossing("deny-read path", "w/link", "w/link"));
    survey_reset();
    can_write("w");
    read_if_there("w/link/none"); /* missing behind it: the same */
    survey_refused(SP_E_INVALID, crossing("read-only path", "w/link/none", "w/link"));
}

static void test_a_symlink_that_leads_out_and_in_again_is_seen(void **state)
{
    (void)state;
    make_dir("data");
    make_dir("w");
    make_link("../data", "w/back");
    make_link("w/back", "entry");
    can_write("w");
    can_read("entry");
    survey_refused(SP_E_INVALID, crossing("read-only path", "entry", "w/back"));
}

static void test_a_symlink_in_a_read_only_part_of_a_root_is_fine(void **state)
{
    (void)state;
    make_dir("w/ro");
    make_dir("w/real/x");
    make_link("../real", "w/ro/link");
    can_write("w");
    can_read("w/ro");
    denied("w/ro/link/x");
    survey_now();
    has("w/real/x", DENY, DIR, ENTRY);
}

static void test_a_loop_is_refused(void **state)
{
    (void)state;
    make_link("loop", "loop");
    denied("loop/x");
    assert_int_equal(survey_try(), -(int)SP_E_INVALID);
    assert_int_equal(error.sys, ELOOP);
}

/* Whoever writes a root could else have the next command write anywhere. */
static void test_a_planted_symlink_opens_nothing(void **state)
{
    (void)state;
    make_dir("home");
    make_dir("w");
    can_write("w");
    can_write("w/tmp"); /* not there yet */
    survey_now();
    has_no("w/tmp");
    make_link("../home", "w/tmp"); /* as a command would */
    assert_false(sp_survey_holds(&survey));
    survey_refused(SP_E_INVALID, crossing("writable root", "w/tmp", "w/tmp"));
    make_link("../home", "w/tmp2");
    can_write("w/tmp2"); /* two of them do not vouch for each other */
    assert_int_equal(survey_try(), -(int)SP_E_INVALID);
    can_write("home"); /* what an entry opens anyway may be led to */
    survey_now();
    has("home", WRITE, DIR, ENTRY);
}

static void test_a_symlink_within_what_is_writable_is_fine(void **state)
{
    (void)state;
    make_dir("w/real");
    make_link("real", "w/link");
    can_write("w");
    can_write("w/link");
    survey_now();
    has("w/real", WRITE, DIR, ENTRY);
    denied("w/real"); /* but not into a part that is closed */
    survey_refused(SP_E_INVALID, crossing("writable root", "w/link", "w/link"));
    survey_reset();
    make_dir("w/ro/in");
    make_link("ro/in", "w/hole");
    can_write("w");
    can_read("w/ro");
    can_write("w/hole");
    survey_refused(SP_E_INVALID, crossing("writable root", "w/hole", "w/hole"));
}

/* ---- aliases ---- */

static void test_symlinks_to_readable_places_are_told_once_and_in_order(void **state)
{
    (void)state;
    make_dir("real/d");
    make_file("real/f", "");
    make_link("real", "one");
    make_link("one/d", "two");
    make_link("f", "real/link"); /* in a place that can be read: it is there anyway */
    can_read("two");
    can_read("one/f");
    can_read("real");
    can_read("one/link");
    denied("one/none");
    survey_now();
    assert_int_equal(survey.alias_count, 2);
    assert_string_equal(survey.aliases[0].path, at("two"));
    assert_string_equal(survey.aliases[0].target, "one/d");
    assert_string_equal(survey.aliases[1].path, at("one"));
    assert_string_equal(survey.aliases[1].target, "real");
    reads_all();
    survey_now(); /* with a denied entry it is no full read, but all links can be seen */
    assert_int_equal(survey.alias_count, 0);
}

static const struct CMUnitTest tests[] = {
    survey_test(test_a_root_behind_a_symlink_is_its_target),
    survey_test(test_a_carve_out_across_a_writable_symlink_is_refused),
    survey_test(test_a_symlink_that_leads_out_and_in_again_is_seen),
    survey_test(test_a_symlink_in_a_read_only_part_of_a_root_is_fine),
    survey_test(test_a_loop_is_refused),
    survey_test(test_a_planted_symlink_opens_nothing),
    survey_test(test_a_symlink_within_what_is_writable_is_fine),
    survey_test(test_symlinks_to_readable_places_are_told_once_and_in_order),
};

TEST_MAIN(tests)

/* SPDX-License-Identifier: Apache-2.0 */
/* Policies about real trees, made into plans: which places, what is done with each, in which order.
 */
#include "compile_fixture.h"

/* ---- the ground ---- */

static void writes_all(void)
{
    say_place(SP_PLACE_ROOT, SP_ACCESS_WRITE, NULL, false);
}

#define PLACEHOLDERS 3 /* .git, .agents, .codex */

static void test_who_reads_all_has_the_hosts_tree_read_only(void **state)
{
    (void)state;
    reads_all();
    compile_now();
    assert_int_equal(plan->view, SP_VIEW_READ);
    assert_int_equal(ops_in_tree(), 0);
}

static void test_who_writes_all_has_the_hosts_tree(void **state)
{
    (void)state;
    writes_all();
    compile_now();
    assert_int_equal(plan->view, SP_VIEW_OPEN);
    assert_int_equal(plan->op_count, 0);
}

static void test_open_policies_have_no_places(void **state)
{
    static const enum sp_profile_kind kinds[] = {SP_PROFILE_MANAGED, SP_PROFILE_DISABLED,
                                                 SP_PROFILE_EXTERNAL};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        compile_reset();
        policy.profile.kind = kinds[i];
        policy.profile.is_unrestricted = kinds[i] == SP_PROFILE_MANAGED;
        compile_now();
        assert_int_equal(plan->view, SP_VIEW_OPEN);
        assert_int_equal(plan->op_count, 0);
    }
}

static void test_who_reads_some_has_a_new_root(void **state)
{
    (void)state;
    make_dir("r");
    make_dir("w");
    make_file("f", "");
    compile_now(); /* nothing at all */
    assert_int_equal(plan->view, SP_VIEW_NEW);
    assert_int_equal(plan->op_count, 0);
    can_read("r");
    can_write("w");
    can_read("f");
    compile_now();
    assert_int_equal(plan->view, SP_VIEW_NEW);
    assert_int_equal(reads("r")->is_dir, 1);
    assert_int_equal(reads("f")->is_dir, 0);
    writes("w");
    assert_int_equal(plan->op_count, 3 + PLACEHOLDERS);
}

static void test_a_denied_root_is_a_new_one(void **state)
{
    (void)state;
    make_dir("r/secret");
    say_place(SP_PLACE_ROOT, SP_ACCESS_DENY, NULL, false);
    can_read("r");
    denied("r/secret");
    compile_now();
    assert_int_equal(plan->view, SP_VIEW_NEW);
    reads("r");
    denies("r/secret");
    assert_int_equal(plan->op_count, 2);
}

static void test_the_platforms_defaults_are_read_in_a_new_root(void **state)
{
    struct stat st;

    (void)state;
    say_place(SP_PLACE_MINIMAL, SP_ACCESS_READ, NULL, false);
    compile_now();
    assert_int_equal(plan->view, SP_VIEW_NEW);
    sure_op("/usr", SP_OP_READ);
    assert_null(op_at("/run"));
    assert_null(op_at("/home"));
    if (lstat("/bin", &st) == 0 && S_ISLNK(st.st_mode)) /* a merged /usr is one here, too */
        sure_op("/bin", SP_OP_ALIAS);
}

/* ---- roots and what is carved out of them ---- */

static void test_a_root_is_written_and_its_names_are_held(void **state)
{
    (void)state;
    make_dir("w/.git/hooks");
    make_file("w/.codex", "");
    make_dir("w/src/.git"); /* top level only */
    reads_all();
    can_write("w");
    compile_now();
    assert_int_equal(writes("w")->is_dir, 1);
    assert_int_equal(reads("w/.git")->is_dir, 1);
    assert_int_equal(reads("w/.codex")->is_dir, 0);
    holds_place("w/.agents");
    has_no_op("w/.aws"); /* these are watched */
    has_no_op("w/.sallyport");
    assert_int_equal(ops_in_tree(), 4);
}

static void test_temporary_directories_have_no_placeholders(void **state)
{
    (void)state;
    make_dir("w");
    make_dir("t");
    policy.tmpdir = strdup(at("t"));
    reads_all();
    can_write("w");
    say_place(SP_PLACE_TMPDIR, SP_ACCESS_WRITE, NULL, false);
    compile_now();
    writes("w");
    writes("t");
    holds_place("w/.git");
    has_no_op("t/.git");
    has_no_op("t/.codex");
}

static void test_every_directory_on_the_way_to_a_carve_out_is_pinned(void **state)
{
    (void)state;
    make_dir("w/a/b/c/d");
    make_dir("w/a/other");
    make_file("w/x/y/f", "");
    reads_all();
    can_write("w");
    can_read("w/a/b/c/d");
    denied("w/x/y/f");
    compile_now();
    pins("w/a");
    pins("w/a/b");
    pins("w/a/b/c");
    reads("w/a/b/c/d");
    pins("w/x");
    pins("w/x/y");
    denies("w/x/y/f");
    assert_int_equal(sure_op(at("w/x/y/f"), SP_OP_EMPTY)->is_dir, 0);
    has_no_op("w/a/other");
    assert_int_equal(ops_in_tree(), 1 + 7 + PLACEHOLDERS);
}

static void test_nothing_is_pinned_where_nothing_is_written(void **state)
{
    (void)state;
    make_dir("a/b/secret");
    make_dir("a/b/w");
    reads_all();
    denied("a/b/secret");
    can_write("a/b/w");
    compile_now();
    has_no_op("a");
    has_no_op("a/b");
    denies("a/b/secret");
    writes("a/b/w");
}

static void test_the_innermost_entry_decides(void **state)
{
    (void)state;
    make_dir("w/a/b");
    reads_all();
    can_write("w");
    denied("w/a");
    can_write("w/a/b");
    compile_now();
    writes("w");
    hides("w/a", 0, true);
    writes("w/a/b");
    holds_place("w/a/b/.git");
    assert_int_equal(plan_access(at("w/x")), SP_ACCESS_WRITE);
    assert_int_equal(plan_access(at("w/a/x")), SP_ACCESS_DENY);
    assert_int_equal(plan_access(at("w/a/b/x")), SP_ACCESS_WRITE);
}

static void test_a_denied_directory_opens_for_what_lies_deep_in_it(void **state)
{
    (void)state;
    make_dir("w/a/b/c/r/s/t");
    make_dir("w/a/b/d");
    make_dir("w/deny");
    reads_all();
    can_write("w");
    denied("w/a");
    denied("w/a/b/d"); /* denied in denied: nothing more */
    can_read("w/a/b/c/r");
    denied("w/a/b/c/r/s");
    can_read("w/a/b/c/r/s/t");
    denied("w/deny");
    compile_now();
    hides("w/a", 0, true);
    reads("w/a/b/c/r");
    hides("w/a/b/c/r/s", 0, true);
    reads("w/a/b/c/r/s/t");
    denies("w/deny");
    has_no_op("w/a/b");
    has_no_op("w/a/b/c");
    has_no_op("w/a/b/d");
    assert_int_equal(plan_access(at("w/a/b")), SP_ACCESS_DENY);
}

/* Something in a neighbour whose name begins alike opens nothing. */
static void test_neighbours_with_like_names_are_no_parents(void **state)
{
    (void)state;
    make_dir("w/a");
    make_dir("w/a.b/c");
    make_dir("w/a-b");
    make_dir("w/ab");
    reads_all();
    can_write("w");
    denied("w/a");
    can_read("w/a.b/c");
    can_read("w/a-b");
    can_write("w/ab");
    compile_now();
    hides("w/a", 0, false);
    pins("w/a.b");
    reads("w/a.b/c");
    reads("w/a-b");
    pins("w/ab");
}

static void test_roots_in_roots(void **state)
{
    (void)state;
    make_dir("w/in/deep/.git");
    make_dir("w/ro/in/.git");
    make_file("w/f", "");
    reads_all();
    can_write("w");
    can_write("w/in/deep");
    can_read("w/ro");
    can_write("w/ro/in");
    can_write("w/f");
    compile_now();
    pins("w/in");
    pins("w/in/deep");
    reads("w/in/deep/.git");
    holds_place("w/in/deep/.codex");
    has_no_op("w/in/.git"); /* no root */
    reads("w/ro");
    writes("w/ro/in");
    reads("w/ro/in/.git");
    holds_place("w/ro/in/.agents");
    assert_int_equal(pins("w/f")->is_dir, 0);
}

static void test_read_in_read_and_deny_in_deny_need_nothing(void **state)
{
    (void)state;
    make_dir("r/s");
    make_dir("d/e");
    reads_all();
    can_read("r");
    can_read("r/s");
    denied("d");
    denied("d/e");
    compile_now();
    denies("d");
    assert_int_equal(ops_in_tree(), 1);
}

static void test_read_and_write_at_one_path_is_write_and_deny_is_over_both(void **state)
{
    (void)state;
    make_dir("rw");
    make_dir("dw");
    reads_all();
    can_read("rw");
    can_write("rw");
    denied("dw");
    can_write("dw");
    compile_now();
    writes("rw");
    denies("dw");
    has_no_op("dw/.git");
}

static void test_a_reopened_name_is_written(void **state)
{
    (void)state;
    make_dir("w/.git/hooks/deep");
    make_dir("w/.agents");
    reads_all();
    can_write("w");
    can_write("w/.git/hooks");
    can_write("w/.agents");
    compile_now();
    reads("w/.git");
    writes("w/.git/hooks");
    pins("w/.agents");
    holds_place("w/.codex");
}

static void test_where_a_git_file_leads_is_read_and_pinned(void **state)
{
    (void)state;
    make_dir("w/store/deep/repo");
    make_file("w/.git", "gitdir: store/deep/repo\n");
    make_file("w/store/deep/repo/commondir", "../../../common\n");
    make_dir("w/common");
    reads_all();
    can_write("w");
    compile_now();
    assert_int_equal(reads("w/.git")->is_dir, 0);
    pins("w/store");
    pins("w/store/deep");
    reads("w/store/deep/repo");
    reads("w/common");
}

/* ---- what is not there ---- */

static void test_what_is_missing_is_held_at_its_first_component(void **state)
{
    (void)state;
    make_dir("w/there");
    reads_all();
    can_write("w");
    can_read("w/there/m/n");
    denied("w/gone/deep");
    denied("w/.codex"); /* stricter than its protection */
    read_if_there("w/default");
    compile_now();
    pins("w/there");
    holds_place("w/there/m");
    assert_int_equal(hides("w/gone", 0, false)->ino, 0);
    assert_int_equal(hides("w/.codex", 0, false)->ino, 0);
    has_no_op("w/default");
}

static void test_what_nobody_can_make_needs_no_placeholder(void **state)
{
    (void)state;
    make_dir("r");
    make_dir("w/ro");
    make_dir("w/no");
    reads_all();
    can_write("w");
    can_read("w/ro");
    denied("w/no");
    denied("r/missing");
    denied("w/ro/missing");
    can_read("w/no/missing");
    can_write("w/missing");
    can_write("missing");
    compile_now();
    has_no_op("r/missing");
    has_no_op("w/ro/missing");
    has_no_op("w/no/missing");
    has_no_op("w/missing");
    has_no_op("missing");
    denies("w/no");
}

/* ---- everything is written but this ---- */

static void test_carve_outs_of_the_whole_disk(void **state)
{
    char path[PATH_MAX];

    (void)state;
    make_dir("a/ro");
    make_dir("a/secret/but");
    make_dir("a/w");
    writes_all();
    can_read("a/ro");
    denied("a/secret");
    can_write("a/secret/but");
    can_write("a/w");
    compile_now();
    assert_int_equal(plan->view, SP_VIEW_OPEN);
    pins("a");
    reads("a/ro");
    hides("a/secret", 0, true);
    writes("a/secret/but");
    pins("a/w");
    /* From the top on: the tree's own ancestors lead to carve-outs. */
    for ((void)snprintf(path, sizeof path, "%s", tree); path[0] != 0; *strrchr(path, '/') = 0)
        sure_op(path, SP_OP_PIN);
    assert_null(op_at("/run")); /* it is the policy's to close it */
}

static const struct CMUnitTest tests[] = {
    compile_test(test_who_reads_all_has_the_hosts_tree_read_only),
    compile_test(test_who_writes_all_has_the_hosts_tree),
    compile_test(test_open_policies_have_no_places),
    compile_test(test_who_reads_some_has_a_new_root),
    compile_test(test_a_denied_root_is_a_new_one),
    compile_test(test_the_platforms_defaults_are_read_in_a_new_root),
    compile_test(test_a_root_is_written_and_its_names_are_held),
    compile_test(test_temporary_directories_have_no_placeholders),
    compile_test(test_every_directory_on_the_way_to_a_carve_out_is_pinned),
    compile_test(test_nothing_is_pinned_where_nothing_is_written),
    compile_test(test_the_innermost_entry_decides),
    compile_test(test_a_denied_directory_opens_for_what_lies_deep_in_it),
    compile_test(test_neighbours_with_like_names_are_no_parents),
    compile_test(test_roots_in_roots),
    compile_test(test_read_in_read_and_deny_in_deny_need_nothing),
    compile_test(test_read_and_write_at_one_path_is_write_and_deny_is_over_both),
    compile_test(test_a_reopened_name_is_written),
    compile_test(test_where_a_git_file_leads_is_read_and_pinned),
    compile_test(test_what_is_missing_is_held_at_its_first_component),
    compile_test(test_what_nobody_can_make_needs_no_placeholder),
    compile_test(test_carve_outs_of_the_whole_disk),
};

TEST_MAIN(tests)

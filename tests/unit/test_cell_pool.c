/* SPDX-License-Identifier: Apache-2.0 */
#include "cell_pool_fixture.h"

/* So that no placeholder is needed, for which a cell ends with its last command. */
static void make_names(void)
{
    make_dir("w/.git");
    make_dir("w/.agents");
    make_dir("w/.codex");
}

/* ---- which cell ---- */

static void test_one_session_and_policy_have_one_cell(void **state)
{
    auto_policy struct sp_policy p = writing("w");
    auto_policy struct sp_policy again = writing("w");

    (void)state;
    make_names();
    struct sp_cell *c = cell_for(1, &p);
    assert_ptr_equal(cell_for(1, &p), c);
    assert_ptr_equal(cell_for(1, &again), c);
    assert_int_equal(cell_pool->count, 1);
    runs_to(c, 1, "exit 3", 3);
    assert_ptr_equal(cell_for(1, &again), c);
}

static void test_other_sessions_and_policies_have_others(void **state)
{
    auto_policy struct sp_policy p = writing("w");
    auto_policy struct sp_policy online = writing("w");
    auto_policy struct sp_policy narrow = writing("w");
    auto_policy struct sp_policy reader = reading();
    struct sp_cell *c[5];

    (void)state;
    make_dir("w/sub");
    online.profile.has_network = true;
    add_entry(&narrow, SP_PLACE_PATH, SP_ACCESS_READ, at("w/sub"));
    c[0] = cell_for(1, &p);
    c[1] = cell_for(2, &p);
    c[2] = cell_for(1, &online);
    c[3] = cell_for(1, &narrow);
    c[4] = cell_for(1, &reader);
    for (size_t i = 0; i < 5; i++)
        for (size_t k = 0; k < i; k++)
            assert_ptr_not_equal(c[i], c[k]);
    assert_int_equal(cell_pool->count, 5);
    assert_ptr_equal(cell_for(1, &p), c[0]);
    assert_ptr_equal(cell_for(2, &p), c[1]);
    assert_ptr_equal(cell_for(1, &narrow), c[3]);
}

static void test_a_cell_keeps_its_policy(void **state)
{
    auto_policy struct sp_policy p = writing("w");
    char script[4 * PATH_MAX];
    struct run held;

    (void)state;
    make_dir("w/.git");
    make_dir("out");
    struct sp_cell *c = cell_for(1, &p);
    (void)snprintf(script, sizeof script,
                   "cd %s && echo x >f && ! echo x >.git/f && ! mkdir .codex/x && ! rmdir .codex "
                   "&& ! echo x >../out/f && ! ls ../run/* 2>/dev/null",
                   at("w"));
    run_in(&held, c, 1, "sleep 1000");
    runs_to(c, 1, script, 0);
    assert_true(is_there("w/f"));
    assert_int_equal(names_in("w/.git"), 0);
    assert_int_equal(names_in("out"), 0);
    assert_true(is_there("w/.codex")); /* a placeholder */
    run_done_with(&held);
}

/* ---- the disk changes ---- */

static void test_after_a_change_there_is_another_and_the_old_one_ends_with_its_command(void **state)
{
    auto_policy struct sp_policy p = writing("w");
    struct run long_one;
    struct run next;

    (void)state;
    make_dir("w/sub");
    add_entry(&p, SP_PLACE_PATH, SP_ACCESS_READ, at("w/sub"));
    struct sp_cell *old = cell_for(1, &p);
    run_in(&long_one, old, 1, "sleep 1000");
    const int pidfd = pidfd_of(old);
    assert_ptr_equal(cell_for(1, &p), old);
    assert_int_equal(rename(at("w/sub"), at("w/was")), 0);
    make_dir("w/sub");
    struct sp_cell *new = cell_for(1, &p);
    assert_ptr_not_equal(new, old);
    assert_ptr_equal(cell_for(1, &p), new);
    run_in(&next, new, 1, "sleep 1000");
    lives(pidfd);
    assert_false(long_one.is_lost);
    assert_int_equal(cell_pool->count, 2);
    (void)sp_cell_send(&long_one.seat, SP_WIRE_TERMINATE, 0, 0, 0);
    until(is_true, &long_one.is_closed);
    dies(pidfd);
    until_count(1);
    run_done_with(&long_one);
    assert_ptr_equal(cell_for(1, &p), new);
    assert_false(next.is_lost);
    run_done_with(&next);
}

static void test_an_idle_one_that_is_stale_ends_at_once(void **state)
{
    auto_policy struct sp_policy p = writing("w");

    (void)state;
    make_names();
    struct sp_cell *old = cell_for(1, &p);
    runs_to(old, 1, "true", 0);
    const int pidfd = pidfd_of(old);
    const uint64_t before = test_now_ms();
    assert_int_equal(rename(at("w/.git"), at("w/git")), 0);
    make_dir("w/.git");
    assert_ptr_not_equal(cell_for(1, &p), old);
    dies(pidfd);
    assert_true(test_now_ms() - before < SP_CELL_IDLE_MS);
    until_count(1);
}

static void test_a_placeholder_that_is_gone_makes_another(void **state)
{
    auto_policy struct sp_policy p = writing("w");
    struct run held;

    (void)state;
    struct sp_cell *old = cell_for(1, &p);
    run_in(&held, old, 1, "sleep 1000");
    assert_int_equal(rmdir(at("w/.codex")), 0);
    struct sp_cell *new = cell_for(1, &p);
    assert_ptr_not_equal(new, old);
    assert_true(is_there("w/.codex"));
    assert_ptr_equal(cell_for(1, &p), new);
    run_done_with(&held);
}

static bool is_answered(const void *run)
{
    return ((const struct run *)run)->is_started || ((const struct run *)run)->is_lost;
}

/* Whatever the cell finds missing, it does not make it on the disk. */
static void test_a_placeholder_that_goes_while_the_cell_is_built_is_not_made_again(void **state)
{
    auto_policy struct sp_policy p = writing("w");
    unsigned lost = 0;

    (void)state;
    for (int i = 0; i < 30; i++) {
        struct run r;
        struct stat st;

        ask_run(&r, cell_for(1, &p), 1, "true");
        if (i % 3 == 1)
            (void)poll(NULL, 0, 1 + i % 4);
        assert_int_equal(rmdir(at("w/.codex")), 0);
        until(is_answered, &r);
        lost += r.is_lost;
        sp_cell_pool_end_session(cell_pool, 1);
        run_done_with(&r);
        until_count(0);
        let_pass(20);
        if (lstat(at("w/.codex"), &st) == 0)
            fail_msg("round %d: mode %o", i, (unsigned)st.st_mode);
    }
    print_message("# %u of 30 were too late\n", lost);
}

static void test_patterns_are_looked_for_each_time(void **state)
{
    auto_policy struct sp_policy p = writing("w");
    struct run held;

    (void)state;
    make_file("w/a.env", "");
    add_entry(&p, SP_PLACE_GLOB, SP_ACCESS_DENY, at("w/**/*.env"));
    struct sp_cell *old = cell_for(1, &p);
    assert_ptr_equal(cell_for(1, &p), old);
    make_file("w/b.txt", "");
    assert_ptr_equal(cell_for(1, &p), old);
    make_file("w/b.env", "");
    struct sp_cell *new = cell_for(1, &p);
    assert_ptr_not_equal(new, old);
    assert_ptr_equal(cell_for(1, &p), new);
    run_in(&held, new, 1, "sleep 1000");
    assert_int_equal(rmdir(at("w/.codex")), 0);
    assert_ptr_not_equal(cell_for(1, &p), new);
    run_done_with(&held);
}

/* ---- time ---- */

static void test_what_nobody_uses_ends(void **state)
{
    auto_policy struct sp_policy holder = writing("w");
    auto_policy struct sp_policy reader = reading();
    struct run left;

    (void)state;
    struct sp_cell *a = cell_for(1, &holder);
    struct sp_cell *b = cell_for(2, &reader);
    struct sp_cell *c = cell_for(3, &holder);
    runs_to(b, 2, "true", 0);
    run_in(&left, c, 3, "sleep 1000 >/dev/null 2>&1 </dev/null & exit 0");
    until(is_true, &left.is_closed);
    const int of_a = pidfd_of(a);
    const int of_b = pidfd_of(b);
    const int of_c = pidfd_of(c);
    runs_to(a, 1, "true", 0);
    dies(of_a);
    until_count(2);
    assert_true(is_there("w/.git")); /* c has it still */
    let_pass(700);
    lives(of_b); /* nothing of it is in anybody's way */
    lives(of_c); /* what its command has left runs there */
    run_done_with(&left);
    sp_cell_pool_end_session(cell_pool, 3);
    dies(of_c);
    until_count(1);
    assert_false(is_there("w/.git"));
    (void)close(of_b);
    assert_ptr_equal(cell_for(2, &reader), b);
}

/* It would be made anew for each of them. */
static void test_a_cell_stays_between_many_quick_starts(void **state)
{
    auto_policy struct sp_policy p = writing("w");
    int kept = 0;

    (void)state;
    for (int i = 0; i < 3 * SP_BURST_STARTS; i++) {
        runs_to(cell_for(1, &p), 1, "true", 0);
        kept += is_there("w/.git");
    }
    if (kept == 0)
        print_message("# too slow for a burst\n");
    until_count(0);
    assert_false(is_there("w/.git"));
}

/* Who hears that it has closed finds nothing that stands for it. */
static void test_placeholders_are_gone_with_the_last_command(void **state)
{
    auto_policy struct sp_policy p = writing("w");
    struct run first;
    struct run second;

    (void)state;
    run_in(&first, cell_for(1, &p), 1, "exec sleep 1000");
    run_in(&second, cell_for(1, &p), 1, "true");
    until(is_true, &second.is_closed);
    assert_true(is_there("w/.git"));
    (void)sp_cell_send(&first.seat, SP_WIRE_TERMINATE, 0, 0, 0);
    until(is_true, &first.is_closed);
    let_pass(1);
    assert_int_equal(names_in("w"), 0);
    run_done_with(&first);
    run_done_with(&second);
    until_count(0);
}

/* Nothing is deleted, and nothing that belongs to others is touched. */
static void test_a_name_that_is_watched_is_renamed(void **state)
{
    auto_policy struct sp_policy p = writing("w");
    char script[4 * PATH_MAX];
    struct run first;

    (void)state;
    (void)snprintf(script, sizeof script, "mkdir -p %s/.aws/deep && echo x > %s/.aws/deep/f",
                   at("w"), at("w"));
    runs_to(cell_for(1, &p), 1, script, 0);
    assert_false(is_there("w/.aws"));
    assert_int_equal(names_in("w"), 1);
    (void)snprintf(script, sizeof script, "ln -s / %s/.sallyport; exec sleep 1000", at("w"));
    run_in(&first, cell_for(1, &p), 1, script);
    let_pass(SP_PLANTED_CHECK_MS + 300);
    assert_false(is_there("w/.sallyport"));
    assert_int_equal(names_in("w"), 2 + 3);
    run_done_with(&first);
    until_count(0);
}

static void test_a_cell_in_which_nothing_was_started_ends_too(void **state)
{
    auto_policy struct sp_policy p = writing("w");

    (void)state;
    (void)cell_for(1, &p); /* and the start is refused for some reason of its own */
    assert_true(is_there("w/.git"));
    until_count(0);
    let_pass(100);
    assert_false(is_there("w/.git"));
}

struct lone_cell {
    struct sp_cell *cell;
    bool is_gone;
};

static void on_lone_died(void *user)
{
    sp_cell_kill(((struct lone_cell *)user)->cell);
}

static void on_lone_gone(void *user)
{
    ((struct lone_cell *)user)->is_gone = true;
}

/* Makes a cell by the plan of a policy with a root of its own that denies w/secret; is_other: of
 * another inode than the one that is there. */
static void build_denying(bool is_other, struct run *ret)
{
    auto_policy struct sp_policy p = {0};
    auto_buf struct sp_buf plan = {0};
    struct sp_cell_options o = cell_pool->options.cell;
    struct lone_cell lone = {0};
    unsigned denied = 0;

    add_entry(&p, SP_PLACE_MINIMAL, SP_ACCESS_READ, NULL);
    add_entry(&p, SP_PLACE_PATH, SP_ACCESS_WRITE, at("w"));
    add_entry(&p, SP_PLACE_PATH, SP_ACCESS_DENY, at("w/secret"));
    if (sp_cell_pool_plan(cell_pool, &p, &plan, &error) < 0)
        fail_msg("%s", error.msg);
    struct sp_plan *made = (void *)plan.data;
    assert_int_equal(made->view, SP_VIEW_NEW);
    for (uint32_t i = 0; i < made->op_count; i++) {
        struct sp_place_op *op = &made->ops[i];

        if (op->op == SP_OP_EMPTY && op->ino == 0)
            op->op = SP_OP_NOTHING;
        if (op->op != SP_OP_EMPTY || strcmp(sp_plan_string(made, op->path), at("w/secret")) != 0)
            continue;
        op->ino += is_other;
        denied++;
    }
    assert_int_equal(denied, 1);
    o.plan = &plan;
    o.user = &lone;
    o.drained = on_drained;
    o.died = on_lone_died;
    o.gone = on_lone_gone;
    assert_int_equal(sp_cell_new(cells, &o, &lone.cell, &error), 0);
    ask_run(ret, lone.cell, 1, "true");
    until(is_answered, ret);
    run_done_with(ret);
    if (!ret->is_lost)
        sp_cell_kill(lone.cell);
    until(is_true, &lone.is_gone);
}

static void test_what_is_denied_in_a_new_root_must_be_what_was_seen(void **state)
{
    struct run r;

    (void)state;
    make_file("w/secret", "x");
    build_denying(false, &r);
    assert_true(r.is_started);
    build_denying(true, &r);
    assert_true(r.is_lost);
    assert_non_null(strstr(r.why.msg, "changed while the sandbox was made"));
}

/* ---- ends ---- */

static void test_the_end_of_a_session_ends_its_cells(void **state)
{
    auto_policy struct sp_policy p = writing("w");
    auto_policy struct sp_policy q = reading();
    struct run first;
    struct run second;
    struct run other;

    (void)state;
    run_in(&first, cell_for(1, &p), 1, "sleep 1000");
    run_in(&second, cell_for(1, &q), 1, "sleep 1000");
    run_in(&other, cell_for(2, &q), 2, "sleep 1000");
    const int pidfd = pidfd_of(first.seat.cell);
    sp_cell_pool_end_session(cell_pool, 1);
    sp_cell_pool_end_session(cell_pool, 1); /* again is fine, and so is an unknown one */
    sp_cell_pool_end_session(cell_pool, 7);
    assert_true(first.is_lost && second.is_lost);
    dies(pidfd);
    until_count(1);
    assert_false(is_there("w/.git"));
    assert_false(other.is_lost);
    /* The session's number may come again: nothing of the old one is used. */
    runs_to(cell_for(1, &p), 1, "true", 0);
    run_done_with(&first);
    run_done_with(&second);
    run_done_with(&other);
}

static void test_a_session_may_end_before_its_cell_is_there(void **state)
{
    auto_policy struct sp_policy p = writing("w");
    struct run r;

    (void)state;
    for (int i = 0; i < 20; i++) {
        ask_run(&r, cell_for(1, &p), 1, "sleep 1000");
        if (i % 2 == 0)
            let_pass((uint64_t)i % 5);
        sp_cell_pool_end_session(cell_pool, 1);
        assert_true(r.is_lost);
        run_done_with(&r);
    }
    until_count(0);
    const uint64_t deadline = test_now_ms() + DEADLINE_MS;
    while (is_there("w/.git") && test_now_ms() < deadline)
        let_pass(10); /* the last cell has to be made before it can end */
    assert_false(is_there("w/.git"));
}

static void test_a_cell_that_dies_is_replaced(void **state)
{
    auto_policy struct sp_policy p = writing("w");
    struct run r;

    (void)state;
    struct sp_cell *c = cell_for(1, &p);
    run_in(&r, c, 1, "sleep 1000");
    const int pidfd = pidfd_of(c);
    assert_int_equal(kill(c->self.pid, SIGKILL), 0);
    until(is_true, &r.is_lost);
    run_done_with(&r);
    dies(pidfd);
    until_count(0);
    runs_to(cell_for(1, &p), 1, "true", 0);
    until_count(0);
}

static void test_the_end_of_all_with_everything_running(void **state)
{
    auto_policy struct sp_policy p = writing("w");
    auto_policy struct sp_policy q = reading();
    struct run r[3];

    (void)state;
    run_in(&r[0], cell_for(1, &p), 1, "setsid sleep 1000 & sleep 1000");
    run_in(&r[1], cell_for(2, &p), 2, "sleep 1000 & exit 0");
    ask_run(&r[2], cell_for(3, &q), 3, "sleep 1000"); /* not even built yet */
    for (int i = 0; i < 3; i++)
        run_done_with(&r[i]);
}

/* ---- refusals ---- */

static void refused(const struct sp_policy *p, const char *text)
{
    struct sp_cell *c = NULL;

    error = (struct sp_err){0};
    if (sp_cell_pool_get(cell_pool, 1, p, &c, &error) == 0)
        fail_msg("not refused: %s", text);
    if (strstr(error.msg, text) == NULL)
        fail_msg("%s", error.msg);
    assert_int_equal(error.code, SP_E_INVALID);
    assert_null(c);
    assert_int_equal(cell_pool->count, 0);
    assert_false(is_there("w/.git"));
}

static void test_what_cannot_be_enforced_is_refused_and_leaves_nothing(void **state)
{
    auto_policy struct sp_policy crossing = writing("w");
    auto_policy struct sp_policy own = writing("w");
    auto_policy struct sp_policy many = reading();
    char name[32];

    (void)state;
    make_dir("elsewhere");
    make_link("../elsewhere", "w/.codex");
    refused(&crossing, "because it crosses writable symlink");
    assert_int_equal(unlink(at("w/.codex")), 0);
    add_entry(&own, SP_PLACE_PATH, SP_ACCESS_DENY, "/dev/null");
    refused(&own, "commands get a /dev of their own");
    for (int i = 0; i < SP_MAX_POLICY_PLACEHOLDERS / 3 + 1; i++) {
        (void)snprintf(name, sizeof name, "many/%d", i);
        make_dir(name);
        add_entry(&many, SP_PLACE_PATH, SP_ACCESS_WRITE, at(name));
    }
    refused(&many, "too many writable roots");
    assert_int_equal(names_in("many/0"), 0);
}

static void test_without_powers_it_is_refused(void **state)
{
    auto_policy struct sp_policy p = writing("w");

    (void)state;
    sp_cell_pool_free(cell_pool);
    make_cell_pool("/bin/false"); /* no cell can be made of it */
    refused(&p, "sandbox intent cannot be enforced on this executor");
    sp_cell_pool_free(cell_pool);
    make_cell_pool("/nowhere/sallyport");
    refused(&p, "sandbox intent cannot be enforced on this executor");
}

/* ---- plans ---- */

static void test_a_plan_alone_makes_nothing(void **state)
{
    auto_policy struct sp_policy p = writing("w");
    auto_buf struct sp_buf plan = {0};
    const struct sp_host_features *host_features = NULL;

    (void)state;
    assert_int_equal(sp_cell_pool_plan(cell_pool, &p, &plan, &error), 0);
    assert_non_null(sp_plan_check(plan.data, plan.len));
    assert_int_equal(cell_pool->count, 0);
    assert_int_equal(names_in("w"), 0);
    assert_no_children();
    assert_int_equal(sp_cell_pool_features(cell_pool, &host_features, &error), 0);
    assert_true(host_features->has_full_tier && host_features->has_filter);
    assert_int_equal(host_features->failed_step, SP_BUILD_NONE);
}

/* A placeholder is nothing that is there: with it and without it the plan is the same. */
static void test_a_plan_does_not_see_placeholders(void **state)
{
    auto_policy struct sp_policy p = writing("w");
    auto_buf struct sp_buf before = {0};
    auto_buf struct sp_buf after = {0};

    (void)state;
    assert_int_equal(sp_cell_pool_plan(cell_pool, &p, &before, &error), 0);
    (void)cell_for(1, &p);
    assert_true(is_there("w/.git"));
    assert_int_equal(sp_cell_pool_plan(cell_pool, &p, &after, &error), 0);
    assert_int_equal(before.len, after.len);
    assert_memory_equal(before.data, after.data, after.len);
}

/* Its maker hangs: the cell has no pid yet, and `kill -KILL 0` would end the reader's processes. */
static void test_a_cell_that_is_not_born_is_not_to_be_killed(void **state)
{
    const struct sp_plan head = {.version = SP_PLAN_VERSION, .tier = SP_TIER_CELL};
    auto_buf struct sp_buf plan = {0};
    auto_buf struct sp_buf strings = {0};
    struct sp_wire_start m = {0};
    struct sp_seat seat = {.ops = &run_ops};
    struct sp_cell *c = NULL;

    (void)state;
    make_file("maker", "#!/bin/sh\nexec sleep 1000\n");
    assert_int_equal(chmod(at("maker"), 0755), 0);
    assert_true(sp_buf_add(&plan, &head, sizeof head));
    const struct sp_cell_options o = {
        .program = at("maker"), .slots = 1, .plan = &plan, .drained = on_drained};

    assert_int_equal(sp_cell_new(cells, &o, &c, &error), 0);
    assert_int_equal(sp_cell_start(c, &seat, &m, &strings, NULL, false, &error), 0);
    sp_cell_suspect(&seat, 30, &error);
    assert_string_equal(error.msg, "the new cell has not answered for 30 s");
    sp_cell_forget(&seat);
    assert_true(sp_cell_start(c, &seat, &m, &strings, NULL, false, &error) < 0);
    assert_string_equal(error.msg, "the new cell does not answer");
    sp_cell_abandon(c);
    sp_cell_free(c);
}

static const struct CMUnitTest tests[] = {
    cell_pool_test(test_one_session_and_policy_have_one_cell),
    cell_pool_test(test_other_sessions_and_policies_have_others),
    cell_pool_test(test_a_cell_keeps_its_policy),
    cell_pool_test(test_after_a_change_there_is_another_and_the_old_one_ends_with_its_command),
    cell_pool_test(test_an_idle_one_that_is_stale_ends_at_once),
    cell_pool_test(test_a_placeholder_that_is_gone_makes_another),
    cell_pool_test(test_a_placeholder_that_goes_while_the_cell_is_built_is_not_made_again),
    cell_pool_test(test_patterns_are_looked_for_each_time),
    cell_pool_test(test_what_nobody_uses_ends),
    cell_pool_test(test_a_cell_stays_between_many_quick_starts),
    cell_pool_test(test_placeholders_are_gone_with_the_last_command),
    cell_pool_test(test_a_name_that_is_watched_is_renamed),
    cell_pool_test(test_a_cell_in_which_nothing_was_started_ends_too),
    cell_pool_test(test_what_is_denied_in_a_new_root_must_be_what_was_seen),
    cell_pool_test(test_the_end_of_a_session_ends_its_cells),
    cell_pool_test(test_a_session_may_end_before_its_cell_is_there),
    cell_pool_test(test_a_cell_that_dies_is_replaced),
    cell_pool_test(test_a_cell_that_is_not_born_is_not_to_be_killed),
    cell_pool_test(test_the_end_of_all_with_everything_running),
    cell_pool_test(test_what_cannot_be_enforced_is_refused_and_leaves_nothing),
    cell_pool_test(test_without_powers_it_is_refused),
    cell_pool_test(test_a_plan_alone_makes_nothing),
    cell_pool_test(test_a_plan_does_not_see_placeholders),
};

int main(void)
{
    return cell_pool_main(tests, sizeof tests / sizeof tests[0]);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* As many confined cells as there may be. */
#include "cell_pool_fixture.h"

static struct run runs[SP_MAX_CONFINED];
static struct sp_cell *made[SP_MAX_CONFINED];

/* A busy cell for each session from 0 on. */
static void fill(const struct sp_policy *p)
{
    for (uint64_t i = 0; i < SP_MAX_CONFINED; i++) {
        made[i] = cell_for(i, p);
        run_in(&runs[i], made[i], i, "sleep 1000");
    }
    assert_int_equal(cell_pool->count, SP_MAX_CONFINED);
}

static void finish(size_t i)
{
    (void)sp_cell_send(&runs[i].seat, SP_WIRE_TERMINATE, 0, 0, 0);
    until(is_true, &runs[i].is_closed);
}

static void drop_runs(void)
{
    for (size_t i = 0; i < SP_MAX_CONFINED; i++)
        run_done_with(&runs[i]);
}

static bool is_deserted(const void *cell)
{
    return sp_cell_is_deserted(cell);
}

static void test_the_least_recently_used_idle_one_makes_room(void **state)
{
    auto_policy struct sp_policy p = reading();
    struct sp_cell *c = NULL;

    (void)state;
    fill(&p);
    assert_ptr_equal(cell_for(3, &p), made[3]); /* those that are there are still to be had */
    error = (struct sp_err){0};
    assert_int_equal(sp_cell_pool_get(cell_pool, 100, &p, &c, &error), -(int)SP_E_LIMIT);
    assert_string_equal(error.msg,
                        "at most 80 sandboxes with different policies may be busy at once");
    assert_null(c);
    assert_int_equal(cell_pool->count, SP_MAX_CONFINED);

    finish(5);
    finish(9);
    finish(20);
    until(is_deserted, made[5]);
    until(is_deserted, made[9]);
    until(is_deserted, made[20]);
    assert_ptr_equal(cell_for(5, &p), made[5]); /* used again: 9 is older now */
    const int of_5 = pidfd_of(made[5]);
    const int of_9 = pidfd_of(made[9]);
    const int of_20 = pidfd_of(made[20]);
    (void)cell_for(100, &p);
    dies(of_9);
    assert_int_equal(cell_pool->count, SP_MAX_CONFINED);
    lives(of_5);
    lives(of_20);
    (void)cell_for(101, &p);
    dies(of_20);
    lives(of_5);
    (void)close(of_5);
    for (size_t i = 0; i < SP_MAX_CONFINED; i++)
        assert_int_equal(runs[i].is_lost, i == 9 || i == 20); /* nobody who runs */
    drop_runs();
}

static void test_a_session_that_ends_makes_room(void **state)
{
    auto_policy struct sp_policy p = reading();

    (void)state;
    fill(&p);
    sp_cell_pool_end_session(cell_pool, 7);
    assert_true(runs[7].is_lost);
    run_done_with(&runs[7]);
    runs_to(cell_for(100, &p), 100, "true", 0);
    assert_int_equal(cell_pool->count, SP_MAX_CONFINED);
    drop_runs();
}

static const struct CMUnitTest tests[] = {
    cell_pool_test(test_the_least_recently_used_idle_one_makes_room),
    cell_pool_test(test_a_session_that_ends_makes_room),
};

int main(void)
{
    return cell_pool_main(tests, sizeof tests / sizeof tests[0]);
}

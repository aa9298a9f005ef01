/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run whose memory ends, at every request in turn: it is refused at once, or it ends once and
 * says why; nothing is left.
 */
#include "engine/run.h"
#include "fake_backend.h"
#include "memory_fixture.h"

static struct sp_loop *loop;
static struct fake fake;
static int begins, ends, done;
static struct sp_run_result result;
static struct sp_err error;

static void on_event(void *user, const struct sp_exec_event *e)
{
    (void)user;
    begins += e->type == SP_EVENT_BEGIN;
    ends += e->type == SP_EVENT_END;
}

static void on_done(void *user, const struct sp_run_result *r)
{
    (void)user;
    done++;
    result = *r;
    if (r->error != NULL)
        error = *r->error;
    sp_loop_stop(loop);
}

static int start(void)
{
    static const struct fake_step steps[] = {
        STARTED, OUTS("some output ", 2000), ERR("and errors"), EXITED(1), CLOSED, END};
    const struct sp_str argv[] = {SP_STR("/bin/a")};
    const struct sp_run_request ask = {
        .launch = {.argv = argv, .argc = 1, .cwd = SP_STR("/")},
        .event = on_event,
        .has_begin_and_end = true,
        .call_id = SP_STR("call"),
    };
    struct sp_run *run;
    struct sp_err e = {0};

    begins = ends = done = 0;
    fake_init(&fake, loop, steps);
    return sp_run_start(&fake.backend, &ask, on_done, NULL, &run, &e);
}

/* Returns whether memory sufficed. */
static bool try_with_memory_until(long at)
{
    end_memory_at(at);
    const int r = start();
    if (r == 0)
        assert_int_equal(sp_loop_run(loop, NULL), 0);
    const bool has_ended = did_memory_end();

    assert_null(fake.job);
    assert_int_equal(begins, ends);
    assert_int_equal(done, r == 0);
    if (r < 0)
        return false;
    assert_int_equal(ends, 1);
    if (result.kind == SP_RUN_FAILED)
        assert_int_equal(error.sys, ENOMEM);
    else
        assert_int_equal(result.exit_code, 1);
    return !has_ended;
}

static void test_a_run_survives_the_end_of_memory_anywhere(void **state)
{
    struct sp_timer timers[8] = {{0}};
    long at = 1;

    (void)state;
    assert_int_equal(sp_loop_new(&loop, NULL), 0);
    for (size_t i = 0; i < 8; i++) /* the loop's own memory is not what is tested */
        assert_true(sp_loop_timer(loop, &timers[i], test_now_ms() + 3600000, fake_on_timer));
    for (size_t i = 1; i < 8; i++)
        sp_loop_cancel(loop, &timers[i]);
    while (!try_with_memory_until(at))
        at++;
    assert_true(at > 6); /* it did ask for some */
    sp_loop_free(loop);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_a_run_survives_the_end_of_memory_anywhere),
};

TEST_MAIN(tests)

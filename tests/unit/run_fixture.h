/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_fixture: a run on a backend that follows a script, and what came of it.
 */
#ifndef SP_RUN_FIXTURE_H
#define SP_RUN_FIXTURE_H

#include "base/buf.h"
#include "engine/run.h"
#include "fake_backend.h"

static struct sp_loop *loop;
static struct fake fake;
static struct sp_run *run;
static struct sp_timer guard;

/* What came of it. */
static struct {
    int count;
    struct sp_run_result r;
    struct sp_buf out, err, aggregated;
    char error[512];
    unsigned deltas, begins, ends;
    struct sp_buf chunks;     /* of stdout, with a | after each */
    struct sp_buf end_text;   /* stdout|stderr|aggregated|formatted */
    struct sp_exec_event end; /* its numbers */
    struct sp_buf order;      /* B, D, E, F(n) */
} got;

static void copy(struct sp_buf *b, struct sp_str s)
{
    assert_true(sp_buf_add_str(b, s) && sp_buf_add(b, "", 1));
    b->len--;
}

static void on_event(void *user, const struct sp_exec_event *e)
{
    assert_ptr_equal(user, &got);
    assert_true(sp_str_eq(e->call_id, SP_STR("call-1")));
    assert_int_equal(e->process_id, 0);
    switch (e->type) {
    case SP_EVENT_BEGIN:
        got.begins++;
        assert_int_equal(e->argc, 2);
        assert_true(sp_str_eq(e->argv[1], SP_STR("b c")));
        assert_true(sp_str_eq(e->cwd, SP_STR("/")));
        copy(&got.order, SP_STR("B"));
        return;
    case SP_EVENT_DELTA:
        got.deltas++;
        assert_true(e->chunk.n != 0 && e->chunk.n <= 8192);
        if (e->stream == SP_STREAM_STDOUT && got.chunks.len < 100000) {
            copy(&got.chunks, e->chunk);
            copy(&got.chunks, SP_STR("|"));
        }
        if (got.deltas <= 2)
            copy(&got.order, SP_STR("D"));
        return;
    case SP_EVENT_END:
        got.ends++;
        got.end = *e;
        copy(&got.end_text, e->out);
        copy(&got.end_text, SP_STR("|"));
        copy(&got.end_text, e->err);
        copy(&got.end_text, SP_STR("|"));
        copy(&got.end_text, e->aggregated);
        copy(&got.end_text, SP_STR("|"));
        copy(&got.end_text, e->formatted);
        copy(&got.order, SP_STR("E"));
        return;
    case SP_EVENT_INTERACTION:
    case SP_EVENT_WARNING:
    case SP_EVENT_NOTICE:
        fail_msg("an event that a run has not");
    }
}

static void on_done(void *user, const struct sp_run_result *r)
{
    assert_ptr_equal(user, &got);
    got.count++;
    got.r = *r;
    copy(&got.out, r->out);
    copy(&got.err, r->err);
    copy(&got.aggregated, r->aggregated);
    if (r->error != NULL)
        (void)snprintf(got.error, sizeof got.error, "%s", r->error->msg);
    copy(&got.order, SP_STR("F"));
    run = NULL;
    sp_loop_stop(loop);
}

static void on_guard(struct sp_timer *t)
{
    (void)t;
    sp_loop_stop(loop);
}

static int set_up(void **state)
{
    (void)state;
    memset(&got, 0, sizeof got);
    guard = (struct sp_timer){0};
    run = NULL;
    if (sp_loop_new(&loop, NULL) != 0)
        return -1;
    return sp_loop_timer(loop, &guard, test_now_ms() + DEADLINE_MS, on_guard) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    sp_run_free(run);
    sp_loop_free(loop);
    sp_buf_done(&got.out);
    sp_buf_done(&got.err);
    sp_buf_done(&got.aggregated);
    sp_buf_done(&got.chunks);
    sp_buf_done(&got.end_text);
    sp_buf_done(&got.order);
    return 0;
}

static const struct sp_str argv[] = {{"/bin/a", 6}, {"b c", 3}};

static struct sp_run_request plain_ask(void)
{
    return (struct sp_run_request){.launch = {.argv = argv, .argc = 2, .cwd = SP_STR("/")}};
}

static struct sp_run_request watched_ask(enum sp_event_source source)
{
    struct sp_run_request ask = plain_ask();

    ask.event = on_event;
    ask.call_id = SP_STR("call-1");
    ask.source = source;
    ask.has_begin_and_end = true;
    return ask;
}

static void begin(const struct fake_step *steps, const struct sp_run_request *ask)
{
    struct sp_err e = {0};

    fake_init(&fake, loop, steps);
    assert_int_equal(sp_run_start(&fake.backend, ask, on_done, &got, &run, &e), 0);
}

static void finish(void)
{
    assert_int_equal(sp_loop_run(loop, NULL), 0);
    assert_int_equal(got.count, 1);
    assert_null(fake.job);
}

static void play(const struct fake_step *steps, const struct sp_run_request *ask)
{
    begin(steps, ask);
    finish();
}

static inline void assert_end(enum sp_run_kind kind, enum sp_run_class class, int code)
{
    assert_int_equal(got.r.kind, kind);
    assert_int_equal(got.r.class, class);
    assert_int_equal(got.r.exit_code, code);
}

static struct sp_timer cancel_timer;

static void on_cancel_timer(struct sp_timer *t)
{
    (void)t;
    sp_run_cancel(run);
}

static inline void cancel_after(uint32_t ms)
{
    cancel_timer = (struct sp_timer){0};
    assert_true(sp_loop_timer(loop, &cancel_timer, test_now_ms() + ms, on_cancel_timer));
}

static const struct fake_step silent[] = {STARTED, END};
static const struct fake_step dies[] = {SIGNALLED(SIGKILL), CLOSED, END};

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

#endif

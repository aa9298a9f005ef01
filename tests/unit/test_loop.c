/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/eventfd.h>

#include "base/auto.h"
#include "os/loop.h"
#include "process_fixture.h"

static struct sp_loop *loop;
static char trace[512];
static struct sp_timer guard;

static void note(const char *what)
{
    (void)strncat(trace, what, sizeof trace - strlen(trace) - 1);
}

static void on_guard(struct sp_timer *t)
{
    (void)t;
    note("[late]");
    sp_loop_stop(loop);
}

static int make_loop(void **state)
{
    (void)state;
    trace[0] = 0;
    guard = (struct sp_timer){0};
    if (sp_loop_new(&loop, NULL) != 0)
        return -1;
    return sp_loop_timer(loop, &guard, sp_loop_now(loop) + DEADLINE_MS, on_guard) ? 0 : -1;
}

static int free_loop(void **state)
{
    (void)state;
    sp_loop_free(loop);
    sp_loop_free(NULL);
    return 0;
}

static void run(void)
{
    struct sp_err e = {0};

    if (sp_loop_run(loop, &e) < 0)
        fail_msg("%s", e.msg);
}

/* ---- timers ---- */

struct named_timer {
    struct sp_timer timer;
    const char *name;
    struct named_timer *other;
    int left;
};

static void on_named(struct sp_timer *t)
{
    note(SP_CONTAINER(t, struct named_timer, timer)->name);
    assert_int_equal(t->slot, 0);
    assert_true(sp_loop_now(loop) >= t->due_ms);
}

static void on_stop(struct sp_timer *t)
{
    (void)t;
    sp_loop_stop(loop);
}

static void test_timers_fire_in_the_order_of_their_times(void **state)
{
    const uint64_t now = sp_loop_now(loop);
    struct named_timer a = {.name = "a"};
    struct named_timer b = {.name = "b"};
    struct named_timer c = {.name = "c"};
    struct sp_timer stop = {0};

    (void)state;
    assert_true(sp_loop_timer(loop, &stop, now + 13, on_stop));
    assert_true(sp_loop_timer(loop, &c.timer, now + 12, on_named));
    assert_true(sp_loop_timer(loop, &a.timer, now, on_named));
    assert_true(sp_loop_timer(loop, &b.timer, now + 6, on_named));
    run();
    assert_string_equal(trace, "abc");
    assert_true(sp_loop_now(loop) >= now + 13);
}

static void test_a_timer_may_be_moved_and_cancelled(void **state)
{
    const uint64_t now = sp_loop_now(loop);
    struct named_timer a = {.name = "a"};
    struct named_timer b = {.name = "b"};
    struct named_timer never = {.name = "x"};
    struct sp_timer stop = {0};

    (void)state;
    sp_loop_cancel(loop, &never.timer); /* not armed is fine */
    assert_true(sp_loop_timer(loop, &never.timer, now + 1, on_named));
    assert_true(sp_loop_timer(loop, &a.timer, now + 1, on_named));
    assert_true(sp_loop_timer(loop, &b.timer, now + 9, on_named));
    assert_true(sp_loop_timer(loop, &a.timer, now + 10, on_named)); /* later */
    assert_true(sp_loop_timer(loop, &b.timer, now + 2, on_named));  /* earlier */
    assert_true(sp_loop_timer(loop, &stop, now + 12, on_stop));
    sp_loop_cancel(loop, &never.timer);
    sp_loop_cancel(loop, &never.timer);
    run();
    assert_string_equal(trace, "ba");
}

static void on_rearm(struct sp_timer *t)
{
    struct named_timer *n = SP_CONTAINER(t, struct named_timer, timer);

    note(n->name);
    if (--n->left > 0)
        assert_true(sp_loop_timer(loop, t, sp_loop_now(loop) + 1, on_rearm));
    else
        sp_loop_stop(loop);
}

static void test_a_timer_may_arm_itself_again(void **state)
{
    struct named_timer a = {.name = "a", .left = 4};

    (void)state;
    assert_true(sp_loop_timer(loop, &a.timer, sp_loop_now(loop), on_rearm));
    run();
    assert_string_equal(trace, "aaaa");
}

static void on_cancel_other(struct sp_timer *t)
{
    struct named_timer *n = SP_CONTAINER(t, struct named_timer, timer);

    note(n->name);
    sp_loop_cancel(loop, &n->other->timer);
}

static void test_a_callback_may_cancel_a_timer_that_is_due_as_well(void **state)
{
    const uint64_t now = sp_loop_now(loop);
    struct named_timer b = {.name = "b"};
    struct named_timer a = {.name = "a", .other = &b};
    struct sp_timer stop = {0};

    (void)state;
    assert_true(sp_loop_timer(loop, &a.timer, now, on_cancel_other));
    assert_true(sp_loop_timer(loop, &b.timer, now + 1, on_named));
    assert_true(sp_loop_timer(loop, &stop, now + 3, on_stop));
    while (test_now_ms() < now + 4)
        (void)poll(NULL, 0, 1); /* all of them are due in one turn */
    run();
    assert_string_equal(trace, "a");
}

#define MANY 3000

static struct named_timer many[MANY];
static uint64_t last_due;
static int fired;

static void on_many(struct sp_timer *t)
{
    assert_true(t->due_ms >= last_due);
    last_due = t->due_ms;
    fired++;
}

static void test_thousands_of_timers_keep_their_order(void **state)
{
    const uint64_t now = sp_loop_now(loop);
    uint64_t seed = 11;
    struct sp_timer stop = {0};
    int expected = 0;

    (void)state;
    last_due = 0;
    fired = 0;
    memset(many, 0, sizeof many);
    for (int i = 0; i < MANY; i++)
        assert_true(sp_loop_timer(loop, &many[i].timer, now + test_random(&seed) % 50, on_many));
    for (int i = 0; i < MANY; i++) {
        const uint32_t what = test_random(&seed) % 3;

        if (what == 0)
            sp_loop_cancel(loop, &many[i].timer);
        else if (what == 1)
            assert_true(
                sp_loop_timer(loop, &many[i].timer, now + test_random(&seed) % 50, on_many));
        expected += what != 0;
    }
    assert_true(sp_loop_timer(loop, &stop, now + 60, on_stop));
    run();
    assert_int_equal(fired, expected);
}

/* ---- watches ---- */

struct named_watch {
    struct sp_watch watch;
    const char *name;
    struct named_watch *other;
    int fd;
};

static void open_ready(struct named_watch *w, const char *name)
{
    *w = (struct named_watch){.name = name, .fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)};
    assert_true(w->fd >= 0);
}

static void on_take(struct sp_watch *w, uint32_t events)
{
    struct named_watch *n = SP_CONTAINER(w, struct named_watch, watch);
    uint64_t count;

    assert_int_equal(events, EPOLLIN);
    note(n->name);
    assert_int_equal(read(n->fd, &count, sizeof count), sizeof count);
}

static void on_unwatch_other(struct sp_watch *w, uint32_t events)
{
    struct named_watch *n = SP_CONTAINER(w, struct named_watch, watch);

    on_take(w, events);
    sp_loop_unwatch(loop, &n->other->watch);
    memset(&n->other->watch, 0xFF, sizeof n->other->watch); /* it may be freed by now */
}

static void test_who_is_unwatched_in_a_batch_is_not_called_in_it(void **state)
{
    const uint64_t now = sp_loop_now(loop);
    struct named_watch a;
    struct named_watch b;
    struct sp_timer stop = {0};

    (void)state;
    open_ready(&a, "a");
    open_ready(&b, "b");
    a.other = &b;
    b.other = &a;
    assert_int_equal(sp_loop_watch(loop, &a.watch, a.fd, EPOLLIN, on_unwatch_other, NULL), 0);
    assert_int_equal(sp_loop_watch(loop, &b.watch, b.fd, EPOLLIN, on_unwatch_other, NULL), 0);
    assert_true(sp_loop_timer(loop, &stop, now + 3, on_stop));
    run();
    assert_int_equal(strlen(trace), 1); /* one of them, whichever was first */
    sp_loop_unwatch(loop, trace[0] == 'a' ? &a.watch : &b.watch);
    (void)close(a.fd);
    (void)close(b.fd);
}

static void on_once(struct sp_watch *w, uint32_t events)
{
    (void)events;
    note(SP_CONTAINER(w, struct named_watch, watch)->name);
    sp_loop_unwatch(loop, w);
    assert_int_equal(w->fd, -1);
    sp_loop_unwatch(loop, w); /* not watched is fine */
}

static void test_a_callback_may_unwatch_itself(void **state)
{
    struct named_watch a;
    struct sp_timer stop = {0};

    (void)state;
    open_ready(&a, "a");
    assert_int_equal(sp_loop_watch(loop, &a.watch, a.fd, EPOLLIN, on_once, NULL), 0);
    assert_true(sp_loop_timer(loop, &stop, sp_loop_now(loop) + 3, on_stop));
    run();
    assert_string_equal(trace, "a");
    /* And be watched again. */
    assert_int_equal(sp_loop_watch(loop, &a.watch, a.fd, EPOLLIN, on_once, NULL), 0);
    assert_true(sp_loop_timer(loop, &stop, sp_loop_now(loop) + 3, on_stop));
    run();
    assert_string_equal(trace, "aa");
    (void)close(a.fd);
}

static void test_events_may_be_changed(void **state)
{
    struct named_watch a;
    struct sp_timer stop = {0};

    (void)state;
    open_ready(&a, "a");
    assert_int_equal(sp_loop_watch(loop, &a.watch, a.fd, 0, on_once, NULL), 0);
    assert_true(sp_loop_timer(loop, &stop, sp_loop_now(loop) + 2, on_stop));
    run();
    assert_string_equal(trace, "");
    sp_loop_rewatch(loop, &a.watch, EPOLLOUT);
    assert_true(sp_loop_timer(loop, &stop, sp_loop_now(loop) + 2, on_stop));
    run();
    assert_string_equal(trace, "a");
    sp_loop_rewatch(loop, &a.watch, EPOLLIN); /* not watched: nothing */
    (void)close(a.fd);
}

static void test_what_cannot_be_watched_is_an_error(void **state)
{
    struct sp_watch w = {0};
    struct sp_err e = {0};

    (void)state;
    assert_int_equal(sp_loop_watch(loop, &w, -1, EPOLLIN, on_take, &e), -SP_E_SYSTEM);
    assert_int_equal(e.sys, EBADF);
    sp_loop_unwatch(loop, &w);
}

/* ---- end-of-turn work ---- */

struct named_work {
    struct sp_deferred work;
    const char *name;
    struct named_work *other;
    int left;
};

static void on_work(struct sp_deferred *d)
{
    note(SP_CONTAINER(d, struct named_work, work)->name);
}

static void on_last_work(struct sp_deferred *d)
{
    on_work(d);
    sp_loop_stop(loop);
}

static void on_more_work(struct sp_deferred *d)
{
    struct named_work *n = SP_CONTAINER(d, struct named_work, work);

    on_work(d);
    sp_loop_defer(loop, &n->other->work, on_last_work);
}

static void test_deferred_work_runs_once_in_order_and_may_be_taken_back(void **state)
{
    struct named_work a = {.name = "a"};
    struct named_work b = {.name = "b"};
    struct named_work c = {.name = "c"};
    struct named_work d = {.name = "d"};
    struct named_work e = {.name = "e", .other = &d};

    (void)state;
    sp_loop_defer(loop, &a.work, on_work);
    sp_loop_defer(loop, &b.work, on_work);
    sp_loop_defer(loop, &a.work, on_work); /* queued already */
    sp_loop_defer(loop, &c.work, on_work);
    sp_loop_undefer(loop, &c.work);
    sp_loop_undefer(loop, &c.work); /* not queued is fine */
    sp_loop_defer(loop, &e.work, on_more_work);
    run();
    assert_string_equal(trace, "abed");
}

static void test_any_of_a_queue_may_be_taken_back(void **state)
{
    (void)state;
    for (int gone = 0; gone < 3; gone++) {
        struct named_work w[4] = {{.name = "0"}, {.name = "1"}, {.name = "2"}, {.name = "3"}};
        char want[8] = "";

        trace[0] = 0;
        for (int i = 0; i < 3; i++)
            sp_loop_defer(loop, &w[i].work, on_work);
        sp_loop_undefer(loop, &w[gone].work);
        sp_loop_defer(loop, &w[3].work, on_last_work);
        for (int i = 0; i < 4; i++)
            if (i != gone)
                strcat(want, w[i].name);
        run();
        assert_string_equal(trace, want);
    }
}

static void on_part(struct sp_deferred *d)
{
    struct named_work *n = SP_CONTAINER(d, struct named_work, work);

    on_work(d);
    if (--n->left > 0)
        sp_loop_again(loop, d, on_part);
    else
        sp_loop_stop(loop);
}

static void on_turn(struct sp_watch *w, uint32_t events)
{
    (void)events;
    (void)w;
    note(".");
}

static void test_work_in_parts_has_a_turn_for_each(void **state)
{
    struct named_work a = {.name = "a", .left = 3};
    struct named_watch ready;

    (void)state;
    open_ready(&ready, "");
    assert_int_equal(sp_loop_watch(loop, &ready.watch, ready.fd, EPOLLIN, on_turn, NULL), 0);
    sp_loop_again(loop, &a.work, on_part);
    run();
    assert_string_equal(trace, ".a.a.a");
    sp_loop_unwatch(loop, &ready.watch);
    (void)close(ready.fd);
}

static void test_work_of_the_next_turn_may_be_taken_back(void **state)
{
    struct named_work w[3] = {{.name = "0"}, {.name = "1"}, {.name = "2"}};
    struct sp_timer stop = {0};

    (void)state;
    for (int i = 0; i < 3; i++)
        sp_loop_again(loop, &w[i].work, on_work);
    sp_loop_undefer(loop, &w[2].work);
    sp_loop_undefer(loop, &w[0].work);
    sp_loop_again(loop, &w[0].work, on_work);
    assert_true(sp_loop_timer(loop, &stop, sp_loop_now(loop), on_stop));
    run();
    assert_string_equal(trace, "10");
}

/* ---- sleep ---- */

static int asked;

static bool has_work(void *user)
{
    note("?");
    assert_ptr_equal(user, &asked);
    return ++asked < 4; /* three times: do not sleep */
}

static uint64_t has_slept(void *user)
{
    assert_ptr_equal(user, &asked);
    note("!");
    return 0;
}

static void test_the_loop_asks_before_it_sleeps(void **state)
{
    struct sp_timer stop = {0};

    (void)state;
    asked = 0;
    assert_true(sp_loop_hook(loop, &(struct sp_loop_hooks){has_work, has_slept, NULL, &asked}));
    assert_false(sp_loop_hook(loop, &(struct sp_loop_hooks){has_work, has_slept, NULL, &asked}));
    assert_true(sp_loop_timer(loop, &stop, sp_loop_now(loop) + 60, on_stop));
    run();
    assert_true(sp_loop_hook(loop, NULL));
    /* Three turns that did not sleep, one that slept until the timer (the clock may want a few). */
    assert_memory_equal(trace, "?!?!?!?!", 8);
    assert_true(asked < 8);
}

static void test_a_stop_before_the_run_ends_it_at_once(void **state)
{
    (void)state;
    sp_loop_stop(loop);
    run();
    assert_string_equal(trace, "");
}

#define loop_test(f) cmocka_unit_test_setup_teardown(f, make_loop, free_loop)

static const struct CMUnitTest tests[] = {
    loop_test(test_timers_fire_in_the_order_of_their_times),
    loop_test(test_a_timer_may_be_moved_and_cancelled),
    loop_test(test_a_timer_may_arm_itself_again),
    loop_test(test_a_callback_may_cancel_a_timer_that_is_due_as_well),
    loop_test(test_thousands_of_timers_keep_their_order),
    loop_test(test_who_is_unwatched_in_a_batch_is_not_called_in_it),
    loop_test(test_a_callback_may_unwatch_itself),
    loop_test(test_events_may_be_changed),
    loop_test(test_what_cannot_be_watched_is_an_error),
    loop_test(test_deferred_work_runs_once_in_order_and_may_be_taken_back),
    loop_test(test_any_of_a_queue_may_be_taken_back),
    loop_test(test_work_in_parts_has_a_turn_for_each),
    loop_test(test_work_of_the_next_turn_may_be_taken_back),
    loop_test(test_the_loop_asks_before_it_sleeps),
    loop_test(test_a_stop_before_the_run_ends_it_at_once),
};

TEST_MAIN(tests)

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop as a guest: its descriptor in somebody else's poll is readable when there is something
 * to do, and only then. Every wait here is on that descriptor, so a wake-up that gets lost is a
 * test that fails.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>

#include "base/auto.h"
#include "bell_fixture.h"
#include "cell/bell.h"
#include "os/loop.h"
#include "process_fixture.h"

static struct sp_loop *loop;
static int fd;
static int fired;

static int make_loop(void **state)
{
    (void)state;
    fired = 0;
    return sp_loop_new(&loop, NULL) == 0 && sp_loop_fd(loop, &fd, NULL) == 0 ? 0 : -1;
}

static int free_loop(void **state)
{
    (void)state;
    sp_loop_free(loop);
    return 0;
}

static void dispatch(int timeout_ms)
{
    struct sp_err e = {0};

    if (sp_loop_dispatch(loop, timeout_ms, &e) < 0)
        fail_msg("%s", e.msg);
}

static bool is_readable(int within_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return poll(&p, 1, within_ms) == 1;
}

/* As a host does: sleeps on the descriptor, dispatches without waiting. Counts the rounds. */
static int host_until(const int *what, int count)
{
    const uint64_t until = test_now_ms() + DEADLINE_MS;
    int rounds = 0;

    for (; *what < count; rounds++) {
        if (!is_readable(DEADLINE_MS) || test_now_ms() > until)
            fail_msg("a wake-up was lost: %d of %d", *what, count);
        dispatch(0);
    }
    return rounds;
}

static void settle(void)
{
    dispatch(0);
    assert_false(is_readable(0));
}

/* ---- each kind of work ---- */

static void on_timer(struct sp_timer *t)
{
    assert_true(test_now_ms() >= t->due_ms);
    fired++;
}

static void test_nothing_to_do_is_not_readable(void **state)
{
    const uint64_t before = test_now_ms();

    (void)state;
    settle();
    assert_false(is_readable(20));
    dispatch(20); /* waits, and returns though nothing came */
    assert_true(test_now_ms() >= before + 38);
    assert_false(is_readable(0));
}

static void test_a_timer_makes_it_readable_at_its_time(void **state)
{
    struct sp_timer t = {0};

    (void)state;
    settle();
    sp_loop_poke(loop);
    assert_true(sp_loop_timer(loop, &t, sp_loop_now(loop) + 30, on_timer));
    settle(); /* the poke's turn */
    assert_int_equal(fired, 0);
    assert_true(is_readable(DEADLINE_MS));
    assert_true(test_now_ms() >= t.due_ms);
    settle();
    assert_int_equal(fired, 1);
}

static void test_a_timer_that_is_cancelled_wakes_nobody(void **state)
{
    struct sp_timer t = {0};
    struct sp_timer later = {0};

    (void)state;
    assert_true(sp_loop_timer(loop, &t, sp_loop_now(loop) + 10, on_timer));
    settle();
    sp_loop_poke(loop);
    sp_loop_cancel(loop, &t);
    assert_true(sp_loop_timer(loop, &later, sp_loop_now(loop) + 60, on_timer));
    settle();
    assert_false(is_readable(30));
    assert_int_equal(host_until(&fired, 1), 1);
}

static void test_a_blocking_dispatch_keeps_the_time_of_timers(void **state)
{
    struct sp_timer t = {0};
    const uint64_t before = test_now_ms();

    (void)state;
    settle();
    sp_loop_poke(loop);
    assert_true(sp_loop_timer(loop, &t, sp_loop_now(loop) + 25, on_timer));
    while (fired == 0)
        dispatch(-1);
    assert_true(test_now_ms() >= before + 25 && test_now_ms() < before + 5000);
}

static void on_deferred(struct sp_deferred *d)
{
    (void)d;
    fired++;
}

static void on_part(struct sp_deferred *d)
{
    if (++fired < 100)
        sp_loop_again(loop, d, on_part);
}

static void test_deferred_work_and_work_in_parts_make_it_readable(void **state)
{
    struct sp_deferred now = {0};
    struct sp_deferred parts = {0};

    (void)state;
    settle();
    sp_loop_poke(loop);
    sp_loop_defer(loop, &now, on_deferred);
    assert_true(is_readable(0));
    settle();
    assert_int_equal(fired, 1);

    fired = 0;
    sp_loop_poke(loop);
    sp_loop_again(loop, &parts, on_part);
    dispatch(0);
    assert_true(fired < 100); /* the host has its turn between */
    assert_true(is_readable(0));
    assert_true(host_until(&fired, 100) > 1);
    settle();
}

static void on_event(struct sp_watch *w, uint32_t events)
{
    uint64_t count;

    (void)events;
    assert_int_equal(read(w->fd, &count, sizeof count), sizeof count);
    fired++;
}

static void test_an_event_makes_it_readable_until_it_was_taken(void **state)
{
    auto_close int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct sp_watch w = {0};

    (void)state;
    assert_int_equal(sp_loop_watch(loop, &w, event, EPOLLIN, on_event, NULL), 0);
    settle();
    for (int i = 1; i <= 100; i++) {
        assert_int_equal(eventfd_write(event, 1), 0);
        assert_true(is_readable(0));
        settle();
        assert_int_equal(fired, i);
    }
    sp_loop_unwatch(loop, &w);
}

static void on_reenter(struct sp_deferred *d)
{
    struct sp_err e = {0};

    (void)d;
    fired++;
    assert_true(sp_loop_is_inside(loop));
    assert_int_equal(sp_loop_dispatch(loop, 0, &e), -SP_E_STATE);
    assert_non_null(strstr(e.msg, "callback"));
    sp_loop_poke(loop); /* inside: nothing */
}

static void test_dispatch_from_a_callback_is_refused(void **state)
{
    struct sp_deferred d = {0};

    (void)state;
    sp_loop_defer(loop, &d, on_reenter);
    settle();
    assert_int_equal(fired, 1);
    assert_false(sp_loop_is_inside(loop));
}

/* ---- bells: the other side rings only if it sees that we sleep ---- */

static struct sp_bell ours, theirs;
static _Atomic int heard, rung;
static int heard_here;

static void on_mark(void *user, uint32_t slot)
{
    (void)user;
    (void)slot;
    heard_here = atomic_load(&rung);
    atomic_store(&heard, heard_here);
}

static bool before_sleep(void *user)
{
    (void)user;
    return sp_bell_answer(&ours, on_mark, NULL) || !sp_bell_may_sleep(&ours);
}

static uint64_t after_sleep(void *user)
{
    (void)user;
    return sp_bell_awake(&ours);
}

static void on_bell(struct sp_watch *w, uint32_t events)
{
    (void)w;
    (void)events;
    sp_bell_drain(&ours);
}

#define RINGS 20000

/* Rings, waits until it was heard, and rings again: a ring that nobody hears ends the test. */
static void *ringer(void *unused)
{
    uint64_t seed = 5;

    (void)unused;
    for (int i = 1; i <= RINGS; i++) {
        atomic_store(&rung, i);
        ring_bell(&theirs, (uint32_t)i % 100);
        while (atomic_load(&heard) < i)
            (void)sched_yield();
        for (uint32_t spin = test_random(&seed) % 400; spin > 0; spin--)
            atomic_signal_fence(memory_order_seq_cst);
    }
    return NULL;
}

static void test_no_ring_of_a_bell_is_lost(void **state)
{
    struct sp_watch w = {0};
    struct sp_err e = {0};
    pthread_t thread;

    (void)state;
    heard_here = 0;
    atomic_store(&heard, 0);
    if (sp_bell_new(100, &ours, &e) < 0 ||
        sp_bell_join(ours.page_fd, 100, ours.wake[SP_SIDE_FRONT], ours.wake[SP_SIDE_CELL], &theirs,
                     &e) < 0 ||
        sp_loop_watch(loop, &w, ours.wake[SP_SIDE_FRONT], EPOLLIN, on_bell, &e) < 0)
        fail_msg("%s", e.msg);
    assert_true(sp_loop_hook(loop, &(struct sp_loop_hooks){before_sleep, after_sleep, NULL, NULL}));
    settle();
    assert_int_equal(pthread_create(&thread, NULL, ringer, NULL), 0);
    (void)host_until(&heard_here, RINGS);
    assert_int_equal(pthread_join(thread, NULL), 0);
    settle();
    assert_true(sp_loop_hook(loop, NULL));
    sp_loop_unwatch(loop, &w);
    theirs.wake[0] = theirs.wake[1] = -1; /* the same descriptors */
    sp_bell_free(&theirs);
    sp_bell_free(&ours);
}

/* ---- all at once, in a host's epoll, by chance ---- */

#define MANY 500

struct chance {
    struct sp_timer timer;
    struct sp_deferred work;
    int left;
};

static struct chance many[MANY];
static uint64_t chance_seed;
static int finished;

static void go_on(struct chance *c);

static void on_chance_timer(struct sp_timer *t)
{
    go_on(SP_CONTAINER(t, struct chance, timer));
}

static void on_chance_work(struct sp_deferred *d)
{
    go_on(SP_CONTAINER(d, struct chance, work));
}

static void go_on(struct chance *c)
{
    const uint32_t what = test_random(&chance_seed) % 4;

    if (--c->left == 0)
        finished++;
    else if (what == 0)
        sp_loop_defer(loop, &c->work, on_chance_work);
    else if (what == 1)
        sp_loop_again(loop, &c->work, on_chance_work);
    else
        assert_true(sp_loop_timer(
            loop, &c->timer, sp_loop_now(loop) + test_random(&chance_seed) % 8, on_chance_timer));
}

static void test_thousands_of_timers_and_works_are_all_told_to_a_host_that_sleeps(void **state)
{
    auto_close int host = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event ev = {.events = EPOLLIN};
    const uint64_t until = test_now_ms() + DEADLINE_MS;
    int rounds = 0;

    (void)state;
    finished = 0;
    chance_seed = 23;
    memset(many, 0, sizeof many);
    assert_int_equal(epoll_ctl(host, EPOLL_CTL_ADD, fd, &ev), 0);
    for (int i = 0; i < MANY; i++) {
        many[i].left = 20;
        sp_loop_poke(loop);
        go_on(&many[i]);
    }
    for (; finished < MANY; rounds++) {
        if (epoll_wait(host, &ev, 1, DEADLINE_MS) != 1 || test_now_ms() > until)
            fail_msg("a wake-up was lost: %d of %d", finished, MANY);
        dispatch(0);
    }
    assert_true(rounds < MANY * 20); /* it slept between */
    settle();
}

static void test_an_idle_host_is_not_woken(void **state)
{
    struct sp_timer t = {0};
    struct timespec before;
    struct timespec after;

    (void)state;
    assert_true(sp_loop_timer(loop, &t, sp_loop_now(loop) + 200, on_timer));
    settle();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    assert_true(host_until(&fired, 1) <= 2);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    assert_true((after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000 <
                50);
}

#define loop_test(f) cmocka_unit_test_setup_teardown(f, make_loop, free_loop)

static const struct CMUnitTest tests[] = {
    loop_test(test_nothing_to_do_is_not_readable),
    loop_test(test_a_timer_makes_it_readable_at_its_time),
    loop_test(test_a_timer_that_is_cancelled_wakes_nobody),
    loop_test(test_a_blocking_dispatch_keeps_the_time_of_timers),
    loop_test(test_deferred_work_and_work_in_parts_make_it_readable),
    loop_test(test_an_event_makes_it_readable_until_it_was_taken),
    loop_test(test_dispatch_from_a_callback_is_refused),
    loop_test(test_no_ring_of_a_bell_is_lost),
    loop_test(test_thousands_of_timers_and_works_are_all_told_to_a_host_that_sleeps),
    loop_test(test_an_idle_host_is_not_woken),
};

TEST_MAIN(tests)

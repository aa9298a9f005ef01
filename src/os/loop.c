/* SPDX-License-Identifier: Apache-2.0 */
#include "os/loop.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/grow.h"
#include "os/fd.h"

#define BATCH         64
#define TURNS_AT_ONCE 16 /* of one sp_loop_dispatch, */
#define SLICE_MS      5  /* and its time limit */

/* Values of alarm_ms besides a time. */
#define ALARM_NOW   0
#define ALARM_NEVER UINT64_MAX

struct sp_loop {
    int epoll;
    bool is_stopping;
    uint64_t now_ms;

    struct epoll_event batch[BATCH];
    int batch_next, batch_count; /* events that are not dispatched yet */

    struct sp_timer **heap; /* heap[0] is the earliest */
    uint32_t timers, heap_cap;

    struct sp_deferred *deferred, **deferred_end;
    struct sp_deferred *again, **again_end; /* for the next turn */

    struct sp_loop_hooks hooks;
    struct sp_busy_poll busy_poll;

    int alarm;         /* timerfd that makes the epoll descriptor readable; -1: not embedded */
    uint64_t alarm_ms; /* when it expires */
    struct sp_watch on_alarm;
    bool is_inside; /* of sp_loop_dispatch */
};

int sp_loop_new(struct sp_loop **ret, struct sp_err *e)
{
    struct sp_loop *l = calloc(1, sizeof *l);

    if (l == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make event loop");
    l->epoll = sp_fd_lift(epoll_create1(EPOLL_CLOEXEC));
    if (l->epoll < 0) {
        const int err = errno;

        free(l);
        return sp_fail(e, SP_E_SYSTEM, err, "make event loop");
    }
    l->deferred_end = &l->deferred;
    l->again_end = &l->again;
    l->now_ms = sp_clock_ms();
    l->alarm = -1;
    l->alarm_ms = ALARM_NEVER;
    *ret = l;
    return 0;
}

void sp_loop_free(struct sp_loop *l)
{
    if (l == NULL)
        return;
    if (l->alarm >= 0)
        (void)close(l->alarm);
    (void)close(l->epoll);
    free(l->heap);
    free(l);
}

int sp_loop_watch(struct sp_loop *l, struct sp_watch *w, int fd, uint32_t events,
                  void (*fn)(struct sp_watch *, uint32_t), struct sp_err *e)
{
    struct epoll_event ev = {.events = events, .data.ptr = w};

    if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &ev) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "watch a descriptor");
    w->fn = fn;
    w->fd = fd;
    w->events = events;
    return 0;
}

void sp_loop_rewatch(struct sp_loop *l, struct sp_watch *w, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.ptr = w};

    if (w->fn == NULL || w->events == events)
        return;
    w->events = events;
    (void)epoll_ctl(l->epoll, EPOLL_CTL_MOD, w->fd, &ev); /* cannot fail for a watched descriptor */
}

void sp_loop_unwatch(struct sp_loop *l, struct sp_watch *w)
{
    if (w->fn == NULL)
        return;
    (void)epoll_ctl(l->epoll, EPOLL_CTL_DEL, w->fd, NULL);
    w->fn = NULL;
    w->fd = -1;
    w->events = 0;
    for (int i = l->batch_next; i < l->batch_count; i++)
        if (l->batch[i].data.ptr == w)
            l->batch[i].data.ptr = NULL;
}

/* ---- timers: a binary heap; each timer knows its index ---- */

static void place(struct sp_loop *l, uint32_t i, struct sp_timer *t)
{
    l->heap[i] = t;
    t->slot = i + 1;
}

/* Moves t from index i up or down to where it belongs. */
static void sift(struct sp_loop *l, uint32_t i, struct sp_timer *t)
{
    while (i > 0 && l->heap[(i - 1) / 2]->due_ms > t->due_ms) {
        place(l, i, l->heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    for (;;) {
        uint32_t child = 2 * i + 1;

        if (child >= l->timers)
            break;
        if (child + 1 < l->timers && l->heap[child + 1]->due_ms < l->heap[child]->due_ms)
            child++;
        if (l->heap[child]->due_ms >= t->due_ms)
            break;
        place(l, i, l->heap[child]);
        i = child;
    }
    place(l, i, t);
}

bool sp_loop_timer(struct sp_loop *l, struct sp_timer *t, uint64_t due_ms,
                   void (*fn)(struct sp_timer *))
{
    if (t->slot == 0) {
        if (!SP_GROW(l->heap, l->timers, l->heap_cap))
            return false;
        l->heap[l->timers] = t;
        t->slot = ++l->timers;
    }
    t->fn = fn;
    t->due_ms = due_ms;
    sift(l, t->slot - 1, t);
    return true;
}

void sp_loop_cancel(struct sp_loop *l, struct sp_timer *t)
{
    if (t->slot == 0)
        return;
    const uint32_t i = t->slot - 1;
    struct sp_timer *last = l->heap[--l->timers];

    t->slot = 0;
    if (last != t)
        sift(l, i, last);
}

static void run_timers(struct sp_loop *l)
{
    /* Bounded: a timer that arms itself again for now fires again in the next turn. */
    for (uint32_t n = l->timers; n > 0 && l->timers != 0 && l->heap[0]->due_ms <= l->now_ms; n--) {
        struct sp_timer *t = l->heap[0];

        sp_loop_cancel(l, t);
        t->fn(t);
    }
}

/* ---- end-of-turn work ---- */

static void enqueue(struct sp_deferred ***end, struct sp_deferred *d,
                    void (*fn)(struct sp_deferred *))
{
    if (d->is_queued)
        return;
    d->fn = fn;
    d->next = NULL;
    d->is_queued = true;
    **end = d;
    *end = &d->next;
}

void sp_loop_defer(struct sp_loop *l, struct sp_deferred *d, void (*fn)(struct sp_deferred *))
{
    enqueue(&l->deferred_end, d, fn);
}

void sp_loop_again(struct sp_loop *l, struct sp_deferred *d, void (*fn)(struct sp_deferred *))
{
    enqueue(&l->again_end, d, fn);
}

void sp_loop_undefer(struct sp_loop *l, struct sp_deferred *d)
{
    if (!d->is_queued)
        return;
    struct sp_deferred **at = &l->deferred;
    while (*at != NULL && *at != d)
        at = &(*at)->next;
    if (*at == NULL)
        for (at = &l->again; *at != d;)
            at = &(*at)->next;
    *at = d->next;
    if (l->deferred_end == &d->next)
        l->deferred_end = at;
    if (l->again_end == &d->next)
        l->again_end = at;
    d->is_queued = false;
}

static void run_deferred(struct sp_loop *l)
{
    while (l->deferred != NULL) {
        struct sp_deferred *d = l->deferred;

        l->deferred = d->next;
        if (l->deferred == NULL)
            l->deferred_end = &l->deferred;
        d->is_queued = false;
        d->fn(d);
    }
}

uint64_t sp_loop_now(const struct sp_loop *l)
{
    return l->now_ms;
}

bool sp_loop_hook(struct sp_loop *l, const struct sp_loop_hooks *hooks)
{
    if (hooks != NULL && l->hooks.before_sleep != NULL)
        return false;
    l->hooks = hooks != NULL ? *hooks : (struct sp_loop_hooks){0};
    return true;
}

void sp_loop_expect(struct sp_loop *l, uint32_t us)
{
    struct sp_busy_poll *p = &l->busy_poll;

    if (p->mode == SP_BUSY_POLL_OFF)
        return;
    const uint64_t now_us = sp_clock_us();
    if (p->mode == SP_BUSY_POLL_AUTO)
        us = sp_busy_poll_allowed(p, now_us);
    if (us > 0 && now_us + us > p->until_us)
        p->until_us = now_us + us;
}

struct sp_busy_poll *sp_loop_busy_poll(struct sp_loop *l)
{
    return &l->busy_poll;
}

/* true: there was an event, or work of the hooks; *ret as epoll_wait returns it. */
static bool poll_for_expected(struct sp_loop *l, int *ret)
{
    struct sp_busy_poll *p = &l->busy_poll;
    const uint64_t until_us = p->until_us;
    const uint64_t begin_ns = sp_clock_cpu_ns();
    uint64_t now_us = 0;
    bool is_found = false;
    bool goes_on = true;

    p->until_us = 0;
    do {
        *ret = 0;
        is_found = l->hooks.peek != NULL && l->hooks.peek(l->hooks.user);
        if (!is_found)
            is_found = (*ret = epoll_wait(l->epoll, l->batch, BATCH, 0)) != 0;
        const uint64_t before_us = sp_clock_us();
        if (!is_found)
            (void)sched_yield();
        now_us = sp_clock_us();
        goes_on = sp_busy_poll_may_go_on(p, now_us, now_us - before_us);
    } while (!is_found && goes_on && now_us < until_us);
    sp_busy_poll_spent(p, now_us, (sp_clock_cpu_ns() - begin_ns) / 1000);
    return is_found;
}

/* Fills the batch of the next turn; sleeps most_ms at the most, -1: without limit. The number of
 * events, or -1 and errno. */
static int await_events(struct sp_loop *l, int most_ms)
{
    const bool has_more = l->again != NULL;
    int n;

    if (has_more) {
        *l->deferred_end = l->again;
        l->deferred_end = l->again_end;
        l->again = NULL;
        l->again_end = &l->again;
    }
    if (!has_more && most_ms != 0 && l->busy_poll.until_us != 0 && poll_for_expected(l, &n))
        return n;
    if ((l->hooks.before_sleep != NULL && l->hooks.before_sleep(l->hooks.user)) || has_more)
        most_ms = 0;
    if (l->timers > 0) {
        const uint64_t due_ms = l->heap[0]->due_ms;
        const uint64_t wait_ms = due_ms <= l->now_ms ? 0 : due_ms - l->now_ms;
        const int timer_ms = wait_ms > 3600000 ? 3600000 : (int)wait_ms;

        if (most_ms < 0 || timer_ms < most_ms)
            most_ms = timer_ms;
    }
    n = epoll_wait(l->epoll, l->batch, BATCH, most_ms);
    const int err = errno;
    const uint64_t sent_us = l->hooks.after_sleep == NULL ? 0 : l->hooks.after_sleep(l->hooks.user);
    if (sent_us != 0)
        sp_busy_poll_note_wake(&l->busy_poll, sp_clock_us() - sent_us);
    errno = err;
    return n;
}

static int turn(struct sp_loop *l, int most_ms, struct sp_err *e)
{
    const int n = await_events(l, most_ms);

    if (n < 0 && errno != EINTR)
        return sp_fail(e, SP_E_SYSTEM, errno, "wait for events");
    l->now_ms = sp_clock_ms();
    l->batch_count = n < 0 ? 0 : n;
    for (l->batch_next = 0; l->batch_next < l->batch_count;) {
        const struct epoll_event *ev = &l->batch[l->batch_next++];
        struct sp_watch *w = ev->data.ptr;

        if (w != NULL)
            w->fn(w, ev->events);
    }
    l->batch_next = l->batch_count = 0;
    run_timers(l);
    run_deferred(l);
    return 0;
}

int sp_loop_run(struct sp_loop *l, struct sp_err *e)
{
    int r = 0;

    run_deferred(l);
    while (r == 0 && !l->is_stopping)
        r = turn(l, -1, e);
    l->is_stopping = l->is_stopping && r < 0;
    return r;
}

void sp_loop_stop(struct sp_loop *l)
{
    l->is_stopping = true;
}

/* ---- embedding: polled and dispatched from another loop ---- */

static void on_alarm(struct sp_watch *w, uint32_t events)
{
    (void)w; /* stays readable until sp_loop_dispatch has done everything and sets it again */
    (void)events;
}

int sp_loop_fd(struct sp_loop *l, int *ret, struct sp_err *e)
{
    if (l->alarm < 0) {
        const int fd = sp_fd_lift(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));

        if (fd < 0)
            return sp_fail(e, SP_E_SYSTEM, errno, "make the event loop's alarm");
        const int r = sp_loop_watch(l, &l->on_alarm, fd, EPOLLIN, on_alarm, e);
        if (r < 0) {
            (void)close(fd);
            return r;
        }
        l->alarm = fd;
        sp_loop_poke(l); /* timers may be armed already */
    }
    *ret = l->epoll;
    return 0;
}

/* An expired timerfd that is not read stays readable, so the same time is not set twice. */
static void set_alarm(struct sp_loop *l, uint64_t due_ms)
{
    struct itimerspec at = {0};

    if (l->alarm < 0 || due_ms == l->alarm_ms)
        return;
    l->alarm_ms = due_ms;
    if (due_ms != ALARM_NEVER) {
        at.it_value.tv_sec = (time_t)(due_ms / 1000);
        at.it_value.tv_nsec = (long)(due_ms % 1000) * 1000000 + 1; /* all zero would disarm it */
    }
    (void)timerfd_settime(l->alarm, TFD_TIMER_ABSTIME, &at,
                          NULL); /* arguments are valid: cannot fail */
}

/* Whether there is nothing to do now. before_sleep has then announced that we sleep, so bells wake
 * us through the descriptor. */
static bool is_at_rest(struct sp_loop *l)
{
    return l->again == NULL &&
           (l->hooks.before_sleep == NULL || !l->hooks.before_sleep(l->hooks.user)) &&
           l->deferred == NULL;
}

int sp_loop_dispatch(struct sp_loop *l, int timeout_ms, struct sp_err *e)
{
    if (l->is_inside)
        return sp_fail(e, SP_E_STATE, 0, "dispatch was called from a callback of its own");
    l->is_inside = true;
    l->now_ms = sp_clock_ms();
    const bool has_work = l->deferred != NULL;
    run_deferred(l);
    int r = turn(l, has_work ? 0 : timeout_ms, e);
    const uint64_t until_ms = l->now_ms + SLICE_MS;
    bool is_done = is_at_rest(l);
    for (int i = 1; r == 0 && !is_done && i < TURNS_AT_ONCE && sp_clock_ms() < until_ms; i++) {
        r = turn(l, 0, e);
        is_done = is_at_rest(l);
    }
    set_alarm(l, !is_done ? ALARM_NOW : l->timers == 0 ? ALARM_NEVER : l->heap[0]->due_ms);
    l->is_inside = false;
    return r;
}

bool sp_loop_is_inside(const struct sp_loop *l)
{
    return l->is_inside;
}

void sp_loop_poke(struct sp_loop *l)
{
    if (l->is_inside)
        return;
    l->now_ms = sp_clock_ms();
    set_alarm(l, ALARM_NOW);
}

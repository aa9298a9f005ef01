/* SPDX-License-Identifier: Apache-2.0 */
#include "core/workers.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/clock.h"
#include "os/fd.h"

#define RETRY_MS 100 /* until a thread that could not be started is tried again */
#define END_MS   100 /* sp_workers_free waits this long for running threads */

enum lane_state { LANE_FREE, LANE_RUNS, LANE_GONE /* to be joined */ };

/* A place for one thread. */
struct lane {
    struct sp_workers *workers;
    pthread_t thread;
    enum lane_state state;
    struct sp_work *job; /* NULL: idle */
};

struct sp_workers {
    struct sp_loop *loop;
    struct sp_workers_options options;
    struct sp_watch watch;
    struct sp_timer retry;
    int event; /* an eventfd: a job is done, or a thread ends */
    pthread_mutex_t lock;
    pthread_cond_t has_work, has_ended;
    /* under the lock */
    struct sp_list waiting, finished;
    unsigned running, idle, waiting_count; /* idle threads are running ones */
    bool is_starved; /* a job that has a share waits because no thread could be started */
    bool is_over;
    bool is_left_alone;  /* sp_workers_free has returned; the last thread frees this */
    struct lane lanes[]; /* options.threads */
};

static struct timespec in_ms(uint64_t ms)
{
    const uint64_t ns = sp_clock_ns() + ms * 1000000;

    return (struct timespec){.tv_sec = (time_t)(ns / SP_NS_PER_S),
                             .tv_nsec = (long)(ns % SP_NS_PER_S)};
}

static void destroy(struct sp_workers *w)
{
    struct sp_list *i;

    while (w->options.drop != NULL && (i = sp_list_take_first(&w->finished)) != NULL)
        w->options.drop(SP_CONTAINER(i, struct sp_work, link));
    if (w->options.ended != NULL)
        w->options.ended(w->options.user);
    (void)pthread_cond_destroy(&w->has_work);
    (void)pthread_cond_destroy(&w->has_ended);
    (void)pthread_mutex_destroy(&w->lock);
    if (w->event >= 0)
        (void)close(w->event);
    free(w);
}

/* ---- a thread ---- */

static bool has_share(const struct sp_workers *w, uint64_t key)
{
    unsigned n = 0;

    for (unsigned i = 0; i < w->options.threads; i++)
        n += w->lanes[i].job != NULL && w->lanes[i].job->key == key;
    return n < w->options.share;
}

/* The first job that its share allows to run; NULL: none. */
static struct sp_work *take_waiting(struct sp_workers *w)
{
    sp_list_each(i, &w->waiting) {
        struct sp_work *j = SP_CONTAINER(i, struct sp_work, link);

        if (has_share(w, j->key)) {
            sp_list_remove(i);
            w->waiting_count--;
            return j;
        }
    }
    return NULL;
}

static void *run_lane(void *arg)
{
    struct lane *l = arg;
    struct sp_workers *w = l->workers;

    (void)pthread_mutex_lock(&w->lock);
    while (l->job != NULL) {
        struct sp_work *j = l->job;

        (void)pthread_mutex_unlock(&w->lock);
        w->options.run(j);
        (void)pthread_mutex_lock(&w->lock);
        sp_list_append(&w->finished, &j->link);
        (void)eventfd_write(w->event, 1);
        l->job = NULL;

        const struct timespec until = in_ms(UINT64_C(1000) * w->options.idle_s);
        int r = w->options.idle_s == 0 ? ETIMEDOUT : 0;
        w->idle++;
        /* After is_over the remaining jobs are those that sp_workers_free leaves to the threads. */
        while ((l->job = take_waiting(w)) == NULL && !w->is_over && r != ETIMEDOUT)
            r = pthread_cond_timedwait(&w->has_work, &w->lock, &until);
        w->idle--;
    }
    l->state = LANE_GONE;
    w->running--;
    const bool is_last = w->is_left_alone && w->running == 0;
    (void)eventfd_write(w->event, 1);
    (void)pthread_cond_signal(&w->has_ended);
    (void)pthread_mutex_unlock(&w->lock);
    if (is_last)
        destroy(w);
    return NULL;
}

/* ---- the loop's side; functions down to the callbacks are called under the lock ---- */

static void on_retry(struct sp_timer *t);

/* Starts a thread for a waiting job. 0, or the errno of pthread_create. The job goes on waiting if
 * the thread cannot be started, or if there are enough. */
static int start_waiting(struct sp_workers *w, struct sp_work *j)
{
    struct sp_list *next = j->link.next;

    if (w->running == w->options.threads) {
        w->is_starved = true;
        return 0;
    }
    sp_list_remove(&j->link);

    struct lane *l = w->lanes;
    while (l->state == LANE_RUNS)
        l++;
    if (l->state == LANE_GONE) /* it has released the lock, so it ends without waiting for us */
        (void)pthread_join(l->thread, NULL);
    *l = (struct lane){.workers = w, .job = j};
    pthread_attr_t a;
    int r = pthread_attr_init(&a);
    if (r == 0) {
        sigset_t all;
        sigset_t old;

        (void)pthread_attr_setstacksize(&a, w->options.stack_bytes);
        /* Signals are the loop thread's: the new thread inherits a mask that blocks all of them. */
        (void)sigfillset(&all);
        (void)pthread_sigmask(SIG_SETMASK, &all, &old);
        r = pthread_create(&l->thread, &a, run_lane, l);
        (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
        (void)pthread_attr_destroy(&a);
    }
    if (r == 0) {
        l->state = LANE_RUNS;
        w->running++;
        w->waiting_count--;
        return 0;
    }

    l->job = NULL;
    sp_list_insert_before(next, &j->link);
    w->is_starved = true;
    /* Without memory for a timer, the next event tries again. */
    (void)sp_loop_timer(w->loop, &w->retry, sp_loop_now(w->loop) + RETRY_MS, on_retry);
    return r;
}

/* Jobs that found no thread try again. */
static void start_starved(struct sp_workers *w)
{
    if (!w->is_starved)
        return;
    w->is_starved = false;
    sp_list_each_safe(i, &w->waiting) {
        struct sp_work *j = SP_CONTAINER(i, struct sp_work, link);

        if (has_share(w, j->key))
            (void)start_waiting(w, j);
        if (w->is_starved)
            return;
    }
}

static void on_retry(struct sp_timer *t)
{
    struct sp_workers *w = SP_CONTAINER(t, struct sp_workers, retry);

    (void)pthread_mutex_lock(&w->lock);
    start_starved(w);
    (void)pthread_mutex_unlock(&w->lock);
}

static void move_all(struct sp_list *from, struct sp_list *to)
{
    struct sp_list *i;

    while ((i = sp_list_take_first(from)) != NULL)
        sp_list_append(to, i);
}

static void join_gone(struct sp_workers *w)
{
    for (unsigned i = 0; i < w->options.threads; i++)
        if (w->lanes[i].state == LANE_GONE) {
            (void)pthread_join(w->lanes[i].thread, NULL);
            w->lanes[i].state = LANE_FREE;
        }
}

/* ---- without the lock ---- */

static void on_event(struct sp_watch *watch, uint32_t events)
{
    struct sp_workers *w = SP_CONTAINER(watch, struct sp_workers, watch);
    struct sp_list finished = SP_LIST_EMPTY(finished);
    struct sp_list *i;
    eventfd_t count;

    (void)events;
    (void)eventfd_read(w->event, &count);
    (void)pthread_mutex_lock(&w->lock);
    move_all(&w->finished, &finished);
    join_gone(w);
    start_starved(w);
    (void)pthread_mutex_unlock(&w->lock);
    while ((i = sp_list_take_first(&finished)) != NULL)
        w->options.done(SP_CONTAINER(i, struct sp_work, link));
}

int sp_workers_add(struct sp_workers *w, struct sp_work *j)
{
    int r = 0;

    (void)pthread_mutex_lock(&w->lock);
    sp_list_append(&w->waiting, &j->link);
    w->waiting_count++;
    /* Without a share, a thread that runs a job of the same key takes this one next. */
    if (has_share(w, j->key)) {
        if (w->idle >= w->waiting_count)
            (void)pthread_cond_signal(&w->has_work);
        else
            r = start_waiting(w, j);
    }
    if (w->running > 0)
        r = 0; /* one of them takes the job */
    (void)pthread_mutex_unlock(&w->lock);
    return r;
}

bool sp_workers_withdraw(struct sp_workers *w, struct sp_work *j)
{
    bool is_waiting = false;

    (void)pthread_mutex_lock(&w->lock);
    sp_list_each(i, &w->waiting)
        is_waiting = is_waiting || i == &j->link;
    if (is_waiting) {
        sp_list_remove(&j->link);
        w->waiting_count--;
    }
    (void)pthread_mutex_unlock(&w->lock);
    return is_waiting;
}

int sp_workers_new(struct sp_loop *loop, const struct sp_workers_options *o,
                   struct sp_workers **ret, struct sp_err *e)
{
    struct sp_workers *w = calloc(1, sizeof *w + o->threads * sizeof w->lanes[0]);
    pthread_condattr_t a;

    if (w == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make worker threads");
    w->loop = loop;
    w->options = *o;
    sp_list_init(&w->waiting);
    sp_list_init(&w->finished);
    (void)pthread_mutex_init(&w->lock, NULL);
    (void)pthread_condattr_init(&a);
    (void)pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&w->has_work, &a);
    (void)pthread_cond_init(&w->has_ended, &a);
    (void)pthread_condattr_destroy(&a);
    w->event = sp_fd_lift(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    const int r = w->event < 0 ? sp_fail(e, SP_E_SYSTEM, errno, "make worker threads")
                               : sp_loop_watch(loop, &w->watch, w->event, EPOLLIN, on_event, e);
    if (r < 0) {
        w->options.ended = NULL; /* the caller still has what it gave */
        destroy(w);
        return r;
    }
    *ret = w;
    return 0;
}

bool sp_workers_free(struct sp_workers *w)
{
    const struct timespec until = in_ms(END_MS);
    struct sp_list left = SP_LIST_EMPTY(left);
    void (*const report)(struct sp_work *) =
        w->options.drop != NULL ? w->options.drop : w->options.done;
    struct sp_list *i;

    sp_loop_unwatch(w->loop, &w->watch);
    sp_loop_cancel(w->loop, &w->retry);
    (void)pthread_mutex_lock(&w->lock);
    w->is_over = true;
    if (w->options.drop != NULL)
        move_all(&w->waiting, &left);
    (void)pthread_cond_broadcast(&w->has_work);
    while (w->running > 0 && pthread_cond_timedwait(&w->has_ended, &w->lock, &until) != ETIMEDOUT) {
    }
    const bool have_all_ended = w->running == 0;
    move_all(&w->finished, &left);
    if (have_all_ended) /* no thread was to be had for the waiting jobs */
        move_all(&w->waiting, &left);
    join_gone(w);
    for (unsigned k = 0; k < w->options.threads; k++)
        if (w->lanes[k].state == LANE_RUNS)
            (void)pthread_detach(w->lanes[k].thread);
    w->is_left_alone = !have_all_ended;
    (void)pthread_mutex_unlock(&w->lock);
    while ((i = sp_list_take_first(&left)) != NULL)
        report(SP_CONTAINER(i, struct sp_work, link));
    if (have_all_ended)
        destroy(w);
    return have_all_ended;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "core/closer.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>

#include "base/auto.h"
#include "base/log.h"

#define STACK_BYTES (256U << 10)
#define RETRY_MS    100 /* no thread was to be had */
#define END_MS      100 /* for those that are about to end, when we do */

struct list {
    struct sp_closing *first, *last;
};

/* One thread and what it has to do. */
struct lane {
    struct sp_closer *closer;
    struct lane *next; /* the front's */
    pthread_t thread;
    uint64_t device;
    /* under the closer's lock */
    struct list waiting, closed;
    bool is_over; /* it looks no more */
    bool is_gone; /* and uses nothing of this any more */
};

struct sp_closer {
    struct sp_loop *loop;
    struct sp_watch watch;
    struct sp_timer retry;
    int event; /* a thread has closed something, or ends */
    pthread_mutex_t lock;
    struct lane *lanes;
    unsigned lane_count, count;
    struct list waiting; /* for a thread */
    unsigned left_alone; /* under the lock: threads that hang when the front ends; the last of them
                            frees what they use */
};

static void append(struct list *l, struct sp_closing *c)
{
    c->next = NULL;
    *(l->first == NULL ? &l->first : &l->last->next) = c;
    l->last = c;
}

static struct sp_closing *take_first(struct list *l)
{
    struct sp_closing *c = l->first;

    if (c != NULL)
        l->first = c->next;
    return c;
}

/* ---- a thread ---- */

static struct sp_closing *next_of(struct lane *l, struct sp_closing *closed)
{
    (void)pthread_mutex_lock(&l->closer->lock);
    if (closed != NULL)
        append(&l->closed, closed);
    struct sp_closing *c = take_first(&l->waiting);
    l->is_over = c == NULL;
    (void)eventfd_write(l->closer->event, 1);
    (void)pthread_mutex_unlock(&l->closer->lock);
    return c;
}

static void destroy(struct sp_closer *k)
{
    (void)pthread_mutex_destroy(&k->lock);
    (void)close(k->event);
    free(k);
}

/* The front has ended, and this thread was not waited for. */
static void leave_alone(struct lane *l)
{
    struct sp_closer *k = l->closer;

    (void)pthread_mutex_lock(&k->lock);
    const bool is_alone = k->left_alone != 0;
    const bool is_last = is_alone && --k->left_alone == 0;
    l->is_gone = true;
    (void)pthread_mutex_unlock(&k->lock);
    if (is_alone)
        free(l);
    if (is_last)
        destroy(k);
}

static void *close_all(void *arg)
{
    struct lane *l = arg;
    struct sp_closing *c = next_of(l, NULL);

    while (c != NULL) {
        (void)close(c->fd); /* what was written was asked about by who wrote it */
        c = next_of(l, c);
    }
    leave_alone(l);
    return NULL;
}

/* With all signals blocked: they are the front's. */
static int start_thread(struct lane *l)
{
    pthread_attr_t a;
    sigset_t all;
    sigset_t old;
    int r = pthread_attr_init(&a);

    if (r != 0)
        return r;
    (void)pthread_attr_setstacksize(&a, STACK_BYTES);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    r = pthread_create(&l->thread, &a, close_all, l);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    (void)pthread_attr_destroy(&a);
    return r;
}

/* ---- the front ---- */

/* To the thread of its file system, or a new one. false: there is none to be had now. */
static bool hand_over(struct sp_closer *k, struct sp_closing *c)
{
    bool is_taken = false;

    (void)pthread_mutex_lock(&k->lock);
    for (struct lane *l = k->lanes; l != NULL && !is_taken; l = l->next)
        if (l->device == c->device && !l->is_over) {
            append(&l->waiting, c);
            is_taken = true;
        }
    (void)pthread_mutex_unlock(&k->lock);
    if (is_taken || k->lane_count == SP_CLOSING_THREADS)
        return is_taken;
    struct lane *l = calloc(1, sizeof *l);
    if (l == NULL)
        return false;
    *l = (struct lane){.closer = k, .next = k->lanes, .device = c->device};
    append(&l->waiting, c);
    if (start_thread(l) != 0) {
        free(l);
        return false;
    }
    k->lanes = l;
    k->lane_count++;
    return true;
}

static void on_retry(struct sp_timer *t);

/* Each once: what still finds none stays in line. */
static void hand_over_waiting(struct sp_closer *k)
{
    struct list again = k->waiting;
    struct sp_closing *c;

    k->waiting = (struct list){0};
    while ((c = take_first(&again)) != NULL)
        if (!hand_over(k, c))
            append(&k->waiting, c);
    if (k->waiting.first != NULL) /* no memory for a timer either: the next event will do */
        (void)sp_loop_timer(k->loop, &k->retry, sp_loop_now(k->loop) + RETRY_MS, on_retry);
}

static void on_retry(struct sp_timer *t)
{
    hand_over_waiting(SP_CONTAINER(t, struct sp_closer, retry));
}

/* Those that have ended are gone; *ret: what was closed. */
static void collect(struct sp_closer *k, struct list *ret)
{
    struct lane **at = &k->lanes;

    while (*at != NULL) {
        struct lane *l = *at;
        struct sp_closing *c;

        (void)pthread_mutex_lock(&k->lock);
        const bool is_over = l->is_over;
        while ((c = take_first(&l->closed)) != NULL)
            append(ret, c);
        (void)pthread_mutex_unlock(&k->lock);
        if (!is_over) {
            at = &l->next;
            continue;
        }
        *at = l->next;
        k->lane_count--;
        (void)pthread_join(l->thread, NULL); /* it has left the lock: a few instructions more */
        free(l);
    }
}

static void tell(struct sp_closer *k, struct list *closed)
{
    struct sp_closing *c;

    while ((c = take_first(closed)) != NULL) {
        k->count--;
        c->done(c);
    }
}

static void on_event(struct sp_watch *w, uint32_t events)
{
    struct sp_closer *k = SP_CONTAINER(w, struct sp_closer, watch);
    struct list closed = {0};
    eventfd_t n;

    (void)events;
    (void)eventfd_read(k->event, &n);
    collect(k, &closed);
    hand_over_waiting(k);
    tell(k, &closed);
}

static uint64_t device_of(int fd)
{
    struct statx sx;

    /* What the kernel knows already: no disk is asked. */
    if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &sx) < 0)
        return UINT64_MAX;
    return (uint64_t)sx.stx_dev_major << 32 | sx.stx_dev_minor;
}

void sp_closer_close(struct sp_closer *k, struct sp_closing *c, int fd)
{
    c->fd = fd;
    c->device = device_of(fd);
    k->count++;
    append(&k->waiting, c);
    hand_over_waiting(k);
}

bool sp_closer_is_full(const struct sp_closer *k)
{
    return k->count >= SP_CLOSING_MAX;
}

/* ---- beginning and end ---- */

int sp_closer_new(struct sp_loop *loop, struct sp_closer **ret, struct sp_err *e)
{
    struct sp_closer *k = calloc(1, sizeof *k);

    if (k == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "prepare to close files");
    k->loop = loop;
    k->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    const int r = k->event < 0 ? sp_fail(e, SP_E_SYSTEM, errno, "prepare to close files")
                               : sp_loop_watch(loop, &k->watch, k->event, EPOLLIN, on_event, e);
    if (r < 0) {
        if (k->event >= 0)
            (void)close(k->event);
        free(k);
        return r;
    }
    (void)pthread_mutex_init(&k->lock, NULL);
    *ret = k;
    return 0;
}

static bool has_ended(const struct lane *l, const struct timespec *until)
{
    return pthread_timedjoin_np(l->thread, NULL, until) == 0;
}

/* Those that end soon are waited for; *ret: what they have closed. */
static void await_lanes(struct sp_closer *k, struct list *ret)
{
    struct lane **at = &k->lanes;
    struct timespec until;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += END_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    while (*at != NULL) {
        struct lane *l = *at;
        struct sp_closing *c;

        if (!has_ended(l, &until)) {
            at = &l->next;
            continue;
        }
        while ((c = take_first(&l->closed)) != NULL)
            append(ret, c);
        *at = l->next;
        free(l);
    }
}

/* Under the lock: none of them gets any further meanwhile. false: there is none. */
static bool leave_to_lanes(struct sp_closer *k)
{
    for (struct lane *l = k->lanes, *next; l != NULL; l = next) {
        next = l->next;
        if (l->is_gone) {
            (void)pthread_join(l->thread, NULL);
            free(l);
            continue;
        }
        (void)pthread_detach(l->thread);
        k->left_alone++;
    }
    return k->left_alone != 0;
}

void sp_closer_free(struct sp_closer *k)
{
    struct list closed = {0};

    if (k == NULL)
        return;
    sp_loop_unwatch(k->loop, &k->watch);
    sp_loop_cancel(k->loop, &k->retry);
    await_lanes(k, &closed);
    tell(k, &closed);
    tell(k, &k->waiting);
    (void)pthread_mutex_lock(&k->lock);
    const bool is_left = leave_to_lanes(k);
    (void)pthread_mutex_unlock(&k->lock);
    if (is_left)
        sp_log(SP_LOG_WARN, "files are left open: their disk does not answer");
    else
        destroy(k);
}

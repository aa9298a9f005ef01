/* SPDX-License-Identifier: Apache-2.0 */
#include "core/surveyor.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "os/fd.h"
#include "sandbox/hidden_paths.h"

#define STACK_BYTES (512U << 10)
#define IDLE_S      5   /* a thread without work ends */
#define END_MS      100 /* for threads that are about to end, when we do */

struct sp_survey_job {
    struct sp_survey_job *next;
    struct sp_survey_ask *ask; /* the front's; NULL: cancelled */
    struct sp_surveyor *surveyor;
    uint64_t session;
    struct sp_policy policy;
    struct sp_survey survey;
    struct sp_err e;
    int r;
};

struct list {
    struct sp_survey_job *first, *last;
};

enum lane_state { LANE_NONE, LANE_RUNS, LANE_GONE };

struct lane {
    struct sp_surveyor *surveyor;
    pthread_t thread;
    enum lane_state state;           /* under the lock; GONE: to be joined */
    const struct sp_survey_job *job; /* under the lock; NULL: idle */
};

struct sp_surveyor {
    struct sp_loop *loop;
    sp_survey_fn *fn;
    struct sp_hidden_paths hidden_paths;
    struct sp_fixed_places fixed; /* points into hidden_paths */
    struct sp_watch watch;
    int event; /* a job is done, or a thread ends */
    pthread_mutex_t lock;
    pthread_cond_t has_work, has_ended;
    /* under the lock */
    struct lane lanes[SP_SURVEYOR_THREADS];
    struct list waiting, done;
    unsigned running, idle, waiting_count;
    bool is_over;
    bool is_left_alone; /* the front has ended without the threads that hang: the last one frees */
};

static void append(struct list *l, struct sp_survey_job *j)
{
    j->next = NULL;
    *(l->first == NULL ? &l->first : &l->last->next) = j;
    l->last = j;
}

static struct sp_survey_job *take_first(struct list *l)
{
    struct sp_survey_job *j = l->first;

    if (j != NULL)
        l->first = j->next;
    return j;
}

static void free_job(struct sp_survey_job *j)
{
    sp_policy_done(&j->policy);
    sp_survey_done(&j->survey);
    free(j);
}

static void free_list(struct list *l)
{
    struct sp_survey_job *j;

    while ((j = take_first(l)) != NULL)
        free_job(j);
}

static void destroy(struct sp_surveyor *s)
{
    free_list(&s->waiting);
    free_list(&s->done);
    (void)pthread_cond_destroy(&s->has_work);
    (void)pthread_cond_destroy(&s->has_ended);
    (void)pthread_mutex_destroy(&s->lock);
    if (s->event >= 0)
        (void)close(s->event);
    sp_hidden_paths_done(&s->hidden_paths);
    free(s);
}

/* ---- a thread ---- */

static unsigned count_lanes(const struct sp_surveyor *s, uint64_t session)
{
    unsigned n = 0;

    for (const struct lane *l = s->lanes; l < s->lanes + SP_SURVEYOR_THREADS; l++)
        n += l->job != NULL && l->job->session == session;
    return n;
}

static void unlink_waiting(struct sp_surveyor *s, struct sp_survey_job *before,
                           struct sp_survey_job *j)
{
    *(before == NULL ? &s->waiting.first : &before->next) = j->next;
    if (j->next == NULL)
        s->waiting.last = before;
    s->waiting_count--;
}

/* The first one whose session has not all the threads that it may have. */
static struct sp_survey_job *take_fairly(struct sp_surveyor *s)
{
    struct sp_survey_job *before = NULL;
    struct sp_survey_job *j = s->waiting.first;

    while (j != NULL && count_lanes(s, j->session) >= SP_SURVEYOR_SHARE) {
        before = j;
        j = j->next;
    }
    if (j != NULL)
        unlink_waiting(s, before, j);
    return j;
}

/* Under the lock. NULL: there was none for a while, or it is over. */
static struct sp_survey_job *wait_for_job(struct sp_surveyor *s)
{
    struct sp_survey_job *j = NULL;
    struct timespec until;
    int r = 0;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += IDLE_S;
    s->idle++;
    while (!s->is_over && (j = take_fairly(s)) == NULL && r != ETIMEDOUT)
        r = pthread_cond_timedwait(&s->has_work, &s->lock, &until);
    s->idle--;
    return j;
}

static void *work(void *arg)
{
    struct lane *l = arg;
    struct sp_surveyor *s = l->surveyor;
    struct sp_survey_job *j;

    (void)pthread_mutex_lock(&s->lock);
    while ((j = wait_for_job(s)) != NULL) {
        l->job = j;
        (void)pthread_mutex_unlock(&s->lock);
        j->r = s->fn(&j->policy, &s->fixed, &j->survey, &j->e);
        (void)pthread_mutex_lock(&s->lock);
        l->job = NULL;
        append(&s->done, j);
        (void)eventfd_write(s->event, 1);
    }
    l->state = LANE_GONE;
    s->running--;
    const bool is_last = s->is_left_alone && s->running == 0;
    (void)pthread_cond_signal(&s->has_ended);
    (void)pthread_mutex_unlock(&s->lock);
    if (is_last)
        destroy(s);
    return NULL;
}

/* With all signals blocked: they are the front's. Under the lock. */
static int start_thread(struct sp_surveyor *s)
{
    struct lane *l = s->lanes;
    pthread_attr_t a;
    sigset_t all;
    sigset_t old;

    while (l->state == LANE_RUNS)
        l++;
    if (l->state == LANE_GONE)
        (void)pthread_join(l->thread, NULL); /* it has left the lock: a few instructions more */
    *l = (struct lane){.surveyor = s};
    int r = pthread_attr_init(&a);
    if (r != 0)
        return r;
    (void)pthread_attr_setstacksize(&a, STACK_BYTES);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    r = pthread_create(&l->thread, &a, work, l);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    (void)pthread_attr_destroy(&a);
    if (r != 0)
        return r;
    l->state = LANE_RUNS;
    s->running++;
    return 0;
}

/* ---- the front ---- */

static void on_event(struct sp_watch *w, uint32_t events)
{
    struct sp_surveyor *s = SP_CONTAINER(w, struct sp_surveyor, watch);
    struct list done;
    struct sp_survey_job *j;
    eventfd_t count;

    (void)events;
    (void)eventfd_read(s->event, &count);
    (void)pthread_mutex_lock(&s->lock);
    done = s->done;
    s->done = (struct list){0};
    (void)pthread_mutex_unlock(&s->lock);
    while ((j = take_first(&done)) != NULL) {
        struct sp_survey_ask *a = j->ask;

        if (a != NULL) {
            a->job = NULL;
            a->done(a, &j->policy, &j->survey, j->r, &j->e);
        }
        free_job(j);
    }
}

int sp_surveyor_new(struct sp_loop *loop, sp_survey_fn *fn, const struct sp_fixed_places *fixed,
                    struct sp_surveyor **ret, struct sp_err *e)
{
    struct sp_surveyor *s = calloc(1, sizeof *s);
    pthread_condattr_t a;

    if (s == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "make the surveyor");
    s->loop = loop;
    s->fn = fn;
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_condattr_init(&a);
    (void)pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&s->has_work, &a);
    (void)pthread_cond_init(&s->has_ended, &a);
    (void)pthread_condattr_destroy(&a);
    const bool is_copied = sp_hidden_paths_copy(fixed, &s->hidden_paths);
    s->fixed = sp_hidden_paths_places(&s->hidden_paths);
    s->event = sp_fd_lift(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    int r = 0;
    if (!is_copied || s->event < 0)
        r = sp_fail(e, SP_E_SYSTEM, !is_copied ? ENOMEM : errno, "make the surveyor");
    if (r == 0)
        r = sp_loop_watch(loop, &s->watch, s->event, EPOLLIN, on_event, e);
    if (r < 0) {
        destroy(s);
        return r;
    }
    *ret = s;
    return 0;
}

/* Under the lock. Those that have ended are joined; true: all have. */
static bool await_threads(struct sp_surveyor *s)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += END_MS * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_nsec -= 1000000000L;
        until.tv_sec++;
    }
    while (s->running > 0 && pthread_cond_timedwait(&s->has_ended, &s->lock, &until) != ETIMEDOUT) {
    }
    return s->running == 0;
}

void sp_surveyor_free(struct sp_surveyor *s)
{
    if (s == NULL)
        return;
    sp_loop_unwatch(s->loop, &s->watch);
    (void)pthread_mutex_lock(&s->lock);
    s->is_over = true;
    (void)pthread_cond_broadcast(&s->has_work);
    const bool is_alone = await_threads(s);
    for (struct lane *l = s->lanes; l < s->lanes + SP_SURVEYOR_THREADS; l++)
        if (l->state == LANE_RUNS)
            (void)pthread_detach(l->thread);
    s->is_left_alone = !is_alone;
    pthread_t gone[SP_SURVEYOR_THREADS];
    unsigned count = 0;
    for (struct lane *l = s->lanes; l < s->lanes + SP_SURVEYOR_THREADS; l++)
        if (l->state == LANE_GONE)
            gone[count++] = l->thread;
    (void)pthread_mutex_unlock(&s->lock);
    while (count > 0)
        (void)pthread_join(gone[--count], NULL);
    if (is_alone)
        destroy(s);
}

int sp_surveyor_ask(struct sp_surveyor *s, uint64_t session, const struct sp_policy *p,
                    struct sp_survey_ask *a, struct sp_err *e)
{
    struct sp_survey_job *j = calloc(1, sizeof *j);
    int r = 0;

    if (j == NULL || !sp_policy_copy(p, &j->policy)) {
        free(j);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "survey the sandbox policy");
    }
    j->ask = a;
    j->surveyor = s;
    j->session = session;
    (void)pthread_mutex_lock(&s->lock);
    if (s->idle <= s->waiting_count && s->running < SP_SURVEYOR_THREADS)
        r = start_thread(s);
    if (r != 0 && s->running > 0)
        r = 0; /* another one will come to it */
    if (r == 0) {
        append(&s->waiting, j);
        s->waiting_count++;
        (void)pthread_cond_signal(&s->has_work);
    }
    (void)pthread_mutex_unlock(&s->lock);
    if (r != 0) {
        free_job(j);
        return sp_fail(e, SP_E_SYSTEM, r, "survey the sandbox policy");
    }
    a->job = j;
    return 0;
}

/* No thread has it yet: it would stay for as long as the threads hang. */
static bool drop_waiting(struct sp_survey_job *j)
{
    struct sp_surveyor *s = j->surveyor;
    struct sp_survey_job *before = NULL;

    (void)pthread_mutex_lock(&s->lock);
    struct sp_survey_job *i = s->waiting.first;
    while (i != NULL && i != j) {
        before = i;
        i = i->next;
    }
    if (i != NULL)
        unlink_waiting(s, before, i);
    (void)pthread_mutex_unlock(&s->lock);
    return i != NULL;
}

void sp_surveyor_cancel(struct sp_survey_ask *a)
{
    struct sp_survey_job *j = a->job;

    a->job = NULL;
    if (j == NULL)
        return;
    j->ask = NULL; /* no thread looks at it */
    if (drop_waiting(j))
        free_job(j);
}

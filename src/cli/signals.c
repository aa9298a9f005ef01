/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/signals.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/log.h"

int sp_signals_open(sigset_t *set, const int *unless_ignored, int *ret, struct sp_err *e)
{
    for (; *unless_ignored != 0; unless_ignored++) {
        struct sigaction now;

        if (sigaction(*unless_ignored, NULL, &now) < 0 || now.sa_handler != SIG_IGN)
            sigaddset(set, *unless_ignored);
    }
    sigprocmask(SIG_BLOCK, set, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGCHLD, SIG_DFL);
    *ret = signalfd(-1, set, SFD_CLOEXEC | SFD_NONBLOCK);
    return *ret < 0 ? sp_fail(e, SP_E_SYSTEM, errno, "receive signals") : 0;
}

static void on_ending_signal(struct sp_watch *w, uint32_t events)
{
    struct sp_ending *s = SP_CONTAINER(w, struct sp_ending, watch);
    struct signalfd_siginfo info;

    (void)events;
    if (read(s->fd, &info, sizeof info) == (ssize_t)sizeof info) {
        sp_log(SP_LOG_INFO, "signal %u: ending", info.ssi_signo);
        sp_loop_stop(s->loop);
    }
}

int sp_ending_begin(struct sp_ending *s, struct sp_loop *loop, struct sp_err *e)
{
    static const int unless_ignored[] = {SIGINT, SIGHUP, 0};
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    const int r = sp_signals_open(&set, unless_ignored, &s->fd, e);
    if (r < 0)
        return r;
    s->loop = loop;
    return sp_loop_watch(loop, &s->watch, s->fd, EPOLLIN, on_ending_signal, e);
}

void sp_ending_done(struct sp_ending *s)
{
    if (s->loop == NULL)
        return;
    sp_loop_unwatch(s->loop, &s->watch);
    (void)close(s->fd);
    s->loop = NULL;
}

/* ---- long waits ----
 *
 * A thread, not a signal: a system call that waits for a disk lets no handler run.
 */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t over;
    pthread_t thread;
    const char *doing; /* NULL: nothing */
} slow_work = {.lock = PTHREAD_MUTEX_INITIALIZER, .over = PTHREAD_COND_INITIALIZER};

static void *tell_later(void *unused)
{
    struct timespec until;
    int r = 0;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    (void)pthread_mutex_lock(&slow_work.lock);
    while (r == 0 && slow_work.doing != NULL)
        r = pthread_cond_timedwait(&slow_work.over, &slow_work.lock, &until);
    if (slow_work.doing != NULL)
        (void)fprintf(stderr, "sallyport: %s ...\n", slow_work.doing);
    (void)pthread_mutex_unlock(&slow_work.lock);
    return unused;
}

void sp_tell_if_slow(const char *doing)
{
    const bool was_on = slow_work.doing != NULL;

    (void)pthread_mutex_lock(&slow_work.lock);
    slow_work.doing = NULL;
    (void)pthread_cond_signal(&slow_work.over);
    (void)pthread_mutex_unlock(&slow_work.lock);
    if (was_on)
        (void)pthread_join(slow_work.thread, NULL);
    if (doing == NULL || !isatty(STDERR_FILENO))
        return;
    slow_work.doing = doing;
    if (pthread_create(&slow_work.thread, NULL, tell_later, NULL) != 0)
        slow_work.doing = NULL;
}

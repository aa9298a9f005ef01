/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/ending.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/log.h"

static void on_signal(struct sp_watch *w, uint32_t events)
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
    static const int optional[] = {SIGINT, SIGHUP};
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    for (size_t i = 0; i < sizeof optional / sizeof optional[0]; i++) {
        struct sigaction now;

        /* Ignored by whoever started us, as nohup does: then it is to stay so. */
        if (sigaction(optional[i], NULL, &now) < 0 || now.sa_handler != SIG_IGN)
            sigaddset(&set, optional[i]);
    }
    sigprocmask(SIG_BLOCK, &set, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGCHLD, SIG_DFL); /* ignored by a careless parent: no cell could be waited for */
    s->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->fd < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "take signals");
    s->loop = loop;
    return sp_loop_watch(loop, &s->watch, s->fd, EPOLLIN, on_signal, e);
}

void sp_ending_done(struct sp_ending *s)
{
    if (s->loop == NULL)
        return;
    sp_loop_unwatch(s->loop, &s->watch);
    (void)close(s->fd);
    s->loop = NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* local: our signals and the size of our window are the command's. */
#include <errno.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/auto.h"
#include "cli/local_priv.h"

static const int passed[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

/* ---- to the command ---- */

static void on_passed(struct sp_waiter *w)
{
    struct sp_local *l = SP_CONTAINER(w, struct sp_local, signals.call.waiter);
    struct sp_local_signals *s = &l->signals;

    s->is_calling = false;
    if (s->stops_us) {
        s->stops_us = false;
        (void)kill(getpid(), SIGSTOP); /* the command stands still by now */
    }
    sp_local_pass_signals(l);
}

static void send_signal(struct sp_local *l, int signal)
{
    struct sp_local_signals *s = &l->signals;

    sigdelset(&s->waiting, signal);
    s->stops_us = signal == SIGSTOP;
    s->is_calling = true;
    s->call = (struct sp_proc_call){.waiter.fn = on_passed};
    sp_proc_signal(l->proc, &s->call, signal);
}

void sp_local_pass_signals(struct sp_local *l)
{
    struct sp_local_signals *s = &l->signals;

    if (l->proc == NULL)
        return;
    for (int signal = 1; signal < SIGRTMIN && !s->is_calling; signal++)
        if (sigismember(&s->waiting, signal) == 1)
            send_signal(l, signal);
}

void sp_local_pass(struct sp_local *l, int signal)
{
    sigaddset(&l->signals.waiting, signal);
    sp_local_pass_signals(l);
}

/* ---- the window ---- */

static void pass_size(struct sp_local *l);

static void on_resized(struct sp_waiter *w)
{
    struct sp_local *l = SP_CONTAINER(w, struct sp_local, signals.resize.waiter);

    l->signals.is_resizing = false;
    if (l->signals.has_new_size)
        pass_size(l);
}

static void pass_size(struct sp_local *l)
{
    struct sp_local_signals *s = &l->signals;
    uint16_t rows;
    uint16_t cols;

    s->has_new_size = s->is_resizing;
    if (s->is_resizing || l->proc == NULL || !l->options->is_tty)
        return;
    sp_terminal_size(&rows, &cols);
    if (rows == 0)
        return;
    s->is_resizing = true;
    s->resize = (struct sp_proc_call){.waiter.fn = on_resized};
    sp_proc_resize(l->proc, &s->resize, rows, cols);
}

/* ---- to us ---- */

static void stop_with_command(struct sp_local *l)
{
    sp_terminal_restore(&l->terminal);
    if (l->proc != NULL)
        sp_local_pass(l, SIGSTOP); /* TSTP means nothing to a group without a shell above it */
    else
        (void)kill(getpid(), SIGSTOP);
}

static void go_on_with_command(struct sp_local *l)
{
    if (l->options->is_tty && l->proc != NULL)
        sp_terminal_make_raw(&l->terminal);
    pass_size(l);
    sp_local_pass(l, SIGCONT);
}

static void on_signal(struct sp_watch *w, uint32_t events)
{
    struct sp_local *l = SP_CONTAINER(w, struct sp_local, signals.watch);
    struct signalfd_siginfo info;

    (void)events;
    if (read(l->signals.fd, &info, sizeof info) != (ssize_t)sizeof info)
        return;
    switch (info.ssi_signo) {
    case SIGWINCH:
        pass_size(l);
        break;
    case SIGTSTP:
        stop_with_command(l);
        break;
    case SIGCONT:
        go_on_with_command(l);
        break;
    default:
        sp_local_pass(l, (int)info.ssi_signo);
        break;
    }
}

/* Ignored by whoever started us, as nohup does: then it is to stay so. */
static void add_unless_ignored(sigset_t *set, int signal)
{
    struct sigaction now;

    if (sigaction(signal, NULL, &now) < 0 || now.sa_handler != SIG_IGN)
        sigaddset(set, signal);
}

int sp_local_begin_signals(struct sp_local *l, struct sp_error *e)
{
    struct sp_local_signals *s = &l->signals;
    sigset_t set;

    sigemptyset(&s->waiting);
    sigemptyset(&set);
    sigaddset(&set, SIGWINCH);
    sigaddset(&set, SIGCONT);
    add_unless_ignored(&set, SIGTSTP);
    for (size_t i = 0; i < COUNT(passed); i++)
        add_unless_ignored(&set, passed[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGCHLD, SIG_DFL); /* ignored, our cell could not be waited for */
    s->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->fd < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "take signals");
    return sp_loop_watch(l->loop, &s->watch, s->fd, EPOLLIN, on_signal, e);
}

void sp_local_end_signals(struct sp_local *l)
{
    if (l->loop != NULL)
        sp_loop_unwatch(l->loop, &l->signals.watch);
    sp_waiters_remove(&l->signals.call.waiter);
    sp_waiters_remove(&l->signals.resize.waiter);
    if (l->signals.fd >= 0)
        (void)close(l->signals.fd);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* carry: our signals and the size of our window are the command's. */
#include <errno.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/auto.h"
#include "cli/carry_priv.h"
#include "cli/escape_text.h"

#define DEAF_MS 1000 /* a signal that is not answered for so long will not be */

static const int passed[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

/* Without a handler they end a program; whoever sends one wants an end. */
static bool is_deadly(int signal)
{
    return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
}

/* ---- to the command ---- */

static void on_killed(struct sp_job_call *call)
{
    struct sp_carry *c = SP_CONTAINER(call, struct sp_carry, signals.kill);

    c->signals.is_killing = false;
    c->signals.unheard_ms = 0;
    c->result.was_killed = call->result == SP_JOB_OK || call->result == SP_JOB_GONE;
}

void sp_carry_kill(struct sp_carry *c)
{
    if (c->signals.is_killing)
        return;
    c->signals.is_killing = true;
    if (c->signals.unheard_ms == 0)
        c->signals.unheard_ms = sp_loop_now(c->loop);
    c->signals.kill.fn = on_killed;
    sp_job_terminate(&c->job, &c->signals.kill);
}

/* A server may know fewer signals than we do. */
static void make_up_for(struct sp_carry *c, const struct sp_job_call *call, int signal)
{
    char text[640];
    char line[720];

    if (call->result != SP_JOB_REFUSED || signal == SIGSTOP || signal == SIGCONT)
        return;
    (void)snprintf(line, sizeof line, "SIG%s was not passed on%s: %s", sigabbrev_np(signal),
                   is_deadly(signal) ? ", the command is killed instead" : "",
                   sp_error_text(&call->error, text, sizeof text));
    sp_plain_say("sallyport", line);
    if (is_deadly(signal))
        sp_carry_kill(c);
}

static void on_passed(struct sp_job_call *call)
{
    struct sp_carry *c = SP_CONTAINER(call, struct sp_carry, signals.call);
    const int signal = c->signals.passing;

    c->signals.passing = 0;
    if (!c->signals.is_killing)
        c->signals.unheard_ms = 0;
    if (signal == SIGSTOP)
        (void)kill(getpid(), SIGSTOP); /* the command stands still by now */
    make_up_for(c, call, signal);
    sp_carry_pass_signals(c);
}

static void send_signal(struct sp_carry *c, int signal)
{
    struct sp_carry_signals *s = &c->signals;

    sigdelset(&s->waiting, signal);
    s->passing = signal;
    s->call.fn = on_passed;
    sp_job_signal(&c->job, &s->call, signal);
}

void sp_carry_pass_signals(struct sp_carry *c)
{
    struct sp_carry_signals *s = &c->signals;

    for (int signal = 1; c->is_live && signal < SIGRTMIN && s->passing == 0; signal++)
        if (sigismember(&s->waiting, signal) == 1)
            send_signal(c, signal);
}

void sp_carry_pass(struct sp_carry *c, int signal)
{
    sigaddset(&c->signals.waiting, signal);
    sp_carry_pass_signals(c);
}

void sp_carry_forget_signals(struct sp_carry *c)
{
    struct sp_carry_signals *s = &c->signals;

    s->passing = 0;
    s->is_killing = s->is_resizing = false;
    s->unheard_ms = 0;
}

/* The last one of these has reached nobody, and it has had its time. */
static bool is_deaf(const struct sp_carry *c)
{
    const uint64_t since = c->signals.unheard_ms;

    return since != 0 && sp_loop_now(c->loop) - since >= DEAF_MS;
}

static void abandon(struct sp_carry *c, int signal)
{
    c->result.end = SP_CARRY_ABANDONED;
    c->result.exit = (struct sp_exit){.code = 128 + signal, .signal = signal};
    sp_carry_finish(c);
}

/* There is no command yet, or none any more: then it is for us. */
static void take(struct sp_carry *c, int signal)
{
    if (c->is_ending) {
        sp_carry_stop(c);
    } else if (c->has_exited) {
        sp_carry_finish(c);
    } else if (c->facts.backend != NULL || c->is_asking) {
        abandon(c, signal);
    } else if (is_deaf(c)) {
        sp_plain_say("sallyport", "where the command runs nobody answers; it may go on there");
        abandon(c, signal);
    } else {
        if (c->signals.unheard_ms == 0)
            c->signals.unheard_ms = sp_loop_now(c->loop);
        sp_carry_pass(c, signal);
    }
}

/* ---- the window ---- */

static void pass_size(struct sp_carry *c);

static void on_resized(struct sp_job_call *call)
{
    struct sp_carry *c = SP_CONTAINER(call, struct sp_carry, signals.resize);

    c->signals.is_resizing = false;
    if (c->signals.has_new_size)
        pass_size(c);
}

static void pass_size(struct sp_carry *c)
{
    struct sp_carry_signals *s = &c->signals;
    uint16_t rows;
    uint16_t cols;

    s->has_new_size = s->is_resizing;
    if (s->is_resizing || !c->is_live || !c->options->launch->is_tty)
        return;
    sp_terminal_size(&rows, &cols);
    if (rows == 0)
        return;
    s->is_resizing = true;
    s->resize.fn = on_resized;
    sp_job_resize(&c->job, &s->resize, rows, cols);
}

/* ---- to us ---- */

static void stop_with_command(struct sp_carry *c)
{
    sp_terminal_restore(&c->terminal);
    if (c->is_live)
        sp_carry_pass(c, SIGSTOP); /* TSTP means nothing to a group without a shell above it */
    else
        (void)kill(getpid(), SIGSTOP);
}

static void go_on_with_command(struct sp_carry *c)
{
    if (c->is_live && c->options->launch->is_tty)
        sp_terminal_make_raw(&c->terminal);
    pass_size(c);
    sp_carry_pass(c, SIGCONT);
}

static void on_signal(struct sp_watch *w, uint32_t events)
{
    struct sp_carry *c = SP_CONTAINER(w, struct sp_carry, signals.watch);
    struct signalfd_siginfo info;

    (void)events;
    if (read(c->signals.fd, &info, sizeof info) != (ssize_t)sizeof info)
        return;
    switch (info.ssi_signo) {
    case SIGWINCH:
        pass_size(c);
        break;
    case SIGTSTP:
        stop_with_command(c);
        break;
    case SIGCONT:
        go_on_with_command(c);
        break;
    default:
        if (is_deadly((int)info.ssi_signo))
            take(c, (int)info.ssi_signo);
        else
            sp_carry_pass(c, (int)info.ssi_signo);
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

int sp_carry_begin_signals(struct sp_carry *c, struct sp_err *e)
{
    struct sp_carry_signals *s = &c->signals;
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
    return sp_loop_watch(c->loop, &s->watch, s->fd, EPOLLIN, on_signal, e);
}

void sp_carry_end_signals(struct sp_carry *c)
{
    if (c->loop != NULL)
        sp_loop_unwatch(c->loop, &c->signals.watch);
    if (c->signals.fd >= 0)
        (void)close(c->signals.fd);
}

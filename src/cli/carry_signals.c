/* SPDX-License-Identifier: Apache-2.0 */
/* carry: passes our signals and the size of our window on to the command. */
#include <stdio.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/auto.h"
#include "cli/carry_priv.h"
#include "cli/escape_text.h"
#include "cli/signals.h"

#define UNANSWERED_MS 1000 /* then the executor is taken for dead */

/* Their default ends a program: the sender wants an end. */
static bool is_deadly(int signal)
{
    return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
}

/* ---- to the command ---- */

static void on_killed(struct sp_job_call *call)
{
    struct sp_carry *c = SP_CONTAINER(call, struct sp_carry, signals.kill);

    c->signals.is_killing = false;
    c->signals.unanswered_ms = 0;
    c->result.was_killed = call->result == SP_JOB_OK || call->result == SP_JOB_GONE;
}

/* Ends the command and all its descendants. */
void sp_carry_kill(struct sp_carry *c)
{
    if (c->signals.is_killing)
        return;
    c->signals.is_killing = true;
    if (c->signals.unanswered_ms == 0)
        c->signals.unanswered_ms = sp_loop_now(c->loop);
    c->signals.kill.fn = on_killed;
    sp_job_terminate(&c->job, &c->signals.kill);
}

static void on_passed(struct sp_job_call *call)
{
    struct sp_carry *c = SP_CONTAINER(call, struct sp_carry, signals.call);
    const int signal = c->signals.passing;
    char text[640];
    char line[720];

    c->signals.passing = 0;
    if (!c->signals.is_killing)
        c->signals.unanswered_ms = 0;
    if (signal == SIGSTOP)
        (void)kill(getpid(), SIGSTOP); /* now that the command is stopped */
    /* A server may know fewer signals than we do. */
    if (call->result == SP_JOB_REFUSED && signal != SIGSTOP && signal != SIGCONT) {
        (void)snprintf(line, sizeof line, "SIG%s was not passed on%s: %s", sigabbrev_np(signal),
                       is_deadly(signal) ? ", the command is killed instead" : "",
                       sp_error_text(&call->error, text, sizeof text));
        sp_plain_say("sallyport", line);
        if (is_deadly(signal))
            sp_carry_kill(c);
    }
    sp_carry_pass_signals(c);
}

void sp_carry_pass_signals(struct sp_carry *c)
{
    struct sp_carry_signals *s = &c->signals;

    for (int signal = 1; c->is_live && signal < SIGRTMIN && s->passing == 0; signal++)
        if (sigismember(&s->waiting, signal) == 1) {
            sigdelset(&s->waiting, signal);
            s->passing = signal;
            s->call.fn = on_passed;
            sp_job_signal(&c->job, &s->call, signal);
        }
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
    s->unanswered_ms = 0;
}

/* Ends the run as if the signal had ended the command. */
static void abandon_command(struct sp_carry *c, int signal)
{
    c->result.end = SP_CARRY_ABANDONED;
    c->result.exit = (struct sp_exit){.code = 128 + signal, .signal = signal};
    sp_carry_finish(c);
}

/* INT, TERM, HUP or QUIT: for the command while it lives, else for us. */
static void take_deadly(struct sp_carry *c, int signal)
{
    const uint64_t since = c->signals.unanswered_ms;

    if (c->is_ending) {
        sp_carry_stop(c);
    } else if (c->has_exited) {
        sp_carry_finish(c);
    } else if (c->facts.backend != NULL || c->is_asking) {
        abandon_command(c, signal);
    } else if (since != 0 && sp_loop_now(c->loop) - since >= UNANSWERED_MS) {
        sp_plain_say("sallyport",
                     "no answer from where the command runs; it may still be running there");
        abandon_command(c, signal);
    } else {
        if (since == 0)
            c->signals.unanswered_ms = sp_loop_now(c->loop);
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

static void on_carry_signal(struct sp_watch *w, uint32_t events)
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
        sp_terminal_restore(&c->terminal);
        if (c->is_live)
            sp_carry_pass(c, SIGSTOP); /* the kernel drops TSTP for an orphaned process group */
        else
            (void)kill(getpid(), SIGSTOP);
        break;
    case SIGCONT:
        if (c->is_live && c->options->launch->is_tty)
            sp_terminal_make_raw(&c->terminal);
        pass_size(c);
        sp_carry_pass(c, SIGCONT);
        break;
    default:
        if (is_deadly((int)info.ssi_signo))
            take_deadly(c, (int)info.ssi_signo);
        else
            sp_carry_pass(c, (int)info.ssi_signo);
        break;
    }
}

int sp_carry_begin_signals(struct sp_carry *c, struct sp_err *e)
{
    static const int unless_ignored[] = {SIGTSTP, SIGINT,  SIGTERM, SIGHUP,
                                         SIGQUIT, SIGUSR1, SIGUSR2, 0};
    struct sp_carry_signals *s = &c->signals;
    sigset_t set;

    sigemptyset(&s->waiting);
    sigemptyset(&set);
    sigaddset(&set, SIGWINCH);
    sigaddset(&set, SIGCONT);
    const int r = sp_signals_open(&set, unless_ignored, &s->fd, e);
    return r < 0 ? r : sp_loop_watch(c->loop, &s->watch, s->fd, EPOLLIN, on_carry_signal, e);
}

void sp_carry_end_signals(struct sp_carry *c)
{
    if (c->loop != NULL)
        sp_loop_unwatch(c->loop, &c->signals.watch);
    if (c->signals.fd >= 0)
        (void)close(c->signals.fd);
}

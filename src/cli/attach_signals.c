/* SPDX-License-Identifier: Apache-2.0 */
/* attach: our signals, and the size of our window. */
#include <errno.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/auto.h"
#include "cli/attach.h"

/* ---- the window ---- */

static void on_resized(struct sp_client_request *r, const struct sp_client_reply *reply)
{
    struct sp_attach *a = SP_CONTAINER(r, struct sp_attach, resize);

    (void)reply; /* refused: somebody else's size holds */
    if (a->has_new_size)
        sp_attach_size(a, false);
}

static void ask_size(struct sp_attach *a, unsigned rows, unsigned cols)
{
    auto_buf struct sp_buf params = {0};

    if (!sp_buf_printf(&params, "{") || !sp_listed_add_place(&params, a->proc) ||
        !sp_buf_printf(&params, ",\"rows\":%u,\"cols\":%u}", rows, cols))
        return; /* the next change finds memory, perhaps */
    a->resize = (struct sp_client_request){.fn = on_resized};
    sp_client_ask(a->client, &a->resize, "process/resize",
                  (struct sp_str){params.data, params.len});
}

void sp_attach_size(struct sp_attach *a, bool redraws)
{
    uint16_t rows;
    uint16_t cols;

    if (!a->types || !a->proc->is_tty || a->is_over)
        return;
    sp_terminal_size(&rows, &cols);
    if (rows == 0)
        return;
    a->has_new_size = true;
    if (a->resize.client != NULL)
        return; /* after the one that is on its way */
    a->has_new_size = redraws;
    /* A program draws when its size changes: another one first. */
    ask_size(a, redraws && rows > 1 ? rows - 1U : rows, cols);
}

/* ---- signals ---- */

static void stop_for_now(struct sp_attach *a)
{
    sp_terminal_restore(&a->terminal);
    (void)kill(getpid(), SIGSTOP);
}

static void go_on(struct sp_attach *a)
{
    if (a->proc->is_tty && a->is_attached && !a->is_over)
        sp_terminal_make_raw(&a->terminal);
    sp_attach_size(a, true);
}

static void on_signal(struct sp_watch *w, uint32_t events)
{
    struct sp_attach *a = SP_CONTAINER(w, struct sp_attach, on_signal);
    struct signalfd_siginfo info;

    (void)events;
    if (read(a->signals, &info, sizeof info) != (ssize_t)sizeof info)
        return;
    switch (info.ssi_signo) {
    case SIGWINCH:
        sp_attach_size(a, false);
        break;
    case SIGTSTP:
        stop_for_now(a);
        break;
    case SIGCONT:
        go_on(a);
        break;
    default: /* at once: who sends a signal does not wait for a slow terminal */
        a->is_over = a->is_cut = true;
        a->status = 128 + (int)info.ssi_signo;
        sp_loop_stop(a->loop);
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

int sp_attach_begin_signals(struct sp_attach *a, struct sp_err *e)
{
    static const int taken[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP};
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGWINCH);
    sigaddset(&set, SIGCONT);
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
        add_unless_ignored(&set, taken[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    a->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (a->signals < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "take signals");
    return sp_loop_watch(a->loop, &a->on_signal, a->signals, EPOLLIN, on_signal, e);
}

void sp_attach_end_signals(struct sp_attach *a)
{
    sp_loop_unwatch(a->loop, &a->on_signal);
    sp_client_forget(&a->resize);
    if (a->signals >= 0)
        (void)close(a->signals);
    a->signals = -1;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* carry: our stdin, on its way to the command's. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/auto.h"
#include "cli/carry_priv.h"

#define RETRY_MS 250
#define FULL_MS  20

static void read_more(struct sp_carry *c);

static void on_readable(struct sp_watch *w, uint32_t events)
{
    (void)events; /* an end or an error is met by the read */
    read_more(SP_CONTAINER(w, struct sp_carry, input.watch));
}

static void on_again(struct sp_deferred *d)
{
    read_more(SP_CONTAINER(d, struct sp_carry, input.again));
}

static void stop_reading(struct sp_carry *c)
{
    sp_loop_unwatch(c->loop, &c->input.watch);
    sp_loop_undefer(c->loop, &c->input.again);
    sp_loop_cancel(c->loop, &c->input.retry);
}

static void want_more(struct sp_carry *c)
{
    struct sp_carry_input *in = &c->input;

    if (in->watch.fn != NULL)
        return;
    if (in->port.is_always_ready ||
        sp_loop_watch(c->loop, &in->watch, in->port.fd, EPOLLIN, on_readable, NULL) < 0)
        sp_loop_again(c->loop, &in->again, on_again);
}

/* The command reads no more: whoever writes to us is to know. */
static void close_our_stdin(struct sp_carry *c)
{
    stop_reading(c);
    sp_port_close(&c->input.port);
    const int null = isatty(STDIN_FILENO) ? -1 : open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null >= 0) {
        (void)dup2(null, STDIN_FILENO);
        (void)close(null);
    }
}

/* ---- a chunk on its way ---- */

static void pass_on(struct sp_carry *c);

static void on_full(struct sp_timer *t)
{
    pass_on(SP_CONTAINER(t, struct sp_carry, input.retry));
}

/* It has been taken, or never will be. */
static void on_taken(struct sp_job_call *call)
{
    struct sp_carry *c = SP_CONTAINER(call, struct sp_carry, input.call);

    c->input.len = 0;
    if (!c->is_live || c->input.port.fd < 0)
        return;
    if (call->result == SP_JOB_OK)
        want_more(c);
    else
        close_our_stdin(c);
}

static void on_written(struct sp_job_call *call)
{
    struct sp_carry *c = SP_CONTAINER(call, struct sp_carry, input.call);
    struct sp_carry_input *in = &c->input;

    if (call->result == SP_JOB_FULL && c->is_live &&
        sp_loop_timer(c->loop, &in->retry, sp_loop_now(c->loop) + FULL_MS, on_full))
        return;
    call->fn = on_taken;
    if (call->result != SP_JOB_OK || !sp_job_flush(&c->job, call))
        on_taken(call);
}

static void pass_on(struct sp_carry *c)
{
    struct sp_carry_input *in = &c->input;

    if (!c->is_live)
        return;
    in->call.fn = on_written;
    sp_job_write(&c->job, &in->call, (struct sp_str){in->chunk, in->len});
}

/* ---- reading ---- */

static void on_ended(struct sp_job_call *call)
{
    (void)call; /* it has exited meanwhile, or its executor is lost: that is told */
}

static void end_input(struct sp_carry *c)
{
    stop_reading(c);
    if (c->terminal.is_raw) /* a raw terminal ends in one way only: nobody is there any more */
        sp_carry_pass(c, SIGHUP);
    c->input.close.fn = on_ended;
    sp_job_close_stdin(&c->job, &c->input.close);
    sp_port_close(&c->input.port);
}

/* The terminal may be ours again. */
static void on_retry(struct sp_timer *t)
{
    struct sp_carry *c = SP_CONTAINER(t, struct sp_carry, input.retry);

    if (c->options->launch->is_tty)
        sp_terminal_make_raw(&c->terminal);
    read_more(c);
}

static void read_more(struct sp_carry *c)
{
    struct sp_carry_input *in = &c->input;

    if (!c->is_live || in->port.fd < 0)
        return;
    if (isatty(STDIN_FILENO) && !sp_terminal_is_ours(STDIN_FILENO)) {
        stop_reading(c); /* the read would stop us */
        (void)sp_loop_timer(c->loop, &in->retry, sp_loop_now(c->loop) + RETRY_MS, on_retry);
        return;
    }
    const ssize_t n = sp_port_read(&in->port, in->chunk, sizeof in->chunk);
    if (n > 0) {
        stop_reading(c);
        c->result.was_taken = true;
        in->len = (size_t)n;
        pass_on(c);
    } else if (n != -EAGAIN) {
        end_input(c);
    } else {
        want_more(c);
    }
}

void sp_carry_begin_input(struct sp_carry *c)
{
    sp_port_open(&c->input.port, STDIN_FILENO, true);
    want_more(c);
}

void sp_carry_end_input(struct sp_carry *c)
{
    stop_reading(c);
    sp_port_close(&c->input.port);
}

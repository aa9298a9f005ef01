/* SPDX-License-Identifier: Apache-2.0 */
/* local: our stdin, on its way to the command's. */
#include <errno.h>
#include <fcntl.h>

#include "base/auto.h"
#include "cli/local_priv.h"

#define RETRY_MS 250

static void read_more(struct sp_local *l);

static void on_readable(struct sp_watch *w, uint32_t events)
{
    (void)events; /* an end or an error is met by the read */
    read_more(SP_CONTAINER(w, struct sp_local, input.watch));
}

static void on_again(struct sp_deferred *d)
{
    read_more(SP_CONTAINER(d, struct sp_local, input.again));
}

static void on_retry(struct sp_timer *t);

static void stop_reading(struct sp_local *l)
{
    sp_loop_unwatch(l->loop, &l->input.watch);
    sp_loop_undefer(l->loop, &l->input.again);
    sp_loop_cancel(l->loop, &l->input.retry);
}

static void want_more(struct sp_local *l)
{
    struct sp_local_input *in = &l->input;

    if (in->watch.fn != NULL)
        return;
    if (in->port.is_always_ready ||
        sp_loop_watch(l->loop, &in->watch, in->port.fd, EPOLLIN, on_readable, NULL) < 0)
        sp_loop_again(l->loop, &in->again, on_again);
}

/* The command reads no more: whoever writes to us is to know. */
static void close_our_stdin(struct sp_local *l)
{
    stop_reading(l);
    sp_port_close(&l->input.port);
    const int null = isatty(STDIN_FILENO) ? -1 : open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null >= 0) {
        (void)dup2(null, STDIN_FILENO);
        (void)close(null);
    }
}

static void go_on(struct sp_local *l);

static void on_room(struct sp_waiter *w)
{
    go_on(SP_CONTAINER(w, struct sp_local, input.on_room));
}

/* Reads on if the command has taken all that was read. */
static void go_on(struct sp_local *l)
{
    const struct sp_input *to = &l->proc->input;

    if (to->state != SP_INPUT_OPEN) {
        close_our_stdin(l);
    } else if (to->bytes > 0) {
        stop_reading(l);
        l->input.on_room.fn = on_room;
        sp_waiters_add_first(&l->proc->on_room, &l->input.on_room);
    } else {
        want_more(l);
    }
}

static void pass_on(struct sp_local *l, size_t n)
{
    struct sp_local_input *in = &l->input;

    in->count++;
    const struct sp_str id = {(const char *)&in->count, sizeof in->count};
    if (sp_proc_write(l->proc, id, (struct sp_str){in->chunk, n}) == SP_INPUT_FAILED)
        close_our_stdin(l); /* no memory: better an end than a gap */
    else
        go_on(l);
}

static void end_input(struct sp_local *l)
{
    stop_reading(l);
    if (l->terminal.is_raw) /* a raw terminal ends in one way only: nobody is there any more */
        sp_local_pass(l, SIGHUP);
    (void)sp_input_close(&l->proc->input);
    sp_port_close(&l->input.port);
}

static void read_more(struct sp_local *l)
{
    struct sp_local_input *in = &l->input;

    if (l->proc == NULL || in->port.fd < 0)
        return;
    if (isatty(STDIN_FILENO) && !sp_terminal_is_ours(STDIN_FILENO)) {
        stop_reading(l); /* the read would stop us */
        (void)sp_loop_timer(l->loop, &in->retry, sp_loop_now(l->loop) + RETRY_MS, on_retry);
        return;
    }
    const ssize_t n = sp_port_read(&in->port, in->chunk, sizeof in->chunk);
    if (n > 0)
        pass_on(l, (size_t)n);
    else if (n != -EAGAIN)
        end_input(l);
    else
        want_more(l);
}

/* The terminal may be ours again. */
static void on_retry(struct sp_timer *t)
{
    struct sp_local *l = SP_CONTAINER(t, struct sp_local, input.retry);

    if (l->options->is_tty)
        sp_terminal_make_raw(&l->terminal);
    read_more(l);
}

void sp_local_begin_input(struct sp_local *l)
{
    sp_port_open(&l->input.port, STDIN_FILENO, true);
    want_more(l);
}

void sp_local_end_input(struct sp_local *l)
{
    stop_reading(l);
    sp_waiters_remove(&l->input.on_room);
    sp_port_close(&l->input.port);
}

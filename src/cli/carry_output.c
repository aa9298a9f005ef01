/* SPDX-License-Identifier: Apache-2.0 */
/* carry: what the command says, on its way to our stdout and stderr. */
#include <errno.h>

#include "base/auto.h"
#include "cli/carry_priv.h"

static void fail(struct sp_carry *c, int err)
{
    if (err == EPIPE || err == EIO) /* EIO: the terminal is gone */
        c->result.end = SP_CARRY_OUTPUT_CLOSED;
    else
        c->failed = sp_fail(&c->error, SP_E_SYSTEM, err, "write %s",
                            c->output.to == 1 ? "stderr" : "stdout");
    sp_carry_stop(c);
}

/* ---- waiting for the end of others ---- */

static bool is_blocked(const struct sp_carry *c)
{
    return c->output.pending.len > 0;
}

static void on_quiet(struct sp_timer *t)
{
    sp_carry_finish(SP_CONTAINER(t, struct sp_carry, output.quiet));
}

void sp_carry_await_quiet(struct sp_carry *c)
{
    struct sp_carry_output *out = &c->output;
    const struct sp_carry_options *o = c->options;

    if (!c->has_exited || c->is_ending || c->result.end == SP_CARRY_TIMED_OUT || is_blocked(c))
        return;
    const uint64_t now = sp_loop_now(c->loop);
    uint64_t due = out->exited_ms + o->after_ms;
    if (o->quiet_ms != 0 && now + o->quiet_ms < due)
        due = now + o->quiet_ms;
    if (!sp_loop_timer(c->loop, &out->quiet, due, on_quiet))
        sp_carry_finish(c);
}

/* ---- writing ---- */

static void on_writable(struct sp_watch *w, uint32_t events)
{
    struct sp_carry *c = SP_CONTAINER(w, struct sp_carry, output.watch);

    (void)events; /* an error is met by the write */
    sp_loop_unwatch(c->loop, w);
    sp_carry_flush(c, true);
}

/* Bytes that were taken; less than all: the rest waits, or -1: the run is over. */
static ssize_t write_now(struct sp_carry *c, const char *bytes, size_t len)
{
    struct sp_carry_output *out = &c->output;
    const struct sp_port *port = &out->ports[out->to];
    size_t at = 0;

    while (at < len) {
        const ssize_t n = sp_port_write(port, bytes + at, len - at);

        if (n == -EAGAIN) {
            sp_loop_cancel(c->loop, &out->quiet);
            if (out->watch.fn == NULL &&
                sp_loop_watch(c->loop, &out->watch, port->fd, EPOLLOUT, on_writable, NULL) < 0) {
                fail(c, errno);
                return -1;
            }
            break;
        }
        if (n < 0) {
            fail(c, (int)-n);
            return -1;
        }
        at += (size_t)n;
    }
    return (ssize_t)at;
}

void sp_carry_flush(struct sp_carry *c, bool ok)
{
    struct sp_carry_output *out = &c->output;

    if (!ok) {
        fail(c, ENOMEM);
        return;
    }
    if (out->pending.len > 0) {
        const ssize_t n = write_now(c, out->pending.data + out->at, out->pending.len - out->at);

        if (n < 0)
            return;
        out->at += (size_t)n;
        if (out->at < out->pending.len)
            return;
    }
    out->pending.len = out->at = 0;
    if (c->is_ending) {
        sp_carry_stop(c);
        return;
    }
    sp_carry_await_quiet(c);
    if (out->is_refusing) {
        out->is_refusing = false;
        sp_job_go_on(&c->job);
    }
}

bool sp_carry_take(struct sp_carry *c, enum sp_stream stream, struct sp_str bytes)
{
    struct sp_carry_output *out = &c->output;
    const struct sp_carry_scribe *s = c->options->scribe;

    if (c->is_ending)
        return true; /* too late for it */
    if (is_blocked(c)) {
        out->is_refusing = true;
        return false;
    }
    if (s != NULL) {
        sp_carry_flush(c, s->output(s->user, stream, bytes, &out->pending));
        return true;
    }
    out->to = stream == SP_STREAM_STDERR ? 1 : 0;
    const ssize_t n = write_now(c, bytes.p, bytes.n);
    if (n >= 0 && (size_t)n < bytes.n &&
        !sp_buf_add(&out->pending, bytes.p + n, bytes.n - (size_t)n))
        fail(c, ENOMEM);
    else
        sp_carry_await_quiet(c);
    return true;
}

void sp_carry_begin_output(struct sp_carry *c)
{
    sp_port_open(&c->output.ports[0], STDOUT_FILENO, false);
    sp_port_open(&c->output.ports[1], STDERR_FILENO, false);
}

void sp_carry_end_output(struct sp_carry *c)
{
    sp_loop_unwatch(c->loop, &c->output.watch);
    sp_loop_cancel(c->loop, &c->output.quiet);
    sp_port_close(&c->output.ports[0]);
    sp_port_close(&c->output.ports[1]);
}

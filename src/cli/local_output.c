/* SPDX-License-Identifier: Apache-2.0 */
/* local: what the command says, on its way to our stdout and stderr. */
#include <errno.h>

#include "base/auto.h"
#include "cli/local_priv.h"

#define TURN_BYTES (256U << 10) /* before signals and input have their turn */
#define QUIET_MS   200          /* after the exit nobody says anything for so long: the end */
#define AFTER_MS   5000         /* ... and however much they say, so long after it */

static void on_writable(struct sp_watch *w, uint32_t events)
{
    struct sp_local *l = SP_CONTAINER(w, struct sp_local, output.watch);

    (void)events; /* an error is met by the write */
    sp_loop_unwatch(l->loop, w);
    l->output.is_blocked = false;
    sp_local_pump_output(l);
}

static void on_again(struct sp_deferred *d)
{
    sp_local_pump_output(SP_CONTAINER(d, struct sp_local, output.again));
}

static void fail(struct sp_local *l, int err, const char *what)
{
    if (err == EPIPE || err == EIO) /* EIO: the terminal is gone */
        l->result.end = SP_LOCAL_OUTPUT_CLOSED;
    else
        l->failed = sp_fail(l->error, SP_E_SYSTEM, err, "write %s", what);
    sp_local_stop(l);
}

/* true: the record is written. Else its rest waits, or the run is over. */
static bool write_record(struct sp_local *l)
{
    struct sp_local_output *out = &l->output;
    const bool is_stderr = out->record.stream == SP_STREAM_STDERR;
    const struct sp_port *port = &out->ports[is_stderr];

    while (out->at < out->record.len) {
        const ssize_t n =
            sp_port_write(port, out->record.data + out->at, out->record.len - out->at);

        if (n == -EAGAIN) {
            out->is_blocked = true;
            if (sp_loop_watch(l->loop, &out->watch, port->fd, EPOLLOUT, on_writable, NULL) < 0)
                fail(l, errno, is_stderr ? "stderr" : "stdout");
            return false;
        }
        if (n < 0) {
            fail(l, (int)-n, is_stderr ? "stderr" : "stdout");
            return false;
        }
        out->at += (uint32_t)n;
    }
    return true;
}

static void on_quiet(struct sp_timer *t)
{
    sp_local_stop(SP_CONTAINER(t, struct sp_local, output.quiet));
}

/* Others may hold its streams for hours: they have a moment. */
static void await_quiet(struct sp_local *l)
{
    struct sp_local_output *out = &l->output;
    const uint64_t now = sp_loop_now(l->loop);
    const uint64_t last = out->exited_ms + AFTER_MS;
    const uint64_t due = now + QUIET_MS < last ? now + QUIET_MS : last;

    if (!sp_loop_timer(l->loop, &out->quiet, due, on_quiet))
        sp_local_stop(l);
}

static void take_exit(struct sp_local *l, const struct sp_record *r)
{
    const struct sp_proc *p = l->proc;

    l->has_exited = true;
    l->output.exited_ms = sp_loop_now(l->loop);
    memcpy(&l->result.exit, r->data, sizeof l->result.exit);
    l->result.end = p->is_lost && l->result.exit.code < 0 ? SP_LOCAL_LOST : SP_LOCAL_EXITED;
    l->result.was_denied = p->was_denied;
    if (p->denial != NULL)
        l->result.denial = *p->denial;
    sp_local_end_input(l);
}

/* true: go on with the next record. */
static bool take_record(struct sp_local *l)
{
    const struct sp_record *r = &l->output.record;

    switch (r->type) {
    case SP_RECORD_OUTPUT:
        l->output.at = 0;
        return write_record(l);
    case SP_RECORD_EXITED:
        take_exit(l, r);
        return true;
    case SP_RECORD_CLOSED:
        sp_local_stop(l);
        return false;
    case SP_RECORD_PAD:
        break;
    }
    return true;
}

static bool is_over(const struct sp_local *l)
{
    return l->proc == NULL || l->output.ports[0].fd < 0;
}

void sp_local_pump_output(struct sp_local *l)
{
    struct sp_local_output *out = &l->output;
    uint32_t bytes = 0;
    bool goes_on = true;

    if (is_over(l) || out->is_blocked)
        return;
    sp_loop_cancel(l->loop, &out->quiet);
    if (out->record.type == SP_RECORD_OUTPUT && out->at < out->record.len)
        goes_on = write_record(l);
    while (goes_on && bytes < TURN_BYTES && sp_proc_next(l->proc, &out->record) > 0) {
        bytes += out->record.len;
        goes_on = take_record(l);
    }
    if (is_over(l))
        return;
    sp_proc_served(l->proc);
    if (goes_on && bytes >= TURN_BYTES)
        sp_loop_again(l->loop, &out->again, on_again);
    else if (goes_on && l->has_exited)
        await_quiet(l);
}

void sp_local_begin_output(struct sp_local *l)
{
    sp_port_open(&l->output.ports[0], STDOUT_FILENO, false);
    sp_port_open(&l->output.ports[1], STDERR_FILENO, false);
}

void sp_local_end_output(struct sp_local *l)
{
    sp_loop_unwatch(l->loop, &l->output.watch);
    sp_loop_undefer(l->loop, &l->output.again);
    sp_loop_cancel(l->loop, &l->output.quiet);
    sp_port_close(&l->output.ports[0]);
    sp_port_close(&l->output.ports[1]);
}

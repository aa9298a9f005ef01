/* SPDX-License-Identifier: Apache-2.0 */
/* attach: from the server to our stdout and stderr. */
#include <errno.h>

#include "base/auto.h"
#include "cli/attach.h"

static void on_writable(struct sp_watch *w, uint32_t events);

bool sp_attach_is_drained(const struct sp_attach *a)
{
    return a->outs[0].queue.len == 0 && a->outs[1].queue.len == 0;
}

/* Nobody reads it any more: to a pipeline that is the end, as for any filter. */
static void give_up(struct sp_attach_out *out)
{
    sp_loop_unwatch(out->attach->loop, &out->watch);
    sp_buf_done(&out->queue);
    sp_port_close(&out->port);
    sp_attach_finish(out->attach, 128 + SIGPIPE);
}

/* true: all of it is written. */
static bool write_queue(struct sp_attach_out *out)
{
    while (out->queue.len > 0 && out->port.fd >= 0) {
        const ssize_t n = sp_port_write(&out->port, out->queue.data, out->queue.len);

        if (n == -EAGAIN)
            return false;
        if (n < 0) {
            give_up(out);
            return true;
        }
        sp_buf_drop(&out->queue, (size_t)n);
    }
    return true;
}

static void pump(struct sp_attach_out *out)
{
    struct sp_attach *a = out->attach;

    if (write_queue(out)) {
        sp_loop_unwatch(a->loop, &out->watch);
    } else if (out->watch.fn == NULL &&
               sp_loop_watch(a->loop, &out->watch, out->port.fd, EPOLLOUT, on_writable, NULL) < 0) {
        give_up(out);
    }
    sp_client_pause(a->client, !sp_attach_is_drained(a));
    if (a->is_over && sp_attach_is_drained(a))
        sp_loop_stop(a->loop);
}

static void on_writable(struct sp_watch *w, uint32_t events)
{
    (void)events; /* an error is met by the write */
    pump(SP_CONTAINER(w, struct sp_attach_out, watch));
}

void sp_attach_output(struct sp_attach *a, bool is_stderr, struct sp_str bytes)
{
    struct sp_attach_out *out = &a->outs[is_stderr];

    if (out->port.fd < 0)
        return;
    if (!sp_buf_add_str(&out->queue, bytes)) {
        sp_attach_finish(a, SP_EXIT_FAILED);
        return;
    }
    pump(out);
}

void sp_attach_begin_output(struct sp_attach *a)
{
    for (int i = 0; i < 2; i++) {
        a->outs[i].attach = a;
        sp_port_open(&a->outs[i].port, i == 0 ? STDOUT_FILENO : STDERR_FILENO, false);
    }
}

void sp_attach_end_output(struct sp_attach *a)
{
    for (int i = 0; i < 2; i++) {
        sp_loop_unwatch(a->loop, &a->outs[i].watch);
        sp_buf_done(&a->outs[i].queue);
        sp_port_close(&a->outs[i].port);
    }
}

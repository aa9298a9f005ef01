/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The other end of a link: how a client's begins.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "base/auto.h"
#include "server/net/link_priv.h"

/* The last word on a link that never opened. */
void sp_link_tell_failed(struct sp_link *l)
{
    struct sp_link_asked *a = l->asked;

    if (a == NULL || a->is_told)
        return;
    a->is_told = true;
    l->host->failed(l->host->user, a->is_refused, a->why[0] != 0 ? a->why : l->why);
}

/* The bytes behind the answer are frames already. */
static void begin(struct sp_link *l, size_t head_len)
{
    sp_intake_skip(&l->intake, head_len);
    l->asked->is_told = true;
    if (!l->host->opened(l->host->user, l))
        sp_link_drop(l, "refused");
    else if (l->phase == HTTP) /* else closed from within */
        sp_link_begin_frames(l);
}

void sp_link_hear_answer(struct sp_link *l, bool is_end)
{
    struct sp_link_asked *a = l->asked;
    size_t len;

    switch (sp_upgrade_read(&a->upgrade, sp_intake_peek(&l->intake), is_end, &len, a->why,
                            sizeof a->why)) {
    case SP_UPGRADE_MORE:
        break;
    case SP_UPGRADE_REFUSED:
        a->is_refused = true;
        sp_link_drop(l, a->why);
        break;
    case SP_UPGRADE_ENDED:
        sp_link_drop(l, "the server left without an answer to the upgrade");
        break;
    case SP_UPGRADE_DONE:
        begin(l, len);
        break;
    }
}

static bool ask_upgrade(struct sp_link *l, const struct sp_upgrade *ask)
{
    auto_buf struct sp_buf out = {0};

    l->asked = calloc(1, sizeof *l->asked);
    if (l->asked == NULL)
        return false;
    l->asked->upgrade = *ask;
    const bool ok =
        sp_upgrade_write(&l->asked->upgrade, &out) && sp_outq_raw(&l->outq, out.data, out.len);
    l->asked->upgrade.token = NULL; /* borrowed */
    if (out.data != NULL)
        explicit_bzero(out.data, out.len);
    l->outq.is_masked = true;
    return ok;
}

int sp_link_new_client(struct sp_link_host *h, int fd, const struct sp_upgrade *ask,
                       const char *peer, struct sp_err *e)
{
    struct sp_link *l = sp_link_make(h, fd, fd, peer);

    if (l == NULL) {
        (void)close(fd);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "open connection");
    }
    l->is_socket_in = l->is_socket_out = true;
    l->kind = SP_LINK_WEBSOCKET;
    /* A server may send a message in one frame of any size. */
    sp_intake_init(&l->intake, SP_WS_CLIENT, SP_LINK_MAX_MESSAGE, SP_LINK_MAX_MESSAGE);
    l->phase = ask != NULL ? HTTP : SNIFF;
    l->deadline_ms = sp_loop_now(h->loop) + h->handshake_ms;
    if (ask != NULL && !ask_upgrade(l, ask)) {
        free(TAKE_PTR(l->asked)); /* told here, not by a callback */
        sp_link_drop(l, "no memory");
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "open connection");
    }
    const int r = sp_loop_watch(h->loop, &l->in, fd, EPOLLIN, sp_link_on_in, e);
    if (r < 0) {
        free(TAKE_PTR(l->asked));
        sp_link_drop(l, "cannot be watched");
        return r;
    }
    sp_link_arm(l);
    sp_link_at_turn_end(l); /* sends */
    if (ask == NULL)
        sp_link_begin_lines(l);
    return 0;
}

void sp_link_turn(struct sp_link *l, int timeout_ms)
{
    sp_link_flush(l);
    if (l->again.is_queued) { /* more has arrived than one callback takes */
        sp_loop_undefer(l->host->loop, &l->again);
        sp_link_on_again(&l->again);
        return;
    }
    struct pollfd at[2] = {{.fd = l->fd_in, .events = POLLIN},
                           {.fd = l->fd_out, .events = l->is_blocked ? POLLOUT : 0}};
    if (l->phase == GONE || poll(at, 2, timeout_ms) <= 0)
        return;
    if ((at[1].revents & POLLOUT) != 0)
        sp_link_on_writable(l);
    if (l->phase != GONE && (at[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0)
        sp_link_on_in(&l->in, EPOLLIN | (at[0].revents & POLLERR ? EPOLLERR : 0));
}

bool sp_link_is_live(const struct sp_link *l)
{
    return sp_link_is_open(l);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link_in: receives bytes and dispatches them by phase: HTTP requests and answers, frames, lines.
 */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "server/net/link_priv.h"

#define AHEAD        (64U << 10) /* received while paused, to see pongs and the end of the stream */
#define LINGER_BYTES (16U << 20) /* dropped in LINGER, so that the peer can read our last bytes */
#define BUDGET       64          /* messages in one callback; then other links have their turn */

/* A close frame is answered with its own status. */
static unsigned close_status(const struct sp_intake_event *ev)
{
    if (ev->len == 0)
        return SP_LINK_NO_STATUS;
    return (unsigned)(uint8_t)ev->text[0] << 8 | (uint8_t)ev->text[1];
}

/* One message or control frame. */
static void hear_event(struct sp_link *l, enum sp_intake_what what,
                       const struct sp_intake_event *ev)
{
    switch (what) {
    case SP_INTAKE_MESSAGE:
        l->ops->message(l->user, ev->text, ev->len);
        break;
    case SP_INTAKE_NOT_TEXT:
        l->ops->not_text(l->user);
        break;
    case SP_INTAKE_PING:
        sp_link_answer_ping(l, ev->text, ev->len);
        break;
    case SP_INTAKE_CLOSE:
        sp_link_begin_close(l, close_status(ev), "closed by the peer");
        break;
    case SP_INTAKE_BAD:
        sp_link_begin_close(l, ev->status, ev->why);
        break;
    case SP_INTAKE_PONG: /* receive() has noted that the peer is alive */
    case SP_INTAKE_MORE:
    case SP_INTAKE_HELD:
        break;
    }
}

static void hear_messages(struct sp_link *l)
{
    for (int i = 0; sp_link_is_open(l); i++) {
        struct sp_intake_event ev;

        if (i == BUDGET) {
            sp_loop_again(l->host->loop, &l->again, sp_link_on_again);
            return;
        }
        const enum sp_intake_what what = sp_intake_next(&l->intake, !l->is_paused, &ev);
        if (what == SP_INTAKE_MORE || what == SP_INTAKE_HELD)
            return;
        l->is_hearing = true;
        hear_event(l, what, &ev);
        l->is_hearing = false;
    }
}

static void refuse_request(struct sp_link *l, unsigned status)
{
    const struct sp_http_answer a = {.status = status};
    auto_buf struct sp_buf out = {0};

    if (sp_http_write(&out, &a) && sp_outq_raw(&l->outq, out.data, out.len))
        sp_link_begin_close(l, 0, "not a request we can read");
    else
        sp_link_drop(l, "no memory");
}

static void hear_request(struct sp_link *l)
{
    const struct sp_str bytes = sp_intake_peek(&l->intake);
    struct sp_http_request r;
    auto_buf struct sp_buf out = {0};

    switch (sp_http_parse(&l->parser, bytes.p, bytes.n, &r)) {
    case SP_HTTP_MORE:
        return;
    case SP_HTTP_BAD:
        refuse_request(l, 400);
        return;
    case SP_HTTP_TOO_BIG:
        refuse_request(l, 431);
        return;
    case SP_HTTP_DONE:
        break;
    }
    const bool is_upgrade = l->host->request(l->host->user, l, &r, &out);
    sp_intake_skip(&l->intake, r.head_len);
    if (!sp_outq_raw(&l->outq, out.data, out.len)) {
        sp_link_drop(l, "no memory");
        return;
    }
    if (!is_upgrade) {
        sp_link_begin_close(l, 0, "request answered");
        return;
    }
    if (l->phase == HTTP) /* host.request may have closed the link */
        sp_link_begin_frames(l);
}

void sp_link_begin_frames(struct sp_link *l)
{
    l->phase = FRAMES;
    l->intake.mode = SP_INTAKE_FRAMES;
    l->outq.fragment = SP_LINK_FRAGMENT;
    l->ping_ms = l->host->ping_every_ms == 0 ? 0 : sp_link_now(l) + l->host->ping_every_ms;
    sp_link_arm(l);
    sp_link_at_turn_end(l);
}

void sp_link_begin_lines(struct sp_link *l)
{
    l->kind = SP_LINK_LINES;
    if (!l->host->opened(l->host->user, l)) {
        sp_link_drop(l, "refused");
        return;
    }
    if (l->phase != SNIFF) /* opened has closed the link */
        return;
    l->phase = LINES;
    l->intake.mode = SP_INTAKE_LINES;
}

static void sniff(struct sp_link *l)
{
    const struct sp_str bytes = sp_intake_peek(&l->intake);

    if (bytes.n == 0)
        return;
    if (bytes.p[0] < 'A' || bytes.p[0] > 'Z') {
        sp_link_begin_lines(l);
        return;
    }
    l->phase = HTTP;
    l->deadline_ms = sp_link_now(l) + l->host->handshake_ms;
    sp_link_arm(l);
}

static void hear(struct sp_link *l)
{
    if (l->phase == SNIFF)
        sniff(l);
    if (l->phase == HTTP && l->asked != NULL)
        sp_link_hear_answer(l, false);
    else if (l->phase == HTTP)
        hear_request(l);
    if (sp_link_is_open(l))
        hear_messages(l);
}

static void hear_end(struct sp_link *l)
{
    l->has_ended = true;
    if (l->phase == HTTP && l->asked != NULL)
        sp_link_hear_answer(l, true);
    if (!sp_link_is_open(l)) {
        sp_link_drop(l, "the peer left early");
        return;
    }
    if (!l->host->is_client)
        sp_intake_finish(&l->intake);
    hear_messages(l);
    sp_link_begin_close(l, 0, "closed by the peer");
}

/* Small messages are not counted: the number of links bounds them. */
void sp_link_count_unfinished(struct sp_link *l)
{
    const size_t n = sp_intake_size(&l->intake);
    const size_t counted = n > SP_LINK_MAX_FIRST ? n : 0;

    l->host->unfinished += counted - l->unfinished;
    l->unfinished = counted;
}

/* Closing the largest link lets the others finish; not reading could block all of them. */
static void close_largest(const struct sp_link_host *h)
{
    struct sp_link *largest = NULL;

    for (struct sp_link *l = h->first; l != NULL; l = l->next)
        if (sp_link_is_open(l) && (largest == NULL || l->unfinished > largest->unfinished))
            largest = l;
    if (largest == NULL)
        return;
    sp_link_begin_close(largest, SP_WS_TOO_BIG, "too much unfinished input of all connections");
    sp_intake_done(&largest->intake);
    sp_link_count_unfinished(largest);
}

static void bound_unfinished(struct sp_link *l)
{
    const struct sp_link_host *h = l->host;

    sp_link_count_unfinished(l);
    if (l->unfinished != 0 && h->max_unfinished != 0 && h->unfinished > h->max_unfinished)
        close_largest(h);
}

static void settle(struct sp_link *l)
{
    if (!sp_intake_settle(&l->intake)) {
        sp_intake_done(&l->intake);
        sp_link_drop(l, "no memory");
    }
    bound_unfinished(l);
    if (sp_intake_is_idle(&l->intake))
        sp_link_at_turn_end(l); /* sets the timer that frees the buffer */
}

/* Receives once: epoll is level-triggered, and reports the rest again. */
static void receive(struct sp_link *l)
{
    size_t room;
    char *to = sp_intake_room(&l->intake, l->host->scratch, &room);

    if (to == NULL) {
        sp_link_drop(l, "no memory");
        return;
    }
    const ssize_t n =
        l->is_socket_in ? recv(l->fd_in, to, room, MSG_DONTWAIT) : read(l->fd_in, to, room);
    if (n > 0) {
        l->host->bytes_in += (uint64_t)n;
        l->was_used = true;
        sp_link_heard(l);
        sp_intake_added(&l->intake, (size_t)n);
        hear(l);
    } else if (n == 0 || errno == EIO) { /* EIO: a terminal that was hung up */
        hear_end(l);
    } else if (errno != EAGAIN && errno != EINTR) {
        sp_link_drop(l, "the connection broke");
    }
    settle(l);
}

/* While paused a little is still read, to notice the end of the stream. */
static bool wants_more(const struct sp_link *l)
{
    return !l->is_paused || sp_intake_size(&l->intake) < AHEAD;
}

static void drop_input(struct sp_link *l)
{
    const ssize_t n = recv(l->fd_in, l->host->scratch, SP_INTAKE_SCRATCH, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0)
        l->lingered += (size_t)n;
    if (n <= 0 || l->lingered > LINGER_BYTES)
        sp_link_drop(l, l->why);
}

static void on_readable(struct sp_link *l, uint32_t events)
{
    const bool is_broken = (events & (EPOLLHUP | EPOLLERR)) != 0;

    if (l->phase == LINGER) {
        drop_input(l);
    } else if (l->phase == CLOSING) {
        if (is_broken)
            sp_link_drop(l, l->why);
    } else if (l->again.is_queued) {
        return; /* process the received messages first */
    } else if (wants_more(l)) {
        receive(l);
    } else if (is_broken) {
        sp_link_drop(l, "the connection broke");
    } else {
        l->is_held_back = true;
        sp_link_at_turn_end(l);
    }
}

void sp_link_on_in(struct sp_watch *w, uint32_t events)
{
    struct sp_link *l = SP_CONTAINER(w, struct sp_link, in);

    if ((events & EPOLLOUT) != 0)
        sp_link_on_writable(l);
    if (l->phase != GONE && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0)
        on_readable(l, events);
}

/* Continues with messages above the budget, those of a pause, or a regular file. */
void sp_link_on_again(struct sp_deferred *d)
{
    struct sp_link *l = SP_CONTAINER(d, struct sp_link, again);

    if (!sp_link_is_open(l))
        return;
    hear_messages(l);
    settle(l);
    if (sp_link_is_open(l) && l->is_file_in && !l->again.is_queued && wants_more(l)) {
        receive(l);
        sp_loop_again(l->host->loop, &l->again, sp_link_on_again);
    }
}

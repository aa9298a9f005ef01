/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link: the life of a connection: how it begins (as a server or a client), its input and output,
 * its timers, the end of each turn, and how it closes.
 *
 * mcp/mcp_http.c is the other connection machine. It answers HTTP requests one after the
 * other; a link leaves HTTP with its first request and then carries messages in both directions at
 * any time. Both use the acceptor, the head parser, the Host check and the output queue.
 */
#include "server/net/link.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/io.h"
#include "server/net/link_priv.h"

#define CLOSE_MS     2000U
#define CHALLENGE_MS 2000U
#define LINGER_MS    2000U
#define RELEASE_MS   1000U       /* unused buffers are freed after this time */
#define AHEAD        (64U << 10) /* received while paused, to see pongs and the end of the stream */
#define LINGER_BYTES (16U << 20) /* dropped in LINGER, so that the peer can read our last bytes */
#define BUDGET       64          /* messages in one callback; then other links have their turn */
#define SEND_AT_ONCE (64U << 10) /* queued bytes: a fast reader keeps the same few pages in use */
#define NO_STATUS    1005        /* an empty close frame; never on the wire */

static void on_tick(struct sp_timer *t);
static void on_turn_end(struct sp_deferred *d);
static void on_in(struct sp_watch *w, uint32_t events);
static void on_again(struct sp_deferred *d);

static bool is_link_open(const struct sp_link *l)
{
    return l->phase == FRAMES || l->phase == LINES;
}

static uint64_t link_now(const struct sp_link *l)
{
    return sp_loop_now(l->host->loop);
}

/* The peer is alive. */
static void note_alive(struct sp_link *l)
{
    l->heard_ms = link_now(l);
    l->challenge_ms = 0;
}

static void at_turn_end(struct sp_link *l)
{
    sp_loop_defer(l->host->loop, &l->turn_end, on_turn_end);
}

static void drop_link(struct sp_link *l, const char *why)
{
    if (l->phase == GONE)
        return;
    if (l->why == NULL)
        l->why = why;
    l->phase = GONE;
    sp_loop_unwatch(l->host->loop, &l->in);
    sp_loop_unwatch(l->host->loop, &l->out);
    at_turn_end(l);
}

/* Sets the timer to the earliest of the link's times; to be called after one has changed. */
static void arm(struct sp_link *l)
{
    const bool is_silence_bound = l->phase == FRAMES && l->host->silence_ms != 0;
    const uint64_t times[] = {is_silence_bound ? l->heard_ms + l->host->silence_ms : 0, l->ping_ms,
                              l->challenge_ms, l->release_ms, l->marks.look_ms};
    uint64_t due = UINT64_MAX;

    if (l->phase == HTTP || l->phase == CLOSING || l->phase == LINGER)
        due = l->deadline_ms;
    for (size_t i = 0; i < sizeof times / sizeof times[0] && is_link_open(l); i++)
        if (times[i] != 0 && times[i] < due)
            due = times[i];
    if (due == UINT64_MAX)
        sp_loop_cancel(l->host->loop, &l->tick);
    else if (!sp_loop_timer(l->host->loop, &l->tick, due, on_tick))
        drop_link(l, "no memory");
}

const char sp_link_going_away[] = "the server has shut down";

/* status: of the close frame, in phase FRAMES. */
static void begin_close(struct sp_link *l, unsigned status, const char *why)
{
    if (l->phase >= CLOSING)
        return;
    l->close_status = l->phase == FRAMES ? (uint16_t)status : 0;
    l->why = why;
    l->phase = CLOSING;
    l->deadline_ms = link_now(l) + CLOSE_MS;
    arm(l);
    at_turn_end(l);
}

/* ---- output ---- */

static bool has_output(const struct sp_link *l)
{
    return sp_outq_size(&l->outq) != 0 || l->sources != NULL;
}

static void end_source(struct sp_link *l)
{
    struct sp_link_source *s = l->sources;

    l->sources = s->next;
    if (l->sources == NULL)
        sp_outq_done(&l->piece);
    s->done(s);
}

/* Fills l->piece with the next fragment of the first source, or with a pong, which goes between two
 * fragments. false: no memory. */
static bool make_piece(struct sp_link *l, struct sp_link_source *s)
{
    const size_t max = s->left < SP_LINK_FRAGMENT ? s->left : SP_LINK_FRAGMENT;

    if (l->has_pong) {
        l->has_pong = false;
        return sp_outq_control(&l->piece, SP_WS_PONG, l->pong, l->pong_len);
    }
    char *room = sp_outq_reserve(&l->piece, max);
    if (room == NULL)
        return false;
    const size_t n = s->write(s, room, max);
    assert(n != 0 && n <= max);
    s->left -= n;
    sp_outq_commit(&l->piece, n, !s->is_begun, s->left == 0);
    s->is_begun = true;
    return true;
}

/* Sends until the queue is empty or the kernel takes no more. The order is: the bytes of outq that
 * were queued before the first source, the source piece by piece, then the rest of outq. */
static void flush(struct sp_link *l)
{
    while (!l->is_blocked && l->phase < LINGER && has_output(l)) {
        struct sp_link_source *s = l->sources;
        struct sp_outq *q = s == NULL || s->before != 0 ? &l->outq : &l->piece;

        if (q == &l->piece && sp_outq_size(q) == 0 && !make_piece(l, s)) {
            drop_link(l, "no memory");
            return;
        }
        const char *bytes = q->data + q->start;
        size_t size = sp_outq_size(q);
        if (q == &l->outq && s != NULL && s->before < size)
            size = s->before;
        ssize_t n = l->is_socket_out     ? send(l->fd_out, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT)
                    : l->host->is_client ? sp_write_no_sigpipe(l->fd_out, bytes, size)
                                         : write(l->fd_out, bytes, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN) {
            drop_link(l, "the peer is gone");
            return;
        }
        if (n < 0)
            n = 0;
        l->is_blocked = (size_t)n < size;
        l->host->bytes_out += (uint64_t)n;
        l->written += (uint64_t)n;
        sp_outq_sent(q, (size_t)n);
        if (s != NULL && q == &l->outq)
            s->before -= (size_t)n;
        else if (s != NULL && s->left == 0 && sp_outq_size(q) == 0)
            end_source(l);
    }
}

static void note_full(struct sp_link *l)
{
    l->was_used = true;
    if (sp_link_is_full(l))
        l->was_full = true;
    at_turn_end(l);
}

static void queue_control(struct sp_link *l, enum sp_ws_opcode opcode, const void *bytes, size_t n)
{
    if (!sp_outq_control(&l->outq, opcode, bytes, n))
        drop_link(l, "no memory");
    note_full(l);
}

static void tell_drained(struct sp_link *l)
{
    if (!is_link_open(l) || l->sources != NULL || sp_outq_size(&l->outq) > SP_LINK_FULL / 2)
        return;
    if (l->has_pong) {
        l->has_pong = false;
        queue_control(l, SP_WS_PONG, l->pong, l->pong_len);
    }
    if (l->was_full) {
        l->was_full = false;
        l->ops->drained(l->user);
    }
}

static void on_writable(struct sp_link *l)
{
    l->is_blocked = false;
    note_alive(l); /* the peer has taken output */
    flush(l);
    tell_drained(l);
    at_turn_end(l);
}

char *sp_link_reserve(struct sp_link *l, size_t max)
{
    if (!is_link_open(l))
        return NULL;
    char *room = sp_outq_reserve(&l->outq, max);
    if (room == NULL)
        drop_link(l, "no memory");
    return room;
}

void sp_link_commit(struct sp_link *l, size_t len)
{
    if (l->outq.reserved == 0)
        return;
    sp_outq_commit(&l->outq, len, true, true);
    if (len == 0)
        return;
    if (sp_outq_size(&l->outq) >= SEND_AT_ONCE)
        flush(l);
    note_full(l);
}

void sp_link_send(struct sp_link *l, struct sp_link_source *s)
{
    struct sp_link_source **at = &l->sources;

    if (!is_link_open(l) || s->left == 0) {
        s->done(s);
        return;
    }
    s->before = sp_outq_size(&l->outq);
    s->is_begun = false;
    s->next = NULL;
    for (; *at != NULL; at = &(*at)->next)
        s->before -= (*at)->before;
    *at = s;
    l->piece.fragment = l->outq.fragment;
    l->piece.is_masked = l->outq.is_masked;
    flush(l);
    note_full(l);
}

bool sp_link_is_full(const struct sp_link *l)
{
    return l->sources != NULL || sp_outq_size(&l->outq) >= SP_LINK_FULL;
}

size_t sp_link_queued(const struct sp_link *l)
{
    size_t n = sp_outq_size(&l->outq) + sp_outq_size(&l->piece);

    for (const struct sp_link_source *s = l->sources; s != NULL; s = s->next)
        n += s->left;
    return n;
}

/* ---- what the peer has read ---- */

uint64_t sp_link_next_mark(const struct sp_link *l)
{
    return sp_marks_next(&l->marks);
}

uint64_t sp_link_mark(struct sp_link *l)
{
    l->marks.is_wanted = true;
    at_turn_end(l);
    return sp_marks_next(&l->marks);
}

/* Bytes of the link that the peer has read; of a TCP connection, that its kernel has received. */
static uint64_t count_taken(const struct sp_link *l)
{
    int unread = 0;

    /* Other outputs than sockets, pipes and terminals have no queue. */
    if (ioctl(l->fd_out, l->is_pipe_out ? FIONREAD : SIOCOUTQ, &unread) < 0 || unread < 0)
        unread = 0;
    if (unread == 0 && !has_output(l))
        return UINT64_MAX;
    /* For a unix socket the kernel counts its own overhead, too, which may be more than `written`.
     */
    return l->written > (uint64_t)unread ? l->written - (uint64_t)unread : 0;
}

/* Behind all output of this turn. */
static void make_mark(struct sp_link *l)
{
    uint64_t offset = l->written + SP_WS_MAX_HEADER + SP_MARKS_BYTES + sp_link_queued(l);
    uint8_t payload[SP_MARKS_BYTES];

    for (const struct sp_link_source *s = l->sources; s != NULL; s = s->next)
        offset += (s->left / SP_LINK_FRAGMENT + 1) * SP_WS_MAX_HEADER;
    sp_marks_make(&l->marks, l->phase == FRAMES, offset, link_now(l), payload);
    if (l->phase == FRAMES)
        queue_control(l, SP_WS_PING, payload, sizeof payload);
    arm(l);
}

static void tell_confirmed(struct sp_link *l)
{
    if (sp_marks_are_due(&l->marks))
        at_turn_end(l);
    l->ops->confirmed(l->user, l->marks.confirmed);
}

static void look_at_marks(struct sp_link *l)
{
    const bool pings = l->phase == FRAMES;

    if (!is_link_open(l) || !sp_marks_wants_look(&l->marks, pings, link_now(l)))
        return;
    const bool has_grown = sp_marks_look(&l->marks, pings, count_taken(l), link_now(l));
    arm(l);
    if (has_grown)
        tell_confirmed(l);
}

/* ---- input ---- */

static void hear_messages(struct sp_link *l)
{
    for (int i = 0; is_link_open(l); i++) {
        struct sp_intake_event ev;

        if (i == BUDGET) {
            sp_loop_again(l->host->loop, &l->again, on_again);
            return;
        }
        const enum sp_intake_what what = sp_intake_next(&l->intake, !l->is_paused, &ev);
        l->is_hearing = true;
        switch (what) {
        case SP_INTAKE_MESSAGE:
            l->ops->message(l->user, ev.text, ev.len);
            break;
        case SP_INTAKE_NOT_TEXT:
            l->ops->not_text(l->user);
            break;
        case SP_INTAKE_PING:
            if (!sp_link_is_full(l)) {
                queue_control(l, SP_WS_PONG, ev.text, ev.len);
                break;
            }
            /* Only the newest ping is answered then: pings must not fill memory. */
            l->has_pong = true;
            l->pong_len = (uint8_t)ev.len;
            memcpy(l->pong, ev.text, ev.len);
            break;
        case SP_INTAKE_CLOSE: { /* answered with its own status */
            const unsigned status =
                ev.len == 0 ? NO_STATUS : (unsigned)(uint8_t)ev.text[0] << 8 | (uint8_t)ev.text[1];

            begin_close(l, status,
                        status == SP_WS_GOING_AWAY && l->host->is_client ? sp_link_going_away
                                                                         : "closed by the peer");
            break;
        }
        case SP_INTAKE_BAD:
            begin_close(l, ev.status, ev.why);
            break;
        case SP_INTAKE_PONG: /* receive() has noted that the peer is alive */
            if (sp_marks_pong(&l->marks, ev.text, ev.len))
                tell_confirmed(l);
            break;
        case SP_INTAKE_MORE:
        case SP_INTAKE_HELD:
            break;
        }
        l->is_hearing = false;
        if (what == SP_INTAKE_MORE || what == SP_INTAKE_HELD)
            return;
    }
}

static void begin_frames(struct sp_link *l)
{
    l->phase = FRAMES;
    l->intake.mode = SP_INTAKE_FRAMES;
    l->outq.fragment = SP_LINK_FRAGMENT;
    l->ping_ms = l->host->ping_every_ms == 0 ? 0 : link_now(l) + l->host->ping_every_ms;
    arm(l);
    at_turn_end(l);
}

static void hear_request(struct sp_link *l)
{
    const struct sp_str bytes = sp_intake_peek(&l->intake);
    struct sp_http_request r;
    struct sp_http_answer refusal = {.status = 400};
    auto_buf struct sp_buf out = {0};
    bool is_upgrade = false;
    const char *why = "not a request we can read";

    switch (sp_http_parse(&l->parser, bytes.p, bytes.n, &r)) {
    case SP_HTTP_MORE:
        return;
    case SP_HTTP_DONE:
        is_upgrade = l->host->request(l->host->user, l, &r, &out);
        sp_intake_skip(&l->intake, r.head_len);
        why = "request answered";
        break;
    case SP_HTTP_TOO_BIG:
        refusal.status = 431;
        /* fall through */
    case SP_HTTP_BAD:
        if (!sp_http_write(&out, &refusal))
            drop_link(l, "no memory");
        break;
    }
    if (!sp_outq_raw(&l->outq, out.data, out.len))
        drop_link(l, "no memory");
    else if (!is_upgrade)
        begin_close(l, 0, why);
    else if (l->phase == HTTP) /* host.request may have closed the link */
        begin_frames(l);
}

/* Reads the answer to a client's upgrade request. Bytes after the answer are frames already. */
static void hear_answer(struct sp_link *l, bool is_end)
{
    struct sp_link_asked *a = l->asked;
    size_t len;

    switch (sp_upgrade_read(&a->upgrade, sp_intake_peek(&l->intake), is_end, &len, a->why,
                            sizeof a->why)) {
    case SP_UPGRADE_MORE:
        break;
    case SP_UPGRADE_REFUSED:
        a->is_refused = true;
        drop_link(l, a->why);
        break;
    case SP_UPGRADE_ENDED:
        drop_link(l, "the server left without an answer to the upgrade");
        break;
    case SP_UPGRADE_DONE:
        sp_intake_skip(&l->intake, len);
        a->is_told = true;
        if (!l->host->opened(l->host->user, l))
            drop_link(l, "refused");
        else if (l->phase == HTTP) /* opened may have closed the link */
            begin_frames(l);
        break;
    }
}

static void begin_lines(struct sp_link *l)
{
    l->kind = SP_LINK_LINES;
    if (!l->host->opened(l->host->user, l)) {
        drop_link(l, "refused");
        return;
    }
    if (l->phase != SNIFF) /* opened has closed the link */
        return;
    l->phase = LINES;
    l->intake.mode = SP_INTAKE_LINES;
}

static void hear_end(struct sp_link *l)
{
    l->has_ended = true;
    if (l->phase == HTTP && l->asked != NULL)
        hear_answer(l, true);
    if (!is_link_open(l)) {
        drop_link(l, "the peer left early");
        return;
    }
    if (!l->host->is_client)
        sp_intake_finish(&l->intake);
    hear_messages(l);
    begin_close(l, 0, "closed by the peer");
}

/* Small messages are not counted: the number of links bounds them. */
static void count_unfinished(struct sp_link *l)
{
    const size_t n = sp_intake_size(&l->intake);
    const size_t counted = n > SP_LINK_MAX_FIRST ? n : 0;

    l->host->unfinished += counted - l->unfinished;
    l->unfinished = counted;
}

/* Ends the processing of received bytes. If all links together hold too many unfinished bytes, the
 * largest closes, which lets the others finish; not reading could block all of them. */
static void settle(struct sp_link *l)
{
    const struct sp_link_host *h = l->host;
    struct sp_link *largest = NULL;

    if (!sp_intake_settle(&l->intake)) {
        sp_intake_done(&l->intake);
        drop_link(l, "no memory");
    }
    count_unfinished(l);
    if (l->unfinished != 0 && h->max_unfinished != 0 && h->unfinished > h->max_unfinished)
        for (struct sp_link *i = h->first; i != NULL; i = i->next)
            if (is_link_open(i) && (largest == NULL || i->unfinished > largest->unfinished))
                largest = i;
    if (largest != NULL) {
        begin_close(largest, SP_WS_TOO_BIG, "too much unfinished input of all connections");
        sp_intake_done(&largest->intake);
        count_unfinished(largest);
    }
    if (sp_intake_is_idle(&l->intake))
        at_turn_end(l); /* sets the timer that frees the buffer */
}

/* Receives once: epoll is level-triggered, and reports the rest again. */
static void receive(struct sp_link *l)
{
    size_t room;
    char *to = sp_intake_room(&l->intake, l->host->scratch, &room);

    if (to == NULL) {
        drop_link(l, "no memory");
        return;
    }
    const ssize_t n =
        l->is_socket_in ? recv(l->fd_in, to, room, MSG_DONTWAIT) : read(l->fd_in, to, room);
    if (n > 0) {
        l->host->bytes_in += (uint64_t)n;
        l->was_used = true;
        note_alive(l);
        sp_intake_added(&l->intake, (size_t)n);

        const struct sp_str bytes = sp_intake_peek(&l->intake);
        if (l->phase == SNIFF && bytes.n != 0 && (bytes.p[0] < 'A' || bytes.p[0] > 'Z')) {
            begin_lines(l);
        } else if (l->phase == SNIFF && bytes.n != 0) {
            l->phase = HTTP;
            l->deadline_ms = link_now(l) + l->host->handshake_ms;
            arm(l);
        }
        if (l->phase == HTTP && l->asked != NULL)
            hear_answer(l, false);
        else if (l->phase == HTTP)
            hear_request(l);
        if (is_link_open(l))
            hear_messages(l);
    } else if (n == 0 || errno == EIO) { /* EIO: a terminal that was hung up */
        hear_end(l);
    } else if (errno != EAGAIN && errno != EINTR) {
        drop_link(l, "the connection broke");
    }
    settle(l);
}

/* While paused a little is still read, to notice the end of the stream. */
static bool wants_more(const struct sp_link *l)
{
    return !l->is_paused || sp_intake_size(&l->intake) < AHEAD;
}

static void on_in(struct sp_watch *w, uint32_t events)
{
    struct sp_link *l = SP_CONTAINER(w, struct sp_link, in);
    const bool is_broken = (events & (EPOLLHUP | EPOLLERR)) != 0;

    if ((events & EPOLLOUT) != 0)
        on_writable(l);
    if (l->phase == GONE || (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0)
        return;
    if (l->phase == LINGER) {
        const ssize_t n = recv(l->fd_in, l->host->scratch, SP_INTAKE_SCRATCH, MSG_DONTWAIT);

        if (n > 0)
            l->lingered += (size_t)n;
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) || l->lingered > LINGER_BYTES)
            drop_link(l, l->why);
    } else if (l->phase == CLOSING) {
        if (is_broken)
            drop_link(l, l->why);
    } else if (l->again.is_queued) {
        return; /* process the received messages first */
    } else if (wants_more(l)) {
        receive(l);
    } else if (is_broken) {
        drop_link(l, "the connection broke");
    } else {
        l->is_held_back = true;
        at_turn_end(l);
    }
}

/* Continues with messages above the budget, those of a pause, or a regular file. */
static void on_again(struct sp_deferred *d)
{
    struct sp_link *l = SP_CONTAINER(d, struct sp_link, again);

    if (!is_link_open(l))
        return;
    hear_messages(l);
    settle(l);
    if (is_link_open(l) && l->is_file_in && !l->again.is_queued && wants_more(l)) {
        receive(l);
        sp_loop_again(l->host->loop, &l->again, on_again);
    }
}

/* ---- closing ---- */

static void queue_close_frame(struct sp_link *l)
{
    const uint8_t payload[2] = {(uint8_t)(l->close_status >> 8), (uint8_t)l->close_status};

    if (l->close_status == 0)
        return;
    (void)sp_outq_control(&l->outq, SP_WS_CLOSE, payload, l->close_status == NO_STATUS ? 0 : 2);
    l->close_status = 0; /* out of memory: the peer sees the end of the stream */
}

/* The last callback: ops.closed, or host.failed of a client's link that never opened. */
static void tell_closed(struct sp_link *l)
{
    const struct sp_link_ops *ops = l->ops;
    struct sp_link_asked *a = l->asked;

    if (a != NULL && !a->is_told) {
        a->is_told = true;
        l->host->failed(l->host->user, a->is_refused, a->why[0] != 0 ? a->why : l->why);
    }
    if (ops == NULL)
        return;
    l->ops = NULL;
    l->host->open--;
    ops->closed(l->user, l->why);
}

static void destroy_link(struct sp_link *l)
{
    struct sp_link_host *h = l->host;

    sp_loop_unwatch(h->loop, &l->in);
    sp_loop_unwatch(h->loop, &l->out);
    sp_loop_cancel(h->loop, &l->tick);
    sp_loop_undefer(h->loop, &l->turn_end);
    sp_loop_undefer(h->loop, &l->again);
    if (l->flags_in >= 0) /* fails if the caller has closed it */
        (void)fcntl(l->fd_in, F_SETFL, l->flags_in);
    if (l->flags_out >= 0)
        (void)fcntl(l->fd_out, F_SETFL, l->flags_out);
    if (!l->is_pair)
        (void)close(l->fd_in);
    if (l->owns_out)
        (void)close(l->fd_out);
    sp_intake_done(&l->intake);
    count_unfinished(l);
    while (l->sources != NULL)
        end_source(l);
    sp_outq_done(&l->outq);
    free(l->asked);
    *l->at = l->next;
    if (l->next != NULL)
        l->next->at = l->at;
    h->total--;
    free(l);
    if (h->gone != NULL)
        h->gone(h->user);
}

/* ---- the end of each turn ---- */

static void set_watch(struct sp_link *l, struct sp_watch *w, int fd, uint32_t events,
                      void (*fn)(struct sp_watch *, uint32_t))
{
    struct sp_err e;

    if (events == 0)
        sp_loop_unwatch(l->host->loop, w);
    else if (w->fn != NULL)
        sp_loop_rewatch(l->host->loop, w, events);
    else if (sp_loop_watch(l->host->loop, w, fd, events, fn, &e) < 0)
        drop_link(l, "cannot be watched");
}

static void on_out(struct sp_watch *w, uint32_t events)
{
    (void)events; /* the write reports errors */
    on_writable(SP_CONTAINER(w, struct sp_link, out));
}

static void update_watch(struct sp_link *l)
{
    const bool reads = l->phase == LINGER || (l->phase < CLOSING && !l->is_held_back);
    const uint32_t in = reads ? EPOLLIN : 0;
    const uint32_t out = l->is_blocked && l->phase < LINGER ? EPOLLOUT : 0;

    if (l->phase == GONE)
        return;
    if (!l->is_pair) {
        sp_loop_rewatch(l->host->loop, &l->in, in | out);
        return;
    }
    if (!l->is_file_in)
        set_watch(l, &l->in, l->fd_in, in, on_in);
    if (l->phase != GONE)
        set_watch(l, &l->out, l->fd_out, out, on_out);
}

/* Runs once after all callbacks of a turn in which the link has changed, so that many small
 * messages are one send and one epoll_ctl. The order matters: the close frame goes behind all
 * output, watches follow what the send left, and ops.closed, which frees the layer above, comes
 * last. */
static void on_turn_end(struct sp_deferred *d)
{
    struct sp_link *l = SP_CONTAINER(d, struct sp_link, turn_end);

    if (l->wants_ping && l->phase == FRAMES) {
        l->wants_ping = false;
        queue_control(l, SP_WS_PING, NULL, 0);
    }
    if (is_link_open(l) && sp_marks_are_due(&l->marks))
        make_mark(l);
    if (l->phase == CLOSING)
        queue_close_frame(l);
    flush(l);
    tell_drained(l);
    look_at_marks(l);
    /* All output is with the kernel. close() on a socket with unread input sends a reset, and the
     * peer would lose that output: so input is read and dropped for a while. */
    if (l->phase == CLOSING && !has_output(l)) {
        if (l->is_pair || l->has_ended || shutdown(l->fd_out, SHUT_WR) < 0) {
            drop_link(l, l->why);
        } else {
            l->phase = LINGER;
            l->deadline_ms = link_now(l) + LINGER_MS;
            arm(l);
        }
    }
    update_watch(l);
    const bool has_idle_memory =
        (l->outq.data != NULL && sp_outq_size(&l->outq) == 0) || sp_intake_is_idle(&l->intake);
    if (is_link_open(l) && l->release_ms == 0 && has_idle_memory) {
        l->release_ms = link_now(l) + RELEASE_MS;
        arm(l);
    }
    if (l->phase >= LINGER)
        tell_closed(l);
    if (l->phase == GONE)
        destroy_link(l);
}

static void on_tick(struct sp_timer *t)
{
    struct sp_link *l = SP_CONTAINER(t, struct sp_link, tick);
    const uint64_t now = link_now(l);

    if (l->phase == HTTP)
        drop_link(l, "the handshake took too long");
    else if (!is_link_open(l))
        drop_link(l, l->why);
    if (l->is_held_back) /* we do not read, so silence means nothing */
        l->heard_ms = now;
    /* The answer to the ping may be behind the messages that we do not read. A peer that does not
     * read either (is_blocked) shows no life at all. */
    if (l->is_held_back && !l->is_blocked && l->challenge_ms != 0)
        l->challenge_ms = now + CHALLENGE_MS;
    if (l->phase == FRAMES &&
        ((l->challenge_ms != 0 && now >= l->challenge_ms) ||
         (l->host->silence_ms != 0 && now - l->heard_ms >= l->host->silence_ms)))
        drop_link(l, "no sign of life");
    if (!is_link_open(l))
        return;
    if (l->ping_ms != 0 && now >= l->ping_ms) {
        l->ping_ms = now + l->host->ping_every_ms;
        l->wants_ping = true;
        at_turn_end(l);
    }
    if (l->marks.look_ms != 0 && now >= l->marks.look_ms)
        at_turn_end(l); /* looks, and sets the next time */
    if (l->release_ms != 0 && now >= l->release_ms) {
        l->release_ms = now + RELEASE_MS;
        if (!l->was_used) {
            l->release_ms = 0;
            if (sp_outq_size(&l->outq) == 0)
                sp_outq_done(&l->outq);
            if (sp_intake_is_idle(&l->intake))
                sp_intake_done(&l->intake);
        }
        l->was_used = false;
    }
    arm(l);
}

/* ---- for the layer above ---- */

void sp_link_pause(struct sp_link *l, bool is_paused)
{
    if (l->is_paused == is_paused)
        return;
    l->is_paused = is_paused;
    if (is_paused || !is_link_open(l))
        return;
    if (l->is_held_back) {
        l->is_held_back = false;
        at_turn_end(l);
    }
    if (!l->is_hearing && (l->is_file_in || sp_intake_size(&l->intake) != 0))
        sp_loop_again(l->host->loop, &l->again, on_again);
}

void sp_link_close(struct sp_link *l, const char *why)
{
    begin_close(l, SP_WS_NORMAL, why);
}

void sp_link_challenge(struct sp_link *l)
{
    if (l->phase != FRAMES || l->challenge_ms != 0)
        return;
    l->challenge_ms = link_now(l) + CHALLENGE_MS;
    l->wants_ping = true;
    arm(l);
    at_turn_end(l);
}

enum sp_link_kind sp_link_kind(const struct sp_link *l)
{
    return (enum sp_link_kind)l->kind;
}

bool sp_link_peer_process(const struct sp_link *l, pid_t *ret_pid, uid_t *ret_uid)
{
    struct ucred peer = {0};
    socklen_t len = sizeof peer;

    if (getsockopt(l->fd_in, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || peer.pid <= 0)
        return false;
    *ret_pid = peer.pid;
    *ret_uid = peer.uid;
    return true;
}

const char *sp_link_peer(const struct sp_link *l)
{
    return l->peer;
}

/* ---- new links ---- */

void sp_link_widen(struct sp_link *l)
{
    l->intake.max_message = l->host->max_line != 0 ? l->host->max_line : SP_LINK_MAX_MESSAGE;
}

static struct sp_link *make_link(struct sp_link_host *h, int in, int out, const char *peer)
{
    struct sp_link *l = calloc(1, sizeof *l);

    if (l == NULL)
        return NULL;
    l->host = h;
    l->fd_in = in;
    l->fd_out = out;
    l->flags_in = l->flags_out = -1;
    l->heard_ms = sp_loop_now(h->loop);
    l->intake = (struct sp_intake){.role = SP_WS_SERVER,
                                   .max_frame = SP_LINK_MAX_FRAME,
                                   .max_message = SP_LINK_MAX_FIRST,
                                   .keeps_on = h->keeps_on};
    if (!h->is_narrow)
        sp_link_widen(l);
    (void)snprintf(l->peer, sizeof l->peer, "%s", peer);
    l->at = &h->first;
    l->next = h->first;
    if (l->next != NULL)
        l->next->at = &l->next;
    h->first = l;
    h->total++;
    return l;
}

/* Makes room for a new link: drops the oldest one without ops, which is in its HTTP head, or was
 * answered and lingers. Peers that have not authenticated cannot keep others out that way. */
static bool evict(const struct sp_link_host *h)
{
    struct sp_link *oldest = NULL;

    for (struct sp_link *l = h->first; l != NULL; l = l->next) /* the newest is first */
        if (l->ops == NULL && l->phase != GONE)
            oldest = l;
    if (oldest != NULL)
        drop_link(oldest, "displaced by a newer connection");
    return oldest != NULL;
}

/* Over a connected socket, which is closed if there is no memory for the link. */
static struct sp_link *make_socket_link(struct sp_link_host *h, int fd, enum sp_link_phase phase,
                                        const char *peer, struct sp_err *e)
{
    struct sp_link *l = make_link(h, fd, fd, peer);

    if (l == NULL) {
        (void)close(fd);
        (void)sp_fail(e, SP_E_SYSTEM, ENOMEM, "open connection");
        return NULL;
    }
    l->is_socket_in = l->is_socket_out = true;
    l->kind = SP_LINK_WEBSOCKET;
    l->phase = (uint8_t)phase;
    l->deadline_ms = sp_loop_now(h->loop) + h->handshake_ms;
    return l;
}

int sp_link_new(struct sp_link_host *h, int fd, enum sp_link_start start, const char *peer,
                struct sp_err *e)
{
    if (h->max_total != 0 && h->total >= h->max_total && !evict(h)) {
        (void)close(fd);
        return sp_fail(e, SP_E_LIMIT, 0, "too many connections");
    }
    struct sp_link *l =
        make_socket_link(h, fd, start == SP_LINK_START_HTTP ? HTTP : SNIFF, peer, e);

    if (l == NULL)
        return -SP_E_SYSTEM;
    const int r = sp_loop_watch(h->loop, &l->in, fd, EPOLLIN, on_in, e);
    if (r < 0)
        drop_link(l, "cannot be watched"); /* freed at the end of the turn */
    arm(l);
    return r;
}

/* Only pipes: sockets have MSG_DONTWAIT, and O_NONBLOCK on a terminal would affect our parent. */
static int make_nonblocking(int fd, bool *ret_is_socket, bool *ret_is_pipe)
{
    struct stat st = {0};
    const int flags = fcntl(fd, F_GETFL);

    *ret_is_socket = fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode);
    *ret_is_pipe = S_ISFIFO(st.st_mode);
    if (flags < 0 || !*ret_is_pipe || (flags & O_NONBLOCK) != 0 ||
        fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return -1;
    return flags;
}

int sp_link_new_pair(struct sp_link_host *h, int in, int out, const char *peer, struct sp_err *e)
{
    struct sp_link *l = make_link(h, in, out, peer);
    char path[40];

    if (l == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "open connection");
    l->is_pair = true;
    l->phase = SNIFF;
    bool is_pipe_in;
    l->flags_in = make_nonblocking(in, &l->is_socket_in, &is_pipe_in);
    l->flags_out = make_nonblocking(out, &l->is_socket_out, &l->is_pipe_out);
    if (isatty(out) == 1) { /* opened again, with O_NONBLOCK for the new description only */
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", out);
        const int own = open(path, O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
        if (own >= 0) {
            l->fd_out = own;
            l->owns_out = true;
        }
    }
    begin_lines(l);
    if (l->phase != LINES)
        return 0;

    struct sp_err why;
    if (sp_loop_watch(h->loop, &l->in, in, EPOLLIN, on_in, &why) < 0) {
        l->is_file_in = why.sys == EPERM; /* epoll refuses regular files, which are always ready */
        if (l->is_file_in)
            sp_loop_again(h->loop, &l->again, on_again);
        else
            begin_close(l, 0, "the input cannot be watched");
    }
    return 0;
}

/* ---- the link of a client ---- */

int sp_link_new_client(struct sp_link_host *h, int fd, const struct sp_upgrade *ask,
                       const char *peer, struct sp_err *e)
{
    struct sp_link *l = make_socket_link(h, fd, ask != NULL ? HTTP : SNIFF, peer, e);

    if (l == NULL)
        return -SP_E_SYSTEM;
    /* Servers may send a message in one frame of any size. */
    l->intake = (struct sp_intake){
        .role = SP_WS_CLIENT, .max_frame = SP_LINK_MAX_MESSAGE, .max_message = SP_LINK_MAX_MESSAGE};
    if (ask != NULL) {
        auto_buf struct sp_buf out = {0};
        bool is_asked = false;

        l->asked = calloc(1, sizeof *l->asked);
        if (l->asked != NULL) {
            l->asked->upgrade = *ask;
            is_asked = sp_upgrade_write(&l->asked->upgrade, &out) &&
                       sp_outq_raw(&l->outq, out.data, out.len);
            l->asked->upgrade.token = NULL; /* borrowed */
        }
        if (out.data != NULL)
            explicit_bzero(out.data, out.len);
        if (!is_asked) {
            free(TAKE_PTR(l->asked)); /* the return value reports this, not host.failed */
            drop_link(l, "no memory");
            return sp_fail(e, SP_E_SYSTEM, ENOMEM, "open connection");
        }
        l->outq.is_masked = true;
    }
    const int r = sp_loop_watch(h->loop, &l->in, fd, EPOLLIN, on_in, e);
    if (r < 0) {
        free(TAKE_PTR(l->asked));
        drop_link(l, "cannot be watched");
        return r;
    }
    arm(l);
    at_turn_end(l); /* sends the request */
    if (ask == NULL)
        begin_lines(l);
    return 0;
}

bool sp_link_turn(struct sp_link *l, int timeout_ms)
{
    if (!is_link_open(l))
        return false;
    flush(l);
    if (l->again.is_queued) { /* input is left from the last callback */
        sp_loop_undefer(l->host->loop, &l->again);
        on_again(&l->again);
        return true;
    }
    struct pollfd at[2] = {{.fd = l->fd_in, .events = POLLIN},
                           {.fd = l->fd_out, .events = l->is_blocked ? POLLOUT : 0}};
    if (l->phase == GONE || poll(at, 2, timeout_ms) <= 0)
        return true;
    if ((at[1].revents & POLLOUT) != 0)
        on_writable(l);
    if (l->phase != GONE && (at[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0)
        on_in(&l->in, EPOLLIN | (at[0].revents & POLLERR ? EPOLLERR : 0));
    return true;
}

/* ---- for the host ---- */

void sp_link_serve(struct sp_link *l, const struct sp_link_ops *ops, void *user)
{
    l->ops = ops;
    l->user = user;
    l->host->open++;
}

void sp_link_end_now(struct sp_link *l, const char *why)
{
    if (is_link_open(l)) {
        sp_outq_commit(&l->outq, 0, true, true);
        begin_close(l, SP_WS_GOING_AWAY, why);
        queue_close_frame(l);
        flush(l);
    }
    if (l->why == NULL)
        l->why = why;
    tell_closed(l);
    destroy_link(l);
}

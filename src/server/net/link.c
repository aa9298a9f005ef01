/* SPDX-License-Identifier: Apache-2.0 */
#include "server/net/link.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "server/net/link_priv.h"

#define CLOSE_MS     2000U
#define CHALLENGE_MS 2000U
#define LINGER_MS    2000U
#define RELEASE_MS   1000U /* unused buffers are kept for so long */

static void on_tick(struct sp_timer *t);
static void on_turn_end(struct sp_deferred *d);

void sp_link_at_turn_end(struct sp_link *l)
{
    sp_loop_defer(l->host->loop, &l->turn_end, on_turn_end);
}

void sp_link_drop(struct sp_link *l, const char *why)
{
    if (l->phase == GONE)
        return;
    if (l->why == NULL)
        l->why = why;
    l->phase = GONE;
    sp_loop_unwatch(l->host->loop, &l->in);
    sp_loop_unwatch(l->host->loop, &l->out);
    sp_link_at_turn_end(l);
}

/* ---- time ---- */

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return b != 0 && b < a ? b : a;
}

static uint64_t next_due(const struct sp_link *l)
{
    uint64_t due = UINT64_MAX;

    switch ((enum sp_link_phase)l->phase) {
    case HTTP:
    case CLOSING:
    case LINGER:
        return l->deadline_ms;
    case FRAMES:
        if (l->host->silence_ms != 0)
            due = l->heard_ms + l->host->silence_ms;
        due = earlier(earlier(due, l->ping_ms), l->challenge_ms);
        return earlier(due, l->release_ms);
    case LINES:
        return earlier(due, l->release_ms);
    case SNIFF:
    case GONE:
        break;
    }
    return due;
}

void sp_link_arm(struct sp_link *l)
{
    const uint64_t due = next_due(l);

    if (due == UINT64_MAX)
        sp_loop_cancel(l->host->loop, &l->tick);
    else if (!sp_loop_timer(l->host->loop, &l->tick, due, on_tick))
        sp_link_drop(l, "no memory");
}

/* ---- closing ---- */

/* status: of the close frame, if frames are spoken. */
void sp_link_begin_close(struct sp_link *l, unsigned status, const char *why)
{
    if (l->phase >= CLOSING)
        return;
    l->close_status = l->phase == FRAMES ? (uint16_t)status : 0;
    l->why = why;
    l->phase = CLOSING;
    l->deadline_ms = sp_link_now(l) + CLOSE_MS;
    sp_link_arm(l);
    sp_link_at_turn_end(l);
}

static void queue_close_frame(struct sp_link *l)
{
    const uint8_t payload[2] = {(uint8_t)(l->close_status >> 8), (uint8_t)l->close_status};

    if (l->close_status == 0)
        return;
    (void)sp_outq_control(&l->outq, SP_WS_CLOSE, payload,
                          l->close_status == SP_LINK_NO_STATUS ? 0 : 2);
    l->close_status = 0; /* without memory for it, the end of the stream says the same */
}

/* Everything is with the kernel. Closing a socket with unread input would destroy it there. */
static void begin_linger(struct sp_link *l)
{
    if (l->is_pair || l->has_ended || shutdown(l->fd_out, SHUT_WR) < 0) {
        sp_link_drop(l, l->why);
        return;
    }
    l->phase = LINGER;
    l->deadline_ms = sp_link_now(l) + LINGER_MS;
    sp_link_arm(l);
}

static void tell_closed(struct sp_link *l)
{
    const struct sp_link_ops *ops = l->ops;

    sp_link_tell_failed(l);
    if (ops == NULL)
        return;
    l->ops = NULL;
    l->host->open--;
    ops->closed(l->user, l->why);
}

static void restore_flags(int fd, int flags)
{
    if (flags >= 0)
        (void)fcntl(fd, F_SETFL, flags); /* the descriptor may be gone; then nobody minds */
}

static void destroy(struct sp_link *l)
{
    struct sp_link_host *h = l->host;

    sp_loop_unwatch(h->loop, &l->in);
    sp_loop_unwatch(h->loop, &l->out);
    sp_loop_cancel(h->loop, &l->tick);
    sp_loop_undefer(h->loop, &l->turn_end);
    sp_loop_undefer(h->loop, &l->again);
    restore_flags(l->fd_in, l->flags_in);
    restore_flags(l->fd_out, l->flags_out);
    if (!l->is_pair)
        (void)close(l->fd_in);
    if (l->owns_out)
        (void)close(l->fd_out);
    sp_intake_done(&l->intake);
    sp_link_count_unfinished(l);
    sp_link_end_sources(l);
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

static void watch(struct sp_link *l, struct sp_watch *w, int fd, uint32_t events,
                  void (*fn)(struct sp_watch *, uint32_t))
{
    struct sp_err e;

    if (events == 0)
        sp_loop_unwatch(l->host->loop, w);
    else if (w->fn != NULL)
        sp_loop_rewatch(l->host->loop, w, events);
    else if (sp_loop_watch(l->host->loop, w, fd, events, fn, &e) < 0)
        sp_link_drop(l, "cannot be watched");
}

static void on_out(struct sp_watch *w, uint32_t events)
{
    (void)events; /* broken or writable: writing tells */
    sp_link_on_writable(SP_CONTAINER(w, struct sp_link, out));
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
        watch(l, &l->in, l->fd_in, in, sp_link_on_in);
    if (l->phase != GONE)
        watch(l, &l->out, l->fd_out, out, on_out);
}

static bool has_idle_memory(const struct sp_link *l)
{
    return (l->outq.data != NULL && sp_outq_size(&l->outq) == 0) || sp_intake_is_idle(&l->intake);
}

static void on_turn_end(struct sp_deferred *d)
{
    struct sp_link *l = SP_CONTAINER(d, struct sp_link, turn_end);

    if (l->wants_ping && l->phase == FRAMES) {
        l->wants_ping = false;
        sp_link_queue_control(l, SP_WS_PING, NULL, 0);
    }
    if (l->phase == CLOSING)
        queue_close_frame(l);
    sp_link_flush(l);
    sp_link_tell_drained(l);
    if (l->phase == CLOSING && !sp_link_has_output(l))
        begin_linger(l);
    update_watch(l);
    if (sp_link_is_open(l) && l->release_ms == 0 && has_idle_memory(l)) {
        l->release_ms = sp_link_now(l) + RELEASE_MS;
        sp_link_arm(l);
    }
    if (l->phase >= LINGER)
        tell_closed(l);
    if (l->phase == GONE)
        destroy(l);
}

static void release(struct sp_link *l)
{
    const bool was_used = l->was_used;

    l->was_used = false;
    l->release_ms = sp_link_now(l) + RELEASE_MS;
    if (was_used)
        return;
    if (sp_outq_size(&l->outq) == 0)
        sp_outq_done(&l->outq);
    if (sp_intake_is_idle(&l->intake))
        sp_intake_release(&l->intake);
    l->release_ms = 0;
}

static void tick_frames(struct sp_link *l)
{
    const uint64_t now = sp_link_now(l);

    if (l->is_held_back) /* we are the deaf ones */
        l->heard_ms = now;
    if ((l->challenge_ms != 0 && now >= l->challenge_ms) ||
        (l->host->silence_ms != 0 && now - l->heard_ms >= l->host->silence_ms)) {
        sp_link_drop(l, "no sign of life");
        return;
    }
    if (l->ping_ms != 0 && now >= l->ping_ms) {
        l->ping_ms = now + l->host->ping_every_ms;
        l->wants_ping = true;
        sp_link_at_turn_end(l);
    }
}

static void on_tick(struct sp_timer *t)
{
    struct sp_link *l = SP_CONTAINER(t, struct sp_link, tick);

    if (l->phase == HTTP)
        sp_link_drop(l, "the handshake took too long");
    else if (!sp_link_is_open(l))
        sp_link_drop(l, l->why);
    if (l->phase == FRAMES)
        tick_frames(l);
    if (sp_link_is_open(l) && l->release_ms != 0 && sp_link_now(l) >= l->release_ms)
        release(l);
    if (sp_link_is_open(l))
        sp_link_arm(l);
}

/* ---- for the layer above ---- */

void sp_link_pause(struct sp_link *l, bool is_paused)
{
    if (l->is_paused == is_paused)
        return;
    l->is_paused = is_paused;
    if (is_paused || !sp_link_is_open(l))
        return;
    if (l->is_held_back) {
        l->is_held_back = false;
        sp_link_at_turn_end(l);
    }
    if (!l->is_hearing && (l->is_file_in || sp_intake_size(&l->intake) != 0))
        sp_loop_again(l->host->loop, &l->again, sp_link_on_again);
}

void sp_link_close(struct sp_link *l, const char *why)
{
    sp_link_begin_close(l, SP_WS_NORMAL, why);
}

void sp_link_challenge(struct sp_link *l)
{
    if (l->phase != FRAMES || l->challenge_ms != 0)
        return;
    l->challenge_ms = sp_link_now(l) + CHALLENGE_MS;
    l->wants_ping = true;
    sp_link_arm(l);
    sp_link_at_turn_end(l);
}

enum sp_link_kind sp_link_kind(const struct sp_link *l)
{
    return (enum sp_link_kind)l->kind;
}

const char *sp_link_peer(const struct sp_link *l)
{
    return l->peer;
}

/* ---- for the host ---- */

static size_t max_message(const struct sp_link_host *h)
{
    return h->max_line != 0 ? h->max_line : SP_LINK_MAX_MESSAGE;
}

void sp_link_widen(struct sp_link *l)
{
    l->intake.max_message = max_message(l->host);
}

struct sp_link *sp_link_make(struct sp_link_host *h, int in, int out, const char *peer)
{
    struct sp_link *l = calloc(1, sizeof *l);

    if (l == NULL)
        return NULL;
    l->host = h;
    l->fd_in = in;
    l->fd_out = out;
    l->flags_in = l->flags_out = -1;
    l->heard_ms = sp_loop_now(h->loop);
    sp_intake_init(&l->intake, SP_WS_SERVER, SP_LINK_MAX_FRAME,
                   h->is_narrow ? SP_LINK_MAX_FIRST : max_message(h));
    l->intake.keeps_on = h->keeps_on;
    (void)snprintf(l->peer, sizeof l->peer, "%s", peer);
    l->at = &h->first;
    l->next = h->first;
    if (l->next != NULL)
        l->next->at = &l->next;
    h->first = l;
    h->total++;
    return l;
}

int sp_link_new(struct sp_link_host *h, int fd, enum sp_link_start start, const char *peer,
                struct sp_err *e)
{
    struct sp_link *l = sp_link_make(h, fd, fd, peer);

    if (l == NULL) {
        (void)close(fd);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "open connection");
    }
    l->is_socket_in = l->is_socket_out = true;
    l->kind = SP_LINK_WEBSOCKET;
    l->phase = start == SP_LINK_START_HTTP ? HTTP : SNIFF;
    l->deadline_ms = sp_loop_now(h->loop) + h->handshake_ms;
    const int r = sp_loop_watch(h->loop, &l->in, fd, EPOLLIN, sp_link_on_in, e);
    if (r < 0)
        sp_link_drop(l, "cannot be watched"); /* and is freed at the end of the turn */
    sp_link_arm(l);
    return r;
}

/* Pipes alone: sockets have a flag for it, and a terminal is shared with our parent. */
static int make_nonblocking(int fd, bool *ret_is_socket)
{
    struct stat st = {0};
    const int flags = fcntl(fd, F_GETFL);

    *ret_is_socket = fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode);
    if (flags < 0 || *ret_is_socket || !S_ISFIFO(st.st_mode) || (flags & O_NONBLOCK) != 0 ||
        fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return -1;
    return flags;
}

/* A terminal is shared with our parent, so it is not made non-blocking but opened once more. */
static void take_terminal(struct sp_link *l)
{
    char path[40];

    if (isatty(l->fd_out) != 1)
        return;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", l->fd_out);
    const int own = open(path, O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    if (own >= 0) {
        l->fd_out = own;
        l->owns_out = true;
    }
}

int sp_link_new_pair(struct sp_link_host *h, int in, int out, const char *peer, struct sp_err *e)
{
    struct sp_link *l = sp_link_make(h, in, out, peer);

    if (l == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "open connection");
    l->is_pair = true;
    l->phase = SNIFF;
    l->flags_in = make_nonblocking(in, &l->is_socket_in);
    l->flags_out = make_nonblocking(out, &l->is_socket_out);
    take_terminal(l);
    sp_link_begin_lines(l);
    if (l->phase != LINES)
        return 0;

    struct sp_err why;
    if (sp_loop_watch(h->loop, &l->in, in, EPOLLIN, sp_link_on_in, &why) < 0) {
        l->is_file_in = why.sys == EPERM; /* a plain file is always ready, and epoll refuses it */
        if (l->is_file_in)
            sp_loop_again(h->loop, &l->again, sp_link_on_again);
        else
            sp_link_begin_close(l, 0, "the input cannot be watched");
    }
    return 0;
}

void sp_link_serve(struct sp_link *l, const struct sp_link_ops *ops, void *user)
{
    l->ops = ops;
    l->user = user;
    l->host->open++;
}

void sp_link_end_now(struct sp_link *l, const char *why)
{
    if (sp_link_is_open(l)) {
        sp_outq_commit(&l->outq, 0);
        sp_link_begin_close(l, SP_WS_GOING_AWAY, why);
        queue_close_frame(l);
        sp_link_flush(l);
    }
    if (l->why == NULL)
        l->why = why;
    tell_closed(l);
    destroy(l);
}

struct sp_link *sp_link_next(const struct sp_link *l)
{
    return l->next;
}

bool sp_link_evict(const struct sp_link_host *h)
{
    struct sp_link *oldest = NULL;

    for (struct sp_link *l = h->first; l != NULL; l = l->next) /* the newest is first */
        if (l->ops == NULL && l->phase != GONE)
            oldest = l;
    if (oldest != NULL)
        sp_link_drop(oldest, "displaced by a newer connection");
    return oldest != NULL;
}

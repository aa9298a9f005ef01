/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link: the life of a connection: how it begins (as a server or a client), its timers, the end of
 * each turn, and how it closes. Input is in link_in.c, output in link_out.c.
 */
#include "server/net/link.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
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
#define RELEASE_MS   1000U /* unused buffers are freed after this time */

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

/* status: of the close frame, in phase FRAMES. */
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
    l->close_status = 0; /* out of memory: the peer sees the end of the stream */
}

/* All output is with the kernel. close() on a socket with unread input sends a reset, and the peer
 * would lose that output: so input is read and dropped for a while. */
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

/* For a client's link that never opened. */
static void tell_failed(struct sp_link *l)
{
    struct sp_link_asked *a = l->asked;

    if (a == NULL || a->is_told)
        return;
    a->is_told = true;
    l->host->failed(l->host->user, a->is_refused, a->why[0] != 0 ? a->why : l->why);
}

static void tell_closed(struct sp_link *l)
{
    const struct sp_link_ops *ops = l->ops;

    tell_failed(l);
    if (ops == NULL)
        return;
    l->ops = NULL;
    l->host->open--;
    ops->closed(l->user, l->why);
}

static void restore_flags(int fd, int flags)
{
    if (flags >= 0)
        (void)fcntl(fd, F_SETFL, flags); /* fails if the caller has closed it */
}

static void destroy_link(struct sp_link *l)
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

static void set_watch(struct sp_link *l, struct sp_watch *w, int fd, uint32_t events,
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
    (void)events; /* the write reports errors */
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
        set_watch(l, &l->in, l->fd_in, in, sp_link_on_in);
    if (l->phase != GONE)
        set_watch(l, &l->out, l->fd_out, out, on_out);
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
        destroy_link(l);
}

static void release_buffers(struct sp_link *l)
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

    if (l->is_held_back) /* we do not read, so silence means nothing */
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
        release_buffers(l);
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

/* ---- new links ---- */

static size_t max_message(const struct sp_link_host *h)
{
    return h->max_line != 0 ? h->max_line : SP_LINK_MAX_MESSAGE;
}

void sp_link_widen(struct sp_link *l)
{
    l->intake.max_message = max_message(l->host);
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
    struct sp_link *l = make_link(h, fd, fd, peer);

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
        sp_link_drop(l, "cannot be watched"); /* freed at the end of the turn */
    sp_link_arm(l);
    return r;
}

/* Only pipes: sockets have MSG_DONTWAIT, and O_NONBLOCK on a terminal would affect our parent. */
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

/* Opens the terminal again, with O_NONBLOCK for the new description only. */
static void reopen_terminal(struct sp_link *l)
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
    struct sp_link *l = make_link(h, in, out, peer);

    if (l == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "open connection");
    l->is_pair = true;
    l->phase = SNIFF;
    l->flags_in = make_nonblocking(in, &l->is_socket_in);
    l->flags_out = make_nonblocking(out, &l->is_socket_out);
    reopen_terminal(l);
    sp_link_begin_lines(l);
    if (l->phase != LINES)
        return 0;

    struct sp_err why;
    if (sp_loop_watch(h->loop, &l->in, in, EPOLLIN, sp_link_on_in, &why) < 0) {
        l->is_file_in = why.sys == EPERM; /* epoll refuses regular files, which are always ready */
        if (l->is_file_in)
            sp_loop_again(h->loop, &l->again, sp_link_on_again);
        else
            sp_link_begin_close(l, 0, "the input cannot be watched");
    }
    return 0;
}

/* ---- the link of a client ---- */

/* Bytes after the answer are frames already. */
static void begin_upgraded(struct sp_link *l, size_t head_len)
{
    sp_intake_skip(&l->intake, head_len);
    l->asked->is_told = true;
    if (!l->host->opened(l->host->user, l))
        sp_link_drop(l, "refused");
    else if (l->phase == HTTP) /* opened may have closed the link */
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
        begin_upgraded(l, len);
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
    struct sp_link *l = make_link(h, fd, fd, peer);

    if (l == NULL) {
        (void)close(fd);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "open connection");
    }
    l->is_socket_in = l->is_socket_out = true;
    l->kind = SP_LINK_WEBSOCKET;
    /* Servers may send a message in one frame of any size. */
    sp_intake_init(&l->intake, SP_WS_CLIENT, SP_LINK_MAX_MESSAGE, SP_LINK_MAX_MESSAGE);
    l->phase = ask != NULL ? HTTP : SNIFF;
    l->deadline_ms = sp_loop_now(h->loop) + h->handshake_ms;
    if (ask != NULL && !ask_upgrade(l, ask)) {
        free(TAKE_PTR(l->asked)); /* the return value reports this, not host.failed */
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
    sp_link_at_turn_end(l); /* sends the request */
    if (ask == NULL)
        sp_link_begin_lines(l);
    return 0;
}

void sp_link_turn(struct sp_link *l, int timeout_ms)
{
    sp_link_flush(l);
    if (l->again.is_queued) { /* input is left from the last callback */
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

/* ---- for the host ---- */

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
    destroy_link(l);
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

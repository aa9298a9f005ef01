/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link_out: queues and sends messages, sources, and control frames.
 */
#include <assert.h>
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/io.h"
#include "server/net/link_priv.h"

/* Queued bytes that are sent at once, so that a fast reader keeps the same few pages in use. */
#define SEND_AT_ONCE (64U << 10)

static ssize_t send_some(const struct sp_link *l, const char *bytes, size_t size)
{
    if (l->is_socket_out)
        return send(l->fd_out, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    return l->host->is_client ? sp_write_no_sigpipe(l->fd_out, bytes, size)
                              : write(l->fd_out, bytes, size);
}

/* ---- sources ---- */

bool sp_link_has_output(const struct sp_link *l)
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

void sp_link_end_sources(struct sp_link *l)
{
    while (l->sources != NULL)
        end_source(l);
}

static bool make_piece(struct sp_link *l, struct sp_link_source *s)
{
    const size_t max = s->left < SP_LINK_FRAGMENT ? s->left : SP_LINK_FRAGMENT;
    char *room = sp_outq_reserve(&l->piece, max);

    if (room == NULL)
        return false;
    const size_t n = s->write(s, room, max);
    assert(n != 0 && n <= max);
    s->left -= n;
    sp_outq_commit_part(&l->piece, n, !s->is_begun, s->left == 0);
    s->is_begun = true;
    return true;
}

/* A pong goes between two fragments of a long message. */
static bool make_pong(struct sp_link *l)
{
    l->has_pong = false;
    return sp_outq_control(&l->piece, SP_WS_PONG, l->pong, l->pong_len);
}

/* ---- sending ---- */

/* The queue with the next bytes to send, and their number. NULL: no memory. */
static struct sp_outq *next_bytes(struct sp_link *l, size_t *ret_n)
{
    struct sp_link_source *s = l->sources;
    struct sp_outq *q = s == NULL || s->before != 0 ? &l->outq : &l->piece;

    if (q == &l->piece && sp_outq_size(q) == 0 && !(l->has_pong ? make_pong(l) : make_piece(l, s)))
        return NULL;
    *ret_n = sp_outq_size(q);
    if (q == &l->outq && s != NULL && s->before < *ret_n)
        *ret_n = s->before;
    return q;
}

static void note_sent(struct sp_link *l, struct sp_outq *q, size_t n)
{
    struct sp_link_source *s = l->sources;

    l->host->bytes_out += (uint64_t)n;
    sp_outq_sent(q, n);
    if (s != NULL && q == &l->outq)
        s->before -= n;
    else if (s != NULL && s->left == 0 && sp_outq_size(q) == 0)
        end_source(l);
}

/* Sends until the queue is empty or the kernel takes no more. */
void sp_link_flush(struct sp_link *l)
{
    while (!l->is_blocked && l->phase < LINGER && sp_link_has_output(l)) {
        size_t size = 0;
        struct sp_outq *q = next_bytes(l, &size);

        if (q == NULL) {
            sp_link_drop(l, "no memory");
            return;
        }
        ssize_t n = send_some(l, q->data + q->start, size);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN) {
            sp_link_drop(l, "the peer is gone");
            return;
        }
        if (n < 0)
            n = 0;
        l->is_blocked = (size_t)n < size;
        note_sent(l, q, (size_t)n);
    }
}

static void note_full(struct sp_link *l)
{
    l->was_used = true;
    if (sp_link_is_full(l))
        l->was_full = true;
    sp_link_at_turn_end(l);
}

void sp_link_queue_control(struct sp_link *l, enum sp_ws_opcode opcode, const void *bytes, size_t n)
{
    if (!sp_outq_control(&l->outq, opcode, bytes, n))
        sp_link_drop(l, "no memory");
    note_full(l);
}

/* While the queue is full, only the newest ping is answered: pings must not fill memory. */
void sp_link_answer_ping(struct sp_link *l, const char *payload, size_t n)
{
    if (!sp_link_is_full(l)) {
        sp_link_queue_control(l, SP_WS_PONG, payload, n);
        return;
    }
    l->has_pong = true;
    l->pong_len = (uint8_t)n;
    memcpy(l->pong, payload, n);
}

void sp_link_tell_drained(struct sp_link *l)
{
    if (!sp_link_is_open(l) || l->sources != NULL || sp_outq_size(&l->outq) > SP_LINK_FULL / 2)
        return;
    if (l->has_pong) {
        l->has_pong = false;
        sp_link_queue_control(l, SP_WS_PONG, l->pong, l->pong_len);
    }
    if (l->was_full) {
        l->was_full = false;
        l->ops->drained(l->user);
    }
}

void sp_link_on_writable(struct sp_link *l)
{
    l->is_blocked = false;
    sp_link_heard(l); /* the peer has taken output */
    sp_link_flush(l);
    sp_link_tell_drained(l);
    sp_link_at_turn_end(l);
}

char *sp_link_reserve(struct sp_link *l, size_t max)
{
    if (!sp_link_is_open(l))
        return NULL;
    char *room = sp_outq_reserve(&l->outq, max);
    if (room == NULL)
        sp_link_drop(l, "no memory");
    return room;
}

void sp_link_commit(struct sp_link *l, size_t len)
{
    if (l->outq.reserved == 0)
        return;
    sp_outq_commit(&l->outq, len);
    if (len == 0)
        return;
    if (sp_outq_size(&l->outq) >= SEND_AT_ONCE)
        sp_link_flush(l);
    note_full(l);
}

void sp_link_send(struct sp_link *l, struct sp_link_source *s)
{
    struct sp_link_source **at = &l->sources;

    if (!sp_link_is_open(l) || s->left == 0) {
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
    sp_link_flush(l);
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

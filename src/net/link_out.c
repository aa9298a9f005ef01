/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/link_priv.h"

/* Enough for one send; while the kernel takes it, the same few pages are filled again and again. */
#define SEND_AT_ONCE (64U << 10)

/* A pipe has no flag against SIGPIPE, so the signal waits while we write, and is taken back. */
static ssize_t write_quietly(int fd, const char *bytes, size_t size)
{
    const struct timespec at_once = {0};
    sigset_t pipe_only;
    sigset_t old;
    sigset_t pending;

    (void)sigemptyset(&pipe_only);
    (void)sigaddset(&pipe_only, SIGPIPE);
    (void)sigpending(&pending);
    (void)pthread_sigmask(SIG_BLOCK, &pipe_only, &old);
    const ssize_t n = write(fd, bytes, size);
    const int err = errno;
    if (n < 0 && err == EPIPE && sigismember(&pending, SIGPIPE) != 1)
        while (sigtimedwait(&pipe_only, NULL, &at_once) < 0 && errno == EINTR)
            continue;
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    errno = err;
    return n;
}

static ssize_t send_some(const struct sp_link *l, const char *bytes, size_t size)
{
    if (l->is_socket_out)
        return send(l->fd_out, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    return l->host->is_client ? write_quietly(l->fd_out, bytes, size)
                              : write(l->fd_out, bytes, size);
}

/* Sends until the queue is empty or the kernel takes no more. */
void sp_link_flush(struct sp_link *l)
{
    while (!l->is_blocked && l->phase < LINGER && sp_outq_size(&l->outq) != 0) {
        const char *bytes = l->outq.data + l->outq.start;
        const size_t size = sp_outq_size(&l->outq);
        ssize_t n = send_some(l, bytes, size);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN) {
            sp_link_drop(l, "the peer is gone");
            return;
        }
        if (n < 0)
            n = 0;
        sp_outq_sent(&l->outq, (size_t)n);
        l->host->bytes_out += (uint64_t)n;
        l->is_blocked = (size_t)n < size;
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

/* A flood of pings must not fill memory: while the queue is full, only the newest is answered. */
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
    if (!sp_link_is_open(l) || sp_outq_size(&l->outq) > SP_LINK_FULL / 2)
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
    sp_link_heard(l); /* the queue moves, so somebody reads */
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

bool sp_link_is_full(const struct sp_link *l)
{
    return sp_outq_size(&l->outq) >= SP_LINK_FULL;
}

size_t sp_link_queued(const struct sp_link *l)
{
    return sp_outq_size(&l->outq);
}

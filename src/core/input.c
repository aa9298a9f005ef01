/* SPDX-License-Identifier: Apache-2.0 */
#include "core/input.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/io.h"
#include "core/input_log.h"

#define PIPE_BYTES 65536 /* what a pipe takes of writes of any size */
#define SHORT_MS   10    /* while the kernel has no memory for a write */

struct sp_input_chunk {
    struct sp_input_chunk *next;
    size_t at, len;
    char bytes[];
};

void sp_input_init(struct sp_input *in, struct sp_loop *loop, void (*has_room)(struct sp_input *))
{
    *in = (struct sp_input){.loop = loop, .fd = -1, .last = '\n', .has_room = has_room};
    in->end = &in->first;
}

static void drop_queue(struct sp_input *in)
{
    while (in->first != NULL) {
        struct sp_input_chunk *c = in->first;

        in->first = c->next;
        free(c);
    }
    in->end = &in->first;
    in->chunks = 0;
    in->bytes = 0;
    if (in->log != NULL)
        sp_input_log_drop(in->log);
}

static void set_logged(struct sp_input *in, enum sp_input_log_state state)
{
    if (in->log != NULL)
        sp_input_log_set(in->log, state);
}

static void close_input(struct sp_input *in)
{
    sp_loop_unwatch(in->loop, &in->watch);
    sp_loop_cancel(in->loop, &in->retry);
    drop_queue(in);
    if (in->fd >= 0) {
        (void)close(TAKE_FD(in->fd));
        if (in->closed != NULL)
            in->closed(in);
    }
}

void sp_input_done(struct sp_input *in)
{
    sp_input_log_free(TAKE_PTR(in->log)); /* with what is left */
    close_input(in);
    free(in->ids);
    in->ids = NULL;
    in->id_count = in->id_cap = in->id_next = 0;
    in->state = SP_INPUT_NONE;
}

/* ---- write ids ---- */

static bool was_accepted(const struct sp_input *in, struct sp_hash id)
{
    if (in->log != NULL)
        return sp_input_log_knows(in->log, id);
    for (unsigned i = 0; i < in->id_count; i++)
        if (in->ids[i].a == id.a && in->ids[i].b == id.b)
            return true;
    return false;
}

unsigned sp_input_ids(const struct sp_input *in, struct sp_hash *ret, unsigned max)
{
    const unsigned n = in->id_count < max ? in->id_count : max;

    if (in->log != NULL)
        return sp_input_log_ids(in->log, ret, max);
    for (unsigned i = 0; i < n; i++) /* the newest one is before id_next */
        ret[i] = in->ids[(in->id_next + in->id_count - n + i) % in->id_count];
    return n;
}

/* ---- bytes ---- */

static void flush_log(struct sp_input *in);

/*
 * A terminal's end of file is its VEOF character at the start of a line. In the middle of a line a
 * first VEOF flushes the line, and a second one is the end of file.
 */
static void finish_close(struct sp_input *in)
{
    const bool is_mid_line = in->last != '\n' && in->last != '\r';
    struct termios t;

    /* In raw mode VEOF is an ordinary byte. */
    if (in->fd >= 0 && in->is_tty && tcgetattr(in->fd, &t) == 0 && (t.c_lflag & ICANON) != 0) {
        const char eof[2] = {(char)t.c_cc[VEOF], (char)t.c_cc[VEOF]};

        const size_t n = is_mid_line ? 2 : 1;
        if (in->log != NULL && !in->has_ended &&
            sp_input_log_append(in->log, (struct sp_str){eof, n}, NULL, SP_INPUT_LOG_ENDED) == 0) {
            in->has_ended = true;
            flush_log(in); /* and closes */
            return;
        }
        if (!in->has_ended)
            (void)!write(in->fd, eof, n); /* full: the program does not read */
    }
    close_input(in);
}

static void on_writable(struct sp_watch *w, uint32_t events);

/* Returns how many bytes the kernel took; all of them if the read end is closed. */
static size_t write_now(struct sp_input *in, const char *bytes, size_t len)
{
    size_t at = 0;

    in->is_short = false;
    while (at < len) {
        const ssize_t n = in->is_embedded && !in->is_tty
                              ? sp_write_no_sigpipe(in->fd, bytes + at, len - at)
                              : write(in->fd, bytes + at, len - at);

        if (n > 0) {
            at += (size_t)n;
        } else if (n < 0 && errno == EINTR) {
            continue;
        } else if (n < 0 && errno == EAGAIN) {
            break;
        } else if (n < 0 && (errno == ENOMEM || errno == ENOBUFS)) {
            in->is_short = true;
            break;
        } else {
            if (in->state == SP_INPUT_OPEN)
                in->state = SP_INPUT_GONE;
            return len;
        }
    }
    return at;
}

static void on_retry(struct sp_timer *t);

/* epoll reports a pipe as writable also when the write failed for memory: then a timer waits. */
static void await_room(struct sp_input *in)
{
    const bool is_timed = in->is_short && sp_loop_timer(in->loop, &in->retry,
                                                        sp_loop_now(in->loop) + SHORT_MS, on_retry);

    sp_loop_rewatch(in->loop, &in->watch, is_timed ? 0U : EPOLLOUT);
}

static void await_log(struct sp_input *in)
{
    if ((in->watch.fn == NULL || in->watch.fd < 0) &&
        sp_loop_watch(in->loop, &in->watch, in->fd, EPOLLOUT, on_writable, NULL) < 0) {
        /* No memory: tried again. Without a timer the next write tries. */
        (void)sp_loop_timer(in->loop, &in->retry, sp_loop_now(in->loop) + SHORT_MS, on_retry);
        return;
    }
    await_room(in);
}

/* Errors count as written, as in write_now. */
static void flush_log(struct sp_input *in)
{
    in->is_short = false;
    while (sp_input_log_left(in->log) > 0) {
        const ssize_t n = in->fd < 0 ? -EPIPE : sp_input_log_send(in->log, in->fd);

        if (n == -EAGAIN || n == -ENOMEM || n == -ENOBUFS) {
            in->is_short = n != -EAGAIN;
            in->bytes = sp_input_log_left(in->log);
            await_log(in);
            return;
        }
        if (n >= 0 || n == -EINTR)
            continue;
        if (in->state == SP_INPUT_OPEN) {
            in->state = SP_INPUT_GONE;
            set_logged(in, SP_INPUT_LOG_GONE);
        }
        sp_input_log_drop(in->log);
    }
    in->bytes = 0;
    sp_loop_unwatch(in->loop, &in->watch);
    if (in->state == SP_INPUT_CLOSING)
        finish_close(in);
    else if (in->state == SP_INPUT_GONE)
        close_input(in);
}

static void flush(struct sp_input *in)
{
    if (in->log != NULL) {
        flush_log(in);
        return;
    }
    while (in->first != NULL) {
        struct sp_input_chunk *c = in->first;
        const size_t n = write_now(in, c->bytes + c->at, c->len - c->at);

        c->at += n;
        in->bytes -= n;
        if (c->at < c->len) {
            await_room(in);
            return;
        }
        in->first = c->next;
        if (in->first == NULL)
            in->end = &in->first;
        in->chunks--;
        free(c);
    }
    sp_loop_unwatch(in->loop, &in->watch);
    if (in->state == SP_INPUT_CLOSING)
        finish_close(in);
    else if (in->state == SP_INPUT_GONE)
        close_input(in);
}

static void on_writable(struct sp_watch *w, uint32_t events)
{
    struct sp_input *in = SP_CONTAINER(w, struct sp_input, watch);

    (void)events; /* the write reports errors */
    flush(in);
    in->has_room(in);
}

static void on_retry(struct sp_timer *t)
{
    on_writable(&SP_CONTAINER(t, struct sp_input, retry)->watch, 0);
}

/* The chunk has room for the bytes; it is the queue's if they were queued. */
static bool enqueue(struct sp_input *in, struct sp_input_chunk *c, const char *bytes, size_t len)
{
    if (in->first == NULL &&
        sp_loop_watch(in->loop, &in->watch, in->fd, EPOLLOUT, on_writable, NULL) < 0)
        return false;
    *c = (struct sp_input_chunk){.len = len};
    memcpy(c->bytes, bytes, len);
    *in->end = c;
    in->end = &c->next;
    in->chunks++;
    in->bytes += len;
    if (in->is_short)
        await_room(in);
    return true;
}

bool sp_input_knows(const struct sp_input *in, struct sp_str id)
{
    return id.p != NULL && was_accepted(in, sp_hash(id));
}

/* A pipe has room for few pieces that are sent from a log, however small: those do not count as
 * chunks as long as the pipe would have taken them as writes. */
static bool is_in_pipe(const struct sp_input *in, size_t bytes)
{
    int n = 0;

    return !in->is_tty && ioctl(in->fd, FIONREAD, &n) == 0 && n >= 0 &&
           in->bytes + bytes + (size_t)n <= PIPE_BYTES;
}

static bool is_full(const struct sp_input *in, size_t bytes)
{
    if (in->bytes == 0)
        return false;
    if (in->bytes + bytes > SP_INPUT_BYTES)
        return true;
    if (in->log == NULL)
        return in->chunks >= SP_INPUT_CHUNKS;
    return sp_input_log_chunks(in->log) >= SP_INPUT_CHUNKS && !is_in_pipe(in, bytes);
}

/* Makes a log, or another one in place of a long one. false: errno is EAGAIN if it has to become
 * empty first. */
static bool prepare_log(struct sp_input *in, size_t bytes)
{
    const bool has_room = in->log != NULL && sp_input_log_has_room(in->log, bytes);

    if (has_room && (in->bytes > 0 || !sp_input_log_is_long(in->log)))
        return true;
    if (in->log != NULL && in->bytes > 0) {
        errno = EAGAIN;
        return false;
    }
    struct sp_input_log *l = in->log == NULL ? sp_input_log_new() : sp_input_log_next(in->log);
    if (l == NULL || !sp_input_log_has_room(l, bytes) || !in->log_made(in, sp_input_log_fd(l))) {
        sp_input_log_free(l);
        errno = ENOMEM;
        return has_room;
    }
    sp_input_log_free(in->log);
    in->log = l;
    return true;
}

static enum sp_input_result write_logged(struct sp_input *in, const struct sp_hash *id,
                                         struct sp_str bytes)
{
    const bool is_taken = in->state == SP_INPUT_OPEN;

    if (!prepare_log(in, is_taken ? bytes.n : 0))
        return errno == EAGAIN ? SP_INPUT_FULL : SP_INPUT_FAILED;
    if (sp_input_log_append(in->log, is_taken ? bytes : SP_STR(""), id,
                            sp_input_log_state(in->log)) < 0)
        return SP_INPUT_FAILED;
    if (is_taken && bytes.n > 0)
        in->last = bytes.p[bytes.n - 1];
    if (in->bytes == 0)
        flush_log(in);
    in->bytes = sp_input_log_left(in->log);
    return SP_INPUT_ACCEPTED;
}

enum sp_input_result sp_input_write(struct sp_input *in, struct sp_str id, struct sp_str bytes)
{
    if (in->state == SP_INPUT_NONE)
        return SP_INPUT_CLOSED;

    const struct sp_hash hash = id.p != NULL ? sp_hash(id) : (struct sp_hash){0};
    if (id.p != NULL && was_accepted(in, hash))
        return SP_INPUT_ACCEPTED;
    if (in->state == SP_INPUT_BROKEN)
        return SP_INPUT_FAILED;
    if (in->state == SP_INPUT_CLOSING)
        return SP_INPUT_CLOSED;
    if (is_full(in, bytes.n))
        return SP_INPUT_FULL;
    if (in->log != NULL || (in->log_made != NULL && in->state == SP_INPUT_OPEN))
        return write_logged(in, id.p != NULL ? &hash : NULL, bytes);
    /* Memory first: after the first byte was written nothing may fail, or a repeat would write it
     * again. */
    if (id.p != NULL && in->id_count == in->id_cap && in->id_cap < SP_INPUT_IDS) {
        const unsigned cap = in->id_cap == 0 ? 16 : in->id_cap * 2;
        struct sp_hash *ids = realloc(in->ids, cap * sizeof *ids);

        if (ids == NULL)
            return SP_INPUT_FAILED;
        in->ids = ids;
        in->id_cap = cap;
    }
    if (in->state == SP_INPUT_OPEN && bytes.n != 0) {
        auto_free struct sp_input_chunk *c = malloc(sizeof *c + bytes.n);

        if (c == NULL)
            return SP_INPUT_FAILED;
        const size_t n = in->first == NULL ? write_now(in, bytes.p, bytes.n) : 0;
        if (n < bytes.n && !enqueue(in, c, bytes.p + n, bytes.n - n)) {
            if (n > 0)
                in->state = SP_INPUT_BROKEN; /* the rest cannot be delivered */
            return SP_INPUT_FAILED;
        }
        if (n < bytes.n)
            (void)TAKE_PTR(c);
        in->last = bytes.p[bytes.n - 1];
    }
    if (in->state == SP_INPUT_GONE)
        close_input(in);
    if (id.p != NULL && in->id_count < in->id_cap) {
        in->ids[in->id_count++] = hash;
    } else if (id.p != NULL) {
        in->ids[in->id_next] = hash; /* the ring is full: replace the oldest */
        in->id_next = (in->id_next + 1) % SP_INPUT_IDS;
    }
    return SP_INPUT_ACCEPTED;
}

/* What the log says; without a log nothing was accepted. */
static void adopt_state(struct sp_input *in)
{
    static const enum sp_input_state states[SP_INPUT_LOG_STATES] = {
        [SP_INPUT_LOG_OPEN] = SP_INPUT_OPEN,       [SP_INPUT_LOG_GONE] = SP_INPUT_GONE,
        [SP_INPUT_LOG_CLOSING] = SP_INPUT_CLOSING, [SP_INPUT_LOG_ENDED] = SP_INPUT_CLOSING,
        [SP_INPUT_LOG_BROKEN] = SP_INPUT_BROKEN,
    };

    in->state = states[sp_input_log_state(in->log)];
    in->has_ended = sp_input_log_state(in->log) == SP_INPUT_LOG_ENDED;
    in->last = sp_input_log_last(in->log);
    if (in->fd < 0 && in->state == SP_INPUT_OPEN)
        in->state = SP_INPUT_GONE; /* the command has ended, or its stdin was closed */
    if (in->state == SP_INPUT_BROKEN || in->state == SP_INPUT_GONE || in->fd < 0)
        sp_input_log_drop(in->log);
    in->bytes = sp_input_log_left(in->log);
    if (in->state != SP_INPUT_BROKEN && in->fd >= 0)
        flush_log(in);
}

void sp_input_adopt(struct sp_input *in, int target_fd, int log_fd)
{
    in->fd = target_fd;
    in->log = log_fd < 0 ? NULL : sp_input_log_open(log_fd);
    if (in->log != NULL) {
        adopt_state(in);
        return;
    }
    if (log_fd >= 0)
        (void)close(log_fd);
    if (log_fd >= 0) /* what was accepted is not known */
        in->state = SP_INPUT_BROKEN;
    else if (target_fd >= 0)
        in->state = SP_INPUT_OPEN;
}

enum sp_input_result sp_input_close(struct sp_input *in)
{
    if (in->state == SP_INPUT_NONE || in->state == SP_INPUT_CLOSING || in->state == SP_INPUT_BROKEN)
        return SP_INPUT_CLOSED;
    in->state = SP_INPUT_CLOSING;
    if (in->log_made != NULL && in->log == NULL)
        (void)prepare_log(in, 0); /* else the next front finds an open stdin */
    set_logged(in, SP_INPUT_LOG_CLOSING);
    if (in->bytes == 0)
        finish_close(in);
    return SP_INPUT_ACCEPTED;
}

void sp_input_break(struct sp_input *in)
{
    if (in->state == SP_INPUT_NONE)
        return;
    sp_loop_unwatch(in->loop, &in->watch);
    set_logged(in, SP_INPUT_LOG_BROKEN);
    drop_queue(in);
    in->state = SP_INPUT_BROKEN;
    in->has_room(in);
}

void sp_input_process_ended(struct sp_input *in, bool was_terminated)
{
    if (in->state == SP_INPUT_NONE)
        return;
    close_input(in);
    if (was_terminated)
        in->state = SP_INPUT_BROKEN;
    else if (in->state == SP_INPUT_OPEN)
        in->state = SP_INPUT_GONE;
    in->has_room(in);
}

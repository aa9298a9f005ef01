/* SPDX-License-Identifier: Apache-2.0 */
#include "core/input.h"

#include <errno.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/io.h"

#define SHORT_MS 10 /* while the kernel has no memory for a write */

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
}

static void close_input(struct sp_input *in)
{
    sp_loop_unwatch(in->loop, &in->watch);
    sp_loop_cancel(in->loop, &in->retry);
    drop_queue(in);
    if (in->fd >= 0)
        (void)close(in->fd);
    in->fd = -1;
}

void sp_input_done(struct sp_input *in)
{
    close_input(in);
    free(in->ids);
    in->ids = NULL;
    in->id_count = in->id_cap = in->id_next = 0;
    in->state = SP_INPUT_NONE;
}

/* ---- write ids ---- */

static bool was_accepted(const struct sp_input *in, struct sp_hash id)
{
    for (unsigned i = 0; i < in->id_count; i++)
        if (in->ids[i].a == id.a && in->ids[i].b == id.b)
            return true;
    return false;
}

/* ---- bytes ---- */

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

        (void)!write(in->fd, eof, is_mid_line ? 2 : 1); /* full: the program does not read */
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

static void flush(struct sp_input *in)
{
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
    if (in->first != NULL &&
        (in->chunks >= SP_INPUT_CHUNKS || in->bytes + bytes.n > SP_INPUT_BYTES))
        return SP_INPUT_FULL;
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

enum sp_input_result sp_input_close(struct sp_input *in)
{
    if (in->state == SP_INPUT_NONE || in->state == SP_INPUT_CLOSING || in->state == SP_INPUT_BROKEN)
        return SP_INPUT_CLOSED;
    in->state = SP_INPUT_CLOSING;
    if (in->first == NULL)
        finish_close(in);
    return SP_INPUT_ACCEPTED;
}

void sp_input_break(struct sp_input *in)
{
    if (in->state == SP_INPUT_NONE)
        return;
    sp_loop_unwatch(in->loop, &in->watch);
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

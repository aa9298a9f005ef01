/* SPDX-License-Identifier: Apache-2.0 */
#include "server/net/outq.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define FIRST 4096U
#define SMALL (64U << 10)  /* up to here a buffer grows with its contents */
#define BUSY  (512U << 10) /* the next size: fits the queue of a busy link */
#define KEEP \
    (4U << 20) /* an empty buffer up to this size is kept: fits a file of 1 MiB in base64 */

#define HEADER_MAX SP_WS_MAX_HEADER

void sp_outq_done(struct sp_outq *q)
{
    free(q->data);
    *q = (struct sp_outq){.fragment = q->fragment, .is_masked = q->is_masked};
}

/*
 * Makes room for n bytes at the end. Bytes are moved to the front only when at least half as many
 * were sent before them, and a new buffer is a quarter larger than needed: each byte is moved a
 * bounded number of times.
 */
static bool ensure(struct sp_outq *q, size_t n)
{
    const size_t size = sp_outq_size(q);

    if (n <= q->cap - q->end)
        return true;
    if (n > SIZE_MAX / 4 || size > SIZE_MAX / 4)
        return false;
    if (q->start >= size / 2 && n <= q->cap - size) {
        memmove(q->data, q->data + q->start, size);
    } else {
        const size_t need = size + n + (size + n) / 4;
        const size_t cap = need <= FIRST ? FIRST : need > SMALL && need < BUSY ? BUSY : need;
        char *data = malloc(cap);

        if (data == NULL)
            return false;
        if (size != 0)
            memcpy(data, q->data + q->start, size);
        free(q->data);
        q->data = data;
        q->cap = cap;
    }
    q->start = 0;
    q->end = size;
    return true;
}

/* Room before the text, for the header of the first frame. */
static size_t head_room(const struct sp_outq *q, size_t max)
{
    if (q->fragment == 0)
        return 0;
    return sp_ws_header_size(max < q->fragment ? max : q->fragment, q->is_masked);
}

/* Room after the text, for the headers of further frames. */
static size_t tail_room(const struct sp_outq *q, size_t max)
{
    return q->fragment == 0 ? 0 : max / q->fragment * HEADER_MAX;
}

char *sp_outq_reserve(struct sp_outq *q, size_t max)
{
    assert(q->reserved == 0);
    if (max > SIZE_MAX / 8)
        return NULL;
    q->head_room = head_room(q, max);
    if (!ensure(q, q->head_room + max + tail_room(q, max) + 1)) /* 1: the line's end */
        return NULL;
    q->reserved = max + 1;
    return q->data + q->end + q->head_room;
}

/* Writes the header before n payload bytes that are in place, and masks them; returns the end. */
static char *finish_frame(const struct sp_outq *q, char *frame, enum sp_ws_opcode opcode,
                          bool is_final, size_t n)
{
    uint8_t mask[4] = {0};

    if (q->is_masked)
        (void)!getrandom(mask, sizeof mask, 0); /* so few bytes never fail */
    const size_t header =
        sp_ws_write_header(frame, opcode, is_final, n, q->is_masked ? mask : NULL);
    if (q->is_masked)
        sp_ws_mask(frame + header, n, mask, 0);
    return frame + header + n;
}

/* One frame. The text moves to the left if it is so short that its header is. */
static void commit_frame(struct sp_outq *q, enum sp_ws_opcode opcode, bool is_final, size_t len)
{
    char *frame = q->data + q->end;
    char *to = frame + sp_ws_header_size(len, q->is_masked);

    if (to != frame + q->head_room)
        memmove(to, frame + q->head_room, len);
    q->end = (size_t)(finish_frame(q, frame, opcode, is_final, len) - q->data);
}

/* Several. The first is in its place; those behind it move to the right, the last one first, by the
 * headers before them: all but the last have a header of the same size. */
static void commit_frames(struct sp_outq *q, size_t len)
{
    const size_t header = sp_ws_header_size(q->fragment, q->is_masked);
    const size_t stride = header + q->fragment;
    const size_t last = (len - 1) / q->fragment;
    char *first = q->data + q->end;

    for (size_t i = last; i > 0; i--) {
        const size_t n = i == last ? len - last * q->fragment : q->fragment;
        char *frame = first + i * stride;

        memmove(frame + sp_ws_header_size(n, q->is_masked), first + header + i * q->fragment, n);
        frame = finish_frame(q, frame, SP_WS_CONTINUATION, i == last, n);
        if (i == last)
            q->end = (size_t)(frame - q->data);
    }
    (void)finish_frame(q, first, SP_WS_TEXT, false, q->fragment);
}

void sp_outq_commit(struct sp_outq *q, size_t len)
{
    assert(len == 0 || len < q->reserved);
    if (len != 0 && q->fragment != 0 && len > q->fragment)
        commit_frames(q, len);
    else if (len != 0)
        sp_outq_commit_part(q, len, true, true);
    q->reserved = 0;
}

void sp_outq_commit_part(struct sp_outq *q, size_t len, bool is_first, bool is_last)
{
    assert(len < q->reserved && (q->fragment == 0 || len <= q->fragment));
    q->reserved = 0;
    if (q->fragment != 0) {
        commit_frame(q, is_first ? SP_WS_TEXT : SP_WS_CONTINUATION, is_last, len);
        return;
    }
    q->end += len;
    if (is_last)
        q->data[q->end++] = '\n';
}

bool sp_outq_control(struct sp_outq *q, enum sp_ws_opcode opcode, const void *bytes, size_t n)
{
    assert(q->reserved == 0 && n <= SP_WS_MAX_CONTROL);
    const size_t header = sp_ws_header_size(n, q->is_masked);

    if (!ensure(q, header + n))
        return false;
    char *frame = q->data + q->end;
    if (n != 0)
        memcpy(frame + header, bytes, n);
    q->end = (size_t)(finish_frame(q, frame, opcode, true, n) - q->data);
    return true;
}

bool sp_outq_raw(struct sp_outq *q, const void *bytes, size_t n)
{
    if (!ensure(q, n))
        return false;
    if (n != 0)
        memcpy(q->data + q->end, bytes, n);
    q->end += n;
    return true;
}

void sp_outq_sent(struct sp_outq *q, size_t n)
{
    q->start += n;
    if (q->start != q->end)
        return;
    q->start = q->end = 0;
    if (q->cap > KEEP)
        sp_outq_done(q);
}

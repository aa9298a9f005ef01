/* SPDX-License-Identifier: Apache-2.0 */
#include "base/headtail.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t head_max(const struct sp_headtail *h)
{
    return h->capacity / 2;
}

static size_t tail_max(const struct sp_headtail *h)
{
    return h->capacity - head_max(h);
}

void sp_headtail_init(struct sp_headtail *h, size_t capacity)
{
    *h = (struct sp_headtail){.capacity = capacity, .head = {.max = capacity / 2}};
}

void sp_headtail_done(struct sp_headtail *h)
{
    sp_buf_done(&h->head);
    free(h->tail);
    sp_headtail_init(h, h->capacity);
}

/* The tail in order: two parts, the second empty unless the ring wraps. */
static void tail_runs(const struct sp_headtail *h, struct sp_str run[2])
{
    const size_t first = smaller(h->tail_len, h->tail_size - h->tail_from);

    run[0] = (struct sp_str){first == 0 ? "" : h->tail + h->tail_from, first};
    run[1] = (struct sp_str){h->tail_len == first ? "" : h->tail, h->tail_len - first};
}

/* realloc is enough: a ring below its full size drops no bytes, so it has not wrapped. */
static bool reserve_tail(struct sp_headtail *h, size_t need)
{
    if (need <= h->tail_size)
        return true;

    size_t size = h->tail_size < 128 ? 128 : h->tail_size * 2;
    if (size < need)
        size = need;
    size = smaller(size, tail_max(h)); /* need is at most tail_max */
    char *ring = realloc(h->tail, size);
    if (ring == NULL)
        return false;
    h->tail = ring;
    h->tail_size = size;
    return true;
}

/* Makes room for n more bytes, so that add_chunk() cannot fail. */
static bool reserve_room(struct sp_headtail *h, size_t n)
{
    const size_t to_head = smaller(n, head_max(h) - h->head.len);
    const size_t to_tail = smaller(n - to_head, tail_max(h));

    if (to_head != 0 && sp_buf_room(&h->head, to_head) == NULL)
        return false;
    return reserve_tail(h, smaller(tail_max(h), h->tail_len + to_tail));
}

static void count_omitted(struct sp_headtail *h, uint64_t n)
{
    if (__builtin_add_overflow(h->omitted, n, &h->omitted))
        h->omitted = UINT64_MAX;
}

/* Adds bytes to the ring, over the oldest ones. */
static void take_in_tail(struct sp_headtail *h, struct sp_str rest)
{
    const size_t room = tail_max(h) - h->tail_len;
    const size_t excess = rest.n > room ? rest.n - room : 0;
    const size_t old = smaller(excess, h->tail_len);
    const size_t skipped = excess - old; /* of rest itself */

    count_omitted(h, excess);
    h->tail_len -= old;
    h->tail_from = h->tail_len == 0 ? 0 : (h->tail_from + old) % h->tail_size;
    rest = (struct sp_str){rest.p + skipped, rest.n - skipped};
    if (rest.n == 0)
        return;

    size_t at = h->tail_from + h->tail_len;
    if (at >= h->tail_size)
        at -= h->tail_size;
    const size_t first = smaller(rest.n, h->tail_size - at);
    memcpy(h->tail + at, rest.p, first);
    memcpy(h->tail, rest.p + first, rest.n - first);
    h->tail_len += rest.n;
}

/* Adds bytes that reserve_room() has made room for. */
static void add_chunk(struct sp_headtail *h, struct sp_str chunk)
{
    const size_t to_head = smaller(chunk.n, head_max(h) - h->head.len);

    if (to_head != 0)
        (void)sp_buf_add(&h->head, chunk.p, to_head); /* cannot fail */
    if (chunk.n != to_head)
        take_in_tail(h, (struct sp_str){chunk.p + to_head, chunk.n - to_head});
}

bool sp_headtail_push(struct sp_headtail *h, struct sp_str chunk)
{
    if (!reserve_room(h, chunk.n))
        return false;
    add_chunk(h, chunk);
    return true;
}

struct sp_headtail sp_headtail_drain(struct sp_headtail *h)
{
    const struct sp_headtail contents = *h;

    sp_headtail_init(h, h->capacity);
    return contents;
}

bool sp_headtail_merge(struct sp_headtail *h, struct sp_headtail *later)
{
    assert(h != later && h->capacity == later->capacity);
    if (sp_headtail_total(h) == 0) {
        sp_headtail_done(h);
        *h = sp_headtail_drain(later);
        return true;
    }
    if (!reserve_room(h, sp_headtail_retained(later)))
        return false;

    struct sp_str run[2];
    tail_runs(later, run);
    count_omitted(h, later->omitted);
    add_chunk(h, (struct sp_str){later->head.data, later->head.len});
    add_chunk(h, run[0]);
    add_chunk(h, run[1]);
    sp_headtail_done(later);
    return true;
}

void sp_headtail_view(const struct sp_headtail *h, struct sp_str *ret_head,
                      struct sp_str ret_tail[2])
{
    *ret_head = (struct sp_str){h->head.len == 0 ? "" : h->head.data, h->head.len};
    tail_runs(h, ret_tail);
}

void sp_headtail_trim(struct sp_headtail *h)
{
    if (h->head.len == 0) {
        sp_buf_done(&h->head);
    } else if (h->head.len < h->head.cap) {
        char *head = realloc(h->head.data, h->head.len);

        if (head != NULL) {
            h->head.data = head;
            h->head.cap = h->head.len;
        }
    }
    if (h->tail_len == 0) {
        free(h->tail);
        h->tail = NULL;
        h->tail_size = h->tail_from = 0;
    } else if (h->tail_from == 0 && h->tail_len < h->tail_size) { /* not wrapped */
        char *tail = realloc(h->tail, h->tail_len);

        if (tail != NULL) {
            h->tail = tail;
            h->tail_size = h->tail_len;
        }
    }
}

uint64_t sp_headtail_total(const struct sp_headtail *h)
{
    uint64_t total;

    if (__builtin_add_overflow((uint64_t)sp_headtail_retained(h), h->omitted, &total))
        return UINT64_MAX;
    return total;
}

static bool add_tail(const struct sp_headtail *h, struct sp_buf *out)
{
    struct sp_str run[2];

    tail_runs(h, run);
    return sp_buf_add_str(out, run[0]) && sp_buf_add_str(out, run[1]);
}

bool sp_headtail_add_raw(const struct sp_headtail *h, struct sp_buf *out)
{
    const size_t mark = out->len;

    if (sp_buf_add(out, h->head.data, h->head.len) && add_tail(h, out))
        return true;
    out->len = mark;
    return false;
}

bool sp_headtail_add_marked(const struct sp_headtail *h, struct sp_buf *out)
{
    const size_t mark = out->len;

    if (h->omitted == 0)
        return sp_headtail_add_raw(h, out);
    if (sp_buf_add(out, h->head.data, h->head.len) &&
        sp_buf_printf(out, "\n" SP_HEADTAIL_MARKER "\n", h->omitted) && add_tail(h, out))
        return true;
    out->len = mark;
    return false;
}

/* Head and tail are adjacent only if nothing was omitted. */
static size_t end_length(const struct sp_headtail *h)
{
    return h->omitted == 0 ? sp_headtail_retained(h) : h->tail_len;
}

size_t sp_headtail_peek_end(const struct sp_headtail *h, char *ret, size_t n)
{
    n = smaller(n, end_length(h));

    const size_t of_tail = smaller(n, h->tail_len);
    const size_t of_head = n - of_tail;
    for (size_t i = 0; i < of_head; i++)
        ret[i] = h->head.data[h->head.len - of_head + i];
    for (size_t i = 0; i < of_tail; i++)
        ret[of_head + i] = h->tail[(h->tail_from + h->tail_len - of_tail + i) % h->tail_size];
    return n;
}

void sp_headtail_drop_end(struct sp_headtail *h, size_t n)
{
    assert(n <= end_length(h));

    const size_t of_tail = smaller(n, h->tail_len);
    h->tail_len -= of_tail;
    h->head.len -= n - of_tail;
}

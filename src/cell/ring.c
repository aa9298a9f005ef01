/* SPDX-License-Identifier: Apache-2.0 */
#include "cell/ring.h"

#include <string.h>
#include <sys/mman.h>

#define MAGIC 0x676e6972U /* "ring" */

struct record_header {
    uint64_t seq;
    uint64_t bytes_before;
    uint32_t len;
    uint8_t type;
    uint8_t stream;
    uint16_t zero;
};

#define RECORD_HEADER ((uint32_t)sizeof(struct record_header))
#define PADDED(len)   (((uint64_t)(len) + RECORD_HEADER + 7) & ~(uint64_t)7)
#define LARGEST       PADDED(SP_RING_CHUNK)
#define MOST_RECORDS  (SP_RING_AREA / RECORD_HEADER) /* in a log */

/*
 * Everything that retention may keep, the exit and close records, the unused tail of the area, and
 * room for one read: without a share sp_ring_room never has to forget records.
 */
#define AREA_NEEDED \
    (SP_RING_RETAIN_BYTES + (uint64_t)SP_RING_RETAIN_CHUNKS * (RECORD_HEADER + 7) + 4 * LARGEST)
#define AREA ((uint64_t)SP_RING_AREA)

/* With a share: what retention leaves, and the most that one read gets. The pages of the first
 * `kept + 3 reads` of the area are used over and over. */
#define SHARE_KEPT(share) ((uint64_t)(share) / 4 * 3)
#define SHARE_READ(share) ((share) / 16 < SP_RING_CHUNK ? (share) / 16 : SP_RING_CHUNK)
#define SHARE_LAP(share)  (SHARE_KEPT(share) + 3 * PADDED(SHARE_READ(share)))
/* Left between the end and the oldest record by a jump: room for the exit and close records. */
#define JUMP_SLACK 512U

_Static_assert(AREA_NEEDED <= AREA && AREA % SP_RING_PAGE == 0, "the area holds what is retained");
_Static_assert(sizeof(struct sp_ring_header) <= SP_RING_HEADER, "the header has its place");
_Static_assert(sizeof(struct record_header) == 24, "as drawn in ring.h");

static struct sp_ring_header *place_of(const struct sp_segment *s, uint32_t place)
{
    return (struct sp_ring_header *)(void *)(s->map + (size_t)place * SP_RING_HEADER);
}

static uint8_t *area_of(const struct sp_segment *s, uint32_t place)
{
    return s->map + (size_t)SP_SEGMENT_RINGS * SP_RING_HEADER + (size_t)place * SP_RING_AREA;
}

/* ---- the writer: pages ---- */

static void touch(struct sp_ring *r, uint64_t pos, uint64_t len)
{
    struct sp_ring_touched *t = &r->touched;
    const uint64_t first = pos % AREA / SP_RING_PAGE;
    const uint64_t last = (pos % AREA + len - 1) / SP_RING_PAGE;
    const uint32_t before = t->count;

    if (before == SP_RING_PAGES)
        return;
    for (uint64_t i = first; i <= last; i++) {
        t->count += (t->pages[i / 64] >> i % 64 & 1) == 0;
        t->pages[i / 64] |= (uint64_t)1 << i % 64;
    }
    if (t->count != before)
        atomic_store_explicit(&r->head->touched, t->count * SP_RING_PAGE, memory_order_relaxed);
}

/* Whether the page has a part of the log. */
static bool is_in_use(const struct sp_ring *r, uint64_t page)
{
    const uint64_t from = page * SP_RING_PAGE;
    const uint64_t to = from + SP_RING_PAGE;
    const uint64_t first = r->oldest % AREA;
    const uint64_t end = r->end % AREA;
    const bool has_jump = r->jump != 0 && r->jump_at >= r->oldest;
    const uint64_t jump = r->jump_at % AREA + RECORD_HEADER;

    if (r->oldest == r->end)
        return false;
    if (has_jump)
        return (to > first && from < jump) || from < end;
    return first < end ? to > first && from < end : to > first || from < end;
}

/* Pages below `spared` bytes of the area stay. */
static void punch_unused(struct sp_ring *r, uint64_t spared)
{
    struct sp_ring_touched *t = &r->touched;
    uint64_t run = 0; /* pages before i that can be punched */

    for (uint64_t i = spared / SP_RING_PAGE; i <= SP_RING_PAGES && t->count > 0; i++) {
        if (i < SP_RING_PAGES && (t->pages[i / 64] >> i % 64 & 1) != 0 && !is_in_use(r, i)) {
            run++;
            continue;
        }
        /* If the kernel refuses, the pages count as touched still. */
        if (run > 0 &&
            madvise(r->data + (i - run) * SP_RING_PAGE, run * SP_RING_PAGE, MADV_REMOVE) == 0) {
            t->count -= (uint32_t)run;
            for (uint64_t k = i - run; k < i; k++)
                t->pages[k / 64] &= ~((uint64_t)1 << k % 64);
        }
        run = 0;
    }
    atomic_store_explicit(&r->head->touched, t->count * SP_RING_PAGE, memory_order_relaxed);
}

void sp_ring_punch(struct sp_ring *r, bool is_free)
{
    if (r->head == NULL)
        return;
    if (is_free) {
        r->oldest = r->end;
        r->share = 0;
    }
    punch_unused(r, 0);
}

/* ---- the writer ---- */

void sp_ring_begin(struct sp_ring *r, const struct sp_segment *s, uint32_t place, uint64_t number)
{
    struct sp_ring_header *h = place_of(s, place);

    *r = (struct sp_ring){
        .head = h, .data = area_of(s, place), .seq = 1, .read = UINT64_MAX, .touched = r->touched};
    h->magic = MAGIC;
    h->area = SP_RING_AREA;
    atomic_store_explicit(&h->oldest, 0, memory_order_relaxed);
    atomic_store_explicit(&h->end, 0, memory_order_relaxed);
    atomic_store_explicit(&h->exit_seq, 0, memory_order_relaxed);
    atomic_store_explicit(&h->closed_seq, 0, memory_order_relaxed);
    atomic_store_explicit(&h->dropped_bytes, 0, memory_order_relaxed);
    for (int i = 0; i < SP_STREAM_MAX; i++)
        atomic_store_explicit(&h->output_bytes[i], 0, memory_order_relaxed);
    atomic_store_explicit(&h->is_paused, 0, memory_order_relaxed);
    atomic_store_explicit(&h->touched, r->touched.count * SP_RING_PAGE, memory_order_relaxed);
    h->exit = (struct sp_exit){0};
    atomic_store_explicit(&h->number, number, memory_order_release);
}

static struct record_header *header_at(const struct sp_ring *r, uint64_t pos)
{
    return (struct record_header *)(void *)(r->data + pos % AREA);
}

/* Bytes of the log without the jump. */
static uint64_t span(const struct sp_ring *r)
{
    return sp_ring_ahead(r, r->oldest);
}

/* The header and the size of the oldest record; 0: it cannot be one. Another process may have
 * changed it. */
static uint64_t oldest_record(const struct sp_ring *r, struct record_header *ret)
{
    const uint64_t left = AREA - r->oldest % AREA;

    *ret = (struct record_header){.type = SP_RECORD_PAD};
    if (left < RECORD_HEADER)
        return left <= r->end - r->oldest ? left : 0;
    memcpy(ret, header_at(r, r->oldest), sizeof *ret);
    if (PADDED(ret->len) > left || PADDED(ret->len) > r->end - r->oldest)
        return 0;
    if (ret->type == SP_RECORD_PAD)
        return PADDED(ret->len);
    if (ret->len > SP_RING_CHUNK ||
        (ret->type == SP_RECORD_OUTPUT && (ret->len > r->kept_bytes || r->kept_chunks == 0)))
        return 0;
    return PADDED(ret->len);
}

/* Forgets the record that oldest_record has found, or all after size 0. Returns its output. */
static uint64_t forget_record(struct sp_ring *r, const struct record_header *h, uint64_t size)
{
    const bool is_output = size != 0 && h->type == SP_RECORD_OUTPUT;
    const uint32_t len = size == 0 ? r->kept_bytes : is_output ? h->len : 0;

    r->kept_bytes -= len;
    r->kept_chunks = size == 0 ? 0 : r->kept_chunks - is_output;
    r->oldest = size == 0 ? r->end : r->oldest + size;
    return len;
}

static void publish_oldest(struct sp_ring *r, uint64_t dropped)
{
    atomic_fetch_add_explicit(&r->head->dropped_bytes, dropped, memory_order_relaxed);
    atomic_store_explicit(&r->head->oldest, r->oldest, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst); /* oldest is visible before data is overwritten */
}

/* Decides where the next record starts, so that `len` bytes fit behind its header unbroken. */
static void place_record(struct sp_ring *r, uint32_t len)
{
    const uint64_t need = PADDED(len);
    const uint64_t left = AREA - r->end % AREA;
    const uint64_t next = r->end + left;
    const bool has_lap_ended =
        r->share != 0 && r->end % AREA + need > SHARE_LAP(r->share) &&
        (r->oldest == r->end || next + need + JUMP_SLACK - r->oldest <= AREA);

    r->start = left >= need && !has_lap_ended ? r->end : next;
    if (r->start + need - r->oldest <= AREA)
        return;
    /* Only the log of a ring with a share can be in the way. */
    uint64_t dropped = 0;
    while (r->start + need - r->oldest > AREA && r->oldest < r->end) {
        struct record_header h;
        const uint64_t size = oldest_record(r, &h);

        dropped += forget_record(r, &h, size);
    }
    publish_oldest(r, dropped);
}

uint8_t *sp_ring_room(struct sp_ring *r)
{
    r->room = r->share == 0 ? SP_RING_CHUNK : SHARE_READ(r->share);
    place_record(r, r->room);
    return r->data + r->start % AREA + RECORD_HEADER;
}

static void publish(struct sp_ring *r, enum sp_record_type type, enum sp_stream stream,
                    uint32_t len)
{
    const uint64_t skipped = r->start - r->end;

    if (skipped >= RECORD_HEADER) {
        *header_at(r, r->end) =
            (struct record_header){.len = (uint32_t)skipped - RECORD_HEADER, .type = SP_RECORD_PAD};
        touch(r, r->end, RECORD_HEADER);
    }
    if (skipped > LARGEST) { /* less is the tail of the area, as without a share */
        r->jump_at = r->end;
        r->jump = skipped;
    }
    *header_at(r, r->start) = (struct record_header){
        .seq = r->seq,
        .bytes_before = r->bytes,
        .len = len,
        .type = (uint8_t)type,
        .stream = (uint8_t)stream,
    };
    touch(r, r->start, PADDED(len));
    r->end = r->start + PADDED(len);
    r->seq++;
    if (type == SP_RECORD_OUTPUT) {
        r->output_bytes[stream] += len;
        atomic_store_explicit(&r->head->output_bytes[stream], r->output_bytes[stream],
                              memory_order_relaxed);
        r->bytes += len;
        r->kept_bytes += len;
        r->kept_chunks++;
    }
    atomic_store_explicit(&r->head->end, r->end, memory_order_release);
}

/* Whether retention, or the share, does not want the oldest record any more. */
static bool is_excess(const struct sp_ring *r, const struct record_header *h, uint64_t size)
{
    if (r->kept_bytes > SP_RING_RETAIN_BYTES || r->kept_chunks > SP_RING_RETAIN_CHUNKS)
        return true;
    if (r->share == 0 || r->oldest == r->end)
        return false;
    if (h->type == SP_RECORD_PAD || size == 0)
        return true;
    return r->oldest + size <= r->read && span(r) - size >= SHARE_KEPT(r->share);
}

/* Forgets whole records from the front until retention and share hold. */
static void forget_oldest(struct sp_ring *r)
{
    uint64_t dropped = 0;
    uint64_t before = r->oldest;

    if (r->share == 0 && r->kept_bytes <= SP_RING_RETAIN_BYTES &&
        r->kept_chunks <= SP_RING_RETAIN_CHUNKS)
        return;
    for (;;) {
        struct record_header h;
        const uint64_t size = oldest_record(r, &h);

        if (!is_excess(r, &h, size))
            break;
        dropped += forget_record(r, &h, size);
    }
    if (r->oldest != before)
        publish_oldest(r, dropped);
    if (r->jump == 0 || r->oldest <= r->jump_at)
        return;
    /* The log is one piece again. */
    r->jump = 0;
    r->share = r->wanted_share;
    if (r->share != 0 && r->touched.count * (uint64_t)SP_RING_PAGE > SHARE_LAP(r->share) + LARGEST)
        punch_unused(r, SHARE_LAP(r->share));
}

void sp_ring_set_share(struct sp_ring *r, uint32_t share, uint64_t read)
{
    const bool is_more = share == 0 || (r->share != 0 && share > r->share);
    const bool has_jump = r->jump != 0 && r->oldest <= r->jump_at;

    if (share != 0 && share < SP_RING_LEAST_SHARE)
        share = SP_RING_LEAST_SHARE;
    if (share >= SP_RING_AREA)
        share = 0;
    r->wanted_share = share;
    r->read = read;
    if (!is_more || !has_jump)
        r->share = share;
    if (r->share == 0)
        return;
    forget_oldest(r);
    if (r->touched.count * (uint64_t)SP_RING_PAGE > r->share)
        punch_unused(r, 0);
}

void sp_ring_output(struct sp_ring *r, enum sp_stream stream, uint32_t len)
{
    publish(r, SP_RECORD_OUTPUT, stream, len);
    forget_oldest(r);
}

void sp_ring_exited(struct sp_ring *r, const struct sp_exit *how)
{
    place_record(r, sizeof *how);
    memcpy(r->data + r->start % AREA + RECORD_HEADER, how, sizeof *how);
    r->head->exit = *how;
    atomic_store_explicit(&r->head->exit_seq, r->seq, memory_order_release);
    publish(r, SP_RECORD_EXITED, SP_STREAM_STDOUT, sizeof *how);
}

void sp_ring_closed(struct sp_ring *r)
{
    place_record(r, 0);
    atomic_store_explicit(&r->head->closed_seq, r->seq, memory_order_release);
    publish(r, SP_RECORD_CLOSED, SP_STREAM_STDOUT, 0);
}

/* ---- the reader ---- */

int sp_ring_view_open(struct sp_segment *s, uint32_t place, uint64_t number,
                      struct sp_ring_view *ret, struct sp_err *e)
{
    const struct sp_ring_header *h = place_of(s, place);

    if (atomic_load_explicit(&h->number, memory_order_acquire) != number || h->magic != MAGIC ||
        h->area != SP_RING_AREA)
        return sp_fail(e, SP_E_MALFORMED, 0, "the output ring is not this process's");
    s->users++;
    *ret = (struct sp_ring_view){.head = h, .data = area_of(s, place), .segment = s};
    return 0;
}

static uint64_t load_oldest(const struct sp_ring_view *v)
{
    return atomic_load_explicit(&v->head->oldest, memory_order_acquire);
}

bool sp_ring_is_intact(const struct sp_ring_view *v, const struct sp_record *r)
{
    atomic_thread_fence(memory_order_seq_cst);
    return load_oldest(v) <= r->pos;
}

static bool is_plausible(const struct record_header *h, uint64_t at, uint64_t end)
{
    const uint64_t left = AREA - at % AREA;

    if (h->type < SP_RECORD_OUTPUT || h->type > SP_RECORD_PAD)
        return false;
    if (PADDED(h->len) > left || at + PADDED(h->len) > end)
        return false;
    if (h->type == SP_RECORD_PAD)
        return true;
    return h->len <= SP_RING_CHUNK && h->stream < SP_STREAM_MAX &&
           (h->type != SP_RECORD_EXITED || h->len == sizeof(struct sp_exit));
}

/* Reads oldest and end consistently. false: the writer changes them without pause. */
static bool load_bounds(const struct sp_ring_view *v, uint64_t *ret_oldest, uint64_t *ret_end)
{
    for (int tries = 0; tries < 100000; tries++) {
        const uint64_t oldest = load_oldest(v);
        const uint64_t end = atomic_load_explicit(&v->head->end, memory_order_acquire);

        /* Between the two loads the writer may have forgotten the whole log. */
        if (load_oldest(v) == oldest) {
            *ret_oldest = oldest;
            *ret_end = end;
            return true;
        }
    }
    return false;
}

int sp_ring_next(const struct sp_ring_view *v, struct sp_ring_cursor *c, struct sp_record *ret)
{
    /* A writer that moves its positions all the time must not keep the reader here. */
    for (uint64_t tries = 0; tries < MOST_RECORDS; tries++) {
        uint64_t oldest = 0;
        uint64_t end = 0;

        if (!load_bounds(v, &oldest, &end) || end % 8 != 0 || oldest % 8 != 0 || end < c->pos ||
            oldest > end || end - oldest > AREA)
            return -(int)SP_E_MALFORMED;
        if (c->pos < oldest)
            c->pos = oldest; /* the counts follow from the next record's numbers */
        if (c->pos == end)
            return 0;

        const uint64_t left = AREA - c->pos % AREA;
        if (left < RECORD_HEADER) {
            if (end - c->pos < left)
                return -(int)SP_E_MALFORMED;
            c->pos += left;
            continue;
        }
        struct record_header h;
        memcpy(&h, v->data + c->pos % AREA, sizeof h);
        const struct sp_record here = {.pos = c->pos};
        if (!sp_ring_is_intact(v, &here))
            continue; /* overwritten while reading: start again at the new oldest */
        if (!is_plausible(&h, c->pos, end))
            return -(int)SP_E_MALFORMED;
        if (h.type == SP_RECORD_PAD) {
            c->pos += PADDED(h.len);
            continue;
        }
        if (h.seq <= c->seq || h.bytes_before < c->bytes)
            return -(int)SP_E_MALFORMED;
        *ret = (struct sp_record){
            .pos = c->pos,
            .seq = h.seq,
            .bytes_before = h.bytes_before,
            .len = h.len,
            .type = (enum sp_record_type)h.type,
            .stream = (enum sp_stream)h.stream,
            .data = v->data + c->pos % AREA + RECORD_HEADER,
        };
        c->missed_records += h.seq - c->seq - 1;
        c->missed_bytes += h.bytes_before - c->bytes;
        c->seq = h.seq;
        c->bytes = h.bytes_before + (h.type == SP_RECORD_OUTPUT ? h.len : 0);
        c->pos += PADDED(h.len);
        return 1;
    }
    return -(int)SP_E_MALFORMED;
}

int sp_ring_catch_up(const struct sp_ring_view *v, struct sp_ring_cursor *tail,
                     struct sp_ring_state *ret)
{
    /* Read once, so that a busy writer cannot keep us here: the next call reads the rest. */
    const uint64_t end = atomic_load_explicit(&v->head->end, memory_order_acquire);
    struct sp_record r;
    uint64_t records = 0;
    int more = 0;

    do
        more = sp_ring_next(v, tail, &r);
    while (more > 0 && tail->pos < end && ++records < MOST_RECORDS);
    if (more < 0)
        return more;
    /* exit_seq and closed_seq are stored before their records are published, so they are set for
     * every record that the tail has passed. */
    struct sp_ring_state s = {
        .exit_seq = atomic_load_explicit(&v->head->exit_seq, memory_order_acquire),
        .closed_seq = atomic_load_explicit(&v->head->closed_seq, memory_order_acquire),
        .dropped_bytes = atomic_load_explicit(&v->head->dropped_bytes, memory_order_relaxed),
    };
    for (int i = 0; i < SP_STREAM_MAX; i++)
        s.output_bytes[i] = atomic_load_explicit(&v->head->output_bytes[i], memory_order_relaxed);
    if (s.exit_seq > tail->seq)
        s.exit_seq = 0;
    if (s.closed_seq > tail->seq)
        s.closed_seq = 0;
    if (s.exit_seq != 0)
        s.exit = v->head->exit;
    *ret = s;
    return 0;
}

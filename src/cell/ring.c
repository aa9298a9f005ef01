/* SPDX-License-Identifier: Apache-2.0 */
#include "cell/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC       0x676e6972U /* "ring" */
#define HEADER_SIZE 4096U

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

/*
 * Everything that retention may keep, the exit and close records, the unused tail of the area, and
 * room for one read: sp_ring_room never has to forget records.
 */
#define AREA_NEEDED \
    (SP_RING_RETAIN_BYTES + (uint64_t)SP_RING_RETAIN_CHUNKS * (RECORD_HEADER + 7) + 4 * LARGEST)
#define AREA ((AREA_NEEDED + 4095) & ~(uint64_t)4095)

struct sp_ring_header {
    uint32_t magic;
    uint32_t header_size;
    uint64_t area;
    /* The writer stores `oldest` before it overwrites data, and all other fields before `end`. */
    _Alignas(64) _Atomic uint64_t end;
    _Atomic uint64_t exit_seq;
    _Atomic uint64_t closed_seq;
    _Atomic uint64_t output_bytes[SP_STREAM_MAX];
    _Alignas(64) _Atomic uint64_t oldest;
    _Atomic uint64_t dropped_bytes;
    _Atomic uint32_t is_paused;
    struct sp_exit exit; /* written once, before exit_seq */
};

_Static_assert(sizeof(struct sp_ring_header) <= HEADER_SIZE, "the header is one page");
_Static_assert(sizeof(struct record_header) == 24, "as drawn in ring.h");

/* ---- the writer ---- */

int sp_ring_new(struct sp_ring *ret, struct sp_err *e)
{
    const int fd = memfd_create("sallyport-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    void *map = MAP_FAILED;

    if (fd < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "make output ring");
    if (ftruncate(fd, (off_t)(HEADER_SIZE + AREA)) == 0)
        map = mmap(NULL, HEADER_SIZE + AREA, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) <
            0) {
        const int err = errno;

        if (map != MAP_FAILED)
            (void)munmap(map, HEADER_SIZE + AREA);
        (void)close(fd);
        return sp_fail(e, SP_E_SYSTEM, err, "map output ring");
    }
    *ret = (struct sp_ring){.fd = fd, .head = map, .data = (uint8_t *)map + HEADER_SIZE, .seq = 1};
    ret->head->magic = MAGIC;
    ret->head->header_size = HEADER_SIZE;
    ret->head->area = AREA;
    return 0;
}

void sp_ring_free(struct sp_ring *r)
{
    if (r->fd < 0)
        return;
    (void)munmap(r->head, HEADER_SIZE + AREA);
    (void)close(r->fd);
    *r = (struct sp_ring){.fd = -1};
}

/* Decides where the next record starts, so that `len` bytes fit behind its header unbroken. */
static void place_record(struct sp_ring *r, uint32_t len)
{
    const uint64_t left = AREA - r->end % AREA;

    r->start = left >= PADDED(len) ? r->end : r->end + left;
}

uint8_t *sp_ring_room(struct sp_ring *r)
{
    place_record(r, SP_RING_CHUNK);
    return r->data + r->start % AREA + RECORD_HEADER;
}

static struct record_header *header_at(const struct sp_ring *r, uint64_t pos)
{
    return (struct record_header *)(void *)(r->data + pos % AREA);
}

static void publish(struct sp_ring *r, enum sp_record_type type, enum sp_stream stream,
                    uint32_t len)
{
    const uint64_t skipped = r->start - r->end;

    if (skipped >= RECORD_HEADER)
        *header_at(r, r->end) =
            (struct record_header){.len = (uint32_t)skipped - RECORD_HEADER, .type = SP_RECORD_PAD};
    *header_at(r, r->start) = (struct record_header){
        .seq = r->seq,
        .bytes_before = r->bytes,
        .len = len,
        .type = (uint8_t)type,
        .stream = (uint8_t)stream,
    };
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

/* Forgets whole records from the front until retention holds. */
static void forget_oldest(struct sp_ring *r)
{
    if (r->kept_bytes <= SP_RING_RETAIN_BYTES && r->kept_chunks <= SP_RING_RETAIN_CHUNKS)
        return;

    uint64_t dropped = 0;
    while (r->kept_bytes > SP_RING_RETAIN_BYTES || r->kept_chunks > SP_RING_RETAIN_CHUNKS) {
        const uint64_t left = AREA - r->oldest % AREA;
        const struct record_header *h = header_at(r, r->oldest);

        if (left < RECORD_HEADER) {
            r->oldest += left;
            continue;
        }
        if (h->type == SP_RECORD_OUTPUT) {
            r->kept_bytes -= h->len;
            r->kept_chunks--;
            dropped += h->len;
        }
        r->oldest += PADDED(h->len);
    }
    atomic_fetch_add_explicit(&r->head->dropped_bytes, dropped, memory_order_relaxed);
    atomic_store_explicit(&r->head->oldest, r->oldest, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst); /* oldest is visible before data is overwritten */
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

void sp_ring_set_paused(struct sp_ring *r, bool is_paused)
{
    atomic_store_explicit(&r->head->is_paused, is_paused, memory_order_seq_cst);
}

/* ---- the reader ---- */

int sp_ring_view_map(int fd, struct sp_ring_view *ret, struct sp_err *e)
{
    const int want = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
    struct stat st;

    /* Without the seals the writer could truncate the file, and reading would raise SIGBUS. */
    const int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & want) != want)
        return sp_fail(e, SP_E_MALFORMED, 0, "output ring is not sealed");
    if (fstat(fd, &st) < 0 || st.st_size != (off_t)(HEADER_SIZE + AREA))
        return sp_fail(e, SP_E_MALFORMED, 0, "output ring has the wrong size");
    void *map = mmap(NULL, HEADER_SIZE + AREA, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return sp_fail(e, SP_E_SYSTEM, errno, "map output ring");
    const struct sp_ring_header *head = map;
    if (head->magic != MAGIC || head->header_size != HEADER_SIZE || head->area != AREA) {
        (void)munmap(map, HEADER_SIZE + AREA);
        return sp_fail(e, SP_E_MALFORMED, 0, "output ring has a foreign layout");
    }
    *ret = (struct sp_ring_view){.head = head, .data = (const uint8_t *)map + HEADER_SIZE};
    return 0;
}

void sp_ring_view_unmap(struct sp_ring_view *v)
{
    if (v->head == NULL)
        return;
    (void)munmap((void *)(uintptr_t)v->head, HEADER_SIZE + AREA);
    *v = (struct sp_ring_view){0};
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
    for (;;) {
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
}

int sp_ring_catch_up(const struct sp_ring_view *v, struct sp_ring_cursor *tail,
                     struct sp_ring_state *ret)
{
    /* Read once, so that a busy writer cannot keep us here: the next call reads the rest. */
    const uint64_t end = atomic_load_explicit(&v->head->end, memory_order_acquire);
    struct sp_record r;
    int more = 0;

    do
        more = sp_ring_next(v, tail, &r);
    while (more > 0 && tail->pos < end);
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

bool sp_ring_is_paused(const struct sp_ring_view *v)
{
    return atomic_load_explicit(&v->head->is_paused, memory_order_seq_cst) != 0;
}

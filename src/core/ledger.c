/* SPDX-License-Identifier: Apache-2.0 */
#include "core/ledger.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/crc32c.h"
#include "base/hash.h"
#include "os/fd.h"

/*
 * ==== the heap ====
 *
 * What is known of used units is private memory; free extents are linked through their own first
 * and last unit. An heir believes nothing of that: it claims the extents of the records that it
 * found, and heap_settle makes free extents of all the rest.
 */

#define UNIT       64U
#define UNITS      (1U << 23) /* the largest heap */
#define BLOCK      1024U      /* units, 64 KiB: what is given back to the system */
#define BINS       352U
#define IDLE_MOST  16U /* blocks without a used unit that keep their memory */
#define MAP_WORDS  (UNITS / 64)
#define MAX_BLOCKS (UNITS / BLOCK)

struct heap {
    uint8_t *base;
    int fd;
    uint64_t at; /* of `base` in the file */
    uint32_t units;
    uint32_t idle;       /* blocks that were used and are free */
    uint32_t bins[BINS]; /* the first free extent of this size + 1; 0: none */
    uint64_t bin_map[(BINS + 63) / 64];
    uint64_t used[MAP_WORDS];
    uint16_t used_in[MAX_BLOCKS];
    bool is_touched[MAX_BLOCKS];
};

#define PAGE       4096U
#define SMALL      64U /* extents below have a bin for each size */
#define SUB_BITS   4U  /* the others 16 for each power of two */
#define SMALL_BITS 6U

/* At the beginning of a free extent; its size stands once more at the end. */
struct extent {
    uint32_t size, next, prev; /* of the bin, as bins[] */
};

/* ---- the map of used units ---- */

static bool is_used(const struct heap *h, uint32_t unit)
{
    return (h->used[unit / 64] >> unit % 64 & 1) != 0;
}

/* The bits of a word that an extent has. */
static uint64_t bits_of(uint32_t at, uint32_t end)
{
    const uint32_t first = at % 64;
    const uint32_t count = end - at < 64 - first ? end - at : 64 - first;

    return (count == 64 ? UINT64_MAX : ((uint64_t)1 << count) - 1) << first;
}

static uint32_t next_word(uint32_t at, uint32_t end)
{
    const uint32_t next = (at / 64 + 1) * 64;

    return next < end ? next : end;
}

static void mark_used(struct heap *h, uint32_t at, uint32_t units)
{
    const uint32_t end = at + units;

    for (uint32_t i = at; i < end; i = next_word(i, end))
        h->used[i / 64] |= bits_of(i, end);
    for (uint32_t i = at; i < end;) {
        const uint32_t block = i / BLOCK;
        const uint32_t block_end = (block + 1) * BLOCK;
        const uint32_t n = (end < block_end ? end : block_end) - i;

        h->idle -= h->used_in[block] == 0 && h->is_touched[block];
        h->used_in[block] = (uint16_t)(h->used_in[block] + n);
        h->is_touched[block] = true;
        i += n;
    }
}

static void mark_free(struct heap *h, uint32_t at, uint32_t units)
{
    const uint32_t end = at + units;

    for (uint32_t i = at; i < end; i = next_word(i, end))
        h->used[i / 64] &= ~bits_of(i, end);
    for (uint32_t i = at; i < end;) {
        const uint32_t block = i / BLOCK;
        const uint32_t block_end = (block + 1) * BLOCK;
        const uint32_t n = (end < block_end ? end : block_end) - i;

        h->used_in[block] = (uint16_t)(h->used_in[block] - n);
        h->idle += h->used_in[block] == 0;
        i += n;
    }
}

/* ---- free extents ---- */

static struct extent *extent_at(const struct heap *h, uint32_t at)
{
    return (struct extent *)(void *)(h->base + (size_t)at * UNIT);
}

static uint32_t *end_size(const struct heap *h, uint32_t end)
{
    return (uint32_t *)(void *)(h->base + (size_t)end * UNIT - sizeof(uint32_t));
}

static uint32_t bin_of(uint32_t units)
{
    if (units < SMALL)
        return units;
    const uint32_t log = 31 - (uint32_t)__builtin_clz(units);
    return SMALL + (log - SMALL_BITS) * (1U << SUB_BITS) +
           (units >> (log - SUB_BITS) & ((1U << SUB_BITS) - 1));
}

static void link_extent(struct heap *h, uint32_t at, uint32_t units)
{
    const uint32_t bin = bin_of(units);
    const uint32_t next = h->bins[bin];

    *extent_at(h, at) = (struct extent){.size = units, .next = next};
    *end_size(h, at + units) = units;
    if (next != 0)
        extent_at(h, next - 1)->prev = at + 1;
    h->bins[bin] = at + 1;
    h->bin_map[bin / 64] |= (uint64_t)1 << bin % 64;
}

static void unlink_extent(struct heap *h, uint32_t at)
{
    const struct extent e = *extent_at(h, at);
    const uint32_t bin = bin_of(e.size);

    if (e.next != 0)
        extent_at(h, e.next - 1)->prev = e.prev;
    if (e.prev != 0)
        extent_at(h, e.prev - 1)->next = e.next;
    else
        h->bins[bin] = e.next;
    if (h->bins[bin] == 0)
        h->bin_map[bin / 64] &= ~((uint64_t)1 << bin % 64);
}

/* All extents of the bin are large enough. false: there is none. */
static bool find_bin(const struct heap *h, uint32_t units, uint32_t *ret)
{
    if (units >= SMALL)
        units += (1U << (31 - (uint32_t)__builtin_clz(units) - SUB_BITS)) - 1;
    const uint32_t first = bin_of(units);
    uint64_t bits = h->bin_map[first / 64] & UINT64_MAX << first % 64;

    for (uint32_t i = first / 64;; bits = h->bin_map[i]) {
        if (bits != 0) {
            *ret = i * 64 + (uint32_t)__builtin_ctzll(bits);
            return true;
        }
        if (++i == sizeof h->bin_map / sizeof *h->bin_map)
            return false;
    }
}

/* ---- memory given back to the system ---- */

/* The ends of a free extent, which hold its size, keep their pages. */
static void punch(struct heap *h, uint32_t at, uint32_t end)
{
    uint64_t from = (uint64_t)at * UNIT;
    uint64_t to = (uint64_t)end * UNIT;

    from += at == 0 || is_used(h, at - 1) ? PAGE : 0;
    to -= end == h->units || is_used(h, end) ? PAGE : 0;
    (void)fallocate(h->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(h->at + from),
                    (off_t)(to - from)); /* refused: the memory stays, which is no harm */
}

static bool is_idle(const struct heap *h, uint32_t block)
{
    return h->used_in[block] == 0 && h->is_touched[block];
}

static void punch_idle(struct heap *h)
{
    const uint32_t blocks = h->units / BLOCK;

    for (uint32_t i = 0, end; i < blocks && h->idle > 0; i = end) {
        for (end = i; end < blocks && is_idle(h, end); end++) {
            h->is_touched[end] = false;
            h->idle--;
        }
        if (end > i)
            punch(h, i * BLOCK, end * BLOCK);
        else
            end++;
    }
}

/* ---- for the ledger ---- */

/* false: no free extent is large enough. */
static bool heap_take(struct heap *h, uint32_t units, uint32_t *ret_at)
{
    uint32_t bin;

    if (!find_bin(h, units, &bin))
        return false;
    const uint32_t at = h->bins[bin] - 1;
    const uint32_t size = extent_at(h, at)->size;
    unlink_extent(h, at);
    if (size > units)
        link_extent(h, at + units, size - units);
    mark_used(h, at, units);
    *ret_at = at;
    return true;
}

static void heap_give(struct heap *h, uint32_t at, uint32_t units)
{
    mark_free(h, at, units);
    if (at + units < h->units && !is_used(h, at + units)) {
        const uint32_t more = extent_at(h, at + units)->size;

        unlink_extent(h, at + units);
        units += more;
    }
    if (at > 0 && !is_used(h, at - 1)) {
        const uint32_t more = *end_size(h, at);

        unlink_extent(h, at - more);
        at -= more;
        units += more;
    }
    link_extent(h, at, units);
    if (h->idle > IDLE_MOST)
        punch_idle(h);
}

/* `h` is zeroed, apart from base, fd, at and units: all units are unused, but not yet free.
 * false: an unit of the extent is claimed already; those in front of it are claimed now. */
static bool heap_claim(struct heap *h, uint32_t at, uint32_t units)
{
    const uint32_t end = at + units;
    uint32_t clear = at; /* no unit in front of it is used */

    while (clear < end && (h->used[clear / 64] & bits_of(clear, end)) == 0)
        clear = next_word(clear, end);
    if (clear > at)
        mark_used(h, at, clear - at);
    return clear == end;
}

/* Forgets all claims. */
static void heap_unclaim(struct heap *h)
{
    memset(h->used, 0, sizeof h->used);
    memset(h->used_in, 0, sizeof h->used_in);
}

/* The first unit from `at` on that is used, or is free; else the end. */
static uint32_t find_unit(const struct heap *h, uint32_t at, bool wants_used)
{
    while (at < h->units) {
        const uint64_t word = wants_used ? h->used[at / 64] : ~h->used[at / 64];
        const uint64_t bits = word >> at % 64;

        if (bits != 0) {
            at += (uint32_t)__builtin_ctzll(bits);
            break;
        }
        at = (at / 64 + 1) * 64;
    }
    return at < h->units ? at : h->units;
}

/* What is not claimed is free. */
static void heap_settle(struct heap *h)
{
    for (uint32_t at = 0, end; (at = find_unit(h, at, false)) < h->units; at = end) {
        end = find_unit(h, at, true);
        link_extent(h, at, end - at);
    }
    const uint32_t blocks = h->units / BLOCK;
    for (uint32_t i = 0; i < blocks; i++)
        h->is_touched[i] = true;
    h->idle = 0;
    for (uint32_t i = 0; i < blocks; i++)
        h->idle += h->used_in[i] == 0;
    if (h->idle > IDLE_MOST)
        punch_idle(h);
}

/* ==== the records ==== */

#define MAGIC       0x72656764656c7053ULL /* "Spledger" */
#define HEADER_SIZE 8192U
#define INDEX_SIZE  (SP_LEDGER_RECORDS * sizeof(uint64_t))
#define HEAP_AT     (HEADER_SIZE + INDEX_SIZE)
#define BLOCK_SIZE  (BLOCK * UNIT)
#define LEAST_UNITS (UNITS / 16)
#define SEALS       (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
_Static_assert(sizeof(struct sp_ledger_header) <= HEADER_SIZE, "the header has its place");

/* A word of the index: place in the heap, units, kind, and a number that makes records at one
 * place distinct. */
#define UNITS_SHIFT  23
#define KIND_SHIFT   43
#define SERIAL_SHIFT 48
_Static_assert(UNITS == 1U << UNITS_SHIFT, "a place fits into a word");
_Static_assert(SP_LEDGER_RECORD / UNIT < 1U << (KIND_SHIFT - UNITS_SHIFT),
               "so do the units of a record");
_Static_assert(SP_LEDGER_MOST_KIND < 1U << (SERIAL_SHIFT - KIND_SHIFT), "and the kind");

/* In front of the bytes of a record. */
struct record {
    uint32_t crc; /* of the word, the sizes and the fixed bytes */
    uint32_t slot_and_kind;
    uint32_t loose, fixed;
    uint8_t bytes[];
};
_Static_assert(sizeof(struct record) == 16, "records are aligned");

#define SLOT_BITS  19
#define SLOT_WORDS (SP_LEDGER_RECORDS / 64)

struct sp_ledger {
    int fd;
    uint8_t *map;
    size_t size;
    uint32_t removed;
    uint16_t serial;
    uint64_t free_slots[SLOT_WORDS];      /* of the index */
    uint64_t free_words[SLOT_WORDS / 64]; /* which words of free_slots are not 0 */
    struct heap heap;
};

/* ---- places ---- */

static _Atomic uint64_t *index_of(const struct sp_ledger *l)
{
    return (_Atomic uint64_t *)(void *)(l->map + HEADER_SIZE);
}

static struct record *record_at(const struct sp_ledger *l, uint32_t unit)
{
    return (struct record *)(void *)(l->heap.base + (size_t)unit * UNIT);
}

static struct record *record_of(const void *bytes)
{
    return SP_CONTAINER((void *)(uintptr_t)bytes, struct record, bytes);
}

static uint32_t place_of(const struct sp_ledger *l, const struct record *r)
{
    return (uint32_t)((size_t)((const uint8_t *)r - l->heap.base) / UNIT);
}

static uint32_t slot_of(const struct record *r)
{
    return r->slot_and_kind & (SP_LEDGER_RECORDS - 1);
}

static uint32_t units_for(uint64_t loose, uint64_t fixed)
{
    return (uint32_t)((sizeof(struct record) + loose + fixed + UNIT - 1) / UNIT);
}

static uint32_t word_place(uint64_t word)
{
    return (uint32_t)(word & (UNITS - 1));
}

static uint32_t word_units(uint64_t word)
{
    return (uint32_t)(word >> UNITS_SHIFT & ((1U << (KIND_SHIFT - UNITS_SHIFT)) - 1));
}

static uint32_t word_kind(uint64_t word)
{
    return (uint32_t)(word >> KIND_SHIFT & SP_LEDGER_MOST_KIND);
}

static uint32_t crc_of(const struct record *r, uint64_t word)
{
    uint32_t crc = sp_crc32c(0, &word, sizeof word);

    crc = sp_crc32c(crc, &r->slot_and_kind, sizeof *r - offsetof(struct record, slot_and_kind));
    return sp_crc32c(crc, r->bytes + r->loose, r->fixed);
}

/* ---- slots of the index ---- */

static void give_slot(struct sp_ledger *l, uint32_t slot)
{
    l->free_slots[slot / 64] |= (uint64_t)1 << slot % 64;
    l->free_words[slot / 64 / 64] |= (uint64_t)1 << slot / 64 % 64;
}

static void mark_slot(struct sp_ledger *l, uint32_t slot)
{
    const uint32_t word = slot / 64;

    l->free_slots[word] &= ~((uint64_t)1 << slot % 64);
    if (l->free_slots[word] == 0)
        l->free_words[word / 64] &= ~((uint64_t)1 << word % 64);
}

static bool take_slot(struct sp_ledger *l, uint32_t *ret)
{
    for (uint32_t i = 0; i < SLOT_WORDS / 64; i++) {
        if (l->free_words[i] == 0)
            continue;
        const uint32_t word = i * 64 + (uint32_t)__builtin_ctzll(l->free_words[i]);
        *ret = word * 64 + (uint32_t)__builtin_ctzll(l->free_slots[word]);
        mark_slot(l, *ret);
        return true;
    }
    return false;
}

/* ---- records ---- */

void *sp_ledger_alloc(struct sp_ledger *l, enum sp_ledger_kind kind, size_t loose, size_t fixed)
{
    uint32_t slot;
    uint32_t at;

    assert(loose % sizeof(uint64_t) == 0 && kind > 0 && (uint32_t)kind <= SP_LEDGER_MOST_KIND);
    if (loose > SP_LEDGER_RECORD / 2 || fixed > SP_LEDGER_RECORD - sizeof(struct record) - loose ||
        !take_slot(l, &slot))
        return NULL;
    const uint32_t units = units_for(loose, fixed);
    if (!heap_take(&l->heap, units, &at)) {
        give_slot(l, slot);
        return NULL;
    }
    struct record *r = record_at(l, at);
    memset(r, 0, (size_t)units * UNIT);
    r->slot_and_kind = slot | (uint32_t)kind << SLOT_BITS;
    r->loose = (uint32_t)loose;
    r->fixed = (uint32_t)fixed;
    return r->bytes;
}

void sp_ledger_commit(struct sp_ledger *l, void *record)
{
    struct record *r = record_of(record);

    if (atomic_load_explicit(&index_of(l)[slot_of(r)], memory_order_relaxed) != 0)
        return;
    l->serial = (uint16_t)(l->serial == UINT16_MAX ? 1 : l->serial + 1); /* no word is 0 */
    const uint64_t word = place_of(l, r) | (uint64_t)units_for(r->loose, r->fixed) << UNITS_SHIFT |
                          (uint64_t)(r->slot_and_kind >> SLOT_BITS) << KIND_SHIFT |
                          (uint64_t)l->serial << SERIAL_SHIFT;
    r->crc = crc_of(r, word);
    atomic_store_explicit(&index_of(l)[slot_of(r)], word, memory_order_release);
}

void sp_ledger_free(struct sp_ledger *l, void *record)
{
    if (record == NULL)
        return;
    const struct record *r = record_of(record);
    const uint32_t slot = slot_of(r);
    atomic_store_explicit(&index_of(l)[slot], 0, memory_order_release);
    atomic_signal_fence(memory_order_seq_cst); /* before any byte of it is used again */
    heap_give(&l->heap, place_of(l, r), units_for(r->loose, r->fixed));
    give_slot(l, slot);
}

void *sp_ledger_next(struct sp_ledger *l, enum sp_ledger_kind kind, const void *after,
                     size_t *ret_loose, size_t *ret_fixed)
{
    uint32_t slot = after == NULL ? 0 : slot_of(record_of(after)) + 1;

    while (slot < SP_LEDGER_RECORDS) {
        const uint64_t taken = ~l->free_slots[slot / 64] >> slot % 64;

        if (taken == 0) {
            slot = (slot / 64 + 1) * 64;
            continue;
        }
        slot += (uint32_t)__builtin_ctzll(taken);
        const uint64_t word = atomic_load_explicit(&index_of(l)[slot++], memory_order_relaxed);
        if (word == 0 || word_kind(word) != (uint32_t)kind)
            continue;
        struct record *r = record_at(l, word_place(word));
        *ret_loose = r->loose;
        *ret_fixed = r->fixed;
        return r->bytes;
    }
    return NULL;
}

uint64_t sp_ledger_name(const struct sp_ledger *l, const void *record)
{
    return atomic_load_explicit(&index_of(l)[slot_of(record_of(record))], memory_order_relaxed);
}

size_t sp_ledger_bytes(const void *record)
{
    const struct record *r = record_of(record);

    return (size_t)units_for(r->loose, r->fixed) * UNIT + sizeof(uint64_t);
}

/* ---- what an heir finds ---- */

static void remove_word(struct sp_ledger *l, uint32_t slot)
{
    atomic_store_explicit(&index_of(l)[slot], 0, memory_order_release);
    l->removed++;
}

/* Whether the word names a record that is as it was committed. What a bad one claims stays claimed
 * for now, so that no memory is looked at twice. */
static bool claim_record(struct sp_ledger *l, uint32_t slot, uint64_t word)
{
    const uint32_t at = word_place(word);
    const uint32_t units = word_units(word);

    if (units == 0 || at >= l->heap.units || units > l->heap.units - at || word_kind(word) == 0 ||
        !heap_claim(&l->heap, at, units))
        return false;
    const struct record *r = record_at(l, at);
    return r->slot_and_kind == (slot | word_kind(word) << SLOT_BITS) &&
           r->loose % sizeof(uint64_t) == 0 &&
           (uint64_t)r->loose + r->fixed <= SP_LEDGER_RECORD - sizeof *r &&
           units == units_for(r->loose, r->fixed) && r->crc == crc_of(r, word);
}

static void read_words(struct sp_ledger *l, uint32_t first, uint32_t end)
{
    for (uint32_t slot = first; slot < end; slot++) {
        const uint64_t word = atomic_load_explicit(&index_of(l)[slot], memory_order_relaxed);

        if (word == 0)
            continue;
        if (!claim_record(l, slot, word)) {
            remove_word(l, slot);
            continue;
        }
        mark_slot(l, slot);
        if ((uint16_t)(word >> SERIAL_SHIFT) > l->serial)
            l->serial = (uint16_t)(word >> SERIAL_SHIFT);
    }
}

/* Claims again what good records have. */
static void drop_bad_claims(struct sp_ledger *l)
{
    heap_unclaim(&l->heap);
    for (uint32_t slot = 0; slot < SP_LEDGER_RECORDS; slot++) {
        if ((l->free_slots[slot / 64] >> slot % 64 & 1) != 0)
            continue;
        const uint64_t word = atomic_load_explicit(&index_of(l)[slot], memory_order_relaxed);
        (void)heap_claim(&l->heap, word_place(word), word_units(word));
    }
}

/* Parts of the index that were never written are holes, and stay so. */
static void read_index(struct sp_ledger *l)
{
    off_t at = HEADER_SIZE;

    while ((at = lseek(l->fd, at, SEEK_DATA)) >= 0 && at < (off_t)HEAP_AT) {
        const off_t hole = lseek(l->fd, at, SEEK_HOLE);
        const off_t end = hole < 0 || hole > (off_t)HEAP_AT ? (off_t)HEAP_AT : hole;

        read_words(l, (uint32_t)((size_t)at - HEADER_SIZE) / sizeof(uint64_t),
                   (uint32_t)((size_t)end - HEADER_SIZE) / sizeof(uint64_t));
        at = end;
    }
    if (l->removed > 0)
        drop_bad_claims(l);
}

/* ---- making and opening ---- */

/* Takes *fd on success. */
static int map_ledger(int *fd, uint32_t units, struct sp_ledger **ret, struct sp_err *e)
{
    struct sp_ledger *l = calloc(1, sizeof *l);

    if (l == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "map the ledger");
    l->size = HEAP_AT + (size_t)units * UNIT;
    l->map = mmap(NULL, l->size, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (l->map == MAP_FAILED) {
        const int err = errno;

        free(l);
        return sp_fail(e, SP_E_SYSTEM, err, "map the ledger");
    }
    l->fd = l->heap.fd = TAKE_FD(*fd);
    l->heap.base = l->map + HEAP_AT;
    l->heap.at = HEAP_AT;
    l->heap.units = units;
    memset(l->free_slots, 0xff, sizeof l->free_slots);
    memset(l->free_words, 0xff, sizeof l->free_words);
    *ret = l;
    return 0;
}

/* As many as the limit of files allows; above it the kernel would send SIGXFSZ. */
static uint32_t units_allowed(void)
{
    struct rlimit most;
    uint32_t units = UNITS;

    if (getrlimit(RLIMIT_FSIZE, &most) == 0)
        while (units >= LEAST_UNITS && HEAP_AT + (uint64_t)units * UNIT > most.rlim_cur)
            units /= 2;
    return units;
}

int sp_ledger_new(struct sp_ledger **ret, struct sp_err *e)
{
    const uint32_t units = units_allowed();
    auto_close int fd = -1;
    struct sp_ledger *l;

    if (units < LEAST_UNITS)
        return sp_fail(e, SP_E_SYSTEM, EFBIG, "make the ledger (ulimit -f)");
    fd = sp_fd_lift(memfd_create("sallyport-ledger", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (fd < 0 || ftruncate(fd, (off_t)(HEAP_AT + (uint64_t)units * UNIT)) < 0 ||
        fcntl(fd, F_ADD_SEALS, SEALS) < 0)
        return sp_fail(e, SP_E_SYSTEM, errno, "make the ledger");
    const int r = map_ledger(&fd, units, &l, e);
    if (r < 0)
        return r;
    heap_settle(&l->heap);
    *sp_ledger_header(l) = (struct sp_ledger_header){
        .magic = MAGIC,
        .format = SP_LEDGER_FORMAT,
        .min_reader = SP_LEDGER_FORMAT,
        .index_at = HEADER_SIZE,
        .index_words = SP_LEDGER_RECORDS,
        .heap_at = HEAP_AT,
        .heap_units = units,
    };
    sp_hash_key(sp_ledger_header(l)->hash_key);
    *ret = l;
    return 0;
}

/* Without the seals a holder of the file could truncate it, and reading would raise SIGBUS. */
static int check_file(int fd, uint32_t *ret_units, struct sp_err *e)
{
    const int seals = fcntl(fd, F_GET_SEALS);
    struct sp_ledger_header h;
    struct stat st;

    if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) < 0)
        return sp_fail(e, SP_E_MALFORMED, 0, "the ledger is not sealed");
    const uint64_t size = (uint64_t)st.st_size;
    if (size < HEAP_AT + BLOCK_SIZE || (size - HEAP_AT) % BLOCK_SIZE != 0 ||
        (size - HEAP_AT) / UNIT > UNITS)
        return sp_fail(e, SP_E_MALFORMED, 0, "the ledger has the wrong size");
    if (pread(fd, &h, sizeof h, 0) != (ssize_t)sizeof h || h.magic != MAGIC)
        return sp_fail(e, SP_E_MALFORMED, 0, "this is no ledger");
    if (h.min_reader > SP_LEDGER_FORMAT || h.format < SP_LEDGER_FORMAT)
        return sp_fail(e, SP_E_MALFORMED, 0, "the ledger has format %u, for readers of %u",
                       h.format, h.min_reader);
    *ret_units = (uint32_t)((size - HEAP_AT) / UNIT);
    if (h.index_at != HEADER_SIZE || h.index_words != SP_LEDGER_RECORDS || h.heap_at != HEAP_AT ||
        h.heap_units != *ret_units)
        return sp_fail(e, SP_E_MALFORMED, 0, "the ledger has another layout");
    return 0;
}

int sp_ledger_open(int fd, struct sp_ledger **ret, struct sp_err *e)
{
    struct sp_ledger *l;
    uint32_t units;
    int r = check_file(fd, &units, e);

    if (r == 0)
        r = map_ledger(&fd, units, &l, e);
    if (r < 0)
        return r;
    read_index(l);
    heap_settle(&l->heap);
    *ret = l;
    return 0;
}

void sp_ledger_close(struct sp_ledger *l)
{
    if (l == NULL)
        return;
    (void)munmap(l->map, l->size);
    (void)close(l->fd);
    free(l);
}

int sp_ledger_fd(const struct sp_ledger *l)
{
    return l->fd;
}

struct sp_ledger_header *sp_ledger_header(struct sp_ledger *l)
{
    return (struct sp_ledger_header *)(void *)l->map;
}

uint32_t sp_ledger_removed(const struct sp_ledger *l)
{
    return l->removed;
}

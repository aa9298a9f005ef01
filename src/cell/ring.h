/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring: the output, exit and close of one process, as a numbered log in shared memory. A slot of
 * the cell has one ring, in a segment (cell/segment.h); each process in the slot begins it anew.
 *
 * All records share one counter. The cell is the only writer; any number of readers map the memory
 * read-only, each with its own position. Positions count bytes of the log from its beginning, so
 * they survive reconnects. The ring never grows and never blocks the writer: beyond its retention
 * it forgets the oldest records, and a reader that was too slow learns exactly how many records and
 * bytes it missed. EXITED may be forgotten, too: the header keeps it (sp_ring_catch_up).
 *
 * A reader does not trust the writer: it copies a record's header once and checks the copy. The
 * writer does not trust the memory either: another process may have it mapped writable.
 *
 *   record: | seq 8 | bytes before 8 | length 4 | type 1 | stream 1 | 0 2 | payload, padded to 8 |
 *
 * A record never wraps: what does not fit before the end of the area starts at its beginning, and
 * the rest is a PAD record (or nothing, if less than a header is left).
 *
 * The front may give a ring a share of memory (sp_ring_set_share). Such a ring keeps about three
 * quarters of it, hands out less room for a read, and begins the area again early (a jump, with a
 * PAD over the rest), so that it writes to as many pages as its share has and no others.
 */
#ifndef SP_CELL_RING_H
#define SP_CELL_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/receipt.h"
#include "base/stream.h"
#include "cell/segment.h"

#define SP_RING_CHUNK         65536U   /* the most one OUTPUT record carries */
#define SP_RING_RETAIN_BYTES  1048576U /* output kept: bytes */
#define SP_RING_RETAIN_CHUNKS 50000U   /* output kept: records */
/* The command is paused when so much was not sent to the owner, or not read by it, and goes on when
 * both have come below the low marks. What was not read has room in the retention. */
#define SP_RING_HIGH_WATER        262144U
#define SP_RING_LOW_WATER         131072U
#define SP_RING_UNREAD_HIGH_WATER 786432U
#define SP_RING_UNREAD_LOW_WATER  524288U
#define SP_RING_LEAST_SHARE       65536U /* the smallest share of memory */

enum sp_record_type {
    SP_RECORD_OUTPUT = 1,
    SP_RECORD_EXITED = 2, /* payload: struct sp_exit */
    SP_RECORD_CLOSED = 3,
    SP_RECORD_PAD = 4,
};

/* A system call that the sandbox refused the process or one of its descendants, and how often. */
struct sp_refusal {
    uint16_t call;
    uint16_t zero;
    uint32_t count;
};
#define SP_EXIT_REFUSALS 8

#define SP_USAGE_OF_TREE 2 /* has_usage: CPU time is that of its cgroup */

/* How a process ended and what it used, from waitid(). */
struct sp_exit {
    int32_t code;   /* exit status, or 128 + signal; -1: not known */
    int32_t signal; /* 0: it exited */
    uint32_t has_core;
    uint32_t reason;    /* enum sp_end_reason */
    uint32_t has_usage; /* the kernel told max_rss_kb to major_faults. 0: it did not, 1: it did */
    uint32_t max_rss_kb;
    uint64_t user_us, system_us;
    uint64_t read_blocks, written_blocks; /* of 512 bytes, of storage */
    uint64_t voluntary_switches, involuntary_switches;
    uint64_t major_faults;
    uint64_t wall_us;                           /* from the start until it was reaped */
    uint64_t peak_memory_bytes, peak_processes; /* of its cgroup; 0: not known */
    uint32_t left_network; /* attempts to reach an address outside of the cell's network */
    uint32_t refusal_count;
    struct sp_refusal refusals[SP_EXIT_REFUSALS];
};

struct sp_record {
    uint64_t pos; /* of the header */
    uint64_t seq;
    uint64_t bytes_before; /* output bytes of the process before this record */
    uint32_t len;
    enum sp_record_type type;
    enum sp_stream stream;
    const uint8_t *data; /* in shared memory: the writer may overwrite it at any time */
};

/* In the segment; a reader checks the number, and believes nothing else before it has checked it.
 */
struct sp_ring_header {
    uint32_t magic, area;
    _Atomic uint64_t number; /* of the process */
    /* The writer stores `oldest` before it overwrites data, and all other fields before `end`. */
    _Alignas(64) _Atomic uint64_t end;
    _Atomic uint64_t exit_seq;
    _Atomic uint64_t closed_seq;
    _Atomic uint64_t output_bytes[SP_STREAM_MAX];
    _Atomic uint32_t touched; /* bytes of the area that have memory */
    _Alignas(64) _Atomic uint64_t oldest;
    _Atomic uint64_t dropped_bytes;
    _Atomic uint32_t is_paused;
    struct sp_exit exit; /* written once, before exit_seq */
};

/* ---- the writer's side ---- */

/* Pages of the area that were written since they were punched last, by this process or an earlier
 * one in the slot. */
struct sp_ring_touched {
    uint64_t pages[(SP_RING_PAGES + 63) / 64];
    uint32_t count;
};

struct sp_ring {
    struct sp_ring_header *head; /* NULL: none */
    uint8_t *data;
    uint64_t end, oldest;
    uint64_t seq, bytes; /* of the next record */
    uint64_t start;      /* where the next record goes: end, or the area's beginning after it */
    uint32_t room;       /* bytes that sp_ring_room has given */
    uint32_t kept_bytes, kept_chunks;
    uint64_t output_bytes[SP_STREAM_MAX];
    uint32_t share, wanted_share; /* 0: none; a larger one waits until no jump is in the log */
    uint64_t read; /* the owner has read the records before this: a share forgets no others */
    uint64_t jump_at, jump; /* the newest jump: its place, and the bytes left out */
    struct sp_ring_touched touched;
};

/* Begins the log of a process in this place of the segment, which is mapped writable. The touched
 * pages of the place stay known in *r. */
void sp_ring_begin(struct sp_ring *r, const struct sp_segment *s, uint32_t place, uint64_t number);

/* r->room writable bytes: SP_RING_CHUNK, or fewer in a ring with a share. Does not forget records.
 */
uint8_t *sp_ring_room(struct sp_ring *r);
/* Publishes the first len bytes of the room as one OUTPUT record, then applies retention. */
void sp_ring_output(struct sp_ring *r, enum sp_stream stream, uint32_t len);
void sp_ring_exited(struct sp_ring *r, const struct sp_exit *how);
void sp_ring_closed(struct sp_ring *r);

/* Bytes of the log from `served` on. */
static inline uint64_t sp_ring_ahead(const struct sp_ring *r, uint64_t served)
{
    const uint64_t all = r->end - served;

    return r->jump != 0 && served <= r->jump_at && all >= r->jump ? all - r->jump : all;
}

/* The ring may have `share` bytes of memory from now on (0: as much as it wants): forgets records
 * before `read` and punches what is free then. A change to the touched pages is published. */
void sp_ring_set_share(struct sp_ring *r, uint32_t share, uint64_t read);
/* Gives the memory outside of the log back; with is_free the whole area's, and the log is lost. */
void sp_ring_punch(struct sp_ring *r, bool is_free);

/* Stores in the header whether the writer waits for its reader. */
static inline void sp_ring_set_paused(const struct sp_ring *r, bool is_paused)
{
    atomic_store_explicit(&r->head->is_paused, is_paused, memory_order_seq_cst);
}

/* ---- the reader's side ---- */

struct sp_ring_view {
    const struct sp_ring_header *head; /* NULL: none */
    const uint8_t *data;
    struct sp_segment *segment;
};

/* The log of process `number` in this place; the view keeps the segment mapped. -SP_E_MALFORMED:
 * the place has another process's. */
int sp_ring_view_open(struct sp_segment *s, uint32_t place, uint64_t number,
                      struct sp_ring_view *ret, struct sp_err *e);

static inline void sp_ring_view_close(struct sp_ring_view *v) /* accepts {0} */
{
    sp_segment_drop(v->segment);
    *v = (struct sp_ring_view){0};
}

/* A reader's place in the log: everything before pos has been read. {0} is the beginning. */
struct sp_ring_cursor {
    uint64_t pos;
    uint64_t seq;   /* the last number read */
    uint64_t bytes; /* output bytes read or missed so far */
    uint64_t missed_records, missed_bytes;
};

/*
 * The next record after the cursor, which moves past it. 1: *ret is it; 0: there is none yet;
 * -SP_E_MALFORMED: the writer broke the rules. What a slow cursor missed is added to its counts.
 */
int sp_ring_next(const struct sp_ring_view *v, struct sp_ring_cursor *c, struct sp_record *ret);

/* After copying the record's data: whether the writer had not overwritten it meanwhile. */
bool sp_ring_is_intact(const struct sp_ring_view *v, const struct sp_record *r);

/* State of the process according to the records before a reader's position. */
struct sp_ring_state {
    uint64_t exit_seq; /* 0: has not exited */
    uint64_t closed_seq;
    struct sp_exit exit;
    uint64_t dropped_bytes;               /* output forgotten by retention so far */
    uint64_t output_bytes[SP_STREAM_MAX]; /* written so far, dropped or not */
};

/* Moves the cursor to the end without reading payloads, and returns the state there. */
int sp_ring_catch_up(const struct sp_ring_view *v, struct sp_ring_cursor *tail,
                     struct sp_ring_state *ret);

static inline bool sp_ring_is_paused(const struct sp_ring_view *v)
{
    return atomic_load_explicit(&v->head->is_paused, memory_order_seq_cst) != 0;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring: one process's life as a numbered log in shared memory.
 *
 * Output, exit and close are records with one counter. The cell is the only writer; any number of
 * readers map the memory read-only, each with its own position. Positions count bytes of the log
 * from its beginning, so they survive reconnects. The ring never grows and never blocks the writer:
 * past its retention it forgets whole chunks from the front, and a reader who was too slow learns
 * exactly how many records and bytes it missed. It knows no process and no clock.
 *
 * A reader trusts nothing it finds: a record's header is copied once and the copy is judged.
 *
 *   memfd:  | header page | data area, a byte ring of records |
 *   record: | seq 8 | bytes before 8 | length 4 | type 1 | stream 1 | 0 2 | payload, padded to 8 |
 *
 * A record never wraps: what does not fit before the end of the area starts at its beginning, and
 * the rest is a PAD record (or nothing, if less than a header is left).
 */
#ifndef SP_CELL_RING_H
#define SP_CELL_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/stream.h"

#define SP_RING_CHUNK         65536U   /* the most one OUTPUT record carries */
#define SP_RING_RETAIN_BYTES  1048576U /* output kept: bytes */
#define SP_RING_RETAIN_CHUNKS 50000U   /* output kept: records */
#define SP_RING_HIGH_WATER                                                                      \
    262144U                       /* an attached reader this far behind: stop reading the child \
                                   */
#define SP_RING_LOW_WATER 131072U /* ... and go on from here */

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

/* How a process ended, as the kernel said. */
struct sp_exit {
    int32_t code;   /* exit status, or 128 + signal; -1: not known */
    int32_t signal; /* 0: it exited */
    uint32_t has_core;
    uint32_t max_rss_kb;
    uint64_t user_us, system_us;
    uint32_t left_network; /* attempts, while it lived, to leave a cell without a way out */
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
    const uint8_t *data; /* in the shared memory: may change under the reader's eyes */
};

/* ---- the writer's side ---- */

struct sp_ring_header;

struct sp_ring {
    int fd; /* -1: none */
    struct sp_ring_header *head;
    uint8_t *data;
    uint64_t end, oldest;
    uint64_t seq, bytes; /* of the next record */
    uint64_t start;      /* where the next record goes: end, or the area's beginning after it */
    uint32_t kept_bytes, kept_chunks;
};

/* Makes, maps and seals the memory. */
int sp_ring_new(struct sp_ring *ret, struct sp_err *e);
void sp_ring_free(struct sp_ring *r); /* accepts {.fd = -1} */

/* SP_RING_CHUNK writable bytes; making room forgets nothing. */
uint8_t *sp_ring_room(struct sp_ring *r);
/* Publishes the first len bytes of the room as one OUTPUT record, then forgets what is too much. */
void sp_ring_output(struct sp_ring *r, enum sp_stream stream, uint32_t len);
void sp_ring_exited(struct sp_ring *r, const struct sp_exit *how);
void sp_ring_closed(struct sp_ring *r);

/* Says in the header whether the writer waits for its reader. */
void sp_ring_set_paused(struct sp_ring *r, bool is_paused);

/* ---- the reader's side ---- */

struct sp_ring_view {
    const struct sp_ring_header *head; /* NULL: not mapped */
    const uint8_t *data;
};

/* Checks size and seals, then maps read-only. The descriptor stays the caller's. */
int sp_ring_view_map(int fd, struct sp_ring_view *ret, struct sp_err *e);
void sp_ring_view_unmap(struct sp_ring_view *v);

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

/* Whether the record's bytes, copied since, were still the record's. */
bool sp_ring_is_intact(const struct sp_ring_view *v, const struct sp_record *r);

/* What the log says about the process, up to a reader's place in it. */
struct sp_ring_state {
    uint64_t exit_seq; /* 0: has not exited */
    uint64_t closed_seq;
    struct sp_exit exit;
    uint64_t dropped_bytes; /* output forgotten by retention so far */
};

/* Moves the cursor to the end without looking at the payloads, and tells what is known there. */
int sp_ring_catch_up(const struct sp_ring_view *v, struct sp_ring_cursor *tail,
                     struct sp_ring_state *ret);

bool sp_ring_is_paused(const struct sp_ring_view *v);

#endif

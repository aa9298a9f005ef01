/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring: the output, exit and close of one process, as a numbered log in shared memory.
 *
 * All records share one counter. The cell is the only writer; any number of readers map the memory
 * read-only, each with its own position. Positions count bytes of the log from its beginning, so
 * they survive reconnects. The ring never grows and never blocks the writer: beyond its retention
 * it forgets the oldest records, and a reader that was too slow learns exactly how many records and
 * bytes it missed. EXITED may be forgotten, too: the header keeps it (sp_ring_catch_up).
 *
 * A reader does not trust the writer: it copies a record's header once and checks the copy.
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
#include "base/receipt.h"
#include "base/stream.h"

#define SP_RING_CHUNK         65536U   /* the most one OUTPUT record carries */
#define SP_RING_RETAIN_BYTES  1048576U /* output kept: bytes */
#define SP_RING_RETAIN_CHUNKS 50000U   /* output kept: records */
#define SP_RING_HIGH_WATER    262144U  /* the owner is this far behind: pause the command */
#define SP_RING_LOW_WATER     131072U  /* resume it when the owner has come this close */

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

/* How a process ended and what it used, from waitid(). */
struct sp_exit {
    int32_t code;   /* exit status, or 128 + signal; -1: not known */
    int32_t signal; /* 0: it exited */
    uint32_t has_core;
    uint32_t reason;    /* enum sp_end_reason */
    uint32_t has_usage; /* the kernel told max_rss_kb to major_faults */
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
    uint64_t output_bytes[SP_STREAM_MAX];
};

/* Makes, maps and seals the memory. */
int sp_ring_new(struct sp_ring *ret, struct sp_err *e);
void sp_ring_free(struct sp_ring *r); /* accepts {.fd = -1} */

/* SP_RING_CHUNK writable bytes. Does not forget any record. */
uint8_t *sp_ring_room(struct sp_ring *r);
/* Publishes the first len bytes of the room as one OUTPUT record, then applies retention. */
void sp_ring_output(struct sp_ring *r, enum sp_stream stream, uint32_t len);
void sp_ring_exited(struct sp_ring *r, const struct sp_exit *how);
void sp_ring_closed(struct sp_ring *r);

/* Stores in the header whether the writer waits for its reader. */
void sp_ring_set_paused(struct sp_ring *r, bool is_paused);

/* ---- the reader's side ---- */

struct sp_ring_view {
    const struct sp_ring_header *head; /* NULL: not mapped */
    const uint8_t *data;
};

/* Checks size and seals, then maps read-only. The caller keeps the descriptor. */
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

bool sp_ring_is_paused(const struct sp_ring_view *v);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mirror: what an executor says of one process, put in order (unified-exec.md 7.6).
 *
 * Chunks of output, the exit and the close share one sequence of numbers. They arrive as events,
 * perhaps twice or out of order, and as answers to reads, which fill the gaps. Each is told once,
 * in order, and what was lost for good is told as a gap. It does no I/O and knows no clock.
 *
 *   numbers: | told |  waiting: known, the owner takes no more now  |  gap  |  held: came early |
 */
#ifndef SP_ENGINE_REMOTE_MIRROR_H
#define SP_ENGINE_REMOTE_MIRROR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"
#include "base/stream.h"

#define SP_MIRROR_MAX_EVENTS 256          /* held; more are dropped, to be read */
#define SP_MIRROR_MAX_BYTES  (1U << 20)   /* the same */
#define SP_MIRROR_MAX_DROPS  16384        /* since the last read was asked for: then it fails */
#define SP_MIRROR_HIGH       (256U << 10) /* waiting: from here on nothing more should be read */

struct sp_mirror_ops {
    bool (*output)(void *user, enum sp_stream stream, struct sp_str bytes); /* false: not now */
    void (*gap)(void *user);
    void (*exited)(void *user, int code, int denied); /* denied -1: nobody knows */
    void (*closed)(void *user);
};

struct sp_mirror_event;

struct sp_mirror {
    const struct sp_mirror_ops *ops;
    void *user;
    uint64_t known; /* every number up to here is told or waits */
    struct sp_mirror_event *waiting, **waiting_end;
    struct sp_mirror_event *held; /* by number */
    uint32_t held_count;
    size_t held_bytes;
    size_t waiting_bytes;     /* of memory, not of output */
    uint64_t dropped;         /* the highest number that was not held, for want of room; 0: none */
    uint32_t drops;           /* since the last read was asked for */
    uint64_t gap_end;         /* the highest number seen when the last read was asked for */
    int verdict;              /* that a read gave: 1, 0; -1: none */
    bool has_verdict;         /* a read has said what there is to say */
    bool has_exit, has_close; /* in the mirror, told or not */
    bool is_blocked;          /* the owner refused */
    bool is_telling, is_exit_told;
    bool is_over; /* nothing more is told: sp_mirror_done was called, or close was told */
};

void sp_mirror_init(struct sp_mirror *m, const struct sp_mirror_ops *ops, void *user);
void sp_mirror_done(struct sp_mirror *m); /* also from within an op */

/* Events. Numbers that are known already are ignored. What came early and does not fit is dropped:
 * the executor has it still. SP_E_LIMIT if there is no end of that; SP_E_SYSTEM without memory;
 * SP_E_INVALID for the number 0. */
int sp_mirror_output(struct sp_mirror *m, uint64_t seq, enum sp_stream stream, struct sp_str bytes,
                     struct sp_err *e);
int sp_mirror_exited(struct sp_mirror *m, uint64_t seq, int code, int denied, struct sp_err *e);
int sp_mirror_closed(struct sp_mirror *m, uint64_t seq, struct sp_err *e);

/* Whether a read is wanted: a gap is there, or the exit waits for its verdict. */
bool sp_mirror_wants_read(const struct sp_mirror *m);
/* The exit is known, and is told when a read has given its verdict, or sp_mirror_no_verdict. */
bool sp_mirror_waits_for_verdict(const struct sp_mirror *m);
/* A read is asked for: with this afterSeq. */
uint64_t sp_mirror_begin_read(struct sp_mirror *m);

/* The answer to a read: begin, then each chunk in order, then end. */
struct sp_mirror_answer {
    uint64_t next_seq;
    bool is_bounded; /* it was asked with maxBytes: there may be more to read */
    bool has_exited, has_closed;
    int code;   /* -1: none */
    int denied; /* -1: not told */
    /* the mirror's */
    uint64_t last;
    struct sp_mirror_event *first, **end;
    bool has_chunks;
};
int sp_mirror_add_chunk(const struct sp_mirror *m, struct sp_mirror_answer *a, uint64_t seq,
                        enum sp_stream stream, struct sp_str bytes, struct sp_err *e);
/* Takes the answer in, and frees its chunks in any case. */
int sp_mirror_end_read(struct sp_mirror *m, struct sp_mirror_answer *a, struct sp_err *e);
void sp_mirror_drop_answer(struct sp_mirror_answer *a);
/* There is none to be had: an exit that waits for its verdict is told without. */
void sp_mirror_no_verdict(struct sp_mirror *m);

/* A bounded reader is not done yet: it reads on, after sp_mirror_begin_read's number. */
bool sp_mirror_is_complete(const struct sp_mirror *m);

/* Tells what can be told. Call after anything above, from the loop. */
void sp_mirror_tell(struct sp_mirror *m);
/* The owner takes output again; sp_mirror_tell goes on. */
void sp_mirror_unblock(struct sp_mirror *m);

/* More waits for the owner than should. What waits for a verdict is none of that: the verdict comes
 * by the connection that would not be read. */
static inline bool sp_mirror_is_full(const struct sp_mirror *m)
{
    return m->is_blocked && m->waiting_bytes >= SP_MIRROR_HIGH;
}

#endif

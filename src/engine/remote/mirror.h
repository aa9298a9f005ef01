/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mirror: the events of one remote process, put in order.
 *
 * Output chunks, the exit and the close share one sequence of numbers. They arrive as events,
 * perhaps twice or out of order, and as answers to reads, which fill the gaps. Each is reported
 * once, in order; what the executor does not have any more is reported as a gap. The mirror does no
 * I/O and knows no clock.
 *
 *   numbers: | reported | waiting: known, not accepted yet | gap | held: arrived early |
 */
#ifndef SP_ENGINE_REMOTE_MIRROR_H
#define SP_ENGINE_REMOTE_MIRROR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/json.h"
#include "base/receipt.h"
#include "base/str.h"
#include "base/stream.h"

#define SP_MIRROR_MAX_EVENTS 256          /* held events; more are dropped and read later */
#define SP_MIRROR_MAX_BYTES  (1U << 20)   /* held bytes; likewise */
#define SP_MIRROR_MAX_DROPS  16384        /* dropped since the last read: then it fails */
#define SP_MIRROR_HIGH       (256U << 10) /* waiting bytes: the connection should not be read */

struct sp_mirror_ops {
    bool (*output)(void *user, enum sp_stream stream,
                   struct sp_str bytes); /* false: not accepted */
    void (*gap)(void *user);
    void (*exited)(void *user, int code, int denied); /* denied -1: unknown */
    void (*closed)(void *user);
};

struct sp_mirror_event;

struct sp_mirror {
    const struct sp_mirror_ops *ops;
    void *user;
    uint64_t known; /* every number up to here was reported or waits */
    struct sp_mirror_event *waiting, **waiting_end;
    struct sp_mirror_event *held; /* sorted by number */
    uint32_t held_count;
    size_t held_bytes;
    size_t waiting_bytes;     /* memory, not output */
    uint64_t dropped;         /* highest number dropped for want of room; 0: none */
    uint32_t drops;           /* since the last read */
    uint64_t gap_end;         /* highest number seen when the last read began */
    int verdict;              /* sandbox verdict of a read: 1 or 0; -1: none */
    bool has_verdict;         /* the verdict is final; the owner sets it if none will come */
    bool has_exit, has_close; /* known, reported or not */
    struct sp_kept_receipt
        receipt;     /* before the close of an executor that tells: the reason alone */
    bool is_blocked; /* the owner refused output; it clears this when it accepts output again */
    bool is_telling, is_exit_told;
    bool is_over; /* sp_mirror_done was called, or close was reported */
};

static inline void sp_mirror_init(struct sp_mirror *m, const struct sp_mirror_ops *ops, void *user)
{
    *m = (struct sp_mirror){.ops = ops, .user = user, .verdict = -1};
    m->waiting_end = &m->waiting;
}
void sp_mirror_done(struct sp_mirror *m); /* allowed from within an op */

/* Events. Known numbers are ignored. Early events that do not fit are dropped, since the executor
 * still has them. SP_E_LIMIT: too many dropped; SP_E_SYSTEM: out of memory; SP_E_INVALID: number 0.
 */
int sp_mirror_output(struct sp_mirror *m, uint64_t seq, enum sp_stream stream, struct sp_str bytes,
                     struct sp_err *e);
int sp_mirror_exited(struct sp_mirror *m, uint64_t seq, int code, int denied, struct sp_err *e);
int sp_mirror_closed(struct sp_mirror *m, uint64_t seq, struct sp_err *e);

/* What the owner has to fetch: READ: there is a gap. VERDICT: likewise a read, whose answer gives
 * the verdict; the exit is known but not reported until it comes, or has_verdict is set. */
enum sp_mirror_need { SP_MIRROR_NOTHING, SP_MIRROR_READ, SP_MIRROR_VERDICT };
enum sp_mirror_need sp_mirror_needs(const struct sp_mirror *m);
/* Starts a read; returns its afterSeq. */
uint64_t sp_mirror_begin_read(struct sp_mirror *m);

/* The answer to a read: fill the first members, add each chunk in order, then end. */
struct sp_mirror_answer {
    uint64_t next_seq;
    bool has_exited, has_closed;
    int code;   /* -1: unknown */
    int denied; /* -1: unknown */
    /* private to the mirror */
    uint64_t last;
    struct sp_mirror_event *first, **end;
};
int sp_mirror_add_chunk(const struct sp_mirror *m, struct sp_mirror_answer *a, uint64_t seq,
                        enum sp_stream stream, struct sp_str bytes, struct sp_err *e);
/* Applies the answer and frees its chunks, also on failure. */
int sp_mirror_end_read(struct sp_mirror *m, struct sp_mirror_answer *a, struct sp_err *e);
void sp_mirror_drop_answer(struct sp_mirror_answer *a);
/* The same from JSON: the params of a notification process/output, exited or closed, which are
 * decoded in place; and the answer to process/read. A failure that the answer reports is returned,
 * too. */
int sp_mirror_take_event(struct sp_mirror *m, struct sp_str method, struct sp_json *j,
                         uint32_t params, struct sp_err *e);
int sp_mirror_take_answer(struct sp_mirror *m, struct sp_json *j, uint32_t value, struct sp_err *e);

/* Reports what can be reported. Call it after each of the above, from the loop. */
void sp_mirror_tell(struct sp_mirror *m);
/* Too much waits for the owner. A wait for the verdict does not count: the verdict comes over the
 * connection that would be paused. */
static inline bool sp_mirror_is_full(const struct sp_mirror *m)
{
    return m->is_blocked && m->waiting_bytes >= SP_MIRROR_HIGH;
}

#endif

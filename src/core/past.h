/* SPDX-License-Identifier: Apache-2.0 */
/*
 * past: the records of ended processes, and the memory that they may take.
 *
 * When a process has closed, its facts and its output are copied into one record, and its slot and
 * struct sp_proc are given back (core/ended.h). The body of a record is bytes without pointers, so
 * that it can be in a ledger, where the next front reads it (sp_ended_adopt_all). A log view reads
 * the log of a process from its ring or from its record: readers keep their cursors, which a record
 * finds again by their numbers.
 *
 * A store has the records of all sessions, within a budget. Above it the session with the most
 * bytes loses its oldest output, and when it has none left, its oldest record. So a session that
 * has no more than its equal share loses nothing to others.
 */
#ifndef SP_CORE_PAST_H
#define SP_CORE_PAST_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/list.h"
#include "base/str.h"
#include "cell/ring.h"
#include "os/loop.h"

#define SP_KEPT_DEFAULT (64U << 20)
#define SP_KEPT_LEAST   (1U << 20) /* the smallest budget */

struct sp_ledger;
struct sp_past;
struct sp_pasts;
struct sp_proc;

/* ---- the log of a process ---- */

struct sp_log_view {
    struct sp_ring_view ring;          /* head NULL: not in a ring */
    const struct sp_past *past;        /* NULL: no record */
    const struct sp_ring_state *state; /* of a record: its end */
    uint64_t bytes, bytes_at_exit;     /* of a record: output in all, and before EXITED */
    bool has_exit;                     /* the log of the record has an EXITED record */
};

/* As sp_ring_next and sp_ring_is_intact. Without a log there is no record. */
int sp_log_next(const struct sp_log_view *v, struct sp_ring_cursor *c, struct sp_record *ret);
static inline bool sp_log_is_intact(const struct sp_log_view *v, const struct sp_record *r)
{
    return v->past != NULL || sp_ring_is_intact(&v->ring, r);
}

/* ---- a record ---- */

struct sp_past {
    /* Variable; in a ledger, the loose bytes. */
    struct sp_list link; /* of the session: those that may be evicted, the oldest first */
    struct sp_past *next_in_bucket;
    struct sp_proc *opened; /* the process that reads it; NULL: none, it is shut */
    uint64_t kept_ms;       /* when its lifetime began; 0: not yet */
    uint32_t hash;          /* of the id */
    uint32_t bytes;         /* of memory, as the allocator counts */
    uint64_t input_state;   /* enum sp_input_state */
    /* Constant after sp_pasts_add; in a ledger, under its CRC. */
    uint64_t number;  /* sp_proc.number */
    uint64_t session; /* sp_session.number */
    uint32_t id_size, output_at, size, output_bytes;
    uint32_t argc;
    bool has_name, is_output_evicted;
    char body[]; /* the id, facts, output from output_at to size */
};

/* Copies what is kept of a closed process, and prepares its view: `past` is still NULL there. NULL:
 * no memory. `ledger` may be NULL: then the record ends with this front. */
struct sp_past *sp_past_make(struct sp_ledger *ledger, struct sp_proc *p);
void sp_past_free(struct sp_ledger *ledger, struct sp_past *past); /* accepts NULL */
/* Fills a zeroed process; its log is that of the record. false: no memory. */
bool sp_past_read(struct sp_past *past, struct sp_proc *p);

/* ---- sessions and the store ---- */

enum sp_past_stage { SP_PAST_OUTPUT, SP_PAST_RECORD, SP_PAST_STAGES };

struct sp_past_store {
    struct sp_ledger *ledger; /* where records are; NULL: in memory of this front */
    uint64_t budget, bytes;
    uint32_t count;
    struct sp_pasts **heap; /* sessions with shut records, the one with most bytes first */
    uint32_t heap_count, heap_cap;
    uint64_t evicted[SP_PAST_STAGES];
    /* Evicts a record: it has to be removed. */
    void (*evict)(struct sp_pasts *of, struct sp_past *past);
};

struct sp_pasts {
    struct sp_past_store *store;
    struct sp_list list; /* of sp_past.link */
    struct sp_past **buckets;
    uint32_t bucket_count, count;
    struct sp_past *with_output; /* no record before it has output, unless it was open when it was
                                    its turn; NULL: none has */
    uint64_t bytes, shut_bytes;  /* of the records in `list`, and of the shut ones among them */
    uint32_t place;              /* index in the heap + 1; 0: not there */
    struct sp_timer due;         /* end of the lifetime of the oldest */
};

static inline void sp_pasts_init(struct sp_pasts *s, struct sp_past_store *store)
{
    s->store = store;
    sp_list_init(&s->list);
}

static inline void sp_pasts_done(struct sp_pasts *s) /* requires an empty session */
{
    free(s->buckets);
    s->buckets = NULL;
    s->bucket_count = 0;
}

/* The record can be found, also by an heir, and counts. false: no memory. */
bool sp_pasts_add(struct sp_pasts *s, struct sp_past *past);
/* The record may be evicted from now on, while no process reads it. */
void sp_pasts_release(struct sp_pasts *s, struct sp_past *past, uint64_t now_ms);
void sp_pasts_open(struct sp_pasts *s, struct sp_past *past, struct sp_proc *by);
void sp_pasts_shut(struct sp_pasts *s, struct sp_past *past);
/* The record is not freed. */
void sp_pasts_remove(struct sp_pasts *s, struct sp_past *past);
struct sp_past *sp_pasts_find(const struct sp_pasts *s, struct sp_str id);

/* Evicts until no more than so many bytes are left, or nothing may be evicted. false: nothing was.
 */
bool sp_past_store_shrink(struct sp_past_store *store, uint64_t bytes);

#endif

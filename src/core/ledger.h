/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger: what outlives a front that is killed, in a memory file.
 *
 *   header | index: words | heap: records
 *
 * A front that is killed stops between two instructions, and what it stored before stays. So a
 * record is written first; one store of its word in the index, which names its place, makes it
 * true. Storing 0 there frees it. What is free is not written down: the *heir*, the next front,
 * reads the index.
 *
 * A record has `loose` bytes, then `fixed` bytes. The fixed ones are under a CRC-32C that
 * sp_ledger_commit computes, and do not change any more. The loose ones may: 8-byte words, each
 * stored as one, or things that are of use to this front alone, as pointers; an heir overwrites
 * them.
 *
 * An heir believes nothing of what it finds: bounds, overlaps and CRCs are checked here, contents
 * by those who read a record.
 */
#ifndef SP_CORE_LEDGER_H
#define SP_CORE_LEDGER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define SP_LEDGER_FORMAT    1U
#define SP_LEDGER_RECORDS   (1U << 19)
#define SP_LEDGER_RECORD    (48U << 20) /* the largest record, in bytes */
#define SP_LEDGER_COUNTERS  64U
#define SP_LEDGER_STRIKES   32U
#define SP_LEDGER_FLIGHTS   64U /* bytes of a text of the flight record */
#define SP_LEDGER_MOST_KIND 31U

struct sp_ledger;

enum sp_ledger_kind {
    SP_LEDGER_SESSION = 1,
    SP_LEDGER_PROC,
    SP_LEDGER_CELL,
    SP_LEDGER_PAST,
    SP_LEDGER_APPROVAL,
    SP_LEDGER_DECISION,
    SP_LEDGER_NETWORK,
    SP_LEDGER_LEAVES,
    SP_LEDGER_KINDS /* an heir skips kinds that it does not know, and keeps their records */
};

/* Crashes of fronts in requests of one session or peer. */
struct sp_ledger_strike {
    uint64_t who; /* number of a session, or hash of a peer's address; 0: unused */
    uint64_t at_ms[3];
    uint64_t held_until_ms, held_for_ms;
};

/* The request that the front is working on. */
struct sp_ledger_flight {
    _Atomic uint64_t is_set; /* 0 while the rest is written */
    uint64_t session;        /* number; 0: none yet */
    char method[SP_LEDGER_FLIGHTS];
    char peer[SP_LEDGER_FLIGHTS];
};

/* What there is once. All of it is for the front to use; an heir checks what it reads. */
struct sp_ledger_header {
    uint64_t magic;
    uint32_t format;     /* of the records */
    uint32_t min_reader; /* readers of an older format refuse the ledger */
    uint64_t index_at, index_words, heap_at, heap_units;
    uint64_t hash_key[2]; /* of sp_hash */
    _Atomic uint64_t generation;
    _Atomic uint64_t next_session, next_number;
    _Atomic uint64_t adopting; /* sp_ledger_name of the record that the heir is reading; 0: none */
    _Atomic uint64_t counters[SP_LEDGER_COUNTERS];
    struct sp_ledger_flight flight;
    struct sp_ledger_strike strikes[SP_LEDGER_STRIKES];
};

/* The first front's. SP_E_SYSTEM. */
int sp_ledger_new(struct sp_ledger **ret, struct sp_err *e);
/* An heir's: takes fd on success. Records that fail a check are removed. SP_E_MALFORMED: it is no
 * ledger, or of a format that this program does not read. */
int sp_ledger_open(int fd, struct sp_ledger **ret, struct sp_err *e);
void sp_ledger_close(struct sp_ledger *l); /* NULL is fine */

int sp_ledger_fd(const struct sp_ledger *l);
struct sp_ledger_header *sp_ledger_header(struct sp_ledger *l);
uint32_t sp_ledger_removed(const struct sp_ledger *l); /* records, by sp_ledger_open */

/* A record under construction, zeroed; `loose` is a multiple of 8. The result is aligned to 16
 * bytes. NULL: full. */
void *sp_ledger_alloc(struct sp_ledger *l, enum sp_ledger_kind kind, size_t loose, size_t fixed);
/* From here on an heir finds it. One that is committed stays as it is. */
void sp_ledger_commit(struct sp_ledger *l, void *record);
/* Also one that was not committed. NULL is fine. */
void sp_ledger_free(struct sp_ledger *l, void *record);

/* The records of a kind that are committed, in no particular order; `after` NULL: the first. The
 * sizes may be any, the fixed bytes are those that were committed. */
void *sp_ledger_next(struct sp_ledger *l, enum sp_ledger_kind kind, const void *after,
                     size_t *ret_loose, size_t *ret_fixed);
/* Names a committed record; another one has another name. */
uint64_t sp_ledger_name(const struct sp_ledger *l, const void *record);
/* What the record takes of memory. */
size_t sp_ledger_bytes(const void *record);

#endif

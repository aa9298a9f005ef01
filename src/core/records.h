/* SPDX-License-Identifier: Apache-2.0 */
/*
 * records: what the ledger (core/ledger.h) says of a session and of a process that has not become a
 * sp_past record. Written by this front, read by the next one (core/adopt.h).
 *
 * A process has its record before START is sent to its cell, and loses it with its slot. A session
 * has its record before its client is told the id.
 */
#ifndef SP_CORE_RECORDS_H
#define SP_CORE_RECORDS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"
#include "base/str.h"

struct sp_proc;
struct sp_session;

struct sp_session_record {
    /* loose */
    _Atomic uint64_t due_ms; /* when a detached session ends (sp_clock_ms); 0: it is attached */
    /* fixed */
    uint64_t number;
    char id[40];
    char client_name[136];
};

/* What may change while a process runs. */
enum sp_proc_mark {
    SP_MARK_TERMINATED = 1,
    SP_MARK_KILLED = 2,    /* it was sent SIGKILL on request */
    SP_MARK_FORGOTTEN = 4, /* it does not enter the history */
    SP_MARK_LEFT_NETWORK = 8,
    SP_MARK_WRITER_SIZE = 16, /* the terminal has the size of a writer, not the owner's */
    SP_MARK_LIMIT = 256,      /* enum sp_limit + 1 that has ended it, times this */
};

struct sp_proc_record {
    /* loose */
    _Atomic uint64_t marks; /* enum sp_proc_mark */
    _Atomic uint64_t size;  /* of the owner's terminal: rows << 16 | columns */
    /* fixed */
    uint64_t number, session; /* sp_proc.number, sp_session.number */
    uint64_t seat_number;
    uint32_t cell, slot; /* sp_cell.key */
    int64_t started_ms;
    uint32_t argc;
    uint32_t id_size, name_size, strings_size; /* name_size 0: none */
    uint32_t leaf_size;                        /* of a struct sp_leaf_record; 0: none */
    uint8_t is_tty, is_confined, network, tier;
    uint8_t are_limits_asked;
    uint8_t scopes[SP_LIMIT_COUNT]; /* enum sp_limit_scope */
    uint64_t limits[SP_LIMIT_COUNT];
    char text[]; /* id, name, strings, leaf */
};

/* Without a ledger all of these do nothing and succeed. false: no room in it. Once its place in a
 * cell is known; replaces an earlier record of the process. */
bool sp_proc_write_record(struct sp_proc *p);
void sp_proc_mark(struct sp_proc *p, enum sp_proc_mark mark, bool is_set);
void sp_proc_record_size(struct sp_proc *p);
void sp_proc_drop_record(struct sp_proc *p);

/* The texts of a record that the ledger has found intact; false: their sizes do not fit. */
struct sp_proc_texts {
    struct sp_str id, name, strings, leaf;
};
bool sp_proc_record_texts(const struct sp_proc_record *r, size_t fixed, struct sp_proc_texts *ret);

#define SP_SESSION_LOOSE offsetof(struct sp_session_record, number)
#define SP_PROC_LOOSE    offsetof(struct sp_proc_record, number)

#endif

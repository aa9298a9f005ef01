/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pids: the children of a cell, by pid.
 *
 * A pid in the table is not reaped, so it can be signalled. The cell reaps all of its children in
 * one loop (strays.h), without a descriptor for each.
 */
#ifndef SP_CELL_PIDS_H
#define SP_CELL_PIDS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct sp_pending_start;

enum sp_pid_kind {
    SP_PID_COMMAND, /* `at` is its slot */
    SP_PID_STRAY,   /* `at` is its place in the list of strays.c */
    SP_PID_OTHER,   /* a file worker, or a killed command whose slot is free */
};

struct sp_pid {
    pid_t pid; /* 0: the entry is free */
    enum sp_pid_kind kind;
    uint32_t at;
    struct sp_pending_start *start; /* OTHER: its `child` is cleared when this one is reaped */
};

struct sp_pids {
    struct sp_pid *table; /* NULL: none yet; freed by the owner */
    uint32_t count, size;
};

/* Makes room, so that the next sp_pids_put succeeds. false: no memory. */
bool sp_pids_reserve(struct sp_pids *t);
/* Adds or changes an entry. */
void sp_pids_put(struct sp_pids *t, pid_t pid, enum sp_pid_kind kind, uint32_t at);
/* NULL: not there. Valid until the next call that changes the table. */
struct sp_pid *sp_pids_find(const struct sp_pids *t, pid_t pid);
void sp_pids_remove(struct sp_pids *t, pid_t pid);

#endif

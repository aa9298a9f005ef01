/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proc_limits: the limits of one process: which ones are in force, how each is enforced, and which
 * were reached.
 *
 *   memory, pids, cpus   the command's cgroup and those around it (leaves.h); at best, and without
 * a controller: RLIMIT_DATA, and RLIMIT_NPROC in a sandbox CPU time             its cgroup's count,
 * read by a timer here; RLIMIT_CPU for each process output               counted by the cell, which
 * kills the tree open files, fsize    rlimits, set by the cell before execve wall time            a
 * timer here
 */
#ifndef SP_CORE_PROC_LIMITS_H
#define SP_CORE_PROC_LIMITS_H

#include "base/limits.h"
#include "cell/wire.h"
#include "core/leaves.h"
#include "os/loop.h"

struct sp_front;
struct sp_proc;

struct sp_proc_limits {
    struct sp_limit_set set; /* in force */
    enum sp_limit_scope scopes[SP_LIMIT_COUNT];
    bool is_asked; /* the client asked for limits, and is told about them */
    bool is_judged, is_counted;
    struct sp_limit_hits *hits; /* NULL: none was reached; see sp_proc_hits */
    struct sp_timer wall, cpu;
    struct sp_leaf *leaf; /* NULL: it needs none, or has left it */
    enum { SP_LEAF_UNREAD, SP_LEAF_READ_AT_EXIT, SP_LEAF_READ_AT_CLOSE } read;
};

/* The OOM killer's count of the host, and when it was read. */
struct sp_oom_sample {
    uint64_t kills, read_ms;
};

/* The scope that a limit of a command has where limits can use these controllers
 * (sp_leaves_prepare); NOWHERE: it cannot be enforced. */
enum sp_limit_scope sp_limits_scope(unsigned controllers, enum sp_limit limit);

/* Combines what the start asks for with what the server allows, fills the members of START, and
 * takes the leaf. SP_E_INVALID: more than that, or a limit that cannot be enforced. */
int sp_proc_limits_begin(struct sp_proc *p, const struct sp_limit_ask *ask, struct sp_wire_start *m,
                         struct sp_err *e);
/* It runs. */
void sp_proc_limits_started(struct sp_proc *p);
/* What was reached, also before it has exited; for past.h: the same, to fill it. NULL: no memory.
 */
const struct sp_limit_hits *sp_proc_hits(const struct sp_proc *p);
struct sp_limit_hits *sp_proc_own_hits(struct sp_proc *p);
/* It has exited or closed: fills `hits`. Called again, it adds what was reached since. */
void sp_proc_limits_judge(struct sp_proc *p);
/* It has closed, or was never started: gives the leaf back, and counts the limits that were
 * reached. Fine to call again. */
void sp_proc_limits_done(struct sp_proc *p);

#endif

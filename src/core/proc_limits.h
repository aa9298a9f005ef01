/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proc_limits: the limits of one process: which ones are in force, how each is enforced, and which
 * were reached.
 *
 *   output               counted by the cell, which kills the tree
 *   open files, fsize    rlimits, set by the cell before execve
 *   CPU time             RLIMIT_CPU for each process
 *   wall time            a timer here
 */
#ifndef SP_CORE_PROC_LIMITS_H
#define SP_CORE_PROC_LIMITS_H

#include "base/limits.h"
#include "cell/wire.h"
#include "os/loop.h"

struct sp_front;
struct sp_proc;

struct sp_proc_limits {
    struct sp_limit_set set; /* in force */
    enum sp_limit_scope scopes[SP_LIMIT_COUNT];
    bool is_asked; /* the client asked for limits, and is told about them */
    struct sp_limit_hits hits;
    struct sp_timer wall;
};

/* The scope that a limit of a command has on this host; NOWHERE: it cannot be enforced. */
enum sp_limit_scope sp_limits_scope(const struct sp_front *f, enum sp_limit limit);

/* Combines what the start asks for with what the server allows, and fills the members of START.
 * SP_E_INVALID: more than that, or a limit that cannot be enforced. */
int sp_proc_limits_begin(struct sp_proc *p, const struct sp_limit_ask *ask, struct sp_wire_start *m,
                         struct sp_err *e);
/* It runs. */
void sp_proc_limits_started(struct sp_proc *p);
/* It has exited or closed: fills `hits`. Called again, it adds what was reached since. */
void sp_proc_limits_judge(struct sp_proc *p);

#endif

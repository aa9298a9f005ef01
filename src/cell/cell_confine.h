/* SPDX-License-Identifier: Apache-2.0 */
/*
 * confine: a cell locks itself in, by a plan, before it starts its first command.
 *
 * Commands inherit all of it: namespaces, view, rules and filter are paid for once.
 */
#ifndef SP_CELL_CELL_CONFINE_H
#define SP_CELL_CELL_CONFINE_H

#include "cell/view.h"

/* What the confined cell keeps for its commands; -1: none. */
struct sp_confined {
    int scope;    /* a Landlock rule set that each command enters on its own */
    int listener; /* where refused calls are told */
};

/*
 * Under tier CELL the caller forks: the child, pid 1 of its namespace and a sibling of ours, goes
 * on here; the process that called tells the front of it through `control` and ends. Returns in who
 * is to be the cell. false: *report says what failed, and nothing may be run.
 */
bool sp_confine(const struct sp_plan *plan, int control, struct sp_confined *ret,
                struct sp_built *report);

#endif

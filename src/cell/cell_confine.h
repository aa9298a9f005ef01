/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cell_confine: a cell confines itself, according to a plan, before it starts its first command.
 *
 * Commands inherit the namespaces, the view, the Landlock rules and the seccomp filter, so the cost
 * is paid once a cell. The order is fixed: namespaces, view, limits and capabilities, Landlock,
 * filter. Each step needs rights that a later one takes away. A self-test follows before any
 * command can start.
 */
#ifndef SP_CELL_CELL_CONFINE_H
#define SP_CELL_CELL_CONFINE_H

#include "sandbox/plan.h"

/* The step that failed. */
struct sp_built {
    uint32_t step; /* enum sp_build_step; NONE: success */
    int err;
    const char *where; /* the path concerned, NULL: none; points into the plan */
};

struct sp_confined {
    int scope;    /* a Landlock ruleset that each command enters on its own; -1: none */
    int listener; /* seccomp notifications of refused calls; -1: none */
    int pidfd;    /* of this process; -1: this kernel has none */
    bool has_new_root, has_own_network;
};

/*
 * plan_fd: a sealed memory file. Under tier CELL this forks. The child, pid 1 of the new pid
 * namespace, returns and becomes the cell; the calling process sends the child's pidfd to the front
 * through `control` and exits. false: *report says what failed, and no command may run.
 */
bool sp_confine(int plan_fd, int control, struct sp_confined *ret, struct sp_built *report);

#endif

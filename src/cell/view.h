/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view: the file system that a confined cell and its commands see, built from a plan.
 *
 * The caller has its own mount namespace and all capabilities over it. Afterwards the working
 * directory is the root of the view.
 */
#ifndef SP_CELL_VIEW_H
#define SP_CELL_VIEW_H

#include "sandbox/plan.h"

/* Result of the construction; step NONE: success. */
struct sp_built {
    uint32_t step; /* enum sp_build_step: the step that failed */
    int err;
    const char *where; /* the path concerned, NULL: none. Lives as long as the plan */
};

/* Returns false. */
bool sp_built_fail(struct sp_built *b, enum sp_build_step step, int err, const char *where);

bool sp_view_build(const struct sp_plan *plan, struct sp_built *ret);

#endif

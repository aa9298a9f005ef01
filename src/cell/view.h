/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view: what of the file system a confined cell and its commands can see, built from a plan.
 *
 * Needs a mount namespace of our own and all capabilities over it. Afterwards the working directory
 * is the root of the view.
 */
#ifndef SP_CELL_VIEW_H
#define SP_CELL_VIEW_H

#include "sandbox/plan.h"

/* What came of it; step NONE: all is well. */
struct sp_built {
    uint32_t step; /* enum sp_build_step */
    int err;
    const char *where; /* the path it is about; NULL: none. Lives as long as the plan */
};

bool sp_built_fail(struct sp_built *b, enum sp_build_step step, int err, const char *where);

bool sp_view_build(const struct sp_plan *plan, struct sp_built *ret);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_fixture: what every plan that is taken keeps, said a second time, in other words.
 */
#ifndef SP_RUN_PLAN_FIXTURE_H
#define SP_RUN_PLAN_FIXTURE_H

#include <string.h>

#include "sandbox/plan.h"

/* A string that starts in the plan ends in it. */
static inline bool plan_has_string(const char *memory, size_t bytes, const struct sp_plan *p,
                                   uint32_t offset)
{
    const uint64_t from = (uint64_t)p->strings + offset;

    return from < bytes && memchr(memory + from, 0, bytes - from) != NULL;
}

/* NULL, or what is wrong with it. */
static inline const char *plan_flaw(const void *memory, size_t bytes)
{
    const struct sp_plan *p = memory;

    if (bytes < sizeof *p || bytes > SP_PLAN_MAX || p->bytes != bytes)
        return "size";
    if (p->version != SP_PLAN_VERSION)
        return "version";
    if (p->tier > SP_TIER_CELL || p->view > SP_VIEW_NEW || p->net > SP_NET_HOST)
        return "what it is";
    if (sizeof *p + (uint64_t)p->op_count * sizeof(struct sp_place_op) != p->strings ||
        p->strings > bytes)
        return "count";
    for (uint32_t i = 0; i < p->op_count; i++) {
        const struct sp_place_op *o = &p->ops[i];

        if (o->op < SP_OP_WRITE || o->op >= SP_OP_MAX)
            return "op";
        if (!plan_has_string(memory, bytes, p, o->path) || *sp_plan_string(p, o->path) != '/')
            return "path";
        if (o->op == SP_OP_ALIAS && !plan_has_string(memory, bytes, p, o->target))
            return "target";
    }
    return NULL;
}

#endif

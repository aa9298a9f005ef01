/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/plan.h"

#include <string.h>

const char *sp_build_step_name(uint32_t step)
{
    static const char *const names[SP_BUILD_MAX] = {
#define X(name, text) [SP_BUILD_##name] = (text),
        SP_BUILD_STEPS(X)
#undef X
    };
    return step < SP_BUILD_MAX ? names[step] : "unknown";
}

static bool is_path(const struct sp_plan *p, uint32_t offset, uint32_t string_bytes)
{
    return offset < string_bytes && sp_plan_string(p, offset)[0] == '/';
}

const struct sp_plan *sp_plan_check(const void *memory, size_t bytes)
{
    const struct sp_plan *p = memory;

    if (bytes < sizeof *p || bytes > SP_PLAN_MAX || p->version != SP_PLAN_VERSION ||
        p->bytes != bytes || p->tier > SP_TIER_CELL || p->view > SP_VIEW_NEW ||
        p->net > SP_NET_HOST || p->op_count > (bytes - sizeof *p) / sizeof p->ops[0] ||
        p->strings != sizeof *p + p->op_count * sizeof p->ops[0])
        return NULL;
    const uint32_t string_bytes = (uint32_t)(bytes - p->strings);
    if (string_bytes != 0 && ((const char *)memory)[bytes - 1] != 0)
        return NULL;
    for (uint32_t i = 0; i < p->op_count; i++) {
        const struct sp_place_op *o = &p->ops[i];

        if (o->op == 0 || o->op >= SP_OP_MAX || !is_path(p, o->path, string_bytes) ||
            (o->op == SP_OP_ALIAS && o->target >= string_bytes))
            return NULL;
    }
    return p;
}

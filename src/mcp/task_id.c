/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names of tasks: a number, and behind it what nobody can guess (the extension demands it,
 * although a task cannot be named by anybody but its caller).
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/hash.h"
#include "mcp/task_priv.h"

void sp_mcp_task_id(const struct sp_mcp_tasks *all, uint64_t number, struct sp_mcp_task_id *ret)
{
    struct {
        const void *whose;
        uint64_t number;
    } about = {all, number};
    const struct sp_hash h = sp_hash((struct sp_str){(const char *)&about, sizeof about});

    (void)snprintf(ret->text, sizeof ret->text, "task-%" PRIu64 "-%016" PRIx64 "%016" PRIx64,
                   number, h.a, h.b);
}

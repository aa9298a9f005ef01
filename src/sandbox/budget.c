/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/budget.h"

#include <stdint.h>
#include <time.h>

#define LOOK_EVERY 64

/* Of one thread each: a library's host may have several. */
static _Thread_local uint64_t until_ms;
static _Thread_local unsigned calls;

static uint64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void sp_budget_begin(unsigned ms)
{
    until_ms = now_ms() + ms;
    calls = 0;
}

bool sp_budget_is_spent(void)
{
    return until_ms != 0 && ++calls % LOOK_EVERY == 0 && now_ms() >= until_ms;
}

int sp_budget_refuse(struct sp_err *e)
{
    return sp_fail(e, SP_E_LIMIT, 0,
                   "the sandbox policy takes too long to be held against this disk: name fewer "
                   "places and narrower patterns");
}

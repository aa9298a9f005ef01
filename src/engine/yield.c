/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/yield.h"

#define MIN_MS      250
#define MAX_MS      30000
#define MIN_POLL_MS 5000

static const struct row {
    uint64_t usual_ms, min_ms, max_ms;
} table[SP_YIELD_MAX] = {
    [SP_YIELD_EXEC] = {10000, MIN_MS, MAX_MS},
    [SP_YIELD_EXEC_WINDOWS] = {10000, 10000, MAX_MS},
    [SP_YIELD_WRITE] = {250, MIN_MS, MAX_MS},
    [SP_YIELD_POLL] = {250, MIN_POLL_MS, 0}, /* the maximum is configured */
    [SP_YIELD_COMPAT] = {1000, 0, 60000},
};

uint64_t sp_yield_poll_max(uint64_t configured_ms)
{
    return configured_ms < MIN_POLL_MS ? MIN_POLL_MS : configured_ms;
}

uint64_t sp_yield_ms(enum sp_yield_kind kind, struct sp_yield_ask ask, uint64_t poll_max_ms)
{
    const struct row *row = &table[kind];
    const uint64_t max_ms = kind == SP_YIELD_POLL ? sp_yield_poll_max(poll_max_ms) : row->max_ms;
    const uint64_t ms = ask.has_yield_time ? ask.yield_time_ms : row->usual_ms;

    return ms < row->min_ms ? row->min_ms : ms > max_ms ? max_ms : ms;
}

int sp_yield_of_write(struct sp_yield_ask ask, bool has_chars, bool no_timeout,
                      uint64_t poll_max_ms, uint64_t *ret_ms, struct sp_err *e)
{
    if (no_timeout && has_chars)
        return sp_fail(e, SP_E_INVALID, 0, "`no_timeout=true` requires empty `chars`.");
    if (no_timeout && ask.has_yield_time)
        return sp_fail(e, SP_E_INVALID, 0,
                       "`no_timeout=true` requires `yield_time_ms` to be omitted.");
    *ret_ms = no_timeout
                  ? SP_YIELD_FOREVER
                  : sp_yield_ms(has_chars ? SP_YIELD_WRITE : SP_YIELD_POLL, ask, poll_max_ms);
    return 0;
}

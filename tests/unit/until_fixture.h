/* SPDX-License-Identifier: Apache-2.0 */
/*
 * until_fixture: calls that wait for something, over puppets.
 */
#ifndef SP_UNTIL_FIXTURE_H
#define SP_UNTIL_FIXTURE_H

#include "puppet_backend.h"

static const struct sp_until an_exit = {.kind = SP_UNTIL_EXIT};

static inline struct sp_until pattern(const char *text)
{
    return (struct sp_until){.kind = SP_UNTIL_PATTERN, .pattern = sp_str_of(text)};
}

static inline struct sp_until quiet(uint64_t ms)
{
    return (struct sp_until){.kind = SP_UNTIL_QUIET, .quiet_ms = ms};
}

static inline struct sp_until port(uint16_t number)
{
    return (struct sp_until){.kind = SP_UNTIL_PORT, .port = number};
}

/* A command that waits for these, started as the n-th of the test. */
static inline void exec_until(struct answer *a, const struct sp_until *items, uint32_t count,
                              uint64_t yield_ms)
{
    const size_t n = job_count;
    struct sp_exec_request ask = command("x");

    ask.is_tty = true;
    ask.yield = (struct sp_yield_request){true, yield_ms};
    ask.until = items;
    ask.until_count = count;
    exec_ask(a, &ask);
    until(job_count == n + 1);
    say_started(n);
}

static inline void write_until(struct answer *a, const char *chars, const struct sp_until *items,
                               uint32_t count, uint64_t yield_ms)
{
    const struct sp_write_request ask = {.call_id = SP_STR("write"),
                                         .session_id = 1000,
                                         .chars = sp_str_of(chars),
                                         .yield = {yield_ms != 0, yield_ms},
                                         .until = items,
                                         .until_count = count};
    struct sp_err e = {0};

    *a = (struct answer){0};
    assert_int_equal(sp_manager_write(manager, &ask, on_reply, a, &a->call, &e), 0);
    assert_false(a->is_there);
}

#endif

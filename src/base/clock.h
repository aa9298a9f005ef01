/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clock: the time, one function a unit. These clocks always exist on Linux, so nothing can fail.
 */
#ifndef SP_BASE_CLOCK_H
#define SP_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define SP_NS_PER_S UINT64_C(1000000000)

static inline uint64_t sp_clock_read_ns(clockid_t clock)
{
    struct timespec t;

    (void)clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * SP_NS_PER_S + (uint64_t)t.tv_nsec;
}

/* Monotonic: for deadlines and durations. */
static inline uint64_t sp_clock_ns(void)
{
    return sp_clock_read_ns(CLOCK_MONOTONIC);
}

static inline uint64_t sp_clock_us(void)
{
    return sp_clock_ns() / 1000;
}

static inline uint64_t sp_clock_ms(void)
{
    return sp_clock_ns() / 1000000;
}

/* Since 1970: for users and logs. May jump. */
static inline uint64_t sp_clock_unix_ms(void)
{
    return sp_clock_read_ns(CLOCK_REALTIME) / 1000000;
}

/* CPU time of this thread. */
static inline uint64_t sp_clock_cpu_ns(void)
{
    return sp_clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
}

#endif

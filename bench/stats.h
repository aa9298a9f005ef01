/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stats: the clock, and samples with their percentiles.
 */
#ifndef BENCH_STATS_H
#define BENCH_STATS_H

#include <stddef.h>
#include <stdint.h>

#define BENCH_MS 1000000ULL
#define BENCH_S  1000000000ULL

/* Nanoseconds since some moment; never goes back. */
uint64_t bench_now(void);
double bench_seconds_since(uint64_t begin);

/* Zero-initialised is empty. Holds at most a million samples; what comes after is not kept. */
struct bench_samples {
    double *v;
    size_t n;
    size_t cap;
    size_t turn[32]; /* where each turn ended */
    size_t turns;
};

void bench_samples_add(struct bench_samples *s, double value);

/* What was added since the last call is one turn. */
void bench_samples_turn(struct bench_samples *s);

/* The p-th part (0 to 1) of all samples lies at or below the result; NAN if there are none. */
double bench_samples_at(const struct bench_samples *s, double p);

/*
 * The median of the turns' medians. One that was disturbed, or lucky, counts once, however many
 * samples it had: on few processors a latency depends on who happens to share one.
 */
double bench_samples_middle(const struct bench_samples *s);

void bench_samples_done(struct bench_samples *s);

#endif

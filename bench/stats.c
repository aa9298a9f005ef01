/* SPDX-License-Identifier: Apache-2.0 */
#include "stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/auto.h"

enum { MAX_SAMPLES = 1000000 };

uint64_t bench_now(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t); /* cannot fail with this clock */
    return (uint64_t)t.tv_sec * BENCH_S + (uint64_t)t.tv_nsec;
}

double bench_seconds_since(uint64_t begin)
{
    return (double)(bench_now() - begin) / 1e9;
}

void bench_samples_add(struct bench_samples *s, double value)
{
    if (s->n == s->cap) {
        const size_t cap = s->cap == 0 ? 1024 : s->cap * 2;
        double *v = s->n >= MAX_SAMPLES ? NULL : realloc(s->v, cap * sizeof *v);

        if (v == NULL)
            return;
        s->v = v;
        s->cap = cap;
    }
    s->v[s->n++] = value;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;

    return (x > y) - (x < y);
}

void bench_samples_turn(struct bench_samples *s)
{
    if (s->turns < sizeof s->turn / sizeof s->turn[0])
        s->turn[s->turns++] = s->n;
}

/* Sorts a copy: the samples stay in the order they came. */
static double part(const double *v, size_t n, double p)
{
    auto_free double *copy = n == 0 ? NULL : malloc(n * sizeof *copy);

    if (copy == NULL)
        return (double)NAN;
    memcpy(copy, v, n * sizeof *copy);
    qsort(copy, n, sizeof *copy, by_size);

    const double at = ceil(p * (double)n) - 1;

    return copy[at < 0 ? 0 : (size_t)at];
}

double bench_samples_at(const struct bench_samples *s, double p)
{
    return part(s->v, s->n, p);
}

double bench_samples_middle(const struct bench_samples *s)
{
    double middles[sizeof s->turn / sizeof s->turn[0]];
    size_t n = 0;
    size_t from = 0;

    for (size_t i = 0; i < s->turns; i++) {
        if (s->turn[i] > from)
            middles[n++] = part(s->v + from, s->turn[i] - from, 0.5);
        from = s->turn[i];
    }
    return part(middles, n, 0.5);
}

void bench_samples_done(struct bench_samples *s)
{
    free(s->v);
    *s = (struct bench_samples){0};
}

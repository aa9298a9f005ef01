/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cases: what very many commands leave behind.
 */
#include <math.h>
#include <poll.h>
#include <stdio.h>

#include "base/auto.h"
#include "cases.h"
#include "memory.h"
#include "spawn.h"

enum { WIDTH = 16, SETTLE_MS = 1000, WARM_STARTS = 1000, BUDGET_MAX_S = 60 };

static const char *const true_argv[] = {"/bin/true", NULL};
static const struct bench_command true_cmd = {.argv = true_argv};

/* So many commands to their end, 16 at a time. */
static int run_count(struct bench_seat *s, uint64_t count, struct sp_err *e)
{
    uint64_t asked = 0;
    uint64_t closed = 0;
    int64_t id;
    int r = 0;

    while (r == 0 && closed < count) {
        struct bench_message m;

        if (asked < count && asked - closed < WIDTH) {
            r = bench_client_start(s->client, ++s->procs, &true_cmd, &id, e);
            asked++;
            continue;
        }
        r = bench_client_next(s->client, &m, e);
        closed += r == 0 && m.kind == BENCH_CLOSED;
    }
    if (r < 0)
        (void)sp_wrap(e, "%llu of %llu commands", (unsigned long long)closed,
                      (unsigned long long)count);
    return r;
}

static int settled_memory(const struct bench_seat *s, struct bench_memory *ret, struct sp_err *e)
{
    (void)poll(NULL, 0, SETTLE_MS);
    return bench_memory_of(s->server.kid.pid, ret, e);
}

static void run_alone(struct bench *b, const char *const *extra, bench_turn *turn)
{
    const struct bench_case_options o = {.ack = BENCH_ACK_NOW, .extra = extra, .no_raw = true};
    struct bench_seat seats[BENCH_SIDES];

    if (b->url != NULL) /* its processes are not known */
        return;
    bench_seats_open(b, seats, &o);
    seats[BENCH_PEER].is_on = false; /* has no such bounds */
    bench_take_turns(b, seats, 1, turn);
    bench_seats_close(seats);
}

/* ---- a million ---- */

static int turn_soak(struct bench *b, struct bench_seat *s, struct sp_err *e)
{
    const uint64_t count = b->is_quick ? 20000 : 1000000;
    const uint64_t begin = bench_now();
    struct bench_memory early = {0};
    struct bench_memory late = {0};

    bench_client_deadline(s->client, 3600 * BENCH_S);
    int r = run_count(s, count * 3 / 10, e);
    if (r == 0)
        r = settled_memory(s, &early, e);
    if (r == 0)
        r = run_count(s, count - count * 3 / 10, e);
    const double took = bench_seconds_since(begin) - SETTLE_MS / 1e3;
    if (r == 0)
        r = settled_memory(s, &late, e);
    if (r < 0)
        return r;
    b->report.v[BENCH_M_SOAK][s->side] = (double)count / took;
    if (!b->is_quick) /* commands that can still be read make it grow at first */
        b->report.v[BENCH_M_SOAK_GROWTH][s->side] = fmax(late.pss_bytes - early.pss_bytes, 0);
    return 0;
}

void bench_case_soak_1m(struct bench *b)
{
    run_alone(b, NULL, turn_soak);
}

/* ---- what an ended command takes ---- */

static int turn_closed_bytes(struct bench *b, struct bench_seat *s, struct sp_err *e)
{
    const uint64_t count = b->is_quick ? 5000 : 20000;
    struct bench_memory before = {0};
    struct bench_memory after = {0};
    int r = run_count(s, WARM_STARTS, e);

    if (r == 0)
        r = settled_memory(s, &before, e);
    if (r == 0)
        r = run_count(s, count, e);
    if (r == 0)
        r = settled_memory(s, &after, e);
    if (r == 0)
        b->report.v[BENCH_M_CLOSED_BYTES][s->side] =
            (after.pss_bytes - before.pss_bytes) / (double)count;
    return r;
}

void bench_case_closed_bytes(struct bench *b)
{
    static const char *const extra[] = {"--closed-ttl", "1h", "--max-processes", "100000", NULL};

    run_alone(b, extra, turn_closed_bytes);
}

/* ---- the budget for output ---- */

/* Until the server has nothing to do any more. */
static int await_rest(const struct bench_seat *s, struct bench_memory *ret, struct sp_err *e)
{
    const uint64_t end = bench_now() + BUDGET_MAX_S * BENCH_S;
    double before = 0;
    int r = 0;

    do {
        before = ret->cpu_seconds;
        r = settled_memory(s, ret, e);
    } while (r == 0 && ret->cpu_seconds - before > 0.02 && bench_now() < end);
    return r;
}

static int turn_budget(struct bench *b, struct bench_seat *s, struct sp_err *e)
{
    static const char *const argv[] = {"/bin/sh", "-c",
                                       "head -c 4194304 /dev/zero; exec sleep 1000", NULL};
    const struct bench_command cmd = {.argv = argv};
    struct bench_memory before = {0};
    struct bench_memory after = {0};
    int r = run_count(s, WARM_STARTS, e);

    if (r == 0)
        r = settled_memory(s, &before, e);
    if (r == 0)
        r = bench_seat_start_many(s, &cmd, b->is_quick ? 100 : 1000, e);
    bench_client_free(TAKE_PTR(s->client)); /* detached: nothing waits for a reader */
    if (r == 0)
        r = await_rest(s, &after, e);
    if (r == 0)
        b->report.v[BENCH_M_BUDGET][s->side] = after.pss_bytes - before.pss_bytes;
    return r;
}

void bench_case_budget(struct bench *b)
{
    static const char *const extra[] = {"--output-memory", "64M", "--session-ttl", "10m", NULL};

    run_alone(b, extra, turn_budget);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cases: commands under a sandbox.
 *
 * The policy is the one that the peer's own client sends for a workspace: all may be read, the
 * workspace and the temporary directories may be written, no network.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/auto.h"
#include "cases.h"
#include "memory.h"

enum { WARM = 10, CELLS = 64, SETTLE_MS = 300 };

static const char *const true_argv[] = {"/bin/true", NULL};

/* A word that means nothing makes a policy of its own of each number. */
static void make_policy(const struct bench *b, unsigned number, bool is_managed, char *out,
                        size_t size)
{
    (void)snprintf(
        out, size,
        "{\"permissions\":{\"type\":\"managed\",\"network\":\"%s\",\"file_system\":{"
        "\"type\":\"restricted\",\"entries\":["
        "{\"path\":{\"type\":\"special\",\"value\":{\"kind\":\"root\"}},\"access\":\"read\"},"
        "{\"path\":{\"type\":\"special\",\"value\":{\"kind\":\"project_roots\"}},"
        "\"access\":\"write\"},"
        "{\"path\":{\"type\":\"special\",\"value\":{\"kind\":\"slash_tmp\"}},\"access\":\"write\"},"
        "{\"path\":{\"type\":\"special\",\"value\":{\"kind\":\"unknown\",\"path\":\":%u\"}},"
        "\"access\":\"read\"}]}},"
        "\"cwd\":\"file://%s/work\",\"workspaceRoots\":[\"file://%s/work\"],"
        "\"windowsSandboxLevel\":\"disabled\"}",
        is_managed ? "enabled" : "restricted", number, b->scratch, b->scratch);
}

static int make_workspace(const struct bench *b, struct sp_err *e)
{
    char path[512];

    (void)snprintf(path, sizeof path, "%s/work", b->scratch);
    return mkdir(path, 0755) < 0 && errno != EEXIST
               ? sp_fail(e, SP_E_SYSTEM, errno, "make %s", path)
               : 0;
}

/* ---- in a sandbox that is there, and without one ---- */

static int timed_starts(struct bench *b, struct bench_seat *s, const struct bench_command *cmd,
                        struct sp_err *e)
{
    int r = 0;

    for (int i = 0; r == 0 && s->samples.n == 0 && i < WARM; i++)
        r = bench_seat_run(s, cmd, e);
    const uint64_t end = bench_now() + b->turn_ns;
    while (r == 0 && s->samples.n < b->max_starts && bench_now() < end) {
        const uint64_t begin = bench_now();

        r = bench_seat_run(s, cmd, e);
        bench_samples_add(&s->samples, bench_seconds_since(begin));
    }
    return r;
}

/* The raw column is the same server's start without a sandbox. */
static int turn_confined(struct bench *b, struct bench_seat *s, struct sp_err *e)
{
    char policy[2048];

    make_policy(b, 0, false, policy, sizeof policy);
    const struct bench_command confined = {.argv = true_argv, .sandbox = policy};
    const struct bench_command open = {.argv = true_argv};
    return timed_starts(b, s, s->side == BENCH_RAW ? &open : &confined, e);
}

/* Raw is a second server of ours, which runs the same commands with less around them. */
static void open_with_second(struct bench *b, struct bench_seat seats[BENCH_SIDES],
                             const struct bench_case_options *o)
{
    struct sp_err e = {0};

    bench_seats_open(b, seats, o);
    if (!seats[BENCH_OURS].is_on)
        return;
    if (bench_seat_open(b, &seats[BENCH_RAW], BENCH_OURS, o, &e) < 0)
        bench_seat_drop(b, &seats[BENCH_RAW], &e);
    seats[BENCH_RAW].side = BENCH_RAW;
}

void bench_case_confined(struct bench *b)
{
    const struct bench_case_options o = {.ack = BENCH_ACK_NOW, .no_raw = true};
    struct bench_seat seats[BENCH_SIDES];
    struct sp_err e = {0};

    if (make_workspace(b, &e) < 0)
        return;
    open_with_second(b, seats, &o);
    bench_take_turns(b, seats, b->rounds, turn_confined);
    bench_seats_report(b, seats, BENCH_M_CONFINED_P50);
    bench_seats_close(seats);
}

/* ---- the first command of a policy ---- */

static int first_starts(struct bench *b, struct bench_seat *s, const char *network_proxy,
                        struct sp_err *e)
{
    char policy[2048];
    int r = 0;

    for (int i = 0; r == 0 && i < 5; i++) {
        make_policy(b, 100 + (unsigned)s->procs, network_proxy != NULL, policy, sizeof policy);
        const struct bench_command cmd = {
            .argv = true_argv, .sandbox = policy, .network_proxy = network_proxy};
        const uint64_t begin = bench_now();

        r = bench_seat_run(s, &cmd, e);
        bench_samples_add(&s->samples, bench_seconds_since(begin));
    }
    return r;
}

static int turn_first(struct bench *b, struct bench_seat *s, struct sp_err *e)
{
    return first_starts(b, s, NULL, e);
}

void bench_case_sandbox_first(struct bench *b)
{
    const struct bench_case_options o = {.ack = BENCH_ACK_NOW, .no_raw = true};
    struct bench_seat seats[BENCH_SIDES];
    struct sp_err e = {0};

    if (make_workspace(b, &e) < 0)
        return;
    bench_seats_open(b, seats, &o);
    bench_take_turns(b, seats, b->is_quick ? 4 : 8, turn_first);
    bench_seats_report(b, seats, BENCH_M_FIRST_P50);
    bench_seats_close(seats);
}

/* ---- in a managed network ---- */

static const char network_proxy[] =
    "{\"proxy\":{\"enabled\":true,\"enableSocks5\":true,\"enableSocks5Udp\":false,"
    "\"allowUpstreamProxy\":false,\"dangerouslyAllowAllUnixSockets\":false,\"mode\":\"full\","
    "\"domains\":{\"bench.example\":\"allow\"},\"unixSockets\":null,\"allowLocalBinding\":false},"
    "\"environmentId\":\"bench\",\"executionId\":\"bench\"}";

static int turn_managed(struct bench *b, struct bench_seat *s, struct sp_err *e)
{
    const bool is_managed = s->side != BENCH_RAW;
    char policy[2048];

    make_policy(b, 0, is_managed, policy, sizeof policy);
    const struct bench_command cmd = {
        .argv = true_argv, .sandbox = policy, .network_proxy = is_managed ? network_proxy : NULL};
    return timed_starts(b, s, &cmd, e);
}

static int turn_managed_first(struct bench *b, struct bench_seat *s, struct sp_err *e)
{
    return first_starts(b, s, s->side == BENCH_RAW ? NULL : network_proxy, e);
}

void bench_case_managed(struct bench *b)
{
    const struct bench_case_options o = {.ack = BENCH_ACK_NOW, .no_raw = true};
    struct bench_seat seats[BENCH_SIDES];
    struct sp_err e = {0};

    if (make_workspace(b, &e) < 0)
        return;
    open_with_second(b, seats, &o);
    bench_take_turns(b, seats, b->rounds, turn_managed);
    bench_seats_report(b, seats, BENCH_M_MANAGED_P50);
    bench_seats_close(seats);
    open_with_second(b, seats, &o);
    bench_take_turns(b, seats, b->is_quick ? 4 : 8, turn_managed_first);
    bench_seats_report(b, seats, BENCH_M_MANAGED_FIRST);
    bench_seats_close(seats);
}

/* ---- many sandboxes ---- */

static const char *const sleep_argv[] = {"/bin/sleep", "1000", NULL};

/* Each with a command that sleeps, so that none ends; commands are not counted. */
static int turn_cells(struct bench *b, struct bench_seat *s, struct sp_err *e)
{
    struct bench_memory before = {0};
    struct bench_memory after = {0};
    int r = bench_memory_of(s->server.kid.pid, &before, e);
    const uint64_t begin = bench_now();

    for (unsigned i = 0; r == 0 && i < CELLS; i++) {
        char policy[2048];
        int64_t id;

        make_policy(b, i, false, policy, sizeof policy);
        const struct bench_command cmd = {.argv = sleep_argv, .sandbox = policy};
        r = bench_client_start(s->client, ++s->procs, &cmd, &id, e);
        if (r == 0)
            r = bench_seat_await(s, id, e);
    }
    if (r < 0)
        return r;
    b->report.v[BENCH_M_CELLS_START][s->side] = bench_seconds_since(begin);
    (void)poll(NULL, 0, SETTLE_MS);
    r = bench_memory_of(s->server.kid.pid, &after, e);
    if (r == 0)
        b->report.v[BENCH_M_CELLS_PRIVATE][s->side] =
            (after.private_bytes - before.private_bytes) / CELLS;
    return r;
}

void bench_case_cells(struct bench *b)
{
    const struct bench_case_options o = {.ack = BENCH_ACK_NOW, .no_raw = true};
    struct bench_seat seats[BENCH_SIDES];
    struct sp_err e = {0};

    if (b->url != NULL || make_workspace(b, &e) < 0)
        return;
    bench_seats_open(b, seats, &o);
    seats[BENCH_PEER].is_on = false; /* it keeps none */
    bench_take_turns(b, seats, 1, turn_cells);
    bench_seats_close(seats);
}

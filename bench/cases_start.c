/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cases: starting, of the server and of commands.
 */
#include <stdio.h>

#include "base/auto.h"
#include "cases.h"
#include "memory.h"
#include "raw.h"
#include "spawn.h"

enum { WIDTH = 16, WARM = 20 };

static const char *const true_argv[] = {"/bin/true", NULL};
static const struct bench_command true_cmd = {.argv = true_argv};
static const struct bench_command true_on_pty = {.argv = true_argv, .is_tty = true};

/* ---- start-up, connect ---- */

static int turn_startup(struct bench *b, struct bench_seat *s, struct sp_err *e)
{
    const uint64_t begin = bench_now();
    int r;

    if (s->side == BENCH_RAW) {
        r = bench_raw_first_line(e);
        bench_samples_add(&s->samples, bench_seconds_since(begin));
        return r;
    }
    r = bench_server_start(&s->server, b->command[s->side], NULL, e);
    if (r == 0)
        r = bench_client_open(s->server.url, BENCH_ACK_NOW, &s->client, e);
    if (r == 0)
        bench_samples_add(&s->samples, bench_seconds_since(begin));
    bench_client_free(TAKE_PTR(s->client));
    bench_server_stop(&s->server);
    return r;
}

void bench_case_startup(struct bench *b)
{
    const struct bench_case_options o = {.not_yet = true};
    struct bench_seat seats[BENCH_SIDES];

    bench_seats_open(b, seats, &o);
    if (b->url != NULL)
        seats[BENCH_OURS].is_on = false; /* it runs already */
    bench_take_turns(b, seats, b->is_quick ? 5 : 15, turn_startup);
    bench_seats_report(b, seats, BENCH_M_STARTUP);
    bench_seats_close(seats);
}

static int turn_connect(struct bench *b, struct bench_seat *s, struct sp_err *e)
{
    const char *url = s->side == BENCH_OURS && b->url != NULL ? b->url : s->server.url;
    const uint64_t end = bench_now() + b->turn_ns;

    /* The raw server has one client at a time. */
    bench_client_free(TAKE_PTR(s->client));
    for (int n = 0; n < 400 && bench_now() < end; n++) {
        struct bench_client *c = NULL;
        const uint64_t begin = bench_now();
        const int r = bench_client_open(url, BENCH_ACK_NOW, &c, e);

        if (r < 0)
            return r;
        bench_samples_add(&s->samples, bench_seconds_since(begin));
        bench_client_free(c);
    }
    return 0;
}

void bench_case_connect(struct bench *b)
{
    const struct bench_case_options o = {.raw_helper = "respond"};
    struct bench_seat seats[BENCH_SIDES];

    bench_seats_open(b, seats, &o);
    bench_take_turns(b, seats, b->rounds, turn_connect);
    bench_seats_report(b, seats, BENCH_M_CONNECT);
    bench_seats_close(seats);
}

/* ---- /bin/true, one after the other ---- */

static int one_start(struct bench_seat *s, const struct bench_command *cmd, struct sp_err *e)
{
    return s->side == BENCH_RAW ? bench_raw_true(cmd->is_tty, e) : bench_seat_run(s, cmd, e);
}

static int turn_of(struct bench *b, struct bench_seat *s, const struct bench_command *cmd,
                   struct sp_err *e)
{
    int r = 0;

    /* The first ones are different: caches, and TCP's own quick acknowledgements. */
    for (int i = 0; r == 0 && s->samples.n == 0 && i < WARM; i++)
        r = one_start(s, cmd, e);

    const uint64_t end = bench_now() + b->turn_ns;
    while (r == 0 && s->samples.n < b->max_starts && bench_now() < end) {
        const uint64_t begin = bench_now();

        r = one_start(s, cmd, e);
        bench_samples_add(&s->samples, bench_seconds_since(begin));
    }
    return r;
}

static int turn_start(struct bench *b, struct bench_seat *s, struct sp_err *e)
{
    return turn_of(b, s, &true_cmd, e);
}

static int turn_pty(struct bench *b, struct bench_seat *s, struct sp_err *e)
{
    return turn_of(b, s, &true_on_pty, e);
}

void bench_case_start(struct bench *b)
{
    const struct bench_case_options o = {.ack = BENCH_ACK_NOW};
    struct bench_seat seats[BENCH_SIDES];

    bench_seats_open(b, seats, &o);
    bench_take_turns(b, seats, b->rounds, turn_start);
    bench_seats_report(b, seats, BENCH_M_START_P50);
    bench_seats_report_p99(b, seats, BENCH_M_START_P99);
    bench_seats_close(seats);
}

void bench_case_ordinary(struct bench *b)
{
    const struct bench_case_options o = {.ack = BENCH_ACK_LATER};
    struct bench_seat seats[BENCH_SIDES];

    bench_seats_open(b, seats, &o);
    bench_take_turns(b, seats, b->rounds, turn_start);
    bench_seats_report(b, seats, BENCH_M_ORDINARY);
    bench_seats_close(seats);
}

void bench_case_pty(struct bench *b)
{
    const struct bench_case_options o = {.ack = BENCH_ACK_NOW};
    struct bench_seat seats[BENCH_SIDES];

    bench_seats_open(b, seats, &o);
    bench_take_turns(b, seats, b->rounds, turn_pty);
    bench_seats_report(b, seats, BENCH_M_PTY_P50);
    bench_seats_close(seats);
}

/* ---- several at a time ---- */

static int run_many(struct bench *b, struct bench_seat *s, uint64_t budget, uint64_t *ret_ended,
                    struct sp_err *e)
{
    const uint64_t begin = bench_now();
    uint64_t ended = 0;
    int live = 0;
    int64_t id;
    int r = 0;

    for (; r == 0 && live < WIDTH; live++)
        r = bench_client_start(s->client, ++s->procs, &true_cmd, &id, e);
    while (r == 0 && live > 0) {
        struct bench_message m;

        r = bench_client_next(s->client, &m, e);
        if (r < 0 || m.kind != BENCH_CLOSED)
            continue;
        ended++;
        live--;
        if (bench_now() - begin < budget && s->procs < b->max_starts) {
            r = bench_client_start(s->client, ++s->procs, &true_cmd, &id, e);
            live++;
        }
    }
    *ret_ended = ended;
    return r;
}

static int turn_inflight(struct bench *b, struct bench_seat *s, struct sp_err *e)
{
    const uint64_t budget = 3 * b->turn_ns;
    const uint64_t begin = bench_now();
    uint64_t ended = 0;
    double rate = 0;
    int r;

    if (s->side == BENCH_RAW) {
        r = bench_raw_many(WIDTH, budget, &rate, e);
    } else {
        r = run_many(b, s, budget, &ended, e);
        rate = (double)ended / bench_seconds_since(begin);
    }
    if (r == 0)
        bench_samples_add(&s->samples, rate);
    return r;
}

void bench_case_inflight(struct bench *b)
{
    const struct bench_case_options o = {.ack = BENCH_ACK_NOW};
    struct bench_seat seats[BENCH_SIDES];

    bench_seats_open(b, seats, &o);
    bench_take_turns(b, seats, b->is_quick ? 2 : 3, turn_inflight);
    bench_seats_report(b, seats, BENCH_M_INFLIGHT);
    bench_seats_close(seats);
}

/* ---- processor time ---- */

/* A server of ours, with one more option, or of the peer. */
struct cpu_seat {
    const char *option; /* NULL: none */
    enum bench_metric metric;
    enum bench_side side;
    bool wants_receipts;
    struct bench_seat seat;
    struct bench_samples front;
};

static int run_in_sequence(struct bench *b, struct bench_seat *s, uint64_t budget,
                           uint64_t *ret_ended, struct sp_err *e)
{
    const uint64_t end = bench_now() + budget;
    int r = 0;

    for (*ret_ended = 0; r == 0 && s->procs < b->max_starts && bench_now() < end; (*ret_ended)++)
        r = bench_seat_run(s, &true_cmd, e);
    return r;
}

typedef int run_starts(struct bench *b, struct bench_seat *s, uint64_t budget, uint64_t *ret_ended,
                       struct sp_err *e);

/* The first turn is not counted: it makes cells and caches. */
static int turn_cpu(struct bench *b, struct cpu_seat *c, run_starts *run, bool is_counted,
                    struct sp_err *e)
{
    struct bench_memory before = {0};
    struct bench_memory after = {0};
    uint64_t ended = 0;
    int r = bench_memory_of(c->seat.server.kid.pid, &before, e);

    bench_client_deadline(c->seat.client, 60 * BENCH_S);
    if (r == 0)
        r = run(b, &c->seat, 2 * b->turn_ns, &ended, e);
    if (r == 0)
        r = bench_memory_of(c->seat.server.kid.pid, &after, e);
    if (r < 0 || ended == 0 || !is_counted)
        return r;
    const double front = (after.first_seconds - before.first_seconds) / (double)ended;
    bench_samples_add(&c->seat.samples, (after.cpu_seconds - before.cpu_seconds) / (double)ended);
    bench_samples_add(&c->front, front);
    bench_samples_turn(&c->seat.samples);
    bench_samples_turn(&c->front);
    return r;
}

/* Servers that do not know an option have no figure. */
static bool open_cpu_seat(struct bench *b, struct cpu_seat *c)
{
    const struct bench_case_options o = {.ack = BENCH_ACK_NOW, .wants_receipts = c->wants_receipts};
    const char *command = b->command[c->side];
    struct sp_err e = {0};
    char line[4096];

    c->seat.is_on = false;
    if (command == NULL)
        return false;
    (void)snprintf(line, sizeof line, "%s %s", command, c->option == NULL ? "" : c->option);
    b->command[c->side] = line;
    const int r = bench_seat_open(b, &c->seat, c->side, &o, &e);
    b->command[c->side] = command;
    return r == 0;
}

static void measure_cpu(struct bench *b, struct cpu_seat *seats, int count, run_starts *run)
{
    struct sp_err e = {0};

    for (int i = 0; i < count; i++)
        (void)open_cpu_seat(b, &seats[i]);
    for (int k = 0; k <= (b->is_quick ? 2 : 5) && !bench_is_stopped(); k++)
        for (int i = 0; i < count; i++)
            if (seats[i].seat.is_on && turn_cpu(b, &seats[i], run, k > 0, &e) < 0)
                bench_seat_drop(b, &seats[i].seat, &e);
    for (int i = 0; i < count; i++) {
        struct cpu_seat *c = &seats[i];

        b->report.v[c->metric][c->side] = bench_samples_middle(&c->seat.samples);
        if (c->metric == BENCH_M_CPU_1 && c->side == BENCH_OURS) {
            const double front = bench_samples_middle(&c->front);

            b->report.v[BENCH_M_CPU_FRONT][c->side] = front;
            b->report.v[BENCH_M_CPU_CELL][c->side] = b->report.v[c->metric][c->side] - front;
        }
        bench_samples_done(&c->front);
        if (c->seat.client != NULL)
            bench_seat_close(&c->seat);
    }
}

void bench_case_start_cpu(struct bench *b)
{
    struct cpu_seat seats[] = {
        {.option = "--cells 1", .metric = BENCH_M_CPU_1, .side = BENCH_OURS},
        {.option = "--cells 2", .metric = BENCH_M_CPU_2, .side = BENCH_OURS},
        {.option = "--cells 4", .metric = BENCH_M_CPU_4, .side = BENCH_OURS},
        {.option = "--cells 8", .metric = BENCH_M_CPU_8, .side = BENCH_OURS},
        {.metric = BENCH_M_CPU_1, .side = BENCH_PEER},
    };

    measure_cpu(b, seats, sizeof seats / sizeof seats[0], run_many);
}

void bench_case_receipt_cpu(struct bench *b)
{
    struct cpu_seat seats[] = {
        {.option = "--cells 1", .metric = BENCH_M_RECEIPT_CPU, .wants_receipts = true},
        {.option = "--cells 1", .metric = BENCH_M_RECEIPT_OFF},
    };

    measure_cpu(b, seats, sizeof seats / sizeof seats[0], run_many);
}

/* The time until the end; where the host has no controllers the two are the same. */
void bench_case_limits_start(struct bench *b)
{
    struct cpu_seat seats[] = {
        {.option = "--cells 1 --limit memory=512M --limit pids=512",
         .metric = BENCH_M_LIMITS_START},
        {.option = "--cells 1", .metric = BENCH_M_LIMITS_OFF},
    };
    struct sp_err e = {0};

    for (int i = 0; i < 2; i++)
        (void)open_cpu_seat(b, &seats[i]);
    for (int k = 0; k < b->rounds && !bench_is_stopped(); k++)
        for (int i = 0; i < 2; i++) {
            struct bench_seat *s = &seats[i].seat;

            if (s->is_on && turn_start(b, s, &e) < 0)
                bench_seat_drop(b, s, &e);
            bench_samples_turn(&s->samples);
        }
    for (int i = 0; i < 2; i++) {
        b->report.v[seats[i].metric][BENCH_OURS] = bench_samples_middle(&seats[i].seat.samples);
        if (seats[i].seat.client != NULL)
            bench_seat_close(&seats[i].seat);
    }
}

void bench_case_seq_cpu(struct bench *b)
{
    struct cpu_seat seats[] = {
        {.metric = BENCH_M_SEQ_CPU, .side = BENCH_OURS},
        {.option = "--busy-poll off", .metric = BENCH_M_SEQ_CPU_OFF, .side = BENCH_OURS},
        {.option = "--busy-poll on", .metric = BENCH_M_SEQ_CPU_ON, .side = BENCH_OURS},
        {.metric = BENCH_M_SEQ_CPU, .side = BENCH_PEER},
    };

    measure_cpu(b, seats, sizeof seats / sizeof seats[0], run_in_sequence);
}

/* ---- with many alive ---- */

static const char *const sleep_argv[] = {"/bin/sleep", "1000", NULL};
static const struct bench_command sleep_cmd = {.argv = sleep_argv};

static const struct level {
    int live;
    enum bench_metric metric;
} levels[] = {{10, BENCH_M_LIVE_10}, {100, BENCH_M_LIVE_100}, {1000, BENCH_M_LIVE_1000}};

enum { LEVELS = sizeof levels / sizeof levels[0] };

/*
 * A server for each level, all of them at the same time: the machine is equally full for all, and
 * they take turns, so a difference is the server's own.
 */
static int live_on(struct bench *b, enum bench_side side, struct sp_err *e)
{
    const struct bench_case_options o = {.ack = BENCH_ACK_NOW};
    struct bench_seat seats[LEVELS] = {0};
    struct bench_seat raw = {.side = BENCH_RAW};
    int r = 0;

    for (int i = 0; r == 0 && i < LEVELS; i++) {
        r = bench_seat_open(b, &seats[i], side, &o, e);
        if (r == 0)
            bench_client_deadline(seats[i].client, 90 * BENCH_S);
        if (r == 0)
            r = bench_seat_start_many(&seats[i], &sleep_cmd, levels[i].live, e);
    }
    for (int k = 0; r == 0 && k < b->rounds && !bench_is_stopped(); k++) {
        for (int i = 0; r == 0 && i < LEVELS; i++) {
            r = turn_of(b, &seats[i], &true_cmd, e);
            bench_samples_turn(&seats[i].samples);
        }
        if (r == 0)
            r = turn_of(b, &raw, &true_cmd, e);
        bench_samples_turn(&raw.samples);
    }
    for (int i = 0; r == 0 && i < LEVELS; i++) {
        b->report.v[levels[i].metric][side] = bench_samples_middle(&seats[i].samples);
        b->report.v[levels[i].metric][BENCH_RAW] = bench_samples_middle(&raw.samples);
    }
    bench_samples_done(&raw.samples);
    for (int i = 0; i < LEVELS; i++)
        if (seats[i].is_on)
            bench_seat_close(&seats[i]);
    return r;
}

void bench_case_live(struct bench *b)
{
    /* Ours last, so that raw is its neighbour. */
    for (int side = b->is_quick ? BENCH_OURS : BENCH_PEER; side >= BENCH_OURS; side--) {
        const bool is_given = side == BENCH_OURS && b->url != NULL;
        struct bench_seat s = {.side = (enum bench_side)side};
        struct sp_err e = {0};

        if ((b->command[side] != NULL || is_given) && live_on(b, (enum bench_side)side, &e) < 0)
            bench_seat_drop(b, &s, &e);
    }
}

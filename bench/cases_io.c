/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cases: bytes, single and by the gigabyte.
 */
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cases.h"
#include "pattern.h"
#include "raw.h"
#include "spawn.h"

enum { LOOK_AT_ALL_OF_EVERY = 64, WARM = 20, WAIT_MS = 5000, REST_MS = 3 };

static const char byte_base64[] = "eA=="; /* "x" */

/* Starts the echo helper as the seat's process and hears that it is ready. */
static int start_echo(struct bench *b, struct bench_seat *s, bool is_tty, struct sp_err *e)
{
    const char *const argv[] = {b->self, "--helper", "echo", NULL};
    const struct bench_command cmd = {.argv = argv, .is_tty = is_tty, .has_stdin = !is_tty};
    struct bench_message m = {.kind = BENCH_OTHER};
    bool is_replied = false;
    bool is_ready = false;
    int64_t id;
    int r = bench_client_start(s->client, ++s->procs, &cmd, &id, e);

    while (r == 0 && !(is_replied && is_ready)) {
        r = bench_client_next(s->client, &m, e);
        if (r == 0 && m.kind == BENCH_EXITED)
            return sp_fail(e, SP_E_FAILED, 0, "the echo helper ended");
        is_replied |= r == 0 && m.kind == BENCH_REPLY;
        is_ready |= r == 0 && m.kind == BENCH_OUTPUT;
    }
    s->seq = 1;
    return r;
}

/* ---- PTY echo ---- */

/* From the request until the byte is back; the reply to the request is taken along, untimed. */
static int one_echo(struct bench_seat *s, double *ret_seconds, struct sp_err *e)
{
    const uint64_t begin = bench_now();
    struct bench_message m;
    bool is_replied = false;
    bool is_back = false;
    int64_t id;
    int r = bench_client_write(s->client, s->procs, byte_base64, &id, e);

    while (r == 0 && !(is_replied && is_back)) {
        r = bench_client_next(s->client, &m, e);
        if (r < 0)
            break;
        is_replied |= m.kind == BENCH_REPLY && m.id == id;
        if (m.kind == BENCH_OUTPUT) {
            *ret_seconds = bench_seconds_since(begin);
            is_back = true;
        }
    }
    return r;
}

static int turn_echo(struct bench *b, struct bench_seat *s, struct sp_err *e)
{
    const uint64_t end = bench_now() + b->turn_ns;
    int r = 0;

    for (int n = 0; r == 0 && (n < WARM || bench_now() < end); n++) {
        const uint64_t begin = bench_now();
        double took = 0;

        if (s->side == BENCH_RAW) {
            r = bench_raw_echo(s->raw, e);
            took = bench_seconds_since(begin);
        } else {
            r = one_echo(s, &took, e);
        }
        if (r == 0 && n >= WARM)
            bench_samples_add(&s->samples, took);
    }
    return r;
}

void bench_case_echo(struct bench *b)
{
    const struct bench_case_options o = {.ack = BENCH_ACK_NOW};
    char *self = strdup(b->self);
    char helper[] = "--helper";
    char part[] = "echo";
    char *const argv[] = {self, helper, part, NULL};
    struct bench_seat seats[BENCH_SIDES];
    struct bench_raw_child child = {.in = -1, .out = -1};
    struct sp_err e = {0};
    char ready;

    bench_seats_open(b, seats, &o);
    for (int i = 0; i < BENCH_RAW; i++)
        if (seats[i].is_on && start_echo(b, &seats[i], true, &e) < 0)
            bench_seat_drop(b, &seats[i], &e);
    if (bench_raw_start(&child, argv, true, &e) < 0) {
        bench_seat_drop(b, &seats[BENCH_RAW], &e);
    } else {
        bench_kid_enlist(&child.kid, SIGKILL);
        seats[BENCH_RAW].raw = &child;
        if (read(child.out, &ready, 1) != 1)
            seats[BENCH_RAW].is_on = false;
    }
    bench_take_turns(b, seats, b->rounds, turn_echo);
    bench_seats_report(b, seats, BENCH_M_ECHO_P50);
    bench_seats_report_p99(b, seats, BENCH_M_ECHO_P99);
    bench_seats_close(seats);
    if (child.in >= 0)
        bench_raw_end(&child);
    free(self);
}

/* A raw server with TCP: bytes go there and back over a connection, its seat's raw. */
static void open_with_relay(struct bench *b, struct bench_seat seats[BENCH_SIDES],
                            const char *helper, bool is_tty, int *fd)
{
    /* A server that serves one request after the other would never see the write. */
    static const char *const extra[] = {"--concurrent-requests", "8", NULL};
    const struct bench_case_options o = {
        .ack = BENCH_ACK_NOW, .extra = extra, .raw_helper = helper};
    struct sp_err e = {0};

    bench_seats_open(b, seats, &o);
    for (int i = 0; i < BENCH_RAW; i++)
        if (seats[i].is_on && start_echo(b, &seats[i], is_tty, &e) < 0)
            bench_seat_drop(b, &seats[i], &e);
    *fd = -1;
    seats[BENCH_RAW].raw = fd;
    if (seats[BENCH_RAW].is_on && bench_raw_dial(seats[BENCH_RAW].server.url, fd, &e) < 0)
        bench_seat_drop(b, &seats[BENCH_RAW], &e);
}

static int turn_echo_raw2(struct bench *b, struct bench_seat *s, struct sp_err *e)
{
    const uint64_t end = bench_now() + b->turn_ns;
    int r = 0;

    if (s->side != BENCH_RAW)
        return turn_echo(b, s, e);
    for (int n = 0; r == 0 && (n < WARM || bench_now() < end); n++) {
        const uint64_t begin = bench_now();

        r = bench_raw_ping(*(int *)s->raw, e);
        if (r == 0 && n >= WARM)
            bench_samples_add(&s->samples, bench_seconds_since(begin));
    }
    return r;
}

void bench_case_echo_raw2(struct bench *b)
{
    struct bench_seat seats[BENCH_SIDES];
    int fd;

    open_with_relay(b, seats, "relay2_tty", true, &fd);
    bench_take_turns(b, seats, b->rounds, turn_echo_raw2);
    bench_seats_report(b, seats, BENCH_M_ECHO_RAW2);
    bench_seats_close(seats);
    if (fd >= 0)
        (void)close(fd);
}

/* ---- output by the gigabyte ---- */

/* What has come of a process's output so far. Events may overtake one another, output may not. */
struct flow {
    uint64_t bytes;
    uint64_t last;   /* seq of the last output */
    uint64_t chunks; /* how many outputs */
    uint64_t events; /* outputs, exited and closed */
    uint64_t closed; /* seq of closed: there are as many events. 0: not yet */
};

static int flow_output(struct flow *f, const struct bench_message *m, struct sp_err *e)
{
    const bool whole = f->chunks++ % LOOK_AT_ALL_OF_EVERY == 0;
    size_t len = 0;

    if (m->seq <= f->last)
        return sp_fail(e, SP_E_FAILED, 0, "output %llu after %llu", (unsigned long long)m->seq,
                       (unsigned long long)f->last);
    if (!bench_pattern_holds(f->bytes, m->chunk, whole, &len))
        return sp_fail(e, SP_E_FAILED, 0, "wrong bytes in output %llu, at offset %llu",
                       (unsigned long long)m->seq, (unsigned long long)f->bytes);
    f->last = m->seq;
    f->bytes += len;
    f->events++;
    return 0;
}

/* Runs the helper and counts all it says. */
static int stream(struct bench_seat *s, const struct bench_command *cmd, uint64_t bytes,
                  struct sp_err *e)
{
    struct flow f = {0};
    const uint64_t proc = ++s->procs;
    int64_t id;
    int r = bench_client_start(s->client, proc, cmd, &id, e);

    while (r == 0 && (f.closed == 0 || f.events < f.closed)) {
        struct bench_message m;

        r = bench_client_next(s->client, &m, e);
        if (r < 0 || m.proc != proc)
            continue;
        if (m.kind == BENCH_OUTPUT) {
            r = flow_output(&f, &m, e);
        } else if (m.kind == BENCH_EXITED) {
            f.events++;
            if (m.exit_code != 0)
                r = sp_fail(e, SP_E_FAILED, 0, "the helper ended with %lld",
                            (long long)m.exit_code);
        } else if (m.kind == BENCH_CLOSED) {
            f.events++;
            f.closed = m.seq;
        }
    }
    if (r == 0 && (f.bytes != bytes || f.events != f.closed))
        r = sp_fail(e, SP_E_FAILED, 0, "%llu of %llu bytes came, %llu of %llu events",
                    (unsigned long long)f.bytes, (unsigned long long)bytes,
                    (unsigned long long)f.events, (unsigned long long)f.closed);
    return r;
}

static int timed_stream(struct bench *b, struct bench_seat *s, const char *part, uint64_t count,
                        uint64_t bytes, double *ret_seconds, struct sp_err *e)
{
    char number[32];
    const char *const argv[] = {b->self, "--helper", part, number, NULL};
    const struct bench_command cmd = {.argv = argv};

    (void)snprintf(number, sizeof number, "%llu", (unsigned long long)count);

    const uint64_t begin = bench_now();
    const int r = stream(s, &cmd, bytes, e);

    *ret_seconds = bench_seconds_since(begin);
    return r;
}

/* As many bytes as fill a turn, found out in the first turn. */
static int turn_output(struct bench *b, struct bench_seat *s, struct sp_err *e)
{
    const double min = 32 << 20;
    const double max = 2.0 * (1 << 30);
    const double goal = b->is_quick ? 0.3 : 0.6;
    const bool is_first = s->amount < min;
    const uint64_t bytes = is_first ? (uint64_t)min : (uint64_t)s->amount;
    double took = 1;
    const int r = timed_stream(b, s, "flood", bytes, bytes, &took, e);

    if (r == 0 && !is_first)
        bench_samples_add(&s->samples, (double)bytes / took);
    s->amount = fmin(fmax((double)bytes / took * goal, min), max);
    return r;
}

void bench_case_output(struct bench *b)
{
    const struct bench_case_options o = {
        .ack = BENCH_ACK_LATER, .raw_helper = "respond", .raw_has_client = true};
    struct bench_seat seats[BENCH_SIDES];

    bench_seats_open(b, seats, &o);
    bench_take_turns(b, seats, 1 + (b->is_quick ? 2 : 5), turn_output);
    bench_seats_report(b, seats, BENCH_M_OUTPUT);
    bench_seats_close(seats);
}

/* Two million lines. */
static int lines_by(struct bench *b, struct bench_seat *s, const char *part, struct sp_err *e)
{
    const uint64_t count = b->is_quick ? 200000 : 2000000;
    double took = 1;
    const int r = timed_stream(b, s, part, count, count * BENCH_LINE, &took, e);

    if (r == 0)
        bench_samples_add(&s->samples, (double)count / took);
    return r;
}

static int turn_lines(struct bench *b, struct bench_seat *s, struct sp_err *e)
{
    return lines_by(b, s, "lines", e);
}

static int turn_print(struct bench *b, struct bench_seat *s, struct sp_err *e)
{
    return lines_by(b, s, "print", e);
}

void bench_case_lines(struct bench *b)
{
    const struct bench_case_options o = {
        .ack = BENCH_ACK_LATER, .raw_helper = "respond", .raw_has_client = true};
    struct bench_seat seats[BENCH_SIDES];

    bench_seats_open(b, seats, &o);
    bench_take_turns(b, seats, b->is_quick ? 1 : 3, turn_lines);
    bench_seats_report(b, seats, BENCH_M_LINES);
    for (int i = 0; i < BENCH_SIDES; i++)
        bench_samples_done(&seats[i].samples);
    bench_take_turns(b, seats, b->is_quick ? 1 : 3, turn_print);
    bench_seats_report(b, seats, BENCH_M_PRINT);
    bench_seats_close(seats);
}

/* ---- a parked read ---- */

/*
 * The read is parked: a request that was sent after it has been answered. Then a byte wakes it, and
 * three things come in some order: the answer to the write, the notification, the answer to the
 * read.
 */
static int one_read(struct bench_seat *s, int rest_ms, double *ret_seconds, struct sp_err *e)
{
    struct bench_message m;
    int64_t read_id = 0;
    int64_t write_id = 0;
    int64_t status_id = 0;
    int missing = 3;
    int r = bench_client_read(s->client, s->procs, s->seq, WAIT_MS, &read_id, e);

    if (r == 0)
        r = bench_client_status(s->client, &status_id, e);
    if (r == 0)
        r = bench_seat_await(s, status_id, e);
    if (r < 0)
        return r;

    if (rest_ms > 0)
        (void)poll(NULL, 0, rest_ms);
    const uint64_t begin = bench_now();
    r = bench_client_write(s->client, s->procs, byte_base64, &write_id, e);
    while (r == 0 && missing > 0) {
        r = bench_client_next(s->client, &m, e);
        if (r < 0)
            break;
        if (m.kind == BENCH_OUTPUT || (m.kind == BENCH_REPLY && m.id == write_id))
            missing--;
        if (m.kind != BENCH_REPLY || m.id != read_id)
            continue;
        *ret_seconds = bench_seconds_since(begin);
        missing--;
        if (m.chunk.n == 0)
            return sp_fail(e, SP_E_FAILED, 0, "the parked read was answered with nothing");
        s->seq = m.next_seq - 1;
    }
    return r;
}

/* A rest lets all that take part fall asleep. */
static int reads_after(struct bench *b, struct bench_seat *s, int rest_ms, struct sp_err *e)
{
    const uint64_t end = bench_now() + b->turn_ns;
    int r = 0;

    for (int n = 0; r == 0 && (n < WARM || bench_now() < end); n++) {
        if (rest_ms > 0 && s->side == BENCH_RAW)
            (void)poll(NULL, 0, rest_ms);
        const uint64_t begin = bench_now();
        double took = 0;

        if (s->side == BENCH_RAW) {
            r = bench_raw_ping(*(int *)s->raw, e);
            took = bench_seconds_since(begin);
        } else {
            r = one_read(s, rest_ms, &took, e);
        }
        if (r == 0 && n >= WARM)
            bench_samples_add(&s->samples, took);
    }
    return r;
}

static int turn_read(struct bench *b, struct bench_seat *s, struct sp_err *e)
{
    return reads_after(b, s, 0, e);
}

static int turn_rested_read(struct bench *b, struct bench_seat *s, struct sp_err *e)
{
    return reads_after(b, s, REST_MS, e);
}

void bench_case_read(struct bench *b)
{
    struct bench_seat seats[BENCH_SIDES];
    int fd;

    open_with_relay(b, seats, "relay", false, &fd);
    bench_take_turns(b, seats, b->rounds, turn_read);
    bench_seats_report(b, seats, BENCH_M_READ_P50);
    bench_seats_report_p99(b, seats, BENCH_M_READ_P99);
    bench_seats_close(seats);
    if (fd >= 0)
        (void)close(fd);
}

static void rested_reads(struct bench *b, const char *helper, enum bench_metric metric)
{
    struct bench_seat seats[BENCH_SIDES];
    int fd;

    open_with_relay(b, seats, helper, false, &fd);
    bench_take_turns(b, seats, b->rounds, turn_rested_read);
    bench_seats_report(b, seats, metric);
    bench_seats_close(seats);
    if (fd >= 0)
        (void)close(fd);
}

void bench_case_poll_raw1(struct bench *b)
{
    rested_reads(b, "relay", BENCH_M_POLL_RAW1);
}

void bench_case_poll_raw2(struct bench *b)
{
    rested_reads(b, "relay2", BENCH_M_POLL_RAW2);
}

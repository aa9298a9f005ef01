/* SPDX-License-Identifier: Apache-2.0 */
#include "seat.h"

#include <stdio.h>
#include <unistd.h>

#include "spawn.h"

enum { WINDOW = 16 };

static const char *const side_name[] = {
    [BENCH_OURS] = "ours", [BENCH_PEER] = "peer", [BENCH_RAW] = "raw"};

void bench_seat_drop(struct bench *b, struct bench_seat *s, const struct sp_err *e)
{
    char text[512];

    s->is_on = false;
    bench_samples_done(&s->samples);
    if (bench_is_stopped())
        return;
    b->failures += s->side != BENCH_PEER;
    (void)fprintf(stderr, "sallyport-bench: %s: %s: %s\n", b->case_name, side_name[s->side],
                  sp_error_text(e, text, sizeof text));
}

static int start_server(struct bench *b, struct bench_seat *s, const struct bench_case_options *o,
                        struct sp_err *e)
{
    char line[4096];
    int r = -1;

    if (s->side == BENCH_RAW) {
        (void)snprintf(line, sizeof line, "'%s' --helper %s", b->self, o->raw_helper);
        return bench_server_start(&s->server, line, NULL, e);
    }
    if (o->extra != NULL)
        r = bench_server_start(&s->server, b->command[s->side], o->extra, e);
    return r == 0 ? 0 : bench_server_start(&s->server, b->command[s->side], NULL, e);
}

int bench_seat_open(struct bench *b, struct bench_seat *s, enum bench_side side,
                    const struct bench_case_options *o, struct sp_err *e)
{
    const bool is_raw = side == BENCH_RAW;
    const bool is_given = side == BENCH_OURS && b->url != NULL;
    int r = 0;

    *s = (struct bench_seat){.side = side, .is_on = true};
    s->server = (struct bench_server){.kid.pidfd = -1, .out = -1, .err = -1};
    if (o->not_yet || (is_raw && o->raw_helper == NULL))
        return 0;
    if (!is_given)
        r = start_server(b, s, o, e);
    if (r == 0 && (!is_raw || o->raw_has_client))
        r = (o->wants_receipts ? bench_client_open_for_receipts : bench_client_open)(
            is_given ? b->url : s->server.url, o->ack, &s->client, e);
    if (r < 0)
        bench_seat_close(s);
    return r;
}

void bench_seat_close(struct bench_seat *s)
{
    bench_client_free(s->client);
    s->client = NULL;
    bench_server_stop(&s->server);
    bench_samples_done(&s->samples);
    s->is_on = false;
}

void bench_seats_open(struct bench *b, struct bench_seat seats[BENCH_SIDES],
                      const struct bench_case_options *o)
{
    for (int i = 0; i < BENCH_SIDES; i++) {
        const bool is_there = i == BENCH_RAW    ? !o->no_raw
                              : i == BENCH_OURS ? b->command[i] != NULL || b->url != NULL
                                                : b->command[i] != NULL;
        struct sp_err e = {0};

        seats[i] =
            (struct bench_seat){.side = (enum bench_side)i, .server = {.out = -1, .err = -1}};
        if (is_there && bench_seat_open(b, &seats[i], (enum bench_side)i, o, &e) < 0)
            bench_seat_drop(b, &seats[i], &e);
    }
}

void bench_seats_close(struct bench_seat seats[BENCH_SIDES])
{
    for (int i = 0; i < BENCH_SIDES; i++)
        bench_seat_close(&seats[i]);
}

void bench_take_turns(struct bench *b, struct bench_seat seats[BENCH_SIDES], int rounds,
                      bench_turn *turn)
{
    for (int k = 0; k < rounds; k++)
        for (int i = 0; i < BENCH_SIDES && !bench_is_stopped(); i++) {
            struct sp_err e = {0};

            if (!seats[i].is_on)
                continue;
            if (seats[i].client != NULL)
                bench_client_deadline(seats[i].client, 60 * BENCH_S);
            if (turn(b, &seats[i], &e) < 0)
                bench_seat_drop(b, &seats[i], &e);
            bench_samples_turn(&seats[i].samples);
        }
}

void bench_seats_report(struct bench *b, struct bench_seat seats[BENCH_SIDES], enum bench_metric m)
{
    for (int i = 0; i < BENCH_SIDES; i++)
        b->report.v[m][i] = bench_samples_middle(&seats[i].samples);
}

void bench_seats_report_p99(struct bench *b, struct bench_seat seats[BENCH_SIDES],
                            enum bench_metric m)
{
    for (int i = 0; i < BENCH_SIDES; i++)
        b->report.v[m][i] = bench_samples_at(&seats[i].samples, 0.99);
}

int bench_seat_run(struct bench_seat *s, const struct bench_command *cmd, struct sp_err *e)
{
    const uint64_t proc = ++s->procs;
    struct bench_message m;
    bool is_replied = false;
    bool has_exited = false;
    bool is_closed = false;
    int64_t id;
    int r = bench_client_start(s->client, proc, cmd, &id, e);

    while (r == 0 && !(is_replied && has_exited && is_closed)) {
        r = bench_client_next(s->client, &m, e);
        if (r < 0)
            break;
        if (m.kind == BENCH_REPLY && m.id == id)
            is_replied = true;
        if (m.proc != proc)
            continue;
        if (m.kind == BENCH_EXITED && m.exit_code != 0)
            return sp_fail(e, SP_E_FAILED, 0, "%s ended with %lld", cmd->argv[0],
                           (long long)m.exit_code);
        has_exited |= m.kind == BENCH_EXITED;
        is_closed |= m.kind == BENCH_CLOSED;
    }
    return r;
}

int bench_seat_start_many(struct bench_seat *s, const struct bench_command *cmd, int count,
                          struct sp_err *e)
{
    int asked = 0;
    int started = 0;
    int r = 0;

    while (r == 0 && started < count) {
        struct bench_message m;
        int64_t id;

        if (asked < count && asked - started < WINDOW) {
            r = bench_client_start(s->client, ++s->procs, cmd, &id, e);
            asked++;
            continue;
        }
        r = bench_client_next(s->client, &m, e);
        if (r == 0 && m.kind == BENCH_EXITED)
            return sp_fail(e, SP_E_FAILED, 0, "%s ended early", cmd->argv[0]);
        started += r == 0 && m.kind == BENCH_REPLY;
    }
    if (r < 0)
        (void)sp_wrap(e, "%d of %d started", started, count);
    return r;
}

int bench_seat_await(struct bench_seat *s, int64_t id, struct sp_err *e)
{
    struct bench_message m = {.kind = BENCH_OTHER};
    int r = 0;

    while (r == 0 && !(m.kind == BENCH_REPLY && m.id == id))
        r = bench_client_next(s->client, &m, e);
    return r;
}

int bench_seat_program(const struct bench_seat *server, char *ret, size_t size, struct sp_err *e)
{
    char link[64];

    (void)snprintf(link, sizeof link, "/proc/%d/exe", (int)server->server.kid.pid);
    const ssize_t n = readlink(link, ret, size - 1);
    if (n < 0)
        return sp_fail(e, SP_E_NOT_FOUND, 0, "which file the server runs is not known");
    ret[n] = 0;
    return 0;
}

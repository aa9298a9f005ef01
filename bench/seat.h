/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seat: who takes part in a case, and taking turns.
 *
 * In a case the sides act in turn (ours, peer, raw, ours, …), so that whatever disturbs the machine
 * disturbs all alike. A side that fails leaves the case with a note; the others go on.
 */
#ifndef BENCH_SEAT_H
#define BENCH_SEAT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "client.h"
#include "report.h"
#include "server.h"
#include "stats.h"

struct bench {
    const char *command[2]; /* of ours and of the peer; NULL: there is none */
    const char *url;        /* ours is there already; it is not started */
    const char *binary;     /* ours, for its size; NULL: what runs */
    const char *self;       /* this program's file */
    const char *scratch;    /* a directory of this run */
    const char *memory;     /* another, not on a disk if that is possible */
    bool is_quick;
    uint64_t turn_ns;      /* how long one turn of a latency case lasts */
    int rounds;            /* how many turns each side has */
    uint64_t max_starts;   /* of one server in one case: a server keeps closed processes a while */
    const char *case_name; /* which runs */
    int failures;          /* cases that ours or raw had to leave */
    struct bench_report report;
};

struct bench_seat {
    enum bench_side side;
    bool is_on;
    struct bench_server server; /* raw: only if the case has a raw server */
    struct bench_client *client;
    struct bench_samples samples;
    uint64_t procs; /* numbers used: the last process's */
    uint64_t seq;   /* of a long-lived process: the last event seen */
    double amount;  /* of work in the next turn, where it adapts */
    void *raw;      /* the case's own */
};

struct bench_case_options {
    enum bench_ack ack;
    const char *const *extra; /* words for the servers' command lines, dropped if they refuse */
    const char *raw_helper;   /* a helper that plays the raw server */
    bool raw_has_client;      /* and speaks WebSocket */
    bool not_yet;             /* the turns start the servers themselves */
    bool no_raw;
    bool wants_receipts;
};

/* Starts servers and connects clients for every side there is. */
void bench_seats_open(struct bench *b, struct bench_seat seats[BENCH_SIDES],
                      const struct bench_case_options *o);
void bench_seats_close(struct bench_seat seats[BENCH_SIDES]);

/* One seat alone, for cases that need several servers of a side. */
int bench_seat_open(struct bench *b, struct bench_seat *s, enum bench_side side,
                    const struct bench_case_options *o, struct sp_err *e);
void bench_seat_close(struct bench_seat *s);

/* The file that its server runs, which is what cells are made of too. */
int bench_seat_program(const struct bench_seat *server, char *ret, size_t size, struct sp_err *e);

typedef int bench_turn(struct bench *b, struct bench_seat *s, struct sp_err *e);

/* Each side in turn, so many times. */
void bench_take_turns(struct bench *b, struct bench_seat seats[BENCH_SIDES], int rounds,
                      bench_turn *turn);

/* Puts the middle of every side's samples, or their slowest hundredth, into the report. */
void bench_seats_report(struct bench *b, struct bench_seat seats[BENCH_SIDES], enum bench_metric m);
void bench_seats_report_p99(struct bench *b, struct bench_seat seats[BENCH_SIDES],
                            enum bench_metric m);

/* Starts the command as the seat's next process and waits until it is closed. */
int bench_seat_run(struct bench_seat *s, const struct bench_command *cmd, struct sp_err *e);

/* Starts so many that stay, a few at a time, and waits until all have been started. */
int bench_seat_start_many(struct bench_seat *s, const struct bench_command *cmd, int count,
                          struct sp_err *e);

/* Waits for the reply to this request; what else comes is dropped. */
int bench_seat_await(struct bench_seat *s, int64_t id, struct sp_err *e);

/* A side leaves the case, and stderr hears why. */
void bench_seat_drop(struct bench *b, struct bench_seat *s, const struct sp_err *e);

#endif

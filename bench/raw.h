/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raw: what the kernel itself takes for the things a server is measured by.
 *
 * Each does the least that gives the same result: no protocol, no second process but the command.
 */
#ifndef BENCH_RAW_H
#define BENCH_RAW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "spawn.h"

/* Starts /bin/true, reads its output (two pipes, or a terminal) to the end and reaps it. */
int bench_raw_true(bool is_tty, struct sp_err *e);

/* The same with `width` at a time (pipes), for so long. */
int bench_raw_many(int width, uint64_t budget_ns, double *ret_per_s, struct sp_err *e);

/* Starts a program and waits for its first line. */
int bench_raw_first_line(struct sp_err *e);

/* A command on a terminal, or (is_tty false) with pipes for stdin and stdout. */
struct bench_raw_child {
    struct bench_kid kid;
    int in; /* the terminal's master is both */
    int out;
};

int bench_raw_start(struct bench_raw_child *ret, char *const *argv, bool is_tty, struct sp_err *e);
/* One byte there and back. */
int bench_raw_echo(struct bench_raw_child *c, struct sp_err *e);
void bench_raw_end(struct bench_raw_child *c);

/* A TCP connection to a ws:// URL, used for single bytes. */
int bench_raw_dial(const char *url, int *ret_fd, struct sp_err *e);
int bench_raw_ping(int fd, struct sp_err *e);

#endif

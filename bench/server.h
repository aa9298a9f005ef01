/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server: one exec-server, started from a command line and ended for sure.
 */
#ifndef BENCH_SERVER_H
#define BENCH_SERVER_H

#include "base/error.h"
#include "spawn.h"

struct bench_server {
    struct bench_kid kid;
    int out; /* its stdout: kept open, or a second line would kill it */
    int err; /* what it said on stderr, for the story of a failure */
    char url[256];
};

/*
 * Splits the line at blanks ('…' and "…" keep words together), adds `extra` as one more word each
 * if not NULL, starts it and waits for the first line of its stdout, the URL.
 */
int bench_server_start(struct bench_server *ret, const char *line, const char *const *extra,
                       struct sp_err *e);

/* SIGTERM, then SIGKILL, then whatever it left behind. Harmless if it never started. */
void bench_server_stop(struct bench_server *s);

#endif

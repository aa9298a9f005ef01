/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory: what the processes of a server use, the commands they run excepted.
 *
 * A process is the server's own if it descends from the first one and runs the same file.
 */
#ifndef BENCH_MEMORY_H
#define BENCH_MEMORY_H

#include <sys/types.h>

#include "base/error.h"

struct bench_memory {
    double pss_bytes;     /* private, and of every shared page its fair part */
    double private_bytes; /* gone if the server ended */
    double cpu_seconds;   /* user and system, of the threads that live */
    double first_seconds; /* the same, of the first process alone */
    int processes;
};

int bench_memory_of(pid_t server, struct bench_memory *ret, struct sp_err *e);

/* Our children that nobody enlisted: orphans that came to us. Returns how many, at most max. */
int bench_memory_strays(pid_t *ret, int max);

#endif

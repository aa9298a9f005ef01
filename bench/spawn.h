/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spawn: the processes this program starts itself, and the certainty that they end.
 *
 * Starting is as cheap as the kernel allows (the memory is shared until execve), because the raw
 * limits are measured with it. Every child dies with this program. A child that stays is enlisted:
 * a signal to this program ends it at once.
 */
#ifndef BENCH_SPAWN_H
#define BENCH_SPAWN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

struct bench_spawn {
    char *const *argv; /* argv[0] is searched in PATH if it has no slash */
    char *const *envp; /* NULL: this program's environment */
    int stdio[3];      /* -1: /dev/null; else above 2 */
    bool is_tty;       /* stdio[0] becomes the controlling terminal */
    int death_signal;  /* sent to the child if this program dies */
};

struct bench_kid {
    pid_t pid; /* 0: none */
    int pidfd;
};

/* Handlers, limits, the adoption of orphans. Once, before everything else. */
void bench_spawn_init(void);

int bench_spawn(const struct bench_spawn *s, struct bench_kid *ret, struct sp_err *e);

/* From now on a signal that ends this program is passed on to the child as its death signal. */
void bench_kid_enlist(const struct bench_kid *kid, int death_signal);
bool bench_kid_is_enlisted(pid_t pid);

/* Waits for the end and reaps. *ret_status is what waitpid(2) would say; may be NULL. */
int bench_kid_reap(struct bench_kid *kid, uint64_t timeout_ns, int *ret_status, struct sp_err *e);

/* Sends the signal, waits a little, kills, reaps. Harmless if there is none. */
void bench_kid_end(struct bench_kid *kid, int sig);

/* Kills and reaps what a server left behind, to the last descendant; returns how many there were.
 */
int bench_spawn_sweep(void);

/* A signal, or the end of the time that bench_spawn_limit gave, asked this program to end. */
bool bench_is_stopped(void);
int bench_stop_signal(void);

/* Everything ends unless this is called again within so many seconds. 0: no limit. */
void bench_spawn_limit(unsigned seconds);

#endif

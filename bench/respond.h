/* SPDX-License-Identifier: Apache-2.0 */
/*
 * respond: what the servers share that do nothing but the kernel's part of the work.
 */
#ifndef BENCH_RESPOND_H
#define BENCH_RESPOND_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

enum { BENCH_RESPOND_HEAD = 10 };

/* Listens on a free loopback port and says which on stdout, as an exec-server does. */
int bench_listen_and_say(void);
int bench_accept_one(int listener);

bool bench_send_all(int fd, const char *p, size_t n);

/* Sends the n bytes at text, before which there is room for a head, as one frame. */
bool bench_send_text(int fd, char *text, size_t n);

/* A short message. */
SP_PRINTF(2, 3) bool bench_say(int fd, const char *fmt, ...);

#endif

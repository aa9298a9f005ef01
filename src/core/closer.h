/* SPDX-License-Identifier: Apache-2.0 */
/*
 * closer: close() of files for the front, which waits for no disk: on a network file system it
 * writes back and asks a server, on one in user space it asks a program, and that may never answer.
 *
 * Threads do it, that do nothing else: one for each file system that something is to be closed on,
 * so that one that does not answer holds up its own files alone, and at most SP_CLOSING_THREADS.
 * What is beyond waits, also if no thread can be had for now. Nothing is refused: who opens files
 * asks sp_closer_is_full before.
 *
 * A thread begins when it is needed and ends when there is nothing more to close. It allocates
 * nothing, and takes no signal.
 */
#ifndef SP_CORE_CLOSER_H
#define SP_CORE_CLOSER_H

#include <stdbool.h>

#include "os/loop.h"

#define SP_CLOSING_MAX     1024
#define SP_CLOSING_THREADS 64

struct sp_closer;

struct sp_closing {                     /* embedded in whoever had the file; stays until done */
    void (*done)(struct sp_closing *c); /* it is closed; *c may be freed in here */

    /* its own */
    int fd;
    uint64_t device;
    struct sp_closing *next;
};

int sp_closer_new(struct sp_loop *loop, struct sp_closer **ret, struct sp_err *e);
/* What is not closed by now is closed with the process; of what hangs, done is not called. */
void sp_closer_free(struct sp_closer *k); /* NULL is fine */

/* done comes later, never from within. */
void sp_closer_close(struct sp_closer *k, struct sp_closing *c, int fd);
/* SP_CLOSING_MAX files or more are not closed yet: some disk does not answer. */
bool sp_closer_is_full(const struct sp_closer *k);

#endif

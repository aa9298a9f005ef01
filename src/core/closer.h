/* SPDX-License-Identifier: Apache-2.0 */
/*
 * closer: close() for the front, in worker threads. On a network or FUSE file system close() may
 * write back data and wait for a server or a program that never answers; the front must not wait.
 *
 * One thread closes the files of one file system, so a file system that hangs delays its own files
 * only. Closing is never refused, also if no thread can be started for now: callers that open files
 * ask sp_closer_is_full before.
 */
#ifndef SP_CORE_CLOSER_H
#define SP_CORE_CLOSER_H

#include <stdbool.h>

#include "core/workers.h"

#define SP_CLOSING_MAX     1024
#define SP_CLOSING_THREADS 64

struct sp_closer;

/* Embedded in the owner of the file; stays valid until done. */
struct sp_closing {
    void (*done)(struct sp_closing *c); /* the file is closed; *c may be freed here */

    /* the closer's */
    struct sp_closer *closer;
    struct sp_work work;
    int fd;
};

int sp_closer_new(struct sp_loop *loop, struct sp_closer **ret, struct sp_err *e);
/* Files that no thread could close yet are left to the exit of the process. For files that hang,
 * done is not called. */
void sp_closer_free(struct sp_closer *k); /* NULL is fine */

/* done is called later, never from within. */
void sp_closer_close(struct sp_closer *k, struct sp_closing *c, int fd);
/* SP_CLOSING_MAX files or more are not closed yet: a file system does not answer. */
bool sp_closer_is_full(const struct sp_closer *k);

#endif

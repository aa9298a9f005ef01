/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workers: threads for system calls that may block for as long as a disk does not answer.
 *
 * Each job has a key (a session, a file system). At most `share` jobs of one key and `threads` jobs
 * in all run at once; the others wait in the order they were added, so a disk that hangs
 * uses up the share of its own key only. A thread starts when a job needs it, blocks all signals,
 * and ends after `idle_s` seconds without work.
 *
 * All functions are called from the loop's thread; `run` is called in a worker thread.
 */
#ifndef SP_CORE_WORKERS_H
#define SP_CORE_WORKERS_H

#include "base/list.h"
#include "os/loop.h"

struct sp_workers;

/* Embedded in the caller's job; stays valid until done, drop or sp_workers_withdraw. */
struct sp_work {
    uint64_t key;
    struct sp_list link;
};

struct sp_workers_options {
    unsigned threads;
    unsigned share;
    unsigned idle_s; /* 0: a thread ends as soon as it finds no job */
    size_t stack_bytes;
    void (*run)(struct sp_work *j);  /* uses only the job, and what lives until `ended` */
    void (*done)(struct sp_work *j); /* from the loop; may free the job */
    /* Frees a job that sp_workers_free finds waiting or finished. NULL: waiting jobs are still run,
     * and finished ones are reported to `done`. */
    void (*drop)(struct sp_work *j);
    void *user;
    void (*ended)(void *user); /* after the last thread; may be called in it; may be NULL */
};

int sp_workers_new(struct sp_loop *loop, const struct sp_workers_options *o,
                   struct sp_workers **ret, struct sp_err *e);
/* Waits END_MS for the threads. Threads that hang longer are detached, and the last one frees what
 * the threads use; their jobs are not reported. Returns whether all threads have ended. */
bool sp_workers_free(struct sp_workers *w);

/* Queues the job, and starts a thread if it needs one. Returns an errno if no thread runs and none
 * can be started: the job waits, and starting a thread is tried again every RETRY_MS. */
int sp_workers_add(struct sp_workers *w, struct sp_work *j);
/* Takes back a job that no thread has begun. false: it runs, or has run. */
bool sp_workers_withdraw(struct sp_workers *w, struct sp_work *j);

#endif

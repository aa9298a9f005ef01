/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remote_program: an exec-server that is our child and speaks on its stdin and stdout; its stderr
 * is ours.
 *
 * It leads a process group of its own, so that terminal signals do not reach it. It is ended by
 * closing its stdin; after 2 s SIGTERM and then SIGKILL go to the group. Only this child is waited
 * for.
 */
#ifndef SP_ENGINE_REMOTE_REMOTE_PROGRAM_H
#define SP_ENGINE_REMOTE_REMOTE_PROGRAM_H

#include "base/child.h"
#include "os/loop.h"

struct sp_remote_program {
    struct sp_loop *loop;
    int in, out; /* our ends of its stdout and stdin; non-blocking; -1: closed */
    struct sp_child child;
    int last_signal;
    struct sp_watch watch;
    struct sp_timer timer;
};

/* env: NAME=VALUE added to our own variables; may be NULL. *p is zeroed or ended. */
int sp_remote_program_start(struct sp_remote_program *p, struct sp_loop *loop,
                            const char *const *argv, const char *const *env, struct sp_err *e);

/* Closes our ends and ends the program from the loop. */
void sp_remote_program_end(struct sp_remote_program *p);

/* The same, but blocks: up to 2 s, and 0.5 s more after SIGTERM. */
void sp_remote_program_end_now(struct sp_remote_program *p);

#endif

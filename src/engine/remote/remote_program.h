/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program: a server that is a child of ours and speaks on its stdin and stdout. Its stderr is ours.
 *
 * It leads a process group of its own, so that the keyboard's signals are not for it. It ends when
 * its stdin does: it has 2 s, then SIGTERM, then SIGKILL, each to the group. Nobody's child but
 * this one is ever waited for.
 */
#ifndef SP_ENGINE_REMOTE_REMOTE_PROGRAM_H
#define SP_ENGINE_REMOTE_REMOTE_PROGRAM_H

#include <sys/types.h>

#include "os/loop.h"

struct sp_remote_program {
    struct sp_loop *loop;
    int in, out; /* our ends: what it says, what it hears; non-blocking; -1: closed */
    int pidfd;   /* -1: there is none, or it was reaped */
    pid_t pid;
    int last_signal;
    struct sp_watch watch;
    struct sp_timer timer;
};

/* env: NAME=VALUE besides our own environment; may be NULL. *p is zero or ended. */
int sp_remote_program_start(struct sp_remote_program *p, struct sp_loop *loop,
                            const char *const *argv, const char *const *env, struct sp_err *e);

/* Closes our ends and sees to its end, from the loop. */
void sp_remote_program_end(struct sp_remote_program *p);

/* The same, but waits for it: at most 2 s if it listens, 0.5 s more if it heeds SIGTERM. */
void sp_remote_program_end_now(struct sp_remote_program *p);

#endif

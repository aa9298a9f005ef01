/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cell_child: the processes behind a cell, as their parent knows them: started, born, killed,
 * reaped; and a cell that is made for a trial alone.
 */
#ifndef SP_CORE_CELL_CHILD_H
#define SP_CORE_CELL_CHILD_H

#include "base/buf.h"
#include "cell/wire.h"
#include "os/loop.h"

/* A process of ours that has to be reaped. */
struct sp_cell_child {
    pid_t pid;
    int pidfd; /* -1: none, or reaped */
    struct sp_watch on_end;
};

/* A descriptor of sealed memory with these bytes: what the cell reads is what we wrote. -1: errno.
 */
int sp_cell_seal(const char *name, const struct sp_buf *bytes);
/* Runs ourselves (`program`) as a cell at the other end of a new socket. */
int sp_cell_spawn(const char *program, int *ret_socket, struct sp_cell_child *ret,
                  struct sp_err *e);
/* A process that was started: it is noted as ours (os/own.h) until it is reaped. */
void sp_cell_child_set(struct sp_cell_child *child, pid_t pid, int pidfd);
void sp_cell_child_kill(const struct sp_cell_child *child);          /* none: fine */
bool sp_cell_child_await(const struct sp_cell_child *child, int ms); /* false: it lives on */
/* Waits for its end. false: it was killed, or says that it has failed. */
bool sp_cell_child_reap(struct sp_cell_child *child);
/* The maker has ended: whom it made, it has told. Reads the socket until then. */
void sp_cell_hear_of_birth(int socket, struct sp_wire_message *m, struct sp_cell_child *ret);
/* Why a cell could not be confined. SP_E_STATE: another plan may do. */
/* It fails now for want of something that others hold: the same may work in a moment. */
bool sp_cell_is_passing(int err);
void sp_cell_explain(uint32_t step, int err, const char *where, struct sp_err *ret);

/* Makes a cell by a plan and ends it at once: 0 if it could be made, or -SP_E_...; the step (enum
 * sp_build_step) and its errno say how far it came. Waits, a few seconds at most. */
int sp_cell_try(const char *program, const struct sp_buf *plan, uint32_t *ret_step, int *ret_err,
                struct sp_err *e);

/* The main loop of the child: serves the front on `fd` until the front is gone. */
int sp_cell_child_run(int fd, struct sp_err *e);

#endif

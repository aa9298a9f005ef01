/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cell_child: the processes behind a cell, as their parent sees them: spawned, born, killed,
 * reaped.
 */
#ifndef SP_CORE_CELL_CHILD_H
#define SP_CORE_CELL_CHILD_H

#include "base/buf.h"
#include "cell/wire.h"
#include "os/loop.h"

/* A child process that we have to reap. */
struct sp_cell_child {
    pid_t pid;
    int pidfd; /* -1: none, or reaped */
    struct sp_watch on_end;
};

/* A memfd with these bytes, sealed: the cell reads what we wrote. -1: errno. */
int sp_cell_seal(const char *name, const struct sp_buf *bytes);
/* Runs our own binary (`program`) as a cell at the other end of a new socket. */
int sp_cell_spawn(const char *program, int *ret_socket, struct sp_cell_child *ret,
                  struct sp_err *e);
/* Notes a started process as ours (os/tree.h) until it is reaped. */
void sp_cell_child_set(struct sp_cell_child *child, pid_t pid, int pidfd);
void sp_cell_child_kill(const struct sp_cell_child *child);          /* none: fine */
bool sp_cell_child_await(const struct sp_cell_child *child, int ms); /* false: still alive */
/* Waits for its end. false: killed by a signal, or a nonzero exit status. */
bool sp_cell_child_reap(struct sp_cell_child *child);
/* Reads the socket for the BORN message of a maker that has exited; *ret gets the cell, if any. */
void sp_cell_read_birth(int socket, struct sp_wire_message *m, struct sp_cell_child *ret);
/* Resources are short (EMFILE, ENOMEM ...): the same may succeed a moment later. */
bool sp_cell_is_passing(int err);
/* Why a cell could not be confined. SP_E_STATE: a new plan may succeed. */
void sp_cell_explain(uint32_t step, int err, const char *where, struct sp_err *ret);

/* poll for input, repeated after signals; false: nothing within `ms`. */
bool sp_await_readable(int fd, int ms);

/* The main loop of the child: serves the front on `fd` until the front is gone. */
int sp_cell_child_run(int fd, struct sp_err *e);

#endif

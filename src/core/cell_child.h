/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cell_child: the processes behind a cell, as their parent sees them: spawned, born, killed,
 * reaped; and cells that are made only to find out what the host allows.
 */
#ifndef SP_CORE_CELL_CHILD_H
#define SP_CORE_CELL_CHILD_H

#include "base/buf.h"
#include "cell/bell.h"
#include "cell/wire.h"
#include "core/outbox.h"
#include "os/loop.h"
#include "sandbox/compile.h"

/* A child process that we have to reap. */
struct sp_cell_child {
    pid_t pid;
    int pidfd; /* -1: none, or reaped */
    struct sp_watch on_end;
};

/* A memfd with these bytes, sealed: its reader gets what we wrote. -1: errno. */
int sp_seal(const char *name, const struct sp_str *parts, size_t count);
/* Runs our own binary as `PROGRAM verb` at the other end of a new socket. `what` names it in
 * errors. */
int sp_cell_child_spawn(const char *program, const char *verb, char *const *envp, const char *what,
                        int *ret_socket, struct sp_cell_child *ret, struct sp_err *e);
/* Called with our end of the socket before the process is made (pidfd -1), and between that and
 * HELLO. 0, or -SP_E_...: it is given up. */
struct sp_cell_launch_hook {
    int (*made)(void *user, int socket, int pidfd, struct sp_err *e);
    void *user;
};
/* Spawns a cell and greets it, with its plan (NULL: an open cell). With a hook it becomes a child
 * of our parent. The head of *hello is filled in here. After a failure the caller still closes
 * *ret_socket and ends *ret, if they are set. */
int sp_cell_launch(const char *program, struct sp_wire_hello *hello, const struct sp_bell *bell,
                   const struct sp_buf *plan, const struct sp_cell_launch_hook *hook,
                   int *ret_socket, struct sp_cell_child *ret, struct sp_err *e);
/* The process of a pidfd, which an earlier front or the process itself has handed on; takes it. */
void sp_cell_child_take(struct sp_cell_child *child, int pidfd);
void sp_cell_child_kill(const struct sp_cell_child *child); /* none: fine */
/* poll for input (of a pidfd: its process has ended), repeated after signals. false: nothing within
 * `ms`. */
bool sp_await_readable(int fd, int ms);
/* Waits for its end, some seconds at most: a process in an uninterruptible disk wait survives
 * SIGKILL, and with it pid 1 of its pid namespace. That child is left to the kernel. false: it is
 * left, was killed by a signal, or had a nonzero exit status. */
bool sp_cell_child_reap(struct sp_cell_child *child);
/* Takes a BORN message of a maker. false: it is another message. */
bool sp_cell_take_birth(struct sp_wire_message *m, struct sp_cell_child *ret);
/* Reads the socket for the BORN message of a maker that has exited; *ret gets the cell, if any. */
void sp_cell_read_birth(int socket, struct sp_wire_message *m, struct sp_cell_child *ret);
/* Why a cell could not be confined. SP_E_STATE: a new plan may succeed. */
void sp_cell_explain(uint32_t step, int err, const char *where, struct sp_err *ret);

/* A helper process at the other end of a seqpacket socket: a proxy, or the resolver. */
struct sp_helper {
    struct sp_cell_child process;
    int socket; /* -1: none */
    struct sp_watch watch;
    struct sp_outbox outbox;
};
/* Runs `PROGRAM verb` with the few variables of `environ` that a helper may know. */
int sp_helper_spawn(const char *program, char *const *environ, const char *verb,
                    struct sp_helper *ret, struct sp_err *e);
/* It holds nothing that must end in order, so it is killed and reaped at once. */
void sp_helper_end(struct sp_loop *loop, struct sp_helper *h);

/* The main loop of the child: serves the front on `fd` until the front is gone. */
int sp_cell_child_run(int fd, struct sp_err *e);

/* Finds out which sandbox features this host allows, by making cells and ending them. `program`:
 * our own binary. Takes some milliseconds. */
int sp_host_features_probe(const char *program, struct sp_host_features *ret, struct sp_err *e);

/* Makes a cell with this plan and ends it at once: 0 if it could be made, or -SP_E_...; *ret_step
 * (enum sp_build_step) and *ret_err (an errno) say which step failed. Waits some seconds at most.
 */
int sp_cell_try(const char *program, const struct sp_buf *plan, uint32_t *ret_step, int *ret_err,
                struct sp_err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * local_socket: the local socket of a front that is no server: `sallyport mcp`, `sallyport exec`, a
 * program with the library. Over it `sallyport ps`, `logs`, `attach`, `kill` and `approvals` reach
 * the processes and the questions of that program; nothing can be started there (conn.c).
 *
 *   new --LATE_MS, or a question--> listening --the first connection--> has a front
 *
 * The socket is made late, so that neither the start of the program nor a command that ends at once
 * waits for it. A failure is only logged: the program works without the socket.
 */
#ifndef SP_ENGINE_LOCAL_SOCKET_H
#define SP_ENGINE_LOCAL_SOCKET_H

#include "engine/job.h"

struct sp_local_socket;
struct sp_rpc;

struct sp_local_socket_options {
    struct sp_loop *loop;
    const char *kind; /* static: mcp, exec, library */
    /* Where a local one will be when the first client connects; NULL: commands run elsewhere. */
    struct sp_backend *const *backend;
};

int sp_local_socket_new(const struct sp_local_socket_options *o, struct sp_local_socket **ret,
                        struct sp_err *e);
void sp_local_socket_free(struct sp_local_socket *l); /* before the backend; NULL is fine */

/* For the questions of this program. */
struct sp_rpc *sp_local_socket_rpc(struct sp_local_socket *l);
/* The program is about to end: connections get what was said to them in this turn of the loop, the
 * end of a process, for example. Runs the loop; not from inside of it. */
void sp_local_socket_flush(struct sp_local_socket *l); /* NULL is fine */
/* Listens now: there is something to see. */
void sp_local_socket_open(struct sp_local_socket *l);
/* The same, for a caller who has to know: the error is not logged. */
int sp_local_socket_listen(struct sp_local_socket *l, struct sp_err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * own_sockets: the local sockets of a user's servers.
 *
 * A private directory has one unix socket for each process that runs commands, PID.sock:
 * $XDG_RUNTIME_DIR/sallyport if that is ours, else the runtime directory that every server has. No
 * confined command sees either. Servers that have a name have NAME.sock there. The socket of a
 * killed process is removed by the next process that looks at it.
 */
#ifndef SP_SERVER_NET_OWN_SOCKETS_H
#define SP_SERVER_NET_OWN_SOCKETS_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"

#define SP_OWN_SOCKETS_MAX 256 /* sockets of this user that are looked at */

struct sp_own_socket {
    char name[64]; /* its pid, or the name of a server of this user */
    char url[160];
    pid_t pid; /* of the process that listens: one may have several sockets; 0: unknown */
};

/* The sockets that accept connections, sorted by name; their number. Removes stale sockets. ret has
 * room for SP_OWN_SOCKETS_MAX; NULL: only removes stale sockets. */
unsigned sp_own_sockets_find(struct sp_own_socket *ret);

/* Finds the socket of a server by its pid, its name, or as it is listed and listened on: serve/PID,
 * user:NAME. false: there is none. */
bool sp_own_socket_named(const char *name, struct sp_own_socket *ret);

/* DIRECTORY/NAME.sock. Makes the directory. */
int sp_own_socket_path(const char *name, char *ret, size_t size, struct sp_err *e);
/* unix:///DIRECTORY/PID.sock; 0: the pid of this process. Makes the directory, and removes stale
 * sockets. */
int sp_own_socket_url(pid_t pid, char *ret, size_t size, struct sp_err *e);

#endif

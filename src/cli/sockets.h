/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sockets: where `ps`, `logs`, `attach` and `kill` find the servers of a user: a private directory
 * with one unix socket for each server, PID.sock.
 *
 * $XDG_RUNTIME_DIR/sallyport if that is ours, else the runtime directory that every server has. No
 * confined command sees either. The socket of a killed server is removed by the next process that
 * looks at it.
 */
#ifndef SP_CLI_SOCKETS_H
#define SP_CLI_SOCKETS_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"

#define SP_MAX_SOCKETS 64 /* servers that sp_sockets_find returns */

/* unix:///DIRECTORY/PID.sock of this process. Makes the directory, and removes stale sockets. */
int sp_sockets_own_url(char *ret, size_t size, struct sp_err *e);

struct sp_socket {
    pid_t pid;
    char url[160];
};
/* The live servers, sorted by pid. Returns their number. */
unsigned sp_sockets_find(struct sp_socket ret[SP_MAX_SOCKETS]);

#endif

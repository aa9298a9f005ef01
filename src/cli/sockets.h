/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sockets: where the servers of a user are found: a folder with one socket for each, named after
 * its process, for nobody else to look into.
 *
 * $XDG_RUNTIME_DIR/sallyport if that is ours, else the runtime folder that every server has anyway.
 * No confined command sees either. What a server that was killed left there is removed by whoever
 * looks next.
 */
#ifndef SP_CLI_SOCKETS_H
#define SP_CLI_SOCKETS_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"

#define SP_MAX_SOCKETS 64 /* servers that are looked at */

/* The folder, made if it is not there. Refused unless it is ours alone. */
int sp_sockets_prepare(char *ret, size_t size, struct sp_err *e);
/* unix:///FOLDER/PID.sock of this process. What dead servers left there is removed. */
int sp_sockets_own_url(char *ret, size_t size, struct sp_err *e);

struct sp_socket {
    pid_t pid;
    char url[160];
};
/* The live servers, by their pids; at most SP_MAX_SOCKETS. None is fine. */
unsigned sp_sockets_find(struct sp_socket ret[SP_MAX_SOCKETS]);

#endif

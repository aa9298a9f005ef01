/* SPDX-License-Identifier: Apache-2.0 */
/*
 * user_server: the server of a user, `serve --listen user[:NAME]`: found by its socket NAME.sock in
 * the directory of this user's sockets, and started on demand. Such a server is no child of ours.
 */
#ifndef SP_CLI_USER_SERVER_H
#define SP_CLI_USER_SERVER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

#define SP_USER_SERVER_DEFAULT "default"

/* The path of the socket. SP_E_INVALID: the name is not 1 to 63 letters, digits, `-` or `_`, or it
 * is digits alone: those are the sockets of processes. */
int sp_user_server_path(const char *name, char *ret, size_t size, struct sp_err *e);

/* A connection, non-blocking. SP_E_NOT_FOUND: no server listens; spawns: it is started, once also
 * if many ask at the same time. */
int sp_user_server_connect(const char *name, bool spawns, int *ret_fd, struct sp_err *e);

#endif

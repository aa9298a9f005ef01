/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bind: makes a listening socket, and a printable name of an address.
 */
#ifndef SP_SERVER_NET_BIND_H
#define SP_SERVER_NET_BIND_H

#include <sys/stat.h>

#include "server/net/listen.h"

#define SP_BIND_NAME 64

struct sp_bound {
    int fd;                /* -1: none */
    struct sockaddr_un un; /* path of a unix socket, unlinked if dev and ino are still ours */
    dev_t dev;
    ino_t ino;
    char url[128];
};

/*
 * Binds and listens. A unix socket gets mode 0600. A stale socket at its path is replaced; a live
 * one, or another file, is an error.
 */
int sp_bind(const struct sp_listen_url *url, struct sp_bound *ret, struct sp_err *e);

/* Closes, and unlinks the path unless another server has replaced the socket. */
void sp_bound_done(struct sp_bound *b);

/* "127.0.0.1:34346", "[::1]:34346", "unix". */
void sp_bind_name(const struct sockaddr *a, char ret[SP_BIND_NAME]);

#endif

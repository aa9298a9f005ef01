/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bind: an address becomes a listening socket, and a name for people.
 */
#ifndef SP_SERVER_NET_BIND_H
#define SP_SERVER_NET_BIND_H

#include <sys/stat.h>

#include "server/net/listen.h"

#define SP_BIND_NAME 64

struct sp_bound {
    int fd;                /* -1: none */
    struct sockaddr_un un; /* unix socket: its path, to be unlinked if it is still ours */
    dev_t dev;
    ino_t ino;
    char url[128];
};

/*
 * Binds and listens. A unix socket gets mode 0600; a stale one in its place is replaced, a live one
 * or anything else there is refused.
 */
int sp_bind(const struct sp_listen_url *url, struct sp_bound *ret, struct sp_err *e);

/* Closes, and unlinks the socket's path unless it is another's by now. */
void sp_bound_done(struct sp_bound *b);

/* "127.0.0.1:34346", "[::1]:34346", "unix". */
void sp_bind_name(const struct sockaddr *a, char ret[SP_BIND_NAME]);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * acceptor: a listening socket, from its URL to its connections. The listener of the protocol
 * (listen.h) and that of MCP over HTTP use it.
 */
#ifndef SP_SERVER_NET_ACCEPTOR_H
#define SP_SERVER_NET_ACCEPTOR_H

#include <netinet/in.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/error.h"
#include "os/loop.h"

enum sp_listen_kind { SP_LISTEN_STDIO, SP_LISTEN_WS, SP_LISTEN_UNIX };

struct sp_listen_url {
    enum sp_listen_kind kind;
    union {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
        struct sockaddr_un un;
    } addr;
    bool is_loopback; /* 127.0.0.0/8, ::1, unix, stdio */
};

/* ws://IP:PORT, unix:///path, stdio or stdio://. SP_E_INVALID: the texts are those of codex. */
int sp_listen_parse(const char *url, struct sp_listen_url *ret, struct sp_err *e);

/* A listening socket that the next front of a server takes over. */
#define SP_ACCEPTOR_NOTE 33
struct sp_acceptor_kept {
    int fd;                      /* in: of an earlier process; -1: none. Out: the acceptor's */
    char note[SP_ACCEPTOR_NOTE]; /* what the next process needs with it */
    bool is_left;                /* another process goes on: sp_acceptor_done leaves the path */
};

struct sp_acceptor {
    struct sp_loop *loop;
    int fd;
    struct sockaddr_un un; /* path of a unix socket, unlinked if dev and ino are still ours */
    dev_t dev;
    ino_t ino;
    struct sp_acceptor_kept *kept; /* NULL: the socket is for this process alone */
    struct sp_watch watch;
    struct sp_timer pause; /* out of descriptors or memory: nothing is accepted until then */
    void (*accepted)(struct sp_acceptor *a, int fd, const char *peer);
    char url[128]; /* the real one: "ws://127.0.0.1:34567", "unix:///path" */
};

/*
 * Binds and listens; *a is zero before and must be done also after a failure. A unix socket gets
 * mode 0600. A stale socket at its path is replaced; a live one, or another file, is an error.
 * `kept`: borrowed, and filled; its socket, if there is one, is taken instead; NULL: none.
 * `accepted` owns the descriptor, which is non-blocking; peer: "127.0.0.1:34346", "unix".
 */
int sp_acceptor_open(struct sp_acceptor *a, struct sp_loop *loop, const struct sp_listen_url *url,
                     struct sp_acceptor_kept *kept,
                     void (*accepted)(struct sp_acceptor *a, int fd, const char *peer),
                     struct sp_err *e);
/* Closes, and unlinks the path unless another server has replaced the socket. */
void sp_acceptor_done(struct sp_acceptor *a);

#endif

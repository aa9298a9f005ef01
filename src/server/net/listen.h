/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listen: where connections come from: a TCP or unix-socket listener with its HTTP surface, or
 * stdio.
 */
#ifndef SP_SERVER_NET_LISTEN_H
#define SP_SERVER_NET_LISTEN_H

#include <netinet/in.h>
#include <sys/un.h>

#include "base/buf.h"
#include "server/net/auth.h"
#include "server/net/link.h"

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

/* exec-server-protocol.md 1.1; also unix:///path. Errors: the texts given there, SP_E_INVALID. */
int sp_listen_parse(const char *url, struct sp_listen_url *ret, struct sp_err *e);

struct sp_listen_options {
    const struct sp_auth *auth; /* borrowed; NULL: anonymous */
    const char *const *hosts;   /* extra names accepted in Host, NULL-terminated; may be NULL */
    bool has_metrics;           /* GET /metrics is answered */
    bool is_own_user_only;      /* unix: not even root, unless that is who we are */
    bool is_lines_only;         /* unix: no WebSocket, no HTTP */
    bool keeps_on;              /* a line too long or not UTF-8 is ops.not_text, not the end */
    size_t max_line;            /* received; 0: SP_LINK_MAX_MESSAGE */
    bool is_narrow;             /* SP_LINK_MAX_FIRST bytes a message until sp_link_widen */
    size_t max_unfinished;      /* unfinished input of all connections; 0: no bound */
    unsigned max_connections;   /* beyond: 503 (unix lines: closed at once) */
    uint64_t ping_every_ms;     /* 30000 */
    uint64_t silence_ms;        /* 60000: drop a WebSocket peer not heard from for so long */
    uint64_t handshake_ms;      /* 10000: time to finish the upgrade */
    void *user;
    /* A connection is there: fill in what its messages go to. false: refuse it (503, lines:
     * closed). Nothing can be sent from inside: the 101 comes first. */
    bool (*opened)(void *user, struct sp_link *l, const struct sp_link_ops **ret_ops,
                   void **ret_user);
    /* The text of GET /metrics. */
    void (*metrics)(void *user, struct sp_buf *out);
    /* stdio only: the one connection has ended (ops.closed was called). The listener may be freed
     * in here, but in no other callback of a link. */
    void (*finished)(void *user);
};

struct sp_listener;

/* Binds and listens (stdio: opens the link at once). Takes a copy of the options. */
int sp_listener_new(struct sp_loop *loop, const struct sp_listen_url *url,
                    const struct sp_listen_options *o, struct sp_listener **ret, struct sp_err *e);
/* Closes the listener and every link at once (ops.closed is called for each); unlinks a unix
 * socket. */
void sp_listener_free(struct sp_listener *l);

/* The real URL: "ws://127.0.0.1:34567", "unix:///path", "stdio". */
const char *sp_listener_url(const struct sp_listener *l);

/* For metrics. */
struct sp_listener_stats {
    uint64_t accepted, refused;
    unsigned active; /* links that are open */
    uint64_t bytes_in, bytes_out, queued_bytes;
};
void sp_listener_stats(const struct sp_listener *l, struct sp_listener_stats *ret);

#endif

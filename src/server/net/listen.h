/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listen: source of connections: a TCP or unix-socket listener with its HTTP endpoints, or stdio.
 */
#ifndef SP_SERVER_NET_LISTEN_H
#define SP_SERVER_NET_LISTEN_H

#include "base/buf.h"
#include "server/net/acceptor.h"
#include "server/net/auth.h"
#include "server/net/http.h"
#include "server/net/link.h"

struct sp_listen_options {
    const struct sp_auth *auth; /* borrowed; NULL: anonymous */
    const char *const *hosts;   /* extra names accepted in Host, NULL-terminated; may be NULL */
    bool has_metrics;           /* GET /metrics is answered */
    bool is_own_user_only;      /* unix: refuses root, unless we are root */
    bool is_lines_only;         /* unix: no WebSocket, no HTTP */
    bool keeps_on;         /* a bad line is reported to ops.not_text, and does not end the link */
    size_t max_line;       /* received; 0: SP_LINK_MAX_MESSAGE */
    bool is_narrow;        /* SP_LINK_MAX_FIRST bytes a message until sp_link_widen */
    size_t max_unfinished; /* unfinished input of all connections; 0: no bound */
    unsigned max_connections; /* further ones get 503 (unix lines: closed) */
    uint64_t ping_every_ms;   /* 30000 */
    uint64_t silence_ms;      /* 60000: then a silent WebSocket peer is dropped */
    uint64_t handshake_ms;    /* 10000: time to finish the upgrade, from the first byte on unix */
    struct sp_acceptor_kept *kept; /* borrowed; NULL: the socket is for this process alone */
    void *user;
    /* A new connection: returns the receiver of its messages. false: refuses it (503, lines:
     * closed). Must not send: the 101 comes first. */
    bool (*opened)(void *user, struct sp_link *l, const struct sp_link_ops **ret_ops,
                   void **ret_user);
    /* The text of GET /metrics. */
    void (*metrics)(void *user, struct sp_buf *out);
    /* stdio only: the connection has ended (ops.closed was called). May free the listener, unlike
     * other callbacks of a link. */
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

/* ---- the gate: the answer to an HTTP request, by path, Host, Origin and token. No I/O ---- */

struct sp_http_gate {
    const struct sp_auth *auth; /* NULL: anonymous */
    const char *const *hosts;   /* more names for Host, NULL-terminated; may be NULL */
    bool is_unix;               /* DNS rebinding is impossible: Host is ignored */
    bool has_metrics;
};

enum sp_http_gate_verdict {
    SP_HTTP_GATE_ANSWER,  /* answer with *ret */
    SP_HTTP_GATE_METRICS, /* answer with the metrics */
    SP_HTTP_GATE_UPGRADE, /* switch to WebSocket */
};

enum sp_http_gate_verdict sp_http_gate_judge(const struct sp_http_gate *g,
                                             const struct sp_http_request *r, int64_t now_s,
                                             struct sp_http_answer *ret);

/* Appends the 101 for UPGRADE. false: no memory. */
bool sp_http_gate_write_switch(struct sp_buf *out, const struct sp_http_request *r);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proxy_priv: what the files of the proxy process share.
 *
 *   proxy.c         the front's socket, listeners, limits, counts
 *   proxy_asks.c    questions to the front, kept verdicts
 *   proxy_conn.c    the states of a connection
 *   proxy_end.c     its two ends: reading and writing
 *   proxy_http.c    request and response, message by message
 *   proxy_relay.c   bytes of a tunnel, the check of the TLS server name
 *   proxy_refuse.c  how refusals and failures look to the client
 *   proxy_lookup.c  names, by the resolver
 *   proxy_dial.c    which addresses may be reached, and connecting to them
 *   proxy_upstream.c  when and how upstream proxies are used
 *   proxy_dns.c     DNS for the cell
 *
 * One thread. A connection is driven by sp_proxy_conn_run, which calls the step of its state until
 * nothing moves; callbacks of other parts change the state and call it. A connection that ended is
 * freed at the end of the turn, so code that may have ended it looks at its state.
 */
#ifndef SP_PROXY_PROXY_PRIV_H
#define SP_PROXY_PROXY_PRIV_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/hostname.h"
#include "base/list.h"
#include "base/str.h"
#include "os/loop.h"
#include "proxy/http1.h"
#include "proxy/names.h"
#include "proxy/proxy.h"
#include "proxy/proxy_message.h"
#include "proxy/resolver.h"

#define SP_PROXY_COPY_MAX       (16U << 10) /* bytes of a direction that are held */
#define SP_PROXY_PIPES_MAX      128
#define SP_PROXY_LISTEN_MAX     512 /* listeners: 256 of names and some more */
#define SP_PROXY_BUCKETS        1024U
#define SP_PROXY_HALF_CLOSED_MS 300000U

struct sp_proxy;
struct sp_proxy_conn;

/* ---- one end of a connection ---- */

struct sp_proxy_end {
    int fd; /* -1: none */
    struct sp_watch watch;
    bool can_read, can_write; /* no EAGAIN since the last event */
    bool saw_hangup;          /* a short read does not mean that all was read */
    bool is_eof;              /* all was read */
    bool is_shut;             /* SHUT_WR was done */
    bool is_broken;           /* reading failed */
    bool is_mute;             /* writing failed; bytes may still be readable */
    bool saw_error;           /* reading or writing will fail */
    struct sp_buf in;         /* was read, and is not used yet */
    struct sp_buf out;        /* is to be written */
    /* the tunnel's direction towards this end */
    int pipe[2]; /* -1: bytes are copied */
    size_t piped;
    uint64_t moved;
};

bool sp_proxy_end_open(struct sp_proxy_conn *c, struct sp_proxy_end *end, int fd);
void sp_proxy_end_close(struct sp_proxy_conn *c, struct sp_proxy_end *end, bool is_reset);
/* Reads into end->in, up to `max` bytes in all. true: something changed. */
bool sp_proxy_end_fill(struct sp_proxy_end *end, size_t max);
/* Writes end->out. true: something changed. */
bool sp_proxy_end_flush(struct sp_proxy_end *end);
/* sendmsg with MSG_NOSIGNAL: errors as write(2). */
ssize_t sp_proxy_send(int fd, const void *bytes, size_t n);

/* ---- connections ---- */

enum sp_proxy_state {
    SP_PROXY_AT_FIRST,    /* the first byte decides between HTTP and SOCKS */
    SP_PROXY_AT_GREETING, /* of SOCKS */
    SP_PROXY_AT_REQUEST,  /* of SOCKS */
    SP_PROXY_AT_HEAD,     /* of HTTP */
    SP_PROXY_AT_SLOT,     /* waits to be judged */
    SP_PROXY_AT_ASK,      /* waits for the verdict */
    SP_PROXY_AT_VERDICT,  /* has it */
    SP_PROXY_AT_TARGET,   /* waits: too many connections to this host and port */
    SP_PROXY_AT_DIAL,
    SP_PROXY_AT_EXCHANGE, /* of HTTP messages */
    SP_PROXY_AT_TUNNEL,
    SP_PROXY_AT_REFUSE, /* waits for the first bytes, which decide how a refusal looks */
    SP_PROXY_AT_FLUSH,  /* the last bytes are written */
    SP_PROXY_AT_DRAIN,  /* the client's last bytes are read */
    SP_PROXY_AT_END,
};

/* What the client speaks, as far as it matters for answers. */
enum sp_proxy_speech {
    SP_PROXY_SAYS_HTTP,
    SP_PROXY_SAYS_CONNECT,
    SP_PROXY_SAYS_SOCKS,
    SP_PROXY_SAYS_ANY
};

struct sp_proxy_answer { /* of the front */
    bool is_allowed;
    uint8_t reason, flags;
    struct sp_str text;
};

/* A host and port with connections to it. */
struct sp_proxy_target {
    struct sp_list link, waiting;
    struct sp_hash key;
    uint32_t count;
    uint16_t port;
    char host[SP_PROXY_HOST_MAX + 1];
};

/* An exchange of HTTP messages. */
struct sp_proxy_http {
    struct sp_http1_head head; /* the request's; its strings are in client.in until it is sent */
    size_t head_len;
    struct sp_http1_body request, response;
    size_t interim;    /* bytes of interim responses: a server may send them for ever */
    bool has_response; /* its head was passed on */
    bool is_reused;    /* not the first exchange of the outward connection */
    bool closes, server_closes;
    char method[SP_PROXY_METHOD_MAX + 1];
};

struct sp_proxy_conn {
    struct sp_list link; /* of all connections */
    struct sp_list wait; /* for a slot, or for the target */
    struct sp_proxy *p;
    enum sp_proxy_state state;
    bool is_running, has_slot, is_half_closed;
    struct sp_proxy_end client, server;
    struct sp_timer timer; /* of the present state */
    struct sp_deferred again, free;

    enum sp_proxy_speech speech;
    uint8_t via;
    uint16_t listen_port;
    uint32_t name_address; /* in host order; 0: not by name */
    struct sockaddr_in client_at, local_at;

    /* the host and port of the connection, from the ASK to the DONE */
    bool is_open; /* a DONE is due */
    uint8_t protocol;
    uint16_t port;
    char host[SP_PROXY_HOST_MAX + 1];
    struct sp_proxy_asking *asking;
    uint64_t number;
    uint64_t began_ms, sent, received;
    uint8_t outcome, reason; /* of the DONE */
    uint8_t verdict_flags;
    bool is_allowed;
    char *text; /* of a refusal; may be NULL */
    int upstream_status;
    bool is_by_upstream; /* the server end is an upstream proxy that takes absolute forms */
    uint8_t family, address[16];

    struct sp_proxy_target *target; /* counted there while connected or dialling */
    struct sp_proxy_dial *dial;
    struct sp_proxy_http *http;
    size_t scanned;     /* of a head that is not complete */
    uint64_t active_ms; /* when a tunnel last moved bytes */

    uint64_t relayed;  /* the number of its RELAY; 0: it was accepted here */
    bool holds_client; /* until the server name was checked */
    struct sp_proxy_asking *sni_asking;
};

void sp_proxy_conn_accept(struct sp_proxy *p, int fd, uint8_t kind, uint16_t port);
/* A connection to a published port. Takes both descriptors. */
void sp_proxy_conn_relay(struct sp_proxy *p, int client, int server, uint64_t number);
void sp_proxy_conn_run(struct sp_proxy_conn *c);
/* Runs it at the end of this turn. */
void sp_proxy_conn_wake(struct sp_proxy_conn *c);
void sp_proxy_conn_end(struct sp_proxy_conn *c, bool is_reset);
/* Sends the DONE that is due. */
void sp_proxy_conn_done(struct sp_proxy_conn *c);
/* Begins to reach for a host; the state becomes AT_SLOT. NULL, or what is wrong with the host. */
const char *sp_proxy_conn_target(struct sp_proxy_conn *c, struct sp_str host, uint16_t port,
                                 enum sp_proxy_protocol protocol);
void sp_proxy_conn_set_timer(struct sp_proxy_conn *c, uint32_t ms);
void sp_proxy_conn_release(struct sp_proxy_conn *c); /* the target, and its place among 256 */
/* The dial's result: a connected descriptor, or -1 and the outcome. */
void sp_proxy_conn_dialled(struct sp_proxy_conn *c, int fd, enum sp_proxy_outcome outcome,
                           enum sp_network_reason reason);
/* A verdict arrived, or was kept. */
void sp_proxy_conn_verdict(struct sp_proxy_conn *c, const struct sp_proxy_answer *a);

/* ---- steps: true if something changed ---- */

bool sp_proxy_http_head_step(struct sp_proxy_conn *c);
bool sp_proxy_http_step(struct sp_proxy_conn *c);
bool sp_proxy_http_begin(struct sp_proxy_conn *c, bool is_reused);
void sp_proxy_http_free(struct sp_proxy_conn *c);
bool sp_proxy_tunnel_step(struct sp_proxy_conn *c);
void sp_proxy_tunnel_begin(struct sp_proxy_conn *c);

/* ---- refusals: the answer goes to client.out, the state becomes AT_FLUSH or AT_REFUSE ---- */

void sp_proxy_refuse(struct sp_proxy_conn *c); /* c->reason, c->text */
void sp_proxy_fail(struct sp_proxy_conn *c);   /* c->outcome */
void sp_proxy_refuse_http(struct sp_proxy_conn *c, int status, const char *text);
bool sp_proxy_refuse_step(struct sp_proxy_conn *c);
void sp_proxy_refuse_server_name(struct sp_proxy_conn *c, uint8_t reason);
bool sp_proxy_last_step(struct sp_proxy_conn *c); /* AT_FLUSH, AT_DRAIN */

/* ---- questions to the front ---- */

struct sp_proxy_asking {
    struct sp_list link;   /* of its bucket */
    struct sp_list linger; /* among those that no connection waits for */
    struct sp_proxy *p;
    uint64_t number;
    bool is_know, is_kept_away; /* is_kept_away: the verdict is about a method, too */
    uint8_t protocol;
    uint16_t port;
    struct sp_timer timer;
    void (*fn)(void *owner, const struct sp_proxy_answer *a);
    void *owner;               /* NULL: gone */
    struct sp_proxy_done done; /* to be sent if it lingers */
    char host[SP_PROXY_HOST_MAX + 1];
};

#define SP_PROXY_KNOWN 0xff /* the protocol of kept answers to KNOW */

bool sp_proxy_kept(struct sp_proxy *p, const char *host, uint16_t port, uint8_t protocol,
                   struct sp_proxy_answer *ret);
/* NULL: no memory, or too many are open. */
struct sp_proxy_asking *sp_proxy_ask(struct sp_proxy_conn *c, struct sp_str method,
                                     bool is_kept_away);
/* port 0: any. */
struct sp_proxy_asking *sp_proxy_know(struct sp_proxy *p, const char *host, uint16_t port,
                                      void (*fn)(void *, const struct sp_proxy_answer *),
                                      void *owner);
void sp_proxy_ask_abandon(struct sp_proxy_asking *a); /* the owner ends; NULL is fine */
bool sp_proxy_take_verdict(struct sp_proxy *p, const struct sp_proxy_verdict *v);
void sp_proxy_forget(struct sp_proxy *p);

/* ---- names ---- */

struct sp_proxy_lookup;
struct sp_proxy_lookup_wait {
    struct sp_list link;
    void (*fn)(struct sp_proxy_lookup_wait *w, const struct sp_resolver_answer *a);
};
/* fn may be called at once; a->status is never out of range. */
void sp_proxy_lookup(struct sp_proxy *p, const char *host, uint16_t port,
                     struct sp_proxy_lookup_wait *w);
void sp_proxy_lookup_cancel(struct sp_proxy_lookup_wait *w);
void sp_proxy_lookup_socket(struct sp_proxy *p, int fd); /* takes it; -1: the resolver is gone */
void sp_proxy_lookup_init(struct sp_proxy *p);

/* ---- dialling ---- */

struct sp_proxy_upstream { /* host "": none */
    char host[SP_PROXY_HOST_MAX + 1];
    uint16_t port;
    char *field; /* Proxy-Authorization, a whole line; NULL: none */
};

void sp_proxy_dial(struct sp_proxy_conn *c);
void sp_proxy_dial_free(struct sp_proxy_conn *c);
bool sp_proxy_upstream_read(struct sp_str text, struct sp_proxy_upstream *ret);
/* The upstream proxy for this connection; NULL: it is reached directly. */
const struct sp_proxy_upstream *sp_proxy_upstream_for(const struct sp_proxy_conn *c);
bool sp_proxy_upstream_request(const struct sp_proxy_conn *c, const struct sp_proxy_upstream *u,
                               struct sp_buf *out);

/* ---- DNS ---- */

void sp_proxy_dns_accept(struct sp_proxy *p, int fd);
void sp_proxy_dns_receive(struct sp_proxy *p, int fd);

/* ---- the process ---- */

struct sp_proxy_listener {
    struct sp_proxy *p;
    struct sp_watch watch;
    int fd;
    uint8_t kind;
    uint16_t port;
};

struct sp_proxy {
    struct sp_loop *loop;
    int control;
    struct sp_watch on_control;
    struct sp_list unsent; /* messages that the front's socket had no room for */
    uint32_t unsent_count;
    bool has_hello;

    uint32_t flags, linger_ms;
    uint16_t port_count, own_ports[SP_PROXY_PORTS_MAX];
    struct sp_proxy_upstream upstream_http, upstream_tunnel;
    char *no_proxy;
    struct sp_hostname own_name; /* of the host, and so of the cell; "": not known */
    struct sp_names *names;

    struct sp_proxy_listener *listeners[SP_PROXY_LISTEN_MAX];
    uint32_t listener_count;
    bool is_full;           /* listeners are not watched */
    struct sp_timer refill; /* after a failed accept */

    uint64_t settling;      /* number of a PING that waits for connections to end; 0: none */
    struct sp_timer settle; /* ... at most so long */
    struct sp_deferred settle_turn;

    struct sp_list conns;
    uint32_t conn_count, slots, pipes;
    struct sp_list slot_waiters;
    struct sp_list targets[SP_PROXY_BUCKETS];

    uint64_t last_number;
    struct sp_list askings[SP_PROXY_BUCKETS], lingering;
    uint32_t asking_count;
    struct sp_list kept[SP_PROXY_BUCKETS], kept_by_age;
    uint32_t kept_count;

    int resolver; /* -1: none */
    struct sp_watch on_resolver;
    struct sp_list lookups[SP_PROXY_BUCKETS], lookups_by_age, lookups_queued;
    uint32_t lookup_count, lookups_sent;
    uint64_t last_lookup;

    uint32_t dns_pending, dns_conns;
    uint64_t dns_tokens_us; /* the time up to which the token bucket is used */

    struct sp_proxy_counts counts, counts_sent;
    struct sp_timer counts_timer;

    struct sp_http1_head head; /* of responses: read and written anew at once */
    char scratch[64U << 10];
};

/* Sends a message; `size` bytes of struct, then the texts. head.version and len are filled in. */
void sp_proxy_tell(struct sp_proxy *p, void *message, size_t size, struct sp_str a,
                   struct sp_str b);
void sp_proxy_count_changed(struct sp_proxy *p);
void sp_proxy_conn_gone(struct sp_proxy *p); /* listeners may be watched again */
void sp_proxy_settle(struct sp_proxy *p);    /* a connection ended: a PING may be answered */

#endif

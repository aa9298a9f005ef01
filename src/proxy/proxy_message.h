/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proxy_message: messages between the front and the proxy of a managed cell, over a SOCK_SEQPACKET
 * socket: a fixed struct, then bytes. Neither side trusts the other: sp_proxy_check checks version,
 * operation, direction, sizes, enums and the number of descriptors first.
 *
 *   front: HELLO (once, first), LISTEN ...    proxy: READY
 *   proxy: ASK n        front: VERDICT n      (or proxy: GONE n, and the front forgets n)
 *   proxy: KNOW n       front: VERDICT n
 *   front: RELAY n      proxy: CLOSED n       (a connection to a published port; n is the port's)
 *   proxy: DONE n       when the connection that ASK n was about has ended
 */
#ifndef SP_PROXY_PROXY_MESSAGE_H
#define SP_PROXY_PROXY_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/network_reason.h"
#include "base/str.h"

#define SP_PROXY_VERSION     1
#define SP_PROXY_MESSAGE_MAX (64U << 10) /* the largest message */
#define SP_PROXY_HOST_MAX    253U
#define SP_PROXY_METHOD_MAX  32U
#define SP_PROXY_TEXT_MAX    1024U                    /* of a refusal, of UNABLE */
#define SP_PROXY_KNOW_MAX    (SP_PROXY_HOST_MAX + 6U) /* bytes of HOST:PORT */
#define SP_PROXY_ASKS_MAX    1024U                    /* open ASK and KNOW of one proxy */
#define SP_PROXY_PORTS_MAX   64U                      /* in HELLO */

enum sp_proxy_op {
    SP_PROXY_HELLO = 1, /* front: struct sp_proxy_hello + upstream texts; + names memory, + a socket
                           to the resolver */
    SP_PROXY_RESOLVER,  /* front: head; + a socket to a new resolver */
    SP_PROXY_LISTEN,    /* front: struct sp_proxy_listen; + the socket */
    SP_PROXY_VERDICT,   /* front: struct sp_proxy_verdict + text */
    SP_PROXY_FORGET,    /* front: head + host: kept verdicts are dropped; with a host, its tunnels
                           end, too */
    SP_PROXY_PING,      /* front: head; number comes back in PONG: 1 at once, any other after the
                           DONE of all connections whose client has closed, or after 50 ms */
    SP_PROXY_RELAY,  /* front: head; + the socket of a client outside, + a connected socket of the
                        cell: bytes are copied between them; needs no HELLO */
    SP_PROXY_READY,  /* proxy: head; it is confined and serves */
    SP_PROXY_UNABLE, /* proxy: head + text: it cannot be confined, and ends */
    SP_PROXY_ASK,    /* proxy: struct sp_proxy_ask + host + method */
    SP_PROXY_KNOW,   /* proxy: head + HOST (at any port) or HOST:PORT: is it listed or approved? */
    SP_PROXY_GONE,   /* proxy: head: no connection waits for this verdict any more */
    SP_PROXY_DONE,   /* proxy: struct sp_proxy_done */
    SP_PROXY_COUNTS, /* proxy: struct sp_proxy_counts, at most once a second if they changed */
    SP_PROXY_PONG,   /* proxy: head */
    SP_PROXY_CLOSED, /* proxy: head: a connection of RELAY with this number has ended */
    SP_PROXY_OP_MAX
};

/* len: bytes after this head. number: of an ask, chosen by the proxy, never 0, never reused. */
struct sp_proxy_head {
    uint16_t version, op;
    uint32_t len;
    uint64_t number;
};

enum { /* flags of HELLO */
       SP_PROXY_SOCKS = 1,
       SP_PROXY_CHECK_SNI = 2,
       SP_PROXY_LIMITED = 4,         /* mode `limited` */
       SP_PROXY_UPSTREAM_STRICT = 8, /* behind an upstream proxy: a name that does not resolve is
                                        refused instead of passed on */
};

/*
 * Followed by http_len, https_len and no_proxy_len bytes: the upstream proxies for plain HTTP and
 * for tunnels as "HOST:PORT" or "HOST:PORT BASIC-CREDENTIALS" (n 0: none), and NO_PROXY.
 */
struct sp_proxy_hello {
    struct sp_proxy_head head;
    uint32_t flags;
    uint32_t linger_ms; /* how long an ask outlives the connection that caused it */
    uint16_t http_len, https_len, no_proxy_len;
    uint16_t port_count;
    uint16_t own_ports[SP_PROXY_PORTS_MAX]; /* of this server: never reached on this machine */
};

enum sp_proxy_kind {
    SP_PROXY_DNS_UDP = 1,
    SP_PROXY_DNS_TCP,
    SP_PROXY_FRONT_DOOR, /* 127.0.0.1:808: HTTP and SOCKS5 */
    SP_PROXY_BY_NAME,    /* 0.0.0.0:PORT: the local address of a connection names the host */
    SP_PROXY_KIND_MAX
};

struct sp_proxy_listen {
    struct sp_proxy_head head;
    uint8_t kind;
    uint8_t zero;
    uint16_t port;
    uint32_t zeroes;
};

/* name on the wire */
#define SP_PROXY_PROTOCOLS(X)  \
    X(HTTP, "http")            \
    X(TUNNEL, "https_connect") \
    X(TCP, "socks5_tcp")
enum sp_proxy_protocol {
#define X(name, wire) SP_PROXY_##name,
    SP_PROXY_PROTOCOLS(X)
#undef X
        SP_PROXY_PROTOCOL_MAX
};

enum sp_proxy_via {
    SP_PROXY_VIA_PROXY, /* the client spoke HTTP or SOCKS5 to port 808 */
    SP_PROXY_VIA_NAME,  /* the client connected to the address of a name */
    SP_PROXY_VIA_MAX
};

struct sp_proxy_ask {
    struct sp_proxy_head head; /* len: of the rest of this struct, host and method */
    uint8_t protocol, via;
    uint8_t host_len, method_len;
    uint16_t port;
    uint16_t client_port, local_port; /* of the connection, in the cell: to find the command */
    uint16_t zero;
    uint32_t client_address, local_address; /* IPv4, in network order */
};

const char *sp_proxy_protocol_name(uint8_t protocol); /* on the wire */

enum {                       /* flags of VERDICT */
       SP_PROXY_KEEP = 1,    /* holds for this host, port and protocol until FORGET */
       SP_PROXY_LOCAL = 2,   /* the host's addresses need not be public (allow_local) */
       SP_PROXY_LITERAL = 4, /* the host is a literal that is listed: it may be any address */
       SP_PROXY_DECIDED = 8, /* refused: by a person or program, not by the lists ("decider") */
};

struct sp_proxy_verdict {
    struct sp_proxy_head head; /* len: of the rest of this struct and the text */
    uint8_t is_allowed;        /* 0 or 1; KNOW: listed or approved */
    uint8_t reason;            /* NONE if allowed */
    uint8_t flags;
    uint8_t zero[5];
};

#define SP_PROXY_OUTCOMES(X)                        \
    X(REACHED, "reached")                           \
    X(BLOCKED, "blocked")                           \
    X(UNRESOLVED, "name does not resolve")          \
    X(REFUSED, "connection refused")                \
    X(TIMED_OUT, "timed out")                       \
    X(UNREACHABLE, "unreachable")                   \
    X(CROWDED, "too many connections to this host") \
    X(UPSTREAM, "the upstream proxy refused")       \
    X(ABANDONED, "the client hung up")
enum sp_proxy_outcome {
#define X(name, text) SP_PROXY_##name,
    SP_PROXY_OUTCOMES(X)
#undef X
        SP_PROXY_OUTCOME_MAX
};
const char *sp_proxy_outcome_text(uint8_t outcome);

/* number: of the ASK; 0 if the verdict was a kept one, then the host follows like in ASK. */
struct sp_proxy_done {
    struct sp_proxy_head head; /* len: of the rest of this struct, and the host */
    uint8_t outcome;
    uint8_t reason; /* BLOCKED after the verdict: the address is not public, or another SNI */
    uint8_t protocol, via;
    uint16_t port;
    uint8_t host_len;
    uint8_t family; /* of the address reached: 4, 6; 0: none */
    uint8_t address[16];
    uint64_t sent, received; /* payload bytes: from and to the command */
    uint64_t ms;
    uint16_t client_port, local_port;
    uint32_t client_address, local_address;
    uint32_t zero;
};

struct sp_proxy_counts {
    struct sp_proxy_head head;
    uint32_t active;                                      /* connections now */
    uint32_t names;                                       /* live names */
    uint64_t dns_name, dns_none, dns_failed, dns_dropped; /* answers since its start */
    uint64_t resolves, resolve_us;
};

/* Checks a received message of n bytes, aligned to 8, with this many descriptors. */
bool sp_proxy_check(const void *bytes, size_t n, bool is_from_proxy, int fd_count);
/* The text behind a struct of `size` bytes: of VERDICT, UNABLE, FORGET, KNOW. */
struct sp_str sp_proxy_text(const struct sp_proxy_head *m, size_t size);

#endif

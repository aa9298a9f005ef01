/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link_open: how links begin and end, for whoever accepts connections. Everyone else sees link.h.
 */
#ifndef SP_SERVER_NET_LINK_OPEN_H
#define SP_SERVER_NET_LINK_OPEN_H

#include "base/buf.h"
#include "server/net/http.h"
#include "server/net/link.h"
#include "server/net/upgrade.h"

/* What the links of one listener, or of one client, share. */
struct sp_link_host {
    struct sp_loop *loop;
    uint64_t ping_every_ms, silence_ms, handshake_ms;
    size_t max_line;       /* received; 0: SP_LINK_MAX_MESSAGE */
    bool keeps_on;         /* a line too long or not UTF-8 goes to ops.not_text; the link lives */
    bool is_narrow;        /* messages have SP_LINK_MAX_FIRST bytes until sp_link_widen */
    size_t max_unfinished; /* bytes, see `unfinished`; above it the largest link closes. 0: none */
    size_t unfinished;     /* received and not yet delivered, of links above SP_LINK_MAX_FIRST */
    char *scratch;         /* SP_INTAKE_SCRATCH + 1 bytes to receive into */
    struct sp_link *first; /* all of them */
    unsigned total;        /* their number */
    unsigned open;         /* of these, connections that messages travel on */
    uint64_t bytes_in, bytes_out;
    /* Of a client: a guest in somebody's program, so SIGPIPE is kept from that; and half a line at
     * the end of a stream is no message, but a connection that was lost. */
    bool is_client;
    void *user;
    /* A request came: append the answer to *out. true: it is a 101, and opened has said yes. */
    bool (*request)(void *user, struct sp_link *l, const struct sp_http_request *r,
                    struct sp_buf *out);
    /* Messages may travel: whose are they? false: refuse the connection. */
    bool (*opened)(void *user, struct sp_link *l);
    /* Of a client: it will not open, and is freed after this. is_refusal: the server said no. */
    void (*failed)(void *user, bool is_refusal, const char *why);
    /* A link was freed. The last thing it does: the host may go away in here. */
    void (*gone)(void *user);
};

enum sp_link_start {
    SP_LINK_START_HTTP,  /* a request comes first */
    SP_LINK_START_SNIFF, /* a request if the first byte is a capital letter, else lines */
};

/* The descriptor is non-blocking, and the link's from here on, also on failure. */
int sp_link_new(struct sp_link_host *h, int fd, enum sp_link_start start, const char *peer,
                struct sp_err *e);

/* Lines over two descriptors that stay the caller's: pipes are made non-blocking until the end. */
int sp_link_new_pair(struct sp_link_host *h, int in, int out, const char *peer, struct sp_err *e);

/*
 * The link of a client, over a socket that is connected: upgraded as `ask` says, or lines at once
 * (NULL): then host.opened is called within. Else it or host.failed is, later, from the loop.
 */
int sp_link_new_client(struct sp_link_host *h, int fd, const struct sp_upgrade *ask,
                       const char *peer, struct sp_err *e);

/* One turn of this link alone, without the loop: sends, waits so long for the peer, receives. For
 * the end of a client. Not from a callback of this link. */
void sp_link_turn(struct sp_link *l, int timeout_ms);
bool sp_link_is_live(const struct sp_link *l); /* messages still travel */

/* From host.request and host.opened: to whom the messages go. */
void sp_link_serve(struct sp_link *l, const struct sp_link_ops *ops, void *user);

/* Sends what can be sent at once, calls ops.closed and frees. Not from a callback of this link. */
void sp_link_end_now(struct sp_link *l, const char *why);

struct sp_link *sp_link_next(const struct sp_link *l);

/* Drops the oldest link that carries no messages: one still in its HTTP head, or answered and not
 * yet gone. false: there is none. */
bool sp_link_evict(const struct sp_link_host *h);

#endif

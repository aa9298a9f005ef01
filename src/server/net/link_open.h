/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link_open: how links begin and end, for listeners and clients. Users of a link include link.h.
 */
#ifndef SP_SERVER_NET_LINK_OPEN_H
#define SP_SERVER_NET_LINK_OPEN_H

#include "base/buf.h"
#include "server/net/http.h"
#include "server/net/link.h"
#include "server/net/upgrade.h"

/* Shared by the links of one listener, or of one client. */
struct sp_link_host {
    struct sp_loop *loop;
    uint64_t ping_every_ms, silence_ms, handshake_ms;
    size_t max_line;       /* received; 0: SP_LINK_MAX_MESSAGE */
    bool keeps_on;         /* a bad line is reported to ops.not_text, and does not end the link */
    bool is_narrow;        /* messages have SP_LINK_MAX_FIRST bytes until sp_link_widen */
    size_t max_unfinished; /* bound of `unfinished`: above it the largest link closes. 0: none */
    size_t unfinished;     /* bytes received but not delivered, of links above SP_LINK_MAX_FIRST */
    uint64_t max_total;    /* bound of `total`, for sp_link_new; 0: none */
    char *scratch;         /* SP_INTAKE_SCRATCH + 1 bytes to receive into */
    struct sp_link *first; /* all links, the newest first */
    unsigned total;        /* their number */
    unsigned open;         /* links with ops */
    uint64_t bytes_in, bytes_out;
    /* A client may run in a host program: it must not raise SIGPIPE. An unfinished line at the end
     * of the stream is a lost connection, not a message. */
    bool is_client;
    void *user;
    /* Appends the answer to *out. true: the answer is 101, and opened has returned true. */
    bool (*request)(void *user, struct sp_link *l, const struct sp_http_request *r,
                    struct sp_buf *out);
    /* Before the first message: must call sp_link_serve. false: refuses the connection. */
    bool (*opened)(void *user, struct sp_link *l);
    /* A client's link did not open, and is freed after this. is_refusal: the server answered. */
    void (*failed)(void *user, bool is_refusal, const char *why);
    /* A link was freed; this callback may free the host. */
    void (*gone)(void *user);
};

enum sp_link_start {
    SP_LINK_START_HTTP,  /* an HTTP request comes first */
    SP_LINK_START_SNIFF, /* HTTP if the first byte is a capital letter, else lines */
};

/* Takes over the descriptor, also on failure; it must be non-blocking. At max_total the oldest link
 * that is not open yet is dropped for the new one; SP_E_LIMIT if all are open. */
int sp_link_new(struct sp_link_host *h, int fd, enum sp_link_start start, const char *peer,
                struct sp_err *e);

/* Lines over two descriptors, which the caller closes. Pipes are non-blocking until the link ends.
 */
int sp_link_new_pair(struct sp_link_host *h, int in, int out, const char *peer, struct sp_err *e);

/*
 * The link of a client, over a connected socket. ask NULL: lines, host.opened is called from
 * within. Else the link is upgraded, and host.opened or host.failed is called later, from the loop.
 */
int sp_link_new_client(struct sp_link_host *h, int fd, const struct sp_upgrade *ask,
                       const char *peer, struct sp_err *e);

/* One turn of this link without the loop: sends, polls for timeout_ms, receives. Used when a client
 * ends. false: it is not open (any more), and nothing was done. Not from a callback of this link.
 */
bool sp_link_turn(struct sp_link *l, int timeout_ms);

/* Sets the receiver of messages; from host.request and host.opened. */
void sp_link_serve(struct sp_link *l, const struct sp_link_ops *ops, void *user);

/* Sends without blocking, calls ops.closed and frees. Not from a callback of this link. */
void sp_link_end_now(struct sp_link *l, const char *why);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer: one MCP conversation: a pipe, a connection or a legacy HTTP session. A modern HTTP request
 * has a peer of its own. A peer remembers its open requests and, in the legacy era, what
 * `initialize` agreed on.
 */
#ifndef SP_MCP_PEER_H
#define SP_MCP_PEER_H

#include "mcp/mcp.h"
#include "mcp/mcp_message.h"

struct sp_mcp_peer;

#define SP_MCP_OPEN_MAX 256 /* open requests of one peer; more are answered with an error */

/* Where the messages of a request go; embedded in the transport's own object. */
struct sp_mcp_out {
    /* Sends one JSON text without line feed, borrowed. status 0: a message before the answer; else
     * the answer to the request that came with this `out`, with its HTTP status. May be called from
     * within sp_mcp_take. Must not free the peer. */
    void (*send)(struct sp_mcp_out *o, struct sp_str message, unsigned status);
    bool (*is_full)(struct sp_mcp_out *o); /* true: optional messages (progress, log) are skipped */
    /* A message cancelled the request: no answer will come. NULL: the transport does not need to
     * know, because one `out` serves the whole pipe. Must not free the peer. */
    void (*cancelled)(struct sp_mcp_out *o);
};

/* HTTP headers that repeat parts of the body; p NULL: the header is missing. Names are decoded. */
struct sp_mcp_headers {
    struct sp_str version, method, name;
    bool is_name_broken; /* Mcp-Name cannot be decoded */
};

/* The transport holds the caller. Messages that belong to no request go to `out`, which outlives
 * the peer; without one (NULL, for HTTP) they go with an open request, or are dropped. NULL: out of
 * memory. */
struct sp_mcp_peer *sp_mcp_peer_new(struct sp_mcp *m, struct sp_mcp_caller *c,
                                    struct sp_mcp_out *out);
/* Cancels open requests; their processes keep running. Not from within `send`. */
void sp_mcp_peer_free(struct sp_mcp_peer *p);
/* Cancels open requests and moves what `initialize` agreed on to another caller. c NULL: to none;
 * the peer must not be used until it has one. */
void sp_mcp_peer_move(struct sp_mcp_peer *p, struct sp_mcp_caller *c);

/*
 * Takes one message. true: a request (or broken); its answer goes to `out`, now or later. false: no
 * answer follows. headers: NULL unless the message came by HTTP.
 */
bool sp_mcp_take(struct sp_mcp_peer *p, struct sp_mcp_out *out,
                 const struct sp_mcp_headers *headers, struct sp_mcp_message *m);

/* The client no longer reads `out`, which is not used any more: modern requests are cancelled,
 * legacy ones continue without a reader. */
void sp_mcp_peer_out_gone(struct sp_mcp_peer *p, struct sp_mcp_out *out);

/* The server shuts down: answers open subscriptions. */
void sp_mcp_peer_close_subscriptions(struct sp_mcp_peer *p);

/* The version that `initialize` agreed on; NULL: none yet. */
const char *sp_mcp_peer_version(const struct sp_mcp_peer *p);

#endif

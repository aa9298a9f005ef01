/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer: one conversation in the protocol: a pipe, a connection, a legacy HTTP session; for a modern
 * HTTP request one of its own. What it remembers is what the legacy era needs, and which requests
 * are open.
 */
#ifndef SP_MCP_PEER_H
#define SP_MCP_PEER_H

#include "mcp/mcp.h"
#include "mcp/mcp_message.h"

struct sp_mcp_peer;

#define SP_MCP_OPEN_MAX 256 /* requests of one peer; more are answered with an error */

/* Where the messages that belong to a request go; embedded in whatever the transport keeps. */
struct sp_mcp_out {
    /* One JSON text without line feed, borrowed. status 0: more will follow; else it is the answer
     * to the request that came with this `out`, and status is its HTTP status. May be called from
     * within sp_mcp_take. It must not free the peer. */
    void (*send)(struct sp_mcp_out *o, struct sp_str message, unsigned status);
    /* Messages that nobody misses (progress) are left out now. NULL: never full. */
    bool (*is_full)(const struct sp_mcp_out *o);
    /* The request was cancelled by a message: no answer will come. NULL: it makes no difference
     * (one `out` for a whole pipe). As for send. */
    void (*cancelled)(struct sp_mcp_out *o);
};

/* What an HTTP request says beside its body; n 0 and p NULL: no such header. Names are decoded. */
struct sp_mcp_headers {
    struct sp_str version, method, name;
    bool is_name_broken; /* it cannot be decoded */
};

/* NULL: no memory. The caller is held by the transport. */
struct sp_mcp_peer *sp_mcp_peer_new(struct sp_mcp *m, struct sp_mcp_caller *c);
/* What belongs to no request goes to `out`, which outlives the peer. Without it, with HTTP, it goes
 * with a request that is open, or nowhere. */
void sp_mcp_peer_set_out(struct sp_mcp_peer *p, struct sp_mcp_out *out);
/* Open requests are cancelled: their processes go on. Not from within `send`. */
void sp_mcp_peer_free(struct sp_mcp_peer *p);
/* The same, and what `initialize` agreed on goes on with another caller. NULL: with none, and the
 * peer is not to be used before it has one. */
void sp_mcp_peer_move(struct sp_mcp_peer *p, struct sp_mcp_caller *c);

/*
 * One message. true: it is a request (or broken), and its answer goes to `out`, or went already.
 * false: nothing will be said about it. headers: NULL unless it came by HTTP.
 */
bool sp_mcp_take(struct sp_mcp_peer *p, struct sp_mcp_out *out,
                 const struct sp_mcp_headers *headers, struct sp_mcp_message *m);

/* Nobody reads `out` any more, and it must not be used: what would be answered there is cancelled
 * if it is modern, and goes on unheard if it is legacy. */
void sp_mcp_peer_out_gone(struct sp_mcp_peer *p, struct sp_mcp_out *out);

/* The server ends: open subscriptions are answered. */
void sp_mcp_peer_close_subscriptions(struct sp_mcp_peer *p);

/* The version that `initialize` agreed on; NULL: it has not been there. */
const char *sp_mcp_peer_version(const struct sp_mcp_peer *p);

#endif

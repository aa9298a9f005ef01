/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_http_priv: shared by the files of the HTTP server.
 *
 *   mcp_http.c       listens, keeps legacy sessions, hands a complete request to its peer
 *   mcp_http_conn.c  one connection: bytes in, requests, answers, deadlines
 *   mcp_http_gate.c  judges the head of a request: token, Host, Origin, path, types. No I/O
 */
#ifndef SP_MCP_MCP_HTTP_PRIV_H
#define SP_MCP_MCP_HTTP_PRIV_H

#include "base/list.h"
#include "mcp/mcp_http.h"
#include "mcp/peer.h"
#include "server/net/acceptor.h"
#include "server/net/http_body.h"
#include "server/net/outq.h"

#define SP_MCP_HTTP_SCRATCH  (64U << 10)
#define SP_MCP_HTTP_ID_LEN   32 /* of a session: 128 bits in hexadecimal */
#define SP_MCP_HTTP_PATH_MAX 256

/* ---- mcp_http_gate.c ---- */

struct sp_mcp_gate {
    char path[SP_MCP_HTTP_PATH_MAX + 1];
    uint8_t (*digests)[32]; /* SHA-256 of each token; the tokens themselves are not kept */
    unsigned tokens;
    char **origins; /* NULL-terminated */
    bool is_loopback;
};

enum sp_mcp_verb { SP_MCP_POST, SP_MCP_DELETE, SP_MCP_PREFLIGHT };

struct sp_mcp_verdict {
    unsigned status;    /* 0: accepted; else the HTTP status of the refusal */
    int code;           /* JSON-RPC error code of the refusal */
    const char *why;    /* its message; NULL: no body */
    const char *header; /* one extra header line with its CR LF, or NULL */
    enum sp_mcp_verb verb;
    unsigned token;       /* index of the token, from 1; 0: none matched */
    struct sp_str origin; /* an allowed Origin; n 0: the request has none */
};

struct sp_mcp_verdict sp_mcp_gate_judge(const struct sp_mcp_gate *g,
                                        const struct sp_http_request *r);

/* ---- mcp_http.c ---- */

/* A legacy session: a peer that outlives its requests. */
struct sp_mcp_session {
    struct sp_mcp_http *http;
    struct sp_list link;              /* in http->sessions once is_known */
    struct sp_mcp_caller_watch watch; /* its caller is held only while users > 0 */
    struct sp_mcp_peer *peer;
    uint64_t used_ms;
    unsigned token; /* the owner; unknown to requests with any other token */
    unsigned users; /* open requests */
    bool is_known;  /* `initialize` succeeded, so requests can name it */
    char id[SP_MCP_HTTP_ID_LEN + 1];
};

struct sp_mcp_http {
    struct sp_mcp *mcp;
    struct sp_loop *loop;
    struct sp_mcp_gate gate;
    struct sp_acceptor acceptor;
    struct sp_list conns; /* newest first */
    unsigned total, over; /* over: connections above max; they get a 503 */
    unsigned max;
    struct sp_list sessions; /* most recently used first */
    unsigned session_count;
    struct sp_timer expiry;
    struct sp_mcp_message message; /* reused for each message, one at a time */
    char url[128 + SP_MCP_HTTP_PATH_MAX];
    char scratch[SP_MCP_HTTP_SCRATCH];
};

struct sp_mcp_conn;

/* The request is complete: answers it, or hands it to its peer. */
void sp_mcp_http_serve(struct sp_mcp_conn *c);
/* Detaches the connection from the peer or session of its request. Not from within `send`. */
void sp_mcp_http_let_go(struct sp_mcp_conn *c);
/* The session's id becomes valid: its `initialize` succeeded. */
void sp_mcp_session_publish(struct sp_mcp_session *s);

/* ---- mcp_http_conn.c ---- */

/*
 *   HEAD --> BODY --> ANSWERING --> SENDING --> HEAD ...
 *     '--refused---------------------^ |
 *                                      '--last--> LINGER --> GONE (from any phase on an error)
 *
 * One request at a time: the next one is not read before the answer has been sent, so a client that
 * sends requests without reading answers stops itself.
 */
enum sp_mcp_conn_phase {
    SP_MCP_CONN_HEAD,
    SP_MCP_CONN_BODY,
    SP_MCP_CONN_ANSWERING,
    SP_MCP_CONN_SENDING,
    SP_MCP_CONN_LINGER,
    SP_MCP_CONN_GONE
};

struct sp_mcp_conn {
    struct sp_mcp_out out; /* of the open request; the first member, see is_full in the .c file */
    struct sp_mcp_http *http;
    struct sp_list link;
    int fd;
    struct sp_watch watch;
    struct sp_timer tick;
    struct sp_deferred turn_end; /* flush, next phase, deadlines, free */
    struct sp_deferred again;    /* a pipelined request is already in `in` */

    struct sp_buf in; /* unread bytes */
    struct sp_http_parser parser;
    char *head; /* of the current request, until it is answered */
    struct sp_http_request request;
    struct sp_mcp_verdict verdict;
    struct sp_http_body framing;
    struct sp_buf body;

    struct sp_mcp_caller *caller;   /* of a modern request; held */
    struct sp_mcp_peer *peer;       /* of the current request; NULL: none */
    struct sp_mcp_session *session; /* NULL: a modern request, which owns its peer */

    struct sp_outq outq;
    uint64_t since_ms; /* start of the phase */
    uint64_t moved_ms; /* last progress of the output */
    uint64_t said_ms;  /* last bytes queued on the stream */
    size_t lingered;
    uint8_t phase;
    bool is_over;      /* above the limit: gets a 503 */
    bool has_served;   /* at least one request */
    bool is_trusted;   /* some request carried a valid token */
    bool is_last;      /* close after this answer */
    bool is_streaming; /* the head of an event stream has been sent */
    bool is_blocked;   /* the socket buffer is full */
    bool is_asked;     /* the peer owes an answer */
};

/* Owns the descriptor from now on. */
void sp_mcp_conn_new(struct sp_mcp_http *h, int fd, bool is_over);
/* Closes subscriptions, sends what the socket takes at once, and frees. */
void sp_mcp_conn_end_now(struct sp_mcp_conn *c);
void sp_mcp_conn_drop(struct sp_mcp_conn *c); /* freed at the end of this turn of the loop */
/* Hands the request to its peer; an answer or an empty 202 follows. */
void sp_mcp_conn_ask_peer(struct sp_mcp_conn *c, const struct sp_mcp_headers *headers,
                          struct sp_mcp_message *m);
/* A complete answer that does not come from a peer. why NULL: no body. */
void sp_mcp_conn_refuse(struct sp_mcp_conn *c, unsigned status, int code, const char *why,
                        const char *header);
void sp_mcp_conn_answer_empty(struct sp_mcp_conn *c, unsigned status);
/* The peer will not answer: ends the stream, or refuses if nothing was sent yet. */
void sp_mcp_conn_abandon(struct sp_mcp_conn *c, unsigned status, const char *why);

#endif

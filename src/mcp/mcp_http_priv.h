/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_priv: the HTTP server from inside. http.c has its life and its door, http_gate.c judges
 * heads, http_conn.c moves bytes and keeps time, http_post.c brings messages to their peers,
 * http_sse.c writes answers, http_session.c keeps the legacy sessions. Nobody else includes this.
 */
#ifndef SP_MCP_MCP_HTTP_PRIV_H
#define SP_MCP_MCP_HTTP_PRIV_H

#include "mcp/mcp_http.h"
#include "mcp/peer.h"
#include "server/net/bind.h"
#include "server/net/http_body.h"
#include "server/net/outq.h"

#define SP_MCP_HTTP_FULL     (256U << 10) /* queued bytes from which progress is left out */
#define SP_MCP_HTTP_OUT_MAX  (64U << 20)  /* queued bytes; above, the connection ends */
#define SP_MCP_HTTP_SCRATCH  (64U << 10)
#define SP_MCP_HTTP_SPARE    64U /* connections above the limit: heard, to be told of it */
#define SP_MCP_HTTP_ID_LEN   32  /* of a session: 128 bits in hexadecimal */
#define SP_MCP_HTTP_PATH_MAX 256

/* ---- http_gate.c ---- */

struct sp_mcp_gate {
    char path[SP_MCP_HTTP_PATH_MAX + 1];
    uint8_t (*digests)[32]; /* of the tokens: all that is kept of them */
    unsigned tokens;
    char **origins; /* NULL at the end */
    bool is_loopback;
};

enum sp_mcp_verb { SP_MCP_POST, SP_MCP_DELETE, SP_MCP_PREFLIGHT };

struct sp_mcp_verdict {
    unsigned status;    /* 0: it may pass */
    int code;           /* of the JSON-RPC error in the answer */
    const char *why;    /* its text; NULL: an answer without a body */
    const char *header; /* one more line with its CR LF, or NULL */
    enum sp_mcp_verb verb;
    unsigned token;       /* whose: 1 ... */
    struct sp_str origin; /* one that is allowed; n 0: there was none */
};

int sp_mcp_gate_init(struct sp_mcp_gate *g, const struct sp_mcp_http_options *o, struct sp_err *e);
void sp_mcp_gate_done(struct sp_mcp_gate *g);
struct sp_mcp_verdict sp_mcp_gate_judge(const struct sp_mcp_gate *g,
                                        const struct sp_http_request *r);
/* The headers that are compared with the body. `name` keeps a decoded one. NULL: they are fine,
 * else what is wrong with them. */
const char *sp_mcp_gate_headers(const struct sp_http_request *r, struct sp_buf *name,
                                struct sp_mcp_headers *ret);

/* ---- http_session.c ---- */

struct sp_mcp_session {
    struct sp_mcp_http *http;
    struct sp_mcp_session *prev, *next; /* while is_known */
    struct sp_mcp_guest guest;          /* of its caller, which it holds while it has users */
    struct sp_mcp_peer *peer;
    uint64_t used_ms;
    unsigned token; /* whose it is; to all others it is unknown */
    unsigned users; /* requests that are open */
    bool is_known;  /* its `initialize` has succeeded: it can be asked for */
    char id[SP_MCP_HTTP_ID_LEN + 1];
};

/* One that nobody knows yet, with one user. */
int sp_mcp_session_new(struct sp_mcp_http *h, unsigned token, struct sp_mcp_session **ret,
                       struct sp_err *e);
void sp_mcp_session_publish(struct sp_mcp_session *s);
/* With one user more; NULL: there is none of that name for this token. */
struct sp_mcp_session *sp_mcp_session_use(struct sp_mcp_http *h, unsigned token, struct sp_str id);
/* One user less. One that nobody knows ends. Not from within `send`. */
void sp_mcp_session_leave(struct sp_mcp_session *s);
/* Its open requests are answered with 404. Not from within `send`. */
void sp_mcp_session_end(struct sp_mcp_session *s);

/* The caller of a token. */
int sp_mcp_http_hold(struct sp_mcp_http *h, unsigned token, struct sp_mcp_caller **ret,
                     struct sp_err *e);

/* ---- http_conn.c ---- */

/*
 *   HEAD --> BODY --> ANSWERING --> SENDING --> HEAD ...
 *     '--refused---------------------^ |
 *                                      '--last--> LINGER --> GONE (from anywhere when it breaks)
 *
 * One request at a time: the next is not looked at before the answer is with the kernel, so a peer
 * that asks and does not read is not heard any more.
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
    struct sp_mcp_out out; /* of the request that is open; first, see sp_mcp_http_is_full */
    struct sp_mcp_http *http;
    struct sp_mcp_conn *prev, *next;
    int fd;
    struct sp_watch watch;
    struct sp_timer tick;
    struct sp_deferred turn_end; /* send, watch, go on, sweep */
    struct sp_deferred again;    /* more requests are here already */

    struct sp_buf in; /* not yet read */
    struct sp_http_parser parser;
    char *head; /* of this request, kept until it is answered */
    struct sp_http_request request;
    struct sp_mcp_verdict verdict;
    struct sp_http_body framing;
    struct sp_buf body;

    struct sp_mcp_caller *caller;   /* of a modern request */
    struct sp_mcp_peer *peer;       /* who is asked; NULL: nobody */
    struct sp_mcp_session *session; /* NULL: a modern request, whose peer is ours */

    struct sp_outq outq;
    uint64_t since_ms; /* in this phase */
    uint64_t moved_ms; /* output did */
    uint64_t said_ms;  /* on the stream */
    size_t lingered;
    uint8_t phase;
    bool is_over;      /* above the limit: told so, and nothing else */
    bool has_served;   /* a request, already */
    bool is_trusted;   /* a request on it had a token */
    bool is_last;      /* the connection ends after this answer */
    bool is_streaming; /* the answer's head said: a stream */
    bool is_blocked;   /* the kernel took less than we had */
    bool is_asked;     /* the peer has yet to answer */
};

/* The descriptor is the connection's from here on. */
void sp_mcp_conn_new(struct sp_mcp_http *h, int fd, bool is_over);
/* Says farewell, sends what can be sent at once, and frees. */
void sp_mcp_conn_end_now(struct sp_mcp_conn *c);
/* There is output, or the phase has changed: look at the end of this turn. */
void sp_mcp_conn_stir(struct sp_mcp_conn *c);
void sp_mcp_conn_drop(struct sp_mcp_conn *c);
void sp_mcp_conn_enter(struct sp_mcp_conn *c, enum sp_mcp_conn_phase phase);

/* ---- http_sse.c: everything is appended to c->outq ---- */

/* Bytes as they are. Without memory, or above the bound, the connection ends. */
void sp_mcp_http_put(struct sp_mcp_conn *c, struct sp_str bytes);
/* A whole answer that is not a peer's, and SENDING. why NULL: no body. */
void sp_mcp_http_refuse(struct sp_mcp_conn *c, unsigned status, int code, const char *why,
                        const char *header);
void sp_mcp_http_answer_empty(struct sp_mcp_conn *c, unsigned status);
void sp_mcp_http_continue(struct sp_mcp_conn *c);
/* The peer's messages: what `out` of the request does. */
void sp_mcp_http_send(struct sp_mcp_out *o, struct sp_str message, unsigned status);
bool sp_mcp_http_is_full(const struct sp_mcp_out *o);
void sp_mcp_http_cancelled(struct sp_mcp_out *o);
void sp_mcp_http_comment(struct sp_mcp_conn *c); /* a sign of life on the stream */
/* No answer will come: the stream ends without one, or the refusal is it. */
void sp_mcp_http_abandon(struct sp_mcp_conn *c, unsigned status, const char *why);

/* ---- http_post.c ---- */

/* The request is whole: answers it, or hands it to its peer. */
void sp_mcp_http_serve(struct sp_mcp_conn *c);
/* Nothing more is said about the request that was open: its peer, or its session, is let go. Not
 * from within `send`. */
void sp_mcp_http_let_go(struct sp_mcp_conn *c);

/* ---- http.c ---- */

struct sp_mcp_http {
    struct sp_mcp *mcp;
    struct sp_loop *loop;
    struct sp_mcp_gate gate;
    struct sp_bound bound;
    struct sp_watch watch;
    struct sp_timer breath;
    struct sp_mcp_conn *conns;
    unsigned total, over, max; /* over: of all, those that are only told that they are too many */
    struct sp_mcp_session *sessions; /* the one used last is first */
    unsigned session_count;
    struct sp_timer expiry;
    struct sp_mcp_message message; /* the one that is read; its memory is used again */
    char url[128 + SP_MCP_HTTP_PATH_MAX];
    char scratch[SP_MCP_HTTP_SCRATCH];
};

/* http_session.c: all of them end. */
void sp_mcp_sessions_done(struct sp_mcp_http *h);

#endif

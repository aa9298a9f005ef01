/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network: whether a command that runs may reach a host (approvals.md 11).
 *
 * A proxy asks for every host that is on none of its lists. Rules, and what was decided before in
 * this conversation, answer at once; otherwise a person is asked, once for a host, a turn and a
 * command: requests that come meanwhile wait for the same answer.
 *
 *   ask --> ALLOWED_ONCE, ALLOWED, DENIED, or ASKING --answer, deadline, hang-up--> one of these
 *
 * Whatever is not understood, and whatever there is no memory for, is denied.
 */
#ifndef SP_APPROVE_NETWORK_H
#define SP_APPROVE_NETWORK_H

#include "approve/approvals.h"
#include "approve/network_host.h"

/* Open questions of one conversation; a request that would be one more is denied. What was decided
 * for the conversation is kept as cache.h says: the oldest is forgotten, and asked for again. */
#define SP_NETWORK_QUESTIONS_MAX 64

/* name, in rules and questions, in texts and keys */
#define SP_NETWORK_PROTOCOLS(X)               \
    X(HTTP, "http", "http")                   \
    X(HTTPS, "https", "https")                \
    X(SOCKS5_TCP, "socks5_tcp", "socks5-tcp") \
    X(SOCKS5_UDP, "socks5_udp", "socks5-udp")
enum sp_network_protocol {
#define X(name, wire, label) SP_NETWORK_##name,
    SP_NETWORK_PROTOCOLS(X)
#undef X
        SP_NETWORK_PROTOCOL_MAX
};

/* Why a request was refused for good: name, on the wire, to the caller. */
#define SP_NETWORK_REASONS(X)                                                                    \
    X(OTHER, "other", "request is blocked by network policy")                                    \
    X(DENIED, "denied",                                                                          \
      "domain is explicitly denied by policy and cannot be approved from this prompt")           \
    X(NOT_ALLOWED, "not_allowed", "domain is not on the allowlist for the current sandbox mode") \
    X(NOT_ALLOWED_LOCAL, "not_allowed_local",                                                    \
      "local/private network addresses are blocked by the sandbox policy")                       \
    X(METHOD_NOT_ALLOWED, "method_not_allowed",                                                  \
      "request method is blocked by the current network mode")                                   \
    X(PROXY_DISABLED, "proxy_disabled", "network proxy is disabled")
enum sp_network_reason {
#define X(name, wire, text) SP_NETWORK_REASON_##name,
    SP_NETWORK_REASONS(X)
#undef X
        SP_NETWORK_REASON_MAX
};
const char *sp_network_reason_name(enum sp_network_reason r); /* on the wire */
/* `Network access to "HOST" was blocked: ...`; n 0: there is no host. false: no memory. */
bool sp_network_add_refusal(struct sp_buf *out, struct sp_str host, enum sp_network_reason r);

/* ---- a command ---- */

/* What is said of a command since it wanted to reach a host. */
struct sp_network_outcome {
    struct sp_str text;
    bool is_cancelled;   /* a person said no: the command is to be ended */
    bool is_interrupted; /* ... and the turn with it */
};

/* One that runs. Embedded in its owner; everything is borrowed until sp_network_command_done. */
struct sp_network_command {
    struct sp_str call_id, environment, cwd;
    struct sp_words argv;
    const struct sp_policy *policy;     /* that it runs under; NULL: no sandbox */
    const char *policy_name;            /* NULL: it has none */
    struct sp_approval_policy approval; /* that it began with */
    /* A request of it was denied. May end the command and its requests. NULL: nobody wants to know.
     */
    void (*outcome)(struct sp_network_command *c, const struct sp_network_outcome *o);

    bool is_cancelled; /* a person said no: nothing is asked for it any more */
};

/* It has ended: nobody is asked on its behalf any more. Its requests are told. */
void sp_network_command_done(struct sp_approvals *a, struct sp_network_command *c);

/* ---- a request ---- */

enum sp_network_state {
    SP_NETWORK_NEW,
    SP_NETWORK_ASKING, /* told will be called */
    SP_NETWORK_ALLOWED_ONCE,
    SP_NETWORK_ALLOWED, /* and so will be the next, of this conversation */
    SP_NETWORK_DENIED,  /* reason and text say why */
};

/* Borrowed for the call; the command until the request is done. */
struct sp_network_ask {
    struct sp_network_command *command;
    struct sp_str turn_id; /* n 0: none */
    struct sp_str host;    /* as the client wrote it */
    uint16_t port;
    enum sp_network_protocol protocol;
    bool resolves_to_local; /* a name, and of what it stands for something is not public */
    bool allows_local;      /* allow_local_binding: what is not public is a host like others */
};

struct sp_network_request {
    /* The state is no longer ASKING. If the answer was given at once: from within the function. May
     * end the request. */
    void (*told)(struct sp_network_request *r);
    enum sp_network_state state;
    enum sp_network_reason reason; /* DENIED */
    struct sp_str text;            /* DENIED: for the caller; there until the request is done */
    struct sp_network_host host;   /* what was judged, and alone may be connected to */

    /* its own */
    struct sp_approvals *approvals; /* NULL: not begun, or done */
    struct sp_network_command *command;
    struct sp_network_question *question; /* that it waits for */
    struct sp_network_request *next;      /* that waits for the same */
    uint16_t port;
    enum sp_network_protocol protocol;
    uint64_t since_ms;
    struct sp_buf own_text;
};

/* Of the callbacks none ends the request that is just being asked for, or the conversation.
 * told may be NULL: nobody waits. An answer without a question is in the state on return, and told
 * is not called. */
void sp_network_ask(struct sp_network_request *r, struct sp_approvals *a,
                    const struct sp_network_ask *ask, void (*told)(struct sp_network_request *r));

/* The client has gone: denied, if it was not decided, and nobody is told. The last one that waits
 * takes its question with it. */
void sp_network_hang_up(struct sp_network_request *r);

/* As above, if it still waits; and its memory goes. Zero or done already is fine. */
void sp_network_request_done(struct sp_network_request *r);

#endif

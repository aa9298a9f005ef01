/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network: whether a running command may reach a host.
 *
 * The lists of the profile are judged before (sandbox/network_policy.h). What they refuse is final;
 * a rule or a decision may still deny what they allow. About a host on no list, rules and earlier
 * decisions of this conversation answer at once; otherwise the approver is asked, once for a host,
 * a turn and a command: requests that come meanwhile wait for the same answer. A yes for once holds
 * for the command, this port and protocol, until the command ends.
 *
 *   ask --> ALLOWED_ONCE, ALLOWED, DENIED, or ASKING --answer, deadline, hang-up--> one of these
 *
 * Answers that are not understood, and anything that runs out of memory, are denials.
 */
#ifndef SP_APPROVE_NETWORK_H
#define SP_APPROVE_NETWORK_H

#include "approve/approvals.h"
#include "base/hostname.h"
#include "base/list.h"
#include "base/network_reason.h"
#include "sandbox/network_policy.h"

/* Open questions of one conversation; one more is denied. Decisions for the conversation are kept
 * in a cache: the oldest is dropped, and asked about again. */
#define SP_NETWORK_QUESTIONS_MAX 64
/* Denials without a question that the log has of one command; more are not logged, so that a
 * command in a sandbox cannot fill a disk of the user's. */
#define SP_NETWORK_LOGGED_DENIALS 1000
/* Hosts allowed without a question that the log has of one command. More are not logged, or refused
 * if the log is mandatory. */
#define SP_NETWORK_LOGGED_APPROVALS 10000

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

/* `Network access to "HOST" was blocked: ...`; n 0: there is no host. false: no memory. */
bool sp_network_add_refusal(struct sp_buf *out, struct sp_str host, enum sp_network_reason r);

/* Whether the rules deny the host at every port. rules NULL: there are none. */
bool sp_network_is_denied_by_rules(const struct sp_rules *rules, const struct sp_hostname *host);

/* ---- a command ---- */

/* The consequence of a denied request for its command. */
struct sp_network_outcome {
    struct sp_str text;
    bool is_cancelled;   /* a person refused: end the command */
    bool is_interrupted; /* ... and the turn */
};

/* A running command. Embedded in its owner; everything is borrowed until
 * sp_network_command_done. */
struct sp_network_command {
    struct sp_str call_id, environment, cwd;
    struct sp_words argv;
    const struct sp_policy *policy;     /* NULL: no sandbox */
    const char *policy_name;            /* NULL: it has none */
    struct sp_approval_policy approval; /* that it began with */
    /* A request was denied. May end the command and its requests. May be NULL. */
    void (*outcome)(struct sp_network_command *c, const struct sp_network_outcome *o);
    /* Rules or decisions have changed: verdicts that were kept are not valid any more. host: was
     * allowed before and is denied now, n 0: none. May be NULL. */
    void (*changed)(struct sp_network_command *c, struct sp_str host);
    bool has_no_approver; /* no approver answers: only hooks and the reviewer are asked */

    bool is_cancelled; /* a request was refused: no more questions */
    enum sp_decider cancelled_by;
    /* private */
    uint32_t logged_denials, logged_approvals;
    struct sp_list link;
};

/* From now on `changed` is called. false: no memory. */
bool sp_network_command_begin(struct sp_approvals *a, struct sp_network_command *c);
/* The command ended: its questions are withdrawn, its requests are called back, and what was
 * allowed to it alone is forgotten. */
void sp_network_command_done(struct sp_approvals *a, struct sp_network_command *c);

/* ---- a request ---- */

enum sp_network_state {
    SP_NETWORK_NEW,
    SP_NETWORK_ASKING,       /* `decided` will be called */
    SP_NETWORK_ALLOWED_ONCE, /* for this command */
    SP_NETWORK_ALLOWED,      /* for the rest of the conversation */
    SP_NETWORK_DENIED,       /* reason and text say why */
};

/* Borrowed for the call, but the command until the request is done. */
struct sp_network_ask {
    struct sp_network_command *command;
    struct sp_str turn_id; /* n 0: none */
    struct sp_str host;    /* as the client wrote it */
    uint16_t port;
    enum sp_network_protocol protocol;
    enum sp_network_standing standing; /* what the lists of the profile say */
};

struct sp_network_request {
    /* Called when the state is no longer ASKING. May end the request. */
    void (*decided)(struct sp_network_request *r);
    enum sp_network_state state;
    enum sp_network_reason reason; /* DENIED */
    struct sp_str text;            /* DENIED: for the caller; valid until the request is done */
    struct sp_hostname host;       /* the host that was judged; connect to no other */

    /* private */
    struct sp_approvals *approvals; /* NULL: not begun, or done */
    struct sp_network_command *command;
    struct sp_network_question *question; /* the question it waits for */
    struct sp_network_request *next;      /* next request that waits for the same question */
    uint16_t port;
    enum sp_network_protocol protocol;
    uint64_t since_ms;
    struct sp_buf own_text;
};

/* No callback may end the request that is being asked for, or the conversation. `decided` may be
 * NULL. A decision without a question is in the state on return, and `decided` is not called. */
void sp_network_ask(struct sp_network_request *r, struct sp_approvals *a,
                    const struct sp_network_ask *ask,
                    void (*decided)(struct sp_network_request *r));

/* The client is gone: denied if undecided, without a callback. The question ends with the last
 * request that waits for it. */
void sp_network_hang_up(struct sp_network_request *r);

/* Whether a rule or a decision allows the host to the command at some port, so that its name may be
 * looked up. */
bool sp_network_knows(const struct sp_approvals *a, const struct sp_network_command *c,
                      const struct sp_hostname *host);

/* What the rules and the decisions of this conversation say of the host at any port. */
enum sp_network_word { SP_NETWORK_UNSAID, SP_NETWORK_ALLOW, SP_NETWORK_DENY };
enum sp_network_word sp_network_word(const struct sp_approvals *a, const struct sp_hostname *host,
                                     enum sp_decider *ret_by);

/* Hangs up if it still waits, and frees its memory. Zero or done before is fine. */
void sp_network_request_done(struct sp_network_request *r);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* network_priv: what network.c and network_question.c share. */
#ifndef SP_APPROVE_NETWORK_PRIV_H
#define SP_APPROVE_NETWORK_PRIV_H

#include "approve/approvals_priv.h"
#include "approve/network.h"
#include "base/arena.h"
#include "base/list.h"

#define SP_NETWORK_NO_HOST "Network access was blocked by policy."
#define SP_NETWORK_BY_USER "rejected by user"

/* What one conversation knows about hosts. */
struct sp_network {
    struct sp_list questions; /* open ones */
    uint32_t count;
    bool is_closing; /* no new questions */
    /* By key (environment, protocol, host, port); NULL: none yet. */
    struct sp_cache *denied, *approved;
    struct sp_cache *noted; /* decisions that are in the log already */
};

/* One question, and all requests that wait for its answer. */
struct sp_network_question {
    struct sp_list link;
    struct sp_asking asking;
    struct sp_approvals *approvals;
    struct sp_network_command *command;
    struct sp_network_request *waiting; /* oldest first */
    bool is_ending;                     /* it left the list, and its requests are being told */
    struct sp_hostname host;
    enum sp_network_protocol protocol;
    struct sp_str key;
    struct sp_str argv[2];
    struct sp_arena arena; /* storage of its texts */
};

/* A question in the list, not yet asked; the request does not wait for it yet. NULL: no memory. */
struct sp_network_question *sp_network_question_new(const struct sp_network_request *r,
                                                    struct sp_str url, struct sp_str key,
                                                    struct sp_str turn_id);

/* The end of a question, for all requests that wait. */
struct sp_network_ending {
    enum sp_network_state state;
    enum sp_network_reason reason;
    struct sp_str text;
    bool is_cancelled, is_interrupted; /* see struct sp_network_outcome */
};
/* Another turn asks the same question: requests that wait for this one are denied, and the command
 * goes on. */
void sp_network_question_replace(struct sp_network_question *q);

/* Denies a request. The text is copied; without memory a short one is used. */
void sp_network_deny(struct sp_network_request *r, enum sp_network_reason reason,
                     struct sp_str text);

/* What rules and earlier decisions say of a host. Neither: a question is needed. */
struct sp_network_standing {
    bool is_denied, is_allowed;
    enum sp_decider by;
};
struct sp_network_standing sp_network_standing(const struct sp_approvals *a,
                                               const struct sp_hostname *host, struct sp_str key);
/* Stores a decision for the rest of the conversation. Out of memory is a warning. */
void sp_network_remember(struct sp_approvals *a, struct sp_str key, bool allows);
/* The host of this question, at any port. */
void sp_network_remember_denied(const struct sp_network_question *q);
/* Adds a rule to the set and to its file. Failures are warnings. */
void sp_network_amend(const struct sp_network_question *q, bool allows);

/* Texts. false: no memory. */
const char *sp_network_wire(enum sp_network_protocol p);
bool sp_network_add_blocked(struct sp_buf *out, struct sp_str url);
bool sp_network_add_disconnected(struct sp_buf *out, uint64_t ms);
bool sp_network_add_mismatch(struct sp_buf *out, struct sp_str named, struct sp_str asked);

struct sp_network_note {
    const struct sp_network_command *command;
    struct sp_str url;
    const char *requirement, *decision;
    enum sp_decider by;
    bool is_asked; /* else it is logged once per command */
};
/* Appends to the audit log. false: the log is mandatory and cannot be written; e says why. */
bool sp_network_audit(struct sp_approvals *a, const struct sp_network_note *n, struct sp_err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network_priv: what the files of network share.
 */
#ifndef SP_APPROVE_NETWORK_PRIV_H
#define SP_APPROVE_NETWORK_PRIV_H

#include <time.h>

#include "approve/approvals_priv.h"
#include "approve/network.h"
#include "base/arena.h"

#define SP_NETWORK_NO_HOST "Network access was blocked by policy."
#define SP_NETWORK_BY_USER "rejected by user"

static inline struct sp_str sp_network_view(const struct sp_buf *b)
{
    return (struct sp_str){b->len == 0 ? "" : b->data, b->len};
}

static inline uint64_t sp_network_clock_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* What one conversation knows about hosts. */
struct sp_network {
    struct sp_network_question *first; /* that are open */
    uint32_t count;
    bool is_closing; /* nothing is asked any more */
    /* By key (environment, protocol, host, port); NULL: none yet. */
    struct sp_cache *denied, *approved;
    struct sp_cache *noted; /* what the log has already of a command */
};

/* One question, and all requests that wait for its answer. */
struct sp_network_question {
    struct sp_network_question *prev, *next;
    struct sp_asking asking;
    struct sp_approvals *approvals;
    struct sp_network_command *command;
    struct sp_network_request *waiting; /* the oldest first */
    bool is_ending;                     /* it is no longer in the list: who waits is being told */
    struct sp_network_host host;
    enum sp_network_protocol protocol;
    struct sp_str key;
    struct sp_str argv[2];
    struct sp_arena arena; /* of all its texts */
};

/* In the list, but not yet asked; the request does not wait for it yet. NULL: no memory. */
struct sp_network_question *sp_network_question_new(const struct sp_network_request *r,
                                                    struct sp_str url, struct sp_str key,
                                                    struct sp_str turn_id);

/* How it ends: all that wait get this. */
struct sp_network_ending {
    enum sp_network_state state;
    enum sp_network_reason reason;
    struct sp_str text;
    bool is_cancelled, is_interrupted; /* see struct sp_network_outcome */
};
/* It is gone after. Callbacks. */
void sp_network_finish(struct sp_network_question *q, const struct sp_network_ending *end);
/* The answer's line in the log; as sp_network_audit. */
bool sp_network_note_answer(const struct sp_network_question *q, const char *decision,
                            enum sp_decider by, struct sp_err *e);
/* network_answer.c */
void sp_network_on_told(struct sp_asking *asking, const struct sp_decision *d);
/* Another turn has the same question: who waits is denied, and the command goes on. */
void sp_network_question_replace(struct sp_network_question *q);

/* Where a request ends up. The text is copied; without memory it is a short one. */
void sp_network_deny(struct sp_network_request *r, enum sp_network_reason reason,
                     struct sp_str text);

/* What is known of a host without a question. Neither: it may be asked for. */
struct sp_network_standing {
    bool is_denied, is_allowed;
    enum sp_decider by;
};
struct sp_network_standing sp_network_standing(const struct sp_approvals *a,
                                               const struct sp_network_host *host,
                                               struct sp_str key);
/* For the rest of the conversation. Without memory it is a warning. */
void sp_network_remember(struct sp_approvals *a, struct sp_str key, bool allows);
/* The host of this question, at any port. */
void sp_network_remember_denied(const struct sp_network_question *q);
/* For good: in the rules, and in their file. Failures are warnings. */
void sp_network_amend(const struct sp_network_question *q, bool allows);

/* network_text.c; false: no memory */
const char *sp_network_wire(enum sp_network_protocol p);
bool sp_network_add_url(struct sp_buf *out, enum sp_network_protocol p, struct sp_str host,
                        uint16_t port);
bool sp_network_add_key(struct sp_buf *out, struct sp_str environment, enum sp_network_protocol p,
                        struct sp_str host, uint16_t port);
bool sp_network_add_blocked(struct sp_buf *out, struct sp_str url); /* ... by policy. */
bool sp_network_add_crowded(struct sp_buf *out, struct sp_str url); /* ... by too many others */
bool sp_network_add_disconnected(struct sp_buf *out, uint64_t ms);
bool sp_network_add_mismatch(struct sp_buf *out, struct sp_str named, struct sp_str asked);

/* network_audit.c */
struct sp_network_note {
    const struct sp_network_command *command;
    struct sp_str url;
    const char *requirement, *decision;
    enum sp_decider by;
    bool is_asked; /* otherwise the log has it once for a command */
};
/* One line of the log. false: it must be written and cannot; e says why. */
bool sp_network_audit(struct sp_approvals *a, const struct sp_network_note *n, struct sp_err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_priv: what the files of the protocol share.
 *
 *   peer.c         a message comes in: which era, which method; requests that are open
 *   peer_say.c     envelopes of what goes out
 *   peer_legacy.c  initialize and ping; peer_batch.c: arrays of messages
 *   peer_modern.c  what every modern request needs; discover; peer_listen.c: subscriptions
 *   call.c         tools/call until its answer; call_ask.c: its questions
 *   task*.c        calls that were answered with a task
 */
#ifndef SP_MCP_PEER_PRIV_H
#define SP_MCP_PEER_PRIV_H

#include "mcp/mcp_log.h"
#include "mcp/mcp_run.h"
#include "mcp/parking.h"
#include "mcp/peer.h"
#include "mcp/task.h"

#define SP_MCP_OK_STATUS  200U
#define SP_MCP_BAD_STATUS 400U
#define SP_MCP_NO_STATUS  404U

#define SP_MCP_PARSE_ERROR      (-32700)
#define SP_MCP_INVALID_REQUEST  (-32600)
#define SP_MCP_NO_METHOD        (-32601)
#define SP_MCP_INVALID_PARAMS   (-32602)
#define SP_MCP_INTERNAL         (-32603)
#define SP_MCP_HEADER_MISMATCH  (-32020)
#define SP_MCP_NEEDS_CAPABILITY (-32021)
#define SP_MCP_NO_VERSION       (-32022)

#define SP_MCP_TASKS_EXTENSION "io.modelcontextprotocol/tasks"
#define SP_MCP_BATCH_MAX       SP_MCP_OPEN_MAX /* messages; an array with more is refused */
#define SP_MCP_ASKED_MAX       256             /* questions that one peer has not answered */

/* What a revision of the protocol knows of. */
struct sp_mcp_revision {
    const char *name;
    bool is_modern;
    bool has_batches;
    bool has_annotations;      /* and a message in progress */
    bool has_structured;       /* content, and schemas of it */
    bool has_elicitation;      /* as a request of ours */
    bool has_elicitation_mode; /* said with it */
};
extern const struct sp_mcp_revision sp_mcp_modern;
/* NULL: no legacy revision has that name. */
const struct sp_mcp_revision *sp_mcp_legacy_of(struct sp_str name);

/* ---- what goes out ---- */

/* Whom an answer is for. */
struct sp_mcp_to {
    struct sp_mcp_out *out; /* NULL: nobody hears it */
    struct sp_str id;       /* as it was written; n 0: null */
    const struct sp_mcp_revision *revision;
    bool is_subscription; /* its id stands in the result, too */
};

/* members: of the result, `"a":1,"b":2` or nothing; type: resultType, where there is one. */
void sp_mcp_say_result(const struct sp_mcp_to *to, const char *type, struct sp_str members);
/* data: a JSON value, or n 0. */
SP_PRINTF(5, 6)
void sp_mcp_say_error(const struct sp_mcp_to *to, unsigned status, int code, struct sp_str data,
                      const char *fmt, ...);
void sp_mcp_say_no_memory(const struct sp_mcp_to *to);
/* A result of a tool that is only this text. */
SP_PRINTF(2, 3) void sp_mcp_say_failed(const struct sp_mcp_to *to, const char *fmt, ...);
/* A message that is no answer: method and params, an object. false: nothing was said. */
bool sp_mcp_say_notice(struct sp_mcp_out *out, const char *method, struct sp_str params);
/* The members of a tool's result. */
bool sp_mcp_add_result(struct sp_buf *b, const struct sp_mcp_revision *v,
                       const struct sp_mcp_result *r);
bool sp_mcp_add_versions(struct sp_buf *b);    /* all that we speak, as an array */
bool sp_mcp_add_server_info(struct sp_buf *b); /* {name, version} */

/* ---- requests that are open ---- */

struct sp_mcp_request {
    struct sp_mcp_peer *peer;
    struct sp_mcp_request *prev, *next;
    struct sp_mcp_out *out; /* NULL: gone */
    const struct sp_mcp_revision *revision;
    bool is_subscription;
    enum sp_mcp_log_level log_level; /* modern: what it wants to hear while it is open */
    /* Ends the wait, says nothing, and frees the request. */
    void (*drop)(struct sp_mcp_request *r);
    void (*cancel)(struct sp_mcp_request *r);  /* the same because the client said so; NULL: drop */
    void (*unheard)(struct sp_mcp_request *r); /* legacy: its out is gone */
    uint32_t id_len;
    char id[SP_MCP_ID_MAX];
};

struct sp_mcp_asked;
struct sp_mcp_batch;

struct sp_mcp_peer {
    struct sp_mcp *mcp;
    struct sp_mcp_caller *caller;
    struct sp_mcp_peer *prev, *next; /* of the same caller */
    struct sp_mcp_out *out;          /* for what belongs to no request; NULL: there is none */
    struct sp_mcp_request *open;
    uint32_t open_count;
    /* Of the legacy era */
    const struct sp_mcp_revision *legacy; /* that was agreed on; NULL: not yet */
    bool is_initialized;                  /* the client said so */
    bool elicits;                         /* it shows forms */
    enum sp_mcp_log_level log_level;      /* what logging/setLevel asked for */
    bool repeats_output;                  /* host.h, for its name */
    struct sp_mcp_asked *asked;           /* newest first */
    uint32_t asked_count;
    uint64_t next_asked;
    struct sp_mcp_batch *batches;
};

/* A request as it came in. */
struct sp_mcp_turn {
    struct sp_mcp_peer *peer;
    struct sp_mcp_message *message;
    struct sp_mcp_to to;
};

/* A request that is answered later: of this size, its first member. NULL: it was answered, with why
 * not. */
void *sp_mcp_request_open(const struct sp_mcp_turn *t, size_t size,
                          void (*drop)(struct sp_mcp_request *r));
/* Taken out, and the memory freed: nothing is said. */
void sp_mcp_request_close(struct sp_mcp_request *r);
struct sp_mcp_to sp_mcp_request_to(const struct sp_mcp_request *r);
struct sp_loop *sp_mcp_peer_loop(const struct sp_mcp_peer *p);

/* ---- methods ---- */

void sp_mcp_take_modern(const struct sp_mcp_turn *t, const struct sp_mcp_headers *headers);
void sp_mcp_take_legacy(const struct sp_mcp_turn *t);
bool sp_mcp_take_batch(struct sp_mcp_peer *p, struct sp_mcp_out *out, struct sp_mcp_message *m);
void sp_mcp_batch_out_gone(struct sp_mcp_peer *p, struct sp_mcp_out *out);
void sp_mcp_batches_free(struct sp_mcp_peer *p);

void sp_mcp_list_tools(const struct sp_mcp_turn *t);
void sp_mcp_call(const struct sp_mcp_turn *t);
void sp_mcp_listen(const struct sp_mcp_turn *t);
void sp_mcp_task_get(const struct sp_mcp_turn *t);
void sp_mcp_task_update(const struct sp_mcp_turn *t);
void sp_mcp_task_cancel(const struct sp_mcp_turn *t);

/* ---- what a client can do ---- */

/* Whether these capabilities (a token, or SP_JSON_NONE) have forms, and tasks. */
bool sp_mcp_can_elicit(struct sp_json *j, uint32_t capabilities);
/* `,"instructions":...` for a client that shows forms or not; nothing where there are none. */
bool sp_mcp_add_instructions(struct sp_buf *b, const struct sp_mcp_options *o, bool elicits);
bool sp_mcp_can_task(struct sp_json *j, uint32_t capabilities);
/* Whether this request may speak of tasks. false: it has been refused. */
bool sp_mcp_need_tasks(const struct sp_mcp_turn *t);

/* ---- questions to a legacy client ---- */

/* A response; one to nothing that was asked is ignored. */
void sp_mcp_take_response(struct sp_mcp_peer *p, struct sp_mcp_message *m);
void sp_mcp_asked_free(struct sp_mcp_peer *p);

#endif

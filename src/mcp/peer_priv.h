/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_priv: shared by the files of the protocol.
 *
 *   peer.c         messages in: the era, the method, batches; initialize, discover, tools/list;
 *                  open requests
 *   mcp_message.c  one message: its kind and members; the envelopes of answers
 *   mcp_call.c     tools/call until its answer, with its questions
 *   task.c         calls that were answered with a task, and subscriptions to them
 */
#ifndef SP_MCP_PEER_PRIV_H
#define SP_MCP_PEER_PRIV_H

#include "mcp/mcp_run.h"
#include "mcp/peer.h"
#include "mcp/task.h"

#define SP_MCP_OK_STATUS  200U
#define SP_MCP_BAD_STATUS 400U
#define SP_MCP_NO_STATUS  404U

#define SP_MCP_INVALID_REQUEST  (-32600)
#define SP_MCP_NO_METHOD        (-32601)
#define SP_MCP_INVALID_PARAMS   (-32602)
#define SP_MCP_INTERNAL         (-32603)
#define SP_MCP_HEADER_MISMATCH  (-32020)
#define SP_MCP_NEEDS_CAPABILITY (-32021)
#define SP_MCP_NO_VERSION       (-32022)

#define SP_MCP_SERVER_INFO      "{\"name\":\"" SP_MCP_NAME "\",\"version\":\"" SP_VERSION "\"}"
#define SP_MCP_TASKS_EXTENSION  "io.modelcontextprotocol/tasks"
#define SP_MCP_ELICITATIONS_MAX 256 /* unanswered elicitations of one peer */

/* What a revision of the protocol supports. */
struct sp_mcp_revision {
    const char *name;
    bool is_modern;
    bool has_batches;
    bool has_annotations;      /* of tools; and a message in progress notifications */
    bool has_structured;       /* structuredContent and output schemas */
    bool has_elicitation;      /* as a request to the client */
    bool has_elicitation_mode; /* with "mode":"form" */
};
extern const struct sp_mcp_revision sp_mcp_modern;

/* ---- peers and open requests ---- */

enum sp_mcp_log_level {
    SP_MCP_LOG_NONE, /* no log messages wanted */
    SP_MCP_LOG_DEBUG,
    SP_MCP_LOG_INFO,
    SP_MCP_LOG_MORE, /* notice and above, which this server never sends */
};

/* The addressee of an answer. */
struct sp_mcp_to {
    struct sp_mcp_out *out; /* NULL: the answer is dropped */
    struct sp_str id;       /* as the client wrote it; n 0: null */
    const struct sp_mcp_revision *revision;
    bool is_subscription; /* the result repeats the id */
    struct sp_str data;   /* of an error: a JSON value; n 0: none */
};

struct sp_mcp_request {
    struct sp_mcp_peer *peer;
    struct sp_list link;    /* in peer->open */
    struct sp_mcp_out *out; /* NULL: gone */
    const struct sp_mcp_revision *revision;
    bool is_subscription;
    enum sp_mcp_log_level log_level; /* modern: log messages wanted while it is open */
    /* Ends the wait without an answer and frees the request. */
    void (*drop)(struct sp_mcp_request *r);
    void (*cancel)(struct sp_mcp_request *r);  /* the same at the client's wish; NULL: drop */
    void (*unheard)(struct sp_mcp_request *r); /* legacy: its `out` is gone; NULL: ignored */
    uint32_t id_len;
    char id[SP_MCP_ID_MAX];
};

struct sp_mcp_peer {
    struct sp_mcp *mcp;
    struct sp_mcp_caller *caller;
    struct sp_list link;    /* in caller->peers */
    struct sp_mcp_out *out; /* for messages that belong to no request; NULL: none */
    struct sp_list open;    /* struct sp_mcp_request, newest first */
    uint32_t open_count;
    /* legacy */
    const struct sp_mcp_revision *legacy; /* that `initialize` agreed on; NULL: not yet */
    bool is_initialized;                  /* the client confirmed */
    bool elicits;                         /* the client shows forms */
    enum sp_mcp_log_level log_level;      /* set by logging/setLevel */
    bool repeats_output;                  /* sp_mcp_host_repeats_output of the client's name */
    struct sp_list elicitations;          /* unanswered elicitations (mcp_call.c) */
    uint32_t elicitation_count;
    uint64_t last_elicitation;
    struct sp_list batches;
};

/* A request that has just come in. */
struct sp_mcp_incoming {
    struct sp_mcp_peer *peer;
    struct sp_mcp_message *message;
    struct sp_mcp_to to;
};

/* Opens a request that is answered later: an object of `size` bytes with the request as its first
 * member. NULL: an error has been sent. */
void *sp_mcp_request_open(const struct sp_mcp_incoming *t, size_t size,
                          void (*drop)(struct sp_mcp_request *r));
void sp_mcp_request_close(struct sp_mcp_request *r); /* frees it; sends nothing */
/* The address of its answer, which stays valid after the request is closed; `id` is room for its
 * id. */
struct sp_mcp_to sp_mcp_request_to(const struct sp_mcp_request *r, char id[SP_MCP_ID_MAX]);

/* Whether the client's capabilities (a token, or SP_JSON_NONE) include forms, or tasks. */
bool sp_mcp_can_elicit(struct sp_json *j, uint32_t capabilities);
bool sp_mcp_can_task(struct sp_json *j, uint32_t capabilities);
/*
 * Whether the structured result repeats the output that the text has, by the name that the host
 * gives itself. The name is not trusted and decides nothing else. Unknown hosts get both: a host
 * that shows its model only the structured form would lose the output, one that shows both pays
 * twice, within the budget each time.
 */
bool sp_mcp_host_repeats_output(enum sp_mcp_structured_output when, struct sp_str name);

/* ---- methods ---- */

void sp_mcp_call(const struct sp_mcp_incoming *t); /* tools/call */

/* A method of the modern era. Tables end with a name of NULL. */
struct sp_mcp_method {
    const char *name;
    void (*take)(const struct sp_mcp_incoming *t);
    bool has_name; /* the header Mcp-Name repeats a parameter */
};
extern const struct sp_mcp_method sp_mcp_task_methods[]; /* with subscriptions/listen */

/* A client's response to an elicitation; one that matches none is ignored. */
void sp_mcp_take_response(struct sp_mcp_peer *p, struct sp_mcp_message *m);

/* ---- messages out ---- */

/* members: of the result object, `"a":1,"b":2` or empty. type: resultType, in the modern era. */
void sp_mcp_say_result(const struct sp_mcp_to *to, const char *type, struct sp_str members);
SP_PRINTF(4, 5)
void sp_mcp_say_error(const struct sp_mcp_to *to, unsigned status, int code, const char *fmt, ...);
#define sp_mcp_say_invalid(to, ...) /* the usual error */ \
    sp_mcp_say_error(to, SP_MCP_OK_STATUS, SP_MCP_INVALID_PARAMS, __VA_ARGS__)
void sp_mcp_say_no_memory(const struct sp_mcp_to *to);
/* A notification; params is an object. false: nothing was sent. */
bool sp_mcp_say_notice(struct sp_mcp_out *out, const char *method, struct sp_str params);
/* The members of a tool's result. */
bool sp_mcp_add_result(struct sp_buf *b, const struct sp_mcp_revision *v,
                       const struct sp_mcp_result *r);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_message: one JSON-RPC message of MCP: its kind, and the members that both eras need.
 */
#ifndef SP_MCP_MCP_MESSAGE_H
#define SP_MCP_MCP_MESSAGE_H

#include "base/json.h"

#define SP_MCP_ID_MAX 256 /* bytes of an id; longer ones are refused */

enum sp_mcp_kind {
    SP_MCP_BROKEN, /* answered with `code` and `why` */
    SP_MCP_REQUEST,
    SP_MCP_NOTIFICATION,
    SP_MCP_RESPONSE,
    SP_MCP_BATCH, /* an array, the root token */
};

struct sp_mcp_message {
    struct sp_json json;
    enum sp_mcp_kind kind;
    uint32_t root; /* token of its object: 0, or an element of a batch */
    int code;      /* BROKEN: -32700, -32600 */
    struct sp_err why;
    struct sp_str id; /* the raw JSON; n 0: missing or invalid */
    struct sp_str method;
    uint32_t params, result, error; /* tokens; SP_JSON_NONE: missing */
    /* params._meta, of requests and notifications */
    bool is_modern;          /* a protocol version is given */
    struct sp_str version;   /* p NULL: missing, or no string */
    uint32_t capabilities;   /* an object, or SP_JSON_NONE */
    struct sp_str log_level; /* n 0: none */
    struct sp_str client;    /* clientInfo.name; n 0: none */
    struct sp_str progress;  /* the progress token, raw JSON; n 0: none */
    struct sp_str name;      /* params.name, params.uri or params.taskId; n 0: none */
    struct sp_str arguments; /* params.arguments, raw JSON; n 0: none */
};

/* Reads text in place; text[len] must be writable, and the text outlive the message. *m is {0} at
 * first and can be reused. Never fails: bad text gives a BROKEN message. */
void sp_mcp_message_read(struct sp_mcp_message *m, char *text, size_t len);
/* Reads one element of a batch. Borrows the tape of `from`. */
void sp_mcp_message_pick(struct sp_mcp_message *m, const struct sp_mcp_message *from,
                         uint32_t token);
void sp_mcp_message_done(struct sp_mcp_message *m);

#endif

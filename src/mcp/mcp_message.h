/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message: one JSON-RPC message of MCP, looked at as far as both eras need.
 */
#ifndef SP_MCP_MCP_MESSAGE_H
#define SP_MCP_MCP_MESSAGE_H

#include "base/json.h"

#define SP_MCP_ID_MAX 256 /* bytes of an id; longer ones are refused */

enum sp_mcp_kind {
    SP_MCP_BROKEN, /* to be answered with code and why */
    SP_MCP_REQUEST,
    SP_MCP_NOTIFICATION,
    SP_MCP_RESPONSE,
    SP_MCP_BATCH, /* an array: the root token */
};

struct sp_mcp_message {
    struct sp_json json;
    enum sp_mcp_kind kind;
    uint32_t root; /* its object: 0, or a member of a batch */
    int code;      /* BROKEN: -32700, -32600 */
    struct sp_err why;
    struct sp_str id; /* as it was written; n 0: none, or none that could be read */
    struct sp_str method;
    uint32_t params, result, error; /* SP_JSON_NONE: not there */
    /* params._meta, of requests and notifications */
    bool is_modern;          /* it names a protocol version */
    struct sp_str version;   /* if it is a string */
    uint32_t capabilities;   /* an object, or SP_JSON_NONE */
    struct sp_str log_level; /* n 0: none */
    struct sp_str client;    /* clientInfo.name; n 0: none */
    struct sp_str progress;  /* the progress token as it was written; n 0: none */
    struct sp_str name;      /* params.name, params.uri or params.taskId; n 0: none */
    struct sp_str arguments; /* params.arguments as it was written; n 0: none */
};

/* Reads text (text[len] may be written) in place; it must outlive the message. *m is {0} at first
 * and may be used again. Never fails: what is wrong is a BROKEN message. */
void sp_mcp_message_read(struct sp_mcp_message *m, char *text, size_t len);
/* One element of a batch, in the json of `from`. Its tape is borrowed. */
void sp_mcp_message_pick(struct sp_mcp_message *m, const struct sp_mcp_message *from,
                         uint32_t token);
void sp_mcp_message_done(struct sp_mcp_message *m);

#endif

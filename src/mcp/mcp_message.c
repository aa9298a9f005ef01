/* SPDX-License-Identifier: Apache-2.0 */
/* mcp_message: finds the kind of a message and its common members. No I/O. */
#include "mcp/mcp_message.h"

#define VERSION_KEY      "io.modelcontextprotocol/protocolVersion"
#define LOG_KEY          "io.modelcontextprotocol/logLevel"
#define CLIENT_KEY       "io.modelcontextprotocol/clientInfo"
#define CAPABILITIES_KEY "io.modelcontextprotocol/clientCapabilities"

static void clear_message(struct sp_mcp_message *m, uint32_t root)
{
    *m = (struct sp_mcp_message){.json = m->json,
                                 .root = root,
                                 .params = SP_JSON_NONE,
                                 .result = SP_JSON_NONE,
                                 .error = SP_JSON_NONE,
                                 .capabilities = SP_JSON_NONE};
}

static void mark_broken(struct sp_mcp_message *m, int code, const char *why)
{
    m->kind = SP_MCP_BROKEN;
    m->code = code;
    (void)sp_fail(&m->why, SP_E_MALFORMED, 0, "%s", why);
}

/* The raw JSON of a string or an integer; n 0: neither, or longer than SP_MCP_ID_MAX. */
static struct sp_str read_id(const struct sp_json *j, uint32_t token)
{
    const enum sp_json_type type = sp_json_type(j, token);

    if (type != SP_JSON_STRING && type != SP_JSON_INT && type != SP_JSON_UINT)
        return (struct sp_str){0};
    const struct sp_str raw = sp_json_raw(j, token);
    return raw.n <= SP_MCP_ID_MAX ? raw : (struct sp_str){0};
}

static bool is_type(const struct sp_json *j, uint32_t token, enum sp_json_type type)
{
    return token != SP_JSON_NONE && sp_json_type(j, token) == type;
}

static struct sp_str member_str(struct sp_json *j, uint32_t object, const char *key)
{
    const uint32_t t = sp_json_get(j, object, key);

    return is_type(j, t, SP_JSON_STRING) ? sp_json_str(j, t) : (struct sp_str){0};
}

static void read_meta(struct sp_mcp_message *m)
{
    struct sp_json *j = &m->json;
    const uint32_t meta = sp_json_get(j, m->params, "_meta");

    if (!is_type(j, meta, SP_JSON_OBJECT))
        return;
    m->is_modern = sp_json_get(j, meta, VERSION_KEY) != SP_JSON_NONE;
    m->version = member_str(j, meta, VERSION_KEY);
    const uint32_t capabilities = sp_json_get(j, meta, CAPABILITIES_KEY);
    if (is_type(j, capabilities, SP_JSON_OBJECT))
        m->capabilities = capabilities;
    m->log_level = member_str(j, meta, LOG_KEY);
    const uint32_t client = sp_json_get(j, meta, CLIENT_KEY);
    if (is_type(j, client, SP_JSON_OBJECT))
        m->client = member_str(j, client, "name");
    const uint32_t progress = sp_json_get(j, meta, "progressToken");
    if (progress != SP_JSON_NONE)
        m->progress = read_id(j, progress);
}

static void read_params(struct sp_mcp_message *m)
{
    struct sp_json *j = &m->json;
    const uint32_t params = sp_json_get(j, m->root, "params");

    if (params == SP_JSON_NONE || sp_json_type(j, params) == SP_JSON_NULL)
        return;
    if (sp_json_type(j, params) != SP_JSON_OBJECT) {
        mark_broken(m, -32600, "params is not an object");
        return;
    }
    m->params = params;
    const uint32_t arguments = sp_json_get(j, params, "arguments");
    if (arguments != SP_JSON_NONE)
        m->arguments = sp_json_raw(j, arguments);
    const bool is_task = m->method.n > 6 && memcmp(m->method.p, "tasks/", 6) == 0;
    m->name = member_str(j, params, is_task ? "taskId" : "name");
    if (m->name.n == 0 && !is_task)
        m->name = member_str(j, params, "uri");
    read_meta(m);
}

static void read_value(struct sp_mcp_message *m)
{
    struct sp_json *j = &m->json;

    if (sp_json_type(j, m->root) != SP_JSON_OBJECT) {
        mark_broken(m, -32600, "the message is not an object");
        return;
    }
    const uint32_t id = sp_json_get(j, m->root, "id");
    const uint32_t method = sp_json_get(j, m->root, "method");
    if (id != SP_JSON_NONE)
        m->id = read_id(j, id);
    m->result = sp_json_get(j, m->root, "result");
    m->error = sp_json_get(j, m->root, "error");
    if (!sp_str_eq(member_str(j, m->root, "jsonrpc"), SP_STR("2.0"))) {
        mark_broken(m, -32600, "jsonrpc is not \"2.0\"");
    } else if (method != SP_JSON_NONE && sp_json_type(j, method) != SP_JSON_STRING) {
        mark_broken(m, -32600, "method is not a string");
    } else if (method != SP_JSON_NONE && id != SP_JSON_NONE && m->id.n == 0) {
        mark_broken(m, -32600, "the id is not a string or an integer of at most 256 bytes");
    } else if (method != SP_JSON_NONE) {
        m->method = sp_json_str(j, method);
        m->kind = id != SP_JSON_NONE ? SP_MCP_REQUEST : SP_MCP_NOTIFICATION;
        read_params(m);
    } else if (m->result != SP_JSON_NONE || m->error != SP_JSON_NONE) {
        m->kind = SP_MCP_RESPONSE;
    } else {
        mark_broken(m, -32600, "the message has no method, no result and no error");
    }
}

void sp_mcp_message_read(struct sp_mcp_message *m, char *text, size_t len)
{
    struct sp_err e = {0};

    clear_message(m, 0);
    if (sp_json_parse(&m->json, text, len, &e) < 0) {
        mark_broken(m, e.code == SP_E_SYSTEM ? -32603 : -32700, e.msg);
        return;
    }
    if (sp_json_type(&m->json, 0) != SP_JSON_ARRAY)
        read_value(m);
    else if (m->json.tokens[0].children == 0)
        mark_broken(m, -32600, "the batch is empty");
    else
        m->kind = SP_MCP_BATCH;
}

void sp_mcp_message_pick(struct sp_mcp_message *m, const struct sp_mcp_message *from,
                         uint32_t token)
{
    m->json = from->json;
    clear_message(m, token);
    read_value(m);
}

void sp_mcp_message_done(struct sp_mcp_message *m)
{
    if (m->root == 0) /* else the tape belongs to the batch */
        sp_json_done(&m->json);
    *m = (struct sp_mcp_message){0};
}

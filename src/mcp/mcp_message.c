/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_message: messages in: their kind and common members. Messages out: the envelopes of answers
 * and notifications. Every answer leaves through sp_mcp_say_result or sp_mcp_say_error; out of
 * memory it is an error that needs no allocation.
 */
#include "mcp/mcp_message.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/auto.h"
#include "mcp/peer_priv.h"

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
    const uint32_t meta = sp_json_get(j, params, "_meta");
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

/* ---- the client ---- */

static uint32_t object_in(struct sp_json *j, uint32_t object, const char *key)
{
    if (object == SP_JSON_NONE || sp_json_type(j, object) != SP_JSON_OBJECT)
        return SP_JSON_NONE;
    const uint32_t t = sp_json_get(j, object, key);
    return t != SP_JSON_NONE && sp_json_type(j, t) == SP_JSON_OBJECT ? t : SP_JSON_NONE;
}

bool sp_mcp_can_elicit(struct sp_json *j, uint32_t capabilities)
{
    const uint32_t elicitation = object_in(j, capabilities, "elicitation");

    if (elicitation == SP_JSON_NONE)
        return false;
    /* {} means forms; an object that names only other modes does not. */
    return object_in(j, elicitation, "form") != SP_JSON_NONE ||
           object_in(j, elicitation, "url") == SP_JSON_NONE;
}

bool sp_mcp_can_task(struct sp_json *j, uint32_t capabilities)
{
    const uint32_t extensions = object_in(j, capabilities, "extensions");

    return object_in(j, extensions, SP_MCP_TASKS_EXTENSION) != SP_JSON_NONE;
}

bool sp_mcp_host_repeats_output(enum sp_mcp_structured_output when, struct sp_str name)
{
    /* Prefixes of clientInfo.name, taken from the hosts' releases. These hosts show their models
     * the text, or both forms. Claude Code and Codex, which show the structured form alone, need no
     * entry. */
    static const struct sp_str reads_text[] = {
        SP_STR("gemini-cli"), SP_STR("qwen-"),   SP_STR("opencode"), SP_STR("continue-"),
        SP_STR("cline"),      SP_STR("@cline/"), SP_STR("copilot"),  SP_STR("github-copilot"),
    };

    if (when != SP_MCP_OUTPUT_AUTO)
        return when == SP_MCP_OUTPUT_ALWAYS;
    for (size_t i = 0; i < sizeof reads_text / sizeof reads_text[0]; i++)
        if (name.n >= reads_text[i].n &&
            sp_str_eq_nocase((struct sp_str){name.p, reads_text[i].n}, reads_text[i]))
            return false;
    return true;
}

/* ---- answers ---- */

static struct sp_str id_of(const struct sp_mcp_to *to)
{
    return to->id.n != 0 ? to->id : SP_STR("null");
}

void sp_mcp_say_no_memory(const struct sp_mcp_to *to)
{
    char text[SP_MCP_ID_MAX + 128];
    const struct sp_str id = id_of(to);

    if (to->out == NULL)
        return;
    const int n = snprintf(text, sizeof text,
                           "{\"jsonrpc\":\"2.0\",\"id\":%.*s,\"error\":{\"code\":-32603,"
                           "\"message\":\"there is no memory for this\"}}",
                           (int)id.n, id.p);
    to->out->send(to->out, (struct sp_str){text, (size_t)n}, SP_MCP_OK_STATUS);
}

void sp_mcp_say_result(const struct sp_mcp_to *to, const char *type, struct sp_str members)
{
    auto_buf struct sp_buf b = {0};

    if (to->out == NULL)
        return;
    const bool is_modern = to->revision->is_modern;
    bool ok = sp_buf_add_str(&b, SP_STR("{\"jsonrpc\":\"2.0\",\"id\":")) &&
              sp_buf_add_str(&b, id_of(to)) && sp_buf_add_str(&b, SP_STR(",\"result\":{")) &&
              (!is_modern ||
               sp_buf_printf(&b, "\"resultType\":\"%s\"%s", type, members.n != 0 ? "," : "")) &&
              sp_buf_add_str(&b, members);
    if (is_modern) {
        ok = ok && sp_buf_add_str(&b, SP_STR(",\"_meta\":{"));
        if (to->is_subscription)
            ok = ok && sp_json_add_key(&b, "io.modelcontextprotocol/subscriptionId") &&
                 sp_buf_add_str(&b, id_of(to));
        ok = ok &&
             sp_json_add_value(&b, "io.modelcontextprotocol/serverInfo", "%s}", SP_MCP_SERVER_INFO);
    }
    if (ok && sp_buf_add_str(&b, SP_STR("}}")))
        to->out->send(to->out, sp_buf_str(&b), SP_MCP_OK_STATUS);
    else
        sp_mcp_say_no_memory(to);
}

void sp_mcp_say_error(const struct sp_mcp_to *to, unsigned status, int code, const char *fmt, ...)
{
    auto_buf struct sp_buf b = {0};
    char text[512];
    va_list args;

    if (to->out == NULL)
        return;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args); /* a cut character becomes U+FFFD */
    va_end(args);
    if (sp_buf_add_str(&b, SP_STR("{\"jsonrpc\":\"2.0\",\"id\":")) &&
        sp_buf_add_str(&b, id_of(to)) &&
        sp_buf_printf(&b, ",\"error\":{\"code\":%d,\"message\":", code) &&
        sp_json_add_str(&b, sp_str_of(text)) &&
        (to->data.n == 0 ||
         (sp_buf_add_str(&b, SP_STR(",\"data\":")) && sp_buf_add_str(&b, to->data))) &&
        sp_buf_add_str(&b, SP_STR("}}")))
        to->out->send(to->out, sp_buf_str(&b), status);
    else
        sp_mcp_say_no_memory(to);
}

static bool add_text_block(struct sp_buf *b, struct sp_str text)
{
    return sp_buf_add_str(b, SP_STR("{\"type\":\"text\"")) && sp_json_add_member(b, "text", text) &&
           sp_buf_add(b, "}", 1);
}

bool sp_mcp_add_result(struct sp_buf *b, const struct sp_mcp_revision *v,
                       const struct sp_mcp_result *r)
{
    if (!(sp_buf_add_str(b, SP_STR("\"content\":[")) && add_text_block(b, r->text)) ||
        (r->note.n != 0 && !(sp_buf_add(b, ",", 1) && add_text_block(b, r->note))) ||
        !sp_buf_add(b, "]", 1))
        return false;
    if (v->has_structured && r->structured.n != 0) {
        if (!(sp_buf_add_str(b, SP_STR(",\"structuredContent\":")) &&
              sp_buf_add_str(b, r->structured)))
            return false;
        if (r->note.n != 0) { /* some hosts show models only this form: put the note into it */
            b->len--;         /* the closing brace */
            if (!sp_json_add_member(b, "note", r->note) || !sp_buf_add(b, "}", 1))
                return false;
        }
    }
    return sp_buf_printf(b, ",\"isError\":%s", r->is_error ? "true" : "false");
}

bool sp_mcp_say_notice(struct sp_mcp_out *out, const char *method, struct sp_str params)
{
    auto_buf struct sp_buf b = {0};

    if (out == NULL ||
        !(sp_buf_printf(&b, "{\"jsonrpc\":\"2.0\",\"method\":\"%s\",\"params\":", method) &&
          sp_buf_add_str(&b, params) && sp_buf_add(&b, "}", 1)))
        return false;
    out->send(out, sp_buf_str(&b), 0);
    return true;
}

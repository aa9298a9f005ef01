/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_legacy: the era of `initialize` (mcp-and-acp.md 3): what it agrees on holds for every
 * message of the peer that says nothing else.
 */
#include "mcp/mcp_host.h"
#include "mcp/peer_priv.h"

static bool add_welcome(struct sp_buf *b, const struct sp_mcp_turn *t, bool elicits)
{
    return sp_buf_printf(
               b,
               "\"protocolVersion\":\"%s\",\"capabilities\":{\"tools\":{},\"logging\":{}},"
               "\"serverInfo\":",
               t->to.revision->name) &&
           sp_mcp_add_server_info(b) &&
           sp_mcp_add_instructions(b, sp_mcp_options(t->peer->mcp), elicits);
}

/* n 0: it has none. */
static struct sp_str client_name(struct sp_json *j, uint32_t params)
{
    struct sp_str name = {0};
    uint32_t info = SP_JSON_NONE;
    struct sp_err e = {0};

    if (sp_json_opt_object(j, params, "clientInfo", &info, &e) == 0 && info != SP_JSON_NONE)
        (void)sp_json_opt_str(j, info, "name", &name, &e);
    return name;
}

static void initialize(struct sp_mcp_turn *t)
{
    auto_buf struct sp_buf b = {0};
    struct sp_mcp_peer *p = t->peer;
    struct sp_mcp_message *m = t->message;
    struct sp_json *j = &m->json;
    struct sp_err e = {0};
    struct sp_str version = {0};
    uint32_t capabilities = SP_JSON_NONE;

    if (m->params == SP_JSON_NONE ||
        sp_json_need_str(j, m->params, "protocolVersion", &version, &e) < 0) {
        sp_mcp_say_error(&t->to, SP_MCP_BAD_STATUS, SP_MCP_INVALID_PARAMS, (struct sp_str){0},
                         "initialize needs a protocolVersion, a string");
        return;
    }
    if (sp_json_opt_object(j, m->params, "capabilities", &capabilities, &e) < 0) {
        sp_mcp_say_error(&t->to, SP_MCP_BAD_STATUS, SP_MCP_INVALID_PARAMS, (struct sp_str){0},
                         "capabilities: %s", e.msg);
        return;
    }
    t->to.revision = sp_mcp_legacy_of(version);
    if (t->to.revision == NULL)
        t->to.revision = sp_mcp_legacy_of(SP_STR(SP_MCP_LEGACY_NEWEST));
    const bool elicits = t->to.revision->has_elicitation && sp_mcp_can_elicit(j, capabilities);
    if (!add_welcome(&b, t, elicits)) {
        sp_mcp_say_no_memory(&t->to);
        return;
    }
    p->legacy = t->to.revision;
    p->is_initialized = false;
    p->log_level = SP_MCP_LOG_NONE;
    p->repeats_output = sp_mcp_host_repeats_output(sp_mcp_options(p->mcp)->structured_output,
                                                   client_name(j, m->params));
    p->elicits = elicits;
    sp_mcp_say_result(&t->to, "complete", (struct sp_str){b.data, b.len});
}

static void ping(const struct sp_mcp_turn *t)
{
    struct sp_mcp_to to = t->to;

    to.revision = sp_mcp_legacy_of(SP_STR(SP_MCP_LEGACY_NEWEST)); /* it looks the same in all */
    sp_mcp_say_result(&to, "complete", (struct sp_str){0});
}

static void set_level(const struct sp_mcp_turn *t)
{
    struct sp_mcp_message *m = t->message;
    struct sp_str name = {0};
    struct sp_err e = {0};

    if (m->params != SP_JSON_NONE)
        (void)sp_json_opt_str(&m->json, m->params, "level", &name, &e);
    const enum sp_mcp_log_level level = sp_mcp_log_level_of(name);
    if (level == SP_MCP_LOG_NONE) {
        sp_mcp_say_error(&t->to, SP_MCP_OK_STATUS, SP_MCP_INVALID_PARAMS, (struct sp_str){0},
                         "level is one of debug, info, notice, warning, error, critical, alert and "
                         "emergency");
        return;
    }
    t->peer->log_level = level;
    sp_mcp_say_result(&t->to, "complete", (struct sp_str){0});
}

void sp_mcp_take_legacy(const struct sp_mcp_turn *t)
{
    const struct sp_str method = t->message->method;
    struct sp_mcp_turn own = *t;

    if (sp_str_eq(method, SP_STR("initialize")))
        initialize(&own);
    else if (sp_str_eq(method, SP_STR("ping")))
        ping(t);
    else if (t->to.revision == NULL || t->to.revision->is_modern)
        sp_mcp_say_error(&t->to, SP_MCP_BAD_STATUS, SP_MCP_INVALID_PARAMS, (struct sp_str){0},
                         "params._meta has no io.modelcontextprotocol/protocolVersion, and "
                         "initialize has not been called");
    else if (sp_str_eq(method, SP_STR("tools/list")))
        sp_mcp_list_tools(t);
    else if (sp_str_eq(method, SP_STR("logging/setLevel")))
        set_level(t);
    else if (sp_str_eq(method, SP_STR("tools/call")))
        sp_mcp_call(t);
    else
        sp_mcp_say_error(&t->to, SP_MCP_OK_STATUS, SP_MCP_NO_METHOD, (struct sp_str){0},
                         "unknown method: " SP_STR_FMT, SP_STR_ARG(method));
}

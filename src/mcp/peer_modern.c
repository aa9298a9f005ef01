/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_modern: requests that say themselves what they need (mcp-and-acp.md 2). What one says is
 * forgotten with its answer.
 */
#include "mcp/peer_priv.h"

#define SHOWN_VERSION 64 /* bytes of a version that we do not know */

static void discover(const struct sp_mcp_turn *t);

static const struct method {
    const char *name;
    void (*take)(const struct sp_mcp_turn *t);
    bool has_name; /* that Mcp-Name repeats */
} methods[] = {
    {"server/discover", discover, false},       {"tools/list", sp_mcp_list_tools, false},
    {"tools/call", sp_mcp_call, true},          {"subscriptions/listen", sp_mcp_listen, false},
    {"tasks/get", sp_mcp_task_get, true},       {"tasks/update", sp_mcp_task_update, true},
    {"tasks/cancel", sp_mcp_task_cancel, true},
};

static const struct method *find(struct sp_str name)
{
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
        if (sp_str_eq(name, sp_str_of(methods[i].name)))
            return &methods[i];
    return NULL;
}

/* ---- headers repeat the body, for those who only see them ---- */

/* NULL: they agree. */
static const char *mismatch(const struct sp_mcp_headers *h, const struct sp_mcp_message *m,
                            const struct method *method)
{
    if (h->version.n == 0)
        return "the header MCP-Protocol-Version is missing";
    if (m->version.p != NULL && !sp_str_eq(h->version, m->version))
        return "the header MCP-Protocol-Version is unlike the version in params._meta";
    if (h->method.n == 0)
        return "the header Mcp-Method is missing";
    if (!sp_str_eq(h->method, m->method))
        return "the header Mcp-Method is unlike the method";
    if (method == NULL || !method->has_name)
        return NULL;
    if (h->is_name_broken)
        return "the header Mcp-Name cannot be decoded";
    if (h->name.n == 0)
        return m->name.n != 0 ? "the header Mcp-Name is missing" : NULL;
    return sp_str_eq(h->name, m->name) ? NULL : "the header Mcp-Name is unlike the params";
}

/* ---- what every request has ---- */

static void refuse_version(const struct sp_mcp_turn *t)
{
    auto_buf struct sp_buf data = {0};
    struct sp_str asked = t->message->version;

    if (asked.n > SHOWN_VERSION)
        asked.n = SHOWN_VERSION;
    if (sp_buf_add_str(&data, SP_STR("{\"supported\":")) && sp_mcp_add_versions(&data) &&
        sp_buf_add_str(&data, SP_STR(",\"requested\":")) && sp_json_add_str(&data, asked) &&
        sp_buf_add(&data, "}", 1))
        sp_mcp_say_error(&t->to, SP_MCP_BAD_STATUS, SP_MCP_NO_VERSION,
                         (struct sp_str){data.data, data.len}, "unsupported protocol version");
    else
        sp_mcp_say_no_memory(&t->to);
}

static void refuse_meta(const struct sp_mcp_turn *t, const char *why)
{
    sp_mcp_say_error(&t->to, SP_MCP_BAD_STATUS, SP_MCP_INVALID_PARAMS, (struct sp_str){0},
                     "params._meta: %s", why);
}

void sp_mcp_take_modern(const struct sp_mcp_turn *t, const struct sp_mcp_headers *headers)
{
    const struct sp_mcp_message *m = t->message;
    const struct method *method = find(m->method);
    const char *wrong = headers != NULL ? mismatch(headers, m, method) : NULL;

    if (wrong != NULL)
        sp_mcp_say_error(&t->to, SP_MCP_BAD_STATUS, SP_MCP_HEADER_MISMATCH, (struct sp_str){0},
                         "%s", wrong);
    else if (m->version.p == NULL)
        refuse_meta(t, "io.modelcontextprotocol/protocolVersion is not a string");
    else if (!sp_str_eq(m->version, SP_STR(SP_MCP_MODERN)))
        refuse_version(t);
    else if (m->capabilities == SP_JSON_NONE)
        refuse_meta(t, "io.modelcontextprotocol/clientCapabilities is not there, or no object");
    else if (method == NULL)
        sp_mcp_say_error(&t->to, SP_MCP_NO_STATUS, SP_MCP_NO_METHOD, (struct sp_str){0},
                         "unknown method: " SP_STR_FMT, SP_STR_ARG(m->method));
    else
        method->take(t);
}

/* ---- server/discover ---- */

static bool add_discovered(struct sp_buf *b, const struct sp_mcp_turn *t)
{
    if (!(sp_buf_add_str(b, SP_STR("\"supportedVersions\":")) && sp_mcp_add_versions(b) &&
          sp_buf_add_str(b, SP_STR(",\"capabilities\":{\"tools\":{},\"logging\":{},\"extensions\":{"
                                   "\"" SP_MCP_TASKS_EXTENSION "\":{}}}"))))
        return false;
    return sp_mcp_add_instructions(
               b, sp_mcp_options(t->peer->mcp),
               sp_mcp_can_elicit(&t->message->json, t->message->capabilities)) &&
           sp_buf_add_str(b, SP_STR(",\"ttlMs\":3600000,\"cacheScope\":\"private\""));
}

static void discover(const struct sp_mcp_turn *t)
{
    auto_buf struct sp_buf b = {0};

    if (add_discovered(&b, t))
        sp_mcp_say_result(&t->to, "complete", (struct sp_str){b.data, b.len});
    else
        sp_mcp_say_no_memory(&t->to);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_say: the envelopes of what goes out. Every answer leaves through sp_mcp_say_result or
 * sp_mcp_say_error; without memory it is an error that needs none.
 */
#include <stdarg.h>
#include <stdio.h>

#include "mcp/peer_priv.h"

#define INFO_KEY         "io.modelcontextprotocol/serverInfo"
#define SUBSCRIPTION_KEY "io.modelcontextprotocol/subscriptionId"

static struct sp_str text_of(const struct sp_buf *b)
{
    return (struct sp_str){b->data, b->len};
}

static struct sp_str id_of(const struct sp_mcp_to *to)
{
    return to->id.n != 0 ? to->id : SP_STR("null");
}

bool sp_mcp_add_server_info(struct sp_buf *b)
{
    return sp_buf_printf(b, "{\"name\":\"%s\",\"version\":\"%s\"}", SP_MCP_NAME, SP_VERSION);
}

bool sp_mcp_add_instructions(struct sp_buf *b, const struct sp_mcp_options *o, bool elicits)
{
    const char *text = elicits || o->instructions_without_asking == NULL
                           ? o->instructions
                           : o->instructions_without_asking;

    return text == NULL ||
           (sp_buf_add_str(b, SP_STR(",\"instructions\":")) && sp_json_add_str(b, sp_str_of(text)));
}

bool sp_mcp_add_versions(struct sp_buf *b)
{
    return sp_buf_add_str(b, SP_STR("[\"" SP_MCP_MODERN "\",\"" SP_MCP_LEGACY_NEWEST
                                    "\",\"2025-06-18\",\"2025-03-26\",\"2024-11-05\"]"));
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

static bool add_meta(struct sp_buf *b, const struct sp_mcp_to *to)
{
    if (!sp_buf_add_str(b, SP_STR(",\"_meta\":{")))
        return false;
    if (to->is_subscription && !(sp_buf_add_str(b, SP_STR("\"" SUBSCRIPTION_KEY "\":")) &&
                                 sp_buf_add_str(b, id_of(to)) && sp_buf_add(b, ",", 1)))
        return false;
    return sp_buf_add_str(b, SP_STR("\"" INFO_KEY "\":")) && sp_mcp_add_server_info(b) &&
           sp_buf_add(b, "}", 1);
}

static bool add_envelope(struct sp_buf *b, const struct sp_mcp_to *to, const char *type,
                         struct sp_str members)
{
    const bool is_modern = to->revision->is_modern;

    if (!(sp_buf_add_str(b, SP_STR("{\"jsonrpc\":\"2.0\",\"id\":")) &&
          sp_buf_add_str(b, id_of(to)) && sp_buf_add_str(b, SP_STR(",\"result\":{"))))
        return false;
    if (is_modern && !sp_buf_printf(b, "\"resultType\":\"%s\"%s", type, members.n != 0 ? "," : ""))
        return false;
    return sp_buf_add_str(b, members) && (!is_modern || add_meta(b, to)) &&
           sp_buf_add_str(b, SP_STR("}}"));
}

void sp_mcp_say_result(const struct sp_mcp_to *to, const char *type, struct sp_str members)
{
    auto_buf struct sp_buf b = {0};

    if (to->out == NULL)
        return;
    if (add_envelope(&b, to, type, members))
        to->out->send(to->out, text_of(&b), SP_MCP_OK_STATUS);
    else
        sp_mcp_say_no_memory(to);
}

static bool add_error(struct sp_buf *b, const struct sp_mcp_to *to, int code, struct sp_str data,
                      const char *text)
{
    if (!(sp_buf_add_str(b, SP_STR("{\"jsonrpc\":\"2.0\",\"id\":")) &&
          sp_buf_add_str(b, id_of(to)) &&
          sp_buf_printf(b, ",\"error\":{\"code\":%d,\"message\":", code) &&
          sp_json_add_str(b, sp_str_of(text))))
        return false;
    if (data.n != 0 && !(sp_buf_add_str(b, SP_STR(",\"data\":")) && sp_buf_add_str(b, data)))
        return false;
    return sp_buf_add_str(b, SP_STR("}}"));
}

void sp_mcp_say_error(const struct sp_mcp_to *to, unsigned status, int code, struct sp_str data,
                      const char *fmt, ...)
{
    auto_buf struct sp_buf b = {0};
    char text[512];
    va_list ap;

    if (to->out == NULL)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap); /* a cut character becomes U+FFFD */
    va_end(ap);
    if (add_error(&b, to, code, data, text))
        to->out->send(to->out, text_of(&b), status);
    else
        sp_mcp_say_no_memory(to);
}

static bool add_text_block(struct sp_buf *b, struct sp_str text)
{
    return sp_buf_add_str(b, SP_STR("{\"type\":\"text\",\"text\":")) && sp_json_add_str(b, text) &&
           sp_buf_add(b, "}", 1);
}

/* There are hosts that show models nothing but this form: it has the note, too. */
static bool add_structured(struct sp_buf *b, const struct sp_mcp_result *r)
{
    if (!(sp_buf_add_str(b, SP_STR(",\"structuredContent\":")) && sp_buf_add_str(b, r->structured)))
        return false;
    if (r->note.n == 0)
        return true;
    b->len--; /* its last brace */
    return sp_buf_add_str(b, SP_STR(",\"note\":")) && sp_json_add_str(b, r->note) &&
           sp_buf_add(b, "}", 1);
}

bool sp_mcp_add_result(struct sp_buf *b, const struct sp_mcp_revision *v,
                       const struct sp_mcp_result *r)
{
    if (!(sp_buf_add_str(b, SP_STR("\"content\":[")) && add_text_block(b, r->text)))
        return false;
    if (r->note.n != 0 && !(sp_buf_add(b, ",", 1) && add_text_block(b, r->note)))
        return false;
    if (!sp_buf_add(b, "]", 1))
        return false;
    if (v->has_structured && r->structured.n != 0 && !add_structured(b, r))
        return false;
    return sp_buf_printf(b, ",\"isError\":%s", r->is_error ? "true" : "false");
}

void sp_mcp_say_failed(const struct sp_mcp_to *to, const char *fmt, ...)
{
    auto_buf struct sp_buf b = {0};
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const struct sp_mcp_result r = {.is_error = true, .text = sp_str_of(text)};
    if (sp_mcp_add_result(&b, to->revision, &r))
        sp_mcp_say_result(to, "complete", text_of(&b));
    else
        sp_mcp_say_no_memory(to);
}

bool sp_mcp_say_notice(struct sp_mcp_out *out, const char *method, struct sp_str params)
{
    auto_buf struct sp_buf b = {0};

    if (out == NULL ||
        !(sp_buf_printf(&b, "{\"jsonrpc\":\"2.0\",\"method\":\"%s\",\"params\":", method) &&
          sp_buf_add_str(&b, params) && sp_buf_add(&b, "}", 1)))
        return false;
    out->send(out, text_of(&b), 0);
    return true;
}

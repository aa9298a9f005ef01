/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_request: open requests, the envelopes of what goes out, and log messages. Every answer leaves
 * through sp_mcp_say_result or sp_mcp_say_error; out of memory it is an error that needs no
 * allocation.
 */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/auto.h"
#include "mcp/peer_priv.h"

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

/* ---- open requests ---- */

void *sp_mcp_request_open(const struct sp_mcp_turn *t, size_t size,
                          void (*drop)(struct sp_mcp_request *r))
{
    struct sp_mcp_peer *p = t->peer;

    if (p->open_count >= SP_MCP_OPEN_MAX) {
        sp_mcp_say_error(&t->to, SP_MCP_OK_STATUS, SP_MCP_INTERNAL, (struct sp_str){0},
                         "%d requests are open: wait for one of them to be answered",
                         SP_MCP_OPEN_MAX);
        return NULL;
    }
    struct sp_mcp_request *r = calloc(1, size);
    if (r == NULL) {
        sp_mcp_say_no_memory(&t->to);
        return NULL;
    }
    r->peer = p;
    r->out = t->to.out;
    r->revision = t->to.revision;
    r->log_level = sp_mcp_log_level_of(t->message->log_level);
    r->drop = drop;
    assert(t->to.id.n <= sizeof r->id); /* sp_mcp_message_read refuses longer ids */
    r->id_len = (uint32_t)t->to.id.n;
    memcpy(r->id, t->to.id.p, t->to.id.n);
    sp_list_prepend(&p->open, &r->link);
    p->open_count++;
    return r;
}

void sp_mcp_request_close(struct sp_mcp_request *r)
{
    sp_list_remove(&r->link);
    r->peer->open_count--;
    free(r);
}

struct sp_mcp_to sp_mcp_request_to(const struct sp_mcp_request *r, char id[SP_MCP_ID_MAX])
{
    memcpy(id, r->id, r->id_len);
    return (struct sp_mcp_to){.out = r->out,
                              .id = {id, r->id_len},
                              .revision = r->revision,
                              .is_subscription = r->is_subscription};
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

static void say_error_text(const struct sp_mcp_to *to, unsigned status, int code,
                           struct sp_str data, const char *fmt, va_list args)
{
    auto_buf struct sp_buf b = {0};
    char text[512];

    if (to->out == NULL)
        return;
    (void)vsnprintf(text, sizeof text, fmt, args); /* a cut character becomes U+FFFD */
    if (sp_buf_add_str(&b, SP_STR("{\"jsonrpc\":\"2.0\",\"id\":")) &&
        sp_buf_add_str(&b, id_of(to)) &&
        sp_buf_printf(&b, ",\"error\":{\"code\":%d,\"message\":", code) &&
        sp_json_add_str(&b, sp_str_of(text)) &&
        (data.n == 0 || (sp_buf_add_str(&b, SP_STR(",\"data\":")) && sp_buf_add_str(&b, data))) &&
        sp_buf_add_str(&b, SP_STR("}}")))
        to->out->send(to->out, sp_buf_str(&b), status);
    else
        sp_mcp_say_no_memory(to);
}

void sp_mcp_say_error(const struct sp_mcp_to *to, unsigned status, int code, struct sp_str data,
                      const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    say_error_text(to, status, code, data, fmt, args);
    va_end(args);
}

void sp_mcp_say_invalid(const struct sp_mcp_to *to, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    say_error_text(to, SP_MCP_OK_STATUS, SP_MCP_INVALID_PARAMS, (struct sp_str){0}, fmt, args);
    va_end(args);
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

void sp_mcp_say_failed(const struct sp_mcp_to *to, const char *fmt, ...)
{
    auto_buf struct sp_buf b = {0};
    char text[512];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    const struct sp_mcp_result r = {.is_error = true, .text = sp_str_of(text)};
    if (sp_mcp_add_result(&b, to->revision, &r))
        sp_mcp_say_result(to, "complete", sp_buf_str(&b));
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
    out->send(out, sp_buf_str(&b), 0);
    return true;
}

/* ---- log messages ----
 *
 * `notifications/message` about sessions that start (debug) or end (info) and commands that are run
 * again (info). A legacy host asks for them with logging/setLevel; a modern one names a level in a
 * request and hears them while that request is open. A host that does not read loses them.
 */

enum sp_mcp_log_level sp_mcp_log_level_of(struct sp_str name)
{
    static const struct {
        struct sp_str name;
        enum sp_mcp_log_level level;
    } levels[] = {
        {SP_STR("debug"), SP_MCP_LOG_DEBUG}, {SP_STR("info"), SP_MCP_LOG_INFO},
        {SP_STR("notice"), SP_MCP_LOG_MORE}, {SP_STR("warning"), SP_MCP_LOG_MORE},
        {SP_STR("error"), SP_MCP_LOG_MORE},  {SP_STR("critical"), SP_MCP_LOG_MORE},
        {SP_STR("alert"), SP_MCP_LOG_MORE},  {SP_STR("emergency"), SP_MCP_LOG_MORE},
    };

    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
        if (sp_str_eq(name, levels[i].name))
            return levels[i].level;
    return SP_MCP_LOG_NONE;
}

static bool is_wanted(enum sp_mcp_log_level from, enum sp_mcp_log_level level)
{
    return from != SP_MCP_LOG_NONE && level >= from;
}

/* Where a log message of this level goes; NULL: the peer does not want it. HTTP has no `out` for
 * the whole conversation: there the message goes with an open request. */
static struct sp_mcp_out *find_log_out(const struct sp_mcp_peer *p, enum sp_mcp_log_level level)
{
    const bool peer_wants = is_wanted(p->log_level, level);

    if (peer_wants && p->out != NULL)
        return p->out;
    sp_list_each(i, &p->open) {
        const struct sp_mcp_request *r = SP_CONTAINER(i, struct sp_mcp_request, link);

        if (r->out != NULL && !r->is_subscription &&
            (r->revision->is_modern ? is_wanted(r->log_level, level) : peer_wants))
            return r->out;
    }
    return NULL;
}

static enum sp_mcp_log_level level_of(const struct sp_mcp_event *e)
{
    return e->has_ended ? SP_MCP_LOG_INFO : SP_MCP_LOG_DEBUG;
}

static bool add_event(struct sp_buf *b, const struct sp_mcp_caller *c, const struct sp_mcp_event *e)
{
    struct sp_manager_view v = {0};

    if (!sp_buf_printf(b, "{\"level\":\"%s\",\"logger\":\"sallyport\",\"data\":",
                       e->has_ended ? "info" : "debug"))
        return false;
    if (e->session_id == 0)
        return sp_buf_add_str(b, SP_STR("{\"event\":\"notice\"")) &&
               sp_json_add_member(b, "message", sp_str_of(e->notice)) &&
               sp_buf_add_str(b, SP_STR("}}"));
    if (!sp_buf_printf(b, "{\"event\":\"%s\",\"session_id\":%d",
                       e->has_ended ? "session_ended" : "session_started", e->session_id))
        return false;
    if (sp_manager_view(c->manager, e->session_id, &v) &&
        (!sp_json_add_member(b, "command", v.command) ||
         (v.has_exited && !sp_json_add_value(b, "exit_code", "%d", v.exit_code))))
        return false;
    return sp_buf_add_str(b, SP_STR("}}"));
}

static void on_logging(struct sp_deferred *d)
{
    struct sp_mcp_caller *c = SP_CONTAINER(d, struct sp_mcp_caller, logging);

    for (uint32_t n = 0; n < c->event_count; n++) {
        auto_buf struct sp_buf b = {0};

        if (!add_event(&b, c, &c->events[n]))
            continue;
        /* Sending may find that the client is gone: that ends requests, but frees no peer. */
        sp_list_each(i, &c->peers) {
            const struct sp_mcp_peer *p = SP_CONTAINER(i, struct sp_mcp_peer, link);
            struct sp_mcp_out *out = find_log_out(p, level_of(&c->events[n]));

            if (out != NULL && (out->is_full == NULL || !out->is_full(out)))
                (void)sp_mcp_say_notice(out, "notifications/message", sp_buf_str(&b));
        }
    }
    c->event_count = 0;
}

void sp_mcp_log(struct sp_mcp_caller *c, int session_id, bool has_ended, struct sp_str notice)
{
    struct sp_mcp_event e = {.session_id = session_id, .has_ended = has_ended};

    if (c->event_count == SP_MCP_EVENTS_MAX)
        return;
    (void)snprintf(e.notice, sizeof e.notice, SP_STR_FMT, SP_STR_ARG(notice));
    sp_list_each(i, &c->peers) {
        if (find_log_out(SP_CONTAINER(i, struct sp_mcp_peer, link), level_of(&e)) == NULL)
            continue;
        c->events[c->event_count++] = e;
        sp_loop_defer(sp_mcp_options(c->mcp)->loop, &c->logging, on_logging);
        return;
    }
}

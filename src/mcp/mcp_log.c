/* SPDX-License-Identifier: Apache-2.0 */
#include "mcp/mcp_log.h"

#include <stdio.h>

#include "base/auto.h"
#include "mcp/peer_priv.h"

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

void sp_mcp_log_enter(struct sp_mcp_peer *p, struct sp_mcp_caller *c)
{
    if (p->caller != NULL) {
        *(p->prev != NULL ? &p->prev->next : &p->caller->peers) = p->next;
        if (p->next != NULL)
            p->next->prev = p->prev;
    }
    p->prev = p->next = NULL;
    p->caller = c;
    if (c == NULL)
        return;
    p->next = c->peers;
    if (p->next != NULL)
        p->next->prev = p;
    c->peers = p;
}

/* ---- to whom ---- */

static bool wants(enum sp_mcp_log_level from, enum sp_mcp_log_level level)
{
    return from != SP_MCP_LOG_NONE && level >= from;
}

/* Where a message of this level goes; NULL: nowhere. A transport without an `out` for the whole
 * conversation (HTTP) has those of its open requests. */
static struct sp_mcp_out *find_out(const struct sp_mcp_peer *p, enum sp_mcp_log_level level)
{
    const bool is_wanted = wants(p->log_level, level);

    if (is_wanted && p->out != NULL)
        return p->out;
    for (const struct sp_mcp_request *r = p->open; r != NULL; r = r->next)
        if (r->out != NULL && !r->is_subscription &&
            (r->revision->is_modern ? wants(r->log_level, level) : is_wanted))
            return r->out;
    return NULL;
}

/* ---- what ---- */

static bool add_session(struct sp_buf *b, const struct sp_mcp_caller *c,
                        const struct sp_mcp_event *e)
{
    struct sp_manager_view v = {0};

    if (e->session_id == 0)
        return sp_buf_add_str(b, SP_STR("{\"event\":\"notice\",\"message\":")) &&
               sp_json_add_str(b, sp_str_of(e->notice)) && sp_buf_add(b, "}", 1);
    if (!sp_buf_printf(b, "{\"event\":\"%s\",\"session_id\":%d",
                       e->has_ended ? "session_ended" : "session_started", e->session_id))
        return false;
    if (sp_manager_view(c->manager, e->session_id, &v) &&
        (!(sp_buf_add_str(b, SP_STR(",\"command\":")) && sp_json_add_str(b, v.command)) ||
         (v.has_exited && !sp_buf_printf(b, ",\"exit_code\":%d", v.exit_code))))
        return false;
    return sp_buf_add(b, "}", 1);
}

static void tell(const struct sp_mcp_caller *c, const struct sp_mcp_event *e)
{
    const enum sp_mcp_log_level level = e->has_ended ? SP_MCP_LOG_INFO : SP_MCP_LOG_DEBUG;
    auto_buf struct sp_buf b = {0};

    if (!sp_buf_printf(&b, "{\"level\":\"%s\",\"logger\":\"sallyport\",\"data\":",
                       e->has_ended ? "info" : "debug") ||
        !add_session(&b, c, e) || !sp_buf_add(&b, "}", 1))
        return;
    for (const struct sp_mcp_peer *p = c->peers; p != NULL; p = p->next) {
        struct sp_mcp_out *out = find_out(p, level);

        /* Whoever sends may find that nobody reads any more: that ends requests, but no peer. */
        if (out != NULL && (out->is_full == NULL || !out->is_full(out)))
            (void)sp_mcp_say_notice(out, "notifications/message", (struct sp_str){b.data, b.len});
    }
}

static void on_logging(struct sp_deferred *d)
{
    struct sp_mcp_caller *c = SP_CONTAINER(d, struct sp_mcp_caller, logging);

    for (uint32_t i = 0; i < c->event_count; i++)
        tell(c, &c->events[i]);
    c->event_count = 0;
}

static bool is_anybody_listening(const struct sp_mcp_caller *c, enum sp_mcp_log_level level)
{
    const struct sp_mcp_peer *p = c->peers;

    while (p != NULL && find_out(p, level) == NULL)
        p = p->next;
    return p != NULL;
}

static void log_event(struct sp_mcp_caller *c, const struct sp_mcp_event *e)
{
    if (c->event_count == SP_MCP_EVENTS_MAX ||
        !is_anybody_listening(c, e->has_ended ? SP_MCP_LOG_INFO : SP_MCP_LOG_DEBUG))
        return;
    c->events[c->event_count++] = *e;
    sp_loop_defer(sp_mcp_options(c->mcp)->loop, &c->logging, on_logging);
}

void sp_mcp_log(struct sp_mcp_caller *c, int session_id, bool has_ended)
{
    const struct sp_mcp_event e = {.session_id = session_id, .has_ended = has_ended};

    log_event(c, &e);
}

void sp_mcp_log_notice(struct sp_mcp_caller *c, struct sp_str text)
{
    struct sp_mcp_event e = {.has_ended = true}; /* as important as an end */

    (void)snprintf(e.notice, sizeof e.notice, SP_STR_FMT, SP_STR_ARG(text));
    log_event(c, &e);
}

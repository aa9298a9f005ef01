/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer: one message comes in; which era's rules it is under is seen from the message (and, for the
 * old era, from whether `initialize` has been there), never from the one before.
 */
#include "mcp/peer.h"

#include <stdlib.h>

#include "mcp/peer_priv.h"
#include "mcp/tool.h"

const struct sp_mcp_revision sp_mcp_modern = {
    .name = SP_MCP_MODERN, .is_modern = true, .has_annotations = true, .has_structured = true};

/* The newest first. */
static const struct sp_mcp_revision legacy[] = {
    {.name = SP_MCP_LEGACY_NEWEST,
     .has_annotations = true,
     .has_structured = true,
     .has_elicitation = true,
     .has_elicitation_mode = true},
    {.name = "2025-06-18",
     .has_annotations = true,
     .has_structured = true,
     .has_elicitation = true},
    {.name = "2025-03-26", .has_batches = true, .has_annotations = true},
    {.name = "2024-11-05"},
};

const struct sp_mcp_revision *sp_mcp_legacy_of(struct sp_str name)
{
    for (size_t i = 0; i < sizeof legacy / sizeof legacy[0]; i++)
        if (sp_str_eq(name, sp_str_of(legacy[i].name)))
            return &legacy[i];
    return NULL;
}

struct sp_mcp_peer *sp_mcp_peer_new(struct sp_mcp *m, struct sp_mcp_caller *c)
{
    struct sp_mcp_peer *p = calloc(1, sizeof *p);

    if (p == NULL)
        return NULL;
    p->mcp = m;
    sp_mcp_log_enter(p, c);
    return p;
}

void sp_mcp_peer_set_out(struct sp_mcp_peer *p, struct sp_mcp_out *out)
{
    p->out = out;
}

void sp_mcp_peer_move(struct sp_mcp_peer *p, struct sp_mcp_caller *c)
{
    while (p->open != NULL)
        p->open->drop(p->open);
    sp_mcp_asked_free(p);
    sp_mcp_batches_free(p);
    sp_mcp_log_enter(p, c);
}

void sp_mcp_peer_free(struct sp_mcp_peer *p)
{
    if (p == NULL)
        return;
    sp_mcp_peer_move(p, NULL);
    free(p);
}

const char *sp_mcp_peer_version(const struct sp_mcp_peer *p)
{
    return p->legacy != NULL ? p->legacy->name : NULL;
}

struct sp_loop *sp_mcp_peer_loop(const struct sp_mcp_peer *p)
{
    return sp_mcp_options(p->mcp)->loop;
}

/* ---- requests that are open ---- */

static struct sp_str id_of(const struct sp_mcp_request *r)
{
    return (struct sp_str){r->id, r->id_len};
}

static struct sp_mcp_request *find(const struct sp_mcp_peer *p, struct sp_str id)
{
    struct sp_mcp_request *r = p->open;

    while (r != NULL && !sp_str_eq(id_of(r), id))
        r = r->next;
    return r;
}

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
    r->id_len = (uint32_t)t->to.id.n; /* no request has a longer one than fits */
    memcpy(r->id, t->to.id.p, t->to.id.n);
    r->next = p->open;
    if (p->open != NULL)
        p->open->prev = r;
    p->open = r;
    p->open_count++;
    return r;
}

void sp_mcp_request_close(struct sp_mcp_request *r)
{
    struct sp_mcp_peer *p = r->peer;

    if (r->prev != NULL)
        r->prev->next = r->next;
    else
        p->open = r->next;
    if (r->next != NULL)
        r->next->prev = r->prev;
    p->open_count--;
    free(r);
}

struct sp_mcp_to sp_mcp_request_to(const struct sp_mcp_request *r)
{
    return (struct sp_mcp_to){.out = r->out,
                              .id = id_of(r),
                              .revision = r->revision,
                              .is_subscription = r->is_subscription};
}

static void cancel(struct sp_mcp_request *r)
{
    (r->cancel != NULL ? r->cancel : r->drop)(r);
}

void sp_mcp_peer_out_gone(struct sp_mcp_peer *p, struct sp_mcp_out *out)
{
    struct sp_mcp_request *next;

    for (struct sp_mcp_request *r = p->open; r != NULL; r = next) {
        next = r->next;
        if (r->out != out)
            continue;
        r->out = NULL;
        if (r->revision->is_modern)
            cancel(r);
        else if (r->unheard != NULL)
            r->unheard(r);
    }
    sp_mcp_batch_out_gone(p, out);
}

static struct sp_mcp_request *find_subscription(const struct sp_mcp_peer *p)
{
    struct sp_mcp_request *r = p->open;

    while (r != NULL && !r->is_subscription)
        r = r->next;
    return r;
}

void sp_mcp_peer_close_subscriptions(struct sp_mcp_peer *p)
{
    struct sp_mcp_request *r;

    while ((r = find_subscription(p)) != NULL) {
        char id[SP_MCP_ID_MAX];
        struct sp_mcp_to to = sp_mcp_request_to(r);

        memcpy(id, r->id, r->id_len);
        to.id.p = id;
        r->drop(r);
        sp_mcp_say_result(&to, "complete", (struct sp_str){0});
    }
}

/* ---- notifications ---- */

/* Stops waiting, and says nothing more about it. */
static void take_cancelled(struct sp_mcp_peer *p, struct sp_mcp_message *m)
{
    const uint32_t id =
        m->params != SP_JSON_NONE ? sp_json_get(&m->json, m->params, "requestId") : SP_JSON_NONE;
    struct sp_mcp_request *r = id != SP_JSON_NONE ? find(p, sp_json_raw(&m->json, id)) : NULL;

    if (r == NULL)
        return;
    struct sp_mcp_out *out = r->out;
    cancel(r);
    if (out != NULL && out->cancelled != NULL)
        out->cancelled(out);
}

static void take_notification(struct sp_mcp_peer *p, struct sp_mcp_message *m)
{
    if (sp_str_eq(m->method, SP_STR("notifications/cancelled")))
        take_cancelled(p, m);
    else if (sp_str_eq(m->method, SP_STR("notifications/initialized")) && p->legacy != NULL)
        p->is_initialized = true;
}

/* ---- requests ---- */

static bool is_version(struct sp_str name)
{
    return sp_str_eq(name, SP_STR(SP_MCP_MODERN)) || sp_mcp_legacy_of(name) != NULL;
}

/* Of messages of the old era: the header came with 2025-06-18, so it may be missing. */
static bool is_legacy_header_wrong(const struct sp_mcp_headers *headers,
                                   const struct sp_mcp_message *m)
{
    return headers != NULL && !m->is_modern && headers->version.n != 0 &&
           !is_version(headers->version) && !sp_str_eq(m->method, SP_STR("initialize"));
}

static void take_request(const struct sp_mcp_turn *t, const struct sp_mcp_headers *headers)
{
    if (find(t->peer, t->to.id) != NULL)
        sp_mcp_say_error(&t->to, SP_MCP_BAD_STATUS, SP_MCP_INVALID_REQUEST, (struct sp_str){0},
                         "a request with this id is open");
    else if (t->message->is_modern)
        sp_mcp_take_modern(t, headers);
    else
        sp_mcp_take_legacy(t);
}

static const struct sp_mcp_revision *revision_of(const struct sp_mcp_peer *p,
                                                 const struct sp_mcp_message *m,
                                                 const struct sp_mcp_headers *headers)
{
    if (m->is_modern || (headers != NULL && sp_str_eq(headers->version, SP_STR(SP_MCP_MODERN)) &&
                         !sp_str_eq(m->method, SP_STR("initialize"))))
        return &sp_mcp_modern;
    return p->legacy;
}

bool sp_mcp_take(struct sp_mcp_peer *p, struct sp_mcp_out *out,
                 const struct sp_mcp_headers *headers, struct sp_mcp_message *m)
{
    const struct sp_mcp_turn t = {
        .peer = p,
        .message = m,
        .to = {.out = out, .id = m->id, .revision = revision_of(p, m, headers)}};

    if (is_legacy_header_wrong(headers, m)) {
        sp_mcp_say_error(&t.to, SP_MCP_BAD_STATUS, SP_MCP_INVALID_REQUEST, (struct sp_str){0},
                         "MCP-Protocol-Version names a version that is not spoken here");
        return true;
    }
    switch (m->kind) {
    case SP_MCP_BATCH:
        return sp_mcp_take_batch(p, out, m);
    case SP_MCP_RESPONSE:
        sp_mcp_take_response(p, m);
        return false;
    case SP_MCP_NOTIFICATION:
        take_notification(p, m);
        return false;
    case SP_MCP_REQUEST:
        take_request(&t, headers);
        return true;
    case SP_MCP_BROKEN:
    default:
        sp_mcp_say_error(&t.to, SP_MCP_BAD_STATUS, m->code, (struct sp_str){0}, "%s", m->why.msg);
        return true;
    }
}

/* ---- the list of tools ---- */

static bool add_list(struct sp_buf *b, const struct sp_mcp_turn *t)
{
    const struct sp_mcp_revision *v = t->to.revision;
    const struct sp_mcp_tool_words words = {.has_annotations = v->has_annotations,
                                            .has_output_schema = v->has_structured};

    return sp_buf_add_str(b, SP_STR("\"tools\":")) &&
           sp_mcp_tools_add_list(b, t->peer->mcp, words) &&
           (!v->is_modern ||
            sp_buf_add_str(b, SP_STR(",\"ttlMs\":3600000,\"cacheScope\":\"private\"")));
}

void sp_mcp_list_tools(const struct sp_mcp_turn *t)
{
    auto_buf struct sp_buf b = {0};
    struct sp_json *j = &t->message->json;
    const uint32_t params = t->message->params;
    const uint32_t cursor =
        params != SP_JSON_NONE ? sp_json_get(j, params, "cursor") : SP_JSON_NONE;

    if (cursor != SP_JSON_NONE && sp_json_type(j, cursor) != SP_JSON_NULL)
        sp_mcp_say_error(&t->to, SP_MCP_OK_STATUS, SP_MCP_INVALID_PARAMS, (struct sp_str){0},
                         "unknown cursor: the list has one page");
    else if (add_list(&b, t))
        sp_mcp_say_result(&t->to, "complete", (struct sp_str){b.data, b.len});
    else
        sp_mcp_say_no_memory(&t->to);
}

/* ---- what a client can do ---- */

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
    /* {} means forms; one that names only other modes has none. */
    return object_in(j, elicitation, "form") != SP_JSON_NONE ||
           object_in(j, elicitation, "url") == SP_JSON_NONE;
}

bool sp_mcp_can_task(struct sp_json *j, uint32_t capabilities)
{
    const uint32_t extensions = object_in(j, capabilities, "extensions");

    return object_in(j, extensions, SP_MCP_TASKS_EXTENSION) != SP_JSON_NONE;
}

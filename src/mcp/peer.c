/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer: takes one message. Each message shows by itself which era's rules apply: a modern one names
 * its protocol version in params._meta; any other is legacy and relies on `initialize`.
 *
 *   sp_mcp_take --> batch: each element, again
 *               --> response: the answer to an elicitation (mcp_call.c)
 *               --> notification: cancelled, initialized
 *               --> request: modern or legacy, by method; answered at once, or opened
 *
 * Every send may find that the client is gone and drop requests of this peer. Code that sends must
 * not use a request afterwards, unless it belongs to the legacy era, where requests only lose their
 * `out`.
 */
#include "mcp/peer.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/auto.h"
#include "mcp/peer_priv.h"
#include "mcp/tool.h"

#define SHOWN_VERSION 64 /* bytes of an unknown version that the error repeats */
#define VERSIONS                                                          \
    "[\"" SP_MCP_MODERN "\",\"" SP_MCP_LEGACY_NEWEST "\",\"2025-06-18\"," \
    "\"2025-03-26\",\"2024-11-05\"]"

const struct sp_mcp_revision sp_mcp_modern = {
    .name = SP_MCP_MODERN, .is_modern = true, .has_annotations = true, .has_structured = true};

/* Newest first. */
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

/* NULL: no legacy revision has that name. */
static const struct sp_mcp_revision *legacy_of(struct sp_str name)
{
    for (size_t i = 0; i < sizeof legacy / sizeof legacy[0]; i++)
        if (sp_str_eq(name, sp_str_of(legacy[i].name)))
            return &legacy[i];
    return NULL;
}

/* ---- peers ---- */

/* An array of messages, which only 2025-03-26 has. */
struct batch {
    struct sp_mcp_out face; /* `out` of each request of the batch */
    struct sp_mcp_out *out; /* of the batch; NULL: gone */
    struct sp_list link;    /* in peer->batches */
    struct sp_buf text;     /* the answers so far */
    uint32_t waiting;       /* requests that are not answered yet */
    bool is_taking;         /* its messages are being taken: it must not finish yet */
    bool is_broken;         /* out of memory */
};

static void set_caller(struct sp_mcp_peer *p, struct sp_mcp_caller *c)
{
    sp_list_remove(&p->link);
    p->caller = c;
    if (c != NULL)
        sp_list_prepend(&c->peers, &p->link);
}

struct sp_mcp_peer *sp_mcp_peer_new(struct sp_mcp *m, struct sp_mcp_caller *c,
                                    struct sp_mcp_out *out)
{
    struct sp_mcp_peer *p = calloc(1, sizeof *p);

    if (p == NULL)
        return NULL;
    p->mcp = m;
    p->out = out;
    sp_list_init(&p->open);
    sp_list_init(&p->elicitations);
    sp_list_init(&p->batches);
    set_caller(p, c);
    return p;
}

static struct sp_mcp_request *request_of(struct sp_list *link)
{
    return SP_CONTAINER(link, struct sp_mcp_request, link);
}

void sp_mcp_peer_move(struct sp_mcp_peer *p, struct sp_mcp_caller *c)
{
    while (!sp_list_is_empty(&p->open)) {
        struct sp_mcp_request *r = request_of(sp_list_first(&p->open));

        r->drop(r);
    }
    while (
        !sp_list_is_empty(&p->elicitations)) /* of calls that are parked: the open ones are gone */
        free(sp_list_take_first(&p->elicitations));
    p->elicitation_count = 0;
    sp_list_each_safe(i, &p->batches) {
        struct batch *b = SP_CONTAINER(i, struct batch, link);

        sp_list_remove(&b->link);
        sp_buf_done(&b->text);
        free(b);
    }
    set_caller(p, c);
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

/* ---- open requests ---- */

/* NONE: no such level. */
static enum sp_mcp_log_level log_level_of(struct sp_str name)
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

void *sp_mcp_request_open(const struct sp_mcp_incoming *t, size_t size,
                          void (*drop)(struct sp_mcp_request *r))
{
    struct sp_mcp_peer *p = t->peer;

    if (p->open_count >= SP_MCP_OPEN_MAX) {
        sp_mcp_say_error(&t->to, SP_MCP_OK_STATUS, SP_MCP_INTERNAL,
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
    r->log_level = log_level_of(t->message->log_level);
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

static struct sp_mcp_request *find_request(const struct sp_mcp_peer *p, struct sp_str id)
{
    sp_list_each(i, &p->open) {
        struct sp_mcp_request *r = request_of(i);

        if (sp_str_eq((struct sp_str){r->id, r->id_len}, id))
            return r;
    }
    return NULL;
}

static void cancel_request(struct sp_mcp_request *r)
{
    (r->cancel != NULL ? r->cancel : r->drop)(r);
}

void sp_mcp_peer_out_gone(struct sp_mcp_peer *p, struct sp_mcp_out *out)
{
    sp_list_each_safe(i, &p->open) {
        struct sp_mcp_request *r = request_of(i);

        if (r->out != out)
            continue;
        r->out = NULL;
        if (r->revision->is_modern)
            cancel_request(r);
        else if (r->unheard != NULL)
            r->unheard(r);
    }
    sp_list_each(i, &p->batches) {
        struct batch *b = SP_CONTAINER(i, struct batch, link);

        if (b->out != out)
            continue;
        b->out = NULL;
        /* The requests keep b->face: the batch counts their answers until it can be freed. */
        sp_list_each(k, &p->open) {
            struct sp_mcp_request *r = request_of(k);

            if (r->out == &b->face && r->unheard != NULL)
                r->unheard(r);
        }
    }
}

void sp_mcp_peer_close_subscriptions(struct sp_mcp_peer *p)
{
    struct sp_list *i = p->open.next;

    while (i != &p->open) {
        struct sp_mcp_request *r = request_of(i);
        char id[SP_MCP_ID_MAX];

        if (!r->is_subscription) {
            i = i->next;
            continue;
        }
        const struct sp_mcp_to to = sp_mcp_request_to(r, id);
        r->drop(r);
        sp_mcp_say_result(&to, "complete", (struct sp_str){0});
        i = p->open.next; /* sending may have dropped other requests */
    }
}

/* `,"instructions":...`, by whether the client shows forms; nothing if none are configured. */
static bool add_instructions(struct sp_buf *b, const struct sp_mcp_options *o, bool elicits)
{
    const char *text = elicits || o->instructions_without_asking == NULL
                           ? o->instructions
                           : o->instructions_without_asking;

    return text == NULL || sp_json_add_member(b, "instructions", sp_str_of(text));
}

/* ---- tools/list, in both eras ---- */

static void list_tools(const struct sp_mcp_incoming *t)
{
    auto_buf struct sp_buf b = {0};
    struct sp_json *j = &t->message->json;
    const struct sp_mcp_revision *v = t->to.revision;
    const struct sp_mcp_tool_words words = {.has_annotations = v->has_annotations,
                                            .has_output_schema = v->has_structured};
    const uint32_t params = t->message->params;
    const uint32_t cursor =
        params != SP_JSON_NONE ? sp_json_get(j, params, "cursor") : SP_JSON_NONE;

    if (cursor != SP_JSON_NONE && sp_json_type(j, cursor) != SP_JSON_NULL)
        sp_mcp_say_invalid(&t->to, "unknown cursor: the list has one page");
    else if (sp_buf_add_str(&b, SP_STR("\"tools\":")) &&
             sp_mcp_tools_add_list(&b, t->peer->mcp, words) &&
             (!v->is_modern ||
              sp_buf_add_str(&b, SP_STR(",\"ttlMs\":3600000,\"cacheScope\":\"private\""))))
        sp_mcp_say_result(&t->to, "complete", sp_buf_str(&b));
    else
        sp_mcp_say_no_memory(&t->to);
}

/* ---- the legacy era: `initialize` sets the rules for all later messages of the peer ---- */

static void initialize(const struct sp_mcp_incoming *t)
{
    auto_buf struct sp_buf b = {0};
    struct sp_mcp_peer *p = t->peer;
    const struct sp_mcp_options *o = sp_mcp_options(p->mcp);
    struct sp_json *j = &t->message->json;
    const uint32_t params = t->message->params;
    struct sp_mcp_to to = t->to;
    struct sp_err e = {0};
    struct sp_str version = {0};
    struct sp_str client = {0};
    uint32_t capabilities = SP_JSON_NONE;
    uint32_t info = SP_JSON_NONE;

    if (params == SP_JSON_NONE ||
        sp_json_need_str(j, params, "protocolVersion", &version, &e) < 0) {
        sp_mcp_say_error(&to, SP_MCP_BAD_STATUS, SP_MCP_INVALID_PARAMS,
                         "initialize needs a protocolVersion, a string");
        return;
    }
    if (sp_json_opt_object(j, params, "capabilities", &capabilities, &e) < 0) {
        sp_mcp_say_error(&to, SP_MCP_BAD_STATUS, SP_MCP_INVALID_PARAMS, "capabilities: %s", e.msg);
        return;
    }
    to.revision = legacy_of(version);
    if (to.revision == NULL)
        to.revision = &legacy[0];
    const bool elicits = to.revision->has_elicitation && sp_mcp_can_elicit(j, capabilities);
    if (!sp_buf_printf(&b,
                       "\"protocolVersion\":\"%s\",\"capabilities\":{\"tools\":{},\"logging\":{}},"
                       "\"serverInfo\":" SP_MCP_SERVER_INFO,
                       to.revision->name) ||
        !add_instructions(&b, o, elicits)) {
        sp_mcp_say_no_memory(&to);
        return;
    }
    if (sp_json_opt_object(j, params, "clientInfo", &info, &e) == 0 && info != SP_JSON_NONE)
        (void)sp_json_opt_str(j, info, "name", &client, &e);
    p->legacy = to.revision;
    p->is_initialized = false;
    p->log_level = SP_MCP_LOG_NONE;
    p->repeats_output = sp_mcp_host_repeats_output(o->structured_output, client);
    sp_mcp_caller_set_client_name(p->caller, client);
    p->elicits = elicits;
    sp_mcp_say_result(&to, "complete", sp_buf_str(&b));
}

static void set_log_level(const struct sp_mcp_incoming *t)
{
    struct sp_mcp_message *m = t->message;
    struct sp_str name = {0};
    struct sp_err e = {0};

    if (m->params != SP_JSON_NONE)
        (void)sp_json_opt_str(&m->json, m->params, "level", &name, &e);
    const enum sp_mcp_log_level level = log_level_of(name);
    if (level == SP_MCP_LOG_NONE) {
        sp_mcp_say_invalid(&t->to, "level is one of debug, info, notice, warning, error, critical, "
                                   "alert and emergency");
        return;
    }
    t->peer->log_level = level;
    sp_mcp_say_result(&t->to, "complete", (struct sp_str){0});
}

static void take_legacy(const struct sp_mcp_incoming *t)
{
    const struct sp_str method = t->message->method;
    struct sp_mcp_to to = t->to;

    if (sp_str_eq(method, SP_STR("initialize"))) {
        initialize(t);
    } else if (sp_str_eq(method, SP_STR("ping"))) { /* allowed before initialize */
        to.revision = &legacy[0];
        sp_mcp_say_result(&to, "complete", (struct sp_str){0});
    } else if (to.revision == NULL || to.revision->is_modern) {
        sp_mcp_say_error(&to, SP_MCP_BAD_STATUS, SP_MCP_INVALID_PARAMS,
                         "params._meta has no io.modelcontextprotocol/protocolVersion, and "
                         "initialize has not been called");
    } else if (sp_str_eq(method, SP_STR("tools/list"))) {
        list_tools(t);
    } else if (sp_str_eq(method, SP_STR("logging/setLevel"))) {
        set_log_level(t);
    } else if (sp_str_eq(method, SP_STR("tools/call"))) {
        sp_mcp_call(t);
    } else {
        sp_mcp_say_error(&to, SP_MCP_OK_STATUS, SP_MCP_NO_METHOD, "unknown method: " SP_STR_FMT,
                         SP_STR_ARG(method));
    }
}

/* ---- the modern era: each request carries everything it needs ---- */

static void discover(const struct sp_mcp_incoming *t)
{
    auto_buf struct sp_buf b = {0};
    const bool elicits = sp_mcp_can_elicit(&t->message->json, t->message->capabilities);

    if (sp_buf_add_str(&b, SP_STR("\"supportedVersions\":" VERSIONS
                                  ",\"capabilities\":{\"tools\":{},\"logging\":{},\"extensions\":{"
                                  "\"" SP_MCP_TASKS_EXTENSION "\":{}}}")) &&
        add_instructions(&b, sp_mcp_options(t->peer->mcp), elicits) &&
        sp_buf_add_str(&b, SP_STR(",\"ttlMs\":3600000,\"cacheScope\":\"private\"")))
        sp_mcp_say_result(&t->to, "complete", sp_buf_str(&b));
    else
        sp_mcp_say_no_memory(&t->to);
}

static const struct sp_mcp_method methods[] = {
    {"server/discover", discover, false},
    {"tools/list", list_tools, false},
    {"tools/call", sp_mcp_call, true},
    {NULL, NULL, false},
};

static const struct sp_mcp_method *find_method(struct sp_str name)
{
    static const struct sp_mcp_method *const families[] = {methods, sp_mcp_task_methods};

    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        for (const struct sp_mcp_method *m = families[i]; m->name != NULL; m++)
            if (sp_str_eq(name, sp_str_of(m->name)))
                return m;
    return NULL;
}

/* HTTP headers repeat parts of the body for proxies. NULL: they agree with it. */
static const char *find_mismatch(const struct sp_mcp_headers *h, const struct sp_mcp_message *m,
                                 const struct sp_mcp_method *method)
{
    if (h->version.n == 0)
        return "the header MCP-Protocol-Version is missing";
    if (m->version.p != NULL && !sp_str_eq(h->version, m->version))
        return "the header MCP-Protocol-Version does not match the version in params._meta";
    if (h->method.n == 0)
        return "the header Mcp-Method is missing";
    if (!sp_str_eq(h->method, m->method))
        return "the header Mcp-Method does not match the method";
    if (method == NULL || !method->has_name)
        return NULL;
    if (h->is_name_broken)
        return "the header Mcp-Name cannot be decoded";
    if (h->name.n == 0)
        return m->name.n != 0 ? "the header Mcp-Name is missing" : NULL;
    return sp_str_eq(h->name, m->name) ? NULL : "the header Mcp-Name does not match the params";
}

static void take_modern(const struct sp_mcp_incoming *t, const struct sp_mcp_headers *headers)
{
    const struct sp_mcp_message *m = t->message;
    const struct sp_mcp_method *method = find_method(m->method);
    const char *bad_meta = NULL;
    struct sp_mcp_to to = t->to;
    auto_buf struct sp_buf data = {0};

    const char *mismatch = headers != NULL ? find_mismatch(headers, m, method) : NULL;
    if (m->version.p == NULL)
        bad_meta = "io.modelcontextprotocol/protocolVersion is not a string";
    else if (m->capabilities == SP_JSON_NONE)
        bad_meta = "io.modelcontextprotocol/clientCapabilities is not there, or no object";

    if (mismatch != NULL) {
        sp_mcp_say_error(&t->to, SP_MCP_BAD_STATUS, SP_MCP_HEADER_MISMATCH, "%s", mismatch);
    } else if (m->version.p != NULL && !sp_str_eq(m->version, SP_STR(SP_MCP_MODERN))) {
        const struct sp_str asked = {m->version.p,
                                     m->version.n > SHOWN_VERSION ? SHOWN_VERSION : m->version.n};

        if (sp_buf_add_str(&data, SP_STR("{\"supported\":" VERSIONS ",\"requested\":")) &&
            sp_json_add_str(&data, asked) && sp_buf_add(&data, "}", 1)) {
            to.data = sp_buf_str(&data);
            sp_mcp_say_error(&to, SP_MCP_BAD_STATUS, SP_MCP_NO_VERSION,
                             "unsupported protocol version");
        } else {
            sp_mcp_say_no_memory(&to);
        }
    } else if (bad_meta != NULL) {
        sp_mcp_say_error(&t->to, SP_MCP_BAD_STATUS, SP_MCP_INVALID_PARAMS, "params._meta: %s",
                         bad_meta);
    } else if (method == NULL) {
        sp_mcp_say_error(&t->to, SP_MCP_NO_STATUS, SP_MCP_NO_METHOD, "unknown method: " SP_STR_FMT,
                         SP_STR_ARG(m->method));
    } else {
        method->take(t);
    }
}

/* ---- batches: notifications go out at once; the answers are collected and sent as one array ----
 */

static void finish_if_done(struct batch *b)
{
    if (b->is_taking || b->waiting != 0)
        return;

    auto_buf struct sp_buf text = b->text;
    struct sp_mcp_out *out = b->out;
    const struct sp_mcp_to to = {.out = out};
    const bool is_broken = b->is_broken;
    sp_list_remove(&b->link);
    free(b);
    if (out == NULL)
        return;
    if (is_broken || (text.len != 0 && !sp_buf_add(&text, "]", 1)))
        sp_mcp_say_no_memory(&to);
    else if (text.len != 0)
        out->send(out, sp_buf_str(&text), SP_MCP_OK_STATUS);
    else if (out->cancelled != NULL) /* every request of it was cancelled */
        out->cancelled(out);
}

static void on_batch_send(struct sp_mcp_out *face, struct sp_str message, unsigned status)
{
    struct batch *b = SP_CONTAINER(face, struct batch, face);

    if (status == 0) {
        if (b->out != NULL)
            b->out->send(b->out, message, 0);
        return;
    }
    if (!(sp_buf_add(&b->text, b->text.len == 0 ? "[" : ",", 1) &&
          sp_buf_add_str(&b->text, message)))
        b->is_broken = true;
    assert(b->waiting > 0);
    b->waiting--;
    finish_if_done(b);
}

static bool is_batch_full(struct sp_mcp_out *face)
{
    const struct batch *b = SP_CONTAINER(face, struct batch, face);

    return b->out == NULL || b->out->is_full(b->out);
}

static void on_batch_cancelled(struct sp_mcp_out *face)
{
    struct batch *b = SP_CONTAINER(face, struct batch, face);

    b->waiting--;
    finish_if_done(b);
}

static bool take_batch(struct sp_mcp_peer *p, struct sp_mcp_out *out, struct sp_mcp_message *m)
{
    const struct sp_json *j = &m->json;
    const struct sp_mcp_to all = {.out = out};
    struct batch *b = NULL;
    const char *wrong = NULL;

    if (p->legacy == NULL || !p->legacy->has_batches)
        wrong = "an array of messages: this version of the protocol has no batches";
    else if (j->tokens[0].children > SP_MCP_OPEN_MAX)
        wrong = "a batch has at most 256 messages";
    else if ((b = calloc(1, sizeof *b)) == NULL)
        wrong = "there is no memory for this batch";
    if (b == NULL) {
        sp_mcp_say_error(&all, SP_MCP_BAD_STATUS, SP_MCP_INVALID_REQUEST, "%s", wrong);
        return true;
    }
    b->face = (struct sp_mcp_out){
        .send = on_batch_send, .is_full = is_batch_full, .cancelled = on_batch_cancelled};
    b->out = out;
    sp_list_prepend(&p->batches, &b->link);
    b->is_taking = true;
    for (uint32_t t = sp_json_first(j, 0); t != SP_JSON_NONE; t = sp_json_next(j, 0, t)) {
        struct sp_mcp_message one = {0};

        sp_mcp_message_pick(&one, m, t);
        b->waiting++;
        if (one.is_modern ||
            (one.kind == SP_MCP_REQUEST && sp_str_eq(one.method, SP_STR("initialize")))) {
            const struct sp_mcp_to to = {.out = &b->face, .id = one.id};

            sp_mcp_say_error(&to, SP_MCP_BAD_STATUS, SP_MCP_INVALID_REQUEST,
                             "initialize and modern messages cannot be part of a batch");
        } else if (!sp_mcp_take(p, &b->face, NULL, &one)) {
            b->waiting--;
        }
    }
    b->is_taking = false;
    if (b->waiting != 0 || b->text.len != 0 || b->is_broken) {
        finish_if_done(b);
        return true;
    }
    sp_list_remove(&b->link); /* notifications and responses only: no answer */
    free(b);
    return false;
}

/* ---- one message ---- */

static void take_notification(struct sp_mcp_peer *p, struct sp_mcp_message *m)
{
    if (sp_str_eq(m->method, SP_STR("notifications/initialized")) && p->legacy != NULL)
        p->is_initialized = true;
    if (!sp_str_eq(m->method, SP_STR("notifications/cancelled")) || m->params == SP_JSON_NONE)
        return;
    const uint32_t id = sp_json_get(&m->json, m->params, "requestId");
    struct sp_mcp_request *r =
        id != SP_JSON_NONE ? find_request(p, sp_json_raw(&m->json, id)) : NULL;
    if (r == NULL)
        return;
    struct sp_mcp_out *out = r->out;
    cancel_request(r);
    if (out != NULL && out->cancelled != NULL)
        out->cancelled(out);
}

bool sp_mcp_take(struct sp_mcp_peer *p, struct sp_mcp_out *out,
                 const struct sp_mcp_headers *headers, struct sp_mcp_message *m)
{
    struct sp_str version = {0}; /* of the header */

    if (headers != NULL && !sp_str_eq(m->method, SP_STR("initialize")))
        version = headers->version;
    const bool has_modern_header = sp_str_eq(version, SP_STR(SP_MCP_MODERN));
    const struct sp_mcp_incoming t = {
        .peer = p,
        .message = m,
        .to = {.out = out,
               .id = m->id,
               .revision = m->is_modern || has_modern_header ? &sp_mcp_modern : p->legacy}};

    /* Legacy messages may come without MCP-Protocol-Version, which exists since 2025-06-18. */
    if (version.n != 0 && !has_modern_header && !m->is_modern && legacy_of(version) == NULL) {
        sp_mcp_say_error(&t.to, SP_MCP_BAD_STATUS, SP_MCP_INVALID_REQUEST,
                         "MCP-Protocol-Version names a version that is not spoken here");
        return true;
    }
    switch (m->kind) {
    case SP_MCP_BATCH:
        return take_batch(p, out, m);
    case SP_MCP_RESPONSE:
        sp_mcp_take_response(p, m);
        return false;
    case SP_MCP_NOTIFICATION:
        take_notification(p, m);
        return false;
    case SP_MCP_REQUEST:
        if (find_request(p, t.to.id) != NULL)
            sp_mcp_say_error(&t.to, SP_MCP_BAD_STATUS, SP_MCP_INVALID_REQUEST,
                             "a request with this id is open");
        else if (m->is_modern)
            take_modern(&t, headers);
        else
            take_legacy(&t);
        return true;
    case SP_MCP_BROKEN:
        break;
    }
    sp_mcp_say_error(&t.to, SP_MCP_BAD_STATUS, m->code, "%s", m->why.msg);
    return true;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conn: from bytes of a link to a method and back: the envelope, the server's own requests, flow
 * control, and what ends with a connection.
 */
#include "server/rpc/conn.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/ended.h"
#include "server/rpc/ask.h"
#include "server/rpc/metrics.h"
#include "server/rpc/text.h"

/* ---- the methods ---- */

static const struct sp_family *const families[] = {
    &sp_session_family, &sp_config_family,  &sp_discover_family, &sp_start_family,
    &sp_process_family, &sp_observe_family, &sp_history_family,  &sp_fs_family,
    &sp_watch_family,   &sp_http_family,    &sp_network_family,  &sp_approval_family,
};

/*
 * The methods of a connection that came by the local socket of a front that is no server (mcp,
 * exec): look at its processes and its history, intervene, answer its questions.
 * Any other method, also one that is added later, is refused there: a start, a file operation or a
 * web request would go around the approvals of that front. The listeners of a server allow every
 * method; what only a console may do is checked by the method.
 */
static const char *const overseer_methods[] = {
    "initialize",     "session/end",       "environment/info",   "environment/status",
    "process/list",   "process/inspect",   "process/read",       "process/attach",
    "process/detach", "process/write",     "process/closeStdin", "process/resize",
    "process/signal", "process/terminate", "history/list",       "history/output",
    "history/remove", "approval/watch",    "approval/decide",
};

static bool is_allowed(const struct sp_conn *conn, const char *method)
{
    if (conn->door != SP_DOOR_OVERSEER)
        return true;
    for (size_t i = 0; i < sizeof overseer_methods / sizeof overseer_methods[0]; i++)
        if (strcmp(overseer_methods[i], method) == 0)
            return true;
    return false;
}

#define FAMILIES (sizeof families / sizeof families[0])

bool sp_rpc_init(struct sp_rpc *rpc)
{
    size_t n = 0;

    sp_list_init(&rpc->conns);
    rpc->started_ms = (int64_t)sp_clock_unix_ms();
    for (size_t f = 0; f < FAMILIES; f++)
        for (const struct sp_method *m = families[f]->methods; m->name != NULL; m++)
            n++;
    rpc->stats = calloc(n + 1, sizeof *rpc->stats);
    if (rpc->stats == NULL)
        return false;
    for (size_t f = 0; f < FAMILIES; f++)
        for (const struct sp_method *m = families[f]->methods; m->name != NULL; m++)
            rpc->stats[rpc->stats_count++].method = m;
    rpc->stats_count++; /* the unknown methods */
    return true;
}

void sp_rpc_done(struct sp_rpc *rpc)
{
    for (size_t f = 0; f < FAMILIES; f++)
        if (families[f]->ended != NULL)
            families[f]->ended(rpc);
    sp_web_free(rpc->web);
    sp_json_done(&rpc->json);
    free(rpc->stats);
}

/* ---- replies ---- */

static const char id_key[] = "{\"id\":";
static const char result_key[] = ",\"result\":";

/* Replies are written straight into the link's output queue. What is reserved and not committed is
 * given back, so a caller may reserve an upper bound. */
char *sp_reply_begin(struct sp_conn *conn, struct sp_str id, size_t max)
{
    char *o = sp_link_reserve(conn->link, sizeof id_key + id.n + sizeof result_key + max + 1);

    if (o == NULL)
        return NULL;
    o = sp_put_literal(o, id_key);
    o = sp_put_str(o, id);
    return sp_put_literal(o, result_key);
}

void sp_reply_end(struct sp_conn *conn, struct sp_str id, const char *begin, char *end)
{
    const size_t before = sizeof id_key - 1 + id.n + sizeof result_key - 1;

    *end++ = '}';
    sp_link_commit(conn->link, before + (size_t)(end - begin));
}

static void reply(struct sp_conn *conn, struct sp_str id, struct sp_str result)
{
    char *const begin = sp_reply_begin(conn, id, result.n);

    if (begin != NULL)
        sp_reply_end(conn, id, begin, sp_put_str(begin, result));
}

/* Out of memory: the client gets no answer. */
static void reply_error(struct sp_conn *conn, struct sp_str id, int code, struct sp_str message,
                        const char *data)
{
    auto_buf struct sp_buf b = {0};

    if (!sp_buf_printf(&b, "{\"error\":{\"code\":%d,\"message\":", code) ||
        !sp_json_add_str(&b, message) || !sp_buf_printf(&b, "%s},\"id\":", data) ||
        !sp_buf_add_str(&b, id) || !sp_buf_add(&b, "}", 1))
        return;
    char *o = sp_link_reserve(conn->link, b.len);
    if (o != NULL) {
        memcpy(o, b.data, b.len);
        sp_link_commit(conn->link, b.len);
    }
}

void sp_conn_reply_error(struct sp_conn *conn, struct sp_str id, int code, struct sp_str message)
{
    reply_error(conn, id, code, message, "");
}

void sp_conn_reply_rejected(struct sp_conn *conn, struct sp_str id, int code, struct sp_str message)
{
    reply_error(conn, id, code, message, ",\"data\":{\"rejected\":true}");
}

/* The errno text goes behind the message, unless the message is already in the form that Codex
 * uses, "... (os error 2)": some clients parse it. */
static void reply_failure(struct sp_conn *conn, struct sp_str id, const struct sp_err *e)
{
    char text[640];

    if (e->sys != 0 && strstr(e->msg, "(os error ") == NULL)
        (void)snprintf(text, sizeof text, "%s: %s (os error %d)", e->msg, sp_errno_text(e->sys),
                       e->sys);
    else
        (void)snprintf(text, sizeof text, "%s", e->msg);
    sp_conn_reply_error(conn, id, sp_code_wire(e->code), sp_str_of(text));
}

int sp_rpc_call_reply(struct sp_rpc_call *c, struct sp_str result)
{
    reply(c->conn, c->id, result);
    sp_metrics_count(c->stats, c->started_us, SP_RPC_OUTCOME_OK);
    return 0;
}

/* ---- parked requests ---- */

static int check_parked_bytes(const struct sp_conn *conn, size_t more, struct sp_err *e)
{
    if (more <= SP_CONN_MAX_PARKED && conn->parked_bytes + more <= SP_CONN_MAX_PARKED)
        return 0;
    return sp_fail(
        e, SP_E_LIMIT, 0,
        "requests that wait on this connection hold too much memory; wait for some answers");
}

/* One allocation: the struct, then the extra bytes, then the id. Nothing of the call may be kept
 * otherwise: its strings are borrowed from a message that is gone when the method returns. */
struct sp_request *sp_rpc_call_park(struct sp_rpc_call *c, size_t extra, struct sp_err *e)
{
    struct sp_conn *conn = c->conn;
    const size_t held = sizeof(struct sp_request) + c->id.n + extra;

    if (check_parked_bytes(conn, held, e) < 0)
        return NULL;
    struct sp_request *r = malloc(held);
    if (r == NULL) {
        (void)sp_fail(e, SP_E_SYSTEM, ENOMEM, "keep the request");
        return NULL;
    }
    *r = (struct sp_request){
        .conn = conn, .stats = c->stats, .started_us = c->started_us, .held_bytes = held};
    char *id = (char *)(r + 1) + extra;
    memcpy(id, c->id.p, c->id.n);
    r->id = (struct sp_str){id, c->id.n};
    sp_list_prepend(&conn->requests, &r->link);
    conn->parked_bytes += held;
    return r;
}

int sp_request_charge(struct sp_request *r, size_t bytes, struct sp_err *e)
{
    const int checked = check_parked_bytes(r->conn, bytes, e);

    if (checked < 0)
        return checked;
    r->held_bytes += bytes;
    r->conn->parked_bytes += bytes;
    return 0;
}

/* A process is freed before its requests only with its session, which the request does not own. */
static void on_process_freed(struct sp_waiter *w)
{
    struct sp_request *r = SP_CONTAINER(w, struct sp_request, on_freed);

    sp_request_refuse(r, SP_E_STATE, 0, "process " SP_STR_FMT " is gone: its session has ended",
                      SP_STR_ARG(r->proc->id));
}

void sp_request_hold(struct sp_request *r, struct sp_proc *p)
{
    r->proc = p;
    p->requests++;
    r->on_freed.fn = on_process_freed;
    sp_waiters_add(&p->on_freed, &r->on_freed);
}

char *sp_request_extra(struct sp_request *r)
{
    return (char *)(r + 1);
}

/* Undoes every registration of the request, so that no callback can reach it afterwards. */
void sp_request_drop(struct sp_request *r)
{
    struct sp_conn *conn = r->conn;

    if (r->proc != NULL) {
        r->proc->requests--;
        sp_proc_settle(r->proc);
        if (r->is_stdin_end && r->waiter.list != NULL)
            r->proc->is_input_ending = false; /* dropped before stdin was closed */
    }
    sp_waiters_remove(&r->waiter);
    sp_waiters_remove(&r->on_freed);
    if (r->is_cell_call)
        sp_waiters_remove(&r->cell_call.call.waiter);
    if (r->is_file)
        sp_files_drop(&r->file.call);
    if (r->task != NULL)
        r->task->free(r->task);
    sp_loop_cancel(conn->rpc->front->loop, &r->timer);
    conn->parked_reads -= r->is_read;
    conn->parked_writes -= r->is_write;
    conn->parked_bytes -= r->held_bytes;
    sp_list_remove(&r->link);
    free(r);
}

void sp_request_end(struct sp_request *r, bool is_ok)
{
    sp_metrics_count(r->stats, r->started_us, is_ok ? SP_RPC_OUTCOME_OK : SP_RPC_OUTCOME_ERROR);
    sp_request_drop(r);
}

void sp_request_reply(struct sp_request *r, struct sp_str result)
{
    reply(r->conn, r->id, result);
    sp_request_end(r, true);
}

void sp_request_fail(struct sp_request *r, const struct sp_err *e)
{
    reply_failure(r->conn, r->id, e);
    sp_request_end(r, false);
}

/* ---- checks that methods share ---- */

/* Every method decodes its params first, so a malformed request gets its own error in every state.
 */
int sp_rpc_call_check(const struct sp_rpc_call *c, struct sp_err *e)
{
    const char *family = c->method->family;

    if (family == NULL || c->conn->state == SP_CONN_READY)
        return 0;
    if (c->conn->state == SP_CONN_NEW)
        return sp_fail(e, SP_E_STATE, 0, "client must call initialize before using %s methods",
                       family);
    return sp_fail(e, SP_E_STATE, 0, "client must send initialized before using %s methods",
                   family);
}

struct sp_params sp_rpc_call_params(const struct sp_rpc_call *c, struct sp_err *e)
{
    if (c->params == SP_JSON_NONE)
        (void)sp_fail(e, SP_E_INVALID, 0, "invalid type: null, expected an object of params");
    else if (sp_json_type(c->json, c->params) != SP_JSON_OBJECT)
        (void)sp_json_wrong_type(c->json, c->params, "an object of params", e);
    return (struct sp_params){.json = c->json, .object = c->params, .err = e};
}

/* ---- requests of the server to its client ---- */

/* The request has no time-out here: the caller withdraws it. The caller owns `a`, which must stay
 * where it is while it is linked. */
bool sp_ask_send(struct sp_ask *a, struct sp_conn *conn, const char *method, struct sp_str params,
                 void (*answered)(struct sp_ask *a, struct sp_str result))
{
    const struct sp_str name = sp_str_of(method);

    if (conn->is_closing || conn->ask_count >= SP_ASK_MAX)
        return false;
    char *const begin = sp_link_reserve(conn->link, 64 + SP_DECIMAL_MAX + name.n + params.n);
    if (begin == NULL)
        return false;
    *a = (struct sp_ask){.answered = answered, .conn = conn, .number = ++conn->last_ask};
    sp_list_prepend(&conn->asks, &a->link);
    conn->ask_count++;
    char *o = sp_put_literal(begin, "{\"id\":");
    o = sp_put_u64(o, a->number);
    o = sp_put_str(sp_put_literal(o, ",\"method\":\""), name);
    o = sp_put_str(sp_put_literal(o, "\",\"params\":"), params);
    *o++ = '}';
    sp_link_commit(conn->link, (size_t)(o - begin));
    return true;
}

void sp_ask_withdraw(struct sp_ask *a)
{
    if (a->conn == NULL)
        return;
    sp_list_remove(&a->link);
    a->conn->ask_count--;
    a->conn = NULL;
}

/* ---- the envelope ---- */

/* A message that is no JSON-RPC request has no id that could be trusted: it is answered with id -1,
 * and the connection goes on. */
static void reply_malformed(struct sp_conn *conn, const char *detail)
{
    char text[600];
    const bool is_websocket = sp_link_kind(conn->link) == SP_LINK_WEBSOCKET;

    (void)snprintf(text, sizeof text,
                   "failed to parse %sJSON-RPC message from exec-server %s%s: %s",
                   is_websocket ? "websocket " : "", is_websocket ? "websocket " : "",
                   sp_link_peer(conn->link), detail);
    sp_conn_reply_error(conn, SP_STR("-1"), -32600, sp_str_of(text));
    sp_metrics_count(&conn->rpc->stats[conn->rpc->stats_count - 1], sp_clock_us(),
                     SP_RPC_OUTCOME_ERROR);
}

void sp_conn_hang_up(struct sp_conn *conn, const char *why)
{
    conn->is_closing = true;
    sp_link_close(conn->link, why);
}

/* The trace context is checked and ignored. */
static bool is_trace(struct sp_json *j, uint32_t token)
{
    static const char *const members[] = {"traceparent", "tracestate"};

    if (token == SP_JSON_NONE || sp_json_type(j, token) == SP_JSON_NULL)
        return true;
    bool ok = sp_json_type(j, token) == SP_JSON_OBJECT;
    for (size_t i = 0; ok && i < sizeof members / sizeof members[0]; i++) {
        const uint32_t t = sp_json_get(j, token, members[i]);

        ok = t == SP_JSON_NONE || sp_json_type(j, t) == SP_JSON_STRING ||
             sp_json_type(j, t) == SP_JSON_NULL;
    }
    return ok;
}

/* A message without a method: an answer to a request of the server. */
static void on_answer(struct sp_conn *conn, struct sp_json *j, uint32_t id)
{
    const uint32_t result = sp_json_get(j, 0, "result");
    const uint32_t error = sp_json_get(j, 0, "error");
    const char *wrong = NULL;
    struct sp_err e = {0};
    struct sp_str message;
    int64_t number;

    if (result == SP_JSON_NONE) {
        if (error == SP_JSON_NONE)
            wrong = "missing field `error`";
        else if (sp_json_type(j, error) != SP_JSON_OBJECT)
            wrong = "invalid type: `error` is not an object";
        else if (sp_json_get(j, error, "code") == SP_JSON_NONE ||
                 !sp_json_i64(j, sp_json_get(j, error, "code"), &number))
            wrong = "an error without an integer `code`";
        else if (sp_json_need_str(j, error, "message", &message, &e) < 0)
            wrong = "an error without a `message`";
    }
    if (wrong == NULL && id == SP_JSON_NONE)
        wrong = "missing field `id`";
    if (wrong != NULL) {
        reply_malformed(conn, wrong);
        return;
    }
    if (!sp_json_i64(j, id, &number) || number < 1 || (uint64_t)number > conn->last_ask) {
        sp_conn_hang_up(conn, "answer with an id that the server never sent");
        return;
    }
    sp_list_each(i, &conn->asks) { /* none: it was withdrawn */
        struct sp_ask *a = SP_CONTAINER(i, struct sp_ask, link);

        if (a->number == (uint64_t)number) {
            const struct sp_str none = {0};

            sp_ask_withdraw(a);
            a->answered(a, result == SP_JSON_NONE ? none : sp_json_raw(j, result));
            return;
        }
    }
}

/* Without such a method, the statistics are those of unknown methods, which are the last. */
static void on_request(struct sp_rpc_call *c, struct sp_str name)
{
    const struct sp_session *session = c->conn->session;
    struct sp_err e = {0};

    sp_flight_method(&c->conn->rpc->strikes, name);
    c->stats = c->conn->rpc->stats;
    while (c->stats->method != NULL && !sp_str_eq(sp_str_of(c->stats->method->name), name))
        c->stats++;
    c->method = c->stats->method;
    if (c->method == NULL)
        (void)sp_fail(&e, SP_E_NO_METHOD, 0,
                      "exec-server stub does not implement `" SP_STR_FMT "` yet", SP_STR_ARG(name));
    else if (!is_allowed(c->conn, c->method->name))
        (void)sp_fail(&e, SP_E_STATE, 0,
                      "%s is not possible on the socket of a running `sallyport %s`: it would go "
                      "around the approvals there",
                      c->method->name, c->conn->rpc->kind);
    else if (sp_strikes_check(&c->conn->rpc->strikes, session == NULL ? 0 : session->number,
                              sp_link_peer(c->conn->link), &e) == 0 &&
             c->method->fn(c, &e) >= 0)
        return;
    reply_failure(c->conn, c->id, &e);
    sp_metrics_count(c->stats, c->started_us, SP_RPC_OUTCOME_ERROR);
}

/* A message is a request (method and id), a notification (method alone) or an answer to a request
 * of the server (id alone). `copy` is for requests that may have to be parsed again. */
static void on_object(struct sp_conn *conn, struct sp_json *j, struct sp_str copy,
                      uint64_t started_us)
{
    const uint32_t id = sp_json_get(j, 0, "id");
    const uint32_t method = sp_json_get(j, 0, "method");
    struct sp_err e = {0};

    if (id != SP_JSON_NONE && sp_json_type(j, id) != SP_JSON_STRING &&
        sp_json_type(j, id) != SP_JSON_INT) {
        reply_malformed(conn, "data did not match any variant of untagged enum RequestId: an id is "
                              "a string or a 64-bit integer");
    } else if (method == SP_JSON_NONE) {
        on_answer(conn, j, id);
    } else if (sp_json_type(j, method) != SP_JSON_STRING) {
        (void)sp_json_wrong_type(j, method, "a string", &e);
        reply_malformed(conn, e.msg);
    } else if (id == SP_JSON_NONE) {
        if (!sp_str_eq(sp_json_str(j, method), SP_STR("initialized")))
            sp_conn_hang_up(conn, "a notification that only a server may send");
        else if (conn->state == SP_CONN_NEW)
            sp_conn_hang_up(conn, "initialized before initialize");
        else
            conn->state = SP_CONN_READY;
    } else if (!is_trace(j, sp_json_get(j, 0, "trace"))) {
        reply_malformed(conn, "invalid type: `trace` is not a W3C trace context");
    } else {
        struct sp_rpc_call c = {.conn = conn,
                                .json = j,
                                .id = sp_json_raw(j, id),
                                .started_us = started_us,
                                .params = sp_json_get(j, 0, "params"),
                                .text = copy};

        if (c.params != SP_JSON_NONE && sp_json_type(j, c.params) == SP_JSON_NULL)
            c.params = SP_JSON_NONE;
        on_request(&c, sp_json_str(j, method));
    }
}

/* Parses and handles one message; changes `text`. The JSON tape is shared by all connections, so
 * tokens are valid only until the method returns. */
static void dispatch(struct sp_conn *conn, char *text, size_t len, uint64_t started_us)
{
    static const char process_key[] = "\"processId\"";
    static const char session_key[] = "\"sessionId\"";
    struct sp_json *j = &conn->rpc->json;
    struct sp_err e = {0};
    const struct sp_strikes *strikes = &conn->rpc->strikes;
    auto_free char *copy = NULL;

    sp_flight_begin(strikes, conn->session == NULL ? 0 : conn->session->number,
                    sp_link_peer(conn->link));
    /* Parsing unescapes strings in place, so a message that may be parsed again is copied first:
     * one about a process that is starting, of the connection's session or, if the message names a
     * session, of any. (An escaped spelling of a member is not found: such a call is refused.) */
    if (conn->session != NULL && conn->rpc->front->starting > 0 &&
        memmem(text, len, process_key, sizeof process_key - 1) != NULL &&
        (conn->session->starting > 0 ||
         memmem(text, len, session_key, sizeof session_key - 1) != NULL) &&
        (copy = malloc(len + 1)) != NULL)
        memcpy(copy, text, len);
    if (sp_json_parse(j, text, len, &e) == 0) {
        if (sp_json_type(j, 0) == SP_JSON_OBJECT)
            on_object(conn, j, (struct sp_str){copy, copy != NULL ? len : 0}, started_us);
        else
            reply_malformed(conn, "expected a JSON-RPC object");
    } else if (e.code == SP_E_SYSTEM) {
        sp_conn_hang_up(conn, "out of memory");
    } else {
        reply_malformed(conn, e.msg);
    }
    sp_json_trim(j);
    sp_flight_end(strikes);
}

/* ---- calls about a process that is starting ---- */

/* The process has started, or failed to. The parked call is handled again from its text, as if it
 * came now, but with its original time of arrival for the statistics. */
static void parse_again(struct sp_waiter *w)
{
    struct sp_request *r = SP_CONTAINER(w, struct sp_request, waiter);
    struct sp_conn *conn = r->conn;
    const struct sp_str text = r->again.text;
    const uint64_t started_us = r->started_us;
    auto_free char *copy = malloc(text.n + 1);

    if (copy != NULL)
        memcpy(copy, text.p, text.n);
    sp_request_drop(r);
    if (conn->is_closing)
        return;
    if (copy != NULL)
        dispatch(conn, copy, text.n, started_us);
    else
        sp_conn_hang_up(conn, "out of memory");
}

/* The start of the process waits for the gate: answers the call as its method says. */
static int answer_gated(struct sp_rpc_call *c, struct sp_gated *g, struct sp_err *e)
{
    switch (c->method->gated) {
    case SP_GATED_REFUSE:
        return sp_fail(e, SP_E_STATE, 0, "process id " SP_STR_FMT " is starting",
                       SP_STR_ARG(g->id));
    case SP_GATED_EXISTS:
        return sp_fail(e, SP_E_STATE, 0, "process " SP_STR_FMT " already exists",
                       SP_STR_ARG(g->id));
    case SP_GATED_STARTING:
        return sp_rpc_call_reply(c, SP_STR("{\"status\":\"starting\"}"));
    case SP_GATED_NOTHING:
        break;
    case SP_GATED_CANCEL:
        sp_request_refuse(g->request, SP_E_STATE, 0, "process " SP_STR_FMT " start was cancelled",
                          SP_STR_ARG(g->id));
        return sp_rpc_call_reply(c, SP_STR("{\"running\":true}"));
    }
    return sp_rpc_call_reply(c, SP_STR("{}"));
}

void sp_proc_target_read(const struct sp_params *p, struct sp_proc_target *ret)
{
    sp_params_str(p, "processId", &ret->id);
    sp_params_opt_str(p, "sessionId", &ret->session);
}

int sp_proc_target_find(struct sp_rpc_call *c, const struct sp_proc_target *t, struct sp_proc **ret,
                        struct sp_err *e)
{
    struct sp_session *s = c->conn->session;

    if (sp_rpc_call_check(c, e) < 0)
        return -(int)e->code;
    if (t->session.p != NULL && (s = sp_front_find(c->conn->rpc->front, t->session)) == NULL)
        return sp_fail(e, SP_E_STATE, 0, "unknown session id " SP_STR_FMT, SP_STR_ARG(t->session));
    struct sp_proc *p = NULL;
    if (sp_ended_find(s, t->id, &p, e) < 0)
        return -(int)e->code;
    *ret = p;
    if (p == NULL && c->conn->rpc->gate != NULL && s->client != NULL) {
        sp_list_each(i, &SP_CONTAINER(s->client, struct sp_conn, client)->gated) {
            struct sp_gated *g = SP_CONTAINER(i, struct sp_gated, link);

            if (sp_str_eq(g->id, t->id))
                return answer_gated(c, g, e) < 0 ? -(int)e->code : 1;
        }
    }
    if (p == NULL || p->life != SP_PROC_STARTING)
        return 0;
    if (c->text.p == NULL)
        return sp_fail(e, SP_E_STATE, 0, "process " SP_STR_FMT " is starting; try again",
                       SP_STR_ARG(t->id));
    struct sp_request *r = sp_rpc_call_park(c, c->text.n, e);
    if (r == NULL)
        return -(int)e->code;
    memcpy(sp_request_extra(r), c->text.p, c->text.n);
    r->again.text = (struct sp_str){sp_request_extra(r), c->text.n};
    r->waiter.fn = parse_again;
    sp_waiters_add(&p->waits_for_start, &r->waiter);
    return 1;
}

int sp_proc_target_unknown(const struct sp_proc_target *t, struct sp_err *e)
{
    return sp_fail(e, SP_E_STATE, 0, "unknown process id " SP_STR_FMT, SP_STR_ARG(t->id));
}

/* ---- flow control ---- */

/* Starts, or ended processes that wait to be told to the client, pile up. */
static bool is_pressed(const struct sp_conn *conn)
{
    return conn->session != NULL &&
           (sp_ended_is_pressed(conn->session) || sp_session_is_starting(conn->session));
}

/* A client that does not read its replies must not make the server queue more: its requests stay in
 * the socket. The same while a cell does not take messages. */
static void pause_if_full(struct sp_conn *conn)
{
    if (conn->is_paused || conn->is_closing)
        return;
    if (sp_link_queued(conn->link) > SP_CONN_MAX_QUEUED || conn->waits_for_cell ||
        is_pressed(conn)) {
        conn->is_paused = true;
        sp_link_pause(conn->link, true);
    }
}

static void resume_if_room(struct sp_conn *conn)
{
    if (conn->is_paused && !sp_link_is_full(conn->link) && !conn->waits_for_cell &&
        !is_pressed(conn)) {
        conn->is_paused = false;
        sp_link_pause(conn->link, false);
    }
}

void sp_conn_resume_all(struct sp_rpc *rpc)
{
    /* If its cell is still full, the connection is paused again after its next request. */
    sp_list_each(i, &rpc->conns) {
        struct sp_conn *conn = SP_CONTAINER(i, struct sp_conn, in_rpc);

        conn->waits_for_cell = false;
        resume_if_room(conn);
    }
}

void sp_conn_tell_end(struct sp_rpc *rpc)
{
    static const char text[] = "{\"method\":\"server/ending\",\"params\":{}}";

    sp_list_each(i, &rpc->conns) {
        const struct sp_conn *conn = SP_CONTAINER(i, struct sp_conn, in_rpc);
        const bool is_lines = sp_link_kind(conn->link) == SP_LINK_LINES && rpc->keeps_sessions;

        if (!is_lines || conn->is_closing || conn->state == SP_CONN_NEW)
            continue;
        char *room = sp_link_reserve(conn->link, sizeof text);
        if (room == NULL)
            continue;
        memcpy(room, text, sizeof text - 1);
        sp_link_commit(conn->link, sizeof text - 1);
    }
}

/* ---- events of the link ---- */

static void on_message(void *user, char *text, size_t len)
{
    struct sp_conn *conn = user;

    if (conn->is_closing)
        return;
    const struct sp_cells *cells = conn->rpc->front->cells;
    const uint64_t overflows = cells->overflows;
    dispatch(conn, text, len, sp_clock_us());
    if (cells->overflows != overflows)
        conn->waits_for_cell = true; /* it filled the outbox of a cell: no more until that drains */
    pause_if_full(conn);
}

static void on_not_text(void *user)
{
    struct sp_conn *conn = user;

    if (conn->is_closing)
        return;
    reply_malformed(conn, "invalid UTF-8");
    pause_if_full(conn);
}

static void on_drained(void *user)
{
    struct sp_conn *conn = user;

    resume_if_room(conn); /* before the queue fills up again: requests come first */
    sp_files_resume(conn->rpc->front->files, &conn->files);
    sp_waiters_wake(&conn->on_drained);
    sp_push_all(conn);
}

/* The link is gone. The order: requests, which hold processes and files, then what the families
 * keep for the connection, then the session. Requests are dropped without an answer; the session
 * stays for a resume, unless it was ended or the server is on stdio. */
static void on_closed(void *user, const char *why)
{
    struct sp_conn *conn = user;
    struct sp_rpc *rpc = conn->rpc;

    sp_log(SP_LOG_INFO, "connection %s closed: %s", sp_link_peer(conn->link), why);
    conn->is_closing = true; /* denied questions must not link processes to it */
    while (!sp_list_is_empty(&conn->requests)) {
        struct sp_request *r =
            SP_CONTAINER(sp_list_first(&conn->requests), struct sp_request, link);

        if (r->proc != NULL && r->proc->start_wait == &r->start.wait)
            r->proc->start_wait = NULL;
        sp_metrics_count(r->stats, r->started_us, SP_RPC_OUTCOME_DISCONNECTED);
        sp_request_drop(r);
    }
    while (sp_list_take_first(&conn->news) != NULL)
        ;
    sp_confirm_done(conn);
    for (size_t f = 0; f < FAMILIES; f++)
        if (families[f]->closed != NULL)
            families[f]->closed(conn);
    if (conn->session != NULL)
        sp_session_detach(conn->session, rpc->keeps_sessions && !conn->ends_session);
    sp_list_remove(&conn->in_rpc);
    free(conn->console.who);
    free(conn->console.via);
    free(conn);
}

static void on_confirmed(void *user, uint64_t mark)
{
    sp_confirm_heard(user, mark);
}

static const struct sp_link_ops link_ops = {.message = on_message,
                                            .not_text = on_not_text,
                                            .drained = on_drained,
                                            .closed = on_closed,
                                            .confirmed = on_confirmed};

/* ---- events of the session ---- */

/* A process of the session has new records. They are sent at once if the link has room. */
static void on_news(struct sp_session_client *client, struct sp_proc *p)
{
    struct sp_conn *conn = SP_CONTAINER(client, struct sp_conn, client);

    if (conn->is_closing)
        return; /* the next connection of the session begins with all processes */
    if (!sp_list_is_linked(&p->in_news))
        sp_list_append(&conn->news, &p->in_news);
    sp_push_all(conn);
}

static void on_gone(struct sp_session_client *client, struct sp_proc *p)
{
    sp_confirm_forget(SP_CONTAINER(client, struct sp_conn, client), p);
    sp_list_remove(&p->in_news);
}

/* Another client wants to resume the session: the link checks whether this one still lives. */
static void on_challenge(struct sp_session_client *client)
{
    sp_link_challenge(SP_CONTAINER(client, struct sp_conn, client)->link);
}

static void on_pressed(struct sp_session_client *client)
{
    struct sp_conn *conn = SP_CONTAINER(client, struct sp_conn, client);

    pause_if_full(conn);
    resume_if_room(conn);
}

bool sp_conn_opened(void *user, struct sp_link *l, const struct sp_link_ops **ret_ops,
                    void **ret_user)
{
    const struct sp_rpc_door *door = user;
    struct sp_rpc *rpc = door->rpc;
    struct sp_conn *conn = calloc(1, sizeof *conn);

    if (conn == NULL)
        return false;
    conn->client = (struct sp_session_client){
        .news = on_news, .gone = on_gone, .challenge = on_challenge, .pressed = on_pressed};
    conn->rpc = rpc;
    conn->link = l;
    conn->door = door->kind;
    sp_list_init(&conn->requests);
    sp_list_init(&conn->news);
    sp_list_init(&conn->views);
    sp_list_init(&conn->view_news);
    sp_list_init(&conn->gated);
    sp_list_init(&conn->asks);
    sp_list_init(&conn->web_jobs);
    sp_list_prepend(&rpc->conns, &conn->in_rpc);
    rpc->connections++;
    sp_log(SP_LOG_INFO, "connection %s opened", sp_link_peer(l));
    *ret_ops = &link_ops;
    *ret_user = conn;
    return true;
}

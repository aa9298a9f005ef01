/* SPDX-License-Identifier: Apache-2.0 */
#include "rpc/conn.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/auto.h"
#include "base/log.h"
#include "rpc/push.h"
#include "rpc/text.h"
#include "rpc/view.h"

const uint64_t sp_rpc_bucket_us[SP_RPC_BUCKETS] = {
    0,        5000,     10000,    25000,    50000,    75000,    100000,
    250000,   500000,   750000,   1000000,  2500000,  5000000,  7500000,
    10000000, 12000000, 15000000, 20000000, 30000000, 60000000, 120000000};

static uint64_t clock_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* ---- counting ---- */

enum outcome { OUTCOME_OK, OUTCOME_ERROR, OUTCOME_DISCONNECTED };

static void count_request(struct sp_rpc *rpc, const struct sp_method *m, uint64_t started_us,
                          enum outcome how)
{
    struct sp_method_stats *s = &rpc->stats[m != NULL ? (size_t)(m - sp_methods) : sp_method_count];
    const uint64_t us = clock_us() - started_us;
    int b = 0;

    s->ok += how == OUTCOME_OK;
    s->error += how == OUTCOME_ERROR;
    s->disconnected += how == OUTCOME_DISCONNECTED;
    s->total_us += us;
    while (b < SP_RPC_BUCKETS && us > sp_rpc_bucket_us[b])
        b++;
    s->buckets[b]++;
}

/* ---- replies ---- */

static const char id_key[] = "{\"id\":";
static const char result_key[] = ",\"result\":";

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

static void reply_error(struct sp_conn *conn, struct sp_str id, int code, struct sp_str message)
{
    auto_buf struct sp_buf b = {0};

    if (!sp_buf_printf(&b, "{\"error\":{\"code\":%d,\"message\":", code) ||
        !sp_json_add_str(&b, message) || !sp_buf_printf(&b, "},\"id\":") ||
        !sp_buf_add_str(&b, id) || !sp_buf_add(&b, "}", 1))
        return;
    char *o = sp_link_reserve(conn->link, b.len);
    if (o != NULL) {
        memcpy(o, b.data, b.len);
        sp_link_commit(conn->link, b.len);
    }
}

/* A failed start says what the kernel said and nothing else: clients show and some parse it. */
static void reply_failure(struct sp_conn *conn, struct sp_str id, const struct sp_error *e)
{
    char text[640];

    if (e->sys != 0 && strstr(e->msg, "(os error ") == NULL)
        (void)snprintf(text, sizeof text, "%s: %s (os error %d)", e->msg, strerrordesc_np(e->sys),
                       e->sys);
    else
        (void)snprintf(text, sizeof text, "%s", e->msg);
    reply_error(conn, id, sp_code_wire(e->code), sp_str_of(text));
}

void sp_call_reply(struct sp_call *c, struct sp_str result)
{
    reply(c->conn, c->id, result);
    sp_call_done(c);
}

void sp_call_done(struct sp_call *c)
{
    count_request(c->conn->rpc, c->method, c->started_us, OUTCOME_OK);
}

/* ---- requests that wait ---- */

struct sp_request *sp_call_park(struct sp_call *c, size_t extra, struct sp_error *e)
{
    struct sp_conn *conn = c->conn;
    const size_t held = sizeof(struct sp_request) + c->id.n + extra;

    if (conn->parked_bytes + held > SP_CONN_MAX_PARKED) {
        (void)sp_fail(
            e, SP_E_LIMIT, 0,
            "requests that wait on this connection hold too much memory; wait for some answers");
        return NULL;
    }
    struct sp_request *r = malloc(held);
    if (r == NULL) {
        (void)sp_fail(e, SP_E_SYSTEM, ENOMEM, "keep the request");
        return NULL;
    }
    *r = (struct sp_request){.conn = conn,
                             .method = c->method,
                             .started_us = c->started_us,
                             .held_bytes = held,
                             .next = conn->requests};
    char *id = (char *)(r + 1);
    memcpy(id, c->id.p, c->id.n);
    r->id = (struct sp_str){id, c->id.n};
    if (conn->requests != NULL)
        conn->requests->prev = r;
    conn->requests = r;
    conn->parked_bytes += held;
    return r;
}

static void on_freed(struct sp_waiter *w)
{
    struct sp_request *r = SP_CONTAINER(w, struct sp_request, on_freed);
    struct sp_error e = {0};

    (void)sp_fail(&e, SP_E_STATE, 0, "process " SP_STR_FMT " is gone: its session has ended",
                  SP_STR_ARG(r->proc->id));
    sp_request_fail(r, &e);
}

void sp_request_hold(struct sp_request *r, struct sp_proc *p)
{
    r->proc = p;
    p->requests++;
    r->on_freed.fn = on_freed;
    sp_waiters_add(&p->on_freed, &r->on_freed);
}

char *sp_request_extra(struct sp_request *r)
{
    return (char *)(r + 1) + r->id.n;
}

static void drop_request(struct sp_request *r)
{
    struct sp_conn *conn = r->conn;

    if (r->proc != NULL) {
        r->proc->requests--;
        if (r->is_stdin_end && r->waiter.list != NULL)
            r->proc->is_input_ending = false; /* its turn never came */
    }
    sp_waiters_remove(&r->waiter);
    sp_waiters_remove(&r->on_freed);
    if (r->is_ask)
        sp_waiters_remove(&r->ask.call.waiter);
    sp_loop_cancel(conn->rpc->server->loop, &r->timer);
    conn->parked_reads -= r->is_read;
    conn->parked_writes -= r->is_write;
    conn->parked_bytes -= r->held_bytes;
    if (r->prev != NULL)
        r->prev->next = r->next;
    else
        conn->requests = r->next;
    if (r->next != NULL)
        r->next->prev = r->prev;
    free(r);
}

void sp_request_end(struct sp_request *r, bool is_ok)
{
    count_request(r->conn->rpc, r->method, r->started_us, is_ok ? OUTCOME_OK : OUTCOME_ERROR);
    drop_request(r);
}

void sp_request_reply(struct sp_request *r, struct sp_str result)
{
    reply(r->conn, r->id, result);
    sp_request_end(r, true);
}

void sp_request_fail(struct sp_request *r, const struct sp_error *e)
{
    reply_failure(r->conn, r->id, e);
    sp_request_end(r, false);
}

/* ---- checks that every method makes ---- */

int sp_call_check(const struct sp_call *c, struct sp_error *e)
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

int sp_call_params(const struct sp_call *c, struct sp_error *e)
{
    if (c->params == SP_JSON_NONE)
        return sp_fail(e, SP_E_INVALID, 0, "invalid type: null, expected an object of params");
    if (sp_json_type(c->json, c->params) != SP_JSON_OBJECT)
        return sp_json_wrong_type(c->json, c->params, "an object of params", e);
    return 0;
}

int sp_call_no_params(const struct sp_call *c, struct sp_error *e)
{
    if (c->params == SP_JSON_NONE || sp_json_type(c->json, c->params) == SP_JSON_NULL)
        return 0;
    if (sp_json_type(c->json, c->params) == SP_JSON_OBJECT &&
        c->json->tokens[c->params].children == 0)
        return 0;
    return sp_json_wrong_type(c->json, c->params, "unit", e);
}

/* ---- the envelope ---- */

static void dispatch(struct sp_conn *conn, char *text, size_t len, uint64_t started_us);

static void read_again(struct sp_waiter *w)
{
    struct sp_request *r = SP_CONTAINER(w, struct sp_request, waiter);
    struct sp_conn *conn = r->conn;
    const struct sp_str text = r->again.text;
    const uint64_t started_us = r->started_us;
    char *copy = malloc(text.n + 1);

    if (copy != NULL)
        memcpy(copy, text.p, text.n);
    drop_request(r);
    if (conn->is_closing) {
        free(copy);
        return;
    }
    if (copy != NULL)
        dispatch(conn, copy, text.n, started_us);
    else
        sp_link_close(conn->link, "out of memory");
    free(copy);
}

int sp_call_proc(struct sp_call *c, const struct sp_session *s, struct sp_str id,
                 struct sp_proc **ret, bool *ret_waits, struct sp_error *e)
{
    struct sp_proc *p = sp_session_find(s, id);

    *ret_waits = false;
    *ret = p;
    if (p == NULL || p->life != SP_PROC_STARTING)
        return 0;
    if (c->text.p == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "keep the request");
    struct sp_request *r = sp_call_park(c, c->text.n, e);
    if (r == NULL)
        return -(int)e->code;
    memcpy(sp_request_extra(r), c->text.p, c->text.n);
    r->again.text = (struct sp_str){sp_request_extra(r), c->text.n};
    r->waiter.fn = read_again;
    sp_waiters_add(&p->on_started, &r->waiter);
    *ret_waits = true;
    return 0;
}

static void malformed(struct sp_conn *conn, const char *detail)
{
    char text[600];
    const bool is_websocket = sp_link_kind(conn->link) == SP_LINK_WEBSOCKET;

    (void)snprintf(text, sizeof text,
                   "failed to parse %sJSON-RPC message from exec-server %s%s: %s",
                   is_websocket ? "websocket " : "", is_websocket ? "websocket " : "",
                   sp_link_peer(conn->link), detail);
    reply_error(conn, SP_STR("-1"), -32600, sp_str_of(text));
    count_request(conn->rpc, NULL, clock_us(), OUTCOME_ERROR);
}

static void hang_up(struct sp_conn *conn, const char *why)
{
    conn->is_closing = true;
    sp_link_close(conn->link, why);
}

static bool is_string_or_null(struct sp_json *j, uint32_t token)
{
    return token == SP_JSON_NONE || sp_json_type(j, token) == SP_JSON_STRING ||
           sp_json_type(j, token) == SP_JSON_NULL;
}

static bool is_trace(struct sp_json *j, uint32_t token)
{
    if (token == SP_JSON_NONE || sp_json_type(j, token) == SP_JSON_NULL)
        return true;
    return sp_json_type(j, token) == SP_JSON_OBJECT &&
           is_string_or_null(j, sp_json_get(j, token, "traceparent")) &&
           is_string_or_null(j, sp_json_get(j, token, "tracestate"));
}

static bool is_id(const struct sp_json *j, uint32_t token)
{
    return sp_json_type(j, token) == SP_JSON_STRING || sp_json_type(j, token) == SP_JSON_INT;
}

static const struct sp_method *find_method(struct sp_str name)
{
    for (size_t i = 0; i < sp_method_count; i++)
        if (sp_str_eq(sp_str_of(sp_methods[i].name), name))
            return &sp_methods[i];
    return NULL;
}

static void on_request(struct sp_call *c, struct sp_str name)
{
    struct sp_error e = {0};
    struct sp_conn *conn = c->conn;

    c->method = find_method(name);
    if (c->method == NULL)
        (void)sp_fail(&e, SP_E_NO_METHOD, 0,
                      "exec-server stub does not implement `" SP_STR_FMT "` yet", SP_STR_ARG(name));
    else if (c->method->fn(c, &e) == 0)
        return;
    reply_failure(conn, c->id, &e);
    count_request(conn->rpc, c->method, c->started_us, OUTCOME_ERROR);
}

static void on_notification(struct sp_conn *conn, struct sp_str name)
{
    if (!sp_str_eq(name, SP_STR("initialized"))) {
        hang_up(conn, "a notification that only a server may send");
    } else if (conn->state == SP_CONN_NEW) {
        hang_up(conn, "initialized before initialize");
    } else {
        conn->state = SP_CONN_READY;
    }
}

/* What is wrong with a message that has no method; NULL: it is an answer. */
static const char *judge_answer(struct sp_json *j, uint32_t id)
{
    const uint32_t error = sp_json_get(j, 0, "error");
    struct sp_error e = {0};
    struct sp_str message;
    int64_t code;

    if (sp_json_get(j, 0, "result") == SP_JSON_NONE) {
        if (error == SP_JSON_NONE)
            return "missing field `error`";
        if (sp_json_type(j, error) != SP_JSON_OBJECT)
            return "invalid type: `error` is not an object";
        const uint32_t number = sp_json_get(j, error, "code");
        if (number == SP_JSON_NONE || !sp_json_i64(j, number, &code))
            return "an error without an integer `code`";
        if (sp_json_need_str(j, error, "message", &message, &e) < 0)
            return "an error without a `message`";
    }
    return id == SP_JSON_NONE ? "missing field `id`" : NULL;
}

/* Whether it may be about a process that is starting: of its own session, or of one it names. */
static bool may_have_to_wait(const struct sp_conn *conn, const char *text, size_t len)
{
    static const char named[] = "\"sessionId\"";

    if (conn->session == NULL)
        return false;
    return conn->session->starting > 0 ||
           (conn->rpc->server->starting > 0 && memmem(text, len, named, sizeof named - 1) != NULL);
}

static void dispatch(struct sp_conn *conn, char *text, size_t len, uint64_t started_us)
{
    struct sp_json *j = &conn->rpc->json;
    struct sp_error e = {0};
    auto_free char *copy = NULL;

    /* Reading changes the text; a request for a process that is starting is read again later. */
    if (may_have_to_wait(conn, text, len) && (copy = malloc(len + 1)) != NULL)
        memcpy(copy, text, len);
    if (sp_json_parse(j, text, len, &e) < 0) {
        if (e.code == SP_E_SYSTEM)
            hang_up(conn, "out of memory");
        else
            malformed(conn, e.msg);
        sp_json_trim(j);
        return;
    }
    if (sp_json_type(j, 0) != SP_JSON_OBJECT) {
        malformed(conn, "expected a JSON-RPC object");
        sp_json_trim(j);
        return;
    }
    const uint32_t id = sp_json_get(j, 0, "id");
    const uint32_t method = sp_json_get(j, 0, "method");
    if (id != SP_JSON_NONE && !is_id(j, id)) {
        malformed(conn, "data did not match any variant of untagged enum RequestId: an id is a "
                        "string or a 64-bit integer");
    } else if (method == SP_JSON_NONE) {
        const char *wrong = judge_answer(j, id);

        if (wrong != NULL)
            malformed(conn, wrong);
        else
            hang_up(conn, "an answer, though this server asks nothing");
    } else if (sp_json_type(j, method) != SP_JSON_STRING) {
        (void)sp_json_wrong_type(j, method, "a string", &e);
        malformed(conn, e.msg);
    } else if (id == SP_JSON_NONE) {
        on_notification(conn, sp_json_str(j, method));
    } else if (!is_trace(j, sp_json_get(j, 0, "trace"))) {
        malformed(conn, "invalid type: `trace` is not a W3C trace context");
    } else {
        struct sp_call c = {.conn = conn,
                            .json = j,
                            .id = sp_json_raw(j, id),
                            .started_us = started_us,
                            .params = sp_json_get(j, 0, "params"),
                            .text = {copy, copy != NULL ? len : 0}};

        if (c.params != SP_JSON_NONE && sp_json_type(j, c.params) == SP_JSON_NULL)
            c.params = SP_JSON_NONE;
        on_request(&c, sp_json_str(j, method));
    }
    sp_json_trim(j);
}

/* ---- the link ---- */

static void pause_if_full(struct sp_conn *conn)
{
    if (conn->is_paused || conn->is_closing)
        return;
    if (sp_link_queued(conn->link) > SP_CONN_MAX_QUEUED ||
        sp_server_is_congested(conn->rpc->server)) {
        conn->is_paused = true;
        sp_link_pause(conn->link, true);
    }
}

static void resume_if_room(struct sp_conn *conn)
{
    if (conn->is_paused && !sp_link_is_full(conn->link) &&
        !sp_server_is_congested(conn->rpc->server)) {
        conn->is_paused = false;
        sp_link_pause(conn->link, false);
    }
}

void sp_conn_resume_all(struct sp_rpc *rpc)
{
    for (struct sp_conn *c = rpc->first; c != NULL; c = c->next)
        resume_if_room(c);
}

static void on_message(void *user, char *text, size_t len)
{
    struct sp_conn *conn = user;

    if (conn->is_closing)
        return;
    dispatch(conn, text, len, clock_us());
    pause_if_full(conn);
}

static void on_not_text(void *user)
{
    struct sp_conn *conn = user;

    if (conn->is_closing)
        return;
    malformed(conn, "invalid UTF-8");
    pause_if_full(conn);
}

static void on_drained(void *user)
{
    struct sp_conn *conn = user;

    resume_if_room(conn); /* before the queue is filled again: requests come first */
    sp_waiters_wake(&conn->on_drained);
    sp_push_all(conn);
}

static void on_closed(void *user, const char *why)
{
    struct sp_conn *conn = user;
    struct sp_rpc *rpc = conn->rpc;

    sp_log(SP_LOG_INFO, "connection %s closed: %s", sp_link_peer(conn->link), why);
    while (conn->requests != NULL) {
        struct sp_request *r = conn->requests;

        if (r->proc != NULL && r->proc->start_wait == &r->start.wait)
            r->proc->start_wait = NULL;
        count_request(rpc, r->method, r->started_us, OUTCOME_DISCONNECTED);
        drop_request(r);
    }
    while (conn->news_first != NULL)
        sp_push_remove(conn, conn->news_first);
    sp_views_close(conn);
    if (conn->session != NULL)
        sp_session_detach(conn->session, rpc->keeps_sessions);
    if (conn->prev != NULL)
        conn->prev->next = conn->next;
    else
        rpc->first = conn->next;
    if (conn->next != NULL)
        conn->next->prev = conn->prev;
    free(conn);
}

static const struct sp_link_ops link_ops = {
    .message = on_message, .not_text = on_not_text, .drained = on_drained, .closed = on_closed};

static void on_news(struct sp_client *client, struct sp_proc *p)
{
    struct sp_conn *conn = SP_CONTAINER(client, struct sp_conn, client);

    sp_push_add(conn, p);
    sp_push_all(conn);
}

static void on_gone(struct sp_client *client, struct sp_proc *p)
{
    sp_push_remove(SP_CONTAINER(client, struct sp_conn, client), p);
}

static void on_challenge(struct sp_client *client)
{
    sp_link_challenge(SP_CONTAINER(client, struct sp_conn, client)->link);
}

bool sp_conn_opened(void *user, struct sp_link *l, const struct sp_link_ops **ret_ops,
                    void **ret_user)
{
    struct sp_rpc *rpc = user;
    struct sp_conn *conn = calloc(1, sizeof *conn);

    if (conn == NULL)
        return false;
    conn->client = (struct sp_client){.news = on_news, .gone = on_gone, .challenge = on_challenge};
    conn->rpc = rpc;
    conn->link = l;
    conn->next = rpc->first;
    if (rpc->first != NULL)
        rpc->first->prev = conn;
    rpc->first = conn;
    rpc->connections++;
    sp_log(SP_LOG_INFO, "connection %s opened", sp_link_peer(l));
    *ret_ops = &link_ops;
    *ret_user = conn;
    return true;
}

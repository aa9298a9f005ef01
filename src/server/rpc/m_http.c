/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http/request: decodes the request, hands it to core/http_client.h, and sends the response: whole,
 * or as a reply with the head and http/request/bodyDelta notifications with the body.
 *
 * The order of the checks is the protocol's: params, state of the connection, id of the stream,
 * method, URL, headers.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/auto.h"
#include "base/base64.h"
#include "base/env.h"
#include "base/utf8.h"
#include "core/http_client.h"
#include "core/http_url.h"
#include "server/rpc/conn.h"
#include "server/rpc/text.h"

/* Body of an http/request that is not streamed: with the rest, a message that clients accept. */
#define MAX_BODY (47U << 20)

/* The params. */
struct ask {
    struct sp_str method, url, id;
    uint32_t headers; /* array, or SP_JSON_NONE */
    struct sp_web_ask http;
    bool is_stream;
    struct sp_web_url address;
    struct sp_buf fields;
};

static void ask_done(struct ask *a)
{
    sp_web_url_done(&a->address);
    sp_buf_done(&a->fields);
}

#define auto_ask __attribute__((cleanup(ask_done)))

/* One request from its start until its response was sent. */
struct job {
    struct sp_conn *conn;
    struct sp_list link;        /* in conn->web_jobs */
    struct sp_request *request; /* NULL: answered; a stream is answered by its head */
    struct sp_web_call call;
    struct sp_waiter waiter; /* for room in the link */
    bool is_stream, is_over;
    bool is_others_turn; /* this job was served last when the link had room */
    uint64_t seq;
    struct sp_buf head;  /* not streamed: the beginning of the reply */
    struct sp_buf body;  /* not sent yet */
    struct sp_buf error; /* JSON; empty: none */
    struct sp_buf label; /* the id as JSON */
    size_t id_len;
    char id[];
};

/* ---- params ---- */

struct header {
    struct sp_str name, value;
    struct sp_str variable; /* name of a variable to append; p NULL: none */
};

static int read_header(struct sp_json *j, uint32_t t, struct header *ret, struct sp_err *e)
{
    const struct sp_params p = {j, t, e};

    *ret = (struct header){0};
    if (sp_json_type(j, t) != SP_JSON_OBJECT)
        return sp_json_wrong_type(j, t, "struct HttpHeader", e);
    sp_params_str(&p, "name", &ret->name);
    sp_params_str(&p, "value", &ret->value);
    sp_params_opt_str(&p, "valueEnvVar", &ret->variable);
    return sp_params_result(&p);
}

/* ---- headers ---- */

/* Variables with credentials, which no header may carry. */
static const char *const private_variables[] = {
    "OPENAI_API_KEY",
    "CODEX_API_KEY",
    "CODEX_ACCESS_TOKEN",
    "CODEX_CONNECTORS_TOKEN",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AZURE_CLIENT_SECRET",
    "AZURE_FEDERATED_TOKEN_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
};

/* Appends the value of the variable that the header names. */
static int add_variable(struct sp_rpc_call *c, const struct header *h, struct sp_buf *value,
                        struct sp_err *e)
{
    const struct sp_str name = h->variable;
    char *const *env = c->conn->rpc->env;
    bool is_private = sp_env_is_private(name);
    struct sp_str found = {0};
    const char *why = "cannot use executor environment variable";

    /* Compared without regard to case: the name is the client's choice. */
    for (size_t i = 0; i < sizeof private_variables / sizeof private_variables[0]; i++)
        is_private = is_private || sp_str_eq_nocase(name, sp_str_of(private_variables[i]));
    if (!is_private) {
        const bool is_name =
            name.n != 0 && !sp_str_has_nul(name) && memchr(name.p, '=', name.n) == NULL;

        for (size_t i = 0; is_name && env[i] != NULL && found.p == NULL; i++)
            if (strncmp(env[i], name.p, name.n) == 0 && env[i][name.n] == '=')
                found = sp_str_of(env[i] + name.n + 1);
        why = found.p == NULL || !sp_utf8_is_valid(found)
                  ? "requires executor environment variable"
                  : "requires a non-empty executor environment variable";
        if (found.n != 0 && sp_utf8_is_valid(found))
            return sp_buf_add_str(value, found)
                       ? 0
                       : sp_fail(e, SP_E_SYSTEM, ENOMEM, "read the headers");
    }
    return sp_fail(e, SP_E_INVALID, 0, "http/request header " SP_STR_FMT " %s " SP_STR_FMT,
                   SP_STR_ARG(h->name), why, SP_STR_ARG(name));
}

static int add_header(struct sp_rpc_call *c, struct ask *a, const struct header *h,
                      struct sp_err *e)
{
    auto_buf struct sp_buf name = {0};
    auto_buf struct sp_buf value = {0};
    bool ok = true;

    if (!sp_web_is_token(h->name))
        return sp_fail(e, SP_E_INVALID, 0,
                       "http/request header name is invalid: invalid HTTP header name");
    ok = sp_buf_add_str(&value, h->value);
    const int r = ok && h->variable.p != NULL ? add_variable(c, h, &value, e) : 0;
    if (r < 0)
        return r;
    const struct sp_str whole = {value.data, value.len};
    if (!sp_web_is_value(whole))
        return sp_fail(e, SP_E_INVALID, 0,
                       "http/request header value is invalid for " SP_STR_FMT
                       ": failed to parse header value",
                       SP_STR_ARG(h->name));
    ok = ok && sp_web_add_lower(&name, h->name) &&
         sp_web_field_put(&a->fields, &(struct sp_web_field){.name = {name.data, name.len},
                                                             .value = whole,
                                                             .is_private = h->variable.p != NULL});
    if (ok)
        return 0;
    return sp_fail(e, SP_E_LIMIT, 0, "http/request failed: the headers are larger than %u bytes",
                   SP_WEB_MAX_FIELDS);
}

static int make_fields(struct sp_rpc_call *c, struct ask *a, struct sp_err *e)
{
    static const char basic[] = "Basic ";
    const struct sp_params p = {c->json, a->headers, e};
    const struct sp_buf *user = &a->address.userinfo;
    auto_buf struct sp_buf value = {0};
    struct sp_web_field f;
    struct header h;

    a->fields.max = SP_WEB_MAX_FIELDS;
    sp_params_each(&p, a->headers, t)
        if (read_header(c->json, t, &h, e) == 0)
            (void)add_header(c, a, &h, e);
    if (!sp_params_ok(&p) || !a->address.has_userinfo)
        return sp_params_result(&p);
    /* USER:PASSWORD in the URL becomes an authorization header, unless there is one already. */
    struct sp_str rest = {a->fields.data, a->fields.len};
    while (sp_web_field_next(&rest, &f))
        if (sp_str_eq(f.name, SP_STR("authorization")))
            return 0;
    char *room = sp_buf_room(&value, sizeof basic + SP_BASE64_LEN(user->len));
    if (room != NULL)
        value.len = (size_t)(sp_base64_encode(sp_put_literal(room, basic), user->data, user->len) -
                             value.data);
    return room != NULL && sp_web_field_add(&a->fields, SP_STR("authorization"), sp_buf_str(&value))
               ? 0
               : sp_fail(e, SP_E_SYSTEM, ENOMEM, "read the URL");
}

/* ---- the end of a job ---- */

static void free_job(struct job *j)
{
    sp_web_drop(&j->call);
    sp_waiters_remove(&j->waiter);
    sp_list_remove(&j->link);
    sp_buf_done(&j->head);
    sp_buf_done(&j->body);
    sp_buf_done(&j->error);
    sp_buf_done(&j->label);
    free(j);
}

static void fail_job(struct job *j, const struct sp_err *e)
{
    struct sp_request *r = j->request;

    free_job(j);
    sp_request_fail(r, e);
}

static void close_jobs(struct sp_conn *conn)
{
    while (!sp_list_is_empty(&conn->web_jobs))
        free_job(SP_CONTAINER(sp_list_first(&conn->web_jobs), struct job, link));
}

/* ---- streamed bodies ---- */

/* One http/request/bodyDelta. The error goes into the last one alone. */
static void push_delta(struct job *j, struct sp_str bytes, bool is_last)
{
    const struct sp_str label = {j->label.data, j->label.len};
    const struct sp_str error = j->error.len == 0 ? SP_STR("null") : sp_buf_str(&j->error);
    char *const start =
        sp_link_reserve(j->conn->link, 160 + label.n + error.n + SP_BASE64_LEN(bytes.n));
    char *o = start;

    if (o == NULL)
        return; /* the connection is closing */
    o = sp_put_str(
        sp_put_literal(o, "{\"method\":\"http/request/bodyDelta\",\"params\":{\"requestId\":"),
        label);
    o = sp_put_u64(sp_put_literal(o, ",\"seq\":"), ++j->seq);
    o = sp_base64_encode(sp_put_literal(o, ",\"deltaBase64\":\""), bytes.p, bytes.n);
    o = sp_put_bool(sp_put_literal(o, "\",\"done\":"), is_last);
    o = sp_put_literal(o, ",\"error\":");
    o = is_last ? sp_put_str(o, error) : sp_put_literal(o, "null");
    o = sp_put_literal(o, "}}");
    sp_link_commit(j->conn->link, (size_t)(o - start));
}

static void flush_job(struct job *j);

static void on_room(struct sp_waiter *w)
{
    struct job *j = SP_CONTAINER(w, struct job, waiter);

    /* Every other time the output of processes goes first: an endless stream would starve it. */
    if (j->is_others_turn)
        sp_push_all(j->conn);
    j->is_others_turn = !j->is_others_turn;
    flush_job(j);
}

/* Sends the body so far, or waits until the link has room. Frees the job at the end of a stream. */
static void flush_job(struct job *j)
{
    if (j->body.len > 0 && sp_link_is_full(j->conn->link)) {
        if (j->waiter.list == NULL) {
            j->waiter.fn = on_room;
            sp_waiters_add(&j->conn->on_drained, &j->waiter);
        }
        return;
    }
    if (j->body.len > 0) {
        const size_t n = j->body.len;

        push_delta(j, (struct sp_str){j->body.data, n}, false);
        sp_buf_done(&j->body);
        sp_web_take(&j->call, n);
    }
    if (j->is_over) {
        push_delta(j, SP_STR(""), true);
        free_job(j);
    }
}

/* ---- the response ---- */

/* Status and headers. A stream is answered now; otherwise they begin the reply. */
static void on_head(struct sp_web_call *call, int status, struct sp_str fields)
{
    struct job *j = SP_CONTAINER(call, struct job, call);
    struct sp_buf *b = &j->head;
    const char *comma = "";
    struct sp_web_field f;
    struct sp_err e = {0};
    bool ok = sp_buf_printf(b, "{\"status\":%d,\"headers\":[", status);

    for (; ok && sp_web_field_next(&fields, &f); comma = ",")
        ok = sp_buf_printf(b, "%s{\"name\":", comma) && sp_json_add_str(b, f.name) &&
             sp_buf_printf(b, ",\"value\":") && sp_json_add_str(b, f.value) &&
             sp_buf_add(b, "}", 1);
    if (!ok || !sp_buf_printf(b, "],\"bodyBase64\":\"%s", j->is_stream ? "\"}" : "")) {
        (void)sp_fail(&e, SP_E_SYSTEM, ENOMEM, "http/request failed");
        fail_job(j, &e);
        return;
    }
    if (!j->is_stream)
        return;
    struct sp_request *r = TAKE_PTR(j->request);
    sp_request_reply(r, sp_buf_str(&j->head));
    sp_buf_done(&j->head);
}

/* Bytes are acknowledged (sp_web_take) once they are sent or kept; the worker sends at most
 * SP_WEB_WINDOW unacknowledged bytes. */
static void on_body(struct sp_web_call *call, struct sp_str bytes)
{
    struct job *j = SP_CONTAINER(call, struct job, call);
    struct sp_conn *conn = j->conn;
    struct sp_err e = {0};
    int r = 0;

    if (j->is_stream) {
        if (sp_buf_add_str(&j->body, bytes))
            flush_job(j);
        else
            sp_conn_hang_up(conn, "out of memory");
        return;
    }
    /* Not streamed: collected, within what the connection may hold. */
    if (j->body.len + bytes.n > MAX_BODY)
        r = sp_fail(&e, SP_E_LIMIT, 0, "it is larger than %u bytes; ask with streamResponse",
                    MAX_BODY);
    if (r == 0)
        r = sp_request_charge(j->request, bytes.n, &e);
    if (r == 0 && !sp_buf_add_str(&j->body, bytes))
        r = sp_fail(&e, SP_E_SYSTEM, 0, "out of memory");
    if (r == 0) {
        sp_web_take(&j->call, bytes.n);
        return;
    }
    (void)sp_wrap(&e, "failed to read http/request response body");
    fail_job(j, &e);
}

/* The response is complete (why NULL) or has failed. A stream that fails reports it in its last
 * delta, since its request was answered with the head. */
static void on_done(struct sp_web_call *call, const char *why)
{
    struct job *j = SP_CONTAINER(call, struct job, call);
    struct sp_err e = {0};

    j->is_over = true;
    if (j->request == NULL) {
        if (why != NULL)
            (void)sp_json_add_str(&j->error, sp_str_of(why));
        flush_job(j);
    } else if (why != NULL) {
        (void)sp_fail(&e, SP_E_FAILED, 0, "%s: %s",
                      j->head.len > 0 ? "failed to read http/request response body"
                                      : "http/request failed",
                      why);
        fail_job(j, &e);
    } else {
        struct sp_request *r = j->request;
        char *const begin =
            sp_reply_begin(r->conn, r->id, j->head.len + SP_BASE64_LEN(j->body.len) + 2);

        if (begin != NULL) {
            char *o = sp_put(begin, j->head.data, j->head.len);

            o = sp_base64_encode(o, j->body.data, j->body.len);
            sp_reply_end(r->conn, r->id, begin, sp_put_literal(o, "\"}"));
        }
        free_job(j);
        sp_request_end(r, true);
    }
}

static const struct sp_web_ops web_ops = {.head = on_head, .body = on_body, .done = on_done};

/* ---- the method ---- */

/* Parks the call until the response comes. */
static int begin_job(struct sp_rpc_call *c, const struct ask *a, struct sp_err *e)
{
    struct sp_conn *conn = c->conn;
    struct sp_rpc *rpc = conn->rpc;
    const struct sp_web_ask *ask = &a->http;
    /* The id is kept twice: as it is and as JSON. */
    const size_t held = 2 * a->id.n + ask->url.n + ask->fields.n + ask->body.n;
    int r = 0;

    if (rpc->web == NULL)
        r = sp_web_new(rpc->front->loop, rpc->front->options.program, rpc->env, &rpc->web, e);
    if (r < 0)
        return r;
    struct sp_request *request = sp_rpc_call_park(c, 0, e);
    if (request == NULL)
        return sp_wrap(e, "http/request failed");
    struct job *j = calloc(1, sizeof *j + a->id.n);
    if (j != NULL) {
        j->conn = conn;
        j->call.ops = &web_ops;
        j->is_stream = a->is_stream;
        j->id_len = a->id.n;
        memcpy(j->id, a->id.p, a->id.n);
        sp_list_prepend(&conn->web_jobs, &j->link);
    }
    if (j == NULL || !sp_json_add_str(&j->label, a->id))
        r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "keep the request");
    if (r == 0)
        r = sp_request_charge(request, held, e);
    if (r == 0)
        r = sp_web_ask(rpc->web, &conn->web, ask, &j->call, e);
    if (r == 0) {
        j->request = request;
        return 0;
    }
    sp_request_drop(request);
    if (j != NULL)
        free_job(j);
    return sp_wrap(e, "http/request failed");
}

static int http_request(struct sp_rpc_call *c, struct sp_err *e)
{
    auto_ask struct ask a = {.headers = SP_JSON_NONE, .http.timeout_ms = SP_WEB_NO_TIMEOUT};
    const struct sp_params p = sp_rpc_call_params(c, e);
    struct sp_str policy = SP_STR("follow");
    struct header h;

    sp_params_str(&p, "method", &a.method);
    sp_params_str(&p, "url", &a.url);
    /* Only the types are checked here: headers are read again after the state and the URL. */
    if (sp_params_ok(&p) && sp_json_get(p.json, p.object, "headers") != SP_JSON_NONE)
        sp_params_array(&p, "headers", &a.headers);
    sp_params_each(&p, a.headers, t)
        (void)read_header(p.json, t, &h, e);
    sp_params_opt_str(&p, "bodyBase64", &a.http.body);
    if (sp_params_ok(&p) && a.http.body.n != 0) /* in place: the message is ours to write in */
        (void)sp_base64_decode(a.http.body, (char *)(uintptr_t)a.http.body.p, &a.http.body.n, e);
    sp_params_opt_u64(&p, "timeoutMs", UINT64_MAX, &a.http.timeout_ms);
    sp_params_def_str(&p, "redirectPolicy", &policy);
    a.http.follows = sp_str_eq(policy, SP_STR("follow"));
    if (sp_params_ok(&p) && !a.http.follows && !sp_str_eq(policy, SP_STR("stop")))
        (void)sp_fail(e, SP_E_INVALID, 0,
                      "unknown variant `" SP_STR_FMT "`, expected `follow` or `stop`",
                      SP_STR_ARG(policy));
    sp_params_str(&p, "requestId", &a.id);
    sp_params_def_bool(&p, "streamResponse", &a.is_stream);
    if (!sp_params_ok(&p) || sp_rpc_call_check(c, e) < 0)
        return sp_params_result(&p);
    sp_list_each(i, &c->conn->web_jobs) { /* deltas carry nothing but the id of their stream */
        const struct job *j = SP_CONTAINER(i, struct job, link);

        if (a.is_stream && j->is_stream && sp_str_eq((struct sp_str){j->id, j->id_len}, a.id))
            return sp_fail(e, SP_E_INVALID, 0,
                           "http/request streamResponse requestId `" SP_STR_FMT
                           "` is already active",
                           SP_STR_ARG(a.id));
    }
    if (!sp_web_is_token(a.method))
        return sp_fail(e, SP_E_INVALID, 0, "http/request method is invalid: invalid HTTP method");
    if (sp_str_eq(a.method, SP_STR("CONNECT")))
        return sp_fail(e, SP_E_INVALID, 0,
                       "http/request method is invalid: CONNECT makes a tunnel, which no reply "
                       "can carry");
    if (sp_web_url_read(a.url, &a.address, e) < 0)
        return sp_wrap(e, "http/request url is invalid");
    if (!a.address.is_http)
        return sp_fail(e, SP_E_INVALID, 0,
                       "http/request only supports http and https URLs, got " SP_STR_FMT,
                       SP_STR_ARG((sp_buf_str(&a.address.scheme))));
    if (make_fields(c, &a, e) < 0)
        return -(int)e->code;
    a.http.method = a.method;
    a.http.url = sp_buf_str(&a.address.text);
    a.http.fields = sp_buf_str(&a.fields);
    return begin_job(c, &a, e);
}

static const struct sp_method methods[] = {
    {"http/request", "http", .fn = http_request},
    {0},
};

const struct sp_family sp_http_family = {.methods = methods, .closed = close_jobs};

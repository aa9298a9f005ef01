/* SPDX-License-Identifier: Apache-2.0 */
#include "server/rpc/http_relay.h"

#include <errno.h>
#include <stdlib.h>

#include "base/auto.h"
#include "base/base64.h"
#include "server/rpc/conn_priv.h"
#include "server/rpc/push.h"
#include "server/rpc/text.h"

/* Its request has a reply as soon as there is a head to stream behind, or when all is there. */
struct sp_web_job {
    struct sp_conn *conn;
    struct sp_web_job *prev, *next;
    struct sp_request *request; /* NULL: answered */
    struct sp_web_call call;
    struct sp_waiter waiter; /* for room in the link */
    bool is_stream, is_over;
    bool is_others_turn; /* the link had room for this one the last time */
    uint64_t seq;
    struct sp_buf head;  /* not streamed: the beginning of the reply */
    struct sp_buf body;  /* what was not yet sent */
    struct sp_buf error; /* JSON; empty: none */
    struct sp_buf label; /* the id as JSON */
    size_t id_len;
    char id[];
};

/* ---- ends ---- */

static void free_job(struct sp_web_job *j)
{
    struct sp_conn *conn = j->conn;

    sp_web_drop(&j->call);
    sp_waiters_remove(&j->waiter);
    *(j->prev == NULL ? &conn->web_jobs : &j->prev->next) = j->next;
    if (j->next != NULL)
        j->next->prev = j->prev;
    sp_buf_done(&j->head);
    sp_buf_done(&j->body);
    sp_buf_done(&j->error);
    sp_buf_done(&j->label);
    free(j);
}

static void fail(struct sp_web_job *j, const struct sp_err *e)
{
    struct sp_request *r = j->request;

    free_job(j);
    sp_request_fail(r, e);
}

void sp_web_close(struct sp_conn *conn)
{
    while (conn->web_jobs != NULL)
        free_job(conn->web_jobs);
}

bool sp_web_is_active(const struct sp_conn *conn, struct sp_str id)
{
    for (const struct sp_web_job *j = conn->web_jobs; j != NULL; j = j->next)
        if (j->is_stream && sp_str_eq((struct sp_str){j->id, j->id_len}, id))
            return true;
    return false;
}

/* ---- deltas ---- */

static void push_delta(struct sp_web_job *j, struct sp_str bytes, bool is_last)
{
    const struct sp_str label = {j->label.data, j->label.len};
    const struct sp_str error =
        j->error.len == 0 ? SP_STR("null") : (struct sp_str){j->error.data, j->error.len};
    char *const start =
        sp_link_reserve(j->conn->link, 160 + label.n + error.n + SP_BASE64_LEN(bytes.n));
    char *o = start;

    if (o == NULL)
        return; /* the connection is closing */
    o = sp_put_literal(o, "{\"method\":\"http/request/bodyDelta\",\"params\":{\"requestId\":");
    o = sp_put_str(o, label);
    o = sp_put_literal(o, ",\"seq\":");
    o = sp_put_u64(o, ++j->seq);
    o = sp_put_literal(o, ",\"deltaBase64\":\"");
    o = sp_base64_encode(o, bytes.p, bytes.n);
    o = sp_put_literal(o, "\",\"done\":");
    o = sp_put_bool(o, is_last);
    o = sp_put_literal(o, ",\"error\":");
    o = is_last ? sp_put_str(o, error) : sp_put_literal(o, "null");
    o = sp_put_literal(o, "}}");
    sp_link_commit(j->conn->link, (size_t)(o - start));
}

static void flush(struct sp_web_job *j);

static void on_room(struct sp_waiter *w)
{
    struct sp_web_job *j = SP_CONTAINER(w, struct sp_web_job, waiter);

    /* A stream without end is not to keep the output of processes back. */
    if (j->is_others_turn)
        sp_push_all(j->conn);
    j->is_others_turn = !j->is_others_turn;
    flush(j);
}

/* Sends what is there if the link has room; waits for that otherwise. May free the job. */
static void flush(struct sp_web_job *j)
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

/* ---- replies ---- */

static bool add_head(struct sp_buf *b, int status, struct sp_str fields)
{
    struct sp_str name;
    struct sp_str value;
    const char *comma = "";
    bool ok = sp_buf_printf(b, "{\"status\":%d,\"headers\":[", status);

    while (ok && sp_web_field_next(&fields, &name, &value)) {
        ok = sp_buf_printf(b, "%s{\"name\":", comma) && sp_json_add_str(b, name) &&
             sp_buf_printf(b, ",\"value\":") && sp_json_add_str(b, value) && sp_buf_add(b, "}", 1);
        comma = ",";
    }
    return ok && sp_buf_printf(b, "],\"bodyBase64\":\"");
}

static void on_head(struct sp_web_call *call, int status, struct sp_str fields)
{
    struct sp_web_job *j = SP_CONTAINER(call, struct sp_web_job, call);
    struct sp_err e = {0};

    if (!add_head(&j->head, status, fields) ||
        (j->is_stream && !sp_buf_add_str(&j->head, SP_STR("\"}")))) {
        (void)sp_fail(&e, SP_E_SYSTEM, ENOMEM, "http/request failed");
        fail(j, &e);
        return;
    }
    if (!j->is_stream)
        return;
    struct sp_request *r = TAKE_PTR(j->request);
    sp_request_reply(r, (struct sp_str){j->head.data, j->head.len});
    sp_buf_done(&j->head);
}

/* Not streamed: kept until it is whole, as long as the connection may hold so much. */
static void keep(struct sp_web_job *j, struct sp_str bytes)
{
    struct sp_err e = {0};
    int r = 0;

    if (j->body.len + bytes.n > SP_WEB_MAX_BODY)
        r = sp_fail(&e, SP_E_LIMIT, 0, "it is larger than %u bytes; ask with streamResponse",
                    SP_WEB_MAX_BODY);
    if (r == 0)
        r = sp_request_charge(j->request, bytes.n, &e);
    if (r == 0 && !sp_buf_add_str(&j->body, bytes))
        r = sp_fail(&e, SP_E_SYSTEM, ENOMEM, "keep it");
    if (r == 0) {
        sp_web_take(&j->call, bytes.n);
        return;
    }
    (void)sp_wrap(&e, "failed to read http/request response body");
    fail(j, &e);
}

static void on_body(struct sp_web_call *call, struct sp_str bytes)
{
    struct sp_web_job *j = SP_CONTAINER(call, struct sp_web_job, call);
    struct sp_conn *conn = j->conn;

    if (!j->is_stream) {
        keep(j, bytes);
    } else if (sp_buf_add_str(&j->body, bytes)) {
        flush(j);
    } else {
        conn->is_closing = true;
        sp_link_close(conn->link, "out of memory");
    }
}

static void reply_whole(struct sp_web_job *j)
{
    struct sp_request *r = j->request;
    const size_t max = j->head.len + SP_BASE64_LEN(j->body.len) + 2;
    char *const begin = sp_reply_begin(r->conn, r->id, max);
    char *o = begin;

    if (o != NULL) {
        o = sp_put(o, j->head.data, j->head.len);
        o = sp_base64_encode(o, j->body.data, j->body.len);
        o = sp_put_literal(o, "\"}");
        sp_reply_end(r->conn, r->id, begin, o);
    }
    free_job(j);
    sp_request_end(r, true);
}

static void on_done(struct sp_web_call *call, const char *why)
{
    struct sp_web_job *j = SP_CONTAINER(call, struct sp_web_job, call);
    struct sp_err e = {0};

    j->is_over = true;
    if (j->request == NULL) {
        if (why != NULL)
            (void)sp_json_add_str(&j->error, sp_str_of(why));
        flush(j);
    } else if (why != NULL) {
        (void)sp_fail(&e, SP_E_FAILED, 0, "%s: %s",
                      j->head.len > 0 ? "failed to read http/request response body"
                                      : "http/request failed",
                      why);
        fail(j, &e);
    } else {
        reply_whole(j);
    }
}

/* ---- beginning ---- */

static const struct sp_web_ops ops = {.head = on_head, .body = on_body, .done = on_done};

static int find_web(struct sp_rpc *rpc, struct sp_err *e)
{
    return rpc->web != NULL ? 0
                            : sp_web_new(rpc->server->loop, rpc->server->options.program,
                                         rpc->environ, &rpc->web, e);
}

static struct sp_web_job *make_job(struct sp_conn *conn, struct sp_str id, bool is_stream)
{
    struct sp_web_job *j = calloc(1, sizeof *j + id.n);

    if (j == NULL)
        return NULL;
    j->conn = conn;
    j->next = conn->web_jobs;
    j->call.ops = &ops;
    j->is_stream = is_stream;
    j->id_len = id.n;
    memcpy(j->id, id.p, id.n);
    if (j->next != NULL)
        j->next->prev = j;
    conn->web_jobs = j;
    if (sp_json_add_str(&j->label, id))
        return j;
    free_job(j);
    return NULL;
}

/* What it is made of counts as what the connection holds; the id is kept twice. */
static int start(struct sp_web_job *j, struct sp_request *r, const struct sp_web_ask *ask,
                 struct sp_err *e)
{
    const size_t held = 2 * j->id_len + ask->url.n + ask->fields.n + ask->body.n;
    const int charged = sp_request_charge(r, held, e);

    return charged < 0 ? charged : sp_web_ask(j->conn->rpc->web, &j->conn->web, ask, &j->call, e);
}

int sp_web_begin(struct sp_rpc_call *c, const struct sp_web_ask *ask, struct sp_str id,
                 bool is_stream, struct sp_err *e)
{
    if (find_web(c->conn->rpc, e) < 0)
        return -(int)e->code;
    struct sp_request *request = sp_rpc_call_park(c, 0, e);
    if (request == NULL)
        return sp_wrap(e, "http/request failed");
    struct sp_web_job *j = make_job(c->conn, id, is_stream);
    const int r =
        j == NULL ? sp_fail(e, SP_E_SYSTEM, ENOMEM, "keep the request") : start(j, request, ask, e);
    if (r == 0 && j != NULL) {
        j->request = request;
        return 0;
    }
    sp_request_drop(request);
    if (j != NULL)
        free_job(j);
    return sp_wrap(e, "http/request failed");
}

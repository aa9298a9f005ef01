/* SPDX-License-Identifier: Apache-2.0 */
/* request: writes replies, keeps parked requests and counts finished ones. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/auto.h"
#include "base/clock.h"
#include "server/rpc/conn.h"
#include "server/rpc/fs.h"
#include "server/rpc/start_gate.h"
#include "server/rpc/text.h"

const uint64_t sp_rpc_bucket_us[SP_RPC_BUCKETS] = {
    0,        5000,     10000,    25000,    50000,    75000,    100000,
    250000,   500000,   750000,   1000000,  2500000,  5000000,  7500000,
    10000000, 12000000, 15000000, 20000000, 30000000, 60000000, 120000000};

/* The histogram is not cumulative here; metrics.c sums it up. */
void sp_conn_count(struct sp_method_stats *s, uint64_t started_us, enum sp_rpc_outcome how)
{
    const uint64_t us = sp_clock_us() - started_us;
    int b = 0;

    s->ok += how == SP_RPC_OUTCOME_OK;
    s->error += how == SP_RPC_OUTCOME_ERROR;
    s->disconnected += how == SP_RPC_OUTCOME_DISCONNECTED;
    s->total_us += us;
    while (b < SP_RPC_BUCKETS && us > sp_rpc_bucket_us[b])
        b++;
    s->buckets[b]++;
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
void sp_conn_reply_error(struct sp_conn *conn, struct sp_str id, int code, struct sp_str message)
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

/* The errno text goes behind the message, unless the message is already in the form that Codex
 * uses, "... (os error 2)": some clients parse it. */
void sp_conn_reply_failure(struct sp_conn *conn, struct sp_str id, const struct sp_err *e)
{
    char text[640];

    if (e->sys != 0 && strstr(e->msg, "(os error ") == NULL)
        (void)snprintf(text, sizeof text, "%s: %s (os error %d)", e->msg, strerrordesc_np(e->sys),
                       e->sys);
    else
        (void)snprintf(text, sizeof text, "%s", e->msg);
    sp_conn_reply_error(conn, id, sp_code_wire(e->code), sp_str_of(text));
}

void sp_rpc_call_reply(struct sp_rpc_call *c, struct sp_str result)
{
    reply(c->conn, c->id, result);
    sp_rpc_call_done(c);
}

void sp_rpc_call_done(struct sp_rpc_call *c)
{
    sp_conn_count(c->stats, c->started_us, SP_RPC_OUTCOME_OK);
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
    struct sp_err e = {0};

    (void)sp_fail(&e, SP_E_STATE, 0, "process " SP_STR_FMT " is gone: its session has ended",
                  SP_STR_ARG(r->proc->id));
    sp_request_fail(r, &e);
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
        if (r->is_stdin_end && r->waiter.list != NULL)
            r->proc->is_input_ending = false; /* dropped before stdin was closed */
    }
    sp_waiters_remove(&r->waiter);
    sp_waiters_remove(&r->on_freed);
    if (r->is_ask)
        sp_waiters_remove(&r->ask.call.waiter);
    if (r->is_file)
        sp_files_drop(&r->file.call);
    sp_fs_release(r);
    if (r->task != NULL)
        r->task->free(r->task);
    if (r->gated != NULL)
        sp_gated_forget(r);
    sp_loop_cancel(conn->rpc->server->loop, &r->timer);
    conn->parked_reads -= r->is_read;
    conn->parked_writes -= r->is_write;
    conn->parked_bytes -= r->held_bytes;
    sp_list_remove(&r->link);
    free(r);
}

void sp_request_end(struct sp_request *r, bool is_ok)
{
    sp_conn_count(r->stats, r->started_us, is_ok ? SP_RPC_OUTCOME_OK : SP_RPC_OUTCOME_ERROR);
    sp_request_drop(r);
}

void sp_request_reply(struct sp_request *r, struct sp_str result)
{
    reply(r->conn, r->id, result);
    sp_request_end(r, true);
}

void sp_request_fail(struct sp_request *r, const struct sp_err *e)
{
    sp_conn_reply_failure(r->conn, r->id, e);
    sp_request_end(r, false);
}

void sp_request_fail_memory(struct sp_request *r, const char *what)
{
    struct sp_err e = {0};

    (void)sp_fail(&e, SP_E_SYSTEM, ENOMEM, "%s", what);
    sp_request_fail(r, &e);
}

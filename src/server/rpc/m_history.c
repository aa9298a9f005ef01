/* SPDX-License-Identifier: Apache-2.0 */
/* history/list, history/output and history/remove: the processes that have ended (core/history.h).
 */
#include <errno.h>

#include "base/auto.h"
#include "base/base64.h"
#include "base/clock.h"
#include "base/uri.h"
#include "core/proc_receipt.h"
#include "server/rpc/conn.h"

#define HISTORY_LIST_MAX 200 /* entries of one answer */

/* ---- history/list ---- */

static bool add_argv(struct sp_buf *b, struct sp_str words)
{
    bool ok = sp_buf_printf(b, ",\"argv\":[");

    for (bool is_first = true; ok && words.n > 0; is_first = false)
        ok = (is_first || sp_buf_add(b, ",", 1)) && sp_json_add_str(b, sp_str_cut(&words, 0));
    return ok && sp_buf_add(b, "]", 1);
}

/* The members of process/list, and what is known since the end. */
static bool add_past(struct sp_buf *b, const struct sp_history_entry *p, bool has_receipt)
{
    static const char *const reasons[SP_HISTORY_REASON_MAX] = {
        [SP_HISTORY_EXITED] = "exited",
        [SP_HISTORY_SIGNALED] = "signaled",
        [SP_HISTORY_TERMINATED] = "terminated",
        [SP_HISTORY_SESSION_ENDED] = "sessionEnded",
        [SP_HISTORY_LOST] = "lost",
    };
    const struct sp_sandbox_facts sandbox = sp_history_sandbox_facts(p);
    bool ok = sp_buf_printf(b, "{\"historyId\":%llu", (unsigned long long)p->id) &&
              sp_json_add_member(b, "sessionId", p->session) &&
              sp_json_add_member(b, "processId", p->process) &&
              (p->name.n == 0 || sp_json_add_member(b, "name", p->name)) &&
              (p->client.n == 0 || sp_json_add_member(b, "clientName", p->client)) &&
              sp_buf_printf(b, ",\"pid\":%u,\"tty\":%s,\"reason\":\"%s\"", p->pid,
                            p->is_tty ? "true" : "false", reasons[p->reason]);

    ok = ok && (p->has_exited ? sp_buf_printf(b, ",\"exitCode\":%d", (int)p->exit.code)
                              : sp_buf_printf(b, ",\"exitCode\":null"));
    if (ok && p->has_exited && p->exit.signal != 0)
        ok = sp_buf_printf(b, ",\"signal\":%d", (int)p->exit.signal);
    return ok &&
           sp_buf_printf(
               b, ",\"nextSeq\":%llu,\"startedAtMs\":%lld,\"endedAtMs\":%lld,\"outputBytes\":%llu",
               (unsigned long long)p->next_seq, (long long)p->started_ms, (long long)p->ended_ms,
               (unsigned long long)p->kept_bytes + p->missed_bytes) &&
           sp_buf_printf(b, ",\"hasOutput\":%s,\"recording\":null",
                         p->kept_bytes > 0 ? "true" : "false") &&
           add_argv(b, p->argv) && sp_buf_printf(b, ",\"cwd\":\"") && sp_uri_add(b, p->cwd) &&
           sp_buf_printf(b, "\"") && (!p->is_confined || sp_sandbox_add_member(b, &sandbox)) &&
           (!has_receipt || sp_history_add_receipt(b, p)) && sp_buf_add(b, "}", 1);
}

static int history_list(struct sp_rpc_call *c, struct sp_err *e)
{
    const struct sp_history *h = c->conn->rpc->front->history;
    uint64_t before = UINT64_MAX;
    uint64_t limit = HISTORY_LIST_MAX;
    auto_buf struct sp_buf b = {0};
    struct sp_history_entry p;

    if (c->params != SP_JSON_NONE) {
        const struct sp_params params = sp_rpc_call_params(c, e);

        sp_params_opt_u64(&params, "before", UINT64_MAX, &before);
        sp_params_opt_u64(&params, "limit", UINT64_MAX, &limit);
    }
    if (e->code == SP_E_NONE && (limit == 0 || limit > HISTORY_LIST_MAX))
        (void)sp_fail(e, SP_E_INVALID, 0, "limit must be between 1 and %d", HISTORY_LIST_MAX);
    if (e->code != SP_E_NONE || sp_rpc_call_check(c, e) < 0)
        return -(int)e->code;
    bool ok = sp_buf_printf(&b, "{\"entries\":[");
    for (uint64_t n = 0; ok && n < limit && h != NULL && sp_history_before(h, before, &p); n++) {
        ok = (n == 0 || sp_buf_add(&b, ",", 1)) && add_past(&b, &p, c->conn->takes_receipts);
        before = p.id;
    }
    if (!ok || !sp_buf_add(&b, "]}", 2))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "list the history");
    return sp_rpc_call_reply(c, sp_buf_str(&b));
}

/* ---- history/output, history/remove ---- */

/* The id of a call that is otherwise in order. */
static int read_id(struct sp_rpc_call *c, uint64_t *ret_age, uint64_t *ret, struct sp_err *e)
{
    const struct sp_params params = sp_rpc_call_params(c, e);

    sp_params_u64(&params, "historyId", UINT64_MAX, ret);
    if (ret_age != NULL)
        sp_params_opt_u64(&params, "maxAgeMs", INT64_MAX, ret_age);
    return sp_params_ok(&params) ? sp_rpc_call_check(c, e) : sp_params_result(&params);
}

static int fail_unknown(uint64_t id, struct sp_err *e)
{
    return sp_fail(e, SP_E_STATE, 0, "unknown history id %llu", (unsigned long long)id);
}

static bool add_chunk(struct sp_buf *b, const struct sp_history_chunk *chunk)
{
    bool ok = sp_buf_printf(b, "%s{\"seq\":%llu,\"atMs\":%lld,\"stream\":\"%.*s\",\"chunk\":\"",
                            b->data[b->len - 1] == '[' ? "" : ",", (unsigned long long)chunk->seq,
                            (long long)chunk->at_ms, (int)sp_stream_names[chunk->stream].n,
                            sp_stream_names[chunk->stream].p);
    char *const room = ok ? sp_buf_room(b, SP_BASE64_LEN(chunk->bytes.n)) : NULL;

    if (room == NULL)
        return false;
    b->len += (size_t)(sp_base64_encode(room, chunk->bytes.p, chunk->bytes.n) - room);
    return sp_buf_add(b, "\"}", 2);
}

static int history_output(struct sp_rpc_call *c, struct sp_err *e)
{
    const int64_t now = (int64_t)sp_clock_unix_ms();
    const struct sp_history *h = c->conn->rpc->front->history;
    auto_buf struct sp_buf output = {0};
    auto_buf struct sp_buf b = {0};
    struct sp_history_chunk chunk;
    struct sp_history_entry p;
    uint64_t id = 0;

    uint64_t age = INT64_MAX;

    if (read_id(c, &age, &id, e) < 0)
        return -(int)e->code;
    const int64_t since = now > (int64_t)age ? now - (int64_t)age : 0;
    if (h == NULL || !sp_history_get(h, id, &p))
        return fail_unknown(id, e);
    bool ok = sp_history_output(h, &p, &output) && sp_buf_printf(&b, "{\"chunks\":[");
    for (struct sp_str rest = sp_buf_str(&output); ok && sp_history_chunk_next(&rest, &chunk);)
        ok = chunk.at_ms < since || add_chunk(&b, &chunk);
    ok = ok &&
         (p.missed_bytes == 0 ? sp_buf_printf(&b, "],\"gap\":null}")
                              : sp_buf_printf(&b, "],\"gap\":{\"records\":%llu,\"bytes\":%llu}}",
                                              (unsigned long long)p.missed_records,
                                              (unsigned long long)p.missed_bytes));
    if (!ok)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "read the output");
    return sp_rpc_call_reply(c, sp_buf_str(&b));
}

/* A process that has ended and is still in process/list. */
static int forget_process(struct sp_rpc_call *c, const struct sp_params *params, struct sp_err *e)
{
    struct sp_proc_target t = {0};
    struct sp_proc *p = NULL;

    sp_proc_target_read(params, &t);
    if (!sp_params_ok(params) || sp_proc_target_find(c, &t, &p, e) != 0)
        return sp_params_result(params);
    if (p == NULL)
        return sp_proc_target_unknown(&t, e);
    if (p->life != SP_PROC_CLOSED)
        return sp_fail(e, SP_E_STATE, 0, "process " SP_STR_FMT " has not ended", SP_STR_ARG(t.id));
    p->is_forgotten = true;
    /* In a front that is no server, the task of the process (engine/local.c) still reads its log
     * and frees it at the end. */
    if (c->conn->door != SP_DOOR_OVERSEER)
        sp_proc_free(p);
    return sp_rpc_call_reply(c, SP_STR("{}"));
}

static int history_remove(struct sp_rpc_call *c, struct sp_err *e)
{
    const struct sp_params params = sp_rpc_call_params(c, e);

    if (sp_params_ok(&params) &&
        sp_json_get(params.json, params.object, "processId") != SP_JSON_NONE)
        return forget_process(c, &params, e);
    struct sp_history *h = c->conn->rpc->front->history;
    uint64_t id = 0;

    if (read_id(c, NULL, &id, e) < 0)
        return -(int)e->code;
    if (h == NULL || !sp_history_remove(h, id))
        return fail_unknown(id, e);
    return sp_rpc_call_reply(c, SP_STR("{}"));
}

static const struct sp_method methods[] = {
    {"history/list", "exec", .fn = history_list},
    {"history/output", "exec", .fn = history_output},
    {"history/remove", "exec", .fn = history_remove},
    {0},
};

const struct sp_family sp_history_family = {.methods = methods};

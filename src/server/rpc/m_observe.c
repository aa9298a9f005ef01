/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process/attach and process/detach: following a process of any session.
 */
#include <errno.h>
#include <stdio.h>

#include "base/auto.h"
#include "server/rpc/methods.h"
#include "server/rpc/process_view.h"

struct attach {
    struct sp_str session, id;
    uint64_t after_seq; /* UINT64_MAX: not given */
    bool has_input, is_stealing;
};

static int read_place(struct sp_rpc_call *c, struct attach *a, struct sp_err *e)
{
    int r = sp_rpc_call_params(c, e);

    if (r == 0)
        r = sp_json_need_str(c->json, c->params, "sessionId", &a->session, e);
    if (r == 0)
        r = sp_json_need_str(c->json, c->params, "processId", &a->id, e);
    return r;
}

static int decode(struct sp_rpc_call *c, struct attach *a, struct sp_err *e)
{
    int r = read_place(c, a, e);

    a->after_seq = UINT64_MAX;
    if (r == 0)
        r = sp_json_opt_u64(c->json, c->params, "afterSeq", UINT64_MAX - 1, &a->after_seq, e);
    if (r == 0)
        r = sp_json_def_bool(c->json, c->params, "input", &a->has_input, e);
    if (r == 0)
        r = sp_json_def_bool(c->json, c->params, "steal", &a->is_stealing, e);
    if (r == 0 && a->is_stealing && !a->has_input)
        r = sp_fail(e, SP_E_INVALID, 0, "steal without input: there is nothing to take over");
    return r;
}

static bool describe(struct sp_buf *b, const struct sp_process_view *v, const struct attach *a)
{
    const struct sp_proc *p = v->observer.proc;
    const bool has_exited = p->state.exit_seq != 0;
    char code[16] = "null";

    if (has_exited)
        (void)snprintf(code, sizeof code, "%d", (int)p->state.exit.code);
    return sp_buf_printf(b, "{\"sessionId\":\"%s\",\"processId\":", p->session->id) &&
           sp_buf_add_str(b, p->label) &&
           sp_buf_printf(b,
                         ",\"nextSeq\":%llu,\"input\":%s,\"tty\":%s,\"exited\":%s,\"exitCode\":%s,"
                         "\"closed\":%s}",
                         (unsigned long long)v->observer.told_seq + 1,
                         a->has_input ? "true" : "false", p->is_tty ? "true" : "false",
                         has_exited ? "true" : "false", code,
                         p->state.closed_seq != 0 ? "true" : "false");
}

static int attach(struct sp_rpc_call *c, struct sp_proc *p, const struct attach *a,
                  struct sp_err *e)
{
    auto_buf struct sp_buf b = {0};
    struct sp_process_view *v = NULL;
    int r = sp_process_view_open(c->conn, p, a->after_seq, &v, e);

    if (r < 0)
        return r;
    if (a->has_input)
        r = sp_observer_type(&v->observer, a->is_stealing, e);
    if (r == 0 && !describe(&b, v, a))
        r = sp_fail(e, SP_E_SYSTEM, ENOMEM, "attach to the process");
    if (r < 0) {
        sp_process_view_close(v);
        return r;
    }
    sp_rpc_call_reply(c, (struct sp_str){b.data, b.len});
    if (p->state.closed_seq != 0 && v->observer.told_seq >= p->state.closed_seq)
        sp_process_view_close(v); /* nothing will ever come */
    else
        sp_process_view_push(v);
    return 0;
}

int sp_m_process_attach(struct sp_rpc_call *c, struct sp_err *e)
{
    struct attach a = {0};
    struct sp_session *s = NULL;
    struct sp_proc *p = NULL;
    bool waits = false;
    int r = decode(c, &a, e);

    if (r == 0)
        r = sp_rpc_call_check(c, e);
    if (r == 0 && (s = sp_server_find(c->conn->rpc->server, a.session)) == NULL)
        r = sp_fail(e, SP_E_STATE, 0, "unknown session id " SP_STR_FMT, SP_STR_ARG(a.session));
    if (r == 0)
        r = sp_rpc_call_proc(c, s, a.id, &p, &waits, e);
    if (r < 0 || waits)
        return r;
    if (p == NULL)
        return sp_fail(e, SP_E_STATE, 0, "unknown process id " SP_STR_FMT, SP_STR_ARG(a.id));
    return attach(c, p, &a, e);
}

/* What is not attached, or not there any more, is detached. */
int sp_m_process_detach(struct sp_rpc_call *c, struct sp_err *e)
{
    struct attach a = {0};
    int r = read_place(c, &a, e);

    if (r == 0)
        r = sp_rpc_call_check(c, e);
    if (r < 0)
        return r;
    const struct sp_session *s = sp_server_find(c->conn->rpc->server, a.session);
    const struct sp_proc *p = s == NULL ? NULL : sp_session_find(s, a.id);
    struct sp_process_view *v = p == NULL ? NULL : sp_process_view_find(c->conn, p);
    if (v != NULL)
        sp_process_view_close(v);
    sp_rpc_call_reply(c, SP_STR("{}"));
    return 0;
}

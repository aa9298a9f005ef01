/* SPDX-License-Identifier: Apache-2.0 */
#include "server/rpc/gated.h"

#include <errno.h>
#include <stdlib.h>

#include "base/auto.h"
#include "server/rpc/conn_priv.h"
#include "server/rpc/methods.h"
#include "server/rpc/start_gate.h"

/* A start that waits, behind its request; its strings are behind this. */
struct sp_gated {
    struct sp_start_gate_case judged;
    struct sp_request *request;
    struct sp_gated *prev, *next;
    struct sp_start start;
    struct sp_buf env; /* not its own to free */
    struct sp_policy policy;
    bool has_policy;
};

/* ---- keeping what a start says ---- */

static size_t text_size(const struct sp_start *o)
{
    size_t n = o->id.n + o->label.n + o->cwd.n + o->arg0.n + o->env->len;

    for (uint32_t i = 0; i < o->argc; i++)
        n += o->argv[i].n;
    return n;
}

static struct sp_str keep(char **at, struct sp_str s)
{
    if (s.p == NULL)
        return s;
    const struct sp_str kept = {*at, s.n};
    memcpy(*at, s.p, s.n);
    *at += s.n;
    return kept;
}

/* false: no memory. */
static bool keep_start(struct sp_gated *g, const struct sp_start *o)
{
    struct sp_str *argv = (struct sp_str *)(void *)(g + 1);
    char *text = (char *)(argv + o->argc);

    g->start = *o;
    g->start.id = keep(&text, o->id);
    g->start.label = keep(&text, o->label);
    g->start.cwd = keep(&text, o->cwd);
    g->start.arg0 = keep(&text, o->arg0);
    for (uint32_t i = 0; i < o->argc; i++)
        argv[i] = keep(&text, o->argv[i]);
    g->start.argv = argv;
    g->env = (struct sp_buf){.data = text, .len = o->env->len};
    if (o->env->len != 0)
        memcpy(text, o->env->data, o->env->len);
    g->start.env = &g->env;
    if (o->policy == NULL)
        return true;
    g->has_policy = sp_policy_copy(o->policy, &g->policy);
    g->start.policy = &g->policy;
    return g->has_policy;
}

void sp_gated_forget(struct sp_request *r)
{
    struct sp_gated *g = r->gated;
    struct sp_conn *conn = r->conn;

    r->gated = NULL;
    conn->rpc->gate->ops->done(conn->rpc->gate, &g->judged);
    *(g->prev != NULL ? &g->prev->next : &conn->gated) = g->next;
    if (g->next != NULL)
        g->next->prev = g->prev;
    if (g->has_policy)
        sp_policy_done(&g->policy);
}

/* ---- the way through ---- */

static void refuse(struct sp_request *r)
{
    const struct sp_start_gate_case *judged = &r->gated->judged;

    sp_conn_reply_error(r->conn, r->id, sp_code_wire(judged->code), judged->reason);
    sp_request_end(r, false);
}

static void go_on(struct sp_request *r)
{
    if (r->conn->is_closing || r->conn->ends_session) { /* nobody is there to run it for */
        sp_conn_count(r->conn->rpc, r->method, r->started_us, SP_RPC_OUTCOME_DISCONNECTED);
        sp_request_drop(r);
    } else if (r->gated->judged.answer != SP_START_GATE_YES) {
        refuse(r);
    } else if (sp_start_begin(r, &r->gated->start)) {
        sp_gated_forget(r);
    }
}

static void on_told(struct sp_start_gate_case *judged)
{
    go_on(SP_CONTAINER(judged, struct sp_gated, judged)->request);
}

static struct sp_gated *add(struct sp_request *r, const struct sp_start *o)
{
    struct sp_gated *g = (struct sp_gated *)(void *)sp_request_extra(r);
    struct sp_conn *conn = r->conn;

    *g = (struct sp_gated){.request = r};
    if (!keep_start(g, o))
        return NULL;
    g->judged = (struct sp_start_gate_case){
        .conn = conn,
        .session = conn->session->number,
        .takes_approvals = conn->takes_approvals,
        .id = g->start.id,
        .cwd = g->start.cwd,
        .argv = g->start.argv,
        .argc = g->start.argc,
        .env = g->start.env,
        .envc = g->start.envc,
        .is_tty = g->start.is_tty,
        .policy = g->start.policy,
        .told = on_told,
    };
    g->next = conn->gated;
    if (g->next != NULL)
        g->next->prev = g;
    conn->gated = g;
    return g;
}

int sp_gated_start(struct sp_rpc_call *c, const struct sp_start *o, size_t held, struct sp_err *e)
{
    struct sp_start_gate *gate = c->conn->rpc->gate;
    const size_t size = sizeof(struct sp_gated) + (size_t)o->argc * sizeof *o->argv + text_size(o);
    struct sp_request *r = sp_rpc_call_park(c, size, e);

    if (r == NULL)
        return -(int)e->code;
    if (sp_request_charge(r, held, e) < 0) {
        sp_request_fail(r, e);
        return 0;
    }
    struct sp_gated *g = add(r, o);
    if (g == NULL) {
        (void)sp_fail(e, SP_E_SYSTEM, ENOMEM, "keep the request");
        sp_request_fail(r, e);
        return 0;
    }
    gate->ops->judge(gate, &g->judged);
    r->gated = g;
    if (g->judged.answer != SP_START_GATE_ASKING)
        go_on(r);
    return 0;
}

/* ---- what others hear of it ---- */

static struct sp_gated *find(const struct sp_session *s, struct sp_str id)
{
    struct sp_gated *g =
        s->client == NULL ? NULL : SP_CONTAINER(s->client, struct sp_conn, client)->gated;

    while (g != NULL && !sp_str_eq(g->start.id, id))
        g = g->next;
    return g;
}

int sp_gated_call(struct sp_rpc_call *c, const struct sp_session *s, struct sp_str id,
                  bool *ret_done, struct sp_err *e)
{
    struct sp_gated *g = find(s, id);

    if (g == NULL)
        return 0;
    if (c->method->gated == NULL)
        return sp_fail(e, SP_E_STATE, 0, "process id " SP_STR_FMT " is starting", SP_STR_ARG(id));
    *ret_done = true;
    return c->method->gated(c, g->request, e);
}

int sp_gated_exists(struct sp_rpc_call *c, struct sp_request *start, struct sp_err *e)
{
    (void)c;
    return sp_fail(e, SP_E_STATE, 0, "process " SP_STR_FMT " already exists",
                   SP_STR_ARG(start->gated->start.id));
}

int sp_gated_write(struct sp_rpc_call *c, struct sp_request *start, struct sp_err *e)
{
    (void)start;
    (void)e;
    sp_rpc_call_reply(c, SP_STR("{\"status\":\"starting\"}"));
    return 0;
}

int sp_gated_signal(struct sp_rpc_call *c, struct sp_request *start, struct sp_err *e)
{
    (void)start;
    (void)e;
    sp_rpc_call_reply(c, SP_STR("{}"));
    return 0;
}

int sp_gated_terminate(struct sp_rpc_call *c, struct sp_request *start, struct sp_err *e)
{
    struct sp_err why = {0};

    (void)e;
    (void)sp_fail(&why, SP_E_STATE, 0, "process " SP_STR_FMT " start was cancelled",
                  SP_STR_ARG(start->gated->start.id));
    sp_request_fail(start, &why);
    sp_rpc_call_reply(c, SP_STR("{\"running\":true}"));
    return 0;
}

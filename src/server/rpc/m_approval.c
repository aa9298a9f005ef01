/* SPDX-License-Identifier: Apache-2.0 */
/* approval/watch and approval/decide: questions of this front, for people at other terminals. */
#include <errno.h>
#include <stdio.h>

#include "base/auto.h"
#include "server/rpc/conn.h"
#include "server/rpc/questions.h"
#include "server/rpc/text.h"

/* A connection that is not read gets no further notifications: it ends. */
void sp_questions_tell(struct sp_rpc *rpc, const char *method, struct sp_str params)
{
    const struct sp_str name = sp_str_of(method);

    sp_list_each(i, &rpc->conns) {
        struct sp_conn *c = SP_CONTAINER(i, struct sp_conn, in_rpc);

        if (!c->watches_approvals || c->is_closing)
            continue;
        if (sp_link_queued(c->link) > SP_CONN_MAX_QUEUED) {
            sp_conn_hang_up(c, "client does not read: more than 4 MiB are queued");
            continue;
        }
        char *const begin = sp_link_reserve(c->link, 64 + name.n + params.n);
        if (begin == NULL)
            continue;
        char *o = sp_put_str(sp_put_literal(begin, "{\"method\":\""), name);
        o = sp_put_str(sp_put_literal(o, "\",\"params\":"), params);
        *o++ = '}';
        sp_link_commit(c->link, (size_t)(o - begin));
    }
}

/* No params: absent, null or {}. */
static int approval_watch(struct sp_rpc_call *c, struct sp_err *e)
{
    struct sp_questions *q = c->conn->rpc->questions;
    auto_buf struct sp_buf b = {0};

    if (c->params != SP_JSON_NONE)
        (void)sp_rpc_call_params(c, e);
    if (e->code != SP_E_NONE || sp_rpc_call_check(c, e) < 0)
        return -(int)e->code;
    if (!sp_buf_printf(&b, "{\"open\":[") || (q != NULL && !q->ops->add_open(q, &b)) ||
        !sp_buf_printf(&b, "]}"))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "list the questions");
    c->conn->watches_approvals = true;
    return sp_rpc_call_reply(c, sp_buf_str(&b));
}

/* For consoles alone: an agent that is a client would answer its own question. */
static int approval_decide(struct sp_rpc_call *c, struct sp_err *e)
{
    const struct sp_params params = sp_rpc_call_params(c, e);
    const struct sp_console_peer *console = &c->conn->console;
    struct sp_questions *q = c->conn->rpc->questions;
    struct sp_questions_answer a = {0};
    auto_buf struct sp_buf decision = {0};
    auto_buf struct sp_buf result = {0};

    sp_params_u64(&params, "number", UINT64_MAX, &a.number);
    sp_params_str(&params, "digest", &a.digest);
    if (sp_params_ok(&params)) {
        const uint32_t t = sp_json_get(params.json, params.object, "decision");

        if (t == SP_JSON_NONE)
            (void)sp_fail(e, SP_E_INVALID, 0, "missing field `decision`");
        else if (!sp_buf_printf(&decision, "{\"decision\":") ||
                 !sp_buf_add_str(&decision, sp_json_raw(params.json, t)) ||
                 !sp_buf_add(&decision, "}", 1))
            (void)sp_fail(e, SP_E_SYSTEM, ENOMEM, "read the decision");
    }
    if (!sp_params_ok(&params) || sp_rpc_call_check(c, e) < 0)
        return sp_params_result(&params);
    if (console->who == NULL)
        return sp_fail(
            e, SP_E_STATE, 0,
            "approval/decide is for consoles: a client does not answer its own question");
    if (!console->may_decide)
        return sp_fail(e, SP_E_ROLE, 0,
                       "your role does not allow approval/decide: it needs approver");
    if (q == NULL)
        return sp_fail(e, SP_E_INVALID, 0, "there is no question %llu",
                       (unsigned long long)a.number);
    a.decision = sp_buf_str(&decision);
    a.who = sp_str_of(console->who);
    a.via = sp_str_of(console->via);
    const int r = q->ops->decide(q, &a, &result, e);
    return r < 0 ? r : sp_rpc_call_reply(c, sp_buf_str(&result));
}

static const struct sp_method methods[] = {
    {"approval/watch", "approval", .fn = approval_watch},
    {"approval/decide", "approval", .fn = approval_decide},
    {0},
};

const struct sp_family sp_approval_family = {.methods = methods};

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process/inspect: what the kernel says a process is doing, who holds its output open after its
 * exit, and whether it listens on a port.
 */
#include <errno.h>

#include "base/auto.h"
#include "core/process_inspect.h"
#include "server/rpc/methods.h"

struct inspect {
    struct sp_str session, id;
    uint16_t ports[SP_LOOK_PORTS];
    uint32_t port_count;
};

static int read_ports(struct sp_rpc_call *c, struct inspect *ret, struct sp_err *e)
{
    uint32_t ports = SP_JSON_NONE;
    const int r = sp_json_opt_array(c->json, c->params, "ports", &ports, e);

    if (r < 0 || ports == SP_JSON_NONE)
        return r;
    for (uint32_t i = sp_json_first(c->json, ports); i != SP_JSON_NONE;
         i = sp_json_next(c->json, ports, i)) {
        int64_t port = 0;

        if (!sp_json_i64(c->json, i, &port) || port < 1 || port > UINT16_MAX)
            return sp_fail(e, SP_E_INVALID, 0, "ports must be numbers between 1 and 65535");
        if (ret->port_count == SP_LOOK_PORTS)
            return sp_fail(e, SP_E_INVALID, 0, "at most %d ports may be asked for at once",
                           SP_LOOK_PORTS);
        ret->ports[ret->port_count++] = (uint16_t)port;
    }
    return 0;
}

static int decode(struct sp_rpc_call *c, struct inspect *ret, struct sp_err *e)
{
    int r = sp_rpc_call_params(c, e);

    if (r == 0)
        r = sp_json_need_str(c->json, c->params, "processId", &ret->id, e);
    if (r == 0)
        r = sp_json_opt_str(c->json, c->params, "sessionId", &ret->session, e);
    if (r == 0)
        r = read_ports(c, ret, e);
    return r;
}

static bool describe(struct sp_buf *b, const struct sp_proc *p, const struct sp_look *look)
{
    const uint32_t told =
        look->holder_count < SP_LOOK_HOLDERS ? look->holder_count : SP_LOOK_HOLDERS;
    bool ok = sp_buf_printf(b, "{\"state\":\"%s\",\"holders\":[",
                            p->state.exit_seq != 0 ? "exited" : sp_doing_name(look->doing));

    for (uint32_t i = 0; ok && i < told; i++)
        ok = sp_buf_printf(b, "%s{\"pid\":%d,\"name\":", i == 0 ? "" : ",", look->holders[i].pid) &&
             sp_json_add_str(b, sp_str_of(look->holders[i].name)) && sp_buf_printf(b, "}");
    ok = ok && sp_buf_printf(b, "]");
    if (ok && look->holder_count > told)
        ok = sp_buf_printf(b, ",\"holderCount\":%u", look->holder_count);
    if (ok && look->listening != 0)
        ok = sp_buf_printf(b, ",\"listening\":%u", look->listening);
    return ok && sp_buf_printf(b, "}");
}

static int inspect(struct sp_rpc_call *c, const struct sp_proc *p, const struct inspect *i,
                   struct sp_err *e)
{
    const struct sp_look_ask ask = {
        .wants_doing = true, .ports = i->ports, .port_count = i->port_count};
    auto_buf struct sp_buf b = {0};
    struct sp_look look;

    sp_proc_look(p, &ask, &look);
    if (!describe(&b, p, &look))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "inspect the process");
    sp_rpc_call_reply(c, (struct sp_str){b.data, b.len});
    return 0;
}

int sp_m_process_inspect(struct sp_rpc_call *c, struct sp_err *e)
{
    struct inspect i = {0};
    const struct sp_session *s = c->conn->session;
    struct sp_proc *p = NULL;
    bool waits = false;
    int r = decode(c, &i, e);

    if (r == 0)
        r = sp_rpc_call_check(c, e);
    if (r == 0 && i.session.p != NULL &&
        (s = sp_server_find(c->conn->rpc->server, i.session)) == NULL)
        r = sp_fail(e, SP_E_STATE, 0, "unknown session id " SP_STR_FMT, SP_STR_ARG(i.session));
    if (r == 0)
        r = sp_rpc_call_proc(c, s, i.id, &p, &waits, e);
    if (r < 0 || waits)
        return r;
    if (p == NULL)
        return sp_fail(e, SP_E_STATE, 0, "unknown process id " SP_STR_FMT, SP_STR_ARG(i.id));
    return inspect(c, p, &i, e);
}

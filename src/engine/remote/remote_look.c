/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a command does, asked of a server that can tell: process/inspect. What it answers is
 * believed as little as anything: names are made harmless here, too.
 */
#include "engine/remote/remote_priv.h"

static enum sp_doing doing_of(struct sp_str name)
{
    for (int d = SP_DOING_UNKNOWN; d < SP_DOING_MAX; d++)
        if (sp_str_eq(name, sp_str_of(sp_doing_name((enum sp_doing)d))))
            return (enum sp_doing)d;
    return SP_DOING_UNKNOWN; /* also "exited": its exit is told elsewhere */
}

bool sp_remote_write_look(struct sp_buf *b, const struct sp_remote_job *rj,
                          const struct sp_job_look *l)
{
    const uint32_t count = l->port_count < SP_LOOK_PORTS ? l->port_count : SP_LOOK_PORTS;
    bool ok = sp_remote_begin_params(b, rj);

    for (uint32_t i = 0; ok && i < count; i++)
        ok = sp_buf_printf(b, "%s%u", i == 0 ? ",\"ports\":[" : ",", l->ports[i]);
    return ok && sp_buf_printf(b, "%s}", count > 0 ? "]" : "");
}

static void copy_name(struct sp_str from, char *ret, size_t size)
{
    const size_t n = from.n < size - 1 ? from.n : size - 1;

    for (size_t i = 0; i < n; i++)
        ret[i] = from.p[i] >= ' ' && from.p[i] <= '~' ? from.p[i] : '?';
    ret[n] = 0;
}

static int take_holder(struct sp_json *j, uint32_t value, struct sp_look *ret, struct sp_err *e)
{
    struct sp_str name = {0};
    uint64_t pid = 0;

    if (ret->holder_count == SP_LOOK_HOLDERS)
        return 0;
    if (sp_json_type(j, value) != SP_JSON_OBJECT)
        return sp_json_wrong_type(j, value, "a holder", e);
    int r = sp_json_need_u64(j, value, "pid", INT32_MAX, &pid, e);
    if (r == 0)
        r = sp_json_need_str(j, value, "name", &name, e);
    if (r < 0)
        return r;
    struct sp_look_holder *h = &ret->holders[ret->holder_count];
    h->pid = (int)pid;
    copy_name(name, h->name, sizeof h->name);
    ret->holder_count++;
    return 0;
}

static int take_holders(struct sp_json *j, uint32_t value, struct sp_look *ret, struct sp_err *e)
{
    uint32_t holders = SP_JSON_NONE;
    uint64_t count = 0;
    int r = sp_json_opt_array(j, value, "holders", &holders, e);

    if (r < 0 || holders == SP_JSON_NONE)
        return r;
    for (uint32_t h = sp_json_first(j, holders); r == 0 && h != SP_JSON_NONE;
         h = sp_json_next(j, holders, h))
        r = take_holder(j, h, ret, e);
    if (r == 0)
        r = sp_json_opt_u64(j, value, "holderCount", UINT32_MAX, &count, e);
    if (r == 0 && count > ret->holder_count)
        ret->holder_count = (uint32_t)count;
    return r;
}

static bool was_asked_for(const struct sp_job_look *l, uint64_t port)
{
    for (uint32_t i = 0; i < l->port_count && i < SP_LOOK_PORTS; i++)
        if (l->ports[i] == port)
            return true;
    return false;
}

int sp_remote_take_look(struct sp_job_look *l, struct sp_json *j, uint32_t value, struct sp_err *e)
{
    struct sp_look found = {0};
    struct sp_str state = {0};
    uint64_t port = 0;

    if (sp_json_type(j, value) != SP_JSON_OBJECT)
        return sp_json_wrong_type(j, value, "what a process does", e);
    int r = sp_json_need_str(j, value, "state", &state, e);
    if (r == 0)
        r = take_holders(j, value, &found, e);
    if (r == 0)
        r = sp_json_opt_u64(j, value, "listening", UINT16_MAX, &port, e);
    if (r < 0)
        return r;
    if (l->wants_doing) {
        l->found = found;
        l->found.doing = doing_of(state);
    }
    l->found.listening = was_asked_for(l, port) ? (uint16_t)port : 0;
    return 0;
}

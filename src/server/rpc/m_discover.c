/* SPDX-License-Identifier: Apache-2.0 */
/*
 * capabilityRoots/discoverV1: the roots of a request, SP_DISCOVER_AT_ONCE at a time, answered in
 * the order they were asked for. capabilities/discoverV2 says that there is nothing: it is not
 * advertised, for it would have to read YAML.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/auto.h"
#include "server/rpc/conn_priv.h"
#include "server/rpc/discover.h"
#include "server/rpc/fs.h"
#include "server/rpc/methods.h"

static void free_task(struct sp_task *t)
{
    struct sp_discovery *d = SP_CONTAINER(t, struct sp_discovery, task);

    for (uint32_t i = 0; i < d->count; i++) {
        free((char *)(uintptr_t)d->roots[i].id.p);
        sp_root_done(&d->roots[i]);
    }
    free(d->roots);
    free(d);
}

/* ---- the answer ---- */

static void answer(struct sp_discovery *d)
{
    auto_buf struct sp_buf b = {0};
    struct sp_err e = {0};
    bool ok = sp_buf_printf(&b, "{\"roots\":[");

    for (uint32_t i = 0; ok && i < d->count; i++)
        ok = (i == 0 || sp_buf_add(&b, ",", 1)) && sp_root_add(&b, &d->roots[i]);
    if (ok && sp_buf_printf(&b, "]}")) {
        sp_request_reply(d->request, (struct sp_str){b.data, b.len});
        return;
    }
    (void)sp_fail(&e, SP_E_SYSTEM, ENOMEM, "answer");
    sp_request_fail(d->request, &e);
}

static void go_on(struct sp_discovery *d)
{
    d->is_beginning = true;
    while (d->begun < d->count && d->begun - d->ended < SP_DISCOVER_AT_ONCE)
        sp_root_begin(&d->roots[d->begun++]);
    d->is_beginning = false;
    if (d->ended == d->count)
        answer(d);
}

void sp_root_ended(struct sp_root *r)
{
    struct sp_discovery *d = r->all;

    sp_root_rest(r);
    d->ended++;
    if (!d->is_beginning)
        go_on(d);
}

/* ---- params ---- */

static int read_root(struct sp_rpc_call *c, uint32_t token, struct sp_root *r, struct sp_err *e)
{
    struct sp_json *j = c->json;
    auto_buf struct sp_buf id = {0};
    struct sp_str text = {0};
    uint32_t sandbox = SP_JSON_NONE;
    int failed = 0;

    if (sp_json_type(j, token) != SP_JSON_OBJECT)
        return sp_json_wrong_type(j, token, "struct CapabilityRootDiscoverRequest", e);
    failed = sp_json_need_str(j, token, "id", &text, e);
    if (failed == 0 && !sp_json_add_str(&id, text))
        failed = sp_fail(e, SP_E_SYSTEM, ENOMEM, "keep a root's id");
    if (failed == 0)
        failed = sp_json_need_str(j, token, "path", &text, e);
    if (failed == 0)
        failed = sp_uri_read(text, &r->uri, e);
    if (failed == 0)
        failed = sp_json_opt_object(j, token, "sandbox", &sandbox, e);
    if (failed == 0 && sandbox != SP_JSON_NONE)
        failed = sp_fs_read_policy(j, sandbox, &r->policy, &r->has_policy, &r->is_restricted, e);
    if (failed == 0) {
        r->id = (struct sp_str){id.data, id.len};
        id.data = NULL; /* it is the root's now */
    }
    return failed;
}

static int decode(struct sp_rpc_call *c, struct sp_discovery *d, struct sp_err *e)
{
    struct sp_json *j = c->json;
    uint32_t roots = SP_JSON_NONE;
    int r = sp_rpc_call_params(c, e);

    if (r == 0)
        r = sp_json_need_array(j, c->params, "roots", &roots, e);
    if (r < 0)
        return r;
    const uint32_t count = j->tokens[roots].children;
    const uint32_t kept = count > SP_DISCOVER_ROOTS ? 1 : count;
    d->roots = calloc(kept + 1, sizeof *d->roots);
    if (d->roots == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "look at capability roots");
    for (uint32_t t = sp_json_first(j, roots); r == 0 && d->count < kept && t != SP_JSON_NONE;
         t = sp_json_next(j, roots, t)) {
        d->roots[d->count].all = d;
        r = read_root(c, t, &d->roots[d->count++], e);
    }
    if (r == 0)
        r = sp_rpc_call_check(c, e);
    if (r == 0 && count > SP_DISCOVER_ROOTS)
        r = sp_fail(e, SP_E_STATE, 0, "capability root discovery accepts at most %d roots",
                    SP_DISCOVER_ROOTS);
    return r;
}

int sp_m_capability_roots_discover(struct sp_rpc_call *c, struct sp_err *e)
{
    struct sp_discovery *d = calloc(1, sizeof *d);
    int r = 0;

    if (d == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "look at capability roots");
    d->task.free = free_task;
    r = decode(c, d, e);
    if (r == 0)
        d->request = sp_rpc_call_park(c, 0, e);
    if (d->request == NULL) {
        free_task(&d->task);
        return r < 0 ? r : -(int)e->code;
    }
    d->request->task = &d->task;
    r = sp_request_charge(d->request,
                          d->count * sizeof *d->roots + sp_json_raw(c->json, c->params).n, e);
    if (r < 0) {
        sp_request_drop(d->request);
        return r;
    }
    go_on(d);
    return 0;
}

int sp_m_capabilities_discover(struct sp_rpc_call *c, struct sp_err *e)
{
    auto_fs_ask struct sp_fs_ask a = {0};
    int r = sp_rpc_call_params(c, e);

    if (r == 0)
        r = sp_fs_need_path(c, "cwd", &a.path, e);
    if (r == 0)
        r = sp_fs_read_sandbox(c, &a, e);
    if (r == 0)
        r = sp_rpc_call_check(c, e);
    if (r < 0)
        return r;
    sp_rpc_call_reply(c, SP_STR("{\"plugins\":[],\"skills\":[],\"warnings\":[]}"));
    return 0;
}

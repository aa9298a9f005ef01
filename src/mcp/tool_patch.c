/* SPDX-License-Identifier: Apache-2.0 */
/*
 * apply_patch: a patch, the way that the engine goes with one in a command (approvals.md 14): it is
 * verified and asked about, and applied by a confined program.
 */
#include <errno.h>
#include <stdlib.h>

#include "approve/patch/patch.h"
#include "base/auto.h"
#include "mcp/tool_priv.h"

struct patching {
    struct sp_mcp_run *run;
    struct sp_arguments arguments;
    struct sp_str input, workdir, environment_id;
};

static void free_patching(struct sp_mcp_run *r)
{
    struct patching *x = r->data;

    sp_arguments_done(&x->arguments);
    free(x);
}

/* ---- what it has changed ---- */

static const char *kind_name(enum sp_patch_kind k)
{
    switch (k) {
    case SP_PATCH_ADD:
        return "add";
    case SP_PATCH_DELETE:
        return "delete";
    case SP_PATCH_UPDATE:
        return "update";
    }
    return "update";
}

static bool add_change(struct sp_buf *out, const struct sp_patch_change *c)
{
    return sp_buf_add_str(out, SP_STR("{\"path\":")) &&
           sp_json_add_str(out, sp_str_of(c->full_path)) &&
           sp_buf_printf(out, ",\"kind\":\"%s\"", kind_name(c->kind)) &&
           (c->full_target == NULL || (sp_buf_add_str(out, SP_STR(",\"move_to\":")) &&
                                       sp_json_add_str(out, sp_str_of(c->full_target)))) &&
           sp_buf_add(out, "}", 1);
}

static bool add_changes(struct sp_buf *out, const struct sp_patch_changes *c)
{
    bool ok = sp_buf_add_str(out, SP_STR("{\"changes\":["));

    for (uint32_t i = 0; ok && i < c->count; i++)
        ok = (i == 0 || sp_buf_add(out, ",", 1)) && add_change(out, &c->items[i]);
    return ok && sp_buf_add(out, "]", 1);
}

static bool add_structured(struct sp_buf *out, const struct sp_mcp_run *r,
                           const struct sp_reply *reply)
{
    return add_changes(out, reply->changes) &&
           sp_mcp_run_add_output(out, r, reply->answer.output) && sp_buf_add(out, "}", 1);
}

/* ---- what came of it ---- */

static void tell_fault(struct sp_mcp_run *r, const struct sp_reply *reply)
{
    auto_buf struct sp_buf text = {0};
    struct sp_mcp_result result = {.is_error = true, .text = reply->text};

    /* Its verification and who was interrupted speak for themselves. */
    if (reply->fault != SP_FAULT_ARGUMENTS && reply->fault != SP_FAULT_ABORTED &&
        sp_buf_add_str(&text, SP_STR("apply_patch failed: ")) &&
        sp_buf_add_str(&text, reply->error))
        result.text = sp_mcp_view(&text);
    sp_mcp_run_done(r, &result);
}

static void on_reply(void *user, const struct sp_reply *reply)
{
    const struct patching *x = user;
    auto_buf struct sp_buf structured = {0};

    x->run->engine_call = 0;
    if (reply->fault != SP_FAULT_NONE) {
        tell_fault(x->run, reply);
        return;
    }
    struct sp_mcp_result result = {.text = reply->answer.output};
    if (reply->changes == NULL) {
        result.is_error = true;
    } else if (add_structured(&structured, x->run, reply)) {
        result.structured = sp_mcp_view(&structured);
    } else {
        sp_mcp_run_fail(x->run, "the patch was applied, but there is no memory to say what it has "
                                "changed");
        return;
    }
    sp_mcp_run_done(x->run, &result);
}

/* ---- the beginning ---- */

static int start(struct patching *x, struct sp_err *e)
{
    struct sp_mcp_run *r = x->run;
    const struct sp_str argv[] = {SP_STR("apply_patch"), x->input};
    const struct sp_exec_ask ask = {
        .call_id = sp_str_of(r->call_id),
        .turn_id = sp_str_of(r->call_id),
        .argv = argv,
        .argc = 2,
        .workdir = x->workdir,
        .environment_id = x->environment_id,
        .nobody_answers = r->nobody_answers,
    };

    return sp_manager_exec(r->caller->manager, &ask, on_reply, x, &r->engine_call, e);
}

int sp_mcp_tool_patch(struct sp_mcp_run *r, struct sp_str arguments, struct sp_err *e)
{
    auto_arguments struct sp_arguments a = {0};
    struct sp_str input = {0};
    struct sp_str workdir = {0};
    struct sp_str environment_id = {0};
    const struct sp_slot slots[] = {
        {.name = "input", .type = SP_SLOT_STRING, .to = &input, .is_needed = true},
        {.name = "workdir", .type = SP_SLOT_STRING, .to = &workdir},
        {.name = "environment_id", .type = SP_SLOT_STRING, .to = &environment_id},
    };
    const struct sp_slots all = {.items = slots, .count = sizeof slots / sizeof slots[0]};

    if (sp_mcp_tool_read_arguments(&a, arguments, all, e) < 0)
        return sp_mcp_tool_refuse_arguments(r, e);
    struct patching *x = calloc(1, sizeof *x);
    if (x == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "apply a patch");
    *x = (struct patching){r, a, input, workdir, environment_id};
    a = (struct sp_arguments){0};
    r->data = x;
    r->free_data = free_patching;
    return start(x, e);
}

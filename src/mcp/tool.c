/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool: the table of tools, tools/list, what tools share, and the tools that need little more than
 * the engine's own: apply_patch, request_permissions, unified_exec.
 */
#include "mcp/tool.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "approve/patch/patch.h"
#include "base/auto.h"

/* ---- shared ---- */

static void report_refusal(struct sp_deferred *d)
{
    struct sp_mcp_run *r = SP_CONTAINER(d, struct sp_mcp_run, deferred);

    sp_mcp_run_fail(r, "%s", r->refusal);
}

int sp_mcp_tool_refuse(struct sp_mcp_run *r, struct sp_err *e, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    const int n = vasprintf(&r->refusal, fmt, args);
    va_end(args);
    if (n < 0) {
        r->refusal = NULL;
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "refuse a call");
    }
    sp_loop_defer(r->caller->loop, &r->deferred, report_refusal);
    return 0;
}

int sp_mcp_tool_refuse_error(struct sp_mcp_run *r, const char *prefix, struct sp_err *e)
{
    const struct sp_err why = *e;

    if (why.code == SP_E_SYSTEM)
        return -SP_E_SYSTEM;
    return sp_mcp_tool_refuse(r, e, "%s%s", prefix, why.msg);
}

void sp_mcp_tool_no_memory(struct sp_mcp_run *r)
{
    const struct sp_mcp_result result = {.is_error = true,
                                         .text = SP_STR("no memory for the answer; read_output has "
                                                        "what a session has printed")};

    sp_mcp_run_done(r, &result);
}

void sp_mcp_tool_done(struct sp_mcp_run *r, bool ok, const struct sp_buf *text,
                      const struct sp_buf *structured)
{
    const struct sp_mcp_result result = {.text = sp_buf_str(text),
                                         .structured = sp_buf_str(structured)};

    if (ok)
        sp_mcp_run_done(r, &result);
    else
        sp_mcp_tool_no_memory(r);
}

static void on_inspected(void *user, const struct sp_inspection *found)
{
    struct sp_mcp_run *r = user;

    r->inspection = NULL;
    r->tell(r, found);
}

bool sp_mcp_tool_inspect(struct sp_mcp_run *r, int session_id,
                         void (*tell)(struct sp_mcp_run *r, const struct sp_inspection *found))
{
    r->tell = tell;
    if (session_id != 0)
        r->inspection = sp_mcp_inspect(r->caller, session_id, SP_MCP_INSPECT_MS, on_inspected, r);
    return r->inspection != NULL;
}

bool sp_mcp_run_add_output(struct sp_buf *out, const struct sp_mcp_run *r, struct sp_str output)
{
    return !r->repeats_output || sp_json_add_member(out, "output", output);
}

const char *sp_mcp_signal_name(int number, char room[16])
{
    const char *name = sigabbrev_np(number);

    (void)snprintf(room, 16, name != NULL ? "SIG%.8s" : "%.0s%d", name != NULL ? name : "", number);
    return room;
}

const char *sp_mcp_state_name(bool has_exited, bool is_output_held,
                              const struct sp_inspection *found)
{
    if (has_exited)
        return sp_mcp_is_output_held(is_output_held, found) ? "output_held" : "exited";
    return sp_doing_name(found == NULL ? SP_DOING_UNKNOWN : found->doing);
}

/* ---- apply_patch: verified, asked about and applied like a patch in a command ---- */

static void on_patched(void *user, const struct sp_reply *reply)
{
    struct sp_mcp_run *r = user;
    auto_buf struct sp_buf text = {0};
    auto_buf struct sp_buf structured = {0};
    struct sp_mcp_result result = {.is_error = true, .text = reply->answer.output};

    r->engine_call = 0;
    if (reply->fault != SP_FAULT_NONE) {
        result.text = reply->text;
        /* Errors of the verification and of a cancelled call need no prefix. */
        if (reply->fault != SP_FAULT_ARGUMENTS && reply->fault != SP_FAULT_ABORTED &&
            sp_buf_add_str(&text, SP_STR("apply_patch failed: ")) &&
            sp_buf_add_str(&text, reply->error))
            result.text = sp_buf_str(&text);
    } else if (reply->changes != NULL) {
        static const char *const kinds[] = {
            [SP_PATCH_ADD] = "add", [SP_PATCH_DELETE] = "delete", [SP_PATCH_UPDATE] = "update"};
        bool ok = sp_buf_add_str(&structured, SP_STR("{\"changes\":["));

        for (uint32_t i = 0; ok && i < reply->changes->count; i++) {
            const struct sp_patch_change *c = &reply->changes->items[i];

            ok = sp_buf_add_str(&structured, i == 0 ? SP_STR("{") : SP_STR(",{")) &&
                 sp_json_add_member(&structured, "path", sp_str_of(c->full_path)) &&
                 sp_json_add_value(&structured, "kind", "\"%s\"", kinds[c->kind]) &&
                 (c->full_target == NULL ||
                  sp_json_add_member(&structured, "move_to", sp_str_of(c->full_target))) &&
                 sp_buf_add(&structured, "}", 1);
        }
        ok = ok && sp_buf_add(&structured, "]", 1) &&
             sp_mcp_run_add_output(&structured, r, reply->answer.output) &&
             sp_buf_add(&structured, "}", 1);
        if (!ok) {
            sp_mcp_run_fail(r, "the patch was applied, but there is no memory to say what it has "
                               "changed");
            return;
        }
        result.is_error = false;
        result.structured = sp_buf_str(&structured);
    }
    sp_mcp_run_done(r, &result);
}

static int start_patch(struct sp_mcp_run *r, struct sp_err *e)
{
    struct sp_str argv[] = {SP_STR("apply_patch"), {0}};
    struct sp_exec_request request = {
        .call_id = sp_str_of(r->call_id),
        .turn_id = sp_str_of(r->call_id),
        .argv = argv,
        .argc = 2,
        .has_no_approver = r->has_no_approver,
        .omits_text = true,
    };
    const struct sp_slot slots[] = {
        SP_SLOT(STRING, "input", .to = &argv[1], .is_needed = true),
        SP_SLOT(STRING, "workdir", .to = &request.workdir),
        SP_SLOT(STRING, "environment_id", .to = &request.environment_id),
    };

    if (sp_slots_read(&r->arguments, SP_SLOTS(slots), e) < 0)
        return sp_mcp_tool_refuse_error(r, SP_MCP_BAD_ARGUMENTS, e);
    return sp_manager_exec(r->caller->manager, &request, on_patched, r, &r->engine_call, e);
}

static const struct sp_tool_parameter patch_parameters[] = {
    SP_PARAMETER("input", "string", "The patch: `*** Begin Patch` to `*** End Patch`."),
    SP_PARAMETER("workdir", "string", "Directory of its relative paths. Default: the workspace."),
    SP_MCP_ENVIRONMENT_ID,
    {0},
};

static const struct sp_mcp_tool patch_tool = {
    .name = "apply_patch",
    .start = start_patch,
    .title = "Apply a patch",
    .description = "Changes files by a patch (*** Begin Patch ... *** End Patch). All of it is "
                   "checked before the first file is written.",
    .parameters = patch_parameters,
    .required = "\"input\"",
    .is_destructive = true,
    .result = "changes:array output:string note:string",
};

/* ---- the engine's own tools, with their texts ---- */

static void on_tool_reply(void *user, const struct sp_tool_reply *reply)
{
    struct sp_mcp_run *r = user;
    const struct sp_mcp_result result = {
        .is_error = reply->has_failed, .text = reply->text, .structured = reply->structured};

    r->engine_call = 0;
    sp_mcp_run_done(r, &result);
}

static int start_engine_tool(struct sp_mcp_run *r, struct sp_err *e)
{
    /* MCP has no turns, so request_permissions can grant for the session only: no turn id. */
    const struct sp_str call_id = sp_str_of(r->call_id);
    const bool has_turn = r->tool->when != SP_TOOL_WITH_ADDITIONAL_PERMISSIONS;

    return sp_tools_call(r->caller->manager, &sp_mcp_run_options(r)->tools,
                         sp_str_of(r->tool->name), call_id, has_turn ? call_id : (struct sp_str){0},
                         r->arguments.written, on_tool_reply, r, &r->engine_call, e);
}

static const struct sp_mcp_tool permissions_tool = {
    .name = "request_permissions",
    .start = start_engine_tool,
    .when = SP_TOOL_WITH_ADDITIONAL_PERMISSIONS,
    .title = "Ask for more permissions",
    .description = "Asks a person to let all later commands of this session read, write or reach "
                   "more than the sandbox allows. Returns what was granted.",
    .parameters = sp_tools_permissions_parameters,
    .required = "\"permissions\"",
    .result = "permissions:object scope:string strict_auto_review:boolean",
};

/* The result has a session_id, too: a string or null, which has no plain type. */
static const struct sp_mcp_tool compat_tool = {
    .name = "unified_exec",
    .start = start_engine_tool,
    .when = SP_TOOL_WITH_UNIFIED_EXEC,
    .title = "Run a command (older tool)",
    .description =
        "Runs a command in a PTY. Provide a session_id to reuse an existing interactive session.",
    .parameters = sp_tools_compat_parameters,
    .required = "\"input\"",
    .is_destructive = true,
    .is_open_world = true,
    .result = "output:string",
};

/* ---- the table, in the order of tools/list ---- */

static const struct sp_mcp_tool *const tools[] = {
    &sp_mcp_tool_exec,   &sp_mcp_tool_write,  &sp_mcp_tool_read,    &sp_mcp_tool_list,
    &sp_mcp_tool_signal, &sp_mcp_tool_resize, &sp_mcp_tool_explain, &patch_tool,
    &permissions_tool,   &compat_tool,
};
#define TOOL_COUNT (sizeof tools / sizeof tools[0])

const struct sp_mcp_tool *sp_mcp_tool_find(const struct sp_mcp *m, struct sp_str name)
{
    for (size_t i = 0; i < TOOL_COUNT; i++)
        if (sp_str_eq(name, sp_str_of(tools[i]->name)) &&
            sp_tools_has(&sp_mcp_options(m)->tools, tools[i]->when))
            return tools[i];
    return NULL;
}

static bool add_result_schema(struct sp_buf *out, const char *members)
{
    struct sp_str left = sp_str_of(members);
    struct sp_str first = left;
    bool ok =
        sp_buf_add_str(out, SP_STR(",\"outputSchema\":{\"type\":\"object\",\"properties\":{"));

    first = sp_str_cut(&first, ':');
    while (ok && left.n != 0) {
        const struct sp_str name = sp_str_cut(&left, ':');
        const struct sp_str type = sp_str_cut(&left, ' ');

        ok = sp_buf_printf(out, "%s\"" SP_STR_FMT "\":{\"type\":\"" SP_STR_FMT "\"%s}",
                           name.p == first.p ? "" : ",", SP_STR_ARG(name), SP_STR_ARG(type),
                           sp_str_eq(type, SP_STR("array")) ? ",\"items\":{\"type\":\"object\"}"
                                                            : "");
    }
    return ok && sp_buf_printf(out, "},\"required\":[\"" SP_STR_FMT "\"]}", SP_STR_ARG(first));
}

static bool add_tool(struct sp_buf *out, const struct sp_mcp_tool *t,
                     const struct sp_tools_options *o, struct sp_mcp_tool_words words)
{
    static const char *const names[] = {"false", "true"};

    if (!sp_buf_printf(out, "{\"name\":\"%s\"", t->name) ||
        !sp_json_add_member(out, "description", sp_str_of(t->description)) ||
        !sp_json_add_key(out, "inputSchema") || !sp_tools_add_parameters(out, t->parameters, o) ||
        (t->required != NULL && !sp_json_add_value(out, "required", "[%s]", t->required)) ||
        !sp_buf_add_str(out, SP_STR(",\"additionalProperties\":false}")))
        return false;
    if (words.has_output_schema && t->result != NULL && !add_result_schema(out, t->result))
        return false;
    if (words.has_annotations &&
        !sp_buf_printf(out,
                       ",\"annotations\":{\"title\":\"%s\",\"readOnlyHint\":%s,"
                       "\"destructiveHint\":%s,\"idempotentHint\":%s,\"openWorldHint\":%s}",
                       t->title, names[t->is_read_only], names[t->is_destructive],
                       names[t->is_idempotent], names[t->is_open_world]))
        return false;
    return (!words.has_output_schema || !t->is_main ||
            sp_buf_add_str(out, SP_STR(",\"_meta\":{\"anthropic/alwaysLoad\":true}"))) &&
           sp_buf_add(out, "}", 1);
}

bool sp_mcp_tools_add_list(struct sp_buf *out, const struct sp_mcp *m,
                           struct sp_mcp_tool_words words)
{
    struct sp_tools_options o = sp_mcp_options(m)->tools;
    const size_t mark = out->len;
    bool ok = sp_buf_add(out, "[", 1);

    o.has_several_environments = sp_mcp_options(m)->manager->environment_count > 1;
    for (size_t i = 0; ok && i < TOOL_COUNT; i++)
        ok = !sp_tools_has(&o, tools[i]->when) ||
             ((i == 0 || sp_buf_add(out, ",", 1)) && add_tool(out, tools[i], &o, words));
    ok = ok && sp_buf_add(out, "]", 1);
    if (!ok)
        out->len = mark;
    return ok;
}

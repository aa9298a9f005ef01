/* SPDX-License-Identifier: Apache-2.0 */
#include "mcp/tool.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "mcp/tool_priv.h"

#define PERMISSIONS  "request_permissions"
#define UNIFIED_EXEC "unified_exec"

static const struct sp_mcp_tool tools[] = {
    {"exec_command", sp_mcp_tool_exec},      {"write_stdin", sp_mcp_tool_write},
    {"read_output", sp_mcp_tool_read},       {"list_sessions", sp_mcp_tool_list},
    {"signal_session", sp_mcp_tool_signal},  {"resize_session", sp_mcp_tool_resize},
    {"explain_denial", sp_mcp_tool_explain}, {"apply_patch", sp_mcp_tool_patch},
    {PERMISSIONS, sp_mcp_tool_permissions},  {UNIFIED_EXEC, sp_mcp_tool_unified_exec},
};

/* Two are there only if the configuration switches them on. */
bool sp_mcp_tool_is_offered(const struct sp_mcp *m, const char *name)
{
    const struct sp_tools_options *o = &sp_mcp_options(m)->tools;

    if (strcmp(name, PERMISSIONS) == 0)
        return o->has_additional_permissions;
    return strcmp(name, UNIFIED_EXEC) != 0 || o->has_unified_exec;
}

const struct sp_mcp_tool *sp_mcp_tool_find(const struct sp_mcp *m, struct sp_str name)
{
    for (size_t i = 0; i < sizeof tools / sizeof tools[0]; i++)
        if (sp_str_eq(name, sp_str_of(tools[i].name)) && sp_mcp_tool_is_offered(m, tools[i].name))
            return &tools[i];
    return NULL;
}

/* ---- refusals ---- */

static void free_text(struct sp_mcp_run *r)
{
    free(r->data);
}

static void fail_now(struct sp_deferred *d)
{
    struct sp_mcp_run *r = SP_CONTAINER(d, struct sp_mcp_run, deferred);

    sp_mcp_run_fail(r, "%s", (const char *)r->data);
}

int sp_mcp_tool_refuse(struct sp_mcp_run *r, struct sp_err *e, const char *fmt, ...)
{
    char *text = NULL;
    va_list args;

    va_start(args, fmt);
    const int n = vasprintf(&text, fmt, args);
    va_end(args);
    if (n < 0)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "refuse a call");
    r->data = text;
    r->free_data = free_text;
    sp_loop_defer(sp_mcp_run_options(r)->loop, &r->deferred, fail_now);
    return 0;
}

int sp_mcp_tool_refuse_arguments(struct sp_mcp_run *r, struct sp_err *e)
{
    if (e->code == SP_E_SYSTEM)
        return -SP_E_SYSTEM;
    const struct sp_err why = *e;
    return sp_mcp_tool_refuse(r, e, "failed to parse function arguments: %s", why.msg);
}

int sp_mcp_tool_read_arguments(struct sp_arguments *a, struct sp_str text, struct sp_slots slots,
                               struct sp_err *e)
{
    slots.names_members = true;
    return sp_slots_read(a, text.n == 0 ? SP_STR("{}") : text, slots, e);
}

bool sp_mcp_run_add_output(struct sp_buf *out, const struct sp_mcp_run *r, struct sp_str output)
{
    return !r->repeats_output ||
           (sp_buf_add_str(out, SP_STR(",\"output\":")) && sp_json_add_str(out, output));
}

void sp_mcp_tool_no_memory(struct sp_mcp_run *r)
{
    const struct sp_mcp_result result = {.is_error = true,
                                         .text = SP_STR("no memory for the answer; read_output has "
                                                        "what a session has printed")};

    sp_mcp_run_done(r, &result);
}

/* ---- tools that are the engine's own, with their texts ---- */

static void on_tool(void *user, const struct sp_tool_reply *reply)
{
    struct sp_mcp_run *r = user;
    const struct sp_mcp_result result = {
        .is_error = reply->has_failed, .text = reply->text, .structured = reply->structured};

    r->engine_call = 0;
    sp_mcp_run_done(r, &result);
}

static int start_tool(struct sp_mcp_run *r, struct sp_str turn_id, struct sp_str arguments,
                      struct sp_err *e)
{
    return sp_tools_call(r->caller->manager, &sp_mcp_run_options(r)->tools,
                         sp_str_of(r->tool->name), sp_str_of(r->call_id), turn_id,
                         arguments.n == 0 ? SP_STR("{}") : arguments, on_tool, r, &r->engine_call,
                         e);
}

/* The protocol has no turns, so a permission can be for the session alone. */
int sp_mcp_tool_permissions(struct sp_mcp_run *r, struct sp_str arguments, struct sp_err *e)
{
    return start_tool(r, (struct sp_str){0}, arguments, e);
}

int sp_mcp_tool_unified_exec(struct sp_mcp_run *r, struct sp_str arguments, struct sp_err *e)
{
    return start_tool(r, sp_str_of(r->call_id), arguments, e);
}

/* ---- names ---- */

const char *sp_mcp_signal_name(int number, char room[16])
{
    const char *name = sigabbrev_np(number);

    (void)snprintf(room, 16, name != NULL ? "SIG%.8s" : "%.0s%d", name != NULL ? name : "", number);
    return room;
}

const char *sp_mcp_end_reason_name(enum sp_end_reason r)
{
    switch (r) {
    case SP_END_NONE:
        return NULL;
    case SP_END_EXIT:
        return "exit";
    case SP_END_SIGNAL:
        return "signal";
    case SP_END_TIMEOUT:
        return "timeout";
    case SP_END_TERMINATED:
        return "terminated";
    case SP_END_IDLE:
        return "idle_ttl";
    case SP_END_LOST:
        return "lost";
    }
    return NULL;
}

bool sp_mcp_is_held(bool is_output_held, const struct sp_look *look)
{
    return is_output_held && (look == NULL || look->holder_count != 0);
}

const char *sp_mcp_state_name(bool has_exited, bool is_output_held, const struct sp_look *look)
{
    if (has_exited)
        return sp_mcp_is_held(is_output_held, look) ? "output_held" : "exited";
    return sp_doing_name(look == NULL ? SP_DOING_UNKNOWN : look->doing);
}

char *sp_mcp_tool_copy(struct sp_str s)
{
    char *copy = malloc(s.n + 1);

    if (copy == NULL)
        return NULL;
    if (s.n != 0)
        memcpy(copy, s.p, s.n);
    copy[s.n] = 0;
    return copy;
}

const struct sp_environment_spec *sp_mcp_tool_environment(const struct sp_mcp *m, struct sp_str id)
{
    const struct sp_manager_options *o = sp_mcp_options(m)->manager;

    for (uint32_t i = 0; i < o->environment_count; i++)
        if (id.p == NULL || sp_str_eq(sp_str_of(o->environments[i].id), id))
            return &o->environments[i];
    return NULL;
}

const struct sp_policy *sp_mcp_tool_policy(const struct sp_mcp *m,
                                           const struct sp_environment_spec *environment)
{
    return environment != NULL && environment->has_own_policy ? environment->policy
                                                              : sp_mcp_options(m)->manager->policy;
}

const char *sp_mcp_tool_cwd(const struct sp_mcp *m)
{
    const struct sp_mcp_options *o = sp_mcp_options(m);

    if (o->cwd != NULL)
        return o->cwd;
    if (o->manager->environment_count != 0 && o->manager->environments[0].cwd != NULL)
        return o->manager->environments[0].cwd;
    return o->manager->policy != NULL ? o->manager->policy->cwd : NULL;
}

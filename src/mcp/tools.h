/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tools: exec_command and write_stdin as codex offers them to models: arguments are JSON, replies
 * text or JSON, and each tool has a schema. If switched on, also request_permissions and the older
 * unified_exec. The C library offers these; MCP has its own, larger set (tool.h).
 */
#ifndef SP_MCP_TOOLS_H
#define SP_MCP_TOOLS_H

#include "engine/manager.h"

struct sp_tools_options {
    bool has_login;                  /* login shells are allowed: `login` is in the schema */
    bool has_fixed_shell;            /* `shell` is not in the schema */
    bool has_several_environments;   /* `environment_id` is in the schema */
    bool has_additional_permissions; /* the feature exec_permission_approvals */
    bool has_no_timeout;             /* the feature write_stdin_no_timeout */
    bool has_unified_exec;           /* the older tool is offered, too */
};

/* Borrowed for the call of sp_tool_fn. */
struct sp_tool_reply {
    bool has_failed;
    struct sp_str text;          /* for the model */
    struct sp_str structured;    /* a JSON object; empty if has_failed */
    const struct sp_reply *from; /* NULL: the arguments were refused */
};
typedef void sp_tool_fn(void *user, const struct sp_tool_reply *r);

/*
 * Calls a tool by name; `arguments` is the model's JSON text. fn is called once, from the loop.
 * SP_E_NO_METHOD: no such tool, or it is switched off; else as sp_manager_exec.
 */
int sp_tools_call(struct sp_manager *m, const struct sp_tools_options *o, struct sp_str tool,
                  struct sp_str call_id, struct sp_str turn_id, struct sp_str arguments,
                  sp_tool_fn *fn, void *user, uint64_t *ret_call, struct sp_err *e);

/* ---- what is published ---- */

/* When a tool or a parameter is offered. */
enum sp_tool_when {
    SP_TOOL_ALWAYS,
    SP_TOOL_WITH_LOGIN,
    SP_TOOL_WITHOUT_FIXED_SHELL,
    SP_TOOL_WITH_SEVERAL_ENVIRONMENTS,
    SP_TOOL_WITH_ADDITIONAL_PERMISSIONS,
    SP_TOOL_WITHOUT_ADDITIONAL_PERMISSIONS,
    SP_TOOL_WITH_NO_TIMEOUT,
    SP_TOOL_WITH_UNIFIED_EXEC,
};
bool sp_tools_has(const struct sp_tools_options *o, enum sp_tool_when when);

/* Lists end with a name of NULL. */
struct sp_tool_parameter {
    const char *name, *type, *description;
    const char *more; /* further members of its schema; NULL: none */
    enum sp_tool_when when;
};
#define SP_PARAMETER(name, type, description)         \
    {                                                 \
        name, type, description, NULL, SP_TOOL_ALWAYS \
    }
/* Of request_permissions and unified_exec, for both sets of tools. */
extern const struct sp_tool_parameter sp_tools_permissions_parameters[],
    sp_tools_compat_parameters[];
/* `{"type":"object","properties":{...}`: the caller adds to the object and closes it. */
bool sp_tools_add_parameters(struct sp_buf *out, const struct sp_tool_parameter *list,
                             const struct sp_tools_options *o);

/* Appends a JSON array of the tools: name, description, strict, parameters, output schema. */
bool sp_tools_add_schemas(struct sp_buf *out, const struct sp_tools_options *o);

/* Appends one event as a JSON object. false: out of memory, and nothing was appended. */
bool sp_tools_add_event(struct sp_buf *out, const struct sp_exec_event *e);

#endif

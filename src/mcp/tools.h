/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tools: exec_command and write_stdin as a model sees them (unified-exec.md 3): arguments are JSON,
 * replies are text or JSON, and each tool has a schema. And, if they are on, the old unified_exec
 * and request_permissions (approvals.md 9.3).
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
    bool has_unified_exec;           /* the old tool is there too */
};

/* What the caller is told. Borrowed for the call. */
struct sp_tool_reply {
    bool has_failed;             /* the failure flag */
    struct sp_str text;          /* what a model reads */
    struct sp_str structured;    /* a JSON object (3.6); empty with a failure */
    const struct sp_reply *from; /* NULL: the arguments were refused */
};
typedef void sp_tool_fn(void *user, const struct sp_tool_reply *r);

/*
 * Calls a tool by name; `arguments` is the model's JSON text. fn is called once, from the loop.
 * SP_E_NO_METHOD: no such tool (or it is off); else as sp_manager_exec.
 */
int sp_tools_call(struct sp_manager *m, const struct sp_tools_options *o, struct sp_str tool,
                  struct sp_str call_id, struct sp_str turn_id, struct sp_str arguments,
                  sp_tool_fn *fn, void *user, uint64_t *ret_call, struct sp_err *e);

/* Appends a JSON array of the tools: name, description, strict, parameters, output schema. */
bool sp_tools_add_schemas(struct sp_buf *out, const struct sp_tools_options *o);

/* Appends one event as a JSON object (6.1). false: no room. */
bool sp_tools_add_event(struct sp_buf *out, const struct sp_exec_event *e);

#endif

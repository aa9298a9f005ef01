/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool: the tools that models are offered, and what their files share.
 *
 *   tool.c           the table, tools/list; apply_patch, request_permissions, unified_exec
 *   tool_exec.c      exec_command, write_stdin
 *   tool_sessions.c  read_output, list_sessions, signal_session, resize_session
 *   tool_denial.c    explain_denial
 */
#ifndef SP_MCP_TOOL_H
#define SP_MCP_TOOL_H

#include "mcp/mcp_run.h"

/* A tool: what models are told about it, and what runs. The descriptions are part of the contract,
 * and models pay for every byte of tools/list in every conversation: test_mcp_forms.py limits it to
 * 12 kB. Schemas are plain objects, because some hosts refuse unions. */
struct sp_mcp_tool {
    const char *name;
    /* Reads r->arguments and leads to one sp_mcp_run_done, later; bad arguments are a result, too.
     * SP_E_SYSTEM: out of memory. */
    int (*start)(struct sp_mcp_run *r, struct sp_err *e);
    enum sp_tool_when when; /* offered */
    const char *title, *description;
    const struct sp_tool_parameter *parameters; /* NULL: none */
    const char *required;                       /* parameters, as JSON; NULL: none */
    bool is_read_only, is_destructive, is_idempotent, is_open_world;
    bool is_main; /* hosts that load tools on demand should always load it */
    /* The members of its structured result, `name:type` each, the first one required; NULL: none.
     * Most hosts do not show them to models, so they have no descriptions. */
    const char *result;
};

/* NULL: no such tool, or it is switched off. */
const struct sp_mcp_tool *sp_mcp_tool_find(const struct sp_mcp *m, struct sp_str name);

/* What a revision of the protocol supports. */
struct sp_mcp_tool_words {
    bool has_annotations;   /* since 2025-03-26 */
    bool has_output_schema; /* since 2025-06-18 */
};
/* Appends the JSON array of tools/list, in a fixed order. false: out of memory. */
bool sp_mcp_tools_add_list(struct sp_buf *out, const struct sp_mcp *m,
                           struct sp_mcp_tool_words words);

/* ---- for the tools ---- */

extern const struct sp_mcp_tool sp_mcp_tool_exec, sp_mcp_tool_write, sp_mcp_tool_read,
    sp_mcp_tool_list, sp_mcp_tool_signal, sp_mcp_tool_resize, sp_mcp_tool_explain;

/* Parameters of several tools. */
#define SP_MCP_SESSION_ID SP_PARAMETER("session_id", "integer", "Id of the session.")
#define SP_MCP_ENVIRONMENT_ID                                                             \
    {                                                                                     \
        "environment_id", "string", "Name of the environment. Default: the first.", NULL, \
            SP_TOOL_WITH_SEVERAL_ENVIRONMENTS                                             \
    }

/* Lets the loop end the run with this error for the model. */
SP_PRINTF(3, 4)
int sp_mcp_tool_refuse(struct sp_mcp_run *r, struct sp_err *e, const char *fmt, ...);
/* The same with a prefix and the text of *e; SP_E_SYSTEM is passed on instead. */
int sp_mcp_tool_refuse_error(struct sp_mcp_run *r, const char *prefix, struct sp_err *e);
#define SP_MCP_BAD_ARGUMENTS "failed to parse function arguments: "
/* Ends the run: out of memory for the answer. */
void sp_mcp_tool_no_memory(struct sp_mcp_run *r);
/* Ends the run with these texts; ok false: out of memory for them. */
void sp_mcp_tool_done(struct sp_mcp_run *r, bool ok, const struct sp_buf *text,
                      const struct sp_buf *structured);
/* Calls tell from the loop, after an inspection of the session. false: session_id is 0, or nothing
 * can be inspected; tell is not called. */
bool sp_mcp_tool_inspect(struct sp_mcp_run *r, int session_id,
                         void (*tell)(struct sp_mcp_run *r, const struct sp_inspection *found));
/* `,"output":...`, or nothing if the host shows its model the text. */
bool sp_mcp_run_add_output(struct sp_buf *out, const struct sp_mcp_run *r, struct sp_str output);

/* "SIGTERM" for 15; `room` is for numbers without a name. */
const char *sp_mcp_signal_name(int number, char room[16]);
/* Whether another process keeps the output open after the exit. The output also stays open for a
 * moment after every exit: an inspection that finds no holder rules that out. */
static inline bool sp_mcp_is_output_held(bool is_output_held, const struct sp_inspection *found)
{
    return is_output_held && (found == NULL || found->holder_count != 0);
}
/* The state of a process; found NULL: unknown. */
const char *sp_mcp_state_name(bool has_exited, bool is_output_held,
                              const struct sp_inspection *found);

/* What to do about an unknown session id. */
#define SP_MCP_UNKNOWN_HINT                                                                        \
    "A session is known until its end was told, and its output for a while longer; list_sessions " \
    "names those that there are."

#endif

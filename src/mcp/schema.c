/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is published about the tools (unified-exec.md 3.1, 3.2, 3.6, 3.9; approvals.md 9.3). The
 * descriptions are read by models: each word of them is part of the contract.
 */
#include "mcp/schema.h"

#include "base/json.h"

struct tool {
    const char *name, *description;
    const struct sp_parameter *parameters; /* a name of NULL ends it */
    const char *required;
    const char *output; /* the schema of its structured answer */
};

#define MAX_OUTPUT_TOKENS                                                            \
    {                                                                                \
        "max_output_tokens", "number",                                               \
            "Output token budget. Defaults to 10000 tokens; larger requests may be " \
            "capped by policy.",                                                     \
            NULL, SP_SCHEMA_ALWAYS                                                   \
    }

static const char additional_permissions[] =
    "\"properties\":{"
    "\"network\":{\"type\":\"object\",\"description\":\"Network access request.\","
    "\"properties\":{\"enabled\":{\"type\":\"boolean\",\"description\":"
    "\"True requests network access; false or omitted requests none.\"}},"
    "\"additionalProperties\":false},"
    "\"file_system\":{\"type\":\"object\",\"description\":\"Filesystem access request.\","
    "\"properties\":{"
    "\"read\":{\"type\":\"array\"," SP_SCHEMA_STRINGS ",\"description\":"
    "\"Absolute paths to grant read access; omit when none are needed.\"},"
    "\"write\":{\"type\":\"array\"," SP_SCHEMA_STRINGS ",\"description\":"
    "\"Absolute paths to grant write access; omit when none are needed.\"}},"
    "\"additionalProperties\":false}},"
    "\"additionalProperties\":false";

const struct sp_parameter sp_schema_exec[] = {
    {"cmd", "string", "Shell command to execute.", NULL, SP_SCHEMA_ALWAYS},
    {"workdir", "string", "Working directory for the command. Defaults to the turn cwd.", NULL,
     SP_SCHEMA_ALWAYS},
    {"tty", "boolean", "True allocates a PTY for the command; false or omitted uses plain pipes.",
     NULL, SP_SCHEMA_ALWAYS},
    {"yield_time_ms", "number",
     "Wait before yielding output. Defaults to 10000 ms; effective range is 250-30000 ms.", NULL,
     SP_SCHEMA_ALWAYS},
    MAX_OUTPUT_TOKENS,
    {"shell", "string", "Shell binary to launch. Defaults to the user's default shell.", NULL,
     SP_SCHEMA_WITHOUT_FIXED_SHELL},
    {"login", "boolean",
     "True runs the shell with -l/-i semantics; false disables them. Defaults to true.", NULL,
     SP_SCHEMA_WITH_LOGIN},
    {"environment_id", "string",
     "Environment id from <environment_context>. Omit to use the primary environment.", NULL,
     SP_SCHEMA_WITH_SEVERAL_ENVIRONMENTS},
    {"sandbox_permissions", "string",
     "Per-command sandbox override. Defaults to `use_default`; use `require_escalated` for "
     "unsandboxed execution.",
     "\"enum\":[\"use_default\",\"require_escalated\"]", SP_SCHEMA_WITHOUT_ADDITIONAL_PERMISSIONS},
    {"sandbox_permissions", "string",
     "Per-command sandbox override. Defaults to `use_default`; use `with_additional_permissions` "
     "with `additional_permissions`, or `require_escalated` for unsandboxed execution.",
     "\"enum\":[\"use_default\",\"with_additional_permissions\",\"require_escalated\"]",
     SP_SCHEMA_WITH_ADDITIONAL_PERMISSIONS},
    {"additional_permissions", "object",
     "Sandboxed filesystem or network access for this command; only with `sandbox_permissions: "
     "\"with_additional_permissions\"`.",
     additional_permissions, SP_SCHEMA_WITH_ADDITIONAL_PERMISSIONS},
    {"justification", "string",
     "User-facing approval question for `require_escalated`; omit otherwise.", NULL,
     SP_SCHEMA_ALWAYS},
    {"prefix_rule", "array",
     "Reusable approval prefix for `cmd`, only with `sandbox_permissions: \"require_escalated\"`; "
     "for example [\"git\", \"pull\"].",
     SP_SCHEMA_STRINGS, SP_SCHEMA_ALWAYS},
    {0},
};

const struct sp_parameter sp_schema_write[] = {
    {"session_id", "number", "Identifier of the running unified exec session.", NULL,
     SP_SCHEMA_ALWAYS},
    {"chars", "string", "Bytes to write to stdin. Defaults to empty, which polls without writing.",
     NULL, SP_SCHEMA_ALWAYS},
    {"yield_time_ms", "number",
     "Wait before yielding output. Non-empty writes default to 250 ms and cap at 30000 ms; empty "
     "polls wait 5000-300000 ms by default.",
     NULL, SP_SCHEMA_ALWAYS},
    MAX_OUTPUT_TOKENS,
    {"no_timeout", "boolean",
     "If set to true, nothing will be returned before the end of the process. This can only be "
     "used with empty `chars` and empty `yield_time_ms`. This must be used to wait for very long "
     "running processes/tests or to schedule a wait.",
     NULL, SP_SCHEMA_WITH_NO_TIMEOUT},
    {0},
};

const struct sp_parameter sp_schema_permissions[] = {
    {"permissions", "object",
     "Filesystem or network access that commands need beyond their sandbox.",
     additional_permissions, SP_SCHEMA_ALWAYS},
    {"reason", "string", "User-facing explanation of why it is needed.", NULL, SP_SCHEMA_ALWAYS},
    {"environment_id", "string",
     "Environment id from <environment_context>. Omit to use the primary environment.", NULL,
     SP_SCHEMA_WITH_SEVERAL_ENVIRONMENTS},
    {0},
};

const struct sp_parameter sp_schema_compat[] = {
    {"input", "array",
     "Without session_id: the program to run and its arguments. With it: text for the session, "
     "joined with spaces where it has none.",
     SP_SCHEMA_STRINGS, SP_SCHEMA_ALWAYS},
    {"session_id", "string", "The session to write to, as an earlier answer named it.", NULL,
     SP_SCHEMA_ALWAYS},
    {"timeout_ms", "number",
     "How long to gather output. Defaults to 1000 ms; more than 60000 ms is cut to that.", NULL,
     SP_SCHEMA_ALWAYS},
    {0},
};

static const char answer_schema[] =
    "{\"type\":\"object\",\"properties\":{" SP_SCHEMA_ANSWER "},"
    "\"required\":[\"wall_time_seconds\",\"output\"],\"additionalProperties\":false}";

static const char permissions_schema[] =
    "{\"type\":\"object\",\"properties\":{"
    "\"permissions\":{\"type\":\"object\",\"description\":\"What was granted of it.\"},"
    "\"scope\":{\"type\":\"string\",\"enum\":[\"turn\",\"session\"],\"description\":"
    "\"For how long.\"},"
    "\"strict_auto_review\":{\"type\":\"boolean\",\"description\":"
    "\"True: everything that runs by then is reviewed first.\"}},"
    "\"required\":[\"permissions\",\"scope\",\"strict_auto_review\"],"
    "\"additionalProperties\":false}";

static const char compat_schema[] =
    "{\"type\":\"object\",\"properties\":{"
    "\"session_id\":{\"type\":[\"string\",\"null\"]},\"output\":{\"type\":\"string\"}},"
    "\"required\":[\"session_id\",\"output\"],\"additionalProperties\":false}";

const char sp_schema_exec_description[] =
    "Runs a command in a PTY, returning output or a session ID for ongoing interaction.";
const char sp_schema_write_description[] =
    "Writes characters to an existing unified exec session and returns recent output.";

static const struct tool exec_tool = {"exec_command", sp_schema_exec_description, sp_schema_exec,
                                      "cmd", answer_schema};

static const struct tool write_tool = {"write_stdin", sp_schema_write_description, sp_schema_write,
                                       "session_id", answer_schema};

static const struct tool permissions_tool = {
    "request_permissions",
    "Asks the user for filesystem or network access beyond the sandbox, for all commands of this "
    "turn or session. Returns what was granted; commands get it without asking again.",
    sp_schema_permissions, "permissions", permissions_schema};

static const struct tool compat_tool = {
    "unified_exec",
    "Runs a command in a PTY. Provide a session_id to reuse an existing interactive session.",
    sp_schema_compat, "input", compat_schema};

static bool is_published(enum sp_schema_when when, const struct sp_tools_options *o)
{
    switch (when) {
    case SP_SCHEMA_ALWAYS:
        return true;
    case SP_SCHEMA_WITH_LOGIN:
        return o->has_login;
    case SP_SCHEMA_WITHOUT_FIXED_SHELL:
        return !o->has_fixed_shell;
    case SP_SCHEMA_WITH_SEVERAL_ENVIRONMENTS:
        return o->has_several_environments;
    case SP_SCHEMA_WITH_ADDITIONAL_PERMISSIONS:
        return o->has_additional_permissions;
    case SP_SCHEMA_WITHOUT_ADDITIONAL_PERMISSIONS:
        return !o->has_additional_permissions;
    case SP_SCHEMA_WITH_NO_TIMEOUT:
        return o->has_no_timeout;
    }
    return false;
}

static bool add_parameter(struct sp_buf *out, const struct sp_parameter *p)
{
    return sp_buf_printf(out, "\"%s\":{\"type\":\"%s\",\"description\":", p->name, p->type) &&
           sp_json_add_str(out, sp_str_of(p->description)) &&
           (p->more == NULL ||
            (sp_buf_add(out, ",", 1) && sp_buf_add_str(out, sp_str_of(p->more)))) &&
           sp_buf_add(out, "}", 1);
}

bool sp_schema_add_parameters(struct sp_buf *out, const struct sp_parameter *list,
                              const struct sp_tools_options *o, bool follows)
{
    for (const struct sp_parameter *p = list; p->name != NULL; p++) {
        if (!is_published(p->when, o))
            continue;
        if ((follows && !sp_buf_add(out, ",", 1)) || !add_parameter(out, p))
            return false;
        follows = true;
    }
    return true;
}

static bool add_tool(struct sp_buf *out, const struct tool *t, const struct sp_tools_options *o)
{
    return sp_buf_printf(out, "{\"type\":\"function\",\"name\":\"%s\",\"description\":", t->name) &&
           sp_json_add_str(out, sp_str_of(t->description)) &&
           sp_buf_add_str(out, SP_STR(",\"strict\":false,\"parameters\":{\"type\":\"object\","
                                      "\"properties\":{")) &&
           sp_schema_add_parameters(out, t->parameters, o, false) &&
           sp_buf_printf(out, "},\"required\":[\"%s\"],\"additionalProperties\":false},",
                         t->required) &&
           sp_buf_printf(out, "\"output_schema\":%s}", t->output);
}

/* One more, if it is on. */
static bool add_another(struct sp_buf *out, bool is_on, const struct tool *t,
                        const struct sp_tools_options *o)
{
    return !is_on || (sp_buf_add(out, ",", 1) && add_tool(out, t, o));
}

bool sp_tools_add_schemas(struct sp_buf *out, const struct sp_tools_options *o)
{
    const size_t mark = out->len;
    const bool has_room = sp_buf_add(out, "[", 1) && add_tool(out, &exec_tool, o) &&
                          add_another(out, true, &write_tool, o) &&
                          add_another(out, o->has_additional_permissions, &permissions_tool, o) &&
                          add_another(out, o->has_unified_exec, &compat_tool, o) &&
                          sp_buf_add(out, "]", 1);

    if (!has_room)
        out->len = mark;
    return has_room;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool_schema: what is published about the tools, twice: for the C library in the words of codex,
 * and for tools/list in words of our own. Models read the descriptions, so each word is part of the
 * contract.
 *
 * Schemas are plain objects, because some hosts refuse unions. Models pay for every byte of
 * tools/list in every conversation: test_mcp_forms.py limits it to 12 kB. Most hosts do not show
 * models the output schema, so it has types and almost no descriptions.
 */
#include <string.h>

#include "mcp/tool.h"

#define STRINGS "\"items\":{\"type\":\"string\"}"

/* When a parameter is published. */
enum when {
    ALWAYS,
    WITH_LOGIN,
    WITHOUT_FIXED_SHELL,
    WITH_SEVERAL_ENVIRONMENTS,
    WITH_ADDITIONAL_PERMISSIONS,
    WITHOUT_ADDITIONAL_PERMISSIONS,
    WITH_NO_TIMEOUT,
};

/* Lists end with a name of NULL. */
struct parameter {
    const char *name, *type, *description;
    const char *more; /* further members of its schema; NULL: none */
    enum when when;
};

/* ---- parameters ---- */

static bool is_published(enum when when, const struct sp_tools_options *o)
{
    switch (when) {
    case ALWAYS:
        return true;
    case WITH_LOGIN:
        return o->has_login;
    case WITHOUT_FIXED_SHELL:
        return !o->has_fixed_shell;
    case WITH_SEVERAL_ENVIRONMENTS:
        return o->has_several_environments;
    case WITH_ADDITIONAL_PERMISSIONS:
        return o->has_additional_permissions;
    case WITHOUT_ADDITIONAL_PERMISSIONS:
        return !o->has_additional_permissions;
    case WITH_NO_TIMEOUT:
        return o->has_no_timeout;
    }
    return false;
}

/* The members of a schema's `properties`. */
static bool add_parameters(struct sp_buf *out, const struct parameter *list,
                           const struct sp_tools_options *o)
{
    bool follows = false;

    for (const struct parameter *p = list; p->name != NULL; p++) {
        if (!is_published(p->when, o))
            continue;
        if (!sp_buf_printf(out, "%s\"%s\":{\"type\":\"%s\",\"description\":", follows ? "," : "",
                           p->name, p->type) ||
            !sp_json_add_str(out, sp_str_of(p->description)) ||
            (p->more != NULL &&
             !(sp_buf_add(out, ",", 1) && sp_buf_add_str(out, sp_str_of(p->more)))) ||
            !sp_buf_add(out, "}", 1))
            return false;
        follows = true;
    }
    return true;
}

/* ---- the schemas of codex ---- */

#define CODEX_MAX_OUTPUT_TOKENS                                                      \
    {                                                                                \
        "max_output_tokens", "number",                                               \
            "Output token budget. Defaults to 10000 tokens; larger requests may be " \
            "capped by policy.",                                                     \
            NULL, ALWAYS                                                             \
    }

static const char codex_permissions[] =
    "\"properties\":{"
    "\"network\":{\"type\":\"object\",\"description\":\"Network access request.\","
    "\"properties\":{\"enabled\":{\"type\":\"boolean\",\"description\":"
    "\"True requests network access; false or omitted requests none.\"}},"
    "\"additionalProperties\":false},"
    "\"file_system\":{\"type\":\"object\",\"description\":\"Filesystem access request.\","
    "\"properties\":{"
    "\"read\":{\"type\":\"array\"," STRINGS ",\"description\":"
    "\"Absolute paths to grant read access; omit when none are needed.\"},"
    "\"write\":{\"type\":\"array\"," STRINGS ",\"description\":"
    "\"Absolute paths to grant write access; omit when none are needed.\"}},"
    "\"additionalProperties\":false}},"
    "\"additionalProperties\":false";

static const struct parameter codex_exec[] = {
    {"cmd", "string", "Shell command to execute.", NULL, ALWAYS},
    {"workdir", "string", "Working directory for the command. Defaults to the turn cwd.", NULL,
     ALWAYS},
    {"tty", "boolean", "True allocates a PTY for the command; false or omitted uses plain pipes.",
     NULL, ALWAYS},
    {"yield_time_ms", "number",
     "Wait before yielding output. Defaults to 10000 ms; effective range is 250-30000 ms.", NULL,
     ALWAYS},
    CODEX_MAX_OUTPUT_TOKENS,
    {"shell", "string", "Shell binary to launch. Defaults to the user's default shell.", NULL,
     WITHOUT_FIXED_SHELL},
    {"login", "boolean",
     "True runs the shell with -l/-i semantics; false disables them. Defaults to true.", NULL,
     WITH_LOGIN},
    {"environment_id", "string",
     "Environment id from <environment_context>. Omit to use the primary environment.", NULL,
     WITH_SEVERAL_ENVIRONMENTS},
    {"sandbox_permissions", "string",
     "Per-command sandbox override. Defaults to `use_default`; use `require_escalated` for "
     "unsandboxed execution.",
     "\"enum\":[\"use_default\",\"require_escalated\"]", WITHOUT_ADDITIONAL_PERMISSIONS},
    {"sandbox_permissions", "string",
     "Per-command sandbox override. Defaults to `use_default`; use `with_additional_permissions` "
     "with `additional_permissions`, or `require_escalated` for unsandboxed execution.",
     "\"enum\":[\"use_default\",\"with_additional_permissions\",\"require_escalated\"]",
     WITH_ADDITIONAL_PERMISSIONS},
    {"additional_permissions", "object",
     "Sandboxed filesystem or network access for this command; only with `sandbox_permissions: "
     "\"with_additional_permissions\"`.",
     codex_permissions, WITH_ADDITIONAL_PERMISSIONS},
    {"justification", "string",
     "User-facing approval question for `require_escalated`; omit otherwise.", NULL, ALWAYS},
    {"prefix_rule", "array",
     "Reusable approval prefix for `cmd`, only with `sandbox_permissions: \"require_escalated\"`; "
     "for example [\"git\", \"pull\"].",
     STRINGS, ALWAYS},
    {0},
};

static const struct parameter codex_write[] = {
    {"session_id", "number", "Identifier of the running unified exec session.", NULL, ALWAYS},
    {"chars", "string", "Bytes to write to stdin. Defaults to empty, which polls without writing.",
     NULL, ALWAYS},
    {"yield_time_ms", "number",
     "Wait before yielding output. Non-empty writes default to 250 ms and cap at 30000 ms; empty "
     "polls wait 5000-300000 ms by default.",
     NULL, ALWAYS},
    CODEX_MAX_OUTPUT_TOKENS,
    {"no_timeout", "boolean",
     "If set to true, nothing will be returned before the end of the process. This can only be "
     "used with empty `chars` and empty `yield_time_ms`. This must be used to wait for very long "
     "running processes/tests or to schedule a wait.",
     NULL, WITH_NO_TIMEOUT},
    {0},
};

static const struct parameter permissions_parameters[] = {
    {"permissions", "object",
     "Filesystem or network access that commands need beyond their sandbox.", codex_permissions,
     ALWAYS},
    {"reason", "string", "User-facing explanation of why it is needed.", NULL, ALWAYS},
    {"environment_id", "string",
     "Environment id from <environment_context>. Omit to use the primary environment.", NULL,
     WITH_SEVERAL_ENVIRONMENTS},
    {0},
};

static const struct parameter compat_parameters[] = {
    {"input", "array",
     "Without session_id: the program to run and its arguments. With it: text for the session, "
     "joined with spaces where it has none.",
     STRINGS, ALWAYS},
    {"session_id", "string", "The session to write to, as an earlier answer named it.", NULL,
     ALWAYS},
    {"timeout_ms", "number",
     "How long to gather output. Defaults to 1000 ms; more than 60000 ms is cut to that.", NULL,
     ALWAYS},
    {0},
};

static const char answer_schema[] =
    "{\"type\":\"object\",\"properties\":{"
    "\"chunk_id\":{\"type\":\"string\",\"description\":\"Label of this answer.\"},"
    "\"wall_time_seconds\":{\"type\":\"number\",\"description\":\"How long this call waited.\"},"
    "\"exit_code\":{\"type\":\"number\",\"description\":\"There once the process has ended.\"},"
    "\"session_id\":{\"type\":\"number\",\"description\":"
    "\"There while the process runs: what write_stdin takes.\"},"
    "\"original_token_count\":{\"type\":\"number\",\"description\":"
    "\"About how many tokens of output there were before any were left out.\"},"
    "\"output\":{\"type\":\"string\",\"description\":\"Output since the last answer.\"}},"
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

static const struct codex_tool {
    const char *name, *description;
    const struct parameter *parameters;
    const char *required;
    const char *output; /* the schema of its structured answer */
} codex_tools[] = {
    {"exec_command",
     "Runs a command in a PTY, returning output or a session ID for ongoing interaction.",
     codex_exec, "cmd", answer_schema},
    {"write_stdin",
     "Writes characters to an existing unified exec session and returns recent output.",
     codex_write, "session_id", answer_schema},
    {"request_permissions",
     "Asks the user for filesystem or network access beyond the sandbox, for all commands of this "
     "turn or session. Returns what was granted; commands get it without asking again.",
     permissions_parameters, "permissions", permissions_schema},
    {"unified_exec",
     "Runs a command in a PTY. Provide a session_id to reuse an existing interactive session.",
     compat_parameters, "input", compat_schema},
};

bool sp_tools_add_schemas(struct sp_buf *out, const struct sp_tools_options *o)
{
    const size_t mark = out->len;
    bool ok = sp_buf_add(out, "[", 1);

    for (size_t i = 0; ok && i < sizeof codex_tools / sizeof codex_tools[0]; i++) {
        const struct codex_tool *t = &codex_tools[i];

        if ((t->parameters == permissions_parameters && !o->has_additional_permissions) ||
            (t->parameters == compat_parameters && !o->has_unified_exec))
            continue;
        ok = sp_buf_printf(out, "%s{\"type\":\"function\",\"name\":\"%s\",\"description\":",
                           i == 0 ? "" : ",", t->name) &&
             sp_json_add_str(out, sp_str_of(t->description)) &&
             sp_buf_add_str(out, SP_STR(",\"strict\":false,\"parameters\":{\"type\":\"object\","
                                        "\"properties\":{")) &&
             add_parameters(out, t->parameters, o) &&
             sp_buf_printf(out,
                           "},\"required\":[\"%s\"],\"additionalProperties\":false},"
                           "\"output_schema\":%s}",
                           t->required, t->output);
    }
    if (ok && sp_buf_add(out, "]", 1))
        return true;
    out->len = mark;
    return false;
}

/* ---- tools/list: results ---- */

/* A member of a structured result. The first of a list is required; a name of NULL ends it. */
struct member {
    const char *name, *type;
};

static const struct member answer_members[] = {
    {"state", "string"},
    {"exit_code", "integer"},
    {"signal", "string"},
    {"end_reason", "string"},
    {"session_id", "integer"},
    {"ended_session_id", "integer"},
    {"from_byte", "integer"},
    {"next_byte", "integer"},
    {"omitted_bytes", "integer"},
    {"omitted_from_byte", "integer"},
    {"woken_by", "object"},
    {"early", "string"},
    {"denials", "array"},
    {"holders", "array"},
    {"chunk_id", "string"},
    {"wall_time_seconds", "number"},
    {"original_token_count", "integer"},
    {"output", "string"},
    {"note", "string"},
    {0},
};

static const struct member read_members[] = {
    {"state", "string"},
    {"exit_code", "integer"},
    {"from_byte", "integer"},
    {"next_byte", "integer"},
    {"first_byte", "integer"},
    {"end_byte", "integer"},
    {"omitted_bytes", "integer"},
    {"matches", "integer"},
    {"output", "string"},
    {"note", "string"},
    {0},
};

static const struct member list_members[] = {{"sessions", "array"}, {"note", "string"}, {0}};

static const struct member signal_members[] = {
    {"state", "string"},      {"exit_code", "integer"}, {"signal", "string"},
    {"end_reason", "string"}, {"note", "string"},       {0},
};

static const struct member explain_members[] = {
    {"denials", "array"},     {"allowed", "boolean"}, {"read", "boolean"},
    {"write", "boolean"},     {"target", "string"},   {"rule", "string"},
    {"what_to_do", "string"}, {"note", "string"},     {0},
};

static const struct member patch_members[] = {
    {"changes", "array"}, {"output", "string"}, {"note", "string"}, {0}};

static const struct member permissions_members[] = {
    {"permissions", "object"}, {"scope", "string"}, {"strict_auto_review", "boolean"}, {0}};

/* Without session_id: a string or null has no plain type. */
static const struct member compat_members[] = {{"output", "string"}, {0}};

/* ---- tools/list: arguments ---- */

#define ARGUMENT(name, type, text, more) \
    {                                    \
        name, type, text, more, ALWAYS   \
    }
#define ENVIRONMENT_ID                                                                    \
    {                                                                                     \
        "environment_id", "string", "Name of the environment. Default: the first.", NULL, \
            WITH_SEVERAL_ENVIRONMENTS                                                     \
    }
#define UNTIL                                                                                  \
    ARGUMENT("until", "object",                                                                \
             "End the wait early, at the first of these that happens (the end of the process " \
             "always ends it).",                                                               \
             "\"properties\":{\"exit\":{\"type\":\"boolean\",\"description\":\"The process "   \
             "ends.\"},\"pattern\":{\"type\":\"string\",\"description\":\"New output matches " \
             "this extended regular expression.\"},\"quiet_ms\":{\"type\":\"integer\","        \
             "\"description\":\"No output for this long.\"},\"port\":{\"type\":\"integer\","   \
             "\"description\":\"The process or a child listens on this TCP port.\"}},"         \
             "\"additionalProperties\":false")
#define SESSION_ID ARGUMENT("session_id", "integer", "Id of the session.", NULL)
#define MAX_OUTPUT_TOKENS                                                                       \
    ARGUMENT("max_output_tokens", "integer",                                                    \
             "Most tokens of output in the answer. Default 4500; the configuration has a cap. " \
             "read_output has the rest.",                                                       \
             NULL)

static const char additional_permissions[] =
    "\"properties\":{\"network\":{\"type\":\"object\",\"description\":\"Network access.\","
    "\"properties\":{\"enabled\":{\"type\":\"boolean\",\"description\":\"true: wanted.\"}},"
    "\"additionalProperties\":false},\"file_system\":{\"type\":\"object\",\"description\":"
    "\"Access to files.\",\"properties\":{\"read\":{\"type\":\"array\"," STRINGS
    ",\"description\":\"Absolute paths to read.\"},\"write\":{\"type\":\"array\"," STRINGS
    ",\"description\":\"Absolute paths to write.\"}},\"additionalProperties\":false}},"
    "\"additionalProperties\":false";

static const struct parameter exec_parameters[] = {
    ARGUMENT("cmd", "string", "A script for the shell, for example `make test`.", NULL),
    ARGUMENT("argv", "array", "Instead of cmd: a program and its arguments, without a shell.",
             STRINGS),
    ARGUMENT("workdir", "string", "Directory to run in. Default: the workspace.", NULL),
    ARGUMENT("env", "object", "Environment variables to set.",
             "\"additionalProperties\":{\"type\":\"string\"}"),
    ARGUMENT("tty", "boolean",
             "true: in a terminal, needed to type into the command. Default: pipes, and its stdin "
             "is empty.",
             NULL),
    ARGUMENT("rows", "integer", "Height of the terminal. Default 24.", NULL),
    ARGUMENT("cols", "integer", "Width of the terminal. Default 80.", NULL),
    ARGUMENT("yield_time_ms", "integer",
             "How long to wait for the command to end before answering: 250 to 30000. Default "
             "10000.",
             NULL),
    UNTIL,
    ARGUMENT("timeout_ms", "integer",
             "Kill the command and its children after this long. Default: never.", NULL),
    MAX_OUTPUT_TOKENS,
    {"shell", "string", "Shell for cmd. Default: the user's.", NULL, WITHOUT_FIXED_SHELL},
    {"login", "boolean", "false: the shell reads no login files, which is faster. Default true.",
     NULL, WITH_LOGIN},
    ENVIRONMENT_ID,
    {"sandbox_permissions", "string",
     "`require_escalated`: ask for permission to run without a sandbox. Default `use_default`.",
     "\"enum\":[\"use_default\",\"require_escalated\"]", WITHOUT_ADDITIONAL_PERMISSIONS},
    {"sandbox_permissions", "string",
     "`with_additional_permissions`: ask for additional_permissions. `require_escalated`: ask for "
     "permission to run without a sandbox. Default `use_default`.",
     "\"enum\":[\"use_default\",\"with_additional_permissions\",\"require_escalated\"]",
     WITH_ADDITIONAL_PERMISSIONS},
    {"additional_permissions", "object", "What the command needs beyond its sandbox.",
     additional_permissions, WITH_ADDITIONAL_PERMISSIONS},
    ARGUMENT("justification", "string", "When asking for permission: why, for the person asked.",
             NULL),
    ARGUMENT("prefix_rule", "array",
             "With require_escalated: offer to allow all commands that begin so, for example "
             "[\"git\",\"pull\"].",
             STRINGS),
    ARGUMENT("key", "string",
             "A name of your choice for this start. Repeating the call with the same key within 10 "
             "minutes starts nothing and answers for the same session.",
             NULL),
    {0},
};

static const struct parameter write_parameters[] = {
    SESSION_ID,
    ARGUMENT("chars", "string", "Text to type, exactly; end a line with \\n.", NULL),
    ARGUMENT("keys", "array",
             "Keys to press after chars: Enter Tab Escape Backspace Delete Up Down Left Right Home "
             "End PageUp PageDown F1-F12 C-a-C-z. Needs a tty.",
             STRINGS),
    ARGUMENT("eof", "boolean", "true: send end of file last. Needs a tty.", NULL),
    ARGUMENT("yield_time_ms", "integer",
             "How long to wait. After typing: default 250, at most 30000. Otherwise 5000 to "
             "300000, default 5000; a host that sends no progress token gets its answer after "
             "47000 at the latest (`early` says so): call again.",
             NULL),
    UNTIL,
    MAX_OUTPUT_TOKENS,
    {"no_timeout", "boolean",
     "true: wait until the process has ended. Without chars and "
     "yield_time_ms only.",
     NULL, WITH_NO_TIMEOUT},
    ARGUMENT("write_id", "string",
             "A name of your choice for this write. Repeating the call with it within 10 minutes "
             "types nothing and waits.",
             NULL),
    {0},
};

static const struct parameter read_parameters[] = {
    SESSION_ID,
    ARGUMENT("from_byte", "integer", "Read from this byte of the session's output.", NULL),
    ARGUMENT("line", "integer", "Read from this line; the first is 1.", NULL),
    ARGUMENT("grep", "string",
             "Only lines that match this extended regular expression, with their numbers.", NULL),
    ARGUMENT("context", "integer", "With grep: lines around each match. Default 2.", NULL),
    ARGUMENT("limit", "integer", "Most bytes to return. Default 16384.", NULL),
    ARGUMENT("view", "string", "`plain`: without escape sequences. Default `raw`.",
             "\"enum\":[\"raw\",\"plain\"]"),
    {0},
};

static const struct parameter no_parameters[] = {{0}};

static const struct parameter signal_parameters[] = {
    SESSION_ID,
    ARGUMENT("signal", "string",
             "For example INT. Default: TERM, and after 2 seconds KILL for the process and its "
             "children.",
             NULL),
    {0},
};

static const struct parameter resize_parameters[] = {
    SESSION_ID,
    ARGUMENT("rows", "integer", "Height in lines.", NULL),
    ARGUMENT("cols", "integer", "Width in columns.", NULL),
    {0},
};

static const struct parameter explain_parameters[] = {
    ARGUMENT("session_id", "integer", "What was this session denied?", NULL),
    ARGUMENT("path", "string", "May commands read and write this path?", NULL),
    ARGUMENT("host", "string", "May commands connect to this host?", NULL),
    ENVIRONMENT_ID,
    {0},
};

static const struct parameter patch_parameters[] = {
    ARGUMENT("input", "string", "The patch: `*** Begin Patch` to `*** End Patch`.", NULL),
    ARGUMENT("workdir", "string", "Directory of its relative paths. Default: the workspace.", NULL),
    ENVIRONMENT_ID,
    {0},
};

/* ---- tools/list: tools ---- */

struct schema {
    const char *name, *title, *description;
    const struct parameter *parameters;
    const char *required; /* "": none */
    bool is_read_only, is_destructive, is_idempotent, is_open_world;
    bool is_main;                /* hosts that load tools on demand should always load it */
    const struct member *result; /* NULL: no structured result */
};

static const struct schema schemas[] = {
    {.name = "exec_command",
     .title = "Run a command",
     .description =
         "Runs a command and returns its output and exit code. If it has not ended after "
         "yield_time_ms, it runs on as a session: the answer has a session_id, "
         "write_stdin types into it or waits for more output, and signal_session ends "
         "it. Give cmd or argv.",
     .parameters = exec_parameters,
     .required = "",
     .is_destructive = true,
     .is_open_world = true,
     .is_main = true,
     .result = answer_members},
    {.name = "write_stdin",
     .title = "Type into a session",
     .description = "Types into a running session, or, without chars, keys and eof, waits for its "
                    "output or end. Returns what it printed since the last answer, and its exit "
                    "code once it has ended.",
     .parameters = write_parameters,
     .required = "\"session_id\"",
     .is_destructive = true,
     .is_main = true,
     .result = answer_members},
    {.name = "read_output",
     .title = "Read a session's output again",
     .description = "Reads a session's output again, by byte, by line or by search: what an answer "
                    "left out, also after the end of the process.",
     .parameters = read_parameters,
     .required = "\"session_id\"",
     .is_read_only = true,
     .is_idempotent = true,
     .result = read_members},
    {.name = "list_sessions",
     .title = "List sessions",
     .description = "Lists the sessions that run and those that have ended and can still be read, "
                    "oldest first, and marks those that ended since the last list.",
     .parameters = no_parameters,
     .required = "",
     .is_read_only = true,
     .is_idempotent = true,
     .result = list_members},
    {.name = "signal_session",
     .title = "Send a signal to a session",
     .description = "Ends a session's process, or sends it a signal, and says what became of it.",
     .parameters = signal_parameters,
     .required = "\"session_id\"",
     .is_destructive = true,
     .is_idempotent = true,
     .result = signal_members},
    {.name = "resize_session",
     .title = "Resize a session's terminal",
     .description = "Changes the size of a session's terminal.",
     .parameters = resize_parameters,
     .required = "\"session_id\",\"rows\",\"cols\"",
     .is_idempotent = true},
    {.name = "explain_denial",
     .title = "Explain what the sandbox denies",
     .description = "Says what the sandbox denied a session, or whether commands may use a path or "
                    "a host; by which rule, and what to do. Give one argument.",
     .parameters = explain_parameters,
     .required = "",
     .is_read_only = true,
     .is_idempotent = true,
     .result = explain_members},
    {.name = "apply_patch",
     .title = "Apply a patch",
     .description = "Changes files by a patch (*** Begin Patch ... *** End Patch). All of it is "
                    "checked before the first file is written.",
     .parameters = patch_parameters,
     .required = "\"input\"",
     .is_destructive = true,
     .result = patch_members},
    {.name = "request_permissions",
     .title = "Ask for more permissions",
     .description = "Asks a person to let all later commands of this session read, write or reach "
                    "more than the sandbox allows. Returns what was granted.",
     .parameters = permissions_parameters,
     .required = "\"permissions\"",
     .result = permissions_members},
    {.name = "unified_exec",
     .title = "Run a command (older tool)",
     .description =
         "Runs a command in a PTY. Provide a session_id to reuse an existing interactive session.",
     .parameters = compat_parameters,
     .required = "\"input\"",
     .is_destructive = true,
     .is_open_world = true,
     .result = compat_members},
};

static const char *json_bool(bool b)
{
    return b ? "true" : "false";
}

static bool add_result_schema(struct sp_buf *out, const struct member *list)
{
    bool ok =
        sp_buf_add_str(out, SP_STR(",\"outputSchema\":{\"type\":\"object\",\"properties\":{"));

    for (const struct member *m = list; ok && m->name != NULL; m++)
        ok = sp_buf_printf(out, "%s\"%s\":{\"type\":\"%s\"%s}", m == list ? "" : ",", m->name,
                           m->type,
                           strcmp(m->type, "array") == 0 ? ",\"items\":{\"type\":\"object\"}" : "");
    return ok && sp_buf_printf(out, "},\"required\":[\"%s\"]}", list->name);
}

static bool add_tool(struct sp_buf *out, const struct schema *s, const struct sp_tools_options *o,
                     struct sp_mcp_tool_words words)
{
    if (!sp_buf_printf(out, "{\"name\":\"%s\",\"description\":", s->name) ||
        !sp_json_add_str(out, sp_str_of(s->description)) ||
        !sp_buf_add_str(out, SP_STR(",\"inputSchema\":{\"type\":\"object\",\"properties\":{")) ||
        !add_parameters(out, s->parameters, o) || !sp_buf_add(out, "}", 1) ||
        (s->required[0] != 0 && !sp_buf_printf(out, ",\"required\":[%s]", s->required)) ||
        !sp_buf_add_str(out, SP_STR(",\"additionalProperties\":false}")))
        return false;
    if (words.has_output_schema && s->result != NULL && !add_result_schema(out, s->result))
        return false;
    if (words.has_annotations &&
        !sp_buf_printf(out,
                       ",\"annotations\":{\"title\":\"%s\",\"readOnlyHint\":%s,"
                       "\"destructiveHint\":%s,\"idempotentHint\":%s,\"openWorldHint\":%s}",
                       s->title, json_bool(s->is_read_only), json_bool(s->is_destructive),
                       json_bool(s->is_idempotent), json_bool(s->is_open_world)))
        return false;
    return (!words.has_output_schema || !s->is_main ||
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
    for (size_t i = 0; ok && i < sizeof schemas / sizeof schemas[0]; i++)
        ok = !sp_mcp_tool_is_offered(m, schemas[i].name) ||
             ((i == 0 || sp_buf_add(out, ",", 1)) && add_tool(out, &schemas[i], &o, words));
    ok = ok && sp_buf_add(out, "]", 1);
    if (!ok)
        out->len = mark;
    return ok;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `tools/list` says of the tools. Descriptions and arguments that unified-exec.md 3 has are
 * that text; schemas are plain objects, for there are hosts that refuse anything else.
 */
#include "mcp/tool_priv.h"
#include "tools/schema.h"

#define STATES                                                                   \
    "\"enum\":[\"running\",\"sleeping\",\"reading_terminal\",\"reading_stdin\"," \
    "\"waiting_for_child\",\"stopped\",\"output_held\",\"exited\",\"unknown\"]"
#define STATE                                                                                  \
    "\"state\":{\"type\":\"string\"," STATES ",\"description\":\"What the process is doing. "  \
    "reading_terminal and reading_stdin: it waits for input. output_held: it has exited, and " \
    "another process keeps its output open.\"}"
#define SIGNAL                                                                         \
    "\"signal\":{\"type\":\"string\",\"description\":\"The signal that ended it, for " \
    "example SIGKILL.\"}"
#define END_REASON                                                                   \
    "\"end_reason\":{\"type\":\"string\",\"enum\":[\"exit\",\"signal\",\"timeout\"," \
    "\"terminated\",\"idle_ttl\",\"lost\"],\"description\":\"Why the process is no more.\"}"
#define EXIT_CODE \
    "\"exit_code\":{\"type\":\"number\",\"description\":\"There once the process has ended.\"}"
#define NUMBER(name, text) "\"" name "\":{\"type\":\"integer\",\"description\":\"" text "\"}"
#define TEXT(name, text)   "\"" name "\":{\"type\":\"string\",\"description\":\"" text "\"}"
#define DENIED_ACCESS \
    TEXT("access", "What was tried: read, write, connect, or the name of a system call.")
#define DENIED_TARGET TEXT("target", "The path or host; empty: not known.")
#define DENIED_RULE   TEXT("rule", "What in the policy says so.")
#define DENIED_LAYER                                                                        \
    "\"layer\":{\"type\":\"string\",\"enum\":[\"seccomp\",\"network\",\"landlock/mounts\"," \
    "\"words\"],\"description\":\"What refused it.\"}"
#define DENIED_EVIDENCE                                                                       \
    "\"evidence\":{\"type\":\"string\",\"enum\":[\"kernel\",\"words\",\"policy\"],"           \
    "\"description\":\"How it is known: the kernel told, the output reads so, or the policy " \
    "was asked.\"}"
#define DENIED_AMENDMENT                                           \
    "\"proposed_amendment\":{\"type\":\"object\",\"description\":" \
    "\"Permissions that would allow it.\"}"
#define DENIED                                                                           \
    DENIED_ACCESS "," DENIED_TARGET "," DENIED_RULE "," DENIED_LAYER "," DENIED_EVIDENCE \
                  "," DENIED_AMENDMENT
#define DENIALS                                                           \
    "\"denials\":{\"type\":\"array\",\"description\":\"What the sandbox " \
    "refused.\",\"items\":" OBJECT(DENIED,                                \
                                   "\"access\",\"target\",\"rule\",\"layer\",\"evidence\"") "}"
#define OBJECT(properties, required)                                                    \
    "{\"type\":\"object\",\"properties\":{" properties "},\"required\":[" required "]," \
    "\"additionalProperties\":false}"

#define FROM_BYTE \
    NUMBER("from_byte", "Position in the session's output of the first byte of output.")
#define NEXT_BYTE NUMBER("next_byte", "Position behind the last byte: where read_output goes on.")
#define OMITTED   NUMBER("omitted_bytes", "Bytes between these positions that are not in output.")

#define UNTIL_EXIT "\"exit\":{\"type\":\"boolean\",\"description\":\"The process ends.\"}"
#define UNTIL_PATTERN \
    TEXT("pattern", "An extended regular expression that output not yet answered matches.")
#define UNTIL_QUIET NUMBER("quiet_ms", "No output for so many milliseconds.")
#define UNTIL_PORT  NUMBER("port", "The process or its children listen on this TCP port.")
#define CONDITION   "\"properties\":{" UNTIL_EXIT "," UNTIL_PATTERN "," UNTIL_QUIET "," UNTIL_PORT

static const char answer_schema[] = OBJECT(
    SP_SCHEMA_ANSWER
    "," STATE "," SIGNAL "," END_REASON
    ",\"woken_by\":{\"type\":\"object\",\"description\":\"With `until`: the "
    "condition that ended the wait.\"," CONDITION
    ",\"deadline\":{\"type\":\"boolean\",\"description\":\"None of them: the time "
    "was over.\"}},\"additionalProperties\":false}," FROM_BYTE "," NEXT_BYTE "," OMITTED "," DENIALS
    ",\"holders\":{\"type\":\"array\",\"description\":\"Who keeps the output open "
    "after the end of the process.\",\"items\":" OBJECT(
        NUMBER("pid", "Its process id.") "," TEXT("name", "Its name."), "\"pid\",\"name\"") "}",
    "\"wall_time_seconds\",\"output\",\"state\",\"from_byte\",\"next_byte\",\"omitted_bytes\","
    "\"denials\"");

#define FIRST_BYTE NUMBER("first_byte", "The first byte that is kept.")
#define END_BYTE   NUMBER("end_byte", "Behind the last byte that there is.")
#define MATCHES    NUMBER("matches", "With grep: lines that match in all that is kept.")

static const char read_schema[] = OBJECT(
    TEXT("output", "What was asked for.") "," FROM_BYTE "," NEXT_BYTE "," FIRST_BYTE "," END_BYTE
                                          "," OMITTED "," MATCHES "," STATE "," EXIT_CODE,
    "\"output\",\"from_byte\",\"next_byte\",\"first_byte\",\"end_byte\",\"omitted_bytes\","
    "\"state\"");

static const char list_schema[] = OBJECT(
    "\"sessions\":{\"type\":\"array\",\"items\":" OBJECT(
        NUMBER("session_id", "What the other tools take.") "," TEXT(
            "command", "What runs.") "," TEXT("cwd",
                                              "Where it runs.") ",\"tty\":{\"type\":\"boolean\","
                                                                "\"description\":\"It has a "
                                                                "terminal.\"}," STATE "," EXIT_CODE
                                                                "," NUMBER("started_at_ms",
                                                                           "Since 1970."),
        "\"session_id\",\"command\",\"cwd\",\"tty\",\"state\",\"started_at_ms\"") "}",
    "\"sessions\"");

static const char signal_schema[] =
    OBJECT(STATE "," EXIT_CODE "," SIGNAL "," END_REASON, "\"state\"");
static const char explain_schema[] = OBJECT(DENIALS, "\"denials\"");

static const char patch_schema[] = OBJECT(
    "\"changes\":{\"type\":\"array\",\"items\":" OBJECT(
        TEXT("path", "The file, an absolute path.") ",\"kind\":{\"type\":\"string\",\"enum\":["
                                                    "\"add\",\"delete\",\"update\"]}," TEXT(
                                                        "move_to", "Where an updated file is now."),
        "\"path\",\"kind\"") "}," TEXT("output", "What was done, for people."),
    "\"changes\",\"output\"");

/* ---- arguments ---- */

#define UNTIL                                                                                  \
    {                                                                                          \
        "until", "object",                                                                     \
            "Ends the wait early, when this holds: {\"exit\":true} (always implied), "         \
            "{\"pattern\":\"ERE\"}, {\"quiet_ms\":2000} or {\"port\":3000}. An array of such " \
            "objects: any one of them. yield_time_ms stays the deadline.",                     \
            CONDITION "},\"additionalProperties\":false", SP_SCHEMA_ALWAYS                     \
    }
#define SESSION_ID                                                                   \
    {                                                                                \
        "session_id", "number", "Identifier of the session.", NULL, SP_SCHEMA_ALWAYS \
    }

static const struct sp_parameter exec_more[] = {
    {"argv", "array", "The program and its arguments, run without a shell. Instead of `cmd`.",
     SP_SCHEMA_STRINGS, SP_SCHEMA_ALWAYS},
    {"env", "object", "Environment variables for the command, over those it would have.",
     "\"additionalProperties\":{\"type\":\"string\"}", SP_SCHEMA_ALWAYS},
    {"rows", "integer", "Height of the terminal, with `tty`. Defaults to 24.", NULL,
     SP_SCHEMA_ALWAYS},
    {"cols", "integer", "Width of the terminal, with `tty`. Defaults to 80.", NULL,
     SP_SCHEMA_ALWAYS},
    UNTIL,
    {"timeout_ms", "integer",
     "The command and all that it started are killed after so long. Defaults to never.", NULL,
     SP_SCHEMA_ALWAYS},
    {"key", "string",
     "A name of your choice for this start. A call with the same key within 10 minutes starts "
     "nothing and answers for the same session: safe to repeat.",
     NULL, SP_SCHEMA_ALWAYS},
    {0},
};

static const struct sp_parameter write_more[] = {
    {"keys", "array",
     "Keys to press after `chars`, by name: Enter, Tab, Escape, Backspace, Delete, Up, Down, Left, "
     "Right, Home, End, PageUp, PageDown, F1 to F12, C-a to C-z. Needs a tty.",
     SP_SCHEMA_STRINGS, SP_SCHEMA_ALWAYS},
    {"eof", "boolean", "True sends end-of-file after all else. Needs a tty.", NULL,
     SP_SCHEMA_ALWAYS},
    UNTIL,
    {"write_id", "string",
     "A name of your choice for this write. A call with the same one for the same session within "
     "10 minutes types nothing and polls: safe to repeat.",
     NULL, SP_SCHEMA_ALWAYS},
    {0},
};

static const struct sp_parameter read_parameters[] = {
    SESSION_ID,
    {"from_byte", "integer", "Read from this byte, counted from the session's first.", NULL,
     SP_SCHEMA_ALWAYS},
    {"line", "integer", "Read from this line, counted from 1.", NULL, SP_SCHEMA_ALWAYS},
    {"grep", "string",
     "Only lines that match this extended regular expression, with their numbers. With from_byte: "
     "from there on.",
     NULL, SP_SCHEMA_ALWAYS},
    {"context", "integer", "With grep: lines around each match. Defaults to 2.", NULL,
     SP_SCHEMA_ALWAYS},
    {"limit", "integer", "Most bytes to return. Defaults to 16384.", NULL, SP_SCHEMA_ALWAYS},
    {"view", "string", "`plain` is without escape sequences. Defaults to `raw`.",
     "\"enum\":[\"raw\",\"plain\"]", SP_SCHEMA_ALWAYS},
    {0},
};

static const struct sp_parameter no_parameters[] = {{0}};

static const struct sp_parameter signal_parameters[] = {
    SESSION_ID,
    {"signal", "string",
     "Name of the signal, for example INT. Without it: TERM, and after 2 seconds the process and "
     "all that it started are killed.",
     NULL, SP_SCHEMA_ALWAYS},
    {0},
};

static const struct sp_parameter resize_parameters[] = {
    SESSION_ID,
    {"rows", "integer", "Height in lines.", NULL, SP_SCHEMA_ALWAYS},
    {"cols", "integer", "Width in columns.", NULL, SP_SCHEMA_ALWAYS},
    {0},
};

static const struct sp_parameter explain_parameters[] = {
    {"session_id", "number", "What was this session denied?", NULL, SP_SCHEMA_ALWAYS},
    {"path", "string", "May commands read and write this path?", NULL, SP_SCHEMA_ALWAYS},
    {"host", "string", "May commands reach this host?", NULL, SP_SCHEMA_ALWAYS},
    {0},
};

static const struct sp_parameter patch_parameters[] = {
    {"input", "string", "The patch: `*** Begin Patch` to `*** End Patch`.", NULL, SP_SCHEMA_ALWAYS},
    {"workdir", "string", "Where its relative paths begin. Defaults to the turn cwd.", NULL,
     SP_SCHEMA_ALWAYS},
    {0},
};

/* ---- tools ---- */

struct schema {
    const char *name, *title, *description;
    const struct sp_parameter *parameters, *more; /* more: NULL: none */
    const char *required;                         /* "": none */
    bool is_read_only, is_destructive, is_idempotent, is_open_world;
    const char *output; /* NULL: it has no structured result */
};

static const struct schema schemas[] = {
    {.name = "exec_command",
     .title = "Run a command",
     .description = sp_schema_exec_description,
     .parameters = sp_schema_exec,
     .more = exec_more,
     .required = "",
     .is_destructive = true,
     .is_open_world = true,
     .output = answer_schema},
    {.name = "write_stdin",
     .title = "Type into a session",
     .description = sp_schema_write_description,
     .parameters = sp_schema_write,
     .more = write_more,
     .required = "\"session_id\"",
     .is_destructive = true,
     .output = answer_schema},
    {.name = "read_output",
     .title = "Read a session's output again",
     .description = "Reads what a session has printed, by byte, by line, or by what it says; also "
                    "after its end, and what earlier answers left out.",
     .parameters = read_parameters,
     .required = "\"session_id\"",
     .is_read_only = true,
     .is_idempotent = true,
     .output = read_schema},
    {.name = "list_sessions",
     .title = "List sessions",
     .description = "Lists the sessions that run, and those that have ended and can still be read.",
     .parameters = no_parameters,
     .required = "",
     .is_read_only = true,
     .is_idempotent = true,
     .output = list_schema},
    {.name = "signal_session",
     .title = "Send a signal to a session",
     .description = "Ends a session's process, or sends it a signal, and tells what became of it.",
     .parameters = signal_parameters,
     .required = "\"session_id\"",
     .is_destructive = true,
     .is_idempotent = true,
     .output = signal_schema},
    {.name = "resize_session",
     .title = "Resize a session's terminal",
     .description = "Changes the size of a session's terminal.",
     .parameters = resize_parameters,
     .required = "\"session_id\",\"rows\",\"cols\"",
     .is_idempotent = true},
    {.name = "explain_denial",
     .title = "Explain what the sandbox denies",
     .description = "Tells what the sandbox denied a session, or whether a path or host is within "
                    "its reach, which rule says so, and what to do. Give one argument.",
     .parameters = explain_parameters,
     .required = "",
     .is_read_only = true,
     .is_idempotent = true,
     .output = explain_schema},
    {.name = "apply_patch",
     .title = "Apply a patch",
     .description = "Changes files by a patch (*** Begin Patch ... *** End Patch). All of it is "
                    "checked before the first file is written.",
     .parameters = patch_parameters,
     .required = "\"input\"",
     .is_destructive = true,
     .output = patch_schema},
};

static const char *word(bool b)
{
    return b ? "true" : "false";
}

static bool add_input(struct sp_buf *out, const struct schema *s, const struct sp_tools_options *o)
{
    return sp_buf_add_str(out, SP_STR(",\"inputSchema\":{\"type\":\"object\",\"properties\":{")) &&
           sp_schema_add_parameters(out, s->parameters, o, false) &&
           (s->more == NULL || sp_schema_add_parameters(out, s->more, o, true)) &&
           sp_buf_add(out, "}", 1) &&
           (s->required[0] == 0 || sp_buf_printf(out, ",\"required\":[%s]", s->required)) &&
           sp_buf_add_str(out, SP_STR(",\"additionalProperties\":false}"));
}

static bool add_annotations(struct sp_buf *out, const struct schema *s)
{
    return sp_buf_printf(out,
                         ",\"annotations\":{\"title\":\"%s\",\"readOnlyHint\":%s,"
                         "\"destructiveHint\":%s,\"idempotentHint\":%s,\"openWorldHint\":%s}",
                         s->title, word(s->is_read_only), word(s->is_destructive),
                         word(s->is_idempotent), word(s->is_open_world));
}

static bool add_tool(struct sp_buf *out, const struct schema *s, const struct sp_tools_options *o,
                     struct sp_mcp_tool_words words)
{
    return sp_buf_printf(out, "{\"name\":\"%s\",\"description\":", s->name) &&
           sp_json_add_str(out, sp_str_of(s->description)) && add_input(out, s, o) &&
           (!words.has_output_schema || s->output == NULL ||
            (sp_buf_add_str(out, SP_STR(",\"outputSchema\":")) &&
             sp_buf_add_str(out, sp_str_of(s->output)))) &&
           (!words.has_annotations || add_annotations(out, s)) && sp_buf_add(out, "}", 1);
}

bool sp_mcp_tools_add_list(struct sp_buf *out, const struct sp_mcp *m,
                           struct sp_mcp_tool_words words)
{
    struct sp_tools_options o = sp_mcp_options(m)->tools;
    const size_t mark = out->len;
    bool ok = sp_buf_add(out, "[", 1);

    o.has_several_environments = false; /* there is one for all */
    for (size_t i = 0; ok && i < sizeof schemas / sizeof schemas[0]; i++)
        ok = (i == 0 || sp_buf_add(out, ",", 1)) && add_tool(out, &schemas[i], &o, words);
    ok = ok && sp_buf_add(out, "]", 1);
    if (!ok)
        out->len = mark;
    return ok;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tools: from a tool's name and its JSON arguments to the manager, and back to text and JSON; the
 * schemas; and the engine's events as JSON. All of it in the words of codex. unified_exec is
 * expressed by the two tools that replaced it; its replies have their own wording.
 */
#include "mcp/tools.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/auto.h"
#include "base/base64.h"
#include "base/json.h"
#include "mcp/arguments.h"

#define COMPAT_MAX_MS  60000 /* timeout_ms of unified_exec is cut to this */
#define UNIFIED_FAILED "unified exec failed: "
#define STRINGS        "\"items\":{\"type\":\"string\"}"

/* An unanswered call, freed when the manager answers, which it always does. */
struct call {
    sp_tool_fn *fn;
    void *user;
    const struct tool *tool;
    struct sp_str call_id, turn_id; /* valid until the tool has started */
    struct sp_arguments a;
    bool is_refused; /* bad arguments */
    /* unified_exec */
    struct sp_str session_id; /* as the model wrote it; empty: a new session */
    uint64_t cut_ms;          /* the requested timeout if it exceeds the maximum, else 0 */
};

enum reply_form {
    REPLY_ANSWER, /* text, and the same facts as JSON */
    REPLY_JSON,   /* the text is JSON */
    REPLY_COMPAT, /* of unified_exec */
};

struct tool {
    const char *name;
    int (*start)(struct call *c, struct sp_manager *m, const struct sp_tools_options *o,
                 uint64_t *ret_call, struct sp_err *e);
    enum reply_form form;
    enum sp_tool_when when;
    const char *description;
    const struct sp_tool_parameter *parameters;
    const char *required;
    const char *output; /* the schema of its structured answer */
};

/* ---- replies ---- */

static bool add_answer(struct sp_buf *out, const struct sp_reply *r)
{
    const struct sp_exec_answer *a = &r->answer;
    auto_buf struct sp_buf text = {0};

    /* Digits, not %f: a locale may have a comma where JSON wants a point. */
    return sp_buf_add(out, "{", 1) &&
           (a->chunk_id.n == 0 || sp_json_add_member(out, "chunk_id", a->chunk_id)) &&
           sp_json_add_value(out, "wall_time_seconds", "%" PRIu64 ".%09" PRIu64,
                             a->wall_ns / 1000000000, a->wall_ns % 1000000000) &&
           (a->fate != SP_ANSWER_EXITED ||
            sp_json_add_value(out, "exit_code", "%d", a->exit_code)) &&
           (a->fate != SP_ANSWER_RUNNING ||
            sp_json_add_value(out, "session_id", "%d", a->session_id)) &&
           (!a->has_token_count ||
            sp_json_add_value(out, "original_token_count", "%" PRIu64, a->token_count)) &&
           sp_answer_add_output(&text, a, r->has_max_tokens, r->max_tokens) &&
           sp_json_add_member(out, "output", sp_buf_str(&text)) && sp_buf_add(out, "}", 1);
}

static bool add_compat_failure(struct sp_buf *out, const struct sp_reply *r, const struct call *c)
{
    struct sp_str error = r->error;

    switch (r->fault) {
    case SP_FAULT_UNKNOWN:
        return sp_buf_printf(out, UNIFIED_FAILED "Unknown session id " SP_STR_FMT,
                             SP_STR_ARG(c->session_id));
    case SP_FAULT_CREATE:
    case SP_FAULT_REJECTED:
        (void)sp_str_skip_prefix(&error, SP_STR("Failed to create unified exec process: "));
        return sp_buf_add_str(out,
                              SP_STR(UNIFIED_FAILED "Failed to create unified exec session: ")) &&
               sp_buf_add_str(out, error);
    case SP_FAULT_ARGUMENTS:
    case SP_FAULT_ABORTED:
        return sp_buf_add_str(out, r->text);
    case SP_FAULT_NONE:
        if (!sp_buf_add_str(out, SP_STR(UNIFIED_FAILED "Command denied by sandbox: ")))
            return false;
        return r->answer.output.n != 0 ? sp_buf_add_str(out, r->answer.output)
                                       : sp_buf_printf(out, "exit code %d", r->answer.exit_code);
    case SP_FAULT_STDIN_CLOSED:
    case SP_FAULT_WRITE:
    case SP_FAULT_FAILED:
        break;
    }
    return sp_buf_add_str(out, SP_STR(UNIFIED_FAILED)) && sp_buf_add_str(out, error);
}

/* The output is taken from the reply's text, where it has been truncated already. */
static bool add_compat_result(struct sp_buf *out, const struct sp_reply *r, const struct call *c)
{
    static const char before[] = "Output:\n";
    auto_buf struct sp_buf output = {0};
    const char *p = r->text.n == 0 ? NULL : memmem(r->text.p, r->text.n, before, sizeof before - 1);

    if (c->cut_ms != 0 &&
        !sp_buf_printf(&output,
                       "Warning: requested timeout %" PRIu64 "ms exceeds maximum of %dms; clamping "
                       "to %dms.\n",
                       c->cut_ms, COMPAT_MAX_MS, COMPAT_MAX_MS))
        return false;
    if (p != NULL) {
        p += sizeof before - 1;
        if (!sp_buf_add(&output, p, r->text.n - (size_t)(p - r->text.p)))
            return false;
    }
    return (r->answer.fate == SP_ANSWER_RUNNING
                ? sp_buf_printf(out, "{\"session_id\":\"%d\"", r->answer.session_id)
                : sp_buf_add_str(out, SP_STR("{\"session_id\":null"))) &&
           sp_json_add_member(out, "output", sp_buf_str(&output)) && sp_buf_add(out, "}", 1);
}

static void on_reply(void *user, const struct sp_reply *from)
{
    struct call *c = user;
    auto_buf struct sp_buf made = {0};
    const bool is_compat = c->tool->form == REPLY_COMPAT;
    struct sp_tool_reply r = {.has_failed =
                                  from->fault != SP_FAULT_NONE || (is_compat && from->was_denied),
                              .text = from->text,
                              .from = c->is_refused ? NULL : from};
    bool ok = true;

    if (is_compat) {
        ok = r.has_failed ? add_compat_failure(&made, from, c) : add_compat_result(&made, from, c);
        r.text = sp_buf_str(&made);
    }
    if (!r.has_failed && c->tool->form == REPLY_ANSWER) {
        ok = add_answer(&made, from);
        r.structured = sp_buf_str(&made);
    } else if (!r.has_failed) {
        r.structured = r.text;
    }
    if (!ok) /* text and JSON are as large as the output */
        r = (struct sp_tool_reply){
            .has_failed = true, .text = SP_STR("no memory for the answer"), .from = from};
    c->fn(c->user, &r);
    sp_arguments_done(&c->a);
    free(c);
}

/* ---- calls ---- */

/* Answers with an error for the model. */
static int refuse(struct call *c, struct sp_manager *m, const char *prefix, const char *why,
                  uint64_t *ret_call, struct sp_err *e)
{
    auto_buf struct sp_buf text = {0};

    if (!sp_buf_printf(&text, "%s%s", prefix, why))
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "refuse a call");
    c->is_refused = true;
    return sp_manager_refuse(m, sp_buf_str(&text), on_reply, c, ret_call, e);
}

/* Bad arguments are a reply for the model, out of memory is an error. */
static int refuse_arguments(struct call *c, struct sp_manager *m, uint64_t *ret_call,
                            struct sp_err *e)
{
    const struct sp_err why = *e;

    if (why.code == SP_E_SYSTEM)
        return -SP_E_SYSTEM;
    return refuse(c, m,
                  why.code == SP_E_NOT_FOUND ? "" : "failed to parse function arguments: ", why.msg,
                  ret_call, e);
}

static int call_exec(struct call *c, struct sp_manager *m, const struct sp_tools_options *o,
                     uint64_t *ret_call, struct sp_err *e)
{
    struct sp_exec_request request = {.call_id = c->call_id, .turn_id = c->turn_id};

    if (sp_arguments_exec(&c->a, o, SP_SLOTS_CODEX, &request, e) < 0)
        return refuse_arguments(c, m, ret_call, e);
    return sp_manager_exec(m, &request, on_reply, c, ret_call, e);
}

static int call_write(struct call *c, struct sp_manager *m, const struct sp_tools_options *o,
                      uint64_t *ret_call, struct sp_err *e)
{
    struct sp_write_request request = {.call_id = c->call_id};

    if (sp_arguments_write(&c->a, o, SP_SLOTS_CODEX, &request, e) < 0)
        return refuse_arguments(c, m, ret_call, e);
    return sp_manager_write(m, &request, on_reply, c, ret_call, e);
}

static int call_permissions(struct call *c, struct sp_manager *m, const struct sp_tools_options *o,
                            uint64_t *ret_call, struct sp_err *e)
{
    struct sp_permissions_request request = {.call_id = c->call_id, .turn_id = c->turn_id};
    const struct sp_slot slots[] = {
        SP_SLOT(GRANT, "permissions", .to = &request.permissions, .is_needed = true),
        SP_SLOT(STRING, "reason", .to = &request.reason),
        SP_SLOT(STRING, "environment_id", .to = &request.environment_id),
    };
    struct sp_slots all = SP_SLOTS(slots);

    (void)o;
    all.is_codex = true;
    if (sp_slots_read(&c->a, all, e) < 0)
        return refuse_arguments(c, m, ret_call, e);
    return sp_manager_request_permissions(m, &request, on_reply, c, ret_call, e);
}

static int call_compat(struct call *c, struct sp_manager *m, const struct sp_tools_options *o,
                       uint64_t *ret_call, struct sp_err *e)
{
    struct sp_compat_request from = {0};

    (void)o;
    if (sp_arguments_compat(&c->a, &from, e) < 0)
        return refuse_arguments(c, m, ret_call, e);
    if (from.timeout.has_yield_time && from.timeout.yield_time_ms > COMPAT_MAX_MS)
        c->cut_ms = from.timeout.yield_time_ms;
    if (from.session_id.p != NULL) {
        const struct sp_write_request request = {.call_id = c->call_id,
                                                 .session_id = from.id,
                                                 .is_compat = true,
                                                 .yield = from.timeout,
                                                 .chars = from.chars};

        c->session_id = from.session_id;
        return sp_manager_write(m, &request, on_reply, c, ret_call, e);
    }
    if (from.input_count == 0)
        return refuse(c, m, UNIFIED_FAILED, "missing command line for unified exec request",
                      ret_call, e);
    const struct sp_exec_request request = {.call_id = c->call_id,
                                            .turn_id = c->turn_id,
                                            .argv = from.input,
                                            .argc = from.input_count,
                                            .is_tty = true,
                                            .is_compat = true,
                                            .yield = from.timeout};
    return sp_manager_exec(m, &request, on_reply, c, ret_call, e);
}

/* ---- parameters: models read the descriptions, so each word is part of the contract ---- */

#define MAX_OUTPUT_TOKENS                                                                 \
    SP_PARAMETER("max_output_tokens", "number",                                           \
                 "Output token budget. Defaults to 10000 tokens; larger requests may be " \
                 "capped by policy.")
#define ENVIRONMENT_ID                                                                         \
    {                                                                                          \
        "environment_id", "string",                                                            \
            "Environment id from <environment_context>. Omit to use the primary environment.", \
            NULL, SP_TOOL_WITH_SEVERAL_ENVIRONMENTS                                            \
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

static const struct sp_tool_parameter exec_parameters[] = {
    SP_PARAMETER("cmd", "string", "Shell command to execute."),
    SP_PARAMETER("workdir", "string",
                 "Working directory for the command. Defaults to the turn cwd."),
    SP_PARAMETER("tty", "boolean",
                 "True allocates a PTY for the command; false or omitted uses plain pipes."),
    SP_PARAMETER(
        "yield_time_ms", "number",
        "Wait before yielding output. Defaults to 10000 ms; effective range is 250-30000 ms."),
    MAX_OUTPUT_TOKENS,
    {"shell", "string", "Shell binary to launch. Defaults to the user's default shell.", NULL,
     SP_TOOL_WITHOUT_FIXED_SHELL},
    {"login", "boolean",
     "True runs the shell with -l/-i semantics; false disables them. Defaults to true.", NULL,
     SP_TOOL_WITH_LOGIN},
    ENVIRONMENT_ID,
    {"sandbox_permissions", "string",
     "Per-command sandbox override. Defaults to `use_default`; use `require_escalated` for "
     "unsandboxed execution.",
     "\"enum\":[\"use_default\",\"require_escalated\"]", SP_TOOL_WITHOUT_ADDITIONAL_PERMISSIONS},
    {"sandbox_permissions", "string",
     "Per-command sandbox override. Defaults to `use_default`; use `with_additional_permissions` "
     "with `additional_permissions`, or `require_escalated` for unsandboxed execution.",
     "\"enum\":[\"use_default\",\"with_additional_permissions\",\"require_escalated\"]",
     SP_TOOL_WITH_ADDITIONAL_PERMISSIONS},
    {"additional_permissions", "object",
     "Sandboxed filesystem or network access for this command; only with `sandbox_permissions: "
     "\"with_additional_permissions\"`.",
     codex_permissions, SP_TOOL_WITH_ADDITIONAL_PERMISSIONS},
    SP_PARAMETER("justification", "string",
                 "User-facing approval question for `require_escalated`; omit otherwise."),
    {"prefix_rule", "array",
     "Reusable approval prefix for `cmd`, only with `sandbox_permissions: \"require_escalated\"`; "
     "for example [\"git\", \"pull\"].",
     STRINGS, SP_TOOL_ALWAYS},
    {0},
};

static const struct sp_tool_parameter write_parameters[] = {
    SP_PARAMETER("session_id", "number", "Identifier of the running unified exec session."),
    SP_PARAMETER("chars", "string",
                 "Bytes to write to stdin. Defaults to empty, which polls without writing."),
    SP_PARAMETER("yield_time_ms", "number",
                 "Wait before yielding output. Non-empty writes default to 250 ms and cap at 30000 "
                 "ms; empty "
                 "polls wait 5000-300000 ms by default."),
    MAX_OUTPUT_TOKENS,
    {"no_timeout", "boolean",
     "If set to true, nothing will be returned before the end of the process. This can only be "
     "used with empty `chars` and empty `yield_time_ms`. This must be used to wait for very long "
     "running processes/tests or to schedule a wait.",
     NULL, SP_TOOL_WITH_NO_TIMEOUT},
    {0},
};

const struct sp_tool_parameter sp_tools_permissions_parameters[] = {
    {"permissions", "object",
     "Filesystem or network access that commands need beyond their sandbox.", codex_permissions,
     SP_TOOL_ALWAYS},
    SP_PARAMETER("reason", "string", "User-facing explanation of why it is needed."),
    ENVIRONMENT_ID,
    {0},
};

const struct sp_tool_parameter sp_tools_compat_parameters[] = {
    {"input", "array",
     "Without session_id: the program to run and its arguments. With it: text for the session, "
     "joined with spaces where it has none.",
     STRINGS, SP_TOOL_ALWAYS},
    SP_PARAMETER("session_id", "string", "The session to write to, as an earlier answer named it."),
    SP_PARAMETER(
        "timeout_ms", "number",
        "How long to gather output. Defaults to 1000 ms; more than 60000 ms is cut to that."),
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

/* ---- the table ---- */

static const struct tool tools[] = {
    {"exec_command", call_exec, REPLY_ANSWER, SP_TOOL_ALWAYS,
     "Runs a command in a PTY, returning output or a session ID for ongoing interaction.",
     exec_parameters, "cmd", answer_schema},
    {"write_stdin", call_write, REPLY_ANSWER, SP_TOOL_ALWAYS,
     "Writes characters to an existing unified exec session and returns recent output.",
     write_parameters, "session_id", answer_schema},
    {"request_permissions", call_permissions, REPLY_JSON, SP_TOOL_WITH_ADDITIONAL_PERMISSIONS,
     "Asks the user for filesystem or network access beyond the sandbox, for all commands of this "
     "turn or session. Returns what was granted; commands get it without asking again.",
     sp_tools_permissions_parameters, "permissions", permissions_schema},
    {"unified_exec", call_compat, REPLY_COMPAT, SP_TOOL_WITH_UNIFIED_EXEC,
     "Runs a command in a PTY. Provide a session_id to reuse an existing interactive session.",
     sp_tools_compat_parameters, "input", compat_schema},
};
#define TOOL_COUNT (sizeof tools / sizeof tools[0])

int sp_tools_call(struct sp_manager *m, const struct sp_tools_options *o, struct sp_str tool,
                  struct sp_str call_id, struct sp_str turn_id, struct sp_str arguments,
                  sp_tool_fn *fn, void *user, uint64_t *ret_call, struct sp_err *e)
{
    size_t i = 0;

    while (i < TOOL_COUNT &&
           !(sp_str_eq(tool, sp_str_of(tools[i].name)) && sp_tools_has(o, tools[i].when)))
        i++;
    if (i == TOOL_COUNT)
        return sp_fail(e, SP_E_NO_METHOD, 0, "there is no tool `" SP_STR_FMT "`", SP_STR_ARG(tool));
    struct call *c = calloc(1, sizeof *c);
    if (c == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "call a tool");
    *c = (struct call){
        .fn = fn, .user = user, .tool = &tools[i], .call_id = call_id, .turn_id = turn_id};
    const int r = sp_arguments_parse(&c->a, arguments, e) < 0
                      ? refuse_arguments(c, m, ret_call, e)
                      : tools[i].start(c, m, o, ret_call, e);
    if (r < 0) {
        sp_arguments_done(&c->a);
        free(c);
    }
    return r;
}

bool sp_tools_has(const struct sp_tools_options *o, enum sp_tool_when when)
{
    switch (when) {
    case SP_TOOL_ALWAYS:
        return true;
    case SP_TOOL_WITH_LOGIN:
        return o->has_login;
    case SP_TOOL_WITHOUT_FIXED_SHELL:
        return !o->has_fixed_shell;
    case SP_TOOL_WITH_SEVERAL_ENVIRONMENTS:
        return o->has_several_environments;
    case SP_TOOL_WITH_ADDITIONAL_PERMISSIONS:
        return o->has_additional_permissions;
    case SP_TOOL_WITHOUT_ADDITIONAL_PERMISSIONS:
        return !o->has_additional_permissions;
    case SP_TOOL_WITH_NO_TIMEOUT:
        return o->has_no_timeout;
    case SP_TOOL_WITH_UNIFIED_EXEC:
        return o->has_unified_exec;
    }
    return false;
}

bool sp_tools_add_parameters(struct sp_buf *out, const struct sp_tool_parameter *list,
                             const struct sp_tools_options *o)
{
    bool ok = sp_buf_add_str(out, SP_STR("{\"type\":\"object\",\"properties\":{"));

    for (const struct sp_tool_parameter *p = list; ok && p != NULL && p->name != NULL; p++)
        if (sp_tools_has(o, p->when))
            ok = sp_json_add_value(out, p->name, "{\"type\":\"%s\"", p->type) &&
                 sp_json_add_member(out, "description", sp_str_of(p->description)) &&
                 sp_buf_printf(out, "%s%s}", p->more != NULL ? "," : "",
                               p->more != NULL ? p->more : "");
    return ok && sp_buf_add(out, "}", 1);
}

bool sp_tools_add_schemas(struct sp_buf *out, const struct sp_tools_options *o)
{
    const size_t mark = out->len;
    bool ok = sp_buf_add(out, "[", 1);

    for (size_t i = 0; ok && i < TOOL_COUNT; i++) {
        const struct tool *t = &tools[i];

        if (sp_tools_has(o, t->when))
            ok = sp_buf_printf(out, "%s{\"type\":\"function\",\"name\":\"%s\"", i == 0 ? "" : ",",
                               t->name) &&
                 sp_json_add_member(out, "description", sp_str_of(t->description)) &&
                 sp_buf_add_str(out, SP_STR(",\"strict\":false,\"parameters\":")) &&
                 sp_tools_add_parameters(out, t->parameters, o) &&
                 sp_buf_printf(out,
                               ",\"required\":[\"%s\"],\"additionalProperties\":false},"
                               "\"output_schema\":%s}",
                               t->required, t->output);
    }
    if (ok && sp_buf_add(out, "]", 1))
        return true;
    out->len = mark;
    return false;
}

/* ---- events ---- */

static bool add_command(struct sp_buf *out, const struct sp_exec_event *e)
{
    static const char *const sources[] = {
        [SP_SOURCE_AGENT] = "agent",
        [SP_SOURCE_USER_SHELL] = "user_shell",
        [SP_SOURCE_UNIFIED_EXEC_STARTUP] = "unified_exec_startup",
        [SP_SOURCE_UNIFIED_EXEC_INTERACTION] = "unified_exec_interaction",
    };
    bool ok = sp_buf_add_str(out, SP_STR(",\"command\":["));

    for (uint32_t i = 0; ok && i < e->argc; i++)
        ok = (i == 0 || sp_buf_add(out, ",", 1)) && sp_json_add_str(out, e->argv[i]);
    return ok && sp_buf_add(out, "]", 1) && sp_json_add_member(out, "cwd", e->cwd) &&
           sp_json_add_value(out, "parsed_cmd", "[]") &&
           sp_json_add_value(out, "source", "\"%s\"", sources[e->source]);
}

static bool add_delta(struct sp_buf *out, const struct sp_exec_event *e)
{
    if (!sp_json_add_value(out, "stream", "\"%s\"",
                           e->stream == SP_STREAM_STDERR ? "stderr" : "stdout") ||
        !sp_json_add_value(out, "chunk", "\""))
        return false;
    char *room = sp_buf_room(out, SP_BASE64_LEN(e->chunk.n) + 1);
    if (room == NULL)
        return false;
    room = sp_base64_encode(room, e->chunk.p, e->chunk.n);
    *room++ = '"';
    out->len = (size_t)(room - out->data);
    return true;
}

static bool add_event(struct sp_buf *out, const struct sp_exec_event *e)
{
    static const char *const types[] = {
        [SP_EVENT_BEGIN] = "exec_command_begin",
        [SP_EVENT_DELTA] = "exec_command_output_delta",
        [SP_EVENT_INTERACTION] = "terminal_interaction",
        [SP_EVENT_END] = "exec_command_end",
        [SP_EVENT_WARNING] = "warning",
        [SP_EVENT_NOTICE] = "background_event",
    };
    static const char *const statuses[] = {
        [SP_STATUS_COMPLETED] = "completed",
        [SP_STATUS_FAILED] = "failed",
        [SP_STATUS_DECLINED] = "declined",
    };
    const bool has_process = e->process_id != 0 && e->type != SP_EVENT_DELTA &&
                             e->type != SP_EVENT_WARNING && e->type != SP_EVENT_NOTICE;

    if (!sp_buf_printf(out, "{\"type\":\"%s\"", types[e->type]) ||
        !sp_json_add_member(out, "call_id", e->call_id) ||
        (has_process && !sp_json_add_value(out, "process_id", "\"%d\"", e->process_id)))
        return false;
    switch (e->type) {
    case SP_EVENT_BEGIN:
        return sp_json_add_member(out, "turn_id", e->turn_id) &&
               sp_json_add_value(out, "started_at_ms", "%" PRId64, e->at_ms) && add_command(out, e);
    case SP_EVENT_DELTA:
        return add_delta(out, e);
    case SP_EVENT_INTERACTION:
        return sp_json_add_member(out, "stdin", e->input);
    case SP_EVENT_END:
        return sp_json_add_member(out, "turn_id", e->turn_id) &&
               sp_json_add_value(out, "completed_at_ms", "%" PRId64, e->at_ms) &&
               add_command(out, e) && sp_json_add_member(out, "stdout", e->out) &&
               sp_json_add_member(out, "stderr", e->err) &&
               sp_json_add_member(out, "aggregated_output", e->aggregated) &&
               sp_json_add_value(out, "exit_code", "%d", e->exit_code) &&
               sp_json_add_value(out, "duration", "{\"secs\":%" PRIu64 ",\"nanos\":%" PRIu64 "}",
                                 e->duration_ns / 1000000000, e->duration_ns % 1000000000) &&
               sp_json_add_member(out, "formatted_output", e->formatted) &&
               sp_json_add_value(out, "status", "\"%s\"", statuses[e->status]);
    case SP_EVENT_WARNING:
    case SP_EVENT_NOTICE:
        break;
    }
    return sp_json_add_member(out, "message", e->message);
}

bool sp_tools_add_event(struct sp_buf *out, const struct sp_exec_event *e)
{
    const size_t mark = out->len;

    if (add_event(out, e) && sp_buf_add(out, "}", 1))
        return true;
    out->len = mark;
    return false;
}

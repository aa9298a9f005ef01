/* SPDX-License-Identifier: Apache-2.0 */
/* event_json: events of the engine as JSON objects, in the words of codex. */
#include <inttypes.h>

#include "base/base64.h"
#include "base/json.h"
#include "mcp/tools.h"

static const char *const type_names[] = {
    [SP_EVENT_BEGIN] = "exec_command_begin",
    [SP_EVENT_DELTA] = "exec_command_output_delta",
    [SP_EVENT_INTERACTION] = "terminal_interaction",
    [SP_EVENT_END] = "exec_command_end",
    [SP_EVENT_WARNING] = "warning",
    [SP_EVENT_NOTICE] = "background_event",
};

static const char *const source_names[] = {
    [SP_SOURCE_AGENT] = "agent",
    [SP_SOURCE_USER_SHELL] = "user_shell",
    [SP_SOURCE_UNIFIED_EXEC_STARTUP] = "unified_exec_startup",
    [SP_SOURCE_UNIFIED_EXEC_INTERACTION] = "unified_exec_interaction",
};

static const char *const status_names[] = {
    [SP_STATUS_COMPLETED] = "completed",
    [SP_STATUS_FAILED] = "failed",
    [SP_STATUS_DECLINED] = "declined",
};

/* The first member of an object is `type`: all others are preceded by a comma. */
static bool add_str(struct sp_buf *out, const char *name, struct sp_str value)
{
    return sp_buf_printf(out, ",\"%s\":", name) && sp_json_add_str(out, value);
}

static bool add_number(struct sp_buf *out, const char *name, int64_t value)
{
    return sp_buf_printf(out, ",\"%s\":%lld", name, (long long)value);
}

static bool add_process_id(struct sp_buf *out, int id)
{
    return id == 0 || sp_buf_printf(out, ",\"process_id\":\"%d\"", id);
}

static bool add_command(struct sp_buf *out, const struct sp_exec_event *e)
{
    if (!sp_buf_add_str(out, SP_STR(",\"command\":[")))
        return false;
    for (uint32_t i = 0; i < e->argc; i++)
        if ((i > 0 && !sp_buf_add(out, ",", 1)) || !sp_json_add_str(out, e->argv[i]))
            return false;
    return sp_buf_add(out, "]", 1) && add_str(out, "cwd", e->cwd) &&
           sp_buf_add_str(out, SP_STR(",\"parsed_cmd\":[]")) &&
           add_str(out, "source", sp_str_of(source_names[e->source]));
}

static bool add_delta(struct sp_buf *out, const struct sp_exec_event *e)
{
    const struct sp_str stream =
        e->stream == SP_STREAM_STDERR ? SP_STR("stderr") : SP_STR("stdout");

    if (!add_str(out, "stream", stream) || !sp_buf_add_str(out, SP_STR(",\"chunk\":\"")))
        return false;
    char *room = sp_buf_room(out, SP_BASE64_LEN(e->chunk.n) + 1);
    if (room == NULL)
        return false;
    room = sp_base64_encode(room, e->chunk.p, e->chunk.n);
    *room++ = '"';
    out->len = (size_t)(room - out->data);
    return true;
}

static bool add_end(struct sp_buf *out, const struct sp_exec_event *e)
{
    return add_process_id(out, e->process_id) && add_str(out, "turn_id", e->turn_id) &&
           add_number(out, "completed_at_ms", e->at_ms) && add_command(out, e) &&
           add_str(out, "stdout", e->out) && add_str(out, "stderr", e->err) &&
           add_str(out, "aggregated_output", e->aggregated) &&
           add_number(out, "exit_code", e->exit_code) &&
           sp_buf_printf(out, ",\"duration\":{\"secs\":%" PRIu64 ",\"nanos\":%" PRIu64 "}",
                         e->duration_ns / 1000000000, e->duration_ns % 1000000000) &&
           add_str(out, "formatted_output", e->formatted) &&
           add_str(out, "status", sp_str_of(status_names[e->status]));
}

static bool add_members(struct sp_buf *out, const struct sp_exec_event *e)
{
    switch (e->type) {
    case SP_EVENT_BEGIN:
        return add_process_id(out, e->process_id) && add_str(out, "turn_id", e->turn_id) &&
               add_number(out, "started_at_ms", e->at_ms) && add_command(out, e);
    case SP_EVENT_DELTA:
        return add_delta(out, e);
    case SP_EVENT_INTERACTION:
        return add_process_id(out, e->process_id) && add_str(out, "stdin", e->input);
    case SP_EVENT_END:
        return add_end(out, e);
    case SP_EVENT_WARNING:
    case SP_EVENT_NOTICE:
        return add_str(out, "message", e->message);
    }
    return true;
}

bool sp_tools_add_event(struct sp_buf *out, const struct sp_exec_event *e)
{
    const size_t mark = out->len;
    const bool has_room = sp_buf_printf(out, "{\"type\":\"%s\"", type_names[e->type]) &&
                          add_str(out, "call_id", e->call_id) && add_members(out, e) &&
                          sp_buf_add(out, "}", 1);

    if (!has_room)
        out->len = mark;
    return has_room;
}

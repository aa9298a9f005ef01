/* SPDX-License-Identifier: Apache-2.0 */
/* task_methods: tasks/get, tasks/update and tasks/cancel, and how a task is written. */
#include <inttypes.h>
#include <time.h>

#include "mcp/elicit.h"
#include "mcp/task_priv.h"

static const char *const status_name[] = {
    [SP_MCP_TASK_WORKING] = "working",     [SP_MCP_TASK_INPUT_REQUIRED] = "input_required",
    [SP_MCP_TASK_COMPLETED] = "completed", [SP_MCP_TASK_FAILED] = "failed",
    [SP_MCP_TASK_CANCELLED] = "cancelled",
};

/* ---- writing ---- */

static bool add_time(struct sp_buf *b, const char *key, int64_t ms)
{
    const time_t seconds = (time_t)(ms / 1000);
    struct tm tm = {0};
    char text[32];

    (void)gmtime_r(&seconds, &tm);
    (void)strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    return sp_buf_printf(b, ",\"%s\":\"%s.%03dZ\"", key, text, (int)(ms % 1000));
}

static bool add_ttl(struct sp_buf *b, const struct sp_mcp_task *t)
{
    const uint64_t ms = sp_mcp_task_ttl_ms(t);

    return ms == 0 ? sp_buf_add_str(b, SP_STR(",\"ttlMs\":null"))
                   : sp_buf_printf(b, ",\"ttlMs\":%" PRIu64, ms);
}

static bool add_outcome(struct sp_buf *b, const struct sp_mcp_task *t)
{
    const struct sp_approval_question *q = t->run != NULL ? sp_mcp_run_question(t->run) : NULL;

    if (t->status == SP_MCP_TASK_COMPLETED)
        return sp_buf_add_str(b, SP_STR(",\"result\":{\"resultType\":\"complete\",")) &&
               sp_buf_add(b, t->result.data, t->result.len) && sp_buf_add(b, "}", 1);
    if (t->status == SP_MCP_TASK_FAILED)
        return sp_buf_add_str(b, SP_STR(",\"error\":{\"code\":-32603,\"message\":"
                                        "\"there was no memory for the result\"}"));
    if (t->status != SP_MCP_TASK_INPUT_REQUIRED)
        return true;
    if (q == NULL)
        return sp_buf_add_str(b, SP_STR(",\"inputRequests\":{}"));
    return sp_buf_add_str(b, SP_STR(",\"inputRequests\":")) &&
           sp_mcp_add_input_request(b, q, t->asked);
}

bool sp_mcp_task_add(struct sp_buf *b, const struct sp_mcp_task *t, bool is_brief)
{
    struct sp_mcp_task_id id;

    sp_mcp_task_id(t->all, t->number, &id);
    return sp_buf_printf(b, "\"taskId\":\"%s\",\"status\":\"%s\"", id.text,
                         status_name[t->status]) &&
           sp_buf_printf(b, ",\"statusMessage\":\"session %d\"", t->session_id) &&
           add_time(b, "createdAt", t->created_at_ms) &&
           add_time(b, "lastUpdatedAt", t->updated_at_ms) && add_ttl(b, t) &&
           sp_buf_printf(b, ",\"pollIntervalMs\":%d", SP_MCP_TASK_INTERVAL_MS) &&
           (is_brief || add_outcome(b, t));
}

/* ---- methods ---- */

bool sp_mcp_need_tasks(const struct sp_mcp_turn *t)
{
    if (sp_mcp_can_task(&t->message->json, t->message->capabilities))
        return true;
    sp_mcp_say_error(
        &t->to, SP_MCP_BAD_STATUS, SP_MCP_NEEDS_CAPABILITY,
        SP_STR("{\"requiredCapabilities\":{\"extensions\":{\"" SP_MCP_TASKS_EXTENSION "\":{}}}}"),
        "this needs the client capability " SP_MCP_TASKS_EXTENSION);
    return false;
}

/* NULL: the request has been refused. */
static struct sp_mcp_task *find(const struct sp_mcp_turn *t)
{
    if (!sp_mcp_need_tasks(t))
        return NULL;
    struct sp_mcp_task *task = sp_mcp_task_find(t->peer->caller, t->message->name);
    if (task == NULL)
        sp_mcp_say_error(&t->to, SP_MCP_OK_STATUS, SP_MCP_INVALID_PARAMS, (struct sp_str){0},
                         t->message->name.n == 0 ? "taskId is missing, or not a string"
                                                 : "unknown task: it was never there, or is gone");
    return task;
}

void sp_mcp_task_get(const struct sp_mcp_turn *t)
{
    auto_buf struct sp_buf b = {0};
    const struct sp_mcp_task *task = find(t);

    if (task == NULL)
        return;
    if (sp_mcp_task_add(&b, task, false))
        sp_mcp_say_result(&t->to, "complete", (struct sp_str){b.data, b.len});
    else
        sp_mcp_say_no_memory(&t->to);
}

/* What is no answer leads to the same question under another key: none is used twice. */
static void take_answer(struct sp_mcp_task *task, struct sp_json *j, uint32_t answer)
{
    const struct sp_approval_question *q =
        task->run != NULL ? sp_mcp_run_question(task->run) : NULL;
    struct sp_decision d = {0};

    if (task->status != SP_MCP_TASK_INPUT_REQUIRED || q == NULL || answer == SP_JSON_NONE)
        return;
    if (!sp_mcp_elicit_read(j, answer, q, sp_mcp_run_is_too_quick(task->run), &d)) {
        task->asked++;
        sp_mcp_run_is_shown(task->run);
        sp_mcp_task_changed(task, SP_MCP_TASK_INPUT_REQUIRED);
        return;
    }
    sp_mcp_task_changed(task, SP_MCP_TASK_WORKING);
    sp_mcp_run_decide(task->run, &d);
}

void sp_mcp_task_update(const struct sp_mcp_turn *t)
{
    struct sp_json *j = &t->message->json;
    struct sp_mcp_task *task = find(t);
    struct sp_err e = {0};
    uint32_t responses = SP_JSON_NONE;

    if (task == NULL)
        return;
    if (sp_json_need_object(j, t->message->params, "inputResponses", &responses, &e) < 0) {
        sp_mcp_say_error(&t->to, SP_MCP_OK_STATUS, SP_MCP_INVALID_PARAMS, (struct sp_str){0},
                         "inputResponses: %s", e.msg);
        return;
    }
    take_answer(task, j, sp_mcp_input_response(j, responses, task->asked));
    sp_mcp_say_result(&t->to, "complete", (struct sp_str){0});
}

void sp_mcp_task_cancel(const struct sp_mcp_turn *t)
{
    struct sp_mcp_task *task = find(t);

    if (task == NULL)
        return;
    sp_mcp_task_stop(task);
    sp_mcp_say_result(&t->to, "complete", (struct sp_str){0});
}

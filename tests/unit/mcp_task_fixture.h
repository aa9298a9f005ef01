/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_task_fixture: what tests about tasks say, and a call that has become one.
 */
#ifndef SP_MCP_TASK_FIXTURE_H
#define SP_MCP_TASK_FIXTURE_H

#include "mcp_fixture.h"

#define GET(id, task)     REQUEST(id, "tasks/get", "\"taskId\":\"" task "\"," META(TASKS))
#define CANCEL_TASK(task) REQUEST("\"c\"", "tasks/cancel", "\"taskId\":\"" task "\"," META(TASKS))
#define UPDATE(task, responses)      \
    REQUEST("\"u\"", "tasks/update", \
            "\"taskId\":\"" task "\",\"inputResponses\":{" responses "}," META(TASKS))
#define ONCE(key) "\"" key "\":{\"action\":\"accept\",\"content\":{\"decision\":\"once\"}}"
#define LISTEN(id, wanted) \
    REQUEST(id, "subscriptions/listen", "\"notifications\":{" wanted "}," META(TASKS))
#define EMPTY(id) \
    "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"result\":{\"resultType\":\"complete\"," INFO "}}"
#define SUBSCRIPTION(id) "\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":" id "}"

/* A call of a client with tasks and forms that has become one. */
static inline struct fake_run *make_task(const char *id, int session, const char *task)
{
    char text[600];
    char part[64];

    (void)snprintf(text, sizeof text, CALL_TO_END("%s", TASKS "," FORMS), id);
    assert_true(say(text));
    assert_true(newest_run()->run.waits_for_end);
    hears_nothing();
    begin_process(newest_run(), session);
    (void)snprintf(text, sizeof text,
                   "\"id\":%s,\"result\":{\"resultType\":\"task\",\"taskId\":\"%s\"", id, task);
    (void)snprintf(part, sizeof part, "\"statusMessage\":\"session %d\"", session);
    hears_of(200, text, "\"status\":\"working\"", part, "\"createdAt\":\"20", "Z\"",
             "\"lastUpdatedAt\":\"20", "\"ttlMs\":600", "\"pollIntervalMs\":2000", INFO, NULL);
    return newest_run();
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_listen: subscriptions/listen. Our list of tools never changes, so all that can be heard of
 * is tasks: those that are there when the subscription begins. What a full connection misses is
 * what tasks/get has.
 */
#include <stdlib.h>

#include "mcp/task_priv.h"

#define IDS_MAX 1024 /* in one request; we have fewer tasks */

struct sp_mcp_listen {
    struct sp_mcp_request request; /* first */
    struct sp_mcp_tasks *tasks;    /* NULL: it hears of none */
    struct sp_mcp_listen *prev, *next;
    bool is_due; /* to be told what is being told */
    uint32_t count;
    uint64_t numbers[SP_MCP_TASKS_MAX];
};

static void unlink_listen(struct sp_mcp_listen *l)
{
    if (l->tasks == NULL)
        return;
    *(l->prev != NULL ? &l->prev->next : &l->tasks->listening) = l->next;
    if (l->next != NULL)
        l->next->prev = l->prev;
    l->tasks = NULL;
}

static void drop(struct sp_mcp_request *r)
{
    unlink_listen((struct sp_mcp_listen *)r);
    sp_mcp_request_close(r);
}

void sp_mcp_listen_forget(struct sp_mcp_tasks *all)
{
    while (all->listening != NULL)
        unlink_listen(all->listening);
}

/* ---- telling ---- */

static bool hears_of(const struct sp_mcp_listen *l, const struct sp_mcp_task *t)
{
    for (uint32_t i = 0; i < l->count; i++)
        if (l->numbers[i] == t->number)
            return true;
    return false;
}

static bool add_subscription(struct sp_buf *b, const struct sp_mcp_listen *l)
{
    return sp_buf_add_str(b, SP_STR("{\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":")) &&
           sp_buf_add(b, l->request.id, l->request.id_len) && sp_buf_add_str(b, SP_STR("},"));
}

/* The last thing that is done with this one: it may be gone after it. */
static void tell_one(const struct sp_mcp_listen *l, const struct sp_mcp_task *t)
{
    auto_buf struct sp_buf b = {0};
    struct sp_mcp_out *out = l->request.out;

    if (out->is_full != NULL && out->is_full(out))
        return;
    if (add_subscription(&b, l) && sp_mcp_task_add(&b, t, false) && sp_buf_add(&b, "}", 1))
        (void)sp_mcp_say_notice(out, "notifications/tasks", (struct sp_str){b.data, b.len});
}

static struct sp_mcp_listen *next_due(const struct sp_mcp_tasks *all)
{
    struct sp_mcp_listen *l = all->listening;

    while (l != NULL && !l->is_due)
        l = l->next;
    return l;
}

void sp_mcp_listen_tell(struct sp_mcp_task *t)
{
    struct sp_mcp_listen *l;

    for (l = t->all->listening; l != NULL; l = l->next)
        l->is_due = hears_of(l, t);
    while ((l = next_due(t->all)) != NULL) {
        l->is_due = false;
        tell_one(l, t);
    }
}

/* ---- the beginning ---- */

static void refuse(const struct sp_mcp_turn *t, const char *why)
{
    sp_mcp_say_error(&t->to, SP_MCP_OK_STATUS, SP_MCP_INVALID_PARAMS, (struct sp_str){0}, "%s",
                     why);
}

/* false: it has been refused. *ret: the array, or SP_JSON_NONE. */
static bool find_ids(const struct sp_mcp_turn *t, uint32_t *ret)
{
    struct sp_json *j = &t->message->json;
    struct sp_err e = {0};
    uint32_t wanted = SP_JSON_NONE;

    if (sp_json_need_object(j, t->message->params, "notifications", &wanted, &e) < 0) {
        refuse(t, "subscriptions/listen needs notifications, an object");
        return false;
    }
    if (sp_json_opt_array(j, wanted, "taskIds", ret, &e) < 0 ||
        (*ret != SP_JSON_NONE && j->tokens[*ret].children > IDS_MAX)) {
        refuse(t, "taskIds is not an array of at most 1024 strings");
        return false;
    }
    return *ret == SP_JSON_NONE || sp_mcp_need_tasks(t);
}

/* Those that are there. */
static void take_ids(struct sp_mcp_listen *l, struct sp_json *j, uint32_t ids)
{
    const struct sp_mcp_caller *c = l->request.peer->caller;

    if (ids == SP_JSON_NONE)
        return;
    for (uint32_t i = sp_json_first(j, ids); i != SP_JSON_NONE; i = sp_json_next(j, ids, i)) {
        const struct sp_mcp_task *t =
            sp_json_type(j, i) == SP_JSON_STRING ? sp_mcp_task_find(c, sp_json_str(j, i)) : NULL;

        if (t != NULL && !hears_of(l, t) && l->count < SP_MCP_TASKS_MAX)
            l->numbers[l->count++] = t->number;
    }
}

static bool add_ids(struct sp_buf *b, const struct sp_mcp_listen *l)
{
    for (uint32_t i = 0; i < l->count; i++) {
        struct sp_mcp_task_id id;

        sp_mcp_task_id(l->request.peer->caller->tasks, l->numbers[i], &id);
        if (!sp_buf_printf(b, "%s\"%s\"", i != 0 ? "," : "", id.text))
            return false;
    }
    return true;
}

static bool add_acknowledgement(struct sp_buf *b, const struct sp_mcp_listen *l, bool has_ids)
{
    if (!(add_subscription(b, l) && sp_buf_add_str(b, SP_STR("\"notifications\":{"))))
        return false;
    if (has_ids &&
        !(sp_buf_add_str(b, SP_STR("\"taskIds\":[")) && add_ids(b, l) && sp_buf_add(b, "]", 1)))
        return false;
    return sp_buf_add_str(b, SP_STR("}}"));
}

static void link_listen(struct sp_mcp_listen *l, struct sp_mcp_tasks *tasks)
{
    l->tasks = tasks;
    l->next = tasks->listening;
    if (l->next != NULL)
        l->next->prev = l;
    tasks->listening = l;
}

static bool is_listening(const struct sp_mcp_tasks *all, const struct sp_mcp_listen *wanted)
{
    const struct sp_mcp_listen *l = all->listening;

    while (l != NULL && l != wanted)
        l = l->next;
    return l != NULL;
}

/* What changed before anybody listened: between the answer that made a task and now. */
static void tell_past(const struct sp_mcp_listen *l, const struct sp_mcp_tasks *all)
{
    for (const struct sp_mcp_task *t = all->oldest; t != NULL && is_listening(all, l); t = t->prev)
        if (t->status != SP_MCP_TASK_WORKING && hears_of(l, t))
            tell_one(l, t);
}

void sp_mcp_listen(const struct sp_mcp_turn *t)
{
    auto_buf struct sp_buf b = {0};
    struct sp_json *j = &t->message->json;
    uint32_t ids = SP_JSON_NONE;

    if (!find_ids(t, &ids))
        return;
    struct sp_mcp_listen *l = sp_mcp_request_open(t, sizeof *l, drop);
    if (l == NULL)
        return;
    l->request.is_subscription = true;
    take_ids(l, j, ids);
    if (l->count != 0)
        link_listen(l, t->peer->caller->tasks);
    if (!add_acknowledgement(&b, l, ids != SP_JSON_NONE) ||
        !sp_mcp_say_notice(t->to.out, "notifications/subscriptions/acknowledged",
                           (struct sp_str){b.data, b.len})) {
        drop(&l->request);
        sp_mcp_say_no_memory(&t->to);
        return;
    }
    if (t->peer->caller->tasks != NULL)
        tell_past(l, t->peer->caller->tasks);
}

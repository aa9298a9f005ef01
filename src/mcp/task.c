/* SPDX-License-Identifier: Apache-2.0 */
/*
 * task: the tasks of a caller, tasks/get, tasks/update, tasks/cancel, and subscriptions/listen.
 *
 *   WORKING <--> INPUT_REQUIRED
 *      '------------'--> COMPLETED, FAILED, CANCELLED --> freed
 *
 * A finished task is kept as long as the output of its process (exited_ttl_ms), unless newer ones
 * need its place. The list of tools never changes, so tasks are all that a client can subscribe to:
 * the ones that exist when the subscription starts. A full connection misses notifications;
 * tasks/get has the same facts.
 */
#include "mcp/task.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/sha.h"
#include "mcp/elicit.h"
#include "mcp/peer_priv.h"

#define TASK_ID_SIZE   64
#define LISTEN_IDS_MAX 1024 /* task ids in one subscriptions/listen; more than tasks can exist */

enum task_status {
    TASK_WORKING,
    TASK_INPUT_REQUIRED,
    TASK_COMPLETED,
    TASK_FAILED, /* out of memory for its result */
    TASK_CANCELLED,
};

struct task {
    struct sp_mcp_tasks *all;
    struct sp_list link;
    uint64_t number;
    enum task_status status;
    int session_id;
    uint64_t created_at_ms, updated_at_ms; /* since 1970 */
    uint64_t ended_ms;                     /* loop clock; 0: running */
    struct sp_mcp_run *run;                /* NULL: it has ended */
    bool elicits;                          /* the client shows forms */
    uint64_t asked;                        /* questions so far; the open one is approve_<asked> */
    struct sp_buf result;                  /* its members, once COMPLETED */
};

struct sp_mcp_tasks {
    struct sp_mcp_caller *caller;
    struct sp_list list; /* oldest first */
    uint32_t count;
    size_t bytes; /* of all results */
    uint64_t next_number;
    struct sp_timer timer;    /* expiry of the first ended task */
    struct sp_list listeners; /* subscriptions that name at least one task */
};

struct listener {
    struct sp_mcp_request request; /* first */
    struct sp_list link;
    bool is_due; /* still to be told the current change */
    uint32_t count;
    uint64_t numbers[SP_MCP_TASKS_MAX]; /* of the tasks it named */
};

static void expire_tasks(struct sp_timer *timer);

static struct task *task_of(struct sp_list *link)
{
    return SP_CONTAINER(link, struct task, link);
}

static struct listener *listener_of(struct sp_list *link)
{
    return SP_CONTAINER(link, struct listener, link);
}

static uint64_t kept_ms(const struct sp_mcp_tasks *all)
{
    return sp_mcp_options(all->caller->mcp)->manager->exited_ttl_ms;
}

/* ---- the list of tasks ---- */

static void remove_task(struct task *t)
{
    sp_list_remove(&t->link);
    t->all->count--;
    t->all->bytes -= t->result.len;
    if (t->run != NULL)
        sp_mcp_run_cancel(t->run);
    sp_buf_done(&t->result);
    free(t);
}

void sp_mcp_tasks_free(struct sp_mcp_tasks *all)
{
    if (all == NULL)
        return;
    while (sp_list_take_first(&all->listeners) != NULL)
        continue;
    sp_list_each_safe(i, &all->list)
        remove_task(task_of(i));
    assert(all->count == 0);
    sp_loop_cancel(all->caller->loop, &all->timer);
    all->caller->tasks = NULL;
    free(all);
}

/* NULL: all are running. */
static struct task *first_ended(const struct sp_mcp_tasks *all)
{
    struct task *first = NULL;

    sp_list_each(i, &all->list) {
        struct task *t = task_of(i);

        if (t->run == NULL && (first == NULL || t->ended_ms < first->ended_ms))
            first = t;
    }
    return first;
}

/* Out of memory for the timer, tasks stay longer; their number is bounded anyway. */
static void arm_expiry(struct sp_mcp_tasks *all)
{
    const struct task *t = kept_ms(all) != 0 ? first_ended(all) : NULL;

    if (t != NULL)
        (void)sp_loop_timer(all->caller->loop, &all->timer, t->ended_ms + kept_ms(all),
                            expire_tasks);
}

static void expire_tasks(struct sp_timer *timer)
{
    struct sp_mcp_tasks *all = SP_CONTAINER(timer, struct sp_mcp_tasks, timer);
    const uint64_t now = sp_loop_now(all->caller->loop);
    struct task *t;

    while ((t = first_ended(all)) != NULL && t->ended_ms + kept_ms(all) <= now)
        remove_task(t);
    arm_expiry(all);
}

bool sp_mcp_task_has_room(const struct sp_mcp_caller *c)
{
    return c->tasks == NULL || c->tasks->count < SP_MCP_TASKS_MAX || first_ended(c->tasks) != NULL;
}

/* The wire name of a task: its number and a part that cannot be guessed, which the extension
 * demands although no other caller can use the name anyway. */
static void name_task(const struct task *t, char ret[TASK_ID_SIZE])
{
    struct {
        const void *owner;
        uint64_t number;
    } about = {t->all, t->number};
    const struct sp_hash h = sp_hash((struct sp_str){(const char *)&about, sizeof about});

    (void)snprintf(ret, TASK_ID_SIZE, "task-%" PRIu64 "-%016" PRIx64 "%016" PRIx64, t->number, h.a,
                   h.b);
}

static struct task *find_task(const struct sp_mcp_caller *c, struct sp_str id)
{
    char own[TASK_ID_SIZE];

    if (c->tasks == NULL)
        return NULL;
    sp_list_each(i, &c->tasks->list) {
        name_task(task_of(i), own);
        if (sp_same_secret(id, sp_str_of(own)))
            return task_of(i);
    }
    return NULL;
}

/* ---- a task as JSON ---- */

/* `"taskId":...` and the other members; is_brief: without the outcome. */
static bool add_task_json(struct sp_buf *b, const struct task *t, bool is_brief)
{
    static const char *const status_name[] = {
        [TASK_WORKING] = "working",     [TASK_INPUT_REQUIRED] = "input_required",
        [TASK_COMPLETED] = "completed", [TASK_FAILED] = "failed",
        [TASK_CANCELLED] = "cancelled",
    };
    static const char *const times[] = {"createdAt", "lastUpdatedAt"};
    const struct sp_approval_question *q = t->run != NULL ? sp_mcp_run_question(t->run) : NULL;
    const uint64_t until = t->run != NULL ? sp_clock_unix_ms() : t->updated_at_ms;
    char id[TASK_ID_SIZE];

    name_task(t, id);
    bool ok =
        sp_buf_printf(b, "\"taskId\":\"%s\",\"status\":\"%s\",\"statusMessage\":\"session %d\"", id,
                      status_name[t->status], t->session_id);
    for (size_t i = 0; ok && i < 2; i++) {
        const uint64_t ms = i == 0 ? t->created_at_ms : t->updated_at_ms;
        const time_t seconds = (time_t)(ms / 1000);
        struct tm tm = {0};
        char text[32];

        (void)gmtime_r(&seconds, &tm);
        (void)strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
        ok = sp_json_add_value(b, times[i], "\"%s.%03dZ\"", text, (int)(ms % 1000));
    }
    /* The whole life of the task, counted from its creation; the wall clock may have jumped back.
     */
    const uint64_t age = until > t->created_at_ms ? until - t->created_at_ms : 0;
    if (kept_ms(t->all) == 0)
        ok = ok && sp_json_add_value(b, "ttlMs", "null");
    else
        ok = ok && sp_json_add_value(b, "ttlMs", "%" PRIu64, kept_ms(t->all) + age);
    ok = ok && sp_json_add_value(b, "pollIntervalMs", "%d", SP_MCP_TASK_INTERVAL_MS);
    if (!ok || is_brief)
        return ok;
    if (t->status == TASK_COMPLETED)
        return sp_buf_add_str(b, SP_STR(",\"result\":{\"resultType\":\"complete\",")) &&
               sp_buf_add(b, t->result.data, t->result.len) && sp_buf_add(b, "}", 1);
    if (t->status == TASK_FAILED)
        return sp_json_add_value(
            b, "error", "{\"code\":-32603,\"message\":\"there was no memory for the result\"}");
    if (t->status != TASK_INPUT_REQUIRED)
        return true;
    return sp_json_add_key(b, "inputRequests") &&
           (q == NULL ? sp_buf_add_str(b, SP_STR("{}")) : sp_mcp_elicit_add_input(b, q, t->asked));
}

/* ---- telling listeners ---- */

static bool hears_of(const struct listener *l, const struct task *t)
{
    for (uint32_t i = 0; i < l->count; i++)
        if (l->numbers[i] == t->number)
            return true;
    return false;
}

static bool add_subscription_id(struct sp_buf *b, const struct listener *l)
{
    return sp_buf_add_str(b, SP_STR("{\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":")) &&
           sp_buf_add(b, l->request.id, l->request.id_len) && sp_buf_add_str(b, SP_STR("},"));
}

/* Sending may find that the client is gone and free the listener. */
static void tell_listener(const struct listener *l, const struct task *t)
{
    auto_buf struct sp_buf b = {0};
    struct sp_mcp_out *out = l->request.out;

    if (out->is_full(out))
        return;
    if (add_subscription_id(&b, l) && add_task_json(&b, t, false) && sp_buf_add(&b, "}", 1))
        (void)sp_mcp_say_notice(out, "notifications/tasks", sp_buf_str(&b));
}

static void set_status(struct task *t, enum task_status status)
{
    struct listener *due = NULL;

    t->status = status;
    t->updated_at_ms = sp_clock_unix_ms();
    sp_list_each(i, &t->all->listeners)
        listener_of(i)->is_due = hears_of(listener_of(i), t);
    do { /* from the start each time: telling one may free others */
        due = NULL;
        sp_list_each(i, &t->all->listeners) {
            if (due == NULL && listener_of(i)->is_due)
                due = listener_of(i);
        }
        if (due != NULL) {
            due->is_due = false;
            tell_listener(due, t);
        }
    } while (due != NULL);
}

/* ---- the run of a task ---- */

static void end_task(struct task *t, enum task_status status)
{
    struct sp_mcp_tasks *all = t->all;
    struct task *old;

    t->run = NULL;
    t->ended_ms = sp_loop_now(all->caller->loop);
    all->bytes += t->result.len;
    set_status(t, status);
    while (all->bytes > SP_MCP_TASK_BYTES_MAX && (old = first_ended(all)) != NULL && old != t)
        remove_task(old);
    arm_expiry(all);
}

static void on_done(void *user, const struct sp_mcp_result *r)
{
    struct task *t = user;

    if (sp_mcp_add_result(&t->result, &sp_mcp_modern, r)) {
        end_task(t, TASK_COMPLETED);
        return;
    }
    sp_buf_done(&t->result);
    end_task(t, TASK_FAILED);
}

static void show_question(struct task *t)
{
    t->asked++;
    sp_mcp_run_note_shown(t->run);
    set_status(t, TASK_INPUT_REQUIRED);
}

static void on_question(void *user)
{
    struct task *t = user;

    if (sp_mcp_run_question(t->run) == NULL || !sp_mcp_run_asks_host(t->run))
        return;
    if (t->elicits)
        show_question(t);
    else
        sp_mcp_run_ask_next(t->run, SP_NO_APPROVER);
}

static void on_withdrawn(void *user)
{
    struct task *t = user;

    if (t->status == TASK_INPUT_REQUIRED)
        set_status(t, TASK_WORKING);
}

static void on_started(void *user, int session_id)
{
    struct task *t = user;

    t->session_id = session_id; /* a retry outside the sandbox has another process */
}

bool sp_mcp_task_adopt(struct sp_mcp_run *r, int session_id, bool elicits, struct sp_buf *out)
{
    static const struct sp_mcp_run_ops run_ops = {
        .done = on_done, .question = on_question, .withdrawn = on_withdrawn, .started = on_started};
    struct sp_mcp_caller *c = r->caller;

    if (c->tasks == NULL && (c->tasks = calloc(1, sizeof *c->tasks)) != NULL) {
        c->tasks->caller = c;
        sp_list_init(&c->tasks->list);
        sp_list_init(&c->tasks->listeners);
    }
    struct sp_mcp_tasks *all = c->tasks;
    if (all == NULL)
        return false;
    if (all->count >= SP_MCP_TASKS_MAX) {
        struct task *ended = first_ended(all);

        if (ended == NULL)
            return false;
        remove_task(ended);
    }
    struct task *t = calloc(1, sizeof *t);
    if (t == NULL)
        return false;
    t->all = all;
    t->number = ++all->next_number;
    t->created_at_ms = t->updated_at_ms = sp_clock_unix_ms();
    sp_list_append(&all->list, &t->link);
    all->count++;
    t->session_id = session_id;
    t->elicits = elicits;
    t->run = r;
    if (!add_task_json(out, t, true)) {
        t->run = NULL;
        remove_task(t);
        return false;
    }
    sp_mcp_run_attach(r, &run_ops, t);
    return true;
}

/* ---- tasks/get, tasks/update, tasks/cancel ---- */

/* false: the client lacks the capability; the error has been sent. */
static bool check_capability(const struct sp_mcp_incoming *t)
{
    if (sp_mcp_can_task(&t->message->json, t->message->capabilities))
        return true;
    struct sp_mcp_to to = t->to;
    to.data =
        SP_STR("{\"requiredCapabilities\":{\"extensions\":{\"" SP_MCP_TASKS_EXTENSION "\":{}}}}");
    sp_mcp_say_error(&to, SP_MCP_BAD_STATUS, SP_MCP_NEEDS_CAPABILITY,
                     "this needs the client capability " SP_MCP_TASKS_EXTENSION);
    return false;
}

/* An invalid answer leads to the same question under a new key: no key is used twice. */
static void take_answer(struct task *t, struct sp_json *j, uint32_t answer)
{
    const struct sp_approval_question *q = t->run != NULL ? sp_mcp_run_question(t->run) : NULL;
    struct sp_decision d = {0};

    if (t->status != TASK_INPUT_REQUIRED || q == NULL || answer == SP_JSON_NONE)
        return;
    if (!sp_mcp_elicit_read(j, answer, q, sp_mcp_run_is_too_quick(t->run), &d)) {
        show_question(t);
        return;
    }
    set_status(t, TASK_WORKING);
    sp_mcp_run_decide(t->run, &d);
}

static void take_task(const struct sp_mcp_incoming *t)
{
    struct sp_json *j = &t->message->json;
    const struct sp_str method = t->message->method;
    auto_buf struct sp_buf b = {0};
    struct sp_err e = {0};
    uint32_t responses = SP_JSON_NONE;

    if (!check_capability(t))
        return;
    struct task *task = find_task(t->peer->caller, t->message->name);
    if (task == NULL) {
        sp_mcp_say_invalid(&t->to, t->message->name.n == 0
                                       ? "taskId is missing, or not a string"
                                       : "unknown task: it was never there, or is gone");
        return;
    }
    if (sp_str_eq(method, SP_STR("tasks/get"))) {
        if (!add_task_json(&b, task, false)) {
            sp_mcp_say_no_memory(&t->to);
            return;
        }
    } else if (sp_str_eq(method, SP_STR("tasks/update"))) {
        if (sp_json_need_object(j, t->message->params, "inputResponses", &responses, &e) < 0) {
            sp_mcp_say_invalid(&t->to, "inputResponses: %s", e.msg);
            return;
        }
        take_answer(task, j, sp_mcp_elicit_find_input(j, responses, task->asked));
    } else if (task->run != NULL) { /* tasks/cancel */
        sp_mcp_run_cancel(task->run);
        if (task->session_id != 0)
            sp_manager_terminate(t->peer->caller->manager, task->session_id, NULL, NULL);
        end_task(task, TASK_CANCELLED);
    }
    sp_mcp_say_result(&t->to, "complete", sp_buf_str(&b));
}

/* ---- subscriptions/listen ---- */

static void drop_listener(struct sp_mcp_request *r)
{
    sp_list_remove(&((struct listener *)r)->link);
    sp_mcp_request_close(r);
}

static bool is_listening(const struct sp_mcp_tasks *all, const struct listener *wanted)
{
    sp_list_each(i, &all->listeners) {
        if (listener_of(i) == wanted)
            return true;
    }
    return false;
}

static void listen_to_tasks(const struct sp_mcp_incoming *t)
{
    struct sp_json *j = &t->message->json;
    auto_buf struct sp_buf b = {0};
    struct sp_err e = {0};
    uint32_t wanted = SP_JSON_NONE;
    uint32_t ids = SP_JSON_NONE;

    if (sp_json_need_object(j, t->message->params, "notifications", &wanted, &e) < 0) {
        sp_mcp_say_invalid(&t->to, "subscriptions/listen needs notifications, an object");
        return;
    }
    if (sp_json_opt_array(j, wanted, "taskIds", &ids, &e) < 0 ||
        (ids != SP_JSON_NONE && j->tokens[ids].children > LISTEN_IDS_MAX)) {
        sp_mcp_say_invalid(&t->to, "taskIds is not an array of at most 1024 strings");
        return;
    }
    if (ids != SP_JSON_NONE && !check_capability(t))
        return;
    struct listener *l = sp_mcp_request_open(t, sizeof *l, drop_listener);
    if (l == NULL)
        return;
    l->request.is_subscription = true;

    /* Ids of tasks that do not exist are ignored; the acknowledgement repeats the others. */
    bool ok = add_subscription_id(&b, l) && sp_buf_add_str(&b, SP_STR("\"notifications\":{")) &&
              (ids == SP_JSON_NONE || sp_json_add_value(&b, "taskIds", "["));
    for (uint32_t i = ids == SP_JSON_NONE ? ids : sp_json_first(j, ids); i != SP_JSON_NONE;
         i = sp_json_next(j, ids, i)) {
        const struct task *task = sp_json_type(j, i) == SP_JSON_STRING
                                      ? find_task(t->peer->caller, sp_json_str(j, i))
                                      : NULL;
        char id[TASK_ID_SIZE];

        if (task == NULL || hears_of(l, task) || l->count == SP_MCP_TASKS_MAX)
            continue;
        name_task(task, id);
        ok = ok && sp_buf_printf(&b, "%s\"%s\"", l->count != 0 ? "," : "", id);
        l->numbers[l->count++] = task->number;
    }
    ok = ok && sp_buf_add_str(&b, ids == SP_JSON_NONE ? SP_STR("}}") : SP_STR("]}}"));

    struct sp_mcp_tasks *all = l->count != 0 ? t->peer->caller->tasks : NULL;
    if (all != NULL)
        sp_list_prepend(&all->listeners, &l->link);
    if (!ok ||
        !sp_mcp_say_notice(t->to.out, "notifications/subscriptions/acknowledged", sp_buf_str(&b))) {
        drop_listener(&l->request);
        sp_mcp_say_no_memory(&t->to);
        return;
    }
    if (all == NULL)
        return;
    /* Tell what changed between the answer that created a task and this subscription. Each message
     * may end the subscription. */
    sp_list_each(i, &all->list) {
        if (!is_listening(all, l))
            break;
        if (task_of(i)->status != TASK_WORKING && hears_of(l, task_of(i)))
            tell_listener(l, task_of(i));
    }
}

const struct sp_mcp_method sp_mcp_task_methods[] = {
    {"subscriptions/listen", listen_to_tasks, false},
    {"tasks/get", take_task, true},
    {"tasks/update", take_task, true},
    {"tasks/cancel", take_task, true},
    {NULL, NULL, false},
};

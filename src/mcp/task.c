/* SPDX-License-Identifier: Apache-2.0 */
/*
 * task: the tasks of a caller, and what becomes of them. One that has ended is kept for as long as
 * the output of its process (exited_ttl_ms), unless newer ones need its place.
 *
 *   WORKING <--> INPUT_REQUIRED
 *      '------------'--> COMPLETED, FAILED, CANCELLED --> gone
 */
#include "mcp/task.h"

#include <stdlib.h>
#include <time.h>

#include "base/auto.h"
#include "base/sha.h"
#include "mcp/task_priv.h"

static void arm(struct sp_mcp_tasks *all);

static struct sp_loop *loop_of(const struct sp_mcp_tasks *all)
{
    return sp_mcp_options(all->caller->mcp)->loop;
}

static uint64_t kept_ms(const struct sp_mcp_tasks *all)
{
    return sp_mcp_options(all->caller->mcp)->manager->exited_ttl_ms;
}

static int64_t wall_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now); /* it is always there */
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

struct sp_mcp_tasks *sp_mcp_tasks_of(struct sp_mcp_caller *c)
{
    if (c->tasks == NULL)
        c->tasks = calloc(1, sizeof *c->tasks);
    if (c->tasks != NULL)
        c->tasks->caller = c;
    return c->tasks;
}

/* ---- coming and going ---- */

static void remove_task(struct sp_mcp_task *t)
{
    struct sp_mcp_tasks *all = t->all;

    *(t->prev != NULL ? &t->prev->next : &all->newest) = t->next;
    *(t->next != NULL ? &t->next->prev : &all->oldest) = t->prev;
    all->count--;
    all->bytes -= t->result.len;
    if (t->run != NULL)
        sp_mcp_run_cancel(t->run);
    sp_buf_done(&t->result);
    free(t);
}

void sp_mcp_tasks_free(struct sp_mcp_tasks *all)
{
    if (all == NULL)
        return;
    sp_mcp_listen_forget(all);
    while (all->newest != NULL)
        remove_task(all->newest);
    sp_loop_cancel(loop_of(all), &all->timer);
    all->caller->tasks = NULL;
    free(all);
}

/* Whichever ended first; NULL: all go on. */
static struct sp_mcp_task *first_ended(const struct sp_mcp_tasks *all)
{
    struct sp_mcp_task *first = NULL;

    for (struct sp_mcp_task *t = all->oldest; t != NULL; t = t->prev)
        if (t->run == NULL && (first == NULL || t->ended_ms < first->ended_ms))
            first = t;
    return first;
}

/* false: there is none but this one, which stays. */
static bool remove_first_ended(struct sp_mcp_tasks *all, const struct sp_mcp_task *stays)
{
    struct sp_mcp_task *t = first_ended(all);

    if (t == NULL || t == stays)
        return false;
    remove_task(t);
    return true;
}

static void on_expired(struct sp_timer *timer)
{
    struct sp_mcp_tasks *all = SP_CONTAINER(timer, struct sp_mcp_tasks, timer);
    const uint64_t now = sp_loop_now(loop_of(all));
    struct sp_mcp_task *t;

    while ((t = first_ended(all)) != NULL && t->ended_ms + kept_ms(all) <= now)
        remove_task(t);
    arm(all);
}

static void arm(struct sp_mcp_tasks *all)
{
    const struct sp_mcp_task *t = kept_ms(all) != 0 ? first_ended(all) : NULL;

    /* Without memory they stay for longer: there are never too many. */
    if (t != NULL)
        (void)sp_loop_timer(loop_of(all), &all->timer, t->ended_ms + kept_ms(all), on_expired);
}

bool sp_mcp_task_has_room(const struct sp_mcp_caller *c)
{
    return c->tasks == NULL || c->tasks->count < SP_MCP_TASKS_MAX || first_ended(c->tasks) != NULL;
}

static struct sp_mcp_task *add_task(struct sp_mcp_caller *c)
{
    struct sp_mcp_tasks *all = sp_mcp_tasks_of(c);

    if (all == NULL || (all->count >= SP_MCP_TASKS_MAX && !remove_first_ended(all, NULL)))
        return NULL;
    struct sp_mcp_task *t = calloc(1, sizeof *t);
    if (t == NULL)
        return NULL;
    t->all = all;
    t->number = ++all->next_number;
    t->created_at_ms = t->updated_at_ms = wall_ms();
    t->next = all->newest;
    *(t->next != NULL ? &t->next->prev : &all->oldest) = t;
    all->newest = t;
    all->count++;
    return t;
}

struct sp_mcp_task *sp_mcp_task_find(const struct sp_mcp_caller *c, struct sp_str id)
{
    struct sp_mcp_task *t = c->tasks != NULL ? c->tasks->newest : NULL;
    struct sp_mcp_task_id own;

    for (; t != NULL; t = t->next) {
        sp_mcp_task_id(t->all, t->number, &own);
        if (sp_same_secret(id, sp_str_of(own.text)))
            break;
    }
    return t;
}

uint64_t sp_mcp_task_ttl_ms(const struct sp_mcp_task *t)
{
    const uint64_t kept = kept_ms(t->all);
    const int64_t until = t->run != NULL ? wall_ms() : t->updated_at_ms;
    const int64_t age = until - t->created_at_ms;

    return kept == 0 ? 0 : kept + (age > 0 ? (uint64_t)age : 0);
}

/* ---- what becomes of it ---- */

void sp_mcp_task_changed(struct sp_mcp_task *t, enum sp_mcp_task_status status)
{
    t->status = status;
    t->updated_at_ms = wall_ms();
    sp_mcp_listen_tell(t);
}

static void end(struct sp_mcp_task *t, enum sp_mcp_task_status status)
{
    struct sp_mcp_tasks *all = t->all;

    t->run = NULL;
    t->ended_ms = sp_loop_now(loop_of(all));
    all->bytes += t->result.len;
    sp_mcp_task_changed(t, status);
    while (all->bytes > SP_MCP_TASK_BYTES_MAX && remove_first_ended(all, t))
        continue;
    arm(all);
}

static void on_done(void *user, const struct sp_mcp_result *r)
{
    struct sp_mcp_task *t = user;

    if (sp_mcp_add_result(&t->result, &sp_mcp_modern, r)) {
        end(t, SP_MCP_TASK_COMPLETED);
        return;
    }
    sp_buf_done(&t->result);
    end(t, SP_MCP_TASK_FAILED);
}

static void on_question(void *user)
{
    struct sp_mcp_task *t = user;

    if (sp_mcp_run_question(t->run) == NULL || !sp_mcp_run_asks_host(t->run))
        return;
    if (!t->elicits) {
        sp_mcp_run_ask_next(t->run, SP_NOBODY_ANSWERS);
        return;
    }
    t->asked++;
    sp_mcp_run_is_shown(t->run);
    sp_mcp_task_changed(t, SP_MCP_TASK_INPUT_REQUIRED);
}

static void on_withdrawn(void *user)
{
    struct sp_mcp_task *t = user;

    if (t->status == SP_MCP_TASK_INPUT_REQUIRED)
        sp_mcp_task_changed(t, SP_MCP_TASK_WORKING);
}

static void on_started(void *user, int session_id)
{
    struct sp_mcp_task *t = user;

    t->session_id = session_id; /* a second attempt has another */
}

static const struct sp_mcp_run_ops run_ops = {
    .done = on_done, .question = on_question, .withdrawn = on_withdrawn, .started = on_started};

void sp_mcp_task_stop(struct sp_mcp_task *t)
{
    struct sp_manager *manager = t->all->caller->manager;

    if (t->run == NULL)
        return;
    sp_mcp_run_cancel(t->run);
    if (t->session_id != 0)
        sp_manager_terminate(manager, t->session_id, NULL, NULL);
    end(t, SP_MCP_TASK_CANCELLED);
}

bool sp_mcp_task_adopt(struct sp_mcp_call *c, int session_id)
{
    auto_buf struct sp_buf b = {0};
    struct sp_mcp_task *t = add_task(c->request.peer->caller);

    if (t == NULL)
        return false;
    t->session_id = session_id;
    t->elicits = c->elicits;
    t->run = c->run;
    if (!sp_mcp_task_add(&b, t, true)) {
        t->run = NULL;
        remove_task(t);
        return false;
    }
    c->run = NULL;
    sp_mcp_run_attach(t->run, &run_ops, t);
    sp_mcp_call_answer(c, "task", (struct sp_str){b.data, b.len});
    return true;
}

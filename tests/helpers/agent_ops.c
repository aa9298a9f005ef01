/* SPDX-License-Identifier: Apache-2.0 */
/* What the agent is ordered to do, and how it ended. */
#include <signal.h>
#include <stdlib.h>

#include "agent.h"
#include "base/auto.h"

static struct asked *add_asked(struct agent *a, struct sp_str id)
{
    struct asked *w = calloc(1, sizeof *w + id.n);

    if (w == NULL)
        abort();
    char *room = (char *)(w + 1);
    if (id.n != 0)
        memcpy(room, id.p, id.n);
    *w = (struct asked){.a = a, .next = a->asked, .id = {room, id.n}};
    a->asked = w;
    return w;
}

static void drop_asked(struct asked *w)
{
    struct asked **at = &w->a->asked;

    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    free(w);
}

static struct asked *find_asked(struct agent *a, struct sp_str id)
{
    for (struct asked *w = a->asked; w != NULL; w = w->next)
        if (sp_str_eq(w->id, id))
            return w;
    return NULL;
}

/* ---- how it ended ---- */

static void on_event(void *user, const struct sp_exec_event *e)
{
    (void)user;
    say_event(e);
}

static void on_reply(void *user, const struct sp_tool_reply *r)
{
    struct asked *w = user;

    say_reply(w->id, r);
    drop_asked(w);
}

static void on_plain_reply(void *user, const struct sp_reply *r)
{
    on_reply(user, &(struct sp_tool_reply){
                       .has_failed = r->fault != SP_FAULT_NONE, .text = r->text, .from = r});
}

static void on_done(void *user, bool was_done)
{
    struct asked *w = user;

    say_done(w->id, was_done);
    drop_asked(w);
}

static void on_ran(void *user, const struct sp_run_result *r)
{
    struct asked *w = user;

    say_run(w->id, r);
    drop_asked(w);
}

/* ---- reading an order ---- */

static struct sp_str str(struct agent *a, const char *key)
{
    const uint32_t t = sp_json_get(&a->json, 0, key);

    if (t == SP_JSON_NONE || sp_json_type(&a->json, t) != SP_JSON_STRING)
        return (struct sp_str){0};
    return sp_json_str(&a->json, t);
}

static int64_t num(struct agent *a, const char *key, int64_t otherwise)
{
    const uint32_t t = sp_json_get(&a->json, 0, key);
    int64_t v = otherwise;

    if (t != SP_JSON_NONE)
        (void)sp_json_i64(&a->json, t, &v);
    return v;
}

static bool flag(struct agent *a, const char *key)
{
    const uint32_t t = sp_json_get(&a->json, 0, key);

    return t != SP_JSON_NONE && sp_json_type(&a->json, t) == SP_JSON_TRUE;
}

static int process(struct agent *a)
{
    return (int)num(a, "process", 0);
}

/* ---- orders ---- */

static void op_call(struct agent *a)
{
    struct asked *w = add_asked(a, str(a, "id"));
    const struct sp_str turn = str(a, "turn");
    struct sp_err e = {0};

    if (sp_tools_call(a->manager, &a->o.tools, str(a, "tool"), w->id,
                      turn.p == NULL ? SP_STR("turn") : turn, str(a, "arguments"), on_reply, w,
                      &w->call, &e) < 0) {
        say_trouble("call", &e);
        drop_asked(w);
    }
}

/* What no tool can ask for. */
static void op_exec(struct agent *a)
{
    struct asked *w = add_asked(a, str(a, "id"));
    const struct sp_exec_request ask = {
        .call_id = w->id, .turn_id = SP_STR("turn"), .cmd = str(a, "cmd")};
    struct sp_err e = {0};

    if (sp_manager_exec(a->manager, &ask, on_plain_reply, w, &w->call, &e) < 0) {
        say_trouble("exec", &e);
        drop_asked(w);
    }
}

static void op_interrupt(struct agent *a)
{
    sp_manager_interrupt(a->manager);
}

static void op_cancel(struct agent *a)
{
    const struct asked *w = find_asked(a, str(a, "call"));

    say_done(str(a, "id"), w != NULL && sp_manager_cancel(a->manager, w->call));
}

static void op_terminate(struct agent *a)
{
    sp_manager_terminate(a->manager, process(a), on_done, add_asked(a, str(a, "id")));
}

static void op_terminate_all(struct agent *a)
{
    sp_manager_terminate_all(a->manager);
}

static void op_pause(struct agent *a)
{
    sp_manager_pause(a->manager, true);
}

static void op_unpause(struct agent *a)
{
    sp_manager_pause(a->manager, false);
}

static void op_list(struct agent *a)
{
    say_list(str(a, "id"), a->manager);
}

static void op_stats(struct agent *a)
{
    say_stats(str(a, "id"), a->manager);
}

static void op_schemas(struct agent *a)
{
    auto_buf struct sp_buf line = {0};

    if (!sp_buf_add_str(&line, SP_STR("{\"done\":")) || !sp_json_add_str(&line, str(a, "id")) ||
        !sp_buf_add_str(&line, SP_STR(",\"schemas\":")) ||
        !sp_tools_add_schemas(&line, &a->o.tools))
        abort();
    say(&line);
}

static void op_fail(struct agent *a)
{
    auto_buf struct sp_buf message = {0};
    const struct sp_str m = str(a, "message");

    if (m.p != NULL && !sp_buf_printf(&message, SP_STR_FMT, SP_STR_ARG(m)))
        abort();
    if (m.p != NULL && !sp_buf_add(&message, "", 1))
        abort();
    say_done(str(a, "id"), sp_manager_fail(a->manager, process(a), message.data));
}

/* A word, or a whole decision. */
static void op_decide(struct agent *a)
{
    struct sp_decision_text d;

    sp_decision_read(sp_json_raw(&a->json, 0), false, &d);
    d.decision.by = SP_DECIDER_USER;
    sp_approvals_decide(sp_manager_approvals(a->manager), (uint64_t)num(a, "question", 0),
                        &d.decision);
    sp_decision_text_done(&d);
}

static void op_close_stdin(struct agent *a)
{
    sp_manager_close_stdin(a->manager, process(a), on_done, add_asked(a, str(a, "id")));
}

static void op_resize(struct agent *a)
{
    sp_manager_resize(a->manager, process(a), (uint16_t)num(a, "rows", 24),
                      (uint16_t)num(a, "cols", 80), on_done, add_asked(a, str(a, "id")));
}

static void op_signal(struct agent *a)
{
    sp_manager_signal(a->manager, process(a), (int)num(a, "signal", SIGTERM), on_done,
                      add_asked(a, str(a, "id")));
}

/* argv or, run by a shell, cmd. */
static void op_run(struct agent *a)
{
    struct sp_str words[MAX_WORDS] = {SP_STR("/bin/bash"), SP_STR("-c"), str(a, "cmd")};
    const uint32_t list = sp_json_get(&a->json, 0, "argv");
    const struct sp_str cwd = str(a, "cwd");
    const int64_t timeout = num(a, "timeout_ms", 0);
    struct sp_env_request environ_ask = a->o.environ;
    uint32_t n = 3;
    struct sp_err e = {0};

    if (list != SP_JSON_NONE) {
        n = 0;
        for (uint32_t t = sp_json_first(&a->json, list); t != SP_JSON_NONE && n < MAX_WORDS;
             t = sp_json_next(&a->json, list, t))
            words[n++] = sp_json_str(&a->json, t);
    }
    environ_ask.plain = (struct sp_env_vars){0};
    struct asked *w = add_asked(a, str(a, "id"));
    const struct sp_run_request ask = {
        .launch = {.label = SP_STR("shell"),
                   .cwd = cwd.p == NULL ? sp_str_of(a->o.cwd) : cwd,
                   .argv = words,
                   .argc = n,
                   .environ = &environ_ask,
                   .policy = a->o.manager.policy},
        .timeout_ms = timeout < 0 ? SP_RUN_FOREVER : (uint64_t)timeout,
        .capture = flag(a, "full") ? SP_RUN_FULL_BUFFER : SP_RUN_SHELL_TOOL,
        .event = flag(a, "events") ? on_event : NULL,
        .call_id = w->id,
        .turn_id = SP_STR("turn"),
        .source = SP_SOURCE_USER_SHELL,
        .has_begin_and_end = flag(a, "whole"),
    };
    if (sp_run_start(a->backends[0], &ask, on_ran, w, &w->run, &e) < 0) {
        say_trouble("run", &e);
        drop_asked(w);
    }
}

static void op_run_cancel(struct agent *a)
{
    const struct asked *w = find_asked(a, str(a, "run"));

    if (w != NULL)
        sp_run_cancel(w->run);
}

static void op_quit(struct agent *a)
{
    sp_loop_stop(a->loop);
}

static const struct {
    const char *name;
    void (*fn)(struct agent *a);
} ops[] = {
    {"call", op_call},
    {"exec", op_exec},
    {"interrupt", op_interrupt},
    {"cancel", op_cancel},
    {"terminate", op_terminate},
    {"terminate_all", op_terminate_all},
    {"pause", op_pause},
    {"unpause", op_unpause},
    {"list", op_list},
    {"stats", op_stats},
    {"schemas", op_schemas},
    {"fail", op_fail},
    {"decide", op_decide},
    {"close_stdin", op_close_stdin},
    {"resize", op_resize},
    {"signal", op_signal},
    {"run", op_run},
    {"run_cancel", op_run_cancel},
    {"quit", op_quit},
};

void agent_obey(struct agent *a, char *line, size_t n)
{
    struct sp_err e = {0};

    if (sp_json_parse(&a->json, line, n, &e) < 0 || sp_json_type(&a->json, 0) != SP_JSON_OBJECT) {
        say_trouble("line", &e);
        return;
    }
    const struct sp_str op = str(a, "op");
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        if (sp_str_eq(op, sp_str_of(ops[i].name))) {
            ops[i].fn(a);
            return;
        }
    (void)sp_fail(&e, SP_E_NO_METHOD, 0, "there is no op `" SP_STR_FMT "`", SP_STR_ARG(op));
    say_trouble("op", &e);
}

/* ---- the end ---- */

void agent_drop_runs(struct agent *a)
{
    for (struct asked *w = a->asked; w != NULL; w = w->next)
        if (w->run != NULL)
            sp_run_free(w->run);
}

void agent_drop_asked(struct agent *a)
{
    while (a->asked != NULL)
        drop_asked(a->asked);
}

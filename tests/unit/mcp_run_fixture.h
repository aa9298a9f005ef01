/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_run_fixture: a server with callers over real processes, tools that do no more than a test
 * needs, and waiters that write down what they are told. Link with --wrap=sp_mcp_tool_find.
 */
#ifndef SP_MCP_RUN_FIXTURE_H
#define SP_MCP_RUN_FIXTURE_H

#include <stdio.h>

#include "base/auto.h"
#include "base/json.h"
#include "engine/local.h"
#include "mcp/mcp_run.h"
#include "mcp/tool.h"
#include "process_fixture.h"
#include "rules_fixture.h"

static struct sp_loop *loop;
static struct sp_backend *backend;
static struct sp_mcp *mcp;
static struct sp_mcp_caller *caller;
static struct sp_environment_spec place;
static struct sp_manager_options manager_options;
static struct sp_mcp_options mcp_options;
static struct sp_rules *rules;
static int fds_before;

/* ---- waiters ---- */

struct waiter {
    struct sp_mcp_run *run;
    char story[256]; /* "question withdrawn started done " */
    bool is_done, is_error;
    char text[4096], note[8192], structured[256];
    int session_id;
};

static bool is_calling; /* a function of run.h: nothing may be told from there */

static inline void tell(struct waiter *w, const char *what)
{
    assert_false(is_calling);
    assert_false(w->is_done);
    assert_true(strlen(w->story) + strlen(what) + 1 < sizeof w->story);
    (void)strcat(w->story, what);
    (void)strcat(w->story, " ");
}

static inline void copy_str(char *to, size_t size, struct sp_str from)
{
    (void)snprintf(to, size, "%.*s", (int)(from.n < size ? from.n : size - 1),
                   from.n == 0 ? "" : from.p);
}

static inline void on_done(void *user, const struct sp_mcp_result *r)
{
    struct waiter *w = user;

    tell(w, "done");
    w->is_done = true;
    w->is_error = r->is_error;
    w->run = NULL;
    copy_str(w->text, sizeof w->text, r->text);
    copy_str(w->note, sizeof w->note, r->note);
    copy_str(w->structured, sizeof w->structured, r->structured);
}

static inline void on_question(void *user)
{
    struct waiter *w = user;

    tell(w, "question");
    assert_non_null(sp_mcp_run_question(w->run));
}

static inline void on_withdrawn(void *user)
{
    tell(user, "withdrawn");
}

static inline void on_started(void *user, int session_id)
{
    struct waiter *w = user;

    tell(w, "started");
    w->session_id = session_id;
}

static const struct sp_mcp_run_ops waiter_ops = {
    .done = on_done, .question = on_question, .withdrawn = on_withdrawn, .started = on_started};

/* ---- tools ---- */

/* `run`: {"cmd":"...","yield":ms}. Somebody is asked about `nice`. */
static inline void on_reply(void *user, const struct sp_reply *reply)
{
    const struct sp_mcp_result r = {
        .is_error = reply->fault != SP_FAULT_NONE, .text = reply->text, .structured = SP_STR("{}")};

    sp_mcp_run_done(user, &r);
}

static inline int start_run(struct sp_mcp_run *r, struct sp_err *e)
{
    struct sp_exec_request ask = {.call_id = sp_str_of(r->call_id),
                                  .has_login = true,
                                  .waits_for_end = r->waits_for_end,
                                  .has_no_approver = r->has_no_approver};
    struct sp_json *j = &r->arguments.json;
    uint64_t yield_ms = 0;

    (void)sp_json_opt_str(j, 0, "cmd", &ask.cmd, e);
    (void)sp_json_opt_u64(j, 0, "yield", UINT32_MAX, &yield_ms, e);
    if (yield_ms != 0)
        ask.yield = (struct sp_yield_request){true, yield_ms};
    return sp_manager_exec(r->caller->manager, &ask, on_reply, r, &r->engine_call, e);
}

/* `wait`: ends when it is told to, or in a hurry. */
static unsigned waits_freed;

static inline void end_wait(struct sp_mcp_run *r)
{
    const struct sp_mcp_result result = {.text = SP_STR("waited"), .note = SP_STR("a note")};

    sp_mcp_run_done(r, &result);
}

static inline void on_end_wait(struct sp_deferred *d)
{
    end_wait(SP_CONTAINER(d, struct sp_mcp_run, deferred));
}

static inline void free_wait(struct sp_mcp_run *r)
{
    waits_freed++;
    free(r->data);
}

static inline int start_wait(struct sp_mcp_run *r, struct sp_err *e)
{
    r->data = malloc(1);
    if (r->data == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "wait");
    r->free_data = free_wait;
    r->hurry = end_wait;
    if (sp_str_eq(r->arguments.written, SP_STR("{\"now\":true}")))
        sp_loop_defer(loop, &r->deferred, on_end_wait);
    return 0;
}

static const struct sp_mcp_tool tools[] = {{.name = "run", .start = start_run},
                                           {.name = "wait", .start = start_wait}};

const struct sp_mcp_tool *__wrap_sp_mcp_tool_find(const struct sp_mcp *m, struct sp_str name);
const struct sp_mcp_tool *__wrap_sp_mcp_tool_find(const struct sp_mcp *m, struct sp_str name)
{
    (void)m;
    for (size_t i = 0; i < sizeof tools / sizeof tools[0]; i++)
        if (sp_str_eq(name, sp_str_of(tools[i].name)))
            return &tools[i];
    return NULL;
}

/* ---- the loop ---- */

static inline void stop_now(struct sp_timer *t)
{
    (void)t;
    sp_loop_stop(loop);
}

static inline void run_for(uint64_t ms)
{
    struct sp_timer tick = {0};
    struct sp_err e = {0};

    assert_true(sp_loop_timer(loop, &tick, test_now_ms() + ms, stop_now));
    if (sp_loop_run(loop, &e) < 0)
        fail_msg("%s", e.msg);
    sp_loop_cancel(loop, &tick);
}

#define until(condition)                                   \
    do {                                                   \
        const uint64_t end_ = test_now_ms() + DEADLINE_MS; \
        while (!(condition)) {                             \
            run_for(2);                                    \
            if (test_now_ms() >= end_)                     \
                fail_msg("%s never came", #condition);     \
        }                                                  \
    } while (0)

/* ---- calls ---- */

static inline int try_start(struct sp_mcp_caller *c, struct waiter *w, const char *tool,
                            const char *arguments, struct sp_err *e)
{
    auto_arguments struct sp_arguments parsed = {0};
    const struct sp_mcp_run_request ask = {.tool = sp_str_of(tool), .arguments = &parsed};
    const struct sp_str text = arguments[0] == 0 ? SP_STR("{}") : sp_str_of(arguments);

    *w = (struct waiter){0};
    int r = sp_arguments_parse(&parsed, text, e);
    if (r < 0)
        return r;
    is_calling = true;
    r = sp_mcp_run_start(c, &ask, &waiter_ops, w, &w->run, e);
    is_calling = false;
    return r;
}

static inline struct sp_mcp_run *start(struct waiter *w, const char *tool, const char *arguments)
{
    struct sp_err e = {0};

    if (try_start(caller, w, tool, arguments, &e) < 0)
        fail_msg("%s", e.msg);
    return w->run;
}

static inline void attach(struct waiter *w, struct sp_mcp_run *r)
{
    *w = (struct waiter){.run = r};
    is_calling = true;
    sp_mcp_run_attach(r, &waiter_ops, w);
    is_calling = false;
}

static inline void decide(struct sp_mcp_run *r, enum sp_decision_kind kind)
{
    const struct sp_decision d = {.kind = kind, .by = SP_DECIDER_USER};

    is_calling = true;
    sp_mcp_run_decide(r, &d);
    is_calling = false;
}

static inline struct sp_mcp_caller *hold(const char *identity)
{
    struct sp_mcp_caller *c = NULL;
    struct sp_err e = {0};

    if (sp_mcp_caller_hold(mcp, sp_str_of(identity), &c, &e) < 0)
        fail_msg("%s", e.msg);
    return c;
}

static const char nice_true[] = "{\"cmd\":\"nice true\"}";

static inline void await_question(const struct waiter *w)
{
    until(strstr(w->story, "question") != NULL);
}

static inline struct sp_mcp_run *start_asking(struct waiter *w, const char *arguments)
{
    struct sp_mcp_run *r = start(w, "run", arguments);

    await_question(w);
    return r;
}

/* ---- every test's beginning and end ---- */

static inline void make_server(void)
{
    struct sp_err e = {0};

    if (sp_mcp_new(&mcp_options, &mcp, &e) < 0)
        fail_msg("%s", e.msg);
    caller = hold("stdio");
}

static inline int begin_without_server(void **state)
{
    const struct sp_local_options o = {.program = getenv("SALLYPORT"), .cwd = "/"};
    struct sp_err e = {0};

    (void)state;
    fds_before = open_fds();
    if (sp_loop_new(&loop, &e) < 0 || sp_local_new(loop, &o, &backend, &e) < 0)
        return -1;
    place = (struct sp_environment_spec){.id = "local", .backend = backend, .cwd = "/"};
    manager_options = (struct sp_manager_options){.environments = &place,
                                                  .environment_count = 1,
                                                  .has_deterministic_ids = true,
                                                  .approvals.policy.kind = SP_APPROVAL_ON_REQUEST};
    rules = rules_of("prefix_rule(['nice'], 'prompt')\n");
    manager_options.approvals.rules = rules;
    mcp_options = (struct sp_mcp_options){.loop = loop, .manager = &manager_options};
    waits_freed = 0;
    return 0;
}

static inline int begin(void **state)
{
    const int r = begin_without_server(state);

    if (r == 0)
        make_server();
    return r;
}

static inline int end(void **state)
{
    (void)state;
    sp_mcp_free(mcp);
    mcp = NULL;
    sp_rules_unref(rules);
    sp_backend_free(backend);
    sp_loop_free(loop);
    assert_no_children();
    return open_fds() == fds_before ? 0 : -1;
}

#define mcp_test(f) cmocka_unit_test_setup_teardown(f, begin, end)

#endif

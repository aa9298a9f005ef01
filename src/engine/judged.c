/* SPDX-License-Identifier: Apache-2.0 */
/*
 * judged: see judged.h.
 */
#include "engine/judged.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/auto.h"

struct sp_judged {
    struct sp_backend *backend;
    struct sp_judged_ask ask; /* its strings live in the arena */
    struct sp_env_request environ;
    struct sp_arena keep;
    sp_run_fn *fn;
    void *user;
    struct sp_buf made; /* variables the plan judges with */
    struct sp_run_plan plan;
    struct sp_run *run; /* NULL: not running */
    struct sp_deferred later;
    bool is_cancelled;
    bool has_first;             /* the first attempt was denied; first is its result ... */
    struct sp_run_result first; /* ... and its output */
    struct sp_buf out, err, aggregated;
};

void sp_judged_free(struct sp_judged *j)
{
    if (j == NULL)
        return;
    sp_run_free(j->run);
    sp_loop_undefer(j->backend->loop, &j->later);
    sp_run_plan_done(&j->plan);
    sp_buf_done(&j->made);
    sp_buf_done(&j->out);
    sp_buf_done(&j->err);
    sp_buf_done(&j->aggregated);
    sp_arena_done(&j->keep);
    free(j);
}

/* Reports a result without a run. */
static void finish_judged(struct sp_judged *j, enum sp_run_kind kind, const struct sp_err *why)
{
    const struct sp_run_result r = {
        .kind = kind,
        .class = kind == SP_RUN_CANCELLED ? SP_RUN_OK : SP_RUN_ERROR,
        .exit_code = kind == SP_RUN_CANCELLED ? 1 : -1,
        .error = why,
    };

    j->fn(j->user, &r);
    sp_judged_free(j);
}

static void reject(struct sp_judged *j)
{
    const struct sp_buf *reason = &j->plan.reason;
    struct sp_err why = {0};

    (void)sp_fail(&why, SP_E_FAILED, 0, "%.*s", (int)reason->len,
                  reason->len == 0 ? "" : reason->data);
    if (j->plan.is_abort && j->ask.interrupt != NULL)
        j->ask.interrupt(j->user);
    if (!j->has_first) {
        finish_judged(j, SP_RUN_REJECTED, &why);
        return;
    }
    j->first.kind = SP_RUN_REJECTED;
    j->first.error = &why;
    j->fn(j->user, &j->first);
    sp_judged_free(j);
}

static void tell_notice(const struct sp_judged *j, const char *text)
{
    const struct sp_exec_event e = {.type = SP_EVENT_NOTICE,
                                    .call_id = j->ask.run.call_id,
                                    .exit_code = -1,
                                    .message = sp_str_of(text)};

    if (j->ask.run.event != NULL)
        j->ask.run.event(j->user, &e);
}

static bool copy_bytes(struct sp_buf *to, struct sp_str *bytes)
{
    if (!sp_buf_add_str(to, *bytes))
        return false;
    *bytes = sp_buf_str(to);
    return true;
}

/* Kept in case the retry is refused. Out of memory: the refusal is reported alone. */
static void keep_first(struct sp_judged *j, const struct sp_run_result *r)
{
    j->first = *r;
    j->first.denial = NULL;
    j->has_first = copy_bytes(&j->out, &j->first.out) && copy_bytes(&j->err, &j->first.err) &&
                   copy_bytes(&j->aggregated, &j->first.aggregated);
}

static bool ask_for_retry(struct sp_judged *j, const struct sp_run_result *r)
{
    const bool is_guess = r->denial == NULL || !r->denial->has_evidence;
    char text[128];

    if (j->is_cancelled || r->class != SP_RUN_DENIED || !sp_run_plan_can_retry(&j->plan, is_guess))
        return false;
    (void)snprintf(text, sizeof text, SP_RUN_PLAN_FAILED_NOTICE, r->exit_code);
    tell_notice(j, text);
    keep_first(j, r);
    return sp_run_plan_retry(&j->plan, is_guess);
}

static void go_on(struct sp_deferred *d);

/* A denial of the first attempt may lead to a retry; any other result is final. */
static void on_result(void *user, const struct sp_run_result *r)
{
    struct sp_judged *j = user;

    j->run = NULL; /* freed when this returns */
    if (ask_for_retry(j, r)) {
        sp_loop_defer(j->backend->loop, &j->later, go_on);
        return;
    }
    j->fn(j->user, r);
    sp_judged_free(j);
}

static void on_event(void *user, const struct sp_exec_event *ev)
{
    const struct sp_judged *j = user;

    j->ask.run.event(j->user, ev);
}

static void start_attempt(struct sp_judged *j)
{
    struct sp_run_ask ask = j->ask.run;
    struct sp_env_request environ = j->environ;
    struct sp_err e = {0};

    ask.event = ask.event == NULL ? NULL : on_event;
    ask.launch.environ = &environ;
    sp_job_apply_plan(&ask.launch, &j->plan);
    if (ask.launch.policy == NULL) { /* the sandbox's marks do not apply */
        environ.marks = (struct sp_env_vars){j->plan.free.marks, j->plan.free.mark_count};
        environ.permission_profile = (struct sp_str){0};
    }
    if (sp_run_start(j->backend, &ask, on_result, j, &j->run, &e) < 0)
        finish_judged(j, SP_RUN_FAILED, &e);
}

static void go_on(struct sp_deferred *d)
{
    struct sp_judged *j = SP_CONTAINER(d, struct sp_judged, later);

    if (j->is_cancelled) {
        finish_judged(j, SP_RUN_CANCELLED, NULL);
        return;
    }
    switch (j->plan.state) {
    case SP_RUN_PLAN_GO:
        if (j->plan.is_retry)
            tell_notice(j, SP_RUN_PLAN_RETRY_NOTICE);
        start_attempt(j);
        return;
    case SP_RUN_PLAN_ASKING:
        return;
    case SP_RUN_PLAN_FAILED:
        finish_judged(j, SP_RUN_FAILED, &j->plan.error);
        return;
    case SP_RUN_PLAN_REFUSED:
    case SP_RUN_PLAN_NEW:
        break;
    }
    reject(j);
}

static void on_decided(struct sp_run_plan *p)
{
    struct sp_judged *j = SP_CONTAINER(p, struct sp_judged, plan);

    sp_loop_defer(j->backend->loop, &j->later, go_on);
}

void sp_judged_cancel(struct sp_judged *j)
{
    j->is_cancelled = true;
    if (j->run != NULL)
        sp_run_cancel(j->run);
    else
        sp_loop_defer(j->backend->loop, &j->later, go_on);
}

/* ---- start ---- */

static bool keep_environ(struct sp_judged *j, const struct sp_env_request *from)
{
    struct sp_arena *k = &j->keep;
    struct sp_env_request *to = &j->environ;

    *to = *from;
    return sp_env_copy_request(k, from, to) && sp_env_copy_vars(k, from->plain, &to->plain) &&
           sp_env_copy_vars(k, from->marks, &to->marks) &&
           sp_arena_str(k, from->thread_id, &to->thread_id) &&
           sp_arena_str(k, from->session_id, &to->session_id) &&
           sp_arena_str(k, from->call_id, &to->call_id) &&
           sp_arena_str(k, from->permission_profile, &to->permission_profile);
}

static bool keep_ask(struct sp_judged *j, const struct sp_judged_ask *from)
{
    struct sp_arena *k = &j->keep;
    struct sp_start *l = &j->ask.run.launch;

    j->ask = *from;
    return sp_arena_str(k, from->run.input, &j->ask.run.input) &&
           sp_arena_str(k, l->label, &l->label) && sp_arena_str(k, l->cwd, &l->cwd) &&
           sp_arena_str(k, l->arg0, &l->arg0) && sp_arena_strs(k, l->argv, l->argc, &l->argv) &&
           sp_arena_str(k, from->run.call_id, &j->ask.run.call_id) &&
           sp_arena_str(k, from->run.turn_id, &j->ask.run.turn_id) &&
           sp_arena_str(k, from->environment, &j->ask.environment) &&
           sp_arena_str(k, from->justification, &j->ask.justification) &&
           sp_arena_text(k, from->policy_name, &j->ask.policy_name) &&
           keep_environ(j, from->run.launch.environ);
}

int sp_judged_start(struct sp_approvals *a, struct sp_backend *b, const struct sp_judged_ask *ask,
                    sp_run_fn *fn, void *user, struct sp_judged **ret, struct sp_err *e)
{
    if (ask->run.launch.argc == 0 || ask->run.launch.argv[0].n == 0)
        return sp_fail(e, SP_E_INVALID, 0, "command args are empty");

    struct sp_judged *j = calloc(1, sizeof *j);
    if (j == NULL)
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "run a command");
    j->backend = b;
    j->fn = fn;
    j->user = user;
    if (!keep_ask(j, ask)) {
        sp_judged_free(j);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "run a command");
    }
    const struct sp_start *l = &j->ask.run.launch;
    uint32_t count;
    const bool is_known = j->ask.is_local && sp_env_make(&j->environ, &j->made, &count, NULL) == 0;
    const struct sp_run_plan_ask plan = {
        .call_id = j->ask.run.call_id,
        .turn_id = j->ask.run.turn_id,
        .environment = j->ask.environment,
        .argv = {l->argv, l->argc},
        .cwd = l->cwd,
        .permissions = j->ask.permissions,
        .justification = j->ask.justification,
        .policy = ask->run.launch.policy, /* copied by the plan */
        .policy_name = j->ask.policy_name,
        .environ = {is_known ? j->made.data : NULL, is_known ? j->made.len : 0},
    };
    sp_run_plan_begin(&j->plan, a, &plan, on_decided);
    j->plan.ask.policy = NULL;
    sp_loop_defer(b->loop, &j->later, go_on);
    *ret = j;
    return 0;
}

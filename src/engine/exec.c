/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_command: from the ask to the answer, stage by stage (unified-exec.md 4.3). A stage does what
 * it can and says whether another one has begun; it is looked at again when something changes.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/auto.h"
#include "engine/exec_priv.h"

static struct sp_exec *exec_of(struct sp_call *c)
{
    return SP_CONTAINER(c, struct sp_exec, call);
}

/* ---- where it runs ---- */

static void on_facts(struct sp_backend_wait *w, const struct sp_backend_facts *facts,
                     const struct sp_err *e)
{
    struct sp_exec *x = SP_CONTAINER(w, struct sp_exec, facts_wait);
    struct sp_keep *k = &x->call.keep;

    x->has_facts = true;
    if (facts != NULL) {
        x->facts = *facts;
        if (!sp_keep_text(k, facts->shell_name, &x->facts.shell_name) ||
            !sp_keep_text(k, facts->shell_path, &x->facts.shell_path) ||
            !sp_keep_text(k, facts->cwd, &x->facts.cwd))
            (void)sp_fail(&x->unreachable, SP_E_SYSTEM, ENOMEM, "begin a command");
    } else {
        x->unreachable = *e;
    }
    sp_call_changed(&x->call);
}

static bool check(struct sp_exec *x)
{
    struct sp_err e;

    if (x->call.m->call_count > SP_CALLS_MAX) {
        (void)sp_fail(&e, SP_E_LIMIT, 0, "too many calls are waiting");
        sp_call_fail_create(&x->call, &e, 0);
        return false;
    }
    if (!sp_exec_check_ask(x))
        return false;
    if (sp_until_misuse(&x->call) != NULL) {
        sp_call_fault(&x->call, SP_FAULT_ARGUMENTS, "%s", sp_until_misuse(&x->call));
        return false;
    }
    x->stage = SP_EXEC_FACTS;
    x->facts_wait.fn = on_facts;
    sp_backend_ask_facts(x->environment->backend, &x->facts_wait);
    return true;
}

static bool await_facts(struct sp_exec *x)
{
    if (!x->has_facts)
        return false;
    x->stage = SP_EXEC_PREPARING;
    return true;
}

/* ---- may it run? ---- */

/* The answer is there. */
static void on_told(struct sp_run_plan *p)
{
    sp_call_changed(&SP_CONTAINER(p, struct sp_exec, plan)->call);
}

/* What programs are looked up with, and what code they load. Elsewhere that cannot be known. */
static bool make_environ(struct sp_exec *x, struct sp_str *ret)
{
    struct sp_exec_environ env;
    uint32_t count;

    if (x->facts.is_remote || x->patch.is_one)
        return true;
    if (!sp_exec_make_environ(x, &env))
        return false;
    if (sp_environ_make(&env.ask, &x->environ, &count, NULL) < 0)
        return true; /* the start will say why */
    *ret = (struct sp_str){x->environ.data, x->environ.len};
    return true;
}

static bool begin_plan(struct sp_exec *x)
{
    const struct sp_manager *m = x->call.m;
    struct sp_run_plan_ask ask = {
        .call_id = x->ask.call_id,
        .turn_id = x->ask.turn_id,
        .environment = sp_str_of(x->environment->id),
        .argv = {x->argv, x->argc},
        .command = x->ask.argc == 0 ? x->ask.cmd : (struct sp_str){0},
        .cwd = x->cwd,
        .is_tty = x->ask.is_tty,
        /* What a patch changes is known, and judged by that: it gets what was granted before, and
         * nobody would be asked for more. */
        .permissions = x->patch.is_one ? SP_PERMISSIONS_DEFAULT : x->ask.permissions,
        .additional = x->patch.is_one ? NULL : x->ask.additional,
        .justification = x->ask.justification,
        .prefix = {x->ask.prefix_rule, x->ask.prefix_rule_count},
        .policy = sp_environment_policy(x->environment),
        .policy_name = x->environment->policy_name,
        .policy_cwd = x->environment_cwd,
        .shell = x->shell.path,
        .changes = x->patch.is_one ? &x->patch.changes : NULL,
        .nobody_answers = x->ask.nobody_answers,
    };

    if (!sp_exec_say_env(x, &ask) || !make_environ(x, &ask.environ))
        return sp_exec_refuse_without_memory(x);
    sp_run_plan_begin(&x->plan, m->approvals, &ask, on_told);
    x->stage = SP_EXEC_ASKING;
    return true;
}

static bool intercept(struct sp_exec *x)
{
    const struct sp_manager *m = x->call.m;
    auto_buf struct sp_buf out = {0};

    if (m->ops.intercept == NULL || !m->ops.intercept(m->user, &x->ask, &out))
        return false;
    sp_call_answer_hook(&x->call, (struct sp_str){out.len == 0 ? "" : out.data, out.len}, 0, NULL);
    return true;
}

static bool prepare(struct sp_exec *x)
{
    struct sp_err e = {0};

    if (!sp_exec_check_facts(x) || !sp_exec_resolve(x))
        return false;
    if (sp_manager_reserve(x->call.m, &x->call.reserved_id, &e) < 0) {
        sp_call_fail_create(&x->call, &e, 0);
        return false;
    }
    if (intercept(x))
        return false;
    if (!sp_exec_find_patch(x))
        return false;
    if (x->patch.is_one) {
        x->stage = SP_EXEC_VERIFYING;
        return sp_exec_verify_patch(x);
    }
    return begin_plan(x);
}

static bool await_changes(struct sp_exec *x)
{
    if (!sp_exec_has_changes(x))
        return false;
    return begin_plan(x);
}

/* The attempt that was. If nothing of it was told yet, nothing ever is; else its end is. */
static void end_attempt(struct sp_process *p)
{
    if (p->has_begun)
        sp_manager_remove(p);
    else
        p->is_discarded = true;
}

static void discard_process(struct sp_exec *x)
{
    struct sp_process *p = x->call.process;

    if (p == NULL)
        return;
    x->call.process = NULL;
    p->initial = NULL;
    end_attempt(p);
    sp_process_changed(p);
}

static void tell_notice(const struct sp_exec *x, const char *text)
{
    const struct sp_exec_event e = {.type = SP_EVENT_NOTICE,
                                    .call_id = x->ask.call_id,
                                    .turn_id = x->ask.turn_id,
                                    .exit_code = -1,
                                    .message = sp_str_of(text)};

    sp_manager_event(x->call.m, &e);
}

bool sp_exec_ask_again(struct sp_exec *x, bool is_guess, int exit_code)
{
    char text[128];

    if (!sp_run_plan_can_retry(&x->plan, is_guess))
        return false;
    (void)snprintf(text, sizeof text, SP_RUN_PLAN_FAILED_NOTICE, exit_code);
    tell_notice(x, text);
    return sp_run_plan_retry(&x->plan, is_guess);
}

static void reject(struct sp_exec *x)
{
    struct sp_manager *m = x->call.m;
    const bool is_abort = x->plan.is_abort;
    auto_buf struct sp_buf reason = x->plan.reason;

    x->plan.reason = (struct sp_buf){0};
    if (x->call.process != NULL)
        end_attempt(x->call.process); /* its output is part of the answer */
    sp_call_fault(&x->call, SP_FAULT_REJECTED, "Failed to create unified exec process: %.*s",
                  (int)reason.len, reason.len == 0 ? "" : reason.data);
    if (is_abort)
        sp_manager_interrupt(m);
}

/* An attempt that was told has its id still: the next one has another. */
static bool reserve_again(struct sp_exec *x)
{
    struct sp_err e = {0};

    if (x->call.reserved_id != 0 || sp_manager_reserve(x->call.m, &x->call.reserved_id, &e) == 0)
        return true;
    sp_call_fail_create(&x->call, &e, 0);
    return false;
}

static bool await_decision(struct sp_exec *x)
{
    switch (x->plan.state) {
    case SP_RUN_PLAN_ASKING:
        return false;
    case SP_RUN_PLAN_GO:
        discard_process(x);
        if (x->plan.is_retry)
            tell_notice(x, SP_RUN_PLAN_RETRY_NOTICE);
        if (!reserve_again(x))
            return false;
        x->stage = x->patch.is_one ? SP_EXEC_PATCHING : SP_EXEC_SNAPSHOT;
        return !x->patch.is_one || sp_exec_apply_patch(x);
    case SP_RUN_PLAN_FAILED:
        discard_process(x);
        sp_call_fail_create(&x->call, &x->plan.error, 0);
        return false;
    case SP_RUN_PLAN_REFUSED:
    case SP_RUN_PLAN_NEW:
        break;
    }
    reject(x);
    return false;
}

/* ---- starting ---- */

static bool await_snapshot(struct sp_exec *x)
{
    if (!sp_exec_has_snapshot(x) || !sp_exec_launch(x))
        return false;
    x->stage = SP_EXEC_STARTING;
    return true;
}

static bool await_start(struct sp_exec *x)
{
    struct sp_process *p = x->call.process;

    if (p->refusal.code != SP_E_NONE) {
        const struct sp_err why = p->refusal;

        discard_process(x);
        sp_call_fail_create(&x->call, &why, sp_exec_alien_fds(x));
        return false;
    }
    if (p->life == SP_PROCESS_STARTING)
        return false;
    sp_call_collect(&x->call, p->start_ns, x->yield_ms);
    sp_until_begin(&x->call);
    x->early_ms = p->start_ms + SP_EARLY_MS;
    if (x->early_ms > x->call.deadline_ms)
        x->early_ms = x->call.deadline_ms;
    x->stage = SP_EXEC_EARLY;
    return true;
}

/* It counts as started: it is told, and kept before anybody waits for it. */
static void go_on(struct sp_exec *x)
{
    struct sp_call *c = &x->call;
    struct sp_process *p = c->process;

    x->stage = SP_EXEC_COLLECTING;
    c->is_due = false;
    if (!p->is_hidden)
        sp_process_begin(p);
    if (c->reserved_id == 0)
        return;
    if (!sp_process_has_exited(p))
        sp_manager_store(c->m, p);
    else if (c->m->options.remembers_ended)
        p->holds_id = true;
    else
        return;
    c->reserved_id = 0;
}

/* Of the signals one alone is a sandbox's, whatever was printed before (approvals.md 10.2). */
static bool can_be_denied(const struct sp_process *p)
{
    return p->is_code_known && p->exit.code > 0 && !sp_process_has_failed(p) &&
           p->sandbox != SP_JOB_SANDBOX_NONE && (p->exit.signal == 0 || p->exit.signal == SIGSYS);
}

static bool watch_early(struct sp_exec *x)
{
    struct sp_process *p = x->call.process;

    if (sp_process_has_exited(p) && can_be_denied(p)) {
        x->stage = SP_EXEC_STRAGGLING;
        return true;
    }
    if (sp_process_has_exited(p) || x->call.is_due || p->held.len >= SP_HELD_MAX ||
        sp_loop_now(x->call.m->loop) >= x->early_ms) {
        go_on(x);
        return true;
    }
    sp_call_wake_at(&x->call, x->early_ms);
    return false;
}

/* ---- denied ---- */

enum denial { NOT_DENIED, DENIED_BY_GUESS, DENIED };

static enum denial judge_denial(const struct sp_process *p)
{
    auto_buf struct sp_buf text = {0};

    if (sp_process_has_failed(p))
        return NOT_DENIED;
    if (sp_denied_judge(p->sandbox, &p->exit, SP_STR(""), SP_STR("")))
        return DENIED;
    (void)sp_headtail_add_raw(&p->pending, &text); /* no memory: then by what is known besides */
    return sp_denied_judge(p->sandbox, &p->exit, SP_STR(""),
                           (struct sp_str){text.len == 0 ? "" : text.data, text.len})
               ? DENIED_BY_GUESS
               : NOT_DENIED;
}

/* Whether the attempt was denied something, and a person is asked for another. What was typed into
 * it is gone: such a command is not repeated. */
static bool is_asked_again(struct sp_exec *x)
{
    struct sp_process *p = x->call.process;
    const enum denial denial =
        can_be_denied(p) && !p->was_typed_into ? judge_denial(p) : NOT_DENIED;

    if (denial == NOT_DENIED || !sp_exec_ask_again(x, denial == DENIED_BY_GUESS, p->exit.code))
        return false;
    x->call.is_collecting = false; /* its time does not count for the next one */
    x->call.shows_attempt = true;
    x->stage = SP_EXEC_ASKING;
    return true;
}

static bool await_stragglers(struct sp_exec *x)
{
    struct sp_process *p = x->call.process;
    const uint64_t due_ms = p->exited_ns / 1000000 + 1 + SP_STRAGGLER_MS;

    if (p->life != SP_PROCESS_CLOSED && !x->call.is_due && sp_loop_now(x->call.m->loop) < due_ms) {
        sp_call_wake_at(&x->call, due_ms);
        return false;
    }
    if (is_asked_again(x))
        return true;
    if (judge_denial(p) != NOT_DENIED)
        p->is_hidden = x->call.m->options.hides_denied_start;
    go_on(x);
    return true;
}

/* ---- answering ---- */

static bool collect(struct sp_exec *x)
{
    struct sp_call *c = &x->call;
    struct sp_process *p = c->process;

    if (!sp_call_is_done(c))
        return false;
    if (sp_process_has_failed(p)) {
        sp_manager_remove(p);
        sp_call_fault(c, SP_FAULT_FAILED, "Unified exec process failed: %s", p->failure.msg);
        return false;
    }
    if (sp_process_has_exited(p) && is_asked_again(x))
        return true;
    /* One that lost its entry while this waited is being ended: never an unknown id. */
    const bool is_alive = !sp_process_has_exited(p) && p->is_stored;
    if (!sp_call_answer(c, is_alive ? SP_ANSWER_RUNNING : SP_ANSWER_EXITED))
        sp_call_fault(c, SP_FAULT_FAILED,
                      "Unified exec process failed: no memory for the answer; poll again");
    return false;
}

/* ---- the whole ---- */

static bool (*const stages[SP_EXEC_STAGE_MAX])(struct sp_exec *x) = {
    [SP_EXEC_CHECKING] = check,          [SP_EXEC_FACTS] = await_facts,
    [SP_EXEC_PREPARING] = prepare,       [SP_EXEC_ASKING] = await_decision,
    [SP_EXEC_SNAPSHOT] = await_snapshot, [SP_EXEC_STARTING] = await_start,
    [SP_EXEC_EARLY] = watch_early,       [SP_EXEC_STRAGGLING] = await_stragglers,
    [SP_EXEC_COLLECTING] = collect,      [SP_EXEC_PATCHING] = sp_exec_await_patch,
    [SP_EXEC_VERIFYING] = await_changes,
};

void sp_exec_step(struct sp_call *c)
{
    struct sp_exec *x = exec_of(c);

    if (c->is_cancelled && !c->is_answered) {
        if (x->stage == SP_EXEC_ASKING && c->process != NULL)
            end_attempt(c->process); /* its output is part of the answer */
        else if (x->stage != SP_EXEC_COLLECTING)
            discard_process(x); /* a stored one is left alone */
        sp_call_abort(c);
    }
    while (!c->is_answered && stages[x->stage](x))
        ;
}

static void release(struct sp_call *c)
{
    struct sp_exec *x = exec_of(c);

    sp_backend_forget_facts(&x->facts_wait);
    sp_snapshots_forget(&x->snapshot_wait);
    sp_run_plan_done(&x->plan);
    sp_buf_done(&x->environ);
    sp_exec_patch_done(&x->patch);
    sp_shell_done(&x->shell);
    sp_environment_unref(x->environment);
    sp_grant_done(&x->grant);
}

static bool copy_ask(struct sp_exec *x, const struct sp_exec_ask *ask)
{
    struct sp_keep *k = &x->call.keep;

    x->ask = *ask;
    if (ask->additional != NULL) {
        if (!sp_profile_copy(&ask->additional->extra, &x->grant.extra))
            return false;
        x->ask.additional = &x->grant;
    }
    return sp_keep_str(k, ask->call_id, &x->ask.call_id) &&
           sp_keep_str(k, ask->turn_id, &x->ask.turn_id) && sp_keep_str(k, ask->cmd, &x->ask.cmd) &&
           sp_keep_strs(k, ask->argv, ask->argc, &x->ask.argv) &&
           sp_keep_str(k, ask->workdir, &x->ask.workdir) &&
           sp_keep_str(k, ask->shell, &x->ask.shell) &&
           sp_keep_str(k, ask->environment_id, &x->ask.environment_id) &&
           sp_keep_str(k, ask->justification, &x->ask.justification) &&
           sp_keep_strs(k, ask->prefix_rule, ask->prefix_rule_count, &x->ask.prefix_rule) &&
           sp_keep_vars(k, ask->env, &x->ask.env);
}

static bool copy_until(struct sp_exec *x, const struct sp_exec_ask *ask, struct sp_err *e)
{
    const int r = sp_until_copy(&x->call, ask->until, ask->until_count, e);

    x->ask.until = x->call.until == NULL ? NULL : x->call.until->items;
    x->ask.until_count = x->call.until == NULL ? 0 : x->call.until->count;
    return r == 0;
}

int sp_manager_exec(struct sp_manager *m, const struct sp_exec_ask *ask, sp_reply_fn *fn,
                    void *user, uint64_t *ret_call, struct sp_err *e)
{
    const int r = sp_manager_admit(m, e);

    if (r < 0)
        return r;
    struct sp_exec *x = calloc(1, sizeof *x);
    if (x == NULL || !copy_ask(x, ask) || !copy_until(x, ask, e)) {
        if (x != NULL) {
            sp_until_done(&x->call);
            sp_keep_done(&x->call.keep);
            sp_grant_done(&x->grant);
        }
        free(x);
        return sp_fail(e, SP_E_SYSTEM, ENOMEM, "begin a call");
    }
    x->call.is_exec = true;
    x->call.step = sp_exec_step;
    x->call.release = release;
    x->call.has_max_tokens = ask->has_max_tokens;
    x->call.max_tokens = ask->max_tokens;
    x->yield_ms = sp_yield_ms(ask->is_compat ? SP_YIELD_COMPAT : SP_YIELD_EXEC, ask->yield, 0);
    if (ask->waits_for_end)
        x->yield_ms = SP_YIELD_FOREVER;
    sp_call_begin(m, &x->call, fn, user);
    *ret_call = x->call.number;
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/exec_approve.h"

#include <stdio.h>
#include <string.h>

#include "base/auto.h"
#include "cli/approver_tty.h"
#include "engine/approver_program.h"

static void warn(void *user, const char *text)
{
    (void)user;
    (void)fprintf(stderr, "sallyport: %s\n", text);
}

int sp_exec_approver_open(const char *name, struct sp_loop *loop, struct sp_approver **ret,
                          struct sp_error *e)
{
    *ret = NULL;
    if (name == NULL)
        return sp_approver_tty_exists() ? sp_approver_tty_new(loop, ret, e) : 0;
    if (strcmp(name, "deny") == 0)
        return 0;
    if (strcmp(name, "terminal") == 0)
        return sp_approver_tty_new(loop, ret, e);
    if (strncmp(name, "program:", 8) == 0)
        return sp_approver_program_new(loop, name + 8, ret, e);
    return sp_fail(e, SP_E_INVALID, 0, "--approver: `%s` is not deny, terminal or program:PATH",
                   name);
}

int sp_exec_approve_open(struct sp_exec_approve *a, const struct sp_exec_approve_ask *ask,
                         struct sp_error *e)
{
    const struct sp_config_approvals_ask config_ask = {
        .policy = ask->policy, .cwd = ask->cwd, .files = ask->rules, .warn = warn};
    const char *approver = ask->approver != NULL ? ask->approver : ask->config->approver;
    int r = sp_config_approvals(ask->config, &config_ask, &a->found, e);

    a->carry = ask->carry;
    a->launch = ask->launch;
    a->environment = ask->environment;
    a->policy_name = ask->policy_name;
    if (r == 0)
        r = sp_exec_approver_open(approver, sp_carry_loop(ask->carry), &a->approver, e);
    if (r < 0)
        return r;
    a->found.options.loop = sp_carry_loop(ask->carry);
    a->found.options.approver = a->approver;
    a->found.options.warn = warn;
    return sp_approvals_new(&a->found.options, &a->approvals, e);
}

void sp_exec_approve_done(struct sp_exec_approve *a)
{
    sp_plan_done(&a->plan);
    sp_approvals_free(a->approvals);
    sp_approver_free(a->approver);
    sp_config_approvals_done(&a->found);
}

/* ---- the plan ---- */

static void on_told(struct sp_plan *p)
{
    sp_carry_wake(SP_CONTAINER(p, struct sp_exec_approve, plan)->carry);
}

static void begin(struct sp_exec_approve *a)
{
    const struct sp_launch *l = a->launch;
    const struct sp_plan_ask ask = {
        .call_id = SP_STR("exec"),
        .environment = sp_str_of(a->environment),
        .argv = {l->argv, l->argc},
        .cwd = l->cwd,
        .is_tty = l->is_tty,
        .policy = l->policy,
        .policy_name = a->policy_name,
    };

    sp_plan_begin(&a->plan, a->approvals, &ask, on_told);
}

enum sp_carry_leave sp_exec_approve_may_start(struct sp_exec_approve *a, struct sp_error *e)
{
    if (a->plan.state == SP_PLAN_NEW)
        begin(a);
    switch (a->plan.state) {
    case SP_PLAN_ASKING:
        return SP_CARRY_WAIT;
    case SP_PLAN_GO:
        a->launch->policy = sp_plan_is_confined(&a->plan) ? &a->plan.policy : NULL;
        return SP_CARRY_GO;
    case SP_PLAN_FAILED:
        *e = a->plan.error;
        return SP_CARRY_FAIL;
    case SP_PLAN_REFUSED:
    case SP_PLAN_NEW:
        break;
    }
    (void)sp_fail(e, SP_E_FAILED, 0, "%.*s", (int)a->plan.reason.len,
                  a->plan.reason.len == 0 ? "" : a->plan.reason.data);
    return SP_CARRY_NO;
}

bool sp_exec_approve_tries_again(struct sp_exec_approve *a, const struct sp_carry_result *r)
{
    return sp_plan_retry(&a->plan, !r->denial.has_evidence);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/exec_approve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "approve/approvers.h"
#include "base/auto.h"
#include "cli/approver_tty.h"
#include "cli/escape_text.h"

/* A file that was named and does not parse: nothing runs without its rules. */
static bool is_about_named(const struct sp_exec_approve *a, const char *text)
{
    for (size_t i = 0; a->rules != NULL && a->rules[i] != NULL; i++) {
        const size_t n = strlen(a->rules[i]);

        if (strncmp(text, a->rules[i], n) == 0 && text[n] == ':')
            return true;
    }
    return false;
}

static void warn(void *user, const char *text)
{
    struct sp_exec_approve *a = user;

    if (!a->is_open && a->bad_rules.code == SP_E_NONE && is_about_named(a, text))
        (void)sp_fail(&a->bad_rules, SP_E_INVALID, 0, "%s", text);
    else
        sp_plain_say("sallyport", text);
}

/* `client` in the configuration is for servers: alone it is as if nothing were configured. */
static bool names_only_client(char *const *words)
{
    return words != NULL && words[0] != NULL && words[1] == NULL && strcmp(words[0], "client") == 0;
}

static int open_approvers(struct sp_exec_approve *a, const struct sp_exec_approve_ask *ask,
                          struct sp_err *e)
{
    static const char *const terminal[] = {"terminal", NULL};
    struct sp_approvers_ask asked = {
        .loop = sp_carry_loop(ask->carry),
        .words = ask->approvers,
        .choices = "deny, terminal or program:PATH",
        .open_terminal = sp_approver_tty_new,
        .timeout_ms = a->found.options.timeout_ms,
    };

    if (asked.words == NULL && !names_only_client(ask->config->approvers)) {
        asked.words = (const char *const *)ask->config->approvers;
        asked.is_configured = true;
    }
    if (asked.words == NULL && sp_approver_tty_exists())
        asked.words = terminal;
    int r = sp_approvers_open(&asked, &a->approvers, e);
    if (r < 0)
        return sp_wrap(e, asked.is_configured ? "`approver` of the configuration" : "--approver");
    return a->approvers == NULL ? 0 : sp_approvers_chain(a->approvers, NULL, &a->approver, e);
}

static int find_shell(struct sp_shell *ret, struct sp_err *e)
{
    auto_free char *account = NULL;
    const int r = sp_shell_of_account(&account, e);
    const struct sp_shell_places places = {.account_shell = account, .path = getenv("PATH")};

    return r < 0 ? r : sp_shell_of_user(&places, ret, e);
}

int sp_exec_approve_open(struct sp_exec_approve *a, const struct sp_exec_approve_ask *ask,
                         struct sp_err *e)
{
    const struct sp_config_approvals_ask config_ask = {
        .policy = ask->policy, .cwd = ask->cwd, .files = ask->rules, .warn = warn, .user = a};

    a->rules = ask->rules;
    int r = sp_config_approvals(ask->config, &config_ask, &a->found, e);
    if (r == 0 && a->bad_rules.code != SP_E_NONE) {
        *e = a->bad_rules;
        r = -(int)e->code;
    }
    if (r == 0)
        sp_judge_tell_doubtful(a->found.options.rules, ask->launch->policy, warn, a);
    a->is_open = true;
    a->is_local = ask->cwd != NULL;
    a->carry = ask->carry;
    a->launch = ask->launch;
    a->environment = ask->environment;
    a->policy_name = ask->policy_name;
    if (r == 0)
        r = open_approvers(a, ask, e);
    if (r == 0 && ask->cwd != NULL)
        r = find_shell(&a->shell, e);
    if (r == 0)
        r = sp_hooks_open(&a->hooks, sp_carry_loop(ask->carry), ask->config->permission_hooks,
                          ask->config->reviewer, &a->found.options, e);
    if (r < 0)
        return r;
    a->found.options.loop = sp_carry_loop(ask->carry);
    a->found.options.approver = a->approver;
    a->found.options.timeout_ms = sp_approvers_timeout_ms(a->approvers);
    a->found.options.warn = warn;
    a->found.options.user = a;
    (void)snprintf(a->call_id, sizeof a->call_id, "exec-%d", (int)getpid());
    return sp_approvals_new(&a->found.options, &a->approvals, e);
}

void sp_exec_approve_done(struct sp_exec_approve *a)
{
    sp_run_plan_done(&a->plan);
    sp_buf_done(&a->made);
    sp_approvals_free(a->approvals);
    sp_approver_free(a->approver);
    sp_approvers_free(a->approvers);
    sp_hooks_done(&a->hooks);
    sp_config_approvals_done(&a->found);
    sp_shell_done(&a->shell);
}

/* ---- the plan ---- */

static void on_told(struct sp_run_plan *p)
{
    sp_carry_wake(SP_CONTAINER(p, struct sp_exec_approve, plan)->carry);
}

static void begin(struct sp_exec_approve *a)
{
    const struct sp_launch *l = a->launch;
    uint32_t count;
    const bool is_known = a->is_local && sp_environ_make(l->environ, &a->made, &count, NULL) == 0;
    const struct sp_run_plan_ask ask = {
        .call_id = sp_str_of(a->call_id),
        .environment = sp_str_of(a->environment),
        .argv = {l->argv, l->argc},
        .cwd = l->cwd,
        .is_tty = l->is_tty,
        .policy = l->policy,
        .policy_name = a->policy_name,
        .shell = a->shell.path,
        .environ = {is_known ? a->made.data : NULL, is_known ? a->made.len : 0},
    };

    sp_run_plan_begin(&a->plan, a->approvals, &ask, on_told);
}

static void apply(struct sp_exec_approve *a)
{
    sp_launch_apply(a->launch, &a->plan);
    if (!a->plan.is_free || a->plan.free.mark_count == 0)
        return;
    a->environ = *a->launch->environ;
    a->environ.marks = (struct sp_environ_vars){a->plan.free.marks, a->plan.free.mark_count};
    a->launch->environ = &a->environ;
}

enum sp_carry_permission sp_exec_approve_may_start(struct sp_exec_approve *a, struct sp_err *e)
{
    if (a->plan.state == SP_RUN_PLAN_NEW)
        begin(a);
    switch (a->plan.state) {
    case SP_RUN_PLAN_ASKING:
        return SP_CARRY_WAIT;
    case SP_RUN_PLAN_GO:
        if (a->plan.is_retry)
            sp_plain_say("sallyport", SP_RUN_PLAN_RETRY_NOTICE);
        apply(a);
        return SP_CARRY_GO;
    case SP_RUN_PLAN_FAILED:
        *e = a->plan.error;
        return SP_CARRY_FAIL;
    case SP_RUN_PLAN_REFUSED:
    case SP_RUN_PLAN_NEW:
        break;
    }
    (void)sp_fail(e, SP_E_FAILED, 0, "refused"); /* the plan's reason may be longer than this */
    return SP_CARRY_NO;
}

struct sp_str sp_exec_approve_reason(const struct sp_exec_approve *a)
{
    return (struct sp_str){a->plan.reason.len == 0 ? "" : a->plan.reason.data, a->plan.reason.len};
}

bool sp_exec_approve_tries_again(struct sp_exec_approve *a, const struct sp_carry_result *r)
{
    const bool is_guess = !r->denial.has_evidence;
    char text[128];

    if (!sp_run_plan_can_retry(&a->plan, is_guess))
        return false;
    (void)snprintf(text, sizeof text, SP_RUN_PLAN_FAILED_NOTICE, r->exit.code);
    sp_plain_say("sallyport", text);
    return sp_run_plan_retry(&a->plan, is_guess);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec_approve: the judgement of one command of `sallyport exec` (approvals.md): before it starts,
 * and once more if its sandbox denied it something.
 */
#ifndef SP_CLI_EXEC_APPROVE_H
#define SP_CLI_EXEC_APPROVE_H

#include "approve/hooks.h"
#include "approve/run_plan.h"
#include "cli/carry.h"
#include "config/config_approvals.h"
#include "engine/shell.h"

struct sp_exec_approve {
    struct sp_config_approvals found;
    struct sp_approvers *approvers; /* NULL: nobody answers */
    struct sp_approver *approver;   /* all of them */
    struct sp_hooks hooks;
    struct sp_approvals *approvals;
    struct sp_run_plan plan;
    struct sp_carry *carry;
    struct sp_launch *launch;
    const char *environment, *policy_name;
    struct sp_shell shell; /* whose scripts are read; none where it is another host's */
    char call_id[32];
    const char *const *rules;
    struct sp_err bad_rules;       /* of a file that was named */
    struct sp_environ_ask environ; /* of a run without its sandbox */
    struct sp_buf made;            /* the environment, as the plan sees it */
    bool is_open, is_local;
};

struct sp_exec_approve_ask {
    const struct sp_config *config;
    const char *policy;           /* --approve; NULL: as configured */
    const char *const *rules;     /* --rules; NULL at the end */
    const char *const *approvers; /* --approver; NULL: as configured, else the terminal if there is
                                     one */
    const char *cwd;              /* here; NULL: it runs elsewhere */
    const char *environment;
    const char *policy_name;
    struct sp_carry *carry;
    struct sp_launch *launch; /* which is changed to what the plan says */
};

/* *a is zero, and to be ended also after a failure. */
int sp_exec_approve_open(struct sp_exec_approve *a, const struct sp_exec_approve_ask *ask,
                         struct sp_err *e);
void sp_exec_approve_done(struct sp_exec_approve *a); /* before the carry */

/* As the carry's options have them. */
enum sp_carry_permission sp_exec_approve_may_start(struct sp_exec_approve *a, struct sp_err *e);
/* Why it said no. */
struct sp_str sp_exec_approve_reason(const struct sp_exec_approve *a);
bool sp_exec_approve_tries_again(struct sp_exec_approve *a, const struct sp_carry_result *r);

#endif

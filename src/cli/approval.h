/* SPDX-License-Identifier: Apache-2.0 */
/*
 * approval: who decides whether commands of `exec`, `mcp` and `serve` run: the policy and the
 * rules, the hooks, and the approvers that answer questions, from the options and the
 * configuration.
 */
#ifndef SP_CLI_APPROVAL_H
#define SP_CLI_APPROVAL_H

#include "approve/approver_program.h"
#include "approve/approvers.h"
#include "cli/options.h"
#include "config/config_approvals.h"

/* --approve, --rules and --approver. */
struct sp_cli_approval_flags {
    const char *policy;
    struct sp_option_list rules, approvers;
};
/* Parts of initialisers: NOLINTBEGIN(bugprone-macro-parentheses) */
#define SP_CLI_APPROVAL_OPTIONS(type, member, approve_help, rules_help, approver_help)  \
    SP_OPT_STRING(type, member.policy, "approve", "POLICY", approve_help),              \
        SP_OPT_LIST(type, member.rules, "rules", "FILE",                                \
                    "rules besides those of the usual places (repeatable)" rules_help), \
        SP_OPT_LIST(type, member.approvers, "approver", "WHO", approver_help)
/* NOLINTEND(bugprone-macro-parentheses) */

struct sp_cli_approval_options {
    struct sp_loop *loop;
    const struct sp_config *config;
    const struct sp_cli_approval_flags *flags;
    const char *cwd; /* rules of its trusted projects are read; NULL: of none */
    /* Commands run in this sandbox: rules files that they may write are warned of. NULL: none. */
    const struct sp_policy *policy;
    void (*warn)(void *user, const char *text); /* NULL: sp_cli_warn */
    /* The rules files have changed; NULL: they are read once. See sp_config_approvals_options. */
    bool (*changed)(void *user, struct sp_rules *rules, struct sp_str fingerprint);
    void *user;
    struct sp_approvers_options who; /* without loop, words and timeout */
    bool asks_terminal;              /* if no approver is named and there is a terminal */
};

struct sp_cli_approval {
    struct sp_config_approvals found; /* its options have all but the approver */
    struct sp_approvers *approvers;   /* NULL: none answers */
    struct sp_hooks hooks;
};

/* *ret is zero before, and needs sp_cli_approval_done also after a failure. */
int sp_cli_approval_open(const struct sp_cli_approval_options *ask, struct sp_cli_approval *ret,
                         struct sp_err *e);
void sp_cli_approval_done(struct sp_cli_approval *a); /* after the approvals that use it */

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules_manage: `sallyport rules list`, `add` and `remove`, and the rules that are in force here.
 */
#ifndef SP_CLI_RULES_MANAGE_H
#define SP_CLI_RULES_MANAGE_H

#include "cli/cli.h"
#include "config/config_approvals.h"

/* The configuration and its rules, in the working directory. */
struct sp_rules_setting {
    struct sp_config config;
    struct sp_config_approvals approvals;
    char *cwd;
};
/* *ret is zero before, and needs sp_rules_setting_done even after a failure. warn: gets the errors
 * in rules of the configured directories, with user; NULL: they are ignored. */
int sp_rules_setting_read(const struct sp_config_options *o, struct sp_rules_setting *ret,
                          void (*warn)(void *user, const char *text), void *user, struct sp_err *e);
void sp_rules_setting_done(struct sp_rules_setting *s);
#define auto_rules_setting __attribute__((cleanup(sp_rules_setting_done)))

extern const struct sp_cli_command sp_command_rules_list, sp_command_rules_add,
    sp_command_rules_remove;

#endif

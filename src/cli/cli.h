/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli: the commands of the program. cmd_NAME.c has the options and the code of `sallyport NAME`,
 * and exports its struct sp_cli_command to main.c.
 */
#ifndef SP_CLI_CLI_H
#define SP_CLI_CLI_H

#include "base/error.h"
#include "base/str.h"
#include "cli/options.h"
#include "config/config.h"

enum { SP_EXIT_OK = 0, SP_EXIT_FAILED = 1, SP_EXIT_USAGE = 2, SP_EXIT_UNREACHABLE = 123 };

extern const struct sp_cli_command sp_command_serve, sp_command_exec, sp_command_mcp,
    sp_command_sandbox, sp_command_patch, sp_command_rules, sp_command_audit, sp_command_doctor,
    sp_command_ps, sp_command_logs, sp_command_attach, sp_command_kill, sp_command_rm,
    sp_command_config, sp_command_wait, sp_command_approvals, sp_command_connect;

/* All commands, in the order of `sallyport help`; NULL at the end. */
extern const struct sp_cli_command *const sp_verbs[];
/* NULL: there is none */
static inline const struct sp_cli_command *sp_verb_find(const char *name)
{
    for (size_t i = 0; sp_verbs[i] != NULL; i++)
        if (strcmp(name, sp_verbs[i]->name) == 0)
            return sp_verbs[i];
    return NULL;
}
/* Runs the command that the first argument names. Returns the exit status. */
int sp_verbs_run(int argc, char **argv);

/* `complete` is for the scripts that `completion` prints. */
extern const struct sp_cli_command sp_command_completion, sp_command_complete;

/* Internal: sallyport starts itself with these. */
extern const struct sp_cli_command sp_command_front, sp_command_cell, sp_command_http,
    sp_command_proxy, sp_command_resolver, sp_command_patch_inside, sp_command_doctor_inside;

/* Whether a server has started this internal command, which takes no arguments; else says so. */
bool sp_cli_has_parent(const char *name, int argc);

/* "sallyport: text" on stderr. Returns SP_EXIT_FAILED. */
int sp_cli_complain(const struct sp_err *e);

/* "sallyport: text" on stderr, escaped. */
void sp_cli_warn(void *user, const char *text);

/* Writes to stdout, and flushes it. Fails also if an earlier write has failed. */
int sp_cli_print(struct sp_str text, struct sp_err *e);

/* Arguments as an array, to be freed; NULL: out of memory. */
struct sp_str *sp_cli_words(char *const *words, uint32_t *ret_count);

/* Loads the configuration by --config and --set (NULL: neither is an option). Its warnings are
 * printed as "before: text", escaped for a terminal; before NULL: they are not printed. */
int sp_cli_load_config(const struct sp_config_options *o, const char *before, struct sp_config *ret,
                       struct sp_err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli: the commands of the program. cmd_NAME.c has the options and the code of `sallyport NAME`,
 * and exports its struct sp_cli_command to main.c.
 */
#ifndef SP_CLI_CLI_H
#define SP_CLI_CLI_H

#include "base/error.h"
#include "cli/options.h"

enum { SP_EXIT_OK = 0, SP_EXIT_FAILED = 1, SP_EXIT_USAGE = 2, SP_EXIT_UNREACHABLE = 123 };

extern const struct sp_cli_command sp_command_serve, sp_command_exec, sp_command_mcp,
    sp_command_sandbox, sp_command_patch, sp_command_rules, sp_command_audit, sp_command_doctor,
    sp_command_ps, sp_command_logs, sp_command_attach, sp_command_kill;

/* Internal: sallyport starts itself with these. */
extern const struct sp_cli_command sp_command_cell, sp_command_http, sp_command_patch_inside;

/* "Error: text" on stderr. Returns SP_EXIT_FAILED. */
int sp_cli_complain(const struct sp_err *e);

#endif

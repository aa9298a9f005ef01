/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli: the verbs, one file each. A verb gets its arguments without the program's name and its own,
 * and returns the exit status.
 */
#ifndef SP_CLI_CLI_H
#define SP_CLI_CLI_H

#include "base/error.h"

enum { SP_EXIT_OK = 0, SP_EXIT_FAILED = 1, SP_EXIT_USAGE = 2, SP_EXIT_UNREACHABLE = 123 };

int sp_cmd_serve(int argc, char **argv);
int sp_cmd_cell(int argc, char **argv);
int sp_cmd_http(int argc, char **argv);
int sp_cmd_exec(int argc, char **argv);
int sp_cmd_mcp(int argc, char **argv);
int sp_cmd_sandbox(int argc, char **argv);
int sp_cmd_patch(int argc, char **argv);
int sp_cmd_patch_inside(int argc, char **argv);
int sp_cmd_doctor(int argc, char **argv);
int sp_cmd_rules(int argc, char **argv);
int sp_cmd_audit(int argc, char **argv);
int sp_cmd_ps(int argc, char **argv);
int sp_cmd_logs(int argc, char **argv);
int sp_cmd_attach(int argc, char **argv);
int sp_cmd_kill(int argc, char **argv);

/* "Error: story" on stderr. Returns SP_EXIT_FAILED. */
int sp_cli_complain(const struct sp_err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mcp_options: the flags of `sallyport mcp`.
 */
#ifndef SP_CLI_MCP_OPTIONS_H
#define SP_CLI_MCP_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

struct sp_mcp_flags {
    const char *sandbox, *approve, *cwd, *token_file, *connect, *config_file, *structured_output;
    const char **rules, **approvers, **sets, **listen, **origins, **on; /* NULL at the end */
    size_t rule_count, approver_count, set_count, listen_count, origin_count, on_count;
    bool is_selftest, allows_remote, keeps_cancelled;
};

/* SP_EXIT_OK: go on; -1: help was given; else it was said what is wrong. *ret is zero, and to be
 * ended in any case. */
int sp_mcp_flags_read(int argc, char **argv, struct sp_mcp_flags *ret);
void sp_mcp_flags_done(struct sp_mcp_flags *f);

#endif

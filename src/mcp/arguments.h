/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arguments: what a model said, read into what the manager is asked (unified-exec.md 3.4). An ask
 * borrows from its arguments. Whether what was asked is allowed is the manager's business.
 */
#ifndef SP_MCP_ARGUMENTS_H
#define SP_MCP_ARGUMENTS_H

#include "mcp/slots.h"
#include "mcp/tools.h"

#define SP_COMPAT_MAX_MS 60000 /* what timeout_ms is cut to */

/* The old tool (3.9): without an id `input` is a command, with one it is typed. */
struct sp_compat_ask {
    const struct sp_str *input;
    uint32_t input_count;
    struct sp_str session_id; /* p NULL: none */
    struct sp_yield_ask timeout;
};

/* SP_E_INVALID or SP_E_MALFORMED with the reason, SP_E_SYSTEM without memory. *ret is then
 * unusable. call_id and turn_id stay the caller's to fill. */
int sp_arguments_exec(struct sp_arguments *a, struct sp_str text, const struct sp_tools_options *o,
                      struct sp_exec_ask *ret, struct sp_err *e);
int sp_arguments_write(struct sp_arguments *a, struct sp_str text, const struct sp_tools_options *o,
                       struct sp_write_ask *ret, struct sp_err *e);
/* The same with further members. Nobody needs `cmd` then: its p is NULL if it is not there. */
int sp_arguments_exec_with(struct sp_arguments *a, struct sp_str text,
                           const struct sp_tools_options *o, struct sp_slots more,
                           struct sp_exec_ask *ret, struct sp_err *e);
int sp_arguments_write_with(struct sp_arguments *a, struct sp_str text,
                            const struct sp_tools_options *o, struct sp_slots more,
                            struct sp_write_ask *ret, struct sp_err *e);
int sp_arguments_permissions(struct sp_arguments *a, struct sp_str text,
                             struct sp_permissions_ask *ret, struct sp_err *e);
int sp_arguments_compat(struct sp_arguments *a, struct sp_str text, struct sp_compat_ask *ret,
                        struct sp_err *e);

#endif

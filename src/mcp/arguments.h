/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arguments: the arguments of tools, read into what the manager is asked. An ask borrows from its
 * struct sp_arguments. Whether a request is permitted is decided by the manager.
 */
#ifndef SP_MCP_ARGUMENTS_H
#define SP_MCP_ARGUMENTS_H

#include "mcp/slots.h"
#include "mcp/tools.h"

#define SP_COMPAT_MAX_MS 60000 /* timeout_ms of unified_exec is cut to this */

/* unified_exec: without session_id `input` is a command, with it `input` is typed. */
struct sp_compat_ask {
    const struct sp_str *input;
    uint32_t input_count;
    struct sp_str session_id; /* p NULL: none */
    struct sp_yield_ask timeout;
};

/*
 * Parse and read a text, with errors worded like those of codex: SP_E_INVALID or SP_E_MALFORMED
 * with the reason, SP_E_SYSTEM. *ret is unusable after an error. The caller sets call_id and
 * turn_id.
 */
int sp_arguments_exec(struct sp_arguments *a, struct sp_str text, const struct sp_tools_options *o,
                      struct sp_exec_ask *ret, struct sp_err *e);
int sp_arguments_write(struct sp_arguments *a, struct sp_str text, const struct sp_tools_options *o,
                       struct sp_write_ask *ret, struct sp_err *e);
int sp_arguments_permissions(struct sp_arguments *a, struct sp_str text,
                             struct sp_permissions_ask *ret, struct sp_err *e);
int sp_arguments_compat(struct sp_arguments *a, struct sp_str text, struct sp_compat_ask *ret,
                        struct sp_err *e);
/* What `input` types: its elements, joined by a space where neither side has white space. */
bool sp_compat_add_input(struct sp_buf *out, const struct sp_str *input, uint32_t count);
/* Reads a session_id. SP_E_INVALID: `invalid session_id: ...`. */
int sp_compat_read_id(struct sp_str text, int *ret, struct sp_err *e);

/* Read parsed arguments with `more` members, for MCP: errors name the member. `cmd` is optional. */
int sp_arguments_exec_with(struct sp_arguments *a, const struct sp_tools_options *o,
                           struct sp_slots more, struct sp_exec_ask *ret, struct sp_err *e);
int sp_arguments_write_with(struct sp_arguments *a, const struct sp_tools_options *o,
                            struct sp_slots more, struct sp_write_ask *ret, struct sp_err *e);

/* `until`: the conditions that end a wait. */
struct sp_mcp_until {
    struct sp_until items[SP_UNTIL_COUNT_MAX]; /* patterns point into the arguments */
    uint32_t count;
};
/* Whether exec_command runs to completion: `until` is exactly {"exit":true}, no yield_time_ms. */
bool sp_mcp_is_to_completion(struct sp_str tool, struct sp_json *arguments);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reply: what came of a call, as its caller reads it (unified-exec.md 3.5 to 3.7).
 */
#ifndef SP_MCP_REPLY_H
#define SP_MCP_REPLY_H

#include "mcp/tools.h"

/* Appends the structured form of an answer (3.6). false: no room, and nothing was appended. */
bool sp_tools_add_structured(struct sp_buf *out, const struct sp_reply *r);

/* `unified_exec` answers in its own words (3.9). */
struct sp_compat_call {
    struct sp_str session_id; /* as the caller wrote it; empty: a new session */
    uint64_t cut_ms;          /* what was asked for, if it was more than there is; 0: it was not */
};
/* Appends the text of a reply to it. */
bool sp_compat_add_text(struct sp_buf *out, const struct sp_reply *r,
                        const struct sp_compat_call *c);
/* Whether that text tells of a failure. */
bool sp_compat_has_failed(const struct sp_reply *r);

/* Appends what `input` types: elements with one space between two that have none (3.9). */
bool sp_compat_add_input(struct sp_buf *out, const struct sp_str *input, uint32_t count);
/* The id in a text. SP_E_INVALID: `invalid session_id: ...`. */
int sp_compat_read_id(struct sp_str text, int *ret, struct sp_err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elicit: a question as a form that a host shows, and what its answer means (mcp-and-acp.md 2.7).
 */
#ifndef SP_MCP_ELICIT_H
#define SP_MCP_ELICIT_H

#include "approve/question.h"
#include "base/json.h"

/* Appends the params of `elicitation/create`: message and requestedSchema. with_mode: "mode":"form"
 * (since 2025-11-25). What is shown of the command is escaped (7.6). false: no room. */
bool sp_mcp_elicit_add(struct sp_buf *out, const struct sp_approval_question *q, bool with_mode);

/*
 * Reads {action, content} (any token; SP_JSON_NONE: there is none). false: that is no answer: ask
 * again. The amendment is the question's own.
 *
 * SP_DECISION_FAILED: no person answered. Hosts that run without a person say `cancel`, or
 * `decline` at once (is_too_quick).
 */
bool sp_mcp_elicit_read(struct sp_json *j, uint32_t answer, const struct sp_approval_question *q,
                        bool is_too_quick, struct sp_decision *ret);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elicit: an approval question as a form that a host shows, and the meaning of its answer.
 */
#ifndef SP_MCP_ELICIT_H
#define SP_MCP_ELICIT_H

#include "approve/question.h"
#include "base/json.h"

/* Appends the params of `elicitation/create`: message and requestedSchema. with_mode: "mode":"form"
 * (since 2025-11-25). The command is shown escaped. false: out of memory. */
bool sp_mcp_elicit_add(struct sp_buf *out, const struct sp_approval_question *q, bool with_mode);
/* The modern form: `{"approve_N":{"method":"elicitation/create","params":...}}`, and the answer to
 * approve_N in an object of answers, or SP_JSON_NONE. */
bool sp_mcp_elicit_add_input(struct sp_buf *out, const struct sp_approval_question *q,
                             uint64_t number);
uint32_t sp_mcp_elicit_find_input(struct sp_json *j, uint32_t responses, uint64_t number);

/*
 * Reads {action, content} from any token, or SP_JSON_NONE. false: not a valid answer; ask again. An
 * amendment in *ret is the question's own.
 *
 * SP_DECISION_FAILED: no person answered. Hosts that run without a person answer `cancel`, or
 * `decline` at once (is_too_quick).
 */
bool sp_mcp_elicit_read(struct sp_json *j, uint32_t answer, const struct sp_approval_question *q,
                        bool is_too_quick, struct sp_decision *ret);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * question_text: a question as a person reads it, at the terminal that runs the command or at
 * another one.
 *
 * Everything that could control the terminal or mislead the reader is escaped. A field of more than
 * 4096 bytes is shown without its middle, with a line that says so; the middles are a text of their
 * own.
 */
#ifndef SP_APPROVE_QUESTION_TEXT_H
#define SP_APPROVE_QUESTION_TEXT_H

#include "approve/question.h"

#define SP_FREE_WARNING "WITHOUT A SANDBOX"

#define SP_BOLD     "\x1b[1m"
#define SP_NOT_BOLD "\x1b[22m"

/* Appends the question to *out, and to *rest the parts that were left out. is_bold: the headline
 * and what runs without a sandbox are bold, by escape codes. false: no memory. */
bool sp_question_add_text(struct sp_buf *out, const struct sp_approval_question *q,
                          struct sp_buf *rest, bool is_bold);

/* Appends members for a page: headline, effect, rule and decisions, after a comma. user_dir: where
 * the rule would be kept; NULL: unknown. false: no memory. */
bool sp_question_add_card(struct sp_buf *b, const struct sp_approval_question *q,
                          const char *user_dir);

/* Whether the rule that is kept with an answer can be offered: one that is too long to be shown as
 * a whole cannot. */
bool sp_question_shows_rule(const struct sp_approval_question *q);

#endif

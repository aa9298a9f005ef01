/* SPDX-License-Identifier: Apache-2.0 */
/*
 * question_text: a question as a person at a terminal reads it. Nothing in it comes through as it
 * is: what could play with the terminal, or with the reader, is escaped.
 */
#ifndef SP_CLI_QUESTION_TEXT_H
#define SP_CLI_QUESTION_TEXT_H

#include "approve/question.h"

bool sp_question_text_add(struct sp_buf *out, const struct sp_question *q);
/* A rule is shown as a whole or not offered. */
bool sp_question_text_offers_rule(const struct sp_question *q);
/* What is said once it has been answered, with its line feed. */
struct sp_str sp_question_text_of(enum sp_decision_kind kind);

#endif

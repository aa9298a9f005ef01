/* SPDX-License-Identifier: Apache-2.0 */
/*
 * question_text: a question as a person at a terminal reads it, and what may be answered. Nothing
 * in it comes through as it is: what could control the terminal or mislead the reader is escaped.
 *
 * A field of more than SP_QUESTION_TEXT_MAX bytes is shown without its middle. Until the person has
 * seen the middle too, answers that keep anything, or that run a command without a sandbox, are not
 * offered. Those answers are words that end with Enter; the others are single keys.
 */
#ifndef SP_CLI_QUESTION_TEXT_H
#define SP_CLI_QUESTION_TEXT_H

#include "approve/question.h"

#define SP_QUESTION_TEXT_MAX 4096

/* The question, and in *rest what was left out of it: nothing if it stays empty. */
bool sp_question_text_add(struct sp_buf *out, const struct sp_approval_question *q,
                          struct sp_buf *rest);
/* The keys and words that count now; the last line is without a line feed. */
bool sp_question_text_add_keys(struct sp_buf *out, const struct sp_approval_question *q,
                               bool is_all_shown);

/* The decision that a key alone, or a word with Enter, stands for; SP_DECISION_MAX: none. */
enum sp_decision_kind sp_question_text_key(const struct sp_approval_question *q, bool is_all_shown,
                                           char key);
enum sp_decision_kind sp_question_text_word(const struct sp_approval_question *q, bool is_all_shown,
                                            struct sp_str word);
/* Whether such a word begins so. */
bool sp_question_text_may_become_word(const struct sp_approval_question *q, bool is_all_shown,
                                      struct sp_str begun);
#define SP_QUESTION_TEXT_MORE  'm' /* the key for the next page of what was left out */
#define SP_QUESTION_TEXT_ABORT 3   /* Ctrl-C */

/* A rule is shown as a whole or not offered. */
bool sp_question_text_offers_rule(const struct sp_approval_question *q);
/* What is said once it has been answered, with its line feed. */
struct sp_str sp_question_text_of(enum sp_decision_kind kind);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * question_text: a question as a person at a terminal reads it, and the answers to it. Everything
 * that could control the terminal or mislead the reader is escaped.
 *
 * A field of more than SP_QUESTION_TEXT_MAX bytes is shown without its middle. Until the person has
 * paged through the middle too, answers that keep anything, or that run a command without a
 * sandbox, are not offered. Those answers are words that end with Enter; the others are single
 * keys.
 */
#ifndef SP_CLI_QUESTION_TEXT_H
#define SP_CLI_QUESTION_TEXT_H

#include "approve/question.h"

#define SP_QUESTION_TEXT_MAX 4096

/* Appends the question to *out, and to *rest the parts that were left out. */
bool sp_question_text_add(struct sp_buf *out, const struct sp_approval_question *q,
                          struct sp_buf *rest);
/* Appends the keys and words that are offered; the last line has no line feed. */
bool sp_question_text_add_keys(struct sp_buf *out, const struct sp_approval_question *q,
                               bool is_all_shown);

/* The decision that a key alone, or a word with Enter, stands for; SP_DECISION_MAX: none. */
enum sp_decision_kind sp_question_text_key(const struct sp_approval_question *q, bool is_all_shown,
                                           char key);
enum sp_decision_kind sp_question_text_word(const struct sp_approval_question *q, bool is_all_shown,
                                            struct sp_str word);
/* Whether an offered word begins with `begun`. */
bool sp_question_text_may_become_word(const struct sp_approval_question *q, bool is_all_shown,
                                      struct sp_str begun);
#define SP_QUESTION_TEXT_MORE  'm' /* the key for the next page of *rest */
#define SP_QUESTION_TEXT_ABORT 3   /* Ctrl-C */

/* A rule that is too long to be shown as a whole is not offered. */
bool sp_question_text_offers_rule(const struct sp_approval_question *q);
/* The line that confirms an answer, with its line feed. */
struct sp_str sp_question_text_of(enum sp_decision_kind kind);

#endif

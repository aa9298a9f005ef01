/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plain: what others have written, for a terminal: it says what is there and does nothing.
 */
#ifndef SP_CLI_ESCAPE_TEXT_H
#define SP_CLI_ESCAPE_TEXT_H

#include "base/buf.h"

/* Appends text with control characters, marks that turn the direction of writing, and bytes that
 * are not UTF-8 as escapes: \n \t \x1b \u202e. false: no room. */
bool sp_plain_add(struct sp_buf *out, struct sp_str text);

/* What a stream has said so far and cannot be shown yet: the beginning of a character, or a CR. */
struct sp_plain_rest {
    char bytes[4];
    size_t n;
};
/* The same for the output of a program that comes in pieces: line ends and tabs stay. is_end: no
 * more will come. */
bool sp_plain_add_output(struct sp_buf *out, struct sp_str piece, bool is_end,
                         struct sp_plain_rest *rest);

/* The same as a word for a shell: quoted where it must be. */
bool sp_plain_add_word(struct sp_buf *out, struct sp_str word);
/* "before: text" on stderr, where others had a hand in the text. Its lines stay lines. */
void sp_plain_say(const char *before, const char *text);
/* The columns that plain text takes, one for each character. */
size_t sp_plain_width(struct sp_str plain);

#endif

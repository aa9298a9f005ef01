/* SPDX-License-Identifier: Apache-2.0 */
/*
 * escape_text: text of others (commands, servers, files) made safe for a terminal.
 */
#ifndef SP_CLI_ESCAPE_TEXT_H
#define SP_CLI_ESCAPE_TEXT_H

#include <stdio.h>

#include "base/buf.h"

/* Appends text with control characters, marks that change the writing direction, and bytes that are
 * not UTF-8 as escapes: \n \t \x1b \u202e. false: out of memory, or out->max is reached. */
bool sp_plain_add(struct sp_buf *out, struct sp_str text);

/* The end of a piece that cannot be shown yet: the beginning of a character, or a CR. */
struct sp_plain_rest {
    char bytes[4];
    size_t n;
};
/* The same for output of a program that arrives in pieces; line feeds and tabs stay. is_end: this
 * is the last piece. */
bool sp_plain_add_output(struct sp_buf *out, struct sp_str piece, bool is_end,
                         struct sp_plain_rest *rest);

/* The same as a word of a shell, quoted if necessary. */
bool sp_plain_add_word(struct sp_buf *out, struct sp_str word);
/* Prints it, escaped. */
void sp_plain_print(FILE *to, struct sp_str text);
/* Prints "before: text" on stderr, escaped; line feeds in the text stay. */
void sp_plain_say(const char *before, const char *text);
/* Whether colours and bold may go to it: a terminal that knows escapes, and NO_COLOR is not set. */
bool sp_plain_has_color(int fd);
/* The columns of escaped text: wide characters have two, combining ones none. */
size_t sp_plain_width(struct sp_str plain);
/* The beginning that has at most `width` columns. */
struct sp_str sp_plain_cut(struct sp_str plain, size_t width);

#endif

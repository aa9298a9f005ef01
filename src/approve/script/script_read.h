/* SPDX-License-Identifier: Apache-2.0 */
/*
 * script_read: the reader of shell grammar behind sp_script_literals. script_literals.c has
 * lists and simple commands, script_compound.c those that hold others, script_parts.c what is
 * inside of a word, script_here.c here-documents.
 */
#ifndef SP_APPROVE_SCRIPT_SCRIPT_READ_H
#define SP_APPROVE_SCRIPT_SCRIPT_READ_H

#include "approve/script/script_priv.h"

/* A here-document whose lines come after this one. */
struct sp_here_node {
    struct sp_str delimiter;
    bool strips_tabs, is_quoted;
    struct sp_here_node *next;
};

struct sp_reader {
    struct sp_segment_list *list;
    const char *p, *end;
    char *bytes; /* literal words, as long as the text at most */
    size_t used, size;
    struct sp_here_node *here_first, *here_last;
    unsigned depth;
    unsigned substitutions; /* how many "$(" are open */
    bool *is_too_deep;      /* something was left out */
    bool has_failed;        /* a syntax error, or no memory: nothing is read from here on */
};

struct sp_reader_word {
    const char *source; /* where it begins in the text */
    struct sp_str text; /* if it is literal */
    bool is_literal;
    bool is_quoted; /* in part at least */
};

static inline bool sp_reader_is_at_end(const struct sp_reader *r)
{
    return r->has_failed || r->p >= r->end;
}

/* The byte k after this one; 0: beyond the end. */
static inline char sp_reader_peek(const struct sp_reader *r, size_t k)
{
    return !r->has_failed && (size_t)(r->end - r->p) > k ? r->p[k] : 0;
}

static inline bool sp_reader_is_at(const struct sp_reader *r, const char *text)
{
    const size_t n = strlen(text);

    return !r->has_failed && (size_t)(r->end - r->p) >= n && memcmp(r->p, text, n) == 0;
}

/* false: too deep, and the reader has failed. Else sp_reader_leave comes after. */
bool sp_reader_enter(struct sp_reader *r);
void sp_reader_leave(struct sp_reader *r);

void sp_reader_skip_blanks(struct sp_reader *r);
/* Blanks, newlines with their here-documents, comments. */
void sp_reader_skip_lines(struct sp_reader *r);
/* A word that stands here bare and may be of the grammar; of no length: there is none. */
struct sp_str sp_reader_keyword(const struct sp_reader *r);
/* Whether it is this one; then the reader is behind it. */
bool sp_reader_accept(struct sp_reader *r, const char *keyword);

/* A whole command that begins with a keyword or a parenthesis. false: it does not. */
bool sp_reader_compound(struct sp_reader *r);
/* Behind NAME ( or function NAME: the parentheses, if there are any, and the body. */
void sp_reader_function(struct sp_reader *r);
/* One command of any kind. */
void sp_reader_command(struct sp_reader *r);
/* Commands up to what cannot begin or go on with one. true: there was at least one. */
bool sp_reader_list(struct sp_reader *r);

bool sp_reader_is_at_word(const struct sp_reader *r);
/* One word; the reader stands at its first byte. */
void sp_reader_word(struct sp_reader *r, struct sp_reader_word *ret);
/* Expansions of a text that is as if in double quotes, up to its end. */
void sp_reader_quoted_text(struct sp_reader *r);
/* Behind "((": whether this is arithmetic, for it ends with "))" and not with ") )". */
bool sp_reader_is_arithmetic(const struct sp_reader *r);
/* Behind "((", up to and with the "))". */
void sp_reader_arithmetic(struct sp_reader *r);
/* A text whose escapes are resolved, read on its own. */
void sp_reader_nested(struct sp_reader *r, struct sp_str text);

/* Behind "<<" or "<<-". */
void sp_reader_here(struct sp_reader *r, bool strips_tabs);
/* The newline here, and the documents that begin after it. */
void sp_reader_newline(struct sp_reader *r);

#endif

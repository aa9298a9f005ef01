/* SPDX-License-Identifier: Apache-2.0 */
/*
 * script_read: the reader of shell grammar behind sp_script_literals. script_commands.c has lists
 * and commands, script_word.c words and here-documents; they call each other.
 */
#ifndef SP_APPROVE_SCRIPT_SCRIPT_READ_H
#define SP_APPROVE_SCRIPT_SCRIPT_READ_H

#include "approve/script/script_priv.h"

/* A here-document that begins behind the end of this line. */
struct sp_here_node {
    struct sp_str delimiter;
    bool strips_tabs, is_quoted;
    struct sp_here_node *next;
};

struct sp_reader {
    struct sp_segment_list *list;
    const char *p, *end;
    char *bytes; /* literal words; never longer than the text */
    size_t used, size;
    struct sp_here_node *here_first, *here_last; /* documents behind the end of this line */
    unsigned depth;
    unsigned substitutions; /* number of open "$(" */
    bool *is_too_deep;      /* a part of the script was skipped */
    bool has_failed;        /* syntax error, or no memory: reading has ended */
};

struct sp_reader_word {
    const char *source; /* its first byte in the script */
    struct sp_str text; /* only valid if is_literal */
    bool is_literal;
    bool is_quoted; /* at least in part */
};

static inline bool sp_reader_is_at_end(const struct sp_reader *r)
{
    return r->has_failed || r->p >= r->end;
}

/* The k-th byte from here; 0: behind the end. */
static inline char sp_reader_peek(const struct sp_reader *r, size_t k)
{
    return !r->has_failed && (size_t)(r->end - r->p) > k ? r->p[k] : 0;
}

static inline bool sp_reader_is_at(const struct sp_reader *r, const char *text)
{
    const size_t n = strlen(text);

    return !r->has_failed && (size_t)(r->end - r->p) >= n && memcmp(r->p, text, n) == 0;
}

/* One level of nesting. false: too deep, has_failed is set. After true, sp_reader_leave is due. */
bool sp_reader_enter(struct sp_reader *r);
void sp_reader_leave(struct sp_reader *r);

/* Commands up to a closing keyword or byte. true: at least one, and no error. */
bool sp_reader_list(struct sp_reader *r);
/* Reads another text, such as the unescaped content of backquotes, for its commands. */
void sp_reader_nested(struct sp_reader *r, struct sp_str text);

bool sp_reader_is_at_word(const struct sp_reader *r);
/* Reads one word; r->p is at its first byte. */
void sp_reader_word(struct sp_reader *r, struct sp_reader_word *ret);
/* Reads a text to its end as if in double quotes, for its substitutions. */
void sp_reader_quoted_text(struct sp_reader *r);
/* Whether the "((" before r->p is closed by "))" and so begins arithmetic. */
bool sp_reader_is_arithmetic(const struct sp_reader *r);
/* From behind "((" to behind "))". */
void sp_reader_arithmetic(struct sp_reader *r);

void sp_reader_skip_blanks(struct sp_reader *r); /* and line continuations */
/* The delimiter of a here-document, behind "<<" or "<<-". */
void sp_reader_here(struct sp_reader *r, bool strips_tabs);
/* The newline here, and the documents that begin behind it. */
void sp_reader_newline(struct sp_reader *r);

#endif

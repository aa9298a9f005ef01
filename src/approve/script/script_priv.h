/* SPDX-License-Identifier: Apache-2.0 */
/*
 * script_priv: lists of words and segments that grow in an arena while a script is read.
 */
#ifndef SP_APPROVE_SCRIPT_SCRIPT_PRIV_H
#define SP_APPROVE_SCRIPT_SCRIPT_PRIV_H

#include "approve/script/script.h"
#include "base/arena.h"

#define SP_SCRIPT_MAX_DEPTH 64
#define SP_SCRIPT_MAX_BYTES (256 << 10) /* twice the longest argument of execve */

struct sp_word_node {
    struct sp_str text;
    struct sp_word_node *next;
};

struct sp_word_list {
    struct sp_word_node *first, *last;
    uint32_t count;
};

struct sp_segment_node {
    struct sp_words words;
    struct sp_segment_node *next;
};

struct sp_segment_list {
    struct sp_arena arena;
    struct sp_segment_node *first, *last;
    uint32_t count;
    bool has_no_memory;
};

/* Without memory both set has_no_memory; after that they do nothing. */
void sp_segment_list_add_word(struct sp_segment_list *l, struct sp_word_list *words,
                              struct sp_str text);
void sp_segment_list_add(struct sp_segment_list *l, const struct sp_word_list *words);
/* Moves the arena to *ret; if has_no_memory is set, frees it and fails. */
int sp_segment_list_finish(struct sp_segment_list *l, struct sp_segments *ret, struct sp_err *e);

static inline bool sp_is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Ends an unquoted word. */
static inline bool sp_is_meta(char c)
{
    return sp_is_blank(c) || c == '\n' || c == ';' || c == '&' || c == '|' || c == '(' ||
           c == ')' || c == '<' || c == '>';
}

#endif

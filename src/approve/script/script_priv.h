/* SPDX-License-Identifier: Apache-2.0 */
/*
 * script_priv: what the readers of scripts share: lists of words and of segments that grow in an
 * arena while a script is read.
 */
#ifndef SP_APPROVE_SCRIPT_SCRIPT_PRIV_H
#define SP_APPROVE_SCRIPT_SCRIPT_PRIV_H

#include "approve/script/script.h"
#include "base/arena.h"

#define SP_SCRIPT_MAX_DEPTH 64
#define SP_SCRIPT_MAX_BYTES (256 << 10) /* twice of what the kernel takes as one argument */

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

/* Both put a lack of memory down in the list, and then do nothing. */
void sp_segment_list_add_word(struct sp_segment_list *l, struct sp_word_list *words,
                              struct sp_str text);
void sp_segment_list_add(struct sp_segment_list *l, const struct sp_word_list *words);
/* Hands the arena and what it holds to *ret, or frees it if memory was short. */
int sp_segment_list_finish(struct sp_segment_list *l, struct sp_segments *ret, struct sp_err *e);

/* Reads a plain script (4.2). false: it is not one, and the list holds nothing of use. */
bool sp_script_read_plain(struct sp_segment_list *l, struct sp_str script);

/* What is behind the last slash. */
struct sp_str sp_base_name(struct sp_str path);

static inline bool sp_is_one_of(char c, const char *set)
{
    return c != 0 && strchr(set, c) != NULL;
}

static inline bool sp_is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Ends a word that is not quoted. */
static inline bool sp_is_meta(char c)
{
    return sp_is_blank(c) || c == '\n' || c == ';' || c == '&' || c == '|' || c == '(' ||
           c == ')' || c == '<' || c == '>';
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules_set: a set of rules from the inside.
 *
 * A set has an index over its parts: from a first word to the rules that begin with it, in the
 * order of their files. Every word of a rule has a number, so that a match is a comparison of
 * numbers; a word of a command that no rule knows has none. The rules of a managed part are a layer
 * of their own: what others say of a program's paths does not hide them.
 */
#ifndef SP_APPROVE_RULES_RULES_SET_H
#define SP_APPROVE_RULES_RULES_SET_H

#include "approve/rules/rules_priv.h"

struct sp_set_element {
    const struct sp_rules_element *words;
    uint32_t *numbers; /* of the words */
};

struct sp_set_rule {
    const struct sp_prefix_rule *say;
    const struct sp_set_element *rest;
    const char *file; /* of its part; NULL: none */
};

/* The rules of one first word: those from `first` on. */
struct sp_set_program {
    uint32_t first, count, longest; /* longest: words behind the first */
};

struct sp_set_layer {
    struct sp_rules_table programs; /* first word -> program */
    struct sp_set_program *items;
    struct sp_set_rule *rules; /* those of a program side by side */
    struct sp_rules_hosts hosts;
};

enum { SP_SET_OPEN, SP_SET_MANAGED, SP_SET_LAYERS };

struct sp_rules {
    unsigned refs;
    bool is_complete;
    uint32_t count; /* rules for commands and hosts */
    struct sp_rules_parts parts;
    struct sp_rules_table words;
    struct sp_set_layer layers[SP_SET_LAYERS];
    struct sp_arena arena;
};

/* Whether a rule allows exactly this prefix, whatever other rules say. */
bool sp_rules_do_allow(const struct sp_rules *r, struct sp_words words);

#endif

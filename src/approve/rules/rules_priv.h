/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules_priv: what the files of the rules share: the part (what one text says, immutable), the
 * maker (a list of parts), and the set (such a list with an index).
 */
#ifndef SP_APPROVE_RULES_RULES_PRIV_H
#define SP_APPROVE_RULES_RULES_PRIV_H

#include "approve/rules/rules.h"
#include "base/arena.h"

#define SP_RULES_MAX_BYTES (1 << 20) /* of one file */

/* ---- a table from texts to numbers ---- */

struct sp_rules_slot {
    struct sp_str key; /* borrowed; p NULL: the slot is free */
    uint32_t value;
};
struct sp_rules_table {
    struct sp_rules_slot *slots;
    uint32_t count, cap;
};
#define SP_RULES_NONE UINT32_MAX

uint32_t sp_rules_find(const struct sp_rules_table *t, struct sp_str key); /* or SP_RULES_NONE */
/* Where the value of the key is; a new key gets this value. NULL: no memory. */
uint32_t *sp_rules_put(struct sp_rules_table *t, struct sp_str key, uint32_t value);
void sp_rules_table_done(struct sp_rules_table *t);

/* ---- a part ---- */

struct sp_prefix_rule {
    struct sp_str first;
    const struct sp_words *rest; /* the alternatives of each word; shared by all rules of a call */
    uint32_t rest_count;
    enum sp_verdict verdict;
    struct sp_str justification; /* p NULL: none */
};

struct sp_host_executable {
    struct sp_str name;
    const struct sp_str *paths; /* normalised */
    uint32_t count;
};

struct sp_rules_part {
    unsigned refs;
    struct sp_arena arena;
    char *name;
    char *file; /* absolute path of its file; NULL: from no file */
    bool is_managed;
    bool is_amendment; /* one accepted rule, without a file */
    struct sp_prefix_rule *rules;
    struct sp_host_executable *hosts;
    struct sp_network_rule *network;
    struct sp_rules_entry *entries; /* one for each call */
    uint32_t entry_count, entry_cap;
    uint32_t rule_count, rule_cap, host_count, host_cap, network_count, network_cap;
};

struct sp_rules_part *sp_rules_part_new(const char *name); /* NULL: no memory */
void sp_rules_part_unref(struct sp_rules_part *p);

bool sp_rules_element_has(const struct sp_words *x, struct sp_str word);

struct sp_rules_parts {
    struct sp_rules_part **items;
    uint32_t count, cap;
};
bool sp_rules_parts_add(struct sp_rules_parts *l, struct sp_rules_part *p); /* takes a reference */
void sp_rules_parts_done(struct sp_rules_parts *l);

struct sp_rules_maker {
    struct sp_rules_parts parts;
    bool is_incomplete; /* a file did not parse: nothing runs unconfined until it is repaired */
};

/* ---- host executables: the last definition of a name wins ---- */

struct sp_rules_hosts {
    struct sp_rules_table table;
    const struct sp_host_executable **items;
    uint32_t cap;
};
bool sp_rules_hosts_add(struct sp_rules_hosts *h, const struct sp_rules_part *p);
void sp_rules_hosts_done(struct sp_rules_hosts *h);
/* Whether the normalised path may stand for its base name: yes unless a host_executable lists other
 * paths for that name. */
bool sp_rules_hosts_allow(const struct sp_rules_hosts *h, struct sp_str path);

/* ---- a set ----
 *
 * The index maps a first word to the rules that begin with it, in the order of their files. Every
 * word of a rule has a number, so matching compares numbers; a word of a command that no rule knows
 * has none. Managed rules are a layer of their own: a host_executable outside of it cannot hide
 * them.
 */

struct sp_set_element {
    const struct sp_words *words;
    uint32_t *numbers; /* of its words */
};

struct sp_set_rule {
    const struct sp_prefix_rule *say;
    const struct sp_set_element *rest;
    const char *file; /* of its part */
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
    struct sp_rules_parts parts;
    struct sp_rules_table words;
    struct sp_set_layer layers[SP_SET_LAYERS];
    struct sp_arena arena;
};

/* ---- other ---- */

/* Writes the absolute path without empty, `.` and `..` components into `out` (s.n + 1 bytes of
 * room); *ret_climbs: it had a `..`, so links may lead elsewhere. */
struct sp_str sp_rules_normal_path(struct sp_str s, char *out, bool *ret_climbs);

/* *.rules */
static inline bool sp_rules_is_file_name(const char *name)
{
    const size_t n = strlen(name);

    return n > strlen(".rules") && strcmp(name + n - strlen(".rules"), ".rules") == 0;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules_priv: what the files of the rules share: the part (what one text says, immutable), the
 * maker (a list of parts), the set (such a list with an index), and the reader of a text.
 */
#ifndef SP_APPROVE_RULES_RULES_PRIV_H
#define SP_APPROVE_RULES_RULES_PRIV_H

#include "approve/rules/rules.h"
#include "base/arena.h"

#define SP_RULES_MAX_BYTES  (1 << 20) /* of one file */
#define SP_RULES_MAX_DEPTH  64        /* brackets in brackets */
#define SP_RULES_MAX_MEMORY (64U << 20)
#define SP_RULES_MAX_WORDS  (1U << 20) /* of all rules and examples of one file together */
#define SP_RULES_MAX_WORK   200000000U /* comparisons for the examples of one file */

/* ---- a table from texts to numbers (rules.c) ---- */

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

struct sp_rules_element {
    const struct sp_str *words; /* alternatives */
    uint32_t count;
};

struct sp_prefix_rule {
    struct sp_str first;
    const struct sp_rules_element *rest; /* shared by all rules of a call */
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
    uint32_t rule_count, rule_cap, host_count, host_cap, network_count, network_cap;
};

struct sp_rules_part *sp_rules_part_new(const char *name); /* NULL: no memory */
/* Sets `file`; a relative path is relative to the working directory. false: no memory, or that
 * directory is gone. */
bool sp_rules_part_set_file(struct sp_rules_part *p, const char *path);
void sp_rules_part_unref(struct sp_rules_part *p);

bool sp_rules_element_has(const struct sp_rules_element *x, struct sp_str word);

struct sp_rules_parts {
    struct sp_rules_part **items;
    uint32_t count, cap;
};
bool sp_rules_parts_add(struct sp_rules_parts *l, struct sp_rules_part *p); /* takes a reference */
void sp_rules_parts_done(struct sp_rules_parts *l);

struct sp_rules_maker {
    struct sp_rules_parts parts;
    bool is_incomplete;
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
    const struct sp_rules_element *words;
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
    uint32_t count; /* rules for commands and hosts */
    struct sp_rules_parts parts;
    struct sp_rules_table words;
    struct sp_set_layer layers[SP_SET_LAYERS];
    struct sp_arena arena;
};

/* ---- a text that is read ---- */

enum sp_rules_type {
    SP_RULES_NOTHING, /* None */
    SP_RULES_BOOL,
    SP_RULES_INT, /* the value is not kept */
    SP_RULES_STRING,
    SP_RULES_LIST,
};

struct sp_rules_value {
    enum sp_rules_type type;
    struct sp_str text;                 /* STRING */
    const struct sp_rules_value *items; /* LIST */
    uint32_t count;
};
const char *sp_rules_type_name(enum sp_rules_type type); /* as messages name it */

/* The examples of one call, checked at the end of the file. */
struct sp_rules_examples {
    const char *at;
    uint32_t first_rule, rule_count; /* in the part */
    const struct sp_words *match, *not_match;
    uint32_t match_count, not_match_count;
};

struct sp_rules_reader {
    const char *name;
    struct sp_str text;
    const char *p; /* next byte */
    const struct sp_rules_parts *before;
    struct sp_rules_part *part;
    struct sp_arena scratch; /* values */
    struct sp_rules_table names;
    struct sp_rules_value *named; /* by the numbers of `names` */
    uint32_t named_cap;
    struct sp_rules_examples *examples;
    uint32_t example_count, example_cap;
    uint32_t depth;
    uint32_t words;
    size_t memory;
    /* Receives every error; NULL: stop at the first. */
    void (*tell)(void *user, const char *text);
    void *user;
    uint32_t faults;
    struct sp_err *e;
};

/* Functions that read return false after an error, which is in *r->e. */
SP_PRINTF(3, 4)
bool sp_rules_fail(struct sp_rules_reader *r, const char *at, const char *fmt, ...);
bool sp_rules_no_memory(struct sp_rules_reader *r);
/* Zeroed memory for values, and for what the part keeps, within SP_RULES_MAX_MEMORY; NULL:
 * refused. */
void *sp_rules_memory(struct sp_rules_reader *r, size_t count, size_t size);
void *sp_rules_part_memory(struct sp_rules_reader *r, size_t count, size_t size);

enum sp_rules_function { SP_RULES_PREFIX, SP_RULES_NETWORK, SP_RULES_HOST, SP_RULES_FUNCTIONS };
#define SP_RULES_MAX_PARAMETERS 5
/* SP_RULES_FUNCTIONS: no function has this name. */
enum sp_rules_function sp_rules_function(struct sp_str name);

struct sp_rules_call {
    enum sp_rules_function function;
    const char *at;                                        /* its first byte */
    struct sp_rules_value values[SP_RULES_MAX_PARAMETERS]; /* by parameter */
    bool is_given[SP_RULES_MAX_PARAMETERS];
    uint32_t positional;
};
/* SP_RULES_MAX_PARAMETERS: the function has no parameter of this name. */
uint32_t sp_rules_parameter(enum sp_rules_function f, struct sp_str name);
/* Checks the arguments and adds what the call says to the part. */
bool sp_rules_execute(struct sp_rules_reader *r, const struct sp_rules_call *c);
bool sp_rules_check_examples(struct sp_rules_reader *r);

/* ---- other ---- */

/* Writes the absolute path without empty, `.` and `..` components into `out` (s.n + 1 bytes of
 * room); *ret_climbs: it had a `..`, so links may lead elsewhere. */
struct sp_str sp_rules_normal_path(struct sp_str s, char *out, bool *ret_climbs);

/* Parses a text into a part. Its examples see the host executables of the parts in `before`. */
int sp_rules_read_part(const struct sp_rules_parts *before, const char *name, struct sp_str text,
                       void (*tell)(void *user, const char *text), void *user,
                       struct sp_rules_part **ret, struct sp_err *e);
/* Reads an open file; of one that is too large, more than SP_RULES_MAX_BYTES. 0 or an errno. */
int sp_rules_read_bytes(int fd, struct sp_buf *out);
/* *.rules */
bool sp_rules_is_file_name(const char *name);
/* Appends a network rule as one line, without LF. */
int sp_rules_add_network_line(struct sp_buf *line, struct sp_str host, struct sp_str protocol,
                              bool allows, struct sp_err *e);

#endif

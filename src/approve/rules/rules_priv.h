/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules_priv: what the files of the rules share.
 *
 * A text becomes a part: its rules, never changed afterwards, counted. A maker is a list of parts,
 * a set is such a list with an index over it.
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

/* ---- a table from texts to numbers ---- */

struct sp_rules_slot {
    struct sp_str key; /* borrowed; p NULL: free */
    uint32_t value;
};
struct sp_rules_table {
    struct sp_rules_slot *slots;
    uint32_t count, cap;
};
#define SP_RULES_NONE UINT32_MAX

uint32_t sp_rules_find(const struct sp_rules_table *t, struct sp_str key); /* or SP_RULES_NONE */
/* A new key gets the value; *ret is where its value is. NULL: no memory. */
uint32_t *sp_rules_put(struct sp_rules_table *t, struct sp_str key, uint32_t value);
void sp_rules_table_done(struct sp_rules_table *t);

/* ---- a part ---- */

struct sp_rules_element {
    const struct sp_str *words; /* any of these */
    uint32_t count;
};

struct sp_prefix_rule {
    struct sp_str first;
    const struct sp_rules_element *rest; /* one array for all rules of a call */
    uint32_t rest_count;
    enum sp_verdict verdict;
    struct sp_str justification; /* p NULL: none */
};

struct sp_host_executable {
    struct sp_str name;
    const struct sp_str *paths; /* normal forms */
    uint32_t count;
};

struct sp_rules_part {
    unsigned refs;
    struct sp_arena arena;
    char *name;
    char *file; /* the absolute path that it was read from; NULL: from no file */
    bool is_managed;
    bool is_amendment; /* one rule that was accepted, without a file */
    struct sp_prefix_rule *rules;
    struct sp_host_executable *hosts;
    struct sp_network_rule *network;
    uint32_t rule_count, rule_cap, host_count, host_cap, network_count, network_cap;
};

struct sp_rules_part *sp_rules_part_new(const char *name); /* NULL: no memory */
/* Where it was read; a relative path is taken from our working directory. false: no memory, or that
 * directory is gone. */
bool sp_rules_part_set_file(struct sp_rules_part *p, const char *path);
struct sp_rules_part *sp_rules_part_ref(struct sp_rules_part *p);
void sp_rules_part_unref(struct sp_rules_part *p);

/* Room for one more at the end of an array; NULL: no memory. */
void *sp_rules_grow(void *array, uint32_t count, uint32_t *cap, size_t size, void **ret_array);

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

/* ---- host executables: the last definition of a name counts ---- */

struct sp_rules_hosts {
    struct sp_rules_table table;
    const struct sp_host_executable **items;
    uint32_t cap;
};
bool sp_rules_hosts_add(struct sp_rules_hosts *h, const struct sp_rules_part *p);
void sp_rules_hosts_done(struct sp_rules_hosts *h);
/* Whether the path, in its normal form, may stand for its base name. */
bool sp_rules_hosts_allow(const struct sp_rules_hosts *h, struct sp_str path);

/* ---- a text that is read ---- */

enum sp_rules_type {
    SP_RULES_NOTHING, /* None */
    SP_RULES_BOOL,
    SP_RULES_INT, /* whose value nobody asks for */
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

/* A call whose examples wait for the end of the file. */
struct sp_rules_examples {
    const char *at;
    uint32_t first_rule, rule_count; /* in the part */
    const struct sp_words *match, *not_match;
    uint32_t match_count, not_match_count;
};

struct sp_rules_reader {
    const char *name;
    struct sp_str text;
    const char *p; /* what is next */
    const struct sp_rules_parts *before;
    struct sp_rules_part *part;
    struct sp_arena scratch; /* values */
    struct sp_rules_table names;
    struct sp_rules_value *named; /* by their numbers */
    uint32_t named_cap;
    struct sp_rules_examples *examples;
    uint32_t example_count, example_cap;
    uint32_t depth;
    uint32_t words;
    size_t memory;
    /* Whoever wants to hear of every fault; NULL: the first one is enough. */
    void (*tell)(void *user, const char *text);
    void *user;
    uint32_t faults;
    struct sp_err *e;
};

/* All that read return whether they could; if not, *r->e says why and where. */
SP_PRINTF(3, 4)
bool sp_rules_fail(struct sp_rules_reader *r, const char *at, const char *fmt, ...);
bool sp_rules_no_memory(struct sp_rules_reader *r);
/* Zeros for values, and for what the part keeps, within the file's budget; NULL: refused. */
void *sp_rules_memory(struct sp_rules_reader *r, size_t count, size_t size);
void *sp_rules_part_memory(struct sp_rules_reader *r, size_t count, size_t size);
/* So many words of rules and examples more. */
bool sp_rules_count_words(struct sp_rules_reader *r, const char *at, size_t n);

void sp_rules_skip_blanks(struct sp_rules_reader *r); /* inside brackets lines end nowhere */
bool sp_rules_at_end(const struct sp_rules_reader *r);
bool sp_rules_at_string(const struct sp_rules_reader *r);
bool sp_rules_read_string(struct sp_rules_reader *r, struct sp_str *ret);
bool sp_rules_read_name(struct sp_rules_reader *r, struct sp_str *ret); /* one is at p */
bool sp_rules_at_name(const struct sp_rules_reader *r);
bool sp_rules_read_value(struct sp_rules_reader *r, struct sp_rules_value *ret);
bool sp_rules_read_file(struct sp_rules_reader *r); /* all statements */
/* One more bracket is open. */
bool sp_rules_enter(struct sp_rules_reader *r, const char *at);

enum sp_rules_function { SP_RULES_PREFIX, SP_RULES_NETWORK, SP_RULES_HOST, SP_RULES_FUNCTIONS };
#define SP_RULES_MAX_PARAMETERS 5
/* Which function has this name; SP_RULES_FUNCTIONS: none. */
enum sp_rules_function sp_rules_function(struct sp_str name);

struct sp_rules_call {
    enum sp_rules_function function;
    const char *at;                                        /* where it begins */
    struct sp_rules_value values[SP_RULES_MAX_PARAMETERS]; /* by parameter */
    bool is_given[SP_RULES_MAX_PARAMETERS];
    uint32_t positional;
};
/* The parameter of this name; SP_RULES_MAX_PARAMETERS: there is none. */
uint32_t sp_rules_parameter(enum sp_rules_function f, struct sp_str name);
/* Checks the arguments and lays what they say into the part. */
bool sp_rules_carry_out(struct sp_rules_reader *r, const struct sp_rules_call *c);
bool sp_rules_check_examples(struct sp_rules_reader *r);

/* ---- small things ---- */

/* Unicode's White_Space at both ends, as the peer trims. */
struct sp_str sp_rules_trim(struct sp_str s);
bool sp_rules_has_blank(struct sp_str s);
/*
 * An absolute path without empty, `.` and `..` components into `out` (s.n + 1 bytes of room);
 * *ret_climbs: it had a `..`, so that links may lead elsewhere than it says.
 */
struct sp_str sp_rules_normal_path(struct sp_str s, char *out, bool *ret_climbs);
struct sp_str sp_rules_base_name(struct sp_str path);

/* A part of this text, after `before`; its examples hold. */
int sp_rules_read_part(const struct sp_rules_parts *before, const char *name, struct sp_str text,
                       void (*tell)(void *user, const char *text), void *user,
                       struct sp_rules_part **ret, struct sp_err *e);
/* The bytes of an open regular file; of a larger one than may be, one byte more. 0 or an errno. */
int sp_rules_read_bytes(int fd, struct sp_buf *out);
/* NULL: there is no part of this name. */
struct sp_rules_part *sp_rules_find_part(const struct sp_rules *r, const char *name);
uint32_t sp_rules_part_count(const struct sp_rules *r);
struct sp_rules_part *sp_rules_part_at(const struct sp_rules *r, uint32_t index);

#endif

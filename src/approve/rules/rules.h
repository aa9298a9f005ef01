/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules: which commands may run, need a question, or never run: the language of rule files, where
 * they are read, and what they say of a segment (one simple command of a script).
 *
 * A set of rules is immutable and reference-counted: a request keeps the set it began with.
 */
#ifndef SP_APPROVE_RULES_RULES_H
#define SP_APPROVE_RULES_RULES_H

#include "approve/script/script.h"

enum sp_verdict { SP_VERDICT_ALLOW, SP_VERDICT_PROMPT, SP_VERDICT_FORBIDDEN };
const char *sp_verdict_name(enum sp_verdict v); /* "allow", ... */

struct sp_rules;
struct sp_rules *sp_rules_ref(struct sp_rules *r);
void sp_rules_unref(struct sp_rules *r); /* NULL is fine */

/* ---- making a set ---- */

struct sp_rules_maker;
struct sp_rules_maker *sp_rules_maker_new(void); /* NULL: no memory */
void sp_rules_maker_free(struct sp_rules_maker *m);
/* Adds the rules of one text; `name` is for messages. All or nothing: after SP_E_INVALID
 * ("NAME:LINE:COLUMN: MESSAGE") the maker is unchanged. Examples see the host executables of the
 * texts that were added before. tell: hears of every error that can be told
 * apart, not just the first; NULL: the first is enough. */
int sp_rules_add_text(struct sp_rules_maker *m, const char *name, struct sp_str text,
                      void (*tell)(void *user, const char *text), void *user, struct sp_err *e);
/* The same; "failed to read rules file PATH" (SP_E_SYSTEM). */
int sp_rules_add_file(struct sp_rules_maker *m, const char *path,
                      void (*tell)(void *user, const char *text), void *user, struct sp_err *e);
/* The set so far; the maker can be used further. NULL: no memory. */
struct sp_rules *sp_rules_make(const struct sp_rules_maker *m);

/* The set with one more allow rule for an accepted amendment, or the set itself if it already
 * allows exactly that prefix; the caller owns a reference in both cases. The rule is first appended
 * to USER_DIR/rules/default.rules unless it is there: locked, atomic; user_dir NULL: it is not. r
 * may be NULL: an empty set. NULL: *e says why. */
struct sp_rules *sp_rules_with_prefix(struct sp_rules *r, const char *user_dir,
                                      struct sp_words prefix, struct sp_err *e);
/* The same with one more network rule. The last rule for a host wins. */
struct sp_rules *sp_rules_with_network(struct sp_rules *r, struct sp_str host,
                                       struct sp_str protocol, bool allows, struct sp_err *e);

/* The set with all amendments of `from` (NULL: none) added; in_doubt: marked incomplete, because
 * there may be newer rules. As above. */
struct sp_rules *sp_rules_renew(struct sp_rules *r, const struct sp_rules *from, bool in_doubt,
                                struct sp_err *e);

/* ---- asking a set ---- */

struct sp_rule_match {
    struct sp_words
        prefix; /* the words of the segment that the rule matched, in the rule's spelling */
    enum sp_verdict verdict;
    struct sp_str justification;    /* p NULL: none */
    struct sp_str resolved_program; /* p NULL: the name matched as it is */
    const char *file;               /* file of the rule; NULL: it is from no file */
    bool is_doubtful; /* ALLOW: a command may have written the file (set by sp_judge) */
};

struct sp_rule_matches {
    struct sp_rule_match *items;
    uint32_t count, cap;
    void *impl;
};
void sp_rule_matches_done(struct sp_rule_matches *m);

/* Appends all rules that match the segment, in the order of their files, managed rules last.
 * resolves_hosts: an absolute first word may stand for its base name. false: no memory. */
bool sp_rules_match(const struct sp_rules *r, struct sp_words segment, bool resolves_hosts,
                    struct sp_rule_matches *ret);
/* Whether a rule for this prefix, if it were in the set (NULL: an empty one), would match the
 * segment; an absolute first word may stand for its base name as above. */
bool sp_rules_would_match(const struct sp_rules *r, struct sp_words prefix,
                          struct sp_words segment);
bool sp_rules_are_complete(const struct sp_rules *r);
struct sp_rules_file {
    const char *name;
    uint32_t count;            /* of its rules */
    const char *allowing_file; /* its path if a rule allows a command; else NULL */
};
/* The texts of the set in their order. false: no such index. */
bool sp_rules_file(const struct sp_rules *r, uint32_t index, struct sp_rules_file *ret);

/* Appends a digest of the managed rules that does not depend on their order; nothing if there are
 * none. false: no memory. */
bool sp_rules_add_fingerprint(struct sp_buf *out, const struct sp_rules *r);

struct sp_network_rule {
    struct sp_str host;     /* normalised */
    struct sp_str protocol; /* http, https, socks5_tcp, socks5_udp */
    struct sp_str decision; /* allow, prompt, deny */
    struct sp_str justification;
    bool is_amendment; /* from an accepted amendment, not from a file */
};
/* In order; the last rule for a host wins. false: no such index. */
bool sp_rules_network(const struct sp_rules *r, uint32_t index, struct sp_network_rule *ret);

/* One call in a text: a rule as it is written. */
struct sp_rules_entry {
    enum { SP_RULES_PREFIX, SP_RULES_NETWORK, SP_RULES_PROGRAM } kind;
    struct sp_str decision;         /* allow, prompt, forbidden; of a host: allow, prompt, deny */
    const struct sp_words *pattern; /* PREFIX: of each word its alternatives */
    uint32_t count;
    struct sp_str host, protocol; /* NETWORK */
    struct sp_str program;        /* PROGRAM */
    struct sp_words paths;
    struct sp_str justification; /* p NULL: none */
    uint32_t line, last_line;    /* the first is 1 */
    size_t from, to;             /* its bytes in the text */
    /* Of the text: */
    const char *name, *file;
    bool is_managed;
};
/* All calls in the order of the texts. false: no such index. */
bool sp_rules_entry(const struct sp_rules *r, uint32_t index, struct sp_rules_entry *ret);

enum sp_matches_form {
    SP_MATCHES_LIST,         /* [{"prefixRuleMatch":{...}},...] */
    SP_MATCHES_CHECK,        /* as `rules check` prints it, with the strictest decision */
    SP_MATCHES_CHECK_PRETTY, /* the same, indented by two blanks a level */
};
bool sp_rule_matches_add_json(struct sp_buf *out, const struct sp_rule_matches *m,
                              enum sp_matches_form form);

/* ---- where rules come from ---- */

struct sp_rules_places {
    const char *system_dir; /* /etc/sallyport */
    const char *user_dir;   /* $SALLYPORT_HOME; NULL: none */
    /* The roots of trusted projects, the outermost first; NULL at the end, or NULL. Only the root
     * of a project has rules: commands write to directories further down. */
    const char *const *projects;
    bool ignores_user_and_project;
    const char *const *files; /* --rules; NULL at the end, or NULL */
};
/* Loads all places. A directory or file that cannot be read, that belongs neither to the user nor
 * to root, or that group or others may write, is an error, and so is one of `files` that does not
 * parse; any other that does not parse is a warning (each is passed to `warn`), and the set is
 * incomplete. `before` (may be NULL) is the previous set: any of these files keeps its version
 * there, with a warning. Errors then are only those that are not about the files, such as no memory
 * or no descriptors. */
int sp_rules_load(const struct sp_rules_places *places, struct sp_rules *before,
                  void (*warn)(void *user, const char *text), void *user, struct sp_rules **ret,
                  struct sp_err *e);

/* ---- amendments ---- */

/* Appends a rule to USER_DIR/rules/default.rules unless it is there: locked, atomic. */
int sp_rules_amend_network(const char *user_dir, struct sp_str host, struct sp_str protocol,
                           bool allows, struct sp_err *e);

/* ---- editing ---- */

/* A line for this rule, without LF. SP_E_INVALID: no such rule can be written. */
int sp_rules_add_prefix_line(struct sp_buf *line, struct sp_words prefix, struct sp_err *e);
int sp_rules_add_network_line(struct sp_buf *line, struct sp_str host, struct sp_str protocol,
                              bool allows, struct sp_err *e);

/* A rule that a person adds. */
struct sp_rules_addition {
    struct sp_words words;       /* count 0: a network rule */
    enum sp_verdict verdict;     /* of a network rule: ALLOW or FORBIDDEN */
    struct sp_str justification; /* p NULL: none */
    struct sp_str host, protocol;
};
/* Appends the rule to the file, or USER_DIR/rules/default.rules if `file` is NULL, unless it is
 * there. Only to a file that belongs to the user and parses with the rule; no link is followed.
 * *ret_path is the file, also after an error, if it is not NULL: the caller frees it. */
int sp_rules_edit_add(const char *user_dir, const char *file, const struct sp_rules_addition *a,
                      char **ret_path, uint32_t *ret_line, bool *ret_is_new, struct sp_err *e);
/* Removes the lines of the one rule of the file that `wants` picks; everything else stays as it is,
 * byte for byte. The new file takes the place of the old one in one step, with its mode and group.
 * Fails if none or several are picked, and if the rest would not parse. */
int sp_rules_edit_remove(const char *file,
                         bool (*wants)(const void *user, const struct sp_rules_entry *x),
                         const void *user, struct sp_err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules: which commands may run, need a question, or never run (approvals.md 5): the language, the
 * files, and what they say of a segment.
 *
 * A set of rules is immutable once it is made, and counted: a request keeps the one it began with.
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
/*
 * Adds the rules of one text; `name` is for messages. All or nothing: SP_E_INVALID with
 * "NAME:LINE:COLUMN: MESSAGE" (5.2, 5.3), and the maker is as before.
 */
int sp_rules_add_text(struct sp_rules_maker *m, const char *name, struct sp_str text,
                      struct sp_err *e);
/* "failed to read rules file PATH" (SP_E_SYSTEM), or as above. */
int sp_rules_add_file(struct sp_rules_maker *m, const char *path, struct sp_err *e);
/* The same, and every fault that can be told apart is told, not the first alone. */
int sp_rules_test_file(struct sp_rules_maker *m, const char *path,
                       void (*tell)(void *user, const char *text), void *user, struct sp_err *e);
/* One allow rule for this prefix, as an accepted amendment has it. */
int sp_rules_add_prefix(struct sp_rules_maker *m, struct sp_words prefix, struct sp_err *e);
/* Some file did not parse: nothing is free until it is repaired. */
void sp_rules_mark_incomplete(struct sp_rules_maker *m);
/* The set so far; the maker goes on and may be used again. NULL: no memory. */
struct sp_rules *sp_rules_make(const struct sp_rules_maker *m);

/*
 * The set with one more allow rule, for an amendment that was accepted, or the set itself if it
 * already allows exactly that prefix; in either case a reference of the caller's. r may be NULL: an
 * empty set. NULL: no memory.
 */
struct sp_rules *sp_rules_with_prefix(struct sp_rules *r, struct sp_words prefix, struct sp_err *e);
/* The same with one more rule for a host, which is then the last of that host. */
struct sp_rules *sp_rules_with_network(struct sp_rules *r, struct sp_str host,
                                       struct sp_str protocol, bool allows, struct sp_err *e);

/* The set with the amendments of either kind that `from` has; as above. */
struct sp_rules *sp_rules_with_amendments(struct sp_rules *r, const struct sp_rules *from,
                                          struct sp_err *e);
/* The same rules, but incomplete: there may be others by now. As above. */
struct sp_rules *sp_rules_in_doubt(struct sp_rules *r, struct sp_err *e);

/* ---- asking a set ---- */

struct sp_rule_match {
    struct sp_words prefix; /* what of the segment the rule matched, in the rule's words */
    enum sp_verdict verdict;
    struct sp_str justification;    /* p NULL: none */
    struct sp_str resolved_program; /* p NULL: the name matched as it is */
    const char *file;               /* where the rule was read; NULL: it is from no file */
    bool is_doubtful;               /* ALLOW, judged: a command may have written it */
};

struct sp_rule_matches {
    struct sp_rule_match *items;
    uint32_t count, cap;
    void *impl;
};
void sp_rule_matches_done(struct sp_rule_matches *m);

/*
 * Appends all rules that match the segment (5.4, steps 1 and 2), in the order of their files.
 * resolves_hosts: an absolute first word may stand for its base name. false: no memory.
 */
bool sp_rules_match(const struct sp_rules *r, struct sp_words segment, bool resolves_hosts,
                    struct sp_rule_matches *ret);
/* Whether a rule for this prefix, were it in the set (NULL: an empty one), would match the segment;
 * an absolute first word may stand for its base name as above. */
bool sp_rules_would_match(const struct sp_rules *r, struct sp_words prefix,
                          struct sp_words segment);
bool sp_rules_are_complete(const struct sp_rules *r);
uint32_t sp_rules_count(const struct sp_rules *r);
/* The texts it is made of, in their order, each with its number of rules. false: no such index. */
bool sp_rules_file(const struct sp_rules *r, uint32_t index, const char **ret_name,
                   uint32_t *ret_count);

/* The same: the file that it was read from if it allows a command, else NULL. */
bool sp_rules_allowing_file(const struct sp_rules *r, uint32_t index, const char **ret);

/* Appends what tells these managed rules from others, whatever their order; nothing if there are
 * none. false: no memory. */
bool sp_rules_add_fingerprint(struct sp_buf *out, const struct sp_rules *r);

struct sp_network_rule {
    struct sp_str host;     /* normalised */
    struct sp_str protocol; /* http, https, socks5_tcp, socks5_udp */
    struct sp_str decision; /* allow, prompt, deny */
    struct sp_str justification;
    bool is_amendment; /* of this conversation, rather than of a file */
};
/* In their order; the last of a host wins. false: there is no such index. */
bool sp_rules_network(const struct sp_rules *r, uint32_t index, struct sp_network_rule *ret);
/*
 * A host without port, brackets and final dots, in lower case, into `out` (s.n bytes of room).
 * NULL: *ret has it; otherwise what is wrong, in words.
 */
const char *sp_rules_normal_host(struct sp_str s, char *out, struct sp_str *ret);

/* Appends what `rules check` prints for one command (5.5). No shell is read here. */
bool sp_rules_add_check(struct sp_buf *out, const struct sp_rules *r, struct sp_words command,
                        bool resolves_hosts, bool is_pretty);
/* The list of matches in it, compact: [{"prefixRuleMatch":{...}},...]. */
bool sp_rule_matches_add_json(struct sp_buf *out, const struct sp_rule_matches *m);

/* ---- where rules come from (5.1) ---- */

struct sp_rules_places {
    const char *system_dir; /* /etc/sallyport */
    const char *user_dir;   /* $SALLYPORT_HOME; NULL: none */
    /* The roots of trusted projects, the outermost first; NULL at the end, or NULL. The rules of a
     * project are those of its root alone: a folder further down is written by commands. */
    const char *const *projects;
    bool ignores_user_and_project;
    const char *const *files; /* --rules; NULL at the end, or NULL */
};
/*
 * Reads all there is. A folder or file that cannot be read is an error. One that does not parse is
 * a warning (told one by one), and the set is incomplete.
 *
 * `before` (may be NULL) is what was read last: of a file that does not parse its version in there
 * stays, and so it does of one that cannot be read, or can no longer: a warning then. An error is
 * left for what has nothing to do with the files, such as no memory or no descriptors.
 */
int sp_rules_load(const struct sp_rules_places *places, struct sp_rules *before,
                  void (*warn)(void *user, const char *text), void *user, struct sp_rules **ret,
                  struct sp_err *e);

/* Whether there is nothing, or no more than what a sandbox puts where a protected name is missing:
 * an empty directory that is nobody's to write. It comes and goes with commands. */
bool sp_rules_is_nothing(const char *path);

/* ---- amendments (5.6, 5.7) ---- */

/* Appends an allow rule to USER_DIR/rules/default.rules: locked, once, atomic. */
int sp_rules_amend_prefix(const char *user_dir, struct sp_words prefix, struct sp_err *e);
int sp_rules_amend_network(const char *user_dir, struct sp_str host, struct sp_str protocol,
                           bool allows, struct sp_err *e);
/* Prefixes that would allow anything: never offered. */
bool sp_rules_is_too_wide(struct sp_words prefix);

#endif

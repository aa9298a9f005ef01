/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules_watch: the rules of all places, loaded again when their files change.
 *
 * A burst of changes is one change: the rules are loaded a moment after the first. A file that does
 * not parse or cannot be read keeps its previous version, and until it is repaired nothing runs
 * unconfined. Each warning is given once, and again when its file changes and is still wrong. If
 * the kernel cannot watch the files, they are read once, with a warning.
 */
#ifndef SP_APPROVE_RULES_RULES_WATCH_H
#define SP_APPROVE_RULES_RULES_WATCH_H

#include "approve/rules/rules.h"
#include "os/loop.h"

#define SP_RULES_WATCH_MAX 512 /* directories and files that are watched */

struct sp_rules_watch;

struct sp_rules_watch_options {
    struct sp_loop *loop;
    const struct sp_rules_places *places; /* copied */
    /* The set to use from now on; borrowed. fingerprint: of its managed rules. false: out of
     * memory; the call is repeated later. Never called from within sp_rules_watch_new. */
    bool (*changed)(void *user, struct sp_rules *rules, struct sp_str fingerprint);
    void (*warn)(void *user, const char *text); /* may be NULL */
    void *user;
};

/* Loads the rules for the first time: errors are those of sp_rules_load. *ret_rules and
 * *ret_fingerprint are borrowed, as in `changed`. */
int sp_rules_watch_new(const struct sp_rules_watch_options *o, struct sp_rules_watch **ret,
                       struct sp_rules **ret_rules, struct sp_str *ret_fingerprint,
                       struct sp_err *e);
void sp_rules_watch_free(struct sp_rules_watch *w); /* before its loop; NULL is fine */

#endif

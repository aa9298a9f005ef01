/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profile_priv: what the files behind profile.h and resolve.h share.
 */
#ifndef SP_SANDBOX_PROFILE_PRIV_H
#define SP_SANDBOX_PROFILE_PRIV_H

#include "sandbox/profile.h"

/* What a profile says about the whole disk, whatever its words turn out to mean (2.4). */
struct sp_reach {
    bool is_open; /* not restricted at all */
    bool is_full_read, is_full_write, wants_minimal, has_denied_reads;
};
bool sp_profile_reach(const struct sp_profile *p, struct sp_reach *ret); /* false: no memory */

/* deny over write over read, for entries that name the same place */
int sp_access_rank(enum sp_access a);

/* The same place in the same words. */
bool sp_entry_names_same(const struct sp_entry *a, const struct sp_entry *b);

/* Adds a copy, unchecked. false: no memory */
bool sp_profile_append(struct sp_profile *p, const struct sp_entry *entry);

/* Keeps the first of equal entries, and the order. false: no memory, nothing has changed */
bool sp_profile_drop_repeats(struct sp_profile *p);

/* A text of a client as an error shows it: "%.*s%s" with SP_SHOWN(text). The end of a long one
 * gives way, not what is wrong with it. */
int sp_shown_bytes(const char *text);
#define SP_SHOWN(text) sp_shown_bytes(text), (text), (text)[sp_shown_bytes(text)] != 0 ? "…" : ""

#define auto_profile __attribute__((cleanup(sp_profile_done)))

#endif

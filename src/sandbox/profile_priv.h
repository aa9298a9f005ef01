/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profile_priv: shared by profile.c, grant.c and resolve.c.
 */
#ifndef SP_SANDBOX_PROFILE_PRIV_H
#define SP_SANDBOX_PROFILE_PRIV_H

#include "sandbox/profile.h"

/* What a profile allows on the whole disk, independent of the paths behind its keywords. */
struct sp_reach {
    bool is_open; /* no restrictions */
    bool is_full_read, is_full_write, wants_minimal, has_denied_reads;
};
bool sp_profile_reach(const struct sp_profile *p, struct sp_reach *ret); /* false: no memory */

/* For entries that name the same place: deny decides over write, write over read. */
int sp_access_rank(enum sp_access a);

/* Equal place, text and subpath. */
bool sp_entry_names_same(const struct sp_entry *a, const struct sp_entry *b);

/* Adds a copy, unchecked. false: no memory */
bool sp_profile_append(struct sp_profile *p, const struct sp_entry *entry);

/* Keeps the first of equal entries, and the order. false: no memory, nothing has changed */
bool sp_profile_drop_repeats(struct sp_profile *p);

/* Arguments for "%.*s%s": a client's text in an error message, truncated at a character. */
int sp_shown_bytes(const char *text);
#define SP_SHOWN(text) sp_shown_bytes(text), (text), (text)[sp_shown_bytes(text)] != 0 ? "…" : ""

#endif

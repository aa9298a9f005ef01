/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profile_priv: shared by profile.c and resolve.c.
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

/* Arguments for "%.*s%s": a client's text in an error message, truncated at a character. */
int sp_shown_bytes(const char *text);
#define SP_SHOWN(text) sp_shown_bytes(text), (text), (text)[sp_shown_bytes(text)] != 0 ? "…" : ""

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seatbelt: a policy as the profile text and the arguments of macOS's sandbox-exec.
 *
 * Only text is made, on any host; no launcher for macOS is part of this program. The disk is asked
 * only where a path of the policy exists on this host: a symlink in a writable root is refused, a
 * carve-out that leads elsewhere is excluded there too. /tmp, /var and /etc are written as
 * /private/..., which is what the macOS kernel compares.
 */
#ifndef SP_SANDBOX_SEATBELT_H
#define SP_SANDBOX_SEATBELT_H

#include "sandbox/resolve.h"

#define SP_SEATBELT_PROGRAM "/usr/bin/sandbox-exec" /* never from PATH */

struct sp_seatbelt {
    struct sp_buf text;   /* for -p */
    struct sp_buf params; /* -DKEY=PATH, each with a NUL behind */
};
void sp_seatbelt_done(struct sp_seatbelt *s);

/* Refused: a writable root with a symlink below the top level. */
int sp_seatbelt_make(const struct sp_policy *p, struct sp_seatbelt *ret, struct sp_err *e);

/* Appends program, environment, arguments and profile text, for a person. */
bool sp_seatbelt_print(const struct sp_seatbelt *s, bool has_network, struct sp_buf *out);

/* Appends a deny pattern as an anchored regular expression of sandbox-exec. false: no memory. */
bool sp_seatbelt_add_regex(struct sp_buf *out, const char *glob);

#define auto_seatbelt __attribute__((cleanup(sp_seatbelt_done)))

#endif

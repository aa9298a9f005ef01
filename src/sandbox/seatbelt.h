/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seatbelt: a policy as profile text and arguments for sandbox-exec of macOS.
 *
 * Only text is generated, on any host; sallyport has no launcher for macOS. If a path of the policy
 * exists on this host, its symlinks count: one in a writable root is refused, and the target of one
 * in a carve-out is excluded as well. /tmp, /var and /etc are written as /private/..., the paths
 * that the macOS kernel compares.
 */
#ifndef SP_SANDBOX_SEATBELT_H
#define SP_SANDBOX_SEATBELT_H

#include "sandbox/resolve.h"

#define SP_SEATBELT_PROGRAM "/usr/bin/sandbox-exec" /* never from PATH */

struct sp_seatbelt {
    struct sp_buf text;   /* for -p */
    struct sp_buf params; /* -DKEY=PATH, each NUL-terminated */
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

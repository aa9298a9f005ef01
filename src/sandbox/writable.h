/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writable: the places that commands under a policy can change, and whether a path depends on one.
 *
 * A path "stays" if no command under the policy can make it lead to another file: no directory on
 * the way, no symlink and not the file itself lies in a writable place. So there is no race between
 * checking such a path and using it.
 *
 * Read-only places inside of a writable one count as writable here: a command can rename a
 * directory between the two and create another in its place.
 */
#ifndef SP_SANDBOX_WRITABLE_H
#define SP_SANDBOX_WRITABLE_H

#include "sandbox/canonical.h"
#include "sandbox/profile.h"

struct sp_writable {
    bool is_all;  /* every path counts as writable; also if the policy could not be resolved */
    char **roots; /* absolute, normalised; as named by the policy, and with symlinks resolved */
    size_t count, cap;
};
void sp_writable_done(struct sp_writable *w);
#define auto_writable __attribute__((cleanup(sp_writable_done)))

/* None for NULL and for a policy without confinement. */
void sp_writable_find(const struct sp_policy *p, struct sp_writable *ret);

/* Whether the normalised path is a writable place or below one, lexically. */
bool sp_writable_has(const struct sp_writable *w, const char *path);

/* Whether the absolute path stays. Then *ret is the resolved path, which may be missing on the
 * disk; else *ret is empty. Nothing below /proc, /dev and /sys stays. */
bool sp_writable_stays(const struct sp_writable *w, const char *path, struct sp_canonical *ret);

/*
 * Whether a command under the policy could have written the file. Used for rule files, which decide
 * what the next command may do. Also true if that is unknown (relative, missing or unreadable).
 * Unlike above, a protected name below a writable root counts as not writable, because each sandbox
 * pins it together with the directories on the way. false for a policy without confinement.
 */
bool sp_policy_may_write(const struct sp_policy *p, const char *path);

#endif

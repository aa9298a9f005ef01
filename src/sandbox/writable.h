/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writable: the places that commands under a policy may change, and whether a path depends on one.
 *
 * A path "stays" if it leads to the same file for as long as no one but commands under the policy
 * changes the disk: no directory on the way, no symlink and not the file itself lies in a writable
 * place. What is judged at such a path is what is there later, without a race: a confined command
 * can neither replace the file nor rename a directory above it.
 *
 * Read-only places inside of a writable one count as writable here: a directory between the two can
 * be renamed, and another one made in its place.
 */
#ifndef SP_SANDBOX_WRITABLE_H
#define SP_SANDBOX_WRITABLE_H

#include "sandbox/canonical.h"
#include "sandbox/profile.h"

struct sp_writable {
    bool is_all;  /* everything is, or the policy could not be read */
    char **roots; /* absolute, normalised; as the policy names them, and without symlinks */
    size_t count, cap;
};
void sp_writable_done(struct sp_writable *w);
#define auto_writable __attribute__((cleanup(sp_writable_done)))

/* Of NULL, and of a policy that confines nothing: no place, for no command is confined there. */
void sp_writable_find(const struct sp_policy *p, struct sp_writable *ret);

/* Whether the normalised path is such a place or below one, by its text. */
bool sp_writable_has(const struct sp_writable *w, const char *path);

/* Whether the path, which is absolute, stays. *ret says where it leads, be there something or not;
 * it is empty if the answer is no. Below /proc, /dev and /sys nothing stays. */
bool sp_writable_stays(const struct sp_writable *w, const char *path, struct sp_canonical *ret);

/*
 * Whether a command under the policy could have written the file: for rules, which say what the
 * next command may do. true also if that cannot be found out (it is relative, missing, or cannot be
 * looked at). Unlike above, a protected name below a writable root counts as out of reach: every
 * sandbox holds it, with the directories on the way. A policy that confines nothing writes nothing.
 */
bool sp_policy_may_write(const struct sp_policy *p, const char *path);

#endif

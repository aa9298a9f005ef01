/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snapshot: what a login shell ends up with, captured once for a directory, so that commands need
 * not run the profile again (unified-exec.md 9.3). Optional; when anything about it fails, the
 * command runs as it was asked.
 */
#ifndef SP_ENGINE_SNAPSHOT_H
#define SP_ENGINE_SNAPSHOT_H

#include "base/env_policy.h"
#include "engine/job.h"
#include "engine/shell.h"

struct sp_snapshots;

struct sp_snapshots_options {
    struct sp_backend *backend; /* a local one */
    const char *directory; /* absolute, private; what older runs left is removed after 3 days */
    const struct sp_policy *policy; /* of a capture, which runs the user's profile; NULL: no
                                       sandbox. Borrowed for as long as there are snapshots */
};
/* SP_E_INVALID: the directory is not ours alone. */
int sp_snapshots_new(const struct sp_snapshots_options *o, struct sp_snapshots **ret,
                     struct sp_err *e);
/* Removes its files; who waits is not told. NULL is fine. Not from within a wait's fn. */
void sp_snapshots_free(struct sp_snapshots *s);

/* Who waits for a capture. path NULL: there is none, run the original. From the loop. */
struct sp_snapshot_wait {
    void (*fn)(struct sp_snapshot_wait *w, const char *path);
    struct sp_snapshot_wait *prev, *next;
    void *impl; /* NULL: not waiting */
};
/* The snapshot for this shell and directory: captured at most once; who asks meanwhile waits. At
 * most 16 are kept. What belongs to one call or attempt is left out of `environ`. */
void sp_snapshots_get(struct sp_snapshots *s, const struct sp_shell *shell, struct sp_str cwd,
                      const struct sp_environ_ask *environ, struct sp_snapshot_wait *w);
void sp_snapshots_forget(struct sp_snapshot_wait *w); /* not waiting is fine */

/*
 * What runs instead of [shell, "-lc", cmd]: [shell, "-c", script], where the script reads the
 * snapshot quietly, restores what the engine sets, and evaluates cmd, which so sees functions and
 * aliases. If the snapshot cannot be read it runs the original. `made` is the environment of the
 * command (NAME=VALUE with NULs), `restored` the names that must keep its values, or be unset if it
 * has none. false: no memory, or longer than an argument may be: run the original.
 */
bool sp_snapshot_script(struct sp_buf *out, const struct sp_shell *shell, const char *path,
                        struct sp_str cmd, struct sp_str made, const struct sp_str *restored,
                        uint32_t restored_count);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snapshot: the state of a login shell after its profile, captured once per directory, so that
 * commands need not run the profile again. Optional: if anything fails, the command runs with its
 * real profile.
 */
#ifndef SP_ENGINE_SNAPSHOT_H
#define SP_ENGINE_SNAPSHOT_H

#include "base/buf.h"
#include "base/list.h"
#include "engine/job.h"
#include "engine/shell.h"

#define SP_SNAPSHOT_MAX      16    /* kept; the least recently used one goes */
#define SP_SNAPSHOT_LIMIT_MS 10000 /* for a capture */

struct sp_snapshots;

struct sp_snapshots_options {
    struct sp_backend *backend;     /* a local backend */
    const char *directory;          /* absolute and private; leftovers are removed after 3 days */
    const struct sp_policy *policy; /* sandbox of a capture, which runs the user's profile; NULL:
                                       none. Borrowed until sp_snapshots_free */
};
/* SP_E_INVALID: the directory is not private to us. */
int sp_snapshots_new(const struct sp_snapshots_options *o, struct sp_snapshots **ret,
                     struct sp_err *e);
/* Removes its files and drops the waits. NULL is fine. Not from within a wait's fn. */
void sp_snapshots_free(struct sp_snapshots *s);

/* A wait for a capture. fn is called from the loop; path NULL: no snapshot, run the command itself.
 * Removing `link` ends the wait. */
struct sp_snapshot_wait {
    void (*fn)(struct sp_snapshot_wait *w, const char *path);
    struct sp_list link;
};
/* Gets the snapshot of this shell and directory, capturing it if necessary. At most 16 are kept.
 * Variables of a single call or attempt are left out of `environ`. */
void sp_snapshots_get(struct sp_snapshots *s, const struct sp_shell *shell, struct sp_str cwd,
                      const struct sp_env_request *environ, struct sp_snapshot_wait *w);

/* The script to run as [shell, "-c", script] instead of [shell, "-lc", cmd]: it sources the
 * snapshot quietly, restores the variables that the engine sets, and evaluates cmd, which then sees
 * functions and aliases. If the snapshot cannot be read it executes the original. `made` has the
 * command's variables (NAME=VALUE, NUL-terminated), `restored` the names that keep their value from
 * there, or are unset. false: out of memory, or too long for an argument: run the original. */
bool sp_snapshot_script(struct sp_buf *out, const struct sp_shell *shell, const char *path,
                        struct sp_str cmd, struct sp_str made, const struct sp_str *restored,
                        uint32_t restored_count);

/* The snapshot made of what the capturing shell printed; the nonce marks its parts. false:
 * incomplete, too large, or out of memory. */
bool sp_snapshot_compose(struct sp_buf *out, enum sp_shell_type type, const char *nonce,
                         struct sp_str printed);

#endif

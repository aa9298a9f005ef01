/* SPDX-License-Identifier: Apache-2.0 */
/*
 * glob_walk: finds the files that patterns match (survey_globs.c).
 *
 * The walk is not recursive: pending directories are kept as paths on a stack. Each is opened by
 * its path from the root of the walk, and no symlink is followed.
 */
#ifndef SP_SANDBOX_GLOB_WALK_H
#define SP_SANDBOX_GLOB_WALK_H

#include "sandbox/canonical.h"
#include "sandbox/glob.h"

#define SP_MAX_GLOB_ENTRIES 1000000     /* names visited by one survey, times its patterns */
#define SP_MAX_GLOB_WAITING (64U << 20) /* bytes of paths of directories still to be read */

/* path: of the match, absolute. */
typedef int sp_glob_found(void *user, const char *path, const struct sp_identity *who,
                          struct sp_err *e);

struct sp_glob_walk {
    const char *root;            /* a directory path without symlinks */
    const struct sp_glob *globs; /* all have this directory as prefix */
    size_t glob_count;
    size_t max_depth; /* 0: unlimited */
    size_t *visited;  /* counter of names; more than max_visited is an error */
    size_t max_visited;
    sp_glob_found *found; /* a negative result ends the walk */
    void *user;
};

/* Does not descend into matches. An unreadable directory is an error; one that has disappeared is
 * skipped. */
int sp_glob_walk(const struct sp_glob_walk *w, struct sp_err *e);

#endif

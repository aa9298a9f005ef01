/* SPDX-License-Identifier: Apache-2.0 */
/*
 * glob_walk: what patterns match on the disk now.
 *
 * A walk without symlinks and without recursion: the directories still to be read wait as paths,
 * each is opened by its path from the first one, and no symlink is followed on the way.
 */
#ifndef SP_SANDBOX_GLOB_WALK_H
#define SP_SANDBOX_GLOB_WALK_H

#include "sandbox/canonical.h"
#include "sandbox/glob.h"

#define SP_MAX_GLOB_ENTRIES 1000000     /* names that one survey looks at, times its patterns */
#define SP_MAX_GLOB_WAITING (64U << 20) /* bytes of paths of directories still to be read */

/* path: of the match, absolute. */
typedef int sp_glob_found(void *user, const char *path, const struct sp_identity *who,
                          struct sp_err *e);

struct sp_glob_walk {
    const char *root;            /* a directory, no symlink in it */
    const struct sp_glob *globs; /* whose prefix it is */
    size_t glob_count;
    size_t max_depth; /* 0: as deep as it goes */
    size_t *visited;  /* counted up; more than max_visited is refused */
    size_t max_visited;
    sp_glob_found *found; /* minus a code ends the walk */
    void *user;
};

/* What matched is not entered. Refused: a directory that cannot be read; one that is gone by the
 * time is passed over. */
int sp_glob_walk(const struct sp_glob_walk *w, struct sp_err *e);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * glob: patterns of paths that may not be read.
 *
 *   *  ?      any characters, one character; never a slash, but a dot at the front
 *   [a-z]     one of these; [!a-z] or [^a-z] one that is not; a [ that is not closed is itself
 *   **        as a whole component: any number of components, none too; as the last: at least one
 *   {a,b}     either; may hold slashes, wildcards and braces
 *   \c        c itself
 *
 * Characters are UTF-8; a byte that is none counts as one. Nothing here looks at a disk;
 * glob_walk.h does.
 */
#ifndef SP_SANDBOX_GLOB_H
#define SP_SANDBOX_GLOB_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

#define SP_GLOB_MAX   4096 /* bytes of a pattern */
#define SP_GLOB_FORMS 256  /* patterns without braces that one may stand for */

struct sp_glob {
    char *prefix;    /* the directory before the first wildcard, as a path; "/" if there is none */
    bool is_literal; /* no wildcard at all: prefix is the path that it names, and forms is empty */
    char **forms;    /* below prefix, without braces, `.` and needless slashes; one of them */
    size_t form_count, form_cap;
    size_t max_depth; /* components below prefix that a match can have; SIZE_MAX: any number */
};
void sp_glob_done(struct sp_glob *g);

/* pattern: absolute. Refused: braces that do not match or stand for too much, a class with a range
 * backwards, `..` behind a wildcard. */
int sp_glob_read(const char *pattern, struct sp_glob *ret, struct sp_err *e);

/* below: a path relative to g's prefix, normalised */
bool sp_glob_matches_below(const struct sp_glob *g, const char *below);

/* Both absolute; the path normalised. A pattern that cannot be read matches everything, so that
 * what it was to deny stays denied. */
bool sp_glob_matches(const char *pattern, const char *path);
/* The same for the path or a directory above it. */
bool sp_glob_covers(const char *pattern, const char *path);

#define auto_glob __attribute__((cleanup(sp_glob_done)))

#endif

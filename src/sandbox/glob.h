/* SPDX-License-Identifier: Apache-2.0 */
/*
 * glob: patterns for paths that must not be read.
 *
 *   *  ?      any characters, one character; never a slash, but also a leading dot
 *   [a-z]     one of these; [!a-z] or [^a-z] any other; an unclosed [ stands for itself
 *   **        as a whole component: any number of components, also none; as the last: at least one
 *   {a,b}     either; may contain slashes, wildcards and braces
 *   \c        c itself
 *
 * Characters are UTF-8; an invalid byte counts as one character. These functions do not access the
 * disk; glob_walk.h does.
 */
#ifndef SP_SANDBOX_GLOB_H
#define SP_SANDBOX_GLOB_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

#define SP_GLOB_MAX   4096 /* bytes of a pattern */
#define SP_GLOB_FORMS 256  /* patterns without braces that one pattern may expand to */

struct sp_glob {
    char *prefix;    /* the directory before the first wildcard, at least "/" */
    bool is_literal; /* no wildcard: prefix is the whole path, and forms is empty */
    char **forms;    /* alternatives, relative to prefix; no braces, `.` or repeated slashes */
    size_t form_count, form_cap;
    size_t max_depth; /* components below prefix that a match can have; SIZE_MAX: any number */
};
void sp_glob_done(struct sp_glob *g);

/* pattern: absolute. Refused: unbalanced braces, too many alternatives, a class with a reversed
 * range, `..` after a wildcard. */
int sp_glob_read(const char *pattern, struct sp_glob *ret, struct sp_err *e);

/* below: a path relative to g's prefix, normalised */
bool sp_glob_matches_below(const struct sp_glob *g, const char *below);

/* path: absolute, normalised */
bool sp_glob_matches_path(const struct sp_glob *g, const char *path);

/* Whether the pattern matches the path or one of its ancestors; both absolute, the path normalised.
 * An invalid pattern matches everything: it denies access. */
bool sp_glob_covers(const char *pattern, const char *path);

#define auto_glob __attribute__((cleanup(sp_glob_done)))

#endif

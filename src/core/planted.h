/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planted: watches protected names that have no placeholder, for files that appear while a command
 * in a sandbox could have made them.
 *
 * Commands in a sandbox have the user's own uid, so it cannot be known who made a file, and nothing
 * is deleted. A file of this user is renamed in its directory, atomically and without reading it,
 * so that no program uses it under its name; the log tells the new name.
 */
#ifndef SP_CORE_PLANTED_H
#define SP_CORE_PLANTED_H

#include "sandbox/survey.h"

#define SP_PLANTED_CHECK_MS 500 /* between two checks while commands run */

struct sp_watched_root {
    int fd; /* of the directory, which may be moved */
    char *path;
    uint32_t names; /* bits, indexes of sp_protected_names */
};

struct sp_watched {
    struct sp_watched_root *roots;
    size_t count;
};

/* Takes the names that the survey found missing and that get no placeholder. false: out of memory
 * or descriptors. */
bool sp_watched_make(const struct sp_survey *s, struct sp_watched *ret);
void sp_watched_done(struct sp_watched *w);
/* Renames files that have appeared. */
void sp_watched_displace(const struct sp_watched *w);

#endif

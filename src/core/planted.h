/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planted: protected names that have no placeholder, and what appears there while a sandbox could
 * have made it.
 *
 * It cannot be known who made it: the sandbox's commands have the user's own id. So nothing is
 * deleted. What belongs to this user is renamed in its directory, atomically and without a look
 * inside, so that no program takes it for what its name says; the log says what became of it.
 */
#ifndef SP_CORE_PLANTED_H
#define SP_CORE_PLANTED_H

#include "sandbox/survey.h"

#define SP_PLANTED_CHECK_MS 500 /* between two looks while commands run */

struct sp_watched_root {
    int fd; /* of the directory, wherever it is moved */
    char *path;
    uint32_t names; /* a bit for each of sp_protected_names */
};

struct sp_watched {
    struct sp_watched_root *roots;
    size_t count;
};

/* The names that this survey found missing and that get no placeholder. false: no memory, or no
 * descriptors. */
bool sp_watched_make(const struct sp_survey *s, struct sp_watched *ret);
void sp_watched_done(struct sp_watched *w);
/* Renames what has appeared. */
void sp_watched_displace(const struct sp_watched *w);

#endif

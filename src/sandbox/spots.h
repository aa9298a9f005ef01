/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spots: a table of places with an access; the innermost spot above a path decides about it.
 *
 * Spots are added in rounds: additions take effect when sp_spots_settle has sorted them in.
 */
#ifndef SP_SANDBOX_SPOTS_H
#define SP_SANDBOX_SPOTS_H

#include "sandbox/survey.h"

struct sp_spots {
    struct sp_spot *items;
    size_t count, cap;
    size_t settled; /* the first `settled` items are sorted, each path once; only these are found */
};
void sp_spots_done(struct sp_spots *t);

/* Compares by components: the paths below a directory follow it directly. */
int sp_path_order(const char *a, const char *b);

/* The path is copied. false: no memory */
bool sp_spots_add(struct sp_spots *t, const char *path, const struct sp_spot *like);

/* Sorts, and keeps one spot per path: hidden before deny, then our own places, write, read. Among
 * equals the later reason of enum sp_spot_why decides, then an entry that is not a temporary
 * directory (p). Fails if two spots of one path saw different inodes. */
int sp_spots_settle(struct sp_spots *t, const struct sp_policy *p, struct sp_err *e);

/* Whether the entry of the profile is `tmpdir` or `slash_tmp`; false for SP_NO_ENTRY. */
bool sp_entry_is_temporary(const struct sp_policy *p, size_t entry);

/* NULL: none */
const struct sp_spot *sp_spots_at(const struct sp_spots *t, const char *path);
/* The innermost spot at or above the first n bytes of path. */
const struct sp_spot *sp_spots_over(const struct sp_spots *t, const char *path, size_t n);

/* Whether names may be created and renamed in the directory that is the first n bytes of path. */
bool sp_spots_can_write(const struct sp_spots *t, const char *path, size_t n);

/* The length of the parent's path: 1 for "/a", 0 for "/". */
size_t sp_path_parent(const char *path);

/* Removes the writable spots at or below the path: the spot around it decides. */
void sp_spots_close_below(struct sp_spots *t, const char *path);

/* Removes all spots below hidden ones. */
void sp_spots_drop_below_hidden(struct sp_spots *t);

#define auto_spots __attribute__((cleanup(sp_spots_done)))

#endif

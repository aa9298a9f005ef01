/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spots: a table of places with an access, each place once, the innermost one deciding.
 *
 * It is filled in turns: what was added counts from the next settling on.
 */
#ifndef SP_SANDBOX_SPOTS_H
#define SP_SANDBOX_SPOTS_H

#include "sandbox/survey.h"

struct sp_spots {
    struct sp_spot *items;
    size_t count, cap;
    size_t settled; /* so many are sorted, each path once; only these are ever found */
};
void sp_spots_done(struct sp_spots *t);

/* By components: what is below a path comes directly after it. */
int sp_path_order(const char *a, const char *b);

/* The path is copied. false: no memory */
bool sp_spots_add(struct sp_spots *t, const char *path, const struct sp_spot *like);

/* Sorts, and leaves one spot a path: a cover before all, then deny, places of our own, write, read;
 * among equals the one whose reason is the later in enum sp_spot_why, and the entry that is not
 * about a temporary directory (p). Refused: two that saw different things at one path. */
int sp_spots_settle(struct sp_spots *t, const struct sp_policy *p, struct sp_err *e);

/* NULL: none */
const struct sp_spot *sp_spots_at(const struct sp_spots *t, const char *path);
/* The innermost one at or above the first n bytes of path. */
const struct sp_spot *sp_spots_over(const struct sp_spots *t, const char *path, size_t n);

/* Whether names in the directory that are the first n bytes of path may be made and renamed. */
bool sp_spots_can_write(const struct sp_spots *t, const char *path, size_t n);

/* The bytes of path before its last component: 1 for "/a", 0 for "/". */
size_t sp_path_parent(const char *path);

/* Takes away what may be written at or below the path, so that what is around it decides. */
void sp_spots_close_below(struct sp_spots *t, const char *path);

/* Takes everything below a cover away. */
void sp_spots_sink_covered(struct sp_spots *t);

#define auto_spots __attribute__((cleanup(sp_spots_done)))

#endif

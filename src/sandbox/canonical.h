/* SPDX-License-Identifier: Apache-2.0 */
/*
 * canonical: where a path leads, step by step, with every symlink on the way told.
 *
 * The walk holds a descriptor of each directory while it looks for the next name, so what is found
 * is one place that was there, however much others rename meanwhile. `..` is where the kernel goes,
 * not what the text says.
 */
#ifndef SP_SANDBOX_CANONICAL_H
#define SP_SANDBOX_CANONICAL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

#include "base/error.h"

#define SP_MAX_LINKS 40 /* as the kernel */

/* Which inode it is. The number alone is given again after a removal; the birth, where the file
 * system keeps it, is not. */
struct sp_identity {
    dev_t dev;
    ino_t ino;
    mode_t mode;
    off_t size;
    struct timespec born, changed; /* born: zero where it is not kept */
};

/* 0 or errno. name "" : dir itself; a symlink is not followed unless asked. */
int sp_identity_get(int dir, const char *name, bool follows, struct sp_identity *ret);
/* The same, at a path that must not cross a symlink (else ELOOP), though it may be one. */
int sp_identity_get_strictly(const char *path, struct sp_identity *ret);
static inline bool sp_same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}
bool sp_identity_equal(const struct sp_identity *a, const struct sp_identity *b);

/* A descriptor of a place that no symlink leads to; -1 and errno. */
int sp_open_strictly(int dir, const char *path, int flags);

struct sp_symlink {
    char *path;   /* its parent has no symlink in it */
    char *target; /* as it reads */
    struct sp_identity who;
};

enum sp_way {
    SP_WAY_FOUND,
    SP_WAY_MISSING,    /* a component is not there */
    SP_WAY_IMPOSSIBLE, /* a component is longer than a name can be: it will never be there */
    SP_WAY_NO_DIR,     /* a component that has something below it is no directory */
    SP_WAY_BARRED,     /* we may not look further */
};

struct sp_canonical {
    enum sp_way way;
    char *path;             /* no symlink in it; if not FOUND: up to the component that ended it */
    char *parent;           /* if MISSING or BARRED: the directory it would be in; else NULL */
    struct sp_identity who; /* of what is at path; if there is a parent: of that */
    struct sp_symlink *links; /* in the order they were met */
    size_t link_count, link_cap;
};
void sp_canonical_done(struct sp_canonical *c);

/* path is absolute, but need not be normalised. Refused: more than SP_MAX_LINKS symlinks, those
 * that lead to an object and not to a path, a place whose path is longer than the kernel takes. */
int sp_canonical_find(const char *path, struct sp_canonical *ret, struct sp_err *e);

#define auto_canonical __attribute__((cleanup(sp_canonical_done)))

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * canonical: resolves a path step by step and records each symlink on the way.
 *
 * The walk holds a descriptor of each directory while it opens the next name, so the result existed
 * at one moment even if other processes rename directories meanwhile. `..` is resolved as the
 * kernel does, not lexically.
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

/* Identifies an inode. Inode numbers are reused after a removal; the birth time, where the file
 * system has one, tells two uses apart. */
struct sp_identity {
    dev_t dev;
    ino_t ino;
    mode_t mode;
    off_t size;
    struct timespec born, changed; /* born: zero if the file system has no birth times */
};

/* 0 or errno. name "": dir itself. follows: symlinks. */
int sp_identity_get(int dir, const char *name, bool follows, struct sp_identity *ret);
/* The same for a path without symlinks on the way (else ELOOP); its last component may be one. */
int sp_identity_get_strictly(const char *path, struct sp_identity *ret);
static inline bool sp_same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}
bool sp_identity_equal(const struct sp_identity *a, const struct sp_identity *b);

/* Opens a path without symlinks; -1 and errno. */
int sp_open_strictly(int dir, const char *path, int flags);

struct sp_symlink {
    char *path;   /* its parent has no symlink in it */
    char *target; /* the text of the symlink */
    struct sp_identity who;
};

enum sp_way {
    SP_WAY_FOUND,
    SP_WAY_MISSING,    /* ENOENT */
    SP_WAY_IMPOSSIBLE, /* ENAMETOOLONG: no such file can ever exist */
    SP_WAY_NO_DIR,     /* ENOTDIR: a component before the last one is not a directory */
    SP_WAY_BARRED,     /* EACCES: no permission to look further */
};

struct sp_canonical {
    enum sp_way way;
    char *path;               /* without symlinks; not FOUND: up to the component that failed */
    char *parent;             /* MISSING, BARRED: the directory of that component; else NULL */
    struct sp_identity who;   /* the inode at path; MISSING, BARRED: at parent */
    struct sp_symlink *links; /* in the order of the walk */
    size_t link_count, link_cap;
};
void sp_canonical_done(struct sp_canonical *c);

/* path is absolute, but need not be normalised. Refused: more than SP_MAX_LINKS symlinks, magic
 * symlinks of /proc, results longer than PATH_MAX. */
int sp_canonical_find(const char *path, struct sp_canonical *ret, struct sp_err *e);

#define auto_canonical __attribute__((cleanup(sp_canonical_done)))

/*
 * ---- budget ----
 *
 * Policies come from clients, and commands shape the trees that policies name, so a look at the
 * disk could take any time. It gives up after SP_DISK_BUDGET_MS, so that the front, which looks for
 * file operations, goes on, and threads of the surveyor are not used up. Each thread has one budget
 * at a time. The clock is read between system calls: one that hangs is not interrupted.
 */

#define SP_DISK_BUDGET_MS 1000 /* to make a survey, or to check whether one still holds */

void sp_budget_begin(unsigned ms);
/* Cheap: reads the clock at every 64th call. */
bool sp_budget_is_spent(void);
/* Fails with the error for a spent budget. */
int sp_budget_refuse(struct sp_err *e);

#endif
